//! Object trees that other kernels start from, so that host tools, generated
//! headers and every object that a difference does not touch are not made again.
//!
//! Kbuild itself knows what a changed symbol touches: each object's `.cmd` file
//! holds the command it was made by and the files and symbols it depends on
//! (Documentation/kbuild of the kernel, scripts/basic/fixdep.c). Two things it
//! cannot know are seen to here. Times of another source tree say nothing about
//! objects made from this one: what depends on a file that differs loses its
//! `.cmd` file, which has kbuild make it again. And commands name the source's
//! folder: they are given the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::FileTimes;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use super::build::{KernelBuild, OBJECTS};
use super::kconfig;
use crate::cache::Inputs;

/// Most files in which two sources may differ; with more there is little to gain.
const CHANGES_CAP: usize = 100;
/// Inputs in which a kernel may differ from the one it starts from.
const MAY_DIFFER: [&str; 3] = ["configuration", "base configuration", "source"];

/// An object tree in which a kernel was built.
#[derive(Debug)]
pub struct ObjectTree {
    work: PathBuf,
    inputs: Inputs,
    config: BTreeMap<String, String>,
    source: PathBuf,
    name: String,
    keep: bool,
}

/// Files in which a source differs from another, relative to its top.
pub type Changes = BTreeSet<PathBuf>;

/// How far a kernel is from the one whose objects it could start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance {
    /// Symbols whose values differ.
    symbols: usize,
    /// Whether the sources differ.
    source: bool,
}

impl ObjectTree {
    /// The tree that `build` left in `work`.
    pub(super) fn of(
        build: &KernelBuild,
        inputs: Inputs,
        config: &BTreeMap<String, String>,
        name: &str,
        work: PathBuf,
        keep: bool,
    ) -> ObjectTree {
        let (config, source, name) = (config.clone(), build.source.dir.clone(), name.to_owned());
        ObjectTree { work, inputs, config, source, name, keep }
    }

    /// What the kernel is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether kernels that can start from one of the two can from the other.
    pub fn is_alike(&self, other: &ObjectTree) -> bool {
        self.distance(&other.inputs, &other.config).is_some()
    }

    /// The source it was made from: its folder and what stands for its content.
    pub fn source(&self) -> (&Path, &str) {
        (&self.source, self.inputs.0.get("source").map_or("", String::as_str))
    }

    /// How far a kernel with this configuration is, if it can start from here.
    pub fn distance(&self, inputs: &Inputs, config: &BTreeMap<String, String>) -> Option<Distance> {
        let differ = |name: &&String| self.inputs.0.get(*name) != inputs.0.get(*name);
        let names: BTreeSet<_> = self.inputs.0.keys().chain(inputs.0.keys()).filter(differ).collect();
        let near = names.iter().all(|name| MAY_DIFFER.contains(&name.as_str()));
        let bound = [&self.config, config].into_iter().any(is_bound);
        (near && !bound).then(|| Distance {
            symbols: differing(&self.config, config),
            source: names.iter().any(|name| *name == "source"),
        })
    }

    /// Puts a copy of the tree into the configured `objdir` of `build`, whose
    /// source differs by `changes`. False where something was built there before.
    ///
    /// # Errors
    /// It cannot be copied; `objdir` is as it was.
    pub(super) fn plant(
        &self,
        build: &KernelBuild,
        objdir: &Path,
        changes: &Changes,
    ) -> std::io::Result<bool> {
        // What the first target of a build leaves, and configuring does not.
        if objdir.join("include/config/kernel.release").exists() {
            return Ok(false);
        }
        let planted = objdir.with_extension("seed");
        if planted.exists() {
            fs::remove_dir_all(&planted)?;
        }
        let arch = &build.arch.kernel.arch;
        let (from, overlay) = (self.work.join(OBJECTS), kconfig::files(objdir, arch)?);
        let mut foreign: BTreeSet<PathBuf> = kconfig::files(&from, arch)?.into_iter().collect();
        foreign.insert(PathBuf::from(".config"));
        // As kbuild names them.
        let (old, new) = (fs::canonicalize(&self.source)?, fs::canonicalize(&build.source.dir)?);
        let moved = Moved::new(&old, &new, changes);
        copy(&from, &planted, Path::new(""), &|path| !foreign.contains(path), &moved)?;
        // Written now, so that they are newer than what was made from others.
        for file in overlay.iter().map(PathBuf::as_path).chain([Path::new(".config")]) {
            fs::create_dir_all(planted.join(file.parent().unwrap_or(file)))?;
            fs::write(planted.join(file), fs::read(objdir.join(file))?)?;
        }
        fs::remove_dir_all(objdir)?;
        fs::rename(&planted, objdir)?;
        Ok(true)
    }
}

