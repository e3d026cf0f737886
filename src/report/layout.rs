//! From results to tables: which fields there are, and what is in them.

use std::collections::BTreeSet;

use indexmap::IndexSet;

use super::footnotes::{footnotes, story};
use super::{Column, Field, Measured, Table};
use crate::model::{
    Axis, Cell, Derived, Failure, Kind, Layout, ListColumn, Results, Sample, Stage, TableSpec,
};
use crate::stats::{self, Estimate};

/// All tables that the matrix asks for, in its order.
pub fn tables(results: &Results) -> Vec<Table> {
    let specs = results.matrix.tables.iter();
    specs.flat_map(|spec| View { results, spec }.tables()).collect()
}

/// The results as one table sees them.
#[derive(Clone, Copy)]
struct View<'a> {
    results: &'a Results,
    spec: &'a TableSpec,
}

impl<'a> View<'a> {
    fn tables(self) -> Vec<Table> {
        match &self.spec.layout {
            Layout::Pivot { metric, columns, rows, derived } => {
                let blocks = self.blocks(columns, rows);
                let block = |block| self.pivot(metric, columns, rows, derived, block);
                blocks.iter().map(block).collect()
            }
            Layout::List { columns, row, baseline, mark_baseline } => {
                let cells = self.list_cells(row, columns);
                let is_baseline =
                    |c: &ListCell| baseline.iter().all(|(a, v)| c.cell.coords.get(a) == Some(v));
                let baseline = cells.iter().position(is_baseline);
                vec![self.list(columns, &cells, baseline, *mark_baseline)]
            }
        }
    }

    /// The cells that pass the filter.
    fn cells(self) -> impl Iterator<Item = &'a Cell> {
        let admits = move |c: &&Cell| c.coords.iter().all(|(a, v)| self.admits(a, v));
        self.results.matrix.cells.iter().filter(admits)
    }

    fn admits(self, axis: &str, value: &str) -> bool {
        let values = self.spec.filter.get(axis);
        values.is_none_or(|values| values.is_empty() || values.iter().any(|v| v == value))
    }

    /// The axis' values that pass the filter; those that only an included
    /// cell has come last.
    fn values(self, axis: &str) -> Vec<&'a str> {
        let matrix = &self.results.matrix;
        let axes = matrix.axes.iter().filter(|a| a.name == axis);
        let included = matrix.cells.iter().filter_map(|c| c.coords.get(axis));
        let values = axes.flat_map(|a| &a.values).chain(included);
        let unique: IndexSet<&str> = values.map(String::as_str).collect();
        let admitted = unique.into_iter().filter(|v| self.admits(axis, v));
        admitted.collect()
    }

    fn label<'v>(self, axis: &str, value: &'v str) -> &'v str
    where
        'a: 'v,
    {
        let axes = &self.results.matrix.axes;
        let axis: Option<&'a Axis> = axes.iter().find(|a| a.name == axis);
        axis.map_or(value, |a| a.label(value))
    }

    /// Unit of a metric: that of its samples, or where there are none the one
    /// that was to be expected.
    fn unit(self, metric: &str) -> &'a str {
        let sampled = self.results.samples.iter().find(|s| s.metric == metric);
        let defined = || {
            let (benchmark, name) = metric.split_once('.')?;
            let mut benchmarks = self.results.matrix.benchmarks.iter();
            let benchmark = benchmarks.find(|b| b.name == benchmark)?;
            benchmark.metrics.get(name).map(|m| m.unit.as_str())
        };
        let size = || is_size(metric).then_some("bytes");
        let sampled = sampled.map(|s| s.unit.as_str());
        sampled.or_else(defined).or_else(size).unwrap_or("")
    }

    /// What stands for `metric` in the field of `cell`.
    fn field(self, cell: &Cell, metric: &str) -> Field {
        let failures = self.results.failures.get(&cell.id);
        let concerned = |f: &&Failure| concerns(f, metric);
        let failures: Vec<_> = failures.into_iter().flatten().filter(concerned).collect();
        // A failed run among good ones fails the field: the mean of the good
        // ones would look like a result of all.
        if let Some(first) = failures.first() {
            return Field::Failed {
                what: first.what.clone(),
                cell: cell.id.clone(),
                story: story(first, failures.len()),
            };
        }
        let samples = self.results.samples.iter();
        let samples: Vec<_> = samples.filter(|s| s.cell == cell.id && s.metric == metric).collect();
        let measured = self.measured(&samples);
        measured.map_or(Field::Missing, |m| Field::Measured(Box::new(m)))
    }

    /// The statistic over all samples of a metric in a cell, whichever boots
    /// and runs they come from.
    fn measured(self, samples: &[&Sample]) -> Option<Measured> {
        let first = samples.first()?;
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        let boots: BTreeSet<u32> = samples.iter().filter_map(|s| s.boot).collect();
        let estimate = Estimate::of(&values)?;
        let value = estimate.value(self.spec.statistic);
        let whole = first.unit == "bytes" || first.kind == Kind::Exact;
        let decimals = self.spec.decimals.unwrap_or(if whole { 0 } else { 4 });
        Some(Measured {
            value,
            text: stats::fixed(value, decimals),
            unit: first.unit.clone(),
            metric: first.metric.clone(),
            cell: first.cell.clone(),
            kind: first.kind,
            statistic: self.spec.statistic,
            boots: boots.len(),
            estimate,
        })
    }

    /// A table of this specification; `used` are the fields that the
    /// footnotes have to explain.
    fn table(
        self,
        block: Option<String>,
        header: Vec<Column>,
        rows: Vec<Vec<Field>>,
        used: &[Field],
    ) -> Table {
        Table {
            title: self.spec.title.clone(),
            block,
            header,
            rows,
            footnotes: footnotes(used, self.spec.percent_decimals),
        }
    }

    fn difference(self, new: Option<f64>, base: Option<f64>) -> Field {
        let decimals = self.spec.percent_decimals;
        let change = new.zip(base);
        let change = change.and_then(|(new, base)| stats::percent_change(new, base));
        change.map_or(Field::NotApplicable, |value| Field::Percent {
            value,
            text: stats::signed_percent(value, decimals),
        })
    }
}

