//! Parameters of built-in modules on the kernel's command line, `MODULE.NAME=VALUE`:
//! which were asked for, and whether the modules took them. The kernel passes
//! over those that nobody knows without a word. Pure.

use super::verdict::Facts;

/// Names with a dot that are no module's, but `__setup` and `early_param` of the
/// kernel's own code (as of Linux 6.12); a dot at the end stands for all that
/// begin so. Nothing shows whether they were taken.
const ELSEWHERE: [&str; 17] = [
    "sysctl.",
    "kasan.",
    "kfence.",
    "iommu.",
    "irqchip.",
    "clocksource.",
    "fw_devlink.",
    "proc_mem.",
    "random.",
    "cgroup.memory",
    "cpuhp.parallel",
    "devtmpfs.mount",
    "lsm.debug",
    "memchunk.",
    "printk.devkmsg",
    "workqueue.unbound_cpus",
    "xive.store-eoi",
];

/// Every parameter of a module on a command line, with its value if it has one.
pub fn asked(cmdline: &str) -> Vec<(String, Option<String>)> {
    let mut words = words(cmdline);
    // What comes behind is init's.
    words.truncate(words.iter().position(|w| w == "--").unwrap_or(words.len()));
    let split = |word: String| match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (word, None),
    };
    words.into_iter().map(split).filter(|(name, _)| name.contains('.')).collect()
}

/// Words as the kernel's `next_arg` takes them apart: blanks within double
/// quotes separate nothing.
fn words(cmdline: &str) -> Vec<String> {
    let mut quoted = false;
    let blank = |c: char| {
        quoted ^= c == '"';
        c.is_ascii_whitespace() && !quoted
    };
    cmdline.split(blank).filter(|w| !w.is_empty()).map(|w| w.replace('"', "")).collect()
}

/// How the guest differs from what was asked for, if it does.
pub fn ignored(facts: &Facts, asked: &[(String, Option<String>)]) -> Option<String> {
    asked.iter().enumerate().find_map(|(at, (name, value))| {
        // Of several the last one counts.
        let again = asked[at + 1..].iter().any(|(other, _)| other == name);
        if again { None } else { fault(facts, name, value.as_deref()) }
    })
}

fn fault(facts: &Facts, name: &str, value: Option<&str>) -> Option<String> {
    if let Some(shown) = facts.get(&format!("param {name}")) {
        let wanted = value.unwrap_or("on");
        let why = "the module refused or changed it";
        return (!same(value, shown)).then(|| format!("{name} is {shown}, not {wanted}: {why}"));
    }
    let known = |other: &str| name == other || (other.ends_with('.') && name.starts_with(other));
    if ELSEWHERE.into_iter().any(known) {
        return None;
    }
    let (module, parameter) = name.split_once('.')?;
    Some(match facts.get(&format!("no-param {name}")) {
        Some("module") => format!(
            "{name} did nothing: the kernel has no module {module} with parameters; is it built in (=y)?"
        ),
        Some("parameter") => format!(
            "{name} did nothing that shows: module {module} has no parameter {parameter}, or exports it nowhere (permission 0)"
        ),
        Some(error) => format!("whether {name} did anything cannot be read: {error}"),
        None => format!("{name} is not on the command line that the guest has"),
    })
}

/// Whether what sysfs shows is the value that was asked for.
fn same(asked: Option<&str>, shown: &str) -> bool {
    // A name alone switches on.
    let asked = asked.unwrap_or("1");
    let truths = || matches!(shown, "Y" | "N" | "1" | "0").then(|| truth(asked) == truth(shown));
    // Of a choice sysfs shows all there is, the chosen one in brackets.
    asked == shown
        || number(asked).is_some_and(|n| Some(n) == number(shown))
        || (truth(asked).is_some() && truths() == Some(true))
        || shown
            .split_whitespace()
            .any(|w| w.strip_prefix('[').and_then(|w| w.strip_suffix(']')) == Some(asked))
}

