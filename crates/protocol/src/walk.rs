//! A connection without a socket: what the fuzz target and the test of its corpus run.

use crate::binary::MAGIC_REQUEST;
use crate::{BinaryCommand, BinaryRequest, OwnedRequest, Parse, Parser, Request};

/// Shows the parser `bytes` in pieces of `step`, as a connection would, and counts the requests and
/// refusals that come out.
///
/// # Panics
/// If the parser takes nothing, or more than there is, or lets a value be taken for a command; or if a request that
/// is kept is another one.
pub fn walk(bytes: &[u8], step: usize) -> usize {
    let (mut parser, mut taken, mut seen, mut swallow) = (Parser::default(), 0, 0, 0u64);
    let mut in_keys = false;
    for end in (0..=bytes.len()).step_by(step.max(1)).chain([bytes.len()]) {
        loop {
            let dropped = swallow.min((end - taken) as u64);
            swallow -= dropped;
            taken += dropped as usize;
            if swallow > 0 || taken == end {
                break;
            }
            let mut goes_on = false;
            let (consumed, skip, close) = match parser.parse(&bytes[taken..end]) {
                Parse::NeedMore => break,
                Parse::Request { request, consumed } => {
                    let kept = OwnedRequest::new(&request, b"a value");
                    assert_eq!((kept.request(), kept.value()), (request.clone(), &b"a value"[..]));
                    let (skip, close) = what_follows(&request);
                    goes_on = matches!(&request, Request::Keys(keys) if !keys.is_last);
                    (consumed, skip, close)
                }
                Parse::Reject(reject) => (reject.consumed, reject.swallow, reject.close),
            };
            assert!(consumed > 0 && consumed <= end - taken, "{consumed} of {}", end - taken);
            if !in_keys && let Some(value) = value_of(&bytes[taken..taken + consumed]) {
                assert!(close || Some(skip) == value, "{skip} of {value:?} dropped at {taken}");
            }
            in_keys = goes_on;
            seen += 1;
            taken += consumed;
            swallow = skip;
            if close {
                return seen;
            }
        }
    }
    seen
}

/// Bytes behind a request that are none of the parser's, and whether the connection ends there.
fn what_follows(request: &Request<'_>) -> (u64, bool) {
    if let Request::Binary(BinaryRequest { command: BinaryCommand::Refused(refused), .. }) = request
    {
        return (refused.swallow.into(), refused.close);
    }
    (request.data_block().map_or(0, |block| block.bytes()), false)
}

/// Bytes of the value behind a store's line, its line end counted; the inner `None` if the line does not say
/// how many. `None` for anything else.
fn value_of(line: &[u8]) -> Option<Option<u64>> {
    if line.first() == Some(&MAGIC_REQUEST) {
        return None;
    }
    let line = line.strip_suffix(b"\n")?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let place = match words.next()? {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => 4,
        b"ms" => 2,
        _ => return None,
    };
    let number = words.nth(place - 1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    Some(number.map(|bytes: u64| bytes + 2))
}
