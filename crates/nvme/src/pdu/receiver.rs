//! Takes the bytes of one direction of a connection apart.

use super::digest::{Crc32c, crc32c};
use super::fault::{Ended, FatalStatus, Fault};
use super::header::{CommonHeader, Layout, Rules};
use super::{COMMON_HEADER_BYTES, DIGEST_BYTES, HEADER_BYTES_MAX};
use crate::bytes::{array, u32_at};

/// What a receiver has just finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A header, and its digest fits; [`Receiver::header`] has it. Its data follow, if `data_bytes` is not 0.
    Header(Layout),
    /// The data of a PDU; `intact` is false if they do not fit their digest.
    Data {
        /// Whether the data fit their digest; true without one.
        intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Bytes `0..filled` of a header are here. `filled` is less than 8.
    Common,
    /// The rest of the header, and its digest.
    Header,
    /// `left > 0` bytes of padding follow.
    Pad,
    /// `left > 0` bytes of data follow.
    Data,
    /// `left` bytes of the data digest follow, of 4.
    Digest,
    /// A PDU is over; its header stays readable until the next one begins.
    Over,
}

/// Receiver of PDUs. Headers and digests are collected here, however they are cut; data are not: while
/// [`Self::data_left`] is not 0, that many next bytes are data, and the owner tells the receiver about them with
/// [`Self::data`], wherever it has put them.
#[derive(Debug)]
pub struct Receiver {
    rules: Rules,
    stage: Stage,
    layout: Option<Layout>,
    /// 0 <= filled <= header.len()
    filled: usize,
    header: [u8; HEADER_BYTES_MAX + DIGEST_BYTES],
    left: u32,
    /// Of the data of this PDU so far, if they have a digest.
    crc: Crc32c,
    digest: [u8; DIGEST_BYTES],
}

