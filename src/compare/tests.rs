use super::*;
use crate::model::{Benchmark, Direction, Failure, Kind, Stage};
use crate::report::{Format, render};
use crate::stats::ALPHA;
use crate::store::Run;

const CLOCK: Kind = Kind::EmulatedWallClock;
const COUNT: Kind = Kind::EmulatedInstructions;

const WELCH: Options = Options { test: Unpaired::Welch, threshold: 0.0, metrics: Vec::new() };

/// Normal deviates, the same for the same seed (splitmix64 and Box-Muller).
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self, mean: f64, stddev: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        mean + stddev * radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

fn names(n: u64) -> Vec<String> {
    (1..=n).map(|seed| format!("c{seed}")).collect()
}

/// A run with a cell for each seed, five boots each, values around `mean`
/// with a spread of 1 %.
fn noisy(seeds: u64, mean: f64, salt: u64) -> Run {
    let names = names(seeds);
    let mut run = Run::made_up(&names.iter().map(String::as_str).collect::<Vec<_>>(), 0);
    for (seed, name) in (1..=seeds).zip(&names) {
        let mut normal = Normal(seed * 1000 + salt);
        for boot in 1..=5 {
            run = run.measured(name, "b.time", CLOCK, Some(boot), &[normal.next(mean, mean * 0.01)]);
        }
    }
    run
}

/// One cell, one value a boot.
fn one(kind: Kind, values: &[f64]) -> Run {
    let boots = (1..).zip(values);
    boots.fold(Run::made_up(&["c"], 0), |run, (boot, v)| run.measured("c", "b.time", kind, Some(boot), &[*v]))
}

fn of(base: &Run, new: &Run) -> Comparison {
    compare(&base.results, &new.results, &WELCH)
}

#[track_caller]
fn only(comparison: &Comparison) -> &Row {
    let rows: Vec<&Row> = comparison.rows().collect();
    assert_eq!(rows.len(), 1);
    rows[0]
}

#[track_caller]
fn verdict_of(base: &Run, new: &Run) -> Verdict {
    only(&of(base, new)).verdict
}

#[track_caller]
fn reason(base: &Run, new: &Run) -> String {
    only(&of(base, new)).change.clone().unwrap_err().to_string()
}

// --- chance and change ---

#[test]
fn the_same_distribution_twenty_times_is_no_regression() {
    let comparison = of(&noisy(20, 3.0, 1), &noisy(20, 3.0, 2));
    assert_eq!(comparison.tests, 20);
    assert_eq!(comparison.count(Verdict::Insignificant), 20, "{comparison:#?}");
}

#[test]
fn five_percent_slower_is_seen_in_all_of_twenty() {
    let comparison = of(&noisy(20, 3.0, 1), &noisy(20, 3.15, 2));
    assert_eq!(comparison.count(Verdict::Regression), 20, "{comparison:#?}");
    assert_eq!(of(&noisy(20, 3.15, 2), &noisy(20, 3.0, 1)).count(Verdict::Improvement), 20);
}

/// Each test alone may err in 5 % of cases; three standard deviations of
/// that among 1000 are 2.1 %. For Mann-Whitney with five against five the
/// nearest level below is 8/252 = 3.2 %, plus or minus 1.7 %.
#[test]
fn false_alarms_are_as_rare_as_promised() {
    let (base, new) = (noisy(1000, 3.0, 1), noisy(1000, 3.0, 2));
    for (test, from, to) in [(Unpaired::Welch, 29, 71), (Unpaired::MannWhitney, 15, 49)] {
        let comparison = compare(&base.results, &new.results, &Options { test, ..WELCH });
        let alarms = comparison.rows().filter(|r| r.change.as_ref().unwrap().p.unwrap() < ALPHA).count();
        assert!((from..=to).contains(&alarms), "{test:?}: {alarms}");
        assert_eq!(comparison.count(Verdict::Insignificant), 1000);
    }
}

#[test]
fn threshold_is_for_what_is_significant() {
    let (base, new) = (noisy(1, 3.0, 1), noisy(1, 3.15, 2));
    let with = |threshold| compare(&base.results, &new.results, &Options { threshold, ..WELCH });
    assert_eq!(only(&with(2.0)).verdict, Verdict::Regression);
    assert_eq!(only(&with(20.0)).verdict, Verdict::Small);
}

