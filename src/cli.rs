//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cache::limit::Most;
use crate::cache::space::Room;
use crate::compare::Unpaired;
use crate::matrix::Only;
use crate::model::Shard;
use crate::report::Format;
use crate::store::DEFAULT_ROOM;

const EXAMPLES: &str = "\
Examples:
  matrix plan matrices/quickstart.toml        what would be built, and why
  matrix run matrices/quickstart.toml         build, boot, measure, print the tables
  matrix run m.toml --only NR_CPUS=512,4096   part of a matrix
  matrix run --resume                         go on with the last run, wherever it ended
  matrix run m.toml --shard 1/4               a quarter of the kernels; then matrix merge
  matrix report latest --format markdown      the last run's tables again
  matrix report --check mail.txt              are the percentages in it right?
  matrix compare runs/before runs/after        what changed, and is it more than chance?
  matrix doctor                               what is missing on this machine
  matrix cache                                what is kept between runs, and how much it may be

Exit codes: 0 every cell is good, 1 a cell failed, 2 wrong input or a missing
program, 3 a comparison found a regression, 130 interrupted (what was measured
until then is on disk).";

/// Build, boot and measure a matrix of Linux kernel configurations.
///
/// A TOML file names axes (architecture, NR_CPUS, OFFSTACK, any Kconfig
/// symbol); every combination of their values is a cell. Each cell's kernel is
/// built with a cross compiler, booted under QEMU and measured; the result is
/// the table for the commit message, with the evidence behind every figure.
#[derive(Debug, Parser)]
#[command(name = "matrix", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How much to say.
    #[command(flatten)]
    pub talk: Talk,
    /// Folder for sources, kernels and guest programs kept between runs
    /// [default: the user's cache folder]
    #[arg(long, global = true, value_name = "DIR", env = "MATRIX_CACHE")]
    pub cache: Option<PathBuf>,
    /// File with the history of runs
    /// [default: matrix/history.sqlite in the user's data folder]
    #[arg(long, global = true, value_name = "FILE", env = "MATRIX_STORE")]
    pub store: Option<PathBuf>,
}

/// How much to say.
#[derive(Debug, Clone, Copy, Args)]
pub struct Talk {
    /// Say nothing but results and faults
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say every step
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build, boot and measure a matrix, then print its tables
    Run(Run),
    /// Say what a run would build and boot, and why
    Plan(Plan),
    /// Join runs of one matrix, such as its shards, into one
    Merge(Merge),
    /// Print the tables of a run
    Report(Report),
    /// Say what changed between two runs, and whether it is more than chance
    Compare(Compare),
    /// List the runs of the history, or what they measured over time
    History(History),
    /// Write the whole history to a file, one JSON object a line
    Export {
        /// File to write, or `-` for standard output
        file: PathBuf,
    },
    /// Add the runs of an exported history
    Import {
        /// File to read, or `-` for standard input
        file: PathBuf,
    },
    /// List architectures, benchmarks, configuration fragments and runs
    List(List),
    /// Print the JSON Schema of matrix files, for editors
    Schema,
    /// Say what is installed, what is missing and how to install it
    Doctor(Doctor),
    /// Show what is kept between runs, limit it or remove it
    Cache(Caching),
    /// Short for `matrix cache clear`
    Clean(Clear),
    /// Print a completion script for a shell
    ///
    /// For bash: matrix completions bash > ~/.local/share/bash-completion/completions/matrix
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each command
    ///
    /// Without a folder the main page goes to standard output.
    Man {
        /// Folder to write to
        dir: Option<PathBuf>,
    },
}

/// A matrix file and the part of it that is wanted.
#[derive(Debug, Args)]
pub struct Selection {
    /// The matrix file
    pub file: PathBuf,
    /// Only the cells with one of these values on an axis; may be repeated
    #[arg(long, value_name = "AXIS=VALUE[,VALUE..]")]
    pub only: Vec<Only>,
}

