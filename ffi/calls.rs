//! Calls: any bytes as calls of the C interface, right and wrong ones, held to what they must come to.
//!
//! Included by the test and by the fuzz target. Owns a model of what is live: addresses by allocator. The file that
//! includes this has the room in scope as `crate::ffi`.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::ffi::blockyard_status::*;
use crate::ffi::*;

/// Devices by turns: a small one without memory, a larger one, and real memory.
const DEVICES: [&std::ffi::CStr; 3] = [c"sim:64MiB", c"sim:1GiB", c"host:64MiB"];
const SETTINGS: [&std::ffi::CStr; 4] =
    [c"blockyard", c"pytorch", c"pytorch-expandable", c"max_split_size_mb:32"];

/// One allocator and what it handed out.
struct Model {
    number: blockyard_allocator,
    is_host: bool,
    live: BTreeMap<usize, u64>,
    /// Frees and allocations that the callback heard of.
    heard: Box<AtomicI64>,
    pools: Vec<blockyard_pool>,
}

/// The bytes that are left; zeros after their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u64 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        u64::from(*first)
    }

    fn pick(&mut self, count: usize) -> usize {
        self.next() as usize % count
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    fn wide(&mut self) -> u64 {
        (0..8).fold(0, |sum, _| sum << 8 | self.next())
    }

    /// From one byte to hundreds of MiB, most of them small.
    fn size(&mut self) -> u64 {
        (self.next() + 1) << (self.next() % 22)
    }
}

unsafe extern "C" fn hear(
    user: *mut c_void,
    is_alloc: bool,
    _: *mut c_void,
    _: u64,
    _: *mut c_void,
) {
    // SAFETY: the counter of a model, which lives as long as its allocator.
    let heard = unsafe { &*user.cast::<AtomicI64>() };
    heard.fetch_add(if is_alloc { 1 } else { -1 }, Ordering::Relaxed);
}

unsafe extern "C" fn count(user: *mut c_void, block: *const blockyard_block) {
    // SAFETY: a counter and a block that live as long as the call.
    let (sum, block) = unsafe { (&mut *user.cast::<usize>(), &*block) };
    *sum += usize::from(block.state == blockyard_block_state::BLOCKYARD_BLOCK_ALLOCATED);
}

impl Model {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let (device, settings) = (bytes.pick(DEVICES.len()), bytes.pick(SETTINGS.len()));
        let mut number = 0;
        // SAFETY: both texts end with a zero.
        let created = unsafe {
            let (device, settings) = (DEVICES[device].as_ptr(), SETTINGS[settings].as_ptr());
            blockyard_create(device, settings, Some(&mut number))
        };
        assert_eq!(created, BLOCKYARD_OK);
        let heard = Box::new(AtomicI64::new(0));
        let user = (&raw const *heard).cast_mut().cast();
        // SAFETY: the counter lives as long as the allocator.
        assert_eq!(unsafe { blockyard_on_block(number, Some(hear), user) }, BLOCKYARD_OK);
        Self { number, is_host: device == 2, live: BTreeMap::new(), heard, pools: Vec::new() }
    }

    fn took(&mut self, pointer: *mut c_void, bytes: u64) {
        let address = pointer.addr();
        let below = self.live.range(..=address).next_back();
        assert!(below.is_none_or(|(base, size)| base + *size as usize <= address), "overlap");
        let above = self.live.range(address..).next();
        assert!(above.is_none_or(|(base, _)| address + bytes as usize <= *base), "overlap");
        if self.is_host {
            // SAFETY: a live block of real memory of so many bytes.
            unsafe {
                pointer.cast::<u8>().write(1);
                pointer.cast::<u8>().add(bytes as usize - 1).write(2);
            }
        }
        assert!(self.live.insert(address, bytes).is_none());
    }

    fn some(&self, bytes: &mut Bytes<'_>) -> Option<(*mut c_void, u64)> {
        let place = bytes.wide() as usize % self.live.len().max(1);
        let (address, size) = self.live.iter().nth(place)?;
        Some((std::ptr::with_exposed_provenance_mut(*address), *size))
    }

    fn stat(&self, key: &std::ffi::CStr) -> i64 {
        let mut value = -1;
        // SAFETY: the key ends with a zero.
        let told = unsafe { blockyard_stat(self.number, key.as_ptr(), Some(&mut value)) };
        assert_eq!(told, BLOCKYARD_OK);
        value
    }

    fn agrees(&self) {
        assert_eq!(self.stat(c"allocation.all.current"), self.live.len() as i64);
        assert_eq!(self.heard.load(Ordering::Relaxed), self.live.len() as i64);
    }

    /// Everything back, and no trace of it.
    fn close(mut self) {
        while let Some((address, bytes)) = self.live.pop_first() {
            let pointer = std::ptr::with_exposed_provenance_mut(address);
            assert_eq!(blockyard_free(self.number, pointer, bytes), BLOCKYARD_OK);
        }
        self.agrees();
        assert_eq!(blockyard_destroy(self.number), BLOCKYARD_OK);
        assert_eq!(blockyard_destroy(self.number), BLOCKYARD_INVALID_HANDLE);
    }
}

