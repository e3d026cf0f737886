//! A run on disk, written as results come, and read back for reports.
//!
//! ```text
//! RUN/matrix.toml      the matrix file as it was
//! RUN/resolved.json    what it meant: every cell
//! RUN/run.json         tool, host and program versions
//! RUN/records.jsonl    one line a sample or failure, appended at once
//! RUN/tables.txt, RUN/report.html
//! RUN/guest/           initramfs of each architecture
//! RUN/cells/CELL/      config, config.diff, build.json, build.log, boot-N/
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::cache::write_whole;
use crate::model::{CellId, Failure, Matrix, Results, Sample};

const RESOLVED: &str = "resolved.json";
const RECORDS: &str = "records.jsonl";
const INFO: &str = "run.json";

/// A line of `records.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// A measured value.
    Sample(Sample),
    /// Why something has no value.
    Failure {
        /// The cell it concerns.
        cell: CellId,
        /// What happened.
        failure: Failure,
    },
}

/// What ran, on what; `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Version of this program.
    pub matrix_version: String,
    /// When the run began.
    pub began: jiff::Timestamp,
    /// Command line of this program.
    pub command: Vec<String>,
    /// The host: kernel, processor, cores, memory.
    pub host: BTreeMap<String, String>,
    /// Versions of the programs that took part.
    pub tools: BTreeMap<String, String>,
}

/// A run directory that is being written.
#[derive(Debug)]
pub struct RunDir {
    dir: PathBuf,
    records: fs::File,
}

impl RunDir {
    /// Creates a new run directory for `matrix`: `dir` itself, or a fresh name
    /// below `matrix-runs` that tells matrix and time.
    ///
    /// # Errors
    /// It exists already, or cannot be created.
    pub fn create(
        dir: Option<&Path>,
        matrix: &Matrix,
        text: &str,
        began: jiff::Timestamp,
    ) -> anyhow::Result<RunDir> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => fresh_name(Path::new(DEFAULT_ROOM), &matrix.name, began),
        };
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::create_dir(&dir).context("a run directory is never written twice; name another with --output")?;
        fs::write(dir.join("matrix.toml"), text)?;
        write_whole(&dir.join(RESOLVED), &serde_json::to_vec_pretty(matrix)?)?;
        let records = fs::OpenOptions::new().create(true).append(true).open(dir.join(RECORDS))?;
        Ok(RunDir { dir: std::path::absolute(dir)?, records })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Directory of a cell's evidence; exists afterwards.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn cell(&self, cell: &CellId) -> std::io::Result<PathBuf> {
        let dir = self.dir.join("cells").join(&cell.0);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Writes down what ran on what.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn write_info(&self, info: &RunInfo) -> anyhow::Result<()> {
        Ok(write_whole(&self.dir.join(INFO), &serde_json::to_vec_pretty(info)?)?)
    }

    /// Appends records and waits until they are on disk.
    ///
    /// # Errors
    /// The file system refuses, for example for want of space.
    pub fn append(&mut self, records: &[Record]) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        self.records.write_all(&lines)?;
        self.records.sync_data()?;
        Ok(())
    }
}

/// Where runs go unless told otherwise, below the current folder.
pub const DEFAULT_ROOM: &str = "matrix-runs";

/// `ROOM/NAME-YYYYMMDD-HHMMSS`, with a number behind it if that is taken.
fn fresh_name(room: &Path, name: &str, began: jiff::Timestamp) -> PathBuf {
    let stem = format!("{name}-{}", began.strftime("%Y%m%d-%H%M%S"));
    let mut dir = room.join(&stem);
    let mut n = 1;
    while dir.exists() {
        n += 1;
        dir = room.join(format!("{stem}-{n}"));
    }
    dir
}

/// Reads a run back.
///
/// # Errors
/// It is no run directory, or a record in it is damaged (the last one may be
/// cut short by a crash and is then left out).
pub fn load(dir: &Path) -> anyhow::Result<Results> {
    let resolved = dir.join(RESOLVED);
    if !resolved.is_file() {
        bail!("{}: not a run directory (no {RESOLVED} in it)", dir.display());
    }
    let matrix: Matrix =
        serde_json::from_slice(&fs::read(&resolved)?).with_context(|| format!("{}", resolved.display()))?;
    let text = fs::read_to_string(dir.join(RECORDS))?;
    let mut results = Results { matrix, samples: Vec::new(), failures: BTreeMap::new() };
    for (i, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(Record::Sample(sample)) => results.samples.push(sample),
            Ok(Record::Failure { cell, failure }) => results.failures.entry(cell).or_default().push(failure),
            Err(_) if !text.ends_with('\n') && i + 1 == text.lines().count() => {}
            Err(error) => bail!("{}:{}: {error}", dir.join(RECORDS).display(), i + 1),
        }
    }
    Ok(results)
}

