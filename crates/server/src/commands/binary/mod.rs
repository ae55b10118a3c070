//! The binary protocol: what its opcodes ask for, and their responses.

pub(crate) mod admin;
mod change;
mod get;

pub(crate) use get::plain_get;

use super::executor::{Keyed, Unfinished};
use super::keyed::Executed;
use terrace_cache::NewValue;
use terrace_protocol::binary::{Response, Status};
use terrace_protocol::{BinaryCommand, BinaryRequest, Verb};

/// Executes a request for one key; `value` is that of a store.
pub(crate) fn execute(
    on: &Keyed<'_>,
    request: &BinaryRequest<'_>,
    value: NewValue<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let ended = match &request.command {
        BinaryCommand::Get(get) => {
            return get::get(on, (request.echo, request.quiet), get, out);
        }
        BinaryCommand::Touch { exptime, .. } => {
            return get::touch(on, request, *exptime, out);
        }
        BinaryCommand::Store(store) => change::store(on, store, value)?,
        BinaryCommand::Delete { compare, .. } => change::delete(on, *compare)?,
        BinaryCommand::Arith(arith) => change::arith(on, arith)?,
        _ => return Ok(Executed::Replied),
    };
    match ended {
        Ended::Done { .. } if request.quiet => {}
        Ended::Done { cas, number } => {
            let number = number.map(u64::to_be_bytes);
            let value = number.as_ref().map_or(&[][..], |number| number);
            request.echo.put(out, &Response { cas, value, ..Response::default() });
        }
        Ended::NoMemory => out_of_memory(request, out),
        Ended::Failed(status) => request.echo.put_error(out, status),
    }
    Ok(Executed::Replied)
}

/// How a change of a record ended.
enum Ended {
    /// `number` is what INCREMENT and DECREMENT came to.
    Done {
        cas: u64,
        number: Option<u64>,
    },
    NoMemory,
    Failed(Status),
}

/// Whether it replaces whatever there is.
pub(super) fn is_set(request: &BinaryRequest<'_>) -> bool {
    matches!(&request.command, BinaryCommand::Store(store) if store.verb == Verb::Set)
}

/// Says that there is no room.
pub(super) fn out_of_memory(request: &BinaryRequest<'_>, out: &mut Vec<u8>) {
    let value = b"Out of memory allocating item";
    let response = Response { value, ..Response::default() };
    request.echo.put_with(out, Status::OutOfMemory, &response);
}
