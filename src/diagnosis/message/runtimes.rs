//! Message of other runtimes: RMM, the Spark plug-in, CuPy, CUDA.jl, llama.cpp, vLLM, DeepSpeed, drivers.
//!
//! Asked by `message`. Each says what its text holds and what is missing in it; where the missing
//! figure would decide, the class is `unknown`.

use crate::diagnosis::message::figures::{Size, size_at};
use crate::diagnosis::message::{behind, between};
use crate::diagnosis::verdict::message::{Figures, judge};
use crate::diagnosis::verdict::{Class, Figure, Finding, Judgement};
use crate::vocab::Human;

/// The largest request that any device of today could hold: 2 TiB.
const ANY_DEVICE: u64 = 2 << 40;

pub(crate) fn figure(text: &str) -> Option<Size> {
    size_at(text, false).map(|(size, _)| size)
}

/// A judgement with these figures as its evidence, those that read.
pub(crate) fn with(rows: &[(&'static str, Option<Size>, &'static str)]) -> Judgement {
    let evidence = rows
        .iter()
        .filter_map(|&(key, size, note)| Some(Figure::of(key, size?.bytes, note)))
        .collect();
    Judgement { evidence, ..Judgement::default() }
}

pub(crate) fn found(judgement: &mut Judgement, class: Class, bytes: u64, sentence: String) {
    judgement.findings.push(Finding::new(class, bytes, sentence));
}

/// A request that no device could serve; whether it was one.
pub(crate) fn impossible(
    judgement: &mut Judgement,
    wanted: Option<Size>,
    most: Option<Size>,
) -> bool {
    let Some(wanted) = wanted else { return false };
    let limit = most.map_or(ANY_DEVICE, |most| most.bytes.saturating_add(most.slack));
    if wanted.bytes.saturating_sub(wanted.slack) <= limit {
        return false;
    }
    let what = if most.is_some() { "there can be" } else { "any device has" };
    let sentence = format!(
        "{} were asked for, more than {what} ({}): look for a wrong shape or length",
        Human(wanted.bytes),
        Human(limit)
    );
    found(judgement, Class::ImpossibleSize, wanted.bytes, sentence);
    true
}

pub(crate) fn rmm(message: &str) -> Judgement {
    let wanted = behind(message, "failed to allocate ").and_then(figure);
    let sizes = behind(message, "current/max/try size = ").map(three_sizes).unwrap_or_default();
    let [current, most, tried] = sizes;
    let mut judgement = with(&[
        ("requested_bytes", wanted, "asked of the pool"),
        ("reserved_bytes", current, "the pool's size"),
        ("limit_bytes", most, "the most that it may have"),
        ("grow_bytes", tried, "what it tried to grow by"),
    ]);
    if impossible(&mut judgement, wanted, most) {
        return judgement;
    }
    let bytes = wanted.map_or(0, |wanted| wanted.bytes);
    if message.starts_with("Maximum allocation size") {
        let sentence =
            "the request is larger than the largest that the resource allows".to_string();
        found(&mut judgement, Class::ImpossibleSize, bytes, sentence);
    } else if let (Some(current), Some(most)) = (current, most) {
        let left = most.minus(current).bytes;
        let sentence = format!(
            "the pool has {} of the {} that it may have: {} are left to grow by, {} were needed in one piece",
            Human(current.bytes),
            Human(most.bytes),
            Human(left),
            Human(tried.or(wanted).map_or(0, |size| size.bytes))
        );
        judgement.evidence.push(Figure::of("room_bytes", left, "left to grow by"));
        judgement.warn("what is free inside the pool is not in the text: fragmentation there cannot be excluded");
        found(&mut judgement, Class::Limit, bytes.max(left), sentence);
    } else if message.contains("cudaErrorMemoryAllocation") || message.contains("CUDA error") {
        judgement.warn("the driver refused; what it had free is not in the text");
    } else {
        let which = if message.starts_with("Exceeded") { "limiting adaptor" } else { "pool" };
        let sentence =
            format!("the limit of the {which} refused it; the limit's size is not in the text");
        found(&mut judgement, Class::Limit, bytes, sentence);
    }
    judgement
}

