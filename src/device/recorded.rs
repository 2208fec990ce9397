//! Recorded: a device that answers from a recording.
//!
//! For each request the replay lays out what the recording's driver did while it was served ([`Deed`]s in order).
//! A growth is granted where the recording has one next, at the recorded address; where the recording has a
//! release next instead, the driver had refused, and so does this. What the engine releases must be what the
//! recording released: the order inside one group is not compared. Every disagreement is kept, and the answer
//! is then one that lets the replay go on.
//!
//! A *complete* recording also tells of ranges and of fences. Then a growth that it does not have was refused,
//! and a wait that stands before the next growth says that the driver had refused till then.

use std::collections::BTreeMap;

use super::contract::{Calls, Device};
use crate::vocab::{Address, Answer, Fault, Serial, StreamId, UNIT, Want};

/// One thing the recording's driver did. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A segment was granted.
    Segment {
        /// Where.
        base: u64,
        /// Its size.
        bytes: u64,
    },
    /// A segment was given back.
    SegmentGone {
        /// Where.
        base: u64,
        /// Its size.
        bytes: u64,
    },
    /// Pages were mapped.
    Pages {
        /// Where.
        base: u64,
        /// Their size together.
        bytes: u64,
    },
    /// Pages were unmapped.
    PagesGone {
        /// Where.
        base: u64,
        /// Their size together.
        bytes: u64,
    },
    /// Addresses for pages were granted.
    Range {
        /// Where.
        base: u64,
        /// How many.
        bytes: u64,
    },
    /// Addresses for pages were given back.
    RangeGone {
        /// Where.
        base: u64,
        /// How many.
        bytes: u64,
    },
    /// A stream was asked, or waited for.
    Passed {
        /// The stream.
        stream: StreamId,
        /// How many of its fences had not passed.
        behind: u64,
    },
}

impl Deed {
    const fn is_release(&self) -> bool {
        matches!(self, Self::SegmentGone { .. } | Self::PagesGone { .. } | Self::RangeGone { .. })
    }

    const fn is_passed(&self) -> bool {
        matches!(self, Self::Passed { .. })
    }
}

/// Where the engine and the recording disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// What the recording has.
    pub expected: String,
    /// What the engine did.
    pub got: String,
}

/// Answers from a recording.
#[derive(Clone, Debug, Default)]
pub struct RecordedDevice {
    deeds: Vec<Deed>,
    at: usize,
    /// After the deeds the driver refused for good: the request failed.
    ends_refused: bool,
    /// Ends of address ranges by their start: no range granted reaches beyond its own.
    range_ends: Vec<(u64, u64)>,
    total: Option<u64>,
    disagreement: Option<Disagreement>,
    elsewhere: u64,
    /// What is granted and not given back: base -> end. A recording may be wrong; two grants never overlap (D1).
    held: BTreeMap<u64, u64>,
    passed: BTreeMap<StreamId, Serial>,
    /// The recording tells of ranges and fences.
    complete: bool,
    /// The newest fence of each stream.
    fenced: BTreeMap<StreamId, Serial>,
    calls: Calls,
}

/// Where memory goes that the recording did not have: far above any real address.
const ELSEWHERE: u64 = 1 << 60;

impl RecordedDevice {
    /// A device of `total` bytes if known, whose address ranges are these (start, end) pairs by start.
    #[must_use]
    pub fn new(total: Option<u64>, range_ends: Vec<(u64, u64)>) -> Self {
        Self { total, range_ends, elsewhere: ELSEWHERE, ..Self::default() }
    }

    /// The same, of a recording that is complete or not.
    #[must_use]
    pub fn complete(self, complete: bool) -> Self {
        Self { complete, ..self }
    }

    /// Lays out what the driver did while the next request was served; `ends_refused`: it failed in the end.
    pub fn lay_out(&mut self, deeds: impl IntoIterator<Item = Deed>, ends_refused: bool) {
        self.ends_refused = ends_refused;
        self.deeds.clear();
        // A stream is asked about fences from before the recording too, of which nothing is known here.
        let (fenced, passed) = (&self.fenced, &self.passed);
        let asked = |deed: &Deed| match deed {
            Deed::Passed { stream, .. } => fenced
                .get(stream)
                .is_some_and(|newest| passed.get(stream).is_none_or(|p| p < newest)),
            _ => true,
        };
        self.deeds.extend(deeds.into_iter().filter(asked));
        self.at = 0;
    }

    /// Deeds of the layout that the engine did not ask for count as a disagreement; then the first one since
    /// the layout, if any.
    pub fn settle(&mut self) -> Option<Disagreement> {
        if let Some(deed) = self.deeds[self.at..].iter().find(|deed| !deed.is_passed()) {
            let expected = format!("{deed:x?}");
            self.disagree(expected, "nothing of the kind".into());
        }
        self.deeds.clear();
        self.at = 0;
        self.disagreement.take()
    }

    /// The recording says that all fences of `stream` so far have passed; polls find them from now on.
    pub fn pass(&mut self, stream: StreamId, through: Serial) {
        self.passed.insert(stream, through);
    }

