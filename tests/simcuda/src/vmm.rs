//! VMM: reserved addresses, physical memory, and which lies where.
//!
//! Holds CUDA's rules: offsets are 0, a mapping lies inside one reservation and replaces none, only
//! whole mappings are unmapped, access is set before use, and physical memory lives as long as a
//! handle or a mapping names it. Asked by the entry points and by [`crate::memory`].

use crate::code::{self, Code, Done};
use crate::memory::{Memory, Touch};
use std::collections::BTreeMap;

/// Rights of a device on a mapping: 0 none, 1 read, 3 read and write.
type Rights = Vec<(usize, u32)>;

/// Physical memory.
#[derive(Clone, Debug)]
pub struct Physical {
    pub bytes: u64,
    pub device: usize,
    /// Where it lies in the file.
    pub offset: u64,
    /// Handles that the caller has not released.
    pub handles: u64,
    pub mappings: u64,
    /// As it was asked for, to be given back on request.
    pub kind: (u32, u32),
}

/// Physical memory at an address.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub bytes: u64,
    pub physical: u64,
    pub rights: Rights,
    pub number: u64,
}

/// All of it.
pub struct Vmm {
    pub granule: u64,
    pub reservations: BTreeMap<u64, u64>,
    pub physical: BTreeMap<u64, Physical>,
    pub mappings: BTreeMap<u64, Mapping>,
}

impl Vmm {
    pub fn new(granule: u64) -> Self {
        Self {
            granule,
            reservations: BTreeMap::new(),
            physical: BTreeMap::new(),
            mappings: BTreeMap::new(),
        }
    }

    fn whole(&self, bytes: u64) -> Done {
        if bytes == 0 || !bytes.is_multiple_of(self.granule) {
            return Err(code::INVALID_VALUE);
        }
        Ok(())
    }

    /// The reservation around an address.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (&base, &bytes) = self.reservations.range(..=address).next_back()?;
        (address - base < bytes).then_some((base, bytes))
    }

    /// The mapping around an address.
    pub fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.bytes).then_some((base, mapping))
    }

    /// Bases of the mappings that make up exactly this range, without a gap.
    fn exactly(&self, address: u64, bytes: u64) -> Result<Vec<u64>, Code> {
        let end = address.checked_add(bytes).ok_or(code::INVALID_VALUE)?;
        let (mut place, mut bases) = (address, Vec::new());
        while place < end {
            let mapping = self.mappings.get(&place).ok_or(code::INVALID_VALUE)?;
            bases.push(place);
            place += mapping.bytes;
        }
        if place == end && bytes > 0 { Ok(bases) } else { Err(code::INVALID_VALUE) }
    }

    pub fn permits(&self, touch: &Touch, device: usize) -> bool {
        let (mut place, end) = (touch.address, touch.address.saturating_add(touch.bytes));
        let wanted = if touch.write { 3 } else { 1 };
        while place < end {
            let Some((base, mapping)) = self.mapping(place) else { return false };
            let granted = mapping.rights.iter().find(|(of, _)| *of == device);
            if granted.is_none_or(|(_, rights)| rights & wanted != wanted) {
                return false;
            }
            place = base + mapping.bytes;
        }
        true
    }
}

impl Memory {
    pub fn reserve(&mut self, bytes: u64, align: u64, hint: u64) -> Result<u64, Code> {
        self.vmm.whole(bytes)?;
        if align != 0 && !align.is_power_of_two() {
            return Err(code::INVALID_VALUE);
        }
        let align = align.max(self.vmm.granule);
        let address = self.space.take(bytes, align, hint).ok_or(code::OUT_OF_MEMORY)?;
        self.vmm.reservations.insert(address, bytes);
        Ok(address)
    }

    pub fn unreserve(&mut self, address: u64, bytes: u64) -> Done {
        if self.vmm.reservations.get(&address) != Some(&bytes) {
            return Err(code::INVALID_VALUE);
        }
        if self.vmm.mappings.range(address..address + bytes).next().is_some() {
            return Err(code::INVALID_VALUE);
        }
        self.vmm.reservations.remove(&address);
        self.space.give(address, bytes);
        Ok(())
    }

