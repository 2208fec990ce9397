//! Message of PyTorch: the figures of every era, device and backend, by anchors and not by version.
//!
//! Asked by `message`. A figure that is absent stays absent; one whose place stands there and does
//! not read is said to be garbled; a text that ends early is said to be cut.

use crate::diagnosis::message::figures::{Size, size_at, size_before};
use crate::diagnosis::message::{behind, between};
use crate::diagnosis::verdict::message::{Figures, Process, judge};
use crate::diagnosis::verdict::{Class, Figure, Finding, Judgement};
use crate::vocab::Human;

/// Native allocator: CUDA, HIP, XPU, NPU, and `Out of memory.` of generic accelerators.
pub(crate) fn native(message: &str) -> Judgement {
    let mut judgement = Judgement::default();
    let message = one_message(message);
    let Some(rest) = behind(message, "ried to allocate ") else { return judgement };
    if rest.starts_with("more than 1EB") {
        let sentence =
            "more than 2^60 bytes were asked for: the size overflowed, look at shapes and lengths";
        judgement.findings.push(Finding::new(Class::ImpossibleSize, 1 << 60, sentence));
        return judgement;
    }
    let mut figures = Figures { requested: figure(rest), ..Figures::default() };
    if let Some((_, rest)) = size_at(rest, false) {
        let old = rest.trim_start().starts_with('(');
        figures.device = device(rest, &mut judgement);
        if old {
            parenthesised(rest, &mut figures, &mut judgement);
        } else {
            sentences(rest, &mut figures, &mut judgement);
        }
        figures.hints_expandable = rest.contains("expandable_segments:True to avoid");
    }
    judge(&figures, judgement)
}

/// Up to whatever begins after the message: no message of this kind is longer than a page.
fn one_message(message: &str) -> &str {
    const LONGEST: usize = 4000;
    let end = message.char_indices().nth(LONGEST).map_or(message.len(), |(place, _)| place);
    let message = &message[..end];
    message.find("Traceback (most recent call last)").map_or(message, |end| &message[..end])
}

fn figure(text: &str) -> Option<Size> {
    size_at(text, false).map(|(size, _)| size)
}

/// The figure before an anchor. One whose anchor stands there and does not read is garbled.
fn labelled(text: &str, anchor: &str, judgement: &mut Judgement) -> Option<Size> {
    let place = text.find(anchor)?;
    let size = size_before(text, place);
    if size.is_none() {
        judgement.warn(format!("garbled: the figure before \"{}\" does not read", anchor.trim()));
    }
    size
}

/// Words that every message of a kind has, and this one has not.
fn missing<const N: usize>(text: &str, anchors: [&str; N], judgement: &mut Judgement) {
    for anchor in anchors.into_iter().filter(|anchor| !text.contains(anchor)) {
        let words = anchor.trim_matches([' ', ';']);
        judgement.warn(format!("the message is cut or garbled: \"{words}\" is not in it"));
    }
}

/// `(GPU 0; 11.92 GiB total capacity; ... already allocated; ... free; ... cached)`, to 2.0; NPU.
fn parenthesised(rest: &str, figures: &mut Figures, judgement: &mut Judgement) {
    figures.total = labelled(rest, " total capacity", judgement);
    figures.allocated = labelled(rest, " already allocated", judgement);
    figures.free = labelled(rest, " free;", judgement);
    figures.limit = labelled(rest, " allowed;", judgement);
    let reserved = labelled(rest, " reserved in total", judgement);
    let cached = labelled(rest, " cached)", judgement);
    figures.unallocated = match (cached, reserved, figures.allocated) {
        (Some(cached), _, _) => Some(cached),
        (None, Some(reserved), Some(allocated)) => {
            if allocated.surely_exceeds(reserved) {
                judgement.warn("inconsistent: more is allocated than reserved");
            }
            Some(reserved.minus(allocated))
        }
        _ => None,
    };
    if reserved.is_none() && cached.is_none() {
        judgement.warn("the message is cut: what is reserved or cached is not in it");
    }
    missing(rest, [" total capacity", " already allocated", " free;"], judgement);
}

