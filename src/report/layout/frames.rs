//! Tables of stack frames: the largest of each kernel, and those that differ
//! between kernels.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{View, labels, values};
use crate::model::{Cell, Direction, FRAMES_MAX, Frames, Kind, Statistic};
use crate::report::{Column, Field, Measured, Table};
use crate::stats::{self, Estimate, Untested};

/// Most rows of differing frames; a footnote counts the others.
const DIFFERING: usize = 30;
/// Functions that a footnote names.
const NAMED: usize = 3;

impl<'a> View<'a> {
    /// Both tables of every block; the second where there is something to compare.
    pub(super) fn frames(self, compare: Option<&str>, top: usize) -> Vec<Table> {
        let taken: Vec<&str> = compare.into_iter().collect();
        let mut tables = Vec::new();
        for place in self.blocks(&taken) {
            let here = |c: &&Cell| place.iter().all(|(a, v)| c.coords.get(*a).is_some_and(|x| x == v));
            let kernels = self.cells().filter(here).map(|cell| Kernel::of(self, cell, compare));
            let kernels: Vec<Kernel> = kernels.collect();
            let states: Vec<Field> = kernels.iter().map(|k| k.state.clone()).collect();
            let table = |(header, rows, notes): Parts| {
                let mut table = self.table(self.subtitle(&place), header, rows, &states);
                table.footnotes.extend(notes);
                table
            };
            tables.push(table(largest(&kernels, top)));
            if kernels.len() > 1 {
                let table = table(differing(&kernels));
                tables.push(Table { title: format!("{}: what differs", table.title), ..table });
            }
        }
        tables
    }
}

/// Header, rows and footnotes.
type Parts = (Vec<Column>, Vec<Vec<Field>>, Vec<String>);

/// A column: the kernel of a cell.
struct Kernel<'a> {
    cell: &'a Cell,
    title: String,
    frames: Option<&'a Frames>,
    /// The largest frame, or why there is none.
    state: Field,
}

impl<'a> Kernel<'a> {
    fn of(view: View<'a>, cell: &'a Cell, compare: Option<&str>) -> Kernel<'a> {
        let state = view.field(cell, FRAMES_MAX);
        let frames = view.results.frames.get(&cell.id).filter(|_| !matches!(state, Field::Failed { .. }));
        let value = compare.and_then(|axis| Some(view.label(axis, cell.coords.get(axis)?)));
        let title = value.unwrap_or("bytes").to_owned();
        let state = match (&frames, state) {
            (None, Field::Measured(_)) => Field::Missing,
            (_, state) => state,
        };
        Kernel { cell, title, frames, state }
    }

    fn bytes(&self, function: &str) -> Option<u64> {
        self.frames?.bytes.get(function).copied()
    }

    /// What stands for a function.
    fn field(&self, function: &str) -> Field {
        match self.frames {
            None => self.state.clone(),
            Some(_) => self.bytes(function).map_or_else(absent, |b| self.measured(b)),
        }
    }

    fn measured(&self, bytes: u64) -> Field {
        let value = bytes as f64;
        Estimate::of(&[value]).map_or(Field::Missing, |estimate| {
            Field::Measured(Box::new(Measured {
                value,
                text: stats::fixed(value, 0),
                unit: "bytes".to_owned(),
                better: Direction::Lower,
                metric: "frame".to_owned(),
                cell: self.cell.id.clone(),
                kind: Kind::Exact,
                statistic: Statistic::Max,
                boots: 0,
                estimate,
                interval: None,
                observed: Err(Untested::NoValue),
            }))
        })
    }

    /// Names of its largest frames.
    fn top(&self, top: usize) -> impl Iterator<Item = &'a str> {
        let all = self.frames.into_iter().flat_map(|f| &f.bytes);
        let mut all: Vec<(&str, u64)> = all.map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        all.sort_by_key(|(name, bytes)| (Reverse(*bytes), *name));
        all.into_iter().take(top).map(|(name, _)| name)
    }
}

/// What stands for a function that the kernel does not have.
fn absent() -> Field {
    Field::Text("absent".to_owned())
}

/// The largest frames of each kernel, and all together.
fn largest(kernels: &[Kernel], top: usize) -> Parts {
    let names: BTreeSet<&str> = kernels.iter().flat_map(|k| k.top(top)).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| (Reverse(kernels.iter().filter_map(|k| k.bytes(name)).max()), *name));
    let mut marks = Marks::default();
    let row =
        |name: &&str| labelled(marks.label(name, kernels), kernels.iter().map(|k| k.field(name)).collect());
    let mut rows: Vec<Vec<Field>> = names.iter().map(row).collect();
    let sum = |k: &Kernel| k.frames.map_or_else(|| k.state.clone(), |f| k.measured(f.sum()));
    rows.push(labelled("sum of all frames".to_owned(), kernels.iter().map(sum).collect()));
    let mut header = vec![labels("function")];
    header.extend(kernels.iter().map(|k| values(k.title.as_str())));
    marks.absent = rows.iter().flatten().any(|f| *f == absent());
    (header, rows, marks.notes())
}

