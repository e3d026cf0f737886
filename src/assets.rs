//! Data files compiled into the program, so that it works from any folder.

use include_dir::{Dir, include_dir};

/// `qemu/`: one TOML file an architecture, and the guest agent's source.
pub static QEMU: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/qemu");

/// `kernel-configs/`: configuration fragments.
pub static KERNEL_CONFIGS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/kernel-configs");

/// `src/bench/`: one TOML file a benchmark.
pub static BENCHMARKS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/src/bench");

/// Text of every file of `dir` whose name ends in `.EXTENSION`, with the name
/// up to there, in the order of the names.
pub fn texts<'a>(dir: &'a Dir<'static>, extension: &str) -> Vec<(&'a str, &'a str)> {
    let mut all: Vec<_> = dir
        .files()
        .filter(|f| f.path().extension().is_some_and(|e| e == extension))
        .filter_map(|f| Some((f.path().file_stem()?.to_str()?, f.contents_utf8()?)))
        .collect();
    all.sort();
    all
}
