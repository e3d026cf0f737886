//! From what a cell asks for to a verified `.config`, before anything compiles.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use fs_err as fs;

use super::kconfig::{self, Rules};
use super::source::SourceTree;
use crate::assets;
use crate::model::{BaseConfig, Fragment, Kernel};
use crate::process::{self, Spec, Stop};

const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Name of the merged request inside the object directory.
const REQUEST: &str = "matrix.config";

/// All that a kernel's configuration is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What everything else is added to.
    pub base: BaseConfig,
    /// Symbols of built-in fragments. Trees of other versions may lack one.
    pub fragments: Arc<BTreeMap<String, String>>,
    /// Symbols that the user asks for; every one must stick.
    pub symbols: BTreeMap<String, String>,
}

impl Request {
    /// What every cell of an architecture asks for: fragments and symbols, of
    /// which later ones win.
    ///
    /// # Errors
    /// A fragment does not exist.
    pub fn of_all(kernel: &Kernel, arch: &str) -> anyhow::Result<Request> {
        let (mut fragments, mut symbols) = (BTreeMap::new(), BTreeMap::new());
        for fragment in &kernel.fragments {
            match fragment {
                Fragment::Builtin(name) => fragments.extend(builtin(name, arch)?),
                Fragment::File(path) => symbols.extend(kconfig::parse(&fs::read_to_string(path)?)),
            }
        }
        let request = Request { base: kernel.base.clone(), fragments: Arc::new(fragments), symbols };
        Ok(request.with(&kernel.config))
    }

    /// The same with further symbols, which win.
    pub fn with(&self, symbols: &BTreeMap<String, String>) -> Request {
        let mut request = self.clone();
        request.symbols.extend(symbols.iter().map(|(s, v)| (s.clone(), v.clone())));
        let asked = &request.symbols;
        if asked.keys().any(|s| request.fragments.contains_key(s)) {
            Arc::make_mut(&mut request.fragments).retain(|s, _| !asked.contains_key(s));
        }
        request
    }

    /// The request as a configuration file.
    pub fn text(&self) -> String {
        let asked: BTreeMap<_, _> = self.fragments.iter().chain(&self.symbols).collect();
        asked.into_iter().map(|(s, v)| kconfig::line(s, v)).collect()
    }

    fn asked(&self) -> BTreeMap<String, String> {
        self.fragments.iter().chain(&self.symbols).map(|(s, v)| (s.clone(), v.clone())).collect()
    }
}

/// `NAME.config`, then `ARCH-NAME.config`; either may be missing, not both.
fn builtin(name: &str, arch: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let files = [format!("{name}.config"), format!("{arch}-{name}.config")];
    let texts: Vec<_> =
        files.iter().filter_map(|f| assets::KERNEL_CONFIGS.get_file(f)?.contents_utf8()).collect();
    if texts.is_empty() {
        bail!("no configuration fragment '{name}'");
    }
    Ok(texts.into_iter().flat_map(kconfig::parse).collect())
}

/// Names of the built-in fragments that are not one architecture's part of another.
pub fn builtin_names(archs: &[&str]) -> Vec<String> {
    let files = assets::texts(&assets::KERNEL_CONFIGS, "config");
    let of_arch = |name: &str| archs.iter().any(|a| name.strip_prefix(a).is_some_and(|r| r.starts_with('-')));
    files.into_iter().map(|(name, _)| name.to_owned()).filter(|n| !of_arch(n)).collect()
}

/// A verified configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// Every symbol of the final `.config`.
    pub config: BTreeMap<String, String>,
    /// Rules of the tree that were replaced to get there.
    pub overridden: Vec<String>,
    /// Symbols of built-in fragments that the tree does not have.
    pub unknown: Vec<String>,
}

/// How `make` is called for one object directory.
#[derive(Debug, Clone)]
pub struct Make<'a> {
    /// The tree that is built from.
    pub source: &'a SourceTree,
    /// The architecture's name in the kernel's makefile.
    pub arch: &'a str,
    /// Where everything is written.
    pub objdir: &'a Path,
    /// Toolchain and further variables.
    pub variables: Vec<String>,
}

impl Make<'_> {
    /// `make` with everything but its targets. What the caller's environment
    /// says to other makefiles must not reach this one, and nothing of this
    /// machine or moment may get into the kernel.
    pub fn spec(&self) -> Spec {
        const FOREIGN: [&str; 18] = [
            "ARCH",
            "CROSS_COMPILE",
            "LLVM",
            "KCFLAGS",
            "KAFLAGS",
            "KCPPFLAGS",
            "KBUILD_OUTPUT",
            "KBUILD_KCONFIG",
            "KCONFIG_CONFIG",
            "KCONFIG_ALLCONFIG",
            "SOURCE_DATE_EPOCH",
            "MAKEFLAGS",
            "MFLAGS",
            "MAKELEVEL",
            "O",
            "V",
            "W",
            "C",
        ];
        let mut spec = Spec::new("make");
        for name in FOREIGN {
            spec = spec.env_remove(name);
        }
        let mut output = std::ffi::OsString::from("O=");
        output.push(self.objdir);
        spec.env("LC_ALL", "C")
            .env("GIT_OPTIONAL_LOCKS", "0")
            // Empty but set: no `+` for a tree that git thinks modified.
            .env("LOCALVERSION", "")
            .env("KBUILD_BUILD_TIMESTAMP", "Thu Jan  1 00:00:00 UTC 1970")
            .env("KBUILD_BUILD_USER", "matrix")
            .env("KBUILD_BUILD_HOST", "matrix")
            .env("KBUILD_BUILD_VERSION", "1")
            .arg("-C")
            .arg(&self.source.dir)
            .arg(output)
            .arg(format!("ARCH={}", self.arch))
            .args(&self.variables)
    }
}

