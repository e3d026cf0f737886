//! How much of the host's processors others had while a guest was timed.
//!
//! What counts is the processors' time that went neither to idling nor to this
//! program and what it started: `/proc/stat` less our own processes' share of
//! it, both in the kernel's clock ticks. Time that a hypervisor gave to others
//! (`steal`) is theirs as well. Neither the load average nor pressure
//! (`/proc/pressure/cpu`) can tell: both count our own vCPUs, which wait for
//! each other wherever they outnumber the processors.
//!
//! The share is one of all processors, not of those that the guest needs: who
//! computes elsewhere takes caches, memory bandwidth and turbo clocks all the same.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use crate::process;

/// Ticks a second of each processor (`USER_HZ`, proc(5)).
const HZ: u64 = 100;
/// A shorter time is not judged: the kernel samples in ticks who runs.
const LEAST_SECONDS: f64 = 1.0;

/// Ticks of the processors that we may run on, since the host's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    cpus: u64,
    all: u64,
    busy: u64,
    stolen: u64,
    /// Of this program and everything that it has started.
    own: u64,
}

impl Ticks {
    /// As they are now; `None` where the kernel does not tell.
    pub fn now() -> Option<Ticks> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let ours = sched_getaffinity(Pid::from_raw(0)).ok();
        let is_ours = |cpu| ours.is_none_or(|set: CpuSet| set.is_set(cpu).unwrap_or(false));
        Ticks::read(&stat, is_ours, process::ticks())
    }

    /// Sums up `cpuN user nice system idle iowait irq softirq steal ...`; time of
    /// guests is in `user` and `nice` already.
    fn read(stat: &str, is_ours: impl Fn(usize) -> bool, own: u64) -> Option<Ticks> {
        let mut sum = Ticks { cpus: 0, all: 0, busy: 0, stolen: 0, own };
        for line in stat.lines() {
            let Some((name, rest)) = line.split_once(' ') else { continue };
            let number = name.strip_prefix("cpu").and_then(|n| n.parse().ok());
            if !number.is_some_and(&is_ours) {
                continue;
            }
            let ticks: Vec<u64> = rest.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
            let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
            sum.cpus += 1;
            sum.busy += user + nice + system + irq + softirq;
            sum.stolen += steal;
            sum.all += user + nice + system + idle + iowait + irq + softirq + steal;
        }
        (sum.cpus > 0).then_some(sum)
    }

    /// Who had the processors since `before`; `None` where no time has passed.
    pub fn since(&self, before: &Ticks) -> Option<Share> {
        let passed = |of: fn(&Ticks) -> u64| of(self).saturating_sub(of(before));
        let (all, stolen) = (passed(|t| t.all), passed(|t| t.stolen));
        let others = passed(|t| t.busy).saturating_sub(passed(|t| t.own)) + stolen;
        let percent = |ticks: u64| ticks as f64 * 100.0 / all as f64;
        (all > 0).then(|| Share {
            seconds: all as f64 / (self.cpus * HZ) as f64,
            others: percent(others),
            stolen: percent(stolen),
        })
    }
}

/// Who had the processors for some time, in percent of all their time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// How long that was.
    pub seconds: f64,
    /// Everybody but us, other guests of a hypervisor included.
    pub others: f64,
    /// Those other guests alone.
    pub stolen: f64,
}

/// What others had during a boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Load {
    /// From QEMU's start to its end.
    pub boot: Option<Share>,
    /// While benchmarks ran: from all processors being online to the guest's good-bye.
    pub benchmarks: Option<Share>,
}

