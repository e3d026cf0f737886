//! The guest agent's two files: the job it gets and the messages it sends.
//! Their format is documented in `qemu/guest/agent.c`. Pure text.

use std::time::Duration;

use crate::model::Benchmark;

/// Version that the agent announces in its first message.
const VERSION: &str = "1";
/// Most bytes of a payload that is continued over lines.
const PAYLOAD_CAP: usize = 64 << 10;
/// Linux has no more NUMA nodes than that (`NODES_SHIFT` is at most 10).
const MAX_NODES: u32 = 1024;

/// One message of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The agent runs.
    Hello,
    /// Something about the guest, by key: `release`, `kernel-max`, ...
    Fact(String, String),
    /// So many of so many processors are online.
    CpusOnline(String),
    /// A run of a benchmark starts.
    Begin {
        /// Index of the benchmark in the job.
        bench: usize,
        /// From 1.
        iteration: u32,
    },
    /// A line of a program's output.
    Out(String),
    /// So many bytes of output were dropped.
    Truncated,
    /// The current run goes on.
    Heartbeat,
    /// A run ended.
    End {
        /// Index of the benchmark in the job.
        bench: usize,
        /// From 1.
        iteration: u32,
        /// How.
        how: RunEnd,
        /// From start to end, by the guest's clock.
        wall: Duration,
    },
    /// Everything was run.
    Bye,
    /// The agent gave up.
    Fatal(String),
}

/// How a program's run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It took too long.
    Timeout,
    /// It could not be started.
    Error(String),
}

/// The job of a boot: every benchmark with its repeats. `staged` has the agent
/// bring all processors online before. A benchmark that the kernel runs stands alone.
pub fn job(benchmarks: &[Benchmark], staged: bool) -> String {
    let mut job = String::from(if staged { "online all\n" } else { "" });
    if benchmarks.iter().any(|b| b.console.is_some()) {
        job.push_str("await-kernel\n");
        return job;
    }
    for bench in benchmarks {
        job.push_str(&format!("bench {} {}\n", bench.repeat, bench.timeout_s));
        for arg in bench.argv() {
            job.push_str(&format!("arg {}\n", escape(&arg)));
        }
        job.push_str("end\n");
    }
    job
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}

/// Undoes [`escape`]; `None` where the text is not a product of it.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next()? {
            b'\\' => out.push(b'\\'),
            b'n' => out.push(b'\n'),
            b'x' => {
                let digit = |b: Option<&u8>| char::from(*b?).to_digit(16);
                out.push((digit(rest.next())? * 16 + digit(rest.next())?) as u8);
            }
            _ => return None,
        }
    }
    Some(out)
}

/// Puts messages together from lines.
#[derive(Debug, Default)]
pub struct Reader {
    /// Payload so far of a message that goes on in the next line, with its key.
    open: Option<(String, Vec<u8>)>,
}

impl Reader {
    /// Takes a line; gives the message that it completes, or says what is
    /// wrong with it. Guests are untrusted: nothing here can fail in another way.
    ///
    /// # Errors
    /// The line is not of the protocol.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Message>, String> {
        let shown = || super::console::printable(line);
        let cut = line.iter().position(|b| *b == b' ').ok_or_else(|| format!("no key in '{}'", shown()))?;
        let key = String::from_utf8_lossy(&line[..cut]).into_owned();
        let (payload, more) = match line[cut + 1..].strip_suffix(b"\\>") {
            // `\\>` is an escaped backslash in front of an ordinary `>`.
            Some(head) if head.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 0 => (head, true),
            _ => (&line[cut + 1..], false),
        };
        let payload = unescape(payload).ok_or_else(|| format!("bad escape in '{}'", shown()))?;
        let mut whole = match self.open.take() {
            Some((open, _)) if open != key => return Err(format!("'{open}' is cut short by '{key}'")),
            Some((_, head)) => head,
            None => Vec::new(),
        };
        whole.extend(payload);
        if whole.len() > PAYLOAD_CAP {
            whole.truncate(PAYLOAD_CAP);
        }
        if more {
            self.open = Some((key, whole));
            return Ok(None);
        }
        message(&key, &String::from_utf8_lossy(&whole)).map(Some)
    }
}

