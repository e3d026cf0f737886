//! `[[benchmark]]`: what runs in the guest.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use regex::Regex;

use super::axes::{Axes, text_of};
use super::{Check, is_name};
use crate::matrix::BenchmarkDef;
use crate::matrix::hint::{quoted, suggest};
use crate::matrix::raw::{At, Map, RawBenchmark, RawMetric, Scalar};
use crate::matrix::read::ROOT;
use crate::model::{Benchmark, Console, GuestNeeds, Metric};

/// First parts of the names of metrics that no benchmark gives; none can have them.
const OWN_METRICS: [&str; 5] = ["vmlinux", "image", "boot", "frames", "stack"];

/// The benchmarks that could be read.
#[derive(Default)]
pub(super) struct Benchmarks {
    pub list: Vec<Benchmark>,
    /// Names of those whose metrics are not known because of a fault.
    lost: Vec<String>,
    /// Whether there are benchmarks of which not even the name is known.
    nameless: bool,
    /// Names of those that the kernel runs.
    ends: Vec<At<String>>,
}

impl Benchmarks {
    /// Names of all metrics.
    pub fn metrics(&self) -> Vec<String> {
        let of = |b: &Benchmark| b.metrics.keys().map(|m| format!("{}.{m}", b.name)).collect::<Vec<_>>();
        self.list.iter().flat_map(of).collect()
    }

    /// The kernel's command line with the parameters that benchmarks add to it.
    pub fn on_command_line(&self, mut cmdline: String) -> String {
        for console in self.list.iter().filter_map(|b| b.console.as_ref()) {
            for (name, value) in &console.params {
                let space = if cmdline.is_empty() { "" } else { " " };
                cmdline += &format!("{space}{}.{name}={value}", console.module);
            }
        }
        cmdline
    }

    /// Whether `metric` may belong to a benchmark that is faulty.
    pub fn may_have(&self, metric: &str) -> bool {
        let bench = metric.split_once('.').map_or(metric, |(bench, _)| bench);
        self.nameless || self.lost.iter().any(|lost| lost == bench)
    }
}

pub(super) fn benchmarks(raw: Vec<At<RawBenchmark>>, given: Given<'_>, check: &mut Check) -> Benchmarks {
    let mut all = Benchmarks { nameless: check.gone.has(&ROOT, "benchmark"), ..Benchmarks::default() };
    let mut names = HashSet::new();
    for At { value: raw, span } in raw {
        let Some(name) = name(&raw, &span, check) else {
            all.nameless = true;
            continue;
        };
        if !names.insert(name.value.clone()) {
            let message = format!("there are two benchmarks `{}`", name.value);
            let help = format!("tell them apart: name = \"{}-2\"", name.value);
            check.fault(&name.span, message, help);
        }
        match benchmark(&name.value, raw, &span, given, check) {
            Some(benchmark) => {
                all.ends.extend(benchmark.console.as_ref().map(|_| name));
                all.list.push(benchmark);
            }
            None => all.lost.push(name.value),
        }
    }
    if let (Some(ends), true) = (all.ends.first(), all.list.len() > 1) {
        let message = format!("`{}` is run by the kernel, which then powers off", ends.value);
        check.fault(
            &ends.span,
            message,
            "no other benchmark can be beside it: give it a matrix file of its own",
        );
    }
    all
}

/// The benchmark's name: as given, or that of the built-in one.
fn name(raw: &RawBenchmark, span: &Range<usize>, check: &mut Check) -> Option<At<String>> {
    let Some(name) = &raw.name else {
        if raw.builtin.is_none() && !check.gone.has(span, "use") {
            let help = "give use = \"hackbench\" for a built-in one, or name, command and pattern for your own: name = \"mybench\"";
            check.missing(span, "name", "this `[[benchmark]]` has no `name`", help);
        }
        return raw.builtin.clone();
    };
    if !is_name(name, "_-") || OWN_METRICS.contains(&name.as_str()) {
        let message = format!("`name` of a benchmark cannot be `{}`", name.escape_debug());
        check.fault(
            &name.span,
            message,
            "letters, digits, `_` and `-`, not `vmlinux`, `image`, `boot`, `frames` or `stack`: name = \"mybench\"",
        );
        return None;
    }
    Some(name.clone())
}

