//! Whatever a client asks for, in whatever words, the server does what it does and goes on with others.
#![no_main]

#[path = "../../crates/server/tests/common/hostile.rs"]
#[allow(dead_code)]
mod hostile;

use hostile::Conversations;
use libfuzzer_sys::fuzz_target;
use std::sync::{LazyLock, Mutex};

static SERVERS: LazyLock<Mutex<Conversations>> =
    LazyLock::new(|| Mutex::new(Conversations::start()));

fuzz_target!(|bytes: &[u8]| {
    SERVERS.lock().expect("one thread").bear(bytes);
});