fn message(key: &str, payload: &str) -> Result<Message, String> {
    let bad = || format!("bad payload of '{key}': '{}'", super::console::printable(payload.as_bytes()));
    Ok(match key {
        "matrix-agent" if payload == VERSION => Message::Hello,
        "matrix-agent" => return Err(format!("the agent speaks version '{payload}', not {VERSION}")),
        "uptime" | "release" | "machine" | "cmdline" | "kernel-max" | "cpus" | "memory" | "notes"
        | "cpu-failed" | "topology" | "nodes" | "ready" => Message::Fact(key.to_owned(), payload.to_owned()),
        // One for each node, told apart by its number.
        "node" => {
            let (number, rest) = payload.split_once(' ').ok_or_else(bad)?;
            let number = number.parse().ok().filter(|n: &u32| *n < MAX_NODES).ok_or_else(bad)?;
            Message::Fact(format!("node {number}"), rest.to_owned())
        }
        "param" => {
            let (name, value) = payload.split_once('=').ok_or_else(bad)?;
            Message::Fact(format!("param {name}"), value.to_owned())
        }
        "no-param" => {
            let (name, why) = payload.split_once(' ').ok_or_else(bad)?;
            Message::Fact(format!("no-param {name}"), why.to_owned())
        }
        "cpus-online" => Message::CpusOnline(payload.to_owned()),
        "begin" => {
            let (bench, iteration) = payload.split_once(' ').ok_or_else(bad)?;
            Message::Begin {
                bench: bench.parse().map_err(|_| bad())?,
                iteration: iteration.parse().map_err(|_| bad())?,
            }
        }
        "out" => Message::Out(payload.to_owned()),
        "truncated" => Message::Truncated,
        "heartbeat" => Message::Heartbeat,
        "end" => end(payload).ok_or_else(bad)?,
        "bye" => Message::Bye,
        "fatal" => Message::Fatal(payload.to_owned()),
        _ => return Err(format!("unknown message '{key}'")),
    })
}

/// `BENCH ITERATION RESULT wall_ns=N`
fn end(payload: &str) -> Option<Message> {
    let (bench, rest) = payload.split_once(' ')?;
    let (iteration, rest) = rest.split_once(' ')?;
    let (how, wall) = rest.rsplit_once(" wall_ns=")?;
    let how = match how.split_once('=') {
        Some(("exit", code)) => RunEnd::Exit(code.parse().ok()?),
        Some(("signal", number)) => RunEnd::Signal(number.parse().ok()?),
        Some(("error", text)) => RunEnd::Error(text.to_owned()),
        None if how == "timeout" => RunEnd::Timeout,
        _ => return None,
    };
    Some(Message::End {
        bench: bench.parse().ok()?,
        iteration: iteration.parse().ok()?,
        how,
        wall: Duration::from_nanos(wall.parse().ok()?),
    })
}

