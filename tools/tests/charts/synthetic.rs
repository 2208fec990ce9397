//! Synthetic heaps: charts' inputs of many shapes from a seed, as real programs might leave them.

use std::collections::BTreeMap;

use blockyard::vocab::{
    Address, BlockState, BlockView, Class, GIB, HeapView, KIB, MIB, PoolId, SegmentView, StreamId,
    Ticket,
};
use blockyard_tools::charts::model::{
    AddressTimeData, BlockLife, Caption, CompareData, DeviceUse, FailedRequest, FleetData,
    FragmentationData, FreeSample, HistogramData, MapData, Peak, Run, Sample, SegmentLife,
    TimelineData,
};

/// A small generator of numbers (xorshift), the same from the same seed.
pub struct Seed(pub u64);

impl Seed {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub fn caption(title: &str, verdict: &str, alarm: bool) -> Caption {
    Caption {
        title: title.to_string(),
        subtitle: "synthetic.pickle · device 0 · policy pytorch · at event 8,123".to_string(),
        verdict: verdict.to_string(),
        alarm,
    }
}

/// How the segments of one group are made.
#[derive(Clone, Copy)]
pub struct Kind {
    pub segments: u64,
    pub bytes: (u64, u64),
    pub block: (u64, u64),
    pub free_percent: u64,
    pub class: Class,
    pub stream: u32,
    pub pool: u32,
}

impl Kind {
    pub fn large(segments: u64, bytes: (u64, u64), block: (u64, u64), free_percent: u64) -> Self {
        Self { segments, bytes, block, free_percent, class: Class::Large, stream: 0, pool: 0 }
    }

    pub fn small(segments: u64) -> Self {
        let (bytes, block) = ((2 * MIB, 2 * MIB), (512, 256 * KIB));
        Self { segments, bytes, block, free_percent: 25, class: Class::Small, stream: 0, pool: 0 }
    }

