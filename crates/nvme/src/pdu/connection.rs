//! PDUs about the connection itself: ICReq, ICResp and the terminate requests.

use super::fault::{Fault, TermReq};
use super::header::{CommonHeader, Digests, PduKind};
use super::{ALIGN_BYTES_MAX, HEADER_BYTES_MAX, TERM_REQ_BYTES};
use crate::bytes::{array, put, u16_at, u32_at};

const PFV_AT: u32 = 8;
const PDA_AT: u32 = 10;
const DGST_AT: u32 = 11;
const LIMIT_AT: u32 = 12;
const FES_AT: usize = 8;
const FEI_AT: usize = 10;

/// Initialize Connection Request (3.6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcReq {
    /// Alignment in bytes of data to the host (HPDA); a multiple of 4 up to 128.
    pub align: u32,
    /// Digests that the host wants.
    pub digests: Digests,
    /// Most outstanding R2T of a command; at least 1. On the wire it is 0's based.
    pub r2t_max: u32,
}

/// Initialize Connection Response (3.6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcResp {
    /// Alignment in bytes of data to the controller (CPDA); a multiple of 4 up to 128.
    pub align: u32,
    /// Digests that the connection has.
    pub digests: Digests,
    /// Most bytes of data in one H2CData (MAXH2CDATA); a multiple of 4.
    pub h2c_data_bytes_max: u32,
}

fn write(kind: PduKind, align: u32, digests: Digests, limit: u32) -> [u8; HEADER_BYTES_MAX] {
    let bytes = HEADER_BYTES_MAX as u32;
    let header_bytes = kind.header_bytes();
    let common =
        CommonHeader { kind: kind as u8, flags: 0, header_bytes, data_at: 0, pdu_bytes: bytes };
    let mut pdu = [0; HEADER_BYTES_MAX];
    put(&mut pdu, 0, common.write());
    debug_assert!(align.is_multiple_of(4) && (4..=ALIGN_BYTES_MAX).contains(&align));
    pdu[PDA_AT as usize] = (align / 4 - 1) as u8;
    pdu[DGST_AT as usize] = digests.bits();
    put(&mut pdu, LIMIT_AT as usize, limit.to_le_bytes());
    pdu
}

/// Version, alignment and digests, which both PDUs have alike.
fn read(pdu: &[u8; HEADER_BYTES_MAX]) -> Result<(u32, Digests), Fault> {
    if u16_at(pdu, PFV_AT as usize) != 0 {
        return Err(Fault::unsupported(PFV_AT));
    }
    let align = (u32::from(pdu[PDA_AT as usize]) + 1) * 4;
    if align > ALIGN_BYTES_MAX {
        return Err(Fault::field_at(PDA_AT));
    }
    Ok((align, Digests::from_bits(pdu[DGST_AT as usize])))
}

impl IcReq {
    /// The PDU.
    #[must_use]
    pub fn write(&self) -> [u8; HEADER_BYTES_MAX] {
        write(PduKind::IcReq, self.align, self.digests, self.r2t_max.saturating_sub(1))
    }

    /// Reads the PDU, whose common header was checked.
    ///
    /// # Errors
    /// With "Unsupported Parameter" for a version other than 0, and "Invalid PDU Header Field" for an alignment above
    /// 128 bytes (3.1).
    pub fn read(pdu: &[u8; HEADER_BYTES_MAX]) -> Result<Self, Fault> {
        let (align, digests) = read(pdu)?;
        let r2t_max = u32_at(pdu, LIMIT_AT as usize).saturating_add(1);
        Ok(Self { align, digests, r2t_max })
    }
}

impl IcResp {
    /// The PDU.
    #[must_use]
    pub fn write(&self) -> [u8; HEADER_BYTES_MAX] {
        write(PduKind::IcResp, self.align, self.digests, self.h2c_data_bytes_max)
    }

