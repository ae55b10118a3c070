//! Full and not full: what is kept, what is refused, what it takes.

use terrace_e2e::{Server, fill, is_terrace, push_to_flash, skip, tier_stat, value_of, wait_until};

#[test]
fn everything_is_kept_while_there_is_room() {
    let mut server = terrace_e2e::flash_server("-t 2");
    let client = &mut server.client();
    // 150 bytes with key and header each: about 60 MB on a drive of 256 MiB.
    const RECORDS: usize = 400_000;
    fill(client, "key:", RECORDS, 100);
    for at in 0..RECORDS {
        client.send(format!("get key:{at}\r\n"));
        if at % 64 == 63 {
            for at in at - 63..=at {
                let key = format!("key:{at}");
                assert_eq!(client.read_get(&key), Some(value_of(&key, 0, 100)), "{key}");
            }
        }
    }
    assert_eq!(client.stat("", "evictions"), 0);
    assert!(client.stat("", "curr_items") >= RECORDS as u64 * 99 / 100);
    if is_terrace() {
        let resident = server.resident_bytes();
        assert!(resident <= 104 << 20, "resident: {resident} bytes at -m 64");
    }
    server.assert_alive();
}

#[test]
fn without_eviction_a_full_cache_refuses() {
    for (flags, what) in [("-m 64 -M", "DRAM"), ("-m 64 -M --tier ssd:DIR/tier:64m", "a drive")] {
        if flags.contains("--tier") && !is_terrace() {
            skip("without_eviction_a_full_cache_refuses", "memcached has no --tier");
            continue;
        }
        let mut server = Server::start(flags);
        let client = &mut server.client();
        let mut stored = 0;
        let line = loop {
            let key = format!("k{stored}");
            client.send_set(&key, &value_of(&key, 0, 2000));
            match client.line() {
                line if line == "STORED" => stored += 1,
                line => break line,
            }
            assert!(stored < 1_000_000, "{what}: never full");
        };
        assert_eq!(line, "SERVER_ERROR out of memory storing object", "{what}");
        assert!(stored > 10_000, "{what}: full after {stored} records");
        for at in 0..stored {
            let key = format!("k{at}");
            assert_eq!(client.get(&key), Some(value_of(&key, 0, 2000)), "{what}: {key}");
        }
        assert_eq!(client.stat("", "evictions"), 0, "{what}");
        // A `set` of many pieces that is refused leaves nothing to be taken for what it brought; the
        // others leave what there was.
        let big = vec![b'x'; 700_000];
        for (at, verb, stays) in [(stored - 1, "replace", true), (stored - 2, "set", false)] {
            let key = format!("k{at}");
            client.send(format!("{verb} {key} 0 0 {}\r\n", big.len()));
            client.send(&big);
            let refusal = "SERVER_ERROR out of memory storing object";
            assert_eq!(client.ask(""), refusal, "{what}: {verb} {key}");
            assert_eq!(client.get(&key).is_some(), stays, "{what}: {verb} {key}");
        }
        // What is deleted makes room.
        for at in 0..stored / 2 {
            client.check(format!("delete k{at}\r\n"), "DELETED\r\n");
        }
        let room = format!("{what}: room after half was deleted");
        wait_until(&room, || client.set("new", &value_of("new", 0, 2000)).then_some(()));
        assert_eq!(client.get("new"), Some(value_of("new", 0, 2000)), "{what}");
        server.assert_alive();
    }
}

#[test]
fn a_full_drive_gives_way_to_the_new() {
    if !is_terrace() {
        skip("a_full_drive_gives_way_to_the_new", "memcached has no --tier");
        return;
    }
    let mut server = Server::start("-m 64 --tier ssd:DIR/tier:64m");
    let client = &mut server.client();
    for _ in 0..3 {
        push_to_flash(client);
    }
    fill(client, "new", 1000, 1000);
    for at in 0..1000 {
        let key = format!("new{at}");
        assert_eq!(client.get(&key), Some(value_of(&key, 0, 1000)), "{key}");
    }
    assert!(client.stat("", "evictions") > 0);
    let resident = server.resident_bytes();
    assert!(resident <= 104 << 20, "resident: {resident} bytes at -m 64");
    server.assert_alive();
}

#[test]
fn large_values_stream_to_the_drive_and_back() {
    if !is_terrace() {
        skip("large_values_stream_to_the_drive_and_back", "memcached has no --tier");
        return;
    }
    let mut server = Server::start("-m 64 -I 64m -t 2 --tier ssd:DIR/tier:512m");
    let client = &mut server.client();
    let sizes = [2 << 20, 8 << 20, (20 << 20) + 12_345];
    for (at, bytes) in sizes.into_iter().enumerate() {
        let key = format!("large{at}");
        assert!(client.set(&key, &value_of(&key, 1, bytes)), "{bytes}");
    }
    for (at, bytes) in sizes.into_iter().enumerate() {
        let key = format!("large{at}");
        let got = client.get(&key).unwrap_or_else(|| panic!("{bytes} bytes are lost"));
        assert!(got == value_of(&key, 1, bytes), "{bytes} bytes came back wrong");
    }
    client.check("append large0 0 0 3\r\nend\r\n", "STORED\r\n");
    let got = client.get("large0").expect("large0");
    assert_eq!(got.len(), (2 << 20) + 3);
    assert!(got.ends_with(b"end") && got.starts_with(&value_of("large0", 1, 2 << 20)));
    client.check("delete large1\r\n", "DELETED\r\n");
    assert_eq!(client.get("large1"), None);
    // More than an eighth of the drive, though within -I.
    client.send_set("huge", &vec![b'x'; 65 << 20]);
    assert!(client.line().starts_with("SERVER_ERROR"));
    assert_eq!(client.get("huge"), None);
    let resident = server.resident_bytes();
    assert!(resident <= 128 << 20, "resident: {resident} bytes at -m 64");
    server.assert_alive();
    let _ = tier_stat(client, "records");
}
