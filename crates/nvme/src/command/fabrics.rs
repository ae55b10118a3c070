//! Fabrics commands (6): Connect, Property Get and Property Set; and the controller properties (3.1.3).

use super::{Command, admin_opcode};
use crate::bytes::{array, put, put_text, text, u16_at, u32_at, u64_at};

/// Offset of the type of a Fabrics command.
pub(crate) const TYPE_AT: usize = 4;
/// Type of Property Set.
pub const PROPERTY_SET: u8 = 0x00;
/// Type of Connect.
pub const CONNECT: u8 = 0x01;
/// Type of Property Get.
pub const PROPERTY_GET: u8 = 0x04;

/// Bytes of the data of a Connect (6.3, figure 380).
pub const CONNECT_DATA_BYTES: usize = 1024;
/// Longest NVMe Qualified Name, in bytes (4.5).
pub const NQN_BYTES_MAX: usize = 223;
/// Name of the discovery service (3.1.2.3).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Controller identifier of a Connect to any controller of a subsystem: the dynamic controller model.
pub const ANY_CONTROLLER: u16 = 0xffff;

const QID_AT: usize = 42;
const SQSIZE_AT: usize = 44;
const CATTR_AT: usize = 46;
const KATO_AT: usize = 48;
const CNTLID_AT: usize = 16;
const SUBNQN_AT: usize = 256;
const HOSTNQN_AT: usize = 512;
const NQN_FIELD_BYTES: usize = 256;
/// CATTR: the queue has no flow control by its head.
const NO_FLOW_CONTROL: u8 = 1 << 2;

/// The command of a Connect (6.3, figure 379).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Identifier of the queue; 0 is the Admin Queue.
    pub queue_id: u16,
    /// Entries of the queue, at least 2. On the wire it is 0's based.
    pub entries: u32,
    /// Whether completions do not say where the head of the queue is.
    pub no_flow_control: bool,
    /// Keep-alive timeout in milliseconds, of the Admin Queue; 0 for none.
    pub keep_alive_ms: u32,
}

impl Connect {
    /// The command.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = fabrics(CONNECT);
        let sqsize = self.entries.saturating_sub(1).min(u32::from(u16::MAX)) as u16;
        let [low, high] = self.queue_id.to_le_bytes();
        command.set_byte(QID_AT, low);
        command.set_byte(QID_AT + 1, high);
        let [low, high] = sqsize.to_le_bytes();
        command.set_byte(SQSIZE_AT, low);
        command.set_byte(SQSIZE_AT + 1, high);
        command.set_byte(CATTR_AT, if self.no_flow_control { NO_FLOW_CONTROL } else { 0 });
        command.with_dword(12, self.keep_alive_ms)
    }

    /// Reads the command. `None` if its record format is not 0.
    #[must_use]
    pub fn read(command: &Command) -> Option<Self> {
        let bytes = command.as_bytes();
        (u16_at(bytes, 40) == 0).then(|| Self {
            queue_id: u16_at(bytes, QID_AT),
            entries: u32::from(u16_at(bytes, SQSIZE_AT)) + 1,
            no_flow_control: bytes[CATTR_AT] & NO_FLOW_CONTROL != 0,
            keep_alive_ms: u32_at(bytes, KATO_AT),
        })
    }
}

/// The data of a Connect (6.3, figure 380).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// Host identifier; not all zeros.
    pub host_id: [u8; 16],
    /// [`ANY_CONTROLLER`] for the Admin Queue; else the controller that the Admin Queue's Connect returned.
    pub controller_id: u16,
    /// Name of the subsystem.
    pub subsystem_nqn: String,
    /// Name of the host.
    pub host_nqn: String,
}

impl ConnectData {
    /// The data as they go over the wire. Names are cut at [`NQN_BYTES_MAX`].
    #[must_use]
    pub fn write(&self) -> Box<[u8]> {
        let mut bytes = vec![0; CONNECT_DATA_BYTES].into_boxed_slice();
        put(&mut bytes, 0, self.host_id);
        put(&mut bytes, CNTLID_AT, self.controller_id.to_le_bytes());
        put_text(&mut bytes[SUBNQN_AT..SUBNQN_AT + NQN_BYTES_MAX], &self.subsystem_nqn, 0);
        put_text(&mut bytes[HOSTNQN_AT..HOSTNQN_AT + NQN_BYTES_MAX], &self.host_nqn, 0);
        bytes
    }

