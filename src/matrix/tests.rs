//! The whole way from text to matrix, and every fault that can be on it.

use std::path::Path;
use std::time::Instant;

use indexmap::indexmap;

use super::*;
use crate::model::{
    Accel, BaseConfig, Derived, Direction, Firmware, Fragment, Layout, Level, ListColumn, Metric, Online,
    Rows, Sign, Source, Statistic, TableSpec, Toolchain, Unpaired,
};

fn ctx() -> Context {
    let arch = |name: &str, max_vcpus, levels: &[Level], max_numa_nodes| ArchFacts {
        name: name.to_owned(),
        max_vcpus,
        levels: levels.to_vec(),
        max_numa_nodes,
    };
    let seconds = Metric { unit: "s".to_owned(), better: Direction::Lower };
    Context {
        archs: vec![arch("riscv64", 512, &[Level::Cores], 4), arch("aarch64", 256, &Level::ALL, 8)],
        benchmarks: vec![BenchmarkDef {
            name: "hackbench".to_owned(),
            program: "hackbench".to_owned(),
            args: vec!["-P".to_owned()],
            pattern: r"^Time: (?<time>[0-9.]+)$".to_owned(),
            metrics: indexmap! { "time".to_owned() => seconds },
            packages: vec!["rt-tests".to_owned()],
            ..BenchmarkDef::default()
        }],
        fragments: vec!["minimal".to_owned(), "boot".to_owned(), "numa".to_owned()],
    }
}

fn dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn load_text(text: &str) -> Matrix {
    parse("test.toml", text, dir(), &ctx()).unwrap_or_else(|e| panic!("{e}"))
}

/// A fault as a user sees it.
#[derive(Debug)]
struct Fault {
    line: usize,
    place: String,
    message: String,
    help: String,
}

fn faults(text: &str) -> Vec<Fault> {
    let found = parse("test.toml", text, dir(), &ctx()).unwrap_err();
    assert!(!found.faults.is_empty());
    let fault = |d: &crate::diag::Diagnostic| Fault {
        line: text[..d.span.start].matches('\n').count() + 1,
        place: text[d.span.clone()].to_owned(),
        message: d.message.clone(),
        help: d.help.clone(),
    };
    found.faults.iter().map(fault).collect()
}

/// Asserts that `text` has exactly one fault, at `place`, with `message`, and
/// `help` somewhere in its help.
#[track_caller]
fn one(text: &str, place: &str, message: &str, help: &str) {
    let found = faults(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].message, message);
    assert_eq!(found[0].place, place);
    assert!(found[0].help.contains(help), "help is: {}", found[0].help);
}

/// Four good lines, for tests to add to.
const GOOD: &str = "source.package = \"linux-source-6.12\"\n[axes]\narch = [\"riscv64\"]\nNR_CPUS = [256, 512]\nOFFSTACK = [\"n\", \"y\"]\n";

#[track_caller]
fn one_more(text: &str, place: &str, message: &str, help: &str) {
    one(&format!("{GOOD}{text}"), place, message, help);
}

/// A file of these axes alone.
fn with_axes(axes: &str) -> String {
    format!("source.package = \"linux-source-6.12\"\n[axes]\n{axes}\n")
}

#[track_caller]
fn one_axis(axes: &str, place: &str, message: &str, help: &str) {
    one(&with_axes(axes), place, message, help);
}

fn ids(matrix: &Matrix) -> Vec<&str> {
    matrix.cells.iter().map(|c| c.id.0.as_str()).collect()
}

// What a good file means.

#[test]
fn the_last_axis_varies_fastest_and_ids_say_all() {
    let m = load_text(GOOD);
    assert_eq!(
        ids(&m),
        [
            "riscv64-NR_CPUS=256-OFFSTACK=n",
            "riscv64-NR_CPUS=256-OFFSTACK=y",
            "riscv64-NR_CPUS=512-OFFSTACK=n",
            "riscv64-NR_CPUS=512-OFFSTACK=y",
        ]
    );
    let last = &m.cells[3];
    assert_eq!(last.arch, "riscv64");
    assert_eq!(m.boot_of(last).vcpus, 4);
    assert_eq!(last.coords["OFFSTACK"], "y");
    assert_eq!(last.coords.keys().collect::<Vec<_>>(), ["arch", "NR_CPUS", "OFFSTACK"]);
    let config: Vec<_> = last.config.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(config, ["CPUMASK_OFFSTACK=y", "NR_CPUS=512"]);
}

#[test]
fn arch_comes_first_in_ids_wherever_its_axis_stands() {
    let m = load_text(&with_axes("HZ_100 = [true, false]\narch = \"riscv64\"\nvcpus = [1, 8]"));
    assert_eq!(ids(&m)[1], "riscv64-HZ_100=y-vcpus=8");
    assert_eq!(m.boot_of(&m.cells[1]).vcpus, 8);
    assert_eq!(m.cells[1].config.len(), 1, "neither arch nor vcpus is a symbol");
    assert_eq!(m.axes[0].values, ["y", "n"]);
}

#[test]
fn values_keep_their_meaning_for_kconfig() {
    let m = load_text(&with_axes(
        "arch = \"riscv64\"\nCONFIG_BASE_ADDR = [0x80000000]\nA = [-1, 1_000]\nVERSION = [\"a/../b c\"]",
    ));
    assert_eq!(m.axes[1].name, "BASE_ADDR");
    assert_eq!(m.axes[1].values, ["0x80000000"], "a hex symbol would misread decimal digits");
    assert_eq!(m.axes[2].values, ["-1", "1000"]);
    assert_eq!(m.cells[0].config["VERSION"], "a/../b c");
    assert_eq!(m.cells[0].id.0, "riscv64-BASE_ADDR=0x80000000-A=-1-VERSION=a_.__b_c");
}

#[test]
fn defaults_are_those_of_the_manual() {
    let m = load_text(GOOD);
    assert_eq!(m.name, "test");
    assert_eq!(m.source, Source::Package("linux-source-6.12".to_owned()));
    assert_eq!(m.kernel.base, BaseConfig::Target("defconfig".to_owned()));
    assert_eq!(m.kernel.toolchain, Toolchain::Gcc { prefix: None });
    assert_eq!((m.boot.memory_mib, m.boot.boots), (1024, 1));
    assert_eq!((m.boot.deadline_s, m.boot.silence_s), (600, 120));
    assert!(m.benchmarks.is_empty() && m.tables.is_empty());
}

#[test]
fn the_name_defaults_to_the_files() {
    let named = |file: &str| parse(file, GOOD, dir(), &ctx()).unwrap().name;
    assert_eq!(named("some/dir/my matrix.toml"), "my_matrix");
    assert_eq!(named(".toml"), "matrix.toml");
}

#[test]
fn kernel_and_boot_are_read() {
    let m = load_text(&format!(
        "{GOOD}[kernel]\nbase = \"kernel-configs/minimal.config\"\nfragments = [\"minimal\", \"kernel-configs/riscv64-minimal.config\"]\n\
         config = {{ CONFIG_PREEMPT_NONE = true, LOG_BUF_SHIFT = 17 }}\npatches = [\"Cargo.toml\"]\ntoolchain = \"riscv64-linux-gnu-\"\nmake = [\"KCFLAGS=-O2 -g\"]\n\
         [boot]\nvcpus = 2\nmemory = \"512M\"\ndeadline = \"1h 30m\"\nsilence = \"1500ms\"\nboots = 3\nqemu_args = \"-cpu 'max,v=off'\"\ncmdline = \"quiet\"\n"
    ));
    assert_eq!(m.kernel.base, BaseConfig::File(dir().join("kernel-configs/minimal.config")));
    assert_eq!(m.kernel.fragments[0], Fragment::Builtin("minimal".to_owned()));
    assert_eq!(m.kernel.fragments[1], Fragment::File(dir().join("kernel-configs/riscv64-minimal.config")));
    assert_eq!(m.kernel.config["PREEMPT_NONE"], "y");
    assert_eq!(m.kernel.config["LOG_BUF_SHIFT"], "17");
    assert_eq!(m.kernel.patches, [dir().join("Cargo.toml")]);
    assert_eq!(m.kernel.toolchain, Toolchain::Gcc { prefix: Some("riscv64-linux-gnu-".to_owned()) });
    assert_eq!(m.kernel.make, ["KCFLAGS=-O2 -g"]);
    assert_eq!(m.boot_of(&m.cells[0]).vcpus, 2);
    assert_eq!((m.boot.memory_mib, m.boot.deadline_s, m.boot.silence_s), (512, 5400, 2));
    assert_eq!(m.boot.qemu_args, ["-cpu", "max,v=off"]);
    assert_eq!((m.boot.boots, m.boot.cmdline.as_str()), (3, "quiet"));
}

#[test]
fn sources_are_read() {
    let source = |text: &str| load_text(&GOOD.replace("source.package = \"linux-source-6.12\"", text)).source;
    assert_eq!(source("source.path = \"src\""), Source::Path(dir().join("src")));
    assert_eq!(source("source.tarball = \"Cargo.lock\""), Source::Tarball(dir().join("Cargo.lock")));
    let git = |url: &str| Source::Git { url: url.to_owned(), rev: "v6.12".to_owned() };
    let here = dir().join("src").to_string_lossy().into_owned();
    assert_eq!(source("source = { git = \"src\", rev = \"v6.12\" }"), git(&here));
    for url in ["https://example.org/linux.git", "user@example.org:linux.git"] {
        assert_eq!(source(&format!("source = {{ git = \"{url}\", rev = \"v6.12\" }}")), git(url));
    }
}

const MYBENCH: &str = "[[benchmark]]\nname = \"my-bench\"\ncommand = \"mybench --json 'a b'\"\npattern = 'took (?<time>[0-9.]+) s, (?<rate>\\d+) MB'\n\
                       unit = \"s\"\nbetter = \"lower\"\nmetrics.rate = { unit = \"MB/s\", better = \"higher\" }\n";

#[test]
fn benchmarks_are_read() {
    let m = load_text(&format!(
        "{GOOD}[[benchmark]]\nuse = \"hackbench\"\nargs = \"-s 512 -g 10\"\nrepeat = 7\ntimeout = \"90s\"\n\
         [[benchmark]]\nuse = \"hackbench\"\nname = \"usual\"\n[[benchmark]]\nuse = \"hackbench\"\nname = \"own\"\nfiles = [\"Cargo.toml\"]\n{MYBENCH}"
    ));
    let [hack, usual, own, mine] = m.benchmarks.as_slice() else { panic!("four benchmarks") };
    assert_eq!(hack.command, ["hackbench", "-s", "512", "-g", "10"]);
    assert_eq!((hack.repeat, hack.timeout_s), (7, 90));
    assert_eq!(hack.packages, ["rt-tests"]);
    assert_eq!((usual.name.as_str(), usual.repeat, usual.timeout_s), ("usual", 5, 300));
    assert_eq!(usual.command, ["hackbench", "-P"]);
    assert_eq!(own.files, [dir().join("Cargo.toml")]);
    assert!(own.packages.is_empty(), "own files stand in for the package");
    assert_eq!(mine.command, ["mybench", "--json", "a b"]);
    assert_eq!(mine.metrics["time"], Metric { unit: "s".to_owned(), better: Direction::Lower });
    assert_eq!(mine.metrics["rate"], Metric { unit: "MB/s".to_owned(), better: Direction::Higher });
}

