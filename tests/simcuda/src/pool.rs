//! Pool: stream-ordered allocation, as accounts rather than as an allocator.
//!
//! Each allocation has addresses of its own. What a pool keeps after a free is capacity: up to its
//! threshold when a stream, an event or a context is waited for, all of it until then.

use crate::code::{self, Code, Done};
use crate::memory::Region;
use crate::world::World;
use std::collections::BTreeMap;

/// A pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    pub device: usize,
    pub default: bool,
    pub threshold: u64,
    pub most: u64,
    pub reserved: u64,
    pub reserved_high: u64,
    pub used: u64,
    pub used_high: u64,
    pub reuse: [i32; 3],
}

/// All pools, and which is whose default and current.
#[derive(Default)]
pub struct Pools {
    pub pools: BTreeMap<u64, Pool>,
    pub defaults: Vec<u64>,
    pub current: Vec<u64>,
}

impl Pools {
    pub fn get(&self, handle: u64) -> Result<&Pool, Code> {
        self.pools.get(&handle).ok_or(code::INVALID_VALUE)
    }

    pub fn get_mut(&mut self, handle: u64) -> Result<&mut Pool, Code> {
        self.pools.get_mut(&handle).ok_or(code::INVALID_VALUE)
    }
}

impl World {
    pub fn make_default_pools(&mut self) {
        for device in 0..self.config.devices {
            let pool = self.make_pool(device, 0, true);
            self.pools.defaults.push(pool);
            self.pools.current.push(pool);
        }
    }

    pub fn make_pool(&mut self, device: usize, most: u64, default: bool) -> u64 {
        let handle = self.handle();
        let pool = Pool { device, default, most, reuse: [1; 3], ..Pool::default() };
        self.pools.pools.insert(handle, pool);
        handle
    }

    /// Memory from a pool, from the moment of the call.
    pub fn allocate_from(&mut self, pool: u64, bytes: u64, context: u64) -> Result<u64, Code> {
        let charged = self.memory.charged(bytes)?;
        let known = self.pools.get(pool)?.clone();
        let used = known.used.checked_add(charged).ok_or(code::OUT_OF_MEMORY)?;
        if known.most > 0 && used > known.most {
            return Err(code::OUT_OF_MEMORY);
        }
        let more = used.saturating_sub(known.reserved);
        self.charge_pressed(known.device, more)?;
        let number = self.memory.number();
        let region = Region {
            bytes,
            charged,
            device: known.device,
            context,
            pool,
            managed: false,
            number,
            graph: 0,
            doomed: false,
        };
        let address = self.memory.place(region).inspect_err(|_| {
            self.memory.discharge(known.device, more);
        })?;
        let pool = self.pools.get_mut(pool)?;
        pool.used = used;
        pool.reserved = pool.reserved.max(used);
        pool.used_high = pool.used_high.max(used);
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        Ok(address)
    }

    /// Takes capacity; if there is none left, what pools keep goes back first.
    pub fn charge_pressed(&mut self, device: usize, bytes: u64) -> Done {
        if self.memory.charge(device, bytes).is_ok() {
            return Ok(());
        }
        self.trim_pools(device, true);
        self.memory.charge(device, bytes)
    }

    /// The work of a stream-ordered free.
    pub fn free_from_pool(&mut self, address: u64) {
        self.free(address);
    }

    /// Frees an allocation of any kind.
    pub fn free(&mut self, address: u64) {
        let Some(region) = self.memory.displace(address) else { return };
        match self.pools.pools.get_mut(&region.pool) {
            Some(pool) => pool.used = pool.used.saturating_sub(region.charged),
            None => self.memory.discharge(region.device, region.charged),
        }
    }

    /// Pools of a device give back what they keep above their threshold, or above what is in use.
    pub fn trim_pools(&mut self, device: usize, hard: bool) {
        let handles: Vec<u64> = self.pools.pools.keys().copied().collect();
        for handle in handles {
            let Ok(pool) = self.pools.get(handle) else { continue };
            let keep = if hard { 0 } else { pool.threshold };
            if pool.device == device {
                self.trim_pool(handle, keep);
            }
        }
    }

    /// One pool keeps at most `keep` bytes, or what is in use if that is more.
    pub fn trim_pool(&mut self, handle: u64, keep: u64) {
        let Ok(pool) = self.pools.get_mut(handle) else { return };
        let reserved = pool.reserved.min(pool.used.max(keep));
        let (device, spare) = (pool.device, pool.reserved - reserved);
        pool.reserved = reserved;
        self.memory.discharge(device, spare);
    }
}