/// Whether the metric is a size that a build yields, whatever becomes of boots.
fn is_size(metric: &str) -> bool {
    metric.starts_with("vmlinux.") || metric.starts_with("image.")
}

/// Whether a cell's failure leaves the metric without a trustworthy value.
fn concerns(failure: &Failure, metric: &str) -> bool {
    match &failure.benchmark {
        Some(name) => metric.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.')),
        None => failure.stage <= Stage::Build || !is_size(metric),
    }
}

fn head(title: impl Into<String>, label: bool) -> Column {
    let title = title.into();
    Column { title, label }
}

/// Values of the axes that are neither across nor down, one set a block.
type Block<'a> = Vec<(&'a str, &'a str)>;

/// Pivot tables.
impl<'a> View<'a> {
    /// Every combination of left-over axes that some cell has. Without any
    /// cell there is one block still, so that the table is not lost silently.
    fn blocks(self, columns: &str, rows: &str) -> IndexSet<Block<'a>> {
        let left_over = |c: &'a Cell| {
            let coords = c.coords.iter().map(|(a, v)| (a.as_str(), v.as_str()));
            coords.filter(|(a, _)| *a != columns && *a != rows).collect()
        };
        let mut blocks: IndexSet<Block> = self.cells().map(left_over).collect();
        if blocks.is_empty() {
            blocks.insert(Vec::new());
        }
        blocks
    }

    fn pivot(self, metric: &str, columns: &str, rows: &str, derived: &[Derived], block: &Block) -> Table {
        let (across, down) = (self.values(columns), self.values(rows));
        let cell = |row: &str, column: &str| {
            self.cells().find(|c| {
                let has = |axis: &str, value: &str| c.coords.get(axis).is_some_and(|v| v == value);
                has(rows, row) && has(columns, column) && block.iter().all(|(a, v)| has(a, v))
            })
        };
        let field = |row, column| cell(row, column).map_or(Field::Excluded, |c| self.field(c, metric));
        let measured: Vec<(&str, Vec<Field>)> = down
            .iter()
            .map(|row| {
                let fields = across.iter().map(|column| field(row, column));
                (self.label(rows, row), fields.collect())
            })
            .collect();

        let unit = match self.unit(metric) {
            "" | "bytes" => String::new(),
            unit => format!("/{unit}"),
        };
        let mut body: Vec<Vec<Field>> = measured
            .iter()
            .map(|(label, fields)| labelled(format!("{label}{unit}"), fields.clone()))
            .collect();
        body.extend(derived.iter().flat_map(|d| self.derive(*d, &measured)));

        let mut header = vec![head(columns, true)];
        header.extend(across.iter().map(|v| head(self.label(columns, v), false)));
        let used: Vec<Field> = measured.into_iter().flat_map(|(_, f)| f).collect();
        self.table(self.subtitle(block), header, body, &used)
    }

    /// The block's place on the left-over axes, as far as there is a choice.
    fn subtitle(self, block: &Block) -> Option<String> {
        let open = block.iter().filter(|(axis, _)| self.values(axis).len() > 1);
        let parts: Vec<String> =
            open.map(|(axis, value)| format!("{axis} {}", self.label(axis, value))).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// The derived rows of one sort. Of two rows the second alone can be
    /// compared with the first, so the derived row need not say which.
    fn derive(self, derived: Derived, rows: &[(&str, Vec<Field>)]) -> Vec<Vec<Field>> {
        let name = match derived {
            Derived::Difference => "difference",
            Derived::Ratio => "ratio",
            Derived::IsSmaller => "is_smaller",
            Derived::Spread => "spread",
        };
        let named = |label: &str| match (derived, rows.len()) {
            (Derived::Spread, _) | (_, 3..) => format!("{name} {label}"),
            _ => name.to_string(),
        };
        let Some(((_, baseline), others)) = rows.split_first() else {
            return Vec::new();
        };
        let compared = if derived == Derived::Spread { rows } else { others };
        let row = |(label, fields): &(&str, Vec<Field>)| {
            let pairs = fields.iter().zip(baseline);
            let fields = pairs.map(|(new, base)| self.derived_field(derived, new, base));
            labelled(named(label), fields.collect())
        };
        compared.iter().map(row).collect()
    }

    fn derived_field(self, derived: Derived, new: &Field, base: &Field) -> Field {
        let decimals = self.spec.percent_decimals;
        let values = new.value().zip(base.value());
        let field = match derived {
            Derived::Difference => Some(self.difference(new.value(), base.value())),
            // Two more decimals than percentages have: the same resolution.
            Derived::Ratio => values
                .and_then(|(new, base)| stats::ratio(new, base))
                .map(|value| Field::Ratio { value, text: stats::fixed(value, decimals.saturating_add(2)) }),
            Derived::IsSmaller => {
                values.map(|(new, base)| Field::Text(if new < base { "y" } else { "n" }.to_string()))
            }
            Derived::Spread => new
                .measured()
                .and_then(|m| m.estimate.spread())
                .map(|value| Field::Percent { value, text: format!("{}%", stats::fixed(value, decimals)) }),
        };
        field.unwrap_or(Field::NotApplicable)
    }
}

