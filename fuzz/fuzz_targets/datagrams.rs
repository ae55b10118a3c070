//! Whatever a datagram holds, the server answers the next one.
#![no_main]

#[path = "../../crates/server/tests/common/hostile.rs"]
#[allow(dead_code)]
mod hostile;

use hostile::Datagrams;
use libfuzzer_sys::fuzz_target;
use std::sync::{LazyLock, Mutex};

static SERVER: LazyLock<Mutex<Datagrams>> = LazyLock::new(|| Mutex::new(Datagrams::start()));

fuzz_target!(|bytes: &[u8]| {
    SERVER.lock().expect("one thread").bear(bytes);
});
