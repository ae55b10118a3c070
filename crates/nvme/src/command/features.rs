//! Set Features and Get Features (5.27, 5.15), Keep Alive (5.18), Abort (5.1) and Asynchronous Event Request (5.2).

use super::{Command, admin_opcode};

/// A feature (5.27.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Volatile Write Cache.
    VolatileWriteCache = 0x06,
    /// Number of Queues.
    NumberOfQueues = 0x07,
    /// Asynchronous Event Configuration.
    AsyncEvents = 0x0b,
    /// Keep Alive Timer.
    KeepAlive = 0x0f,
    /// Host Identifier.
    HostId = 0x81,
    /// Reservation Notification Mask.
    ReservationMask = 0x82,
    /// Reservation Persistence.
    ReservationPersistence = 0x83,
}

impl Feature {
    /// The feature with this identifier.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0x06 => Self::VolatileWriteCache,
            0x07 => Self::NumberOfQueues,
            0x0b => Self::AsyncEvents,
            0x0f => Self::KeepAlive,
            0x81 => Self::HostId,
            0x82 => Self::ReservationMask,
            0x83 => Self::ReservationPersistence,
            _ => return None,
        })
    }
}

/// Set Features without data: dword 11 is `value`.
#[must_use]
pub fn set(feature: Feature, value: u32) -> Command {
    Command::new(admin_opcode::SET_FEATURES).with_dword(10, feature as u32).with_dword(11, value)
}

/// Get Features: the current value is the result of the completion.
#[must_use]
pub fn get(feature: Feature) -> Command {
    Command::new(admin_opcode::GET_FEATURES).with_dword(10, feature as u32)
}

/// Asks for this many I/O queues, at least 1. The result of the completion goes to [`queues_granted`].
#[must_use]
pub fn set_queues(queues: u16) -> Command {
    let wanted = u32::from(queues.max(1) - 1);
    set(Feature::NumberOfQueues, wanted << 16 | wanted)
}

/// How many I/O queues the controller has for this host.
#[must_use]
pub fn queues_granted(result: u64) -> u16 {
    let (submission, completion) = (result as u16, (result >> 16) as u16);
    submission.min(completion).saturating_add(1)
}

/// The result of the completion for `queues`, at least 1.
#[must_use]
pub fn queues_result(queues: u16) -> u64 {
    let queues = u64::from(queues.max(1) - 1);
    queues << 16 | queues
}

/// Keep Alive.
#[must_use]
pub fn keep_alive() -> Command {
    Command::new(admin_opcode::KEEP_ALIVE)
}

/// Asynchronous Event Request. Its completion comes when there is an event; its result is an [`AsyncEvent`].
#[must_use]
pub fn async_event_request() -> Command {
    Command::new(admin_opcode::ASYNC_EVENT_REQUEST)
}

/// Bits of the Asynchronous Event Configuration and of OAES.
pub mod async_event {
    /// Namespaces came, went or changed.
    pub const NAMESPACES: u32 = 1 << 8;
    /// The discovery log page changed.
    pub const DISCOVERY: u32 = 1 << 31;
}

/// What the result of an Asynchronous Event Request says (5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// Namespaces came, went or changed; [`super::log::Page::ChangedNamespaces`] names them.
    Namespaces,
    /// The discovery log page changed.
    Discovery,
    /// A reservation changed; [`super::log::Page::Reservation`] has the notification.
    Reservation,
    /// Anything else: type, information and log page.
    Other {
        /// Type of the event.
        kind: u8,
        /// What happened.
        info: u8,
        /// The log page that tells more.
        page: u8,
    },
}

impl AsyncEvent {
    /// Reads the result of a completion.
    #[must_use]
    pub fn read(result: u64) -> Self {
        let (kind, info, page) = (result as u8 & 7, (result >> 8) as u8, (result >> 16) as u8);
        match (kind, info) {
            (2, 0) => Self::Namespaces,
            (2, 0xf0) => Self::Discovery,
            (6, 0) => Self::Reservation,
            _ => Self::Other { kind, info, page },
        }
    }

    /// The result of the completion.
    #[must_use]
    pub fn result(self) -> u64 {
        let (kind, info, page) = match self {
            Self::Namespaces => (2, 0, 0x04),
            Self::Discovery => (2, 0xf0, 0x70),
            Self::Reservation => (6, 0, 0x80),
            Self::Other { kind, info, page } => (kind, info, page),
        };
        u64::from(kind & 7) | u64::from(info) << 8 | u64::from(page) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_queues_is_zeroes_based() {
        assert_eq!(set_queues(4).dword(11), 0x0003_0003);
        assert_eq!(queues_granted(queues_result(4)), 4);
        assert_eq!(queues_granted(0x0001_0007), 2);
    }

    #[test]
    fn events_are_read_as_written() {
        let other = AsyncEvent::Other { kind: 1, info: 2, page: 2 };
        for event in [AsyncEvent::Namespaces, AsyncEvent::Discovery, AsyncEvent::Reservation, other]
        {
            assert_eq!(AsyncEvent::read(event.result()), event);
        }
    }

    #[test]
    fn every_feature_has_its_identifier() {
        for id in 0..=u8::MAX {
            assert!(Feature::from_id(id).is_none_or(|feature| feature as u8 == id));
        }
    }
}
