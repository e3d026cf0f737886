//! Progress bars, for terminals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{failed, harmless, started, took};
use crate::event::{Event, Job, Tell};

const REDRAW: Duration = Duration::from_millis(200);

/// Draws one line for the run and one for each job under way.
pub fn watcher() -> Tell {
    let bars = Mutex::new(Bars::new());
    Arc::new(move |event| {
        if let Ok(mut bars) = bars.lock() {
            bars.show(&event);
        }
    })
}

struct Bars {
    all: MultiProgress,
    run: Option<ProgressBar>,
    jobs: HashMap<Job, ProgressBar>,
}

impl Bars {
    fn new() -> Bars {
        Bars { all: MultiProgress::new(), run: None, jobs: HashMap::new() }
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::RunStarted { builds, fresh, boots } => {
                self.say(&started(*builds, *fresh, *boots));
                let run = self.all.add(ProgressBar::new((builds + boots) as u64).with_style(style(RUN)));
                run.set_message(WORK);
                // Only a bar that is part of the picture may redraw itself.
                run.enable_steady_tick(REDRAW);
                self.run = Some(run);
            }
            Event::Started(job) => {
                self.bar(job);
                self.run.iter().for_each(|run| run.set_message(WORK));
            }
            // Kernels are configured before any is begun.
            Event::Step(job, step) => match (self.jobs.get(job), &self.run) {
                (Some(bar), _) => bar.set_message(harmless(step)),
                (None, Some(run)) => run.set_message(harmless(&format!("{job}: {step}"))),
                (None, None) => {}
            },
            Event::Progress { job, done, total } => {
                let bar = self.bar(job);
                match total {
                    Some(total) if bar.length().is_none() => {
                        bar.set_style(style(KNOWN));
                        bar.set_length(*total);
                    }
                    Some(_) => {}
                    None => bar.set_message(format!("{done} commands")),
                }
                bar.set_position(*done);
            }
            Event::Finished { job, took: time, summary } => {
                self.end(job);
                self.say(&format!("{job}: done in {} {summary}", took(*time)));
            }
            Event::Failed(job, failure) => {
                self.end(job);
                self.say(&failed(&job.to_string(), failure));
            }
            Event::Note(text) => self.say(text),
            Event::Interrupted => self.say("interrupted: stopping; Ctrl-C again kills"),
        }
    }

    fn say(&self, line: &str) {
        // Where the terminal is gone there is nobody to tell.
        let _ = self.all.println(harmless(line.trim_end()));
    }

    fn bar(&mut self, job: &Job) -> ProgressBar {
        let all = &self.all;
        let bar = self.jobs.entry(job.clone()).or_insert_with(|| {
            let bar = ProgressBar::no_length().with_style(style(UNKNOWN)).with_prefix(job.to_string());
            let bar = all.add(bar);
            bar.enable_steady_tick(REDRAW);
            bar
        });
        bar.clone()
    }

    fn end(&mut self, job: &Job) {
        if let Some(bar) = self.jobs.remove(job) {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
        if let (Some(run), Job::Build(_) | Job::Boot(..)) = (&self.run, job) {
            // There is nothing to estimate from before the first is done.
            run.set_style(style(RUN_ESTIMATED));
            run.inc(1);
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            run.finish_and_clear();
        }
    }
}

const WORK: &str = "builds and boots";
const RUN: &str = "{msg} [{bar:30}] {pos}/{len}  {elapsed} gone";
const RUN_ESTIMATED: &str = "{msg} [{bar:30}] {pos}/{len}  {elapsed} gone, about {eta} to go";
const KNOWN: &str = "{prefix} [{bar:30}] {pos}/{len} {msg} {elapsed}, {eta} to go";
const UNKNOWN: &str = "{spinner} {prefix} {msg} {elapsed}";

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [RUN, RUN_ESTIMATED, KNOWN, UNKNOWN] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
