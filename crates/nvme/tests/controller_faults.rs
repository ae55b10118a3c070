//! A controller's connection against a host that does what it likes: what a rule forbids ends the connection with the
//! error that TCP Transport 1.0 names, other connections and the target go on, and mistakes in commands are answered.

mod common;

use common::{NQN, World, export, login};
use terrace_nvme::command::fabrics::{ConnectData, InvalidParameter, Property, property_get};
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::{Command, Completion, Status, features};
use terrace_nvme::controller::{Connection, ConnectionConfig, Event, Limits, Operation};
use terrace_nvme::host::Login;
use terrace_nvme::pdu::{
    Body, DataHeader, Digests, Ended, FatalStatus, Fault, IcReq, Owner, PduKind, Piece,
    ReadyToTransfer, Sender, crc32c,
};

const LAST: u8 = 4;

/// A made-up host and a connection of a controller.
struct Peer {
    sender: Sender,
    connection: Connection,
}

fn limits() -> Limits {
    Limits { in_capsule_bytes_max: 1024, queue_entries_max: 8, ..Limits::default() }
}

fn world() -> World {
    World::new(export(limits()))
}

impl Peer {
    /// A connection that is initialized, without digests.
    fn new(world: &mut World) -> Self {
        let config = ConnectionConfig {
            h2c_data_bytes_max: 4096,
            r2t_max: 2,
            r2t_bytes_max: 4096,
            ..ConnectionConfig::default()
        };
        Self::with(config, Digests::default(), world)
    }

    fn with(config: ConnectionConfig, digests: Digests, world: &mut World) -> Self {
        let mut peer = Self { sender: Sender::default(), connection: Connection::new(config) };
        peer.sender.push_initialize(&IcReq { align: 4, digests, r2t_max: 2 }.write());
        peer.deliver(world).expect("a good request");
        assert_eq!(peer.send_all().len(), 128);
        peer.sender.set_format(digests, config.align);
        peer
    }

    /// With an Admin Queue that is enabled.
    fn admin(world: &mut World) -> Self {
        let mut peer = Self::new(world);
        let (connect, data) = login(1).admin(8, 5000);
        assert_eq!(peer.run(connect, &data, world).status, Status::SUCCESS);
        let enable =
            terrace_nvme::command::fabrics::property_set(Property::Configuration, 0x0046_0001);
        assert_eq!(peer.run(enable, &[], world).status, Status::SUCCESS);
        peer
    }

    /// With I/O queue `queue_id` of `admin`'s controller.
    fn io(admin: &Self, queue_id: u16, world: &mut World) -> Self {
        let mut peer = Self::new(world);
        let (_, controller_id) = admin.connection.queue().expect("it is connected");
        let (connect, data) = login(1).io(controller_id, queue_id, 4);
        assert_eq!(peer.run(connect, &data, world).status, Status::SUCCESS);
        peer
    }

    fn deliver(&mut self, world: &mut World) -> Result<(), Ended> {
        let mut wire = Vec::new();
        for piece in self.sender.pieces() {
            let Piece::Bytes(bytes) = piece else { panic!("all data are the sender's") };
            wire.extend(bytes);
        }
        self.sender.sent(wire.len(), |_| ());
        let mut input = wire.as_slice();
        while !input.is_empty() {
            let taken = match self.connection.placement() {
                Some(place) => {
                    let bytes = (place.bytes as usize).min(input.len());
                    self.connection.placed(&input[..bytes], &mut world.target)?;
                    bytes
                }
                None => self.connection.receive(input, &mut world.target)?,
            };
            input = &input[taken..];
        }
        Ok(())
    }

    fn send_all(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        loop {
            while let Some(range) = self.connection.digest_wanted() {
                self.connection.set_digest(crc32c(&vec![0; range.bytes as usize]));
            }
            let before = wire.len();
            for piece in self.connection.pieces() {
                match piece {
                    Piece::Bytes(bytes) => wire.extend(bytes),
                    Piece::Data(range) => wire.resize(wire.len() + range.bytes as usize, 0),
                }
            }
            if wire.len() == before {
                return wire;
            }
            self.connection.sent(wire.len() - before);
        }
    }

