//! Axes, labels, `exclude` and `include`.

use std::collections::{HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use indexmap::IndexMap;

use super::Check;
use crate::matrix::expand::{self, ARCH, Rule, file_safe, symbol};
use crate::matrix::hint::{closest, quoted, suggest};
use crate::matrix::raw::{At, Map, OneOrMany, Scalar};
use crate::matrix::read::ROOT;
use crate::model::{Axis, Cell, MAX_NR_CPUS, Means, Setting};

/// Most cells that a matrix may have; more is a slip, not an experiment.
pub(super) const MAX_CELLS: usize = 10_000;
/// Longest id of a cell, so that it fits a file name with an ending behind it.
const MAX_ID: usize = 200;

/// The axes that could be read.
#[derive(Default)]
pub(super) struct Axes {
    /// In the order of the file.
    pub list: Vec<Axis>,
    /// Place of the table.
    pub span: Range<usize>,
    /// Whether every `exclude` and `include` could be read.
    pub rules_whole: bool,
    /// By axis: what belongs to it beside the model.
    places: Vec<Places>,
    /// Axes that are in the file but could not be read.
    lost: Vec<String>,
}

struct Places {
    /// The name.
    key: Range<usize>,
    /// By value.
    values: Vec<Range<usize>>,
    /// By value: what it sets beside the kernel's configuration.
    settings: Vec<Option<Setting>>,
    /// Values by what they read in names of files.
    safe: HashMap<String, usize>,
    /// Whether every value could be read.
    whole: bool,
}

impl Axes {
    /// Index of the axis that is meant by `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|a| symbol(&a.name) == symbol(name))
    }

    /// Index of the axis that `at` names; a fault where there is none.
    pub fn expect(&self, user: &str, at: &At<String>, check: &mut Check) -> Option<usize> {
        let found = self.find(at);
        if found.is_none() && !self.lost.iter().any(|lost| symbol(lost) == symbol(at)) {
            let message = format!("{user}: there is no axis `{}`", at.escape_debug());
            check.fault(&at.span, message, suggest(at, self.names()));
        }
        found
    }

    /// Index of the value that `at` names on an axis; a fault where there is none.
    pub fn expect_value(&self, user: &str, axis: usize, at: &At<Scalar>, check: &mut Check) -> Option<usize> {
        let text = text_of(at, check.text);
        let found = self.value(axis, &text);
        let values = &self.list[axis].values;
        if found.is_none() && self.places[axis].whole {
            let message =
                format!("{user}: axis `{}` has no value `{}`", self.list[axis].name, text.escape_debug());
            check.fault(&at.span, message, suggest(&text, values.iter().map(String::as_str)));
        }
        found
    }

    fn value(&self, axis: usize, text: &str) -> Option<usize> {
        self.list[axis].values.iter().position(|v| v == text)
    }

    /// Where the axis is named, if there is one of this name.
    pub fn place(&self, name: &str) -> Option<Range<usize>> {
        self.find(name).map(|axis| self.places[axis].key.clone())
    }

    /// Whether there is an axis of this name with this value.
    pub fn has_value(&self, name: &str, text: &str) -> bool {
        self.find(name).is_some_and(|axis| self.value(axis, text).is_some())
    }

    /// Names of the axes.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.list.iter().map(|a| a.name.as_str())
    }

    /// Whether nothing of the axes was faulty, so that what is missing is missing.
    pub fn whole(&self) -> bool {
        self.lost.is_empty()
            && self.rules_whole
            && self.places.iter().all(|p| p.whole)
            && self.find(ARCH).is_some()
    }

    /// Place of the value that a coordinate has on an axis.
    pub fn value_span(&self, axis: &str, coord: &[usize]) -> Option<Range<usize>> {
        let axis = self.find(axis)?;
        Some(self.places[axis].values[coord[axis]].clone())
    }

    /// The cells at `coords`.
    pub fn cells(&self, coords: &[Vec<usize>]) -> Vec<Cell> {
        let settings = |coord: &[usize]| -> Vec<Setting> {
            self.places.iter().zip(coord).filter_map(|(places, at)| places.settings[*at].clone()).collect()
        };
        let cell = |coord: &Vec<usize>| Cell { settings: settings(coord), ..expand::cell(&self.list, coord) };
        coords.iter().map(cell).collect()
    }

    /// Faults for placeholders that stand in none of `texts`: the axis would
    /// multiply cells that are all the same.
    pub fn placeholders_used(&self, texts: &[&str], check: &mut Check) {
        for (axis, places) in self.list.iter().zip(&self.places) {
            let written = format!("{{{}}}", axis.name);
            let placeholder = Means::of(&axis.name) == Some(Means::Placeholder);
            if !placeholder || texts.iter().any(|text| text.contains(&written)) {
                continue;
            }
            let message = format!("nothing depends on the axis `{}`", axis.name);
            let upper = axis.name.to_uppercase();
            let known = [ARCH, "rev", "patches", "NR_CPUS", "OFFSTACK"].into_iter().chain(Means::BOOT);
            let meant = closest(&axis.name, known).unwrap_or(&upper);
            let help = format!(
                "did you mean `{meant}`? a lower-case name stands as {written} in a benchmark's args or in [boot] cmdline"
            );
            check.fault(&places.key, message, help);
        }
    }

    /// Values of the axis `arch`.
    pub fn archs(&self) -> &[String] {
        self.find(ARCH).map_or(&[], |i| &self.list[i].values)
    }

    /// Adds a value; a fault where it is there already, or another reads the
    /// same in names of files.
    fn push(&mut self, axis: usize, value: Value, span: Range<usize>, check: &mut Check) -> Option<usize> {
        let Value { text: value, setting } = value;
        let safe = file_safe(&value);
        if let Some(alike) = self.places[axis].safe.get(&safe) {
            let alike = &self.list[axis].values[*alike];
            let message = match *alike == value {
                true => format!("axis `{}` has the value `{value}` twice", self.list[axis].name),
                false => format!("`{value}` and `{alike}` both read `{safe}` in names of files"),
            };
            check.fault(&span, message, "remove or change one of them");
            return None;
        }
        self.places[axis].safe.insert(safe, self.list[axis].values.len());
        self.list[axis].values.push(value);
        self.places[axis].values.push(span);
        self.places[axis].settings.push(setting);
        Some(self.list[axis].values.len() - 1)
    }
}