    pub fn on(self, stream: u32, pool: u32) -> Self {
        Self { stream, pool, ..self }
    }
}

pub fn view(seed: u64, kinds: &[Kind]) -> HeapView {
    let mut seed = Seed(seed);
    let (mut base, mut ticket, mut segments) = (0x7f00_0000_0000u64, 0, Vec::new());
    for kind in kinds {
        for _ in 0..kind.segments {
            let span = kind.bytes.1 - kind.bytes.0;
            let bytes = (kind.bytes.0 + seed.below(span + 1)).div_ceil(2 * MIB) * 2 * MIB;
            segments.push(segment(
                &mut seed,
                *kind,
                base,
                bytes,
                &mut ticket,
                segments.len() as u64,
            ));
            base += bytes + 2 * MIB * seed.below(3);
        }
    }
    HeapView { segments }
}

fn segment(
    seed: &mut Seed,
    kind: Kind,
    base: u64,
    bytes: u64,
    ticket: &mut u64,
    order: u64,
) -> SegmentView {
    let (mut at, mut blocks, mut free) = (0, Vec::new(), true);
    while at < bytes {
        let asked = kind.block.0 + seed.below(kind.block.1 - kind.block.0 + 1);
        let block = (asked.div_ceil(512) * 512).min(bytes - at);
        let state = match () {
            () if !free && seed.chance(kind.free_percent) => BlockState::Free,
            () if seed.chance(2) => BlockState::AwaitingFree,
            () => BlockState::Allocated,
        };
        free = state == BlockState::Free;
        let waste = if seed.chance(20) { block / 8 } else { 0 };
        let requested = if free { 0 } else { block - waste };
        *ticket += 1;
        let (address, ticket) = (Address(base + at), Ticket(*ticket));
        blocks.push(BlockView { address, bytes: block, requested, state, ticket });
        at += block;
    }
    SegmentView {
        base: Address(base),
        bytes,
        stream: StreamId(kind.stream),
        pool: PoolId(kind.pool),
        class: kind.class,
        expandable: false,
        order,
        blocks,
    }
}

/// Names for every block, such as a training script's modules.
fn owners(view: &HeapView) -> BTreeMap<Ticket, String> {
    let names = [
        "transformer.h.3.attn.c_attn (forward)",
        "AdamW.step: exp_avg",
        "CrossEntropyLoss <logits & labels>",
        "torch/nn/functional.py:2345 linear",
        "transformer.h.11.mlp.c_proj.weight, a name that is much too long for any bar or list to hold",
    ];
    let blocks = view.segments.iter().flat_map(|segment| &segment.blocks);
    blocks.map(|block| (block.ticket, names[block.ticket.0 as usize % 5].to_string())).collect()
}

fn map(title: &str, view: HeapView) -> MapData {
    let verdict = "5.90 GiB are live in 130 segments; nothing failed";
    let owners = owners(&view);
    MapData { caption: caption(title, verdict, false), view, owners, ..MapData::default() }
}

pub fn empty() -> MapData {
    map("Memory at the start", HeapView::default())
}

pub fn three() -> MapData {
    let kinds = [Kind::large(2, (20 * MIB, 32 * MIB), (2 * MIB, 9 * MIB), 40), Kind::small(1)];
    map("Memory map: three segments", view(3, &kinds))
}

pub fn fragmented() -> MapData {
    let kinds = [
        Kind::large(98, (20 * MIB, 60 * MIB), (MIB, 24 * MIB), 45),
        Kind::large(10, (200 * MIB, 700 * MIB), (9 * MIB, 300 * MIB), 45),
        Kind::small(22),
    ];
    let view = view(130, &kinds);
    let request = FailedRequest {
        bytes: 1_460_000_256,
        stream: StreamId(0),
        pool: PoolId(0),
        class: Class::Large,
        largest_free_bytes: largest_free(&view),
    };
    let verdict = "fragmentation: 1.89 GiB are free in the cache and 1.04 GiB on the device, but no one \
                   range holds 1.36 GiB (largest free: 280.00 MiB); live blocks pin the rest. The same \
                   run completes with expandable segments or with max_split_size_mb:128";
    let reserved: u64 = view.segments.iter().map(|segment| segment.bytes).sum();
    MapData {
        caption: caption("Out of memory: GPT-2, variable length, batch 8", verdict, true),
        request: Some(request),
        capacity_bytes: Some(reserved + GIB),
        ..map("", view)
    }
}

fn largest_free(view: &HeapView) -> u64 {
    let blocks = view.segments.iter().filter(|s| s.class == Class::Large).flat_map(|s| &s.blocks);
    let free = blocks.filter(|block| block.state == BlockState::Free);
    free.map(|block| block.bytes).max().unwrap_or(0)
}

pub fn many() -> MapData {
    let kinds = [
        Kind::large(700, (20 * MIB, 40 * MIB), (MIB, 20 * MIB), 30),
        Kind::large(50, (100 * MIB, 900 * MIB), (10 * MIB, 200 * MIB), 30),
        Kind::small(400),
    ];
    map("Memory map: 1,150 segments", view(1150, &kinds))
}

pub fn huge_among_small() -> MapData {
    let kinds = [
        Kind::large(1, (80 * GIB, 80 * GIB), (100 * MIB, 3 * GIB), 30),
        Kind::small(60),
        Kind::large(3, (20 * MIB, 20 * MIB), (2 * MIB, 12 * MIB), 30),
    ];
    MapData {
        capacity_bytes: Some(96 * GIB),
        ..map("Memory map: one 80 GiB segment", view(80, &kinds))
    }
}

pub fn forty_streams() -> MapData {
    let kinds: Vec<Kind> = (0..40)
        .flat_map(|stream| {
            let large =
                Kind::large(1 + u64::from(stream) % 4, (20 * MIB, 200 * MIB), (MIB, 30 * MIB), 40);
            [large.on(stream, 0), Kind::small(1 + u64::from(stream) % 3).on(stream, 0)]
        })
        .chain([Kind::large(6, (20 * MIB, 80 * MIB), (MIB, 30 * MIB), 40).on(0, 1)])
        .collect();
    map("Memory map: forty streams", view(40, &kinds))
}

/// A page-mapped range with holes in it.
pub fn expandable() -> MapData {
    let mut view = view(7, &[Kind::large(2, (4 * GIB, 6 * GIB), (20 * MIB, 400 * MIB), 40)]);
    for segment in &mut view.segments {
        segment.expandable = true;
        let count = segment.blocks.len();
        for block in segment.blocks.iter_mut().skip(count / 2) {
            if block.state == BlockState::Free || block.address.0 % 3 == 0 {
                (block.state, block.requested) = (BlockState::Unmapped, 0);
            }
        }
    }
    map("Memory map: expandable segments", view)
}

/// A request that no device could hold.
pub fn impossible() -> MapData {
    let request = FailedRequest {
        bytes: 1 << 50,
        stream: StreamId(3),
        pool: PoolId(0),
        class: Class::Large,
        largest_free_bytes: 0,
    };
    let verdict =
        "impossible-size: the request of 1.00 PiB is larger than the device could ever hold";
    MapData {
        request: Some(request),
        capacity_bytes: Some(8 * GIB),
        caption: caption("Out of memory: an impossible size", verdict, true),
        ..three()
    }
}

/// Training steps: up in the forward pass, down in the backward pass, reserved never falling.
pub fn timeline(events: u64) -> TimelineData {
    let mut seed = Seed(events + 1);
    let (mut live, mut reserved, mut samples) = (GIB, GIB, Vec::new());
    let step = (events / 24).max(2);
    for event in 0..events {
        let grow = event % step < step / 2;
        let change = seed.below(5 * GIB / step * 2 + 1);
        live = if grow { live + change } else { live.saturating_sub(change).max(GIB) };
        let awaiting = if event % step > step / 2 { live / 16 } else { 0 };
        reserved = reserved.max((live + awaiting).div_ceil(20 * MIB) * 20 * MIB);
        let requested = live - live / 40;
        samples.push(Sample {
            event,
            allocated: live,
            active: live + awaiting,
            reserved,
            requested,
        });
    }
    let peak = |value: fn(&Sample) -> u64| {
        let best = samples.iter().rev().max_by_key(|sample| value(sample));
        best.map(|sample| Peak { event: sample.event, bytes: value(sample) })
    };
    let verdict = "reserved never falls: 2.10 GiB above the peak of what was live";
    TimelineData {
        caption: caption("Memory over time: 24 training steps", verdict, false),
        capacity_bytes: Some(reserved + GIB / 2),
        peak_allocated: peak(|sample| sample.allocated),
        peak_reserved: peak(|sample| sample.reserved),
        ooms: if events > 100 { vec![events * 3 / 4, events * 3 / 4 + 3] } else { Vec::new() },
        markers: (0..24).map(|n| (n * step, format!("step {n}"))).collect(),
        samples,
    }
}

/// Blocks of training steps in segments, first fit, with a few that stay.
pub fn address_time(count: usize) -> AddressTimeData {
    let mut seed = Seed(count as u64 + 9);
    let mut arena = Arena::default();
    let (mut live, mut blocks, mut event) = (Vec::new(), Vec::with_capacity(count), 0u64);
    let step = (count as u64 / 12).clamp(4, 4000);
    while blocks.len() + live.len() < count {
        event += 1;
        let grow = event % step < step / 2;
        if grow || live.is_empty() {
            let bytes = (512 << seed.below(16)) * (1 + seed.below(3));
            live.push((event, arena.take(bytes, event), bytes));
        } else {
            let far = if seed.chance(10) { live.len() as u64 } else { 8.min(live.len() as u64) };
            let back = seed.below(far) as usize;
            if live[live.len() - 1 - back].0 < 40 {
                continue; // Weights are never freed.
            }
            let (start, address, bytes) = live.remove(live.len() - 1 - back);
            arena.give(address, bytes);
            blocks.push(life(start, event, address, bytes));
        }
    }
    let end = event + 1;
    blocks.extend(live.into_iter().map(|(start, address, bytes)| life(start, end, address, bytes)));
    let segments = arena.segments.into_iter().map(|s| SegmentLife { death: end, ..s }).collect();
    AddressTimeData {
        caption: caption(
            "Blocks over time and addresses",
            "long lives pin what lies around them",
            false,
        ),
        blocks,
        segments,
        end_event: end,
        ooms: vec![end * 9 / 10],
    }
}

fn life(start_event: u64, end_event: u64, address: u64, bytes: u64) -> BlockLife {
    let awaiting_free = address.is_multiple_of(97);
    BlockLife { start_event, end_event, address: Address(address), bytes, awaiting_free }
}

/// First fit over segments of 64 MiB, each at an address of its own.
#[derive(Default)]
struct Arena {
    free: BTreeMap<u64, u64>,
    segments: Vec<SegmentLife>,
}

impl Arena {
    fn take(&mut self, bytes: u64, event: u64) -> u64 {
        let hole =
            self.free.iter().find(|(_, room)| **room >= bytes).map(|(at, room)| (*at, *room));
        let (at, room) = hole.unwrap_or_else(|| {
            let number = self.segments.len() as u64;
            let size = bytes.max(64 * MIB);
            let base = 0x7f00_0000_0000 + number * 256 * MIB - number % 3 * (256 * MIB - size);
            let base = if number % 3 == 1 {
                base.max(self.end())
            } else {
                0x7f00_0000_0000 + number * GIB
            };
            self.segments.push(SegmentLife {
                base: Address(base),
                bytes: size,
                birth: event,
                death: 0,
            });
            (base, size)
        });
        self.free.remove(&at);
        if room > bytes {
            self.free.insert(at + bytes, room - bytes);
        }
        at
    }

