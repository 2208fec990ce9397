//! Module: kernels by name, and what runs when they are launched.
//!
//! PTX is scanned for its entries and never compiled. A kernel runs if there is a host build of it:
//! the project's own, or one that a program registered.

use crate::code::{self, Code};
use crate::config::Strangers;
use crate::work::{HostKernel, Launch};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// The host build of a kernel: its code, and the bytes of each argument.
#[derive(Clone)]
pub struct Host {
    pub run: HostKernel,
    pub arguments: Vec<u32>,
}

/// A module, or a library of the newer interface.
pub struct Module {
    pub context: u64,
    /// Names of its kernels; `None`: a binary, which may have any.
    pub kernels: Option<Vec<String>>,
    pub functions: BTreeMap<String, u64>,
    pub globals: BTreeMap<String, (u64, u64)>,
}

/// A kernel of a module.
#[derive(Clone)]
pub struct Function {
    pub module: u64,
    pub name: Arc<str>,
    pub host: Option<Host>,
    pub attributes: BTreeMap<u32, i32>,
}

/// All of them.
pub struct Modules {
    pub modules: BTreeMap<u64, Module>,
    pub functions: BTreeMap<u64, Function>,
    pub hosts: BTreeMap<String, Host>,
    /// How often each kernel ran.
    pub launches: BTreeMap<Arc<str>, u64>,
    /// Launches of kernels that have no host build.
    pub skipped: u64,
}

impl Default for Modules {
    fn default() -> Self {
        Self {
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            hosts: project_kernels(),
            launches: BTreeMap::new(),
            skipped: 0,
        }
    }
}

impl Modules {
    /// The function of that name, made when it is first asked for.
    pub fn function(
        &mut self,
        module: u64,
        name: &str,
        strangers: Strangers,
        handle: u64,
    ) -> Result<u64, Code> {
        let known = self.modules.get_mut(&module).ok_or(code::INVALID_HANDLE)?;
        let host = self.hosts.get(name).cloned();
        let listed = known.kernels.as_ref().is_none_or(|names| names.iter().any(|n| n == name));
        if !listed || (host.is_none() && strangers == Strangers::Refuse) {
            return Err(code::NOT_FOUND);
        }
        let function = *known.functions.entry(name.into()).or_insert(handle);
        let (name, attributes) = (name.into(), BTreeMap::new());
        let made = Function { module, name, host, attributes };
        self.functions.entry(function).or_insert(made);
        Ok(function)
    }

    pub fn unload(&mut self, module: u64) -> Result<Module, Code> {
        let known = self.modules.remove(&module).ok_or(code::INVALID_HANDLE)?;
        self.functions.retain(|_, function| function.module != module);
        Ok(known)
    }

    /// The modules of a context end with it.
    pub fn forget(&mut self, context: u64) {
        let of = self.modules.iter().filter(|(_, module)| module.context == context);
        let of: Vec<u64> = of.map(|(handle, _)| *handle).collect();
        for module in of {
            let _ = self.unload(module);
        }
    }

    /// Counts a launch that was done.
    pub fn ran(&mut self, launch: &Launch) {
        *self.launches.entry(Arc::clone(&launch.name)).or_default() += 1;
        self.skipped += u64::from(launch.run.is_none());
    }
}

/// Names of the kernels in PTX.
pub fn entries(ptx: &str) -> Vec<String> {
    let after = ptx.split(".entry").skip(1);
    after.filter_map(|rest| rest.split_whitespace().next()).map(name_of).collect()
}

fn name_of(word: &str) -> String {
    word.split('(').next().unwrap_or(word).into()
}

/// Names and bytes of the global variables in PTX.
pub fn globals(ptx: &str) -> Vec<(String, u64)> {
    let lines = ptx.split(';').filter_map(|statement| statement.rsplit_once(".global"));
    // `ld.global` is an instruction.
    let lines = lines.filter(|(before, _)| before.chars().last().is_none_or(char::is_whitespace));
    lines.filter_map(|(_, rest)| global(rest)).collect()
}

/// `.align 4 .b8 name[16]`, maybe with a value.
fn global(text: &str) -> Option<(String, u64)> {
    let declared = text.split('=').next()?;
    let kind = declared.split_whitespace().rfind(|word| word.starts_with('.'))?;
    let unit = kind.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok()? / 8;
    let named = declared.split_whitespace().last()?;
    let (name, count) = match named.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse().ok()?),
        None => (named, 1),
    };
    Some((name.into(), unit.max(1) * count))
}

#[repr(C)]
struct Row {
    name: *const c_char,
    run: Option<HostKernel>,
    count: u32,
    sizes: *const u32,
}

/// A row's host build, if the row has one.
fn read(row: &Row) -> Option<(String, Host)> {
    if row.name.is_null() || (row.sizes.is_null() && row.count > 0) {
        return None;
    }
    // SAFETY: a text ended by a zero, by the contract of the table.
    let name = unsafe { CStr::from_ptr(row.name) }.to_string_lossy().into_owned();
    // SAFETY: as many sizes as the row says, by the contract of the table.
    let sizes = |place| unsafe { *row.sizes.add(place) };
    let arguments = (0..row.count as usize).map(sizes).collect();
    Some((name, Host { run: row.run?, arguments }))
}

/// The host build of the project's kernels, which this library was built with.
fn project_kernels() -> BTreeMap<String, Host> {
    unsafe extern "C" {
        fn blockyard_host_kernels() -> *const Row;
    }
    let mut found = BTreeMap::new();
    // SAFETY: the function is in the object that the build put beside this one.
    let mut row = unsafe { blockyard_host_kernels() };
    // SAFETY: the table ends with a row whose name is null.
    while let Some((name, host)) = unsafe { row.as_ref() }.and_then(read) {
        found.insert(name, host);
        row = row.wrapping_add(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{entries, globals};

    #[test]
    fn ptx_is_scanned_for_names() {
        let ptx = ".version 8.0\n.visible .entry fill(\n .param .u64 p)\n{}\n.entry other (\n)";
        assert_eq!(entries(ptx), ["fill", "other"]);
        assert!(entries("no kernels").is_empty());
    }

    #[test]
    fn global_variables_have_sizes() {
        let ptx = ".visible .global .align 4 .b8 table[16];\n.global .u32 count = 7;\n.reg .f32 x;\nld.global.u8 \t%rd75, [%rd74+1];";
        assert_eq!(globals(ptx), [("table".into(), 16), ("count".into(), 4)]);
    }
}
