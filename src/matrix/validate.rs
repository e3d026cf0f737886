//! From [`raw`](super::raw) to [`Matrix`]: everything that types cannot say.
//! Every part notes its faults and goes on with what is left, so that one
//! reading finds them all.

mod axes;
mod benchmarks;
mod boot;
mod kernel;
mod tables;
mod topology;

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use super::Context;
use super::raw::{At, OneOrMany, RawBoot, RawSource};
use super::read::{Gone, ROOT, Reading};
use crate::diag::Diagnostic;
use crate::model::{Matrix, Source};

use axes::Axes;

/// What is at hand while a file is judged, and the faults found so far.
struct Check<'a> {
    text: &'a str,
    dir: &'a Path,
    ctx: &'a Context,
    gone: Gone,
    faults: Vec<Diagnostic>,
}

/// Validates what was read.
///
/// # Errors
/// All faults, those of reading included.
pub(super) fn validate(
    reading: Reading,
    file_name: &str,
    text: &str,
    dir: &Path,
    ctx: &Context,
) -> Result<Matrix, Vec<Diagnostic>> {
    let Reading { raw, faults, gone } = reading;
    let check = &mut Check { text, dir, ctx, gone, faults };
    let name = name(raw.name, file_name, check);
    let mut axes = axes::axes(raw.axes, check);
    let source = source(raw.source, &axes, check);
    let boot_raw = raw.boot.unwrap_or(At { value: RawBoot::default(), span: ROOT });
    let places = boot::places(&boot_raw);
    let mut boot = boot::boot(boot_raw, &axes, check);
    let coords = axes::coords(&mut axes, &raw.exclude, &raw.include, check);
    axes::labels(&raw.labels, &mut axes, check);
    let (kernel, set) = kernel::kernel(raw.kernel, &axes, check);
    let cells = axes.cells(&coords);
    axes::ids_fit(&cells, &axes, check);
    let given = benchmarks::Given { axes: &axes, cmdline: &boot.cmdline };
    let benchmarks = benchmarks::benchmarks(raw.benchmark, given, check);
    boot.cmdline = benchmarks.on_command_line(boot.cmdline);
    let tables = tables::tables(raw.table, &name, &axes, &cells, &benchmarks, check);
    let words = benchmarks.list.iter().flat_map(|b| &b.command).chain([&boot.cmdline]);
    let words: Vec<&str> = words.map(String::as_str).collect();
    if check.faults.is_empty() {
        axes.placeholders_used(&words, check);
    }
    let matrix = Matrix {
        name,
        // A file without a source is faulty; the other checks go on without one.
        source: source.unwrap_or_else(|| Source::Package(String::new())),
        axes: axes.list.clone(),
        cells,
        kernel,
        boot,
        benchmarks: benchmarks.list,
        tables,
    };
    boot::unbooted(&matrix, places.get("boots"), check);
    if axes.rules_whole {
        boot::processors(&matrix, &coords, &axes, places.get("vcpus"), &set, check);
        topology::fits(&matrix, &coords, &axes, &places, check);
    }
    let faults = std::mem::take(&mut check.faults);
    if faults.is_empty() { Ok(matrix) } else { Err(faults) }
}

