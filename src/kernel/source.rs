//! Kernel source trees: fetched or found, patched, never written to again.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, Inputs, write_whole};
use crate::distro::{self, Extent, Release};
use crate::model::Source;
use crate::process::{self, Spec, Stop};

const ROOM: &str = "sources";
/// File of an entry with its [`SourceTree`].
pub const RECORD: &str = "matrix-source.json";
/// File of an entry with git's index of the tree.
const INDEX: &str = "index";
const LONG: Duration = Duration::from_secs(60 * 60);
const SHORT: Duration = Duration::from_secs(60);
/// The release whose source packages are tried when the host's apt lacks one.
const FALLBACK: Release<'static> = Release { arch: "amd64", suite: "trixie" };

/// A source tree that is ready to be built from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceTree {
    /// Its top directory.
    pub dir: PathBuf,
    /// Stands for its whole content, patches included.
    pub fingerprint: String,
    /// What it is, for evidence: package version, commit, path.
    pub describe: String,
    /// Names, sizes and times of its files, in one hash; none where an older
    /// version of this program unpacked it.
    #[serde(default)]
    pub state: Option<String>,
}

impl SourceTree {
    /// Whether it still is what its fingerprint stands for. Trees are shared by
    /// all kernels, trees with patches by hard links too, and permissions don't
    /// keep root from writing.
    ///
    /// # Errors
    /// Something wrote to it; the error names what was written last.
    pub fn verify(&self, cache: &Cache) -> anyhow::Result<()> {
        let (state, newest) = state_of(&self.dir)?;
        if self.state.as_ref().is_none_or(|before| *before == state) {
            return Ok(());
        }
        let cure = match self.dir.starts_with(cache.root()) {
            true => "`matrix cache clear sources` has it unpacked again",
            false => "nothing may change it during a run",
        };
        bail!("the source tree {} was written to, last {}; {cure}", self.dir.display(), newest.display())
    }
}

