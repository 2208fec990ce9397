//! Misc: the texts of errors, entry points by name, and what profilers and tools ask for.

use crate::code;
use crate::door::{In, Out, exports};
use crate::report::base;

exports! {
    Free(_at) fn cuGetErrorName(error: i32, text: Out<*const u8>) {
        let name = code::text(error).map(|(name, _)| name.as_ptr());
        text.set(name.unwrap_or(std::ptr::null()))?;
        name.map(|_| ()).ok_or(code::INVALID_VALUE)
    }

    Free(_at) fn cuGetErrorString(error: i32, text: Out<*const u8>) {
        let sentence = code::text(error).map(|(_, sentence)| sentence.as_ptr());
        text.set(sentence.unwrap_or(std::ptr::null()))?;
        sentence.map(|_| ()).ok_or(code::INVALID_VALUE)
    }

    Free(_at) fn cuGetProcAddress(name: In<u8>, address: Out<u64>, version: i32, _flags: u64) {
        let found = find(&name.text()?, version);
        address.set(found.unwrap_or(0))?;
        found.map(|_| ()).ok_or(code::NOT_FOUND)
    }

    Free(_at) fn cuGetProcAddress_v2(
        name: In<u8>, address: Out<u64>, version: i32, _flags: u64, status: Out<u32>,
    ) {
        let found = find(&name.text()?, version);
        address.set(found.unwrap_or(0))?;
        status.set_if_wanted(u32::from(found.is_none()));
        found.map(|_| ()).ok_or(code::NOT_FOUND)
    }

    Context(_at) fn cuProfilerStart() {
        Ok(())
    }

    Context(_at) fn cuProfilerStop() {
        Ok(())
    }

    Free(_at) fn cuProfilerInitialize(_config: In<u8>, _output: In<u8>, _mode: u32) {
        Ok(())
    }
}

/// Versions of CUDA in which a later form of a call took its plain name over.
const TAKEN: [(&str, i32); 12] = [
    ("cuCtxCreate_v3", 11_040),
    ("cuCtxCreate_v4", 12_050),
    ("cuCtxGetDevice_v2", 13_000),
    ("cuCtxSynchronize_v2", 13_000),
    ("cuDeviceGetUuid_v2", 11_040),
    ("cuEventElapsedTime_v2", 12_080),
    ("cuGetProcAddress_v2", 12_000),
    ("cuMemAdvise_v2", 13_000),
    ("cuMemPrefetchAsync_v2", 13_000),
    ("cuStreamGetCaptureInfo_v2", 11_030),
    ("cuStreamGetCaptureInfo_v3", 12_030),
    ("cuStreamGetCtx_v2", 12_050),
];

/// The form of a call that programs of that version mean by its name.
fn find(name: &str, version: i32) -> Option<u64> {
    let since =
        |form: &str| TAKEN.iter().find(|(taken, _)| *taken == form).map_or(0, |(_, since)| *since);
    let name = match name {
        "cuGraphInstantiate" if version >= 12_000 => "cuGraphInstantiateWithFlags",
        name => name,
    };
    let forms = super::entries().filter(|entry| entry.name == name || base(entry.name) == name);
    let newest = forms.filter(|form| since(form.name) <= version).max_by_key(|form| form.name);
    newest.map(|entry| entry.address as u64)
}
