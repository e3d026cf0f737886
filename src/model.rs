//! The vocabulary of the project as plain data: no I/O, no async.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

mod table;
mod topology;

pub use table::{
    Derived, Layout, ListColumn, Piece, Quantity, Rows, Sign, Statistic, TableSpec, Template, Unpaired,
};
pub use topology::{Level, Misfit, Node, OWN_DISTANCE, Shape, Topology};

/// Greatest `NR_CPUS` that is supported, by lifting a tree's own limit where it
/// is lower.
pub const MAX_NR_CPUS: u32 = 4096;

/// A validated matrix file with its cells expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Names the run directory and the reports.
    pub name: String,
    /// Where the kernel's source comes from.
    pub source: Source,
    /// Axes in the order of the file; the last one varies fastest.
    pub axes: Vec<Axis>,
    /// Every cell to measure, after `exclude` and `include`.
    pub cells: Vec<Cell>,
    /// How each kernel is configured and built.
    pub kernel: Kernel,
    /// How each kernel is booted.
    pub boot: Boot,
    /// What runs in the guest, in order.
    pub benchmarks: Vec<Benchmark>,
    /// What is printed at the end.
    pub tables: Vec<TableSpec>,
}

/// A name and its ordered values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What varies; [`Means`] says what names there are.
    pub name: String,
    /// Values in canonical text, in the order of the file.
    pub values: Vec<String>,
    /// What tables print for a value instead of its text.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Axis {
    /// The label of `value`, or the value itself where none is given.
    pub fn label<'a>(&'a self, value: &'a str) -> &'a str {
        self.labels.get(value).map_or(value, String::as_str)
    }
}

/// What an axis varies, which its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// `arch`: the architecture.
    Arch,
    /// Capitals: a Kconfig symbol, with or without its `CONFIG_` (`OFFSTACK`
    /// is short for `CPUMASK_OFFSTACK`).
    Symbol,
    /// The key of the same name in `[boot]`: `vcpus`.
    Boot,
    /// `rev`: revision of the source's git repository.
    Rev,
    /// `patches`: a patch, a mailbox or a folder of patches, or `none`.
    Patches,
    /// A dot in it: a parameter on the kernel's command line, `rcuscale.nwriters`.
    KernelParameter,
    /// Any other lower-case name: stands as `{name}` in the arguments of
    /// benchmarks and in the kernel's command line.
    Placeholder,
}

impl Means {
    /// Keys of `[boot]` that can be axes.
    pub const BOOT: [&'static str; 10] =
        ["vcpus", "memory", "sockets", "clusters", "cores", "threads", "numa", "accel", "firmware", "online"];

    /// What an axis of this name varies; `None` where no axis can have it.
    pub fn of(name: &str) -> Option<Means> {
        let word = |text: &str, extra: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
        };
        let symbol = name.strip_prefix("CONFIG_").unwrap_or(name);
        match name {
            "arch" => Some(Means::Arch),
            "rev" => Some(Means::Rev),
            "patches" => Some(Means::Patches),
            _ if Means::BOOT.contains(&name) => Some(Means::Boot),
            _ if name.contains('.') => {
                name.split('.').all(|part| word(part, "_-")).then_some(Means::KernelParameter)
            }
            _ if word(symbol, "_") && !symbol.starts_with(|c: char| c.is_ascii_lowercase()) => {
                Some(Means::Symbol)
            }
            _ => (word(name, "_") && !name.contains(|c: char| c.is_ascii_uppercase()))
                .then_some(Means::Placeholder),
        }
    }
}

/// What a coordinate sets beside the kernel's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// Processors of the guest.
    Vcpus(u32),
    /// Guest memory in MiB.
    Memory(u64),
    /// How many of a level of the CPU topology.
    Level(Level, u32),
    /// NUMA nodes.
    Numa(u32),
    /// What executes the guest.
    Accel(Accel),
    /// What runs before the kernel.
    Firmware(Firmware),
    /// How processors come online.
    Online(Online),
    /// Revision of the source.
    Rev(String),
    /// Patches on top of those that every cell has.
    Patches(Vec<PathBuf>),
    /// `NAME=VALUE` on the kernel's command line.
    KernelParameter(String, String),
    /// What stands for `{NAME}`.
    Placeholder(String, String),
}

