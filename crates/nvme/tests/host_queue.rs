//! A host's queue against a controller that does what it likes: what a rule forbids ends the connection with the error
//! that TCP Transport 1.0 names, and what it allows completes the command, once.

use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::{Command, Completion, Status};
use terrace_nvme::host::{Event, Queue, QueueConfig, Refused, Tag};
use terrace_nvme::pdu::{
    Body, DataHeader, Digests, Ended, FatalStatus, Fault, IcResp, Owner, PduKind, Piece,
    ReadyToTransfer, Sender, crc32c,
};

const LAST: u8 = 4;
const SUCCESS: u8 = 8;
const BOTH: Digests = Digests { header: true, data: true };

/// A queue and the bytes of a made-up controller.
struct Pair {
    queue: Queue,
    sender: Sender,
}

fn config(r2t_max: u32) -> QueueConfig {
    QueueConfig { entries: 5, digests: BOTH, r2t_max, in_capsule_bytes_max: 512, align: 16 }
}

impl Pair {
    fn new(config: QueueConfig, response: IcResp) -> Self {
        let mut pair = Self { queue: Queue::new(config), sender: Sender::default() };
        assert_eq!(pair.send_all().len(), 128);
        pair.sender.push_initialize(&response.write());
        pair.deliver().expect("a good response");
        assert_eq!(pair.queue.event(), Some(Event::Initialized(response)));
        pair.sender.set_format(response.digests, config.align);
        pair
    }

    fn with_r2t(r2t_max: u32) -> Self {
        let response = IcResp { align: 32, digests: BOTH, h2c_data_bytes_max: 4096 };
        Self::new(config(r2t_max), response)
    }

    /// All that the queue sends now, with zeros for data.
    fn send_all(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        loop {
            while let Some(range) = self.queue.digest_wanted() {
                self.queue.set_digest(crc32c(&vec![0; range.bytes as usize]));
            }
            let before = wire.len();
            for piece in self.queue.pieces() {
                match piece {
                    Piece::Bytes(bytes) => wire.extend(bytes),
                    Piece::Data(range) => wire.resize(wire.len() + range.bytes as usize, 0),
                }
            }
            if wire.len() == before {
                return wire;
            }
            self.queue.sent(wire.len() - before);
        }
    }

    /// Passes what the controller has sent to the queue.
    fn deliver(&mut self) -> Result<(), Ended> {
        let mut wire = Vec::new();
        for piece in self.sender.pieces() {
            let Piece::Bytes(bytes) = piece else { panic!("all data are the sender's") };
            wire.extend(bytes);
        }
        self.sender.sent(wire.len(), |_| ());
        let mut input = wire.as_slice();
        while !input.is_empty() {
            let taken = match self.queue.placement() {
                Some(place) => {
                    let bytes = (place.bytes as usize).min(input.len());
                    self.queue.placed(&input[..bytes])?;
                    bytes
                }
                None => self.queue.receive(input)?,
            };
            input = &input[taken..];
        }
        Ok(())
    }

    fn respond(&mut self, id: u16, status: Status) -> Result<(), Ended> {
        let completion = Completion { result: 0, queue_head: 0, id, status };
        let header = [[0; 8].as_slice(), &completion.write()].concat();
        self.sender.push(PduKind::CapsuleResp, 0, &header, Body::None, Owner::NONE);
        self.deliver()
    }

    fn data(&mut self, flags: u8, id: u16, offset: u32, bytes: u32) -> Result<(), Ended> {
        let header = DataHeader { command: id, tag: 0, offset, bytes }.write();
        let body = Body::Owned(vec![7; bytes as usize].into());
        self.sender.push(PduKind::C2hData, flags, &header, body, Owner::NONE);
        self.deliver()
    }

    fn r2t(&mut self, id: u16, tag: u16, offset: u32, bytes: u32) -> Result<(), Ended> {
        let header = ReadyToTransfer { command: id, tag, offset, bytes }.write();
        self.sender.push(PduKind::R2t, 0, &header, Body::None, Owner::NONE);
        self.deliver()
    }

