//! Bad input: broken files of every kind end in one line that names file, place and expectation.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use blockyard_tools::formats::read_bytes;

/// A small dict as a protocol 2 pickle.
fn pickled(body: &[u8]) -> Vec<u8> {
    [b"\x80\x02", body, b"."].concat()
}

/// `{key: value}` with a pickled value.
fn dict(key: &str, value: &[u8]) -> Vec<u8> {
    [b"}", &text(key)[..], value, b"s"].concat()
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A snapshot with one trace entry whose `key` is a pickled value.
fn entry_with(key: &str, value: &[u8]) -> Vec<u8> {
    let entry = [b"}(", &text("action")[..], &text("alloc"), &text(key), value, b"u"].concat();
    let trace = [b"]]", &entry[..], b"aa"].concat();
    pickled(&dict("device_traces", &trace))
}

fn segments(value: &[u8]) -> Vec<u8> {
    pickled(&dict("segments", value))
}

/// An allocation that ends behind the last address.
fn beyond_memory() -> Vec<u8> {
    let last = [&text("addr")[..], b"L18446744073709551615\n"].concat();
    let two = [&last[..], &text("size"), b"K\x02"].concat();
    let entry = [b"]]}(", &text("action")[..], &text("alloc"), &two, b"uaa"].concat();
    pickled(&dict("device_traces", &entry))
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn cut(mut bytes: Vec<u8>, from_end: usize) -> Vec<u8> {
    bytes.truncate(bytes.len() - from_end);
    bytes
}

const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

fn rmm(row: &str) -> Vec<u8> {
    format!("{RMM}{row}\n").into_bytes()
}

/// Name, bytes, and what the message must say after the file's name: its start and, after `;
/// expected`, a word.
fn table() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    let mut table = vec![
        ("empty", vec![], "an empty file", "PyTorch memory snapshot"),
        ("only comments", b"# x\n\n  \n".to_vec(), "only blanks and comments", "CSV"),
        ("zero bytes", vec![0; 100], "line 1: `", "PyTorch memory snapshot"),
        ("prose", b"hello world\n".to_vec(), "line 1: `hello world`", "RMM log"),
        ("zip", b"PK\x03\x04abc".to_vec(), "byte 0: a zip archive", "pickle"),
        ("html", b"<!DOCTYPE html>\n<html>".to_vec(), "line 1: `<!DOCTYPE", "CSV"),
        ("binary", vec![0xff, 0xfe, 0, 1, 10, 13], "line 1: `", "CSV"),
        // Pickle: structure
        ("only the protocol", b"\x80\x02".to_vec(), "byte 2: the file ends", "STOP"),
        ("protocol 9", b"\x80\x09N.".to_vec(), "byte 0: pickle protocol 9", "protocol 0 to 5"),
        ("no such opcode", pickled(b"\xff"), "byte 2: byte 0xff", "opcode"),
        ("stop on nothing", pickled(b""), "byte 2: an opcode that needs more", "well-formed"),
        ("item for nothing", pickled(b"Na"), "byte 3: an opcode that needs more", "well-formed"),
        ("item for an int", pickled(b"K\x01Na"), "byte 5: items for the integer 1", "a list"),
        ("items without a mark", pickled(b"}Nu"), "byte 4: an opcode that needs a mark", "MARK"),
        ("a key alone", pickled(b"}(Nu"), "byte 5: a key without a value", "keys and values"),
        ("keys for a list", pickled(b"]NNs"), "byte 5: an item for something", "a dict"),
        ("memo never stored", pickled(b"h\x07"), "byte 2: memo entry 7", "an earlier entry"),
        (
            "memo index far away",
            pickled(b"Nr\xff\xff\xff\x7f"),
            "byte 3: memo index 2147483647",
            "count up from 0",
        ),
        (
            "a string of 4 GiB",
            pickled(b"X\xff\xff\xff\xffabc"),
            "byte 2: a string of 4294967295 bytes where 4 are left",
            "a whole file",
        ),
        (
            "a string of 2^64",
            pickled(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"),
            "byte 2: a string of 18446744073709551615",
            "a whole file",
        ),
        ("an integer of 4 GiB", pickled(b"\x8b\xff\xff\xff\xff"), "byte 2: an integer of", "whole"),
        (
            "a huge frame",
            pickled(b"\x95\xff\xff\xff\xff\xff\xff\xff\xff"),
            "byte 2: a frame",
            "whole",
        ),
        (
            "marks without end",
            pickled(&[b'('; 5000]),
            "byte 1002: values nested deeper",
            "snapshot",
        ),
        ("lists without end", pickled(&[b']'; 90_000]), "byte ", "a memory snapshot"),
        ("values without end", pickled(&[b'N'; 90_000]), "byte ", "a memory snapshot"),
        ("a bad line", pickled(b"Iten\n"), "byte 2: `ten`", "an integer"),
        (
            "a line without end",
            b"\x80\x02I12".to_vec(),
            "byte 5: the file ends inside a line",
            "STOP",
        ),
        // Pickle: values of the wrong shape
        ("an int", pickled(b"K\x07"), "byte 0: the top value is the integer 7", "snapshot"),
        ("another dict", pickled(&dict("weights", b"]")), "byte 0: a dict with `weights`", "snap"),
        ("segments: int", segments(b"K\x01"), "byte ", "a list"),
        ("a segment: int", segments(b"]K\x01a"), "byte ", "address, total_size and blocks"),
        (
            "a list in itself",
            segments(b"]q\x00h\x00a"),
            "byte ",
            "a dict with address, total_size and blocks",
        ),
        ("a segment without keys", segments(b"]}NNsa"), "byte ", "address"),
        ("size: string", entry_with("size", &text("big")), "byte ", "a whole number"),
        ("size: negative", entry_with("size", b"J\xff\xff\xff\xff"), "byte ", "a whole number"),
        (
            "size: 17 bytes",
            entry_with("size", b"\x8a\x11aaaaaaaaaaaaaaaaa"),
            "byte ",
            "a whole number",
        ),
        ("pool: int", entry_with("pool_id", b"K\x01"), "byte ", "a pair"),
        ("frames: int", entry_with("frames", b"K\x01"), "byte ", "a list"),
        ("frames: of int", entry_with("frames", b"]K\x01a"), "byte ", "name, filename and line"),
        ("beyond memory", beyond_memory(), "", "end below 2^64"),
        // CSV
        ("a: too few", b"a,1,2\n".to_vec(), "line 1: too few fields", "a,ID,BYTES,STREAM"),
        ("a: negative", b"e\na,1,-5,0\n".to_vec(), "line 2: the size is `-5`", "whole number"),
        ("a: no id", b"e\na,,5,0\n".to_vec(), "line 2: the id is ``", "whole number"),
        ("a: too large", b"a,1,99999999999999999999,0\n".to_vec(), "line 1: the size", "whole"),
        ("a: twice", b"a,1,5,0\na,1,5,0\n".to_vec(), "line 2: id 1 is allocated again", "new id"),
        ("a: not UTF-8", b"a,1,5,0,\xff\xfe\n".to_vec(), "line 1: the tag", "UTF-8"),
        ("f: too many", b"a,1,5,0\nf,1,2\n".to_vec(), "line 2: too many fields", "f,ID"),
        ("f: a word", b"# c\n\nf,x\n".to_vec(), "line 3: the id is `x`", "whole number"),
        ("r: too few", b"a,1,5,0\nr,1\n".to_vec(), "line 2: too few fields", "r,ID,STREAM"),
        ("m: not UTF-8", b"e\nm,\xff\n".to_vec(), "line 2: the marker", "UTF-8"),
        ("CSV then JSON", b"e\n{\"segments\":[]}\n".to_vec(), "line 2: `{\"segm", "a,ID,BYTES"),
        ("CSV then RMM", format!("e\n{RMM}").into_bytes(), "line 2: `Thread,", "a,ID,BYTES"),
        ("an unknown row", b"a,1,5,0\nx,1\n".to_vec(), "line 2: `x,1`", "m,TEXT"),
        // RMM
        ("RMM: bad hex", rmm("1,00:00:00.1,allocate,0xzz,1,0"), "line 2: the pointer", "0x7f"),
        ("RMM: bad stream", rmm("1,00:00:00.1,free,0x1,1,0xq"), "line 2: the stream", "pointer"),
        ("RMM: bad size", rmm("1,00:00:00.1,allocate,0x1,-1,0"), "line 2: the size", "whole"),
        ("RMM: bad time", rmm("1,25:00:00.1,allocate,0x1,1,0"), "line 2: time", "HH:MM:SS"),
        ("RMM: bad action", rmm("1,00:00:00.1,grow,0x1,1,0"), "line 2: action `grow`", "free"),
        ("RMM: too few", rmm("1,00:00:00.1,free"), "line 2: too few fields", "Thread,Time"),
        (
            "RMM: a column is missing",
            b"Thread,Time,Action,Pointer,Size\n".to_vec(),
            "line 1: the header",
            "Stream",
        ),
        // Planner
        (
            "planner: backwards",
            b"id,lower,upper,size\n1,5,5,9\n".to_vec(),
            "line 2: upper 5",
            "life",
        ),
        (
            "planner: negative",
            b"id,lower,upper,size\n1,-5,5,9\n".to_vec(),
            "line 2: lower",
            "whole",
        ),
        ("planner: too few", b"id,lower,upper,size\n1,5\n".to_vec(), "line 2: too few", "id,lower"),
        // Compression
        ("cut zstd", cut(zst(&[b'#'; 5000]), 3), "byte ", "a whole zstd file"),
        ("cut gzip", cut(gz(&[b'#'; 5000]), 9), "byte ", "a whole gzip file"),
        ("zstd of nothing", b"\x28\xb5\x2f\xfd".to_vec(), "byte 0: broken zstd", "whole zstd"),
        ("gzip of nothing", b"\x1f\x8b".to_vec(), "byte 0: broken gzip", "whole gzip"),
        ("twice compressed", zst(&gz(b"e\n")), "compressed data", "compressed once"),
        ("a bomb", zst(&vec![0u8; 300 << 20]), "zstd data that grows beyond", "grows less"),
        ("nonsense in zstd", zst(b"nonsense"), "line 1: `nonsense`", "snapshot"),
    ];
    table.extend(json_table());
    table.extend(hostile());
    table
}

fn json_table() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    let json = |text: &str| text.as_bytes().to_vec();
    vec![
        ("JSON: cut", json(r#"{"segments": [{"address": 1"#), "byte 27: EOF", "snapshot"),
        ("JSON: not", json("{segments}"), "byte 1: key must be a string", "snapshot"),
        ("JSON: {}", json("{}"), "byte 0: an empty object", "segments"),
        (
            "JSON: VMA dump",
            json(r#"{"General": {"API": "Vulkan"}, "Total": {}, "MemoryInfo": {}}"#),
            "byte 0: an object with `General`, `Total`, `MemoryInfo`",
            "segments or device_traces",
        ),
        ("JSON: of ints", json("[1, 2]"), "byte 3: a segment is the number 1", "address"),
        ("JSON: segments: text", json(r#"{"segments": "x"}"#), "byte ", "snapshot"),
        ("JSON: flat trace", json(r#"{"device_traces": [{"action": "alloc"}]}"#), "byte ", "snap"),
        ("JSON: no action", json(r#"{"device_traces": [[{"a": 1}]]}"#), "byte ", "an action"),
        (
            "JSON: a fraction",
            json(r#"{"device_traces": [[{"action":"alloc","size":1.5}]]}"#),
            "byte ",
            "a whole number",
        ),
        (
            "JSON: two",
            json(r#"{"segments": []} {"segments": []}"#),
            "byte 17: trailing",
            "snapshot",
        ),
        (
            "JSON: a bad state",
            json(
                r#"[{"address":0,"total_size":8,"segment_type":"small","blocks":[{"size":8,"state":"gone"}]}]"#,
            ),
            "byte ",
            "active_pending_free",
        ),
        (
            "JSON: a bad type",
            json(r#"[{"address":0,"total_size":8,"segment_type":"wide","blocks":[]}]"#),
            "byte ",
            "small or large",
        ),
        (
            "JSON: a block outside",
            json(
                r#"[{"address":0,"total_size":8,"segment_type":"small","blocks":[{"size":9,"state":"inactive"}]}]"#,
            ),
            "byte ",
            "blocks inside it",
        ),
        ("JSON: deep", [b'['; 100_000].to_vec(), "byte ", "snapshot"),
        (
            "Umpire: bad pointer",
            json(
                r#"{"category":"operation","name":"allocate","numeric_args":{"size":8},"string_args":{"pointer":"12"}}"#,
            ),
            "line 1: pointer is `12`",
            "a pointer",
        ),
        (
            "Umpire: no size",
            json(r#"{"kind":"replay","event":"allocate","payload":{}}"#),
            "line 1: no size",
            "bytes",
        ),
        (
            "Umpire: cut",
            json("{\"kind\":\"replay\",\"event\":\"version\"}\n{\"kind\":"),
            "line 2: `{",
            "Umpire",
        ),
    ]
}

/// Every opcode that would run code, or is no plain data of a snapshot.
fn hostile() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    const OPCODES: [(&str, &[u8], &str); 18] = [
        ("GLOBAL", b"cos\nsystem\n", "byte 2: opcode GLOBAL (0x63) would run code"),
        ("REDUCE", b"NNR", "byte 4: opcode REDUCE (0x52) would run code"),
        ("BUILD", b"NNb", "byte 4: opcode BUILD (0x62) would run code"),
        ("INST", b"(ios\nsystem\n", "byte 3: opcode INST (0x69) would run code"),
        ("OBJ", b"(No", "byte 4: opcode OBJ (0x6f) would run code"),
        ("PERSID", b"Px\n", "byte 2: opcode PERSID (0x50) would run code"),
        ("BINPERSID", b"NQ", "byte 3: opcode BINPERSID (0x51) would run code"),
        ("NEWOBJ", b"NN\x81", "byte 4: opcode NEWOBJ (0x81) would run code"),
        ("NEWOBJ_EX", b"NNN\x92", "byte 5: opcode NEWOBJ_EX (0x92) would run code"),
        ("STACK_GLOBAL", b"NN\x93", "byte 4: opcode STACK_GLOBAL (0x93) would run code"),
        ("EXT1", b"\x82\x01", "byte 2: opcode EXT1 (0x82) would run code"),
        ("EXT2", b"\x83\x01\x00", "byte 2: opcode EXT2 (0x83) would run code"),
        ("EXT4", b"\x84\x01\x00\x00\x00", "byte 2: opcode EXT4 (0x84) would run code"),
        ("NEXT_BUFFER", b"\x97", "byte 2: opcode NEXT_BUFFER (0x97) would run code"),
        ("READONLY_BUFFER", b"N\x98", "byte 3: opcode READONLY_BUFFER (0x98) would run code"),
        ("EMPTY_SET", b"\x8f", "byte 2: opcode EMPTY_SET (0x8f)"),
        ("BYTEARRAY8", b"\x96", "byte 2: opcode BYTEARRAY8 (0x96)"),
        ("STRING", b"S'x'\n", "byte 2: opcode STRING (0x53)"),
    ];
    OPCODES.into_iter().map(|(name, body, found)| (name, pickled(body), found, "")).collect()
}

#[test]
fn every_broken_file_ends_in_one_clear_line() {
    let table = table();
    assert!(table.len() >= 80, "{}", table.len());
    let complaints: Vec<String> = table
        .iter()
        .filter_map(|(name, bytes, found, expected)| {
            let error = match read_bytes("bad.file", bytes) {
                Ok(recording) => return Some(format!("{name}: read as {}", recording.format)),
                Err(error) => error.to_string(),
            };
            let wanted = error.split_once("; expected ").map_or("", |(_, wanted)| wanted);
            let right = error.lines().count() == 1
                && error.len() < 600
                && error.starts_with(&format!("bad.file: {found}"))
                && !wanted.is_empty()
                && wanted.contains(expected);
            (!right).then(|| format!("{name}: {error:?}"))
        })
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// A small snapshot with everything in it, from a genuine one.
fn sample(name: &str) -> Vec<u8> {
    let path = format!("{}/../tests/data/snapshots/{name}.pickle.zst", env!("CARGO_MANIFEST_DIR"));
    zstd::decode_all(&std::fs::read(path).unwrap()[..]).unwrap()
}

#[test]
fn a_snapshot_cut_at_any_byte_is_refused() {
    let bytes = sample("basic_protocol5");
    read_bytes("whole", &bytes).unwrap();
    for end in 0..bytes.len() {
        let error = read_bytes("cut", &bytes[..end]).map(|recording| recording.format);
        let error = error.expect_err(&format!("cut at {end}")).to_string();
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
}

/// A small generator, so that a failure names a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

/// Flips, overwrites, removes, repeats and inserts some bytes.
fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const NASTY: &[u8] = b"\x00\x80\xff().0123NKJMhjqrsuaetld]}X\x94\x8a\x8b\x8c\x95,-\"{}[]:\n";
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len());
        match dice.roll(5) {
            _ if bytes.is_empty() => bytes.push(b'.'),
            0 => bytes[at] ^= 1 << dice.roll(8),
            1 => bytes[at] = NASTY[dice.roll(NASTY.len())],
            2 => drop(bytes.drain(at..(at + 1 + dice.roll(20)).min(bytes.len()))),
            3 => {
                let part = bytes[at..(at + 1 + dice.roll(40)).min(bytes.len())].to_vec();
                let to = dice.roll(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => bytes.insert(at, NASTY[dice.roll(NASTY.len())]),
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let text: [&[u8]; 6] = [
        b"# c\na,1,100,0,tag\na,2,5,3\nr,1,3\nm,step\nf,1\ne\nf,2\n",
        b"Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.1,allocate,0x10,1,0\n\
          1,00:00:00.2,free,0x10,1,0x2\n",
        b"id,lower,upper,size\n1,0,5,9\n2,5,7,3\n",
        b"{\"kind\":\"replay\",\"event\":\"allocate\",\"payload\":{\"size\":3},\
          \"result\":{\"memory_ptr\":\"0x30\"}}\n",
        b"{\"category\":\"operation\",\"name\":\"allocate\",\"numeric_args\":{\"size\":128},\
          \"string_args\":{\"allocator_ref\":\"0x1\",\"pointer\":\"0x10\"},\"timestamp\":5000}\n",
        b"{\"segments\":[{\"address\":0,\"total_size\":8,\"segment_type\":\"small\",\"blocks\":\
          [{\"size\":8,\"state\":\"inactive\"}]}],\"device_traces\":[[{\"action\":\"alloc\",\
          \"addr\":1,\"size\":2,\"pool_id\":[0,0],\"frames\":[{\"name\":\"f\"}]}]]}",
    ];
    let basic = sample("basic_protocol5");
    let mut samples: Vec<&[u8]> = text.to_vec();
    samples.push(&basic);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    for round in 0..20_000 {
        let mut bytes = samples[round % samples.len()].to_vec();
        mutate(&mut bytes, &mut dice);
        if let Err(error) = read_bytes("mutant", &bytes) {
            let error = error.to_string();
            assert_eq!(error.lines().count(), 1, "round {round}: {error:?}");
            refused += 1;
        }
    }
    assert!((2_000..19_500).contains(&refused), "both outcomes occur: {refused}");
}

#[test]
fn sharing_cannot_make_a_small_file_large() {
    // One list of blocks, in a thousand segments; one trace, for a thousand devices.
    let block =
        [b"}(", &text("size")[..], b"K\x08", &text("state"), &text("inactive"), b"u"].concat();
    let shared =
        |items: &[u8], memo: &str| [b"(", items, memo.repeat(1000).as_bytes(), b"l"].concat();
    let blocks = [b"]", &block[..], b"aq\x01"].concat();
    let segment = |blocks: &[u8]| {
        let keys = [&text("address")[..], b"K\x00", &text("total_size"), b"K\x08"].concat();
        [b"}(", &keys[..], &text("blocks"), blocks, b"u"].concat()
    };
    let twice = [b"(", &segment(&blocks)[..], &segment(b"h\x01"), b"l"].concat();
    let entry = [b"]}", &text("action")[..], &text("alloc"), b"saq\x01"].concat();
    let cases = [
        segments(&twice),
        segments(&shared(&[&segment(b"]")[..], b"q\x01"].concat(), "h\x01")),
        pickled(&dict("device_traces", &shared(&entry, "h\x01"))),
    ];
    for bytes in cases {
        let error = read_bytes("shared", &bytes).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("occurs twice") || error.contains("in two traces"), "{error}");
    }
}
