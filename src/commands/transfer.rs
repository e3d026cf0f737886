//! `matrix export` and `matrix import`

use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err as fs;

use super::{Ending, store_file};
use crate::cli::Talk;
use crate::history::{self, History};

const STANDARD: &str = "-";

pub fn export(file: &Path, store: Option<PathBuf>, talk: Talk) -> anyhow::Result<Ending> {
    let store = store_file(store)?;
    let Some(history) = History::existing(&store)? else { bail!("no history in {}", store.display()) };
    let runs = if file.as_os_str() == STANDARD {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let runs = history::export(&history, &mut out)?;
        out.flush()?;
        runs
    } else {
        // A file under its name is whole.
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let mut out = BufWriter::new(fs::File::create(&part)?);
        let runs = history::export(&history, &mut out)?;
        out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
        fs::rename(&part, file)?;
        runs
    };
    if !talk.quiet {
        eprintln!("{runs} runs exported");
    }
    Ok(Ending::Good)
}

pub fn import(file: &Path, store: Option<PathBuf>, talk: Talk) -> anyhow::Result<Ending> {
    let mut history = History::open(&store_file(store)?)?;
    let imported = if file.as_os_str() == STANDARD {
        history::import(&mut history, &mut std::io::stdin().lock())
    } else {
        history::import(&mut history, &mut BufReader::new(fs::File::open(file)?))
    };
    let done = imported.with_context(|| format!("{}: nothing imported", file.display()))?;
    if !talk.quiet {
        eprintln!(
            "{} runs imported, {} brought up to date, {} already there",
            done.new, done.updated, done.known
        );
        for name in done.kept {
            eprintln!("baseline {name} stands for another run here and was left so");
        }
    }
    Ok(Ending::Good)
}
