//! A run on disk, written as results come, and read back for reports and by
//! whoever goes on with it.
//!
//! ```text
//! RUN/matrix.toml      the matrix file as it was
//! RUN/resolved.json    what it meant: every cell
//! RUN/run.json         tool, host and program versions, seed, shard
//! RUN/kernels.json     what each cell's kernel is made from
//! RUN/records.jsonl    one line a kernel, its frames, a boot or failure, appended at once; locked while a run writes it
//! RUN/tables.txt, RUN/report.html
//! RUN/guest/           initramfs of each architecture, hashes of what is in it
//! RUN/cells/CELL/      config, config.diff, build.json, build.log, frames.json, boot-N/
//! ```
//!
//! A run directory appears whole under its name. After that only evidence is
//! added, records are appended and small files are replaced, so that a run can
//! be cut off at any moment and gone on with.

mod merge;
mod records;
mod run;

use std::collections::{BTreeMap, HashMap};
use std::fs::Permissions;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use fs_err as fs;
use fs4::fs_std::FileExt;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::cache::{Inputs, sync, sync_tree, write_whole};
use crate::model::{CellId, Matrix, Results, Shard};

pub use merge::merge;
pub use records::{BootRecord, FRAMES, FramesRecord, KernelRecord, Record, Recorded};
pub use run::{Run, short};

use records::Read;

const TEXT: &str = "matrix.toml";
const RESOLVED: &str = "resolved.json";
const INFO: &str = "run.json";
const RECORDS: &str = "records.jsonl";
const KERNELS: &str = "kernels.json";

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
    /// What the order of boots in each round follows from.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The part of the matrix that was to be measured; none is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// When the run was gone on with after an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<jiff::Timestamp>,
    /// The runs that were merged into this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<RunInfo>,
}

impl RunInfo {
    /// What makes measurements of another run unfit for a table with these:
    /// other versions of what both used, and where time is measured, another
    /// processor. `qemu: 10.0 -> 10.1`
    pub fn differences(&self, other: &RunInfo, timed: bool) -> Vec<String> {
        let of = |info: &RunInfo| {
            let mut versions = info.tools.clone();
            versions.insert("matrix".to_owned(), info.matrix_version.clone());
            let of_speed = |name: &&String| timed && ["cores", "processor"].contains(&name.as_str());
            let host = info.host.iter().filter(|(name, _)| of_speed(name));
            versions.extend(host.map(|(name, value)| (name.clone(), value.clone())));
            Inputs(versions)
        };
        differing(&of(self), &of(other))
    }
}

/// What the kernel of some cells is made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelInputs {
    /// The cells.
    pub cells: Vec<CellId>,
    /// Everything that decides what comes out.
    pub inputs: Inputs,
}

/// `kernels.json`: by fingerprint of the inputs.
type Kernels = BTreeMap<String, KernelInputs>;

/// A run directory that is being written, by this process alone.
#[derive(Debug)]
pub struct RunDir {
    dir: PathBuf,
    matrix: Matrix,
    /// Holds the lock.
    records: fs::File,
    recorded: Recorded,
}

impl RunDir {
    /// Creates a new run directory for `matrix`: `dir` itself, or a fresh name
    /// below `matrix-runs` that tells matrix and time.
    ///
    /// # Errors
    /// It exists already, or cannot be created.
    pub fn create(dir: Option<&Path>, matrix: &Matrix, text: &str, info: &RunInfo) -> anyhow::Result<RunDir> {
        let draft = draft(dir, matrix, text, info)?;
        let records = open_records(draft.path())?;
        let dir = publish(draft, dir, matrix, info.began)?;
        let records = fs::File::from_parts(records.into_parts().0, dir.join(RECORDS));
        Ok(RunDir { dir, matrix: matrix.clone(), records, recorded: Recorded::default() })
    }

