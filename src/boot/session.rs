//! One boot: QEMU is started, its console and the results channel are
//! listened to, and what was heard is written down.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use fs_err as fs;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use regex::bytes::RegexSet;
use tokio::net::unix::pipe;

use super::argv::{self, Guest};
use super::console::{self, Phase};
use super::load::{Load, Ticks};
use super::machine::Machine;
use super::params;
use super::protocol::{Message, Reader, RunEnd};
use super::verdict::{self, Report, Run};
use crate::arch::Arch;
use crate::bench::console::Filter;
use crate::model::{Benchmark, Boot};
use crate::process::{self, Limits, Spec, Stop, lines::Lines};

/// Bytes of console that are kept on disk.
const CONSOLE_CAP: u64 = 16 << 20;
/// Bytes of results that a guest may send.
const RESULTS_CAP: usize = 32 << 20;
/// Console lines of a benchmark that are kept to be read; a writer of rcuscale
/// has 10000 at most.
const SAID_CAP: usize = 100_000;
/// Longest line of the results channel.
const LINE_CAP: usize = 8 << 10;
/// QEMU has nothing to save: it may die at once.
const GRACE: Duration = Duration::from_secs(2);
/// After trouble the kernel still prints registers and a backtrace.
const LINGER: Duration = Duration::from_secs(2);
/// How often silence is looked for.
const TICK: Duration = Duration::from_millis(500);

/// What to boot and where to keep the evidence.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The machine.
    pub arch: &'a Arch,
    /// How it is started.
    pub boot: &'a Boot,
    /// Kernel image.
    pub image: &'a Path,
    /// Initial RAM file system.
    pub initramfs: &'a Path,
    /// How the guest is started.
    pub machine: &'a Machine,
    /// Firmware in place of the stock one.
    pub firmware: Option<&'a Path>,
    /// What the guest was told to run.
    pub benchmarks: &'a [Benchmark],
    /// Gets `qemu.sh`, `console.log` and `results.txt`.
    pub dir: &'a Path,
}

impl Session<'_> {
    /// QEMU's command line with the results going to `results`.
    pub fn command(&self, results: &Path) -> Vec<String> {
        let Session { arch, boot, image, initramfs, machine, firmware, .. } = *self;
        argv::command(arch, boot, machine, Guest { image, initramfs, firmware, results })
    }

    /// Boots and listens until QEMU is gone. `step` is told how far the guest is.
    ///
    /// # Errors
    /// QEMU is not installed or the evidence cannot be written; whatever the
    /// guest does is in the report instead.
    pub async fn run(&self, stop: &Stop, step: impl FnMut(String)) -> anyhow::Result<Report> {
        fs::create_dir_all(self.dir)?;
        self.write_script()?;
        let fifos = tempfile::tempdir().context("no place for the results channel")?;
        let fifo = fifos.path().join("results");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Open for writing too, so that there is no end of file before QEMU comes.
        let channel = pipe::OpenOptions::new().read_write(true).open_receiver(&fifo)?;
        let argv = self.command(&fifo);
        let spec =
            Spec::new(&argv[0]).args(&argv[1..]).log(self.dir.join("console.log")).log_cap(CONSOLE_CAP);
        let limits = Limits {
            deadline: Some(Duration::from_secs(self.boot.deadline_s)),
            grace: GRACE,
            linger: LINGER,
            ..Limits::default()
        };
        let listener = RefCell::new(Listener::new(self, step)?);
        let before = Ticks::now();
        let own = Stop { graceful: stop.graceful.child_token(), now: stop.now.child_token() };
        let exit = tokio::select! {
            exit = process::run(&spec, &limits, &own, |_, line| listener.borrow_mut().console(line)) => exit,
            never = listen(&channel, &listener, &own) => match never {},
        };
        let mut listener = listener.into_inner();
        listener.drain(&channel);
        let after = Ticks::now();
        let exit = exit?;
        if let Some(error) = exit.log_error {
            listener.stop("evidence lost", format!("console.log: {error}"));
        }
        listener.report.ended = Some(exit.status);
        listener.report.took = exit.took;
        let share = |from: Option<Ticks>, to: Option<Ticks>| to?.since(&from?);
        let (online, bye) = listener.ticks;
        listener.report.load = Load { boot: share(before, after), benchmarks: share(online, bye.or(after)) };
        Ok(listener.report)
    }

    /// The command that boots the same guest, or the kernel at `$KERNEL` in it,
    /// without this program; the run directory may have moved.
    fn write_script(&self) -> anyhow::Result<()> {
        let run = self.dir.ancestors().nth(3);
        let word = |word: &String| match run.and_then(|run| Path::new(word).strip_prefix(run).ok()) {
            Some(below) => format!("\"$run\"/{}", shell_words::quote(&below.to_string_lossy())),
            None if Path::new(word) == self.image => format!("\"${{KERNEL:-{}}}\"", quotable(word)),
            None => shell_words::quote(word).into_owned(),
        };
        let argv: Vec<String> = self.command(Path::new("results.txt")).iter().map(word).collect();
        let text = format!(
            "#!/bin/sh\n# Boots this guest by hand, or the kernel at $KERNEL in it; its results go to\n\
             # results.txt in the current folder.\nrun=$(cd \"$(dirname \"$0\")/../../..\" && pwd)\nexec {}\n",
            argv.join(" ")
        );
        let path = self.dir.join("qemu.sh");
        fs::write(&path, text)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(())
    }
}

