//! Marks, intervals and their footnotes. p-values and intervals are SciPy's
//! (1.17): `ttest_ind(equal_var=False)`, `ttest_rel`, `mannwhitneyu`, `t.ppf`.

use super::*;
use crate::report::check::check;
use crate::report::html;
use crate::report::{Compared, Significance};
use crate::stats::Test;

const CELLS: [&str; 4] = ["arm64-64-n", "arm64-64-y", "arm64-512-n", "arm64-512-y"];
/// Boots of the cells above. Welch: p = 0.0580 and 2.56e-8.
const BOOTS: [[f64; 5]; 4] = [
    [5.00, 5.02, 4.98, 5.01, 4.99],
    [5.02, 5.06, 5.00, 5.04, 5.02],
    [6.00, 6.03, 5.97, 6.01, 5.99],
    [6.30, 6.33, 6.27, 6.31, 6.29],
];

/// All cells of one architecture, a run a boot.
fn booted(layout: Layout, boots: &[&[f64]]) -> Results {
    let mut results = results(layout).spec(|s| s.filter = only("arm64"));
    for (cell, boots) in CELLS.into_iter().zip(boots) {
        for (boot, value) in (1..).zip(*boots) {
            results = results.times(cell, boot, &[*value]);
        }
    }
    results
}

fn five_boots(layout: Layout) -> Results {
    booted(layout, &BOOTS.each_ref().map(|boots| boots.as_slice()))
}

fn counted(mut results: Results, perturb: bool) -> Results {
    results.samples.iter_mut().for_each(|s| s.kind = Kind::EmulatedInstructions);
    results.matrix.boot.perturb = perturb;
    results
}

fn compared(results: &Results) -> Vec<Compared> {
    let fields = tables(results).into_iter().flat_map(|t| t.rows).flatten();
    let compared = |field| match field {
        Field::Compared(compared) => Some(*compared),
        _ => None,
    };
    fields.filter_map(compared).collect()
}

#[track_caller]
fn near(value: Option<f64>, expected: f64) {
    let value = value.unwrap();
    assert!((value - expected).abs() <= expected.abs() * 1e-6, "{value} is not {expected}");
}

const DIFFERENCE: [Derived; 1] = [Derived::Difference];

#[test]
fn what_may_be_chance_is_marked() {
    // Interval of 5.028: t(0.975, 4) * 0.022804 / sqrt(5) = 0.028314, 0.563 %.
    let expected = "\
a table

NR_CPUS          64     512
onstack/s    5.0000  6.0000
offstack/s   5.0280  6.3000
difference  ~+0.56%  +5.00%

emulated wall clock (QEMU TCG): not a measure of real hardware
mean of 5 runs in 5 boots; spread (standard deviation) up to 0.45% of the
mean; 95% interval over boots up to ±0.56% of the mean
differences: Welch's t-test, the mean of each boot is one observation;
p-values corrected for 2 comparisons by Holm's method
~: not significant at 95%, may be chance
";
    let results = five_boots(pivot("hackbench.time", &DIFFERENCE));
    assert_eq!(results.print(Format::Text), expected);
    let both = compared(&results);
    let p = |at: usize| both[at].tested.as_ref().unwrap().p;
    near(p(0), 0.058_003_966_863);
    near(p(1), 2.563_381_481e-8);
}

#[test]
fn every_figure_of_a_comparison_has_its_mark_and_counts_once() {
    let derived = [Derived::Difference, Derived::Ratio, Derived::IsSmaller, Derived::Spread];
    let table = tables(&five_boots(pivot("hackbench.time", &derived))).remove(0);
    assert_eq!(
        body(&table)[2..5],
        [["difference", "~+0.56%", "+5.00%"], ["ratio", "~1.0056", "1.0500"], ["is_smaller", "~n", "n"]]
    );
    let note = "p-values corrected for 2 comparisons by Holm's method";
    assert!(table.footnotes.iter().any(|n| n.ends_with(note)), "{:?}", table.footnotes);
}