/// What footnotes have to explain.
#[derive(Default)]
struct Marks {
    absent: bool,
    dynamic: bool,
    namesakes: bool,
}

impl Marks {
    /// The function's name with what is special about it.
    fn label(&mut self, name: &str, kernels: &[Kernel]) -> String {
        let frames = || kernels.iter().filter_map(|k| k.frames);
        let mut label = name.to_owned();
        if frames().any(|f| f.dynamic.contains(name)) {
            self.dynamic = true;
            label.push_str(" (dynamic)");
        }
        if let Some(n) = frames().filter_map(|f| f.namesakes.get(name)).max() {
            self.namesakes = true;
            label.push_str(&format!(" (of {n})"));
        }
        label
    }

    fn notes(&self) -> Vec<String> {
        let notes = [
            (self.absent, "absent: this kernel has no such function"),
            (self.dynamic, "(dynamic): it takes more, by an amount that only run time tells"),
            (self.namesakes, "(of N): the largest of N functions with this name"),
        ];
        notes.iter().filter(|(on, _)| *on).map(|(_, note)| (*note).to_owned()).collect()
    }
}

/// A row with its label.
fn labelled(label: String, fields: Vec<Field>) -> Vec<Field> {
    std::iter::once(Field::Text(label)).chain(fields).collect()
}

/// A function that two kernels have, under one name or two.
struct Pair<'a> {
    /// Its name in the kernel that is compared with the first.
    other: &'a str,
    change: i64,
}

/// What each other kernel has of the first one's functions.
type Pairs<'a> = Vec<BTreeMap<&'a str, Pair<'a>>>;

/// The frames that are not the same in the first kernel and one of the others,
/// the greatest change first.
fn differing(kernels: &[Kernel]) -> Parts {
    let Some((first, others)) = kernels.split_first() else { return Parts::default() };
    let pairs: Pairs = others.iter().map(|other| paired(first, other)).collect();
    let change = |name: &str| {
        let changes = pairs.iter().filter_map(|p| p.get(name)).map(|p| p.change.unsigned_abs());
        changes.max().unwrap_or(0)
    };
    let names: BTreeSet<&str> = pairs.iter().flat_map(BTreeMap::keys).copied().collect();
    let mut names: Vec<(u64, &str)> = names.into_iter().map(|name| (change(name), name)).collect();
    names.retain(|(change, _)| *change > 0);
    names.sort_by_key(|(change, name)| (Reverse(*change), *name));

    let mut marks = Marks::default();
    let row = |(_, name): &(u64, &str)| difference_row(name, kernels, &pairs, &mut marks);
    let rows: Vec<Vec<Field>> = names.iter().take(DIFFERING).map(row).collect();
    let mut header = vec![labels("function"), values(first.title.as_str())];
    for other in others {
        header.push(values(other.title.as_str()));
        let alone = others.len() == 1;
        header.push(values(if alone { "change".to_owned() } else { format!("change {}", other.title) }));
    }
    let mut notes = marks.notes();
    if names.is_empty() && pairs.iter().any(|p| !p.is_empty()) {
        notes.push("no frame differs".to_owned());
    }
    if names.len() > DIFFERING {
        let all = names.len();
        notes.push(format!("{DIFFERING} of {all} that differ; frames.json of the cells has them all"));
    }
    notes.extend(others.iter().zip(&pairs).flat_map(|(other, pairs)| alone(first, other, pairs)));
    (header, rows, notes)
}

fn difference_row(name: &str, kernels: &[Kernel], pairs: &Pairs, marks: &mut Marks) -> Vec<Field> {
    let Some((first, others)) = kernels.split_first() else { return Vec::new() };
    let mut names = vec![name];
    let mut fields = vec![first.field(name)];
    for (other, pairs) in others.iter().zip(pairs) {
        let pair = pairs.get(name);
        let its_name = pair.map_or(name, |p| p.other);
        if !names.contains(&its_name) {
            names.push(its_name);
        }
        let field = other.field(its_name);
        marks.absent |= field == absent();
        fields.push(field);
        fields.push(pair.map_or(Field::NotApplicable, |p| Field::Change {
            value: p.change as f64,
            text: if p.change == 0 { "0".to_owned() } else { format!("{:+}", p.change) },
        }));
    }
    let labels: Vec<String> = names.iter().map(|name| marks.label(name, kernels)).collect();
    labelled(labels.join(" / "), fields)
}