/// The tree if it is there already, without asking a network.
///
/// # Errors
/// A local tree or patch cannot be read.
pub async fn find(
    source: &Source,
    patches: &[PathBuf],
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<Option<SourceTree>> {
    let base = match source {
        Source::Path(dir) => Some(local_tree(dir)?),
        Source::Package(name) => recorded(cache, &package_key(name)),
        Source::Tarball(file) => recorded(cache, &tarball_key(file)?),
        Source::Git { url, rev } => {
            let local = Path::new(url).is_dir() || is_commit(rev);
            if !local {
                return Ok(None);
            }
            recorded(cache, &git_key(url, &resolve(url, rev, stop).await?))
        }
    };
    match base {
        Some(base) if patches.is_empty() => Ok(Some(base)),
        Some(base) => Ok(recorded(cache, &patched_inputs(&base, patches)?.fingerprint())),
        None => Ok(None),
    }
}

/// Makes the tree available, fetching it where it is not there yet; `refresh`
/// asks the distribution for its newest version.
///
/// # Errors
/// It cannot be fetched or unpacked, or a patch does not apply.
pub async fn prepare(
    source: &Source,
    patches: &[PathBuf],
    refresh: bool,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<SourceTree> {
    let base = match source {
        Source::Path(dir) => local_tree(dir)?,
        Source::Package(name) => {
            fetched(&package_key(name), refresh, cache, stop, async |dir| {
                unpack_package(name, dir, stop).await
            })
            .await?
        }
        Source::Tarball(file) => {
            fetched(&tarball_key(file)?, false, cache, stop, async |dir| {
                unpack_tarball(file, dir, stop).await?;
                Ok(format!("tarball {}", file.display()))
            })
            .await?
        }
        Source::Git { url, rev } => {
            let commit = resolve(url, rev, stop).await?;
            fetched(&git_key(url, &commit), false, cache, stop, async |dir| {
                checkout(url, rev, &commit, dir, cache, stop).await?;
                Ok(format!("git {rev} ({commit})"))
            })
            .await?
        }
    };
    if patches.is_empty() { Ok(base) } else { patched(&base, patches, cache, stop).await }
}

/// The entry `key`, made by `make` in an empty directory where it is missing.
async fn fetched(
    key: &str,
    again: bool,
    cache: &Cache,
    stop: &Stop,
    make: impl AsyncFnOnce(&Path) -> anyhow::Result<String>,
) -> anyhow::Result<SourceTree> {
    let _lock = cache.lock(ROOM, key, &stop.graceful).await?;
    if let Some(tree) = recorded(cache, key).filter(|_| !again) {
        return Ok(tree);
    }
    let work = cache.work(ROOM, key)?;
    fs::remove_dir_all(&work)?;
    fs::create_dir_all(&work)?;
    let describe = make(&work).await?;
    // The description holds version or commit, the key the rest.
    let mut inputs = Inputs::default();
    inputs.add("key", key);
    inputs.add("content", &describe);
    let top = kernel_top(&work)?;
    let state = Some(state_of(&top)?.0);
    // Cache folders move, so that only the place below them is kept.
    let below = top.strip_prefix(&work)?.to_owned();
    let mut tree = SourceTree { dir: below, fingerprint: inputs.fingerprint(), describe, state };
    write_whole(&work.join(RECORD), &serde_json::to_vec_pretty(&tree)?)?;
    tree.dir = cache.publish(&work, ROOM, key)?.join(&tree.dir);
    Ok(tree)
}

/// The tree of an entry, which the run at hand keeps.
fn recorded(cache: &Cache, key: &str) -> Option<SourceTree> {
    cache.used(ROOM, key).ok()?;
    let entry = cache.entry(ROOM, key);
    let text = fs::read_to_string(entry.join(RECORD)).ok()?;
    let mut tree: SourceTree = serde_json::from_str(&text).ok()?;
    // Older entries hold the whole path.
    tree.dir = match tree.dir.is_absolute() {
        true => kernel_top(&entry).ok()?,
        false => entry.join(&tree.dir),
    };
    tree.dir.join("Kconfig").is_file().then_some(tree)
}

/// The directory at or just below `dir` that holds a kernel tree.
fn kernel_top(dir: &Path) -> anyhow::Result<PathBuf> {
    let is_kernel = |d: &Path| d.join("Kconfig").is_file() && d.join("Makefile").is_file();
    if is_kernel(dir) {
        return Ok(dir.to_owned());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if is_kernel(&path) {
            return Ok(path);
        }
    }
    bail!("{}: no kernel tree in it (no Kconfig and Makefile)", dir.display())
}

// --- a directory of the user's ---

fn local_tree(dir: &Path) -> anyhow::Result<SourceTree> {
    let top = kernel_top(&fs::canonicalize(dir)?)?;
    let fingerprint = state_of(&top)?.0;
    let state = Some(fingerprint.clone());
    Ok(SourceTree { fingerprint, describe: format!("path {}", top.display()), dir: top, state })
}

/// Names, sizes and modification times stand for the content: a kernel tree
/// has too many bytes to be read before every build. Also says which file was
/// written last.
fn state_of(top: &Path) -> anyhow::Result<(String, PathBuf)> {
    let mut hasher = blake3::Hasher::new();
    let mut newest = (UNIX_EPOCH, top.to_owned());
    hash_tree(top, top, &mut hasher, &mut newest)?;
    Ok((hasher.finalize().to_hex()[..20].to_owned(), newest.1))
}

fn hash_tree(
    dir: &Path,
    top: &Path,
    hasher: &mut blake3::Hasher,
    newest: &mut (SystemTime, PathBuf),
) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries.iter().filter(|e| is_source(&e.file_name())) {
        let (path, meta) = (entry.path(), entry.metadata()?);
        hasher.update(path.strip_prefix(top)?.as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
        if meta.is_dir() {
            hash_tree(&path, top, hasher, newest)?;
            continue;
        }
        let modified = meta.modified()?;
        let nanos = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        hasher.update(&meta.len().to_le_bytes());
        hasher.update(&nanos.to_le_bytes());
        if modified > newest.0 {
            *newest = (modified, path);
        }
    }
    Ok(())
}

/// Neither git's own files nor what Python and editors keep beside theirs.
fn is_source(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let others = name == b".git" || name == b"__pycache__" || name.starts_with(b".#");
    !(others || name.ends_with(b"~") || name.ends_with(b".swp"))
}

// --- a package of the distribution ---

fn package_key(name: &str) -> String {
    let mut inputs = Inputs::default();
    inputs.add("package", name);
    inputs.fingerprint()
}

async fn unpack_package(name: &str, dir: &Path, stop: &Stop) -> anyhow::Result<String> {
    let root = dir.join("package");
    let packages = [name.to_owned()];
    let versions = match distro::unpack_host(&packages, &root, stop).await {
        Ok(versions) => versions,
        Err(host) => distro::unpack_release(&packages, Extent::Named, FALLBACK, &root, stop).await.with_context(|| {
            format!(
                "package '{name}': {host:#}; `apt-cache search ^linux-source` shows what this system offers, \
                 after `apt-get update`"
            )
        })?,
    };
    let tarball = find_tarball(&root.join("usr/src"))
        .with_context(|| format!("package '{name}' has no kernel tarball under /usr/src"))?;
    unpack_tarball(&tarball, dir, stop).await?;
    fs::remove_dir_all(&root)?;
    Ok(format!("package {}", versions.join(" ")))
}

/// The tarball in `dir` or (Ubuntu) in a directory of it.
fn find_tarball(dir: &Path) -> Option<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(dir).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    let named = |p: &&PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().contains(".tar."));
    let here = entries.iter().find(|p| named(p) && p.is_file() && !p.is_symlink()).cloned();
    here.or_else(|| entries.iter().filter(|p| p.is_dir()).find_map(|d| find_tarball(d)))
}