    /// Sends a command with `data` in its capsule, or a descriptor of `outside` bytes.
    fn capsule(
        &mut self,
        mut command: Command,
        id: u16,
        data: &[u8],
        outside: u32,
        world: &mut World,
    ) -> Result<(), Ended> {
        command.set_id(id);
        command.set_data(
            if outside > 0 { outside } else { data.len() as u32 },
            outside == 0 && !data.is_empty(),
        );
        let header = [[0; 8].as_slice(), command.as_bytes()].concat();
        let body = if data.is_empty() { Body::None } else { Body::Owned(data.into()) };
        self.sender.push(PduKind::CapsuleCmd, 0, &header, body, Owner::NONE);
        self.deliver(world)
    }

    fn run(&mut self, command: Command, data: &[u8], world: &mut World) -> Completion {
        self.capsule(command, 77, data, 0, world).expect("the connection stays");
        self.completion()
    }

    /// The completion at the end of what is sent now.
    fn completion(&mut self) -> Completion {
        let wire = self.send_all();
        let at = wire.len().checked_sub(24).expect("a response");
        assert_eq!(wire[at], PduKind::CapsuleResp as u8);
        Completion::read(wire[at + 8..].try_into().expect("16 bytes"))
    }

    fn data(&mut self, flags: u8, data: DataHeader, world: &mut World) -> Result<(), Ended> {
        let body = Body::Owned(vec![7; data.bytes as usize].into());
        self.sender.push(PduKind::H2cData, flags, &data.write(), body, Owner::NONE);
        self.deliver(world)
    }

    /// Sends a write of 8192 bytes and accepts it. Returns the R2T.
    fn write(&mut self, id: u16, world: &mut World) -> Vec<ReadyToTransfer> {
        let write = nvm::write(1, Blocks { lba: 0, count: 16 }, false);
        self.capsule(write, id, &[], 8192, world).expect("a good command");
        let Some(Event::Incoming { tag, bytes: 8192, in_capsule: false }) = self.connection.event()
        else {
            panic!("a write is announced");
        };
        assert!(self.send_all().is_empty(), "nothing is asked for before there is a buffer");
        self.connection.accept(tag);
        let wire = self.send_all();
        wire.chunks(24).map(|pdu| ReadyToTransfer::read(pdu).expect("a good R2T")).collect()
    }

    fn ends_with(mut self, result: Result<(), Ended>, status: FatalStatus, info: u32) {
        let ended = Ended::Fault(Fault { status, info });
        assert_eq!(result, Err(ended));
        let wire = self.send_all();
        assert_eq!((wire[0], wire[8]), (PduKind::C2hTermReq as u8, status as u8));
        assert_eq!(u32::from_le_bytes([wire[10], wire[11], wire[12], wire[13]]), info);
        assert_eq!(self.connection.ended(), Some(ended));
    }
}

#[test]
fn host_data_that_break_a_rule_end_the_connection() {
    use FatalStatus::{InvalidHeaderField, LimitExceeded, OutOfRange, SequenceError};
    type Change = fn(&mut DataHeader) -> u8;
    let cases: [(Change, FatalStatus, u32); 10] = [
        (
            |data| {
                data.tag += 1;
                LAST
            },
            InvalidHeaderField,
            10,
        ),
        (
            |data| {
                data.tag = u16::MAX;
                LAST
            },
            InvalidHeaderField,
            10,
        ),
        (
            |data| {
                data.command ^= 1;
                LAST
            },
            InvalidHeaderField,
            8,
        ),
        (
            |data| {
                data.offset = 4;
                data.bytes = 4092;
                LAST
            },
            SequenceError,
            0,
        ),
        (
            |data| {
                data.offset = 4;
                LAST
            },
            OutOfRange,
            0,
        ),
        (
            |data| {
                data.offset = 4096;
                LAST
            },
            OutOfRange,
            0,
        ),
        (
            |data| {
                data.offset = u32::MAX - 3;
                LAST
            },
            OutOfRange,
            0,
        ),
        (|_| 0, SequenceError, 0),
        (
            |data| {
                data.bytes = 4;
                LAST
            },
            SequenceError,
            0,
        ),
        (
            |data| {
                data.bytes = 4100;
                LAST
            },
            LimitExceeded,
            0,
        ),
    ];
    for (change, status, info) in cases {
        let mut world = world();
        let admin = Peer::admin(&mut world);
        let mut io = Peer::io(&admin, 1, &mut world);
        let r2t = io.write(5, &mut world);
        assert_eq!(r2t.len(), 2, "as many as the host supports");
        let mut data = DataHeader { command: 5, tag: r2t[0].tag, offset: 0, bytes: 4096 };
        let flags = change(&mut data);
        let result = io.data(flags, data, &mut world);
        io.ends_with(result, status, info);
    }
}

