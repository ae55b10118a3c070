//! A connection without a socket: what the fuzz target and the test of its corpus run.

use crate::{BinaryCommand, BinaryRequest, Parse, Parser, Request};

/// Shows the parser `bytes` in pieces of `step`, as a connection would, and counts the requests and
/// refusals that come out.
///
/// # Panics
/// If the parser takes nothing, or more than there is.
pub fn walk(bytes: &[u8], step: usize) -> usize {
    let (mut parser, mut taken, mut seen, mut swallow) = (Parser::default(), 0, 0, 0u64);
    for end in (0..=bytes.len()).step_by(step.max(1)).chain([bytes.len()]) {
        loop {
            let dropped = swallow.min((end - taken) as u64);
            swallow -= dropped;
            taken += dropped as usize;
            if swallow > 0 || taken == end {
                break;
            }
            let (consumed, skip, close) = match parser.parse(&bytes[taken..end]) {
                Parse::NeedMore => break,
                Parse::Request { request, consumed } => {
                    let (skip, close) = what_follows(&request);
                    (consumed, skip, close)
                }
                Parse::Reject(reject) => (reject.consumed, reject.swallow, reject.close),
            };
            assert!(consumed > 0 && consumed <= end - taken, "{consumed} of {}", end - taken);
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
