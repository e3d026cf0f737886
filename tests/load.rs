//! Boots that others on the host disturb. A program of its own, so that no
//! other test is one of the others.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

#[allow(dead_code)] // this test waits for nothing else
mod common;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::Lab;

fn matrix(timing: &str) -> String {
    format!(
        r#"
[source]
path = "linux"
[axes]
arch = ["riscv64"]
NR_CPUS = [64]
STAND_IN_QEMU = ["slow", "burn"]
[kernel]
base = "allnoconfig"
[boot]
vcpus = 2
max_other_load = "90%"
timing = "{timing}"
[[benchmark]]
name = "messages"
command = "messages"
files = ["messages"]
pattern = '^Time: (?<time>[0-9.]+)$'
unit = "s"
better = "lower"
repeat = 1
[[table]]
title = "time"
metric = "messages.time"
columns = "NR_CPUS"
rows = "STAND_IN_QEMU"
"#
    )
}

const RESUME: &[&str] = &["run", "--resume", "run"];

/// Ticks of all processors so far: idle ones, and all.
fn ticks() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<u64> = stat.lines().next().unwrap().split(' ').filter_map(|n| n.parse().ok()).collect();
    // Time of guests is in the first two as well.
    (ticks[3] + ticks[4], ticks[..8].iter().sum())
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Programs that keep every processor busy until they are dropped.
struct Others(Vec<Child>);

impl Others {
    fn begin() -> Others {
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Others((0..std::thread::available_parallelism().unwrap().get()).map(|_| spin()).collect())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One guest sleeps while others have all processors, one takes its share of
/// them: only the first had too little, and what the second used itself is no load.
#[test]
fn a_boot_on_a_busy_host_is_invalid_until_it_is_done_again_on_a_quiet_one() {
    let lab = Lab::new(&matrix("wall-clock"));
    let others = Others::begin();
    let done = lab.run().code(1).says(&[
        "STAND_IN_QEMU=slow #1: FAILED (boot, host busy)",
        "of the processors' time",
        "[boot] max_other_load is 90%: quiet the machine and run `matrix run --resume`; evidence: ",
        "1 failed: riscv64-NR_CPUS=64-STAND_IN_QEMU=slow",
    ]);
    // Counted instructions know of no others, but how long a boot took does.
    let text = matrix("instructions");
    let counted = Lab::new(&text).run().code(0);
    let (_, table) = text.split_once("[[table]]").unwrap();
    let stages = table.replace("messages.time", "boot.result").replace("\"time\"", "\"stages\"");
    let staged = Lab::new(&format!("{text}[[table]]{stages}")).run().code(1);
    drop(others);
    assert!(!counted.stdout.contains("FAILED"), "{}", counted.stdout);
    let tables = words(&staged.stdout);
    let (times, stages) = tables.split_once("stages").unwrap();
    assert!(times.contains("slow/s 0.5080 burn/s 0.5080"), "{tables}");
    assert!(
        stages.contains("slow/s FAILED(host busy) burn/s ") && !stages.contains("burn/s FAILED"),
        "{tables}"
    );
    for row in ["slow/s FAILED(host busy)", "burn/s 0.5080"] {
        assert!(words(&done.stdout).contains(row), "no `{row}` in:\n{}", done.stdout);
    }
    let boot = lab.boot("riscv64-NR_CPUS=64-STAND_IN_QEMU=slow");
    let load = &boot["host"]["load"];
    assert!(load["benchmarks"]["others"].as_f64().unwrap() > 90.0, "{boot}");
    assert!(load["boot"]["seconds"].as_f64().unwrap() >= 1.9, "{boot}");
    assert!(boot["fault"].as_str().unwrap().starts_with("host busy: others had "), "{boot}");
    assert!(!lab.read("run/records.jsonl").contains("STAND_IN_QEMU=slow\",\"metric\":\"messages"));

    // Whoever shares this machine may take a while to be done, and for that long
    // it is busy in truth.
    let began = Instant::now();
    let mut good = None;
    while good.is_none() && began.elapsed() < Duration::from_secs(20) {
        let (idle, all) = ticks();
        let again = lab.matrix(RESUME);
        let (idle, all) = (ticks().0 - idle, ticks().1 - all);
        assert!(again.status.success() || 2 * idle < all, "{idle} of {all} ticks idle: {}", again.stderr);
        good = again.status.success().then_some(again);
    }
    // A guest that takes its share does not depend on that.
    let better = lab.with_stand_in("qemu-system-riscv64", |text| text.replace("slow) sleep 2", "slow) burn"));
    let good = good.unwrap_or_else(|| better.matrix(RESUME).code(0));
    assert!(words(&good.stdout).contains("slow/s 0.5080"), "{}", good.stdout);
    assert_eq!(lab.count("qemu burn"), 1, "what was good is not done again");
}