    pub fn create(&mut self, bytes: u64, device: usize, kind: (u32, u32)) -> Result<u64, Code> {
        self.vmm.whole(bytes)?;
        self.charge(device, bytes)?;
        let offset = match self.space.create(bytes) {
            Ok(offset) => offset,
            Err(code) => {
                self.discharge(device, bytes);
                return Err(code);
            }
        };
        let handle = 0x7000_0000 + self.number();
        let physical = Physical { bytes, device, offset, handles: 1, mappings: 0, kind };
        self.vmm.physical.insert(handle, physical);
        Ok(handle)
    }

    pub fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: u64) -> Done {
        self.vmm.whole(bytes)?;
        let physical = self.vmm.physical.get(&handle).filter(|physical| physical.handles > 0);
        let physical = physical.ok_or(code::INVALID_VALUE)?;
        let aligned = address.is_multiple_of(self.vmm.granule);
        if offset != 0 || bytes > physical.bytes || !aligned {
            return Err(code::INVALID_VALUE);
        }
        let (base, held) = self.vmm.reservation(address).ok_or(code::INVALID_VALUE)?;
        if bytes > held || address - base > held - bytes {
            return Err(code::INVALID_VALUE);
        }
        let inside = self.vmm.mappings.range(address..address + bytes).next().is_some();
        if inside || self.vmm.mapping(address).is_some() {
            return Err(code::ALREADY_MAPPED);
        }
        self.space.map(address, bytes, physical.offset)?;
        let mapping =
            Mapping { bytes, physical: handle, rights: Vec::new(), number: self.number() };
        self.vmm.mappings.insert(address, mapping);
        if let Some(physical) = self.vmm.physical.get_mut(&handle) {
            physical.mappings += 1;
        }
        Ok(())
    }

    pub fn set_access(&mut self, address: u64, bytes: u64, rights: &[(usize, u32)]) -> Done {
        let bases = self.vmm.exactly(address, bytes)?;
        for base in bases {
            let Some(mapping) = self.vmm.mappings.get_mut(&base) else { continue };
            for &(device, flags) in rights {
                mapping.rights.retain(|(of, _)| *of != device);
                mapping.rights.push((device, flags));
            }
            let all = mapping.rights.iter().fold(0, |all, (_, flags)| all | flags);
            self.space.access(base, mapping.bytes, all & 1 != 0, all & 2 != 0)?;
        }
        Ok(())
    }

    /// Whether the range is made of whole mappings.
    pub fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        self.vmm.exactly(address, bytes).is_ok()
    }

    pub fn unmap(&mut self, address: u64, bytes: u64) -> Done {
        for base in self.vmm.exactly(address, bytes)? {
            let Some(mapping) = self.vmm.mappings.remove(&base) else { continue };
            self.space.hide(base, mapping.bytes);
            if let Some(physical) = self.vmm.physical.get_mut(&mapping.physical) {
                physical.mappings -= 1;
            }
            self.bury(mapping.physical);
        }
        Ok(())
    }

    pub fn release(&mut self, handle: u64) -> Done {
        let physical = self.vmm.physical.get_mut(&handle).filter(|physical| physical.handles > 0);
        physical.ok_or(code::INVALID_VALUE)?.handles -= 1;
        self.bury(handle);
        Ok(())
    }

    /// One more handle for what is mapped at an address.
    pub fn retain(&mut self, address: u64) -> Result<u64, Code> {
        let (_, mapping) = self.vmm.mapping(address).ok_or(code::INVALID_VALUE)?;
        let handle = mapping.physical;
        let physical = self.vmm.physical.get_mut(&handle).ok_or(code::INVALID_VALUE)?;
        physical.handles += 1;
        Ok(handle)
    }

    /// Gives physical memory back once nobody names it.
    fn bury(&mut self, handle: u64) {
        let unused = |physical: &&Physical| physical.handles == 0 && physical.mappings == 0;
        let Some(physical) = self.vmm.physical.get(&handle).filter(unused) else { return };
        let (device, bytes, offset) = (physical.device, physical.bytes, physical.offset);
        self.space.destroy(offset, bytes);
        self.discharge(device, bytes);
        self.vmm.physical.remove(&handle);
    }
}
