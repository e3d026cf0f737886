//! `matrix run`

use std::path::PathBuf;

use fs_err as fs;

use super::{Ending, load, plan, print, shown, stop_on_signals};
use crate::cache::Cache;
use crate::cli::{Form, Run, Talk};
use crate::process::Stop;
use crate::report::{self, Field, Table};
use crate::sched::run::{Options, Summary};
use crate::store::{self, RunDir};
use crate::{sched, ui};

pub async fn run(args: Run, cache: Option<PathBuf>, talk: Talk, stop: &Stop) -> anyhow::Result<Ending> {
    let Some(matrix) = load(&args.selection)? else { return Ok(Ending::Wrong) };
    let cache = Cache::open(cache)?;
    let jobs =
        args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, Into::into), usize::from);
    if args.dry_run {
        return plan::show(&matrix, &cache, Some(jobs), stop).await;
    }
    // What is missing altogether is said before anything is created.
    let targets = sched::plan::targets(&matrix, stop).await?;
    fs::create_dir_all(cache.root())?;
    let tell = ui::watcher(talk);
    stop_on_signals(stop, &tell)?;
    let text = fs::read_to_string(&args.selection.file)?;
    let mut dir = RunDir::create(args.output.as_deref(), &matrix, &text, jiff::Timestamp::now())?;
    let options = Options { jobs, refresh: args.refresh };
    let summary = sched::run::run(&matrix, targets, &mut dir, &cache, options, tell.clone(), stop).await?;
    // Bars are gone before the tables come.
    drop(tell);
    let results = store::load(dir.path())?;
    let tables = report::tables(&results);
    let report = |form| super::report::written(dir.path(), &results, &tables, form);
    fs::write(dir.path().join("tables.txt"), report(Form::Text)?)?;
    fs::write(dir.path().join("report.html"), report(Form::Html)?)?;
    if !summary.interrupted {
        print(&report(args.format)?)?;
    }
    if !talk.quiet {
        eprintln!("{}", closing(&summary, &shown(dir.path())));
    }
    Ok(ending(&summary, &tables))
}

fn closing(summary: &Summary, dir: &str) -> String {
    let Summary { built, fresh, failed, .. } = summary;
    let mut text = format!("{built} built, {fresh} from the cache");
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|c| c.0.as_str()).collect();
        text.push_str(&format!(", {} failed: {}", failed.len(), names.join(" ")));
    }
    let what = if summary.interrupted { "interrupted; what was measured is in" } else { "evidence in" };
    format!("{text}; {what} {dir} (`matrix report {dir}` prints its tables)")
}

fn ending(summary: &Summary, tables: &[Table]) -> Ending {
    let incomplete =
        |t: &Table| t.rows.iter().flatten().any(|f| matches!(f, Field::Failed { .. } | Field::Missing));
    if summary.interrupted {
        Ending::Interrupted
    } else if !summary.failed.is_empty() || tables.iter().any(incomplete) {
        Ending::Failed
    } else {
        Ending::Good
    }
}
