//! What a check found, in words.

use super::block::{Row, text_of};
use super::judge::{Claim, Compared, Convention, Figure, Habit, Verdict, Way};
use super::number::{Mark, Operand};
use super::shapes::Series;
use super::{Counts, Doubt, FindingKind, Recomputed, Report};
use crate::report::scrub;
use crate::stats;

/// Percentages of one line that are named.
const MOST_NAMED: usize = 5;
/// Characters of a label that are shown.
const LONGEST: usize = 60;

pub(super) fn text(report: &Report) -> String {
    let mut file = report.file.clone();
    scrub(&mut file);
    let mut out = String::new();
    for finding in &report.findings {
        let kind = match finding.kind {
            FindingKind::ReadAs => "read as",
            FindingKind::Covers => "note",
            FindingKind::Wrong => "wrong",
            FindingKind::Truncated => "truncated",
            FindingKind::WithinRounding => "within rounding",
            FindingKind::NotChecked => "not checked",
        };
        out.push_str(&format!("{file}:{}: {kind}: {}\n", finding.line, finding.message));
    }
    out.push_str(&format!("{file}: {}\n", summary(report)));
    out
}

fn summary(report: &Report) -> String {
    let mut left = match report.unchecked {
        0 => String::new(),
        n => format!("; {} not checked", count(n, "percentage")),
    };
    if report.unlisted > 0 {
        left.push_str(&format!("; {} not listed", count(report.unlisted, "finding")));
    }
    if report.is_empty() {
        return format!("no table with percentages found: nothing was checked{left}");
    }
    let counts = |n: &Counts| {
        let Counts { right, within_rounding, truncated, wrong, .. } = n;
        format!("{right} right, {within_rounding} within rounding, {truncated} truncated, {wrong} wrong")
    };
    let percentages = count(report.percentages.checked, "percentage");
    let mut out = format!("{}; {percentages}", count(report.tables, "table"));
    if report.percentages.checked > 0 {
        out.push_str(&format!(": {}", counts(&report.percentages)));
    }
    if report.others.checked > 0 {
        let others = count(report.others.checked, "other figure");
        out.push_str(&format!("; {others}: {}", counts(&report.others)));
    }
    out + &left
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Text of a mail, fit for a terminal.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    scrub(&mut shown);
    shown
}

/// What a series is about, for the reader to agree or not.
pub(super) fn about(series: &Series, way: &Way, convention: Convention) -> String {
    let title = if series.title.is_empty() { "change".to_string() } else { shown(&series.title) };
    let claim = series.figures.first().map(|f| f.claim);
    let formula = match (claim, convention) {
        (Some(Claim::Smaller(_)), _) => "new < base",
        (Some(Claim::Factor(_)), Convention::Growth) => "new / base",
        (Some(Claim::Factor(_)), Convention::Decline) => "base / new",
        (_, Convention::Growth) => "(new - base) / base",
        (_, Convention::Decline) => "(base - new) / base, positive is a decrease",
    };
    format!("{title}: {}: {formula}", of(series, way))
}

/// What is compared with what.
fn of(series: &Series, way: &Way) -> String {
    let label = |label: &str, line| match label {
        "" => format!("line {line}"),
        label => shown(label),
    };
    let column = |n: usize| series.columns.get(n).map_or(format!("column {}", n + 1), |name| shown(name));
    match way {
        Way::Rows { base, new } => {
            format!("{} against {}", label(&new.label, new.line), label(&base.label, base.line))
        }
        Way::Against { base, columns } => {
            format!("{} against {}", sum(series, columns), label(&base.label, base.line))
        }
        Way::Within { base, new } => format!("{} against {}", column(*new), column(*base)),
        Way::First => "each value against the first of its row".to_string(),
    }
}

fn sum(series: &Series, columns: &[usize]) -> String {
    let names: Vec<String> = columns.iter().map(|n| shown(&series.columns[*n])).collect();
    names.join(" + ")
}

/// What percentages would be of all columns, where they are of some and their
/// title does not say so.
pub(super) fn covers(series: &Series, way: &Way, convention: Convention) -> Option<String> {
    let Way::Against { base, columns } = way else { return None };
    let named = |n: &usize| series.title.contains(series.columns[*n].as_str());
    let follows = |f: &Figure| columns.len() == 1 && f.row.follows(f.cell, columns[0]);
    let is_plain = series.figures.iter().all(follows) || columns.iter().all(named);
    if columns.len() == series.columns.len() || is_plain {
        return None;
    }
    let all: Vec<usize> = (0..series.columns.len()).collect();
    let total = Way::Against { base, columns: all.clone() };
    let totals = series.figures.iter().filter_map(|f| expected(f, &total, convention));
    let totals: Vec<String> = totals.take(MOST_NAMED).collect();
    let covered = sum(series, columns);
    (!totals.is_empty()).then(|| {
        format!("the percentage covers {covered} alone; of {} it is {}", sum(series, &all), totals.join(", "))
    })
}

