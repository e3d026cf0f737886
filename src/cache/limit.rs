//! How much the cache may take.

use std::io;

use anyhow::Context;
use fs_err as fs;
use serde::Serialize;

use super::{Cache, write_whole};

/// Overrides what the cache folder says.
pub const VARIABLE: &str = "MATRIX_CACHE_LIMIT";
/// Enough for ten source trees, fifty object trees and some hundred kernels;
/// without any limit, what is never looked at again would fill the disk.
const DEFAULT: u64 = 50 << 30;

/// Where a limit is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// `MATRIX_CACHE_LIMIT`.
    Environment,
    /// The file `limit` in the cache folder.
    Folder,
    /// Nobody has set one.
    Default,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Most bytes; none where all may be kept.
    pub bytes: Option<u64>,
    /// Where it is from.
    pub from: Origin,
}

impl Cache {
    /// The limit: from the environment, or the cache folder, or the default.
    ///
    /// # Errors
    /// What is set is no size.
    pub fn limit(&self) -> anyhow::Result<Limit> {
        let variable = std::env::var(VARIABLE).ok().filter(|v| !v.is_empty());
        if let Some(text) = variable {
            let bytes = parse(&text).map_err(anyhow::Error::msg).context(VARIABLE)?;
            return Ok(Limit { bytes, from: Origin::Environment });
        }
        let path = self.root().join("limit");
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Limit { bytes: Some(DEFAULT), from: Origin::Default })
            }
            text => {
                let named = || format!("{}; `matrix cache limit 20G` sets it anew", path.display());
                let bytes = parse(text?.trim()).map_err(anyhow::Error::msg).with_context(named)?;
                Ok(Limit { bytes, from: Origin::Folder })
            }
        }
    }

    /// Keeps a limit in the cache folder.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_limit(&self, bytes: Option<u64>) -> io::Result<()> {
        fs::create_dir_all(self.root())?;
        let text = bytes.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
        write_whole(&self.root().join("limit"), format!("{text}\n").as_bytes())
    }
}

/// Most bytes, or no limit, as a person writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most(pub Option<u64>);

impl std::str::FromStr for Most {
    type Err = String;

    fn from_str(text: &str) -> Result<Most, String> {
        parse(text).map(Most)
    }
}

/// Reads `20G`, `1.5T`, `512M` in powers of 1024, or bytes; `none` is no limit.
fn parse(text: &str) -> Result<Option<u64>, String> {
    if text == "none" {
        return Ok(None);
    }
    let wrong = || format!("'{text}' is not a size such as 20G, 512M or none");
    let upper = text.to_ascii_uppercase();
    let short = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let digits = short.trim_end_matches(['K', 'M', 'G', 'T']);
    let power = match &short[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = digits.trim().parse::<f64>().ok().filter(|_| plain).ok_or_else(wrong)?;
    Ok(Some((number * f64::from(power).exp2()) as u64))
}

/// Bytes as people read them: `1.4 GiB`.
pub fn shown(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    // The largest unit of which there is one, rounded as it will be printed.
    let step =
        (1..units.len()).rev().find(|n| bytes as f64 >= 1023.5 * f64::from(10 * (*n as u32 - 1)).exp2());
    match step {
        None => format!("{bytes} B"),
        Some(n) => {
            let value = bytes as f64 / f64::from(10 * n as u32).exp2();
            let decimals = usize::from(value < 9.95);
            format!("{value:.decimals$} {}", units[n])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("20G", 20 << 30),
            ("20g", 20 << 30),
            ("20GiB", 20 << 30),
            ("20GB", 20 << 30),
            ("1.5M", 3 << 19),
            ("2K", 2048),
            ("1T", 1 << 40),
            ("0", 0),
            ("123", 123),
        ] {
            assert_eq!(parse(text), Ok(Some(bytes)), "{text}");
        }
        assert_eq!(parse("none"), Ok(None));
        for text in ["", "G", "20X", "-1G", "20GG", "1e3", "inf", "nan", "20 G", "1.2.3G", "é"] {
            assert_eq!(parse(text), Err(format!("'{text}' is not a size such as 20G, 512M or none")));
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 20, "10 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (1_503_238_553, "1.4 GiB"),
            (5 << 40, "5.0 TiB"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }

    #[test]
    fn limit_is_kept_in_the_folder_and_a_wrong_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().join("cache"))).unwrap();
        assert_eq!(cache.limit().unwrap(), Limit { bytes: Some(DEFAULT), from: Origin::Default });
        for bytes in [Some(7), None] {
            cache.set_limit(bytes).unwrap();
            assert_eq!(cache.limit().unwrap(), Limit { bytes, from: Origin::Folder });
        }
        fs::write(cache.root().join("limit"), "much").unwrap();
        let error = format!("{:#}", cache.limit().unwrap_err());
        assert!(
            error.contains("limit; `matrix cache limit 20G` sets it anew: 'much' is not a size"),
            "{error}"
        );
    }
}
