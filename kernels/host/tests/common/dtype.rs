//! Types: what each element type is worth, and every conversion once more, without the kernels'
//! arithmetic.

use half::{bf16, f16};
use std::sync::LazyLock;

/// Element types in the order of the numbers that kernels know them by.
pub const TYPES: [&str; 10] =
    ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"];

pub fn size_of(name: &str) -> usize {
    match name {
        "f64" | "i64" => 8,
        "f32" | "i32" => 4,
        "f16" | "bf16" | "i16" => 2,
        _ => 1,
    }
}

/// Fraction bits and exponent bits.
fn format(name: &str) -> Option<(u32, u32)> {
    match name {
        "f64" => Some((52, 11)),
        "f32" => Some((23, 8)),
        "f16" => Some((10, 5)),
        "bf16" => Some((7, 8)),
        _ => None,
    }
}

/// A value of any type, without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Float(f64),
    /// The fraction stands as that of an f64.
    Nan {
        negative: bool,
        fraction: u64,
    },
}

fn raw(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |raw, &byte| raw << 8 | u64::from(byte))
}

pub fn decode(name: &str, bytes: &[u8]) -> Number {
    let raw = raw(bytes);
    let float = match name {
        "f64" => f64::from_bits(raw),
        "f32" => f64::from(f32::from_bits(raw as u32)),
        "f16" => f16::from_bits(raw as u16).to_f64(),
        "bf16" => bf16::from_bits(raw as u16).to_f64(),
        "i64" => return Number::Int(raw as i64),
        "i32" => return Number::Int(i64::from(raw as i32)),
        "i16" => return Number::Int(i64::from(raw as i16)),
        "i8" => return Number::Int(i64::from(raw as i8)),
        "u8" => return Number::Int(raw as i64),
        _ => return Number::Int(i64::from(raw != 0)),
    };
    if !float.is_nan() {
        return Number::Float(float);
    }
    let (fraction, exponent) = format(name).unwrap();
    let kept = (raw & ((1 << fraction) - 1)) << (52 - fraction);
    Number::Nan { negative: raw >> (fraction + exponent) != 0, fraction: kept }
}

/// The bytes of a number in a type, as docs/kernels.md promises them.
pub fn encode(name: &str, number: Number) -> Vec<u8> {
    let raw = match (format(name), number) {
        (Some((fraction, exponent)), Number::Nan { negative, fraction: kept }) => {
            let quiet = kept >> (52 - fraction) | 1 << (fraction - 1);
            let sign = u64::from(negative) << (fraction + exponent);
            sign | ((1 << exponent) - 1) << fraction | quiet
        }
        (Some(_), number) => float(name, number),
        (None, number) => integer(name, number),
    };
    raw.to_le_bytes()[..size_of(name)].to_vec()
}

fn float(name: &str, number: Number) -> u64 {
    match (name, number) {
        ("f64", Number::Int(x)) => (x as f64).to_bits(),
        ("f64", Number::Float(x)) => x.to_bits(),
        ("f32", Number::Int(x)) => u64::from((x as f32).to_bits()),
        ("f32", Number::Float(x)) => u64::from((x as f32).to_bits()),
        ("f16", number) => HALF.nearest(number),
        (_, number) => BRAIN.nearest(number),
    }
}

fn integer(name: &str, number: Number) -> u64 {
    let float = match number {
        Number::Int(x) if name == "bool" => return u64::from(x != 0),
        Number::Int(x) => return x as u64,
        Number::Float(x) => x,
        Number::Nan { .. } => f64::NAN,
    };
    match name {
        "i64" => float as i64 as u64,
        "i32" => float as i32 as u64,
        "i16" => float as i16 as u64,
        "i8" => float as i8 as u64,
        "u8" => float as u8 as u64,
        _ => u64::from(float != 0.0),
    }
}

/// All numbers of a 16-bit format that are not negative, in order: the place is the bits.
struct Table {
    floats: Vec<f64>,
    /// Their whole parts, for integers that no f64 holds.
    wholes: Vec<i128>,
}

static HALF: LazyLock<Table> =
    LazyLock::new(|| Table::new(0x7c00, |bits| f16::from_bits(bits).to_f64(), 65536.0));
static BRAIN: LazyLock<Table> =
    LazyLock::new(|| Table::new(0x7f80, |bits| bf16::from_bits(bits).to_f64(), 2f64.powi(128)));

impl Table {
    /// What would follow the greatest number stands in infinity's place, so that rounding up to it
    /// gives infinity.
    fn new(infinity: u16, value: impl Fn(u16) -> f64, next: f64) -> Self {
        let floats: Vec<f64> = (0..infinity).map(value).chain([next]).collect();
        let wholes = floats.iter().map(|&float| float as i128).collect();
        Self { floats, wholes }
    }

    fn nearest(&self, number: Number) -> u64 {
        let (negative, place) = match number {
            Number::Int(x) if x.unsigned_abs() > 1 << 53 => {
                (x < 0, nearest(&self.wholes, i128::from(x).abs()))
            }
            Number::Int(x) => (x < 0, nearest(&self.floats, x.abs() as f64)),
            Number::Float(x) => (x.is_sign_negative(), nearest(&self.floats, x.abs())),
            Number::Nan { .. } => unreachable!("told apart before"),
        };
        place as u64 | u64::from(negative) << 15
    }
}

/// The place of the entry that is nearest; of two as near, the even place.
fn nearest<T: Copy + PartialOrd + std::ops::Sub<Output = T>>(table: &[T], x: T) -> usize {
    let above = table.partition_point(|&entry| entry < x);
    if above == table.len() {
        return above - 1;
    }
    if above == 0 || table[above] <= x {
        return above;
    }
    let (down, up) = (x - table[above - 1], table[above] - x);
    if down < up || (down <= up && above % 2 == 1) { above - 1 } else { above }
}