/// `matrix run`
#[derive(Debug, Args)]
#[command(after_help = "\
The tables go to standard output, progress to standard error. Kernels that are
in the cache are not built again. The first Ctrl-C stops cleanly and keeps what
was measured; the second kills.

However a run ended, --resume goes on with it and does what is missing: a boot
is recorded whole or not at all, and never done a second time. It takes the
matrix from the run itself; a matrix file given beside it must be the one that
the run began with. It refuses where what is left could not be compared with
what is there: kernels of a changed source or compiler, other guest programs,
another QEMU, under wall-clock timing another processor.

A failure of the cell's own (a compile error, a panic, a benchmark's) is a
result and stays; --retry-failed does those again and replaces them. A failure
of this machine's (a full disk, an archive out of reach, others that kept it
busy while a clock timed a boot) is done again by every --resume.

Boots go in rounds over all cells, each round in a random order that follows
from the seed in run.json. Under wall-clock timing with several boots a cell
they begin when all kernels are built, so that all find the same machine.")]
pub struct Run {
    /// The matrix file
    #[arg(required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Only the cells with one of these values on an axis; may be repeated
    #[arg(long, value_name = "AXIS=VALUE[,VALUE..]", conflicts_with = "resume")]
    pub only: Vec<Only>,
    /// Do what is missing of an earlier run [default: latest, the newest one below matrix-runs]
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "latest")]
    pub resume: Option<PathBuf>,
    /// Do boots and builds that failed again, and replace them
    #[arg(long, requires = "resume")]
    pub retry_failed: bool,
    /// Do part K of N, each with as many of the kernels; `matrix merge` joins them
    #[arg(long, value_name = "K/N", conflicts_with = "resume")]
    pub shard: Option<Shard>,
    /// What the order of boots follows from [default: a new one each time]
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    pub seed: Option<u64>,
    /// Compiler processes at once [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Leave the object trees of the kernels in the cache (below `work`), to look
    /// into; they are large
    #[arg(long)]
    pub keep_objects: bool,
    /// Compile without ccache, which is used where it is installed
    #[arg(long)]
    pub no_ccache: bool,
    /// Show the plan with all commands and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Run directory to create [default: a fresh one below matrix-runs]
    #[arg(short, long, value_name = "DIR", conflicts_with = "resume")]
    pub output: Option<PathBuf>,
    /// Ask the distribution for newer source and guest packages
    #[arg(long, conflicts_with = "resume")]
    pub refresh: bool,
    /// Add the run to the history when it is done (not if it is interrupted)
    #[arg(long)]
    pub record: bool,
    /// Form of what is printed at the end
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub format: Form,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Form {
    /// Plain text for commit messages and mail, 75 columns wide
    #[default]
    Text,
    /// GitHub-flavoured Markdown
    Markdown,
    /// One line a field, under one header for all tables
    Csv,
    /// Everything, footnotes and evidence included
    Json,
    /// A page with plots that opens without a network
    Html,
    /// Test results for CI systems: a test for each cell
    Junit,
    /// The form of the kernel community's result database
    Kcidb,
    /// Tables and what they were measured with, for a commit message
    CommitMessage,
}

/// `matrix plan`
#[derive(Debug, Args)]
pub struct Plan {
    /// Matrix file and part of it.
    #[command(flatten)]
    pub selection: Selection,
    /// Show the make and QEMU command of each cell
    #[arg(long)]
    pub commands: bool,
    /// Form of the plan
    #[arg(long, value_enum, default_value_t = PlanFormat::Text, conflicts_with = "commands")]
    pub format: PlanFormat,
    /// Parts of a github-matrix [default: one for each kernel]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub shards: Option<u32>,
}

/// How a plan is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// For people: what is built, and why.
    Text,
    /// JSON for `strategy.matrix` of a GitHub Actions job: shards of a run.
    GithubMatrix,
}

