//! Boots of a run: guests made ready, started, listened to and judged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use fs_err as fs;

use super::host;
use super::plan::Target;
use super::run::Runner;
use crate::boot::guest::{self, GuestFiles};
use crate::boot::machine::{Host, Kvm, Machine};
use crate::boot::session::Session;
use crate::boot::verdict::{self, Expected, Report};
use crate::boot::{compiled, kvm, params};
use crate::cache::{Inputs, sync_tree, write_whole};
use crate::event::{Event, Job};
use crate::kernel::build::Built;
use crate::kernel::kconfig;
use crate::model::{Accel, Benchmark, Boot, Cell, Failure, Firmware, Kind, Online, Sample, Stage};
use crate::process::jobserver::Turn;
use crate::store::{BootRecord, Record};

/// What the guests of an architecture boot with, and on.
#[derive(Debug, Clone)]
pub(super) struct Guest {
    files: GuestFiles,
    firmware: Option<PathBuf>,
    /// Hashes of its files, and whether KVM can execute it.
    hashes: Inputs,
    host: Host,
}

/// One boot of a cell.
struct Attempt<'a> {
    cell: &'a Cell,
    number: u32,
    built: &'a Built,
    boot: &'a Boot,
    benchmarks: &'a [Benchmark],
    machine: &'a Machine,
    dir: &'a Path,
    job: Job,
    began: Instant,
    /// How busy the host was when it began.
    before: BTreeMap<String, String>,
}

