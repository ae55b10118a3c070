//! Finds the request at the front of what was received.

use super::header::{HEADER_BYTES, Header, MAGIC_REQUEST};
use super::opcode::{GET, Kind};
use super::{Arith, BinaryCommand, BinaryRequest, Echo, Get, Refused, Sasl, Status, Store};
use crate::parser::{Parse, Reject};
use crate::{KEY_BYTES_MAX, Request};

/// No body is longer.
const BODY_BYTES_MAX: u32 = 1 << 30;
/// Longest name of a SASL mechanism.
const MECHANISM_BYTES_MAX: usize = 32;
/// Longest message of a SASL mechanism: name and password of PLAIN are shorter.
const SASL_BYTES_MAX: u32 = 1024;
/// The expiry time that keeps INCREMENT and DECREMENT from creating a record.
const DO_NOT_CREATE: u32 = u32::MAX;

/// Looks at the front of `buf`, which is not empty. The value of a store is left where it is.
pub(crate) fn parse(buf: &[u8]) -> Parse<'_> {
    let close = Reject { consumed: buf.len(), close: true, ..Reject::line(b"") };
    if buf.first() != Some(&MAGIC_REQUEST) {
        return Parse::Reject(close);
    }
    let Some((header, rest)) = Header::split(buf) else { return Parse::NeedMore };
    debug_assert_eq!(header.magic, MAGIC_REQUEST);
    let (command, body_bytes, quiet) = match request(&header, rest) {
        Ok(Some((command, body_bytes, quiet))) => (command, body_bytes, quiet),
        Ok(None) => return Parse::NeedMore,
        Err(refused) => (BinaryCommand::Refused(refused), 0, false),
    };
    let echo = Echo { opcode: header.opcode, opaque: header.opaque };
    let request = Request::Binary(BinaryRequest { echo, quiet, command });
    Parse::Request { request, consumed: HEADER_BYTES + body_bytes }
}

/// The key of a GET at the front of `buf`, if all of it is there, and how many bytes it takes. `None` for
/// anything else, and for one that is not well-formed.
#[inline]
pub(crate) fn plain_get(buf: &[u8]) -> Option<(&[u8], usize)> {
    let (header, rest) = Header::split(buf)?;
    let key_bytes = usize::from(header.key_bytes);
    let is_plain = header.magic == MAGIC_REQUEST
        && header.opcode == GET
        && header.extras_bytes == 0
        && header.body_bytes == u32::from(header.key_bytes)
        && (1..=KEY_BYTES_MAX).contains(&key_bytes);
    let key = if is_plain { rest.get(..key_bytes)? } else { return None };
    Some((key, HEADER_BYTES + key_bytes))
}

/// The command, how many bytes of the body were looked at, and whether it is a quiet one. `None`
/// while they have not all been received.
type Found<'a> = Option<(BinaryCommand<'a>, usize, bool)>;

fn request<'a>(header: &Header, rest: &'a [u8]) -> Result<Found<'a>, Refused> {
    let fatal = |status| Refused { status, swallow: 0, close: true };
    let value_bytes = header.value_bytes().ok_or(fatal(Status::Unknown))?;
    let (key_bytes, extras_bytes) = (usize::from(header.key_bytes), header.extras_bytes.into());
    if header.body_bytes > BODY_BYTES_MAX || key_bytes > KEY_BYTES_MAX {
        return Err(fatal(Status::Invalid));
    }
    // Nothing of the body was looked at, so all of it is dropped.
    let skip = |status| Refused { status, swallow: header.body_bytes, close: false };
    let (kind, quiet) = Kind::of(header.opcode).ok_or(skip(Status::Unknown))?;
    let (key_rule, value_rule) = kind.parts();
    let is_well_formed = kind.allows_extras(extras_bytes)
        && key_rule.allows(header.key_bytes.into())
        && value_rule.allows(value_bytes);
    if !is_well_formed {
        return Err(fatal(Status::Invalid));
    }
    let is_sasl = matches!(kind, Kind::SaslAuth | Kind::SaslStep);
    if is_sasl && key_bytes > MECHANISM_BYTES_MAX {
        return Err(skip(Status::Invalid));
    }
    if is_sasl && value_bytes > SASL_BYTES_MAX {
        return Err(skip(Status::AuthError));
    }
    let taken = extras_bytes + key_bytes + if is_sasl { value_bytes as usize } else { 0 };
    let Some(body) = rest.get(..taken) else { return Ok(None) };
    let (extras, body) = body.split_at(extras_bytes);
    let (key, data) = body.split_at(key_bytes);
    let command = command(kind, header, Extras(extras), (key, data), value_bytes);
    Ok(Some((command, taken, quiet)))
}

fn command<'a>(
    kind: Kind,
    header: &Header,
    mut extras: Extras<'_>,
    (key, data): (&'a [u8], &'a [u8]),
    value_bytes: u32,
) -> BinaryCommand<'a> {
    let compare = header.compare();
    match kind {
        Kind::Get { with_key } => BinaryCommand::Get(Get { key, with_key, touch: None }),
        Kind::GetAndTouch { with_key } => {
            BinaryCommand::Get(Get { key, with_key, touch: Some(extras.u32()) })
        }
        Kind::Touch => BinaryCommand::Touch { key, exptime: extras.u32() },
        Kind::Store(verb) | Kind::Extend(verb) => {
            let (client_flags, exptime) = (extras.u32(), extras.u32());
            let store = Store { verb, key, client_flags, exptime, compare, value_bytes };
            BinaryCommand::Store(store)
        }
        Kind::Delete => BinaryCommand::Delete { key, compare },
        Kind::Arith { increments } => {
            let (delta, initial, exptime) = (extras.u64(), extras.u64(), extras.u32());
            let create = (exptime != DO_NOT_CREATE).then_some((initial, exptime));
            BinaryCommand::Arith(Arith { key, increments, delta, create, compare })
        }
        Kind::Flush => BinaryCommand::Flush { exptime: extras.u32() },
        Kind::Stat => BinaryCommand::Stat { name: key },
        Kind::Noop => BinaryCommand::Noop,
        Kind::Version => BinaryCommand::Version,
        Kind::Quit => BinaryCommand::Quit,
        Kind::SaslMechanisms => BinaryCommand::SaslMechanisms,
        Kind::SaslAuth | Kind::SaslStep => {
            let begins = kind == Kind::SaslAuth;
            BinaryCommand::Sasl(Sasl { begins, mechanism: key, data })
        }
    }
}

/// The numbers between header and key. Extras that were left out are 0.
struct Extras<'a>(&'a [u8]);

impl Extras<'_> {
    fn u32(&mut self) -> u32 {
        self.take().map_or(0, u32::from_be_bytes)
    }

    fn u64(&mut self) -> u64 {
        self.take().map_or(0, u64::from_be_bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*number)
    }
}
