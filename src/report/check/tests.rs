//! Small tables of every shape, and lines that are none.

use super::{Counts, FindingKind, Report, check};

/// Findings without those that only say how figures were read, and the counts
/// right, within rounding, truncated, wrong, not checked.
fn found(text: &str) -> (Vec<String>, [usize; 5]) {
    let report = check("f", text);
    let said = report.findings.iter().filter(|f| f.kind != FindingKind::ReadAs);
    let said = said.map(|f| format!("{}: {}", f.line, f.message)).collect();
    let Report { percentages: p, others: o, unchecked, .. } = report;
    let sum = |count: fn(&Counts) -> usize| count(&p) + count(&o);
    let counts =
        [sum(|c| c.right), sum(|c| c.within_rounding), sum(|c| c.truncated), sum(|c| c.wrong), unchecked];
    assert_eq!(sum(|c| c.checked), counts[..4].iter().sum::<usize>());
    (said, counts)
}

fn counts(text: &str) -> [usize; 5] {
    found(text).1
}

fn read_as(text: &str) -> Vec<String> {
    let findings = check("f", text).findings.into_iter().filter(|f| f.kind == FindingKind::ReadAs);
    findings.map(|f| f.message).collect()
}

const PIVOT: &str = "\
NR_CPUS     256       512       4096
onstack     19814536  19840760  20141704
offstack    19819144  19840936  20135456
difference  +0.023%   +0.001%   -0.031%
is_smaller  n         n         y
";

#[test]
fn a_pivot_is_recognised_however_it_is_quoted() {
    let quoted: String = PIVOT.lines().map(|line| format!("> > {line}\r\n")).collect();
    let listing: String = (41..).zip(PIVOT.lines()).map(|(n, line)| format!("{n}: {line}\n")).collect();
    let tabs = PIVOT.replace("  ", "\t");
    let single = PIVOT.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let framed: String = PIVOT
        .lines()
        .map(|l| format!("| {} |\n", l.split_whitespace().collect::<Vec<_>>().join(" | ")))
        .collect();
    let framed = framed.replacen("\n", "\n|:---|---:|---:|---:|\n", 1);
    let commas = PIVOT.replace("19814536", "19,814,536").replace("-0.031", "\u{2212}0.031");
    let prose = format!("With 5 CPUs and 3\nmore, on 12:\n{PIVOT}That is all, 6 of 7.\n");
    for text in [PIVOT, &quoted, &listing, &tabs, &single, &framed, &commas, &prose] {
        assert_eq!(found(text), (vec![], [6, 0, 0, 0, 0]), "{text}");
        let read = read_as(text);
        assert_eq!(read[0], "difference: offstack against onstack: (new - base) / base", "{text}");
        assert_eq!(read[1], "is_smaller: offstack against onstack: new < base", "{text}");
    }
}

#[test]
fn slips_in_a_pivot() {
    let text = PIVOT.replace("+0.001%", "+0.002").replace("-0.031%", "-0.031").replace(" y", " n");
    let (said, counts) = found(&text);
    assert_eq!(
        said,
        [
            "4: difference at 512 says +0.002 (no % sign), 19840760 to 19840936 gives +0.001% (+0.00089%)",
            "4: difference at 4096 says -0.031 (no % sign), 20141704 to 20135456 gives -0.031%",
            "5: is_smaller at 4096 says n, 20141704 to 20135456 gives y",
        ]
    );
    assert_eq!(counts, [3, 0, 0, 3, 0]);
    // A label that says percent says it for all.
    let text = PIVOT.replace("difference", "diff(%)   ").replace("%  ", "   ").replace("031%", "031");
    assert_eq!(counts, [3, 0, 0, 3, 0]);
    assert_eq!(found(&text), (vec![], [6, 0, 0, 0, 0]), "{text}");
    let (said, _) = found("a  100.0\nb  110.0\ndifference  +11%\n");
    assert_eq!(said, ["3: difference says +11%, 100.0 to 110.0 gives +10% (+10.00%)"]);
    // A difference that is no percentage is none of ours.
    let absolute = "NR_CPUS  64  128\na  100  200\nb  110  190\ndifference  +10  -10\n";
    assert_eq!(counts_of_nothing(absolute), 0);
}

