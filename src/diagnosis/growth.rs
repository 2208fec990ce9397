//! Growth: what changed between two moments, owner by owner, and what a series of moments says.
//!
//! Owns the comparison of two [`Census`]es, whose rows add up to the difference of the live bytes, and the reading
//! of a series: constant increments, a sawtooth, first steps, or too little to tell. Asked by the tools and by the
//! leak diagnosis. Never knows where the figures came from.

pub mod leaks;
pub mod steps;

use std::collections::BTreeSet;

use crate::diagnosis::owners::{Census, Held};

/// One owner at both moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The owner.
    pub owner: String,
    /// At the first moment.
    pub before: Held,
    /// At the second.
    pub after: Held,
}

impl Row {
    /// By how much it grew.
    #[must_use]
    pub fn change(&self) -> i128 {
        i128::from(self.after.bytes) - i128::from(self.before.bytes)
    }

    /// What became of it, in one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.before.blocks, self.after.blocks, self.change()) {
            (0, _, _) => "appeared",
            (_, 0, _) => "vanished",
            (_, _, 1..) => "grew",
            (_, _, 0) => "unchanged",
            _ => "shrank",
        }
    }
}

/// Two moments side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Everything at the first moment.
    pub before: Held,
    /// Everything at the second.
    pub after: Held,
    /// Owners that differ in bytes or blocks, the largest change first.
    pub rows: Vec<Row>,
    /// Owners that hold the same at both.
    pub unchanged: usize,
}

impl Comparison {
    /// By how much the live bytes grew: the sum over the rows.
    #[must_use]
    pub fn growth(&self) -> i128 {
        i128::from(self.after.bytes) - i128::from(self.before.bytes)
    }
}

/// The two side by side. O(owners · log owners).
#[must_use]
pub fn compare(before: &Census, after: &Census) -> Comparison {
    let names: BTreeSet<&String> = before.owners.keys().chain(after.owners.keys()).collect();
    let held = |census: &Census, name: &str| census.owners.get(name).copied().unwrap_or_default();
    let mut rows: Vec<Row> = names
        .iter()
        .map(|name| Row {
            owner: (*name).clone(),
            before: held(before, name),
            after: held(after, name),
        })
        .filter(|row| row.before != row.after)
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.change().unsigned_abs()));
    let unchanged = names.len() - rows.len();
    Comparison { before: before.total, after: after.total, rows, unchanged }
}

/// What a series does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Fewer than three points.
    TooShort,
    /// The same at every point.
    Flat,
    /// It changed in the first steps and not since: optimizer state, caches that fill once.
    FirstSteps,
    /// It changed until about the middle and not since.
    Settled,
    /// It goes up and comes back.
    Sawtooth,
    /// It only falls.
    Shrinking,
    /// It grows by about the same each step.
    ConstantIncrement,
    /// It grows and does not come back, by uneven steps.
    UnevenGrowth,
}

impl Pattern {
    /// A word for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::TooShort => "too-short",
            Self::Flat => "flat",
            Self::FirstSteps => "first-steps",
            Self::Settled => "settled",
            Self::Sawtooth => "sawtooth",
            Self::Shrinking => "shrinking",
            Self::ConstantIncrement => "constant-increment",
            Self::UnevenGrowth => "uneven-growth",
        }
    }

    /// Whether it still grows where the series ends.
    #[must_use]
    pub const fn grows(self) -> bool {
        matches!(self, Self::ConstantIncrement | Self::UnevenGrowth)
    }
}

/// A series read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// What it does.
    pub pattern: Pattern,
    /// Bytes a step: the median of the slopes between all pairs of points (Theil and Sen).
    pub slope: f64,
    /// The median distance of the points from that line, in bytes.
    pub residual: f64,
    /// From 0 to 1: the share of steps that rise, less what the residual leaves in doubt, less 1/points.
    pub confidence: f64,
}

/// What the live bytes at step boundaries say. Points from the first steps do not count towards a slope where
/// there are enough others. O(points²), at most 64 points spread evenly for the slope.
#[must_use]
pub fn trend(series: &[u64]) -> Trend {
    let still = |pattern| Trend { pattern, slope: 0.0, residual: 0.0, confidence: 1.0 };
    let points = series.len();
    if points < 3 {
        return Trend { confidence: 0.0, ..still(Pattern::TooShort) };
    }
    let last = series[points - 1];
    let calm = points - series.iter().rev().take_while(|&&value| value == last).count();
    match (calm, points - calm) {
        (0, _) => return still(Pattern::Flat),
        (1..=2, 2..) => return still(Pattern::FirstSteps),
        (moved, rest) if rest >= 3 && moved <= rest + 1 => return still(Pattern::Settled),
        _ => {}
    }
    let warm_up = match points {
        0..=3 => 0,
        4 => 1,
        _ => 2,
    };
    let tail = &series[warm_up..];
    let (slope, residual) = line(tail);
    let steps: Vec<i128> =
        tail.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect();
    let pattern = shape(tail, &steps, slope);
    let rising = steps.iter().filter(|&&step| step > 0).count() as f64 / steps.len() as f64;
    let grown = (slope * steps.len() as f64).abs().max(1.0);
    let sure = rising * (1.0 - (2.0 * residual / grown).min(1.0)) * (1.0 - 1.0 / points as f64);
    // Of few points the first may be the start of the program: what comes after it must count as well.
    let first = steps[0].unsigned_abs();
    let faint = points < 5 && steps.iter().skip(1).all(|step| step.unsigned_abs() * 10 < first);
    let sure = if faint { sure / 2.0 } else { sure };
    let confidence = if pattern.grows() { sure } else { 1.0 - 1.0 / points as f64 };
    Trend { pattern, slope, residual, confidence }
}

