//! Kernels of a run: all configured before any is compiled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{TryStreamExt, stream};
use indexmap::IndexMap;

use super::order::Outlook;
use super::plan::{Plan, PlannedBuild, State};
use super::run::Runner;
use super::seeds;
use crate::cache::{Inputs, Lock, copy_anew};
use crate::event::{Event, Job};
use crate::kernel::build::{self, Built};
use crate::kernel::config::Configured;
use crate::kernel::{KernelBuild, ObjectTree, seed};
use crate::process::jobserver::Turn;

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
    /// `relatives` are the sources that are as good as each.
    fn outlook(&self, source: &str, relatives: &BTreeMap<String, String>) -> Outlook {
        let length = self.configured.config.values().filter(|value| *value != "n").count();
        let serves = !seed::is_bound(&self.configured.config);
        let family =
            relatives.get(source).filter(|_| serves).map(|source| format!("{} {source}", self.family));
        Outlook { length, family }
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

    /// What is known of each build before it begins.
    pub(super) async fn outlook(
        &self,
        plan: &Plan,
        configured: &[Option<Ready>],
    ) -> anyhow::Result<Vec<Outlook>> {
        let builds = || plan.builds.iter().zip(configured);
        let ready = builds().filter_map(|(planned, ready)| ready.as_ref().and(planned.build.as_ref()));
        let sources: IndexMap<_, _> =
            ready.map(|build| (build.source.fingerprint.clone(), build.source.clone())).collect();
        let sources: Vec<_> = sources.into_values().collect();
        let relatives = tokio::task::spawn_blocking(move || seeds::relatives(&sources)).await?;
        let outlook = |(planned, ready): (&PlannedBuild, &Option<Ready>)| {
            let (ready, build) = (ready.as_ref()?, planned.build.as_ref()?);
            Some(ready.outlook(&build.source.fingerprint, &relatives))
        };
        Ok(builds().map(|build| outlook(build).unwrap_or_default()).collect())
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
            (State::Fresh(built), ..) => Some(built.clone()),
            (_, Some(build), Some(ready)) => {
                let made = self.compile(planned, build, &ready, seeds).await?;
                if made.is_some() {
                    let (name, keep) = (&planned.name().0, self.options.keep_objects);
                    tree = Some(build::objects(build, &ready.configured, name, self.cache, keep)?);
                }
                made.map(Arc::new)
            }
            // Another run built it while this one waited for the lock, or its configuration failed.
            (_, Some(build), None) => {
                let found = KernelBuild::find(self.cache, &build.inputs()?.fingerprint());
                self.state.borrow_mut().summary.fresh += usize::from(found.is_some());
                found.map(Arc::new)
            }
            _ => None,
        };
        let Some(built) = built else { return Ok(None) };
        if matches!(planned.state, State::Dirty(_)) {
            self.take_in(&[(planned, built.clone())])?;
        }
        self.stacks(planned, &built).await?;
        Ok(tree)
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
        let total = self.state.borrow().kernels.values().map(|built| built.info.steps).max();
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
                    copy_anew(&log, &kept)?;
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
}

/// Stands for all inputs but some.
fn without(mut inputs: Inputs, names: &[&str]) -> String {
    inputs.0.retain(|name, _| !names.contains(&name.as_str()));
    inputs.fingerprint()
}
