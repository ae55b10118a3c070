//! What operators look at: who is connected, and what happens.

use std::time::{Duration, Instant};
use terrace_e2e::{
    Client, Server, assert_on_flash, flash_server, is_terrace, push_to_flash, skip, value_of,
    wait_until,
};

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's lines differ a little");
    }
    !is_terrace()
}

/// The rest of the next event that begins with `kind`, behind its time and number.
fn event(watcher: &mut Client, kind: &str) -> String {
    loop {
        let line = watcher.try_line().expect("an event");
        let mut words = line.splitn(3, ' ');
        let (ts, gid) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        assert!(ts.starts_with("ts=") && gid.starts_with("gid="), "{line}");
        let rest = words.next().unwrap_or_default();
        if rest.starts_with(&format!("type={kind} ")) {
            return rest.to_string();
        }
    }
}

#[test]
fn watchers_are_told_what_happens() {
    if others("watchers_are_told_what_happens") {
        return;
    }
    let mut server = Server::start("-m 64 -t 2");
    let mut fetchers = server.client();
    fetchers.check("watch\r\n", "OK\r\n");
    let mut mutations = server.client();
    mutations.check("watch mutations deletions connevents evictions\r\n", "OK\r\n");
    let client = &mut server.client();
    assert!(event(&mut mutations, "conn_new").contains("rip=127.0.0.1 rport="));
    assert!(client.set("k 1".replace(' ', "/").as_str(), b"value"));
    assert_eq!(client.get("k/1").as_deref(), Some(&b"value"[..]));
    assert_eq!(client.get("nothing"), None);
    client.check("mg nothing v\r\n", "EN\r\n");
    client.check("add k/1 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    client.check("delete k/1\r\n", "DELETED\r\n");
    let stored = event(&mut mutations, "item_store");
    assert!(stored.contains("key=k%2F1 status=stored cmd=set ttl=0 clsid=1 cfd="), "{stored}");
    assert!(stored.ends_with(" size=5"), "{stored}");
    assert!(event(&mut mutations, "item_store").contains("status=not_stored"));
    assert!(event(&mut mutations, "deleted").contains("key=k%2F1 cmd=delete"));
    assert!(event(&mut fetchers, "item_get").contains("key=k%2F1 status=not_found"));
    let got = event(&mut fetchers, "item_get");
    assert!(got.contains("key=k%2F1 status=found") && got.ends_with("size=5"), "{got}");
    assert!(event(&mut fetchers, "item_get").contains("key=nothing status=not_found"));
    assert!(event(&mut fetchers, "item_get").contains("key=nothing status=not_found"));
    assert_eq!(client.stat("", "log_watchers"), 2);
    let closing = server.client();
    drop(closing);
    assert!(event(&mut mutations, "conn_close").contains("reason=normal"));
    client.check("watch nonsense\r\n", "ERROR\r\n");
    // Quiet forms are told with what became of them, and how long it lives.
    client.check("ms m 2 T30 q\r\nhi\r\nmd m q\r\nmn\r\n", "MN\r\n");
    let stored = event(&mut mutations, "item_store");
    assert!(stored.contains("key=m status=stored cmd=set ttl=30"), "{stored}");
    assert!(event(&mut mutations, "deleted").contains("key=m cmd=md"));
    // When they go nothing is left of them.
    drop((fetchers, mutations));
    wait_until("no watcher", || (client.stat("", "log_watchers") == 0).then_some(()));
    server.assert_alive();
}

#[test]
fn a_connection_is_shown_as_memcached_shows_it() {
    if others("a_connection_is_shown_as_memcached_shows_it") {
        return;
    }
    let server = Server::start("-m 64 -t 1");
    let mut client = server.client();
    // One that has sent half a value.
    let mut half = server.client();
    half.send("set k 0 0 100\r\nhalf of it");
    wait_until("conn_nread", || {
        client.stats("conns").values().any(|state| state == "conn_nread").then_some(())
    });
    assert!(client.stats("conns").values().any(|state| state == "conn_listening"));
}

#[test]
fn settings_have_the_rows_of_memcached_1_6_45() {
    let rows = "ext_item_size ext_item_age ext_low_ttl ext_recache_rate ext_wbuf_size ext_compact_under \
                ext_drop_under ext_max_sleep ext_max_frag slab_automove_freeratio ext_drop_unread ssl_enabled \
                ssl_chain_cert ssl_key ssl_verify_mode ssl_keyformat ssl_ciphers ssl_ca_cert ssl_wbuf_size \
                ssl_session_cache ssl_kernel_tls ssl_min_version proxy_enabled num_napi_ids memory_file \
                client_flags_size";
    if others("settings_have_the_rows_of_memcached_1_6_45") {
        return;
    }
    // Neither TLS nor a tier: they are built in.
    let server = Server::start("-m 64 -t 1");
    let mut client = server.client();
    client.send("stats settings\r\n");
    let lines = std::iter::from_fn(|| client.try_line()).take_while(|line| line != "END");
    let names: Vec<_> =
        lines.filter_map(|line| Some(line.split(' ').nth(1)?.to_string())).collect();
    assert!(
        names.join(" ").contains(&rows.split_whitespace().collect::<Vec<_>>().join(" ")),
        "{names:?}"
    );
}

#[test]
fn commands_are_counted_by_prefix() {
    let server = Server::start("-m 64 -t 2");
    let client = &mut server.client();
    assert!(client.set("early:1", b"x"));
    client.check("stats detail on\r\n", "OK\r\n");
    assert_eq!(client.stats("settings")["detail_enabled"], "yes");
    assert!(client.set("user:1", b"x") && client.set("plain", b"x"));
    assert_eq!(client.get("user:1").as_deref(), Some(&b"x"[..]));
    assert_eq!(client.get("user:2"), None);
    client.check("delete user:1\r\n", "DELETED\r\n");
    client.check("stats detail dump\r\n", "PREFIX user get 2 hit 1 set 1 del 1\r\nEND\r\n");
    client.check("stats detail off\r\n", "OK\r\n");
    assert_eq!(client.get("user:2"), None);
    client.check("stats detail dump\r\n", "PREFIX user get 2 hit 1 set 1 del 1\r\nEND\r\n");
    let server = Server::start("-m 64 -D /");
    let client = &mut server.client();
    assert!(client.set("a/b", b"x"));
    client.check("stats detail dump\r\n", "PREFIX a get 0 hit 0 set 1 del 0\r\nEND\r\n");
}

#[test]
fn requests_are_told_as_they_came() {
    if others("requests_are_told_as_they_came") {
        return;
    }
    let server = Server::start("-m 64 -t 2");
    let mut watcher = server.client();
    watcher.check("watch rawcmds\r\n", "OK\r\n");
    let client = &mut server.client();
    client.check(
        "set k 0 0 1\r\nx\r\nget k  z\r\nbogus\r\n",
        "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nERROR\r\n",
    );
    for line in ["set k 0 0 1", "get k  z", "bogus"] {
        let told = watcher.try_line().expect("an event");
        let told = told.splitn(3, ' ').last().unwrap_or_default();
        let (number, request) = told.split_once(' ').expect("a descriptor and a line");
        assert!(number.starts_with('<') && request == line, "{told}");
    }
}

#[test]
fn idle_watchers_cost_no_processor_time() {
    if others("idle_watchers_cost_no_processor_time") {
        return;
    }
    let server = Server::start("-m 64 -t 1");
    let mut watcher = server.client();
    watcher.check("watch fetchers\r\n", "OK\r\n");
    // Voluntary switches of the worker: a thread that wakes up by the clock has hundreds.
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("its threads");
        let statuses = tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let worker = statuses.into_iter().find(|text| text.starts_with("Name:\tworker-0"));
        let worker = worker.expect("the worker");
        let line = worker.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).expect("a count")
    };
    std::thread::sleep(Duration::from_millis(50));
    let before = switches();
    std::thread::sleep(Duration::from_millis(500));
    let woken = switches() - before;
    assert!(woken < 20, "woken {woken} times in half a second");
    assert_eq!(server.client().get("nothing"), None);
    assert!(event(&mut watcher, "item_get").contains("key=nothing"));
}

