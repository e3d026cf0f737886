//! Wording shared by faults: quoted lists and "did you mean".

/// How alike two words must be for one to be offered in the other's place.
const ALIKE: f64 = 0.8;

/// The known word that `word` most likely stands for.
pub(super) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(&word, &k.to_lowercase()), k))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}

/// `` `a`, `b`, `c` ``; long lists are cut.
pub(super) fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 20;
    let words: Vec<_> = words.into_iter().collect();
    let mut list: Vec<_> = words.iter().take(SHOWN).map(|w| format!("`{w}`")).collect();
    if words.len() > SHOWN {
        list.push(format!("and {} more", words.len() - SHOWN));
    }
    list.join(", ")
}

/// "did you mean `x`? " where a known word is alike, then all of them.
pub(super) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let list = quoted(known.clone());
    let list = if list.is_empty() { "none".to_owned() } else { list };
    match closest(word, known) {
        Some(k) if k != word => format!("did you mean `{k}`? possible: {list}"),
        _ => format!("possible: {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_nonsense_is_not() {
        assert_eq!(closest("hackbnech", ["cyclictest", "hackbench"]), Some("hackbench"));
        assert_eq!(closest("nr_cpus", ["arch", "NR_CPUS"]), Some("NR_CPUS"));
        assert_eq!(closest("zzz", ["arch", "vcpus"]), None);
        assert_eq!(closest("arch", []), None);
    }

    #[test]
    fn lists_are_quoted_and_cut() {
        assert_eq!(suggest("qq", ["a", "b"]), "possible: `a`, `b`");
        assert_eq!(suggest("qq", []), "possible: none");
        let many: Vec<String> = (0..25).map(|i| i.to_string()).collect();
        assert!(quoted(many.iter().map(String::as_str)).ends_with("`19`, and 5 more"));
    }
}
