//! `matrix report`, and the report at the end of `matrix run`.

use std::path::Path;

use anyhow::Context;

use super::{Ending, check, print};
use crate::cli::{Form, Report};
use crate::model::Results;
use crate::report::{self as tables, Format, Table, html, junit, kcidb};
use crate::store::{self, RunInfo};

pub fn report(args: &Report) -> anyhow::Result<Ending> {
    if let Some(file) = &args.check {
        return check::check(file, args.format);
    }
    let run = args.run.as_deref().unwrap_or(Path::new("latest"));
    let dir = if run.as_os_str() == "latest" && !run.exists() {
        store::latest(&args.runs).with_context(|| format!("no run below {}", args.runs.display()))?
    } else {
        run.to_owned()
    };
    let results = store::load(&dir)?;
    let form = if args.commit_message { Form::CommitMessage } else { args.format };
    print(&written(&dir, &results, &tables::tables(&results), form)?)?;
    Ok(Ending::Good)
}

/// The report of the run in `dir`.
///
/// # Errors
/// What the run was measured with is needed and cannot be read.
pub fn written(dir: &Path, results: &Results, tables: &[Table], form: Form) -> anyhow::Result<String> {
    let info = || store::info(dir);
    Ok(match form {
        Form::Text => tables::render(tables, Format::Text),
        Form::Markdown => tables::render(tables, Format::Markdown),
        Form::Csv => tables::render(tables, Format::Csv),
        Form::Json => tables::render(tables, Format::Json),
        Form::Junit => junit::render(results)?,
        Form::Html => {
            // Recorded results of others have no record of a machine.
            let about = info().map(|info| about(&info)).unwrap_or_default();
            html::render(&html::Page {
                title: &results.matrix.name,
                tables,
                about: &about,
                along_rows: false,
            })
        }
        Form::Kcidb => {
            let info = info()?;
            let began = info.began.to_string();
            let id = format!("{}-{}", results.matrix.name, info.began.as_millisecond());
            kcidb::render(results, kcidb::Run { origin: "matrix", id: &id, began: &began })?
        }
        Form::CommitMessage => {
            let text = tables::render(tables, Format::Text);
            format!("{text}\n{}", tables::paragraph(&measured_with(&info()?)))
        }
    })
}

/// What ran, on what, as names and values.
fn about(info: &RunInfo) -> Vec<(String, String)> {
    let own = [
        ("command".to_owned(), shell_words::join(&info.command)),
        ("began".to_owned(), info.began.to_string()),
        ("matrix".to_owned(), info.matrix_version.clone()),
    ];
    own.into_iter().chain(info.host.clone()).chain(info.tools.clone()).collect()
}

/// One sentence that lets a reader judge and repeat it.
fn measured_with(info: &RunInfo) -> String {
    let command = info.command.iter().skip(1).map(String::as_str);
    let host = ["processor", "cores", "system"].iter().filter_map(|name| {
        let value = info.host.get(*name)?;
        Some(if *name == "cores" { format!("{value} cores") } else { value.clone() })
    });
    let host: Vec<String> = host.collect();
    let tools: Vec<&str> = info.tools.values().map(String::as_str).collect();
    format!(
        "Measured with `matrix {}` (version {}) on {}; {}.",
        shell_words::join(command),
        info.matrix_version,
        host.join(", "),
        tools.join("; ")
    )
}
