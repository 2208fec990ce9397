//! Space: the addresses of the simulated devices, and the pages behind them.
//!
//! One range of the process's addresses, reserved once and without access; memory is exposed in it
//! page by page, and taken away again. Physical memory of `cuMemCreate` is a range of one file in
//! memory that is never used twice. Asked by memory and VMM; never knows who owns what.

use crate::code::{self, Code, Done};
use std::collections::BTreeMap;

/// A page of the host.
pub const PAGE: u64 = 4096;
/// Where the range begins if the place is free, so that addresses are the same in every run.
const PLACE: u64 = 0x2000_0000_0000;
const NOTHING: i32 = libc::PROT_NONE;
const FULL: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Addresses that are taken and given back.
pub struct Space {
    base: u64,
    end: u64,
    free: BTreeMap<u64, u64>,
    /// Where the next search begins, if addresses are not to be used again soon.
    fresh: Option<u64>,
    file: i32,
    file_end: u64,
}

pub fn round_up(value: u64, to: u64) -> Option<u64> {
    Some(value.checked_add(to - 1)? & !(to - 1))
}

impl Space {
    /// Reserves `bytes`, or the largest half, quarter and so on that the process may have.
    pub fn new(bytes: u64) -> Self {
        let mut bytes = round_up(bytes, 1 << 30).unwrap_or(1 << 40).max(1 << 30);
        let mut base = reserve(bytes);
        while base.is_none() && bytes > 1 << 30 {
            bytes /= 2;
            base = reserve(bytes);
        }
        let base = base.and_then(|base| round_up(base, 2 << 20)).unwrap_or(0);
        let end = if base == 0 { 0 } else { base + bytes - (2 << 20) };
        // SAFETY: the name is a C string; the call has no other precondition.
        let file = unsafe { libc::memfd_create(c"simcuda".as_ptr(), libc::MFD_CLOEXEC) };
        let free = if end > base { [(base, end - base)].into() } else { BTreeMap::new() };
        Self { base, end, free, fresh: None, file, file_end: 0 }
    }

    pub fn contains(&self, address: u64) -> bool {
        (self.base..self.end).contains(&address)
    }

    /// Whether addresses that were given back are used again only when all others were.
    pub fn stay_fresh(&mut self, fresh: bool) {
        self.fresh = fresh.then_some(self.base);
    }

    /// Takes `bytes` at a multiple of `align`: at `hint` if that is free, else at the lowest place,
    /// or where nothing has been yet.
    pub fn take(&mut self, bytes: u64, align: u64, hint: u64) -> Option<u64> {
        let fresh = self.fresh.and_then(|place| round_up(place, align));
        let place = match fresh.filter(|_| hint == 0) {
            Some(fresh) => self.find(bytes, align, fresh)?,
            None => self.find(bytes, align, hint)?,
        };
        self.fresh = self.fresh.map(|_| place + bytes);
        Some(place)
    }

    fn find(&mut self, bytes: u64, align: u64, hint: u64) -> Option<u64> {
        let at_hint = |(&start, &len): (&u64, &u64)| {
            let fits = hint >= start && hint.checked_add(bytes)? <= start + len;
            (fits && hint.is_multiple_of(align)).then_some((start, len, hint))
        };
        let lowest = |(&start, &len): (&u64, &u64)| {
            let place = round_up(start, align)?;
            (place.checked_add(bytes)? <= start + len).then_some((start, len, place))
        };
        let hinted = self.free.range(..=hint).next_back().and_then(at_hint);
        let (start, len, place) = hinted.or_else(|| self.free.iter().find_map(lowest))?;
        self.free.remove(&start);
        if place > start {
            self.free.insert(start, place - start);
        }
        if start + len > place + bytes {
            self.free.insert(place + bytes, start + len - place - bytes);
        }
        Some(place)
    }

    /// Gives back what was taken.
    pub fn give(&mut self, address: u64, bytes: u64) {
        let (mut start, mut len) = (address, bytes);
        if let Some(next) = self.free.remove(&(address + bytes)) {
            len += next;
        }
        if let Some((&before, &size)) = self.free.range(..address).next_back()
            && before + size == address
        {
            self.free.remove(&before);
            (start, len) = (before, len + size);
        }
        self.free.insert(start, len);
    }

    /// Readable and writable zeros under a range that was taken.
    pub fn expose(&self, address: u64, bytes: u64) -> Done {
        self.protect(address, bytes, FULL)
    }

