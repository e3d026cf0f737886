//! Which of several ways a guest is started: what executes it, what firmware,
//! how its processors come online; each with the reason. Pure.

use std::path::Path;

use serde::Serialize;

use crate::arch::Arch;
use crate::model::{Accel, Boot, Firmware, Kind, Online};

/// Processors that the kernel brings up itself before the others are staged.
pub const STAGED_FIRST: u32 = 2;
/// Up to so many staged processors one host thread visits them all faster than
/// as many threads can wait for each other (docs/many-vcpus.md).
const SINGLE_UP_TO: u32 = 256;
/// From so many processors on staging pays.
const STAGED_FROM: u32 = 17;

/// What a host offers to guests of one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Processors.
    pub cores: u32,
    /// Whether its own processors can execute the guest.
    pub kvm: Kvm,
}

/// Whether a host's own processors can execute guests of one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kvm {
    /// It has processors of another architecture.
    Foreign,
    /// A trial guest ran.
    Works,
    /// It cannot, for this reason.
    Broken(String),
}

/// How one guest is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// What executes it; never `Auto`.
    pub accel: Accel,
    /// How its processors come online; never `Auto`.
    pub online: Online,
    /// Whether the firmware is ours or a file of the user's instead of the stock one.
    pub firmware: Firmware,
    /// Seed of every pseudo-random choice of the emulator.
    pub seed: u32,
    /// What was picked by itself, and why.
    pub reasons: Vec<String>,
}

impl Machine {
    /// Chooses for boot `number` (from 1) of a guest.
    pub fn choose(arch: &Arch, boot: &Boot, host: &Host, number: u32) -> Machine {
        let mut reasons = Vec::new();
        let kvm = boot.accel == Accel::Kvm || boot.accel == Accel::Auto && host.kvm == Kvm::Works;
        let online = match boot.online {
            Online::Auto if boot.vcpus >= STAGED_FROM && boot.accel != Accel::Icount && !kvm => {
                let n = boot.vcpus;
                reasons.push(format!("online staged: {n} vCPUs at once would wait for each other's locks"));
                Online::Staged
            }
            Online::Auto => Online::Kernel,
            chosen => chosen,
        };
        let accel = match boot.accel {
            Accel::Auto => accel(boot.vcpus, host, online, &mut reasons),
            chosen => chosen,
        };
        let firmware = match (&boot.firmware, &arch.firmware) {
            // Under KVM the host's kernel is the firmware.
            (Firmware::Auto, _) if kvm => Firmware::Stock,
            (Firmware::Auto, Some(facts)) => firmware(boot.vcpus, accel, facts.stock_max_vcpus, &mut reasons),
            (Firmware::Auto | Firmware::Matrix, None) => Firmware::Stock,
            (chosen, _) => chosen.clone(),
        };
        Machine { accel, online, firmware, seed: if boot.perturb { number } else { 1 }, reasons }
    }

    /// File of the firmware in place of the stock one; `ours` is where ours is.
    pub fn firmware_file<'a>(&'a self, ours: Option<&'a Path>) -> Option<&'a Path> {
        match &self.firmware {
            Firmware::Auto | Firmware::Stock => None,
            Firmware::Matrix => ours,
            Firmware::File(path) => Some(path),
        }
    }

    /// What its timings are.
    pub fn kind(&self) -> Kind {
        match self.accel {
            Accel::Icount => Kind::EmulatedInstructions,
            Accel::Kvm => Kind::KvmWallClock,
            Accel::Auto | Accel::TcgMulti | Accel::TcgSingle => Kind::EmulatedWallClock,
        }
    }
}

fn accel(vcpus: u32, host: &Host, online: Online, reasons: &mut Vec<String>) -> Accel {
    match &host.kvm {
        Kvm::Works => {
            reasons.push("accel kvm: a trial guest ran on this host's own processors".to_owned());
            return Accel::Kvm;
        }
        Kvm::Broken(why) => reasons.push(format!("accel not kvm: {why}")),
        Kvm::Foreign => {}
    }
    let cores = host.cores;
    let (accel, why) = if vcpus <= cores {
        (Accel::TcgMulti, format!("accel tcg-multi: {vcpus} vCPUs fit {cores} cores"))
    } else if online == Online::Staged && vcpus > SINGLE_UP_TO {
        (
            Accel::TcgMulti,
            "accel tcg-multi: one thread would spend its time on visits to idle vCPUs".to_owned(),
        )
    } else {
        let why = "a vCPU that holds a lock might not run";
        (Accel::TcgSingle, format!("accel tcg-single: with {vcpus} vCPUs on {cores} cores {why}"))
    };
    reasons.push(why);
    accel
}

