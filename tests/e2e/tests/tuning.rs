//! Commands that tune a running server: what is obeyed, and what is answered as scripts expect it.

use terrace_e2e::{Server, fill, is_terrace, skip, value_of, wait_until};

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's limits and settings are its own");
    }
    !is_terrace()
}

/// The sum of what `stats tiers` says of memory.
fn dram_in_use(client: &mut terrace_e2e::Client) -> u64 {
    let rows = client.stats("tiers");
    let of = |name: &str| rows.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    ["memory_write_buffer", "memory_read_cache", "memory_free"].map(of).iter().sum()
}

#[test]
fn the_memory_limit_is_raised_and_lowered() {
    if others("the_memory_limit_is_raised_and_lowered") {
        return;
    }
    const MIB: u64 = 1 << 20;
    let mut server = Server::start("-m 64 -t 2 -v");
    let client = &mut server.client();
    fill(client, "first", 80_000, 1000);
    assert!(client.stat("", "evictions") > 0, "it is full");
    let full = dram_in_use(client);
    assert!(full > 40 * MIB, "{full}");

    client.check("cache_memlimit 32\r\n", "OK\r\n");
    assert_eq!(client.stat("", "limit_maxbytes"), 32 * MIB);
    assert_eq!(client.stat("settings", "maxbytes"), 32 * MIB);
    wait_until("less memory in use", || (dram_in_use(client) <= 32 * MIB).then_some(()));
    assert_eq!(client.get("first79999"), Some(value_of("first79999", 0, 1000)));

    client.check("cache_memlimit 192\r\n", "OK\r\n");
    let evicted = client.stat("", "evictions");
    fill(client, "second", 80_000, 1000);
    assert_eq!(client.stat("", "evictions"), evicted, "there is room for all of them");
    assert!(dram_in_use(client) > 80 * MIB);
    for (request, reply) in [
        ("cache_memlimit 7", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"),
        ("cache_memlimit 257", "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"),
        ("cache_memlimit 5000000000", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes"),
        ("cache_memlimit", "ERROR"),
        ("cache_memlimit x", "ERROR"),
    ] {
        assert_eq!(client.ask(request), reply, "{request}");
    }
    client.check("cache_memlimit 190 noreply\r\nmn\r\n", "MN\r\n");
    assert_eq!(client.stat("", "limit_maxbytes"), 190 * MIB);
    server.output_with("cache_memlimit 257: ");
    server.output_with("maxbytes adjusted to 32m");
    server.assert_alive();
}

#[test]
fn memory_that_is_locked_or_all_in_the_state_is_not_raised() {
    if others("memory_that_is_locked_or_all_in_the_state_is_not_raised") {
        return;
    }
    for flags in ["-m 64 -k", "-m 64 --state DIR"] {
        let server = Server::start(flags);
        let client = &mut server.client();
        let refusal = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust";
        assert_eq!(client.ask("cache_memlimit 65"), refusal, "{flags}");
        client.check("cache_memlimit 64\r\n", "OK\r\n");
    }
}

/// Commands without effect: the answer, and what `stats settings` shows then.
const WITHOUT_EFFECT: &[(&str, &str, &str)] = &[
    ("slabs automove 2", "slab_automove", "2"),
    ("slabs automove ratio 0.5", "slab_automove_ratio", "0.50"),
    ("slabs automove freeratio 0.02", "slab_automove_freeratio", "0.020"),
    ("slabs automove window 30", "slab_automove_window", "30"),
    ("lru mode flat", "lru_segmented", "no"),
    ("lru temp_ttl 90", "temporary_ttl", "90"),
    ("lru temp_ttl 90", "temp_lru", "yes"),
    ("lru temp_ttl -1", "temp_lru", "no"),
    ("lru tune 10 25 0.1 2.0", "hot_lru_pct", "10"),
    ("lru tune 10 25 0.1 2.0", "warm_lru_pct", "25"),
    ("lru tune 10 25 0.1 3", "warm_max_factor", "3.00"),
    ("lru_crawler disable", "lru_crawler", "no"),
    ("lru_crawler enable", "lru_crawler", "yes"),
    ("lru_crawler sleep 500", "lru_crawler_sleep", "500"),
    ("lru_crawler tocrawl 5", "lru_crawler_tocrawl", "5"),
    ("extstore item_size 1000", "ext_item_size", "1000"),
    ("extstore item_age 9", "ext_item_age", "9"),
    ("extstore low_ttl 8", "ext_low_ttl", "8"),
    ("extstore recache_rate 7", "ext_recache_rate", "7"),
    ("extstore compact_under 6", "ext_compact_under", "6"),
    ("extstore drop_under 5", "ext_drop_under", "5"),
    ("extstore max_sleep 4", "ext_max_sleep", "4"),
    ("extstore max_frag 0.5", "ext_max_frag", "0.50"),
    ("extstore drop_unread 1", "ext_drop_unread", "yes"),
];

#[test]
fn tuning_without_a_counterpart_is_answered_shown_and_noted_once() {
    if others("tuning_without_a_counterpart_is_answered_shown_and_noted_once") {
        return;
    }
    let server = Server::start("-m 64 --tier ssd:DIR/tier:128m -o slab_automove=2,hashpower=20");
    let client = &mut server.client();
    let settings = client.stats("settings");
    assert_eq!(
        (&settings["slab_automove"], &settings["hashpower_init"]),
        (&"2".into(), &"20".into())
    );
    for (request, name, value) in WITHOUT_EFFECT {
        assert_eq!(client.ask(request), "OK", "{request}");
        let settings = client.stats("settings");
        assert_eq!(settings.get(*name).map(String::as_str), Some(*value), "{request}");
    }
    const COMMANDS: [&str; 4] = ["slabs", "lru", "lru_crawler", "extstore"];
    let note = |command: &str| format!("{command}: accepted");
    COMMANDS.iter().for_each(|command| drop(server.output_with(&note(command))));
    let output = server.output();
    for command in COMMANDS {
        let told = output.lines().filter(|line| line.contains(&format!(" INFO {}", note(command))));
        assert_eq!(told.count(), 1, "{command}: {output}");
    }
}

/// Options, and the rows of `stats` that memcached 1.6.45 leaves out or shows with them.
#[test]
fn stats_have_the_rows_of_the_options_that_are_on() {
    const CRAWLER: &[&str] = &["lru_crawler_running", "lru_crawler_starts"];
    const MAINTAINER: &[&str] = &[
        "direct_reclaims",
        "evicted_active",
        "lru_bumps_dropped",
        "lru_maintainer_juggles",
        "moves_to_cold",
        "moves_to_warm",
        "moves_within_lru",
    ];
    const NO_MODERN: &[&str] = &[
        "rejected_connections",
        "slab_reassign_busy_deletes",
        "slab_reassign_busy_items",
        "slab_reassign_busy_nomem",
        "slab_reassign_chunk_rescues",
        "slab_reassign_inline_reclaim",
        "slab_reassign_last_busy_status",
        "slab_reassign_rescues",
        "slab_reassign_running",
        "slabs_moved",
    ];

    let rows = |options: &str, of: &str| {
        let server = Server::start(&format!("-m 64 {options}"));
        let client = &mut server.client();
        client.check("set k 0 0 1\r\nx\r\n", "STORED\r\n");
        client.stats(of).into_keys().collect::<std::collections::BTreeSet<_>>()
    };
    let usual = rows("", "");
    for (options, lacks) in [
        ("-o no_lru_crawler", [CRAWLER].concat()),
        ("-o no_lru_maintainer", [MAINTAINER].concat()),
        ("-o no_lru_crawler,no_lru_maintainer", [CRAWLER, MAINTAINER].concat()),
        ("-o no_modern", [CRAWLER, MAINTAINER, NO_MODERN].concat()),
    ] {
        let mut expected = usual.clone();
        lacks.iter().for_each(|row| assert!(expected.remove(*row), "{row}"));
        assert_eq!(rows(options, ""), expected, "{options}");
    }
    let mut expected = usual;
    assert!(expected.insert("idle_kicks".to_string()));
    assert_eq!(rows("-o idle_timeout=10", ""), expected);
    let of_queues = rows("-o no_lru_maintainer", "items");
    assert_eq!((rows("", "items").len(), of_queues.len()), (28, 14));
}

#[test]
fn crawls_and_listings_are_counted() {
    if others("crawls_and_listings_are_counted") {
        return;
    }
    let server = Server::start("-m 64");
    let client = &mut server.client();
    for key in ["a", "b", "c"] {
        assert!(client.set(key, b"value"));
    }
    client.check("lru_crawler crawl all\r\n", "OK\r\n");
    assert_eq!(client.stat("", "lru_crawler_starts"), 1);
    client.send("lru_crawler metadump all\r\n");
    while client.try_line().expect("a line") != "END" {}
    let counted = ["lru_crawler_starts", "crawler_items_checked"].map(|row| client.stat("", row));
    assert_eq!(counted, [2, 3]);
    assert_eq!(client.stat("items", "items:1:crawler_items_checked"), 3);
}
