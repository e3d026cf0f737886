//! The compiler and binutils that a kernel and its guest agent are built with.

use anyhow::Context;

use super::version::version;
use crate::arch::Arch;
use crate::cache::Cache;
use crate::model::Toolchain;
use crate::process::Stop;

/// A toolchain found on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// Variables for the kernel's makefile: `CROSS_COMPILE=...` or `LLVM=1`.
    pub make: Vec<String>,
    /// The C compiler and the arguments that make it compile for the architecture.
    pub cc: Vec<String>,
    /// The `strip` program.
    pub strip: String,
    /// The `objdump` program.
    pub objdump: String,
    /// First lines of the versions of compiler and linker.
    pub version: String,
}

/// Finds the toolchain that `wanted` names for `arch`.
///
/// # Errors
/// It is not installed.
pub async fn find(wanted: &Toolchain, arch: &Arch, cache: &Cache, stop: &Stop) -> anyhow::Result<Tools> {
    let Names { make, cc, linker, strip, objdump } = names(wanted, arch);
    let install = || {
        let packages = match wanted {
            Toolchain::Llvm => "clang lld llvm".to_owned(),
            Toolchain::Gcc { .. } => arch.packages.toolchain.join(" "),
        };
        format!("no toolchain for {}; on Debian: apt-get install {packages}", arch.name)
    };
    let (compiler, linker) = tokio::join!(version(&cc[0], cache, stop), version(&linker, cache, stop));
    let (compiler, linker) = (compiler.with_context(install)?, linker.with_context(install)?);
    Ok(Tools { make, cc, strip, objdump, version: format!("{compiler}, {linker}") })
}

/// What a toolchain's programs are called.
struct Names {
    make: Vec<String>,
    cc: Vec<String>,
    linker: String,
    strip: String,
    objdump: String,
}

fn names(wanted: &Toolchain, arch: &Arch) -> Names {
    match wanted {
        Toolchain::Gcc { prefix } => {
            let prefix = prefix.as_deref().unwrap_or(&arch.kernel.cross_compile);
            let tool = |name: &str| format!("{prefix}{name}");
            Names {
                make: vec![format!("CROSS_COMPILE={prefix}")],
                cc: vec![tool("gcc")],
                linker: tool("ld"),
                strip: tool("strip"),
                objdump: tool("objdump"),
            }
        }
        Toolchain::Llvm => {
            let triple = arch.kernel.cross_compile.trim_end_matches('-');
            Names {
                make: vec!["LLVM=1".to_owned()],
                cc: vec!["clang".to_owned(), format!("--target={triple}")],
                linker: "ld.lld".to_owned(),
                strip: "llvm-strip".to_owned(),
                objdump: "llvm-objdump".to_owned(),
            }
        }
    }
}
