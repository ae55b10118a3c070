//! Reservations of a namespace (Base 2.0, 8.19): which hosts may write and read.

use crate::command::Status;
use crate::command::log::ReservationNoticeKind;
use crate::command::reservation::{
    AcquireAction, RegisterAction, Registrant, ReleaseAction, Report, ReservationKind,
};

/// Identifier of a host, as its Connect has it. All controllers of a host are one registrant.
pub type HostId = [u8; 16];

/// Most registrants of a namespace. Each takes 24 bytes, and hosts choose their identifiers.
pub const REGISTRANTS_MAX: usize = 128;

/// What a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read.
    Read,
    /// To change data, or to flush them.
    Write,
}

/// What hosts learn of a change, and which of them lost their registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Hosts and what each is told.
    pub notices: Vec<(HostId, ReservationNoticeKind)>,
    /// Hosts that were preempted. Writes of theirs that have begun go on.
    pub preempted: Vec<HostId>,
}

/// Keys of a command: the host's own, and the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// CRKEY: must be that of the host's registration.
    pub current: u64,
    /// NRKEY or PRKEY: the new one, or the one to preempt.
    pub other: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    host: HostId,
    key: u64,
}

/// Reservations of a namespace. A plain value; controllers of different hosts share it behind a lock.
///
/// Invariants: a holder is a registrant; no host is registered twice; a reservation of a kind that all registrants hold
/// exists only while there are registrants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    generation: u32,
    registrants: Vec<Entry>,
    /// Kind, and the holder; of a kind that all registrants hold the host that acquired it.
    held: Option<(ReservationKind, HostId)>,
}

impl Reservations {
    /// Whether a command of `host` may be executed.
    #[must_use]
    pub fn allow(&self, host: &HostId, access: Access) -> bool {
        let Some((kind, holder)) = &self.held else { return true };
        holder == host
            || kind.is_for_registrants() && self.find(host).is_some()
            || access == Access::Read && kind.lets_read()
    }

    /// Executes a Reservation Register (7.3).
    ///
    /// # Errors
    /// With the status of the completion; nothing has changed then.
    pub fn register(
        &mut self,
        host: &HostId,
        action: RegisterAction,
        ignore_current: bool,
        keys: Keys,
    ) -> Result<Change, Status> {
        let known = self.find(host);
        let fits = known.filter(|entry| ignore_current || entry.key == keys.current);
        if action != RegisterAction::Unregister && keys.other == 0 {
            return Err(Status::INVALID_FIELD);
        }
        let change = match action {
            RegisterAction::Register => match known {
                Some(entry) if entry.key == keys.other => Change::default(),
                Some(_) => return Err(Status::RESERVATION_CONFLICT),
                None if self.registrants.len() == REGISTRANTS_MAX => {
                    return Err(Status::INTERNAL_ERROR);
                }
                None => {
                    self.registrants.push(Entry { host: *host, key: keys.other });
                    Change::default()
                }
            },
            RegisterAction::Unregister => {
                fits.ok_or(Status::RESERVATION_CONFLICT)?;
                let mut change = Change::default();
                self.remove(&[*host], &mut change);
                change
            }
            RegisterAction::Replace => {
                fits.ok_or(Status::RESERVATION_CONFLICT)?;
                let entries = self.registrants.iter_mut().filter(|entry| entry.host == *host);
                entries.for_each(|entry| entry.key = keys.other);
                Change::default()
            }
        };
        self.generation = self.generation.wrapping_add(1);
        Ok(change)
    }

    /// Executes a Reservation Acquire (7.2). For [`AcquireAction::PreemptAndAbort`] the caller must hold the completion
    /// back until no write of the hosts that were preempted goes on.
    ///
    /// # Errors
    /// With the status of the completion; nothing has changed then.
    pub fn acquire(
        &mut self,
        host: &HostId,
        action: AcquireAction,
        kind: ReservationKind,
        keys: Keys,
    ) -> Result<Change, Status> {
        self.check(host, keys.current)?;
        if action != AcquireAction::Acquire {
            return self.preempt(host, kind, keys.other);
        }
        match &self.held {
            None => self.held = Some((kind, *host)),
            Some((held, holder)) if *held == kind && (held.is_all() || holder == host) => {}
            Some(_) => return Err(Status::RESERVATION_CONFLICT),
        }
        Ok(Change::default())
    }

