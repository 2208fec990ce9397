//! Rig: a heap, its statistics and a simulated device under one hand, for tests that tell a story.
//!
//! Blocks are named by the story's own numbers. After every step the heap is audited and the
//! statistics are compared with a recount.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;

use blockyard::device::{Device, SimConfig, SimDevice};
use blockyard::heap::Heap;
use blockyard::ledger::Stats;
use blockyard::policy::Policy;
use blockyard::vocab::{
    Address, BlockId, Input, MIB, Output, PoolId, PoolUsage, Report, Serial, StreamId, Target,
    Ticket,
};

pub struct Rig {
    pub heap: Heap,
    pub stats: Stats,
    pub device: SimDevice,
    blocks: BTreeMap<u64, BlockId>,
    next: u64,
}

impl Rig {
    /// On a device of so many MiB.
    pub fn new(policy: Policy, mib: u64) -> Self {
        Self::on(policy, SimConfig::with_capacity(mib * MIB))
    }

    pub fn on(policy: Policy, config: SimConfig) -> Self {
        Self {
            stats: Stats::new(policy.max_split),
            heap: Heap::new(policy, config.capacity),
            device: SimDevice::new(config),
            blocks: BTreeMap::new(),
            next: 1 << 40,
        }
    }

    pub fn pump(&mut self, mut input: Input) -> Output {
        let output = loop {
            match self.heap.apply(input, &mut self.stats) {
                Output::Want { ticket, want } => {
                    input = Input::Answer { ticket, answer: self.device.perform(want) };
                }
                output => break output,
            }
        };
        self.heap.audit().unwrap();
        assert_eq!(self.stats.disagreement(&self.heap.view()), None, "R1 after {input:?}");
        output
    }

    /// A request as block `id`: bytes, stream, pool.
    pub fn request(
        &mut self,
        id: u64,
        bytes: u64,
        stream: u32,
        pool: u32,
    ) -> Result<Address, Box<Report>> {
        let (ticket, stream, pool) = (Ticket(id), StreamId(stream), PoolId(pool));
        match self.pump(Input::Alloc { ticket, bytes, stream, pool }) {
            Output::Served { block, address, .. } => {
                assert_eq!(self.blocks.insert(id, block), None, "block {id} lives");
                Ok(address)
            }
            Output::Failed { report, .. } => Err(report),
            other => panic!("{other:?}"),
        }
    }

    /// A request of so many MiB on stream 0, which must be served.
    pub fn alloc(&mut self, id: u64, mib: u64) {
        self.request(id, mib * MIB, 0, 0).unwrap_or_else(|report| panic!("{report}"));
    }

    /// A request of so many MiB on stream 0, which must fail.
    pub fn fail(&mut self, mib: u64) -> Report {
        self.next += 1;
        *self.request(self.next, mib * MIB, 0, 0).expect_err("it should not fit")
    }

    pub fn free(&mut self, id: u64) {
        let block = self.blocks.remove(&id).unwrap();
        assert_eq!(self.pump(Input::Free { block }), Output::Quiet);
    }

    pub fn use_on(&mut self, id: u64, stream: u32) {
        let (block, stream) = (self.blocks[&id], StreamId(stream));
        assert_eq!(self.pump(Input::Use { block, stream }), Output::Quiet);
    }

    /// Bytes given back.
    pub fn trim(&mut self) -> u64 {
        self.trim_target(Target::All)
    }

    pub fn trim_target(&mut self, target: Target) -> u64 {
        self.next += 1;
        match self.pump(Input::Trim { ticket: Ticket(self.next), target }) {
            Output::Trimmed { released, .. } => released,
            other => panic!("{other:?}"),
        }
    }

    pub fn retire(&mut self, pool: u32) {
        assert_eq!(self.pump(Input::Retire { pool: PoolId(pool) }), Output::Quiet);
    }

    /// All fences of a stream pass.
    pub fn pass(&mut self, stream: u32, serial: u64) {
        self.device.pass(StreamId(stream), Serial(serial));
    }

    /// Bytes of all pools, classes and streams.
    pub fn usage(&self) -> PoolUsage {
        let mut sum = PoolUsage::default();
        for (.., usage) in self.heap.usage() {
            sum.reserved_bytes += usage.reserved_bytes;
            sum.allocated_bytes += usage.allocated_bytes;
            sum.releasable_bytes += usage.releasable_bytes;
            sum.pinned_free_bytes += usage.pinned_free_bytes;
            sum.awaiting_free_bytes += usage.awaiting_free_bytes;
            sum.largest_free_bytes = sum.largest_free_bytes.max(usage.largest_free_bytes);
        }
        sum
    }

    /// Reserved, in whole MiB.
    pub fn reserved(&self) -> u64 {
        assert_eq!(self.heap.reserved() % MIB, 0);
        self.heap.reserved() / MIB
    }

    /// Allocated, in whole MiB.
    pub fn allocated(&self) -> u64 {
        self.stats.allocated_bytes() / MIB
    }
}
