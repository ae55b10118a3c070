//! Whatever a configuration file holds, it is settings, or a reason with the line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;
use terrace::settings::Invocation;

/// A file of this process.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::temp_dir().join(format!("terrace-fuzz-{}.toml", std::process::id()))
});

fuzz_target!(|bytes: &[u8]| {
    // No files: what a path names is not the parser's.
    if bytes.contains(&b'/') || std::fs::write(&*FILE, bytes).is_err() {
        return;
    }
    let file = FILE.display().to_string();
    if let Err(error) = Invocation::parse(&["--config".into(), file]) {
        assert!(!error.to_string().is_empty());
    }
});
