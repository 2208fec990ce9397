//! Message: the last out-of-memory message in a pasted text, found by anchors, and who printed it.
//!
//! Owns the search and the cleaning of pasted logs (colours, rank prefixes, wrapped lines). Asked by
//! the tools. What a message says is read by `message_*`; what it means is decided by `verdict_*`.
//! Never guesses: what was cut or garbled is said, and nothing certain is class `unknown`.

pub mod figures;
mod page;
mod pytorch;
mod runtimes;
mod xla;

use crate::diagnosis::verdict::Judgement;

/// Who printed a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PyTorch's native allocator, any accelerator and any era.
    PyTorch,
    /// PyTorch over the driver's own pools (`cudaMallocAsync`).
    PyTorchAsync,
    /// PyTorch on Apple's GPUs.
    Mps,
    /// PyTorch's host allocator.
    Host,
    /// The driver log of PyTorch: refused calls, recovered ones among them.
    DriverLog,
    /// PyTorch's own books above the device's memory.
    Oversubscribed,
    /// RAPIDS Memory Manager.
    Rmm,
    /// The Spark plug-in of RAPIDS.
    Spark,
    /// TensorFlow's BFC allocator.
    TensorFlow,
    /// XLA: JAX and others.
    Xla,
    /// `CuPy`.
    CuPy,
    /// CUDA.jl.
    Julia,
    /// llama.cpp and its relatives.
    LlamaCpp,
    /// vLLM's start-up and sleep checks.
    Vllm,
    /// DeepSpeed's warning of cache flushes.
    DeepSpeed,
    /// ONNX Runtime's arena.
    OnnxRuntime,
    /// A library of CUDA that allocates for itself: cuDNN, cuBLAS and their relatives.
    Library,
    /// This crate's own report.
    Blockyard,
    /// A page that `explain` printed.
    Page,
    /// A driver or runtime error without figures.
    Bare,
}

impl Dialect {
    /// Every one.
    pub(crate) const ALL: [Self; 20] = [
        Self::PyTorch,
        Self::PyTorchAsync,
        Self::Mps,
        Self::Host,
        Self::DriverLog,
        Self::Oversubscribed,
        Self::Rmm,
        Self::Spark,
        Self::TensorFlow,
        Self::Xla,
        Self::CuPy,
        Self::Julia,
        Self::LlamaCpp,
        Self::Vllm,
        Self::DeepSpeed,
        Self::OnnxRuntime,
        Self::Library,
        Self::Blockyard,
        Self::Page,
        Self::Bare,
    ];

    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch-message",
            Self::PyTorchAsync => "pytorch-async-message",
            Self::Mps => "pytorch-mps-message",
            Self::Host => "pytorch-host-message",
            Self::DriverLog => "pytorch-driver-log",
            Self::Oversubscribed => "pytorch-assert",
            Self::Rmm => "rmm-message",
            Self::Spark => "spark-rapids-message",
            Self::TensorFlow => "tensorflow-message",
            Self::Xla => "xla-message",
            Self::CuPy => "cupy-message",
            Self::Julia => "cuda-jl-message",
            Self::LlamaCpp => "llama-cpp-message",
            Self::Vllm => "vllm-message",
            Self::DeepSpeed => "deepspeed-message",
            Self::OnnxRuntime => "onnxruntime-message",
            Self::Library => "library-message",
            Self::Blockyard => "blockyard-report",
            Self::Page => "explain-page",
            Self::Bare => "driver-message",
        }
    }
}

/// A message, read and judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Who printed it.
    pub dialect: Dialect,
    /// The message as found, cleaned, cut to a line or two.
    pub quote: String,
    /// How many messages the text held; this is the last.
    pub messages: usize,
    /// What it means.
    pub judgement: Judgement,
}

/// How an anchor counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// Only words.
    Words,
    /// A real message, with little in it.
    Weak,
    /// A message with figures.
    Strong,
}

