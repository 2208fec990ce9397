//! Stress: random work on several streams against the same work done in sequence, with pauses of
//! the workers by seed; and several threads at once.
//!
//! The generator orders what conflicts by events, as a careful program does. Then whatever the
//! workers' pauses, the bytes at the end are those of the sequence.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;
use common::*;

const BYTES: usize = 256;
const BUFFERS: usize = 6;
const STREAMS: usize = 4;

/// A splitmix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % most as u64) as usize
    }
}

/// Device memory, what must be in it, and who used it since its last write.
struct Buffer {
    address: u64,
    model: Vec<u8>,
    writer: Option<usize>,
    readers: Vec<usize>,
}

struct Run {
    random: Random,
    /// Whether conflicts are ordered.
    careful: bool,
    streams: Vec<u64>,
    events: Vec<u64>,
    buffers: Vec<Buffer>,
}

impl Run {
    fn new(seed: u64, careful: bool, flags: &[u32]) -> Self {
        simcuda_jitter(seed + 1, 60);
        let streams: Vec<u64> = flags.iter().map(|flags| stream(*flags)).collect();
        let events = (0..STREAMS).map(|_| event()).collect();
        let mut buffers = Vec::new();
        for _ in 0..BUFFERS {
            let mut address = 0;
            ok(cuMemAllocAsync(&mut address, BYTES as u64, streams[0]));
            let model = vec![0; BYTES];
            buffers.push(Buffer { address, model, writer: None, readers: Vec::new() });
        }
        ok(cuStreamSynchronize(streams[0]));
        Self { random: Random(seed), careful, streams, events, buffers }
    }

    /// Puts a stream behind another's work so far.
    fn order(&self, stream: usize, behind: usize) {
        if stream != behind && self.careful {
            ok(cuEventRecord(self.events[behind], self.streams[behind]));
            ok(cuStreamWaitEvent(self.streams[stream], self.events[behind], 0));
        }
    }

    fn reads(&mut self, stream: usize, buffer: usize) {
        if let Some(writer) = self.buffers[buffer].writer {
            self.order(stream, writer);
        }
        self.buffers[buffer].readers.push(stream);
    }

    fn writes(&mut self, stream: usize, buffer: usize) {
        let mut users = std::mem::take(&mut self.buffers[buffer].readers);
        users.extend(self.buffers[buffer].writer);
        users.sort_unstable();
        users.dedup();
        users.into_iter().for_each(|user| self.order(stream, user));
        self.buffers[buffer].writer = Some(stream);
    }

    fn fill(&mut self, stream: usize, buffer: usize) {
        self.writes(stream, buffer);
        let from = self.random.below(BYTES);
        let count = 1 + self.random.below(BYTES - from);
        let value = self.random.below(256) as u8;
        let to = &mut self.buffers[buffer];
        ok(cuMemsetD8Async(to.address + from as u64, value, count as u64, self.streams[stream]));
        to.model[from..from + count].fill(value);
    }

    fn copy(&mut self, stream: usize, from: usize, to: usize) {
        if from == to {
            return;
        }
        self.reads(stream, from);
        self.writes(stream, to);
        let (from, address) = (&self.buffers[from], self.buffers[to].address);
        ok(cuMemcpyDtoDAsync_v2(address, from.address, BYTES as u64, self.streams[stream]));
        self.buffers[to].model = from.model.clone();
    }

    /// Bytes of pageable memory, which changes as soon as the call returns.
    fn upload(&mut self, stream: usize, buffer: usize) {
        self.writes(stream, buffer);
        let mut data: Vec<u8> = (0..BYTES).map(|_| self.random.below(256) as u8).collect();
        let to = &mut self.buffers[buffer];
        let (at, bytes) = (data.as_ptr() as u64, BYTES as u64);
        ok(cuMemcpyHtoDAsync_v2(to.address, at, bytes, self.streams[stream]));
        to.model.clone_from(&data);
        data.fill(0);
    }

    fn renew(&mut self, stream: usize, buffer: usize) {
        self.writes(stream, buffer);
        let (to, bytes) = (&mut self.buffers[buffer], BYTES as u64);
        ok(cuMemFreeAsync(to.address, self.streams[stream]));
        ok(cuMemAllocAsync(&mut to.address, bytes, self.streams[stream]));
        ok(cuMemsetD8Async(to.address, 3, bytes, self.streams[stream]));
        to.model.fill(3);
    }

    fn step(&mut self) {
        let (stream, buffer) = (self.random.below(STREAMS), self.random.below(BUFFERS));
        match self.random.below(8) {
            0..=2 => self.fill(stream, buffer),
            3..=5 => {
                let to = self.random.below(BUFFERS);
                self.copy(stream, buffer, to);
            }
            6 => self.upload(stream, buffer),
            _ => self.renew(stream, buffer),
        }
    }

