//! What goes when the cache takes more than it may, and what must not.
//!
//! A run marks what it uses in a file of its own, `locks/run-*`, that it holds
//! locked as long as it lives; whoever removes entries reads those first. Both
//! happen under a lock on `locks/gate`: shared for marking, exclusive for
//! removing. So a run that has marked an entry and then finds it keeps it.
//!
//! An entry is renamed before it is removed: a half removed one is none.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use fs_err as fs;
use fs4::fs_std::FileExt;

use super::space::{Entry, Room};
use super::{Cache, Lock};

const GATE: &str = "gate";
const RUN: &str = "run-";

/// What a run uses.
#[derive(Debug)]
pub(super) struct Uses {
    /// The run's file, locked, and the lines in it; gone when the run ends.
    marks: Mutex<(tempfile::NamedTempFile, HashSet<String>)>,
    gate: File,
    /// Most bytes that the cache may take.
    limit: Option<u64>,
    /// What went while the run was under way.
    removed: Mutex<Vec<Entry>>,
}

/// What is to go.
#[derive(Debug, Clone, Default)]
pub struct Criteria {
    /// Looks at these rooms alone; at all of them if there are none.
    pub rooms: Vec<Room>,
    /// Whatever was not used for so long.
    pub older_than: Option<Duration>,
    /// As much as is needed for the rest to take no more bytes than this.
    pub limit: Option<u64>,
}

/// What went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The entries, in the order in which they went.
    pub removed: Vec<Entry>,
    /// Bytes that the rest takes.
    pub left: u64,
    /// Entries that should have gone and are in use.
    pub busy: usize,
}

impl Criteria {
    /// Everything in these rooms.
    pub fn all(rooms: Vec<Room>) -> Criteria {
        Criteria { rooms, older_than: Some(Duration::ZERO), limit: None }
    }

    /// As much as a limit says.
    pub fn limit(bytes: u64) -> Criteria {
        Criteria { limit: Some(bytes), ..Criteria::default() }
    }

    fn looks_at(&self, entry: &Entry) -> bool {
        self.rooms.is_empty() || self.rooms.contains(&entry.room)
    }
}

/// What goes first. Object trees spare a build some of its time and hold no
/// result, so they go before everything else. A source tree takes as much as
/// a hundred small kernels, each of which took longer to build than the tree to
/// fetch; but kernels that nobody wants any more are not to push out the tree
/// of yesterday. So its idle time counts eightfold.
fn order(entry: &Entry, now: SystemTime) -> (u8, Reverse<u64>, Room) {
    let (rank, weight) = match entry.room {
        Room::Work => (0, 1),
        Room::Sources => (1, 8),
        Room::Builds | Room::Guest => (1, 1),
    };
    (rank, Reverse(idle(entry, now).as_secs() * weight), entry.room)
}

fn idle(entry: &Entry, now: SystemTime) -> Duration {
    now.duration_since(entry.used).unwrap_or_default()
}

impl Cache {
    /// The cache as a run has it: nobody removes what it uses while this lives.
    ///
    /// # Errors
    /// The cache cannot be written, or its limit is none.
    pub fn for_run(&self) -> anyhow::Result<Cache> {
        let limit = self.limit()?.bytes;
        let dir = self.root.join("locks");
        fs::create_dir_all(&dir)?;
        let gate = File::options().create(true).append(true).open(dir.join(GATE))?;
        FileExt::lock_shared(&gate)?;
        let file = tempfile::Builder::new().prefix(RUN).tempfile_in(&dir)?;
        FileExt::lock_exclusive(file.as_file())?;
        FileExt::unlock(&gate)?;
        let marks = Mutex::new((file, HashSet::new()));
        let uses = Uses { marks, gate, limit, removed: Mutex::default() };
        Ok(Cache { uses: Some(uses.into()), ..self.clone() })
    }

