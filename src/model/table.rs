//! Tables as data: what is shown where.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use indexmap::IndexMap;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::FRAMES_MAX;

/// A table as the matrix file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Printed above the table.
    pub title: String,
    /// Cells that take part: axis and values; empty means all.
    #[serde(default)]
    pub filter: BTreeMap<String, Vec<String>>,
    /// Which value stands for several samples of a cell.
    pub statistic: Statistic,
    /// Decimals of values; `None` prints integers for bytes and four decimals otherwise.
    pub decimals: Option<u8>,
    /// Significant digits of values, instead of decimals.
    #[serde(default)]
    pub significant: Option<u8>,
    /// Decimals of percentages.
    pub percent_decimals: u8,
    /// What the sign of a change means.
    #[serde(default)]
    pub sign: Sign,
    /// How differences are tested where boots belong to no pairs.
    #[serde(default)]
    pub test: Unpaired,
    /// Whether the 95 % interval over boots stands beside every value.
    #[serde(default)]
    pub interval: bool,
    /// Subtitle of each of several blocks; `None` names its place on the axes.
    #[serde(default)]
    pub block: Option<Template>,
    /// Rows and columns.
    pub layout: Layout,
}

/// What the sign of a change in percent means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// Positive is more: `(new - base) / base`.
    #[default]
    Raw,
    /// Positive is better, whichever way the metric is good: `(base - new) / base`
    /// where lower is better.
    PositiveIsBetter,
}

/// Test for observations that belong to no pairs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Unpaired {
    /// Welch's t-test: means of about normal values, any variances
    #[default]
    Welch,
    /// Mann-Whitney U test: ranks, for values of any distribution
    MannWhitney,
}

/// Rows and columns of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "layout")]
pub enum Layout {
    /// One metric; an axis across, an axis down, derived rows below; one block
    /// for each combination of the axes that are left over.
    Pivot {
        /// The metric of every field.
        metric: String,
        /// Axis whose values are the columns.
        columns: String,
        /// Axis whose values are the rows; the first is the baseline of derived rows.
        rows: String,
        /// Rows computed from the others.
        derived: Vec<Derived>,
    },
    /// An axis across, the change to its first value beside every value; one
    /// block for each combination of the axes that are left over.
    Compare {
        /// Axis whose values are the columns; the first is the base.
        columns: String,
        /// What is compared.
        rows: Rows,
        /// Whether the geometric mean of each column's ratios to the base ends the table.
        geometric_mean: bool,
    },
    /// One row a cell, columns as described, differences against a baseline row.
    List {
        /// What each column shows.
        columns: Vec<ListColumn>,
        /// A row's label.
        row: Template,
        /// Coordinates of the baseline; empty means the first row.
        baseline: BTreeMap<String, String>,
        /// Whether the baseline's label gets ` (baseline)` behind it.
        mark_baseline: bool,
    },
    /// One block of text a cell.
    Lines {
        /// The block's lines.
        lines: Vec<Template>,
    },
    /// The largest stack frames of a kernel's functions, then the frames that
    /// differ between the values of an axis; one block for each combination
    /// of the other axes.
    Frames {
        /// Axis whose values are the columns, the first being what the others
        /// are compared with; `None` shows each cell by itself.
        compare: Option<String>,
        /// So many of each kernel's largest frames.
        top: usize,
    },
}

impl Layout {
    /// Every metric that the table shows, with repetitions.
    pub fn metrics(&self) -> Vec<&str> {
        match self {
            Layout::Pivot { metric, .. } | Layout::Compare { rows: Rows::Axis { metric, .. }, .. } => {
                vec![metric]
            }
            Layout::Compare { rows: Rows::Metrics(metrics), .. } => {
                metrics.keys().map(String::as_str).collect()
            }
            Layout::List { columns, .. } => {
                let metrics = columns.iter().flat_map(|column| match column {
                    ListColumn::Label => &[],
                    ListColumn::Metric(metric) => std::slice::from_ref(metric),
                    ListColumn::Difference(metrics) | ListColumn::Ratio(metrics) => metrics.as_slice(),
                });
                metrics.map(String::as_str).collect()
            }
            Layout::Lines { lines } => {
                let pieces = lines.iter().flat_map(|line| &line.0);
                pieces.flat_map(Piece::quantities).map(|quantity| quantity.metric.as_str()).collect()
            }
            Layout::Frames { .. } => vec![FRAMES_MAX],
        }
    }
}

