//! What a kernel's console says about the boot: how far it got and what went
//! wrong. Pure text in.

use std::sync::OnceLock;

use regex::bytes::{Regex, RegexSet};

/// Something a kernel says when it is in trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Name for a table's cell: `panic`, `oops`, ...
    pub what: &'static str,
    /// The line that said so.
    pub line: String,
}

/// Phase of a boot that a console line begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The machine's firmware runs.
    Firmware,
    /// The kernel runs.
    Kernel,
}

/// Names and patterns of trouble; of several that match one line the first counts.
const TROUBLE: [(&str, &str); 14] = [
    (
        "init died",
        r"Kernel panic - not syncing: (Attempted to kill init|No working init found|Requested init)",
    ),
    ("out of memory", r"Kernel panic - not syncing: (System is deadlocked on memory|Out of memory)"),
    ("panic", r"Kernel panic - not syncing"),
    ("soft lockup", r"watchdog: BUG: soft lockup"),
    ("hard lockup", r"(watchdog: )?Watchdog detected hard LOCKUP"),
    ("oops", r"BUG: kernel NULL pointer dereference|BUG: unable to handle"),
    ("oops", r"Unable to handle kernel|Internal error: |\bOops\b"),
    ("bug", r"kernel BUG at |\bBUG: "),
    ("hung task", r"INFO: task .+ blocked for more than \d+ seconds"),
    ("rcu stall", r"rcu: INFO: rcu_\w+ .*detected.*stall|rcu: INFO: rcu_\w+ kthread .*starved"),
    ("warning", r"\bWARNING: (CPU: \d|\S+:\d+ at |possible |suspicious |inconsistent |bad unlock )"),
    ("out of memory", r"Out of memory: Kill|invoked oom-killer"),
    ("init died", r"(Failed to execute /init|Run /init as init process failed)"),
    // Its warnings say `warning:` at this place.
    (
        "qemu refused",
        r"qemu-system-\w+: (-\S+ .*: )?(could not|Could not|unable to|[^:]*not supported|[^:]*[Ii]nvalid)",
    ),
];

/// What `line` says is wrong, if anything.
pub fn trouble(line: &[u8]) -> Option<Trouble> {
    static SET: OnceLock<RegexSet> = OnceLock::new();
    #[allow(clippy::expect_used)] // constants, compiled in every test of this file
    let set = SET.get_or_init(|| RegexSet::new(TROUBLE.map(|(_, p)| p)).expect("constant patterns"));
    let first = set.matches(line).iter().next()?;
    Some(Trouble { what: TROUBLE[first].0, line: printable(line) })
}

/// The phase that `line` begins, if any.
pub fn phase(line: &[u8]) -> Option<Phase> {
    let has = |needle: &[u8]| line.windows(needle.len()).any(|w| w == needle);
    if has(b"Linux version ") {
        Some(Phase::Kernel)
    } else if line.starts_with(b"OpenSBI v") {
        Some(Phase::Firmware)
    } else {
        None
    }
}

/// Bytes of stack that the deepest use so far left free, which a kernel with
/// `DEBUG_STACK_USAGE` says when a task with a new record exits
/// (`check_stack_usage` in kernel/exit.c).
pub fn stack_left(line: &[u8]) -> Option<u64> {
    static SAID: OnceLock<Regex> = OnceLock::new();
    #[allow(clippy::expect_used)] // a constant
    let said = SAID.get_or_init(|| {
        Regex::new(r" \([0-9]+\) used greatest stack depth: ([0-9]{1,9}) bytes left\s*$")
            .expect("constant pattern")
    });
    std::str::from_utf8(&said.captures(line)?[1]).ok()?.parse().ok()
}

/// Whether the kernel says that it cuts the power (`kernel_power_off` in
/// kernel/reboot.c).
pub fn powers_off(line: &str) -> bool {
    line.ends_with("reboot: Power down")
}

