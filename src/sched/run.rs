//! Doing what a plan says: configurations first, as they fail in seconds;
//! then kernel by kernel, each booted as soon as it is there; then the
//! remaining boots in rounds over all cells, so that a drift of the host's
//! speed hits all alike.

use std::cell::Cell as Cut;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use fs_err as fs;

use super::host;
use super::plan::{self, Plan, PlannedBuild, State, Target};
use crate::arch::Arch;
use crate::boot::machine::Machine;
use crate::boot::session::Session;
use crate::boot::verdict::{self, Expected, Report};
use crate::boot::{compiled, guest};
use crate::cache::{Cache, Lock, write_whole};
use crate::event::{Event, Job, Tell};
use crate::kernel::build::{self, Built};
use crate::kernel::config::Configured;
use crate::kernel::{KernelBuild, kconfig, source};
use crate::model::{Cell, CellId, Direction, Failure, Firmware, Kind, Matrix, Online, Sample, Stage};
use crate::process::Stop;
use crate::store::{Record, RunDir};

/// How a run is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Compiler processes at once.
    pub jobs: usize,
    /// Whether to ask the distribution for newer packages.
    pub refresh: bool,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Kernels that were built.
    pub built: usize,
    /// Kernels that were in the cache.
    pub fresh: usize,
    /// Cells with at least one failure.
    pub failed: Vec<CellId>,
    /// Whether the user stopped it.
    pub interrupted: bool,
}

/// A run under way.
struct Runner<'a> {
    matrix: &'a Matrix,
    dir: &'a mut RunDir,
    cache: &'a Cache,
    options: Options,
    tell: Tell,
    stop: &'a Stop,
    targets: BTreeMap<String, Target>,
    /// What each architecture's guests boot with; none where that failed.
    guests: BTreeMap<String, Guest>,
    /// Final configuration of cells whose kernels are there.
    configs: BTreeMap<CellId, BTreeMap<String, String>>,
    built: BTreeMap<CellId, Built>,
    /// Whether anything was left undone because the user stopped the run.
    cut: Cut<bool>,
    summary: Summary,
}

/// What the guests of an architecture boot with.
#[derive(Debug, Clone)]
struct Guest {
    initramfs: PathBuf,
    /// The one whose agent brings processors online.
    staged: PathBuf,
    firmware: Option<PathBuf>,
}

/// One boot of a cell.
struct Attempt<'a> {
    cell: &'a Cell,
    number: u32,
    built: &'a Built,
    machine: &'a Machine,
    dir: &'a Path,
    job: Job,
    began: Instant,
}

/// Runs a matrix into a run directory, with the toolchain of each of its
/// architectures.
///
/// # Errors
/// The run directory or the cache cannot be written. What goes wrong with a
/// cell is recorded instead.
pub async fn run(
    matrix: &Matrix,
    targets: BTreeMap<String, Target>,
    dir: &mut RunDir,
    cache: &Cache,
    options: Options,
    tell: Tell,
    stop: &Stop,
) -> anyhow::Result<Summary> {
    dir.write_info(&host::describe(&targets, jiff::Timestamp::now()))?;
    let mut runner = Runner {
        matrix,
        dir,
        cache,
        options,
        tell,
        stop,
        targets,
        guests: BTreeMap::new(),
        configs: BTreeMap::new(),
        built: BTreeMap::new(),
        cut: Cut::new(false),
        summary: Summary::default(),
    };
    runner.everything().await?;
    Ok(Summary { interrupted: runner.cut.get(), ..runner.summary })
}

