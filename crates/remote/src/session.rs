//! An association with a controller: its I/O queues, and what of it is not confirmed.

use crate::address::Address;
use crate::admin;
use crate::error::ConnectError;
use crate::lane::{Job, Lane, Limit};
use crate::lock::lock;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_nvme::host::{Controller, Login, Namespace};
use terrace_nvme::pdu::Digests;

/// Queues for transfers that are waited for, where the controller has enough.
const LANES_MAX: usize = 4;
/// Commands of a lane at once.
const LANE_ENTRIES: u32 = 65;
/// Outstanding R2T of a command.
const R2T_MAX: u32 = 4;
/// How long a queue may take to connect.
const QUEUE_PATIENCE: Duration = Duration::from_secs(3);

/// An association with a controller, from its set-up until it is over.
pub(crate) struct Session {
    pub(crate) controller: Controller,
    pub(crate) namespace: Namespace,
    login: Login,
    address: Address,
    digests: Digests,
    is_over: AtomicBool,
    why: Mutex<Option<String>>,
    /// Identifiers that no queue has. One that was given back is used last, since the controller may learn late that its
    /// connection is closed.
    queue_ids: Mutex<VecDeque<u16>>,
    lanes: Mutex<Lanes>,
    /// Told when a lane is free.
    freed: Condvar,
    /// When a write was last sent that was not confirmed when its lane ended.
    unconfirmed: Mutex<Option<Instant>>,
    /// Writes of the association before it may land until then.
    pub(crate) writes_from: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Lanes {
    free: Vec<Lane>,
    /// Of all, those in use too.
    count: usize,
}

impl Session {
    pub(crate) fn new(
        address: &Address,
        login: &Login,
        controller: Controller,
        digests: Digests,
    ) -> Result<Self, ConnectError> {
        let Some(namespace) = controller.namespace else {
            return Err(ConnectError::Other("this is a discovery controller".into()));
        };
        Ok(Self {
            namespace,
            login: login.clone(),
            address: address.clone(),
            digests,
            is_over: AtomicBool::new(false),
            why: Mutex::default(),
            queue_ids: Mutex::new((1..=controller.io_queues).collect()),
            controller,
            lanes: Mutex::default(),
            freed: Condvar::new(),
            unconfirmed: Mutex::default(),
            writes_from: Mutex::default(),
        })
    }

    fn lanes_max(&self) -> usize {
        (usize::from(self.controller.io_queues) / 2).clamp(1, LANES_MAX)
    }

    /// Queues for workers.
    pub(crate) fn worker_queues(&self) -> usize {
        usize::from(self.controller.io_queues).saturating_sub(self.lanes_max())
    }

    /// Whether written data may be lost with the target's power, unless each write says that it must not.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.controller.info.volatile_write_cache
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether headers and data have digests.
    pub(crate) fn has_digests(&self) -> bool {
        self.digests.data
    }

    /// A write was not confirmed.
    pub(crate) fn note_unconfirmed(&self) {
        *lock(&self.unconfirmed) = Some(Instant::now());
    }

    /// Ends it. The first reason counts.
    pub(crate) fn end(&self, why: impl FnOnce() -> String) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            *lock(&self.why) = Some(why());
        }
        self.freed.notify_all();
    }

    pub(crate) fn why(&self) -> String {
        lock(&self.why).clone().unwrap_or_default()
    }

    /// When the last write was sent that was not confirmed; `None` if all were.
    pub(crate) fn unconfirmed(&self) -> Option<Instant> {
        *lock(&self.unconfirmed)
    }

    /// Connects an I/O queue for up to `depth` commands.
    pub(crate) fn open_queue(&self, depth: u32) -> Result<Lane, ConnectError> {
        let id = lock(&self.queue_ids).pop_front();
        let id =
            id.ok_or_else(|| ConnectError::Other("the controller has no more queues".into()))?;
        let opened = self.connect_queue(id, depth);
        if opened.is_err() {
            lock(&self.queue_ids).push_back(id);
        }
        opened
    }

    fn connect_queue(&self, id: u16, depth: u32) -> Result<Lane, ConnectError> {
        let limit = admin::within(QUEUE_PATIENCE);
        let config = self.controller.io_queue(depth + 1, R2T_MAX, self.digests);
        let mut lane = Lane::open(admin::connect(&self.address)?, config, &limit)?;
        let (connect, data) = self.login.io(self.controller.info.controller_id, id, config.entries);
        let outcome = lane.run_one(Job::sending(connect, &data), &limit)?;
        if !outcome.status.is_success() {
            return Err(ConnectError::Other(format!("queue {id}: {}", outcome.status)));
        }
        Ok(lane)
    }

    /// Carries out jobs over one of the lanes, and waits for one if all are in use.
    ///
    /// # Errors
    /// The session is over, whether by this or before; writes may still land.
    pub(crate) fn run(&self, jobs: &mut [Job<'_>], is_write: bool) -> io::Result<()> {
        let mut lane = match self.free_lane()? {
            Some(lane) => lane,
            None => self.open_queue(LANE_ENTRIES - 1).map_err(|error| {
                lock(&self.lanes).count -= 1;
                self.end(|| error.to_string());
                io::Error::from(io::ErrorKind::ConnectionAborted)
            })?,
        };
        let is_over = || self.is_over();
        let ran = lane.run(jobs, &Limit { end: None, is_over: &is_over });
        match &ran {
            Ok(()) => {
                lock(&self.lanes).free.push(lane);
                self.freed.notify_one();
            }
            Err(error) => {
                if is_write {
                    self.note_unconfirmed();
                }
                self.end(|| error.to_string());
            }
        }
        ran
    }

    /// A free lane; `None` if another one is to be opened.
    fn free_lane(&self) -> io::Result<Option<Lane>> {
        let mut lanes = lock(&self.lanes);
        loop {
            if self.is_over() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if let Some(lane) = lanes.free.pop() {
                return Ok(Some(lane));
            }
            if lanes.count < self.lanes_max() {
                lanes.count += 1;
                return Ok(None);
            }
            // The end of the session may be told between the look and the wait.
            let waited = self.freed.wait_timeout(lanes, Duration::from_millis(250));
            lanes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A lane that was opened elsewhere.
    pub(crate) fn add_lane(&self, lane: Lane) {
        let mut lanes = lock(&self.lanes);
        lanes.free.push(lane);
        lanes.count += 1;
    }
}
