//! Whether a printed figure is what arithmetic gives.

use super::block::Row;
use super::line::Kind;
use super::number::{Mark, Number, Operand};
use crate::stats;

/// Percentages lose this much, times their size, to the binary fractions that
/// they are computed with; ties between two decimals are decided beyond it.
const NOISE: f64 = 1e-12;

/// A printed figure that follows from other numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure<'b, 't> {
    /// The row that it stands in.
    pub row: &'b Row<'t>,
    /// Which of the row's cells it is.
    pub cell: usize,
    /// Column of the values that it belongs to, where rows are compared.
    pub column: usize,
    /// What it says.
    pub claim: Claim<'t>,
}

/// What a figure says of two numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Claim<'t> {
    /// By how many percent one differs from the other.
    Percent(Number<'t>),
    /// One divided by the other.
    Factor(Number<'t>),
    /// Whether one is smaller than the other.
    Smaller(bool),
}

/// Which two numbers figures are about.
#[derive(Debug, Clone)]
pub(super) enum Way<'b, 't> {
    /// Those of two other rows, in the figure's own column.
    Rows { base: &'b Row<'t>, new: &'b Row<'t> },
    /// Sums of columns, in a row for all and in the figure's own.
    Against { base: &'b Row<'t>, columns: Vec<usize> },
    /// Two columns of the figure's own row.
    Within { base: usize, new: usize },
    /// The value before the row's first figure, and the one before this.
    First,
}

/// Which sign or which quotient stands for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Convention {
    /// `(new - base) / base`, `new / base`.
    Growth,
    /// `(base - new) / base`, `base / new`: positive is better where lower is.
    Decline,
}

/// What a figure turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What the printed numbers give, rounded.
    Right,
    /// What the numbers give that these were rounded from, or can give.
    WithinRounding,
    /// What the printed numbers give, cut off.
    Truncated,
    /// Neither.
    Wrong,
}

/// A figure compared with what it should be.
#[derive(Debug, Clone)]
pub(super) struct Compared {
    /// What the new number was compared with.
    pub base: Operand,
    /// The new number.
    pub new: Operand,
    /// What the printed numbers give, unrounded; 1 and 0 for `y` and `n`.
    pub exact: f64,
    /// The printed figure is the correctly rounded one.
    pub right: bool,
    /// The printed figure is the one cut off behind its last decimal.
    pub cut: bool,
    /// Numbers that round to the printed ones can give the printed figure.
    pub near: bool,
}

/// How a text turns numbers into figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// Some figure can only have been rounded.
    Rounds,
    /// Some figure can only have been cut off.
    Truncates,
}

impl Habit {
    /// What two figures say together: one that must have been cut off says
    /// more than one that must have been rounded.
    pub fn and(self, other: Habit) -> Habit {
        if self == Habit::Truncates { self } else { other }
    }
}

impl Way<'_, '_> {
    /// The numbers that a figure is about, base first.
    pub fn operands(&self, figure: &Figure) -> Option<(Operand, Operand)> {
        let row = figure.row;
        let (base, new) = match self {
            Way::Rows { base, new } => (base.operand(figure.column)?, new.operand(figure.column)?),
            Way::Against { base, columns } => (sum(base, columns)?, sum(row, columns)?),
            Way::Within { base, new } => (row.operand(*base)?, row.operand(*new)?),
            Way::First => {
                let base = row.before(*row.marks.first()?)?;
                (row.operand(base)?, row.operand(row.before(figure.cell)?)?)
            }
        };
        Some(base.alike(new))
    }

    /// How much two ways have in common: 2 for all, 1 for the base.
    pub fn likeness(&self, other: &Way) -> u8 {
        let (base, all) = match (self, other) {
            (Way::Rows { base, new }, Way::Rows { base: b, new: n }) => {
                (std::ptr::eq(*base, *b), std::ptr::eq(*new, *n))
            }
            (Way::Against { base, columns }, Way::Against { base: b, columns: c }) => {
                (std::ptr::eq(*base, *b), columns == c)
            }
            (Way::Within { base, new }, Way::Within { base: b, new: n }) => (base == b, new == n),
            _ => (false, false),
        };
        u8::from(base) + u8::from(base && all)
    }
}

fn sum(row: &Row, columns: &[usize]) -> Option<Operand> {
    let operands = columns.iter().map(|column| row.operand(*column));
    operands.reduce(|a, b| Some(a?.plus(b?))).flatten()
}