/// A value of an axis.
struct Value {
    /// In canonical text.
    text: String,
    /// What it sets beside the kernel's configuration.
    setting: Option<Setting>,
}

/// A value in canonical text. A hexadecimal number stays one, because
/// Kconfig's `hex` symbols would read plain digits as hexadecimal.
pub(super) fn text_of(at: &At<Scalar>, text: &str) -> String {
    match &at.value {
        Scalar::Switch(true) => "y".to_owned(),
        Scalar::Switch(false) => "n".to_owned(),
        Scalar::Text(text) => text.clone(),
        Scalar::Whole(number) => match text.get(at.span.clone()) {
            Some(written) if written.starts_with("0x") => format!("{number:#x}"),
            _ => number.to_string(),
        },
    }
}

/// Reads the axes and their values.
pub(super) fn axes(raw: Option<At<Map<OneOrMany<Scalar>>>>, check: &mut Check) -> Axes {
    let known = check.ctx.archs.iter().map(|a| a.name.as_str());
    let arch_example = format!("arch = [\"{}\"]", known.clone().next().unwrap_or_default());
    let arch_help = format!("add {arch_example}; known: {}", quoted(known));
    let Some(At { value: raw, span }) = raw else {
        let help =
            format!("add [axes] with {arch_example}, NR_CPUS = [512, 4096] and OFFSTACK = [\"n\", \"y\"]");
        check.missing(&ROOT, "axes", "no `[axes]`: what varies?", help);
        return Axes::default();
    };
    let lost = check.gone.of(&span).filter(|key| !raw.keys().any(|k| k.as_str() == *key));
    let mut axes = Axes { lost: lost.map(str::to_owned).collect(), span, ..Axes::default() };
    let mut names: HashSet<&str> = HashSet::new();
    for (key, values) in &raw {
        if !names.insert(symbol(key)) {
            let message = format!("axis `{}` is there already under another name", key.value);
            check.fault(
                &key.span,
                message,
                format!("both mean CONFIG_{}: merge their values into one", symbol(key)),
            );
        } else if axis_name(key, check) {
            axis(key, values, &mut axes, check);
        } else {
            axes.lost.push(key.value.clone());
        }
    }
    if !raw.keys().any(|k| k.as_str() == ARCH) {
        let span = axes.span.clone();
        check.missing(&span, ARCH, "`[axes]` has no `arch`", arch_help);
    }
    axes
}

