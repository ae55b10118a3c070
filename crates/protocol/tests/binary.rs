//! The opcodes, what belongs to each, and what becomes of packets that have something else.

use terrace_protocol::binary::{Arith, Echo, Get, Refused, Response, Sasl, Status, Store};
use terrace_protocol::{
    BinaryCommand, BinaryRequest, Parse, Parser, PlainGet, Protocol, Request, Verb,
};

const OPAQUE: [u8; 4] = [0xde, 0xad, 0xbe, 0xef];

/// A packet whose lengths are those of its parts.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut packet = vec![0x80, opcode];
    packet.extend((key.len() as u16).to_be_bytes());
    packet.extend([extras.len() as u8, 0, 0, 0]);
    packet.extend(body.to_be_bytes());
    packet.extend(OPAQUE);
    packet.extend(cas.to_be_bytes());
    packet.extend([extras, key, value].concat());
    packet
}

/// The request, and how many bytes were taken.
fn parse(packet: &[u8]) -> (BinaryRequest<'_>, usize) {
    match Parser::default().parse(packet) {
        Parse::Request { request: Request::Binary(request), consumed } => (request, consumed),
        other => panic!("{packet:x?}: {other:?}"),
    }
}

fn command(packet: &[u8]) -> (BinaryCommand<'_>, bool) {
    let (request, _) = parse(packet);
    assert_eq!(request.echo, Echo { opcode: packet[1], opaque: OPAQUE });
    (request.command, request.quiet)
}

fn refused(packet: &[u8]) -> Refused {
    match command(packet) {
        (BinaryCommand::Refused(refused), _) => refused,
        other => panic!("{packet:x?}: {other:?}"),
    }
}

#[test]
fn gets() {
    let table = [
        (0x00, false, false, None),
        (0x09, true, false, None),
        (0x0c, false, true, None),
        (0x0d, true, true, None),
        (0x1d, false, false, Some(7)),
        (0x1e, true, false, Some(7)),
        (0x23, false, true, Some(7)),
        (0x24, true, true, Some(7)),
    ];
    for (opcode, quiet, with_key, touch) in table {
        let extras = if touch.is_some() { &[0, 0, 0, 7][..] } else { &[] };
        let get = BinaryCommand::Get(Get { key: b"key", with_key, touch });
        assert_eq!(command(&packet(opcode, extras, b"key", b"", 0)), (get, quiet), "{opcode:x}");
    }
    let touch = BinaryCommand::Touch { key: b"key", exptime: 7 };
    assert_eq!(command(&packet(0x1c, &[0, 0, 0, 7], b"key", b"", 0)), (touch, false));
}

#[test]
fn stores() {
    let extras = [0, 0, 0, 5, 0, 0, 0, 9];
    let table = [
        (0x01, 0x11, Verb::Set, true),
        (0x02, 0x12, Verb::Add, true),
        (0x03, 0x13, Verb::Replace, true),
        (0x0e, 0x19, Verb::Append, false),
        (0x0f, 0x1a, Verb::Prepend, false),
    ];
    for (loud, quiet, verb, has_extras) in table {
        let extras = if has_extras { &extras[..] } else { &[] };
        let (client_flags, exptime) = if has_extras { (5, 9) } else { (0, 0) };
        for (cas, compare) in [(0, None), (3, Some(3))] {
            let store = Store { verb, key: b"key", client_flags, exptime, compare, value_bytes: 5 };
            for opcode in [loud, quiet] {
                let packet = packet(opcode, extras, b"key", b"value", cas);
                let expected = (BinaryCommand::Store(store), opcode == quiet);
                assert_eq!(command(&packet), expected, "{opcode:x}");
                let (request, consumed) = parse(&packet);
                assert_eq!(&packet[consumed..], b"value");
                let block = Request::Binary(request).data_block().expect("a value");
                assert_eq!((block.value_bytes, block.bytes()), (5, 5));
            }
        }
    }
}