    /// Opens a run directory to go on with it. What a crash left of the last
    /// record is cut off.
    ///
    /// # Errors
    /// It is no run directory, is damaged, or another process writes it.
    pub fn reopen(dir: &Path) -> anyhow::Result<RunDir> {
        let matrix = load_matrix(dir)?;
        let dir = std::path::absolute(dir)?;
        let mut records = open_records(&dir)?;
        let Read { recorded, whole, open } = records::read(&dir.join(RECORDS))?;
        if records.metadata()?.len() != whole || open {
            records.set_len(whole)?;
            records.write_all(if open { b"\n" } else { b"" })?;
        }
        records.sync_all()?;
        Ok(RunDir { dir, matrix, records, recorded })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The whole matrix, whatever part of it is measured here.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// What is recorded so far.
    pub fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// What [`load`] would read back, and the lock, which goes with the file.
    pub fn into_results(self) -> (Results, fs::File) {
        (self.recorded.results(self.matrix), self.records)
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
        write_json(&self.dir.join(INFO), info)
    }

    /// Appends records and waits until they are on disk.
    ///
    /// # Errors
    /// The file system refuses, for example for want of space, and then none of
    /// them is there; or one says again what is recorded already.
    pub fn append(&mut self, records: &[Record]) -> anyhow::Result<()> {
        self.append_all(records.to_vec())
    }

    /// The same for many records, which are not copied.
    ///
    /// # Errors
    /// As those of [`RunDir::append`].
    pub fn append_all(&mut self, records: Vec<Record>) -> anyhow::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let before = self.records.metadata()?.len();
        let written = self.write(records);
        if written.is_err() {
            // A part of a line would damage what comes after it.
            let _ = self.records.set_len(before);
        }
        written
    }

    fn write(&mut self, records: Vec<Record>) -> anyhow::Result<()> {
        let mut lines = BufWriter::with_capacity(1 << 16, &mut self.records);
        for record in records {
            serde_json::to_writer(&mut lines, &record)?;
            lines.write_all(b"\n")?;
            self.recorded.add(record).map_err(anyhow::Error::msg)?;
        }
        lines.flush()?;
        drop(lines);
        Ok(self.records.sync_data()?)
    }

    /// Holds the kernels that cells are about to get against those that the
    /// run began with, and writes down those that are new to it.
    ///
    /// # Errors
    /// A cell's kernel would be another one, or the file system refuses.
    pub fn pin_kernels(&self, kernels: &[KernelInputs]) -> anyhow::Result<()> {
        let known = read_kernels(&self.dir)?;
        let mut pinned = known.clone();
        let of_cell: HashMap<&CellId, &KernelInputs> =
            known.values().flat_map(|k| k.cells.iter().map(move |cell| (cell, k))).collect();
        for new in kernels {
            for cell in &new.cells {
                let before = of_cell.get(cell);
                if let Some(before) = before.filter(|before| before.inputs != new.inputs) {
                    let changes = new.inputs.changes_since(&before.inputs).join("; ");
                    bail!(
                        "{cell}: its kernel would be another one than the run began with ({changes}); \
                         put back what changed, or begin another run"
                    );
                }
            }
            let fresh = KernelInputs { cells: Vec::new(), inputs: new.inputs.clone() };
            let entry = pinned.entry(new.inputs.fingerprint()).or_insert(fresh);
            entry.cells.extend(new.cells.iter().filter(|c| !of_cell.contains_key(c)).cloned());
        }
        if pinned != known { write_json(&self.dir.join(KERNELS), &pinned) } else { Ok(()) }
    }

    /// The same for what an architecture's guests are: their files, by hash,
    /// and what executes them.
    ///
    /// # Errors
    /// One is not what it was when the run began, or the file system refuses.
    pub fn pin_guest(&self, arch: &str, files: &Inputs) -> anyhow::Result<()> {
        let path = guest_json(&self.dir, arch);
        let mut pinned = read_json::<Inputs>(&path)?.unwrap_or_default();
        let changes = differing(&pinned, files).join("; ");
        if !changes.is_empty() {
            bail!(
                "the guests of {arch} would not be those that the run began with ({changes}); \
                 put back what changed, or begin another run"
            );
        }
        let known = pinned.clone();
        pinned.0.extend(files.0.clone());
        if pinned != known { write_json(&path, &pinned) } else { Ok(()) }
    }
}

