//! The clients that people use, in their own languages, and libmemcached's conformance test: see
//! tests/clients. Most of what they store lies on the drive.
//!
//! What each of them says it did stands in docs/clients.md; `TERRACE_UPDATE_DOCS=1 cargo test -p
//! terrace-e2e --test real_clients -- --include-ignored` writes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use terrace_e2e::{Server, flash_server, skip};

/// Long enough for a first download of libraries.
const SECONDS_MAX: &str = "300";
const SASL: [&str; 2] = ["user", "correct horse"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn runs(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn bounded(words: &[&str], dir: &Path) -> Output {
    bounded_with(words, dir, &[])
}

/// As [`bounded`], of a command that needs the network: again if it fails.
fn fetched(words: &[&str], dir: &Path) -> bool {
    [5, 15, 0].into_iter().any(|nap| {
        let is_there = bounded(words, dir).status.success();
        if !is_there {
            std::thread::sleep(Duration::from_secs(nap));
        }
        is_there
    })
}

fn bounded_with(words: &[&str], dir: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.envs(variables.iter().copied());
    command.arg(SECONDS_MAX).args(words).current_dir(dir).stdin(Stdio::null());
    // Some builds of libmemcached look for SASL's mechanisms where their own system has them.
    let mechanisms = format!("/usr/lib/{}-linux-gnu/sasl2", std::env::consts::ARCH);
    command.env("SASL_PATH", mechanisms);
    command.output().expect("timeout runs")
}

/// Runs a client in `tests/clients/DIR` against a server of its own.
fn client(dir: &str, words: &[&str]) {
    converse(flash_server("-t 2"), dir, words, &[]);
}

/// The same with a server that asks for a password. The client gets it as two more arguments.
fn sasl_client(dir: &str, words: &[&str]) {
    let temporary = Arc::new(TempDir::new().expect("a temporary directory"));
    let [user, password] = SASL;
    let line = format!("{user}:{password}\n");
    std::fs::write(temporary.path().join("passwords"), line).expect("room for it");
    let flags = "-t 2 -m 64 --tier ssd:DIR/tier:256m -S";
    let variables = [("MEMCACHED_SASL_PWDB", "DIR/passwords")];
    match Server::try_start_with(flags, temporary, &variables) {
        // How many records there are was tried without a password.
        Ok(server) => converse(server, dir, words, &[("RECORDS", "2000")]),
        Err(failed) => panic!("{flags}: exit code {:?}: {}", failed.code, failed.output),
    }
}

/// The same with a server that speaks TLS only. `TLS_CA` names the file of who vouches for it.
fn tls_client(dir: &str, words: &[&str]) {
    let temporary = Arc::new(TempDir::new().expect("a temporary directory"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]);
    let rcgen::CertifiedKey { cert, signing_key } = made.expect("a certificate");
    let file = |name: &str, content: String| {
        let path = temporary.path().join(name);
        std::fs::write(&path, content).expect("room for it");
        path.to_str().expect("temporary paths are text").to_string()
    };
    let chain = file("chain.pem", cert.pem());
    let key = file("key.pem", signing_key.serialize_pem());
    let flags =
        format!("-t 2 -m 64 --tier ssd:DIR/tier:256m -Z -o ssl_chain_cert={chain},ssl_key={key}");
    match Server::try_start(&flags, temporary) {
        Ok(server) => converse(server, dir, words, &[("RECORDS", "2000"), ("TLS_CA", &chain)]),
        Err(failed) => panic!("{flags}: exit code {:?}: {}", failed.code, failed.output),
    }
}

fn converse(mut server: Server, dir: &str, words: &[&str], variables: &[(&str, &str)]) {
    let address = server.address().to_string();
    let words: Vec<_> = words.iter().map(|word| word.replace("ADDRESS", &address)).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let output = bounded_with(&words, &root().join("tests/clients").join(dir), variables);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{words:?} ended with {}:\n{text}", output.status);
    assert!(text.contains("answered as expected"), "{words:?} said:\n{text}");
    let row = text.lines().find_map(|line| line.split_once("client | "));
    document(row.unwrap_or_else(|| panic!("{words:?} did not say what it is:\n{text}")).1);
    server.assert_running();
}

/// Checks that a client stands in docs/clients.md with all it did, or writes it there. `row` is
/// `name | version | language | protocol | exercised`.
fn document(row: &str) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let file = root().join("docs/clients.md");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches(['|', ' ']).split('|').map(|cell| cell.trim().to_string()).collect()
    };
    // Versions of what the system has are those of the system.
    let same = |line: &str, columns: &[usize]| {
        let (ours, theirs) = (cells(row), cells(line));
        theirs.len() == 5 && columns.iter().all(|&column| ours[column] == theirs[column])
    };
    if std::env::var_os("TERRACE_UPDATE_DOCS").is_none() {
        let is_there = text.lines().any(|line| same(line, &[0, 2, 3, 4]));
        assert!(is_there, "docs/clients.md does not have: {row}");
        return;
    }
    let Some(start) = text.find("|---") else { panic!("docs/clients.md has no table") };
    let head_bytes = start + text[start..].find('\n').map_or(text.len() - start, |end| end + 1);
    let (head, body) = text.split_at(head_bytes);
    // The table ends with its last row; what stands behind it stays.
    let table_bytes = body.split_inclusive('\n').take_while(|line| line.starts_with('|'));
    let (table, rest) = body.split_at(table_bytes.map(str::len).sum());
    let mut rows: Vec<_> =
        table.lines().filter(|line| !same(line, &[0, 3])).map(str::to_string).collect();
    rows.push(format!("| {row} |"));
    rows.sort_by_key(|row| row.to_lowercase());
    std::fs::write(&file, format!("{head}{}\n{rest}", rows.join("\n")))
        .expect("docs can be written");
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
        Some(python) => {
            let words = [&python, "pymemcache_client.py", "ADDRESS"];
            client("python", &words);
            tls_client("python", &words);
        }
        None => skip("pymemcache", "not installed; make tools"),
    }
}

