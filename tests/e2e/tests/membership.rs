//! Tiers that come and go between starts of the real server: each costs its own records only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{Client, Server, count_right, fill, is_terrace, skip, wait_until};

const RECORDS: usize = 20_000;

fn needs_terrace(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "needs Terrace");
    }
    is_terrace()
}

/// The flags of a start with these tiers, each of 96 MiB.
fn with(names: &[&str]) -> String {
    let tier = |name: &&str| format!(" --tier ssd:DIR/{name}:96m");
    format!("-m 32 -t 2{}", names.iter().map(tier).collect::<String>())
}

/// The same, with a roster.
fn with_roster(names: &[&str]) -> String {
    format!("{} --roster DIR/roster", with(names))
}

fn start(flags: &str, dir: &Arc<TempDir>) -> Server {
    match Server::try_start(flags, Arc::clone(dir)) {
        Ok(server) => server,
        Err(failed) => panic!("{flags}: {}", failed.output),
    }
}

/// Where a server with two tiers was filled, and what each held.
struct Filled {
    dir: Arc<TempDir>,
    records: [usize; 2],
}

impl Filled {
    /// Fills a server, which is then stopped cleanly or killed. How much each tier gets depends on how fast it wrote.
    fn new(flags: &str, is_stopped: bool) -> Self {
        let server = Server::start(flags);
        fill(&mut server.client(), "key", RECORDS, 300);
        let mut client = server.client();
        let records = wait_until("most records on tiers, and some on each", || {
            let stats = client.stats("tiers");
            let records = [0, 1]
                .map(|tier| stats[&format!("tier:{tier}:records")].parse().expect("a number"));
            let are_filled = records.iter().sum::<usize>() > RECORDS * 2 / 3
                && records.iter().all(|count| *count > RECORDS / 20);
            are_filled.then_some(records)
        });
        let dir = Arc::clone(&server.dir);
        match is_stopped {
            true => assert_eq!(server.stop(), Some(0)),
            false => drop(server.kill()),
        }
        Self { dir, records }
    }

    /// Panics unless all records of the other tier were found, and few of those of `lost`: these have copies in DRAM.
    #[track_caller]
    fn expect_without(&self, lost: usize, found: usize, server: &Server) {
        let rest = self.records[1 - lost]..RECORDS - self.records[lost] * 7 / 10;
        assert!(rest.contains(&found), "{found} not in {rest:?}: {}", server.output());
    }
}

fn wait_until_ready(client: &mut Client) {
    wait_until("the end of the recovery", || {
        (client.stats("tiers")["recovery"] == "ready").then_some(())
    });
}

/// How many of the records are there; each must be right.
fn found(server: &Server) -> usize {
    let mut client = server.client();
    wait_until_ready(&mut client);
    count_right(&mut client, "key", RECORDS, 300)
}

#[test]
fn order_and_names_of_tiers_say_nothing() {
    if !needs_terrace("order_and_names_of_tiers_say_nothing") {
        return;
    }
    for is_stopped in [true, false] {
        let dir = Filled::new(&with(&["a", "b"]), is_stopped).dir;
        std::fs::rename(dir.path().join("a"), dir.path().join("moved")).expect("renamed");
        let server = start(&format!("{} --on-mismatch refuse", with(&["b", "moved"])), &dir);
        assert_eq!(found(&server), RECORDS, "{}", server.output());
        assert_eq!(server.stop(), Some(0));
    }
}

#[test]
fn missing_tier_costs_its_own_records_and_returns_empty() {
    if !needs_terrace("missing_tier_costs_its_own_records_and_returns_empty") {
        return;
    }
    for is_stopped in [true, false] {
        let filled = Filled::new(&with_roster(&["a", "b"]), is_stopped);
        let dir = Arc::clone(&filled.dir);
        let server = start(&with_roster(&["a"]), &dir);
        let there = found(&server);
        filled.expect_without(1, there, &server);
        let output = server.output_with("listening");
        assert!(output.contains("a tier that the cache ran with last is not given"), "{output}");
        let mut client = server.client();
        for n in 0..RECORDS {
            client.check(format!("set key{n} 0 0 3\r\nnew\r\n"), "STORED\r\n");
        }
        assert_eq!(server.stop(), Some(0));
        let server = start(&with_roster(&["b", "a"]), &dir);
        let mut client = server.client();
        wait_until_ready(&mut client);
        let all_new =
            (0..RECORDS).all(|n| client.get(&format!("key{n}")).as_deref() == Some(b"new"));
        assert!(all_new, "{}", server.output());
        let output = server.output();
        assert!(output.contains("b: holds an older content than the last run left"), "{output}");
    }
}

