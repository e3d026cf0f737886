//! Percentages in somebody's mail, computed again: `matrix report --check`.
//!
//! Lines become items ([`line`]), lines that stand together blocks ([`block`]),
//! the figures of a block series that can be about this or that ([`shapes`]).
//! What fits most of a series is what it is about; then each figure is judged
//! by it ([`judge`]).

use std::collections::BTreeSet;

use serde::Serialize;

mod block;
mod judge;
mod line;
mod number;
mod say;
mod shapes;
#[cfg(test)]
mod tests;

use block::{Block, Row};
use judge::{Claim, Compared, Convention, Figure, Habit, Verdict, Way};
use line::{Kind, Line};
use number::Mark;
use shapes::Series;

/// Most bytes that are read: a mail is smaller.
pub const MOST_BYTES: u64 = 10 << 20;

/// Most findings that are listed; further ones are counted.
const MOST_FINDINGS: usize = 10_000;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the text, as the user gave it.
    pub file: String,
    /// Tables with a figure that could be computed again.
    pub tables: usize,
    /// Percentages in them.
    pub percentages: Counts,
    /// Ratios, `y` and `n` in them.
    pub others: Counts,
    /// Percentages that follow from nothing that is printed.
    pub unchecked: usize,
    /// Findings beyond those that are listed.
    pub unlisted: usize,
    /// What there is to say, in order of lines.
    pub findings: Vec<Finding>,
}

/// How many figures are what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All that were computed again.
    pub checked: usize,
    /// The correctly rounded value.
    pub right: usize,
    /// Not what the printed numbers give; what they were rounded from may.
    pub within_rounding: usize,
    /// Cut off where it should have been rounded.
    pub truncated: usize,
    /// Anything else.
    pub wrong: usize,
}

/// One thing to say about one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Number of the line, from 1.
    pub line: usize,
    /// What sort of thing.
    pub kind: FindingKind,
    /// The thing, in one line.
    pub message: String,
    /// The figure that is meant, where it is one.
    #[serde(flatten)]
    pub figure: Option<Recomputed>,
}

/// What is to be said about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// What figures from here on were taken to be about.
    ReadAs,
    /// What figures cover that readers may take for something else.
    Covers,
    /// A figure is not what arithmetic gives.
    Wrong,
    /// A figure was cut off instead of rounded.
    Truncated,
    /// A figure is right only for numbers before they were rounded.
    WithinRounding,
    /// Nothing printed tells whether a percentage is right.
    NotChecked,
}

/// A figure and what it should be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recomputed {
    /// Its column or row.
    pub place: String,
    /// As printed.
    pub printed: String,
    /// What the printed numbers give, with as many decimals.
    pub expected: String,
    /// What they give, unrounded; none for `y` and `n`.
    pub exact: Option<f64>,
}

impl Report {
    /// Whether a figure is wrong or truncated.
    pub fn has_slips(&self) -> bool {
        let slips = |c: &Counts| c.wrong + c.truncated;
        slips(&self.percentages) + slips(&self.others) > 0
    }

    /// Whether there was nothing to check: no table was recognised.
    pub fn is_empty(&self) -> bool {
        self.percentages.checked + self.others.checked == 0
    }

    /// For people: a line for each finding, as compilers print them, and a summary.
    pub fn text(&self) -> String {
        say::text(self)
    }

    fn add(&mut self, line: usize, kind: FindingKind, message: String, figure: Option<Recomputed>) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(Finding { line, kind, message, figure });
        } else {
            self.unlisted += 1;
        }
    }

    /// For programs.
    pub fn json(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }
}

/// Computes every percentage in `text` again. Whatever the text is, this takes
/// time and memory in proportion to its length.
pub fn check(file: &str, text: &str) -> Report {
    let mut blocks: Vec<Judged> = Vec::new();
    let mut found = Found::default();
    block::for_each_block(text, |block| {
        let judged = judged(&block, &mut found);
        blocks.extend((!judged.series.is_empty()).then_some(judged));
    });
    let habit = blocks.iter().filter_map(|b| b.habit).reduce(Habit::and);
    let mut report = Report {
        file: file.to_string(),
        tables: blocks.len(),
        percentages: Counts::default(),
        others: Counts::default(),
        unchecked: 0,
        unlisted: 0,
        findings: Vec::new(),
    };
    for block in blocks {
        let habit = block.habit.or(habit);
        for series in block.series {
            series.report(habit, &mut report);
        }
    }
    unchecked(text, &found, &mut report);
    report.findings.sort_by_key(|f| (f.line, f.kind));
    report
}

/// What has been computed again.
#[derive(Default)]
struct Found {
    /// Line and column of each figure.
    places: BTreeSet<(usize, usize)>,
    /// How many were put into words.
    worded: usize,
}

/// A block whose figures have been computed again.
struct Judged {
    series: Vec<Settled>,
    habit: Option<Habit>,
}

/// A series of which is known what it is about.
struct Settled {
    line: usize,
    about: String,
    covers: Option<String>,
    percentages: usize,
    others: usize,
    doubts: Vec<Doubt>,
}

/// A figure that is not simply right.
struct Doubt {
    line: usize,
    percent: bool,
    /// Lacks the sign that says what it is.
    unmarked: bool,
    compared: Compared,
    /// None where there are too many to list.
    words: Option<Box<Words>>,
}

