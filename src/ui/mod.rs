//! Who watches a run: progress bars on a terminal, timestamped lines
//! elsewhere. Everything goes to standard error; tables alone go to standard
//! output.

mod bars;
mod plain;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::Talk;
use crate::event::{Event, Tell};
use crate::model::Failure;

/// The watcher that fits where standard error goes and what the user asked for.
pub fn watcher(talk: Talk) -> Tell {
    if talk.quiet {
        Arc::new(|event| {
            if let Event::Failed(job, failure) = event {
                eprintln!("{}", harmless(&failed(&job.to_string(), &failure)));
            }
        })
    } else if std::io::stderr().is_terminal() && !talk.verbose {
        bars::watcher()
    } else {
        plain::watcher(talk.verbose)
    }
}

/// `text` without what a terminal would obey: guests and compilers are quoted in it.
fn harmless(text: &str) -> String {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.chars().map(|c| if obeyed(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A failure in a line, its details indented below.
fn failed(job: &str, failure: &Failure) -> String {
    let detail = failure.detail.replace('\n', "\n    ");
    format!("{job}: FAILED ({}, {})\n    {detail}", failure.stage, failure.what)
}

/// `4m07s`, `12s`, `0.4s`
fn took(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn started(builds: usize, fresh: usize, boots: usize) -> String {
    let kernels = |n: usize| if n == 1 { "1 kernel".to_owned() } else { format!("{n} kernels") };
    let boots = if boots == 1 { "1 boot".to_owned() } else { format!("{boots} boots") };
    format!("{} to build, {fresh} in the cache, {boots}", kernels(builds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [(0.44, "0.4s"), (12.0, "12s"), (247.0, "4m07s"), (7260.0, "2h01m")] {
            assert_eq!(took(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn guests_do_not_command_the_terminal() {
        assert_eq!(harmless("a\u{1b}[31m\tb\u{9b}2J\n\u{7}"), "a\u{fffd}[31m\tb\u{fffd}2J\n\u{fffd}");
    }

    #[test]
    fn counts_agree_with_their_nouns() {
        assert_eq!(started(1, 3, 1), "1 kernel to build, 3 in the cache, 1 boot");
        assert_eq!(started(0, 0, 4), "0 kernels to build, 0 in the cache, 4 boots");
    }
}
