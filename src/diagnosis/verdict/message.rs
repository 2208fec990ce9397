//! Verdict of a message: from the figures that a PyTorch message prints to the causes, in order.
//!
//! Order of tests: what could never fit; figures that contradict each other; a driver that had
//! enough; memory outside the allocator; private pools; the cache; capacity. Asked by the readers of
//! messages. Uses only what was printed, with the error of its rounding.

use crate::diagnosis::message::figures::Size;
use crate::diagnosis::verdict::{Class, Figure, Finding, Judgement};
use crate::vocab::{Human, MIB};

/// The largest request that any device of today could hold: 2 TiB.
const ANY_DEVICE: u64 = 2 << 40;
/// Memory of this process outside the allocator is said from here on.
const OUTSIDE_SAID: u64 = 1 << 30;

/// A process that the message lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u64,
    /// What it holds.
    pub size: Size,
}

/// What a message prints. Nothing that it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Asked of the driver (rounded up to a segment).
    pub requested: Option<Size>,
    /// The device's memory.
    pub total: Option<Size>,
    /// Free on the device, after the cache was given back.
    pub free: Option<Size>,
    /// Handed out; newer messages count idle memory of private pools here.
    pub allocated: Option<Size>,
    /// Reserved and not handed out.
    pub unallocated: Option<Size>,
    /// Idle in private pools.
    pub private: Option<Size>,
    /// The most that may be reserved.
    pub limit: Option<Size>,
    /// What this process holds on the device.
    pub this_process: Option<Size>,
    /// Processes listed by number.
    pub processes: Vec<Process>,
    /// The device's number.
    pub device: Option<u64>,
    /// The hint says that page-mapped segments are not in use.
    pub hints_expandable: bool,
    /// The request is what the client asked for, not a segment.
    pub is_client_size: bool,
    /// What this process holds is printed as not available, as on Windows.
    pub is_paged: bool,
}

struct Judge<'a> {
    figures: &'a Figures,
    judgement: Judgement,
    requested: Size,
}

/// Judges the figures of one message.
#[must_use]
pub fn judge(figures: &Figures, judgement: Judgement) -> Judgement {
    let mut figures = figures.clone();
    let mut judgement = judgement;
    settle_processes(&mut figures, &mut judgement);
    judgement.evidence = evidence(&figures);
    let Some(requested) = figures.requested else {
        judgement.warn("the size of the request does not read");
        return judgement;
    };
    let mut judge = Judge { figures: &figures, judgement, requested };
    if !judge.impossible() {
        judge.causes();
    }
    judge.judgement
}

/// Drops what is printed as "not available".
fn settle_processes(figures: &mut Figures, judgement: &mut Judgement) {
    if figures.this_process.is_some_and(Size::is_unavailable) {
        figures.this_process = None;
        figures.is_paged = true;
        judgement.warn("the memory of this process is printed as 2^64 bytes: not available here");
    }
    if figures.limit.is_some_and(Size::is_unavailable) {
        figures.limit = None;
    }
    let all = figures.processes.len();
    figures.processes.retain(|process| !process.size.is_unavailable());
    if figures.processes.len() < all {
        judgement.warn("the memory of a process is printed as 2^64 bytes: not available here");
    }
    if figures.this_process.is_none() && !figures.processes.is_empty() {
        find_this_process(figures, judgement);
    }
}

/// No line says which process is this one: a container hides its own number from it.
fn find_this_process(figures: &mut Figures, judgement: &mut Judgement) {
    let Some(own) = own_bytes(figures).or(figures.allocated) else {
        judgement.warn("no line says which of the processes is this one, nor what this one holds");
        figures.processes.clear();
        return;
    };
    let could = |process: &&Process| !own.surely_exceeds(process.size);
    let candidates = figures.processes.iter().filter(could).count();
    let Some(this) = figures.processes.iter().filter(could).max_by_key(|p| p.size.bytes).copied()
    else {
        return;
    };
    figures.this_process = Some(this.size);
    figures.processes.retain(|process| *process != this);
    judgement.warn(if candidates == 1 {
        format!("process {} is taken for this one (containers hide the number)", this.pid)
    } else {
        "no line says which process is this one; the largest is taken for it".to_string()
    });
}