fn text_of(out: *mut c_char) {
    assert!(!out.is_null());
    // SAFETY: a text that the library gave, and gets back once.
    unsafe { blockyard_text_free(out) };
}

/// Scopes and tags that are open on this thread.
#[derive(Default)]
struct Open {
    scopes: Vec<(blockyard_pool, bool)>,
    tags: usize,
}

impl Open {
    fn close(&mut self) {
        while let Some((pool, is_capture)) = self.scopes.pop() {
            let end = if is_capture { blockyard_capture_end } else { blockyard_pool_end };
            assert_eq!(end(pool), BLOCKYARD_OK);
        }
        assert_eq!(blockyard_pool_end(1), BLOCKYARD_INVALID_ARGUMENT);
        while self.tags > 0 {
            assert_eq!(blockyard_tag_pop(), BLOCKYARD_OK);
            self.tags -= 1;
        }
        assert_eq!(blockyard_tag_pop(), BLOCKYARD_INVALID_ARGUMENT);
    }
}

/// Calls as these bytes say. Returns how many there were. Panics where one comes to something else than it must.
pub fn calls(bytes: &[u8]) -> usize {
    let mut bytes = Bytes(bytes);
    let mut models = vec![Model::new(&mut bytes), Model::new(&mut bytes)];
    let mut open = Open::default();
    let mut made = 0;
    while !bytes.0.is_empty() {
        made += 1;
        let place = bytes.pick(models.len());
        match bytes.pick(20) {
            0..=5 => alloc(&mut models[place], &mut bytes),
            6..=9 => free(&mut models[place], &mut bytes),
            10 => refused(&mut models[place], &mut bytes),
            11 => limits(&models[place], &mut bytes),
            12 => figures(&models[place], &mut bytes),
            13..=14 => pools(&mut models[place], &mut open, &mut bytes),
            15 => tags(&mut open, &mut bytes),
            16 => strangers(&mut bytes),
            17 => observe(&models[place], &mut bytes),
            18 => torch(&mut bytes),
            _ if bytes.one_in(8) => {
                open.close();
                models.swap_remove(place).close();
                models.push(Model::new(&mut bytes));
            }
            _ => models[place].agrees(),
        }
    }
    open.close();
    models.into_iter().for_each(Model::close);
    made
}

