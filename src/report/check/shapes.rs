//! Which figures of a block belong together, and what they can be about.

use super::block::{Block, Cell, Row, is_smaller};
use super::judge::{Claim, Figure, Way, claim};
use super::line::Kind;
use super::number::Mark;

/// Columns of values that percentages are tried against, one by one and in sums.
const MOST_COLUMNS: usize = 8;
/// Of no more columns than this every sum is tried, of more only that of all.
const MOST_SUMMED: usize = 4;
/// Rows of values above a derived row that are tried in pairs.
const MOST_PAIRED: usize = 6;
/// Rows of values above a derived row that are looked at.
const MOST_ABOVE: usize = 64;

/// Figures that are about the same thing.
#[derive(Debug)]
pub(super) struct Series<'b, 't> {
    /// What they are called.
    pub title: String,
    /// The figures, from the first line on.
    pub figures: Vec<Figure<'b, 't>>,
    /// What they can be about, the likeliest first.
    pub ways: Vec<Way<'b, 't>>,
    /// Whether they say of themselves that they compare values. Others, such
    /// as shares of a total, are left alone where no way fits.
    pub compares: bool,
    /// Whether a title says "percent" for all.
    pub percent: bool,
    /// Names of the columns of values.
    pub columns: Vec<String>,
    /// Titles above the figures, where their row's label is not enough.
    pub titles: Vec<String>,
    /// The first row above them: it may be one of titles.
    pub head: Option<&'b Row<'t>>,
}

impl<'b, 't> Series<'b, 't> {
    /// Leaves `y` and `n` the one way that the figures before them have: they
    /// say too little to tell by themselves what they are about.
    pub fn follow(&mut self, last: Option<&Way<'b, 't>>) {
        if self.figures.iter().all(|f| matches!(f.claim, Claim::Smaller(_))) {
            let likeness = |way: &&Way| last.map_or(0, |last| last.likeness(way));
            let first = self.ways.iter().rev().max_by_key(likeness).cloned();
            self.ways = first.into_iter().collect();
        }
    }
}

/// What a row is that was computed from the rows above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Derived {
    Difference,
    Ratio,
    Smaller,
    /// Computed from what the table does not show.
    Spread,
}

/// All series of a block.
pub(super) fn series<'b, 't>(block: &'b Block<'t>) -> Vec<Series<'b, 't>> {
    let mut found = pivots(block);
    found.extend(compare(block));
    found.extend(lists(block));
    found
}

/// Whether a word says that values are compared.
fn is_change(word: &str) -> bool {
    const WORDS: [&str; 16] = [
        "difference",
        "diff",
        "change",
        "delta",
        "δ",
        "improvement",
        "regression",
        "gain",
        "overhead",
        "loss",
        "increase",
        "decrease",
        "reduction",
        "vs",
        "against",
        "relative",
    ];
    WORDS.contains(&word)
}

fn says_percent(text: &str) -> bool {
    text.contains('%') || text.split_whitespace().any(|word| matches!(word, "pct" | "percent" | "(pct)"))
}

fn derived(row: &Row) -> Option<Derived> {
    let first = row.words().find(|word| !word.is_empty())?;
    match first.as_str() {
        word if is_smaller(word) => Some(Derived::Smaller),
        "is" if row.words().nth(1).is_some_and(|word| is_smaller(&word)) => Some(Derived::Smaller),
        "ratio" | "factor" | "speedup" => Some(Derived::Ratio),
        "spread" | "stddev" | "stdev" | "cv" | "rsd" => Some(Derived::Spread),
        word if is_change(word) => Some(Derived::Difference),
        _ => None,
    }
}

/// Rows of figures below the rows that they are about.
fn pivots<'b, 't>(block: &'b Block<'t>) -> Vec<Series<'b, 't>> {
    let (mut above, mut found) = (Vec::<&Row>::new(), Vec::new());
    for row in &block.rows {
        match derived(row) {
            Some(derived) => found.extend(pivot(block, derived, row, &above)),
            None if row.marks.is_empty() => {
                if above.len() == MOST_ABOVE {
                    above.remove(1);
                }
                above.push(row);
            }
            None => {}
        }
    }
    found
}