#[test]
fn half_of_a_set_without_a_roster_is_refused_or_starts_empty() {
    if !needs_terrace("half_of_a_set_without_a_roster_is_refused_or_starts_empty") {
        return;
    }
    let dir = Filled::new(&with(&["a", "b"]), true).dir;
    let refused =
        Server::try_start(&format!("{} --on-mismatch refuse", with(&["a"])), Arc::clone(&dir));
    let failed = refused.err().expect("it is refused");
    assert!(
        failed.output.contains("is one of 2 tiers of a set, of which 1 are here"),
        "{}",
        failed.output
    );
    assert!(failed.output.contains("--roster"), "{}", failed.output);
    let server = start(&with(&["a", "b"]), &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    assert_eq!(server.stop(), Some(0));
    let server = start(&with(&["a"]), &dir);
    assert!(server.output().contains("COLD START"), "{}", server.output());
    assert_eq!(found(&server), 0);
}

#[test]
fn replaced_added_and_grown_tiers_cost_nothing_else() {
    if !needs_terrace("replaced_added_and_grown_tiers_cost_nothing_else") {
        return;
    }
    let filled = Filled::new(&with_roster(&["a", "b"]), true);
    let dir = Arc::clone(&filled.dir);
    let grown = with_roster(&["a", "b", "c"]).replace("b:96m", "b:128m");
    let server = start(&format!("{grown} --on-mismatch refuse"), &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    assert!(!server.output().contains("empty"), "{}", server.output());
    let dir = server.kill();
    std::fs::remove_file(dir.path().join("a")).expect("removed");
    let server = start(&format!("{grown} --on-mismatch refuse"), &dir);
    let there = found(&server);
    filled.expect_without(0, there, &server);
}

/// A device whose path is not there.
#[test]
fn tier_that_is_not_there_is_waited_for_and_then_left_out() {
    if !needs_terrace("tier_that_is_not_there_is_waited_for_and_then_left_out") {
        return;
    }
    let filled = Filled::new(&with_roster(&["a", "b"]), true);
    let dir = Arc::clone(&filled.dir);
    let [b, away] = ["b", "away"].map(|name| dir.path().join(name));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&away, &link).expect("a link");
    let flags = with_roster(&["a", "link"]);
    std::fs::rename(&b, &away).expect("renamed");
    // It comes while it is waited for.
    let hidden: PathBuf = dir.path().join("hidden");
    std::fs::rename(&away, &hidden).expect("renamed");
    let late = std::thread::spawn({
        let (hidden, away) = (hidden.clone(), away.clone());
        move || {
            std::thread::sleep(Duration::from_millis(1500));
            std::fs::rename(hidden, away).expect("renamed");
        }
    });
    let server = start(&flags, &dir);
    late.join().expect("no panic");
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    assert!(
        server.output().contains("waiting up to 10 s for it (--tier-wait)"),
        "{}",
        server.output()
    );
    let dir = server.kill();
    std::fs::rename(&away, &hidden).expect("renamed");
    let began = Instant::now();
    let server = start(&format!("{flags} --tier-wait 1"), &dir);
    assert!(began.elapsed() >= Duration::from_secs(1));
    let there = found(&server);
    filled.expect_without(1, there, &server);
    let stats = server.client().stats("tiers");
    assert_eq!((&stats["tier:1:health"][..], &stats["tier:1:state"][..]), ("gone", "absent"));
    let output = server.output_with("link: absent, 0 records");
    assert!(output.contains("/a: working, "), "{output}");
    let errors: Vec<_> = output.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.len() == 1 && errors[0].contains("link: absent: "), "{errors:#?}");
    let mut client = server.client();
    fill(&mut client, "key", RECORDS, 300);
    assert_eq!(server.stop(), Some(0));
    // A tier that was never there is a mistake.
    let refused = Server::try_start(&with_roster(&["a", "none/c"]), Arc::clone(&dir));
    let failed = refused.err().expect("it is refused");
    assert!(failed.output.contains("make its directory first"), "{}", failed.output);
    let server = start(&with_roster(&["a"]), &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
}

#[test]
fn roster_that_can_not_be_written_is_a_mistake() {
    if !needs_terrace("roster_that_can_not_be_written_is_a_mistake") {
        return;
    }
    let dir = Arc::new(TempDir::new().expect("a directory"));
    let flags = format!("{} --roster DIR/none/roster", with(&["a"]));
    let failed = Server::try_start(&flags, Arc::clone(&dir)).err().expect("it is refused");
    assert!(failed.output.contains("none/roster: No such file or directory"), "{}", failed.output);
    assert!(!dir.path().join("a").exists(), "nothing is left behind");
}
