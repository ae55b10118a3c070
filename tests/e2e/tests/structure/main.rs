//! The tree is the architecture: imports go down, a folder owns its data, and comments name things.

mod source;

use source::{Crate, File};
use std::collections::{BTreeMap, BTreeSet};

/// Crates whose files import each other without circles.
const CRATES: [&str; 6] = ["cache", "device", "export", "nvme", "remote", "runtime"];

/// The layers of the cache, from the ground up: a folder imports folders of the lines above its own. CONTRIBUTING and
/// the head of `crates/cache/src/lib.rs` say what each is for.
const CACHE_LAYERS: [&[&str]; 13] = [
    &["platform", "records"],
    &["index", "state"],
    &["config", "segments"],
    &["dram"],
    &["stats"],
    &["tiers"],
    &["log"],
    &["shared"],
    &["shard"],
    &["engine"],
    &["background", "request"],
    &["recovery"],
    &["facade"],
];

/// Fields of the cache's own types that other folders see, at most: the superblock on a drive, what an engine is made
/// of, and small values as positions and numbers.
const OPEN_FIELDS_MAX: usize = 60;

/// In comments the noun of the type is the subject. Of so many words, at most so many may stand for something unnamed.
const UNNAMED: [&str; 5] = ["who", "whoever", "nobody", "somebody", "others"];
const UNNAMED_MAX: (usize, usize) = (3, 10_000);

/// The groups of nodes that reach each other, each with more than one.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(next) = left.pop() {
            for to in edges.get(next).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    left.push(to);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<_, _> = edges.keys().map(|node| (node, reached(node))).collect();
    let circle = |node: &String| -> BTreeSet<String> {
        let is_back = |to: &&String| reach.get(to).is_some_and(|seen| seen.contains(node));
        reach[node].iter().filter(is_back).cloned().collect()
    };
    let all: BTreeSet<_> = edges.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    all.into_iter().collect()
}

#[test]
fn files_import_each_other_in_no_circle() {
    for name in CRATES {
        let found = circles(&Crate::read(name).imports());
        assert!(found.is_empty(), "crates/{name}: {found:#?}");
    }
}

#[test]
fn folders_of_the_cache_import_lower_layers_only() {
    let floor = |folder: &str| CACHE_LAYERS.iter().position(|layer| layer.contains(&folder));
    let mut upwards = Vec::new();
    for (file, imports) in Crate::read("cache").imports() {
        let Some(from) = file.split_once('/').map(|(folder, _)| folder) else {
            assert_eq!(file, "lib.rs", "a file belongs to a folder of CACHE_LAYERS");
            continue;
        };
        let here = floor(from);
        assert!(here.is_some(), "{from}: no layer; add it to CACHE_LAYERS");
        for import in &imports {
            let to = import.split('/').next().unwrap_or_default();
            if to != from && floor(to) >= here {
                upwards.push(format!("{file} imports {import}"));
            }
        }
    }
    assert!(upwards.is_empty(), "{upwards:#?}");
}

#[test]
fn few_fields_of_the_cache_are_visible_outside_their_folder() {
    let open: Vec<_> = Crate::read("cache").files.iter().flat_map(File::open_fields).collect();
    assert!(open.len() <= OPEN_FIELDS_MAX, "{} of {OPEN_FIELDS_MAX}: {open:#?}", open.len());
}

#[test]
fn engine_has_its_methods_in_one_file() {
    let cache = Crate::read("cache");
    let files: Vec<_> = cache.files.iter().filter(|file| file.implements("Engine")).collect();
    let names: Vec<_> = files.iter().map(|file| &file.name).collect();
    assert_eq!(names, ["engine/mod.rs"]);
}

#[test]
fn comments_name_what_they_are_about() {
    for name in CRATES {
        let comments = Crate::read(name).comments();
        let words: Vec<String> = source::words(&comments).collect();
        let unnamed = words.iter().filter(|word| UNNAMED.contains(&word.as_str())).count();
        let (most, of) = UNNAMED_MAX;
        assert!(
            unnamed * of <= most * words.len(),
            "crates/{name}: {unnamed} of {} words are {UNNAMED:?}; name the thread, the caller, the drive",
            words.len()
        );
    }
}

#[test]
fn circle_of_three_is_found_and_a_chain_is_none() {
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            edges.entry((*from).into()).or_default().insert((*to).into());
        }
        edges
    };
    assert!(circles(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = circles(&edges(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]));
    assert_eq!(found, [["a", "b", "c"].map(String::from).into()]);
}
