//! The guest's initial RAM file system: a cpio archive in `newc` format
//! (Linux: Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeMap;
use std::io::{self, Write};

use cpio::newc::Builder;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Directories that the guest agent mounts on or programs expect.
const DIRECTORIES: [&str; 5] = ["dev", "proc", "sys", "tmp", "root"];

/// Packs `files` (path without a leading slash, content) behind the
/// directories they need. The same files give the same bytes.
///
/// # Errors
/// A file is too large for the format, or `out` cannot be written.
pub fn write(files: &BTreeMap<String, Vec<u8>>, out: &mut dyn Write) -> io::Result<()> {
    let mut directories: Vec<&str> = DIRECTORIES.to_vec();
    for path in files.keys() {
        directories.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    directories.sort_unstable();
    directories.dedup();
    let mut inode = 0;
    let mut entry = |name: &str, mode: u32| {
        inode += 1;
        Builder::new(name).ino(inode).mode(mode).nlink(1)
    };
    for directory in directories {
        entry(directory, DIRECTORY).write(&mut *out, 0).finish()?;
    }
    // The kernel opens it for init before anything is mounted.
    entry("dev/console", CHARACTER_DEVICE).rdev_major(5).rdev_minor(1).write(&mut *out, 0).finish()?;
    for (path, content) in files {
        let size =
            u32::try_from(content.len()).map_err(|_| io::Error::other(format!("{path} is over 4 GiB")))?;
        let mut file = entry(path, PROGRAM).write(&mut *out, size);
        file.write_all(content)?;
        file.finish()?;
    }
    cpio::newc::trailer(&mut *out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn archive_holds_files_behind_their_directories() {
        let files = BTreeMap::from([
            ("init".to_owned(), b"agent".to_vec()),
            ("usr/lib/x/libc.so".to_owned(), vec![7; 3]),
        ]);
        let mut archive = Vec::new();
        write(&files, &mut archive).unwrap();
        let mut again = Vec::new();
        write(&files, &mut again).unwrap();
        assert_eq!(archive, again);
        let mut names = Vec::new();
        let mut rest = archive.as_slice();
        loop {
            let mut reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push((reader.entry().name().to_owned(), reader.entry().mode()));
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            if let Some(want) = files.get(&names.last().unwrap().0) {
                assert_eq!(content, *want);
            }
            rest = reader.finish().unwrap();
        }
        let at = |name: &str| names.iter().position(|(n, _)| n == name).unwrap();
        assert!(at("usr") < at("usr/lib") && at("usr/lib/x") < at("usr/lib/x/libc.so"), "{names:?}");
        assert_eq!(names[at("dev/console")].1, CHARACTER_DEVICE);
        assert_eq!(names[at("init")].1, PROGRAM);
    }
}