    /// Reads the data.
    ///
    /// # Errors
    /// With the offset of the field that is not acceptable: a name without an end, or not of printable ASCII.
    pub fn read(bytes: &[u8; CONNECT_DATA_BYTES]) -> Result<Self, u16> {
        let nqn = |at: usize| {
            let field = &bytes[at..at + NQN_FIELD_BYTES];
            let end = field.iter().position(|&byte| byte == 0).filter(|&end| end <= NQN_BYTES_MAX);
            let end = end.ok_or(at as u16)?;
            let printable = field[..end].iter().all(|byte| byte.is_ascii_graphic());
            if end > 0 && printable { Ok(text(&field[..end])) } else { Err(at as u16) }
        };
        Ok(Self {
            host_id: array(bytes, 0),
            controller_id: u16_at(bytes, CNTLID_AT),
            subsystem_nqn: nqn(SUBNQN_AT)?,
            host_nqn: nqn(HOSTNQN_AT)?,
        })
    }
}

/// What a Connect that failed says about the parameter at fault (6.3, figure 381).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidParameter {
    /// Offset of the parameter, in bytes.
    pub offset: u16,
    /// Whether it is in the data rather than in the command.
    pub in_data: bool,
}

impl InvalidParameter {
    /// The parameter is the host identifier.
    pub const HOST_ID: Self = Self { offset: 0, in_data: true };
    /// The parameter is the controller identifier.
    pub const CONTROLLER_ID: Self = Self { offset: CNTLID_AT as u16, in_data: true };
    /// The parameter is the name of the subsystem.
    pub const SUBSYSTEM_NQN: Self = Self { offset: SUBNQN_AT as u16, in_data: true };
    /// The parameter is the identifier of the queue.
    pub const QUEUE_ID: Self = Self { offset: QID_AT as u16, in_data: false };
    /// The parameter is the size of the queue.
    pub const QUEUE_SIZE: Self = Self { offset: SQSIZE_AT as u16, in_data: false };

    /// The result of the completion.
    #[must_use]
    pub fn result(self) -> u64 {
        u64::from(self.offset) | u64::from(self.in_data) << 16
    }

    /// Reads the result of a completion.
    #[must_use]
    pub fn read(result: u64) -> Self {
        Self { offset: result as u16, in_data: result >> 16 & 1 != 0 }
    }
}

impl std::fmt::Display for InvalidParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.in_data { "data" } else { "command" };
        write!(f, "byte {} of the {place}", self.offset)
    }
}

/// A controller property that exists over fabrics (3.1.3, figure 35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Controller Capabilities, 64 bits.
    Capabilities = 0x00,
    /// Version.
    Version = 0x08,
    /// Controller Configuration.
    Configuration = 0x14,
    /// Controller Status.
    Status = 0x1c,
    /// NVM Subsystem Reset.
    SubsystemReset = 0x20,
}

impl Property {
    /// The property at this offset.
    #[must_use]
    pub fn at(offset: u32) -> Option<Self> {
        Some(match offset {
            0x00 => Self::Capabilities,
            0x08 => Self::Version,
            0x14 => Self::Configuration,
            0x1c => Self::Status,
            0x20 => Self::SubsystemReset,
            _ => return None,
        })
    }

    /// Whether it has 8 bytes rather than 4.
    #[must_use]
    pub fn is_long(self) -> bool {
        self == Self::Capabilities
    }
}

/// A Property Get (6.5). The result of its completion is the value.
#[must_use]
pub fn property_get(property: Property) -> Command {
    let mut command = fabrics(PROPERTY_GET);
    command.set_byte(40, u8::from(property.is_long()));
    command.with_dword(11, property as u32)
}

/// A Property Set (6.6) of a property with 4 bytes.
#[must_use]
pub fn property_set(property: Property, value: u32) -> Command {
    fabrics(PROPERTY_SET).with_dword(11, property as u32).with_dword(12, value)
}

/// What a Property Get or Set names: the property, whether it says 8 bytes, and the value to set.
#[must_use]
pub fn property_of(command: &Command) -> Option<(Property, u64)> {
    let property = Property::at(command.dword(11))?;
    let long = command.byte(40) & 7;
    (long == u8::from(property.is_long())).then(|| (property, u64_at(command.as_bytes(), 48)))
}

fn fabrics(kind: u8) -> Command {
    let mut command = Command::new(admin_opcode::FABRICS);
    command.set_byte(TYPE_AT, kind);
    command
}

