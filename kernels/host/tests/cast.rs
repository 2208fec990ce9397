//! Casts: every pair of types, on every 16-bit value and on what is near the places where rounding
//! turns.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::dtype::{Number, TYPES, decode, encode, size_of};
use common::views::views;
use common::{Arena, ODD, launches, mix, run};
use proptest::prelude::*;

/// Elements of a type that are worth trying, as bytes.
fn samples(name: &str) -> Vec<u8> {
    match size_of(name) {
        1 => (0..=255).collect(),
        2 => (0..=65535u16).flat_map(u16::to_le_bytes).collect(),
        _ => wide(name),
    }
}

fn wide(name: &str) -> Vec<u8> {
    let size = size_of(name);
    // Any bits; any number of bits, so that integers of every size occur; powers of two.
    let random = (0..20_000u64).map(mix).chain((0..20_000).map(|i| mix(i) >> (i % 64)));
    let negative = (0..20_000).map(|i| (mix(i) >> (i % 64)).wrapping_neg());
    let powers = (0..64).flat_map(|i| [-1, 0, 1].map(|by| (1u64 << i).wrapping_add_signed(by)));
    let mut raw: Vec<u64> = random.chain(negative).chain(powers).collect();
    for turn in turns() {
        raw.extend(match name {
            "f64" => around(turn.to_bits()),
            "f32" => around(u64::from((turn as f32).to_bits())),
            _ => around(turn as i64 as u64),
        });
    }
    raw.iter().flat_map(|raw| raw.to_le_bytes()[..size].to_vec()).collect()
}

fn around(raw: u64) -> [u64; 5] {
    [-2, -1, 0, 1, 2].map(|by| raw.wrapping_add_signed(by))
}

/// Where a conversion from f32, f64 or an integer to something narrower turns: numbers of the
/// 16-bit formats, the middles between neighbours, and the ends of the integers. Both signs.
fn turns() -> Vec<f64> {
    let mut turns: Vec<f64> = [7, 8, 15, 16, 31, 32, 63].map(|bits| 2f64.powi(bits)).to_vec();
    turns.extend([0.0, 0.5, 1.5, f64::INFINITY, f64::from(f32::MAX), 65519.99, 65520.0]);
    for name in ["f16", "bf16"] {
        let last = if name == "f16" { 0x7bffu16 } else { 0x7f7f };
        let value = |bits: u16| match decode(name, &bits.to_le_bytes()) {
            Number::Float(value) => value,
            other => panic!("{other:?}"),
        };
        for bits in (0..last).step_by(5).chain(0..40).chain(last - 40..last) {
            let (low, high) = (value(bits), value(bits + 1));
            turns.extend([low, high, low + (high - low) / 2.0]);
        }
        turns.push(value(last) + (value(last) - value(last - 1)) / 2.0);
    }
    turns.iter().flat_map(|&turn| [turn, -turn]).collect()
}

fn expected(from: &str, to: &str, source: &[u8]) -> Vec<u8> {
    source.chunks_exact(size_of(from)).flat_map(|bytes| encode(to, decode(from, bytes))).collect()
}

/// The first element that differs, in words.
fn compare(from: &str, to: &str, source: &[u8], found: &[u8], wanted: &[u8]) {
    let pairs = found.chunks(size_of(to)).zip(wanted.chunks(size_of(to)));
    for ((found, wanted), source) in pairs.zip(source.chunks(size_of(from))) {
        let value = decode(from, source);
        assert_eq!(
            found, wanted,
            "{from} {source:x?} = {value:?} as {to} (kernel, then reference)"
        );
    }
}

#[test]
fn every_pair_converts_every_sample() {
    for from in TYPES {
        let source = samples(from);
        let count = source.len() / size_of(from);
        let mut src = Arena::of(&source);
        for to in TYPES.into_iter().filter(|&to| to != from) {
            let wanted = expected(from, to, &source);
            let mut dst = Arena::noise(wanted.len(), 9);
            let all = dst.after(|bytes| bytes.copy_from_slice(&wanted));
            let name = format!("by_cast_{from}_{to}");
            run(&name, ODD, &[&dst.at(0), &src.at(0), &(count as u64)]);
            compare(from, to, &source, dst.bytes(), &wanted);
            assert!(dst.everything() == all, "{name} wrote outside");
        }
    }
}

