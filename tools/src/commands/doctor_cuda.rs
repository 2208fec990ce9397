//! CUDA facts: the seam through which the CUDA device tells `doctor` about the driver.
//!
//! A build with a CUDA device answers here; without one there is nothing to ask, and the reason is said.

use super::doctor_facts::Fact;

/// Why there are no CUDA facts.
pub(super) const WHY_NOT: &str = "no CUDA driver found (this build has no CUDA device)";

/// What is asked of a driver, in order: each comes as a value, or as unknown with the reason.
pub(super) const ASKED: [&str; 7] = [
    "driver version (CUDA)",
    "devices",
    "memory of each device",
    "page granularity",
    "virtual memory management",
    "driver model (WDDM, TCC)",
    "memory pools (cudaMallocAsync)",
];

/// Facts that only the driver knows; nothing where no driver can be asked.
pub(super) fn cuda_facts() -> Option<Vec<Fact>> {
    None
}
