//! From one association with the target to the next: what has to be the same, and that the namespace is ours.

use crate::address::Address;
use crate::admin::{self, Admin};
use crate::error::ConnectError;
use crate::head::{HEAD_BYTES, Head};
use crate::host::random;
use crate::lane::{Job, Lane, Limit};
use crate::owner::{Claim, MARK_AT, MARK_BYTES, Mark, Owner, Refusal, has_reservations};
use crate::purpose::Purpose;
use crate::session::Session;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_nvme::command::identify::{self, NamespaceInfo, Structure, identify};
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::host::{Login, Namespace};
use terrace_nvme::pdu::Digests;

/// Keep-alive timeout of a controller.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a set-up may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an earlier run of this server may linger at the target.
const LINGER: Duration = KEEP_ALIVE.saturating_add(Duration::from_secs(2));
const LINGER_NAP: Duration = Duration::from_millis(500);

/// What an association is made with.
pub(crate) struct Config {
    pub(crate) address: Address,
    pub(crate) host_nqn: String,
    pub(crate) digests: bool,
    pub(crate) purpose: Purpose,
}

/// An association, and what tells that the namespace is this server's.
pub(crate) struct Association {
    pub(crate) admin: Admin,
    pub(crate) session: Arc<Session>,
    pub(crate) claim: Option<Claim>,
    /// Whether the namespace is this server's.
    pub(crate) is_owned: bool,
}

/// Makes one association after the other.
pub(crate) struct Associations {
    pub(crate) config: Config,
    pub(crate) head: Arc<Head>,
    owner: Owner,
    /// Key of the last association that may have a reservation.
    key: Option<u64>,
    /// As the first association found it.
    namespace: Option<Namespace>,
    /// What the mark may be: as it was written last, and before that if the writing was not confirmed.
    marks: Vec<Mark>,
    instance: u64,
}

impl Associations {
    pub(crate) fn new(config: Config) -> io::Result<Self> {
        let owner = Owner::of(&config.host_nqn);
        Ok(Self {
            config,
            head: Arc::new(Head::default()),
            owner,
            key: None,
            namespace: None,
            marks: Vec::new(),
            instance: u64::from_le_bytes(random()?),
        })
    }

