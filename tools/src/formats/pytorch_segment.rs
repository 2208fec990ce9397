//! PyTorch's segments: the final state in a snapshot, segment by segment and block by block.
//!
//! Old snapshots do not say where blocks start, nor what the client asked for; both are worked out
//! here.

use blockyard::trace::{FinalBlock, FinalSegment, StackId};
use blockyard::vocab::{BlockState, Class, PoolId, StreamId};

use super::error::Wrong;
use super::pytorch::{Builder, device_number};
use super::tree::Tree;

impl Builder {
    /// One segment of the final state.
    pub fn segment<T: Tree>(&mut self, value: T) -> Result<(), Wrong> {
        let what = "segment";
        if !value.is_dict() {
            return Err(value.wrong("a segment", "a dict with address, total_size and blocks"));
        }
        self.claim(value, "a segment")?;
        let missing = |key: &str| value.at(Wrong::new(format!("a segment without {key}"), key));
        let need = |key: &str| value.natural_at(key, what)?.ok_or_else(|| missing(key));
        let (address, bytes) = (need("address")?, need("total_size")?);
        if address.checked_add(bytes).is_none() {
            let wrong =
                Wrong::new("a segment beyond the end of memory", "address + total_size < 2^64");
            return Err(value.at(wrong));
        }
        let device = device_number(value.natural_at("device", what)?.unwrap_or(0))
            .map_err(|wrong| value.at(wrong))?;
        let at = |wrong| value.at(wrong);
        let mut segment = FinalSegment {
            address,
            bytes,
            stream: StreamId(0),
            pool: PoolId(0),
            class: class_of(value)?,
            expandable: value.get("is_expandable").and_then(T::bool).unwrap_or(false),
            range: None,
            order: 0,
            stack: StackId(0),
            blocks: Vec::new(),
        };
        if let Some(stream) = value.get("stream") {
            segment.stream = self.stream(stream, "segment: stream").map_err(at)?;
        }
        if let Some(pool) = value.get("segment_pool_id") {
            segment.pool = self.pool(pool, "segment: segment_pool_id").map_err(at)?;
        }
        if let Some(frames) = value.get("frames") {
            segment.stack = self.stack(frames).map_err(at)?;
        }
        let blocks = value.get("blocks").ok_or_else(|| missing("blocks"))?;
        self.blocks(blocks, &mut segment).map_err(at)?;
        self.segments.push((device, segment));
        Ok(())
    }

    /// The blocks of a segment; old snapshots do not say where they start.
    fn blocks<T: Tree>(&mut self, value: T, segment: &mut FinalSegment) -> Result<(), Wrong> {
        let items = value.list("segment: blocks")?;
        if !items.is_empty() {
            self.claim(value, "a list of blocks")?;
        }
        let end = segment.address + segment.bytes;
        let mut next = segment.address;
        segment.blocks.reserve_exact(items.len());
        for item in items {
            let block = self.block(item, next).map_err(|wrong| value.at(wrong))?;
            if block.address != next {
                self.uneven.get_or_insert(segment.address);
            }
            let inside = block.address.checked_add(block.bytes).filter(|&to| to <= end);
            next = inside.filter(|_| block.address >= segment.address).ok_or_else(|| {
                item.at(Wrong::new("a block that reaches out of its segment", "blocks inside it"))
            })?;
            segment.blocks.push(block);
        }
        Ok(())
    }

    fn block<T: Tree>(&mut self, value: T, next: u64) -> Result<FinalBlock, Wrong> {
        let what = "block";
        if !value.is_dict() {
            return Err(value.wrong("a block", "a dict with size and state"));
        }
        self.claim(value, "a block")?;
        let bytes = value
            .natural_at("size", what)?
            .ok_or_else(|| value.at(Wrong::new("a block without size", "size")))?;
        let state = state_of(value)?;
        let history = value.get("history").and_then(T::items).unwrap_or_default();
        let newest = history.first().copied();
        let real = newest.map_or(Ok(None), |newest| newest.natural_at("real_size", "history"))?;
        let requested = value.natural_at("requested_size", what)?.or(real).unwrap_or(match state {
            BlockState::Free => 0,
            _ => bytes,
        });
        let frames = value.get("frames").or_else(|| newest.and_then(|newest| newest.get("frames")));
        let stack = frames.map_or(Ok(StackId(0)), |frames| self.stack(frames));
        Ok(FinalBlock {
            address: value.natural_at("address", what)?.unwrap_or(next),
            bytes,
            requested,
            state,
            stack: stack.map_err(|wrong| value.at(wrong))?,
        })
    }
}

fn class_of<T: Tree>(segment: T) -> Result<Class, Wrong> {
    let Some(value) = segment.get("segment_type") else { return Ok(Class::Large) };
    match value.text().as_deref() {
        Some("small") => Ok(Class::Small),
        Some("large") => Ok(Class::Large),
        Some(other) => {
            let found = format!("segment_type `{other}`");
            Err(segment.at(Wrong::new(found, "small or large")))
        }
        None => Err(segment.at(value.wrong("segment: segment_type", "small or large"))),
    }
}

fn state_of<T: Tree>(block: T) -> Result<BlockState, Wrong> {
    let expected = "active_allocated, active_pending_free (or active_awaiting_free) or inactive";
    let state = block.get("state").and_then(T::text);
    match state.as_deref() {
        Some("active_allocated") => Ok(BlockState::Allocated),
        Some("active_pending_free" | "active_awaiting_free") => Ok(BlockState::AwaitingFree),
        Some("inactive") => Ok(BlockState::Free),
        Some(other) => Err(block.at(Wrong::new(format!("block state `{other}`"), expected))),
        None => Err(block.at(Wrong::new("a block without a state", expected))),
    }
}