/// `matrix merge`
#[derive(Debug, Args)]
#[command(after_help = "\
The runs must be of the same matrix file and the same --only, by the same
version of matrix, the same programs, sources, kernels and guests. A boot that
was measured twice is refused, unless it says the same to the last digit, as
counted instructions do. What no run has measured is `missing` in the tables,
and `matrix run --resume` of the new run directory measures it.")]
pub struct Merge {
    /// Run directories
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Run directory to create [default: a fresh one below matrix-runs]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Form of what is printed at the end
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub format: Form,
}

/// `matrix report`
#[derive(Debug, Args)]
#[command(after_help = "\
--check looks for tables with percentages in a commit message or a mail: rows
of differences below the rows that they compare, lists against a first row or
`(baseline)`, values before and after with their change, and `label: base
(0.00 pct) new (1.23 pct)`. It computes each figure again from the numbers
printed beside it and names those that are wrong, were cut off instead of
rounded, or are right only for the numbers before these were rounded.

Exit codes with --check: 0 nothing is wrong or cut off, 1 something is, 2 the
file cannot be read or has nothing that could be checked.")]
pub struct Report {
    /// Run directory, or `latest`
    #[arg(required_unless_present = "check")]
    pub run: Option<PathBuf>,
    /// Instead of a run's tables, check the percentages in a commit message or
    /// a mail; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "runs", "commit_message"])]
    pub check: Option<PathBuf>,
    /// Form of the report; of a check `text` or `json`
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub format: Form,
    /// Short for `--format commit-message`
    #[arg(long, conflicts_with = "format")]
    pub commit_message: bool,
    /// Where `latest` looks for runs
    #[arg(long, value_name = "DIR", default_value = DEFAULT_ROOM)]
    pub runs: PathBuf,
}

/// `matrix compare`
#[derive(Debug, Args)]
#[command(after_help = "\
A run is: a run directory; or, in the history, a run's number, `latest`,
`latest~N`, a baseline's name, a date or time (the newest run begun until then)
or a revision (the newest run of it).

One observation is the mean of one boot. Counted instructions and sizes repeat
to the last digit: there a difference is a difference, or, under `perturb`,
a paired t-test over boots with the same seed.

Exit codes: 0 no regression found (what cannot be tested says so), 1 a cell that
had a value has none any more, 2 wrong input, 3 a regression: worse,
significantly, and beyond the threshold.")]
pub struct Compare {
    /// What to compare with
    pub base: String,
    /// What to compare
    pub new: String,
    /// Only this metric, as `hackbench.time`; may be repeated
    #[arg(long, value_name = "NAME")]
    pub metric: Vec<String>,
    /// Only the metrics that the tables of NEW show, which has to be a run directory
    #[arg(long, conflicts_with = "metric")]
    pub tables: bool,
    /// Only the cells with one of these values on an axis; may be repeated
    #[arg(long, value_name = "AXIS=VALUE[,VALUE..]")]
    pub only: Vec<Only>,
    /// Largest change that is no regression, in percent of the base: `2%`
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    pub threshold: f64,
    /// Test for boots that are not paired by a seed
    #[arg(long, value_enum, default_value_t)]
    pub test: Unpaired,
    /// Form of the tables
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let good = number.ok().filter(|n| n.is_finite() && *n >= 0.0);
    good.ok_or_else(|| "not a percentage of 0 or more, such as `2%`".to_owned())
}

/// `matrix history`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
With a metric, each run's value is held against that of the run before, as
`matrix compare` does it, all tests of the runs shown corrected together: a
change is a `regression` or an `improvement` if it is significant and beyond the
threshold.

