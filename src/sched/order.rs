//! In which order kernels are built. Pure.

use std::cmp::Reverse;

use indexmap::IndexMap;

use super::plan::{Plan, PlannedBuild, State};
use crate::model::{Cell, Layout, Matrix};

/// A build in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Index among the plan's builds.
    pub build: usize,
    /// The build whose objects it starts from and so waits for.
    pub after: Option<usize>,
}

/// What is known of a build before it begins.
#[derive(Debug, Clone, Default)]
pub(super) struct Outlook {
    /// How long it takes, in any unit.
    pub length: usize,
    /// The same for kernels that differ in nothing but their sources: all but
    /// the first are done in a moment, once the first one's objects are there.
    pub family: Option<String>,
}

/// The order: kernels that are there already, as they cost nothing; those of the
/// first table's first row, so that something can be read early; then the
/// longest first, so that no long one is left over at the end with nothing to
/// run beside it. Who waits for another comes as soon as that one is likely to
/// be done, with `at_once` of them being built at a time.
pub(super) fn of(matrix: &Matrix, plan: &Plan, outlook: &[Outlook], at_once: usize) -> Vec<Step> {
    let first_row = first_row(matrix);
    let class = |build: &PlannedBuild| match &build.state {
        State::Fresh(_) => 0,
        State::Dirty(_) if build.cells.iter().any(|cell| first_row.contains(&cell)) => 1,
        State::Dirty(_) => 2,
    };
    let mut order: Vec<usize> = (0..plan.builds.len()).collect();
    order.sort_by_cached_key(|&i| (class(&plan.builds[i]), Reverse(outlook[i].length)));
    let mut families: IndexMap<(Option<&str>, usize), Vec<usize>> = IndexMap::new();
    for i in order {
        let family = outlook[i].family.as_deref();
        families.entry((family, family.map_or(i, |_| usize::MAX))).or_default().push(i);
    }
    let families: Vec<Vec<usize>> = families.into_values().collect();
    let followers = |family: &[usize]| -> Vec<Step> {
        family[1..].iter().map(|&build| Step { build, after: Some(family[0]) }).collect()
    };
    let mut steps = Vec::new();
    for n in 0..families.len() + at_once {
        steps.extend(families.get(n).map(|family| Step { build: family[0], after: None }));
        let begun_before = (n + 1).checked_sub(at_once).and_then(|n| families.get(n));
        steps.extend(begun_before.map(|family| followers(family)).unwrap_or_default());
    }
    steps
}

/// The cells of the first row that the first table shows.
fn first_row(matrix: &Matrix) -> Vec<&Cell> {
    let Some(table) = matrix.tables.first() else { return Vec::new() };
    let across = match &table.layout {
        Layout::Pivot { columns, .. } | Layout::Compare { columns, .. } => Some(columns),
        Layout::Frames { compare, .. } => compare.as_ref(),
        Layout::List { .. } | Layout::Lines { .. } => None,
    };
    let shown = |cell: &&Cell| {
        table.filter.iter().all(|(axis, values)| {
            values.is_empty() || cell.coords.get(axis).is_none_or(|value| values.contains(value))
        })
    };
    let mut cells = matrix.cells.iter().filter(shown);
    let Some(first) = cells.next() else { return Vec::new() };
    let beside = |cell: &&Cell| {
        cell.coords.iter().all(|(axis, value)| Some(axis) == across || first.coords.get(axis) == Some(value))
    };
    std::iter::once(first).chain(cells.filter(beside)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{ArchFacts, Context, parse};
    use crate::sched::plan;

    /// Cells `a1 a2 b1 b2` of axes A and B, one kernel each; the first table has B across.
    fn planned() -> (Matrix, Plan) {
        let text = r#"
            source = { path = "." }
            axes = { arch = ["one"], A = ["a", "b"], B = ["1", "2"] }
            table = [{ metric = "vmlinux.file", columns = "B", rows = "A" }]
        "#;
        let arch = ArchFacts { name: "one".into(), max_vcpus: 4, levels: vec![], max_numa_nodes: 0 };
        let ctx = Context { archs: vec![arch], benchmarks: vec![], fragments: vec![] };
        let matrix = parse("m.toml", text, std::path::Path::new("."), &ctx).unwrap();
        let build = |cells| PlannedBuild { cells, build: None, state: State::Dirty(Vec::new()) };
        let builds: Vec<_> = plan::kernels(&matrix).into_iter().map(build).collect();
        assert_eq!(builds.len(), 4);
        (matrix, Plan { builds, boots: 4 })
    }

    fn outlook(length: usize, family: &str) -> Outlook {
        Outlook { length, family: Some(family.to_owned()) }
    }

    fn first(build: usize) -> Step {
        Step { build, after: None }
    }

    #[test]
    fn the_first_row_comes_first_then_the_longest() {
        let (matrix, plan) = planned();
        let outlook = [outlook(1, "a1"), outlook(2, "a2"), outlook(3, "b1"), outlook(4, "b2")];
        assert_eq!(of(&matrix, &plan, &outlook, 2), [first(1), first(0), first(3), first(2)]);
    }

    #[test]
    fn who_starts_from_another_s_objects_comes_when_that_one_is_done() {
        let (matrix, plan) = planned();
        let outlook = [outlook(1, "x"), outlook(1, "y"), outlook(1, "x"), outlook(1, "z")];
        let second = Step { build: 2, after: Some(0) };
        assert_eq!(of(&matrix, &plan, &outlook, 2), [first(0), first(1), second, first(3)]);
        assert_eq!(of(&matrix, &plan, &outlook, 1), [first(0), second, first(1), first(3)]);
        assert_eq!(of(&matrix, &plan, &outlook, 9), [first(0), first(1), first(3), second]);
    }

    #[test]
    fn kernels_without_an_outlook_wait_for_nobody() {
        let (matrix, plan) = planned();
        let steps = of(&matrix, &plan, &vec![Outlook::default(); 4], 2);
        assert_eq!(steps, [first(0), first(1), first(2), first(3)]);
    }
}
