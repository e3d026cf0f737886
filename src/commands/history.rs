//! `matrix history`

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use indexmap::{IndexMap, IndexSet};

use super::{Ending, local, print, shown, store_file};
use crate::cli::{self, HistoryChange, Talk};
use crate::compare::{self, Change, Observations, Observed, Side, Untested, Verdict, judged};
use crate::history::{Added, Entry, History};
use crate::matrix::select;
use crate::model::{Cell, CellId, Statistic};
use crate::report::{self, Column, Field, Measured, Table, html};
use crate::store::{Run, short};

/// Widest revision in a table.
const REVISION: usize = 20;

pub fn history(args: &cli::History, store: Option<PathBuf>, talk: Talk) -> anyhow::Result<Ending> {
    let file = store_file(store)?;
    if let Some(change) = &args.change {
        let said = apply(change, &file)?;
        if !talk.quiet {
            said.iter().for_each(|line| eprintln!("{line}"));
        }
        return Ok(Ending::Good);
    }
    let Some(history) = History::existing(&file)? else {
        bail!(
            "no history in {}: `matrix history add RUN` or `matrix run --record` begins one",
            file.display()
        );
    };
    let (tables, ending) = match &args.metric {
        None => (vec![list(&history, args.limit)?], Ending::Good),
        Some(metric) => over_time(&history, metric, args)?,
    };
    if let (Some(file), Some(metric)) = (&args.html, &args.metric) {
        let page = html::Page { title: metric, tables: &tables, about: &[], along_rows: true };
        fs_err::write(file, html::render(&page))?;
    }
    print(&report::render(&tables, args.format))?;
    Ok(ending)
}

fn apply(change: &HistoryChange, file: &Path) -> anyhow::Result<Vec<String>> {
    let existing = || History::existing(file)?.with_context(|| format!("no history in {}", file.display()));
    match change {
        HistoryChange::Add { runs } => {
            let mut history = History::open(file)?;
            runs.iter().map(|dir| add(&mut history, dir)).collect()
        }
        HistoryChange::Baseline { name, run } => {
            let mut history = existing()?;
            let id = history.find(run)?;
            history.set_baseline(name, id)?;
            Ok(vec![format!("baseline {name}: run {id}")])
        }
        HistoryChange::Remove { runs } => {
            let mut history = existing()?;
            let remove = |id: &i64| history.remove(*id).map(|()| format!("run {id} removed"));
            runs.iter().map(remove).collect()
        }
    }
}

/// Adds a run directory, and says what became of it.
pub fn add(history: &mut History, dir: &Path) -> anyhow::Result<String> {
    let (id, added) = history.add(&Run::read(dir)?).with_context(|| shown(dir))?;
    Ok(match added {
        Added::New => format!("{}: run {id} of the history", shown(dir)),
        Added::Updated => format!("{}: run {id} of the history, brought up to date", shown(dir)),
        Added::Known => format!("{}: already in the history as run {id}, nothing changed", shown(dir)),
        Added::Kept => format!("{}: in the history as run {id} with more in it, nothing changed", shown(dir)),
    })
}

fn columns(titles: &[(&str, bool)]) -> Vec<Column> {
    titles
        .iter()
        .map(|(title, label)| Column { title: (*title).to_owned(), label: *label, beside: false })
        .collect()
}

fn newest<T>(mut all: Vec<T>, limit: usize) -> Vec<T> {
    all.drain(..all.len().saturating_sub(limit));
    all
}

// --- the runs ---

fn list(history: &History, limit: usize) -> anyhow::Result<Table> {
    let all = history.entries()?;
    let (total, entries) = (all.len(), newest(all, limit));
    let row = |e: &Entry| {
        let cells =
            if e.failed > 0 { format!("{} ({} failed)", e.cells, e.failed) } else { e.cells.to_string() };
        let source = match &e.sources[..] {
            [one] => short(one),
            several => format!("{} sources", several.len()),
        };
        let texts = [e.id.to_string(), local(e.began), e.name.clone(), cells, source, e.baselines.join(" ")];
        texts.map(Field::Text).to_vec()
    };
    let titles = ["run", "began", "matrix", "cells", "source", "baseline"].map(|t| (t, true));
    let left = total - entries.len();
    let more = || format!("{left} older runs: --limit {total} shows them");
    Ok(Table {
        title: "runs in the history, oldest first".to_owned(),
        block: None,
        header: columns(&titles),
        rows: entries.iter().map(row).collect(),
        lines: Vec::new(),
        footnotes: if left > 0 { vec![more()] } else { Vec::new() },
    })
}

