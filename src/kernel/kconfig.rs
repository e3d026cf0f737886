//! Kconfig as text: configurations, what a tree's rules say of a symbol, and
//! rules of ours laid over the tree's without touching it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use regex::Regex;

use crate::model::MAX_NR_CPUS;

/// Symbols whose rules an overlay may replace, with what replaces them.
///
/// Stock rules cap `NR_CPUS` per architecture and tie `CPUMASK_OFFSTACK` to a
/// debug option or select it; comparing both needs them free.
fn override_rule(symbol: &str) -> Option<String> {
    match symbol {
        "NR_CPUS" => {
            Some(format!("config NR_CPUS\n\tint \"Maximum number of CPUs\"\n\trange 2 {MAX_NR_CPUS}\n"))
        }
        "CPUMASK_OFFSTACK" => {
            Some("config CPUMASK_OFFSTACK\n\tbool \"Force CPU masks off stack\"\n".to_owned())
        }
        _ => None,
    }
}

/// Whether an overlay can free `symbol`.
pub fn can_override(symbol: &str) -> bool {
    override_rule(symbol).is_some()
}

/// Symbols (without `CONFIG_`) and values of a `.config`; `n` where it says
/// `is not set`. Strings keep their quotes.
pub fn parse(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(parse_line).map(|(s, v)| (s.to_owned(), v.to_owned())).collect()
}

/// Value of one symbol of a `.config`, as [`parse`] gives it.
pub fn value<'t>(text: &'t str, symbol: &str) -> Option<&'t str> {
    let lines = text.match_indices(symbol).filter_map(|(at, _)| {
        let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
        parse_line(text[begin..].lines().next()?)
    });
    lines.filter(|(name, _)| *name == symbol).last().map(|(_, value)| value)
}

fn parse_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("# CONFIG_") {
        return rest.strip_suffix(" is not set").map(|s| (s, "n"));
    }
    line.strip_prefix("CONFIG_")?.split_once('=')
}

/// One symbol in the form of a `.config`.
pub fn line(symbol: &str, value: &str) -> String {
    match value {
        "n" => format!("# CONFIG_{symbol} is not set\n"),
        "y" | "m" => format!("CONFIG_{symbol}={value}\n"),
        v if is_number(v) || v.starts_with('"') => format!("CONFIG_{symbol}={v}\n"),
        v => format!("CONFIG_{symbol}=\"{v}\"\n"),
    }
}

fn is_number(v: &str) -> bool {
    let hex = v.strip_prefix("0x").or_else(|| v.strip_prefix("0X"));
    match hex {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => v.parse::<i64>().is_ok(),
    }
}

/// A requested symbol that the final configuration does not have as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Without `CONFIG_`.
    pub symbol: String,
    /// What was asked for.
    pub asked: String,
    /// What came out; `None` where the configuration does not know the symbol.
    pub got: Option<String>,
}

/// The requests that `config` does not fulfil. An absent symbol is as good as `n`.
pub fn mismatches(asked: &BTreeMap<String, String>, config: &BTreeMap<String, String>) -> Vec<Mismatch> {
    let bare = |v: &str| v.trim_matches('"').to_owned();
    asked
        .iter()
        .filter(|(symbol, value)| match config.get(*symbol) {
            Some(got) => bare(got) != bare(value),
            None => value.as_str() != "n",
        })
        .map(|(symbol, value)| Mismatch {
            symbol: symbol.clone(),
            asked: value.clone(),
            got: config.get(symbol).cloned(),
        })
        .collect()
}

/// What differs between two `.config`s, as lines of either.
pub fn diff(from: &str, to: &str) -> String {
    // Neighbours have almost all in common, mostly in long stretches.
    let begin = common(from.as_bytes().chunks(64), to.as_bytes().chunks(64));
    let begin = from.as_bytes()[..begin].iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let (from, to) = (&from[begin..], &to[begin..]);
    let end = common(from.as_bytes().rchunks(64), to.as_bytes().rchunks(64));
    let tail = &from.as_bytes()[from.len() - end..];
    let end = tail.iter().position(|b| *b == b'\n').map_or(0, |first| end - first - 1);
    let (from, to) = (parse(&from[..from.len() - end]), parse(&to[..to.len() - end]));

    let symbols: BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let mut out = String::new();
    for symbol in symbols.into_iter().filter(|s| from.get(*s) != to.get(*s)) {
        for (sign, side) in [('-', &from), ('+', &to)] {
            if let Some(value) = side.get(symbol) {
                out.push_str(&format!("{sign}{}", line(symbol, value)));
            }
        }
    }
    out
}