    /// Executes a Reservation Release (7.4).
    ///
    /// # Errors
    /// With the status of the completion; nothing has changed then.
    pub fn release(
        &mut self,
        host: &HostId,
        action: ReleaseAction,
        kind: Option<ReservationKind>,
        key: u64,
    ) -> Result<Change, Status> {
        self.check(host, key)?;
        let mut change = Change::default();
        if action == ReleaseAction::Clear {
            self.notify(host, ReservationNoticeKind::Preempted, &mut change);
            self.registrants.clear();
            self.held = None;
            self.generation = self.generation.wrapping_add(1);
            return Ok(change);
        }
        match &self.held {
            Some((held, holder)) if held.is_all() || holder == host => {
                if kind != Some(*held) {
                    return Err(Status::INVALID_FIELD);
                }
                if held.is_for_registrants() {
                    self.notify(host, ReservationNoticeKind::Released, &mut change);
                }
                self.held = None;
            }
            // A host that holds nothing has nothing to release, and succeeds.
            _ => {}
        }
        Ok(change)
    }

    /// The Reservation Status (7.5). `controller_of` returns the controller that a host uses, or FFFFh.
    pub fn report(&self, controller_of: impl Fn(&HostId) -> u16) -> Report {
        let registrant = |entry: &Entry| Registrant {
            controller_id: controller_of(&entry.host),
            is_holder: self.is_holder(&entry.host),
            key: entry.key,
            host_id: entry.host,
        };
        Report {
            generation: self.generation,
            kind: self.held.map(|(kind, _)| kind),
            registrants: self.registrants.iter().map(registrant).collect(),
        }
    }

    fn is_holder(&self, host: &HostId) -> bool {
        self.held.as_ref().is_some_and(|(kind, holder)| kind.is_all() || holder == host)
    }

    fn find(&self, host: &HostId) -> Option<Entry> {
        self.registrants.iter().find(|entry| entry.host == *host).copied()
    }

    /// The host must be a registrant with this key.
    fn check(&self, host: &HostId, key: u64) -> Result<(), Status> {
        let fits = self.find(host).is_some_and(|entry| entry.key == key);
        if fits { Ok(()) } else { Err(Status::RESERVATION_CONFLICT) }
    }

