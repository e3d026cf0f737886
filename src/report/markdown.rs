//! GitHub-flavoured Markdown, <https://github.github.com/gfm/#tables-extension->.

use super::{Column, Table};

pub(super) fn render(tables: &[Table]) -> String {
    let tables: Vec<String> = tables.iter().map(table).collect();
    tables.join("\n")
}

fn table(table: &Table) -> String {
    let mut out = format!("**{}**\n\n", escaped(&table.title));
    if let Some(block) = &table.block {
        out.push_str(&format!("{}\n\n", escaped(block)));
    }
    out.push_str(&if table.lines.is_empty() { grid(table) } else { lines(&table.lines) });
    if !table.footnotes.is_empty() {
        out.push('\n');
    }
    for note in &table.footnotes {
        out.push_str(&format!("- {}\n", escaped(note)));
    }
    out
}

fn grid(table: &Table) -> String {
    let rule = |column: &Column| if column.label || column.beside { ":---" } else { "---:" };
    let mut out = line(table.header.iter().map(|c| escaped(&c.title)));
    out.push_str(&line(table.header.iter().map(|c| rule(c).to_string())));
    for row in &table.rows {
        out.push_str(&line(row.iter().map(|field| escaped(&field.text()))));
    }
    out
}

/// A backslash at its end keeps a line from running into the next.
fn lines(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
    lines.join("\\\n") + "\n"
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields.collect();
    format!("| {} |\n", fields.join(" | "))
}

/// Text that stays text: no column ends in it, and no markup begins.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '|' | '*' | '`' | '[' | ']' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}