fn firmware(vcpus: u32, accel: Accel, stock_max: u32, reasons: &mut Vec<String>) -> Firmware {
    if vcpus > stock_max {
        reasons.push(format!("firmware matrix: the stock one starts {stock_max} vCPUs without fail"));
        Firmware::Matrix
    } else if accel != Accel::TcgMulti {
        let why = "in the stock one vCPUs spin for others that have to wait for their turn";
        reasons.push(format!("firmware matrix: {why}"));
        Firmware::Matrix
    } else {
        Firmware::Stock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_firmware() -> Arch {
        crate::arch::all().unwrap().into_iter().find(|a| a.firmware.is_some()).unwrap()
    }

    fn choose(arch: &Arch, vcpus: u32, cores: u32) -> Machine {
        let host = Host { cores, kvm: Kvm::Foreign };
        Machine::choose(arch, &Boot { vcpus, ..Boot::plain() }, &host, 1)
    }

    #[test]
    fn vcpus_that_fit_the_host_run_at_once_and_others_in_turn() {
        let arch = with_firmware();
        assert_eq!(choose(&arch, 4, 4).accel, Accel::TcgMulti);
        assert_eq!(choose(&arch, 5, 4).accel, Accel::TcgSingle);
        assert_eq!(choose(&arch, 64, 4).accel, Accel::TcgSingle, "staged");
        assert_eq!(choose(&arch, 512, 4).accel, Accel::TcgMulti, "staged, and too many to visit");
    }

    #[test]
    fn kvm_is_taken_where_it_works_and_its_absence_explained_where_it_should() {
        let arch = with_firmware();
        let boot = Boot { vcpus: 64, ..Boot::plain() };
        let with = |kvm| Machine::choose(&arch, &boot, &Host { cores: 2, kvm }, 1);
        let works = with(Kvm::Works);
        assert_eq!(
            (works.accel, works.online, works.firmware.clone()),
            (Accel::Kvm, Online::Kernel, Firmware::Stock)
        );
        assert_eq!(works.kind(), Kind::KvmWallClock);
        let broken = with(Kvm::Broken("its trial guest hung".into()));
        assert_eq!(broken.accel, Accel::TcgSingle);
        assert!(broken.reasons.contains(&"accel not kvm: its trial guest hung".to_owned()), "{broken:?}");
        assert!(!with(Kvm::Foreign).reasons.iter().any(|r| r.contains("kvm")));
        let counted = Boot { accel: Accel::Icount, ..Boot::plain() };
        let host = Host { cores: 2, kvm: Kvm::Works };
        assert_eq!(Machine::choose(&arch, &counted, &host, 1).accel, Accel::Icount);
    }

    #[test]
    fn stock_firmware_is_kept_while_it_can() {
        let arch = with_firmware();
        let most = arch.firmware.as_ref().unwrap().stock_max_vcpus;
        assert_eq!(choose(&arch, most, 512).firmware, Firmware::Stock);
        assert_eq!(choose(&arch, most + 1, 512).firmware, Firmware::Matrix);
        assert_eq!(choose(&arch, 4, 2).firmware, Firmware::Matrix, "in turn");
        let none = Arch { firmware: None, ..arch };
        assert_eq!(choose(&none, 512, 2).firmware, Firmware::Stock);
    }

    #[test]
    fn what_the_user_chose_stands() {
        let arch = with_firmware();
        let boot = Boot {
            vcpus: 64,
            accel: Accel::Icount,
            firmware: Firmware::Stock,
            online: Online::Staged,
            perturb: true,
            ..Boot::plain()
        };
        let machine = Machine::choose(&arch, &boot, &Host { cores: 2, kvm: Kvm::Foreign }, 3);
        assert_eq!((machine.accel, machine.online, machine.seed), (Accel::Icount, Online::Staged, 3));
        assert_eq!(machine.firmware, Firmware::Stock);
        assert!(machine.reasons.is_empty());
        assert_eq!(machine.kind(), Kind::EmulatedInstructions);
    }
}