// --- a tarball ---

fn tarball_key(file: &Path) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut fs::File::open(file)?, &mut hasher)?;
    let mut inputs = Inputs::default();
    inputs.add("tarball", hasher.finalize().to_hex().as_str());
    Ok(inputs.fingerprint())
}

async fn unpack_tarball(file: &Path, dir: &Path, stop: &Stop) -> anyhow::Result<()> {
    // GNU tar refuses members that would leave the directory.
    let tar = Spec::new("tar")
        .args(["--extract", "--no-same-owner", "--file"])
        .arg(file)
        .arg("--directory")
        .arg(dir);
    process::output(&tar, LONG, stop).await.with_context(|| format!("unpacking {}", file.display()))?;
    Ok(())
}

// --- a revision of a git repository ---

fn git_key(url: &str, commit: &str) -> String {
    let mut inputs = Inputs::default();
    inputs.add("git", url);
    inputs.add("commit", commit);
    inputs.fingerprint()
}

fn is_commit(rev: &str) -> bool {
    rev.len() == 40 && rev.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The commit that `rev` names now.
async fn resolve(url: &str, rev: &str, stop: &Stop) -> anyhow::Result<String> {
    if is_commit(rev) {
        return Ok(rev.to_ascii_lowercase());
    }
    if Path::new(url).is_dir() {
        // Any revision expression is good where the repository is at hand.
        let parse = git()
            .arg("-C")
            .arg(url)
            .args(["rev-parse", "--verify", "--end-of-options"])
            .arg(format!("{rev}^{{commit}}"));
        let commit = process::output(&parse, SHORT, stop)
            .await
            .with_context(|| format!("{url}: no revision '{rev}'"))?;
        return Ok(commit.trim().to_owned());
    }
    let list = git().args(["ls-remote", "--", url]).arg(rev).arg(format!("{rev}^{{}}"));
    let refs =
        process::output(&list, SHORT, stop).await.with_context(|| format!("asking {url} for '{rev}'"))?;
    // The last line is the peeled tag, where rev is an annotated one.
    let commit = refs.lines().last().and_then(|l| l.split_whitespace().next());
    commit.map(str::to_owned).with_context(|| format!("{url}: no branch or tag '{rev}'"))
}

/// Unpacks a commit into `dir`: what the tree of another revision has as well
/// becomes hard links to it.
async fn checkout(
    url: &str,
    rev: &str,
    commit: &str,
    dir: &Path,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<()> {
    let objects = dir.join("git");
    let tree = dir.join("linux");
    process::output(&git().args(["init", "--quiet", "--bare"]).arg(&objects), SHORT, stop).await?;
    fetch(url, rev, commit, &objects, stop).await?;
    match nearest(commit, &objects, cache, stop).await {
        Some((near, index)) => {
            copy_tree(&near.dir, &tree, "--link", stop).await?;
            fs::copy(index, objects.join("index"))?;
        }
        None => fs::create_dir_all(&tree)?,
    }
    // git compares its index with the files and replaces those that differ; it
    // never writes into one. A new hard link changes a file's ctime.
    let unpack = git()
        .args(["-c", "core.trustctime=false", "--git-dir"])
        .arg(&objects)
        .arg("--work-tree")
        .arg(&tree)
        .args(["read-tree", "--reset", "-u", commit]);
    process::output(&unpack, LONG, stop).await?;
    fs::rename(objects.join("index"), dir.join(INDEX))?;
    fs::remove_dir_all(&objects)?;
    Ok(())
}

/// Provides a commit in the repository `objects`.
async fn fetch(url: &str, rev: &str, commit: &str, objects: &Path, stop: &Stop) -> anyhow::Result<()> {
    let local = Path::new(url).is_dir();
    let of_url = |args: &[&str]| git().arg("-C").arg(url).args(args);
    // A partial clone has to get what it lacks from elsewhere.
    let partial = of_url(&["config", "--get", "extensions.partialClone"]);
    if local && process::output(&partial, SHORT, stop).await.is_err() {
        let find = of_url(&["rev-parse", "--path-format=absolute", "--git-path", "objects"]);
        let theirs = process::output(&find, SHORT, stop).await?;
        // Objects of theirs are read in place; gitrepository-layout(5).
        return Ok(fs::write(objects.join("objects/info/alternates"), theirs + "\n")?);
    }
    let wanted = if local || is_commit(rev) { commit } else { rev };
    let fetch = git()
        .arg("--git-dir")
        .arg(objects)
        .args(["fetch", "--quiet", "--depth=1", "--upload-pack"])
        // A local repository hands out any commit it has, not only branch tips.
        .arg("git -c uploadpack.allowAnySHA1InWant=true upload-pack")
        .args(["--", url, wanted]);
    process::output(&fetch, LONG, stop).await.with_context(|| format!("fetching {rev} from {url}"))?;
    Ok(())
}

/// The unpacked revision that differs from a commit in the fewest files, and
/// its index.
async fn nearest(commit: &str, objects: &Path, cache: &Cache, stop: &Stop) -> Option<(SourceTree, PathBuf)> {
    let mut best: Option<(usize, SourceTree, PathBuf)> = None;
    for entry in fs::read_dir(cache.root().join(ROOM)).ok()?.flatten() {
        let key = entry.file_name().to_string_lossy().into_owned();
        let index = entry.path().join(INDEX);
        if key.starts_with('.') || !index.is_file() {
            continue;
        }
        let Some(tree) = recorded(cache, &key) else { continue };
        let differing = git()
            .arg("--git-dir")
            .arg(objects)
            .args(["diff-index", "--cached", "--name-only", commit, "--"])
            .env("GIT_INDEX_FILE", &index);
        // Too many to be said are too many.
        let Ok(names) = process::output(&differing, SHORT, stop).await else { continue };
        // Attributes say how git writes other files.
        let same_rules = !names.lines().any(|name| name.trim_end_matches('"').ends_with(".gitattributes"));
        let count = names.lines().count();
        if same_rules && best.as_ref().is_none_or(|(fewest, ..)| count < *fewest) {
            best = Some((count, tree, index));
        }
    }
    let (_, tree, index) = best?;
    // What was written to is not handed on.
    tree.verify(cache).ok().map(|()| (tree, index))
}

/// git, deaf to the caller's repository and never asking for a password.
fn git() -> Spec {
    Spec::new("git")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
}

// --- patches ---

fn patched_inputs(base: &SourceTree, patches: &[PathBuf]) -> anyhow::Result<Inputs> {
    let mut inputs = Inputs::default();
    inputs.add("base", &base.fingerprint);
    for (i, patch) in patches.iter().enumerate() {
        inputs.add(&format!("patch {i:04}"), blake3::hash(&fs::read(patch)?).to_hex().as_str());
    }
    Ok(inputs)
}

async fn patched(
    base: &SourceTree,
    patches: &[PathBuf],
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<SourceTree> {
    let key = patched_inputs(base, patches)?.fingerprint();
    if let Some(tree) = recorded(cache, &key) {
        return Ok(tree);
    }
    let base = &kept(base, cache, stop).await?;
    fetched(&key, false, cache, stop, async |dir| {
        base.verify(cache)?;
        let tree = dir.join("linux");
        // Hard links cost no space, and patch(1) replaces files instead of
        // writing into them.
        copy_tree(&base.dir, &tree, "--link", stop).await?;
        for patch in patches {
            apply(patch, &tree, stop).await?;
        }
        let names: Vec<_> =
            patches.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy()).collect();
        Ok(format!("{} + {}", base.describe, names.join(" + ")))
    })
    .await
}

/// The same tree in the cache. The user may write into a tree of theirs, so
/// that one is copied, once for all patches.
async fn kept(tree: &SourceTree, cache: &Cache, stop: &Stop) -> anyhow::Result<SourceTree> {
    if tree.dir.starts_with(cache.root()) {
        return Ok(tree.clone());
    }
    let mut inputs = Inputs::default();
    inputs.add("copy", &tree.fingerprint);
    fetched(&inputs.fingerprint(), false, cache, stop, async |dir| {
        copy_tree(&tree.dir, &dir.join("linux"), "--reflink=auto", stop).await?;
        tree.verify(cache)?;
        Ok(tree.describe.clone())
    })
    .await
}

/// Copies a tree but for git's own files, `how` being an option of cp(1).
async fn copy_tree(from: &Path, to: &Path, how: &str, stop: &Stop) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from)?.collect::<Result<Vec<_>, _>>()?;
    let names = entries.iter().filter(|e| e.file_name() != ".git").map(fs::DirEntry::path);
    let copy = Spec::new("cp").args(["--archive", how, "--target-directory"]).arg(to).arg("--").args(names);
    process::output(&copy, LONG, stop).await?;
    Ok(())
}

