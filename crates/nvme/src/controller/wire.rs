//! A connection as the controller sees it, up to commands and their data; what commands mean is not known here.

use super::slots::{CommandTag, Slots, Transfers};
use crate::bytes::{array, put};
use crate::command::{COMPLETION_BYTES, Command, Completion, Status};
use crate::pdu::{
    ADMIN_CAPSULE_DATA_BYTES, Body, COMMON_HEADER_BYTES, DataHeader, DataRange, Digests, Ended,
    Fault, IcReq, IcResp, LAST_PDU, Layout, Owner, PduKind, Piece, Progress, Receiver, Rules,
    SUCCESS, Sender, Side, TermReq,
};
use std::collections::VecDeque;

/// Most bytes of data of a command: a multiple of 4 below 2^32.
const BYTES_MAX: u32 = !3;
/// Offset of the command identifier in a command capsule.
const CAPSULE_CID_AT: u32 = COMMON_HEADER_BYTES as u32 + 2;

/// How a connection moves data, on the controller's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// Alignment in bytes of data to the controller (CPDA): a multiple of 4 up to 128.
    pub align: u32,
    /// Digests that a host gets if it asks for them.
    pub digests: Digests,
    /// Most bytes of an H2CData (MAXH2CDATA): a multiple of 4, at least 4096.
    pub h2c_data_bytes_max: u32,
    /// Most bytes of a C2HData: a multiple of 4, not 0.
    pub c2h_data_bytes_max: u32,
    /// Most outstanding R2T of a command, at least 1; the host may allow fewer.
    pub r2t_max: u32,
    /// Most bytes of an R2T: a multiple of 4, not 0.
    pub r2t_bytes_max: u32,
}

impl Default for ConnectionConfig {
    /// Digests if the host wants them, one R2T for all data of a command, H2CData of up to 4 MiB.
    fn default() -> Self {
        Self {
            align: 4,
            digests: Digests { header: true, data: true },
            h2c_data_bytes_max: 4 << 20,
            c2h_data_bytes_max: BYTES_MAX,
            r2t_max: 1,
            r2t_bytes_max: BYTES_MAX,
        }
    }
}

/// Where the next bytes of a connection belong: to the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The command.
    pub tag: CommandTag,
    /// Offset in its data, in bytes.
    pub offset: u32,
    /// How many; more than 0.
    pub bytes: u32,
}

/// What arrived.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A command, with this many bytes of data behind it, of which [`Wire::expect`] must say where they go.
    Command(CommandTag, u32),
    /// All data of a command.
    Data(CommandTag),
}

/// Where data that arrive go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Into {
    /// To the caller's buffer for the command.
    Caller(CommandTag),
    /// To this crate's.
    Own(CommandTag),
    /// Nowhere: the command was refused.
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
struct Arriving {
    into: Into,
    /// End of the data in the command's, in bytes.
    end: u32,
    bytes: u32,
    /// Whether they are the last of an R2T; `None` for data in a capsule.
    is_last: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    R2t(CommandTag),
    Data(CommandTag),
    Response(CommandTag),
}

/// The head of the submission queue, as completions report it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Entries of the queue.
    pub(super) entries: u32,
    /// Whether it is not reported.
    pub(super) no_flow_control: bool,
    /// Next entry. 0 <= at < entries
    pub(super) at: u32,
}

/// The connection.
#[derive(Debug)]
pub(super) struct Wire {
    config: ConnectionConfig,
    transfers: Transfers,
    receiver: Receiver,
    sender: Sender,
    slots: Slots,
    head: Head,
    waiting: VecDeque<Waiting>,
    arriving: Option<Arriving>,
    ended: Option<Ended>,
}

impl Wire {
    pub(super) fn new(config: ConnectionConfig) -> Self {
        let rules = Rules {
            side: Side::Controller,
            initialized: false,
            digests: Digests::default(),
            align: config.align,
            capsule_data_bytes_max: ADMIN_CAPSULE_DATA_BYTES,
        };
        let transfers = Transfers {
            r2t_max: config.r2t_max,
            r2t_bytes_max: config.r2t_bytes_max,
            h2c_bytes_max: config.h2c_data_bytes_max,
            c2h_bytes_max: config.c2h_data_bytes_max,
        };
        Self {
            config,
            transfers,
            receiver: Receiver::new(rules),
            sender: Sender::default(),
            slots: Slots::new(2 + Sender::FRAMES_MAX),
            head: Head { entries: 2, no_flow_control: false, at: 0 },
            waiting: VecDeque::new(),
            arriving: None,
            ended: None,
        }
    }