fn counts_of_nothing(text: &str) -> usize {
    let report = check("f", text);
    assert!(report.is_empty() && !report.has_slips());
    assert!(report.text().contains("nothing was checked"), "{}", report.text());
    report.unchecked
}

#[test]
fn derived_rows_name_the_row_that_they_are_about() {
    let text = "\
NR_CPUS          64      512
a            100/s  missing
";
    assert_eq!(counts_of_nothing(text), 0);
    let text = "\
NR_CPUS          64      512
a               100      200
b               110  missing
c               120      190
difference b   +10%      n/a
difference c   +20%      -6%
ratio c       1.200    0.950
spread a      1.00%    2.00%
";
    let (said, counts) = found(text);
    assert_eq!(said[0], "6: difference c at 512 says -6%, 200 to 190 gives -5% (-5.00%)");
    assert_eq!(said[1], "8: 1.00%, 2.00%: nothing here to compute it from");
    assert_eq!(counts, [4, 0, 0, 1, 2]);
    assert_eq!(read_as(text)[2], "ratio c: c against a: new / base");
}

const LIST: &str = "\
    text     data  cell
25755648  9589248  onstack256
25755648  9607680  onstack512   +0.19%
25755648  9603584  offstack512  +0.15%
";

#[test]
fn a_list_says_what_its_percentages_cover() {
    let (said, judged) = found(LIST);
    assert_eq!(said, ["3: the percentage covers data alone; of text + data it is +0.05%, +0.04%"]);
    assert_eq!(judged, [2, 0, 0, 0, 0]);
    assert_eq!(read_as(LIST), ["change: data against onstack256: (new - base) / base"]);
    let total = LIST.replace("0.19", "0.05").replace("0.15", "0.04");
    assert_eq!(found(&total), (vec![], [2, 0, 0, 0, 0]));
    assert_eq!(read_as(&total), ["change: text + data against onstack256: (new - base) / base"]);
    let (said, _) = found(&LIST.replace("0.15", "0.25"));
    let wrong = "4: offstack512 says +0.25%, 9589248 to 9603584 gives +0.15% (+0.1495%); \
                 of text 0.00%, of data +0.15%, of text + data +0.04%";
    assert_eq!(said[1], wrong);
    // So it does where the percentage stands at one value.
    let beside = "a   100  200\nb   110 (+10%)  230 (+15%)\n";
    assert_eq!(found(beside), (vec![], [2, 0, 0, 0, 0]));
    // Where the title names columns, these and no others are meant.
    let text = "text  data  size of data to the first\n100  100\n120  110  +20%\n";
    assert_eq!(counts(text), [0, 0, 0, 1, 0]);
    assert_eq!(counts(&text.replace("+20", "+10")), [1, 0, 0, 0, 0]);
}

#[test]
fn a_list_against_a_baseline() {
    let text =
        "512 off stack   7.8916  +0.45%\n256 on stack (baseline)  7.8564\n512 on stack  7.8713 (+ 0.19%)\n";
    assert_eq!(found(text), (vec![], [2, 0, 0, 0, 0]));
    let text = "base   100.0  0.0%\nnew1   110.0   +10.0%\nnew2   120.0   +20.0\n";
    let (said, counts) = found(text);
    assert_eq!(said, ["3: new2 says +20.0 (no % sign), 100.0 to 120.0 gives +20.0%"]);
    assert_eq!(counts, [2, 0, 0, 1, 0]);
}

