//! Sockets, cores and NUMA nodes of `[boot]`: what can be said of each figure
//! by itself, then of each cell's figures together and of its machine.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use super::Check;
use super::axes::Axes;
use super::boot::memory;
use crate::matrix::ArchFacts;
use crate::matrix::raw::{At, RawBoot, Rows};
use crate::model::{Level, MAX_NR_CPUS, Matrix, Misfit, OWN_DISTANCE, Setting, Shape, Topology};

/// Distances that nodes can have to each other; 255 means unreachable.
const REMOTE: RangeInclusive<u8> = OWN_DISTANCE + 1..=254;

/// What the file says; nothing where a part of it is faulty, so that no other
/// part is blamed for what is missing.
pub(super) fn topology(raw: &RawBoot, axes: &Axes, check: &mut Check) -> Topology {
    let before = check.faults.len();
    let topology = figures(raw, axes, check);
    if check.faults.len() > before { Topology::default() } else { topology }
}

fn figures(raw: &RawBoot, axes: &Axes, check: &mut Check) -> Topology {
    numa_keys(raw, axes, check);
    let of_node = |at: &At<String>| memory("numa_memory", at, check);
    let numa_memory = raw.numa_memory.iter().flat_map(|at| &at.value).filter_map(of_node).collect();
    let mut count = |key, at: &Option<At<i64>>| check.number(key, at.as_ref()?, 1..=MAX_NR_CPUS);
    Topology {
        levels: [
            count("sockets", &raw.sockets),
            count("clusters", &raw.clusters),
            count("cores", &raw.cores),
            count("threads", &raw.threads),
        ],
        numa: count("numa", &raw.numa),
        numa_memory,
        numa_distance: raw.numa_distance.as_ref().and_then(|at| distance("numa_distance", false, at, check)),
        numa_distances: raw.numa_distances.as_ref().map(|at| distances(at, check)).unwrap_or_default(),
    }
}

/// Keys that say more of NUMA nodes need nodes; distances are given in one way.
fn numa_keys(raw: &RawBoot, axes: &Axes, check: &mut Check) {
    let keys = [
        ("numa_memory", raw.numa_memory.as_ref().map(|at| &at.span)),
        ("numa_distance", raw.numa_distance.as_ref().map(|at| &at.span)),
        ("numa_distances", raw.numa_distances.as_ref().map(|at| &at.span)),
    ];
    let given = keys.iter().filter_map(|(key, span)| Some((key, (*span)?)));
    for (key, span) in given.filter(|_| raw.numa.is_none() && axes.find("numa").is_none()) {
        check.fault(span, format!("`{key}` without `numa`"), "say how many nodes there are: numa = 2");
    }
    if let [_, (_, Some(one)), (_, Some(_))] = keys {
        let help = "keep one of them: a number for all pairs of nodes, or a row for each node";
        check.fault(one, "`numa_distance` beside `numa_distances`", help);
    }
}

/// A node's distance to itself or to another.
fn distance(key: &str, own: bool, at: &At<i64>, check: &mut Check) -> Option<u8> {
    let fits = |n: &u8| if own { *n == OWN_DISTANCE } else { REMOTE.contains(n) };
    let distance = u8::try_from(at.value).ok().filter(fits);
    if distance.is_none() {
        let help = "10 from a node to itself, 11 to 254 to another: numa_distances = [[10, 20], [20, 10]]";
        check.fault(&at.span, format!("a distance of `{key}` cannot be {}", at.value), help);
    }
    distance
}

/// Distances from each node to each. They are equal in either direction, as the
/// device tree's binding (`numa-distance-map-v1`) has it.
fn distances(at: &At<Rows>, check: &mut Check) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for (i, row) in at.iter().enumerate() {
        if row.len() != at.len() {
            let message = format!("a row of `numa_distances` has {} distances, not {}", row.len(), at.len());
            check.fault(&row.span, message, "as many as there are rows: [[10, 20], [20, 10]]");
            return Vec::new();
        }
        let of = |(j, at): (usize, &At<i64>)| distance("numa_distances", i == j, at, check);
        rows.push(row.iter().enumerate().filter_map(of).collect::<Vec<u8>>());
    }
    if rows.iter().any(|row| row.len() < rows.len()) {
        return Vec::new();
    }
    for (i, row) in at.iter().enumerate() {
        for (j, there) in row.iter().enumerate().take(i) {
            let back = at[j][i].value;
            if there.value != back {
                let message =
                    format!("nodes {j} and {i} are {back} apart one way, {} the other", there.value);
                check.fault(&there.span, message, "distances are equal in either direction");
            }
        }
    }
    rows
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
