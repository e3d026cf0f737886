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
use crate::distro::{self, Extent, Release};
use crate::kernel::Tools;
use crate::model::{Benchmark, WITH_SERVER};
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
/// A program of ours does not compile, a package cannot be had, or a program
/// or a library it needs is in none of the packages.
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
    let own = own_programs(arch, tools, benchmarks, cache, stop).await?;
    let get = async |extent| unpacked(arch, &packages, extent, refresh, cache, stop).await;
    match assemble(arch, benchmarks, &own, &packages, &get(Extent::Named).await?) {
        // Most programs need few libraries, whose packages are named; where one
        // is not, whatever the packages depend on is fetched too.
        Err(error) if !packages.is_empty() && error.is::<NoLibrary>() => {
            assemble(arch, benchmarks, &own, &packages, &get(Extent::Dependencies).await?)
        }
        done => done,
    }
}

/// The agent and the workloads of ours, by path in the guest.
async fn own_programs(
    arch: &Arch,
    tools: &Tools,
    benchmarks: &[Benchmark],
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let agent = compiled::agent(arch, tools, cache, stop).await?;
    let mut own = BTreeMap::from([("init".to_owned(), fs::read(agent)?)]);
    let beside = benchmarks.iter().filter(|b| b.guest.server.is_some()).map(|_| WITH_SERVER);
    let named = benchmarks.iter().flat_map(|b| b.guest.workloads.iter().map(String::as_str));
    for name in beside.chain(named).collect::<BTreeSet<_>>() {
        let program = compiled::workload(name, arch, tools, cache, stop).await?;
        own.insert(format!("bin/{name}"), fs::read(program)?);
    }
    Ok(own)
}

/// Puts together what the benchmarks need from `own` programs, the host's
/// files and the unpacked packages.
fn assemble(
    arch: &Arch,
    benchmarks: &[Benchmark],
    own: &BTreeMap<String, Vec<u8>>,
    packages: &[String],
    root: &Unpacked,
) -> anyhow::Result<GuestFiles> {
    let mut guest = GuestFiles { files: own.clone(), packages: root.versions.clone() };
    let libraries = root.dir.as_deref().map(library_index).transpose()?.unwrap_or_default();
    for benchmark in benchmarks {
        for file in &benchmark.files {
            let file = PathBuf::from(file.to_string_lossy().replace("{arch}", &arch.name));
            let name =
                file.file_name().context("a benchmark's file has no name")?.to_string_lossy().into_owned();
            let content = fs::read(&file)?;
            add_program(&mut guest, &format!("bin/{name}"), content, &libraries)?;
        }
        let Some(root) = &root.dir else { continue };
        for (program, needed) in programs(benchmark) {
            let path = format!("bin/{program}");
            if program.contains('/') || guest.files.contains_key(&path) {
                continue;
            }
            match find_program(root, program) {
                Some(content) => add_program(&mut guest, &path, content, &libraries)?,
                None if needed => bail!(
                    "benchmark '{}': no program '{program}' in {}",
                    benchmark.name,
                    root_names(packages)
                ),
                None => {}
            }
        }
        for path in &benchmark.guest.data {
            let content = inside(root, path).and_then(|file| fs::read(file).ok()).with_context(|| {
                format!("benchmark '{}': no file /{path} in {}", benchmark.name, root_names(packages))
            })?;
            guest.files.insert(path.clone(), content);
        }
    }
    Ok(guest)
}

