//! Every command on records that lie on the drive answers as it does on records in DRAM.

use std::time::{Duration, Instant};
use terrace_e2e::{
    Client, Server, assert_on_flash, fill, flash_server, is_terrace, push_to_flash, skip, value_of,
    wait_until,
};

/// Keys `NAME0` to `NAME2` of each name, stored and pushed to the drive.
fn on_flash(client: &mut Client, records: &[(&str, &str)]) {
    for (name, value) in records {
        for at in 0..3 {
            client
                .check(format!("set {name}{at} 7 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
        }
    }
    push_to_flash(client);
    for (name, _) in records {
        for at in 0..3 {
            assert_on_flash(client, &format!("{name}{at}"));
        }
    }
}

/// A minute may have passed since the time was set.
fn assert_time_left(client: &mut Client, key: &str, seconds: u64) {
    let line = client.ask(&format!("mg {key} t"));
    let left = line.strip_prefix("HD t").and_then(|left| left.parse::<u64>().ok());
    assert!(left.is_some_and(|left| (seconds - 60..=seconds).contains(&left)), "{key}: {line}");
}

#[test]
fn classic_commands() {
    let mut server = flash_server("");
    let c = &mut server.client();
    on_flash(
        c,
        &[
            ("get", "value"),
            ("num", "10"),
            ("app", "mid"),
            ("del", "x"),
            ("add", "x"),
            ("rep", "x"),
            ("set", "x"),
            ("tch", "x"),
            ("gat", "x"),
            ("cas", "x"),
            ("nan", "x"),
        ],
    );
    c.check("get get0\r\n", "VALUE get0 7 5\r\nvalue\r\nEND\r\n");
    c.check(
        "get get1 nothere get2\r\n",
        "VALUE get1 7 5\r\nvalue\r\nVALUE get2 7 5\r\nvalue\r\nEND\r\n",
    );
    c.check("incr num0 5\r\n", "15\r\n");
    c.check("decr num1 11\r\n", "0\r\n");
    c.check("get num0\r\n", "VALUE num0 7 2\r\n15\r\nEND\r\n");
    c.check("incr nan0 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
    c.check("append app0 0 0 2\r\n>>\r\n", "STORED\r\n");
    c.check("prepend app1 0 0 2\r\n<<\r\n", "STORED\r\n");
    c.check("get app0\r\n", "VALUE app0 7 5\r\nmid>>\r\nEND\r\n");
    c.check("get app1\r\n", "VALUE app1 7 5\r\n<<mid\r\nEND\r\n");
    c.check("delete del0\r\n", "DELETED\r\n");
    c.check("delete del0\r\n", "NOT_FOUND\r\n");
    c.check("get del0\r\n", "END\r\n");
    c.check("add add0 0 0 1\r\ny\r\n", "NOT_STORED\r\n");
    c.check("get add0\r\n", "VALUE add0 7 1\r\nx\r\nEND\r\n");
    c.check("replace rep0 1 0 1\r\ny\r\n", "STORED\r\n");
    c.check("get rep0\r\n", "VALUE rep0 1 1\r\ny\r\nEND\r\n");
    c.check("set set0 2 0 3\r\nnew\r\n", "STORED\r\n");
    c.check("get set0\r\n", "VALUE set0 2 3\r\nnew\r\nEND\r\n");
    c.check("touch tch0 1000\r\n", "TOUCHED\r\n");
    assert_time_left(c, "tch0", 1000);
    c.check("gat 500 gat0\r\n", "VALUE gat0 7 1\r\nx\r\nEND\r\n");
    assert_time_left(c, "gat0", 500);
    let line = c.ask("gets cas0");
    let unique: u64 = line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a CAS number");
    c.expect("x\r\nEND\r\n");
    c.check(format!("cas cas0 0 0 1 {}\r\ny\r\n", unique + 1_000_000), "EXISTS\r\n");
    c.check(format!("cas cas0 0 0 1 {unique}\r\ny\r\n"), "STORED\r\n");
    c.check(format!("cas cas0 0 0 1 {unique}\r\nz\r\n"), "EXISTS\r\n");
    c.check("get cas0\r\n", "VALUE cas0 0 1\r\ny\r\nEND\r\n");
    server.assert_alive();
}

#[test]
fn meta_commands() {
    let mut server = flash_server("");
    let c = &mut server.client();
    on_flash(c, &[("get", "value"), ("num", "10"), ("app", "mid"), ("del", "x"), ("stl", "x")]);
    c.check("mg get0 s v f k Oq\r\n", "VA 5 s5 f7 kget0 Oq\r\nvalue\r\n");
    c.check("mg get1 t\r\n", "HD t-1\r\n");
    c.check("mg nothere v\r\n", "EN\r\n");
    c.check("ma num0 D5 v\r\n", "VA 2\r\n15\r\n");
    c.check("ma num1 MD D3 v\r\n", "VA 1\r\n7\r\n");
    c.check("ms app0 2 MA\r\n>>\r\n", "HD\r\n");
    c.check("mg app0 v\r\n", "VA 5\r\nmid>>\r\n");
    c.check("ms app1 1 ME\r\ny\r\n", "NS\r\n");
    c.check("ms app1 1 MR\r\ny\r\n", "HD\r\n");
    c.check("md del0 q\r\nmd del0\r\n", "NF\r\n");
    c.check("md stl0 I T300\r\n", "HD\r\n");
    c.check("mg stl0 v\r\n", "VA 1 X W\r\nx\r\n");
    c.check("mg stl0 v\r\n", "VA 1 Z X\r\nx\r\n");
    server.assert_alive();
}

#[test]
fn one_connection_sees_its_commands_in_order() {
    let mut server = flash_server("-t 1");
    let c = &mut server.client();
    on_flash(c, &[("num", "10"), ("val", "old"), ("del", "old"), ("app", "a")]);
    c.check(
        "incr num0 1\r\nincr num0 1\r\nget num0\r\n",
        "11\r\n12\r\nVALUE num0 7 2\r\n12\r\nEND\r\n",
    );
    c.check(
        "get val0\r\nset val0 0 0 3\r\nnew\r\nget val0\r\n",
        "VALUE val0 7 3\r\nold\r\nEND\r\nSTORED\r\nVALUE val0 0 3\r\nnew\r\nEND\r\n",
    );
    c.check(
        "delete del0\r\nadd del0 0 0 3\r\nnew\r\nget del0\r\n",
        "DELETED\r\nSTORED\r\nVALUE del0 0 3\r\nnew\r\nEND\r\n",
    );
    c.check(
        "append app0 0 0 1\r\nb\r\nappend app0 0 0 1\r\nc\r\nget app0\r\n",
        "STORED\r\nSTORED\r\nVALUE app0 7 3\r\nabc\r\nEND\r\n",
    );
    // Answers of DRAM don't overtake those of the drive.
    c.check("set dram 0 0 1\r\nd\r\n", "STORED\r\n");
    c.check(
        "get num1\r\nget dram\r\nget val1\r\nget nothere\r\nmn\r\n",
        "VALUE num1 7 2\r\n10\r\nEND\r\nVALUE dram 0 1\r\nd\r\nEND\r\n\
         VALUE val1 7 3\r\nold\r\nEND\r\nEND\r\nMN\r\n",
    );
    // A long pipeline over the drive, and one multiget of the same keys.
    let keys: Vec<_> = (0..5000).map(|at| format!("filler{}", at * 7)).collect();
    for key in &keys {
        c.send(format!("get {key}\r\n"));
    }
    for key in &keys {
        assert_eq!(c.read_get(key), Some(value_of(key, 0, 1000)), "{key}");
    }
    c.send(format!("get {}\r\n", keys.join(" ")));
    for key in &keys {
        c.expect(format!("VALUE {key} 0 1000\r\n"));
        c.expect([&value_of(key, 0, 1000)[..], b"\r\n"].concat());
    }
    c.expect("END\r\n");
    server.assert_alive();
}

#[test]
fn values_of_every_size() {
    let mut server = flash_server("");
    let c = &mut server.client();
    let sizes = [
        0,
        1,
        8,
        100,
        230,
        255,
        256,
        257,
        816,
        2000,
        4000,
        4060,
        4095,
        4096,
        4097,
        5000,
        8191,
        8192,
        10_000,
        16_384,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        (1 << 20) - 512,
    ];
    for bytes in sizes {
        let key = format!("size{bytes}");
        assert!(c.set(&key, &value_of(&key, 1, bytes)), "{bytes} bytes");
    }
    let check = |c: &mut Client, when: &str| {
        for bytes in sizes {
            let key = format!("size{bytes}");
            let got = c.get(&key).unwrap_or_else(|| {
                // Lost, or only not found for a moment? Both are wrong, for different reasons.
                std::thread::sleep(Duration::from_secs(1));
                let later = if c.get(&key).is_some() { "there" } else { "missing" };
                let stats = c.stats("tiers");
                panic!("{bytes} bytes are lost {when}, a second later {later}: {stats:?}")
            });
            assert!(got == value_of(&key, 1, bytes), "{bytes} bytes came back wrong {when}");
        }
    };
    check(c, "before they went to the drive");
    push_to_flash(c);
    check(c, "from the drive");
    // Each replaced by one of another size.
    for (at, bytes) in sizes.into_iter().enumerate() {
        let key = format!("size{bytes}");
        let other = sizes[sizes.len() - 1 - at];
        assert!(c.set(&key, &value_of(&key, 2, other)));
        assert_eq!(c.get(&key), Some(value_of(&key, 2, other)), "{bytes} bytes became {other}");
    }
    // Beyond -I: refused, and the old value is gone.
    let beyond = vec![b'x'; (1 << 20) + 1];
    assert!(!c.set("size100", &beyond));
    assert_eq!(c.get("size100"), None);
    server.assert_alive();
}

#[test]
fn flush_all_reaches_the_drive() {
    let mut server = flash_server("");
    let c = &mut server.client();
    on_flash(c, &[("a", "x")]);
    // memcached's clock has whole seconds: what was stored in this one may stay.
    std::thread::sleep(Duration::from_millis(1100));
    c.check("flush_all\r\n", "OK\r\n");
    for key in ["a0", "a1", "filler0", "filler129999"] {
        assert_eq!(c.get(key), None, "{key} outlived flush_all");
    }
    c.check("delete a2\r\n", "NOT_FOUND\r\n");
    std::thread::sleep(Duration::from_millis(1100));
    assert!(c.set("a0", b"new"));
    assert_eq!(c.get("a0").as_deref(), Some(&b"new"[..]));
    let planned = Instant::now();
    c.check("flush_all 3\r\n", "OK\r\n");
    wait_until("a delayed flush_all", || c.get("a0").is_none().then_some(()));
    // The seconds are those of a clock: the first of the three may be as good as over.
    assert!(planned.elapsed() > Duration::from_secs(1), "flushed before its time");
    server.assert_alive();
}

#[test]
fn records_expire_on_the_drive() {
    let mut server = flash_server("");
    let c = &mut server.client();
    for at in 0..100 {
        c.check(format!("set short{at} 0 6 1\r\nx\r\n"), "STORED\r\n");
        c.check(format!("set long{at} 0 1000 1\r\nx\r\n"), "STORED\r\n");
    }
    let stored = Instant::now();
    push_to_flash(c);
    std::thread::sleep(Duration::from_secs(9).saturating_sub(stored.elapsed()));
    for at in 0..100 {
        assert_eq!(c.get(&format!("short{at}")), None, "short{at} outlived its time");
        assert_eq!(c.get(&format!("long{at}")).as_deref(), Some(&b"x"[..]), "long{at}");
    }
    c.check("add short0 0 0 1\r\ny\r\n", "STORED\r\n");
    c.check("incr short1 1\r\n", "NOT_FOUND\r\n");
    server.assert_alive();
}

/// What a refused value was to replace goes, too, also where a page has to be read to find it.
#[test]
fn a_refused_value_leaves_nothing_behind() {
    let server = flash_server("");
    let mut client = server.client();
    for at in 0..20 {
        fill(&mut client, &format!("r{at}-"), 1000, 500);
        // Chunks of large values are in segments of their own kind.
        assert!(client.set(&format!("large{at}"), &vec![b'l'; 300_000]));
    }
    push_to_flash(&mut client);
    let value = "x".repeat(1_126_400);
    for at in 0..20 {
        let key = format!("r{at}-7");
        assert!(client.get(&key).is_some(), "{key} is there");
        client.send(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()));
        assert_eq!(client.line(), "SERVER_ERROR object too large for cache");
        assert!(client.get(&key).is_none(), "{key} stayed");
    }
}

#[test]
fn a_value_that_finds_no_room_leaves_nothing_behind() {
    const NAME: &str = "a_value_that_finds_no_room_leaves_nothing_behind";
    if !is_terrace() {
        return skip(NAME, "it is about tiers");
    }
    let server = Server::start("-M -m 16 --tier ssd:DIR/tier:64m");
    let mut client = server.client();
    let value = [b'v'; 900];
    let stored = (0..200_000).take_while(|at| client.set(&format!("r{at}"), &value)).count();
    assert!(stored > 30_000 && stored < 200_000, "{stored} stored");
    // In DRAM, on the drive, and in between.
    for at in [0, 10, stored / 2, stored - 1] {
        for bytes in [300_000, 1_126_400] {
            let key = format!("r{}", at + bytes / 300_001);
            client.send(format!("set {key} 0 0 {bytes}\r\n{}\r\n", "x".repeat(bytes)));
            let reply = client.line();
            if reply != "STORED" {
                assert!(reply.starts_with("SERVER_ERROR"), "{key}: {reply}");
                assert!(client.get(&key).is_none(), "{key} stayed");
            }
        }
    }
}
