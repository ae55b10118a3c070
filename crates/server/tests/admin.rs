//! Commands that concern the server, and what it tells about itself.

mod common;

use common::TestServer;
use std::collections::HashMap;
use std::time::{Duration, Instant};

fn stats(client: &mut common::Client, arguments: &str) -> HashMap<String, String> {
    client.send(format!("stats {arguments}\r\n"));
    let text = client.receive_until("END\r\n");
    let rows = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    rows.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Names that monitoring reads.
const GENERAL: &str = "pid uptime time version pointer_size rusage_user rusage_system \
    max_connections curr_connections total_connections rejected_connections \
    connection_structures cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses \
    get_expired get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits \
    cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory \
    auth_cmds auth_errors bytes_read bytes_written limit_maxbytes accepting_conns \
    listen_disabled_num threads conn_yields hash_power_level hash_bytes hash_is_expanding \
    slabs_moved lru_crawler_running malloc_fails log_watchers bytes curr_items total_items \
    slab_global_page_pool expired_unfetched evicted_unfetched evicted_active evictions reclaimed \
    crawler_reclaimed lrutail_reflocked moves_to_cold moves_to_warm direct_reclaims";
const EXTSTORE: &str = "get_extstore miss_from_extstore badcrc_from_extstore \
    extstore_compact_rescues extstore_page_allocs extstore_pages_free extstore_pages_used \
    extstore_objects_read extstore_objects_used extstore_bytes_written extstore_bytes_read \
    extstore_bytes_used extstore_bytes_fragmented extstore_limit_maxbytes extstore_io_queue";

#[test]
fn general_statistics_count() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask(
        "set a 0 0 1\r\n1\r\nget a\r\nget b\r\nget a b\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nEND\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
    client.ask(
        "incr a 1\r\nincr b 1\r\ndecr a 1\r\ntouch a 0\r\ntouch b 0\r\n",
        "2\r\nNOT_FOUND\r\n1\r\nTOUCHED\r\nNOT_FOUND\r\n",
    );
    client.ask("cas a 0 0 1 1\r\nx\r\ncas c 0 0 1 1\r\nx\r\n", "EXISTS\r\nNOT_FOUND\r\n");
    client.ask("delete a\r\ndelete a\r\nmg a\r\n", "DELETED\r\nNOT_FOUND\r\nEN\r\n");
    let stats = stats(&mut client, "");
    for name in GENERAL.split_whitespace() {
        assert!(stats.contains_key(name), "{name} is missing");
    }
    assert!(!stats.contains_key("extstore_pages_used"), "there is no tier");
    let number = |name: &str| stats[name].parse::<u64>().unwrap();
    let expected = [
        ("cmd_set", 3),
        ("get_hits", 2),
        ("get_misses", 3),
        ("incr_hits", 1),
        ("incr_misses", 1),
        ("decr_hits", 1),
        ("touch_hits", 1),
        ("touch_misses", 1),
        ("cas_badval", 1),
        ("cas_misses", 1),
        ("delete_hits", 1),
        ("delete_misses", 1),
        ("cmd_meta", 1),
        ("curr_connections", 1),
        ("curr_items", 0),
        ("threads", 2),
        ("limit_maxbytes", 64 << 20),
    ];
    for (name, value) in expected {
        assert_eq!(number(name), value, "{name}");
    }
    assert!(number("bytes_read") > 100 && number("bytes_written") > 100);
    client.ask("stats reset\r\n", "RESET\r\n");
    for name in ["cmd_set", "total_items", "total_connections", "delete_hits"] {
        assert_eq!(client.stat("", name), "0", "{name}");
    }
}

#[test]
fn tiers_are_told() {
    let server = TestServer::start_tiered(256 << 20);
    let mut client = server.connect();
    let value = "x".repeat(1000);
    for block in 0..80 {
        let request: String = (0..1000)
            .map(|n| format!("set k{block}-{n} 0 0 1000 noreply\r\n{value}\r\n"))
            .collect();
        client.ask(request, "");
    }
    let reads: String = (0..1000).map(|n| format!("get k0-{n}\r\n")).collect();
    client.send(reads + "mn\r\n");
    let text = client.receive_until("MN\r\n");
    assert_eq!(text.matches("VALUE ").count(), 1000);
    // Entries of equal name leave the index and come back; the count is exact when nobody stores.
    let all = terrace_e2e::wait_until("a count of all records", || {
        Some(stats(&mut client, "tiers")).filter(|all| all["records"] == "80000")
    });
    let number = |name: &str| all[name].parse::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(number("records"), 80_000.0);
    assert!(number("tier:0:records") > 10_000.0);
    assert!(number("tier:0:hits") >= 1000.0 && number("tier:0:reads") >= number("tier:0:hits"));
    assert!(number("tier:0:reads_per_hit") < 1.05, "{}", number("tier:0:reads_per_hit"));
    assert!(number("tier:0:write_amplification") > 0.9);
    assert!(number("tier:0:read_us_p50") > 0.0);
    assert!(number("tier:0:read_us_p50") <= number("tier:0:read_us_p99"));
    assert!(number("tier:0:read_us_p99") <= number("tier:0:read_us_p999"));
    assert!(number("index_bytes_per_record") > 0.0);
    let general = stats(&mut client, "");
    for name in EXTSTORE.split_whitespace() {
        assert!(general.contains_key(name), "{name} is missing");
    }
    assert_eq!(general["get_extstore"], all["tier:0:hits"]);
}

#[test]
fn settings_are_told() {
    let server = TestServer::with(|settings| settings.idle_timeout_s = 77, None);
    let all = stats(&mut server.connect(), "settings");
    for (name, value) in [
        ("maxbytes", "67108864"),
        ("maxconns", "1024"),
        ("num_threads", "2"),
        ("evictions", "on"),
        ("cas_enabled", "yes"),
        ("item_size_max", "1048576"),
        ("idle_timeout", "77"),
        ("reqs_per_event", "20"),
        ("maxconns_fast", "yes"),
        ("flush_enabled", "yes"),
        ("terrace_version", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(all[name], value, "{name}");
    }
}

#[test]
fn a_delayed_flush_comes_at_its_time() {
    let server = TestServer::start();
    let mut client = server.connect();
    let planned = Instant::now();
    client.ask(
        "set a 0 0 1\r\n1\r\nflush_all 3\r\nset b 0 0 1\r\n2\r\n",
        "STORED\r\nOK\r\nSTORED\r\n",
    );
    terrace_e2e::wait_until("a flush", || {
        client.send("get a b\r\n");
        let text = client.receive_until("END\r\n");
        let both = text.contains("VALUE a") && text.contains("VALUE b");
        assert!(both || text == "END\r\n", "half a flush: {text}");
        (!both).then_some(())
    });
    // The seconds are those of a clock: the first of the three may be as good as over.
    assert!(planned.elapsed() > Duration::from_secs(1), "too early");
    client.ask("set a 0 0 1\r\n3\r\n", "STORED\r\n");
    std::thread::sleep(Duration::from_millis(1500));
    client.ask("get a\r\n", "VALUE a 0 1\r\n3\r\nEND\r\n");
}

#[test]
fn what_was_switched_off_is_refused() {
    let server = TestServer::with(
        |settings| {
            settings.flush_all_command = false;
            settings.dump_commands = false;
            settings.watch_command = false;
        },
        None,
    );
    let mut client = server.connect();
    client.ask("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
    client.ask("lru_crawler metadump all\r\n", "ERROR metadump not allowed\r\n");
    client.ask("lru_crawler mgdump all\r\n", "ERROR key dump not allowed\r\n");
    client.ask("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
    client.ask("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n");
}

#[test]
fn shutdown_stops_the_server() {
    let server = TestServer::with(|settings| settings.shutdown_command = true, None);
    let mut client = server.connect();
    client.send("set a 0 0 1\r\nx\r\nshutdown\r\n");
    assert_eq!(client.receive_to_end(), b"STORED\r\n");
    server.join();
}

#[test]
fn quit_answers_what_was_asked_before() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("set a 0 0 1\r\nx\r\nget a\r\nquit\r\nget a\r\n");
    assert_eq!(client.receive_to_end(), b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn half_closed_clients_get_their_answers() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send("set a 0 0 1\r\nx\r\nget a\r\nget ");
    client.shut_write();
    assert_eq!(client.receive_to_end(), b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn without_evictions_a_full_cache_refuses() {
    let server = TestServer::with(
        |settings| {
            settings.evict = false;
            settings.memory_bytes = 8 << 20;
            settings.item_bytes_max = 1 << 20;
        },
        None,
    );
    let mut client = server.connect();
    let value = "x".repeat(10_000);
    let mut stored = 0;
    let refused = (0..5000).find(|number| {
        client.send(format!("set k{number} 0 0 10000\r\n{value}\r\n"));
        match client.receive_until("\r\n").as_str() {
            "STORED\r\n" => {
                stored += 1;
                false
            }
            other => {
                assert_eq!(other, "SERVER_ERROR out of memory storing object\r\n");
                true
            }
        }
    });
    assert!(refused.is_some() && stored > 100, "{stored} stored");
    for number in 0..stored {
        client.ask(
            format!("get k{number}\r\n"),
            format!("VALUE k{number} 0 10000\r\n{value}\r\nEND\r\n"),
        );
    }
}