#[test]
fn command_identifier_in_use_ends_the_connection_and_spares_the_others() {
    let mut world = world();
    let mut admin = Peer::admin(&mut world);
    let (mut one, mut two) = (Peer::io(&admin, 1, &mut world), Peer::io(&admin, 2, &mut world));
    one.capsule(nvm::flush(1), 9, &[], 0, &mut world).unwrap();
    let Some(Event::Execute { tag, .. }) = one.connection.event() else { panic!("a flush") };
    let result = one.capsule(nvm::flush(1), 9, &[], 0, &mut world);
    // The flush goes on with the caller, which completes it without harm.
    one.connection.complete(tag, Status::SUCCESS, &mut world.target);
    one.connection.end(&mut world.target);
    one.ends_with(result, FatalStatus::InvalidHeaderField, 10);

    assert!(two.connection.is_live(&mut world.target));
    two.capsule(nvm::flush(1), 9, &[], 0, &mut world).unwrap();
    let Some(Event::Execute { tag, .. }) = two.connection.event() else { panic!("a flush") };
    two.connection.complete(tag, Status::SUCCESS, &mut world.target);
    assert_eq!(two.completion().status, Status::SUCCESS);
    assert_eq!(admin.run(features::keep_alive(), &[], &mut world).status, Status::SUCCESS);
    // The queue of the connection that ended can be opened again.
    Peer::io(&admin, 1, &mut world);
}

#[test]
fn identifier_may_come_again_once_its_answer_is_on_the_way() {
    let mut world = world();
    let mut admin = Peer::admin(&mut world);
    for _ in 0..50 {
        admin.capsule(features::keep_alive(), 3, &[], 0, &mut world).unwrap();
        let bytes = admin.connection.pieces().map(|piece| piece.bytes()).sum();
        admin.connection.lend(bytes);
        admin.capsule(features::keep_alive(), 3, &[], 0, &mut world).unwrap();
        admin.connection.sent(bytes);
        assert_eq!(admin.completion().id, 3);
    }
}

#[test]
fn more_commands_than_entries_end_the_connection() {
    let mut world = world();
    let admin = Peer::admin(&mut world);
    let mut io = Peer::io(&admin, 1, &mut world);
    for id in 0..4 {
        io.capsule(nvm::flush(1), id, &[], 0, &mut world).unwrap();
    }
    let result = io.capsule(nvm::flush(1), 4, &[], 0, &mut world);
    io.ends_with(result, FatalStatus::SequenceError, 0);
}

#[test]
fn capsule_with_more_data_than_agreed_ends_the_connection() {
    let mut world = world();
    let admin = Peer::admin(&mut world);
    let mut io = Peer::io(&admin, 1, &mut world);
    let write = nvm::write(1, Blocks { lba: 0, count: 3 }, false);
    let result = io.capsule(write, 1, &[0; 1536], 0, &mut world);
    io.ends_with(result, FatalStatus::InvalidHeaderField, 4);
}

#[test]
fn bad_initialization_ends_the_connection() {
    let good = IcReq { align: 4, digests: Digests::default(), r2t_max: 1 };
    let cases =
        [(8, 1, FatalStatus::UnsupportedParameter), (10, 32, FatalStatus::InvalidHeaderField)];
    for (at, value, status) in cases {
        let mut world = world();
        let (sender, connection) =
            (Sender::default(), Connection::new(ConnectionConfig::default()));
        let mut peer = Peer { sender, connection };
        let mut pdu = good.write();
        pdu[at] = value;
        peer.sender.push_initialize(&pdu);
        let result = peer.deliver(&mut world);
        peer.ends_with(result, status, at as u32);
    }
    let mut world = world();
    let mut peer = Peer::new(&mut world);
    peer.sender.push_initialize(&good.write());
    let result = peer.deliver(&mut world);
    peer.ends_with(result, FatalStatus::SequenceError, 0);
}

