//! The matrix file as it is written: every value with its place in the text.
//! Doc comments here are the descriptions of `matrix schema` and the help of
//! faults, so they teach by example.

use std::borrow::Cow;
use std::fmt::{self, Formatter};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error, IntoDeserializer, SeqAccess, Unexpected, Visitor,
};

use crate::model::{Accel, Direction, Online, Sign, Statistic, Unpaired};

/// A value and the bytes of the file that it was read from.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T: Hash> Hash for At<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        Ok(At { span: spanned.span(), value: spanned.into_inner() })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A value of an axis or a Kconfig symbol.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub(super) enum Scalar {
    /// `true` is `y`, `false` is `n`.
    Switch(bool),
    /// A number; hexadecimal stays hexadecimal.
    Whole(i64),
    /// Any text: `"y"`, `"0x1000"`, `"riscv64"`.
    Text(String),
}

// By hand, because serde's own untagged enums lose the place of a fault.
impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a whole number, true or false")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Scalar, E> {
        Ok(Scalar::Switch(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(v.to_owned()))
    }
}

/// What may stand alone where an array is expected.
pub(super) trait Single: DeserializeOwned + JsonSchema {
    /// Completes "must be ..., not ...".
    const EXPECTED: &'static str;
}

impl Single for Scalar {
    const EXPECTED: &'static str = "a string, a whole number, true, false or an array of these";
}

impl Single for String {
    const EXPECTED: &'static str = "a string or an array of strings";
}

/// A single value or an array of values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<At<T>>),
}

impl<T: Clone> At<OneOrMany<T>> {
    /// The values; one that stands alone has the place of the whole.
    pub fn items(&self) -> Vec<At<T>> {
        match &self.value {
            OneOrMany::One(value) => vec![At { value: value.clone(), span: self.span.clone() }],
            OneOrMany::Many(items) => items.clone(),
        }
    }
}

impl<'de, T: Single> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T: Single> OneOrManyVisitor<T> {
    /// One value, or a fault that says that several would do as well.
    fn one<E: Error>(self, v: impl IntoDeserializer<'de, E>, found: Unexpected) -> Result<OneOrMany<T>, E> {
        let one = T::deserialize(v.into_deserializer());
        one.map(OneOrMany::One).map_err(|_: E| E::invalid_type(found, &self))
    }
}

