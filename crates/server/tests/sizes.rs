//! `stats sizes` over the binary protocol: a response for each size, an empty one at the end, and
//! what comes behind it afterwards.

mod common;

use common::TestServer;
use common::binary::{NOOP, SET, packet, receive};

const STAT: u8 = 0x10;

#[test]
fn sizes_come_one_by_one() {
    let server = TestServer::with(|settings| settings.track_sizes = true, None);
    let mut client = server.connect();
    let mut requests = Vec::new();
    for (key, bytes) in [("a", 10), ("b", 10), ("c", 100)] {
        requests.extend(packet(SET, &[0; 8], key, &"x".repeat(bytes).into_bytes(), 0));
    }
    requests.extend(packet(STAT, b"", "sizes", b"", 0));
    requests.extend(packet(NOOP, b"", "", b"", 0));
    client.send(&requests);
    for _ in 0..3 {
        assert_eq!(receive(&mut client).opcode, SET);
    }
    let mut told = Vec::new();
    loop {
        let answer = receive(&mut client);
        assert_eq!((answer.opcode, answer.status), (STAT, 0));
        if answer.key.is_empty() {
            break;
        }
        told.push((String::from_utf8(answer.key), String::from_utf8(answer.value)));
    }
    let row = |size: &str, count: &str| (Ok(size.to_string()), Ok(count.to_string()));
    assert_eq!(told, [row("32", "2"), row("128", "1")]);
    assert_eq!(receive(&mut client).opcode, NOOP);
}
