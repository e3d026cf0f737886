//! Caches with any number of kernels, and runs with any number of cells, made
//! by writing what the tool writes: one kernel is built and booted by the
//! stand-ins, the others follow from it.

use std::fs;
use std::io::Write as _;

use matrix::cache::Inputs;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::common::Lab;

/// The cell that the stand-ins build and boot.
const MODEL: &str = "riscv64-NR_CPUS=2-OFFSTACK=n";
/// Symbols of a minimal kernel's configuration, about.
const SYMBOLS: usize = 1500;
/// Boots of a cell, and the runs in each.
pub const BOOTS: u32 = 2;
const RUNS: u32 = 25;

/// A matrix of so many cells, an even number, each with a kernel of its own;
/// `boots = 0` leaves the benchmark out.
pub fn matrix(cells: usize, boots: u32) -> String {
    let nr_cpus: Vec<String> = (0..cells / 2).map(|n| (n + 2).to_string()).collect();
    let mut text = format!(
        r#"
[source]
path = "linux"
[axes]
arch = ["riscv64"]
NR_CPUS = [{}]
OFFSTACK = ["n", "y"]
[kernel]
base = "allnoconfig"
fragments = ["minimal"]
[boot]
vcpus = 2
memory = "128M"
boots = {boots}
[[table]]
title = "size"
metric = "vmlinux.file"
rows = "NR_CPUS"
columns = "OFFSTACK"
[[table]]
layout = "list"
title = "sizes"
columns = ["vmlinux.text", "vmlinux.data", "label", "difference:vmlinux.text+vmlinux.data"]
row = "{{OFFSTACK}}{{NR_CPUS}}"
"#,
        nr_cpus.join(", ")
    );
    if boots > 0 {
        text += &format!(
            r#"
[[table]]
title = "time"
metric = "messages.time"
rows = "NR_CPUS"
columns = "OFFSTACK"
[[benchmark]]
name = "messages"
command = "messages"
files = ["messages"]
pattern = '^Time: (?<time>[0-9.]+)$'
unit = "s"
better = "lower"
repeat = {RUNS}
"#
        );
    }
    text
}

/// Ids of the matrix' cells, with the values on its axes.
fn cells(count: usize) -> impl Iterator<Item = (String, usize, &'static str)> {
    (0..count).map(|n| (n / 2 + 2, ["n", "y"][n % 2])).map(|(nr_cpus, offstack)| {
        (format!("riscv64-NR_CPUS={nr_cpus}-OFFSTACK={offstack}"), nr_cpus, offstack)
    })
}

/// A laboratory in whose cache all kernels are of `lab.toml`, which has `cells`
/// cells that are booted, and of `sizes.toml`, whose cells are not.
pub fn lab(cells: usize) -> Lab {
    let lab = Lab::new(&matrix(cells, BOOTS));
    lab.write("sizes.toml", &matrix(cells, 0));
    let one = ["run", "lab.toml", "--only", "NR_CPUS=2", "--only", "OFFSTACK=n", "--output", "one"];
    lab.matrix(&one).code(0);
    fill_cache(&lab, cells);
    lab
}

fn fill_cache(lab: &Lab, count: usize) {
    let model = lab.json(&format!("one/cells/{MODEL}/build.json"));
    let more: String = (0..SYMBOLS).map(|n| format!("CONFIG_SYMBOL_{n}=y\n")).collect();
    let config = lab.read(&format!("one/cells/{MODEL}/config"));
    for (_, nr_cpus, offstack) in cells(count) {
        let asked = |text: &str| {
            let text = text.replace("CONFIG_NR_CPUS=2\n", &format!("CONFIG_NR_CPUS={nr_cpus}\n"));
            let on = if offstack == "y" {
                "CONFIG_CPUMASK_OFFSTACK=y"
            } else {
                "# CONFIG_CPUMASK_OFFSTACK is not set"
            };
            text.replace("# CONFIG_CPUMASK_OFFSTACK is not set", on)
        };
        let mut info = model.clone();
        info["inputs"]["configuration"] = asked(model["inputs"]["configuration"].as_str().unwrap()).into();
        let inputs: Inputs = serde_json::from_value(info["inputs"].clone()).unwrap();
        let config = asked(&config) + &more;
        let file = 100_000 + 10 * nr_cpus;
        info["config"] = config.len().into();
        info["sizes"]["file"] = file.into();
        info["image"] = 2000.into();
        for n in 0..20 {
            info["sizes"]["sections"][format!(".section{n}")] = (1000 + n).into();
        }
        let entry = lab.path("cache/builds").join(inputs.fingerprint());
        fs::create_dir_all(&entry).unwrap();
        fs::write(entry.join("config"), config).unwrap();
        fs::write(entry.join("build.json"), serde_json::to_vec_pretty(&info).unwrap()).unwrap();
        fs::write(entry.join("build.log"), "  CC      kernel/stand-in.o\n".repeat(1000)).unwrap();
        for (name, length) in [("vmlinux", file), ("Image", 2000)] {
            fs::File::create(entry.join(name)).unwrap().set_len(length as u64).unwrap();
        }
    }
}

/// A finished run of `lab.toml` in `run`: begun by the tool, which records the
/// kernels, and its boots written into it.
pub fn finished_run(lab: &Lab, count: usize) {
    let mut run = lab.start(&["run", "lab.toml", "--output", "run"]);
    let before = lab.count("qemu good");
    run.wait_until("a boot", || lab.count("qemu good") > before);
    run.signal(Signal::SIGINT);
    assert_eq!(run.end().status.code(), Some(130));
    let boots: Vec<Value> = records(&lab.read("one/records.jsonl"), "boot");
    let kernels: Vec<Value> = records(&lab.read("run/records.jsonl"), "kernel");
    assert_eq!((boots.len(), kernels.len()), (BOOTS as usize, count), "what a run records");
    let file = fs::OpenOptions::new().append(true).open(lab.path("run/records.jsonl")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    for (boot, (n, kernel)) in
        boots.iter().flat_map(|boot| kernels.iter().enumerate().map(move |k| (boot, k)))
    {
        let mut boot = boot.clone();
        boot["cell"] = kernel["cell"].clone();
        boot["kernel"] = kernel["kernel"].clone();
        for sample in boot["samples"].as_array_mut().unwrap() {
            sample["cell"] = kernel["cell"].clone();
            sample["value"] = json!(sample["value"].as_f64().unwrap() + n as f64 / 1024.0);
        }
        writeln!(file, "{boot}").unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
}

fn records(text: &str, kind: &str) -> Vec<Value> {
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|r| r["record"] == kind).collect()
}
