//! The corpora of the fuzz targets `nvme_host` and `nvme_controller` on every run of the tests: each file whole, byte
//! by byte and in pieces, and damaged; and bytes of any content.

use proptest::prelude::*;
use std::path::PathBuf;
use terrace_nvme::{walk_controller, walk_host};

type Walk = fn(&[u8], usize) -> usize;

/// The files of `fuzz/corpus/NAME`, by name.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(dir).expect("the corpus is in the repository");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a readable file");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

const TARGETS: [(&str, Walk); 2] = [("nvme_host", walk_host), ("nvme_controller", walk_controller)];

#[test]
fn the_corpus_is_survived_in_pieces_of_any_size() {
    for (name, walk) in TARGETS {
        let files = corpus(name);
        assert!(files.len() >= 4, "{name}: {} files", files.len());
        for (path, bytes) in files {
            let whole = walk(&bytes, bytes.len());
            for step in [1, 7, 100] {
                assert_eq!(walk(&bytes, step), whole, "{}: in pieces of {step}", path.display());
            }
        }
    }
}

#[test]
fn recorded_sessions_run_to_their_end() {
    for (path, bytes) in corpus("nvme_host") {
        assert_eq!(walk_host(&bytes, 100), 14, "{}", path.display());
    }
    for (path, bytes) in corpus("nvme_controller") {
        let is_io = path.to_string_lossy().contains("io-");
        assert_eq!(walk_controller(&bytes, 100), if is_io { 8 } else { 0 }, "{}", path.display());
    }
}

#[test]
fn damaged_corpus_is_survived() {
    for (name, walk) in TARGETS {
        for (_, bytes) in corpus(name) {
            for at in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
                for mask in [0x01, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= mask;
                    walk(&damaged, 1000);
                }
                walk(&[&bytes[..at], &bytes[at + 1..]].concat(), 1000);
            }
        }
    }
}

proptest! {
    /// Valid bytes up to some point, then any others.
    #[test]
    fn any_bytes_are_survived(
        target in 0..TARGETS.len(),
        file in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..400),
        step in 1usize..300,
    ) {
        let (name, walk) = TARGETS[target];
        let files = corpus(name);
        let (_, bytes) = &files[file.index(files.len())];
        walk(&[&bytes[..cut.index(bytes.len() + 1)], &tail].concat(), step);
    }

    /// A capsule of any content on a queue that is connected: the fields that are hard to hit by chance are right.
    #[test]
    fn any_command_is_survived(
        file in any::<prop::sample::Index>(),
        opcode in prop_oneof![0u8..0x20, any::<u8>()],
        fields in prop::collection::vec(prop_oneof![Just(0u32), Just(1), Just(u32::MAX), any::<u32>()], 12),
        descriptor in prop::sample::select(vec![0x01u8, 0x5a, 0x40, 0x00]),
        data in prop::sample::select(vec![0usize, 8, 16, 512, 4096]),
    ) {
        let files = corpus("nvme_controller");
        let plain: Vec<_> = files.iter().filter(|(path, _)| path.to_string_lossy().contains("plain")).collect();
        let (_, recorded) = plain[file.index(plain.len())];
        // ICReq, and the capsule of the Connect with its 1024 bytes of data.
        let mut wire = recorded[..128 + 72 + 1024].to_vec();
        let mut capsule = vec![4, 0, 72, if data > 0 { 72 } else { 0 }];
        capsule.extend((72 + data as u32).to_le_bytes());
        capsule.extend([opcode, 0x40, 9, 0]);
        capsule.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        capsule.resize(72, 0);
        capsule[8 + 4..8 + 8].copy_from_slice(&1u32.to_le_bytes());
        capsule[8 + 39] = descriptor;
        if fields[0] % 2 == 0 {
            let length = (data as u32).to_le_bytes();
            capsule[8 + 32..8 + 36].copy_from_slice(&length);
            capsule[8 + 24..8 + 32].fill(0);
        }
        capsule.resize(72 + data, 5);
        wire.extend(capsule);
        walk_controller(&wire, 500);
    }
}
