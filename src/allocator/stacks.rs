//! Stacks: where in the program a request was made.
//!
//! Owns the call stacks of the process, each kept once as instruction pointers, so a block carries
//! one number. Captured and interned before the core's lock is taken; turned into names only when
//! somebody asks. Without feature `stacks` there are none, and nothing is captured.
//!
//! Intended for hunts, not for every day: a capture walks the stack, which costs microseconds.

pub use crate::vocab::CallStackId;

#[cfg(feature = "stacks")]
pub(crate) use kept::capture;

impl CallStackId {
    /// The frames, innermost first, without those of the allocator itself. Looks names up, which
    /// may read the program's debug information: milliseconds the first time. Empty for
    /// [`CallStackId::NONE`].
    #[must_use]
    pub fn frames(self) -> Vec<crate::vocab::Frame> {
        #[cfg(feature = "stacks")]
        return kept::frames(self);
        #[cfg(not(feature = "stacks"))]
        Vec::new()
    }
}

#[cfg(feature = "stacks")]
mod kept {
    use std::collections::HashMap;
    use std::sync::{Arc, OnceLock, PoisonError, RwLock};

    use super::CallStackId;
    use crate::vocab::Frame;

    /// More different stacks than this are not kept: what comes later has none.
    const MOST: usize = 1 << 20;

    /// No stack is deeper, whatever the configuration says.
    const DEEPEST: usize = 128;

    #[derive(Default)]
    struct Stacks {
        by_id: Vec<Arc<[usize]>>,
        ids: HashMap<Arc<[usize]>, CallStackId>,
    }

    fn stacks() -> &'static RwLock<Stacks> {
        static STACKS: OnceLock<RwLock<Stacks>> = OnceLock::new();
        STACKS.get_or_init(RwLock::default)
    }

    /// The present call stack, at most `depth` frames, the allocator's own included.
    #[inline(never)]
    pub(crate) fn capture(depth: usize) -> CallStackId {
        let (mut pointers, mut count) = ([0; DEEPEST], 0);
        let depth = depth.min(DEEPEST);
        backtrace::trace(|frame| {
            if let Some(place) = pointers[..depth].get_mut(count) {
                *place = frame.ip() as usize;
                count += 1;
            }
            count < depth
        });
        intern(&pointers[..count])
    }

    fn intern(pointers: &[usize]) -> CallStackId {
        if pointers.is_empty() {
            return CallStackId::NONE;
        }
        let known =
            stacks().read().unwrap_or_else(PoisonError::into_inner).ids.get(pointers).copied();
        known.unwrap_or_else(|| keep(pointers))
    }

    #[cold]
    fn keep(pointers: &[usize]) -> CallStackId {
        let mut stacks = stacks().write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = stacks.ids.get(pointers) {
            return id;
        }
        if stacks.by_id.len() >= MOST {
            return CallStackId::NONE;
        }
        let kept: Arc<[usize]> = pointers.into();
        stacks.by_id.push(Arc::clone(&kept));
        let id = CallStackId(stacks.by_id.len() as u32);
        stacks.ids.insert(kept, id);
        id
    }

    pub(super) fn frames(id: CallStackId) -> Vec<Frame> {
        let Some(place) = (id.0 as usize).checked_sub(1) else { return Vec::new() };
        let pointers = {
            let stacks = stacks().read().unwrap_or_else(PoisonError::into_inner);
            let Some(pointers) = stacks.by_id.get(place) else { return Vec::new() };
            Arc::clone(pointers)
        };
        let named = pointers.iter().flat_map(|&pointer| named(pointer)).collect();
        without_ours(named)
    }

    /// Without the frames of the unwinder and of this room, which are the innermost. With debug
    /// information they are known by their files, else by their names.
    pub(super) fn without_ours(frames: Vec<Frame>) -> Vec<Frame> {
        let here = frames.iter().position(|frame| frame.file.ends_with(file!()));
        let room = here.and_then(|at| frames[at].file.strip_suffix("stacks.rs")).map(str::to_owned);
        let ours = |(at, frame): &(usize, Frame)| match (here, &room) {
            (Some(here), Some(room)) => *at <= here || frame.file.starts_with(room),
            _ => is_ours(&frame.name),
        };
        frames.into_iter().enumerate().skip_while(ours).map(|(_, frame)| frame).collect()
    }

    /// The functions at an instruction pointer: several where some were inlined.
    fn named(pointer: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        backtrace::resolve(pointer as *mut _, |symbol| {
            let name = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
            let file = symbol.filename().map(|file| file.display().to_string());
            let line = symbol.lineno().unwrap_or(0);
            frames.push(Frame { name, file: file.unwrap_or_default(), line });
        });
        if frames.is_empty() {
            frames.push(Frame { name: format!("{pointer:#x}"), file: String::new(), line: 0 });
        }
        frames
    }

    /// Whether a function is the allocator's or the unwinder's.
    fn is_ours(name: &str) -> bool {
        let name = name.trim_start_matches('<');
        let rooms = ["blockyard::allocator::", "backtrace::", "_Unwind_Backtrace"];
        rooms.iter().any(|room| name.starts_with(room))
    }
}

#[cfg(all(test, feature = "stacks", not(loom)))]
mod tests {
    use super::*;

    #[inline(never)]
    fn somewhere(depth: usize) -> CallStackId {
        capture(depth)
    }

    #[test]
    fn the_allocators_own_frames_are_left_out_with_and_without_files() {
        let frame = |name: &str, file: &str| crate::vocab::Frame {
            name: name.into(),
            file: file.into(),
            line: 1,
        };
        let user = [frame("train", "net/src/allocator/x.rs"), frame("main", "")];
        let filed = [
            frame("trace", "backtrace/mod.rs"),
            frame("capture", &format!("x/{}", file!())),
            frame("alloc", &format!("x/{}", file!().replace("stacks", "stream"))),
        ];
        let named = [
            frame("backtrace::backtrace::trace", ""),
            frame("<blockyard::allocator::stream::Stream>::alloc", ""),
        ];
        for ours in [&filed[..], &named[..]] {
            assert_eq!(kept::without_ours([ours, &user].concat()), user);
        }
    }

    #[test]
    fn one_place_has_one_number_and_a_name() {
        let mut places = [CallStackId::NONE; 3];
        // One place in the code, however loops are unrolled.
        let mut left = std::hint::black_box(2);
        while left > 0 {
            left = std::hint::black_box(left - 1);
            places[left] = somewhere(64);
        }
        places[2] = somewhere(64);
        assert_eq!(places[0], places[1]);
        assert_ne!(places[0], places[2]);
        assert_eq!(somewhere(0), CallStackId::NONE);
        assert_eq!(CallStackId::NONE.frames(), []);
        assert_eq!(CallStackId(u32::MAX).frames(), []);
    }
}