fn pivot<'b, 't>(
    block: &'b Block<'t>,
    derived: Derived,
    row: &'b Row<'t>,
    above: &[&'b Row<'t>],
) -> Option<Series<'b, 't>> {
    let percent = says_percent(&row.label);
    let any_marked = row.cells.iter().any(|cell| cell.number().is_some_and(|n| n.mark == Mark::Percent));
    let claim = |cell: &Cell<'t>| match (derived, cell.item.kind) {
        (Derived::Difference, Kind::Number(n)) if n.mark == Mark::Plain && (percent || any_marked) => {
            Some(Claim::Percent(n))
        }
        (Derived::Difference, kind) => claim(kind).filter(|c| !matches!(c, Claim::Smaller(_))),
        (Derived::Ratio, Kind::Number(n)) if n.mark == Mark::Plain => Some(Claim::Factor(n)),
        (Derived::Ratio, kind) => claim(kind).filter(|c| matches!(c, Claim::Factor(_))),
        (Derived::Smaller, kind) => claim(kind).filter(|c| matches!(c, Claim::Smaller(_))),
        (Derived::Spread, _) => None,
    };
    let cells = row.cells.iter().enumerate();
    let figure = |(at, cell)| Some(Figure { row, cell: at, column: at, claim: claim(cell)? });
    let figures: Vec<Figure> = cells.filter_map(figure).collect();
    let fits = |above: &&&Row| above.values.len() == row.cells.len();
    let above: Vec<&Row> = above.iter().filter(fits).copied().collect();
    let ways = pairs(row, &above);
    if figures.is_empty() || ways.is_empty() {
        return None;
    }
    let title = |f: &Figure| named(block.title(row, &row.cells[f.cell]), f.column);
    let titles = figures.iter().filter(|_| row.cells.len() > 1).map(title).collect();
    let head = above.first().copied().filter(|_| row.cells.len() > 1);
    Some(Series {
        title: row.label.clone(),
        figures,
        ways,
        compares: true,
        percent,
        columns: Vec::new(),
        titles,
        head,
    })
}

/// A column's title, or its number from 1.
fn named(title: String, column: usize) -> String {
    if title.is_empty() { format!("column {}", column + 1) } else { title }
}

/// Which of the rows above a derived row it can compare: the row that it
/// names with any other, else any two.
fn pairs<'b, 't>(derived: &Row<'t>, above: &[&'b Row<'t>]) -> Vec<Way<'b, 't>> {
    let (_, name) = derived.label.split_once(' ').unwrap_or_default();
    let is_named = |row: &&&Row| {
        let bare = row.label.split_once('/').map_or(row.label.as_str(), |(bare, _)| bare);
        !name.is_empty() && (row.label == name || bare == name)
    };
    let named = above.iter().rev().find(is_named).copied();
    let first = above.iter().take(MOST_PAIRED / 2);
    let rest = above.iter().skip(MOST_PAIRED / 2);
    let last = rest.clone().skip(rest.len().saturating_sub(MOST_PAIRED / 2));
    let rows: Vec<&Row> = first.chain(last).copied().collect();
    let mut ways = Vec::new();
    for (n, new) in rows.iter().enumerate().rev() {
        // First the row before, then the others above, then those below.
        let others = rows[..n].iter().rev().chain(&rows[n + 1..]);
        ways.extend(others.map(|base| Way::Rows { base, new: named.unwrap_or(new) }));
    }
    if let Some(named) = named {
        ways = rows.iter().map(|base| Way::Rows { base, new: named }).collect();
        ways.retain(|way| !matches!(way, Way::Rows { base, new } if std::ptr::eq(*base, *new)));
    }
    ways
}

