//! A laboratory for the `matrix` program: a folder with a kernel tree and a
//! matrix file, in which `make`, the cross tools and QEMU are stand-ins
//! (`tests/stand-ins`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A run that takes longer fails its test instead of hanging it.
const LIMIT: Duration = Duration::from_secs(120);
/// Marks every process that a laboratory started, as it is in its environment.
const CALLS: &str = "STAND_IN_CALLS";

const STAND_INS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-ins");

/// Kconfig files of the laboratory's kernel.
const TREE: [(&str, &str); 4] = [
    ("Makefile", "# stand-in\n"),
    ("Kconfig", "mainmenu \"stand-in\"\n\nsource \"scripts/Kconfig.include\"\n\nsource \"lib/Kconfig\"\n"),
    (
        "lib/Kconfig",
        "config CPUMASK_OFFSTACK\n\tbool \"Masks off stack\" if DEBUG_PER_CPU_MAPS\n\nconfig FANCY\n\tbool \"Fancy\"\n\tdepends on PLAIN\n",
    ),
    ("arch/riscv/Kconfig", "config NR_CPUS\n\tint \"CPUs\"\n\trange 2 512\n"),
];

/// A folder of its own for one test.
pub struct Lab {
    dir: TempDir,
    env: Vec<(String, String)>,
    path: String,
}

#[allow(dead_code)] // not every test program has use for everything
impl Lab {
    /// A laboratory with `text` in `lab.toml`, beside the kernel tree `linux`
    /// and the benchmark's program `messages`.
    pub fn new(text: &str) -> Lab {
        let dir = tempfile::tempdir().unwrap();
        for (file, content) in TREE {
            let path = dir.path().join("linux").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::copy(elf(), dir.path().join("messages")).unwrap();
        // QEMU's options give commas a meaning.
        fs::create_dir(dir.path().join("tmp,dir")).unwrap();
        fs::write(dir.path().join("calls"), "").unwrap();
        let path = format!("{STAND_INS}:{}", std::env::var("PATH").unwrap());
        let lab = Lab { dir, env: Vec::new(), path };
        lab.write("lab.toml", text);
        lab
    }

    /// Adds an environment variable to all that follows.
    pub fn env(mut self, name: &str, value: &str) -> Lab {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves nothing on `PATH` but the stand-ins, and of these not `missing`.
    pub fn without(mut self, missing: &str) -> Lab {
        let bin = self.path("bin");
        fs::create_dir(&bin).unwrap();
        for entry in fs::read_dir(STAND_INS).unwrap() {
            let name = entry.unwrap().file_name();
            if name != missing {
                std::os::unix::fs::symlink(Path::new(STAND_INS).join(&name), bin.join(&name)).unwrap();
            }
        }
        self.path = bin.to_str().unwrap().to_owned();
        self
    }

    /// `matrix` here, but with one stand-in changed by `change`.
    pub fn with_stand_in(&self, name: &str, change: impl Fn(String) -> String) -> Changed<'_> {
        let bin = tempfile::tempdir_in(&self.dir).unwrap();
        for file in [name, "common.sh"] {
            let (from, to) = (Path::new(STAND_INS).join(file), bin.path().join(file));
            fs::copy(&from, &to).unwrap();
            if file == name {
                fs::write(&to, change(fs::read_to_string(&from).unwrap())).unwrap();
            }
        }
        Changed { lab: self, bin }
    }

    /// A path below the laboratory's folder.
    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Text of a file below the laboratory's folder.
    pub fn read(&self, below: &str) -> String {
        let path = self.path(below);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Writes a file below the laboratory's folder.
    pub fn write(&self, below: &str, text: &str) {
        fs::write(self.path(below), text).unwrap();
    }

    /// What JSON a file below the laboratory's folder holds.
    pub fn json(&self, below: &str) -> serde_json::Value {
        serde_json::from_str(&self.read(below)).unwrap()
    }

    /// What a boot left behind, by the cell's id.
    pub fn boot(&self, cell: &str) -> serde_json::Value {
        self.json(&format!("run/cells/{cell}/boot-1/boot.json"))
    }

    /// Calls of the stand-ins so far: `make vmlinux Image`, `qemu good`.
    pub fn calls(&self) -> Vec<String> {
        self.read("calls").lines().map(str::to_owned).collect()
    }

    /// How often a stand-in was called so.
    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|c| *c == call).count()
    }