/// Bytes in the first pieces that are the same.
fn common<'t>(one: impl Iterator<Item = &'t [u8]>, other: impl Iterator<Item = &'t [u8]>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(one, _)| one.len()).sum()
}

/// What a tree's rules say of one symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// `FILE:LINE: RULE` for each `depends on`, `range` and conditional prompt
    /// of its definitions.
    pub own: Vec<String>,
    /// `FILE:LINE: select ... (from SYMBOL)` of symbols that force it on.
    pub selected_by: Vec<String>,
    /// Whether any file defines it.
    pub defined: bool,
    /// Files that select it.
    selecting_files: Vec<PathBuf>,
}

/// Reads what the tree says of each of `symbols` for the architecture whose
/// files are below `arch/SRCARCH`.
///
/// # Errors
/// The tree cannot be read.
pub fn rules(tree: &Path, srcarch: &str, symbols: &[&str]) -> io::Result<BTreeMap<String, Rules>> {
    let mut rules: BTreeMap<String, Rules> =
        symbols.iter().map(|s| ((*s).to_owned(), Rules::default())).collect();
    let mut todo = vec![Sourced { file: PathBuf::from("Kconfig"), conditions: Vec::new() }];
    let mut seen = BTreeSet::new();
    while let Some(sourced) = todo.pop() {
        // Names are the tree's: they must not lead out of it.
        let inside = sourced.file.components().all(|c| matches!(c, Component::Normal(_)));
        if !inside || !seen.insert(sourced.file.clone()) || !tree.join(&sourced.file).is_file() {
            continue;
        }
        let text = String::from_utf8_lossy(&fs::read(tree.join(&sourced.file))?).into_owned();
        todo.extend(scan(&sourced, &text.replace("$(SRCARCH)", srcarch), &mut rules));
    }
    Ok(rules)
}

/// A file that another one sources, with the conditions that it stands under.
struct Sourced {
    file: PathBuf,
    conditions: Vec<String>,
}