impl Drop for ObjectTree {
    fn drop(&mut self) {
        if !self.keep {
            // What is left of it is work in progress that nobody takes up.
            let _ = fs::remove_dir_all(&self.work);
        }
    }
}

/// Gives an object directory that is yet to be configured the configuration
/// programs of another one with the same source.
///
/// # Errors
/// They cannot be copied.
pub(super) fn prepare(from: &Path, objdir: &Path, source: &Path) -> std::io::Result<()> {
    let wanted = |path: &Path| path.starts_with("scripts") || path == Path::new("Makefile");
    let none = Changes::new();
    let moved = Moved::new(source, source, &none);
    copy(from, objdir, Path::new(""), &wanted, &moved)
}

/// Whether objects are bound to their folder: with debugging information they
/// name it, so that no other kernel can start from them.
pub fn is_bound(config: &BTreeMap<String, String>) -> bool {
    config.get("DEBUG_INFO").is_some_and(|value| value == "y")
}

/// How many symbols differ between two configurations.
fn differing(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> usize {
    let symbols: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let value = |config: &BTreeMap<String, String>, symbol: &str| {
        config.get(symbol).map_or("n", String::as_str).to_owned()
    };
    symbols.into_iter().filter(|symbol| value(a, symbol) != value(b, symbol)).count()
}

/// A source in another folder, with other content in some files.
struct Moved<'a> {
    from: &'a Path,
    to: &'a Path,
    changes: &'a Changes,
    /// Their names, without folders.
    names: BTreeSet<&'a OsStr>,
}

impl<'a> Moved<'a> {
    fn new(from: &'a Path, to: &'a Path, changes: &'a Changes) -> Moved<'a> {
        let names = changes.iter().filter_map(|file| file.file_name()).collect();
        Moved { from, to, changes, names }
    }

    fn is_same(&self) -> bool {
        self.from == self.to && self.changes.is_empty()
    }

    /// A `.cmd` file or makefile for the new folder; `None` if what it belongs
    /// to has to be made again.
    fn text(&self, text: &[u8]) -> Option<Vec<u8>> {
        // Names of source files are not always UTF-8, but nobody's here need be.
        let text = String::from_utf8_lossy(text);
        let from = self.from.to_string_lossy();
        let touched = |word: &str| {
            let path = Path::new(word.trim_end_matches(['\\', ')', ':', ';']));
            // By its end, as the same tree can be reached by several names; what
            // leaves the object directory by a relative one is not known at all.
            let named = path.file_name().is_some_and(|name| self.names.contains(name));
            path.starts_with("..") || named && self.changes.iter().any(|file| normal(path).ends_with(file))
        };
        let touched = !self.changes.is_empty() && text.split_ascii_whitespace().any(touched);
        (!touched).then(|| text.replace(&*from, &self.to.to_string_lossy()).into_bytes())
    }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::Normal(name) => normal.push(name),
            _ => {}
        }
    }
    normal
}

