//! Whether what a guest reported counts. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::console::Trouble;
use super::load::Load;
use super::params;
use super::protocol::{self, RunEnd};
use super::topology;
use crate::bench;
use crate::kernel::elf;
use crate::model::{
    Benchmark, CellId, Console, Direction, Failure, HOST_BUSY, Kind, Level, STACK_LEFT, Sample, Shape, Stage,
};
use crate::process::Ended;

/// What the guest must show to be the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// `uname -r`.
    pub release: String,
    /// GNU build ID: the very kernel that was built, with its verified configuration.
    pub build_id: Option<String>,
    /// `NR_CPUS`.
    pub nr_cpus: Option<u32>,
    /// Processors online.
    pub vcpus: u32,
    /// Sockets, cores and NUMA nodes, where they were asked for.
    pub shape: Option<Shape>,
    /// Levels of the CPU topology that the machine shows its guest.
    pub levels: Vec<Level>,
    /// Parameters of modules, with their values.
    pub params: Vec<(String, Option<String>)>,
}

/// One run of a benchmark's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Index of the benchmark.
    pub bench: usize,
    /// From 1.
    pub iteration: u32,
    /// What it printed.
    pub lines: Vec<String>,
    /// Whether some output was dropped.
    pub truncated: bool,
    /// How it ended; `None` if it did not.
    pub end: Option<(RunEnd, Duration)>,
}

/// What a guest said of itself, as shown in evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// By the agent's keys: `release`, `kernel-max`, `cpus`, ...
    pub of_guest: BTreeMap<String, String>,
}

impl Facts {
    /// What the guest said by this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.of_guest.get(key).map(String::as_str)
    }

    /// Processors online, from `possible=LIST present=LIST online=LIST`.
    fn online(&self) -> Option<u32> {
        let lists = self.get("cpus")?;
        protocol::count_cpus(lists.split(' ').find_map(|l| l.strip_prefix("online="))?)
    }

    fn build_id(&self) -> Option<String> {
        let digits = self.get("notes")?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let notes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        elf::build_id_of_notes(&notes?)
    }
}

/// Everything that a boot left behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// How QEMU ended.
    pub ended: Option<Ended>,
    /// First trouble on the console.
    pub trouble: Option<Trouble>,
    /// Why this side ended it: no output, too much of it, a broken protocol.
    pub stopped: Option<(&'static str, String)>,
    /// Whether anything came from the console.
    pub console: bool,
    /// Whether the agent said hello.
    pub hello: bool,
    /// Whether the agent said that everything was run.
    pub bye: bool,
    /// What the agent gave up with.
    pub fatal: Option<String>,
    /// What the guest says of itself.
    pub facts: Facts,
    /// Every run that began.
    pub runs: Vec<Run>,
    /// When each stage of [`STAGES`] was reached, from QEMU's start.
    pub stages: BTreeMap<&'static str, Duration>,
    /// From QEMU's start until it was gone.
    pub took: Duration,
    /// Bytes that the deepest use of a kernel stack left free, if the kernel said so.
    pub stack_left: Option<u64>,
    /// Console lines of a benchmark that the kernel runs.
    pub said: Vec<String>,
    /// Whether the kernel said that it cuts the power.
    pub power_off: bool,
    /// What others had of the host meanwhile.
    pub load: Load,
}

/// Stages of a boot, in their order; each is a metric `boot.STAGE` in seconds
/// of the host from QEMU's start: the kernel's first line, the agent's first
/// word, all processors online, the end of the first good run.
pub const STAGES: [&str; 4] = ["kernel", "init", "online", "result"];
/// First part of their names.
pub const STAGES_FAMILY: &str = "boot";
/// Metric: seconds of the guest's clock from its start to the agent's.
pub const UPTIME: &str = "boot.uptime";

