//! Memory: who holds which bytes of which device.
//!
//! Owns allocations, host memory the driver knows, and each device's capacity; VMM lies in
//! [`crate::vmm`]. Asked by the entry points and, before each piece of work, by the workers.

use crate::code::{self, Code, Done};
use crate::space::{PAGE, Space, round_up};
use crate::vmm::Vmm;
use std::collections::BTreeMap;

/// Memory of one allocating call.
#[derive(Clone, Debug)]
pub struct Region {
    pub bytes: u64,
    pub charged: u64,
    pub device: usize,
    pub context: u64,
    /// The pool it came from, 0 for none.
    pub pool: u64,
    pub managed: bool,
    pub number: u64,
    /// The graph it belongs to, 0 for none.
    pub graph: u64,
    /// A stream-ordered free of it is queued.
    pub doomed: bool,
}

/// The addresses that so many bytes take, with a page behind them that nobody may touch.
fn held(bytes: u64) -> Option<u64> {
    round_up(bytes, PAGE)?.checked_add(PAGE)
}

/// Memory of the host that the driver knows.
#[derive(Clone, Debug)]
pub struct Host {
    pub bytes: u64,
    pub flags: u32,
    /// Allocated here, not registered.
    pub ours: bool,
    pub context: u64,
    pub number: u64,
}

/// What a device has, and how much of it is taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacity {
    pub total: u64,
    pub used: u64,
    pub peak: u64,
}

/// An access of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    pub address: u64,
    pub bytes: u64,
    pub write: bool,
}

impl Touch {
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        self.address < address.saturating_add(bytes)
            && address < self.address.saturating_add(self.bytes)
    }
}

/// All memory.
pub struct Memory {
    pub space: Space,
    pub regions: BTreeMap<u64, Region>,
    pub hosts: BTreeMap<u64, Host>,
    pub devices: Vec<Capacity>,
    pub vmm: Vmm,
    pub charge: u64,
    next: u64,
}

impl Memory {
    pub fn new(space: u64, devices: usize, total: u64, charge: u64, granule: u64) -> Self {
        Self {
            space: Space::new(space),
            regions: BTreeMap::new(),
            hosts: BTreeMap::new(),
            devices: vec![Capacity { total, ..Capacity::default() }; devices],
            vmm: Vmm::new(granule),
            charge,
            next: 1,
        }
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn charge(&mut self, device: usize, bytes: u64) -> Done {
        let capacity = self.devices.get_mut(device).ok_or(code::INVALID_DEVICE)?;
        let used = capacity.used.checked_add(bytes).filter(|used| *used <= capacity.total);
        capacity.used = used.ok_or(code::OUT_OF_MEMORY)?;
        capacity.peak = capacity.peak.max(capacity.used);
        Ok(())
    }

    pub fn discharge(&mut self, device: usize, bytes: u64) {
        if let Some(capacity) = self.devices.get_mut(device) {
            capacity.used = capacity.used.saturating_sub(bytes);
        }
    }

    /// What an allocation of `bytes` takes of the capacity.
    pub fn charged(&self, bytes: u64) -> Result<u64, Code> {
        round_up(bytes, self.charge).ok_or(code::OUT_OF_MEMORY)
    }

    /// Addresses with memory.
    fn obtain(&mut self, bytes: u64) -> Result<u64, Code> {
        let held = held(bytes).ok_or(code::OUT_OF_MEMORY)?;
        let align = if bytes >= 2 << 20 { 2 << 20 } else { PAGE };
        let address = self.space.take(held, align, 0).ok_or(code::OUT_OF_MEMORY)?;
        if let Err(code) = self.space.expose(address, held - PAGE) {
            self.space.give(address, held);
            return Err(code);
        }
        Ok(address)
    }

    fn give(&mut self, address: u64, bytes: u64) {
        if let Some(held) = held(bytes) {
            self.space.hide(address, held);
            self.space.give(address, held);
        }
    }

    /// Memory for a region whose capacity is paid for.
    pub fn place(&mut self, region: Region) -> Result<u64, Code> {
        let address = self.obtain(region.bytes)?;
        self.regions.insert(address, region);
        Ok(address)
    }

    /// Takes the memory of a region away; its capacity is the caller's to give back.
    pub fn displace(&mut self, address: u64) -> Option<Region> {
        let region = self.regions.remove(&address)?;
        self.give(address, region.bytes);
        Some(region)
    }

    /// Pinned memory of the host: from the same addresses, so that its misuse is found too.
    pub fn place_host(&mut self, host: Host) -> Result<u64, Code> {
        let address = self.obtain(host.bytes)?;
        self.hosts.insert(address, host);
        Ok(address)
    }

    /// Forgets memory of the host, and takes it away if it was allocated here.
    pub fn displace_host(&mut self, address: u64) -> Option<Host> {
        let host = self.hosts.remove(&address)?;
        if host.ours {
            self.give(address, host.bytes);
        }
        Some(host)
    }

    /// The region that holds `address`, with its base.
    pub fn region(&self, address: u64) -> Option<(u64, &Region)> {
        let (&base, region) = self.regions.range(..=address).next_back()?;
        (address - base < region.bytes).then_some((base, region))
    }

    pub fn host(&self, address: u64) -> Option<(u64, &Host)> {
        let (&base, host) = self.hosts.range(..=address).next_back()?;
        (address - base < host.bytes).then_some((base, host))
    }

    /// Whether the driver knows the address as its own or as pinned.
    pub fn is_known(&self, address: u64) -> bool {
        self.space.contains(address) || self.host(address).is_some()
    }

    /// Whether work on `device` may do this; addresses of the host are the host's affair.
    pub fn permits(&self, touch: &Touch, device: usize) -> bool {
        if touch.bytes == 0 || !self.space.contains(touch.address) {
            return true;
        }
        let within = |base: u64, bytes: u64| {
            touch.bytes <= bytes && touch.address - base <= bytes - touch.bytes
        };
        if let Some((base, region)) = self.region(touch.address) {
            return within(base, region.bytes);
        }
        match self.host(touch.address) {
            Some((base, host)) => within(base, host.bytes),
            None => self.vmm.permits(touch, device),
        }
    }
}