/// Rows of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// One metric, a row for each value of an axis.
    Axis {
        /// The axis.
        axis: String,
        /// The metric of every field.
        metric: String,
        /// A row's label.
        label: Template,
    },
    /// A row for each metric, with its label where it has one.
    Metrics(IndexMap<String, Option<String>>),
}

/// A column of a list table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListColumn {
    /// The row's label; written `label`.
    Label,
    /// The statistic of a metric; written as the metric's name.
    Metric(String),
    /// Change of the sum of the named metrics against the baseline row in
    /// percent; written `difference:METRIC` or `difference:METRIC+METRIC`.
    Difference(Vec<String>),
    /// Quotient of the sum of the named metrics and the baseline row's;
    /// written `ratio:METRIC` or `ratio:METRIC+METRIC`.
    Ratio(Vec<String>),
}

/// A row computed from other rows of a pivot table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Derived {
    /// Change to the baseline in percent.
    Difference,
    /// `row / baseline`.
    Ratio,
    /// `y` where the row's value is smaller than the baseline's, else `n`.
    IsSmaller,
    /// Sample standard deviation of each row, as percentage of its mean.
    Spread,
}

/// Which value stands for several samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Middle value, or the mean of the two middle ones.
    Median,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Sum of all values.
    Sum,
    /// How many values there are.
    Count,
    /// The value that so many percent (1 to 100) do not exceed; written `p90`.
    /// Of n sorted values it is number `trunc(n * p / 100)`, counted from 1 and
    /// at least 1: always a value that was measured, nothing in between.
    Percentile(u8),
}

impl Statistic {
    /// Names of those that have one.
    const NAMED: [(&str, Statistic); 6] = [
        ("mean", Statistic::Mean),
        ("median", Statistic::Median),
        ("min", Statistic::Min),
        ("max", Statistic::Max),
        ("sum", Statistic::Sum),
        ("count", Statistic::Count),
    ];
    /// What a user may write, with examples of percentiles.
    const WRITTEN: [&str; 9] = ["mean", "median", "min", "max", "sum", "count", "p50", "p90", "p99"];
}

impl FromStr for Statistic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Statistic::NAMED.iter().find(|(name, _)| *name == text).map(|(_, s)| *s);
        let percent = || text.strip_prefix('p').filter(|n| n.starts_with(|c: char| c.is_ascii_digit()));
        let percentile =
            || percent()?.parse().ok().filter(|n| (1..=100).contains(n)).map(Statistic::Percentile);
        named.or_else(percentile).ok_or_else(|| format!("`{text}` is no statistic"))
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Percentile(n) => write!(f, "p{n}"),
            named => {
                let name = Statistic::NAMED.iter().find(|(_, s)| s == named).map_or("", |(name, _)| name);
                f.pad(name)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Statistic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::unknown_variant(&text, &Statistic::WRITTEN))
    }
}

impl schemars::JsonSchema for Statistic {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Statistic".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<&str> = Statistic::NAMED.iter().map(|(name, _)| *name).collect();
        let pattern = format!("^({}|p([1-9][0-9]?|100))$", names.join("|"));
        schemars::json_schema!({ "type": "string", "pattern": pattern })
    }
}

impl From<Statistic> for String {
    fn from(statistic: Statistic) -> String {
        statistic.to_string()
    }
}

