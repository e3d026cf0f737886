//! Plain text that survives a mail client: blanks only, no line ends in one,
//! and none is wider than it may be in a commit message.

use unicode_width::UnicodeWidthStr;

use super::Table;

/// Widest line. A single word that is wider is left whole.
const WIDTH: usize = 75;
const GAP: usize = 2;

pub(super) fn render(tables: &[Table]) -> String {
    let tables: Vec<String> = tables.iter().map(table).collect();
    tables.join("\n")
}

fn table(table: &Table) -> String {
    let mut title = wrap(&table.title, WIDTH);
    if let Some(block) = &table.block {
        title.extend(wrap(block, WIDTH));
    }
    let columns: Vec<Column> = (0..table.header.len()).map(|at| Column::of(table, at)).collect();
    let mut paragraphs = vec![title];
    if !table.lines.is_empty() {
        paragraphs.push(table.lines.iter().flat_map(|line| folded(line)).collect());
    } else if !table.rows.is_empty() {
        let blocks = blocks(&columns);
        paragraphs.extend(blocks.iter().map(|block| grid(block, table.rows.len())));
    }
    let notes = table.footnotes.iter().flat_map(|note| wrap(note, WIDTH));
    paragraphs.push(notes.collect());
    paragraphs.retain(|lines| !lines.is_empty());
    let paragraphs: Vec<String> = paragraphs.iter().map(|lines| lines.join("\n")).collect();
    paragraphs.join("\n\n") + "\n"
}

/// A column as text.
struct Column<'a> {
    title: &'a str,
    label: bool,
    beside: bool,
    fields: Vec<String>,
    /// Width of the widest field.
    fields_width: usize,
}

impl<'a> Column<'a> {
    fn of(table: &'a Table, at: usize) -> Self {
        let &super::Column { ref title, label, beside } = &table.header[at];
        // The published form of a comparison: `1-groups: 4.97 (0.00 pct) ...`.
        let colon = if label && table.header.iter().any(|c| c.beside) { ":" } else { "" };
        let field = |row: &Vec<super::Field>| row.get(at).map(|f| f.text().into_owned() + colon);
        let fields: Vec<String> = table.rows.iter().filter_map(field).collect();
        // The title before it is that of both.
        let title = if beside { "" } else { title };
        Column { title, label, beside, fields_width: widest(&fields), fields }
    }

    /// Blanks between the column and the one before it.
    fn gap(&self) -> usize {
        if self.beside { 1 } else { GAP }
    }

    /// Width of the column under a title of these lines.
    fn width(&self, title: &[String]) -> usize {
        self.fields_width.max(widest(title))
    }

    fn pad(&self, text: &str, width: usize) -> String {
        let blanks = " ".repeat(width.saturating_sub(text.width()));
        if self.label || self.beside { format!("{text}{blanks}") } else { format!("{blanks}{text}") }
    }
}

fn widest(texts: &[String]) -> usize {
    texts.iter().map(|text| text.width()).max().unwrap_or(0)
}

/// Width of the columns when each one's title is wrapped at its cap.
fn total_width(columns: &[&Column], caps: &[usize]) -> usize {
    let widths = columns.iter().zip(caps).map(|(c, cap)| c.width(&wrap(c.title, *cap)));
    widths.sum::<usize>() + columns.iter().skip(1).map(|c| c.gap()).sum::<usize>()
}

/// The columns in as few blocks as fit, every block with the rows' labels.
fn blocks<'c, 'a>(columns: &'c [Column<'a>]) -> Vec<Vec<&'c Column<'a>>> {
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let labels = || (0..columns.len()).filter(|at| columns[*at].label);
    let pick = |block: &[usize]| -> Vec<&'c Column<'a>> {
        let mut block = block.to_vec();
        block.sort_unstable();
        block.iter().map(|at| &columns[*at]).collect()
    };
    let narrowest = |block: &[&Column]| total_width(block, &vec![1; block.len()]);
    for group in groups(columns) {
        let longer = blocks.last().map(|block| [block.as_slice(), &group].concat());
        match (blocks.last_mut(), longer) {
            (Some(block), Some(longer)) if narrowest(&pick(&longer)) <= WIDTH => {
                *block = longer;
            }
            _ => blocks.push(labels().chain(group).collect()),
        }
    }
    if blocks.is_empty() {
        blocks.push(labels().collect());
    }
    blocks.iter().map(|block| pick(block)).collect()
}

