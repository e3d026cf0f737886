//! `[boot]`: how each kernel is booted. Some of its keys can be axes instead.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use super::Check;
use super::axes::{Axes, limited};
use super::kernel::Set;
use super::topology::topology;
use crate::matrix::hint::quoted;
use crate::matrix::raw::{At, OneOrMany, RawBoot, RawTiming, Scalar};
use crate::model::{
    Accel, Boot, Cell, Firmware, Level, MAX_NR_CPUS, Matrix, Means, Online, Setting, is_size,
};

const DEFAULT_VCPUS: u32 = 4;
/// Percent that others may have of the host: what a desktop at rest stays below.
const MAX_OTHER_LOAD: f64 = 10.0;

pub(super) fn boot(At { value: raw, .. }: At<RawBoot>, axes: &Axes, check: &mut Check) -> Boot {
    not_twice(&raw, axes, check);
    let accel = accel(&raw, axes, check);
    let boots = boots(&raw, check);
    let topology = topology(&raw, axes, check);
    let memory_mib = match &raw.memory {
        None if !topology.numa_memory.is_empty() => topology.numa_memory.iter().sum(),
        given => given.as_ref().and_then(|at| memory("memory", at, check)).unwrap_or(1024),
    };
    let qemu_args = raw.qemu_args.map(|at| qemu_args(&at, check)).unwrap_or_default();
    // A guest that counts instructions says by its own, slow clock that it is alive.
    let counted = accel == Accel::Icount || axes.has_value("accel", "icount");
    Boot {
        vcpus: check.number_or("vcpus", raw.vcpus.as_ref(), 1..=MAX_NR_CPUS, DEFAULT_VCPUS),
        memory_mib,
        topology,
        qemu_args,
        cmdline: check.opt_line("cmdline", raw.cmdline).unwrap_or_default(),
        deadline_s: check.seconds("deadline", raw.deadline.as_ref(), 600),
        silence_s: check.seconds("silence", raw.silence.as_ref(), if counted { 600 } else { 120 }),
        boots,
        until: raw.until.as_ref().and_then(|at| until(at, raw.perturb.is_some(), check)),
        accel,
        firmware: raw.firmware.map_or_else(Firmware::default, |at| firmware(&at, check)),
        online: raw.online.map_or_else(Online::default, |at| at.value),
        perturb: raw.perturb.is_some(),
        max_other_load: max_other_load(raw.max_other_load.as_ref(), check),
        allow: raw.allow.iter().filter_map(|at| allowed(at, check)).collect(),
    }
}

/// What a value of an axis that is named like a key of `[boot]` sets.
pub(super) fn setting(key: &str, text: &str, span: &Range<usize>, check: &mut Check) -> Option<Setting> {
    let at = At { value: text.to_owned(), span: span.clone() };
    match key {
        "vcpus" => count(key, &at, check).map(Setting::Vcpus),
        "numa" => count(key, &at, check).map(Setting::Numa),
        "memory" => memory(key, &at, check).map(Setting::Memory),
        "accel" => word(key, &at, check).map(Setting::Accel),
        "online" => word(key, &at, check).map(Setting::Online),
        "firmware" => Some(Setting::Firmware(firmware(&at, check))),
        _ => {
            let level = Level::ALL.into_iter().find(|level| level.name() == key)?;
            count(key, &at, check).map(|n| Setting::Level(level, n))
        }
    }
}

/// A number of processors, or of something that is made of them.
fn count(key: &str, at: &At<String>, check: &mut Check) -> Option<u32> {
    let scalar = At { value: Scalar::Text(at.value.clone()), span: at.span.clone() };
    limited(key, at, &scalar, 1..=MAX_NR_CPUS, check)?.parse().ok()
}

/// One of the words that `T` is written as.
fn word<T: for<'de> Deserialize<'de>>(key: &str, at: &At<String>, check: &mut Check) -> Option<T> {
    let text: StrDeserializer<'_, Error> = at.as_str().into_deserializer();
    T::deserialize(text)
        .map_err(|error| check.fault(&at.span, format!("`{key}`: {error}"), "use one of them"))
        .ok()
}