/// Alone the comparison is significant, p = 0.0428; as one of three it is not.
#[test]
fn many_comparisons_are_corrected_over_all_blocks_of_a_table() {
    let times = |mut results: Results, arch: &str| {
        let boots = [[5.00, 5.02, 4.98, 5.01, 4.99], [5.03, 5.05, 5.00, 5.03, 5.02]];
        for (cell, boots) in ["64-n", "64-y"].into_iter().zip(boots) {
            for (boot, value) in (1..).zip(boots) {
                results = results.times(&format!("{arch}-{cell}"), boot, &[value]);
            }
        }
        results
    };
    let layout = || pivot("hackbench.time", &DIFFERENCE);
    let of = |results: &Results| {
        let text = |c: &Compared| Field::Compared(Box::new(c.clone())).text().into_owned();
        compared(results).iter().map(text).collect::<Vec<_>>()
    };
    let one = times(results(layout()), "riscv64");
    near(compared(&one)[0].tested.as_ref().unwrap().p, 0.042_803_227_597);
    assert_eq!(of(&one), ["+0.52%"]);
    assert!(!one.print(Format::Text).contains("corrected"), "a single one needs no correction");
    // Three alike, in two blocks: 3 * 0.0428 = 0.1284.
    let mut three = times(times(results(layout()).spec(|s| s.filter.clear()), "riscv64"), "arm64");
    for sample in three.samples.clone().into_iter().filter(|s| s.cell.0.starts_with("arm64")) {
        let cell = CellId(sample.cell.0.replace("64-64", "64-512"));
        three.samples.push(Sample { cell, ..sample });
    }
    assert_eq!(of(&three), ["~+0.52%"; 3]);
    near(compared(&three)[2].tested.as_ref().unwrap().adjusted, 3.0 * 0.042_803_227_597);
    assert_eq!(three.print(Format::Json).matches("corrected for 3 comparisons").count(), 2);
}

#[test]
fn one_boot_a_side_tells_nothing() {
    let results = booted(pivot("hackbench.time", &DIFFERENCE), &[&[5.0], &[5.5], &[6.0], &[6.0, 6.1]]);
    let table = tables(&results).remove(0);
    assert_eq!(body(&table)[2], ["difference", "?+10.00%", "?+0.83%"]);
    let note = "?: too few boots to tell difference from chance (2 a side are needed)";
    assert_eq!(table.footnotes.last().unwrap(), note);
    assert!(!table.footnotes.iter().any(|n| n.contains("t-test")), "nothing was tested");
}

#[test]
fn runs_within_a_boot_are_no_repetition() {
    let results = results(pivot("hackbench.time", &DIFFERENCE))
        .times("riscv64-64-n", 1, &[5.0, 5.0, 5.01, 4.99])
        .times("riscv64-64-y", 1, &[9.0, 9.0, 9.01, 8.99]);
    assert_eq!(body(&tables(&results)[0])[2][1], "?+80.00%");
}

#[test]
fn counts_that_repeat_are_exact() {
    let boots: [&[f64]; 4] = [&[5.0], &[5.001], &[6.0, 6.0], &[6.0, 6.0]];
    let layout = || pivot("hackbench.time", &DIFFERENCE);
    let table = tables(&counted(booted(layout(), &boots), false)).remove(0);
    assert_eq!(body(&table)[2], ["difference", "+0.02%", "0.00%"]);
    let note = "differences are exact: counts repeat under one seed, others may differ";
    assert_eq!(table.footnotes.last().unwrap(), note);
    // One boot under a seed of its own has not been seen to repeat.
    let seeded = tables(&counted(booted(layout(), &boots), true)).remove(0);
    assert_eq!(body(&seeded)[2], ["difference", "?+0.02%", "0.00%"]);
    assert!(!seeded.footnotes.iter().any(|n| n == note));
    // Sizes are exact, and need not be explained.
    let sizes = results(pivot("vmlinux.file", &DIFFERENCE))
        .sizes("vmlinux.file", &[("riscv64-64-n", 1000.0), ("riscv64-64-y", 1001.0)]);
    let sizes = tables(&sizes).remove(0);
    assert_eq!(body(&sizes)[2][1], "+0.10%");
    assert_eq!(sizes.footnotes[0], "exact: counted, not timed");
    assert!(!sizes.footnotes.iter().any(|n| n.contains("difference")));
}

