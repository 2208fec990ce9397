//! Owners: whose blocks are, by tag or stack, with bytes, number and age.
//!
//! Asked by `explain`. A block without a tag or a stack is grouped by its size, and said to be
//! without. Knows the workspaces of libraries, which live as long as the program and are no leak.

use std::collections::HashMap;

use crate::diagnosis::explain::scene::{Scene, Subject};
use crate::trace::{Event, Frame, Interner, Kind, StackId};
use crate::vocab::{Human, Ticket};

/// Workspaces that a BLAS handle takes: 8 MiB, and 8 MiB and 128 KiB on newer devices.
pub const WORKSPACES: [u64; 2] = [8 << 20, (8 << 20) + (128 << 10)];

/// One owner of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its tag, its place in the program, or the size of its blocks.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Events since its oldest block was born; nothing if it is from before the recording.
    pub oldest: Option<u32>,
    /// Events since its youngest block was born; nothing if all are from before the recording.
    pub youngest: Option<u32>,
    /// The workspace of a library.
    pub is_workspace: bool,
}

/// Where and when each live block was born.
pub(crate) struct Registry<'a> {
    subject: &'a Subject<'a>,
    now: u32,
    /// By allocation: its event, counted from 0, and its stack.
    births: HashMap<u64, (u32, StackId)>,
    /// Of blocks from before, where the end of the recording still shows them.
    before: HashMap<u64, StackId>,
}

impl<'a> Registry<'a> {
    pub fn new(subject: &'a Subject<'a>, scene: &Scene) -> Self {
        let live: std::collections::HashSet<u64> = scene
            .view
            .segments
            .iter()
            .flat_map(|segment| &segment.blocks)
            .filter(|block| block.requested > 0)
            .map(|block| block.ticket.0)
            .collect();
        let mut births = HashMap::with_capacity(live.len());
        let mut event = 0;
        for entry in &subject.trace.events {
            if event >= scene.events {
                break;
            }
            if entry.kind == Kind::Alloc && live.contains(&u64::from(entry.allocation)) {
                births.insert(u64::from(entry.allocation), (event, entry.stack));
            }
            event += u32::from(entry.kind.counts());
        }
        Self { subject, now: scene.events, births, before: before(subject, scene) }
    }

    /// Blocks by owner, the largest first.
    pub fn group(&self, blocks: impl Iterator<Item = (Ticket, u64, u64)>) -> Vec<Owner> {
        let mut groups: HashMap<(StackId, u64), Owner> = HashMap::new();
        for (ticket, bytes, requested) in blocks {
            let birth = self.births.get(&ticket.0);
            let stack = birth.map(|birth| birth.1).or_else(|| self.before.get(&ticket.0).copied());
            let stack = stack.unwrap_or_default();
            let name = name(&self.subject.recording.stacks, stack);
            let size = if name.is_empty() { requested } else { 0 };
            let age = birth.map(|birth| self.now.saturating_sub(birth.0));
            let owner = groups.entry((stack, size)).or_insert_with(|| Owner {
                is_workspace: is_workspace(&name, requested),
                name: if name.is_empty() {
                    format!("blocks of {}", Human(requested))
                } else {
                    name
                },
                bytes: 0,
                blocks: 0,
                oldest: Some(0),
                youngest: None,
            });
            owner.bytes += bytes;
            owner.blocks += 1;
            owner.oldest = owner.oldest.zip(age).map(|(a, b)| a.max(b));
            owner.youngest = match (owner.youngest, age) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let mut by_name: HashMap<String, Owner> = HashMap::new();
        for owner in groups.into_values() {
            merge(&mut by_name, owner);
        }
        let mut owners: Vec<Owner> = by_name.into_values().collect();
        owners.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        owners
    }
}

/// The tag, else the innermost frame of the program's own Python, else what the recording calls it.
fn name(stacks: &Interner, id: StackId) -> String {
    let Some(stack) = stacks.stacks.get(id.0 as usize) else { return String::new() };
    if stack.tag.is_empty() {
        let frames = stack.frames.iter().filter_map(|&frame| stacks.frames.get(frame as usize));
        let own = |frame: &&Frame| {
            frame.file.ends_with(".py")
                && !frame.file.contains("site-packages/")
                && !frame.file.contains("dist-packages/")
                && !frame.file.starts_with("torch/")
        };
        if let Some(frame) = frames.into_iter().find(own) {
            return format!("{} ({}:{})", frame.name, frame.file, frame.line);
        }
    }
    stacks.label(id)
}

/// Stacks that differ only further out have one name.
fn merge(owners: &mut HashMap<String, Owner>, owner: Owner) {
    match owners.get_mut(&owner.name) {
        None => {
            owners.insert(owner.name.clone(), owner);
        }
        Some(known) => {
            known.bytes += owner.bytes;
            known.blocks += owner.blocks;
            known.oldest = known.oldest.zip(owner.oldest).map(|(a, b)| a.max(b));
            known.youngest = match (known.youngest, owner.youngest) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            known.is_workspace &= owner.is_workspace;
        }
    }
}

/// Whether a block looks like the workspace of a library: by its place, or by a size that nothing
/// else has.
#[must_use]
pub fn is_workspace(name: &str, requested: u64) -> bool {
    let lower = name.to_ascii_lowercase();
    let named = ["blas", "workspace", "cudnn_handle"].iter().any(|word| lower.contains(word));
    (named && WORKSPACES.contains(&requested))
        || (name.is_empty() && requested == WORKSPACES[1])
        || (named && lower.contains("handle"))
}

/// Stacks of blocks from before the recording that live to its end.
fn before(subject: &Subject<'_>, scene: &Scene) -> HashMap<u64, StackId> {
    if scene.warm.segments.is_empty() {
        return HashMap::new();
    }
    let born = |event: &&Event| event.kind == Kind::Alloc;
    let reused: std::collections::HashSet<u64> =
        subject.trace.events.iter().filter(born).map(|event| event.address).collect();
    let ends = subject.trace.segments.iter().flat_map(|segment| &segment.blocks);
    let stacks: HashMap<u64, StackId> = ends
        .filter(|block| !reused.contains(&block.address))
        .map(|block| (block.address, block.stack))
        .collect();
    let blocks = scene.warm.segments.iter().flat_map(|segment| &segment.live);
    blocks.filter_map(|block| Some((block.ticket.0, *stacks.get(&block.address)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_known_by_place_or_by_a_size_of_its_own() {
        assert!(is_workspace("", 8_519_680));
        assert!(is_workspace("cublasCreate (handle.cpp:12)", 8_519_680));
        assert!(is_workspace("getCurrentCUDABlasHandle", 8 << 20));
        assert!(!is_workspace("", 8 << 20), "a common size");
        assert!(!is_workspace("forward (model.py:3)", 8 << 20));
        assert!(!is_workspace("forward (model.py:3)", 8_519_680));
    }
}
