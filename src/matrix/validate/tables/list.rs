//! Tables with one row a cell.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::super::Check;
use super::super::axes::{Axes, text_of};
use super::{Scope, labels, metric};
use crate::matrix::hint::quoted;
use crate::matrix::raw::{At, RawTable};
use crate::model::{Cell, Layout, ListColumn, Piece, Template};

pub(super) fn list(
    raw: &RawTable,
    span: &Range<usize>,
    cells: &[&Cell],
    scope: &Scope,
    check: &mut Check,
) -> Option<Layout> {
    if raw.columns.as_ref().is_none_or(|at| at.items().is_empty()) {
        let help = "name metrics, `label` and differences: columns = [\"vmlinux.text\", \"label\", \"difference:vmlinux.text\"]";
        check.missing(span, "columns", "this `[[table]]` has no `columns`", help);
    }
    let columns = raw.columns.as_ref().map(At::items).unwrap_or_default();
    let columns = columns.iter().map(|at| column(at, scope, check)).collect();
    let row = match &raw.row {
        Some(at) => labels("row", at, scope, check),
        None => Some(all_axes(scope.axes)),
    };
    let baseline = baseline(raw, cells, scope, check);
    let row = row?;
    let place = raw.row.as_ref().map_or(span, |at| &at.span);
    rows_differ(&row, place, cells, scope.axes, check);
    Some(Layout::List {
        columns,
        row,
        baseline,
        mark_baseline: raw.mark_baseline.as_ref().is_some_and(|at| at.value),
    })
}

fn column(at: &At<String>, scope: &Scope, check: &mut Check) -> ListColumn {
    let sum = |text: &str, check: &mut Check| -> Vec<String> {
        let parts: Vec<String> = text.split('+').map(|part| part.trim().to_owned()).collect();
        parts.iter().for_each(|part| metric(part, &at.span, scope, check));
        parts
    };
    match at.split_once(':') {
        None if at.as_str() == "label" => ListColumn::Label,
        Some(("difference", metrics)) => ListColumn::Difference(sum(metrics, check)),
        Some(("ratio", metrics)) => ListColumn::Ratio(sum(metrics, check)),
        _ => {
            metric(at, &at.span, scope, check);
            ListColumn::Metric(at.value.clone())
        }
    }
}

/// The label of rows where the file gives none: the values of all axes.
fn all_axes(axes: &Axes) -> Template {
    let axis = |name: &str| [Piece::Text(" ".to_owned()), Piece::Axis(name.to_owned())];
    Template(axes.names().flat_map(axis).skip(1).collect())
}

fn shown<'a>(piece: &'a Piece, axes: &'a Axes, cell: &'a Cell) -> Cow<'a, str> {
    match piece {
        Piece::Text(text) => text.into(),
        Piece::Axis(name) => match (axes.find(name), cell.coords.get(name)) {
            (Some(axis), Some(value)) => axes.list[axis].label(value).into(),
            _ => name.into(),
        },
        number => number.to_string().into(),
    }
}

/// A fault where two cells have one label: nobody could tell the rows apart.
fn rows_differ(row: &Template, span: &Range<usize>, cells: &[&Cell], axes: &Axes, check: &mut Check) {
    let label = |cell: &Cell| row.0.iter().map(|p| shown(p, axes, cell)).collect::<String>();
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
