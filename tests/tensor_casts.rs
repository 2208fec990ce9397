//! Casts: every pair of types, against the nearest number found by looking at its neighbours.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::tensor::{DType, Element, Place, Tensor, bf16, f16};
use proptest::prelude::*;

thread_local! {
    static HOST: Place = Place::host();
}

/// One value through the host's cast.
fn cast<S: Element, D: Element>(value: S) -> D {
    let place = HOST.with(Clone::clone);
    let tensor = Tensor::full(&place, &[3], value).unwrap();
    let cast = tensor.to(&place, D::DTYPE, false).unwrap().to_vec::<D>().unwrap();
    assert!(cast.iter().all(|other| format!("{other:?}") == format!("{:?}", cast[0])));
    cast[0]
}

/// Whether `found` is `exact` rounded to nearest, ties to even, among the floats of 16 bits that `real` knows.
fn nearest(exact: f64, found: u16, real: impl Fn(u16) -> f64, largest: f64) -> bool {
    let value = real(found);
    if exact.is_nan() || value.is_nan() {
        return exact.is_nan() && value.is_nan();
    }
    if value.is_infinite() {
        let step = largest - real((found & 0x7fff) - 2).abs();
        return value.signum() == exact.signum() && exact.abs() >= largest + step / 2.0;
    }
    let near = (exact - value).abs();
    let beside = [found.wrapping_add(1), found.wrapping_sub(1)].map(&real);
    beside.into_iter().filter(|other| other.is_finite()).all(|other| {
        let far = (exact - other).abs();
        near < far || (near == far && found.is_multiple_of(2)) || (near == far && other == -value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn sixteen_bit_floats_are_rounded_once(
        bits in any::<u64>(),
        exponent in -30i32..20,
        whole in any::<i64>(),
        shift in 0u32..64,
    ) {
        let scaled = (f64::from_bits(bits) % 1.0 + 1.0) * 2f64.powi(exponent);
        // Just beside the middle of two neighbours, which a float in between would round to the middle itself.
        let side = if shift.is_multiple_of(2) { 1.0 } else { -1.0 };
        let beside = |low: f64, high: f64| (low + high) / 2.0 * (1.0 + side / 2f64.powi(40));
        let low = bits as u16 % 0x7bff;
        let halves = beside(f16::from_bits(low).to_f64(), f16::from_bits(low + 1).to_f64());
        let brains = beside(bf16::from_bits(low).to_f64(), bf16::from_bits(low + 1).to_f64());
        for exact in [f64::from_bits(bits), scaled, halves, brains, f64::from(f32::from_bits(bits as u32))] {
            let (half, brain) = (cast::<f64, f16>(exact), cast::<f64, bf16>(exact));
            prop_assert!(nearest(exact, half.to_bits(), |b| f16::from_bits(b).to_f64(), 65504.0), "{exact:e} {half}");
            let largest = bf16::MAX.to_f64();
            prop_assert!(nearest(exact, brain.to_bits(), |b| bf16::from_bits(b).to_f64(), largest), "{exact:e} {brain}");
        }
        let whole = whole >> shift;
        // A double holds it exactly, or the neighbours are so far apart that it does not matter.
        if whole.unsigned_abs() < 1 << 53 {
            let (half, brain) = (cast::<i64, f16>(whole), cast::<i64, bf16>(whole));
            prop_assert_eq!(half, cast::<f64, f16>(whole as f64));
            prop_assert_eq!(brain, cast::<f64, bf16>(whole as f64));
        }
    }

    #[test]
    fn integers_and_wide_floats_convert_as_rust_does(bits in any::<u64>(), small in -300.0f64..300.0) {
        for real in [f64::from_bits(bits), small] {
            prop_assert_eq!(cast::<f64, i64>(real), real as i64);
            prop_assert_eq!(cast::<f64, i32>(real), real as i32);
            prop_assert_eq!(cast::<f64, i16>(real), real as i16);
            prop_assert_eq!(cast::<f64, i8>(real), real as i8);
            prop_assert_eq!(cast::<f64, u8>(real), real as u8);
            prop_assert_eq!(cast::<f64, bool>(real), real != 0.0);
            prop_assert_eq!(cast::<f64, f32>(real).to_bits() << 1, (real as f32).to_bits() << 1);
        }
        let whole = bits as i64;
        prop_assert_eq!(cast::<i64, i32>(whole), whole as i32);
        prop_assert_eq!(cast::<i64, u8>(whole), whole as u8);
        prop_assert_eq!(cast::<i64, f64>(whole), whole as f64);
        prop_assert_eq!(cast::<i64, f32>(whole), whole as f32);
        prop_assert_eq!(cast::<i8, u8>(whole as i8), whole as u8);
        prop_assert_eq!(cast::<bool, bf16>(whole < 0).to_f32(), f32::from(u8::from(whole < 0)));
    }
}

#[test]
fn every_pair_of_types_keeps_small_numbers_over_strided_axes() {
    let place = Place::host();
    let numbers = Tensor::from_slice(&place, &[2, 3], &[0i64, 1, 2, 3, 4, 5]).unwrap();
    for from in DType::ALL {
        for to in DType::ALL {
            let source = numbers.to(&place, from, false).unwrap().transpose(0, 1).unwrap();
            let target = Tensor::zeros(&place, &[3, 4], to).unwrap();
            target.slice(1, .., 2).unwrap().copy_(&source).unwrap();
            let whole = target.to(&place, DType::I64, false).unwrap().to_vec::<i64>().unwrap();
            let expected = [0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5, 0];
            let one = |value: i64| {
                if from == DType::Bool || to == DType::Bool { value.min(1) } else { value }
            };
            assert_eq!(whole, expected.map(one), "{from} to {to}");
        }
    }
}
