//! Value: one setting's value, by its kind.

use alloc::{format, string::String};

use super::{
    Place, SettingsError, divisions,
    keys::{Kind, nearest},
    lexer::Token,
    parse::Raw,
};
use crate::{
    policy::size::DIVISION_ENTRIES,
    vocab::{GIB, KIB, MIB},
};

/// A value as understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// On or off.
    Flag(bool),
    /// A size in bytes.
    Bytes(u64),
    /// A count.
    Count(u64),
    /// A share.
    Share(f64),
    /// Rounding steps, as the policy holds them.
    Divisions([u32; DIVISION_ENTRIES]),
    /// One of a setting's words.
    Word(&'static str),
    /// A value that nothing here reads.
    Text(String),
}

/// The value of a kind. The error knows what was expected, and the place only if it is inside a
/// list.
pub(super) fn read(kind: Kind, raw: &Raw) -> Result<Value, SettingsError> {
    let bad = || SettingsError::expected(&kind.expected());
    let word = match (kind, raw) {
        (Kind::Divisions, Raw::List { pairs, .. }) => {
            return divisions::from_list(pairs).map(Value::Divisions);
        }
        (Kind::FreeList, Raw::List { .. }) => return Ok(Value::Text(raw.text())),
        (Kind::FreeList, Raw::Word(_)) => return Err(bad()),
        (_, Raw::List { .. }) => return Err(bad()),
        (_, Raw::Word(word)) => word,
    };
    match kind {
        Kind::Flag => flag(word).map(Value::Flag).ok_or_else(bad),
        Kind::Mib(least) => mib(word, least).map(Value::Bytes),
        Kind::Size => size(word).map(Value::Bytes),
        Kind::Share { ends } => share(word, ends).map(Value::Share).ok_or_else(bad),
        Kind::Divisions => divisions::from_word(word).map(Value::Divisions),
        Kind::Threads => match whole(word)? {
            Some(count) if count.is_power_of_two() && count <= 128 => Ok(Value::Count(count)),
            _ => Err(bad()),
        },
        Kind::Word(words) => pick(word, words),
        Kind::Free | Kind::FreeList => Ok(Value::Text(word.text.clone())),
    }
}

fn flag(word: &Token) -> Option<bool> {
    match word.text.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// A whole number of digits only. `None`: it is none; the error: it is one, and too large.
pub(super) fn whole(word: &Token) -> Result<Option<u64>, SettingsError> {
    if word.text.is_empty() || !word.text.bytes().all(|digit| digit.is_ascii_digit()) {
        return Ok(None);
    }
    word.text.parse().map(Some).map_err(|_| too_large())
}

pub(super) fn too_large() -> SettingsError {
    SettingsError::new("the number is too large")
}

fn mib(word: &Token, least: u64) -> Result<u64, SettingsError> {
    match whole(word)? {
        Some(count) if count >= least => count.checked_mul(MIB).ok_or_else(too_large),
        _ => Err(SettingsError::expected(&Kind::Mib(least).expected())),
    }
}

fn size(word: &Token) -> Result<u64, SettingsError> {
    let units = [("KiB", KIB), ("MiB", MIB), ("GiB", GIB)];
    let unit =
        units.into_iter().find_map(|(name, unit)| Some((word.text.strip_suffix(name)?, unit)));
    let (digits, unit) = unit.unwrap_or((&word.text, 1));
    match whole(&Token { text: digits.into(), at: word.at })? {
        Some(count) => count.checked_mul(unit).ok_or_else(too_large),
        None => Err(SettingsError::expected(&Kind::Size.expected())),
    }
}

fn share(word: &Token, ends: bool) -> Option<f64> {
    let share: f64 = word.text.parse().ok()?;
    let inside = share > 0.0 && share < 1.0;
    (inside || (ends && (share == 0.0 || share == 1.0))).then_some(share)
}

fn pick(word: &Token, words: &'static [&'static str]) -> Result<Value, SettingsError> {
    if let Some(&found) = words.iter().find(|&&one| one == word.text) {
        return Ok(Value::Word(found));
    }
    let hint = nearest(&word.text, words.iter().copied())
        .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    let error = SettingsError::new(format!("expected {}{hint}", Kind::Word(words).expected()));
    Err(error.at(Place::Byte(word.at)))
}

#[cfg(test)]
mod tests {
    use super::super::{parse, parse_own};
    use alloc::{format, string::ToString};

