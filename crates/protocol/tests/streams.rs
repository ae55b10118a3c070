//! However a stream of bytes is cut into pieces, the same requests come out; whatever the bytes are,
//! the parser goes on or says close.

use proptest::prelude::*;
use terrace_protocol::{Parse, Parser, Request};

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
                    if let Request::Store(store) = &request {
                        swallow = store.value_bytes as usize + 2;
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

proptest! {
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
    }
}
