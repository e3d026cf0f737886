//! Whether the differences that a table shows are more than chance: its
//! comparisons are corrected for their number, and footnotes say what marks mean.

use indexmap::{IndexMap, IndexSet};

use super::footnotes::in_words;
use super::{Compared, Field, Significance, Table};
use crate::model::{Kind, Statistic};
use crate::stats::{Test, Untested, correct};

/// Corrects all comparisons of a table, whose blocks `tables` are, and notes
/// how they were tested. `statistic` is what a boot's samples come to, `seeded`
/// whether boots had seeds of their own.
pub(super) fn settle(tables: &mut [Table], statistic: Statistic, seeded: bool) {
    let mut changes = IndexMap::new();
    for compared in tables.iter().flat_map(compared) {
        if let Ok(change) = &compared.tested {
            changes.entry(compared.between.clone()).or_insert_with(|| change.clone());
        }
    }
    let comparisons = correct(changes.values_mut());
    for field in tables.iter_mut().flat_map(|table| table.rows.iter_mut().flatten()) {
        if let Field::Compared(compared) = field {
            if let (Ok(change), Some(corrected)) = (&mut compared.tested, changes.get(&compared.between)) {
                change.adjusted = corrected.adjusted;
            }
        }
    }
    for table in tables {
        let notes = notes(table, comparisons, statistic, seeded);
        table.footnotes.extend(notes);
    }
}

fn compared(table: &Table) -> impl Iterator<Item = &Compared> {
    table.rows.iter().flatten().filter_map(|field| match field {
        Field::Compared(compared) => Some(&**compared),
        _ => None,
    })
}

/// How differences were tested, then each mark that occurs.
fn notes(table: &Table, comparisons: usize, statistic: Statistic, seeded: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let counts = |c: &Compared| c.significance() == Significance::Exact && c.kind != Kind::Exact;
    if !seeded && compared(table).any(counts) {
        notes.push("differences are exact: counts repeat under one seed, others may differ".to_owned());
    }
    let tests = compared(table).filter_map(|c| Some(c.tested.as_ref().ok()?.test));
    let tests: IndexSet<&str> = tests.filter(|test| *test != Test::Exact).map(named).collect();
    if !tests.is_empty() {
        let tests: Vec<&str> = tests.into_iter().collect();
        let corrected = match comparisons {
            1 => String::new(),
            n => format!("; p-values corrected for {n} comparisons by Holm's method"),
        };
        let observation = in_words(statistic);
        notes.push(format!(
            "differences: {}, the {observation} of each boot is one observation{corrected}",
            tests.join(" and ")
        ));
    }
    if compared(table).any(|c| c.significance() == Significance::Insignificant) {
        notes.push("~: not significant at 95%, may be chance".to_owned());
    }
    let reasons = compared(table).filter_map(|c| c.tested.as_ref().err()).map(untested);
    notes.extend(reasons.collect::<IndexSet<String>>());
    notes
}

fn named(test: Test) -> &'static str {
    match test {
        Test::PairedT => "paired t-test by seed",
        other => other.label(),
    }
}

fn untested(reason: &Untested) -> String {
    match reason {
        Untested::TooFew(boots) => {
            format!("?: too few boots to tell difference from chance ({boots} a side are needed)")
        }
        other => format!("?: not tested: {other}"),
    }
}
