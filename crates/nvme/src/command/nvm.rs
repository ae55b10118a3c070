//! Commands of the NVM Command Set 1.0 (3.2): Read, Write, Flush, Write Zeroes, Dataset Management.

use super::{Command, io_opcode};
use crate::bytes::{put, u32_at, u64_at};

/// Most blocks of a Read, Write or Write Zeroes.
pub const BLOCKS_MAX: u32 = 1 << 16;
/// Most ranges of a Dataset Management.
pub const RANGES_MAX: usize = 256;
/// Bytes of a range of a Dataset Management.
pub const RANGE_BYTES: usize = 16;

/// Bit of dword 12: the data must be on the medium when the command completes.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Bit of dword 12 of a Write Zeroes: the blocks may be deallocated.
const DEALLOCATE: u32 = 1 << 25;
/// Bit of dword 11 of a Dataset Management: deallocate.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First block.
    pub lba: u64,
    /// How many; at least 1.
    pub count: u32,
}

impl Blocks {
    /// Whether all of them are within a namespace of `blocks` blocks.
    #[must_use]
    pub fn fit(&self, blocks: u64) -> bool {
        self.lba.checked_add(u64::from(self.count)).is_some_and(|end| end <= blocks)
    }
}

fn with_blocks(opcode: u8, nsid: u32, blocks: Blocks, flags: u32) -> Command {
    debug_assert!((1..=BLOCKS_MAX).contains(&blocks.count));
    let count = blocks.count.clamp(1, BLOCKS_MAX) - 1;
    Command::new(opcode)
        .with_nsid(nsid)
        .with_dword(10, blocks.lba as u32)
        .with_dword(11, (blocks.lba >> 32) as u32)
        .with_dword(12, count | flags)
}

/// The blocks of a Read, Write or Write Zeroes.
#[must_use]
pub fn blocks_of(command: &Command) -> Blocks {
    let lba = u64::from(command.dword(10)) | u64::from(command.dword(11)) << 32;
    Blocks { lba, count: (command.dword(12) & 0xffff) + 1 }
}

/// Whether a Write must be on the medium when it completes.
#[must_use]
pub fn is_force_unit_access(command: &Command) -> bool {
    command.dword(12) & FORCE_UNIT_ACCESS != 0
}

/// Whether a Write Zeroes allows to deallocate, or a Dataset Management asks for it.
#[must_use]
pub fn is_deallocate(command: &Command) -> bool {
    match command.opcode() {
        io_opcode::WRITE_ZEROES => command.dword(12) & DEALLOCATE != 0,
        io_opcode::DATASET_MANAGEMENT => command.dword(11) & ATTRIBUTE_DEALLOCATE != 0,
        _ => false,
    }
}

/// Read. At most [`BLOCKS_MAX`] blocks, which is the caller's to keep.
#[must_use]
pub fn read(nsid: u32, blocks: Blocks) -> Command {
    with_blocks(io_opcode::READ, nsid, blocks, 0)
}

/// Write. At most [`BLOCKS_MAX`] blocks, which is the caller's to keep.
#[must_use]
pub fn write(nsid: u32, blocks: Blocks, force_unit_access: bool) -> Command {
    let flags = if force_unit_access { FORCE_UNIT_ACCESS } else { 0 };
    with_blocks(io_opcode::WRITE, nsid, blocks, flags)
}

/// Write Zeroes. At most [`BLOCKS_MAX`] blocks, which is the caller's to keep.
#[must_use]
pub fn write_zeroes(nsid: u32, blocks: Blocks, deallocate: bool) -> Command {
    let flags = if deallocate { DEALLOCATE } else { 0 };
    with_blocks(io_opcode::WRITE_ZEROES, nsid, blocks, flags)
}

/// Flush (Base, 7.1).
#[must_use]
pub fn flush(nsid: u32) -> Command {
    Command::new(io_opcode::FLUSH).with_nsid(nsid)
}

/// Dataset Management that deallocates `ranges` ranges, 1 to [`RANGES_MAX`]; its data are those of [`write_ranges`].
#[must_use]
pub fn deallocate(nsid: u32, ranges: usize) -> Command {
    debug_assert!((1..=RANGES_MAX).contains(&ranges));
    Command::new(io_opcode::DATASET_MANAGEMENT)
        .with_nsid(nsid)
        .with_dword(10, (ranges.clamp(1, RANGES_MAX) - 1) as u32)
        .with_dword(11, ATTRIBUTE_DEALLOCATE)
}

/// How many ranges the data of a Dataset Management have.
#[must_use]
pub fn ranges_of(command: &Command) -> usize {
    (command.dword(10) & 0xff) as usize + 1
}

/// The data of a Dataset Management.
#[must_use]
pub fn write_ranges(ranges: &[Blocks]) -> Box<[u8]> {
    let mut bytes = vec![0; ranges.len() * RANGE_BYTES].into_boxed_slice();
    for (range, bytes) in ranges.iter().zip(bytes.chunks_exact_mut(RANGE_BYTES)) {
        put(bytes, 4, range.count.to_le_bytes());
        put(bytes, 8, range.lba.to_le_bytes());
    }
    bytes
}

/// Reads the data of a Dataset Management.
pub fn read_ranges(bytes: &[u8]) -> impl Iterator<Item = Blocks> {
    let range = |bytes: &[u8]| Blocks { lba: u64_at(bytes, 8), count: u32_at(bytes, 4) };
    bytes.chunks_exact(RANGE_BYTES).map(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_as_written() {
        let blocks = Blocks { lba: 0x1_2345_6789, count: BLOCKS_MAX };
        let command = write(1, blocks, true);
        assert_eq!(blocks_of(&command), blocks);
        assert!(is_force_unit_access(&command) && !is_deallocate(&command));
        let zeroes = write_zeroes(1, Blocks { lba: 0, count: 1 }, true);
        assert!(is_deallocate(&zeroes));
        assert_eq!(zeroes.dword(12), 1 << 25);
    }

    #[test]
    fn blocks_at_the_end_of_the_numbers_do_not_fit() {
        assert!(Blocks { lba: 8, count: 2 }.fit(10));
        assert!(!Blocks { lba: 9, count: 2 }.fit(10));
        assert!(!Blocks { lba: u64::MAX, count: 1 }.fit(10));
    }

    #[test]
    fn ranges_are_read_as_written() {
        let ranges = [Blocks { lba: 5, count: 6 }, Blocks { lba: 1 << 40, count: 1 }];
        let bytes = write_ranges(&ranges);
        assert_eq!(read_ranges(&bytes).collect::<Vec<_>>(), ranges);
        let command = deallocate(1, ranges.len());
        assert_eq!(ranges_of(&command), 2);
        assert!(is_deallocate(&command));
    }
}
