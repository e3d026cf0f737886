//! One kernel: everything it is made from, whether it is there already, and
//! how it is made.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::ccache::{Ccache, Hits};
use super::config::{self, Configured, Make, Request};
use super::elf::{self, Sizes};
use super::kconfig;
use super::seed::{self, ObjectTree};
use super::source::SourceTree;
use super::toolchain::Tools;
use crate::arch::Arch;
use crate::cache::{Cache, Inputs, write_whole};
use crate::model::{BaseConfig, Failure, Stage};
use crate::process::jobserver::Jobserver;
use crate::process::{self, Ended, Limits, Spec, Stop};

const ROOM: &str = "builds";
/// Raise it when the way of building changes what comes out.
const RECIPE: &str = "1";
/// Folder of an entry with the Kconfig files that replaced the tree's.
pub const OVERLAY: &str = "overlay";
/// Object directory below the folder of a build under way.
pub(super) const OBJECTS: &str = "obj";
/// File of a build under way with what ccache was asked for.
const CCACHE_LOG: &str = "ccache.log";
/// File of a build under way that names the kernel whose objects it started from.
const OBJECTS_OF: &str = "objects_of";
const LIMIT: Duration = Duration::from_secs(6 * 60 * 60);
/// Another one each time the host starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const GRACE: Duration = Duration::from_secs(5);

/// One kernel to be built, described by data.
#[derive(Debug, Clone)]
pub struct KernelBuild {
    /// The architecture it is for.
    pub arch: Arc<Arch>,
    /// The tree it is built from.
    pub source: SourceTree,
    /// Its configuration.
    pub request: Request,
    /// Its compiler.
    pub tools: Arc<Tools>,
    /// Further make variables.
    pub make: Vec<String>,
    /// What may save compiling; it changes nothing that comes out.
    pub ccache: Option<Ccache>,
}

/// What is known of a kernel once it is built; `build.json` of its entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildInfo {
    /// Everything it was made from.
    pub inputs: Inputs,
    /// `make kernelrelease`: what `uname -r` says in the guest.
    pub release: String,
    /// GNU build ID of vmlinux.
    pub build_id: Option<String>,
    /// Sizes of vmlinux.
    pub sizes: Sizes,
    /// Size of vmlinux without symbols, in bytes, by the toolchain's `strip`.
    pub stripped: u64,
    /// Size of the bootable image in bytes.
    pub image: u64,
    /// Size of the final configuration in bytes.
    #[serde(default)]
    pub config: Option<u64>,
    /// Rules of the tree that were replaced.
    pub overridden: Vec<String>,
    /// Symbols of built-in fragments that the tree does not have.
    pub unknown: Vec<String>,
    /// The kernel whose objects it was made from, where it was not made from nothing.
    #[serde(default)]
    pub objects_of: Option<String>,
    /// What ccache was asked for, where it was.
    #[serde(default)]
    pub ccache: Option<Hits>,
    /// Commands that make printed: what the next build's progress is measured by.
    pub steps: u64,
    /// Wall-clock seconds of compiling, which other kernels share the machine with.
    pub seconds: f64,
    /// Seconds of processor time that compiling took, of all its processes.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Toolchain versions.
    pub toolchain: String,
    /// Source description.
    pub source: String,
}

/// A built kernel in the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// Directory with `vmlinux`, `Image`, `config`, `build.log`, `build.json`.
    pub dir: PathBuf,
    /// What is known of it.
    pub info: BuildInfo,
}

impl Built {
    /// The image that QEMU loads.
    pub fn image(&self) -> PathBuf {
        self.dir.join("Image")
    }
}

impl KernelBuild {
    /// Everything that decides what comes out.
    ///
    /// # Errors
    /// The base configuration cannot be read.
    pub fn inputs(&self) -> anyhow::Result<Inputs> {
        let mut inputs = Inputs::default();
        inputs.add("recipe", RECIPE);
        inputs.add("arch", &self.arch.kernel.arch);
        inputs.add("targets", &self.arch.kernel.target);
        inputs.add("source", &self.source.fingerprint);
        inputs.add("toolchain", &self.tools.version);
        inputs.add("make flags", self.variables().join(" "));
        inputs.add("configuration", self.request.text());
        match &self.request.base {
            BaseConfig::Target(target) => inputs.add("base configuration", target),
            BaseConfig::File(path) => inputs.add("base configuration", fs::read_to_string(path)?),
        }
        Ok(inputs)
    }