/// Brings the object directory to the requested configuration and verifies it.
///
/// # Errors
/// Kconfig fails, or a requested value did not stick; the message says why.
pub async fn configure(make: &Make<'_>, request: &Request, stop: &Stop) -> anyhow::Result<Configured> {
    remove_overlay(make.objdir, make.arch)?;
    fs::write(make.objdir.join(REQUEST), request.text())?;
    let mut config = generate(make, request, stop).await?;
    let asked = request.asked();
    let mut wrong = kconfig::mismatches(&asked, &config);
    if wrong.is_empty() {
        return Ok(Configured { config, overridden: Vec::new(), unknown: Vec::new() });
    }
    let symbols: Vec<&str> = asked.keys().map(String::as_str).collect();
    let rules = kconfig::rules(&make.source.dir, make.arch, &symbols)?;
    let free: Vec<&str> = symbols.iter().copied().filter(|s| kconfig::can_override(s)).collect();
    let mut overridden = Vec::new();
    if wrong.iter().any(|m| free.contains(&m.symbol.as_str())) {
        overridden = kconfig::overlay(&make.source.dir, make.objdir, &free, &rules)?;
        config = generate(make, request, stop).await?;
        wrong = kconfig::mismatches(&asked, &config);
    }
    let foreign = |s: &str| request.fragments.contains_key(s) && rules.get(s).is_some_and(|r| !r.defined);
    let (unknown, wrong): (Vec<_>, Vec<_>) = wrong.into_iter().partition(|m| foreign(&m.symbol));
    if !wrong.is_empty() {
        let none = Rules::default();
        let reasons: Vec<_> = wrong
            .iter()
            .map(|m| kconfig::explain(m, rules.get(&m.symbol).unwrap_or(&none), &config))
            .collect();
        return Err(anyhow!(reasons.join("\n")));
    }
    let unknown = unknown.into_iter().map(|m| m.symbol).collect();
    Ok(Configured { config, overridden, unknown })
}

/// An earlier attempt's overlay must not rule this one. An object directory has
/// no Kconfig files of its own.
fn remove_overlay(objdir: &Path, arch: &str) -> anyhow::Result<()> {
    for file in kconfig::files(objdir, arch)? {
        fs::remove_file(objdir.join(file))?;
    }
    Ok(())
}

async fn generate(
    make: &Make<'_>,
    request: &Request,
    stop: &Stop,
) -> anyhow::Result<BTreeMap<String, String>> {
    let config = make.objdir.join(".config");
    let all_no = matches!(&request.base, BaseConfig::Target(t) if t == "allnoconfig");
    match &request.base {
        // allnoconfig knows how to take wishes; appending them afterwards
        // would let what they make visible default to yes.
        BaseConfig::Target(target) if all_no => {
            let spec = make.spec().env("KCONFIG_ALLCONFIG", make.objdir.join(REQUEST)).arg(target);
            process::output(&spec, LIMIT, stop).await.with_context(|| format!("make {target}"))?;
        }
        BaseConfig::Target(target) => {
            process::output(&make.spec().arg(target), LIMIT, stop)
                .await
                .with_context(|| format!("make {target}"))?;
        }
        // Without its mode: one from a run is read-only.
        BaseConfig::File(path) => fs::write(&config, fs::read(path)?)?,
    }
    if !all_no {
        let base = fs::read_to_string(&config)?;
        fs::write(&config, format!("{base}\n{}", request.text()))?;
        process::output(&make.spec().arg("olddefconfig"), LIMIT, stop).await.context("make olddefconfig")?;
    }
    Ok(kconfig::parse(&fs::read_to_string(&config)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn symbols_win_over_fragments_and_later_over_earlier() {
        let fragments = vec![Fragment::Builtin("minimal".into())];
        let (config, cell) = (map(&[("SMP", "n"), ("X", "1")]), map(&[("X", "2")]));
        let kernel = Kernel { fragments, config, ..Kernel::plain() };
        let request = Request::of_all(&kernel, "nowhere").unwrap().with(&cell);
        assert_eq!(request.symbols, map(&[("SMP", "n"), ("X", "2")]));
        assert!(!request.fragments.contains_key("SMP"));
        assert_eq!(request.fragments["PRINTK"], "y");
        assert!(request.text().contains("# CONFIG_SMP is not set\n"));
    }

    #[test]
    fn unknown_fragment_is_an_error() {
        assert!(builtin("nonsense", "nowhere").is_err());
    }

    #[test]
    fn architecture_parts_are_no_fragments_of_their_own() {
        let archs = crate::arch::all().unwrap();
        let names: Vec<_> = archs.iter().map(|a| a.name.as_str()).collect();
        let fragments = builtin_names(&names);
        assert!(fragments.contains(&"minimal".to_owned()), "{fragments:?}");
        assert!(fragments.iter().all(|f| names.iter().all(|n| !f.starts_with(n))), "{fragments:?}");
    }

    #[test]
    fn overlay_of_an_earlier_attempt_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let keep = dir.path().join("arch/x/head.o");
        fs::create_dir_all(keep.parent().unwrap()).unwrap();
        for file in [&keep, &dir.path().join("Kconfig"), &dir.path().join("arch/x/Kconfig")] {
            fs::write(file, "").unwrap();
        }
        remove_overlay(dir.path(), "x").unwrap();
        assert!(keep.exists());
        assert!(!dir.path().join("Kconfig").exists() && !dir.path().join("arch/x/Kconfig").exists());
    }
}
