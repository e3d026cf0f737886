//! What a run keeps of kernels that are there: evidence and sizes of their
//! cells. However many kernels the cache holds, the disk is waited for once.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;

use super::plan::{self, PlannedBuild};
use super::run::Runner;
use super::stacks::size;
use crate::cache::{is_writable, link_or_copy, make_read_only, sync_trees, write_anew};
use crate::event::Job;
use crate::kernel::build::{self, Built};
use crate::kernel::{kconfig, reproduce};
use crate::model::{Cell, CellId, Failure, Sample, Stage};
use crate::store::{KernelRecord, Record};

/// What a kernel was built by.
const FILES: [&str; 3] = ["config", "build.log", "build.json"];
const CONFIG_DIFF: &str = "config.diff";

impl Runner<'_> {
    /// Takes in kernels that are there: keeps their evidence, then records
    /// what they yield without being booted.
    pub(super) fn take_in(&self, kernels: &[(&PlannedBuild, Arc<Built>)]) -> anyhow::Result<()> {
        let (mut dirs, mut records, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut script = Script::default();
        for (planned, built) in kernels {
            let files = FILES.map(|name| built.dir.join(name));
            if is_writable(&files[0])? {
                files.iter().for_each(|file| make_read_only(file));
            }
            for cell in &planned.cells {
                self.state.borrow_mut().kernels.insert(cell.id.clone(), built.clone());
                if self.state.borrow().dir.recorded().kernel(&cell.id).is_none() {
                    let dir = self.cell_dir(&cell.id)?;
                    keep(planned, built, &dir)?;
                    script.keep(planned, &dir)?;
                    dirs.push(dir);
                }
                self.cache.remember(&plan::memory_key(self.matrix, &cell.id), &built.info.inputs)?;
                match self.record_of(cell, built) {
                    Ok(record) => records.extend(record),
                    Err(failure) => others.push((cell, failure)),
                }
            }
        }
        // Before anything is recorded that it is to prove.
        sync_trees(&dirs)?;
        self.state.borrow_mut().dir.append_all(records)?;
        for (cell, failure) in others {
            self.state.borrow_mut().kernels.remove(&cell.id);
            self.fail(Job::Build(cell.id.clone()), std::slice::from_ref(cell), failure)?;
        }
        Ok(())
    }

    /// What is to be recorded of a cell's kernel, once. A kernel that came out
    /// otherwise than the one recorded is not mixed with it.
    fn record_of(&self, cell: &Cell, built: &Built) -> Result<Option<Record>, Failure> {
        let (kernel, build_id) = (built.info.inputs.fingerprint(), built.info.build_id.clone());
        let state = self.state.borrow();
        let Some(before) = state.dir.recorded().kernel(&cell.id) else {
            let (cell, samples) = (cell.id.clone(), sizes(&cell.id, built));
            return Ok(Some(Record::Kernel(KernelRecord { cell, kernel, build_id, samples })));
        };
        if (&before.kernel, &before.build_id) != (&kernel, &build_id) {
            let id = |id: &Option<String>| id.clone().unwrap_or_default();
            let detail = format!(
                "built again from the same inputs it is not the kernel that was measured: build ID {}, not {}",
                id(&build_id),
                id(&before.build_id)
            );
            return Err(Failure::new(Stage::Build, "another kernel", detail));
        }
        // Says that the failure is over.
        let failed = state.dir.recorded().has_failed(&cell.id);
        Ok(failed.then(|| Record::Kernel(before.clone())))
    }

    /// Shows beside each configuration how it differs from its neighbour's; in
    /// the end, as kernels come in another order than cells.
    pub(super) fn keep_config_diffs(&self) -> anyhow::Result<()> {
        let state = self.state.borrow();
        let file = |cell: &Cell, name: &str| state.dir.path().join("cells").join(&cell.id.0).join(name);
        let cells = &state.dir.matrix().cells;
        // Of cells that were built before an interruption too.
        let there: HashSet<&CellId> =
            cells.iter().map(|c| &c.id).filter(|id| state.dir.recorded().kernel(id).is_some()).collect();
        let siblings = Siblings::of(cells);
        let (mut kept, mut last) = (Vec::new(), None);
        for cell in cells.iter().filter(|c| there.contains(&c.id) && !file(c, CONFIG_DIFF).exists()) {
            let Some((axis, sibling)) = siblings.first(cell, |c| there.contains(&c.id)) else { continue };
            let config = |cell: &Cell| fs::read_to_string(file(cell, "config"));
            // Most have the same neighbour.
            if last.as_ref().is_none_or(|(of, _)| *of != &sibling.id) {
                last = config(sibling).ok().map(|config| (&sibling.id, config));
            }
            let (Some((_, before)), Ok(own)) = (&last, config(cell)) else { continue };
            let diff = kconfig::diff(before, &own);
            let text = format!("# {axis}: {} -> {}\n{diff}", sibling.id, cell.id);
            write_anew(&file(cell, CONFIG_DIFF), text.as_bytes())?;
            kept.push(file(cell, CONFIG_DIFF));
        }
        Ok(sync_trees(&kept)?)
    }
}

