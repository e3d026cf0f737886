//! Tables with an axis across: pivots and comparisons.

use std::ops::Range;

use indexmap::IndexMap;

use super::super::Check;
use super::{Scope, labels, metric, names};
use crate::matrix::hint::{quoted, suggest};
use crate::matrix::raw::{At, OneOrMany, RawDerived, RawTable};
use crate::model::{Derived, Layout, Piece, Rows, Template};

/// The axes that vary within one block of a table.
pub(super) fn axes(layout: &Layout) -> Vec<&str> {
    match layout {
        Layout::Pivot { columns, rows, .. } => vec![columns, rows],
        Layout::Compare { columns, rows: Rows::Axis { axis, .. }, .. } => vec![columns, axis],
        Layout::Compare { columns, .. } => vec![columns],
        Layout::Frames { compare, .. } => compare.iter().map(String::as_str).collect(),
        Layout::List { .. } | Layout::Lines { .. } => Vec::new(),
    }
}

pub(super) fn pivot(raw: &RawTable, span: &Range<usize>, scope: &Scope, check: &mut Check) -> Option<Layout> {
    let or = "layout = \"list\" for one row a cell";
    need("metric", raw.metric.is_some(), "metric = \"vmlinux.file\"", or, span, check);
    need("columns", raw.columns.is_some(), "columns = \"NR_CPUS\"", or, span, check);
    need("rows", raw.rows.is_some(), "rows = \"OFFSTACK\"", or, span, check);
    if let Some(at) = &raw.metric {
        metric(at, &at.span, scope, check);
    }
    let (columns, rows) = crossing(raw, "a pivot", span, scope, check);
    let derived = derived(raw, span, rows, scope, check);
    let name = |axis: usize| scope.axes.list[axis].name.clone();
    Some(Layout::Pivot {
        metric: raw.metric.as_ref()?.value.clone(),
        columns: name(columns?),
        rows: name(rows?),
        derived,
    })
}

pub(super) fn compare(
    raw: &RawTable,
    span: &Range<usize>,
    scope: &Scope,
    check: &mut Check,
) -> Option<Layout> {
    let or = "a pivot's or a list's keys";
    need(
        "columns",
        raw.columns.is_some(),
        "columns = \"NR_CPUS\", whose first value is the base",
        or,
        span,
        check,
    );
    let rows = "rows = \"OFFSTACK\" and a metric, or rows = [\"vmlinux.text\", \"vmlinux.data\"]";
    need("rows", raw.rows.is_some(), rows, or, span, check);
    let geometric_mean = geometric_mean(raw, span, check);
    let (columns, rows) = if raw.metric.is_some() || check.gone.has(span, "metric") {
        rows_of_an_axis(raw, span, scope, check)
    } else {
        let columns = raw.columns.as_ref();
        let columns = columns.and_then(|at| one_axis("columns", at, "a comparison", span, scope, check));
        (columns, rows_of_metrics(raw, span, scope, check))
    };
    let axis = &scope.axes.list[columns?];
    if let (Some(at), 1, true) = (&raw.columns, axis.values.len(), scope.axes.whole()) {
        let message = format!("nothing to compare: axis `{}` has one value", axis.name);
        check.fault(&at.span, message, several(scope, "choose columns with several values"));
    }
    Some(Layout::Compare { columns: axis.name.clone(), rows: rows?, geometric_mean })
}

/// A fault where a key is not there that the layout needs.
fn need(key: &str, given: bool, example: &str, or: &str, span: &Range<usize>, check: &mut Check) {
    if !given {
        let message = format!("this `[[table]]` has no `{key}`");
        check.missing(span, key, &message, format!("add {example}, or {or}"));
    }
}

/// The axes across and down.
fn crossing(
    raw: &RawTable,
    of: &str,
    span: &Range<usize>,
    scope: &Scope,
    check: &mut Check,
) -> (Option<usize>, Option<usize>) {
    let columns = raw.columns.as_ref().and_then(|at| one_axis("columns", at, of, span, scope, check));
    let rows = raw.rows.as_ref().and_then(|at| one_axis("rows", at, of, span, scope, check));
    if let (Some(at), true) = (&raw.rows, rows.is_some() && rows == columns) {
        let others =
            scope.axes.names().enumerate().filter(|(i, _)| Some(*i) != columns).map(|(_, name)| name);
        check.fault(
            &at.span,
            "`rows` and `columns` are the same axis",
            suggest("", others.collect::<Vec<_>>()),
        );
    }
    (columns, rows)
}

