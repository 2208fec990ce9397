//! Handles: numbers that C holds instead of pointers.
//!
//! Asked by every call. **F3**: a number that was given back is known to be: its slot has another generation by then.
//! Looking one up is a read lock and a count; the lock is never held while anything else is called.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::error::Failure;
use super::types::blockyard_status::BLOCKYARD_INVALID_HANDLE;

/// Things by number. Bits of a number: eight of the kind, thirty-two of the generation, twenty-four of the slot.
pub(super) struct Handles<T> {
    kind: u8,
    name: &'static str,
    slots: RwLock<Vec<Slot<T>>>,
}

struct Slot<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

const SLOT_BITS: u32 = 24;

impl<T> Handles<T> {
    pub(super) const fn new(kind: u8, name: &'static str) -> Self {
        Self { kind, name, slots: RwLock::new(Vec::new()) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Slot<T>>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Slot<T>>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for this.
    pub(super) fn insert(&self, value: Arc<T>) -> Result<u64, Failure> {
        let mut slots = self.write();
        let vacant = slots.iter().position(|slot| slot.value.is_none());
        let index = vacant.unwrap_or(slots.len());
        if index >> SLOT_BITS != 0 {
            let text = format_args!("there are too many of one kind: {}", self.name);
            return Err(Failure::new(BLOCKYARD_INVALID_HANDLE, text));
        }
        if index == slots.len() {
            slots.push(Slot { generation: 0, value: None });
        }
        let slot = &mut slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.value = Some(value);
        Ok(u64::from(self.kind) << 56 | u64::from(slot.generation) << SLOT_BITS | index as u64)
    }

    /// What has this number.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Result<Arc<T>, Failure> {
        let slots = self.read();
        let value = self.place(number, &slots).and_then(|index| slots[index].value.clone());
        value.ok_or_else(|| self.unknown(number))
    }

    /// Takes it out, unless `keep` says why not. `keep` is called under the lock.
    pub(super) fn remove(
        &self,
        number: u64,
        keep: impl FnOnce(&T) -> Option<Failure>,
    ) -> Result<Arc<T>, Failure> {
        let mut slots = self.write();
        let index = self.place(number, &slots).ok_or_else(|| self.unknown(number))?;
        let value = slots[index].value.take().ok_or_else(|| self.unknown(number))?;
        match keep(&value) {
            Some(failure) => {
                slots[index].value = Some(value);
                Err(failure)
            }
            None => Ok(value),
        }
    }

    /// Takes all out of which this is true.
    pub(super) fn remove_all(&self, of: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut slots = self.write();
        let gone = slots.iter_mut().filter(|slot| slot.value.as_deref().is_some_and(&of));
        gone.filter_map(|slot| slot.value.take()).collect()
    }

    /// All that there are.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.read().iter().filter_map(|slot| slot.value.clone()).collect()
    }

    #[inline]
    fn place(&self, number: u64, slots: &[Slot<T>]) -> Option<usize> {
        let index = (number & ((1 << SLOT_BITS) - 1)) as usize;
        let slot = slots.get(index)?;
        let same = (number >> SLOT_BITS) as u32 == slot.generation;
        (number >> 56 == u64::from(self.kind) && same).then_some(index)
    }

    #[cold]
    fn unknown(&self, number: u64) -> Failure {
        let text = format!("{number:#x} is no {}: never created, or given back", self.name);
        Failure::new(BLOCKYARD_INVALID_HANDLE, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f3_a_number_is_good_once_and_of_one_kind() {
        let (first, second) = (Handles::new(1, "first"), Handles::new(2, "second"));
        let a = first.insert(Arc::new(7)).unwrap();
        let b = second.insert(Arc::new(8)).unwrap();
        assert_ne!(a, 0);
        assert_eq!((*first.get(a).unwrap(), *second.get(b).unwrap()), (7, 8));
        assert!(first.get(b).is_err() && first.get(0).is_err() && first.get(u64::MAX).is_err());
        let busy = |_: &i32| Some(Failure::argument("busy"));
        assert!(first.remove(a, busy).is_err() && first.get(a).is_ok());
        assert!(first.remove(a, |_| None).is_ok());
        assert!(first.get(a).is_err() && first.remove(a, |_| None).is_err());
        let again = first.insert(Arc::new(9)).unwrap();
        assert!(again != a && first.get(a).is_err(), "the slot has another tenant");
        assert_eq!(first.remove_all(|value| *value == 9).len(), 1);
        assert!(first.all().is_empty());
    }
}
