//! From results to tables: which fields there are, and what is in them.

mod compare;
mod frames;
mod lines;
mod list;
mod pivot;

use std::collections::{BTreeSet, HashMap, HashSet};

use indexmap::IndexSet;

use self::pivot::Place;
use super::footnotes::{footnotes, story};
use super::significance::settle;
use super::{Column, Compared, Field, Measured, Table};
use crate::model::{
    Axis, Cell, CellId, Direction, Failure, Kind, Layout, Piece, Results, STACK_LEFT, Sample, Sign,
    Statistic, TableSpec, Template, is_size,
};
use crate::stats::{self, Estimate, Observations};

/// All tables that the matrix asks for, in its order.
pub fn tables(results: &Results) -> Vec<Table> {
    let index = Index::of(results);
    let specs = results.matrix.tables.iter();
    specs.flat_map(|spec| View { results, index: &index, spec }.tables()).collect()
}

/// Where things are: there can be thousands of cells, and of samples in each.
#[derive(Default)]
struct Index<'a> {
    /// Of the metrics that tables show.
    samples: HashMap<(&'a CellId, &'a str), Vec<&'a Sample>>,
    /// Unit of a metric's first sample.
    units: HashMap<&'a str, &'a str>,
    /// Cells by their values on all axes, in the order of the axes' names.
    cells: HashMap<Place<'a>, &'a Cell>,
    /// Values of each axis; those that only an included cell has come last.
    values: HashMap<&'a str, IndexSet<&'a str>>,
}

impl<'a> Index<'a> {
    fn of(results: &'a Results) -> Self {
        let mut index = Index::default();
        let shown: HashSet<&str> = results.matrix.tables.iter().flat_map(|t| t.layout.metrics()).collect();
        let alike = |a: &Sample, b: &Sample| a.metric == b.metric && a.cell == b.cell;
        for samples in results.samples.chunk_by(alike).filter(|s| shown.contains(s[0].metric.as_str())) {
            let Sample { cell, metric, unit, .. } = &samples[0];
            index.samples.entry((cell, metric)).or_default().extend(samples);
            index.units.entry(metric).or_insert(unit);
        }
        for axis in &results.matrix.axes {
            index.values.entry(&axis.name).or_default().extend(axis.values.iter().map(String::as_str));
        }
        for cell in &results.matrix.cells {
            let mut place: Place = cell.coords.iter().map(|(a, v)| (a.as_str(), v.as_str())).collect();
            for (axis, value) in &place {
                index.values.entry(axis).or_default().insert(value);
            }
            place.sort_unstable();
            index.cells.entry(place).or_insert(cell);
        }
        index
    }

    /// The cell at a place, which names all axes.
    fn cell(&self, mut place: Place<'a>) -> Option<&'a Cell> {
        place.sort_unstable();
        self.cells.get(&place).copied()
    }
}

/// The results as one table sees them.
#[derive(Clone, Copy)]
struct View<'a> {
    results: &'a Results,
    index: &'a Index<'a>,
    spec: &'a TableSpec,
}

impl<'a> View<'a> {
    fn tables(self) -> Vec<Table> {
        let mut tables = self.laid_out();
        settle(&mut tables, self.spec.statistic, self.results.matrix.boot.perturb);
        tables
    }

