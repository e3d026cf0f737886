//! Which of several ways a guest is started: what executes it, what firmware,
//! how its processors come online; each with the reason. Pure.

use std::path::Path;

use serde::Serialize;

use crate::arch::Arch;
use crate::model::{Accel, Boot, Firmware, Kind, Online};

/// Processors that the kernel brings up itself before the others are staged.
pub const STAGED_FIRST: u32 = 2;
/// From so many processors on staging pays.
const STAGED_FROM: u32 = 17;

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
    /// Chooses for boot `number` (from 1) of a guest with `vcpus` processors on
    /// a host with `cores`.
    pub fn choose(arch: &Arch, boot: &Boot, vcpus: u32, cores: u32, number: u32) -> Machine {
        let mut reasons = Vec::new();
        let online = match boot.online {
            Online::Auto if vcpus >= STAGED_FROM && boot.accel != Accel::Icount => {
                reasons
                    .push(format!("online staged: {vcpus} vCPUs at once would wait for each other's locks"));
                Online::Staged
            }
            Online::Auto => Online::Kernel,
            chosen => chosen,
        };
        let accel = match boot.accel {
            Accel::Auto => {
                let (accel, why) = accel(vcpus, cores, online);
                reasons.push(why);
                accel
            }
            chosen => chosen,
        };
        let firmware = match (&boot.firmware, &arch.firmware) {
            (Firmware::Auto, Some(facts)) if vcpus > facts.stock_max_vcpus => {
                let most = facts.stock_max_vcpus;
                reasons.push(format!("firmware matrix: the stock one starts {most} vCPUs without fail"));
                Firmware::Matrix
            }
            (Firmware::Auto, Some(_)) if accel != Accel::TcgMulti => {
                let why = "in the stock one vCPUs spin for others that have to wait for their turn";
                reasons.push(format!("firmware matrix: {why}"));
                Firmware::Matrix
            }
            (Firmware::Auto, _) | (Firmware::Matrix, None) => Firmware::Stock,
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
        if self.accel == Accel::Icount { Kind::EmulatedInstructions } else { Kind::EmulatedWallClock }
    }
}

fn accel(vcpus: u32, cores: u32, online: Online) -> (Accel, String) {
    if online == Online::Staged {
        (Accel::TcgMulti, "accel tcg-multi: idle vCPUs cost it nothing, and few are busy".to_owned())
    } else if vcpus <= cores {
        (Accel::TcgMulti, format!("accel tcg-multi: {vcpus} vCPUs fit {cores} cores"))
    } else {
        let why = "a vCPU that holds a lock might not run";
        (Accel::TcgSingle, format!("accel tcg-single: with {vcpus} vCPUs on {cores} cores {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_firmware() -> Arch {
        crate::arch::all().unwrap().into_iter().find(|a| a.firmware.is_some()).unwrap()
    }

    #[test]
    fn vcpus_that_fit_the_host_run_at_once_and_others_in_turn() {
        let arch = with_firmware();
        let accel = |vcpus| Machine::choose(&arch, &Boot::plain(), vcpus, 4, 1).accel;
        assert_eq!(accel(4), Accel::TcgMulti);
        assert_eq!(accel(5), Accel::TcgSingle);
        assert_eq!(accel(64), Accel::TcgMulti, "staged");
    }

    #[test]
    fn stock_firmware_is_kept_while_it_can() {
        let arch = with_firmware();
        let firmware = |vcpus| Machine::choose(&arch, &Boot::plain(), vcpus, 512, 1).firmware;
        let most = arch.firmware.as_ref().unwrap().stock_max_vcpus;
        assert_eq!(firmware(most), Firmware::Stock);
        assert_eq!(firmware(most + 1), Firmware::Matrix);
        assert_eq!(Machine::choose(&arch, &Boot::plain(), 4, 2, 1).firmware, Firmware::Matrix, "in turn");
        let none = Arch { firmware: None, ..arch };
        assert_eq!(Machine::choose(&none, &Boot::plain(), 512, 2, 1).firmware, Firmware::Stock);
    }

    #[test]
    fn what_the_user_chose_stands() {
        let arch = with_firmware();
        let boot = Boot {
            accel: Accel::Icount,
            firmware: Firmware::Stock,
            online: Online::Staged,
            perturb: true,
            ..Boot::plain()
        };
        let machine = Machine::choose(&arch, &boot, 64, 2, 3);
        assert_eq!((machine.accel, machine.online, machine.seed), (Accel::Icount, Online::Staged, 3));
        assert_eq!(machine.firmware, Firmware::Stock);
        assert!(machine.reasons.is_empty());
        assert_eq!(machine.kind(), Kind::EmulatedInstructions);
    }
}