#[test]
fn what_a_drive_answers_is_told_too() {
    if others("what_a_drive_answers_is_told_too") {
        return;
    }
    let mut server = flash_server("-t 1");
    let client = &mut server.client();
    assert!(client.set("cold", &value_of("cold", 0, 500)));
    push_to_flash(client);
    assert_on_flash(client, "cold");
    let mut watcher = server.client();
    watcher.check("watch fetchers\r\n", "OK\r\n");
    assert!(client.get("cold").is_some());
    let got = event(&mut watcher, "item_get");
    assert!(got.contains("key=cold status=found") && got.ends_with("size=500"), "{got}");
    server.assert_alive();
}

#[test]
fn a_watcher_that_never_reads_harms_nobody() {
    if others("a_watcher_that_never_reads_harms_nobody") {
        return;
    }
    let mut server = Server::start("-m 64 -t 1");
    let mut deaf = server.client();
    deaf.check("watch fetchers\r\n", "OK\r\n");
    let client = &mut server.client();
    let before = server.resident_bytes();
    let gets = "get nothing\r\n".repeat(1000);
    let misses = "END\r\n".repeat(1000);
    let end = Instant::now() + Duration::from_secs(60);
    // The socket takes megabytes before it is full.
    while client.stat("", "log_watcher_skipped") == 0 {
        assert!(Instant::now() < end, "a deaf watcher is told everything");
        for _ in 0..10 {
            client.check(&gets, &misses);
        }
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes kept for a watcher that does not read");
    server.assert_alive();
}

#[test]
fn watching_can_be_forbidden() {
    if others("watching_can_be_forbidden") {
        return;
    }
    let server = Server::start("-m 64 -W");
    server.client().check("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
}

#[test]
fn who_is_connected_can_be_seen() {
    if others("who_is_connected_can_be_seen") {
        return;
    }
    let server = Server::start("-m 64 -t 2");
    let mut half = server.client();
    half.send("set k 0 0 2000000\r\nabc");
    half.send("x".repeat(1000));
    let mut watcher = server.client();
    watcher.check("watch\r\n", "OK\r\n");
    let client = &mut server.client();
    assert!(client.set("big", &[b'x'; 500_000]));
    let mut deaf = server.client();
    deaf.send("get big\r\n".repeat(50));
    wait_until("all rows", || {
        let rows = client.stats("conns");
        let count = |part: &str, value: &str| {
            let is =
                |(name, row): (&String, &String)| name.ends_with(part) && row.starts_with(value);
            rows.iter().filter(|row| is(*row)).count()
        };
        let listen = format!("tcp:{}", server.address());
        let is_right = count(":state", "conn_listening") == 1
            && count(":listen_addr", &listen) == 4
            && count(":addr", "tcp:127.0.0.1:") == 5
            && count(":state", "conn_watch") == 1
            && count(":state", "conn_swallow") == 1
            && count(":state", "conn_mwrite") == 1
            && (count(":resps_waiting", ""), count(":resps_waiting", "0")) == (4, 3)
            && count(":secs_since_last_cmd", "") == 5;
        is_right.then_some(())
    });
}