impl Runner<'_> {
    /// Whether the user wants an end. Asked before something is done or
    /// believed, so a yes means that something is left undone.
    fn stopped(&self) -> bool {
        let stopped = self.stop.graceful.is_cancelled() || self.stop.now.is_cancelled();
        self.cut.set(self.cut.get() || stopped);
        stopped
    }

    fn tell(&self, event: Event) {
        (self.tell)(event);
    }

    async fn everything(&mut self) -> anyhow::Result<()> {
        let Some(plan) = self.plan().await? else { return Ok(()) };
        self.summary.fresh = plan.fresh();
        let (builds, fresh) = (plan.builds.len() - plan.fresh(), plan.fresh());
        self.tell(Event::RunStarted { builds, fresh, boots: plan.boots });
        if self.matrix.boot.boots > 0 {
            self.guests().await?;
        }
        let configured = self.configure_all(&plan).await?;
        for (planned, configured) in plan.builds.iter().zip(configured) {
            if self.stopped() {
                return Ok(());
            }
            self.kernel(planned, configured).await?;
            for cell in &planned.cells {
                self.boot(cell, 1).await?;
            }
        }
        for round in 2..=self.matrix.boot.boots {
            for cell in &self.matrix.cells {
                self.boot(cell, round).await?;
            }
        }
        Ok(())
    }

    // --- source and plan ---

    /// Fetches the source and plans; without a source every cell has failed.
    async fn plan(&mut self) -> anyhow::Result<Option<Plan>> {
        let began = Instant::now();
        self.tell(Event::Started(Job::Source));
        let Matrix { source, kernel, .. } = self.matrix;
        match source::prepare(source, &kernel.patches, self.options.refresh, self.cache, self.stop).await {
            Ok(tree) => {
                let summary = tree.describe.clone();
                self.tell(Event::Finished { job: Job::Source, took: began.elapsed(), summary });
                plan::make(self.matrix, &self.targets, Some(&tree), self.cache).map(Some)
            }
            Err(_) if self.stopped() => Ok(None),
            Err(error) => {
                let failure = Failure::new(Stage::Source, "no source", error);
                self.fail(Job::Source, &self.matrix.cells, failure)?;
                Ok(None)
            }
        }
    }

    /// Records a failure for all `cells`.
    fn fail(&mut self, job: Job, cells: &[Cell], failure: Failure) -> anyhow::Result<()> {
        let records: Vec<_> =
            cells.iter().map(|c| Record::Failure { cell: c.id.clone(), failure: failure.clone() }).collect();
        self.dir.append(&records)?;
        for cell in cells {
            if !self.summary.failed.contains(&cell.id) {
                self.summary.failed.push(cell.id.clone());
            }
        }
        self.tell(Event::Failed(job, failure));
        Ok(())
    }

    // --- guests ---

    async fn guests(&mut self) -> anyhow::Result<()> {
        let targets = self.targets.clone();
        for (name, target) in &targets {
            let job = Job::Guest(name.clone());
            let began = Instant::now();
            self.tell(Event::Started(job.clone()));
            let made = self.guest(target).await;
            if self.stopped() {
                return Ok(());
            }
            match made {
                Ok((guest, summary)) => {
                    self.tell(Event::Finished { job, took: began.elapsed(), summary });
                    self.guests.insert(name.clone(), guest);
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

    async fn guest(&self, target: &Target) -> anyhow::Result<(Guest, String)> {
        let Target { arch, tools, .. } = target;
        let files =
            guest::gather(arch, tools, &self.matrix.benchmarks, self.options.refresh, self.cache, self.stop)
                .await?;
        let dir = self.dir.path().join("guest");
        fs::create_dir_all(&dir)?;
        let packages = files.packages.join(" ");
        fs::write(dir.join(format!("{}.packages", arch.name)), files.packages.join("\n"))?;
        let initramfs = dir.join(initramfs_name(&arch.name, Online::Kernel));
        let staged = dir.join(initramfs_name(&arch.name, Online::Staged));
        fs::write(&initramfs, files.clone().initramfs(&self.matrix.benchmarks, false)?)?;
        fs::write(&staged, files.initramfs(&self.matrix.benchmarks, true)?)?;
        let mut firmware = None;
        if self.needs_firmware(arch) {
            firmware = compiled::firmware(arch, tools, self.cache, self.stop).await?;
        }
        if let Some(firmware) = &mut firmware {
            let kept = dir.join(format!("{}-firmware.elf", arch.name));
            fs::copy(&firmware, &kept)?;
            *firmware = kept;
        }
        Ok((Guest { initramfs, staged, firmware }, packages))
    }

    /// Whether a guest of this architecture boots with firmware of ours.
    fn needs_firmware(&self, arch: &Arch) -> bool {
        let cells = self.matrix.cells.iter().filter(|c| c.arch == arch.name);
        let machine = |c: &Cell| Machine::choose(arch, &self.matrix.boot, c.vcpus, host::cores(), 1);
        cells.map(machine).any(|m| m.firmware == Firmware::Matrix)
    }

    // --- kernels ---

    /// Verifies the configuration of every kernel that is not there, and keeps
    /// others from building the same ones meanwhile.
    async fn configure_all(&mut self, plan: &Plan) -> anyhow::Result<Vec<Option<Ready>>> {
        let mut order: Vec<(String, usize)> = Vec::new();
        for (index, planned) in plan.builds.iter().enumerate() {
            if let (State::Dirty(_), Some(build)) = (&planned.state, &planned.build) {
                order.push((build.inputs()?.fingerprint(), index));
            }
        }
        // All runs lock in the same order, so that none waits for another in a circle.
        order.sort();
        let mut locks: BTreeMap<usize, (String, Lock)> = BTreeMap::new();
        for (fingerprint, index) in order {
            let lock = match self.cache.lock("builds", &fingerprint, &self.stop.graceful).await {
                Err(_) if self.stopped() => return Ok(plan.builds.iter().map(|_| None).collect()),
                lock => lock?,
            };
            locks.insert(index, (fingerprint, lock));
        }
        let mut ready = Vec::new();
        for (index, planned) in plan.builds.iter().enumerate() {
            ready.push(match locks.remove(&index) {
                Some((fingerprint, lock)) => self.configure(planned, fingerprint, lock).await?,
                None => None,
            });
        }
        Ok(ready)
    }

    async fn configure(
        &mut self,
        planned: &PlannedBuild,
        fingerprint: String,
        lock: Lock,
    ) -> anyhow::Result<Option<Ready>> {
        let Some(build) = &planned.build else { return Ok(None) };
        if self.stopped() || KernelBuild::find(self.cache, &fingerprint).is_some() {
            return Ok(None);
        }
        let job = Job::Build(planned.name().clone());
        self.tell(Event::Step(job.clone(), "configure".to_owned()));
        match build::configure(build, &fingerprint, self.cache, self.stop).await {
            Ok(configured) => Ok(Some(Ready { configured, fingerprint, _lock: lock })),
            Err(_) if self.stopped() => Ok(None),
            Err(failure) => {
                self.fail(job, &planned.cells, failure)?;
                Ok(None)
            }
        }
    }

    /// Sees to it that a kernel is there, and records its sizes.
    async fn kernel(&mut self, planned: &PlannedBuild, ready: Option<Ready>) -> anyhow::Result<()> {
        let built = match (&planned.state, &planned.build, ready) {
            (State::Fresh(built), ..) => Some((**built).clone()),
            (_, Some(build), Some(ready)) => self.compile(planned, build, ready).await?,
            // Another run built it while this one waited for the lock, or its configuration failed.
            (_, Some(build), None) => {
                let found = KernelBuild::find(self.cache, &build.inputs()?.fingerprint());
                self.summary.fresh += usize::from(found.is_some());
                found
            }
            _ => None,
        };
        let Some(built) = built else { return Ok(()) };
        let config = kconfig::parse(&fs::read_to_string(built.dir.join("config"))?);
        for cell in &planned.cells {
            self.configs.insert(cell.id.clone(), config.clone());
            self.built.insert(cell.id.clone(), built.clone());
            self.keep_build_evidence(cell, &built)?;
            self.cache.remember(&plan::memory_key(self.matrix, &cell.id), &built.info.inputs)?;
            self.dir.append(&sizes(&cell.id, &built).into_iter().map(Record::Sample).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    async fn compile(
        &mut self,
        planned: &PlannedBuild,
        build: &KernelBuild,
        ready: Ready,
    ) -> anyhow::Result<Option<Built>> {
        let job = Job::Build(planned.name().clone());
        let began = Instant::now();
        self.tell(Event::Started(job.clone()));
        let total = self.built.values().map(|b| b.info.steps).max();
        let progress = |done| self.tell(Event::Progress { job: job.clone(), done, total });
        let result =
            build::compile(build, &ready.configured, self.options.jobs, self.cache, self.stop, progress)
                .await;
        match result {
            Ok(built) => {
                self.summary.built += 1;
                let summary = format!("vmlinux {} bytes", built.info.sizes.file);
                self.tell(Event::Finished { job, took: began.elapsed(), summary });
                Ok(Some(built))
            }
            Err(_) if self.stopped() => Ok(None),
            Err(mut failure) => {
                let log = build::log_path(self.cache, &ready.fingerprint)?;
                for cell in planned.cells.iter().filter(|_| log.exists()) {
                    let kept = self.dir.cell(&cell.id)?.join("build.log");
                    fs::copy(&log, &kept)?;
                    let evidence = kept.strip_prefix(self.dir.path()).unwrap_or(&kept);
                    failure.detail =
                        failure.detail.replace(&*log.to_string_lossy(), &evidence.to_string_lossy());
                }
                self.fail(job, &planned.cells, failure)?;
                Ok(None)
            }
        }
    }

    fn keep_build_evidence(&self, cell: &Cell, built: &Built) -> anyhow::Result<()> {
        let dir = self.dir.cell(&cell.id)?;
        for name in ["config", "build.log", "build.json"] {
            fs::copy(built.dir.join(name), dir.join(name))?;
        }
        if let Some((axis, sibling)) = self.sibling(cell) {
            let diff = kconfig::diff(&self.configs[&sibling.id], &self.configs[&cell.id]);
            fs::write(dir.join("config.diff"), format!("# {axis}: {} -> {}\n{diff}", sibling.id, cell.id))?;
        }
        Ok(())
    }

    /// The first configured cell before this one that differs on one axis alone.
    fn sibling<'c>(&'c self, cell: &'c Cell) -> Option<(&'c str, &'c Cell)> {
        let earlier = self.matrix.cells.iter().take_while(|c| c.id != cell.id);
        earlier.filter(|c| self.configs.contains_key(&c.id)).find_map(|other| {
            let mut differing =
                cell.coords.iter().filter(|(axis, value)| other.coords.get(*axis) != Some(value));
            match (differing.next(), differing.next()) {
                (Some((axis, _)), None) => Some((axis.as_str(), other)),
                _ => None,
            }
        })
    }

    // --- boots ---

    async fn boot(&mut self, cell: &Cell, number: u32) -> anyhow::Result<()> {
        let Some(built) = self.built.get(&cell.id).cloned() else { return Ok(()) };
        let Some(guest) = self.guests.get(&cell.arch).cloned() else { return Ok(()) };
        if number > self.matrix.boot.boots || self.stopped() {
            return Ok(());
        }
        let arch = &self.targets[&cell.arch].arch;
        let machine = Machine::choose(arch, &self.matrix.boot, cell.vcpus, host::cores(), number);
        let dir = self.dir.cell(&cell.id)?.join(format!("boot-{number}"));
        let job = Job::Boot(cell.id.clone(), number);
        let session = Session {
            arch,
            boot: &self.matrix.boot,
            image: &built.image(),
            initramfs: if machine.online == Online::Staged { &guest.staged } else { &guest.initramfs },
            machine: &machine,
            firmware: machine.firmware_file(guest.firmware.as_deref()),
            vcpus: cell.vcpus,
            benchmarks: &self.matrix.benchmarks,
            dir: &dir,
        };
        let began = Instant::now();
        self.tell(Event::Started(job.clone()));
        for reason in &machine.reasons {
            self.tell(Event::Step(job.clone(), reason.clone()));
        }
        let step = |text| self.tell(Event::Step(job.clone(), text));
        let report = session.run(self.stop, step).await.with_context(|| format!("{job}"));
        if self.stopped() {
            return Ok(());
        }
        let attempt = Attempt { cell, number, built: &built, machine: &machine, dir: &dir, job, began };
        match report {
            Ok(report) => self.judge(attempt, &report),
            Err(error) => {
                let failure =
                    Failure { boot: Some(number), ..Failure::new(Stage::Boot, "not started", error) };
                self.fail(attempt.job, std::slice::from_ref(cell), failure)
            }
        }
    }

    fn judge(&mut self, attempt: Attempt<'_>, report: &Report) -> anyhow::Result<()> {
        let Attempt { cell, number, built, machine, dir, job, began } = attempt;
        let benchmarks = &self.matrix.benchmarks;
        let config = &self.configs[&cell.id];
        let expected = Expected {
            release: built.info.release.clone(),
            build_id: built.info.build_id.clone(),
            nr_cpus: config.get("NR_CPUS").and_then(|n| n.parse().ok()),
            vcpus: cell.vcpus,
        };
        let fault = verdict::fault(report, &expected, benchmarks);
        keep_boot_evidence(dir, machine, report, fault.as_ref())?;
        // Run directories move; what is said of them in tables stays true.
        let evidence = dir.strip_prefix(self.dir.path()).unwrap_or(dir).display().to_string();
        let told = |detail: String| format!("{detail}; evidence: {evidence}");
        if let Some((what, detail)) = fault {
            let failure = Failure {
                stage: Stage::Boot,
                what,
                detail: told(detail),
                boot: Some(number),
                benchmark: None,
            };
            return self.fail(job, std::slice::from_ref(cell), failure);
        }
        let (samples, failures) = verdict::samples(report, &cell.id, number, machine.kind(), benchmarks);
        let summary = summary(&samples);
        self.dir.append(&samples.into_iter().map(Record::Sample).collect::<Vec<_>>())?;
        let failed = !failures.is_empty();
        for failure in failures {
            let failure = Failure { detail: told(failure.detail), ..failure };
            self.fail(job.clone(), std::slice::from_ref(cell), failure)?;
        }
        if !failed {
            self.tell(Event::Finished { job, took: began.elapsed(), summary });
        }
        Ok(())
    }
}

/// A kernel that is configured and waits for being compiled; nobody else may.
struct Ready {
    configured: Configured,
    fingerprint: String,
    _lock: Lock,
}

fn keep_boot_evidence(
    dir: &Path,
    machine: &Machine,
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
        "machine": machine,
        "guest": report.facts.of_guest,
        "qemu": report.ended.map(|e| e.to_string()),
        "fault": fault.map(|(what, detail)| format!("{what}: {detail}")),
        "runs": runs,
    });
    Ok(write_whole(&dir.join("boot.json"), &serde_json::to_vec_pretty(&evidence)?)?)
}

/// File of an architecture's initramfs in a run's `guest` folder.
pub fn initramfs_name(arch: &str, online: Online) -> String {
    if online == Online::Staged { format!("{arch}-staged.cpio") } else { format!("{arch}.cpio") }
}

/// `hackbench.time 0.512 0.498 s`
fn summary(samples: &[Sample]) -> String {
    let mut metrics: indexmap::IndexMap<(&str, &str), Vec<String>> = indexmap::IndexMap::new();
    for sample in samples {
        metrics.entry((&sample.metric, &sample.unit)).or_default().push(sample.value.to_string());
    }
    let texts =
        metrics.into_iter().map(|((metric, unit), values)| format!("{metric} {} {unit}", values.join(" ")));
    texts.collect::<Vec<_>>().join(", ")
}

/// Sizes of a kernel as samples of a cell.
fn sizes(cell: &CellId, built: &Built) -> Vec<Sample> {
    let info = &built.info;
    let of_vmlinux = [
        ("file", info.sizes.file),
        ("stripped", info.stripped),
        ("text", info.sizes.text),
        ("data", info.sizes.data),
        ("bss", info.sizes.bss),
    ];
    let named = of_vmlinux.into_iter().map(|(name, value)| (format!("vmlinux.{name}"), value));
    let sections =
        info.sizes.sections.iter().map(|(name, value)| (format!("vmlinux.section.{name}"), *value));
    named
        .chain(sections)
        .chain([("image.file".to_owned(), info.image)])
        .map(|(metric, bytes)| Sample {
            cell: cell.clone(),
            metric,
            value: bytes as f64,
            unit: "bytes".to_owned(),
            better: Direction::Lower,
            kind: Kind::Exact,
            boot: None,
            iteration: None,
        })
        .collect()
}
