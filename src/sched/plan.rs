//! What a matrix needs: one build for all cells whose kernels are the same,
//! fresh or with the reason why not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use futures_util::future::join_all;
use indexmap::IndexMap;

use crate::arch::{self, Arch};
use crate::cache::{Cache, Inputs};
use crate::kernel::build::Built;
use crate::kernel::config::Request;
use crate::kernel::version::version;
use crate::kernel::{KernelBuild, SourceTree, Tools, source, toolchain};
use crate::model::{Cell, CellId, Matrix, Shard, Source};
use crate::process::Stop;

/// An architecture with the programs found for it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The architecture.
    pub arch: Arc<Arch>,
    /// Its toolchain.
    pub tools: Arc<Tools>,
    /// Version of its emulator.
    pub qemu: String,
}

/// One kernel that cells need.
#[derive(Debug, Clone)]
pub struct PlannedBuild {
    /// The cells, the first of which names the build.
    pub cells: Vec<Cell>,
    /// What to build; absent while the source is.
    pub build: Option<KernelBuild>,
    /// Whether it is there.
    pub state: State,
}

/// Whether a kernel has to be built.
#[derive(Debug, Clone)]
pub enum State {
    /// It is in the cache.
    Fresh(Arc<Built>),
    /// It is not, for these reasons.
    Dirty(Vec<String>),
}

impl PlannedBuild {
    /// The cell that names it.
    pub fn name(&self) -> &CellId {
        &self.cells[0].id
    }

    /// What it is made from; none while the source is not there.
    ///
    /// # Errors
    /// A configuration cannot be read.
    pub fn inputs(&self) -> anyhow::Result<Option<Inputs>> {
        match &self.state {
            State::Fresh(built) => Ok(Some(built.info.inputs.clone())),
            State::Dirty(_) => self.build.as_ref().map(KernelBuild::inputs).transpose(),
        }
    }
}

/// Everything that is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Kernels in the order in which they are built.
    pub builds: Vec<PlannedBuild>,
    /// Boots of all cells together.
    pub boots: usize,
}

impl Plan {
    /// Kernels that are there already.
    pub fn fresh(&self) -> usize {
        self.builds.iter().filter(|b| matches!(b.state, State::Fresh(_))).count()
    }
}