fn labelled(label: String, fields: Vec<Field>) -> Vec<Field> {
    let mut row = vec![Field::Text(label)];
    row.extend(fields);
    row
}

/// A row of a list: a cell, its label and its value of each of the table's metrics.
struct ListCell<'a> {
    cell: &'a Cell,
    label: String,
    fields: Vec<(&'a str, Field)>,
}

impl ListCell<'_> {
    fn field(&self, metric: &str) -> Field {
        let found = self.fields.iter().find(|(m, _)| *m == metric);
        found.map_or(Field::Missing, |(_, field)| field.clone())
    }

    /// `None` where one of the metrics has no number.
    fn sum(&self, metrics: &[String]) -> Option<f64> {
        metrics.iter().map(|m| self.field(m).value()).sum()
    }
}

/// List tables.
impl<'a> View<'a> {
    fn list_cells(self, template: &str, columns: &'a [ListColumn]) -> Vec<ListCell<'a>> {
        let metrics = metrics_of(columns);
        let cell = |cell| ListCell {
            cell,
            label: self.row_label(template, cell),
            fields: metrics.iter().map(|m| (*m, self.field(cell, m))).collect(),
        };
        self.cells().map(cell).collect()
    }

    /// Fills in the template. Labels are not looked into again, and braces
    /// that name no axis stay.
    fn row_label(self, template: &str, cell: &Cell) -> String {
        let mut label = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            label.push_str(before);
            let named = after.split_once('}');
            let value = named.and_then(|(axis, tail)| Some((axis, tail, cell.coords.get(axis)?)));
            match value {
                Some((axis, tail, value)) => {
                    label.push_str(self.label(axis, value));
                    rest = tail;
                }
                None => {
                    label.push('{');
                    rest = after;
                }
            }
        }
        label + rest
    }

