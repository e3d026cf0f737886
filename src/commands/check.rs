//! `matrix report --check`

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::{Ending, print};
use crate::cli::Form;
use crate::report::check::{self, MOST_BYTES};

/// Computes the percentages of a mail again. One without any is no success:
/// nothing is known of it.
pub fn check(file: &Path, form: Form) -> anyhow::Result<Ending> {
    ensure!(matches!(form, Form::Text | Form::Json), "--check has the formats text and json");
    let is_stdin = file.as_os_str() == "-";
    let name = if is_stdin { "<stdin>".to_string() } else { file.display().to_string() };
    let text = if is_stdin {
        text_of(std::io::stdin().lock())
    } else {
        fs_err::File::open(file).map_err(Into::into).and_then(text_of)
    };
    let report = check::check(&name, &text.with_context(|| format!("{name} cannot be checked"))?);
    print(&if form == Form::Json { report.json() } else { report.text() })?;
    Ok(match report.is_empty() {
        true => Ending::Wrong,
        false if report.has_slips() => Ending::Failed,
        false => Ending::Good,
    })
}

/// All of a text of bearable length; bytes that are no UTF-8 are no numbers.
fn text_of(input: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    input.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("more than {} MiB: no mail is so long", MOST_BYTES >> 20);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