#[test]
fn tables_are_read_with_axes_under_their_own_names() {
    let m = load_text(&format!(
        "{GOOD}{MYBENCH}[[table]]\nmetric = \"vmlinux.section.init.text\"\ncolumns = \"CONFIG_NR_CPUS\"\nrows = \"CPUMASK_OFFSTACK\"\nderived = [\"ratio\", \"spread\"]\n\
         decimals = 3\nstatistic = \"median\"\nwhere = {{ NR_CPUS = [256, 512] }}\n\
         [[table]]\ntitle = \"t\"\nlayout = \"list\"\ncolumns = [\"my-bench.rate\", \"label\", \"difference:vmlinux.text+vmlinux.data\"]\n\
         row = \"{{CPUMASK_OFFSTACK}}/{{NR_CPUS}}\"\nbaseline = {{ CPUMASK_OFFSTACK = false, NR_CPUS = 256 }}\nmark_baseline = true\n\
         [[table]]\nlayout = \"list\"\ncolumns = \"image.file\"\n"
    ));
    let [pivot, list, plain] = m.tables.as_slice() else { panic!("three tables") };
    assert_eq!(pivot.title, "vmlinux.section.init.text");
    assert_eq!((pivot.decimals, pivot.percent_decimals), (Some(3), 2));
    assert_eq!(pivot.statistic, Statistic::Median);
    assert_eq!(pivot.filter["NR_CPUS"], ["256", "512"]);
    let Layout::Pivot { columns, rows, derived, .. } = &pivot.layout else { panic!("a pivot") };
    assert_eq!((columns.as_str(), rows.as_str()), ("NR_CPUS", "OFFSTACK"));
    assert_eq!(derived, &[Derived::Ratio, Derived::Spread]);
    let Layout::List { columns, row, baseline, mark_baseline } = &list.layout else { panic!("a list") };
    let sum = vec!["vmlinux.text".to_owned(), "vmlinux.data".to_owned()];
    assert_eq!(
        columns,
        &[ListColumn::Metric("my-bench.rate".to_owned()), ListColumn::Label, ListColumn::Difference(sum)]
    );
    assert_eq!(String::from(row.clone()), "{OFFSTACK}/{NR_CPUS}");
    assert_eq!((baseline["OFFSTACK"].as_str(), baseline["NR_CPUS"].as_str()), ("n", "256"));
    assert!(*mark_baseline);
    let Layout::List { row, .. } = &plain.layout else { panic!("a list") };
    assert_eq!(String::from(row.clone()), "{arch} {NR_CPUS} {OFFSTACK}");
    assert_eq!(plain.title, "test");
}

#[test]
fn comparisons_are_read() {
    let m = load_text(&format!(
        "{GOOD}{MYBENCH}[[table]]\nlayout = \"compare\"\nmetric = \"my-bench.time\"\ncolumns = \"CPUMASK_OFFSTACK\"\nrows = \"CONFIG_NR_CPUS\"\n\
         row = \"{{CONFIG_NR_CPUS}}-cpus\"\nblock = \"on {{arch}}\"\nderived = [\"geometric_mean\"]\nsign = \"positive-is-better\"\nstatistic = \"p99\"\n\
         [[table]]\nlayout = \"compare\"\ncolumns = \"NR_CPUS\"\nrows = [\"my-bench.time\", \"my-bench.rate\"]\nsignificant = 6\n\
         test = \"mann-whitney\"\ninterval = true\nstatistic = \"median\"\n\
         [[table]]\nlayout = \"compare\"\ncolumns = \"NR_CPUS\"\nrows = \"my-bench.time\"\nrow_labels = [\"Time\"]\n\
         [[table]]\nlayout = \"compare\"\nmetric = \"image.file\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n"
    ));
    let [times, metrics, labelled, plain] = m.tables.as_slice() else { panic!("four tables") };
    let axis = |axis: &str, metric: &str, label: &str| Rows::Axis {
        axis: axis.to_owned(),
        metric: metric.to_owned(),
        label: label.parse().unwrap(),
    };
    let rows = axis("NR_CPUS", "my-bench.time", "{NR_CPUS}-cpus");
    assert_eq!(times.layout, Layout::Compare { columns: "OFFSTACK".to_owned(), rows, geometric_mean: true });
    assert_eq!(times.block, Some("on {arch}".parse().unwrap()));
    assert_eq!((times.sign, times.statistic), (Sign::PositiveIsBetter, Statistic::Percentile(99)));
    assert_eq!((metrics.decimals, metrics.significant, metrics.sign), (None, Some(6), Sign::Raw));
    assert_eq!((metrics.test, metrics.interval), (Unpaired::MannWhitney, true));
    assert_eq!((times.test, times.interval), (Unpaired::Welch, false));
    let rows = |table: &TableSpec| match &table.layout {
        Layout::Compare { rows, geometric_mean: false, .. } => rows.clone(),
        other => panic!("{other:?}"),
    };
    let (time, rate) = ("my-bench.time".to_owned(), "my-bench.rate".to_owned());
    assert_eq!(rows(metrics), Rows::Metrics(indexmap! { time.clone() => None, rate => None }));
    assert_eq!(rows(labelled), Rows::Metrics(indexmap! { time => Some("Time".to_owned()) }));
    assert_eq!(rows(plain), axis("OFFSTACK", "image.file", "{OFFSTACK}"));
}

#[test]
fn lines_are_read() {
    let lines = ["{CPUMASK_OFFSTACK}: {p50:my-bench.time} s", "{sum:my-bench.time/count:my-bench.rate}"];
    let m = load_text(&format!(
        "{GOOD}{MYBENCH}[[table]]\nlayout = \"lines\"\nlines = {lines:?}\n\
         [[table]]\nlayout = \"list\"\ncolumns = [\"ratio:vmlinux.text+vmlinux.data\"]\n"
    ));
    let lines = vec![lines[0].replace("CPUMASK_", "").parse().unwrap(), lines[1].parse().unwrap()];
    assert_eq!(m.tables[0].layout, Layout::Lines { lines });
    let Layout::List { columns, .. } = &m.tables[1].layout else { panic!("a list") };
    assert_eq!(columns, &[ListColumn::Ratio(vec!["vmlinux.text".to_owned(), "vmlinux.data".to_owned()])]);
}

#[test]
fn exclude_then_include() {
    let m = load_text(&format!(
        "{GOOD}[labels.CPUMASK_OFFSTACK]\nfalse = \"onstack\"\n[[exclude]]\nNR_CPUS = [256, 512]\nOFFSTACK = true\n\
         [[include]]\narch = \"riscv64\"\nNR_CPUS = 1024\nOFFSTACK = \"y\"\n"
    ));
    assert_eq!(
        ids(&m),
        [
            "riscv64-NR_CPUS=256-OFFSTACK=n",
            "riscv64-NR_CPUS=512-OFFSTACK=n",
            "riscv64-NR_CPUS=1024-OFFSTACK=y",
        ]
    );
    assert_eq!(m.axes[1].values, ["256", "512", "1024"], "tables know the added value");
    assert_eq!(m.axes[2].label("n"), "onstack");
    assert_eq!(m.axes[2].label("y"), "y");
}

// Every fault.

