//! `[[table]]`: what is printed at the end.

mod frames;
mod grid;
mod list;

use std::collections::BTreeMap;
use std::ops::Range;

use super::Check;
use super::axes::Axes;
use super::benchmarks::Benchmarks;
use crate::matrix::hint::suggest;
use crate::matrix::raw::{At, RawLayout, RawTable};
use crate::model::{Cell, FRAMES_MAX, FRAMES_SUM, Layout, Piece, STACK_LEFT, Statistic, TableSpec, Template};

const SIZES: [&str; 9] = [
    "vmlinux.file",
    "vmlinux.stripped",
    "vmlinux.text",
    "vmlinux.data",
    "vmlinux.bss",
    "image.file",
    FRAMES_MAX,
    FRAMES_SUM,
    STACK_LEFT,
];
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
    let percent_decimals = digits("percent_decimals", raw.percent_decimals.as_ref(), 0, check).unwrap_or(2);
    let decimals = digits("decimals", raw.decimals.as_ref(), 0, check);
    let significant = digits("significant", raw.significant.as_ref(), 1, check);
    if let (Some(at), Some(_)) = (&raw.significant, decimals) {
        check.fault(&at.span, "`significant` beside `decimals`", "keep the one that numbers shall have");
    }
    let statistic = raw.statistic.as_ref().map_or(Statistic::Mean, |at| at.value);
    let interval = interval(&raw, statistic, check);
    let kind = raw.layout.as_ref().map_or(RawLayout::Pivot, |at| at.value);
    let layout = match kind {
        _ if check.gone.has(&span, "layout") => None,
        RawLayout::Pivot => grid::pivot(&raw, &span, scope, check),
        RawLayout::Compare => grid::compare(&raw, &span, scope, check),
        RawLayout::List => list::list(&raw, &span, &cells, scope, check),
        RawLayout::Lines => lines(&raw, &span, scope, check),
        RawLayout::Frames => frames::frames(&raw, scope, check),
    };
    if !check.gone.has(&span, "layout") {
        foreign(&raw, kind, check);
    }
    let block = raw.block.as_ref().and_then(|at| block(at, layout.as_ref(), scope, check));
    Some(TableSpec {
        title: title.unwrap_or_else(|| scope.title.to_owned()),
        filter,
        statistic,
        decimals,
        significant,
        percent_decimals,
        sign: raw.sign.map(|at| at.value).unwrap_or_default(),
        test: raw.test.map(|at| at.value).unwrap_or_default(),
        interval,
        block,
        layout: layout?,
    })
}

fn digits(key: &str, at: Option<&At<i64>>, least: u32, check: &mut Check) -> Option<u8> {
    at.and_then(|at| check.number(key, at, least..=12)).and_then(|n| u8::try_from(n).ok())
}

