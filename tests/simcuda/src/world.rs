//! World: everything the driver knows, behind one lock.
//!
//! One lock means no order of locks. Whoever holds it never waits for anything but its two
//! condition variables, which let go of it: [`done`] for host threads, a stream's bell for its
//! worker. Costs, host functions, kernels and the copying of bytes happen without it.

use crate::capture::Captures;
use crate::code::{self, Code, Done};
use crate::config::Config;
use crate::door::Here;
use crate::event::Event;
use crate::judge::Judge;
use crate::memory::Memory;
use crate::module::Modules;
use crate::pool::Pools;
use crate::stream::Stream;
use crate::thread;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A context.
#[derive(Clone, Debug)]
pub struct Context {
    pub device: usize,
    pub primary: bool,
    pub flags: u32,
    /// Its legacy default stream.
    pub null: u64,
    /// What made it useless, if anything did.
    pub broken: Option<Code>,
    pub limits: BTreeMap<u32, u64>,
    /// Devices whose memory its kernels may touch.
    pub peers: Vec<usize>,
}

/// A device's primary context.
#[derive(Clone, Copy, Debug, Default)]
pub struct Primary {
    pub context: u64,
    pub users: u64,
    pub flags: u32,
}

/// Everything.
pub struct World {
    pub config: Config,
    pub ready: bool,
    pub memory: Memory,
    pub contexts: BTreeMap<u64, Context>,
    pub primaries: Vec<Primary>,
    pub streams: BTreeMap<u64, Stream>,
    /// Per-thread default streams, by thread and context.
    pub threads: BTreeMap<(u64, u64), u64>,
    pub events: BTreeMap<u64, Event>,
    pub pools: Pools,
    pub modules: Modules,
    pub captures: Captures,
    pub judge: Judge,
    pub paused: bool,
    next: u64,
}

struct Shared {
    world: Mutex<World>,
    done: Condvar,
}

static SHARED: LazyLock<Shared> =
    LazyLock::new(|| Shared { world: Mutex::new(World::new()), done: Condvar::new() });

/// The one world.
pub type Guard = MutexGuard<'static, World>;

/// Takes the lock.
pub fn lock() -> Guard {
    SHARED.world.lock()
}

/// Rung whenever a piece of work is done.
pub fn done() -> &'static Condvar {
    &SHARED.done
}

/// Waits until it is so.
pub fn wait(world: &mut Guard, mut until: impl FnMut(&mut World) -> bool) {
    while !until(world) {
        SHARED.done.wait(world);
    }
}

impl World {
    fn new() -> Self {
        let config = Config::read();
        let (space, charge) = (config.address_space, config.charge);
        let memory = Memory::new(space, config.devices, config.memory, charge, config.granule);
        let mut world = Self {
            ready: false,
            memory,
            contexts: BTreeMap::new(),
            primaries: vec![Primary::default(); config.devices],
            streams: BTreeMap::new(),
            threads: BTreeMap::new(),
            events: BTreeMap::new(),
            pools: Pools::default(),
            modules: Modules::default(),
            captures: Captures::default(),
            judge: Judge::default(),
            paused: false,
            next: 0x51_0000,
            config,
        };
        world.memory.space.stay_fresh(world.config.fresh);
        world.make_default_pools();
        world
    }

    /// A handle that nobody had before.
    pub fn handle(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// The driver is initialised.
    pub fn ready(&self) -> Result<Here, Code> {
        if self.ready { Ok(Here::default()) } else { Err(code::NOT_INITIALIZED) }
    }

    /// The driver is initialised, and the current context, if there is one, is of use.
    pub fn sound(&self) -> Result<Here, Code> {
        self.ready()?;
        let context = self.contexts.get(&thread::context());
        context.and_then(|context| context.broken).map_or(Ok(Here::default()), Err)
    }

    /// The current context, if it can be worked in.
    pub fn here(&self) -> Result<Here, Code> {
        self.ready()?;
        let context = thread::context();
        if context == 0 {
            return Err(code::INVALID_CONTEXT);
        }
        let known = self.contexts.get(&context).ok_or(code::CONTEXT_IS_DESTROYED)?;
        known.broken.map_or(Ok(Here { context, device: known.device }), Err)
    }

    pub fn device(&self, ordinal: i32) -> Result<usize, Code> {
        let device = usize::try_from(ordinal).map_err(|_| code::INVALID_DEVICE)?;
        if device < self.config.devices { Ok(device) } else { Err(code::INVALID_DEVICE) }
    }

    /// The current context is of no use from now on.
    pub fn fail_current(&mut self, code: Code, why: &str) {
        self.fail(thread::context(), code, why);
    }

    /// A context is of no use from now on.
    pub fn fail(&mut self, context: u64, code: Code, why: &str) {
        self.judge.say(format!("error {} in context {context:#x}: {why}", code.0));
        if let Some(context) = self.contexts.get_mut(&context) {
            context.broken = context.broken.or(Some(code));
        }
    }

    pub fn make_context(&mut self, device: usize, primary: bool, flags: u32) -> Result<u64, Code> {
        let bytes = self.config.context_bytes;
        self.memory.charge(device, bytes)?;
        let context = self.handle();
        let null = self.make_stream(context, device, 0, 0, true);
        let (broken, limits, peers) = (None, BTreeMap::new(), Vec::new());
        let made = Context { device, primary, flags, null, broken, limits, peers };
        self.contexts.insert(context, made);
        Ok(context)
    }
}

/// Ends a context: its work first, then everything in it. Counts what its owner left behind.
pub fn destroy_context(world: &mut Guard, context: u64) -> Done {
    let known = world.contexts.get(&context).ok_or(code::INVALID_CONTEXT)?.clone();
    world.paused = false;
    world.wake_all();
    wait(world, |world| world.is_idle(|stream| stream.context == context));
    let regions = world.memory.regions.iter().filter(|(_, region)| region.context == context);
    let regions: Vec<u64> = regions.map(|(address, _)| *address).collect();
    world.judge.left.allocations += regions.len() as u64;
    for address in regions {
        world.free(address);
    }
    let hosts = world.memory.hosts.iter().filter(|(_, host)| host.context == context);
    let hosts: Vec<u64> = hosts.map(|(address, _)| *address).collect();
    world.judge.left.hosts += hosts.len() as u64;
    for address in hosts {
        world.memory.displace_host(address);
    }
    let streams = world.streams.iter().filter(|(_, stream)| stream.context == context);
    let streams: Vec<u64> = streams.map(|(id, _)| *id).collect();
    for id in streams {
        world.judge.left.streams += u64::from(world.is_owned(id));
        world.close_stream(id);
    }
    let events = world.events.len();
    world.events.retain(|_, event| event.context != context);
    world.judge.left.events += (events - world.events.len()) as u64;
    world.modules.forget(context);
    world.threads.retain(|(_, of), _| *of != context);
    world.contexts.remove(&context);
    let bytes = world.config.context_bytes;
    world.memory.discharge(known.device, bytes);
    Ok(())
}