// --- a metric over time ---

/// A cell's value in one run.
struct Point<'a> {
    id: i64,
    run: &'a Run,
    side: Side,
    /// Against the newest run before that has a value.
    change: Option<Result<Change, Untested>>,
}

/// A cell of a matrix in all runs.
struct Line<'a> {
    matrix: String,
    metric: &'a str,
    cell: CellId,
    points: Vec<Point<'a>>,
}

impl Point<'_> {
    /// What became of the value since the run before.
    fn verdict(&self, threshold: f64) -> Option<Verdict> {
        match (&self.side, self.change.as_ref()?) {
            (Side::Values(values), Ok(change)) => Some(judged(change, values.better, threshold)),
            _ => Some(Verdict::Untested),
        }
    }
}

/// What is wrong with the newest run of any cell.
fn newest_is(lines: &[Line], threshold: f64) -> Ending {
    let newest = || lines.iter().filter_map(|line| Some((line, line.points.last()?)));
    let had = |line: &Line| line.points.iter().any(|p| matches!(p.side, Side::Values(_)));
    if newest().any(|(_, point)| point.verdict(threshold) == Some(Verdict::Regression)) {
        Ending::Regressed
    } else if newest().any(|(line, point)| !matches!(point.side, Side::Values(_)) && had(line)) {
        Ending::Failed
    } else {
        Ending::Good
    }
}

fn over_time(history: &History, metric: &str, args: &cli::History) -> anyhow::Result<(Vec<Table>, Ending)> {
    let mut runs = Vec::new();
    for entry in newest(history.entries()?, args.limit) {
        // One that this version does not understand must not hide the others.
        let mut run = match history.load(entry.id) {
            Ok(run) => run,
            Err(error) => {
                let mut text = format!("{error:#}");
                report::scrub(&mut text);
                eprintln!("matrix: warning: left out: {text}");
                continue;
            }
        };
        super::compare::own_part(&mut run)?;
        // A run whose matrix has no such axis or value has none of the cells.
        if select(&mut run.results.matrix, &args.only).is_ok() {
            runs.push((entry.id, run));
        }
    }
    let mut lines = lines(&runs, metric, &args.cell);
    ensure!(
        lines.iter().flat_map(|l| &l.points).any(|p| matches!(p.side, Side::Values(_))),
        "no value of `{metric}` in the newest {} runs of the history (--limit), in the cells asked for",
        args.limit
    );
    for line in &mut lines {
        follow(&mut line.points, args);
    }
    let points = lines.iter_mut().flat_map(|l| &mut l.points);
    let tests = compare::correct(points.filter_map(|p| p.change.as_mut()?.as_mut().ok()));
    let ending = if args.check { newest_is(&lines, args.threshold) } else { Ending::Good };
    Ok((lines.iter().map(|line| table(line, tests, args.threshold)).collect(), ending))
}

/// The cells of each matrix, in the order of the newest run.
fn lines<'a>(runs: &'a [(i64, Run)], metric: &'a str, wanted: &[String]) -> Vec<Line<'a>> {
    let observed: Vec<Observed> = runs.iter().map(|(_, run)| Observed::of(&run.results)).collect();
    let mut cells: IndexMap<&str, IndexSet<&CellId>> = IndexMap::new();
    for (_, run) in runs.iter().rev() {
        let matrix = &run.results.matrix;
        let of_interest = |c: &&Cell| wanted.is_empty() || wanted.contains(&c.id.0);
        cells.entry(&matrix.name).or_default().extend(matrix.cells.iter().filter(of_interest).map(|c| &c.id));
    }
    let line = |name: &str, cell: &CellId| {
        let of_name = runs.iter().zip(&observed).filter(|((_, run), _)| run.results.matrix.name == name);
        let points = of_name.filter_map(|((id, run), observed)| {
            Some(Point { id: *id, run, side: observed.side(cell, metric)?, change: None })
        });
        Line { matrix: name.to_owned(), metric, cell: cell.clone(), points: points.collect() }
    };
    let all = cells.iter().flat_map(|(name, cells)| cells.iter().map(move |cell| (*name, *cell)));
    all.map(|(name, cell)| line(name, cell)).filter(|l| !l.points.is_empty()).collect()
}

/// Holds each value against the one before it.
fn follow(points: &mut [Point], args: &cli::History) {
    let mut before: Option<usize> = None;
    for at in 0..points.len() {
        if !matches!(points[at].side, Side::Values(_)) {
            continue;
        }
        if let Some(before) = before {
            points[at].change = Some(compare::difference(&points[before].side, &points[at].side, args.test));
        }
        before = Some(at);
    }
}