    /// Submits and sends a command. Returns its tag and the identifier it has on the wire.
    fn issue(&mut self, command: Command, bytes: u32) -> (Tag, u16) {
        let tag = self.queue.submit(command, bytes).expect("room");
        let wire = self.send_all();
        (tag, u16::from_le_bytes([wire[10], wire[11]]))
    }

    fn read(&mut self) -> (Tag, u16) {
        self.issue(nvm::read(1, Blocks { lba: 0, count: 16 }), 8192)
    }

    fn write(&mut self) -> (Tag, u16) {
        self.issue(nvm::write(1, Blocks { lba: 0, count: 16 }, false), 8192)
    }

    fn completed(&mut self) -> Option<(Tag, Status)> {
        match self.queue.event()? {
            Event::Completed { tag, outcome } => Some((tag, outcome.status)),
            other => panic!("{other:?}"),
        }
    }

    /// The connection must have ended with this fault, and the queue says so to the controller.
    fn ends_with(mut self, result: Result<(), Ended>, status: FatalStatus, info: u32) {
        assert_eq!(result, Err(Ended::Fault(Fault { status, info })));
        assert_eq!(self.queue.event(), None);
        assert_eq!(self.queue.outstanding().count(), 1, "the caller is told what was outstanding");
        let wire = self.send_all();
        assert_eq!((wire[0], wire[8]), (PduKind::H2cTermReq as u8, status as u8));
        assert!([24 + 8, 24 + 24].contains(&wire.len()), "the header at fault goes along");
        let ended = Ended::Fault(Fault { status, info });
        assert_eq!(self.queue.submit(Command::new(0), 0), Err(Refused::Ended(ended)));
        assert_eq!(self.queue.receive(&[0]), Err(ended));
    }
}

#[test]
fn read_in_parts_completes_with_its_response() {
    let mut pair = Pair::with_r2t(1);
    let (tag, id) = pair.read();
    pair.data(0, id, 0, 4096).unwrap();
    pair.data(LAST, id, 4096, 4096).unwrap();
    assert_eq!(pair.completed(), None);
    pair.respond(id, Status::SUCCESS).unwrap();
    assert_eq!(pair.completed(), Some((tag, Status::SUCCESS)));
    assert_eq!(pair.queue.outstanding().count(), 0);
}

#[test]
fn success_flag_stands_for_the_response() {
    let mut pair = Pair::with_r2t(1);
    let (tag, id) = pair.read();
    pair.data(LAST | SUCCESS, id, 0, 8192).unwrap();
    assert_eq!(pair.completed(), Some((tag, Status::SUCCESS)));
    let late = pair.respond(id, Status::SUCCESS);
    assert_eq!(late, Err(Ended::Fault(Fault::field_at(20))));
}

#[test]
fn success_without_all_data_is_a_data_transfer_error() {
    for (written, tail) in [(false, true), (false, false), (true, false)] {
        let mut pair = Pair::with_r2t(1);
        let (tag, id) = if written { pair.write() } else { pair.read() };
        if tail {
            pair.data(LAST, id, 0, 4096).unwrap();
        }
        pair.respond(id, Status::SUCCESS).unwrap();
        assert_eq!(pair.completed(), Some((tag, Status::DATA_TRANSFER_ERROR)));
    }
}