fn benchmark(
    name: &str,
    raw: RawBenchmark,
    span: &Range<usize>,
    given: Given<'_>,
    check: &mut Check,
) -> Option<Benchmark> {
    let own_files = raw.files.as_ref().map(|list| files(list, given.axes, check));
    let own_packages = raw.packages.as_ref().map(|list| check.packages(list));
    let mut repeat = check.number_or("repeat", raw.repeat.as_ref(), 1..=10_000, 5);
    let timeout_s = check.seconds("timeout", raw.timeout.as_ref(), 300);
    let what = match raw.builtin.clone() {
        Some(builtin) => from_builtin(&builtin, &raw, given, check),
        None => from_own(&raw, span, check),
    }?;
    if what.console.is_some() {
        repeat = 1;
        needs_no_program(&raw, check);
    } else if let Some((key, _)) = raw.params.first() {
        let help = "only the kernel's own benchmarks have some: args = \"-s 512\" for a program";
        check.fault(&key.span, "`params` of a benchmark that is a program", help);
    }
    let mut guest = what.guest;
    let mut usual = what.packages;
    // Whoever brings the program does not want the distribution's.
    if own_files.is_some() {
        guest.data.clear();
        usual.clear();
    }
    Some(Benchmark {
        name: name.to_owned(),
        command: what.command,
        repeat,
        timeout_s,
        pattern: what.pattern,
        section: what.section,
        metrics: what.metrics,
        packages: own_packages.unwrap_or(usual),
        files: own_files.unwrap_or_default(),
        guest,
        console: what.console,
    })
}

/// Faults for what only programs can have.
fn needs_no_program(raw: &RawBenchmark, check: &mut Check) {
    let foreign = [
        (
            "args",
            raw.args.as_ref().map(|at| &at.span),
            "params = { nwriters = 1 } sets its module's parameters",
        ),
        ("repeat", raw.repeat.as_ref().map(|at| &at.span), "it runs once a boot: [boot] boots = 3"),
        ("timeout", raw.timeout.as_ref().map(|at| &at.span), "set [boot] deadline"),
        ("packages", raw.packages.as_ref().map(|at| &at.span), "it has no program"),
        ("files", raw.files.as_ref().map(|at| &at.span), "it has no program"),
    ];
    for (key, span, help) in foreign {
        if let Some(span) = span {
            check.fault(span, format!("`{key}` of a benchmark that the kernel itself runs"), help);
        }
    }
}

/// What a built-in and a user's own benchmark say in different ways.
struct What {
    command: Vec<String>,
    pattern: String,
    section: Option<String>,
    metrics: IndexMap<String, Metric>,
    packages: Vec<String>,
    guest: GuestNeeds,
    console: Option<Console>,
}

fn from_builtin(at: &At<String>, raw: &RawBenchmark, given: Given<'_>, check: &mut Check) -> Option<What> {
    let foreign = [
        ("command", raw.command.as_ref().map(|at| &at.span)),
        ("pattern", raw.pattern.as_ref().map(|at| &at.span)),
        ("section", raw.section.as_ref().map(|at| &at.span)),
        ("unit", raw.unit.as_ref().map(|at| &at.span)),
        ("better", raw.better.as_ref().map(|at| &at.span)),
        ("metrics", raw.metrics.first().map(|(_, at)| &at.span)),
    ];
    for (key, span) in foreign {
        if let Some(span) = span {
            let help =
                "remove one of them: a built-in one takes args, repeat, timeout, name, packages and files";
            check.fault(span, format!("`use` and `{key}` do not go together"), help);
        }
    }
    let args = raw.args.as_ref().map(|at| check.words("args", at));
    let known = check.ctx.benchmarks.iter();
    let Some(known) = known.clone().find(|b| b.name == at.value) else {
        let help = format!(
            "{}; your own has name, command and pattern",
            suggest(at, known.map(|b| b.name.as_str()))
        );
        check.fault(&at.span, format!("unknown benchmark `{}`", at.escape_debug()), help);
        return None;
    };
    let BenchmarkDef {
        name: _,
        program,
        leading,
        args: usual,
        pattern,
        section,
        metrics,
        packages,
        guest,
        console,
    } = known.clone();
    let mut command = Vec::new();
    if console.is_none() {
        command.push(program);
        command.extend(leading);
        command.extend(args.unwrap_or(usual));
    }
    let console = console.map(|console| with_params(console, &raw.params, given, check));
    Some(What { command, pattern, section, metrics, packages, guest, console })
}

