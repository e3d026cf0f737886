//! What goes into a guest: the agent, the benchmarks' programs and the
//! libraries they need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err as fs;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use serde::{Deserialize, Serialize};

use super::{compiled, initramfs, protocol};
use crate::arch::Arch;
use crate::cache::{Cache, Inputs, write_whole};
use crate::distro::{self, Release};
use crate::kernel::Tools;
use crate::model::Benchmark;
use crate::process::Stop;

const ROOM: &str = "guest";
/// Where packages keep programs.
const PROGRAM_DIRS: [&str; 6] = ["usr/bin", "bin", "usr/sbin", "sbin", "usr/local/bin", "usr/games"];
/// Most links and libraries that one program may need.
const MAX_FILES: usize = 500;

/// Files of a guest, by path without a leading slash, and where they are from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestFiles {
    /// Path and content.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Package files that were unpacked, with their versions.
    pub packages: Vec<String>,
}

impl GuestFiles {
    /// The initramfs of a guest that runs `benchmarks`, once it has brought its
    /// processors online if `staged`.
    ///
    /// # Errors
    /// A file is too large for the archive.
    pub fn initramfs(mut self, benchmarks: &[Benchmark], staged: bool) -> std::io::Result<Vec<u8>> {
        self.files.insert("matrix/job".to_owned(), protocol::job(benchmarks, staged).into_bytes());
        let mut archive = Vec::new();
        initramfs::write(&self.files, &mut archive)?;
        Ok(archive)
    }
}

/// File of an initramfs of `arch`: told apart by what its agent is to do.
pub fn initramfs_name(arch: &str, benchmarks: &[Benchmark], staged: bool) -> String {
    let job = blake3::hash(protocol::job(benchmarks, staged).as_bytes()).to_hex();
    format!("{arch}-{}.cpio", &job[..8])
}

/// Gathers the guest that runs `benchmarks` on `arch`.
///
/// # Errors
/// The agent does not compile, a package cannot be had, or a program or a
/// library it needs is in none of the packages.
pub async fn gather(
    arch: &Arch,
    tools: &Tools,
    benchmarks: &[Benchmark],
    refresh: bool,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<GuestFiles> {
    let packages: BTreeSet<String> = benchmarks.iter().flat_map(|b| b.packages.iter().cloned()).collect();
    let packages: Vec<String> = packages.into_iter().collect();
    let root = unpacked(arch, &packages, refresh, cache, stop).await?;
    let mut guest = GuestFiles { packages: root.versions.clone(), ..GuestFiles::default() };
    guest.files.insert("init".to_owned(), fs::read(compiled::agent(arch, tools, cache, stop).await?)?);
    let libraries = root.dir.as_deref().map(library_index).transpose()?.unwrap_or_default();
    for benchmark in benchmarks {
        for file in &benchmark.files {
            let file = PathBuf::from(file.to_string_lossy().replace("{arch}", &arch.name));
            let name =
                file.file_name().context("a benchmark's file has no name")?.to_string_lossy().into_owned();
            let content = fs::read(&file)?;
            add_program(&mut guest, &format!("bin/{name}"), content, &libraries)?;
        }
        let program = &benchmark.command[0];
        let given = guest.files.contains_key(&format!("bin/{program}")) || program.contains('/');
        if let (false, Some(root)) = (given, &root.dir) {
            let content = find_program(root, program).with_context(|| {
                format!("benchmark '{}': no program '{program}' in {}", benchmark.name, root_names(&packages))
            })?;
            add_program(&mut guest, &format!("bin/{program}"), content, &libraries)?;
        }
    }
    Ok(guest)
}

fn root_names(packages: &[String]) -> String {
    if packages.is_empty() { "any package: the benchmark names none".to_owned() } else { packages.join(", ") }
}

// --- packages ---

/// A directory with unpacked packages; none where no packages are asked for.
#[derive(Debug, Default)]
struct Unpacked {
    dir: Option<PathBuf>,
    versions: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    versions: Vec<String>,
}

async fn unpacked(
    arch: &Arch,
    packages: &[String],
    refresh: bool,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<Unpacked> {
    if packages.is_empty() {
        return Ok(Unpacked::default());
    }
    let mut inputs = Inputs::default();
    inputs.add("packages", packages.join(" "));
    inputs.add("arch", &arch.guest.debian_arch);
    inputs.add("suite", &arch.guest.suite);
    let key = inputs.fingerprint();
    let _lock = cache.lock(ROOM, &key, &stop.graceful).await?;
    let entry = cache.entry(ROOM, &key);
    if let Some(manifest) = fs::read(entry.join("manifest.json")).ok().filter(|_| !refresh) {
        let manifest: Manifest = serde_json::from_slice(&manifest)?;
        return Ok(Unpacked { dir: Some(entry.join("root")), versions: manifest.versions });
    }
    let work = cache.work(ROOM, &key)?;
    fs::remove_dir_all(&work)?;
    let release = Release { arch: &arch.guest.debian_arch, suite: &arch.guest.suite };
    let versions = distro::unpack_release(packages, release, &work.join("root"), stop).await?;
    let manifest = Manifest { versions };
    write_whole(&work.join("manifest.json"), &serde_json::to_vec_pretty(&manifest)?)?;
    let entry = cache.publish(&work, ROOM, &key)?;
    Ok(Unpacked { dir: Some(entry.join("root")), versions: manifest.versions })
}

/// Content of the program `name` of unpacked packages.
fn find_program(root: &Path, name: &str) -> Option<Vec<u8>> {
    let root = fs::canonicalize(root).ok()?;
    let inside = |path: PathBuf| fs::canonicalize(path).ok().filter(|p| p.starts_with(&root) && p.is_file());
    let path = PROGRAM_DIRS.iter().find_map(|dir| inside(root.join(dir).join(name)))?;
    fs::read(path).ok()
}

/// Every file below the packages' library directories, by name, symbolic
/// links followed as long as they stay inside.
fn library_index(root: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let root = fs::canonicalize(root)?;
    let mut index = BTreeMap::new();
    let mut todo = vec![root.join("usr/lib"), root.join("lib"), root.join("usr/local/lib")];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                todo.push(entry.path());
            } else if let Some(real) = fs::canonicalize(entry.path()).ok().filter(|p| p.starts_with(&root)) {
                index.entry(name).or_insert(real);
            }
        }
    }
    Ok(index)
}