/// The programs that a benchmark starts, and whether there is none without: its
/// own, its server, and what stands behind a `--`, which may be a command that
/// a workload runs.
fn programs(benchmark: &Benchmark) -> impl Iterator<Item = (&str, bool)> {
    let server = benchmark.guest.server.iter().flat_map(|s| s.command.first());
    let behind = benchmark.command.windows(2).filter(|pair| pair[0] == "--").map(|pair| &pair[1]);
    let needed = benchmark.command.first().into_iter().chain(server).map(|p| (p.as_str(), true));
    needed.chain(behind.map(|p| (p.as_str(), false)))
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

/// Package files that an entry of the cache was unpacked from, if it was.
pub fn versions(entry: &Path) -> Option<Vec<String>> {
    let manifest: Manifest = serde_json::from_slice(&fs::read(entry.join("manifest.json")).ok()?).ok()?;
    Some(manifest.versions)
}

async fn unpacked(
    arch: &Arch,
    packages: &[String],
    extent: Extent,
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
    if extent == Extent::Dependencies {
        inputs.add("extent", "dependencies");
    }
    let key = inputs.fingerprint();
    let _lock = cache.lock(ROOM, &key, &stop.graceful).await?;
    cache.used(ROOM, &key)?;
    let entry = cache.entry(ROOM, &key);
    if let Some(manifest) = fs::read(entry.join("manifest.json")).ok().filter(|_| !refresh) {
        let manifest: Manifest = serde_json::from_slice(&manifest)?;
        return Ok(Unpacked { dir: Some(entry.join("root")), versions: manifest.versions });
    }
    let work = cache.work(ROOM, &key)?;
    fs::remove_dir_all(&work)?;
    let release = Release { arch: &arch.guest.debian_arch, suite: &arch.guest.suite };
    let versions = distro::unpack_release(packages, extent, release, &work.join("root"), stop).await?;
    let manifest = Manifest { versions };
    write_whole(&work.join("manifest.json"), &serde_json::to_vec_pretty(&manifest)?)?;
    let entry = cache.publish(&work, ROOM, &key)?;
    Ok(Unpacked { dir: Some(entry.join("root")), versions: manifest.versions })
}

/// Content of the program `name` of unpacked packages.
fn find_program(root: &Path, name: &str) -> Option<Vec<u8>> {
    let path = PROGRAM_DIRS.iter().find_map(|dir| inside(root, &format!("{dir}/{name}")))?;
    fs::read(path).ok()
}

/// The file that `path` of unpacked packages is, links followed; none that is
/// outside of them.
fn inside(root: &Path, path: &str) -> Option<PathBuf> {
    let root = fs::canonicalize(root).ok()?;
    fs::canonicalize(root.join(path)).ok().filter(|p| p.starts_with(&root) && p.is_file())
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

/// A library that no package at hand holds.
#[derive(Debug, thiserror::Error)]
#[error("/{program} needs {library}; add the package that has it to `packages`")]
struct NoLibrary {
    program: String,
    library: String,
}

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
            match libraries.get(&name) {
                Some(library) => todo.push((at, fs::read(library)?)),
                None => bail!(NoLibrary { program: path, library: name }),
            }
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
    use crate::model::{GuestNeeds, Server};

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

    fn benchmark(command: &[&str], guest: GuestNeeds) -> Benchmark {
        Benchmark {
            console: None,
            name: "b".into(),
            command: command.iter().map(|w| (*w).to_owned()).collect(),
            repeat: 1,
            timeout_s: 1,
            pattern: String::new(),
            section: None,
            metrics: Default::default(),
            packages: vec!["p".into()],
            files: vec![],
            guest,
        }
    }

    #[test]
    fn programs_are_the_commands_the_servers_and_those_behind_a_dash() {
        let server = Server { command: vec!["server".into(), "-v".into()], port: 1 };
        let guest = GuestNeeds { server: Some(server), ..GuestNeeds::default() };
        let benchmark = benchmark(&["outer", "x", "--", "inner", "y"], guest);
        let found: Vec<_> = programs(&benchmark).collect();
        assert_eq!(found, [("outer", true), ("server", true), ("inner", false)]);
    }

    /// What a package's folder and the programs of ours come to.
    fn assembled(root: &Path, guest: GuestNeeds) -> anyhow::Result<GuestFiles> {
        let own = BTreeMap::from([("bin/own".to_owned(), b"own".to_vec())]);
        let root = Unpacked { dir: Some(root.to_owned()), versions: vec!["p_1".into()] };
        let arch = crate::arch::all()?.remove(0);
        assemble(&arch, &[benchmark(&["own", "--", "nowhere"], guest)], &own, &["p".into()], &root)
    }

    #[test]
    fn data_keeps_its_path_and_is_never_from_outside() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/share/p")).unwrap();
        fs::write(root.path().join("usr/share/p/input"), "data").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("usr/share/p/leak")).unwrap();
        let data = |path: &str| GuestNeeds { data: vec![path.into()], ..GuestNeeds::default() };
        let guest = assembled(root.path(), data("usr/share/p/input")).unwrap();
        assert_eq!(guest.files["usr/share/p/input"], b"data");
        assert_eq!(guest.files["bin/own"], b"own", "ours is not looked for in the packages");
        assert_eq!(guest.packages, ["p_1"]);
        for lacking in ["usr/share/p/leak", "usr/share/p/none", "../../etc/passwd"] {
            let err = assembled(root.path(), data(lacking)).unwrap_err().to_string();
            assert_eq!(err, format!("benchmark 'b': no file /{lacking} in p"));
        }
    }

    #[test]
    fn lacking_library_asks_for_the_dependencies_a_lacking_program_does_not() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::copy(std::env::current_exe().unwrap(), root.path().join("usr/bin/server")).unwrap();
        let server = |program: &str| GuestNeeds {
            server: Some(Server { command: vec![program.into()], port: 1 }),
            ..GuestNeeds::default()
        };
        assert!(assembled(root.path(), server("server")).unwrap_err().is::<NoLibrary>());
        let err = assembled(root.path(), server("other")).unwrap_err();
        assert!(!err.is::<NoLibrary>() && err.to_string().contains("no program 'other' in p"), "{err}");
    }
}
