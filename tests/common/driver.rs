//! Driver: a CUDA driver for tests: the simulated one, unless `BLOCKYARD_CUDA_DRIVER` names another.
//!
//! A process has one driver, and a simulated one has one state: tests that look at it take turns.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use blockyard::device::cuda::{DRIVER_VARIABLE, Driver, Gpu};
use blockyard_simcuda::control::{Control, library_path};

pub struct Rig {
    pub gpu: Arc<Gpu>,
    /// Of the simulated driver; `None`: a real one.
    pub control: Option<&'static Control>,
    pub _turn: MutexGuard<'static, ()>,
}

/// What is alive in a driver that nobody uses.
const KINDS: [&str; 12] = [
    "allocations",
    "handles",
    "mappings",
    "reservations",
    "streams",
    "events",
    "contexts",
    "modules",
    "pools",
    "left_allocations",
    "left_streams",
    "left_events",
];

impl Rig {
    /// `None`, with a word about it: there is no device.
    pub fn new() -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let control = control();
        if let Some(control) = control {
            control.reset();
            // A driver that was reset wants to be initialised again.
            blockyard::interop::cudarc::driver::result::init().unwrap();
        }
        match Gpu::open(0) {
            Ok(gpu) => Some(Self { gpu, control, _turn: turn }),
            Err(error) => {
                assert!(control.is_none(), "the simulated driver has a device: {error}");
                println!("skipped: no device ({error})");
                None
            }
        }
    }

    /// Only where the driver can be told to fail.
    pub fn simulated() -> Option<(Self, &'static Control)> {
        let rig = Self::new()?;
        let Some(control) = rig.control else {
            println!("skipped: the driver is a real one");
            return None;
        };
        Some((rig, control))
    }

    /// Everything was given back, to the last event.
    pub fn ends_clean(self) {
        let Self { gpu, control, _turn } = self;
        drop(gpu);
        if let Some(control) = control {
            assert_eq!(left(control), Vec::new());
        }
    }
}

/// What is alive, and what the judge saw.
pub fn left(control: &Control) -> Vec<(&'static str, u64)> {
    let alive = KINDS.into_iter().map(|kind| (kind, control.alive(kind).unwrap()));
    let mut left: Vec<_> = alive.filter(|(_, count)| *count > 0).collect();
    left.extend(control.violations().iter().map(|_| ("violations", 1)));
    left
}

fn control() -> Option<&'static Control> {
    static CONTROL: OnceLock<Option<Control>> = OnceLock::new();
    let found = CONTROL.get_or_init(|| {
        if std::env::var(DRIVER_VARIABLE).is_ok_and(|path| !path.is_empty()) {
            let simulated = Driver::load().is_ok_and(Driver::is_simulated);
            let path = std::env::var(DRIVER_VARIABLE).unwrap();
            return simulated.then(|| Control::load(path.as_ref()).unwrap());
        }
        let path = library_path().expect("cargo built the simulated driver");
        let control = Control::load(&path).unwrap();
        Driver::load_from(&path).unwrap();
        Some(control)
    });
    found.as_ref()
}
