//! Where kernel sources come from: a directory, a tarball, a git revision,
//! each with patches, none of it ever written to.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

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

    /// The tree as a tarball.
    fn pack(&self, name: &str) -> Source {
        let file = self.path(name);
        let mut tar = Command::new("tar");
        tar.arg("-caf").arg(&file).arg("-C").arg(self.dir.path()).arg("linux");
        assert!(tar.status().unwrap().success());
        Source::Tarball(file)
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

/// Every file of a tree: content, mode, modification time, inode.
fn files(tree: &SourceTree) -> BTreeMap<PathBuf, (String, u32, SystemTime, u64)> {
    let mut files = BTreeMap::new();
    let mut todo = vec![tree.dir.clone()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                todo.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let below = path.strip_prefix(&tree.dir).unwrap().to_owned();
                files.insert(below, (text, meta.mode(), meta.modified().unwrap(), meta.ino()));
            }
        }
    }
    files
}

/// Paths that two trees have in common as one file.
fn linked(one: &SourceTree, other: &SourceTree) -> Vec<String> {
    let (one, other) = (files(one), files(other));
    let same = one.iter().filter(|(path, file)| other.get(*path).is_some_and(|o| o.3 == file.3));
    same.map(|(path, _)| path.display().to_string()).collect()
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
    let tree = lab.prepare(&lab.pack("linux.tar.xz"), &[]).await.unwrap();
    assert_eq!(content(&tree), "one\ntwo\nthree\n");
    assert!(tree.dir.ends_with("linux") && tree.dir.starts_with(lab.cache.root()));
    std::fs::write(lab.path("linux/lib/a.c"), "changed\n").unwrap();
    let changed = lab.prepare(&lab.pack("linux.tar.xz"), &[]).await.unwrap();
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

/// Hard links are not to be written through, whatever a patch does to a file.
#[tokio::test]
async fn patched_trees_share_files_with_their_base_and_leave_it_alone() {
    let lab = Lab::new();
    for name in ["mode", "both", "gone", "moved", "untouched"] {
        std::fs::write(lab.path("linux").join(name), "one\ntwo\nthree\n").unwrap();
    }
    let hunk = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
    let modes = "old mode 100644\nnew mode 100755\n";
    let every_kind = [
        PATCH.to_owned(),
        format!("diff --git a/mode b/mode\n{modes}"),
        format!("diff --git a/both b/both\n{modes}--- a/both\n+++ b/both\n{hunk}"),
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n"
            .to_owned(),
        "diff --git a/moved b/to\nsimilarity index 100%\nrename from moved\nrename to to\n".to_owned(),
        "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n".to_owned(),
    ];
    std::fs::write(lab.path("every.patch"), every_kind.concat()).unwrap();
    for source in [lab.pack("linux.tar"), Source::Path(lab.path("linux"))] {
        let other = lab.prepare(&source, &["good.patch"]).await.unwrap();
        let base = lab.prepare(&source, &[]).await.unwrap();
        let before = files(&base);
        let tree = lab.prepare(&source, &["every.patch"]).await.unwrap();
        assert_eq!(files(&base), before, "the base was written to");
        let after = files(&tree);
        let text = |name: &str| after.get(Path::new(name)).map(|f| (f.0.as_str(), f.1 & 0o777));
        assert_eq!(text("lib/a.c"), Some(("one\n2\nthree\n", 0o644)));
        assert_eq!(text("mode"), Some(("one\ntwo\nthree\n", 0o755)));
        assert_eq!(text("both"), Some(("one\n2\nthree\n", 0o755)));
        assert_eq!((text("gone"), text("moved")), (None, None));
        assert_eq!((text("to"), text("new")), (Some(("one\ntwo\nthree\n", 0o644)), Some(("new\n", 0o644))));
        // make sees nothing newer where nothing is.
        for name in ["Kconfig", "Makefile", "untouched"] {
            assert_eq!(after[Path::new(name)].2, before[Path::new(name)].2, "{name}");
        }
        assert_eq!(linked(&tree, &other), ["Kconfig", "Makefile", "untouched"]);
        let cached = base.dir.starts_with(lab.cache.root());
        assert_eq!(linked(&tree, &base).len(), if cached { 3 } else { 0 }, "a tree of the user's is copied");
    }
}

#[tokio::test]
async fn revisions_share_the_files_that_do_not_differ() {
    let lab = Lab::new();
    lab.git(&["init", "--quiet", "--initial-branch", "main"]);
    std::fs::write(lab.path("linux/gone"), "gone").unwrap();
    lab.git(&["add", "."]);
    lab.git(&["commit", "--quiet", "-m", "first"]);
    std::fs::write(lab.path("linux/lib/a.c"), "later\n").unwrap();
    std::fs::remove_file(lab.path("linux/gone")).unwrap();
    std::fs::write(lab.path("linux/new"), "new").unwrap();
    lab.git(&["add", "--all", "."]);
    lab.git(&["commit", "--quiet", "-m", "second"]);
    let urls = [lab.path("linux").display().to_string(), format!("file://{}", lab.path("linux").display())];
    let source = |url: &str, rev: &str| Source::Git { url: url.to_owned(), rev: rev.to_owned() };
    let first = lab.prepare(&source(&urls[0], "main~1"), &[]).await.unwrap();
    let before = files(&first);
    for url in &urls {
        let main = lab.prepare(&source(url, "main"), &[]).await.unwrap();
        assert_eq!(files(&first), before);
        assert_eq!(linked(&main, &first), ["Kconfig", "Makefile"]);
        let names: Vec<_> = files(&main).into_keys().map(|p| p.display().to_string()).collect();
        assert_eq!(
            (names, content(&main).as_str()),
            (["Kconfig", "Makefile", "lib/a.c", "new"].map(String::from).to_vec(), "later\n")
        );
    }
    // Attributes change what git writes, so then all is written anew.
    std::fs::write(lab.path("linux/.gitattributes"), "Kconfig text eol=crlf\n").unwrap();
    lab.git(&["add", "."]);
    lab.git(&["commit", "--quiet", "-m", "third"]);
    let third = lab.prepare(&source(&urls[0], "main"), &[]).await.unwrap();
    assert!(linked(&third, &first).is_empty());
}

#[tokio::test]
async fn tree_that_was_written_to_is_told_and_not_handed_on() {
    let lab = Lab::new();
    let source = lab.pack("linux.tar");
    let tree = lab.prepare(&source, &[]).await.unwrap();
    tree.verify(&lab.cache).unwrap();
    std::fs::create_dir(tree.dir.join("__pycache__")).unwrap();
    tree.verify(&lab.cache).unwrap();
    let file = tree.dir.join("lib/a.c");
    std::fs::write(&file, "ONE\ntwo\nthree\n").unwrap();
    let wrong = tree.verify(&lab.cache).unwrap_err().to_string();
    assert!(wrong.contains("lib/a.c; `matrix cache clear sources`"), "{wrong}");
    let wrong = lab.prepare(&source, &["good.patch"]).await.unwrap_err().to_string();
    assert!(wrong.contains("was written to"), "{wrong}");
    assert!(lab.find(&source, &["good.patch"]).await.is_none());
}

#[tokio::test]
async fn cache_folder_can_be_moved() {
    let lab = Lab::new();
    let source = lab.pack("linux.tar");
    let tree = lab.prepare(&source, &[]).await.unwrap();
    std::fs::rename(lab.cache.root(), lab.path("moved")).unwrap();
    let cache = Cache::open(Some(lab.path("moved"))).unwrap();
    let find = async || source::find(&source, &[], &cache, &Stop::default()).await.unwrap().unwrap();
    let moved = find().await;
    assert_eq!((&moved.fingerprint, &moved.state), (&tree.fingerprint, &tree.state));
    assert!(moved.dir.starts_with(cache.root()));
    moved.verify(&cache).unwrap();
    // Older entries have the whole path in them.
    let record = moved.dir.parent().unwrap().join("matrix-source.json");
    let old = serde_json::json!({ "dir": tree.dir, "fingerprint": tree.fingerprint, "describe": "d" });
    std::fs::write(record, old.to_string()).unwrap();
    assert_eq!(find().await.dir, moved.dir);
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
