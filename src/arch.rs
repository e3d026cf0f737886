//! Architectures, each described by one file `qemu/NAME.toml`. Nothing else
//! in the program knows an architecture's name.

use serde::{Deserialize, Serialize};

use crate::assets;
use crate::model::Level;

/// An architecture that kernels can be built for and booted on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arch {
    /// Name in matrix files: the description's file name.
    #[serde(skip)]
    pub name: String,
    /// How its kernels are built.
    pub kernel: KernelFacts,
    /// Which of its instructions move the stack pointer.
    pub stack: StackFacts,
    /// How it is emulated.
    pub qemu: QemuFacts,
    /// How its guests run on a host's own processors.
    pub kvm: Option<KvmFacts>,
    /// Firmware of ours for it, where there is one.
    pub firmware: Option<FirmwareFacts>,
    /// Where its guest programs come from.
    pub guest: GuestFacts,
    /// Packages that provide what it needs.
    pub packages: Packages,
}

/// How an architecture's kernels are built.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelFacts {
    /// `ARCH=` of the kernel's makefile.
    pub arch: String,
    /// Usual `CROSS_COMPILE=`, with the closing dash.
    pub cross_compile: String,
    /// The bootable image, below the object directory.
    pub image: String,
    /// The make target that produces it.
    pub target: String,
}

/// Which instructions move the stack pointer, as regular expressions over an
/// instruction as objdump and llvm-objdump print it: `sub\tsp, sp, #0x150`.
///
/// An amount is the group `bytes` (decimal or `0x` and hexadecimal, signed;
/// times two to the power of the group `shift`, if there is one), or the group
/// `high` (bits 12 to 31 of a signed 32-bit number), or the group `reg`: what
/// the register of that name holds, if a `load` before it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackFacts {
    /// The stack grows by the amount.
    pub grow: Vec<String>,
    /// The stack shrinks by the amount.
    pub shrink: Vec<String>,
    /// The stack pointer is moved by what only run time tells.
    pub dynamic: Vec<String>,
    /// The stack pointer goes to another stack, whose use is not the function's.
    pub switch: Vec<String>,
    /// Register `reg` becomes the amount.
    pub load: Vec<String>,
    /// Register `reg` becomes what `from`, or itself without that group, holds
    /// plus the amount.
    pub add: Vec<String>,
    /// The instruction behind it is reached by jumps alone.
    pub end: Vec<String>,
    /// Register `reg` becomes something else; for what none of the above explains.
    pub write: Vec<String>,
}

/// How an architecture is emulated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QemuFacts {
    /// Program on PATH.
    pub program: String,
    /// Argument of `-machine`.
    pub machine: String,
    /// Argument of `-cpu`.
    pub cpu: String,
    /// The kernel's name of the serial console.
    pub console: String,
    /// File name of the firmware that the emulator loads by itself, where it does.
    pub firmware: Option<String>,
    /// Most processors that the machine has.
    pub max_vcpus: u32,
    /// Levels of the CPU topology that the machine lets be chosen and shows its
    /// guest. Without `sockets`, each NUMA node is a socket; without another
    /// level there is one of it.
    pub topology: Vec<Level>,
    /// Most NUMA nodes that the machine has.
    pub max_numa_nodes: u32,
    /// Argument of `-machine` with NUMA nodes, however many, where it is another
    /// (emulated machines only).
    pub numa_machine: Option<String>,
}

/// How guests run on the processors of a host of the same architecture.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvmFacts {
    /// What such a host calls its architecture (`uname -m`).
    pub host: String,
    /// Argument of `-machine`.
    pub machine: String,
    /// Argument of `-cpu`.
    pub cpu: String,
    /// Source, below `qemu/kvm/`, of a guest that powers off at once.
    pub probe: String,
    /// Where in guest memory that guest goes.
    pub address: String,
}

/// Firmware that is built from sources below `qemu/`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirmwareFacts {
    /// Folder below `qemu/`.
    pub dir: String,
    /// Linker script in it.
    pub script: String,
    /// Sources in it.
    pub sources: Vec<String>,
    /// Arguments of the compiler that choose the instruction set.
    pub flags: Vec<String>,
    /// Most processors that the stock firmware starts without fail.
    pub stock_max_vcpus: u32,
}

/// Where an architecture's guest programs come from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestFacts {
    /// Debian's name of the architecture.
    pub debian_arch: String,
    /// Debian release whose packages the guest runs.
    pub suite: String,
}

/// Debian and Ubuntu packages that provide what an architecture needs;
/// `A | B` is the first of them that the system's release has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// Cross compiler, binutils and C library.
    pub toolchain: Vec<String>,
    /// Emulator and firmware.
    pub qemu: Vec<String>,
}

/// Every architecture, by name.
///
/// # Errors
/// A description compiled into the program is malformed.
pub fn all() -> anyhow::Result<Vec<Arch>> {
    assets::texts(&assets::QEMU, "toml").into_iter().map(|(name, text)| parse(name, text)).collect()
}

/// The architecture called `name`.
///
/// # Errors
/// There is none of that name.
pub fn find(name: &str) -> anyhow::Result<Arch> {
    let all = all()?;
    all.into_iter()
        .find(|a| a.name == name)
        .ok_or_else(|| anyhow::anyhow!("no architecture '{name}'; `matrix list` shows them"))
}

fn parse(name: &str, text: &str) -> anyhow::Result<Arch> {
    let mut arch: Arch = toml::from_str(text).map_err(|e| anyhow::anyhow!("qemu/{name}.toml: {e}"))?;
    arch.name = name.to_owned();
    Ok(arch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_parses_and_names_itself() {
        let all = all().unwrap();
        assert!(all.len() >= 2);
        for arch in &all {
            assert_eq!(find(&arch.name).unwrap(), *arch);
            assert!(arch.kernel.cross_compile.ends_with('-'));
            assert!(arch.qemu.max_vcpus > 1);
        }
    }

    #[test]
    fn unknown_key_names_the_file() {
        let err = parse("x", "[kernel]\nspeed = 1\n").unwrap_err().to_string();
        assert!(err.starts_with("qemu/x.toml"), "{err}");
        assert!(err.contains("speed"), "{err}");
    }
}
