//! A line of a mail as items: numbers, words and what stands for a number.

use super::number::{self, Mark, Number};

/// Columns that a cell between vertical bars is taken to be wide, so that
/// what is in the same cell of two lines stands in the same place.
const CELL: usize = 10_000;

/// A line, without marks of quotation.
#[derive(Debug)]
pub(super) struct Line<'t> {
    /// From 1.
    pub number: usize,
    /// What stands in it, from left to right.
    pub items: Vec<Item<'t>>,
}

/// A word or a number, with its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Item<'t> {
    /// What it is.
    pub kind: Kind<'t>,
    /// Its first column.
    pub start: usize,
    /// The column behind it.
    pub end: usize,
    /// Whether it begins a field: two blanks, a tab or a bar stand before it.
    pub gap: bool,
    /// Whether a bracket opens before it.
    pub bracket: bool,
    /// Whether an arrow or `to` leads to it.
    pub led: bool,
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind<'t> {
    /// A number with its sign and unit.
    Number(Number<'t>),
    /// `-`, `n/a`, `FAILED(panic)`: no number, where one could be.
    Absent,
    /// `y` or `n`.
    YesNo(bool),
    /// `(baseline)`.
    Baseline,
    /// Any other word.
    Text(&'t str),
}

impl Item<'_> {
    /// Whether it can be a field of a table by itself.
    pub fn is_cell(&self) -> bool {
        !matches!(self.kind, Kind::Text(_))
    }
}

impl<'t> Line<'t> {
    pub fn of(number: usize, text: &'t str) -> Line<'t> {
        Line { number, items: items(unquoted(text)) }
    }

    /// The items by field.
    pub fn fields(&self) -> impl Iterator<Item = &[Item<'t>]> {
        self.items.chunk_by(|_, next| !next.gap)
    }
}

/// Whether a line only draws: `-----`, `|---:|`.
pub(super) fn is_rule(text: &str) -> bool {
    let drawn = |c: char| matches!(c, '-' | '=' | '+' | '|' | ':' | '_' | '~' | '\u{2500}'..='\u{257f}');
    let text = unquoted(text).trim();
    text.chars().all(|c| drawn(c) || c.is_whitespace()) && text.chars().filter(|c| drawn(*c)).count() > 2
}

/// The line without `> ` before it, however often it was quoted.
pub(super) fn unquoted(line: &str) -> &str {
    let rest = line.trim_start_matches(['>', ' ']);
    let prefix = &line[..line.len() - rest.len()];
    prefix.rfind('>').map_or(line, |at| &line[at + 1..])
}

/// The lines of a text; where they count themselves, as in a listing, without
/// these numbers.
pub(super) fn uncounted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    let counted: Vec<_> = (0i64..).zip(&lines).map(|(at, line)| counter(line).map(|(n, _)| n - at)).collect();
    let mut from = 0;
    for run in counted.chunk_by(|a, b| a.is_some() == b.is_some()) {
        let counts = run[0].is_some() && run.len() > 2 && run.iter().all(|offset| *offset == run[0]);
        for line in lines[from..from + run.len()].iter_mut().filter(|_| counts) {
            *line = counter(line).map_or(*line, |(_, rest)| rest);
        }
        from += run.len();
    }
    lines
}

/// The number that a line begins with, and the rest.
fn counter(line: &str) -> Option<(i64, &str)> {
    let line = unquoted(line).trim_start();
    let (number, rest) = line.split_at(line.find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len()));
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    let apart = rest.is_empty() || rest.starts_with(char::is_whitespace);
    Some((number.parse().ok().filter(|_| apart)?, rest))
}

/// A word with what was taken off it.
#[derive(Debug, Clone, Copy)]
struct Word {
    /// Bytes of the line, brackets and punctuation included.
    raw: (usize, usize),
    /// Bytes of the line without these.
    bare: (usize, usize),
    start: usize,
    end: usize,
    gap: bool,
}

impl Word {
    fn opens(&self) -> bool {
        self.raw.0 < self.bare.0
    }

    fn closes(&self) -> bool {
        self.bare.1 < self.raw.1
    }
}

