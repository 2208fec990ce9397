//! Scopes: statistics of a stretch of the program, pushed and popped.

use crate::vocab::{Change, Observe};

/// What was allocated between a push and its pop. Bytes are block sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeStats {
    /// Allocated less freed since the push; below zero where more was freed.
    pub current_bytes: i64,
    /// The highest that was.
    pub peak_bytes: i64,
    /// Allocated since the push.
    pub allocated_bytes: u64,
    /// Blocks handed out since the push.
    pub allocations: u64,
    /// Blocks given back since the push.
    pub frees: u64,
}

/// Open scopes, innermost last.
#[derive(Debug, Default)]
pub(crate) struct Scopes(Vec<ScopeStats>);

impl Scopes {
    #[inline]
    pub(crate) const fn listen(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn push(&mut self) {
        self.0.push(ScopeStats::default());
    }

    /// Ends the innermost scope; what it saw counts in the one around it too.
    pub(crate) fn pop(&mut self) -> Option<ScopeStats> {
        let inner = self.0.pop()?;
        if let Some(outer) = self.0.last_mut() {
            outer.peak_bytes = outer.peak_bytes.max(outer.current_bytes + inner.peak_bytes);
            outer.current_bytes += inner.current_bytes;
            outer.allocated_bytes += inner.allocated_bytes;
            outer.allocations += inner.allocations;
            outer.frees += inner.frees;
        }
        Some(inner)
    }
}

impl Observe for Scopes {
    fn observe(&mut self, change: Change) {
        let Some(scope) = self.0.last_mut() else { return };
        match change {
            Change::Allocated { bytes, .. } => {
                scope.allocations += 1;
                scope.allocated_bytes += bytes;
                scope.current_bytes += bytes as i64;
                scope.peak_bytes = scope.peak_bytes.max(scope.current_bytes);
            }
            Change::FreeRequested { bytes, .. } => {
                scope.frees += 1;
                scope.current_bytes -= bytes as i64;
            }
            _ => {}
        }
    }
}