    fn preempt(
        &mut self,
        host: &HostId,
        kind: ReservationKind,
        key: u64,
    ) -> Result<Change, Status> {
        let with_key = |entry: &&Entry| entry.key == key;
        let victims: Vec<HostId> = match &self.held {
            Some((held, _)) if held.is_all() && key == 0 => {
                self.registrants.iter().map(|entry| entry.host).collect()
            }
            Some((held, _)) if !held.is_all() && key == 0 => return Err(Status::INVALID_FIELD),
            _ => self.registrants.iter().filter(with_key).map(|entry| entry.host).collect(),
        };
        let takes = self.held.as_ref().is_some_and(|(held, holder)| {
            if held.is_all() { key == 0 } else { victims.contains(holder) }
        });
        if victims.is_empty() {
            return Err(Status::RESERVATION_CONFLICT);
        }
        let mut change = Change::default();
        if takes {
            // The new reservation stands before the old holder is gone, so that no other host gets in between.
            let before = self.held.replace((kind, *host)).map(|(before, _)| before);
            let others: Vec<_> = victims.into_iter().filter(|victim| victim != host).collect();
            self.remove(&others, &mut change);
            self.preempted(&others, host, &mut change);
            if before != Some(kind) {
                self.notify(host, ReservationNoticeKind::Released, &mut change);
            }
        } else {
            self.remove(&victims, &mut change);
            self.preempted(&victims, host, &mut change);
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(change)
    }

    fn preempted(&self, victims: &[HostId], host: &HostId, change: &mut Change) {
        let others = victims.iter().filter(|victim| *victim != host);
        change
            .notices
            .extend(others.map(|&victim| (victim, ReservationNoticeKind::RegistrationPreempted)));
        change.preempted.extend(victims.iter().filter(|victim| *victim != host));
    }

    /// Removes registrants, and the reservation if that leaves it without a holder.
    fn remove(&mut self, hosts: &[HostId], change: &mut Change) {
        self.registrants.retain(|entry| !hosts.contains(&entry.host));
        let Some((kind, holder)) = self.held else { return };
        if !hosts.contains(&holder) {
            return;
        }
        if kind.is_all()
            && let Some(first) = self.registrants.first()
        {
            self.held = Some((kind, first.host));
            return;
        }
        self.held = None;
        if kind.is_for_registrants() {
            self.notify(&holder, ReservationNoticeKind::Released, change);
        }
    }

    /// Tells all registrants but `host`.
    fn notify(&self, host: &HostId, kind: ReservationNoticeKind, change: &mut Change) {
        let others = self.registrants.iter().filter(|entry| entry.host != *host);
        change.notices.extend(others.map(|entry| (entry.host, kind)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use {AcquireAction as A, RegisterAction as R, ReservationKind as K};

    const ONE: HostId = [1; 16];
    const TWO: HostId = [2; 16];
    const THREE: HostId = [3; 16];

    fn keys(current: u64, other: u64) -> Keys {
        Keys { current, other }
    }

    /// Hosts 1 to 3 are registered with keys 1 to 3.
    fn registered() -> Reservations {
        let mut reservations = Reservations::default();
        for (host, key) in [(ONE, 1), (TWO, 2), (THREE, 3)] {
            reservations.register(&host, R::Register, false, keys(0, key)).expect("new");
        }
        reservations
    }

    /// Whether host one holding a reservation of a kind lets a registrant and a stranger read and write.
    #[test]
    fn access_depends_on_kind_and_registration() {
        let cases = [
            (K::WriteExclusive, [true, false, true, false]),
            (K::ExclusiveAccess, [false; 4]),
            (K::WriteExclusiveRegistrants, [true, true, true, false]),
            (K::ExclusiveAccessRegistrants, [true, true, false, false]),
            (K::WriteExclusiveAll, [true, true, true, false]),
            (K::ExclusiveAccessAll, [true, true, false, false]),
        ];
        for (kind, expected) in cases {
            let mut reservations = registered();
            reservations.acquire(&ONE, A::Acquire, kind, keys(1, 0)).unwrap();
            let stranger = [9; 16];
            let found = [
                (TWO, Access::Read),
                (TWO, Access::Write),
                (stranger, Access::Read),
                (stranger, Access::Write),
            ]
            .map(|(host, access)| reservations.allow(&host, access));
            assert_eq!(found, expected, "{kind:?}");
            assert!(reservations.allow(&ONE, Access::Write));
        }
    }

    #[test]
    fn second_host_cannot_acquire_and_the_holder_cannot_change_the_kind() {
        let mut reservations = registered();
        let exclusive = K::WriteExclusive;
        reservations.acquire(&ONE, A::Acquire, exclusive, keys(1, 0)).unwrap();
        reservations.acquire(&ONE, A::Acquire, exclusive, keys(1, 0)).unwrap();
        let conflict = Err(Status::RESERVATION_CONFLICT);
        assert_eq!(reservations.acquire(&TWO, A::Acquire, exclusive, keys(2, 0)), conflict);
        assert_eq!(
            reservations.acquire(&ONE, A::Acquire, K::ExclusiveAccess, keys(1, 0)),
            conflict
        );
        assert_eq!(reservations.acquire(&TWO, A::Acquire, exclusive, keys(1, 0)), conflict);
        assert_eq!(reservations.acquire(&[9; 16], A::Acquire, exclusive, keys(0, 0)), conflict);
    }

    #[test]
    fn preempting_the_holder_takes_the_reservation_and_its_registration() {
        let mut reservations = registered();
        reservations.acquire(&ONE, A::Acquire, K::WriteExclusive, keys(1, 0)).unwrap();
        let change =
            reservations.acquire(&TWO, A::PreemptAndAbort, K::WriteExclusive, keys(2, 1)).unwrap();
        assert_eq!(change.preempted, [ONE]);
        assert_eq!(change.notices, [(ONE, ReservationNoticeKind::RegistrationPreempted)]);
        assert!(
            !reservations.allow(&ONE, Access::Write) && reservations.allow(&TWO, Access::Write)
        );
        let again = reservations.acquire(&TWO, A::Preempt, K::WriteExclusive, keys(2, 1));
        assert_eq!(again, Err(Status::RESERVATION_CONFLICT), "no such key any more");
        let zero = reservations.acquire(&TWO, A::Preempt, K::WriteExclusive, keys(2, 0));
        assert_eq!(zero, Err(Status::INVALID_FIELD));
    }

    #[test]
    fn preempting_another_registrant_leaves_the_holder() {
        let mut reservations = registered();
        reservations.acquire(&ONE, A::Acquire, K::WriteExclusive, keys(1, 0)).unwrap();
        let change =
            reservations.acquire(&TWO, A::Preempt, K::ExclusiveAccess, keys(2, 3)).unwrap();
        assert_eq!(change.preempted, [THREE]);
        assert!(
            reservations.allow(&ONE, Access::Write) && !reservations.allow(&TWO, Access::Write)
        );
    }

    #[test]
    fn holder_that_preempts_itself_changes_the_kind() {
        let mut reservations = registered();
        reservations.acquire(&ONE, A::Acquire, K::WriteExclusive, keys(1, 0)).unwrap();
        let change =
            reservations.acquire(&ONE, A::Preempt, K::ExclusiveAccess, keys(1, 1)).unwrap();
        assert!(change.preempted.is_empty());
        assert!(reservations.allow(&ONE, Access::Write) && !reservations.allow(&TWO, Access::Read));
    }

    #[test]
    fn preempting_all_registrants_with_key_zero_leaves_one() {
        let mut reservations = registered();
        reservations.acquire(&ONE, A::Acquire, K::WriteExclusiveAll, keys(1, 0)).unwrap();
        let change = reservations.acquire(&TWO, A::Preempt, K::WriteExclusive, keys(2, 0)).unwrap();
        assert_eq!(change.preempted, [ONE, THREE]);
        assert!(
            reservations.allow(&TWO, Access::Write) && !reservations.allow(&ONE, Access::Write)
        );
    }

    #[test]
    fn last_of_all_registrants_takes_the_reservation_along() {
        let mut reservations = registered();
        reservations.acquire(&ONE, A::Acquire, K::ExclusiveAccessAll, keys(1, 0)).unwrap();
        for (host, key) in [(ONE, 1), (TWO, 2)] {
            reservations.register(&host, R::Unregister, false, keys(key, 0)).unwrap();
            assert!(!reservations.allow(&[9; 16], Access::Read));
        }
        reservations.register(&THREE, R::Unregister, true, keys(0, 0)).unwrap();
        assert!(reservations.allow(&[9; 16], Access::Write));
    }

    #[test]
    fn release_needs_the_kind_and_clear_removes_all() {
        let mut reservations = registered();
        reservations.acquire(&ONE, A::Acquire, K::WriteExclusiveRegistrants, keys(1, 0)).unwrap();
        let wrong = reservations.release(&ONE, ReleaseAction::Release, Some(K::WriteExclusive), 1);
        assert_eq!(wrong, Err(Status::INVALID_FIELD));
        let idle = reservations.release(&TWO, ReleaseAction::Release, Some(K::WriteExclusive), 2);
        assert_eq!(idle, Ok(Change::default()), "a host that is no holder releases nothing");
        assert!(!reservations.allow(&[9; 16], Access::Write));
        let kind = Some(K::WriteExclusiveRegistrants);
        let change = reservations.release(&ONE, ReleaseAction::Release, kind, 1).unwrap();
        assert_eq!(change.notices.len(), 2);
        let change = reservations.release(&TWO, ReleaseAction::Clear, None, 2).unwrap();
        assert_eq!(change.notices.len(), 2);
        assert!(reservations.report(|_| 0).registrants.is_empty());
    }

    #[test]
    fn hosts_beyond_the_limit_are_not_registered() {
        let mut reservations = Reservations::default();
        for number in 0..REGISTRANTS_MAX as u128 {
            let host = number.to_le_bytes();
            reservations.register(&host, R::Register, false, keys(0, 1)).unwrap();
        }
        let more = reservations.register(&[0xff; 16], R::Register, false, keys(0, 1));
        assert_eq!(more, Err(Status::INTERNAL_ERROR));
    }

    proptest! {
        /// Whatever hosts do: a holder is a registrant, and what failed changed nothing.
        #[test]
        fn invariants_hold(steps in prop::collection::vec((0u8..4, 0u8..8, 0u64..4, 0u64..4, 0usize..6), 0..60)) {
            let mut reservations = Reservations::default();
            for (host, action, current, other, kind) in steps {
                let (host, kind, before) = ([host; 16], K::ALL[kind], reservations.clone());
                let keys = keys(current, other);
                let result = match action {
                    0 => reservations.register(&host, R::Register, false, keys),
                    1 => reservations.register(&host, R::Unregister, current == 0, keys),
                    2 => reservations.register(&host, R::Replace, current == 0, keys),
                    3 | 4 => reservations.acquire(&host, A::Acquire, kind, keys),
                    5 => reservations.acquire(&host, A::Preempt, kind, keys),
                    6 => reservations.release(&host, ReleaseAction::Release, Some(kind), current),
                    _ => reservations.release(&host, ReleaseAction::Clear, None, current),
                };
                match result {
                    Err(_) => prop_assert_eq!(&reservations, &before),
                    Ok(change) => prop_assert!(!change.preempted.contains(&host)),
                }
                let report = reservations.report(|_| 0);
                prop_assert_eq!(report.kind.is_some(), report.registrants.iter().any(|one| one.is_holder));
                let holders = report.registrants.iter().filter(|one| one.is_holder).count();
                prop_assert!(report.kind.is_none_or(|kind| kind.is_all() || holders == 1));
            }
        }
    }
}