fn words(text: &str) -> Vec<Word> {
    let framed = text.trim_start().starts_with('|');
    let (mut words, mut cells, mut at) = (Vec::<Word>::new(), 0, 0);
    let (mut blanks, mut within) = (2, false);
    for (byte, c) in text.char_indices() {
        let bar = c == '|' && !text[..byte].ends_with('\\');
        if bar || c.is_whitespace() {
            within = false;
            blanks += if bar || c == '\t' { 2 } else { 1 };
            cells += usize::from(bar && framed);
            at = if c == '\t' { at / 8 * 8 + 8 } else { at + 1 };
            continue;
        }
        at += 1;
        let end = byte + c.len_utf8();
        let (start, stop) = if framed { (cells * CELL, cells * CELL + CELL / 2) } else { (at - 1, at) };
        match words.last_mut().filter(|_| within) {
            Some(word) => (word.raw.1, word.end) = (end, stop),
            None => {
                let raw = (byte, end);
                words.push(Word { raw, bare: raw, start, end: stop, gap: blanks > 1 });
            }
        }
        (within, blanks) = (true, 0);
    }
    for word in &mut words {
        word.bare = bare(text, word.raw);
    }
    words
}

fn bare(text: &str, (from, to): (usize, usize)) -> (usize, usize) {
    let word = &text[from..to];
    let rest = word.trim_start_matches(['(', '[', '{', '"', '\'', '*', '`']);
    let bare = rest.trim_end_matches([')', ']', '}', '"', '\'', '*', '`', ',', ';', '.', '!', '?', '\\']);
    let from = to - rest.len();
    (from, from + bare.len())
}

fn items(text: &str) -> Vec<Item<'_>> {
    let words = words(text);
    let mut items: Vec<Item> = Vec::new();
    let (mut n, mut gap, mut bracket, mut led) = (0, false, false, false);
    while let Some(word) = words.get(n) {
        gap |= word.gap;
        bracket |= word.opens();
        let (kind, taken) = item(text, &words[n..]);
        let leads = kind.is_none_or(|kind| matches!(kind, Kind::Text("to" | "vs")));
        let after_number = items.last().is_some_and(|i| matches!(i.kind, Kind::Number(_)));
        let next = words.get(n + 1).filter(|next| !next.opens());
        let between = after_number && next.is_some_and(|next| begins_number(&text[next.bare.0..next.bare.1]));
        if leads && between {
            (led, n) = (true, n + 1);
            continue;
        }
        let bullet = items.is_empty() && kind == Some(Kind::Absent);
        if let Some(kind) = kind.filter(|_| !bullet) {
            let end = words[n + taken - 1].end;
            items.push(Item { kind, start: word.start, end, gap, bracket, led });
            (gap, bracket, led) = (false, false, false);
        }
        n += taken;
    }
    items
}

/// What begins with the first of `words`, and how many of them it takes.
/// Arrows and lone punctuation are nothing.
fn item<'t>(text: &'t str, words: &[Word]) -> (Option<Kind<'t>>, usize) {
    let first = words[0];
    let raw = &text[first.raw.0..first.raw.1];
    let word = &text[first.bare.0..first.bare.1];
    if raw.starts_with("FAILED(") {
        let taken = words.iter().take(8).position(|w| text[..w.raw.1].ends_with(')'));
        return (Some(Kind::Absent), taken.map_or(1, |n| n + 1));
    }
    if let Some(number) = interval(text, words) {
        return (Some(Kind::Number(number)), 2);
    }
    // A sign, a number and a unit at most.
    let most = match word {
        "+" | "-" | "\u{2212}" | "\u{2013}" | "±" | "+-" | "+/-" => 3,
        _ if begins_number(word) => 2,
        _ => 0,
    };
    for taken in (1..=words.len().min(most)).rev() {
        let (before, after) = (&words[..taken - 1], &words[1..taken]);
        let gaps = after.iter().skip(usize::from(matches!(word, "±" | "+-" | "+/-")));
        let apart = before.iter().any(Word::closes)
            || after.iter().any(Word::opens)
            || gaps.into_iter().any(|word| word.gap);
        let number = if apart { None } else { number_in(text, &words[..taken]) };
        if number.is_some() {
            return (number.map(Kind::Number), taken);
        }
    }
    let kind = match word {
        "" | "->" | "=>" | "-->" | "\u{2192}" | "=" => None,
        "-" | "--" | "n/a" | "N/A" | "nan" | "NaN" | "missing" => Some(Kind::Absent),
        "y" | "yes" | "~y" | "?y" => Some(Kind::YesNo(true)),
        "n" | "no" | "~n" | "?n" => Some(Kind::YesNo(false)),
        _ if first.opens() && is_baseline(word) => Some(Kind::Baseline),
        _ => Some(Kind::Text(word)),
    };
    (kind, 1)
}

/// `[2.98, 3.01]`: where the value before it may lie.
fn interval<'t>(text: &'t str, words: &[Word]) -> Option<Number<'t>> {
    let raw = |word: &Word| &text[word.raw.0..word.raw.1];
    let (low, high) = (raw(words.first()?), raw(words.get(1)?));
    let low = low.trim_start_matches('\\').strip_prefix('[')?.strip_suffix(',')?;
    let high = high.strip_suffix(']')?.trim_end_matches('\\');
    let (low, high) = (number::parse(low)?, number::parse(high)?);
    let plain = low.mark == Mark::Plain && high.mark == Mark::Plain;
    plain.then_some(Number { mark: Mark::Spread, ..low })
}

