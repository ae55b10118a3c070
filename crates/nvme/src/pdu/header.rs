//! The common header, and what must hold of it before anything else of a PDU is believed.

use super::fault::{Ended, Fault};
use super::{COMMON_HEADER_BYTES, DIGEST_BYTES, TERM_REQ_BYTES};
use crate::bytes::u32_at;

/// Flag of a PDU with a header digest.
pub(crate) const HDGSTF: u8 = 1 << 0;
/// Flag of a PDU with a data digest.
pub(crate) const DDGSTF: u8 = 1 << 1;
/// Flag of the last data PDU of an R2T or of a command.
pub(crate) const LAST_PDU: u8 = 1 << 2;
/// Flag of the last C2HData of a command that succeeded and gets no response.
pub(crate) const SUCCESS: u8 = 1 << 3;

const FLAGS_AT: u32 = 1;
const HLEN_AT: u32 = 2;
const PDO_AT: u32 = 3;
const PLEN_AT: u32 = 4;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The initiator: sends commands.
    Host,
    /// The target: executes commands.
    Controller,
}

/// Type of a PDU (3.3, figure 10). Even values go from the host to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduKind {
    /// Initialize Connection Request.
    IcReq = 0,
    /// Initialize Connection Response.
    IcResp = 1,
    /// Terminate request of a host.
    H2cTermReq = 2,
    /// Terminate request of a controller.
    C2hTermReq = 3,
    /// A command, perhaps with data.
    CapsuleCmd = 4,
    /// A completion.
    CapsuleResp = 5,
    /// Data of a command, from the host.
    H2cData = 6,
    /// Data of a command, from the controller.
    C2hData = 7,
    /// A range of a command's data that the controller is ready to take.
    R2t = 9,
}

impl PduKind {
    /// The kind with this type byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::IcReq,
            1 => Self::IcResp,
            2 => Self::H2cTermReq,
            3 => Self::C2hTermReq,
            4 => Self::CapsuleCmd,
            5 => Self::CapsuleResp,
            6 => Self::H2cData,
            7 => Self::C2hData,
            9 => Self::R2t,
            _ => return None,
        })
    }

    /// Which side receives it.
    #[must_use]
    pub fn receiver(self) -> Side {
        if self as u8 & 1 == 0 { Side::Controller } else { Side::Host }
    }

    /// Bytes of its header, HLEN, without a digest.
    #[must_use]
    pub fn header_bytes(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            _ => 24,
        }
    }

    fn is_term_req(self) -> bool {
        matches!(self, Self::H2cTermReq | Self::C2hTermReq)
    }

    fn has_digests(self) -> bool {
        !self.is_term_req() && !matches!(self, Self::IcReq | Self::IcResp)
    }

    fn must_have_data(self) -> bool {
        matches!(self, Self::H2cData | Self::C2hData)
    }

    fn may_have_data(self) -> bool {
        self.must_have_data() || self == Self::CapsuleCmd
    }
}

/// Which digests a connection has (3.3.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// A CRC-32C behind every header.
    pub header: bool,
    /// A CRC-32C behind all data of a PDU.
    pub data: bool,
}

impl Digests {
    /// Bits of the DGST field.
    pub(crate) fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }
}

/// What a receiver expects of PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The receiving side.
    pub side: Side,
    /// Whether ICReq and ICResp were exchanged.
    pub initialized: bool,
    /// The digests of the connection.
    pub digests: Digests,
    /// Alignment of data in bytes, as this side asked for; a multiple of 4, at most [`super::ALIGN_BYTES_MAX`].
    pub align: u32,
    /// Most bytes of data in a command capsule.
    pub capsule_data_bytes_max: u32,
}

/// The first eight bytes of a PDU (3.6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    /// Type byte.
    pub kind: u8,
    /// Flags; their meaning depends on the type.
    pub flags: u8,
    /// Bytes of the header, without its digest.
    pub header_bytes: u8,
    /// Offset of the data from the start of the PDU, in bytes.
    pub data_at: u8,
    /// Bytes of the whole PDU.
    pub pdu_bytes: u32,
}

/// Where the parts of a PDU are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What it is.
    pub kind: PduKind,
    /// Its flags.
    pub flags: u8,
    /// Bytes of the header, without its digest.
    pub header_bytes: usize,
    /// Whether a digest follows the header.
    pub header_digest: bool,
    /// Bytes between header (and digest) and data.
    pub pad_bytes: u32,
    /// Bytes of data.
    pub data_bytes: u32,
    /// Whether a digest follows the data.
    pub data_digest: bool,
}