/// Columns that stay together: each with those beside it.
fn groups(columns: &[Column]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in (0..columns.len()).filter(|at| !columns[*at].label) {
        match groups.last_mut() {
            Some(group) if columns[at].beside => group.push(at),
            _ => groups.push(vec![at]),
        }
    }
    groups
}

fn grid(columns: &[&Column], rows: usize) -> Vec<String> {
    let titles = titles(columns);
    let height = titles.iter().map(Vec::len).max().unwrap_or(0);
    let widths = columns.iter().zip(&titles).map(|(c, title)| c.width(title));
    let widths: Vec<usize> = widths.collect();
    let line = |texts: Vec<&str>| {
        let mut line = String::new();
        for (n, ((column, width), text)) in columns.iter().zip(&widths).zip(texts).enumerate() {
            line.push_str(&" ".repeat(if n == 0 { 0 } else { column.gap() }));
            line.push_str(&column.pad(text, *width));
        }
        line.trim_end().to_string()
    };
    // Short titles stand on the last lines, next to what they are titles of.
    let title_line = |n: usize| {
        let nth = |title: &Vec<String>| (n + title.len()).checked_sub(height);
        let text = |title| nth(title).map_or("", |at| title[at].as_str());
        line(titles.iter().map(text).collect())
    };
    let row = |n: usize| {
        let text = |c: &&Column| c.fields.get(n).map_or(String::new(), Clone::clone);
        let texts: Vec<String> = columns.iter().map(text).collect();
        line(texts.iter().map(String::as_str).collect())
    };
    (0..height).map(title_line).chain((0..rows).map(row)).collect()
}

/// The columns' titles, wrapped no more than the width demands, the lines of
/// each about equally long.
fn titles(columns: &[&Column]) -> Vec<Vec<String>> {
    let caps = caps(columns);
    let title = |(column, cap): (&&Column, usize)| {
        let lines = wrap(column.title, cap).len();
        let narrowest = (1..=cap).find(|cap| wrap(column.title, *cap).len() <= lines);
        wrap(column.title, narrowest.unwrap_or(cap))
    };
    columns.iter().zip(caps).map(title).collect()
}

/// How wide each title may be: first the most that all may have alike, then
/// whatever room is left to whichever can use it.
fn caps(columns: &[&Column]) -> Vec<usize> {
    let alike = |cap: usize| vec![cap; columns.len()];
    let fits = |caps: &Vec<usize>| total_width(columns, caps) <= WIDTH;
    let alike_caps = (1..=WIDTH).rev().map(alike).find(fits);
    let mut caps = alike_caps.unwrap_or_else(|| alike(1));
    for at in 0..caps.len() {
        let with = |cap: usize| {
            let mut wider = caps.clone();
            wider[at] = cap;
            wider
        };
        let widest = (caps[at]..=WIDTH).rev().find(|cap| fits(&with(*cap)));
        caps[at] = widest.unwrap_or(caps[at]);
    }
    caps
}

/// A text as lines that fit a commit message.
pub fn paragraph(text: &str) -> String {
    wrap(text, WIDTH).join("\n") + "\n"
}

/// A line as it is where it fits, blanks and all.
fn folded(line: &str) -> Vec<String> {
    let line = line.trim_end();
    if line.width() <= WIDTH { vec![line.to_string()] } else { wrap(line, WIDTH) }
}

/// Lines of whole words, as many words a line as `width` has room for.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
