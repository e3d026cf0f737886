//! Sockets, cores and NUMA nodes of `[boot]`: what can be said of each figure
//! by itself, then of each cell's figures together and of its machine.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Check;
use super::axes::Axes;
use super::boot::memory;
use crate::matrix::ArchFacts;
use crate::matrix::raw::{At, RawBoot};
use crate::model::{Shape, Level, MAX_NR_CPUS, Matrix, Misfit, OWN_DISTANCE, Setting, Topology};

/// Distances that nodes can have to each other; 255 means unreachable.
const REMOTE: std::ops::RangeInclusive<u32> = OWN_DISTANCE as u32 + 1..=254;

pub(super) fn topology(raw: &RawBoot, axes: &Axes, check: &mut Check) -> Topology {
    let levels = [("sockets", &raw.sockets), ("clusters", &raw.clusters), ("cores", &raw.cores)];
    let [sockets, clusters, cores] = levels.map(|(key, at)| count(key, at.as_ref(), check));
    let threads = count("threads", raw.threads.as_ref(), check);
    let of_numa = [
        ("numa_memory", raw.numa_memory.as_ref().map(|at| &at.span)),
        ("numa_distance", raw.numa_distance.as_ref().map(|at| &at.span)),
        ("numa_distances", raw.numa_distances.as_ref().map(|at| &at.span)),
    ];
    if raw.numa.is_none() && axes.find("numa").is_none() {
        for (key, span) in of_numa {
            if let Some(span) = span {
                check.fault(span, format!("`{key}` without `numa`"), "say how many nodes there are: numa = 2");
            }
        }
    }
    if let (Some(one), Some(_)) = (&raw.numa_distance, &raw.numa_distances) {
        let help = "keep one of them: a number for all pairs of nodes, or a row for each node";
        check.fault(&one.span, "`numa_distance` beside `numa_distances`", help);
    }
    let of_node = |at: &At<String>| memory("numa_memory", at, check);
    let numa_memory = raw.numa_memory.iter().flat_map(|at| &at.value).filter_map(of_node).collect();
    Topology {
        levels: [sockets, clusters, cores, threads],
        numa: count("numa", raw.numa.as_ref(), check),
        numa_memory,
        numa_distance: raw.numa_distance.as_ref().and_then(|at| {
            check.number("numa_distance", at, REMOTE).and_then(|n| u8::try_from(n).ok())
        }),
        numa_distances: raw.numa_distances.as_ref().map(|at| distances(at, check)).unwrap_or_default(),
    }
}

fn count(key: &str, at: Option<&At<i64>>, check: &mut Check) -> Option<u32> {
    at.and_then(|at| check.number(key, at, 1..=MAX_NR_CPUS))
}

/// Distances from each node to each. They are equal in either direction, as the
/// device tree's binding (`numa-distance-map-v1`) has it.
fn distances(at: &At<Vec<At<Vec<At<i64>>>>>, check: &mut Check) -> Vec<Vec<u8>> {
    let form = "one row for each node, one distance for each in it: [[10, 20], [20, 10]]";
    let mut rows = Vec::new();
    for (i, row) in at.iter().enumerate() {
        if row.len() != at.len() {
            let message =
                format!("{} distances in a row of `numa_distances`, which has {} rows", row.len(), at.len());
            check.fault(&row.span, message, form);
            return Vec::new();
        }
        let distance = |(j, at): (usize, &At<i64>)| {
            let own = u32::from(OWN_DISTANCE);
            check.number(if i == j { "distance of a node to itself" } else { "distance between nodes" }, at, if i == j { own..=own } else { REMOTE })
        };
        let row: Vec<u8> = row.iter().enumerate().filter_map(distance).filter_map(|n| u8::try_from(n).ok()).collect();
        rows.push(row);
    }
    if rows.iter().any(|row| row.len() != rows.len()) {
        return Vec::new();
    }
    for i in 0..rows.len() {
        for j in 0..i {
            if rows[i][j] != rows[j][i] {
                let message = format!(
                    "nodes {j} and {i} are {} apart one way and {} the other",
                    rows[j][i], rows[i][j]
                );
                check.fault(&at[i][j].span, message, "distances are equal in either direction");
            }
        }
    }
    rows
}

