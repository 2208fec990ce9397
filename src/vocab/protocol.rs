//! Protocol: what the world says to the core ([`Input`]), what the core says back ([`Output`]), what it
//! wants done on the device ([`Want`]) and how the device answers ([`Answer`]).
//!
//! The core never calls a device. It returns a want; whoever pumps it performs the call with no lock held
//! and hands the answer back in. Every want gets exactly one answer (invariant **H3**).

use alloc::boxed::Box;
use core::fmt;

use super::report::Report;
use super::units::{Address, BlockId, PoolId, Serial, StreamId, Ticket};

/// One thing that happened outside the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A request for `bytes` on `stream` from `pool`. Zero bytes are answered by [`Output::Quiet`].
    Alloc {
        /// Names this request and the block it gets.
        ticket: Ticket,
        /// The client's size in bytes, not rounded.
        bytes: u64,
        /// The stream whose work will use the block first.
        stream: StreamId,
        /// The pool to serve from.
        pool: PoolId,
    },
    /// `stream` uses the block besides its own stream (PyTorch's `record_stream`).
    Use {
        /// The live block.
        block: BlockId,
        /// The other stream.
        stream: StreamId,
    },
    /// The client is done with the block; its memory is free once every stream that used it is.
    Free {
        /// The live block.
        block: BlockId,
    },
    /// Give cached memory back to the driver (`empty_cache`).
    Trim {
        /// Names this request.
        ticket: Ticket,
        /// How much, and whose.
        target: Target,
    },
    /// A stream begins to record its work into a graph, or has ended doing so. Captures nest. While
    /// one is underway nothing is given back, polled or waited for, and frees that need a fence are
    /// deferred; the end of the last one may want fences under its ticket, then it is
    /// [`Output::Quiet`].
    Capture {
        /// Names this request.
        ticket: Ticket,
        /// It begins, or else ends.
        begins: bool,
    },
    /// The limit from now on. What is reserved above it stays; growth is judged by it at once.
    Limit {
        /// The most that may be reserved, in bytes; `None`: no limit.
        bytes: Option<u64>,
    },
    /// A private pool has no users left: its segments may be returned.
    Retire {
        /// The pool.
        pool: PoolId,
    },
    /// A parked request tries again, after something that was in flight has landed.
    Retry {
        /// The parked request.
        ticket: Ticket,
    },
    /// The device's answer to the want that `ticket` returned last.
    Answer {
        /// The request that wanted.
        ticket: Ticket,
        /// What the device said.
        answer: Answer,
    },
}

/// Whose cached memory a trim gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything that is idle.
    All,
    /// One pool only; pending frees are not waited for.
    Pool(PoolId),
    /// So many bytes, or more where segments or pages are larger, in few driver calls. Pending frees
    /// are waited for only where what is idle does not do.
    AtLeast(u64),
}

/// What the core says in answer to an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The request has its block.
    Served {
        /// The request.
        ticket: Ticket,
        /// The block; hand it back in [`Input::Free`].
        block: BlockId,
        /// Where it starts.
        address: Address,
    },
    /// Perform this on the device, then send [`Input::Answer`].
    Want {
        /// The request that wants.
        ticket: Ticket,
        /// What it wants.
        want: Want,
    },
    /// Wait until an answer to another request's want has come in, then send [`Input::Retry`].
    Park {
        /// The request that waits.
        ticket: Ticket,
    },
    /// The request cannot be served: out of memory.
    Failed {
        /// The request, which no longer exists.
        ticket: Ticket,
        /// Why, as plain data.
        report: Box<Report>,
    },
    /// The driver failed for another reason than memory; the request no longer exists.
    DriverFailed {
        /// The request.
        ticket: Ticket,
        /// What the driver said.
        fault: Fault,
        /// Bytes that a trim had given back to the driver before; 0 for other requests.
        released: u64,
    },
    /// A trim is done.
    Trimmed {
        /// The request, which no longer exists.
        ticket: Ticket,
        /// Bytes given back to the driver.
        released: u64,
    },
    /// The input made no sense (an unknown block, an answer nobody waits for); nothing was changed.
    Refused {
        /// What was wrong with it.
        fault: Fault,
    },
    /// Done; nothing to say.
    Quiet,
}

