//! What is in the cache: entries with the room they take and when they were
//! last used.
//!
//! A source tree has 90,000 files, so an entry's size is found out once, when
//! it is published or first looked at, and kept in `sizes/ROOM-KEY`; that
//! file's time is when the entry was last used.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::Cache;

/// A use within this time of the last one that was noted is not noted.
const NOTED_EVERY: Duration = Duration::from_secs(60 * 60);

/// Rooms of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Room {
    /// Object trees of builds that go on, were interrupted or failed
    Work,
    /// Source trees
    Sources,
    /// Built kernels
    Builds,
    /// Guest programs and packages
    Guest,
}

impl Room {
    /// All of them, from what is cheapest to make again to what costs most.
    pub const ALL: [Room; 4] = [Room::Work, Room::Sources, Room::Builds, Room::Guest];

    /// Its folder.
    pub fn name(self) -> &'static str {
        match self {
            Room::Work => "work",
            Room::Sources => "sources",
            Room::Builds => "builds",
            Room::Guest => "guest",
        }
    }
}

/// Something that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub room: Room,
    /// Name of its folder there.
    pub key: String,
    /// Blocks that it takes on the disk, in bytes. A file of several names
    /// counts once, for one of the entries that it is in.
    pub bytes: u64,
    /// Whether files of it have names in other entries too.
    pub shared: bool,
    /// When it was last used, to the hour.
    pub used: SystemTime,
}

/// What `sizes/ROOM-KEY` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Size {
    bytes: u64,
    shared: bool,
}

impl Cache {
    /// Every entry, room by room. Those that were never measured are now.
    ///
    /// # Errors
    /// The cache cannot be read.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let rooms = Room::ALL.iter().map(|room| self.entries_of(*room));
        Ok(rooms.collect::<io::Result<Vec<_>>>()?.concat())
    }

    /// Bytes that are known to be taken, without measuring anything.
    pub(super) fn known_bytes(&self) -> u64 {
        let Ok(notes) = fs::read_dir(self.root().join("sizes")) else { return 0 };
        let sizes = notes.filter_map(|note| read_size(&note.ok()?.path()));
        sizes.map(|size| size.bytes).sum()
    }

    fn entries_of(&self, room: Room) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut unmeasured = false;
        for key in folders(&self.root().join(room.name()))? {
            let (dir, note) = (self.entry(room.name(), &key), self.size_path(room.name(), &key));
            let used = modified(&note).or_else(|| newest(&dir));
            // What is worked on grows, so its size is not kept.
            let size = read_size(&note).filter(|_| room != Room::Work);
            unmeasured |= size.is_none();
            let Some(used) = used else { continue };
            let Size { bytes, shared } = size.unwrap_or(Size { bytes: 0, shared: false });
            found.push(Entry { room, key, bytes, shared, used });
        }
        if unmeasured {
            self.measure_all(&mut found)?;
        }
        Ok(found)
    }

    /// Measures all entries of a room: which of them a file of several names
    /// counts for is decided for all at once.
    fn measure_all(&self, entries: &mut [Entry]) -> io::Result<()> {
        let mut seen = HashSet::new();
        for entry in entries {
            let taken = Taken::by(&self.entry(entry.room.name(), &entry.key))?;
            (entry.bytes, entry.shared) = (taken.beside(&mut seen), taken.is_shared());
            if entry.room != Room::Work {
                let size = Size { bytes: entry.bytes, shared: entry.shared };
                // A cache that cannot be written is measured each time.
                let _ = self.note_size(entry.room.name(), &entry.key, Some(size), entry.used);
            }
        }
        Ok(())
    }

    /// Notes what the new entry `dir` takes. What it shares with others was
    /// there before it and counts for them.
    pub(super) fn measure_new(&self, room: &str, key: &str, dir: &Path) {
        let size = Taken::by(dir).ok().map(|t| Size { bytes: t.alone(), shared: t.is_shared() });
        // On a full disk it stays unknown until somebody asks.
        let _ = self.note_size(room, key, size, SystemTime::now());
    }

    /// Forgets the sizes of a room's entries where one that is gone may have
    /// counted what others still hold.
    pub(super) fn forget_shared_sizes(&self, room: Room) -> io::Result<()> {
        let entries = self.entries_of(room)?;
        for entry in entries.iter().filter(|_| entries.iter().any(|e| e.shared)) {
            self.note_size(room.name(), &entry.key, None, entry.used)?;
        }
        Ok(())
    }

    /// Forgets the sizes of what somebody else has removed.
    pub(super) fn forget_gone(&self) {
        let Ok(notes) = fs::read_dir(self.root().join("sizes")) else { return };
        for note in notes.flatten() {
            let name = note.file_name().to_string_lossy().into_owned();
            let entry = name.split_once('-').map(|(room, key)| self.entry(room, key));
            if entry.is_none_or(|entry| !entry.is_dir()) {
                // At worst an entry that appears right now is measured once more.
                let _ = fs::remove_file(note.path());
            }
        }
    }

    /// Notes that an entry is used now, if it is there.
    pub(super) fn touch(&self, room: &str, key: &str) -> io::Result<()> {
        let note = self.size_path(room, key);
        let age = modified(&note).and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age < NOTED_EVERY) || !self.entry(room, key).is_dir() {
            return Ok(());
        }
        fs::create_dir_all(self.root().join("sizes"))?;
        let file = std::fs::File::options().create(true).append(true).open(&note)?;
        file.set_modified(SystemTime::now())
    }

    fn note_size(&self, room: &str, key: &str, size: Option<Size>, used: SystemTime) -> io::Result<()> {
        fs::create_dir_all(self.root().join("sizes"))?;
        let text = size.map_or_else(String::new, |s| serde_json::json!(s).to_string());
        let path = self.size_path(room, key);
        // Another cache may be hard links to this one.
        let _ = fs::remove_file(&path);
        let mut file = std::fs::File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.set_modified(used)
    }

    pub(super) fn size_path(&self, room: &str, key: &str) -> PathBuf {
        self.root().join("sizes").join(format!("{room}-{key}"))
    }
}

