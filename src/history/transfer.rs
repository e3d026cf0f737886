//! The whole history as text, one JSON object a line: to be copied to another
//! machine, or kept.
//!
//! ```text
//! {"line":"header","format":"matrix history","version":1}
//! {"line":"run","info":{...},"matrix":{...},"sources":{...}}   then what is of it:
//! {"line":"sample",...}
//! {"line":"failure","cell":"...","failure":{...}}
//! {"line":"baseline","name":"..."}
//! {"line":"end","runs":1}
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};

use anyhow::{Context, bail, ensure};
use rusqlite::{OptionalExtension, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

use super::{Added, History, add, find, load};
use crate::model::{CellId, Failure, Matrix, Results, Sample};
use crate::store::{Run, RunInfo};

const FORMAT: &str = "matrix history";
const VERSION: u32 = 1;
/// Longest line that is read: that of a run holds its whole matrix.
const LINE: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum Line {
    /// First line.
    Header { format: String, version: u32 },
    /// A run begins.
    Run(Box<Start>),
    /// A value of it.
    Sample(Sample),
    /// A failure of it.
    Failure { cell: CellId, failure: Failure },
    /// A baseline that it is.
    Baseline { name: String },
    /// Last line: without it the file has been cut short.
    End { runs: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
struct Start {
    info: RunInfo,
    matrix: Matrix,
    sources: BTreeMap<CellId, String>,
}

/// What an import came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Runs that are new.
    pub new: usize,
    /// Runs that were there with less in them.
    pub updated: usize,
    /// Runs that were there already.
    pub known: usize,
    /// Baselines that stand for another run here and were left so.
    pub kept: Vec<String>,
}

/// Writes down the whole history; returns the number of runs.
///
/// # Errors
/// The database cannot be read, or `to` not written.
pub fn export(history: &History, to: &mut dyn Write) -> anyhow::Result<u64> {
    let mut put = |line: &Line| -> anyhow::Result<()> {
        serde_json::to_writer(&mut *to, line)?;
        Ok(to.write_all(b"\n")?)
    };
    put(&Line::Header { format: FORMAT.to_owned(), version: VERSION })?;
    // One transaction: the history as it is at one moment.
    let db = history.db.unchecked_transaction()?;
    let mut runs = 0;
    for entry in history.entries()? {
        let Run { info, results, sources } = load(&db, entry.id)?;
        let info = info.context("a run without its begin")?;
        put(&Line::Run(Box::new(Start { info, matrix: results.matrix, sources })))?;
        for sample in results.samples {
            put(&Line::Sample(sample))?;
        }
        for (cell, failures) in results.failures {
            for failure in failures {
                put(&Line::Failure { cell: cell.clone(), failure })?;
            }
        }
        for name in entry.baselines {
            put(&Line::Baseline { name })?;
        }
        runs += 1;
    }
    put(&Line::End { runs })?;
    Ok(runs)
}

/// Adds all runs of an export, or none where anything is wrong with it.
///
/// # Errors
/// It is none, is damaged or cut short, or was made by a newer version.
pub fn import(history: &mut History, from: &mut dyn BufRead) -> anyhow::Result<Imported> {
    let db = history.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut into = Importer { db: &db, run: None, baselines: Vec::new(), runs: 0, done: Imported::default() };
    let mut ended = false;
    let mut number = 0;
    while let Some(line) = next_line(from)? {
        number += 1;
        ensure!(!ended, "line {number}: more after the end");
        ended = into.line(number, &line).with_context(|| format!("line {number}"))?;
    }
    ensure!(ended, "cut short: no `end` in the last line");
    let done = into.done;
    db.commit()?;
    Ok(done)
}

fn next_line(from: &mut dyn BufRead) -> anyhow::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = from.take(LINE).read_until(b'\n', &mut line)?;
    ensure!((read as u64) < LINE, "a line of more than {} MiB", LINE >> 20);
    Ok((read > 0).then_some(line))
}

struct Importer<'a> {
    db: &'a rusqlite::Transaction<'a>,
    run: Option<Run>,
    baselines: Vec<String>,
    runs: u64,
    done: Imported,
}

impl Importer<'_> {
    /// Takes a line; true after the last.
    fn line(&mut self, number: usize, text: &[u8]) -> anyhow::Result<bool> {
        let line: Line = serde_json::from_slice(text).context("not a line of an exported history")?;
        ensure!(matches!(line, Line::Header { .. }) == (number == 1), "the header must be the first line");
        match line {
            Line::Header { format, version } => {
                ensure!(format == FORMAT, "not an exported history but `{format}`");
                ensure!(version <= VERSION, "exported by a newer version of matrix (format {version})");
            }
            Line::Run(start) => {
                self.close()?;
                let Start { info, matrix, sources } = *start;
                let results = Results {
                    matrix,
                    samples: Vec::new(),
                    failures: BTreeMap::new(),
                    frames: BTreeMap::new(),
                };
                self.run = Some(Run { info: Some(info), results, sources });
            }
            Line::Sample(sample) => self.current()?.results.samples.push(sample),
            Line::Failure { cell, failure } => {
                self.current()?.results.failures.entry(cell).or_default().push(failure);
            }
            Line::Baseline { name } => {
                self.current()?;
                ensure!(find::is_name(&name), "`{name}` cannot name a baseline");
                self.baselines.push(name);
            }
            Line::End { runs } => {
                self.close()?;
                ensure!(runs == self.runs, "{} runs of {runs}", self.runs);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn current(&mut self) -> anyhow::Result<&mut Run> {
        match &mut self.run {
            Some(run) => Ok(run),
            None => bail!("belongs to no run"),
        }
    }

    /// Adds the run that is complete.
    fn close(&mut self) -> anyhow::Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let (id, added) = add(self.db, &run)?;
        match added {
            Added::New => self.done.new += 1,
            Added::Updated => self.done.updated += 1,
            Added::Known | Added::Kept => self.done.known += 1,
        }
        self.runs += 1;
        for name in self.baselines.drain(..) {
            let sql = "SELECT run FROM baselines WHERE name = ?1";
            let here: Option<i64> = self.db.query_row(sql, [&name], |r| r.get(0)).optional()?;
            match here {
                None => {
                    let sql = "INSERT INTO baselines (name, run) VALUES (?1, ?2)";
                    self.db.execute(sql, params![name, id])?;
                }
                Some(other) if other != id => self.done.kept.push(name),
                Some(_) => {}
            }
        }
        Ok(())
    }
}
