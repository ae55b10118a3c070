//! `md`.

use super::{expiry, operand, write_code};
use crate::commands::delete::{self, Delete, Deleted};
use crate::commands::executor::{Keyed, Unfinished};
use crate::commands::keyed::Executed;

use terrace_protocol::MetaRequest;

pub(super) fn execute(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let flags = &request.flags;
    let delete = Delete {
        compare: operand(flags, b'C', flags.compare),
        assign: operand(flags, b'E', flags.assign),
        invalidate: flags.has(b'I'),
        empty: operand(flags, b'x', flags.client_flags),
        expiry: expiry(on, flags, b'T', flags.exptime),
    };
    let code = match delete::delete(on, &delete)? {
        Deleted::Done if flags.has(b'q') => return Ok(Executed::Replied),
        Deleted::Done => b"HD",
        Deleted::NotFound => b"NF",
        Deleted::Exists => {
            // As in memcached; the binary protocol does not count it.
            on.counters.delete_misses.add(1);
            b"EX"
        }
        Deleted::NotStored => b"NS",
    };
    write_code(out, code, request);
    Ok(Executed::Replied)
}
