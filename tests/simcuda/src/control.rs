//! Control: the loaded library's control interface for Rust.
//!
//! A library that was loaded and the one that a Rust crate is linked with are different copies with
//! different memories: everything here goes through the loaded one.

use libloading::{Error, Library, Symbol};
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};

/// The loaded simulator.
pub struct Control {
    library: Library,
}

/// Where cargo puts the library, seen from a test or an example: beside it, or one folder up.
#[must_use]
pub fn library_path() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let name = format!("{DLL_PREFIX}blockyard_simcuda{DLL_SUFFIX}");
    let folders = program.ancestors().skip(1).take(3);
    let places = folders.flat_map(|folder| [folder.join("deps").join(&name), folder.join(&name)]);
    places.into_iter().find(|place| place.exists())
}

impl Control {
    /// Loads the library, before anything loads another `libcuda`. Later loads of `libcuda.so.1`
    /// by name get this one, because that is the name it carries.
    ///
    /// # Errors
    ///
    /// The library is not there, or is another.
    pub fn load(path: &Path) -> Result<Self, Error> {
        // SAFETY: the library's initialisers do nothing.
        let control = Self { library: unsafe { Library::new(path) }? };
        control.function::<extern "C" fn() -> u64>("simcuda_version")?;
        Ok(control)
    }

    fn function<F: Copy>(&self, name: &str) -> Result<F, Error> {
        // SAFETY: the types below are those of `steer`, in the version that `load` found.
        let symbol: Symbol<'_, F> = unsafe { self.library.get(name.as_bytes()) }?;
        Ok(*symbol)
    }

    /// A function of no arguments; its answer, or the default if it is missing.
    fn plain<T: Default>(&self, name: &str) -> T {
        self.function::<extern "C" fn() -> T>(name).map(|run| run()).unwrap_or_default()
    }

    /// A function of a name.
    fn named(&self, function: &str, name: &str) -> Option<u64> {
        let name = CString::new(name).ok()?;
        let run = self.function::<extern "C" fn(*const c_char) -> u64>(function).ok()?;
        Some(run(name.as_ptr())).filter(|count| *count != u64::MAX)
    }

    /// Ends all contexts, frees all memory, forgets counts, faults and costs.
    pub fn reset(&self) {
        self.plain::<()>("simcuda_reset");
    }

    /// How often an entry point was called; `None`: there is none of that name.
    #[must_use]
    pub fn calls(&self, name: &str) -> Option<u64> {
        self.named("simcuda_calls", name)
    }

    /// How many of a kind are alive: `allocations`, `handles`, `mappings`, `reservations`,
    /// `streams`, `events`, `contexts`, and the others of the report.
    #[must_use]
    pub fn alive(&self, kind: &str) -> Option<u64> {
        self.named("simcuda_alive", kind)
    }

    /// How often a kernel ran.
    #[must_use]
    pub fn launches(&self, kernel: &str) -> u64 {
        self.named("simcuda_launches", kernel).unwrap_or(0)
    }

    /// The `nth` call of an entry point from now (1 is the next) fails with `error`, and if
    /// `forever` all after it. Whether there is such an entry point.
    #[must_use]
    pub fn fail(&self, name: &str, nth: u64, error: i32, forever: bool) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        type Fail = extern "C" fn(*const c_char, u64, i32, i32) -> u64;
        let run = self.function::<Fail>("simcuda_fail");
        run.is_ok_and(|run| run(name.as_ptr(), nth, error, forever.into()) > 0)
    }

    /// No more planned faults.
    pub fn clear_faults(&self) {
        self.plain::<()>("simcuda_clear_faults");
    }

    /// What each call of an entry point costs. Whether there is such an entry point.
    #[must_use]
    pub fn cost(&self, name: &str, nanos: u64) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        let run = self.function::<extern "C" fn(*const c_char, u64) -> u64>("simcuda_cost");
        run.is_ok_and(|run| run(name.as_ptr(), nanos) > 0)
    }

    /// Whether costs only add up, or also pass as time.
    pub fn costs_only_add_up(&self, only_add: bool) {
        if let Ok(run) = self.function::<extern "C" fn(i32)>("simcuda_cost_mode") {
            run(only_add.into());
        }
    }

    /// Nanoseconds that all calls cost so far.
    #[must_use]
    pub fn cost_total(&self) -> u64 {
        self.plain("simcuda_cost_total")
    }

    /// Changes a setting: `memory`, `pools`, `vmm`, `charge`, `context_bytes`, `op_ns`,
    /// `refuse_unknown_kernels`. Whether there is such a setting.
    #[must_use]
    pub fn set(&self, name: &str, value: u64) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        let run = self.function::<extern "C" fn(*const c_char, u64) -> i32>("simcuda_set");
        run.is_ok_and(|run| run(name.as_ptr(), value) == 0)
    }

    /// Workers pause before each piece of work, up to `most` microseconds, as the seed says.
    pub fn jitter(&self, seed: u64, most: u64) {
        if let Ok(run) = self.function::<extern "C" fn(u64, u64)>("simcuda_jitter") {
            run(seed, most);
        }
    }

    /// No stream begins another piece of work until [`Control::resume`].
    pub fn pause(&self) {
        self.plain::<()>("simcuda_pause");
    }

    /// Streams go on.
    pub fn resume(&self) {
        self.plain::<()>("simcuda_resume");
    }

    /// Memory of a device in use, in bytes.
    #[must_use]
    pub fn used(&self, device: u64) -> Option<u64> {
        let run = self.function::<extern "C" fn(u64) -> u64>("simcuda_used").ok()?;
        Some(run(device)).filter(|bytes| *bytes != u64::MAX)
    }

    /// The report as JSON.
    #[must_use]
    pub fn report(&self) -> String {
        let run = self.function::<extern "C" fn(*mut u8, u64) -> u64>("simcuda_report");
        run.map_or_else(|_| String::new(), |run| text(|place, room| run(place, room)))
    }

    /// The judge's violations in words, the first hundred.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        type Words = extern "C" fn(u64, *mut u8, u64) -> u64;
        let Ok(run) = self.function::<Words>("simcuda_violation") else { return Vec::new() };
        let count: u64 = self.plain("simcuda_violations");
        (0..count.min(100)).map(|index| text(|place, room| run(index, place, room))).collect()
    }
}

/// A text from a function that says how long it is.
fn text(read: impl Fn(*mut u8, u64) -> u64) -> String {
    let mut bytes = vec![0_u8; 4096];
    let length = read(bytes.as_mut_ptr(), bytes.len() as u64);
    bytes.truncate(usize::try_from(length).unwrap_or(0).min(bytes.len() - 1));
    String::from_utf8_lossy(&bytes).into_owned()
}