    /// Marks an entry as used by this run, to be called before looking whether
    /// it is there. Outside of a run it does nothing.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub fn used(&self, room: &str, key: &str) -> io::Result<()> {
        if self.uses.is_some() {
            self.mark(room, key)?;
            self.touch(room, key)?;
        }
        Ok(())
    }

    pub(super) fn mark(&self, room: &str, key: &str) -> io::Result<()> {
        let Some(uses) = &self.uses else { return Ok(()) };
        let mut marks = uses.marks.lock().map_err(|_| io::Error::other("a thread died"))?;
        let name = format!("{room}-{key}");
        if !marks.1.contains(&name) {
            FileExt::lock_shared(&uses.gate)?;
            let done = marks.0.as_file_mut().write_all(format!("{name}\n").as_bytes());
            FileExt::unlock(&uses.gate)?;
            done?;
            marks.1.insert(name);
        }
        Ok(())
    }

    /// Ends a run's use of the cache, and keeps its limit.
    ///
    /// # Errors
    /// Something could not be removed.
    pub fn end_run(self) -> io::Result<Pruned> {
        let Cache { root, uses: Some(uses) } = self else { return Ok(Pruned::default()) };
        let cache = Cache { root, uses: None };
        let earlier = uses.removed.lock().map(|mut r| std::mem::take(&mut *r)).unwrap_or_default();
        let limit = uses.limit;
        drop(uses);
        let mut pruned = match limit {
            Some(limit) => cache.prune(&Criteria::limit(limit), false)?,
            None => Pruned::default(),
        };
        pruned.removed.splice(0..0, earlier);
        Ok(pruned)
    }

    /// Makes room for what a run goes on to keep. Meanwhile guests are listened
    /// to: removing source trees takes many seconds. What goes wrong shows when
    /// the run ends.
    pub async fn keep_limit(&self) {
        let Some(uses) = &self.uses else { return };
        let Some(limit) = uses.limit.filter(|limit| self.known_bytes() > *limit) else { return };
        let cache = Cache { root: self.root.clone(), uses: None };
        let pruned = tokio::task::spawn_blocking(move || cache.prune(&Criteria::limit(limit), false)).await;
        if let (Ok(Ok(pruned)), Ok(mut removed)) = (pruned, uses.removed.lock()) {
            removed.extend(pruned.removed);
        }
    }

    /// Removes what meets the criteria; on a dry run, says what would go.
    ///
    /// # Errors
    /// The cache cannot be read, or not be written.
    pub fn prune(&self, criteria: &Criteria, dry_run: bool) -> io::Result<Pruned> {
        let mut pruned = Pruned::default();
        loop {
            let mut entries = self.entries()?;
            entries.retain(|entry| criteria.looks_at(entry));
            let (gone, left, busy) = self.evict(entries, criteria, dry_run)?;
            (pruned.left, pruned.busy) = (left, busy);
            // An entry that shared files with others freed less than it took.
            let again = !gone.is_empty() && !dry_run;
            pruned.removed.extend(gone);
            if !again {
                return Ok(pruned);
            }
        }
    }

    /// Removes what has to go of `entries`: these, the bytes that are left, and
    /// how many are in use.
    fn evict(
        &self,
        mut entries: Vec<Entry>,
        criteria: &Criteria,
        dry_run: bool,
    ) -> io::Result<(Vec<Entry>, u64, usize)> {
        let now = SystemTime::now();
        let mut left = entries.iter().map(|e| e.bytes).sum::<u64>();
        entries.sort_by_key(|entry| order(entry, now));
        let gate = self.close_gate()?;
        let used = self.marks(None)?;
        let (mut gone, mut busy) = (Vec::new(), 0);
        for entry in entries {
            let old = criteria.older_than.is_some_and(|age| idle(&entry, now) >= age);
            if !old && criteria.limit.is_none_or(|limit| left <= limit) {
                continue;
            }
            match self.lock_if_idle(&entry, &used)? {
                None => busy += 1,
                Some(_lock) => {
                    if !dry_run {
                        self.set_aside(entry.room.name(), &entry.key)?;
                    }
                    left = left.saturating_sub(entry.bytes);
                    gone.push(entry);
                }
            }
        }
        drop(gate);
        if !dry_run {
            self.remove_set_aside()?;
            self.forget_gone();
            let rooms: HashSet<Room> = gone.iter().map(|e| e.room).collect();
            rooms.into_iter().try_for_each(|room| self.forget_shared_sizes(room))?;
        }
        Ok((gone, left, busy))
    }

    /// Whether a run, or whoever makes it, has an entry.
    ///
    /// # Errors
    /// The locks cannot be read.
    pub fn in_use(&self, entries: &[Entry]) -> io::Result<Vec<bool>> {
        let _gate = self.close_gate()?;
        let used = self.marks(None)?;
        entries.iter().map(|entry| Ok(self.lock_if_idle(entry, &used)?.is_none())).collect()
    }

    /// A lock that keeps others from making an entry; none if somebody has it.
    fn lock_if_idle(&self, entry: &Entry, used: &HashSet<String>) -> io::Result<Option<Option<Lock>>> {
        let name = match entry.room {
            Room::Work => entry.key.clone(),
            room => format!("{}-{}", room.name(), entry.key),
        };
        if used.contains(&name) {
            return Ok(None);
        }
        match File::open(self.root.join("locks").join(name)) {
            Ok(file) if FileExt::try_lock_exclusive(&file)? => Ok(Some(Some(Lock { _file: file }))),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }

    /// Closes the gate: nobody marks an entry until this is dropped. None where
    /// there can be no run, as the cache cannot be written.
    fn close_gate(&self) -> io::Result<Option<File>> {
        let path = self.root.join("locks").join(GATE);
        if self.root.is_dir() {
            let _ = fs::create_dir_all(self.root.join("locks"));
        }
        let file = File::options().create(true).append(true).open(&path).or_else(|_| File::open(&path));
        match file {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            file => {
                let file = file?;
                FileExt::lock_exclusive(&file)?;
                Ok(Some(file))
            }
        }
    }

    /// What living runs have marked, but for the one with the file `own`.
    fn marks(&self, own: Option<&Path>) -> io::Result<HashSet<String>> {
        let mut used = HashSet::new();
        for entry in read_dir(&self.root.join("locks"))? {
            let path = entry?.path();
            let of_run = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(RUN));
            if !of_run || own == Some(path.as_path()) {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue };
            if FileExt::try_lock_exclusive(&file)? {
                // Its run was killed.
                let _ = fs::remove_file(&path);
            } else {
                used.extend(fs::read_to_string(&path)?.lines().map(str::to_owned));
            }
        }
        Ok(used)
    }

    /// Takes an entry out of the way of its successor.
    ///
    /// # Errors
    /// Another run uses it, or the file system refuses.
    pub(super) fn replace(&self, room: &str, key: &str) -> io::Result<()> {
        let own = self.uses.as_ref().and_then(|u| Some(u.marks.lock().ok()?.0.path().to_owned()));
        let _gate = self.close_gate()?;
        if self.marks(own.as_deref())?.contains(&format!("{room}-{key}")) {
            let entry = self.entry(room, key);
            let text = format!("{}: in use by another run, so it is not replaced", entry.display());
            return Err(io::Error::new(ErrorKind::ResourceBusy, text));
        }
        self.set_aside(room, key)
    }

    /// Renames an entry to what is no entry. That needs no room on the disk.
    fn set_aside(&self, room: &str, key: &str) -> io::Result<()> {
        let (entry, note) = (self.entry(room, key), self.size_path(room, key));
        let moment = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let aside = entry.with_file_name(format!(".{key}-{}-{moment}", std::process::id()));
        for gone in [fs::rename(&entry, aside), fs::remove_file(note)] {
            match gone {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                gone => gone?,
            }
        }
        Ok(())
    }

    /// Removes what was set aside, also by processes that were killed.
    pub(super) fn remove_set_aside(&self) -> io::Result<()> {
        for room in Room::ALL {
            for entry in read_dir(&self.root.join(room.name()))? {
                let entry = entry?;
                if entry.file_name().as_encoded_bytes().starts_with(b".") {
                    match fs::remove_dir_all(entry.path()) {
                        // Another process does the same.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        done => done?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is in a folder; nothing if it is not there.
fn read_dir(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>> + use<>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        entries => Ok(Some(entries?).into_iter().flatten()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_util::sync::CancellationToken;

    const MIB: u64 = 1 << 20;

    /// A cache with an entry of a mebibyte for each of `idle`: room, key, hours.
    fn cache(idle: &[(Room, &str, u64)]) -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().into())).unwrap();
        for (room, key, hours) in idle {
            let entry = cache.entry(room.name(), key);
            fs::create_dir_all(&entry).unwrap();
            fs::write(entry.join("f"), vec![1; MIB as usize]).unwrap();
            let note = cache.size_path(room.name(), key);
            fs::create_dir_all(note.parent().unwrap()).unwrap();
            fs::write(&note, format!(r#"{{"bytes":{MIB},"shared":false}}"#)).unwrap();
            let used = SystemTime::now() - Duration::from_secs(60 * 60 * hours);
            let times = std::fs::FileTimes::new().set_modified(used).set_accessed(used);
            for path in [note, entry.join("f"), entry] {
                File::open(path).unwrap().set_times(times).unwrap();
            }
        }
        (dir, cache)
    }

    /// Files of runs.
    fn runs(cache: &Cache) -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(cache.root().join("locks")).unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(RUN)).collect()
    }

    fn keys(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|e| e.key.as_str()).collect()
    }

    fn there(cache: &Cache) -> Vec<String> {
        cache.entries().unwrap().into_iter().map(|e| e.key).collect()
    }

    #[test]
    fn objects_go_before_sources_and_sources_before_kernels_of_their_age() {
        let all = [
            (Room::Guest, "guest", 99),
            (Room::Builds, "kernel of yesterday", 24),
            (Room::Builds, "kernel of last week", 200),
            (Room::Sources, "source of yesterday", 24),
            (Room::Sources, "source of last week", 200),
            (Room::Work, "builds-old", 5),
            (Room::Work, "builds-new", 1),
        ];
        let (_dir, cache) = cache(&all);
        let pruned = cache.prune(&Criteria::limit(0), true).unwrap();
        let order = [
            "builds-old",
            "builds-new",
            "source of last week",
            "kernel of last week",
            "source of yesterday",
            "guest",
            "kernel of yesterday",
        ];
        assert_eq!(keys(&pruned.removed), order);
        assert_eq!(there(&cache).len(), all.len(), "a dry run removed something");
    }

    #[test]
    fn no_more_goes_than_has_to() {
        let (_dir, cache) = cache(&[(Room::Builds, "a", 3), (Room::Builds, "b", 2), (Room::Builds, "c", 1)]);
        assert_eq!(cache.prune(&Criteria::limit(3 * MIB), false).unwrap().removed, []);
        let pruned = cache.prune(&Criteria::limit(2 * MIB), false).unwrap();
        assert_eq!((keys(&pruned.removed), pruned.left), (vec!["a"], 2 * MIB));
        let old = Criteria { older_than: Some(Duration::from_secs(90 * 60)), ..Criteria::default() };
        assert_eq!(keys(&cache.prune(&old, false).unwrap().removed), ["b"]);
        assert_eq!(there(&cache), ["c"]);
        let other = cache.prune(&Criteria::all(vec![Room::Sources]), false).unwrap();
        assert_eq!((other.removed.len(), there(&cache).len()), (0, 1));
        cache.prune(&Criteria::all(vec![]), false).unwrap();
        assert_eq!((there(&cache).len(), fs::read_dir(cache.root().join("builds")).unwrap().count()), (0, 0));
    }

    #[tokio::test]
    async fn what_is_used_or_worked_on_stays() {
        let (_dir, cache) = cache(&[
            (Room::Builds, "used", 9),
            (Room::Builds, "made", 9),
            (Room::Work, "builds-w", 9),
            (Room::Work, "builds-of this run", 9),
            (Room::Builds, "free", 1),
        ]);
        let run = cache.for_run().unwrap();
        run.used("builds", "used").unwrap();
        // Later builds of a run may start from the objects of one that is done.
        run.used("builds", "of this run").unwrap();
        let never = CancellationToken::new();
        let locks = [cache.lock("builds", "made", &never).await, cache.lock("builds", "w", &never).await];
        let pruned = cache.prune(&Criteria::limit(0), false).unwrap();
        assert_eq!((keys(&pruned.removed), pruned.busy), (vec!["free"], 4));
        assert_eq!(cache.in_use(&cache.entries().unwrap()).unwrap(), [true; 4]);
        drop(locks);
        assert_eq!(cache.prune(&Criteria::limit(0), false).unwrap().removed.len(), 2);
        assert_eq!(there(&cache), ["builds-of this run", "used"]);
        drop(run);
        assert!(runs(&cache).is_empty());
        assert_eq!(cache.prune(&Criteria::limit(0), false).unwrap().removed.len(), 2);
    }

    #[test]
    fn run_that_was_killed_uses_nothing() {
        let (_dir, cache) = cache(&[(Room::Builds, "k", 1)]);
        let run = cache.for_run().unwrap();
        run.used("builds", "k").unwrap();
        let text = fs::read(&runs(&cache)[0]).unwrap();
        drop(run);
        // What a killed process leaves: the file, and no lock on it.
        let left = cache.root().join("locks/run-left");
        fs::write(&left, text).unwrap();
        assert_eq!(keys(&cache.prune(&Criteria::limit(0), false).unwrap().removed), ["k"]);
        assert!(!left.exists());
    }

    #[test]
    fn entry_that_another_run_uses_is_not_replaced() {
        let (_dir, cache) = cache(&[(Room::Guest, "k", 1)]);
        let (one, other) = (cache.for_run().unwrap(), cache.for_run().unwrap());
        let publish = || {
            let work = one.work("guest", "k").unwrap();
            fs::write(work.join("new"), "").unwrap();
            one.publish(&work, "guest", "k")
        };
        one.used("guest", "k").unwrap();
        other.used("guest", "k").unwrap();
        let error = publish().unwrap_err().to_string();
        assert!(error.ends_with("in use by another run, so it is not replaced"), "{error}");
        assert!(cache.entry("guest", "k").join("f").exists());
        drop(other);
        assert!(publish().unwrap().join("new").exists());
    }

    #[tokio::test]
    async fn limit_holds_when_something_is_published_and_when_the_run_ends() {
        let (_dir, cache) = cache(&[(Room::Builds, "old", 9), (Room::Builds, "mine", 8)]);
        cache.set_limit(Some(2 * MIB + MIB / 2)).unwrap();
        let run = cache.for_run().unwrap();
        run.used("builds", "mine").unwrap();
        for key in ["one", "two"] {
            let work = run.work("builds", key).unwrap();
            fs::write(work.join("f"), vec![1; MIB as usize]).unwrap();
            run.publish(&work, "builds", key).unwrap();
            run.keep_limit().await;
        }
        // All that is left is in use, so it stays although it is too much.
        assert_eq!(there(&cache), ["mine", "one", "two"]);
        let pruned = run.end_run().unwrap();
        assert_eq!((pruned.removed.len(), keys(&pruned.removed)[0]), (2, "old"));
        assert!(pruned.left <= 2 * MIB + MIB / 2);
        assert_eq!(there(&cache).len(), 2);
    }

    #[test]
    fn two_at_once_remove_everything_once() {
        let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let idle: Vec<_> = many.iter().map(|n| (Room::Builds, n.as_str(), 1)).collect();
        let (_dir, cache) = cache(&idle);
        let removed: Vec<String> = std::thread::scope(|scope| {
            let both =
                [0, 1].map(|_| scope.spawn(|| cache.prune(&Criteria::all(vec![]), false).unwrap().removed));
            both.into_iter().flat_map(|t| t.join().unwrap()).map(|e| e.key).collect()
        });
        assert!(many.iter().all(|key| removed.contains(key)));
        assert!(there(&cache).is_empty());
        assert_eq!(fs::read_dir(cache.root().join("builds")).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_set_aside_is_removed() {
        let (_dir, cache) = cache(&[(Room::Sources, "k", 1)]);
        cache.set_aside("sources", "k").unwrap();
        assert!(there(&cache).is_empty());
        cache.prune(&Criteria::limit(MIB), false).unwrap();
        assert_eq!(fs::read_dir(cache.root().join("sources")).unwrap().count(), 0);
    }
}
