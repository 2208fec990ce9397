//! Slab: values in numbered slots, with a count of how often each slot was let.
//!
//! **A1** a stale id never finds a new tenant: every removal raises the slot's generation.
//! All operations are O(1); slots are reused newest first.

use alloc::vec::Vec;

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    let_out: bool,
    value: T,
}

/// Values in numbered slots.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value into a vacant slot and returns the slot's number.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.vacant.pop() {
            let slot = &mut self.slots[index as usize];
            debug_assert!(!slot.let_out, "A1");
            slot.let_out = true;
            slot.value = value;
            return index;
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, let_out: true, value });
        index
    }

    /// Empties a slot. What it held stays to be looked at until the slot is let again.
    #[inline]
    pub fn remove(&mut self, index: u32) -> &T {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.let_out, "A1");
        slot.let_out = false;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(index);
        &slot.value
    }

    /// Makes every id handed out for this slot stale; its value stays.
    #[inline]
    pub fn renew(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// The generation of a slot.
    #[inline]
    #[must_use]
    pub fn generation(&self, index: u32) -> u32 {
        self.slots[index as usize].generation
    }

    /// Whether the slot is let in this generation.
    #[inline]
    #[must_use]
    pub fn holds(&self, index: u32, generation: u32) -> bool {
        self.slots
            .get(index as usize)
            .is_some_and(|slot| slot.let_out && slot.generation == generation)
    }

    /// The value of a slot, if there is such a slot; of a vacant one, what it held last.
    #[inline]
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize).map(|slot| &slot.value)
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize).map(|slot| &mut slot.value)
    }

    /// The value of a slot, if the slot is let in this generation.
    #[inline]
    pub fn held_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        (slot.let_out && slot.generation == generation).then_some(&mut slot.value)
    }

    /// Occupied slots in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let occupied = |(index, slot): (usize, _)| Self::occupied(index, slot);
        self.slots.iter().enumerate().filter_map(occupied)
    }

    fn occupied(index: usize, slot: &Slot<T>) -> Option<(u32, &T)> {
        slot.let_out.then_some((index as u32, &slot.value))
    }

    /// Slots, occupied or vacant.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Occupied slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Whether no slot is occupied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.slots[index as usize].value
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.slots[index as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a1_a_stale_id_finds_no_new_tenant() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        let generation = slab.generation(first);
        slab.remove(first);
        assert!(!slab.holds(first, generation));
        let second = slab.insert('b');
        assert_eq!(first, second, "the slot is reused");
        assert!(!slab.holds(first, generation) && slab.holds(second, slab.generation(second)));
        slab.renew(second);
        assert!(!slab.holds(second, generation.wrapping_add(1)));
        assert_eq!(slab.len(), 1);
    }
}