/// What differs of that which both have.
fn differing(before: &Inputs, now: &Inputs) -> Vec<String> {
    let common = |one: &Inputs, other: &Inputs| {
        let mut one = one.clone();
        one.0.retain(|name, _| other.0.contains_key(name));
        one
    };
    common(now, before).changes_since(&common(before, now))
}

/// Where runs go unless told otherwise, below the current folder.
pub const DEFAULT_ROOM: &str = "matrix-runs";

/// A run directory beside its place, complete but for its name.
fn draft(dir: Option<&Path>, matrix: &Matrix, text: &str, info: &RunInfo) -> anyhow::Result<TempDir> {
    let room = dir.map_or(Path::new(DEFAULT_ROOM), |d| d.parent().unwrap_or(Path::new("/")));
    let room = if room.as_os_str().is_empty() { Path::new(".") } else { room };
    fs::create_dir_all(room)?;
    let draft = tempfile::Builder::new()
        .prefix(".matrix-")
        .permissions(Permissions::from_mode(0o777))
        .tempdir_in(room)
        .with_context(|| format!("cannot create a run directory in {}", room.display()))?;
    write_whole(&draft.path().join(TEXT), text.as_bytes())?;
    write_json(&draft.path().join(INFO), info)?;
    write_json(&draft.path().join(RESOLVED), matrix)?;
    fs::File::create(draft.path().join(RECORDS))?.sync_all()?;
    Ok(draft)
}

/// Gives a complete run directory its name.
fn publish(
    draft: TempDir,
    dir: Option<&Path>,
    matrix: &Matrix,
    began: jiff::Timestamp,
) -> anyhow::Result<PathBuf> {
    sync_tree(draft.path())?;
    let taken = |e: &std::io::Error| {
        matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory)
    };
    loop {
        let to = dir.map_or_else(|| fresh_name(Path::new(DEFAULT_ROOM), &matrix.name, began), Path::to_owned);
        // Takes the place of nothing, or of an empty directory.
        match std::fs::rename(draft.path(), &to) {
            Ok(()) => {
                let _ = draft.keep();
                let to = std::path::absolute(to)?;
                to.parent().map_or(Ok(()), sync)?;
                return Ok(to);
            }
            // Another run was quicker.
            Err(error) if taken(&error) && dir.is_none() => {}
            Err(error) if taken(&error) => bail!(
                "{0} is there: a run directory is never written twice; name another with --output, \
                 or go on with it: --resume {0}",
                to.display()
            ),
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", to.display())),
        }
    }
}

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

/// The records of a run to append to, locked.
fn open_records(dir: &Path) -> anyhow::Result<fs::File> {
    let path = dir.join(RECORDS);
    let records = fs::OpenOptions::new().append(true).open(&path)?;
    if !FileExt::try_lock_exclusive(records.file())? {
        bail!("{} is locked: another matrix is writing this run", path.display());
    }
    Ok(records)
}

fn write_json(path: &Path, what: &impl Serialize) -> anyhow::Result<()> {
    Ok(write_whole(path, &serde_json::to_vec_pretty(what)?)?)
}

/// What a JSON file holds; none where there is no file.
fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text).with_context(|| format!("{}", path.display()))?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn read_kernels(dir: &Path) -> anyhow::Result<Kernels> {
    Ok(read_json(&dir.join(KERNELS))?.unwrap_or_default())
}

fn guest_json(dir: &Path, arch: &str) -> PathBuf {
    dir.join("guest").join(format!("{arch}.json"))
}

/// What a run was measured with.
///
/// # Errors
/// Its `run.json` is not there or damaged.
pub fn info(dir: &Path) -> anyhow::Result<RunInfo> {
    read_json(&dir.join(INFO))?.with_context(|| format!("{}: no {INFO} in it", dir.display()))
}