#[test]
fn eight_faults_are_reported_at_once_in_the_order_of_the_file() {
    let text = "\
nmae = \"x\"
[source]
package = \"Linux Source\"
[axes]
arch = [\"riscv46\", \"riscv64\"]
NR_CPUS = [8192, 2]
OFFSTACK = [\"n\", \"y\"]
CPUMASK_OFFSTACK = [\"n\"]
[boot]
memory = 1024
deadline = \"soon\"
[[benchmark]]
use = \"hackbnech\"
[[table]]
metric = \"vmlinux.fil\"
columns = \"NR_CPUS\"
rows = \"NR_CPUS\"
";
    let found = faults(text);
    let lines: Vec<_> = found.iter().map(|f| (f.line, f.message.as_str())).collect();
    assert_eq!(
        lines,
        [
            (1, "unknown key `nmae` at the top of the file"),
            (3, "`Linux Source` cannot be a package's name"),
            (5, "unknown architecture `riscv46`"),
            (6, "`NR_CPUS` cannot be `8192`"),
            (6, "4 vcpus do not fit cells with NR_CPUS `2`"),
            (8, "axis `CPUMASK_OFFSTACK` is there already under another name"),
            (10, "`memory` must be a string, not integer `1024`"),
            (11, "`deadline` is no duration: `soon`: expected number at 0"),
            (13, "unknown benchmark `hackbnech`"),
            (15, "unknown metric `vmlinux.fil`"),
            (17, "`rows` and `columns` are the same axis"),
        ]
    );
    let text = parse("m.toml", text, dir(), &ctx()).unwrap_err().render(false);
    assert!(text.contains("m.toml:5:9"), "{text}");
    assert!(text.contains("did you mean `hackbench`?"), "{text}");
    assert!(text.ends_with("m.toml: 11 errors; nothing was built"), "{text}");
}

#[test]
fn an_empty_file_is_told_what_it_needs() {
    let found = faults("");
    let messages: Vec<_> = found.iter().map(|f| f.message.as_str()).collect();
    let no_source = "no `[source]`: where does the kernel come from?";
    assert_eq!(messages, ["no `[axes]`: what varies?", no_source]);
    assert!(found[1].help.contains("package = \"linux-source-6.12\""));
    assert!(found[0].help.contains("arch = [\"riscv64\"]"));
    let text = parse("m.toml", "", dir(), &ctx()).unwrap_err().render(false);
    assert!(text.contains("m.toml: 2 errors"), "{text}");
}

#[test]
fn what_is_faulty_is_not_called_missing_too() {
    one(
        "axes = 3\nsource.package = \"a1\"\n",
        "3",
        "`axes` must be a table, not integer `3`",
        "every combination",
    );
    one(
        "[axis]\narch = \"riscv64\"\n[source]\npackage = \"a1\"\n",
        "axis",
        "unknown key `axis` at the top of the file",
        "did you mean `axes`?",
    );
    one_axis(
        "arch = 1.5",
        "1.5",
        "`arch` must be a string, a whole number, true, false or an array of these, not floating point `1.5`",
        "",
    );
    one_more(
        "[[table]]\nmetric = \"vmlinux.file\"\ncolums = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n",
        "colums",
        "unknown key `colums` in `table`",
        "did you mean `columns`?",
    );
    one_more(
        "[[benchmark]]\nname = \"b\"\ncommand = 5\npattern = '(?<t>.)'\nunit = \"s\"\nbetter = \"lower\"\n[[table]]\nmetric = \"b.t\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n",
        "5",
        "`command` must be a string or an array of strings, not integer `5`",
        "",
    );
}

#[test]
fn source_faults() {
    let axes = "\n[axes]\narch = \"riscv64\"\n";
    let case = |source: &str, place: &str, message: &str, help: &str| {
        one(&format!("{source}{axes}"), place, message, help);
    };
    case("[source]", "[source]", "`[source]` names no source", "exactly one of package");
    case(
        "source = { package = \"a1\", path = \"src\" }",
        "\"src\"",
        "`source` has both `package` and `path`",
        "exactly one of",
    );
    case(
        "source.path = \"nowhere\"",
        "\"nowhere\"",
        "kernel tree `nowhere` is not there",
        "relative to the matrix file",
    );
    case("source.tarball = \"src\"", "\"src\"", "tarball `src` is not there", "looked for");
    case("source = { git = \"src\" }", "{ git = \"src\" }", "`git` without `rev`", "rev = \"v6.12\"");
    case("source.rev = \"v6\"", "\"v6\"", "`rev` without `git`", "git = ");
    case(
        "source = { git = \"src\", rev = \"--upload-pack=x\" }",
        "\"--upload-pack=x\"",
        "`rev` cannot be `--upload-pack=x`",
        "v6.12",
    );
    case("source.package = \"-x\"", "\"-x\"", "`-x` cannot be a package's name", "lower-case");
    case("source.package = \"a/b\"", "\"a/b\"", "`a/b` cannot be a package's name", "lower-case");
}

#[test]
fn name_faults() {
    for (written, shown) in
        [("../x", "../x"), ("a b", "a b"), ("", ""), (".x", ".x"), ("a\\nb", "a\\nb"), ("a..b", "a..b")]
    {
        let place = format!("\"{written}\"");
        one(
            &format!("name = {place}\n{GOOD}"),
            &place,
            &format!("`name` cannot be `{shown}`"),
            "name = \"quickstart\"",
        );
    }
}

#[test]
fn axis_faults() {
    one_axis("NR_CPUS = [512]", "[axes]", "`[axes]` has no `arch`", "known: `riscv64`, `aarch64`");
    one_axis("arch = []", "[]", "axis `arch` has no values", "arch = [\"riscv64\"]");
    one_axis("arch = \"riscv64\"\nHZ = []", "[]", "axis `HZ` has no values", "remove the axis");
    one_axis(
        "arch = \"arm64\"",
        "\"arm64\"",
        "unknown architecture `arm64`",
        "possible: `riscv64`, `aarch64`",
    );
    one_axis(
        "arch = [\"riscv64\", \"riscv64\"]",
        "\"riscv64\"",
        "axis `arch` has the value `riscv64` twice",
        "remove",
    );
    one_axis("arch = \"riscv64\"\nX = [true, \"y\"]", "\"y\"", "axis `X` has the value `y` twice", "remove");
    one_axis(
        "arch = \"riscv64\"\nX = [\"a/b\", \"a b\"]",
        "\"a b\"",
        "`a b` and `a/b` both read `a_b` in names of files",
        "change one",
    );
    one_axis(
        "arch = \"riscv64\"\nCONFIG_HZ = 1\nHZ = 2",
        "HZ",
        "axis `HZ` is there already under another name",
        "both mean CONFIG_HZ",
    );
    one_axis(
        "arch = \"riscv64\"\nnr_cpus = 512",
        "nr_cpus",
        "nothing depends on the axis `nr_cpus`",
        "did you mean `NR_CPUS`?",
    );
    one_axis(
        "arch = \"riscv64\"\nvcpu = 2",
        "vcpu",
        "nothing depends on the axis `vcpu`",
        "did you mean `vcpus`? a lower-case name stands as {vcpu} in a benchmark's args",
    );
    one_axis(
        "arch = \"riscv64\"\n\"../X\" = 2",
        "\"../X\"",
        "`../X` cannot be an axis",
        "a Kconfig symbol such as NR_CPUS",
    );
}

/// What varies beside the kernel's configuration.
#[test]
fn axes_set_more_than_symbols() {
    let m = load_text(&with_axes(
        "arch = \"riscv64\"\nmemory = [\"512M\", \"2G\"]\naccel = \"icount\"\nonline = \"staged\"\nfirmware = \"stock\"\n\
         \"rcuscale.nwriters\" = [1, 2]\npatches = [\"none\", \"Cargo.toml\"]\ngroups = [1, 4]\nquiet = \"loglevel=4\"\n\
         [boot]\ncmdline = \"{quiet} x={nothing}\"\n[[benchmark]]\nuse = \"hackbench\"\nargs = \"-g {groups} {x}\"\n",
    ));
    assert_eq!(m.cells.len(), 16);
    let last = &m.cells[15];
    assert_eq!(
        last.id.0,
        "riscv64-memory=2G-accel=icount-online=staged-firmware=stock-rcuscale.nwriters=2-patches=Cargo.toml-groups=4-quiet=loglevel_4"
    );
    assert!(last.config.is_empty());
    let boot = m.boot_of(last);
    assert_eq!((boot.memory_mib, boot.accel, boot.online), (2048, Accel::Icount, Online::Staged));
    assert_eq!((boot.firmware, boot.vcpus, boot.silence_s), (Firmware::Stock, 4, 600));
    assert_eq!(boot.cmdline, "loglevel=4 x={nothing} rcuscale.nwriters=2");
    assert_eq!(m.benchmarks_of(last)[0].command, ["hackbench", "-g", "4", "{x}"]);
    assert_eq!(m.source_of(last).1, [dir().join("Cargo.toml")]);
    assert!(m.source_of(&m.cells[0]).1.is_empty());
}

#[test]
fn revisions_are_an_axis_of_a_git_source() {
    let file = |source: &str| {
        format!("[source]\n{source}\n[axes]\narch = \"riscv64\"\nrev = [\"v6.12\", \"HEAD~1\"]\n")
    };
    let m = load_text(&file("git = \".\""));
    let revs: Vec<_> = m.cells.iter().map(|c| m.source_of(c).0).collect();
    let url = dir().join(".").to_string_lossy().into_owned();
    let git = |rev: &str| Source::Git { url: url.clone(), rev: rev.to_owned() };
    assert_eq!(revs, [git("v6.12"), git("HEAD~1")]);
    one(&file("path = \".\""), "rev", "the axis `rev` needs a source in git", "[source] git");
    let both = file("git = \".\"\nrev = \"v1\"");
    one(&both, "\"v1\"", "`rev` is given in `[source]` and as an axis", "keep one");
    let option = file("git = \".\"").replace("HEAD~1", "--help");
    one(&option, "\"--help\"", "`rev` cannot be `--help`", "v6.12");
}

#[test]
fn a_folder_of_patches_is_one_value() {
    let dir = tempfile::tempdir().unwrap();
    let series = dir.path().join("series-a");
    std::fs::create_dir(&series).unwrap();
    let text = with_axes("arch = \"riscv64\"\npatches = [\"none\", \"series-a\"]");
    let parsed = || parse("m.toml", &text, dir.path(), &ctx());
    assert!(parsed().unwrap_err().faults[0].message.contains("holds no patches"));
    for name in ["2.patch", "1.patch", "cover.txt"] {
        std::fs::write(series.join(name), "").unwrap();
    }
    let patches = |m: Matrix| m.source_of(&m.cells[1]).1;
    assert_eq!(patches(parsed().unwrap()), [series.join("1.patch"), series.join("2.patch")]);
    std::fs::write(series.join("series"), "# order\n2.patch\n../1.patch\n").unwrap();
    assert_eq!(patches(parsed().unwrap()), [series.join("2.patch")], "and nothing from elsewhere");
}

#[test]
fn boots_until_a_mean_is_known_have_a_maximum() {
    let boot = |lines: &str| load_text(&format!("{GOOD}[boot]\n{lines}\n")).boot;
    let of = |b: crate::model::Boot| (b.until, b.boots);
    assert_eq!(of(boot("until = \"±0.5%\"")), (Some(0.5), 20));
    assert_eq!(of(boot("until = \"2%\"\nboots = 7")), (Some(2.0), 7));
    assert_eq!(of(boot("")), (None, 1));
}

#[test]
fn others_may_have_a_tenth_of_the_host_unless_the_file_says_otherwise() {
    let of = |lines: &str| load_text(&format!("{GOOD}[boot]\n{lines}\n")).boot.max_other_load;
    assert_eq!(of(""), Some(10.0));
    assert_eq!(of("max_other_load = \"2.5 %\""), Some(2.5));
    assert_eq!(of("max_other_load = \"off\""), None);
    assert_eq!(load_text(GOOD).boot.max_other_load, Some(10.0));
}

#[test]
fn timing_decides_the_accelerator() {
    let boot = |lines: &str| format!("{GOOD}[boot]\n{lines}\n");
    assert_eq!(load_text(&boot("timing = \"instructions\"")).boot.accel, Accel::Icount);
    assert_eq!(load_text(&boot("timing = \"wall-clock\"\naccel = \"kvm\"")).boot.accel, Accel::Kvm);
    let contradiction = "`timing` and `accel` contradict each other";
    one(
        &boot("timing = \"instructions\"\naccel = \"tcg-multi\""),
        "\"instructions\"",
        contradiction,
        "only `icount`",
    );
    one(&boot("timing = \"wall-clock\"\naccel = \"icount\""), "\"wall-clock\"", contradiction, "leave out");
}

#[test]
fn value_faults() {
    let case = |axis: &str, place: &str, message: &str, help: &str| {
        one_axis(&format!("arch = \"riscv64\"\n{axis}"), place, message, help);
    };
    let limits = "from 2 to 4096";
    case("NR_CPUS = [512, 1]", "1", "`NR_CPUS` cannot be `1`", limits);
    case("NR_CPUS = [4097]", "4097", "`NR_CPUS` cannot be `4097`", limits);
    case("NR_CPUS = \"many\"", "\"many\"", "`NR_CPUS` cannot be `many`", limits);
    case("NR_CPUS = -8", "-8", "`NR_CPUS` cannot be `-8`", limits);
    case("NR_CPUS = 0x200", "0x200", "`NR_CPUS` cannot be `0x200`", limits);
    case("OFFSTACK = \"m\"", "\"m\"", "`OFFSTACK` cannot be `m`", "\"n\" or \"y\"");
    case("vcpus = 0", "0", "`vcpus` cannot be `0`", "from 1 to 4096");
    case("memory = \"1T\"", "\"1T\"", "`memory` cannot be `1T`", "1G");
    case("firmware = \"x\"", "\"x\"", "firmware `x` is not there", "relative to the matrix file");
    case("patches = \"x\"", "\"x\"", "patch `x` is not there", "relative to the matrix file");
    case("\"a.b\" = \"c d\"", "\"c d\"", "`a.b` cannot be `c d`", "without blanks");
    case("X = \"a\\nCONFIG_Y=y\"", "\"a\\nCONFIG_Y=y\"", "`X` cannot be `a\\nCONFIG_Y=y`", "one line");
    case("X = 'a\"b'", "'a\"b'", "`X` cannot be `a\\\"b`", "no quotes");
    assert_eq!(load_text(&with_axes("arch = \"riscv64\"\nvcpus = 1\nNR_CPUS = [2, 4096]")).cells.len(), 2);
}

#[test]
fn too_many_cells_and_too_long_names() {
    let numbers: Vec<String> = (2..103).map(|n| n.to_string()).collect();
    let hundred = numbers.join(", ");
    one_axis(
        &format!("arch = \"riscv64\"\nA = [{hundred}]\nB = [{hundred}]"),
        "[axes]",
        "the axes span 10201 cells, more than 10000",
        "split the matrix",
    );
    let found = faults(&with_axes(&format!("arch = \"riscv64\"\nX = \"{}\"", "x".repeat(250))));
    assert!(found[0].message.starts_with("names of cells become too long: `riscv64-X=xxx"));
    assert!(found[0].help.contains("at most 200 bytes"));
}

#[test]
fn five_thousand_cells_are_quick() {
    let numbers: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let axes =
        format!("arch = [\"riscv64\"]\nA = [{0}]\nB = [{0}]\nOFFSTACK = [\"n\", \"y\"]", numbers.join(", "));
    let text = with_axes(&axes);
    let start = Instant::now();
    assert_eq!(load_text(&text).cells.len(), 5000);
    let took = start.elapsed();
    // Optimised it is well below 100 ms; the bound is for a debug build on a busy machine.
    assert!(took.as_millis() < 2000, "{took:?}");
}

#[test]
fn processors_must_fit_kernels_and_machines() {
    let small = "arch = [\"riscv64\", \"aarch64\"]\nNR_CPUS = [2, 3, 512]\n";
    let file = |rest: &str| with_axes(&format!("{small}{rest}"));
    one(&file("[boot]\nvcpus = 8"), "8", "8 vcpus do not fit cells with NR_CPUS `2`, `3`", "at most 2");
    one(&file("vcpus = [1, 3]"), "3", "3 vcpus do not fit cells with NR_CPUS `2`", "[[exclude]]");
    assert_eq!(load_text(&file("vcpus = [1, 3]\n[[exclude]]\nvcpus = 3\nNR_CPUS = 2")).cells.len(), 10);
    let by_default = faults(&file(""));
    assert_eq!(by_default.len(), 2, "{by_default:#?}");
    assert_eq!((by_default[0].place.as_str(), by_default[1].place.as_str()), ("2", "3"));
    assert_eq!(by_default[0].message, "4 vcpus do not fit cells with NR_CPUS `2`");
    one(
        &with_axes("arch = [\"riscv64\", \"aarch64\"]\nNR_CPUS = 512\nvcpus = [4, 512]"),
        "512",
        "512 vcpus are more than a machine of `aarch64` can have",
        "at most 256 for `aarch64`",
    );
    one(
        &with_axes("arch = \"riscv64\"\n[kernel]\nconfig = { NR_CPUS = 2 }\n[boot]\nvcpus = 3"),
        "3",
        "3 vcpus do not fit cells with NR_CPUS `2`",
        "at most 2",
    );
}

#[test]
fn exclude_faults() {
    one_more(
        "[[exclude]]\nNR_CPUS = 300\n",
        "300",
        "`exclude`: axis `NR_CPUS` has no value `300`",
        "possible: `256`, `512`",
    );
    one_more(
        "[[exclude]]\nHZ = 300\n",
        "HZ",
        "`exclude`: there is no axis `HZ`",
        "possible: `arch`, `NR_CPUS`, `OFFSTACK`",
    );
    one_more(
        "[[exclude]]\n",
        "[[exclude]]",
        "an `[[exclude]]` without any axis would leave out every cell",
        "NR_CPUS = 256",
    );
    one_more("[[exclude]]\nNR_CPUS = []\n", "[]", "`exclude` names no value of `NR_CPUS`", "name a value");
    let twice = "[[exclude]]\nNR_CPUS = 256\n[[exclude]]\nNR_CPUS = 256\nOFFSTACK = \"y\"\n";
    let found = faults(&format!("{GOOD}{twice}"));
    assert_eq!((found.len(), found[0].line), (1, 8));
    assert_eq!(found[0].message, "this `[[exclude]]` leaves out nothing that is not left out already");
    one_more("[[exclude]]\narch = \"riscv64\"\n", "[[exclude]]", "`exclude` leaves no cell", "narrow it");
}

#[test]
fn include_faults() {
    one_more(
        "[[include]]\narch = \"riscv64\"\nOFFSTACK = \"y\"\n",
        "[[include]]",
        "this `[[include]]` does not say `NR_CPUS`",
        "add NR_CPUS = ...",
    );
    one_more(
        "[[include]]\narch = \"riscv64\"\nOFFSTACK = \"y\"\nNR_CPUS = 256\n",
        "[[include]]",
        "this `[[include]]` adds a cell that is there already",
        "remove it",
    );
    one_more(
        "[[include]]\narch = \"riscv64\"\nOFFSTACK = \"y\"\nNR_CPUS = 9999\n",
        "9999",
        "`NR_CPUS` cannot be `9999`",
        "4096",
    );
    one_more(
        "[[include]]\narch = \"riscv64\"\nOFFSTACK = \"y\"\nNR_CPUS = 128\nHZ = 1\n",
        "HZ",
        "`include`: there is no axis `HZ`",
        "possible",
    );
    one_more(
        "[[include]]\narch = \"riscv64\"\nOFFSTACK = \"y\"\nNR_CPUS = [64, 128]\n",
        "[64, 128]",
        "`NR_CPUS` must be a string, a whole number, true or false, not an array",
        "",
    );
}

#[test]
fn label_faults() {
    one_more(
        "[labels.OFFSTACK]\nm = \"module\"\n",
        "m",
        "`labels`: axis `OFFSTACK` has no value `m`",
        "possible: `n`, `y`",
    );
    one_more(
        "[labels.NR_CPU]\n256 = \"few\"\n",
        "NR_CPU",
        "`labels`: there is no axis `NR_CPU`",
        "did you mean `NR_CPUS`?",
    );
    one_more(
        "[labels.OFFSTACK]\nn = \"same\"\ny = \"same\"\n",
        "\"same\"",
        "two values of `OFFSTACK` are labelled `same`",
        "change one",
    );
    one_more(
        "[labels.OFFSTACK]\nn = \"a\\nb\"\n",
        "\"a\\nb\"",
        "`labels` holds the control character \\u{a}",
        "one line",
    );
}

#[test]
fn kernel_faults() {
    let case = |line: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[kernel]\n{line}\n"), place, message, help);
    };
    case("base = \"deconfig\"", "\"deconfig\"", "`base` cannot be `deconfig`", "did you mean `defconfig`?");
    case("base = \"x/y\"", "\"x/y\"", "base configuration `x/y` is not there", "relative");
    case(
        "fragments = [\"minimum\"]",
        "\"minimum\"",
        "unknown fragment `minimum`",
        "did you mean `minimal`? possible: `minimal`, `boot`",
    );
    case("fragments = [\"x.config\"]", "\"x.config\"", "fragment `x.config` is not there", "looked for");
    case("patches = [\"a.patch\"]", "\"a.patch\"", "patch `a.patch` is not there", "looked for");
    case("config = { \"A B\" = 1 }", "\"A B\"", "`A B` cannot be a Kconfig symbol", "capitals");
    case("config = { A = 'x\"' }", "'x\"'", "`A` cannot be `x\\\"`", "no quotes");
    case(
        "config = { CONFIG_CPUMASK_OFFSTACK = \"y\" }",
        "CONFIG_CPUMASK_OFFSTACK",
        "`CONFIG_CPUMASK_OFFSTACK` is set in `config` and is an axis",
        "axis `OFFSTACK` sets it",
    );
    case(
        "config = { A = 1, CONFIG_A = 2 }",
        "CONFIG_A",
        "`CONFIG_A` is set already under another name",
        "keep one",
    );
    case("toolchain = \"clang\"", "\"clang\"", "`toolchain` cannot be `clang`", "possible: `gcc`, `llvm`");
    case("toolchain = \"-a-\"", "\"-a-\"", "`toolchain` cannot be `-a-`", "a `-` at its end");
    case("make = [\"-j8\"]", "\"-j8\"", "`-j8` is no variable for make", "NAME=VALUE");
    for own in ["O=out", "ARCH=arm", "CROSS_COMPILE=x-", "LLVM=1", "KBUILD_OUTPUT=x"] {
        let name = own.split('=').next().unwrap();
        let place = format!("\"{own}\"");
        case(&format!("make = [{place}]"), &place, &format!("`make` cannot set `{name}`"), "axis");
    }
    case(
        "make = [\"A=$(shell id)\"]",
        "\"A=$(shell id)\"",
        "`A=$(shell id)` holds a `$` or a control character",
        "write the value out",
    );
    one(
        &with_axes("arch = [\"riscv64\", \"aarch64\"]\n[kernel]\ntoolchain = \"x-\""),
        "\"x-\"",
        "one prefix, `x-`, cannot compile for several architectures",
        "usual prefix",
    );
}

#[test]
fn ways_of_starting_a_guest_are_read() {
    let m = load_text(&format!(
        "{GOOD}[boot]\naccel = \"icount\"\nfirmware = \"stock\"\nonline = \"staged\"\nperturb = 5\n"
    ));
    assert_eq!(
        (m.boot.accel, m.boot.online, m.boot.firmware),
        (Accel::Icount, Online::Staged, Firmware::Stock)
    );
    assert_eq!((m.boot.perturb, m.boot.boots), (true, 5));
    assert_eq!(m.boot.silence_s, 600, "such a guest's clock is slow");
    let file = load_text(&format!("{GOOD}[boot]\nfirmware = \"Cargo.toml\"\n"));
    assert_eq!(file.boot.firmware, Firmware::File(dir().join("Cargo.toml")));
    assert_eq!((file.boot.accel, file.boot.perturb, file.boot.boots), (Accel::Auto, false, 1));
}

#[test]
fn kernels_that_are_not_booted_have_sizes_alone() {
    let sizes = "[[table]]\nmetric = \"vmlinux.text\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n";
    assert_eq!(load_text(&format!("{GOOD}[boot]\nboots = 0\n{sizes}")).boot.boots, 0);
    let help = "have sizes alone: boots = 1";
    let time = sizes.replace("vmlinux.text", "boot.init");
    one_more(&format!("[boot]\nboots = 0\n{time}"), "0", "a table shows `boot.init`, but `boots` is 0", help);
    let benchmark = "[[benchmark]]\nuse = \"hackbench\"\n";
    let message = "`hackbench` would never run: `boots` is 0";
    one_more(&format!("[boot]\nboots = 0\n{benchmark}"), "0", message, help);
}

#[test]
fn boot_faults() {
    let case = |line: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[boot]\n{line}\n"), place, message, help);
    };
    case("boots = 2\nperturb = 2", "2", "`boots` beside `perturb`", "`perturb` says");
    case("perturb = 0", "0", "`perturb` cannot be 0", "perturb = 1");
    case("accel = \"warp\"", "\"warp\"", "`accel` cannot be `warp`", "icount");
    case("firmware = \"nowhere.elf\"", "\"nowhere.elf\"", "firmware `nowhere.elf` is not there", "");
    case("vcpus = 0", "0", "`vcpus` cannot be 0", "1 to 4096");
    case("boots = 0\nuntil = \"1%\"", "0", "`until` beside `boots = 0`", "boots = 1");
    case("boots = -1", "-1", "`boots` cannot be -1", "0 to 1000");
    for memory in ["1", "G", "1.5G", "0M", "1T", "99999999999999999999G", "-1G"] {
        let place = format!("\"{memory}\"");
        case(
            &format!("memory = {place}"),
            &place,
            &format!("`memory` cannot be `{memory}`"),
            "memory = \"1G\"",
        );
    }
    case(
        "deadline = \"10\"",
        "\"10\"",
        "`deadline` is no duration: `10`: time unit needed, for example 10sec or 10ms",
        "\"10m\"",
    );
    case("silence = \"0s\"", "\"0s\"", "`silence` of `0s` is less than a second", "at least a second");
    case(
        "qemu_args = \"-cpu 'max\"",
        "\"-cpu 'max\"",
        "`qemu_args` cannot be split into words: missing closing quote",
        "give an array",
    );
    case(
        "qemu_args = [\"-smp\", \"8\"]",
        "[\"-smp\", \"8\"]",
        "`qemu_args` cannot hold `-smp`",
        "[boot] vcpus",
    );
    case("until = \"1\"", "\"1\"", "`until` cannot be `1`", "until = \"±1%\"");
    case("until = \"±0%\"", "\"±0%\"", "`until` cannot be `±0%`", "of the mean");
    case("until = \"1%\"\nperturb = 3", "\"1%\"", "`until` beside `perturb`", "in pairs");
    for wrong in ["10", "0%", "101%", "none", "NaN%", "-1%"] {
        let line = format!("max_other_load = \"{wrong}\"");
        let message = format!("`max_other_load` cannot be `{wrong}`");
        case(&line, &format!("\"{wrong}\""), &message, "max_other_load = \"10%\"");
    }
    case("allow = ['(']", "'('", "`allow` holds no regular expression: unclosed group", "allow = ['WARNING");
    case("allow = ['x*']", "'x*'", "`allow` holds a pattern that matches every line", "allow = ['WARNING");
    case("cmdline = \"a\\nb\"", "\"a\\nb\"", "`cmdline` holds the control character \\u{a}", "one line");
    one(
        &with_axes("arch = \"riscv64\"\nvcpus = [1, 2]\n[boot]\nvcpus = 2"),
        "2",
        "`vcpus` is given in `[boot]` and as an axis",
        "keep one",
    );
}

#[test]
fn a_topology_is_read_and_varied() {
    let m = load_text(&with_axes(
        "arch = \"aarch64\"\nnuma = [1, 2, 4]\n[boot]\nvcpus = 16\nthreads = 2\nnuma_distance = 40",
    ));
    assert_eq!(ids(&m)[2], "aarch64-numa=4");
    let shape = |i: usize| m.boot_of(&m.cells[i]).shape().unwrap().unwrap();
    assert_eq!((shape(0).levels, shape(0).nodes.len()), ([1, 1, 8, 2], 1));
    assert_eq!((shape(2).levels, shape(2).nodes.len()), ([4, 1, 2, 2], 4));
    assert_eq!(shape(2).nodes[1].distances, [40, 10, 40, 40]);
    assert_eq!(shape(2).nodes[3].cpus, 12..16);
    assert_eq!(load_text(GOOD).boot.shape(), Ok(None), "not asked for");

    let m = load_text(&with_axes(
        "arch = \"aarch64\"\nsockets = 2\nclusters = 2\ncores = 2\nthreads = 1\n[boot]\nvcpus = 8",
    ));
    assert_eq!(ids(&m), ["aarch64-sockets=2-clusters=2-cores=2-threads=1"]);
    assert_eq!(m.boot_of(&m.cells[0]).shape().unwrap().unwrap().levels, [2, 2, 2, 1]);
}

#[test]
fn memory_of_nodes_makes_the_guest_s() {
    let of = |boot: &str| load_text(&format!("{GOOD}[boot]\n{boot}")).boot;
    let boot = of("numa = 2\nnuma_memory = [\"1G\", \"256M\"]\nnuma_distances = [[10, 30], [30, 10]]");
    assert_eq!(boot.memory_mib, 1280);
    let nodes = boot.shape().unwrap().unwrap().nodes;
    assert_eq!((nodes[1].memory_mib, nodes[1].distances.as_slice()), (256, [30, 10].as_slice()));
    assert_eq!(of("numa = 2\nmemory = \"2G\"").shape().unwrap().unwrap().nodes[0].memory_mib, 1024);
}

#[test]
fn topology_faults() {
    let case = |boot: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[boot]\n{boot}"), place, message, help)
    };
    case("numa = 0", "0", "`numa` cannot be 0", "1 to 4096");
    case(
        "cores = 3",
        "3",
        "4 vcpus do not divide into 1 clusters x 3 cores x 1 threads",
        "sockets x clusters",
    );
    case("numa = 3", "3", "4 vcpus cannot be split evenly among 3 NUMA nodes", "3 or 12");
    case("numa_distance = 20", "20", "`numa_distance` without `numa`", "numa = 2");
    case("numa_memory = [\"1G\"]", "[\"1G\"]", "`numa_memory` without `numa`", "numa = 2");
    case("numa = 2\nnuma_memory = [\"1G\", \"32M\"]", "\"32M\"", "`numa_memory` cannot be `32M`", "64M to");
    case(
        "numa = 2\nnuma_memory = [\"1G\", \"1G\", \"1G\"]",
        "[\"1G\", \"1G\", \"1G\"]",
        "`numa_memory` has 3 figures for 2 NUMA nodes",
        "one for each node",
    );
    case(
        "numa = 2\nnuma_memory = [\"1G\", \"1G\"]\nmemory = \"3G\"",
        "[\"1G\", \"1G\"]",
        "the nodes of `numa_memory` have 2048M, the guest has 3072M",
        "memory = \"2048M\"",
    );
    case("numa = 2\nnuma_distance = 10", "10", "a distance of `numa_distance` cannot be 10", "11 to 254");
    case(
        "numa = 2\nnuma_distances = [[10], [20, 10]]",
        "[10]",
        "a row of `numa_distances` has 1 distances, not 2",
        "[[10, 20], [20, 10]]",
    );
    case(
        "numa = 2\nnuma_distances = [[11, 20], [20, 10]]",
        "11",
        "a distance of `numa_distances` cannot be 11",
        "10 from a node to itself",
    );
    case(
        "numa = 2\nnuma_distances = [[10, 9], [20, 10]]",
        "9",
        "a distance of `numa_distances` cannot be 9",
        "11 to 254",
    );
    case(
        "numa = 2\nnuma_distances = [[10, 20], [30, 10]]",
        "30",
        "nodes 0 and 1 are 20 apart one way, 30 the other",
        "either direction",
    );
    case(
        "numa = 2\nnuma_distance = 30\nnuma_distances = [[10, 20], [20, 10]]",
        "30",
        "`numa_distance` beside `numa_distances`",
        "keep one",
    );
    case(
        "numa = 4\nnuma_distances = [[10, 20], [20, 10]]",
        "[[10, 20], [20, 10]]",
        "`numa_distances` has 2 rows for 4 NUMA nodes",
        "a row for each node",
    );
    case("qemu_args = \"-numa node\"", "\"-numa node\"", "`qemu_args` cannot hold `-numa`", "[boot] numa");
    case(
        "numa = 4\nmemory = \"128M\"",
        "\"128M\"",
        "128M of memory cannot be split evenly among 4 NUMA nodes",
        "memory = \"256M\"",
    );
}

