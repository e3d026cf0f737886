//! The matrix file: text in, a validated [`Matrix`] with its cells out, or
//! every fault at once.
//!
//! ```text
//! text --read--> raw (as written) --validate--> Matrix --select--> Matrix (--only)
//! ```

mod expand;
mod hint;
mod raw;
mod read;
mod schema;
mod select;
#[cfg(test)]
mod tests;
mod validate;

use std::path::{Path, PathBuf};

use crate::diag::Diagnostics;
use crate::model::{Level, Matrix};

pub use schema::schema;
pub use select::{Only, SelectError, select};

/// What the validator needs to know about the rest of the program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// Architectures that can be built and booted.
    pub archs: Vec<ArchFacts>,
    /// Benchmarks that `use` may name.
    pub benchmarks: Vec<BenchmarkDef>,
    /// Fragments that `kernel.fragments` may name.
    pub fragments: Vec<String>,
}

/// What the validator needs to know about an architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchFacts {
    /// Value of the axis `arch`.
    pub name: String,
    /// Most processors that its machine can be started with.
    pub max_vcpus: u32,
    /// Levels of the CPU topology that can be asked for.
    pub levels: Vec<Level>,
    /// Most NUMA nodes that it can be started with.
    pub max_numa_nodes: u32,
}

pub use crate::bench::Definition as BenchmarkDef;

/// Why a matrix file yields no matrix.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is faulty.
    #[error(transparent)]
    Faults(#[from] Diagnostics),
}

/// Loads the matrix file at `path`; paths in it are relative to its directory.
///
/// # Errors
/// The file cannot be read, or is faulty: then with all faults.
pub fn load(path: &Path, ctx: &Context) -> Result<Matrix, LoadError> {
    let io = |error| LoadError::Io { path: path.to_owned(), error };
    let text = std::fs::read_to_string(path).map_err(io)?;
    let file = std::path::absolute(path).map_err(io)?;
    let dir = file.parent().unwrap_or(Path::new("/"));
    Ok(parse(&path.to_string_lossy(), &text, dir, ctx)?)
}

/// Validates the text of a matrix file. Apart from asking whether the files
/// that it names exist, relative to `dir`, this does no I/O.
///
/// # Errors
/// All faults of the text, in its order.
pub fn parse(file_name: &str, text: &str, dir: &Path, ctx: &Context) -> Result<Matrix, Diagnostics> {
    let result = match read::read(text) {
        Ok(reading) => validate::validate(reading, file_name, text, dir, ctx),
        Err(fault) => Err(vec![fault]),
    };
    result.map_err(|mut faults| {
        faults.sort_by_key(|f| f.span.start);
        Diagnostics { file: file_name.to_owned(), text: text.to_owned(), faults }
    })
}
