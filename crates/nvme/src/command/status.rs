use std::fmt;

/// Status of a completion (3.3.3.2.1): the status field without its phase bit.
///
/// ```
/// use terrace_nvme::command::Status;
///
/// assert!(Status::SUCCESS.is_success());
/// assert_eq!(Status::CONNECT_INVALID_PARAMETERS.type_and_code(), (1, 0x82));
/// assert!(Status::LBA_OUT_OF_RANGE.do_not_retry().is(Status::LBA_OUT_OF_RANGE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(u16);

/// Bit 14: the same command will fail again.
const DNR: u16 = 1 << 14;
/// Bits of the status code and its type.
const CODE: u16 = 0x7ff;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $kind:literal, $code:literal, $text:literal;)+) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($kind << 8 | $code);)+

            fn text(self) -> Option<&'static str> {
                match self.0 & CODE {
                    $(code if code == $kind << 8 | $code => Some($text),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// The command succeeded.
    SUCCESS = 0, 0x00, "success";
    /// The opcode is not supported.
    INVALID_OPCODE = 0, 0x01, "invalid opcode";
    /// A field is reserved or not supported.
    INVALID_FIELD = 0, 0x02, "invalid field";
    /// The data could not be transferred.
    DATA_TRANSFER_ERROR = 0, 0x04, "data transfer error";
    /// An error inside the controller.
    INTERNAL_ERROR = 0, 0x06, "internal error";
    /// The command was aborted by an Abort.
    ABORT_REQUESTED = 0, 0x07, "abort requested";
    /// The namespace does not exist, or its format does not fit.
    INVALID_NAMESPACE = 0, 0x0b, "invalid namespace or format";
    /// The command is not allowed now, as before Connect.
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, "command sequence error";
    /// The length of the data descriptor does not fit the command.
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, "data SGL length invalid";
    /// The type of the data descriptor is not supported.
    SGL_TYPE_INVALID = 0, 0x11, "SGL descriptor type invalid";
    /// The offset of the data descriptor does not fit the capsule.
    SGL_OFFSET_INVALID = 0, 0x16, "SGL offset invalid";
    /// The host identifier is not acceptable.
    HOST_ID_INCONSISTENT = 0, 0x18, "host identifier inconsistent format";
    /// The keep-alive timeout is not acceptable.
    KEEP_ALIVE_INVALID = 0, 0x1a, "keep alive timeout invalid";
    /// The command was aborted by a Preempt and Abort.
    PREEMPTED = 0, 0x1b, "aborted due to preempt and abort";
    /// The namespace is write protected.
    WRITE_PROTECTED = 0, 0x20, "namespace is write protected";
    /// The data were damaged on their way; the same command may succeed.
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "transient transport error";
    /// Blocks beyond the end of the namespace.
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA out of range";
    /// The namespace has no room.
    CAPACITY_EXCEEDED = 0, 0x81, "capacity exceeded";
    /// The namespace is not ready.
    NAMESPACE_NOT_READY = 0, 0x82, "namespace not ready";
    /// A reservation of another host forbids the command.
    RESERVATION_CONFLICT = 0, 0x83, "reservation conflict";
    /// The queue identifier is not valid.
    INVALID_QUEUE_ID = 1, 0x01, "invalid queue identifier";
    /// More Asynchronous Event Requests than the controller takes.
    ASYNC_EVENT_LIMIT = 1, 0x05, "asynchronous event request limit exceeded";
    /// The log page is not supported.
    INVALID_LOG_PAGE = 1, 0x09, "invalid log page";
    /// The feature cannot be saved.
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "feature not saveable";
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "feature not changeable";
    /// Connect: the record format is not supported.
    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80, "connect: incompatible format";
    /// Connect: the controller has another association, or there is no room for one.
    CONNECT_CONTROLLER_BUSY = 1, 0x81, "connect: controller busy";
    /// Connect: a parameter is wrong; the result names it.
    CONNECT_INVALID_PARAMETERS = 1, 0x82, "connect: invalid parameters";
    /// Connect: the host is not allowed.
    CONNECT_INVALID_HOST = 1, 0x84, "connect: invalid host";
    /// The log page has changed while it was read in parts.
    DISCOVERY_RESTART = 1, 0x90, "discover restart";
    /// The host must authenticate.
    AUTHENTICATION_REQUIRED = 1, 0x91, "authentication required";
    /// The medium did not take the data.
    WRITE_FAULT = 2, 0x80, "write fault";
    /// The medium cannot return the data.
    UNRECOVERED_READ_ERROR = 2, 0x81, "unrecovered read error";
    /// The host has no access.
    ACCESS_DENIED = 2, 0x86, "access denied";
}

impl Status {
    /// A status from the 16 bits at the end of a completion, whose lowest bit is not part of it.
    #[must_use]
    pub const fn from_wire(field: u16) -> Self {
        Self(field >> 1)
    }

    /// The 16 bits at the end of a completion.
    #[must_use]
    pub const fn to_wire(self) -> u16 {
        self.0 << 1
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & CODE == 0
    }

    /// The same status with the bit set that says that the same command will fail again.
    #[must_use]
    pub const fn do_not_retry(self) -> Self {
        Self(self.0 | DNR)
    }

    /// Whether the same command will fail again.
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 & DNR != 0
    }

    /// Whether type and code are those of `other`, whatever the other bits say.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.0 & CODE == other.0 & CODE
    }

    /// Status Code Type and Status Code.
    #[must_use]
    pub const fn type_and_code(self) -> (u8, u8) {
        ((self.0 >> 8 & 7) as u8, self.0 as u8)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = self.type_and_code();
        match self.text() {
            Some(text) => write!(f, "{text} ({kind:x}/{code:02x})"),
            None => write!(f, "status {kind:x}/{code:02x}"),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", if self.is_final() { ", final" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_stands_above_the_phase_bit() {
        let status = Status::CONNECT_INVALID_PARAMETERS.do_not_retry();
        assert_eq!(status.to_wire(), 0x8304);
        assert_eq!(Status::from_wire(0x8305), status);
        assert_eq!(format!("{status:?}"), "connect: invalid parameters (1/82), final");
        assert_eq!(format!("{}", Status::from_wire(0x1ffe)), "status 7/ff");
    }
}
