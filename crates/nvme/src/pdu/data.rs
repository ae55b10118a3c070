//! Headers of PDUs that move data of a command: R2T, H2CData and C2HData.

use super::Fault;
use crate::bytes::{put, u16_at, u32_at};

/// Offset of the command identifier in every header of this file.
pub(crate) const CCCID_AT: u32 = 8;
/// Offset of the transfer tag.
pub(crate) const TTAG_AT: u32 = 10;
const DATAO_AT: u32 = 12;
const DATAL_AT: u32 = 16;
/// Bytes of the headers in this file.
pub(crate) const BYTES: usize = 24;

/// Ready to Transfer (3.6.2.10): the controller takes this range of the command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToTransfer {
    /// Identifier of the command.
    pub command: u16,
    /// Transfer tag; the host repeats it.
    pub tag: u16,
    /// Offset in the command's data, in bytes; a multiple of 4.
    pub offset: u32,
    /// Length of the range, in bytes; a multiple of 4.
    pub bytes: u32,
}

/// H2CData or C2HData (3.6.2.8, 3.6.2.9), without flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Identifier of the command.
    pub command: u16,
    /// Transfer tag of the R2T; reserved in C2HData.
    pub tag: u16,
    /// Offset in the command's data, in bytes; a multiple of 4.
    pub offset: u32,
    /// Length of the data, in bytes; a multiple of 4.
    pub bytes: u32,
}

/// The four fields, all but the common header.
fn write(command: u16, tag: u16, offset: u32, bytes: u32) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    put(&mut header, CCCID_AT as usize, command.to_le_bytes());
    put(&mut header, TTAG_AT as usize, tag.to_le_bytes());
    put(&mut header, DATAO_AT as usize, offset.to_le_bytes());
    put(&mut header, DATAL_AT as usize, bytes.to_le_bytes());
    header
}

fn range(header: &[u8]) -> Result<(u32, u32), Fault> {
    let (offset, bytes) = (u32_at(header, DATAO_AT as usize), u32_at(header, DATAL_AT as usize));
    if offset % 4 != 0 {
        return Err(Fault::field_at(DATAO_AT));
    }
    if bytes % 4 != 0 || bytes == 0 {
        return Err(Fault::field_at(DATAL_AT));
    }
    Ok((offset, bytes))
}

impl ReadyToTransfer {
    /// The header, its first eight bytes left 0 for the common header.
    #[must_use]
    pub fn write(&self) -> [u8; BYTES] {
        write(self.command, self.tag, self.offset, self.bytes)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// With "Invalid PDU Header Field" for an offset or a length that is not a multiple of 4, or a length of 0.
    pub fn read(header: &[u8]) -> Result<Self, Fault> {
        let (offset, bytes) = range(header)?;
        let (command, tag) = (u16_at(header, CCCID_AT as usize), u16_at(header, TTAG_AT as usize));
        Ok(Self { command, tag, offset, bytes })
    }
}

impl DataHeader {
    /// The header, its first eight bytes left 0 for the common header.
    #[must_use]
    pub fn write(&self) -> [u8; BYTES] {
        write(self.command, self.tag, self.offset, self.bytes)
    }

    /// Reads the header of a PDU that has `data_bytes` of data.
    ///
    /// # Errors
    /// With "Invalid PDU Header Field" for an offset or a length that is not a multiple of 4, or a length that is not
    /// `data_bytes`.
    pub fn read(header: &[u8], data_bytes: u32) -> Result<Self, Fault> {
        let (offset, bytes) = range(header)?;
        if bytes != data_bytes {
            return Err(Fault::field_at(DATAL_AT));
        }
        let (command, tag) = (u16_at(header, CCCID_AT as usize), u16_at(header, TTAG_AT as usize));
        Ok(Self { command, tag, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_written() {
        let r2t = ReadyToTransfer { command: 7, tag: 9, offset: 4096, bytes: 8192 };
        assert_eq!(ReadyToTransfer::read(&r2t.write()), Ok(r2t));
        let data = DataHeader { command: 7, tag: 9, offset: 4096, bytes: 512 };
        assert_eq!(DataHeader::read(&data.write(), 512), Ok(data));
        assert_eq!(DataHeader::read(&data.write(), 516), Err(Fault::field_at(16)));
    }

    #[test]
    fn ranges_that_are_not_dwords_are_refused_at_their_field() {
        for (offset, bytes, field) in [(2, 4, 12), (4, 6, 16), (0, 0, 16)] {
            let r2t = ReadyToTransfer { command: 0, tag: 0, offset, bytes };
            assert_eq!(ReadyToTransfer::read(&r2t.write()), Err(Fault::field_at(field)));
        }
    }
}
