//! The meta commands: what their flags ask for, and their replies.

mod arith;
mod debug;
mod delete;
pub(crate) mod get;
mod set;

use super::executor::{Executor, Keyed, Unfinished};
use super::expiry::Expiry;
use super::keyed::Executed;
use terrace_cache::NewValue;
use terrace_protocol::reply::MetaReply;
use terrace_protocol::{MetaCommand, MetaFlags, MetaRequest};

/// Executes a meta command; `value` is that of a store.
pub(crate) fn execute(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    value: NewValue<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let executed = match request.command {
        MetaCommand::Get => get::execute(on, request, out)?,
        MetaCommand::Set { value_bytes } => {
            set::execute(on, request, (value, value_bytes.into()), out)?
        }
        MetaCommand::Delete => delete::execute(on, request, out)?,
        MetaCommand::Arith => arith::execute(on, request, out)?,
        MetaCommand::Debug => debug::execute(on, request, out)?,
    };
    on.counters.cmd_meta.add(1);
    Ok(executed)
}

/// Executes `mg <key> v`.
#[inline(never)]
pub(crate) fn get_value(on: &Keyed<'_>, out: &mut Vec<u8>) -> Result<Executed, Unfinished> {
    let request = MetaRequest::of_value(on.key.bytes());
    let executed = get::execute(on, &request, out)?;
    on.counters.cmd_meta.add(1);
    Ok(executed)
}

/// The operand of a flag, if the flag was given.
fn operand<T>(flags: &MetaFlags<'_>, letter: u8, value: T) -> Option<T> {
    flags.has(letter).then_some(value)
}

/// Whether the flag `letter` stands behind another, since flags work in their order.
fn is_behind(flags: &MetaFlags<'_>, letter: u8, other: u8) -> bool {
    let place = |letter| flags.iter().position(|word| word[0] == letter);
    place(other).is_some_and(|other| place(letter) > Some(other))
}

/// The expiry of a record that the request creates: with both `N` and `T` the last one counts.
fn created_expiry(executor: &Executor<'_>, flags: &MetaFlags<'_>) -> Option<Expiry> {
    let vivify = expiry(executor, flags, b'N', flags.vivify)?;
    let touch = expiry(executor, flags, b'T', flags.exptime);
    Some(touch.filter(|_| is_behind(flags, b'T', b'N')).unwrap_or(vivify))
}

/// The expiry that a flag gives, if it was given.
fn expiry(executor: &Executor<'_>, flags: &MetaFlags<'_>, letter: u8, time: i32) -> Option<Expiry> {
    operand(flags, letter, time).map(|time| Expiry::new(time, executor.now))
}

/// Repeats what the client asked to have repeated; `more` adds what this reply knows of another flag.
fn write_flags(
    reply: &mut MetaReply<'_>,
    request: &MetaRequest<'_>,
    mut more: impl FnMut(&mut MetaReply<'_>, u8),
) {
    if !request.flags.ask_to_show() {
        return;
    }
    for word in request.flags.iter() {
        match word[0] {
            b'O' => reply.flag(b'O', &word[1..]),
            b'k' => {
                reply.flag(b'k', request.key.raw);
                if request.key.is_base64() {
                    reply.flag(b'b', b"");
                }
            }
            letter => more(reply, letter),
        }
    }
}

/// Writes a reply that is only a code and what is repeated.
fn write_code(out: &mut Vec<u8>, code: &[u8], request: &MetaRequest<'_>) {
    let mut reply = MetaReply::begin(out, code);
    write_flags(&mut reply, request, |_, _| {});
    reply.end();
}

/// Adds the seconds that are left, or -1.
fn write_time_left(reply: &mut MetaReply<'_>, expires: u32, now: u32) {
    match expires {
        0 => reply.flag(b't', b"-1"),
        expires => reply.number(b't', expires.saturating_sub(now).into()),
    }
}
