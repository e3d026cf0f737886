//! Whether this host's own processors can execute guests of an architecture.
//!
//! That `/dev/kvm` opens says little: there are machines where QEMU then
//! aborts, and others where the guest hangs without a word. So a guest of a few
//! instructions is tried.

use std::path::Path;
use std::time::Duration;

use super::argv;
use super::compiled;
use super::machine::Kvm;
use crate::arch::Arch;
use crate::cache::Cache;
use crate::kernel::Tools;
use crate::model::Accel;
use crate::process::{self, Ended, Limits, Spec, Stop, Stream};

const DEVICE: &str = "/dev/kvm";
/// It takes a fraction of a second.
const LIMIT: Duration = Duration::from_secs(10);

/// Finds out by a trial.
pub async fn probe(arch: &Arch, tools: &Tools, cache: &Cache, stop: &Stop) -> Kvm {
    let Some(facts) = arch.kvm.as_ref().filter(|facts| facts.host == std::env::consts::ARCH) else {
        return Kvm::Foreign;
    };
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Kvm::Broken(format!("{DEVICE}: {error}"));
    }
    let payload = match compiled::probe(facts, arch, tools, cache, stop).await {
        Ok(payload) => payload,
        Err(error) => return Kvm::Broken(format!("{error:#}")),
    };
    match trial(arch, Accel::Kvm, &payload, LIMIT, stop).await {
        Ok(()) => Kvm::Works,
        Err(why) => Kvm::Broken(why),
    }
}

/// Runs the guest `payload`, which powers off at once.
///
/// # Errors
/// It did not within `limit`, and what happened instead.
pub async fn trial(
    arch: &Arch,
    accel: Accel,
    payload: &Path,
    limit: Duration,
    stop: &Stop,
) -> Result<(), String> {
    let mut spec = Spec::new(&arch.qemu.program);
    for (name, value) in argv::processor(arch, accel, 0) {
        spec = spec.arg(name).arg(value);
    }
    let name = if accel == Accel::Kvm { "kvm" } else { "tcg" };
    let spec = spec
        .args(["-accel", name, "-m", "128M", "-display", "none", "-monitor", "none", "-serial", "none"])
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-kernel"])
        .arg(payload);
    let limits = Limits { deadline: Some(limit), grace: Duration::from_secs(1), ..Limits::default() };
    let mut said = String::new();
    let exit = process::run(&spec, &limits, stop, |stream, line| {
        if stream == Stream::Stderr {
            said = format!(": {}", super::console::printable(line));
        }
        std::ops::ControlFlow::Continue(())
    });
    match exit.await.map_err(|error| error.to_string())?.status {
        Ended::Code(0) => Ok(()),
        Ended::Deadline => Err(format!("its trial guest hung for {limit:?}{said}")),
        ended => Err(format!("its trial guest did not run, QEMU ended with {ended}{said}")),
    }
}
