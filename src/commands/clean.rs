//! `matrix clean`

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Ending, print};
use crate::cache::Cache;
use crate::cli::{Clean, Room};

pub fn clean(args: &Clean, cache: Option<PathBuf>) -> anyhow::Result<Ending> {
    let cache = Cache::open(cache)?;
    let _locks = if args.dry_run { Vec::new() } else { cache.lock_all()? };
    let all = [Room::Sources, Room::Builds, Room::Guest, Room::Work];
    for room in all.into_iter().filter(|r| args.rooms.is_empty() || args.rooms.contains(r)) {
        let dir = cache.root().join(format!("{room:?}").to_lowercase());
        let size = size(&dir);
        if !args.dry_run && dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let done = if args.dry_run { "would free" } else { "freed" };
        print(&format!("{}: {done} {} MiB\n", dir.display(), size >> 20))?;
    }
    Ok(Ending::Good)
}

/// Bytes below a directory, links not followed.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.filter_map(|e| {
        let meta = e.ok().map(|e| (e.path(), e.metadata()))?;
        let of_file = meta.1.ok()?;
        Some(if of_file.is_dir() { size(&meta.0) } else { of_file.len() })
    });
    sizes.sum()
}