/// Differences of the pairs 1.1e-3, 1.0e-3, 9e-4, 1.2e-3, 9e-4: ttest_rel gives
/// p = 6.27e-5, where without pairs it is 0.99.
#[test]
fn counts_under_seeds_are_paired() {
    let boots: [&[f64]; 2] = [&[1.0, 1.1, 0.93, 1.21, 1.04], &[1.0011, 1.1010, 0.9309, 1.2112, 1.0409]];
    let layout = pivot("hackbench.time", &DIFFERENCE);
    let paired = compared(&counted(booted(layout.clone(), &boots), true)).remove(0);
    let change = paired.tested.as_ref().unwrap();
    assert_eq!((change.test, paired.significance()), (Test::PairedT, Significance::Significant));
    near(change.p, 6.270_546_705e-5);
    let unpaired = counted(booted(layout, &boots), false);
    assert_eq!(compared(&unpaired)[0].significance(), Significance::Insignificant);
    assert!(unpaired.print(Format::Text).contains("~+0.10%"));
}

/// `mannwhitneyu(method="asymptotic")` of the tied pair gives 0.0714.
#[test]
fn ranks_on_request() {
    let results = five_boots(pivot("hackbench.time", &DIFFERENCE)).spec(|s| s.test = Unpaired::MannWhitney);
    let both = compared(&results);
    assert_eq!(both[0].tested.as_ref().unwrap().test, Test::MannWhitney);
    near(both[0].tested.as_ref().unwrap().p, 0.071_369_010_924);
    near(both[1].tested.as_ref().unwrap().p, 2.0 / 252.0);
    assert!(results.print(Format::Text).contains("differences: Mann-Whitney U test, the mean"));
    let few = booted(pivot("hackbench.time", &DIFFERENCE), &[&[1.0, 1.1, 1.2], &[2.0, 2.1, 2.2]])
        .spec(|s| s.test = Unpaired::MannWhitney);
    assert!(few.print(Format::Text).contains("(4 a side are needed)"), "{}", few.print(Format::Text));
}

#[test]
fn other_kinds_are_not_held_against_each_other() {
    let mut results = five_boots(pivot("hackbench.time", &DIFFERENCE));
    let other = results.samples.iter_mut().filter(|s| s.cell.0 == "arm64-64-y");
    other.for_each(|s| s.kind = Kind::KvmWallClock);
    let table = tables(&results).remove(0);
    assert_eq!(body(&table)[2], ["difference", "?+0.56%", "+5.00%"]);
    let note = "?: not tested: KVM wall clock cannot be held against emulated wall clock";
    assert_eq!(table.footnotes.last().unwrap(), note);
}

/// The geometric mean of both rows in each boot is one observation: Welch's p
/// of these is 3.95e-6.
#[test]
fn comparisons_and_their_geometric_mean() {
    let results = five_boots(compare("hackbench.time"));
    let table = tables(&results).remove(0);
    assert_eq!(
        body(&table),
        [
            ["64-cpus", "5.0000", "(0.00 pct)", "5.0280", "(~0.56 pct)"],
            ["512-cpus", "6.0000", "(0.00 pct)", "6.3000", "(5.00 pct)"],
            ["geometric mean", "1.0000", "(0.00 pct)", "1.0276", "(2.76 pct)"],
        ]
    );
    let all = compared(&results);
    near(all[2].tested.as_ref().unwrap().p, 3.949_965_664e-6);
    assert_eq!((all.len(), &all[2].between), (4, &all[3].between));
    assert!(table.footnotes.iter().any(|n| n.contains("corrected for 3 comparisons")));
}

/// Text of 1000 and data of (2, 3): of the sum the differences are tested in
/// each boot.
#[test]
fn sums_of_a_list_are_tested_as_sums() {
    let both = ListColumn::Difference(vec!["hackbench.time".into(), "other.time".into()]);
    let mut results =
        five_boots(list(&[ListColumn::Label, both, ListColumn::Ratio(vec!["other.time".into()])]));
    for sample in results.samples.clone() {
        // What one is above its mean the other is below: their sum never varies.
        let value = 10.0 - sample.value;
        results.samples.push(Sample { metric: "other.time".into(), value, ..sample });
    }
    let rows = body(&tables(&results)[0]);
    assert_eq!(rows[0][1..], ["", ""]);
    assert_eq!(rows[1][1..], ["~0.00%", "~0.9944"]);
    // No spread at all, and yet no difference: p = 1.
    near(compared(&results)[0].tested.as_ref().unwrap().p, 1.0);
    let notes = &tables(&results)[0].footnotes;
    assert!(notes.iter().any(|n| n.contains("Welch's t-test")), "{notes:?}");
}

