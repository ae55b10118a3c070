//! The corpora of the fuzz targets `command_line` and `config`, on every run of the tests.

use std::fs;
use terrace::settings::Invocation;

/// What is in `fuzz/corpus/NAME`.
fn corpus(name: &str) -> Vec<(std::path::PathBuf, String)> {
    let dir = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(dir).expect("the corpus is in the repository");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.clone(), fs::read_to_string(path).expect("text"))).collect()
}

#[test]
fn command_lines_are_taken_or_refused() {
    let (mut taken, mut refused) = (0, 0);
    for (_, text) in corpus("command_line") {
        let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        match Invocation::parse(&words) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}

#[test]
fn files_are_taken_or_refused() {
    let (mut taken, mut refused) = (0, 0);
    for (path, _) in corpus("config") {
        let path = path.to_str().expect("a path of text").to_string();
        match Invocation::parse(&["--config".into(), path]) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}