fn axis(key: &At<String>, values: &At<OneOrMany<Scalar>>, axes: &mut Axes, check: &mut Check) {
    let items = values.items();
    let name = key.strip_prefix("CONFIG_").unwrap_or(key).to_owned();
    let whole = !check.gone.has(&axes.span, key);
    if items.is_empty() && whole {
        check.fault(
            &values.span,
            format!("axis `{name}` has no values"),
            format!("name at least one, as in {name} = {}, or remove the axis", example(&name, check)),
        );
        axes.lost.push(name);
        return;
    }
    axes.list.push(Axis { name: name.clone(), values: Vec::new(), labels: Default::default() });
    let (values_of, settings, safe) = Default::default();
    axes.places.push(Places { key: key.span.clone(), values: values_of, settings, safe, whole });
    let at = axes.list.len() - 1;
    for item in items {
        match axis_value(&name, &item, check) {
            Some(value) => {
                axes.push(at, value, item.span, check);
            }
            None => axes.places[at].whole = false,
        }
    }
}

fn example(axis: &str, check: &Check) -> String {
    let arch = || check.ctx.archs.first().map_or("", |a| &a.name);
    match axis {
        ARCH => format!("[\"{}\"]", arch()),
        "vcpus" => "[2, 4]".to_owned(),
        "memory" => "[\"512M\", \"1G\"]".to_owned(),
        "NR_CPUS" => "[512, 4096]".to_owned(),
        _ => "[\"n\", \"y\"]".to_owned(),
    }
}

/// Whether `key` can name an axis; notes a fault otherwise.
fn axis_name(key: &At<String>, check: &mut Check) -> bool {
    let ok = Means::of(key).is_some();
    if !ok {
        let message = format!("`{}` cannot be an axis", key.escape_debug());
        let upper = key.to_uppercase();
        let help = match Means::of(&upper) {
            Some(Means::Symbol) => format!("did you mean `{upper}`?"),
            _ => format!(
                "`arch`, `rev`, `patches`, a key of [boot] ({}), a Kconfig symbol such as NR_CPUS, a kernel parameter such as \"rcuscale.nwriters\", or a name of lower-case letters for {{name}} in a benchmark's args",
                quoted(Means::BOOT)
            ),
        };
        check.fault(&key.span, message, help);
    }
    ok
}

/// Whether `name` has the form of a Kconfig symbol.
pub(super) fn is_symbol(name: &str) -> bool {
    Means::of(name) == Some(Means::Symbol)
}

/// A value of an axis; a fault where it is impossible.
fn axis_value(axis: &str, at: &At<Scalar>, check: &mut Check) -> Option<Value> {
    let text = text_of(at, check.text);
    let plain = |text| Value { text, setting: None };
    let set = |setting| Value { text: text.clone(), setting: Some(setting) };
    match Means::of(axis)? {
        Means::Arch => arch_value(text, at, check).map(plain),
        Means::Symbol => symbol_value(axis, at, check).map(plain),
        Means::Boot => super::boot::setting(axis, &text, &at.span, check).map(set),
        Means::Rev => {
            let at = At { value: text.clone(), span: at.span.clone() };
            super::revision("rev", &at, check).map(|rev| set(Setting::Rev(rev)))
        }
        Means::Patches => {
            let at = At { value: text.clone(), span: at.span.clone() };
            super::kernel::patches(&at, check).map(|files| set(Setting::Patches(files)))
        }
        Means::KernelParameter => {
            let word = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '"');
            if !word {
                let message = format!("`{axis}` cannot be `{}`", text.escape_debug());
                check.fault(
                    &at.span,
                    message,
                    "a word without blanks or quotes: it stands on the kernel's command line",
                );
            }
            word.then(|| set(Setting::KernelParameter(axis.to_owned(), text.clone())))
        }
        Means::Placeholder => {
            let line = At { value: text.clone(), span: at.span.clone() };
            check.line(axis, &line).then(|| set(Setting::Placeholder(axis.to_owned(), text.clone())))
        }
    }
}