    fn end(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.base.0 + segment.bytes)
    }

    fn give(&mut self, at: u64, bytes: u64) {
        let mut bytes = bytes;
        if let Some(next) = self.free.remove(&(at + bytes)) {
            bytes += next;
        }
        match self.free.range_mut(..at).next_back() {
            Some((before, room)) if before + *room == at => *room += bytes,
            _ => {
                self.free.insert(at, bytes);
            }
        }
    }
}

pub fn histogram() -> HistogramData {
    let data = fragmented();
    let of = |state| {
        let blocks = data.view.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state == state).map(|block| block.bytes).collect()
    };
    HistogramData {
        caption: caption("Block sizes at the failure", "no free block holds the request", true),
        free: of(BlockState::Free),
        live: of(BlockState::Allocated),
        request_bytes: data.request.map(|request| request.bytes),
    }
}

pub fn fragmentation(events: u64) -> FragmentationData {
    let line = timeline(events);
    let samples = line.samples.iter().map(|sample| {
        let free = sample.reserved - sample.active;
        let (pinned_free, largest_free) = (free / 4 * 3, free / 6);
        FreeSample { event: sample.event, free, pinned_free, largest_free }
    });
    FragmentationData {
        caption: caption(
            "Free memory over time",
            "three quarters of the free memory is pinned",
            false,
        ),
        samples: samples.collect(),
        ooms: line.ooms,
        markers: line.markers,
    }
}

