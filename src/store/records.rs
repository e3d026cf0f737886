//! What is measured, as lines of `records.jsonl`: appended, never changed. A
//! kernel and a boot are a line each, so that they are there whole or not at
//! all wherever a run is cut off.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::bail;
use fs_err as fs;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::model::{CellId, Failure, Frames, Matrix, Results, Sample, Stage};

/// A line of `records.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// A measured value alone, as other programs may note them.
    Sample(Sample),
    /// Why a cell has no value. A later one of the same stage replaces it, and
    /// so does what it stood in the way of.
    Failure {
        /// The cell it concerns.
        cell: CellId,
        /// What happened.
        failure: Failure,
    },
    /// A cell's kernel is there.
    Kernel(KernelRecord),
    /// Stack frames of a cell's kernel.
    Frames(FramesRecord),
    /// A boot of a cell is over. A later one replaces it if it failed.
    Boot(BootRecord),
}

/// A kernel of a cell, with what it yields without being booted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelRecord {
    /// The cell.
    pub cell: CellId,
    /// Fingerprint of everything that the kernel is made from.
    pub kernel: String,
    /// GNU build ID of vmlinux.
    pub build_id: Option<String>,
    /// Sizes.
    pub samples: Vec<Sample>,
}

/// Stack frames of a cell's kernel, with what tables show of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FramesRecord {
    /// The cell.
    pub cell: CellId,
    /// The largest, and all together.
    pub samples: Vec<Sample>,
    /// By function.
    pub frames: Frames,
}

/// A boot that is over, with all that came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BootRecord {
    /// The cell.
    pub cell: CellId,
    /// Which of the cell's boots, from 1.
    pub boot: u32,
    /// Fingerprint of the kernel that was booted.
    pub kernel: String,
    /// What was measured.
    pub samples: Vec<Sample>,
    /// Why there are no samples, or not all of them.
    pub failures: Vec<Failure>,
}

/// First part of the names of metrics that frames yield, and of their failure.
pub const FRAMES: &str = "frames";

/// What tells which records replace each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Line(usize),
    Failure(CellId, Stage),
    /// A failure of some metrics of a kernel alone, by the first part of their names.
    Family(CellId, String),
    Kernel(CellId),
    Frames(CellId),
    Boot(CellId, u32),
}

/// The records of a run that count, in their order.
#[derive(Debug, Default)]
pub struct Recorded {
    lines: usize,
    records: IndexMap<Key, Record>,
}

