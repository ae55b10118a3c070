//! Connections without sockets, whose peer sends given bytes: what the fuzz targets and the tests of their corpora run.

use crate::command::fabrics::{Property, property_set};
use crate::command::nvm::{self, Blocks};
use crate::command::{Command, Completion, Status, features};
use crate::controller::{
    Connection, ConnectionConfig, Event, Export, Limits, Namespace, Operation, Target,
};
use crate::host::{self, Login, Queue, QueueConfig};
use crate::pdu::{
    Body, COMMON_HEADER_BYTES, Digests, HEADER_BYTES_MAX, IcReq, Owner, PduKind, Piece, Sender,
    crc32c,
};

/// Blocks of the namespace, of 512 bytes.
const BLOCKS: u64 = 1024;
/// Bytes of the header of all PDUs but two, without a digest.
const HEADER_BYTES: usize = 24;
/// Name of the subsystem.
const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d6f7265-0000-4000-8000-000000000001";

/// The host of [`walk_controller`]'s Admin Queue; its controller has identifier 1.
#[must_use]
pub fn walk_login() -> Login {
    Login {
        host_nqn: "nqn.2014-08.org.nvmexpress:uuid:host".into(),
        host_id: [7; 16],
        subsystem_nqn: NQN.into(),
    }
}

fn target() -> Target {
    let namespace =
        Namespace { nsid: 1, blocks: BLOCKS, block_shift: 9, nguid: [1; 16], read_only: false };
    let limits = Limits { transfer_pages_shift: 4, queue_entries_max: 32, ..Limits::default() };
    let export = Export {
        nqn: NQN.into(),
        serial: "1".into(),
        model: "walk".into(),
        firmware: "1".into(),
        namespaces: vec![namespace],
        allowed_hosts: None,
        volatile_write_cache: true,
        limits,
    };
    Target::new(vec![export], Vec::new())
}

/// All bytes that `pieces` stand for, with zeros for data.
fn gather<'a>(pieces: impl Iterator<Item = Piece<'a>>) -> Vec<u8> {
    let mut wire = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => wire.extend(bytes),
            Piece::Data(range) => wire.resize(wire.len() + range.bytes as usize, 0),
        }
    }
    wire
}

/// An Admin Queue, set up by a host that makes no mistakes.
struct Admin {
    sender: Sender,
    connection: Connection,
}

impl Admin {
    fn new(target: &mut Target) -> Self {
        let connection = Connection::new(ConnectionConfig::default());
        let mut admin = Self { sender: Sender::default(), connection };
        let request = IcReq { align: 4, digests: Digests::default(), r2t_max: 1 };
        admin.sender.push_initialize(&request.write());
        let (connect, data) = walk_login().admin(8, 0);
        admin.run(connect, Some(data), target);
        admin.run(property_set(Property::Configuration, 0x0046_0001), None, target);
        admin
    }

    /// Runs a command, which must succeed.
    fn run(&mut self, mut command: Command, data: Option<Box<[u8]>>, target: &mut Target) {
        command.set_id(1);
        command.set_data(data.as_ref().map_or(0, |data| data.len() as u32), data.is_some());
        let header = [[0; COMMON_HEADER_BYTES].as_slice(), command.as_bytes()].concat();
        let body = data.map_or(Body::None, Body::Owned);
        self.sender.push(PduKind::CapsuleCmd, 0, &header, body, Owner::NONE);
        let wire = gather(self.sender.pieces());
        self.sender.sent(wire.len(), |_| ());
        let taken = self.connection.receive(&wire, target);
        assert_eq!(taken, Ok(wire.len()), "a good host");
        let wire = gather(self.connection.pieces());
        self.connection.sent(wire.len());
        let entry = wire[wire.len() - 16..].try_into().expect("a completion");
        assert_eq!(Completion::read(entry).status, Status::SUCCESS);
    }
}

