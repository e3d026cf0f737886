//! Lines that stand together as a table: its rows, and the text above them.

use super::line::{self, Item, Kind, Line};
use super::number::{Mark, Number, Operand};

/// Lines of text above a table that can be its columns' titles.
const MOST_TITLES: usize = 6;

/// Items of a line that can be part of a table: no longer line is read by people.
const MOST_ITEMS: usize = 256;

/// Lines of a block: no longer table is read by people. What is behind them
/// is looked at as if it stood alone.
const MOST_LINES: usize = 50_000;

/// Rows without a blank line between them.
#[derive(Debug, Default)]
pub(super) struct Block<'t> {
    /// Lines of text above the rows.
    pub header: Vec<Line<'t>>,
    /// Lines with fields.
    pub rows: Vec<Row<'t>>,
}

/// A line with fields.
#[derive(Debug)]
pub(super) struct Row<'t> {
    /// Number of the line.
    pub line: usize,
    /// The words that name it.
    pub label: String,
    /// Its fields from left to right, without the label.
    pub cells: Vec<Cell<'t>>,
    /// Which of `cells` are values, or stand where one is missing.
    pub values: Vec<usize>,
    /// Which of `cells` are percentages, factors, `y` or `n`.
    pub marks: Vec<usize>,
    /// Whether it calls itself the baseline.
    pub baseline: bool,
    /// How many fields the line has, label included.
    pub fields: usize,
    /// Its first column.
    pub start: usize,
}

/// A field other than a label.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<'t> {
    /// A number, `y`, `n`, or none.
    pub item: Item<'t>,
    /// Which of the line's fields it is in.
    pub field: usize,
}

impl<'t> Cell<'t> {
    pub fn number(&self) -> Option<Number<'t>> {
        match self.item.kind {
            Kind::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Whether it is a value or stands for one.
    fn is_value(&self) -> bool {
        match self.item.kind {
            Kind::Number(number) => number.mark == Mark::Plain,
            kind => kind == Kind::Absent,
        }
    }
}

impl<'t> Row<'t> {
    /// `None` for a line of text.
    pub fn of(line: &Line<'t>) -> Option<Row<'t>> {
        if line.items.len() > MOST_ITEMS {
            return None;
        }
        let answers = line.items.first().is_some_and(|i| matches!(i.kind, Kind::Text(t) if is_smaller(t)));
        let fields: Vec<Field> = line.fields().map(|field| Field::of(field, answers)).collect();
        let alone = fields.iter().any(|f| f.is_pure() && f.has_value());
        let behind = fields.iter().any(|f| !f.is_pure() && f.has_value());
        let (mut cells, mut label) = (Vec::new(), Vec::new());
        for (at, field) in fields.iter().enumerate() {
            // Beside values alone, a number among words is one of the words.
            let trailing = field.is_pure() || !alone;
            for (items, has_values) in [(field.lead, !alone && !behind), (field.trail, trailing)] {
                let values =
                    items.iter().filter(|i| has_values || !is_plain(i)).filter(|i| i.kind != Kind::Baseline);
                values.for_each(|item| add(&mut cells, Cell { item: *item, field: at }));
            }
            let lead = field.lead.iter().filter(|_| alone || behind);
            let trail = field.trail.iter().filter(|i| !trailing && is_plain(i));
            label.extend(lead.chain(field.words).chain(trail).map(text_of));
        }
        if cells.is_empty() {
            cells = led(line);
        }
        let first = line.items.first().filter(|_| !cells.is_empty())?;
        let named = label.first().is_some_and(|word| line::is_baseline(word.trim_end_matches(':')));
        let (values, marks) = (0..cells.len()).partition(|at| cells[*at].is_value());
        Some(Row {
            line: line.number,
            label: label.join(" ").trim_end_matches(':').to_string(),
            cells,
            values,
            marks,
            baseline: named || line.items.iter().any(|item| item.kind == Kind::Baseline),
            fields: fields.len(),
            start: first.start,
        })
    }

    /// What stands in the column of that number among the values.
    pub fn operand(&self, column: usize) -> Option<Operand> {
        self.cells.get(*self.values.get(column)?)?.number().map(|n| n.operand)
    }

    /// The value that stands directly before a cell, by its column.
    pub fn before(&self, cell: usize) -> Option<usize> {
        self.values.binary_search(&cell.checked_sub(1)?).ok()
    }

    /// Whether a cell stands at the value in that column, as in `5.06 (1.8%)`.
    pub fn follows(&self, cell: usize, column: usize) -> bool {
        let (item, value) = (self.cells[cell].item, self.before(cell));
        value == Some(column) && item.bracket && self.cells[cell - 1].item.end + 1 == item.start
    }

    /// Words of its label in lower case, without what is no letter of them.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        self.label.split_whitespace().map(bare)
    }
}

/// A field by what stands in it: numbers before and behind words.
struct Field<'f, 't> {
    lead: &'f [Item<'t>],
    words: &'f [Item<'t>],
    /// Of a field without words all of it.
    trail: &'f [Item<'t>],
}

