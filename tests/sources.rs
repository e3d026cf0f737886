//! Where kernel sources come from: a directory, a tarball, a git revision,
//! each with patches, none of it ever written to.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::path::{Path, PathBuf};
use std::process::Command;

use matrix::cache::Cache;
use matrix::kernel::{SourceTree, source};
use matrix::model::Source;
use matrix::process::{self, Stop};

struct Lab {
    dir: tempfile::TempDir,
    cache: Cache,
}

const PATCH: &str = "\
--- a/lib/a.c
+++ b/lib/a.c
@@ -1,3 +1,3 @@
 one
-two
+2
 three
";

impl Lab {
    /// A small tree with what makes it a kernel's, in a git repository.
    fn new() -> Lab {
        process::set_guard_program(env!("CARGO_BIN_EXE_matrix"));
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().join("cache"))).unwrap();
        let lab = Lab { dir, cache };
        std::fs::create_dir_all(lab.path("linux/lib")).unwrap();
        for name in ["Kconfig", "Makefile"] {
            std::fs::write(lab.path("linux").join(name), name).unwrap();
        }
        std::fs::write(lab.path("linux/lib/a.c"), "one\ntwo\nthree\n").unwrap();
        std::fs::write(lab.path("good.patch"), PATCH).unwrap();
        std::fs::write(lab.path("bad.patch"), PATCH.replace("-two", "-deux")).unwrap();
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn git(&self, args: &[&str]) -> String {
        let out = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t"])
            .args(args)
            .current_dir(self.path("linux"))
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    async fn prepare(&self, source: &Source, patches: &[&str]) -> anyhow::Result<SourceTree> {
        let patches: Vec<_> = patches.iter().map(|p| self.path(p)).collect();
        source::prepare(source, &patches, false, &self.cache, &Stop::default()).await
    }

    async fn find(&self, source: &Source, patches: &[&str]) -> Option<SourceTree> {
        let patches: Vec<_> = patches.iter().map(|p| self.path(p)).collect();
        source::find(source, &patches, &self.cache, &Stop::default()).await.unwrap()
    }
}

fn content(tree: &SourceTree) -> String {
    std::fs::read_to_string(tree.dir.join("lib/a.c")).unwrap()
}

#[tokio::test]
async fn revisions_of_a_repository_are_trees_of_their_own() {
    let lab = Lab::new();
    lab.git(&["init", "--quiet", "--initial-branch", "main"]);
    lab.git(&["add", "."]);
    lab.git(&["commit", "--quiet", "-m", "first"]);
    let first = lab.git(&["rev-parse", "HEAD"]);
    std::fs::write(lab.path("linux/lib/a.c"), "later\n").unwrap();
    lab.git(&["commit", "--quiet", "-a", "-m", "second"]);
    // What is being edited is no part of any revision, and stays as it is.
    std::fs::write(lab.path("linux/lib/a.c"), "dirty\n").unwrap();
    let url = lab.path("linux").display().to_string();
    let source = |rev: &str| Source::Git { url: url.clone(), rev: rev.to_owned() };

    assert_eq!(lab.find(&source("main"), &[]).await, None);
    let main = lab.prepare(&source("main"), &[]).await.unwrap();
    assert_eq!(content(&main), "later\n");
    assert_eq!(lab.find(&source("main"), &[]).await, Some(main.clone()));
    for rev in [first.as_str(), "HEAD~1"] {
        let tree = lab.prepare(&source(rev), &[]).await.unwrap();
        assert_eq!(content(&tree), "one\ntwo\nthree\n", "{rev}");
        assert!(tree.describe.contains(&first), "{}", tree.describe);
        assert_ne!(tree.fingerprint, main.fingerprint);
    }
    let wrong = lab.prepare(&source("nowhere"), &[]).await.unwrap_err();
    assert!(format!("{wrong:#}").contains("no revision 'nowhere'"), "{wrong:#}");
    // A name that looks like an option is a name.
    let wrong = lab.prepare(&source("--help"), &[]).await.unwrap_err();
    assert!(format!("{wrong:#}").contains("no revision '--help'"), "{wrong:#}");
    assert_eq!(std::fs::read_to_string(lab.path("linux/lib/a.c")).unwrap(), "dirty\n");
    assert_eq!(lab.git(&["worktree", "list"]).lines().count(), 1);
}