// --- programs and their libraries ---

/// Adds a program, its loader where the program says it is, and every library
/// that the program or a library needs in `/lib`, where loaders look.
fn add_program(
    guest: &mut GuestFiles,
    path: &str,
    content: Vec<u8>,
    libraries: &BTreeMap<String, PathBuf>,
) -> anyhow::Result<()> {
    let mut todo = vec![(path.to_owned(), content)];
    while let Some((path, content)) = todo.pop() {
        let needs = needs(&content).with_context(|| format!("/{path}"))?;
        guest.files.insert(path.clone(), content);
        if guest.files.len() > MAX_FILES {
            bail!("/{path}: more than {MAX_FILES} files are needed");
        }
        for (name, at) in needs {
            if guest.files.contains_key(&at) || todo.iter().any(|(p, _)| *p == at) {
                continue;
            }
            let library = libraries.get(&name).with_context(|| {
                format!("/{path} needs {name}; add the package that has it to `packages`")
            })?;
            todo.push((at, fs::read(library)?));
        }
    }
    Ok(())
}

/// Names of the files that an ELF program or library needs, and their paths in the guest.
fn needs(content: &[u8]) -> anyhow::Result<Vec<(String, String)>> {
    let elf = FileHeader64::<object::Endianness>::parse(content).context("not a 64-bit ELF program")?;
    let endian = elf.endian()?;
    let mut needs = Vec::new();
    for header in elf.program_headers(endian, content)? {
        if let Some(loader) = header.interpreter(endian, content)? {
            let loader = std::str::from_utf8(loader)?.trim_start_matches('/');
            let path = Path::new(loader);
            let name = path.file_name().context("its loader has no name")?.to_string_lossy().into_owned();
            if path.components().any(|c| !matches!(c, std::path::Component::Normal(_))) {
                bail!("its loader's path is odd: {loader}");
            }
            needs.push((name, loader.to_owned()));
        }
    }
    let sections = elf.sections(endian, content)?;
    if let Some((entries, link)) = sections.dynamic(endian, content)? {
        let strings = sections.strings(endian, content, link)?;
        for entry in entries.iter().filter(|e| e.tag32(endian) == Some(DT_NEEDED)) {
            let name = entry.string(endian, strings)?;
            let name = std::str::from_utf8(name)?.to_owned();
            if name.contains('/') || name.is_empty() {
                bail!("a library's name is odd: {name}");
            }
            let at = format!("lib/{name}");
            // The loader is a library too, and is there already.
            if !needs.iter().any(|(n, _)| *n == name) {
                needs.push((name, at));
            }
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test is a dynamic program with a loader and a C library.
    #[test]
    fn needs_of_a_real_program() {
        let exe = fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&exe).unwrap();
        assert!(needs[0].0.starts_with("ld-linux"), "{needs:?}");
        assert!(needs.iter().any(|(n, at)| n == "libc.so.6" && at == "lib/libc.so.6"), "{needs:?}");
    }

    #[test]
    fn missing_library_names_the_program_and_the_cure() {
        let exe = fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut guest = GuestFiles::default();
        let err = add_program(&mut guest, "bin/x", exe, &BTreeMap::new()).unwrap_err().to_string();
        assert!(err.starts_with("/bin/x needs ") && err.contains("`packages`"), "{err}");
    }

    #[test]
    fn script_is_refused() {
        let mut guest = GuestFiles::default();
        let err = add_program(&mut guest, "bin/x", b"#!/bin/sh\n".to_vec(), &BTreeMap::new()).unwrap_err();
        assert!(format!("{err:#}").contains("not a 64-bit ELF program"), "{err:#}");
    }

    #[test]
    fn links_that_leave_the_packages_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::create_dir_all(root.path().join("usr/lib")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("usr/bin/leak")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("usr/lib/leak.so")).unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        assert_eq!(find_program(&root, "leak"), None);
        assert!(library_index(&root).unwrap().is_empty());
    }
}
