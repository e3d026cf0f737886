//! `matrix cache`

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Ending, local, print};
use crate::boot::{compiled, guest};
use crate::cache::Cache;
use crate::cache::evict::{Criteria, Pruned};
use crate::cache::limit::{Limit, Most, Origin, VARIABLE, shown};
use crate::cache::space::{Entry, Room};
use crate::cli::{CacheCommand, CacheFormat, Caching, Clear};
use crate::kernel::{BuildInfo, SourceTree, source};

/// Most characters of what tells a kernel from others.
const SYMBOLS: usize = 100;

pub fn cache(args: Caching, root: Option<PathBuf>) -> anyhow::Result<Ending> {
    let cache = Cache::open(root)?;
    let (rooms, format, listed) = match args.command {
        Some(CacheCommand::Clear(args)) => return clear_in(&cache, args),
        Some(CacheCommand::Limit { size }) => return limit(&cache, size),
        Some(CacheCommand::Prune { limit, older_than, dry_run }) => {
            // Somebody who only wants old ones away has not asked for the limit.
            let bytes = match (limit, older_than) {
                (Some(Most(limit)), _) => limit,
                (None, Some(_)) => None,
                (None, None) => cache.limit()?.bytes,
            };
            return prune(&cache, &Criteria { limit: bytes, older_than, rooms: Vec::new() }, dry_run);
        }
        Some(CacheCommand::List { rooms, format }) => (rooms, format, true),
        None => (Vec::new(), args.format, false),
    };
    let mut entries = cache.entries()?;
    entries.retain(|entry| rooms.is_empty() || rooms.contains(&entry.room));
    // Last used first, within each room.
    entries.sort_by_key(|entry| (entry.room, std::cmp::Reverse(entry.used)));
    print(&match (format, listed) {
        (CacheFormat::Json, _) => as_json(&cache, &entries)?,
        (CacheFormat::Text, true) => list(&cache, &entries)?,
        (CacheFormat::Text, false) => summary(&cache, &entries, cache.limit()?),
    })?;
    Ok(Ending::Good)
}

/// `matrix clean`
pub fn clear(args: Clear, root: Option<PathBuf>) -> anyhow::Result<Ending> {
    clear_in(&Cache::open(root)?, args)
}

fn clear_in(cache: &Cache, args: Clear) -> anyhow::Result<Ending> {
    prune(cache, &Criteria::all(args.rooms), args.dry_run)
}

fn prune(cache: &Cache, criteria: &Criteria, dry_run: bool) -> anyhow::Result<Ending> {
    let pruned = cache.prune(criteria, dry_run)?;
    print(&format!("{}: {}\n", cache.root().display(), removed(&pruned, dry_run)))?;
    Ok(if pruned.busy == 0 { Ending::Good } else { Ending::Failed })
}

/// What went, in a line.
pub fn removed(pruned: &Pruned, dry_run: bool) -> String {
    let mut rooms: BTreeMap<Room, (usize, u64)> = BTreeMap::new();
    for entry in &pruned.removed {
        let (count, bytes) = rooms.entry(entry.room).or_default();
        (*count, *bytes) = (*count + 1, *bytes + entry.bytes);
    }
    let parts = rooms.iter().map(|(room, (n, bytes))| format!("{n} of {} ({})", room.name(), shown(*bytes)));
    let parts: Vec<String> = parts.collect();
    let what = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
    let (done, left) = if dry_run { ("would remove", "would be left") } else { ("removed", "left") };
    let busy = match pruned.busy {
        0 => String::new(),
        n => format!("; {n} that should go are in use by a run"),
    };
    format!("{done} {what}, {} {left}{busy}", shown(pruned.left))
}

fn limit(cache: &Cache, size: Option<Most>) -> anyhow::Result<Ending> {
    if let Some(Most(bytes)) = size {
        cache.set_limit(bytes)?;
    }
    print(&format!("{}\n", limit_text(cache.limit()?)))?;
    Ok(Ending::Good)
}

fn limit_text(Limit { bytes, from }: Limit) -> String {
    let size = bytes.map_or_else(|| "no limit".to_owned(), |bytes| format!("limit {}", shown(bytes)));
    let from = match from {
        Origin::Environment => VARIABLE,
        Origin::Folder => "set by `matrix cache limit`",
        Origin::Default => "by default; `matrix cache limit` sets another",
    };
    format!("{size} ({from})")
}

fn total(entries: &[&Entry]) -> (u64, Option<SystemTime>) {
    (entries.iter().map(|e| e.bytes).sum(), entries.iter().map(|e| e.used).max())
}

fn summary(cache: &Cache, entries: &[Entry], limit: Limit) -> String {
    let (bytes, _) = total(&entries.iter().collect::<Vec<_>>());
    let root = cache.root().display();
    let mut text = format!("{root}: {}, {}\n\n", shown(bytes), limit_text(limit));
    text.push_str(&format!("{:8} {:>7} {:>9}  {:16}\n", "room", "entries", "size", "last used"));
    for room in Room::ALL {
        let here: Vec<_> = entries.iter().filter(|e| e.room == room).collect();
        let (bytes, used) = total(&here);
        let used = used.map(|used| local(moment(used))).unwrap_or_default();
        let row = format!("{:8} {:>7} {:>9}  {used:16}", room.name(), here.len(), shown(bytes));
        text.push_str(&format!("{}\n", row.trim_end()));
    }
    text.push_str("\n`matrix cache list` shows what is in them\n");
    text
}

