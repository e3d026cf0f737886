//! Programs of ours that run in a guest, compiled by the kernels' compiler.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::arch::{Arch, KvmFacts};
use crate::assets;
use crate::cache::{Cache, Inputs, write_whole};
use crate::kernel::Tools;
use crate::process::{self, Spec, Stop};

const ROOM: &str = "guest";
const LIMIT: Duration = Duration::from_secs(120);
/// Name of what the compiler writes.
const OUTPUT: &str = "program";
/// File of an entry with what is known of its program.
pub const MADE: &str = "made.json";

/// What is known of a compiled program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Made {
    /// Architecture and source file.
    pub what: String,
    /// Bytes of the program; one that was cut off is compiled again.
    pub length: u64,
}

/// The guest's init: a static program of the architecture's C library.
///
/// # Errors
/// It does not compile, for example because there is no such C library.
pub async fn agent(arch: &Arch, tools: &Tools, cache: &Cache, stop: &Stop) -> anyhow::Result<PathBuf> {
    let args = ["-static", "-O2", "agent.c"].map(str::to_owned).to_vec();
    compile("guest", args, arch, tools, cache, stop).await.with_context(|| {
        format!("compiling the guest agent; its C library comes with: {}", arch.packages.toolchain.join(" "))
    })
}

/// The workload `name` of ours, of `qemu/guest/workloads/`.
///
/// # Errors
/// There is none of that name, or it does not compile.
pub async fn workload(
    name: &str,
    arch: &Arch,
    tools: &Tools,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<PathBuf> {
    let source = format!("{name}.c");
    let args = ["-static", "-O2", "-pthread", &source].map(str::to_owned).to_vec();
    compile("guest/workloads", args, arch, tools, cache, stop)
        .await
        .with_context(|| format!("compiling the workload {name}"))
}

/// The architecture's firmware of ours; none where it has none.
///
/// # Errors
/// It does not compile.
pub async fn firmware(
    arch: &Arch,
    tools: &Tools,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<Option<PathBuf>> {
    let Some(facts) = &arch.firmware else { return Ok(None) };
    let mut args: Vec<String> = ["-nostdlib", "-nostdinc", "-ffreestanding", "-static", "-O2"]
        .into_iter()
        .map(str::to_owned)
        .chain(facts.flags.iter().cloned())
        .collect();
    args.extend(["-T".to_owned(), facts.script.clone()]);
    args.extend(facts.sources.iter().cloned());
    compile(&facts.dir, args, arch, tools, cache, stop).await.context("compiling the firmware").map(Some)
}

/// A guest that powers off at once, to try KVM with.
///
/// # Errors
/// It does not compile.
pub async fn probe(
    facts: &KvmFacts,
    arch: &Arch,
    tools: &Tools,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<PathBuf> {
    // -N leaves out the headers: the machine enters at the lowest address.
    let address = format!("-Wl,-N,-Ttext={},--build-id=none", facts.address);
    let args = ["-nostdlib", "-static", &address, &facts.probe].map(str::to_owned).to_vec();
    compile("kvm", args, arch, tools, cache, stop).await.context("compiling the trial guest")
}

/// Compiles sources of the folder `dir` below `qemu/`, once for each content
/// and compiler.
async fn compile(
    dir: &str,
    args: Vec<String>,
    arch: &Arch,
    tools: &Tools,
    cache: &Cache,
    stop: &Stop,
) -> anyhow::Result<PathBuf> {
    let sources = assets::QEMU.get_dir(dir).with_context(|| format!("qemu/{dir} is not compiled in"))?;
    let mut inputs = Inputs::default();
    inputs.add("arch", &arch.name);
    inputs.add("toolchain", &tools.version);
    inputs.add("arguments", args.join(" "));
    for file in sources.files() {
        let name = file.path().display().to_string();
        inputs.add(&name, blake3::hash(file.contents()).to_hex().as_str());
    }
    let key = inputs.fingerprint();
    let _lock = cache.lock(ROOM, &key, &stop.graceful).await?;
    cache.used(ROOM, &key)?;
    let program = cache.entry(ROOM, &key).join(OUTPUT);
    let made = fs::read(program.with_file_name(MADE)).ok();
    let made: Option<Made> = made.and_then(|text| serde_json::from_slice(&text).ok());
    let length = fs::metadata(&program).map(|m| m.len()).ok();
    if made.is_some_and(|made| Some(made.length) == length) {
        return Ok(program);
    }
    let work = cache.work(ROOM, &key)?;
    for file in sources.files() {
        let name = file.path().file_name().unwrap_or_default();
        fs::write(work.join(Path::new(name)), file.contents())?;
    }
    let (cc, first) = tools.cc.split_first().context("the toolchain has no compiler")?;
    let what = [arch.name.as_str()].into_iter().chain(args.last().map(String::as_str));
    let what = what.collect::<Vec<_>>().join(" ");
    let spec = Spec::new(cc).args(first).args(args).args(["-o", OUTPUT]).cwd(&work);
    process::output(&spec, LIMIT, stop).await?;
    let made = Made { what, length: fs::metadata(work.join(OUTPUT))?.len() };
    write_whole(&work.join(MADE), &serde_json::to_vec_pretty(&made)?)?;
    cache.publish(&work, ROOM, &key)?;
    Ok(program)
}
