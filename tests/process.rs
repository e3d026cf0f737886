//! Commands that behave and commands that do not, under the real guard.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use matrix::process::jobserver::{Jobserver, Turn};
use matrix::process::{self, Ended, Exit, Limits, OutputError, SpawnError, Spec, Stop, Stream, output};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A grandchild in a session of its own that ignores SIGTERM and whose parent
/// ends. It lives for a minute at least, but not for ever should a test fail.
const DAEMON: &str =
    r#"(setsid sh -c 'trap "" TERM HUP; echo $$; i=0; while [ $((i += 1)) -lt 600 ]; do sleep 0.1; done' &)"#;

/// Time within which a tree must have gone when nobody waited for it.
const SOON: Duration = Duration::from_secs(5);

fn spec(program: &str) -> Spec {
    process::set_guard_program(env!("CARGO_BIN_EXE_matrix"));
    Spec::new(program)
}

fn sh(script: &str) -> Spec {
    spec("sh").args(["-c", script])
}

/// Grace of 300 ms, deadline as given: fails a test instead of hanging it.
fn limits(deadline_ms: u64) -> Limits {
    Limits {
        deadline: Some(Duration::from_millis(deadline_ms)),
        grace: Duration::from_millis(300),
        ..Limits::default()
    }
}

/// What a command printed: its streams and its lines.
type Lines = Vec<(Stream, String)>;

async fn run(spec: &Spec, limits: &Limits, stop: &Stop) -> (Exit, Lines) {
    let mut lines = Lines::new();
    let exit = process::run(spec, limits, stop, |stream, line| {
        lines.push((stream, String::from_utf8_lossy(line).into_owned()));
        ControlFlow::Continue(())
    });
    (exit.await.unwrap(), lines)
}

/// Runs with a sink of the test's own.
async fn watch(
    spec: Spec,
    limits: Limits,
    sink: impl FnMut(Stream, &[u8]) -> ControlFlow<()>,
) -> Result<Exit, SpawnError> {
    process::run(&spec, &limits, &Stop::default(), sink).await
}

fn ignore(_: Stream, _: &[u8]) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Runs without being stopped; 30 s at most.
async fn simply(spec: &Spec) -> (Exit, Lines) {
    run(spec, &limits(30_000), &Stop::default()).await
}

fn texts(lines: &Lines) -> Vec<&str> {
    lines.iter().map(|(_, line)| line.as_str()).collect()
}

fn pids(lines: &Lines) -> Vec<i32> {
    texts(lines).iter().map(|line| line.parse().unwrap()).collect()
}

fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Whoever inherits the dead may be slow to bury them.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn all_gone_soon(pids: &[i32]) -> bool {
    let begin = Instant::now();
    while pids.iter().any(|pid| alive(*pid)) {
        if begin.elapsed() > SOON {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

#[tokio::test]
async fn success_with_output_of_both_streams() {
    let (exit, lines) = simply(&sh("echo out; echo err >&2; printf end")).await;
    assert!(exit.success());
    assert_eq!((exit.seen, exit.dropped, exit.survivors), (11, 0, 0));
    let of = |stream| {
        let lines = lines.iter().filter(|(s, _)| *s == stream);
        lines.map(|(_, line)| line.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of(Stream::Stdout), ["out", "end"]);
    assert_eq!(of(Stream::Stderr), ["err"]);
}

#[tokio::test]
async fn exit_code_and_signal() {
    assert_eq!(simply(&sh("exit 3")).await.0.status, Ended::Code(3));
    assert_eq!(simply(&sh("kill -SEGV $$")).await.0.status, Ended::Signal(11));
    assert_eq!(simply(&sh("kill -40 $$")).await.0.status, Ended::Signal(40));
}

#[tokio::test]
async fn usage_covers_the_whole_tree() {
    let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let (exit, _) = simply(&sh(&format!("({burn}) & ({burn}) & wait"))).await;
    assert!(exit.success());
    assert!(exit.user > Duration::from_millis(20), "{exit:?}");
    assert!(exit.user + exit.system < exit.took * 64, "{exit:?}");
    assert!((500_000..100_000_000).contains(&exit.peak_rss), "{exit:?}");
}

#[tokio::test]
async fn environment_directory_and_input() {
    let dir = tempfile::tempdir().unwrap();
    let report = sh("pwd; echo $A; echo ${HOME-none}; cat; echo $((1 + 1))");
    let report = report.cwd(dir.path()).env_clear().env("A", "x  y");
    let (exit, lines) = simply(&report).await;
    assert!(exit.success());
    let dir = dir.path().canonicalize().unwrap();
    assert_eq!(texts(&lines), [dir.to_str().unwrap(), "x y", "none", "2"]);
}

#[tokio::test]
async fn a_session_and_a_group_of_its_own() {
    let script = "read pid name state parent group session rest </proc/$$/stat; \
        [ $group = $$ ] && [ $session = $$ ] && echo own";
    assert_eq!(texts(&simply(&sh(script)).await.1), ["own"]);
}

#[tokio::test]
async fn descriptors_of_this_process_are_not_handed_on() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().file_name().unwrap().to_str().unwrap();
    let (_, lines) = simply(&spec("ls").args(["-l", "/proc/self/fd"])).await;
    let lines = texts(&lines);
    assert!(lines.iter().any(|line| line.ends_with(" 0 -> /dev/null")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(name)), "{lines:?}");
}

#[tokio::test]
async fn signals_are_neither_blocked_nor_ignored() {
    let (_, lines) = simply(&spec("cat").arg("/proc/self/status")).await;
    let mask = |name| {
        let line = texts(&lines).into_iter().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    assert_eq!(mask("SigBlk:"), 0);
    let pipe = 1 << (Signal::SIGPIPE as u32 - 1);
    assert_eq!(mask("SigIgn:") & pipe, 0);
}

#[tokio::test]
async fn what_cannot_be_started() {
    let error = async |spec: Spec| watch(spec, limits(30_000), ignore).await.unwrap_err();
    let missing = error(spec("no-such-program")).await;
    assert!(matches!(missing, SpawnError::NotFound { .. }));
    assert_eq!(missing.to_string(), "`no-such-program` was not found; `matrix doctor` says what to install");

    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let script = script.to_str().unwrap();
    let forbidden = error(spec(script)).await.to_string();
    assert!(forbidden.ends_with("Permission denied"), "{forbidden}");
    assert!(Command::new("chmod").args(["+x", script]).status().unwrap().success());
    let no_interpreter = error(spec(script)).await.to_string();
    assert!(no_interpreter.contains("interpreter"), "{no_interpreter}");

    let nowhere = error(spec("true").cwd("/no/such/directory")).await;
    assert!(matches!(nowhere, SpawnError::NoDirectory { .. }), "{nowhere}");
    let no_log = error(spec("true").log("/no/such/directory/log")).await;
    assert!(no_log.to_string().contains("/no/such/directory/log"), "{no_log}");
}

#[tokio::test]
async fn hang_ends_at_the_deadline() {
    let (exit, _) = run(&spec("sleep").arg("60"), &limits(300), &Stop::default()).await;
    assert_eq!(exit.status, Ended::Deadline);
    assert!(exit.took >= Duration::from_millis(300), "{exit:?}");
    assert!(exit.took < Duration::from_secs(10), "{exit:?}");
}

#[tokio::test]
async fn deadline_and_end_may_meet() {
    for ms in 0..30 {
        let (exit, _) = run(&spec("true"), &limits(ms / 3), &Stop::default()).await;
        assert!(matches!(exit.status, Ended::Deadline | Ended::Code(0)), "{exit:?}");
    }
}

#[tokio::test]
async fn sigterm_reaches_the_whole_tree_which_may_clean_up() {
    let child = r#"trap "echo bye; exit 0" TERM; while :; do sleep 0.05; done"#;
    let script = format!("sh -c '{child}' & {child}");
    let limits = Limits { grace: Duration::from_secs(20), ..limits(700) };
    let (exit, lines) = run(&sh(&script), &limits, &Stop::default()).await;
    assert_eq!(exit.status, Ended::Deadline);
    let byes = lines.iter().filter(|(_, line)| line == "bye");
    assert_eq!(byes.count(), 2, "{lines:?}");
    assert!(exit.took < Duration::from_secs(15), "the grace was waited for: {exit:?}");
}

#[tokio::test]
async fn who_ignores_sigterm_is_killed_after_the_grace() {
    let script = r#"trap "" TERM; echo $$; while :; do sleep 0.05; done"#;
    let (exit, lines) = run(&sh(script), &limits(500), &Stop::default()).await;
    assert_eq!(exit.status, Ended::Deadline);
    assert!(exit.took >= Duration::from_millis(800), "{exit:?}");
    assert!(!alive(pids(&lines)[0]));
}

#[tokio::test]
async fn who_outlives_its_parent_is_killed() {
    let (exit, lines) = simply(&sh("sleep 60 & echo $!; exit 4")).await;
    assert_eq!(exit.status, Ended::Code(4));
    assert!(!alive(pids(&lines)[0]));
    assert!(exit.took < Duration::from_secs(20), "{exit:?}");
}

#[tokio::test]
async fn a_daemon_is_killed_when_its_command_ends() {
    let (exit, lines) = simply(&sh(&format!("{DAEMON}; sleep 1"))).await;
    assert!(exit.success());
    assert_eq!(lines.len(), 1);
    assert!(!alive(pids(&lines)[0]));
}

#[tokio::test]
async fn a_daemon_is_killed_with_its_command() {
    let (exit, lines) = run(&sh(&format!("{DAEMON}; sleep 60")), &limits(1500), &Stop::default()).await;
    assert_eq!(exit.status, Ended::Deadline);
    assert!(!alive(pids(&lines)[0]));
}

#[tokio::test]
async fn a_process_that_keeps_forking_is_killed() {
    // Each generation starts the next one and ends.
    let hop = "import os\nprint(os.getpid(), flush=True)\n\
        for _ in range(100000):\n  if os.fork(): os._exit(0)\n";
    let (exit, lines) = simply(&spec("python3").args(["-c", hop])).await;
    assert!(exit.success());
    assert_eq!(exit.survivors, 0);
    assert!(exit.took < Duration::from_secs(9), "{exit:?}");
    let group = Pid::from_raw(pids(&lines)[0]);
    assert_eq!(killpg(group, None), Err(nix::errno::Errno::ESRCH));
}

/// Peak resident set of this process in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn floods_take_no_memory_and_no_disk() {
    let dir = tempfile::tempdir().unwrap();
    let before = peak_kib();
    for (script, bytes) in [
        ("head -c 500000000 /dev/zero", 500_000_000),
        ("yes 0123456789012345678901234567890123456789 | head -c 20000000 >&2", 20_000_000),
    ] {
        let log = dir.path().join("log");
        let mut longest = 0;
        let flood = sh(script).log(&log).log_cap(1 << 20);
        let exit = watch(flood, limits(120_000), |_, line| {
            longest = longest.max(line.len());
            ControlFlow::Continue(())
        });
        let exit = exit.await.unwrap();
        assert!(exit.success(), "{exit:?}");
        assert_eq!(exit.seen, bytes);
        assert_eq!(exit.dropped, bytes - (1 << 20));
        assert!(longest < (8 << 10) + 100);
        let size = std::fs::metadata(&log).unwrap().len();
        assert!((1 << 20..(1 << 20) + 100).contains(&size), "{size}");
    }
    assert!(peak_kib().saturating_sub(before) < 32 << 10, "from {before} to {} KiB", peak_kib());
}

#[tokio::test]
async fn an_endless_flood_ends_at_the_deadline() {
    let exit = watch(spec("yes"), limits(500), ignore).await.unwrap();
    assert_eq!(exit.status, Ended::Deadline);
    assert!(exit.took < Duration::from_secs(10), "{exit:?}");
    assert!(exit.seen > 1 << 16);
}

#[tokio::test]
async fn control_bytes_and_overlong_lines() {
    let script = r"printf 'a\033[1m\001\r\nb\r\r\n'; head -c 9000 /dev/zero | tr '\0' x; echo; echo c";
    let (_, lines) = simply(&sh(script)).await;
    let lines = texts(&lines);
    assert_eq!(lines[..2], ["a\u{1b}[1m\u{1}", "b"]);
    assert_eq!(lines[2], format!("{} [cut: the line has 9000 bytes]", "x".repeat(8192)));
    assert_eq!(lines[3..], ["c"]);
}

#[tokio::test]
async fn the_log_holds_the_raw_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    simply(&sh(r"printf 'a\r\n\377\0b'").log(&log)).await;
    assert_eq!(std::fs::read(&log).unwrap(), b"a\r\n\xff\0b");
    let (exit, _) = simply(&sh("echo x").log("/dev/full")).await;
    assert_eq!((exit.dropped, exit.log_error.is_some()), (2, true));
}

#[tokio::test]
async fn the_sink_stops_the_command_and_sees_what_follows() {
    let console = "echo panic; sleep 0.2; echo backtrace; sleep 60";
    let limits = Limits { linger: Duration::from_secs(2), ..limits(30_000) };
    let mut seen = Vec::new();
    let exit = watch(sh(console), limits, |_, line| {
        seen.push(String::from_utf8_lossy(line).into_owned());
        if line == b"panic" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let exit = exit.await.unwrap();
    assert_eq!(exit.status, Ended::Stopped);
    assert_eq!(seen, ["panic", "backtrace"]);
    assert!(exit.took >= Duration::from_secs(2) && exit.took < Duration::from_secs(20), "{exit:?}");
}

#[tokio::test]
async fn stopped_even_if_the_command_ends_at_once() {
    for _ in 0..5 {
        let exit = watch(sh("echo panic"), limits(30_000), |_, _| ControlFlow::Break(()));
        assert_eq!(exit.await.unwrap().status, Ended::Stopped);
    }
}

#[tokio::test]
async fn cancel_leaves_the_grace_and_a_second_one_does_not() {
    let stubborn = sh(r#"trap "" TERM; echo $$; while :; do sleep 0.05; done"#);
    let limits = Limits { grace: Duration::from_secs(40), ..limits(60_000) };
    let stop = Stop::default();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.graceful.cancel();
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.now.cancel();
    };
    let ((exit, lines), ()) = tokio::join!(run(&stubborn, &limits, &stop), cancel);
    assert_eq!(exit.status, Ended::Cancelled);
    assert!(exit.took >= Duration::from_secs(1), "{exit:?}");
    assert!(exit.took < Duration::from_secs(20), "{exit:?}");
    assert!(!alive(pids(&lines)[0]));
}

#[tokio::test]
async fn cancel_ends_the_obedient_at_once() {
    let stop = Stop::default();
    let limits = Limits { grace: Duration::from_secs(40), ..limits(60_000) };
    let sleep = spec("sleep").arg("60");
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.graceful.cancel();
    };
    let ((exit, _), ()) = tokio::join!(run(&sleep, &limits, &stop), cancel);
    assert_eq!(exit.status, Ended::Cancelled);
    assert!(exit.took < Duration::from_secs(20), "{exit:?}");
}

#[tokio::test]
async fn dropping_the_future_ends_the_tree() {
    let (found, mut pids) = tokio::sync::mpsc::unbounded_channel();
    let command = sh(&format!(r#"{DAEMON}; trap "" TERM; echo $$; while :; do sleep 0.1; done"#));
    let (limits, stop) = (limits(60_000), Stop::default());
    let running = process::run(&command, &limits, &stop, |_, line| {
        found.send(String::from_utf8_lossy(line).parse().unwrap()).unwrap();
        ControlFlow::Continue(())
    });
    let tree = tokio::select! {
        exit = running => panic!("ended: {exit:?}"),
        tree = async { [pids.recv().await.unwrap(), pids.recv().await.unwrap()] } => tree,
    };
    assert!(all_gone_soon(&tree));
}

#[tokio::test]
async fn a_killed_guard_is_an_error_and_its_tree_is_gone() {
    let command = sh(&format!("echo $PPID; {DAEMON}; sleep 0.5; echo $$; sleep 60"));
    let mut tree: Vec<i32> = Vec::new();
    let begin = Instant::now();
    let exit = watch(command, limits(60_000), |_, line| {
        tree.push(String::from_utf8_lossy(line).parse().unwrap());
        if tree.len() == 3 {
            assert!(tree.iter().all(|pid| alive(*pid)));
            kill(Pid::from_raw(tree[0]), Signal::SIGKILL).unwrap();
        }
        ControlFlow::Continue(())
    });
    let error = exit.await.unwrap_err();
    assert!(matches!(error, SpawnError::GuardLost { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(tree.len(), 3);
    assert!(!tree.iter().any(|pid| alive(*pid)));
}

#[test]
fn the_guard_alone_obeys_its_socket() {
    let guard = |script: &str| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
        command.args(["__guard", "--", "sh", "-c", script]).stdin(OwnedFd::from(theirs));
        let child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        (child, ours)
    };
    let first_line = |child: &mut std::process::Child| {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().parse::<i32>().unwrap()
    };
    let report = |socket: UnixStream| BufReader::new(socket).lines().next().unwrap().unwrap();

    let (mut child, mut socket) = guard("echo $$; exec sleep 60");
    let pid = first_line(&mut child);
    socket.write_all(b"t").unwrap();
    assert!(report(socket).starts_with("signal 15 "));
    assert!(!alive(pid));
    child.wait().unwrap();

    let (mut child, mut socket) = guard("trap '' TERM; echo $$; while :; do sleep 0.1; done");
    let pid = first_line(&mut child);
    socket.write_all(b"tk").unwrap();
    assert!(report(socket).starts_with("signal 9 "));
    assert!(!alive(pid));
    child.wait().unwrap();

    let (mut child, socket) = guard(&format!("{DAEMON}; sleep 60"));
    let pid = first_line(&mut child);
    assert!(alive(pid));
    drop(socket);
    assert!(all_gone_soon(&[pid]));
    child.wait().unwrap();
}

/// Plays `matrix` in `killing_matrix_ends_the_tree`, which kills it.
#[tokio::test]
#[ignore = "runs until it is killed"]
async fn plays_matrix() {
    let command = sh(&format!("echo $PPID; {DAEMON}; sleep 0.5; echo $$; sleep 60"));
    let sink = |_: Stream, line: &[u8]| {
        eprintln!("pid {}", String::from_utf8_lossy(line));
        ControlFlow::Continue(())
    };
    watch(command, limits(60_000), sink).await.unwrap();
}

#[test]
fn killing_matrix_ends_the_tree() {
    let mut matrix = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "plays_matrix", "--nocapture"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(matrix.stderr.take().unwrap()).lines().map(Result::unwrap);
    let pids = lines.filter_map(|line| line.strip_prefix("pid ")?.parse().ok());
    let tree: Vec<i32> = pids.take(3).collect();
    assert_eq!(tree.len(), 3);
    assert!(tree.iter().all(|pid| alive(*pid)));
    matrix.kill().unwrap();
    matrix.wait().unwrap();
    assert!(all_gone_soon(&tree));
}

#[tokio::test]
async fn output_of_short_commands() {
    let second = Duration::from_secs(20);
    let stop = Stop::default();
    assert_eq!(output(&sh("printf '\\na\\n\\nb\\n'"), second, &stop).await.unwrap(), "\na\n\nb");
    assert_eq!(output(&spec("true"), second, &stop).await.unwrap(), "");

    let failing = sh("for i in $(seq 20); do echo line $i >&2; done; exit 7");
    let error = output(&failing, second, &stop).await.unwrap_err();
    let OutputError::Failed { status, ref said, .. } = error else { panic!("{error}") };
    assert_eq!(status, Ended::Code(7));
    assert_eq!((said.len(), said[0].as_str(), said[9].as_str()), (10, "line 11", "line 20"));
    let text = error.to_string();
    assert!(text.starts_with("`sh -c 'for i"), "{text}");
    assert!(text.contains("failed: exit code 7\n  line 11\n"), "{text}");

    let error = output(&spec("yes"), second, &stop).await.unwrap_err();
    assert!(matches!(error, OutputError::TooLong { .. }), "{error}");
    let error = output(&spec("no-such-program"), second, &stop).await.unwrap_err();
    assert!(error.to_string().contains("matrix doctor"), "{error}");
    let error = output(&spec("sleep").arg("60"), Duration::from_millis(200), &stop).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "`sleep 60` failed: stopped at its deadline");
}

#[tokio::test]
async fn the_guard_costs_little() {
    let program = spec("true");
    let mut times = Vec::new();
    for _ in 0..10 {
        times.push(simply(&program).await.0.took);
    }
    times.sort();
    println!("median {:?}", times[5]);
    assert!(times[0] < Duration::from_millis(300), "{times:?}");
}

/// Two real makes with ten jobs each: together they run three at once, never more.
#[tokio::test]
async fn makes_share_the_jobs_of_a_jobserver() {
    let dir = tempfile::tempdir().unwrap();
    let rule = "%: ; @echo begin >> $(LOG); sleep 0.2; echo end >> $(LOG)\n";
    let jobs: Vec<_> = (0..10).map(|n| format!("job{n}")).collect();
    std::fs::write(dir.path().join("Makefile"), format!("all: {}; @:\nMakefile: ;\n{rule}", jobs.join(" ")))
        .unwrap();
    let jobserver = Jobserver::new(3).unwrap();
    let log = dir.path().join("log");
    let one = async || {
        let _token = jobserver.token(Turn::Last).await.unwrap();
        let make = spec("make").arg("-C").arg(dir.path()).arg("all").arg(format!("LOG={}", log.display()));
        let make = make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").jobserver(&jobserver);
        let (exit, lines) = simply(&make).await;
        assert_eq!(exit.status, Ended::Code(0), "{lines:?}");
        assert!(!texts(&lines).iter().any(|line| line.contains("warning")), "{lines:?}");
    };
    tokio::join!(one(), one());
    let (mut running, mut most, mut begun) = (0, 0, 0);
    for line in std::fs::read_to_string(&log).unwrap().lines() {
        running += if line == "begin" { 1 } else { -1 };
        begun += i32::from(line == "begin");
        most = most.max(running);
    }
    assert_eq!((begun, running, most), (20, 0, 3));
    for token in [jobserver.token(Turn::Last), jobserver.token(Turn::Last), jobserver.token(Turn::Last)] {
        let token = tokio::time::timeout(Duration::from_secs(5), token).await;
        std::mem::forget(token.expect("a token got lost"));
    }
}