/// The matrix file of a run as it was.
///
/// # Errors
/// It cannot be read.
pub fn text(dir: &Path) -> anyhow::Result<String> {
    Ok(fs::read_to_string(dir.join(TEXT))?)
}

fn load_matrix(dir: &Path) -> anyhow::Result<Matrix> {
    let matrix: Option<Matrix> = read_json(&dir.join(RESOLVED))?;
    let matrix =
        matrix.with_context(|| format!("{}: not a run directory (no {RESOLVED} in it)", dir.display()))?;
    for cell in &matrix.cells {
        // Names of directories, and runs come from elsewhere too.
        let mut parts = Path::new(&cell.id.0).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            bail!("{}: `{}` cannot be a cell", dir.join(RESOLVED).display(), cell.id);
        }
    }
    Ok(matrix)
}

/// Reads a run back.
///
/// # Errors
/// It is no run directory, or a record in it is damaged (the last one may be
/// cut short by a crash and is then left out).
pub fn load(dir: &Path) -> anyhow::Result<Results> {
    let matrix = load_matrix(dir)?;
    Ok(records::read(&dir.join(RECORDS))?.recorded.results(matrix))
}

/// The runs below `room`, by name.
pub fn runs(room: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(room) else { return Vec::new() };
    let dirs = entries.filter_map(|e| Some(e.ok()?.path())).filter(|dir| dir.join(RESOLVED).is_file());
    // A run that was cut off before it had its name is none.
    let named = |dir: &PathBuf| dir.file_name().is_some_and(|n| !n.as_encoded_bytes().starts_with(b"."));
    let mut runs: Vec<_> = dirs.filter(named).collect();
    runs.sort();
    runs
}