/// Files called `Kconfig*` that count for an architecture, relative to `tree`.
///
/// # Errors
/// The tree cannot be read.
pub fn files(tree: &Path, srcarch: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(tree.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let kind = entry.file_type()?;
            let other_arch = dir == Path::new("arch") && kind.is_dir() && entry.file_name() != srcarch;
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if kind.is_dir() && !other_arch && !hidden && path != Path::new("Documentation") {
                todo.push(path);
            } else if kind.is_file() && entry.file_name().as_encoded_bytes().starts_with(b"Kconfig") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Adds what one file says; returns the files that it sources.
fn scan(sourced: &Sourced, text: &str, rules: &mut BTreeMap<String, Rules>) -> Vec<Sourced> {
    let file = &sourced.file;
    let mut sources = Vec::new();
    let mut current: Option<String> = None;
    // `if` has its condition at once, `menu` on a line of its own, or none.
    let mut enclosing: Vec<Option<String>> = sourced.conditions.iter().cloned().map(Some).collect();
    let mut menu_head = false;
    for (i, raw) in text.lines().enumerate() {
        let line = raw.trim();
        let at = || format!("{}:{}: {line}", file.display(), i + 1);
        let (word, rest) = line.split_once(char::is_whitespace).map_or((line, ""), |(w, r)| (w, r.trim()));
        match word {
            "config" | "menuconfig" => {
                current = Some(rest.to_owned());
                if let Some(rule) = rules.get_mut(rest) {
                    rule.defined = true;
                    rule.own.extend(enclosing.iter().flatten().cloned());
                }
            }
            "source" => sources.push(Sourced {
                file: PathBuf::from(rest.trim_matches('"')),
                conditions: enclosing.iter().flatten().cloned().collect(),
            }),
            "if" => enclosing.push(Some(at())),
            "menu" => enclosing.push(None),
            "endif" | "endmenu" => drop(enclosing.pop()),
            "depends" if menu_head => {
                if let Some(menu) = enclosing.last_mut() {
                    *menu = Some(at());
                }
            }
            "depends" | "range" => note(&mut current, rules, at()),
            "bool" | "tristate" | "int" | "hex" | "string" | "prompt" if line.contains(" if ") => {
                note(&mut current, rules, at());
            }
            "select" => {
                let target = rest.split_whitespace().next().unwrap_or_default();
                if let Some(rule) = rules.get_mut(target) {
                    let from = current.as_deref().unwrap_or("?");
                    rule.selected_by.push(format!("{} (from {from})", at()));
                    rule.selecting_files.push(file.to_owned());
                }
            }
            _ => {}
        }
        if matches!(word, "menu" | "choice" | "comment" | "source" | "if" | "endif" | "endmenu" | "endchoice")
        {
            current = None;
        }
        menu_head = word == "menu" || (menu_head && (word.is_empty() || word == "visible"));
    }
    sources
}

fn note(current: &mut Option<String>, rules: &mut BTreeMap<String, Rules>, at: String) {
    if let Some(rule) = current.as_ref().and_then(|s| rules.get_mut(s)) {
        rule.own.push(at);
    }
}

/// Why a symbol did not come out as asked: the rules that concern it, each
/// with the values that its symbols have.
pub fn explain(mismatch: &Mismatch, rules: &Rules, config: &BTreeMap<String, String>) -> String {
    let Mismatch { symbol, asked, got } = mismatch;
    let got = got.as_deref().unwrap_or("nothing");
    let mut out = format!("CONFIG_{symbol}: asked for {asked}, got {got}");
    if !rules.defined {
        out.push_str("\n  this kernel has no such symbol");
        return out;
    }
    let concerning = if asked == "n" { &rules.selected_by } else { &rules.own };
    for rule in concerning.iter().take(8) {
        out.push_str(&format!("\n  {rule}{}", values(rule, symbol, config)));
    }
    if concerning.is_empty() {
        out.push_str("\n  no rule of the tree names a reason; a choice may exclude it, or the value has the wrong type");
    }
    out
}

/// `  [A=y, B=n]` for the symbols that a rule names.
fn values(rule: &str, symbol: &str, config: &BTreeMap<String, String>) -> String {
    let expression = rule.split_once(": ").map_or(rule, |(_, r)| r);
    let mut shown: Vec<String> = Vec::new();
    for word in expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let is_symbol = word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
        if is_symbol && word != symbol {
            let value = config.get(word).map_or("n", String::as_str);
            let text = format!("{word}={value}");
            if !shown.contains(&text) {
                shown.push(text);
            }
        }
    }
    if shown.is_empty() { String::new() } else { format!("  [{}]", shown.join(", ")) }
}

/// Writes an overlay into the object directory that frees `symbols`, and says
/// what it did.
///
/// Two properties of Kconfig carry it: a sourced file is looked for below the
/// current folder (the object directory) before the source tree, and of
/// several definitions of a symbol the first visible prompt and range count.
/// So a copy of the top file with definitions of ours in front, and copies of
/// the files that `select` a symbol without that line, shadow the tree's.
///
/// # Errors
/// The tree's files cannot be read, or have no place for ours.
pub fn overlay(
    tree: &Path,
    objdir: &Path,
    symbols: &[&str],
    rules: &BTreeMap<String, Rules>,
) -> anyhow::Result<Vec<String>> {
    let anchor = "source \"scripts/Kconfig.include\"\n";
    let top = fs::read_to_string(tree.join("Kconfig"))?;
    let Some((head, tail)) = top.split_once(anchor) else {
        anyhow::bail!("{}: no line {anchor:?}to put rules behind", tree.join("Kconfig").display());
    };
    let definitions: Vec<String> = symbols.iter().filter_map(|s| override_rule(s)).collect();
    fs::write(objdir.join("Kconfig"), format!("{head}{anchor}\n{}{tail}", definitions.join("\n")))?;
    let mut done: Vec<String> =
        symbols.iter().map(|s| format!("CONFIG_{s}: prompt and range replaced")).collect();
    for (file, symbols) in selecting(symbols, rules) {
        let text = fs::read_to_string(tree.join(&file))?;
        let copy = objdir.join(&file);
        if let Some(parent) = copy.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(copy, without_selects(&text, &symbols)?)?;
        done.extend(symbols.iter().map(|s| format!("CONFIG_{s}: select in {} dropped", file.display())));
    }
    Ok(done)
}

/// Files that select any of `symbols`, and which.
fn selecting<'a>(symbols: &[&'a str], rules: &BTreeMap<String, Rules>) -> BTreeMap<PathBuf, Vec<&'a str>> {
    let mut files: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
    for symbol in symbols {
        for file in rules.get(*symbol).into_iter().flat_map(|r| &r.selecting_files) {
            let of_file = files.entry(file.clone()).or_default();
            if !of_file.contains(symbol) {
                of_file.push(symbol);
            }
        }
    }
    files
}

