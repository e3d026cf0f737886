//! Sockets, cores and NUMA nodes of a guest: as the matrix file asks for them,
//! and worked out for one boot.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Boot;

/// Least memory of a NUMA node in MiB: the kernel and what it is booted with
/// have to fit the first one.
const MIN_NODE_MIB: u64 = 64;
/// Distance of a node to itself, in the unit of ACPI's SLIT and of device trees.
pub const OWN_DISTANCE: u8 = 10;
/// What Linux takes for the distance between two nodes where it is told none.
const DEFAULT_DISTANCE: u8 = 20;

/// A level of the CPU topology; each holds some of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Packages.
    Sockets,
    /// Groups of cores that share something, in a socket.
    Clusters,
    /// Cores of a cluster.
    Cores,
    /// Hardware threads of a core.
    Threads,
}

impl Level {
    /// From the outermost to the innermost.
    pub const ALL: [Level; 4] = [Level::Sockets, Level::Clusters, Level::Cores, Level::Threads];

    /// Its key in `[boot]` and its name in QEMU's `-smp`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Sockets => "sockets",
            Level::Clusters => "clusters",
            Level::Cores => "cores",
            Level::Threads => "threads",
        }
    }
}

/// What the matrix file says about a guest's topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// How many of each [`Level`], in its order; what is missing is inferred.
    pub levels: [Option<u32>; 4],
    /// NUMA nodes; without them the guest has none, not one.
    pub numa: Option<u32>,
    /// Memory of each node in MiB; empty where it is split evenly.
    pub numa_memory: Vec<u64>,
    /// Distance between any two nodes.
    pub numa_distance: Option<u8>,
    /// Distances from each node to each, where they differ from pair to pair.
    pub numa_distances: Vec<Vec<u8>>,
}

/// A topology with nothing left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// How many of each [`Level`] the one before has, in its order.
    pub levels: [u32; 4],
    /// NUMA nodes; none where none were asked for.
    pub nodes: Vec<Node>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its processors.
    pub cpus: Range<u32>,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// Distance to each node, itself included.
    pub distances: Vec<u8>,
}

/// Why figures do not go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Keys of `[boot]` that contradict each other.
    pub keys: &'static [&'static str],
    /// What is wrong.
    pub message: String,
    /// How it is put right.
    pub help: String,
}

impl Misfit {
    fn new(keys: &'static [&'static str], message: String, help: impl Into<String>) -> Misfit {
        Misfit { keys, message, help: help.into() }
    }
}

impl Shape {
    /// How many of `level` the one before has.
    pub fn count(&self, level: Level) -> u32 {
        self.levels[level as usize]
    }
}

impl Boot {
    /// The guest's topology; `None` where the file says nothing about it.
    ///
    /// # Errors
    /// Processors or memory cannot be divided so. A validated matrix has no such boot.
    pub fn shape(&self) -> Result<Option<Shape>, Misfit> {
        let asked = &self.topology;
        if *asked == Topology::default() {
            return Ok(None);
        }
        let nodes = match asked.numa {
            Some(count) => nodes(self, count)?,
            None => Vec::new(),
        };
        let levels = levels(asked, self.vcpus)?;
        let [_, clusters, cores, threads] = levels;
        let cluster = cores * threads;
        if let Some(node) = nodes.iter().find(|n| (n.cpus.len() as u32) % cluster != 0) {
            let message = format!(
                "a cluster of {cluster} vCPUs lies across NUMA nodes of {}, as on no machine",
                node.cpus.len()
            );
            let socket = clusters * cluster;
            let help = format!(
                "each node has whole clusters; without `sockets` and `cores` each is a socket, here a socket has {socket} vCPUs"
            );
            return Err(Misfit::new(&["numa", "sockets", "clusters", "cores", "threads"], message, help));
        }
        Ok(Some(Shape { levels, nodes }))
    }
}