impl<'de, T: Single> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }
    fn visit_bool<E: Error>(self, v: bool) -> Result<Self::Value, E> {
        self.one(v, Unexpected::Bool(v))
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<Self::Value, E> {
        self.one(v, Unexpected::Signed(v))
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<Self::Value, E> {
        self.one(v, Unexpected::Str(v))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMany::Many)
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// Rows of whole numbers.
pub(super) type Rows = Vec<At<Vec<At<i64>>>>;

/// A map in the order of the file.
pub(super) type Map<T> = IndexMap<At<String>, At<T>>;

/// A matrix of Linux kernels to build, boot and measure.
///
/// The smallest file: `source.package = "linux-source-6.12"`,
/// `axes.arch = ["riscv64"]`, `axes.NR_CPUS = [512, 4096]`.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
#[schemars(rename = "Matrix file")]
pub(super) struct RawMatrix {
    /// Names the run directory and the reports: letters, digits, `.`, `_` and
    /// `-`. Without it the file's own name serves. Example: `name = "quickstart"`.
    pub name: Option<At<String>>,
    /// Where the kernel's source comes from. Example: `[source]` with
    /// `package = "linux-source-6.12"`.
    pub source: Option<At<RawSource>>,
    /// What varies: every combination of the axes' values is a cell, the last
    /// axis varying fastest. `arch` must be there. Capitals name a Kconfig
    /// symbol (`OFFSTACK` is short for `CPUMASK_OFFSTACK`); `vcpus`, `memory`,
    /// `sockets`, `clusters`, `cores`, `threads`, `numa`, `accel`, `firmware` and
    /// `online` are keys of `[boot]`; `rev` is a revision of the source's git
    /// repository; `patches` is `"none"`, a patch, a mailbox or a folder of
    /// patches; a name with a dot, in quotes, is a kernel parameter; any other
    /// name stands as `{name}` in benchmarks' args and in `cmdline`.
    /// Example: `arch = ["riscv64"]`, `NR_CPUS = [512, 4096]`,
    /// `OFFSTACK = ["n", "y"]`, `groups = [1, 2, 4]`.
    pub axes: Option<At<Map<OneOrMany<Scalar>>>>,
    /// What tables print instead of a value. Example: `[labels.OFFSTACK]` with
    /// `n = "onstack"` and `y = "offstack"`.
    #[serde(default)]
    pub labels: IndexMap<At<String>, At<Map<String>>>,
    /// Leaves out every cell that has the named values; a list means any of
    /// its values. Example: `[[exclude]]` with `NR_CPUS = 256` and `OFFSTACK = "y"`.
    #[serde(default)]
    pub exclude: Vec<At<Map<OneOrMany<Scalar>>>>,
    /// Adds one cell: names every axis with one value. Example: `[[include]]`
    /// with `arch = "riscv64"`, `NR_CPUS = 8` and `OFFSTACK = "n"`.
    #[serde(default)]
    pub include: Vec<At<Map<Scalar>>>,
    /// How each kernel is configured and built. Example: `[kernel]` with
    /// `base = "allnoconfig"` and `fragments = ["minimal"]`.
    pub kernel: Option<At<RawKernel>>,
    /// How each kernel is booted. Example: `[boot]` with `vcpus = 4` and
    /// `memory = "1G"`.
    pub boot: Option<At<RawBoot>>,
    /// What runs in the guest, in order. Example: `[[benchmark]]` with
    /// `use = "hackbench"` and `repeat = 5`.
    #[serde(default)]
    pub benchmark: Vec<At<RawBenchmark>>,
    /// What is printed at the end. Example: `[[table]]` with
    /// `metric = "vmlinux.file"`, `columns = "NR_CPUS"` and `rows = "OFFSTACK"`.
    #[serde(default)]
    pub table: Vec<At<RawTable>>,
}

/// Where the kernel's source comes from: `package`, `path`, `tarball`, or
/// `git` with `rev`.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawSource {
    /// Distribution package that holds a source tarball.
    /// Example: `package = "linux-source-6.12"`.
    pub package: Option<At<String>>,
    /// Directory of a kernel tree, relative to this file; it is never written
    /// to. Example: `path = "../linux"`.
    pub path: Option<At<String>>,
    /// Tarball of a kernel tree, relative to this file.
    /// Example: `tarball = "linux-6.12.tar.xz"`.
    pub tarball: Option<At<String>>,
    /// Git repository: a URL, or a path relative to this file; goes with
    /// `rev`. Example: `git = "../linux"`.
    pub git: Option<At<String>>,
    /// Branch, tag or commit of `git`. Example: `rev = "v6.12"`.
    pub rev: Option<At<String>>,
}

/// How each kernel is configured and built.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawKernel {
    /// Configuration that everything else is added to: `"defconfig"` (the
    /// default), `"tinyconfig"`, `"allnoconfig"`, or a file whose name holds a
    /// `/` or ends in `.config`. Example: `base = "configs/server.config"`.
    pub base: Option<At<String>>,
    /// Pieces of configuration, later ones winning: built-in names or files.
    /// Example: `fragments = ["minimal", "configs/mine.config"]`.
    #[serde(default)]
    pub fragments: Vec<At<String>>,
    /// Kconfig symbols for every cell, over the fragments.
    /// Example: `config = { PREEMPT_NONE = "y", LOG_BUF_SHIFT = 17 }`.
    #[serde(default)]
    pub config: Map<Scalar>,
    /// Patches in `git diff` form, relative to this file, applied in order.
    /// Example: `patches = ["0001-cpumask.patch"]`.
    #[serde(default)]
    pub patches: Vec<At<String>>,
    /// `"gcc"` (the default), `"llvm"`, or a prefix that ends in `-`.
    /// Example: `toolchain = "riscv64-linux-gnu-"`.
    pub toolchain: Option<At<String>>,
    /// Further variables for `make`. Example: `make = ["KCFLAGS=-O2"]`.
    #[serde(default)]
    pub make: Vec<At<String>>,
}

