//! `matrix merge`

use super::{Ending, print, run, shown};
use crate::cli::{Merge, Talk};
use crate::{report, store};

pub fn merge(args: &Merge, talk: Talk) -> anyhow::Result<Ending> {
    let dir = store::merge(&args.runs, args.output.as_deref(), std::env::args().collect())?;
    let results = store::load(&dir)?;
    let tables = report::tables(&results);
    print(&run::report(&dir, &results, &tables, args.format)?)?;
    if !talk.quiet {
        let dir = shown(&dir);
        eprintln!("{} runs merged into {dir} (`matrix report {dir}` prints its tables)", args.runs.len());
    }
    Ok(run::ending(&results, &tables))
}
