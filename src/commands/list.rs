//! `matrix list`

use super::{Ending, print};
use crate::cli::{List, Listed};
use crate::{arch, bench, kernel, store};

pub fn list(args: &List) -> anyhow::Result<Ending> {
    let all = [Listed::Archs, Listed::Benchmarks, Listed::Fragments, Listed::Runs];
    let mut text = String::new();
    for what in all.into_iter().filter(|w| args.what.is_none_or(|wanted| wanted == *w)) {
        let lines = match what {
            Listed::Archs => archs()?,
            Listed::Benchmarks => benchmarks()?,
            Listed::Fragments => fragments()?,
            Listed::Runs => runs(&args.runs),
        };
        if args.what.is_none() {
            text.push_str(&format!("{what:?}:\n").to_lowercase());
        }
        let indent = if args.what.is_none() { "  " } else { "" };
        text.extend(lines.into_iter().map(|l| format!("{indent}{l}\n")));
    }
    print(&text)?;
    Ok(Ending::Good)
}

fn archs() -> anyhow::Result<Vec<String>> {
    let line = |a: arch::Arch| format!("{}: {}, up to {} vCPUs", a.name, a.qemu.program, a.qemu.max_vcpus);
    Ok(arch::all()?.into_iter().map(line).collect())
}

fn benchmarks() -> anyhow::Result<Vec<String>> {
    let metrics = |d: &bench::Definition| {
        let texts = d.metrics.iter().map(|(name, m)| format!("{}.{name} ({})", d.name, m.unit));
        texts.collect::<Vec<_>>().join(", ")
    };
    Ok(bench::all()?.iter().map(|d| format!("{}: {}", d.name, metrics(d))).collect())
}

fn fragments() -> anyhow::Result<Vec<String>> {
    let archs = arch::all()?;
    let names: Vec<_> = archs.iter().map(|a| a.name.as_str()).collect();
    Ok(kernel::config::builtin_names(&names))
}

fn runs(room: &std::path::Path) -> Vec<String> {
    store::runs(room).iter().map(|dir| dir.display().to_string()).collect()
}