    /// Reads the PDU, whose common header was checked, as the answer to `request`.
    ///
    /// # Errors
    /// As [`IcReq::read`]; also "Invalid PDU Header Field" for a digest that `request` did not ask for (3.3.1.1), and
    /// for a MAXH2CDATA of 0 or that is not a multiple of 4.
    pub fn read(pdu: &[u8; HEADER_BYTES_MAX], request: &IcReq) -> Result<Self, Fault> {
        let (align, digests) = read(pdu)?;
        if digests.bits() & !request.digests.bits() != 0 {
            return Err(Fault::field_at(DGST_AT));
        }
        let h2c_data_bytes_max = u32_at(pdu, LIMIT_AT as usize);
        if h2c_data_bytes_max == 0 || !h2c_data_bytes_max.is_multiple_of(4) {
            return Err(Fault::field_at(LIMIT_AT));
        }
        Ok(Self { align, digests, h2c_data_bytes_max })
    }
}

impl TermReq {
    /// Reads the header of the PDU.
    #[must_use]
    pub fn read(header: &[u8]) -> Self {
        Self { status: u16_at(header, FES_AT), info: u32::from_le_bytes(array(header, FEI_AT)) }
    }

    /// The terminate request for `fault`: `kind` is the sender's, `wrong` is the header of the PDU at fault, of which
    /// at most 128 bytes are sent along. Returns the PDU's bytes and their number.
    #[must_use]
    pub fn write(kind: PduKind, fault: &Fault, wrong: &[u8]) -> ([u8; 152], usize) {
        let wrong = &wrong[..wrong.len().min(HEADER_BYTES_MAX)];
        let head = usize::from(kind.header_bytes());
        let pdu_bytes = head + wrong.len();
        debug_assert!(TERM_REQ_BYTES.contains(&(pdu_bytes as u32)));
        let common = CommonHeader {
            kind: kind as u8,
            flags: 0,
            header_bytes: kind.header_bytes(),
            data_at: 0,
            pdu_bytes: pdu_bytes as u32,
        };
        let mut pdu = [0; 152];
        put(&mut pdu, 0, common.write());
        put(&mut pdu, FES_AT, (fault.status as u16).to_le_bytes());
        put(&mut pdu, FEI_AT, fault.info.to_le_bytes());
        pdu[head..pdu_bytes].copy_from_slice(wrong);
        (pdu, pdu_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::FatalStatus;

    const REQ: IcReq =
        IcReq { align: 64, digests: Digests { header: true, data: false }, r2t_max: 4 };

    #[test]
    fn ic_req_is_read_as_written() {
        let pdu = REQ.write();
        assert_eq!(&pdu[..16], &[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 15, 1, 3, 0, 0, 0]);
        assert_eq!(IcReq::read(&pdu), Ok(REQ));
    }

    #[test]
    fn ic_resp_with_a_digest_not_asked_for_is_refused_at_its_field() {
        let mut resp = IcResp { align: 4, digests: REQ.digests, h2c_data_bytes_max: 131_072 };
        assert_eq!(IcResp::read(&resp.write(), &REQ), Ok(resp));
        resp.digests.data = true;
        assert_eq!(IcResp::read(&resp.write(), &REQ), Err(Fault::field_at(11)));
        for limit in [0, 4097] {
            let resp = IcResp { align: 4, digests: REQ.digests, h2c_data_bytes_max: limit };
            assert_eq!(IcResp::read(&resp.write(), &REQ), Err(Fault::field_at(12)), "{limit}");
        }
    }

    #[test]
    fn version_and_alignment_beyond_the_format_are_refused() {
        let mut pdu = REQ.write();
        pdu[8] = 1;
        assert_eq!(IcReq::read(&pdu), Err(Fault::unsupported(8)));
        pdu[8] = 0;
        pdu[10] = 32;
        assert_eq!(IcReq::read(&pdu), Err(Fault::field_at(10)));
    }

    #[test]
    fn term_req_carries_status_information_and_header() {
        let fault = Fault { status: FatalStatus::HeaderDigestError, info: 0xdead_beef };
        let (pdu, bytes) = TermReq::write(PduKind::C2hTermReq, &fault, &[9; 200]);
        assert_eq!((bytes, pdu[0], pdu[2], pdu[24], pdu[151]), (152, 3, 24, 9, 9));
        assert_eq!(TermReq::read(&pdu), TermReq { status: 3, info: 0xdead_beef });
    }
}
