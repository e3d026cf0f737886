//! Pivot tables: an axis across, an axis down. What they share with
//! comparisons is here too.

use indexmap::IndexSet;

use super::{View, direction, labels, sum, unit_shown, values};
use crate::model::{Cell, Derived};
use crate::report::{Field, Table};
use crate::stats;

/// Values on some of the axes: of a block those that are neither across nor down.
pub(super) type Place<'a> = Vec<(&'a str, &'a str)>;

impl<'a> View<'a> {
    /// Every combination of the axes but `taken` that some cell has. Without
    /// any cell there is one block still, so that the table is not lost silently.
    pub(super) fn blocks(self, taken: &[&str]) -> IndexSet<Place<'a>> {
        let left_over = |c: &'a Cell| {
            let coords = c.coords.iter().map(|(a, v)| (a.as_str(), v.as_str()));
            coords.filter(|(a, _)| !taken.contains(a)).collect()
        };
        let mut blocks: IndexSet<Place> = self.cells().map(left_over).collect();
        if blocks.is_empty() {
            blocks.insert(Vec::new());
        }
        blocks
    }

    /// The block's place on the left-over axes, as far as there is a choice,
    /// or whatever the table says instead.
    pub(super) fn subtitle(self, block: &Place<'a>) -> Option<String> {
        if let Some(template) = &self.spec.block {
            let value = |axis: &str| block.iter().find(|(a, _)| *a == axis).map(|(_, value)| *value);
            return Some(self.filled(template, value, |piece| piece.to_string()));
        }
        let open = block.iter().filter(|(axis, _)| self.values(axis).nth(1).is_some());
        let parts: Vec<String> =
            open.map(|(axis, value)| format!("{axis} {}", self.label(axis, value))).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// A metric in the cells of `place`, at every value across.
    pub(super) fn across(self, metric: &str, place: &Place<'a>, columns: &'a str) -> Vec<Field> {
        let cell = |column| self.index.cell([place.as_slice(), &[(columns, column)]].concat());
        let field = |column| cell(column).map_or(Field::Excluded, |c| self.field(c, metric));
        self.values(columns).map(field).collect()
    }

    pub(super) fn pivot(
        self,
        metric: &str,
        columns: &'a str,
        rows: &'a str,
        derived: &[Derived],
        block: &Place<'a>,
    ) -> Table {
        let row = |row| {
            let place = [block.as_slice(), &[(rows, row)]].concat();
            (self.label(rows, row), self.across(metric, &place, columns))
        };
        let measured: Vec<(&str, Vec<Field>)> = self.values(rows).map(row).collect();

        let unit = unit_shown(self.unit(metric)).map_or(String::new(), |unit| format!("/{unit}"));
        let mut body: Vec<Vec<Field>> = measured
            .iter()
            .map(|(label, fields)| labelled(format!("{label}{unit}"), fields.clone()))
            .collect();
        body.extend(derived.iter().flat_map(|d| self.derive(*d, &measured)));

        let mut header = vec![labels(columns)];
        header.extend(self.values(columns).map(|v| values(self.label(columns, v))));
        let used: Vec<Field> = measured.into_iter().flat_map(|(_, f)| f).collect();
        self.table(self.subtitle(block), header, body, &used)
    }

    /// The derived rows of one sort. Of two rows the second alone can be
    /// compared with the first, so the derived row need not say which.
    fn derive(self, derived: Derived, rows: &[(&str, Vec<Field>)]) -> Vec<Vec<Field>> {
        let name = match derived {
            Derived::Difference => "difference",
            Derived::Ratio => "ratio",
            Derived::IsSmaller => "is_smaller",
            Derived::Spread => "spread",
        };
        let named = |label: &str| match (derived, rows.len()) {
            (Derived::Spread, _) | (_, 3..) => format!("{name} {label}"),
            _ => name.to_string(),
        };
        let Some(((_, baseline), others)) = rows.split_first() else {
            return Vec::new();
        };
        let compared = if derived == Derived::Spread { rows } else { others };
        let row = |(label, fields): &(&str, Vec<Field>)| {
            let pairs = fields.iter().zip(baseline);
            let fields = pairs.map(|(new, base)| self.derived_field(derived, new, base));
            labelled(named(label), fields.collect())
        };
        compared.iter().map(row).collect()
    }

    fn derived_field(self, derived: Derived, new: &Field, base: &Field) -> Field {
        let field = match derived {
            Derived::Difference => Some(self.difference(new.value(), base.value(), direction([new, base]))),
            Derived::Ratio => Some(self.ratio(new.value(), base.value())),
            Derived::IsSmaller => {
                let values = new.value().zip(base.value());
                values.map(|(new, base)| Field::Text(if new < base { "y" } else { "n" }.to_string()))
            }
            Derived::Spread => new.measured().and_then(|m| m.estimate.spread()).map(|value| {
                let decimals = self.spec.percent_decimals;
                Field::Percent { value, text: format!("{}%", stats::fixed(value, decimals)) }
            }),
        };
        let field = field.unwrap_or(Field::NotApplicable);
        if derived == Derived::Spread { field } else { self.tested(field, &[base], &[new], sum) }
    }
}

pub(super) fn labelled(label: String, fields: Vec<Field>) -> Vec<Field> {
    let mut row = vec![Field::Text(label)];
    row.extend(fields);
    row
}
