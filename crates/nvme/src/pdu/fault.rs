//! Why a connection ends.

/// Fatal Error Status of a terminate request (3.6.2.4, 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalStatus {
    /// 01h: a field of a header is invalid; the information is the offset of the field in bytes.
    InvalidHeaderField = 1,
    /// 02h: a PDU that the protocol does not allow at this point.
    SequenceError = 2,
    /// 03h: the header digest does not fit; the information is the digest that was received.
    HeaderDigestError = 3,
    /// 04h: data beyond the command's buffer (to the host) or beyond the R2T's range (to the controller).
    OutOfRange = 4,
    /// 05h: more R2T than MAXR2T (to the host), or more data in a PDU than MAXH2CDATA (to the controller).
    LimitExceeded = 5,
    /// 06h: a parameter that this side does not support; the information is the offset of the field in bytes.
    UnsupportedParameter = 6,
}

/// A mistake of the peer from which the connection does not recover (3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status:?} ({info:#x})")]
pub struct Fault {
    /// What is wrong.
    pub status: FatalStatus,
    /// Fatal Error Information; what it means depends on the status.
    pub info: u32,
}

impl Fault {
    /// The field at `offset`, in bytes from the start of the PDU, is invalid.
    #[must_use]
    pub const fn field_at(offset: u32) -> Self {
        Self { status: FatalStatus::InvalidHeaderField, info: offset }
    }

    pub(crate) const fn unsupported(offset: u32) -> Self {
        Self { status: FatalStatus::UnsupportedParameter, info: offset }
    }

    /// A PDU that the protocol does not allow at this point.
    pub const SEQUENCE: Self = Self { status: FatalStatus::SequenceError, info: 0 };
    /// Data outside of the range they belong to.
    pub const OUT_OF_RANGE: Self = Self { status: FatalStatus::OutOfRange, info: 0 };
    /// More R2T, or more data in a PDU, than was agreed.
    pub const LIMIT: Self = Self { status: FatalStatus::LimitExceeded, info: 0 };
}

/// What a terminate request says (3.6.2.4, 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermReq {
    /// Fatal Error Status; values above 6 are reserved.
    pub status: u16,
    /// Fatal Error Information.
    pub info: u32,
}

/// The end of a connection, as this side sees it. No further byte is taken; what is left to send may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The peer made a mistake. A terminate request that says so is the last thing to send.
    #[error("the peer broke the protocol: {0}")]
    Fault(Fault),
    /// The peer sent a terminate request; its status and information are as received.
    #[error("the peer ended the connection: status {:#x}, information {:#x}", .0.status, .0.info)]
    ByPeer(TermReq),
    /// The peer sent a terminate request of an impossible length; nothing is answered (3.5).
    #[error("the peer sent a malformed terminate request")]
    Malformed,
    /// The controller of this connection was reset, shut down or lost its admin connection.
    #[error("the controller is gone")]
    ControllerGone,
    /// This side ended the connection on its own.
    #[error("closed")]
    Closed,
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
