//! What else is different between two runs: a change of a value may come from
//! that as well.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::model::Matrix;
use crate::store::Run;

/// Keys of `[boot]` that do not change what is measured.
const HARMLESS: [&str; 4] = ["boots", "deadline_s", "max_other_load", "silence_s"];
/// Keys of `[kernel]` that tell what a comparison is made for.
const MEANT: [&str; 1] = ["patches"];
/// Keys of a benchmark that do not change what is measured.
const PATIENCE: [&str; 1] = ["timeout_s"];

/// Differences of host, programs, boot settings and benchmarks, one a line.
pub fn confounders(base: &Run, new: &Run) -> Vec<String> {
    let mut found = Vec::new();
    match (&base.info, &new.info) {
        (Some(base), Some(new)) => {
            found.extend(changes("host: ", &base.host, &new.host));
            found.extend(changes("", &base.tools, &new.tools));
            let version = |v: &str| BTreeMap::from([("matrix".to_owned(), v.to_owned())]);
            found.extend(changes("", &version(&base.matrix_version), &version(&new.matrix_version)));
        }
        (None, None) => found.push("neither run says on what host it ran".to_owned()),
        _ => found.push("one of the runs does not say on what host it ran".to_owned()),
    }
    found.extend(of_matrices(&base.results.matrix, &new.results.matrix));
    found
}

fn of_matrices(base: &Matrix, new: &Matrix) -> Vec<String> {
    let mut found = changes("boot: ", &settings(&base.boot, &HARMLESS), &settings(&new.boot, &HARMLESS));
    found.extend(changes("kernel: ", &settings(&base.kernel, &MEANT), &settings(&new.kernel, &MEANT)));
    for old in &base.benchmarks {
        for new in new.benchmarks.iter().filter(|b| b.name == old.name) {
            let head = format!("benchmark {}: ", old.name);
            found.extend(changes(&head, &settings(old, &PATIENCE), &settings(new, &PATIENCE)));
        }
    }
    found
}

/// The keys of a part of the matrix, but for some.
fn settings(part: &impl Serialize, but: &[&str]) -> BTreeMap<String, String> {
    let Ok(Value::Object(map)) = serde_json::to_value(part) else { return BTreeMap::new() };
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    map.into_iter().filter(|(k, _)| !but.contains(&k.as_str())).map(|(k, v)| (k, text(v))).collect()
}

fn changes(head: &str, base: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = base.keys().chain(new.keys()).collect();
    let differing = names.into_iter().filter(|n| base.get(*n) != new.get(*n));
    let shown = |value: Option<&String>| value.map_or("unknown", String::as_str).to_owned();
    differing.map(|n| format!("{head}{n}: {} -> {}", shown(base.get(n)), shown(new.get(n)))).collect()
}
