//! What `matrix` takes when there is nothing to do but to see that: a plan, a
//! run of kernels that are all in the cache and are not booted (`boots = 0`), a
//! finished run that is gone on with, a report.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

mod common;
#[path = "common/many.rs"]
mod many;

use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, Instant};

use common::Lab;
use matrix::process::{self, Ended, Limits, Spec, Stop};

/// The least of some attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    wall_ms: f64,
    /// Processor time of `matrix` and all that it started.
    busy_ms: f64,
    peak_mib: f64,
}

fn spec(lab: &Lab, args: &[&str]) -> Spec {
    process::set_guard_program(env!("CARGO_BIN_EXE_matrix"));
    let spec = Spec::new(env!("CARGO_BIN_EXE_matrix")).args(args.iter().copied()).cwd(lab.path(""));
    lab.environment().into_iter().fold(spec.env_clear(), |spec, (name, value)| spec.env(name, value))
}

/// Runs `matrix` to its good end, several times.
async fn cost(lab: &Lab, args: impl Fn() -> Vec<String>) -> Cost {
    let mut least = Cost { wall_ms: f64::MAX, busy_ms: f64::MAX, peak_mib: f64::MAX };
    for _ in 0..3 {
        let args = args();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (spec, limits, stop) = (spec(lab, &args), Limits::default(), Stop::default());
        let began = Instant::now();
        let exit = process::run(&spec, &limits, &stop, |_, _| ControlFlow::Continue(())).await.unwrap();
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        assert_eq!(exit.status, Ended::Code(0), "{args:?}");
        least.wall_ms = least.wall_ms.min(ms(began.elapsed()));
        least.busy_ms = least.busy_ms.min(ms(exit.user + exit.system));
        least.peak_mib = least.peak_mib.min(exit.peak_rss as f64 / f64::from(1 << 20));
    }
    least
}

/// What is measured, by name, with so many cells.
async fn costs(cells: usize) -> Vec<(&'static str, Cost)> {
    let lab = many::lab(cells);
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let runs = Cell::new(0);
    // Each into a folder of its own: some file systems are slow right after files were removed.
    let fresh = || {
        runs.set(runs.get() + 1);
        words(&format!("run sizes.toml --quiet --output sizes-{}", runs.get()))
    };
    let plan = cost(&lab, || words("plan lab.toml")).await;
    let run = cost(&lab, fresh).await;
    many::finished_run(&lab, cells);
    let resume = cost(&lab, || words("run --resume run --quiet")).await;
    let report = cost(&lab, || words("report run")).await;
    let html = cost(&lab, || words("report run --format html")).await;
    vec![("plan", plan), ("run", run), ("resume", resume), ("report", report), ("html", html)]
}

#[tokio::test]
#[ignore = "figures, for a quiet machine and a release build"]
async fn figures() {
    let say = |what: &str, Cost { wall_ms, busy_ms, peak_mib, .. }: Cost| {
        println!("noop {what}: {wall_ms:.0} ms, {peak_mib:.0} MiB ({busy_ms:.0} ms of processors)");
    };
    let lab = many::lab(2);
    say("help", cost(&lab, || vec!["--help".to_owned()]).await);
    say("list", cost(&lab, || vec!["list".to_owned()]).await);
    for cells in [500, 5000] {
        for (what, cost) in costs(cells).await {
            say(&format!("{what} {cells} cells"), cost);
        }
    }
}

/// Ten times the cells take about ten times the time, not a hundred times.
#[tokio::test]
async fn time_and_memory_grow_as_cells_do() {
    let (few, many) = (costs(100).await, costs(1000).await);
    for ((what, few), (_, many)) in few.into_iter().zip(many) {
        let grown = |of: fn(&Cost) -> f64| of(&many) / of(&few).max(1.0);
        assert!(grown(|c| c.busy_ms) < 30.0, "{what}: {few:?} to {many:?}");
        assert!(grown(|c| c.peak_mib) < 12.0, "{what}: {few:?} to {many:?}");
    }
}

/// Whether the tool gives for these cells what it gives for others.
#[test]
fn tables_of_a_cache_that_was_written_are_right() {
    let lab = many::lab(4);
    let done = lab.matrix(&["run", "sizes.toml", "--output", "sizes"]).code(0);
    for line in ["OFFSTACK       n       y", "2         100020  100020", "3         100030  100030"] {
        assert!(done.stdout.contains(line), "{}", done.stdout);
    }
    done.says(&["0 built, 4 from the cache"]);
    assert_eq!(lab.count("make vmlinux Image"), 1, "for the model alone");
    let cell = |name: &str| lab.read(&format!("sizes/cells/riscv64-NR_CPUS=3-OFFSTACK=y/{name}"));
    assert!(cell("config").contains("CONFIG_NR_CPUS=3\n"));
    let diff = "# NR_CPUS: riscv64-NR_CPUS=2-OFFSTACK=y -> riscv64-NR_CPUS=3-OFFSTACK=y\n\
                -CONFIG_NR_CPUS=2\n+CONFIG_NR_CPUS=3\n";
    assert_eq!(cell("config.diff"), diff);
    assert!(cell("reproduce.sh").starts_with("#!/bin/sh"));
    // Gone on with, nothing is done and the tables are the same.
    let calls = lab.calls().len();
    let again = lab.matrix(&["run", "--resume", "sizes"]).code(0);
    assert_eq!((again.stdout, lab.calls().len()), (lab.read("sizes/tables.txt"), calls));
    many::finished_run(&lab, 4);
    let calls = lab.calls().len();
    let done = lab.matrix(&["run", "--resume", "run"]).code(0);
    assert!(done.stdout.contains("mean of 50 runs in 2 boots"), "{}", done.stdout);
    assert_eq!(lab.calls().len(), calls, "nothing is left to be done");
}

/// A program's version is asked once, however many cells there are; and not
/// again as long as the same file stands on `PATH`.
#[tokio::test]
async fn versions_are_asked_once() {
    let lab = many::lab(20);
    let bin = lab.path("bin");
    fs::create_dir(&bin).unwrap();
    let compile = |version: &str| {
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nint main(void) {{\n\
             FILE *calls = fopen(getenv(\"STAND_IN_CALLS\"), \"a\");\nfputs(\"make version\\n\", calls);\n\
             fclose(calls);\nputs(\"GNU Make {version}\");\nreturn 0;\n}}\n"
        );
        lab.write("make.c", &text);
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(bin.join("make")).arg(lab.path("make.c"));
        assert!(cc.status().unwrap().success());
    };
    let path = lab.environment().into_iter().find(|(name, _)| name == "PATH").unwrap().1;
    let plan = async || {
        let spec = spec(&lab, &["plan", "lab.toml"]).env("PATH", format!("{}:{path}", bin.display()));
        let (limits, stop) = (Limits::default(), Stop::default());
        let exit = process::run(&spec, &limits, &stop, |_, _| ControlFlow::Continue(())).await.unwrap();
        assert!(exit.success());
        lab.count("make version")
    };
    compile("1");
    // Until a file is some seconds old, it could change without a trace.
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(plan().await, 1);
    assert_eq!(plan().await, 1, "it is the same file");
    compile("2");
    assert_eq!(plan().await, 2, "it is another one");
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!((plan().await, plan().await), (3, 3));
}