/// Four policies: one as reserved in [`timeline`], two tighter, one that fails.
pub fn compare(events: u64) -> CompareData {
    let line = timeline(events);
    let run = |name: &str, share: u64, until: u64| {
        let samples = line.samples.iter().take_while(|sample| sample.event < until);
        let mut most = 0;
        let reserved = samples.map(|sample| {
            most = most.max(sample.active / 500 * (500 + share));
            (sample.event, most)
        });
        let (name, note) = (name.to_string(), format!("{} driver calls", 100 + share));
        Run { name, note, reserved: reserved.collect(), out_of_memory: until < events }
    };
    CompareData {
        caption: caption(
            "Four policies on one trace",
            "blockyard reserves 12 % less than pytorch",
            false,
        ),
        runs: vec![
            run("pytorch", 100, events),
            run("pytorch-expandable", 30, events),
            run("blockyard", 8, events),
            run("pytorch:max_split_size_mb:128,garbage_collection_threshold:0.8", 90, events / 2),
        ],
        live: line.samples.iter().map(|sample| (sample.event, sample.requested)).collect(),
        capacity_bytes: line.capacity_bytes,
    }
}

pub fn fleet(count: u64) -> FleetData {
    let mut seed = Seed(count + 5);
    let devices = (0..count).map(|rank| DeviceUse {
        name: format!("rank {rank} · device {}", rank % 8),
        allocated_bytes: 40 * GIB + seed.below(30 * GIB),
        awaiting_bytes: seed.below(GIB),
        free_bytes: seed.below(8 * GIB),
        capacity_bytes: 80 * GIB,
        failed: rank % 50 == 3,
    });
    let caption = caption("A job's devices", "rank 3 ran out of memory", true);
    FleetData { caption, devices: devices.collect() }
}