fn table(line: &Line, tests: usize, threshold: f64) -> Table {
    let mut notes = Vec::new();
    let rows = line.points.iter().map(|p| row(p, line, threshold, &mut notes)).collect();
    let used: IndexSet<&str> = changes(line).map(|c| c.test.label()).collect();
    if !used.is_empty() {
        let used = used.into_iter().collect::<Vec<_>>().join(", ");
        notes.push(format!(
            "change: to the value before; {used}; {tests} p-values in all tables, corrected by Holm's method; \
             ~: not significant at 5%"
        ));
    }
    if line.points.iter().any(|p| p.verdict(threshold) == Some(Verdict::Small)) {
        notes.push(format!("small: significant, but within the threshold of {threshold}%"));
    }
    notes.push("n: boots, the mean of each is one observation; +-: 95% interval of the mean".to_owned());
    let titles = ["run", "revision"].map(|t| (t, true));
    let numbers = ["n", "mean", "+-", "change", "verdict"].map(|t| (t, false));
    let newest = line.points.iter().rev().find_map(|p| values(&p.side));
    let unit = newest.map_or(String::new(), |v| format!(" ({}, {})", v.unit, v.kind.label()));
    Table {
        title: format!("{}{unit}", line.metric),
        block: Some(format!("{}: {}", line.matrix, line.cell)),
        header: columns(&[&titles[..], &numbers[..]].concat()),
        rows,
        lines: Vec::new(),
        footnotes: notes,
    }
}

fn changes<'l>(line: &'l Line) -> impl Iterator<Item = &'l Change> {
    line.points.iter().filter_map(|p| p.change.as_ref()?.as_ref().ok())
}

fn values(side: &Side) -> Option<&Observations> {
    match side {
        Side::Values(values) => Some(values),
        _ => None,
    }
}

fn row(point: &Point, line: &Line, threshold: f64, notes: &mut Vec<String>) -> Vec<Field> {
    let text = |text: &str| Field::Text(text.to_owned());
    let source = point.run.sources.get(&line.cell).map_or("", String::as_str);
    let mut fields = vec![text(&point.id.to_string()), text(&revision(source))];
    let values = match &point.side {
        Side::Values(values) => values,
        Side::Failed(what) => {
            let failed = Field::Failed { what: what.clone(), cell: line.cell.clone(), story: what.clone() };
            fields.extend([text("0"), failed, text(""), Field::NotApplicable, text("")]);
            return fields;
        }
        Side::Missing => {
            fields.extend([text("0"), Field::Missing, text(""), Field::NotApplicable, text("")]);
            return fields;
        }
    };
    let decimals = compare::decimals(values.estimate.mean, values.unit == "bytes");
    let half =
        values.interval(Statistic::Mean).map(|(low, high)| compare::number((high - low) / 2.0, decimals));
    fields.push(text(&values.boots.len().to_string()));
    fields.push(Field::Measured(Box::new(measured(values, line, decimals))));
    fields.push(half.map_or(Field::NotApplicable, Field::Text));
    let change = match &point.change {
        None => text(""),
        Some(Ok(change)) => compare::change(change).map_or(Field::NotApplicable, Field::Text),
        Some(Err(reason)) => {
            notes.push(format!("run {}: untested: {reason}", point.id));
            Field::NotApplicable
        }
    };
    fields.extend([change, text(point.verdict(threshold).map_or("", Verdict::label))]);
    fields
}

fn measured(values: &Observations, line: &Line, decimals: u8) -> Measured {
    Measured {
        value: values.estimate.mean,
        text: compare::number(values.estimate.mean, decimals),
        unit: values.unit.clone(),
        better: values.better,
        metric: line.metric.to_owned(),
        cell: line.cell.clone(),
        kind: values.kind,
        statistic: Statistic::Mean,
        boots: values.boots.iter().filter(|b| b.0.is_some()).count(),
        estimate: values.estimate.clone(),
        interval: values.interval(Statistic::Mean),
        observed: Ok(values.clone()),
    }
}

/// What follows the sort of a source, cut to what a column has room for.
fn revision(source: &str) -> String {
    let source = short(source);
    let text = source.split_once(' ').map_or(source.as_str(), |(_, rest)| rest);
    match text.char_indices().nth(REVISION) {
        Some((cut, _)) => format!("{}..", &text[..cut]),
        None => text.to_owned(),
    }
}
