//! Replies of the binary protocol.

use super::{Front, Judge, shown};
use crate::LoadError;
use crate::encode::opcode;
use crate::plan::Plan;
use crate::records::Records;
use crate::tally::Tally;
use crate::window::{Request, Window};

const HEADER_BYTES: usize = 24;
const MAGIC: u8 = 0x81;
const FLAGS_BYTES: usize = 4;
/// What a server may say, with more bytes than the longest value that was stored.
const MESSAGE_BYTES_MAX: usize = 2048;

const SUCCESS: u16 = 0;
const NOT_FOUND: u16 = 1;

/// Reads replies; the keys of a read for several are told apart by their opaque numbers.
pub(crate) struct Binary {
    judge: Judge,
    flags: [u8; FLAGS_BYTES],
    body_bytes_max: usize,
    /// Keys of the read at the front that are dealt with.
    keys_done: usize,
}

struct Header {
    opcode: u8,
    extras: usize,
    key: usize,
    status: u16,
    body: usize,
    opaque: usize,
}

impl Header {
    fn split(rest: &[u8]) -> Option<Self> {
        let &[_, opcode, k0, k1, extras, _, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, ..] =
            rest.first_chunk::<HEADER_BYTES>()?;
        Some(Self {
            opcode,
            extras: usize::from(extras),
            key: usize::from(u16::from_be_bytes([k0, k1])),
            status: u16::from_be_bytes([s0, s1]),
            body: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
            opaque: u32::from_be_bytes([o0, o1, o2, o3]) as usize,
        })
    }
}

impl Binary {
    pub(super) fn new(plan: &Plan, records: &Records) -> Self {
        Self {
            judge: Judge::new(plan, records),
            flags: plan.flags.to_be_bytes(),
            body_bytes_max: records.sizes.value_max().max(MESSAGE_BYTES_MAX) + 256 + FLAGS_BYTES,
            keys_done: 0,
        }
    }

    pub(super) fn take(
        &mut self,
        rest: &[u8],
        request: Request,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Result<Front, LoadError> {
        if rest.first() != Some(&MAGIC) {
            return Err(LoadError::Reply(shown(rest)));
        }
        let Some(header) = Header::split(rest) else { return Ok(Front::Partial) };
        let whole = HEADER_BYTES + header.body;
        if header.body > self.body_bytes_max || header.extras + header.key > header.body {
            return Err(LoadError::Reply(format!("a binary reply of {} bytes", header.body)));
        }
        let Some(body) = rest.get(HEADER_BYTES..whole) else { return Ok(Front::Partial) };
        match (request, header.opcode) {
            (Request::Store { .. }, opcode::SET) => match header.status {
                SUCCESS => tally.stored += 1,
                _ => tally.refused(1, || shown(body)),
            },
            (Request::Delete, opcode::DELETE) => match header.status {
                SUCCESS => tally.deleted += 1,
                NOT_FOUND => {}
                _ => tally.refused(1, || shown(body)),
            },
            (Request::Get { .. }, opcode::GET) => self.key(&header, body, window, tally),
            (Request::Get { keys }, opcode::GETQ) => {
                let missed = header.opaque.checked_sub(self.keys_done).filter(|gap| *gap < keys);
                let missed =
                    missed.ok_or_else(|| LoadError::Reply("a key not asked for".into()))?;
                window.miss(missed, tally);
                self.key(&header, body, window, tally);
                self.keys_done = header.opaque + 1;
                window.await_keys(keys - missed - 1);
                return Ok(Front::Part(whole));
            }
            (Request::Get { keys }, opcode::NOOP) => {
                window.miss(keys, tally);
                self.keys_done = 0;
            }
            _ => {
                return Err(LoadError::Reply(format!("command {} for {request:?}", header.opcode)));
            }
        }
        Ok(Front::Whole(whole))
    }

    /// What the server says of the next key.
    fn key(&self, header: &Header, body: &[u8], window: &mut Window, tally: &mut Tally) {
        match header.status {
            NOT_FOUND => return window.miss(1, tally),
            SUCCESS => {}
            _ => {
                tally.refused(1, || shown(body));
                return window.refuse(1);
            }
        }
        let Some(expected) = window.expected.pop_front() else { return };
        let (extras, value) = body.split_at(header.extras);
        let value = &value[header.key..];
        let has_length = value.len() == self.judge.records.sizes.value(expected.number);
        if has_length {
            self.judge.count(expected, value, *extras == self.flags, tally);
        } else {
            tally.wrong += 1;
            tally.example(|| format!("{expected:?}: {} bytes: {}", value.len(), shown(value)));
        }
    }
}