/// The functions that both kernels have, by their names in the first. Where
/// a name is in one of them alone, the compiler may have made a variant in the
/// other (`f.isra.0`, `f.constprop.0`): those belong together if there is one of
/// that stem on each side.
fn paired<'a>(first: &Kernel<'a>, other: &Kernel<'a>) -> BTreeMap<&'a str, Pair<'a>> {
    let (Some(before), Some(after)) = (first.frames, other.frames) else { return BTreeMap::new() };
    let pair = |name: &str, other: &'a str| {
        let change = i128::from(after.bytes[other]) - i128::from(before.bytes[name]);
        Pair { other, change: i64::try_from(change).unwrap_or(i64::MAX) }
    };
    let both = before.bytes.keys().filter_map(|name| after.bytes.get_key_value(name));
    let mut pairs: BTreeMap<&str, Pair> = both.map(|(name, _)| (name.as_str(), pair(name, name))).collect();
    let (of_first, of_other) = (variants(before, after), variants(after, before));
    for (stem, name) in of_first {
        if let (Some(name), Some(Some(other))) = (name, of_other.get(stem)) {
            pairs.insert(name, pair(name, other));
        }
    }
    pairs
}

/// Names that `other` does not have, by stem; none where several have the stem.
fn variants<'a>(frames: &'a Frames, other: &Frames) -> BTreeMap<&'a str, Option<&'a str>> {
    let mut stems: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for name in frames.bytes.keys().filter(|name| !other.bytes.contains_key(*name)) {
        // A function's unlikely part is no variant of it.
        if !name.contains(".cold") {
            let stem = name.split('.').next().unwrap_or(name);
            stems.entry(stem).and_modify(|n| *n = None).or_insert(Some(name));
        }
    }
    stems
}

/// Notes on the functions that only one of two kernels has.
fn alone(first: &Kernel, other: &Kernel, pairs: &BTreeMap<&str, Pair>) -> Vec<String> {
    let paired: BTreeSet<&str> = pairs.values().map(|p| p.other).collect();
    let of_first = only(first, &|name| pairs.contains_key(name));
    let of_other = only(other, &|name| paired.contains(name));
    let both = first.frames.is_some() && other.frames.is_some();
    [(first, of_first), (other, of_other)]
        .into_iter()
        .filter(|(_, functions)| both && !functions.is_empty())
        .map(|(kernel, functions)| {
            let s = if functions.len() == 1 { "" } else { "s" };
            let named = functions.iter().take(NAMED).map(|(name, bytes)| format!("{name} ({bytes})"));
            let named: Vec<String> = named.collect();
            let more = if functions.len() > NAMED { ", ..." } else { "" };
            let against = if kernel.cell.id == first.cell.id { other } else { first };
            let (title, count) = (&kernel.title, functions.len());
            format!("in {title}, not in {}: {count} function{s}: {}{more}", against.title, named.join(", "))
        })
        .collect()
}

