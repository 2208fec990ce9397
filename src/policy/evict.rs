//! Evict: which idle memory goes back to the driver, and when.
//!
//! **V1** eviction names only idle memory: the heap offers only free, unsplit segments and free pages.
//! Source: PyTorch's `garbage_collect_cached_blocks` and `release_available_cached_blocks`.

use super::Policy;

/// How many bytes a collection should release: what is reserved above the threshold. 0: nothing to do.
#[must_use]
pub fn collect_target(policy: &Policy, limit: u64, reserved: u64) -> u64 {
    let threshold = (policy.collect_threshold * limit as f64) as u64;
    reserved.saturating_sub(threshold)
}

/// Whether an idle block of this age goes in a pass whose idle blocks sum to `total_age` over `count`.
#[must_use]
pub fn old_enough(age: u64, total_age: u64, count: u64) -> bool {
    count > 0 && age as f64 >= total_age as f64 / count as f64
}

/// How many bytes of oversize blocks must go so that the driver can serve `size`: the request, and never less
/// than the split limit. `None`: there is no limit, so nothing is oversize.
#[must_use]
pub const fn oversize_target(policy: &Policy, size: u64) -> Option<u64> {
    if policy.max_split == u64::MAX {
        None
    } else if size < policy.max_split {
        Some(policy.max_split)
    } else {
        Some(size)
    }
}