/// What timings are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawTiming {
    /// Counted instructions: repeats to the last digit.
    Instructions,
    /// Time that passes.
    WallClock,
}

/// How each kernel is booted.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawBoot {
    /// Processors of the guest, 4 by default; an axis `vcpus` varies them
    /// instead. Example: `vcpus = 4`.
    pub vcpus: Option<At<i64>>,
    /// Memory of the guest with `M` or `G` behind it, `"1G"` by default.
    /// Example: `memory = "512M"`.
    pub memory: Option<At<String>>,
    /// Packages of the guest's processors. Of `sockets`, `clusters`, `cores` and
    /// `threads`, whose product is `vcpus`, `cores` is what the others leave, or
    /// else `sockets`, or else `threads`; the rest is 1, but `sockets` is `numa`
    /// where that is given and `cores` is not. Example: `sockets = 2`.
    pub sockets: Option<At<i64>>,
    /// Clusters of cores in each socket. Example: `clusters = 2`.
    pub clusters: Option<At<i64>>,
    /// Cores of each cluster. Example: `cores = 4`.
    pub cores: Option<At<i64>>,
    /// Hardware threads of each core. Example: `threads = 2`.
    pub threads: Option<At<i64>>,
    /// NUMA nodes, among which processors and memory are split evenly, in
    /// order; none without it. The kernel needs CONFIG_NUMA: fragment `numa`.
    /// Example: `numa = 4`.
    pub numa: Option<At<i64>>,
    /// Memory of each NUMA node, where it is not even; then `memory` is its sum.
    /// Example: `numa_memory = ["1G", "512M"]`.
    pub numa_memory: Option<At<Vec<At<String>>>>,
    /// Distance between any two NUMA nodes, 20 by default; a node's to itself
    /// is 10. Example: `numa_distance = 40`.
    pub numa_distance: Option<At<i64>>,
    /// Distances where pairs of NUMA nodes differ: a row for each node, with
    /// its distance to each. Example: `numa_distances = [[10, 16, 32], [16, 10, 32], [32, 32, 10]]`.
    pub numa_distances: Option<At<Rows>>,
    /// How long one boot may take with all its benchmarks, `"10m"` by default.
    /// Example: `deadline = "1h 30m"`.
    pub deadline: Option<At<String>>,
    /// How long the guest may print nothing before it counts as hung, `"2m"`
    /// by default, `"10m"` with `icount`, whose guest's clock is slow. Example: `silence = "90s"`.
    pub silence: Option<At<String>>,
    /// How often each cell is booted, once by default; 0 where tables show
    /// sizes alone. Example: `boots = 3`.
    pub boots: Option<At<i64>>,
    /// Boots each cell until the mean of every benchmark metric is known so
    /// well (95% interval over boots, three boots at least), but no more than
    /// `boots` times, 20 by default then. Example: `until = "±1%"`.
    pub until: Option<At<String>>,
    /// Arguments added to QEMU's command line, as an array or as one string in
    /// shell's quoting. Example: `qemu_args = ["-object", "rng-random,id=r"]`.
    pub qemu_args: Option<At<OneOrMany<String>>>,
    /// What timings are: `instructions` (counted ones, a nanosecond each: boots
    /// repeat to the last digit, on a busy host too) or `wall-clock`, the
    /// default. Example: `timing = "instructions"`.
    pub timing: Option<At<RawTiming>>,
    /// What executes the guest: `kvm` (the host's own processors, for guests of
    /// its architecture), `tcg-multi` (a host thread for each vCPU),
    /// `tcg-single` (one for all: no vCPU waits for a lock whose holder does not
    /// run), `icount` (a clock that counts instructions: boots repeat to the
    /// last digit on a busy host too), or `auto`, the default, which takes `kvm`
    /// where a trial shows that it works, else `tcg-multi` where the busy vCPUs
    /// fit the host's cores or there are hundreds, else `tcg-single`. Example: `accel = "tcg-single"`.
    pub accel: Option<At<Accel>>,
    /// What runs before the kernel: `stock` (what QEMU loads), `matrix` (the
    /// firmware of this program, where the architecture has one), a file, or
    /// `auto`, the default, which takes ours where the stock one does not start
    /// that many vCPUs. Example: `firmware = "stock"`.
    pub firmware: Option<At<String>>,
    /// How vCPUs come online: all by the `kernel`, or `staged`, where the
    /// kernel brings up two and the guest's init the others one by one. `auto`,
    /// the default, stages many vCPUs under wall-clock emulation.
    /// Example: `online = "staged"`.
    pub online: Option<At<Online>>,
    /// Boots each cell so often, each boot under a seed of its own (the same
    /// seeds for every cell): what layout luck does to `icount` timings.
    /// Instead of `boots`. Example: `perturb = 5`.
    pub perturb: Option<At<i64>>,
    /// How much of the processors' time other programs, and other guests of a
    /// hypervisor around this machine, may have while a boot is timed by a clock
    /// of the host's (not by counted instructions): `"10%"` by default. A boot
    /// that was disturbed more fails as `host busy`, and `--resume` does it again.
    /// `"off"` takes its times as they come. Example: `max_other_load = "5%"`.
    pub max_other_load: Option<At<String>>,
    /// Console lines that do not make a boot invalid although they tell of a
    /// warning, an oops or a stall: regular expressions.
    /// Example: `allow = ['WARNING: .* at kernel/sched/topology\.c']`.
    #[serde(default)]
    pub allow: Vec<At<String>>,
    /// Added to the kernel's command line. Example: `cmdline = "mitigations=off"`.
    pub cmdline: Option<At<String>>,
}

