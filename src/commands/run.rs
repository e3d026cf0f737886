//! `matrix run`

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err as fs;

use super::{Ending, load, plan, print, shown, stop_on_signals, store_file};
use crate::cache::{Cache, write_changed};
use crate::cli::{Form, Run, Talk};
use crate::event::{Event, Tell};
use crate::history::History;
use crate::model::{Cell, Matrix, Results};
use crate::process::Stop;
use crate::report::{self, Field, Table};
use crate::sched::host;
use crate::sched::plan::targets;
use crate::sched::run::{Options, Summary};
use crate::store::{self, RunDir, RunInfo};
use crate::{sched, ui};

pub async fn run(
    args: Run,
    cache: Option<PathBuf>,
    store: Option<PathBuf>,
    talk: Talk,
    stop: &Stop,
) -> anyhow::Result<Ending> {
    let record = args.record.then(|| store_file(store)).transpose()?;
    if let Some(file) = record.as_ref().filter(|_| !args.dry_run) {
        // One that cannot be written is better known before the run.
        History::open(file)?;
    }
    let cache = Cache::open(cache)?;
    // So is a limit that is none.
    cache.limit()?;
    match (&args.resume, &args.file) {
        (Some(run), _) => resume(&args, run, &cache, record.as_deref(), talk, stop).await,
        (None, Some(file)) => begin(&args, file, &cache, record.as_deref(), talk, stop).await,
        (None, None) => bail!("no matrix file"),
    }
}

/// Begins a run.
async fn begin(
    args: &Run,
    file: &Path,
    cache: &Cache,
    record: Option<&Path>,
    talk: Talk,
    stop: &Stop,
) -> anyhow::Result<Ending> {
    let Some(matrix) = load(file, &args.only)? else { return Ok(Ending::Wrong) };
    let part = match args.shard {
        Some(shard) => Matrix { cells: sched::plan::shard(&matrix, shard)?, ..matrix.clone() },
        None => matrix.clone(),
    };
    if args.dry_run {
        return plan::show(&part, cache, Some(jobs(args)), stop).await;
    }
    // What is missing altogether is said before anything is created.
    let targets = targets(&part, cache, stop).await?;
    let text = fs::read_to_string(file)?;
    let seed = args.seed.unwrap_or_else(|| jiff::Timestamp::now().as_nanosecond() as u64 % 1_000_000);
    let info = host::describe(&targets, seed, args.shard);
    let task = Task { args, cache, record, talk, stop, part: &part, info: &info };
    task.perform(targets, || RunDir::create(args.output.as_deref(), &matrix, &text, &info)).await
}

/// Goes on with a run.
async fn resume(
    args: &Run,
    run: &Path,
    cache: &Cache,
    record: Option<&Path>,
    talk: Talk,
    stop: &Stop,
) -> anyhow::Result<Ending> {
    let dir = find(run)?;
    if let Some(file) = &args.file {
        if fs::read_to_string(file)? != store::text(&dir)? {
            let (file, began) = (file.display(), shown(&dir.join("matrix.toml")));
            bail!("{file} is not what the run began with, which is {began}: begin another run with it");
        }
    }
    let dir = RunDir::reopen(&dir)?;
    let mut info = store::info(dir.path())?;
    if info.seed.is_none() {
        bail!("{}: a run of an older matrix, which cannot be gone on with", shown(dir.path()));
    }
    let matrix = dir.matrix();
    let cells = info.shard.map_or_else(|| Ok(matrix.cells.clone()), |s| sched::plan::shard(matrix, s))?;
    let wanted = |c: &Cell| dir.recorded().wants(&c.id, matrix.boot.boots, args.retry_failed);
    let part = Matrix { cells: cells.into_iter().filter(wanted).collect(), ..matrix.clone() };
    if args.dry_run {
        return plan::show(&part, cache, Some(jobs(args)), stop).await;
    }
    let targets =
        if part.cells.is_empty() { Default::default() } else { targets(&part, cache, stop).await? };
    host::resume(&mut info, &targets, part.is_timed())?;
    let task = Task { args, cache, record, talk, stop, part: &part, info: &info };
    task.perform(targets, || {
        dir.write_info(&info)?;
        Ok(dir)
    })
    .await
}

/// The run that is meant.
fn find(run: &Path) -> anyhow::Result<PathBuf> {
    if run.is_file() {
        let file = run.display();
        bail!("{file} is no run directory: `matrix run {file} --resume` goes on with the latest run of it");
    }
    if run.as_os_str() == "latest" && !run.exists() {
        let room = Path::new(store::DEFAULT_ROOM);
        return store::latest(room).with_context(|| format!("no run below {}", room.display()));
    }
    Ok(run.to_owned())
}

fn jobs(args: &Run) -> usize {
    args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, Into::into), usize::from)
}