/// Reserved by the allocator.
fn own_bytes(figures: &Figures) -> Option<Size> {
    Some(figures.allocated?.plus(figures.unallocated?))
}

fn others_bytes(figures: &Figures) -> Size {
    figures.processes.iter().fold(Size::default(), |sum, process| sum.plus(process.size))
}

/// What the device holds that no figure accounts for.
fn hidden_bytes(figures: &Figures) -> Option<Size> {
    let held = figures.this_process.or_else(|| own_bytes(figures))?;
    let known = figures.free?.plus(others_bytes(figures)).plus(held);
    Some(figures.total?.minus(known))
}

/// What this process holds outside the allocator.
fn outside_bytes(figures: &Figures) -> Option<Size> {
    Some(figures.this_process?.minus(own_bytes(figures)?))
}

fn evidence(figures: &Figures) -> Vec<Figure> {
    let bytes = |size: Option<Size>| size.map(|size| size.bytes);
    let others = (!figures.processes.is_empty()).then(|| others_bytes(figures).bytes);
    let asked =
        if figures.is_client_size { "what the client asked for" } else { "asked of the driver" };
    let rows = [
        Figure::maybe("requested_bytes", bytes(figures.requested), asked),
        Figure::maybe("device_bytes", bytes(figures.total), "all of its memory"),
        Figure::maybe("limit_bytes", bytes(figures.limit), "the most that may be reserved"),
        Figure::maybe("driver_free_bytes", bytes(figures.free), "after the cache was given back"),
        Figure::maybe("allocated_bytes", bytes(figures.allocated), "handed out"),
        Figure::maybe("cached_free_bytes", bytes(figures.unallocated), "reserved, not handed out"),
        Figure::maybe("reserved_bytes", bytes(own_bytes(figures)), "obtained from the driver"),
        Figure::maybe("private_pool_bytes", bytes(figures.private), "idle in private pools"),
        Figure::maybe("process_bytes", bytes(figures.this_process), "this process on the device"),
        Figure::maybe("other_processes_bytes", others, "processes that are listed"),
        Figure::maybe(
            "outside_bytes",
            bytes(outside_bytes(figures)),
            "this process, outside the allocator",
        ),
        Figure::maybe(
            "hidden_bytes",
            bytes(hidden_bytes(figures)),
            "on the device, accounted to nobody",
        ),
        Figure::maybe("device", figures.device, "its number"),
    ];
    rows.into_iter().filter(|row| row.value.is_some()).collect()
}

