//! Numbers: the dense numbers that streams and pools get, in order of first appearance.

use std::collections::HashMap;
use std::hash::Hash;

use super::error::Wrong;

/// Dense numbers for names; the default name is number 0 from the start.
#[derive(Debug)]
pub(crate) struct Numbers<N> {
    names: Vec<N>,
    by_name: HashMap<N, u32>,
    last: (N, u32),
    highest: u32,
}

/// Names below this keep their own number in [`Numbers::keeping_small`].
const SMALL: u64 = 256;

impl Numbers<u64> {
    /// Names below 256 are their own numbers, as people who number their streams expect.
    pub fn keeping_small() -> Self {
        let names: Vec<u64> = (0..SMALL).collect();
        let by_name = names.iter().map(|&name| (name, name as u32)).collect();
        Self { names, by_name, last: (0, 0), highest: 0 }
    }
}

impl<N: Copy + Eq + Hash> Numbers<N> {
    /// Only the default, which is number 0.
    pub fn new(default: N) -> Self {
        let by_name = HashMap::from([(default, 0)]);
        Self { names: vec![default], by_name, last: (default, 0), highest: 0 }
    }

    /// The number of this name.
    pub fn number(&mut self, name: N) -> Result<u32, Wrong> {
        if self.last.0 == name {
            return Ok(self.last.1);
        }
        let next = u32::try_from(self.names.len())
            .map_err(|_| Wrong::new("more than 4,294,967,295 streams or pools", "fewer"))?;
        let number = *self.by_name.entry(name).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        self.last = (name, number);
        self.highest = self.highest.max(number);
        Ok(number)
    }

    /// The names, by number, up to the highest number given.
    pub fn into_names(mut self) -> Vec<N> {
        self.names.truncate(self.highest as usize + 1);
        self.names
    }
}
