//! What is kept between runs, as users see and limit it.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

mod common;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use common::{Lab, RUN};
use nix::sys::signal::Signal;

/// Kernels that differ in `symbol`, which says how a stand-in behaves.
fn matrix(symbol: &str, values: &[&str]) -> String {
    format!(
        r#"
[source]
path = "linux"
[axes]
arch = ["riscv64"]
{symbol} = {values:?}
[kernel]
base = "allnoconfig"
[boot]
vcpus = 2
[[benchmark]]
name = "messages"
command = "messages"
files = ["messages"]
pattern = '^Time: (?<time>[0-9.]+)$'
unit = "s"
better = "lower"
repeat = 1
[[table]]
title = "size"
metric = "vmlinux.file"
columns = "arch"
rows = "{symbol}"
"#
    )
}

fn json(lab: &Lab, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&lab.matrix(args).code(0).stdout).unwrap()
}

/// Folders of a room of the cache.
fn room(lab: &Lab, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(lab.path("cache").join(name));
    entries.map_or_else(|_| Vec::new(), |entries| entries.map(|e| e.unwrap().path()).collect())
}

/// Lets everything in the cache have been used two hours ago.
fn age(lab: &Lab) {
    let before = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    for note in room(lab, "sizes") {
        std::fs::File::options().append(true).open(note).unwrap().set_modified(before).unwrap();
    }
}

