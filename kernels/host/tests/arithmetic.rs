//! Arithmetic: axpy and the sparse product against plain loops with one rounding where the kernels
//! have one.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::dtype::{Number, decode, encode, size_of};
use common::views::views;
use common::{Arena, Arg, Launch, launches, mix, run};
use proptest::prelude::*;

const FLOATS: [&str; 4] = ["f64", "f32", "f16", "bf16"];

/// Alpha as the kernel takes it: f64 for f64, else f32.
fn alpha_of(name: &str, alpha: f64) -> Box<dyn Arg> {
    if name == "f64" { Box::new(alpha) } else { Box::new(alpha as f32) }
}

fn value(name: &str, bytes: &[u8]) -> f64 {
    match decode(name, bytes) {
        Number::Float(value) => value,
        _ => f64::NAN,
    }
}

/// One element of alpha * x + y.
fn axpy(name: &str, alpha: f64, x: &[u8], y: &[u8]) -> Vec<u8> {
    let (x, y) = (value(name, x), value(name, y));
    let sum = if name == "f64" {
        alpha.mul_add(x, y)
    } else {
        f64::from((alpha as f32).mul_add(x as f32, y as f32))
    };
    encode(
        name,
        if sum.is_nan() {
            Number::Nan { negative: false, fraction: 0 }
        } else {
            Number::Float(sum)
        },
    )
}

/// Same bits, or both not a number: which NaN comes out of arithmetic is the machine's affair.
fn same(name: &str, a: &[u8], b: &[u8]) -> bool {
    a == b || (value(name, a).is_nan() && value(name, b).is_nan())
}

/// Numbers of moderate size, with the odd infinity and NaN among them.
fn numbers(name: &str, count: usize, seed: u64) -> Vec<u8> {
    let number = |i: u64| match mix(seed ^ i) {
        z if z.is_multiple_of(97) => f64::INFINITY,
        z if z.is_multiple_of(101) => f64::NAN,
        z => ((z >> 40) as f64 / 65536.0 - 128.0) * 2f64.powi((z % 24) as i32 - 12),
    };
    let encoded = |i| match number(i) {
        x if x.is_nan() => encode(name, Number::Nan { negative: false, fraction: 0 }),
        x => encode(name, Number::Float(x)),
    };
    (0..count as u64).flat_map(encoded).collect()
}

proptest! {
    #[test]
    fn axpy_rounds_once(
        launch in launches(), kind in 0usize..4, count in 0usize..300, skip in 0usize..5,
        alpha in -9.0f64..9.0, seed: u64,
    ) {
        let (name, size) = (FLOATS[kind], size_of(FLOATS[kind]));
        let x = numbers(name, count + skip + 2, seed);
        let mut y = Arena::of(&numbers(name, count + skip + 2, !seed));
        let before = y.bytes().to_vec();
        let mut x_at = Arena::of(&x);
        let args: [&dyn Arg; 4] =
            [&y.at(skip * size), &x_at.at(skip * size), &*alpha_of(name, alpha), &(count as u64)];
        run(&format!("by_axpy_{name}"), launch, &args);
        for i in 0..count + skip + 2 {
            let place = i * size..(i + 1) * size;
            let inside = (skip..skip + count).contains(&i);
            let old = &before[place.clone()];
            let sum = axpy(name, alpha, &x[place.clone()], old);
            let wanted = if inside { sum } else { old.to_vec() };
            prop_assert!(same(name, &y.bytes()[place.clone()], &wanted), "{} at {}", name, i);
        }
    }

    #[test]
    fn strided_axpy_follows_both_views(
        launch in launches(), views in views(), kind in 0usize..4, alpha in -9.0f64..9.0, seed: u64,
    ) {
        let (name, size) = (FLOATS[kind], size_of(FLOATS[kind]));
        let ((from, x_size), (to, y_size)) = (views.extent(&views.src), views.extent(&views.dst));
        let x = numbers(name, x_size, seed);
        let mut wanted = numbers(name, y_size, !seed);
        let (mut x_at, mut y) = (Arena::of(&x), Arena::of(&wanted));
        for (at, of) in views.places() {
            let at = (to as i64 + at) as usize * size;
            let of = (from as i64 + of) as usize * size;
            let sum = axpy(name, alpha, &x[of..of + size], &wanted[at..at + size]);
            wanted[at..at + size].copy_from_slice(&sum);
        }
        let args: [&dyn Arg; 4] =
            [&y.at(to * size), &x_at.at(from * size), &*alpha_of(name, alpha), &views];
        run(&format!("by_axpy_strided_{name}"), launch, &args);
        for (found, wanted) in y.bytes().chunks(size).zip(wanted.chunks(size)) {
            prop_assert!(same(name, found, wanted), "{}: {:x?} {:x?}", name, found, wanted);
        }
    }

    #[test]
    fn sparse_times_dense(
        launch in launches(), rows in 0usize..9, inner in 1usize..9, columns in 0usize..6,
        density in 0u64..5, ldx in 0usize..3,
        beta in prop_oneof![Just(0.0), Just(1.0), -2.0f64..2.0], seed: u64,
    ) {
        let entries: Vec<(usize, usize)> = (0..rows)
            .flat_map(|r| (0..inner).map(move |c| (r, c)))
            .filter(|&(r, c)| mix(seed ^ (r * 31 + c) as u64) % 5 < density)
            .collect();
        let case = Product { entries, rows, inner, columns, pad: ldx, beta, seed };
        for (kind, index) in [("f32", "i32"), ("f32", "i64"), ("f64", "i32"), ("f64", "i64")] {
            case.check(kind, index, launch);
        }
    }
}

