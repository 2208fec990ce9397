//! Sizes: `24GiB`, `512MiB`, `1.5G`, `1048576` as a person types them.

use blockyard::vocab::{GIB, KIB, MIB};

/// A size in bytes.
///
/// # Errors
/// Says what was expected.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => 1 << 40,
        "p" | "pib" => 1 << 50,
        "e" | "eib" => 1 << 60,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => {
            return Err(format!(
                "unit {unit:?} is unknown, expected KiB, MiB, GiB, TiB, PiB or EiB"
            ));
        }
    };
    let expected =
        || format!("{text:?} is not a size, expected something like 24GiB, 512MiB or 1048576");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| format!("{text:?} is larger than 16 EiB"));
    }
    let value: f64 = number.parse().map_err(|_| expected())?;
    if scale == 1 {
        return Err(format!("{text:?} is not a whole number of bytes"));
    }
    let bytes = value * scale as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_read_as_people_type_them() {
        for (text, bytes) in [
            ("24GiB", 24 << 30),
            ("24g", 24 << 30),
            ("1.5 MiB", 3 << 19),
            ("1048576", 1 << 20),
            ("10GB", 10_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "GiB",
            "1.2.3G",
            "-1G",
            "12XB",
            "99999999999999999999",
            "17000000TiB",
            "16EiB",
            "1e9",
            "0.1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