#[test]
#[ignore = "takes long; make test-long"]
fn meta_memcache() {
    match python("meta_memcache") {
        Some(python) => client("python", &[&python, "meta_client.py", "ADDRESS"]),
        None => skip("meta_memcache", "not installed; make tools"),
    }
}

#[test]
fn python_binary_memcached() {
    let Some(python) = python("bmemcached") else {
        skip("python_binary_memcached", "not installed; make tools");
        return;
    };
    let words = [&python, "binary_client.py", "ADDRESS"];
    client("python", &words);
    sasl_client("python", &[&words[..], &SASL].concat());
    tls_client("python", &words);
}

#[test]
fn pylibmc() {
    let Some(python) = python("pylibmc") else {
        skip("pylibmc", "not installed; make tools");
        return;
    };
    client("python", &[&python, "pylibmc_client.py", "ADDRESS", "ascii"]);
    let words = [&python, "pylibmc_client.py", "ADDRESS", "binary"];
    client("python", &words);
    sasl_client("python", &[&words[..], &SASL].concat());
}

#[test]
fn gomemcache() {
    let dir = root().join("tests/clients/go");
    if !runs("go", "version") || !fetched(&["go", "mod", "download"], &dir) {
        skip("gomemcache", "no Go, or its modules can't be had");
        return;
    }
    let words = ["go", "run", ".", "ADDRESS"];
    client("go", &words);
    tls_client("go", &words);
}

/// Installs the packages of tests/clients/node, once.
fn has_npm_packages() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let dir = root().join("tests/clients/node");
    let install = ["npm", "ci", "--silent", "--no-audit", "--no-fund"];
    *INSTALLED.get_or_init(|| runs("npm", "--version") && fetched(&install, &dir))
}

#[test]
fn memcached_from_npm() {
    match has_npm_packages() {
        true => client("node", &["node", "memcached_client.js", "ADDRESS"]),
        false => skip("memcached_from_npm", "no npm, or its packages can't be had"),
    }
}

#[test]
fn memjs() {
    if !has_npm_packages() {
        skip("memjs", "no npm, or its packages can't be had");
        return;
    }
    let words = ["node", "memjs_client.js", "ADDRESS"];
    client("node", &words);
    sasl_client("node", &[&words[..], &SASL].concat());
}

/// Compiles tests/clients/java, once.
fn has_java_clients() -> bool {
    static COMPILED: OnceLock<bool> = OnceLock::new();
    let dir = root().join("tests/clients/java");
    // The plugin that runs them is fetched along: with a goal that only prints.
    let compile = ["mvn", "-q", "-B", "compile", "dependency:go-offline", "exec:help"];
    *COMPILED.get_or_init(|| runs("mvn", "--version") && fetched(&compile, &dir))
}

fn java_client(name: &str, class: &str) {
    if !has_java_clients() {
        skip(name, "no Maven, or its artifacts can't be had");
        return;
    }
    let class = format!("-Dexec.mainClass={class}");
    let words = |arguments: String| {
        let arguments = format!("-Dexec.args={arguments}");
        ["mvn", "-o", "-q", "-B", "exec:java", &class, &arguments].map(str::to_string)
    };
    for protocol in ["ascii", "binary"] {
        let words = words(format!("ADDRESS {protocol}"));
        client("java", &words.each_ref().map(String::as_str));
    }
    let [user, password] = SASL;
    let words = words(format!("ADDRESS binary {user} '{password}'"));
    sasl_client("java", &words.each_ref().map(String::as_str));
}

