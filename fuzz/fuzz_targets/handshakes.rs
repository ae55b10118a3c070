//! Whatever comes instead of TLS, or behind a handshake, the server ends that connection and goes on.
#![no_main]

#[path = "../../crates/server/tests/common/hostile.rs"]
#[allow(dead_code)]
mod hostile;

use hostile::Handshakes;
use libfuzzer_sys::fuzz_target;
use std::sync::{LazyLock, Mutex};

static SERVER: LazyLock<Mutex<Handshakes>> = LazyLock::new(|| Mutex::new(Handshakes::start()));

fuzz_target!(|bytes: &[u8]| {
    SERVER.lock().expect("one thread").bear(bytes);
});