/// How long a boot that counts took to reach each stage.
pub fn stages(report: &Report, cell: &CellId, boot: u32, kind: Kind) -> Vec<Sample> {
    let sample = |metric: String, value: f64, kind: Kind| Sample {
        cell: cell.clone(),
        metric,
        value,
        unit: "s".to_owned(),
        better: Direction::Lower,
        kind,
        boot: Some(boot),
        iteration: None,
    };
    // The host's clock is one, whatever the guest's counts.
    let hosts = if kind == Kind::EmulatedInstructions { Kind::EmulatedWallClock } else { kind };
    let stage = |(stage, after): (&&str, &Duration)| {
        sample(format!("{STAGES_FAMILY}.{stage}"), after.as_secs_f64(), hosts)
    };
    let uptime = report.facts.get("uptime").and_then(|text| text.parse().ok());
    let uptime = uptime.map(|seconds| sample(UPTIME.to_owned(), seconds, kind));
    report.stages.iter().map(stage).chain(uptime).collect()
}

/// Where a boot's time went, of which `whole` passed until its record was on
/// disk: `kernel 0.04 s, init +0.21 s, online +0.00 s, result +0.05 s, off +0.02 s, record +0.01 s`.
pub fn breakdown(report: &Report, whole: Duration) -> String {
    let reached = STAGES.iter().filter_map(|stage| Some((*stage, *report.stages.get(stage)?)));
    let mut before = Duration::ZERO;
    let mut parts = Vec::new();
    for (stage, after) in reached.chain([("off", report.took), ("record", whole)]) {
        let sign = if parts.is_empty() { "" } else { "+" };
        parts.push(format!("{stage} {sign}{:.3} s", after.saturating_sub(before).as_secs_f64()));
        before = after;
    }
    parts.join(", ")
}

/// What is wrong with the boot as a whole, in one or two words and in full.
pub fn fault(report: &Report, expected: &Expected, benchmarks: &[Benchmark]) -> Option<(String, String)> {
    let named = |what: &str, detail: String| Some((what.to_owned(), detail));
    let by_kernel = run_by_kernel(benchmarks);
    if let Some(line) = by_kernel.and_then(|(_, console)| said(report, &console.error)) {
        // Before the trouble that may come of it.
        return named("not measured", format!("the console says: {line}"));
    }
    if let Some(trouble) = &report.trouble {
        return named(trouble.what, format!("the console says: {}", trouble.line));
    }
    if let Some((what, detail)) = &report.stopped {
        return named(what, detail.clone());
    }
    if let Some(text) = &report.fatal {
        return named("agent gave up", text.clone());
    }
    match report.ended {
        Some(Ended::Code(0)) => {}
        Some(Ended::Deadline) => return named("deadline", format!("not done in time; {}", progress(report))),
        Some(ended) => return named("qemu failed", format!("QEMU ended with {ended}; {}", progress(report))),
        None => return named("not booted", String::new()),
    }
    if let Some((benchmark, console)) = by_kernel {
        if let Some((what, detail)) = wrong_end(report, benchmark, console) {
            return named(what, detail);
        }
    } else if !report.bye {
        let detail =
            format!("the guest rebooted or powered off before its work was done; {}", progress(report));
        return named("unexpected reboot", detail);
    }
    if let Some(detail) = wrong_guest(&report.facts, expected) {
        return named("wrong guest", detail);
    }
    if let Some(detail) = params::ignored(&report.facts, &expected.params) {
        return named("parameter ignored", detail);
    }
    if by_kernel.is_some() {
        return None;
    }
    let due: u32 = benchmarks.iter().map(|b| b.repeat).sum();
    let done = report.runs.iter().filter(|r| r.end.is_some()).count();
    (done != due as usize).then(|| ("runs missing".to_owned(), format!("{done} of {due} runs reported")))
}

/// What a guest can suffer from others on the host: it is slow, to the point of silence.
const OF_SLOWNESS: [&str; 3] = ["deadline", "hung", "no output"];

/// Whether others had more than `limit` percent of the host while the guest
/// was timed: then its times say nothing, nor does it that it came to no end.
/// What else went wrong with it (`fault`) is its own.
pub fn busy(report: &Report, limit: f64, fault: Option<&(String, String)>) -> Option<(String, String)> {
    let excess = report.load.excess(limit)?;
    let besides = match fault {
        None => String::new(),
        Some((what, detail)) if OF_SLOWNESS.contains(&what.as_str()) => format!("; {what}: {detail}"),
        Some(_) => return None,
    };
    Some((HOST_BUSY.to_owned(), excess + &besides))
}