/// Whether a row is `label: base (0.00 pct) new (change pct)`.
fn is_compare(row: &Row) -> bool {
    let percent = |at: &usize| row.cells[*at].number().filter(|n| n.mark == Mark::Percent);
    let first = row.marks.first().and_then(percent);
    let paired = |at: &usize| percent(at).is_some() && row.before(*at).is_some();
    row.marks.len() > 1 && first.is_some_and(|n| n.operand.value == 0.0) && row.marks.iter().all(paired)
}

fn compare<'b, 't>(block: &'b Block<'t>) -> Option<Series<'b, 't>> {
    let mut figures = Vec::new();
    for row in block.rows.iter().filter(|row| is_compare(row)) {
        let others = row.marks.iter().skip(1);
        let figure = |cell: &usize| {
            Some(Figure { row, cell: *cell, column: 0, claim: claim(row.cells[*cell].item.kind)? })
        };
        figures.extend(others.filter_map(figure));
    }
    (!figures.is_empty()).then(|| Series {
        title: "change".to_string(),
        figures,
        ways: vec![Way::First],
        compares: true,
        percent: false,
        columns: Vec::new(),
        titles: Vec::new(),
        head: None,
    })
}

/// Rows with values and figures in columns of their own.
fn lists<'b, 't>(block: &'b Block<'t>) -> Vec<Series<'b, 't>> {
    let is_listed = |row: &&Row| derived(row).is_none() && !is_compare(row);
    let rows: Vec<&Row> = block.rows.iter().filter(is_listed).collect();
    let full = rows.iter().filter(|row| !row.values.is_empty() && !row.marks.is_empty());
    // The first of those with the most figures.
    let Some(model) = full.rev().max_by_key(|row| row.marks.len()).copied() else {
        return Vec::new();
    };
    let list = List { block, model, count: model.values.len() };
    (0..model.marks.len()).filter_map(|mark| list.series(mark, &rows)).collect()
}

/// A list and the row that shows what columns it has.
struct List<'b, 't> {
    block: &'b Block<'t>,
    model: &'b Row<'t>,
    /// How many values a row has.
    count: usize,
}

impl<'b, 't> List<'b, 't> {
    fn series(&self, mark: usize, rows: &[&'b Row<'t>]) -> Option<Series<'b, 't>> {
        let cell = &self.model.cells[self.model.marks[mark]];
        let title = self.block.title(self.model, cell);
        let words = || title.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        if matches!(cell.item.kind, Kind::YesNo(_)) && !title.to_lowercase().contains("smaller") {
            return None;
        }
        let figures: Vec<Figure> = rows.iter().filter_map(|row| self.figure(row, mark)).collect();
        let columns: Vec<String> =
            (0..self.count.min(MOST_COLUMNS)).map(|column| self.name(column)).collect();
        let ways = self.ways(&self.bases(rows, mark), &self.covered(&title, &columns));
        let signed = |f: &Figure| f.claim.number().is_some_and(|n| n.signed);
        let led = |f: &Figure| {
            let value = f.row.before(f.cell).map(|column| f.row.cells[f.row.values[column]].item.led);
            value == Some(true) && f.row.cells[f.cell].item.bracket
        };
        let compares = words().any(|word| is_change(&word) || is_smaller(&word))
            || rows.iter().any(|row| row.baseline)
            || figures.iter().any(|f| signed(f) || led(f));
        let percent = says_percent(&title);
        (!figures.is_empty()).then_some(Series {
            title,
            figures,
            ways,
            compares,
            percent,
            columns,
            titles: Vec::new(),
            head: None,
        })
    }

    /// The values that all rows have, whatever stands where figures do.
    fn has_values(&self, row: &Row) -> bool {
        let spare = row.values.get(self.count..);
        spare.is_some_and(|spare| spare.iter().all(|at| row.cells[*at].number().is_none()))
    }