#[test]
fn wrong_header_digest_ends_the_connection_with_that_digest() {
    let mut world = world();
    let digests = Digests { header: true, data: true };
    let mut peer = Peer::with(ConnectionConfig::default(), digests, &mut world);
    let mut wire = vec![4, 1, 72, 0, 76, 0, 0, 0];
    wire.resize(72, 0);
    wire.extend(0x1234_5678u32.to_le_bytes());
    let result = peer.connection.receive(&wire, &mut world.target).map(|_| ());
    peer.ends_with(result, FatalStatus::HeaderDigestError, 0x1234_5678);
}

#[test]
fn terminate_request_ends_the_connection_without_an_answer() {
    let mut world = world();
    for (bytes, expected_malformed) in [(24u32, false), (153, true), (8, true)] {
        let mut peer = Peer::new(&mut world);
        let mut wire = vec![2, 0, 24, 0];
        wire.extend(bytes.to_le_bytes());
        wire.extend([5, 0, 1, 0, 0, 0]);
        wire.resize(24, 0);
        let result = peer.connection.receive(&wire, &mut world.target);
        match result {
            Err(Ended::Malformed) => assert!(expected_malformed),
            Err(Ended::ByPeer(term)) => assert_eq!((term.status, term.info), (5, 1)),
            other => panic!("{other:?}"),
        }
        assert!(peer.send_all().is_empty());
    }
}

#[test]
fn damaged_data_in_a_capsule_fail_the_command_and_no_more() {
    let mut world = world();
    let digests = Digests { header: true, data: true };
    let admin = Peer::admin(&mut world);
    let mut io = Peer::with(ConnectionConfig::default(), digests, &mut world);
    let (_, controller_id) = admin.connection.queue().unwrap();
    let (connect, data) = login(1).io(controller_id, 1, 4);
    io.capsule(connect, 1, &data, 0, &mut world).unwrap();
    io.send_all();
    // Header digest only, and a data digest of zeros at the end of what the sender takes for data.
    io.sender.set_format(Digests { header: true, data: false }, 4);
    let mut write = nvm::write(1, Blocks { lba: 0, count: 1 }, false);
    write.set_id(2);
    write.set_data(512, true);
    let header = [[0; 8].as_slice(), write.as_bytes()].concat();
    io.sender.push(PduKind::CapsuleCmd, 2, &header, Body::Owned(vec![7; 516].into()), Owner::NONE);
    io.deliver(&mut world).unwrap();
    assert!(matches!(io.connection.event(), Some(Event::Incoming { in_capsule: true, .. })));
    assert_eq!(io.connection.event(), None, "the caller does not write damaged data");
    let wire = io.send_all();
    let completion = Completion::read(wire[wire.len() - 20..wire.len() - 4].try_into().unwrap());
    assert_eq!((completion.id, completion.status), (2, Status::TRANSIENT_TRANSPORT_ERROR));
}

