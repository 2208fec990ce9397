//! Convert: one number of any type as any other type, by the rules that the kernels follow.
//!
//! Every source is first widened without loss, then rounded once:
//!
//! | to | rule |
//! |---|---|
//! | a float | nearest, ties to even; too large is infinite; NaN stays NaN |
//! | an integer, from a float | towards zero; beyond the range its nearest end; NaN is 0 |
//! | an integer, from an integer | the low bits |
//! | `bool` | anything but 0, so NaN is true |

use half::{bf16, f16};

/// A number of any type, widened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wide {
    /// An integer or a `bool`.
    I64(i64),
    /// A float of up to 32 bits.
    F32(f32),
    /// A double.
    F64(f64),
}

pub(super) const fn to_f64(wide: Wide) -> f64 {
    match wide {
        Wide::I64(x) => x as f64,
        Wide::F32(x) => x as f64,
        Wide::F64(x) => x,
    }
}

pub(super) const fn to_f32(wide: Wide) -> f32 {
    match wide {
        Wide::I64(x) => x as f32,
        Wide::F32(x) => x,
        Wide::F64(x) => x as f32,
    }
}

pub(super) fn to_f16(wide: Wide) -> f16 {
    f16::from_f32(odd_f32(wide))
}

pub(super) fn to_bf16(wide: Wide) -> bf16 {
    bf16::from_f32(odd_f32(wide))
}

macro_rules! to_integer {
    ($($name:ident, $type:ty;)*) => {$(
        pub(super) const fn $name(wide: Wide) -> $type {
            match wide {
                Wide::I64(x) => x as $type,
                Wide::F32(x) => x as $type,
                Wide::F64(x) => x as $type,
            }
        }
    )*};
}

to_integer! {
    to_i64, i64;
    to_i32, i32;
    to_i16, i16;
    to_i8, i8;
    to_u8, u8;
}

pub(super) fn to_bool(wide: Wide) -> bool {
    match wide {
        Wide::I64(x) => x != 0,
        Wide::F32(x) => x != 0.0,
        Wide::F64(x) => x != 0.0,
    }
}

/// A float that rounds to 16 bits as `wide` would: what was lost on the way stands in its last bit
/// ("round to odd"), as two roundings to nearest are not one.
fn odd_f32(wide: Wide) -> f32 {
    match wide {
        Wide::F32(x) => x,
        Wide::F64(x) => odd_from_f64(x),
        Wide::I64(x) => odd_from_f64(odd_from_i64(x)),
    }
}

fn odd_from_f64(exact: f64) -> f32 {
    let near = exact as f32;
    if !near.is_finite() || f64::from(near) == exact {
        return near;
    }
    let away = f64::from(near).abs() > exact.abs();
    let towards_zero = near.to_bits() - u32::from(away);
    f32::from_bits(towards_zero | 1)
}

/// Bits too low for a double are gathered into one that it holds.
fn odd_from_i64(exact: i64) -> f64 {
    let size = exact.unsigned_abs();
    let kept =
        if size >> 53 == 0 { size } else { (size & !0xfff) | u64::from(size & 0xfff != 0) << 12 };
    let wide = kept as f64;
    if exact < 0 { -wide } else { wide }
}

#[cfg(test)]
mod tests {
    use super::{Wide, odd_from_f64, odd_from_i64, to_bf16, to_bool, to_f16, to_i8, to_u8};

    #[test]
    fn a_double_is_rounded_to_sixteen_bits_once() {
        // Just above the middle of two halves; as a float it would be the middle, and a tie.
        let step = 2f64.powi(-11);
        assert_eq!(to_f16(Wide::F64(1.0 + step + 2f64.powi(-40))).to_f64(), 1.0 + 2.0 * step);
        assert_eq!(to_f16(Wide::F64(1.0 + step)).to_f64(), 1.0, "the tie itself goes to even");
        assert_eq!(to_f16(Wide::F64(1e9)).to_f64(), f64::INFINITY);
        assert!(to_f16(Wide::F64(f64::NAN)).is_nan());
        assert_eq!(to_bf16(Wide::F64(-1e300)).to_f64(), f64::NEG_INFINITY);
        assert_eq!(to_bf16(Wide::F64(1e-300)).to_f64(), 0.0);
        assert_eq!(odd_from_f64(0.25), 0.25);
    }

    #[test]
    fn a_long_integer_is_rounded_once() {
        let tie = (1i64 << 60) + (1 << 52);
        assert_eq!(to_bf16(Wide::I64(tie)).to_f64(), 2f64.powi(60), "the tie goes to even");
        assert_eq!(to_bf16(Wide::I64(tie + 1)).to_f64(), 2f64.powi(60) + 2f64.powi(53));
        assert_eq!(odd_from_i64(i64::MIN), -(2f64.powi(63)));
        assert_eq!(odd_from_i64((1 << 53) - 1), 2f64.powi(53) - 1.0);
    }

    #[test]
    fn integers_saturate_from_floats_and_wrap_from_integers() {
        assert_eq!([300.9, -5.0, f64::NAN].map(|x| to_u8(Wide::F64(x))), [255, 0, 0]);
        assert_eq!([-129.0, 12.9].map(|x| to_i8(Wide::F32(x))), [-128, 12]);
        assert_eq!(to_u8(Wide::I64(-1)), 255);
        assert!(to_bool(Wide::F32(f32::NAN)) && !to_bool(Wide::F64(-0.0)));
    }
}
