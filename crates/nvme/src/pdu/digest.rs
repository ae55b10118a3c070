use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`: what header and data digests hold (3.3.1.1).
///
/// ```
/// assert_eq!(terrace_nvme::pdu::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The value has 32 bits; the library returns all its checksums as 64.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of bytes that come in pieces.
///
/// ```
/// use terrace_nvme::pdu::{Crc32c, crc32c};
///
/// let mut crc = Crc32c::default();
/// crc.update(b"1234");
/// crc.update(b"56789");
/// assert_eq!(crc.value(), crc32c(b"123456789"));
/// ```
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}
