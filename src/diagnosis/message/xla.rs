//! Message of TensorFlow and XLA: the BFC allocator's dump, JAX on GPUs, TPUs.
//!
//! Asked by `message`. A dump has the whole pool in it, chunk by chunk, so it is judged like a heap;
//! without one the figures that decide are missing, and that is said.

use crate::diagnosis::message::figures::{Size, size_at};
use crate::diagnosis::message::runtimes::{figure, found, impossible, with};
use crate::diagnosis::message::{behind, between};
use crate::diagnosis::verdict::{Class, Figure, Judgement};
use crate::vocab::Human;

/// A program this small fits any device: whoever fills it is somebody else.
const SMALL_PROGRAM: u64 = 256 << 20;

/// Free chunks of a dump.
#[derive(Default)]
struct Chunks {
    free: u64,
    largest: u64,
    live: u64,
    seen: bool,
}

pub(crate) fn tensorflow(message: &str) -> Judgement {
    let wanted = requested(message);
    let plain =
        |anchor: &str| behind(message, anchor).and_then(|rest| Some(size_at(rest, true)?.0));
    let limit =
        ["pool limit ", "memory_limit_: ", "Limit: "].iter().find_map(|anchor| plain(anchor));
    let live = plain("InUse: ").or_else(|| plain("Sum Total of in-use chunks: "));
    let size =
        ["pool size ", "Total size in pool: ", "total_region_allocated_bytes_: ", "Reserved: "]
            .iter()
            .find_map(|anchor| plain(anchor))
            .filter(|size| size.bytes > 0);
    let chunks = chunks(message);
    let free =
        if chunks.seen { Some(Size::exact(chunks.free)) } else { plain("total free in pool ") };
    let largest = if chunks.seen {
        Some(Size::exact(chunks.largest))
    } else {
        largest_usable(message).or_else(|| plain("LargestFreeBlock: "))
    };
    let live = live.or_else(|| chunks.seen.then(|| Size::exact(chunks.live)));
    let room = plain("unallocated bytes ").or_else(|| Some(limit?.minus(size?)));
    let mut judgement = with(&[
        ("requested_bytes", wanted, "asked for, rounded"),
        ("limit_bytes", limit, "of the pool"),
        ("reserved_bytes", size, "the pool's size"),
        ("allocated_bytes", live, "chunks in use"),
        ("cached_free_bytes", free, "free chunks"),
        ("largest_free_bytes", largest, "the largest free chunk"),
        ("room_bytes", room, "left to grow by"),
    ]);
    if message.contains("this is not a failure") {
        judgement.warn("the caller says that this is no failure: it goes on with less");
    }
    if impossible(&mut judgement, wanted, limit) {
        return judgement;
    }
    if let (Some(wanted), Some(limit)) = (wanted, limit) {
        let free = free.unwrap_or_default();
        pool(
            &mut judgement,
            wanted,
            limit,
            [live, room, largest].map(Option::unwrap_or_default),
            free,
        );
    } else {
        judgement.warn(
            "the allocator's dump is not in the text: paste it as well (it follows the warning)",
        );
    }
    judgement
}

/// Judges a pool with a limit.
fn pool(judgement: &mut Judgement, wanted: Size, limit: Size, figures: [Size; 3], free: Size) {
    let [live, room, largest] = figures;
    if room.bytes >= wanted.bytes {
        let sentence = format!(
            "the pool may grow by {} and asked for {}: the device itself refused, so its memory is held outside \
             this pool",
            Human(room.bytes),
            Human(wanted.bytes)
        );
        found(judgement, Class::HiddenConsumer, room.bytes, sentence);
    } else if free.bytes + room.bytes >= wanted.bytes && largest.bytes < wanted.bytes {
        let sentence = format!(
            "{} are free in the pool and {} left to grow by, but the largest free chunk has {} of {}: chunks in \
             use lie between",
            Human(free.bytes),
            Human(room.bytes),
            Human(largest.bytes),
            Human(wanted.bytes)
        );
        found(judgement, Class::Fragmentation, free.bytes, sentence);
    } else if live.plus(wanted).bytes > limit.bytes {
        let short = live.plus(wanted).minus(limit).bytes;
        judgement.evidence.push(Figure::of("short_bytes", short, "more than there is"));
        let sentence = format!(
            "{} are in use of a pool of {}, {} were asked for: {} short",
            Human(live.bytes),
            Human(limit.bytes),
            Human(wanted.bytes),
            Human(short)
        );
        found(judgement, Class::Capacity, short, sentence);
    } else {
        judgement.warn("the chunks are not in the text, or its figures do not explain the failure");
    }
}

/// `trying to allocate 1.19GiB (rounded to 1280000000)`, or the shape of the tensor.
fn requested(message: &str) -> Option<Size> {
    let rest = behind(message, "rying to allocate ");
    let rounded = rest.and_then(|rest| between(rest, "(rounded to ", ")"));
    let rounded = rounded.and_then(|rounded| Some(size_at(rounded, true)?.0));
    rounded.or_else(|| rest.and_then(figure)).or_else(|| tensor(message))
}