/// The benchmark that the kernel itself runs, if there is one: then it is the only one.
pub fn run_by_kernel(benchmarks: &[Benchmark]) -> Option<(&Benchmark, &Console)> {
    benchmarks.iter().find_map(|b| Some((b, b.console.as_ref()?)))
}

/// The first of a benchmark's console lines that matches.
fn said<'a>(report: &'a Report, pattern: &str) -> Option<&'a String> {
    bench::console::first(&report.said, pattern).unwrap_or_default()
}

/// What is wrong with the end of a boot that the kernel's benchmark ends
/// instead of the agent: by cutting the power after it has measured.
fn wrong_end(report: &Report, benchmark: &Benchmark, console: &Console) -> Option<(&'static str, String)> {
    let name = &benchmark.name;
    if !report.power_off || said(report, &console.done).is_none() {
        let what = format!("the guest ended before {name} had measured and powered it off");
        return Some(("unexpected reboot", format!("{what}; {}", progress(report))));
    }
    report.runs.is_empty().then(|| {
        let what = format!("{name} was done before the guest's init had said what it runs on");
        ("too early", format!("{what}: {}", console.early))
    })
}

fn progress(report: &Report) -> String {
    if let Some(run) = report.runs.last() {
        return format!("run {} of benchmark {} was the last to begin", run.iteration, run.bench + 1);
    }
    match (report.hello, report.console) {
        (true, _) => "the guest agent ran, no benchmark had begun".to_owned(),
        (false, true) => "the guest agent had not started".to_owned(),
        (false, false) => "there was no output at all".to_owned(),
    }
}

/// How the guest differs from the one that was asked for.
fn wrong_guest(facts: &Facts, expected: &Expected) -> Option<String> {
    let release = facts.get("release").unwrap_or("nothing");
    if release != expected.release {
        return Some(format!("kernel release is {release}, not {}", expected.release));
    }
    if expected.build_id.is_some() && facts.build_id() != expected.build_id {
        let shown = facts.build_id().unwrap_or_else(|| "nothing".to_owned());
        let wanted = expected.build_id.as_deref().unwrap_or_default();
        return Some(format!("build ID of the running kernel is {shown}, not {wanted}"));
    }
    if let Some(nr_cpus) = expected.nr_cpus {
        let max = facts.get("kernel-max").and_then(|m| m.trim().parse::<u32>().ok());
        if max != Some(nr_cpus - 1) {
            let shown = facts.get("kernel-max").unwrap_or("nothing");
            return Some(format!("greatest CPU number is {shown}, not {} (NR_CPUS={nr_cpus})", nr_cpus - 1));
        }
    }
    let online = facts.online();
    if online != Some(expected.vcpus) {
        let shown = facts.get("cpus").unwrap_or("nothing");
        return Some(format!("CPUs are {shown}; {} should be online", expected.vcpus));
    }
    expected.shape.as_ref().and_then(|shape| topology::differs(&facts.of_guest, shape, &expected.levels))
}

/// Samples of a boot that counts, and the benchmarks in it that do not.
pub fn samples(
    report: &Report,
    cell: &CellId,
    boot: u32,
    kind: Kind,
    benchmarks: &[Benchmark],
) -> (Vec<Sample>, Vec<Failure>) {
    let mut samples: Vec<Sample> = stack_left(report, cell, boot).into_iter().collect();
    let mut failures = Vec::new();
    for (index, benchmark) in benchmarks.iter().enumerate() {
        for run in report.runs.iter().filter(|r| r.bench == index) {
            match values(report, run, benchmark) {
                Ok(values) => samples.extend(values.into_iter().map(|(metric, value, iteration)| Sample {
                    cell: cell.clone(),
                    unit: benchmark.metrics[&metric].unit.clone(),
                    better: benchmark.metrics[&metric].better,
                    metric: format!("{}.{metric}", benchmark.name),
                    value,
                    kind,
                    boot: Some(boot),
                    iteration: Some(iteration),
                })),
                Err((what, detail)) => failures.push(Failure {
                    stage: Stage::Benchmark,
                    what,
                    detail: format!(
                        "{} run {}: {detail}{}",
                        benchmark.name,
                        run.iteration,
                        fragments(benchmark)
                    ),
                    boot: Some(boot),
                    benchmark: Some(benchmark.name.clone()),
                }),
            }
        }
    }
    (samples, failures)
}