fn shape(tail: &[u64], steps: &[i128], slope: f64) -> Pattern {
    let rises: i128 = steps.iter().filter(|&&step| step > 0).sum();
    let falls: i128 = -steps.iter().filter(|&&step| step < 0).sum::<i128>();
    if rises == 0 {
        return if falls == 0 { Pattern::Flat } else { Pattern::Shrinking };
    }
    if falls * 4 > rises {
        return if floor_rises(tail, slope) { Pattern::UnevenGrowth } else { Pattern::Sawtooth };
    }
    let mut sorted = steps.to_vec();
    sorted.sort_unstable();
    let middle = sorted[sorted.len() / 2];
    let mut apart: Vec<i128> = steps.iter().map(|step| (step - middle).abs()).collect();
    apart.sort_unstable();
    let even = apart[apart.len() * 4 / 5] * 4 <= middle;
    if even && middle > 0 { Pattern::ConstantIncrement } else { Pattern::UnevenGrowth }
}

/// Whether even the lowest points of a sawtooth rise, third by third, and the slope agrees.
fn floor_rises(tail: &[u64], slope: f64) -> bool {
    if tail.len() < 9 {
        return false;
    }
    let lowest = |part: &[u64]| part.iter().copied().min().unwrap_or(0);
    let highest = tail.iter().copied().max().unwrap_or(0);
    let third = tail.len() / 3;
    let (a, b) = (lowest(&tail[..third]), lowest(&tail[third..2 * third]));
    let c = lowest(&tail[2 * third..]);
    let swing = (highest - a.min(b).min(c)) as f64;
    a < b && b < c && slope > 0.0 && (c - a) as f64 > swing / 4.0
}

/// Slope and median distance.
fn line(points: &[u64]) -> (f64, f64) {
    const MOST: usize = 64;
    let apart = points.len().div_ceil(MOST).max(1);
    let chosen: Vec<(f64, f64)> =
        points.iter().enumerate().step_by(apart).map(|(x, &y)| (x as f64, y as f64)).collect();
    let mut slopes = Vec::with_capacity(chosen.len() * chosen.len() / 2);
    for (index, &(x, y)) in chosen.iter().enumerate() {
        slopes.extend(chosen[index + 1..].iter().map(|&(other, value)| (value - y) / (other - x)));
    }
    let slope = median(&mut slopes);
    let mut levels: Vec<f64> = chosen.iter().map(|&(x, y)| y - slope * x).collect();
    let level = median(&mut levels);
    let mut apart: Vec<f64> = levels.iter().map(|other| (other - level).abs()).collect();
    (slope, median(&mut apart))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(series: &[u64]) -> Pattern {
        trend(series).pattern
    }

    #[test]
    fn series_are_read_as_a_person_would() {
        use Pattern::*;
        assert_eq!(pattern(&[1, 2]), TooShort);
        assert_eq!(pattern(&[5, 5, 5, 5]), Flat);
        assert_eq!(pattern(&[100, 300, 300]), FirstSteps);
        assert_eq!(pattern(&[100, 200, 300, 300, 300, 300]), FirstSteps);
        assert_eq!(pattern(&[1, 2, 3, 4, 4, 4, 4, 4]), Settled);
        assert_eq!(pattern(&[10, 20, 10, 20, 10, 20, 10]), Sawtooth);
        assert_eq!(pattern(&[50, 40, 30, 20]), Shrinking);
        assert_eq!(pattern(&[100, 110, 120, 130, 140, 150]), ConstantIncrement);
        assert_eq!(pattern(&[100, 500, 510, 520, 530, 540, 551]), ConstantIncrement);
        assert_eq!(pattern(&[411, 1157, 2500]), UnevenGrowth);
        let teeth =
            |step: u64| (0..30).map(|n| 1000 + n * step + (n % 5) * 100).collect::<Vec<_>>();
        assert_eq!(pattern(&teeth(0)), Sawtooth);
        assert_eq!(pattern(&teeth(20)), UnevenGrowth, "the floor rises");
    }

    #[test]
    fn a_first_step_and_a_little_more_is_no_sure_growth() {
        assert!(trend(&[411, 1157, 2500]).confidence > 0.5);
        assert!(trend(&[100, 1100, 1110]).confidence < 0.5);
    }

    #[test]
    fn the_slope_withstands_an_outlier() {
        let mut series: Vec<u64> = (0..20).map(|n| 1000 + 10 * n).collect();
        assert!((trend(&series).slope - 10.0).abs() < 1e-9);
        assert!(trend(&series).confidence > 0.9);
        series[10] = 9000;
        assert!((trend(&series).slope - 10.0).abs() < 1.0, "{:?}", trend(&series));
    }
}