/// Keeps what a kernel was built by in a cell's folder.
fn keep(planned: &PlannedBuild, built: &Built, dir: &Path) -> anyhow::Result<()> {
    for name in FILES {
        link_or_copy(&built.dir.join(name), &dir.join(name))?;
    }
    let Some(build) = &planned.build else { return Ok(()) };
    if !built.info.overridden.is_empty() {
        let overlay = built.dir.join(build::OVERLAY);
        for file in kconfig::files(&overlay, &build.arch.kernel.arch)? {
            let kept = dir.join(build::OVERLAY).join(&file);
            fs::create_dir_all(kept.parent().unwrap_or(dir))?;
            link_or_copy(&overlay.join(&file), &kept)?;
        }
    }
    Ok(())
}

/// The last script that was kept: kernels differ in their configuration, which
/// is a file beside it, so most have the same one.
#[derive(Default)]
struct Script {
    text: String,
    file: PathBuf,
}

impl Script {
    fn keep(&mut self, planned: &PlannedBuild, dir: &Path) -> anyhow::Result<()> {
        let Some(build) = &planned.build else { return Ok(()) };
        let (text, file) = (reproduce::script(build, "boot-1/qemu.sh"), dir.join("reproduce.sh"));
        if text == self.text {
            return Ok(link_or_copy(&self.file, &file)?);
        }
        write_anew(&file, text.as_bytes())?;
        fs::set_permissions(&file, PermissionsExt::from_mode(0o555))?;
        *self = Script { text, file };
        Ok(())
    }
}

/// Finds cells that differ on one axis alone.
struct Siblings<'c> {
    cells: &'c [Cell],
    /// Their places by an axis and the values on all others.
    along: HashMap<(&'c str, Vec<&'c str>), Vec<usize>>,
    places: HashMap<&'c CellId, usize>,
}

impl<'c> Siblings<'c> {
    fn of(cells: &'c [Cell]) -> Self {
        let mut along: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, cell) in cells.iter().enumerate() {
            for axis in cell.coords.keys() {
                along.entry((axis.as_str(), others(cell, axis))).or_default().push(at);
            }
        }
        let places = cells.iter().enumerate().map(|(at, cell)| (&cell.id, at)).collect();
        Siblings { cells, along, places }
    }

    /// The first cell before this one that differs on one axis alone and is
    /// `there`, and that axis.
    fn first(&self, cell: &'c Cell, there: impl Fn(&Cell) -> bool) -> Option<(&'c str, &'c Cell)> {
        let own = *self.places.get(&cell.id)?;
        let of_axis = |axis: &'c String| {
            let cells = self.along.get(&(axis.as_str(), others(cell, axis)))?;
            let mut before = cells.iter().take_while(|at| **at < own);
            Some((*before.find(|at| there(&self.cells[**at]))?, axis))
        };
        let (at, axis) = cell.coords.keys().filter_map(of_axis).min()?;
        Some((axis, &self.cells[at]))
    }
}

/// Values on all axes but one.
fn others<'c>(cell: &'c Cell, axis: &str) -> Vec<&'c str> {
    cell.coords.iter().filter(|(name, _)| *name != axis).map(|(_, value)| value.as_str()).collect()
}

/// Sizes of a kernel as samples of a cell.
fn sizes(cell: &CellId, built: &Built) -> Vec<Sample> {
    let info = &built.info;
    let of_vmlinux = [
        ("file", info.sizes.file),
        ("stripped", info.stripped),
        ("text", info.sizes.text),
        ("data", info.sizes.data),
        ("bss", info.sizes.bss),
    ];
    let named = of_vmlinux.into_iter().map(|(name, value)| (format!("vmlinux.{name}"), value));
    let sections =
        info.sizes.sections.iter().map(|(name, value)| (format!("vmlinux.section.{name}"), *value));
    named
        .chain(sections)
        .chain([("image.file".to_owned(), info.image)])
        .map(|(metric, bytes)| size(cell, &metric, bytes))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sibling_is_the_first_that_differs_on_one_axis_and_is_there() {
        let cell = |x: &str, y: &str| Cell {
            id: CellId(format!("{x}{y}")),
            coords: [("X", x), ("Y", y)].map(|(a, v)| (a.to_owned(), v.to_owned())).into(),
            arch: String::new(),
            config: Default::default(),
            settings: Vec::new(),
        };
        let cells: Vec<_> = ["1a", "1b", "2a", "2b"].map(|id| cell(&id[..1], &id[1..])).to_vec();
        let siblings = Siblings::of(&cells);
        let first = |at: usize, there: &[&str]| {
            let found = siblings.first(&cells[at], |c| there.contains(&c.id.0.as_str()));
            found.map(|(axis, cell)| (axis, cell.id.0.as_str()))
        };
        let all = ["1a", "1b", "2a", "2b"];
        assert_eq!(first(0, &all), None, "none is before it");
        assert_eq!(first(1, &all), Some(("Y", "1a")));
        assert_eq!(first(2, &all), Some(("X", "1a")));
        assert_eq!(first(3, &all), Some(("X", "1b")), "not 1a, which differs on two");
        assert_eq!(first(3, &["1a", "2a"]), Some(("Y", "2a")));
        assert_eq!(first(3, &["1a"]), None);
    }
}