/// The kernel options without which a benchmark's program is known to fail.
fn fragments(benchmark: &Benchmark) -> String {
    if benchmark.console.is_some() {
        return String::new();
    }
    let names: Vec<_> = benchmark.guest.fragments.iter().map(|name| format!("\"{name}\"")).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("; its kernel needs what [kernel] fragments = [{}] sets", names.join(", "))
}

/// The kernel's record of its stacks' use, which is a count under any clock.
/// It repeats as far as interrupts come at the same places.
fn stack_left(report: &Report, cell: &CellId, boot: u32) -> Option<Sample> {
    Some(Sample {
        cell: cell.clone(),
        metric: STACK_LEFT.to_owned(),
        value: report.stack_left? as f64,
        unit: "bytes".to_owned(),
        better: Direction::Higher,
        kind: Kind::Exact,
        boot: Some(boot),
        iteration: None,
    })
}

/// Metric, value and iteration.
type Value = (String, f64, u32);

fn values(report: &Report, run: &Run, benchmark: &Benchmark) -> Result<Vec<Value>, (String, String)> {
    if let Some(console) = &benchmark.console {
        return on_console(report, benchmark, console);
    }
    let last = || run.lines.iter().rev().take(3).rev().cloned().collect::<Vec<_>>().join(" | ");
    match &run.end {
        Some((RunEnd::Exit(0), _)) => {}
        Some((RunEnd::Exit(code), _)) => return Err((format!("exit {code}"), last())),
        Some((RunEnd::Signal(signal), _)) => return Err((format!("signal {signal}"), last())),
        Some((RunEnd::Timeout, wall)) => {
            return Err(("timeout".into(), format!("after {:.0} s: {}", wall.as_secs_f64(), last())));
        }
        Some((RunEnd::Error(text), _)) => return Err(("not started".into(), text.clone())),
        None => return Err(("unfinished".into(), last())),
    }
    if run.truncated {
        return Err(("output cut".into(), "it printed more than the guest agent keeps".into()));
    }
    let values = bench::parse(benchmark, &run.lines).map_err(|detail| ("no result".into(), detail))?;
    Ok(values.into_iter().map(|(metric, value)| (metric, value, run.iteration)).collect())
}

/// Values of a benchmark that the kernel runs: those of a metric are numbered.
fn on_console(
    report: &Report,
    benchmark: &Benchmark,
    console: &Console,
) -> Result<Vec<Value>, (String, String)> {
    let ready = report.facts.get("ready").and_then(|ns| ns.parse().ok());
    let read = bench::console::parse(benchmark, console, &report.said, ready);
    let read = read.map_err(|(what, detail)| (what.to_owned(), detail))?;
    let numbered = |(metric, values): (String, Vec<f64>)| {
        (1..).zip(values).map(move |(number, value)| (metric.clone(), value, number))
    };
    Ok(read.into_iter().flat_map(numbered).collect())
}

#[cfg(test)]
mod tests {
    use super::super::load::Share;
    use super::*;
    use crate::model::{ConsoleLine, GuestNeeds, Metric};
    use indexmap::IndexMap;

    fn benchmark() -> Benchmark {
        let metric = Metric { unit: "s".into(), better: Direction::Lower };
        Benchmark {
            name: "b".into(),
            command: vec!["b".into()],
            repeat: 1,
            timeout_s: 1,
            pattern: "^Time: (?<time>[0-9.]+)$".into(),
            metrics: IndexMap::from([("time".to_owned(), metric)]),
            packages: vec![],
            files: vec![],
            section: None,
            guest: GuestNeeds::default(),
            console: None,
        }
    }

    fn expected() -> Expected {
        Expected {
            release: "6.12".into(),
            build_id: Some("ab01".into()),
            nr_cpus: Some(64),
            vcpus: 4,
            shape: None,
            levels: Level::ALL.to_vec(),
            params: vec![],
        }
    }

