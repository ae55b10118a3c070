//! Opening a worker's read queue with the best engine that there is.

use crate::drive::Device;
use crate::pool::PoolQueue;
use crate::queue::ReadQueue;
use crate::uring::UringQueue;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Bytes of buffers that the kernel knows, unless told otherwise: more are of little use to one queue.
const KNOWN_BYTES_MAX: usize = 2 << 20;

/// How reads reach the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring where the system allows it, else threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// A few threads per worker that block in pread.
    Pool,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Auto => "auto",
            Engine::IoUring => "io_uring",
            Engine::Pool => "pool",
        })
    }
}

/// A read queue and the engine that serves it.
pub struct Opened {
    /// The queue.
    pub queue: Box<dyn ReadQueue>,
    /// [`Engine::IoUring`] or [`Engine::Pool`].
    pub engine: Engine,
    /// Why io_uring was not taken under [`Engine::Auto`].
    pub fallback: Option<io::Error>,
}

/// Opens a queue over `devices` for one worker; at most `depth` reads (0 counts as 1) are under way
/// at once. To be called on the thread that will use it. Devices without a descriptor are served by
/// the pool only.
///
/// # Errors
/// With [`Engine::IoUring`] where the system forbids it or a device has no descriptor; else when
/// descriptors, threads or memory run out.
pub fn open_queue(devices: &[Arc<dyn Device>], engine: Engine, depth: u32) -> io::Result<Opened> {
    open_queue_within(devices, engine, depth, KNOWN_BYTES_MAX)
}

/// As [`open_queue`], with at most so many bytes of buffers that the kernel knows, which are resident all the time
/// (see [`ReadQueue::buffer`]).
///
/// # Errors
/// As of [`open_queue`].
pub fn open_queue_within(
    devices: &[Arc<dyn Device>],
    engine: Engine,
    depth: u32,
    known_bytes_max: usize,
) -> io::Result<Opened> {
    let fallback = match engine {
        Engine::Pool => None,
        Engine::IoUring | Engine::Auto => match UringQueue::open(devices, depth, known_bytes_max) {
            Ok(queue) => {
                let engine = Engine::IoUring;
                return Ok(Opened { queue: Box::new(queue), engine, fallback: None });
            }
            Err(error) if engine == Engine::IoUring => return Err(error),
            Err(error) => Some(error),
        },
    };
    let queue = PoolQueue::open(devices, depth)?;
    Ok(Opened { queue: Box::new(queue), engine: Engine::Pool, fallback })
}