/// `shape[8,1024] and type float on`.
fn tensor(message: &str) -> Option<Size> {
    let shape = between(message, "shape[", "]")?;
    let kind = between(message, " and type ", " on ")?;
    let width = match kind.trim() {
        "double" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        "half" | "bfloat16" | "int16" | "uint16" => 2,
        "int8" | "uint8" | "bool" => 1,
        "float" | "int32" | "uint32" => 4,
        _ => return None,
    };
    let sides = shape.split(',').map(|side| side.trim().parse::<u64>());
    let elements = sides.map(Result::ok).try_fold(1u64, |product, side| product.checked_mul(side?));
    elements?.checked_mul(width).map(Size::exact)
}

fn largest_usable(message: &str) -> Option<Size> {
    let rest = behind(message, "largest free chunk usable by ")?;
    figure(behind(rest, " end ")?)
}

/// `InUse at 7f.. of size N next 4`, `Free at 7f.. of size N next ..`.
fn chunks(message: &str) -> Chunks {
    let mut chunks = Chunks::default();
    for (place, word) in message.match_indices(" at ") {
        let rest = &message[place + word.len()..];
        let mut words = rest.split(' ');
        let (Some(_), Some("of"), Some("size"), Some(size)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(size) = size.parse::<u64>() else { continue };
        if message[..place].ends_with("Free") {
            chunks.free += size;
            chunks.largest = chunks.largest.max(size);
        } else {
            chunks.live += size;
        }
        chunks.seen = true;
    }
    chunks
}

pub(crate) fn xla(message: &str) -> Judgement {
    if message.starts_with("Ran out of memory in memory space") {
        return memory_space(message);
    }
    if message.starts_with("Attempting to") { tpu(message) } else { gpu(message) }
}

fn gpu(message: &str) -> Judgement {
    let wanted = behind(message, "rying to allocate ").and_then(figure);
    let plan = behind(message, "total allocation:").and_then(figure);
    let temporary = behind(message, "preallocated temp allocation:").and_then(figure);
    let mut judgement = with(&[
        ("requested_bytes", wanted, "asked for"),
        ("program_bytes", plan, "all buffers of the program"),
        ("temporary_bytes", temporary, "its temporaries"),
    ]);
    if impossible(&mut judgement, wanted, None) {
        return judgement;
    }
    match plan {
        Some(plan) if plan.bytes < SMALL_PROGRAM => {
            let sentence = format!(
                "the whole program needs {}: the device was already full of other memory",
                Human(plan.bytes)
            );
            found(&mut judgement, Class::HiddenConsumer, plan.bytes, sentence);
        }
        Some(_) => judgement.warn("the device's size and what it had free are not in the text"),
        None => {
            judgement.warn(
                "neither the device's size nor the program's buffers are in the text: paste the lines behind it as well",
            );
        }
    }
    judgement
}

/// `Attempting to allocate 12.00G. That was not possible. There are 10.52G free.`
fn tpu(message: &str) -> Judgement {
    let wanted = ["to allocate ", "to reserve "]
        .iter()
        .find_map(|anchor| behind(message, anchor).and_then(figure));
    let free = behind(message, "There are ").and_then(figure);
    let largest = behind(message, "contiguous region of free memory is ").and_then(figure);
    let mut judgement = with(&[
        ("requested_bytes", wanted, "asked for"),
        ("driver_free_bytes", free, "on the device"),
        ("largest_free_bytes", largest, "in one piece"),
    ]);
    let (Some(wanted), Some(free)) = (wanted, free) else {
        judgement.warn("the message is cut or garbled: not all of its figures read");
        return judgement;
    };
    if wanted.bytes > free.bytes {
        let short = wanted.minus(free).bytes;
        judgement.evidence.push(Figure::of("short_bytes", short, "more than there is"));
        let sentence = format!(
            "{} were asked for and {} are free: {} short",
            Human(wanted.bytes),
            Human(free.bytes),
            Human(short)
        );
        found(&mut judgement, Class::Capacity, short, sentence);
    } else if let Some(largest) = largest {
        let sentence = format!(
            "{} are free, but the largest piece has {} of {}",
            Human(free.bytes),
            Human(largest.bytes),
            Human(wanted.bytes)
        );
        found(&mut judgement, Class::Fragmentation, free.bytes, sentence);
    } else {
        let sentence = format!(
            "{} are free and {} were refused; the size of the largest piece is not in the text",
            Human(free.bytes),
            Human(wanted.bytes)
        );
        found(&mut judgement, Class::NotExhausted, free.bytes, sentence);
    }
    judgement
}

/// `Ran out of memory in memory space hbm. Used 20.50G of 15.48G hbm. Exceeded hbm capacity by 5.02G.`
fn memory_space(message: &str) -> Judgement {
    let used = behind(message, "Used ").and_then(figure);
    let most = behind(message, "Used ").and_then(|rest| figure(behind(rest, " of ")?));
    let over = behind(message, "capacity by ").and_then(figure);
    let mut judgement = with(&[
        ("requested_bytes", used, "what the program uses"),
        ("device_bytes", most, "what there is"),
        ("short_bytes", over, "more than there is"),
    ]);
    match (used, most) {
        (Some(used), Some(most)) if used.bytes > most.bytes => {
            let short = over.unwrap_or_else(|| used.minus(most)).bytes;
            let sentence = format!(
                "the compiled program uses {} of {}: {} short",
                Human(used.bytes),
                Human(most.bytes),
                Human(short)
            );
            found(&mut judgement, Class::Capacity, short, sentence);
        }
        _ => judgement.warn("the message is cut or garbled: not all of its figures read"),
    }
    judgement
}
