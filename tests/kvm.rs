//! The trial of KVM, with stand-ins for an emulator whose guest runs, aborts or hangs.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use matrix::arch::{self, Arch};
use matrix::boot::kvm;
use matrix::model::Accel;
use matrix::process::{self, Stop};

/// What a trial says of an emulator that is this script.
async fn trial(script: &str, arch: &Arch) -> Result<(), String> {
    process::set_guard_program(env!("CARGO_BIN_EXE_matrix"));
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("emulator");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut arch = arch.clone();
    arch.qemu.program = program.to_str().unwrap().to_owned();
    let limit = Duration::from_secs(2);
    kvm::trial(&arch, Accel::Kvm, Path::new("guest.elf"), limit, &Stop::default()).await
}

#[tokio::test]
async fn a_device_that_opens_is_not_believed() {
    for arch in arch::all().unwrap() {
        // It runs the host's own processors, and nothing of the user's.
        let wanted = "case \"$*\" in *'-cpu host -accel kvm'*-no-user-config*'-kernel guest.elf') ;; *) exit 9 ;; esac";
        assert_eq!(trial(wanted, &arch).await, Ok(()), "{}", arch.name);
    }
    let arch = arch::all().unwrap().remove(0);
    let aborts = trial("echo 'regs: \\033[31mbad' >&2; kill -ABRT $$", &arch).await.unwrap_err();
    assert!(aborts.contains("QEMU ended with signal 6 (SIGABRT)"), "{aborts}");
    assert!(aborts.ends_with("[31mbad") && !aborts.contains('\x1b'), "{aborts}");
    let hangs = trial("trap '' TERM; exec sleep 100", &arch).await.unwrap_err();
    assert!(hangs.starts_with("its trial guest hung for 2s"), "{hangs}");
}
