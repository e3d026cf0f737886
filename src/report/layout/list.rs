//! Lists: one row a cell, a column for each thing listed.

use std::collections::BTreeMap;

use indexmap::IndexSet;

use super::{View, direction, labels, short_name, sum, unit_shown, values};
use crate::model::{Cell, ListColumn, Template};
use crate::report::{Column, Field, Table};

/// A row of a list: a cell, its label and its value of each of the table's metrics.
struct ListCell<'a> {
    cell: &'a Cell,
    label: String,
    fields: Vec<(&'a str, Field)>,
}

impl ListCell<'_> {
    fn field(&self, metric: &str) -> &Field {
        let found = self.fields.iter().find(|(m, _)| *m == metric);
        found.map_or(&Field::Missing, |(_, field)| field)
    }

    fn all(&self, metrics: &[String]) -> Vec<&Field> {
        metrics.iter().map(|m| self.field(m)).collect()
    }

    /// `None` where one of the metrics has no number.
    fn sum(&self, metrics: &[String]) -> Option<f64> {
        metrics.iter().map(|m| self.field(m).value()).sum()
    }
}

impl<'a> View<'a> {
    fn list_cells(self, template: &Template, columns: &'a [ListColumn]) -> Vec<ListCell<'a>> {
        let metrics = metrics_of(columns);
        let cell = |cell| ListCell {
            cell,
            label: self.cell_label(template, cell),
            fields: metrics.iter().map(|m| (*m, self.field(cell, m))).collect(),
        };
        self.cells().map(cell).collect()
    }

    pub(super) fn list(
        self,
        columns: &'a [ListColumn],
        row: &Template,
        baseline: &BTreeMap<String, String>,
        mark_baseline: bool,
    ) -> Table {
        let cells = self.list_cells(row, columns);
        let is_baseline = |c: &ListCell| baseline.iter().all(|(a, v)| c.cell.coords.get(a) == Some(v));
        let baseline = cells.iter().position(is_baseline);
        let base = |metrics: &[String]| baseline.and_then(|b| cells[b].sum(metrics));
        let tested = |figure: Field, cell: &ListCell, metrics: &[String]| match baseline {
            Some(b) => self.tested(figure, &cells[b].all(metrics), &cell.all(metrics), sum),
            None => figure,
        };
        let field = |column: &ListColumn, row: usize| {
            let cell = &cells[row];
            let is_baseline = baseline == Some(row);
            match column {
                ListColumn::Label if mark_baseline && is_baseline => {
                    Field::Text(format!("{} (baseline)", cell.label))
                }
                ListColumn::Label => Field::Text(cell.label.clone()),
                ListColumn::Metric(metric) => cell.field(metric).clone(),
                ListColumn::Difference(_) | ListColumn::Ratio(_) if is_baseline => Field::Text(String::new()),
                ListColumn::Difference(metrics) => {
                    let better = direction(cell.all(metrics));
                    tested(self.difference(cell.sum(metrics), base(metrics), better), cell, metrics)
                }
                ListColumn::Ratio(metrics) => {
                    tested(self.ratio(cell.sum(metrics), base(metrics)), cell, metrics)
                }
            }
        };
        let row = |row| columns.iter().map(|column| field(column, row)).collect();
        let rows = (0..cells.len()).map(row).collect();
        let used = cells.iter().flat_map(|c| &c.fields);
        let used: Vec<Field> = used.map(|(_, field)| field.clone()).collect();
        let header = self.list_header(columns, &cells, baseline);
        self.table(None, header, rows, &used)
    }

    /// Differences always say what they cover and what they are against.
    fn list_header(self, columns: &[ListColumn], cells: &[ListCell], baseline: Option<usize>) -> Vec<Column> {
        let metrics = metrics_of(columns);
        let against = baseline.map_or("baseline", |b| distinct_label(b, cells));
        let named = |covered: &[String]| {
            let names: Vec<&str> = covered.iter().map(|m| short_name(m, &metrics)).collect();
            names.join("+")
        };
        let title = |column: &ListColumn| match column {
            ListColumn::Label => labels("cell"),
            ListColumn::Metric(metric) => {
                let name = short_name(metric, &metrics);
                values(
                    unit_shown(self.unit(metric))
                        .map_or_else(|| name.to_string(), |unit| format!("{name} ({unit})")),
                )
            }
            ListColumn::Difference(covered) => {
                values(format!("difference of {} to {against}", named(covered)))
            }
            ListColumn::Ratio(covered) => values(format!("ratio of {} to {against}", named(covered))),
        };
        columns.iter().map(title).collect()
    }
}

/// Every metric that the columns need, once.
fn metrics_of(columns: &[ListColumn]) -> IndexSet<&str> {
    let metrics = |column| match column {
        &ListColumn::Label => &[],
        ListColumn::Metric(metric) => std::slice::from_ref(metric),
        ListColumn::Difference(metrics) | ListColumn::Ratio(metrics) => metrics.as_slice(),
    };
    columns.iter().flat_map(metrics).map(String::as_str).collect()
}

/// A row's label without the words that all rows begin with: enough to
/// recognise it by, and short enough for a column's head.
fn distinct_label<'c>(row: usize, cells: &'c [ListCell]) -> &'c str {
    let label = cells[row].label.as_str();
    let shared = label.char_indices().take_while(|(at, c)| {
        let has = |other: &ListCell| other.label[*at..].starts_with(*c);
        cells.iter().all(has)
    });
    let separators = shared.filter(|(_, c)| matches!(c, ' ' | '-' | '/' | ','));
    let distinct = separators.last().map_or(label, |(at, _)| &label[at + 1..]);
    if distinct.is_empty() || cells.len() < 2 { label } else { distinct }
}
