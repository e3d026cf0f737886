//! Several runs of one matrix, shards of it above all, joined into one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err as fs;
use fs4::fs_std::FileExt;

use super::{
    BootRecord, KERNELS, Kernels, RECORDS, Record, Recorded, RunInfo, differing, draft, guest_json, info,
    load_matrix, publish, read_json, read_kernels, records, text, write_json,
};
use crate::cache::{Inputs, write_whole};
use crate::model::{CellId, Kind, Matrix};

/// A run to be merged.
struct Part {
    dir: PathBuf,
    matrix: Matrix,
    text: String,
    info: RunInfo,
    kernels: Kernels,
    recorded: Recorded,
}

impl Part {
    fn load(dir: &Path) -> anyhow::Result<Part> {
        let matrix = load_matrix(dir)?;
        let file = fs::File::open(dir.join(RECORDS))?;
        if !FileExt::try_lock_shared(file.file())? {
            bail!("{} is locked: a matrix is still writing this run", dir.join(RECORDS).display());
        }
        let recorded = records::read(&dir.join(RECORDS))?.recorded;
        let (text, info, kernels) = (text(dir)?, info(dir)?, read_kernels(dir)?);
        Ok(Part { dir: dir.to_owned(), matrix, text, info, kernels, recorded })
    }

    fn shown(&self) -> std::path::Display<'_> {
        self.dir.display()
    }
}

