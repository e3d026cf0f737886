//! `matrix compare`

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::{Ending, local, print, store_file};
use crate::cli::Compare;
use crate::compare::{self, Comparison, Options, Verdict};
use crate::history::History;
use crate::matrix::{Only, select};
use crate::report::{self, Format};
use crate::sched;
use crate::store::Run;

pub fn compare(args: &Compare, store: Option<PathBuf>) -> anyhow::Result<Ending> {
    let (base_label, base) = chosen(&args.base, store.clone(), &args.only)?;
    let (new_label, new) = chosen(&args.new, store, &args.only)?;
    let metrics = if args.tables { shown(&new_label, &new)? } else { args.metric.clone() };
    let options = Options { test: args.test, threshold: args.threshold, metrics };
    let comparison = compare::compare(&base.results, &new.results, &options);
    refuse_nothing(&comparison, &base, &args.metric)?;
    let warnings = compare::confounders(&base, &new);
    let text = if args.format == Format::Json {
        let json = compare::json(&comparison, [&base_label, &new_label], [&base, &new], &warnings);
        format!("{json:#}\n")
    } else {
        let mut tables =
            vec![compare::heading(about(&base_label, &base), about(&new_label, &new), &warnings)];
        tables.extend(compare::metric_tables(&comparison, args.tables || !args.metric.is_empty()));
        tables.push(compare::summary(&comparison));
        report::render(&tables, args.format)
    };
    print(&text)?;
    Ok(ending(&comparison))
}

/// Metrics of a run's tables.
fn shown(label: &str, run: &Run) -> anyhow::Result<Vec<String>> {
    let tables = &run.results.matrix.tables;
    ensure!(!tables.is_empty(), "{label} has no tables, which the history does not keep: name its directory");
    Ok(tables.iter().flat_map(|t| t.layout.metrics()).map(str::to_owned).collect())
}

fn ending(comparison: &Comparison) -> Ending {
    if comparison.count(Verdict::Regression) > 0 {
        Ending::Regressed
    } else if comparison.count(Verdict::Lost) > 0 {
        Ending::Failed
    } else {
        Ending::Good
    }
}

/// The run that is meant, with its name, and of its cells those that are wanted.
fn chosen(text: &str, store: Option<PathBuf>, only: &[Only]) -> anyhow::Result<(String, Run)> {
    let (label, mut run) = find(text, store)?;
    own_part(&mut run)?;
    select(&mut run.results.matrix, only).with_context(|| label.clone())?;
    Ok((label, run))
}

/// Leaves a run's matrix the cells that the run was to measure: of a shard,
/// the others are other shards' business.
pub fn own_part(run: &mut Run) -> anyhow::Result<()> {
    if let Some(shard) = run.info.as_ref().and_then(|info| info.shard) {
        run.results.matrix.cells = sched::plan::shard(&run.results.matrix, shard)?;
    }
    Ok(())
}

fn find(text: &str, store: Option<PathBuf>) -> anyhow::Result<(String, Run)> {
    let dir = Path::new(text);
    if dir.is_dir() {
        return Ok((text.to_owned(), Run::read(dir)?));
    }
    let file = store_file(store)?;
    let Some(history) = History::existing(&file)? else {
        bail!(
            "no run `{text}`: not a run directory, and there is no history in {} (`matrix history add RUN` \
             begins one)",
            file.display()
        );
    };
    let id = history.find(text)?;
    Ok((format!("run {id}"), history.load(id)?))
}

/// A comparison of nothing must not look like a good one.
fn refuse_nothing(comparison: &Comparison, base: &Run, wanted: &[String]) -> anyhow::Result<()> {
    let cells = base.results.matrix.cells.len();
    ensure!(comparison.only_base.len() < cells, "the runs have no cell in common");
    for name in wanted {
        if !comparison.metrics.iter().any(|m| m.name == *name) {
            let mut there: Vec<&str> = base.results.samples.iter().map(|s| s.metric.as_str()).collect();
            there.sort_unstable();
            there.dedup();
            bail!("no metric `{name}` in both; the base has {}", there.join(", "));
        }
    }
    ensure!(!comparison.metrics.is_empty(), "the runs have no metric in common");
    Ok(())
}

/// Name of the run, matrix, begin and source.
fn about(label: &str, run: &Run) -> [String; 4] {
    let began = run.info.as_ref().map_or_else(|| "unknown".to_owned(), |info| local(info.began));
    [label.to_owned(), run.results.matrix.name.clone(), began, run.source()]
}
