//! What `watch` tells of each command: memcached 1.6.45's lines, recorded with it. It runs against memcached too.

use terrace_e2e::{Client, Server, assert_on_flash, fill, flash_server, is_terrace, skip};

/// Requests, and the lines that they cause: what looks a key up is told before what stores. `$` stands for the client's
/// descriptor.
const LINES: &[(&str, &[&str])] = &[
    (
        "get m n\r\n",
        &[
            "item_get key=m status=not_found clsid=0 cfd=$ size=0",
            "item_get key=n status=not_found clsid=0 cfd=$ size=0",
        ],
    ),
    ("gat 5 m\r\n", &["item_get key=m status=not_found clsid=0 cfd=$ size=0"]),
    (
        "set a 0 0 1\r\n1\r\n",
        &[
            "item_get key=a status=not_found clsid=0 cfd=$ size=0",
            "item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "set a 0 90 1\r\n2\r\n",
        &[
            "item_get key=a status=found clsid=1 cfd=$ size=1",
            "item_store key=a status=stored cmd=set ttl=90 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "add a 0 0 1\r\nx\r\n",
        &[
            "item_get key=a status=found clsid=1 cfd=$ size=1",
            "item_store key=a status=not_stored cmd=add ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "add b 0 0 1\r\nx\r\n",
        &[
            "item_get key=b status=not_found clsid=0 cfd=$ size=0",
            "item_store key=b status=stored cmd=add ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "replace m 0 0 1\r\nx\r\n",
        &[
            "item_get key=m status=not_found clsid=0 cfd=$ size=0",
            "item_store key=m status=not_stored cmd=replace ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "append m 0 0 1\r\nx\r\n",
        &[
            "item_get key=m status=not_found clsid=0 cfd=$ size=0",
            "item_store key=m status=not_stored cmd=append ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "append a 0 0 1\r\n3\r\n",
        &[
            "item_get key=a status=found clsid=1 cfd=$ size=1",
            "item_store key=a status=stored cmd=append ttl=90 clsid=1 cfd=$ size=2",
        ],
    ),
    (
        "cas m 0 0 1 5\r\nx\r\n",
        &[
            "item_get key=m status=not_found clsid=0 cfd=$ size=0",
            "item_store key=m status=not_found cmd=cas ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "cas a 0 0 1 1\r\nx\r\n",
        &[
            "item_get key=a status=found clsid=1 cfd=$ size=2",
            "item_store key=a status=exists cmd=cas ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    ("incr m 1\r\n", &["item_get key=m status=not_found clsid=0 cfd=$ size=0"]),
    ("incr a 1\r\n", &["item_get key=a status=found clsid=1 cfd=$ size=2"]),
    ("decr b 1\r\n", &["item_get key=b status=found clsid=1 cfd=$ size=1"]),
    ("touch m 1\r\n", &["item_get key=m status=not_found clsid=0 cfd=$ size=0"]),
    ("touch a 0\r\n", &["item_get key=a status=found clsid=1 cfd=$ size=2"]),
    ("delete m\r\n", &["item_get key=m status=not_found clsid=0 cfd=$ size=0"]),
    (
        "delete b\r\n",
        &[
            "item_get key=b status=found clsid=1 cfd=$ size=1",
            "deleted key=b cmd=delete clsid=1 size=1",
        ],
    ),
    ("mg a t\r\n", &["item_get key=a status=found clsid=1 cfd=$ size=2"]),
    (
        "ms a 1\r\n1\r\n",
        &[
            "item_get key=a status=found clsid=1 cfd=$ size=2",
            "item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "ms a 2 MA\r\n23\r\n",
        &[
            "item_get key=a status=found clsid=1 cfd=$ size=1",
            "item_store key=a status=stored cmd=append ttl=0 clsid=1 cfd=$ size=3",
        ],
    ),
    ("ma m\r\n", &["item_get key=m status=not_found clsid=0 cfd=$ size=0"]),
    ("md a I\r\n", &["item_get key=a status=found clsid=1 cfd=$ size=3"]),
    (
        "md a\r\n",
        &[
            "item_get key=a status=found clsid=1 cfd=$ size=3",
            "deleted key=a cmd=md clsid=1 size=3",
        ],
    ),
    ("md a\r\n", &["item_get key=a status=not_found clsid=0 cfd=$ size=0"]),
    (
        "set q 0 0 1 noreply\r\n1\r\n",
        &[
            "item_get key=q status=not_found clsid=0 cfd=$ size=0",
            "item_store key=q status=stored cmd=set ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "add q 0 0 1 noreply\r\n1\r\n",
        &[
            "item_get key=q status=found clsid=1 cfd=$ size=1",
            "item_store key=q status=not_stored cmd=add ttl=0 clsid=1 cfd=$ size=1",
        ],
    ),
    (
        "delete q noreply\r\n",
        &[
            "item_get key=q status=found clsid=1 cfd=$ size=1",
            "deleted key=q cmd=delete clsid=1 size=1",
        ],
    ),
];

/// The next line from `type=` on, with `$` for the descriptor.
fn heard(watcher: &mut Client) -> String {
    let line = watcher.try_line().expect("a line");
    let (_, event) = line.split_once(" type=").unwrap_or_else(|| panic!("{line}"));
    let is_descriptor = |word: &&str| word.starts_with("cfd=");
    match event.split(' ').find(is_descriptor) {
        Some(word) => event.replace(word, "cfd=$"),
        None => event.to_string(),
    }
}

#[test]
fn each_command_is_told_as_memcached_tells_it() {
    let mut server = Server::start("-m 64 -t 1");
    let (mut watcher, mut client) = (server.client(), server.client());
    watcher.check("watch fetchers mutations deletions\r\n", "OK\r\n");
    for (request, lines) in LINES {
        client.send(request);
        for line in *lines {
            assert_eq!(heard(&mut watcher), *line, "{request}");
        }
    }
    server.assert_alive();
}

#[test]
fn expired_record_is_told_as_expired_and_counted_once() {
    if !is_terrace() {
        return skip(
            "expired_record_is_told_as_expired_and_counted_once",
            "memcached's clock is coarser",
        );
    }
    let server = Server::start("-m 64 -t 1");
    let (mut watcher, mut client) = (server.client(), server.client());
    client.check("set k 0 1 1\r\n1\r\n", "STORED\r\n");
    std::thread::sleep(std::time::Duration::from_secs(3));
    watcher.check("watch fetchers\r\n", "OK\r\n");
    client.check("get k\r\n", "END\r\n");
    assert_eq!(heard(&mut watcher), "item_get key=k status=expired clsid=0 cfd=$ size=0");
    assert_eq!(client.stat("", "get_expired"), 1);
}

#[test]
fn record_on_a_drive_is_told_with_its_size() {
    if !is_terrace() {
        return skip("record_on_a_drive_is_told_with_its_size", "another server's tiers");
    }
    let server = flash_server("-t 1");
    let (mut watcher, mut client) = (server.client(), server.client());
    fill(&mut client, "k", 40_000, 1000);
    assert_on_flash(&mut client, "k5");
    watcher.check("watch fetchers mutations deletions\r\n", "OK\r\n");
    for (request, lines) in [
        ("get k5\r\n", &["item_get key=k5 status=found clsid=1 cfd=$ size=1000"][..]),
        ("touch k6 0\r\n", &["item_get key=k6 status=found clsid=1 cfd=$ size=1000"]),
        (
            "delete k7\r\n",
            &[
                "item_get key=k7 status=found clsid=1 cfd=$ size=1000",
                "deleted key=k7 cmd=delete clsid=1 size=1000",
            ],
        ),
        // No drive is read for it.
        (
            "set k8 0 0 1\r\nx\r\n",
            &["item_store key=k8 status=stored cmd=set ttl=0 clsid=1 cfd=$ size=1"],
        ),
    ] {
        client.send(request);
        for line in lines {
            assert_eq!(heard(&mut watcher), *line, "{request}");
        }
    }
}