/// A matrix of `rows` by `inner` times one of `inner` by `columns`.
struct Product {
    entries: Vec<(usize, usize)>,
    rows: usize,
    inner: usize,
    columns: usize,
    pad: usize,
    beta: f64,
    seed: u64,
}

const ALPHA: f64 = 1.25;

impl Product {
    fn check(&self, kind: &str, index: &str, launch: Launch) {
        let (ld, size) = (self.columns + self.pad, size_of(kind));
        let finite = |count, salt: u64| -> Vec<u8> {
            let number = |i| (mix(self.seed ^ salt ^ i) >> 44) as f64 / 1024.0 - 512.0;
            (0..count as u64).flat_map(|i| encode(kind, Number::Float(number(i)))).collect()
        };
        let values = finite(self.entries.len(), 7 << 32);
        let x = finite(self.inner * ld, 8 << 32);
        let mut before = finite(self.rows * ld, 9 << 32);
        if self.beta == 0.0 {
            // Not read: a NaN there does not come through.
            before =
                encode(kind, Number::Nan { negative: false, fraction: 0 }).repeat(self.rows * ld);
        }
        let indices = |list: &mut dyn Iterator<Item = usize>| -> Vec<u8> {
            list.flat_map(|i| i.to_le_bytes()[..size_of(index)].to_vec()).collect()
        };
        let mut row = Arena::of(&indices(&mut self.entries.iter().map(|entry| entry.0)));
        let mut column = Arena::of(&indices(&mut self.entries.iter().map(|entry| entry.1)));
        let mut starts = Arena::noise((self.rows + 1) * size_of(index), 3);
        let (rows, count) = (self.rows as u64, self.entries.len() as u64);
        let args: [&dyn Arg; 4] = [&starts.at(0), &row.at(0), &rows, &count];
        run(&format!("by_coo_row_starts_{index}"), launch, &args);
        let first = |r: usize| self.entries.iter().filter(|entry| entry.0 < r).count();
        assert_eq!(starts.bytes(), indices(&mut (0..=self.rows).map(first)));

        let (mut value_at, mut x_at, mut out) =
            (Arena::of(&values), Arena::of(&x), Arena::of(&before));
        let (ld_arg, columns) = (ld as u64, self.columns as u64);
        let (alpha, beta) = (alpha_of(kind, ALPHA), alpha_of(kind, self.beta));
        let args: [&dyn Arg; 11] = [
            &out.at(0),
            &ld_arg,
            &starts.at(0),
            &column.at(0),
            &value_at.at(0),
            &x_at.at(0),
            &ld_arg,
            &rows,
            &columns,
            &*alpha,
            &*beta,
        ];
        run(&format!("by_csr_mm_{kind}_{index}"), launch, &args);
        let number = |bytes: &[u8], i: usize| value(kind, &bytes[i * size..(i + 1) * size]);
        for r in 0..self.rows {
            for c in 0..ld {
                let at = r * ld + c;
                let inside = self.entries.iter().enumerate().filter(|(_, entry)| entry.0 == r);
                let terms =
                    inside.map(|(i, entry)| (number(&values, i), number(&x, entry.1 * ld + c)));
                let old = number(&before, at);
                let sum = if c >= self.columns { old } else { self.element(kind, terms, old) };
                let found = number(out.bytes(), at);
                assert!(found == sum || (found.is_nan() && sum.is_nan()), "{kind}: {found} {sum}");
            }
        }
    }

    fn element(&self, kind: &str, terms: impl Iterator<Item = (f64, f64)>, old: f64) -> f64 {
        if kind == "f64" {
            let sum = terms.fold(0.0, |sum: f64, (a, x)| a.mul_add(x, sum));
            return if self.beta == 0.0 {
                ALPHA * sum
            } else {
                self.beta.mul_add(old, ALPHA * sum)
            };
        }
        let (alpha, beta) = (ALPHA as f32, self.beta as f32);
        let sum = terms.fold(0.0, |sum: f32, (a, x)| (a as f32).mul_add(x as f32, sum));
        f64::from(if beta == 0.0 { alpha * sum } else { beta.mul_add(old as f32, alpha * sum) })
    }
}