#[test]
fn columns_before_and_after() {
    let text = "\
what      before      after       change
offline   2.18s       1.01s       -53.67%
half      34m49.765s  16m10.038s  -53.58%
mixed     2 s         500 ms      -75%
";
    assert_eq!(found(text), (vec![], [3, 0, 0, 0, 0]));
    assert_eq!(read_as(text), ["change: after against before: (new - base) / base"]);
    let text = "NR_CPUS  on   off  diff   is_smaller\n256  100  110  +10%  n\n512  100  90  -10.0%  n\n";
    let (said, counts) = found(text);
    assert_eq!(said, ["3: this row says n, 100 to 90 gives y"]);
    assert_eq!(counts, [3, 0, 0, 1, 0]);
}

#[test]
fn sentences_that_lead_from_one_number_to_another() {
    let text = "It takes 16m10.038s instead,\ndown from 34m49.765s to 16m10.038s (53.58%), and\n";
    assert_eq!(found(text), (vec![], [1, 0, 0, 0, 0]));
    assert_eq!(counts("boot: 2.33s -> 1.14s (2.04x)\n"), [1, 0, 0, 0, 0]);
    let (said, _) = found("boot: 2.33s -> 1.14s (3.04x)\n");
    assert_eq!(said, ["1: boot says 3.04x, 2.33 to 1.14 gives 2.04x (2.0439x)"]);
    assert_eq!(counts("from 512 to 4096 CPUs it costs 0.05% on 3 of 4 machines\n"), [0, 0, 0, 0, 1]);
}

#[test]
fn either_sign_is_right_and_both_are_not() {
    let text = " 1-groups:  4.97 (0.00 pct)  5.06 (-1.81 pct)
 2-groups:  5.71 (0.00 pct)  5.65 (1.05 pct)
 4-groups: 6.33 (0.00 pct) 6.22 (1.74 pct)
";
    assert_eq!(found(text), (vec![], [3, 0, 0, 0, 0]));
    assert!(read_as(text)[0].ends_with("(base - new) / base, positive is a decrease"));
    let other = text.replace("(-1", "(+1").replace("(1", "(-1");
    assert_eq!(counts(&other), [3, 0, 0, 0, 0]);
    assert!(read_as(&other)[0].ends_with("(new - base) / base"));
    let (said, counts) = found(&text.replace("(1.05", "(-1.05"));
    let wrong = "2: 2-groups says -1.05 pct, 5.71 to 5.65 gives +1.05% (+1.0508%); the sign contradicts the other rows";
    assert_eq!(said, [wrong]);
    assert_eq!(counts, [2, 0, 0, 1, 0]);
    let several = "Amean 1  4.97 (   0.00%)  5.06 *  -1.81%*  5.00 (  -0.60%)\n";
    assert_eq!(found(several), (vec![], [2, 0, 0, 0, 0]));
}

#[test]
fn truncated_wrong_or_computed_before_rounding() {
    // 10/7.00 = 42.857: the printed 7.00 stands for 6.995 to 7.005.
    let row = |percent: &str| format!("a  7.00\nb  10.00  {percent}\n");
    assert_eq!(counts(&row("+42.86%")), [1, 0, 0, 0, 0]);
    assert_eq!(counts(&row("+42.85%")), [0, 0, 1, 0, 0]);
    assert_eq!(counts(&row("+42.90%")), [0, 1, 0, 0, 0]);
    assert_eq!(counts(&row("+43.90%")), [0, 0, 0, 1, 0]);
    // Whoever rounds elsewhere has not cut this one off ...
    let rounds = row("+42.85%") + "c  900.00 +12757.14%\nd 8.00 +14.29%\n";
    assert_eq!(counts(&rounds), [2, 1, 0, 0, 0]);
    // ... unless no operand's rounding can explain another one.
    let cuts = rounds + "\nx  7000000\ny  10000000  +42.85%\n";
    assert_eq!(counts(&cuts), [2, 1, 1, 0, 0]);
    let (said, _) = found(&row("+42.85%"));
    assert_eq!(
        said[0],
        "2: b says +42.85%, 7.00 to 10.00 gives +42.86% (+42.8571%); or the printed numbers were rounded after it was computed"
    );
}