impl Layout {
    /// Whether it is the last data PDU of its R2T or command.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.flags & LAST_PDU != 0
    }

    /// Whether it ends its command with success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.flags & SUCCESS != 0
    }
}

impl CommonHeader {
    /// Reads the header.
    #[must_use]
    pub fn read(bytes: &[u8; COMMON_HEADER_BYTES]) -> Self {
        Self {
            kind: bytes[0],
            flags: bytes[1],
            header_bytes: bytes[2],
            data_at: bytes[3],
            pdu_bytes: u32_at(bytes, PLEN_AT as usize),
        }
    }

    /// The header as it goes over the wire.
    #[must_use]
    pub fn write(&self) -> [u8; COMMON_HEADER_BYTES] {
        let [a, b, c, d] = self.pdu_bytes.to_le_bytes();
        [self.kind, self.flags, self.header_bytes, self.data_at, a, b, c, d]
    }

    /// Checks the header against `rules`. Fields are checked in the order of their offsets, since a terminate request
    /// names the lowest one that is wrong (3.6.2.4).
    ///
    /// # Errors
    /// With the fault that 3.3 and 3.6.2 name; a terminate request of an impossible length is [`Ended::Malformed`].
    pub fn check(&self, rules: &Rules) -> Result<Layout, Ended> {
        let kind = self.kind_for(rules)?;
        if kind.is_term_req() {
            return self.term_req(kind);
        }
        let header_digest = kind.has_digests() && rules.digests.header;
        if kind.has_digests() && (self.flags & HDGSTF != 0) != header_digest {
            return Err(Fault::field_at(FLAGS_AT).into());
        }
        let head =
            u32::from(kind.header_bytes()) + if header_digest { DIGEST_BYTES as u32 } else { 0 };
        let has_data = kind.may_have_data() && self.pdu_bytes > head;
        let data_digest = has_data && rules.digests.data;
        let says_digest = self.flags & DDGSTF != 0;
        // Without data a capsule may say either: there is nothing that the digest could protect.
        if has_data && says_digest != data_digest
            || kind.may_have_data() && says_digest && !rules.digests.data
        {
            return Err(Fault::field_at(FLAGS_AT).into());
        }
        if kind == PduKind::C2hData && self.flags & (SUCCESS | LAST_PDU) == SUCCESS {
            return Err(Fault::field_at(FLAGS_AT).into());
        }
        if self.header_bytes != kind.header_bytes() {
            return Err(Fault::field_at(HLEN_AT).into());
        }
        let at = u32::from(self.data_at);
        if has_data && (at < head || at % rules.align != 0) {
            return Err(Fault::field_at(PDO_AT).into());
        }
        let data_bytes = self.data_bytes(kind, has_data, head, data_digest)?;
        if kind == PduKind::CapsuleCmd && data_bytes > rules.capsule_data_bytes_max {
            return Err(Fault::field_at(PLEN_AT).into());
        }
        Ok(Layout {
            kind,
            flags: self.flags,
            header_bytes: usize::from(kind.header_bytes()),
            header_digest,
            pad_bytes: if has_data { at - head } else { 0 },
            data_bytes,
            data_digest,
        })
    }

    /// The kind, if this side takes it now. ICReq and ICResp come once, and first.
    fn kind_for(&self, rules: &Rules) -> Result<PduKind, Fault> {
        let kind = PduKind::from_byte(self.kind).filter(|kind| kind.receiver() == rules.side);
        let kind = kind.ok_or(Fault::field_at(0))?;
        let initializes = matches!(kind, PduKind::IcReq | PduKind::IcResp);
        if !kind.is_term_req() && initializes == rules.initialized {
            return Err(Fault::SEQUENCE);
        }
        Ok(kind)
    }

    fn term_req(&self, kind: PduKind) -> Result<Layout, Ended> {
        let header_bytes = kind.header_bytes();
        if !TERM_REQ_BYTES.contains(&self.pdu_bytes) || self.header_bytes != header_bytes {
            return Err(Ended::Malformed);
        }
        Ok(Layout {
            kind,
            flags: 0,
            header_bytes: usize::from(header_bytes),
            header_digest: false,
            pad_bytes: 0,
            data_bytes: self.pdu_bytes - u32::from(header_bytes),
            data_digest: false,
        })
    }

