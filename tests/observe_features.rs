//! Observe features: call stacks, metrics and events. Needs `--features metrics,tracing,stacks`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use blockyard::allocator::{CachingAllocator, Config, DeviceBuffer};
use blockyard::device::{SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::trace::{Kind, dump};
use blockyard::vocab::{MIB, What};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use tracing::field::{Field, Visit};
use tracing::span;

fn allocator(stack_depth: usize) -> CachingAllocator {
    let device = SimDevice::new(SimConfig::with_capacity(100 * MIB));
    let config = Config::with_policy(presets::blockyard_native());
    let config = Config { record: 64, stack_depth, device_index: 3, ..config };
    CachingAllocator::new(device, config)
}

#[inline(never)]
fn in_the_forward_pass(allocator: &CachingAllocator) -> DeviceBuffer {
    std::hint::black_box(allocator.default_stream().alloc(3 * MIB).unwrap())
}

#[inline(never)]
fn in_the_optimizer(allocator: &CachingAllocator) -> DeviceBuffer {
    std::hint::black_box(allocator.default_stream().alloc(3 * MIB).unwrap())
}

#[test]
fn every_block_and_event_knows_where_it_was_asked_for() {
    let allocator = allocator(32);
    let mut kept: Vec<_> = (0..3).map(|_| in_the_forward_pass(&allocator)).collect();
    blockyard::tag!("adam");
    kept.push(in_the_optimizer(&allocator));
    let (records, _) = allocator.records();
    let stacks = records.iter().filter_map(|record| match record.what {
        What::Asked { stack, .. } => Some(stack),
        What::Changed(_) => None,
    });
    let stacks: Vec<_> = stacks.collect();
    assert!(stacks[0] == stacks[1] && stacks[0] == stacks[2] && stacks[0] != stacks[3]);
    let frames = stacks[0].frames();
    assert!(frames[0].name.contains("in_the_forward_pass"), "{frames:?}");
    assert!(frames[0].file.ends_with("observe_features.rs") && frames[0].line > 20, "{frames:?}");

    let written = dump::recording(&allocator.dump());
    let alloc = written.devices[0].events.iter().rfind(|event| event.kind == Kind::Alloc);
    let stack = &written.stacks.stacks[alloc.unwrap().stack.0 as usize];
    assert_eq!(stack.tag, "adam");
    let innermost = &written.stacks.frames[stack.frames[0] as usize];
    assert!(innermost.name.contains("in_the_optimizer"), "{innermost:?}");
    let snapshot = dump::snapshot(&allocator.snapshot());
    let first = &snapshot.segments[0].blocks[0];
    assert!(first.frames.0[0].name.contains("in_the_forward_pass"));
}

#[test]
fn no_stack_is_captured_unless_asked_for() {
    let allocator = allocator(0);
    let _buffer = in_the_forward_pass(&allocator);
    assert!(allocator.dump().stacks.into_values().all(|frames| frames.is_empty()));
}

/// Values by name and label.
#[derive(Clone, Default)]
struct Values(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Values {
    fn value(&self, key: &Key) -> Arc<AtomicU64> {
        let labels: Vec<_> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
        let name = format!("{} {}", key.name(), labels.join(","));
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.counter(name))
    }

    fn counter(&self, name: &str) -> u64 {
        self.0.lock().unwrap()[&format!("{name} device=3")].load(Ordering::Relaxed)
    }
}

/// A counter that believes what it is told last, also if that is less.
struct Last(Arc<AtomicU64>);

impl metrics::CounterFn for Last {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }
    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl metrics::Recorder for Values {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Last(self.value(key))))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn metrics_follow_driver_calls_and_failures_and_come_when_asked() {
    let values = Values::default();
    metrics::with_local_recorder(&values, || {
        let allocator = allocator(0);
        let buffer = in_the_forward_pass(&allocator);
        assert_eq!(values.gauge("blockyard_reserved_bytes"), (20 * MIB) as f64);
        assert_eq!(values.gauge("blockyard_segments"), 1.0);
        assert_eq!(values.counter("blockyard_device_allocs_total"), 1);
        drop(buffer);
        assert_eq!(values.gauge("blockyard_allocated_bytes"), (3 * MIB) as f64, "not yet");
        allocator.publish_metrics();
        assert_eq!(values.gauge("blockyard_allocated_bytes"), 0.0);
        assert_eq!(values.gauge("blockyard_allocated_bytes_peak"), (3 * MIB) as f64);
        assert_eq!(values.counter("blockyard_ooms_total"), 0);
        assert!(allocator.default_stream().alloc(99 * MIB + 1).is_ok(), "after a retry");
        assert!(allocator.default_stream().alloc(101 * MIB).is_err());
        assert_eq!(values.counter("blockyard_ooms_total"), 1);
        assert_eq!(values.counter("blockyard_alloc_retries_total"), 1);
        assert_eq!(values.counter("blockyard_device_frees_total"), 1);
        for ooms in 2..4 {
            allocator.reset_accumulated_memory_stats();
            allocator.publish_metrics();
            assert_eq!(values.counter("blockyard_ooms_total"), ooms - 1, "never falls");
            assert_eq!(values.counter("blockyard_alloc_retries_total"), 1);
            assert!(allocator.default_stream().alloc(101 * MIB).is_err());
            assert_eq!(values.counter("blockyard_ooms_total"), ooms, "and goes on");
        }
    });
}

/// Every event as one line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "blockyard"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn events_tell_driver_calls_and_failures() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let allocator = allocator(0);
        drop(in_the_forward_pass(&allocator));
        drop(in_the_forward_pass(&allocator));
        allocator.empty_cache();
        assert!(allocator.default_stream().alloc(101 * MIB).is_err());
    });
    let lines = lines.0.lock().unwrap();
    let [reserve, release, .., last] = &lines[..] else { panic!("{lines:?}") };
    assert!(reserve.starts_with("DEBUG device=3 call=\"reserve\""), "{lines:?}");
    assert!(reserve.ends_with("bytes=20971520"), "{lines:?}");
    assert!(release.contains("call=\"release\""), "{lines:?}");
    assert!(last.starts_with("WARN") && last.contains("out of memory"), "{lines:?}");
    for figure in ["verdict=\"impossible-size\"", "requested_bytes=105906176", "reserved_bytes=0"] {
        assert!(last.contains(figure), "{figure} in {last}");
    }
}
