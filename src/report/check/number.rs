//! Numbers as people print them: `19,814,536`, `+ 0.18%`, `34m49.765s`.

/// What a number stands for, and how far it may lie from what was rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Operand {
    /// As printed, in its own unit.
    pub value: f64,
    /// Half a unit of the last digit: 0.005 for `4.97`.
    pub half: f64,
    /// Size of the unit among its like: 1000 for `us`, as `ns` is 1.
    pub scale: Option<f64>,
}

/// What is printed beside a number says what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A value, with or without unit.
    Plain,
    /// `%` or `pct`.
    Percent,
    /// `2.15x`.
    Factor,
    /// `± 1.2%`: how far values lie apart.
    Spread,
}

/// A number as printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number<'t> {
    /// Its characters, sign and unit included.
    pub text: &'t str,
    /// What it stands for.
    pub operand: Operand,
    /// Digits behind the point.
    pub decimals: u8,
    /// Whether a sign is printed.
    pub signed: bool,
    /// Percentage, factor or plain value.
    pub mark: Mark,
}

/// More digits than an `f64` holds exactly are no measurement.
const MOST_DIGITS: usize = 15;

const TIMES: &[(f64, &[&str])] = &[
    (1.0, &["ns", "nsec"]),
    (1e3, &["us", "µs", "μs", "usec", "usecs"]),
    (1e6, &["ms", "msec", "msecs"]),
    (1e9, &["s", "sec", "secs", "second", "seconds"]),
    (60e9, &["min", "mins", "minutes"]),
    (3600e9, &["h", "hours"]),
];
const SIZES: &[(f64, &[&str])] = &[
    (1.0, &["B", "byte", "bytes"]),
    (1024.0, &["K", "KB", "kB", "KiB"]),
    (1048576.0, &["M", "MB", "MiB"]),
    (1073741824.0, &["G", "GB", "GiB"]),
];
const COUNTS: &[&str] = &["ops", "op", "req", "cycles", "insns", "Hz", "kHz", "MHz", "GHz", "Mbps", "Gbps"];

/// What may stand before a number: about so much, or, in our tables, a
/// difference that may be chance (`~`) or cannot be told from it (`?`).
pub(super) const MARKS: [char; 3] = ['~', '≈', '?'];

/// Reads all of `text` as one number.
pub(super) fn parse(text: &str) -> Option<Number<'_>> {
    let (sign, rest) = sign(text.trim_start_matches(MARKS));
    let unsigned = rest.trim_start();
    let digits = unsigned.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '_'));
    let (digits, suffix) = unsigned.split_at(digits.unwrap_or(unsigned.len()));
    let (value, decimals) = plain(digits)?;
    let mut operand = Operand { value, half: 0.5 / 10f64.powi(i32::from(decimals)), scale: None };
    let suffix = exponent(suffix, &mut operand)?;
    let mut mark = Mark::Plain;
    match suffix.trim_start() {
        "" => {}
        "%" | "pct" | "percent" => mark = Mark::Percent,
        "x" | "×" if suffix.len() == suffix.trim_start().len() => mark = Mark::Factor,
        unit => match scale(unit) {
            Some(scale) => operand.scale = scale,
            None => operand = compound(operand, unit)?,
        },
    }
    // A dash before a value, a blank between, is a dash.
    if !sign.is_empty() && unsigned.len() < rest.len() && mark == Mark::Plain {
        return None;
    }
    match sign {
        "±" => mark = Mark::Spread,
        "-" => operand.value = -operand.value,
        _ => {}
    }
    Some(Number { text, operand, decimals, signed: !sign.is_empty(), mark })
}

/// The sign in front in its plainest form, and what follows it.
fn sign(text: &str) -> (&'static str, &str) {
    const SIGNS: [(&str, &str); 7] =
        [("+/-", "±"), ("+-", "±"), ("±", "±"), ("+", "+"), ("-", "-"), ("\u{2212}", "-"), ("\u{2013}", "-")];
    let found = SIGNS.iter().find_map(|(form, sign)| Some((*sign, text.strip_prefix(form)?)));
    found.unwrap_or(("", text))
}

/// Digits with a point and with separators between thousands, and how many
/// stand behind the point.
fn plain(text: &str) -> Option<(f64, u8)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let separator = if whole.contains('_') { '_' } else { ',' };
    let mut groups = whole.split(separator);
    let first = groups.next()?;
    let grouped = whole.contains(separator);
    if grouped && (!(1..=3).contains(&first.len()) || groups.any(|g| g.len() != 3)) {
        return None;
    }
    let digits = whole.replace(separator, "");
    let all = [digits.as_str(), fraction];
    let count: usize = all.iter().map(|part| part.len()).sum();
    let only_digits = all.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()));
    if count == 0 || count > MOST_DIGITS || !only_digits {
        return None;
    }
    let value = format!("{digits}.{fraction}0").parse().ok()?;
    Some((value, u8::try_from(fraction.len()).ok()?))
}