fn arch_value(text: String, at: &At<Scalar>, check: &mut Check) -> Option<String> {
    let known = check.ctx.archs.iter().map(|a| a.name.as_str());
    if known.clone().any(|k| k == text) {
        return Some(text);
    }
    let help = suggest(&text, known);
    check.fault(&at.span, format!("unknown architecture `{}`", text.escape_debug()), help);
    None
}

pub(super) fn limited(
    name: &str,
    text: &str,
    at: &At<Scalar>,
    limits: RangeInclusive<u32>,
    check: &mut Check,
) -> Option<String> {
    let number = text.parse().ok().filter(|n: &u32| limits.contains(n));
    if number.is_none() {
        let (least, most) = limits.into_inner();
        let help = format!("a whole number from {least} to {most}");
        check.fault(&at.span, format!("`{name}` cannot be `{}`", text.escape_debug()), help);
    }
    number.map(|n| n.to_string())
}

/// A value of a Kconfig symbol in canonical text; a fault where it is
/// impossible or could break out of its line in the configuration.
pub(super) fn symbol_value(name: &str, at: &At<Scalar>, check: &mut Check) -> Option<String> {
    let text = text_of(at, check.text);
    if text.chars().any(|c| c.is_control() || c == '"' || c == '\\') {
        let message = format!("`{name}` cannot be `{}`", text.escape_debug());
        check.fault(&at.span, message, "no quotes, backslashes or control characters: a value stands quoted on one line of the configuration");
        return None;
    }
    match symbol(name) {
        "NR_CPUS" => limited(name, &text, at, 2..=MAX_NR_CPUS, check),
        "CPUMASK_OFFSTACK" if !["n", "y"].contains(&text.as_str()) => {
            check.fault(&at.span, format!("`{name}` cannot be `{text}`"), "it is a switch: \"n\" or \"y\"");
            None
        }
        _ => Some(text),
    }
}

/// The coordinates of all cells: the product of the axes without what
/// `exclude` matches, then what `include` adds.
pub(super) fn coords(
    axes: &mut Axes,
    exclude: &[At<Map<OneOrMany<Scalar>>>],
    include: &[At<Map<Scalar>>],
    check: &mut Check,
) -> Vec<Vec<usize>> {
    axes.rules_whole = !check.gone.has(&ROOT, "exclude") && !check.gone.has(&ROOT, "include");
    let sizes: Vec<usize> = axes.list.iter().map(|a| a.values.len()).collect();
    let total = expand::count(&sizes);
    if total.is_none_or(|n| n > MAX_CELLS) {
        let n = total.map_or("too many to count".to_owned(), |n| n.to_string());
        let message = format!("the axes span {n} cells, more than {MAX_CELLS}");
        check.fault(&axes.span.clone(), message, "split the matrix into several files, or shorten an axis");
        axes.rules_whole = false;
        return Vec::new();
    }
    let rules: Vec<_> = exclude.iter().map(|raw| rule(raw, axes, check)).collect();
    axes.rules_whole &= rules.iter().all(Option::is_some);
    let mut cells: Vec<_> = match axes.find(ARCH) {
        Some(_) => expand::product(&sizes).collect(),
        None => Vec::new(),
    };
    for (raw, rule) in exclude.iter().zip(rules) {
        let Some(rule) = rule else { continue };
        let before = cells.len();
        cells.retain(|cell| !rule.matches(cell));
        if cells.len() == before && axes.whole() {
            check.fault(
                &raw.span,
                "this `[[exclude]]` leaves out nothing that is not left out already",
                "remove it",
            );
        }
    }
    let mut there: HashSet<_> = match include {
        [] => HashSet::new(),
        _ => cells.iter().cloned().collect(),
    };
    for raw in include {
        let added = included(raw, axes, check);
        axes.rules_whole &= added.is_some();
        let Some(coord) = added else { continue };
        if there.insert(coord.clone()) {
            cells.push(coord);
        } else {
            let message = "this `[[include]]` adds a cell that is there already";
            check.fault(&raw.span, message, "remove it");
        }
    }
    if cells.is_empty() && axes.whole() {
        let span = exclude.first().map_or(&axes.span, |raw| &raw.span).clone();
        check.fault(
            &span,
            "`exclude` leaves no cell",
            "narrow it: an entry leaves out the cells that have all its values",
        );
    }
    cells
}

