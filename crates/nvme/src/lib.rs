//! NVMe over TCP: wire formats of its PDUs and commands. No I/O, no clock, no unsafe code.
#![forbid(unsafe_code)]

mod bytes;
pub mod command;
pub mod controller;
pub mod host;
pub mod pdu;