#[test]
fn more_is_better_where_it_is() {
    let (mut base, mut new) = (noisy(1, 3.0, 1), noisy(1, 3.15, 2));
    for sample in base.results.samples.iter_mut().chain(&mut new.results.samples) {
        sample.better = Direction::Higher;
    }
    assert_eq!(verdict_of(&base, &new), Verdict::Improvement);
    assert_eq!(verdict_of(&new, &base), Verdict::Regression);
}

// --- which test ---

#[test]
fn a_boot_is_one_observation() {
    let run = |shift: f64| {
        let values = [1.0, 1.1, 0.9, 1.05, 0.95].map(|v| v + shift);
        Run::made_up(&["c"], 0).measured("c", "b.time", CLOCK, Some(1), &values)
    };
    assert_eq!(reason(&run(0.0), &run(1.0)), "too few boots: the test needs 2 on each side");
    let comparison = of(&run(0.0), &run(1.0));
    let Side::Values(values) = &only(&comparison).base else { panic!() };
    assert_eq!(values.boots, [(Some(1), 1.0)]);
}

#[test]
fn exact_values_need_no_test() {
    let size = |value| Run::made_up(&["c"], 0).measured("c", "vmlinux.file", Kind::Exact, None, &[value]);
    let comparison = of(&size(1000.0), &size(1001.0));
    assert_eq!((only(&comparison).verdict, comparison.tests), (Verdict::Regression, 0));
    assert_eq!(only(&comparison).change.as_ref().unwrap().percent, Some(0.1));
    assert_eq!(verdict_of(&size(1000.0), &size(999.0)), Verdict::Improvement);
    assert_eq!(verdict_of(&size(1000.0), &size(1000.0)), Verdict::Equal);
    assert_eq!(verdict_of(&size(0.0), &size(0.0)), Verdict::Equal);
    // From nothing to something is beyond any percentage.
    assert_eq!(verdict_of(&size(0.0), &size(1.0)), Verdict::Regression);
    let small = compare(&size(1000.0).results, &size(1001.0).results, &Options { threshold: 1.0, ..WELCH });
    assert_eq!(only(&small).verdict, Verdict::Small);
}

#[test]
fn counts_that_repeat_are_exact() {
    assert_eq!(verdict_of(&one(COUNT, &[1.0]), &one(COUNT, &[1.000_000_001])), Verdict::Regression);
    assert_eq!(verdict_of(&one(COUNT, &[1.0, 1.0]), &one(COUNT, &[1.0])), Verdict::Equal);
    // Counts that turn out not to repeat are tested like any others.
    let change = of(&one(COUNT, &[1.0, 1.1, 1.2]), &one(COUNT, &[1.05, 1.1, 1.3]));
    assert_eq!(only(&change).change.as_ref().unwrap().test, Test::Welch);
}

fn seeded(mut run: Run) -> Run {
    run.results.matrix.boot.perturb = true;
    run
}

#[test]
fn counts_under_seeds_are_paired() {
    // Seeds make a spread of 10 %, the change is 0.1 % under each.
    let base = [1.0, 1.1, 0.93, 1.21, 1.04];
    let new = [1.0011, 1.1010, 0.9309, 1.2112, 1.0409];
    let comparison = of(&seeded(one(COUNT, &base)), &seeded(one(COUNT, &new)));
    let row = only(&comparison);
    assert_eq!((row.change.as_ref().unwrap().test, row.verdict), (Test::PairedT, Verdict::Regression));
    assert_eq!(verdict_of(&one(COUNT, &base), &one(COUNT, &new)), Verdict::Insignificant);
    // Only boots that both have make pairs.
    let few = of(&seeded(one(COUNT, &base)), &seeded(one(COUNT, &new[..1])));
    assert_eq!(only(&few).change, Err(Untested::TooFew(2)));
    // What no seed changes is exact.
    let same = of(&seeded(one(COUNT, &[5.0, 5.0])), &seeded(one(COUNT, &[5.1, 5.1])));
    assert_eq!(only(&same).change.as_ref().unwrap().test, Test::Exact);
    assert_eq!(
        reason(&one(COUNT, &[1.0]), &seeded(one(COUNT, &base))),
        "the boots of one side alone have seeds of their own (`perturb`)"
    );
}

