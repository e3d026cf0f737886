//! Benchmarks: what is known of each (a TOML file beside this one) and how
//! values are read from what they print.

use indexmap::IndexMap;
use regex::Regex;
use serde::Deserialize;

use crate::assets;
use crate::model::{Benchmark, Console, GuestNeeds, Metric};

pub mod console;

/// A benchmark that matrix files can `use` by name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    /// Program that the guest executes; none where the kernel is the program.
    #[serde(default)]
    pub program: String,
    /// Arguments that always stand in front of the others.
    #[serde(default)]
    pub leading: Vec<String>,
    /// Arguments where a matrix file gives none.
    #[serde(default)]
    pub args: Vec<String>,
    /// Packages of the guest's architecture that hold the program and its libraries.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Regular expression over each line of output; every named group is a metric.
    #[serde(default)]
    pub pattern: String,
    /// Regular expression of a headline: values are read only from the indented
    /// lines below the last line that it matches.
    pub section: Option<String>,
    /// What each named group means.
    pub metrics: IndexMap<String, Metric>,
    /// What it needs besides its program.
    #[serde(default)]
    pub guest: GuestNeeds,
    /// Where the kernel is the program: how its console is read instead.
    pub console: Option<Console>,
}

/// Every benchmark, by name.
///
/// # Errors
/// A definition compiled into the program is malformed.
pub fn all() -> anyhow::Result<Vec<Definition>> {
    assets::texts(&assets::BENCHMARKS, "toml")
        .into_iter()
        .map(|(name, text)| {
            let mut definition: Definition =
                toml::from_str(text).map_err(|e| anyhow::anyhow!("src/bench/{name}.toml: {e}"))?;
            definition.name = name.to_owned();
            Ok(definition)
        })
        .collect()
}

/// Reads every metric of a benchmark from the lines of one run.
///
/// # Errors
/// A metric is missing, occurs more than once, or is no finite number.
pub fn parse(benchmark: &Benchmark, lines: &[String]) -> Result<Vec<(String, f64)>, String> {
    let pattern = Regex::new(&benchmark.pattern).map_err(|e| format!("pattern: {e}"))?;
    let mut values: IndexMap<&str, f64> = IndexMap::new();
    for line in section(benchmark, lines)? {
        let Some(captures) = pattern.captures(line.trim_end()) else { continue };
        for name in benchmark.metrics.keys() {
            let Some(group) = captures.name(name) else { continue };
            let value: f64 =
                group.as_str().parse().map_err(|_| format!("{name}: '{}' is no number", group.as_str()))?;
            if !value.is_finite() {
                return Err(format!("{name}: '{}' is not finite", group.as_str()));
            }
            if values.insert(name, value).is_some() {
                return Err(format!("{name} is there more than once"));
            }
        }
    }
    let value = |name: &String| values.get(name.as_str()).map(|v| (name.clone(), *v));
    benchmark
        .metrics
        .keys()
        .map(|name| {
            value(name).ok_or_else(|| format!("no line of the output matches the pattern for '{name}'"))
        })
        .collect()
}