// --- intervals ---

#[test]
fn intervals_beside_values() {
    let results = five_boots(pivot("hackbench.time", &DIFFERENCE)).spec(|s| s.interval = true);
    let table = tables(&results).remove(0);
    assert_eq!(
        body(&table)[..2],
        [
            ["onstack/s", "5.0000 ±0.0196", "6.0000 ±0.0278"],
            ["offstack/s", "5.0280 ±0.0283", "6.3000 ±0.0278"],
        ]
    );
    let note =
        "±: 95% interval of the mean over boots, by Student's t, the mean of each boot being one observation";
    assert_eq!(table.footnotes[2], note);
    let json: serde_json::Value = serde_json::from_str(&results.print(Format::Json)).unwrap();
    let interval = &json[0]["rows"][1][1]["interval"];
    near(interval[0].as_f64(), 5.028 - 0.028_314_295_540);
    near(interval[1].as_f64(), 5.028 + 0.028_314_295_540);
    assert_eq!(json[0]["rows"][1][1]["boots"], 5);
}

#[test]
fn bars_of_plots_are_intervals_where_there_are_some_and_say_so() {
    let page =
        |results: &Results| html::render(&html::Page { tables: &tables(results), ..Default::default() });
    let boots = page(&five_boots(pivot("hackbench.time", &[])));
    assert!(boots.contains("Bars are 95% intervals over boots."), "{boots}");
    let of = |runs: [&[f64]; 2]| {
        let results = results(pivot("hackbench.time", &[])).spec(|s| s.filter = only("arm64"));
        page(&results.times(CELLS[0], 1, runs[0]).times(CELLS[2], 1, runs[1]))
    };
    let one = of([&[1.0, 2.0], &[2.0, 3.0]]);
    assert!(one.contains("from the smallest to the largest sample"), "{one}");
    let exact = of([&[1.0], &[2.0]]);
    assert!(exact.contains("<figure>") && !exact.contains("Bars"), "{exact}");
}

#[test]
fn too_few_boots_for_an_interval_are_told() {
    let of = |boots: &[&[f64]]| booted(pivot("hackbench.time", &[]), boots).spec(|s| s.interval = true);
    let table = tables(&of(&[&[5.0], &[5.0, 6.0]])).remove(0);
    // t(0.975, 1) = 12.7062: 12.7062 * 0.70711 / sqrt(2) = 6.3531.
    assert_eq!([&body(&table)[0][1], &body(&table)[1][1]], ["5.0000 ±?", "5.5000 ±6.3531"]);
    assert_eq!(table.footnotes[3], "±?: interval unknown, it needs 2 boots");
    let reach = "95% interval over boots up to ±115.51% of the mean, unknown where boots are too few";
    assert!(table.footnotes[1].ends_with(reach), "{:?}", table.footnotes);
    // Counts that repeat have none and need none.
    let table = tables(&counted(of(&[&[5.0], &[5.0, 6.0]]), false)).remove(0);
    assert_eq!([&body(&table)[0][1], &body(&table)[1][1]], ["5.0000", "5.5000 ±6.3531"]);
    assert_eq!(table.footnotes[3], "no interval: repeats to the last digit");
}