/// Every way to get a Connect wrong, and what the host is told.
#[test]
fn connect_is_refused_with_the_parameter_at_fault() {
    let invalid =
        |parameter: InvalidParameter| (Status::CONNECT_INVALID_PARAMETERS, parameter.result());
    let mut allowed = export(limits());
    allowed.allowed_hosts = Some(vec![login(1).host_nqn]);
    let mut world = World::new(allowed);
    let mut refused =
        |login: &Login, change: fn(Command) -> Command, controller_id: Option<u16>| {
            let mut peer = Peer::new(&mut world);
            let (command, data) = login.admin(8, 0);
            let mut data = ConnectData::read((&*data).try_into().unwrap()).unwrap();
            data.controller_id = controller_id.unwrap_or(data.controller_id);
            let completion = peer.run(change(command), &data.write(), &mut world);
            assert!(completion.status.is_final());
            (completion.status, completion.result)
        };
    let expect = |found: (Status, u64), expected: (Status, u64)| {
        assert!(found.0.is(expected.0), "{found:?}");
        assert_eq!(found.1, expected.1);
    };
    let same = |command| command;
    let other = Login { subsystem_nqn: "nqn.2014-08.org.nvmexpress:other".into(), ..login(1) };
    expect(refused(&other, same, None), invalid(InvalidParameter::SUBSYSTEM_NQN));
    expect(refused(&login(2), same, None), (Status::CONNECT_INVALID_HOST, 0));
    let nameless = Login { host_id: [0; 16], ..login(1) };
    expect(refused(&nameless, same, None), invalid(InvalidParameter::HOST_ID));
    expect(refused(&login(1), same, Some(1)), invalid(InvalidParameter::CONTROLLER_ID));
    // Dword 11 has the size of the queue in its lower half, dword 10 the identifier of the queue in its upper.
    expect(
        refused(&login(1), |one| one.with_dword(11, 0), None),
        invalid(InvalidParameter::QUEUE_SIZE),
    );
    expect(
        refused(&login(1), |one| one.with_dword(11, 32), None),
        invalid(InvalidParameter::QUEUE_SIZE),
    );
    expect(
        refused(&login(1), |one| one.with_dword(10, 1 << 16), None),
        invalid(InvalidParameter::CONTROLLER_ID),
    );
    expect(
        refused(&login(1), |one| one.with_dword(10, 1), None),
        (Status::CONNECT_INCOMPATIBLE_FORMAT, 0),
    );
    assert_eq!(world.target.controllers(), 0);

    let admin = Peer::admin(&mut world);
    let (_, controller_id) = admin.connection.queue().unwrap();
    Peer::io(&admin, 1, &mut world);
    for (queue_id, entries, parameter) in [
        (1, 4, InvalidParameter::QUEUE_ID),
        (65, 4, InvalidParameter::QUEUE_ID),
        (2, 9, InvalidParameter::QUEUE_SIZE),
    ] {
        let mut peer = Peer::new(&mut world);
        let (connect, data) = login(1).io(controller_id, queue_id, entries);
        let completion = peer.run(connect, &data, &mut world);
        expect((completion.status, completion.result), invalid(parameter));
    }
    assert_eq!(login(1).subsystem_nqn, NQN);
}