#[test]
fn everything_that_is_kept_is_shown() {
    let lab = Lab::new(&matrix("STAND_IN_MAKE", &["ok", "other", "fail"]));
    let empty = lab.matrix(&["cache"]).code(0).stdout;
    assert!(
        empty.contains("cache: 0 B, limit 50 GiB (by default; `matrix cache limit` sets another)\n"),
        "{empty}"
    );
    assert!(!lab.path("cache").exists(), "looking made it");
    lab.run().code(1);

    let all = json(&lab, &["cache", "--format", "json"]);
    let counts: Vec<_> = all["rooms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["room"].as_str().unwrap(), r["entries"].as_u64().unwrap()))
        .collect();
    let programs = room(&lab, "guest").len() as u64;
    assert_eq!(counts, [("work", 1), ("sources", 0), ("builds", 2), ("guest", programs)]);
    let entries = all["entries"].as_array().unwrap();
    let what = |room: &str| -> Vec<&str> {
        let here = entries.iter().filter(|e| e["room"] == room).map(|e| e["what"].as_str().unwrap());
        let mut here: Vec<_> = here.collect();
        here.sort_unstable();
        here
    };
    assert_eq!(
        what("builds"),
        ["riscv 6.12.0-stand-in STAND_IN_MAKE=\"ok\"", "riscv 6.12.0-stand-in STAND_IN_MAKE=\"other\""]
    );
    assert_eq!(what("work"), ["unfinished, for builds"]);
    assert!(what("guest").contains(&"program riscv64 agent.c"), "{all}");
    let sum: u64 = entries.iter().map(|e| e["bytes"].as_u64().unwrap()).sum();
    assert_eq!(all["bytes"].as_u64().unwrap(), sum);
    assert!(entries.iter().all(|e| e["in_use"] == false && e["bytes"].as_u64().unwrap() >= 4096), "{all}");
    assert_eq!(all["limit"], serde_json::json!({ "bytes": 50u64 << 30, "from": "default" }));

    let kernel = entries.iter().find(|e| e["room"] == "builds").unwrap()["key"].as_str().unwrap();
    std::fs::create_dir(lab.path(&format!("cache/work/builds-{kernel}"))).unwrap();
    let list = lab.matrix(&["cache", "list", "work"]).code(0).stdout;
    assert!(list.contains(&format!("  objects of builds/{kernel}\n")), "{list}");
    std::fs::remove_dir(lab.path(&format!("cache/work/builds-{kernel}"))).unwrap();
    let list = lab.matrix(&["cache", "list", "builds", "work"]).code(0).stdout;
    assert_eq!(list.lines().count(), 3);
    assert!(
        list.lines().any(|l| l.starts_with("work/builds-") && l.ends_with("  unfinished, for builds")),
        "{list}"
    );
    let summary = lab.matrix(&["cache"]).code(0).stdout;
    assert!(summary.lines().any(|l| l.starts_with("builds         2 ")), "{summary}");
}

#[test]
fn a_run_keeps_the_limit_and_leaves_run_directories_alone() {
    let lab = Lab::new(&matrix("STAND_IN_MAKE", &["a", "b"]));
    let first = lab.run().code(0);
    let evidence = lab.read("run/records.jsonl");
    age(&lab);
    lab.write("more.toml", &matrix("STAND_IN_MAKE", &["b", "c"]));
    // Room for what the second run uses, and not for more.
    let bytes = |room: &str| -> u64 {
        let all = json(&lab, &["cache", "list", room, "--format", "json"]);
        all["bytes"].as_u64().unwrap()
    };
    let limit = bytes("guest") + bytes("builds") + bytes("builds") / 4;
    lab.matrix(&["cache", "limit", &limit.to_string()]).code(0);
    lab.matrix(&["run", "more.toml", "--output", "more"])
        .code(0)
        .says(&["1 built, 1 from the cache", "cache: removed 1 of builds ("]);
    assert_eq!(room(&lab, "builds").len(), 2);
    assert!(bytes("guest") + bytes("builds") <= limit);
    assert_eq!(lab.read("run/records.jsonl"), evidence);
    assert_eq!(lab.matrix(&["report", "run"]).code(0).stdout, first.stdout);
    // What is gone is built again and no result is another.
    let again =
        lab.matrix(&["run", "lab.toml", "--output", "again"]).code(0).says(&["1 built, 1 from the cache"]);
    assert_eq!(again.stdout, first.stdout);
}

#[test]
fn the_limit_is_of_the_environment_or_the_folder_or_the_default() {
    let lab = Lab::new(&matrix("STAND_IN_MAKE", &["a"]));
    let says = |lab: &Lab, text: &str| assert_eq!(lab.matrix(&["cache", "limit"]).code(0).stdout, text);
    says(&lab, "limit 50 GiB (by default; `matrix cache limit` sets another)\n");
    let set = lab.matrix(&["cache", "limit", "20G"]).code(0).stdout;
    assert_eq!(set, "limit 20 GiB (set by `matrix cache limit`)\n");
    lab.matrix(&["cache", "limit", "lots"]).code(2).says(&["'lots' is not a size such as 20G, 512M or none"]);
    says(&lab, &set);
    let lab = lab.env("MATRIX_CACHE_LIMIT", "none");
    says(&lab, "no limit (MATRIX_CACHE_LIMIT)\n");
    let lab = lab.env("MATRIX_CACHE_LIMIT", "much");
    lab.run().code(2).says(&["MATRIX_CACHE_LIMIT: 'much' is not a size such as 20G, 512M or none"]);
    assert!(!lab.path("run").exists());
}

#[test]
fn what_a_run_uses_cannot_be_removed_and_then_it_can() {
    let lab = Lab::new(&matrix("STAND_IN_QEMU", &["good", "hang"]));
    let mut run = lab.start(RUN);
    run.wait_for("qemu hang");
    let kernels = room(&lab, "builds").len();
    let list = lab.start(&["cache", "list", "builds"]).end().code(0).stdout;
    assert_eq!(list.matches("(in use)").count(), kernels, "{list}");
    for args in [&["cache", "clear"][..], &["clean"], &["cache", "prune", "--limit", "0"]] {
        let kept = lab.start(args).end().code(1).stdout;
        assert!(kept.contains("that should go are in use by a run"), "{kept}");
    }
    assert_eq!(room(&lab, "builds").len(), kernels);
    run.signal(Signal::SIGKILL);
    run.end();
    lab.until_nothing_is_alive(Duration::from_secs(5));

    let dry = lab.matrix(&["cache", "clear", "--dry-run"]).code(0).stdout;
    assert!(dry.contains(&format!("would remove {kernels} of builds (")), "{dry}");
    assert_eq!(room(&lab, "builds").len(), kernels);
    let recent = lab.matrix(&["cache", "prune", "--older-than", "30d"]).code(0).stdout;
    assert!(recent.contains(": removed nothing, "), "{recent}");
    lab.matrix(&["clean", "builds"]).code(0);
    assert!(room(&lab, "builds").is_empty() && !room(&lab, "guest").is_empty());
    let rest = lab.matrix(&["cache", "clear"]).code(0).stdout;
    assert!(rest.ends_with(", 0 B left\n"), "{rest}");
}

/// Whatever is removed between two steps of a run is made again, and what the
/// run has found stays.
#[test]
fn a_run_comes_to_its_end_while_others_clear_the_cache() {
    let lab = Lab::new(&matrix("STAND_IN_QEMU", &["a", "b", "c"]));
    let expected = lab.run().code(0).stdout;
    let done = std::sync::atomic::AtomicBool::new(false);
    let removed = std::thread::scope(|scope| {
        let clear = || {
            let mut removed = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let said = lab.start(&["cache", "clear"]).end();
                assert!(said.stderr.is_empty(), "{}", said.stderr);
                removed += usize::from(!said.stdout.contains("removed nothing"));
            }
            removed
        };
        let others = [scope.spawn(clear), scope.spawn(clear)];
        for n in 0..3 {
            let run = lab.start(&["run", "lab.toml", "--output", &format!("run-{n}")]).end();
            assert_eq!(run.code(0).stdout, expected);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        others.map(|other| other.join().unwrap()).iter().sum::<usize>()
    });
    println!("removed something {removed} times");
    assert!(removed > 1);
}

#[test]
fn a_build_that_writes_to_its_source_is_no_result() {
    let lab = Lab::new(&matrix("STAND_IN_MAKE", &["ok"]));
    let careless = lab.with_stand_in("make", |text| {
        text.replace("echo '  LD      vmlinux'", "echo '# new' >>../../../../linux/lib/Kconfig")
    });
    let done =
        careless.matrix(RUN).code(1).says(&["FAILED (build, source changed)", "last ", "lib/Kconfig; "]);
    assert!(done.stdout.contains("FAILED(source changed)"), "{}", done.stdout);
    assert!(room(&lab, "builds").is_empty());
}

#[test]
fn a_guest_program_that_was_cut_off_is_compiled_again() {
    let lab = Lab::new(&matrix("STAND_IN_MAKE", &["ok"]));
    let expected = lab.run().code(0).stdout;
    for file in room(&lab, "guest").iter().map(|dir| dir.join("program")) {
        let length = file.metadata().unwrap().len();
        std::fs::File::options().write(true).open(&file).unwrap().set_len(length / 2).unwrap();
        let again = lab.matrix(&["run", "lab.toml", "--output", &format!("again-{length}")]).code(0);
        assert_eq!((again.stdout, file.metadata().unwrap().len()), (expected.clone(), length));
    }
}