impl Runner<'_> {
    /// Makes ready what the boots that are left need.
    pub(super) async fn guests(&self) -> anyhow::Result<()> {
        if self.state.borrow().todo.is_empty() {
            return Ok(());
        }
        for (name, target) in &self.targets {
            let job = Job::Guest(name.clone());
            let began = Instant::now();
            self.tell(Event::Started(job.clone()));
            let made = self.guest(target).await;
            if self.stopped() {
                return Ok(());
            }
            match made {
                Ok(guest) => {
                    self.state.borrow().dir.pin_guest(name, &guest.hashes)?;
                    let summary = guest.files.packages.join(" ");
                    self.tell(Event::Finished { job, took: began.elapsed(), summary });
                    self.state.borrow_mut().guests.insert(name.clone(), guest);
                }
                Err(error) => {
                    let failure = Failure::new(Stage::Boot, "no guest", error);
                    let cells: Vec<_> =
                        self.matrix.cells.iter().filter(|c| c.arch == *name).cloned().collect();
                    self.fail(job, &cells, failure)?;
                }
            }
        }
        Ok(())
    }

    async fn guest(&self, target: &Target) -> anyhow::Result<Guest> {
        let Target { arch, tools, .. } = target;
        let (refresh, cache, stop) = (self.options.refresh, self.cache, self.stop);
        let files = guest::gather(arch, tools, &self.matrix.benchmarks, refresh, cache, stop).await?;
        let dir = self.state.borrow().dir.path().join("guest");
        fs::create_dir_all(&dir)?;
        write_whole(&dir.join(format!("{}.packages", arch.name)), files.packages.join("\n").as_bytes())?;
        let boots: Vec<Boot> = self
            .matrix
            .cells
            .iter()
            .filter(|c| c.arch == arch.name)
            .map(|c| self.matrix.boot_of(c))
            .collect();
        let may_use_kvm = boots.iter().any(|b| matches!(b.accel, Accel::Auto | Accel::Kvm));
        let kvm = if may_use_kvm { kvm::probe(arch, tools, cache, stop).await } else { Kvm::Foreign };
        let host = Host { cores: host::cores(), kvm };
        let machine = |boot| Machine::choose(arch, boot, &host, 1);
        let mut firmware = None;
        if boots.iter().map(machine).any(|m| m.firmware == Firmware::Matrix) {
            firmware = compiled::firmware(arch, tools, cache, stop).await?;
        }
        let mut hashes = Inputs::default();
        if may_use_kvm {
            hashes.add("kvm", if host.kvm == Kvm::Works { "works" } else { "does not work" });
        }
        let mut hash = |name: &str, content: &[u8]| hashes.add(name, &*blake3::hash(content).to_hex());
        files.files.iter().for_each(|(name, content)| hash(name, content));
        if let Some(firmware) = &mut firmware {
            let content = fs::read(&firmware)?;
            hash("firmware", &content);
            *firmware = dir.join(format!("{}-firmware.elf", arch.name));
            write_whole(firmware, &content)?;
        }
        Ok(Guest { files, firmware, hashes, host })
    }

    /// The initramfs with these benchmarks, made once for all boots that have them.
    fn initramfs(
        &self,
        arch: &str,
        guest: &Guest,
        benchmarks: &[Benchmark],
        online: Online,
    ) -> anyhow::Result<PathBuf> {
        let staged = online == Online::Staged;
        let file = self
            .state
            .borrow()
            .dir
            .path()
            .join("guest")
            .join(guest::initramfs_name(arch, benchmarks, staged));
        if !file.exists() {
            write_whole(&file, &guest.files.clone().initramfs(benchmarks, staged)?)?;
        }
        Ok(file)
    }

    /// What a boot that is still to be done is done with, once that is there.
    fn due(&self, cell: &Cell, number: u32) -> Option<(Arc<Built>, Guest)> {
        let state = self.state.borrow();
        let built = state.kernels.get(&cell.id)?;
        let due = state.todo.contains(&(cell.id.clone(), number));
        let guest = state.guests.get(&cell.arch).filter(|_| due)?;
        Some((built.clone(), guest.clone()))
    }

    /// Boots a cell, once its kernel is there; what goes wrong is recorded.
    pub(super) async fn boot(&self, cell: &Cell, number: u32) -> anyhow::Result<()> {
        let Some((built, guest)) = self.due(cell, number) else { return Ok(()) };
        let alone = if self.counts(cell) { None } else { Some(self.machine.write().await) };
        let _shared = match alone {
            None => Some((self.machine.read().await, self.jobs.token(Turn::First).await?)),
            Some(_) => None,
        };
        if self.stopped() || !self.state.borrow_mut().todo.remove(&(cell.id.clone(), number)) {
            return Ok(());
        }
        let (boot, benchmarks) = (self.matrix.boot_of(cell), self.matrix.benchmarks_of(cell));
        let machine = Machine::choose(&self.targets[&cell.arch].arch, &boot, &guest.host, number);
        let dir = self.cell_dir(&cell.id)?.join(format!("boot-{number}"));
        if dir.exists() {
            // Of a boot that was cut off, or failed and is done again.
            fs::remove_dir_all(&dir)?;
        }
        let attempt = Attempt {
            cell,
            number,
            built: &built,
            boot: &boot,
            benchmarks: &benchmarks,
            machine: &machine,
            dir: &dir,
            job: Job::Boot(cell.id.clone(), number),
            began: Instant::now(),
            before: host::condition(),
        };
        let report = self.start(&attempt, &guest).await;
        if self.stopped() {
            return Ok(());
        }
        match report {
            Ok(report) => self.judge(attempt, &report),
            Err(error) => {
                let failure =
                    Failure { boot: Some(number), ..Failure::new(Stage::Boot, "not started", error) };
                self.booted(&attempt, Vec::new(), vec![failure])
            }
        }
    }

    /// Starts the guest and listens until it is gone.
    async fn start(&self, attempt: &Attempt<'_>, guest: &Guest) -> anyhow::Result<Report> {
        let Attempt { cell, built, boot, benchmarks, machine, dir, job, .. } = attempt;
        self.tell(Event::Started(job.clone()));
        for reason in &machine.reasons {
            self.tell(Event::Step(job.clone(), reason.clone()));
        }
        if let Some(why) = cannot(machine, &guest.host) {
            bail!(why);
        }
        let session = Session {
            arch: &self.targets[&cell.arch].arch,
            boot,
            image: &built.image(),
            initramfs: &self.initramfs(&cell.arch, guest, benchmarks, machine.online)?,
            machine,
            firmware: machine.firmware_file(guest.firmware.as_deref()),
            benchmarks,
            dir,
        };
        let step = |text| self.tell(Event::Step(job.clone(), text));
        session.run(self.stop, step).await.with_context(|| format!("{job}"))
    }

    fn judge(&self, attempt: Attempt<'_>, report: &Report) -> anyhow::Result<()> {
        let expected = self.expected(&attempt)?;
        let Attempt { cell, number, boot, benchmarks, machine, dir, .. } = attempt;
        // Beside other guests and builds the host's clock says little of this boot.
        let alone = !self.counts(cell);
        let mut fault = verdict::fault(report, &expected, benchmarks);
        let limit = boot.max_other_load.filter(|_| alone);
        let busy = limit.and_then(|limit| verdict::busy(report, limit, fault.as_ref()));
        // What was counted stays good beside stages that were timed on a busy host.
        let stages_alone = fault.is_none() && machine.kind() == Kind::EmulatedInstructions;
        fault = if stages_alone { None } else { busy.clone().or(fault) };
        keep_boot_evidence(&attempt, report, fault.as_ref().or(busy.as_ref()))?;
        let evidence = self.shown(dir);
        let told = |detail: String| format!("{detail}; evidence: {evidence}");
        if let Some((what, detail)) = fault {
            let (detail, boot) = (told(detail), Some(number));
            let failure = Failure { stage: Stage::Boot, what, detail, boot, benchmark: None };
            return self.booted(&attempt, Vec::new(), vec![failure]);
        }
        let (mut samples, mut failures) =
            verdict::samples(report, &cell.id, number, machine.kind(), benchmarks);
        let summary = summary(&samples);
        let of_clock = |s: &Sample| (alone && busy.is_none()) || s.kind == machine.kind();
        samples
            .extend(verdict::stages(report, &cell.id, number, machine.kind()).into_iter().filter(of_clock));
        failures.extend(busy.map(|(what, detail)| {
            let stages = Some(verdict::STAGES_FAMILY.to_owned());
            Failure { stage: Stage::Boot, what, detail, boot: Some(number), benchmark: stages }
        }));
        let failures: Vec<_> =
            failures.into_iter().map(|f| Failure { detail: told(f.detail), ..f }).collect();
        let good = failures.is_empty();
        self.booted(&attempt, samples, failures)?;
        if good {
            let took = attempt.began.elapsed();
            self.tell(Event::Step(attempt.job.clone(), verdict::breakdown(report, took)));
            self.tell(Event::Finished { job: attempt.job, took, summary });
        }
        Ok(())
    }

    /// Records all that came of a boot, at once.
    fn booted(
        &self,
        attempt: &Attempt<'_>,
        samples: Vec<Sample>,
        failures: Vec<Failure>,
    ) -> anyhow::Result<()> {
        self.record(&[Record::Boot(BootRecord {
            cell: attempt.cell.id.clone(),
            boot: attempt.number,
            kernel: attempt.built.info.inputs.fingerprint(),
            samples,
            failures: failures.clone(),
        })])?;
        for failure in failures {
            self.tell(Event::Failed(attempt.job.clone(), failure));
        }
        Ok(())
    }

    /// What the guest must show to be the one that was asked for.
    fn expected(&self, attempt: &Attempt<'_>) -> anyhow::Result<Expected> {
        let Attempt { cell, built, boot, .. } = attempt;
        let config = fs::read_to_string(built.dir.join("config"))?;
        Ok(Expected {
            release: built.info.release.clone(),
            build_id: built.info.build_id.clone(),
            nr_cpus: kconfig::value(&config, "NR_CPUS").and_then(|n| n.parse().ok()),
            vcpus: boot.vcpus,
            shape: boot.shape().ok().flatten(),
            levels: self.targets[&cell.arch].arch.qemu.topology.clone(),
            params: params::asked(&boot.cmdline),
        })
    }
}