    /// The kernel if it is in the cache, whole: every file has its length. What
    /// is in them shows elsewhere: a guest proves its kernel's build ID.
    pub fn find(cache: &Cache, fingerprint: &str) -> Option<Built> {
        cache.used(ROOM, fingerprint).ok()?;
        let dir = cache.entry(ROOM, fingerprint);
        let info: BuildInfo = serde_json::from_slice(&fs::read(dir.join("build.json")).ok()?).ok()?;
        let built = Built { dir, info };
        let size = |name: &str| fs::metadata(built.dir.join(name)).map(|m| m.len()).ok();
        let whole = size("vmlinux") == Some(built.info.sizes.file)
            && size("Image") == Some(built.info.image)
            && size("config").is_some_and(|length| built.info.config.is_none_or(|c| c == length))
            && size("build.log").is_some();
        let overlaid = built.info.overridden.is_empty() || built.dir.join(OVERLAY).is_dir();
        (whole && overlaid).then_some(built)
    }

    fn variables(&self) -> Vec<String> {
        self.tools.make.iter().chain(&self.make).cloned().collect()
    }

    fn make<'a>(&'a self, objdir: &'a Path) -> Make<'a> {
        Make { source: &self.source, arch: &self.arch.kernel.arch, objdir, variables: self.variables() }
    }

    /// The command that compiles it in a run.
    fn compiling(&self, work: &Path) -> Spec {
        let make = self.make(&work.join(OBJECTS)).spec();
        let own_compiler = self.make.iter().any(|variable| variable.starts_with("CC="));
        let make = match self.ccache.filter(|_| !own_compiler) {
            Some(ccache) => ccache.around(make, &self.tools.cc[0], &work.join(CCACHE_LOG)),
            None => make,
        };
        make.args(self.goals())
    }

    /// The command that compiles it, for people: a run shares its jobs among all kernels.
    pub fn command(&self, objdir: &Path, jobs: usize) -> Spec {
        let make = self.make(objdir).spec().arg(format!("-j{jobs}"));
        make.args(self.goals())
    }

    fn goals(&self) -> [&str; 2] {
        ["vmlinux", &self.arch.kernel.target]
    }
}

/// Configures and verifies a kernel in its object directory, compiling nothing.
/// `like` is the fingerprint of a kernel with the same source and toolchain that
/// was configured before: its configuration programs are taken over.
///
/// # Errors
/// A requested value did not stick, or Kconfig failed.
pub async fn configure(
    build: &KernelBuild,
    fingerprint: &str,
    like: Option<&str>,
    cache: &Cache,
    stop: &Stop,
) -> Result<Configured, Failure> {
    let objdir = cache.work(ROOM, fingerprint).and_then(|work| object_directory(&work, BOOT_ID));
    let objdir = objdir.map_err(|e| Failure::new(Stage::Config, "no object directory", e))?;
    let configured = async {
        let programs = like.map(|like| cache.work_path(ROOM, like).join(OBJECTS));
        if let Some(programs) = programs.filter(|p| p.is_dir() && !objdir.exists()) {
            seed::prepare(&programs, &objdir, &build.source.dir)?;
        }
        fs::create_dir_all(&objdir)?;
        config::configure(&build.make(&objdir), &build.request, stop).await
    };
    configured.await.map_err(|e| Failure::new(Stage::Config, "config", e))
}

/// Where a kernel is built. What an interrupted build left there is used, but
/// not across a restart of the host: by their times files would look finished
/// of which a power cut left nothing.
fn object_directory(work: &Path, boot_id: &str) -> std::io::Result<PathBuf> {
    let (objdir, note) = (work.join(OBJECTS), work.join("boot_id"));
    let boot_id = fs::read_to_string(boot_id)?;
    if fs::read_to_string(&note).ok().as_ref() != Some(&boot_id) {
        if objdir.exists() {
            fs::remove_dir_all(&objdir)?;
        }
        if work.join(OBJECTS_OF).exists() {
            fs::remove_file(work.join(OBJECTS_OF))?;
        }
        fs::write(&note, boot_id)?;
    }
    Ok(objdir)
}