/// The lines that hold values: all of them, or those of the last section.
fn section<'a>(benchmark: &Benchmark, lines: &'a [String]) -> Result<&'a [String], String> {
    let Some(headline) = &benchmark.section else { return Ok(lines) };
    let headline = Regex::new(headline).map_err(|e| format!("section: {e}"))?;
    let at = lines.iter().rposition(|line| headline.is_match(line));
    let below = &lines[at.ok_or("no line of the output is the headline of the values")? + 1..];
    let end = below.iter().position(|line| !line.starts_with([' ', '\t']));
    Ok(&below[..end.unwrap_or(below.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Direction;

    fn benchmark(pattern: &str, metrics: &[&str]) -> Benchmark {
        let metric = Metric { unit: "s".into(), better: Direction::Lower };
        Benchmark {
            name: "x".into(),
            command: vec!["x".into()],
            repeat: 1,
            timeout_s: 1,
            pattern: pattern.into(),
            metrics: metrics.iter().map(|m| ((*m).to_owned(), metric.clone())).collect(),
            packages: vec![],
            files: vec![],
            section: None,
            guest: GuestNeeds::default(),
            console: None,
        }
    }

    fn parsed(benchmark: &Benchmark, lines: &[&str]) -> Result<Vec<(String, f64)>, String> {
        parse(benchmark, &lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>())
    }

    /// The values that the built-in benchmark `name` reads from `output`.
    fn read(name: &str, output: &str) -> Result<Vec<(String, f64)>, String> {
        let definition = all().unwrap().into_iter().find(|d| d.name == name).unwrap();
        let benchmark = Benchmark {
            section: definition.section,
            metrics: definition.metrics,
            ..benchmark(&definition.pattern, &[])
        };
        parse(&benchmark, &output.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    fn values(of: &[(&str, f64)]) -> Result<Vec<(String, f64)>, String> {
        Ok(of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
    }

    /// What rt-tests' hackbench prints.
    const HACKBENCH: &str = "\
Running in process mode with 10 groups using 40 file descriptors each (== 400 tasks)
Each sender will pass 20 messages of 512 bytes
Time: 0.578
";

    #[test]
    fn hackbench_output_is_read() {
        assert_eq!(read("hackbench", HACKBENCH), values(&[("time", 0.578)]));
        assert!(read("hackbench", "Each sender will pass 20 messages").unwrap_err().contains("no line"));
        assert!(read("hackbench", "Time: 0.5\nTime: 0.6").unwrap_err().contains("more than once"));
        assert!(read("hackbench", "Time: 1.2.3").is_err());
    }

    #[test]
    fn outputs_of_our_workloads_are_read() {
        let hotplug = "offline: 3 times, total 0.275580784 s, mean 0.091860261 s\n\
                       online: 3 times, total 0.160853552 s, mean 0.053617851 s\n";
        let hotplug_values = [
            ("offline_total", 0.275580784),
            ("offline_mean", 0.091860261),
            ("online_total", 0.160853552),
            ("online_mean", 0.053617851),
        ];
        assert_eq!(read("cpu-hotplug", hotplug), values(&hotplug_values));
        assert!(read("cpu-hotplug", hotplug.lines().next().unwrap()).is_err(), "half of it");
        // The command that ran meanwhile prints too.
        let cost = format!(
            "{hotplug}build_sched_domains: 4 calls, total 23640.344 us, mean 5910.086 us, max 13636.520 us\n"
        );
        let cost_values = [("calls", 4.0), ("total", 23640.344), ("mean", 5910.086), ("max", 13636.520)];
        assert_eq!(read("function-cost", &cost), values(&cost_values));
        let bandwidth = "copy: 3787.1 MB/s\nscale: 4149.0 MB/s\nadd: 4398.1 MB/s\ntriad: 1969.9 MB/s\n";
        let bandwidth_values = [("copy", 3787.1), ("scale", 4149.0), ("add", 4398.1), ("triad", 1969.9)];
        assert_eq!(read("memory-bandwidth", bandwidth), values(&bandwidth_values));
    }

    /// Two reports, as schbench prints every ten seconds and at its end.
    const SCHBENCH: &str = "\
setting worker threads to 8
Wakeup Latencies percentiles (usec) runtime 10 (s) (602 total samples)
\t  50.0th: 68         (177 samples)
\t  90.0th: 1570       (236 samples)
\t* 99.0th: 74880      (54 samples)
\t  99.9th: 375296     (6 samples)
\t  min=1, max=375290
Request Latencies percentiles (usec) runtime 10 (s) (596 total samples)
\t  50.0th: 83072      (179 samples)
\t  90.0th: 190720     (237 samples)
\t* 99.0th: 366080     (54 samples)
\t  99.9th: 415232     (5 samples)
\t  min=16122, max=415677
RPS percentiles (requests) runtime 10 (s) (11 total samples)
\t  20.0th: 57         (5 samples)
\t* 50.0th: 58         (1 samples)
\t  90.0th: 61         (5 samples)
\t  min=55, max=61
current rps: 55.93
Wakeup Latencies percentiles (usec) runtime 20 (s) (1209 total samples)
\t  50.0th: 69         (354 samples)
\t  90.0th: 1834       (484 samples)
\t* 99.0th: 85376      (108 samples)
\t  99.9th: 262656     (11 samples)
\t  min=1, max=375290
Request Latencies percentiles (usec) runtime 20 (s) (1202 total samples)
\t  50.0th: 81792      (360 samples)
\t  90.0th: 193280     (479 samples)
\t* 99.0th: 360960     (107 samples)
\t  99.9th: 492032     (11 samples)
\t  min=16122, max=415677
average rps: 58.10
";

    /// As it printed until 2020, and, with counts behind the values, until 2023.
    const SCHBENCH_OLD: &str = "\
Latency percentiles (usec)
\t50.0000th: 22
\t75.0000th: 29
\t90.0000th: 34
\t95.0000th: 37
\t*99.0000th: 2132
\t99.5000th: 6296
\t99.9000th: 10000
\tmin=0, max=25313
";

    #[test]
    fn last_report_of_schbench_counts() {
        let of = |p50, p90, p99, p99_9| {
            values(&[("wakeup_p50", p50), ("wakeup_p90", p90), ("wakeup_p99", p99), ("wakeup_p99_9", p99_9)])
        };
        assert_eq!(read("schbench", SCHBENCH), of(69.0, 1834.0, 85376.0, 262656.0));
        assert_eq!(read("schbench", SCHBENCH_OLD), of(22.0, 34.0, 2132.0, 10000.0));
        let counted =
            SCHBENCH_OLD.replace("000th", "th").replace("*99.0th: 2132", "*99.0th: 2132 (123 samples)");
        assert_eq!(read("schbench", &counted), of(22.0, 34.0, 2132.0, 10000.0));
    }

    #[test]
    fn schbench_without_samples_has_no_values() {
        let none = "Wakeup Latencies percentiles (usec) runtime 10 (s) (0 total samples)\n\
                    \t  50.0th: 0          (0 samples)\n\t  90.0th: 0          (0 samples)\n\
                    \t* 99.0th: 0          (0 samples)\n\t  99.9th: 0          (0 samples)\n";
        assert!(read("schbench", none).unwrap_err().contains("wakeup_p50"));
        assert!(read("schbench", &format!("{SCHBENCH}{none}")).is_err(), "not those of the report before");
        assert!(read("schbench", "average rps: 1").unwrap_err().contains("headline"));
    }

    #[test]
    fn tbench_output_is_read() {
        let output = "   2     59246   671.89 MB/sec  execute   1 sec  latency 3.957 ms\n\
                      Throughput 671.893 MB/sec  2 clients  2 procs  max_latency=3.957 ms\n";
        assert_eq!(read("tbench", output), values(&[("throughput", 671.893), ("max_latency", 3.957)]));
        let none = "Throughput 0 MB/sec  2 clients  2 procs  max_latency=0.000 ms";
        assert!(read("tbench", none).is_err(), "it ran too short");
    }

    #[test]
    fn perf_bench_outputs_are_read() {
        let pipe = "# Running 'sched/pipe' benchmark:\n\
                    # Executed 5000 pipe operations between two processes\n\n     \
                    Total time: 0.201 [sec]\n\n      40.206600 usecs/op\n          24871 ops/sec\n";
        assert_eq!(read("perf-sched-pipe", pipe), values(&[("op", 40.2066)]));
        assert_eq!(read("perf-syscall-basic", pipe), values(&[("op", 40.2066)]));
        let messaging = "# 2 groups == 80 processes run\n\n     Total time: 0.085 [sec]\n";
        assert_eq!(read("perf-sched-messaging", messaging), values(&[("time", 0.085)]));
        let hash = "[thread  1] futexes: 0x55d318a2c660 ... 0x55d318a2d65c [ 3140608 ops/sec ]\n\n\
                    Averaged 3165184 operations/sec (+- 0.78%), total secs = 1\n";
        assert_eq!(read("perf-futex-hash", hash), values(&[("rate", 3165184.0)]));
        let wake = "[Run 10]: Wokeup 4 of 4 threads in 0.1330 ms\n\
                    Wokeup 4 of 4 threads in 0.1514 ms (+-10.40%)\n";
        assert_eq!(read("perf-futex-wake", wake), values(&[("time", 0.1514)]));
        assert!(read("perf-futex-hash", "Unknown benchmark: 'hash'").is_err());
    }

    #[test]
    fn several_metrics_come_from_one_line_or_several() {
        let lines = benchmark("^(?:a=(?<a>\\S+))? ?(?:b=(?<b>\\S+))?$", &["a", "b"]);
        let both = [("a".to_owned(), 1.0), ("b".to_owned(), 2e3)];
        assert_eq!(parsed(&lines, &["a=1 b=2e3"]).unwrap(), both);
        assert_eq!(parsed(&lines, &["b=2e3", "noise", "a=1"]).unwrap(), both);
        assert!(parsed(&lines, &["a=nan b=1"]).unwrap_err().contains("not finite"));
        assert!(parsed(&lines, &["a=x b=1"]).unwrap_err().contains("no number"));
    }

    #[test]
    fn every_definition_names_its_groups() {
        for definition in all().unwrap().into_iter().filter(|d| d.console.is_none()) {
            assert!(!definition.program.is_empty(), "{}", definition.name);
            let pattern = Regex::new(&definition.pattern).unwrap();
            let groups: Vec<_> = pattern.capture_names().flatten().collect();
            let metrics: Vec<_> = definition.metrics.keys().map(String::as_str).collect();
            assert_eq!(groups, metrics, "{}", definition.name);
        }
    }

    #[test]
    fn every_definition_names_what_is_there() {
        for Definition { name, guest, packages, .. } in all().unwrap() {
            for workload in guest.workloads {
                let source = format!("guest/workloads/{workload}.c");
                assert!(assets::QEMU.get_file(&source).is_some(), "{name}: {source}");
            }
            for fragment in guest.fragments {
                let file = format!("{fragment}.config");
                assert!(assets::KERNEL_CONFIGS.get_file(&file).is_some(), "{name}: {file}");
            }
            assert!(guest.data.is_empty() || !packages.is_empty(), "{name}: data of no package");
            let server = guest.server.map(|s| s.command).unwrap_or_default();
            assert!(!server.contains(&"--".to_owned()), "{name}: `--` ends the server's command");
        }
    }
}