    /// No memory under the range any more.
    pub fn hide(&self, address: u64, bytes: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range is part of the one that `new` reserved, and its owner gave it up.
        let answer =
            unsafe { libc::mmap(address as *mut _, bytes as usize, NOTHING, flags, -1, 0) };
        debug_assert!(answer != libc::MAP_FAILED, "a range of ours could not be hidden");
    }

    /// Physical memory: a range of the file that nobody had before.
    pub fn create(&mut self, bytes: u64) -> Result<u64, Code> {
        let offset = self.file_end;
        let end = offset.checked_add(bytes).ok_or(code::OUT_OF_MEMORY)?;
        // SAFETY: the file is ours; growing it touches no memory.
        let grown = unsafe { libc::ftruncate(self.file, end as i64) };
        if grown != 0 {
            return Err(code::OUT_OF_MEMORY);
        }
        self.file_end = end;
        Ok(offset)
    }

    /// Physical memory goes back to the host.
    pub fn destroy(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the range of the file is no longer mapped anywhere.
        let _ = unsafe { libc::fallocate(self.file, mode, offset as i64, bytes as i64) };
    }

    /// Physical memory under a range that was taken, as yet without access.
    pub fn map(&self, address: u64, bytes: u64, offset: u64) -> Done {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let (place, size, offset) = (address as *mut _, bytes as usize, offset as i64);
        // SAFETY: the range is part of the one that `new` reserved, and nothing is mapped in it.
        let answer = unsafe { libc::mmap(place, size, NOTHING, flags, self.file, offset) };
        if answer == libc::MAP_FAILED { Err(code::MAP_FAILED) } else { Ok(()) }
    }

    /// Sets what may be done with mapped pages.
    pub fn access(&self, address: u64, bytes: u64, read: bool, write: bool) -> Done {
        let rights = match (read, write) {
            (_, true) => FULL,
            (true, false) => libc::PROT_READ,
            (false, false) => NOTHING,
        };
        self.protect(address, bytes, rights)
    }

    fn protect(&self, address: u64, bytes: u64, rights: i32) -> Done {
        // SAFETY: the range is part of the one that `new` reserved.
        let answer = unsafe { libc::mprotect(address as *mut _, bytes as usize, rights) };
        if answer == 0 { Ok(()) } else { Err(code::OUT_OF_MEMORY) }
    }
}

/// Addresses without access, at the usual place if it is free.
fn reserve(bytes: u64) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let place = PLACE as *mut libc::c_void;
    // SAFETY: a new mapping that replaces none, since the place is only a hint.
    let base = unsafe { libc::mmap(place, bytes as usize, NOTHING, flags, -1, 0) };
    (base != libc::MAP_FAILED && !base.is_null()).then_some(base as u64)
}

#[cfg(test)]
mod tests {
    use super::Space;

    #[test]
    fn what_was_given_back_joins_its_neighbours() {
        let mut space = Space::new(1 << 30);
        let all = space.free.clone();
        let taken: Vec<u64> = (0..5).map(|_| space.take(4096, 4096, 0).unwrap()).collect();
        assert!(taken.windows(2).all(|pair| pair[1] == pair[0] + 4096), "{taken:x?}");
        for place in [1, 3, 2, 0, 4] {
            space.give(taken[place], 4096);
        }
        assert_eq!(space.free, all);
    }

    #[test]
    fn fresh_addresses_are_not_used_again_soon() {
        let mut space = Space::new(1 << 30);
        space.stay_fresh(true);
        let first = space.take(4096, 4096, 0).unwrap();
        space.give(first, 4096);
        let second = space.take(4096, 4096, 0).unwrap();
        assert_eq!(second, first + 4096);
        space.give(second, 4096);
        space.stay_fresh(false);
        assert_eq!(space.take(4096, 4096, 0), Some(first));
    }

    #[test]
    fn a_hint_holds_where_it_is_free() {
        let mut space = Space::new(1 << 30);
        let first = space.take(2 << 20, 2 << 20, 0).unwrap();
        let hint = first + (8 << 20);
        assert_eq!(space.take(2 << 20, 2 << 20, hint), Some(hint));
        let other = space.take(2 << 20, 2 << 20, hint).unwrap();
        assert_eq!(other, first + (2 << 20), "taken, so the lowest place");
        assert_eq!(space.take(1 << 40, 4096, 0), None);
    }
}