/// What stands in a figure's place if it is about that.
fn expected(figure: &Figure, way: &Way, convention: Convention) -> Option<String> {
    let (base, new) = way.operands(figure)?;
    let compared = figure.claim.compare(convention, base, new)?;
    Some(correct(&figure.claim, compared.exact, 0))
}

/// A figure in the printed one's form, with some decimals more.
fn correct(claim: &Claim, exact: f64, more: u8) -> String {
    match claim {
        Claim::Smaller(_) => if exact > 0.5 { "y" } else { "n" }.to_string(),
        Claim::Factor(n) => {
            let mark = if n.mark == Mark::Factor { "x" } else { "" };
            format!("{}{mark}", stats::fixed(exact, n.decimals.saturating_add(more)))
        }
        Claim::Percent(n) if n.signed => stats::signed_percent(exact, n.decimals.saturating_add(more)),
        Claim::Percent(n) => format!("{}%", stats::fixed(exact, n.decimals.saturating_add(more))),
    }
}

pub(super) fn recomputed(series: &Series, n: usize, way: &Way, compared: &Compared) -> Recomputed {
    let figure = &series.figures[n];
    let label = match figure.row.label.as_str() {
        "" => "this row",
        label => label,
    };
    let (printed, exact) = match figure.claim {
        Claim::Smaller(yes) => (if yes { "y" } else { "n" }.to_string(), None),
        Claim::Percent(n) | Claim::Factor(n) => {
            (n.text.to_string(), Some((compared.exact * 1e9).round() / 1e9))
        }
    };
    let compares = |row: &Row| matches!(way, Way::Rows { base, new } if [base, new].iter().any(|r| std::ptr::eq(**r, row)));
    let head = series.head.filter(|head| !compares(head));
    let place = match (head, series.titles.get(n)) {
        (Some(head), _) => format!("{} at {}", shown(label), shown(text_of(&head.cells[figure.column].item))),
        (None, Some(title)) => format!("{} at {}", shown(label), shown(title)),
        (None, None) => shown(label),
    };
    Recomputed { place, printed, expected: correct(&figure.claim, compared.exact, 0), exact }
}

/// What a figure would be under each other way that its table has.
pub(super) fn otherwise(series: &Series, figure: &Figure, convention: Convention) -> Option<String> {
    let against = series.ways.iter().filter(|way| matches!(way, Way::Against { .. }));
    let against: Vec<&Way> = against.take(MOST_NAMED).collect();
    if against.len() < 2 {
        return None;
    }
    let each = against.iter().filter_map(|way| {
        let Way::Against { columns, .. } = way else { return None };
        Some(format!("of {} {}", sum(series, columns), expected(figure, way, convention)?))
    });
    Some(each.collect::<Vec<_>>().join(", "))
}

/// What the printed numbers give, with two decimals more.
pub(super) fn exactly(figure: &Figure, compared: &Compared) -> String {
    correct(&figure.claim, compared.exact, 2)
}

pub(super) fn doubt(doubt: &Doubt, verdict: Verdict, habit: Option<Habit>) -> String {
    let Doubt { compared, words: Some(words), .. } = doubt else { return String::new() };
    let figure = &words.figure;
    let mut out = format!("{} says {}", figure.place, figure.printed);
    if doubt.unmarked {
        out.push_str(" (no % sign)");
    }
    let (base, new) = (operand(&compared.base), operand(&compared.new));
    out.push_str(&format!(", {base} to {new} gives {}", figure.expected));
    if figure.exact.is_some() && !compared.right {
        out.push_str(&format!(" ({})", words.exactly));
    }
    match verdict {
        Verdict::Truncated if compared.near && habit != Some(Habit::Truncates) => {
            out.push_str("; or the printed numbers were rounded after it was computed");
        }
        Verdict::WithinRounding => {
            out.push_str("; right for some numbers that round to the printed ones");
        }
        Verdict::Wrong if opposite(figure) => out.push_str("; the sign contradicts the other rows"),
        Verdict::Wrong => out.extend(words.otherwise.iter().map(|other| format!("; {other}"))),
        _ => {}
    }
    out
}

/// Whether only the sign is wrong.
fn opposite(figure: &Recomputed) -> bool {
    let bare = |text: &str| {
        text.trim_start_matches(['+', '-', '\u{2212}', '\u{2013}', ' '])
            .trim_end_matches(|c: char| !c.is_ascii_digit())
            .to_string()
    };
    figure.exact.is_some() && bare(&figure.printed) == bare(&figure.expected)
}

/// A number with as many decimals as were printed.
fn operand(operand: &Operand) -> String {
    let decimals = -(operand.half * 2.0).log10().round();
    stats::fixed(operand.value, decimals.clamp(0.0, 9.0) as u8)
}

pub(super) fn left(percentages: &[&str]) -> String {
    let named = percentages.iter().take(MOST_NAMED).map(|text| shown(text));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = percentages.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{named}{more}: nothing here to compute it from")
}