/// Finds `make`, and toolchain and emulator of every architecture in the matrix,
/// all at once.
///
/// # Errors
/// One is not installed.
pub async fn targets(
    matrix: &Matrix,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<BTreeMap<String, Target>> {
    let names: BTreeSet<&String> = matrix.cells.iter().map(|c| &c.arch).collect();
    let targets = join_all(names.into_iter().map(|name| target(matrix, name, cache, stop)));
    let (make, targets) = tokio::join!(version("make", cache, stop), targets);
    make?;
    targets.into_iter().collect()
}

async fn target(matrix: &Matrix, name: &str, cache: &Cache, stop: &Stop) -> anyhow::Result<(String, Target)> {
    let arch = Arc::new(arch::find(name)?);
    let tools = toolchain::find(&matrix.kernel.toolchain, &arch, cache, stop);
    let (tools, qemu) = tokio::join!(tools, version(&arch.qemu.program, cache, stop));
    let (tools, qemu) = (Arc::new(tools?), qemu?);
    Ok((name.to_owned(), Target { arch, tools, qemu }))
}

/// Plans a matrix from what is on this machine, without a network.
///
/// # Errors
/// A toolchain is missing, or a local source or configuration is unreadable.
pub async fn offline(matrix: &Matrix, cache: &Cache, stop: &Stop) -> anyhow::Result<Plan> {
    let targets = targets(matrix, cache, stop).await?;
    let mut trees = Trees::new();
    for ((from, patches), _) in sources(matrix) {
        if let Some(tree) = source::find(&from, &patches, cache, stop).await? {
            trees.insert((from, patches), tree);
        }
    }
    make(matrix, &targets, &trees, cache)
}

/// A source with the patches on top of it.
pub type Origin = (Source, Vec<PathBuf>);

/// The trees that are there, by what they come from.
pub type Trees = IndexMap<Origin, SourceTree>;

/// Every source that cells are built from, with its cells.
pub fn sources(matrix: &Matrix) -> IndexMap<Origin, Vec<&Cell>> {
    let mut sources: IndexMap<Origin, Vec<&Cell>> = IndexMap::new();
    for cell in &matrix.cells {
        sources.entry(matrix.source_of(cell)).or_default().push(cell);
    }
    sources
}

/// The cells of each kernel.
pub fn kernels(matrix: &Matrix) -> Vec<Vec<Cell>> {
    let mut groups: IndexMap<_, Vec<Cell>> = IndexMap::new();
    for cell in &matrix.cells {
        let kernel = (&cell.arch, &cell.config, matrix.source_of(cell));
        groups.entry(kernel).or_default().push(cell.clone());
    }
    groups.into_values().collect()
}

/// The cells of a part of a matrix. Kernels are what takes time, so they are
/// dealt out, as many to each part but for one; neighbours, which share a
/// source or an architecture, stay together.
///
/// # Errors
/// There are fewer kernels than parts.
pub fn shard(matrix: &Matrix, shard: Shard) -> anyhow::Result<Vec<Cell>> {
    let kernels = kernels(matrix);
    let (part, of) = (shard.part as usize, shard.of as usize);
    if of > kernels.len() {
        let n = kernels.len();
        bail!("the matrix has {n} kernels, which cannot be dealt out to {of} shards");
    }
    let bounds = (part - 1) * kernels.len() / of..part * kernels.len() / of;
    Ok(kernels[bounds].concat())
}

/// Groups the cells by kernel and looks each kernel up.
///
/// # Errors
/// A configuration fragment is unreadable.
pub fn make(
    matrix: &Matrix,
    targets: &BTreeMap<String, Target>,
    trees: &Trees,
    cache: &Cache,
) -> anyhow::Result<Plan> {
    let mut requests = BTreeMap::new();
    for name in targets.keys() {
        requests.insert(name.as_str(), Request::of_all(&matrix.kernel, name)?);
    }
    let builds = kernels(matrix).into_iter().map(|cells| {
        let state = State::Dirty(vec!["the source is not fetched yet".to_owned()]);
        let Some(tree) = trees.get(&matrix.source_of(&cells[0])) else {
            return Ok(PlannedBuild { cells, build: None, state });
        };
        let Target { arch, tools, .. } = &targets[&cells[0].arch];
        let build = KernelBuild {
            arch: arch.clone(),
            source: tree.clone(),
            request: requests[arch.name.as_str()].with(&cells[0].config),
            tools: tools.clone(),
            make: matrix.kernel.make.clone(),
            ccache: None,
        };
        let state = look_up(matrix, &cells[0].id, &build, cache)?;
        Ok(PlannedBuild { cells, build: Some(build), state })
    });
    let builds = builds.collect::<anyhow::Result<Vec<_>>>()?;
    let boots = matrix.cells.len() * matrix.boot.boots as usize;
    Ok(Plan { builds, boots })
}

/// Whether a kernel, which is named by a cell, is in the cache.
fn look_up(matrix: &Matrix, name: &CellId, build: &KernelBuild, cache: &Cache) -> anyhow::Result<State> {
    let inputs = build.inputs()?;
    let found = KernelBuild::find(cache, &inputs.fingerprint());
    if let Some(built) = found.filter(|built| built.info.inputs == inputs) {
        return Ok(State::Fresh(Arc::new(built)));
    }
    Ok(State::Dirty(match cache.last_inputs(&memory_key(matrix, name)) {
        None => vec!["never built".to_owned()],
        Some(last) if last == inputs => vec!["its cache entry is gone or damaged".to_owned()],
        Some(last) => inputs.changes_since(&last),
    }))
}

/// Under what name the cache remembers what a cell was last built from.
pub fn memory_key(matrix: &Matrix, cell: &CellId) -> String {
    format!("{}/{cell}", matrix.name)
}