impl Load {
    /// What was too much, in full, where others may have `limit` percent.
    pub fn excess(&self, limit: f64) -> Option<String> {
        let parts = [("its benchmarks ran", self.benchmarks), ("it ran", self.boot)];
        let worst = parts
            .into_iter()
            .filter_map(|(when, share)| Some((when, share?)))
            .filter(|(_, share)| share.seconds >= LEAST_SECONDS && share.others > limit)
            .max_by(|(_, a), (_, b)| a.others.total_cmp(&b.others));
        let (when, Share { seconds, others, stolen }) = worst?;
        let stolen =
            if stolen >= 0.05 { format!(", {stolen:.1}% by way of the hypervisor") } else { String::new() };
        Some(format!(
            "others had {others:.1}% of the processors' time{stolen} in the {seconds:.1} s that {when}, \
             and [boot] max_other_load is {limit}%: quiet the machine and run `matrix run --resume`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "\
cpu  0 0 0 0 0 0 0 0 0 0
cpu0 100 10 50 1000 5 1 2 3 40 4
cpu1 200 20 60 2000 6 1 2 4 0 0
cpu7 9 9 9 9 9 9 9 9 0 0
intr 1 2 3
";

    fn share(seconds: f64, others: f64) -> Option<Share> {
        Some(Share { seconds, others, stolen: 0.0 })
    }

    #[test]
    fn ticks_are_those_of_our_processors() {
        let ticks = Ticks::read(STAT, |cpu| cpu < 2, 5).unwrap();
        assert_eq!(ticks, Ticks { cpus: 2, all: 1171 + 2293, busy: 163 + 283, stolen: 7, own: 5 });
        assert_eq!(Ticks::read(STAT, |cpu| cpu == 9, 5), None);
        for damaged in ["", "cpu0 1 2 3\n", "cpu0 x\n", "nonsense"] {
            assert_eq!(Ticks::read(damaged, |_| true, 0), None, "{damaged}");
        }
    }

    #[test]
    fn what_we_used_ourselves_is_nobody_elses() {
        let before = Ticks { cpus: 2, all: 1000, busy: 500, stolen: 10, own: 100 };
        // Four seconds on two processors: 500 ticks of ours, 60 of others, 20 stolen.
        let after = Ticks { cpus: 2, all: 1800, busy: 1060, stolen: 30, own: 600 };
        let share = after.since(&before).unwrap();
        assert_eq!((share.seconds, share.others, share.stolen), (4.0, 10.0, 2.5));
        // Sampled ticks may come to less than ours, which are exact.
        let ours = Ticks { own: 700, stolen: 10, ..after };
        assert_eq!(ours.since(&before).unwrap().others, 0.0);
        assert_eq!(before.since(&before), None);
    }

    #[test]
    fn the_worst_time_that_is_long_enough_decides() {
        let excess = |boot, benchmarks| Load { boot, benchmarks }.excess(10.0);
        assert_eq!(excess(share(60.0, 10.0), share(5.0, 9.9)), None);
        assert_eq!(excess(None, None), None);
        assert_eq!(excess(share(60.0, 4.0), share(0.9, 80.0)), None, "too short to tell");
        let text = excess(share(60.0, 11.0), share(5.0, 48.26)).unwrap();
        assert!(
            text.starts_with("others had 48.3% of the processors' time in the 5.0 s that its benchmarks")
        );
        assert!(text.contains("max_other_load is 10%") && text.ends_with("`matrix run --resume`"), "{text}");
        assert!(excess(share(60.0, 11.0), share(5.0, 1.0)).unwrap().contains("60.0 s that it ran"));
        let stolen =
            Load { boot: Some(Share { seconds: 2.0, others: 30.0, stolen: 25.0 }), benchmarks: None };
        assert!(stolen.excess(10.0).unwrap().contains("time, 25.0% by way of the hypervisor in the 2.0 s"));
    }

    #[test]
    fn a_process_of_ours_is_no_load() {
        // This process itself: what it burns is not in `others`, or not all of it.
        let before = Ticks::now().unwrap();
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 300 {
            std::hint::spin_loop();
        }
        let after = Ticks::now().unwrap();
        assert!(after.own >= before.own + 10, "{before:?} {after:?}");
        assert!(after.busy > before.busy && after.all > before.all);
    }
}