/// Kernel parameters that the matrix file gives beside a benchmark's own.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub axes: &'a Axes,
    /// `[boot] cmdline`
    pub cmdline: &'a str,
}

impl Given<'_> {
    /// Where a parameter is given, if it is.
    fn place(self, parameter: &str) -> Option<&'static str> {
        // The kernel takes both for the same.
        let same = |name: &str| name.replace('-', "_") == parameter.replace('-', "_");
        if self.axes.names().any(same) {
            return Some("as an axis");
        }
        let mut words = self.cmdline.split_whitespace();
        words.any(|word| same(word.split('=').next().unwrap_or_default())).then_some("in `[boot] cmdline`")
    }
}

/// The benchmark with the parameters that it adds to the kernel's command line:
/// the file's own, and the usual ones that are given nowhere.
fn with_params(mut console: Console, params: &Map<Scalar>, given: Given<'_>, check: &mut Check) -> Console {
    let full = |name: &str| format!("{}.{name}", console.module);
    let mut own = console.params.clone();
    own.retain(|name, _| given.place(&full(name)).is_none());
    for (key, at) in params {
        let value = text_of(at, check.text);
        let graphic = value.chars().all(|c| c.is_ascii_graphic() && c != '"');
        if !is_name(key, "_-") {
            let message = format!("`{}` cannot be a module parameter", key.escape_debug());
            let help =
                format!("its name without the module's, `{}.`: params = {{ nwriters = 1 }}", console.module);
            check.fault(&key.span, message, help);
        } else if let Some(place) = given.place(&full(key)) {
            let message = format!("`{}` is given here and {place}", full(key));
            check.fault(&key.span, message, "keep one of them");
        } else if value.is_empty() || !graphic {
            let message = format!("`{}` cannot be `{}`", key.value, value.escape_debug());
            let help = "a word without blanks or quotes: it stands on the kernel's command line";
            check.fault(&at.span, message, help);
        }
        own.insert(key.value.clone(), value);
    }
    console.params = own;
    console
}

fn from_own(raw: &RawBenchmark, span: &Range<usize>, check: &mut Check) -> Option<What> {
    if let Some(args) = &raw.args {
        if !check.gone.has(span, "use") {
            check.fault(
                &args.span,
                "`args` without `use`",
                "put the arguments into command = \"mybench --loops 20\"",
            );
        }
    }
    if raw.command.is_none() {
        check.missing(
            span,
            "command",
            "this `[[benchmark]]` has no `command`",
            "name the program and its arguments: command = \"mybench --loops 20\"",
        );
    }
    let command = raw.command.as_ref().map(|at| {
        let words = check.words("command", at);
        if words.first().is_none_or(|program| program.is_empty()) {
            check.fault(&at.span, "`command` names no program", "as in command = \"mybench --loops 20\"");
        }
        words
    });
    if raw.pattern.is_none() {
        let help = "say where its output holds the values: pattern = 'took (?<time>[0-9.]+) s'";
        check.missing(span, "pattern", "this `[[benchmark]]` has no `pattern`", help);
    }
    let section = raw.section.as_ref().map(|at| {
        regex("section", at, "'^Latencies'", check);
        at.value.clone()
    });
    let pattern = raw.pattern.as_ref()?;
    let metrics = metrics(pattern, raw, span, check)?;
    Some(What {
        command: command?,
        pattern: pattern.value.clone(),
        section,
        metrics,
        packages: Vec::new(),
        guest: GuestNeeds::default(),
        console: None,
    })
}

