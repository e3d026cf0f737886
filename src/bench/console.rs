//! Results that the kernel prints on its console. Pure text in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use indexmap::IndexMap;
use regex::{Captures, Regex, RegexSet};

use crate::model::{Benchmark, Console, DerivedMetric};

/// Why lines give no values: a word or two, and the whole story.
pub type Fault = (&'static str, String);

/// Values by metric, in the order of the console.
pub type Values = Vec<(String, Vec<f64>)>;

/// What printk says instead of messages that the console was too slow for.
const DROPPED: &str = "printk messages dropped";
/// Most missing samples that a message lists.
const LISTED: usize = 5;

/// Tells a benchmark's lines from the rest of the console.
#[derive(Debug)]
pub struct Filter(RegexSet);

impl Filter {
    /// For a benchmark that the kernel runs.
    ///
    /// # Errors
    /// A pattern of the definition does not compile.
    pub fn new(console: &Console) -> Result<Filter, regex::Error> {
        let ours = console.lines.iter().map(|l| l.holds.as_str());
        RegexSet::new(ours.chain([console.done.as_str(), console.error.as_str(), DROPPED])).map(Filter)
    }

    /// Whether the line is one that the benchmark's result depends on.
    pub fn keeps(&self, line: &str) -> bool {
        self.0.is_match(text(line))
    }
}

/// A line without what printk puts in front of it: `[    1.234567] `, and with
/// CONFIG_PRINTK_CALLER the thread or the CPU, `[    1.234567][   T71] `
/// (`info_print_prefix` in kernel/printk/printk.c).
fn text(line: &str) -> &str {
    static PREFIX: OnceLock<Regex> = OnceLock::new();
    #[allow(clippy::expect_used)] // a constant, compiled in every test of this file
    let prefix = PREFIX.get_or_init(|| {
        Regex::new(r"^(?:<\d+>)?(?:\[ *\d+\.\d{6}\])?(?:\[ *[TC]\d+\])? ?").expect("constant pattern")
    });
    let line = line.trim_end_matches(['\r', '\n']);
    prefix.find(line).map_or(line, |m| &line[m.end()..])
}

/// The first line that `pattern` matches.
///
/// # Errors
/// The pattern does not compile.
pub fn first<'a>(lines: &'a [String], pattern: &str) -> Result<Option<&'a String>, regex::Error> {
    let pattern = Regex::new(pattern)?;
    Ok(lines.iter().find(|line| pattern.is_match(text(line))))
}

/// Reads a benchmark's values from its lines; `ready` is when the guest's init
/// had nothing more to do, by the clock of the kernel's `start`.
///
/// # Errors
/// Any line is damaged, there twice or not there: the whole is no result then.
pub fn parse(
    benchmark: &Benchmark,
    console: &Console,
    lines: &[String],
    ready: Option<u64>,
) -> Result<Values, Fault> {
    let mut read = Read::default();
    let compiled = |pattern: &str| Regex::new(pattern).map_err(|e| ("no result", format!("pattern: {e}")));
    for (kind, rule) in console.lines.iter().enumerate() {
        let (holds, is) = (compiled(&rule.holds)?, compiled(&rule.is)?);
        for line in lines.iter().filter(|l| holds.is_match(text(l))) {
            let damaged = || ("damaged line", format!("'{line}' is not as the kernel prints it"));
            let captures = is.captures(text(line)).ok_or_else(damaged)?;
            read.line(kind, &is, &captures).map_err(|why| match why {
                Wrong::Number => damaged(),
                Wrong::Again => ("line twice", format!("'{line}' is there more than once")),
            })?;
        }
        if !read.kinds.contains(&kind) {
            let why = format!("no line with '{}' is on the console{}", rule.holds, dropped(lines));
            return Err(("lines lost", why));
        }
    }
    read.complete(console).map_err(|why| ("lines lost", why + &dropped(lines)))?;
    if let (Some(start), Some(ready)) = (read.start, ready) {
        if start < ready {
            let late = std::time::Duration::from_nanos(ready - start);
            let why = format!("the measurement began {late:.3?} before the guest's init had nothing to do");
            return Err(("too early", format!("{why}: {}", console.early)));
        }
    }
    read.metrics(benchmark, console).map_err(|why| ("no result", why))
}