#[tokio::test]
async fn tarball_is_known_by_its_content() {
    let lab = Lab::new();
    let pack = |name: &str| {
        let file = lab.path(name);
        let tar =
            Command::new("tar").arg("-caf").arg(&file).arg("-C").arg(lab.dir.path()).arg("linux").status();
        assert!(tar.unwrap().success());
        Source::Tarball(file)
    };
    let tree = lab.prepare(&pack("linux.tar.xz"), &[]).await.unwrap();
    assert_eq!(content(&tree), "one\ntwo\nthree\n");
    assert!(tree.dir.ends_with("linux") && tree.dir.starts_with(lab.cache.root()));
    std::fs::write(lab.path("linux/lib/a.c"), "changed\n").unwrap();
    let changed = lab.prepare(&pack("linux.tar.xz"), &[]).await.unwrap();
    assert_eq!(content(&changed), "changed\n");
    assert_ne!(changed.fingerprint, tree.fingerprint);

    std::fs::write(lab.path("broken.tar.xz"), "no archive").unwrap();
    let broken = lab.prepare(&Source::Tarball(lab.path("broken.tar.xz")), &[]).await.unwrap_err();
    assert!(format!("{broken:#}").contains("unpacking"), "{broken:#}");
}

#[tokio::test]
async fn patches_go_to_a_copy() {
    let lab = Lab::new();
    let source = Source::Path(lab.path("linux"));
    let plain = lab.prepare(&source, &[]).await.unwrap();
    assert_eq!(plain.dir, std::fs::canonicalize(lab.path("linux")).unwrap());
    assert_eq!(lab.find(&source, &["good.patch"]).await, None);
    let patched = lab.prepare(&source, &["good.patch"]).await.unwrap();
    assert_eq!(content(&patched), "one\n2\nthree\n");
    assert_eq!(content(&plain), "one\ntwo\nthree\n");
    assert_ne!(patched.fingerprint, plain.fingerprint);
    assert!(patched.describe.ends_with(" + good.patch"), "{}", patched.describe);
    assert_eq!(lab.find(&source, &["good.patch"]).await, Some(patched.clone()));
    // Editing the user's tree afterwards does not reach into the copy.
    std::fs::write(lab.path("linux/Makefile"), "edited").unwrap();
    assert_eq!(std::fs::read_to_string(patched.dir.join("Makefile")).unwrap(), "Makefile");
}

#[tokio::test]
async fn patch_that_does_not_apply_says_which_hunk() {
    let lab = Lab::new();
    let wrong = lab.prepare(&Source::Path(lab.path("linux")), &["bad.patch"]).await.unwrap_err();
    let text = format!("{wrong:#}");
    assert!(text.contains("bad.patch does not apply"), "{text}");
    assert!(text.contains("Hunk #1 FAILED at 1"), "{text}");
}

/// A patch is untrusted: it must not write outside the tree.
#[tokio::test]
async fn patch_cannot_leave_the_tree() {
    let lab = Lab::new();
    let escape = "--- /dev/null\n+++ b/../../../escaped\n@@ -0,0 +1 @@\n+x\n";
    std::fs::write(lab.path("escape.patch"), escape).unwrap();
    assert!(lab.prepare(&Source::Path(lab.path("linux")), &["escape.patch"]).await.is_err());
    let mut todo: Vec<PathBuf> = vec![lab.dir.path().to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            assert_ne!(path.file_name(), Some(Path::new("escaped").as_os_str()));
            if path.is_dir() && !path.is_symlink() {
                todo.push(path);
            }
        }
    }
}
