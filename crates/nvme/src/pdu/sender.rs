//! Puts the bytes of one direction of a connection together.

use super::digest::crc32c;
use super::fault::Fault;
use super::header::{CommonHeader, DDGSTF, Digests, HDGSTF, PduKind};
use super::{ALIGN_BYTES_MAX, DIGEST_BYTES, HEADER_BYTES_MAX, TermReq};
use crate::bytes::put;
use std::collections::VecDeque;

/// Longest head of a frame: a terminate request, in bytes.
const HEAD_BYTES_MAX: usize = 152;

/// A range of the data of a command, which lie with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// The command, as the owner of the sender numbers them.
    pub command: u16,
    /// Offset in the data of the command, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}

/// Some of the bytes to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Data of a command; the caller has them.
    Data(DataRange),
}

impl Piece<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Data(range) => range.bytes as usize,
        }
    }
}

/// The data of a PDU.
#[derive(Debug)]
pub enum Body {
    /// None.
    None,
    /// They lie with the caller.
    Caller(DataRange),
    /// They are this crate's.
    Owned(Box<[u8]>),
}

impl Body {
    fn bytes(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Caller(range) => range.bytes,
            Self::Owned(bytes) => bytes.len() as u32,
        }
    }
}

/// What a frame belongs to; [`Sender::sent`] returns it once all of the frame is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The command, as the owner of the sender numbers them; `u16::MAX` for frames of no command.
    pub command: u16,
    /// Whether it is the command's last frame.
    pub is_last: bool,
}

impl Owner {
    /// A frame of no command.
    pub const NONE: Self = Self { command: u16::MAX, is_last: false };
}

#[derive(Clone, Copy, Debug)]
enum Digest {
    /// The data have none.
    None,
    /// The caller must give it before the data are sent.
    Wanted,
    Known([u8; DIGEST_BYTES]),
}

#[derive(Debug)]
struct Frame {
    /// Header, its digest, and padding.
    head: [u8; HEAD_BYTES_MAX],
    /// 0 < head_bytes <= head.len()
    head_bytes: u8,
    body: Body,
    digest: Digest,
    owner: Owner,
}

impl Frame {
    fn digest_bytes(&self) -> usize {
        if matches!(self.digest, Digest::None) { 0 } else { DIGEST_BYTES }
    }

    fn bytes(&self) -> usize {
        usize::from(self.head_bytes) + self.body.bytes() as usize + self.digest_bytes()
    }
}

/// Sender of PDUs: a queue of at most [`Self::FRAMES_MAX`] frames that wait for the socket. Data of commands are
/// referred to, not copied.
#[derive(Debug)]
pub struct Sender {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame that are gone; less than its length.
    gone: usize,
    /// Bytes behind those that the socket has been given and has not reported yet.
    lent: usize,
    digests: Digests,
    /// Alignment of data in bytes, as the peer asked for.
    align: u32,
    /// Frames at the front whose data digests are known.
    digested: usize,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            frames: VecDeque::with_capacity(Self::FRAMES_MAX + 1),
            gone: 0,
            lent: 0,
            digests: Digests::default(),
            align: 4,
            digested: 0,
        }
    }
}

impl Sender {
    /// Most frames in the queue, a terminate request besides.
    pub const FRAMES_MAX: usize = 32;

    /// Sets digests and alignment (in bytes) for frames from now on.
    pub fn set_format(&mut self, digests: Digests, align: u32) {
        debug_assert!(align.is_multiple_of(4) && (4..=ALIGN_BYTES_MAX).contains(&align));
        self.digests = digests;
        self.align = align;
    }

    /// Whether another frame fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.frames.len() < Self::FRAMES_MAX
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Queues a PDU. `header` is the whole header, of which this fills in the first eight bytes; `flags` are those
    /// besides the digests'.
    ///
    /// # Panics
    /// If [`Self::has_room`] is false, which the caller must have asked.
    pub fn push(&mut self, kind: PduKind, flags: u8, header: &[u8], body: Body, owner: Owner) {
        assert!(self.has_room(), "the caller asked for room");
        let header_bytes = header.len();
        let mut head = [0; HEAD_BYTES_MAX];
        head[..header_bytes].copy_from_slice(header);
        let data_bytes = body.bytes();
        let has_data_digest = self.digests.data && data_bytes > 0;
        let mut at = header_bytes + if self.digests.header { DIGEST_BYTES } else { 0 };
        if data_bytes > 0 {
            at = at.next_multiple_of(self.align as usize);
        }
        let digest_bytes = if has_data_digest { DIGEST_BYTES as u32 } else { 0 };
        let flags = flags
            | if self.digests.header { HDGSTF } else { 0 }
            | if has_data_digest { DDGSTF } else { 0 };
        let common = CommonHeader {
            kind: kind as u8,
            flags,
            header_bytes: header_bytes as u8,
            data_at: if data_bytes > 0 { at as u8 } else { 0 },
            pdu_bytes: at as u32 + data_bytes + digest_bytes,
        };
        put(&mut head, 0, common.write());
        if self.digests.header {
            let digest = crc32c(&head[..header_bytes]);
            put(&mut head, header_bytes, digest.to_le_bytes());
        }
        let digest = match &body {
            _ if !has_data_digest => Digest::None,
            Body::Owned(bytes) => Digest::Known(crc32c(bytes).to_le_bytes()),
            _ => Digest::Wanted,
        };
        self.add(Frame { head, head_bytes: at as u8, body, digest, owner });
    }

