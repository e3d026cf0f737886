//! Runs one command: reads its output, keeps time, passes orders to its guard.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::guard::{self, Report};
use super::lines::Lines;
use super::log::Log;
use super::{Ended, Exit, GUARD_PROGRAM, Limits, SpawnError, Spec, Stop, Stream};

/// How long to wait for the end of output once the tree is dead. Only a pipe
/// that was handed to a process outside the tree stays open that long.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// As much as a pipe holds.
const CHUNK: usize = 64 << 10;

static TREES: AtomicU64 = AtomicU64::new(0);

/// Runs a command to its end. `sink` gets every complete line without its line
/// end, and at the end of a stream what is left of it; [`ControlFlow::Break`]
/// stops the command after [`Limits::linger`].
pub async fn run(
    spec: &Spec,
    limits: &Limits,
    stop: &Stop,
    sink: impl FnMut(Stream, &[u8]) -> ControlFlow<()>,
) -> Result<Exit, SpawnError> {
    let log = spec.log.as_ref().map(|path| Log::create(path, spec.log_cap)).transpose();
    let mut output = Output {
        sink,
        log: log.map_err(SpawnError::Log)?,
        lines: [Lines::new(limits.line_cap), Lines::new(limits.line_cap)],
        seen: 0,
    };
    let mark = new_mark();
    let began = Instant::now();
    let guard = Guard::start(spec, &mark).map_err(|error| guard_error(spec, error))?;
    let (reports, orders) = guard.socket.into_split();
    let mut course = Course::new(limits, began, orders);
    let report = async {
        let report = read_report(reports).await;
        if report.is_none() {
            guard::sweep(&mark).await;
        }
        (report, began.elapsed())
    };
    let (report, took) = accompany(&mut course, &mut output, guard.stdout, guard.stderr, stop, report).await;
    let mut process = guard.process;
    // The guard has ended; this only collects it.
    let _ = process.wait().await;

    match report {
        Some(Report::Ended { status, user, system, peak_rss, survivors }) => {
            let status = course.reason.unwrap_or(status.into());
            let seen = output.seen;
            let (dropped, log_error) = output.log.map_or((0, None), |log| (log.dropped, log.error));
            Ok(Exit { status, took, user, system, peak_rss, seen, dropped, log_error, survivors })
        }
        Some(Report::Failed(errno)) => Err(exec_error(spec, Errno::from_raw(errno))),
        None => Err(SpawnError::GuardLost { command: spec.command_line() }),
    }
}

/// Reads output, keeps time and passes orders until there is a report and no more output.
async fn accompany<T>(
    course: &mut Course<'_>,
    output: &mut Output<impl FnMut(Stream, &[u8]) -> ControlFlow<()>>,
    mut stdout: ChildStdout,
    mut stderr: ChildStderr,
    stop: &Stop,
    report: impl Future<Output = T>,
) -> T {
    let (mut out, mut err) = (vec![0; CHUNK], vec![0; CHUNK]);
    let (mut out_open, mut err_open) = (true, true);
    let mut report = std::pin::pin!(report);
    let mut reported = None;
    loop {
        match reported.take() {
            Some(report) if course.phase == Phase::Over || !(out_open || err_open) => {
                return report;
            }
            unfinished => reported = unfinished,
        }
        let timer = sleep_until(course.timer.unwrap_or_else(Instant::now));
        tokio::select! {
            read = stdout.read(&mut out), if out_open => {
                let n = read.unwrap_or(0);
                out_open = n > 0;
                if output.take(Stream::Stdout, &out[..n]).is_break() {
                    course.linger();
                }
                // A flood always has more: whatever else goes on has its turn.
                yield_now().await;
            }
            read = stderr.read(&mut err), if err_open => {
                let n = read.unwrap_or(0);
                err_open = n > 0;
                if output.take(Stream::Stderr, &err[..n]).is_break() {
                    course.linger();
                }
                yield_now().await;
            }
            it = &mut report, if reported.is_none() => {
                reported = Some(it);
                course.drain();
            }
            () = stop.now.cancelled(), if course.phase < Phase::Killing => {
                course.reason.get_or_insert(Ended::Cancelled);
                course.kill().await;
            }
            () = stop.graceful.cancelled(), if course.phase < Phase::Terminating => {
                course.terminate(Ended::Cancelled).await;
            }
            () = timer, if course.timer.is_some() => course.next().await,
        }
    }
}

/// Where a run is on its way from start to end; only ever goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Until the deadline.
    Running,
    /// The sink broke off; until the linger time is over.
    Lingering,
    /// SIGTERM was sent; until the grace is over.
    Terminating,
    /// SIGKILL was sent; without limit, as the guard has one.
    Killing,
    /// The tree is dead; until its output is read.
    Draining,
    /// No more waiting.
    Over,
}

struct Course<'a> {
    limits: &'a Limits,
    orders: OwnedWriteHalf,
    phase: Phase,
    /// When the phase ends.
    timer: Option<Instant>,
    /// Why the command had to end; the first reason counts.
    reason: Option<Ended>,
}