/// Of six observations the first and the last, of seven too (binomial: the
/// second to the sixth hold 87.5 %).
#[test]
fn medians_have_intervals_of_their_own() {
    let of = |boots: &[f64]| {
        booted(pivot("hackbench.time", &DIFFERENCE), &[boots, boots])
            .spec(|s| (s.interval, s.statistic, s.decimals) = (true, Statistic::Median, Some(1)))
    };
    let results = of(&[4.0, 2.0, 6.0, 1.0, 3.0, 15.0]);
    let table = tables(&results).remove(0);
    assert_eq!(body(&table)[0][1], "3.5 [1.0, 15.0]");
    let note =
        "[ ]: 95% interval of the median over boots, from one boot's median to another's, by their order";
    assert_eq!(table.footnotes[2], note);
    // 15 is 11.5 above the median: 328.57 % of it.
    let reach = "; 95% interval over boots up to ±328.57% of the median";
    assert!(table.footnotes[1].ends_with(reach), "{:?}", table.footnotes);
    assert!(table.footnotes.iter().any(|n| n.contains("the median of each boot is one observation")));
    let few = tables(&of(&[4.0, 2.0, 6.0, 1.0, 3.0])).remove(0);
    assert_eq!(body(&few)[0][1], "3.0 ±?");
    assert_eq!(few.footnotes[2], "±?: interval unknown, it needs 6 boots");
    assert!(results.print(Format::Markdown).contains("| 3.5 \\[1.0, 15.0\\] |"));
}

// --- formats ---

#[test]
fn every_format_has_the_marks() {
    let results = five_boots(compare("hackbench.time"));
    let csv = results.print(Format::Csv);
    let has = |line: &str| assert!(csv.lines().any(|l| l.starts_with(line) || l.ends_with(line)), "{csv}");
    has("a table,,64-cpus,offstack change,(~0.56 pct),0.55");
    has(",not significant");
    has("a table,,512-cpus,offstack change,(5.00 pct),4.99");
    has(",%,,,,,,,,,significant");
    assert!(
        results
            .print(Format::Markdown)
            .contains("| 64-cpus | 5.0000 | (0.00 pct) | 5.0280 | (~0.56 pct) |\n")
    );
    let json: serde_json::Value = serde_json::from_str(&results.print(Format::Json)).unwrap();
    let change = &json[0]["rows"][0][4];
    assert_eq!((&change["text"], &change["unit"]), (&"(~0.56 pct)".into(), &"%".into()));
    assert_eq!(
        (&change["significance"], &change["test"]),
        (&"not significant".into(), &"Welch's t-test".into())
    );
    near(change["value"].as_f64(), 0.56);
    near(change["p"].as_f64(), 0.058_003_966_863);
    near(change["p_corrected"].as_f64(), 0.058_003_966_863);
    let tables = tables(&results);
    let page = html::render(&html::Page { tables: &tables, ..Default::default() });
    assert!(page.contains("title=\"Welch's t-test: p = 0.0580 (corrected)\">(~0.56 pct)<"), "{page}");

    let few = booted(pivot("hackbench.time", &[Derived::Ratio]), &[&[5.0], &[5.5]]);
    let json: serde_json::Value = serde_json::from_str(&few.print(Format::Json)).unwrap();
    let ratio = &json[0]["rows"][2][1];
    assert_eq!((&ratio["text"], &ratio["significance"]), (&"?1.1000".into(), &"untested".into()));
    assert_eq!(ratio["untested"], "too few boots: the test needs 2 on each side");
}

/// What is printed can be checked as mail.
#[test]
fn marks_and_intervals_stand_up_to_the_check() {
    let layouts =
        || [pivot("hackbench.time", &[Derived::Difference, Derived::IsSmaller]), compare("hackbench.time")];
    let six = [[1.0, 1.5, 1.25, 1.0, 1.5, 1.25], [1.5, 2.0, 1.75, 1.5, 2.0, 1.75]];
    let six: Vec<&[f64]> = six.iter().cycle().take(4).map(|boots| boots.as_slice()).collect();
    for layout in layouts() {
        for (statistic, boots) in [(Statistic::Mean, 2), (Statistic::Median, 6), (Statistic::Mean, 1)] {
            let boots: Vec<&[f64]> = six.iter().map(|all| &all[..boots]).collect();
            let results = booted(layout.clone(), &boots).spec(|s| {
                (s.interval, s.statistic, s.decimals, s.percent_decimals) = (true, statistic, Some(2), 0)
            });
            for format in [Format::Text, Format::Markdown] {
                let text = results.print(format);
                let report = check("mail", &text);
                let percentages = &report.percentages;
                assert!(percentages.checked >= 2, "{text}{}", report.text());
                assert_eq!(percentages.checked, percentages.right, "{text}{}", report.text());
            }
        }
    }
}

