//! A shell script that builds one kernel again with plain `make`.

use std::path::Path;

use super::build::KernelBuild;
use super::source::SourceTree;

/// Stand for the script's variables where the command is put together; they
/// are words that no shell quotes.
const TREE: &str = "MATRIX_TREE";
const OBJECTS: &str = "MATRIX_OBJECTS";

/// The script: it takes the tree and, if wanted, an object directory, and
/// leaves the kernel there. It stands in a folder with `config` and, where
/// rules of the tree had to be replaced, `overlay`; `boot` boots the kernel
/// at `$KERNEL`, by a command relative to that folder.
pub fn script(build: &KernelBuild, boot: &str) -> String {
    let tree = SourceTree { dir: TREE.into(), ..build.source.clone() };
    let build = KernelBuild { source: tree, ..build.clone() };
    let make = build.command(Path::new(OBJECTS), 1).to_string();
    let objects = shell_words::quote(&format!("O={OBJECTS}")).into_owned();
    let make = make.replace(&objects, "O=\"$objects\"").replace(TREE, "\"$tree\"");
    let make = make.replace(" -j1 ", " -j\"$(nproc)\" ");
    let source = shell_words::quote(&build.source.describe);
    let image = shell_words::quote(&build.arch.kernel.image);
    format!(
        r#"#!/bin/sh
# Builds and boots this one cell with plain make and QEMU:
#   reproduce.sh TREE [OBJECTS]
# TREE is the source it was built from; OBJECTS a folder for everything that
# make writes [./objects].
set -eu
source={source}
[ $# -ge 1 ] || {{ echo "usage: $0 TREE [OBJECTS]; TREE was: $source" >&2; exit 2; }}
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$1" && pwd)
mkdir -p "${{2:-objects}}"
objects=$(cd "${{2:-objects}}" && pwd)
# Kconfig takes these instead of the tree's files of the same names.
[ ! -d "$here/overlay" ] || cp -Rf "$here/overlay/." "$objects"
cat "$here/config" >"$objects/.config"
{make}
cmp "$here/config" "$objects/.config"
KERNEL=$objects/{image} exec "$here"/{boot}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Tools;
    use crate::kernel::config::Request;
    use crate::model::{BaseConfig, Kernel};

    #[test]
    fn nothing_of_the_machine_is_in_it_and_values_are_quoted() {
        let kernel = Kernel {
            base: BaseConfig::Target("allnoconfig".into()),
            make: vec!["KCFLAGS=-O2 -g".into()],
            ..Kernel::plain()
        };
        let tools = Tools {
            make: vec![],
            cc: vec![],
            strip: String::new(),
            objdump: String::new(),
            version: String::new(),
        };
        let arch = crate::arch::all().unwrap().remove(0);
        let build = KernelBuild {
            request: Request::of_all(&kernel, &arch.name).unwrap(),
            arch: arch.into(),
            source: SourceTree {
                dir: "/home/me/linux".into(),
                fingerprint: "f".into(),
                describe: "it's".into(),
                state: None,
            },
            tools: tools.into(),
            make: kernel.make,
            ccache: None,
        };
        let script = script(&build, "boot-1/qemu.sh");
        assert!(!script.contains("/home/me"), "{script}");
        assert!(script.contains("make -C \"$tree\" O=\"$objects\" "), "{script}");
        assert!(script.contains("'KCFLAGS=-O2 -g' -j\"$(nproc)\" vmlinux "), "{script}");
        assert!(script.contains("source='it'\\''s'\n"), "{script}");
    }
}
