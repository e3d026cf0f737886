//! From text to [`RawMatrix`], collecting every fault of structure: each one
//! that serde reports is noted, cut out of the parsed tree, and the rest is
//! read again.

use std::ops::Range;

use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::hint::{closest, suggest};
use super::raw::RawMatrix;
use super::schema::describe;
use crate::diag::Diagnostic;

/// Place of the file's outermost table, as the parser gives it.
pub(super) const ROOT: Range<usize> = 0..0;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub raw: RawMatrix,
    pub faults: Vec<Diagnostic>,
    pub gone: Gone,
}

/// Entries that were cut out because they were faulty; nobody is told in
/// addition that they are missing.
#[derive(Debug, Default)]
pub(super) struct Gone(Vec<(Range<usize>, String)>);

impl Gone {
    /// Whether `key`, or a part of it, was cut out of the table at `table`.
    pub fn has(&self, table: &Range<usize>, key: &str) -> bool {
        self.0.iter().any(|(t, k)| t == table && k == key)
    }

    /// Whether anything was cut out of the table at `table`.
    pub fn any(&self, table: &Range<usize>) -> bool {
        self.0.iter().any(|(t, _)| t == table)
    }

    /// Names that were cut out of the table at `table`.
    pub fn of<'a>(&'a self, table: &'a Range<usize>) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(t, _)| t == table).map(|(_, k)| k.as_str())
    }
}

/// Reads a matrix file. A syntax error is its only fault; then there is
/// nothing else to judge (`Err`).
pub(super) fn read(text: &str) -> Result<Reading, Diagnostic> {
    let mut tree = DeTable::parse(text).map_err(|e| syntax(&e, text))?;
    let mut reading = Reading::default();
    loop {
        let error = match RawMatrix::deserialize(toml::de::Deserializer::from(tree.clone())) {
            Ok(raw) => {
                reading.raw = raw;
                return Ok(reading);
            }
            Err(error) => error,
        };
        let span = error.span().unwrap_or(ROOT);
        let Some(cut) = cut(tree.get_mut(), &ROOT, &span) else {
            return Err(Diagnostic {
                message: error.message().to_owned(),
                span,
                label: String::new(),
                help: String::new(),
            });
        };
        reading.note(error.message(), span, cut);
    }
}

impl Reading {
    fn note(&mut self, error: &str, span: Range<usize>, cut: Cut) {
        let Wording { message, help, meant } = wording(error, &cut.path);
        self.faults.push(Diagnostic { message, span, label: String::new(), help });
        let Some(key) = cut.path.last() else { return };
        if let Some(meant) = meant {
            self.gone.0.push((cut.table.clone(), meant));
        }
        self.gone.0.push((cut.table, key.clone()));
    }
}

fn syntax(error: &toml::de::Error, text: &str) -> Diagnostic {
    let span = error.span().unwrap_or(text.len()..text.len());
    let help = if error.message().contains("duplicate key") {
        "a key or table may be given once; several benchmarks or tables are written `[[benchmark]]` and `[[table]]`"
    } else {
        "TOML wants strings in quotes and lists in brackets: `OFFSTACK = [\"n\", \"y\"]`"
    };
    Diagnostic {
        message: format!("not valid TOML: {}", error.message()),
        span,
        label: String::new(),
        help: help.to_owned(),
    }
}

/// An entry that was cut out of the tree.
struct Cut {
    /// Keys from the outermost table to the entry; array elements add none.
    path: Vec<String>,
    /// Place of the table that held the entry.
    table: Range<usize>,
}

/// Cuts out the entry or array element whose key or value is at `span`.
fn cut(table: &mut DeTable<'_>, place: &Range<usize>, span: &Range<usize>) -> Option<Cut> {
    let hit = table.iter().find(|(k, v)| k.span() == *span || v.span() == *span);
    if let Some(key) = hit.map(|(k, _)| k.get_ref().to_string()) {
        table.remove(key.as_str());
        return Some(Cut { path: vec![key], table: place.clone() });
    }
    table.iter_mut().find_map(|(key, value)| {
        let inner = value.span();
        let mut found = match value.get_mut() {
            DeValue::Table(t) => cut(t, &inner, span),
            DeValue::Array(_) => cut_element(value.get_mut(), place, span),
            _ => None,
        }?;
        found.path.insert(0, key.get_ref().to_string());
        Some(found)
    })
}

fn cut_element(array: &mut DeValue<'_>, place: &Range<usize>, span: &Range<usize>) -> Option<Cut> {
    let DeValue::Array(items) = array else {
        return None;
    };
    if let Some(at) = items.iter().position(|item| item.span() == *span) {
        let rest = items.iter().enumerate().filter(|(i, _)| *i != at);
        *items = rest.map(|(_, item)| item.clone()).collect();
        return Some(Cut { path: Vec::new(), table: place.clone() });
    }
    items.iter_mut().find_map(|item| {
        let inner = item.span();
        match item.get_mut() {
            DeValue::Table(t) => cut(t, &inner, span),
            nested => cut_element(nested, place, span),
        }
    })
}

struct Wording {
    message: String,
    help: String,
    /// Known key that an unknown one probably stands for.
    meant: Option<String>,
}