#[test]
fn topologies_must_fit_machines() {
    let case = |arch: &str, boot: &str, place: &str, message: &str, help: &str| {
        one(&with_axes(&format!("arch = [{arch}]\n[boot]\nvcpus = 16\n{boot}")), place, message, help);
    };
    case(
        "\"riscv64\"",
        "threads = 2",
        "2",
        "a machine of `riscv64` has `threads` = 1, not 2",
        "leave out `threads`",
    );
    case(
        "\"aarch64\", \"riscv64\"",
        "sockets = 2",
        "2",
        "a machine of `riscv64` has `sockets` = 1, not 2",
        "its NUMA nodes are its sockets",
    );
    case(
        "\"aarch64\", \"riscv64\"",
        "numa = 8",
        "8",
        "8 NUMA nodes are more than a machine of `riscv64` can have",
        "at most 4",
    );
    case(
        "\"aarch64\"",
        "numa = 2\nsockets = 1",
        "2",
        "a cluster of 16 vCPUs lies across NUMA nodes of 8, as on no machine",
        "whole clusters",
    );
    let both = with_axes("arch = [\"riscv64\", \"aarch64\"]\nvcpus = [4, 8]\nnuma = [2, 4]\n");
    assert_eq!(load_text(&both).cells.len(), 8);
}

