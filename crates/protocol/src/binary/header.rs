//! The 24 bytes before everything else.

/// First byte of a request.
pub(crate) const MAGIC_REQUEST: u8 = 0x80;
/// First byte of a response.
pub(super) const MAGIC_RESPONSE: u8 = 0x81;
/// Length of a header.
pub(super) const HEADER_BYTES: usize = 24;

/// A request's header; lengths in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) magic: u8,
    pub(super) opcode: u8,
    pub(super) key_bytes: u16,
    pub(super) extras_bytes: u8,
    /// Of extras, key and value together.
    pub(super) body_bytes: u32,
    pub(super) opaque: [u8; 4],
    pub(super) cas: u64,
}

impl Header {
    /// Takes the header off the front of `buf`, if all of it is there. The datatype and the number of
    /// the virtual bucket are not looked at, as memcached doesn't.
    pub(super) fn split(buf: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = buf.split_first_chunk::<HEADER_BYTES>()?;
        let &[magic, opcode, k0, k1, extras_bytes, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, ..] =
            bytes;
        let [.., c0, c1, c2, c3, c4, c5, c6, c7] = *bytes;
        let header = Self {
            magic,
            opcode,
            key_bytes: u16::from_be_bytes([k0, k1]),
            extras_bytes,
            body_bytes: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: [o0, o1, o2, o3],
            cas: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        };
        Some((header, rest))
    }

    /// Length of the value; `None` if extras and key alone are longer than the body.
    pub(super) fn value_bytes(&self) -> Option<u32> {
        self.body_bytes.checked_sub(u32::from(self.key_bytes) + u32::from(self.extras_bytes))
    }

    /// The CAS number to compare, if there is one.
    pub(super) fn compare(&self) -> Option<u64> {
        (self.cas != 0).then_some(self.cas)
    }
}
