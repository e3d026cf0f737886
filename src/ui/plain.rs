//! Timestamped lines, for logs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{failed, harmless, started, took};
use crate::event::{Event, Job, Tell};

/// How often a job that goes on says so, unless every step is wanted.
const PERIOD: Duration = Duration::from_secs(60);

/// Writes lines to standard error.
pub fn watcher(verbose: bool) -> Tell {
    let lines = Mutex::new(Lines::new(verbose));
    Arc::new(move |event| {
        let text = lines.lock().ok().and_then(|mut lines| lines.text(&event, Instant::now()));
        if let Some(text) = text {
            eprintln!("{} {}", jiff::Zoned::now().strftime("%H:%M:%S"), harmless(&text));
        }
    })
}

struct Lines {
    verbose: bool,
    /// When a job last said how far it is.
    said: HashMap<Job, Instant>,
}

impl Lines {
    fn new(verbose: bool) -> Lines {
        Lines { verbose, said: HashMap::new() }
    }

    fn text(&mut self, event: &Event, now: Instant) -> Option<String> {
        match event {
            Event::RunStarted { builds, fresh, boots } => Some(started(*builds, *fresh, *boots)),
            Event::Started(job) => {
                self.said.insert(job.clone(), now);
                Some(format!("{job}: started"))
            }
            Event::Step(job, step) => self.verbose.then(|| format!("{job}: {step}")),
            Event::Progress { job, done, total } => {
                let due = self.said.get(job).is_none_or(|said| now.duration_since(*said) >= PERIOD);
                due.then(|| {
                    self.said.insert(job.clone(), now);
                    let total = total.map(|t| format!(" of about {t}")).unwrap_or_default();
                    format!("{job}: {done}{total} commands")
                })
            }
            Event::Finished { job, took: time, summary } => {
                self.said.remove(job);
                let summary = if summary.is_empty() { String::new() } else { format!(": {summary}") };
                Some(format!("{job}: done in {}{summary}", took(*time)))
            }
            Event::Failed(job, failure) => {
                self.said.remove(job);
                Some(failed(&job.to_string(), failure))
            }
            Event::Note(text) => Some(text.clone()),
            Event::Interrupted => Some("interrupted: stopping; once more kills".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CellId;

    #[test]
    fn progress_is_said_once_a_minute() {
        let mut lines = Lines::new(false);
        let start = Instant::now();
        let job = Job::Build(CellId("c".into()));
        assert_eq!(lines.text(&Event::Started(job.clone()), start).unwrap(), "build c: started");
        let mut at = |seconds, done| {
            let event = Event::Progress { job: job.clone(), done, total: Some(800) };
            lines.text(&event, start + Duration::from_secs(seconds))
        };
        assert_eq!(at(1, 10), None);
        assert_eq!(at(61, 300).unwrap(), "build c: 300 of about 800 commands");
        assert_eq!(at(100, 400), None);
    }

    #[test]
    fn steps_are_for_the_verbose() {
        let step = Event::Step(Job::Source(String::new()), "unpack".into());
        assert_eq!(Lines::new(false).text(&step, Instant::now()), None);
        assert_eq!(Lines::new(true).text(&step, Instant::now()).unwrap(), "source: unpack");
    }
}