    fn disagree(&mut self, expected: String, got: String) {
        self.disagreement.get_or_insert(Disagreement { expected, got });
    }

    fn next(&self) -> Option<Deed> {
        self.deeds.get(self.at).copied()
    }

    /// Takes the stretch, unless it is off the units or some of it is taken.
    pub fn hold(&mut self, base: u64, bytes: u64) -> bool {
        let whole = base.is_multiple_of(UNIT) && bytes > 0 && self.room_at(base, bytes) == bytes;
        if whole {
            self.held.insert(base, base + bytes);
        }
        whole
    }

    /// How many of the `bytes` from `base` on nobody holds, up to the first that somebody does.
    fn room_at(&self, base: u64, bytes: u64) -> u64 {
        let before = self.held.range(..=base).next_back();
        if before.is_some_and(|(_, &end)| end > base) {
            return 0;
        }
        let next = self.held.range(base..).next().map_or(u64::MAX, |(&start, _)| start);
        bytes.min(next - base)
    }

    fn somewhere_else(&mut self, bytes: u64) -> Answer {
        while let Some(end) = self.elsewhere.checked_add(bytes) {
            let base = self.elsewhere;
            self.elsewhere = end.checked_next_multiple_of(2 << 20).unwrap_or(u64::MAX);
            if self.hold(base, bytes) {
                return Answer::Granted { base: Address(base) };
            }
        }
        Answer::Refused(Fault::OutOfMemory)
    }

    /// Whether the driver refuses what is asked of it now: what comes next shows that it gave nothing.
    fn refuses(&self) -> bool {
        self.next().map_or(self.ends_refused, |deed| deed.is_release() || deed.is_passed())
    }

    /// How many fences of a stream had not passed when it was asked, if the recording tells.
    fn behind(&mut self, stream: StreamId) -> Option<u64> {
        let asked = self.deeds[self.at..].iter().take_while(|deed| deed.is_passed());
        let place = asked.enumerate().find_map(|(place, deed)| match *deed {
            Deed::Passed { stream: other, behind } if other == stream => Some((place, behind)),
            _ => None,
        });
        let (place, behind) = place?;
        self.deeds.remove(self.at + place);
        Some(behind)
    }

    fn poll(&mut self, stream: StreamId, newest: Serial) -> Answer {
        if let Some(behind) = self.behind(stream) {
            let through = Serial(newest.0.saturating_sub(behind));
            let known = self.passed.entry(stream).or_default();
            *known = through.max(*known);
        }
        Answer::Passed { through: self.passed.get(&stream).copied().unwrap_or_default() }
    }

    fn reserve(&mut self, bytes: u64) -> Answer {
        match self.next() {
            Some(Deed::Segment { base, bytes: recorded })
                if recorded == bytes && self.hold(base, bytes) =>
            {
                self.at += 1;
                Answer::Granted { base: Address(base) }
            }
            // The least was asked for after this had been refused.
            Some(Deed::Segment { bytes: less, .. }) if self.complete && less < bytes => {
                Answer::Refused(Fault::OutOfMemory)
            }
            _ if self.refuses() => Answer::Refused(Fault::OutOfMemory),
            other => {
                self.at += usize::from(other.is_some());
                let expected = other.map_or("no driver call".into(), |deed| format!("{deed:x?}"));
                self.disagree(expected, format!("a segment of {bytes} bytes asked for"));
                self.somewhere_else(bytes)
            }
        }
    }

    fn reserve_range(&mut self, bytes: u64, page: u64) -> Answer {
        let (base, most) = match self.next() {
            Some(Deed::Range { base, bytes: given }) => {
                self.at += 1;
                (base, bytes.min(given))
            }
            Some(Deed::Pages { base, .. }) => {
                let ends = &self.range_ends;
                let end = ends.iter().find(|&&(start, _)| start == base).map(|&(_, end)| end);
                (base, end.map_or(bytes, |end| bytes.min(end - base)))
            }
            next if self.refuses() && (self.complete || next.is_some()) => {
                return Answer::Refused(Fault::OutOfMemory);
            }
            _ => return self.somewhere_else(bytes),
        };
        let room = self.room_at(base, most) / page * page;
        if !self.hold(base, room) {
            return self.somewhere_else(bytes);
        }
        let base = Address(base);
        if room < bytes {
            Answer::GrantedRange { base, bytes: room }
        } else {
            Answer::Granted { base }
        }
    }

    fn map(&mut self, base: u64, bytes: u64) -> Answer {
        match self.next() {
            Some(Deed::Pages { base: at, bytes: recorded }) if (at, recorded) == (base, bytes) => {
                self.at += 1;
                Answer::Mapped
            }
            _ if self.refuses() => Answer::Refused(Fault::OutOfMemory),
            other => {
                self.at += usize::from(other.is_some());
                let expected = other.map_or("no driver call".into(), |deed| format!("{deed:x?}"));
                self.disagree(expected, format!("pages at {base:#x}, {bytes} bytes, asked for"));
                Answer::Mapped
            }
        }
    }

