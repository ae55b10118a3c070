//! Requests as bytes, in each protocol.

use crate::plan::{Plan, Protocol};
use crate::records::Records;
use std::io::Write;

/// First byte of a binary request.
const MAGIC: u8 = 0x80;

/// Commands of the binary protocol.
pub(crate) mod opcode {
    pub(crate) const GET: u8 = 0x00;
    pub(crate) const SET: u8 = 0x01;
    pub(crate) const DELETE: u8 = 0x04;
    pub(crate) const GETQ: u8 = 0x09;
    pub(crate) const NOOP: u8 = 0x0a;
}

/// Makes the bytes of requests.
#[derive(Debug)]
pub(crate) struct Encoder {
    protocol: Protocol,
    records: Records,
    flags: u32,
    ttl: u32,
    /// What follows the key of a store, where all records have it alike.
    store_tail: Option<Vec<u8>>,
    several_keys: bool,
}

impl Encoder {
    pub(crate) fn new(plan: &Plan, records: &Records) -> Self {
        let mut encoder = Self {
            protocol: plan.protocol,
            records: records.clone(),
            flags: plan.flags,
            ttl: plan.ttl,
            store_tail: None,
            several_keys: plan.keys_per_get > 1,
        };
        if records.sizes.are_fixed() {
            let mut tail = Vec::new();
            encoder.append_store_tail(records.sizes.value(0), &mut tail);
            encoder.store_tail = Some(tail);
        }
        encoder
    }

    /// A read of `numbers`, of which there is at least one.
    pub(crate) fn get(&self, numbers: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Ascii => {
                out.extend_from_slice(b"get");
                for number in numbers {
                    out.push(b' ');
                    self.records.append_key(number, out);
                }
                out.extend_from_slice(b"\r\n");
            }
            Protocol::Meta => {
                for number in numbers {
                    out.extend_from_slice(b"mg ");
                    self.records.append_key(number, out);
                    out.extend_from_slice(if self.flags == 0 { b" v\r\n" } else { b" f v\r\n" });
                }
            }
            Protocol::Binary => {
                let opcode = if self.several_keys { opcode::GETQ } else { opcode::GET };
                for (at, number) in (0..).zip(numbers) {
                    self.binary(opcode, number, &[], 0, at, out);
                }
                if self.several_keys {
                    out.extend_from_slice(&header(opcode::NOOP, 0, 0, 0, 0));
                }
            }
        }
    }

    /// A store of this version of a record.
    pub(crate) fn store(&self, number: u64, version: u32, out: &mut Vec<u8>) {
        if self.protocol == Protocol::Binary {
            let mut extras = [0; 8];
            extras[..4].copy_from_slice(&self.flags.to_be_bytes());
            extras[4..].copy_from_slice(&self.ttl.to_be_bytes());
            let bytes = self.records.sizes.value(number);
            self.binary(opcode::SET, number, &extras, bytes, 0, out);
            return self.records.append_value(number, version, out);
        }
        out.extend_from_slice(if self.protocol == Protocol::Meta { b"ms " } else { b"set " });
        self.records.append_key(number, out);
        match &self.store_tail {
            Some(tail) => out.extend_from_slice(tail),
            None => self.append_store_tail(self.records.sizes.value(number), out),
        }
        self.records.append_value(number, version, out);
        out.extend_from_slice(b"\r\n");
    }

    /// A delete.
    pub(crate) fn delete(&self, number: u64, out: &mut Vec<u8>) {
        if self.protocol == Protocol::Binary {
            return self.binary(opcode::DELETE, number, &[], 0, 0, out);
        }
        out.extend_from_slice(if self.protocol == Protocol::Meta { b"md " } else { b"delete " });
        self.records.append_key(number, out);
        out.extend_from_slice(b"\r\n");
    }

    fn append_store_tail(&self, bytes: usize, out: &mut Vec<u8>) {
        let Self { flags, ttl, .. } = self;
        // Writing into memory does not fail.
        let _ = match (self.protocol, flags, ttl) {
            (Protocol::Ascii, ..) => write!(out, " {flags} {ttl} {bytes}\r\n"),
            (_, 0, 0) => write!(out, " {bytes}\r\n"),
            _ => write!(out, " {bytes} F{flags} T{ttl}\r\n"),
        };
    }

    /// Header, extras and key; a value of `value` bytes follows.
    fn binary(
        &self,
        opcode: u8,
        number: u64,
        extras: &[u8],
        value: usize,
        opaque: u32,
        out: &mut Vec<u8>,
    ) {
        let key = self.records.sizes.key(number);
        let body = (extras.len() + key + value) as u32;
        out.extend_from_slice(&header(opcode, key as u16, extras.len() as u8, body, opaque));
        out.extend_from_slice(extras);
        self.records.append_key(number, out);
    }
}

fn header(opcode: u8, key: u16, extras: u8, body: u32, opaque: u32) -> [u8; 24] {
    let mut header = [0; 24];
    (header[0], header[1], header[4]) = (MAGIC, opcode, extras);
    header[2..4].copy_from_slice(&key.to_be_bytes());
    header[8..12].copy_from_slice(&body.to_be_bytes());
    header[12..16].copy_from_slice(&opaque.to_be_bytes());
    header
}