    fn list(self, columns: &[ListColumn], cells: &[ListCell], baseline: Option<usize>, mark: bool) -> Table {
        let field = |column: &ListColumn, row: usize| {
            let cell = &cells[row];
            let is_baseline = baseline == Some(row);
            match column {
                ListColumn::Label if mark && is_baseline => Field::Text(format!("{} (baseline)", cell.label)),
                ListColumn::Label => Field::Text(cell.label.clone()),
                ListColumn::Metric(metric) => cell.field(metric),
                ListColumn::Difference(_) if is_baseline => Field::Text(String::new()),
                ListColumn::Difference(metrics) => {
                    let base = baseline.and_then(|b| cells[b].sum(metrics));
                    self.difference(cell.sum(metrics), base)
                }
            }
        };
        let row = |row| columns.iter().map(|column| field(column, row)).collect();
        let rows = (0..cells.len()).map(row).collect();
        let used = cells.iter().flat_map(|c| &c.fields);
        let used: Vec<Field> = used.map(|(_, field)| field.clone()).collect();
        let header = self.list_header(columns, cells, baseline);
        self.table(None, header, rows, &used)
    }

    /// Differences always say what they cover and what they are against.
    fn list_header(self, columns: &[ListColumn], cells: &[ListCell], baseline: Option<usize>) -> Vec<Column> {
        let metrics = metrics_of(columns);
        let against = baseline.map_or("baseline", |b| distinct_label(b, cells));
        let title = |column: &ListColumn| match column {
            ListColumn::Label => head("cell", true),
            ListColumn::Metric(metric) => {
                let name = short_name(metric, &metrics);
                head(
                    match self.unit(metric) {
                        "" | "bytes" => name.to_string(),
                        unit => format!("{name} ({unit})"),
                    },
                    false,
                )
            }
            ListColumn::Difference(covered) => {
                let names: Vec<&str> = covered.iter().map(|m| short_name(m, &metrics)).collect();
                let names = names.join("+");
                head(format!("difference of {names} to {against}"), false)
            }
        };
        columns.iter().map(title).collect()
    }
}

/// Every metric that the columns need, once.
fn metrics_of(columns: &[ListColumn]) -> IndexSet<&str> {
    let metrics = |column| match column {
        &ListColumn::Label => &[],
        ListColumn::Metric(metric) => std::slice::from_ref(metric),
        ListColumn::Difference(metrics) => metrics.as_slice(),
    };
    columns.iter().flat_map(metrics).map(String::as_str).collect()
}

/// The last part of a metric's name, or all of it where that is ambiguous.
fn short_name<'m>(metric: &'m str, metrics: &IndexSet<&str>) -> &'m str {
    let last = |m: &str| m.rsplit('.').next().map(str::to_string);
    if metrics.iter().filter(|m| last(m) == last(metric)).count() > 1 {
        return metric;
    }
    metric.rsplit('.').next().unwrap_or(metric)
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
