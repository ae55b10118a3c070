//! Why a cache can't be opened.

use std::io;

/// Why a cache could not be opened, with what to change.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration contradicts itself or the devices.
    #[error("{0}")]
    Config(String),
    /// The tiers' buffers would take more than half of the memory.
    #[error("the memory is too little for the buffers of the tiers")]
    TooLittleMemory,
    /// The tiers can't be recovered, and the operator wants no cold start then.
    #[error("{0}; wipe the tiers, or start with --on-mismatch cold")]
    Mismatch(String),
    /// A device holds something that is not Terrace's; it was not written.
    #[error("{device}: holds data that Terrace did not write; give an empty file or wipe it first")]
    Foreign {
        /// The device's label.
        device: String,
    },
    /// A device could not be read or written at start.
    #[error("{device}: {source}")]
    Device {
        /// The device's label.
        device: String,
        /// The error of the device.
        source: io::Error,
    },
    /// The witness can't be read or written. Without it tiers that were away could be believed later.
    #[error("the roster can't be kept: {0}")]
    Witness(#[source] io::Error),
    /// No address space, or no random seed.
    #[error("the system refused memory or randomness: {0}")]
    System(#[from] io::Error),
}
