//! `matrix doctor`

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::{Ending, print};
use crate::arch::{self, Arch};
use crate::cli::Doctor;
use crate::process::{self, Spec, Stop};

const SHORT: Duration = Duration::from_secs(20);
/// Where emulators look for firmware.
const FIRMWARE_DIRS: [&str; 3] = ["/usr/share/qemu", "/usr/local/share/qemu", "/usr/share/opensbi"];

/// Programs that every run needs, and the packages that hold them.
const COMMON: [(&str, &str); 12] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("bc", "bc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("perl", "perl"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("patch", "patch"),
    ("git", "git"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

/// Headers that some configurations need on the host.
const HEADERS: [(&str, &str); 2] =
    [("/usr/include/openssl/opensslv.h", "libssl-dev"), ("/usr/include/libelf.h", "libelf-dev")];

/// One thing that is needed.
struct Need {
    what: String,
    found: bool,
    packages: Vec<String>,
}

pub async fn doctor(args: &Doctor, stop: &Stop) -> anyhow::Result<Ending> {
    let mut needs = common();
    let archs = if args.arch.is_empty() {
        arch::all()?
    } else {
        args.arch.iter().map(|name| arch::find(name)).collect::<anyhow::Result<_>>()?
    };
    for arch in &archs {
        needs.extend(of_arch(arch, stop).await);
    }
    let mut missing = BTreeSet::new();
    for alternatives in needs.iter().filter(|n| !n.found).flat_map(|n| &n.packages) {
        missing.insert(available(alternatives, stop).await);
    }
    print(&if args.packages {
        missing.iter().map(|p| format!("{p}\n")).collect()
    } else {
        text(&needs, &missing)
    })?;
    Ok(if missing.is_empty() { Ending::Good } else { Ending::Failed })
}

/// The first of `A | B` that apt knows; the last where it knows none, as
/// before its first update.
async fn available<'a>(alternatives: &'a str, stop: &Stop) -> &'a str {
    let mut name = alternatives;
    for alternative in alternatives.split('|').map(str::trim) {
        name = alternative;
        let show = Spec::new("apt-cache").args(["show", "--no-all-versions", name]);
        if alternatives == name || process::output(&show, SHORT, stop).await.is_ok() {
            break;
        }
    }
    name
}

fn text(needs: &[Need], missing: &BTreeSet<&str>) -> String {
    let line = |n: &Need| format!("{:<8} {}\n", if n.found { "ok" } else { "MISSING" }, n.what);
    let mut text: String = needs.iter().map(line).collect();
    if missing.is_empty() {
        text.push_str("everything is there\n");
    } else {
        let packages = missing.iter().copied().collect::<Vec<_>>().join(" ");
        text.push_str(&format!(
            "\non Debian and Ubuntu, as root:\n  apt-get install --no-install-recommends {packages}\n"
        ));
    }
    text
}

fn common() -> Vec<Need> {
    let programs = COMMON.iter().map(|(name, package)| program(name, &[(*package).to_owned()]));
    let headers = HEADERS.iter().map(|(file, package)| Need {
        what: (*file).to_owned(),
        found: Path::new(file).exists(),
        packages: vec![(*package).to_owned()],
    });
    programs.chain(headers).collect()
}

async fn of_arch(arch: &Arch, stop: &Stop) -> Vec<Need> {
    let compiler = format!("{}gcc", arch.kernel.cross_compile);
    let mut needs =
        vec![program(&compiler, &arch.packages.toolchain), program(&arch.qemu.program, &arch.packages.qemu)];
    needs.push(Need {
        what: format!("static C library for {}", arch.name),
        found: has_c_library(&compiler, stop).await,
        packages: arch.packages.toolchain.clone(),
    });
    if let Some(firmware) = &arch.qemu.firmware {
        needs.push(Need {
            what: format!("{firmware}, firmware of {}", arch.name),
            found: FIRMWARE_DIRS.iter().any(|dir| Path::new(dir).join(firmware).exists()),
            packages: arch.packages.qemu.clone(),
        });
    }
    needs
}

/// The compiler prints a path for a file it finds and the bare name otherwise.
async fn has_c_library(compiler: &str, stop: &Stop) -> bool {
    let ask = Spec::new(compiler).arg("-print-file-name=libc.a");
    process::output(&ask, SHORT, stop).await.is_ok_and(|path| path.contains('/'))
}

fn program(name: &str, packages: &[String]) -> Need {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    Need { what: name.to_owned(), found, packages: packages.to_vec() }
}