fn alloc(model: &mut Model, bytes: &mut Bytes<'_>) {
    let stream = std::ptr::without_provenance_mut(bytes.pick(4) << 8);
    let mut pointer = null_mut();
    let size = if bytes.next() == 0 { bytes.wide() } else { bytes.size() };
    let pool = if bytes.one_in(4) { model.pools.last().copied().unwrap_or(0) } else { 0 };
    let status = blockyard_alloc_in(model.number, pool, size, stream, Some(&mut pointer));
    match status {
        BLOCKYARD_OK if size == 0 => assert!(pointer.is_null()),
        BLOCKYARD_OK => model.took(pointer, size),
        BLOCKYARD_OUT_OF_MEMORY | BLOCKYARD_DRIVER => assert!(pointer.is_null()),
        other => panic!("alloc came to {other:?}"),
    }
    if model.live.len() > 500 {
        while let Some((address, _)) = model.live.pop_first() {
            let pointer = std::ptr::with_exposed_provenance_mut(address);
            assert_eq!(blockyard_free(model.number, pointer, 0), BLOCKYARD_OK);
        }
    }
}

fn free(model: &mut Model, bytes: &mut Bytes<'_>) {
    let Some((pointer, size)) = model.some(bytes) else { return };
    if bytes.one_in(4) {
        let stream = std::ptr::without_provenance_mut(bytes.pick(5) << 8);
        assert_eq!(blockyard_record_stream(model.number, pointer, stream), BLOCKYARD_OK);
    }
    let said = if bytes.one_in(2) { 0 } else { size };
    assert_eq!(blockyard_free(model.number, pointer, said), BLOCKYARD_OK);
    model.live.remove(&pointer.addr());
    if bytes.one_in(2) {
        assert_eq!(blockyard_free(model.number, pointer, 0), BLOCKYARD_UNKNOWN_POINTER);
    }
}

/// What is wrong is answered and changes nothing.
fn refused(model: &mut Model, bytes: &mut Bytes<'_>) {
    let wild: *mut c_void = std::ptr::without_provenance_mut(bytes.wide() as usize | 1);
    assert_eq!(blockyard_free(model.number, wild, 0), BLOCKYARD_UNKNOWN_POINTER);
    assert_eq!(blockyard_record_stream(model.number, wild, null_mut()), BLOCKYARD_UNKNOWN_POINTER);
    assert_eq!(blockyard_free(model.number, null_mut(), 7), BLOCKYARD_OK, "nothing");
    assert_eq!(blockyard_alloc(model.number, 1, null_mut(), None), BLOCKYARD_INVALID_ARGUMENT);
    if let Some((pointer, size)) = model.some(bytes) {
        assert_eq!(blockyard_free(model.number, pointer, size + 1), BLOCKYARD_WRONG_SIZE);
        assert_eq!(blockyard_destroy(model.number), BLOCKYARD_BUSY);
        let (mut base, mut found) = (null_mut(), 0);
        let status = blockyard_find(model.number, pointer, Some(&mut base), Some(&mut found));
        assert_eq!((status, base, found), (BLOCKYARD_OK, pointer, size));
    }
    model.agrees();
}

fn limits(model: &Model, bytes: &mut Bytes<'_>) {
    let mut value = 0;
    assert_eq!(blockyard_empty_cache(model.number, Some(&mut value)), BLOCKYARD_OK);
    let limit = if bytes.one_in(2) { BLOCKYARD_NO_LIMIT } else { bytes.size() };
    assert_eq!(blockyard_set_limit(model.number, limit), BLOCKYARD_OK);
    assert_eq!(blockyard_limit(model.number, Some(&mut value)), BLOCKYARD_OK);
    assert_eq!(value, limit);
    assert_eq!(blockyard_release_at_least(model.number, bytes.size(), None), BLOCKYARD_OK);
    let absurd = f64::from_bits(bytes.wide());
    let set = blockyard_set_memory_fraction(model.number, absurd);
    assert_eq!(set == BLOCKYARD_OK, (0.0..=1.0).contains(&absurd), "{absurd}");
    assert_eq!(blockyard_set_limit(model.number, BLOCKYARD_NO_LIMIT), BLOCKYARD_OK);
    let largest = blockyard_largest_possible(model.number, null_mut(), Some(&mut value));
    assert_eq!(largest, BLOCKYARD_OK);
}