    /// Queues ICReq or ICResp, which have neither digests nor data.
    pub fn push_initialize(&mut self, pdu: &[u8; HEADER_BYTES_MAX]) {
        let mut head = [0; HEAD_BYTES_MAX];
        head[..HEADER_BYTES_MAX].copy_from_slice(pdu);
        let head_bytes = HEADER_BYTES_MAX as u8;
        let (body, digest) = (Body::None, Digest::None);
        self.add(Frame { head, head_bytes, body, digest, owner: Owner::NONE });
    }

    /// Drops all frames of which nothing was sent or lent, and queues a terminate request of `kind` behind the rest.
    pub fn terminate(&mut self, kind: PduKind, fault: &Fault, wrong: &[u8]) {
        let begun = self.begun();
        self.frames.truncate(begun);
        self.digested = self.digested.min(begun);
        let (head, bytes) = TermReq::write(kind, fault, wrong);
        let (body, digest) = (Body::None, Digest::None);
        self.add(Frame { head, head_bytes: bytes as u8, body, digest, owner: Owner::NONE });
    }

    /// Drops the frames of `command` of which nothing was sent or lent, and returns how many it has besides.
    pub fn withdraw(&mut self, command: u16) -> u32 {
        let begun = self.begun();
        let (mut at, mut digested) = (0, self.digested);
        self.frames.retain(|frame| {
            let stays = at < begun || frame.owner.command != command;
            digested -= usize::from(!stays && at < self.digested);
            at += 1;
            stays
        });
        self.digested = digested;
        let others = self.frames.iter().take(begun).filter(|frame| frame.owner.command == command);
        others.count() as u32
    }

    /// Frames of which something was sent or lent.
    fn begun(&self) -> usize {
        let mut left = self.gone + self.lent;
        let has_begun = |frame: &&Frame| {
            let begun = left > 0;
            left = left.saturating_sub(frame.bytes());
            begun
        };
        self.frames.iter().take_while(has_begun).count()
    }

    /// Takes note that the socket works on the first `bytes` of [`Self::pieces`], until [`Self::sent`] says how many
    /// of them it took. Until then these frames neither change nor move.
    pub fn lend(&mut self, bytes: usize) {
        self.lent = bytes;
    }

    fn add(&mut self, frame: Frame) {
        let is_ready = !matches!(frame.digest, Digest::Wanted);
        if is_ready && self.digested == self.frames.len() {
            self.digested += 1;
        }
        self.frames.push_back(frame);
    }

    /// The next data whose digest [`Self::set_digest`] must give before they are sent. `None` on a connection without
    /// data digests.
    #[must_use]
    pub fn digest_wanted(&self) -> Option<DataRange> {
        match &self.frames.get(self.digested)?.body {
            Body::Caller(range) => Some(*range),
            _ => None,
        }
    }

    /// Sets the digest, [`crc32c`], of the data that [`Self::digest_wanted`] returned.
    pub fn set_digest(&mut self, digest: u32) {
        let Some(frame) = self.frames.get_mut(self.digested) else { return };
        frame.digest = Digest::Known(digest.to_le_bytes());
        let ready = |frame: &&Frame| !matches!(frame.digest, Digest::Wanted);
        self.digested += self.frames.iter().skip(self.digested).take_while(ready).count();
    }

    /// The bytes to send next, in order, up to the first data whose digest is not known.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut skip = self.gone;
        self.frames.iter().take(self.digested).flat_map(move |frame| {
            let skipped = std::mem::take(&mut skip);
            pieces_of(frame, skipped)
        })
    }

    /// Takes note that the first `bytes` of [`Self::pieces`] were sent, and passes the owner of each frame that is now
    /// gone to `gone`.
    ///
    /// # Panics
    /// If that is more than there was to send.
    pub fn sent(&mut self, bytes: usize, mut gone: impl FnMut(Owner)) {
        self.lent = 0;
        self.gone += bytes;
        while let Some(frame) = self.frames.front() {
            let length = frame.bytes();
            if self.gone < length {
                break;
            }
            assert!(self.digested > 0, "more was sent than there was");
            self.gone -= length;
            self.digested -= 1;
            gone(frame.owner);
            self.frames.pop_front();
        }
        assert!(self.gone == 0 || self.digested > 0, "more was sent than there was");
    }
}

