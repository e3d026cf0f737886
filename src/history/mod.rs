//! Runs kept in a SQLite database, to be looked at over time and compared.
//!
//! Every value from outside is a bound parameter; no statement is put together
//! from text.

mod find;
mod schema;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use fs_err as fs;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{CellId, Failure, Matrix, Results, Sample};
use crate::store::{Run, RunInfo};

pub use transfer::{Imported, export, import};

/// The database.
#[derive(Debug)]
pub struct History {
    db: Connection,
}

/// A run in the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its number.
    pub id: i64,
    /// Name of its matrix.
    pub name: String,
    /// When it began.
    pub began: jiff::Timestamp,
    /// Its cells.
    pub cells: usize,
    /// Cells of it with a failure.
    pub failed: usize,
    /// What its kernels were built from, each once.
    pub sources: Vec<String>,
    /// Baselines that stand for it.
    pub baselines: Vec<String>,
}

/// What became of a run that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is there now.
    New,
    /// It was there with less in it, or something else.
    Updated,
    /// It was there already.
    Known,
    /// It was there, with more in it.
    Kept,
}

/// Where the history is unless told otherwise.
///
/// # Errors
/// Neither variable is set.
pub fn default_path(env: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<PathBuf> {
    let set = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    let data = data.context("no folder for the history: set MATRIX_STORE, XDG_DATA_HOME or HOME")?;
    Ok(data.join("matrix/history.sqlite"))
}

impl History {
    /// Opens the history in `file`, which is created where it does not exist.
    ///
    /// # Errors
    /// It is none, was made by a newer version, or cannot be opened.
    pub fn open(file: &Path) -> anyhow::Result<History> {
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let db = Connection::open(file).map_err(anyhow::Error::from).and_then(schema::prepare);
        Ok(History { db: db.with_context(|| format!("history {}", file.display()))? })
    }

    /// Opens the history in `file` where there is one.
    ///
    /// # Errors
    /// As [`History::open`].
    pub fn existing(file: &Path) -> anyhow::Result<Option<History>> {
        if file.exists() { History::open(file).map(Some) } else { Ok(None) }
    }

    /// Adds a run. A run that is there already, told by its matrix and begin, is brought up to date, unless the new one has less in it.
    ///
    /// # Errors
    /// The run does not say when it began, or the database cannot be written.
    pub fn add(&mut self, run: &Run) -> anyhow::Result<(i64, Added)> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let added = add(&transaction, run)?;
        transaction.commit()?;
        Ok(added)
    }

    /// All runs, oldest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        let mut baselines = grouped(self.baselines()?);
        let mut sources = grouped(self.pairs("SELECT DISTINCT source, run FROM cells ORDER BY source")?);
        let mut statement = self.db.prepare(
            "SELECT id, name, began, (SELECT count(*) FROM cells WHERE run = id), \
             (SELECT count(DISTINCT cell) FROM failures WHERE run = id) FROM runs ORDER BY began, id",
        )?;
        let mut rows = statement.query([])?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            entries.push(Entry {
                id,
                name: row.get(1)?,
                began: jiff::Timestamp::from_microsecond(row.get(2)?)?,
                cells: row.get(3)?,
                failed: row.get(4)?,
                sources: sources.remove(&id).unwrap_or_default(),
                baselines: baselines.remove(&id).unwrap_or_default(),
            });
        }
        Ok(entries)
    }

    /// Reads a run.
    ///
    /// # Errors
    /// There is none with this number, or it is damaged.
    pub fn load(&self, id: i64) -> anyhow::Result<Run> {
        // One transaction, so that a writer cannot come between the tables.
        let transaction = self.db.unchecked_transaction()?;
        load(&transaction, id).with_context(|| format!("run {id} of the history"))
    }

    /// Names a run, so that it can be compared with under that name.
    ///
    /// # Errors
    /// The name could be taken for something else, or there is no such run.
    pub fn set_baseline(&mut self, name: &str, id: i64) -> anyhow::Result<()> {
        ensure!(
            find::is_name(name),
            "`{name}` cannot name a baseline: a letter, then letters, digits, `.`, `_` and `-`, not `latest`"
        );
        let sql =
            "INSERT INTO baselines (name, run) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET run = ?2";
        self.db.execute(sql, params![name, id]).with_context(|| format!("no run {id} in the history"))?;
        Ok(())
    }

    /// Removes a run for good.
    ///
    /// # Errors
    /// There is no such run, or a baseline stands for it.
    pub fn remove(&mut self, id: i64) -> anyhow::Result<()> {
        let names = self.baselines()?.into_iter().filter(|(_, run)| *run == id).map(|(name, _)| name);
        let names = names.collect::<Vec<_>>().join(", ");
        ensure!(names.is_empty(), "run {id} is the baseline {names}: give that name to another run first");
        let removed = self.db.execute("DELETE FROM runs WHERE id = ?1", [id])?;
        ensure!(removed == 1, "no run {id} in the history");
        Ok(())
    }

    /// Every baseline's name and run.
    fn baselines(&self) -> anyhow::Result<Vec<(String, i64)>> {
        self.pairs("SELECT name, run FROM baselines ORDER BY name")
    }

    fn pairs(&self, sql: &'static str) -> anyhow::Result<Vec<(String, i64)>> {
        let mut statement = self.db.prepare(sql)?;
        let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn grouped(pairs: Vec<(String, i64)>) -> BTreeMap<i64, Vec<String>> {
    let mut groups: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (text, run) in pairs {
        groups.entry(run).or_default().push(text);
    }
    groups
}

// --- writing ---

/// What tells a run from all others: nothing that another version of this
/// program might write down differently.
fn key(info: &RunInfo, matrix: &Matrix) -> anyhow::Result<String> {
    let cells: Vec<&CellId> = matrix.cells.iter().map(|c| &c.id).collect();
    let parts: Vec<_> = info.parts.iter().map(|p| (p.began, p.shard)).collect();
    hash(&[
        serde_json::to_vec(&(&matrix.name, cells))?,
        serde_json::to_vec(&(info.began, info.shard, parts))?,
    ])
}

fn hash(parts: &[Vec<u8>]) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // Lengths keep ("ab","c") and ("a","bc") apart.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn add(db: &Transaction, run: &Run) -> anyhow::Result<(i64, Added)> {
    let Run { info: Some(info), results, sources } = run else {
        bail!("no run.json in it: when it began is not known");
    };
    let key = key(info, &results.matrix)?;
    let parts = [
        serde_json::to_vec(info)?,
        serde_json::to_vec(&results.samples)?,
        serde_json::to_vec(&results.failures)?,
        serde_json::to_vec(sources)?,
    ];
    let content = hash(&parts)?;
    let known: Option<(i64, String)> = db
        .query_row("SELECT id, content FROM runs WHERE key = ?1", [&key], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let (id, added) = match known {
        Some((id, old)) if old == content => return Ok((id, Added::Known)),
        Some((id, _)) => {
            let samples: i64 =
                db.query_row("SELECT count(*) FROM samples WHERE run = ?1", [id], |r| r.get(0))?;
            if results.samples.len() < usize::try_from(samples)? {
                return Ok((id, Added::Kept));
            }
            clear(db, id)?;
            let sql = "UPDATE runs SET content = ?2, info = ?3 WHERE id = ?1";
            db.execute(sql, params![id, content, serde_json::to_string(info)?])?;
            (id, Added::Updated)
        }
        None => {
            let sql = "INSERT INTO runs (key, content, name, began, info, matrix) VALUES (?, ?, ?, ?, ?, ?)";
            // How results are printed is no part of them, and the form of it changes.
            let matrix = Matrix { tables: Vec::new(), ..results.matrix.clone() };
            let (json, of_matrix) = (serde_json::to_string(info)?, serde_json::to_string(&matrix)?);
            let began = info.began.as_microsecond();
            db.execute(sql, params![key, content, matrix.name, began, json, of_matrix])?;
            (db.last_insert_rowid(), Added::New)
        }
    };
    fill(db, id, results, sources)?;
    Ok((id, added))
}

fn clear(db: &Transaction, id: i64) -> anyhow::Result<()> {
    for sql in [
        "DELETE FROM cells WHERE run = ?1",
        "DELETE FROM samples WHERE run = ?1",
        "DELETE FROM failures WHERE run = ?1",
    ] {
        db.execute(sql, [id])?;
    }
    Ok(())
}

fn fill(
    db: &Transaction,
    id: i64,
    results: &Results,
    sources: &BTreeMap<CellId, String>,
) -> anyhow::Result<()> {
    let mut cell = db.prepare_cached("INSERT INTO cells (run, cell, source) VALUES (?, ?, ?)")?;
    for (name, source) in sources {
        cell.execute(params![id, name.0, source])?;
    }
    let mut sample = db.prepare_cached(
        "INSERT INTO samples (run, seq, cell, metric, value, unit, better, kind, boot, iteration) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for (seq, s) in (0i64..).zip(&results.samples) {
        ensure!(s.value.is_finite(), "{} of {}: {} is no value", s.metric, s.cell, s.value);
        let (better, kind) = (word(&s.better)?, word(&s.kind)?);
        let values = params![id, seq, s.cell.0, s.metric, s.value, s.unit, better, kind, s.boot, s.iteration];
        sample.execute(values)?;
    }
    let mut failure = db.prepare_cached(
        "INSERT INTO failures (run, seq, cell, stage, what, detail, boot, benchmark) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    let failures = results.failures.iter().flat_map(|(cell, all)| all.iter().map(move |f| (cell, f)));
    for (seq, (cell, f)) in (0i64..).zip(failures) {
        let stage = word(&f.stage)?;
        failure.execute(params![id, seq, cell.0, stage, f.what, f.detail, f.boot, f.benchmark])?;
    }
    Ok(())
}

/// A variant as JSON names it.
fn word(variant: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::from_value(serde_json::to_value(variant)?)?)
}

// --- reading ---

fn load(db: &Connection, id: i64) -> anyhow::Result<Run> {
    let texts: Option<(String, String)> = db
        .query_row("SELECT info, matrix FROM runs WHERE id = ?1", [id], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let (info, matrix) = texts.context("there is none with this number")?;
    let sources = db
        .prepare_cached("SELECT cell, source FROM cells WHERE run = ?1")?
        .query_map([id], |r| Ok((CellId(r.get(0)?), r.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let samples = db
        .prepare_cached(
            "SELECT cell, metric, value, unit, better, kind, boot, iteration \
             FROM samples WHERE run = ?1 ORDER BY seq",
        )?
        .query_map([id], sample)?
        .collect::<Result<_, _>>()?;
    let mut failures: BTreeMap<CellId, Vec<Failure>> = BTreeMap::new();
    let mut statement = db.prepare_cached(
        "SELECT cell, stage, what, detail, boot, benchmark FROM failures WHERE run = ?1 ORDER BY seq",
    )?;
    for row in statement.query_map([id], failure)? {
        let (cell, failure) = row?;
        failures.entry(cell).or_default().push(failure);
    }
    let results =
        Results { matrix: serde_json::from_str(&matrix)?, samples, failures, frames: BTreeMap::new() };
    Ok(Run { info: Some(serde_json::from_str(&info)?), results, sources })
}

fn sample(row: &Row) -> rusqlite::Result<Sample> {
    Ok(Sample {
        cell: CellId(row.get(0)?),
        metric: row.get(1)?,
        value: row.get(2)?,
        unit: row.get(3)?,
        better: variant(row, 4)?,
        kind: variant(row, 5)?,
        boot: row.get(6)?,
        iteration: row.get(7)?,
    })
}

fn failure(row: &Row) -> rusqlite::Result<(CellId, Failure)> {
    let failure = Failure {
        stage: variant(row, 1)?,
        what: row.get(2)?,
        detail: row.get(3)?,
        boot: row.get(4)?,
        benchmark: row.get(5)?,
    };
    Ok((CellId(row.get(0)?), failure))
}

fn variant<T: DeserializeOwned>(row: &Row, at: usize) -> rusqlite::Result<T> {
    let word: String = row.get(at)?;
    serde_json::from_value(word.into())
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, e.into()))
}
