//! Comparisons: the change to the first column's value beside every value.

use super::pivot::{Place, labelled};
use super::{View, direction, labels, short_name, sum, values};
use crate::model::Rows;
use crate::report::{Column, Field, Table};
use crate::stats;

/// A row before its changes are computed.
struct Row<'a> {
    label: String,
    unit: &'a str,
    fields: Vec<Field>,
}

impl<'a> View<'a> {
    /// One table for each combination of the axes that are left over.
    pub(super) fn comparisons(self, columns: &'a str, rows: &'a Rows, geometric_mean: bool) -> Vec<Table> {
        let taken = match rows {
            Rows::Axis { axis, .. } => vec![columns, axis],
            Rows::Metrics(_) => vec![columns],
        };
        let blocks = self.blocks(&taken);
        blocks.iter().map(|block| self.comparison(columns, rows, geometric_mean, block)).collect()
    }

    fn comparison(self, columns: &'a str, rows: &'a Rows, geometric_mean: bool, block: &Place<'a>) -> Table {
        let measured = self.rows(columns, rows, block);
        // A unit that all rows have stands above them.
        let shared = measured.first().map_or("", |row| row.unit);
        let shared = if measured.iter().all(|row| row.unit == shared) { shared } else { "" };
        let row = |row: &Row| {
            let own_unit = if shared.is_empty() { row.unit } else { "" };
            labelled(with_unit(&row.label, own_unit), self.with_changes(&row.fields))
        };
        let mut body: Vec<Vec<Field>> = measured.iter().map(row).collect();

        let corner = match rows {
            Rows::Axis { axis, .. } => axis,
            Rows::Metrics(_) => "metric",
        };
        let mut header = vec![labels(with_unit(corner, shared))];
        let titles: Vec<&str> = self.values(columns).map(|v| self.label(columns, v)).collect();
        header.extend(titles.iter().flat_map(|title| value_and_change(title)));

        let measured: Vec<Vec<Field>> = measured.into_iter().map(|row| row.fields).collect();
        let mut table = self.table(self.subtitle(block), header, Vec::new(), &measured.concat());
        let cells = measured.iter().flatten().any(|field| *field != Field::Excluded);
        if geometric_mean && cells {
            let means = self.geometric_means(&measured);
            table.footnotes.extend(mean_note(&means, titles.first()));
            body.push(labelled("geometric mean".to_string(), means));
        }
        table.rows = body;
        table
    }

    fn rows(self, columns: &'a str, rows: &'a Rows, block: &Place<'a>) -> Vec<Row<'a>> {
        match rows {
            Rows::Axis { axis, metric, label } => {
                let row = |value: &'a str| {
                    let place = [block.as_slice(), &[(axis.as_str(), value)]].concat();
                    let on = |axis: &str| place.iter().find(|(a, _)| *a == axis).map(|(_, value)| *value);
                    let label = self.filled(label, on, |piece| piece.to_string());
                    let fields = self.across(metric, &place, columns);
                    Row { label, unit: self.unit(metric), fields }
                };
                self.values(axis).map(row).collect()
            }
            Rows::Metrics(metrics) => {
                let all = metrics.keys().map(String::as_str).collect();
                let row = |(metric, label): (&String, &Option<String>)| Row {
                    label: label.as_deref().unwrap_or(short_name(metric, &all)).to_string(),
                    unit: self.unit(metric),
                    fields: self.across(metric, block, columns),
                };
                metrics.iter().map(row).collect()
            }
        }
    }

    fn with_changes(self, fields: &[Field]) -> Vec<Field> {
        let Some(base) = fields.first() else { return Vec::new() };
        let change = |(column, new): (usize, &Field)| {
            let change = self.change(new.value(), base.value(), direction([new, base]));
            let change = self.in_parentheses(change);
            // The base is not compared with itself.
            if column == 0 { change } else { self.tested(change, &[base], &[new], sum) }
        };
        fields.iter().enumerate().flat_map(|at| [at.1.clone(), change(at)]).collect()
    }

    fn in_parentheses(self, change: Option<f64>) -> Field {
        let decimals = self.spec.percent_decimals;
        change.map_or(Field::NotApplicable, |value| Field::Percent {
            value,
            text: format!("({} pct)", stats::fixed(value, decimals)),
        })
    }

    /// For each column the geometric mean of all rows' ratios to the base, and
    /// the change that it is. A mean over some of the rows would look like one
    /// over all, and one of times and rates says nothing: there is none then.
    fn geometric_means(self, rows: &[Vec<Field>]) -> Vec<Field> {
        let better = direction(rows.iter().flatten().filter(|field| field.measured().is_some()));
        let columns = 0..rows.first().map_or(0, Vec::len);
        let mean = |column: usize| {
            let ratio = |row: &Vec<Field>| stats::ratio(row[column].value()?, row[0].value()?);
            let ratios: Option<Vec<f64>> = rows.iter().map(ratio).collect();
            let mean = ratios.and_then(|ratios| stats::geometric_mean(&ratios)).filter(|_| better.is_some());
            let figures =
                [self.ratio(mean, Some(1.0)), self.in_parentheses(self.change(mean, Some(1.0), better))];
            let of = |column: usize| rows.iter().map(|row| &row[column]).collect::<Vec<_>>();
            let tested = |figure| self.tested(figure, &of(0), &of(column), mean_of_boot);
            if column == 0 { figures } else { figures.map(tested) }
        };
        columns.flat_map(mean).collect()
    }
}

/// The ratio of two columns' geometric means is the geometric mean of their ratios.
fn mean_of_boot(values: &[f64]) -> f64 {
    stats::geometric_mean(values).unwrap_or(f64::NAN)
}

fn with_unit(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.to_string() } else { format!("{label} ({unit})") }
}

fn value_and_change(title: &str) -> [Column; 2] {
    [values(title), Column { beside: true, ..values(format!("{title} change")) }]
}

fn mean_note(means: &[Field], base: Option<&&str>) -> Option<String> {
    let mut note = format!("geometric mean: of all rows' ratios to {}", base?);
    if means.contains(&Field::NotApplicable) {
        note.push_str("; n/a where a row has no value, or rows differ in which way is better");
    }
    Some(note)
}