impl<'a> Course<'a> {
    fn new(limits: &'a Limits, began: Instant, orders: OwnedWriteHalf) -> Self {
        let timer = limits.deadline.and_then(|deadline| began.checked_add(deadline));
        Course { limits, orders, phase: Phase::Running, timer, reason: None }
    }

    /// What to do when the phase's time is over.
    async fn next(&mut self) {
        match self.phase {
            Phase::Running => self.terminate(Ended::Deadline).await,
            Phase::Lingering => self.terminate(Ended::Stopped).await,
            Phase::Terminating => self.kill().await,
            Phase::Killing | Phase::Draining | Phase::Over => self.enter(Phase::Over, None),
        }
    }

    fn enter(&mut self, phase: Phase, time: Option<Duration>) {
        self.phase = phase;
        self.timer = time.and_then(|time| Instant::now().checked_add(time));
    }

    /// The sink broke off.
    fn linger(&mut self) {
        self.reason.get_or_insert(Ended::Stopped);
        if self.phase == Phase::Running {
            self.enter(Phase::Lingering, Some(self.limits.linger));
        }
    }

    async fn terminate(&mut self, reason: Ended) {
        self.reason.get_or_insert(reason);
        self.enter(Phase::Terminating, Some(self.limits.grace));
        self.order(b"t").await;
    }

    async fn kill(&mut self) {
        self.enter(Phase::Killing, None);
        self.order(b"k").await;
    }

    fn drain(&mut self) {
        self.enter(Phase::Draining, Some(DRAIN_LIMIT));
    }

    async fn order(&mut self, order: &[u8]) {
        // If the guard is gone, the end of its reports says so.
        let _ = self.orders.write_all(order).await;
    }
}

/// Takes in what a command prints.
struct Output<F> {
    sink: F,
    log: Option<Log>,
    lines: [Lines; 2],
    seen: u64,
}

impl<F: FnMut(Stream, &[u8]) -> ControlFlow<()>> Output<F> {
    /// An empty chunk is the stream's end.
    fn take(&mut self, stream: Stream, chunk: &[u8]) -> ControlFlow<()> {
        self.seen += chunk.len() as u64;
        if let Some(log) = &mut self.log {
            log.write(chunk);
        }
        let mut flow = ControlFlow::Continue(());
        let emit = |line: &[u8]| {
            if (self.sink)(stream, line).is_break() {
                flow = ControlFlow::Break(());
            }
        };
        let lines = &mut self.lines[stream as usize];
        if chunk.is_empty() {
            lines.finish(emit)
        } else {
            lines.push(chunk, emit)
        }
        flow
    }
}

/// A mark that no other tree carries, even of an earlier process with this one's number.
fn new_mark() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("{}-{now}-{}", std::process::id(), TREES.fetch_add(1, Ordering::Relaxed))
}

/// A running guard.
struct Guard {
    process: Child,
    stdout: ChildStdout,
    stderr: ChildStderr,
    socket: UnixStream,
}

impl Guard {
    fn start(spec: &Spec, mark: &str) -> io::Result<Guard> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // This very executable, even if its file was replaced meanwhile.
        let program = GUARD_PROGRAM.get().map_or(OsStr::new("/proc/self/exe"), |p| p.as_os_str());
        let mut command = Command::new(program);
        if spec.env_clear {
            command.env_clear();
        }
        for name in &spec.env_removed {
            command.env_remove(name);
        }
        if let Some(cwd) = &spec.cwd {
            command.current_dir(cwd);
        }
        command
            .args(["__guard", "--"])
            .arg(&spec.program)
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .env(guard::MARK, mark)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(jobserver) = &spec.jobserver {
            jobserver.configure_make(command.as_std_mut());
        }
        let mut process = command.spawn()?;
        let pipe = || io::Error::other("no pipe for its output");
        Ok(Guard {
            stdout: process.stdout.take().ok_or_else(pipe)?,
            stderr: process.stderr.take().ok_or_else(pipe)?,
            socket: UnixStream::from_std(ours)?,
            process,
        })
    }
}

/// The guard's last word, when it has ended; `None` if it could not speak.
async fn read_report(reports: OwnedReadHalf) -> Option<Report> {
    let mut line = Vec::new();
    // Keeps what was read before an error: a guard that ends with an order
    // unread resets the connection after its report.
    let _ = reports.take(256).read_to_end(&mut line).await;
    Report::parse(&String::from_utf8_lossy(&line))
}

fn guard_error(spec: &Spec, error: io::Error) -> SpawnError {
    let program = spec.program.to_string_lossy().into_owned();
    match &spec.cwd {
        Some(dir) if !dir.is_dir() => SpawnError::NoDirectory { program, dir: dir.clone() },
        _ => SpawnError::Guard { program, error },
    }
}

fn exec_error(spec: &Spec, errno: Errno) -> SpawnError {
    let program = spec.program.to_string_lossy().into_owned();
    match errno {
        Errno::ENOENT if spec.exists() => {
            let reason = "the interpreter or loader that it asks for is missing".into();
            SpawnError::NotExecutable { program, reason }
        }
        Errno::ENOENT => SpawnError::NotFound { program },
        _ => SpawnError::NotExecutable { program, reason: errno.desc().into() },
    }
}
