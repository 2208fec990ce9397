//! Live: where what a test holds lies, so that nothing is handed out twice.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use blockyard::allocator::DeviceBuffer;
use blockyard::vocab::Address;

/// Where what is held lies: the address and the bytes of each buffer. No two may touch.
#[derive(Default)]
pub struct Live(Mutex<BTreeMap<u64, u64>>);

impl Live {
    pub fn enter(&self, address: Address, bytes: u64) {
        let mut live = self.0.lock().unwrap();
        let before = live.range(..address.0 + bytes).next_back();
        let is_free = before.is_none_or(|(start, bytes)| start + bytes <= address.0);
        assert!(is_free, "{address} with {bytes} bytes is held by two: {before:?}");
        live.insert(address.0, bytes);
    }

    pub fn leave(&self, address: Address) {
        assert!(self.0.lock().unwrap().remove(&address.0).is_some());
    }
}

/// A buffer that is known to be held.
pub struct Held {
    pub buffer: DeviceBuffer,
    pub live: Arc<Live>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.live.leave(self.buffer.address());
    }
}
