//! What an operator can look into: how large records are, which segments hold how much, what is
//! evicted, and what background work does.

use std::collections::HashSet;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{
    Client, Server, fill, flash_server, is_terrace, push_to_flash, skip, wait_until,
};

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's figures differ");
    }
    !is_terrace()
}

fn sizes(client: &mut Client) -> Vec<(u64, u64)> {
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let mut rows: Vec<_> =
        client.stats("sizes").iter().map(|(size, count)| (number(size), number(count))).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn sizes_are_counted_when_asked_for() {
    if others("sizes_are_counted_when_asked_for") {
        return;
    }
    let server = Server::start("-m 64 -t 2");
    let client = &mut server.client();
    const DISABLED: &str = "STAT sizes_status disabled\r\nEND\r\n";
    client.check("stats sizes\r\n", DISABLED);
    assert_eq!(client.stats("settings")["track_sizes"], "no");
    client.check("stats sizes_enable\r\n", "STAT sizes_status enabled\r\nEND\r\n");
    assert_eq!(client.stats("settings")["track_sizes"], "yes");
    // Requests behind it wait for its end.
    client.check("stats sizes\r\nmn\r\n", "END\r\nMN\r\n");
    for key in ["k0", "k1", "k2"] {
        assert!(client.set(key, b"0123456789"));
    }
    assert!(client.set("k3", &[b'x'; 30]) && client.set("k4", &[b'x'; 31]));
    assert!(client.set("expired", b"soon"));
    client.check("touch expired -1\r\n", "TOUCHED\r\n");
    // One record for its user, though it lies in pieces.
    assert!(client.set("big", &[b'x'; 1_000_000]));
    assert_eq!(sizes(client), [(32, 4), (64, 1), (1_000_032, 1)]);
    client.check("stats sizes_disable\r\n", DISABLED);
    client.check("stats sizes\r\n", DISABLED);
}

#[test]
fn sizes_of_a_large_tier_are_estimated() {
    if others("sizes_of_a_large_tier_are_estimated") {
        return;
    }
    let mut server = flash_server("-t 2 -o track_sizes");
    let client = &mut server.client();
    // Both kinds in every segment: an estimate from some of them is off by chance else.
    for round in 0..100 {
        fill(client, &format!("small{round}-"), 200, 100);
        fill(client, &format!("large{round}-"), 1_300, 1000);
    }
    let used = client.stat("", "extstore_pages_used");
    assert!(used > 256, "{used} segments are read one and all");
    let rows = sizes(client);
    let count = |size| rows.iter().find(|row| row.0 == size).map_or(0, |row| row.1) as f64;
    assert!((count(1024) / 130_000.0 - 1.0).abs() < 0.1, "{rows:?}");
    assert!((count(128) / 20_000.0 - 1.0).abs() < 0.25, "{rows:?}");
    server.assert_alive();
}

#[test]
fn the_depth_of_reads_is_that_of_the_profile() {
    const PROFILE: &str = "terrace_device_profile = 1\nname = \"x\"\ncapacity_bytes = 1e9\n\
        read_iops = 5e4\nqueue_depth = 7\nread_us_p50 = 200.0\nread_us_p99 = 900.0\n";
    if others("the_depth_of_reads_is_that_of_the_profile") {
        return;
    }
    let dir = Arc::new(TempDir::new().expect("a directory"));
    std::fs::write(dir.path().join("profile"), PROFILE).expect("room for it");
    let start = |tiers: &str| {
        let server = Server::try_start(&format!("-m 64 -t 2 {tiers}"), Arc::clone(&dir));
        server.unwrap_or_else(|failed| panic!("{}", failed.output))
    };
    let server = start("--tier ssd:DIR/a:128m,profile=DIR/profile --tier ssd:DIR/b:128m");
    let depth = |tier| server.client().stat("tiers", &format!("tier:{tier}:read_depth"));
    // Divided among two workers and rounded up; 128 for each where nobody measured.
    assert_eq!((depth(0), depth(1)), (8, 256));
    drop(server);
    std::fs::write(dir.path().join("profile"), PROFILE.replace("= 7", "= 0")).expect("room");
    let flags = "-m 64 --tier ssd:DIR/a:128m,profile=DIR/profile";
    let failed = Server::try_start(flags, Arc::clone(&dir)).err().expect("no such depth");
    assert!(failed.output.contains("queue_depth of 0"), "{}", failed.output);
}

#[test]
fn segments_are_listed_as_pages() {
    if others("segments_are_listed_as_pages") {
        return;
    }
    let server = Server::start("-m 64");
    server.client().check("stats extstore\r\n", "END\r\n");
    let server = flash_server("-t 2");
    let client = &mut server.client();
    push_to_flash(client);
    // Until nothing is written any more both say the same.
    wait_until("rows that agree with their sums", || {
        let before = client.stats("");
        let rows = client.stats("extstore");
        let is_quiet = client.stats("")["extstore_page_allocs"] == before["extstore_page_allocs"];
        let number = |name: &str| before[name].parse::<u64>().expect("a number");
        let (used, free) = (number("extstore_pages_used"), number("extstore_pages_free"));
        assert_eq!(rows.len() as u64, 4 * (used + free));
        let all = |part: &str| -> Vec<u64> {
            let values = rows.iter().filter(|(name, _)| name.ends_with(part));
            values.map(|(_, value)| value.parse().expect("a number")).collect()
        };
        assert!(all(":bucket").iter().chain(&all(":free_bucket")).all(|&tier| tier == 0));
        let sealed: HashSet<_> = all(":version").into_iter().filter(|&seal| seal > 0).collect();
        let bytes: u64 = all(":bytes").iter().sum();
        let agree = (sealed.len() as u64, bytes) == (used, number("extstore_bytes_used"));
        (is_quiet && agree).then(|| assert!(rows.contains_key("0:version") && used > 100))
    });
}

/// What a watcher was told: `key=value` words of each line of a kind, and how many lines it missed.
struct Told {
    events: Vec<(String, Vec<String>)>,
    skipped: u64,
}

impl Told {
    fn of(&self, kind: &str) -> impl Iterator<Item = &Vec<String>> {
        self.events.iter().filter(move |event| event.0 == kind).map(|event| &event.1)
    }
}

/// Reads until `wanted` lines of `kind` came, or were skipped.
fn hear(watcher: &mut Client, kind: &str, wanted: u64) -> Told {
    let mut told = Told { events: Vec::new(), skipped: 0 };
    let mut heard = 0;
    while heard + told.skipped < wanted {
        let line = watcher.try_line().expect("an event");
        if let Some(count) = line.strip_prefix("skipped=") {
            told.skipped += count.parse::<u64>().expect("a count");
            continue;
        }
        let mut words = line.split(' ').skip(2).map(str::to_string);
        let what = words.next().unwrap_or_default().replace("type=", "");
        heard += u64::from(what == kind);
        told.events.push((what, words.collect()));
    }
    told
}

fn names(words: &[String]) -> Vec<&str> {
    words.iter().filter_map(|word| word.split('=').next()).collect()
}

/// Nothing that was said to be evicted is there.
fn assert_evicted(client: &mut Client, told: &Told) {
    for words in told.of("eviction").step_by(50) {
        assert_eq!(names(words), ["key", "fetch", "ttl", "la", "clsid", "size"]);
        let key = words[0].replace("key=", "");
        assert_eq!(client.get(&key), None, "{words:?}");
    }
}

#[test]
fn evictions_from_dram_are_told() {
    if others("evictions_from_dram_are_told") {
        return;
    }
    let mut server = Server::start("-m 8 -t 1");
    let client = &mut server.client();
    let mut watcher = server.client();
    watcher.check("watch evictions\r\n", "OK\r\n");
    client.check("set first 0 1000 5\r\nvalue\r\n", "STORED\r\n");
    assert!(client.get("first").is_some());
    let mut round = 0;
    // Looked at without being used.
    while client.ask("mg first u s").starts_with("HD") {
        fill(client, &format!("unread{round}-"), 500, 1000);
        // What was read goes once more was read than fits.
        fill(client, &format!("read{round}-"), 500, 1000);
        (0..500).for_each(|n| _ = client.get(&format!("read{round}-{n}")));
        round += 1;
        assert!(round < 100, "nothing is evicted");
    }
    let evictions = client.stat("", "evictions");
    let told = hear(&mut watcher, "eviction", evictions);
    assert_evicted(client, &told);
    let is_right = |words: &Vec<String>| {
        words[1] == if words[0].contains("unread") { "fetch=no" } else { "fetch=yes" }
    };
    assert!(told.of("eviction").all(is_right));
    let first = told.of("eviction").find(|words| words[0] == "key=first");
    if told.skipped == 0 {
        let first = first.expect("the first record is evicted");
        let ttl = first[2].replace("ttl=", "").parse::<i64>().expect("a number");
        assert!((900..=1000).contains(&ttl), "{first:?}");
        assert_eq!((first[1].as_str(), first[5].as_str()), ("fetch=yes", "size=5"));
        assert!(told.of("eviction").any(|words| words[2] == "ttl=-1" && words[5] == "size=1000"));
    }
    server.assert_alive();
}

#[test]
fn evictions_from_a_tier_and_reclaim_are_told() {
    if others("evictions_from_a_tier_and_reclaim_are_told") {
        return;
    }
    let mut server = Server::start("-m 16 -t 1 --tier ssd:DIR/tier:64m");
    let client = &mut server.client();
    let mut watcher = server.client();
    watcher.check("watch evictions sysevents\r\n", "OK\r\n");
    let mut round = 0;
    while client.stat("", "evictions") < 5_000 {
        fill(client, &format!("round{round}-"), 1000, 1000);
        round += 1;
        assert!(round < 1000, "nothing is evicted");
    }
    let told = hear(&mut watcher, "eviction", 4_000);
    assert_evicted(client, &told);
    let starts = told.of("compact_start").count();
    let ends = told.of("compact_end").count() + told.of("compact_abort").count();
    assert!(starts > 0 && (told.skipped > 0 || starts.abs_diff(ends) <= 1), "{starts}, {ends}");
    let start = told.of("compact_start").next().expect("an event");
    assert_eq!(names(start), ["id", "version"]);
    server.assert_alive();
}