/// Shows a connection of a controller `bytes` in pieces of `step`, executes what it wants, and returns how many
/// operations that were. Another connection of the same target must not notice.
///
/// # Panics
/// If the connection takes nothing, or wants what it may not.
pub fn walk_controller(bytes: &[u8], step: usize) -> usize {
    let mut target = target();
    let mut admin = Admin::new(&mut target);
    let config = ConnectionConfig {
        h2c_data_bytes_max: 4096,
        c2h_data_bytes_max: 8192,
        r2t_max: 2,
        r2t_bytes_max: 8192,
        ..ConnectionConfig::default()
    };
    let mut connection = Connection::new(config);
    let mut lengths: Vec<u32> = Vec::new();
    let (mut executing, mut executed) = (Vec::new(), 0);
    let holds = bytes.get(HEADER_BYTES_MAX - 1).is_some_and(|&byte| byte != 0);
    for piece in bytes.chunks(step.max(1)) {
        let mut input = piece;
        while !input.is_empty() && connection.ended().is_none() {
            let taken = match connection.placement() {
                Some(place) => {
                    let end = place.offset.checked_add(place.bytes).expect("within the data");
                    assert!(end <= lengths[place.tag.index()], "within the buffer");
                    let bytes = input.len().min(place.bytes as usize);
                    connection.placed(&input[..bytes], &mut target).map(|()| bytes)
                }
                // One header at a time: what follows may answer an R2T that is sent in between.
                None => connection.receive(&input[..input.len().min(HEADER_BYTES)], &mut target),
            };
            let taken = taken.unwrap_or(input.len());
            assert!(taken > 0, "no progress");
            input = &input[taken..];
            lengths.resize(connection.tags(), 0);
            while let Some(event) = connection.event() {
                match event {
                    Event::Incoming { tag, bytes, .. } => {
                        assert!(bytes > 0 && bytes <= 64 << 10, "within the limits");
                        lengths[tag.index()] = bytes;
                        connection.accept(tag);
                    }
                    Event::Execute { tag, operation } => {
                        check(&operation);
                        if let Operation::Read { bytes, .. } = operation {
                            lengths[tag.index()] = bytes;
                        }
                        executing.push(tag);
                    }
                    Event::Await { tag, fence } => {
                        assert!(!target.is_over(&fence), "something to wait for");
                        executing.insert(0, tag);
                    }
                    Event::Released { .. } | Event::KeepAlive { .. } | Event::Stopped => {}
                }
            }
            // At once, or, as the last byte of the ICReq says, the later of two first.
            if !holds || executing.len() > 1 {
                while let Some(tag) = executing.pop() {
                    executed += 1;
                    connection.complete(tag, Status::SUCCESS, &mut target);
                }
            }
            drain(&mut connection, &lengths);
        }
    }
    connection.end(&mut target);
    executed += executing.len();
    executing.into_iter().for_each(|tag| connection.complete(tag, Status::SUCCESS, &mut target));
    drain(&mut connection, &lengths);
    assert_eq!(target.controllers(), 1, "the other connection's");
    admin.run(features::keep_alive(), None, &mut target);
    executed
}

fn check(operation: &Operation) {
    let fits = |blocks: &Blocks| assert!(blocks.fit(BLOCKS), "within the namespace");
    match operation {
        Operation::Read { nsid, blocks, bytes } | Operation::Write { nsid, blocks, bytes, .. } => {
            assert_eq!((*nsid, u64::from(*bytes)), (1, u64::from(blocks.count) * 512));
            assert!(*bytes <= 64 << 10, "within the limits");
            fits(blocks);
        }
        Operation::WriteZeroes { nsid, blocks, .. } => {
            assert_eq!(*nsid, 1);
            fits(blocks);
        }
        Operation::Flush { nsid } => assert_eq!(*nsid, 1),
        Operation::Deallocate { nsid, ranges } => {
            assert_eq!(*nsid, 1);
            ranges.iter().for_each(fits);
        }
    }
}

