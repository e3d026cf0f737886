//! From [`raw`](super::raw) to [`Matrix`]: everything that types cannot say.
//! Every part notes its faults and goes on with what is left, so that one
//! reading finds them all.

mod axes;
mod benchmarks;
mod kernel;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use super::Context;
use super::hint::quoted;
use super::raw::{At, OneOrMany, RawBoot, RawSource};
use super::read::{Gone, ROOT, Reading};
use crate::diag::Diagnostic;
use crate::model::{Accel, Boot, Cell, Firmware, MAX_NR_CPUS, Matrix, Online, Source};

use axes::Axes;
use kernel::Set;

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
    let source = source(raw.source, check);
    let mut axes = axes::axes(raw.axes, check);
    let boot_raw = raw.boot.unwrap_or(At { value: RawBoot::default(), span: ROOT });
    let vcpus = vcpus(&boot_raw, &axes, check);
    let coords = axes::coords(&mut axes, &raw.exclude, &raw.include, check);
    axes::labels(&raw.labels, &mut axes, check);
    let (kernel, set) = kernel::kernel(raw.kernel, &axes, check);
    let cells = axes.cells(&coords, vcpus.count);
    axes::ids_fit(&cells, &axes, check);
    if axes.rules_whole {
        processors(&cells, &coords, &axes, &vcpus, &set, check);
    }
    let boot = boot(boot_raw, check);
    let benchmarks = benchmarks::benchmarks(raw.benchmark, &axes, check);
    let tables = tables::tables(raw.table, &name, &axes, &cells, &benchmarks, check);
    match (source, std::mem::take(&mut check.faults)) {
        (Some(source), faults) if faults.is_empty() => Ok(Matrix {
            name,
            source,
            axes: axes.into_model(),
            cells,
            kernel,
            boot,
            benchmarks: benchmarks.list,
            tables,
        }),
        (_, faults) => Err(faults),
    }
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

fn source(raw: Option<At<RawSource>>, check: &mut Check) -> Option<Source> {
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
    match *first {
        ("package", at) => {
            check.package(at);
            Some(Source::Package(at.value.clone()))
        }
        ("path", at) => Some(Source::Path(check.path("kernel tree", at, Path::is_dir))),
        ("tarball", at) => Some(Source::Tarball(check.path("tarball", at, Path::is_file))),
        (_, at) => git(at, raw.rev.as_ref(), &span, check),
    }
}

fn git(at: &At<String>, rev: Option<&At<String>>, table: &Range<usize>, check: &mut Check) -> Option<Source> {
    let Some(rev) = rev else {
        check.missing(table, "rev", "`git` without `rev`", "name a branch, tag or commit: rev = \"v6.12\"");
        return None;
    };
    for (key, at) in [("git", at), ("rev", rev)] {
        check.line(key, at);
        // git would take it for an option.
        if at.is_empty() || at.starts_with('-') {
            let message = format!("`{key}` cannot be `{}`", at.value);
            check.fault(&at.span, message, "git = \"../linux\" and rev = \"v6.12\", for example");
        }
    }
    let before_slash = at.split('/').next().unwrap_or_default();
    let url = match before_slash.contains(':') {
        true => at.value.clone(),
        false => check.path("git repository", at, Path::is_dir).to_string_lossy().into_owned(),
    };
    Some(Source::Git { url, rev: rev.value.clone() })
}

/// The guest's number of processors where no axis varies it.
struct Vcpus {
    count: u32,
    /// Where the file says it; `None` is the default.
    span: Option<Range<usize>>,
}

fn vcpus(raw: &At<RawBoot>, axes: &Axes, check: &mut Check) -> Vcpus {
    const DEFAULT: u32 = 4;
    let at = raw.vcpus.as_ref();
    if let (Some(at), true) = (at, axes.find(super::expand::VCPUS).is_some()) {
        let help = "keep one of them: [boot] vcpus for all cells, or the axis to vary it";
        check.fault(&at.span, "`vcpus` is given in `[boot]` and as an axis", help);
        return Vcpus { count: DEFAULT, span: None };
    }
    let count = check.number_or("vcpus", at, 1..=MAX_NR_CPUS, DEFAULT);
    Vcpus { count, span: at.map(|at| at.span.clone()) }
}

fn boot(At { value: raw, .. }: At<RawBoot>, check: &mut Check) -> Boot {
    let qemu_args = raw.qemu_args.map(|at| qemu_args(&at, check)).unwrap_or_default();
    // A guest that counts instructions says by its own, slow clock that it is alive.
    let counted = raw.accel.as_ref().is_some_and(|at| at.value == Accel::Icount);
    Boot {
        memory_mib: raw.memory.map_or(1024, |at| memory(&at, check)),
        qemu_args,
        cmdline: check.opt_line("cmdline", raw.cmdline).unwrap_or_default(),
        deadline_s: check.seconds("deadline", raw.deadline.as_ref(), 600),
        silence_s: check.seconds("silence", raw.silence.as_ref(), if counted { 600 } else { 120 }),
        boots: boots(raw.boots.as_ref(), raw.perturb.as_ref(), check),
        accel: raw.accel.map_or_else(Accel::default, |at| at.value),
        firmware: raw.firmware.map_or_else(Firmware::default, |at| firmware(&at, check)),
        online: raw.online.map_or_else(Online::default, |at| at.value),
        perturb: raw.perturb.is_some(),
    }
}