impl Claim<'_> {
    /// The printed number, where there is one.
    pub fn number(&self) -> Option<Number<'_>> {
        match self {
            Claim::Percent(number) | Claim::Factor(number) => Some(*number),
            Claim::Smaller(_) => None,
        }
    }

    /// Whether it says more where `exact` does and less where that does.
    fn agrees(&self, exact: f64) -> bool {
        match self {
            Claim::Percent(number) => (number.operand.value < 0.0) == (exact < 0.0),
            Claim::Factor(number) => (number.operand.value < 1.0) == (exact < 1.0),
            Claim::Smaller(_) => true,
        }
    }

    /// What two numbers give; `None` where that is no number.
    fn exact(&self, convention: Convention, base: f64, new: f64) -> Option<f64> {
        let exact = match (self, convention) {
            (Claim::Percent(_), Convention::Growth) => stats::percent_change(new, base)?,
            (Claim::Percent(_), Convention::Decline) => -stats::percent_change(new, base)?,
            (Claim::Factor(_), Convention::Growth) => stats::ratio(new, base)?,
            (Claim::Factor(_), Convention::Decline) => stats::ratio(base, new)?,
            (Claim::Smaller(_), _) => f64::from(u8::from(new < base)),
        };
        let noise = if exact == 0.0 { 0.0 } else { exact.signum() * NOISE * (100.0 + exact.abs()) };
        Some(exact + noise)
    }

    /// The figure beside what `base` and `new` give.
    pub fn compare(&self, convention: Convention, base: Operand, new: Operand) -> Option<Compared> {
        let exact = self.exact(convention, base.value, new.value)?;
        let (right, cut, near) = match self {
            Claim::Smaller(said) => {
                // Of numbers that look the same either can have been smaller.
                ((exact > 0.5) == *said, false, new.value == base.value)
            }
            Claim::Percent(number) | Claim::Factor(number) => {
                let printed = number.operand.value;
                let unit = number.operand.half * 2.0;
                let is = |value: f64| (printed - value).abs() < unit * 1e-3;
                let close = (printed - exact).abs() < unit;
                let right = close && stats::fixed(exact, number.decimals).parse().is_ok_and(is);
                (right, is((exact / unit).trunc() * unit), self.near(convention, base, new, number))
            }
        };
        Some(Compared { base, new, exact, right, cut, near })
    }

    /// Whether numbers that round to `base` and `new` give what rounds to the
    /// printed one. Quotients are monotone, so corners are extremes.
    fn near(&self, convention: Convention, base: Operand, new: Operand, printed: &Number) -> bool {
        let ends = |o: Operand| [o.value - o.half, o.value + o.half];
        let corners = ends(base).into_iter().flat_map(|b| ends(new).map(|n| self.exact(convention, b, n)));
        let corners = corners.flatten().map(|corner| (corner, corner));
        let Some((least, most)) = corners.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
            return false;
        };
        let Operand { value, half, .. } = printed.operand;
        least <= value + half && value - half <= most
    }
}

impl Compared {
    /// What this figure alone says of how figures come about.
    pub fn habit(&self) -> Option<Habit> {
        match (self.right, self.cut) {
            (true, false) => Some(Habit::Rounds),
            (false, true) if !self.near => Some(Habit::Truncates),
            _ => None,
        }
    }

    /// A figure that may have been cut off, or computed from numbers that were
    /// rounded afterwards, is taken for what others beside it are.
    pub fn verdict(&self, habit: Option<Habit>) -> Verdict {
        let truncates = !self.near || habit != Some(Habit::Rounds);
        match self {
            Compared { right: true, .. } => Verdict::Right,
            Compared { cut: true, .. } if truncates => Verdict::Truncated,
            Compared { near: true, .. } => Verdict::WithinRounding,
            _ => Verdict::Wrong,
        }
    }
}

/// How well figures fit: the right or cut off ones, of these the right ones,
/// and those that operands' rounding can explain.
type Fit = (usize, usize, usize);

/// The way and the convention under which most figures are right: of equals
/// the first. The count is of figures that are not plainly wrong.
pub(super) fn fitting<'w, 'b, 't>(
    figures: &[Figure<'b, 't>],
    ways: &'w [Way<'b, 't>],
) -> Option<(&'w Way<'b, 't>, Convention, usize)> {
    let mut best: Option<(&Way, Convention, Fit)> = None;
    for way in ways {
        let fits = [Convention::Growth, Convention::Decline].map(|convention| fit(figures, way, convention));
        let [Some(growth), Some(decline)] = fits else { continue };
        let (convention, fit) = match decline > growth {
            true => (Convention::Decline, decline.0),
            false => (Convention::Growth, growth.0),
        };
        if best.as_ref().is_none_or(|(.., most)| fit > *most) {
            best = Some((way, convention, fit));
        }
        if fit.1 == figures.len() {
            break;
        }
    }
    best.map(|(way, convention, (exactly, _, near))| (way, convention, exactly + near))
}

/// How well figures fit, and how many say at least more or less as numbers do.
fn fit(figures: &[Figure], way: &Way, convention: Convention) -> Option<(Fit, usize)> {
    let compared = figures.iter().filter_map(|figure| {
        let (base, new) = way.operands(figure)?;
        Some((figure.claim, figure.claim.compare(convention, base, new)?))
    });
    compared.fold(None, |sum: Option<(Fit, usize)>, (claim, c)| {
        let ((exactly, right, near), aligned) = sum.unwrap_or_default();
        let fit = (
            exactly + usize::from(c.right || c.cut),
            right + usize::from(c.right),
            near + usize::from(!c.right && !c.cut && c.near),
        );
        Some((fit, aligned + usize::from(claim.agrees(c.exact))))
    })
}

/// What a cell claims, if it can be a figure at all.
pub(super) fn claim(kind: Kind) -> Option<Claim> {
    match kind {
        Kind::Number(number) => match number.mark {
            Mark::Percent => Some(Claim::Percent(number)),
            Mark::Factor => Some(Claim::Factor(number)),
            Mark::Plain | Mark::Spread => None,
        },
        Kind::YesNo(yes) => Some(Claim::Smaller(yes)),
        _ => None,
    }
}
