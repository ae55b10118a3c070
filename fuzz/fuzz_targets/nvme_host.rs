//! Whatever a controller sends over NVMe/TCP, the host takes some of it, completes each command once, or ends.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    terrace_nvme::walk_host(bytes, 1 + bytes.last().map_or(0, |&byte| usize::from(byte)));
});