/// Where `[boot]` says what a topology is made of.
pub(super) fn places(raw: &RawBoot) -> BTreeMap<&'static str, Range<usize>> {
    let number = |at: &Option<At<i64>>| at.as_ref().map(|at| at.span.clone());
    let places = [
        ("vcpus", number(&raw.vcpus)),
        ("memory", raw.memory.as_ref().map(|at| at.span.clone())),
        ("sockets", number(&raw.sockets)),
        ("clusters", number(&raw.clusters)),
        ("cores", number(&raw.cores)),
        ("threads", number(&raw.threads)),
        ("numa", number(&raw.numa)),
        ("numa_memory", raw.numa_memory.as_ref().map(|at| at.span.clone())),
        ("numa_distances", raw.numa_distances.as_ref().map(|at| at.span.clone())),
    ];
    places.into_iter().filter_map(|(key, span)| Some((key, span?))).collect()
}

/// Every cell's figures against each other and against its machine.
pub(super) fn fits(
    matrix: &Matrix,
    coords: &[Vec<usize>],
    axes: &Axes,
    places: &BTreeMap<&'static str, Range<usize>>,
    check: &mut Check,
) {
    let mut found: BTreeMap<(usize, usize, String), String> = BTreeMap::new();
    for (cell, coord) in matrix.cells.iter().zip(coords) {
        let own = |s: &Setting| matches!(s, Setting::Level(..) | Setting::Numa(_));
        if matrix.boot.topology == Topology::default() && !cell.settings.iter().any(own) {
            continue;
        }
        let arch = check.ctx.archs.iter().find(|a| a.name == cell.arch);
        let misfit = match (matrix.boot_of(cell).shape(), arch) {
            (Err(misfit), _) => Some(misfit),
            (Ok(Some(shape)), Some(arch)) => beyond(&shape, arch),
            _ => None,
        };
        let Some(Misfit { keys, message, help }) = misfit else { continue };
        let by_axis = keys.iter().find_map(|key| axes.value_span(key, coord));
        let place = by_axis.or_else(|| keys.iter().find_map(|key| places.get(key).cloned()));
        let place = place.unwrap_or(axes.span.clone());
        found.entry((place.start, place.end, message)).or_insert(help);
    }
    for ((start, end, message), help) in found {
        check.fault(&(start..end), message, help);
    }
}

/// What a machine of `arch` cannot have or does not show its guest.
fn beyond(shape: &Shape, arch: &ArchFacts) -> Option<Misfit> {
    let (name, nodes) = (&arch.name, shape.nodes.len() as u32);
    if nodes > arch.max_numa_nodes {
        let message = format!("{nodes} NUMA nodes are more than a machine of `{name}` can have");
        let help = format!("at most {} for `{name}`", arch.max_numa_nodes);
        return Some(Misfit { keys: &["numa"], message, help });
    }
    let shown = |level: &Level| arch.levels.contains(level);
    // Where sockets are not for the asking, each node is one.
    let fixed = |level| if level == Level::Sockets { nodes.max(1) } else { 1 };
    let level = Level::ALL.into_iter().find(|l| !shown(l) && shape.count(*l) != fixed(*l))?;
    let (count, fixed, level) = (shape.count(level), fixed(level), level.name());
    let message = format!("a machine of `{name}` has `{level}` = {fixed}, not {count}");
    let help = match level {
        "sockets" => format!("its NUMA nodes are its sockets: leave out `sockets` and `cores` for `{name}`"),
        _ => format!("leave out `{level}` for `{name}`: its guests are not shown any"),
    };
    Some(Misfit { keys: &["sockets", "clusters", "cores", "threads", "numa"], message, help })
}