/// Where the file gives what can be an axis instead, or goes with such a key.
pub(super) fn places(raw: &RawBoot) -> BTreeMap<&'static str, Range<usize>> {
    let number = |at: &Option<At<i64>>| at.as_ref().map(|at| at.span.clone());
    let text = |at: &Option<At<String>>| at.as_ref().map(|at| at.span.clone());
    let places = [
        ("vcpus", number(&raw.vcpus)),
        ("memory", text(&raw.memory)),
        ("sockets", number(&raw.sockets)),
        ("clusters", number(&raw.clusters)),
        ("cores", number(&raw.cores)),
        ("threads", number(&raw.threads)),
        ("numa", number(&raw.numa)),
        ("numa_memory", raw.numa_memory.as_ref().map(|at| at.span.clone())),
        ("numa_distances", raw.numa_distances.as_ref().map(|at| at.span.clone())),
        ("accel", raw.accel.as_ref().map(|at| at.span.clone())),
        ("firmware", text(&raw.firmware)),
        ("online", raw.online.as_ref().map(|at| at.span.clone())),
        ("boots", number(&raw.boots)),
    ];
    places.into_iter().filter_map(|(key, span)| Some((key, span?))).collect()
}

/// A key of `[boot]` is either given there or an axis.
fn not_twice(raw: &RawBoot, axes: &Axes, check: &mut Check) {
    let places = places(raw);
    for key in Means::BOOT.into_iter().filter(|key| axes.find(key).is_some()) {
        if let Some(span) = places.get(key) {
            let help = format!("keep one of them: [boot] {key} for all cells, or the axis to vary it");
            check.fault(span, format!("`{key}` is given in `[boot]` and as an axis"), help);
        }
    }
}

/// `timing` says what `accel` has to be.
fn accel(raw: &RawBoot, axes: &Axes, check: &mut Check) -> Accel {
    let accel = raw.accel.as_ref().map_or(Accel::Auto, |at| at.value);
    let Some(timing) = &raw.timing else { return accel };
    let help = "only `icount` counts instructions: leave out one of the two";
    if axes.find("accel").is_some() {
        check.fault(&timing.span, "`timing` beside the axis `accel`", help);
    }
    match (timing.value, accel) {
        (RawTiming::Instructions, Accel::Auto | Accel::Icount) => Accel::Icount,
        (RawTiming::WallClock, Accel::Icount) | (RawTiming::Instructions, _) => {
            check.fault(&timing.span, "`timing` and `accel` contradict each other", help);
            accel
        }
        (RawTiming::WallClock, _) => accel,
    }
}

/// A pattern of console lines; one that matches every line would hide all.
fn allowed(at: &At<String>, check: &mut Check) -> Option<String> {
    let message = match regex::bytes::Regex::new(at) {
        Ok(pattern) if pattern.is_match(b"") => "`allow` holds a pattern that matches every line".to_owned(),
        Ok(_) => return Some(at.value.clone()),
        Err(error) => {
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("`allow` holds no regular expression: {why}")
        }
    };
    check.fault(&at.span, message, "as in allow = ['WARNING: .* at kernel/sched/topology\\.c']");
    None
}

/// Half the width of an interval in percent: `±1%`, with or without its sign.
fn until(at: &At<String>, perturb: bool, check: &mut Check) -> Option<f64> {
    if perturb {
        let help = "under `perturb` every cell has the same seeds, so that they can be compared in pairs: remove one";
        check.fault(&at.span, "`until` beside `perturb`", help);
        return None;
    }
    let number = at.trim().trim_start_matches(['±', '+', '-', '/']).strip_suffix('%');
    let percent = number.and_then(|n| n.trim().parse::<f64>().ok()).filter(|p| (0.001..=100.0).contains(p));
    if percent.is_none() {
        let message = format!("`until` cannot be `{}`", at.escape_debug());
        check.fault(&at.span, message, "0.001% to 100% of the mean, to either side: until = \"±1%\"");
    }
    percent
}

/// A part of the processors' time in percent, or none that is too much.
fn max_other_load(at: Option<&At<String>>, check: &mut Check) -> Option<f64> {
    let Some(at) = at else { return Some(MAX_OTHER_LOAD) };
    if at.as_str() == "off" {
        return None;
    }
    let percent = at.trim().strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
    let percent = percent.filter(|p| (0.1..=100.0).contains(p));
    if percent.is_none() {
        let message = format!("`max_other_load` cannot be `{}`", at.escape_debug());
        let help = "0.1% to 100% of the processors' time, or \"off\": max_other_load = \"10%\"";
        check.fault(&at.span, message, help);
    }
    percent
}

