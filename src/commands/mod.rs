//! The subcommands: each reads its arguments, calls the rooms below and says
//! how it ended.

mod cache;
mod check;
mod compare;
mod doctor;
mod history;
mod list;
mod merge;
mod pages;
mod plan;
mod report;
mod run;
mod transfer;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Cli, Command};
use crate::event::{Event, Tell};
use crate::history as history_of_runs;
use crate::matrix::{self, ArchFacts, LoadError, Only};
use crate::model::Matrix;
use crate::process::Stop;
use crate::{arch, bench, kernel};

/// How a command ended, as its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All is well.
    Good,
    /// A cell failed, or something is missing.
    Failed,
    /// The input is wrong or a program is missing; it has been said.
    Wrong,
    /// A comparison found a regression.
    Regressed,
    /// The user stopped it.
    Interrupted,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> ExitCode {
        ExitCode::from(match ending {
            Ending::Good => 0,
            Ending::Failed => 1,
            Ending::Wrong => 2,
            Ending::Regressed => 3,
            Ending::Interrupted => 130,
        })
    }
}

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // One thread is enough: the work is done by the programs that are started.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ending = runtime.context("no async runtime").and_then(|runtime| runtime.block_on(dispatch(cli)));
    match ending {
        Ok(ending) => ending.into(),
        Err(error) => {
            eprintln!("matrix: error: {error:#}");
            Ending::Wrong.into()
        }
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<Ending> {
    let stop = Stop::default();
    match cli.command {
        Command::Run(args) => run::run(args, cli.cache, cli.store, cli.talk, &stop).await,
        Command::Plan(args) => plan::plan(&args, cli.cache, &stop).await,
        Command::Merge(args) => merge::merge(&args, cli.talk),
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => compare::compare(&args, cli.store),
        Command::History(args) => history::history(&args, cli.store, cli.talk),
        Command::Export { file } => transfer::export(&file, cli.store, cli.talk),
        Command::Import { file } => transfer::import(&file, cli.store, cli.talk),
        Command::List(args) => list::list(&args),
        Command::Schema => pages::schema(),
        Command::Doctor(args) => doctor::doctor(&args, &stop).await,
        Command::Cache(args) => cache::cache(args, cli.cache),
        Command::Clean(args) => cache::clear(args, cli.cache),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(dir.as_deref()),
    }
}

/// Loads the wanted part of a matrix file; faults are shown and give `None`.
fn load(file: &Path, only: &[Only]) -> anyhow::Result<Option<Matrix>> {
    let mut matrix = match matrix::load(file, &context()?) {
        Ok(matrix) => matrix,
        Err(LoadError::Faults(faults)) => {
            eprintln!(
                "{}",
                faults.render(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            );
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    matrix::select(&mut matrix, only)?;
    Ok(Some(matrix))
}

/// What matrix files may name.
fn context() -> anyhow::Result<matrix::Context> {
    let archs = arch::all()?;
    let names: Vec<_> = archs.iter().map(|a| a.name.as_str()).collect();
    let fragments = kernel::config::builtin_names(&names);
    let facts = |a: &arch::Arch| ArchFacts {
        name: a.name.clone(),
        max_vcpus: a.qemu.max_vcpus,
        levels: a.qemu.topology.clone(),
        max_numa_nodes: a.qemu.max_numa_nodes,
    };
    Ok(matrix::Context { archs: archs.iter().map(facts).collect(), benchmarks: bench::all()?, fragments })
}

/// Prints to standard output; a reader that has gone away is no fault.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Stops on the first SIGINT, SIGTERM or SIGHUP, kills on the second.
fn stop_on_signals(stop: &Stop, tell: &Tell) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let stop = stop.clone();
    // Weak: whoever watches is gone when the run is, not when this task is.
    let tell = Arc::downgrade(tell);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            if stop.graceful.is_cancelled() {
                stop.now.cancel();
            } else {
                stop.graceful.cancel();
                if let Some(tell) = tell.upgrade() {
                    tell(Event::Interrupted);
                }
            }
        }
    });
    Ok(())
}

/// The file that the history is in, or would be.
fn store_file(store: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    store.map_or_else(|| history_of_runs::default_path(|name| std::env::var_os(name)), Ok)
}

/// A moment as people here read it, to the minute.
fn local(time: jiff::Timestamp) -> String {
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// A path as users type it: below the current folder without its prefix.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let relative = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    relative.as_deref().unwrap_or(path).display().to_string()
}
