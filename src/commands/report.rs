//! `matrix report`

use anyhow::Context;

use super::{Ending, print};
use crate::cli::Report;
use crate::{report as tables, store};

pub fn report(args: &Report) -> anyhow::Result<Ending> {
    let dir = if args.run.as_os_str() == "latest" && !args.run.exists() {
        store::latest(&args.runs).with_context(|| format!("no run below {}", args.runs.display()))?
    } else {
        args.run.clone()
    };
    let tables = tables::tables(&store::load(&dir)?);
    print(&tables::render(&tables, args.format))?;
    Ok(Ending::Good)
}
