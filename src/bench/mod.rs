//! Benchmarks: what is known of each (a TOML file beside this one) and how
//! values are read from what they print.

use indexmap::IndexMap;
use regex::Regex;
use serde::Deserialize;

use crate::assets;
use crate::model::{Benchmark, Metric};

/// A benchmark that matrix files can `use` by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    /// Program that the guest executes.
    pub program: String,
    /// Arguments where a matrix file gives none.
    #[serde(default)]
    pub args: Vec<String>,
    /// Packages of the guest's architecture that hold the program and its libraries.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Regular expression over each line of output; every named group is a metric.
    pub pattern: String,
    /// What each named group means.
    pub metrics: IndexMap<String, Metric>,
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
    for line in lines {
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
        }
    }

    fn parsed(benchmark: &Benchmark, lines: &[&str]) -> Result<Vec<(String, f64)>, String> {
        parse(benchmark, &lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>())
    }

    /// What rt-tests' hackbench prints.
    const HACKBENCH: [&str; 3] = [
        "Running in process mode with 10 groups using 40 file descriptors each (== 400 tasks)",
        "Each sender will pass 20 messages of 512 bytes",
        "Time: 0.578",
    ];

    #[test]
    fn hackbench_output_is_read() {
        let definition = all().unwrap().into_iter().find(|d| d.name == "hackbench").unwrap();
        let names: Vec<_> = definition.metrics.keys().map(String::as_str).collect();
        let benchmark = benchmark(&definition.pattern, &names);
        assert_eq!(parsed(&benchmark, &HACKBENCH).unwrap(), [("time".to_owned(), 0.578)]);
        assert!(parsed(&benchmark, &HACKBENCH[..2]).unwrap_err().contains("no line"));
        assert!(parsed(&benchmark, &["Time: 0.5", "Time: 0.6"]).unwrap_err().contains("more than once"));
        assert!(parsed(&benchmark, &["Time: 1.2.3"]).is_err());
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
        for definition in all().unwrap() {
            let pattern = Regex::new(&definition.pattern).unwrap();
            let groups: Vec<_> = pattern.capture_names().flatten().collect();
            let metrics: Vec<_> = definition.metrics.keys().map(String::as_str).collect();
            assert_eq!(groups, metrics, "{}", definition.name);
        }
    }
}