/// Stable, readable name of a cell: `riscv64-NR_CPUS=512-OFFSTACK=y`.
/// Safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CellId(pub String);

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One coordinate of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Stable readable id.
    pub id: CellId,
    /// Value of every axis, in axis order.
    pub coords: IndexMap<String, String>,
    /// Name of the architecture file under `qemu/`.
    pub arch: String,
    /// Kconfig symbols (without `CONFIG_`) that this cell's axes ask for.
    pub config: BTreeMap<String, String>,
    /// What its other coordinates set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

impl Cell {
    /// `text` with every placeholder that the cell has a value for filled in.
    pub fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let value = after.split_once('}').and_then(|(name, tail)| Some((self.placeholder(name)?, tail)));
            rest = match value {
                Some((value, tail)) => {
                    filled.push_str(value);
                    tail
                }
                None => {
                    filled.push('{');
                    after
                }
            };
        }
        filled + rest
    }

    fn placeholder(&self, name: &str) -> Option<&str> {
        self.settings.iter().find_map(|setting| match setting {
            Setting::Placeholder(n, value) if n == name => Some(value.as_str()),
            _ => None,
        })
    }
}

impl Matrix {
    /// Whether a table shows a metric whose name begins like this.
    pub fn shows(&self, prefix: &str) -> bool {
        self.tables.iter().any(|t| t.layout.metrics().iter().any(|m| m.starts_with(prefix)))
    }

    /// How a cell is booted.
    pub fn boot_of(&self, cell: &Cell) -> Boot {
        let mut boot = self.boot.clone();
        boot.cmdline = cell.fill(&boot.cmdline);
        for setting in &cell.settings {
            match setting {
                Setting::Vcpus(n) => boot.vcpus = *n,
                Setting::Memory(mib) => boot.memory_mib = *mib,
                Setting::Level(level, n) => boot.topology.levels[*level as usize] = Some(*n),
                Setting::Numa(n) => boot.topology.numa = Some(*n),
                Setting::Accel(accel) => boot.accel = *accel,
                Setting::Firmware(firmware) => boot.firmware = firmware.clone(),
                Setting::Online(online) => boot.online = *online,
                Setting::KernelParameter(name, value) => {
                    let space = if boot.cmdline.is_empty() { "" } else { " " };
                    boot.cmdline += &format!("{space}{name}={value}");
                }
                Setting::Rev(_) | Setting::Patches(_) | Setting::Placeholder(..) => {}
            }
        }
        boot
    }

    /// What runs in a cell's guest.
    pub fn benchmarks_of(&self, cell: &Cell) -> Vec<Benchmark> {
        let filled = |b: &Benchmark| {
            let command = b.command.iter().map(|word| cell.fill(word)).collect();
            Benchmark { command, ..b.clone() }
        };
        self.benchmarks.iter().map(filled).collect()
    }

    /// Whether a clock of the host's measures the benchmarks of any cell.
    pub fn is_timed(&self) -> bool {
        let timed = |cell| self.boot_of(cell).accel != Accel::Icount;
        !self.benchmarks.is_empty() && self.cells.iter().any(timed)
    }

    /// What a cell's kernel is built from: the source, and patches in order.
    pub fn source_of(&self, cell: &Cell) -> (Source, Vec<PathBuf>) {
        let (mut source, mut patches) = (self.source.clone(), self.kernel.patches.clone());
        for setting in &cell.settings {
            match (setting, &mut source) {
                (Setting::Rev(wanted), Source::Git { rev, .. }) => rev.clone_from(wanted),
                (Setting::Patches(more), _) => patches.extend(more.iter().cloned()),
                _ => {}
            }
        }
        (source, patches)
    }
}

/// Where the kernel's source comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Distribution package that holds a source tarball under `/usr/src`
    /// (`linux-source-6.12`).
    Package(String),
    /// Directory that is built from but never written to.
    Path(PathBuf),
    /// Git repository and revision.
    Git {
        /// URL or path of the repository.
        url: String,
        /// Branch, tag or commit.
        rev: String,
    },
    /// Tarball of a kernel tree.
    Tarball(PathBuf),
}

