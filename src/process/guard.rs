//! The guard: `matrix __guard -- PROGRAM ARGS…`, a small synchronous process
//! between `matrix` and a command.
//!
//! It alone can promise that nothing of a command stays behind: as child
//! subreaper it inherits every orphan of the tree, and it outlives `matrix`.
//! Its standard input is a socket to `matrix`. From there `t` means SIGTERM to
//! the whole tree, `k` or the end of the stream (`matrix` is gone) SIGKILL. To
//! there goes one report when nothing of the tree is alive any more.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getpid, getppid, setsid};

use super::Ended;

/// How long to insist on SIGKILL; a process that is stuck in the kernel longer
/// than that is reported as survivor.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Variable that marks every process of a tree, for [`sweep`].
pub(super) const MARK: &str = "MATRIX_TREE";

/// Last word of a guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// The program could not be started, for this error number.
    Failed(i32),
    /// The tree has ended.
    Ended {
        /// Of the command itself.
        status: Status,
        /// Processor time in user mode of the tree.
        user: Duration,
        /// Processor time in the kernel of the tree.
        system: Duration,
        /// Largest resident set of any process of the tree, in bytes.
        peak_rss: u64,
        /// Processes that would not die.
        survivors: u64,
    },
}

/// How a command ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Code(i32),
    Signal(i32),
}

impl From<ExitStatus> for Status {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Status::Code(code),
            (None, signal) => Status::Signal(signal.unwrap_or_default()),
        }
    }
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        match status {
            Status::Code(code) => Ended::Code(code),
            Status::Signal(signal) => Ended::Signal(signal),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Failed(errno) => writeln!(f, "failed {errno}"),
            Report::Ended { status, user, system, peak_rss, survivors } => {
                match status {
                    Status::Code(code) => write!(f, "code {code}")?,
                    Status::Signal(signal) => write!(f, "signal {signal}")?,
                }
                let (user, system) = (user.as_micros(), system.as_micros());
                writeln!(f, " {user} {system} {peak_rss} {survivors}")
            }
        }
    }
}

impl Report {
    /// Reads what `Display` wrote; `None` for anything else, such as the
    /// silence of a guard that was killed.
    pub(super) fn parse(line: &str) -> Option<Report> {
        let fields: Vec<&str> = line.strip_suffix('\n')?.split(' ').collect();
        match fields[..] {
            ["failed", errno] => Some(Report::Failed(errno.parse().ok()?)),
            [how, n, user, system, peak_rss, survivors] => Some(Report::Ended {
                status: match how {
                    "code" => Status::Code(n.parse().ok()?),
                    "signal" => Status::Signal(n.parse().ok()?),
                    _ => return None,
                },
                user: Duration::from_micros(user.parse().ok()?),
                system: Duration::from_micros(system.parse().ok()?),
                peak_rss: peak_rss.parse().ok()?,
                survivors: survivors.parse().ok()?,
            }),
            _ => None,
        }
    }
}

/// Runs the guard with the arguments behind `__guard`; returns its exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let mut args = args.skip_while(|arg| arg == "--");
    let (Some(program), Ok(socket)) = (args.next(), io::stdin().as_fd().try_clone_to_owned()) else {
        eprintln!("matrix: __guard is internal: matrix runs every command under it");
        return 2;
    };
    let mut matrix = UnixStream::from(socket);
    let report = start(&program, args).map(|(tree, signals)| supervise(tree, signals, &matrix));
    let report = match report {
        Ok(Some(report)) => report,
        Ok(None) => return 1,
        Err(error) => Report::Failed(error.raw_os_error().unwrap_or(Errno::EINVAL as i32)),
    };
    // Nobody is left to tell if this fails.
    i32::from(matrix.write_all(report.to_string().as_bytes()).is_err())
}

