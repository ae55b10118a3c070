//! Thousands of recorded conversations with memcached 1.6.45: Terrace must answer as it did, but for what is
//! marked with a reason, and each reason stands in docs/protocol-conformance.md.
//!
//! `tests/conversations` has the descriptions from which the conversations are made, and the table.
//! `tests/conversations/record BINARY` records it anew.

#![allow(unreachable_pub, reason = "modules of a test")]

#[path = "../common/mod.rs"]
mod common;
mod describe;
mod notation;
mod play;
mod table;

use common::TestServer;
use common::memcached::Memcached;
use describe::{Conversation, conversations};
use play::{Peer, Protocol};
use std::collections::BTreeSet;
use std::path::PathBuf;
use table::Row;

const PARTS: [(&str, Protocol); 3] =
    [("classic", Protocol::Text), ("meta", Protocol::Text), ("binary", Protocol::Binary)];
/// A clock may tick in between, but not every time.
const TRIES: usize = 4;

fn tree(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../..", path].iter().collect()
}

fn file(path: &str) -> String {
    std::fs::read_to_string(tree(path)).expect(path)
}

fn described(part: &str) -> Vec<Conversation> {
    conversations(&file(&format!("tests/conversations/{part}.txt")))
}

fn recorded(part: &str) -> Vec<Row> {
    table::read(&file(&format!("tests/conversations/recorded/{part}.txt")))
}

/// The answers to a conversation that two tries agree on, or the `expected` ones if one try has them.
fn answers(peer: &mut Peer, protocol: Protocol, sent: &str, expected: Option<&str>) -> String {
    let mut before: Option<String> = None;
    for _ in 0..TRIES {
        let now = peer.play(protocol, sent);
        if expected == Some(&now) || before.as_ref() == Some(&now) && expected.is_none() {
            return now;
        }
        before = Some(now);
    }
    before.expect("a try")
}

#[test]
fn terrace_answers_as_memcached_did_or_for_a_reason_otherwise() {
    let server = TestServer::start();
    let mut peer = Peer::new(server.address);
    let (mut count, mut wrong) = (0, Vec::new());
    for (part, protocol) in PARTS {
        for row in recorded(part) {
            let answer = answers(&mut peer, protocol, &row.sent, Some(row.terrace()));
            if answer != row.terrace() {
                wrong.push(format!("{}\n  not {}\n  but {answer}", row.sent, row.terrace()));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 5000, "{count} conversations");
}

#[test]
fn the_table_is_that_of_the_descriptions() {
    for (part, _) in PARTS {
        let described: Vec<_> =
            described(part).into_iter().map(|described| described.sent).collect();
        let recorded: Vec<_> = recorded(part).into_iter().map(|row| row.sent).collect();
        assert!(described == recorded, "{part}: record it again");
    }
}

#[test]
fn each_difference_has_a_reason_that_the_documentation_tells() {
    let mut used = BTreeSet::new();
    for (part, _) in PARTS {
        let rows = recorded(part).into_iter();
        used.extend(rows.filter_map(|row| Some(row.otherwise?.0)));
    }
    for (part, _) in PARTS {
        let marks = described(part).into_iter().filter_map(|described| described.mark);
        for mark in marks {
            assert!(used.contains(&mark), "{part}: nothing differs for the reason {mark}");
        }
    }
    let page = file("docs/protocol-conformance.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `~")?.split_once('`'));
    let told: BTreeSet<_> = rows.map(|(mark, _)| mark.to_string()).collect();
    assert_eq!(used, told, "marks in the table, and rows of the page");
}

/// Run by `tests/conversations/record`: writes the table.
#[test]
#[ignore = "writes into the tree"]
fn record() {
    let memcached = Memcached::start(&[]).expect("a memcached to record");
    let server = TestServer::start();
    let [mut theirs, mut ours] = [memcached.address, server.address].map(Peer::new);
    for (part, protocol) in PARTS {
        let rows = described(part).into_iter().map(|described| {
            let memcached = answers(&mut theirs, protocol, &described.sent, None);
            let terrace = answers(&mut ours, protocol, &described.sent, Some(&memcached));
            Row::new(&described, memcached, &terrace)
        });
        let rows: Vec<_> = rows.collect();
        let differ = rows.iter().filter(|row| row.otherwise.is_some()).count();
        println!("{part}: {} conversations, {differ} answered otherwise", rows.len());
        let path = tree(&format!("tests/conversations/recorded/{part}.txt"));
        std::fs::write(path, table::write(&rows)).expect("room for the table");
    }
}