/// Text of untrusted bytes with everything a terminal might obey replaced.
pub fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end()
        .chars()
        .map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c })
        .take(500)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_trouble_is_named() {
        for (line, what) in [
            ("[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs", "panic"),
            (
                "[    1.2] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
                "init died",
            ),
            ("[    1.2] Kernel panic - not syncing: No working init found.", "init died"),
            ("[    1.2] Kernel panic - not syncing: System is deadlocked on memory", "out of memory"),
            ("[   60.0] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [hackbench:99]", "soft lockup"),
            ("[   60.0] watchdog: Watchdog detected hard LOCKUP on cpu 1", "hard lockup"),
            ("[    2.0] BUG: kernel NULL pointer dereference, address: 0000000000000000", "oops"),
            ("[    2.0] Unable to handle kernel paging request at virtual address dead000000000100", "oops"),
            ("[    2.0] Internal error: Oops: 0000000096000004 [#1] SMP", "oops"),
            ("[    2.0] Oops [#1]", "oops"),
            ("[    2.0] kernel BUG at mm/slub.c:553!", "bug"),
            ("[    2.0] BUG: sleeping function called from invalid context at kernel/x.c:1", "bug"),
            ("[  242.0] INFO: task swapper/0:1 blocked for more than 120 seconds.", "hung task"),
            ("[   21.0] rcu: INFO: rcu_sched self-detected stall on CPU", "rcu stall"),
            (
                "[   21.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks: { 1 } (t=2100 jiffies)",
                "rcu stall",
            ),
            (
                "[   21.0] rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 0-... }",
                "rcu stall",
            ),
            (
                "[    0.3] WARNING: CPU: 0 PID: 1 at kernel/sched/topology.c:2428 build_sched_domains+0x9/0x9",
                "warning",
            ),
            ("[    0.3] WARNING: kernel/smp.c:9 at smp_call_function+0x1/0x2, CPU#1: init/1", "warning"),
            ("[    0.3] WARNING: possible circular locking dependency detected", "warning"),
            ("[    9.0] Out of memory: Killed process 80 (hackbench) total-vm:2048kB", "out of memory"),
            ("[    9.0] hackbench invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0", "out of memory"),
            ("qemu-system-riscv64: could not load kernel 'Image'", "qemu refused"),
            ("qemu-system-riscv64: unable to find CPU model 'max'", "qemu refused"),
        ] {
            assert_eq!(trouble(line.as_bytes()).map(|t| t.what), Some(what), "{line}");
        }
    }

    #[test]
    fn ordinary_lines_are_no_trouble() {
        for line in [
            "[    0.0] Linux version 6.12.0 (matrix@matrix)",
            "[    0.0] debug: BUGGY firmware is fine",
            "[    0.0] rcu: Hierarchical RCU implementation.",
            "[    0.0] Kernel command line: console=ttyS0 panic=-1 oops=panic",
            "[    0.1] SMP: Total of 4 processors activated.",
            "[    0.0] random: crng init done; WARNING: none of yours",
            "qemu-system-riscv64: warning: the feature is not supported, invalid or so",
            "[    0.1] rcu: \tRCU CPU stall warnings timeout set to 21",
            "\u{fffd}\u{fffd}",
            "",
        ] {
            assert_eq!(trouble(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn phases_are_told_by_their_first_line() {
        assert_eq!(phase(b"OpenSBI v1.1"), Some(Phase::Firmware));
        assert_eq!(phase(b"[    0.000000] Linux version 6.12"), Some(Phase::Kernel));
        assert_eq!(phase(b"x"), None);
    }

    #[test]
    fn stack_use_is_read_from_the_kernels_own_words() {
        let line = "[    2.731946] hackbench (93) used greatest stack depth: 13248 bytes left";
        assert_eq!(stack_left(line.as_bytes()), Some(13248));
        let caller = "[    0.4][   T29] kworker/u2:1 (29) used greatest stack depth: 0 bytes left\r";
        assert_eq!(stack_left(caller.as_bytes()), Some(0));
        for other in [
            "[    2.7] hackbench (93) used greatest stack depth: -5 bytes left",
            "[    2.7] hackbench (93) used greatest stack depth: 99999999999 bytes left",
            "[    2.7] hackbench (93) used greatest stack depth: 13248 bytes",
            "used greatest stack depth: 13248 bytes left",
            "",
        ] {
            assert_eq!(stack_left(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn power_off_is_told_from_a_restart() {
        assert!(powers_off("[   22.700000] reboot: Power down"));
        assert!(!powers_off("[   22.700000] reboot: Restarting system"));
    }

    #[test]
    fn terminal_commands_of_the_guest_are_not_repeated() {
        let line = b"Kernel panic - not syncing: \x1b]0;evil\x07\r";
        let text = trouble(line).unwrap().line;
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
    }
}