impl Judge<'_> {
    fn add(&mut self, class: Class, bytes: u64, sentence: String) {
        self.judgement.findings.push(Finding::new(class, bytes, sentence));
    }

    fn impossible(&mut self) -> bool {
        let wanted = self.requested;
        let most =
            [self.figures.total, self.figures.limit].into_iter().flatten().min_by_key(|s| s.bytes);
        let sentence = match most {
            Some(most) if wanted.surely_exceeds(most) => format!(
                "{} were asked for and the most there can be is {}: look for a wrong shape or length",
                Human(wanted.bytes),
                Human(most.bytes)
            ),
            None if wanted.bytes > ANY_DEVICE => format!(
                "{} are more than any device has: look for a wrong shape or length",
                Human(wanted.bytes)
            ),
            _ => return false,
        };
        self.add(Class::ImpossibleSize, wanted.bytes, sentence);
        true
    }

    /// The figures contradict each other: nothing but the impossible is certain.
    fn inconsistent(&mut self) -> bool {
        let figures = self.figures;
        let own = own_bytes(figures).or(figures.allocated);
        let (Some(total), Some(own)) = (figures.total, own) else { return false };
        let sum = own.plus(figures.free.unwrap_or_default());
        if figures.allocated.is_some_and(|allocated| allocated.surely_exceeds(total)) {
            let live = figures.allocated.unwrap_or_default().bytes;
            if !figures.is_paged {
                self.judgement.warn(format!(
                    "inconsistent: {} are allocated on a device of {}: one of the figures is garbled, or the driver \
                     pages to the host's memory",
                    Human(live),
                    Human(total.bytes)
                ));
                return true;
            }
            self.judgement.warn(
                "more is allocated than the device has: the driver pages to the host's memory, or the figures are garbled",
            );
            self.add(
                Class::Capacity,
                live,
                format!("{} are live on a device of {}", Human(live), Human(total.bytes)),
            );
            return true;
        }
        if !sum.surely_exceeds(total) {
            return false;
        }
        self.judgement.warn(format!(
            "inconsistent: allocated, cached and free are {} on a device of {}",
            Human(sum.bytes),
            Human(total.bytes)
        ));
        true
    }

    fn causes(&mut self) {
        if self.inconsistent() {
            return;
        }
        self.note_segment();
        let spare = self.not_exhausted();
        if spare == Spare::Ample {
            return;
        }
        self.outside();
        self.private_pools();
        self.cache();
        self.judgement.rank();
        if self.judgement.findings.is_empty() {
            self.capacity();
        }
        self.advise();
    }

    /// 2 and 20 MiB are the sizes of segments, not of tensors.
    fn note_segment(&mut self) {
        if self.figures.is_client_size {
            return;
        }
        let text = match self.requested.bytes {
            bytes if bytes == 2 * MIB => {
                "2.00 MiB is a segment: the tensor had 1 MiB or less; it is the last straw, not the cause"
            }
            bytes if bytes == 20 * MIB => {
                "20.00 MiB is a segment: the tensor had between 1 and 10 MiB; it is the last straw, not the cause"
            }
            _ => return,
        };
        self.judgement.warn(text);
    }

    /// The driver had enough.
    fn not_exhausted(&mut self) -> Spare {
        let (Some(free), wanted) = (self.figures.free, self.requested) else { return Spare::None };
        if free.bytes < wanted.bytes {
            return Spare::None;
        }
        if let (Some(limit), Some(own)) = (self.figures.limit, own_bytes(self.figures))
            && own.plus(wanted).bytes > limit.bytes
        {
            let sentence = format!(
                "the limit of {} leaves {}; the device would still have {}",
                Human(limit.bytes),
                Human(limit.minus(own).bytes),
                Human(free.bytes)
            );
            self.add(Class::Limit, free.bytes, sentence);
            return Spare::Ample;
        }
        let sentence = format!(
            "the driver had {} free and refused {}: no exhaustion, but a fraction, page granularity, a \
             commit limit of the host (Windows), or another process that gave way since",
            Human(free.bytes),
            Human(wanted.bytes)
        );
        self.add(Class::NotExhausted, free.bytes, sentence);
        // Within a segment's rounding of the request other causes are looked at as well.
        let ample = free.bytes - wanted.bytes > wanted.bytes / 8 + 2 * MIB;
        if ample { Spare::Ample } else { Spare::Marginal }
    }

    fn outside(&mut self) {
        let figures = self.figures;
        let threshold = self.requested.bytes.max(figures.total.map_or(0, |total| total.bytes / 20));
        let others = others_bytes(figures);
        if others.bytes > threshold {
            let pids: Vec<String> = figures.processes.iter().map(|p| p.pid.to_string()).collect();
            let sentence = format!(
                "other processes hold {} of the device (process {})",
                Human(others.bytes),
                pids.join(", ")
            );
            self.add(Class::HiddenConsumer, others.bytes, sentence);
        }
        if let Some(hidden) = hidden_bytes(figures).filter(|hidden| hidden.bytes > threshold) {
            let held_by = if figures.this_process.is_some() {
                "neither this process nor a listed one holds them"
            } else {
                "another process, or this one outside the allocator (context, NCCL, other libraries)"
            };
            let sentence = format!(
                "{} of the device are outside the allocator: {held_by}",
                Human(hidden.bytes)
            );
            self.add(Class::HiddenConsumer, hidden.bytes, sentence);
        }
        if let Some(outside) = outside_bytes(figures).filter(|outside| outside.bytes > OUTSIDE_SAID)
        {
            let sentence = format!(
                "this process holds {} outside the allocator: context, NCCL, graphs, other libraries",
                Human(outside.bytes)
            );
            if outside.bytes > threshold {
                self.add(Class::HiddenConsumer, outside.bytes, sentence);
            } else {
                self.judgement.warn(sentence);
            }
        }
    }

    fn private_pools(&mut self) {
        let (Some(private), Some(total)) = (self.figures.private, self.figures.total) else {
            return;
        };
        if private.bytes > total.bytes / 10 {
            let sentence = format!(
                "{} of what is printed as allocated lie idle in private pools (CUDA graphs, memory pools)",
                Human(private.bytes)
            );
            self.add(Class::PrivatePool, private.bytes, sentence);
        }
    }

    /// What is cached would do, alone or with what is free on the device.
    fn cache(&mut self) {
        let (Some(cached), wanted) = (self.figures.unallocated, self.requested) else { return };
        let free = self.figures.free.unwrap_or_default();
        let enough = if free.bytes < wanted.bytes { cached.plus(free) } else { cached };
        if enough.bytes < wanted.bytes || cached.bytes == 0 {
            return;
        }
        if cached.is_near(wanted) || cached.plus(free).is_near(wanted) {
            self.judgement.warn("cache and request are equal within the rounding of the message");
        }
        let class = if wanted.bytes == 2 * MIB
            && cached.bytes >= 20 * MIB
            && !self.figures.is_client_size
        {
            Class::OtherPool
        } else {
            Class::Fragmentation
        };
        let sentence = match class {
            Class::OtherPool => format!(
                "{} are cached, but a tensor of 1 MiB or less may not look there: they lie on the large side \
                 of the pool, pinned by live blocks",
                Human(cached.bytes)
            ),
            _ if cached.bytes >= wanted.bytes => format!(
                "{} are cached for {}, yet in no one piece: live blocks in the same segments pin them (what \
                 could be released was released before the error)",
                Human(cached.bytes),
                Human(wanted.bytes)
            ),
            _ => format!(
                "{} are free on the device and {} in the cache, together enough for {}, but neither alone: \
                 live blocks pin the cache",
                Human(free.bytes),
                Human(cached.bytes),
                Human(wanted.bytes)
            ),
        };
        self.add(class, cached.bytes, sentence);
    }

    fn capacity(&mut self) {
        let figures = self.figures;
        let known = (figures.free, figures.allocated, figures.unallocated);
        let (Some(free), Some(allocated), Some(cached)) = known else {
            let cached = figures.unallocated;
            // A message that ends early may hide what changes the verdict; one that prints no free bytes does not.
            if cached.is_none() || !self.beyond_the_device() {
                self.judgement.warn("too few figures for a verdict");
            }
            return;
        };
        let short = self.requested.minus(free.plus(cached)).bytes;
        let sentence = format!(
            "{} are live, which leaves {} for {}: {} short, however the blocks are arranged",
            Human(allocated.bytes),
            Human(free.plus(cached).bytes),
            Human(self.requested.bytes),
            Human(short)
        );
        self.judgement.evidence.push(Figure::of("short_bytes", short, "more than there is"));
        self.add(Class::Capacity, short, sentence);
    }

    /// What is live and the request are more than the device has: that needs no other figure.
    fn beyond_the_device(&mut self) -> bool {
        let figures = self.figures;
        let (Some(total), Some(allocated)) = (figures.total, figures.allocated) else {
            return false;
        };
        let live = allocated.minus(figures.private.unwrap_or_default());
        let wanted = live.plus(self.requested);
        if !wanted.surely_exceeds(total) {
            return false;
        }
        let short = wanted.minus(total).bytes;
        let sentence = format!(
            "{} are live and {} were asked for on a device of {}: {} short, however the blocks are arranged",
            Human(live.bytes),
            Human(self.requested.bytes),
            Human(total.bytes),
            Human(short)
        );
        self.judgement.evidence.push(Figure::of("short_bytes", short, "more than there is"));
        self.add(Class::Capacity, short, sentence);
        true
    }

    /// How to get from a message to a proof.
    fn advise(&mut self) {
        let class = self.judgement.class();
        if class == Class::HiddenConsumer {
            self.judgement.advice.push(
                "look at nvidia-smi (or fuser on the device files) for who else is there".into(),
            );
        }
        if matches!(
            class,
            Class::Fragmentation | Class::OtherPool | Class::PrivatePool | Class::Capacity
        ) {
            self.judgement.advice.push(
                "a message proves no setting: record a snapshot (torch.cuda.memory._record_memory_history, \
                 and _dump_snapshot where the error is caught) and explain that"
                    .into(),
            );
        }
        if class == Class::Fragmentation && self.figures.hints_expandable {
            self.judgement.advice.push(
                "to be tried first, unless it is on already (the hint of the message does not tell): expandable_segments:True".into(),
            );
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spare {
    None,
    Marginal,
    Ample,
}