/// A run, or what is left of one, to be performed.
struct Task<'a> {
    args: &'a Run,
    cache: &'a Cache,
    /// History that the run is added to when it is done.
    record: Option<&'a Path>,
    talk: Talk,
    stop: &'a Stop,
    part: &'a Matrix,
    info: &'a RunInfo,
}

impl Task<'_> {
    async fn perform(
        &self,
        targets: std::collections::BTreeMap<String, sched::plan::Target>,
        dir: impl FnOnce() -> anyhow::Result<RunDir>,
    ) -> anyhow::Result<Ending> {
        let Task { args, cache, talk, stop, part, info, .. } = *self;
        let tell = ui::watcher(talk);
        stop_on_signals(stop, &tell)?;
        let mut dir = dir()?;
        let mut summary = Summary::default();
        if !part.cells.is_empty() {
            fs::create_dir_all(cache.root())?;
            let (seed, retry_failed) = (info.seed.unwrap_or_default(), args.retry_failed);
            let options = Options {
                jobs: jobs(args),
                refresh: args.refresh,
                seed,
                retry_failed,
                keep_objects: args.keep_objects,
                ccache: !args.no_ccache,
            };
            Cache::allow_many_locks();
            let cache = cache.for_run()?;
            summary = sched::run::run(part, targets, &mut dir, &cache, options, tell.clone(), stop).await?;
            // An interrupted run is gone on with soon.
            if !summary.interrupted {
                keep_limit(cache, &tell);
            }
        }
        // Bars are gone before the tables come.
        drop(tell);
        self.conclude(&summary, dir)
    }

    /// Says what came of the run, and keeps it beside the records.
    fn conclude(&self, summary: &Summary, dir: RunDir) -> anyhow::Result<Ending> {
        let Task { args, record, talk, info, .. } = *self;
        let path = dir.path().to_owned();
        let (mut results, _lock) = dir.into_results();
        let mut tables = report::tables(&results);
        let text = report(&path, &results, &tables, args.format)?;
        if !summary.interrupted {
            print(&text)?;
        }
        // The rest of the matrix is other shards' business.
        if let Some(shard) = info.shard {
            results.matrix.cells = sched::plan::shard(&results.matrix, shard)?;
            tables = report::tables(&results);
        }
        if !talk.quiet {
            eprintln!("{}", closing(summary, &results, &shown(&path)));
        }
        if summary.interrupted {
            return Ok(Ending::Interrupted);
        }
        if let Some(file) = record {
            let said = super::history::add(&mut History::open(file)?, &path)?;
            if !talk.quiet {
                eprintln!("{said}");
            }
        }
        Ok(ending(&results, &tables))
    }
}

/// Removes from the cache what its limit wants. That is no matter of the run's:
/// what goes wrong is said.
fn keep_limit(cache: Cache, tell: &Tell) {
    let text = match cache.end_run() {
        Ok(pruned) if pruned.removed.is_empty() && pruned.busy == 0 => return,
        Ok(pruned) => super::cache::removed(&pruned, false),
        Err(error) => format!("cannot keep the cache's limit: {error}"),
    };
    tell(Event::Note(format!("cache: {text}")));
}

/// Keeps a run's report beside it, and gives it in the form that is asked for.
pub fn report(dir: &Path, results: &Results, tables: &[Table], form: Form) -> anyhow::Result<String> {
    let written = |form| super::report::written(dir, results, tables, form);
    let text = written(Form::Text)?;
    write_changed(&dir.join("tables.txt"), text.as_bytes())?;
    write_changed(&dir.join("report.html"), written(Form::Html)?.as_bytes())?;
    if form == Form::Text { Ok(text) } else { written(form) }
}

fn failed(results: &Results) -> Vec<&Cell> {
    results.matrix.cells.iter().filter(|c| results.failures.contains_key(&c.id)).collect()
}

fn closing(summary: &Summary, results: &Results, dir: &str) -> String {
    let Summary { built, fresh, interrupted } = summary;
    let mut text = format!("{built} built, {fresh} from the cache");
    let failed = failed(results);
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|c| c.id.0.as_str()).collect();
        text.push_str(&format!(", {} failed: {}", failed.len(), names.join(" ")));
    }
    let what = if *interrupted { "interrupted; what was measured is in" } else { "evidence in" };
    let resume = if *interrupted { format!(", `matrix run --resume {dir}` goes on") } else { String::new() };
    format!("{text}; {what} {dir} (`matrix report {dir}` prints its tables{resume})")
}

/// Whether all cells have what tables show of them.
pub fn ending(results: &Results, tables: &[Table]) -> Ending {
    let incomplete = |f: &Field| matches!(f, Field::Failed { .. } | Field::Missing);
    let bad = tables.iter().any(|t| t.rows.iter().flatten().any(incomplete));
    if bad || !failed(results).is_empty() { Ending::Failed } else { Ending::Good }
}