impl Check<'_> {
    fn fault(&mut self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.faults.push(Diagnostic {
            message: message.into(),
            span: span.clone(),
            label: String::new(),
            help: help.into(),
        });
    }

    /// A fault about a key that is not there, unless it was and is faulty itself.
    fn missing(&mut self, table: &Range<usize>, key: &str, message: &str, help: impl Into<String>) {
        if !self.gone.has(table, key) {
            self.fault(table, message, help);
        }
    }

    /// Whether `at` can stand in one line; notes a fault otherwise.
    fn line(&mut self, key: &str, at: &At<String>) -> bool {
        let bad = at.chars().find(|c| c.is_control());
        if let Some(c) = bad {
            let message = format!("`{key}` holds the control character {}", c.escape_unicode());
            self.fault(&at.span, message, "keep to one line of printable text");
        }
        bad.is_none()
    }

    fn opt_line(&mut self, key: &str, at: Option<At<String>>) -> Option<String> {
        at.filter(|at| self.line(key, at)).map(|at| at.value)
    }

    /// The words of an argument list.
    fn words(&mut self, key: &str, at: &At<OneOrMany<String>>) -> Vec<String> {
        for item in at.items() {
            self.line(key, &item);
        }
        match &at.value {
            OneOrMany::Many(items) => items.iter().map(|i| i.value.clone()).collect(),
            OneOrMany::One(text) => shell_words::split(text).unwrap_or_else(|e| {
                let message = format!("`{key}` cannot be split into words: {e}");
                let help = format!("close every quote, or give an array: {key} = [\"-a\", \"two words\"]");
                self.fault(&at.span, message, help);
                Vec::new()
            }),
        }
    }

    /// A whole number within limits.
    fn number(&mut self, key: &str, at: &At<i64>, limits: RangeInclusive<u32>) -> Option<u32> {
        let number = u32::try_from(at.value).ok().filter(|n| limits.contains(n));
        if number.is_none() {
            let (least, most) = limits.into_inner();
            let message = format!("`{key}` cannot be {}", at.value);
            self.fault(&at.span, message, format!("{least} to {most} is possible: {key} = {}", least.max(1)));
        }
        number
    }

    fn number_or(
        &mut self,
        key: &str,
        at: Option<&At<i64>>,
        limits: RangeInclusive<u32>,
        default: u32,
    ) -> u32 {
        at.and_then(|at| self.number(key, at, limits)).unwrap_or(default)
    }

    /// A duration in whole seconds, rounded up.
    fn seconds(&mut self, key: &str, at: Option<&At<String>>, default: u64) -> u64 {
        let Some(at) = at else { return default };
        let help = format!("a number and a unit, at least a second: {key} = \"90s\", \"10m\", \"1h 30m\"");
        match humantime::parse_duration(at) {
            Ok(d) if d.as_secs() >= 1 => {
                return d.as_secs().saturating_add(u64::from(d.subsec_nanos() > 0));
            }
            Ok(_) => self.fault(&at.span, format!("`{key}` of `{}` is less than a second", at.value), help),
            Err(e) => self.fault(&at.span, format!("`{key}` is no duration: `{}`: {e}", at.value), help),
        }
        default
    }

    /// A path relative to the matrix file; a fault where `there` says it is not there.
    fn path(&mut self, what: &str, at: &At<String>, there: fn(&Path) -> bool) -> PathBuf {
        let path = self.dir.join(&at.value);
        if at.is_empty() || !there(&path) {
            let message = format!("{what} `{}` is not there", at.value);
            let help = format!("looked for {}; paths are relative to the matrix file", path.display());
            self.fault(&at.span, message, help);
        }
        path
    }

    /// Names of distribution packages: what the package tools take for a name
    /// and nothing else.
    fn packages(&mut self, list: &[At<String>]) -> Vec<String> {
        list.iter().for_each(|at| self.package(at));
        list.iter().map(|at| at.value.clone()).collect()
    }

    fn package(&mut self, at: &At<String>) {
        let usual = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        let first = at.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !first || !at.chars().all(usual) {
            let message = format!("`{}` cannot be a package's name", at.escape_debug());
            self.fault(&at.span, message, "lower-case letters, digits, `+`, `-` and `.`, as in \"rt-tests\"");
        }
    }
}

/// Whether `text` is made of letters, digits and `extra`, and starts with a letter or digit.
fn is_name(text: &str, extra: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
}

fn name(raw: Option<At<String>>, file_name: &str, check: &mut Check) -> String {
    let Some(at) = raw else {
        let stem = Path::new(file_name).file_stem().unwrap_or_default().to_string_lossy();
        let usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name: String = stem.chars().map(|c| if usual(c) { c } else { '_' }).collect();
        return if is_name(&name, "._-") { name } else { format!("matrix{name}") };
    };
    if !is_name(&at, "._-") || at.contains("..") || at.len() > 100 {
        let message = format!("`name` cannot be `{}`", at.escape_debug());
        let help = "it names a directory: up to 100 letters, digits, `.`, `_` and `-`, with a letter or digit first and no `..`: name = \"quickstart\"";
        check.fault(&at.span, message, help);
    }
    at.value
}

