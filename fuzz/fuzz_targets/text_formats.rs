//! Fuzz target: any bytes are a recording or one error, whichever text format they look like.
#![no_main]

const HEADERS: [&[u8]; 6] = [
    b"",
    b"Thread,Time,Action,Pointer,Size,Stream\n",
    b"id,lower,upper,size\n",
    b"{\"kind\":\"replay\",\"event\":\"version\"}\n",
    b"{\"device_traces\":[[",
    b"[{\"address\":0,\"total_size\":512,\"segment_type\":\"small\",\"blocks\":",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let header = HEADERS[usize::from(first) % HEADERS.len()];
    let _ = blockyard_tools::formats::read_bytes("fuzz", &[header, rest].concat());
});