    /// Every key with values that are taken and values that are not.
    #[test]
    fn every_key_takes_what_pytorch_takes() {
        let flags: (&[&str], &[&str]) = (&["True", "False"], &["true", "1", "", "[1:2]", "yes"]);
        let mib0: (&[&str], &[&str]) = (&["0", "64"], &["-1", "x", "1.5", "99999999999999999999"]);
        let size: (&[&str], &[&str]) =
            (&["1048576", "512KiB", "1MiB", "1GiB"], &["1MB", "KiB", "-1", "20000000000GiB"]);
        for (key, (good, bad)) in [
            ("backend", (&["native", "cudaMallocAsync"][..], &["cudamallocasync", "x"][..])),
            ("max_split_size_mb", (&["20", "4096"], &["0", "-1", "20MB", "18446744073709551615"])),
            ("max_non_split_rounding_mb", (&["20", "64"], &["0", "x", "[1:2]"])),
            ("large_segment_size_mb", (&["11", "20", "40"], &["10", "0", "20.0"])),
            (
                "roundup_power2_divisions",
                (
                    &[
                        "0",
                        "1",
                        "4",
                        "[256:1,512:2,1024:4,>:8]",
                        "[1:4]",
                        "[]",
                        "[64:0]",
                        "[64:2,]",
                    ],
                    &[
                        "3",
                        "-4",
                        "x",
                        "[3:4]",
                        "[256:3]",
                        "[0:1]",
                        "[x:1]",
                        "[>:x]",
                        "4294967296",
                        "[1:8589934592]",
                    ],
                ),
            ),
            (
                "garbage_collection_threshold",
                (&["0.6", "1e-3", ".5"], &["0", "1", "-0.1", "nan", "inf", "x", "1.0"]),
            ),
            (
                "per_process_memory_fraction",
                (&["0", "1", "1.0", "0.5"], &["-0.1", "1.01", "nan", "x"]),
            ),
            ("expandable_segments", flags),
            ("expandable_segments_reserve", (&["40G", "0.5"], &["", "[a:b]"])),
            ("expandable_segments_reserve_by_class", (&["[small:0.1,large:40G]"], &["1"])),
            ("release_lock_on_cudamalloc", flags),
            ("release_lock_on_hipmalloc", flags),
            ("throw_on_cudamalloc_oom", flags),
            ("graph_capture_record_stream_reuse", flags),
            ("pinned_use_cuda_host_register", flags),
            ("pinned_use_hip_host_register", flags),
            ("pinned_num_register_threads", (&["1", "128"], &["0", "3", "256", "x"])),
            ("pinned_use_background_threads", flags),
            ("pinned_reserve_segment_size_mb", (&["1"], &["0", "-1"])),
            ("pinned_max_round_threshold_mb", mib0),
            ("pinned_max_cached_size_mb", mib0),
            ("pinned_free_catch_all", flags),
            ("small_limit", size),
            ("small_segment_mb", (&["2"], &["0"])),
            ("large_direct_mb", (&["10"], &["0"])),
            ("segment_granule_mb", (&["2"], &["0"])),
            ("large_remainder", size),
            ("small_page_mb", (&["2"], &["0"])),
            ("large_page_mb", (&["2"], &["0"])),
            ("tie_order", (&["segment", "address"], &["size"])),
            ("prefer_ungrowable", flags),
            ("one_division_counts", flags),
            ("limit_check", (&["segment", "exact"], &["x"])),
            ("ladder", (&["pytorch", "blockyard"], &["x"])),
            ("evict_private", flags),
            ("borrow", flags),
        ] {
            for value in good {
                parse_own(&format!("{key}:{value}")).unwrap();
            }
            for value in bad {
                let error = parse_own(&format!("{key}:{value}")).unwrap_err();
                let text = error.to_string();
                let kept = super::super::Key::named(key).unwrap().name();
                assert!(text.starts_with(kept) || text.starts_with(key), "{key}:{value}: {text}");
                assert!(text.contains("at byte"), "{text}");
                assert!(text.contains("expected") || text.contains("too large"), "{text}");
                assert!(!text.contains('\n'));
            }
        }
    }

    #[test]
    fn a_bad_value_is_named_with_its_place_and_what_was_expected() {
        for (text, wanted) in [
            (
                "backend:native,expandable_segments:true",
                "expandable_segments \"true\" at byte 35: expected exactly True or False",
            ),
            (
                "garbage_collection_threshold:1.0",
                "garbage_collection_threshold \"1.0\" at byte 29: expected a number above 0 \
                 and below 1",
            ),
            (
                "large_segment_size_mb:10",
                "large_segment_size_mb \"10\" at byte 22: expected a whole number of MiB, at \
                 least 11",
            ),
            (
                "max_split_size_mb:99999999999999999999",
                "max_split_size_mb \"99999999999999999999\" at byte 18: the number is too large",
            ),
            (
                "backend:cudamallocasync",
                "backend \"cudamallocasync\" at byte 8: expected native or cudaMallocAsync; \
                 did you mean cudaMallocAsync?",
            ),
            (
                "roundup_power2_divisions:[256:1,300:2]",
                "roundup_power2_divisions \"[256:1,300:2]\" at byte 32: expected a power of \
                 two of MiB or >, found 300",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), wanted);
        }
    }
}
