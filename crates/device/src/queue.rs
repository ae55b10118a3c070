//! Opening a worker's read queue with the best engine that there is.

use crate::pool::PoolQueue;
use crate::uring::UringQueue;
use crate::{Device, ReadQueue};
use std::fmt;
use std::io;
use std::sync::Arc;

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

/// Threads of a pool: about what keeps one drive busy, and few enough to be cheap.
const POOL_THREADS_MAX: u32 = 16;

/// Opens a queue over `devices` for one worker; at most `depth` reads are under way at once. To be
/// called on the thread that will use it.
pub fn open_queue(devices: &[Arc<dyn Device>], engine: Engine, depth: u32) -> io::Result<Opened> {
    let fallback = match engine {
        Engine::Pool => None,
        Engine::IoUring | Engine::Auto => match UringQueue::open(devices, depth) {
            Ok(queue) => {
                let engine = Engine::IoUring;
                return Ok(Opened { queue: Box::new(queue), engine, fallback: None });
            }
            Err(error) if engine == Engine::IoUring => return Err(error),
            Err(error) => Some(error),
        },
    };
    let queue = PoolQueue::open(devices, depth.min(POOL_THREADS_MAX))?;
    Ok(Opened { queue: Box::new(queue), engine: Engine::Pool, fallback })
}
