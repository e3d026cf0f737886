//! Kernels of a run: all configured before any is compiled.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Instant;

use fs_err as fs;
use futures_util::{TryStreamExt, stream};

use super::order::Outlook;
use super::plan::{self, Plan, PlannedBuild, State};
use super::run::Runner;
use super::stacks::size;
use crate::cache::{Inputs, Lock, sync_tree, write_whole};
use crate::event::{Event, Job};
use crate::kernel::build::{self, Built};
use crate::kernel::config::Configured;
use crate::kernel::{KernelBuild, ObjectTree, kconfig, reproduce};
use crate::model::{Cell, CellId, Failure, Sample, Stage};
use crate::process::jobserver::Turn;
use crate::store::{KernelRecord, Record};

const CONFIG_DIFF: &str = "config.diff";

/// A build, and the one whose configuration programs it can take over.
type Kin = (usize, Option<String>);

/// A kernel that is configured and waits for being compiled; nobody else may.
pub(super) struct Ready {
    configured: Configured,
    fingerprint: String,
    /// The same for kernels that differ in their sources alone.
    family: String,
    _lock: Lock,
}

impl Ready {
    /// How long compiling takes is told by the number of symbols that are not off.
    pub(super) fn outlook(&self) -> Outlook {
        let length = self.configured.config.values().filter(|value| *value != "n").count();
        Outlook { length, family: Some(self.family.clone()) }
    }
}