/// Boots of each cell: `perturb` counts them too, `until` makes them a maximum.
fn boots(raw: &RawBoot, check: &mut Check) -> u32 {
    let default = if raw.until.is_some() { 20 } else { 1 };
    let Some(perturb) = &raw.perturb else {
        return check.number_or("boots", raw.boots.as_ref(), 0..=1000, default);
    };
    if let Some(boots) = &raw.boots {
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

/// Memory in MiB: 64 MiB, below which no kernel of interest boots, to 1 TiB.
pub(super) fn memory(key: &str, at: &At<String>, check: &mut Check) -> Option<u64> {
    let text = at.trim();
    let (number, unit) = match text.strip_suffix('G') {
        Some(number) => (number, 1024),
        None => (text.strip_suffix('M').unwrap_or(""), 1),
    };
    let mib = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    let mib = mib.filter(|mib| (64..=1024 * 1024).contains(mib));
    if mib.is_none() {
        let help = "64M to 1024G, a whole number with M or G behind it: memory = \"1G\"";
        check.fault(&at.span, format!("`{key}` cannot be `{}`", at.escape_debug()), help);
    }
    mib
}

/// Options of QEMU that this program gives itself; a second one would make
/// the results untrue.
const OWN_OPTIONS: [(&str, &str); 6] = [
    ("smp", "set [boot] vcpus"),
    ("m", "set [boot] memory"),
    ("numa", "set [boot] numa"),
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

/// Without boots there is nothing but sizes.
pub(super) fn unbooted(matrix: &Matrix, place: Option<&Range<usize>>, check: &mut Check) {
    let Some(place) = place.filter(|_| matrix.boot.boots == 0) else { return };
    let shown = matrix.tables.iter().flat_map(|t| t.layout.metrics()).find(|m| !is_size(m));
    let message = match (matrix.benchmarks.first(), shown) {
        (Some(benchmark), _) => format!("`{}` would never run: `boots` is 0", benchmark.name),
        (None, Some(metric)) => format!("a table shows `{metric}`, but `boots` is 0"),
        (None, None) if matrix.boot.until.is_some() => "`until` beside `boots = 0`".to_owned(),
        (None, None) => return,
    };
    check.fault(place, message, "kernels that are not booted have sizes alone: boots = 1");
}

/// A number of processors that the kernels or machines of some cells cannot have.
#[derive(Default)]
struct TooMany {
    vcpus: u32,
    nr_cpus: BTreeSet<u32>,
    archs: BTreeMap<String, u32>,
}

/// Every cell's processors against its `NR_CPUS` and its machine's maximum;
/// `place` is where the file says how many there are.
pub(super) fn processors(
    matrix: &Matrix,
    coords: &[Vec<usize>],
    axes: &Axes,
    place: Option<&Range<usize>>,
    set: &Set,
    check: &mut Check,
) {
    let nr_axis = axes.find("NR_CPUS");
    let nr_set = set.get("NR_CPUS").and_then(|at| at.parse().ok());
    let mut found: BTreeMap<(usize, usize), TooMany> = BTreeMap::new();
    for (cell, coord) in matrix.cells.iter().zip(coords) {
        let vcpus = vcpus(matrix, cell);
        let nr_cpus = cell.config.get("NR_CPUS").and_then(|n| n.parse().ok()).or(nr_set);
        let most = check.ctx.archs.iter().find(|a| a.name == cell.arch).map_or(u32::MAX, |a| a.max_vcpus);
        let over_nr = nr_cpus.filter(|n| vcpus > *n);
        if over_nr.is_none() && vcpus <= most {
            continue;
        }
        let by_axis = |name| axes.value_span(name, coord);
        let place = by_axis("vcpus").or(place.cloned());
        let nr_place = nr_axis.and(by_axis("NR_CPUS")).or(set.get("NR_CPUS").map(|at| at.span.clone()));
        let place = place.or(nr_place).unwrap_or(axes.span.clone());
        let entry = found.entry((place.start, place.end)).or_default();
        entry.vcpus = vcpus;
        entry.nr_cpus.extend(over_nr);
        if vcpus > most {
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

/// Processors of a cell, without the cost of its whole [`Boot`].
fn vcpus(matrix: &Matrix, cell: &Cell) -> u32 {
    let own = cell.settings.iter().find_map(|s| match s {
        Setting::Vcpus(n) => Some(*n),
        _ => None,
    });
    own.unwrap_or(matrix.boot.vcpus)
}