/// Compiles a configured kernel, measures it and puts it into the cache.
/// The caller holds a token of `jobs`; `progress` is called with the number of
/// commands that make has printed.
/// The log stays beside the object directory when compiling fails.
///
/// # Errors
/// Compiling failed (with the first error and the log's path), something wrote
/// to the source meanwhile, or the cache cannot be written.
pub async fn compile(
    build: &KernelBuild,
    configured: &Configured,
    jobs: &Jobserver,
    cache: &Cache,
    stop: &Stop,
    progress: impl FnMut(u64),
) -> Result<Built, Failure> {
    let inputs = build.inputs().map_err(|e| Failure::new(Stage::Build, "inputs", e))?;
    let work = cache
        .work(ROOM, &inputs.fingerprint())
        .map_err(|e| Failure::new(Stage::Build, "no object directory", e))?;
    let began = Instant::now();
    let made = make_kernel(build, &work, jobs, stop, progress).await;
    let seconds = began.elapsed().as_secs_f64();
    // What does not compile may be a damaged tree's fault.
    if let Err(error) = verify(&build.source, cache).await {
        // Once the tree is whole again, its objects would still look finished.
        let dropped = fs::remove_dir_all(work.join(OBJECTS)).err().map(|e| format!("; {e}"));
        let detail = format!("{error:#}{}", dropped.unwrap_or_default());
        return Err(Failure::new(Stage::Build, "source changed", detail));
    }
    let (steps, cpu) = made?;
    let figures = Figures { steps, seconds, cpu_seconds: cpu.as_secs_f64() };
    publish(build, configured, inputs, &work, figures, cache, stop)
        .await
        .map_err(|e| Failure::new(Stage::Build, "build", e))
}

/// Starts a configured kernel from the objects of the nearest of `trees`, which
/// saves making again what does not differ; says from what. Nothing comes of it
/// where none is near or something was built already.
///
/// # Errors
/// It cannot be copied; the kernel can be built without.
pub fn plant(
    build: &KernelBuild,
    configured: &Configured,
    trees: &[Arc<ObjectTree>],
    cache: &Cache,
) -> anyhow::Result<Option<String>> {
    let inputs = build.inputs()?;
    let work = cache.work(ROOM, &inputs.fingerprint())?;
    let objdir = work.join(OBJECTS);
    let near = |tree: &&Arc<ObjectTree>| tree.distance(&inputs, &configured.config).is_some();
    let mut near: Vec<_> = trees.iter().filter(near).collect();
    near.sort_by_key(|tree| tree.distance(&inputs, &configured.config));
    for tree in near {
        let changes = match tree.source() {
            (_, fingerprint) if fingerprint == build.source.fingerprint => Some(Default::default()),
            (dir, _) => seed::changes(dir, &build.source.dir)?,
        };
        if let Some(changes) = changes {
            let planted = tree.plant(build, &objdir, &changes)?;
            if planted {
                fs::write(work.join(OBJECTS_OF), tree.name())?;
            }
            return Ok(planted.then(|| tree.name().to_owned()));
        }
    }
    Ok(None)
}

/// The object tree of a kernel that was built, for others to start from. It is
/// removed with the value unless it is to be kept.
///
/// # Errors
/// The cache cannot be written.
pub fn objects(
    build: &KernelBuild,
    configured: &Configured,
    name: &str,
    cache: &Cache,
    keep: bool,
) -> anyhow::Result<ObjectTree> {
    let inputs = build.inputs()?;
    let work = cache.work(ROOM, &inputs.fingerprint())?;
    Ok(ObjectTree::of(build, inputs, &configured.config, name, work, keep))
}

/// Looks through a source tree beside what else is going on: it has 90,000 files.
async fn verify(source: &SourceTree, cache: &Cache) -> anyhow::Result<()> {
    let (source, cache) = (source.clone(), cache.clone());
    tokio::task::spawn_blocking(move || source.verify(&cache)).await?
}