struct Anchor {
    needle: &'static str,
    dialect: Dialect,
    weight: Weight,
    /// It belongs to the message before it, if that is of the same dialect.
    continues: bool,
    /// Where the message begins, if that stands shortly before.
    head: &'static str,
}

const fn anchor(needle: &'static str, dialect: Dialect, weight: Weight) -> Anchor {
    Anchor { needle, dialect, weight, continues: false, head: "" }
}

const fn headed(needle: &'static str, dialect: Dialect, head: &'static str) -> Anchor {
    Anchor { needle, dialect, weight: Weight::Strong, continues: false, head }
}

const fn more(needle: &'static str, dialect: Dialect) -> Anchor {
    Anchor { needle, dialect, weight: Weight::Strong, continues: true, head: "" }
}

/// In lower case.
const ANCHORS: [Anchor; 42] = [
    headed("tried to allocate ", Dialect::PyTorch, "out of memory"),
    anchor("mps backend out of memory", Dialect::Mps, Weight::Strong),
    headed("would exceed allowed memory", Dialect::PyTorchAsync, "allocation on device"),
    anchor("defaultcpuallocator:", Dialect::Host, Weight::Strong),
    anchor("free_upper_bound + pytorch_used_bytes", Dialect::Oversubscribed, Weight::Strong),
    anchor("memory allocation failed with oom on device", Dialect::DriverLog, Weight::Weak),
    anchor("maximum pool size exceeded", Dialect::Rmm, Weight::Strong),
    anchor("exceeded memory limit", Dialect::Rmm, Weight::Strong),
    anchor("maximum allocation size exceeded", Dialect::Rmm, Weight::Strong),
    anchor("cuda error (failed to allocate", Dialect::Rmm, Weight::Strong),
    anchor("device store exhausted", Dialect::Spark, Weight::Strong),
    headed("bytes failed, device store has", Dialect::Spark, "device allocation of"),
    headed("ran out of memory trying to allocate", Dialect::TensorFlow, "allocator ("),
    more("bfcallocator dump for", Dialect::TensorFlow),
    more("sum total of in-use chunks", Dialect::TensorFlow),
    more("oom when allocating tensor", Dialect::TensorFlow),
    anchor("out of memory while trying to allocate", Dialect::Xla, Weight::Strong),
    anchor("attempting to allocate ", Dialect::Xla, Weight::Strong),
    anchor("attempting to reserve ", Dialect::Xla, Weight::Strong),
    anchor("ran out of memory in memory space", Dialect::Xla, Weight::Strong),
    anchor("out of memory allocating ", Dialect::CuPy, Weight::Strong),
    anchor("out of gpu memory", Dialect::Julia, Weight::Strong),
    headed("cudamalloc failed: out of memory", Dialect::LlamaCpp, "allocating "),
    more("failed to allocate cuda", Dialect::LlamaCpp),
    more("failed to allocate rocm", Dialect::LlamaCpp),
    headed("is less than desired gpu memory utilization", Dialect::Vllm, "free memory on device"),
    headed("available kv cache memory", Dialect::Vllm, "to serve at least one request"),
    anchor("no available memory for the cache blocks", Dialect::Vllm, Weight::Strong),
    headed("memory is still in use", Dialect::Vllm, "freed "),
    anchor("allocator cache flushes since last step", Dialect::DeepSpeed, Weight::Weak),
    anchor(
        "failed to allocate memory for requested buffer of size",
        Dialect::OnnxRuntime,
        Weight::Strong,
    ),
    headed("is smaller than requested bytes of", Dialect::OnnxRuntime, "available memory of"),
    anchor("_status_alloc_failed", Dialect::Library, Weight::Weak),
    headed("requested on stream", Dialect::Blockyard, "out of memory:"),
    anchor("cuda error: out of memory", Dialect::Bare, Weight::Weak),
    anchor("hip error: out of memory", Dialect::Bare, Weight::Weak),
    anchor("cuda runtime error (2)", Dialect::Bare, Weight::Weak),
    anchor("cudaerrormemoryallocation", Dialect::Bare, Weight::Weak),
    anchor("hiperroroutofmemory", Dialect::Bare, Weight::Weak),
    anchor("cuda_error_out_of_memory", Dialect::Bare, Weight::Weak),
    anchor("resource_exhausted", Dialect::Bare, Weight::Words),
    anchor("out of memory", Dialect::Bare, Weight::Words),
];

