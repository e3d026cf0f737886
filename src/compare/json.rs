//! A comparison for programs: every number unrounded.

use serde_json::{Value, json};

use super::{Comparison, Row, Side};
use crate::model::Statistic;
use crate::store::Run;

/// Everything that was found. `labels` are the names of the runs.
pub fn json(comparison: &Comparison, labels: [&str; 2], runs: [&Run; 2], warnings: &[String]) -> Value {
    let run = |at: usize| {
        let run = runs[at];
        json!({ "run": labels[at], "matrix": run.results.matrix.name, "info": run.info, "sources": run.sources })
    };
    let metrics: Vec<Value> = comparison
        .metrics
        .iter()
        .map(|m| json!({ "metric": m.name, "cells": m.rows.iter().map(row).collect::<Vec<_>>() }))
        .collect();
    json!({
        "base": run(0),
        "new": run(1),
        "warnings": warnings,
        "threshold_percent": comparison.threshold,
        "comparisons_tested": comparison.tests,
        "correction": "holm",
        "metrics": metrics,
        "only_base": comparison.only_base,
        "only_new": comparison.only_new,
    })
}

fn row(row: &Row) -> Value {
    let change = match &row.change {
        Ok(change) => json!({
            "test": change.test.label(),
            "shift": change.shift,
            "percent": change.percent,
            "interval_percent": change.interval,
            "p": change.p,
            "p_corrected": change.adjusted,
        }),
        Err(reason) => json!({ "untested": reason.to_string() }),
    };
    json!({
        "cell": row.cell,
        "coords": row.coords,
        "base": side(&row.base),
        "new": side(&row.new),
        "change": change,
        "verdict": row.verdict.label(),
    })
}

fn side(side: &Side) -> Value {
    match side {
        Side::Values(values) => json!({
            "unit": values.unit,
            "kind": values.kind,
            "better": values.better,
            "boots": values.boots,
            "estimate": values.estimate,
            "interval": values.interval(Statistic::Mean),
            "outliers": values.outliers(),
        }),
        Side::Failed(what) => json!({ "failed": what }),
        Side::Missing => json!({ "missing": true }),
    }
}
