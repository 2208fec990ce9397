//! Memory kernels: fill, copies, patterns, the wait; against what plain loops do, guards included.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::views::views;
use common::{Arena, ODD, ONE, launches, mix, noise, run};
use proptest::prelude::*;
use std::time::{Duration, Instant};

const NONE: u64 = u64::MAX;

proptest! {
    #[test]
    fn fill_repeats_its_element(
        launch in launches(), offset in 0usize..33, count in 0usize..200, log in 0usize..5,
        seed: u64,
    ) {
        let element = 1 << log;
        let value = noise(16, seed);
        let (lo, hi) = (word(&value[..8]), word(&value[8..]));
        let mut arena = Arena::noise(offset + count * element + 7, !seed);
        let expected = arena.after(|bytes| {
            for place in bytes[offset..].chunks_exact_mut(element).take(count) {
                place.copy_from_slice(&value[..element]);
            }
        });
        let dst = arena.at(offset);
        run("by_fill", launch, &[&dst, &(count as u64), &(element as u32), &lo, &hi]);
        prop_assert_eq!(arena.everything(), expected);
    }

    #[test]
    fn copy_moves_bytes_of_any_alignment(
        launch in launches(), from in 0usize..33, to in 0usize..33, size in 0usize..900, seed: u64,
    ) {
        let mut src = Arena::noise(from + size, seed);
        let mut dst = Arena::noise(to + size + 5, !seed);
        let moved = src.bytes()[from..].to_vec();
        let expected = dst.after(|bytes| bytes[to..to + size].copy_from_slice(&moved));
        run("by_copy", launch, &[&dst.at(to), &src.at(from), &(size as u64)]);
        prop_assert_eq!(dst.everything(), expected);
    }

    #[test]
    fn strided_copies_follow_both_views(launch in launches(), views in views(), seed: u64) {
        for bits in [8, 16, 32, 64, 128] {
            let element = bits / 8;
            let (from, src_size) = views.extent(&views.src);
            let (to, dst_size) = views.extent(&views.dst);
            let mut src = Arena::noise(src_size * element, seed);
            let mut dst = Arena::noise(dst_size * element, !seed);
            let source = src.bytes().to_vec();
            let expected = dst.after(|bytes| {
                for (at, of) in views.places() {
                    let (at, of) = (to as i64 + at, from as i64 + of);
                    let (at, of) = (at as usize * element, of as usize * element);
                    bytes[at..at + element].copy_from_slice(&source[of..of + element]);
                }
            });
            let (dst_at, src_at) = (dst.at(to * element), src.at(from * element));
            run(&format!("by_copy_strided_{bits}"), launch, &[&dst_at, &src_at, &views]);
            prop_assert_eq!(dst.everything(), expected, "{} bits", bits);
        }
    }

    #[test]
    fn patterns_are_splitmix_words(
        launch in launches(), words in 0usize..5, size in 0usize..500, seed: u64, origin: u64,
    ) {
        let begin = 8 * words;
        let mut arena = Arena::noise(begin + size + 9, seed);
        let expected = arena.after(|bytes| {
            for (place, byte) in bytes[begin..begin + size].iter_mut().enumerate() {
                let index = seed.wrapping_add(origin).wrapping_add(place as u64 / 8);
                *byte = mix(index).to_le_bytes()[place % 8];
            }
        });
        run("by_pattern_fill", launch, &[&arena.at(begin), &(size as u64), &seed, &origin]);
        prop_assert_eq!(arena.everything(), expected);
        prop_assert_eq!(verify(&mut arena, begin, size, (seed, origin), launch), (NONE, 0));
    }

    #[test]
    fn verify_finds_the_first_wrong_word_and_counts_them(
        launch in launches(), size in 1usize..500, seed: u64,
        wounds in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6),
    ) {
        let mut arena = Arena::noise(size, seed);
        run("by_pattern_fill", ONE, &[&arena.at(0), &(size as u64), &seed, &3u64]);
        let mut wrong: Vec<usize> = Vec::new();
        for (place, flip) in wounds {
            let place = place.index(size);
            // A word is hit once, so that no wound heals another.
            if !wrong.contains(&(place / 8)) {
                arena.bytes()[place] ^= flip;
                wrong.push(place / 8);
            }
        }
        let first = *wrong.iter().min().unwrap() as u64;
        let found = verify(&mut arena, 0, size, (seed, 3), launch);
        prop_assert_eq!(found, (first, wrong.len() as u64));
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The two words that by_pattern_verify leaves.
fn verify(
    arena: &mut Arena,
    at: usize,
    size: usize,
    pattern: (u64, u64),
    launch: common::Launch,
) -> (u64, u64) {
    let mut found = Arena::of(&[NONE.to_le_bytes(), [0; 8]].concat());
    let args: [&dyn common::Arg; 5] =
        [&arena.at(at), &(size as u64), &pattern.0, &pattern.1, &found.at(0)];
    run("by_pattern_verify", launch, &args);
    (word(&found.bytes()[..8]), word(&found.bytes()[8..]))
}

#[test]
fn a_pattern_tells_seed_and_place_apart() {
    let mut arena = Arena::noise(800, 0);
    run("by_pattern_fill", ODD, &[&arena.at(0), &800u64, &5u64, &10u64]);
    assert_eq!(verify(&mut arena, 0, 800, (5, 10), ODD), (NONE, 0));
    assert_eq!(verify(&mut arena, 8, 792, (5, 11), ODD), (NONE, 0), "a part of it");
    assert_eq!(verify(&mut arena, 0, 800, (5, 11), ODD), (0, 100), "moved by a word");
    assert_eq!(verify(&mut arena, 0, 800, (6, 10), ODD), (0, 100), "another seed");
    arena.bytes()[799] ^= 1;
    assert_eq!(verify(&mut arena, 0, 800, (5, 10), ODD), (99, 1));
    assert_eq!(verify(&mut arena, 0, 799, (5, 10), ODD), (NONE, 0), "the last byte is outside");
}

/// Around the head and the tail of the vector path, where chance seldom comes.
#[test]
fn every_small_copy_and_fill_of_every_alignment() {
    for (from, to, size) in
        (0..17).flat_map(|a| (0..17).flat_map(move |b| (0..40).map(move |c| (a, b, c))))
    {
        let (mut src, mut dst) = (Arena::noise(from + size, 1), Arena::noise(to + size, 2));
        let moved = src.bytes()[from..].to_vec();
        let expected = dst.after(|bytes| bytes[to..].copy_from_slice(&moved));
        run("by_copy", ODD, &[&dst.at(to), &src.at(from), &(size as u64)]);
        assert!(dst.everything() == expected, "copy from {from} to {to} of {size}");
    }
    let (lo, hi) = (0x0706_0504_0302_0100u64, 0x0f0e_0d0c_0b0a_0908u64);
    for (to, log, count) in
        (0..17).flat_map(|a| (0..5).flat_map(move |b| (0..34).map(move |c| (a, b, c))))
    {
        let element = 1usize << log;
        let mut dst = Arena::noise(to + count * element, 3);
        let expected = dst.after(|bytes| {
            bytes[to..]
                .iter_mut()
                .zip((0..element as u8).cycle())
                .for_each(|(byte, value)| *byte = value);
        });
        run("by_fill", ODD, &[&dst.at(to), &(count as u64), &(element as u32), &lo, &hi]);
        assert!(dst.everything() == expected, "fill at {to}, {count} of {element}");
    }
}

#[test]
fn a_fill_begins_with_its_lowest_byte() {
    let mut arena = Arena::noise(64, 0);
    run("by_fill", ODD, &[&arena.at(1), &9u64, &2u32, &0xabcdu64, &0u64]);
    assert_eq!(arena.bytes()[1..19], [0xcd, 0xab].repeat(9));
    run("by_fill", ODD, &[&arena.at(1), &0u64, &16u32, &0u64, &0u64]);
    assert_eq!(arena.bytes()[1..19], [0xcd, 0xab].repeat(9), "nothing to fill");
}

#[test]
fn busy_waits_as_long_as_it_is_told() {
    let begin = Instant::now();
    run("by_busy", ODD, &[&0u64]);
    let idle = begin.elapsed();
    let begin = Instant::now();
    run("by_busy", ODD, &[&20_000u64]);
    let held = begin.elapsed();
    assert!(held >= Duration::from_millis(20), "{held:?}");
    assert!(held < idle + Duration::from_secs(2), "one thread waits, not all: {held:?}");
}
