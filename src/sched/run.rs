//! Doing what a plan says: configurations first, as they fail in seconds; then
//! kernels, several at once under one jobserver, so that the serial parts of one
//! are filled by another's compilers; boots in rounds over all cells, each round
//! in a random order of its own, so that a drift of the host's speed hits all alike.
//!
//! Counted instructions do not know of the host: those boots overlap builds and
//! each other, and a cell's first one comes as soon as its kernel is there.
//! Wall-clock timings need the machine to themselves. If there are several
//! boots of a cell, all of them wait until everything is built: a machine that
//! has just compiled is in another state, warm and with other things in its
//! caches, than one that has only booted. If there is but one, it comes with the kernel:
//! nothing could tell drift from difference then, and results are there sooner.
//!
//! A run that was cut off is gone on with by running what is left of it.

use std::cell::{Cell as Cut, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use futures_util::{TryStreamExt, stream};
use tokio::sync::{RwLock, mpsc};

use super::boots::Guest;
use super::builds::Ready;
use super::host;
use super::order::{self, Step};
use super::plan::{self, Plan, State, Target, Trees};
use super::seeds::Seeds;
use super::until;
use crate::boot::verdict;
use crate::cache::Cache;
use crate::event::{Event, Job, Tell};
use crate::kernel::build::Built;
use crate::kernel::{Ccache, source};
use crate::model::{Accel, Cell, CellId, Failure, Matrix, Source, Stage};
use crate::process::Stop;
use crate::process::jobserver::Jobserver;
use crate::store::{KernelInputs, Record, RunDir};

/// How a run is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Compiler processes at once, and guests beside them.
    pub jobs: usize,
    /// Whether to ask the distribution for newer packages.
    pub refresh: bool,
    /// What the order of boots follows from.
    pub seed: u64,
    /// Whether boots that failed are done again.
    pub retry_failed: bool,
    /// Whether object trees stay in the cache.
    pub keep_objects: bool,
    /// Whether ccache is used where it is installed.
    pub ccache: bool,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Kernels that were built.
    pub built: usize,
    /// Kernels that were in the cache.
    pub fresh: usize,
    /// Whether the user stopped it.
    pub interrupted: bool,
}

/// A run under way. Builds and boots go on at the same time, in one thread: a
/// borrow of the state never lasts over an `await`.
pub(super) struct Runner<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) cache: &'a Cache,
    pub(super) options: Options,
    pub(super) stop: &'a Stop,
    pub(super) jobs: Jobserver,
    pub(super) seeds: Seeds,
    pub(super) targets: BTreeMap<String, Target>,
    pub(super) state: RefCell<Known<'a>>,
    /// Shared by builds and boots that count instructions; a wall-clock boot
    /// takes it for itself.
    pub(super) machine: RwLock<()>,
    /// Whether a table shows how long boots took by the host's clock.
    shows_stages: bool,
    tell: Tell,
    /// Whether anything was left undone because the user stopped the run.
    cut: Cut<bool>,
}

/// What is known so far.
pub(super) struct Known<'a> {
    pub(super) dir: &'a mut RunDir,
    /// What each architecture's guests boot with; none where that failed.
    pub(super) guests: BTreeMap<String, Guest>,
    /// Kernels that are there.
    pub(super) kernels: BTreeMap<CellId, Arc<Built>>,
    /// Boots that are yet to be begun.
    pub(super) todo: BTreeSet<(CellId, u32)>,
    pub(super) summary: Summary,
}

/// Runs a matrix, or what is left of one, into a run directory, with the
/// toolchain of each of its architectures.
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
    let boots = matrix.cells.iter().flat_map(|c| (1..=matrix.boot.boots).map(|n| (c.id.clone(), n)));
    let todo = boots.filter(|(c, n)| !dir.recorded().is_settled(c, *n, options.retry_failed)).collect();
    let (guests, kernels) = Default::default();
    let state = Known { dir, guests, kernels, todo, summary: Summary::default() };
    let runner = Runner {
        matrix,
        cache,
        options,
        stop,
        jobs: Jobserver::new(options.jobs)?,
        seeds: Seeds::default(),
        targets,
        state: RefCell::new(state),
        machine: RwLock::new(()),
        shows_stages: verdict::STAGES.iter().any(|stage| matrix.shows(&format!("boot.{stage}"))),
        tell,
        cut: Cut::new(false),
    };
    runner.everything().await?;
    let interrupted = runner.cut.get();
    Ok(Summary { interrupted, ..runner.state.into_inner().summary })
}

