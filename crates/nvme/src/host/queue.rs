use super::slots::{Outcome, Slots, Tag};
use crate::bytes::{array, put};
use crate::command::{COMMAND_BYTES, Command, Completion, Direction};
use crate::pdu::{
    ADMIN_CAPSULE_DATA_BYTES, Body, COMMON_HEADER_BYTES, DataHeader, DataRange, Digests, Ended,
    Fault, HEADER_BYTES_MAX, IcReq, IcResp, Layout, Owner, PduKind, Piece, Progress,
    ReadyToTransfer, Receiver, Rules, Sender, Side, TermReq,
};
use std::collections::VecDeque;

/// Offset of the command identifier in a response capsule.
const RESPONSE_CID_AT: u32 = COMMON_HEADER_BYTES as u32 + 12;

/// What a queue asks for, and what it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Entries of the queue, 2 to 65536, at most the controller's (CAP.MQES). One less commands may be outstanding.
    pub entries: u32,
    /// Alignment in bytes of data to the host (HPDA): a multiple of 4 up to 128.
    pub align: u32,
    /// Digests to ask for. The controller may refuse them; [`Event::Initialized`] has what holds.
    pub digests: Digests,
    /// Most outstanding R2T of a command, 1 to 64.
    pub r2t_max: u32,
    /// Most bytes of data that go with a command: [`ADMIN_CAPSULE_DATA_BYTES`] on an Admin Queue; else what Identify
    /// Controller allows. A Connect takes its data along in any case.
    pub in_capsule_bytes_max: u32,
}

impl Default for QueueConfig {
    /// An Admin Queue of 32 entries without digests.
    fn default() -> Self {
        Self {
            entries: 32,
            align: 4,
            digests: Digests::default(),
            r2t_max: 1,
            in_capsule_bytes_max: ADMIN_CAPSULE_DATA_BYTES,
        }
    }
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The connection is not initialized yet.
    #[error("the connection is not initialized")]
    NotReady,
    /// All entries of the queue are in use.
    #[error("the queue is full")]
    Full,
    /// The length is not a multiple of 4, or the command has no data.
    #[error("the command does not move this many bytes")]
    Length,
    /// The connection has ended.
    #[error("the connection ended: {0}")]
    Ended(Ended),
}

/// What happened on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The controller answered; commands may be submitted. The first must be a Connect.
    Initialized(IcResp),
    /// A command is over. Its tag is free, and its data are the caller's again.
    Completed {
        /// The command.
        tag: Tag,
        /// How it ended.
        outcome: Outcome,
    },
}

/// Where the next bytes of a connection belong: to the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The command.
    pub tag: Tag,
    /// Offset in its data, in bytes.
    pub offset: u32,
    /// How many; more than 0.
    pub bytes: u32,
}

/// The C2HData that is being received.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    tag: Tag,
    /// End of its data in the command's, in bytes.
    end: u32,
    bytes: u32,
    is_last: bool,
    is_success: bool,
}

/// What waits for room in the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Capsule(Tag),
    /// The next H2CData of the command.
    Data(Tag),
}

/// The host's end of a connection: one queue of commands.
///
/// The caller owns the socket and the data of commands. It sends [`Self::pieces`], reports that with [`Self::sent`],
/// passes what it receives to [`Self::receive`], or to the data of a command where [`Self::placement`] says so, and
/// takes [`Self::event`] after each of these. Nothing is allocated after the construction.
///
/// The end of a connection is final. Commands that are then [`Self::outstanding`] may or may not have been executed.
#[derive(Debug)]
pub struct Queue {
    request: IcReq,
    config: QueueConfig,
    h2c_data_bytes_max: u32,
    receiver: Receiver,
    sender: Sender,
    slots: Slots,
    waiting: VecDeque<Waiting>,
    arriving: Option<Arriving>,
    events: VecDeque<Event>,
    ended: Option<Ended>,
}