#[test]
fn ties_are_rounded_away_from_zero() {
    assert_eq!(counts("a  20000\nb  20001  +0.01%\nc  19999  -0.01%\n"), [2, 0, 0, 0, 0]);
    assert_eq!(counts("a  8.0\nb  8.1  +1.3%\n"), [1, 0, 0, 0, 0]);
    assert_eq!(counts("a  12.50\nb  11.50  -8.00%\n"), [1, 0, 0, 0, 0]);
    assert_eq!(counts("a  5\nb  5  -0.00%\n"), [1, 0, 0, 0, 0]);
}

#[test]
fn what_says_nothing_of_a_change_is_left_alone() {
    assert_eq!(counts_of_nothing(""), 0);
    assert_eq!(counts_of_nothing("It is 5% faster.\n"), 1);
    assert_eq!(counts_of_nothing("used  free  share\n10    90    11%\n20    80    21%\n"), 2);
    assert_eq!(counts_of_nothing("  12.34%  swapper  [kernel]  foo\n   3.21%  bash  [kernel]  bar\n"), 2);
    assert_eq!(counts_of_nothing(" 1,234,567  cycles  # 3.2 GHz  ( +-  0.50% )\n"), 1);
    assert_eq!(counts_of_nothing("a  0\nb  5  +5%\n"), 1);
    let lkp = "%stddev     %change         %stddev\n  12345 ±  2%     -23.4%       9456 ±  3%  ops\n";
    assert_eq!(counts(lkp), [1, 0, 0, 0, 2]);
}

#[test]
fn nothing_in_a_mail_reaches_the_terminal_as_it_is() {
    let text = check("f\u{1b}", "a  1000\nb\u{1b}[31m  1100  +11%\n").text();
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.starts_with("f?:2: read as: change: the value against a: (new - base) / base\n"), "{text}");
    assert!(text.contains("f?:2: wrong: b?[31m says +11%, 1000 to 1100 gives +10% (+10.00%)\n"), "{text}");
    assert!(
        text.ends_with("f?: 1 table; 1 percentage: 0 right, 0 within rounding, 0 truncated, 1 wrong\n"),
        "{text}"
    );
}

/// Pseudo-random numbers, the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

#[test]
fn any_text_gets_an_answer() {
    const PIECES: [&str; 40] = [
        " ",
        " ",
        " ",
        "  ",
        "\t",
        "\n",
        "\n",
        "\n\n",
        "|",
        "|",
        "> ",
        "-",
        "+",
        "±",
        "(",
        ")",
        "%",
        "pct",
        "x",
        "e9",
        "1",
        "0",
        "99",
        "100.5",
        "1,000",
        "34m49.7s",
        "0.00%",
        "+5%",
        "(0.00 pct)",
        "difference",
        "is_smaller",
        "ratio",
        "y",
        "n",
        "to",
        "->",
        "(baseline)",
        "FAILED(",
        "é\u{301}",
        "\u{2212}7",
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..3000 {
        let pieces = random.below(60);
        let text: String = (0..pieces).map(|_| PIECES[random.below(PIECES.len())]).collect();
        found(&text);
        let bytes: Vec<u8> = (0..pieces).map(|_| random.below(256) as u8).collect();
        found(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn much_text_is_counted_and_not_all_listed() {
    let report = check("f", &("a  5\n".to_string() + &"b  9  +9%\n".repeat(super::MOST_FINDINGS + 10)));
    assert_eq!(report.percentages.wrong, super::MOST_FINDINGS + 10);
    assert_eq!((report.findings.len(), report.unlisted), (super::MOST_FINDINGS, 11));
    assert!(report.text().ends_with("; 11 findings not listed\n"));
    // A line of many fields is no row, and no reason to look at each with each.
    assert_eq!(counts_of_nothing(&("a  5\nb  9".to_string() + &"  +9%".repeat(20_000))), 20_000);
}
