//! The requests of one connection, as bytes and as what is expected in return.

use crate::LoadError;
use crate::encode::Encoder;
use crate::pick::{Pick, Share};
use crate::plan::{End, Plan, Workload};
use crate::records::Records;
use crate::versions::Versions;
use crate::window::{Expected, Request, Window};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

/// Makes the requests of one connection.
pub(crate) struct Requests {
    encoder: Encoder,
    share: Share,
    pick: Pick,
    mix: Mix,
    keys_per_get: usize,
    random: SmallRng,
    left: u64,
    versions: Versions,
}

/// Of a hundred requests: this many reads, and reads and deletes together.
#[derive(Clone, Copy)]
struct Mix {
    gets: u32,
    gets_and_deletes: u32,
}

impl Mix {
    fn of(workload: &Workload) -> Self {
        let (gets, deletes) = match workload {
            Workload::Verify | Workload::Get(_) | Workload::Replay(_) => (100, 0),
            Workload::Fill | Workload::Overwrite(_) => (0, 0),
            Workload::Mixed { get_percent, delete_percent, .. } => (*get_percent, *delete_percent),
        };
        Self { gets, gets_and_deletes: gets + deletes }
    }

    #[inline]
    fn draw(self, random: &mut SmallRng) -> Request {
        let number = match (self.gets, self.gets_and_deletes) {
            (100, _) => 0,
            (0, 0) => 100,
            _ => random.random_range(0..100),
        };
        if number < self.gets {
            Request::Get { keys: 0 }
        } else if number < self.gets_and_deletes {
            Request::Delete
        } else {
            Request::Store { missed: false }
        }
    }
}

impl Requests {
    /// Those of connection `part`.
    pub(crate) fn new(plan: &Plan, records: &Records, part: usize) -> Result<Self, LoadError> {
        let parts = plan.connections as u64;
        let (own, of) = if plan.has_shares() { (part as u64, parts) } else { (0, 1) };
        let share = match &plan.among {
            Some(numbers) => Share::among(Arc::clone(numbers), own, of),
            None => Share::of(plan.first, plan.records, own, of),
        };
        let seed = crate::keys::mix(plan.seed ^ (part as u64) << 32);
        let pick = match &plan.workload {
            Workload::Fill | Workload::Verify => Some(Pick::sequence(share.count)),
            Workload::Get(popularity)
            | Workload::Overwrite(popularity)
            | Workload::Mixed { popularity, .. } => Pick::random(*popularity, share.count, seed),
            Workload::Replay(trace) => Some(Pick::list(trace.part(part, plan.connections))),
        };
        let mix = Mix::of(&plan.workload);
        let reads_what_it_writes = (1..100).contains(&mix.gets);
        let versions = Versions::new(plan, if reads_what_it_writes { share.count } else { 0 });
        Ok(Self {
            encoder: Encoder::new(plan, records),
            share,
            pick: pick.ok_or_else(|| LoadError::Plan("not an exponent of Zipf's law".into()))?,
            mix,
            keys_per_get: plan.keys_per_get,
            random: SmallRng::seed_from_u64(!seed),
            left: match (plan.end, &plan.workload) {
                // Its connections have unequal shares of the requests.
                (End::Time(_), _) | (_, Workload::Replay(_)) => u64::MAX,
                (End::Requests(requests), _) => (requests + parts - 1 - part as u64) / parts,
            },
            versions,
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
    #[inline]
    pub(crate) fn next(&mut self, now: u64, out: &mut Vec<u8>, window: &mut Window) -> bool {
        if self.left == 0 {
            return false;
        }
        let request = match self.mix.draw(&mut self.random) {
            Request::Get { .. } => self.get(out, window),
            Request::Store { .. } => self.store(out),
            Request::Delete => self.delete(out),
        };
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

    /// Appends a store of a record that was missed.
    pub(crate) fn store_missed(
        &mut self,
        number: u64,
        now: u64,
        out: &mut Vec<u8>,
        window: &mut Window,
    ) {
        let version = self.versions.again(self.share.index(number));
        self.encoder.store(number, version, out);
        window.requests.push_back((Request::Store { missed: true }, now));
    }

    fn get(&mut self, out: &mut Vec<u8>, window: &mut Window) -> Option<Request> {
        let Self { pick, share, versions, .. } = self;
        let keys_before = window.expected.len();
        for _ in 0..self.keys_per_get {
            let Some(index) = pick.next() else { break };
            let (number, value) = (share.number(index), versions.expected(index));
            window.expected.push_back(Expected { number, value });
        }
        let keys = window.expected.len() - keys_before;
        if keys == 0 {
            return None;
        }
        let numbers = window.expected.range(keys_before..).map(|expected| expected.number);
        self.encoder.get(numbers, out);
        Some(Request::Get { keys })
    }

    fn store(&mut self, out: &mut Vec<u8>) -> Option<Request> {
        let index = self.pick.next()?;
        let version = self.versions.next(index);
        self.encoder.store(self.share.number(index), version, out);
        Some(Request::Store { missed: false })
    }

    fn delete(&mut self, out: &mut Vec<u8>) -> Option<Request> {
        let index = self.pick.next()?;
        self.versions.delete(index);
        self.encoder.delete(self.share.number(index), out);
        Some(Request::Delete)
    }
}