impl Recorded {
    /// Takes in the next record.
    ///
    /// # Errors
    /// It says again, or otherwise, what an earlier one has settled.
    pub fn add(&mut self, record: Record) -> Result<(), String> {
        self.lines += 1;
        let key = match &record {
            Record::Failure { cell, failure } if failure.boot.is_none() && failure.benchmark.is_none() => {
                Key::Failure(cell.clone(), failure.stage)
            }
            Record::Failure { cell, failure: Failure { boot: None, benchmark: Some(family), .. } } => {
                Key::Family(cell.clone(), family.clone())
            }
            Record::Sample(_) | Record::Failure { .. } => Key::Line(self.lines),
            Record::Frames(frames) => Key::Frames(frames.cell.clone()),
            Record::Kernel(kernel) => Key::Kernel(kernel.cell.clone()),
            Record::Boot(boot) => Key::Boot(boot.cell.clone(), boot.boot),
        };
        match (&record, self.records.get(&key)) {
            (Record::Kernel(new), Some(Record::Kernel(old))) if new != old => {
                return Err(format!("another kernel of {}", new.cell));
            }
            (Record::Boot(new), Some(Record::Boot(old))) if old.failures.is_empty() => {
                return Err(format!("boot {} of {} a second time", new.boot, new.cell));
            }
            _ => {}
        }
        let overcome: &[Stage] = match &record {
            Record::Kernel(_) => &[Stage::Source, Stage::Config, Stage::Build],
            Record::Boot(_) => &[Stage::Boot],
            Record::Sample(_) | Record::Failure { .. } | Record::Frames(_) => &[],
        };
        if let Record::Frames(frames) = &record {
            self.records.shift_remove(&Key::Family(frames.cell.clone(), FRAMES.to_owned()));
        }
        for stage in overcome {
            if let Key::Kernel(cell) | Key::Boot(cell, _) = &key {
                self.records.shift_remove(&Key::Failure(cell.clone(), *stage));
            }
        }
        self.records.shift_remove(&key);
        self.records.insert(key, record);
        Ok(())
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// A cell's kernel, if it was there.
    pub fn kernel(&self, cell: &CellId) -> Option<&KernelRecord> {
        match self.records.get(&Key::Kernel(cell.clone())) {
            Some(Record::Kernel(kernel)) => Some(kernel),
            _ => None,
        }
    }

    /// Whether the frames of a cell's kernel are there.
    pub fn has_frames(&self, cell: &CellId) -> bool {
        self.records.contains_key(&Key::Frames(cell.clone()))
    }

    /// A boot of a cell, if it is over.
    pub fn boot(&self, cell: &CellId, number: u32) -> Option<&BootRecord> {
        match self.records.get(&Key::Boot(cell.clone(), number)) {
            Some(Record::Boot(boot)) => Some(boot),
            _ => None,
        }
    }

    /// Whether a cell has no need of this boot any more: it is over, and if it
    /// failed that is the cell's own fault, which is not to be tried again.
    pub fn is_settled(&self, cell: &CellId, number: u32, retry_failed: bool) -> bool {
        self.boot(cell, number).is_some_and(|boot| boot.failures.iter().all(|f| stays(f, retry_failed)))
    }

    /// Whether anything of a cell that has so many boots is left to be done.
    pub fn wants(&self, cell: &CellId, boots: u32, retry_failed: bool) -> bool {
        let failed = self.failures_of(cell);
        if failed.clone().any(|f| stays(f, retry_failed)) {
            return false;
        }
        failed.count() > 0
            || self.kernel(cell).is_none()
            || self.families_of(cell).any(|f| !stays(f, retry_failed))
            || (1..=boots).any(|n| !self.is_settled(cell, n, retry_failed))
    }

    /// Failures of a whole cell.
    fn failures_of(&self, cell: &CellId) -> impl Iterator<Item = &Failure> + Clone {
        let stages = [Stage::Source, Stage::Config, Stage::Build, Stage::Boot];
        stages.map(|stage| Key::Failure(cell.clone(), stage)).into_iter().filter_map(|key| {
            match self.records.get(&key) {
                Some(Record::Failure { failure, .. }) => Some(failure),
                _ => None,
            }
        })
    }

    /// Failures of some metrics of a cell's kernel alone.
    fn families_of(&self, cell: &CellId) -> impl Iterator<Item = &Failure> {
        self.records.iter().filter_map(move |(key, record)| match (key, record) {
            (Key::Family(of, _), Record::Failure { failure, .. }) if of == cell => Some(failure),
            _ => None,
        })
    }

    /// Whether some metrics of a cell's kernel failed, by the first part of
    /// their names, and that is not to be tried again.
    pub fn has_lost(&self, cell: &CellId, family: &str, retry_failed: bool) -> bool {
        let of_family = |f: &&Failure| f.benchmark.as_deref() == Some(family);
        self.families_of(cell).filter(of_family).any(|f| stays(f, retry_failed))
    }

    /// Whether something of the whole cell failed.
    pub fn has_failed(&self, cell: &CellId) -> bool {
        self.failures_of(cell).next().is_some()
    }

    /// What reports are made of.
    pub fn results(self, matrix: Matrix) -> Results {
        let mut results =
            Results { matrix, samples: Vec::new(), failures: BTreeMap::new(), frames: BTreeMap::new() };
        for record in self.records.into_values() {
            let (cell, failures) = match record {
                Record::Sample(sample) => {
                    results.samples.push(sample);
                    continue;
                }
                Record::Failure { cell, failure } => (cell, vec![failure]),
                Record::Kernel(KernelRecord { cell, samples, .. }) => {
                    results.samples.extend(samples);
                    (cell, Vec::new())
                }
                Record::Frames(FramesRecord { cell, samples, frames }) => {
                    results.samples.extend(samples);
                    results.frames.insert(cell, frames);
                    continue;
                }
                Record::Boot(BootRecord { cell, samples, failures, .. }) => {
                    results.samples.extend(samples);
                    (cell, failures)
                }
            };
            if !failures.is_empty() {
                results.failures.entry(cell).or_default().extend(failures);
            }
        }
        results
    }
}

/// Whether a failure is one for good: the cell's own, unless those too are to
/// be tried again.
fn stays(failure: &Failure, retry_failed: bool) -> bool {
    !retry_failed && !failure.is_of_host()
}

/// What a file of records holds.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// The records that count.
    pub recorded: Recorded,
    /// Bytes of the file that they take: a crash may have cut off the last line.
    pub whole: u64,
    /// Whether only the last line's end is missing.
    pub open: bool,
}

/// Reads records, line by line: there can be hundreds of megabytes.
///
/// # Errors
/// The file cannot be read, or is damaged elsewhere than at its end.
pub(super) fn read(path: &Path) -> anyhow::Result<Read> {
    let mut file = BufReader::with_capacity(1 << 16, fs::File::open(path)?);
    let mut read = Read::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let ended = line.ends_with(b"\n");
        let added = record(&line).map_err(|e| e.to_string()).and_then(|r| read.recorded.add(r));
        match added {
            Ok(()) => {
                read.whole += line.len() as u64;
                read.open = !ended;
            }
            // What was not written yet can be zeros.
            Err(_) if file.fill_buf()?.is_empty() && (!ended || line.contains(&0)) => break,
            Err(error) => bail!("{}:{number}: {error}", path.display()),
        }
    }
    Ok(read)
}

/// Reads a record. Left to itself, serde takes a line apart and puts it
/// together again to find its kind, which we always write first.
fn record(line: &[u8]) -> serde_json::Result<Record> {
    let kind = line.strip_prefix(br#"{"record":""#).and_then(|rest| rest.split(|b| *b == b'"').next());
    match kind {
        Some(b"boot") => serde_json::from_slice(line).map(Record::Boot),
        Some(b"kernel") => serde_json::from_slice(line).map(Record::Kernel),
        Some(b"frames") => serde_json::from_slice(line).map(Record::Frames),
        _ => serde_json::from_slice(line),
    }
}