fn start(program: &OsStr, args: impl Iterator<Item = OsString>) -> io::Result<(Tree, SignalFd)> {
    // Not `matrix`, so that `killall -KILL matrix` leaves the guards to clean up.
    prctl::set_name(c"guard")?;
    prctl::set_child_subreaper(true)?;
    // Only SIGKILL may end a guard before its work is done.
    SigSet::all().thread_block()?;
    let mut child_ends = SigSet::empty();
    child_ends.add(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&child_ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let command = spawn(program, args)?;
    Ok((Tree { command, status: None }, signals))
}

/// Starts the command in a session of its own: the terminal's Ctrl-C does not
/// reach it, it cannot ask for passwords, and its process groups hold nobody else.
#[allow(unsafe_code)]
fn spawn(program: &OsStr, args: impl Iterator<Item = OsString>) -> io::Result<Child> {
    let guard = getpid();
    let prepare = move || {
        setsid()?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != guard {
            return Err(Errno::ESRCH.into()); // killed before the line above
        }
        SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes system calls and nothing
    // else: it takes no lock and allocates no memory.
    unsafe { Command::new(program).args(args).stdin(Stdio::null()).pre_exec(prepare).spawn() }
}

/// Waits for the command, obeying `matrix`, until nothing of the tree is left.
/// `None` if the command's status got lost.
fn supervise(mut tree: Tree, signals: SignalFd, mut matrix: &UnixStream) -> Option<Report> {
    let mut terminating = false;
    // While terminating, what the command leaves behind has its grace, too.
    while tree.reap() && (tree.status.is_none() || terminating) {
        let mut fds =
            [PollFd::new(matrix.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(_) => break,
            Ok(_) => {}
        }
        while let Ok(Some(_)) = signals.read_signal() {}
        if fds[0].any() == Some(true) {
            let mut order = [0];
            match matrix.read(&mut order) {
                Ok(1) if order == *b"t" => {
                    terminating = true;
                    signal(&Tree::members(), Signal::SIGTERM);
                }
                _ => break,
            }
        }
    }
    let survivors = tree.kill(&signals);
    // A command that cannot die has no status yet, but it has that signal.
    let stuck = (survivors > 0).then_some(Status::Signal(Signal::SIGKILL as i32));
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    Some(Report::Ended {
        status: tree.status.or(stuck)?,
        user: duration(usage.user_time()),
        system: duration(usage.system_time()),
        peak_rss: u64::try_from(usage.max_rss()).ok()? * 1024,
        survivors,
    })
}

fn duration(time: TimeVal) -> Duration {
    Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or_default())
}

/// The command and everything that it started.
struct Tree {
    command: Child,
    status: Option<Status>,
}

impl Tree {
    /// Collects what has ended, keeping the command's status; whether anything
    /// is alive. Orphans become children of the guard, so no child means no tree.
    fn reap(&mut self) -> bool {
        // Asked first because `waitpid` cannot express death by a real-time signal.
        if let (None, Ok(Some(status))) = (self.status, self.command.try_wait()) {
            self.status = Some(status.into());
        }
        let command = Pid::from_raw(self.command.id() as i32);
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                Err(Errno::ECHILD) => return false,
                Ok(WaitStatus::Exited(pid, code)) if pid == command => {
                    self.status = Some(Status::Code(code));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                    self.status = Some(Status::Signal(signal as i32));
                }
                _ => {}
            }
        }
    }

    /// Kills until nothing is left; returns how many would not die.
    fn kill(&mut self, signals: &SignalFd) -> u64 {
        let begin = Instant::now();
        while self.reap() {
            let members = Tree::members();
            if begin.elapsed() > KILL_LIMIT {
                return members.len() as u64;
            }
            signal(&members, Signal::SIGKILL);
            let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            // Not longer, because something may have been forked since the look at /proc.
            let _ = poll(&mut fds, PollTimeout::from(10u8));
            while let Ok(Some(_)) = signals.read_signal() {}
        }
        0
    }

    fn members() -> Vec<Process> {
        let guard = getpid().as_raw();
        with_descendants(|process| process.parent == guard)
    }
}