fn three_sizes(text: &str) -> [Option<Size>; 3] {
    let mut sizes = [None; 3];
    let mut rest = text;
    for size in &mut sizes {
        let Some((value, after)) = size_at(rest, true) else { break };
        *size = Some(value);
        rest = after.trim_start_matches([',', ' ']);
    }
    sizes
}

pub(crate) fn spark(message: &str) -> Judgement {
    let wanted = ["unable to allocate ", "llocation of "]
        .iter()
        .find_map(|anchor| behind(message, anchor).and_then(figure));
    let held = behind(message, "Total RMM allocated is ").and_then(figure);
    let store = behind(message, "device store has ").and_then(figure);
    let mut judgement = with(&[
        ("requested_bytes", wanted, "asked of the pool"),
        ("allocated_bytes", held, "by RMM in all"),
        ("spillable_bytes", store, "in the device store"),
    ]);
    if !impossible(&mut judgement, wanted, None) {
        judgement.warn(
            "the pool's size is not in the text, so whether it is full or in pieces cannot be told",
        );
        judgement.advice.push(
            "synchronise the device and retry once: frees of other streams may not have landed yet"
                .into(),
        );
        judgement.advice.push("log the pool (RMM's CSV log) and explain that".into());
    }
    judgement
}

pub(crate) fn cupy(message: &str) -> Judgement {
    let wanted = behind(message, "llocating ").and_then(figure);
    let so_far = behind(message, "allocated so far: ").and_then(figure);
    let limit = behind(message, "limit set to: ").and_then(figure);
    let mut judgement = with(&[
        ("requested_bytes", wanted, "asked for, rounded"),
        ("allocated_bytes", so_far, "by the pool so far"),
        ("limit_bytes", limit, "set for the pool"),
    ]);
    if impossible(&mut judgement, wanted, limit) {
        return judgement;
    }
    match (wanted, so_far, limit) {
        (Some(wanted), Some(so_far), Some(limit)) => {
            let left = limit.minus(so_far).bytes;
            judgement.evidence.push(Figure::of("room_bytes", left, "under the limit"));
            if left < wanted.bytes {
                let sentence = format!(
                    "the limit of {} leaves {} for {}",
                    Human(limit.bytes),
                    Human(left),
                    Human(wanted.bytes)
                );
                found(&mut judgement, Class::Limit, wanted.bytes, sentence);
            } else {
                judgement.warn("the limit would have allowed it: the device refused, and what it had is not in the text");
            }
        }
        (Some(_), Some(_), None) => {
            judgement.warn("no limit is set, and what the device had free is not in the text");
        }
        _ => judgement.warn("the message is cut or garbled: not all of its figures read"),
    }
    judgement
}

pub(crate) fn julia(message: &str) -> Judgement {
    let requested = behind(message, "trying to allocate ").and_then(figure);
    let usage =
        behind(message, "Effective GPU memory usage:").and_then(|rest| between(rest, "(", ")"));
    let pair = usage.and_then(|usage| usage.split_once('/'));
    let used = pair.and_then(|(used, _)| figure(used));
    let total = pair.and_then(|(_, total)| figure(total));
    let pool = behind(message, "Memory pool usage:");
    let live = pool.and_then(figure);
    let reserved = pool.and_then(|pool| between(pool, "(", " reserved")).and_then(figure);
    let both = |a: Option<Size>, b: Option<Size>| Some(a?.minus(b?));
    let figures = Figures {
        requested,
        total,
        free: both(total, used),
        allocated: live,
        unallocated: both(reserved, live),
        is_client_size: true,
        ..Figures::default()
    };
    let mut judgement = Judgement::default();
    if total.is_none() || live.is_none() {
        judgement.warn("the message is cut or garbled: not all of its figures read");
    }
    judge(&figures, judgement)
}

pub(crate) fn llama_cpp(message: &str) -> Judgement {
    let wanted = behind(message, "buffer of size ").and_then(|rest| Some(size_at(rest, true)?.0));
    let wanted = wanted.or_else(|| behind(message, "llocating ").and_then(figure));
    let mut judgement = with(&[("requested_bytes", wanted, "asked of the driver")]);
    if !impossible(&mut judgement, wanted, None) {
        judgement.warn("the driver refused; what it had free is not in the text");
        judgement.advice.push(
            "compare with what the device has free: fewer layers on the device, a shorter context or a smaller \
             batch make the buffer smaller"
                .into(),
        );
    }
    judgement
}