struct Found {
    start: usize,
    dialect: Dialect,
    weight: Weight,
}

/// The last out-of-memory message of a text, judged; nothing if there is none.
#[must_use]
pub fn explain(text: &str) -> Option<Reading> {
    if let Some(reading) = page::read(text) {
        return Some(reading);
    }
    let clean = clean(text);
    let lower = clean.to_ascii_lowercase();
    let found = find(&lower);
    let weight = found.iter().map(|found| found.weight).max()?;
    let found: Vec<Found> = found.into_iter().filter(|found| found.weight == weight).collect();
    let last = found.last()?;
    let message = &clean[last.start..];
    let mut judgement = match last.dialect {
        Dialect::PyTorch => pytorch::native(message),
        Dialect::PyTorchAsync => pytorch::on_driver_pools(message),
        Dialect::Mps => pytorch::mps(message),
        Dialect::Host => pytorch::host(message),
        Dialect::DriverLog => pytorch::driver_log(message, found.len()),
        Dialect::Oversubscribed => pytorch::oversubscribed(),
        Dialect::Rmm => runtimes::rmm(message),
        Dialect::Spark => runtimes::spark(message),
        Dialect::TensorFlow => xla::tensorflow(message),
        Dialect::Xla => xla::xla(message),
        Dialect::CuPy => runtimes::cupy(message),
        Dialect::Julia => runtimes::julia(message),
        Dialect::LlamaCpp => runtimes::llama_cpp(message),
        Dialect::Vllm => runtimes::vllm(message),
        Dialect::DeepSpeed => runtimes::deepspeed(&clean[..last.start], message),
        Dialect::OnnxRuntime => runtimes::onnx_runtime(message),
        Dialect::Library => runtimes::library(&clean[..last.start]),
        Dialect::Blockyard => runtimes::blockyard(message),
        // Read above: no anchor leads here.
        Dialect::Page => Judgement::default(),
        Dialect::Bare => runtimes::bare(message),
    };
    if found.len() > 1 {
        judgement.warn(format!("{} messages in the text; this is the last", found.len()));
    }
    Some(Reading { dialect: last.dialect, quote: quote(message), messages: found.len(), judgement })
}

fn find(lower: &str) -> Vec<Found> {
    let mut hits: Vec<(usize, &Anchor)> = Vec::new();
    for anchor in &ANCHORS {
        hits.extend(lower.match_indices(anchor.needle).map(|(place, _)| (place, anchor)));
    }
    hits.retain(|&(place, anchor)| !is_another(lower, place, anchor));
    hits.sort_by_key(|&(place, anchor)| (place, core::cmp::Reverse(anchor.needle.len())));
    let mut found: Vec<Found> = Vec::new();
    for (place, anchor) in hits {
        let same = found.iter().rev().find(|found| found.weight == anchor.weight);
        if anchor.continues && same.is_some_and(|same| same.dialect == anchor.dialect) {
            continue;
        }
        let start = head_before(lower, place, anchor.head);
        let (dialect, weight) = (anchor.dialect, anchor.weight);
        found.push(Found { start, dialect, weight });
    }
    found
}

/// Hits that are words of another message.
fn is_another(lower: &str, place: usize, anchor: &Anchor) -> bool {
    let before = |bytes: usize| {
        let mut from = place.saturating_sub(bytes);
        while !lower.is_char_boundary(from) {
            from -= 1;
        }
        &lower[from..place]
    };
    match anchor.needle {
        "tried to allocate " => {
            before(4) == "you " || before(400).contains("mps backend out of memory")
        }
        "attempting to allocate " | "attempting to reserve " => {
            !lower[place..].chars().take(200).collect::<String>().contains("not possible")
        }
        _ => false,
    }
}