    /// Starts `matrix` with these arguments in the laboratory's folder.
    pub fn start(&self, args: &[&str]) -> Started<'_> {
        self.start_with(&self.path, args)
    }

    /// The environment of all that is started here.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |below: &str| self.path(below).to_str().unwrap().to_owned();
        let own = [
            ("PATH", self.path.clone()),
            ("TMPDIR", path("tmp,dir")),
            ("MATRIX_CACHE", path("cache")),
            (CALLS, path("calls")),
            ("STAND_IN_TOOLS", std::env::var("PATH").unwrap()),
            ("STAND_IN_ELF", elf().to_str().unwrap().to_owned()),
        ];
        own.into_iter().map(|(n, v)| (n.to_owned(), v)).chain(self.env.iter().cloned()).collect()
    }

    fn start_with(&self, path: &str, args: &[&str]) -> Started<'_> {
        let [stdout, stderr] =
            ["stdout", "stderr"].map(|name| tempfile::NamedTempFile::with_prefix(name).unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_matrix"))
            .args(args)
            .current_dir(&self.dir)
            .env_clear()
            .envs(self.environment())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(stdout.reopen().unwrap())
            .stderr(stderr.reopen().unwrap())
            .spawn()
            .unwrap();
        Started { lab: self, child, stdout, stderr }
    }

    /// Runs a program below the laboratory's folder to its good end, in a folder
    /// of its own, with the stand-ins.
    pub fn program(&self, path: &str, args: &[&Path], folder: &str) {
        fs::create_dir(self.path(folder)).unwrap();
        let mut command = self.command(&self.path(path));
        let out = command.args(args).current_dir(self.path(folder)).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// A program with the stand-ins, and nothing of this process's environment.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", &self.path).env(CALLS, self.path("calls"));
        command.env("STAND_IN_TOOLS", std::env::var("PATH").unwrap()).env("STAND_IN_ELF", elf());
        command.envs(self.env.iter().map(|(n, v)| (n, v)));
        command
    }

    /// Runs `matrix` with these arguments to its end. Afterwards nothing that
    /// it started is alive.
    pub fn matrix(&self, args: &[&str]) -> Done {
        self.start(args).finish()
    }

    /// `matrix run` of `lab.toml` into `run`.
    pub fn run(&self) -> Done {
        self.matrix(RUN)
    }

    /// Waits until nothing that was started from here is alive.
    pub fn until_nothing_is_alive(&self, limit: Duration) {
        let began = Instant::now();
        while !self.alive().is_empty() {
            assert!(began.elapsed() < limit, "still alive: {:?}", self.alive());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Command lines of living processes that were started from here.
    pub fn alive(&self) -> Vec<String> {
        let mark = format!("{CALLS}={}", self.path("calls").display());
        let marked = |dir: &Path| {
            let environment = fs::read(dir.join("environ")).unwrap_or_default();
            environment.split(|b| *b == 0).any(|v| v == mark.as_bytes())
        };
        let entries = fs::read_dir("/proc").unwrap().map(|e| e.unwrap().path());
        let processes = entries.filter(|dir| marked(dir));
        let text = |dir: PathBuf| fs::read(dir.join("cmdline")).unwrap_or_default();
        processes.map(|dir| String::from_utf8_lossy(&text(dir)).replace('\0', " ")).collect()
    }
}

/// A laboratory with one stand-in changed.
pub struct Changed<'a> {
    lab: &'a Lab,
    bin: TempDir,
}