fn rule(raw: &At<Map<OneOrMany<Scalar>>>, axes: &Axes, check: &mut Check) -> Option<Rule> {
    let mut whole = !check.gone.any(&raw.span);
    if raw.is_empty() && whole {
        check.fault(
            &raw.span,
            "an `[[exclude]]` without any axis would leave out every cell",
            "name what to leave out: NR_CPUS = 256, OFFSTACK = \"y\"",
        );
    }
    whole &= !raw.is_empty();
    let mut rule = Rule(vec![None; axes.list.len()]);
    for (key, values) in &raw.value {
        let Some(axis) = axes.expect("`exclude`", key, check) else {
            whole = false;
            continue;
        };
        let found: Vec<_> =
            values.items().iter().map(|v| axes.expect_value("`exclude`", axis, v, check)).collect();
        if found.is_empty() && !check.gone.has(&raw.span, key) {
            check.fault(
                &values.span,
                format!("`exclude` names no value of `{}`", key.value),
                "name a value, or remove the line to mean all of them",
            );
        }
        whole &= !found.is_empty() && found.iter().all(Option::is_some);
        rule.0[axis] = Some(found.into_iter().flatten().collect());
    }
    whole.then_some(rule)
}

/// The coordinate that an `[[include]]` names; values that are new are added
/// to their axes.
fn included(raw: &At<Map<Scalar>>, axes: &mut Axes, check: &mut Check) -> Option<Vec<usize>> {
    let mut coord = vec![None; axes.list.len()];
    let mut named = vec![false; axes.list.len()];
    let mut whole = !check.gone.any(&raw.span);
    for (key, at) in &raw.value {
        let Some(axis) = axes.expect("`include`", key, check) else {
            whole = false;
            continue;
        };
        named[axis] = true;
        let name = axes.list[axis].name.clone();
        if let Some(value) = axis_value(&name, at, check) {
            coord[axis] = match axes.value(axis, &value.text) {
                Some(there) => Some(there),
                None => axes.push(axis, value, at.span.clone(), check),
            };
        }
    }
    let missing: Vec<&str> =
        axes.names().zip(&named).filter(|(_, named)| !**named).map(|(name, _)| name).collect();
    if let (Some(first), true) = (missing.first(), whole) {
        let message = format!("this `[[include]]` does not say {}", quoted(missing.iter().copied()));
        let help = format!("it names every axis with one value, so add {first} = ...");
        check.fault(&raw.span, message, help);
    }
    coord.into_iter().collect::<Option<Vec<_>>>().filter(|_| whole)
}

/// Reads the labels into their axes.
pub(super) fn labels(raw: &IndexMap<At<String>, At<Map<String>>>, axes: &mut Axes, check: &mut Check) {
    for (key, map) in raw {
        let Some(axis) = axes.expect("`labels`", key, check) else {
            continue;
        };
        for (value, label) in &map.value {
            if !check.line("labels", label) {
                continue;
            }
            let meant = match value.as_str() {
                "true" => Scalar::Switch(true),
                "false" => Scalar::Switch(false),
                text => Scalar::Text(text.to_owned()),
            };
            let meant = At { value: meant, span: value.span.clone() };
            let Some(at) = axes.expect_value("`labels`", axis, &meant, check) else {
                continue;
            };
            let axis = &mut axes.list[axis];
            let twice = axis.values.iter().enumerate().any(|(i, v)| i != at && axis.label(v) == label.value);
            if twice {
                let message = format!("two values of `{}` are labelled `{}`", axis.name, label.value);
                check.fault(&label.span, message, "tables could not tell them apart: change one");
            }
            axis.labels.insert(axis.values[at].clone(), label.value.clone());
        }
    }
}

/// A fault where a cell's id is too long for the name of a file.
pub(super) fn ids_fit(cells: &[Cell], axes: &Axes, check: &mut Check) {
    if let Some(cell) = cells.iter().find(|c| c.id.0.len() > MAX_ID) {
        let message = format!("names of cells become too long: `{}`", cell.id);
        let help = format!(
            "at most {MAX_ID} bytes: fewer axes or shorter values; what does not vary belongs in [kernel] config"
        );
        check.fault(&axes.span, message, help);
    }
}