#[test]
fn data_that_break_a_rule_end_the_connection() {
    type Attack = fn(&mut Pair, u16) -> Result<(), Ended>;
    use FatalStatus::{InvalidHeaderField, OutOfRange, SequenceError};
    let cases: [(Attack, FatalStatus, u32); 8] = [
        (|pair, id| pair.data(0, id ^ 0x8000, 0, 4096), InvalidHeaderField, 8),
        (|pair, id| pair.data(0, id + 1, 0, 4096), InvalidHeaderField, 8),
        (|pair, id| pair.data(0, id, 4096, 4096), SequenceError, 0),
        (|pair, id| pair.data(0, id, 0, 8196), OutOfRange, 0),
        (|pair, id| pair.data(0, id, u32::MAX - 3, 8), OutOfRange, 0),
        (
            |pair, id| pair.data(LAST, id, 0, 4096).and_then(|()| pair.data(LAST, id, 4096, 4096)),
            SequenceError,
            0,
        ),
        (|pair, id| pair.data(SUCCESS, id, 0, 4096), InvalidHeaderField, 1),
        (|pair, id| pair.r2t(id, 0, 0, 4096), SequenceError, 0),
    ];
    for (attack, status, info) in cases {
        let mut pair = Pair::with_r2t(1);
        let (_, id) = pair.read();
        let result = attack(&mut pair, id);
        pair.ends_with(result, status, info);
    }
}

#[test]
fn r2t_that_breaks_a_rule_ends_the_connection() {
    type Attack = fn(&mut Pair, u16) -> Result<(), Ended>;
    use FatalStatus::{InvalidHeaderField, LimitExceeded, OutOfRange, SequenceError};
    let cases: [(Attack, FatalStatus, u32); 6] = [
        (|pair, id| pair.r2t(id + 1, 0, 0, 4096), InvalidHeaderField, 8),
        (|pair, id| pair.r2t(id, 0, 4096, 4096), SequenceError, 0),
        (|pair, id| pair.r2t(id, 0, 0, 8196), OutOfRange, 0),
        (|pair, id| pair.r2t(id, 0, 0, 6), InvalidHeaderField, 16),
        (
            |pair, id| {
                pair.r2t(id, 0, 0, 4)?;
                pair.r2t(id, 0, 4, 4)?;
                pair.r2t(id, 0, 8, 4)
            },
            LimitExceeded,
            0,
        ),
        (|pair, id| pair.data(LAST, id, 0, 8192), SequenceError, 0),
    ];
    for (attack, status, info) in cases {
        let mut pair = Pair::with_r2t(2);
        let (_, id) = pair.write();
        let result = attack(&mut pair, id);
        pair.ends_with(result, status, info);
    }
}

#[test]
fn flags_of_other_digests_and_second_initialization_end_the_connection() {
    let mut pair = Pair::with_r2t(1);
    pair.read();
    pair.sender
        .push_initialize(&IcResp { align: 4, digests: BOTH, h2c_data_bytes_max: 4096 }.write());
    let result = pair.deliver();
    pair.ends_with(result, FatalStatus::SequenceError, 0);

    let mut pair = Pair::with_r2t(1);
    let (_, id) = pair.read();
    pair.sender.set_format(Digests::default(), 4);
    let result = pair.data(LAST, id, 0, 8192);
    pair.ends_with(result, FatalStatus::InvalidHeaderField, 1);
}

#[test]
fn r2t_are_served_in_order_and_in_parts_of_the_agreed_size() {
    let mut pair = Pair::with_r2t(2);
    let (tag, id) = pair.write();
    pair.r2t(id, 5, 0, 4100).unwrap();
    pair.r2t(id, 6, 4100, 4092).unwrap();
    let wire = pair.send_all();
    let mut found = Vec::new();
    let mut at = 0;
    while at < wire.len() {
        let field = |offset: usize| {
            u32::from_le_bytes(wire[at + offset..at + offset + 4].try_into().unwrap())
        };
        let data = DataHeader::read(&wire[at..at + 24], field(16)).unwrap();
        assert_eq!((data.command, wire[at + 3]), (id, 32), "aligned as the controller asked");
        found.push((data.tag, data.offset, data.bytes, wire[at + 1] & LAST != 0));
        at += field(4) as usize;
    }
    let expected = [(5, 0, 4096, false), (5, 4096, 4, true), (6, 4100, 4092, true)];
    assert_eq!(found, expected);
    pair.respond(id, Status::SUCCESS).unwrap();
    assert_eq!(pair.completed(), Some((tag, Status::SUCCESS)));
}

