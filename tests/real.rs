//! Real kernels: built with the cross compilers, booted under QEMU, measured.
//!
//! These take minutes and need what `matrix doctor` lists, so they are ignored
//! unless asked for: `cargo test --release --test real -- --ignored`. Kernels
//! are kept below the target folder; a clean checkout builds them anew.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use matrix::boot::{compiled, kvm};
use matrix::kernel::build::BuildInfo;
use matrix::model::{Accel, BaseConfig, Fragment, Kernel, Kind, Source, Toolchain};
use matrix::process::{self, Stop};
use matrix::{arch, cache::Cache, kernel, store};

const MATRIX: &str = env!("CARGO_BIN_EXE_matrix");

fn room(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Runs the program; its progress goes where the test's own output goes.
fn matrix(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(MATRIX);
    command.args(args).env("MATRIX_CACHE", cache).stderr(std::process::Stdio::inherit());
    command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run directory that does not exist yet.
fn fresh(name: &str) -> PathBuf {
    let dir = room("runs").join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn build_info(run: &Path, cell: &str) -> BuildInfo {
    serde_json::from_slice(&std::fs::read(run.join("cells").join(cell).join("build.json")).unwrap()).unwrap()
}

/// The built `vmlinux` of a cell in a cache.
fn vmlinux(cache: &Path, run: &Path, cell: &str) -> PathBuf {
    cache.join("builds").join(build_info(run, cell).inputs.fingerprint()).join("vmlinux")
}

/// Text, data and bss as a cross `size` prints them.
fn binutils(size: &str, file: &Path) -> [u64; 3] {
    let out = Command::new(size).arg(file).output().unwrap();
    let figures: Vec<u64> = text(&out.stdout)
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .take(3)
        .map(|n| n.parse().unwrap())
        .collect();
    figures.try_into().unwrap()
}

#[test]
#[ignore = "builds real kernels"]
fn kernels_are_built_booted_and_measured() {
    let cache = room("cache");
    let run = fresh("smoke");
    let out = matrix(&cache, &["run", "matrices/smoke.toml", "--output", run.to_str().unwrap()]);
    println!("{}", text(&out.stdout));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("emulated instruction count"), "unlabelled: {}", text(&out.stdout));

    let results = store::load(&run).unwrap();
    assert!(results.failures.is_empty(), "{:?}", results.failures);
    for cell in &results.matrix.cells {
        let arch = arch::find(&cell.arch).unwrap();
        let values = |metric: &str| -> Vec<f64> {
            let of_cell = results.samples.iter().filter(|s| s.cell == cell.id && s.metric == metric);
            of_cell.map(|s| s.value).collect()
        };
        let vmlinux = vmlinux(&cache, &run, &cell.id.0);
        let size = format!("{}size", arch.kernel.cross_compile);
        let sizes = ["vmlinux.text", "vmlinux.data", "vmlinux.bss"].map(|m| values(m)[0] as u64);
        assert_eq!(sizes, binutils(&size, &vmlinux), "{}", cell.id);
        assert_eq!(values("vmlinux.file"), [std::fs::metadata(&vmlinux).unwrap().len() as f64]);
        let times = values("hackbench.time");
        assert_eq!(times.len(), 3, "{}", cell.id);
        assert!(times.iter().all(|t| *t > 0.0 && *t < 60.0), "{times:?}");
        for evidence in ["config", "build.log", "boot-1/console.log", "boot-1/qemu.sh", "boot-1/results.txt"]
        {
            let file = run.join("cells").join(&cell.id.0).join(evidence);
            assert!(file.metadata().is_ok_and(|m| m.len() > 0), "{}", file.display());
        }
    }

    same_bytes_elsewhere(&cache, &run);
    nothing_is_built_twice(&cache);
    counted_instructions_repeat(&cache, &results);
    many_processors_come_online(&cache);
    faults_are_named(&cache);
    a_killed_run_is_gone_on_with(&cache);
}

/// Ten boots of one cell, while this process keeps every processor of the host
/// busy, give the times of the first run to the last digit.
fn counted_instructions_repeat(cache: &Path, first: &matrix::model::Results) {
    let run = fresh("repeat");
    let file = changed_smoke("repeat", &[("[boot]\n", "[boot]\nboots = 10\n")]);
    let args = ["run", file.to_str().unwrap(), "--only", "arch=riscv64", "--output", run.to_str().unwrap()];
    let done = AtomicBool::new(false);
    let out = std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let out = matrix(cache, &args);
        done.store(true, Ordering::Relaxed);
        out
    });
    assert_eq!(out.status.code(), Some(0));
    let results = store::load(&run).unwrap();
    let cell = &results.matrix.cells[0].id;
    let counted = |results: &matrix::model::Results, boot: u32| -> Vec<_> {
        let of_boot = results.samples.iter().filter(|s| s.cell == *cell && s.boot == Some(boot));
        let counted = of_boot.filter(|s| s.kind == Kind::EmulatedInstructions);
        counted.map(|s| (s.metric.clone(), s.iteration, s.value)).collect()
    };
    let expected = counted(first, 1);
    assert_eq!(expected.iter().filter(|(metric, ..)| metric == "hackbench.time").count(), 3);
    for boot in 1..=10 {
        assert_eq!(counted(&results, boot), expected, "boot {boot}");
    }
}

