//! However a stream of bytes is cut into pieces, the same requests come out; whatever the bytes are,
//! the parser goes on or says close.

use proptest::prelude::*;
use terrace_protocol::{BinaryCommand, OwnedRequest, Parse, Parser, Request};

/// Feeds pieces as a connection would, and describes what came out. Keys of a line may come in any
/// number of parts, so they are described one by one.
fn run(pieces: &[&[u8]]) -> Vec<String> {
    let (mut parser, mut buf, mut swallow, mut out) =
        (Parser::default(), Vec::new(), 0, Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let dropped = swallow.min(buf.len());
            buf.drain(..dropped);
            swallow -= dropped;
            if swallow > 0 || buf.is_empty() {
                break;
            }
            match parser.parse(&buf) {
                Parse::NeedMore => break,
                Parse::Request { request, consumed } => {
                    assert!(consumed > 0 && consumed <= buf.len(), "no progress");
                    assert_eq!(OwnedRequest::new(&request, b"").request(), request);
                    match &request {
                        Request::Keys(keys) => {
                            let kind = keys.kind;
                            out.extend(
                                keys.keys.map(|key| format!("{kind:?} {}", key.escape_ascii())),
                            );
                            out.extend(keys.is_last.then(|| "end".to_owned()));
                        }
                        other => out.push(format!("{other:?}")),
                    }
                    swallow = request.data_block().map_or(0, |block| block.bytes() as usize);
                    if let Request::Binary(request) = &request
                        && let BinaryCommand::Refused(refused) = request.command
                    {
                        swallow = refused.swallow as usize;
                        if refused.close {
                            return out;
                        }
                    }
                    buf.drain(..consumed);
                }
                Parse::Reject(reject) => {
                    assert!(reject.consumed > 0 && reject.consumed <= buf.len(), "no progress");
                    out.push(format!("{}", reject.reply.escape_ascii()));
                    if reject.close {
                        out.push("close".to_owned());
                        return out;
                    }
                    swallow = usize::try_from(reject.swallow).expect("small");
                    buf.drain(..reject.consumed);
                }
            }
        }
        assert!(buf.len() <= 4096 + piece.len(), "{} bytes wait for more", buf.len());
    }
    out
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let key = "[a-zA-Z0-9:_]{1,20}";
    prop_oneof![
        (prop::collection::vec(key, 1..5))
            .prop_map(|keys| format!("get {}\r\n", keys.join(" ")).into_bytes()),
        (prop::collection::vec(key, 300..900)).prop_map(|keys| format!(
            "gets {}\r\n",
            keys.join(" ")
        )
        .into_bytes()),
        (key, prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(key, value)| {
            let line = format!("set {key} 5 0 {}\r\n", value.len()).into_bytes();
            [line, value, b"\r\n".to_vec()].concat()
        }),
        (key, "[a-z]{0,3}").prop_map(|(key, flags)| {
            let flags: String = flags.chars().map(|c| format!(" {c}")).collect();
            format!("mg {key}{flags}\r\n").into_bytes()
        }),
        (key, any::<u64>()).prop_map(|(key, delta)| format!("incr {key} {delta}\n").into_bytes()),
        "[ -~]{0,40}\r\n".prop_map(String::into_bytes),
    ]
}

/// A request in the binary protocol; sometimes with lengths that don't belong together.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![9 => 0u8..0x25, 1 => any::<u8>()];
    let extras = prop_oneof![Just(0u8), Just(4), Just(8), Just(20), any::<u8>()];
    let key = prop_oneof![8 => 1usize..30, 1 => 0usize..300];
    (opcode, extras, key, 0usize..300, any::<u64>(), any::<[u8; 4]>()).prop_map(
        |(opcode, extras, key, value, cas, opaque)| {
            // Mostly the extras that the opcode has.
            let extras = match opcode {
                0x01..=0x03 | 0x11..=0x13 if extras < 128 => 8,
                0x05 | 0x06 | 0x15 | 0x16 if extras < 128 => 20,
                0x1c..=0x1e | 0x23 | 0x24 if extras < 128 => 4,
                _ if extras < 64 => 0,
                _ => extras,
            };
            let body = usize::from(extras) + key + value;
            let mut packet = vec![0x80, opcode];
            packet.extend((key as u16).to_be_bytes());
            packet.extend([extras, 0, 0, 0]);
            packet.extend((body as u32).to_be_bytes());
            packet.extend(opaque);
            packet.extend(cas.to_be_bytes());
            packet.extend(vec![b'k'; body]);
            packet
        },
    )
}

proptest! {
    #[test]
    fn pieces_of_binary_requests_do_not_matter(
        packets in prop::collection::vec(packet(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = packets.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([stream.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces: Vec<_> = starts.zip(ends).map(|(start, end)| &stream[start..end]).collect();
        prop_assert_eq!(run(&pieces), run(&[&stream]));
    }

    #[test]
    fn pieces_do_not_matter(
        requests in prop::collection::vec(request(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = requests.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut at = 0;
        for cut in cuts {
            pieces.push(&stream[at..cut]);
            at = cut;
        }
        pieces.push(&stream[at..]);
        prop_assert_eq!(run(&pieces), run(&[&stream]));
    }

    #[test]
    fn any_bytes_are_survived(stream in prop::collection::vec(any::<u8>(), 0..6000), words in any::<bool>()) {
        let stream: Vec<u8> = if words {
            stream.iter().flat_map(|b| {
                const WORDS: [&str; 16] = ["get ", "mg ", "ms ", "set ", " ", "\r\n", "\n", "0 ", "1 ",
                    "-1 ", "99999999999 ", "noreply", "k", "b ", "v ", "\0"];
                WORDS[usize::from(b % 16)].bytes()
            }).collect()
        } else { stream };
        run(&[&stream]);
        let pieces: Vec<_> = stream.chunks(7).collect();
        run(&pieces);
        let binary = [&[0x80][..], &stream].concat();
        run(&[&binary]);
    }
}