    fn laid_out(self) -> Vec<Table> {
        match &self.spec.layout {
            Layout::Pivot { metric, columns, rows, derived } => {
                let blocks = self.blocks(&[columns, rows]);
                blocks.iter().map(|block| self.pivot(metric, columns, rows, derived, block)).collect()
            }
            Layout::Compare { columns, rows, geometric_mean } => {
                self.comparisons(columns, rows, *geometric_mean)
            }
            Layout::List { columns, row, baseline, mark_baseline } => {
                vec![self.list(columns, row, baseline, *mark_baseline)]
            }
            Layout::Lines { lines } => self.lines(lines),
            Layout::Frames { compare, top } => self.frames(compare.as_deref(), *top),
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

    /// The axis' values that pass the filter.
    fn values(self, axis: &str) -> impl Iterator<Item = &'a str> {
        let filter = self.spec.filter.get(axis).filter(|values| !values.is_empty());
        let admitted = move |value: &&str| filter.is_none_or(|values| values.iter().any(|v| v == value));
        self.index.values.get(axis).into_iter().flatten().copied().filter(admitted)
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
        let sampled = self.index.units.get(metric).copied();
        let defined = || {
            let (benchmark, name) = metric.split_once('.')?;
            let mut benchmarks = self.results.matrix.benchmarks.iter();
            let benchmark = benchmarks.find(|b| b.name == benchmark)?;
            benchmark.metrics.get(name).map(|m| m.unit.as_str())
        };
        let size = || (is_size(metric) || metric == STACK_LEFT).then_some("bytes");
        sampled.or_else(defined).or_else(size).unwrap_or("")
    }

    /// What stands for `metric` in the field of `cell`.
    fn field(self, cell: &Cell, metric: &str) -> Field {
        self.quantity(cell, metric, self.spec.statistic)
    }

    fn quantity(self, cell: &Cell, metric: &str, statistic: Statistic) -> Field {
        let failures = self.results.failures.get(&cell.id);
        let concerned = |f: &&Failure| f.concerns(metric);
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
        let samples = self.index.samples.get(&(&cell.id, metric));
        let measured = samples.and_then(|samples| self.measured(samples, statistic));
        measured.map_or(Field::Missing, |m| Field::Measured(Box::new(m)))
    }

    /// The statistic over all samples of a metric in a cell, whichever boots
    /// and runs they come from.
    fn measured(self, samples: &[&Sample], statistic: Statistic) -> Option<Measured> {
        let first = samples.first()?;
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        let boots: BTreeSet<u32> = samples.iter().filter_map(|s| s.boot).collect();
        let estimate = Estimate::of(&values)?;
        let value = estimate.value(statistic);
        let count = statistic == Statistic::Count;
        let whole = first.unit == "bytes" || first.kind == Kind::Exact;
        let decimals = self.spec.decimals.unwrap_or(if whole { 0 } else { 4 });
        let observed = Observations::of(samples, statistic, self.results.matrix.boot.perturb);
        let interval = observed.as_ref().ok().and_then(|o| o.interval(statistic));
        let mut text = self.number(value, if count { 0 } else { decimals });
        if self.spec.interval && !observed.as_ref().is_ok_and(Observations::repeats) {
            text.push_str(&self.interval(interval, statistic, decimals));
        }
        Some(Measured {
            value,
            text,
            unit: if count { String::new() } else { first.unit.clone() },
            better: first.better,
            metric: first.metric.clone(),
            cell: first.cell.clone(),
            kind: first.kind,
            statistic,
            boots: boots.len(),
            estimate,
            interval,
            observed,
        })
    }

    /// What stands behind a value: that of a median need not lie around it evenly.
    fn interval(self, interval: Option<(f64, f64)>, statistic: Statistic, decimals: u8) -> String {
        let number = |value| self.number(value, decimals);
        match interval {
            None => " ±?".to_owned(),
            Some((low, high)) if statistic == Statistic::Mean => format!(" ±{}", number((high - low) / 2.0)),
            Some((low, high)) => format!(" [{}, {}]", number(low), number(high)),
        }
    }

    /// A number as the table prints it.
    fn number(self, value: f64, decimals: u8) -> String {
        match self.spec.significant {
            Some(digits) => stats::significant(value, digits),
            None => stats::fixed(value, decimals),
        }
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
            lines: Vec::new(),
            footnotes: footnotes(used, self.spec),
        }
    }

    /// Change in percent under the table's sign convention; `better` is the
    /// direction of both values, where they have one.
    fn change(self, new: Option<f64>, base: Option<f64>, better: Option<Direction>) -> Option<f64> {
        match self.spec.sign {
            Sign::Raw => stats::percent_change(new?, base?),
            Sign::PositiveIsBetter => stats::improvement(new?, base?, better?),
        }
    }

