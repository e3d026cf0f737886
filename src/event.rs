//! What happens during a run, as told to whoever watches: progress bars on a
//! terminal, plain lines elsewhere. No I/O here.

use std::time::Duration;

use crate::model::{CellId, Failure};

/// A piece of work of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Job {
    /// Fetching, unpacking or patching a kernel's source; which one, where there are several.
    Source(String),
    /// Preparing guest programs for an architecture.
    Guest(String),
    /// One kernel build, named by the first cell that needs it.
    Build(CellId),
    /// One boot of a cell, from 1.
    Boot(CellId, u32),
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Job::Source(which) if which.is_empty() => write!(f, "source"),
            Job::Source(which) => write!(f, "source {which}"),
            Job::Guest(arch) => write!(f, "guest {arch}"),
            Job::Build(cell) => write!(f, "build {cell}"),
            Job::Boot(cell, n) => write!(f, "boot {cell} #{n}"),
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A run begins with so many builds to do, builds found in the cache, and boots.
    RunStarted {
        /// Kernels to build.
        builds: usize,
        /// Kernels that are there already.
        fresh: usize,
        /// Boots to do.
        boots: usize,
    },
    /// A job begins.
    Started(Job),
    /// A job reached a named step.
    Step(Job, String),
    /// A job has done so many of (about) so many units.
    Progress {
        /// The job.
        job: Job,
        /// Units done.
        done: u64,
        /// Units expected, where that is known.
        total: Option<u64>,
    },
    /// A job ended well.
    Finished {
        /// The job.
        job: Job,
        /// How long it took.
        took: Duration,
        /// What to say about it: a size, a result; may be empty.
        summary: String,
    },
    /// A job failed.
    Failed(Job, Failure),
    /// Something the user should know.
    Note(String),
    /// The first interrupt arrived; running jobs are being stopped.
    Interrupted,
}

/// How events reach whoever watches.
pub type Tell = std::sync::Arc<dyn Fn(Event) + Send + Sync>;
