//! `ma`.

use super::{created_expiry, expiry, operand, write_code, write_flags, write_time_left};
use crate::commands::arith::{self, Arith, Calculated};
use crate::commands::executor::{Executor, Keyed, Unfinished};
use crate::commands::keyed::Executed;
use crate::commands::number::Digits;

use terrace_protocol::reply::{self, MetaReply};
use terrace_protocol::{MetaMode, MetaRequest};

pub(super) fn execute(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let flags = &request.flags;
    let arith = Arith {
        increments: flags.mode != MetaMode::Decrement,
        delta: flags.delta,
        compare: operand(flags, b'C', flags.compare),
        assign: operand(flags, b'E', flags.assign),
        create: created_expiry(on, flags).map(|expiry| (flags.initial, expiry)),
        expiry: expiry(on, flags, b'T', flags.exptime),
    };
    match arith::calculate(on, &arith)? {
        Calculated::Stored { .. } if flags.has(b'q') => {}
        Calculated::Stored { number, cas, expires } => {
            write(on, request, number, (cas, expires), out);
        }
        Calculated::NotFound => write_code(out, b"NF", request),
        Calculated::Exists => write_code(out, b"EX", request),
        Calculated::NotNumeric => out.extend_from_slice(reply::NON_NUMERIC),
        Calculated::NoMemory => out.extend_from_slice(b"SERVER_ERROR out of memory\r\n"),
    }
    Ok(Executed::Replied)
}

fn write(
    executor: &Executor<'_>,
    request: &MetaRequest<'_>,
    number: u64,
    (cas, expires): (u64, u32),
    out: &mut Vec<u8>,
) {
    let mut digits = Digits::default();
    let value = digits.set(number);
    let with_value = request.flags.has(b'v');
    let mut reply = match with_value {
        true => MetaReply::begin_value(out, value.len() as u64),
        false => MetaReply::begin(out, b"HD"),
    };
    write_flags(&mut reply, request, |reply, letter| match letter {
        b'c' => reply.number(b'c', cas),
        b't' => write_time_left(reply, expires, executor.now),
        _ => {}
    });
    reply.end();
    if with_value {
        reply::put_block(out, value);
    }
}
