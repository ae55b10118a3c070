//! `ms`.

use super::{expiry, operand, write_flags};
use crate::commands::executor::{Keyed, Unfinished};
use crate::commands::expiry::Expiry;
use crate::commands::keyed::Executed;
use crate::commands::store::{self, Mode, Store, Stored};
use terrace_cache::NewValue;
use terrace_protocol::reply::{self, MetaReply};
use terrace_protocol::{MetaMode, MetaRequest};

pub(super) fn execute(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    (value, value_bytes): (NewValue<'_>, u64),
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let flags = &request.flags;
    if value_bytes > on.limits.item_bytes_max {
        store::refuse(on, true, &on.counters.store_too_large)?;
        out.extend_from_slice(reply::TOO_LARGE);
        return Ok(Executed::Replied);
    }
    let store = Store {
        mode: match flags.mode {
            MetaMode::Add => Mode::Add,
            MetaMode::Append => Mode::Append,
            MetaMode::Prepend => Mode::Prepend,
            MetaMode::Replace => Mode::Replace,
            MetaMode::Default | MetaMode::Decrement => Mode::Set,
        },
        value,
        client_flags: flags.client_flags,
        expiry: expiry(on, flags, b'T', flags.exptime).unwrap_or(Expiry::At(0)),
        compare: operand(flags, b'C', flags.compare),
        assign: operand(flags, b'E', flags.assign),
        invalidate: flags.has(b'I'),
        vivify: expiry(on, flags, b'N', flags.vivify),
    };
    let stored = store::store(on, &store)?;
    let (code, cas, value_bytes) = match stored {
        Stored::Done { cas, value_bytes } => (b"HD", cas, value_bytes),
        Stored::Refused => (b"NS", 0, value_bytes),
        Stored::Exists => (b"EX", 0, value_bytes),
        Stored::NotFound => (b"NF", 0, value_bytes),
        Stored::NoMemory => {
            out.extend_from_slice(reply::OUT_OF_MEMORY);
            return Ok(Executed::Replied);
        }
    };
    if code == b"HD" && flags.has(b'q') {
        return Ok(Executed::Replied);
    }
    let mut reply = MetaReply::begin(out, code);
    write_flags(&mut reply, request, |reply, letter| match letter {
        b'c' => reply.number(b'c', cas),
        b's' => reply.number(b's', value_bytes),
        _ => {}
    });
    reply.end();
    Ok(Executed::Replied)
}