/// Boots of each cell: `perturb` counts them too.
fn boots(boots: Option<&At<i64>>, perturb: Option<&At<i64>>, check: &mut Check) -> u32 {
    let Some(perturb) = perturb else { return check.number_or("boots", boots, 1..=1000, 1) };
    if let Some(boots) = boots {
        check.fault(&boots.span, "`boots` beside `perturb`", "`perturb` says how often each cell is booted");
    }
    check.number_or("perturb", Some(perturb), 1..=1000, 1)
}

fn firmware(at: &At<String>, check: &mut Check) -> Firmware {
    match at.as_str() {
        "auto" => Firmware::Auto,
        "stock" => Firmware::Stock,
        "matrix" => Firmware::Matrix,
        _ => Firmware::File(check.path("firmware", at, Path::is_file)),
    }
}

/// Guest memory in MiB: 64 MiB, below which no kernel of interest boots, to 1 TiB.
fn memory(at: &At<String>, check: &mut Check) -> u64 {
    let text = at.trim();
    let (number, unit) = match text.strip_suffix('G') {
        Some(number) => (number, 1024),
        None => (text.strip_suffix('M').unwrap_or(""), 1),
    };
    let mib = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    mib.filter(|mib| (64..=1024 * 1024).contains(mib)).unwrap_or_else(|| {
        let help = "64M to 1024G, a whole number with M or G behind it: memory = \"1G\"";
        check.fault(&at.span, format!("`memory` cannot be `{}`", at.escape_debug()), help);
        1024
    })
}

/// Options of QEMU that this program gives itself; a second one would make
/// the results untrue.
const OWN_OPTIONS: [(&str, &str); 5] = [
    ("smp", "set [boot] vcpus"),
    ("m", "set [boot] memory"),
    ("append", "set [boot] cmdline"),
    ("kernel", "each cell boots its own kernel"),
    ("initrd", "each cell boots with the guest of this program"),
];

fn qemu_args(at: &At<OneOrMany<String>>, check: &mut Check) -> Vec<String> {
    let words = check.words("qemu_args", at);
    for word in &words {
        let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
        if let Some((_, help)) = OWN_OPTIONS.iter().find(|(own, _)| option == Some(*own)) {
            check.fault(&at.span, format!("`qemu_args` cannot hold `{word}`"), *help);
        }
    }
    words
}

/// A number of processors that the kernels or machines of some cells cannot have.
#[derive(Default)]
struct TooMany {
    vcpus: u32,
    nr_cpus: BTreeSet<u32>,
    archs: BTreeMap<String, u32>,
}

/// Every cell's processors against its `NR_CPUS` and its machine's maximum.
fn processors(
    cells: &[Cell],
    coords: &[Vec<usize>],
    axes: &Axes,
    vcpus: &Vcpus,
    set: &Set,
    check: &mut Check,
) {
    let nr_axis = axes.find("NR_CPUS");
    let nr_set = set.get("NR_CPUS").and_then(|at| at.parse().ok());
    let mut found: BTreeMap<(usize, usize), TooMany> = BTreeMap::new();
    for (cell, coord) in cells.iter().zip(coords) {
        let nr_cpus = cell.config.get("NR_CPUS").and_then(|n| n.parse().ok()).or(nr_set);
        let most = check.ctx.archs.iter().find(|a| a.name == cell.arch).map_or(u32::MAX, |a| a.max_vcpus);
        let over_nr = nr_cpus.filter(|n| cell.vcpus > *n);
        if over_nr.is_none() && cell.vcpus <= most {
            continue;
        }
        let by_axis = |name| axes.value_span(name, coord);
        let place = by_axis(super::expand::VCPUS).or(vcpus.span.clone());
        let nr_place = nr_axis.and(by_axis("NR_CPUS")).or(set.get("NR_CPUS").map(|at| at.span.clone()));
        let place = place.or(nr_place).unwrap_or(axes.span.clone());
        let entry = found.entry((place.start, place.end)).or_default();
        entry.vcpus = cell.vcpus;
        entry.nr_cpus.extend(over_nr);
        if cell.vcpus > most {
            entry.archs.insert(cell.arch.clone(), most);
        }
    }
    for ((start, end), too_many) in found {
        too_many.report(&(start..end), check);
    }
}

impl TooMany {
    fn report(&self, span: &Range<usize>, check: &mut Check) {
        let n = self.vcpus;
        let of_cells: Vec<String> = self.nr_cpus.iter().map(u32::to_string).collect();
        if let Some(least) = self.nr_cpus.first() {
            let message = format!(
                "{n} vcpus do not fit cells with NR_CPUS {}",
                quoted(of_cells.iter().map(String::as_str))
            );
            let help = format!(
                "at most {least} for these cells ([boot] vcpus is 4 by default), or leave them out with [[exclude]]"
            );
            check.fault(span, message, help);
        }
        for (arch, most) in &self.archs {
            let message = format!("{n} vcpus are more than a machine of `{arch}` can have");
            check.fault(span, message, format!("at most {most} for `{arch}`"));
        }
    }
}
