//! What the program says of itself: schema, completions, manual pages.

use std::path::Path;

use clap::CommandFactory;
use fs_err as fs;

use super::{Ending, print};
use crate::cli::Cli;
use crate::matrix;

pub fn schema() -> anyhow::Result<Ending> {
    print(&format!("{}\n", serde_json::to_string_pretty(&matrix::schema())?))?;
    Ok(Ending::Good)
}

pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "matrix", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Ending::Good)
}

pub fn man(dir: Option<&Path>) -> anyhow::Result<Ending> {
    match dir {
        Some(dir) => {
            fs::create_dir_all(dir)?;
            clap_mangen::generate_to(Cli::command(), dir)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(Ending::Good)
}
