//! The guest's workloads, compiled for this machine: what they print, and that
//! they fail rather than print what they did not measure.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the workload `name` into `dir`.
fn compiled(name: &str, dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("qemu/guest/workloads/{name}.c"));
    let program = dir.join(name);
    let warnings = ["-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-DPATIENCE_S=1"];
    let done = Command::new("cc").args(warnings).arg(source).arg("-o").arg(&program).status().unwrap();
    assert!(done.success(), "{name} does not compile");
    program
}

/// Exit code, standard output and standard error.
fn run(command: &mut Command) -> (i32, String, String) {
    let out = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

/// A failure with nothing on standard output that could be taken for a value.
fn fails(command: &mut Command, code: i32, because: &str) {
    let (got, out, err) = run(command);
    assert_eq!((got, out.as_str()), (code, ""), "{err}");
    assert!(err.contains(because), "{err}");
}

/// The number behind `name`, with a space or the line's end behind it.
fn value(text: &str, name: &str) -> f64 {
    let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("no '{name}' in {text}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn memory_bandwidth_is_measured_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("memory-bandwidth", dir.path());
    let (code, out, err) =
        run(Command::new(&program).args(["--size", "3M", "--times", "4", "--threads", "3"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), 4);
    for kernel in ["copy", "scale", "add", "triad"] {
        assert!(value(&out, &format!("{kernel}: ")) > 1.0, "{out}");
    }
    fails(Command::new(&program).args(["--times", "1"]), 2, "--times: 1 is not in 2..");
    fails(Command::new(&program).args(["--size", "4X"]), 2, "--size: a number is wanted");
    fails(Command::new(&program).args(["--size", "8", "--threads", "2"]), 2, "too few for 2 threads");
    fails(Command::new(&program).args(["--size", "900000G"]), 1, "no memory");
    fails(Command::new(&program).args(["--threads"]), 2, "--threads");
}

/// A folder like /sys with CPUs of these states; `None` has no switch.
fn cpus(root: &Path, states: &[Option<&str>]) -> PathBuf {
    let dir = root.join("sys/devices/system/cpu");
    for (cpu, state) in states.iter().enumerate() {
        fs::create_dir_all(dir.join(format!("cpu{cpu}"))).unwrap();
        if let Some(state) = state {
            fs::write(dir.join(format!("cpu{cpu}/online")), format!("{state}\n")).unwrap();
        }
    }
    fs::create_dir_all(dir.join("cpufreq")).unwrap();
    dir
}

#[test]
fn cpus_go_offline_and_come_back() {
    let root = tempfile::tempdir().unwrap();
    let program = compiled("cpu-hotplug", root.path());
    let dir = cpus(root.path(), &[None, Some("1"), Some("1"), Some("0"), Some("1")]);
    let hotplug = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("--root").arg(root.path()).args(args);
        command
    };
    let (code, out, err) = run(&mut hotplug(&["--offline", "all", "--repeat", "2"]));
    assert_eq!((code, err.as_str()), (0, ""));
    for (line, what) in out.lines().zip(["offline", "online"]) {
        assert!(line.starts_with(&format!("{what}: 6 times, total ")), "{out}");
        let (total, mean) = (value(line, "total "), value(line, "mean "));
        assert!(total > 0.0 && (total / 6.0 - mean).abs() < 1e-8, "{line}");
    }
    let state = |cpu: u32| fs::read_to_string(dir.join(format!("cpu{cpu}/online"))).unwrap();
    assert_eq!(
        [state(1), state(2), state(3), state(4)],
        ["1\n", "1\n", "0\n", "1\n"],
        "3 was offline before"
    );

    fails(&mut hotplug(&["--offline", "4"]), 1, "3 CPUs can be taken offline");
    fails(&mut hotplug(&["--offline", "0"]), 2, "--offline: 0 is not in");
    fails(&mut hotplug(&["--offline"]), 2, "--offline");
    fails(&mut hotplug(&["--cpu", "1"]), 2, "usage");
}

#[test]
fn cpu_that_does_not_change_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let program = compiled("cpu-hotplug", root.path());
    cpus(root.path(), &[None, Some("1"), Some("1")]);
    // No file may grow: every write fails, as that of a busy CPU does.
    let mut full = Command::new("sh");
    full.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" --root \"$1\""]).arg(&program).arg(root.path());
    fails(&mut full, 1, "cpu2 does not go offline: File too large");

    // Nothing left to take offline: the last CPU stays.
    let alone = tempfile::tempdir().unwrap();
    cpus(alone.path(), &[Some("1")]);
    fails(Command::new(&program).arg("--root").arg(alone.path()), 1, "0 CPUs can be taken offline");
    let none = tempfile::tempdir().unwrap();
    fails(Command::new(&program).arg("--root").arg(none.path()), 1, "No such file");
}