/// Copies what is `wanted` below `from/below`, with its times. Links would let
/// tools that write in place change both trees.
fn copy(
    from: &Path,
    to: &Path,
    below: &Path,
    wanted: &dyn Fn(&Path) -> bool,
    moved: &Moved<'_>,
) -> std::io::Result<()> {
    fs::create_dir_all(to.join(below))?;
    for entry in fs::read_dir(from.join(below))? {
        let entry = entry?;
        let (path, kind) = (below.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            if below != Path::new("") || wanted(&path) {
                copy(from, to, &path, wanted, moved)?;
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(from.join(&path))?;
            let target = if target == moved.from { moved.to.to_owned() } else { target };
            fs_err::os::unix::fs::symlink(target, to.join(&path))?;
        } else if kind.is_file() && wanted(&path) {
            copy_file(&from.join(&path), &to.join(&path), moved)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, moved: &Moved<'_>) -> std::io::Result<()> {
    let names_source =
        from.extension() == Some(OsStr::new("cmd")) || from.file_name() == Some(OsStr::new("Makefile"));
    if names_source && !moved.is_same() {
        let Some(text) = moved.text(&fs::read(from)?) else { return Ok(()) };
        fs::write(to, text)?;
    } else {
        fs::copy(from, to)?;
    }
    let modified = fs::metadata(from)?.modified()?;
    fs::File::options().append(true).open(to)?.file().set_times(FileTimes::new().set_modified(modified))
}

/// The files in which two source trees differ, if they are few and all of them
/// are files on which kbuild tracks every dependency: C and assembler. Files
/// are told by size and time of change, as copies of a tree have the same.
///
/// # Errors
/// A tree cannot be read.
pub fn changes(from: &Path, to: &Path) -> std::io::Result<Option<Changes>> {
    let mut changes = Changes::new();
    Ok(compare(from, to, Path::new(""), &mut changes)?.then_some(changes))
}

fn compare(a: &Path, b: &Path, below: &Path, changes: &mut Changes) -> std::io::Result<bool> {
    if below == Path::new("Documentation") {
        return Ok(true);
    }
    let names = |top: &Path| -> std::io::Result<BTreeSet<_>> {
        let entries = fs::read_dir(top.join(below))?;
        let names = entries.map(|entry| entry.map(|e| e.file_name()));
        names.filter(|name| name.as_ref().map_or(true, |name| name != ".git")).collect()
    };
    let (ours, theirs) = (names(a)?, names(b)?);
    if ours != theirs {
        return Ok(false);
    }
    for name in ours {
        let path = below.join(name);
        let (one, two) = (fs::symlink_metadata(a.join(&path))?, fs::symlink_metadata(b.join(&path))?);
        let same = (one.dev(), one.ino()) == (two.dev(), two.ino());
        let likely_same = one.len() == two.len() && one.modified()? == two.modified()?;
        let fine = match (one.is_dir(), two.is_dir()) {
            _ if same => true,
            (true, true) => compare(a, b, &path, changes)?,
            (false, false) if one.is_symlink() && two.is_symlink() => {
                fs::read_link(a.join(&path))? == fs::read_link(b.join(&path))?
            }
            (false, false) if one.is_file() && two.is_file() => {
                likely_same || {
                    let tracked = is_tracked(&path);
                    changes.insert(path);
                    tracked && changes.len() <= CHANGES_CAP
                }
            }
            _ => false,
        };
        if !fine {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether kbuild knows of everything that is made from a file.
fn is_tracked(file: &Path) -> bool {
    let source = file.extension().is_some_and(|e| ["c", "h", "S"].iter().any(|known| e == *known));
    let of_host = ["scripts", "tools", "usr"].iter().any(|dir| file.starts_with(dir));
    source && !of_host
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7);
            let file = fs::File::options().append(true).open(&path).unwrap();
            file.file().set_times(FileTimes::new().set_modified(long_ago)).unwrap();
        }
    }

    fn modified(path: PathBuf) -> SystemTime {
        fs::metadata(path).unwrap().modified().unwrap()
    }

    const TREE: [(&str, &str); 5] = [
        ("kernel/a.c", "a"),
        ("include/linux/b.h", "b"),
        ("Makefile", "m"),
        ("scripts/c.c", "c"),
        ("Documentation/d.rst", "d"),
    ];

    #[test]
    fn few_changes_of_tracked_files_are_found_and_others_rule_a_tree_out() {
        let dir = tempfile::tempdir().unwrap();
        let (base, other) = (dir.path().join("base"), dir.path().join("other"));
        write(&base, &TREE);
        write(&other, &TREE);
        assert_eq!(changes(&base, &other).unwrap(), Some(Changes::new()));
        write(&other, &[("Documentation/more.rst", "x"), ("kernel/a.c", "longer")]);
        fs::write(other.join("include/linux/b.h"), "c").unwrap(); // as long, but later
        let expected = ["kernel/a.c", "include/linux/b.h"].map(PathBuf::from);
        assert_eq!(changes(&base, &other).unwrap(), Some(expected.into()));
        for untracked in ["Makefile", "scripts/c.c", "kernel/new.c"] {
            let third = dir.path().join("third");
            write(&third, &TREE);
            write(&third, &[(untracked, "changed")]);
            assert_eq!(changes(&base, &third).unwrap(), None, "{untracked}");
            fs::remove_dir_all(third).unwrap();
        }
        fs::remove_file(other.join("kernel/a.c")).unwrap();
        assert_eq!(changes(&base, &other).unwrap(), None, "a file is missing");
    }

    #[test]
    fn a_copy_keeps_times_and_names_the_new_source_but_for_what_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let source = "/src/old";
        write(
            &from,
            &[
                ("kernel/a.o", "object"),
                (
                    "kernel/.a.o.cmd",
                    "savedcmd_a.o := cc -I/src/old/include /src/old/kernel/a.c\ndeps := \\\n",
                ),
                ("kernel/.b.o.cmd", "deps_b.o := \\\n  /src/old/arch/x/../../include/linux/b.h \\\n"),
                ("kernel/.c.o.cmd", "deps_c.o := \\\n  /src/old/include/linux/b.h.other \\\n"),
                ("kernel/.e.o.cmd", "deps_e.o := \\\n  /link/to/old/include/linux/b.h \\\n"),
                ("kernel/.d.o.cmd", "deps_d.o := \\\n  ../../src/old/include/linux/c.h \\\n"),
                ("Makefile", "include /src/old/Makefile\n"),
                (".config", "CONFIG_X=y\n"),
            ],
        );
        fs_err::os::unix::fs::symlink(source, from.join("source")).unwrap();
        let changes = Changes::from([PathBuf::from("include/linux/b.h")]);
        let moved = Moved::new(Path::new(source), Path::new("/src/new"), &changes);
        copy(&from, &to, Path::new(""), &|path| path != Path::new(".config"), &moved).unwrap();
        let read = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        assert_eq!(
            read("kernel/.a.o.cmd"),
            "savedcmd_a.o := cc -I/src/new/include /src/new/kernel/a.c\ndeps := \\\n"
        );
        assert_eq!(read("kernel/.c.o.cmd"), "deps_c.o := \\\n  /src/new/include/linux/b.h.other \\\n");
        assert!(!to.join("kernel/.b.o.cmd").exists(), "what depends on a changed file is not made again");
        assert!(!to.join("kernel/.e.o.cmd").exists(), "the same file by another name");
        assert!(!to.join("kernel/.d.o.cmd").exists(), "nobody knows what that depends on");
        assert!(!to.join(".config").exists());
        assert_eq!(read("Makefile"), "include /src/new/Makefile\n");
        assert_eq!(fs::read_link(to.join("source")).unwrap(), Path::new("/src/new"));
        assert_eq!(modified(to.join("kernel/a.o")), modified(from.join("kernel/a.o")));
        fs::write(to.join("kernel/a.o"), "other").unwrap();
        assert_eq!(fs::read_to_string(from.join("kernel/a.o")).unwrap(), "object", "the trees share files");
    }

    fn tree(config: &[(&str, &str)], inputs: &[(&str, &str)]) -> ObjectTree {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let (config, inputs) = (map(config), Inputs(map(inputs)));
        let (work, source, name) = (PathBuf::from("/nowhere"), PathBuf::new(), String::new());
        ObjectTree { work, inputs, config, source, name, keep: true }
    }

    #[test]
    fn the_nearest_tree_differs_in_the_fewest_symbols_and_by_no_compiler() {
        let config: &[_] = &[("A", "y"), ("B", "1")];
        let own = tree(config, &[("source", "s"), ("toolchain", "t"), ("configuration", "c")]);
        let distance = |other: &ObjectTree| other.distance(&own.inputs, &own.config);
        let two = tree(&[("B", "2")], &[("source", "s"), ("toolchain", "t"), ("configuration", "d")]);
        assert_eq!(distance(&two), Some(Distance { symbols: 2, source: false }));
        let same = tree(
            &[("A", "y"), ("B", "1"), ("C", "n")],
            &[("source", "q"), ("toolchain", "t"), ("configuration", "c")],
        );
        assert_eq!(distance(&same), Some(Distance { symbols: 0, source: true }), "n is not set");
        assert!(distance(&same) < distance(&two));
        assert_eq!(
            distance(&tree(config, &[("source", "s"), ("toolchain", "u"), ("configuration", "c")])),
            None
        );
        let debug =
            tree(&[("DEBUG_INFO", "y")], &[("source", "s"), ("toolchain", "t"), ("configuration", "c")]);
        assert_eq!(distance(&debug), None);
    }
}