fn without_selects(text: &str, symbols: &[&str]) -> anyhow::Result<String> {
    let names = symbols.iter().map(|s| regex::escape(s)).collect::<Vec<_>>().join("|");
    let select = Regex::new(&format!(r"(?m)^\s*select\s+({names})(\s.*)?\n"))?;
    Ok(select.replace_all(text, "").into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn configuration_lines_round_trip() {
        for (symbol, value, text) in [
            ("SMP", "y", "CONFIG_SMP=y\n"),
            ("SMP", "n", "# CONFIG_SMP is not set\n"),
            ("NR_CPUS", "512", "CONFIG_NR_CPUS=512\n"),
            ("BASE", "0xffff", "CONFIG_BASE=0xffff\n"),
            ("NAME", "\"a b\"", "CONFIG_NAME=\"a b\"\n"),
        ] {
            assert_eq!(line(symbol, value), text);
            assert_eq!(parse(text), map(&[(symbol, value)]));
        }
        assert_eq!(line("NAME", "0xyz"), "CONFIG_NAME=\"0xyz\"\n");
    }

    #[test]
    fn one_value_is_what_all_say_of_it() {
        let text = "CONFIG_NR_CPUS_RANGE_END=512\nCONFIG_NR_CPUS=64\n# CONFIG_SMP is not set\n# NR_CPUS\nCONFIG_S=\"NR_CPUS\"\n";
        for symbol in ["NR_CPUS", "NR_CPUS_RANGE_END", "SMP", "S", "CPUS"] {
            assert_eq!(value(text, symbol), parse(text).get(symbol).map(String::as_str), "{symbol}");
        }
        assert_eq!(value(text, "NR_CPUS"), Some("64"));
    }

    #[test]
    fn absent_is_as_good_as_n_and_nothing_else() {
        let config = map(&[("A", "y"), ("S", "\"x\"")]);
        let asked = map(&[("A", "y"), ("B", "n"), ("C", "y"), ("S", "x"), ("N", "64")]);
        let wrong: Vec<_> = mismatches(&asked, &config).into_iter().map(|m| m.symbol).collect();
        assert_eq!(wrong, ["C", "N"]);
    }

    #[test]
    fn diff_shows_only_what_changed() {
        let more: String = (0..50).map(|n| line(&format!("MORE_{n}"), "y")).collect();
        for (before, behind) in [("", ""), (more.as_str(), ""), ("", more.as_str()), (&more, &more)] {
            let a = format!("{before}CONFIG_N=64\nCONFIG_A=y\nCONFIG_GONE=y\n{behind}");
            let b = format!("{before}CONFIG_N=128\nCONFIG_A=y\n# CONFIG_NEW is not set\n{behind}");
            let both = "-CONFIG_GONE=y\n-CONFIG_N=64\n+CONFIG_N=128\n+# CONFIG_NEW is not set\n";
            assert_eq!(diff(&a, &b), both);
            assert_eq!(diff(&a, &a), "");
            assert_eq!(
                diff(&a, ""),
                parse(&a).iter().map(|(s, v)| format!("-{}", line(s, v))).collect::<String>()
            );
        }
    }

    const KCONFIG: &str = "\
config ARM
\tdef_bool y
\tselect MASK if NR_CPUS > 256
\tselect MASKED

if OUTER
config MASK
\tbool \"Masks\" if DEBUG
\tdepends on SMP && FANCY

config NR_CPUS
\tint \"CPUs\"
\trange 2 512
endif

config LATE
\tbool
";

    fn scanned(symbols: &[&str]) -> BTreeMap<String, Rules> {
        let mut rules = symbols.iter().map(|s| ((*s).to_owned(), Rules::default())).collect();
        let sourced = Sourced { file: "arch/x/Kconfig".into(), conditions: Vec::new() };
        scan(&sourced, KCONFIG, &mut rules);
        rules
    }

    #[test]
    fn rules_name_file_and_line() {
        let rules = scanned(&["MASK", "NR_CPUS", "LATE", "NOWHERE"]);
        assert_eq!(
            rules["MASK"].own,
            [
                "arch/x/Kconfig:6: if OUTER",
                "arch/x/Kconfig:8: bool \"Masks\" if DEBUG",
                "arch/x/Kconfig:9: depends on SMP && FANCY"
            ]
        );
        assert_eq!(rules["MASK"].selected_by, ["arch/x/Kconfig:3: select MASK if NR_CPUS > 256 (from ARM)"]);
        assert!(rules["NR_CPUS"].own.contains(&"arch/x/Kconfig:13: range 2 512".to_owned()));
        assert!(rules["LATE"].defined && rules["LATE"].own.is_empty());
        assert!(!rules["NOWHERE"].defined);
    }

    #[test]
    fn conditions_around_a_sourced_file_are_rules_of_its_symbols() {
        let tree = tempfile::tempdir().unwrap();
        let files = [
            (
                "Kconfig",
                "menu \"Files\"\n\tdepends on STORE\nif BLOCK\nsource \"fs/$(SRCARCH).kc\"\nendif\nendmenu\nsource \"../secret\"\n",
            ),
            ("fs/x.kc", "config FAST\n\tbool \"Fast\"\n\tdepends on CRC\nsource \"fs/x.kc\"\n"),
        ];
        for (name, text) in files {
            fs::create_dir_all(tree.path().join(name).parent().unwrap()).unwrap();
            fs::write(tree.path().join(name), text).unwrap();
        }
        let rules = rules(tree.path(), "x", &["FAST"]).unwrap();
        let own = ["Kconfig:2: depends on STORE", "Kconfig:3: if BLOCK", "fs/x.kc:3: depends on CRC"];
        assert_eq!(rules["FAST"].own, own);
    }

    #[test]
    fn explanation_names_the_unmet_dependency() {
        let rules = scanned(&["MASK"]);
        let wrong = Mismatch { symbol: "MASK".into(), asked: "y".into(), got: None };
        let text = explain(&wrong, &rules["MASK"], &map(&[("SMP", "y")]));
        assert!(text.starts_with("CONFIG_MASK: asked for y, got nothing"), "{text}");
        assert!(text.contains("depends on SMP && FANCY  [SMP=y, FANCY=n]"), "{text}");
        assert!(!text.contains("select MASK"), "a select cannot keep it off: {text}");
        let forced = Mismatch { symbol: "MASK".into(), asked: "n".into(), got: Some("y".into()) };
        let text = explain(&forced, &rules["MASK"], &map(&[("NR_CPUS", "512")]));
        assert!(text.contains("select MASK if NR_CPUS > 256 (from ARM)  [NR_CPUS=512"), "{text}");
    }

    #[test]
    fn overlay_shadows_top_and_selecting_files_only() {
        let tree = tempfile::tempdir().unwrap();
        let obj = tempfile::tempdir().unwrap();
        let top = "mainmenu \"x\"\n\nsource \"scripts/Kconfig.include\"\n\nsource \"init/Kconfig\"\n\
                   source \"arch/$(SRCARCH)/Kconfig\"\n";
        fs::write(tree.path().join("Kconfig"), top).unwrap();
        fs::create_dir_all(tree.path().join("arch/x")).unwrap();
        let arch = "config ARM\n\tselect CPUMASK_OFFSTACK if NR_CPUS > 256\n\tselect CPUMASK_OFFSTACK_X\n";
        fs::write(tree.path().join("arch/x/Kconfig"), arch).unwrap();
        let symbols = ["NR_CPUS", "CPUMASK_OFFSTACK"];
        let rules = rules(tree.path(), "x", &symbols).unwrap();
        let done = overlay(tree.path(), obj.path(), &symbols, &rules).unwrap();
        assert_eq!(done.len(), 3, "{done:?}");
        let top = fs::read_to_string(obj.path().join("Kconfig")).unwrap();
        assert!(top.find("range 2 4096").unwrap() > top.find("Kconfig.include").unwrap());
        assert!(top.find("range 2 4096").unwrap() < top.find("init/Kconfig").unwrap());
        let arch = fs::read_to_string(obj.path().join("arch/x/Kconfig")).unwrap();
        assert_eq!(arch, "config ARM\n\tselect CPUMASK_OFFSTACK_X\n");
    }
}
