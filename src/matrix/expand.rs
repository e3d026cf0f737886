//! From axes to cells. A coordinate is one index into each axis' values.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::model::{Axis, Cell, CellId, Means};

/// Axis whose value names the architecture.
pub(super) const ARCH: &str = "arch";

/// Kconfig's own name of a symbol that may be written with `CONFIG_` or in short.
pub(super) fn symbol(name: &str) -> &str {
    match name.strip_prefix("CONFIG_").unwrap_or(name) {
        "OFFSTACK" => "CPUMASK_OFFSTACK",
        name => name,
    }
}

/// Which values of each axis a cell must have to be meant; `None` means any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule(pub Vec<Option<Vec<usize>>>);

impl Rule {
    /// Whether the cell at `coord` is meant.
    pub fn matches(&self, coord: &[usize]) -> bool {
        let fits = |(rule, at): (&Option<Vec<usize>>, &usize)| {
            rule.as_ref().is_none_or(|values| values.contains(at))
        };
        self.0.iter().zip(coord).all(fits)
    }
}

/// How many cells axes of these sizes span; `None` beyond what can be counted.
pub(super) fn count(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1_usize, |n, size| n.checked_mul(*size))
}

/// All coordinates of axes of these sizes, the last axis varying fastest.
pub(super) fn product(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let total = count(sizes).unwrap_or(0);
    (0..total).map(move |mut n| {
        let mut coord = vec![0; sizes.len()];
        for (at, size) in coord.iter_mut().zip(sizes).rev() {
            *at = n % size;
            n /= size;
        }
        coord
    })
}

/// `value` with every character that is unusual in a file name, and the
/// second of two dots, as `_`.
pub(super) fn file_safe(value: &str) -> String {
    let usual = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let safe: String = value.chars().map(|c| if usual(c) { c } else { '_' }).collect();
    safe.replace("..", "._")
}

/// The cell at `coord` without its settings.
pub(super) fn cell(axes: &[Axis], coord: &[usize]) -> Cell {
    let mut cell = Cell {
        id: CellId(String::new()),
        coords: IndexMap::with_capacity(axes.len()),
        arch: String::new(),
        config: BTreeMap::new(),
        settings: Vec::new(),
    };
    let mut rest = String::new();
    for (axis, at) in axes.iter().zip(coord) {
        let (name, value) = (&axis.name, &axis.values[*at]);
        match Means::of(name) {
            Some(Means::Arch) => cell.arch = value.clone(),
            Some(Means::Symbol) => drop(cell.config.insert(symbol(name).to_owned(), value.clone())),
            _ => {}
        }
        if name != ARCH {
            rest += &format!("-{name}={}", file_safe(value));
        }
        cell.coords.insert(name.clone(), value.clone());
    }
    cell.id = CellId(file_safe(&cell.arch) + &rest);
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_axis_varies_fastest() {
        let all: Vec<_> = product(&[2, 3]).collect();
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(product(&[2, 0]).count(), 0);
        assert_eq!(product(&[]).count(), 1);
        assert_eq!(count(&[usize::MAX, 2]), None);
    }

    #[test]
    fn a_rule_wants_all_its_axes_and_any_of_their_values() {
        let rule = Rule(vec![None, Some(vec![0, 2]), Some(vec![1])]);
        assert!(rule.matches(&[9, 2, 1]));
        assert!(!rule.matches(&[9, 1, 1]));
        assert!(!rule.matches(&[9, 2, 0]));
    }

    #[test]
    fn names_of_files_hold_no_surprises() {
        assert_eq!(file_safe("a/b c\u{e9}=\n"), "a_b_c___");
        assert_eq!(file_safe("../.."), ".__._");
        assert_eq!(file_safe("...."), "._._");
        assert_eq!(file_safe("6.12-rc1+"), "6.12-rc1+");
    }

    #[test]
    fn symbols_have_one_name() {
        assert_eq!(symbol("CONFIG_OFFSTACK"), "CPUMASK_OFFSTACK");
        assert_eq!(symbol("OFFSTACK"), "CPUMASK_OFFSTACK");
        assert_eq!(symbol("CONFIG_NR_CPUS"), "NR_CPUS");
        assert_eq!(symbol("64BIT"), "64BIT");
    }
}
