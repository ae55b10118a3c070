//! A remote namespace as a drive.

use crate::address::Address;
use crate::association::{Association, Associations, Config};
use crate::discovery::discover;
use crate::error::{ConnectError, OpenError};
use crate::head::Head;
use crate::host::{LocalLock, host_nqn};
use crate::keeper::Keeper;
use crate::lane::Job;
use crate::lock::lock;
use crate::owner::{MARK_AT, MARK_BYTES};
use crate::purpose::Purpose;
use crate::reads::WorkerReads;
use crate::session::Session;
use crate::shared::{LOSS, Shared, State};
use crate::status::{Failure, failure};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use terrace_device::{
    AlignedBuf, Direction, Drive, Geometry, Monitor, OpenReads, OwnReads, Part, Reads, Waker,
    is_unanswered, unanswered,
};
use terrace_nvme::command::fabrics::InvalidParameter;
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::host::SetUpError;

/// How a remote drive is used.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name of this host; by default [`host_nqn`]'s.
    pub host_nqn: Option<String>,
    /// Whether headers and data have digests.
    pub digests: bool,
    /// What for.
    pub purpose: Purpose,
}

/// A namespace behind NVMe/TCP. A thread of its own keeps it connected.
///
/// A session that is lost fails the reads of workers at once ([`terrace_device::is_unanswered`]); other transfers are made
/// again over the next one, which the target has some seconds for once transfers have a deadline. A write that was
/// acknowledged is durable on the target. One that was not may land until its controller is surely gone, see
/// [`Drive::fence`]; nothing is written before that.
pub struct RemoteDrive {
    shared: Arc<Shared>,
    head: Arc<Head>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<LocalLock>>,
    notes: Vec<String>,
    /// See [`Purpose::owns`].
    owns: bool,
}