/// A folder like tracefs.
fn tracefs(root: &Path, tracer: &str, trace: &str) -> PathBuf {
    let dir = root.join("sys/kernel/tracing");
    for sub in ["options", "per_cpu/cpu0", "per_cpu/cpu1"] {
        fs::create_dir_all(dir.join(sub)).unwrap();
    }
    let options = ["options/funcgraph-duration", "options/funcgraph-tail", "options/funcgraph-overhead"];
    for file in options.iter().chain(&["tracing_on", "set_ftrace_filter", "max_graph_depth"]) {
        fs::write(dir.join(file), "").unwrap();
    }
    fs::write(dir.join("current_tracer"), format!("{tracer}\n")).unwrap();
    fs::write(dir.join("trace"), trace).unwrap();
    lose(&dir, "overrun: 0");
    dir
}

/// Says in the second CPU's counters that it lost events.
fn lose(tracing: &Path, line: &str) {
    let stats = |line: &str| format!("entries: 3\n{line}\ncommit overrun: 0\nbytes: 96\nread events: 0\n");
    fs::write(tracing.join("per_cpu/cpu0/stats"), stats("overrun: 0")).unwrap();
    fs::write(tracing.join("per_cpu/cpu1/stats"), stats(line)).unwrap();
}

/// As 6.12 prints it, with a call that another task's interrupted.
const GRAPH: &str = "\
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 2)   1450.640 us |  build_sched_domains();
 2)   47.056 us   |  build_sched_domains_other();
 ------------------------------------------
 2)   kworker-38   =>     init-1    
 ------------------------------------------

 2)               |  build_sched_domains() {
 2)   24512.73 us |  } /* build_sched_domains */
 1)   91.000 us   |  build_sched_domains.isra.0();
 1)   5.000 us    |  vfs_open();
";
const GRAPH_COST: &str =
    "build_sched_domains: 3 calls, total 26054.370 us, mean 8684.790 us, max 24512.730 us\n";

#[test]
fn cost_since_boot_is_that_of_the_trace() {
    let root = tempfile::tempdir().unwrap();
    let program = compiled("function-cost", root.path());
    let cost = |function: &str| {
        let mut command = Command::new(&program);
        command.arg("--root").arg(root.path()).arg(function);
        command
    };
    let dir = tracefs(root.path(), "function_graph", GRAPH);
    assert_eq!(run(&mut cost("build_sched_domains")), (0, GRAPH_COST.to_owned(), String::new()));
    assert_eq!(fs::read_to_string(dir.join("tracing_on")).unwrap(), "0");
    fails(&mut cost("schedule"), 1, "no call of schedule was recorded; function_graph sees nothing before");
    for lost in ["overrun: 7", "dropped events: 1"] {
        lose(&dir, lost);
        fails(&mut cost("build_sched_domains"), 1, &format!("cpu1 lost events: {lost}"));
    }
    lose(&dir, "overrun: 0");
    fs::write(dir.join("trace"), " 1)               |  vfs_open() {\n").unwrap();
    fails(&mut cost("vfs_open"), 1, "a call of vfs_open has no end");
    fs::write(dir.join("trace"), " 1)   2.000 us    |  } /* vfs_open */\n").unwrap();
    fails(&mut cost("vfs_open"), 1, "a call without a beginning");
    fs::write(dir.join("trace"), " 1)               |  vfs_open();\n").unwrap();
    fails(&mut cost("vfs_open"), 1, "a call without a time");
    fs::write(dir.join("trace"), "CPU:1 [LOST 12 EVENTS]\n").unwrap();
    fails(&mut cost("vfs_open"), 1, "the trace has lost events");
    fs::write(dir.join("current_tracer"), "nop\n").unwrap();
    fails(&mut cost("vfs_open"), 1, "boot with ftrace=function_graph ftrace_filter=vfs_open");
    fs::remove_dir_all(dir.join("per_cpu")).unwrap();
    fs::write(dir.join("current_tracer"), "function_graph\n").unwrap();
    fails(&mut cost("vfs_open"), 1, "nothing tells whether events were lost");
}

#[test]
fn cost_before_the_graph_tracer_goes_from_entry_to_entry() {
    let root = tempfile::tempdir().unwrap();
    let program = compiled("function-cost", root.path());
    let entries = "\
# tracer: function
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
       swapper/0-1       [000] .....     0.521516: build_sched_domains <-sched_init_domains
       a: b-7            [000] .....     0.551662: sched_init_granularity <-sched_init_smp
";
    let until = |next: &str| {
        let mut command = Command::new(&program);
        command.arg("--root").arg(root.path()).args(["--until", next, "build_sched_domains"]);
        command
    };
    let dir = tracefs(root.path(), "function", entries);
    let want = "build_sched_domains: 1 calls, total 30146.000 us, mean 30146.000 us, max 30146.000 us\n";
    assert_eq!(run(&mut until("sched_init_granularity")), (0, want.to_owned(), String::new()));
    fails(&mut until("schedule"), 1, "a call of build_sched_domains has no end");
    let twice = entries.replace("sched_init_granularity", "build_sched_domains");
    fs::write(dir.join("trace"), twice).unwrap();
    fails(&mut until("schedule"), 1, "build_sched_domains is entered again before schedule");
    fs::write(dir.join("trace"), "# tracer: function\n").unwrap();
    fails(&mut until("schedule"), 1, "no call of build_sched_domains was recorded");
}