/// Text with places to fill in: `{AXIS}` is the label of the cell's value on
/// an axis, `{STATISTIC:METRIC}` a number, and `{STATISTIC:METRIC/STATISTIC:METRIC}`
/// the quotient of two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template(pub Vec<Piece>);

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Stands for itself.
    Text(String),
    /// The label of the cell's value on this axis.
    Axis(String),
    /// A number of the cell.
    Value(Quantity),
    /// The first number divided by the second.
    Quotient(Quantity, Quantity),
}

/// One statistic of one metric; written `p90:rcuscale.duration`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    /// Which value stands for the samples.
    pub statistic: Statistic,
    /// What was measured.
    pub metric: String,
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find(['{', '}']) {
            let inside = rest[start..].strip_prefix('{').and_then(|r| r.split_once('}'));
            let inside = inside.filter(|(name, _)| !name.contains('{'));
            let (name, after) = inside.ok_or("has a brace without its partner")?;
            if start > 0 {
                pieces.push(Piece::Text(rest[..start].to_owned()));
            }
            pieces.push(place(name)?);
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template(pieces))
    }
}

/// What stands between two braces.
fn place(text: &str) -> Result<Piece, String> {
    if !text.contains(':') {
        return Ok(Piece::Axis(text.to_owned()));
    }
    match text.split_once('/') {
        Some((top, bottom)) => Ok(Piece::Quotient(top.parse()?, bottom.parse()?)),
        None => Ok(Piece::Value(text.parse()?)),
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':');
        let (statistic, metric) = parts.ok_or_else(|| format!("has no statistic for `{text}`"))?;
        let statistic = statistic.parse().map_err(|_| format!("has the unknown statistic `{statistic}`"))?;
        Ok(Quantity { statistic, metric: metric.to_owned() })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.statistic, self.metric)
    }
}

impl Piece {
    /// What is measured for this piece.
    pub fn quantities(&self) -> Vec<&Quantity> {
        match self {
            Piece::Text(_) | Piece::Axis(_) => Vec::new(),
            Piece::Value(value) => vec![value],
            Piece::Quotient(top, bottom) => vec![top, bottom],
        }
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Text(text) => f.write_str(text),
            Piece::Axis(axis) => write!(f, "{{{axis}}}"),
            Piece::Value(value) => write!(f, "{{{value}}}"),
            Piece::Quotient(top, bottom) => write!(f, "{{{top}/{bottom}}}"),
        }
    }
}

impl TryFrom<String> for Template {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Template> for String {
    fn from(template: Template) -> String {
        template.0.iter().map(Piece::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_written_as_they_are_read() {
        for word in Statistic::WRITTEN.into_iter().chain(["p1", "p100"]) {
            assert_eq!(word.parse::<Statistic>().unwrap().to_string(), word);
        }
        for word in ["p", "p0", "p101", "p+5", "p1000", "P50", "meen", ""] {
            assert!(word.parse::<Statistic>().is_err(), "{word}");
        }
    }

    #[test]
    fn templates_are_written_as_they_are_read() {
        let text = "{HZ}: {p50:b.t} us, {sum:b.x/count:b.x} each";
        let template: Template = text.parse().unwrap();
        assert_eq!(template.0.len(), 6);
        assert_eq!(template.0[0], Piece::Axis("HZ".to_owned()));
        let p50 = Quantity { statistic: Statistic::Percentile(50), metric: "b.t".to_owned() };
        assert_eq!(template.0[2], Piece::Value(p50));
        assert_eq!(String::from(template), text);
        let fault = |text: &str| text.parse::<Template>().unwrap_err();
        assert_eq!(fault("{a"), "has a brace without its partner");
        assert_eq!(fault("a}"), "has a brace without its partner");
        assert_eq!(fault("{a{b}}"), "has a brace without its partner");
        assert_eq!(fault("{p0:b.t}"), "has the unknown statistic `p0`");
        assert_eq!(fault("{sum:b.t/b.x}"), "has no statistic for `b.x`");
    }
}
