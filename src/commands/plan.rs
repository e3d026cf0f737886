//! `matrix plan`, and what `matrix run --dry-run` shows.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::{Ending, load, print};
use crate::boot::guest::initramfs_name;
use crate::boot::machine::{Host, Kvm, Machine};
use crate::boot::session::Session;
use crate::cache::Cache;
use crate::cli::{self, PlanFormat};
use crate::model::{CellId, Matrix, Online, Shard, Source};
use crate::process::Stop;
use crate::sched::host;
use crate::sched::plan::{self, Plan, PlannedBuild, State};

pub async fn plan(args: &cli::Plan, cache: Option<PathBuf>, stop: &Stop) -> anyhow::Result<Ending> {
    let Some(matrix) = load(&args.selection.file, &args.selection.only)? else { return Ok(Ending::Wrong) };
    if args.format == PlanFormat::GithubMatrix {
        print(&format!("{}\n", github_matrix(&matrix, args.shards)?))?;
        return Ok(Ending::Good);
    }
    if args.shards.is_some() {
        bail!("--shards is for --format github-matrix");
    }
    let jobs = args.commands.then(|| std::thread::available_parallelism().map_or(1, Into::into));
    show(&matrix, &Cache::open(cache)?, jobs, stop).await
}

/// Shards of a run as `strategy.matrix` of a GitHub Actions job takes them; it
/// has no more than 256 jobs
/// (docs.github.com/en/actions/reference/limits).
fn github_matrix(matrix: &Matrix, shards: Option<u32>) -> anyhow::Result<serde_json::Value> {
    const MOST: u32 = 256;
    let kernels = u32::try_from(plan::kernels(matrix).len()).unwrap_or(MOST);
    let of = shards.unwrap_or(MOST).min(kernels).min(MOST);
    let mut include = Vec::new();
    for part in 1..=of {
        let shard = Shard { part, of };
        let cells: Vec<CellId> = plan::shard(matrix, shard)?.into_iter().map(|c| c.id).collect();
        let name = match cells.len() {
            1 => cells[0].to_string(),
            n => format!("{} and {} more", cells[0], n - 1),
        };
        include.push(serde_json::json!({ "shard": shard, "name": name, "cells": cells }));
    }
    Ok(serde_json::json!({ "include": include }))
}

/// Prints the plan of a matrix, with all commands where `jobs` says for how
/// many compiler processes.
pub async fn show(
    matrix: &Matrix,
    cache: &Cache,
    jobs: Option<usize>,
    stop: &Stop,
) -> anyhow::Result<Ending> {
    let plan = plan::offline(matrix, cache, stop).await?;
    let mut text = format!("{}: {} cells, {}\n", matrix.name, matrix.cells.len(), source(&matrix.source));
    for planned in &plan.builds {
        text.push_str(&build(planned));
    }
    text.push_str(&totals(&plan, matrix.boot.until.is_some()));
    if let Some(jobs) = jobs {
        text.push_str(&commands(matrix, &plan, cache, jobs)?);
    }
    print(&text)?;
    Ok(Ending::Good)
}

fn source(source: &Source) -> String {
    match source {
        Source::Package(name) => format!("source package {name}"),
        Source::Path(path) => format!("source in {}", path.display()),
        Source::Git { url, rev } => format!("source {rev} of {url}"),
        Source::Tarball(path) => format!("source tarball {}", path.display()),
    }
}

fn build(planned: &PlannedBuild) -> String {
    let mut text = match &planned.state {
        State::Fresh(built) => {
            format!("  fresh  {}: vmlinux {} bytes\n", planned.name(), built.info.sizes.file)
        }
        State::Dirty(reasons) => format!("  build  {}: {}\n", planned.name(), reasons.join("; ")),
    };
    for cell in &planned.cells[1..] {
        text.push_str(&format!("         the same kernel: {}\n", cell.id));
    }
    text
}

fn totals(plan: &Plan, until: bool) -> String {
    let builds = plan.builds.len();
    let most = if until { "up to " } else { "" };
    format!("{} to build, {} fresh, {most}{} boots\n", builds - plan.fresh(), plan.fresh(), plan.boots)
}

/// The make command of every build and the QEMU command of every cell.
fn commands(matrix: &Matrix, plan: &Plan, cache: &Cache, jobs: usize) -> anyhow::Result<String> {
    // Whether KVM works is found out by a run: it takes a trial.
    let host = Host { cores: host::cores(), kvm: Kvm::Foreign };
    let mut text = String::new();
    for planned in &plan.builds {
        let Some(build) = &planned.build else {
            text.push_str("\ncommands are known once the source is there\n");
            return Ok(text);
        };
        let fingerprint = build.inputs()?.fingerprint();
        let objdir = cache.work_path("builds", &fingerprint).join("obj");
        text.push_str(&format!("\n# {}\n{}\n", planned.name(), build.command(&objdir, jobs).command_line()));
        let image = cache.entry("builds", &fingerprint).join("Image");
        for cell in &planned.cells {
            let arch = &build.arch;
            let (boot, benchmarks) = (matrix.boot_of(cell), matrix.benchmarks_of(cell));
            let machine = Machine::choose(arch, &boot, &host, 1);
            let staged = machine.online == Online::Staged;
            let initramfs = Path::new("RUN/guest").join(initramfs_name(&arch.name, &benchmarks, staged));
            let firmware = PathBuf::from(format!("RUN/guest/{}-firmware.elf", arch.name));
            let session = Session {
                arch,
                boot: &boot,
                image: &image,
                initramfs: &initramfs,
                machine: &machine,
                firmware: machine.firmware_file(Some(&firmware)),
                benchmarks: &benchmarks,
                dir: Path::new("."),
            };
            text.push_str(&format!("{}\n", shell_words::join(session.command(Path::new("results.txt")))));
        }
    }
    Ok(text)
}
