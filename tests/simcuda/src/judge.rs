//! Judge: what programs did that no driver would forgive, and what they left behind.
//!
//! Told by whoever notices; read through the control interface.

/// What contexts took with them when they ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    pub allocations: u64,
    pub hosts: u64,
    pub streams: u64,
    pub events: u64,
}

/// Violations in order.
#[derive(Default)]
pub struct Judge {
    pub violations: u64,
    /// The first few, in words.
    pub words: Vec<String>,
    pub left: Left,
}

impl Judge {
    pub fn say(&mut self, words: String) {
        self.violations += 1;
        if self.words.len() < 100 {
            self.words.push(words);
        }
    }
}