/// Whether intervals are shown; a fault where there are none of the statistic.
fn interval(raw: &RawTable, statistic: Statistic, check: &mut Check) -> bool {
    let Some(at) = raw.interval.as_ref().filter(|at| at.value) else { return false };
    if !matches!(statistic, Statistic::Mean | Statistic::Median) {
        let message = format!("`interval` beside statistic = \"{statistic}\"");
        check.fault(&at.span, message, "intervals are of means and medians: remove one of the two");
    }
    true
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

/// Notes keys that other layouts have.
fn foreign(raw: &RawTable, kind: RawLayout, check: &mut Check) {
    use RawLayout::{Compare, Frames, Lines, List, Pivot};
    let mut only = |layouts: &[RawLayout], key: &str, span: Option<Range<usize>>| {
        if let Some(span) = span.filter(|_| !layouts.contains(&kind)) {
            let names: Vec<String> = layouts.iter().map(|l| format!("{l:?}").to_lowercase()).collect();
            let message = format!("`{key}` belongs to layout = \"{}\"", names.join("\" or \""));
            check.fault(&span, message, "remove it, or change the table's layout");
        }
    };
    only(&[Pivot, Compare], "metric", place(&raw.metric));
    only(&[Pivot, Compare, List], "columns", place(&raw.columns));
    only(&[Pivot, Compare], "rows", place(&raw.rows));
    only(&[Compare], "row_labels", place(&raw.row_labels));
    only(&[Pivot, Compare], "derived", place(&raw.derived));
    only(&[Pivot, Compare, List], "sign", place(&raw.sign));
    only(&[Pivot, Compare, List], "test", place(&raw.test));
    only(&[Pivot, Compare, List], "interval", place(&raw.interval));
    only(&[Pivot, Compare, Lines, Frames], "block", place(&raw.block));
    only(&[List, Compare], "row", place(&raw.row));
    only(&[List], "baseline", place(&raw.baseline));
    only(&[List], "mark_baseline", place(&raw.mark_baseline));
    only(&[Lines], "lines", place(&raw.lines));
    only(&[Frames], "compare", place(&raw.compare));
    only(&[Frames], "top", place(&raw.top));
    let numbers = [Pivot, Compare, List, Lines];
    only(&numbers, "statistic", place(&raw.statistic));
    only(&numbers, "decimals", place(&raw.decimals));
    only(&numbers, "percent_decimals", place(&raw.percent_decimals));
    only(&numbers, "significant", place(&raw.significant));
}

fn place<T>(at: &Option<At<T>>) -> Option<Range<usize>> {
    at.as_ref().map(|at| at.span.clone())
}

fn lines(raw: &RawTable, span: &Range<usize>, scope: &Scope, check: &mut Check) -> Option<Layout> {
    let help = "give the block's text: lines = [\"Median: {p50:hackbench.time} s\"]";
    let Some(at) = &raw.lines else {
        check.missing(span, "lines", "this `[[table]]` has no `lines`", help);
        return None;
    };
    if at.is_empty() && !check.gone.has(span, "lines") {
        check.fault(&at.span, "`lines` is empty", help);
    }
    let lines: Vec<_> = at.iter().map(|line| template("lines", line, scope, check)).collect();
    let lines: Vec<Template> = lines.into_iter().collect::<Option<_>>()?;
    let numbers = lines.iter().flat_map(|line| &line.0).any(|piece| !piece.quantities().is_empty());
    if !numbers && !at.is_empty() && !check.gone.has(span, "lines") {
        check.fault(&at.span, "`lines` hold no number", help);
    }
    Some(Layout::Lines { lines })
}

/// A block's subtitle, which knows nothing of what is across or down.
fn block(at: &At<String>, layout: Option<&Layout>, scope: &Scope, check: &mut Check) -> Option<Template> {
    let template = labels("block", at, scope, check)?;
    let taken = layout.map_or(Vec::new(), grid::axes);
    if let Some(axis) = taken.iter().find(|axis| names(&template, axis)) {
        let message = format!("`block` names the axis `{axis}`, which varies within a block");
        let left = scope.axes.names().filter(|name| !taken.contains(name));
        check.fault(&at.span, message, suggest("", left.collect::<Vec<_>>()));
    }
    Some(template)
}

fn names(template: &Template, axis: &str) -> bool {
    template.0.iter().any(|piece| matches!(piece, Piece::Axis(name) if name == axis))
}

/// A template that holds labels alone.
fn labels(key: &str, at: &At<String>, scope: &Scope, check: &mut Check) -> Option<Template> {
    let template = template(key, at, scope, check)?;
    if let Some(number) = template.0.iter().find(|piece| !piece.quantities().is_empty()) {
        let message = format!("`{key}` cannot hold the number `{number}`");
        check.fault(&at.span, message, "numbers stand in `lines` of layout = \"lines\"");
    }
    Some(template)
}

/// A template with axes under their own names; `None` where it is faulty.
fn template(key: &str, at: &At<String>, scope: &Scope, check: &mut Check) -> Option<Template> {
    let mut whole = check.line(key, at);
    let mut template: Template = match at.parse() {
        Ok(template) => template,
        Err(fault) => {
            let help = match key {
                "lines" => "axes and numbers stand in braces: \"{NR_CPUS} CPUs: {p50:hackbench.time} s\"",
                _ => "an axis stands in braces: row = \"{OFFSTACK}{NR_CPUS}\"",
            };
            check.fault(&at.span, format!("`{key}` {fault}"), help);
            return None;
        }
    };
    for piece in &mut template.0 {
        if let Piece::Axis(name) = piece {
            let written = At { value: name.clone(), span: at.span.clone() };
            let axis = scope.axes.expect(&format!("`{key}`"), &written, check);
            whole &= axis.is_some();
            *name = axis.map_or_else(String::new, |axis| scope.axes.list[axis].name.clone());
        }
        for quantity in piece.quantities() {
            metric(&quantity.metric, &at.span, scope, check);
        }
    }
    whole.then_some(template)
}
