//! Peers: contenders whose builds are long, behind the feature `peers`.
//!
//! | contender | rule | statistics | touches the memory |
//! |---|---|---|---|
//! | [`Cubecl`] | cubecl's memory manager as it comes (adaptive pools), over host bytes | few, on demand | no |
//! | [`Mimalloc`] | size classes in pages of the process's own memory | none | where its lists run through free blocks |

use std::sync::Arc;

use blockyard::vocab::UNIT;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ErrorGraph, ManagedMemoryHandle, MemoryConfiguration, MemoryManagement,
    MemoryManagementOptions, PageUpdate,
};
use cubecl_server::storage::BytesStorage;

use crate::contenders::{Contender, Spec};

/// The memory manager of `cubecl`, its default configuration. Its handles free when they are
/// dropped; a block here is the place of its handle.
pub struct Cubecl {
    manager: MemoryManagement<BytesStorage>,
    failures: ErrorGraph,
    handles: Vec<Option<ManagedMemoryHandle>>,
    places: Vec<u32>,
}

impl Contender for Cubecl {
    type Block = u32;
    const NAME: &'static str = "cubecl-server";

    fn new(spec: Spec) -> Self {
        let properties = MemoryDeviceProperties::new(4 * spec.bytes, UNIT);
        let manager = MemoryManagement::from_configuration(
            BytesStorage::default(),
            &properties,
            MemoryConfiguration::default(),
            Arc::new(ServerLogger::default()),
            MemoryManagementOptions::new("bench"),
        );
        Self { manager, failures: ErrorGraph::default(), handles: Vec::new(), places: Vec::new() }
    }

    fn alloc(&mut self, bytes: u64) -> u32 {
        let handle = self.manager.reserve(bytes, PageUpdate::Allow, &mut self.failures);
        let handle = Some(handle.expect("the range holds the work"));
        match self.places.pop() {
            Some(place) => {
                self.handles[place as usize] = handle;
                place
            }
            None => {
                self.handles.push(handle);
                self.handles.len() as u32 - 1
            }
        }
    }

    fn free(&mut self, block: u32) {
        self.handles[block as usize] = None;
        self.places.push(block);
    }
}

/// The allocator `mimalloc`: memory of the process, so its pages are real.
#[derive(Debug)]
pub struct Mimalloc;

impl Contender for Mimalloc {
    type Block = usize;
    const NAME: &'static str = "mimalloc";

    fn new(_: Spec) -> Self {
        Self
    }

    #[inline]
    fn alloc(&mut self, bytes: u64) -> usize {
        // SAFETY: any size may be asked for.
        #[allow(unsafe_code)]
        let block = unsafe { libmimalloc_sys::mi_malloc(bytes.next_multiple_of(UNIT) as usize) };
        assert!(!block.is_null(), "the process has the memory");
        block as usize
    }

    #[inline]
    fn free(&mut self, block: usize) {
        // SAFETY: `block` came from `alloc`, and each is freed once.
        #[allow(unsafe_code)]
        unsafe {
            libmimalloc_sys::mi_free(block as *mut _);
        }
    }
}
