//! The policy laboratory, `terrace plan --policy`: runs the cache's own policy ([`terrace_policy`])
//! over a trace or a made-up stream, without I/O, beside other policies and the optimum.
//!
//! All sizes are counted in objects, all objects count alike, and a miss is followed by a SET of the
//! object, as a look-aside cache does. `docs/policy.md` has the results.

mod chart;
mod cli;
mod list;
mod optimum;
mod peers;
mod run;
mod s3fifo;
mod sieve;
mod stream;
#[cfg(test)]
mod tests;
mod tiers;
mod tinylfu;

pub(crate) use cli::{is_asked_for, main};

/// Numbers of objects, from 0 without gaps.
type Object = u32;

/// Where a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Dram,
    Flash,
    Miss,
}

/// What is under test.
trait Policy {
    /// A GET, followed by a SET if it is a miss.
    fn get(&mut self, object: Object) -> Answer;

    /// A SET without a GET before.
    fn set(&mut self, object: Object) {
        self.get(object);
    }

    /// Objects written to flash so far.
    fn written(&self) -> u64;
}