fn one_axis(
    key: &str,
    at: &At<OneOrMany<String>>,
    of: &str,
    table: &Range<usize>,
    scope: &Scope,
    check: &mut Check,
) -> Option<usize> {
    if let [only] = at.items().as_slice() {
        return scope.axes.expect(&format!("`{key}`"), only, check);
    }
    if !check.gone.has(table, key) {
        let help = match (key, of) {
            ("columns", _) => {
                format!(
                    "{of} has columns = \"NR_CPUS\"; for one row a cell with several columns add layout = \"list\""
                )
            }
            (_, "a pivot") => {
                "a pivot has rows = \"OFFSTACK\"; for a row a metric add layout = \"compare\"".to_owned()
            }
            _ => "keep one axis with `metric`, or remove `metric` and name metrics alone".to_owned(),
        };
        check.fault(&at.span, format!("`{key}` of {of} is one axis"), help);
    }
    None
}

/// Several of the axes that have several values, for a help.
fn several(scope: &Scope, advice: &str) -> String {
    let several = scope.axes.list.iter().filter(|a| a.values.len() > 1).map(|a| a.name.as_str());
    format!("{advice}: {}", quoted(several))
}

/// The derived rows that are asked for, each once.
fn asked(raw: &RawTable, span: &Range<usize>, example: &str, check: &mut Check) -> Vec<At<RawDerived>> {
    let Some(at) = &raw.derived else {
        return Vec::new();
    };
    if at.is_empty() && !check.gone.has(span, "derived") {
        let help = format!("remove it, or name rows to compute: derived = {example}");
        check.fault(&at.span, "`derived` is empty", help);
    }
    for (n, item) in at.iter().enumerate() {
        if at[..n].contains(item) {
            check.fault(&item.span, "this derived row is there already", "remove it");
        }
    }
    at.value.clone()
}

/// The derived rows of a pivot; faults where there is nothing to derive them from.
fn derived(
    raw: &RawTable,
    span: &Range<usize>,
    rows: Option<usize>,
    scope: &Scope,
    check: &mut Check,
) -> Vec<Derived> {
    let mut derived = Vec::new();
    for item in asked(raw, span, "[\"difference\", \"is_smaller\"]", check) {
        match item.value {
            RawDerived::Difference => derived.push(Derived::Difference),
            RawDerived::Ratio => derived.push(Derived::Ratio),
            RawDerived::IsSmaller => derived.push(Derived::IsSmaller),
            RawDerived::Spread => derived.push(Derived::Spread),
            RawDerived::GeometricMean => elsewhere(&item, "geometric_mean", "compare", check),
        }
    }
    let compares = derived.iter().any(|d| *d != Derived::Spread);
    if let (Some(at), Some(rows), true) = (&raw.derived, rows, compares) {
        let axis = &scope.axes.list[rows];
        if axis.values.len() == 1 && scope.axes.whole() {
            let message = format!("`derived` compares rows, but axis `{}` has one value", axis.name);
            let help = several(scope, "remove it, or choose rows with several values");
            check.fault(&at.span, message, help);
        }
    }
    derived
}

fn geometric_mean(raw: &RawTable, span: &Range<usize>, check: &mut Check) -> bool {
    let asked = asked(raw, span, "[\"geometric_mean\"]", check);
    for item in &asked {
        match item.value {
            RawDerived::GeometricMean => {}
            RawDerived::Difference => elsewhere(item, "difference", "pivot", check),
            RawDerived::Ratio => elsewhere(item, "ratio", "pivot", check),
            RawDerived::IsSmaller => elsewhere(item, "is_smaller", "pivot", check),
            RawDerived::Spread => elsewhere(item, "spread", "pivot", check),
        }
    }
    !asked.is_empty()
}

fn elsewhere(item: &At<RawDerived>, name: &str, layout: &str, check: &mut Check) {
    let message = format!("`{name}` belongs to layout = \"{layout}\"");
    check.fault(&item.span, message, "remove it, or change the table's layout");
}

