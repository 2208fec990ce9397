//! Contract: what a device promises for each call, and what it may expect of its caller.
//!
//! Asked by the pump, replay and the laws. Never knows which device answers.
//!
//! | want | the caller promises | on success |
//! |---|---|---|
//! | `Reserve` | `bytes > 0` | at least `bytes` of memory, **D1** |
//! | `Release` | a live segment, its own size; no guest's work on it (below) | gone |
//! | `ReserveRange` | `bytes` in pages, pages in granules | addresses without memory, **D1** |
//! | `ReleaseRange` | a live range, its own size; nothing mapped in it | gone |
//! | `Map` | inside one range, on its page borders; nothing mapped there | memory under all of it |
//! | `Unmap` | likewise; all mapped; no guest's work on it (below) | no memory under any of it |
//! | `Fence` | `serial` above all recorded on the stream | stands behind all work launched so far |
//! | `Poll` | | the newest fence, up to `newest`, that has passed, **D2**; 0: none |
//! | `Wait` | `serial` was recorded on the stream | the same, at least `serial` |
//! | `Order` | `serial` was recorded on `after` | the waiter's later work runs only after that fence, **D5** |
//!
//! `Fence`, `Poll` and `Order` never wait, however busy the stream is (**D3**); every other call
//! may.
//!
//! Memory goes back under work: `Release` waits for the work of the stream that the memory belongs
//! to, `Unmap` for the stream that it names. Work of any other stream on it, a guest's, must be
//! done before the call; that is what fences are for. A driver may wait for more. Nobody may rely
//! on it.
//!
//! A refused call changed nothing: no address, no byte of capacity, no page, no fence. `Map` is all
//! or nothing. A `Wait` concerns its own stream only: it passes that stream's fences up to
//! `serial`, and it may find that other fences have passed as well.

use crate::vocab::{Answer, Want};

/// Performs wants. One call at a time: whoever shares a device between threads brings the lock.
pub trait Device {
    /// Performs one call. The answer fits the want ([`fits`]), or it is [`Answer::Refused`] and
    /// nothing changed.
    fn perform(&mut self, want: Want) -> Answer;

    /// The device's memory in bytes; `None`: not known, or no limit.
    fn total(&self) -> Option<u64>;

    /// What may still be obtained, in bytes; `None` wherever [`Device::total`] is `None`.
    fn free(&self) -> Option<u64>;

    /// Every base is a multiple of this, and memory is taken in multiples of it. A power of two.
    fn granularity(&self) -> u64;

    /// Whether `ReserveRange`, `ReleaseRange`, `Map` and `Unmap` are supported. If not, each is
    /// refused with [`NOT_SUPPORTED`].
    fn page_mapping(&self) -> bool;

    /// Nanoseconds that all calls so far cost by the device's cost model; 0 where there is none.
    fn nanos(&self) -> u64;

    /// How many calls succeeded, by kind, and how many were refused.
    fn calls(&self) -> Calls;
}

/// The driver's code for a call that the device cannot do (`CUDA_ERROR_NOT_SUPPORTED`).
pub const NOT_SUPPORTED: i32 = 801;

/// The driver's code for a call that made no sense (`CUDA_ERROR_INVALID_VALUE`).
pub const INVALID_VALUE: i32 = 1;

/// Which call a want is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKind {
    /// [`Want::Reserve`].
    Reserve,
    /// [`Want::Release`].
    Release,
    /// [`Want::ReserveRange`].
    ReserveRange,
    /// [`Want::ReleaseRange`].
    ReleaseRange,
    /// [`Want::Map`].
    Map,
    /// [`Want::Unmap`].
    Unmap,
    /// [`Want::Fence`].
    Fence,
    /// [`Want::Poll`].
    Poll,
    /// [`Want::Wait`].
    Wait,
    /// [`Want::Order`].
    Order,
}

impl CallKind {
    /// How many kinds there are.
    pub const COUNT: usize = 10;

    /// The kind of `want`.
    #[must_use]
    pub const fn of(want: &Want) -> Self {
        match want {
            Want::Reserve { .. } => Self::Reserve,
            Want::Release { .. } => Self::Release,
            Want::ReserveRange { .. } => Self::ReserveRange,
            Want::ReleaseRange { .. } => Self::ReleaseRange,
            Want::Map { .. } => Self::Map,
            Want::Unmap { .. } => Self::Unmap,
            Want::Fence { .. } => Self::Fence,
            Want::Poll { .. } => Self::Poll,
            Want::Wait { .. } => Self::Wait,
            Want::Order { .. } => Self::Order,
        }
    }
}