/// Path of the log of the build that is, or was last, under way.
///
/// # Errors
/// The cache cannot be written.
pub fn log_path(cache: &Cache, fingerprint: &str) -> std::io::Result<PathBuf> {
    Ok(cache.work(ROOM, fingerprint)?.join("build.log"))
}

async fn make_kernel(
    build: &KernelBuild,
    work: &Path,
    jobs: &Jobserver,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<(u64, Duration), Failure> {
    let log = work.join("build.log");
    let mut steps = 0;
    let mut errors = FirstError::default();
    let limits = Limits { deadline: Some(LIMIT), grace: GRACE, ..Limits::default() };
    let spec = build.compiling(work).jobserver(jobs).log(&log);
    let exit = process::run(&spec, &limits, stop, |_, line| {
        if line.starts_with(b"  ") {
            steps += 1;
            progress(steps);
        }
        errors.look_at(line);
        ControlFlow::Continue(())
    })
    .await
    .map_err(|e| Failure::new(Stage::Build, "make", e))?;
    if let Some(error) = exit.log_error {
        let detail = format!("cannot write {}: {error}", log.display());
        return Err(Failure::new(Stage::Build, "evidence lost", detail));
    }
    match exit.status {
        Ended::Code(0) => Ok((steps, exit.user + exit.system)),
        status => {
            let what = if matches!(status, Ended::Code(_)) { "compile error" } else { "build stopped" };
            let detail = format!("{}\nmake {status}; whole log: {}", errors.text(), log.display());
            Err(Failure::new(Stage::Build, what, detail))
        }
    }
}

/// The first error of a compiler, linker or make, with a few lines behind it.
#[derive(Debug, Default)]
struct FirstError {
    lines: Vec<String>,
}

impl FirstError {
    const CONTEXT: usize = 6;

    fn look_at(&mut self, line: &[u8]) {
        if self.lines.len() >= Self::CONTEXT {
            return;
        }
        let line = String::from_utf8_lossy(line);
        let is_error = ["error:", "Error:", "*** ", "undefined reference", "fatal error", "No space left"];
        if !self.lines.is_empty() || is_error.iter().any(|e| line.contains(e)) {
            self.lines.push(line.trim_end().to_owned());
        }
    }

    fn text(&self) -> String {
        if self.lines.is_empty() {
            "no error message was recognised".to_owned()
        } else {
            self.lines.join("\n")
        }
    }
}

struct Figures {
    steps: u64,
    seconds: f64,
    cpu_seconds: f64,
}

/// Gathers what is worth keeping.
async fn publish(
    build: &KernelBuild,
    configured: &Configured,
    inputs: Inputs,
    work: &Path,
    figures: Figures,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<Built> {
    let objdir = work.join(OBJECTS);
    let out = work.join("out");
    fs::create_dir_all(&out)?;
    for (from, to) in
        [("vmlinux", "vmlinux"), (build.arch.kernel.image.as_str(), "Image"), (".config", "config")]
    {
        fs::copy(objdir.join(from), out.join(to)).with_context(|| format!("make left no {from}"))?;
    }
    let config = kconfig::parse(&fs::read_to_string(out.join("config"))?);
    ensure!(config == configured.config, "make changed the verified configuration");
    fs::copy(work.join("build.log"), out.join("build.log"))?;
    if !configured.overridden.is_empty() {
        keep_overlay(&objdir, &build.arch.kernel.arch, &out.join(OVERLAY))?;
    }
    let facts = elf::read(&out.join("vmlinux"))?;
    let info = BuildInfo {
        release: fs::read_to_string(objdir.join("include/config/kernel.release"))?.trim().to_owned(),
        build_id: facts.build_id,
        stripped: stripped_size(&build.tools, &out.join("vmlinux"), stop).await?,
        image: fs::metadata(out.join("Image"))?.len(),
        config: Some(fs::metadata(out.join("config"))?.len()),
        sizes: facts.sizes,
        overridden: configured.overridden.clone(),
        unknown: configured.unknown.clone(),
        objects_of: fs::read_to_string(work.join(OBJECTS_OF)).ok(),
        ccache: Hits::read(&work.join(CCACHE_LOG)),
        steps: figures.steps,
        seconds: figures.seconds,
        cpu_seconds: figures.cpu_seconds,
        toolchain: build.tools.version.clone(),
        source: build.source.describe.clone(),
        inputs,
    };
    write_whole(&out.join("build.json"), &serde_json::to_vec_pretty(&info)?)?;
    let dir = cache.publish(&out, ROOM, &info.inputs.fingerprint())?;
    Ok(Built { dir, info })
}

/// Keeps the Kconfig files that stood in for the tree's: without them nobody
/// could build this kernel again.
fn keep_overlay(objdir: &Path, arch: &str, to: &Path) -> anyhow::Result<()> {
    for file in kconfig::files(objdir, arch)? {
        let kept = to.join(&file);
        fs::create_dir_all(kept.parent().unwrap_or(to))?;
        fs::copy(objdir.join(&file), kept)?;
    }
    Ok(())
}

async fn stripped_size(tools: &Tools, vmlinux: &Path, stop: &Stop) -> anyhow::Result<u64> {
    let stripped = tempfile::NamedTempFile::new_in(vmlinux.parent().unwrap_or(Path::new(".")))?;
    let strip = Spec::new(&tools.strip).arg("-o").arg(stripped.path()).arg(vmlinux);
    process::output(&strip, Duration::from_secs(600), stop).await?;
    Ok(fs::metadata(stripped.path())?.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn first_error_is_kept_with_what_follows_and_no_more() {
        let mut errors = FirstError::default();
        assert_eq!(errors.text(), "no error message was recognised");
        for line in ["  CC      a.o", "a.c:3:1: error: expected ';'", "    3 | x", "      | ^"] {
            errors.look_at(line.as_bytes());
        }
        for _ in 0..100 {
            errors.look_at(b"make[2]: *** [a.o] Error 1");
        }
        let text = errors.text();
        assert!(text.starts_with("a.c:3:1: error: expected ';'\n    3 | x"), "{text}");
        assert_eq!(text.lines().count(), FirstError::CONTEXT);
    }

    #[test]
    fn objects_from_before_a_restart_of_the_host_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let boot_id = dir.path().join("id");
        for (id, left) in [("1", false), ("1", true), ("2", false), ("2", true)] {
            fs::write(&boot_id, id).unwrap();
            let objdir = object_directory(dir.path(), boot_id.to_str().unwrap()).unwrap();
            assert_eq!(objdir.join("a.o").exists(), left, "{id}");
            fs::create_dir_all(&objdir).unwrap();
            fs::write(objdir.join("a.o"), "").unwrap();
        }
    }

    #[test]
    fn truncated_entry_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().into())).unwrap();
        let entry = cache.entry(ROOM, "f");
        fs::create_dir_all(&entry).unwrap();
        let sizes = Sizes { file: 4, text: 1, data: 1, bss: 1, sections: BTreeMap::new() };
        let info = BuildInfo {
            inputs: Inputs::default(),
            release: "6".into(),
            build_id: None,
            sizes,
            stripped: 3,
            image: 2,
            config: Some(5),
            overridden: vec![],
            unknown: vec![],
            objects_of: None,
            ccache: None,
            steps: 1,
            seconds: 1.0,
            cpu_seconds: 1.5,
            toolchain: String::new(),
            source: String::new(),
        };
        let files = [("config", "X=y\nZ"), ("Image", "12"), ("vmlinux", "1234"), ("build.log", "")];
        let files = files.map(|(name, text)| (name, text.to_owned()));
        let json = ("build.json", serde_json::to_string(&info).unwrap());
        let write = |name: &str, text: &str| fs::write(entry.join(name), text).unwrap();
        for (name, text) in files.iter().chain([&json]) {
            write(name, text);
        }
        assert!(KernelBuild::find(&cache, "f").is_some());
        for (name, text) in files.iter().chain([&json]) {
            match text.len() {
                0 => fs::remove_file(entry.join(name)).unwrap(),
                n => write(name, &text[..n - 1]),
            }
            assert!(KernelBuild::find(&cache, "f").is_none(), "{name} is cut off");
            write(name, text);
        }
        assert!(KernelBuild::find(&cache, "f").is_some());
    }
}
