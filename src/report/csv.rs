//! Comma-separated values, one line a field: tables of any shape under one
//! header. Quoted as in RFC 4180; lines end in a newline alone.

use super::{Field, Table};

const HEADER: &str =
    "table,block,row,column,text,value,unit,metric,statistic,kind,n,cell,boots,low,high,significance\n";

pub(super) fn render(tables: &[Table]) -> String {
    let mut out = HEADER.to_string();
    for table in tables {
        for (n, row) in table.rows.iter().enumerate() {
            let label = row_label(table, n);
            let fields = table.header.iter().zip(row).filter(|(c, _)| !c.label);
            for (column, field) in fields {
                let block = table.block.as_deref().unwrap_or("");
                let place = [&table.title, block, &label, &column.title];
                let place = place.map(str::to_string);
                let texts: Vec<String> = place.into_iter().chain(values(field)).collect();
                let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                out.push_str(&quoted.join(","));
                out.push('\n');
            }
        }
    }
    out
}

/// What names the row; its number, from 1, where no column does.
fn row_label(table: &Table, row: usize) -> String {
    let columns = table.header.iter().zip(&table.rows[row]);
    let mut labels = columns.filter(|(column, _)| column.label);
    labels.next().map_or_else(|| (row + 1).to_string(), |(_, field)| field.text().into_owned())
}

/// The header's columns from `text` on; unknown ones are empty. `low` and
/// `high` are the 95 % interval over boots.
fn values(field: &Field) -> [String; 12] {
    let mut values: [String; 12] = Default::default();
    values[0] = field.text().into_owned();
    values[1] = field.value().map_or(String::new(), |v| v.to_string());
    match field {
        Field::Measured(m) => {
            values[2] = m.unit.clone();
            values[3] = m.metric.clone();
            values[4] = m.statistic.to_string();
            values[5] = m.kind.label().to_string();
            values[6] = m.estimate.n.to_string();
            values[7] = m.cell.0.clone();
            values[8] = m.boots.to_string();
            if let Some((low, high)) = m.interval {
                (values[9], values[10]) = (low.to_string(), high.to_string());
            }
        }
        Field::Percent { .. } => values[2] = "%".to_string(),
        Field::Compared(compared) => {
            values[2] = self::values(&compared.figure)[2].clone();
            values[11] = compared.significance().label().to_string();
        }
        Field::Failed { cell, .. } => values[7] = cell.0.clone(),
        _ => {}
    }
    values
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
