//! `[kernel]`: how each kernel is configured and built.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::Check;
use super::axes::{Axes, is_symbol, symbol_value};
use crate::matrix::expand::symbol;
use crate::matrix::hint::suggest;
use crate::matrix::raw::{At, Map, RawKernel, Scalar};
use crate::matrix::read::ROOT;
use crate::model::{BaseConfig, Fragment, Kernel, Toolchain};

/// Symbols that `[kernel] config` sets, under Kconfig's own names.
pub(super) type Set = IndexMap<String, At<String>>;

const TARGETS: [&str; 3] = ["defconfig", "tinyconfig", "allnoconfig"];

/// Variables of the kernel's makefiles that this program sets itself, or that
/// would move what it looks for.
const OWN_VARIABLES: [&str; 9] =
    ["O", "M", "ARCH", "SRCARCH", "SUBARCH", "CROSS_COMPILE", "LLVM", "KCONFIG_CONFIG", "MAKEFLAGS"];

pub(super) fn kernel(raw: Option<At<RawKernel>>, axes: &Axes, check: &mut Check) -> (Kernel, Set) {
    let raw = raw.unwrap_or(At { value: RawKernel::default(), span: ROOT }).value;
    let set = config(&raw.config, axes, check);
    let kernel = Kernel {
        base: raw.base.map_or(BaseConfig::Target("defconfig".to_owned()), |at| base(&at, check)),
        fragments: raw.fragments.iter().map(|at| fragment(at, check)).collect(),
        config: set.iter().map(|(name, at)| (name.clone(), at.value.clone())).collect(),
        patches: raw.patches.iter().map(|at| check.path("patch", at, Path::is_file)).collect(),
        toolchain: raw.toolchain.map_or(Toolchain::Gcc { prefix: None }, |at| toolchain(&at, axes, check)),
        make: raw.make.iter().map(|at| variable(at, check)).collect(),
    };
    (kernel, set)
}

/// What a value of the axis `patches` adds: nothing, a file, or a folder's
/// patches in the order of its `series` file, else of their names.
pub(super) fn patches(at: &At<String>, check: &mut Check) -> Option<Vec<PathBuf>> {
    if at.value == "none" {
        return Some(Vec::new());
    }
    let before = check.faults.len();
    let path = check.path("patch", at, Path::exists);
    if check.faults.len() > before {
        return None;
    }
    if !path.is_dir() {
        return Some(vec![path]);
    }
    let files = in_folder(&path).unwrap_or_default();
    if files.is_empty() {
        let message = format!("folder `{}` holds no patches", at.value);
        check.fault(
            &at.span,
            message,
            "it needs files that end in .patch, or a `series` file that names them",
        );
        return None;
    }
    Some(files)
}

fn in_folder(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    if let Ok(series) = std::fs::read_to_string(dir.join("series")) {
        let names = series.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        // A name that leaves the folder is left out, and then missed.
        return Ok(names.filter(|n| !n.contains('/')).map(|n| dir.join(n)).collect());
    }
    let entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let paths = entries.into_iter().map(|e| e.path());
    let mut files: Vec<_> = paths.filter(|p| p.extension().is_some_and(|e| e == "patch")).collect();
    files.sort();
    Ok(files)
}

/// Whether `text` means a file rather than a name.
fn is_path(text: &str) -> bool {
    text.contains('/') || text.ends_with(".config")
}

fn base(at: &At<String>, check: &mut Check) -> BaseConfig {
    if is_path(at) {
        return BaseConfig::File(check.path("base configuration", at, Path::is_file));
    }
    if !TARGETS.contains(&at.as_str()) {
        let message = format!("`base` cannot be `{}`", at.escape_debug());
        let help = format!(
            "{}, or a file: a name with `/` in it or with `.config` at its end",
            suggest(at, TARGETS)
        );
        check.fault(&at.span, message, help);
    }
    BaseConfig::Target(at.value.clone())
}

fn fragment(at: &At<String>, check: &mut Check) -> Fragment {
    if is_path(at) {
        return Fragment::File(check.path("fragment", at, Path::is_file));
    }
    let known = check.ctx.fragments.iter().map(String::as_str);
    if !known.clone().any(|k| k == at.value) {
        let message = format!("unknown fragment `{}`", at.escape_debug());
        let help = format!("{}; a file's name holds a `/` or ends in `.config`", suggest(at, known));
        check.fault(&at.span, message, help);
    }
    Fragment::Builtin(at.value.clone())
}

fn config(raw: &Map<Scalar>, axes: &Axes, check: &mut Check) -> Set {
    let mut set = Set::new();
    for (key, at) in raw {
        if !is_symbol(key) {
            let message = format!("`{}` cannot be a Kconfig symbol", key.escape_debug());
            check.fault(&key.span, message, "capitals, digits and `_`, as in PREEMPT_NONE = \"y\"");
            continue;
        }
        if let Some(axis) = axes.find(key) {
            let message = format!("`{}` is set in `config` and is an axis", key.value);
            let help = format!("remove it here: the axis `{}` sets it for each cell", axes.list[axis].name);
            check.fault(&key.span, message, help);
        }
        let Some(value) = symbol_value(key, at, check) else {
            continue;
        };
        let at = At { value, span: at.span.clone() };
        if set.insert(symbol(key).to_owned(), at).is_some() {
            let message = format!("`{}` is set already under another name", key.value);
            check.fault(&key.span, message, format!("both mean CONFIG_{}: keep one", symbol(key)));
        }
    }
    set
}

fn toolchain(at: &At<String>, axes: &Axes, check: &mut Check) -> Toolchain {
    match at.as_str() {
        "gcc" => return Toolchain::Gcc { prefix: None },
        "llvm" => return Toolchain::Llvm,
        _ => {}
    }
    let usual = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
    if !at.ends_with('-') || at.starts_with('-') || !at.chars().all(usual) {
        let message = format!("`toolchain` cannot be `{}`", at.escape_debug());
        let help = format!(
            "{}, or a prefix as CROSS_COMPILE has it, with a `-` at its end",
            suggest(at, ["gcc", "llvm"])
        );
        check.fault(&at.span, message, help);
    } else if axes.archs().len() > 1 {
        let message = format!("one prefix, `{}`, cannot compile for several architectures", at.value);
        check.fault(&at.span, message, "toolchain = \"gcc\" takes each architecture's usual prefix");
    }
    let prefix = if at.contains('/') {
        check.dir.join(&at.value).to_string_lossy().into_owned()
    } else {
        at.value.clone()
    };
    Toolchain::Gcc { prefix: Some(prefix) }
}

/// `NAME=VALUE` for `make`, which must neither redirect the build nor run
/// functions of make.
fn variable(at: &At<String>, check: &mut Check) -> String {
    let (name, value) = at.split_once('=').unwrap_or(("", ""));
    let form = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let shown = at.escape_debug();
    if !form {
        check.fault(
            &at.span,
            format!("`{shown}` is no variable for make"),
            "NAME=VALUE, as in make = [\"KCFLAGS=-O2\"]",
        );
    } else if OWN_VARIABLES.contains(&name) || name.starts_with("KBUILD_") {
        let help =
            "it is set for each build; the architecture is an axis, the compiler is [kernel] toolchain";
        check.fault(&at.span, format!("`make` cannot set `{name}`"), help);
    } else if value.chars().any(|c| c == '$' || c.is_control()) {
        check.fault(
            &at.span,
            format!("`{shown}` holds a `$` or a control character"),
            "write the value out: make would run what `$(...)` names",
        );
    }
    at.value.clone()
}