/// Kills everything that carries `mark`, as far as it can be found: the
/// last resort after a guard itself was killed.
pub(super) async fn sweep(mark: &str) {
    let mark = format!("{MARK}={mark}");
    let marked = |process: &Process| {
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid));
        environment.is_ok_and(|e| e.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
    };
    let begin = Instant::now();
    while begin.elapsed() < KILL_LIMIT {
        let found = with_descendants(marked);
        if found.is_empty() {
            break;
        }
        signal(&found, Signal::SIGKILL);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Clock ticks of the processors that this process and everything that it has
/// started took so far: those that have ended are in their parents' figures.
pub fn ticks() -> u64 {
    let me = getpid().as_raw();
    with_descendants(|process| process.pid == me).iter().map(|process| process.ticks).sum()
}

/// Signals the process groups of `processes`. The kernel signals a group as a
/// whole, so a process cannot slip away by forking in between. A command has
/// its own session, so its groups hold nothing but its tree.
fn signal(processes: &[Process], signal: Signal) {
    let groups: BTreeSet<i32> = processes.iter().map(|p| p.group).collect();
    let own = getpgrp().as_raw();
    for group in groups.into_iter().filter(|group| *group > 1 && *group != own) {
        // Failure means that it has ended or is not ours to kill.
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// In user mode and in the kernel, with those of its children that have ended.
    ticks: u64,
}

/// The processes that `seed` picks, and all their descendants.
fn with_descendants(seed: impl Fn(&Process) -> bool) -> Vec<Process> {
    let (mut found, mut others): (Vec<_>, Vec<_>) = processes().into_iter().partition(seed);
    loop {
        let known: HashSet<i32> = found.iter().map(|p| p.pid).collect();
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|p| known.contains(&p.parent));
        if children.is_empty() {
            return found;
        }
        found.extend(children);
        others = rest;
    }
}

fn processes() -> Vec<Process> {
    let Ok(proc) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    proc.flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| parse_stat(&std::fs::read(entry.path().join("stat")).ok()?))
        .collect()
}

/// Reads `PID (NAME) STATE PARENT GROUP …` (proc(5)); NAME may hold anything, even `) `.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let stat = String::from_utf8_lossy(stat);
    let (pid, rest) = stat.split_once(' ')?;
    let mut fields = rest[rest.rfind(')')? + 1..].split_ascii_whitespace().skip(1);
    let mut number = || fields.next()?.parse().ok();
    let (parent, group) = (number()?, number()?);
    // Behind eight more come utime, stime, cutime and cstime.
    let ticks = fields.skip(8).take(4).map(|n| n.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Process { pid: pid.parse().ok()?, parent, group, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_way() {
        let ended = |status| Report::Ended {
            status,
            user: Duration::from_micros(1_234_567),
            system: Duration::ZERO,
            peak_rss: 4096,
            survivors: 0,
        };
        for report in
            [ended(Status::Code(0)), ended(Status::Code(255)), ended(Status::Signal(64)), Report::Failed(2)]
        {
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
    }

    #[test]
    fn what_is_no_report() {
        for line in ["", "\n", "code 0 1 2 3 4", "code 0\n", "code x 1 2 3 4\n", "failed\n"] {
            assert_eq!(Report::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn names_may_hold_anything() {
        let process =
            parse_stat(b"42 (a) S (7) \xff) R 7 41 40 0 -1 4194304 8 9 10 11 1 20 300 4000 20 0").unwrap();
        assert_eq!(process, Process { pid: 42, parent: 7, group: 41, ticks: 4321 });
        assert_eq!(parse_stat(b"42 (sh"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn this_process_descends_from_its_parent() {
        let (parent, me) = (getppid().as_raw(), getpid().as_raw());
        let seeds = with_descendants(|p| p.pid == parent);
        assert!(seeds.iter().any(|p| p.pid == me));
        assert!(with_descendants(|p| p.pid == me).iter().all(|p| p.pid != parent));
    }
}