    /// Opens a queue of this size, with this many bytes of data in a capsule.
    pub(super) fn open(&mut self, head: Head, capsule_data_bytes_max: u32) {
        self.head = head;
        // A command that was answered has a slot until the socket reports that, and the sender holds no more than there are slots.
        self.slots.grow(head.entries as usize + 1 + Sender::FRAMES_MAX);
        self.waiting.reserve(self.slots.capacity());
        let rules = *self.receiver.rules();
        self.receiver.set_rules(Rules { capsule_data_bytes_max, ..rules });
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Ends the connection; a fault is reported to the host.
    pub(super) fn end(&mut self, ended: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(ended);
        self.waiting.clear();
        if let Ended::Fault(fault) = &ended {
            self.sender.terminate(PduKind::C2hTermReq, fault, self.receiver.header());
        }
    }

    pub(super) fn slots(&mut self) -> &mut Slots {
        &mut self.slots
    }

    pub(super) fn placement(&self) -> Option<Placement> {
        let (bytes, arriving) = (self.receiver.data_left(), self.arriving?);
        let Into::Caller(tag) = arriving.into else { return None };
        (bytes > 0).then(|| Placement { tag, offset: arriving.end - bytes, bytes })
    }

    /// Takes bytes, up to the first arrival or the first data of the caller's.
    pub(super) fn receive(&mut self, input: &[u8]) -> Result<(usize, Option<Arrival>), Ended> {
        let mut taken = 0;
        while taken < input.len() {
            let left = self.receiver.data_left() as usize;
            let progress = if left > 0 {
                let Some(arriving) = self.arriving else { break };
                let data = &input[taken..taken + left.min(input.len() - taken)];
                match arriving.into {
                    Into::Caller(_) => break,
                    Into::Own(tag) => self.slots.own_data(tag).extend(data),
                    Into::Nowhere => {}
                }
                taken += data.len();
                self.receiver.data(data)
            } else {
                let (bytes, progress) = self.receiver.push(&input[taken..])?;
                taken += bytes;
                progress
            };
            let arrival = match progress {
                Some(Progress::Header(layout)) => self.header(&layout)?,
                Some(Progress::Data { intact }) => self.data_received(intact),
                None => None,
            };
            if arrival.is_some() {
                return Ok((taken, arrival));
            }
        }
        Ok((taken, None))
    }

    /// Takes note of data that the caller has placed.
    pub(super) fn placed(&mut self, bytes: &[u8]) -> Option<Arrival> {
        match self.receiver.data(bytes) {
            Some(Progress::Data { intact }) => self.data_received(intact),
            _ => None,
        }
    }

    /// Whether data of the command are being received.
    pub(super) fn is_arriving(&self, tag: CommandTag) -> bool {
        self.arriving.is_some_and(|arriving| arriving.into == Into::Caller(tag))
    }

    /// Says where the data behind the command that has just arrived go.
    pub(super) fn expect(&mut self, into: Into, bytes: u32) {
        self.arriving = Some(Arriving { into, end: bytes, bytes, is_last: None });
    }

    /// Asks for the data of a command.
    pub(super) fn request(&mut self, tag: CommandTag) {
        self.waiting.push_back(Waiting::R2t(tag));
    }

    /// Answers a command, with its data if it has any to the host.
    pub(super) fn answer(&mut self, tag: CommandTag, status: Status, result: u64, has_data: bool) {
        let has_data = self.slots.answer(tag, status, result, has_data);
        self.waiting.push_back(if has_data { Waiting::Data(tag) } else { Waiting::Response(tag) });
    }

    pub(super) fn digest_wanted(&mut self) -> Option<DataRange> {
        self.fill();
        self.sender.digest_wanted()
    }

    pub(super) fn set_digest(&mut self, digest: u32) {
        self.sender.set_digest(digest);
    }

    pub(super) fn pieces(&mut self) -> impl Iterator<Item = Piece<'_>> {
        self.fill();
        self.sender.pieces()
    }

    pub(super) fn lend(&mut self, bytes: usize) {
        self.sender.lend(bytes);
    }

    /// Takes note of sent bytes, and passes on commands whose buffers the caller has back.
    pub(super) fn sent(&mut self, bytes: usize, mut released: impl FnMut(CommandTag)) {
        let Self { sender, slots, .. } = self;
        sender.sent(bytes, |owner| {
            let tag = CommandTag(owner.command);
            if owner.is_last && slots.release(tag) {
                released(tag);
            }
        });
    }