/// Something that runs in the guest: a built-in benchmark (`use`) or your own
/// (`name`, `command`, `pattern`, `unit`, `better`).
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawBenchmark {
    /// A built-in benchmark. Example: `use = "hackbench"`.
    #[serde(rename = "use")]
    pub builtin: Option<At<String>>,
    /// First part of its metrics' names: letters, digits, `_` and `-`. Without
    /// it a built-in has its own name. Example: `name = "mybench"`.
    pub name: Option<At<String>>,
    /// Arguments of a built-in, instead of its usual ones: an array, or one
    /// string in shell's quoting. Example: `args = "-s 512 -l 20 -g 10 -f 50 -P"`.
    pub args: Option<At<OneOrMany<String>>>,
    /// Module parameters of a built-in that the kernel itself runs (`rcuscale`,
    /// `refscale`, `kfree-scale`); an axis such as `"rcuscale.nwriters"` varies
    /// one instead. Example: `params = { nreaders = 1, nwriters = 1 }`.
    #[serde(default)]
    pub params: Map<Scalar>,
    /// Program and arguments of your own benchmark: an array, or one string in
    /// shell's quoting (there is no shell in between).
    /// Example: `command = "mybench --loops 20"`.
    pub command: Option<At<OneOrMany<String>>>,
    /// How often it runs within one boot, 5 times by default.
    /// Example: `repeat = 5`.
    pub repeat: Option<At<i64>>,
    /// How long one run may take, `"5m"` by default. Example: `timeout = "90s"`.
    pub timeout: Option<At<String>>,
    /// Regular expression over each line that it prints; every named group is
    /// a metric. Example: `pattern = 'took (?<time>[0-9.]+) s'` gives
    /// `mybench.time`.
    pub pattern: Option<At<String>>,
    /// Regular expression of a headline, for programs that report again and
    /// again: only the indented lines below the last such headline count.
    /// Example: `section = '^Wakeup Latencies'`.
    pub section: Option<At<String>>,
    /// Unit of the metrics. Example: `unit = "s"`.
    pub unit: Option<At<String>>,
    /// Which way the metrics are good: `"lower"` or `"higher"`.
    pub better: Option<At<Direction>>,
    /// Unit and direction of single groups of `pattern`, where they differ.
    /// Example: `[benchmark.metrics.rate]` with `unit = "MB/s"` and
    /// `better = "higher"`.
    #[serde(default)]
    pub metrics: Map<RawMetric>,
    /// Distribution packages of the guest's architecture that hold the
    /// program. Example: `packages = ["rt-tests"]`.
    pub packages: Option<At<Vec<At<String>>>>,
    /// Files to put into the guest's `/bin`, relative to this file; `{arch}`
    /// is the architecture's name. Example: `files = ["bin/{arch}/mybench"]`.
    pub files: Option<At<Vec<At<String>>>>,
}