/// A doubt in words.
struct Words {
    figure: Recomputed,
    /// What the printed numbers give, with two decimals more.
    exactly: String,
    /// What the figure would be, were it about something else.
    otherwise: Option<String>,
}

/// Settles the series of a block.
fn judged(block: &Block, found: &mut Found) -> Judged {
    let (mut settled, mut habits) = (Vec::new(), Vec::new());
    let mut last = None;
    for mut series in shapes::series(block) {
        series.follow(last.as_ref());
        let Some((way, convention, fit)) = judge::fitting(&series.figures, &series.ways) else { continue };
        if !series.compares && fit * 2 <= series.figures.len() {
            continue;
        }
        last = Some(way.clone());
        let (mut settling, habit) = settle(&series, way, convention, found);
        settling.covers = settling.covers.filter(|_| fit > 0);
        settled.push(settling);
        habits.extend(habit);
    }
    // The base's own `0.00 pct` says that it is the base, and nothing else.
    if !settled.is_empty() {
        found.places.extend(block.rows.iter().filter_map(own_zero));
    }
    Judged { series: settled, habit: habits.into_iter().reduce(Habit::and) }
}

fn own_zero(row: &Row) -> Option<(usize, usize)> {
    let item = row.cells[*row.marks.first()?].item;
    let zero = matches!(item.kind, Kind::Number(n) if n.mark == Mark::Percent && n.operand.value == 0.0);
    zero.then_some((row.line, item.start))
}

fn settle<'b, 't>(
    series: &Series<'b, 't>,
    way: &Way<'b, 't>,
    convention: Convention,
    found: &mut Found,
) -> (Settled, Option<Habit>) {
    let mut settled = Settled {
        line: series.figures.first().map_or(0, |f| f.row.line),
        about: say::about(series, way, convention),
        covers: say::covers(series, way, convention),
        percentages: 0,
        others: 0,
        doubts: Vec::new(),
    };
    let mut habits: Option<Habit> = None;
    for (n, figure) in series.figures.iter().enumerate() {
        let compared =
            way.operands(figure).and_then(|(base, new)| figure.claim.compare(convention, base, new));
        let Some(compared) = compared else { continue };
        found.places.insert((figure.row.line, figure.row.cells[figure.cell].item.start));
        let percent = matches!(figure.claim, Claim::Percent(_));
        *if percent { &mut settled.percentages } else { &mut settled.others } += 1;
        habits = habits.into_iter().chain(compared.habit()).reduce(Habit::and);
        let unmarked = is_unmarked(figure) && !series.percent;
        if !compared.right || unmarked {
            found.worded += 1;
            let words = || Words {
                figure: say::recomputed(series, n, way, &compared),
                exactly: say::exactly(figure, &compared),
                otherwise: say::otherwise(series, figure, convention),
            };
            let words = (found.worded <= MOST_FINDINGS).then(|| Box::new(words()));
            settled.doubts.push(Doubt { line: figure.row.line, percent, unmarked, compared, words });
        }
    }
    (settled, habits)
}

fn is_unmarked(figure: &Figure) -> bool {
    matches!(figure.claim, Claim::Percent(number) if number.mark == Mark::Plain)
}

impl Settled {
    fn report(self, habit: Option<Habit>, report: &mut Report) {
        report.add(self.line, FindingKind::ReadAs, self.about, None);
        if let Some(covers) = self.covers {
            report.add(self.line, FindingKind::Covers, covers, None);
        }
        report.percentages.checked += self.percentages;
        report.percentages.right += self.percentages;
        report.others.checked += self.others;
        report.others.right += self.others;
        for doubt in self.doubts {
            let counts = if doubt.percent { &mut report.percentages } else { &mut report.others };
            let verdict = doubt.compared.verdict(habit);
            counts.right -= 1;
            let kind = match verdict {
                Verdict::WithinRounding if !doubt.unmarked => FindingKind::WithinRounding,
                Verdict::Truncated if !doubt.unmarked => FindingKind::Truncated,
                _ => FindingKind::Wrong,
            };
            match kind {
                FindingKind::WithinRounding => counts.within_rounding += 1,
                FindingKind::Truncated => counts.truncated += 1,
                _ => counts.wrong += 1,
            }
            let message = say::doubt(&doubt, verdict, habit);
            report.add(doubt.line, kind, message, doubt.words.map(|words| words.figure));
        }
    }
}

/// Percentages that are in `text` and not in `found`: one finding a line.
fn unchecked(text: &str, found: &Found, report: &mut Report) {
    for (number, line) in (1..).zip(line::uncounted(text)) {
        let line = Line::of(number, line);
        let percentages = line.items.iter().filter_map(|item| match item.kind {
            Kind::Number(n) if n.text.ends_with(['%', 't']) => Some((item.start, n.text)),
            _ => None,
        });
        let left = percentages.filter(|(start, _)| !found.places.contains(&(number, *start)));
        let left: Vec<&str> = left.map(|(_, text)| text).collect();
        if !left.is_empty() {
            report.unchecked += left.len();
            let message = say::left(&left);
            report.add(number, FindingKind::NotChecked, message, None);
        }
    }
}