#[test]
fn unlike_is_not_compared() {
    let (clock, count) = (one(CLOCK, &[1.0, 1.1]), one(COUNT, &[1.0, 1.1]));
    assert_eq!(
        reason(&clock, &count),
        "emulated instruction count cannot be held against emulated wall clock"
    );
    assert_eq!(verdict_of(&clock, &count), Verdict::Untested);
    let mut other = clock.clone();
    other.results.samples.iter_mut().for_each(|s| s.unit = "ms".into());
    assert_eq!(reason(&clock, &other), "another unit or direction: s and ms");
    assert_eq!(
        reason(&with_benchmark(clock.clone(), "-l 1"), &with_benchmark(clock.clone(), "-l 2")),
        "the benchmark's command is another"
    );
    let mut mixed = clock.clone();
    mixed.results.samples[0].kind = COUNT;
    assert_eq!(only(&of(&mixed, &clock)).base, Side::Failed("mixed kinds".into()));
}

fn with_benchmark(mut run: Run, args: &str) -> Run {
    run.results.matrix.benchmarks.push(Benchmark {
        name: "b".into(),
        command: vec!["b".into(), args.into()],
        repeat: 1,
        timeout_s: 1,
        pattern: String::new(),
        metrics: IndexMap::new(),
        packages: vec![],
        files: vec![],
        section: None,
        guest: Default::default(),
        console: None,
    });
    run
}

#[test]
fn ranks_on_request() {
    let (base, new) = (noisy(1, 3.0, 1), noisy(1, 3.15, 2));
    let ranks = compare(&base.results, &new.results, &Options { test: Unpaired::MannWhitney, ..WELCH });
    assert_eq!(only(&ranks).change.as_ref().unwrap().test, Test::MannWhitney);
    assert_eq!(only(&ranks).verdict, Verdict::Regression);
}

// --- what is not there ---

fn fails(mut run: Run, cell: &str, stage: Stage) -> Run {
    let failure = Failure::new(stage, "panic", "d");
    run.results.failures.entry(CellId(cell.into())).or_default().push(failure);
    run
}

#[test]
fn lost_and_unknown_cells() {
    let good = || one(CLOCK, &[1.0, 1.1]);
    assert_eq!(verdict_of(&good(), &fails(good(), "c", Stage::Boot)), Verdict::Lost);
    assert_eq!(verdict_of(&fails(good(), "c", Stage::Boot), &good()), Verdict::NoBase);
    // Nothing was measured, though the matrix asks for it.
    let nothing = || with_benchmark(Run::made_up(&["c"], 0), "");
    assert_eq!(verdict_of(&with_benchmark(good(), ""), &nothing()), Verdict::Lost);
    // The new matrix does not ask for it.
    assert_eq!(of(&good(), &Run::made_up(&["c"], 0)).rows().count(), 0);
    // A failed boot leaves the build's sizes good.
    let size = || good().measured("c", "vmlinux.file", Kind::Exact, None, &[5.0]);
    let comparison = of(&size(), &fails(size(), "c", Stage::Boot));
    let verdicts: Vec<_> = comparison.rows().map(|r| r.verdict).collect();
    assert_eq!(verdicts, [Verdict::Lost, Verdict::Equal]);
    let other = of(&noisy(3, 1.0, 1), &noisy(2, 1.0, 2));
    assert_eq!((other.only_base, other.only_new), (vec![CellId("c3".into())], vec![]));
}

// --- confounders ---

