//! `--only AXIS=VALUE[,VALUE...]`: a part of a matrix.

use std::collections::HashSet;
use std::str::FromStr;

use super::expand::symbol;
use super::hint::suggest;
use crate::model::{Axis, Cell, Matrix};

/// One `--only`: the values of an axis that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only {
    /// Name of the axis, as in the matrix file.
    pub axis: String,
    /// Values, or their labels.
    pub values: Vec<String>,
}

/// Why a selection cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// Not of the form `AXIS=VALUE[,VALUE...]`.
    #[error("`{0}` is not of the form AXIS=VALUE[,VALUE...], for example NR_CPUS=512,4096")]
    Form(String),
    /// The matrix has no such axis.
    #[error("the matrix has no axis `{axis}`: {help}")]
    Axis {
        /// What was asked for.
        axis: String,
        /// What there is.
        help: String,
    },
    /// The axis has no such value.
    #[error("axis `{axis}` has no value `{value}`: {help}")]
    Value {
        /// The axis.
        axis: String,
        /// What was asked for.
        value: String,
        /// What there is.
        help: String,
    },
    /// No cell has all the values.
    #[error("no cell of the matrix has {0}: the matrix file excludes the combination")]
    Nothing(String),
}

impl FromStr for Only {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let form = || SelectError::Form(text.to_owned());
        let (axis, values) = text.split_once('=').ok_or_else(form)?;
        let values: Vec<_> = values.split(',').map(|v| v.trim().to_owned()).collect();
        if axis.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(form());
        }
        Ok(Only { axis: axis.trim().to_owned(), values })
    }
}

/// Keeps the cells that have the wanted values, and of every axis the values
/// that are left. Several `only` of one axis add up; different axes must all
/// be satisfied.
///
/// # Errors
/// An unknown axis or value, or nothing is left; then `matrix` is unchanged.
pub fn select(matrix: &mut Matrix, only: &[Only]) -> Result<(), SelectError> {
    let mut wanted: Vec<(&str, Vec<&str>)> = Vec::new();
    for item in only {
        let axis = axis(&matrix.axes, &item.axis)?;
        let values = item.values.iter().map(|v| value(axis, v)).collect::<Result<Vec<_>, _>>()?;
        match wanted.iter_mut().find(|(name, _)| *name == axis.name) {
            Some((_, all)) => all.extend(values),
            None => wanted.push((&axis.name, values)),
        }
    }
    let has = |cell: &Cell| wanted.iter().all(|(axis, values)| values.contains(&cell.coords[*axis].as_str()));
    if !matrix.cells.iter().any(has) {
        let all = wanted.iter().map(|(axis, values)| format!("{axis}={}", values.join(",")));
        return Err(SelectError::Nothing(all.collect::<Vec<_>>().join(" and ")));
    }
    matrix.cells.retain(has);
    for axis in &mut matrix.axes {
        let left: HashSet<&str> = matrix.cells.iter().map(|c| c.coords[&axis.name].as_str()).collect();
        axis.values.retain(|v| left.contains(v.as_str()));
    }
    Ok(())
}

fn axis<'a>(axes: &'a [Axis], name: &str) -> Result<&'a Axis, SelectError> {
    axes.iter().find(|a| symbol(&a.name) == symbol(name)).ok_or_else(|| SelectError::Axis {
        axis: name.to_owned(),
        help: suggest(name, axes.iter().map(|a| a.name.as_str())),
    })
}

fn value<'a>(axis: &'a Axis, wanted: &str) -> Result<&'a str, SelectError> {
    let exact = axis.values.iter().find(|v| *v == wanted);
    let found = exact.or_else(|| axis.values.iter().find(|v| axis.label(v) == wanted));
    found.map(String::as_str).ok_or_else(|| SelectError::Value {
        axis: axis.name.clone(),
        value: wanted.to_owned(),
        help: suggest(wanted, axis.values.iter().map(String::as_str)),
    })
}
