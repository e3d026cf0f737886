//! One page for people: every table, plots of those that lend themselves to
//! it, what failed, and what it was measured on. It opens from a disk, without
//! a network or scripts, on a phone and in the dark.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::{self, Plot, Point, Series};
use super::{Field, Measured, Table};

/// A page.
#[derive(Debug, Clone, Default)]
pub struct Page<'a> {
    /// Name of the matrix.
    pub title: &'a str,
    /// All tables.
    pub tables: &'a [Table],
    /// What ran, on what: name and value.
    pub about: &'a [(String, String)],
    /// Whether the rows of tables follow each other in time, so that plots go along them.
    pub along_rows: bool,
}

const STYLE: &str = include_str!("page.css");

/// Writes the page.
pub fn render(page: &Page<'_>) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Nothing is loaded, whatever labels or guests say.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (page.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (page.title) }
                @for table in page.tables { (section(table, page.along_rows)) }
                @if !page.about.is_empty() {
                    h2 { "Measured with" }
                    dl { @for (name, value) in page.about { dt { (name) } dd { (value) } } }
                }
            }
        }
    };
    markup.into_string()
}

fn section(table: &Table, along_rows: bool) -> Markup {
    html! {
        section {
            h2 { (table.title) }
            @if let Some(block) = &table.block { h3 { (block) } }
            @if let Some(plot) = if along_rows { trend_of(table) } else { plot_of(table) } {
                @if let Some(svg) = plot::svg(&plot) {
                    figure {
                        (svg)
                        figcaption {
                            @for (n, series) in plot.series.iter().enumerate() {
                                span class=(format!("key s{n}")) { (series.label) }
                            }
                            (Bars::of(table).caption())
                        }
                    }
                }
            }
            @if !table.lines.is_empty() {
                pre { (table.lines.join("\n")) }
            } @else if !table.rows.is_empty() {
                div.wide { table {
                    thead { tr { @for column in &table.header { th scope="col" { (column.title) } } } }
                    tbody { @for row in &table.rows { tr {
                        @for (at, field) in row.iter().enumerate() { (cell(table, at, field)) }
                    } } }
                } }
            }
            @for note in &table.footnotes { p.note { (note) } }
        }
    }
}

fn cell(table: &Table, at: usize, field: &Field) -> Markup {
    let label = table.header.get(at).is_some_and(|c| c.label);
    html! {
        @if label {
            th scope="row" { (field.text()) }
        } @else {
            td class=(class(field)) title=[story(field)] { (field.text()) }
        }
    }
}

fn class(field: &Field) -> &'static str {
    match field {
        Field::Failed { .. } => "failed",
        Field::Missing => "missing",
        _ => "value",
    }
}

/// What a pointer that rests on a field is told.
fn story(field: &Field) -> Option<String> {
    match field {
        Field::Failed { cell, story, .. } => Some(format!("{cell}: {story}")),
        Field::Measured(m) => {
            let e = &m.estimate;
            Some(format!("{}: {} of n = {}, {} to {} {}", m.cell, m.metric, e.n, e.min, e.max, m.unit))
        }
        Field::Compared(compared) => Some(match &compared.tested {
            Err(reason) => format!("untested: {reason}"),
            Ok(change) => match change.adjusted {
                None => change.test.label().to_owned(),
                Some(p) => format!("{}: p = {p:.4} (corrected)", change.test.label()),
            },
        }),
        _ => None,
    }
}

/// The measured column of a table whose rows follow each other in time.
fn trend_of(table: &Table) -> Option<Plot> {
    let label = table.header.iter().position(|c| c.label)?;
    let measured = |row: &Vec<Field>| row.iter().find_map(|f| f.measured().cloned());
    let first = table.rows.iter().find_map(measured)?;
    let bars = Bars::of(table);
    let point = |row: &Vec<Field>| {
        let m = measured(row).filter(|m| m.unit == first.unit)?;
        Some(bars.point(&m))
    };
    let name = table.block.clone().unwrap_or_else(|| first.metric.clone());
    Some(Plot {
        unit: first.unit.clone(),
        categories: table.rows.iter().map(|row| row[label].text().into_owned()).collect(),
        series: vec![Series { label: name, points: table.rows.iter().map(point).collect() }],
    })
}

/// What the bars of a plot reach over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bars {
    /// Nothing: every value is exact.
    None,
    /// The 95 % interval, where every value has one.
    Intervals,
    /// All samples.
    Samples,
}

impl Bars {
    fn of(table: &Table) -> Bars {
        let measured = || table.rows.iter().flatten().filter_map(Field::measured);
        if measured().all(|m| m.estimate.min == m.estimate.max) {
            Bars::None
        } else if measured().all(|m| m.interval.is_some() || m.estimate.min == m.estimate.max) {
            Bars::Intervals
        } else {
            Bars::Samples
        }
    }

    fn point(self, m: &Measured) -> Point {
        let (low, high) = match (self, m.interval) {
            (Bars::Intervals, Some(interval)) => interval,
            _ => (m.estimate.min, m.estimate.max),
        };
        Point { value: m.value, low, high }
    }

    fn caption(self) -> &'static str {
        match self {
            Bars::None => "",
            Bars::Intervals => " Bars are 95% intervals over boots.",
            Bars::Samples => " Bars reach from the smallest to the largest sample.",
        }
    }
}

/// The measured rows of a table whose columns can be an axis: more than one
/// column, one unit.
fn plot_of(table: &Table) -> Option<Plot> {
    let columns: Vec<usize> =
        (0..table.header.len()).filter(|at| !table.header[*at].label && !table.header[*at].beside).collect();
    let label = table.header.iter().position(|c| c.label)?;
    let mut units: Vec<&str> =
        table.rows.iter().flatten().filter_map(|f| Some(f.measured()?.unit.as_str())).collect();
    let mut metrics: Vec<&str> =
        table.rows.iter().flatten().filter_map(|f| Some(f.measured()?.metric.as_str())).collect();
    units.dedup();
    metrics.dedup();
    if columns.len() < 2 || units.len() != 1 || metrics.len() != 1 {
        return None;
    }
    let bars = Bars::of(table);
    let point = |field: &Field| Some(bars.point(field.measured()?));
    if table.header.iter().any(|c| c.beside) {
        return Some(compared(table, label, &columns, units[0], point));
    }
    let series = |row: &Vec<Field>| {
        let points: Vec<_> = columns.iter().map(|at| row.get(*at).and_then(point)).collect();
        let measured = points.iter().any(Option::is_some);
        measured.then(|| Series { label: row[label].text().into_owned(), points })
    };
    Some(Plot {
        unit: units.first().map(|u| (*u).to_owned()).unwrap_or_default(),
        categories: columns.iter().map(|at| table.header[*at].title.clone()).collect(),
        series: table.rows.iter().filter_map(series).collect(),
    })
}

/// Of a comparison: a line for each of what is compared, along the rows.
fn compared(
    table: &Table,
    label: usize,
    columns: &[usize],
    unit: &str,
    point: impl Fn(&Field) -> Option<Point>,
) -> Plot {
    let rows = || table.rows.iter().filter(|row| columns.iter().any(|at| row[*at].measured().is_some()));
    let series = |at: &usize| Series {
        label: table.header[*at].title.clone(),
        points: rows().map(|row| point(&row[*at])).collect(),
    };
    Plot {
        unit: unit.to_owned(),
        categories: rows().map(|row| row[label].text().into_owned()).collect(),
        series: columns.iter().map(series).collect(),
    }
}