impl Runner<'_> {
    /// Whether the user wants an end. Asked before something is done or
    /// believed, so a yes means that something is left undone.
    pub(super) fn stopped(&self) -> bool {
        let stopped = self.stop.graceful.is_cancelled() || self.stop.now.is_cancelled();
        self.cut.set(self.cut.get() || stopped);
        stopped
    }

    pub(super) fn tell(&self, event: Event) {
        (self.tell)(event);
    }

    pub(super) fn record(&self, records: &[Record]) -> anyhow::Result<()> {
        self.state.borrow_mut().dir.append(records)
    }

    /// Directory of a cell's evidence; exists afterwards.
    pub(super) fn cell_dir(&self, cell: &CellId) -> std::io::Result<PathBuf> {
        self.state.borrow().dir.cell(cell)
    }

    /// A path as evidence names it: run directories move, and what is said of
    /// them in tables stays true.
    pub(super) fn shown(&self, path: &Path) -> String {
        let state = self.state.borrow();
        path.strip_prefix(state.dir.path()).unwrap_or(path).display().to_string()
    }

    /// Records a failure for all `cells` as a whole.
    pub(super) fn fail(&self, job: Job, cells: &[Cell], failure: Failure) -> anyhow::Result<()> {
        let records: Vec<_> =
            cells.iter().map(|c| Record::Failure { cell: c.id.clone(), failure: failure.clone() }).collect();
        self.record(&records)?;
        self.tell(Event::Failed(job, failure));
        Ok(())
    }

    async fn everything(&self) -> anyhow::Result<()> {
        let Some(trees) = self.sources().await? else { return Ok(()) };
        let mut plan = plan::make(self.matrix, &self.targets, &trees, self.cache)?;
        self.find_ccache(&mut plan).await;
        self.pin_kernels(&plan)?;
        let (builds, fresh) = (plan.builds.len() - plan.fresh(), plan.fresh());
        let boots = self.state.borrow().todo.len();
        self.state.borrow_mut().summary.fresh = fresh;
        self.tell(Event::RunStarted { builds, fresh, boots });
        if boots > 0 && !self.matrix.cells.iter().all(|cell| self.counts(cell)) {
            host::cautions().into_iter().for_each(|text| self.tell(Event::Note(format!("warning: {text}"))));
        }
        if self.stopped() {
            return Ok(());
        }
        let there = plan.builds.iter().filter_map(|planned| match &planned.state {
            State::Fresh(built) => Some((planned, built.clone())),
            State::Dirty(_) => None,
        });
        self.take_in(&there.collect::<Vec<_>>())?;
        let ((), configured) = tokio::try_join!(self.guests(), self.configure_all(&plan))?;
        let (queue, queued) = mpsc::unbounded_channel();
        tokio::try_join!(self.build_all(&plan, configured, queue), self.boot_queued(queued))?;
        self.keep_config_diffs()?;
        for round in 1..=self.matrix.boot.boots {
            let mut order = shuffled(&self.matrix.cells, self.options.seed, round);
            order.retain(|cell| !self.is_known(cell, round));
            let (counted, timed): (Vec<_>, Vec<_>) = order.into_iter().partition(|c| self.counts(c));
            stream::iter(counted.into_iter().map(Ok))
                .try_for_each_concurrent(self.slots(), |cell| self.boot(cell, round))
                .await?;
            for cell in timed {
                self.boot(cell, round).await?;
            }
        }
        Ok(())
    }

    /// Lets kernels that have to be built use ccache.
    async fn find_ccache(&self, plan: &mut Plan) {
        if self.options.ccache && plan.fresh() < plan.builds.len() {
            let ccache = Ccache::find(self.stop).await;
            plan.builds
                .iter_mut()
                .filter_map(|planned| planned.build.as_mut())
                .for_each(|b| b.ccache = ccache);
        }
    }

    /// Whether the boots before `round` tell a cell's means as well as `until`
    /// wants; a cell with a failed boot has no value that more boots could help.
    fn is_known(&self, cell: &Cell, round: u32) -> bool {
        let Some(percent) = self.matrix.boot.until else { return false };
        let state = self.state.borrow();
        let boots: Vec<_> = (1..round).filter_map(|n| state.dir.recorded().boot(&cell.id, n)).collect();
        until::is_known(&boots, &self.matrix.benchmarks, percent)
    }

    /// Whatever is measured in a run is measured of the same kernels.
    fn pin_kernels(&self, plan: &Plan) -> anyhow::Result<()> {
        let mut kernels = Vec::new();
        for planned in &plan.builds {
            if let Some(inputs) = planned.inputs()? {
                let cells = planned.cells.iter().map(|c| c.id.clone()).collect();
                kernels.push(KernelInputs { cells, inputs });
            }
        }
        self.state.borrow().dir.pin_kernels(&kernels)
    }

    /// Kernels, as many at once as keep all processors busy; queues first boots
    /// that overlap builds, and does those that need not wait for all builds.
    async fn build_all<'m>(
        &self,
        plan: &'m Plan,
        mut configured: Vec<Option<Ready>>,
        queue: mpsc::UnboundedSender<&'m Cell>,
    ) -> anyhow::Result<()> {
        let outlook = self.outlook(plan, &configured).await?;
        let at_once = self.kernels_at_once();
        let steps = order::of(self.matrix, plan, &outlook, at_once);
        self.seeds.expect(&steps);
        let kernels: Vec<_> =
            steps.into_iter().map(|step| Ok((step, configured[step.build].take()))).collect();
        let build = async |(step, ready)| self.build(plan, step, ready, &queue).await;
        stream::iter(kernels).try_for_each_concurrent(at_once, build).await
    }

    async fn build<'m>(
        &self,
        plan: &'m Plan,
        step: Step,
        ready: Option<Ready>,
        queue: &mpsc::UnboundedSender<&'m Cell>,
    ) -> anyhow::Result<()> {
        let planned = &plan.builds[step.build];
        let seeds = self.seeds.for_step(step).await;
        if self.stopped() {
            self.seeds.ended(step, None);
            return Ok(());
        }
        {
            let _shared = self.machine.read().await;
            let tree = self.kernel(planned, ready, seeds).await?;
            self.seeds.ended(step, tree);
        }
        for cell in &planned.cells {
            // Without a receiver the boots have failed, which ends the run.
            if self.counts(cell) {
                let _ = queue.send(cell);
            } else if self.matrix.boot.boots == 1 {
                self.boot(cell, 1).await?;
            }
        }
        Ok(())
    }

    /// A kernel's serial parts (linking, symbol tables) are filled by the
    /// compilers of one more; where there are many processors, they take longer
    /// than all compiling, and more kernels are needed. Each may be linking.
    fn kernels_at_once(&self) -> usize {
        const LINKER_MIB: u64 = 2048;
        let fit = host::available_mib().map_or(2, |mib| mib / LINKER_MIB);
        let useful = (self.options.jobs / 8).max(2).min(self.options.jobs);
        useful.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
    }

    async fn boot_queued(&self, queued: mpsc::UnboundedReceiver<&Cell>) -> anyhow::Result<()> {
        let next = stream::unfold(queued, async |mut queued| Some((Ok(queued.recv().await?), queued)));
        next.try_for_each_concurrent(self.slots(), |cell| self.boot(cell, 1)).await
    }

    /// Whether a cell's timings do not depend on what else the machine does:
    /// they are counted instructions alone.
    pub(super) fn counts(&self, cell: &Cell) -> bool {
        self.matrix.boot_of(cell).accel == Accel::Icount && !self.shows_stages
    }

    /// How many guests that count instructions run at once: each keeps one of
    /// the host's processors busy and its memory filled.
    fn slots(&self) -> usize {
        let memory = self.matrix.cells.iter().map(|c| self.matrix.boot_of(c).memory_mib).max().unwrap_or(1);
        let fit = host::available_mib().map_or(1, |mib| mib / memory.max(1));
        (host::cores() as usize).min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
    }

    // --- sources ---

    /// Fetches every source that cells are built from; the cells of one that
    /// cannot be had have failed. None if the user stopped it.
    async fn sources(&self) -> anyhow::Result<Option<Trees>> {
        let mut trees = Trees::new();
        let wanted = plan::sources(self.matrix);
        let several = wanted.len() > 1;
        for ((from, patches), cells) in wanted {
            let job = Job::Source(if several { called(&from, &patches) } else { String::new() });
            let began = Instant::now();
            self.tell(Event::Started(job.clone()));
            match source::prepare(&from, &patches, self.options.refresh, self.cache, self.stop).await {
                Ok(tree) => {
                    let summary = tree.describe.clone();
                    self.tell(Event::Finished { job, took: began.elapsed(), summary });
                    trees.insert((from, patches), tree);
                }
                Err(_) if self.stopped() => return Ok(None),
                Err(error) => {
                    let patch = error.is::<source::DoesNotApply>();
                    let what = if patch { "patch" } else { "no source" };
                    let cells: Vec<_> = cells.into_iter().cloned().collect();
                    self.fail(job, &cells, Failure::new(Stage::Source, what, error))?;
                }
            }
        }
        Ok(Some(trees))
    }
}

