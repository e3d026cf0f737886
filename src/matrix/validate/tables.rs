//! `[[table]]`: what is printed at the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::Check;
use super::axes::{Axes, text_of};
use super::benchmarks::Benchmarks;
use crate::matrix::hint::{quoted, suggest};
use crate::matrix::raw::{At, OneOrMany, RawLayout, RawTable};
use crate::model::{Cell, Derived, Layout, ListColumn, Statistic, TableSpec};

const SIZES: [&str; 6] =
    ["vmlinux.file", "vmlinux.stripped", "vmlinux.text", "vmlinux.data", "vmlinux.bss", "image.file"];
/// Stages of a boot.
const STAGES: [&str; 5] = ["boot.kernel", "boot.init", "boot.online", "boot.result", "boot.uptime"];
/// Size of a section: its name follows.
const SECTION: &str = "vmlinux.section.";

/// What tables can be about.
struct Scope<'a> {
    axes: &'a Axes,
    cells: &'a [Cell],
    benchmarks: &'a Benchmarks,
    metrics: Vec<String>,
    title: &'a str,
}

pub(super) fn tables(
    raw: Vec<At<RawTable>>,
    name: &str,
    axes: &Axes,
    cells: &[Cell],
    benchmarks: &Benchmarks,
    check: &mut Check,
) -> Vec<TableSpec> {
    let mut metrics: Vec<String> = SIZES.map(str::to_owned).to_vec();
    metrics.push(format!("{SECTION}NAME"));
    metrics.extend(STAGES.map(str::to_owned));
    metrics.extend(benchmarks.metrics());
    let scope = Scope { axes, cells, benchmarks, metrics, title: name };
    raw.into_iter().filter_map(|raw| table(raw, &scope, check)).collect()
}

fn table(At { value: raw, span }: At<RawTable>, scope: &Scope, check: &mut Check) -> Option<TableSpec> {
    let filter = filter(&raw, scope, check);
    let cells: Vec<&Cell> = scope.cells.iter().filter(|cell| takes_part(cell, &filter)).collect();
    let given = raw.title.clone();
    let title = check.opt_line("title", given).or(raw.metric.as_ref().map(|at| at.value.clone()));
    let decimals = |check: &mut Check, key: &str, at: &Option<At<i64>>| {
        at.as_ref().and_then(|at| check.number(key, at, 0..=12)).and_then(|n| u8::try_from(n).ok())
    };
    let percent_decimals = decimals(check, "percent_decimals", &raw.percent_decimals).unwrap_or(2);
    let decimals = decimals(check, "decimals", &raw.decimals);
    let layout = match raw.layout.as_ref().map_or(RawLayout::Pivot, |at| at.value) {
        _ if check.gone.has(&span, "layout") => None,
        RawLayout::Pivot => pivot(&raw, &span, scope, check),
        RawLayout::List => list(&raw, &span, &cells, scope, check),
    };
    Some(TableSpec {
        title: title.unwrap_or_else(|| scope.title.to_owned()),
        filter,
        statistic: raw.statistic.map_or(Statistic::Mean, |at| at.value),
        decimals,
        percent_decimals,
        layout: layout?,
    })
}

fn takes_part(cell: &Cell, filter: &BTreeMap<String, Vec<String>>) -> bool {
    filter.iter().all(|(axis, values)| cell.coords.get(axis).is_some_and(|v| values.contains(v)))
}

fn filter(raw: &RawTable, scope: &Scope, check: &mut Check) -> BTreeMap<String, Vec<String>> {
    let Some(at) = &raw.filter else {
        return BTreeMap::new();
    };
    let mut filter = BTreeMap::new();
    let before = check.faults.len();
    for (key, values) in &at.value {
        let Some(axis) = scope.axes.expect("`where`", key, check) else {
            continue;
        };
        let meant = &scope.axes.list[axis];
        let items = values.items();
        let found = items.iter().filter_map(|v| scope.axes.expect_value("`where`", axis, v, check));
        filter.insert(meant.name.clone(), found.map(|i| meant.values[i].clone()).collect());
    }
    let sound = check.faults.len() == before && scope.axes.whole() && !check.gone.any(&at.span);
    if sound && !scope.cells.iter().any(|cell| takes_part(cell, &filter)) {
        let help = "widen `where`: a cell must have one of the values on each axis named";
        check.fault(&at.span, "no cell takes part in this table", help);
    }
    filter
}

