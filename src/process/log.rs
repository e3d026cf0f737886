//! Everything that a command printed, in a file of bounded size.

use std::io::{self, Write};
use std::path::Path;

use fs_err::File;

/// Raw log of both output streams, in the order in which they were read.
#[derive(Debug)]
pub struct Log {
    file: File,
    cap: u64,
    room: u64,
    /// Bytes that are not in the file.
    pub dropped: u64,
    /// Why writing failed; nothing was written after it.
    pub error: Option<io::Error>,
}

impl Log {
    /// Creates or empties the file, which is to hold `cap` bytes of output at most.
    pub fn create(path: &Path, cap: u64) -> io::Result<Self> {
        Ok(Log { file: File::create(path)?, cap, room: cap, dropped: 0, error: None })
    }

    /// Writes what still fits. Unbuffered, so that the evidence is there
    /// whatever happens next.
    pub fn write(&mut self, chunk: &[u8]) {
        let fits = chunk.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        let rest = (chunk.len() - fits) as u64;
        let mut written = self.file.write_all(&chunk[..fits]);
        if rest > 0 && self.dropped == 0 && written.is_ok() {
            let notice = format!("\n[matrix: output beyond {} bytes is not kept]\n", self.cap);
            written = self.file.write_all(notice.as_bytes());
        }
        self.room -= fits as u64;
        self.dropped += rest;
        if let Err(error) = written {
            self.error = Some(error);
            self.dropped += fits as u64;
            self.room = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notice_at_the_cap() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::create(&path, 5).unwrap();
        for chunk in [&b"abc"[..], b"defg", b"hi"] {
            log.write(chunk);
        }
        let text = fs_err::read_to_string(&path).unwrap();
        assert_eq!(text, "abcde\n[matrix: output beyond 5 bytes is not kept]\n");
        assert_eq!(log.dropped, 4);
        assert!(log.error.is_none());
    }

    #[test]
    fn exactly_the_cap_needs_no_notice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::create(&path, 3).unwrap();
        log.write(b"abc");
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "abc");
        assert_eq!(log.dropped, 0);
    }

    #[test]
    fn a_failed_write_is_kept_and_ends_the_log() {
        let mut log = Log::create(Path::new("/dev/full"), 100).unwrap();
        log.write(b"abc");
        log.write(b"de");
        assert_eq!(log.error.unwrap().kind(), io::ErrorKind::StorageFull);
        assert_eq!(log.dropped, 5);
    }
}
