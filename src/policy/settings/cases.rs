//! Cases: settings texts whose effect on PyTorch's real allocator is recorded, the printed table,
//! and texts made of the grammar's pieces, none of which may panic.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use super::{Concern, Effective, Source, apply, parse, parse_own, policy_from, validate};
use crate::{
    policy::{Backing, Policy, presets},
    vocab::MIB,
};

/// Each text of the recorded cases, what it makes of PyTorch's preset, and which settings it warns
/// about.
#[test]
fn recorded_texts_mean_what_they_meant_there() {
    type Case = (&'static str, fn(&mut Policy), &'static [&'static str]);
    let cases: [Case; 16] = [
        ("", |_| {}, &[]),
        ("max_split_size_mb:20", |p| p.max_split = 20 * MIB, &[]),
        ("max_split_size_mb:200", |p| p.max_split = 200 * MIB, &[]),
        ("max_split_size_mb:256", |p| p.max_split = 256 * MIB, &[]),
        ("max_split_size_mb:512", |p| p.max_split = 512 * MIB, &[]),
        (
            "max_split_size_mb:64,max_non_split_rounding_mb:32",
            |p| (p.max_split, p.max_non_split_rounding) = (64 * MIB, 32 * MIB),
            &[],
        ),
        ("roundup_power2_divisions:4", |p| p.divisions = [4; 16], &[]),
        ("roundup_power2_divisions:8", |p| p.divisions = [8; 16], &[]),
        (
            "roundup_power2_divisions:[64:1,128:2,256:4,>:8]",
            |p| p.divisions = [1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8, 8, 8],
            &["roundup_power2_divisions"],
        ),
        (
            "garbage_collection_threshold:0.6,per_process_memory_fraction:0.7",
            |p| (p.collect_threshold, p.memory_fraction) = (0.6, 0.7),
            &[],
        ),
        (
            "garbage_collection_threshold:0.8,max_split_size_mb:64,per_process_memory_fraction:0.9",
            |p| (p.collect_threshold, p.max_split, p.memory_fraction) = (0.8, 64 * MIB, 0.9),
            &[],
        ),
        ("per_process_memory_fraction:0.6", |p| p.memory_fraction = 0.6, &[]),
        (
            "large_segment_size_mb:32",
            |p| (p.large_segment, p.max_non_split_rounding) = (32 * MIB, 32 * MIB),
            &[],
        ),
        ("expandable_segments:True", |p| p.backing = pages(20), &[]),
        (
            "expandable_segments:True,garbage_collection_threshold:0.7,\
             per_process_memory_fraction:0.8",
            |p| (p.backing, p.collect_threshold, p.memory_fraction) = (pages(20), 0.7, 0.8),
            &["garbage_collection_threshold"],
        ),
        (
            "expandable_segments:True,large_segment_size_mb:40",
            |p| {
                p.backing = pages(40);
                (p.large_segment, p.max_non_split_rounding) = (40 * MIB, 40 * MIB);
            },
            &[],
        ),
    ];
    for (text, change, warned) in cases {
        let spec = alloc::format!("pytorch:{text}");
        let effective = policy_from(&spec, Some("max_split_size_mb:99")).unwrap();
        let mut wanted = presets::pytorch();
        wanted.name = spec;
        change(&mut wanted);
        assert_eq!(effective.policy, wanted, "{text}");
        let keys: Vec<_> = effective.warnings.iter().map(|w| w.key.as_str()).collect();
        assert_eq!(keys, warned, "{text}");
    }
    let both = policy_from("pytorch:expandable_segments:True,roundup_power2_divisions:8", None);
    let both = both.unwrap();
    assert_eq!((both.policy.backing, both.policy.divisions), (pages(20), [8; 16]));
    assert_eq!(both.warnings, []);
}

/// K19 from the text to the block size.
#[test]
fn k19_a_text_rounds_requests_as_it_does_there() {
    const KIB: u64 = 1024;
    for (spec, bytes, rounded) in [
        ("pytorch:roundup_power2_divisions:4", 1200 * KIB, 1280 * KIB),
        ("pytorch:roundup_power2_divisions:8", 1001 * KIB, 1024 * KIB),
        ("pytorch:roundup_power2_divisions:1", 514 * MIB, 514 * MIB),
        ("blockyard:roundup_power2_divisions:1", 514 * MIB, 1024 * MIB),
        ("pytorch:roundup_power2_divisions:2", 514 * MIB, 768 * MIB),
        ("pytorch:roundup_power2_divisions:[256:2,>:8]", 514 * MIB, 576 * MIB),
        ("pytorch:roundup_power2_divisions:[256:2,>:8]", 386 * MIB, 512 * MIB),
    ] {
        let policy = policy_from(spec, None).unwrap().policy;
        assert_eq!(crate::policy::size::round(&policy, bytes), rounded, "{spec}");
    }
}

fn pages(large: u64) -> Backing {
    Backing::Pages { small: 2 * MIB, large: large * MIB }
}

#[test]
fn k21_the_table_shows_requested_and_effective_and_the_source() {
    let text = "backend:cudaMallocAsync,garbage_collection_threshold:0.6,large_segment_size_mb:32,\
                expandable_segments:True";
    let effective = apply(presets::pytorch(), &parse(text).unwrap(), Source::Api).unwrap();
    let shown = effective.to_string();
    assert_eq!(shown, include_str!("table.txt"), "\n{shown}");
    let wanted =
        [("backend", Concern::NoEffect), ("garbage_collection_threshold", Concern::NoEffect)];
    let found: Vec<_> = effective.warnings.iter().map(|w| (w.key.as_str(), w.concern)).collect();
    assert_eq!(found, wanted);
}

/// Settings that are good, or good alone only.
const WHOLE: [&str; 24] = [
    "max_split_size_mb:20",
    "max_split_size_mb:17592186044415",
    "large_segment_size_mb:40",
    "large_segment_size_mb:21",
    "large_segment_size_mb:17592186044415",
    "max_non_split_rounding_mb:30",
    "expandable_segments:True",
    "expandable_segments:False",
    "garbage_collection_threshold:0.5",
    "per_process_memory_fraction:0",
    "roundup_power2_divisions:2147483648",
    "roundup_power2_divisions:[64:1,>:8]",
    "expandable_segments_reserve:\u{2028}",
    "backend:cudaMallocAsync",
    "small_limit:1GiB",
    "small_segment_mb:2048",
    "large_direct_mb:40",
    "segment_granule_mb:3",
    "large_remainder:0",
    "large_page_mb:4",
    "large_page_mb:3",
    "small_page_mb:549755813888",
    "tie_order:address",
    "ladder:blockyard",
];

/// Seeded texts of the grammar's own pieces: a value or a one-line error, never a panic, and every
/// policy that comes out holds together and says again what it was told.
#[test]
fn no_text_panics() {
    let mut pieces: Vec<&str> = super::Key::ALL.into_iter().map(super::Key::name).collect();
    pieces.extend([
        ":",
        ":",
        ":",
        ",",
        ",",
        "[",
        "]",
        ">",
        "True",
        "False",
        "0",
        "1",
        "20",
        "64",
        "0.5",
        "256:1",
        "18446744073709551615",
        "17592186044415",
        "nan",
        "-1",
        " ",
        "\n",
        "é",
        "\u{2028}",
        "native",
        "address",
        "exact",
        "1MiB",
        "65536",
        "3",
        "",
    ]);
    let mut seed = 2024u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as usize % below
    };
    let mut taken = 0;
    for round in 0..40_000 {
        let mut text = String::new();
        for _ in 0..=next(4) {
            if round % 2 == 0 {
                text.push_str(WHOLE[next(WHOLE.len())]);
                text.push(',');
            } else {
                text.push_str(pieces[next(pieces.len())]);
            }
        }
        let ours = next(2) == 0;
        let base = if ours { presets::blockyard() } else { presets::pytorch() };
        let outcome = parse_own(&text).and_then(|said| apply(base, &said, Source::Text));
        taken += usize::from(outcome.is_ok());
        check(&text, outcome.map(|effective| effective.for_device(Some(1 << 30))));
        let _ = policy_from(&text, Some(&text));
        #[cfg(feature = "std")]
        let _ = (super::from_file_text("x", &text), super::from_file_text("x.json", &text));
    }
    assert!(taken > 2000, "only {taken} texts were taken: the pieces do not reach the far side");
}

fn check(text: &str, outcome: Result<Effective, super::SettingsError>) {
    match outcome {
        Ok(effective) => {
            validate(&effective.policy).unwrap();
            assert_eq!(effective.to_string().lines().count(), 35, "{text:?}");
            for warning in &effective.warnings {
                assert_eq!(warning.to_string().lines().count(), 1);
            }
        }
        Err(error) => {
            let shown = error.to_string();
            assert_eq!(shown.lines().count(), 1, "{text:?}: {shown}");
            assert!(!shown.contains('\u{2028}'));
        }
    }
}
