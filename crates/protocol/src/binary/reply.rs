//! Responses as bytes.

use super::Status;
use super::header::{HEADER_BYTES, Header, MAGIC_RESPONSE};

/// What a response repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The opcode, the quiet one where that was sent.
    pub opcode: u8,
    /// Bytes that mean something to the client only.
    pub opaque: [u8; 4],
}

/// A response, as far as it is not that of an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Response<'a> {
    /// The record's CAS number; 0 for none.
    pub cas: u64,
    /// The numbers between header and key.
    pub extras: &'a [u8],
    /// The key, where it is repeated.
    pub key: &'a [u8],
    /// The value, as far as it is sent at once.
    pub value: &'a [u8],
    /// Bytes of value that follow, sent by somebody else.
    pub value_bytes_to_follow: u64,
}

impl Echo {
    /// Of the request at the front of `buf`; zeros where that is no whole header.
    pub fn of(buf: &[u8]) -> Self {
        let (opcode, opaque) = Header::split(buf)
            .map_or_else(Default::default, |(header, _)| (header.opcode, header.opaque));
        Self { opcode, opaque }
    }

    /// Appends the response to a request that was carried out.
    pub fn put(self, out: &mut Vec<u8>, response: &Response<'_>) {
        self.put_with(out, Status::Ok, response);
    }

    /// Appends a response with a status and its text.
    pub fn put_error(self, out: &mut Vec<u8>, status: Status) {
        let value = status.text().as_bytes();
        self.put_with(out, status, &Response { value, ..Response::default() });
    }

    /// Appends a response with any status.
    pub fn put_with(self, out: &mut Vec<u8>, status: Status, response: &Response<'_>) {
        let Response { cas, extras, key, value, value_bytes_to_follow } = *response;
        let body = (extras.len() + key.len() + value.len()) as u64 + value_bytes_to_follow;
        // Keys have at most 250 bytes and extras 4; items have at most 1 GiB.
        let body = u32::try_from(body).unwrap_or(u32::MAX).to_be_bytes();
        let [k0, k1] = (key.len() as u16).to_be_bytes();
        let [s0, s1] = status.code().to_be_bytes();
        let front = [MAGIC_RESPONSE, self.opcode, k0, k1, extras.len() as u8, 0, s0, s1];
        // Appended as a whole: each field by itself would ask for room.
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&front);
        header[8..12].copy_from_slice(&body);
        header[12..16].copy_from_slice(&self.opaque);
        header[16..].copy_from_slice(&cas.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(extras);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
}