#[test]
fn what_two_axes_make_together_is_checked_cell_by_cell() {
    let text = with_axes("arch = \"riscv64\"\nvcpus = [4, 6]\nnuma = [1, 4]");
    one(&text, "4", "6 vcpus cannot be split evenly among 4 NUMA nodes", "multiple of numa");
    let without = format!("{text}[[exclude]]\nvcpus = 6\nnuma = 4\n");
    assert_eq!(load_text(&without).cells.len(), 3);
    one(
        &with_axes("arch = \"riscv64\"\nnuma = [1, 2]\n[boot]\nnuma = 2"),
        "2",
        "`numa` is given in `[boot]` and as an axis",
        "keep one",
    );
    one_axis("arch = \"riscv64\"\nnuma = \"two\"", "\"two\"", "`numa` cannot be `two`", "whole number");
}

#[test]
fn benchmark_faults() {
    let case = |lines: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[[benchmark]]\n{lines}\n"), place, message, help);
    };
    let hack = "use = \"hackbench\"\n";
    case(
        "use = \"hackbnech\"",
        "\"hackbnech\"",
        "unknown benchmark `hackbnech`",
        "did you mean `hackbench`?",
    );
    case(&format!("{hack}repeat = 0"), "0", "`repeat` cannot be 0", "repeat = 1");
    case(
        &format!("{hack}timeout = \"x\""),
        "\"x\"",
        "`timeout` is no duration: `x`: expected number at 0",
        "\"90s\"",
    );
    case(&format!("{hack}command = \"x\""), "\"x\"", "`use` and `command` do not go together", "remove one");
    case(&format!("{hack}section = \"x\""), "\"x\"", "`use` and `section` do not go together", "remove one");
    case(
        &format!("{hack}args = \"'\""),
        "\"'\"",
        "`args` cannot be split into words: missing closing quote",
        "array",
    );
    case(
        &format!("{hack}name = \"vmlinux\""),
        "\"vmlinux\"",
        "`name` of a benchmark cannot be `vmlinux`",
        "letters",
    );
    case(&format!("{hack}name = \"a.b\""), "\"a.b\"", "`name` of a benchmark cannot be `a.b`", "letters");
    case(&format!("{hack}packages = [\"-o\"]"), "\"-o\"", "`-o` cannot be a package's name", "rt-tests");
    case(&format!("{hack}files = [\"no/file\"]"), "\"no/file\"", "file `no/file` is not there", "looked for");
    case(
        &format!("{hack}files = [\"kernel-configs/{{arch}}-no\"]"),
        "\"kernel-configs/{arch}-no\"",
        "file `kernel-configs/{arch}-no` is not there for `riscv64`",
        "looked in",
    );
    case(
        &format!("{hack}files = [\"Cargo.toml\", \"src/../Cargo.toml\"]"),
        "\"src/../Cargo.toml\"",
        "two files would be /bin/Cargo.toml",
        "rename",
    );
    case(
        &format!("{hack}[[benchmark]]\nuse = \"hackbench\""),
        "\"hackbench\"",
        "there are two benchmarks `hackbench`",
        "name = \"hackbench-2\"",
    );
    case(
        "command = \"x\"\npattern = '(?<t>.)'",
        "[[benchmark]]",
        "this `[[benchmark]]` has no `name`",
        "name = \"mybench\"",
    );
    let own = |lines: &str| format!("name = \"b\"\nunit = \"s\"\nbetter = \"lower\"\n{lines}");
    case(
        &own("pattern = '(?<t>.)'"),
        "[[benchmark]]",
        "this `[[benchmark]]` has no `command`",
        "command = \"mybench",
    );
    case(&own("command = \"x\""), "[[benchmark]]", "this `[[benchmark]]` has no `pattern`", "(?<time>");
    case(&own("command = \"\"\npattern = '(?<t>.)'"), "\"\"", "`command` names no program", "mybench");
    case(
        &own("command = \"x\"\npattern = '(?<t>.)'\nsection = '['"),
        "'['",
        "`section` is no regular expression: unclosed character class",
        "'^Latencies'",
    );
    case(
        &own("command = \"x\"\npattern = '(?<t>.'"),
        "'(?<t>.'",
        "`pattern` is no regular expression: unclosed group",
        "single quotes",
    );
    case(
        &own("command = \"x\"\npattern = 'took (.)'"),
        "'took (.)'",
        "`pattern` has no named group",
        "(?<time>",
    );
    case(
        &own("command = \"x\"\npattern = '(?<time>.)'\nmetrics.tme.unit = \"ms\""),
        "tme",
        "`pattern` has no group `tme`",
        "did you mean `time`?",
    );
    case(
        "name = \"b\"\ncommand = \"x\"\npattern = '(?<t>.)'\nunit = \"s\"",
        "'(?<t>.)'",
        "metric `t` has no `better`",
        "better = \"lower\"",
    );
    case(
        "name = \"b\"\ncommand = \"x\"\npattern = '(?<t>.)'\nbetter = \"lower\"",
        "'(?<t>.)'",
        "metric `t` has no `unit`",
        "unit = \"s\"",
    );
    case(
        &own("command = \"x\"\npattern = '(?<t>.)'\nargs = \"y\""),
        "\"y\"",
        "`args` without `use`",
        "command = ",
    );
}

