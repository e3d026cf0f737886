//! The guest agent's program on this machine: what it says is understood.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::path::Path;
use std::process::Command;

use matrix::boot::protocol::{self, Message, Reader};

/// Messages of a dry run of `job`.
fn dry_run(job: &str) -> Vec<Message> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("qemu/guest/agent.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(at("agent")).arg(source);
    assert!(cc.status().unwrap().success());
    std::fs::write(at("job"), job).unwrap();
    let run = Command::new(at("agent")).arg("--dry-run").arg(at("job")).arg(at("results")).status();
    assert!(run.unwrap().success());
    let results = std::fs::read(at("results")).unwrap();
    let mut reader = Reader::default();
    let lines = results.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| reader.line(line).unwrap()).collect()
}

#[test]
fn every_message_is_understood_and_the_topology_is_told_once() {
    let messages = dry_run("bench 1 60\narg true\nend\n");
    assert_eq!(messages.first(), Some(&Message::Hello));
    assert_eq!(messages.last(), Some(&Message::Bye));
    let facts = |wanted: &str| -> Vec<&str> {
        let of = messages.iter().filter_map(|m| match m {
            Message::Fact(key, value) if key == wanted => Some(value.as_str()),
            _ => None,
        });
        of.collect()
    };
    let [topology] = facts("topology")[..] else { panic!("topology is told once: {messages:?}") };
    let figures: Vec<_> = topology.split(' ').map(|word| word.split_once('=').unwrap()).collect();
    assert_eq!(
        figures.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
        ["packages", "clusters", "cores", "threads"]
    );
    // An even machine's figures are its CPUs; others are ranges, or not told.
    let online = facts("cpus")[0].rsplit_once("online=").unwrap().1;
    let product: Option<u32> = figures.iter().map(|(_, count)| count.parse::<u32>().ok()).product();
    assert!(
        product.is_none_or(|product| Some(product) == protocol::count_cpus(online)),
        "{topology}, {online}"
    );

    let [nodes] = facts("nodes")[..] else { panic!("nodes are told once: {messages:?}") };
    let of_nodes = messages.iter().filter_map(|m| match m {
        Message::Fact(key, value) if key.starts_with("node ") => Some(value),
        _ => None,
    });
    let mut told = 0;
    for node in of_nodes {
        let keys: Vec<_> = node.split(' ').map(|word| word.split_once('=').unwrap().0).collect();
        assert_eq!(keys, ["cpus", "memory", "distances"]);
        told += 1;
    }
    assert_eq!(told, protocol::count_cpus(nodes).unwrap_or(0), "one for each of {nodes}");
}

#[test]
fn it_waits_for_the_kernels_own_benchmark_once_all_is_said() {
    let messages = dry_run("await-kernel\n");
    // A dry run does not wait.
    let [.., Message::Fact(ready, at), Message::Begin { bench: 0, iteration: 1 }, Message::Bye] =
        messages.as_slice()
    else {
        panic!("{messages:?}")
    };
    assert_eq!(ready, "ready");
    assert!(at.parse::<u64>().unwrap() > 0);
}

#[test]
fn every_module_parameter_of_the_command_line_is_reported() {
    let cmdline = std::fs::read_to_string("/proc/cmdline").unwrap();
    let messages = dry_run("");
    for (name, _) in matrix::boot::params::asked(&cmdline) {
        let told = |m: &Message| {
            let keys = [format!("param {name}"), format!("no-param {name}")];
            matches!(m, Message::Fact(key, _) if keys.contains(key))
        };
        assert!(messages.iter().any(told), "{name}: {messages:?}");
    }
}
