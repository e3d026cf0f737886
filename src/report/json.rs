//! JSON for programs: numbers unrounded, beside the text that people see.

use serde_json::{Value, json};

use super::{Compared, Field, Table};

pub(super) fn render(tables: &[Table]) -> String {
    let tables: Vec<Value> = tables.iter().map(table).collect();
    format!("{:#}\n", Value::Array(tables))
}

fn table(table: &Table) -> Value {
    let columns: Vec<&str> = table.header.iter().map(|c| c.title.as_str()).collect();
    let row = |row: &Vec<Field>| row.iter().map(field).collect();
    let rows: Vec<Value> = table.rows.iter().map(row).collect();
    let mut json = json!({
        "title": table.title,
        "block": table.block,
        "columns": columns,
        "rows": rows,
        "footnotes": table.footnotes,
    });
    if !table.lines.is_empty() {
        json["lines"] = json!(table.lines);
    }
    json
}

/// Whatever could have been a number has a `value`, null where it is none.
fn field(field: &Field) -> Value {
    let text = field.text();
    match field {
        Field::Text(_) => json!({ "text": text }),
        Field::Measured(measured) => json!(measured),
        Field::Ratio { value, .. } | Field::Change { value, .. } => json!({ "value": value, "text": text }),
        Field::Percent { value, .. } => json!({ "value": value, "text": text, "unit": "%" }),
        Field::Compared(compared) => self::compared(compared),
        Field::Failed { what, cell, story } => json!({
            "value": null, "text": text, "failed": what, "cell": cell, "detail": story,
        }),
        Field::Missing | Field::Excluded | Field::NotApplicable => {
            json!({ "value": null, "text": text })
        }
    }
}

/// The figure, its text with the mark, and how it was tested: p by itself and
/// corrected for all comparisons of the table, null for exact values.
fn compared(compared: &Compared) -> Value {
    let mut json = field(&compared.figure);
    json["text"] = json!(compared.text());
    json["significance"] = json!(compared.significance().label());
    match &compared.tested {
        Ok(change) => {
            json["test"] = json!(change.test.label());
            json["p"] = json!(change.p);
            json["p_corrected"] = json!(change.adjusted);
        }
        Err(reason) => json["untested"] = json!(reason.to_string()),
    }
    json
}
