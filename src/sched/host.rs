//! What a run ran on: the host and the versions of the programs involved.

use std::collections::BTreeMap;

use anyhow::bail;
use fs_err as fs;

use super::plan::Target;
use crate::model::Shard;
use crate::store::RunInfo;

/// Describes a run that begins now.
pub fn describe(targets: &BTreeMap<String, Target>, seed: u64, shard: Option<Shard>) -> RunInfo {
    RunInfo {
        matrix_version: env!("CARGO_PKG_VERSION").to_owned(),
        began: jiff::Timestamp::now(),
        command: std::env::args().collect(),
        host: host(),
        tools: tools(targets),
        seed: Some(seed),
        shard,
        resumed: Vec::new(),
        parts: Vec::new(),
    }
}

/// Notes in a run's description that it is gone on with now.
///
/// # Errors
/// What is measured now could not be compared with what was.
pub fn resume(info: &mut RunInfo, targets: &BTreeMap<String, Target>, timed: bool) -> anyhow::Result<()> {
    let now = describe(targets, 0, None);
    let changes = info.differences(&now, timed);
    if !changes.is_empty() {
        bail!("what is left cannot be compared with what this run measured: {}", changes.join("; "));
    }
    info.tools.extend(now.tools);
    info.resumed.push(now.began);
    Ok(())
}

/// Versions of the programs of all architectures.
fn tools(targets: &BTreeMap<String, Target>) -> BTreeMap<String, String> {
    let mut tools = BTreeMap::new();
    for (name, target) in targets {
        tools.insert(format!("toolchain {name}"), target.tools.version.clone());
        tools.insert(target.arch.qemu.program.clone(), target.qemu.clone());
    }
    tools
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Processors of the host.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Memory that new programs can have, in MiB.
pub fn available_mib() -> Option<u64> {
    let kib: u64 = field("/proc/meminfo", "MemAvailable")?.strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024)
}

/// How busy the host is: what a timing by its clock has to be judged by.
pub fn condition() -> BTreeMap<String, String> {
    let mut condition = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            condition.insert(name.to_owned(), value);
        }
    };
    put("load", fs::read_to_string("/proc/loadavg").ok().map(|text| first_line(&text)));
    put("frequency governor", governor());
    put("guests", guests().map(|n| n.to_string()));
    condition
}

/// What decides on the processors' frequency, where the host lets it be seen.
fn governor() -> Option<String> {
    const FILE: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    fs::read_to_string(FILE).ok().map(|text| first_line(&text))
}

/// What makes times taken by this host's clock less than they could be, without
/// making them wrong.
pub fn cautions() -> Vec<String> {
    about(governor().as_deref(), guests().unwrap_or(0))
}

fn about(governor: Option<&str>, guests: usize) -> Vec<String> {
    let mut cautions = Vec::new();
    if let Some(governor) = governor.filter(|g| *g != "performance") {
        cautions.push(format!(
            "the host's frequency governor is `{governor}`, which changes the frequency with the load: \
             `cpupower frequency-set -g performance`"
        ));
    }
    if guests > 0 {
        let (s, run) = if guests == 1 { ("", "runs") } else { ("s", "run") };
        cautions.push(format!("{guests} guest{s} of somebody else's {run} on this host"));
    }
    cautions
}

/// Emulators and virtual machine monitors of QEMU's that run.
fn guests() -> Option<usize> {
    let names =
        fs::read_dir("/proc").ok()?.filter_map(|e| fs::read_to_string(e.ok()?.path().join("comm")).ok());
    Some(names.filter(|name| name.starts_with("qemu-system")).count())
}

fn host() -> BTreeMap<String, String> {
    let mut host = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            host.insert(name.to_owned(), value);
        }
    };
    put("kernel", fs::read_to_string("/proc/version").ok().map(|v| first_line(&v)));
    put("cores", Some(cores().to_string()));
    put("processor", field("/proc/cpuinfo", "model name"));
    put("memory", field("/proc/meminfo", "MemTotal"));
    put("frequency governor", governor());
    put("system", fs::read_to_string("/etc/os-release").ok().and_then(|t| os_name(&t)));
    host
}

/// Value of the first `NAME : VALUE` line of a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let pairs = text.lines().filter_map(|l| l.split_once(':'));
    pairs.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned()).next()
}

fn os_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_timings_may_suffer_from_is_said() {
        assert_eq!(about(None, 0), [""; 0]);
        assert_eq!(about(Some("performance"), 0), [""; 0]);
        let said = about(Some("powersave"), 2);
        assert!(said[0].contains("`powersave`") && said[1] == "2 guests of somebody else's run on this host");
        assert_eq!(about(None, 1), ["1 guest of somebody else's runs on this host"]);
    }
}
