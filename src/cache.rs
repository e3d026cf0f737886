//! What is kept between runs: sources, kernels and guest programs, each under
//! the fingerprint of everything it was made from.
//!
//! An entry is a directory that appears under its name whole or not at all:
//! it is made beside it and renamed. A lock per entry keeps two processes from
//! making the same one at once. [`space`] knows what entries take, [`limit`]
//! how much that may be, [`evict`] what goes then.

pub mod evict;
pub mod limit;
pub mod space;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use fs4::fs_std::FileExt;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

/// The inputs of something cached, by name: `source`, `toolchain`, ...
///
/// Keeping them by name is what lets a plan say *why* something is rebuilt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Inputs(pub BTreeMap<String, String>);

impl Inputs {
    /// Adds an input.
    pub fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Twenty hexadecimal digits that stand for all inputs.
    pub fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, value) in &self.0 {
            // Lengths keep ("ab","c") and ("a","bc") apart.
            for part in [name, value] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        }
        hasher.finalize().to_hex()[..20].to_owned()
    }

    /// What differs from `before`, for a person: `toolchain: gcc 12 -> gcc 13`.
    pub fn changes_since(&self, before: &Inputs) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(before.0.keys()).collect();
        names
            .into_iter()
            .filter(|n| self.0.get(*n) != before.0.get(*n))
            .map(|n| change(n, before.0.get(n), self.0.get(n)))
            .collect()
    }
}

/// One changed input; long or many-lined values are named, not shown.
fn change(name: &str, before: Option<&String>, now: Option<&String>) -> String {
    let short = |v: &&String| v.len() <= 60 && !v.contains('\n');
    match (before.filter(short), now.filter(short)) {
        (Some(before), Some(now)) => format!("{name}: {before} -> {now}"),
        _ => format!("{name} changed"),
    }
}

/// Root of everything that is kept between runs.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    /// What the run at hand uses; none outside of one.
    uses: Option<Arc<evict::Uses>>,
}

/// A held lock; released when dropped.
#[derive(Debug)]
pub struct Lock {
    _file: std::fs::File,
}

impl Cache {
    /// The cache in `root`, or `$MATRIX_CACHE`, or the user's cache folder;
    /// nothing is created before something is to be kept.
    ///
    /// # Errors
    /// None of them is known.
    pub fn open(root: Option<PathBuf>) -> anyhow::Result<Cache> {
        let root = match root.or_else(|| default_root(|n| std::env::var_os(n))) {
            Some(root) => std::path::absolute(root)?,
            None => anyhow::bail!("no cache folder: set MATRIX_CACHE, XDG_CACHE_HOME or HOME"),
        };
        Ok(Cache { root, uses: None })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of the entry `key` of `room` (`sources`, `builds`, ...); it
    /// exists only when the entry is complete.
    pub fn entry(&self, room: &str, key: &str) -> PathBuf {
        self.root.join(room).join(key)
    }

    /// Directory for work in progress on an entry, kept across interruptions.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn work(&self, room: &str, key: &str) -> io::Result<PathBuf> {
        let dir = self.work_path(room, key);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Where that directory is, or would be.
    pub fn work_path(&self, room: &str, key: &str) -> PathBuf {
        self.root.join("work").join(format!("{room}-{key}"))
    }

    /// Makes `made` the entry `key` of `room`, replacing an older one.
    ///
    /// # Errors
    /// The file system refuses, for example for want of space, or another run
    /// uses the older one.
    pub fn publish(&self, made: &Path, room: &str, key: &str) -> io::Result<PathBuf> {
        let entry = self.entry(room, key);
        if let Some(parent) = entry.parent() {
            fs::create_dir_all(parent)?;
        }
        // Under its name it counts as complete, after a power cut too.
        sync_tree(made)?;
        self.mark(room, key)?;
        let older = entry.exists();
        if older {
            self.replace(room, key)?;
        }
        self.measure_new(room, key, made);
        fs::rename(made, &entry)?;
        entry.parent().map_or(Ok(()), sync)?;
        if older {
            self.remove_set_aside()?;
        }
        Ok(entry)
    }

    /// Lets this process hold as many locks as the system allows it: each is an
    /// open file, and a large matrix has more kernels than the usual 1024.
    pub fn allow_many_locks() {
        let limit = getrlimit(Resource::RLIMIT_NOFILE);
        // Where it cannot be raised, the lock that is one too many says so.
        let _ = limit.and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    }

    /// Waits until nobody else works on the entry, then keeps others out.
    ///
    /// # Errors
    /// The lock file cannot be created, or `stop` came first.
    pub async fn lock(&self, room: &str, key: &str, stop: &CancellationToken) -> io::Result<Lock> {
        let dir = self.root.join("locks");
        fs::create_dir_all(&dir)?;
        let file = std::fs::File::create(dir.join(format!("{room}-{key}")))?;
        while !FileExt::try_lock_exclusive(&file)? {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                () = stop.cancelled() => return Err(io::Error::other("stopped while another run had the lock")),
            }
        }
        Ok(Lock { _file: file })
    }

