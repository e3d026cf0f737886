//! What tables want to know of a kernel's stacks before it boots.

use std::collections::BTreeMap;

use fs_err as fs;

use super::plan::{PlannedBuild, Target};
use super::run::Runner;
use crate::cache::write_whole;
use crate::event::{Event, Job};
use crate::kernel::build::Built;
use crate::kernel::frames;
use crate::model::{Cell, CellId, Direction, FRAMES_MAX, FRAMES_SUM, Failure, Frames, Kind};
use crate::model::{STACK_LEFT, Sample, Stage};
use crate::store::{FRAMES, FramesRecord, Record};

/// First part of the names of metrics that the kernel tells at run time.
const STACK: &str = "stack";

impl Runner<'_> {
    /// Records a kernel's stack frames where a table asks for them, and a
    /// failure where it cannot tell how its stacks are used and a table asks.
    pub(super) async fn stacks(
        &self,
        planned: &PlannedBuild,
        built: &Built,
        config: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let (job, cells) = (Job::Build(planned.name().clone()), &planned.cells);
        // Of a run that is gone on with something can be recorded already.
        let lost = |cell: &Cell, family: &str| {
            self.state.borrow().dir.recorded().has_lost(&cell.id, family, self.options.retry_failed)
        };
        if self.matrix.shows(STACK_LEFT) && config.get("DEBUG_STACK_USAGE").is_none_or(|v| v != "y") {
            let why = "CONFIG_DEBUG_STACK_USAGE is not set: add \"stack-usage\" to [kernel] fragments";
            let untold: Vec<Cell> = cells.iter().filter(|cell| !lost(cell, STACK)).cloned().collect();
            self.fail_any(&job, &untold, failure(Stage::Config, STACK, "not reported", why.to_owned()))?;
        }
        let there = |cell: &Cell| self.state.borrow().dir.recorded().has_frames(&cell.id);
        let wanted = cells.iter().filter(|cell| !there(cell) && !lost(cell, FRAMES));
        let wanted: Vec<Cell> = wanted.cloned().collect();
        if wanted.is_empty() || !self.matrix.shows("frames.") {
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
        let evidence = fs::read(built.dir.join(frames::FILE))?;
        for Cell { id, .. } in cells {
            write_whole(&self.cell_dir(id)?.join(frames::FILE), &evidence)?;
            let samples = vec![size(id, FRAMES_MAX, frames.max()), size(id, FRAMES_SUM, frames.sum())];
            let frames = frames.clone();
            self.record(&[Record::Frames(FramesRecord { cell: id.clone(), samples, frames })])?;
        }
        Ok(())
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