/// How each kernel is configured and built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Configuration that everything else is added to.
    pub base: BaseConfig,
    /// Fragments, later ones winning over earlier ones.
    pub fragments: Vec<Fragment>,
    /// Symbols (without `CONFIG_`) set for every cell, over the fragments.
    pub config: BTreeMap<String, String>,
    /// Patches in `git diff` form, applied in order.
    pub patches: Vec<PathBuf>,
    /// Compiler and binutils.
    pub toolchain: Toolchain,
    /// Further `make` variables, for example `KCFLAGS=-O2`.
    pub make: Vec<String>,
}

#[cfg(test)]
impl Kernel {
    /// A kernel for tests that care about little of it.
    pub(crate) fn plain() -> Kernel {
        Kernel {
            base: BaseConfig::Target("defconfig".to_owned()),
            fragments: Vec::new(),
            config: BTreeMap::new(),
            patches: Vec::new(),
            toolchain: Toolchain::Gcc { prefix: None },
            make: Vec::new(),
        }
    }
}

/// Configuration that fragments and symbols are added to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BaseConfig {
    /// A configuration target of the kernel's makefile: `defconfig`, `tinyconfig`, `allnoconfig`.
    Target(String),
    /// A complete configuration file.
    File(PathBuf),
}

/// A piece of configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fragment {
    /// One of `kernel-configs/`: `NAME.config`, then `ARCH-NAME.config`.
    Builtin(String),
    /// A file of the user's.
    File(PathBuf),
}

/// Compiler and binutils of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toolchain {
    /// GCC and binutils; `None` takes the architecture's usual prefix.
    Gcc {
        /// `CROSS_COMPILE`, for example `riscv64-linux-gnu-`.
        prefix: Option<String>,
    },
    /// Clang and LLVM's binutils (`LLVM=1`).
    Llvm,
}

/// How each kernel is booted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// Processors that the guest is started with.
    #[serde(default)]
    pub vcpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u64,
    /// Sockets, cores and NUMA nodes, as far as the file says.
    #[serde(default)]
    pub topology: Topology,
    /// Arguments added to QEMU's command line.
    pub qemu_args: Vec<String>,
    /// Added to the kernel's command line.
    pub cmdline: String,
    /// Seconds from QEMU's start to its end, then the boot is a failure.
    pub deadline_s: u64,
    /// Seconds without any output from the guest, then it counts as hung.
    pub silence_s: u64,
    /// Boots of every cell.
    pub boots: u32,
    /// Half the width of an interval, in percent of the mean: a cell is not
    /// booted again once every metric's mean is known so well; `boots` is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// What executes the guest's instructions.
    #[serde(default)]
    pub accel: Accel,
    /// What runs before the kernel.
    #[serde(default)]
    pub firmware: Firmware,
    /// How processors come online.
    #[serde(default)]
    pub online: Online,
    /// Whether every boot of a cell gets a seed of its own, the same ones for
    /// every cell; otherwise all boots have the same seed.
    #[serde(default)]
    pub perturb: bool,
    /// How much of the processors' time others may have while a boot is timed by
    /// a clock of the host's, in percent; without it nobody looks.
    #[serde(default)]
    pub max_other_load: Option<f64>,
    /// Regular expressions of console lines that are no trouble, whatever they
    /// look like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
}

#[cfg(test)]
impl Boot {
    /// A boot for tests that care about little of it.
    pub(crate) fn plain() -> Boot {
        Boot {
            vcpus: 4,
            memory_mib: 1024,
            topology: Topology::default(),
            qemu_args: Vec::new(),
            cmdline: String::new(),
            deadline_s: 60,
            silence_s: 10,
            boots: 1,
            until: None,
            accel: Accel::Auto,
            firmware: Firmware::Auto,
            online: Online::Auto,
            perturb: false,
            max_other_load: None,
            allow: Vec::new(),
        }
    }
}

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accel {
    /// `kvm` where it works; else `tcg-multi` where the busy processors fit
    /// the host's cores or there are hundreds, else `tcg-single`.
    #[default]
    Auto,
    /// The host's own processors, for guests of its architecture.
    Kvm,
    /// QEMU's TCG, a host thread for each processor.
    TcgMulti,
    /// QEMU's TCG, one host thread for all processors in turn.
    TcgSingle,
    /// QEMU's TCG with a clock that counts instructions: a boot repeats to the
    /// last digit, however busy the host is.
    Icount,
}