/// The newest run below `room`.
pub fn latest(room: &Path) -> Option<PathBuf> {
    let began = |dir: &PathBuf| fs::metadata(dir.join(RESOLVED)).and_then(|m| m.modified()).ok();
    runs(room).into_iter().filter(|d| began(d).is_some()).max_by_key(began)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::*;

    fn info() -> RunInfo {
        let text = r#"{ "matrix_version": "1", "began": "2024-06-01T12:00:00Z", "command": [], "host": {}, "tools": {} }"#;
        serde_json::from_str(text).unwrap()
    }

    fn create(dir: &Path) -> anyhow::Result<RunDir> {
        RunDir::create(Some(dir), &matrix(), "x = 1", &info())
    }

    fn matrix() -> Matrix {
        Matrix {
            name: "m".into(),
            source: Source::Path("/linux".into()),
            axes: vec![],
            cells: vec![],
            kernel: Kernel::plain(),
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

    fn failure(stage: Stage, what: &str) -> Failure {
        Failure::new(stage, what, "d")
    }

    fn cell() -> CellId {
        CellId("c".into())
    }

    fn kernel(build_id: &str) -> Record {
        let build_id = Some(build_id.to_owned());
        Record::Kernel(KernelRecord {
            cell: cell(),
            kernel: "k".into(),
            build_id,
            samples: vec![sample(9.0)],
        })
    }

    fn boot(number: u32, value: f64, failures: &[Failure]) -> Record {
        let samples = if failures.is_empty() { vec![sample(value)] } else { vec![] };
        let (kernel, failures) = ("k".into(), failures.to_vec());
        Record::Boot(BootRecord { cell: cell(), boot: number, kernel, samples, failures })
    }

    fn values(dir: &Path) -> Vec<f64> {
        load(dir).unwrap().samples.iter().map(|s| s.value).collect()
    }

    #[test]
    fn run_is_read_back_as_it_was_written() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let mut run = create(&dir).unwrap();
        run.append(&[Record::Sample(sample(0.1)), kernel("1"), boot(1, 0.2, &[])]).unwrap();
        run.append(&[Record::Failure { cell: cell(), failure: failure(Stage::Build, "x") }]).unwrap();
        let results = load(&dir).unwrap();
        assert_eq!(results.matrix, matrix());
        assert_eq!(results.samples, [sample(0.1), sample(9.0), sample(0.2)]);
        assert_eq!(results.failures[&cell()], [failure(Stage::Build, "x")]);
        assert_eq!(text(&dir).unwrap(), "x = 1");
        assert_eq!(super::info(&dir).unwrap(), info());
        assert_eq!(latest(room.path()), Some(dir.clone()));
        assert!(format!("{:#}", create(&dir).unwrap_err()).contains("never written twice"));
        fs::create_dir(room.path().join(".matrix-left")).unwrap();
        fs::copy(dir.join(RESOLVED), room.path().join(".matrix-left").join(RESOLVED)).unwrap();
        assert_eq!(runs(room.path()), [dir], "what was never finished is no run");
    }

    #[test]
    fn records_cut_off_anywhere_are_whole_boots_and_can_be_added_to() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let mut run = create(&dir).unwrap();
        let records = [kernel("1"), boot(1, 0.1, &[]), boot(2, 0.2, &[])];
        run.append(&records).unwrap();
        drop(run);
        let path = dir.join(RECORDS);
        let all = fs::read(&path).unwrap();
        let ends: Vec<_> = (0..all.len()).filter(|at| all[*at] == b'\n').collect();
        let near_ends = ends.iter().flat_map(|end| [*end, end + 1]);
        for length in (0..=all.len()).step_by(97).chain(near_ends) {
            fs::write(&path, &all[..length]).unwrap();
            let whole = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(values(&dir), [9.0, 0.1, 0.2][..whole], "{length}");
            let mut run = RunDir::reopen(&dir).unwrap();
            assert_eq!(run.recorded().boot(&cell(), 1).is_some(), whole > 1);
            run.append(&records[whole..]).unwrap();
            assert_eq!(fs::read(&path).unwrap(), all, "{length}");
        }
        // A file system may have made room and written nothing.
        fs::write(&path, [&all, &b"\0\0\0\n"[..]].concat()).unwrap();
        assert_eq!(values(&dir), [9.0, 0.1, 0.2]);
        let text = String::from_utf8(all).unwrap();
        fs::write(&path, text.replacen('{', "", 1)).unwrap();
        assert!(load(&dir).unwrap_err().to_string().contains("records.jsonl:1:"));
    }

    #[test]
    fn frames_are_read_back_and_take_the_place_of_their_failure() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let mut run = create(&dir).unwrap();
        let failed = |family: &str| Failure {
            boot: None,
            benchmark: Some(family.to_owned()),
            ..failure(Stage::Build, "no frames")
        };
        for family in [FRAMES, FRAMES, "stack"] {
            run.append(&[Record::Failure { cell: cell(), failure: failed(family) }]).unwrap();
        }
        assert_eq!(load(&dir).unwrap().failures[&cell()], [failed(FRAMES), failed("stack")], "each once");
        assert!(!run.recorded().has_frames(&cell()));
        run.append(&[kernel("1"), boot(1, 0.1, &[])]).unwrap();
        let wants = |run: &RunDir, retry| run.recorded().wants(&cell(), 1, retry);
        let lost = |run: &RunDir, retry| run.recorded().has_lost(&cell(), FRAMES, retry);
        assert!(!wants(&run, false) && wants(&run, true), "all that failed is frames");
        assert!(lost(&run, false) && !lost(&run, true));
        let bytes = BTreeMap::from([("f".to_owned(), 16)]);
        let frames = Frames { bytes, ..Default::default() };
        let record = FramesRecord { cell: cell(), samples: vec![sample(16.0)], frames: frames.clone() };
        run.append(&[Record::Frames(record)]).unwrap();
        assert!(!lost(&run, false));
        let results = load(&dir).unwrap();
        assert_eq!(results.frames[&cell()], frames);
        assert_eq!(results.failures[&cell()], [failed("stack")]);
        assert_eq!(values(&dir), [9.0, 0.1, 16.0]);
        assert!(run.recorded().has_frames(&cell()));
    }

    #[test]
    fn what_is_settled_is_not_said_again_and_failures_are_replaced() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let mut run = create(&dir).unwrap();
        let wants = |run: &RunDir, retry| run.recorded().wants(&cell(), 2, retry);
        assert!(wants(&run, false));
        let of_cell = |stage, what: &str| Record::Failure { cell: cell(), failure: failure(stage, what) };
        run.append(&[of_cell(Stage::Source, "no source")]).unwrap();
        assert!(wants(&run, false), "the archive may be in reach again");
        run.append(&[of_cell(Stage::Build, "compile error")]).unwrap();
        assert!(!wants(&run, false) && wants(&run, true));
        run.append(&[kernel("1")]).unwrap();
        assert!(load(&dir).unwrap().failures.is_empty(), "it came about after all");
        run.append(&[kernel("1")]).unwrap();
        assert_eq!(values(&dir), [9.0], "once");
        assert!(run.append(&[kernel("2")]).unwrap_err().to_string().contains("another kernel of c"));

        run.append(&[of_cell(Stage::Boot, "no guest"), boot(1, 0.1, &[])]).unwrap();
        run.append(&[boot(2, 0.0, &[failure(Stage::Boot, "panic")])]).unwrap();
        assert!(!wants(&run, false) && wants(&run, true));
        assert_eq!(load(&dir).unwrap().failures[&cell()], [failure(Stage::Boot, "panic")]);
        run.append(&[boot(2, 0.2, &[])]).unwrap();
        assert!(!wants(&run, true));
        assert_eq!(values(&dir), [9.0, 0.1, 0.2]);
        assert!(load(&dir).unwrap().failures.is_empty());
        let again = run.append(&[boot(2, 0.3, &[])]).unwrap_err();
        assert!(again.to_string().contains("boot 2 of c a second time"), "{again}");
        assert_eq!(values(&dir), [9.0, 0.1, 0.2]);
    }

    #[test]
    fn one_at_a_time_writes_a_run() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let run = create(&dir).unwrap();
        let refused = RunDir::reopen(&dir).unwrap_err().to_string();
        assert!(refused.contains("run/records.jsonl is locked"), "{refused}");
        load(&dir).unwrap();
        drop(run);
        RunDir::reopen(&dir).unwrap();
    }

    #[test]
    fn kernels_and_guests_stay_what_they_were() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let run = create(&dir).unwrap();
        let inputs = |source: &str| Inputs([("source".to_owned(), source.to_owned())].into());
        let kernel = |cell: &str, source: &str| KernelInputs {
            cells: vec![CellId(cell.to_owned())],
            inputs: inputs(source),
        };
        run.pin_kernels(&[kernel("a", "1"), kernel("b", "1"), kernel("c", "2")]).unwrap();
        run.pin_kernels(&[kernel("b", "1"), kernel("d", "3")]).unwrap();
        assert_eq!(read_kernels(&dir).unwrap().len(), 3);
        let refused = run.pin_kernels(&[kernel("b", "3")]).unwrap_err().to_string();
        assert!(refused.contains("b: its kernel would be another one"), "{refused}");
        assert!(refused.contains("(source: 1 -> 3)"), "{refused}");
        fs::create_dir(dir.join("guest")).unwrap();
        run.pin_guest("x", &inputs("1")).unwrap();
        run.pin_guest("x", &Inputs([("other".to_owned(), "1".to_owned())].into())).unwrap();
        let refused = run.pin_guest("x", &inputs("2")).unwrap_err().to_string();
        assert!(refused.contains("the guests of x") && refused.contains("(source: 1 -> 2)"), "{refused}");
    }

    #[test]
    fn cells_do_not_lead_out_of_the_run() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("run");
        let cell = |id: &str| Cell {
            id: CellId(id.into()),
            coords: Default::default(),
            arch: String::new(),
            config: BTreeMap::new(),
            settings: vec![],
        };
        let mut matrix = matrix();
        matrix.cells = vec![cell("../a")];
        drop(RunDir::create(Some(&dir), &matrix, "", &info()).unwrap());
        assert!(load(&dir).unwrap_err().to_string().contains("`../a` cannot be a cell"));
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
