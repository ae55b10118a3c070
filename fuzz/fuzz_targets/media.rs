//! Whatever a drive holds, it is read, or it is not.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    terrace_cache::read_media(bytes);
});