/// What a run was measured with.
///
/// # Errors
/// Its `run.json` is not there or damaged.
pub fn info(dir: &Path) -> anyhow::Result<RunInfo> {
    let file = dir.join(INFO);
    serde_json::from_slice(&fs::read(&file)?).with_context(|| format!("{}", file.display()))
}

/// The newest run below `room`.
pub fn latest(room: &Path) -> Option<PathBuf> {
    let runs = fs::read_dir(room).ok()?.filter_map(|e| Some(e.ok()?.path()));
    let began = |dir: &PathBuf| fs::metadata(dir.join(RESOLVED)).and_then(|m| m.modified()).ok();
    runs.filter(|d| began(d).is_some()).max_by_key(began)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::*;

    fn matrix() -> Matrix {
        Matrix {
            name: "m".into(),
            source: Source::Path("/linux".into()),
            axes: vec![],
            cells: vec![],
            kernel: Kernel {
                base: BaseConfig::Target("defconfig".into()),
                fragments: vec![],
                config: BTreeMap::new(),
                patches: vec![],
                toolchain: Toolchain::Gcc { prefix: None },
                make: vec![],
            },
            boot: Boot::plain(),
            benchmarks: vec![],
            tables: vec![],
        }
    }

    fn sample(value: f64) -> Sample {
        Sample {
            cell: CellId("c".into()),
            metric: "m.x".into(),
            value,
            unit: "s".into(),
            better: Direction::Lower,
            kind: Kind::EmulatedWallClock,
            boot: Some(1),
            iteration: Some(1),
        }
    }

    fn failure() -> Failure {
        Failure {
            stage: Stage::Boot,
            what: "panic".into(),
            detail: "d".into(),
            boot: Some(2),
            benchmark: None,
        }
    }

    #[test]
    fn run_is_read_back_as_it_was_written() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let mut run = RunDir::create(Some(&dir), &matrix(), "x = 1", jiff::Timestamp::now()).unwrap();
        run.append(&[Record::Sample(sample(0.1)), Record::Sample(sample(0.2))]).unwrap();
        run.append(&[Record::Failure { cell: CellId("c".into()), failure: failure() }]).unwrap();
        let results = load(&dir).unwrap();
        assert_eq!(results.matrix, matrix());
        assert_eq!(results.samples, [sample(0.1), sample(0.2)]);
        assert_eq!(results.failures[&CellId("c".into())], [failure()]);
        assert_eq!(fs::read_to_string(dir.join("matrix.toml")).unwrap(), "x = 1");
        assert_eq!(latest(room.path()), Some(dir.clone()));
        let again = RunDir::create(Some(&dir), &matrix(), "", jiff::Timestamp::now());
        assert!(format!("{:#}", again.unwrap_err()).contains("never written twice"));
    }

    #[test]
    fn record_cut_short_by_a_crash_is_left_out_but_damage_is_an_error() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let mut run = RunDir::create(Some(&dir), &matrix(), "", jiff::Timestamp::now()).unwrap();
        run.append(&[Record::Sample(sample(0.1)), Record::Sample(sample(0.2))]).unwrap();
        let path = dir.join(RECORDS);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 10]).unwrap();
        assert_eq!(load(&dir).unwrap().samples, [sample(0.1)]);
        fs::write(&path, whole.replacen('{', "", 1)).unwrap();
        assert!(load(&dir).unwrap_err().to_string().contains("records.jsonl:1:"));
    }

    #[test]
    fn names_of_runs_do_not_collide() {
        let room = tempfile::tempdir().unwrap();
        let began: jiff::Timestamp = "2024-06-01T12:00:00Z".parse().unwrap();
        let first = fresh_name(room.path(), "q", began);
        assert!(first.ends_with("q-20240601-120000"));
        fs::create_dir(&first).unwrap();
        assert!(fresh_name(room.path(), "q", began).ends_with("q-20240601-120000-2"));
    }
}