/// A fault where `name` is no metric.
fn metric(name: &str, span: &Range<usize>, scope: &Scope, check: &mut Check) {
    let section = name
        .strip_prefix(SECTION)
        .is_some_and(|s| !s.is_empty() && s != "NAME" && !s.contains(char::is_whitespace));
    let known = scope.metrics.iter().any(|m| m == name && !m.ends_with(".NAME"));
    if !known && !section && !scope.benchmarks.may_have(name) {
        let message = format!("unknown metric `{}`", name.escape_debug());
        check.fault(span, message, suggest(name, scope.metrics.iter().map(String::as_str)));
    }
}

/// Notes keys that the other layout has.
fn foreign(keys: &[(&str, Option<&Range<usize>>)], other: &str, check: &mut Check) {
    for (key, span) in keys {
        if let Some(span) = span {
            let message = format!("`{key}` belongs to layout = \"{other}\"");
            check.fault(span, message, "remove it, or change the table's layout");
        }
    }
}

fn pivot(raw: &RawTable, span: &Range<usize>, scope: &Scope, check: &mut Check) -> Option<Layout> {
    let marked = raw.mark_baseline.as_ref().map(|at| &at.span);
    let others = [
        ("row", raw.row.as_ref().map(|at| &at.span)),
        ("baseline", raw.baseline.as_ref().map(|at| &at.span)),
        ("mark_baseline", marked),
    ];
    foreign(&others, "list", check);
    let needed = [
        ("metric", raw.metric.is_some(), "metric = \"vmlinux.file\""),
        ("columns", raw.columns.is_some(), "columns = \"NR_CPUS\""),
        ("rows", raw.rows.is_some(), "rows = \"OFFSTACK\""),
    ];
    for (key, given, example) in needed {
        if !given {
            check.missing(
                span,
                key,
                &format!("this `[[table]]` has no `{key}`"),
                format!("add {example}, or layout = \"list\" for one row a cell"),
            );
        }
    }
    if let Some(at) = &raw.metric {
        metric(at, &at.span, scope, check);
    }
    let columns = raw.columns.as_ref().and_then(|at| one_axis(at, span, scope, check));
    let rows = raw.rows.as_ref().and_then(|at| scope.axes.expect("`rows`", at, check));
    if let (Some(at), true) = (&raw.rows, rows.is_some() && rows == columns) {
        let others =
            scope.axes.names().enumerate().filter(|(i, _)| Some(*i) != columns).map(|(_, name)| name);
        check.fault(
            &at.span,
            "`rows` and `columns` are the same axis",
            suggest("", others.collect::<Vec<_>>()),
        );
    }
    let derived = derived(raw, span, rows, scope, check);
    let name = |axis: usize| scope.axes.list[axis].name.clone();
    Some(Layout::Pivot {
        metric: raw.metric.as_ref()?.value.clone(),
        columns: name(columns?),
        rows: name(rows?),
        derived,
    })
}

fn one_axis(
    at: &At<OneOrMany<String>>,
    table: &Range<usize>,
    scope: &Scope,
    check: &mut Check,
) -> Option<usize> {
    if let [only] = at.items().as_slice() {
        return scope.axes.expect("`columns`", only, check);
    }
    if !check.gone.has(table, "columns") {
        let help = "a pivot has columns = \"NR_CPUS\"; for one row a cell with several columns add layout = \"list\"";
        check.fault(&at.span, "`columns` of a pivot is one axis", help);
    }
    None
}

