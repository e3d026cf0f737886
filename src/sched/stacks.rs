//! What tables want to know of a kernel's stacks before it boots.

use fs_err as fs;

use super::plan::{PlannedBuild, Target};
use super::run::Runner;
use crate::cache::{link_or_copy, make_read_only, sync_trees};
use crate::event::{Event, Job};
use crate::kernel::build::Built;
use crate::kernel::{frames, kconfig};
use crate::model::{Cell, CellId, Direction, FRAMES_MAX, FRAMES_SUM, Failure, Frames, Kind};
use crate::model::{STACK_LEFT, Sample, Stage};
use crate::store::{FRAMES, FramesRecord, Record};

/// First part of the names of metrics that the kernel tells at run time.
const STACK: &str = "stack";

impl Runner<'_> {
    /// Records a kernel's stack frames where a table asks for them, and a
    /// failure where it cannot tell how its stacks are used and a table asks.
    pub(super) async fn stacks(&self, planned: &PlannedBuild, built: &Built) -> anyhow::Result<()> {
        let (job, cells) = (Job::Build(planned.name().clone()), &planned.cells);
        // Of a run that is gone on with something can be recorded already.
        let lost = |cell: &Cell, family: &str| {
            self.state.borrow().dir.recorded().has_lost(&cell.id, family, self.options.retry_failed)
        };
        let tells = || -> anyhow::Result<bool> {
            let config = fs::read_to_string(built.dir.join("config"))?;
            Ok(kconfig::value(&config, "DEBUG_STACK_USAGE") == Some("y"))
        };
        if self.matrix.shows(STACK_LEFT) && !tells()? {
            let why = "CONFIG_DEBUG_STACK_USAGE is not set: add \"stack-usage\" to [kernel] fragments";
            let untold: Vec<Cell> = cells.iter().filter(|cell| !lost(cell, STACK)).cloned().collect();
            self.fail_any(&job, &untold, failure(Stage::Config, STACK, "not reported", why.to_owned()))?;
        }
        if !self.matrix.shows("frames.") {
            return Ok(());
        }
        let there = |cell: &Cell| self.state.borrow().dir.recorded().has_frames(&cell.id);
        let wanted = cells.iter().filter(|cell| !there(cell) && !lost(cell, FRAMES));
        let wanted: Vec<Cell> = wanted.cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        self.tell(Event::Step(job.clone(), "stack frames".to_owned()));
        let Target { arch, tools, .. } = &self.targets[&cells[0].arch];
        match frames::of(built, arch, tools, self.stop).await {
            Ok(frames) => self.keep_frames(&wanted, built, &frames),
            Err(_) if self.stopped() => Ok(()),
            Err(error) => {
                self.fail(job, &wanted, failure(Stage::Build, FRAMES, "no frames", format!("{error:#}")))
            }
        }
    }

    /// Records a failure for those cells that there are.
    fn fail_any(&self, job: &Job, cells: &[Cell], failure: Failure) -> anyhow::Result<()> {
        if cells.is_empty() { Ok(()) } else { self.fail(job.clone(), cells, failure) }
    }

    fn keep_frames(&self, cells: &[Cell], built: &Built, frames: &Frames) -> anyhow::Result<()> {
        let evidence = built.dir.join(frames::FILE);
        make_read_only(&evidence);
        let (mut dirs, mut records) = (Vec::new(), Vec::new());
        for Cell { id, .. } in cells {
            let dir = self.cell_dir(id)?;
            link_or_copy(&evidence, &dir.join(frames::FILE))?;
            dirs.push(dir);
            let samples = vec![size(id, FRAMES_MAX, frames.max()), size(id, FRAMES_SUM, frames.sum())];
            let frames = frames.clone();
            records.push(Record::Frames(FramesRecord { cell: id.clone(), samples, frames }));
        }
        sync_trees(&dirs)?;
        self.state.borrow_mut().dir.append_all(records)
    }
}

/// A failure of the metrics whose names begin with `family` alone.
fn failure(stage: Stage, family: &str, what: &str, detail: String) -> Failure {
    Failure { benchmark: Some(family.to_owned()), ..Failure::new(stage, what, detail) }
}

/// A size in bytes as a sample of a cell.
pub(super) fn size(cell: &CellId, metric: &str, bytes: u64) -> Sample {
    Sample {
        cell: cell.clone(),
        metric: metric.to_owned(),
        value: bytes as f64,
        unit: "bytes".to_owned(),
        better: Direction::Lower,
        kind: Kind::Exact,
        boot: None,
        iteration: None,
    }
}
