//! Whatever a host sends over NVMe/TCP, the controller takes some of it, hands out what it may, or ends; its other
//! connections go on.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    terrace_nvme::walk_controller(bytes, 1 + bytes.last().map_or(0, |&byte| usize::from(byte)));
});
