//! Doing what a plan says: configurations first, as they fail in seconds; then
//! kernel by kernel, each booted as soon as it is there; then the remaining
//! boots in rounds over all cells, so that a drift of the host's speed hits all
//! alike.
//!
//! Wall-clock timings need the machine to themselves. Counted instructions do
//! not: those boots overlap builds and each other.

use std::cell::{Cell as Cut, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::{TryStreamExt, stream};
use tokio::sync::{RwLock, mpsc};

use super::boots::Guest;
use super::host;
use super::plan::{self, Plan, Target, Trees};
use crate::cache::Cache;
use crate::event::{Event, Job, Tell};
use crate::kernel::build::Built;
use crate::kernel::source;
use crate::model::{Accel, Cell, CellId, Failure, Matrix, Source, Stage};
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

/// A run under way. Builds and boots go on at the same time, in one thread: a
/// borrow of the state never lasts over an `await`.
pub(super) struct Runner<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) cache: &'a Cache,
    pub(super) options: Options,
    pub(super) stop: &'a Stop,
    pub(super) targets: BTreeMap<String, Target>,
    pub(super) state: RefCell<State<'a>>,
    /// Shared by builds and boots that count instructions; a wall-clock boot
    /// takes it for itself.
    pub(super) machine: RwLock<()>,
    tell: Tell,
    /// Whether anything was left undone because the user stopped the run.
    cut: Cut<bool>,
}

/// What is known so far.
pub(super) struct State<'a> {
    pub(super) dir: &'a mut RunDir,
    /// What each architecture's guests boot with; none where that failed.
    pub(super) guests: BTreeMap<String, Guest>,
    /// Kernels that are there, with their final configuration.
    pub(super) kernels: BTreeMap<CellId, (Built, BTreeMap<String, String>)>,
    pub(super) summary: Summary,
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
    let state = State { dir, guests: BTreeMap::new(), kernels: BTreeMap::new(), summary: Summary::default() };
    let runner = Runner {
        matrix,
        cache,
        options,
        stop,
        targets,
        state: RefCell::new(state),
        machine: RwLock::new(()),
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

    /// Records a failure for all `cells`.
    pub(super) fn fail(&self, job: Job, cells: &[Cell], failure: Failure) -> anyhow::Result<()> {
        let records: Vec<_> =
            cells.iter().map(|c| Record::Failure { cell: c.id.clone(), failure: failure.clone() }).collect();
        self.record(&records)?;
        let failed = &mut self.state.borrow_mut().summary.failed;
        for cell in cells {
            if !failed.contains(&cell.id) {
                failed.push(cell.id.clone());
            }
        }
        self.tell(Event::Failed(job, failure));
        Ok(())
    }

    async fn everything(&self) -> anyhow::Result<()> {
        let Some(trees) = self.sources().await? else { return Ok(()) };
        let plan = plan::make(self.matrix, &self.targets, &trees, self.cache)?;
        let (builds, fresh) = (plan.builds.len() - plan.fresh(), plan.fresh());
        self.state.borrow_mut().summary.fresh = fresh;
        self.tell(Event::RunStarted { builds, fresh, boots: plan.boots });
        self.guests().await?;
        let (queue, queued) = mpsc::unbounded_channel();
        tokio::try_join!(self.build_all(&plan, queue), self.boot_queued(queued))?;
        for round in 2..=self.matrix.boot.boots {
            let (counted, timed): (Vec<_>, Vec<_>) = self.matrix.cells.iter().partition(|c| self.counts(c));
            stream::iter(counted.into_iter().map(Ok))
                .try_for_each_concurrent(self.slots(), |cell| self.boot(cell, round))
                .await?;
            for cell in timed {
                self.boot(cell, round).await?;
            }
        }
        Ok(())
    }

    /// Kernel by kernel; boots those cells whose timings need the machine, and
    /// queues the others.
    async fn build_all<'m>(
        &self,
        plan: &'m Plan,
        queue: mpsc::UnboundedSender<&'m Cell>,
    ) -> anyhow::Result<()> {
        let configured = self.configure_all(plan).await?;
        for (planned, configured) in plan.builds.iter().zip(configured) {
            if self.stopped() {
                return Ok(());
            }
            {
                let _shared = self.machine.read().await;
                self.kernel(planned, configured).await?;
            }
            for cell in &planned.cells {
                // Without a receiver the boots have failed, which ends the run.
                match self.counts(cell) {
                    true => drop(queue.send(cell)),
                    false => self.boot(cell, 1).await?,
                }
            }
        }
        Ok(())
    }

    async fn boot_queued(&self, queued: mpsc::UnboundedReceiver<&Cell>) -> anyhow::Result<()> {
        let next = stream::unfold(queued, async |mut queued| Some((Ok(queued.recv().await?), queued)));
        next.try_for_each_concurrent(self.slots(), |cell| self.boot(cell, 1)).await
    }

    /// Whether a cell's timings are counted instructions.
    pub(super) fn counts(&self, cell: &Cell) -> bool {
        self.matrix.boot_of(cell).accel == Accel::Icount
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
                    self.fail(job, &cells, Failure::new(Stage::Source, what, error))?;
                }
            }
        }
        Ok(Some(trees))
    }
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