/// Whether a word can be a number, or the first of those that spell one.
fn begins_number(word: &str) -> bool {
    let signs = ['+', '-', '/', '±', '\u{2212}', '\u{2013}', '.'];
    word.trim_start_matches(number::MARKS).trim_start_matches(signs).starts_with(|c: char| c.is_ascii_digit())
}

/// The number that all of `words` spell.
fn number_in<'t>(text: &'t str, words: &[Word]) -> Option<Number<'t>> {
    number::parse(&text[words.first()?.bare.0..words.last()?.bare.1])
}

/// Whether a word says that all else is compared with this.
pub(super) fn is_baseline(word: &str) -> bool {
    matches!(word.to_lowercase().as_str(), "baseline" | "base" | "reference" | "ref")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as printed, words as they are, a bar where a field begins.
    fn shown(text: &str) -> String {
        let item = |item: &Item| {
            let text = match item.kind {
                Kind::Number(number) => format!("<{}>", number.text),
                Kind::Absent => "absent".to_string(),
                Kind::YesNo(yes) => format!("{yes}"),
                Kind::Baseline => "BASE".to_string(),
                Kind::Text(text) => text.to_string(),
            };
            if item.gap { format!("|{text}") } else { text }
        };
        let line = Line::of(1, text);
        line.items.iter().map(item).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn items_of_table_lines() {
        assert_eq!(shown("onstack  19,814,536\t1"), "|onstack |<19,814,536> |<1>");
        assert_eq!(shown("512 CPUs on stack   7.8713 + 0.18%"), "|<512> CPUs on stack |<7.8713> <+ 0.18%>");
        assert_eq!(shown(" 1-groups:  4.97 (0.00 pct)"), "|1-groups: |<4.97> <0.00 pct>");
        assert_eq!(
            shown("Amean 1  4.97 (  0.00%)  5 ( -1.81%)*"),
            "|Amean <1> |<4.97> |<0.00%> |<5> <-1.81%>"
        );
        assert_eq!(shown("| a b | 4 | | +5% |"), "|a b |<4> |<+5%>");
        assert_eq!(shown("> > 2.18s -> 1.01s"), "|<2.18s> <1.01s>");
        assert_eq!(
            shown("x (baseline)  -  n/a  y  FAILED(no boot)  1"),
            "|x BASE |absent |absent |true |absent |<1>"
        );
        assert_eq!(shown("- 5 CPUs, 12 s."), "|<5> CPUs <12 s>");
        assert_eq!(shown("5 ±  2%  ( +-  0.5% )"), "|<5> <±  2%> |<+-  0.5%>");
        assert_eq!(
            shown("a  3.00 [2.98, 3.01]  5 [7]"),
            "|a |<3.00> <2.98> |<5> <7>",
            "an interval is one item"
        );
        assert_eq!(shown("a  ~+0.35%  ?-1.2%  ~y  ?n"), "|a |<~+0.35%> |<?-1.2%> |true |false");
        assert_eq!(
            shown("x:  5.0 ±0.2 (~1.05 pct)  6 (?0.00 pct)"),
            "|x: |<5.0> <±0.2> <~1.05 pct> |<6> <?0.00 pct>"
        );
    }

    #[test]
    fn listings_lose_their_counters_and_labels_stay() {
        assert_eq!(uncounted("> 9: a\n> 10:\n> 11: 5"), [" a", "", " 5"]);
        for labels in ["1  a\n2  b\n4  c\n8  d", "1  a\n2  b", "1-x\n2-x\n3-x"] {
            assert_eq!(uncounted(labels), labels.lines().collect::<Vec<_>>());
        }
    }

    #[test]
    fn places() {
        let spans = |text| Line::of(1, text).items.iter().map(|i| (i.start, i.end)).collect::<Vec<_>>();
        assert_eq!(spans("a\t4.97 (1 %)"), [(0, 1), (8, 12), (13, 18)]);
        assert_eq!(spans("| a | 4 |"), [(CELL, CELL + CELL / 2), (2 * CELL, 2 * CELL + CELL / 2)]);
    }

    #[test]
    fn rules_and_quotes() {
        assert!(is_rule("|:---|---:|") && is_rule("> ----- ----") && is_rule("+--+--+"));
        assert!(!is_rule("") && !is_rule("--") && !is_rule("- a -"));
        assert_eq!(unquoted("> >> a > b"), " a > b");
        assert_eq!(unquoted("  a > b"), "  a > b");
    }
}
