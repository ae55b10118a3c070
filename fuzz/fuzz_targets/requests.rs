//! Whatever a client sends, the parser takes some of it, asks for more, or says close.
#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_protocol::walk;

fuzz_target!(|bytes: &[u8]| {
    walk(bytes, bytes.len());
    walk(bytes, 1 + bytes.first().map_or(0, |&byte| usize::from(byte)));
});
