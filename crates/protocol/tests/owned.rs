//! Requests that are kept are the same requests when the buffer that they came in is gone.

use terrace_protocol::{OwnedRequest, Parse, Parser, Request};

fn request(bytes: &[u8]) -> Request<'_> {
    match Parser::default().parse(bytes) {
        Parse::Request { request, .. } => request,
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

/// A packet of the binary protocol, without extras.
fn packet(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (key.len() + value.len()) as u8;
    let header = [0x80, opcode, 0, key.len() as u8, 0, 0, 0, 0, 0, 0, 0, body];
    [&header, &b"opaq"[..], &7u64.to_be_bytes(), key, value].concat()
}

#[test]
fn owned_request_without_its_buffer_is_the_same_request() {
    let lines = [
        &b"get key\r\n"[..],
        b"gets  key other  third\r\n",
        b"gat 10 key\r\n",
        b"set key 7 -1 5 noreply\r\n",
        b"cas key 7 100 5 12\r\n",
        b"prepend key 0 0 5\r\n",
        b"delete key noreply\r\n",
        b"decr key 18446744073709551615\r\n",
        b"touch key 100 noreply\r\n",
        b"mg key v\r\n",
        b"mg key s v  t Oopaque k q N30 R5\r\n",
        b"mg a2V5 b k v\r\n",
        b"ms key 5 F7 T100 C12 E13 MA\r\n",
        b"md key I T5\r\n",
        b"ma key N60 J5 D2 MD\r\n",
        b"me key\r\n",
        b"mn\r\n",
        b"stats slabs noreply\r\n",
    ];
    let packets = [
        packet(0x0c, b"key", b""),
        packet(0x0e, b"key", b"value"),
        packet(0x04, b"key", b""),
        packet(0x10, b"settings", b""),
        packet(0x0a, b"", b""),
        packet(0x21, b"PLAIN", b"\0user\0password"),
        packet(0xf0, b"key", b""),
    ];
    for bytes in lines.into_iter().chain(packets.iter().map(Vec::as_slice)) {
        let mut buffer = bytes.to_vec();
        let kept = OwnedRequest::new(&request(&buffer), b"value");
        buffer.fill(b'#');
        assert_eq!(kept.request(), request(bytes), "{}", bytes.escape_ascii());
        assert_eq!(kept.value(), b"value");
    }
}

#[test]
fn memory_of_owned_request_counts_all_that_it_points_to() {
    let memory = |bytes: &[u8], value: &[u8]| {
        OwnedRequest::new(&request(bytes), value).memory() - size_of::<OwnedRequest>()
    };
    assert_eq!(memory(b"set key 0 0 5\r\n", b"value"), 0, "short ones are part of it");
    assert_eq!(memory(b"set key 0 0 100\r\n", &[b'v'; 100]), 3 + 100);
    let flags = "k ".repeat(40);
    assert_eq!(memory(format!("me key {flags}\r\n").as_bytes(), b""), 3 + 1 + flags.len());
    assert_eq!(memory(b"mg a2V5 b\r\n", b""), 3, "the key is there twice");
}