async fn apply(patch: &Path, tree: &Path, stop: &Stop) -> anyhow::Result<()> {
    let apply = Spec::new("patch")
        .args([
            "--strip=1",
            "--forward",
            "--fuzz=0",
            "--batch",
            "--no-backup-if-mismatch",
            "--reject-file=-",
            "--input",
        ])
        .arg(patch)
        .cwd(tree);
    process::output(&apply, LONG, stop).await.with_context(|| DoesNotApply(patch.to_owned()))?;
    Ok(())
}

/// A patch that does not apply; its cause names the hunks.
#[derive(Debug, thiserror::Error)]
#[error("{} does not apply", .0.display())]
pub struct DoesNotApply(PathBuf);

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(dir: &Path) {
        fs::create_dir_all(dir.join("lib")).unwrap();
        for name in ["Kconfig", "Makefile", "lib/a.c"] {
            fs::write(dir.join(name), name).unwrap();
        }
    }

    #[test]
    fn local_tree_fingerprint_follows_changes() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path());
        let first = local_tree(dir.path()).unwrap();
        assert_eq!(local_tree(dir.path()).unwrap(), first);
        fs::create_dir_all(dir.path().join(".git/x")).unwrap();
        for name in [".#a.c", "lib/a.c~", "lib/.a.c.swp"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(local_tree(dir.path()).unwrap(), first, "neither git's nor an editor's files are source");
        fs::write(dir.path().join("lib/a.c"), "changed").unwrap();
        assert_ne!(local_tree(dir.path()).unwrap().fingerprint, first.fingerprint);
    }

    #[test]
    fn directory_without_a_kernel_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let err = local_tree(dir.path()).unwrap_err().to_string();
        assert!(err.contains("no kernel tree"), "{err}");
    }

    #[test]
    fn tarball_is_found_one_level_down_too() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("linux-source-6.8.0")).unwrap();
        let file = dir.path().join("linux-source-6.8.0/linux-source-6.8.0.tar.bz2");
        fs::write(&file, "x").unwrap();
        assert_eq!(find_tarball(dir.path()), Some(file));
    }

    #[test]
    fn only_full_hashes_are_commits() {
        assert!(is_commit("0123456789abcdef0123456789ABCDEF01234567"));
        assert!(!is_commit("v6.12"));
        assert!(!is_commit("0123456789abcdef0123456789ABCDEF0123456g"));
    }
}