    /// What was last made for `name` (a cell, say), to tell why it is stale.
    pub fn last_inputs(&self, name: &str) -> Option<Inputs> {
        let text = fs::read_to_string(self.last_path(name)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Remembers what was made for `name`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn remember(&self, name: &str, inputs: &Inputs) -> io::Result<()> {
        let path = self.last_path(name);
        let text = serde_json::to_vec(inputs)?;
        if std::fs::read(&path).is_ok_and(|before| before == text) {
            return Ok(());
        }
        fs::create_dir_all(folder(&path))?;
        // Not waited for: what a power cut leaves of it says nothing, or the truth.
        draft(&path, &text)?.persist(&path)?;
        Ok(())
    }

    fn last_path(&self, name: &str) -> PathBuf {
        let hash = blake3::hash(name.as_bytes()).to_hex();
        self.root.join("last").join(format!("{}.json", &hash[..20]))
    }
}

fn default_root(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let set = |name: &str| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("MATRIX_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|d| d.join("matrix")))
        .or_else(|| set("HOME").map(|d| d.join(".cache/matrix")))
}

/// Writes a file so that a reader sees the old or the new content, never half,
/// even after the power failed.
///
/// # Errors
/// The file system refuses; the error names the file.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display()));
    let file = draft(path, content).map_err(named)?;
    file.as_file().sync_all().map_err(named)?;
    file.persist(path).map_err(|e| named(e.error))?;
    sync(folder(path))
}

/// What is to become the file `path`, in a file beside it.
fn draft(path: &Path, content: &[u8]) -> io::Result<NamedTempFile> {
    // Readable like any other file; a temporary one is its owner's alone.
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder(path))?;
    io::Write::write_all(&mut file, content)?;
    Ok(file)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The same, if the file does not hold that already.
///
/// # Errors
/// The file system refuses; the error names the file.
pub fn write_changed(path: &Path, content: &[u8]) -> io::Result<()> {
    let same = fs::read(path).is_ok_and(|before| before == content);
    if same { Ok(()) } else { write_whole(path, content) }
}

/// Waits until a file, or the names in a directory, are on disk.
///
/// # Errors
/// The file system refuses.
pub fn sync(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Waits until a directory and everything in it is on disk.
///
/// # Errors
/// The file system refuses.
pub fn sync_tree(dir: &Path) -> io::Result<()> {
    sync_trees(&[dir.to_owned()])
}

/// The same for several directories of one file system.
///
/// # Errors
/// The file system refuses.
pub fn sync_trees(dirs: &[PathBuf]) -> io::Result<()> {
    let mut paths = dirs.to_vec();
    let mut next = 0;
    while let Some(path) = paths.get(next) {
        // A source tree is too many files to wait for each of them.
        if paths.len() > 200 {
            return Ok(nix::unistd::syncfs(fs::File::open(&dirs[0])?.file())?);
        }
        next += 1;
        if path.symlink_metadata()?.is_dir() {
            for entry in fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()? {
                paths.push(entry.path());
            }
        }
    }
    paths.iter().filter(|path| !path.is_symlink()).try_for_each(|path| sync(path))
}

/// Whether a file may be written into.
///
/// # Errors
/// It is not there.
pub fn is_writable(file: &Path) -> io::Result<bool> {
    Ok(!fs::metadata(file)?.permissions().readonly())
}

/// Keeps people from writing into a file that is to have several names. One of
/// another user's cache cannot be changed, and need not be.
pub fn make_read_only(file: &Path) {
    if let Ok(meta) = fs::metadata(file) {
        let _ = fs::set_permissions(file, Permissions::from_mode(meta.permissions().mode() & !0o222));
    }
}

/// Makes `to` another name of a file that is never to change again, or a copy
/// where that cannot be.
///
/// # Errors
/// The file system refuses.
pub fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    let link = || std::fs::hard_link(from, to);
    let linked = match link() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => gone(to).and_then(|()| link()),
        done => done,
    };
    linked.or_else(|_| copy_anew(from, to))
}

/// A copy in a file of its own: what is there already may be another name of
/// a file in the cache.
///
/// # Errors
/// The file system refuses.
pub fn copy_anew(from: &Path, to: &Path) -> io::Result<()> {
    gone(to)?;
    fs::copy(from, to).map(drop)
}

/// Writes a file of its own, without waiting until it is on disk.
///
/// # Errors
/// The file system refuses.
pub fn write_anew(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = || fs::OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match new() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => gone(path).and_then(|()| new())?,
        file => file?,
    };
    io::Write::write_all(&mut file, content)
}

