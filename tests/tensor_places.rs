//! Places: what each operation allocates, errors that name both sides, devices without values.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;

use blockyard::allocator::{CachingAllocator, Config};
use blockyard::device::{Calls, Device, SimConfig, SimDevice};
use blockyard::tensor::{
    ALIGNMENT, ComputeError, DType, Format, NoValues, Place, Result, Tensor, TensorError,
};
use blockyard::vocab::{Answer, MIB, Want};

fn sim() -> Place {
    Place::sim(SimConfig::with_capacity(64 * MIB))
}

fn allocations(place: &Place) -> i64 {
    let stats = place.allocator().memory_stats();
    stats.iter().find(|(key, _)| key == "allocation.all.allocated").unwrap().1
}

type Op = fn(&Tensor) -> Result<Vec<Tensor>>;

fn one(tensor: Result<Tensor>) -> Result<Vec<Tensor>> {
    tensor.map(|tensor| vec![tensor])
}

fn none(done: Result<()>) -> Result<Vec<Tensor>> {
    done.map(|()| Vec::new())
}

/// Operations on a contiguous tensor of shape [2, 3, 4, 5], or, where the name says so, on its
/// first two axes exchanged.
const OPS: [(&str, Op); 37] = [
    ("clone", |t| one(Ok(t.clone()))),
    ("view", |t| one(t.view(&[6, 20]))),
    ("view_dtype", |t| one(t.view_dtype(DType::U8))),
    ("transpose", |t| one(t.transpose(0, 1))),
    ("permute", |t| one(t.permute(&[3, 1, 0, 2]))),
    ("narrow", |t| one(t.narrow(1, 1, 2))),
    ("slice", |t| one(t.slice(3, 1.., 2))),
    ("select", |t| one(t.select(0, 1))),
    ("squeeze", |t| one(t.squeeze())),
    ("squeeze_axis", |t| one(t.squeeze_axis(0))),
    ("unsqueeze", |t| one(t.unsqueeze(2))),
    ("expand", |t| one(t.expand(&[7, 2, 3, 4, 5]))),
    ("split", |t| t.split(3, 2)),
    ("unfold", |t| one(t.unfold(3, 3, 1))),
    ("as_strided", |t| one(t.as_strided(&[5, 5], &[1, 2], 3))),
    ("reshape, viewable", |t| one(t.reshape(&[24, 5]))),
    ("reshape, not viewable", |t| one(t.transpose(0, 1)?.reshape(&[120]))),
    ("flatten, viewable", |t| one(t.flatten(1, 3))),
    ("flatten, not viewable", |t| one(t.transpose(0, 1)?.flatten(0, 1))),
    ("contiguous, already", |t| one(t.contiguous())),
    ("contiguous, not yet", |t| one(t.transpose(0, 1)?.contiguous())),
    ("to_memory_format, already", |t| one(t.to_memory_format(Format::Contiguous))),
    ("to_memory_format, not yet", |t| one(t.to_memory_format(Format::ChannelsLast))),
    ("duplicate", |t| one(t.duplicate())),
    ("to, same place and dtype", |t| one(t.to(t.place(), DType::F32, false))),
    ("to, another dtype", |t| one(t.to(t.place(), DType::F16, false))),
    ("copy_, another storage", |t| none(t.copy_(&t.duplicate()?))),
    ("copy_, disjoint parts", |t| none(t.select(0, 0)?.copy_(&t.select(0, 1)?))),
    ("copy_, overlapping parts", |t| none(t.narrow(3, 1, 4)?.copy_(&t.narrow(3, 0, 4)?))),
    ("fill_, dense", |t| none(t.fill_(1))),
    ("fill_, not dense", |t| none(t.select(3, 0)?.fill_(1))),
    ("zero_", |t| none(t.zero_())),
    ("resize_, smaller", |t| none(t.duplicate()?.resize_(&[2]))),
    ("resize_, larger", |t| none(t.duplicate()?.resize_(&[2000]))),
    ("empty_like", |t| one(Tensor::empty_like(t))),
    ("to_vec, contiguous", |t| none(t.to_vec::<f32>().map(|_| ()))),
    ("to_vec, not contiguous", |t| none(t.transpose(0, 1)?.to_vec::<f32>().map(|_| ()))),
];

