//! A run as comparisons and the history take it.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use fs_err as fs;
use serde::Deserialize;

use super::{INFO, RunInfo, info, load};
use crate::model::{CellId, Matrix, Results, Source};

/// A run with what is known of how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What ran, on what; absent where it was not written down.
    pub info: Option<RunInfo>,
    /// What was measured.
    pub results: Results,
    /// What each cell's kernel was built from: `git v6.12 (COMMIT)`.
    pub sources: BTreeMap<CellId, String>,
}

impl Run {
    /// Reads a run directory.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn read(dir: &Path) -> anyhow::Result<Run> {
        let results = load(dir)?;
        let info = dir.join(INFO).is_file().then(|| info(dir)).transpose()?;
        let matrix = &results.matrix;
        let source = |cell: &CellId| built_from(dir, cell);
        let sources = matrix.cells.iter().map(|c| {
            let text = source(&c.id).unwrap_or_else(|| asked_for(matrix, &c.id));
            (c.id.clone(), text)
        });
        Ok(Run { info, sources: sources.collect(), results })
    }

    /// What all kernels were built from, or how many different things.
    pub fn source(&self) -> String {
        let mut all: Vec<&str> = self.sources.values().map(String::as_str).collect();
        all.sort_unstable();
        all.dedup();
        match all[..] {
            [] => String::new(),
            [one] => short(one),
            _ => format!("{} sources", all.len()),
        }
    }
}

/// A source with its commit as short as the kernel's `Fixes:` tags have it.
pub fn short(source: &str) -> String {
    let commit = |word: &&str| word.len() == 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let long = source.split(|c: char| !c.is_ascii_alphanumeric()).find(commit);
    long.map_or_else(|| source.to_owned(), |long| source.replace(long, &long[..12]))
}

/// What a cell's evidence says of its kernel's source.
fn built_from(dir: &Path, cell: &CellId) -> Option<String> {
    #[derive(Deserialize)]
    struct Built {
        source: String,
    }
    // Ids come from a file: none may lead out of the run directory.
    let mut parts = Path::new(&cell.0).components();
    let inside = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    let file = dir.join("cells").join(&cell.0).join("build.json");
    let built: Built = inside.then(|| serde_json::from_slice(&fs::read(file).ok()?).ok())??;
    Some(built.source)
}

/// What the matrix wanted a cell's kernel to be built from.
fn asked_for(matrix: &Matrix, cell: &CellId) -> String {
    let Some(cell) = matrix.cells.iter().find(|c| c.id == *cell) else { return String::new() };
    let (source, patches) = matrix.source_of(cell);
    let source = match source {
        Source::Package(name) => format!("package {name}"),
        Source::Path(path) => format!("path {}", path.display()),
        Source::Git { rev, .. } => format!("git {rev}"),
        Source::Tarball(path) => format!("tarball {}", path.display()),
    };
    let names = patches.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    std::iter::once(source).chain(names).collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
impl Run {
    /// A run for tests: a matrix with these cells, begun so many seconds after 1970.
    pub(crate) fn made_up(cells: &[&str], began: i64) -> Run {
        use crate::model::*;
        let cell = |id: &&str| Cell {
            id: CellId((*id).to_owned()),
            coords: [("SYMBOL".to_owned(), (*id).to_owned())].into(),
            arch: "a".into(),
            config: BTreeMap::new(),
            settings: Vec::new(),
        };
        let values = cells.iter().map(|id| (*id).to_owned()).collect();
        let matrix = Matrix {
            name: "m".into(),
            source: Source::Path("/linux".into()),
            axes: vec![Axis { name: "SYMBOL".into(), values, labels: BTreeMap::new() }],
            cells: cells.iter().map(cell).collect(),
            kernel: Kernel::plain(),
            boot: Boot::plain(),
            benchmarks: vec![],
            tables: vec![],
        };
        let info = serde_json::json!({
            "matrix_version": "1", "began": jiff::Timestamp::from_second(began).unwrap(),
            "command": ["matrix"], "host": {"cores": "2"}, "tools": {"qemu": "7"},
        });
        let sources = matrix.cells.iter().map(|c| (c.id.clone(), "git v1".to_owned())).collect();
        let results =
            Results { matrix, samples: Vec::new(), failures: BTreeMap::new(), frames: BTreeMap::new() };
        Run { info: Some(serde_json::from_value(info).unwrap()), results, sources }
    }

    /// Adds the samples of a boot.
    pub(crate) fn measured(
        mut self,
        cell: &str,
        metric: &str,
        kind: crate::model::Kind,
        boot: Option<u32>,
        values: &[f64],
    ) -> Run {
        let sample = |(iteration, value): (u32, &f64)| crate::model::Sample {
            cell: CellId(cell.to_owned()),
            metric: metric.to_owned(),
            value: *value,
            unit: "s".into(),
            better: crate::model::Direction::Lower,
            kind,
            boot,
            iteration: Some(iteration),
        };
        self.results.samples.extend((1..).zip(values).map(sample));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_shortened() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(short(&format!("git v6.12 ({commit}) + a.patch")), "git v6.12 (0123456789ab) + a.patch");
        assert_eq!(short("package linux-source-6.12_6.12.117"), "package linux-source-6.12_6.12.117");
    }

    #[test]
    fn evidence_lies_inside_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        for cell in ["run/cells/c", "outside"] {
            fs::create_dir_all(dir.path().join(cell)).unwrap();
            fs::write(dir.path().join(cell).join("build.json"), r#"{"source":"git x","more":1}"#).unwrap();
        }
        assert_eq!(built_from(&run, &CellId("c".into())), Some("git x".into()));
        for bad in ["../../outside", "", "..", "/outside", "c/../c", "missing"] {
            assert_eq!(built_from(&run, &CellId(bad.into())), None, "{bad}");
        }
    }
}