#[test]
fn all_others() {
    let numbers = [[0; 7].as_slice(), &[2], &[0; 7], &[3], &[0, 0, 0, 4]].concat();
    let no_create = [&numbers[..16], &[255; 4]].concat();
    for (opcode, quiet, increments) in
        [(5, false, true), (0x15, true, true), (6, false, false), (0x16, true, false)]
    {
        let create = Some((3, 4));
        let arith = Arith { key: b"n", increments, delta: 2, create, compare: None };
        let found = command(&packet(opcode, &numbers, b"n", b"", 0))
            == (BinaryCommand::Arith(arith), quiet);
        assert!(found, "{opcode:x}");
        let arith = Arith { create: None, compare: Some(9), ..arith };
        let bare = packet(opcode, &no_create, b"n", b"", 9);
        assert_eq!(command(&bare), (BinaryCommand::Arith(arith), quiet));
    }
    let delete = |compare| BinaryCommand::Delete { key: b"k", compare };
    assert_eq!(command(&packet(0x04, b"", b"k", b"", 0)), (delete(None), false));
    assert_eq!(command(&packet(0x14, b"", b"k", b"", 6)), (delete(Some(6)), true));
    let flush = |exptime| BinaryCommand::Flush { exptime };
    assert_eq!(command(&packet(0x08, b"", b"", b"", 0)), (flush(0), false));
    assert_eq!(command(&packet(0x18, &[0, 0, 1, 0], b"", b"", 0)), (flush(256), true));
    for (opcode, command_, quiet) in [
        (0x07, BinaryCommand::Quit, false),
        (0x17, BinaryCommand::Quit, true),
        (0x0a, BinaryCommand::Noop, false),
        (0x0b, BinaryCommand::Version, false),
        (0x10, BinaryCommand::Stat { name: b"" }, false),
        (0x20, BinaryCommand::SaslMechanisms, false),
    ] {
        assert_eq!(command(&packet(opcode, b"", b"", b"", 0)), (command_, quiet), "{opcode:x}");
    }
    let stat = BinaryCommand::Stat { name: b"settings" };
    assert_eq!(command(&packet(0x10, b"", b"settings", b"", 0)), (stat, false));
    for (opcode, begins) in [(0x21, true), (0x22, false)] {
        let sasl = Sasl { begins, mechanism: b"PLAIN", data: b"\0u\0p" };
        let packet = packet(opcode, b"", b"PLAIN", b"\0u\0p", 0);
        assert_eq!(command(&packet), (BinaryCommand::Sasl(sasl), false));
        assert_eq!(parse(&packet).1, packet.len());
    }
}

#[test]
fn lengths_that_an_opcode_does_not_have_end_the_connection() {
    let invalid = Refused { status: Status::Invalid, swallow: 0, close: true };
    for packet in [
        packet(0x00, b"", b"", b"", 0),
        packet(0x00, &[0; 4], b"k", b"", 0),
        packet(0x00, b"", b"k", b"v", 0),
        packet(0x01, b"", b"k", b"v", 0),
        packet(0x01, &[0; 8], b"", b"v", 0),
        packet(0x04, b"", b"k", b"v", 0),
        packet(0x05, &[0; 8], b"k", b"", 0),
        packet(0x07, b"", b"k", b"", 0),
        packet(0x08, &[0; 5], b"", b"", 0),
        packet(0x0a, b"", b"", b"v", 0),
        packet(0x0b, &[0; 4], b"", b"", 0),
        packet(0x0e, &[0; 8], b"k", b"v", 0),
        packet(0x10, &[0; 4], b"", b"", 0),
        packet(0x1c, b"", b"k", b"", 0),
        packet(0x1d, &[0; 4], b"k", b"v", 0),
        packet(0x20, b"", b"k", b"", 0),
        packet(0x21, b"", b"", b"", 0),
        packet(0x00, b"", &[b'k'; 251], b"", 0),
        packet(0x99, b"", &[b'k'; 251], b"", 0),
    ] {
        assert_eq!(refused(&packet), invalid, "{packet:x?}");
    }
    let mut larger_than_any = packet(0x01, &[0; 8], b"k", b"", 0);
    larger_than_any[8..12].copy_from_slice(&((1u32 << 30) + 1).to_be_bytes());
    assert_eq!(refused(&larger_than_any), invalid);
    let mut shorter_than_its_key = packet(0x00, b"", b"key", b"", 0);
    shorter_than_its_key[11] = 2;
    let unknown = Refused { status: Status::Unknown, swallow: 0, close: true };
    assert_eq!(refused(&shorter_than_its_key), unknown);
}

#[test]
fn what_is_unknown_is_skipped() {
    for opcode in [0x1b, 0x1f, 0x25, 0x30, 0x3c, 0xff] {
        let packet = packet(opcode, &[0; 3], b"key", b"value", 0);
        let (request, consumed) = parse(&packet);
        let refused = Refused { status: Status::Unknown, swallow: 11, close: false };
        assert_eq!(request.command, BinaryCommand::Refused(refused), "{opcode:x}");
        assert_eq!(consumed, 24);
    }
    let long = packet(0x21, b"", &[b'M'; 33], b"data", 0);
    assert_eq!(refused(&long), Refused { status: Status::Invalid, swallow: 37, close: false });
    let long = packet(0x21, b"", b"PLAIN", &[0; 1025], 0);
    assert_eq!(refused(&long), Refused { status: Status::AuthError, swallow: 1030, close: false });
}