/// The cells in the random order of a round. It follows from each cell's own
/// name, so that it is the same in a run of a part of them.
fn shuffled(cells: &[Cell], seed: u64, round: u32) -> Vec<&Cell> {
    let place = |cell: &&Cell| {
        let text = format!("{seed} {round} {}", cell.id);
        *blake3::hash(text.as_bytes()).as_bytes()
    };
    let mut cells: Vec<_> = cells.iter().collect();
    cells.sort_by_cached_key(place);
    cells
}

/// What tells one of several sources from the others: `v6.12 + fix.patch`.
fn called(source: &Source, patches: &[PathBuf]) -> String {
    let rev = match source {
        Source::Git { rev, .. } => rev.as_str(),
        _ => "unpatched",
    };
    let names = patches.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    match names.is_empty() {
        true => rev.to_owned(),
        false => format!("{} + {}", if rev == "unpatched" { "source" } else { rev }, names.join(" + ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_an_order_of_its_own_that_the_seed_tells() {
        let cell = |n: u32| Cell {
            id: CellId(format!("c{n}")),
            coords: indexmap::IndexMap::new(),
            arch: String::new(),
            config: BTreeMap::new(),
            settings: Vec::new(),
        };
        let cells: Vec<_> = (0..20).map(cell).collect();
        let ids = |cells: Vec<&Cell>| cells.into_iter().map(|c| c.id.clone()).collect::<Vec<_>>();
        let order = |seed, round| ids(shuffled(&cells, seed, round));
        assert_eq!(order(1, 1), order(1, 1));
        for other in [order(1, 2), order(2, 1), ids(cells.iter().collect())] {
            assert_ne!(order(1, 1), other);
        }
        let (mut sorted, mut all) = (order(1, 1), ids(cells.iter().collect()));
        sorted.sort();
        all.sort();
        assert_eq!(sorted, all);
        let part: Vec<_> = order(1, 1).into_iter().filter(|c| *c.0 < *"c15").collect();
        let few: Vec<_> = cells.iter().filter(|c| *c.id.0 < *"c15").cloned().collect();
        assert_eq!(ids(shuffled(&few, 1, 1)), part, "a part of the cells keeps their order");
    }
}