/// Sends all that a connection has, from buffers of these lengths.
fn drain(connection: &mut Connection, lengths: &[u32]) {
    loop {
        while let Some(range) = connection.digest_wanted() {
            connection.set_digest(crc32c(&vec![0; range.bytes as usize]));
        }
        let mut bytes = 0;
        for piece in connection.pieces() {
            if let Piece::Data(range) = piece {
                assert!(range.offset + range.bytes <= lengths[usize::from(range.command)]);
            }
            bytes += piece.bytes();
        }
        if bytes == 0 {
            return;
        }
        connection.sent(bytes);
    }
}

/// Commands that the host of [`walk_host`] submits, with the bytes of their data.
pub fn walk_commands() -> impl Iterator<Item = (Command, u32)> + Clone {
    let blocks = |lba, count| Blocks { lba, count };
    [
        (nvm::read(1, blocks(0, 8)), 4096),
        (nvm::write(1, blocks(8, 16), false), 8192),
        (nvm::write(1, blocks(32, 1), true), 512),
        (nvm::flush(1), 0),
        (nvm::read(1, blocks(64, 24)), 12 << 10),
        (nvm::write(1, blocks(128, 24), false), 12 << 10),
    ]
    .into_iter()
}

/// Shows the queue of a host `bytes` in pieces of `step`, and returns how many commands were completed. The host fills
/// its queue with [`walk_commands`] whenever no command is outstanding.
///
/// # Panics
/// If the queue takes nothing, completes a command twice, or wants what it may not.
pub fn walk_host(bytes: &[u8], step: usize) -> usize {
    let config = QueueConfig {
        entries: 8,
        r2t_max: 2,
        in_capsule_bytes_max: 4096,
        digests: Digests { header: true, data: true },
        ..QueueConfig::default()
    };
    let mut queue = Queue::new(config);
    let mut lengths: Vec<Option<u32>> = vec![None; queue.capacity()];
    let mut commands = walk_commands().cycle();
    let mut completed = 0;
    for piece in bytes.chunks(step.max(1)) {
        let mut input = piece;
        while !input.is_empty() && queue.ended().is_none() {
            if queue.outstanding().next().is_none() {
                while queue.has_room()
                    && let Some((command, bytes)) = commands.next()
                {
                    let tag = queue.submit(command, bytes).expect("there is room");
                    assert_eq!(lengths[tag.index()].replace(bytes), None, "a tag of its own");
                }
            }
            send(&mut queue, &lengths);
            let taken = match queue.placement() {
                Some(place) => {
                    let end = place.offset.checked_add(place.bytes).expect("within the data");
                    let length = lengths[place.tag.index()].expect("an outstanding command");
                    assert!(end <= length, "within the buffer");
                    let bytes = input.len().min(place.bytes as usize);
                    queue.placed(&input[..bytes]).map(|()| bytes)
                }
                // One header at a time: what follows may answer a command that is submitted in between.
                None => queue.receive(&input[..input.len().min(HEADER_BYTES)]),
            };
            let taken = taken.unwrap_or(input.len());
            assert!(taken > 0, "no progress");
            input = &input[taken..];
            while let Some(event) = queue.event() {
                if let host::Event::Completed { tag, .. } = event {
                    assert!(lengths[tag.index()].take().is_some(), "completed once");
                    completed += 1;
                }
            }
        }
    }
    send(&mut queue, &lengths);
    let outstanding = lengths.iter().filter(|length| length.is_some()).count();
    assert_eq!(queue.outstanding().count(), outstanding, "no command is lost");
    completed
}

/// Sends all that a queue has.
fn send(queue: &mut Queue, lengths: &[Option<u32>]) {
    loop {
        while let Some(range) = queue.digest_wanted() {
            queue.set_digest(crc32c(&vec![0; range.bytes as usize]));
        }
        let mut bytes = 0;
        for piece in queue.pieces() {
            if let Piece::Data(range) = piece {
                let length = lengths[usize::from(range.command)].expect("an outstanding command");
                assert!(range.offset + range.bytes <= length, "within the buffer");
            }
            bytes += piece.bytes();
        }
        if bytes == 0 {
            return;
        }
        queue.sent(bytes);
    }
}