/// Merges runs into a new run directory, `output` or a fresh one, and says
/// where it is. Evidence is linked where that is possible, else copied.
///
/// # Errors
/// They are not parts of one run: their matrices, programs, sources, kernels
/// or guests differ, or a boot was measured twice with different results; or
/// the file system refuses.
pub fn merge(runs: &[PathBuf], output: Option<&Path>, command: Vec<String>) -> anyhow::Result<PathBuf> {
    let parts = runs.iter().map(|dir| Part::load(dir)).collect::<anyhow::Result<Vec<_>>>()?;
    let Some((first, others)) = parts.split_first() else { bail!("no runs to merge") };
    for other in others {
        of_one_matrix(first, other)?;
        of_one_machine(first, other)?;
    }
    let kernels = kernels(&parts)?;
    let guests = guests(&parts)?;
    let records = union(&parts)?;

    let info = merged_info(&parts, command);
    let draft = draft(output, &first.matrix, &first.text, &info)?;
    write_json(&draft.path().join(KERNELS), &kernels)?;
    let mut lines = Vec::new();
    for record in records.iter() {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    write_whole(&draft.path().join(RECORDS), &lines)?;
    for part in &parts {
        link_evidence(part, draft.path())?;
    }
    for (arch, files) in guests {
        fs::create_dir_all(draft.path().join("guest"))?;
        write_json(&guest_json(draft.path(), &arch), &files)?;
    }
    publish(draft, output, &first.matrix, info.began)
}

// --- what must be the same ---

fn of_one_matrix(one: &Part, other: &Part) -> anyhow::Result<()> {
    let cells = |m: &Matrix| m.cells.iter().map(|c| c.id.clone()).collect::<Vec<_>>();
    let what = if one.text != other.text {
        "their matrix files differ"
    } else if cells(&one.matrix) != cells(&other.matrix) {
        "they were run with different --only"
    } else {
        return Ok(());
    };
    bail!("{} and {} are not parts of one run: {what}", one.shown(), other.shown());
}

fn of_one_machine(one: &Part, other: &Part) -> anyhow::Result<()> {
    let changes = one.info.differences(&other.info, one.matrix.is_timed());
    if !changes.is_empty() {
        bail!(
            "what {} and {} measured cannot be compared: {} (counted instructions do not depend on the \
             processor: timing = \"instructions\")",
            one.shown(),
            other.shown(),
            changes.join("; ")
        );
    }
    Ok(())
}

/// What all kernels are made from; the same kernel and the same source are the
/// same in all parts.
fn kernels(parts: &[Part]) -> anyhow::Result<Kernels> {
    let mut all = Kernels::new();
    let mut of_cell: BTreeMap<&CellId, (&Part, &Inputs)> = BTreeMap::new();
    let mut of_origin = BTreeMap::new();
    for part in parts {
        let pairs = part.kernels.values().flat_map(|k| k.cells.iter().map(|cell| (cell, &k.inputs)));
        for (cell, inputs) in pairs {
            let (before, expected) = *of_cell.entry(cell).or_insert((part, inputs));
            if expected != inputs {
                let changes = inputs.changes_since(expected).join("; ");
                bail!("{cell} has another kernel in {} than in {}: {changes}", part.shown(), before.shown());
            }
            let Some(at) = part.matrix.cells.iter().find(|c| c.id == *cell) else { continue };
            let origin = format!("{:?}", first_matrix(parts).map(|m| m.source_of(at)));
            let source = inputs.0.get("source");
            let (before, expected) = *of_origin.entry(origin).or_insert((part, source));
            if expected != source {
                let (one, other) = (before.shown(), part.shown());
                bail!(
                    "{one} and {other} were built from different sources (a `path` is told by its files' \
                     times: on several machines use `git`, `tarball` or `package`)"
                );
            }
        }
        for (fingerprint, kernel) in &part.kernels {
            let entry = all.entry(fingerprint.clone()).or_insert_with(|| kernel.clone());
            let more: Vec<_> = kernel.cells.iter().filter(|c| !entry.cells.contains(c)).cloned().collect();
            entry.cells.extend(more);
        }
    }
    Ok(all)
}

/// Whose paths stand for those of all: parts may come from different folders.
fn first_matrix(parts: &[Part]) -> Option<&Matrix> {
    parts.first().map(|p| &p.matrix)
}

/// What the guests of each architecture are.
fn guests(parts: &[Part]) -> anyhow::Result<BTreeMap<String, Inputs>> {
    let mut all: BTreeMap<String, (&Part, Inputs)> = BTreeMap::new();
    for part in parts {
        for cell in &part.matrix.cells {
            let Some(files) = read_json::<Inputs>(&guest_json(&part.dir, &cell.arch))? else { continue };
            let (before, expected) = all.entry(cell.arch.clone()).or_insert((part, files.clone()));
            let changes = differing(expected, &files).join("; ");
            if !changes.is_empty() {
                bail!("the guests of {} and {} differ: {changes}", before.shown(), part.shown());
            }
            expected.0.extend(files.0);
        }
    }
    Ok(all.into_iter().map(|(arch, (_, files))| (arch, files)).collect())
}

// --- what is joined ---

/// All records, each once.
fn union(parts: &[Part]) -> anyhow::Result<Recorded> {
    let mut all = Recorded::default();
    for part in parts {
        for record in part.recorded.iter() {
            let known = match record {
                Record::Failure { .. } => continue,
                Record::Boot(boot) => match all.boot(&boot.cell, boot.boot) {
                    Some(before) if repeats(before, boot) => true,
                    Some(_) => bail!(
                        "boot {} of {} was measured in {} and before: leave out one of the runs",
                        boot.boot,
                        boot.cell,
                        part.shown()
                    ),
                    None => false,
                },
                Record::Sample(_) | Record::Kernel(_) | Record::Frames(_) => false,
            };
            if !known {
                all.add(record.clone())
                    .map_err(anyhow::Error::msg)
                    .with_context(|| part.dir.display().to_string())?;
            }
        }
    }
    for (index, part) in parts.iter().enumerate() {
        for record in part.recorded.iter() {
            if let Record::Failure { cell, .. } = record {
                let good = |(i, p): (usize, &Part)| {
                    i != index && p.recorded.kernel(cell).is_some() && !p.recorded.has_failed(cell)
                };
                if !parts.iter().enumerate().any(good) {
                    all.add(record.clone()).map_err(anyhow::Error::msg)?;
                }
            }
        }
    }
    Ok(all)
}

/// Whether a boot says what another one said: counted instructions do, to the
/// last digit, but for the times that the host's clock gave.
fn repeats(one: &BootRecord, other: &BootRecord) -> bool {
    let counted = |boot: &BootRecord| {
        let samples = boot.samples.iter().filter(|s| s.kind != Kind::EmulatedWallClock).cloned();
        samples.collect::<Vec<_>>()
    };
    let exact = |boot: &BootRecord| {
        boot.samples.iter().all(|s| match s.kind {
            Kind::Exact | Kind::EmulatedInstructions => true,
            _ => s.metric.starts_with("boot."),
        })
    };
    let good = one.failures.is_empty() && other.failures.is_empty() && exact(one) && exact(other);
    good && one.kernel == other.kernel && counted(one) == counted(other) && !counted(one).is_empty()
}

fn merged_info(parts: &[Part], command: Vec<String>) -> RunInfo {
    let first = &parts[0].info;
    let common = |name: &String, value: &String| parts.iter().all(|p| p.info.host.get(name) == Some(value));
    let mut host = first.host.clone();
    host.retain(|name, value| common(name, value));
    let tools = parts.iter().flat_map(|p| p.info.tools.clone()).collect();
    RunInfo {
        matrix_version: first.matrix_version.clone(),
        began: parts.iter().map(|p| p.info.began).min().unwrap_or(first.began),
        command,
        host,
        tools,
        seed: first.seed,
        shard: None,
        resumed: Vec::new(),
        parts: parts.iter().map(|p| p.info.clone()).collect(),
    }
}

/// Evidence of what a part recorded; what an earlier part has left stays.
fn link_evidence(part: &Part, to: &Path) -> anyhow::Result<()> {
    link_tree(&part.dir.join("guest"), &to.join("guest"), &|name| !name.ends_with(".json"))?;
    for cell in &part.matrix.cells {
        let own = |name: &str| {
            let number = name.strip_prefix("boot-").and_then(|n| n.parse().ok());
            number.is_none_or(|n| part.recorded.boot(&cell.id, n).is_some())
        };
        let below = Path::new("cells").join(&cell.id.0);
        if part.recorded.kernel(&cell.id).is_some() || part.recorded.has_failed(&cell.id) {
            link_tree(&part.dir.join(&below), &to.join(below), &own)?;
        }
    }
    Ok(())
}

/// Links or copies the files of a folder, if it is there, that are `wanted` by
/// name and that are not there yet. Nothing but files and folders is followed.
fn link_tree(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
    if !from.symlink_metadata().is_ok_and(|m| m.is_dir()) {
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if !wanted(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            link_tree(&entry.path(), &target, wanted)?;
        } else if kind.is_file() && !target.exists() {
            fs::create_dir_all(to)?;
            // A log may be written once more, over the old one, by a run that
            // tries a build again; all else is replaced or left alone.
            if target.ends_with("build.log") || fs::hard_link(entry.path(), &target).is_err() {
                fs::copy(entry.path(), &target)?;
            }
        }
    }
    Ok(())
}