/// The library's own 16-bit floats agree, where they are exact: from f32.
#[test]
fn the_reference_agrees_with_the_half_crate() {
    let source = samples("f32");
    for bytes in source.chunks_exact(4) {
        let float = f32::from_le_bytes(bytes.try_into().unwrap());
        let number = decode("f32", bytes);
        let half = half::f16::from_f32(float).to_bits().to_le_bytes();
        let brain = half::bf16::from_f32(float).to_bits().to_le_bytes();
        assert_eq!(encode("f16", number), half, "{float:e} as f16");
        assert_eq!(encode("bf16", number), brain, "{float:e} as bf16");
    }
}

#[test]
fn promises_of_the_documentation() {
    let cast = |from: &str, to: &str, bytes: &[u8]| {
        let (mut src, mut dst) = (Arena::of(bytes), Arena::noise(size_of(to), 0));
        run(&format!("by_cast_{from}_{to}"), ODD, &[&dst.at(0), &src.at(0), &1u64]);
        dst.bytes().to_vec()
    };
    let from_f32 = |value: f32, to| cast("f32", to, &value.to_le_bytes());
    assert_eq!(from_f32(300.0, "u8"), [255], "the nearest end");
    assert_eq!(from_f32(-1.5, "u8"), [0]);
    assert_eq!(from_f32(-1.9, "i8"), [0xff], "towards zero");
    assert_eq!(from_f32(f32::NAN, "i32"), [0; 4]);
    assert_eq!(from_f32(f32::NAN, "bool"), [1]);
    assert_eq!(from_f32(-0.0, "bool"), [0]);
    assert_eq!(from_f32(65520.0, "f16"), [0x00, 0x7c], "infinite");
    assert_eq!(from_f32(65519.0, "f16"), [0xff, 0x7b], "the greatest");
    assert_eq!(cast("i32", "u8", &(-1i32).to_le_bytes()), [255], "the low bits");
    assert_eq!(cast("bool", "i16", &[2]), [1, 0], "any byte but 0 is true");
    // Through f32 this would be a tie, and round down.
    let above = 1.0f64 + 2f64.powi(-8) + 2f64.powi(-40);
    assert_eq!(cast("f64", "bf16", &above.to_le_bytes()), [0x81, 0x3f], "rounded once");
    let above = (1i64 << 62) + (1 << 54) + 1;
    assert_eq!(cast("i64", "bf16", &above.to_le_bytes()), [0x81, 0x5e], "rounded once");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn strided_casts_follow_both_views(
        launch in launches(), views in views(), from in 0usize..10, to in 0usize..10, seed: u64,
    ) {
        let (types, sizes) = ((TYPES[from], TYPES[to]), (size_of(TYPES[from]), size_of(TYPES[to])));
        let (before, src_size) = views.extent(&views.src);
        let (after, dst_size) = views.extent(&views.dst);
        let mut src = Arena::noise(src_size * sizes.0, seed);
        let mut dst = Arena::noise(dst_size * sizes.1, !seed);
        let source = src.bytes().to_vec();
        let expected = dst.after(|bytes| {
            for (at, of) in views.places() {
                let at = (after as i64 + at) as usize * sizes.1;
                let of = (before as i64 + of) as usize * sizes.0;
                let number = decode(types.0, &source[of..of + sizes.0]);
                bytes[at..at + sizes.1].copy_from_slice(&encode(types.1, number));
            }
        });
        let (dst_at, src_at) = (dst.at(after * sizes.1), src.at(before * sizes.0));
        run("by_cast_strided", launch, &[&dst_at, &src_at, &(to as u32), &(from as u32), &views]);
        // Equal types: only the NaN of f32 and f64 keep even their quiet bit.
        if from != to || from > 1 {
            prop_assert_eq!(dst.everything(), expected, "{:?}", types);
        }
    }

    #[test]
    fn contiguous_casts_write_what_they_should_only(
        launch in launches(), from in 0usize..10, to in 0usize..10, count in 0usize..300,
        skip in 0usize..9, seed: u64,
    ) {
        prop_assume!(from != to);
        let (types, sizes) = ((TYPES[from], TYPES[to]), (size_of(TYPES[from]), size_of(TYPES[to])));
        let mut src = Arena::noise((skip + count) * sizes.0, seed);
        let mut dst = Arena::noise((skip + count + 3) * sizes.1, !seed);
        let source = src.bytes()[skip * sizes.0..].to_vec();
        let wanted = expected(types.0, types.1, &source);
        let (begin, end) = (skip * sizes.1, (skip + count) * sizes.1);
        let all = dst.after(|bytes| bytes[begin..end].copy_from_slice(&wanted));
        let name = format!("by_cast_{}_{}", types.0, types.1);
        run(&name, launch, &[&dst.at(begin), &src.at(skip * sizes.0), &(count as u64)]);
        prop_assert_eq!(dst.everything(), all);
    }
}
