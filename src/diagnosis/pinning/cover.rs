//! Cover: the cheapest set of things whose gains add up to a need.
//!
//! Dynamic programming over the need in steps, exact where every gain is a multiple of the step; with
//! very many things, or a need of very many steps, gains are rounded down and the answer is marked.
//! Asked by `pinning`. Never knows what the things are.

/// Something that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it brings.
    pub gain: u64,
    /// What it costs.
    pub cost: u64,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Indices of the items.
    pub items: Vec<usize>,
    /// No cheaper choice exists.
    pub exact: bool,
}

/// Steps of the need, at most.
const STEPS: u64 = 16_384;
/// Items looked at, at most: those that cost least for what they bring.
const ITEMS: usize = 2_048;
/// Segments and pages are multiples of this.
const STEP: u64 = 2 << 20;

/// The cheapest items whose gains reach `need`; nothing if all together do not. O(items x steps).
#[must_use]
pub fn cheapest(items: &[Item], need: u64) -> Option<Choice> {
    let sum: u128 = items.iter().map(|item| u128::from(item.gain)).sum();
    if sum < u128::from(need) {
        return None;
    }
    let mut order: Vec<usize> = (0..items.len()).filter(|&index| items[index].gain > 0).collect();
    let ratio = |index: usize| items[index].cost as f64 / items[index].gain as f64;
    order.sort_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    let all = order.len() <= ITEMS;
    let step = STEP.max(need.div_ceil(STEPS));
    let steps = need.div_ceil(step) as usize;
    let fine = step == STEP && order.iter().all(|&index| items[index].gain.is_multiple_of(step));
    order.truncate(ITEMS);
    solve(items, &order, step, steps)
        .map(|items| Choice { items, exact: all && fine })
        .or_else(|| greedy(items, need).map(|items| Choice { items, exact: false }))
}

fn solve(items: &[Item], order: &[usize], step: u64, steps: usize) -> Option<Vec<usize>> {
    let mut best = vec![u64::MAX; steps + 1];
    best[0] = 0;
    let mut taken = vec![false; order.len() * (steps + 1)];
    for (row, &index) in order.iter().enumerate() {
        let gain = (items[index].gain / step) as usize;
        if gain == 0 {
            continue;
        }
        for reach in (1..=steps).rev() {
            let before = best[reach.saturating_sub(gain)];
            let with = before.saturating_add(items[index].cost);
            if before != u64::MAX && with < best[reach] {
                best[reach] = with;
                taken[row * (steps + 1) + reach] = true;
            }
        }
    }
    if best[steps] == u64::MAX {
        return None;
    }
    let mut chosen = Vec::new();
    let mut reach = steps;
    for (row, &index) in order.iter().enumerate().rev() {
        if reach > 0 && taken[row * (steps + 1) + reach] {
            chosen.push(index);
            reach = reach.saturating_sub((items[index].gain / step) as usize);
        }
    }
    chosen.sort_unstable();
    Some(chosen)
}

/// By cost for gain, until it is enough.
fn greedy(items: &[Item], need: u64) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..items.len()).filter(|&index| items[index].gain > 0).collect();
    let ratio = |index: usize| items[index].cost as f64 / items[index].gain as f64;
    order.sort_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    let mut reached = 0u64;
    let mut chosen = Vec::new();
    for index in order {
        if reached >= need {
            break;
        }
        reached = reached.saturating_add(items[index].gain);
        chosen.push(index);
    }
    (reached >= need).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_subset_is_cheaper() {
        let items: Vec<Item> = (0..11u64)
            .map(|i| Item { gain: (1 + i * 5 % 7) * STEP, cost: 1 + i * 37 % 23 })
            .collect();
        for need in 1..30 {
            let need = need * STEP;
            let mut least = u64::MAX;
            for set in 0..1u32 << items.len() {
                let inside = || (0..items.len()).filter(|i| set >> i & 1 == 1).map(|i| items[i]);
                if inside().map(|item| item.gain).sum::<u64>() >= need {
                    least = least.min(inside().map(|item| item.cost).sum());
                }
            }
            let choice = cheapest(&items, need);
            let cost = choice.as_ref().map(|c| c.items.iter().map(|&i| items[i].cost).sum::<u64>());
            assert_eq!(cost.unwrap_or(u64::MAX), least, "{need}");
            assert!(choice.is_none_or(|choice| choice.exact));
        }
    }

    #[test]
    fn odd_gains_still_reach_the_need() {
        let items = [Item { gain: 3_000_000, cost: 5 }, Item { gain: 3_000_001, cost: 6 }];
        let choice = cheapest(&items, 6_000_000).unwrap();
        assert_eq!((choice.items.len(), choice.exact), (2, false));
        assert_eq!(cheapest(&items, 7_000_000), None);
    }
}