/// 64 vCPUs on whatever this machine has, counted by the guest itself.
fn many_processors_come_online(cache: &Path) {
    let changes = [
        ("vcpus = 4", "vcpus = 64"),
        ("timing = \"instructions\"", "online = \"staged\"\nmax_other_load = \"off\""),
    ];
    let run = fresh("many");
    let file = changed_smoke("many", &changes);
    let args = ["run", file.to_str().unwrap(), "--only", "arch=riscv64", "--output", run.to_str().unwrap()];
    let out = matrix(cache, &args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    for cell in &store::load(&run).unwrap().matrix.cells {
        let boot =
            std::fs::read_to_string(run.join("cells").join(&cell.id.0).join("boot-1/boot.json")).unwrap();
        assert!(boot.contains("online=0-63"), "{boot}");
    }
}

/// The smoke matrix with some of its text replaced. Its name stays, and so its
/// kernels do.
fn changed_smoke(name: &str, changes: &[(&str, &str)]) -> PathBuf {
    let mut text = std::fs::read_to_string("matrices/smoke.toml").unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let file = room("matrices").join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    file
}

/// The same cell, built in another folder and from the objects of a kernel with
/// other NR_CPUS, or masks off the stack as well, is the same file.
fn same_bytes_elsewhere(cache: &Path, run: &Path) {
    let other = other_cache(cache);
    let again = fresh("again");
    let axes = ("NR_CPUS = [64]\nOFFSTACK = [\"n\"]", "NR_CPUS = [512, 64]\nOFFSTACK = [\"y\", \"n\"]");
    let other_cells = "[[exclude]]\nNR_CPUS = 64\nOFFSTACK = \"y\"\n[kernel]\n";
    let rows = ("row = \"{arch}\"", "row = \"{arch} {NR_CPUS} {OFFSTACK}\"");
    let file = changed_smoke("again", &[axes, ("[kernel]\n", other_cells), rows]);
    // The third kernel starts from what is done.
    let args = ["run", file.to_str().unwrap(), "--jobs", "2", "--only", "arch=riscv64", "--output"];
    assert_eq!(matrix(&other, &[&args[..], &[again.to_str().unwrap()]].concat()).status.code(), Some(0));
    let cell = "riscv64-NR_CPUS=64-OFFSTACK=n";
    assert!(build_info(&again, cell).objects_of.unwrap().starts_with("riscv64-NR_CPUS=512-"));
    same_bytes(&vmlinux(cache, run, cell), &vmlinux(&other, &again, cell));
}

/// A cache of its own with the same sources.
fn other_cache(cache: &Path) -> PathBuf {
    let other = room("other-cache");
    if !other.join("sources").exists() {
        std::os::unix::fs::symlink(cache.join("sources"), other.join("sources")).unwrap();
    }
    other
}

fn same_bytes(one: &Path, two: &Path) {
    assert_ne!(one, two);
    assert!(std::fs::read(one).unwrap() == std::fs::read(two).unwrap(), "builds differ");
}

fn nothing_is_built_twice(cache: &Path) {
    let plan = text(&matrix(cache, &["plan", "matrices/smoke.toml"]).stdout);
    assert!(plan.contains("0 to build, 2 fresh"), "{plan}");
}

/// Real kernels in real trouble, on a kernel that is there already.
fn faults_are_named(cache: &Path) {
    for (name, boot, repeat, what) in [
        ("no-init", "cmdline = \"rdinit=/nowhere\"\n", 3, "init died"),
        // No machine is fast enough for all these runs in a second.
        ("deadline", "deadline = \"1s\"\n", 500, "deadline"),
        ("vcpus", "cmdline = \"maxcpus=2\"\nonline = \"kernel\"\n", 3, "wrong guest"),
    ] {
        let boot = format!("[boot]\n{boot}");
        let repeat = format!("repeat = {repeat}");
        let file = changed_smoke(name, &[("[boot]\n", &boot), ("repeat = 3", &repeat)]);
        let run = fresh(name);
        let args =
            ["run", file.to_str().unwrap(), "--only", "arch=riscv64", "--output", run.to_str().unwrap()];
        let out = matrix(cache, &args);
        assert_eq!(out.status.code(), Some(1), "{name}");
        assert!(text(&out.stdout).contains(&format!("FAILED({what})")), "{name}: {}", text(&out.stdout));
    }
}

/// Ten times killed at moments of its own, and gone on with, a run gives the
/// tables of one that was left alone, and measures no boot twice.
fn a_killed_run_is_gone_on_with(cache: &Path) {
    let file = changed_smoke("killed", &[("[boot]\n", "[boot]\nboots = 30\n")]);
    let file = file.to_str().unwrap();
    let (whole, killed) = (fresh("whole"), fresh("killed"));
    let begin = |run: &Path| -> Vec<String> {
        ["run", file, "--quiet", "--output", run.to_str().unwrap()].map(str::to_owned).to_vec()
    };
    let out = matrix(cache, &begin(&whole).iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(0));
    let mut args = begin(&killed);
    for kill in 0..10 {
        let mut run = Command::new(MATRIX)
            .args(&args)
            .env("MATRIX_CACHE", cache)
            .stdout(std::process::Stdio::null())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .spawn()
            .unwrap();
        // Spread over more than a boot, so that they hit all of its parts.
        std::thread::sleep(Duration::from_millis(700 + 467 * kill % 2000));
        run.kill().unwrap();
        run.wait().unwrap();
        if killed.join("records.jsonl").exists() {
            args = ["run", "--quiet", "--resume", killed.to_str().unwrap()].map(str::to_owned).to_vec();
        }
    }
    let out = matrix(cache, &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(0));
    let tables = |run: &Path| std::fs::read_to_string(run.join("tables.txt")).unwrap();
    assert_eq!(tables(&killed), tables(&whole));
    let boots = std::fs::read_to_string(killed.join("records.jsonl")).unwrap();
    assert_eq!(boots.matches("\"record\":\"boot\"").count(), 60);
}

/// A patch as an axis, NUMA nodes that the guest shows, function costs during
/// boot and hotplug: the patch is cheaper where it says so, in counted instructions.
#[test]
#[ignore = "builds real kernels"]
fn a_patch_is_compared_with_what_it_patches() {
    let cache = room("cache");
    let run = fresh("topology");
    let out = matrix(&cache, &["run", "matrices/topology-span.toml", "--output", run.to_str().unwrap()]);
    println!("{}", text(&out.stdout));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    let results = store::load(&run).unwrap();
    let mean = |cell: usize, metric: &str| {
        let cell = &results.matrix.cells[cell].id;
        let values = results.samples.iter().filter(|s| s.cell == *cell && s.metric == metric);
        let values: Vec<f64> = values.map(|s| s.value).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    for metric in ["boot-domains.total", "hotplug-domains.mean"] {
        let (before, after) = (mean(0, metric), mean(1, metric));
        assert!(after > 0.0 && after < 0.9 * before, "{metric}: {before} {after}");
    }
    assert!(mean(0, "offline-half.offline_total") > mean(0, "offline-one.offline_mean"));
    same_bytes_from_nothing(&cache, &run, [&results.matrix.cells[0].id.0, &results.matrix.cells[1].id.0]);
}

/// The patched kernel was made from the objects of the other; made by itself it
/// is the same file.
fn same_bytes_from_nothing(cache: &Path, run: &Path, [plain, patched]: [&str; 2]) {
    assert_eq!(build_info(run, patched).objects_of.unwrap(), plain);
    let (other, alone) = (other_cache(cache), fresh("alone"));
    let args = ["run", "matrices/topology-span.toml", "--only", "patches=after", "--output"];
    let out = matrix(&other, &[&args[..], &[alone.to_str().unwrap()]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    assert_eq!(build_info(&alone, patched).objects_of, None);
    same_bytes(&vmlinux(cache, run, patched), &vmlinux(&other, &alone, patched));
}

/// `matrix compare` flags a kernel that a patch made slower, and of twenty runs
/// of the same kernel none.
#[test]
#[ignore = "builds real kernels"]
fn a_slower_kernel_is_flagged_and_the_same_one_never() {
    let cache = room("cache");
    let patch = std::fs::canonicalize("tests/data/patches/slower-unix-sockets.patch").unwrap();
    let patches = format!("[kernel]\npatches = [{:?}]\n", patch.to_str().unwrap());
    let boots = ("[boot]\n", "[boot]\nperturb = 3\n");
    let plain = changed_smoke("plain", &[boots]);
    let slower = changed_smoke("slower", &[boots, ("[kernel]\n", &patches)]);
    let run = |file: &Path, name: &str| {
        let run = fresh(name);
        let args = ["run", file.to_str().unwrap(), "--quiet", "--only", "arch=riscv64", "--output"];
        assert_eq!(matrix(&cache, &[&args[..], &[run.to_str().unwrap()]].concat()).status.code(), Some(0));
        run
    };
    let base = run(&plain, "plain");
    let compared = |new: &Path| {
        let args = ["compare", base.to_str().unwrap(), new.to_str().unwrap(), "--metric", "hackbench.time"];
        let out = matrix(&cache, &args);
        (out.status.code(), text(&out.stdout))
    };
    let (code, said) = compared(&run(&slower, "slower"));
    println!("{said}");
    assert_eq!(code, Some(3), "{said}");
    for n in 1..=20 {
        let (code, said) = compared(&run(&plain, "plain-again"));
        assert_eq!(code, Some(0), "{n}: {said}");
    }
}

/// The kernel's own benchmark, on a patched kernel, read from the console.
#[test]
#[ignore = "builds real kernels"]
fn every_grace_period_that_the_kernel_measured_is_there() {
    let cache = room("cache");
    let run = fresh("rcuscale");
    let out = matrix(&cache, &["run", "matrices/rcuscale-offsets.toml", "--output", run.to_str().unwrap()]);
    println!("{}", text(&out.stdout));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    assert_eq!(text(&out.stdout).matches("Grace periods: 101 Batches: 1 Ratio: 101\n").count(), 2);
    let results = store::load(&run).unwrap();
    for cell in &results.matrix.cells {
        let durations =
            results.samples.iter().filter(|s| s.cell == cell.id && s.metric == "rcuscale.duration");
        assert!(durations.clone().all(|s| s.value > 0.0));
        assert_eq!(durations.count(), 101);
    }
}

/// The guest that KVM is tried with powers off, on emulated processors too.
#[tokio::test]
#[ignore = "needs cross toolchains and emulators"]
async fn the_trial_guest_powers_off() {
    process::set_guard_program(MATRIX);
    let (cache, stop) = (Cache::open(Some(room("cache"))).unwrap(), Stop::default());
    for arch in arch::all().unwrap() {
        let gcc = Toolchain::Gcc { prefix: None };
        let tools = kernel::toolchain::find(&gcc, &arch, &cache, &stop).await.unwrap();
        let payload =
            compiled::probe(arch.kvm.as_ref().unwrap(), &arch, &tools, &cache, &stop).await.unwrap();
        let limit = Duration::from_secs(60);
        assert_eq!(
            kvm::trial(&arch, Accel::TcgSingle, &payload, limit, &stop).await,
            Ok(()),
            "{}",
            arch.name
        );
    }
}

/// A tree, a toolchain and a configuration, ready to be configured.
async fn build(
    arch: &arch::Arch,
    (base, fragment): (&str, &str),
    symbols: &[(&str, &str)],
    cache: &Cache,
) -> kernel::KernelBuild {
    process::set_guard_program(MATRIX);
    let stop = Stop::default();
    let source = Source::Package("linux-source-6.12".into());
    let tree = kernel::source::prepare(&source, &[], false, cache, &stop).await.unwrap();
    let kernel = Kernel {
        base: BaseConfig::Target(base.into()),
        fragments: vec![Fragment::Builtin(fragment.into())],
        config: BTreeMap::new(),
        patches: vec![],
        toolchain: Toolchain::Gcc { prefix: None },
        make: vec![],
    };
    let tools = kernel::toolchain::find(&kernel.toolchain, arch, cache, &stop).await.unwrap();
    let symbols = symbols.iter().map(|(s, v)| ((*s).to_owned(), (*v).to_owned())).collect();
    kernel::KernelBuild {
        arch: arch.clone().into(),
        source: tree,
        request: kernel::config::Request::of_all(&kernel, &arch.name).unwrap().with(&symbols),
        tools: tools.into(),
        make: kernel.make,
        ccache: None,
    }
}

/// NR_CPUS beyond the tree's range and OFFSTACK in both directions, on every
/// architecture, verified by Kconfig itself on an unmodified tree.
#[tokio::test]
#[ignore = "needs a kernel source package"]
async fn every_corner_of_the_matrices_can_be_configured() {
    let cache = Cache::open(Some(room("cache"))).unwrap();
    for arch in arch::all().unwrap() {
        for (base, nr_cpus, offstack) in [
            (("allnoconfig", "minimal"), "64", "y"),
            (("allnoconfig", "minimal"), "512", "n"),
            (("allnoconfig", "minimal"), "4096", "n"),
            (("defconfig", "boot"), "256", "n"),
            (("defconfig", "boot"), "4096", "y"),
        ] {
            let symbols = [("NR_CPUS", nr_cpus), ("CPUMASK_OFFSTACK", offstack)];
            let build = build(&arch, base, &symbols, &cache).await;
            let key = format!("corner-{}-{}-{nr_cpus}-{offstack}", arch.name, base.0);
            let done = kernel::build::configure(&build, &key, None, &cache, &Stop::default()).await;
            let done = done.unwrap_or_else(|f| panic!("{key}: {}", f.detail));
            assert_eq!(done.config["NR_CPUS"], nr_cpus, "{key}");
            assert_eq!(done.config.get("CPUMASK_OFFSTACK").map_or("n", String::as_str), offstack, "{key}");
            assert!(done.unknown.is_empty(), "{key}: {:?}", done.unknown);
            std::fs::remove_dir_all(cache.work("builds", &key).unwrap()).unwrap();
        }
    }
}

/// A value that the tree's rules exclude is an error that says why, before
/// anything is compiled.
#[tokio::test]
#[ignore = "needs a kernel source package"]
async fn value_that_does_not_stick_is_explained() {
    let cache = Cache::open(Some(room("cache"))).unwrap();
    let arch = arch::all().unwrap().remove(0);
    let symbols = [("EXT4_FS", "y"), ("NO_SUCH", "y")];
    let build = build(&arch, ("allnoconfig", "minimal"), &symbols, &cache).await;
    let failure =
        kernel::build::configure(&build, "impossible", None, &cache, &Stop::default()).await.unwrap_err();
    let detail = failure.detail;
    assert!(detail.contains("CONFIG_EXT4_FS: asked for y, got nothing"), "{detail}");
    assert!(detail.contains("[BLOCK=n]"), "{detail}");
    assert!(
        detail.contains("CONFIG_NO_SUCH: asked for y, got nothing\n  this kernel has no such symbol"),
        "{detail}"
    );
    std::fs::remove_dir_all(cache.work("builds", "impossible").unwrap()).unwrap();
}

/// Frames read from the disassembly are those that the compiler itself reports.
#[tokio::test]
#[ignore = "needs the cross compilers"]
async fn frames_are_those_that_the_compiler_reports() {
    process::set_guard_program(MATRIX);
    let (cache, stop) = (Cache::open(Some(room("cache"))).unwrap(), Stop::default());
    let sources = ["tests/data/frames/frames.c", "qemu/guest/agent.c"];
    for arch in arch::all().unwrap() {
        let gcc = Toolchain::Gcc { prefix: None };
        let tools = kernel::toolchain::find(&gcc, &arch, &cache, &stop).await.unwrap();
        for (source, level) in sources.iter().flat_map(|s| ["-O2", "-Os", "-O3"].map(|o| (s, o))) {
            let object = room("frames").join("a.o");
            let mut gcc = Command::new(&tools.cc[0]);
            gcc.args(&tools.cc[1..]).args([
                level,
                "-fno-stack-protector",
                "-fstack-usage",
                "-w",
                "-c",
                source,
            ]);
            assert!(gcc.arg("-o").arg(&object).status().unwrap().success());
            let frames = kernel::frames::read(&object, &arch, &tools, &stop).await.unwrap();
            let reported = std::fs::read_to_string(object.with_extension("su")).unwrap();
            assert!(reported.lines().count() > 10);
            for line in reported.lines() {
                // agent.c:12:5:main, bytes, static or dynamic
                let [place, bytes, how] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
                // The report leaves a variant's number out.
                let function = place.rsplit(':').next().unwrap();
                let variant = format!("{function}.0");
                let function = if frames.bytes.contains_key(&variant) { &variant } else { function };
                let what = format!("{} {level} {line}", arch.name);
                assert_eq!(frames.bytes.get(function), Some(&bytes.parse().unwrap()), "{what}");
                let vla = function.starts_with("vla");
                assert_eq!(
                    (frames.dynamic.contains(function), how == "dynamic"),
                    (vla, vla || function == "later"),
                    "{what}"
                );
            }
        }
    }
}