    /// A benchmark that the kernel runs: each `v` line is a sample.
    fn by_kernel() -> Benchmark {
        let line = ConsoleLine { holds: "^v ".into(), is: r"^v (?<index>\d+) (?<time>\d+)$".into() };
        let console = Console {
            module: "m".into(),
            lines: vec![line],
            done: "^done$".into(),
            error: "^cannot ".into(),
            early: "wait for longer".into(),
            ..Console::default()
        };
        Benchmark { command: vec![], pattern: String::new(), console: Some(console), ..benchmark() }
    }

    fn powered_off() -> Report {
        let begun = Run { lines: vec![], end: None, ..run(&[], None) };
        Report {
            bye: false,
            runs: vec![begun],
            said: ["[    1.000000] done", "v 0 7", "v 1 9"].map(str::to_owned).into(),
            power_off: true,
            ..good()
        }
    }

    #[test]
    fn a_benchmark_of_the_kernel_ends_the_boot_with_its_own_power_off() {
        assert_eq!(fault(&powered_off(), &expected(), &[by_kernel()]), None);
        let (samples, failures) =
            samples(&powered_off(), &CellId("c".into()), 1, Kind::EmulatedInstructions, &[by_kernel()]);
        assert!(failures.is_empty());
        let values: Vec<_> = samples.iter().map(|s| (s.metric.as_str(), s.value, s.iteration)).collect();
        assert_eq!(values, [("b.time", 7.0, Some(1)), ("b.time", 9.0, Some(2))]);
        // Whoever has no such benchmark must hear the agent's good-bye.
        assert_eq!(fault(&powered_off(), &expected(), &[benchmark()]).unwrap().0, "unexpected reboot");
    }

    #[test]
    fn every_wrong_end_of_a_benchmark_of_the_kernel_is_named() {
        let fault_of = |change: &dyn Fn(&mut Report)| {
            let mut report = powered_off();
            change(&mut report);
            fault(&report, &expected(), &[by_kernel()]).unwrap()
        };
        let panic = Trouble { what: "panic", line: String::new() };
        assert_eq!(fault_of(&|r| r.trouble = Some(panic.clone())).0, "panic");
        assert_eq!(fault_of(&|r| r.ended = Some(Ended::Deadline)).0, "deadline");
        assert_eq!(fault_of(&|r| r.power_off = false).0, "unexpected reboot");
        assert_eq!(fault_of(&|r| drop(r.said.remove(0))).0, "unexpected reboot");
        let (what, detail) = fault_of(&|r| r.runs.clear());
        assert_eq!(what, "too early");
        assert!(detail.ends_with(": wait for longer"), "{detail}");
        assert_eq!(fault_of(&|r| r.facts = facts(&[("release", "6.11")])).0, "wrong guest");
        // It says why before it could say anything else.
        let (what, detail) = fault_of(&|r| {
            r.said = vec!["cannot do that".into()];
            r.runs.clear();
            r.trouble = Some(panic.clone());
        });
        assert_eq!(what, "not measured");
        assert!(detail.contains("cannot do that"), "{detail}");
    }

    #[test]
    fn lines_that_are_no_result_fail_the_benchmark() {
        for (line, what) in [("v 1 x", "damaged line"), ("v 0 1", "line twice"), ("v 3 1", "lines lost")] {
            let mut report = powered_off();
            report.said[2] = line.to_owned();
            let (samples, failures) =
                samples(&report, &CellId("c".into()), 1, Kind::EmulatedWallClock, &[by_kernel()]);
            assert!(samples.is_empty());
            assert_eq!((failures[0].what.as_str(), failures[0].stage), (what, Stage::Benchmark));
        }
    }

