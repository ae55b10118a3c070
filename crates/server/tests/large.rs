//! Values that are stored and sent chunk by chunk.

mod common;

use common::{Client, TestServer};
use terrace::settings::Settings;

const ITEM_BYTES_MAX: u64 = 16 << 20;

/// A value of which every part tells where it belongs.
fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes as u64 / 8 + 1).map(|at| (seed << 40 | at).to_be_bytes());
    words.flatten().map(|byte| b'a' + byte % 26).take(bytes).collect()
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
}

fn server(tier_bytes: Option<u64>) -> (TestServer, Client) {
    let server = TestServer::with(|settings| settings.item_bytes_max = ITEM_BYTES_MAX, tier_bytes);
    let client = server.connect();
    (server, client)
}

/// One that has no need to evict anything, however late background work comes.
fn roomy_server(tier_bytes: Option<u64>) -> (TestServer, Client) {
    let settings = |settings: &mut Settings| {
        settings.item_bytes_max = ITEM_BYTES_MAX;
        settings.memory_bytes = 512 << 20;
    };
    let server = TestServer::with(settings, tier_bytes);
    let client = server.connect();
    (server, client)
}

fn sizes_come_back(tier_bytes: Option<u64>) {
    let (_server, mut client) = server(tier_bytes);
    let sizes =
        [4000, 5000, 30_000, 70_000, 200_000, 262_144, 262_145, 524_288, 1 << 20, 3_000_001];
    for (seed, bytes) in (1..).zip(sizes) {
        client.ask(set(&format!("k{seed}"), &value(seed, bytes)), "STORED\r\n");
    }
    for (seed, bytes) in (1..).zip(sizes) {
        let key = format!("k{seed}");
        client.ask(format!("get {key}\r\n"), hit(&key, &value(seed, bytes)));
    }
    let many: String = (1..=sizes.len()).map(|seed| format!(" k{seed}")).collect();
    let mut all = Vec::new();
    for (seed, bytes) in (1..).zip(sizes) {
        let one = hit(&format!("k{seed}"), &value(seed, bytes));
        all.extend_from_slice(&one[..one.len() - 5]);
    }
    all.extend_from_slice(b"END\r\n");
    client.ask(format!("get{many}\r\n"), all);
}

#[test]
fn sizes_come_back_from_dram() {
    sizes_come_back(None);
}

#[test]
fn sizes_come_back_from_a_drive() {
    sizes_come_back(Some(512 << 20));
}

#[test]
fn commands_on_a_large_value() {
    for tier_bytes in [None, Some(512 << 20)] {
        let (_server, mut client) = server(tier_bytes);
        let long = value(1, 2_000_000);
        let not_numeric = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        client.ask(set("k", &long), "STORED\r\n");
        client.ask("incr k 1\r\n", not_numeric);
        client.ask("touch k 1000\r\nmg k s\r\n", "TOUCHED\r\nHD s2000000\r\n");
        client.expect_time_left("k", 1000);
        client.ask("append k 0 0 3\r\nend\r\nprepend k 0 0 5\r\nbegin\r\n", "STORED\r\nSTORED\r\n");
        let extended = [b"begin", &long[..], b"end"].concat();
        client.ask("get k\r\n", hit("k", &extended));
        client.ask("gat 0 k\r\n", hit("k", &extended));
        let meta = [b"VA 2000008 t-1\r\n", &extended[..], b"\r\n"].concat();
        client.ask("mg k t v\r\n", meta);
        client.ask([b"append k 0 0 2000000\r\n", &long[..], b"\r\n"].concat(), "STORED\r\n");
        client.ask("get k\r\n", hit("k", &[&extended[..], &long].concat()));
        // What is appended to is as good as new.
        client.ask("md k I T900\r\nmg k\r\n", "HD\r\nHD X W\r\n");
        client.ask("append k 0 0 3\r\nend\r\nmg k\r\n", "STORED\r\nHD\r\n");
        client.ask("delete k\r\nget k\r\n", "DELETED\r\nEND\r\n");
        client.ask(set("k", b"small"), "STORED\r\n");
        client.ask([b"append k 0 0 2000000\r\n", &long[..], b"\r\n"].concat(), "STORED\r\n");
        client.ask("get k\r\n", hit("k", &[b"small", &long[..]].concat()));
        client.ask([b"ms k 2000000\r\n", &long[..], b"\r\n"].concat(), "HD\r\n");
        client.ask("get k\r\n", hit("k", &long));
        let refused = [b"add k 0 0 2000000\r\n", &long[..], b"\r\n"].concat();
        client.ask(refused, "NOT_STORED\r\n");
        client.ask("get k\r\n", hit("k", &long));
    }
}