/// The allocations that `docs/tensor.md` promises: the number in the second cell of a row.
fn promised() -> Vec<(String, i64)> {
    let text = include_str!("../docs/tensor.md");
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.replace('`', "");
        Some((name, cells.get(2)?.parse().ok()?))
    });
    rows.collect()
}

#[test]
fn each_operation_allocates_what_the_table_says_and_views_nothing() {
    let promised = promised();
    for (name, op) in OPS {
        let place = Place::host();
        let tensor = Tensor::zeros(&place, &[2, 3, 4, 5], DType::F32).unwrap();
        // What an operation is shown on is not its own: duplicates that are made for it.
        let own = i64::from(matches!(
            name,
            "copy_, another storage" | "resize_, smaller" | "resize_, larger"
        ));
        let before = allocations(&place);
        let made = op(&tensor).unwrap_or_else(|error| panic!("{name}: {error}"));
        let count = allocations(&place) - before - own;
        let row = promised.iter().find(|(other, _)| other == name);
        assert_eq!(row.map(|(_, count)| *count), Some(count), "{name}");
        for made in made {
            assert_eq!(made.shares_storage(&tensor), count == 0, "{name}");
            assert!(count == 0 || !made.is_view(), "{name}: a storage of its own");
        }
    }
    assert_eq!(promised.len(), OPS.len(), "the table and this list");
}

#[test]
fn memory_goes_back_with_the_last_view() {
    let place = Place::host();
    let view = Tensor::zeros(&place, &[1000], DType::F64).unwrap().narrow(0, 10, 5).unwrap();
    assert_eq!(place.allocator().memory_allocated(), 8192, "8000 bytes in units of 512");
    assert_eq!((view.users(), view.storage().bytes()), (1, 8000));
    drop(view);
    assert_eq!(place.allocator().memory_allocated(), 0);
    assert!(place.allocator().empty_cache().released_bytes > 0, "no claim is left on it");
}

#[test]
fn x2_every_storage_is_aligned() {
    let (place, mut held) = (Place::host(), Vec::new());
    for number in 0..500usize {
        let tensor = Tensor::zeros(&place, &[(number * 7919) % 5000 + 1], DType::U8).unwrap();
        assert_eq!(tensor.storage().address().0 % ALIGNMENT, 0);
        held.push(tensor);
        if number % 3 == 0 {
            held.swap_remove(number % held.len());
        }
    }
}

#[test]
#[should_panic(expected = "X2: a storage at 0x")]
fn x2_a_device_that_does_not_align_is_found_out() {
    /// A device whose memory starts a little off.
    struct Crooked(SimDevice);
    impl Device for Crooked {
        fn perform(&mut self, want: Want) -> Answer {
            match self.0.perform(want) {
                Answer::Granted { base } => Answer::Granted { base: base.plus(128) },
                other => other,
            }
        }
        fn total(&self) -> Option<u64> {
            self.0.total()
        }
        fn free(&self) -> Option<u64> {
            self.0.free()
        }
        fn granularity(&self) -> u64 {
            self.0.granularity()
        }
        fn page_mapping(&self) -> bool {
            false
        }
        fn nanos(&self) -> u64 {
            0
        }
        fn calls(&self) -> Calls {
            self.0.calls()
        }
    }
    let device = Crooked(SimDevice::new(SimConfig::with_capacity(64 * MIB)));
    let allocator = CachingAllocator::new(device, Config::default());
    let place = Place::new("crooked", Arc::new(allocator), Box::new(NoValues));
    let _ = Tensor::empty(&place, &[9], DType::U8);
}