#[test]
fn early_failure_of_a_write_waits_for_the_data_on_their_way_and_sends_no_more() {
    let mut pair = Pair::with_r2t(1);
    let (tag, id) = pair.write();
    pair.r2t(id, 5, 0, 8192).unwrap();
    let range = pair.queue.digest_wanted().unwrap();
    pair.queue.set_digest(crc32c(&vec![0; range.bytes as usize]));
    let bytes = pair.queue.pieces().map(|piece| piece.bytes()).sum::<usize>();
    pair.queue.lend(bytes);
    pair.respond(id, Status::WRITE_FAULT).unwrap();
    assert_eq!(pair.completed(), None, "the socket still reads the data");
    pair.queue.sent(10);
    assert_eq!(pair.completed(), None);
    pair.queue.sent(bytes - 10);
    assert_eq!(pair.completed(), Some((tag, Status::WRITE_FAULT)));
    assert!(pair.send_all().is_empty(), "no data of a command that is over");
}

#[test]
fn damaged_data_fail_their_command_and_no_other() {
    let mut pair = Pair::with_r2t(1);
    let ((first, first_id), (second, second_id)) = (pair.read(), pair.read());
    let header = DataHeader { command: first_id, tag: 0, offset: 0, bytes: 8192 }.write();
    pair.sender.set_format(Digests { header: true, data: false }, 16);
    let body = Body::Owned(vec![1; 8192 + 4].into());
    // With a digest of 01010101h, which these data do not have.
    let mut header = header;
    header[16..20].copy_from_slice(&8192u32.to_le_bytes());
    pair.sender.push(PduKind::C2hData, LAST | 2, &header, body, Owner::NONE);
    pair.deliver().unwrap();
    pair.sender.set_format(BOTH, 16);
    pair.respond(first_id, Status::SUCCESS).unwrap();
    assert_eq!(pair.completed(), Some((first, Status::TRANSIENT_TRANSPORT_ERROR)));
    pair.data(LAST | SUCCESS, second_id, 0, 8192).unwrap();
    assert_eq!(pair.completed(), Some((second, Status::SUCCESS)));
}

#[test]
fn what_cannot_be_submitted_is_refused_with_the_reason() {
    let mut queue = Queue::new(config(1));
    assert_eq!(queue.submit(Command::new(0), 0), Err(Refused::NotReady));
    let mut pair = Pair::with_r2t(1);
    let read = nvm::read(1, Blocks { lba: 0, count: 1 });
    assert_eq!(pair.queue.submit(read, 510), Err(Refused::Length));
    assert_eq!(pair.queue.submit(nvm::flush(1), 512), Err(Refused::Length));
    for _ in 0..4 {
        pair.queue.submit(read, 512).unwrap();
    }
    assert_eq!(pair.queue.submit(read, 512), Err(Refused::Full));
    assert!(!pair.queue.has_room());
    pair.queue.close();
    assert_eq!(pair.queue.submit(read, 512), Err(Refused::Ended(Ended::Closed)));
    assert_eq!(pair.queue.outstanding().count(), 4);
}

#[test]
fn small_writes_take_their_data_along() {
    let mut pair = Pair::with_r2t(1);
    pair.queue.submit(nvm::write(1, Blocks { lba: 0, count: 1 }, false), 512).unwrap();
    let wire = pair.send_all();
    assert_eq!((wire[0], wire[1], wire[3], wire.len()), (4, 3, 96, 96 + 512 + 4));
    assert_eq!((wire[8 + 39], &wire[8 + 32..8 + 36]), (0x01, 512u32.to_le_bytes().as_slice()));
}

#[test]
fn response_to_a_command_that_was_not_sent_ends_the_connection() {
    let mut pair = Pair::with_r2t(1);
    pair.queue.submit(nvm::flush(1), 0).unwrap();
    let result = pair.respond(4, Status::SUCCESS);
    assert_eq!(result, Err(Ended::Fault(Fault::field_at(20))));
}
