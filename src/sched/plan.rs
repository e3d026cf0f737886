//! What a matrix needs: one build for all cells whose kernels are the same,
//! fresh or with the reason why not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use indexmap::IndexMap;

use crate::arch::{self, Arch};
use crate::cache::Cache;
use crate::kernel::build::Built;
use crate::kernel::{KernelBuild, SourceTree, Tools, source, toolchain};
use crate::model::{Cell, CellId, Matrix, Shard, Source};
use crate::process::{self, Spec, Stop};

const SHORT: Duration = Duration::from_secs(60);

/// An architecture with the programs found for it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// Its toolchain.
    pub tools: Tools,
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
    Fresh(Box<Built>),
    /// It is not, for these reasons.
    Dirty(Vec<String>),
}

impl PlannedBuild {
    /// The cell that names it.
    pub fn name(&self) -> &CellId {
        &self.cells[0].id
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

/// Finds `make`, and toolchain and emulator of every architecture in the matrix.
///
/// # Errors
/// One is not installed.
pub async fn targets(matrix: &Matrix, stop: &Stop) -> anyhow::Result<BTreeMap<String, Target>> {
    version("make", stop).await?;
    let mut targets = BTreeMap::new();
    for cell in &matrix.cells {
        if !targets.contains_key(&cell.arch) {
            let arch = arch::find(&cell.arch)?;
            let tools = toolchain::find(&matrix.kernel.toolchain, &arch, stop).await?;
            let qemu = version(&arch.qemu.program, stop).await?;
            targets.insert(cell.arch.clone(), Target { arch, tools, qemu });
        }
    }
    Ok(targets)
}

/// First line of what a program says of its version.
async fn version(program: &str, stop: &Stop) -> anyhow::Result<String> {
    let text = process::output(&Spec::new(program).arg("--version"), SHORT, stop).await?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Plans a matrix from what is on this machine, without a network.
///
/// # Errors
/// A toolchain is missing, or a local source or configuration is unreadable.
pub async fn offline(matrix: &Matrix, cache: &Cache, stop: &Stop) -> anyhow::Result<Plan> {
    let targets = targets(matrix, stop).await?;
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
pub fn sources(matrix: &Matrix) -> IndexMap<Origin, Vec<Cell>> {
    let mut sources: IndexMap<Origin, Vec<Cell>> = IndexMap::new();
    for cell in &matrix.cells {
        sources.entry(matrix.source_of(cell)).or_default().push(cell.clone());
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
    let builds = kernels(matrix).into_iter().map(|cells| {
        let tree = trees.get(&matrix.source_of(&cells[0]));
        plan_build(matrix, targets, tree, cache, cells)
    });
    let builds = builds.collect::<anyhow::Result<Vec<_>>>()?;
    let boots = matrix.cells.len() * matrix.boot.boots as usize;
    Ok(Plan { builds, boots })
}

fn plan_build(
    matrix: &Matrix,
    targets: &BTreeMap<String, Target>,
    tree: Option<&SourceTree>,
    cache: &Cache,
    cells: Vec<Cell>,
) -> anyhow::Result<PlannedBuild> {
    let Some(tree) = tree else {
        let state = State::Dirty(vec!["the source is not fetched yet".to_owned()]);
        return Ok(PlannedBuild { cells, build: None, state });
    };
    let Target { arch, tools, .. } = &targets[&cells[0].arch];
    let build = KernelBuild::describe(arch, &matrix.kernel, &cells[0].config, tree, tools)?;
    let inputs = build.inputs()?;
    let state = match KernelBuild::find(cache, &inputs.fingerprint()) {
        Some(built) => State::Fresh(Box::new(built)),
        None => State::Dirty(match cache.last_inputs(&memory_key(matrix, &cells[0].id)) {
            None => vec!["never built".to_owned()],
            Some(last) if last == inputs => vec!["its cache entry is gone or damaged".to_owned()],
            Some(last) => inputs.changes_since(&last),
        }),
    };
    Ok(PlannedBuild { cells, build: Some(build), state })
}

/// Under what name the cache remembers what a cell was last built from.
pub fn memory_key(matrix: &Matrix, cell: &CellId) -> String {
    format!("{}/{cell}", matrix.name)
}