/// Why a machine that the user asked for cannot be had on this host.
fn cannot(machine: &Machine, host: &Host) -> Option<String> {
    match (&host.kvm, machine.accel) {
        (Kvm::Foreign, Accel::Kvm) => {
            let host = std::env::consts::ARCH;
            Some(format!(
                "accel kvm runs guests of the host's architecture, which is {host}; accel = \"auto\" emulates others"
            ))
        }
        (Kvm::Broken(why), Accel::Kvm) => Some(format!("accel kvm does not work on this host: {why}")),
        _ => None,
    }
}

fn keep_boot_evidence(
    attempt: &Attempt<'_>,
    report: &Report,
    fault: Option<&(String, String)>,
) -> anyhow::Result<()> {
    let runs: Vec<_> = report
        .runs
        .iter()
        .map(|run| {
            let end = run.end.as_ref();
            serde_json::json!({
                "benchmark": run.bench,
                "iteration": run.iteration,
                "output": run.lines,
                "end": end.map(|(how, _)| format!("{how:?}")),
                "guest_seconds": end.map(|(_, wall)| wall.as_secs_f64()),
            })
        })
        .collect();
    let evidence = serde_json::json!({
        "machine": attempt.machine,
        "host": { "before": attempt.before, "after": host::condition(), "load": report.load },
        "guest": report.facts.of_guest,
        "qemu": report.ended.map(|e| e.to_string()),
        "stack_left": report.stack_left,
        "fault": fault.map(|(what, detail)| format!("{what}: {detail}")),
        "runs": runs,
        "console_results": report.said,
    });
    write_whole(&attempt.dir.join("boot.json"), &serde_json::to_vec_pretty(&evidence)?)?;
    // Before anything is recorded that it is to prove.
    Ok(sync_tree(attempt.dir)?)
}

/// `hackbench.time 0.512 0.498 s`
fn summary(samples: &[Sample]) -> String {
    let mut metrics: indexmap::IndexMap<(&str, &str), Vec<String>> = indexmap::IndexMap::new();
    for sample in samples {
        metrics.entry((&sample.metric, &sample.unit)).or_default().push(sample.value.to_string());
    }
    let texts = metrics.into_iter().map(|((metric, unit), values)| match values.len() {
        0..=10 => format!("{metric} {} {unit}", values.join(" ")),
        n => format!("{metric} {n} values"),
    });
    texts.collect::<Vec<_>>().join(", ")
}