impl RemoteDrive {
    /// Connects to `address` for its first `bytes`, or for all that it has, unless `is_foreign` of its first bytes.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        address: &Address,
        bytes: Option<u64>,
        options: &Options,
        is_foreign: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Connect { address: address.clone(), source };
        let system = |source| OpenError::System { address: address.clone(), source };
        let host_nqn = options.host_nqn.clone().unwrap_or_else(host_nqn);
        let config = Config {
            address: address.clone(),
            host_nqn: host_nqn.clone(),
            digests: options.digests,
            purpose: options.purpose,
        };
        let lock = match options.purpose.owns() {
            false => None,
            true => {
                // The only namespace of a subsystem is mostly its first.
                let nsid = address.nsid.unwrap_or(1);
                let lock = LocalLock::take(&host_nqn, &address.nqn, nsid);
                Some(lock.map_err(system)?.ok_or_else(|| failed(ConnectError::HeldHere))?)
            }
        };
        let mut associations = Associations::new(config).map_err(system)?;
        let association = associations.begin(is_foreign);
        let association = association.map_err(|error| failed(with_names(address, error)))?;
        let geometry = geometry(address, bytes, &association.session)?;
        let notes = notes(&association);
        let session = Arc::clone(&association.session);
        let shared = Shared::new(address, geometry, session).map_err(system)?;
        let (shared, head) = (Arc::new(shared), Arc::clone(&associations.head));
        let keeper = Keeper { shared: Arc::clone(&shared), associations };
        let keeper = Builder::new().name("nvme-tcp".into()).spawn(move || keeper.run(association));
        let keeper = Mutex::new(Some(keeper.map_err(system)?));
        Ok(Self {
            shared,
            head,
            keeper,
            lock: Mutex::new(lock),
            notes,
            owns: options.purpose.owns(),
        })
    }

    /// What the user should know about how it is used, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Calls `step` with one session after the other, until one lasts.
    fn over_sessions<T>(
        &self,
        is_write: bool,
        mut step: impl FnMut(&Session) -> io::Result<T>,
    ) -> io::Result<T> {
        let end = self.shared.end();
        loop {
            let session = self.shared.await_session(end)?;
            if is_write {
                self.await_fence(&session, end)?;
            }
            match step(&session) {
                Ok(done) => return Ok(done),
                Err(_) => self.shared.ring(),
            }
        }
    }

    /// Carries out jobs, and says how each went. An error is one of the session.
    fn carry_out(
        &self,
        session: &Session,
        jobs: &mut [Job<'_>],
        is_write: bool,
    ) -> io::Result<Vec<io::Result<()>>> {
        session.run(jobs, is_write)?;
        jobs.iter().map(|job| self.judge(session, job, is_write)).collect()
    }

    /// How a job went. An error of the whole is one of the session.
    fn judge(
        &self,
        session: &Session,
        job: &Job<'_>,
        is_write: bool,
    ) -> io::Result<io::Result<()>> {
        match failure(job.outcome().status, is_write) {
            None => Ok(Ok(())),
            Some(Failure::Command(error)) => Ok(Err(error)),
            Some(Failure::Session(status)) => {
                if is_write {
                    session.note_unconfirmed();
                }
                session.end(|| status.to_string());
                Err(unanswered())
            }
            Some(Failure::Namespace(status)) => {
                self.shared.give_up(status.to_string());
                session.end(|| status.to_string());
                Ok(Err(io::Error::new(io::ErrorKind::NotConnected, status.to_string())))
            }
        }
    }

    /// Waits until writes of the session before this one can't land any more, no longer than to `end`.
    fn await_fence(&self, session: &Session, end: Option<Instant>) -> io::Result<()> {
        while let Some(until) = *lock(&session.writes_from) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *lock(&session.writes_from) = None;
            } else if end.is_some_and(|end| until >= end) {
                return Err(unanswered());
            } else {
                std::thread::sleep(left.min(Duration::from_millis(250)));
            }
        }
        Ok(())
    }

    fn read_parts(&self, parts: &mut [Part<'_>]) -> io::Result<()> {
        for part in parts.iter() {
            self.shared.geometry.check(part.offset, part.buf.len())?;
        }
        self.over_sessions(false, |session| {
            let most = session.controller.transfer_bytes_max() as usize;
            let (mut jobs, mut counts) = (Vec::new(), Vec::new());
            for part in parts.iter_mut() {
                let before = jobs.len();
                let mut at = part.offset;
                for piece in part.buf.chunks_mut(most) {
                    let blocks = blocks(session, at, piece.len());
                    at += piece.len() as u64;
                    jobs.push(Job::receiving(nvm::read(session.namespace.nsid, blocks), piece));
                }
                counts.push(jobs.len() - before);
            }
            let mut results = self.carry_out(session, &mut jobs, false)?.into_iter();
            for (part, count) in parts.iter_mut().zip(counts) {
                let result = results.by_ref().take(count).collect::<io::Result<()>>();
                part.result = self.shared.monitor.record(Direction::Read, result);
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.shared.geometry.check(offset, bytes.len())?;
        let mark = MARK_AT..MARK_AT + MARK_BYTES as u64;
        if self.owns && offset < mark.end && offset + bytes.len() as u64 > mark.start {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.head.begin_write(offset, bytes);
        let begun = Instant::now();
        let results = self.over_sessions(true, |session| {
            let most = session.controller.transfer_bytes_max() as usize;
            let mut at = offset;
            let job = |piece| {
                let blocks = blocks(session, at, <[u8]>::len(piece));
                at += piece.len() as u64;
                // Durable with its answer: a target that loses power must not lose what is counted on.
                let is_durable = session.has_volatile_cache();
                Job::sending(nvm::write(session.namespace.nsid, blocks, is_durable), piece)
            };
            let mut jobs: Vec<_> = bytes.chunks(most).map(job).collect();
            self.carry_out(session, &mut jobs, true)
        })?;
        results.into_iter().collect::<io::Result<()>>()?;
        self.head.end_write(offset, bytes);
        self.shared.monitor.record_pace(bytes.len(), begun.elapsed());
        Ok(())
    }

    /// Ends the session and the thread. The target learns that the namespace is free.
    fn end(&self) {
        self.shared.begin_closing();
        if let Some(keeper) = lock(&self.keeper).take() {
            // One that panicked has told so.
            let _ = keeper.join();
        }
        self.shared.give_up("closed".to_owned());
        lock(&self.lock).take();
    }
}

impl Drive for RemoteDrive {
    fn label(&self) -> &str {
        &self.shared.label
    }

    fn geometry(&self) -> Geometry {
        self.shared.geometry
    }

    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        let mut parts = [Part::new(offset, buf)];
        self.read_each(&mut parts);
        let [part] = parts;
        part.result
    }

    fn read_each(&self, parts: &mut [Part<'_>]) {
        if let Err(error) = self.read_parts(parts) {
            for part in parts.iter_mut() {
                let again = match is_unanswered(&error) {
                    true => unanswered(),
                    false => io::Error::new(error.kind(), error.to_string()),
                };
                part.result = self.shared.monitor.record(Direction::Read, Err(again));
            }
        }
    }

    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.shared.monitor.record(Direction::Write, self.write(offset, buf))
    }

    /// Each write is durable with its answer.
    fn flush(&self) -> io::Result<()> {
        self.shared.session().map(drop)
    }

    fn fence(&self) -> io::Result<()> {
        let session = self.shared.session()?;
        self.await_fence(&session, Some(Instant::now()))
    }

    fn close(&self) {
        self.end();
    }

    fn reads(&self) -> Reads<'_> {
        Reads::Own(self)
    }

    fn begin_timing(&self) {
        self.shared.begin_timing();
    }

    fn unresponsive_for(&self) -> Duration {
        match self.shared.state() {
            State::Down(since) if since.elapsed() < LOSS => {
                since.elapsed().max(Duration::from_millis(1))
            }
            // The keeper has not heard of it yet.
            State::Up(session) if session.is_over() => Duration::from_millis(1),
            State::Up(session)
                if lock(&session.writes_from).is_some_and(|t| t > Instant::now()) =>
            {
                Duration::from_millis(1)
            }
            _ => Duration::ZERO,
        }
    }

    fn monitor(&self) -> Option<&Monitor> {
        Some(&self.shared.monitor)
    }
}

impl OpenReads for RemoteDrive {
    fn open_reads(&self, depth: u32, waker: Waker) -> Option<Box<dyn OwnReads>> {
        let may = self.shared.take_queue();
        may.then(|| Box::new(WorkerReads::new(Arc::clone(&self.shared), depth, waker)) as _)
    }
}

impl Drop for RemoteDrive {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says which subsystems the target has, if it does not have the one that was named.
fn with_names(address: &Address, error: ConnectError) -> ConnectError {
    let ConnectError::SetUp(SetUpError::Parameter(InvalidParameter::SUBSYSTEM_NQN)) = error else {
        return error;
    };
    let has = match discover(&address.host, Some(address.port)) {
        Ok(found) if found.is_empty() => "it has none for this host".to_owned(),
        Ok(found) => {
            let names: Vec<_> = found.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
            format!("it has {}", names.join(", "))
        }
        Err(error) => format!("what it has can't be asked: {error}"),
    };
    ConnectError::NoSubsystem { has }
}

fn blocks(session: &Session, offset: u64, bytes: usize) -> Blocks {
    let shift = session.namespace.info.block_shift;
    Blocks { lba: offset >> shift, count: (bytes >> shift) as u32 }
}

fn geometry(
    address: &Address,
    asked: Option<u64>,
    session: &Session,
) -> Result<Geometry, OpenError> {
    let info = &session.namespace.info;
    let block_bytes = info.block_bytes();
    if block_bytes > 4096 {
        return Err(OpenError::Blocks { address: address.clone(), bytes: block_bytes });
    }
    let has = info.blocks << info.block_shift;
    let bytes = asked.unwrap_or(has);
    if bytes > has {
        return Err(OpenError::Smaller { address: address.clone(), asked: bytes, has });
    }
    // What is larger than a block is not asked for in parts of one.
    Ok(Geometry { bytes: bytes - bytes % 4096, block_bytes })
}

/// What the operator should know.
fn notes(association: &Association) -> Vec<String> {
    let session = &association.session;
    let info = &session.controller.info;
    let digests = if session.has_digests() { ", with digests" } else { "" };
    let mut notes = vec![format!(
        "{} {}, namespace {}, {} queues{digests}",
        info.model, info.firmware, session.namespace.nsid, session.controller.io_queues
    )];
    if association.claim.is_none() && association.is_owned {
        notes.push(
            "the target has no reservations: nothing keeps another host from writing there".into(),
        );
    }
    notes
}