/// `GPU 0 has a total capacity of ... of which ... is free. ...`, from 2.1.
fn sentences(rest: &str, figures: &mut Figures, judgement: &mut Judgement) {
    // 2.1 wrote "capacty".
    let capacity = ["capacity of ", "capacty of "].iter().find_map(|anchor| behind(rest, anchor));
    figures.total = capacity.and_then(figure);
    if capacity.is_some() && figures.total.is_none() {
        judgement.warn("garbled or cut: the total capacity does not read");
    }
    figures.free = labelled(rest, " is free", judgement);
    figures.this_process = behind(rest, "this process has ").and_then(figure);
    figures.processes = processes(rest, judgement);
    figures.limit = labelled(rest, " allowed;", judgement);
    figures.allocated = labelled(rest, " is allocated by PyTorch", judgement);
    figures.private = labelled(rest, " allocated in private pools", judgement);
    figures.unallocated = labelled(rest, " is reserved by PyTorch but unallocated", judgement);
    let cut = match (capacity, figures.allocated, figures.unallocated) {
        (None, _, _) => "the device's figures and all after them",
        (_, None, _) => "what is allocated and reserved",
        (_, _, None) => "what is reserved and not allocated",
        _ => return,
    };
    judgement.warn(format!("the message is cut or garbled: {cut} cannot be read in it"));
}