#[test]
fn errors_name_both_sides() {
    let (host, cuda) = (Place::host(), sim());
    let tensor = Tensor::zeros(&host, &[2, 3], DType::F32).unwrap();
    let text = |error: TensorError| error.to_string();
    let four = Tensor::zeros(&host, &[4], DType::F32).unwrap();
    assert_eq!(text(tensor.copy_(&four).unwrap_err()), "shapes [4] and [2, 3] do not broadcast");
    assert_eq!(text(tensor.to_vec::<i64>().unwrap_err()), "expected elements of i64, found f32");
    let error = tensor.transpose(0, 1).unwrap().view(&[6]).unwrap_err();
    assert_eq!(
        text(error),
        "shape [3, 2] with strides [1, 3] has no view of shape [6]: it takes a copy"
    );
    assert_eq!(text(tensor.narrow(1, 2, 5).unwrap_err()), "2..7 lies outside axis 1 of size 3");
    assert_eq!(text(tensor.select(2, 0).unwrap_err()), "axis 2 of a tensor that has 2");
    let error = tensor.to(&cuda, DType::F32, true).unwrap_err();
    assert_eq!(
        text(error),
        "a copy from host to sim cannot be non-blocking: the memory is not page-locked"
    );
    let error = Tensor::from_slice(&host, &[2, 2], &[1u8]).unwrap_err();
    assert_eq!(text(error), "1 values for shape [2, 2], which has 4");
    assert!(matches!(tensor.item::<f32>(), Err(TensorError::Values { .. })));
}

#[test]
fn a_simulated_tensor_has_all_but_values() {
    let (host, place) = (Place::host(), sim());
    let there = Tensor::zeros(&place, &[1 << 20], DType::F32).unwrap();
    assert_eq!(place.allocator().memory_allocated(), 4 * MIB);
    let here = Tensor::full(&host, &[1 << 20], 1.5f32).unwrap();
    there.copy_(&here).unwrap();
    assert_eq!(place.tallies().transferred_bytes, 4 * MIB);
    there.view(&[1 << 10, 1 << 10]).unwrap().transpose(0, 1).unwrap().contiguous().unwrap();
    let error = here.copy_(&there).unwrap_err();
    assert!(matches!(error, TensorError::Compute { error: ComputeError::NoValues, .. }));
    assert_eq!(error.to_string(), "sim: values cannot be read: a simulated device has none");
    assert!(there.narrow(0, 0, 0).unwrap().to_vec::<f32>().is_err(), "not even none");
    assert!(there.to_string().contains("a simulated device has none"));
    let full = Tensor::empty(&place, &[1 << 40], DType::F32).unwrap_err();
    assert!(matches!(full, TensorError::Alloc(_)));
    assert!(matches!(
        Tensor::empty(&place, &[1 << 62], DType::U8),
        Err(TensorError::TooLarge { .. })
    ));
}

#[test]
fn work_of_another_stream_keeps_memory_from_reuse() {
    let place = sim();
    let other = place.on_stream(7);
    assert_eq!(place, other);
    let source = Tensor::zeros(&place, &[1000], DType::F32).unwrap();
    let target = Tensor::zeros(&other, &[1000], DType::F32).unwrap();
    assert_ne!(source.place().stream().id(), target.place().stream().id());
    target.copy_(&source).unwrap();
    drop(source);
    let stats = place.allocator().stats();
    assert_eq!(
        stats.active_bytes() - stats.allocated_bytes(),
        4096,
        "it waits for the other stream"
    );
    place.allocator().audit().unwrap();
}

#[test]
fn display_prints_little_of_much() {
    let place = Place::host();
    let million = Tensor::arange(&place, 0i32, 1_000_000, 1).unwrap();
    let square = million.view(&[1000, 1000]).unwrap();
    let text = square.to_string();
    assert!(text.len() < 600, "{} characters", text.len());
    assert!(text.starts_with("[[     0,      1,      2, ...,    997,    998,    999],\n"));
    assert!(text.contains(" ...,\n") && text.contains("999999]]\nTensor(i32, [1000, 1000], host)"));
    let deep = million
        .view(&[10, 10, 10, 10, 10, 10])
        .unwrap()
        .unsqueeze(0)
        .unwrap()
        .unsqueeze(0)
        .unwrap();
    assert!(deep.to_string().matches([',', ']']).count() < 2200);
    let small = Tensor::from_slice(&place, &[2, 2], &[1.5f32, -2.0, f32::NAN, 1e-9]).unwrap();
    let numbers = "[[   1.5000,   -2.0000],\n [      NaN, 1.0000e-9]]\n";
    assert_eq!(small.to_string(), format!("{numbers}Tensor(f32, [2, 2], host)"));
    let flag = Tensor::full(&place, &[], true).unwrap();
    assert_eq!(flag.to_string(), "true\nTensor(bool, [], host)");
    assert_eq!(
        Tensor::zeros(&place, &[0, 3], DType::I8).unwrap().to_string(),
        "[]\nTensor(i8, [0, 3], host)"
    );
}