    /// The next association. The first looks whether the cache may have the namespace at all: `is_foreign` of its first
    /// bytes.
    ///
    /// # Errors
    /// It can't be had now, or never ([`ConnectError::is_final`]).
    pub(crate) fn begin(
        &mut self,
        is_foreign: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Association, ConnectError> {
        let limit = admin::within(PATIENCE);
        let login = Login {
            host_nqn: self.config.host_nqn.clone(),
            host_id: random()?,
            subsystem_nqn: self.config.address.nqn.clone(),
        };
        let (address, nsid) = (&self.config.address, self.config.address.nsid);
        let (admin, controller) = Admin::open(address, &login, KEEP_ALIVE, nsid, &limit)?;
        let digests = Digests { header: self.config.digests, data: self.config.digests };
        let session = Session::new(address, &login, controller, digests)?;
        self.compare(&session.namespace)?;
        let mut lane = session.open_queue(1)?;
        let is_owned = self.config.purpose.owns();
        let session = Arc::new(session);
        let mut association = Association { admin, session, claim: None, is_owned };
        if is_owned {
            self.own(&mut association, &mut lane, is_foreign)?;
        } else if self.config.purpose == Purpose::Overwrite {
            refuse_owned(&association.session, &mut lane)?;
        }
        association.session.add_lane(lane);
        Ok(association)
    }

    fn may_take(&self) -> bool {
        self.config.purpose == Purpose::Take
    }

    /// The namespace must be the one that it was.
    fn compare(&mut self, now: &Namespace) -> Result<(), ConnectError> {
        let before = self.namespace.get_or_insert(*now);
        if before.ids != now.ids || before.info.block_shift != now.info.block_shift {
            return Err(ConnectError::Changed("the target has another namespace there".into()));
        }
        is_large_enough(&before.info, &now.info)
    }

    fn own(
        &mut self,
        association: &mut Association,
        lane: &mut Lane,
        is_foreign: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), ConnectError> {
        let session = Arc::clone(&association.session);
        let is_first = self.marks.is_empty();
        let limit = admin::within(PATIENCE);
        let mut blocks = vec![0; HEAD_BYTES + MARK_BYTES];
        if is_first {
            read(&session, lane, 0, &mut blocks, &limit)?;
            if is_foreign(&blocks[..MARK_BYTES]) {
                return Err(ConnectError::Foreign);
            }
        }
        association.claim = self.take(&session, lane)?;
        read(&session, lane, 0, &mut blocks, &limit)?;
        let (head, mark) = blocks.split_at_mut(HEAD_BYTES);
        let found = Mark::read(mark);
        match &found {
            Some(found) if is_first => {
                let is_others = found.is_open && found.owner != self.owner;
                if is_others && !self.may_take() {
                    let holder = format!("the host {}", found.host_nqn);
                    return Err(ConnectError::Held { holder });
                }
            }
            found if !is_first => {
                if !found.as_ref().is_some_and(|found| self.marks.contains(found)) {
                    let holder = found.as_ref().map_or("", |found| &found.host_nqn);
                    return Err(ConnectError::Changed(format!(
                        "what lies there was changed meanwhile, or is older ({holder})"
                    )));
                }
                self.head.check(head)?;
            }
            _ => {}
        }
        if is_first {
            self.head.set(head);
        }
        let next = Mark {
            owner: self.owner,
            instance: self.instance,
            associations: self.marks.iter().map(|mark| mark.associations).max().unwrap_or(0) + 1,
            is_open: true,
            host_nqn: self.config.host_nqn.clone(),
        };
        self.write_mark(&session, lane, next, &limit)
    }

    fn write_mark(
        &mut self,
        session: &Session,
        lane: &mut Lane,
        next: Mark,
        limit: &Limit<'_>,
    ) -> Result<(), ConnectError> {
        let mut block = vec![0; MARK_BYTES];
        next.write(&mut block);
        self.marks.push(next);
        let info = &session.namespace.info;
        let blocks = Blocks {
            lba: MARK_AT >> info.block_shift,
            count: MARK_BYTES as u32 >> info.block_shift,
        };
        let command = nvm::write(session.namespace.nsid, blocks, session.has_volatile_cache());
        let outcome = lane.run_one(Job::sending(command, &block), limit)?;
        if !outcome.status.is_success() {
            return Err(ConnectError::Other(format!("can't be written: {}", outcome.status)));
        }
        self.marks.drain(..self.marks.len() - 1);
        Ok(())
    }

    /// Takes the reservation, where the target has any.
    fn take(&mut self, session: &Session, lane: &mut Lane) -> Result<Option<Claim>, ConnectError> {
        if !has_reservations(&session.controller) {
            return Ok(None);
        }
        let key = self.owner.key(u32::from_le_bytes(random()?));
        let claim = Claim {
            nsid: session.namespace.nsid,
            owner: self.owner,
            key,
            before: self.key,
            may_take: self.may_take() && self.marks.is_empty(),
        };
        let end = Instant::now() + LINGER;
        loop {
            match claim.take(lane, &admin::within(PATIENCE)) {
                Ok(()) => break,
                Err(Refusal::Lingers) if Instant::now() < end => std::thread::sleep(LINGER_NAP),
                Err(Refusal::Lingers) => {
                    let holder = "another Terrace of this host's name".to_owned();
                    return Err(ConnectError::Held { holder });
                }
                Err(Refusal::Held(registrant)) => {
                    let holder = format!("the host with identifier {}", hex(&registrant.host_id));
                    return Err(ConnectError::Held { holder });
                }
                Err(Refusal::Failed(error)) => return Err(error),
            }
        }
        self.key = Some(key);
        Ok(Some(claim))
    }

    /// Ends the last association for good: the namespace is free for any host.
    ///
    /// # Errors
    /// The target does not answer; then the namespace stays this host's.
    pub(crate) fn end(&mut self, association: &mut Association) -> Result<(), ConnectError> {
        let limit = admin::within(PATIENCE);
        if self.config.purpose.owns() {
            let session = Arc::clone(&association.session);
            let mut lane = session.open_queue(1)?;
            if let Some(last) = self.marks.last() {
                let last = Mark { is_open: false, ..last.clone() };
                self.write_mark(&session, &mut lane, last, &limit)?;
            }
            if let Some(claim) = &association.claim {
                claim.give_back(&mut lane, &limit)?;
            }
        }
        association.admin.shut_down(&limit)?;
        Ok(())
    }

    /// Looks after the controller told that namespaces have changed.
    ///
    /// # Errors
    /// It is another one now, or too small.
    pub(crate) fn look_again(&mut self, association: &mut Association) -> Result<(), ConnectError> {
        let limit = admin::within(PATIENCE);
        let nsid = association.session.namespace.nsid;
        let bytes = identify::BYTES as u32;
        let page = terrace_nvme::command::log::get(
            terrace_nvme::command::log::Page::ChangedNamespaces,
            terrace_nvme::command::log::Part { offset: 0, bytes, keeps_event: false },
        );
        // It makes the controller tell of the next change, too.
        association.admin.run(page, Vec::new(), bytes, &limit)?;
        let mut now = association.session.namespace;
        let command = identify(Structure::Namespace, nsid);
        let (outcome, data) = association.admin.run(command, Vec::new(), bytes, &limit)?;
        let structure = <&[u8; identify::BYTES]>::try_from(data.as_slice());
        let (true, Ok(structure)) = (outcome.status.is_success(), structure) else {
            return Err(ConnectError::Other(outcome.status.to_string()));
        };
        now.info = NamespaceInfo::read(structure);
        let command = identify(Structure::Descriptors, nsid);
        let (outcome, data) = association.admin.run(command, Vec::new(), bytes, &limit)?;
        if let (true, Ok(structure)) =
            (outcome.status.is_success(), <&[u8; identify::BYTES]>::try_from(data.as_slice()))
        {
            now.ids = identify::NamespaceIds::read(structure);
        }
        self.compare(&now)
    }
}

/// What has an owner must not be overwritten.
fn refuse_owned(session: &Session, lane: &mut Lane) -> Result<(), ConnectError> {
    let mut block = vec![0; MARK_BYTES];
    read(session, lane, MARK_AT, &mut block, &admin::within(PATIENCE))?;
    match Mark::read(&block).filter(|mark| mark.is_open) {
        Some(mark) => Err(ConnectError::Held { holder: format!("the host {}", mark.host_nqn) }),
        None => Ok(()),
    }
}

/// Whether a namespace has not shrunk.
fn is_large_enough(before: &NamespaceInfo, now: &NamespaceInfo) -> Result<(), ConnectError> {
    if now.blocks < before.blocks {
        let (had, has) = (before.blocks << before.block_shift, now.blocks << now.block_shift);
        return Err(ConnectError::Changed(format!("it has shrunk from {had} to {has} bytes")));
    }
    Ok(())
}

/// Reads from the start of the namespace.
fn read(
    session: &Session,
    lane: &mut Lane,
    offset: u64,
    bytes: &mut [u8],
    limit: &Limit<'_>,
) -> Result<(), ConnectError> {
    let namespace = &session.namespace;
    let (shift, most) = (namespace.info.block_shift, session.controller.transfer_bytes_max());
    let mut at = offset;
    for piece in bytes.chunks_mut(most as usize) {
        let count = piece.len() as u32 >> shift;
        let command = nvm::read(namespace.nsid, Blocks { lba: at >> shift, count });
        at += piece.len() as u64;
        let outcome = lane.run_one(Job::receiving(command, piece), limit)?;
        if !outcome.status.is_success() {
            return Err(ConnectError::Other(format!("can't be read: {}", outcome.status)));
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