    /// The figure in that column of figures, by its number where none is
    /// missing, else by its place.
    fn figure(&self, row: &'b Row<'t>, mark: usize) -> Option<Figure<'b, 't>> {
        let place = &self.model.cells[self.model.marks[mark]].item;
        let over = |at: &&usize| {
            let item = &row.cells[**at].item;
            item.start < place.end && place.start < item.end
        };
        let cell = match row.marks.len() {
            n if n == self.model.marks.len() => row.marks.get(mark),
            0 => return self.unmarked(row),
            _ => row.marks.iter().find(over),
        };
        let cell = *cell.filter(|_| self.has_values(row))?;
        Some(Figure { row, cell, column: 0, claim: claim(row.cells[cell].item.kind)? })
    }

    /// A percentage that has a sign and lacks the `%` that others have.
    fn unmarked(&self, row: &'b Row<'t>) -> Option<Figure<'b, 't>> {
        let last = row.values.len().checked_sub(1).filter(|last| *last == self.count)?;
        let cell = row.values[last];
        let number = row.cells[cell].number().filter(|n| n.signed && self.model.marks.len() == 1)?;
        Some(Figure { row, cell, column: 0, claim: Claim::Percent(number) })
    }

    fn name(&self, column: usize) -> String {
        let cell = &self.model.cells[self.model.values[column]];
        let title = self.block.title(self.model, cell);
        let bare = title.split_once(" (").map_or(title.as_str(), |(bare, _)| bare);
        if bare.is_empty() && self.count == 1 {
            "the value".to_string()
        } else {
            named(bare.to_string(), column)
        }
    }

    /// The columns that a title names, up to where it says against what.
    fn covered(&self, title: &str, columns: &[String]) -> Vec<usize> {
        let end = |word: &&str| !matches!(*word, "to" | "against" | "vs" | "from" | "over" | "than");
        let words: Vec<&str> = title.split_whitespace().take_while(end).collect();
        let words = words.join(" ");
        let words = || words.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-')));
        let is_named = |name: &String| words().any(|word| word.eq_ignore_ascii_case(name));
        (0..columns.len()).filter(|at| is_named(&columns[*at])).collect()
    }

    /// Rows that all others can be compared with: what calls itself so, else
    /// the first without a figure and the one just above the figures.
    fn bases(&self, rows: &[&'b Row<'t>], mark: usize) -> Vec<&'b Row<'t>> {
        let has_values = || rows.iter().filter(|row| self.has_values(row)).copied();
        let is_zero = |f: Figure| f.claim.number().is_some_and(|n| n.operand.value == 0.0);
        let is_base = |row: &&Row| row.marks.is_empty() || self.figure(row, mark).is_some_and(is_zero);
        if let Some(base) = has_values().find(|row| row.baseline) {
            return vec![base];
        }
        let first = has_values().find(is_base);
        let above = has_values().take_while(|row| !std::ptr::eq(*row, self.model)).filter(is_base).last();
        let above = above.filter(|above| first.is_none_or(|first| !std::ptr::eq(*above, first)));
        first.into_iter().chain(above).collect()
    }

    fn ways(&self, bases: &[&'b Row<'t>], covered: &[usize]) -> Vec<Way<'b, 't>> {
        let count = self.count.min(MOST_COLUMNS);
        let sums = if covered.is_empty() { sums(count) } else { vec![covered.to_vec()] };
        let against = bases
            .iter()
            .flat_map(|base| sums.iter().map(|columns| Way::Against { base, columns: columns.clone() }));
        let mut ways: Vec<Way> = against.collect();
        for new in (0..count).rev().filter(|new| covered.is_empty() || covered == [*new]) {
            let others = (0..new).rev().chain(new + 1..count);
            ways.extend(others.map(|base| Way::Within { base, new }));
        }
        ways
    }
}

/// Every column by itself, all together, then what else can be added up.
fn sums(count: usize) -> Vec<Vec<usize>> {
    let columns = |set: usize| (0..count).filter(|column| set & 1 << column != 0).collect();
    let mut sets: Vec<usize> = (0..count).map(|column| 1 << column).collect();
    let all = (1 << count) - 1;
    if count > 1 {
        sets.push(all);
    }
    if count <= MOST_SUMMED {
        sets.extend((1..all).filter(|set: &usize| set.count_ones() > 1));
    }
    sets.into_iter().map(columns).collect()
}
