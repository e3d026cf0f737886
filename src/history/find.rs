//! Which run a word on the command line means.

use anyhow::{Context, bail};
use jiff::civil;
use jiff::tz::TimeZone;
use rusqlite::{OptionalExtension, params};

use super::History;

/// Shortest part of a commit that is taken for one, as git abbreviates.
const COMMIT: usize = 7;

/// Whether nothing else than a baseline is written so.
pub(super) fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.len() <= 100
        && text.chars().all(good)
        && text != "latest"
}

impl History {
    /// The run that `text` means: `latest` or `latest~N`, a baseline, a run's
    /// number, a date or time (the newest run begun until then) or a revision
    /// (the newest run of it).
    ///
    /// # Errors
    /// None fits.
    pub fn find(&self, text: &str) -> anyhow::Result<i64> {
        if let Some(back) = text.strip_prefix("latest") {
            return self.latest(back).with_context(|| format!("no run `{text}` in the history"));
        }
        let sql = "SELECT run FROM baselines WHERE name = ?1";
        if let Some(id) = self.db.query_row(sql, [text], |r| r.get(0)).optional()? {
            return Ok(id);
        }
        if let Ok(number) = text.parse::<i64>() {
            let sql = "SELECT id FROM runs WHERE id = ?1";
            if let Some(id) = self.db.query_row(sql, [number], |r| r.get(0)).optional()? {
                return Ok(id);
            }
        }
        if let Some(until) = moment(text) {
            return self.begun(until, 0)?.with_context(|| format!("no run in the history until {text}"));
        }
        self.of_revision(text)?.with_context(|| {
            format!(
                "no run `{text}`: neither a run directory nor, in the history, a number, `latest`, `latest~N`, \
                 a date, a revision or a baseline (`matrix history` lists what there is)"
            )
        })
    }

    fn latest(&self, back: &str) -> anyhow::Result<i64> {
        let back = match back.strip_prefix('~') {
            Some(number) => number.parse::<u32>()?,
            None if back.is_empty() => 0,
            None => bail!("neither `latest` nor `latest~N`"),
        };
        self.begun(i64::MAX, back)?.context("there are not so many")
    }

    /// The newest run begun until then, or one before it.
    fn begun(&self, until: i64, back: u32) -> anyhow::Result<Option<i64>> {
        let sql = "SELECT id FROM runs WHERE began <= ?1 ORDER BY began DESC, id DESC LIMIT 1 OFFSET ?2";
        Ok(self.db.query_row(sql, params![until, back], |r| r.get(0)).optional()?)
    }

    fn of_revision(&self, text: &str) -> anyhow::Result<Option<i64>> {
        let sql = "SELECT DISTINCT runs.id, cells.source FROM runs JOIN cells ON cells.run = runs.id \
                   ORDER BY runs.began DESC, runs.id DESC";
        let mut statement = self.db.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let source: String = row.get(1)?;
            if names(&source, text) {
                return Ok(Some(row.get(0)?));
            }
        }
        Ok(None)
    }
}

/// Whether a source, as `git v6.12 (COMMIT)`, has this revision.
fn names(source: &str, revision: &str) -> bool {
    let commit = revision.len() >= COMMIT && revision.bytes().all(|b| b.is_ascii_hexdigit());
    let revision = if commit { &revision.to_ascii_lowercase() } else { revision };
    let words = source.split(|c: char| c.is_whitespace() || "()".contains(c)).filter(|w| !w.is_empty());
    words.skip(1).any(|word| word == revision || (commit && word.len() == 40 && word.starts_with(revision)))
}

/// The last microsecond that a date or time means, here where it does not say.
fn moment(text: &str) -> Option<i64> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(at.as_microsecond());
    }
    let here = TimeZone::system();
    if let Ok(date) = text.parse::<civil::Date>() {
        // A time of day behind it is more than a date.
        if !text.contains(['T', ' ', ':']) {
            let next = here.to_timestamp(date.tomorrow().ok()?.into()).ok()?;
            return Some(next.as_microsecond() - 1);
        }
    }
    let at = text.parse::<civil::DateTime>().ok()?;
    Some(here.to_timestamp(at).ok()?.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions() {
        let source = "git v6.12 (0123456789abcdef0123456789abcdef01234567) + fix.patch";
        for good in ["v6.12", "0123456", "0123456789ABCDEF", "0123456789abcdef0123456789abcdef01234567"] {
            assert!(names(source, good), "{good}");
        }
        for bad in ["v6.1", "git", "012345", "123456789abcdef", "", "+ fix", "6789abc"] {
            assert!(!names(source, bad), "{bad}");
        }
    }

    #[test]
    fn names_of_baselines() {
        assert!(is_name("v6.12-good_1"));
        for bad in ["", "12", "latest", "2026-01-01", "a b", "a'b", "~x", "a/b", "\u{1b}[m"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn dates_last_until_their_end() {
        let utc = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_microsecond();
        assert_eq!(moment("2026-11-30T19:40:49.5Z"), Some(utc("2026-11-30T19:40:49.5Z")));
        let day = moment("2026-11-30").unwrap() - moment("2026-11-29").unwrap();
        assert_eq!(day, 24 * 3600 * 1_000_000);
        assert_eq!(moment("2026-11-30").unwrap() + 1, moment("2026-12-01T00:00:00").unwrap());
        assert_eq!(moment("v6.12"), None);
    }
}