/// Completes the levels as QEMU's `-smp` does from 6.2 on: cores are inferred,
/// or else sockets, or else threads. But NUMA nodes are sockets where nothing
/// else is said.
fn levels(asked: &Topology, vcpus: u32) -> Result<[u32; 4], Misfit> {
    let mut levels = asked.levels;
    if levels[Level::Cores as usize].is_none() {
        levels[Level::Sockets as usize] = levels[Level::Sockets as usize].or(asked.numa);
    }
    let mut open = [Level::Cores, Level::Sockets, Level::Threads].into_iter();
    let inferred = open.find(|l| levels[*l as usize].is_none());
    let mut counts = levels.map(|count| count.unwrap_or(1));
    let given = counts.iter().try_fold(1_u32, |product, n| product.checked_mul(*n));
    let whole = given.filter(|product: &u32| match inferred {
        Some(_) => vcpus.checked_rem(*product) == Some(0),
        None => vcpus > 0 && vcpus == *product,
    });
    let Some(product) = whole else {
        let figures = Level::ALL.into_iter().filter(|l| Some(*l) != inferred);
        let figures: Vec<_> = figures.map(|l| format!("{} {}", counts[l as usize], l.name())).collect();
        let message = format!("{vcpus} vcpus do not divide into {}", figures.join(" x "));
        let help = "sockets x clusters x cores x threads are the vcpus (4 by default): 8 of them are sockets = 2 and cores = 4";
        return Err(Misfit::new(
            &["sockets", "clusters", "cores", "threads", "numa", "vcpus"],
            message,
            help,
        ));
    };
    if let Some(level) = inferred {
        counts[level as usize] = vcpus / product;
    }
    Ok(counts)
}

/// Processors are split evenly and in order, memory as the file says.
fn nodes(boot: &Boot, count: u32) -> Result<Vec<Node>, Misfit> {
    let (vcpus, asked) = (boot.vcpus, &boot.topology);
    if count == 0 || vcpus % count != 0 {
        let message = format!("{vcpus} vcpus cannot be split evenly among {count} NUMA nodes");
        let help = format!("vcpus is a multiple of numa: {} or {}, for example", count, u64::from(count) * 4);
        return Err(Misfit::new(&["numa", "vcpus"], message, help));
    }
    let memory = memory(boot, count)?;
    let distances = distances(asked, count)?;
    let share = vcpus / count;
    let node = |(i, (memory_mib, distances)): (u32, (u64, Vec<u8>))| Node {
        cpus: i * share..(i + 1) * share,
        memory_mib,
        distances,
    };
    Ok((0..count).zip(memory.into_iter().zip(distances)).map(node).collect())
}

/// Memory of each node in MiB.
fn memory(boot: &Boot, count: u32) -> Result<Vec<u64>, Misfit> {
    let (total, given) = (boot.memory_mib, &boot.topology.numa_memory);
    let nodes = u64::from(count);
    if given.is_empty() {
        if total % nodes != 0 || total / nodes < MIN_NODE_MIB {
            let message = format!("{total}M of memory cannot be split evenly among {count} NUMA nodes");
            let help = format!(
                "a multiple of {count} MiB, and {MIN_NODE_MIB}M a node at least: memory = \"{}M\"; or name each node's in numa_memory",
                nodes * (total / nodes).max(MIN_NODE_MIB)
            );
            return Err(Misfit::new(&["memory", "numa"], message, help));
        }
        return Ok(vec![total / nodes; count as usize]);
    }
    if given.len() as u64 != nodes {
        let message = format!("`numa_memory` has {} figures for {count} NUMA nodes", given.len());
        return Err(Misfit::new(&["numa_memory", "numa"], message, "one for each node"));
    }
    let sum: u64 = given.iter().sum();
    if sum != total {
        let message = format!("the nodes of `numa_memory` have {sum}M, the guest has {total}M");
        let help = format!("leave out `memory`, or memory = \"{sum}M\"");
        return Err(Misfit::new(&["numa_memory", "memory"], message, help));
    }
    Ok(given.clone())
}