// --- no figure without all that it is computed from ---

/// The cell on the left has a base, the one on the right has none.
#[test]
fn nothing_is_derived_from_a_failed_base() {
    let derived = [Derived::Difference, Derived::Ratio, Derived::IsSmaller, Derived::Spread];
    let failed = |layout| {
        let good: Vec<&[f64]> = BOOTS.iter().map(|boots| boots.as_slice()).collect();
        booted(layout, &good).failed("arm64-512-n", Stage::Boot, "panic", "")
    };
    let rows = body(&tables(&failed(pivot("hackbench.time", &derived)))[0]);
    let right: Vec<&str> = rows.iter().map(|row| row[2].as_str()).collect();
    assert_eq!(right, ["FAILED(panic)", "6.3000", "n/a", "n/a", "n/a", "n/a", "0.35%"]);
    let rows = body(&tables(&failed(compare("hackbench.time")))[0]);
    assert_eq!(rows[1], ["512-cpus", "FAILED(panic)", "n/a", "6.3000", "n/a"]);
    assert_eq!(rows[2], ["geometric mean", "n/a", "n/a", "n/a", "n/a"]);
    assert_eq!(compared(&failed(compare("hackbench.time"))).len(), 1);
}

#[test]
fn no_sum_over_some_of_a_cells_metrics() {
    let both = || vec!["hackbench.time".to_string(), "other.time".to_string()];
    let layout = list(&[ListColumn::Difference(both()), ListColumn::Ratio(both())]);
    let mut results = five_boots(layout);
    // The other metric is of three cells: one lacks it, one has a failed benchmark.
    for sample in results.samples.clone().into_iter().filter(|s| s.cell.0 != "arm64-64-y") {
        results.samples.push(Sample { metric: "other.time".into(), ..sample });
    }
    let mut results = results.failed("arm64-512-y", Stage::Benchmark, "timeout", "");
    results.failures.values_mut().flatten().for_each(|f| f.benchmark = Some("other".into()));
    let rows = body(&tables(&results)[0]);
    assert_eq!(rows, [["", ""], ["n/a", "n/a"], ["+20.00%", "1.2000"], ["n/a", "n/a"]]);
}

#[test]
fn totals_of_unlike_numbers_of_boots_are_not_compared() {
    for (statistic, difference) in
        [(Statistic::Sum, "n/a"), (Statistic::Count, "n/a"), (Statistic::Mean, "~0.00%")]
    {
        let boots: [&[f64]; 4] = [&[1.0, 1.1], &[1.0, 1.05, 1.1], &[2.0, 2.1], &[2.0, 2.1]];
        let derived = [Derived::Difference, Derived::Ratio, Derived::IsSmaller];
        let results = booted(pivot("hackbench.time", &derived), &boots).spec(|s| s.statistic = statistic);
        let rows = body(&tables(&results)[0]);
        assert_eq!(rows[2][1], difference, "{statistic}");
        assert!(statistic == Statistic::Mean || (rows[3][1] == "n/a" && rows[4][1] == "n/a"));
        assert_ne!(rows[2][2], "n/a", "{statistic}");
    }
}

#[test]
fn no_value_of_a_cell_that_failed_in_one_boot() {
    for statistic in [Statistic::Sum, Statistic::Count, Statistic::Mean, Statistic::Percentile(99)] {
        let results = five_boots(pivot("hackbench.time", &DIFFERENCE))
            .failed("arm64-64-y", Stage::Boot, "hang", "")
            .spec(|s| s.statistic = statistic);
        let table = tables(&results).remove(0);
        assert_eq!((body(&table)[1][1].as_str(), body(&table)[2][1].as_str()), ("FAILED(hang)", "n/a"));
    }
    let lines = Layout::Lines { lines: vec!["{sum:hackbench.time/count:other.time}".parse().unwrap()] };
    let lines = tables(&five_boots(lines)).remove(0);
    assert_eq!(lines.lines, ["missing"], "a quotient of a value and none");
}