    fn data_bytes(
        &self,
        kind: PduKind,
        has_data: bool,
        head: u32,
        digest: bool,
    ) -> Result<u32, Fault> {
        if !has_data {
            let fits = self.pdu_bytes == head && !kind.must_have_data();
            return if fits { Ok(0) } else { Err(Fault::field_at(PLEN_AT)) };
        }
        let behind = u32::from(self.data_at) + if digest { DIGEST_BYTES as u32 } else { 0 };
        match self.pdu_bytes.checked_sub(behind) {
            None | Some(0) => Err(Fault::field_at(PLEN_AT)),
            Some(bytes) => Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::FatalStatus;

    const RULES: Rules = Rules {
        side: Side::Controller,
        initialized: true,
        digests: Digests { header: true, data: true },
        align: 16,
        capsule_data_bytes_max: 4096,
    };

    fn header(kind: PduKind, flags: u8, data_at: u8, pdu_bytes: u32) -> CommonHeader {
        CommonHeader {
            kind: kind as u8,
            flags,
            header_bytes: kind.header_bytes(),
            data_at,
            pdu_bytes,
        }
    }

    fn fault(header: CommonHeader, rules: &Rules) -> Fault {
        match header.check(rules) {
            Err(Ended::Fault(fault)) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_of_a_capsule_with_digests_and_padding_are_found() {
        let good = header(PduKind::CapsuleCmd, HDGSTF | DDGSTF, 80, 80 + 512 + 4);
        let layout = good.check(&RULES).unwrap();
        assert_eq!((layout.pad_bytes, layout.data_bytes, layout.data_digest), (4, 512, true));
        assert_eq!(CommonHeader::read(&good.write()), good);
        let bare = header(PduKind::CapsuleCmd, HDGSTF, 0, 76).check(&RULES).unwrap();
        assert_eq!((bare.data_bytes, bare.data_digest), (0, false));
    }

    #[test]
    fn wrong_field_is_named_by_its_offset() {
        let both = HDGSTF | DDGSTF;
        let cases = [
            (header(PduKind::CapsuleResp, HDGSTF, 0, 28), 0),
            (header(PduKind::CapsuleCmd, 0, 0, 72), 1),
            (header(PduKind::CapsuleCmd, HDGSTF, 80, 80 + 512 + 4), 1),
            (CommonHeader { header_bytes: 64, ..header(PduKind::CapsuleCmd, HDGSTF, 0, 76) }, 2),
            (header(PduKind::H2cData, both, 28, 28 + 512 + 4), 3),
            (header(PduKind::H2cData, both, 16, 16 + 512 + 4), 3),
            (header(PduKind::H2cData, both, 32, 32 + 4), 4),
            (header(PduKind::H2cData, both, 0, 28), 4),
            (header(PduKind::CapsuleCmd, both, 80, 80 + 4100 + 4), 4),
            (header(PduKind::CapsuleCmd, HDGSTF, 0, 75), 4),
        ];
        for (header, offset) in cases {
            assert_eq!(fault(header, &RULES), Fault::field_at(offset), "{header:?}");
        }
        let unknown = CommonHeader { kind: 8, ..header(PduKind::CapsuleCmd, 0, 0, 72) };
        assert_eq!(fault(unknown, &RULES), Fault::field_at(0));
    }

    #[test]
    fn success_without_last_is_an_invalid_flag() {
        let rules = Rules { side: Side::Host, digests: Digests::default(), align: 4, ..RULES };
        let data = |flags| header(PduKind::C2hData, flags, 24, 24 + 512);
        assert_eq!(fault(data(SUCCESS), &rules), Fault::field_at(1));
        assert!(data(SUCCESS | LAST_PDU).check(&rules).is_ok());
    }

    #[test]
    fn initialization_comes_once_and_first() {
        let again = header(PduKind::IcReq, 0, 0, 128);
        assert_eq!(fault(again, &RULES).status, FatalStatus::SequenceError);
        let early = header(PduKind::CapsuleCmd, 0, 0, 72);
        let rules = Rules { initialized: false, digests: Digests::default(), ..RULES };
        assert_eq!(fault(early, &rules).status, FatalStatus::SequenceError);
        assert!(again.check(&rules).is_ok());
    }

    #[test]
    fn terminate_request_of_impossible_length_is_malformed() {
        for (bytes, good) in [(23, false), (24, true), (152, true), (153, false)] {
            let term = header(PduKind::H2cTermReq, 0, 0, bytes);
            assert_eq!(term.check(&RULES).is_ok(), good, "{bytes}");
        }
    }
}
