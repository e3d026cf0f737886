//! The whole program, from a matrix file to tables, with stand-ins for the
//! programs that it starts.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Lab, RUN};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

/// Two by two kernels, each with a size and two times.
const SQUARE: &str = r#"
[source]
path = "linux"

[axes]
arch = ["riscv64"]
NR_CPUS = [512, 4096]
OFFSTACK = ["n", "y"]

[kernel]
base = "allnoconfig"
fragments = ["minimal"]

[boot]
vcpus = 2
memory = "128M"
max_other_load = "off"

[[benchmark]]
name = "messages"
command = "messages --rounds 20"
files = ["messages"]
pattern = '^Time: (?<time>[0-9.]+)$'
unit = "s"
better = "lower"
repeat = 2

[[table]]
title = "vmlinux size (bytes)"
metric = "vmlinux.file"
columns = "NR_CPUS"
rows = "OFFSTACK"
derived = ["difference", "is_smaller"]
percent_decimals = 3

[[table]]
title = "messages --rounds 20 (s)"
metric = "messages.time"
columns = "NR_CPUS"
rows = "OFFSTACK"
derived = ["difference"]
"#;

/// A kernel has 100000 bytes, ten more for each of NR_CPUS, and off the stack
/// 1000 more but one less for each.
const SIZES: &str = "\
vmlinux size (bytes)

NR_CPUS         512     4096
n            105120   140960
y            105608   137864
difference  +0.464%  -2.196%
is_smaller        n        y

exact: counted, not timed
";

/// Runs take 0.5 s, 1/8 ms more for each of NR_CPUS, 10 ms more off the
/// stack, the second 2 ms more than the first.
const TIMES: &str = "\
messages --rounds 20 (s)

NR_CPUS         512     4096
n/s          0.5650   1.0130
y/s          0.5750   1.0230
difference  ?+1.77%  ?+0.99%

emulated wall clock (QEMU TCG): not a measure of real hardware
mean of 2 runs in 1 boot; spread (standard deviation) up to 0.25% of the
mean
?: too few boots to tell difference from chance (2 a side are needed)
";

const CELLS: [&str; 4] = [
    "riscv64-NR_CPUS=512-OFFSTACK=n",
    "riscv64-NR_CPUS=512-OFFSTACK=y",
    "riscv64-NR_CPUS=4096-OFFSTACK=n",
    "riscv64-NR_CPUS=4096-OFFSTACK=y",
];

/// A matrix of kernels that differ in `symbol`, which says how a stand-in
/// behaves; one run of the benchmark each, under `[boot]` as given.
fn column(symbol: &str, values: &[&str], boot: &str) -> String {
    format!(
        r#"
[source]
path = "linux"
[axes]
arch = ["riscv64"]
NR_CPUS = [64]
{symbol} = {values:?}
[kernel]
base = "allnoconfig"
[boot]
vcpus = 2
max_other_load = "off"
{boot}
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
columns = "NR_CPUS"
rows = "{symbol}"
[[table]]
title = "time"
metric = "messages.time"
columns = "NR_CPUS"
rows = "{symbol}"
"#
    )
}

