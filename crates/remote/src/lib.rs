//! Remote drives over NVMe/TCP.
//!
//! | module | what it is |
//! |---|---|
//! | `address`, `purpose`, `error` | where a drive is, as users write it; what it is opened for, and why it can't be |
//! | `host`, `status`, `lock` | this machine as a host; what a command's status means; a mutex that a panic leaves usable |
//! | `wire`, `lane`, `admin` | a socket with a queue of commands; commands that are waited for; the Admin Queue |
//! | `session`, `association`, `owner`, `head` | one association, what the next must find again, and whose it is |
//! | `shared`, `keeper` | whether there is a session; the thread that keeps a drive connected |
//! | `reads`, `drive`, `discovery` | what workers and the background use; which subsystems a target has |
//!
//! The protocol itself is in [`terrace_nvme`]. No kernel module is needed, and no rights.

mod address;
mod admin;
mod association;
mod discovery;
mod drive;
mod error;
mod head;
mod host;
mod keeper;
mod lane;
mod lock;
mod owner;
mod purpose;
mod reads;
mod session;
mod shared;
mod status;
mod wire;

pub use address::{Address, PORT, PREFIX};
pub use discovery::{Subsystem, discover};
pub use drive::{Options, RemoteDrive};
pub use error::{ConnectError, OpenError};
pub use host::host_nqn;
pub use purpose::Purpose;
