//! `terrace tiers`: tiers of a running server are shown, drained and removed from a shell.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{Server, count_right, fill, free_port, is_terrace, program, skip, wait_until};

const RECORDS: usize = 20_000;
/// The length of values of which as many records fill two tiers.
const LONG: usize = 4000;

fn needs_terrace(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "needs Terrace");
    }
    is_terrace()
}

/// A shell beside a server with two tiers and a token, whose settings lie in `DIR/settings`.
struct Shell {
    dir: Arc<TempDir>,
    port: u16,
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Shell {
    /// With a server that has records of values of `bytes`.
    fn beside_filled(bytes: usize) -> (Self, Server) {
        let dir = Arc::new(TempDir::new().expect("a folder"));
        let path = |name: &str| dir.path().join(name).display().to_string();
        let port = free_port();
        let settings = format!(
            "memory-limit = 32\nthreads = 2\ntier = [\"ssd:{}:64m\", \"ssd:{}:64m\"]\n\
             admin = \"127.0.0.1:{port}\"\nadmin-token-file = \"{}\"\n",
            path("a"),
            path("b"),
            path("token")
        );
        fs::write(path("token"), "0123456789abcdef\n").expect("a file");
        fs::write(path("wrong"), "0123456789abcdeX\n").expect("a file");
        fs::write(path("settings"), settings).expect("a file");
        let server = match Server::try_start("--config DIR/settings", Arc::clone(&dir)) {
            Ok(server) => server,
            Err(failed) => panic!("{}", failed.output),
        };
        fill(&mut server.client(), "key", RECORDS, bytes);
        let mut client = server.client();
        wait_until("records on each tier", || {
            let used = |tier| client.stat("tiers", &format!("tier:{tier}:segments_used"));
            [0, 1].map(used).iter().all(|&used| used > 0).then_some(())
        });
        (Self { dir, port }, server)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// `terrace tiers` with these words, `DIR` and `PORT` among them.
    fn command(&self, words: &str) -> Command {
        let words = words
            .replace("DIR", &self.dir.path().display().to_string())
            .replace("PORT", &self.port.to_string());
        let mut command = Command::new(program());
        command.arg("tiers").args(words.split(' '));
        command
    }

    fn run_with(&self, words: &str) -> Ended {
        let output = self.command(words).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ended { code: output.status.code(), output: stdout, errors: stderr }
    }

    /// The same with the server's settings.
    fn run(&self, words: &str) -> Ended {
        self.run_with(&format!("{words} --config DIR/settings"))
    }

    fn state(&self, tier: usize) -> String {
        let ended = self.run("status --json");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let tiers: serde_json::Value = serde_json::from_str(&ended.output).expect("JSON");
        tiers[tier]["state"].as_str().expect("a state").to_owned()
    }
}

impl Ended {
    /// Panics unless it ended with this code and said this.
    fn must(&self, code: i32, said: &str) {
        let text = if code == 0 { &self.output } else { &self.errors };
        assert!(self.code == Some(code) && text.contains(said), "{said}: {self:?}");
    }
}

#[test]
fn tier_is_drained_to_the_end_and_removed() {
    if !needs_terrace("tier_is_drained_to_the_end_and_removed") {
        return;
    }
    let (shell, server) = Shell::beside_filled(300);
    let status = shell.run("status");
    let lines: Vec<_> = status.output.lines().collect();
    assert_eq!(lines.len(), 3, "{status:?}");
    for (line, (number, name)) in lines[1..].iter().zip([(0, "a"), (1, "b")]) {
        let begins = line.starts_with(&format!("{number}     working "));
        assert!(begins && line.ends_with(&shell.path(name)), "{status:?}");
    }
    shell.run("remove 1").must(1, "which would be lost");
    assert_eq!(shell.state(1), "working");
    let drained = shell.run("drain DIR/b --wait");
    drained.must(0, "drained in");
    let begun = format!("tier 1 ({}): draining", shell.path("b"));
    assert!(drained.errors.is_empty() || drained.errors.starts_with(&begun), "{drained:?}");
    assert_eq!(shell.state(1), "drained");
    let mut client = server.client();
    assert_eq!(client.stat("tiers", "tier:1:segments_used"), 0);
    shell.run("remove 1").must(0, "removed; leave it out");
    assert_eq!(shell.state(1), "removed");
    let label = shell.path("b");
    server.output_with(&format!("tier {label}: a drain begins, with "));
    server.output_with(&format!("tier {label}: removed from the set; a later start"));
    shell.run("drain 1").must(1, "the tier was removed");
    shell.run("drain 0").must(1, "the last tier that takes records");
    assert_eq!(count_right(&mut client, "key", RECORDS, 300), RECORDS);
}

#[test]
fn wait_ends_when_the_drain_is_cancelled_and_force_drops_what_has_no_room() {
    if !needs_terrace("wait_ends_when_the_drain_is_cancelled_and_force_drops_what_has_no_room") {
        return;
    }
    let (shell, server) = Shell::beside_filled(LONG);
    let mut waits = shell
        .command("drain 0 --wait --config DIR/settings")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut errors = BufReader::new(waits.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    assert!(line.contains(" % moved"), "{line}");
    wait_until("full tiers", || (shell.state(0) == "no-room").then_some(()));
    server.output_with("no other tier has room: the drain waits, ");
    shell.run("cancel 0").must(0, "working");
    let status = waits.wait().expect("it ends");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("text");
    assert_eq!(status.code(), Some(1), "{rest}");
    assert!(rest.contains("the drain has ended, with records left: it was cancelled"), "{rest}");
    shell.run("cancel 0").must(1, "the tier is not being drained");
    shell.run("drain 0 --force --wait").must(0, "drained in");
    assert_eq!(shell.state(0), "drained");
    server.output_with("drained: no record is left on it");
}

#[test]
fn tier_with_records_is_removed_with_yes_only() {
    if !needs_terrace("tier_with_records_is_removed_with_yes_only") {
        return;
    }
    let (shell, server) = Shell::beside_filled(300);
    shell.run("remove 0").must(1, "write --yes");
    shell.run("remove 0 --yes").must(0, ", which are lost");
    assert_eq!(shell.state(0), "removed");
    let output = server.output_with("removed from the set with ");
    assert!(output.contains(", which are lost; a later start"), "{output}");
    let mut client = server.client();
    let left = count_right(&mut client, "key", RECORDS, 300);
    assert!((1..RECORDS).contains(&left), "{left}");
}

/// Stores records again and again, until as many as that are on a tier.
fn fill_until_used(server: &Server, tier: usize) {
    let mut client = server.client();
    wait_until("records on the new tier", || {
        fill(&mut client, "key", RECORDS, 300);
        (client.stat("tiers", &format!("tier:{tier}:segments_used")) > 0).then_some(())
    });
    assert_eq!(count_right(&mut client, "key", RECORDS, 300), RECORDS);
}

#[test]
fn tier_is_added_and_takes_records() {
    if !needs_terrace("tier_is_added_and_takes_records") {
        return;
    }
    let (shell, server) = Shell::beside_filled(300);
    shell.run("add tape:DIR/c:64m").must(1, "there is no kind tape");
    shell.run("add ssd:DIR/c").must(1, "has no size yet");
    shell.run("add ssd:DIR/b:64m").must(1, "in use");
    shell.run("add ssd:DIR/c:1m").must(1, "too small");
    assert!(!std::path::Path::new(&shell.path("c")).exists(), "a refused drive's file is gone");
    shell.run("add ssd:DIR/c:64m").must(0, "tier 2 (");
    fill_until_used(&server, 2);
    shell.run("drain 0 --wait").must(0, "drained in");
    shell.run("remove 0").must(0, "removed");
    // Nothing holds its drive any more, so that it can be a tier again.
    shell.run("add ssd:DIR/a:64m").must(1, "write --yes to overwrite it");
    shell.run("add ssd:DIR/a:64m --yes").must(0, "tier 3 (");
    fill_until_used(&server, 3);
    let links = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("its descriptors");
    let open = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    let drive = shell.path("a");
    assert!(open.filter(|path| path.to_str() == Some(&drive)).count() > 0);
}

#[test]
fn hangup_adds_new_tiers_of_the_settings_and_drains_none() {
    if !needs_terrace("hangup_adds_new_tiers_of_the_settings_and_drains_none") {
        return;
    }
    let (shell, server) = Shell::beside_filled(300);
    let settings = fs::read_to_string(shell.path("settings")).expect("a file");
    let tier = |name: &str, bytes: &str| format!("\"ssd:{}:{bytes}\"", shell.path(name));
    let line = format!("tier = [{}, {}]\n", tier("a", "96m"), tier("c", "64m"));
    let others = settings.lines().filter(|line| !line.starts_with("tier"));
    let changed = others.fold(line, |text, line| text + line + "\n");
    fs::write(shell.path("settings"), changed).expect("a file");
    server.hang_up();
    let log = server.output_with("added as tier 2");
    assert!(log.contains("/a: its settings have changed, and take effect at a restart"), "{log}");
    assert!(log.contains("/b: no longer in the settings, and stays"), "{log}");
    fill_until_used(&server, 2);
    assert_eq!([0, 1, 2].map(|tier| shell.state(tier)), ["working"; 3]);
    server.hang_up();
    server.output_with("no tier was added");
}

#[test]
fn errors_say_what_to_do() {
    if !needs_terrace("errors_say_what_to_do") {
        return;
    }
    let (shell, server) = Shell::beside_filled(300);
    let cases = [
        ("drain 1 --admin 127.0.0.1:PORT", 1, "give the file of its --admin-token-file"),
        ("drain 1 --admin 127.0.0.1:PORT --admin-token-file DIR/wrong", 1, "another token"),
        ("drain 1 --admin 127.0.0.1:PORT --admin-token-file DIR/no", 2, "No such file"),
        ("drain 7 --config DIR/settings", 2, "no tier 7: the server has 0 ("),
        ("drain 1 --config DIR/no", 2, "No such file"),
        ("drain 1 --config DIR/token", 2, "line 1"),
        ("drain 1 --config /dev/null", 2, "no admin port"),
        ("drain", 2, "N|PATH"),
    ];
    for (words, code, said) in cases {
        shell.run_with(words).must(code, said);
    }
    let address = server.address();
    shell.run_with(&format!("status --admin {address}")).must(3, "no HTTP there");
    assert_eq!(shell.state(1), "working");
    server.kill();
    shell.run("status").must(3, "is the server running");
}

#[test]
fn server_without_a_token_is_shown_and_not_changed() {
    if !needs_terrace("server_without_a_token_is_shown_and_not_changed") {
        return;
    }
    let port = free_port();
    let flags = format!("-m 32 --admin 127.0.0.1:{port} --tier ssd:DIR/a:64m --tier ssd:DIR/b:64m");
    let server = Server::start(&flags);
    let shell = Shell { dir: Arc::clone(&server.dir), port };
    shell.run_with("status --admin 127.0.0.1:PORT").must(0, "working");
    let refused = shell.run_with("drain 0 --admin 127.0.0.1:PORT");
    refused.must(1, "start it with --admin-token-file");
}