#[test]
#[ignore = "takes long; make test-long"]
fn spymemcached() {
    java_client("spymemcached", "SpyClient");
}

#[test]
fn xmemcached() {
    java_client("xmemcached", "XClient");
}

/// Runs the tests that a framework has of its memcached backends, see tests/clients/suites.
fn framework(package: &str) {
    const NOT_INSTALLED: i32 = 77;
    let server = terrace_e2e::program().to_str().expect("its path is text");
    let words = ["python3", "-B", "tests/clients/suites/suites.py", server, package];
    let output = bounded(&words, &root());
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.code() {
        Some(0) => println!("{text}"),
        Some(NOT_INSTALLED) => skip(package, "its tests can't be had from PyPI"),
        _ => panic!("{package}: {}:\n{text}", output.status),
    }
}

#[test]
#[ignore = "takes long; make test-long"]
fn djangos_cache_tests() {
    framework("django");
}

#[test]
#[ignore = "takes long; make test-long"]
fn dogpile_caches_tests() {
    framework("dogpile.cache");
}

#[test]
#[ignore = "takes long; make test-long"]
fn cachelibs_tests() {
    framework("cachelib");
}

#[test]
fn memccapable() {
    if Command::new("memccapable").arg("--help").output().is_err() {
        skip("memccapable", "not installed; make tools");
        return;
    }
    let mut server = flash_server("");
    let port = server.address().port().to_string();
    let output = bounded(&["memccapable", "-h", "127.0.0.1", "-p", &port], &root());
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // It asks for an error where a time follows the key of a delete, which memcached 1.6.45 deletes, too.
    let (passed, failed) = (text.matches("[pass]").count(), text.matches("[FAIL]").count());
    assert_eq!((passed, failed), (52, 2), "{text}");
    let version = libmemcached_version();
    document(&format!(
        "libmemcached's memccapable | {version} | C | ASCII and binary | {passed} of its {} cases, as memcached 1.6.45",
        passed + failed
    ));
    server.assert_alive();
}

fn libmemcached_version() -> String {
    let query = ["-W", "-f", "${Version}", "libmemcached-tools"];
    let version = Command::new("dpkg-query").args(query).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    version.ok().filter(|text| !text.is_empty()).unwrap_or("unknown".into())
}

#[test]
fn libmemcacheds_tools() {
    if Command::new("memccp").arg("--help").output().is_err() {
        return skip("libmemcacheds_tools", "not installed; make tools");
    }
    let mut server = Server::start("-m 64 -t 2");
    let dir = Arc::clone(&server.dir);
    let servers = format!("--servers={}", server.address());
    for (file, content) in [("one", "first"), ("two", "second")] {
        std::fs::write(dir.path().join(file), content).expect("room for it");
    }
    // What a tool prints; `None` if it fails.
    let tool = |words: &[&str]| {
        let output = bounded(&[words, &[&servers]].concat(), dir.path());
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let works = |words: &[&str]| tool(words).unwrap_or_else(|| panic!("{words:?} failed"));
    works(&["memcping"]);
    for protocol in [&[][..], &["--binary"]] {
        let with = |words: &[&'static str]| [words, protocol].concat();
        works(&with(&["memccp", "one", "two"]));
        let values = works(&with(&["memccat", "one", "two"]));
        assert_eq!(values.split_whitespace().collect::<Vec<_>>(), ["first", "second"]);
        works(&with(&["memctouch", "--expire=1000", "one"]));
        works(&with(&["memcexist", "two"]));
        works(&with(&["memcrm", "two"]));
        assert_eq!(tool(&with(&["memcexist", "two"])), None);
        assert!(works(&with(&["memcstat"])).contains("curr_items: 1"));
        works(&with(&["memcstat", "--server-version"]));
        // Knows the text protocol alone, and asks class by class.
        assert_eq!(works(&["memcdump"]).trim(), "one");
        works(&with(&["memcflush"]));
        assert_eq!(tool(&with(&["memcexist", "one"])), None);
    }
    server.assert_running();
    let version = libmemcached_version();
    document(&format!(
        "libmemcached's tools | {version} | C | ASCII and binary | memccp, memccat, memctouch, memcexist, memcrm, memcstat, memcflush; memcdump and memcping in ASCII"
    ));
}