/// Where the message begins: at its head, if that stands within a short line before.
fn head_before(lower: &str, place: usize, head: &str) -> usize {
    if head.is_empty() {
        return place;
    }
    let mut from = place.saturating_sub(160);
    while !lower.is_char_boundary(from) {
        from -= 1;
    }
    let start = lower[from..place].rfind(head).map_or(place, |offset| from + offset);
    let before = lower[..start].trim_end();
    let word = ["cuda", "hip", "xpu", "npu"].iter().find(|word| before.ends_with(**word));
    word.map_or(start, |word| before.len() - word.len())
}

/// A pasted log as one line of words: without colours, rank prefixes, quoting marks and line ends.
fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let text = text.replace("\\r", " ").replace("\\n", "\n").replace("\\t", " ");
    for line in without_colours(&text).lines() {
        let line = without_prefix(line.trim_start_matches([' ', '\t', '>', '|']));
        for word in line.split([' ', '\t', '\r']).filter(|word| !word.is_empty()) {
            clean.push_str(word);
            clean.push(' ');
        }
    }
    clean
}

/// `[rank3]: text` to `text`.
fn without_prefix(line: &str) -> &str {
    let rest = line.strip_prefix("[rank").or_else(|| line.strip_prefix("[default"));
    rest.and_then(|rest| rest.split_once("]:")).map_or(line, |(_, rest)| rest)
}

/// Without the escape sequences of terminals.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..place]);
        let sequence = &rest[place + 2..];
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).map_or(0, |end| end + 1);
        rest = &sequence[end..];
    }
    plain.push_str(rest);
    plain
}

fn quote(message: &str) -> String {
    const LONGEST: usize = 300;
    let mut quote: String = message.trim_end().chars().take(LONGEST).collect();
    quote = quote
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    if message.trim_end().chars().count() > LONGEST {
        quote.push_str("...");
    }
    quote
}

/// The text between two anchors, if both stand there in this order.
pub(super) fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    Some(&rest[..rest.find(to)?])
}

/// The text behind an anchor.
pub(super) fn behind<'a>(text: &'a str, anchor: &str) -> Option<&'a str> {
    Some(&text[text.find(anchor)? + anchor.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_counts_and_noise_does_not() {
        let text = "\u{1b}[31m[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to\n\
                    [rank0]:   allocate 2.00 GiB. GPU 0\u{1b}[0m has a total capacity of 8.00 GiB of \
                    which 1.00 GiB is free.\n  File \"x.py\", line 3\nRuntimeError: CUDA out of memory. \
                    Tried to allocate 99.00 GiB (GPU 0; 8.00 GiB total capacity;";
        let reading = explain(text).unwrap();
        assert_eq!((reading.dialect, reading.messages), (Dialect::PyTorch, 2));
        assert_eq!(reading.judgement.class().name(), "impossible-size");
        assert!(reading.quote.starts_with("CUDA out of memory. Tried to allocate 99.00 GiB"));
        assert!(reading.judgement.warnings.iter().any(|w| w.contains("2 messages")));
    }

    #[test]
    fn no_message_is_nothing_and_bare_words_are_unknown() {
        assert_eq!(explain("all is well"), None);
        let reading = explain("Error: out of memory").unwrap();
        assert_eq!(reading.judgement.class().name(), "unknown");
    }

    #[test]
    fn words_of_one_message_are_not_another() {
        for (text, dialect) in [
            (
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes.",
                Dialect::Host,
            ),
            (
                "std::bad_alloc: out_of_memory: CUDA error (failed to allocate 64 bytes) at: x:1: \
              cudaErrorMemoryAllocation out of memory",
                Dialect::Rmm,
            ),
            (
                "MPS backend out of memory (MPS allocated: 1.00 GB, other allocations: 2.00 GB, max \
              allowed: 3.00 GB). Tried to allocate 4.00 GB on private pool.",
                Dialect::Mps,
            ),
        ] {
            let reading = explain(text).unwrap();
            assert_eq!((reading.dialect, reading.messages), (dialect, 1), "{text}");
        }
    }
}