#[test]
fn commands_before_connect_and_admin_commands_before_enabling_are_refused() {
    let mut world = world();
    let mut peer = Peer::new(&mut world);
    let early = peer.run(property_get(Property::Version), &[], &mut world).status;
    assert!(early.is(Status::COMMAND_SEQUENCE_ERROR));
    let (connect, data) = login(1).admin(8, 0);
    peer.run(connect, &data, &mut world);
    let disabled = peer.run(features::keep_alive(), &[], &mut world).status;
    assert!(disabled.is(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(peer.run(property_get(Property::Version), &[], &mut world).result, 0x1_0400);
    let again = peer.run(connect, &data, &mut world).status;
    assert!(again.is(Status::COMMAND_SEQUENCE_ERROR));
}

/// Mistakes in commands are answered; the connection goes on.
#[test]
fn mistakes_in_commands_are_answered_with_their_status() {
    let mut world = world();
    let admin = Peer::admin(&mut world);
    let mut io = Peer::io(&admin, 1, &mut world);
    let blocks = Blocks { lba: common::BLOCKS - 1, count: 2 };
    let one = Blocks { lba: 0, count: 1 };
    let inside: &[u8] = &[0; 512];
    let cases: [(Command, &[u8], u32, Status); 12] = [
        (nvm::flush(2), &[], 0, Status::INVALID_NAMESPACE),
        (nvm::flush(u32::MAX), &[], 0, Status::INVALID_NAMESPACE),
        (Command::new(0x05).with_nsid(1), inside, 0, Status::INVALID_OPCODE),
        (nvm::read(1, blocks), &[], 1024, Status::LBA_OUT_OF_RANGE),
        (nvm::write(1, blocks, false), &[], 1024, Status::LBA_OUT_OF_RANGE),
        (nvm::write_zeroes(1, blocks, false), &[], 0, Status::LBA_OUT_OF_RANGE),
        (nvm::read(1, one), &[], 1024, Status::DATA_SGL_LENGTH_INVALID),
        (nvm::write(1, one, false), &[0; 1024], 0, Status::DATA_SGL_LENGTH_INVALID),
        (nvm::write(1, one, false), inside, 1024, Status::DATA_SGL_LENGTH_INVALID),
        (nvm::read(1, one), inside, 0, Status::INVALID_FIELD),
        (nvm::read(1, Blocks { lba: 0, count: 2049 }), &[], 2049 << 9, Status::INVALID_FIELD),
        (nvm::deallocate(1, 2), &[0; 16], 0, Status::DATA_SGL_LENGTH_INVALID),
    ];
    for (command, data, outside, expected) in cases {
        io.capsule(command, 1, data, outside, &mut world).expect("the connection stays");
        let status = io.completion().status;
        assert!(status.is(expected) && status.is_final(), "{command:?}: {status}");
        assert_eq!(io.connection.event(), None);
    }
    let mut unknown = *nvm::read(1, one).as_bytes();
    unknown[39] = 0x40;
    let header = [[0; 8].as_slice(), &unknown].concat();
    io.sender.push(PduKind::CapsuleCmd, 0, &header, Body::None, Owner::NONE);
    io.deliver(&mut world).unwrap();
    assert!(io.completion().status.is(Status::SGL_TYPE_INVALID));
}

#[test]
fn deallocation_reaches_the_caller_with_its_ranges() {
    let mut world = world();
    let admin = Peer::admin(&mut world);
    let mut io = Peer::io(&admin, 1, &mut world);
    let ranges = [Blocks { lba: 4, count: 4 }, Blocks { lba: 0, count: 1 }];
    let data = nvm::write_ranges(&ranges);
    io.capsule(nvm::deallocate(1, 2), 1, &data, 0, &mut world).unwrap();
    let Some(Event::Execute { tag, operation }) = io.connection.event() else {
        panic!("an operation")
    };
    assert_eq!(operation, Operation::Deallocate { nsid: 1, ranges: ranges.into() });
    io.connection.complete(tag, Status::SUCCESS, &mut world.target);
    assert_eq!(io.completion().status, Status::SUCCESS);
    let far = nvm::write_ranges(&[Blocks { lba: common::BLOCKS, count: 1 }]);
    io.capsule(nvm::deallocate(1, 1), 1, &far, 0, &mut world).unwrap();
    assert!(io.completion().status.is(Status::LBA_OUT_OF_RANGE));
}

#[test]
fn data_in_a_capsule_are_not_asked_for_again() {
    let mut world = world();
    let admin = Peer::admin(&mut world);
    let mut io = Peer::io(&admin, 1, &mut world);
    let mut write = nvm::write(1, Blocks { lba: 0, count: 1 }, false);
    write.set_id(1);
    write.set_data(512, true);
    let header = [[4, 0, 72, 72, 72, 2, 0, 0].as_slice(), write.as_bytes()].concat();
    io.connection.receive(&header, &mut world.target).unwrap();
    let Some(Event::Incoming { tag, in_capsule: true, .. }) = io.connection.event() else {
        panic!("a write");
    };
    io.connection.accept(tag);
    io.connection.complete(tag, Status::INTERNAL_ERROR, &mut world.target);
    assert!(io.send_all().is_empty(), "neither an R2T nor an answer before the data");
    io.connection.placed(&[1; 512], &mut world.target).unwrap();
    assert!(matches!(io.connection.event(), Some(Event::Execute { .. })));
    io.connection.complete(tag, Status::SUCCESS, &mut world.target);
    assert_eq!(io.completion().status, Status::SUCCESS);
}

#[test]
fn write_the_caller_has_no_buffer_for_is_failed_without_its_data() {
    let mut world = world();
    let admin = Peer::admin(&mut world);
    let mut io = Peer::io(&admin, 1, &mut world);
    let write = nvm::write(1, Blocks { lba: 0, count: 16 }, false);
    io.capsule(write, 1, &[], 8192, &mut world).unwrap();
    let Some(Event::Incoming { tag, .. }) = io.connection.event() else { panic!("a write") };
    io.connection.complete(tag, Status::NAMESPACE_NOT_READY, &mut world.target);
    assert_eq!(io.completion().status, Status::NAMESPACE_NOT_READY);
    // Nonsense of the caller does nothing.
    io.connection.accept(tag);
    io.connection.complete(tag, Status::SUCCESS, &mut world.target);

    assert!(io.send_all().is_empty());
}