pub(crate) fn vllm(message: &str) -> Judgement {
    if message.starts_with("No available memory") {
        let mut judgement = Judgement::default();
        let sentence = "weights and activations fill the share that gpu_memory_utilization allows: nothing is left \
                        for the cache"
            .to_string();
        found(&mut judgement, Class::Limit, 0, sentence);
        judgement.warn("there are no figures in the text");
        return judgement;
    }
    if message.contains("KV cache memory") { kv_cache(message) } else { start_up(message) }
}

/// A figure in GiB whose unit may stand behind the second of a pair.
fn gib(text: &str) -> Option<Size> {
    let text = text.trim().trim_end_matches("GiB").trim_end_matches("GB").trim();
    figure(&format!("{text} GiB"))
}

fn kv_cache(message: &str) -> Judgement {
    let before = message.find("KV cache is needed").map(|place| message[..place].trim_end());
    let need = before.and_then(|head| head.rsplit(['(', ' ']).nth(1)).and_then(gib);
    let have =
        behind(message, "KV cache memory").and_then(|rest| between(rest, "(", ")")).and_then(gib);
    let mut judgement = with(&[
        ("requested_bytes", need, "for one request of the longest length"),
        ("driver_free_bytes", have, "left for the cache"),
    ]);
    if let (Some(need), Some(have)) = (need, have)
        && need.bytes > have.bytes
    {
        let short = need.minus(have).bytes;
        judgement.evidence.push(Figure::of("short_bytes", short, "more than there is"));
        let sentence = format!(
            "the longest request needs {} of cache and {} are left: {} short",
            Human(need.bytes),
            Human(have.bytes),
            Human(short)
        );
        found(&mut judgement, Class::Capacity, short, sentence);
        judgement.advice.push("a smaller max_model_len, or a larger gpu_memory_utilization".into());
    } else {
        judgement.warn("the message is cut or garbled: not all of its figures read");
    }
    judgement
}

fn start_up(message: &str) -> Judgement {
    if message.contains("still in use") {
        let kept = behind(message, ",").and_then(figure);
        let freed = behind(message, "reed ").and_then(figure);
        let mut judgement = with(&[
            ("released_bytes", freed, "by sleeping"),
            ("allocated_bytes", kept, "still in use"),
        ]);
        judgement.warn("this is no failure; who holds what is still in use is not in the text");
        return judgement;
    }
    let pair = between(message, "(", ")").and_then(|pair| pair.split_once('/'));
    let (free, total) = (pair.and_then(|(f, _)| gib(f)), pair.and_then(|(_, t)| gib(t)));
    let wish = behind(message, "utilization").and_then(|rest| between(rest, "(", ")"));
    let wish = wish.and_then(|wish| gib(wish.split_once(',')?.1));
    let mut judgement = with(&[
        ("requested_bytes", wish, "the share that it may take"),
        ("driver_free_bytes", free, "at start-up"),
        ("device_bytes", total, "all of its memory"),
    ]);
    if let (Some(free), Some(total)) = (free, total) {
        let held = total.minus(free).bytes;
        let sentence = format!(
            "{} of {} are held by others before this program took any: another process, or an earlier run that \
             still lives",
            Human(held),
            Human(total.bytes)
        );
        judgement.evidence.push(Figure::of("hidden_bytes", held, "held at start-up"));
        found(&mut judgement, Class::HiddenConsumer, held, sentence);
    } else {
        judgement.warn("the message is cut or garbled: not all of its figures read");
    }
    judgement
}

/// `12 pytorch allocator cache flushes since last step`.
pub(crate) fn deepspeed(before: &str, _message: &str) -> Judgement {
    let mut judgement = Judgement::default();
    let mut words = before.split_whitespace().rev();
    let flushes: Option<u64> = words.find_map(|word| word.parse().ok());
    match flushes {
        Some(flushes) if flushes > 0 => {
            judgement.evidence.push(Figure::of("cache_flushes", flushes, "since the last step"));
            let sentence = format!(
                "the cache is given back {flushes} times a step: memory is nearly full, and every flush waits \
                 for the device"
            );
            found(&mut judgement, Class::Thrash, 0, sentence);
        }
        _ => judgement.warn("the number of flushes does not read"),
    }
    judgement
}