/// Whoever reads or changes an item uses all of it: it is not evicted, nor any piece of it, for having been stored
/// long ago.
#[test]
fn an_item_in_use_stays() {
    let other = value(2, 8000);
    for using in ["get", "touch", "append"] {
        let (_server, mut client) = server(None);
        let mut whole = value(1, 2_000_000);
        client.ask(set("k", &whole), "STORED\r\n");
        // Twice what there is of memory.
        for n in 0..16_000 {
            client.ask(set(&format!("other{n}"), &other), "STORED\r\n");
            match using {
                _ if n % 500 != 0 => {}
                "get" => client.ask("get k\r\n", hit("k", &whole)),
                "touch" => client.ask("touch k 1000\r\n", "TOUCHED\r\n"),
                _ => {
                    client.ask("append k 0 0 1\r\nx\r\n", "STORED\r\n");
                    whole.push(b'x');
                }
            }
        }
        let evictions = client.stat("", "evictions");
        assert!(evictions.parse::<u64>().expect("a number") > 8000, "{evictions}");
        client.ask("get k\r\n", hit("k", &whole));
    }
}

#[test]
fn small_values_grow_beyond_one_piece() {
    let (_server, mut client) = server(None);
    let part = value(3, 100_000);
    client.ask(set("k", &part), "STORED\r\n");
    let mut whole = part.clone();
    for _ in 0..20 {
        client.ask([b"append k 0 0 100000\r\n", &part[..], b"\r\n"].concat(), "STORED\r\n");
        whole.extend_from_slice(&part);
    }
    client.ask("get k\r\n", hit("k", &whole));
}

/// A log that clients write line by line, which is a manifest before long.
#[test]
fn many_short_pieces_become_one_long_value() {
    let (_server, mut client) = server(None);
    for (verb, key) in [("append", "log"), ("prepend", "stack")] {
        let mut whole = value(4, 40_000);
        client.ask(set(key, &whole), "STORED\r\n");
        for n in 0..3000 {
            let line = format!("{n:0>50}");
            client.ask(format!("{verb} {key} 0 0 50\r\n{line}\r\n"), "STORED\r\n");
            let at = if verb == "append" { whole.len() } else { 0 };
            whole.splice(at..at, line.into_bytes());
        }
        client.ask(format!("get {key}\r\n"), hit(key, &whole));
    }
}

/// As memcached: what is there stays, and the client is told that nothing was stored.
#[test]
fn an_append_beyond_the_limit_stores_nothing() {
    let (_server, mut client) = server(None);
    for bytes in [100, 5 << 20] {
        let start = value(7, bytes);
        client.ask(set("k", &start), "STORED\r\n");
        let more = value(8, (8 << 20) - 50);
        for verb in ["append", "prepend"] {
            let line = format!("{verb} k 0 0 {}\r\n", more.len()).into_bytes();
            client.ask([&line, &more[..], b"\r\n"].concat(), "NOT_STORED\r\n");
        }
        let line = format!("ms k {} MA\r\n", more.len()).into_bytes();
        client.ask([&line, &more[..], b"\r\n"].concat(), "NS\r\n");
        client.ask("get k\r\n", hit("k", &start));
    }
}

