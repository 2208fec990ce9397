//! DType: the types of elements, and which Rust type is which.

use std::fmt;

use bytemuck::{NoUninit, Pod};
use half::{bf16, f16};

use super::convert::{self, Wide};

/// The type of a tensor's elements. The order is that of the kernels' arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DType {
    /// Double precision.
    F64 = 0,
    /// Single precision.
    F32 = 1,
    /// Half precision: 5 bits of exponent.
    F16 = 2,
    /// Brain float: 8 bits of exponent.
    BF16 = 3,
    /// 64-bit integer.
    I64 = 4,
    /// 32-bit integer.
    I32 = 5,
    /// 16-bit integer.
    I16 = 6,
    /// 8-bit integer.
    I8 = 7,
    /// 8-bit integer without a sign.
    U8 = 8,
    /// One byte, 0 or 1.
    Bool = 9,
}

impl DType {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U8,
        Self::Bool,
    ];

    /// Bytes of an element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// As Rust spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }

    /// Whether it is a floating-point type.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be an element.
pub trait Element: sealed::Sealed + NoUninit + PartialEq + fmt::Debug + Send + Sync {
    /// Which one it is.
    const DTYPE: DType;
    /// What lies in memory.
    type Bits: Pod;
    /// From what lies in memory.
    fn from_bits(bits: Self::Bits) -> Self;
    /// To what lies in memory.
    fn to_bits(self) -> Self::Bits;
    /// Widened without loss.
    fn widen(self) -> Wide;
    /// The nearest that the type has, rounded once; beyond its range, the nearest end or infinite.
    fn narrow(wide: Wide) -> Self;
}

macro_rules! element {
    ($($type:ty, $dtype:ident, $wide:ident as $wider:ty, $narrow:path;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            type Bits = Self;
            #[inline]
            fn from_bits(bits: Self) -> Self {
                bits
            }
            #[inline]
            fn to_bits(self) -> Self {
                self
            }
            #[inline]
            fn widen(self) -> Wide {
                Wide::$wide(<$wider>::from(self))
            }
            #[inline]
            fn narrow(wide: Wide) -> Self {
                $narrow(wide)
            }
        }
    )*};
}

element! {
    f64, F64, F64 as f64, convert::to_f64;
    f32, F32, F32 as f32, convert::to_f32;
    f16, F16, F32 as f32, convert::to_f16;
    bf16, BF16, F32 as f32, convert::to_bf16;
    i64, I64, I64 as i64, convert::to_i64;
    i32, I32, I64 as i64, convert::to_i32;
    i16, I16, I64 as i64, convert::to_i16;
    i8, I8, I64 as i64, convert::to_i8;
    u8, U8, I64 as i64, convert::to_u8;
}

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;
    type Bits = u8;
    #[inline]
    fn from_bits(bits: u8) -> Self {
        bits != 0
    }
    #[inline]
    fn to_bits(self) -> u8 {
        self.into()
    }
    #[inline]
    fn widen(self) -> Wide {
        Wide::I64(self.into())
    }
    #[inline]
    fn narrow(wide: Wide) -> Self {
        convert::to_bool(wide)
    }
}

/// `body` with `$type` standing for the element type that `$dtype` names.
macro_rules! with_dtype {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            $crate::tensor::DType::F64 => {
                type $type = f64;
                $body
            }
            $crate::tensor::DType::F32 => {
                type $type = f32;
                $body
            }
            $crate::tensor::DType::F16 => {
                type $type = half::f16;
                $body
            }
            $crate::tensor::DType::BF16 => {
                type $type = half::bf16;
                $body
            }
            $crate::tensor::DType::I64 => {
                type $type = i64;
                $body
            }
            $crate::tensor::DType::I32 => {
                type $type = i32;
                $body
            }
            $crate::tensor::DType::I16 => {
                type $type = i16;
                $body
            }
            $crate::tensor::DType::I8 => {
                type $type = i8;
                $body
            }
            $crate::tensor::DType::U8 => {
                type $type = u8;
                $body
            }
            $crate::tensor::DType::Bool => {
                type $type = bool;
                $body
            }
        }
    };
}
pub(super) use with_dtype;
