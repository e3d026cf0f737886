//! The topology that a guest's kernel shows, against the one that was asked
//! for. Pure; what the facts look like is documented in `qemu/guest/agent.c`.

use std::collections::BTreeMap;

use super::protocol::count_cpus;
use crate::model::{Level, Node, Shape};

/// What a kernel may keep of a node's memory for itself, where it does not count
/// in the node's `MemTotal`: image, page structures, per-CPU areas, firmware.
const KEPT_MIB: u64 = 64;
/// And of the rest, one part in so many.
const KEPT_PART: u64 = 8;

/// Facts of a guest by the agent's keys.
type Facts = BTreeMap<String, String>;

/// How the guest's topology differs from `shape`; of the CPUs' levels, those
/// that the machine shows its guest are compared.
pub(super) fn differs(facts: &Facts, shape: &Shape, shown: &[Level]) -> Option<String> {
    levels(facts, shape, shown).or_else(|| nodes(facts, &shape.nodes))
}

/// `packages=2 clusters=1 cores=4 threads=1`. Kernels before 5.16 show no
/// clusters (`?`): they pass where there is one in each socket.
fn levels(facts: &Facts, shape: &Shape, shown: &[Level]) -> Option<String> {
    let text = facts.get("topology").map_or("nothing", String::as_str);
    for level in shown {
        let key = if *level == Level::Sockets { "packages" } else { level.name() };
        let value = text.split(' ').filter_map(|word| word.split_once('=')).find(|(k, _)| *k == key);
        let (value, wanted) = (value.map_or("?", |(_, value)| value), shape.count(*level));
        let unseen = *level == Level::Clusters && value == "?" && wanted == 1;
        if !unseen && value.parse() != Ok(wanted) {
            return Some(format!("CPU topology is {text}; {key}={wanted} should be there"));
        }
    }
    None
}

fn nodes(facts: &Facts, nodes: &[Node]) -> Option<String> {
    if nodes.is_empty() {
        return None;
    }
    let list = facts.get("nodes").map_or("?", String::as_str);
    if list == "?" {
        return Some(format!(
            "the kernel knows no NUMA nodes, {} should be there: it needs CONFIG_NUMA=y (fragment `numa`)",
            nodes.len()
        ));
    }
    if count_cpus(list) != u32::try_from(nodes.len()).ok() {
        return Some(format!(
            "NUMA nodes are {list}; {} should be there (a kernel has up to 2^CONFIG_NODES_SHIFT)",
            nodes.len()
        ));
    }
    nodes.iter().enumerate().find_map(|(number, node)| of_node(facts, number, node))
}