impl<'f, 't> Field<'f, 't> {
    /// `answers` makes `y` and `n` behind words a part of what stands there.
    fn of(field: &'f [Item<'t>], answers: bool) -> Field<'f, 't> {
        if field.iter().all(Item::is_cell) {
            return Field { lead: &[], words: &[], trail: field };
        }
        let counts = |item: &&Item| match item.kind {
            Kind::Number(_) | Kind::Baseline => true,
            Kind::YesNo(_) => answers,
            _ => false,
        };
        let trailing = field.iter().rev().take_while(counts).count();
        let (rest, trail) = field.split_at(field.len() - trailing);
        let (lead, words) = rest.split_at(rest.iter().take_while(|item| is_plain(item)).count());
        Field { lead, words, trail }
    }

    fn is_pure(&self) -> bool {
        self.words.is_empty()
    }

    fn has_value(&self) -> bool {
        self.trail.iter().any(is_plain)
    }
}

/// A value takes up the spread behind it: `4.97 ±0.02` is one of a row's fields.
fn add<'t>(cells: &mut Vec<Cell<'t>>, cell: Cell<'t>) {
    let spread = cell.number().is_some_and(|n| n.mark == Mark::Spread);
    match cells.last_mut().filter(|last| spread && last.field == cell.field && last.is_value()) {
        Some(value) => value.item.end = cell.item.end,
        None => cells.push(cell),
    }
}

fn is_plain(item: &Item) -> bool {
    matches!(item.kind, Kind::Number(n) if n.mark == Mark::Plain)
}

/// `2.18s to 1.01s (-53.7%)` in the middle of a sentence.
fn led<'t>(line: &Line<'t>) -> Vec<Cell<'t>> {
    let is_figure = |item: &Item| matches!(item.kind, Kind::Number(_)) && !is_plain(item);
    let leads = |w: &&[Item]| is_plain(&w[0]) && is_plain(&w[1]) && w[1].led && is_figure(&w[2]) && !w[2].gap;
    let found = line.items.windows(3).find(leads).unwrap_or_default();
    found.iter().map(|item| Cell { item: *item, field: 0 }).collect()
}

/// The words of a field, with the bracket that opens last among them.
fn spelled(field: &[Item]) -> String {
    let last = field.iter().rposition(|item| item.bracket);
    let opened = |at| if last == Some(at) { "(" } else { "" };
    let words = field.iter().enumerate().map(|(at, item)| format!("{}{}", opened(at), text_of(item)));
    let closed = if last.is_some() { ")" } else { "" };
    words.collect::<Vec<_>>().join(" ") + closed
}

pub(super) fn text_of<'t>(item: &Item<'t>) -> &'t str {
    match item.kind {
        Kind::Number(number) => number.text,
        Kind::Text(text) => text,
        Kind::YesNo(true) => "y",
        Kind::YesNo(false) => "n",
        Kind::Absent => "-",
        Kind::Baseline => "(baseline)",
    }
}

/// Whether a word names a row of `y` and `n`.
pub(super) fn is_smaller(word: &str) -> bool {
    matches!(word.to_lowercase().as_str(), "is_smaller" | "is-smaller" | "smaller" | "smaller?" | "smaller:")
}

impl<'t> Block<'t> {
    /// The title above a field of `row`: words of the lines of text above it
    /// that stand in the same field, or over the same place.
    pub fn title(&self, row: &Row, cell: &Cell) -> String {
        let mut title = Vec::new();
        for line in &self.header {
            let fields: Vec<&[Item]> = line.fields().collect();
            let over = |field: &&&[Item]| match (field.first(), field.last()) {
                (Some(first), Some(last)) => first.start < cell.item.end && last.end > cell.item.start,
                _ => false,
            };
            // A sentence begins where the rows do.
            let sentence = fields.len() == 1 && line.items[0].start <= row.start;
            let field = match fields.len() {
                _ if sentence => None,
                n if n == row.fields => fields.get(cell.field),
                _ => fields.iter().find(over),
            };
            title.extend(field.map(|field| spelled(field)));
        }
        title.join(" ")
    }

    fn of(lines: Vec<Line<'t>>) -> Block<'t> {
        let mut block = Block::default();
        for line in lines {
            match Row::of(&line) {
                Some(row) => block.rows.push(row),
                None => block.header.push(line),
            }
        }
        block
    }
}

/// Calls `each` with every block of `text`, one after the other: lines with
/// fields and the lines of text directly above.
pub(super) fn for_each_block<'t>(text: &'t str, mut each: impl FnMut(Block<'t>)) {
    let (mut lines, mut rows) = (Vec::<Line>::new(), false);
    let texts = line::uncounted(text).into_iter().chain([""]);
    for (number, text) in (1..).zip(texts) {
        if line::is_rule(text) {
            continue;
        }
        let line = Line::of(number, text);
        let is_row = Row::of(&line).is_some();
        if line.items.is_empty() || rows && !is_row || lines.len() == MOST_LINES {
            let block = std::mem::take(&mut lines);
            if rows {
                each(Block::of(block));
            }
            rows = false;
        }
        if !is_row && lines.len() == MOST_TITLES {
            lines.remove(0);
        }
        if !line.items.is_empty() && line.items.len() <= MOST_ITEMS {
            lines.push(line);
        }
        rows |= is_row;
    }
}
