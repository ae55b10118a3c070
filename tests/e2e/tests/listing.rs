//! `lru_crawler metadump` and `mgdump`: every key of DRAM and drive, while others are served.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_e2e::{Client, PATIENCE, Server, fill, is_terrace, skip, wait_until};

const FLAGS: &str = "-m 24 -t 2 --tier ssd:DIR/tier:128m";

/// Stores enough to push what was stored before out of DRAM.
fn fill_flash(client: &mut Client) {
    fill(client, "filler", 20_000, 300);
}

/// The lines of an answer up to `end`; those of `metadump` end with a line feed alone, as memcached's.
fn lines(server: &Server, command: &str, end: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(format!("lru_crawler {command}\r\n").as_bytes()).expect("sent");
    let lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    lines.take_while(|line| line != end && !line.starts_with("BUSY")).collect()
}

#[test]
fn every_key_is_listed_once_wherever_it_lies() {
    if !is_terrace() {
        return skip("every_key_is_listed_once_wherever_it_lies", "needs Terrace");
    }
    let server = Server::start(FLAGS);
    let mut client = server.client();
    client.check("set on-flash 7 0 5\r\nhello\r\n", "STORED\r\n");
    client.check("set a%2Fb 0 1000 1\r\nx\r\n", "STORED\r\n");
    fill_flash(&mut client);
    client.check("set in-dram 0 0 2\r\nhi\r\n", "STORED\r\n");
    client.check("set gone 0 0 1\r\nx\r\n", "STORED\r\n");
    client.check("delete gone\r\n", "DELETED\r\n");
    client.check("ms AP8B 1 b\r\nx\r\n", "HD\r\n");

    let listed = lines(&server, "metadump all", "END");
    let keys: HashSet<&str> = listed
        .iter()
        .map(|line| line.strip_prefix("key=").and_then(|l| l.split(' ').next()).expect("a key"))
        .collect();
    assert_eq!(keys.len(), listed.len(), "none twice");
    let filler = keys.iter().filter(|key| key.starts_with("filler")).count();
    assert_eq!(filler + 4, keys.len());
    for key in ["on-flash", "in-dram", "a%252Fb", "%00%FF%01"] {
        assert!(keys.contains(key), "{key}");
    }
    let line = listed.iter().find(|line| line.starts_with("key=on-flash ")).expect("it is there");
    assert!(line.contains(" exp=-1 ") && line.ends_with("flags=7"), "{line}");

    // What `mgdump` says is what reads everything again.
    let gets = lines(&server, "mgdump hash", "EN");
    assert_eq!(gets.len(), listed.len());
    assert!(gets.contains(&"mg AP8B b".to_owned()) && gets.contains(&"mg on-flash".to_owned()));
}

#[test]
fn keys_beyond_ascii_are_listed_as_they_are() {
    if !is_terrace() {
        return skip("keys_beyond_ascii_are_listed_as_they_are", "needs Terrace");
    }
    let server = Server::start("");
    let mut client = server.client();
    // Longer than any that base64 leaves within the bounds of a line; and one that is no UTF-8.
    let long = "ключ".repeat(31);
    let odd = [b"odd-\xFF".as_slice(), b"\xB5"].concat();
    for key in ["ä".as_bytes(), long.as_bytes(), &odd] {
        client.check([b"set ", key, b" 0 0 1\r\nx\r\n"].concat(), "STORED\r\n");
        let mut dump = server.client();
        dump.check("stats cachedump 1 0\r\n", [b"ITEM ", key, b" [1 b; 0 s]\r\nEND\r\n"].concat());
        let mut dump = server.client();
        let line = [b"mg ", key, b"\r\n"].concat();
        dump.check("lru_crawler mgdump all\r\n", [&line, &b"EN\r\n"[..]].concat());
        client.check(&line, "HD\r\n");
        client.check([b"delete ", key, b"\r\n"].concat(), "DELETED\r\n");
    }
}