    fn difference(self, new: Option<f64>, base: Option<f64>, better: Option<Direction>) -> Field {
        let decimals = self.spec.percent_decimals;
        let change = self.change(new, base, better);
        change.map_or(Field::NotApplicable, |value| Field::Percent {
            value,
            text: stats::signed_percent(value, decimals),
        })
    }

    /// Two more decimals than percentages have: the same resolution.
    fn ratio(self, new: Option<f64>, base: Option<f64>) -> Field {
        let decimals = self.spec.percent_decimals.saturating_add(2);
        let ratio = new.zip(base).and_then(|(new, base)| stats::ratio(new, base));
        ratio
            .map_or(Field::NotApplicable, |value| Field::Ratio { value, text: stats::fixed(value, decimals) })
    }

    /// A figure with the test of what it says: `combine` makes one observation
    /// of the base's fields in each boot, and of those that are compared with them.
    /// Totals over more boots and over fewer are not compared at all.
    fn tested(
        self,
        figure: Field,
        base: &[&Field],
        new: &[&Field],
        combine: impl Fn(&[f64]) -> f64,
    ) -> Field {
        let all: Option<Vec<&Measured>> = base.iter().chain(new).map(|field| field.measured()).collect();
        let all = all.unwrap_or_default();
        let total = matches!(self.spec.statistic, Statistic::Sum | Statistic::Count);
        let Some(first) = all.first().filter(|_| figure != Field::NotApplicable) else {
            return Field::NotApplicable;
        };
        if total && all.iter().any(|m| m.boots != first.boots) {
            return Field::NotApplicable;
        }
        let (base, new) = all.split_at(base.len());
        let observed = |side: &[&Measured]| {
            let all = side.iter().map(|m| m.observed.as_ref()).collect::<Result<Vec<_>, _>>();
            Observations::combined(&all.map_err(Clone::clone)?, &combine)
        };
        let tested =
            observed(base).and_then(|base| stats::difference(&base, &observed(new)?, self.spec.test));
        let named = |side: &[&Measured]| side.iter().map(|m| (m.cell.clone(), m.metric.clone())).collect();
        let between = [named(base), named(new)];
        Field::Compared(Box::new(Compared { figure, between, kind: first.kind, tested }))
    }

    /// The template's text at a place on the axes; `number` prints what else
    /// it asks for. Labels are not looked into again, and axes that the place
    /// does not have stay as written.
    fn filled<'v>(
        self,
        template: &Template,
        value: impl Fn(&str) -> Option<&'v str>,
        number: impl Fn(&Piece) -> String,
    ) -> String
    where
        'a: 'v,
    {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Axis(axis) => {
                value(axis).map_or_else(|| piece.to_string(), |value| self.label(axis, value).to_owned())
            }
            Piece::Value(_) | Piece::Quotient(..) => number(piece),
        };
        template.0.iter().map(text).collect()
    }

    /// The template's text for a cell, without any numbers.
    fn cell_label(self, template: &Template, cell: &'a Cell) -> String {
        self.filled(template, |axis| cell.coords.get(axis).map(String::as_str), Piece::to_string)
    }
}

/// Head of a column of labels.
fn labels(title: impl Into<String>) -> Column {
    Column { title: title.into(), label: true, beside: false }
}

/// Head of a column of values.
fn values(title: impl Into<String>) -> Column {
    Column { title: title.into(), label: false, beside: false }
}

/// What values of one boot come to together.
fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

/// The direction that all values have in common.
fn direction<'f>(fields: impl IntoIterator<Item = &'f Field>) -> Option<Direction> {
    let mut all = fields.into_iter().map(|field| field.measured().map(|m| m.better));
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

/// The unit as labels say it; titles say what is counted in bytes.
fn unit_shown(unit: &str) -> Option<&str> {
    (!matches!(unit, "" | "bytes")).then_some(unit)
}

/// The last part of a metric's name, or all of it where that is ambiguous.
fn short_name<'m>(metric: &'m str, metrics: &IndexSet<&str>) -> &'m str {
    let last = |m: &str| m.rsplit('.').next().map(str::to_string);
    if metrics.iter().filter(|m| last(m) == last(metric)).count() > 1 {
        return metric;
    }
    metric.rsplit('.').next().unwrap_or(metric)
}