#[test]
fn table_faults() {
    let pivot = |lines: &str| {
        format!("[[table]]\nmetric = \"vmlinux.file\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n{lines}\n")
    };
    let case =
        |lines: &str, place: &str, message: &str, help: &str| one_more(&pivot(lines), place, message, help);
    case("derived = []", "[]", "`derived` is empty", "difference");
    case("derived = [\"ratio\", \"ratio\"]", "\"ratio\"", "this derived row is there already", "remove it");
    case("decimals = 13", "13", "`decimals` cannot be 13", "0 to 12");
    case("percent_decimals = -1", "-1", "`percent_decimals` cannot be -1", "0 to 12");
    case("where = { HZ = 1 }", "HZ", "`where`: there is no axis `HZ`", "possible");
    case(
        "where = { NR_CPUS = [256, 257] }",
        "257",
        "`where`: axis `NR_CPUS` has no value `257`",
        "did you mean `256`?",
    );
    case(
        "row = \"x\"",
        "\"x\"",
        "`row` belongs to layout = \"list\" or \"compare\"",
        "change the table's layout",
    );
    case("title = \"a\\tb\"", "\"a\\tb\"", "`title` holds the control character \\u{9}", "one line");
    case(
        "[[exclude]]\nNR_CPUS = 256\nOFFSTACK = \"y\"\n[[table]]\nmetric = \"image.file\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\nwhere = { NR_CPUS = 256, OFFSTACK = \"y\" }",
        "{ NR_CPUS = 256, OFFSTACK = \"y\" }",
        "no cell takes part in this table",
        "widen `where`",
    );

    let table = |lines: &str| format!("[[table]]\n{lines}\n");
    one_more(
        &table("columns = \"NR_CPUS\"\nrows = \"OFFSTACK\""),
        "[[table]]",
        "this `[[table]]` has no `metric`",
        "metric = \"vmlinux.file\"",
    );
    one_more(
        &table("metric = \"vmlinux.txt\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\""),
        "\"vmlinux.txt\"",
        "unknown metric `vmlinux.txt`",
        "did you mean `vmlinux.text`?",
    );
    one_more(
        &table("metric = \"hackbench.time\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\""),
        "\"hackbench.time\"",
        "unknown metric `hackbench.time`",
        "possible: `vmlinux.file`",
    );
    one_more(
        &table("metric = \"vmlinux.section.\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\""),
        "\"vmlinux.section.\"",
        "unknown metric `vmlinux.section.`",
        "`vmlinux.section.NAME`",
    );
    one_more(
        &table("metric = \"image.file\"\ncolumns = \"NR_CPU\"\nrows = \"OFFSTACK\""),
        "\"NR_CPU\"",
        "`columns`: there is no axis `NR_CPU`",
        "did you mean `NR_CPUS`?",
    );
    one_more(
        &table("metric = \"image.file\"\ncolumns = [\"NR_CPUS\", \"arch\"]\nrows = \"OFFSTACK\""),
        "[\"NR_CPUS\", \"arch\"]",
        "`columns` of a pivot is one axis",
        "layout = \"list\"",
    );
    one_more(
        &table("metric = \"image.file\"\ncolumns = \"NR_CPUS\"\nrows = \"CONFIG_NR_CPUS\""),
        "\"CONFIG_NR_CPUS\"",
        "`rows` and `columns` are the same axis",
        "possible: `arch`, `OFFSTACK`",
    );
    one_more(
        &table("metric = \"image.file\"\ncolumns = \"NR_CPUS\"\nrows = \"arch\"\nderived = [\"ratio\"]"),
        "[\"ratio\"]",
        "`derived` compares rows, but axis `arch` has one value",
        "`NR_CPUS`, `OFFSTACK`",
    );
}

#[test]
fn list_table_faults() {
    let case = |lines: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[[table]]\nlayout = \"list\"\n{lines}\n"), place, message, help);
    };
    let label = "columns = [\"label\"]\n";
    case("", "[[table]]", "this `[[table]]` has no `columns`", "difference:vmlinux.text");
    case(
        "columns = [\"vmlinux.tex\"]",
        "\"vmlinux.tex\"",
        "unknown metric `vmlinux.tex`",
        "did you mean `vmlinux.text`?",
    );
    case(
        "columns = [\"difference:vmlinux.text+vmlinux\"]",
        "\"difference:vmlinux.text+vmlinux\"",
        "unknown metric `vmlinux`",
        "did you mean",
    );
    case(
        &format!("{label}metric = \"image.file\""),
        "\"image.file\"",
        "`metric` belongs to layout = \"pivot\" or \"compare\"",
        "remove it",
    );
    case(
        &format!("{label}row = \"{{OFFSTACK}}{{HZ}}\""),
        "\"{OFFSTACK}{HZ}\"",
        "`row`: there is no axis `HZ`",
        "possible",
    );
    case(
        &format!("{label}row = \"{{OFFSTACK\""),
        "\"{OFFSTACK\"",
        "`row` has a brace without its partner",
        "in braces",
    );
    case(
        &format!("{label}row = \"OFFSTACK}}\""),
        "\"OFFSTACK}\"",
        "`row` has a brace without its partner",
        "in braces",
    );
    case(
        &format!("{label}row = \"{{OFFSTACK}}\""),
        "\"{OFFSTACK}\"",
        "two rows would be labelled `n`: riscv64-NR_CPUS=256-OFFSTACK=n and riscv64-NR_CPUS=512-OFFSTACK=n",
        "every axis that varies",
    );
    case(
        &format!("{label}baseline = {{ NR_CPUS = 256 }}"),
        "{ NR_CPUS = 256 }",
        "`baseline` means 2 cells: `riscv64-NR_CPUS=256-OFFSTACK=n`, `riscv64-NR_CPUS=256-OFFSTACK=y`",
        "as many axes",
    );
    case(
        &format!("{label}baseline = {{ NR_CPUS = 128 }}"),
        "128",
        "`baseline`: axis `NR_CPUS` has no value `128`",
        "possible",
    );
    case(
        &format!("{label}where = {{ NR_CPUS = 512 }}\nbaseline = {{ NR_CPUS = 256 }}"),
        "{ NR_CPUS = 256 }",
        "no cell of this table is the `baseline`",
        "NR_CPUS = 256",
    );
    case(
        &format!("{label}layuot = 1"),
        "layuot",
        "unknown key `layuot` in `table`",
        "did you mean `layout`?",
    );
}