/// `cpus=0-3 memory=KB distances=10,20`. Which of the CPUs are a node's is not
/// compared but how many: the kernel calls the one CPU 0 that boots.
fn of_node(facts: &Facts, number: usize, node: &Node) -> Option<String> {
    let text = facts.get(&format!("node {number}")).map_or("", String::as_str);
    let value = |key| {
        let words = text.split(' ').filter_map(|word| word.split_once('='));
        words.filter(|(k, _)| *k == key).map(|(_, value)| value).next().unwrap_or("?")
    };
    let (cpus, memory, distances) = (value("cpus"), value("memory"), value("distances"));
    let wrong = |what: String| Some(format!("NUMA node {number} has {what}"));
    if count_cpus(cpus) != u32::try_from(node.cpus.len()).ok() {
        return wrong(format!("CPUs '{cpus}'; {} of them should be online there", node.cpus.len()));
    }
    let given = node.memory_mib * 1024;
    let least = given.saturating_sub(KEPT_MIB * 1024 + given / KEPT_PART);
    if !memory.parse::<u64>().is_ok_and(|kb| kb > 0 && (least..=given).contains(&kb)) {
        return wrong(format!("{memory} KB of memory, {given} KB were given to it"));
    }
    let wanted: Vec<String> = node.distances.iter().map(u8::to_string).collect();
    (distances != wanted.join(","))
        .then(|| wrong(format!("distances {distances}, not {}", wanted.join(","))))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Level; 4] = Level::ALL;

    fn shape() -> Shape {
        let node = |cpus, distances: [u8; 2]| Node { cpus, memory_mib: 512, distances: distances.to_vec() };
        let nodes = vec![node(0..4, [10, 20]), node(4..8, [20, 10])];
        Shape { levels: [2, 1, 2, 2], nodes }
    }

    fn facts(changed: &[(&str, &str)]) -> Facts {
        let good = [
            ("topology", "packages=2 clusters=1 cores=2 threads=2"),
            ("nodes", "0-1"),
            ("node 0", "cpus=0-3 memory=470000 distances=10,20"),
            ("node 1", "cpus=4-7 memory=520000 distances=20,10"),
        ];
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        good.iter().chain(changed).map(own).collect()
    }

    fn fault(changed: &[(&str, &str)]) -> Option<String> {
        differs(&facts(changed), &shape(), &ALL)
    }

    #[test]
    fn the_topology_asked_for_is_believed() {
        assert_eq!(fault(&[]), None);
        assert_eq!(fault(&[("node 0", "cpus=1-4 memory=524288 distances=10,20")]), None, "numbers are free");
        assert_eq!(fault(&[("topology", "packages=2 clusters=? cores=2 threads=2")]), None, "an old kernel");
    }

    #[test]
    fn every_difference_is_named() {
        for (key, value, named) in [
            ("topology", "packages=1 clusters=1 cores=4 threads=2", "packages=2 should be there"),
            ("topology", "packages=2 clusters=1 cores=2 threads=1-2", "threads=2 should be there"),
            ("topology", "", "packages=2 should be there"),
            ("nodes", "?", "CONFIG_NUMA=y (fragment `numa`)"),
            ("nodes", "0", "NUMA nodes are 0; 2 should be there"),
            ("nodes", "0-3", "NUMA nodes are 0-3; 2 should be there"),
            ("node 0", "cpus=0-4 memory=470000 distances=10,20", "node 0 has CPUs '0-4'; 4 of them"),
            ("node 1", "cpus= memory=520000 distances=20,10", "node 1 has CPUs ''"),
            ("node 1", "cpus=4-7 memory=300000 distances=20,10", "300000 KB of memory, 524288 KB"),
            ("node 1", "cpus=4-7 memory=524289 distances=20,10", "524289 KB of memory"),
            ("node 1", "cpus=4-7 memory=? distances=20,10", "? KB of memory"),
            ("node 1", "cpus=4-7 memory=520000 distances=10,20", "distances 10,20, not 20,10"),
            ("node 1", "", "node 1 has CPUs '?'"),
        ] {
            let found = fault(&[(key, value)]).unwrap_or_else(|| panic!("{key} {value} passes"));
            assert!(found.contains(named), "{found}");
        }
        assert!(differs(&Facts::new(), &shape(), &ALL).is_some());
    }

    #[test]
    fn only_what_was_asked_for_and_is_shown_is_compared() {
        let flat = Shape { nodes: Vec::new(), ..shape() };
        assert_eq!(differs(&facts(&[("nodes", "?")]), &flat, &ALL), None);
        let one_package = facts(&[("topology", "packages=1 clusters=2 cores=2 threads=1")]);
        assert_eq!(differs(&one_package, &shape(), &[Level::Cores]), None);
        assert_eq!(differs(&one_package, &shape(), &[]), None);
    }

    #[test]
    fn a_clusters_count_that_is_not_shown_is_not_believed() {
        let two = Shape { levels: [2, 2, 1, 2], nodes: Vec::new() };
        let told = facts(&[("topology", "packages=2 clusters=? cores=2 threads=2")]);
        assert!(differs(&told, &two, &ALL).unwrap().contains("clusters=2 should be there"));
    }

    #[test]
    fn small_nodes_may_lose_much_to_the_kernel_but_not_all() {
        let tiny = |memory: &str| {
            let node = Node { cpus: 0..1, memory_mib: 64, distances: vec![10] };
            let shape = Shape { levels: [1, 1, 1, 1], nodes: vec![node] };
            let node = format!("cpus=0 memory={memory} distances=10");
            differs(&facts(&[("nodes", "0"), ("node 0", &node)]), &shape, &[])
        };
        assert_eq!(tiny("30000"), None);
        assert!(tiny("0").is_some());
    }
}