/// Meaning of one named group of a benchmark's pattern.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawMetric {
    /// Unit of the value. Example: `unit = "MB/s"`.
    pub unit: Option<At<String>>,
    /// Which way it is good: `"lower"` or `"higher"`.
    pub better: Option<At<Direction>>,
}

/// Rows and columns of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawLayout {
    /// One metric: an axis across, an axis down, derived rows below.
    Pivot,
    /// An axis across, the change to its first value beside every value.
    Compare,
    /// One row a cell, a column for each thing listed.
    List,
    /// A block of text for each cell.
    Lines,
    /// The largest stack frames of each kernel's functions, and those that
    /// differ between kernels.
    Frames,
}

/// Rows that are computed from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawDerived {
    /// Change to the baseline in percent.
    Difference,
    /// `row / baseline`.
    Ratio,
    /// `y` where the row's value is smaller than the baseline's, else `n`.
    IsSmaller,
    /// Sample standard deviation of each row, as percentage of its mean.
    Spread,
    /// Geometric mean of all rows' ratios to the base.
    GeometricMean,
}

/// A table that is printed at the end.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RawTable {
    /// Printed above the table. Example: `title = "vmlinux size (bytes)"`.
    pub title: Option<At<String>>,
    /// `"pivot"` (the default) crosses two axes, `"compare"` puts the change to
    /// the first column beside every value, `"list"` has one row a cell,
    /// `"lines"` a block of text a cell, `"frames"` one row a function: its
    /// stack frame in bytes.
    pub layout: Option<At<RawLayout>>,
    /// Pivot and compare: what the fields show. Sizes are `vmlinux.file`, `.stripped`,
    /// `.text`, `.data`, `.bss`, `vmlinux.section.NAME` and `image.file`; a
    /// benchmark's are `NAME.GROUP`. `frames.max` and `frames.sum` are the
    /// largest stack frame of a function and all together, `stack.left` is
    /// what the deepest use of a kernel stack left free (with the fragment
    /// `stack-usage`). Example: `metric = "hackbench.time"`.
    pub metric: Option<At<String>>,
    /// Pivot and compare: the axis across, as in `columns = "NR_CPUS"`; in a
    /// comparison its first value is the base. List: metrics, `label`, and
    /// `difference:METRIC` or `ratio:METRIC` (also `METRIC+METRIC`) against
    /// the baseline, as in `columns = ["vmlinux.text", "label", "difference:vmlinux.text"]`.
    pub columns: Option<At<OneOrMany<String>>>,
    /// Pivot and compare: the axis down; a pivot's first value is the baseline
    /// of derived rows. Compare without `metric`: the metrics to compare, a row
    /// each. Example: `rows = "OFFSTACK"` or `rows = ["stream.copy", "stream.add"]`.
    pub rows: Option<At<OneOrMany<String>>>,
    /// Compare: labels of rows that are metrics, in their order.
    /// Example: `row_labels = ["Copy", "Add"]`.
    pub row_labels: Option<At<Vec<At<String>>>>,
    /// Rows computed from the others. Pivot: `difference`, `ratio`,
    /// `is_smaller`, `spread`; compare: `geometric_mean` (of all rows' ratios
    /// to the base). Example: `derived = ["difference", "is_smaller"]`.
    pub derived: Option<At<Vec<At<RawDerived>>>>,
    /// Decimals of percentages, 2 by default, the last one rounded half away
    /// from zero. Example: `percent_decimals = 3`.
    pub percent_decimals: Option<At<i64>>,
    /// Decimals of values; without it none for bytes and 4 otherwise.
    /// Example: `decimals = 4`.
    pub decimals: Option<At<i64>>,
    /// Significant digits of values instead of decimals, as C's `%.6g` prints
    /// them (`13000.4`, `1.08376e+06`). Example: `significant = 6`.
    pub significant: Option<At<i64>>,
    /// Which value stands for several samples: `"mean"` (the default),
    /// `"median"`, `"min"`, `"max"`, `"sum"`, `"count"`, or a percentile such
    /// as `"p99"`: of n sorted samples number `trunc(n * 99 / 100)`, at least
    /// the first, nothing in between. Example: `statistic = "median"`.
    pub statistic: Option<At<Statistic>>,
    /// What the sign of a change means: `"raw"` (the default), where positive
    /// is more, or `"positive-is-better"`, which is `(base - new) / base`
    /// where lower is better. Example: `sign = "positive-is-better"`.
    pub sign: Option<At<Sign>>,
    /// How a difference is told from chance where boots belong to no pairs:
    /// `"welch"` (the default), Welch's t-test of means, or `"mann-whitney"`,
    /// the U test of ranks, for values of any distribution; it needs four boots
    /// a side. Example: `test = "mann-whitney"`.
    pub test: Option<At<Unpaired>>,
    /// Whether the 95% interval over boots stands beside every value:
    /// `3.0012 ±0.0150` for a mean (two boots at least), `3.0012 [2.9851, 3.0160]`
    /// for a median (six boots). Example: `interval = true`.
    pub interval: Option<At<bool>>,
    /// Cells that take part, by axis: a value or a list of values.
    /// Example: `where = { arch = "riscv64", NR_CPUS = [256, 512] }`.
    #[serde(rename = "where")]
    pub filter: Option<At<Map<OneOrMany<Scalar>>>>,
    /// Subtitle of each block where a table has several, `{AXIS}` standing for
    /// the label of the block's value. Example: `block = "{numa} nodes"`.
    pub block: Option<At<String>>,
    /// List and compare: a row's label, `{AXIS}` standing for the label of the
    /// cell's value. Example: `row = "{OFFSTACK}{NR_CPUS}"` prints `onstack256`.
    pub row: Option<At<String>>,
    /// Lines: the block's lines; `{AXIS}` is a label, `{STATISTIC:METRIC}` a
    /// number, `{sum:A.X/count:A.X}` the quotient of two.
    /// Example: `lines = ["Median: {p50:rcuscale.duration} us"]`.
    pub lines: Option<At<Vec<At<String>>>>,
    /// List: the cell that differences are taken against; without it the
    /// first row. Example: `baseline = { NR_CPUS = 256 }`.
    pub baseline: Option<At<Map<Scalar>>>,
    /// List: whether the baseline's label gets ` (baseline)` behind it.
    pub mark_baseline: Option<At<bool>>,
    /// Frames: the axis whose kernels are compared; its first value is what
    /// the others are compared with. Example: `compare = "OFFSTACK"`.
    pub compare: Option<At<String>>,
    /// Frames: how many of each kernel's largest are shown, 10 by default.
    /// Example: `top = 20`.
    pub top: Option<At<i64>>,
}