/// Rows of one metric: the axis across, and rows for the values of another.
fn rows_of_an_axis(
    raw: &RawTable,
    span: &Range<usize>,
    scope: &Scope,
    check: &mut Check,
) -> (Option<usize>, Option<Rows>) {
    if let Some(at) = &raw.metric {
        metric(at, &at.span, scope, check);
    }
    if let Some(at) = &raw.row_labels {
        check.fault(
            &at.span,
            "`row_labels` beside `metric`",
            "label the rows of an axis by row = \"{OFFSTACK}\" or [labels.OFFSTACK]",
        );
    }
    let (columns, axis) = crossing(raw, "a comparison", span, scope, check);
    let rows = axis.and_then(|axis| {
        let axis = scope.axes.list[axis].name.clone();
        let label = match &raw.row {
            Some(at) => row_label(at, &axis, columns, scope, check)?,
            None => Template(vec![Piece::Axis(axis.clone())]),
        };
        Some(Rows::Axis { axis, metric: raw.metric.as_ref()?.value.clone(), label })
    });
    (columns, rows)
}

/// A row's label, which must tell the rows apart and is one for all columns.
fn row_label(
    at: &At<String>,
    rows: &str,
    columns: Option<usize>,
    scope: &Scope,
    check: &mut Check,
) -> Option<Template> {
    let label = labels("row", at, scope, check)?;
    if !names(&label, rows) {
        let message = format!("`row` does not name `{rows}`: all rows would be labelled alike");
        check.fault(&at.span, message, format!("add {{{rows}}}: row = \"{{{rows}}}\""));
    }
    let across = columns.map(|axis| scope.axes.list[axis].name.as_str());
    if let Some(across) = across.filter(|axis| *axis != rows && names(&label, axis)) {
        let message = format!("`row` names the axis `{across}`, which is across");
        check.fault(&at.span, message, "a row is of all columns: remove it");
    }
    Some(label)
}

/// Rows that are metrics.
fn rows_of_metrics(raw: &RawTable, span: &Range<usize>, scope: &Scope, check: &mut Check) -> Option<Rows> {
    let at = raw.rows.as_ref()?;
    let items = at.items();
    if let [only] = items.as_slice() {
        if scope.axes.find(only).is_some() {
            let help =
                "add metric = \"vmlinux.file\", or name metrics: rows = [\"vmlinux.text\", \"vmlinux.data\"]";
            check.missing(span, "metric", "this `[[table]]` has no `metric`", help);
            return None;
        }
    }
    if items.is_empty() && !check.gone.has(span, "rows") {
        check.fault(&at.span, "`rows` is empty", "name metrics: rows = [\"vmlinux.text\", \"vmlinux.data\"]");
    }
    if let Some(at) = &raw.row {
        check.fault(
            &at.span,
            "`row` without `metric`",
            "label rows that are metrics by row_labels = [\"Copy\", \"Add\"]",
        );
    }
    let labels = row_labels(raw, span, items.len(), check);
    let mut rows = IndexMap::new();
    for (n, item) in items.iter().enumerate() {
        metric(item, &item.span, scope, check);
        let label = labels.get(n).map(|at| at.value.clone());
        if rows.insert(item.value.clone(), label).is_some() {
            check.fault(&item.span, "this row is there already", "remove it");
        }
    }
    Some(Rows::Metrics(rows))
}

/// Labels of so many rows; a fault where there are more or fewer.
fn row_labels<'a>(
    raw: &'a RawTable,
    span: &Range<usize>,
    rows: usize,
    check: &mut Check,
) -> &'a [At<String>] {
    let Some(at) = &raw.row_labels else { return &[] };
    let whole = !check.gone.has(span, "row_labels") && !check.gone.has(span, "rows");
    if at.len() != rows && whole {
        let message = format!("{} `row_labels` for {rows} rows", at.len());
        check.fault(&at.span, message, "give one label for each metric of `rows`, in their order");
    }
    for (n, label) in at.iter().enumerate() {
        if check.line("row_labels", label) && at[..n].contains(label) {
            check.fault(&label.span, "another row has this label", "tell the rows apart");
        }
    }
    at
}