/// Controller Capabilities (3.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Most entries of a queue; at least 2. On the wire it is 0's based (MQES).
    pub queue_entries_max: u32,
    /// Longest time from enabling to ready, in units of 500 milliseconds (TO).
    pub timeout_500ms: u8,
    /// Logarithm of the smallest memory page to the base 2, at least 12: the unit of MDTS (MPSMIN).
    pub page_shift_min: u8,
}

impl Capabilities {
    /// Reads the property.
    #[must_use]
    pub fn read(value: u64) -> Self {
        Self {
            queue_entries_max: (value & 0xffff) as u32 + 1,
            timeout_500ms: (value >> 24) as u8,
            page_shift_min: 12 + (value >> 48 & 0xf) as u8,
        }
    }

    /// The property: contiguous queues, the NVM command set.
    #[must_use]
    pub fn write(&self) -> u64 {
        let entries = u64::from(self.queue_entries_max.clamp(2, 1 << 16) - 1);
        let page = u64::from(self.page_shift_min.saturating_sub(12) & 0xf);
        entries | 1 << 16 | u64::from(self.timeout_500ms) << 24 | 1 << 37 | page << 48
    }
}

/// Controller Configuration (3.1.3.5): bits that this crate uses.
pub mod configuration {
    /// Enable.
    pub const ENABLE: u32 = 1;
    /// Shutdown notification, two bits: 01b is a normal shutdown.
    pub const SHUTDOWN_SHIFT: u32 = 14;
    /// Entry sizes of 64 and 16 bytes, the NVM command set, pages of 4 KiB.
    pub const NVM: u32 = 6 << 16 | 4 << 20;
    /// Ask for a normal shutdown.
    pub const SHUTDOWN_NORMAL: u32 = 1 << SHUTDOWN_SHIFT;
}

/// Controller Status (3.1.3.6): bits that this crate uses.
pub mod controller_status {
    /// Ready.
    pub const READY: u32 = 1;
    /// Controller fatal status.
    pub const FATAL: u32 = 1 << 1;
    /// Shutdown is complete; the field has two bits.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;
    /// Both bits of the shutdown status.
    pub const SHUTDOWN_MASK: u32 = 3 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_is_read_as_written() {
        let connect =
            Connect { queue_id: 3, entries: 128, no_flow_control: true, keep_alive_ms: 15_000 };
        let command = connect.command();
        assert_eq!(Connect::read(&command), Some(connect));
        assert_eq!(&command.as_bytes()[40..52], &[0, 0, 3, 0, 127, 0, 4, 0, 0x98, 0x3a, 0, 0]);
        assert_eq!(command.as_bytes()[..5], [0x7f, 0x40, 0, 0, 1]);
    }

    #[test]
    fn connect_data_are_read_as_written() {
        let data = ConnectData {
            host_id: [7; 16],
            controller_id: ANY_CONTROLLER,
            subsystem_nqn: DISCOVERY_NQN.into(),
            host_nqn: "nqn.2014-08.org.nvmexpress:uuid:1".into(),
        };
        let bytes = data.write();
        assert_eq!(ConnectData::read(&array(&bytes, 0)), Ok(data));
    }

    #[test]
    fn name_without_an_end_is_refused_at_its_offset() {
        let mut bytes = [b'n'; CONNECT_DATA_BYTES];
        assert_eq!(ConnectData::read(&bytes), Err(256));
        bytes[256 + 20] = 0;
        assert_eq!(ConnectData::read(&bytes), Err(512));
        bytes[512 + 224] = 0;
        assert_eq!(ConnectData::read(&bytes), Err(512));
        bytes[512 + 223] = 0;
        assert!(ConnectData::read(&bytes).is_ok());
        bytes[600] = b' ';
        assert_eq!(ConnectData::read(&bytes), Err(512));
    }

    #[test]
    fn properties_are_read_as_written() {
        let capabilities =
            Capabilities { queue_entries_max: 1024, timeout_500ms: 15, page_shift_min: 12 };
        assert_eq!(Capabilities::read(capabilities.write()), capabilities);
        let get = property_get(Property::Capabilities);
        assert_eq!(property_of(&get), Some((Property::Capabilities, 0)));
        let set = property_set(Property::Configuration, 0x0046_0001);
        assert_eq!(property_of(&set), Some((Property::Configuration, 0x0046_0001)));
        assert_eq!(property_of(&get.with_dword(11, 0x14)), None);
    }
}