#[test]
fn the_first_byte_decides() {
    // Any packet without a line end in it.
    let version = packet(0x0b, b"", b"", b"", 0);
    let is_closed = |protocol, bytes: &[u8]| match Parser::new(protocol).parse(bytes) {
        Parse::Reject(reject) => reject.close && reject.reply.is_empty(),
        _ => false,
    };
    assert!(is_closed(Protocol::Binary, b"get k\r\n"));
    assert!(!is_closed(Protocol::Binary, &version));
    assert!(matches!(Parser::new(Protocol::Ascii).parse(&version), Parse::NeedMore));
    // Once decided, it stays.
    let mut parser = Parser::default();
    assert!(matches!(parser.parse(&version), Parse::Request { consumed: 24, .. }));
    assert!(matches!(parser.parse(b"mn\r\n"), Parse::Reject(reject) if reject.close));
    let mut parser = Parser::default();
    assert!(matches!(parser.parse(b"mn\r\n"), Parse::Request { consumed: 4, .. }));
    let line = [&version[..], b"\n"].concat();
    assert!(matches!(parser.parse(&line), Parse::Reject(reject) if !reject.close));
}

#[test]
fn a_packet_is_waited_for_up_to_its_value() {
    let packet = packet(0x01, &[0; 8], b"key", b"value", 0);
    for end in 1..packet.len() {
        let is_parsed = matches!(Parser::default().parse(&packet[..end]), Parse::Request { .. });
        assert_eq!(is_parsed, end >= 24 + 8 + 3, "{end}");
    }
}

#[test]
fn responses_repeat_what_they_should() {
    let echo = Echo { opcode: 0x0c, opaque: OPAQUE };
    let mut out = Vec::new();
    let response = Response {
        cas: 0x0102_0304_0506_0708,
        extras: &[0, 0, 0, 5],
        key: b"key",
        value: b"v",
        value_bytes_to_follow: 256,
    };
    echo.put(&mut out, &response);
    let header = [0x81, 0x0c, 0, 3, 4, 0, 0, 0, 0, 0, 1, 8, 0xde, 0xad, 0xbe, 0xef];
    assert_eq!(out, [&header[..], &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 5], b"keyv"].concat());
    for (status, code, text) in [
        (Status::NotFound, 0x01, "Not found"),
        (Status::Exists, 0x02, "Data exists for key."),
        (Status::TooLarge, 0x03, "Too large."),
        (Status::Invalid, 0x04, "Invalid arguments"),
        (Status::NotStored, 0x05, "Not stored."),
        (Status::NotNumeric, 0x06, "Non-numeric server-side value for incr or decr"),
        (Status::AuthError, 0x20, "Auth failure."),
        (Status::Unknown, 0x81, "Unknown command"),
        (Status::OutOfMemory, 0x82, "Out of memory"),
    ] {
        let mut out = Vec::new();
        echo.put_error(&mut out, status);
        let length = text.len() as u8;
        let header = [0x81, 0x0c, 0, 0, 0, 0, 0, code, 0, 0, 0, length, 0xde, 0xad, 0xbe, 0xef];
        assert_eq!(out, [&header[..], &[0; 8], text.as_bytes()].concat());
    }
}

/// The plainest GET is told sooner than others, and means the same; what is anything else is left to `parse`.
#[test]
fn plain_gets_mean_what_others_do() {
    let plain = |packet: &[u8]| {
        let get = Parser::default().plain_get(packet, PlainGet::Binary);
        get.map(|(key, bytes)| (key.to_vec(), bytes))
    };
    for key in [&b"k"[..], b"key", &[b'x'; 250]] {
        let whole = packet(0x00, &[], key, b"", 7);
        assert_eq!(plain(&whole), Some((key.to_vec(), whole.len())));
        assert_eq!(plain(&[&whole[..], b"more"].concat()), Some((key.to_vec(), whole.len())));
        assert_eq!(Echo::of(&whole), parse(&whole).0.echo);
        assert!((0..whole.len()).all(|end| plain(&whole[..end]).is_none()));
    }
    assert_eq!(plain(&packet(0x00, &[], b"", b"", 0)), None);
    assert_eq!(plain(&packet(0x00, &[], &[b'x'; 251], b"", 0)), None);
    let whole = packet(0x00, &[], b"key", b"", 0);
    for (at, byte) in (0..24).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
        let mut other = [&whole[..], &[b'y'; 300]].concat();
        other[at] = byte;
        let Some((key, bytes)) = plain(&other) else { continue };
        let (request, consumed) = parse(&other);
        let get = BinaryCommand::Get(Get { key: &key, with_key: false, touch: None });
        assert_eq!((request.command, request.quiet, consumed), (get, false, bytes), "{at} {byte}");
    }
}

#[test]
fn a_connection_that_speaks_text_has_no_plain_gets_of_the_binary_protocol() {
    let whole = packet(0x00, &[], b"key", b"", 0);
    let plain = |protocol| Parser::new(protocol).plain_get(&whole, PlainGet::Binary).is_some();
    assert_eq!([Protocol::Ascii, Protocol::Binary, Protocol::Auto].map(plain), [false, true, true]);
}
