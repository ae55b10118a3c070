//! The corpus of the fuzz target `media`, on every run of the tests, and every file of it damaged.

use terrace_cache::read_media;

#[test]
fn the_corpus_is_survived() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/media");
    let mut understood = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is in the repository") {
        let mut bytes = std::fs::read(entry.expect("an entry").path()).expect("a file");
        understood += read_media(&bytes);
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 512) {
            bytes[at] ^= 0x81;
            read_media(&bytes);
            read_media(&bytes[at..]);
            bytes[at] ^= 0x81;
        }
    }
    // One of each kind at least.
    assert!(understood >= 6, "{understood}");
}