#[test]
fn the_item_limit_holds() {
    let (_server, mut client) = server(None);
    client.ask("set k 0 0 1\r\na\r\n", "STORED\r\n");
    let limit: u64 = client.stat("settings", "item_size_max").parse().unwrap();
    assert_eq!(
        limit,
        8 << 20,
        "16 MiB were asked for; of 64 MiB of DRAM one item may take an eighth"
    );
    let long = vec![b'x'; limit as usize + 1];
    client.ask(set("k", &long), "SERVER_ERROR object too large for cache\r\n");
    client.ask("get k\r\n", "END\r\n");
    // Who asks for no reply gets none: it would be taken for that of the next request.
    let quiet = format!("set k 0 0 {} noreply\r\n", long.len());
    client.ask([quiet.as_bytes(), &long[..], b"\r\nmn\r\n"].concat(), "MN\r\n");
}

#[test]
fn an_upload_with_a_wrong_end_stores_nothing() {
    let (_server, mut client) = server(None);
    client.ask("set k 0 0 1\r\na\r\n", "STORED\r\n");
    let mut request = set("k", &value(1, 3_000_000));
    let end = request.len() - 2;
    request[end..].copy_from_slice(b"xx");
    client.ask(request, "CLIENT_ERROR bad data chunk\r\n");
    client.ask("get k\r\n", hit("k", b"a"));
}

#[test]
fn uploads_that_break_off_leave_room_for_others() {
    let (server, mut client) = server(None);
    for seed in 0..40 {
        let request = set("broken", &value(seed, 8_000_000));
        let mut victim = server.connect();
        victim.send(&request[..request.len() - 1000]);
    }
    client.ask(set("k", &value(7, 8_000_000)), "STORED\r\n");
    client.ask("get k broken\r\n", hit("k", &value(7, 8_000_000)));
}

#[test]
fn requests_behind_a_large_value_wait_for_it() {
    let (_server, mut client) = server(Some(512 << 20));
    let long = value(9, 5_000_000);
    let request =
        [&set("a", b"1")[..], &set("k", &long), b"get k\r\nget a\r\ndelete k\r\nget k\r\n"];
    let reply =
        [b"STORED\r\nSTORED\r\n", &hit("k", &long)[..], &hit("a", b"1"), b"DELETED\r\nEND\r\n"];
    client.ask(request.concat(), reply.concat());
}

#[test]
fn large_values_overlap_but_not_with_what_changes_them() {
    for tier_bytes in [None, Some(512 << 20)] {
        let (_server, mut client) = server(tier_bytes);
        let values: Vec<_> = (0..3).map(|seed| value(seed, 700_000)).collect();
        for (number, value) in values.iter().enumerate() {
            client.ask(set(&format!("k{number}"), value), "STORED\r\n");
        }
        for _ in 0..20 {
            let request = [
                b"get k0\r\nget k1\r\nget none\r\ndelete k0\r\nget k0\r\nget k2\r\n".to_vec(),
                set("k2", b"x"),
                b"get k2\r\nget k1\r\n".to_vec(),
                set("k1", &values[1]),
                b"get k1\r\n".to_vec(),
                [set("k0", &values[0]), set("k2", &values[2])].concat(),
            ];
            let reply = [
                [hit("k0", &values[0]), hit("k1", &values[1])].concat(),
                b"END\r\nDELETED\r\nEND\r\n".to_vec(),
                [hit("k2", &values[2]), b"STORED\r\n".to_vec(), hit("k2", b"x")].concat(),
                [hit("k1", &values[1]), b"STORED\r\n".to_vec(), hit("k1", &values[1])].concat(),
                b"STORED\r\nSTORED\r\n".to_vec(),
            ];
            client.ask(request.concat(), reply.concat());
        }
    }
}

#[test]
fn a_reader_that_is_slow_gets_all_of_it() {
    let (_server, mut client) = server(None);
    let long = value(5, 8_000_000);
    client.ask(set("k", &long), "STORED\r\n");
    client.send("get k\r\n".repeat(4));
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.expect(hit("k", &long).repeat(4));
    client.expect_silence();
}