    /// Whether all bytes are as in the sequence. Everything is freed.
    fn agrees(self) -> bool {
        self.streams.iter().for_each(|stream| ok(cuStreamSynchronize(*stream)));
        let same = |buffer: &Buffer| read(buffer.address, BYTES) == buffer.model;
        let agrees = self.buffers.iter().all(same);
        self.buffers.iter().for_each(|buffer| ok(cuMemFree_v2(buffer.address)));
        self.streams.iter().for_each(|stream| ok(cuStreamDestroy_v2(*stream)));
        self.events.iter().for_each(|event| ok(cuEventDestroy_v2(*event)));
        agrees
    }
}

const KINDS: [[u32; STREAMS]; 3] = [[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]];

#[test]
fn ordered_work_is_like_a_sequence_whatever_the_pauses() {
    let _machine = Machine::new();
    for seed in 0..30 {
        let mut run = Run::new(seed, true, &KINDS[seed as usize % 3]);
        (0..150).for_each(|_| run.step());
        assert!(run.agrees(), "seed {seed}");
    }
    for kind in ["allocations", "streams", "events", "bytes", "violations"] {
        assert_eq!(alive(kind), 0, "{kind}");
    }
}

/// Without it the test above would prove nothing. Frees are left out: they would break the context.
#[test]
fn work_that_is_not_ordered_goes_wrong() {
    let _machine = Machine::new();
    let wrong = (0..20).any(|seed| {
        let mut run = Run::new(seed, false, &KINDS[0]);
        for _ in 0..150 {
            let (from, to) = (run.random.below(BUFFERS), run.random.below(BUFFERS));
            let stream = run.random.below(STREAMS);
            run.fill(stream, from);
            let other = run.random.below(STREAMS);
            run.copy(other, from, to);
        }
        !run.agrees()
    });
    assert!(wrong);
}

/// One thread's part: memory of all kinds, always its own.
fn part(context: u64, seed: u64) {
    ok(cuCtxSetCurrent(context));
    let mut random = Random(seed);
    for round in 0..60_u8 {
        let s = stream(u32::from(round % 2));
        let (bytes, mut a) = (1 + random.below(100_000) as u64, 0);
        match random.below(3) {
            0 => a = alloc(bytes),
            _ => ok(cuMemAllocAsync(&mut a, bytes, s)),
        }
        ok(cuMemsetD8Async(a, round, bytes, s));
        let mut last = [0_u8];
        ok(cuMemcpyDtoHAsync_v2(last.as_mut_ptr() as u64, a + bytes - 1, 1, s));
        assert_eq!(last[0], round);
        let pin = pinned(64);
        ok(cuMemcpyDtoHAsync_v2(pin, a, bytes.min(64), s));
        match random.below(2) {
            0 => ok(cuMemFree_v2(a)),
            _ => ok(cuMemFreeAsync(a, s)),
        }
        ok(cuStreamSynchronize(s));
        // SAFETY: pinned memory, and the copy into it is done.
        assert_eq!(unsafe { *(pin as *const u8) }, round);
        ok(cuMemFreeHost(pin));
        page_of_its_own(s, round);
        ok(cuStreamDestroy_v2(s));
    }
}

fn page_of_its_own(s: u64, value: u8) {
    let (mut at, mut handle) = (0, 0);
    ok(cuMemAddressReserve(&mut at, PAGE, 0, 0, 0));
    ok(cuMemCreate(&mut handle, PAGE, &PROPERTIES, 0));
    ok(cuMemMap(at, PAGE, 0, handle, 0));
    ok(cuMemRelease(handle));
    ok(cuMemSetAccess(at, PAGE, &FULL, 1));
    ok(cuMemsetD8Async(at + 4096, value, 8, s));
    ok(cuStreamSynchronize(s));
    ok(cuMemUnmap(at, PAGE));
    ok(cuMemAddressFree(at, PAGE));
}

#[test]
fn threads_do_not_disturb_each_other() {
    let machine = Machine::new();
    simcuda_jitter(7, 30);
    let context = machine.context;
    let threads: Vec<_> =
        (0..6).map(|seed| std::thread::spawn(move || part(context, seed))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    ok(cuCtxSynchronize());
    for kind in ["allocations", "streams", "host", "handles", "mappings", "reservations", "bytes"] {
        assert_eq!(alive(kind), 0, "{kind}");
    }
    assert_eq!(alive("violations"), 0);
}