/// The meaning of every named group of the pattern.
fn metrics(
    pattern: &At<String>,
    raw: &RawBenchmark,
    span: &Range<usize>,
    check: &mut Check,
) -> Option<IndexMap<String, Metric>> {
    let groups = groups(pattern, check)?;
    for (key, _) in &raw.metrics {
        if !groups.contains(&key.value) {
            let message = format!("`pattern` has no group `{}`", key.escape_debug());
            check.fault(&key.span, message, suggest(key, groups.iter().map(String::as_str)));
        }
    }
    let fallback = At { value: RawMetric::default(), span: span.clone() };
    let mut all = IndexMap::new();
    for group in groups {
        let own = raw.metrics.iter().find(|(key, _)| key.value == group).map_or(&fallback, |(_, own)| own);
        let unit = own.unit.as_ref().or(raw.unit.as_ref());
        let better = own.better.as_ref().or(raw.better.as_ref());
        if let Some(unit) = unit {
            check.line("unit", unit);
        }
        let has = [
            ("unit", unit.is_some(), "unit = \"s\""),
            ("better", better.is_some(), "better = \"lower\" or \"higher\""),
        ];
        for (key, given, example) in has {
            if !given && !check.gone.has(&own.span, key) && !check.gone.has(span, key) {
                check.fault(
                    &pattern.span,
                    format!("metric `{group}` has no `{key}`"),
                    format!("add {example}"),
                );
            }
        }
        if let (Some(unit), Some(better)) = (unit, better) {
            all.insert(group, Metric { unit: unit.value.clone(), better: better.value });
        }
    }
    Some(all)
}

/// A regular expression, or the fault that it is none.
fn regex(key: &str, at: &At<String>, example: &str, check: &mut Check) -> Option<Regex> {
    match Regex::new(at) {
        Ok(regex) => Some(regex),
        Err(e) => {
            let e = e.to_string();
            let why = e.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let help = format!("in single quotes backslashes stay as they are: {key} = {example}");
            check.fault(&at.span, format!("`{key}` is no regular expression: {why}"), help);
            None
        }
    }
}

/// Named groups of a pattern; faults where it does not compile or has none.
fn groups(pattern: &At<String>, check: &mut Check) -> Option<Vec<String>> {
    let regex = regex("pattern", pattern, "'took (?<time>[0-9.]+) s'", check)?;
    let names: Vec<_> = regex.capture_names().flatten().map(str::to_owned).collect();
    if names.is_empty() {
        let help = "each metric is a named group: pattern = 'took (?<time>[0-9.]+) s'";
        check.fault(&pattern.span, "`pattern` has no named group", help);
        return None;
    }
    Some(names)
}

/// The host's files; each must be there for every architecture of the matrix.
fn files(list: &At<Vec<At<String>>>, axes: &Axes, check: &mut Check) -> Vec<PathBuf> {
    let mut names = HashSet::new();
    for at in &list.value {
        let lacking: Vec<&str> = match at.contains("{arch}") {
            false => {
                check.path("file", at, Path::is_file);
                Vec::new()
            }
            true => axes
                .archs()
                .iter()
                .map(String::as_str)
                .filter(|a| !check.dir.join(at.replace("{arch}", a)).is_file())
                .collect(),
        };
        if !lacking.is_empty() {
            let message = format!("file `{}` is not there for {}", at.value, quoted(lacking));
            check.fault(
                &at.span,
                message,
                format!("looked in {}; paths are relative to the matrix file", check.dir.display()),
            );
        }
        let name = Path::new(&at.value).file_name().unwrap_or_default();
        if !names.insert(name) {
            let message = format!("two files would be /bin/{}", name.to_string_lossy());
            check.fault(&at.span, message, "rename one of them");
        }
    }
    list.iter().map(|at| check.dir.join(&at.value)).collect()
}
