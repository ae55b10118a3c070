//! Whole runs against a server that is known to be right: what is stored comes back, what is stored
//! by another run is told apart, and what is gone is missed.

mod common;

use common::{Memcached, first_good};
use std::process::Command;
use std::time::Duration;
use terrace_load::{Client, End, Plan, Popularity, Protocol, Report, Workload};

#[test]
fn what_is_stored_comes_back_in_every_protocol() {
    let Some(server) = Memcached::start("what_is_stored_comes_back_in_every_protocol", &[]) else {
        return;
    };
    for (protocol, keys_per_get, batch) in [
        (Protocol::Ascii, 1, false),
        (Protocol::Ascii, 24, true),
        (Protocol::Meta, 1, true),
        (Protocol::Binary, 1, false),
        (Protocol::Binary, 24, true),
    ] {
        let fill = Plan { protocol, batch, ..server.plan(Workload::Fill) };
        let stored = server.run(&fill);
        assert_eq!((stored.stored, stored.errors), (20_001, 0));
        let verify = Plan { workload: Workload::Verify, keys_per_get, ..fill.clone() };
        let read = server.run(&verify);
        assert_eq!((read.hits, read.misses, read.wrong), (20_001, 0, 0), "{:?}", read.examples);
        assert!(read.server_cpu_us.unwrap() > 0.0 && read.latency.p50_us > 0.0);
        // The same keys, and as many that were never stored.
        let beyond = server.run(&Plan { records: 40_002, end: End::Requests(40_002), ..verify });
        assert_eq!((beyond.hits, beyond.misses), (20_001, 20_001));
    }
    let items =
        Client::open(&server.address, None).unwrap().stats("").unwrap()["curr_items"].clone();
    assert_eq!(items, "20001");
}

#[test]
fn other_versions_and_flags_are_wrong() {
    let Some(server) = Memcached::start("other_versions_and_flags_are_wrong", &[]) else { return };
    server.run(&Plan { version: 1, ..server.plan(Workload::Fill) });
    let verify = server.plan(Workload::Verify);
    assert_eq!(server.run(&verify).wrong, 20_001, "version 1 is there, version 0 was expected");
    assert_eq!(server.run(&Plan { any_version: true, ..verify.clone() }).hits, 20_001);
    let flags = Plan { flags: 4, version: 1, ..verify };
    assert_eq!(server.run(&flags).wrong, 20_001);
}

#[test]
fn a_mixed_load_knows_the_newest_version_of_each_value() {
    let Some(server) = Memcached::start("a_mixed_load_knows_the_newest_version_of_each_value", &[])
    else {
        return;
    };
    server.run(&server.plan(Workload::Fill));
    let mut gone = 0;
    for (popularity, protocol) in [
        (Popularity::Uniform, Protocol::Ascii),
        (Popularity::Hot, Protocol::Meta),
        (Popularity::Zipf(1.0), Protocol::Binary),
    ] {
        let workload = Workload::Mixed { popularity, get_percent: 50, delete_percent: 10 };
        let end = End::Requests(30_000);
        let mixed = server.run(&Plan { any_version: true, end, protocol, ..server.plan(workload) });
        // What was deleted is missed, and never found; the rest is there.
        assert_eq!((mixed.wrong, mixed.errors), (0, 0), "{:?}", mixed.examples);
        assert!(mixed.hits > 1000 && mixed.stored > 1000 && mixed.deleted > 100, "{mixed}");
        let absent = server.run(&Plan { any_version: true, ..server.plan(Workload::Verify) });
        assert!(absent.misses > 0 && absent.misses <= mixed.deleted + gone, "{absent}");
        gone = absent.misses;
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_when_requests_were_due() {
    let Some(server) =
        Memcached::start("an_open_loop_keeps_its_rate_and_counts_from_when_requests_were_due", &[])
    else {
        return;
    };
    server.run(&server.plan(Workload::Fill));
    let popularity = Popularity::ZipfMandelbrot { s: 2.5, beta: 0.03 };
    let end = End::Time(Duration::from_secs(1));
    let open = Plan { rate: Some(2000.0), end, ..server.plan(Workload::Get(popularity)) };
    let kept = |requests| (1900..=2010).contains(&requests);
    for batch in [false, true] {
        let open = Plan { batch, ..open.clone() };
        let run = first_good(|| server.run(&open), |run| kept(run.requests));
        assert_eq!((run.misses, run.wrong, run.errors), (0, 0, 0));
        assert!(kept(run.requests), "{run}");
    }
    // A server that stands still for a while: a closed loop would hide how many had to wait.
    let pid = server.child.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &pid]).status().expect("kill runs");
    let interrupted = || {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| server.run(&open));
            std::thread::sleep(Duration::from_millis(300));
            signal("-STOP");
            std::thread::sleep(Duration::from_millis(400));
            signal("-CONT");
            run.join().expect("a run")
        })
    };
    // 800 of 2000 were due meanwhile; half of those waited 200 ms or longer.
    let waited = |run: &Report| run.requests >= 1900 && run.latency.p90_us > 100_000.0;
    let stopped = first_good(interrupted, waited);
    assert!(waited(&stopped), "{stopped}");
}