/// Counts of calls that succeeded, by kind; totals that never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Segments obtained.
    pub reserve: u64,
    /// Segments returned.
    pub release: u64,
    /// Address ranges obtained.
    pub reserve_range: u64,
    /// Address ranges returned.
    pub release_range: u64,
    /// Map operations, each on one contiguous range.
    pub map: u64,
    /// Unmap operations, each on one contiguous range.
    pub unmap: u64,
    /// Pages mapped.
    pub pages_mapped: u64,
    /// Pages unmapped.
    pub pages_unmapped: u64,
    /// Fences recorded.
    pub fence: u64,
    /// Polls.
    pub poll: u64,
    /// Waits.
    pub wait: u64,
    /// Orders: streams made to wait for a fence of another.
    pub order: u64,
    /// Calls of any kind that were refused.
    pub refused: u64,
}

impl Calls {
    /// Counts `answer` to `want`.
    pub const fn count(&mut self, want: &Want, answer: &Answer) {
        if matches!(answer, Answer::Refused(_)) {
            self.refused += 1;
            return;
        }
        match *want {
            Want::Reserve { .. } => self.reserve += 1,
            Want::Release { .. } => self.release += 1,
            Want::ReserveRange { .. } => self.reserve_range += 1,
            Want::ReleaseRange { .. } => self.release_range += 1,
            Want::Map { bytes, page, .. } => {
                self.map += 1;
                self.pages_mapped += bytes / page;
            }
            Want::Unmap { bytes, page, .. } => {
                self.unmap += 1;
                self.pages_unmapped += bytes / page;
            }
            Want::Fence { .. } => self.fence += 1,
            Want::Poll { .. } => self.poll += 1,
            Want::Wait { .. } => self.wait += 1,
            Want::Order { .. } => self.order += 1,
        }
    }

    /// PyTorch's `num_device_alloc`: one for each segment obtained and each map operation.
    #[must_use]
    pub const fn device_allocs(&self) -> u64 {
        self.reserve + self.map
    }

    /// PyTorch's `num_device_free`: one for each segment returned and each unmap operation.
    #[must_use]
    pub const fn device_frees(&self) -> u64 {
        self.release + self.unmap
    }
}

/// Whether the call may wait, for the driver or for work of the device (invariant **D3**). A fence,
/// a poll or an order never waits.
#[must_use]
pub const fn may_block(want: &Want) -> bool {
    !matches!(want, Want::Fence { .. } | Want::Poll { .. } | Want::Order { .. })
}

/// Whether `answer` is one that `want` can get. A refusal fits every want.
#[must_use]
pub const fn fits(want: &Want, answer: &Answer) -> bool {
    match answer {
        Answer::Refused(_) => true,
        Answer::Granted { .. } => matches!(want, Want::Reserve { .. } | Want::ReserveRange { .. }),
        Answer::GrantedRange { .. } => matches!(want, Want::ReserveRange { .. }),
        Answer::Released => matches!(want, Want::Release { .. } | Want::ReleaseRange { .. }),
        Answer::Mapped => matches!(want, Want::Map { .. }),
        Answer::Unmapped => matches!(want, Want::Unmap { .. }),
        Answer::Ordered => matches!(want, Want::Order { .. }),
        Answer::Fenced => matches!(want, Want::Fence { .. }),
        Answer::Passed { .. } => matches!(want, Want::Poll { .. } | Want::Wait { .. }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, fits, may_block};
    use crate::vocab::{Address, Answer, Fault, Serial, StreamId, Want};

    const MAP: Want = Want::Map { base: Address(0), bytes: 12, page: 4 };
    const POLL: Want = Want::Poll { stream: StreamId(0), newest: Serial(0) };

    #[test]
    fn an_answer_fits_its_own_want_only() {
        assert!(fits(&MAP, &Answer::Mapped));
        assert!(!fits(&MAP, &Answer::Unmapped));
        assert!(!fits(&POLL, &Answer::Fenced));
        assert!(fits(&POLL, &Answer::Refused(Fault::OutOfMemory)));
    }

    #[test]
    fn a_refusal_counts_as_nothing_else() {
        let mut calls = Calls::default();
        calls.count(&MAP, &Answer::Refused(Fault::OutOfMemory));
        assert_eq!(calls, Calls { refused: 1, ..Calls::default() });
        calls.count(&MAP, &Answer::Mapped);
        assert_eq!((calls.map, calls.pages_mapped, calls.device_allocs()), (1, 3, 1));
    }

    #[test]
    fn a_poll_never_waits() {
        assert!(!may_block(&POLL));
        assert!(may_block(&Want::Wait { stream: StreamId(0), serial: Serial(1) }));
    }
}
