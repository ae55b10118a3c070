//! Requests for one key.

use super::executor::{Keyed, Unfinished};
use super::{binary, classic, meta, store};
use terrace_cache::{Manifest, NewValue, Pin, Session};
use terrace_protocol::binary::Status;
use terrace_protocol::{BinaryCommand, MetaCommand, Request, Verb, reply};

/// A request was executed; what there is to say was written.
#[derive(Debug)]
pub(crate) enum Executed {
    Replied,
    /// The reply goes on with the value of a large item. Boxed, as in [`Unfinished::Read`].
    Streams(Box<LargeValue>),
}

/// A value that stands in chunks.
#[derive(Debug)]
pub(crate) struct LargeValue {
    pub(crate) manifest: Manifest,
    /// Keeps its chunks; tests have none.
    pub(crate) pin: Option<Pin>,
    /// What stands behind it in the reply.
    pub(crate) terminator: &'static [u8],
    /// The whole reply if it turns out to be lost in time.
    pub(crate) miss: Vec<u8>,
}

impl Executed {
    /// The reply goes on with the chunks of a large item, and with what stands behind a value; or it is
    /// what `write_miss` writes. From now on they stay there.
    pub(crate) fn streams(
        session: &Session,
        manifest: Manifest,
        terminator: &'static [u8],
        write_miss: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let mut miss = Vec::new();
        write_miss(&mut miss);
        let pin = Some(session.pin(&manifest));
        Self::Streams(Box::new(LargeValue { manifest, pin, terminator, miss }))
    }
}

/// The key that a request is about; that of a line of keys is its first.
pub(crate) fn key_of<'r>(request: &'r Request<'_>) -> Option<&'r [u8]> {
    match request {
        Request::Keys(keys) => keys.first,
        Request::Store(store) => Some(store.key),
        Request::Delete(delete) => Some(delete.key),
        Request::Arith(arith) => Some(arith.key),
        Request::Touch(touch) => Some(touch.key),
        Request::Meta(meta) => Some(meta.key.bytes()),
        Request::Binary(request) => request.key(),
        Request::MetaNoop | Request::Admin(_) => None,
    }
}

/// Whether a request may change its record.
pub(crate) fn is_write(request: &Request<'_>) -> bool {
    match request {
        Request::Keys(keys) => keys.kind.touch.is_some(),
        Request::Meta(meta) => match meta.command {
            MetaCommand::Get => meta::get::changes(&meta.flags),
            MetaCommand::Debug => false,
            _ => true,
        },
        Request::Binary(request) => match request.command {
            BinaryCommand::Get(get) => get.touch.is_some(),
            _ => true,
        },
        _ => true,
    }
}

/// Answers that there is no room for the value of a request. What it was to replace is gone then, as with a value that
/// is too large.
pub(crate) fn refuse_for_memory(
    on: &Keyed<'_>,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let replaces = match request {
        Request::Store(store) => store.verb == Verb::Set,
        Request::Meta(_) => true,
        Request::Binary(request) => binary::is_set(request),
        _ => false,
    };
    store::refuse(on, replaces, &on.counters.store_no_memory)?;
    match request {
        Request::Binary(request) => binary::out_of_memory(request, out),
        Request::Store(store) if store.noreply => {}
        _ => out.extend_from_slice(reply::OUT_OF_MEMORY),
    }
    Ok(Executed::Replied)
}

/// Answers that a request has waited for too long for what a start has yet to bring back.
pub(crate) fn refuse_while_recovering(request: &Request<'_>, out: &mut Vec<u8>) {
    let is_told = match request {
        Request::Binary(request) => {
            return request.echo.put_error(out, Status::TemporaryFailure);
        }
        Request::Store(store) => !store.noreply,
        Request::Delete(delete) => !delete.noreply,
        Request::Arith(arith) => !arith.noreply,
        Request::Touch(touch) => !touch.noreply,
        _ => true,
    };
    if is_told {
        out.extend_from_slice(reply::RECOVERING);
    }
}

/// Executes a request; `value` is that of a store.
pub(crate) fn execute(
    on: &Keyed<'_>,
    request: &Request<'_>,
    value: NewValue<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    match request {
        Request::Meta(request) => meta::execute(on, request, value, out),
        Request::Store(store) => classic::store(on, store, value, out),
        Request::Delete(delete) => classic::delete(on, delete, out),
        Request::Arith(arith) => classic::arith(on, arith, out),
        Request::Touch(touch) => classic::touch(on, touch, out),
        Request::Binary(request) => binary::execute(on, request, value, out),
        Request::Keys(_) | Request::MetaNoop | Request::Admin(_) => Ok(Executed::Replied),
    }
}