/// None if it was never measured, or the note was cut off.
fn read_size(note: &Path) -> Option<Size> {
    serde_json::from_slice(&std::fs::read(note).ok()?).ok()
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.symlink_metadata().ok()?.modified().ok()
}

/// When a folder or something right in it was last written to.
fn newest(dir: &Path) -> Option<SystemTime> {
    let inside = std::fs::read_dir(dir).ok()?.filter_map(|e| modified(&e.ok()?.path()));
    inside.chain(modified(dir)).max()
}

/// Names of the folders in `dir`, sorted; none if it is not there.
fn folders(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Device and number of a file.
type Inode = (u64, u64);

/// The blocks that a directory takes.
#[derive(Debug, Default)]
struct Taken {
    /// By what has one name.
    single: u64,
    /// Files of several names: how many of these are here, of how many; bytes.
    linked: HashMap<Inode, (u64, u64, u64)>,
}

impl Taken {
    /// Links are not followed; what vanishes meanwhile takes nothing.
    fn by(dir: &Path) -> io::Result<Taken> {
        let mut taken = Taken::default();
        let mut todo = vec![dir.to_owned()];
        while let Some(path) = todo.pop() {
            let meta = match path.symlink_metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                meta => meta?,
            };
            let bytes = meta.blocks() * 512; // whatever the file system's own are: stat(2)
            if meta.is_dir() {
                taken.single += bytes;
                match fs::read_dir(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    entries => {
                        for entry in entries? {
                            todo.push(entry?.path());
                        }
                    }
                }
            } else if meta.nlink() > 1 {
                taken.linked.entry((meta.dev(), meta.ino())).or_insert((0, meta.nlink(), bytes)).0 += 1;
            } else {
                taken.single += bytes;
            }
        }
        Ok(taken)
    }

    fn is_shared(&self) -> bool {
        self.linked.values().any(|(here, all, _)| here < all)
    }

    /// Bytes without what has names elsewhere.
    fn alone(&self) -> u64 {
        let whole = self.linked.values().filter(|(here, all, _)| here == all);
        self.single + whole.map(|(.., bytes)| bytes).sum::<u64>()
    }

    /// Bytes without what was `seen` before.
    fn beside(&self, seen: &mut HashSet<Inode>) -> u64 {
        let new = self.linked.iter().filter(|(inode, _)| seen.insert(**inode));
        self.single + new.map(|(_, (.., bytes))| bytes).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().into())).unwrap();
        (dir, cache)
    }

    fn made(cache: &Cache, key: &str, fill: impl FnOnce(&Path)) {
        let work = cache.work("sources", key).unwrap();
        fill(&work);
        cache.publish(&work, "sources", key).unwrap();
    }

    fn sizes(cache: &Cache) -> Vec<(String, u64, bool)> {
        let entries = cache.entries().unwrap();
        // A folder takes a block on some file systems and none on others.
        let kib = |e: &Entry| (e.bytes >> 10) / 64 * 64;
        entries.iter().map(|e| (e.key.clone(), kib(e), e.shared)).collect()
    }

    #[test]
    fn linked_files_count_once_and_holes_not_at_all() {
        let (_dir, cache) = cache();
        made(&cache, "base", |dir| {
            fs::write(dir.join("a"), vec![1; 256 << 10]).unwrap();
            fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
            fs::File::create(dir.join("hole")).unwrap().set_len(1 << 30).unwrap();
        });
        assert_eq!(sizes(&cache), [("base".to_owned(), 256, false)]);
        let base = cache.entry("sources", "base");
        for key in ["next", "third"] {
            made(&cache, key, |dir| {
                fs::hard_link(base.join("a"), dir.join("a")).unwrap();
                fs::write(dir.join("own"), vec![1; 64 << 10]).unwrap();
            });
        }
        let expected = |base| {
            let others = [("next".to_owned(), 64, true), ("third".to_owned(), 64, true)];
            [vec![("base".to_owned(), 256, base)], others.to_vec()].concat()
        };
        assert_eq!(sizes(&cache), expected(false));
        // All measured again, together.
        fs::remove_dir_all(cache.root().join("sizes")).unwrap();
        assert_eq!(sizes(&cache), expected(true));
        // What the first one counted stays on the disk when that one goes.
        fs::remove_dir_all(&base).unwrap();
        cache.forget_shared_sizes(Room::Sources).unwrap();
        assert_eq!(sizes(&cache), [("next".to_owned(), 320, true), ("third".to_owned(), 64, true)]);
    }

    #[test]
    fn sizes_are_read_not_measured_and_a_cut_off_one_is_measured_again() {
        let (_dir, cache) = cache();
        made(&cache, "k", |dir| fs::write(dir.join("a"), vec![1; 64 << 10]).unwrap());
        let note = cache.size_path("sources", "k");
        let text = fs::read_to_string(&note).unwrap();
        let used = cache.entries().unwrap()[0].used;
        fs::write(&note, r#"{"bytes":65536000,"shared":false}"#).unwrap();
        assert_eq!(sizes(&cache)[0].1, 64000);
        fs::write(&note, &text[..text.len() / 2]).unwrap();
        std::fs::File::options().append(true).open(&note).unwrap().set_modified(used).unwrap();
        assert_eq!(sizes(&cache)[0].1, 64);
        assert_eq!(cache.entries().unwrap()[0].used, used);
    }

    #[test]
    fn use_is_noted_once_an_hour_and_of_entries_alone() {
        let (_dir, cache) = cache();
        made(&cache, "k", |_| {});
        let note = cache.size_path("sources", "k");
        let ago = |minutes: u64| SystemTime::now() - Duration::from_secs(60 * minutes);
        for (minutes, noted) in [(50, false), (70, true)] {
            let before = ago(minutes);
            std::fs::File::options().append(true).open(&note).unwrap().set_modified(before).unwrap();
            cache.touch("sources", "k").unwrap();
            assert_eq!(modified(&note).unwrap() > before, noted, "{minutes}");
        }
        cache.touch("sources", "none").unwrap();
        assert!(!cache.size_path("sources", "none").exists());
        assert_eq!(cache.entries().unwrap().len(), 1);
    }

    /// A run that finds everything must not wait for this.
    #[test]
    fn hundreds_of_entries_are_touched_in_no_time() {
        let (_dir, cache) = cache();
        for n in 0..500 {
            fs::create_dir_all(cache.entry("builds", &n.to_string())).unwrap();
        }
        cache.set_limit(Some(1 << 40)).unwrap();
        for what in ["first", "second"] {
            let run = cache.for_run().unwrap();
            let began = std::time::Instant::now();
            (0..500).for_each(|n| run.used("builds", &n.to_string()).unwrap());
            let touched = began.elapsed();
            let pruned = run.end_run().unwrap();
            println!("500 entries, {what} run: {touched:?}, with its end {:?}", began.elapsed());
            assert_eq!((pruned.removed.len(), pruned.busy), (0, 0));
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        }
    }
}