    /// Takes `deed` out of the group of releases that comes next.
    fn release(&mut self, deed: Deed) {
        self.at += self.deeds[self.at..].iter().take_while(|deed| deed.is_passed()).count();
        let group = self.deeds[self.at..].iter().take_while(|deed| deed.is_release()).count();
        let place = self.deeds[self.at..self.at + group].iter().position(|other| *other == deed);
        match place {
            Some(place) => {
                self.deeds.swap(self.at, self.at + place);
                self.at += 1;
            }
            None => self.disagree("kept".into(), format!("{deed:x?}")),
        }
    }
}

impl Device for RecordedDevice {
    fn perform(&mut self, want: Want) -> Answer {
        let answer = match want {
            Want::Reserve { bytes } => self.reserve(bytes),
            Want::ReserveRange { bytes, page } => self.reserve_range(bytes, page.max(1)),
            Want::Map { base, bytes, .. } => self.map(base.0, bytes),
            Want::Release { base, bytes } => {
                self.held.remove(&base.0);
                self.release(Deed::SegmentGone { base: base.0, bytes });
                Answer::Released
            }
            Want::Unmap { base, bytes, .. } => {
                self.release(Deed::PagesGone { base: base.0, bytes });
                Answer::Unmapped
            }
            Want::ReleaseRange { base, bytes } => {
                self.held.remove(&base.0);
                if self.complete {
                    self.release(Deed::RangeGone { base: base.0, bytes });
                }
                Answer::Released
            }
            Want::Fence { stream, serial } => {
                self.fenced.insert(stream, serial);
                Answer::Fenced
            }
            Want::Order { .. } => Answer::Ordered,
            Want::Poll { stream, newest } => self.poll(stream, newest),
            Want::Wait { stream, serial } => {
                self.behind(stream);
                self.passed.insert(stream, serial);
                Answer::Passed { through: serial }
            }
        };
        self.calls.count(&want, &answer);
        answer
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn free(&self) -> Option<u64> {
        None
    }

    fn granularity(&self) -> u64 {
        UNIT
    }

    fn page_mapping(&self) -> bool {
        true
    }

    fn nanos(&self) -> u64 {
        0
    }

    fn calls(&self) -> Calls {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_is_refused_while_the_recording_has_releases_first() {
        let mut device = RecordedDevice::new(None, Vec::new());
        let (gone, granted) = (
            Deed::SegmentGone { base: 512, bytes: 1024 },
            Deed::Segment { base: 4096, bytes: 2048 },
        );
        device.lay_out([gone, granted], false);
        let reserve = Want::Reserve { bytes: 2048 };
        assert_eq!(device.perform(reserve), Answer::Refused(Fault::OutOfMemory));
        device.perform(Want::Release { base: Address(512), bytes: 1024 });
        assert_eq!(device.perform(reserve), Answer::Granted { base: Address(4096) });
        assert_eq!(device.settle(), None);
    }

    /// D1, whatever the recording says.
    #[test]
    fn what_is_held_is_not_granted_again() {
        let mut device = RecordedDevice::new(None, Vec::new());
        assert!(device.hold(4096, 4096));
        for base in [2048, 4096, 7680, 8191] {
            device.lay_out([Deed::Segment { base, bytes: 4096 }], false);
            let answer = device.perform(Want::Reserve { bytes: 4096 });
            assert!(matches!(answer, Answer::Granted { base } if base.0 >= ELSEWHERE));
            assert!(device.settle().is_some(), "and it is told");
        }
        device.lay_out([Deed::Pages { base: 1024, bytes: 512 }], false);
        let range = device.perform(Want::ReserveRange { bytes: 8192, page: 512 });
        assert_eq!(range, Answer::GrantedRange { base: Address(1024), bytes: 3072 });
        device.perform(Want::Release { base: Address(4096), bytes: 4096 });
        assert!(device.hold(4096, 4096));
        assert!(device.hold(u64::MAX - 511, 511), "up to the end");
        assert_eq!(device.somewhere_else(u64::MAX), Answer::Refused(Fault::OutOfMemory));
    }

    #[test]
    fn what_was_not_recorded_and_what_was_not_done_are_told() {
        let mut device = RecordedDevice::new(None, Vec::new());
        device.lay_out([Deed::SegmentGone { base: 512, bytes: 1024 }], false);
        assert!(device.settle().is_some_and(|d| d.got.contains("nothing")));
        device.lay_out([Deed::Segment { base: 512, bytes: 1024 }], false);
        device.perform(Want::Reserve { bytes: 4096 });
        assert!(device.settle().is_some_and(|d| d.got.contains("4096")));
        device.perform(Want::Release { base: Address(0), bytes: 1 });
        assert!(device.settle().is_some());
        device.lay_out([Deed::SegmentGone { base: 512, bytes: 1024 }], true);
        device.perform(Want::Release { base: Address(512), bytes: 1024 });
        let last = device.perform(Want::Reserve { bytes: 4096 });
        assert_eq!(last, Answer::Refused(Fault::OutOfMemory), "the request failed in the end");
        assert_eq!(device.settle(), None);
    }
}