#[allow(dead_code)]
impl Changed<'_> {
    /// Runs `matrix` with these arguments to its end.
    pub fn matrix(&self, args: &[&str]) -> Done {
        self.lab.start_with(&format!("{}:{}", self.bin.path().display(), self.lab.path), args).finish()
    }

    /// How often a stand-in was called so.
    pub fn count(&self, call: &str) -> usize {
        self.lab.count(call)
    }
}

/// Arguments of the usual run.
pub const RUN: &[&str] = &["run", "lab.toml", "--output", "run"];

/// A `matrix` that is under way.
pub struct Started<'a> {
    lab: &'a Lab,
    child: Child,
    stdout: tempfile::NamedTempFile,
    stderr: tempfile::NamedTempFile,
}

#[allow(dead_code)]
impl Started<'_> {
    /// Waits until a stand-in was called so.
    pub fn wait_for(&mut self, call: &str) {
        let lab = self.lab;
        self.wait_until(call, || lab.count(call) > 0);
    }

    /// Waits for `what`, which is there when `there` says so.
    pub fn wait_until(&mut self, what: &str, there: impl Fn() -> bool) {
        let began = Instant::now();
        while !there() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{status} before `{what}`: {}", self.text(&self.stderr));
            }
            assert!(began.elapsed() < LIMIT, "no `{what}`: {}", self.text(&self.stderr));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its largest resident set so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// What it has said on standard error so far.
    pub fn stderr(&self) -> String {
        self.text(&self.stderr)
    }

    /// Waits until standard error holds `text`.
    pub fn wait_for_message(&self, text: &str) {
        let began = Instant::now();
        while !self.text(&self.stderr).contains(text) {
            assert!(began.elapsed() < LIMIT, "no `{text}`: {}", self.text(&self.stderr));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal to `matrix`, and to it alone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for the end, after which nothing may be alive.
    pub fn finish(self) -> Done {
        let lab = self.lab;
        let done = self.end();
        let alive = lab.alive();
        assert!(alive.is_empty(), "still alive: {alive:?}\n{}", done.stderr);
        done
    }

    /// Waits for the end.
    pub fn end(mut self) -> Done {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > LIMIT {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("not done in {LIMIT:?}: {}", self.text(&self.stderr));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Done { status, stdout: self.text(&self.stdout), stderr: self.text(&self.stderr) }
    }

    fn text(&self, file: &tempfile::NamedTempFile) -> String {
        String::from_utf8(fs::read(file.path()).unwrap()).unwrap()
    }
}

/// What a `matrix` that has ended left behind.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

#[allow(dead_code)]
impl Done {
    /// Asserts the exit code, and that nothing was written that a terminal obeys.
    #[track_caller]
    pub fn code(self, code: i32) -> Done {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.stdout, self.stderr);
        let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!self.stdout.contains(obeyed), "{:?}", self.stdout);
        assert!(!self.stderr.contains(obeyed), "{:?}", self.stderr);
        self
    }

    /// Asserts that standard error holds each of `texts`.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Done {
        for text in texts {
            assert!(self.stderr.contains(text), "no `{text}` in:\n{}", self.stderr);
        }
        self
    }
}

/// A small program without libraries, whose build ID the stand-ins replace.
fn elf() -> &'static Path {
    static ELF: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let made = ELF.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("a.c"), dir.path().join("a.out"));
        fs::write(&source, "void _start(void) { for (;;) ; }\n").unwrap();
        let id: String = b"MATRIX-ID-0000000000".iter().map(|b| format!("{b:02x}")).collect();
        let status = Command::new("cc")
            .args(["-static", "-nostdlib", "-ffreestanding"])
            .arg(format!("-Wl,--build-id=0x{id}"))
            .arg("-o")
            .args([&program, &source])
            .status()
            .unwrap();
        assert!(status.success());
        (dir, program)
    });
    &made.1
}
