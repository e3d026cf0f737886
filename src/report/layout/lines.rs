//! Blocks of text: one for each cell, its lines filled in from templates.

use super::{View, labels, values};
use crate::model::{Cell, Piece, Template};
use crate::report::{Field, Table};
use crate::stats;

impl<'a> View<'a> {
    pub(super) fn lines(self, lines: &[Template]) -> Vec<Table> {
        let blocks: Vec<Table> = self.cells().map(|cell| self.block_of_lines(lines, cell)).collect();
        if blocks.is_empty() { vec![self.table(None, Vec::new(), Vec::new(), &[])] } else { blocks }
    }

    /// As a table the block is one row, with a column for each number.
    fn block_of_lines(self, lines: &[Template], cell: &'a Cell) -> Table {
        let mut numbers: Vec<(&Piece, Field)> = Vec::new();
        let mut used = Vec::new();
        for piece in lines.iter().flat_map(|line| &line.0) {
            if numbers.iter().any(|(known, _)| *known == piece) {
                continue;
            }
            let quantities = piece.quantities();
            let fields = quantities.iter().map(|q| self.quantity(cell, &q.metric, q.statistic));
            let fields: Vec<Field> = fields.collect();
            used.extend(fields.iter().cloned());
            numbers.extend(self.number_of(&fields).map(|field| (piece, field)));
        }
        let number = |piece: &Piece| {
            let found = numbers.iter().find(|(known, _)| *known == piece);
            found.map_or(String::new(), |(_, field)| field.text().into_owned())
        };
        let on = |axis: &str| cell.coords.get(axis).map(String::as_str);
        let filled = lines.iter().map(|line| self.filled(line, on, number)).collect();

        let place = cell.coords.iter().map(|(axis, value)| (axis.as_str(), value.as_str())).collect();
        let title = |(piece, _): &(&Piece, Field)| values(piece.to_string().trim_matches(['{', '}']));
        let header = [labels("cell")].into_iter().chain(numbers.iter().map(title)).collect();
        let fields = numbers.iter().map(|(_, field)| field.clone());
        let row = [Field::Text(cell.id.0.clone())].into_iter().chain(fields).collect();
        Table { lines: filled, ..self.table(self.subtitle(&place), header, vec![row], &used) }
    }

    /// The number that a piece of these quantities is: the only one, or the
    /// quotient of two. Whatever is no number stands in the quotient's place.
    fn number_of(self, fields: &[Field]) -> Option<Field> {
        let [top, bottom] = fields else { return fields.first().cloned() };
        Some(match (top.value(), bottom.value()) {
            (Some(top), Some(bottom)) => {
                let decimals = self.spec.decimals.unwrap_or(4);
                let text = |value| Field::Ratio { value, text: self.number(value, decimals) };
                stats::ratio(top, bottom).map_or(Field::NotApplicable, text)
            }
            (None, _) => top.clone(),
            (Some(_), None) => bottom.clone(),
        })
    }
}
