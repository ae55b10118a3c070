//! Rules about the tree itself, each with its reason.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file holds one idea; at this length a second one has moved in.
const LINES_MAX: usize = 600;

/// Files that may be longer, and why.
const LONG_FILES: [(&str, &str); 2] = [("Cargo.lock", "written by cargo"), ("LICENSE", "as it is")];

/// Where `unsafe` may stand: all I/O of the device crate, and these files.
const UNSAFE_DIRS: [&str; 1] = ["crates/device/src/"];
const UNSAFE_FILES: [&str; 11] = [
    "crates/cache/src/background/maintenance.rs",
    "crates/cache/src/platform/appended.rs",
    "crates/cache/src/platform/lanes.rs",
    "crates/cache/src/platform/mapped.rs",
    "crates/cache/src/dram/memory.rs",
    "crates/cache/src/platform/prefetch.rs",
    "crates/cache/src/platform/rcu.rs",
    "crates/cache/src/platform/quiesce.rs",
    "crates/cache/src/background/relocate.rs",
    "crates/runtime/tests/fork.rs",
    "crates/server/src/server/faults.rs",
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The files of the tree as git knows them, new ones included.
fn files() -> Vec<(String, String)> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let names = String::from_utf8(output.stdout).expect("names are text");
    let mut files = Vec::new();
    for name in names.lines() {
        // Deleted and not yet committed, or not text (a corpus).
        if let Ok(text) = std::fs::read_to_string(root().join(name)) {
            files.push((name.to_string(), text));
        }
    }
    assert!(files.len() > 30, "only {} files: is this the tree?", files.len());
    files
}

fn is_source(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "sh" | "toml" | "py" | "go" | "js" | "java" | "md"))
        || matches!(name, "Makefile" | ".ci/run")
}

fn report(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{rule}:\n{}", findings.join("\n"));
}

/// Code without comments, roughly: what follows `//` in a line is left out.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[test]
fn no_file_is_long() {
    let long = |(name, text): (String, String)| {
        let lines = text.lines().count();
        let listed = LONG_FILES.iter().any(|(file, _)| *file == name);
        (is_source(&name) && lines > LINES_MAX && !listed).then(|| format!("{name}: {lines} lines"))
    };
    report("longer than 600 lines", files().into_iter().filter_map(long).collect());
}

#[test]
fn unsafe_code_stands_where_it_may() {
    let mut findings = Vec::new();
    for (name, text) in files() {
        let allowed = UNSAFE_DIRS.iter().any(|dir| name.starts_with(dir))
            || UNSAFE_FILES.contains(&name.as_str());
        if allowed || !name.ends_with(".rs") {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            let spelled = line.contains('"') || line.contains("unsafe_");
            if !spelled && words(code(line)).any(|word| word == "unsafe") {
                findings.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    report("unsafe outside of the files that may", findings);
}

#[test]
fn nothing_is_left_to_do() {
    // Put together here, so that this file does not find itself.
    let marks =
        [["to", "do!"], ["unimple", "mented!"], ["FIX", "ME"], ["XX", "X:"]].map(|m| m.concat());
    let mut findings = Vec::new();
    for (name, text) in files() {
        for (at, line) in text.lines().enumerate() {
            if name.ends_with(".rs") && marks.iter().any(|mark| line.contains(mark)) {
                findings.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    report("unfinished", findings);
}

#[test]
fn no_path_of_one_machine() {
    let places =
        [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/Us", "ers/"]].map(|p| p.concat());
    let mut findings = Vec::new();
    for (name, text) in files() {
        for (at, line) in text.lines().enumerate() {
            if places.iter().any(|place| line.contains(place)) {
                findings.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    report("paths that exist on one machine only", findings);
}

#[test]
fn documents_name_sources_and_tests_that_are_there() {
    let files = files();
    let is_file = |name: &str| files.iter().any(|(file, _)| file == name);
    let is_test = |test: &str| {
        let ends = [format!("/tests/{test}.rs"), format!("/tests/{test}/main.rs")];
        files.iter().any(|(file, _)| ends.iter().any(|end| file.ends_with(end)))
    };
    let mut findings = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".md")) {
        for (at, line) in text.lines().enumerate() {
            let words = line.split(|c: char| c.is_whitespace() || "`|;,()".contains(c));
            let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
            let is_source = |word: &str| word.starts_with("crates/") && word.ends_with(".rs");
            let missing = words.iter().copied().filter(|word| is_source(word) && !is_file(word));
            let tests = words.windows(2).filter(|pair| pair[0] == "--test").map(|pair| pair[1]);
            let tests = tests.filter(|test| line.contains("cargo test") && !is_test(test));
            findings.extend(missing.chain(tests).map(|it| format!("{name}:{}: {it}", at + 1)));
        }
    }
    report("documents name what is not there", findings);
}

#[test]
fn text_is_tidy() {
    let mut findings = Vec::new();
    for (name, text) in files() {
        if !is_source(&name) {
            continue;
        }
        if !text.is_empty() && !text.ends_with('\n') {
            findings.push(format!("{name}: no line end at the end"));
        }
        for (at, line) in text.lines().enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                findings.push(format!("{name}:{}: blanks at the end", at + 1));
            }
        }
    }
    report("untidy", findings);
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let mut findings = Vec::new();
    for (name, text) in files().into_iter().filter(|(name, _)| name.ends_with(".md")) {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            let from: PathBuf = root().join(&name);
            let target = from.parent().map(|dir| dir.join(path)).unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !target.exists() {
                findings.push(format!("{name}: {link}"));
            }
        }
    }
    report("links that lead nowhere", findings);
}