    fn header(&mut self, layout: &Layout) -> Result<Option<Arrival>, Ended> {
        let header = self.receiver.header();
        match layout.kind {
            PduKind::IcReq => {
                let request = IcReq::read(&array(header, 0))?;
                self.initialize(&request);
            }
            PduKind::CapsuleCmd => {
                let command = Command::from_bytes(array(header, COMMON_HEADER_BYTES));
                let tag = self.take(command)?;
                return Ok(Some(Arrival::Command(tag, layout.data_bytes)));
            }
            PduKind::H2cData => {
                let data = DataHeader::read(header, layout.data_bytes)?;
                let is_last = layout.is_last();
                let tag = self.slots.data(&data, is_last, &self.transfers)?;
                let into =
                    if self.slots.is_callers(tag) { Into::Caller(tag) } else { Into::Own(tag) };
                let (end, bytes) = (data.offset + data.bytes, data.bytes);
                self.arriving = Some(Arriving { into, end, bytes, is_last: Some(is_last) });
            }
            PduKind::H2cTermReq => return Err(Ended::ByPeer(TermReq::read(header))),
            // The receiver passes no other kind to a controller.
            _ => return Err(Fault::field_at(0).into()),
        }
        Ok(None)
    }

    fn initialize(&mut self, request: &IcReq) {
        let wanted = self.config.digests;
        let digests = Digests {
            header: wanted.header && request.digests.header,
            data: wanted.data && request.digests.data,
        };
        let response = IcResp {
            align: self.config.align,
            digests,
            h2c_data_bytes_max: self.config.h2c_data_bytes_max,
        };
        self.sender.push_initialize(&response.write());
        self.sender.set_format(digests, request.align);
        let rules = *self.receiver.rules();
        self.receiver.set_rules(Rules { initialized: true, digests, ..rules });
        self.transfers.r2t_max = self.config.r2t_max.min(request.r2t_max);
    }

    fn take(&mut self, command: Command) -> Result<CommandTag, Fault> {
        if self.slots.is_used(command.id()) {
            return Err(Fault::field_at(CAPSULE_CID_AT));
        }
        if self.slots.open() >= self.head.entries {
            return Err(Fault::SEQUENCE);
        }
        self.head.at = (self.head.at + 1) % self.head.entries;
        self.slots.take(command).ok_or(Fault::SEQUENCE)
    }

    fn data_received(&mut self, intact: bool) -> Option<Arrival> {
        let arriving = self.arriving.take()?;
        let (Into::Caller(tag) | Into::Own(tag)) = arriving.into else { return None };
        let is_last = arriving.is_last.unwrap_or(false);
        if self.slots.data_received(tag, arriving.bytes, intact, is_last) {
            return Some(Arrival::Data(tag));
        }
        if is_last {
            self.request(tag);
        }
        None
    }

    fn fill(&mut self) {
        while self.sender.has_room() {
            match self.waiting.pop_front() {
                Some(Waiting::R2t(tag)) => self.send_r2t(tag),
                Some(Waiting::Data(tag)) => self.send_data(tag),
                Some(Waiting::Response(tag)) => self.send_response(tag),
                None => break,
            }
        }
    }

    fn send_r2t(&mut self, tag: CommandTag) {
        let Some((r2t, more)) = self.slots.next_r2t(tag, &self.transfers) else { return };
        let owner = Owner { command: tag.0, is_last: false };
        self.sender.push(PduKind::R2t, 0, &r2t.write(), Body::None, owner);
        if more {
            self.request(tag);
        }
    }

    fn send_data(&mut self, tag: CommandTag) {
        let Some((data, body, is_last)) = self.slots.next_data(tag, &self.transfers) else {
            return;
        };
        let result = self.slots.completion(tag).map_or(0, |completion| completion.result);
        let is_over = is_last && self.head.no_flow_control && result == 0;
        let flags = if is_over { SUCCESS } else { 0 } | if is_last { LAST_PDU } else { 0 };
        let owner = Owner { command: tag.0, is_last: is_over };
        self.sender.push(PduKind::C2hData, flags, &data.write(), body, owner);
        if is_over {
            self.slots.retire(tag);
        } else {
            let next = if is_last { Waiting::Response(tag) } else { Waiting::Data(tag) };
            self.waiting.push_back(next);
        }
    }

    fn send_response(&mut self, tag: CommandTag) {
        let Some(completion) = self.slots.completion(tag) else { return };
        let queue_head = if self.head.no_flow_control { u16::MAX } else { self.head.at as u16 };
        let mut header = [0; COMMON_HEADER_BYTES + COMPLETION_BYTES];
        put(&mut header, COMMON_HEADER_BYTES, Completion { queue_head, ..completion }.write());
        let owner = Owner { command: tag.0, is_last: true };
        self.sender.push(PduKind::CapsuleResp, 0, &header, Body::None, owner);
        self.slots.retire(tag);
    }
}