/// `Process 4242 has 33.39 GiB memory in use.`
fn processes(rest: &str, judgement: &mut Judgement) -> Vec<Process> {
    let mut processes = Vec::new();
    for (place, word) in rest.match_indices("Process ") {
        let rest = &rest[place + word.len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (Ok(pid), Some(rest)) = (rest[..digits].parse(), rest[digits..].strip_prefix(" has "))
        else {
            continue;
        };
        let Some((size, rest)) = size_at(rest, false) else { continue };
        if !rest.trim_start().starts_with("memory in use") {
            judgement.warn("garbled: the words behind the memory of a process do not read");
        }
        processes.push(Process { pid, size });
    }
    processes
}

/// The device's number; 2.2 and 2.3 print it as a raw byte.
fn device(rest: &str, judgement: &mut Judgement) -> Option<u64> {
    let place = ["GPU", "NPU", "XPU"].iter().filter_map(|word| rest.find(word)).min()?;
    let rest = &rest[place + 3..];
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if digits > 0 {
        return rest[..digits].parse().ok();
    }
    let raw = rest.chars().next().filter(|&c| u32::from(c) < 32);
    judgement.warn(match raw {
        Some(byte) => format!(
            "the device's number is printed as a raw byte (PyTorch 2.2 and 2.3): {}",
            u32::from(byte)
        ),
        None => "the device's number does not read".to_string(),
    });
    raw.map(|byte| u32::from(byte).into())
}

/// `Allocation on device 0 would exceed allowed memory. (out of memory)` and five figures.
pub(crate) fn on_driver_pools(message: &str) -> Judgement {
    let mut judgement = Judgement::default();
    let message = one_message(message);
    let row = |name: &str| {
        let rest = behind(message, name)?;
        let (label, value) = rest.split_once(':')?;
        // The colon of a later row is not this one's.
        figure(value).filter(|_| !label.contains(|c: char| c.is_ascii_digit()))
    };
    let figures = Figures {
        requested: row("Requested"),
        total: row("Device limit"),
        free: row("Free (according to CUDA)"),
        allocated: row("Currently allocated"),
        limit: row("PyTorch limit"),
        device: behind(message, "llocation on device ")
            .and_then(|rest| rest.split(' ').next()?.parse().ok()),
        unallocated: Some(Size::exact(0)),
        is_client_size: true,
        ..Figures::default()
    };
    for (name, value) in [
        ("Requested", figures.requested),
        ("Device limit", figures.total),
        ("Free", figures.free),
        ("Currently allocated", figures.allocated),
    ] {
        if value.is_none() {
            judgement.warn(format!("the message is cut or garbled: \"{name}\" does not read"));
        }
    }
    if let (Some(total), Some(free), Some(live)) = (figures.total, figures.free, figures.allocated)
    {
        let kept = total.minus(free.plus(live));
        judgement.warn(format!(
            "{} of the device are neither allocated nor free: kept by the driver's pool, or held elsewhere",
            Human(kept.bytes)
        ));
    }
    judge(&figures, judgement)
}

/// Apple's GPUs: a high-water mark, not the device.
pub(crate) fn mps(message: &str) -> Judgement {
    let mut judgement = Judgement::default();
    let read = |anchor: &str| behind(message, anchor).and_then(figure);
    let (own, others) = (read("MPS allocated: "), read("other allocations: "));
    let (limit, wanted) = (read("max allowed: "), read("ried to allocate "));
    judgement.evidence = [
        ("requested_bytes", wanted, "asked for"),
        ("allocated_bytes", own, "by PyTorch"),
        ("other_allocations_bytes", others, "by others in this process"),
        ("limit_bytes", limit, "the high-water mark"),
    ]
    .into_iter()
    .filter_map(|(key, size, note)| Some(Figure::of(key, size?.bytes, note)))
    .collect();
    let (Some(own), Some(limit), Some(wanted)) = (own, limit, wanted) else {
        judgement.warn("the message is cut or garbled: not all of its figures read");
        return judgement;
    };
    let held = own.plus(others.unwrap_or_default());
    if wanted.surely_exceeds(limit) {
        let sentence = format!(
            "{} are more than the {} that are allowed",
            Human(wanted.bytes),
            Human(limit.bytes)
        );
        judgement.findings.push(Finding::new(Class::ImpossibleSize, wanted.bytes, sentence));
    } else if held.plus(wanted).bytes > limit.bytes {
        let sentence = format!(
            "{} are in use and {} were asked for: {} more than the {} that are allowed \
             (PYTORCH_MPS_HIGH_WATERMARK_RATIO)",
            Human(held.bytes),
            Human(wanted.bytes),
            Human(held.plus(wanted).minus(limit).bytes),
            Human(limit.bytes)
        );
        judgement.findings.push(Finding::new(Class::Limit, wanted.bytes, sentence));
    } else {
        judgement.warn("inconsistent: by its figures the request would have fitted");
    }
    judgement
}

/// The host's memory, not the device's.
pub(crate) fn host(message: &str) -> Judgement {
    const ANY_HOST: u64 = 64 << 40;
    let mut judgement = Judgement::default();
    let wanted = behind(message, "ou tried to allocate ").and_then(figure);
    judgement
        .warn("this is the host's memory, not the device's: no setting of a GPU allocator matters");
    let Some(wanted) = wanted else {
        judgement.warn("the size of the request does not read");
        return judgement;
    };
    judgement.evidence.push(Figure::of("requested_bytes", wanted.bytes, "of the host's memory"));
    if wanted.bytes > ANY_HOST {
        let sentence = format!(
            "{} are more than any host has: look for a wrong shape or length",
            Human(wanted.bytes)
        );
        judgement.findings.push(Finding::new(Class::ImpossibleSize, wanted.bytes, sentence));
    }
    judgement
}

/// `memory allocation failed with OOM on device 0 while trying to allocate 20971520 bytes (free: ..., total: ...)`.
pub(crate) fn driver_log(message: &str, lines: usize) -> Judgement {
    let mut judgement = Judgement::default();
    let exact = |anchor: &str| behind(message, anchor).and_then(figure);
    let plain = |text: &str| size_at(text, true).map(|(size, _)| size);
    let wanted = exact("while trying to allocate ");
    let (free, total) = (
        between(message, "(free:", ",").and_then(plain),
        between(message, "total:", ")").and_then(plain),
    );
    judgement.evidence = [
        ("requested_bytes", wanted, "asked of the driver"),
        ("driver_free_bytes", free, "on the device"),
        ("device_bytes", total, "all of its memory"),
    ]
    .into_iter()
    .filter_map(|(key, size, note)| Some(Figure::of(key, size?.bytes, note)))
    .collect();
    judgement.warn("this line tells of a refused driver call, which may have been recovered by emptying the cache");
    match (wanted, free, total) {
        (Some(wanted), _, Some(total)) if wanted.bytes > total.bytes => {
            let sentence =
                format!("{} were asked of a device of {}", Human(wanted.bytes), Human(total.bytes));
            judgement.findings.push(Finding::new(Class::ImpossibleSize, wanted.bytes, sentence));
        }
        (Some(wanted), Some(free), _) if free.bytes >= wanted.bytes => {
            let sentence = format!(
                "the driver had {} free and refused {}",
                Human(free.bytes),
                Human(wanted.bytes)
            );
            judgement.findings.push(Finding::new(Class::NotExhausted, free.bytes, sentence));
        }
        (Some(wanted), _, _) if lines >= 10 => {
            let sentence = format!(
                "{lines} refused driver calls: the cache is given back and asked for again all the time"
            );
            judgement.findings.push(Finding::new(Class::Thrash, wanted.bytes, sentence));
        }
        _ => {}
    }
    judgement
}

/// PyTorch's assertion that its books fit the device.
pub(crate) fn oversubscribed() -> Judgement {
    let mut judgement = Judgement::default();
    judgement.warn(
        "PyTorch's own books are above the device's memory: the driver pages to the host's memory (Windows, WSL); \
         there are no figures in the text",
    );
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(message: &str) -> (&'static str, Judgement) {
        let judgement = native(message);
        (judgement.class().name(), judgement)
    }

    #[test]
    fn a_misspelt_capacity_and_an_unavailable_process_read() {
        let (class, judgement) = class(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 15.99 GiB of which 0 \
             bytes is free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. Of \
             the allocated memory 30.11 GiB is allocated by PyTorch, and 1.10 GiB is reserved by PyTorch but \
             unallocated.",
        );
        assert_eq!(class, "capacity");
        assert_eq!(judgement.figure("process_bytes"), None);
        assert!(judgement.warnings.iter().any(|w| w.contains("2^64")));
        assert!(
            judgement.warnings.iter().any(|w| w.contains("more is allocated than the device has"))
        );
    }

    #[test]
    fn figures_that_exceed_the_card_are_inconsistent_and_unknown() {
        let (class, judgement) = class(
            "Tried to allocate 7.00 GiB. GPU 0 has a total capacity of 39.56 GiB of which 6.80 GiB is free. Of \
             the allocated memory 36.61 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but \
             unallocated.",
        );
        assert_eq!(class, "unknown");
        assert!(judgement.warnings.iter().any(|w| w.starts_with("inconsistent")));
    }

    #[test]
    fn a_garbled_figure_is_said_and_not_guessed() {
        let (class, judgement) = class(
            "Tried to allocate 1.00 GiB (GPU 0; x.yz GiB total capacity; 3.00 GiB already allocated; 10.00 MiB \
             free; 5.00 GiB reserved in total by PyTorch)",
        );
        assert_eq!(class, "fragmentation", "what is cached needs no total");
        assert!(judgement.warnings.iter().any(|w| w.contains("total capacity")));
        let (class, _) = super::tests::class("Tried to allocate 1.0");
        assert_eq!(class, "unknown");
    }

    #[test]
    fn figures_that_contradict_each_other_decide_nothing() {
        let (class, judgement) = class(
            "Tried to allocate 2.00 GiB (GPU 0; 1.92 GiB total capacity; 7.31 GiB already allocated; 10.00 MiB \
             free; 7.50 GiB reserved in total by PyTorch)",
        );
        assert_eq!(class, "impossible-size", "by the printed total");
        assert!(judgement.warnings.is_empty());
        let (class, judgement) = super::tests::class(
            "Tried to allocate 1.00 GiB (GPU 0; 1.92 GiB total capacity; 7.31 GiB already allocated; 10.00 MiB \
             free; 7.50 GiB reserved in total by PyTorch)",
        );
        assert_eq!(class, "unknown");
        assert!(judgement.warnings.iter().any(|w| w.starts_with("inconsistent")), "{judgement:?}");
    }

    #[test]
    fn a_garbled_anchor_and_a_garbled_figure_are_said() {
        let text = "Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total @apacity; 7.00 GiB already allocated; 10.00 \
                    MiB free; 7.10 GiB reserved in total by PyTorch)";
        let (_, judgement) = class(text);
        assert!(judgement.warnings.iter().any(|w| w.contains("total capacity")), "{judgement:?}");
        let (_, judgement) = class(&text.replace("7.00 GiB already", "7x00 GiB already"));
        assert_eq!(judgement.figure("allocated_bytes"), None);
        assert!(judgement.warnings.iter().any(|w| w.contains("already allocated")));
    }

    #[test]
    fn a_request_beyond_what_is_live_is_capacity_without_a_free_figure() {
        let (class, judgement) = class(
            "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.91 GiB. Of the \
             allocated memory 14.20 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but \
             unallocated.",
        );
        assert_eq!(class, "capacity");
        assert!(judgement.figure("short_bytes").unwrap() > 2 << 30);
    }

    #[test]
    fn a_fraction_is_a_limit() {
        let (class, _) = class(
            "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 24.00 GiB total capacity; 9.00 GiB already \
             allocated; 14.00 GiB free; 10.00 GiB allowed; 9.50 GiB reserved in total by PyTorch)",
        );
        assert_eq!(class, "limit");
    }

    #[test]
    fn npu_and_xpu_read_alike() {
        let (class, judgement) = class(
            "NPU out of memory. Tried to allocate 512.00 MiB (NPU 3; 60.97 GiB total capacity; 58.00 GiB already \
             allocated; 58.10 GiB current active; 100.00 MiB free; 58.30 GiB reserved in total by PyTorch)",
        );
        assert_eq!((class, judgement.figure("device")), ("capacity", Some(3)));
    }
}
