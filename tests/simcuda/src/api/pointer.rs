//! Pointer: what the driver knows of an address.

use crate::code::{self, Code, Done};
use crate::door::{In, Out, exports};
use crate::world::{self, World};

/// What there is to say of an address.
#[derive(Clone, Copy, Default)]
pub struct Facts {
    /// 1 host, 2 device.
    kind: u32,
    context: u64,
    device: i32,
    base: u64,
    bytes: u64,
    number: u64,
    managed: bool,
    pool: u64,
    /// The host may use it: pinned or managed.
    host: u64,
    mapping: (u64, u64),
}

exports! {
    Context(_at) fn cuPointerGetAttribute(value: Out<u64>, attribute: u32, address: u64) {
        let facts = facts(&world::lock(), address).ok_or(code::INVALID_VALUE)?;
        write(value, attribute, address, &facts)
    }

    /// An unknown address is no error here: its attributes are zeros.
    Context(_at) fn cuPointerGetAttributes(
        count: u32, attributes: In<u32>, values: In<u64>, address: u64,
    ) {
        let facts = facts(&world::lock(), address);
        for place in 0..count as usize {
            let value = Out::<u64>::at_address(values.at(place)?);
            let attribute = attributes.at(place)?;
            match &facts {
                Some(facts) => write(value, attribute, address, facts)?,
                None => clear(value, attribute)?,
            }
        }
        Ok(())
    }

    Context(_at) fn cuPointerSetAttribute(_value: Out<u8>, attribute: u32, address: u64) {
        facts(&world::lock(), address).ok_or(code::INVALID_VALUE)?;
        if attribute == 6 { Ok(()) } else { Err(code::INVALID_VALUE) }
    }
}

fn facts(world: &World, address: u64) -> Option<Facts> {
    let memory = &world.memory;
    if let Some((base, region)) = memory.region(address) {
        return Some(Facts {
            kind: 2,
            context: region.context,
            device: region.device as i32,
            base,
            bytes: region.bytes,
            number: region.number,
            managed: region.managed,
            pool: region.pool,
            host: if region.managed { address } else { 0 },
            mapping: (base, region.bytes),
        });
    }
    if let Some((base, host)) = memory.host(address) {
        let context = world.contexts.get(&host.context);
        return Some(Facts {
            kind: 1,
            context: host.context,
            device: context.map_or(0, |context| context.device as i32),
            base,
            bytes: host.bytes,
            number: host.number,
            host: address,
            mapping: (base, host.bytes),
            ..Facts::default()
        });
    }
    let (base, mapping) = memory.vmm.mapping(address)?;
    let physical = memory.vmm.physical.get(&mapping.physical)?;
    let (start, bytes) = memory.vmm.reservation(address).unwrap_or((base, mapping.bytes));
    Some(Facts {
        kind: 2,
        device: physical.device as i32,
        base: start,
        bytes,
        number: mapping.number,
        mapping: (base, mapping.bytes),
        ..Facts::default()
    })
}

fn write(value: Out<u64>, attribute: u32, address: u64, facts: &Facts) -> Done {
    let word = |word: u32| value.cast::<u32>().set(word);
    let flag = |flag: bool| value.cast::<u8>().set(flag.into());
    match attribute {
        1 => value.set(facts.context),
        2 => word(facts.kind),
        3 => value.set(address),
        4 if facts.host != 0 => value.set(facts.host),
        4 => Err(code::INVALID_VALUE),
        6 => flag(false),
        7 => value.set(facts.number),
        8 => flag(facts.managed),
        9 => value.cast::<i32>().set(facts.device),
        10 => flag(false),
        11 => value.set(facts.base),
        12 => value.set(facts.bytes),
        13 => flag(true),
        14 => value.set(0),
        15 => flag(false),
        16 => word(3),
        17 => value.set(facts.pool),
        18 => value.set(facts.mapping.1),
        19 => value.set(facts.mapping.0),
        20 => value.set(facts.number),
        21 => flag(false),
        _ => Err(code::INVALID_VALUE),
    }
}

/// Zeros, as wide as the attribute; an ordinal that is none.
fn clear(value: Out<u64>, attribute: u32) -> Result<(), Code> {
    match attribute {
        2 | 16 => value.cast::<u32>().set(0),
        6 | 8 | 10 | 13 | 15 | 21 => value.cast::<u8>().set(0),
        9 => value.cast::<i32>().set(-2),
        _ => value.set(0),
    }
}