/// Serde's message about the entry at `path` in the words of this file.
fn wording(error: &str, path: &[String]) -> Wording {
    let (key, parents) = path.split_last().map_or(("", path), |(k, p)| (k.as_str(), p));
    let known = ticked(error).skip(1);
    if error.starts_with("unknown field") {
        let place = match parents {
            [] => "at the top of the file".to_owned(),
            _ => format!("in `{}`", parents.join(".")),
        };
        return Wording {
            message: format!("unknown key `{key}` {place}"),
            help: suggest(key, known.clone()),
            meant: closest(key, known).map(str::to_owned),
        };
    }
    if error.starts_with("unknown variant") {
        let value = ticked(error).next().unwrap_or_default();
        let message = format!("`{key}` cannot be `{value}`");
        return Wording { message, help: suggest(value, known), meant: None };
    }
    let message = match error.strip_prefix("invalid type: ").and_then(|e| e.split_once(", expected ")) {
        Some((found, expected)) => {
            format!("`{key}` must be {}, not {}", in_toml(expected), in_toml(found))
        }
        None => format!("`{key}`: {error}"),
    };
    Wording { message, help: describe(path), meant: None }
}

/// The words between backticks of a message, in order.
fn ticked(message: &str) -> impl Iterator<Item = &str> + Clone {
    message.split('`').skip(1).step_by(2)
}

/// Serde's names of types in the words of TOML.
fn in_toml(words: &str) -> &str {
    match words {
        "i64" => "a whole number",
        "a boolean" => "true or false",
        "sequence" | "a sequence" => "an array",
        "map" | "a map" => "a table",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<(String, String, String)> {
        let reading = read(text).unwrap();
        let place = |d: &Diagnostic| text[d.span.clone()].to_owned();
        reading.faults.iter().map(|d| (place(d), d.message.clone(), d.help.clone())).collect()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_likely_meaning() {
        let found = faults("[boot]\nmemmory = \"1G\"\n[axis]\narch = 1\n");
        assert_eq!(found[0].0, "memmory");
        assert_eq!(found[0].1, "unknown key `memmory` in `boot`");
        assert!(found[0].2.starts_with("did you mean `memory`? possible: `vcpus`"), "{}", found[0].2);
        assert_eq!(found[1].0, "axis");
        assert_eq!(found[1].1, "unknown key `axis` at the top of the file");
        assert!(found[1].2.starts_with("did you mean `axes`?"), "{}", found[1].2);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_wrong_type_is_named_with_an_example() {
        let found = faults(
            "name = 5\n[boot]\nvcpus = \"4\"\nmemory = 1024\n[axes]\nNR_CPUS = 1.5\nHZ = [100, 2.5]\n",
        );
        let messages: Vec<_> = found.iter().map(|f| f.1.as_str()).collect();
        assert_eq!(
            messages,
            [
                "`name` must be a string, not integer `5`",
                "`vcpus` must be a whole number, not string \"4\"",
                "`memory` must be a string, not integer `1024`",
                "`NR_CPUS` must be a string, a whole number, true, false or an array of these, not floating point `1.5`",
                "`HZ` must be a string, a whole number, true or false, not floating point `2.5`",
            ]
        );
        assert_eq!(found[4].0, "2.5");
        assert!(found[2].2.contains("`memory = \"512M\"`"), "{}", found[2].2);
    }

    #[test]
    fn tables_and_arrays_are_told_apart() {
        let found = faults("source = \"linux\"\nbenchmark = 3\n[kernel]\nfragments = \"minimal\"\n");
        let messages: Vec<_> = found.iter().map(|f| f.1.as_str()).collect();
        assert_eq!(
            messages,
            [
                "`source` must be a table, not string \"linux\"",
                "`benchmark` must be an array, not integer `3`",
                "`fragments` must be an array, not string \"minimal\"",
            ]
        );
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_possible_ones() {
        let found = faults("[[table]]\nstatistic = \"meen\"\nderived = [\"ratio\", \"diff\"]\n");
        assert_eq!(found[0].1, "`statistic` cannot be `meen`");
        assert_eq!(
            found[0].2,
            "did you mean `mean`? possible: `mean`, `median`, `min`, `max`, `sum`, `count`, `p50`, `p90`, `p99`"
        );
        assert_eq!(found[1].0, "\"diff\"");
        assert!(found[1].2.starts_with("did you mean `difference`?"), "{}", found[1].2);
    }

    #[test]
    fn what_was_cut_out_is_remembered_by_its_table() {
        let text = "[[benchmark]]\nname = \"a\"\n[[benchmark]]\ncomand = \"b\"\n";
        let reading = read(text).unwrap();
        assert_eq!(reading.raw.benchmark.len(), 2);
        let [first, second] = [&reading.raw.benchmark[0].span, &reading.raw.benchmark[1].span];
        assert!(!reading.gone.any(first));
        assert!(reading.gone.has(second, "comand"));
        assert!(reading.gone.has(second, "command"), "the likely meaning counts as given");
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "[axes]\narch = \"riscv64\"\nHZ = [100, 250]\n[boot]\nvcpus = 2\n";
        let raw = read(text).unwrap().raw;
        let axes = raw.axes.unwrap();
        assert_eq!(&text[axes.span.clone()], "[axes]");
        let (key, values) = axes.get_index(1).unwrap();
        assert_eq!(&text[key.span.clone()], "HZ");
        assert_eq!(&text[values.items()[1].span.clone()], "250");
        assert_eq!(&text[raw.boot.unwrap().value.vcpus.unwrap().span], "2");
    }

    #[test]
    fn a_syntax_error_stands_alone() {
        let fault = read("name = \nfoo = 1\n").unwrap_err();
        assert!(fault.message.starts_with("not valid TOML"), "{}", fault.message);
        let fault = read("[boot]\nvcpus = 1\nvcpus = 2\n").unwrap_err();
        assert!(fault.message.contains("duplicate key"), "{}", fault.message);
        assert_eq!(fault.span, 17..22);
    }
}
