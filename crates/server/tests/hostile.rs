//! The corpora of the fuzz targets `datagrams`, `handshakes` and `conversations`, on every run of the tests.

#[path = "common/hostile.rs"]
mod hostile;

use hostile::{Conversations, Datagrams, Handshakes};

/// Shows what is in `fuzz/corpus/NAME`.
fn each(name: &str, mut show: impl FnMut(&[u8])) {
    let dir = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(dir).expect("the corpus is in the repository");
    let paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(paths.len() > 5, "{name}: {} files", paths.len());
    paths.iter().for_each(|path| show(&std::fs::read(path).expect("a file")));
}

#[test]
fn datagrams_harm_nobody() {
    let mut server = Datagrams::start();
    each("datagrams", |bytes| server.bear(bytes));
}

#[test]
fn handshakes_harm_nobody() {
    let mut server = Handshakes::start();
    each("handshakes", |bytes| server.bear(bytes));
}

#[test]
fn conversations_harm_nobody() {
    let mut server = Conversations::start();
    each("conversations", |bytes| server.bear(bytes));
}
