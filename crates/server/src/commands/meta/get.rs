//! `mg`.

use super::{created_expiry, expiry, is_behind, operand, write_code, write_flags, write_time_left};
use crate::commands::executor::{Executor, Keyed, Unfinished};
use crate::commands::keyed::Executed;
use crate::commands::lookup::{self, Effects, Outcome, Recache, Seen};
use terrace_cache::{Access, Body, Hit};
use terrace_protocol::reply::{self, MetaReply};
use terrace_protocol::{MetaFlags, MetaRequest};

/// Whether flags ask for more than a look.
pub(crate) fn changes(flags: &MetaFlags<'_>) -> bool {
    flags.has(b'T') || flags.has(b'N') || flags.has(b'R')
}

pub(super) fn execute(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    if changes(&request.flags) {
        return with_effects(on, request, None, out);
    }
    let access = if request.flags.has(b'u') { Access::Peek } else { Access::Use };
    let Some(hit) = lookup::read(on, access)? else {
        return Ok(missing(on, request, out));
    };
    if hit.record.stale && !hit.record.win_sent {
        // The first to see it so wins the right to renew it, which is noted in the record.
        let before = Some((hit.fetched, hit.idle_seconds));
        return with_effects(on, request, before, out);
    }
    let Hit { record, fetched, idle_seconds, from_dram } = hit;
    let seen = Seen { record, expires: record.expires, fetched, idle_seconds, won: false };
    let before = out.len();
    let executed = write(on, request, &seen, out);
    let Some(executed) = lookup::if_whole(on, executed, (out, before))? else {
        return Ok(missing(on, request, out));
    };
    found(on, request, from_dram);
    Ok(executed)
}

fn with_effects(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    before: Option<(bool, u32)>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let flags = &request.flags;
    let mut effects = Effects {
        touch: expiry(on, flags, b'T', flags.exptime),
        vivify: created_expiry(on, flags),
        assign: operand(flags, b'E', flags.assign),
        can_win: true,
        leaves_no_trace: flags.has(b'u'),
        recache: expiry(on, flags, b'R', flags.recache)
            .map(|expiry| Recache::new(expiry, is_behind(flags, b'R', b'T'))),
        before,
    };
    let before = out.len();
    let (mut outcome, mut written) = see(on, request, &effects, out)?;
    if outcome == Outcome::NoMemory && effects.touch.is_none() && effects.vivify.is_none() {
        // Nothing can be noted in the record: nobody wins, and it is read all the same.
        effects.can_win = false;
        (outcome, written) = see(on, request, &effects, out)?;
    }
    match (outcome, written) {
        (Outcome::Found, Some(executed)) => {
            let place = (&mut *out, before);
            if let Some(executed) = lookup::if_whole(on, executed, place)? {
                found(on, request, on.evidence.is_none());
                return Ok(executed);
            }
        }
        (Outcome::Created { cas, expires }, _) => {
            write_created(on, request, (cas, expires), out);
            // memcached finds what it has just created.
            on.counters.cmd_get.add(1);
            on.counters.get_hits.add(1);
            return Ok(Executed::Replied);
        }
        (Outcome::NoMemory, _) => {
            out.extend_from_slice(reply::OUT_OF_MEMORY);
            return Ok(Executed::Replied);
        }
        _ => {}
    }
    Ok(missing(on, request, out))
}

/// Reads a record with its effects; what was written of it stays only if they took place.
fn see(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    effects: &Effects,
    out: &mut Vec<u8>,
) -> Result<(Outcome, Option<Executed>), Unfinished> {
    let before = out.len();
    let mut written = None;
    let result = lookup::with_effects(on, effects, |seen| {
        written = Some(write(on, request, seen, out));
    });
    if !matches!(result, Ok(Outcome::Found)) {
        out.truncate(before);
    }
    Ok((result?, written))
}

/// Writes a record, or the line before a value that is sent chunk by chunk.
fn write(
    executor: &Executor<'_>,
    request: &MetaRequest<'_>,
    seen: &Seen<'_>,
    out: &mut Vec<u8>,
) -> Executed {
    let (record, flags) = (&seen.record, &request.flags);
    let body = record.body();
    let value_bytes = match &body {
        Body::Inline(value) => value.len() as u64,
        Body::Chunked(manifest) => manifest.bytes(),
    };
    // With `C`, who has this version already gets no value.
    let is_known = flags.has(b'C') && flags.compare == record.cas;
    let with_value = flags.has(b'v') && !is_known;
    let mut reply = match with_value {
        true => MetaReply::begin_value(out, value_bytes),
        false => MetaReply::begin(out, b"HD"),
    };
    // Flags work in their order: `t` before `T` shows the time that was left.
    let mut expires = record.expires;
    write_flags(&mut reply, request, |reply, letter| match letter {
        b'T' => expires = seen.expires,
        b's' => reply.number(b's', value_bytes),
        b't' => write_time_left(reply, expires, executor.now),
        b'c' => reply.number(b'c', record.cas),
        b'f' => reply.number(b'f', record.client_flags.into()),
        b'l' => reply.number(b'l', seen.idle_seconds.into()),
        b'h' => reply.number(b'h', seen.fetched.into()),
        _ => {}
    });
    for (letter, is_so) in [(b'Z', record.win_sent), (b'X', record.stale), (b'W', seen.won)] {
        if is_so {
            reply.flag(letter, b"");
        }
    }
    reply.end();
    match body {
        _ if !with_value => Executed::Replied,
        Body::Chunked(manifest) => {
            Executed::streams(executor.session, manifest, reply::LINE_END, |out| {
                write_miss(request, out)
            })
        }
        Body::Inline(value) => {
            reply::put_block(out, value);
            Executed::Replied
        }
    }
}

/// Writes the empty record that the request has created.
fn write_created(
    executor: &Executor<'_>,
    request: &MetaRequest<'_>,
    (cas, expires): (u64, u32),
    out: &mut Vec<u8>,
) {
    let with_value = request.flags.has(b'v');
    let mut reply = match with_value {
        true => MetaReply::begin_value(out, 0),
        false => MetaReply::begin(out, b"HD"),
    };
    // As above: only behind `N` or `T` is there a time to show.
    let mut shown = 0;
    write_flags(&mut reply, request, |reply, letter| match letter {
        b'N' | b'T' => shown = expires,
        b't' => write_time_left(reply, shown, executor.now),
        b'c' => reply.number(b'c', cas),
        b's' | b'f' | b'l' | b'h' => reply.number(letter, 0),
        _ => {}
    });
    reply.flag(b'W', b"");
    reply.end();
    if with_value {
        reply::put_block(out, b"");
    }
}

fn missing(on: &Keyed<'_>, request: &MetaRequest<'_>, out: &mut Vec<u8>) -> Executed {
    lookup::count_miss(on);
    write_miss(request, out);
    Executed::Replied
}

fn write_miss(request: &MetaRequest<'_>, out: &mut Vec<u8>) {
    if !request.flags.has(b'q') {
        write_code(out, b"EN", request);
    }
}

fn found(executor: &Executor<'_>, request: &MetaRequest<'_>, from_dram: bool) {
    let counters = executor.counters;
    if !from_dram {
        counters.get_extstore.add(1);
    }
    // As in memcached one that touches is no get.
    if request.flags.has(b'T') {
        counters.cmd_touch.add(1);
        counters.touch_hits.add(1);
    } else {
        counters.cmd_get.add(1);
        counters.get_hits.add(1);
    }
}