/// This crate's own report.
pub(crate) fn blockyard(message: &str) -> Judgement {
    use crate::vocab::Verdict;
    const ALL: [Verdict; 10] = [
        Verdict::ImpossibleSize,
        Verdict::Capacity,
        Verdict::Fragmentation,
        Verdict::AwaitingFree,
        Verdict::OtherStream,
        Verdict::OtherPool,
        Verdict::PrivatePool,
        Verdict::Limit,
        Verdict::Granularity,
        Verdict::HiddenConsumer,
    ];
    let wanted = behind(message, "out of memory: ").and_then(figure);
    let mut judgement = with(&[("requested_bytes", wanted, "what the client asked for")]);
    let cause = behind(message, "cause: ").and_then(|rest| rest.split_once(": "));
    let verdict =
        cause.and_then(|(name, _)| ALL.into_iter().find(|verdict| verdict.name() == name));
    if let (Some(verdict), Some((_, rest))) = (verdict, cause) {
        let sentence = rest.split(" requested ").next().unwrap_or(rest).trim().to_string();
        let bytes = wanted.map_or(0, |wanted| wanted.bytes);
        found(&mut judgement, verdict.into(), bytes, sentence);
    } else {
        judgement.warn("the report is cut: its cause does not read");
    }
    judgement
}

/// `Failed to allocate memory for requested buffer of size N`, `Available memory of N is smaller than requested
/// bytes of M`.
pub(crate) fn onnx_runtime(message: &str) -> Judgement {
    let number = |anchor: &str| {
        behind(message, anchor).and_then(|rest| size_at(rest, true)).map(|(size, _)| size)
    };
    let available = number("vailable memory of ");
    let wanted = number("requested buffer of size ").or_else(|| number("requested bytes of "));
    let mut judgement = with(&[
        ("requested_bytes", wanted, "asked of the arena"),
        ("room_bytes", available, "what the arena may still take"),
    ]);
    if impossible(&mut judgement, wanted, None) {
        return judgement;
    }
    match (available, wanted) {
        (Some(available), Some(wanted)) if wanted.surely_exceeds(available) => {
            let sentence = format!(
                "the arena's limit (gpu_mem_limit) leaves {} for {}",
                Human(available.bytes),
                Human(wanted.bytes)
            );
            found(&mut judgement, Class::Limit, wanted.bytes, sentence);
        }
        _ => {
            let sentence = "the arena got no more from the driver, and how much the device had is not in the text";
            found(&mut judgement, Class::Unknown, 0, sentence.to_string());
            judgement.warn(
                "the arena grows by powers of two by default: arena_extend_strategy kSameAsRequested asks for less,                  and nvidia-smi tells who else is on the device",
            );
        }
    }
    judgement
}

/// `CUDNN_STATUS_ALLOC_FAILED`, `CUBLAS_STATUS_ALLOC_FAILED`: a library's own allocation, without figures.
pub(crate) fn library(before: &str) -> Judgement {
    let word = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let name = match word.to_ascii_lowercase().as_str() {
        "cudnn" => "cuDNN",
        "cublas" => "cuBLAS",
        "cusparse" => "cuSPARSE",
        "cusolver" => "cuSOLVER",
        "cufft" => "cuFFT",
        _ => "a library",
    };
    let mut judgement = Judgement::default();
    let sentence = format!(
        "{name} found no memory for itself (a handle or a workspace) outside the caching allocator, and how much the \
         device had is not in the text"
    );
    found(&mut judgement, Class::Unknown, 0, sentence);
    judgement.warn(
        "what the caching allocator keeps idle is not free to a library: leave it room (a memory fraction below 1, or \
         the cache emptied before the handle is made)",
    );
    judgement
}

pub(crate) fn bare(message: &str) -> Judgement {
    let mut judgement = Judgement::default();
    if message.starts_with("out of memory") || message.starts_with("RESOURCE_EXHAUSTED") {
        judgement.warn("only the words are in the text: who failed and with what figures is not");
    } else {
        judgement.warn(
            "the driver or a library failed outside the caching allocator (context, library, pinned host memory, or \
             a program without one): there are no figures in the text",
        );
    }
    judgement
}
