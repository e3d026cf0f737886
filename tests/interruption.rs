//! Runs that are cut off and gone on with, dealt out and merged, and what a
//! machine can do to them meanwhile.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Lab, RUN};
use nix::sys::signal::Signal;

/// Kernels `a` to `d`, each for two guests, each booted `boots` times.
fn matrix(modes: &[&str], boot: &str) -> String {
    format!(
        r#"
[source]
path = "linux"
[axes]
arch = ["riscv64"]
NR_CPUS = [64]
STAND_IN_QEMU = {modes:?}
groups = [1, 2]
[kernel]
base = "allnoconfig"
[boot]
vcpus = 2
max_other_load = "off"
{boot}
[[benchmark]]
name = "messages"
command = "messages {{groups}}"
files = ["messages"]
pattern = '^Time: (?<time>[0-9.]+)$'
unit = "s"
better = "lower"
repeat = 2
[[table]]
title = "size"
metric = "vmlinux.file"
columns = "groups"
rows = "STAND_IN_QEMU"
[[table]]
title = "time"
metric = "messages.time"
columns = "groups"
rows = "STAND_IN_QEMU"
"#
    )
}

const RESUME: &[&str] = &["run", "--resume", "run"];

/// A number below `below` that follows from a seed.
fn random(seed: u64, n: u64, below: u64) -> u64 {
    let hash = blake3::hash(format!("{seed} {n}").as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap()) % below
}

/// Whole lines of a run's records.
fn records(lab: &Lab, run: &str) -> String {
    let text = std::fs::read_to_string(lab.path(run).join("records.jsonl")).unwrap_or_default();
    text.split_inclusive('\n').filter(|l| l.ends_with('\n')).collect()
}

/// What each recorded boot left behind: file and time of change.
fn evidence(lab: &Lab, run: &str) -> BTreeMap<String, (u64, i64)> {
    let mut found = BTreeMap::new();
    for line in records(lab, run).lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        if record["record"] == "boot" {
            let below = format!("{run}/cells/{}/boot-{}", record["cell"].as_str().unwrap(), record["boot"]);
            for file in ["results.txt", "boot.json", "console.log"] {
                let of_file = lab.path(&below).join(file).metadata().unwrap();
                found.insert(format!("{below}/{file}"), (of_file.ino(), of_file.mtime_nsec()));
            }
        }
    }
    found
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

// --- going on ---