/// The derived rows; faults where there is nothing to derive them from.
fn derived(
    raw: &RawTable,
    span: &Range<usize>,
    rows: Option<usize>,
    scope: &Scope,
    check: &mut Check,
) -> Vec<Derived> {
    let Some(at) = &raw.derived else {
        return Vec::new();
    };
    if at.is_empty() && !check.gone.has(span, "derived") {
        check.fault(
            &at.span,
            "`derived` is empty",
            "remove it, or name rows to compute: derived = [\"difference\", \"is_smaller\"]",
        );
    }
    let mut seen = Vec::new();
    for item in &at.value {
        if seen.contains(&item.value) {
            check.fault(&item.span, "this derived row is there already", "remove it");
        }
        seen.push(item.value);
    }
    let compares = seen.iter().any(|d| *d != Derived::Spread);
    if let (Some(rows), true) = (rows, compares) {
        let axis = &scope.axes.list[rows];
        if axis.values.len() == 1 && scope.axes.whole() {
            let message = format!("`derived` compares rows, but axis `{}` has one value", axis.name);
            let several = scope.axes.list.iter().filter(|a| a.values.len() > 1).map(|a| a.name.as_str());
            check.fault(
                &at.span,
                message,
                format!("remove it, or choose rows with several values: {}", quoted(several)),
            );
        }
    }
    seen
}

fn list(
    raw: &RawTable,
    span: &Range<usize>,
    cells: &[&Cell],
    scope: &Scope,
    check: &mut Check,
) -> Option<Layout> {
    let metric = raw.metric.as_ref().map(|at| &at.span);
    let others = [
        ("metric", metric),
        ("rows", raw.rows.as_ref().map(|at| &at.span)),
        ("derived", raw.derived.as_ref().map(|at| &at.span)),
    ];
    foreign(&others, "pivot", check);
    if raw.columns.as_ref().is_none_or(|at| at.items().is_empty()) {
        let help = "name metrics, `label` and differences: columns = [\"vmlinux.text\", \"label\", \"difference:vmlinux.text\"]";
        check.missing(span, "columns", "this `[[table]]` has no `columns`", help);
    }
    let columns = raw.columns.as_ref().map(At::items).unwrap_or_default();
    let columns = columns.iter().map(|at| column(at, scope, check)).collect();
    let row = match &raw.row {
        Some(at) => template(at, scope, check),
        None => Some(all_axes(scope.axes)),
    };
    let baseline = baseline(raw, cells, scope, check);
    let row = row?;
    let place = raw.row.as_ref().map_or(span, |at| &at.span);
    rows_differ(&row, place, cells, scope.axes, check);
    Some(Layout::List {
        columns,
        row: row.iter().map(|piece| piece.written(scope.axes)).collect(),
        baseline,
        mark_baseline: raw.mark_baseline.as_ref().is_some_and(|at| at.value),
    })
}

fn column(at: &At<String>, scope: &Scope, check: &mut Check) -> ListColumn {
    if at.as_str() == "label" {
        return ListColumn::Label;
    }
    let Some(sum) = at.strip_prefix("difference:") else {
        metric(at, &at.span, scope, check);
        return ListColumn::Metric(at.value.clone());
    };
    let parts: Vec<String> = sum.split('+').map(|part| part.trim().to_owned()).collect();
    for part in &parts {
        metric(part, &at.span, scope, check);
    }
    ListColumn::Difference(parts)
}

/// A part of a row's label.
enum Piece {
    Text(String),
    /// The label of the cell's value on the axis of this index.
    Axis(usize),
}

impl Piece {
    /// As the model writes it, with the axis under its own name.
    fn written(&self, axes: &Axes) -> String {
        match self {
            Piece::Text(text) => text.clone(),
            Piece::Axis(axis) => format!("{{{}}}", axes.list[*axis].name),
        }
    }