    #[test]
    fn ignored_parameters_are_a_fault_of_any_boot() {
        let wants = Expected { params: vec![("m.n".into(), Some("2".into()))], ..expected() };
        let of = |report: &Report, benchmarks: &[Benchmark]| fault(report, &wants, benchmarks);
        let took = |mut report: Report| {
            report.facts = facts(&[("param m.n", "2")]);
            report
        };
        assert_eq!(of(&took(good()), &[benchmark()]), None);
        assert_eq!(of(&took(powered_off()), &[by_kernel()]), None);
        assert_eq!(of(&good(), &[benchmark()]).unwrap().0, "parameter ignored");
        assert_eq!(of(&powered_off(), &[by_kernel()]).unwrap().0, "parameter ignored");
    }

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        // namesz 4, descsz 2, type 3, "GNU\0", ab 01 and padding
        let notes = "040000000200000003000000474e5500ab010000";
        let mut all = Facts::default();
        for (key, value) in [
            ("release", "6.12"),
            ("kernel-max", "63"),
            ("cpus", "possible=0-63 present=0-3 online=0-3"),
            ("notes", notes),
        ]
        .iter()
        .chain(pairs)
        {
            all.of_guest.insert((*key).to_owned(), (*value).to_owned());
        }
        all
    }

    fn run(lines: &[&str], end: Option<RunEnd>) -> Run {
        Run {
            bench: 0,
            iteration: 1,
            lines: lines.iter().map(|l| (*l).to_owned()).collect(),
            truncated: false,
            end: end.map(|e| (e, Duration::from_secs(1))),
        }
    }

    fn good() -> Report {
        Report {
            ended: Some(Ended::Code(0)),
            console: true,
            hello: true,
            bye: true,
            facts: facts(&[]),
            runs: vec![run(&["Time: 1.5"], Some(RunEnd::Exit(0)))],
            ..Report::default()
        }
    }

    fn fault_of(change: impl FnOnce(&mut Report)) -> Option<String> {
        let mut report = good();
        change(&mut report);
        fault(&report, &expected(), &[benchmark()]).map(|(what, _)| what)
    }

    #[test]
    fn good_boot_has_no_fault_and_gives_its_value() {
        assert_eq!(fault(&good(), &expected(), &[benchmark()]), None);
        let (samples, failures) =
            samples(&good(), &CellId("c".into()), 2, Kind::EmulatedWallClock, &[benchmark()]);
        assert!(failures.is_empty());
        assert_eq!(samples.len(), 1);
        assert_eq!((samples[0].value, samples[0].boot, samples[0].metric.as_str()), (1.5, Some(2), "b.time"));
        assert_eq!(samples[0].kind, Kind::EmulatedWallClock);
    }

    #[test]
    fn stack_left_is_a_sample_of_its_boot_where_the_kernel_told_it() {
        let report = Report { stack_left: Some(13248), ..good() };
        let (samples, _) = samples(&report, &CellId("c".into()), 2, Kind::EmulatedWallClock, &[benchmark()]);
        let [left, time] = samples.as_slice() else { panic!("{samples:?}") };
        assert_eq!((left.metric.as_str(), left.value, left.boot), ("stack.left", 13248.0, Some(2)));
        assert_eq!((left.kind, left.better, left.iteration), (Kind::Exact, Direction::Higher, None));
        assert_eq!((time.metric.as_str(), time.kind), ("b.time", Kind::EmulatedWallClock));
    }

    #[test]
    fn every_fault_is_named() {
        let trouble = Trouble { what: "panic", line: String::new() };
        assert_eq!(fault_of(|r| r.trouble = Some(trouble)).unwrap(), "panic");
        assert_eq!(fault_of(|r| r.stopped = Some(("no output", String::new()))).unwrap(), "no output");
        assert_eq!(fault_of(|r| r.fatal = Some("x".into())).unwrap(), "agent gave up");
        assert_eq!(fault_of(|r| r.ended = Some(Ended::Deadline)).unwrap(), "deadline");
        assert_eq!(fault_of(|r| r.ended = Some(Ended::Code(1))).unwrap(), "qemu failed");
        assert_eq!(fault_of(|r| r.ended = Some(Ended::Signal(9))).unwrap(), "qemu failed");
        assert_eq!(fault_of(|r| r.bye = false).unwrap(), "unexpected reboot");
        assert_eq!(fault_of(|r| r.runs.clear()).unwrap(), "runs missing");
    }

    #[test]
    fn breakdown_tells_the_steps_from_start_to_record() {
        let mut report = Report { took: Duration::from_millis(400), ..Report::default() };
        report.stages.extend([("result", Duration::from_millis(350)), ("kernel", Duration::from_millis(50))]);
        let text = breakdown(&report, Duration::from_millis(412));
        assert_eq!(text, "kernel 0.050 s, result +0.300 s, off +0.050 s, record +0.012 s");
    }

    #[test]
    fn a_busy_host_makes_good_and_slow_boots_invalid_and_hides_no_other_fault() {
        let others =
            |others| Load { boot: Some(Share { seconds: 9.0, others, stolen: 0.0 }), benchmarks: None };
        let busy_with = |load, what: Option<&str>| {
            let fault = what.map(|what| (what.to_owned(), "told".to_owned()));
            busy(&Report { load, ..good() }, 10.0, fault.as_ref())
        };
        assert_eq!(busy_with(others(9.0), None), None);
        assert_eq!(busy_with(Load::default(), None), None, "not known");
        let (what, detail) = busy_with(others(31.0), None).unwrap();
        assert!(what == "host busy" && detail.contains("31.0%"), "{detail}");
        let (_, detail) = busy_with(others(31.0), Some("deadline")).unwrap();
        assert!(detail.ends_with("; deadline: told"), "{detail}");
        assert_eq!(busy_with(others(31.0), Some("panic")), None);
    }

    #[test]
    fn guest_must_be_the_one_asked_for() {
        for wrong in [
            ("release", "6.11"),
            ("kernel-max", "511"),
            ("kernel-max", "garbage"),
            ("cpus", "possible=0-63 present=0-3 online=0-2"),
            ("cpus", "?"),
            ("notes", ""),
            ("notes", "zz"),
        ] {
            assert_eq!(fault_of(|r| r.facts = facts(&[wrong])).as_deref(), Some("wrong guest"), "{wrong:?}");
        }
    }

    #[test]
    fn stages_are_the_host_s_time_and_uptime_the_guest_s() {
        let mut report = Report { facts: facts(&[("uptime", "0.73")]), ..good() };
        report.stages.insert("init", Duration::from_millis(1500));
        let samples = stages(&report, &CellId("c".into()), 1, Kind::EmulatedInstructions);
        let values: Vec<_> = samples.iter().map(|s| (s.metric.as_str(), s.value, s.kind)).collect();
        assert_eq!(
            values,
            [("boot.init", 1.5, Kind::EmulatedWallClock), ("boot.uptime", 0.73, Kind::EmulatedInstructions)]
        );
    }

    #[test]
    fn topology_counts_where_it_was_asked_for() {
        let shape = Shape { levels: [2, 1, 2, 1], nodes: Vec::new() };
        let expected = Expected { shape: Some(shape), ..expected() };
        let fault = |facts| fault(&Report { facts, ..good() }, &expected, &[benchmark()]);
        let fitting = facts(&[("topology", "packages=2 clusters=1 cores=2 threads=1")]);
        assert_eq!(fault(fitting), None);
        let (what, detail) = fault(facts(&[])).unwrap();
        assert_eq!(what, "wrong guest");
        assert!(detail.contains("packages=2 should be there"), "{detail}");
    }

    #[test]
    fn failed_runs_are_failures_of_their_benchmark_never_samples() {
        for (failing, what) in [
            (run(&["Time: 1.5"], Some(RunEnd::Exit(1))), "exit 1"),
            (run(&["Time: 1.5"], Some(RunEnd::Signal(11))), "signal 11"),
            (run(&["Time: 1.5"], Some(RunEnd::Timeout)), "timeout"),
            (run(&[], Some(RunEnd::Error("no".into()))), "not started"),
            (run(&["Time: 1.5"], None), "unfinished"),
            (run(&["Tme: 1.5"], Some(RunEnd::Exit(0))), "no result"),
            (Run { truncated: true, ..run(&["Time: 1.5"], Some(RunEnd::Exit(0))) }, "output cut"),
        ] {
            let report = Report { runs: vec![failing], ..good() };
            let (samples, failures) =
                samples(&report, &CellId("c".into()), 1, Kind::EmulatedWallClock, &[benchmark()]);
            assert!(samples.is_empty());
            assert_eq!(failures[0].what, what);
            assert_eq!(failures[0].benchmark.as_deref(), Some("b"));
        }
    }
}