/// The kernel's functions that `shared` does not know, the largest frame first.
fn only<'a>(kernel: &Kernel<'a>, shared: &dyn Fn(&str) -> bool) -> Vec<(&'a str, u64)> {
    let all = kernel.frames.into_iter().flat_map(|f| &f.bytes);
    let own = all.filter(|(name, _)| !shared(name)).map(|(name, bytes)| (name.as_str(), *bytes));
    let mut own: Vec<(&str, u64)> = own.collect();
    own.sort_by_key(|(name, bytes)| (Reverse(*bytes), *name));
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CellId, Failure, Layout, Results, Sample, Stage};
    use crate::report::tests::results;
    use crate::report::{Format, render, tables};

    fn layout(compare: Option<&str>, top: usize) -> Layout {
        Layout::Frames { compare: compare.map(str::to_owned), top }
    }

    /// Results of riscv64 with NR_CPUS 64, on and off the stack.
    fn measured(layout: Layout, of: &[(&str, &[(&str, u64)])]) -> Results {
        let mut results = results(layout);
        results.matrix.tables[0].filter.insert("NR_CPUS".into(), vec!["64".into()]);
        for (offstack, functions) in of {
            let cell = CellId(format!("riscv64-64-{offstack}"));
            let bytes = functions.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
            let frames = Frames { bytes, ..Frames::default() };
            results.samples.push(Sample {
                cell: cell.clone(),
                metric: FRAMES_MAX.into(),
                value: frames.max() as f64,
                unit: "bytes".into(),
                better: Direction::Lower,
                kind: Kind::Exact,
                boot: None,
                iteration: None,
            });
            results.frames.insert(cell, frames);
        }
        results
    }

    fn text(results: &Results) -> String {
        render(&tables(results), Format::Text)
    }

    const ON: &[(&str, u64)] = &[
        ("a", 900),
        ("b", 640),
        ("c", 96),
        ("d.isra.0", 320),
        ("e.constprop.0", 80),
        ("e.constprop.1", 48),
        ("f.cold", 16),
        ("same", 0),
    ];
    const OFF: &[(&str, u64)] =
        &[("a", 388), ("b", 656), ("c", 96), ("d", 64), ("e.isra.0", 80), ("same", 0)];

    #[test]
    fn largest_of_each_kernel_then_what_differs() {
        let mut results = measured(layout(Some("OFFSTACK"), 2), &[("n", ON), ("y", OFF)]);
        let off = results.frames.get_mut(&CellId("riscv64-64-y".into())).unwrap();
        off.dynamic.insert("b".into());
        off.namesakes.insert("a".into(), 3);
        let expected = "\
a table

function           onstack  offstack
a (of 3)               900       388
b (dynamic)            640       656
sum of all frames     2100      1284

exact: counted, not timed
(dynamic): it takes more, by an amount that only run time tells
(of N): the largest of N functions with this name

a table: what differs

function      onstack  offstack  change
a (of 3)          900       388    -512
d.isra.0 / d      320        64    -256
b (dynamic)       640       656     +16

exact: counted, not timed
(dynamic): it takes more, by an amount that only run time tells
(of N): the largest of N functions with this name
in onstack, not in offstack: 3 functions: e.constprop.0 (80), e.constprop.1
(48), f.cold (16)
in offstack, not in onstack: 1 function: e.isra.0 (80)
";
        assert_eq!(text(&results), expected);
        let json = render(&tables(&results), Format::Json);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json[1]["rows"][0][3], serde_json::json!({ "value": -512.0, "text": "-512" }));
        assert_eq!(json[0]["rows"][0][1]["cell"], "riscv64-64-n");
        let csv = render(&tables(&results), Format::Csv);
        assert!(csv.contains("a table: what differs,,a (of 3),change,-512,-512,,,,,,,,,,\n"), "{csv}");
    }

    #[test]
    fn kernels_that_are_alike_say_so_and_one_alone_has_nothing_to_differ_from() {
        let alike = text(&measured(layout(Some("OFFSTACK"), 1), &[("n", OFF), ("y", OFF)]));
        let expected = "a table: what differs\n\nexact: counted, not timed\nno frame differs\n";
        assert!(alike.ends_with(expected), "{alike}");
        let results = measured(layout(None, 1), &[("n", ON), ("y", OFF)]);
        let expected = "\
a table
OFFSTACK onstack

function           bytes
a                    900
sum of all frames   2100

a table
OFFSTACK offstack

function           bytes
b                    656
sum of all frames   1284

exact: counted, not timed
";
        assert_eq!(text(&results), expected);
    }

    #[test]
    fn many_differences_are_cut_and_counted() {
        let names: Vec<String> = (0..DIFFERING + 5).map(|n| format!("f{n:02}")).collect();
        let functions = |base: u64| -> Vec<(&str, u64)> {
            names.iter().enumerate().map(|(n, name)| (name.as_str(), base + base * n as u64)).collect()
        };
        let results = measured(layout(Some("OFFSTACK"), 1), &[("n", &functions(16)), ("y", &functions(32))]);
        let differing = &tables(&results)[1];
        assert_eq!(differing.rows.len(), DIFFERING);
        assert_eq!(differing.rows[0][0], Field::Text("f34".into()));
        assert!(differing.footnotes.iter().any(|n| n.starts_with("30 of 35 that differ")));
    }

    #[test]
    fn kernels_without_frames_are_never_empty_columns() {
        let mut results = measured(layout(Some("OFFSTACK"), 1), &[("n", ON)]);
        let missing = text(&results);
        assert!(missing.contains("a                      900   missing\n"), "{missing}");
        assert!(missing.contains("missing: not measured"), "{missing}");
        assert!(!missing.contains("no frame differs"), "{missing}");
        let mut failure = Failure::new(Stage::Build, "no frames", "objdump failed");
        failure.benchmark = Some("frames".into());
        results.failures.insert(CellId("riscv64-64-y".into()), vec![failure]);
        let failed = text(&results);
        assert!(failed.contains("sum of all frames     2100  FAILED(no frames)\n"), "{failed}");
        assert!(failed.contains("riscv64-64-y: failed at build, frames: objdump failed"), "{failed}");
    }
}