/// What a table says of each row, in its first column of values: `panic FAILED(panic)`.
fn rows(tables: &str, title: &str) -> Vec<String> {
    let table = tables.lines().skip_while(|l| *l != title).skip(3);
    table.take_while(|l| !l.is_empty()).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

// --- good runs ---

#[test]
fn a_good_run_prints_its_tables_and_keeps_the_evidence() {
    let lab = Lab::new(SQUARE);
    let done = lab.run().code(0).says(&[
        "4 kernels to build, 0 in the cache, 4 boots",
        "build riscv64-NR_CPUS=512-OFFSTACK=n: done in",
        "vmlinux 105120 bytes",
        "boot riscv64-NR_CPUS=4096-OFFSTACK=y #1: done in",
        "messages.time 1.022 1.024 s",
        "4 built, 0 from the cache; evidence in run (`matrix report run` prints its tables)",
    ]);
    assert_eq!(done.stdout, format!("{SIZES}\n{TIMES}"));
    assert_eq!(lab.read("run/tables.txt"), done.stdout);
    assert_eq!(lab.read("run/matrix.toml"), SQUARE);
    assert_eq!(
        lab.json("run/run.json")["tools"]["qemu-system-riscv64"],
        "QEMU emulator version 1.0 (stand-in)"
    );
    for cell in CELLS {
        let kept = |file: &str| lab.read(&format!("run/cells/{cell}/{file}"));
        contains(&kept("build.log"), &["  CC      a.o\n", "  LD      vmlinux\n"]);
        contains(&kept("config"), &["CONFIG_SMP=y\n"]);
        contains(&kept("boot-1/console.log"), &["OpenSBI v1.1", "Linux version 6.12.0-stand-in"]);
        contains(&kept("boot-1/results.txt"), &["begin 0 2\n", "\nbye 2\n"]);
        contains(&kept("boot-1/qemu.sh"), &["exec qemu-system-riscv64 -machine virt", " -smp 2 "]);
        let boot = lab.boot(cell);
        assert_eq!(boot["fault"], serde_json::Value::Null);
        assert_eq!(boot["runs"].as_array().unwrap().len(), 2);
        let busy = &boot["host"];
        assert!(busy["before"]["load"].is_string() && busy["after"]["guests"].is_string(), "{busy}");
        let build = lab.json(&format!("run/cells/{cell}/build.json"));
        assert_eq!((&build["release"], &build["stripped"]), (&"6.12.0-stand-in".into(), &5000.into()));
    }
    assert_eq!(
        lab.read("run/cells/riscv64-NR_CPUS=4096-OFFSTACK=n/config.diff"),
        "# NR_CPUS: riscv64-NR_CPUS=512-OFFSTACK=n -> riscv64-NR_CPUS=4096-OFFSTACK=n\n\
         -CONFIG_NR_CPUS=512\n+CONFIG_NR_CPUS=4096\n"
    );
    let mode = |file: &str| lab.path(file).metadata().unwrap().permissions().mode();
    assert_eq!(mode("run/resolved.json"), mode("run/matrix.toml"), "evidence is no secret");
    let records = lab.read("run/records.jsonl");
    assert_eq!(records.matches(r#""metric":"messages.time""#).count(), 8);
    assert_eq!(records.matches(r#""metric":"vmlinux.file""#).count(), 4);
}

/// Kernels whose rules had to be replaced too, from a run directory that has moved.
#[test]
fn a_cell_can_be_built_and_booted_without_this_program() {
    let lab = Lab::new(SQUARE).env("STAND_IN_LOSE", "CPUMASK_OFFSTACK");
    lab.run().code(0);
    std::fs::rename(lab.path("run"), lab.path("moved")).unwrap();
    let cell = format!("moved/cells/{}", CELLS[3]);
    assert!(lab.path(&format!("{cell}/overlay/Kconfig")).exists());
    lab.program(&format!("{cell}/reproduce.sh"), &[&lab.path("linux"), Path::new("my objects")], "elsewhere");
    assert!(lab.path("elsewhere/my objects/vmlinux").exists());
    assert_eq!(lab.read("elsewhere/results.txt"), lab.read(&format!("{cell}/boot-1/results.txt")));
}

#[test]
fn a_second_run_builds_nothing_and_a_run_directory_is_never_written_twice() {
    let lab = Lab::new(SQUARE);
    let first = lab.run().code(0);
    let again = lab.matrix(&["run", "lab.toml", "--output", "again", "--quiet"]).code(0);
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(again.stderr, "", "quiet");
    assert_eq!(lab.count("make vmlinux Image"), 4);
    assert_eq!(lab.count("make allnoconfig"), 4);
    assert_eq!(lab.count("qemu good"), 8);

    let calls = lab.calls();
    let refused =
        lab.run().code(2).says(&["a run directory is never written twice; name another with --output"]);
    assert_eq!(refused.stdout, "");
    assert_eq!(lab.read("run/tables.txt"), first.stdout);
    assert_eq!(lab.count("make vmlinux Image"), 4);
    assert_eq!(lab.calls(), calls);

    // Elsewhere, by the name that a run gets by itself.
    lab.matrix(&["run", "lab.toml", "--only", "OFFSTACK=n"])
        .code(0)
        .says(&["0 built, 2 from the cache; evidence in matrix-runs/lab-"]);
    let latest = lab.matrix(&["report", "latest"]).code(0);
    assert!(!latest.stdout.contains("\ny "), "{}", latest.stdout);
    let runs = lab.matrix(&["list", "runs"]).code(0);
    assert!(runs.stdout.starts_with("matrix-runs/lab-"), "{}", runs.stdout);
}

#[test]
fn a_run_is_reported_in_every_format() {
    let lab = Lab::new(SQUARE);
    let text = lab.run().code(0).stdout;
    let report = |format: &str| {
        let done = lab.matrix(&["report", "run", "--format", format]).code(0);
        assert_eq!(done.stderr, "");
        done.stdout
    };
    assert_eq!(report("text"), text);
    contains(
        &report("markdown"),
        &["**vmlinux size (bytes)**\n", "| y | 105608 | 137864 |\n", "| difference | ?+1.77% | ?+0.99% |\n"],
    );
    contains(
        &report("csv"),
        &[
            "table,block,row,column,text,value,unit,metric,statistic,kind,n,cell,boots,low,high,significance\n",
            "\nvmlinux size (bytes),,n,512,105120,105120,bytes,vmlinux.file,mean,exact,1,riscv64-NR_CPUS=512-OFFSTACK=n,0,,,\n",
            ",messages.time,mean,emulated wall clock,2,riscv64-NR_CPUS=4096-OFFSTACK=y,1,,,\n",
        ],
    );
    let json: serde_json::Value = serde_json::from_str(&report("json")).unwrap();
    assert_eq!(json[0]["rows"][1][2]["value"], 137_864.0);
    let time = &json[1]["rows"][0][1];
    assert_eq!(
        (&time["text"], &time["kind"], &time["n"]),
        (&"0.5650".into(), &"emulated-wall-clock".into(), &2.into())
    );
    lab.matrix(&["report", "linux"]).code(2).says(&["linux: not a run directory"]);
}

#[test]
fn only_a_part_is_built_and_booted() {
    let lab = Lab::new(SQUARE);
    let done = lab
        .matrix(&[
            "run",
            "lab.toml",
            "--output",
            "run",
            "--only",
            "NR_CPUS=4096",
            "--only",
            "OFFSTACK=y",
            "--format",
            "csv",
        ])
        .code(0)
        .says(&["1 built, 0 from the cache"]);
    contains(&done.stdout, &["vmlinux size (bytes),,y,4096,137864,"]);
    assert!(!done.stdout.contains(",512,"), "{}", done.stdout);
    assert_eq!((lab.count("make vmlinux Image"), lab.count("qemu good")), (1, 1));
    lab.matrix(&["run", "lab.toml", "--only", "NR_CPUS=64"])
        .code(2)
        .says(&["axis `NR_CPUS` has no value `64`"]);
    assert!(!lab.path("matrix-runs").exists());
}

#[test]
fn two_runs_at_once_build_each_kernel_once() {
    let lab = Lab::new(SQUARE);
    let half = ["run", "lab.toml", "--only", "NR_CPUS=512", "--output"];
    let both = ["one", "two"].map(|dir| lab.start(&[half.as_slice(), &[dir]].concat()));
    let both = both.map(|run| run.end().code(0));
    assert_eq!(both[0].stdout, both[1].stdout);
    assert_eq!(lab.count("make vmlinux Image"), 2, "{both:?}");
    assert_eq!(lab.count("qemu good"), 4);
    let said = |text: &str| both.iter().filter(|done| done.stderr.contains(text)).count();
    assert_eq!((said("2 built, 0 from the cache"), said("0 built, 2 from the cache")), (1, 1), "{both:?}");
    assert_eq!(lab.alive(), [""; 0]);
}

#[test]
fn boots_come_in_random_rounds_once_everything_is_built() {
    let modes = ["a", "b", "c", "d", "e"];
    let text = column("STAND_IN_QEMU", &modes, "boots = 2");
    let lab = Lab::new(&text);
    let done = lab.matrix(&[RUN, &["--seed", "7"]].concat()).code(0);
    let calls = lab.calls();
    let calls: Vec<_> = calls.iter().filter(|c| *c != "make allnoconfig").map(String::as_str).collect();
    assert_eq!(calls[..5], ["make vmlinux Image"; 5]);
    let rounds: Vec<_> = calls[5..].chunks(5).collect();
    for round in &rounds {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, modes.map(|m| format!("qemu {m}")));
    }
    assert_eq!(rounds.len(), 2);
    assert_ne!(rounds[0], rounds[1]);
    contains(&done.stdout, &["mean of 2 runs in 2 boots; spread (standard deviation) up to 0.00% of the\n"]);
    assert!(lab.path("run/cells/riscv64-NR_CPUS=64-STAND_IN_QEMU=a/boot-2/boot.json").exists());
    assert_eq!(lab.json("run/run.json")["seed"], 7);

    let again = |seed: &str, to: &str| {
        let before = lab.calls().len();
        lab.matrix(&["run", "lab.toml", "--seed", seed, "--output", to]).code(0);
        lab.calls().split_off(before)
    };
    assert_eq!(again("7", "seven"), calls[5..], "the seed tells the order");
    assert_ne!(again("8", "eight"), calls[5..]);
}

#[test]
fn a_cell_s_only_boot_comes_as_soon_as_its_kernel_is_there() {
    let lab = Lab::new(&column("STAND_IN_QEMU", &["a", "b"], ""));
    lab.matrix(&[RUN, &["--jobs", "1"]].concat()).code(0);
    let calls = lab.calls();
    let calls: Vec<_> = calls.iter().filter(|c| *c != "make allnoconfig").collect();
    assert_eq!(calls, ["make vmlinux Image", "qemu a", "make vmlinux Image", "qemu b"]);
}

/// With jobs for two, so many kernels are made at once, and the third waits
/// until a boot that needs the machine to itself is over.
#[test]
fn as_many_kernels_are_made_at_once_as_there_are_jobs_for() {
    let lab = Lab::new(&column("STAND_IN_MAKE", &["meet", "meet-too", "ok"], ""));
    lab.matrix(&[RUN, &["--jobs", "2"]].concat()).code(0);
    let calls = lab.calls();
    let at = |call: &str| calls.iter().enumerate().filter(|(_, c)| *c == call).map(|(at, _)| at).collect();
    let (makes, boots): (Vec<_>, Vec<_>) = (at("make vmlinux Image"), at("qemu good"));
    assert_eq!((makes.len(), boots.len()), (3, 3));
    assert!(makes[1] < boots[0] && boots[0] < makes[2], "{calls:?}");
    let lab = Lab::new(&column("STAND_IN_MAKE", &["meet", "meet-too"], ""));
    let done = lab.matrix(&[RUN, &["--jobs", "1"]].concat()).code(1);
    assert_eq!(rows(&done.stdout, "size")[0], "meet FAILED(compile error)", "one job for two kernels");
}

/// A kernel starts from the objects of the one that is done, unless it comes
/// out the same anyhow; in the end they go, unless they are to be kept.
#[test]
fn kernels_start_from_the_objects_of_others() {
    let text = column("FANCY_NAME", &["a", "b"], "");
    for (args, left) in [(&[][..], false), (&["--keep-objects"][..], true)] {
        let lab = Lab::new(&text);
        let args = [RUN, &["--jobs", "1", "--verbose"], args].concat();
        lab.matrix(&args).code(0).says(&[
            "build riscv64-NR_CPUS=64-FANCY_NAME=b: from the objects of riscv64-NR_CPUS=64-FANCY_NAME=a",
        ]);
        let work = lab.path("cache/work");
        let trees =
            std::fs::read_dir(work).unwrap().filter(|e| e.as_ref().unwrap().path().join("obj").exists());
        assert_eq!(trees.count() > 0, left);
    }
}

/// A patch of a C file is made after the kernel without it, from that one's
/// objects; one of a Makefile is another source, and is not waited with.
#[test]
fn a_kernel_with_a_small_patch_waits_for_the_one_without() {
    let text = varied("patches = [\"none\", \"p.patch\"]", "boots = 0", "", "patches");
    let text = format!("{}{}", text.split("[[benchmark]]").next().unwrap(), "");
    let patch = |file: &str| format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-# stand-in\n+// other\n");
    for (file, from) in [("lib/a.c", true), ("Makefile", false)] {
        let lab = Lab::new(&text);
        lab.write("linux/lib/a.c", "# stand-in\n");
        lab.write("p.patch", &patch(file));
        let done = lab.matrix(&[RUN, &["--jobs", "2", "--verbose"]].concat()).code(0);
        let at = |text: &str| done.stderr.find(text).unwrap_or_else(|| panic!("no {text}: {}", done.stderr));
        let (plain, patched) =
            ("build riscv64-NR_CPUS=64-patches=none", "build riscv64-NR_CPUS=64-patches=p.patch");
        let waited = at(&format!("{plain}: done")) < at(&format!("{patched}: started"));
        assert_eq!(waited, from, "{}", done.stderr);
        assert_eq!(
            done.stderr.contains(&format!("{patched}: from the objects of ")),
            from,
            "{}",
            done.stderr
        );
    }
}

#[test]
fn ccache_is_used_where_it_is_installed_and_says_what_it_saved() {
    for (args, said) in [(&[][..], true), (&["--no-ccache"][..], false)] {
        let lab = Lab::new(&column("STAND_IN_QEMU", &["good"], ""));
        let done = lab.matrix(&[RUN, args].concat()).code(0);
        assert_eq!(done.stderr.contains("ccache had 1 of 2 objects"), said, "{}", done.stderr);
        let info = lab.json("run/cells/riscv64-NR_CPUS=64-STAND_IN_QEMU=good/build.json");
        assert_eq!(info["ccache"]["hits"] == 1, said, "{info}");
        let script = lab.read("run/cells/riscv64-NR_CPUS=64-STAND_IN_QEMU=good/reproduce.sh");
        assert!(!script.contains("ccache"), "{script}");
    }
}

/// The first guest ends well only if the third kernel's `make` begins meanwhile.
#[test]
fn boots_that_count_instructions_overlap_builds() {
    let values = ["beside-make", "good", "fine"];
    let run = [RUN, &["--jobs", "2"]].concat();
    let lab = Lab::new(&column("STAND_IN_QEMU", &values, "timing = \"instructions\""));
    let done = lab.matrix(&run).code(0);
    contains(&done.stdout, &["emulated instruction count"]);
    let lab = Lab::new(&column("STAND_IN_QEMU", &values, ""));
    let done = lab.matrix(&run).code(1);
    assert_eq!(rows(&done.stdout, "time")[0], "beside-make/s FAILED(qemu failed)");
}

/// The stand-in's times repeat, so that three boots are enough, and no boot is
/// lost to a run that is gone on with.
#[test]
fn a_cell_is_booted_until_its_mean_is_known() {
    let lab = Lab::new(&column("STAND_IN_QEMU", &["good", "panic"], "until = \"±1%\"\nboots = 9"));
    contains(&lab.matrix(&["plan", "lab.toml"]).code(0).stdout, &["up to 18 boots"]);
    let done = lab.run().code(1);
    assert_eq!((lab.count("qemu good"), lab.count("qemu panic")), (3, 1));
    contains(&done.stdout, &["in 3 boots"]);
    lab.matrix(&["run", "--resume", "run"]).code(1);
    assert_eq!((lab.count("qemu good"), lab.count("qemu panic")), (3, 1));
}

// --- axes beside symbols ---

/// A matrix of one kernel whose cells differ in other ways.
fn varied(axes: &str, boot: &str, args: &str, rows: &str) -> String {
    column("STAND_IN_QEMU", &["good"], boot)
        .replace("STAND_IN_QEMU = [\"good\"]", axes)
        .replace("command = \"messages\"", &format!("command = \"messages {args}\""))
        .replace("rows = \"STAND_IN_QEMU\"", &format!("rows = \"{rows}\""))
}

#[test]
fn parameters_reach_the_guest_and_one_kernel_serves_all() {
    let axes = "\"rcuscale.nwriters\" = [1, 2]\ngroups = [3, 5]\nvcpus = [1, 2]";
    let lab = Lab::new(
        &varied(axes, "", "-g {groups}", "groups").replace("vcpus = 2\n", "cmdline = \"g={groups}\"\n"),
    );
    let done = lab.run().code(0).says(&["1 built, 0 from the cache"]);
    contains(&done.stdout, &["rcuscale.nwriters 2, vcpus 1"]);
    let cell = "run/cells/riscv64-NR_CPUS=64-rcuscale.nwriters=2-groups=5-vcpus=1/boot-1/qemu.sh";
    contains(&lab.read(cell), &["-smp 1 ", " g=5 rcuscale.nwriters=2'"]);
    let guests = std::fs::read_dir(lab.path("run/guest")).unwrap().map(|e| e.unwrap().path());
    let guests: Vec<_> = guests.filter(|p| p.extension().is_some_and(|e| e == "cpio")).collect();
    assert_eq!(guests.len(), 2, "one for each number of groups: {guests:?}");
    let job = |n: &str| {
        guests
            .iter()
            .any(|p| std::fs::read(p).unwrap().windows(6).any(|w| w == format!("arg {n}\n").as_bytes()))
    };
    assert!(job("3") && job("5"));
}

#[test]
fn a_patch_that_does_not_apply_fails_its_cells_alone() {
    let axes = "patches = [\"none\", \"good.patch\", \"bad.patch\"]";
    let lab = Lab::new(&varied(axes, "", "", "patches"));
    lab.write("linux/notes", "one\ntwo\n");
    let patch = |from: &str| format!("--- a/notes\n+++ b/notes\n@@ -1,2 +1,2 @@\n-{from}\n+1\n two\n");
    lab.write("good.patch", &patch("one"));
    lab.write("bad.patch", &patch("eleven"));
    let done = lab.run().code(1).says(&[
        "source source + bad.patch: FAILED (source, patch)",
        "Hunk #1 FAILED at 1",
        "2 built, 0 from the cache, 1 failed: riscv64-NR_CPUS=64-patches=bad.patch",
    ]);
    let size = rows(&done.stdout, "size");
    assert_eq!(size[2], "bad.patch FAILED(patch)");
    assert_eq!(lab.read("linux/notes"), "one\ntwo\n", "the user's tree is not touched");
}

// --- plans ---

#[test]
fn a_plan_says_why_and_touches_nothing() {
    let lab = Lab::new(SQUARE);
    let plan = |args: &[&str]| {
        let calls = lab.calls();
        let done = lab.matrix(&[&["plan", "lab.toml"], args].concat()).code(0);
        assert_eq!(lab.calls(), calls, "a plan neither makes nor boots");
        done.stdout
    };
    let first = plan(&[]);
    contains(&first, &["lab: 4 cells, source in ", "  build  riscv64-NR_CPUS=512-OFFSTACK=n: never built\n"]);
    contains(&first, &["4 to build, 0 fresh, 4 boots\n"]);
    assert!(!lab.path("cache").exists());

    let half = ["--only", "NR_CPUS=512"];
    lab.matrix(&[RUN, &half].concat()).code(0);
    let second = plan(&[]);
    contains(&second, &["  fresh  riscv64-NR_CPUS=512-OFFSTACK=y: vmlinux 105608 bytes\n"]);
    contains(
        &second,
        &["  build  riscv64-NR_CPUS=4096-OFFSTACK=y: never built\n", "2 to build, 2 fresh, 4 boots\n"],
    );

    lab.write("lab.toml", &SQUARE.replace("[kernel]", "[kernel]\nmake = [\"KCFLAGS=-O3\"]"));
    let third = plan(&half);
    contains(
        &third,
        &["make flags: CROSS_COMPILE=riscv64-linux-gnu- -> CROSS_COMPILE=riscv64-linux-gnu- KCFLAGS=-O3\n"],
    );
    contains(&third, &["2 to build, 0 fresh, 2 boots\n"]);

    lab.write("lab.toml", &SQUARE.replace("[kernel]", "[kernel]\nconfig = { HZ_250 = \"y\" }"));
    contains(&plan(&half), &["OFFSTACK=n: configuration changed\n"]);
    lab.write("lab.toml", SQUARE);
    lab.write("linux/Makefile", "# changed\n");
    contains(&plan(&half), &["OFFSTACK=n: source: "]);

    lab.write("lab.toml", &SQUARE.replace("path = \"linux\"", "path = \"again\""));
    std::fs::rename(lab.path("linux"), lab.path("again")).unwrap();
    lab.matrix(&["run", "lab.toml", "--output", "again-run", "--only", "NR_CPUS=512"]).code(0);
    std::fs::remove_dir_all(lab.path("cache/builds")).unwrap();
    contains(&plan(&half), &["OFFSTACK=n: its cache entry is gone or damaged\n"]);
}

#[test]
fn a_dry_run_shows_all_commands_and_creates_nothing() {
    let lab = Lab::new(SQUARE);
    let done = lab.matrix(&["run", "lab.toml", "--output", "run", "--dry-run", "--jobs", "3"]).code(0);
    let makes: Vec<_> = done.stdout.lines().filter(|l| l.starts_with("make -C ")).collect();
    assert_eq!(makes.len(), 4, "{}", done.stdout);
    let words = shell_words::split(makes[0]).unwrap();
    assert_eq!(words[1..3], ["-C", lab.path("linux").to_str().unwrap()]);
    assert!(words[3].starts_with("O="), "{words:?}");
    assert_eq!(words[4..], ["ARCH=riscv", "CROSS_COMPILE=riscv64-linux-gnu-", "-j3", "vmlinux", "Image"]);
    let boots: Vec<_> = done.stdout.lines().filter(|l| l.starts_with("qemu-system-riscv64 ")).collect();
    assert_eq!(boots.len(), 4, "{}", done.stdout);
    contains(boots[0], &["-smp 2 -m 128M ", "'console=ttyS0 earlycon panic=-1 oops=panic'"]);
    assert_eq!(lab.calls(), [""; 0]);
    for unwanted in ["run", "matrix-runs", "cache"] {
        assert!(!lab.path(unwanted).exists(), "{unwanted} was created");
    }
}

// --- kernels that do not come about ---

#[test]
fn a_kernel_that_does_not_compile_fails_alone() {
    let lab = Lab::new(&column("STAND_IN_MAKE", &["fail", "ok"], ""));
    let cell = "riscv64-NR_CPUS=64-STAND_IN_MAKE=fail";
    let done = lab.run().code(1).says(&[
        "build riscv64-NR_CPUS=64-STAND_IN_MAKE=fail: FAILED (build, compile error)\n    a.c:1:1: error: stand-in\n",
        "make exit code 2; whole log: ",
        &format!("1 built, 0 from the cache, 1 failed: {cell}; evidence in run"),
    ]);
    let words: Vec<_> = done.stdout.split_whitespace().collect();
    contains(&words.join(" "), &[&format!("{cell}: failed at build: a.c:1:1: error: stand-in")]);
    for title in ["size", "time"] {
        let rows = rows(&done.stdout, title);
        assert_eq!(rows[0].split_once(' ').unwrap().1, "FAILED(compile error)", "{title}");
        assert!(rows[1].starts_with("ok"), "{rows:?}");
    }
    let log = done.stderr.split("whole log: ").nth(1).unwrap().lines().next().unwrap();
    assert_eq!(log, format!("cells/{cell}/build.log"));
    contains(
        &std::fs::read_to_string(lab.path("run").join(log)).unwrap(),
        &["  CC      a.o\n", "a.c:1:1: error: stand-in\n"],
    );
    assert_eq!(lab.count("qemu good"), 1);
}

#[test]
fn a_value_that_does_not_stick_fails_before_anything_compiles() {
    let text =
        column("STAND_IN_MAKE", &["ok"], "").replace("[kernel]", "[kernel]\nconfig = { FANCY = \"y\" }");
    let lab = Lab::new(&text).env("STAND_IN_LOSE", "FANCY");
    let done = lab.run().code(1).says(&[
        "FAILED (config, config)",
        "CONFIG_FANCY: asked for y, got nothing\n",
        "lib/Kconfig:6: depends on PLAIN  [PLAIN=n]\n",
    ]);
    assert_eq!(rows(&done.stdout, "size"), ["ok FAILED(config)"]);
    assert_eq!(lab.calls(), ["make allnoconfig"]);
}

#[test]
fn rules_that_forbid_a_mask_off_the_stack_are_replaced_and_that_is_said() {
    let lab = Lab::new(SQUARE).env("STAND_IN_LOSE", "CPUMASK_OFFSTACK");
    lab.matrix(&[RUN, &["--only", "NR_CPUS=512"]].concat()).code(0);
    let overridden = |cell: &str| lab.json(&format!("run/cells/{cell}/build.json"))["overridden"].clone();
    // An absent symbol is as good as off.
    assert_eq!(overridden(CELLS[0]), serde_json::json!([]));
    assert_eq!(
        overridden(CELLS[1]),
        serde_json::json!([
            "CONFIG_CPUMASK_OFFSTACK: prompt and range replaced",
            "CONFIG_NR_CPUS: prompt and range replaced"
        ])
    );
    contains(&lab.read(&format!("run/cells/{}/config", CELLS[1])), &["CONFIG_CPUMASK_OFFSTACK=y\n"]);
    assert_eq!(lab.count("make allnoconfig"), 3);
}

#[test]
fn base_configurations_are_completed() {
    let text = SQUARE.replace("base = \"allnoconfig\"\nfragments = [\"minimal\"]", "base = \"defconfig\"");
    let lab = Lab::new(&text);
    lab.matrix(&[RUN, &["--only", "NR_CPUS=512"]].concat()).code(0);
    assert_eq!(
        lab.read(&format!("run/cells/{}/config", CELLS[1])),
        "CONFIG_SMP=y\nCONFIG_NR_CPUS=512\nCONFIG_CPUMASK_OFFSTACK=y\n"
    );
    assert_eq!((lab.count("make defconfig"), lab.count("make olddefconfig")), (2, 2));
}

// --- boots that do not count ---

#[test]
fn every_way_to_fail_is_named_and_never_a_number() {
    let modes = [
        ("good", "0.5080"),
        ("panic", "FAILED(panic)"),
        ("oops", "FAILED(oops)"),
        ("reboot", "FAILED(unexpected reboot)"),
        ("crash", "FAILED(qemu failed)"),
        ("fatal", "FAILED(agent gave up)"),
        ("bad-protocol", "FAILED(bad protocol)"),
        ("wrong-cpus", "FAILED(wrong guest)"),
        ("wrong-release", "FAILED(wrong guest)"),
        ("wrong-kernel", "FAILED(wrong guest)"),
        ("wrong-nr-cpus", "FAILED(wrong guest)"),
        ("fail-benchmark", "FAILED(exit 3)"),
        ("escapes", "0.5080"),
    ];
    let lab = Lab::new(&column("STAND_IN_QEMU", &modes.map(|(mode, _)| mode), ""));
    let done = lab.run().code(1).says(&[
        "STAND_IN_QEMU=panic #1: FAILED (boot, panic)\n    the console says: [    0.500000] Kernel panic - not syncing: ",
        "STAND_IN_QEMU=oops #1: FAILED (boot, oops)\n    the console says: [    0.500000] Unable to handle kernel",
        "before its work was done; run 1 of benchmark 1 was the last to begin; evidence: ",
        "QEMU ended with exit code 1; ",
        "kernel release is 6.11.0, not 6.12.0-stand-in",
        "build ID of the running kernel is 0000000000000000000000000000000000000000, not 4d41",
        "greatest CPU number is 64, not 63 (NR_CPUS=64)",
        "online=0; 2 should be online",
        "no key in 'nonsense'",
        "FAILED (benchmark, exit 3)",
        "11 failed: ",
    ]);
    let sizes = rows(&done.stdout, "size");
    assert_eq!(sizes, modes.map(|(mode, _)| format!("{mode} 100640")), "kernels are good");
    let times = rows(&done.stdout, "time");
    let expected = modes.map(|(mode, field)| format!("{mode}/s {field}"));
    assert_eq!(times, expected);

    let json = lab.matrix(&["report", "run", "--format", "json"]).code(0);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    for (row, (mode, field)) in json[1]["rows"].as_array().unwrap().iter().zip(modes) {
        let failed = field.strip_prefix("FAILED(").and_then(|f| f.strip_suffix(')'));
        assert_eq!(row[1]["value"].as_f64(), failed.is_none().then_some(0.508), "{mode}");
        assert_eq!(row[1]["failed"].as_str(), failed, "{mode}");
    }
    let boot = lab.boot("riscv64-NR_CPUS=64-STAND_IN_QEMU=panic");
    assert!(boot["fault"].as_str().unwrap().starts_with("panic: the console says: "), "{boot}");
    let console = lab.read("run/cells/riscv64-NR_CPUS=64-STAND_IN_QEMU=escapes/boot-1/console.log");
    assert!(console.contains("\x1b[2J"), "evidence is kept as it came");
}

// --- benchmarks that the kernel runs ---

/// A kernel of its own for each of `modes`, with rcuscale as its benchmark.
fn rcuscale(modes: &[&str], params: &str) -> String {
    format!(
        r#"
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
max_other_load = "off"
[[benchmark]]
use = "rcuscale"
params = {{ {params} }}
[[table]]
title = "mean"
metric = "rcuscale.duration"
columns = "NR_CPUS"
rows = "STAND_IN_QEMU"
[[table]]
title = "ratio"
metric = "rcuscale.ratio"
columns = "NR_CPUS"
rows = "STAND_IN_QEMU"
"#
    )
}

#[test]
fn results_of_the_kernels_own_benchmark_are_read_from_its_console() {
    let modes = [
        // Of 13000.4, 121004, 115000 and 219000 us.
        ("good", "117001.1000"),
        ("drop", "FAILED(lines lost)"),
        ("damage", "FAILED(damaged line)"),
        ("early", "FAILED(too early)"),
        ("refuse", "FAILED(not measured)"),
        ("panic", "FAILED(panic)"),
        ("reboot", "FAILED(unexpected reboot)"),
    ];
    let lab = Lab::new(&rcuscale(&modes.map(|(mode, _)| mode), "nreaders = 1, nwriters = 1"));
    let done = lab.run().code(1).says(&[
        "FAILED (benchmark, lines lost)",
        "rcuscale run 1: of series 0 the kernel has 4 values, the console 3; missing: 2; it says: ** 1 printk messages dropped **; evidence: ",
        "121[   22.610000] something else' is not as the kernel prints it",
        "before the guest's init had said what it runs on: let the test wait for longer: params = { holdoff = 60 }",
        "the console says: [    0.300000] rcu-scale: invalid scale type: \"rcc\"",
    ]);
    assert_eq!(rows(&done.stdout, "mean"), modes.map(|(mode, field)| format!("{mode}/us {field}")));
    contains(&done.stdout, &["mean of 4 runs in 1 boot"]);
    let records = lab.read("run/records.jsonl");
    assert_eq!(records.matches(r#""metric":"rcuscale.duration""#).count(), 4);
    assert_eq!(records.matches(r#""metric":"rcuscale.grace_periods","value":4.0"#).count(), 1);
    let boot = lab.boot("riscv64-NR_CPUS=64-STAND_IN_QEMU=good");
    assert_eq!(boot["guest"]["param rcuscale.nwriters"], "1");
    assert_eq!(boot["console_results"].as_array().unwrap().len(), 7);
}

#[test]
fn a_parameter_that_no_module_takes_fails_the_cell() {
    let lab = Lab::new(&rcuscale(&["no-module"], "nwritrs = 1"));
    let began = Instant::now();
    let done = lab
        .run()
        .code(1)
        .says(&["rcuscale.nwritrs did nothing that shows: module rcuscale has no parameter nwritrs"]);
    assert!(began.elapsed() < Duration::from_secs(60), "a kernel that will not end is not waited for");
    assert_eq!(rows(&done.stdout, "mean"), ["no-module/us FAILED(parameter ignored)"]);

    // The same for any boot.
    let lab = Lab::new(&column("STAND_IN_QEMU", &["good"], "cmdline = \"nosuch.thing=1\""));
    let done = lab.run().code(1).says(&["nosuch.thing did nothing: the kernel has no module nosuch"]);
    assert_eq!(rows(&done.stdout, "time"), ["good/s FAILED(parameter ignored)"]);
}

/// A warning makes a boot invalid, unless the matrix file knows it.
#[test]
fn a_warning_counts_unless_it_is_allowed() {
    let run = |allow: &str| {
        let lab = Lab::new(&column("STAND_IN_QEMU", &["warn"], allow));
        let status = if allow.contains("stand-in") { 0 } else { 1 };
        rows(&lab.run().code(status).stdout, "time").remove(0)
    };
    assert_eq!(run(""), "warn/s FAILED(warning)");
    assert_eq!(run("allow = ['at lib/other\\.c']"), "warn/s FAILED(warning)");
    assert!(run("allow = ['WARNING: .* at lib/stand-in\\.c']").starts_with("warn/s 0."));
}

#[test]
fn silent_guests_are_ended() {
    let lab = Lab::new(&column("STAND_IN_QEMU", &["hang", "no-output"], "silence = \"3s\""));
    let done = lab.run().code(1).says(&["nothing from the guest for 3 s; evidence: "]);
    assert_eq!(rows(&done.stdout, "time"), ["hang/s FAILED(hung)", "no-output/s FAILED(no output)"]);
}

#[test]
fn an_endless_console_is_bounded_in_time_and_size() {
    let lab = Lab::new(&column("STAND_IN_QEMU", &["flood"], "deadline = \"3s\""));
    let mut run = lab.start(RUN);
    run.wait_for("qemu flood");
    let began = Instant::now();
    let done = run.finish().code(1);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(rows(&done.stdout, "time"), ["flood/s FAILED(deadline)"]);
    let console = lab.path("run/cells/riscv64-NR_CPUS=64-STAND_IN_QEMU=flood/boot-1/console.log");
    let size = console.metadata().unwrap().len();
    assert!((1..(16 << 20) + 100).contains(&size), "{size}");
}

#[test]
fn a_flood_takes_little_memory_and_holds_up_nobody() {
    let boot = "timing = \"instructions\"\nmemory = \"64M\"\ndeadline = \"10s\"";
    let lab = Lab::new(&column("STAND_IN_QEMU", &["flood", "ok"], boot));
    let mut run = lab.start(RUN);
    run.wait_for("qemu flood");
    if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
        // Compiled, booted and measured while the other one floods.
        run.wait_for_message("boot riscv64-NR_CPUS=64-STAND_IN_QEMU=ok #1: done");
        assert!(!run.stderr().contains("FAILED"), "{}", run.stderr());
    }
    std::thread::sleep(Duration::from_secs(2));
    let peak = run.peak_kib();
    assert!((1..64 << 10).contains(&peak), "{peak} KiB");
    let done = run.finish().code(1);
    assert_eq!(rows(&done.stdout, "time"), ["flood/s FAILED(deadline)", "ok/s 0.5080"]);
    let console = lab.path("run/cells/riscv64-NR_CPUS=64-STAND_IN_QEMU=flood/boot-1/console.log");
    let size = console.metadata().unwrap().len();
    assert!((16 << 20..(16 << 20) + 100).contains(&size), "not a flood: {size} bytes");
}

#[test]
fn an_emulator_that_ignores_sigterm_is_killed_with_its_daemon() {
    let lab = Lab::new(&column("STAND_IN_QEMU", &["ignore-term"], "deadline = \"2s\""));
    let done = lab.run().code(1).says(&["not done in time; there was no output at all"]);
    assert_eq!(rows(&done.stdout, "time"), ["ignore-term/s FAILED(deadline)"]);
}

// --- interrupts ---

#[test]
fn an_interrupt_during_make_keeps_what_was_measured() {
    let lab = Lab::new(&column("STAND_IN_MAKE", &["ok", "hang"], "timing = \"instructions\""));
    let run = lab.start(RUN);
    run.wait_for_message("boot riscv64-NR_CPUS=64-STAND_IN_MAKE=ok #1: done");
    run.wait_for_message("build riscv64-NR_CPUS=64-STAND_IN_MAKE=hang: started");
    run.signal(Signal::SIGINT);
    let done = run.finish().code(130).says(&[
        "interrupted: stopping; once more kills",
        "1 built, 0 from the cache; interrupted; what was measured is in run (`matrix report run`",
    ]);
    assert_eq!(done.stdout, "");
    let report = lab.matrix(&["report", "run"]).code(0);
    assert_eq!(rows(&report.stdout, "time"), ["ok/s 0.5080", "hang/s missing"]);
    assert_eq!(rows(&report.stdout, "size"), ["ok 100640", "hang missing"]);
    assert_eq!(lab.read("run/tables.txt"), report.stdout);
}

#[test]
fn an_interrupt_during_a_boot_keeps_what_was_measured() {
    let lab = Lab::new(&column("STAND_IN_QEMU", &["good", "hang"], ""));
    let mut run = lab.start(&[RUN, &["--jobs", "1"]].concat());
    run.wait_for("qemu hang");
    run.signal(Signal::SIGTERM);
    let done = run.finish().code(130);
    assert_eq!(done.stdout, "");
    let report = lab.matrix(&["report", "run"]).code(0);
    assert_eq!(rows(&report.stdout, "time"), ["good/s 0.5080", "hang/s missing"]);
    assert_eq!(rows(&report.stdout, "size"), ["good 100640", "hang 100640"]);
    contains(&report.stdout, &["missing: not measured"]);
    assert_eq!(lab.read("run/records.jsonl").matches("messages.time").count(), 1);
    // What was built stays built.
    lab.matrix(&["run", "lab.toml", "--output", "again", "--only", "STAND_IN_QEMU=good"])
        .code(0)
        .says(&["0 built, 1 from the cache"]);
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let lab = Lab::new(&column("STAND_IN_MAKE", &["ignore-term"], ""));
    let mut run = lab.start(RUN);
    run.wait_for("make vmlinux Image");
    run.wait_for_message("started");
    run.signal(Signal::SIGINT);
    run.wait_for_message("once more kills");
    let second = Instant::now();
    run.signal(Signal::SIGINT);
    run.finish().code(130);
    // Waiting for SIGTERM to help would take five.
    assert!(second.elapsed() < Duration::from_secs(4), "{:?}", second.elapsed());
}

#[test]
fn nothing_outlives_a_matrix_that_is_killed() {
    for (symbol, call) in [("STAND_IN_MAKE", "make vmlinux Image"), ("STAND_IN_QEMU", "qemu ignore-term")] {
        let lab = Lab::new(&column(symbol, &["ignore-term"], ""));
        let mut run = lab.start(RUN);
        run.wait_for(call);
        // The command has a child and a daemon, neither of which heeds SIGTERM.
        let began = Instant::now();
        while lab.alive().iter().filter(|command| *command == "sleep 100 ").count() < 2 {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", lab.alive());
            std::thread::sleep(Duration::from_millis(20));
        }
        run.signal(Signal::SIGKILL);
        assert_eq!(run.end().status.code(), None);
        lab.until_nothing_is_alive(Duration::from_secs(3));
    }
}

#[test]
fn whoever_waits_for_another_run_can_be_interrupted() {
    let lab = Lab::new(&column("STAND_IN_QEMU", &["good"], ""));
    lab.run().code(0);
    let locks = std::fs::read_dir(lab.path("cache/locks")).unwrap().map(|e| e.unwrap().path());
    let lock =
        locks.filter(|p| p.to_str().unwrap().contains("/guest-")).map(|p| std::fs::File::open(p).unwrap());
    let held: Vec<_> =
        lock.map(|f| Flock::lock(f, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap()).collect();
    assert!(!held.is_empty());
    let run = lab.start(&["run", "lab.toml", "--output", "again"]);
    run.wait_for_message("guest riscv64: started");
    run.signal(Signal::SIGINT);
    run.finish().code(130);
}

#[test]
fn a_guest_must_show_the_topology_asked_for() {
    let lab = Lab::new(&column("numa", &["1", "2"], ""));
    let done = lab.run().code(1).says(&["NUMA nodes are 0; 2 should be there"]);
    assert_eq!(rows(&done.stdout, "time"), ["1/s 0.5080", "2/s FAILED(wrong guest)"]);
    let script = lab.read("run/cells/riscv64-NR_CPUS=64-numa=2/boot-1/qemu.sh");
    contains(&script, &["sockets=2,cores=1,threads=1", "cpus=1-1,memdev=node1"]);
}

// --- what users get wrong ---

#[test]
fn a_wrong_matrix_file_is_answered_with_all_its_faults() {
    let text = "\
[source]
path = \"linus\"
[axes]
arch = [\"riscv65\"]
NR_CPUS = [512, 8192]
[kernel]
base = \"allnoconfig\"
[boot]
memmory = \"1G\"
";
    let lab = Lab::new(text);
    for args in [RUN, &["plan", "lab.toml"]] {
        let done = lab.matrix(args).code(2).says(&[
            "error: kernel tree `linus` is not there",
            "lab.toml:2:8",
            "error: unknown architecture `riscv65`",
            "lab.toml:4:9",
            "lab.toml:5:17",
            "error: unknown key `memmory` in `boot`",
            "lab.toml:9:1",
            "did you mean `memory`?",
            "lab.toml: 4 errors; nothing was built",
        ]);
        assert_eq!(done.stdout, "");
    }
    for unwanted in ["run", "matrix-runs", "cache"] {
        assert!(!lab.path(unwanted).exists(), "{unwanted} was created");
    }
    lab.matrix(&["run", "nowhere.toml"])
        .code(2)
        .says(&["matrix: error: cannot read nowhere.toml: No such file or directory (os error 2)\n"]);
    lab.matrix(&["run"]).code(2);
}

#[test]
fn a_missing_program_is_named_with_its_cure() {
    let text = column("STAND_IN_MAKE", &["ok"], "");
    let lab = Lab::new(&text).without("riscv64-linux-gnu-gcc");
    lab.run()
        .code(2)
        .says(&["apt-get install gcc-riscv64-linux-gnu", "`riscv64-linux-gnu-gcc` was not found"]);
    assert!(!lab.path("run").exists() && !lab.path("cache").exists());

    let lab = Lab::new(&text).without("make");
    lab.run().code(2).says(&["`make` was not found; `matrix doctor` says what to install"]);
    let doctor = lab.matrix(&["doctor", "--arch", "riscv64", "--packages"]).code(1);
    contains(&format!("\n{}", doctor.stdout), &["\nmake\n"]);

    let lab = Lab::new(&text).without("qemu-system-riscv64");
    lab.run().code(2).says(&["`qemu-system-riscv64` was not found; `matrix doctor`"]);
    assert!(!lab.path("run").exists() && !lab.path("cache").exists());
}

#[test]
fn a_guest_that_cannot_be_made_fails_its_cells_but_not_their_sizes() {
    let lab = Lab::new(&column("STAND_IN_MAKE", &["ok"], ""));
    lab.write("messages", "#!/bin/sh\n");
    let done =
        lab.run().code(1).says(&["guest riscv64: FAILED (boot, no guest)", "not a 64-bit ELF program"]);
    assert_eq!(rows(&done.stdout, "time"), ["ok/s FAILED(no guest)"]);
    assert_eq!(rows(&done.stdout, "size"), ["ok 100640"]);
}

// --- what the program says of itself ---

#[test]
fn lists_schema_completions_and_manual_are_there() {
    let lab = Lab::new(SQUARE);
    let print = |args: &[&str]| {
        let done = lab.matrix(args);
        assert_eq!((done.status.code(), done.stderr.as_str()), (Some(0), ""));
        done.stdout
    };
    contains(
        &print(&["list"]),
        &["archs:\n", "  riscv64: qemu-system-riscv64", "hackbench.time (s)", "  minimal\n"],
    );
    assert_eq!(print(&["list", "runs"]), "");
    let schema: serde_json::Value = serde_json::from_str(&print(&["schema"])).unwrap();
    assert!(schema["properties"]["axes"].is_object(), "{schema}");
    contains(&print(&["completions", "bash"]), &["_matrix()", "--dry-run"]);
    contains(&print(&["man"]), &[".TH matrix 1"]);
    print(&["man", "pages"]);
    contains(&lab.read("pages/matrix-run.1"), &["dry\\-run"]);
}

// --- stacks ---

/// The square with its tables replaced by those about stacks.
fn stacks(config: &str) -> String {
    let (head, _) = SQUARE.split_once("[[table]]").unwrap();
    let head = head.replace("[boot]", &format!("config = {{ {config} }}\n[boot]"));
    format!(
        r#"{head}
[labels.OFFSTACK]
n = "onstack"
y = "offstack"
[[table]]
title = "stack frames (bytes)"
layout = "frames"
compare = "OFFSTACK"
top = 2
where = {{ NR_CPUS = 4096 }}
[[table]]
title = "largest frame"
metric = "frames.max"
columns = "NR_CPUS"
rows = "OFFSTACK"
[[table]]
title = "stack left"
metric = "stack.left"
columns = "NR_CPUS"
rows = "OFFSTACK"
"#
    )
}

const STACKS: &str = "\
stack frames (bytes)

function           onstack  offstack
turn.isra.0            576    absent
dance                  544        32
steady (dynamic)        96        96
turn.constprop.0    absent        64
sum of all frames     1216       240

exact: counted, not timed
absent: this kernel has no such function
(dynamic): it takes more, by an amount that only run time tells

stack frames (bytes): what differs

function                        onstack  offstack  change
dance                               544        32    -512
turn.isra.0 / turn.constprop.0      576        64    -512

exact: counted, not timed
in offstack, not in onstack: 1 function: alloc_mask (48)

largest frame

NR_CPUS   512  4096
onstack   128   576
offstack   96    96

exact: counted, not timed

stack left

NR_CPUS     512   4096
onstack   12936  12488
offstack  12936  12488

exact: counted, not timed
";

#[test]
fn stacks_are_measured_statically_and_at_run_time() {
    let lab = Lab::new(&stacks("DEBUG_STACK_USAGE = \"y\""));
    let done = lab.run().code(0);
    assert_eq!(done.stdout, STACKS);
    assert_eq!(lab.count("objdump"), 4);
    let frames = lab.json("run/cells/riscv64-NR_CPUS=512-OFFSTACK=n/frames.json");
    assert_eq!(frames["frames"]["bytes"]["dance"], 96);
    assert_eq!(lab.boot("riscv64-NR_CPUS=512-OFFSTACK=n")["stack_left"], 12936);
    assert_eq!(lab.matrix(&["report", "run"]).code(0).stdout, STACKS);

    // Frames are kept with the kernels.
    lab.matrix(&["run", "lab.toml", "--output", "again"]).code(0);
    assert_eq!(lab.count("objdump"), 4);
}

#[test]
fn stacks_that_cannot_be_measured_fail_their_own_tables_alone() {
    let mut text = stacks("STAND_IN_OBJDUMP = \"fail\"");
    text.push_str("[[table]]\ntitle = \"size\"\nmetric = \"vmlinux.file\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n");
    let lab = Lab::new(&text);
    let out = lab.run().code(1).stdout;
    assert_eq!(
        rows(&out, "largest frame"),
        ["onstack FAILED(no frames) FAILED(no frames)", "offstack FAILED(no frames) FAILED(no frames)"]
    );
    assert_eq!(rows(&out, "stack left")[0], "onstack FAILED(not reported) FAILED(not reported)");
    assert_eq!(rows(&out, "size"), ["onstack 105120 140960", "offstack 105608 137864"]);
    contains(
        &out.split_whitespace().collect::<Vec<_>>().join(" "),
        &[
            "sum of all frames FAILED(no frames) FAILED(no frames)",
            "failed at config, stack: CONFIG_DEBUG_STACK_USAGE is not set: add \"stack-usage\" to [kernel] fragments",
            "failed at build, frames: `riscv64-linux-gnu-objdump",
            "exit code 1 objdump:",
        ],
    );
    // They are tried again where that is asked for, and nothing else is.
    let (boots, resume) = (lab.count("qemu good"), ["run", "--resume", "run"]);
    assert_eq!(lab.matrix(&resume).code(1).stdout, out);
    assert_eq!(lab.count("objdump"), 4);
    let better = lab.with_stand_in("riscv64-linux-gnu-objdump", |text| text.replace("= fail ]", "= never ]"));
    let out = better.matrix(&[&resume[..], &["--retry-failed"]].concat()).code(1).stdout;
    assert_eq!(rows(&out, "largest frame"), ["onstack 128 576", "offstack 96 96"]);
    assert_eq!(rows(&out, "stack left")[0], "onstack FAILED(not reported) FAILED(not reported)");
    assert_eq!((lab.count("objdump"), lab.count("qemu good")), (8, boots));
    // Without a table that asks nobody looks.
    let lab = Lab::new(SQUARE);
    lab.run().code(0);
    assert_eq!(lab.count("objdump"), 0);
}