impl Queue {
    /// A queue over a new connection. An ICReq is the first to be sent.
    ///
    /// # Panics
    /// If a value of `config` is out of its range.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        assert!((2..=65_536).contains(&config.entries), "entries of a queue");
        assert!((1..=64).contains(&config.r2t_max), "outstanding R2T");
        assert!(config.align.is_multiple_of(4) && (4..=128).contains(&config.align), "alignment");
        let QueueConfig { align, digests, r2t_max, .. } = config;
        let request = IcReq { align, digests, r2t_max };
        let capacity = (config.entries - 1) as u16;
        let mut sender = Sender::default();
        sender.push_initialize(&request.write());
        let rules = Rules {
            side: Side::Host,
            initialized: false,
            digests: Digests::default(),
            align,
            capsule_data_bytes_max: 0,
        };
        Self {
            request,
            config,
            h2c_data_bytes_max: 0,
            receiver: Receiver::new(rules),
            sender,
            slots: Slots::new(capacity, r2t_max),
            waiting: VecDeque::with_capacity(usize::from(capacity)),
            arriving: None,
            events: VecDeque::with_capacity(usize::from(capacity) + 1),
            ended: None,
        }
    }

    /// Most outstanding commands. Tags are below.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Whether [`Self::submit`] takes another command.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.receiver.rules().initialized && self.ended.is_none() && self.slots.has_room()
    }

    /// Commands without an [`Event::Completed`] yet.
    pub fn outstanding(&self) -> impl Iterator<Item = Tag> {
        self.slots.outstanding()
    }

    /// Submits a command with `bytes` bytes of data, in the direction that its opcode has. The data must stay with the
    /// caller until the command is completed.
    ///
    /// # Errors
    /// Says why the command was not taken; nothing has changed then.
    pub fn submit(&mut self, command: Command, bytes: u32) -> Result<Tag, Refused> {
        if let Some(ended) = self.ended {
            return Err(Refused::Ended(ended));
        }
        if !self.receiver.rules().initialized {
            return Err(Refused::NotReady);
        }
        let direction = command.direction();
        if !bytes.is_multiple_of(4) || bytes > 0 && direction == Direction::None {
            return Err(Refused::Length);
        }
        let limit = if command.opcode() == crate::command::admin_opcode::FABRICS {
            ADMIN_CAPSULE_DATA_BYTES
        } else {
            self.config.in_capsule_bytes_max
        };
        let in_capsule = direction == Direction::ToController && bytes > 0 && bytes <= limit;
        let tag = self.slots.take(command, bytes, in_capsule).ok_or(Refused::Full)?;
        self.waiting.push_back(Waiting::Capsule(tag));
        Ok(tag)
    }

    /// Where the next bytes belong, if they are data of a command. The caller puts them there, up to the number given,
    /// and shows them to [`Self::placed`].
    #[must_use]
    pub fn placement(&self) -> Option<Placement> {
        let (bytes, arriving) = (self.receiver.data_left(), self.arriving?);
        (bytes > 0).then(|| Placement { tag: arriving.tag, offset: arriving.end - bytes, bytes })
    }

    /// Takes bytes that are not data of a command, and returns how many: less than there are, if data follow, which
    /// [`Self::placement`] then says.
    ///
    /// # Errors
    /// With the end of the connection. What is left to send, among it the error that the peer must learn, should be
    /// sent before the socket is closed.
    pub fn receive(&mut self, input: &[u8]) -> Result<usize, Ended> {
        self.guard(|queue| {
            let mut taken = 0;
            while taken < input.len() {
                let (bytes, progress) = queue.receiver.push(&input[taken..])?;
                taken += bytes;
                match progress {
                    Some(Progress::Header(layout)) => queue.header(&layout)?,
                    Some(Progress::Data { intact }) => queue.data_received(intact),
                    None => break,
                }
                if queue.receiver.data_left() > 0 {
                    break;
                }
            }
            Ok(taken)
        })
    }

    /// Takes note that the next bytes of the connection were put where [`Self::placement`] said.
    ///
    /// # Errors
    /// With the end of the connection, if it has ended.
    ///
    /// # Panics
    /// If there are more bytes than that.
    pub fn placed(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.guard(|queue| {
            if let Some(Progress::Data { intact }) = queue.receiver.data(bytes) {
                queue.data_received(intact);
            }
            Ok(())
        })
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next data whose CRC-32C ([`crate::pdu::crc32c`]) [`Self::set_digest`] must give before they are sent.
    /// Without data digests there are none.
    pub fn digest_wanted(&mut self) -> Option<DataRange> {
        self.fill();
        self.sender.digest_wanted()
    }

    /// Gives the digest of the data that [`Self::digest_wanted`] returned.
    pub fn set_digest(&mut self, digest: u32) {
        self.sender.set_digest(digest);
    }

    /// The bytes to send next, in order; data are those of the command with the tag's number. There may be more once
    /// these are sent.
    pub fn pieces(&mut self) -> impl Iterator<Item = Piece<'_>> {
        self.fill();
        self.sender.pieces()
    }

    /// Takes note that the socket works on the first `bytes` of [`Self::pieces`] and reports later. Callers whose
    /// sockets report at once need not call this.
    pub fn lend(&mut self, bytes: usize) {
        self.sender.lend(bytes);
    }

    /// Takes note that the first `bytes` of [`Self::pieces`] were sent.
    ///
    /// # Panics
    /// If that is more than there was to send.
    pub fn sent(&mut self, bytes: usize) {
        let Self { sender, slots, events, .. } = self;
        sender.sent(bytes, |owner| {
            let tag = Tag(owner.command);
            if owner != Owner::NONE
                && let Some(completion) = slots.frame_sent(tag)
            {
                let outcome = slots.finish(tag, &completion);
                events.push_back(Event::Completed { tag, outcome });
            }
        });
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Ends the connection on this side, without a word to the peer.
    pub fn close(&mut self) {
        self.ended.get_or_insert(Ended::Closed);
    }

    /// Runs `step`, and ends the connection if that fails.
    fn guard<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, Ended>) -> Result<T, Ended> {
        if let Some(ended) = self.ended {
            return Err(ended);
        }
        let done = step(self);
        if let Err(ended) = &done {
            self.ended = Some(*ended);
            self.waiting.clear();
            if let Ended::Fault(fault) = ended {
                self.sender.terminate(PduKind::H2cTermReq, fault, self.receiver.header());
            }
        }
        done
    }

    fn header(&mut self, layout: &Layout) -> Result<(), Ended> {
        let header = self.receiver.header();
        match layout.kind {
            PduKind::IcResp => self.initialized()?,
            PduKind::CapsuleResp => {
                let completion = Completion::read(&array(header, COMMON_HEADER_BYTES));
                let found = self.slots.completed(&completion);
                let (tag, has_frames) = found.ok_or(Fault::field_at(RESPONSE_CID_AT))?;
                self.complete(tag, completion, has_frames);
            }
            PduKind::C2hData => {
                let data = DataHeader::read(header, layout.data_bytes)?;
                let tag = self.slots.data(&data)?;
                self.arriving = Some(Arriving {
                    tag,
                    end: data.offset + data.bytes,
                    bytes: data.bytes,
                    is_last: layout.is_last(),
                    is_success: layout.is_success(),
                });
            }
            PduKind::R2t => {
                let r2t = ReadyToTransfer::read(header)?;
                let (tag, is_first) = self.slots.ready_to_transfer(&r2t)?;
                if is_first {
                    self.waiting.push_back(Waiting::Data(tag));
                }
            }
            PduKind::C2hTermReq => return Err(Ended::ByPeer(TermReq::read(header))),
            // The receiver passes no other kind to a host.
            _ => return Err(Fault::field_at(0).into()),
        }
        Ok(())
    }

    fn initialized(&mut self) -> Result<(), Fault> {
        let pdu: [u8; HEADER_BYTES_MAX] = array(self.receiver.header(), 0);
        let response = IcResp::read(&pdu, &self.request)?;
        let rules = *self.receiver.rules();
        self.receiver.set_rules(Rules { initialized: true, digests: response.digests, ..rules });
        self.sender.set_format(response.digests, response.align);
        self.h2c_data_bytes_max = response.h2c_data_bytes_max;
        self.events.push_back(Event::Initialized(response));
        Ok(())
    }

    fn data_received(&mut self, intact: bool) {
        let Some(arriving) = self.arriving.take() else { return };
        let tag = arriving.tag;
        self.slots.data_received(tag, arriving.bytes, intact, arriving.is_last);
        if arriving.is_success {
            let completion = self.slots.success(tag);
            let has_frames = self.slots.completed(&completion).is_some_and(|(_, frames)| frames);
            self.complete(tag, completion, has_frames);
        }
    }

    /// Ends a command, once nothing in the sender refers to its data.
    fn complete(&mut self, tag: Tag, completion: Completion, has_frames: bool) {
        // A controller may fail a command whose data it asked for. They are not sent then.
        if has_frames || self.slots.has_transfers(tag) {
            self.waiting.retain(|&waiting| waiting != Waiting::Data(tag));
            let frames = self.sender.withdraw(tag.0);
            if frames > 0 {
                self.slots.hold(tag, completion, frames);
                return;
            }
        }
        let outcome = self.slots.finish(tag, &completion);
        self.events.push_back(Event::Completed { tag, outcome });
    }

    /// Hands what waits to the sender, as far as there is room.
    fn fill(&mut self) {
        while self.sender.has_room() {
            match self.waiting.pop_front() {
                Some(Waiting::Capsule(tag)) => self.send_capsule(tag),
                Some(Waiting::Data(tag)) => self.send_data(tag),
                None => break,
            }
        }
    }

    fn send_capsule(&mut self, tag: Tag) {
        let (command, bytes) = self.slots.issue(tag);
        let mut header = [0; COMMON_HEADER_BYTES + COMMAND_BYTES];
        put(&mut header, COMMON_HEADER_BYTES, *command.as_bytes());
        let body = match bytes {
            0 => Body::None,
            bytes => Body::Caller(DataRange { command: tag.0, offset: 0, bytes }),
        };
        let owner = Owner { command: tag.0, is_last: false };
        self.sender.push(PduKind::CapsuleCmd, 0, &header, body, owner);
    }

    fn send_data(&mut self, tag: Tag) {
        let next = self.slots.next_data(tag, self.h2c_data_bytes_max);
        let Some((data, is_last, has_more)) = next else { return };
        let DataHeader { offset, bytes, .. } = data;
        let body = Body::Caller(DataRange { command: tag.0, offset, bytes });
        let owner = Owner { command: tag.0, is_last: false };
        let flags = if is_last { crate::pdu::LAST_PDU } else { 0 };
        self.sender.push(PduKind::H2cData, flags, &data.write(), body, owner);
        if has_more {
            self.waiting.push_back(Waiting::Data(tag));
        }
    }
}
