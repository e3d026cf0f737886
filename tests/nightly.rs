//! `ci/nightly`, night after night, with stand-ins for the compiler of this
//! program too.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

#[allow(dead_code)] // these tests wait for nothing
mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use common::Lab;

/// Counted instructions, so that a difference is one.
fn matrix(modes: &[&str]) -> String {
    format!(
        r#"
name = "lab"
[source]
path = "linux"
[axes]
arch = ["riscv64"]
NR_CPUS = [64]
STAND_IN_QEMU = {modes:?}
[kernel]
base = "allnoconfig"
[boot]
vcpus = 2
timing = "instructions"
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

/// A night that is over.
struct Night {
    code: Option<i32>,
    said: String,
}

struct Nights(Lab);

impl Nights {
    fn new(modes: &[&str]) -> Nights {
        let lab = Lab::new(&matrix(modes));
        let program = |path: &str, text: &str| {
            std::fs::create_dir_all(lab.path(path).parent().unwrap()).unwrap();
            lab.write(path, &format!("#!/bin/sh\n{text}\n"));
            std::fs::set_permissions(lab.path(path), PermissionsExt::from_mode(0o755)).unwrap();
        };
        program("tools/cargo", "echo 'cargo 1.99.0'");
        // What this machine has of other architectures is not what is tested.
        let real = env!("CARGO_BIN_EXE_matrix");
        program("target/release/matrix", &format!("[ \"$1\" = doctor ] || exec '{real}' \"$@\""));
        Nights(lab)
    }

    fn night(&self, env: &[(&str, &str)]) -> Night {
        self.night_of("lab.toml", env)
    }

    fn night_of(&self, file: &str, env: &[(&str, &str)]) -> Night {
        // Runs are named by the second in which they begin.
        std::thread::sleep(Duration::from_millis(1100));
        let lab = &self.0;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/nightly");
        let mut command = lab.command(&script);
        let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
        let path = format!("{}:{}", lab.path("tools").display(), path.to_str().unwrap());
        command.args([lab.path(file), lab.path("nightly")]).env("PATH", path);
        command.env("HOME", lab.path("")).env("CARGO_TARGET_DIR", lab.path("target"));
        let out = command.envs(env.iter().copied()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Night { code: out.status.code(), said: text(&out.stdout) + &text(&out.stderr) }
    }

    /// Numbers of the runs in the history.
    fn history(&self) -> usize {
        let done = self.0.matrix(&["history", "--store", "nightly/history/lab.sqlite"]);
        done.stdout.lines().filter(|l| l.starts_with(|c: char| c.is_ascii_digit())).count()
    }

    fn has(&self, file: &str) -> bool {
        self.0.path("nightly").join(file).exists()
    }
}

impl Night {
    #[track_caller]
    fn ends(self, code: i32, says: &[&str]) -> Night {
        assert_eq!(self.code, Some(code), "{}", self.said);
        for text in says {
            assert!(self.said.contains(text), "no `{text}` in:\n{}", self.said);
        }
        self
    }
}

#[test]
fn a_night_fails_for_a_regression_once() {
    let nights = Nights::new(&["good"]);
    nights.night(&[]).ends(0, &["0.5080", "the first night: nothing to compare with"]);
    assert!(!nights.has("compare.txt") && nights.history() == 1);
    nights.night(&[]).ends(0, &["0 built, 1 from the cache", "0.5080"]);
    assert_eq!(nights.history(), 2);
    for report in ["report.txt", "report.html", "junit.xml", "kcidb.json", "compare.txt"] {
        assert!(nights.has(report), "{report}");
    }

    // Twice as large, which no table shows and nobody asked about.
    nights.0.write("linux/larger", "100000\n");
    nights.night(&[]).ends(0, &["vmlinux 200640 bytes"]);

    nights.0.write("linux/slower", "100\n");
    nights.night(&[]).ends(3, &["1 built", "0.6080", "+19.69%", "regression"]);
    assert_eq!(nights.history(), 4, "a bad night is in the history too");
    nights.night(&[]).ends(0, &["0.6080"]);
    nights.night(&[("MATRIX_BASELINE", "latest~5")]).ends(3, &["+19.69%"]);
    let large = [("MATRIX_BASELINE", "latest~6"), ("MATRIX_THRESHOLD", "20%"), ("MATRIX_KEEP", "2")];
    nights.night(&large).ends(0, &["small"]);
    let runs = std::fs::read_dir(nights.0.path("nightly/runs")).unwrap();
    assert_eq!((runs.count(), nights.history()), (2, 7), "older evidence goes, values stay");
}

#[test]
fn a_failed_cell_is_shown_and_a_night_without_a_result_is_not_green() {
    let nights = Nights::new(&["good", "panic"]);
    let shown = ["FAILED(panic)", "1 of 2 cells have no result"];
    nights.night(&[]).ends(0, &shown);
    nights.night(&[]).ends(0, &shown);
    assert!(nights.history() == 2 && nights.has("compare.txt"));

    // A cell that was good fails: said, and no regression.
    let text = nights.0.read("lab.toml");
    let worse = nights.0.read("lab.toml").replace("\"good\"", "\"oops\"");
    nights.0.write("lab.toml", &worse);
    let done = nights.night(&[]).ends(1, &["FAILED(oops)", "2 of 2 cells", "nothing was measured"]);
    assert!(!done.said.contains("verdict"), "{}", done.said);
    assert_eq!(nights.history(), 2);
    assert!(nights.has("report.html") && !nights.has("compare.txt"), "only this night's reports are there");

    // Nothing that can be run leaves nothing that looks like a report.
    nights.0.write("lab.toml", "nonsense");
    nights.night(&[]).ends(2, &["lab.toml"]);
    assert!(!nights.has("report.txt") && !nights.has("junit.xml"));

    // The next good night is compared with the last one that had a result.
    nights.0.write("lab.toml", &text);
    nights.0.write("linux/slower", "100\n");
    nights.night(&[]).ends(3, &["+19.69%"]);
}

#[test]
fn every_matrix_has_nights_of_its_own() {
    let nights = Nights::new(&["good"]);
    nights.night(&[]).ends(0, &["the first night"]);
    nights.0.write("other.toml", &matrix(&["better"]));
    nights.night_of("other.toml", &[]).ends(0, &["the first night"]);
    nights.night(&[]).ends(0, &["messages.time"]);
    assert_eq!(nights.history(), 2);
}