/// What runs before the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// The stock one as long as it starts all processors, else ours.
    #[default]
    Auto,
    /// What QEMU loads by itself.
    Stock,
    /// Ours, where the architecture has one.
    Matrix,
    /// A file of the user's.
    File(PathBuf),
}

/// How processors come online.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Online {
    /// `staged` for many processors under wall-clock emulation, else `kernel`.
    #[default]
    Auto,
    /// The kernel brings up all of them.
    Kernel,
    /// The kernel brings up two, the guest agent the others one by one, so
    /// that never more than a few are busy.
    Staged,
}

/// One benchmark as a matrix runs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Benchmark {
    /// First part of its metrics' names.
    pub name: String,
    /// Program and arguments, as the guest executes them (no shell).
    pub command: Vec<String>,
    /// Runs within one boot.
    pub repeat: u32,
    /// Seconds that one run may take.
    pub timeout_s: u64,
    /// Regular expression over each line of output; every named group is a metric.
    pub pattern: String,
    /// Regular expression of a headline: values are read only from the indented
    /// lines below the last line that it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// What each named group of `pattern` means.
    pub metrics: IndexMap<String, Metric>,
    /// Distribution packages of the guest's architecture that hold the program.
    pub packages: Vec<String>,
    /// Files of the host to put into the guest's `/bin`; `{arch}` in them is the architecture's name.
    pub files: Vec<PathBuf>,
    /// What it needs besides its program.
    #[serde(default)]
    pub guest: GuestNeeds,
    /// Where the kernel is the program: how its console is read instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<Console>,
}

/// Workload of ours that runs a program beside a server.
pub const WITH_SERVER: &str = "with-server";

impl Benchmark {
    /// What the guest executes: the command, beside its server where it has one.
    pub fn argv(&self) -> Vec<String> {
        let Some(server) = &self.guest.server else { return self.command.clone() };
        let mut argv = vec![WITH_SERVER.to_owned(), server.port.to_string()];
        argv.extend(server.command.iter().cloned());
        argv.push("--".to_owned());
        argv.extend(self.command.iter().cloned());
        argv
    }
}

/// What a benchmark needs in the guest besides its program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestNeeds {
    /// Workloads of ours, `qemu/guest/workloads/NAME.c`, that go into `/bin`.
    pub workloads: Vec<String>,
    /// Files of the packages, such as `usr/share/x/input`; they keep their paths.
    pub data: Vec<String>,
    /// Runs on the loopback interface beside every run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// Configuration fragments that the kernel needs, where its configuration
    /// does not hold the same symbols already.
    pub fragments: Vec<String>,
}

/// A server that a benchmark talks to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Program and arguments.
    pub command: Vec<String>,
    /// TCP port that it listens on when it is ready.
    pub port: u16,
}

/// A benchmark that a built-in module of the kernel runs at boot. It prints its
/// results on the console, and then the kernel powers off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Console {
    /// The module; its parameters stand on the kernel's command line.
    pub module: String,
    /// Values of its parameters.
    #[serde(default)]
    pub params: IndexMap<String, String>,
    /// Lines with results.
    pub lines: Vec<ConsoleLine>,
    /// Regular expression of the line that the module prints when it has measured.
    pub done: String,
    /// Regular expression of lines by which the module says that it cannot
    /// measure what was asked for.
    pub error: String,
    /// How a test is made to last until the guest's init has said what it runs on.
    pub early: String,
    /// Group of a line that says how many samples there are in all.
    pub total: Option<String>,
    /// Number of the first sample.
    #[serde(default)]
    pub first: u64,
    /// What the kernel's values are divided by, where a metric has another unit.
    #[serde(default)]
    pub divide: IndexMap<String, f64>,
    /// Metrics that follow from others.
    #[serde(default)]
    pub derived: IndexMap<String, DerivedMetric>,
}

