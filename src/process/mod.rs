//! The only place that starts and ends processes.
//!
//! Every command runs under a [`guard`]: another process of this program, that
//! starts the command, ends its whole tree and reports how it went. When
//! [`run`] returns, nothing of the tree is alive, not even a daemon that
//! ignores SIGTERM. The same holds soon after its future is dropped or after
//! this program is killed, because the guard sees its socket close.
//!
//! If the guard itself is killed, the command dies with it (parent death
//! signal), and `run` finds the rest of the tree by a mark in its environment.
//! Only if both are killed at the same moment can a daemon of the command go on.

pub mod guard;
pub mod jobserver;
pub mod lines;
mod log;
mod run;
mod spec;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio_util::sync::CancellationToken;

pub use guard::ticks;
pub use run::run;
pub use spec::Spec;

/// Most bytes that [`output`] returns.
pub const OUTPUT_CAP: usize = 1 << 20;
/// Last lines of standard error that an [`OutputError`] shows.
const STDERR_LINES: usize = 10;

static GUARD_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the `matrix` executable that serves as guard, for programs other than
/// `matrix` itself, such as tests. The first call counts.
pub fn set_guard_program(path: impl Into<PathBuf>) {
    let _ = GUARD_PROGRAM.set(path.into());
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From start to SIGTERM; `None` is no limit.
    pub deadline: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// From the sink's [`ControlFlow::Break`] to SIGTERM; lines still reach the sink.
    pub linger: Duration,
    /// Bytes of a line that reach the sink; longer lines are cut there and say so.
    pub line_cap: usize,
}

impl Default for Limits {
    /// No deadline, 5 s grace, no lingering, lines of 8 KiB.
    fn default() -> Self {
        let grace = Duration::from_secs(5);
        Limits { deadline: None, grace, linger: Duration::ZERO, line_cap: 8 << 10 }
    }
}

/// How others stop a run.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// SIGTERM, then SIGKILL after the grace.
    pub graceful: CancellationToken,
    /// SIGKILL at once.
    pub now: CancellationToken,
}

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal, which `run` did not send.
    Signal(i32),
    /// It was stopped at the deadline.
    Deadline,
    /// It was stopped through [`Stop`].
    Cancelled,
    /// The sink broke off, even if the command ended by itself at the same time.
    Stopped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Code(code) => write!(f, "exit code {code}"),
            Ended::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "signal {number} ({signal})"),
                Err(_) => write!(f, "signal {number}"),
            },
            Ended::Deadline => f.write_str("stopped at its deadline"),
            Ended::Cancelled => f.write_str("cancelled"),
            Ended::Stopped => f.write_str("stopped"),
        }
    }
}

/// How a run went.
#[derive(Debug)]
pub struct Exit {
    /// Why it ended.
    pub status: Ended,
    /// From start to the end of the whole tree.
    pub took: Duration,
    /// Processor time of the whole tree in user mode.
    pub user: Duration,
    /// Processor time of the whole tree in the kernel.
    pub system: Duration,
    /// Largest resident set of any single process of the tree, in bytes.
    pub peak_rss: u64,
    /// Bytes of output.
    pub seen: u64,
    /// Bytes of output that are not in the log, if there is one.
    pub dropped: u64,
    /// Why the log is incomplete, other than by its cap.
    pub log_error: Option<io::Error>,
    /// Processes that SIGKILL could not end within ten seconds (stuck in the
    /// kernel, or another user's); 0 in any sane case.
    pub survivors: u64,
}

impl Exit {
    /// Whether the command ended by itself with exit code 0.
    pub fn success(&self) -> bool {
        self.status == Ended::Code(0)
    }
}

/// Why there is no [`Exit`].
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program.
    #[error("`{program}` was not found; `matrix doctor` says what to install")]
    NotFound {
        /// As the [`Spec`] names it.
        program: String,
    },
    /// The program is there but cannot be executed.
    #[error("cannot execute `{program}`: {reason}")]
    NotExecutable {
        /// As the [`Spec`] names it.
        program: String,
        /// The system's words.
        reason: String,
    },
    /// The directory to run in is missing.
    #[error("cannot run `{program}` in {}: no such directory", dir.display())]
    NoDirectory {
        /// As the [`Spec`] names it.
        program: String,
        /// As the [`Spec`] names it.
        dir: PathBuf,
    },
    /// The log cannot be created.
    #[error("cannot log: {0}")]
    Log(io::Error),
    /// The guard cannot be started.
    #[error("cannot start the guard of `{program}`: {error}")]
    Guard {
        /// As the [`Spec`] names it.
        program: String,
        /// The system's words.
        error: io::Error,
    },
    /// The guard was killed, and the command with it.
    #[error("the guard process of `{command}` was killed by someone else, and so was the command")]
    GuardLost {
        /// Program and arguments.
        command: String,
    },
}

/// The text that a short command prints on standard output, without the last
/// line end. The command must exit with 0 and print no more than [`OUTPUT_CAP`] bytes.
pub async fn output(spec: &Spec, deadline: Duration, stop: &Stop) -> Result<String, OutputError> {
    let limits = Limits { deadline: Some(deadline), line_cap: OUTPUT_CAP, ..Limits::default() };
    let mut text = Vec::new();
    let mut stderr = VecDeque::new();
    let exit = run(spec, &limits, stop, |stream, line| {
        if stream == Stream::Stderr {
            stderr.push_back(String::from_utf8_lossy(&line[..line.len().min(1000)]).into_owned());
            if stderr.len() > STDERR_LINES {
                stderr.pop_front();
            }
            return ControlFlow::Continue(());
        }
        text.extend_from_slice(line);
        let too_long = text.len() > OUTPUT_CAP;
        text.push(b'\n');
        if too_long { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await?;
    text.pop();
    let command = spec.command_line();
    match exit.status {
        Ended::Code(0) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Ended::Stopped => Err(OutputError::TooLong { command }),
        status => {
            // patch(1), for one, says on standard output what went wrong.
            let said = if stderr.is_empty() { last_lines(&text) } else { stderr.into() };
            Err(OutputError::Failed { command, status, said })
        }
    }
}

fn last_lines(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(STDERR_LINES)..];
    last.iter().map(|line| line.chars().take(1000).collect()).collect()
}

/// Why [`output`] has no text.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The command could not be run.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It did not end with exit code 0.
    #[error("`{command}` failed: {status}{}", indented(said))]
    Failed {
        /// Program and arguments.
        command: String,
        /// Why it ended.
        status: Ended,
        /// Last lines of its standard error, or of its output if there are none.
        said: Vec<String>,
    },
    /// It printed more than [`OUTPUT_CAP`] bytes.
    #[error("`{command}` prints more than {OUTPUT_CAP} bytes")]
    TooLong {
        /// Program and arguments.
        command: String,
    },
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}
