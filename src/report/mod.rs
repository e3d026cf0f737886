//! From results to tables as data ([`tables`]), from tables to text ([`render`]).

use std::borrow::Cow;

use serde::Serialize;

use crate::model::{CellId, Direction, Kind, Statistic};
use crate::stats::{Change, Estimate, Observations, Test, Untested};

pub mod check;
mod csv;
mod footnotes;
pub mod html;
mod json;
pub mod junit;
pub mod kcidb;
mod layout;
mod markdown;
pub mod plot;
mod significance;
mod text;

pub use layout::tables;
pub use text::paragraph;

/// A table, or one block of a table that has several.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What the matrix file calls it.
    pub title: String,
    /// Which of several blocks: `arch riscv64, HZ 100`.
    pub block: Option<String>,
    /// The columns' names.
    pub header: Vec<Column>,
    /// Fields by row, one for each column.
    pub rows: Vec<Vec<Field>>,
    /// What people read instead of header and rows; mostly empty.
    pub lines: Vec<String>,
    /// What a reader must know to judge the numbers.
    pub footnotes: Vec<String>,
}

/// Head of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Printed above the column.
    pub title: String,
    /// Whether the column names the rows.
    pub label: bool,
    /// Whether the column belongs to the one before it, as a change does to a
    /// value: nothing comes between them.
    pub beside: bool,
}

/// One field of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// A label, a `y` or `n`, or nothing.
    Text(String),
    /// The value of a cell, with its evidence.
    Measured(Box<Measured>),
    /// A quotient of two values.
    Ratio {
        /// Unrounded.
        value: f64,
        /// As printed.
        text: String,
    },
    /// A difference of two values, in their unit.
    Change {
        /// Unrounded.
        value: f64,
        /// As printed.
        text: String,
    },
    /// A change or a spread, in percent.
    Percent {
        /// Unrounded.
        value: f64,
        /// As printed.
        text: String,
    },
    /// One of the above that compares two values.
    Compared(Box<Compared>),
    /// The cell failed: there is no value, or none that could be trusted.
    Failed {
        /// A word or two: `panic`.
        what: String,
        /// The cell that failed.
        cell: CellId,
        /// Where and how, on one line.
        story: String,
    },
    /// The cell has not been measured.
    Missing,
    /// The matrix has no such cell.
    Excluded,
    /// Cannot be computed, for want of a number to compute it from.
    NotApplicable,
}

/// The value of a cell and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The statistic of the samples, unrounded.
    pub value: f64,
    /// As printed.
    pub text: String,
    /// Unit of `value`.
    pub unit: String,
    /// Which way is good.
    pub better: Direction,
    /// What was measured.
    pub metric: String,
    /// The cell that was measured.
    pub cell: CellId,
    /// How the samples came about.
    pub kind: Kind,
    /// Which value of the estimate `value` is.
    pub statistic: Statistic,
    /// Boots that the samples come from; 0 for what needs no boot.
    pub boots: usize,
    /// What all samples say.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// 95 % interval over boots, of a mean or a median; `None` where too few
    /// boots tell.
    pub interval: Option<(f64, f64)>,
    /// What each boot says, which is what tests of differences count.
    #[serde(skip)]
    pub observed: Result<Observations, Untested>,
}

/// A figure that holds one value against another, and whether that is more
/// than chance.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The change, the ratio, or `y` or `n`.
    pub figure: Field,
    /// What is compared: cells with their metrics, the base's first. Figures
    /// of one comparison count as one.
    pub between: [Vec<(CellId, String)>; 2],
    /// How the values came about.
    pub kind: Kind,
    /// How it was tested, or why that cannot be.
    pub tested: Result<Change, Untested>,
}

/// What is known of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Significance {
    /// Of values that repeat to the last digit.
    Exact,
    /// More than chance.
    Significant,
    /// May be chance.
    Insignificant,
    /// Cannot be told from chance.
    Untested,
}

impl Significance {
    /// What stands before a figure's digits.
    pub fn mark(self) -> &'static str {
        match self {
            Significance::Exact | Significance::Significant => "",
            Significance::Insignificant => "~",
            Significance::Untested => "?",
        }
    }

    /// How exports name it.
    pub fn label(self) -> &'static str {
        match self {
            Significance::Exact => "exact",
            Significance::Significant => "significant",
            Significance::Insignificant => "not significant",
            Significance::Untested => "untested",
        }
    }
}