#[test]
fn cost_while_a_command_runs_is_only_that() {
    let root = tempfile::tempdir().unwrap();
    let program = compiled("function-cost", root.path());
    let dir = tracefs(root.path(), "nop", "an old trace");
    let cost = |script: &str| {
        let mut command = Command::new(&program);
        command.arg("--root").arg(root.path()).args(["build_sched_domains", "--", "sh", "-c", script]);
        command.env("T", &dir).env("GRAPH", GRAPH);
        command
    };
    let traced = "cat $T/trace; cat $T/current_tracer $T/tracing_on >&2; printf %s \"$GRAPH\" >$T/trace";
    let (code, out, err) = run(&mut cost(traced));
    assert_eq!((code, out.as_str()), (0, GRAPH_COST), "{err}");
    assert_eq!(err, "function_graph1", "while it ran");
    let filter = fs::read_to_string(dir.join("set_ftrace_filter")).unwrap();
    assert_eq!(filter, "build_sched_domains\nbuild_sched_domains.*\n");
    assert_eq!(fs::read_to_string(dir.join("max_graph_depth")).unwrap(), "1");
    assert_eq!(fs::read_to_string(dir.join("current_tracer")).unwrap(), "nop");

    fails(&mut cost("true"), 1, "no call of build_sched_domains was recorded");
    fails(&mut cost("exit 3"), 1, "sh failed: exit 3");
    fs::remove_file(dir.join("max_graph_depth")).unwrap();
    symlink("/dev/full", dir.join("max_graph_depth")).unwrap();
    fails(&mut cost("true"), 1, "max_graph_depth = '1': No space left on device");
    fs::remove_file(dir.join("set_ftrace_filter")).unwrap();
    symlink("/dev/full", dir.join("set_ftrace_filter")).unwrap();
    fails(&mut cost("true"), 1, "build_sched_domains: no function of that name can be traced");
    fails(Command::new(&program).args(["--until", "g", "f", "--", "true"]), 2, "usage");
    fails(&mut Command::new(&program), 2, "usage");
}

/// A port that nothing listens on.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Listens on the port of its first argument until it has accepted as many
/// connections as the second says, then exits with 7; 0 is for ever.
const SERVER: &str = r#"
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), left = atoi(argv[2]), on = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (argc != 3 || bind(fd, (void *)&address, sizeof(address)) || listen(fd, 5))
		return 3;
	do {
		close(accept(fd, 0, 0));
		write(1, "noise ", 6);
	} while (--left);
	return 7;
}
"#;

#[test]
fn server_runs_for_as_long_as_its_client() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("with-server", dir.path());
    fs::write(dir.path().join("server.c"), SERVER).unwrap();
    let server = dir.path().join("server");
    let compiled = Command::new("cc").arg(dir.path().join("server.c")).arg("-o").arg(&server).status();
    assert!(compiled.unwrap().success());
    let beside = |port: &str, server: &[&str], client: &str| {
        let mut command = Command::new(&program);
        command.current_dir(dir.path()).arg(port).args(server).args(["--", "sh", "-c", client]);
        command
    };
    let port = free_port();
    for _ in 0..2 {
        let client = "echo value; echo trouble >&2";
        let (code, out, err) = run(&mut beside(&port, &["./server", &port, "0"], client));
        assert_eq!((code, out.as_str(), err.as_str()), (0, "value\n", "trouble\n"), "the port is free again");
    }
    fails(&mut beside(&port, &["./server", &port, "0"], "exit 5"), 5, "");
    fails(&mut beside(&port, &["./server", &port, "0"], "kill -9 $$"), 1, "sh: signal 9");
    // The look whether it listens is its only connection.
    let dies = ["./server", port.as_str(), "1"];
    fails(&mut beside(&port, &dies, "exec sleep 60"), 1, "the server ./server ended too early: exit 7");
    fails(&mut beside(&port, &["sh", "-c", "exit 4"], "echo no"), 1, "ended before it listened: exit 4");
    fails(&mut beside(&port, &["sleep", "60"], "echo no"), 1, "the server sleep does not listen on port");
    fails(&mut beside(&port, &["./nowhere"], "echo no"), 1, "./nowhere: No such file");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fails(&mut beside(&port, &["sleep", "60"], "echo no"), 1, "something listens on port");
    fails(&mut beside("0", &["sleep", "60"], "echo no"), 2, "PORT: 0 is not in 1..65535");
    fails(Command::new(&program).args([&port, "server"]), 2, "usage");
}