/// Takes an exponent (`1.08376e+06`) into `operand`; what follows it.
fn exponent<'t>(suffix: &'t str, operand: &mut Operand) -> Option<&'t str> {
    let Some(rest) = suffix.strip_prefix(['e', 'E']) else { return Some(suffix) };
    let end = rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, '+' | '-')).unwrap_or(rest.len());
    let (power, rest) = rest.split_at(end);
    let power = power.parse().ok().filter(|p: &i32| p.abs() <= 30)?;
    let factor = 10f64.powi(power.abs());
    let scaled = |v: f64| if power < 0 { v / factor } else { v * factor };
    (operand.value, operand.half) = (scaled(operand.value), scaled(operand.half));
    Some(rest)
}

/// `None` for what is no unit; units without a like have no scale.
fn scale(unit: &str) -> Option<Option<f64>> {
    let bare = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("/sec")).unwrap_or(unit);
    let known = TIMES.iter().chain(SIZES).find(|(_, names)| names.contains(&bare));
    known.map(|(scale, _)| Some(*scale)).or_else(|| COUNTS.contains(&bare).then_some(None))
}

/// `34m49.765s`, `1h2m3s`, as `time` of a shell prints: `rest` is what stands
/// behind the first number.
fn compound(first: Operand, rest: &str) -> Option<Operand> {
    let (scale, rest) = match rest.split_at_checked(1)? {
        ("h", rest) => (3600.0, rest),
        ("m", rest) => (60.0, rest),
        _ => return None,
    };
    let end = rest.find(['m', 's'])?;
    let (value, decimals) = plain(&rest[..end])?;
    let next = Operand { value, half: 0.5 / 10f64.powi(i32::from(decimals)), scale: Some(1e9) };
    let next = match &rest[end..] {
        "s" => next,
        more if scale > 60.0 => compound(next, more)?,
        _ => return None,
    };
    Some(Operand { value: first.value * scale + next.value, ..next })
}

impl Operand {
    /// Both in one unit, where they have units that can be compared.
    pub fn alike(self, other: Operand) -> (Operand, Operand) {
        match (self.scale, other.scale) {
            (Some(a), Some(b)) if a != b => (self.times(a), other.times(b)),
            _ => (self, other),
        }
    }

    pub fn plus(self, other: Operand) -> Operand {
        let (a, b) = self.alike(other);
        Operand { value: a.value + b.value, half: a.half + b.half, scale: a.scale }
    }

    fn times(self, factor: f64) -> Operand {
        Operand { value: self.value * factor, half: self.half * factor, scale: Some(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (f64, Mark) {
        let number = parse(text).unwrap_or_else(|| panic!("{text}"));
        (number.operand.value, number.mark)
    }

    #[test]
    fn numbers_in_every_spelling() {
        for (text, value) in [
            ("19814536", 19814536.0),
            ("19,814,536", 19814536.0),
            ("1_024", 1024.0),
            ("-0.001", -0.001),
            ("\u{2212}3", -3.0),
            (".5", 0.5),
            ("1.08376e+06", 1083760.0),
            ("5e-1", 0.5),
            ("475.40 MB/s", 475.4),
            ("12KiB", 12.0),
            ("~7.5", 7.5),
            ("34m49.765s", 2089.765),
            ("1h2m3s", 3723.0),
        ] {
            assert_eq!(read(text), (value, Mark::Plain), "{text}");
        }
        for (text, value) in
            [("+0.023%", 0.023), ("+ 0.18%", 0.18), ("-1.81 pct", -1.81), ("\u{2013}5%", -5.0), ("5 %", 5.0)]
        {
            assert_eq!(read(text), (value, Mark::Percent), "{text}");
        }
        assert_eq!(read("2.15x"), (2.15, Mark::Factor));
        assert_eq!(read("± 1.2%"), (1.2, Mark::Spread));
        assert_eq!(read("+- 1.2%"), (1.2, Mark::Spread));
    }

    #[test]
    fn what_is_no_number() {
        for text in [
            "",
            "-",
            ".",
            "%",
            "1,23",
            "1,2345",
            ",123",
            "1.2.3",
            "6.8.0-rc4",
            "0x10",
            "1-groups",
            "256 CPUs",
            "256 512",
            "- 5",
            "16 x",
            "34m49.765",
            "1m2m3s",
            "5eé",
            "1e999",
            "1234567890123456",
            "512é",
            "1:",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn operands_know_their_rounding_and_unit() {
        let number = parse("4.97").unwrap();
        assert_eq!((number.operand.half, number.decimals), (0.005, 2));
        assert_eq!(parse("1.08376e+06").unwrap().operand.half, 5.0);
        let (ms, s) = (parse("500 ms").unwrap().operand, parse("0.5s").unwrap().operand);
        let (ms, s) = ms.alike(s);
        assert_eq!(ms.value, s.value);
        let sum = parse("1.5").unwrap().operand.plus(parse("2.25").unwrap().operand);
        assert!((sum.value, sum.half) == (3.75, 0.055));
    }
}