    fn shown<'a>(&'a self, axes: &'a Axes, cell: &'a Cell) -> &'a str {
        match self {
            Piece::Text(text) => text,
            Piece::Axis(axis) => axes.list[*axis].label(&cell.coords[*axis]),
        }
    }
}

/// A row's label taken apart; `None` where it is faulty.
fn template(at: &At<String>, scope: &Scope, check: &mut Check) -> Option<Vec<Piece>> {
    let mut whole = check.line("row", at);
    let mut pieces = Vec::new();
    let mut rest = at.as_str();
    while let Some(start) = rest.find(['{', '}']) {
        let inside = rest[start..].strip_prefix('{').and_then(|r| r.split_once('}'));
        let Some((axis, after)) = inside.filter(|(axis, _)| !axis.contains('{')) else {
            let help = "an axis stands in braces: row = \"{OFFSTACK}{NR_CPUS}\"";
            check.fault(&at.span, "`row` has a brace without its partner", help);
            return None;
        };
        let axis = At { value: axis.to_owned(), span: at.span.clone() };
        let axis = scope.axes.expect("`row`", &axis, check);
        whole &= axis.is_some();
        pieces.push(Piece::Text(rest[..start].to_owned()));
        pieces.extend(axis.map(Piece::Axis));
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    whole.then_some(pieces)
}

/// The label of rows where the file gives none: the values of all axes.
fn all_axes(axes: &Axes) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for axis in 0..axes.list.len() {
        if axis > 0 {
            pieces.push(Piece::Text(" ".to_owned()));
        }
        pieces.push(Piece::Axis(axis));
    }
    pieces
}

/// A fault where two cells have one label: nobody could tell the rows apart.
fn rows_differ(row: &[Piece], span: &Range<usize>, cells: &[&Cell], axes: &Axes, check: &mut Check) {
    let label = |cell: &Cell| row.iter().map(|p| p.shown(axes, cell)).collect::<String>();
    let mut seen: HashMap<String, &Cell> = HashMap::new();
    for cell in cells {
        let label = label(cell);
        if let Some(other) = seen.get(&label) {
            let message = format!("two rows would be labelled `{label}`: {} and {}", other.id, cell.id);
            check.fault(
                span,
                message,
                "name in `row` every axis that varies, or narrow the table with `where`",
            );
            return;
        }
        seen.insert(label, cell);
    }
}

/// Coordinates of the baseline; a fault where they do not mean one cell.
fn baseline(raw: &RawTable, cells: &[&Cell], scope: &Scope, check: &mut Check) -> BTreeMap<String, String> {
    let Some(at) = &raw.baseline else {
        return BTreeMap::new();
    };
    let before = check.faults.len();
    let mut baseline = BTreeMap::new();
    let mut axes = HashSet::new();
    for (key, value) in &at.value {
        let Some(axis) = scope.axes.expect("`baseline`", key, check) else {
            continue;
        };
        if !axes.insert(axis) {
            check.fault(
                &key.span,
                format!("`baseline` names the axis `{}` twice", scope.axes.list[axis].name),
                "keep one",
            );
        }
        scope.axes.expect_value("`baseline`", axis, value, check);
        baseline.insert(scope.axes.list[axis].name.clone(), text_of(value, check.text));
    }
    let fits = |cell: &&&Cell| baseline.iter().all(|(axis, value)| cell.coords.get(axis) == Some(value));
    let found: Vec<_> = cells.iter().filter(fits).collect();
    let sound =
        check.faults.len() == before && scope.axes.whole() && !check.gone.any(&at.span) && !at.is_empty();
    if sound && found.len() != 1 {
        let message = match found.len() {
            0 => "no cell of this table is the `baseline`".to_owned(),
            n => format!("`baseline` means {n} cells: {}", quoted(found.iter().map(|c| c.id.0.as_str()))),
        };
        check.fault(
            &at.span,
            message,
            "name as many axes as one cell needs: baseline = { NR_CPUS = 256, OFFSTACK = \"n\" }",
        );
    }
    baseline
}
