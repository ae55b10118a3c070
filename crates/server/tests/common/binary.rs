//! Packets of the binary protocol.

use super::Client;

pub const GET: u8 = 0x00;
pub const SET: u8 = 0x01;
pub const NOOP: u8 = 0x0a;

/// A request; its opaque is its opcode four times.
pub fn packet(opcode: u8, extras: &[u8], key: &str, value: &[u8], cas: u64) -> Vec<u8> {
    frame(0x80, opcode, 0, (extras, key.as_bytes(), value), cas)
}

pub fn frame(
    magic: u8,
    opcode: u8,
    status: u16,
    (extras, key, value): (&[u8], &[u8], &[u8]),
    cas: u64,
) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut bytes = vec![magic, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0]);
    bytes.extend(status.to_be_bytes());
    bytes.extend(body.to_be_bytes());
    bytes.extend([opcode; 4]);
    bytes.extend(cas.to_be_bytes());
    bytes.extend([extras, key, value].concat());
    bytes
}

/// A response in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub opcode: u8,
    pub status: u16,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub cas: u64,
}

impl Answer {
    /// The response to a NOOP.
    pub const NOOP: [u8; 24] =
        [0x81, NOOP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NOOP, NOOP, NOOP, NOOP, 0, 0, 0, 0, 0, 0, 0, 0];

    /// The first response of `bytes` and its length, if all of it is there.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let header = bytes.get(..24)?;
        let whole =
            24 + u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let body = bytes.get(24..whole)?;
        let opcode = header[1];
        assert_eq!((header[0], header[5], &header[12..16]), (0x81, 0, &[opcode; 4][..]));
        let (extras, rest) = body.split_at(header[4].into());
        let (key, value) = rest.split_at(u16::from_be_bytes([header[2], header[3]]).into());
        let answer = Self {
            opcode,
            status: u16::from_be_bytes([header[6], header[7]]),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
            cas: u64::from_be_bytes(header[16..24].try_into().expect("eight bytes")),
        };
        Some((answer, whole))
    }
}

/// The next response.
pub fn receive(client: &mut Client) -> Answer {
    let bytes = client.receive(|unread| Answer::parse(unread).map(|(_, bytes)| bytes));
    Answer::parse(&bytes).expect("just received").0
}
