//! Whatever the command line says, it is settings, or one line that says what is wrong.
#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace::settings::Invocation;

fuzz_target!(|text: &str| {
    // No files: what a path names is not the parser's.
    if text.contains('/') {
        return;
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
    if let Err(error) = Invocation::parse(&words) {
        assert!(!error.to_string().is_empty());
    }
});