/// What printk says of lost lines, if it does.
fn dropped(lines: &[String]) -> String {
    let said = lines.iter().find(|l| l.contains(DROPPED));
    said.map_or_else(String::new, |line| format!("; it says: {}", text(line)))
}

/// What is wrong with a line that has the right form.
enum Wrong {
    /// A number is too large.
    Number,
    /// It was there already.
    Again,
}

/// What was read so far.
#[derive(Default)]
struct Read {
    /// Values of every group that is no key.
    values: BTreeMap<String, Vec<f64>>,
    /// Numbers of the samples of each series.
    samples: BTreeMap<String, BTreeSet<u64>>,
    /// How many samples the kernel says that a series has.
    counts: BTreeMap<String, u64>,
    /// When the measurement began.
    start: Option<u64>,
    /// Kinds of lines that are there.
    kinds: BTreeSet<usize>,
}

impl Read {
    fn line(&mut self, kind: usize, is: &Regex, captures: &Captures<'_>) -> Result<(), Wrong> {
        let group = |name| captures.name(name).map(|m| m.as_str());
        let number = |text: &str| text.parse::<u64>().map_err(|_| Wrong::Number);
        let series = group("series").unwrap_or_default().to_owned();
        let again = if let Some(index) = group("index") {
            !self.samples.entry(series).or_default().insert(number(index)?)
        } else if let Some(count) = group("count") {
            self.counts.insert(series, number(count)?).is_some()
        } else {
            self.kinds.contains(&kind)
        };
        if again {
            return Err(Wrong::Again);
        }
        self.kinds.insert(kind);
        if let Some(start) = group("start") {
            self.start = Some(number(start)?);
        }
        let keys = ["series", "index", "count", "start"];
        for name in is.capture_names().flatten().filter(|name| !keys.contains(name)) {
            let value = group(name).unwrap_or_default().parse::<f64>().map_err(|_| Wrong::Number)?;
            self.values.entry(name.to_owned()).or_default().push(value);
        }
        Ok(())
    }

    /// Whether there are as many samples as the kernel says.
    fn complete(&self, console: &Console) -> Result<(), String> {
        for (series, count) in &self.counts {
            let there = self.samples.get(series).map_or(0, BTreeSet::len);
            if there as u64 != *count {
                let missing = self.missing(series, console.first, *count);
                return Err(format!(
                    "of series {series} the kernel has {count} values, the console {there}; missing: {missing}"
                ));
            }
        }
        let counted = |series: &&String| self.counts.is_empty() || self.counts.contains_key(*series);
        if let Some(series) = self.samples.keys().find(|series| !counted(series)) {
            return Err(format!("of series {series} there is no count of values"));
        }
        let there: usize = self.samples.values().map(BTreeSet::len).sum();
        let total = console.total.as_ref().and_then(|name| self.values.get(name)?.first());
        if let Some(total) = total.filter(|total| **total != there as f64) {
            return Err(format!("the kernel has {total} values in all, the console {there}"));
        }
        // As many as there should be, but others.
        let odd = |numbers: &BTreeSet<u64>| {
            numbers.first() != Some(&console.first)
                || numbers.last().is_some_and(|last| last - console.first >= numbers.len() as u64)
        };
        match self.samples.iter().find(|(_, numbers)| odd(numbers)) {
            Some((series, _)) => {
                Err(format!("the numbers of the values of series {series} are not consecutive"))
            }
            None => Ok(()),
        }
    }

