//! Ranges: what the project's kernels touch, worked out from their arguments.
//!
//! Asked for each launch, so that a bad address is found before a kernel runs into it. Of kernels
//! with strides, and of all that it does not know, it says nothing.

use crate::memory::Touch;

/// Bytes of an element of a type that kernels are named by.
fn element(kind: &str) -> Option<u64> {
    match kind {
        "f64" | "i64" => Some(8),
        "f32" | "i32" => Some(4),
        "f16" | "bf16" | "i16" => Some(2),
        "i8" | "u8" | "bool" => Some(1),
        _ => None,
    }
}

fn touch(address: u64, bytes: u64, write: bool) -> Touch {
    Touch { address, bytes, write }
}

/// What the kernel touches with these arguments, each its first eight bytes; `None`: not known.
pub fn of(kernel: &str, arguments: &[u64]) -> Option<Vec<Touch>> {
    let at = |place: usize| arguments.get(place).copied();
    match kernel {
        "by_busy" => return Some(Vec::new()),
        "by_fill" => return Some(vec![touch(at(0)?, at(1)?.checked_mul(at(2)?)?, true)]),
        "by_copy" => {
            return Some(vec![touch(at(0)?, at(2)?, true), touch(at(1)?, at(2)?, false)]);
        }
        "by_pattern_fill" => return Some(vec![touch(at(0)?, at(1)?, true)]),
        "by_pattern_verify" => {
            return Some(vec![touch(at(0)?, at(1)?, false), touch(at(4)?, 16, true)]);
        }
        _ => {}
    }
    if let Some(kinds) = kernel.strip_prefix("by_cast_") {
        let (from, to) = kinds.split_once('_')?;
        let (from, to) = (element(from)?.checked_mul(at(2)?)?, element(to)?.checked_mul(at(2)?)?);
        return Some(vec![touch(at(0)?, to, true), touch(at(1)?, from, false)]);
    }
    let bytes = element(kernel.strip_prefix("by_axpy_")?)?.checked_mul(at(3)?)?;
    Some(vec![touch(at(0)?, bytes, true), touch(at(1)?, bytes, false)])
}

#[cfg(test)]
mod tests {
    use super::{of, touch};

    #[test]
    fn ranges_follow_the_arguments() {
        assert_eq!(of("by_fill", &[64, 3, 4, 0, 0]), Some(vec![touch(64, 12, true)]));
        let cast = vec![touch(64, 10, true), touch(8, 20, false)];
        assert_eq!(of("by_cast_f32_bf16", &[64, 8, 5]), Some(cast));
        let axpy = vec![touch(64, 40, true), touch(8, 40, false)];
        assert_eq!(of("by_axpy_f64", &[64, 8, 1, 5]), Some(axpy));
        assert_eq!(of("by_cast_strided", &[64, 8, 5]), None);
        assert_eq!(of("foreign", &[64]), None);
        assert_eq!(of("by_copy", &[64]), None, "too few");
    }
}
