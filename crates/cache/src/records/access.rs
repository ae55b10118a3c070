//! Whether a read leaves a trace.

/// Whether a read counts as a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Counts as a use: bumps the record, may promote it into DRAM.
    Use,
    /// Leaves no trace (meta `u`, `me`).
    Peek,
}