fn figures(model: &Model, bytes: &mut Bytes<'_>) {
    let mut values = vec![i64::MIN; bytes.pick(200)];
    let mut there = 0;
    // SAFETY: there is room for as many as are said.
    let told = unsafe {
        blockyard_stats(model.number, values.as_mut_ptr(), values.len(), Some(&mut there))
    };
    assert_eq!((told, there), (BLOCKYARD_OK, blockyard_stat_count()));
    assert!(values.iter().take(there).all(|value| *value != i64::MIN));
    assert!(values.iter().skip(there).all(|value| *value == i64::MIN), "beyond the last");
    assert!(blockyard_stat_key(there).is_null() && !blockyard_stat_key(there - 1).is_null());
    let mut seen = 0_usize;
    // SAFETY: the counter lives as long as the call.
    let shown = unsafe { blockyard_blocks(model.number, Some(count), (&raw mut seen).cast()) };
    assert_eq!((shown, seen), (BLOCKYARD_OK, model.live.len()));
    assert_eq!(blockyard_reset_peak(model.number), BLOCKYARD_OK);
    assert_eq!(model.stat(c"allocated_bytes.all.peak"), model.stat(c"allocated_bytes.all.current"));
    assert_eq!(blockyard_reset_accumulated(model.number), BLOCKYARD_OK);
}

fn pools(model: &mut Model, open: &mut Open, bytes: &mut Bytes<'_>) {
    let mut pool = 0;
    match bytes.pick(8) {
        0..=1 if model.pools.len() < 8 => {
            assert_eq!(blockyard_pool_create(model.number, Some(&mut pool)), BLOCKYARD_OK);
            model.pools.push(pool);
        }
        2 if !model.pools.is_empty() => {
            let pool = model.pools.swap_remove(bytes.pick(model.pools.len()));
            assert_eq!(blockyard_pool_release(pool), BLOCKYARD_OK);
            assert_eq!(blockyard_pool_begin(pool), BLOCKYARD_INVALID_HANDLE);
            assert_eq!(blockyard_pool_release(pool), BLOCKYARD_INVALID_HANDLE);
        }
        3..=4 if !model.pools.is_empty() && open.scopes.len() < 8 => {
            let pool = model.pools[bytes.pick(model.pools.len())];
            let is_capture = bytes.one_in(4);
            let begin = if is_capture { blockyard_capture_begin } else { blockyard_pool_begin };
            assert_eq!(begin(pool), BLOCKYARD_OK);
            open.scopes.push((pool, is_capture));
        }
        5 if !open.scopes.is_empty() => {
            let (pool, is_capture) = open.scopes.remove(bytes.pick(open.scopes.len()));
            let end = if is_capture { blockyard_capture_end } else { blockyard_pool_end };
            assert_eq!(end(pool), BLOCKYARD_OK);
        }
        6 if !model.pools.is_empty() => {
            let pool = model.pools[0];
            let mut number = 0;
            assert_eq!(blockyard_pool_number(pool, Some(&mut number)), BLOCKYARD_OK);
            assert!(number > 0);
            assert_eq!(blockyard_pool_empty_cache(pool, None), BLOCKYARD_OK);
        }
        _ => assert_eq!(blockyard_pool_create(model.number, None), BLOCKYARD_INVALID_ARGUMENT),
    }
}

fn tags(open: &mut Open, bytes: &mut Bytes<'_>) {
    const NAMES: [&std::ffi::CStr; 3] = [c"step", c"layer", c"\xff\xfe"];
    let name = bytes.pick(3);
    if open.tags > 8 {
        assert_eq!(blockyard_tag_pop(), BLOCKYARD_OK);
        open.tags -= 1;
    }
    // SAFETY: the name ends with a zero.
    let pushed = unsafe { blockyard_tag_push(NAMES[name].as_ptr()) };
    assert_eq!(pushed == BLOCKYARD_OK, name < 2, "not UTF-8");
    open.tags += usize::from(name < 2);
}