/// Lines of one kind on the console. Named groups are metrics, but for `index`
/// (number of a sample: there are many of these lines), `series` (what the
/// sample is one of), `count` (samples of a series) and `start` (when the
/// measurement began, in nanoseconds of the guest's monotonic clock).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleLine {
    /// Regular expression by which the line is known, however damaged the rest of it is.
    pub holds: String,
    /// Regular expression of the whole line, without what printk puts in front.
    pub is: String,
}

/// A metric that follows from others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DerivedMetric {
    /// The same for every test.
    Fixed(f64),
    /// The first metric divided by the second.
    Quotient(String, String),
}

/// Meaning of a measured value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Unit of the value: `s`, `bytes`, `MB/s`.
    pub unit: String,
    /// Which way is good.
    pub better: Direction,
}

/// Which way a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Less is better: times and sizes.
    Lower,
    /// More is better: throughput.
    Higher,
}

/// How a value came about; every table says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A count that repeats exactly, such as a size in bytes.
    Exact,
    /// Wall clock of a guest under QEMU's TCG: says little about real hardware.
    EmulatedWallClock,
    /// Clock of a guest that counts its instructions, one a nanosecond: total
    /// work, repeatable, no time of any machine.
    EmulatedInstructions,
    /// Wall clock of a guest under KVM: the host's processors, with the costs
    /// of virtualisation.
    KvmWallClock,
    /// Wall clock on real hardware.
    NativeWallClock,
}

impl Kind {
    /// How tables and exports name it.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Exact => "exact",
            Kind::EmulatedWallClock => "emulated wall clock",
            Kind::EmulatedInstructions => "emulated instruction count",
            Kind::KvmWallClock => "KVM wall clock",
            Kind::NativeWallClock => "native wall clock",
        }
    }
}

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The cell that was measured.
    pub cell: CellId,
    /// `vmlinux.file`, `vmlinux.text`, `hackbench.time`, ...
    pub metric: String,
    /// The value, in `unit`.
    pub value: f64,
    /// Unit of `value`.
    pub unit: String,
    /// Which way is good.
    pub better: Direction,
    /// How the value came about.
    pub kind: Kind,
    /// Which boot of the cell, from 1; absent for what needs no boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<u32>,
    /// Which run within the boot, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
}

/// Where on the way from matrix to sample a cell failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Fetching or patching the source.
    Source,
    /// Kconfig.
    Config,
    /// Compiling and linking.
    Build,
    /// From QEMU's start to the guest's last word.
    Boot,
    /// A benchmark in a guest that booted.
    Benchmark,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stage::Source => "source",
            Stage::Config => "config",
            Stage::Build => "build",
            Stage::Boot => "boot",
            Stage::Benchmark => "benchmark",
        })
    }
}

/// What a boot failed with that others on the host have disturbed.
pub const HOST_BUSY: &str = "host busy";

/// What everybody says when there is no room left on a disk.
const DISK_FULL: &str = "No space left on device";

/// Why a cell, or one boot of it, has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where it happened.
    pub stage: Stage,
    /// One or two words for a table's cell: `panic`, `deadline`, `compile error`.
    pub what: String,
    /// The whole story on a line or more, with the evidence's path.
    pub detail: String,
    /// Boot that failed, from 1; absent where it concerns the whole cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<u32>,
    /// Benchmark that failed, or other first part of metrics' names
    /// (`frames`), where it is one's failure alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<String>,
}

impl Failure {
    /// A failure of a whole cell.
    pub fn new(stage: Stage, what: &str, detail: impl fmt::Display) -> Failure {
        // `#` makes an error tell its causes too.
        let detail = format!("{detail:#}");
        let what = if detail.contains(DISK_FULL) { "disk full" } else { what };
        Failure { stage, what: what.to_owned(), detail, boot: None, benchmark: None }
    }