/// A call the core wants made on the device. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A segment of its own (`cuMemAlloc`). Answer: [`Answer::Granted`].
    Reserve {
        /// Its size.
        bytes: u64,
    },
    /// Give a segment back (`cuMemFree`), once all work that may use it is done. Answer: [`Answer::Released`].
    Release {
        /// Where it starts.
        base: Address,
        /// Its size.
        bytes: u64,
    },
    /// Address space without memory (`cuMemAddressReserve`). Answer: [`Answer::Granted`].
    ReserveRange {
        /// Its size.
        bytes: u64,
        /// The page size that will be mapped into it.
        page: u64,
    },
    /// Give address space back (`cuMemAddressFree`). Answer: [`Answer::Released`].
    ReleaseRange {
        /// Where it starts.
        base: Address,
        /// Its size.
        bytes: u64,
    },
    /// Put fresh memory under a range, page by page, all or nothing. Answer: [`Answer::Mapped`].
    Map {
        /// Where the range starts.
        base: Address,
        /// Its size, a multiple of `page`.
        bytes: u64,
        /// The size of one handle.
        page: u64,
    },
    /// Take the memory from under a range, once the work of `stream` is done. Answer: [`Answer::Unmapped`].
    Unmap {
        /// Where the range starts.
        base: Address,
        /// Its size, a multiple of `page`.
        bytes: u64,
        /// The size of one handle.
        page: u64,
        /// The stream whose work may still use the range.
        stream: StreamId,
    },
    /// Record fence `serial` at the end of `stream`'s work. Answer: [`Answer::Fenced`].
    Fence {
        /// The stream.
        stream: StreamId,
        /// The fence's number on it.
        serial: Serial,
    },
    /// Ask, without waiting, which fences of `stream` have passed. Answer: [`Answer::Passed`].
    Poll {
        /// The stream.
        stream: StreamId,
        /// The newest fence the core knows of.
        newest: Serial,
    },
    /// Have `waiter`'s later work wait for fence `serial` of `after`, which was recorded; the host
    /// does not wait (`cudaStreamWaitEvent`). Answer: [`Answer::Ordered`].
    Order {
        /// The stream that is held back.
        waiter: StreamId,
        /// The stream of the fence.
        after: StreamId,
        /// The fence.
        serial: Serial,
    },
    /// Wait until fence `serial` of `stream` has passed. Answer: [`Answer::Passed`].
    Wait {
        /// The stream.
        stream: StreamId,
        /// The fence.
        serial: Serial,
    },
}

/// How the device answered a want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The segment or range starts here.
    Granted {
        /// Its first byte.
        base: Address,
    },
    /// A shorter range than was asked for starts here (to [`Want::ReserveRange`] only).
    GrantedRange {
        /// Its first byte.
        base: Address,
        /// Its size, whole pages, at most what was asked for.
        bytes: u64,
    },
    /// The whole range is mapped.
    Mapped,
    /// The whole range is unmapped.
    Unmapped,
    /// The segment or range is gone.
    Released,
    /// The fence is recorded.
    Fenced,
    /// The waiter's later work stands behind the fence.
    Ordered,
    /// Every fence of the stream up to and including this one has passed.
    Passed {
        /// The newest fence known to have passed.
        through: Serial,
    },
    /// The call failed and changed nothing.
    Refused(Fault),
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The driver has no memory left for this call.
    OutOfMemory,
    /// No address range is left, though there may be memory.
    OutOfAddresses,
    /// The driver failed for another reason; its own code.
    Driver(i32),
    /// The driver has no memory left for a call that asks for none: the request is not what was too large.
    NoMemoryFor(Call),
    /// No live block has this id: never allocated, or freed before.
    UnknownBlock,
    /// No request waits under this ticket.
    UnknownTicket,
    /// No pool has this number.
    UnknownPool,
    /// The answer does not fit the want.
    WrongAnswer,
    /// No capture is underway that could end.
    NoCapture,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("the device is out of memory"),
            Self::OutOfAddresses => f.write_str("no address range is left"),
            Self::Driver(code) => write!(f, "the driver failed with code {code}"),
            Self::NoMemoryFor(call) => {
                write!(f, "the driver said that it is out of memory when it was to {}", call.name())
            }
            Self::UnknownBlock => {
                f.write_str("no live block has this id (never allocated, or already freed)")
            }
            Self::UnknownTicket => f.write_str("no request waits under this ticket"),
            Self::UnknownPool => f.write_str("no pool has this number"),
            Self::WrongAnswer => f.write_str("the answer does not fit the want"),
            Self::NoCapture => f.write_str("no capture is underway"),
        }
    }
}

impl core::error::Error for Fault {}

impl Fault {
    /// The fault, as a call reports it that asks for no memory.
    #[must_use]
    pub const fn of(self, call: Call) -> Self {
        match self {
            Self::OutOfMemory => Self::NoMemoryFor(call),
            other => other,
        }
    }
}

/// A driver call that asks for no memory, and whose refusal ends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Want::Poll`].
    Poll,
    /// [`Want::Wait`].
    Wait,
    /// [`Want::Release`].
    Release,
    /// [`Want::ReleaseRange`].
    ReleaseRange,
    /// [`Want::Unmap`].
    Unmap,
}

impl Call {
    /// What it does.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll a stream",
            Self::Wait => "wait for a stream",
            Self::Release => "take a segment back",
            Self::ReleaseRange => "take an address range back",
            Self::Unmap => "unmap pages",
        }
    }
}

/// The tie rule among free blocks of equal size: part of the policy, total, and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// By segment creation, then address, as PyTorch 2.15.
    SegmentThenAddress,
    /// By address, as PyTorch's older releases.
    Address,
}