/// Distances from each node to each.
fn distances(asked: &Topology, count: u32) -> Result<Vec<Vec<u8>>, Misfit> {
    let given = &asked.numa_distances;
    if given.is_empty() {
        let remote = asked.numa_distance.unwrap_or(DEFAULT_DISTANCE);
        let row = |i| (0..count).map(|j| if i == j { OWN_DISTANCE } else { remote }).collect();
        return Ok((0..count).map(row).collect());
    }
    if given.len() as u64 != u64::from(count) {
        let message = format!("`numa_distances` has {} rows for {count} NUMA nodes", given.len());
        let help = "a row for each node; numa_distance = 20 is one distance for any number of nodes";
        return Err(Misfit::new(&["numa_distances", "numa"], message, help));
    }
    Ok(given.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(vcpus: u32, levels: [u32; 4], numa: u32) -> Boot {
        let some = |n| (n > 0).then_some(n);
        let topology = Topology { levels: levels.map(some), numa: some(numa), ..Topology::default() };
        Boot { vcpus, topology, ..Boot::plain() }
    }

    fn levels(vcpus: u32, asked: [u32; 4], numa: u32) -> [u32; 4] {
        boot(vcpus, asked, numa).shape().unwrap().unwrap().levels
    }

    fn misfit(boot: &Boot) -> String {
        boot.shape().unwrap_err().message
    }

    #[test]
    fn nothing_asked_is_no_topology() {
        assert_eq!(boot(4, [0; 4], 0).shape(), Ok(None));
    }

    #[test]
    fn cores_are_inferred_then_sockets_then_threads() {
        assert_eq!(levels(16, [2, 0, 0, 0], 0), [2, 1, 8, 1]);
        assert_eq!(levels(16, [0, 2, 0, 2], 0), [1, 2, 4, 2]);
        assert_eq!(levels(16, [0, 0, 4, 0], 0), [4, 1, 4, 1]);
        assert_eq!(levels(16, [2, 0, 4, 0], 0), [2, 1, 4, 2]);
        assert_eq!(levels(16, [2, 2, 2, 2], 0), [2, 2, 2, 2]);
    }

    #[test]
    fn a_numa_node_is_a_socket_unless_sockets_are_asked_for() {
        assert_eq!(levels(16, [0; 4], 4), [4, 1, 4, 1]);
        assert_eq!(levels(16, [1, 4, 0, 0], 4), [1, 4, 4, 1]);
        assert_eq!(levels(16, [0, 0, 2, 0], 4), [8, 1, 2, 1]);
    }

    #[test]
    fn nodes_share_evenly_and_in_order() {
        let boot = boot(8, [0; 4], 2);
        let nodes = boot.shape().unwrap().unwrap().nodes;
        assert_eq!(nodes.iter().map(|n| n.cpus.clone()).collect::<Vec<_>>(), [0..4, 4..8]);
        assert_eq!(nodes.iter().map(|n| n.memory_mib).collect::<Vec<_>>(), [512, 512]);
        assert_eq!(nodes[1].distances, [20, 10]);
    }

    #[test]
    fn memory_and_distances_are_as_the_file_says() {
        let mut boot = boot(4, [0; 4], 2);
        boot.topology.numa_memory = vec![256, 768];
        boot.topology.numa_distances = vec![vec![10, 31], vec![31, 10]];
        let nodes = boot.shape().unwrap().unwrap().nodes;
        assert_eq!((nodes[0].memory_mib, nodes[1].memory_mib), (256, 768));
        assert_eq!(nodes[0].distances, [10, 31]);
        boot.topology.numa_distances.clear();
        boot.topology.numa_distance = Some(15);
        assert_eq!(boot.shape().unwrap().unwrap().nodes[0].distances, [10, 15]);
    }

    #[test]
    fn every_misfit_is_named() {
        assert_eq!(
            misfit(&boot(8, [3, 0, 0, 0], 0)),
            "8 vcpus do not divide into 3 sockets x 1 clusters x 1 threads"
        );
        assert_eq!(
            misfit(&boot(8, [2, 1, 2, 1], 0)),
            "8 vcpus do not divide into 2 sockets x 1 clusters x 2 cores x 1 threads"
        );
        assert_eq!(misfit(&boot(6, [0; 4], 4)), "6 vcpus cannot be split evenly among 4 NUMA nodes");
        assert_eq!(
            misfit(&boot(17, [0; 4], 17)),
            "1024M of memory cannot be split evenly among 17 NUMA nodes"
        );
        assert_eq!(
            misfit(&boot(8, [1, 0, 0, 0], 2)),
            "a cluster of 8 vCPUs lies across NUMA nodes of 4, as on no machine"
        );
        let small = Boot { memory_mib: 100, ..boot(2, [0; 4], 2) };
        assert_eq!(misfit(&small), "100M of memory cannot be split evenly among 2 NUMA nodes");
        let with = |change: fn(&mut Topology)| {
            let mut boot = boot(4, [0; 4], 2);
            change(&mut boot.topology);
            misfit(&boot)
        };
        assert_eq!(with(|t| t.numa_memory = vec![1024]), "`numa_memory` has 1 figures for 2 NUMA nodes");
        assert_eq!(
            with(|t| t.numa_memory = vec![512, 256]),
            "the nodes of `numa_memory` have 768M, the guest has 1024M"
        );
        assert_eq!(
            with(|t| t.numa_distances = vec![vec![10]]),
            "`numa_distances` has 1 rows for 2 NUMA nodes"
        );
    }

    #[test]
    fn large_figures_do_not_overflow() {
        assert!(boot(8, [u32::MAX, u32::MAX, 2, 2], 0).shape().is_err());
    }
}