/// A text within double quotes of a shell.
fn quotable(text: &str) -> String {
    text.chars().flat_map(|c| "\\\"$`".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Reads the results channel and looks for silence, for as long as it is let.
async fn listen<S: FnMut(String)>(
    channel: &pipe::Receiver,
    listener: &RefCell<Listener<'_, S>>,
    own: &Stop,
) -> std::convert::Infallible {
    loop {
        // Readiness first: the buffer is filled without waiting.
        let _ = tokio::time::timeout(TICK, channel.readable()).await;
        let stopped = {
            let mut listener = listener.borrow_mut();
            listener.drain(channel);
            listener.look_for_silence();
            listener.report.stopped.is_some()
        };
        if stopped {
            own.graceful.cancel();
            // QEMU is on its way out; nothing it says now matters.
            std::future::pending::<()>().await;
        }
    }
}

/// What was heard so far.
struct Listener<'a, S> {
    session: &'a Session<'a>,
    step: S,
    report: Report,
    reader: Reader,
    lines: Option<Lines>,
    results: fs::File,
    received: usize,
    began: Instant,
    last_heard: Instant,
    phase: Option<Phase>,
    /// Lines that are no trouble, whatever they look like.
    allowed: RegexSet,
    /// Where the results are on the console: what to listen for.
    filter: Option<Filter>,
    /// When the guest's processors were online, and when it said good-bye.
    ticks: (Option<Ticks>, Option<Ticks>),
}

impl<'a, S: FnMut(String)> Listener<'a, S> {
    fn new(session: &'a Session<'a>, step: S) -> anyhow::Result<Self> {
        let by_kernel = verdict::run_by_kernel(session.benchmarks);
        Ok(Listener {
            session,
            step,
            report: Report::default(),
            reader: Reader::default(),
            lines: Some(Lines::new(LINE_CAP)),
            results: fs::File::create(session.dir.join("results.txt"))?,
            received: 0,
            began: Instant::now(),
            allowed: RegexSet::new(&session.boot.allow).context("[boot] allow")?,
            last_heard: Instant::now(),
            phase: None,
            filter: by_kernel.map(|(_, console)| Filter::new(console)).transpose()?,
            ticks: (None, None),
        })
    }

    fn console(&mut self, line: &[u8]) -> ControlFlow<()> {
        self.last_heard = Instant::now();
        self.report.console = true;
        if let Some(phase) = console::phase(line).filter(|p| self.phase < Some(*p)) {
            self.phase = Some(phase);
            if phase == Phase::Kernel {
                self.reached("kernel");
            }
            (self.step)(format!("{phase:?}").to_lowercase());
        }
        if let Some(left) = console::stack_left(line) {
            self.report.stack_left = Some(self.report.stack_left.map_or(left, |least| least.min(left)));
        }
        self.keep(line);
        if self.report.trouble.is_none() {
            self.report.trouble = console::trouble(line).filter(|_| !self.allowed.is_match(line));
        }
        if self.report.trouble.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Keeps a line that the result of the kernel's own benchmark depends on.
    fn keep(&mut self, line: &[u8]) {
        let Some(filter) = &self.filter else { return };
        let line = console::printable(line);
        let ours = filter.keeps(&line);
        if console::powers_off(&line) {
            self.report.power_off = true;
            self.reached("result");
        }
        if !ours {
            return;
        }
        if self.report.said.len() < SAID_CAP {
            self.report.said.push(line);
        } else {
            self.stop("output flood", format!("more than {SAID_CAP} lines with results on the console"));
        }
    }

    /// Takes all that is there now.
    fn drain(&mut self, channel: &pipe::Receiver) {
        let mut buffer = [0; 16 << 10];
        while let Ok(n @ 1..) = channel.try_read(&mut buffer) {
            self.last_heard = Instant::now();
            self.received += n;
            if self.received > RESULTS_CAP {
                self.stop("output flood", format!("more than {RESULTS_CAP} bytes on the results channel"));
                return;
            }
            if let Err(error) = std::io::Write::write_all(&mut self.results, &buffer[..n]) {
                self.stop("evidence lost", format!("results.txt: {error}"));
                return;
            }
            // Taken out while messages change the rest of `self`.
            if let Some(mut lines) = self.lines.take() {
                lines.push(&buffer[..n], |line| self.result(line));
                self.lines = Some(lines);
            }
        }
    }

    fn result(&mut self, line: &[u8]) {
        match self.reader.line(line) {
            Ok(Some(message)) => self.message(message),
            Ok(None) => {}
            Err(fault) => self.stop("bad protocol", fault),
        }
    }

    fn message(&mut self, message: Message) {
        let report = &mut self.report;
        match message {
            Message::Hello => {
                report.hello = true;
                self.reached("init");
                (self.step)("init".to_owned());
            }
            Message::Fact(key, value) => {
                // Again once all are online, and never while a benchmark runs,
                // which a look at all processes would disturb.
                if key == "cpus" {
                    self.ticks.0 = Ticks::now();
                }
                report.facts.of_guest.insert(key, value);
            }
            Message::CpusOnline(progress) => (self.step)(format!("CPUs online {progress}")),
            Message::Begin { bench, iteration } => self.begin(bench, iteration),
            Message::Out(line) => {
                if let Some(run) = report.runs.last_mut() {
                    run.lines.push(line);
                }
            }
            Message::Truncated => {
                if let Some(run) = report.runs.last_mut() {
                    run.truncated = true;
                }
            }
            Message::Heartbeat => {}
            Message::End { bench, iteration, how, wall } => self.end(bench, iteration, how, wall),
            Message::Bye => {
                report.bye = true;
                self.ticks.1 = Ticks::now();
            }
            Message::Fatal(text) => report.fatal = Some(text),
        }
    }

    fn end(&mut self, bench: usize, iteration: u32, how: RunEnd, wall: Duration) {
        match self.report.runs.last_mut().filter(|r| (r.bench, r.iteration) == (bench, iteration)) {
            Some(run) => {
                let good = how == RunEnd::Exit(0);
                run.end = Some((how, wall));
                if good {
                    self.reached("result");
                }
            }
            None => {
                self.stop("bad protocol", format!("run {iteration} of {bench} ended without a beginning"))
            }
        }
    }

    /// A stage counts from when it was first reached.
    fn reached(&mut self, stage: &'static str) {
        self.report.stages.entry(stage).or_insert(self.began.elapsed());
    }

    fn begin(&mut self, bench: usize, iteration: u32) {
        // Now all facts are there; a kernel without the benchmark would never end.
        let asked = params::asked(&self.session.boot.cmdline);
        if let Some(detail) = params::ignored(&self.report.facts, &asked) {
            self.stop("parameter ignored", detail);
        }
        let benchmark = self.session.benchmarks.get(bench);
        let again = self.report.runs.iter().any(|r| (r.bench, r.iteration) == (bench, iteration));
        match benchmark.filter(|b| (1..=b.repeat).contains(&iteration) && !again) {
            Some(benchmark) => {
                // All processors are there before the first run.
                self.reached("online");
                (self.step)(format!("{} {iteration}/{}", benchmark.name, benchmark.repeat));
                let run = Run { bench, iteration, lines: Vec::new(), truncated: false, end: None };
                self.report.runs.push(run);
            }
            None => {
                self.stop("bad protocol", format!("run {iteration} of benchmark {bench} was not asked for"))
            }
        }
    }

    fn look_for_silence(&mut self) {
        let silent = self.last_heard.elapsed();
        if silent >= Duration::from_secs(self.session.boot.silence_s) {
            let what = if self.report.console { "hung" } else { "no output" };
            self.stop(what, format!("nothing from the guest for {} s", silent.as_secs()));
        }
    }

    /// The first reason counts.
    fn stop(&mut self, what: &'static str, detail: String) {
        self.report.stopped.get_or_insert((what, detail));
    }
}
