//! The requests of one connection, as bytes and as what is expected in return.

use crate::pick::{Pick, Share};
use crate::plan::{End, Plan, Protocol, Workload};
use crate::{Keys, LoadError, Values};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Answered by values of the next so many [`Expected`].
    Get {
        keys: usize,
    },
    Store,
}

/// A key that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) number: u64,
    /// `None` accepts any version.
    pub(crate) version: Option<u32>,
}

/// Requests in flight, oldest first, each with the time it was sent.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(crate) requests: VecDeque<(Request, u64)>,
    pub(crate) expected: VecDeque<Expected>,
}

/// Makes the requests of one connection.
pub(crate) struct Requests {
    keys: Keys,
    values: Arc<Values>,
    share: Share,
    pick: Pick,
    /// Reads per hundred requests.
    get_percent: u32,
    keys_per_get: usize,
    random: SmallRng,
    left: u64,
    meta: bool,
    /// What follows the last key of a request and ends its line.
    get_tail: &'static [u8],
    store_tail: Vec<u8>,
    version: u32,
    any_version: bool,
    /// How often this connection has stored each of its records; empty where reads don't follow.
    written: Vec<u16>,
}

impl Requests {
    /// Those of connection `part`.
    pub(crate) fn new(plan: &Plan, values: &Arc<Values>, part: usize) -> Result<Self, LoadError> {
        let keys = plan.keys()?;
        let (part, parts) = (part as u64, plan.connections as u64);
        let walks = matches!(plan.workload, Workload::Fill | Workload::Verify);
        let share = match plan.writes() || walks {
            true => Share::of(plan.first, plan.records, part, parts),
            false => Share::of(plan.first, plan.records, 0, 1),
        };
        let seed = crate::keys::mix(plan.seed ^ part << 32);
        let pick = match plan.workload {
            Workload::Fill | Workload::Verify => Some(Pick::sequence(share.count)),
            Workload::Get(popularity)
            | Workload::Overwrite(popularity)
            | Workload::Mixed { popularity, .. } => Pick::random(popularity, share.count, seed),
        };
        let get_percent = match plan.workload {
            Workload::Verify | Workload::Get(_) => 100,
            Workload::Fill | Workload::Overwrite(_) => 0,
            Workload::Mixed { get_percent, .. } => get_percent,
        };
        let reads_what_it_writes = (1..100).contains(&get_percent);
        let meta = plan.protocol == Protocol::Meta;
        let (flags, ttl, bytes) = (plan.flags, plan.ttl, values.bytes());
        Ok(Self {
            keys,
            values: Arc::clone(values),
            share,
            pick: pick.ok_or_else(|| LoadError::Plan("not an exponent of Zipf's law".into()))?,
            get_percent,
            keys_per_get: plan.keys_per_get,
            random: SmallRng::seed_from_u64(!seed),
            left: match plan.end {
                End::Requests(requests) => (requests + parts - 1 - part) / parts,
                End::Time(_) => u64::MAX,
            },
            meta,
            get_tail: match (meta, flags) {
                (false, _) => b"\r\n",
                (true, 0) => b" v\r\n",
                (true, _) => b" f v\r\n",
            },
            store_tail: match (meta, flags, ttl) {
                (false, ..) => format!(" {flags} {ttl} {bytes}\r\n"),
                (true, 0, 0) => format!(" {bytes}\r\n"),
                (true, ..) => format!(" {bytes} F{flags} T{ttl}\r\n"),
            }
            .into_bytes(),
            version: plan.version,
            any_version: plan.any_version,
            written: vec![0; if reads_what_it_writes { share.count as usize } else { 0 }],
        })
    }

    /// No more requests from now on.
    pub(crate) fn stop(&mut self) {
        self.left = 0;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Appends the next request, if there is one.
    pub(crate) fn next(&mut self, now: u64, out: &mut Vec<u8>, window: &mut Window) -> bool {
        if self.left == 0 {
            return false;
        }
        let get = match self.get_percent {
            0 => false,
            100 => true,
            percent => self.random.random_range(0..100) < percent,
        };
        let request = if get { self.get(out, window) } else { self.store(out) };
        match request {
            Some(request) => {
                self.left -= 1;
                window.requests.push_back((request, now));
                true
            }
            None => {
                self.left = 0;
                false
            }
        }
    }

    fn get(&mut self, out: &mut Vec<u8>, window: &mut Window) -> Option<Request> {
        let mut keys = 0;
        out.extend_from_slice(if self.meta { b"mg" } else { b"get" });
        while keys < self.keys_per_get {
            let Some(index) = self.pick.next() else { break };
            let number = self.share.number(index);
            out.push(b' ');
            self.keys.append(number, out);
            window.expected.push_back(Expected { number, version: self.expected(index) });
            keys += 1;
        }
        if keys == 0 {
            out.truncate(out.len() - if self.meta { 2 } else { 3 });
            return None;
        }
        out.extend_from_slice(self.get_tail);
        Some(Request::Get { keys })
    }

    fn store(&mut self, out: &mut Vec<u8>) -> Option<Request> {
        let index = self.pick.next()?;
        let number = self.share.number(index);
        let mut version = self.version;
        if let Some(written) = self.written.get_mut(index as usize) {
            *written = written.checked_add(1).unwrap_or(1);
            version = version.wrapping_add(u32::from(*written));
        }
        out.extend_from_slice(if self.meta { b"ms " } else { b"set " });
        self.keys.append(number, out);
        out.extend_from_slice(&self.store_tail);
        self.values.append(number, version, out);
        out.extend_from_slice(b"\r\n");
        Some(Request::Store)
    }

    fn expected(&self, index: u64) -> Option<u32> {
        match self.written.get(index as usize) {
            Some(&written) if written > 0 => Some(self.version.wrapping_add(u32::from(written))),
            _ => (!self.any_version).then_some(self.version),
        }
    }
}