/// What is left of `frame` behind its first `skip` bytes.
fn pieces_of(frame: &Frame, skip: usize) -> impl Iterator<Item = Piece<'_>> {
    let head_bytes = usize::from(frame.head_bytes);
    let data_bytes = frame.body.bytes() as usize;
    let head = &frame.head[skip.min(head_bytes)..head_bytes];
    let skip = skip.saturating_sub(head_bytes);
    let data_skip = skip.min(data_bytes);
    let data = match &frame.body {
        Body::None => Piece::Bytes(&[]),
        Body::Owned(bytes) => Piece::Bytes(&bytes[data_skip..]),
        Body::Caller(range) => Piece::Data(DataRange {
            offset: range.offset + data_skip as u32,
            bytes: range.bytes - data_skip as u32,
            ..*range
        }),
    };
    let digest: &[u8] = match &frame.digest {
        Digest::Known(digest) => &digest[skip.saturating_sub(data_bytes)..],
        _ => &[],
    };
    let pieces = [Piece::Bytes(head), data, Piece::Bytes(digest)];
    pieces.into_iter().filter(|piece| piece.bytes() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: [u8; 8] = *b"datadata";

    fn data(command: u16) -> (Body, Owner) {
        let range = DataRange { command, offset: 0, bytes: 8 };
        (Body::Caller(range), Owner { command, is_last: true })
    }

    fn sender(frames: u16) -> Sender {
        let mut sender = Sender::default();
        sender.set_format(Digests { header: true, data: true }, 16);
        for command in 0..frames {
            let (body, owner) = data(command);
            sender.push(PduKind::H2cData, 0, &[0; 24], body, owner);
        }
        sender
    }

    fn wire(sender: &Sender) -> Vec<u8> {
        let bytes = |piece: Piece<'_>| match piece {
            Piece::Bytes(bytes) => bytes.to_vec(),
            Piece::Data(range) => {
                DATA[range.offset as usize..(range.offset + range.bytes) as usize].to_vec()
            }
        };
        sender.pieces().flat_map(bytes).collect()
    }

    #[test]
    fn data_wait_for_their_digest() {
        let mut sender = sender(2);
        assert_eq!(sender.pieces().count(), 0);
        assert_eq!(sender.digest_wanted().map(|range| range.command), Some(0));
        sender.set_digest(crc32c(&DATA));
        assert_eq!(wire(&sender).len(), 32 + 8 + 4);
        assert_eq!(sender.digest_wanted().map(|range| range.command), Some(1));
        sender.set_digest(crc32c(&DATA));
        assert_eq!(sender.digest_wanted(), None);
        assert_eq!(wire(&sender).len(), 2 * 44);
    }

    #[test]
    fn sending_byte_by_byte_gives_the_same_bytes() {
        let mut sender = sender(2);
        sender.set_digest(crc32c(&DATA));
        sender.set_digest(crc32c(&DATA));
        let whole = wire(&sender);
        let (mut single, mut gone) = (Vec::new(), Vec::new());
        while !sender.is_empty() {
            single.push(wire(&sender)[0]);
            sender.sent(1, |owner| gone.push(owner.command));
        }
        assert_eq!(single, whole);
        assert_eq!(gone, [0, 1]);
    }

    #[test]
    fn withdrawing_spares_what_has_begun() {
        let mut sender = sender(3);
        for _ in 0..3 {
            sender.set_digest(crc32c(&DATA));
        }
        sender.sent(1, |_| ());
        assert_eq!(sender.withdraw(1), 0);
        assert_eq!(sender.withdraw(0), 1);
        assert_eq!(wire(&sender).len(), 2 * 44 - 1);
        assert_eq!(sender.digest_wanted(), None);
    }

    #[test]
    fn frames_that_the_socket_works_on_stay() {
        let mut sender = sender(3);
        for _ in 0..3 {
            sender.set_digest(crc32c(&DATA));
        }
        sender.lend(44 + 1);
        assert_eq!(sender.withdraw(1), 1);
        assert_eq!(sender.withdraw(2), 0);
        assert_eq!(wire(&sender).len(), 2 * 44);
        sender.sent(0, |_| ());
        assert_eq!(sender.withdraw(1), 0);
        assert_eq!(wire(&sender).len(), 44);
    }

    #[test]
    fn terminate_request_follows_the_frame_that_has_begun() {
        let mut sender = sender(3);
        sender.set_digest(crc32c(&DATA));
        sender.sent(1, |_| ());
        sender.terminate(PduKind::H2cTermReq, &Fault::SEQUENCE, &[1; 24]);
        assert_eq!(wire(&sender).len(), 43 + 48);
    }
}