#[test]
fn an_item_that_is_replaced_or_deleted_while_it_is_read_is_read_to_its_end() {
    for tier_bytes in [None, Some(512 << 20)] {
        let (server, mut client) = roomy_server(tier_bytes);
        let values = [value(1, 6_000_000), value(2, 6_000_000)];
        let text = |text: &str| text.as_bytes().to_vec();
        // What changes it, the answer to that, and what is found then.
        let changes = [
            (set("k", &values[1]), text("STORED\r\n"), hit("k", &values[1])),
            (text("delete k\r\n"), text("DELETED\r\n"), text("END\r\n")),
            (text("gat -1 k\r\n"), hit("k", &values[0]), text("END\r\n")),
        ];
        for (change, reply, after) in changes {
            client.ask(set("k", &values[0]), "STORED\r\n");
            let mut reader = server.connect();
            reader.send("get k\r\n");
            // The reader has begun, and not taken anything beyond what the sockets hold.
            let begin = reader.receive(|unread| (unread.len() >= 5).then_some(5));
            client.ask(change, reply);
            std::thread::sleep(std::time::Duration::from_millis(50));
            client.ask("get k\r\n", after);
            let got = [begin, reader.receive_all_or_until(b"END\r\n")].concat();
            assert!(got == hit("k", &values[0]), "{} bytes of it", got.len());
        }
    }
}

/// Its chunks are removed while they are still being looked up.
#[test]
fn the_last_look_at_a_value_finds_all_of_it() {
    for tier_bytes in [None, Some(512 << 20)] {
        let (_server, mut client) = roomy_server(tier_bytes);
        let value = value(3, 700_000);
        for _ in 0..100 {
            client.ask(set("k", &value), "STORED\r\n");
            client.ask("gat -1 k\r\n", hit("k", &value));
            client.ask("get k\r\n", "END\r\n");
        }
    }
}

/// Whoever asks gets one of them.
#[test]
fn a_value_that_is_replaced_again_and_again_is_always_there() {
    for tier_bytes in [None, Some(512 << 20)] {
        let (server, mut client) = roomy_server(tier_bytes);
        let values = [value(1, 900_000), value(2, 900_000)];
        client.ask(set("k", &values[0]), "STORED\r\n");
        let mut reader = server.connect();
        for round in 0..200 {
            client.send(set("k", &values[round % 2]));
            reader.send("get k\r\n");
            let got = reader.receive_until("END\r\n").into_bytes();
            let is_one = values.iter().any(|value| got == hit("k", value));
            assert!(is_one, "{round}: {} bytes", got.len());
            client.expect("STORED\r\n");
        }
    }
}

/// Longer than what is looked up in one turn: its chunks may be gone when the rest is.
#[test]
fn who_asks_for_a_value_that_is_deleted_meanwhile_gets_an_answer() {
    let (server, mut client) = server(None);
    let mut other = server.connect();
    let stored = set("k", &value(1, 1_000_000));
    for _ in 0..150 {
        client.ask(&stored, "STORED\r\n");
        client.send("get k\r\n");
        other.ask("delete k\r\n", "DELETED\r\n");
        client.receive_until("END\r\n");
    }
}

/// Those that a full cache lets go of while others are sent before them: what was missed is not found again.
#[test]
fn values_that_are_lost_before_their_turn_are_gone() {
    const VALUES: u64 = 40;
    for tier_bytes in [None, Some(64 << 20)] {
        let (server, mut client) = server(tier_bytes);
        for seed in 0..VALUES {
            client.ask(set(&format!("k{seed}"), &value(seed, 900_000)), "STORED\r\n");
        }
        // Far more than the sockets hold: the others wait for their turn.
        let mut reader = server.connect();
        reader.send((0..VALUES).map(|seed| format!("get k{seed}\r\n")).collect::<String>());
        for other in 0..1000 {
            client.ask(set(&format!("o{other}"), &value(other, 60_000)), "STORED\r\n");
        }
        let mut missed = 0;
        for seed in 0..VALUES {
            let got = reader.receive_until("END\r\n").into_bytes();
            if got != hit(&format!("k{seed}"), &value(seed, 900_000)) {
                assert_eq!(got.len(), 5, "{seed}");
                client.ask(format!("touch k{seed} 0\r\n"), "NOT_FOUND\r\n");
                missed += 1;
            }
        }
        assert!(missed > 0, "all of them were there");
    }
}
