//! ccache in front of the compiler, where it is installed: a kernel that was
//! built before, in whatever folder, is then put together from its objects.
//! (Variables and statistics: the sections CONFIGURATION and STATISTICS of
//! ccache's manual.)

use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::process::{self, Spec, Stop};

const SHORT: Duration = Duration::from_secs(60);
const PROGRAM: &str = "ccache";

/// An installed ccache, with the settings of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ccache;

/// What ccache was asked for by one build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    /// Objects that it had.
    pub hits: u64,
    /// Objects that had to be compiled.
    pub misses: u64,
}

impl Ccache {
    /// ccache if it is installed.
    pub async fn find(stop: &Stop) -> Option<Ccache> {
        process::output(&Spec::new(PROGRAM).arg("--version"), SHORT, stop).await.ok().map(|_| Ccache)
    }

    /// `make` with the compiler `cc` behind ccache; what was asked for is written
    /// to `log`. Object directories may differ. Dependencies are learnt from the
    /// compiler itself, which kbuild has list them: running the preprocessor
    /// for them would make a kernel from nothing take 1.4 times as long. They keep
    /// the names that the compiler gives them, as kbuild and others read them.
    pub(super) fn around(self, make: Spec, cc: &str, log: &Path) -> Spec {
        make.arg(format!("CC={PROGRAM} {cc}"))
            .env("CCACHE_NOHASHDIR", "1")
            .env("CCACHE_DEPEND", "1")
            .env("CCACHE_BASEDIR", "")
            .env("CCACHE_STATSLOG", log)
    }
}

impl Hits {
    /// Reads the log of a build; none if nothing was asked for.
    pub(super) fn read(log: &Path) -> Option<Hits> {
        let mut hits = Hits::default();
        for line in fs::read_to_string(log).ok()?.lines() {
            match line {
                "direct_cache_hit" | "preprocessed_cache_hit" => hits.hits += 1,
                "cache_miss" => hits.misses += 1,
                _ => {}
            }
        }
        (hits != Hits::default()).then_some(hits)
    }
}

/// `ccache had 570 of 600 objects`
impl std::fmt::Display for Hits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PROGRAM} had {} of {} objects", self.hits, self.hits + self.misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_of_either_kind_and_misses_are_counted() {
        let log = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Hits::read(log.path()), None);
        let lines =
            "# a.c\ncache_miss\ndirect_cache_miss\n# b.c\ndirect_cache_hit\n# c.c\npreprocessed_cache_hit\n";
        std::fs::write(log.path(), lines).unwrap();
        let hits = Hits::read(log.path()).unwrap();
        assert_eq!(hits.to_string(), "ccache had 2 of 3 objects");
        assert_eq!(Hits::read(Path::new("/nowhere")), None);
    }
}
