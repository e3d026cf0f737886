//! Packages of the distribution: fetched and unpacked below a directory of
//! ours, never installed.
//!
//! Guest programs are of another architecture and often of another release
//! than the host. apt gets them through a private state (lists, status,
//! sources), so the host's own is neither needed complete nor touched. Archive
//! address, proxy and keys are the host's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use fs_err as fs;

use crate::process::{self, Spec, Stop};

/// Overrides the archive's address, for hosts that are not Debian.
const MIRROR_VARIABLE: &str = "MATRIX_DEBIAN_MIRROR";
/// Where Debian and Ubuntu install Debian's archive keys.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Lists and packages are some tens to hundreds of megabytes.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(30 * 60);
const SHORT: Duration = Duration::from_secs(60);

/// A release of Debian for one architecture.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    /// Debian's name of the architecture.
    pub arch: &'a str,
    /// Code name of the release.
    pub suite: &'a str,
}

/// Which packages are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those that are named.
    Named,
    /// Those and all that they depend on.
    Dependencies,
}

/// Fetches `packages` with the host's own apt set-up and unpacks them into
/// `root`; returns the package files' names, which carry the versions.
///
/// # Errors
/// The host's apt does not know a package, or cannot fetch it.
pub async fn unpack_host(packages: &[String], root: &Path, stop: &Stop) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(root)?;
    let downloads = tempfile::tempdir_in(root)?;
    let get = Spec::new("apt-get").args(["download", "-q", "-o", "APT::Sandbox::User=root"]);
    download(get, packages, downloads.path(), stop).await?;
    unpack_all(downloads.path(), root, stop).await
}

/// Fetches `packages` of `release`, as many as `extent` says, and unpacks them
/// into `root`; returns the package files' names, which carry the versions.
///
/// # Errors
/// No archive is known, or it lacks a package, or it cannot be reached.
pub async fn unpack_release(
    packages: &[String],
    extent: Extent,
    release: Release<'_>,
    root: &Path,
    stop: &Stop,
) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(root)?;
    let state = tempfile::tempdir_in(root)?;
    let config = private_state(release, state.path(), stop).await?;
    let update = Spec::new("apt-get").arg("update").env("APT_CONFIG", &config);
    process::output(&update, DOWNLOAD_LIMIT, stop)
        .await
        .with_context(|| format!("reading the package lists of {} for {}", release.suite, release.arch))?;
    let get = Spec::new("apt-get").env("APT_CONFIG", &config);
    let get = match extent {
        Extent::Named => get.args(["download", "-q"]),
        // Nothing is installed in the private state, so all of them are fetched.
        Extent::Dependencies => {
            get.args(["install", "-q", "--download-only", "--yes", "--no-install-recommends"])
        }
    };
    let downloads = state.path().join("cache/archives");
    download(get, packages, &downloads, stop).await?;
    unpack_all(&downloads, root, stop).await
}

/// Runs the apt command `get` for `packages` in the folder `into`.
async fn download(get: Spec, packages: &[String], into: &Path, stop: &Stop) -> anyhow::Result<()> {
    let get = get.arg("--").args(packages).cwd(into);
    let what = packages.join(" ");
    process::output(&get, DOWNLOAD_LIMIT, stop).await.with_context(|| format!("fetching {what}"))?;
    Ok(())
}

async fn unpack_all(downloads: &Path, root: &Path, stop: &Stop) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(downloads)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            let unpack = Spec::new("dpkg-deb").arg("--extract").arg(&path).arg(root);
            process::output(&unpack, DOWNLOAD_LIMIT, stop).await?;
            names.extend(path.file_stem().map(|n| n.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Writes an apt configuration that keeps everything below `dir`.
async fn private_state(release: Release<'_>, dir: &Path, stop: &Stop) -> anyhow::Result<PathBuf> {
    let mirror = mirror(stop).await?;
    if !Path::new(KEYRING).exists() {
        bail!("Debian's archive keys are missing; install them: apt-get install debian-archive-keyring");
    }
    for sub in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(dir.join(sub))?;
    }
    fs::write(dir.join("status"), "")?;
    let Release { arch, suite } = release;
    fs::write(
        dir.join("sources.list"),
        format!("deb [arch={arch} signed-by={KEYRING}] {mirror} {suite} main\n"),
    )?;
    let config = dir.join("apt.conf");
    fs::write(&config, apt_config(arch, dir))?;
    Ok(config)
}

fn apt_config(arch: &str, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "APT::Architecture \"{arch}\";\n\
         APT::Architectures {{ \"{arch}\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         APT::Update::Post-Invoke-Success \"\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         Dir::State \"{dir}\";\n\
         Dir::State::Lists \"{dir}/lists\";\n\
         Dir::State::status \"{dir}/status\";\n\
         Dir::Cache \"{dir}/cache\";\n\
         Dir::Etc::SourceList \"{dir}/sources.list\";\n\
         Dir::Etc::SourceParts \"/dev/null\";\n\
         Dir::Etc::Preferences \"/dev/null\";\n\
         Dir::Etc::PreferencesParts \"/dev/null\";\n"
    )
}

/// Address of the Debian archive that the host's apt uses.
async fn mirror(stop: &Stop) -> anyhow::Result<String> {
    if let Some(mirror) = std::env::var(MIRROR_VARIABLE).ok().filter(|m| !m.is_empty()) {
        return Ok(mirror);
    }
    let targets = Spec::new("apt-get").args([
        "indextargets",
        "--format",
        "$(LABEL)\t$(REPO_URI)",
        "Created-By: Packages",
    ]);
    let targets = process::output(&targets, SHORT, stop).await?;
    debian_mirror(&targets).with_context(|| {
        format!(
            "this system's apt has no Debian archive, where guest programs come from; set {MIRROR_VARIABLE} \
             to the address of one, or give the programs in the matrix file: files = [\"path/{{arch}}/program\"]"
        )
    })
}

/// Picks the main Debian archive from `LABEL TAB ADDRESS` lines. The label is
/// known only after an `apt-get update`; before it the address must do.
fn debian_mirror(targets: &str) -> Option<String> {
    let pairs: Vec<_> = targets.lines().filter_map(|l| l.split_once('\t')).collect();
    let by_label = pairs.iter().find(|(label, _)| *label == "Debian");
    let by_address = || pairs.iter().find(|(_, uri)| uri.trim_end_matches('/').ends_with("/debian"));
    by_label.or_else(by_address).map(|(_, uri)| (*uri).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_the_main_archive() {
        let targets =
            "Debian-Security\tftp://a/debian-security/\nDebian\tftp://b/x/\nOther\tftp://c/debian/\n";
        assert_eq!(debian_mirror(targets).unwrap(), "ftp://b/x/");
    }

    #[test]
    fn mirror_is_found_before_the_first_update() {
        let targets = "$(LABEL)\tftp://a/debian-security/\n$(LABEL)\tftp://b/debian/\n";
        assert_eq!(debian_mirror(targets).unwrap(), "ftp://b/debian/");
    }

    #[test]
    fn other_distributions_have_no_debian_mirror() {
        assert_eq!(debian_mirror("Ubuntu\tftp://a/ubuntu/\n"), None);
        assert_eq!(debian_mirror(""), None);
    }
}