/// Numbers of nothing.
fn strangers(bytes: &mut Bytes<'_>) {
    // No number of an allocator or a pool begins with these bits.
    let number = bytes.wide() >> 8;
    let mut text = null_mut();
    let statuses = [
        blockyard_free(number, null_mut(), 0),
        blockyard_empty_cache(number, None),
        blockyard_set_limit(number, 0),
        blockyard_summary(number, Some(&mut text)),
        blockyard_record(number, 0),
        blockyard_pool_begin(number),
        blockyard_capture_begin(number),
        blockyard_pool_release(number),
        blockyard_destroy(number),
        blockyard_abandon(number),
    ];
    assert!(statuses.iter().all(|status| *status == BLOCKYARD_INVALID_HANDLE), "{statuses:?}");
    assert_eq!(blockyard_last_error(), BLOCKYARD_INVALID_HANDLE);
    let mut out = 0;
    // SAFETY: null is allowed, and the texts end with zeros.
    let bad = unsafe {
        [
            blockyard_create(c"moon".as_ptr(), std::ptr::null(), Some(&mut out)),
            blockyard_create(c"sim:1GiB".as_ptr(), c"max_split:1".as_ptr(), Some(&mut out)),
            blockyard_create(c"sim:1GiB".as_ptr(), c"blockyard".as_ptr(), None),
            blockyard_tag_push(std::ptr::null()),
        ]
    };
    assert!(bad.iter().all(|status| *status == BLOCKYARD_INVALID_ARGUMENT), "{bad:?}");
}

fn observe(model: &Model, bytes: &mut Bytes<'_>) {
    let mut text = null_mut();
    let number = model.number;
    match bytes.pick(4) {
        0 => assert_eq!(blockyard_record(number, bytes.next()), BLOCKYARD_OK),
        1 => {
            assert_eq!(blockyard_summary(number, Some(&mut text)), BLOCKYARD_OK);
            text_of(text);
        }
        2 => {
            assert_eq!(blockyard_snapshot(number, Some(&mut text)), BLOCKYARD_OK);
            text_of(text);
        }
        _ => {
            assert_eq!(blockyard_last_report(number, Some(&mut text)), BLOCKYARD_OK);
            if !text.is_null() {
                text_of(text);
            }
        }
    }
    assert_eq!(blockyard_summary(number, None), BLOCKYARD_INVALID_ARGUMENT);
    // SAFETY: nobody is to be called.
    let deaf = unsafe { blockyard_blocks(number, None, null_mut()) };
    assert_eq!(deaf, BLOCKYARD_INVALID_ARGUMENT);
}

/// What PyTorch calls; the device is the environment's, see [`prepare`].
fn torch(bytes: &mut Bytes<'_>) {
    let size = bytes.size() as isize;
    let pointer = blockyard_torch_alloc(size, 0, null_mut());
    assert!(blockyard_torch_alloc(-1, 0, null_mut()).is_null());
    assert!(blockyard_torch_alloc(1, -1, null_mut()).is_null());
    if !pointer.is_null() {
        let mut found = 0;
        assert_eq!(blockyard_torch_base_alloc(pointer, Some(&mut found)), pointer);
        assert_eq!(found, size as usize);
        blockyard_torch_record_stream(pointer, std::ptr::without_provenance_mut(0x900));
        blockyard_torch_free(pointer, size, 0, null_mut());
    }
    if bytes.one_in(8) {
        blockyard_torch_reset();
    }
    blockyard_torch_memory_fraction(1.0, 0);
}

/// Names the device of PyTorch's functions, where there is no GPU. Before the first call.
pub fn prepare() {
    // SAFETY: called first, by the only thread that asks the environment.
    unsafe { std::env::set_var("BLOCKYARD_DEVICE", "sim:256MiB") };
}