/// As `kstrtobool` reads it.
fn truth(text: &str) -> Option<bool> {
    let mut chars = text.chars();
    match (chars.next()?.to_ascii_lowercase(), chars.next().map(|c| c.to_ascii_lowercase())) {
        ('y' | 't' | '1', _) | ('o', Some('n')) => Some(true),
        ('n' | 'f' | '0', _) | ('o', Some('f')) => Some(false),
        _ => None,
    }
}

/// As `kstrtoint` with base 0 reads it.
fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let lower = digits.to_ascii_lowercase();
    let (digits, base) = match (lower.strip_prefix("0x"), lower.strip_prefix('0')) {
        (Some(hex), _) => (hex, 16),
        (None, Some(octal)) if !octal.is_empty() => (octal, 8),
        _ => (lower.as_str(), 10),
    };
    let plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    i128::from_str_radix(digits, base).ok().filter(|_| plain).map(|n| sign * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Facts { of_guest: pairs.iter().map(pair).collect() }
    }

    #[test]
    fn parameters_are_the_words_with_a_dot_in_their_names() {
        let value = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        assert_eq!(
            asked("quiet rcuscale.nwriters=2 root=/dev/x.y a.b=\"c d\"  e.f -- g.h=1"),
            [value("rcuscale.nwriters", "2"), value("a.b", "c d"), ("e.f".to_owned(), None)]
        );
        assert!(asked("").is_empty());
    }

    #[test]
    fn values_are_the_same_however_they_are_spelled() {
        for (asked, shown) in [
            ("1", "Y"),
            ("true", "Y"),
            ("off", "N"),
            ("y", "1"),
            ("0x10", "16"),
            ("010", "8"),
            ("-1", "-1"),
            ("srcu", "srcu"),
            ("performance", "default [performance] powersave"),
            ("1,2", "1,2"),
        ] {
            assert!(same(Some(asked), shown), "{asked} {shown}");
        }
        for (asked, shown) in [
            ("1", "N"),
            ("2", "1"),
            ("2", "Y2"),
            ("srcu", "rcu"),
            ("1", "?"),
            ("0", ""),
            ("", "1"),
            ("yes", "2"),
            ("default", "default [performance]"),
            ("--1", "-1"),
            ("-+1", "-1"),
            ("99999999999999999999999999999999999999999", "1"),
        ] {
            assert!(!same(Some(asked), shown), "{asked} {shown}");
        }
        assert!(same(None, "Y") && same(None, "1") && !same(None, "N"));
    }

    #[test]
    fn what_was_ignored_is_named_with_what_may_be_wrong() {
        let of = |pairs: &[(&str, &str)], cmdline: &str| ignored(&facts(pairs), &asked(cmdline));
        assert_eq!(of(&[("param m.n", "1")], "m.n=1"), None);
        assert_eq!(of(&[("param m.n", "2")], "m.n=1 m.n=2"), None, "the last one counts");
        assert_eq!(
            of(&[("param m.n", "1")], "m.n=2").unwrap(),
            "m.n is 1, not 2: the module refused or changed it"
        );
        assert!(of(&[("no-param m.n", "module")], "m.n=2").unwrap().contains("no module m"));
        assert!(of(&[("no-param m.n", "parameter")], "m.n=2").unwrap().contains("(permission 0)"));
        assert!(of(&[("no-param m.n", "I/O error")], "m.n=2").unwrap().contains("I/O error"));
        assert!(of(&[], "m.n=2").unwrap().contains("not on the command line"));
        for other in ["sysctl.kernel.panic=1", "printk.devkmsg=on", "random.trust_cpu=1"] {
            assert_eq!(of(&[], other), None, "{other}");
        }
        assert!(of(&[], "printk.devkmsg2=on").is_some());
        assert!(of(&[("param random.x", "0")], "random.x=1").is_some());
    }
}
