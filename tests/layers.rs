//! The structure that ARCHITECTURE.md describes, held against the source.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Rooms of `src/` from top to bottom; a room may use those below it.
const LAYERS: [&[&str]; 7] = [
    &["main", "commands"],
    &["ui"],
    &["cli", "sched", "compare", "history"],
    &["matrix", "boot", "report", "store"],
    &["kernel", "bench", "stats"],
    &["distro", "arch", "assets", "cache", "process"],
    &["model", "event", "diag"],
];

/// Uses within a layer, or upwards, that are meant.
const MEANT: [(&str, &str); 8] = [
    // The command line is made of what the rooms take.
    ("cli", "matrix"),
    ("cli", "compare"),
    ("ui", "cli"),
    ("distro", "process"),
    ("arch", "assets"),
    ("event", "model"),
    ("cli", "store"),
    ("cli", "report"),
];

fn sources(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found
}

/// Source files with the room each is in.
fn rooms() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let room = |file: &Path| {
        let first = file.strip_prefix(&src).unwrap().components().next().unwrap();
        Path::new(first.as_os_str()).file_stem().unwrap().to_string_lossy().into_owned()
    };
    let files = sources(&src, "rs").into_iter();
    files.map(|f| (room(&f), f.clone(), std::fs::read_to_string(f).unwrap())).collect()
}

/// The part of a file that is no test.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

#[test]
fn imports_run_downwards() {
    let level: BTreeMap<&str, usize> =
        LAYERS.iter().enumerate().flat_map(|(i, rooms)| rooms.iter().map(move |r| (*r, i))).collect();
    let mut wrong = Vec::new();
    for (room, file, text) in rooms().iter().filter(|(r, ..)| r != "lib" && r != "main") {
        let here = *level.get(room.as_str()).unwrap_or_else(|| panic!("{room} is in no layer"));
        for used in production(text).split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(there) = level.get(used.as_str()) else { continue };
            let meant = MEANT.contains(&(room.as_str(), used.as_str()));
            if used != *room && *there <= here && !meant {
                wrong.push(format!("{}: {room} uses {used}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn architectures_are_named_in_data_files_only() {
    let qemu = Path::new(env!("CARGO_MANIFEST_DIR")).join("qemu");
    let names: Vec<_> = sources(&qemu, "toml")
        .iter()
        .map(|f| f.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(names.len() >= 2);
    for (_, file, text) in rooms() {
        if file.ends_with("tests.rs") || file.parent().is_some_and(|folder| folder.ends_with("tests")) {
            continue;
        }
        let code = production(&text).lines().filter(|l| !l.trim_start().starts_with("//"));
        for line in code {
            let named = names.iter().find(|n| line.contains(n.as_str()));
            assert!(named.is_none(), "{}: {line}", file.display());
        }
    }
}

#[test]
fn processes_are_spawned_in_one_place() {
    for (room, file, text) in rooms() {
        let spawns = ["process::Command", "Command::new("].iter().any(|s| production(&text).contains(s));
        assert!(room == "process" || !spawns, "{} spawns", file.display());
    }
}
