//! Kernel source trees: fetched or found, patched, never written to again.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, Inputs, write_whole};
use crate::distro::{self, Extent, Release};
use crate::model::Source;
use crate::process::{self, Spec, Stop};

const ROOM: &str = "sources";
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
                checkout(url, rev, &commit, dir, stop).await?;
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
    let entry = cache.publish(&work, ROOM, key)?;
    let tree = SourceTree { dir: kernel_top(&entry)?, fingerprint: inputs.fingerprint(), describe };
    write_whole(&entry.join("matrix-source.json"), &serde_json::to_vec_pretty(&tree)?)?;
    Ok(tree)
}

fn recorded(cache: &Cache, key: &str) -> Option<SourceTree> {
    let entry = cache.entry(ROOM, key);
    let text = fs::read_to_string(entry.join("matrix-source.json")).ok()?;
    let tree: SourceTree = serde_json::from_str(&text).ok()?;
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
    let dir = fs::canonicalize(dir)?;
    let top = kernel_top(&dir)?;
    let mut hasher = blake3::Hasher::new();
    hash_tree(&top, &mut hasher)?;
    Ok(SourceTree {
        fingerprint: hasher.finalize().to_hex()[..20].to_owned(),
        describe: format!("path {}", top.display()),
        dir: top,
    })
}

/// Names, sizes and modification times stand for the content: a kernel tree
/// has too many bytes to be read before every build.
fn hash_tree(dir: &Path, hasher: &mut blake3::Hasher) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries.iter().filter(|e| e.file_name() != ".git") {
        let meta = entry.metadata()?;
        let modified = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        hasher.update(entry.path().as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
        if meta.is_dir() {
            hash_tree(&entry.path(), hasher)?;
        } else {
            hasher.update(&meta.len().to_le_bytes());
            hasher.update(&modified.as_nanos().to_le_bytes());
        }
    }
    Ok(())
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

async fn checkout(url: &str, rev: &str, commit: &str, dir: &Path, stop: &Stop) -> anyhow::Result<()> {
    let local = Path::new(url).is_dir();
    let objects = dir.join("git");
    let tree = dir.join("linux");
    fs::create_dir_all(&tree)?;
    process::output(&git().args(["init", "--quiet", "--bare"]).arg(&objects), SHORT, stop).await?;
    let wanted = if local || is_commit(rev) { commit } else { rev };
    let fetch = git()
        .arg("--git-dir")
        .arg(&objects)
        .args(["fetch", "--quiet", "--depth=1", "--upload-pack"])
        // A local repository hands out any commit it has, not only branch tips.
        .arg("git -c uploadpack.allowAnySHA1InWant=true upload-pack")
        .args(["--", url, wanted]);
    process::output(&fetch, LONG, stop).await.with_context(|| format!("fetching {rev} from {url}"))?;
    let checkout = git().arg("--git-dir").arg(&objects).arg("--work-tree").arg(&tree).args([
        "checkout",
        "--quiet",
        "--force",
        "FETCH_HEAD",
        "--",
        ".",
    ]);
    process::output(&checkout, LONG, stop).await?;
    fs::remove_dir_all(&objects)?;
    Ok(())
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
    fetched(&key, false, cache, stop, async |dir| {
        let tree = dir.join("linux");
        // Hard links cost no space, and patch(1) replaces files instead of
        // writing into them; but the user may write into a tree of theirs.
        let how = if base.dir.starts_with(cache.root()) { "--link" } else { "--reflink=auto" };
        let copy =
            Spec::new("cp").args(["--archive", how, "--no-target-directory", "--"]).arg(&base.dir).arg(&tree);
        process::output(&copy, LONG, stop).await?;
        for patch in patches {
            apply(patch, &tree, stop).await?;
        }
        let names: Vec<_> =
            patches.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy()).collect();
        Ok(format!("{} + {}", base.describe, names.join(" + ")))
    })
    .await
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
        assert_eq!(local_tree(dir.path()).unwrap(), first, "git's own files are no source");
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