fn list(cache: &Cache, entries: &[Entry]) -> anyhow::Result<String> {
    let what = described(cache, entries);
    let mut text = String::new();
    for ((entry, what), busy) in entries.iter().zip(what).zip(cache.in_use(entries)?) {
        let name = format!("{}/{}", entry.room.name(), entry.key);
        let (used, size) = (local(moment(entry.used)), shown(entry.bytes));
        let busy = if busy { "  (in use)" } else { "" };
        text.push_str(&format!("{name:29} {size:>9}  {used}  {what}{busy}\n"));
    }
    Ok(text)
}

fn as_json(cache: &Cache, entries: &[Entry]) -> anyhow::Result<String> {
    let what = described(cache, entries);
    let busy = cache.in_use(entries)?;
    let listed = entries.iter().zip(what).zip(busy).map(|((entry, what), in_use)| {
        json!({
            "room": entry.room, "key": entry.key, "bytes": entry.bytes, "used": moment(entry.used),
            "in_use": in_use, "what": what,
        })
    });
    let rooms = Room::ALL.into_iter().map(|room| {
        let here: Vec<_> = entries.iter().filter(|e| e.room == room).collect();
        let (bytes, used) = total(&here);
        json!({ "room": room, "entries": here.len(), "bytes": bytes, "used": used.map(moment) })
    });
    let all = json!({
        "folder": cache.root(),
        "bytes": entries.iter().map(|e| e.bytes).sum::<u64>(),
        "limit": cache.limit()?,
        "rooms": rooms.collect::<Vec<_>>(),
        "entries": listed.collect::<Vec<_>>(),
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&all)?))
}

fn moment(time: SystemTime) -> jiff::Timestamp {
    jiff::Timestamp::try_from(time).unwrap_or_default()
}

// --- what entries are ---

/// What each entry is, as far as it says so itself.
fn described(cache: &Cache, entries: &[Entry]) -> Vec<String> {
    let infos: Vec<Option<BuildInfo>> = entries.iter().map(|e| build_info(cache, e)).collect();
    let kernels: Vec<&BuildInfo> = infos.iter().flatten().collect();
    let told = |entry: &Entry, info: &Option<BuildInfo>| {
        let dir = cache.entry(entry.room.name(), &entry.key);
        let text = match (info, entry.room) {
            (Some(info), _) => kernel(info, &kernels),
            (None, Room::Sources) => read::<SourceTree>(&dir, source::RECORD).map(|tree| tree.describe),
            (None, Room::Guest) => guest_text(&dir),
            (None, Room::Work) => Some(work(cache, &entry.key)),
            (None, Room::Builds) => None,
        };
        // Names in it are of matrix files and patches.
        text.unwrap_or_else(|| "unknown".to_owned()).replace(char::is_control, "?")
    };
    entries.iter().zip(&infos).map(|(entry, info)| told(entry, info)).collect()
}

fn read<T: DeserializeOwned>(dir: &Path, file: &str) -> Option<T> {
    serde_json::from_slice(&fs::read(dir.join(file)).ok()?).ok()
}

fn build_info(cache: &Cache, entry: &Entry) -> Option<BuildInfo> {
    (entry.room == Room::Builds).then(|| read(&cache.entry("builds", &entry.key), "build.json"))?
}

fn guest_text(dir: &Path) -> Option<String> {
    let packages = || Some(format!("packages {}", guest::versions(dir)?.join(" ")));
    let program = || Some(format!("program {}", read::<compiled::Made>(dir, compiled::MADE)?.what));
    packages().or_else(program)
}

/// Whether what was worked for is there: then objects were to be kept.
fn work(cache: &Cache, key: &str) -> String {
    match key.split_once('-') {
        Some((room, key)) if cache.entry(room, key).is_dir() => format!("objects of {room}/{key}"),
        Some((room, _)) => format!("unfinished, for {room}"),
        None => "unfinished".to_owned(),
    }
}

/// Architecture, release, and the symbols that set a kernel apart from others
/// of its architecture: `riscv 6.12.117 NR_CPUS=512`.
fn kernel(info: &BuildInfo, all: &[&BuildInfo]) -> Option<String> {
    let arch = info.inputs.0.get("arch")?;
    let own = symbols(info);
    let like: Vec<_> =
        all.iter().filter(|i| i.inputs.0.get("arch") == Some(arch)).map(|i| symbols(i)).collect();
    let distinct = |symbol: &&&str| like.iter().any(|other| !other.contains(**symbol));
    let mut telling: Vec<&str> = own.iter().filter(distinct).copied().collect();
    // What matrices vary most comes first.
    telling.sort_by_key(|symbol| !symbol.starts_with("NR_CPUS="));
    let mut text = format!("{arch} {}", info.release);
    for symbol in telling {
        if text.len() + symbol.len() > SYMBOLS {
            text.push_str(" ...");
            break;
        }
        text.push_str(&format!(" {symbol}"));
    }
    Some(text)
}

/// What was asked for: `NR_CPUS=512`.
fn symbols(info: &BuildInfo) -> BTreeSet<&str> {
    let text = info.inputs.0.get("configuration").map_or("", String::as_str);
    text.lines().filter_map(|line| line.strip_prefix("CONFIG_")).collect()
}