#[test]
fn comparison_faults() {
    let case = |lines: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[[table]]\nlayout = \"compare\"\n{lines}\n"), place, message, help);
    };
    let crossed =
        |lines: &str| format!("metric = \"image.file\"\ncolumns = \"OFFSTACK\"\nrows = \"NR_CPUS\"\n{lines}");
    let metrics =
        |lines: &str| format!("columns = \"OFFSTACK\"\nrows = [\"vmlinux.text\", \"vmlinux.data\"]\n{lines}");
    let none = "this `[[table]]` has no";
    case("rows = [\"image.file\"]", "[[table]]", &format!("{none} `columns`"), "columns = \"NR_CPUS\"");
    case("columns = \"NR_CPUS\"", "[[table]]", &format!("{none} `rows`"), "rows = [\"vmlinux.text\"");
    let no_metric = "columns = \"NR_CPUS\"\nrows = \"OFFSTACK\"";
    case(no_metric, "[[table]]", &format!("{none} `metric`"), "or name metrics");
    case(
        "columns = \"arch\"\nrows = [\"image.file\"]",
        "\"arch\"",
        "nothing to compare: axis `arch` has one value",
        "`NR_CPUS`, `OFFSTACK`",
    );
    case(
        "columns = \"NR_CPUS\"\nrows = [\"vmlinux.tex\"]",
        "\"vmlinux.tex\"",
        "unknown metric `vmlinux.tex`",
        "did you mean `vmlinux.text`?",
    );
    case("columns = \"NR_CPUS\"\nrows = []", "[]", "`rows` is empty", "name metrics");
    case(
        "columns = \"NR_CPUS\"\nrows = [\"image.file\", \"image.file\"]",
        "\"image.file\"",
        "this row is there already",
        "remove it",
    );
    case(
        "metric = \"image.file\"\ncolumns = \"NR_CPUS\"\nrows = [\"OFFSTACK\", \"arch\"]",
        "[\"OFFSTACK\", \"arch\"]",
        "`rows` of a comparison is one axis",
        "remove `metric`",
    );
    case(
        &crossed("row = \"{OFFSTACK} {NR_CPUS}\""),
        "\"{OFFSTACK} {NR_CPUS}\"",
        "`row` names the axis `OFFSTACK`, which is across",
        "remove it",
    );
    case(
        &crossed("row = \"on {arch}\""),
        "\"on {arch}\"",
        "`row` does not name `NR_CPUS`: all rows would be labelled alike",
        "row = \"{NR_CPUS}\"",
    );
    case(
        &crossed("row = \"{NR_CPUS} {min:image.file}\""),
        "\"{NR_CPUS} {min:image.file}\"",
        "`row` cannot hold the number `{min:image.file}`",
        "layout = \"lines\"",
    );
    case(&crossed("row_labels = [\"a\", \"b\"]"), "[\"a\", \"b\"]", "`row_labels` beside `metric`", "row = ");
    case(
        &crossed("block = \"{NR_CPUS}\""),
        "\"{NR_CPUS}\"",
        "`block` names the axis `NR_CPUS`, which varies within a block",
        "possible: `arch`",
    );
    case(
        &crossed("derived = [\"ratio\"]"),
        "\"ratio\"",
        "`ratio` belongs to layout = \"pivot\"",
        "change the table's layout",
    );
    case(&crossed("sign = \"better\""), "\"better\"", "`sign` cannot be `better`", "`positive-is-better`");
    case(&crossed("test = \"t\""), "\"t\"", "`test` cannot be `t`", "`mann-whitney`");
    case(
        &crossed("interval = 95"),
        "95",
        "`interval` must be true or false, not integer `95`",
        "interval = true",
    );
    case(
        &crossed("statistic = \"p99\"\ninterval = true"),
        "true",
        "`interval` beside statistic = \"p99\"",
        "intervals are of means and medians",
    );
    case(&crossed("statistic = \"p0\""), "\"p0\"", "`statistic` cannot be `p0`", "`p99`");
    case(&crossed("decimals = 2\nsignificant = 6"), "6", "`significant` beside `decimals`", "keep the one");
    case(&crossed("significant = 0"), "0", "`significant` cannot be 0", "1 to 12");
    case(
        &metrics("row_labels = [\"Text\"]"),
        "[\"Text\"]",
        "1 `row_labels` for 2 rows",
        "one label for each metric",
    );
    case(
        &metrics("row_labels = [\"Text\", \"Text\"]"),
        "\"Text\"",
        "another row has this label",
        "tell the rows apart",
    );
    case(&metrics("row = \"{NR_CPUS}\""), "\"{NR_CPUS}\"", "`row` without `metric`", "row_labels = ");
    one_more(
        "[[table]]\nmetric = \"image.file\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\nderived = [\"geometric_mean\"]\n",
        "\"geometric_mean\"",
        "`geometric_mean` belongs to layout = \"compare\"",
        "remove it",
    );
}

#[test]
fn lines_faults() {
    let case = |lines: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[[table]]\nlayout = \"lines\"\n{lines}\n"), place, message, help);
    };
    case("", "[[table]]", "this `[[table]]` has no `lines`", "lines = [");
    case("lines = []", "[]", "`lines` is empty", "lines = [");
    case("lines = [\"{arch}\"]", "[\"{arch}\"]", "`lines` hold no number", "{p50:hackbench.time}");
    let line = |text: &str, message: &str, help: &str| {
        let line = format!("\"{text}\"");
        case(&format!("lines = [\"{{min:image.file}}\", {line}]"), &line, message, help);
    };
    line("{HZ}", "`lines`: there is no axis `HZ`", "possible");
    line("{max:image.fil}", "unknown metric `image.fil`", "did you mean `image.file`?");
    line("{p101:image.file}", "`lines` has the unknown statistic `p101`", "in braces");
    line("{sum:image.file/image.file}", "`lines` has no statistic for `image.file`", "in braces");
    line("{sum:image.file", "`lines` has a brace without its partner", "in braces");
    let lines = "lines = [\"{min:image.file}\"]\n";
    case(
        &format!("{lines}sign = \"raw\""),
        "\"raw\"",
        "`sign` belongs to layout = \"pivot\" or \"compare\" or \"list\"",
        "remove it",
    );
    for key in ["interval = true", "test = \"welch\""] {
        let (name, value) = key.split_once(" = ").unwrap();
        let message = format!("`{name}` belongs to layout = \"pivot\" or \"compare\" or \"list\"");
        case(&format!("{lines}{key}"), value, &message, "remove it");
    }
    case(
        &format!("{lines}rows = \"arch\""),
        "\"arch\"",
        "`rows` belongs to layout = \"pivot\" or \"compare\"",
        "remove it",
    );
}

#[test]
fn a_faulty_axis_or_benchmark_is_not_blamed_on_what_uses_it() {
    let uses = "[labels.HZ]\n300 = \"x\"\n[[exclude]]\nHZ = 300\n[[table]]\nmetric = \"image.file\"\ncolumns = \"HZ\"\nrows = \"NR_CPUS\"\n";
    for axis in ["HZ = 1.5", "HZ = []", "HZ = [100, \"a\\nb\"]"] {
        let found = faults(&with_axes(&format!("arch = \"riscv64\"\nNR_CPUS = 8\n{axis}\n{uses}")));
        assert_eq!(found.len(), 1, "{axis}: {found:#?}");
    }
    let pivot = "[[table]]\nmetric = \"image.file\"\nrows = \"OFFSTACK\"\n";
    for uses in [
        "columns = \"NR_CPUS\"\nderived = [\"diff\"]",
        "columns = [5]",
        "columns = \"NR_CPUS\"\nwhere = { NR_CPUS = [1.5] }",
        "columns = \"NR_CPUS\"\n[[exclude]]\nNR_CPUS = [1.5]",
        "columns = \"NR_CPUS\"\n[[include]]\nNR_CPUS = 1.5",
    ] {
        let found = faults(&format!("{GOOD}{pivot}{uses}\n"));
        assert_eq!(found.len(), 1, "{uses}: {found:#?}");
    }
    for table in [
        "layout = \"compare\"\nmetric = 5\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"",
        "layout = \"compare\"\nmetric = \"image.file\"\ncolumns = \"NR_CPUS\"\nrows = [5]",
        "layout = \"compare\"\ncolumns = 5\nrows = [\"image.file\"]",
        "layout = \"compare\"\ncolumns = \"NR_CPUS\"\nrows = [5]",
        "layout = \"compare\"\ncolumns = \"NR_CPUS\"\nrows = [\"image.file\"]\nrow_labels = [5]",
        "layout = \"compare\"\ncolumns = \"NR_CPUS\"\nrows = [\"image.file\"]\nderived = [\"mean\"]",
        "layout = \"lines\"\nlines = [5]",
        "layout = \"lines\"\nlines = 5",
        "layout = \"line\"\nlines = [\"{min:image.file}\"]",
    ] {
        let found = faults(&format!("{GOOD}[[table]]\n{table}\n"));
        assert_eq!(found.len(), 1, "{table}: {found:#?}");
    }
    let table = "[[table]]\nmetric = \"b.t\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n";
    one_more(
        &format!("[[benchmark]]\nname = \"b\"\ncommand = \"x\"\npattern = '('\n{table}"),
        "'('",
        "`pattern` is no regular expression: unclosed group",
        "",
    );
}

