//! The database's tables, version by version.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

/// What brings a database from each version to the next; the number of those
/// done is its `user_version`. Published steps never change.
const STEPS: [&str; 2] = [
    "CREATE TABLE runs (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         key TEXT NOT NULL UNIQUE,      -- of matrix, begin and part
         content TEXT NOT NULL,         -- of all that was measured
         name TEXT NOT NULL,            -- of the matrix
         began INTEGER NOT NULL,        -- microseconds since 1970, UTC
         info TEXT NOT NULL,            -- run.json
         matrix TEXT NOT NULL           -- resolved.json
     ) STRICT;
     CREATE TABLE cells (
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
         cell TEXT NOT NULL,
         source TEXT NOT NULL,
         PRIMARY KEY (run, cell)
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE samples (
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
         seq INTEGER NOT NULL,
         cell TEXT NOT NULL,
         metric TEXT NOT NULL,
         value REAL NOT NULL,
         unit TEXT NOT NULL,
         better TEXT NOT NULL,
         kind TEXT NOT NULL,
         boot INTEGER,
         iteration INTEGER,
         PRIMARY KEY (run, seq)
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE failures (
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
         seq INTEGER NOT NULL,
         cell TEXT NOT NULL,
         stage TEXT NOT NULL,
         what TEXT NOT NULL,
         detail TEXT NOT NULL,
         boot INTEGER,
         benchmark TEXT,
         PRIMARY KEY (run, seq)
     ) STRICT, WITHOUT ROWID;",
    "CREATE TABLE baselines (
         name TEXT PRIMARY KEY NOT NULL,
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE RESTRICT
     ) STRICT, WITHOUT ROWID;
     CREATE INDEX samples_of_metric ON samples (metric, run);
     CREATE INDEX runs_in_time ON runs (began, id);",
];

/// How long to wait for another writer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a database ready for use: its tables as this version needs them,
/// writers and readers side by side.
pub(super) fn prepare(mut db: Connection) -> anyhow::Result<Connection> {
    db.busy_timeout(PATIENCE)?;
    // Before anything is changed in a file that is none of ours.
    version(&db)?;
    write_ahead(&db)?;
    db.pragma_update(None, "foreign_keys", true)?;
    if version(&db)? < STEPS.len() {
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have done it meanwhile.
        for (from, step) in STEPS.iter().enumerate().skip(version_within(&transaction)?) {
            transaction.execute_batch(step)?;
            transaction.pragma_update(None, "user_version", from + 1)?;
        }
        transaction.commit()?;
    }
    Ok(db)
}

/// SQLite does not wait for others when it changes the journal's mode.
fn write_ahead(db: &Connection) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match db.pragma_update(None, "journal_mode", "WAL") {
            Err(e)
                if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && began.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return Ok(result?),
        }
    }
}

/// The schema at one moment: somebody else may be making the tables.
fn version(db: &Connection) -> anyhow::Result<usize> {
    let moment = db.unchecked_transaction()?;
    version_within(&moment)
}

fn version_within(transaction: &Connection) -> anyhow::Result<usize> {
    let version: i64 = transaction
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .context("no history, or damaged")?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    match usize::try_from(version) {
        Ok(0) if tables > 0 => bail!("a database of another program"),
        Ok(version) if version <= STEPS.len() => Ok(version),
        _ => bail!(
            "made by a newer version of matrix (schema {version}, this one knows {}): use that version",
            STEPS.len()
        ),
    }
}

#[cfg(test)]
pub(super) const FIRST: &str = STEPS[0];