/// Number of processors in a kernel's CPU list such as `0-3,8`.
pub fn count_cpus(list: &str) -> Option<u32> {
    let mut count: u32 = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GuestNeeds, Server};

    fn read(lines: &[&str]) -> Vec<Result<Option<Message>, String>> {
        let mut reader = Reader::default();
        lines.iter().map(|l| reader.line(l.as_bytes())).collect()
    }

    fn one(line: &str) -> Message {
        Reader::default().line(line.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn messages_are_understood() {
        assert_eq!(one("matrix-agent 1"), Message::Hello);
        assert_eq!(one("kernel-max 511"), Message::Fact("kernel-max".into(), "511".into()));
        assert_eq!(one("node 1 cpus=4-7"), Message::Fact("node 1".into(), "cpus=4-7".into()));
        assert_eq!(one("param a.b=c=d"), Message::Fact("param a.b".into(), "c=d".into()));
        assert_eq!(one("no-param a.b module"), Message::Fact("no-param a.b".into(), "module".into()));
        assert_eq!(one("begin 0 3"), Message::Begin { bench: 0, iteration: 3 });
        assert_eq!(one("out Time: 0.5"), Message::Out("Time: 0.5".into()));
        assert_eq!(one("out "), Message::Out(String::new()));
        let end = |how, ns| Message::End { bench: 0, iteration: 1, how, wall: Duration::from_nanos(ns) };
        assert_eq!(one("end 0 1 exit=0 wall_ns=12"), end(RunEnd::Exit(0), 12));
        assert_eq!(one("end 0 1 signal=9 wall_ns=12"), end(RunEnd::Signal(9), 12));
        assert_eq!(one("end 0 1 timeout wall_ns=12"), end(RunEnd::Timeout, 12));
        let text = "No such file or directory";
        assert_eq!(one(&format!("end 0 1 error={text} wall_ns=0")), end(RunEnd::Error(text.into()), 0));
    }

    #[test]
    fn hostile_lines_are_errors_not_panics() {
        for line in [
            "",
            "x",
            "begin 0",
            "begin a b",
            "node",
            "node a cpus=0",
            "node 1024 cpus=0",
            "param a.b",
            "no-param a.b",
            "end 0 1",
            "end 0 1 exit=x wall_ns=1",
            "out \\q",
            "out \\x1",
            "what 1",
            "matrix-agent 2",
            "begin 99999999999999999999 1",
        ] {
            assert!(Reader::default().line(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn payloads_go_on_over_lines() {
        let got = read(&["out ab\\>", "out cd"]);
        assert_eq!(got, [Ok(None), Ok(Some(Message::Out("abcd".into())))]);
        assert_eq!(one("out ab\\\\>"), Message::Out("ab\\>".into()), "an escaped backslash and a >");
        assert!(read(&["out ab\\>", "begin 0 1"])[1].is_err());
    }

    #[test]
    fn endless_payload_is_bounded() {
        let line = format!("out {}\\>", "x".repeat(4000));
        let mut reader = Reader::default();
        for _ in 0..1000 {
            assert_eq!(reader.line(line.as_bytes()), Ok(None));
        }
        let Ok(Some(Message::Out(text))) = reader.line(b"out y") else { panic!("no message") };
        assert_eq!(text.len(), PAYLOAD_CAP);
    }

    #[test]
    fn escapes_round_trip() {
        let text = "a\\b\nc\u{e9}\x1b'\"";
        assert_eq!(unescape(escape(text).as_bytes()).unwrap(), text.as_bytes());
        assert!(escape(text).bytes().all(|b| (0x20..=0x7e).contains(&b)));
    }

    #[test]
    fn server_runs_beside_its_benchmark() {
        let server = Server { command: vec!["server".into(), "-v".into()], port: 7003 };
        let benchmark = Benchmark {
            console: None,
            name: "b".into(),
            command: vec!["client".into(), "4".into()],
            repeat: 2,
            timeout_s: 9,
            pattern: String::new(),
            section: None,
            metrics: Default::default(),
            packages: vec![],
            files: vec![],
            guest: GuestNeeds { server: Some(server), ..GuestNeeds::default() },
        };
        let args = ["with-server", "7003", "server", "-v", "--", "client", "4"].map(|a| format!("arg {a}\n"));
        assert_eq!(job(&[benchmark], true), format!("online all\nbench 2 9\n{}end\n", args.concat()));
    }

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_cpus("0-3,8\n"), Some(5));
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("0-511"), Some(512));
        for bad in ["", "a", "3-1", "0-4294967295,0-4294967295", "-"] {
            assert_eq!(count_cpus(bad), None, "{bad}");
        }
    }
}