#[test]
fn a_syntax_error_is_shown_where_it_is() {
    let found = faults("name = \"x\"\naxes = [\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].message.starts_with("not valid TOML"), "{}", found[0].message);
}

// Files.

#[test]
fn shipped_matrices_load() {
    let shipped = |name: &str| {
        let path = dir().join("matrices").join(format!("{name}.toml"));
        let matrix = load(&path, &ctx()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(matrix.name, name);
        matrix
    };
    assert_eq!(shipped("quickstart").cells.len(), 4);
    assert_eq!(ids(&shipped("numa"))[5], "aarch64-NR_CPUS=64-numa=4");
    assert_eq!(shipped("riscv-cpumask-offstack").cells.len(), 14);
    assert_eq!(ids(&shipped("smoke")), ["riscv64-NR_CPUS=64-OFFSTACK=n", "aarch64-NR_CPUS=64-OFFSTACK=n"]);
    let arm64 = shipped("arm64-cpumask-offstack");
    assert_eq!(
        ids(&arm64),
        [
            "aarch64-NR_CPUS=256-OFFSTACK=n",
            "aarch64-NR_CPUS=512-OFFSTACK=n",
            "aarch64-NR_CPUS=512-OFFSTACK=y",
        ]
    );
    assert_eq!(arm64.benchmarks[0].repeat, 10);
}

#[test]
fn paths_are_relative_to_the_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.patch"), "").unwrap();
    let file = dir.path().join("m.toml");
    std::fs::write(&file, format!("{GOOD}[kernel]\npatches = [\"a.patch\"]\n")).unwrap();
    assert_eq!(load(&file, &ctx()).unwrap().kernel.patches, [dir.path().join("a.patch")]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load(Path::new("no/such.toml"), &ctx()).unwrap_err();
    assert!(matches!(error, LoadError::Io { .. }));
    assert!(error.to_string().starts_with("cannot read no/such.toml: "), "{error}");
}

// --only

fn only(texts: &[&str]) -> Result<Matrix, SelectError> {
    let mut matrix = load_text(&format!(
        "{GOOD}[labels.OFFSTACK]\ny = \"offstack\"\n[[exclude]]\nNR_CPUS = 256\nOFFSTACK = \"y\"\n"
    ));
    let only = texts.iter().map(|t| t.parse()).collect::<Result<Vec<Only>, _>>()?;
    select(&mut matrix, &only)?;
    Ok(matrix)
}

#[test]
fn only_keeps_matching_cells_and_their_values() {
    let m = only(&["CPUMASK_OFFSTACK=n", "CONFIG_NR_CPUS=512"]).unwrap();
    assert_eq!(ids(&m), ["riscv64-NR_CPUS=512-OFFSTACK=n"]);
    assert_eq!(m.axes[1].values, ["512"]);
    assert_eq!(ids(&only(&["NR_CPUS=256", "NR_CPUS=512"]).unwrap()).len(), 3, "one axis adds up");
    assert_eq!(ids(&only(&["NR_CPUS=256,512"]).unwrap()).len(), 3);
    assert_eq!(ids(&only(&["OFFSTACK=offstack"]).unwrap()), ["riscv64-NR_CPUS=512-OFFSTACK=y"]);
    assert_eq!(only(&[]).unwrap().cells.len(), 3);
}

#[test]
fn only_says_what_is_possible() {
    let message = |text: &str| only(&[text]).unwrap_err().to_string();
    assert_eq!(
        message("NRCPUS=1"),
        "the matrix has no axis `NRCPUS`: did you mean `NR_CPUS`? possible: `arch`, `NR_CPUS`, `OFFSTACK`"
    );
    assert_eq!(message("NR_CPUS=1024"), "axis `NR_CPUS` has no value `1024`: possible: `256`, `512`");
    assert!(message("NR_CPUS").contains("AXIS=VALUE"));
    assert!(message("=4").contains("AXIS=VALUE"));
    assert!(message("NR_CPUS=4,").contains("AXIS=VALUE"));
    let nothing = only(&["NR_CPUS=256", "OFFSTACK=y"]).unwrap_err().to_string();
    assert_eq!(
        nothing,
        "no cell of the matrix has NR_CPUS=256 and OFFSTACK=y: the matrix file excludes the combination"
    );
}

// Tables of stack frames.

#[test]
fn frames_are_compared_along_an_axis_or_shown_alone() {
    let m = load_text(&format!(
        "{GOOD}[[table]]\nlayout = \"frames\"\ncompare = \"CONFIG_CPUMASK_OFFSTACK\"\ntop = 3\n\
         [[table]]\nlayout = \"frames\"\nwhere = {{ NR_CPUS = 512 }}\n\
         [[table]]\nmetric = \"stack.left\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n"
    ));
    let layouts: Vec<&Layout> = m.tables.iter().map(|t| &t.layout).collect();
    assert_eq!(*layouts[0], Layout::Frames { compare: Some("OFFSTACK".into()), top: 3 });
    assert_eq!(*layouts[1], Layout::Frames { compare: None, top: 10 });
    assert!(m.shows("frames.") && m.shows("stack.left") && !m.shows("vmlinux."));
    let sizes = load_text(&format!(
        "{GOOD}[[table]]\nlayout = \"list\"\ncolumns = [\"vmlinux.file\", \"difference:frames.max\"]\n"
    ));
    assert!(sizes.shows("frames.") && !sizes.shows("stack."));
}

#[test]
fn faults_of_tables_of_frames() {
    let case = |lines: &str, place: &str, message: &str, help: &str| {
        one_more(&format!("[[table]]\nlayout = \"frames\"\n{lines}\n"), place, message, help);
    };
    case("compare = \"OFSTACK\"", "\"OFSTACK\"", "`compare`: there is no axis `OFSTACK`", "`OFFSTACK`");
    case(
        "compare = \"arch\"",
        "\"arch\"",
        "`compare` compares kernels, but axis `arch` has one value",
        "`NR_CPUS`",
    );
    case("top = 0", "0", "`top` cannot be 0", "1 to 1000 is possible");
    case(
        "rows = \"OFFSTACK\"",
        "\"OFFSTACK\"",
        "`rows` belongs to layout = \"pivot\" or \"compare\"",
        "remove it",
    );
    case(
        "baseline = { NR_CPUS = 256 }",
        "{ NR_CPUS = 256 }",
        "`baseline` belongs to layout = \"list\"",
        "remove it",
    );
    let pivot = "[[table]]\nmetric = \"frames.max\"\ncolumns = \"NR_CPUS\"\nrows = \"OFFSTACK\"\n";
    one_more(&format!("{pivot}top = 3\n"), "3", "`top` belongs to layout = \"frames\"", "remove it");
    let bench = "[[benchmark]]\nname = \"frames\"\ncommand = \"x\"\npattern = '(?<t>.)'\nunit = \"s\"\nbetter = \"lower\"\n";
    one_more(bench, "\"frames\"", "`name` of a benchmark cannot be `frames`", "`frames`");
}

// Benchmarks that the kernel runs.

/// As [`load_text`], with the benchmarks that there are.
fn with_builtins(text: &str) -> Result<Matrix, Vec<(String, String)>> {
    let ctx = Context { benchmarks: crate::bench::all().unwrap(), ..ctx() };
    let told = |d: &crate::diag::Diagnostic| (d.message.clone(), d.help.clone());
    parse("test.toml", text, dir(), &ctx).map_err(|e| e.faults.iter().map(told).collect())
}

#[test]
fn parameters_of_the_kernels_own_benchmarks_are_on_its_command_line() {
    let file = |boot: &str, bench: &str| format!("{GOOD}[boot]\n{boot}\n[[benchmark]]\n{bench}\n");
    let cmdline = |boot: &str, bench: &str| with_builtins(&file(boot, bench)).unwrap().boot.cmdline;
    assert_eq!(
        cmdline("cmdline = \"quiet\"", "use = \"rcuscale\"\nparams = { nwriters = 2, gp_exp = true }"),
        "quiet rcuscale.verbose=0 rcuscale.holdoff=20 rcuscale.nwriters=2 rcuscale.gp_exp=y"
    );
    assert_eq!(
        cmdline("", "use = \"refscale\"\nparams = { holdoff = 60, scale_type = \"lock-irq\" }"),
        "refscale.holdoff=60 refscale.scale_type=lock-irq"
    );
    let free = "cmdline = \"rcuscale.kfree-loops=9\"";
    assert_eq!(
        cmdline(free, "use = \"kfree-scale\""),
        "rcuscale.kfree-loops=9 rcuscale.verbose=0 rcuscale.kfree_rcu_test=1",
        "what is usual gives way"
    );
    let varied = GOOD.replace("OFFSTACK = ", "\"rcuscale.holdoff\" = [30, 40]\nOFFSTACK = ");
    let m = with_builtins(&format!("{varied}[[benchmark]]\nuse = \"rcuscale\"\n")).unwrap();
    assert_eq!(m.boot_of(m.cells.last().unwrap()).cmdline, "rcuscale.verbose=0 rcuscale.holdoff=40");
    let twice = format!("{varied}[[benchmark]]\nuse = \"rcuscale\"\nparams = {{ holdoff = 50 }}\n");
    let found = with_builtins(&twice).unwrap_err();
    assert_eq!(found[0].0, "`rcuscale.holdoff` is given here and as an axis");
    let m = with_builtins(&file("", "use = \"rcuscale\"")).unwrap();
    let [bench] = m.benchmarks.as_slice() else { panic!("one benchmark") };
    assert_eq!((bench.repeat, bench.command.len()), (1, 0));
}

#[test]
fn faults_of_the_kernels_own_benchmarks() {
    let fault = |boot: &str, bench: &str, message: &str, help: &str| {
        let text = format!("{GOOD}[boot]\n{boot}\n[[benchmark]]\n{bench}\n");
        let found = with_builtins(&text).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, message);
        assert!(found[0].1.contains(help), "{found:?}");
    };
    let rcuscale = |more: &str| format!("use = \"rcuscale\"\n{more}");
    let own = "of a benchmark that the kernel itself runs";
    fault("", &rcuscale("repeat = 3"), &format!("`repeat` {own}"), "[boot] boots = 3");
    fault("", &rcuscale("timeout = \"1m\""), &format!("`timeout` {own}"), "[boot] deadline");
    fault("", &rcuscale("args = \"-x\""), &format!("`args` {own}"), "params = { nwriters = 1 }");
    fault("", &rcuscale("packages = [\"x\"]"), &format!("`packages` {own}"), "no program");
    fault("", &rcuscale("files = [\"Cargo.toml\"]"), &format!("`files` {own}"), "no program");
    fault(
        "",
        &rcuscale("params = { \"rcuscale.nwriters\" = 1 }"),
        "`rcuscale.nwriters` cannot be a module parameter",
        "without the module's, `rcuscale.`",
    );
    let blank = rcuscale("params = { scale_type = \"a b\" }");
    fault("", &blank, "`scale_type` cannot be `a b`", "without blanks");
    fault(
        "cmdline = \"rcuscale.nwriters=1\"",
        &rcuscale("params = { nwriters = 2 }"),
        "`rcuscale.nwriters` is given here and in `[boot] cmdline`",
        "keep one",
    );
    fault(
        "",
        &rcuscale("[[benchmark]]\nuse = \"hackbench\""),
        "`rcuscale` is run by the kernel, which then powers off",
        "a matrix file of its own",
    );
    fault(
        "",
        "use = \"hackbench\"\nparams = { nwriters = 1 }",
        "`params` of a benchmark that is a program",
        "args = ",
    );
}
