//! In which order kernels are built. Pure.

use std::cmp::Reverse;

use super::plan::{Plan, PlannedBuild, State};
use crate::model::{Cell, Layout, Matrix};

/// Indices of the plan's builds: those that are there already, as they cost
/// nothing; those of the first table's first row, so that something can be read
/// early; then the longest first, so that no long one is left over at the end
/// when there is nothing to run beside it. `length` is in any unit.
pub(super) fn of(matrix: &Matrix, plan: &Plan, length: impl Fn(usize) -> usize) -> Vec<usize> {
    let first_row = first_row(matrix);
    let class = |build: &PlannedBuild| match &build.state {
        State::Fresh(_) => 0,
        State::Dirty(_) if build.cells.iter().any(|cell| first_row.contains(&cell)) => 1,
        State::Dirty(_) => 2,
    };
    let mut order: Vec<usize> = (0..plan.builds.len()).collect();
    order.sort_by_cached_key(|&i| (class(&plan.builds[i]), Reverse(length(i))));
    order
}

/// The cells of the first row that the first table shows.
fn first_row(matrix: &Matrix) -> Vec<&Cell> {
    let Some(table) = matrix.tables.first() else { return Vec::new() };
    let across = match &table.layout {
        Layout::Pivot { columns, .. } | Layout::Compare { columns, .. } => Some(columns),
        Layout::Frames { compare, .. } => compare.as_ref(),
        Layout::List { .. } | Layout::Lines { .. } => None,
    };
    let shown = |cell: &&Cell| {
        table.filter.iter().all(|(axis, values)| {
            values.is_empty() || cell.coords.get(axis).is_none_or(|value| values.contains(value))
        })
    };
    let mut cells = matrix.cells.iter().filter(shown);
    let Some(first) = cells.next() else { return Vec::new() };
    let beside = |cell: &&Cell| {
        cell.coords.iter().all(|(axis, value)| Some(axis) == across || first.coords.get(axis) == Some(value))
    };
    std::iter::once(first).chain(cells.filter(beside)).collect()
}