fn gone(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn inputs(pairs: &[(&str, &str)]) -> Inputs {
        Inputs(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect())
    }

    #[test]
    fn fingerprint_depends_on_every_name_and_value() {
        let base = inputs(&[("a", "1"), ("b", "2")]);
        assert_eq!(base.fingerprint(), inputs(&[("b", "2"), ("a", "1")]).fingerprint());
        for other in [
            inputs(&[("a", "1")]),
            inputs(&[("a", "1"), ("b", "3")]),
            inputs(&[("a", "1"), ("c", "2")]),
            inputs(&[("a", "1b"), ("", "2")]),
        ] {
            assert_ne!(base.fingerprint(), other.fingerprint(), "{other:?}");
        }
        assert_eq!(base.fingerprint().len(), 20);
    }

    #[test]
    fn changes_name_what_changed() {
        let before = inputs(&[("toolchain", "gcc 12"), ("config", "A\nB"), ("same", "x")]);
        let now = inputs(&[("toolchain", "gcc 13"), ("config", "A\nC"), ("same", "x"), ("new", "y")]);
        assert_eq!(
            now.changes_since(&before),
            ["config changed", "new changed", "toolchain: gcc 12 -> gcc 13"]
        );
        assert!(now.changes_since(&now).is_empty());
    }

    #[test]
    fn root_prefers_the_most_specific_variable() {
        let env = |names: &'static [&'static str]| {
            default_root(move |n| names.contains(&n).then(|| format!("/{n}").into()))
        };
        assert_eq!(env(&["MATRIX_CACHE", "HOME"]), Some("/MATRIX_CACHE".into()));
        assert_eq!(env(&["XDG_CACHE_HOME", "HOME"]), Some("/XDG_CACHE_HOME/matrix".into()));
        assert_eq!(env(&["HOME"]), Some("/HOME/.cache/matrix".into()));
        assert_eq!(env(&[]), None);
    }

    #[test]
    fn what_is_linked_is_never_written_into() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = |name: &str| fs::read_to_string(path(name)).unwrap();
        fs::write(path("cached"), "cached").unwrap();
        assert!(is_writable(&path("cached")).unwrap());
        make_read_only(&path("cached"));
        assert!(!is_writable(&path("cached")).unwrap());
        for _ in 0..2 {
            link_or_copy(&path("cached"), &path("linked")).unwrap();
            assert_eq!(text("linked"), "cached");
            let (one, other) = ["cached", "linked"].map(|n| fs::metadata(path(n)).unwrap()).into();
            assert_eq!(one.ino(), other.ino());
        }
        fs::write(path("new"), "new").unwrap();
        copy_anew(&path("new"), &path("linked")).unwrap();
        assert_eq!((text("linked"), text("cached")), ("new".into(), "cached".into()));
        link_or_copy(&path("cached"), &path("linked")).unwrap();
        write_anew(&path("linked"), b"newer").unwrap();
        assert_eq!((text("linked"), text("cached")), ("newer".into(), "cached".into()));
    }

    #[test]
    fn what_is_remembered_is_told_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().into())).unwrap();
        assert_eq!(cache.last_inputs("m/c"), None);
        for value in ["1", "1", "2"] {
            cache.remember("m/c", &inputs(&[("a", value)])).unwrap();
            assert_eq!(cache.last_inputs("m/c"), Some(inputs(&[("a", value)])));
        }
        assert_eq!(fs::read_dir(dir.path().join("last")).unwrap().count(), 1, "no draft is left");
    }

    #[tokio::test]
    async fn published_entry_replaces_an_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().into())).unwrap();
        for text in ["one", "two"] {
            let never = CancellationToken::new();
            let _lock = cache.lock("builds", "k", &never).await.unwrap();
            let work = cache.work("builds", "k").unwrap();
            fs::write(work.join("f"), text).unwrap();
            let entry = cache.publish(&work, "builds", "k").unwrap();
            assert_eq!(fs::read_to_string(entry.join("f")).unwrap(), text);
            assert!(!work.exists());
        }
    }

    #[tokio::test]
    async fn second_lock_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().into())).unwrap();
        let never = CancellationToken::new();
        let first = cache.lock("builds", "k", &never).await.unwrap();
        let second = tokio::time::timeout(Duration::from_millis(300), cache.lock("builds", "k", &never));
        assert!(second.await.is_err(), "two held the lock at once");
        let stopped = CancellationToken::new();
        stopped.cancel();
        assert!(cache.lock("builds", "k", &stopped).await.is_err(), "waited although it was stopped");
        drop(first);
        let again = tokio::time::timeout(Duration::from_secs(5), cache.lock("builds", "k", &never));
        again.await.unwrap().unwrap();
    }

    #[test]
    fn more_locks_than_usual_are_allowed() {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, most.min(1024), most).unwrap();
        Cache::allow_many_locks();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (most, most));
    }
}