#[test]
fn other_differences_are_told() {
    let (base, mut new) = (with_benchmark(noisy(1, 1.0, 1), "a"), with_benchmark(noisy(1, 1.0, 1), "b"));
    assert_eq!(confounders(&base, &base), Vec::<String>::new());
    let info = new.info.as_mut().unwrap();
    info.tools.insert("qemu".into(), "8".into());
    info.host.remove("cores");
    new.results.matrix.boot.vcpus = 8;
    new.results.matrix.boot.boots = 9;
    new.results.matrix.kernel.patches.push("x.patch".into());
    assert_eq!(
        confounders(&base, &new),
        [
            "host: cores: 2 -> unknown",
            "qemu: 7 -> 8",
            "boot: vcpus: 4 -> 8",
            r#"benchmark b: command: ["b","a"] -> ["b","b"]"#,
        ]
    );
    new.info = None;
    assert_eq!(confounders(&base, &new)[0], "one of the runs does not say on what host it ran");
}

// --- text ---

fn text(comparison: &Comparison) -> String {
    let mut tables = metric_tables(comparison, false);
    tables.push(summary(comparison));
    render(&tables, Format::Text)
}

#[test]
fn a_table_names_tests_and_corrections() {
    let run = |shift: f64, last: f64| {
        let mut run = Run::made_up(&["n", "y"], 0);
        for (boot, value) in (1..).zip([3.01, 2.99, 3.0, 3.02, 2.98]) {
            run = run.measured("n", "b.time", CLOCK, Some(boot), &[value + shift]);
            let odd = if boot == 5 { last } else { value };
            run = run.measured("y", "b.time", CLOCK, Some(boot), &[odd]);
        }
        let size = |run: Run, cell| run.measured(cell, "vmlinux.file", Kind::Exact, None, &[5e6]);
        size(size(run, "n"), "y")
    };
    let expected = "\
b.time (s), lower is better

SYMBOL    base     new  change          interval     verdict
n       3.0000  3.1000  +3.33%  [+2.56%, +4.10%]  regression
y       3.0000  3.0640  +2.13%  [-3.33%, +7.59%]           ~

emulated wall clock; n: 5 boots a side, the mean of each is one observation
Welch's t-test: means

summary (cells)

metric        regression  ~  =
b.time                 1  1  0
vmlinux.file           0  0  2

Welch's t-test, two-sided: 2 comparisons, p-values corrected for their
number by Holm's method, significant below 5%
interval: 95%, of the difference in percent of the base's value, each by
itself (not corrected)
exact: 2 comparisons of values that repeat to the last digit
~: not significant, may be chance
";
    assert_eq!(text(&of(&run(0.0, 2.98), &run(0.1, 3.3))), expected);
}

#[test]
fn outliers_are_told_and_stay_in() {
    let values = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 3.0];
    let comparison = of(&one(CLOCK, &values[..7]), &one(CLOCK, &values));
    let text = text(&comparison);
    assert!(text.contains("outliers (beyond Tukey's outer fences), not left out: c, new, boot 8"), "{text}");
    let Side::Values(new) = &only(&comparison).new else { panic!() };
    assert_eq!((new.boots.len(), new.estimate.max), (8, 3.0));
}

#[test]
fn names_and_numbers_of_any_kind() {
    let run = |value: f64| {
        let metric = "b.'\"; DROP\u{1b}[31m|x\n";
        (1..=3).fold(Run::made_up(&["c|'\u{7}"], 0), |run, boot| {
            run.measured("c|'\u{7}", metric, CLOCK, Some(boot), &[value * f64::from(boot)])
        })
    };
    for (base, new) in [(1e300, 1e-300), (1e-300, 1e300), (f64::MAX / 3.0, 1.0), (0.0, 0.0), (-1.0, 1.0)] {
        let comparison = of(&run(base), &run(new));
        for format in [Format::Text, Format::Markdown, Format::Csv, Format::Json] {
            let text = render(&metric_tables(&comparison, true), format);
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
            assert!(text.lines().all(|l| l.len() < 400), "{text}");
        }
    }
    assert_eq!([number(0.0, 0), number(1.5e20, 0), number(1e-13, 12)], ["0", "1.5000e20", "1.0000e-13"]);
    assert_eq!([decimals(3.4, false), decimals(123.4, false), decimals(1e9, false)], [4, 2, 0]);
    assert_eq!([decimals(5.0, true), decimals(5.5, true), decimals(0.0, false)], [0, 4, 0]);
}