#[test]
fn a_listing_goes_on_under_load_and_the_load_goes_on_beside_it() {
    let test = "a_listing_goes_on_under_load_and_the_load_goes_on_beside_it";
    if !is_terrace() {
        return skip(test, "needs Terrace");
    }
    const KEPT: usize = 40_000;
    let server = Server::start("-m 24 -t 2 --tier ssd:DIR/tier:256m");
    fill(&mut server.client(), "kept", KEPT, 1000);
    let (done, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Overwrites, so that records move and segments are taken back all the time, and reads.
        scope.spawn(|| {
            let mut client = server.client();
            while !done.load(Ordering::Relaxed) {
                fill(&mut client, "changing", 500, 1000);
                assert!(client.get("kept7").is_some());
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_until("the load", || (rounds.load(Ordering::Relaxed) > 2).then_some(()));
        for (command, end) in [("metadump all", "END"), ("mgdump all", "EN")] {
            let before = rounds.load(Ordering::Relaxed);
            let listed = lines(&server, command, end);
            let name = |line: &String| -> String {
                let word = line.split(' ').find(|word| word.contains("kept"));
                word.map_or(String::new(), |word| word.trim_start_matches("key=").to_string())
            };
            let kept: HashSet<_> =
                listed.iter().map(name).filter(|name| !name.is_empty()).collect();
            assert_eq!(
                kept.len(),
                KEPT,
                "{command}: what nobody changed is listed, wherever it lay"
            );
            assert!(rounds.load(Ordering::Relaxed) > before, "{command} stopped the load");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// The ways to list keys: the request, and how the answer ends.
const DUMPS: [(&str, &str); 3] = [
    ("lru_crawler metadump all", "END"),
    ("lru_crawler mgdump all", "EN"),
    ("stats cachedump 1 0", "END"),
];

/// Which of `PREFIX0` and so on a listing lacks. Asks again where another listing has not ended yet.
fn missing(server: &Server, (request, end): (&str, &str), prefix: &str, keys: usize) -> Vec<usize> {
    loop {
        let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(format!("{request}\r\n").as_bytes()).expect("sent");
        let mut is_there = vec![false; keys];
        let mut was_busy = false;
        for line in BufReader::new(stream).lines().map(|line| line.expect("a line")) {
            was_busy |= line.contains("usy") || line.contains("BUSY");
            if was_busy || line == end {
                break;
            }
            let word = line.split(' ').find(|word| word.contains(prefix)).unwrap_or_default();
            let digits = word.trim_start_matches("key=").strip_prefix(prefix);
            if let Some(at) = digits.and_then(|digits| digits.parse::<usize>().ok()) {
                is_there[at] = true;
            }
        }
        if !was_busy {
            return (0..keys).filter(|&at| !is_there[at]).collect();
        }
    }
}

/// Overwrites `PREFIX0` and so on for as long as `list` takes.
fn overwritten_beside(server: &Server, prefix: &str, keys: usize, list: impl FnOnce() + Send) {
    let rounds = AtomicU64::new(0);
    fill(&mut server.client(), prefix, keys, 20);
    std::thread::scope(|scope| {
        let mut client = server.client();
        let listing = scope.spawn(|| {
            wait_until("the load", || (rounds.load(Ordering::Relaxed) > 0).then_some(()));
            list();
        });
        while !listing.is_finished() {
            fill(&mut client, prefix, keys, 20);
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[test]
fn ten_hot_keys_are_in_each_of_a_hundred_listings() {
    for flags in ["-m 64 -t 2", "-m 64 -t 2 --tier ssd:DIR/tier:256m"] {
        if !is_terrace() && flags.contains("--tier") {
            return skip("ten_hot_keys_are_in_each_of_a_hundred_listings", "needs Terrace");
        }
        let server = Server::start(flags);
        fill(&mut server.client(), "cold", 3000, 100);
        overwritten_beside(&server, "hot", 10, || {
            for round in 0..100 {
                for dump in DUMPS.iter().filter(|_| is_terrace()) {
                    let missing = missing(&server, *dump, "hot", 10);
                    assert!(missing.is_empty(), "{flags}, {}, {round}: {missing:?}", dump.0);
                }
            }
        });
    }
}

#[test]
fn keys_that_are_all_overwritten_meanwhile_are_all_listed() {
    if !is_terrace() {
        return skip("keys_that_are_all_overwritten_meanwhile_are_all_listed", "needs Terrace");
    }
    for flags in ["-m 64 -t 2", "-m 24 -t 2 --tier ssd:DIR/tier:512m"] {
        let server = Server::start(flags);
        // `cachedump` ends with 2 MiB of answer.
        for (keys, dumps) in [(200_000, &DUMPS[..2]), (50_000, &DUMPS[2..])] {
            overwritten_beside(&server, "row", keys, || {
                for dump in dumps.iter().cycle().take(4) {
                    let missing = missing(&server, *dump, "row", keys);
                    assert!(missing.is_empty(), "{flags}, {}: {} of {keys}", dump.0, missing.len());
                }
            });
            server.client().check("flush_all\r\n", "OK\r\n");
        }
    }
}

#[test]
fn a_client_that_does_not_read_its_listing_stops_nobody() {
    if !is_terrace() {
        return skip("a_client_that_does_not_read_its_listing_stops_nobody", "needs Terrace");
    }
    let server = Server::start(FLAGS);
    let mut client = server.client();
    // More lines than sockets have room for.
    fill(&mut client, "key-of-a-long-list-", 150_000, 20);
    let mut lazy = server.client();
    lazy.send("lru_crawler metadump all\r\n");
    // It has begun, and all that is read of it is what one look at the socket finds.
    assert_eq!(lazy.bytes(4), b"key=");
    client.check("lru_crawler metadump all\r\n", "BUSY currently processing crawler request\r\n");
    client.check("set k 0 0 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    drop(lazy);
    // The next may begin once the first is found out to be gone.
    wait_until("a listing", || (!lines(&server, "metadump all", "END").is_empty()).then_some(()));
}

#[test]
fn listing_that_nobody_reads_makes_way_for_others() {
    if !is_terrace() {
        return skip(
            "listing_that_nobody_reads_makes_way_for_others",
            "memcached waits for 30 minutes",
        );
    }
    let server = Server::start(FLAGS);
    let mut client = server.client();
    // More of either than sockets have room for.
    let prefix = "k".repeat(200);
    fill(&mut client, &prefix, 100_000, 20);
    for request in ["lru_crawler metadump all", "lru_crawler mgdump all"] {
        let mut lazy = server.client();
        lazy.send(format!("{request}\r\n"));
        assert_eq!(lazy.bytes(2).len(), 2, "it has begun");
        // After five seconds without a piece taken.
        let listed = wait_until("a listing beside a lazy client", || {
            let lines = lines(&server, "metadump all", "END");
            (!lines.is_empty()).then_some(lines)
        });
        assert!(listed.len() >= 100_000, "{}", listed.len());
        // What it is told last is no end.
        let told = lazy.closed();
        assert!(!told.ends_with("END\n") && !told.ends_with("EN\n"), "{request}: {:.200}", told);
    }
}

#[test]
fn keys_forge_no_line() {
    if !is_terrace() {
        return skip(
            "keys_forge_no_line",
            "memcached writes prefixes and watched commands as they are",
        );
    }
    let server = Server::start("-m 64 -D :");
    let mut client = server.client();
    let mut watcher = TcpStream::connect(server.address()).expect("the server accepts");
    watcher.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    watcher.write_all(b"watch fetchers mutations rawcmds\r\n").expect("sent");
    // Events end with a line feed alone, as memcached's.
    let mut events = BufReader::new(watcher).lines().map(|line| line.expect("a line"));
    assert_eq!(events.next().as_deref(), Some("OK"));
    // "a get 9\r\nEND\r\n:x" in base64.
    client.check("ms YSBnZXQgOQ0KRU5EDQo6eA== 1 b\r\n1\r\n", "HD\r\n");
    client.check("mg YSBnZXQgOQ0KRU5EDQo6eA== b v\r\n", "VA 1\r\n1\r\n");
    client.send("get plain:\u{1b}[2J\r\n");
    assert_eq!(client.line(), "END");
    client.check(
        "stats detail dump\r\n",
        "PREFIX a%20get%209%0D%0AEND%0D%0A get 1 hit 1 set 1 del 0\r\n\
         PREFIX plain get 1 hit 0 set 0 del 0\r\nEND\r\n",
    );
    let spelled = "a%20get%209%0D%0AEND%0D%0A%3Ax";
    let listed = lines(&server, "metadump all", "END");
    assert!(listed.len() == 1 && listed[0].starts_with(&format!("key={spelled} ")), "{listed:?}");
    assert_eq!(lines(&server, "mgdump all", "EN"), ["mg YSBnZXQgOQ0KRU5EDQo6eA== b"]);
    client.check("stats cachedump 1 0\r\n", "END\r\n");
    // Every event is one line, and begins as events do.
    let mut told = Vec::new();
    while !told.iter().any(|line: &String| line.contains("stats detail")) {
        told.push(events.next().expect("an event"));
    }
    assert!(told.iter().all(|line| line.starts_with("ts=")), "{told:?}");
    assert!(told.iter().any(|line| line.contains(&format!("key={spelled} "))), "{told:?}");
    assert!(told.iter().any(|line| line.ends_with("get plain:%1B[2J")), "{told:?}");
}

#[test]
fn listings_are_refused_where_they_must_be() {
    let server = Server::start("-X");
    let mut client = server.client();
    client.check("lru_crawler metadump all\r\n", "ERROR metadump not allowed\r\n");
    client.check("lru_crawler mgdump all\r\n", "ERROR key dump not allowed\r\n");
    let server = Server::start("");
    let mut client = server.client();
    client.check("lru_crawler metadump zz\r\n", "BADCLASS invalid class id\r\n");
    client.check("lru_crawler metadump all\r\n", "END\r\n");
}