impl Compared {
    /// What is known of the difference.
    pub fn significance(&self) -> Significance {
        match &self.tested {
            Err(_) => Significance::Untested,
            Ok(change) if change.test == Test::Exact => Significance::Exact,
            Ok(change) if change.significant() => Significance::Significant,
            Ok(_) => Significance::Insignificant,
        }
    }

    /// The figure with its mark, within parentheses where it has any.
    fn text(&self) -> String {
        let (figure, mark) = (self.figure.text(), self.significance().mark());
        match figure.strip_prefix('(') {
            Some(rest) => format!("({mark}{rest}"),
            None => format!("{mark}{figure}"),
        }
    }
}

impl Field {
    /// The field as every format prints it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Field::Text(text)
            | Field::Ratio { text, .. }
            | Field::Change { text, .. }
            | Field::Percent { text, .. } => text.into(),
            Field::Measured(measured) => measured.text.as_str().into(),
            Field::Compared(compared) => compared.text().into(),
            Field::Failed { what, .. } => format!("FAILED({what})").into(),
            Field::Missing => "missing".into(),
            Field::Excluded => "-".into(),
            Field::NotApplicable => "n/a".into(),
        }
    }

    /// The number in the field, unrounded.
    pub fn value(&self) -> Option<f64> {
        match self {
            Field::Measured(measured) => Some(measured.value),
            Field::Compared(compared) => compared.figure.value(),
            Field::Ratio { value, .. } | Field::Change { value, .. } | Field::Percent { value, .. } => {
                Some(*value)
            }
            _ => None,
        }
    }

    /// The field's value where it was measured, with its evidence.
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Field::Measured(measured) => Some(measured),
            _ => None,
        }
    }
}

/// How tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Plain text for commit messages and mail, 75 columns wide.
    #[default]
    Text,
    /// GitHub-flavoured Markdown.
    Markdown,
    /// One line a field, under one header for all tables.
    Csv,
    /// Everything, footnotes and evidence included.
    Json,
}

/// Writes all `tables`, ending in a newline. Labels come from matrix files
/// and failures from guests: neither gets a control character through to the
/// terminal.
pub fn render(tables: &[Table], format: Format) -> String {
    let mut tables: Vec<Table> = tables.iter().cloned().map(scrubbed).collect();
    if matches!(format, Format::Text | Format::Markdown) {
        share_footnotes(&mut tables);
    }
    match format {
        Format::Text => text::render(&tables),
        Format::Markdown => markdown::render(&tables),
        Format::Csv => csv::render(&tables),
        Format::Json => json::render(&tables),
    }
}

/// Leaves to the last of a table's blocks the footnotes that all before it have too.
fn share_footnotes(tables: &mut [Table]) {
    for n in 1..tables.len() {
        let (before, next) = (&tables[n - 1], &tables[n]);
        if before.block.is_some() && before.title == next.title && before.footnotes == next.footnotes {
            tables[n - 1].footnotes.clear();
        }
    }
}

fn scrubbed(mut table: Table) -> Table {
    scrub(&mut table.title);
    table.block.iter_mut().for_each(scrub);
    table.header.iter_mut().for_each(|c| scrub(&mut c.title));
    table.footnotes.iter_mut().for_each(scrub);
    table.lines.iter_mut().for_each(scrub);
    for field in table.rows.iter_mut().flatten() {
        match field {
            Field::Text(text) => scrub(text),
            Field::Measured(m) => {
                scrub(&mut m.unit);
                scrub(&mut m.metric);
                scrub(&mut m.cell.0);
            }
            Field::Compared(compared) => {
                if let Err(Untested::Unlike(why)) = &mut compared.tested {
                    scrub(why);
                }
            }
            Field::Failed { what, cell, story } => {
                scrub(what);
                scrub(&mut cell.0);
                scrub(story);
            }
            _ => {}
        }
    }
    table
}

/// Blanks for white space, `?` for other control characters and for those
/// that change the order of what follows or take no room.
pub fn scrub(text: &mut String) {
    let invisible = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    if text.chars().any(|c| c.is_control() || invisible(c)) {
        *text = text
            .chars()
            .map(|c| match c {
                '\t' | '\n' | '\r' => ' ',
                c if c.is_control() || invisible(c) => '?',
                c => c,
            })
            .collect();
    }
}

#[cfg(test)]
mod tests;
