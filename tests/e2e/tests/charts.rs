//! Every argument list in charts.txt starts a server that serves: plainly, and in the box that a chart puts it in.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use terrace_e2e::{
    Client, Container, Limits, NAMELESS_USER, free_port, is_terrace, open_dir, program,
    run_as_root, skip, wait_until,
};

/// One argument list, and what the server says of itself with it.
#[derive(Debug)]
struct List {
    title: &'static str,
    arguments: Vec<&'static str>,
    settings: Vec<(&'static str, &'static str)>,
}

fn lists() -> Vec<List> {
    let mut lists: Vec<List> = Vec::new();
    let lines = include_str!("charts.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(line) = line.strip_prefix("  ") else {
            lists.push(List { title: line, arguments: Vec::new(), settings: Vec::new() });
            continue;
        };
        let list = lists.last_mut().expect("a title before an argument");
        match line.strip_prefix("= ").and_then(|setting| setting.split_once(' ')) {
            Some(setting) => list.settings.push(setting),
            None => {
                let quoted = line.strip_prefix('"').and_then(|line| line.strip_suffix('"'));
                list.arguments.push(quoted.expect("an argument in quotes"));
            }
        }
    }
    assert!(lists.len() > 30, "only {} lists", lists.len());
    lists
}

/// Asks a server what `list` made of it, and has it serve.
fn check(list: &List, client: &mut Client) {
    let title = list.title;
    assert!(client.set("chart", b"value"), "{title}");
    assert_eq!(client.get("chart").as_deref(), Some(&b"value"[..]), "{title}");
    let found = client.stats("settings");
    for (name, value) in &list.settings {
        assert_eq!(found.get(*name).map(String::as_str), Some(*value), "{name} of {title}");
    }
}

/// A process that is not left behind.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The arguments but `-l`: all tests of a machine share its addresses.
fn without_listeners<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        match argument.strip_prefix("-l") {
            Some("") => drop(rest.next()),
            Some(_) => {}
            None => kept.push(argument),
        }
    }
    kept
}

#[test]
fn argument_lists_of_charts_start_and_serve() {
    if !is_terrace() {
        return skip("argument_lists_of_charts_start_and_serve", "1.6.45 ends with some of them");
    }
    // Where every user can execute it.
    let binaries = open_dir();
    let binary = binaries.path().join("terrace");
    fs::copy(program(), &binary).expect("room for a copy");
    for list in lists() {
        let dir = open_dir();
        let mut command = Command::new(&binary);
        if run_as_root() {
            let ids = format!(
                "--reuid={NAMELESS_USER} --regid={NAMELESS_USER} --clear-groups --inh-caps=-all"
            );
            command = Command::new("setpriv");
            command.args(ids.split(' ')).arg(&binary);
        }
        let data = dir.path().join("data").display().to_string();
        let arguments = without_listeners(&list.arguments);
        let here =
            |argument: &&str| argument.replace("/data", &data).replace("/run/terrace", &data);
        command.args(arguments.iter().map(here));
        let port = free_port();
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut run = Run(command.spawn().expect("it starts"));
        wait_until(list.title, || {
            let ended = run.0.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "{list:?} ended: {ended:?}");
            TcpStream::connect(address).ok()
        });
        let moved = List {
            settings: list
                .settings
                .iter()
                .copied()
                .filter(|(name, _)| *name != "tcpport")
                .collect(),
            ..list
        };
        check(&moved, &mut Client::connect(address));
    }
}

#[test]
fn argument_lists_of_charts_start_and_serve_in_their_pod() {
    let test = "argument_lists_of_charts_start_and_serve_in_their_pod";
    if !is_terrace() {
        return skip(test, "1.6.45 ends with some of them");
    }
    if let Err(why) = Container::can_run() {
        return skip(test, &why);
    }
    for list in lists() {
        let mut container = Container::start(&list.arguments, Limits::default());
        check(&list, &mut container.client());
    }
}