Exit codes: 0, whatever the values are, unless --check is given; with --check 1
if a cell that had a value has none in its newest run, 3 if a cell's newest value
is a regression; 2 wrong input. Older regressions are only shown."
)]
pub struct History {
    /// What to change in it.
    #[command(subcommand)]
    pub change: Option<HistoryChange>,
    /// Metric whose values are wanted, as `hackbench.time` [default: a list of the runs]
    pub metric: Option<String>,
    /// Only this cell; may be repeated
    #[arg(long, value_name = "ID", requires = "metric")]
    pub cell: Vec<String>,
    /// Only the cells with one of these values on an axis; may be repeated
    #[arg(long, value_name = "AXIS=VALUE[,VALUE..]", requires = "metric")]
    pub only: Vec<Only>,
    /// Newest runs that are shown
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Largest change that is no regression, in percent of the value before: `2%`
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    pub threshold: f64,
    /// Tell by the exit code whether the newest values are good
    #[arg(long, requires = "metric")]
    pub check: bool,
    /// Test for boots that are not paired by a seed
    #[arg(long, value_enum, default_value_t)]
    pub test: Unpaired,
    /// Form of the tables
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Write a page with a plot for each cell as well
    #[arg(long, value_name = "FILE", requires = "metric")]
    pub html: Option<PathBuf>,
}

/// Changes of the history.
#[derive(Debug, Subcommand)]
pub enum HistoryChange {
    /// Add run directories; one that is there already is left or brought up to date
    Add {
        /// Run directories
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
    /// Give a run a name to compare with; a name that is taken moves
    Baseline {
        /// The name
        name: String,
        /// The run, as for `matrix compare`
        run: String,
    },
    /// Remove runs for good
    Remove {
        /// Numbers of the runs
        #[arg(required = true)]
        runs: Vec<i64>,
    },
}

/// `matrix list`
#[derive(Debug, Args)]
pub struct List {
    /// What to list [default: everything]
    #[arg(value_enum)]
    pub what: Option<Listed>,
    /// Where runs are looked for
    #[arg(long, value_name = "DIR", default_value = DEFAULT_ROOM)]
    pub runs: PathBuf,
}

/// What `matrix list` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    /// Architectures that kernels can be built for
    Archs,
    /// Benchmarks that a matrix can `use`
    Benchmarks,
    /// Configuration fragments
    Fragments,
    /// Runs on disk
    Runs,
}

/// `matrix doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Look only at what these architectures need; may be repeated
    #[arg(long, value_name = "NAME")]
    pub arch: Vec<String>,
    /// Print nothing but the missing packages, one a line
    #[arg(long)]
    pub packages: bool,
}

/// `matrix cache`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
When a run has built a kernel and when it ends, as much is removed as the limit
wants: MATRIX_CACHE_LIMIT, or what `matrix cache limit` has set, or 50G. First go
object trees, which hold no result; then whatever was not used for longest,
source trees eight times as early as kernels and guest programs, as they take
more and are fetched sooner than a kernel is built. What a run uses stays. Run
directories are no part of the cache: evidence is never removed."
)]
pub struct Caching {
    /// What to do with it.
    #[command(subcommand)]
    pub command: Option<CacheCommand>,
    /// Form of the summary
    #[arg(long, value_enum, default_value_t)]
    pub format: CacheFormat,
}

/// What can be done with the cache.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List entries: size, last use, what each is; the last used first
    List {
        /// Rooms [default: all of them]
        #[arg(value_enum)]
        rooms: Vec<Room>,
        /// Form of the list
        #[arg(long, value_enum, default_value_t)]
        format: CacheFormat,
    },
    /// Set how much may be kept, or show it
    Limit {
        /// `20G`, `512M` (powers of 1024), or `none`
        size: Option<Most>,
    },
    /// Remove what was not used for longest
    Prune {
        /// How much may be left, instead of the limit that is set
        #[arg(long, value_name = "SIZE")]
        limit: Option<Most>,
        /// Remove all that was not used for so long, as `30d` or `12h`
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        older_than: Option<Duration>,
        /// Say what would be removed and remove nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove all that no run uses
    Clear(Clear),
}

/// How the cache is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum CacheFormat {
    /// For people
    #[default]
    Text,
    /// For programs: rooms, entries and limit
    Json,
}

/// `matrix cache clear`
#[derive(Debug, Args)]
pub struct Clear {
    /// Rooms to empty [default: all of them]
    #[arg(value_enum)]
    pub rooms: Vec<Room>,
    /// Say what would be removed and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