impl Runner<'_> {
    /// Verifies the configuration of every kernel that is not there, and keeps
    /// others from building the same ones meanwhile.
    pub(super) async fn configure_all(&self, plan: &Plan) -> anyhow::Result<Vec<Option<Ready>>> {
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
        let mut ready: Vec<_> = plan.builds.iter().map(|_| None).collect();
        // The first of each source makes Kconfig's programs; the others take them over.
        let (own, others) = self.programs(plan, &locks)?;
        for part in [own, others] {
            let locked = part.into_iter().map(|(index, like)| Ok((index, like, locks.remove(&index))));
            let configured = stream::iter(locked.collect::<Vec<_>>())
                .map_ok(async |(index, like, lock)| {
                    let planned = &plan.builds[index];
                    let configured = self.configure(planned, like.as_deref(), lock).await;
                    configured.map(|configured| (index, configured))
                })
                .try_buffer_unordered(self.options.jobs);
            for (index, configured) in configured.try_collect::<Vec<_>>().await? {
                ready[index] = configured;
            }
        }
        Ok(ready)
    }

    /// The builds that are to be configured: those without and those with
    /// another whose configuration programs they can take over, by fingerprint.
    fn programs(
        &self,
        plan: &Plan,
        locks: &BTreeMap<usize, (String, Lock)>,
    ) -> anyhow::Result<(Vec<Kin>, Vec<Kin>)> {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (&index, (fingerprint, _)) in locks {
            let Some(build) = &plan.builds[index].build else { continue };
            let programs = without(build.inputs()?, &["configuration", "base configuration"]);
            match first.get(&programs) {
                Some(like) => others.push((index, Some(like.clone()))),
                None => {
                    first.insert(programs, fingerprint.clone());
                    own.push((index, None));
                }
            }
        }
        Ok((own, others))
    }

    async fn configure(
        &self,
        planned: &PlannedBuild,
        like: Option<&str>,
        lock: Option<(String, Lock)>,
    ) -> anyhow::Result<Option<Ready>> {
        let (Some(build), Some((fingerprint, lock))) = (&planned.build, lock) else { return Ok(None) };
        if self.stopped() || KernelBuild::find(self.cache, &fingerprint).is_some() {
            return Ok(None);
        }
        let _token = self.jobs.token(Turn::Last).await?;
        let job = Job::Build(planned.name().clone());
        self.tell(Event::Step(job.clone(), "configure".to_owned()));
        match build::configure(build, &fingerprint, like, self.cache, self.stop).await {
            Ok(configured) => {
                let family = without(build.inputs()?, &["source"]);
                Ok(Some(Ready { configured, fingerprint, family, _lock: lock }))
            }
            Err(_) if self.stopped() => Ok(None),
            Err(failure) => {
                self.fail(job, &planned.cells, failure)?;
                Ok(None)
            }
        }
    }

    /// Sees to it that a kernel is there, from the objects of another if one is
    /// near, and records its sizes; gives its own objects.
    pub(super) async fn kernel(
        &self,
        planned: &PlannedBuild,
        ready: Option<Ready>,
        seeds: Vec<Arc<ObjectTree>>,
    ) -> anyhow::Result<Option<ObjectTree>> {
        let mut tree = None;
        let built = match (&planned.state, &planned.build, ready) {
            (State::Fresh(built), ..) => Some((**built).clone()),
            (_, Some(build), Some(ready)) => {
                let made = self.compile(planned, build, &ready, seeds).await?;
                if made.is_some() {
                    let (name, keep) = (&planned.name().0, self.options.keep_objects);
                    tree = Some(build::objects(build, &ready.configured, name, self.cache, keep)?);
                }
                made
            }
            // Another run built it while this one waited for the lock, or its configuration failed.
            (_, Some(build), None) => {
                let found = KernelBuild::find(self.cache, &build.inputs()?.fingerprint());
                self.state.borrow_mut().summary.fresh += usize::from(found.is_some());
                found
            }
            _ => None,
        };
        let Some(built) = built else { return Ok(None) };
        let config = kconfig::parse(&fs::read_to_string(built.dir.join("config"))?);
        for cell in &planned.cells {
            self.state.borrow_mut().kernels.insert(cell.id.clone(), (built.clone(), config.clone()));
            self.keep_build_evidence(cell, planned, &built)?;
            self.cache.remember(&plan::memory_key(self.matrix, &cell.id), &built.info.inputs)?;
            self.record_kernel(cell, &built)?;
        }
        self.stacks(planned, &built, &config).await?;
        Ok(tree)
    }

    /// Records what a kernel yields without being booted, once. A kernel that
    /// came out otherwise than the one recorded is not mixed with it.
    fn record_kernel(&self, cell: &Cell, built: &Built) -> anyhow::Result<()> {
        let record = KernelRecord {
            cell: cell.id.clone(),
            kernel: built.info.inputs.fingerprint(),
            build_id: built.info.build_id.clone(),
            samples: sizes(&cell.id, built),
        };
        let (recorded, failed) = {
            let state = self.state.borrow();
            let recorded = state.dir.recorded();
            (recorded.kernel(&cell.id).cloned(), recorded.has_failed(&cell.id))
        };
        match recorded {
            None => self.record(&[Record::Kernel(record)]),
            Some(before) if (&before.kernel, &before.build_id) != (&record.kernel, &record.build_id) => {
                self.state.borrow_mut().kernels.remove(&cell.id);
                let id = |record: KernelRecord| record.build_id.unwrap_or_default();
                let detail = format!(
                    "built again from the same inputs it is not the kernel that was measured: build ID {}, not {}",
                    id(record),
                    id(before)
                );
                let failure = Failure::new(Stage::Build, "another kernel", detail);
                self.fail(Job::Build(cell.id.clone()), std::slice::from_ref(cell), failure)
            }
            // Says that the failure is over.
            Some(before) if failed => self.record(&[Record::Kernel(before)]),
            Some(_) => Ok(()),
        }
    }

    async fn compile(
        &self,
        planned: &PlannedBuild,
        build: &KernelBuild,
        ready: &Ready,
        seeds: Vec<Arc<ObjectTree>>,
    ) -> anyhow::Result<Option<Built>> {
        let _token = self.jobs.token(Turn::Last).await?;
        if self.stopped() {
            return Ok(None);
        }
        let job = Job::Build(planned.name().clone());
        let began = Instant::now();
        self.tell(Event::Started(job.clone()));
        self.plant(&job, build, ready, seeds).await;
        let total = self.state.borrow().kernels.values().map(|(built, _)| built.info.steps).max();
        let progress = |done| self.tell(Event::Progress { job: job.clone(), done, total });
        let result =
            build::compile(build, &ready.configured, &self.jobs, self.cache, self.stop, progress).await;
        match result {
            Ok(built) => {
                self.state.borrow_mut().summary.built += 1;
                let mut summary = format!("vmlinux {} bytes", built.info.sizes.file);
                summary.extend(built.info.ccache.map(|hits| format!(", {hits}")));
                self.tell(Event::Finished { job, took: began.elapsed(), summary });
                // Here, as no wall-clock boot goes on beside a build.
                self.cache.keep_limit().await;
                Ok(Some(built))
            }
            Err(_) if self.stopped() => Ok(None),
            Err(mut failure) => {
                let log = build::log_path(self.cache, &ready.fingerprint)?;
                for cell in planned.cells.iter().filter(|_| log.exists()) {
                    let kept = self.cell_dir(&cell.id)?.join("build.log");
                    fs::copy(&log, &kept)?;
                    let evidence = self.shown(&kept);
                    failure.detail = failure.detail.replace(&*log.to_string_lossy(), &evidence);
                }
                self.fail(job, &planned.cells, failure)?;
                Ok(None)
            }
        }
    }

    /// Gives a kernel what it need not make itself. Without, it takes longer.
    async fn plant(&self, job: &Job, build: &KernelBuild, ready: &Ready, seeds: Vec<Arc<ObjectTree>>) {
        let (build, configured, cache) = (build.clone(), ready.configured.clone(), self.cache.clone());
        let planting = move || build::plant(&build, &configured, &seeds, &cache);
        match tokio::task::spawn_blocking(planting).await {
            Ok(Ok(Some(from))) => self.tell(Event::Step(job.clone(), format!("from the objects of {from}"))),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => self.tell(Event::Note(format!("{job}: made from nothing: {error:#}"))),
        }
    }

    fn keep_build_evidence(&self, cell: &Cell, planned: &PlannedBuild, built: &Built) -> anyhow::Result<()> {
        if self.state.borrow().dir.recorded().kernel(&cell.id).is_some() {
            return Ok(());
        }
        let dir = self.cell_dir(&cell.id)?;
        for name in ["config", "build.log", "build.json"] {
            fs::copy(built.dir.join(name), dir.join(name))?;
        }
        let tree = kernel_arch(planned);
        for file in kconfig::files(&built.dir.join(build::OVERLAY), tree).unwrap_or_default() {
            let kept = dir.join(build::OVERLAY).join(&file);
            fs::create_dir_all(kept.parent().unwrap_or(&dir))?;
            fs::copy(built.dir.join(build::OVERLAY).join(&file), kept)?;
        }
        if let Some(build) = &planned.build {
            let script = dir.join("reproduce.sh");
            fs::write(&script, reproduce::script(build, "boot-1/qemu.sh"))?;
            fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
        }
        Ok(sync_tree(&dir)?)
    }

    /// Shows beside each configuration how it differs from its neighbour's; in
    /// the end, as kernels come in another order than cells.
    pub(super) fn keep_config_diffs(&self) -> anyhow::Result<()> {
        let state = self.state.borrow();
        let file = |cell: &Cell, name: &str| state.dir.path().join("cells").join(&cell.id.0).join(name);
        // Of cells that were built before an interruption too.
        let config =
            |cell: &Cell| fs::read_to_string(file(cell, "config")).ok().map(|text| kconfig::parse(&text));
        let cells = &state.dir.matrix().cells;
        for cell in cells.iter().filter(|cell| !file(cell, CONFIG_DIFF).exists()) {
            let Some(own) = config(cell) else { continue };
            if let Some((axis, sibling, before)) = sibling(cells, cell, config) {
                let diff = kconfig::diff(&before, &own);
                let text = format!("# {axis}: {} -> {}\n{diff}", sibling.id, cell.id);
                write_whole(&file(cell, CONFIG_DIFF), text.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Stands for all inputs but some.
fn without(mut inputs: Inputs, names: &[&str]) -> String {
    inputs.0.retain(|name, _| !names.contains(&name.as_str()));
    inputs.fingerprint()
}

/// The first configured cell before this one that differs on one axis alone,
/// and that axis.
fn sibling<'c, T>(
    cells: &'c [Cell],
    cell: &'c Cell,
    configured: impl Fn(&Cell) -> Option<T>,
) -> Option<(&'c str, &'c Cell, T)> {
    cells.iter().take_while(|c| c.id != cell.id).find_map(|other| {
        let mut differing = cell.coords.iter().filter(|(axis, value)| other.coords.get(*axis) != Some(value));
        match (differing.next(), differing.next()) {
            (Some((axis, _)), None) => Some((axis.as_str(), other, configured(other)?)),
            _ => None,
        }
    })
}

/// What the tree calls the architecture of a build.
fn kernel_arch(planned: &PlannedBuild) -> &str {
    planned.build.as_ref().map_or("", |build| &build.arch.kernel.arch)
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
        .map(|(metric, bytes)| size(cell, &metric, bytes))
        .collect()
}
