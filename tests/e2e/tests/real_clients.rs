//! The clients that people use, in their own languages, and libmemcached's conformance test: see
//! tests/clients. Most of what they store lies on the drive.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use terrace_e2e::{flash_server, skip};

/// Long enough for a first download of libraries.
const SECONDS_MAX: &str = "240";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn runs(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn bounded(words: &[&str], dir: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.arg(SECONDS_MAX).args(words).current_dir(dir).stdin(Stdio::null());
    command.output().expect("timeout runs")
}

/// Runs a client in `tests/clients/DIR` against a server of its own.
fn client(dir: &str, words: &[&str]) {
    let mut server = flash_server("-t 2");
    let address = server.address().to_string();
    let words: Vec<_> = words.iter().map(|word| word.replace("ADDRESS", &address)).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let output = bounded(&words, &root().join("tests/clients").join(dir));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{words:?} ended with {}:\n{text}", output.status);
    assert!(text.contains("answered as expected"), "{words:?} said:\n{text}");
    for part in text.lines().filter_map(|line| line.strip_prefix("skipped: ")) {
        let (test, why) = part.split_once(": ").unwrap_or((part, "no reason given"));
        skip(test, why);
    }
    server.assert_alive();
}

/// The Python of the local environment that `make tools` sets up, if it has `module`.
fn python(module: &str) -> Option<String> {
    let python = root().join(".venv/bin/python").to_str()?.to_string();
    let has = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    has.is_ok_and(|output| output.status.success()).then_some(python)
}

#[test]
fn pymemcache() {
    match python("pymemcache") {
        Some(python) => client("python", &[&python, "pymemcache_client.py", "ADDRESS"]),
        None => skip("pymemcache", "not installed; make tools"),
    }
}

#[test]
fn meta_memcache() {
    match python("meta_memcache") {
        Some(python) => client("python", &[&python, "meta_client.py", "ADDRESS"]),
        None => skip("meta_memcache", "not installed; make tools"),
    }
}

#[test]
fn gomemcache() {
    let dir = root().join("tests/clients/go");
    if !runs("go", "version") || !bounded(&["go", "mod", "download"], &dir).status.success() {
        skip("gomemcache", "no Go, or its modules can't be had");
        return;
    }
    client("go", &["go", "run", ".", "ADDRESS"]);
}

#[test]
fn memcached_from_npm() {
    let dir = root().join("tests/clients/node");
    let install = ["npm", "ci", "--silent", "--no-audit", "--no-fund"];
    if !runs("npm", "--version") || !bounded(&install, &dir).status.success() {
        skip("memcached_from_npm", "no npm, or its packages can't be had");
        return;
    }
    client("node", &["node", "memcached_client.js", "ADDRESS"]);
}

#[test]
fn spymemcached() {
    let dir = root().join("tests/clients/java");
    let compile = ["mvn", "-q", "-B", "compile", "dependency:go-offline"];
    if !runs("mvn", "--version") || !bounded(&compile, &dir).status.success() {
        skip("spymemcached", "no Maven, or its artifacts can't be had");
        return;
    }
    client("java", &["mvn", "-q", "-B", "exec:java", "-Dexec.args=ADDRESS"]);
}

#[test]
fn memccapable() {
    if Command::new("memccapable").arg("--help").output().is_err() {
        skip("memccapable", "not installed; make tools");
        return;
    }
    let mut server = flash_server("");
    let port = server.address().port().to_string();
    let output = bounded(&["memccapable", "-h", "127.0.0.1", "-p", &port, "-a"], &root());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("All tests passed"), "{text}");
    server.assert_alive();
}