#[test]
fn a_run_that_is_killed_at_any_moment_measures_what_is_missing_and_nothing_twice() {
    let modes = ["a", "b", "c"];
    let text = matrix(&modes, "boots = 2");
    let undisturbed = Lab::new(&text);
    let began = Instant::now();
    let expected = undisturbed.run().code(0).stdout;
    let took = u64::try_from(began.elapsed().as_millis()).unwrap();

    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let lab = Lab::new(&text);
    let mut kills = 0;
    let mut settled = (String::new(), BTreeMap::new());
    let mut last = None;
    for n in 0..30 {
        let args = if lab.path("run/resolved.json").exists() { RESUME } else { RUN };
        let run = lab.start(args);
        let moment = Duration::from_millis(random(seed, n, took / 5));
        if kills == 10 {
            last = Some(run.finish().code(0));
            break;
        }
        std::thread::sleep(moment);
        run.signal(Signal::SIGKILL);
        let done = run.end();
        if done.status.code().is_some() {
            println!("{n}: over before {moment:?}");
            done.code(0);
            break;
        }
        kills += 1;
        let now = (records(&lab, "run"), evidence(&lab, "run"));
        println!("{n}: killed after {moment:?}, {} records", now.0.lines().count());
        assert!(now.0.starts_with(&settled.0), "{}\nis not the beginning of\n{}", settled.0, now.0);
        for (file, state) in &settled.1 {
            assert_eq!(now.1.get(file), Some(state), "{file} was written again");
        }
        settled = now;
        lab.until_nothing_is_alive(Duration::from_secs(5));
    }
    let last = last.unwrap_or_else(|| lab.matrix(RESUME).code(0));
    assert_eq!(last.stdout, expected);
    assert_eq!(lab.read("run/tables.txt"), expected);
    let all = records(&lab, "run");
    assert!(all.starts_with(&settled.0));
    assert_eq!(all, lab.read("run/records.jsonl"));
    let count = |what: &str| all.matches(what).count();
    assert_eq!((count(r#"{"record":"kernel""#), count(r#"{"record":"boot""#)), (6, 12));
    assert!(lab.count("make vmlinux Image") <= 3 + kills);
    let boots = modes.iter().map(|m| lab.count(&format!("qemu {m}"))).sum::<usize>();
    assert!((12..=12 + kills).contains(&boots), "{boots} boots begun, {kills} kills");

    let calls = lab.calls();
    let again = lab.matrix(RESUME).code(0).says(&["0 built, 0 from the cache; evidence in run"]);
    assert_eq!(again.stdout, expected);
    assert_eq!(lab.calls(), calls, "nothing is left to be done");
}

#[test]
fn a_run_goes_on_by_itself_name_or_as_the_latest() {
    let lab = Lab::new(&matrix(&["good", "hang"], "silence = \"60s\""));
    let mut run = lab.start(&["run", "lab.toml", "--jobs", "1"]);
    run.wait_for("qemu hang");
    run.signal(Signal::SIGINT);
    let done = run.finish().code(130);
    let dir = done.stderr.split("`matrix run --resume ").nth(1).unwrap().split('`').next().unwrap();
    assert!(dir.starts_with("matrix-runs/lab-"), "{dir}");

    lab.write("other.toml", &matrix(&["good"], ""));
    lab.matrix(&["run", "other.toml", "--resume"])
        .code(2)
        .says(&["other.toml is not what the run began with, which is matrix-runs/lab-"]);
    lab.matrix(&["run", "--resume", "lab.toml"])
        .code(2)
        .says(&["lab.toml is no run directory: `matrix run lab.toml --resume` goes on with the latest run"]);
    lab.matrix(&["run", "--resume", "linux"]).code(2).says(&["linux: not a run directory"]);
    lab.matrix(&["run", "--resume", "--only", "groups=1"]).code(2);
    lab.matrix(&["run", "lab.toml", "--retry-failed"]).code(2);
    assert_eq!(lab.count("qemu hang"), 1);

    let run = lab.start(&["run", "lab.toml", "--resume"]);
    run.wait_for_message("0 kernels to build, 1 in the cache, 2 boots");
    lab.start(&["run", "--resume"])
        .end()
        .code(2)
        .says(&["records.jsonl is locked: another matrix is writing this run"]);
    lab.start(&["report", "latest"]).end().code(0);
    let began = Instant::now();
    while lab.count("qemu hang") < 2 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    run.signal(Signal::SIGINT);
    run.finish().code(130);
    assert_eq!(lab.count("qemu good"), 2);
    let resumed = lab.json(&format!("{dir}/run.json"))["resumed"].clone();
    assert_eq!(resumed.as_array().unwrap().len(), 1);
}

#[test]
fn a_failure_of_the_cell_s_own_stays_until_it_is_to_be_tried_again() {
    let lab = Lab::new(&matrix(&["good", "panic"], ""));
    let first = lab.run().code(1);
    contains(&first.stdout, &["FAILED(panic)"]);
    let evidence = "run/cells/riscv64-NR_CPUS=64-STAND_IN_QEMU=panic-groups=1/boot-1";
    lab.write(&format!("{evidence}/left-behind"), "by the first try");
    let calls = lab.calls();
    let second = lab.matrix(RESUME).code(1).says(&["2 failed: "]);
    assert_eq!(second.stdout, first.stdout);
    assert_eq!(lab.calls(), calls);

    // Other emulators are told by their version; this one has got better.
    let better = lab.with_stand_in("qemu-system-riscv64", |text| {
        text.replace("mode=$(value STAND_IN_QEMU \"$image\")", "mode=better")
    });
    let third = better.matrix(&[RESUME, &["--retry-failed"]].concat()).code(0);
    assert!(!third.stdout.contains("FAILED"), "{}", third.stdout);
    assert_eq!((better.count("qemu good"), better.count("qemu better")), (2, 2));
    // What the first try left is not taken for the second one's.
    assert!(!lab.path(evidence).join("left-behind").exists());
    assert!(!lab.read(&format!("{evidence}/console.log")).contains("Kernel panic"));
    assert_eq!(lab.json(&format!("{evidence}/boot.json"))["fault"], serde_json::Value::Null);
    assert_eq!(better.count("make vmlinux Image"), 2);
}

#[test]
fn what_cannot_be_compared_with_what_is_there_is_refused() {
    let lab = Lab::new(&matrix(&["good", "hang"], "silence = \"60s\""));
    let mut run = lab.start(&[RUN, &["--jobs", "1"]].concat());
    run.wait_for("qemu hang");
    run.signal(Signal::SIGKILL);
    run.end();
    lab.until_nothing_is_alive(Duration::from_secs(5));
    let before = lab.read("run/records.jsonl");
    let refused = |says: &[&str]| {
        lab.matrix(RESUME).code(2).says(says);
        assert_eq!(lab.read("run/records.jsonl"), before);
    };

    let makefile = || std::fs::File::options().append(true).open(lab.path("linux/Makefile")).unwrap();
    let modified = makefile().metadata().unwrap().modified().unwrap();
    lab.write("linux/Makefile", "# changed\n");
    refused(&[
        "STAND_IN_QEMU=hang-groups=1: its kernel would be another one than the run began with (source: ",
        "put back what changed, or begin another run",
    ]);
    lab.write("linux/Makefile", "# stand-in\n");
    makefile().set_modified(modified).unwrap();

    let mut program = std::fs::read(lab.path("messages")).unwrap();
    let untouched = program.clone();
    program.push(0);
    std::fs::write(lab.path("messages"), program).unwrap();
    refused(&["the guests of riscv64 would not be those that the run began with", "(bin/messages changed)"]);
    std::fs::write(lab.path("messages"), untouched).unwrap();

    let newer = |name: &str, from: &str, to: &str| lab.with_stand_in(name, |text| text.replace(from, to));
    newer("qemu-system-riscv64", "version 1.0", "version 1.1").matrix(RESUME).code(2).says(&[
        "cannot be compared",
        "qemu-system-riscv64: QEMU emulator version 1.0 (stand-in) -> QEMU emulator version 1.1",
    ]);
    newer("riscv64-linux-gnu-gcc", "(stand-in) 1.0", "(stand-in) 1.1")
        .matrix(RESUME)
        .code(2)
        .says(&["cannot be compared", "toolchain riscv64: "]);
    assert_eq!(lab.read("run/records.jsonl"), before);
    assert_eq!(lab.count("qemu hang"), 1);
}

/// A second build of the same inputs, which is to be the same kernel and is not.
#[test]
fn a_kernel_that_comes_out_otherwise_is_not_mixed_with_the_one_that_was_measured() {
    let lab = Lab::new(&matrix(&["hang"], "silence = \"60s\""));
    let mut run = lab.start(RUN);
    run.wait_for("qemu hang");
    run.signal(Signal::SIGKILL);
    run.end();
    lab.until_nothing_is_alive(Duration::from_secs(5));
    std::fs::remove_dir_all(lab.path("cache/builds")).unwrap();
    let other = lab.with_stand_in("make", |text| text.replace("sum=$(cksum <.config)", "sum=1"));
    let done = other
        .matrix(RESUME)
        .code(1)
        .says(&["FAILED (build, another kernel)", "not the kernel that was measured"]);
    contains(&done.stdout, &["FAILED(another kernel)"]);
    assert_eq!(lab.count("qemu hang"), 1);
    lab.matrix(RESUME).code(1);
    assert_eq!(lab.count("qemu hang"), 1, "it stays");
}

#[test]
fn two_runs_do_not_get_into_each_other_s_way() {
    let lab = Lab::new(&matrix(&["good"], ""));
    let both = [0, 1].map(|_| lab.start(RUN));
    let mut codes: Vec<_> = both.map(|run| run.end()).into_iter().collect();
    codes.sort_by_key(|done| done.status.code());
    let [good, refused] = codes.try_into().unwrap();
    let good = good.code(0);
    refused
        .code(2)
        .says(&["run is there: a run directory is never written twice; name another with --output"]);
    assert_eq!(lab.read("run/tables.txt"), good.stdout);
    // Fresh names do not collide either.
    let both = [0, 1].map(|_| lab.start(&["run", "lab.toml"]));
    both.into_iter().for_each(|run| drop(run.end().code(0)));
    assert_eq!(lab.matrix(&["list", "runs"]).stdout.lines().count(), 2);
}

// --- parts ---

#[test]
fn shards_make_up_the_whole() {
    let lab = Lab::new(&matrix(&["a", "b", "c"], ""));
    let whole = lab.matrix(&["run", "lab.toml", "--output", "whole"]).code(0).stdout;
    std::fs::remove_dir_all(lab.path("cache")).unwrap();
    lab.write("calls", "");
    let shard = |k: &str, to: &str| lab.matrix(&["run", "lab.toml", "--shard", k, "--output", to]).code(0);
    contains(&shard("1/2", "one").stdout, &["missing"]);
    assert_eq!((lab.count("make vmlinux Image"), lab.count("qemu a")), (1, 2), "each kernel in one shard");
    lab.matrix(&["merge", "one", "--output", "half"]).code(1).says(&["1 runs merged into half"]);
    let half = lab.read("half/tables.txt");
    assert_eq!((half.matches("missing\n").count(), half.contains("FAILED")), (4, false), "{half}");
    shard("2/2", "two");
    assert_eq!(lab.count("make vmlinux Image"), 3);
    let merged = lab.matrix(&["merge", "one", "two", "--output", "merged"]).code(0);
    assert_eq!(merged.stdout, whole);
    assert_eq!(lab.matrix(&["report", "merged"]).stdout, whole);
    assert_eq!(lab.json("merged/run.json")["parts"][1]["shard"], "2/2");
    for cell in lab.json("whole/resolved.json")["cells"].as_array().unwrap() {
        for file in ["config", "build.json", "boot-1/console.log", "boot-1/qemu.sh"] {
            let below = format!("cells/{}/{file}", cell["id"].as_str().unwrap());
            assert!(lab.path("merged").join(&below).is_file(), "{below}");
        }
    }
    // What is missing of a merged run can be measured in it.
    let calls = lab.calls().len();
    let resumed = lab.matrix(&["run", "--resume", "half"]).code(0);
    assert_eq!(resumed.stdout, whole);
    assert_eq!(lab.calls().len() - calls, 4, "the second shard's boots");
}

#[test]
fn runs_that_do_not_belong_together_are_not_merged() {
    let text = matrix(&["good"], "");
    let lab = Lab::new(&text);
    let run = |file: &str, to: &str, more: &[&str]| {
        lab.matrix(&[&["run", file, "--output", to], more].concat()).code(0);
    };
    let refused = |runs: [&str; 2], says: &[&str]| {
        let [one, two] = runs;
        lab.matrix(&["merge", one, two, "--output", "merged"]).code(2).says(says);
        assert!(!lab.path("merged").exists());
    };
    run("lab.toml", "one", &[]);
    run("lab.toml", "two", &[]);
    refused(
        ["one", "two"],
        &["boot 1 of riscv64-NR_CPUS=64-STAND_IN_QEMU=good-groups=1 was measured in two and before"],
    );
    run("lab.toml", "part", &["--only", "groups=1"]);
    refused(["one", "part"], &["one and part are not parts of one run: they were run with different --only"]);
    lab.write("other.toml", &text.replace("repeat = 2", "repeat = 1"));
    run("other.toml", "other", &[]);
    refused(["one", "other"], &["their matrix files differ"]);
    lab.write("linux/Makefile", "# changed\n");
    run("lab.toml", "changed", &[]);
    refused(["one", "changed"], &["has another kernel in changed than in one: source: "]);
    refused(["one", "linux"], &["linux: not a run directory"]);
    let elsewhere = lab.read("two/run.json").replace("\"cores\": \"", "\"cores\": \"1");
    lab.write("two/run.json", &elsewhere);
    refused(
        ["one", "two"],
        &["what one and two measured cannot be compared: cores: ", "counted instructions"],
    );

    // Counted instructions repeat, so that a boot measured twice is one.
    lab.write("lab.toml", &matrix(&["good"], "timing = \"instructions\""));
    run("lab.toml", "three", &[]);
    run("lab.toml", "four", &[]);
    let elsewhere = lab.read("four/run.json").replace("\"cores\": \"", "\"cores\": \"1");
    lab.write("four/run.json", &elsewhere);
    let merged = lab.matrix(&["merge", "three", "four", "--output", "merged"]).code(0);
    assert_eq!(merged.stdout, lab.read("three/tables.txt"));
    let text = lab.read("four/records.jsonl").replace("\"value\":0.508,", "\"value\":0.509,");
    lab.write("four/records.jsonl", &text);
    std::fs::remove_dir_all(lab.path("merged")).unwrap();
    refused(["three", "four"], &["was measured in four and before"]);
}

#[test]
fn a_plan_for_github_deals_out_kernels() {
    let lab = Lab::new(&matrix(&["a", "b", "c"], ""));
    let plan = |args: &[&str]| {
        let done = lab.matrix(&[&["plan", "lab.toml", "--format", "github-matrix"], args].concat()).code(0);
        assert_eq!(done.stdout.lines().count(), 1, "what goes to $GITHUB_OUTPUT is a line");
        let json: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        json["include"].as_array().unwrap().clone()
    };
    let all = plan(&[]);
    assert_eq!(all.len(), 3);
    assert_eq!(
        all[1],
        serde_json::json!({
            "shard": "2/3",
            "name": "riscv64-NR_CPUS=64-STAND_IN_QEMU=b-groups=1 and 1 more",
            "cells": ["riscv64-NR_CPUS=64-STAND_IN_QEMU=b-groups=1", "riscv64-NR_CPUS=64-STAND_IN_QEMU=b-groups=2"],
        })
    );
    let two = plan(&["--shards", "2"]);
    assert_eq!(two.iter().map(|s| s["cells"].as_array().unwrap().len()).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(plan(&["--shards", "9"]).len(), 3, "no shard is empty");
    lab.matrix(&["run", "lab.toml", "--shard", "4/4"])
        .code(2)
        .says(&["the matrix has 3 kernels, which cannot be dealt out to 4 shards"]);
    lab.matrix(&["plan", "lab.toml", "--shards", "2"])
        .code(2)
        .says(&["--shards is for --format github-matrix"]);
    for wrong in ["0/2", "3/2", "1", "a/b"] {
        lab.matrix(&["run", "lab.toml", "--shard", wrong]).code(2).says(&["is not of the form K/N"]);
    }
    assert_eq!(lab.calls(), [""; 0]);
}

// --- machines ---

/// A file system of its own, if this user may have one.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn new<'a>(at: &'a Path, options: &str) -> Option<Mounted<'a>> {
        std::fs::create_dir_all(at).unwrap();
        let mount = |args: &[&str]| Command::new("mount").args(args).arg(at).output();
        let done = mount(&["-t", "tmpfs", "-o", options, "tmpfs"]);
        let good = done.as_ref().is_ok_and(|d| d.status.success());
        if !good {
            println!("skipped: no mount here: {done:?}");
        }
        good.then_some(Mounted(at))
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let done = Command::new("mount").args(["-o", &options]).arg(self.0).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_said_and_gone_on_from() {
    let lab = Lab::new(&matrix(&["a", "b"], "boots = 2"));
    let expected = lab.matrix(&["run", "lab.toml", "--output", "good"]).code(0).stdout;
    let room = lab.path("room");
    let Some(mounted) = Mounted::new(&room, "size=100k") else { return };
    let mut args = vec!["run", "lab.toml", "--output", "room/run"];
    let mut full = Vec::new();
    let done = loop {
        let done = lab.matrix(&args);
        if done.status.code() == Some(0) {
            break done;
        }
        contains(&done.stderr, &["No space left on device"]);
        if room.join("run").exists() {
            args = vec!["run", "--resume", "room/run"];
            let left = lab.matrix(&["report", "room/run", "--format", "json"]).code(0).stdout;
            let left: serde_json::Value = serde_json::from_str(&left).unwrap();
            for field in left[1]["rows"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap()) {
                assert!(field["value"].as_f64().is_none_or(|v| (v - 0.509).abs() < 1e-9), "{field}");
            }
        }
        full.push(records(&lab, "room/run").lines().count());
        mounted.remount(&format!("size={}k", 100 + 60 * full.len()));
    };
    println!("records at the end of the room: {full:?}");
    assert!((3..20).contains(&full.len()), "{full:?}");
    assert_eq!(done.stdout, expected);
}

#[test]
fn a_full_cache_fails_kernels_until_there_is_room() {
    let lab = Lab::new(&matrix(&["a", "b"], ""));
    let cache = lab.path("cache");
    let Some(mounted) = Mounted::new(&cache, "size=200k") else { return };
    let full = lab.run().code(1).says(&["FAILED (build, disk full)", "No space left on device"]);
    contains(&full.stdout, &["FAILED(disk full)"]);
    mounted.remount("size=100m");
    let done = lab.matrix(RESUME).code(0);
    assert!(!done.stdout.contains("FAILED"), "{}", done.stdout);
}

#[test]
fn a_cache_that_cannot_be_written_is_said() {
    let lab = Lab::new(&matrix(&["a"], ""));
    let cache = lab.path("cache");
    let Some(mounted) = Mounted::new(&cache, "size=10m") else { return };
    mounted.remount("ro");
    lab.run().code(2).says(&["cache", "Read-only file system (os error 30)"]);
    assert!(!lab.path("run/tables.txt").exists());
    mounted.remount("rw");
    lab.matrix(RESUME).code(0);
}

#[test]
fn a_full_cache_can_be_pruned_and_one_that_cannot_be_written_is_shown() {
    let lab = Lab::new(&matrix(&["a"], ""));
    let cache = lab.path("cache");
    let Some(mounted) = Mounted::new(&cache, "size=10m") else { return };
    lab.run().code(0);
    mounted.remount("ro");
    let shown = lab.matrix(&["cache", "list", "builds"]).code(0).stdout;
    assert_eq!(shown.lines().count(), 1, "{shown}");
    lab.matrix(&["cache", "clear"]).code(2).says(&["Read-only file system (os error 30)"]);
    assert_eq!(lab.matrix(&["cache", "list", "builds"]).code(0).stdout, shown);
    mounted.remount("rw");
    // Not a byte is left.
    let filled = std::fs::write(cache.join("filler"), vec![1; 11 << 20]);
    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let cleared = lab.matrix(&["cache", "clear"]).code(0).stdout;
    assert!(cleared.contains("removed 1 of builds (") && cleared.ends_with(", 0 B left\n"), "{cleared}");
}

#[test]
fn a_kernel_that_is_cut_off_in_the_cache_is_built_again() {
    let lab = Lab::new(&matrix(&["a"], ""));
    let expected = lab.run().code(0).stdout;
    for (n, file) in ["vmlinux", "Image", "config", "build.json"].into_iter().enumerate() {
        let entry = std::fs::read_dir(lab.path("cache/builds")).unwrap().next().unwrap().unwrap().path();
        let file = entry.join(file);
        let length = file.metadata().unwrap().len();
        std::fs::File::options().write(true).open(&file).unwrap().set_len(length / 2).unwrap();
        let plan = lab.matrix(&["plan", "lab.toml"]).code(0).stdout;
        contains(&plan, &["its cache entry is gone or damaged"]);
        let done = lab.matrix(&["run", "lab.toml", "--output", &format!("again-{n}")]).code(0);
        assert_eq!(done.stdout, expected);
        assert_eq!(lab.count("make vmlinux Image"), n + 2);
    }
}