    /// Whether it is a failure of this machine, such as a full disk or an
    /// archive out of reach, and says nothing of the cell.
    pub fn is_of_host(&self) -> bool {
        // What a benchmark failed with is the guest's word.
        self.stage != Stage::Benchmark && Failure::OF_HOST.contains(&self.what.as_str())
    }

    const OF_HOST: [&'static str; 12] = [
        HOST_BUSY,
        "no source",
        "source changed",
        "no guest",
        "no object directory",
        "inputs",
        "make",
        "build",
        "build stopped",
        "disk full",
        "not started",
        "evidence lost",
    ];
}

/// A part of a matrix, from 1, of so many; written `1/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Shard {
    /// Which part, from 1.
    pub part: u32,
    /// Of how many.
    pub of: u32,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((part, of)) if (1..=of).contains(&part) => Ok(Shard { part, of }),
            _ => Err(format!("`{text}` is not of the form K/N with K from 1 to N, for example 1/4")),
        }
    }
}

/// Metric: the largest stack frame of a kernel's functions.
pub const FRAMES_MAX: &str = "frames.max";
/// Metric: all stack frames together.
pub const FRAMES_SUM: &str = "frames.sum";
/// Metric: bytes that the deepest use of a kernel stack left free.
pub const STACK_LEFT: &str = "stack.left";

/// Stack frames of a kernel's functions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// Bytes by function, 0 where it needs none; the largest where several
    /// functions have one name.
    pub bytes: BTreeMap<String, u64>,
    /// Functions that need stack besides whose size only run time tells.
    pub dynamic: BTreeSet<String>,
    /// How many functions there are of each name that several have.
    pub namesakes: BTreeMap<String, u32>,
}

impl Frames {
    /// The largest frame.
    pub fn max(&self) -> u64 {
        self.bytes.values().copied().max().unwrap_or(0)
    }

    /// All frames together: nothing that a kernel ever needs at once, but a
    /// figure that tells whether frames grew or shrank on the whole.
    pub fn sum(&self) -> u64 {
        self.bytes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl Failure {
    /// Whether it leaves a metric of its cell without a trustworthy value.
    pub fn concerns(&self, metric: &str) -> bool {
        match &self.benchmark {
            Some(name) => is_of(metric, name),
            None => self.stage <= Stage::Build || !is_size(metric),
        }
    }
}

/// Whether a metric is one of the benchmark or family `name`: `NAME.REST`.
pub fn is_of(metric: &str, name: &str) -> bool {
    metric.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a metric is a size that a build yields, whatever becomes of boots.
pub fn is_size(metric: &str) -> bool {
    ["vmlinux.", "image.", "frames."].iter().any(|family| metric.starts_with(family))
}

/// Everything a report is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// The matrix that was run.
    pub matrix: Matrix,
    /// All valid samples, in the order they were taken.
    pub samples: Vec<Sample>,
    /// Failures by cell; a cell without samples and without failures was not measured (yet).
    pub failures: BTreeMap<CellId, Vec<Failure>>,
    /// Stack frames of the cells' kernels, where a table asks for them.
    pub frames: BTreeMap<CellId, Frames>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_host_are_told_from_results() {
        let is_of_host = |stage, what: &str, detail: &str| Failure::new(stage, what, detail).is_of_host();
        for (stage, what) in [
            (Stage::Source, "no source"),
            (Stage::Boot, "no guest"),
            (Stage::Boot, "not started"),
            (Stage::Boot, "host busy"),
        ] {
            assert!(is_of_host(stage, what, ""), "{what}");
        }
        for (stage, what) in [
            (Stage::Source, "patch"),
            (Stage::Config, "config"),
            (Stage::Build, "compile error"),
            (Stage::Boot, "panic"),
            // The guest said so: its program does not run there.
            (Stage::Benchmark, "not started"),
        ] {
            assert!(!is_of_host(stage, what, ""), "{what}");
        }
        let full = Failure::new(Stage::Build, "compile error", "a.o: No space left on device");
        assert_eq!((full.what.as_str(), full.is_of_host()), ("disk full", true));
    }
}
