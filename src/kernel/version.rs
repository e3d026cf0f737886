//! What programs say of their version. It takes a program's start to ask, and
//! an emulator starts slowly; so the cache remembers what was said by the very
//! same file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;

use crate::cache::{Cache, Inputs};
use crate::process::{self, Spec, Stop};

const SHORT: Duration = Duration::from_secs(60);
/// Within this time a file can change twice without its times telling.
const COARSE: Duration = Duration::from_secs(2);
/// What was said, among the facts of who said it.
const SAID: &str = "said";

/// First line of what `program --version` prints.
///
/// # Errors
/// It is not installed, or fails.
pub async fn version(program: &str, cache: &Cache, stop: &Stop) -> anyhow::Result<String> {
    let found = found(program).and_then(|file| Some((key(&file), facts(&file, program)?)));
    if let Some((key, facts)) = &found {
        let known = cache.last_inputs(key).and_then(|mut known| Some((known.0.remove(SAID)?, known)));
        if let Some((said, _)) = known.filter(|(_, of)| of == facts) {
            return Ok(said);
        }
    }
    let text = process::output(&Spec::new(program).arg("--version"), SHORT, stop).await?;
    let said = text.lines().next().unwrap_or_default().trim().to_owned();
    // A cache is begun when there is something to keep, not to look something up.
    if let Some((key, mut facts)) = found.filter(|_| cache.root().is_dir()) {
        facts.add(SAID, &said);
        // One that cannot be written is no reason to fail here.
        let _ = cache.remember(&key, &facts);
    }
    Ok(said)
}

fn key(file: &Path) -> String {
    format!("version of {}", file.display())
}

/// The file that the name stands for on `PATH`.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs = std::env::split_paths(&path).filter(|_| !program.contains('/'));
    dirs.map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// What tells this very file from any other, where its answer is its own: a
/// script, or a program that answers to several names, asks another one, which
/// can change by itself.
fn facts(file: &Path, program: &str) -> Option<Inputs> {
    let real = fs::canonicalize(file).ok()?;
    let own = real.file_name()?.to_str()?.starts_with(program);
    let mut magic = [0; 4];
    std::io::Read::read_exact(&mut fs::File::open(&real).ok()?, &mut magic).ok()?;
    let meta = fs::metadata(&real).ok()?;
    let changed = Duration::new(meta.ctime().try_into().ok()?, meta.ctime_nsec().try_into().ok()?);
    let age = SystemTime::UNIX_EPOCH.elapsed().ok()?.checked_sub(changed)?;
    if !own || magic != *b"\x7fELF" || age < COARSE {
        return None;
    }
    let mut facts = Inputs::default();
    facts.add("file", real.to_str()?);
    facts.add("inode", format!("{}:{}", meta.dev(), meta.ino()));
    facts.add("size", meta.len().to_string());
    facts.add("modified", format!("{}.{:09}", meta.mtime(), meta.mtime_nsec()));
    facts.add("changed", format!("{}.{:09}", meta.ctime(), meta.ctime_nsec()));
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_of_a_program_itself_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let cc = found("true").unwrap();
        let link = |to: &str| {
            let link = dir.path().join(to);
            std::os::unix::fs::symlink(&cc, &link).unwrap();
            link
        };
        let name = fs::canonicalize(&cc).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let facts_of_link = facts(&link("tru"), &name[..1]);
        assert!(
            facts_of_link.is_some_and(|f| f == facts(&cc, &name).unwrap()),
            "a name with a version behind it"
        );
        assert_eq!(facts(&link("other"), "other"), None, "it answers to several names");
        let script = dir.path().join("script");
        fs::write(&script, "#!/bin/sh\nexec true\n").unwrap();
        assert_eq!(facts(&script, "script"), None);
        let young = dir.path().join("young");
        fs::write(&young, b"\x7fELF and more").unwrap();
        assert_eq!(facts(&young, "young"), None, "it may change again without a trace");
        assert_eq!(found("no/path"), None);
    }
}
