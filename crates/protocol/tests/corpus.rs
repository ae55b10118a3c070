//! The fuzz target's corpus, on every run of the tests: each file whole, byte by byte, and in pieces.

use terrace_protocol::walk;

#[test]
fn the_corpus_is_survived() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/requests");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is in the repository") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a readable file");
        for step in [bytes.len(), 1, 7, 100] {
            walk(&bytes, step);
        }
        files += 1;
    }
    assert!(files >= 8, "{files} files");
}

#[test]
fn requests_are_counted() {
    assert_eq!(walk(b"set k 0 0 3\r\na\n\n\r\nget k\r\nfoo\r\nmn\r\n", 1), 4);
}
