//! Pareto: what no other choice beats in every respect.

/// The indices of the points that no other point dominates, in their order. Smaller is better in every figure; of
/// equal points the first one stays. O(n²), for the tens of points of a search.
#[must_use]
pub fn front<const N: usize>(points: &[[u64; N]]) -> Vec<usize> {
    let beaten = |index: usize| {
        points.iter().enumerate().any(|(other, point)| {
            dominates(point, &points[index]) || (other < index && *point == points[index])
        })
    };
    (0..points.len()).filter(|&index| !beaten(index)).collect()
}

/// Whether `a` is nowhere worse than `b`, and better somewhere.
#[must_use]
pub fn dominates<const N: usize>(a: &[u64; N], b: &[u64; N]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a != b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nothing_beats_is_on_the_front() {
        let points = [[3, 1], [1, 3], [2, 2], [2, 3], [3, 3], [2, 2]];
        assert_eq!(front(&points), [0, 1, 2]);
        assert_eq!(front::<2>(&[]), [0usize; 0]);
        assert!(dominates(&[1, 1], &[1, 2]));
        assert!(!dominates(&[1, 1], &[1, 1]), "equals do not beat each other");
    }
}