const SOURCES: &str = "exactly one of package = \"linux-source-6.12\", path = \"../linux\", tarball = \"linux-6.12.tar.xz\", or git = \"../linux\" with rev = \"v6.12\"";

fn source(raw: Option<At<RawSource>>, axes: &Axes, check: &mut Check) -> Option<Source> {
    let Some(At { value: raw, span }) = raw else {
        check.missing(
            &ROOT,
            "source",
            "no `[source]`: where does the kernel come from?",
            format!("add [source] with {SOURCES}"),
        );
        return None;
    };
    let given =
        [("package", &raw.package), ("path", &raw.path), ("tarball", &raw.tarball), ("git", &raw.git)];
    let given: Vec<_> = given.into_iter().filter_map(|(key, at)| Some((key, at.as_ref()?))).collect();
    if let [(first, _), others @ ..] = given.as_slice() {
        for (key, at) in others {
            check.fault(
                &at.span,
                format!("`source` has both `{first}` and `{key}`"),
                format!("keep {SOURCES}"),
            );
        }
    }
    if let (Some(rev), None) = (&raw.rev, &raw.git) {
        if !check.gone.has(&span, "git") {
            check.fault(&rev.span, "`rev` without `git`", "add git = \"URL or path of the repository\"");
        }
    }
    let Some(first) = given.first() else {
        if raw.rev.is_none() && !check.gone.any(&span) {
            check.fault(&span, "`[source]` names no source", format!("give {SOURCES}"));
        }
        return None;
    };
    let varies = axes.place("rev");
    if let (Some(span), false) = (&varies, first.0 == "git") {
        check.fault(span, "the axis `rev` needs a source in git", "[source] git = \"../linux\"");
    }
    match *first {
        ("package", at) => {
            check.package(at);
            Some(Source::Package(at.value.clone()))
        }
        ("path", at) => Some(Source::Path(check.path("kernel tree", at, Path::is_dir))),
        ("tarball", at) => Some(Source::Tarball(check.path("tarball", at, Path::is_file))),
        (_, at) => git(at, raw.rev.as_ref(), varies.as_ref(), &span, check),
    }
}

/// `varies` is where the axis `rev` is.
fn git(
    at: &At<String>,
    rev: Option<&At<String>>,
    varies: Option<&Range<usize>>,
    table: &Range<usize>,
    check: &mut Check,
) -> Option<Source> {
    revision("git", at, check);
    let rev = match (rev, varies) {
        (Some(rev), Some(_)) => {
            let help = "keep one of them: [source] rev for all cells, or the axis to vary it";
            check.fault(&rev.span, "`rev` is given in `[source]` and as an axis", help);
            return None;
        }
        (Some(rev), None) => revision("rev", rev, check)?,
        (None, Some(_)) => String::new(),
        (None, None) => {
            let help = "name a branch, tag or commit: rev = \"v6.12\"";
            check.missing(table, "rev", "`git` without `rev`", help);
            return None;
        }
    };
    let before_slash = at.split('/').next().unwrap_or_default();
    let url = match before_slash.contains(':') {
        true => at.value.clone(),
        false => check.path("git repository", at, Path::is_dir).to_string_lossy().into_owned(),
    };
    Some(Source::Git { url, rev })
}

/// What git takes for a repository or revision, and not for an option.
fn revision(key: &str, at: &At<String>, check: &mut Check) -> Option<String> {
    let mut good = check.line(key, at);
    if at.is_empty() || at.starts_with('-') {
        let message = format!("`{key}` cannot be `{}`", at.value);
        check.fault(&at.span, message, "git = \"../linux\" and rev = \"v6.12\", for example");
        good = false;
    }
    good.then(|| at.value.clone())
}