    fn missing(&self, series: &str, first: u64, count: u64) -> String {
        let none = BTreeSet::new();
        let there = self.samples.get(series).unwrap_or(&none);
        let mut all = (first..first.saturating_add(count)).filter(|n| !there.contains(n));
        let mut listed: Vec<_> = all.by_ref().take(LISTED).map(|n| n.to_string()).collect();
        if all.next().is_some() {
            listed.push("...".to_owned());
        }
        listed.join(", ")
    }

    fn metrics(mut self, benchmark: &Benchmark, console: &Console) -> Result<Values, String> {
        for (name, divisor) in &console.divide {
            self.values.entry(name.clone()).or_default().iter_mut().for_each(|v| *v /= divisor);
        }
        let mut all: IndexMap<String, Vec<f64>> = self.values.into_iter().collect();
        for (name, derived) in &console.derived {
            let single = |name: &String| all.get(name).and_then(|v| v.first()).copied();
            let value = match derived {
                DerivedMetric::Fixed(value) => Some(*value),
                DerivedMetric::Quotient(a, b) => single(a).zip(single(b)).map(|(a, b)| a / b),
            };
            all.insert(name.clone(), value.into_iter().collect());
        }
        let finite = |values: &Vec<f64>| !values.is_empty() && values.iter().all(|v| v.is_finite());
        let wanted = benchmark.metrics.keys().map(|name| {
            let values = all.swap_remove(name).filter(finite);
            values.map(|v| (name.clone(), v)).ok_or_else(|| format!("there is no value of {name}"))
        });
        wanted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn benchmark(name: &str) -> (Benchmark, Console) {
        let definition = crate::bench::all().unwrap().into_iter().find(|d| d.name == name).unwrap();
        let console = definition.console.unwrap();
        let benchmark = Benchmark {
            name: name.to_owned(),
            command: vec![],
            repeat: 1,
            timeout_s: 1,
            pattern: String::new(),
            metrics: definition.metrics,
            packages: vec![],
            files: vec![],
            section: None,
            guest: Default::default(),
            console: Some(console.clone()),
        };
        (benchmark, console)
    }

    /// A capture with what the session would keep of it.
    fn kept(name: &str, text: &str) -> Vec<String> {
        let filter = Filter::new(&benchmark(name).1).unwrap();
        text.lines().filter(|l| filter.keeps(l)).map(str::to_owned).collect()
    }

    fn read(name: &str, text: &str) -> Result<Values, Fault> {
        let (benchmark, console) = benchmark(name);
        parse(&benchmark, &console, &kept(name, text), None)
    }

    fn values(name: &str, text: &str, metric: &str) -> Vec<f64> {
        let all = read(name, text).unwrap_or_else(|e| panic!("{e:?}"));
        all.into_iter().find(|(m, _)| m == metric).unwrap().1
    }

    #[track_caller]
    fn fails(name: &str, text: &str, what: &str, detail: &str) {
        let (word, story) = read(name, text).unwrap_err();
        assert_eq!(word, what, "{story}");
        assert!(story.contains(detail), "{story}");
    }

    /// After the formats of kernel/rcu/rcuscale.c in Linux 6.12: two writers,
    /// three measurements each.
    const RCUSCALE: &str = "\
[    0.301000] rcu-scale:--- Start of test: gp_async=0 gp_async_max=1000 gp_exp=0 holdoff=20 minruntime=0 nreaders=1 nwriters=2 writer_holdoff=0 writer_holdoff_jiffies=0 verbose=0 shutdown=1
[   22.500000] rcu-scale: rcu_scale_writer 1 has 100 measurements
[   22.600000] rcu-scale: Test complete
[   22.650000] rcu-scale: writer 0 gps: 3
[   22.650000] rcu-scale: writer 1 gps: 2
[   22.650000] rcu-scale: start: 20410007000 end: 22450001000 duration: 2039994000 gps: 5 batches: 118
[   22.660000] rcu-scale:    0 writer-duration:     0 13000400
[   22.670000] rcu-scale:    0 writer-duration:     1 115000000
[   22.670000] rcu-scale:    0 writer-duration:     2 8999840
[   22.680000] rcu-scale:    1 writer-duration:     0 219000123
[   22.690000] rcu-scale:    1 writer-duration:     1 121004000
[   22.700000] reboot: Power down
";

    #[test]
    fn rcuscale_pools_all_writers_in_microseconds() {
        let durations = values("rcuscale", RCUSCALE, "duration");
        assert_eq!(durations, [13000.4, 115_000.0, 8999.84, 219_000.123, 121_004.0]);
        assert_eq!(values("rcuscale", RCUSCALE, "grace_periods"), [5.0]);
        assert_eq!(values("rcuscale", RCUSCALE, "batches"), [1.0], "as the kernel tree's script has it");
        assert_eq!(values("rcuscale", RCUSCALE, "ratio"), [5.0]);
        assert_eq!(values("rcuscale", RCUSCALE, "kernel_batches"), [118.0]);
        let order: Vec<_> = read("rcuscale", RCUSCALE).unwrap().into_iter().map(|(m, _)| m).collect();
        assert_eq!(order, ["duration", "grace_periods", "batches", "ratio", "kernel_batches"]);
    }

    /// The console of a real run of `matrices/rcuscale-offsets.toml`.
    #[test]
    fn a_real_console_is_read() {
        let text = include_str!("../../tests/data/console/rcuscale-offset-0.log");
        let mut durations = values("rcuscale", text, "duration");
        assert_eq!((durations.len(), durations[0], durations[100]), (101, 240_001.5, 199_999.3));
        durations.sort_by(f64::total_cmp);
        assert_eq!((durations[0], durations[49], durations[100]), (79_999.3, 189_998.4, 309_995.4));
        assert_eq!(values("rcuscale", text, "ratio"), [101.0]);
        assert_eq!(values("rcuscale", text, "kernel_batches"), [102.0]);
        let (benchmark, console) = benchmark("rcuscale");
        let other = include_str!("../../tests/data/console/rcuscale-offset-1.log");
        let at = |ready| parse(&benchmark, &console, &kept("rcuscale", other), Some(ready)).map(|v| v.len());
        assert_eq!(at(800_558_500), Ok(5), "when its agent was ready");
        assert_eq!(at(2_170_006_501).unwrap_err().0, "too early");
        // Any one line less is noticed.
        for at in (0..text.lines().count()).filter(|at| text.lines().nth(*at).unwrap().contains("writer-dur"))
        {
            let rest: Vec<_> = text.lines().enumerate().filter(|(n, _)| *n != at).map(|(_, l)| l).collect();
            fails("rcuscale", &rest.join("\n"), "lines lost", "101 values, the console 100");
        }
    }

    #[test]
    fn what_printk_puts_in_front_does_not_matter() {
        let bare: String = RCUSCALE.lines().map(|l| format!("{}\n", &l[15..])).collect();
        let thread: String =
            RCUSCALE.lines().map(|l| format!("{}[   T71]{}\r\n", &l[..14], &l[14..])).collect();
        let cpu: String = RCUSCALE.lines().map(|l| format!("[    C0]{}\n", &l[14..])).collect();
        let other = RCUSCALE.replace(" rcu-scale:", " tasks-tracing-scale:");
        for text in [&bare, &thread, &cpu, &other] {
            assert_eq!(read("rcuscale", text), read("rcuscale", RCUSCALE), "{text}");
        }
        assert_eq!(text("[12345.678901][ T1234] x"), "x");
        assert_eq!(text("[  ok  ] x"), "[  ok  ] x");
    }

    #[test]
    fn lost_lines_are_noticed_whichever_they_are() {
        let without = |part: &str| -> String {
            RCUSCALE.lines().filter(|l| !l.contains(part)).map(|l| format!("{l}\n")).collect()
        };
        let lost = |part: &str, detail: &str| fails("rcuscale", &without(part), "lines lost", detail);
        lost(" 1 115000000", "of series 0 the kernel has 3 values, the console 2; missing: 1");
        lost(" 1 121004000", "of series 1 the kernel has 2 values, the console 1; missing: 1");
        lost("   0 writer-duration", "of series 0 the kernel has 3 values, the console 0; missing: 0, 1, 2");
        lost("writer 1 gps", "of series 1 ");
        lost(" batches:", "no line with ' batches:'");
        lost("writer-duration", "no line with 'writer-duration'");
        lost("scale: writer", "no line with");
        let said = without(" 1 115000000") + "[   23.0] ** 7 printk messages dropped **\n";
        fails("rcuscale", &said, "lines lost", "; it says: ");
        // Where both a line and its count are gone, the total tells.
        let both = without("   1 writer-duration").replace("[   22.650000] rcu-scale: writer 1 gps: 2\n", "");
        fails("rcuscale", &both, "lines lost", "the kernel has 5 values in all, the console 3");
        let other = RCUSCALE.replace("writer-duration:     1 115", "writer-duration:     7 115");
        fails("rcuscale", &other, "lines lost", "not consecutive");
        fails("rcuscale", "", "lines lost", "");
    }

    #[test]
    fn a_series_without_its_count_is_noticed() {
        let text = RCUSCALE.replace("[   22.650000] rcu-scale: writer 1 gps: 2\n", "");
        fails("rcuscale", &text, "lines lost", "of series 1 there is no count");
    }

    #[test]
    fn damaged_lines_are_no_values() {
        for (whole, damaged) in [
            ("13000400\n", "130[   22.661000] rcu-scale: x\n"),
            ("13000400\n", "\n"),
            ("13000400\n", "13000400 [cut: the line has 9000 bytes]\n"),
            ("13000400\n", "1300\u{fffd}400\n"),
            ("13000400\n", "99999999999999999999999999999999999999x\n"),
            ("0 writer-duration:     0 13000400", "0 writer-duration:     99999999999999999999999 1"),
            ("gps: 5 batches: 118", "gps: 5 batches: 11[   22.7] x"),
            ("writer 0 gps: 3", "writer 0 gps: [   22.7] x"),
            ("[   22.660000] rcu-scale:    0", "[   22.660000] [   22.650000] rcu-scale:    0"),
        ] {
            let text = RCUSCALE.replacen(whole, damaged, 1);
            assert_ne!(text, RCUSCALE);
            fails("rcuscale", &text, "damaged line", "is not as the kernel prints it");
        }
        let twice =
            RCUSCALE.replace("[   22.700000]", "[   22.690000] rcu-scale:    1 writer-duration:     1 7\n[");
        fails("rcuscale", &twice, "line twice", "writer-duration:     1 7");
        let again = RCUSCALE.replace("[   22.700000]", "[   22.690000] rcu-scale: writer 0 gps: 3\n[");
        fails("rcuscale", &again, "line twice", "gps: 3");
    }

    #[test]
    fn a_measurement_that_began_while_the_guest_was_busy_is_none() {
        let (benchmark, console) = benchmark("rcuscale");
        let lines = kept("rcuscale", RCUSCALE);
        let at = |ready| parse(&benchmark, &console, &lines, Some(ready));
        assert!(at(20_410_007_000).is_ok());
        let (what, story) = at(20_660_007_000).unwrap_err();
        assert_eq!(what, "too early");
        assert!(story.contains("began 250.000ms before") && story.contains("holdoff = 60"), "{story}");
    }

    /// After the formats of kernel/rcu/refscale.c in Linux 6.12.
    const REFSCALE: &str = "\
[    0.3] x
[    0.310000] refcnt-ref-scale: --- Start of test:  verbose=0 verbose_batched=0 shutdown=1 holdoff=20 lookup_instances=0 loops=10000 nreaders=-1 nruns=3 readdelay=0
[   21.000000] Experiment #0 (Format: <THREAD-NUM>:<Total loop time in ns>)
[   21.000000] 0: 123456\t1: 123999\t
[   23.000000] refcnt-ref-scale: END OF TEST. Calculating average duration per loop (nanoseconds)...
[   23.000000] Runs\tTime(ns)
[   23.000000] 1\t12.345
[   23.000000] 2\t12.001
[   23.000000] 3\t110.500
";

    #[test]
    fn refscale_gives_its_table_of_runs() {
        assert_eq!(values("refscale", REFSCALE, "duration"), [12.345, 12.001, 110.5]);
        let lost = REFSCALE.replace("[   23.000000] 2\t12.001\n", "");
        fails("refscale", &lost, "lines lost", "the kernel has 3 values in all, the console 2");
        fails("refscale", &REFSCALE.replace("2\t12.001", "2\t12.0"), "damaged line", "2\t12.0");
        fails("refscale", &REFSCALE.replace("--- Start", "--- "), "lines lost", "Start of test");
    }

    #[test]
    fn kfree_has_one_line() {
        // Of a real run on the kernel of `matrices/rcuscale-offsets.toml`.
        let line = "[    1.366947] Total time taken by all kfree'ers: 1269918400 ns, loops: 200, batches: 47, memory footprint: 25MB\n";
        assert_eq!(values("kfree-scale", line, "time"), [1.269_918_4]);
        assert_eq!(values("kfree-scale", line, "loops"), [200.0]);
        assert_eq!(values("kfree-scale", line, "batches"), [47.0]);
        assert_eq!(values("kfree-scale", line, "memory"), [25.0]);
        assert_eq!(values("kfree-scale", &line.replace("25MB", "-3MB"), "memory"), [-3.0]);
        fails("kfree-scale", &line.repeat(2), "line twice", "");
        fails("kfree-scale", &line.replace("MB", "M"), "damaged line", "");
        fails("kfree-scale", "[    0.1] rcu-scale: Test complete\n", "lines lost", "");
    }

    #[test]
    fn refusals_are_found() {
        for (name, line) in [
            ("rcuscale", "[    0.3] rcu-scale: invalid scale type: \"rcc\""),
            ("rcuscale", "rcu-scale:!!! All grace periods expedited, no normal ones to measure!"),
            ("refscale", "[    0.300000] torture_init_begin: Refusing rcu init: rcu running."),
            ("refscale", "[    0.300000][    T1] lock-ref-scale: !!! out of memory"),
            ("kfree-scale", "ERROR: call_rcu() CBs are being too lazy!"),
        ] {
            let line = line.replace("0.3]", "0.300000]");
            let lines = kept(name, &line);
            assert_eq!(lines.join("\n"), line, "kept");
            assert_eq!(first(&lines, &benchmark(name).1.error).unwrap(), Some(&lines[0]));
        }
        assert_eq!(first(&kept("rcuscale", RCUSCALE), &benchmark("rcuscale").1.error).unwrap(), None);
        assert!(first(&kept("rcuscale", RCUSCALE), &benchmark("rcuscale").1.done).unwrap().is_some());
    }

    #[test]
    fn every_definition_reads_what_it_says() {
        for definition in crate::bench::all().unwrap() {
            let Some(console) = definition.console else { continue };
            let mut groups: BTreeSet<String> = console.derived.keys().cloned().collect();
            for rule in &console.lines {
                Regex::new(&rule.holds).unwrap();
                groups.extend(Regex::new(&rule.is).unwrap().capture_names().flatten().map(str::to_owned));
            }
            let known = |name: &String| groups.contains(name);
            assert!(definition.metrics.keys().all(known), "{}: {groups:?}", definition.name);
            assert!(console.divide.keys().chain(&console.total).all(known), "{}", definition.name);
            assert!(definition.program.is_empty() && definition.pattern.is_empty());
            Filter::new(&console).unwrap();
        }
    }
}