impl Receiver {
    /// A receiver at the start of a connection.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            stage: Stage::Common,
            layout: None,
            filled: 0,
            header: [0; HEADER_BYTES_MAX + DIGEST_BYTES],
            left: 0,
            crc: Crc32c::default(),
            digest: [0; DIGEST_BYTES],
        }
    }

    /// What is expected of the next PDU.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Changes what is expected of PDUs that have not begun.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// The header of the current PDU, without its digest, as far as it is here.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        let end = self.layout.map_or(COMMON_HEADER_BYTES, |layout| layout.header_bytes);
        &self.header[..self.filled.min(end)]
    }

    /// How many of the next bytes are data. They go to [`Self::data`] and not to [`Self::push`].
    #[must_use]
    pub fn data_left(&self) -> u32 {
        if self.stage == Stage::Data { self.left } else { 0 }
    }

    /// Takes bytes of headers, padding and digests. Returns how many were taken, and what was finished: at most one
    /// part of a PDU. Takes nothing while data are expected.
    ///
    /// # Errors
    /// With the end of the connection, if the header breaks a rule or does not fit its digest. The receiver must not be
    /// used again.
    pub fn push(&mut self, input: &[u8]) -> Result<(usize, Option<Progress>), Ended> {
        let mut taken = 0;
        while taken < input.len() {
            match self.stage {
                Stage::Over => {
                    self.filled = 0;
                    self.layout = None;
                    self.stage = Stage::Common;
                }
                Stage::Common => {
                    taken += self.collect(&input[taken..], COMMON_HEADER_BYTES);
                    if self.filled == COMMON_HEADER_BYTES {
                        let common = CommonHeader::read(&array(&self.header, 0));
                        self.layout = Some(common.check(&self.rules)?);
                        self.stage = Stage::Header;
                    }
                }
                Stage::Header => {
                    let layout = self.layout.expect("the stage before found it");
                    let digest = if layout.header_digest { DIGEST_BYTES } else { 0 };
                    taken += self.collect(&input[taken..], layout.header_bytes + digest);
                    if self.filled == layout.header_bytes + digest {
                        self.begin_data(&layout)?;
                        return Ok((taken, Some(Progress::Header(layout))));
                    }
                }
                Stage::Pad => {
                    let bytes = (self.left as usize).min(input.len() - taken);
                    taken += bytes;
                    self.left -= bytes as u32;
                    if self.left == 0 {
                        self.left = self.layout.map_or(0, |layout| layout.data_bytes);
                        self.stage = Stage::Data;
                    }
                }
                Stage::Data => break,
                Stage::Digest => {
                    let at = DIGEST_BYTES - self.left as usize;
                    let bytes = (self.left as usize).min(input.len() - taken);
                    self.digest[at..at + bytes].copy_from_slice(&input[taken..taken + bytes]);
                    taken += bytes;
                    self.left -= bytes as u32;
                    if self.left == 0 {
                        self.stage = Stage::Over;
                        let intact = u32::from_le_bytes(self.digest) == self.crc.value();
                        return Ok((taken, Some(Progress::Data { intact })));
                    }
                }
            }
        }
        Ok((taken, None))
    }

    /// Takes note of the next data; `bytes` are as received, at most [`Self::data_left`]. Returns that the data are
    /// complete, if no digest follows them.
    ///
    /// # Panics
    /// If there are more bytes than are expected.
    pub fn data(&mut self, bytes: &[u8]) -> Option<Progress> {
        assert!(bytes.len() <= self.data_left() as usize, "more data than the PDU has");
        if bytes.is_empty() {
            return None;
        }
        let digest = self.layout.is_some_and(|layout| layout.data_digest);
        if digest {
            self.crc.update(bytes);
        }
        self.left -= bytes.len() as u32;
        if self.left > 0 {
            return None;
        }
        if digest {
            self.left = DIGEST_BYTES as u32;
            self.stage = Stage::Digest;
            return None;
        }
        self.stage = Stage::Over;
        Some(Progress::Data { intact: true })
    }

    fn collect(&mut self, input: &[u8], end: usize) -> usize {
        let bytes = (end - self.filled).min(input.len());
        self.header[self.filled..self.filled + bytes].copy_from_slice(&input[..bytes]);
        self.filled += bytes;
        bytes
    }

    /// Checks the digest of the header, which is complete, and goes on to what follows it.
    fn begin_data(&mut self, layout: &Layout) -> Result<(), Fault> {
        if layout.header_digest {
            let received = u32_at(&self.header, layout.header_bytes);
            if received != crc32c(&self.header[..layout.header_bytes]) {
                return Err(Fault { status: FatalStatus::HeaderDigestError, info: received });
            }
        }
        if layout.data_digest {
            self.crc = Crc32c::default();
        }
        (self.stage, self.left) = match (layout.data_bytes, layout.pad_bytes) {
            (0, _) => (Stage::Over, 0),
            (bytes, 0) => (Stage::Data, bytes),
            (_, pad) => (Stage::Pad, pad),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::header::{DDGSTF, HDGSTF};
    use crate::pdu::{Digests, PduKind, Side};

    const RULES: Rules = Rules {
        side: Side::Controller,
        initialized: true,
        digests: Digests { header: true, data: true },
        align: 16,
        capsule_data_bytes_max: 64,
    };

    fn capsule(data: &[u8]) -> Vec<u8> {
        let kind = PduKind::CapsuleCmd;
        let pdu_bytes = 80 + data.len() as u32 + 4;
        let flags = HDGSTF | DDGSTF;
        let common =
            CommonHeader { kind: kind as u8, flags, header_bytes: 72, data_at: 80, pdu_bytes };
        let mut pdu = common.write().to_vec();
        pdu.resize(72, 0x55);
        pdu.extend(crc32c(&pdu).to_le_bytes());
        pdu.resize(80, 0);
        pdu.extend(data);
        pdu.extend(crc32c(data).to_le_bytes());
        pdu
    }

    /// What comes of `stream` in pieces of `step` bytes.
    fn run(stream: &[u8], step: usize) -> Result<(Vec<Progress>, Vec<u8>), Ended> {
        let mut receiver = Receiver::new(RULES);
        let (mut found, mut data) = (Vec::new(), Vec::new());
        for mut piece in stream.chunks(step) {
            while !piece.is_empty() {
                let bytes = (receiver.data_left() as usize).min(piece.len());
                let (taken, progress) = if bytes > 0 {
                    data.extend(&piece[..bytes]);
                    (bytes, receiver.data(&piece[..bytes]))
                } else {
                    receiver.push(piece)?
                };
                found.extend(progress);
                piece = &piece[taken..];
            }
        }
        Ok((found, data))
    }

    #[test]
    fn pieces_of_any_size_give_the_same_parts() {
        let stream = [capsule(&[1; 64]), capsule(&[2; 4])].concat();
        let whole = run(&stream, stream.len()).unwrap();
        assert_eq!(whole.0.len(), 4);
        assert_eq!(whole.1, [[1; 64].as_slice(), &[2; 4]].concat());
        for step in 1..stream.len() {
            assert_eq!(run(&stream, step).unwrap(), whole, "{step}");
        }
    }

    #[test]
    fn damaged_data_are_reported_and_the_stream_goes_on() {
        let mut stream = [capsule(&[1; 64]), capsule(&[2; 4])].concat();
        stream[100] ^= 1;
        let (found, _) = run(&stream, 7).unwrap();
        assert_eq!(found[1], Progress::Data { intact: false });
        assert_eq!(found[3], Progress::Data { intact: true });
    }

    #[test]
    fn damaged_header_ends_the_connection_with_the_digest_received() {
        let mut stream = capsule(&[1; 64]);
        stream[20] ^= 1;
        let info = u32_at(&stream, 72);
        let fault = Fault { status: FatalStatus::HeaderDigestError, info };
        assert_eq!(run(&stream, 9), Err(Ended::Fault(fault)));
    }
}
