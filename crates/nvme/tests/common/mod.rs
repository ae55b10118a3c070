//! A host and a controller over a link in memory that cuts bytes anywhere, delays them, and reports late what it sent.
#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use terrace_nvme::command::fabrics::DISCOVERY_NQN;
use terrace_nvme::command::nvm::Blocks;
use terrace_nvme::command::{Command, Direction, Status};
use terrace_nvme::controller::{
    CommandTag, Connection, ConnectionConfig, Event as Wanted, Export, Limits, Namespace,
    Operation, Target,
};
use terrace_nvme::host::{
    Controller, Event, Login, Outcome, Queue, QueueConfig, SetUp, SetUpConfig, SetUpError, Step,
    Tag,
};
use terrace_nvme::pdu::{Digests, Ended, Piece, crc32c};

pub(crate) const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d6f7265-0000-4000-8000-000000000001";
pub(crate) const BLOCK_SHIFT: u8 = 9;
pub(crate) const BLOCKS: u64 = 4096;

/// Numbers that depend on the seed alone (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    pub(crate) fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// The target and the memory behind its namespaces.
pub(crate) struct World {
    pub(crate) target: Target,
    pub(crate) disks: BTreeMap<u32, Vec<u8>>,
    pub(crate) executed: Vec<Operation>,
}

pub(crate) fn namespace(nsid: u32) -> Namespace {
    let nguid = [nsid as u8; 16];
    Namespace { nsid, blocks: BLOCKS, block_shift: BLOCK_SHIFT, nguid, read_only: false }
}

pub(crate) fn export(limits: Limits) -> Export {
    Export {
        nqn: NQN.into(),
        serial: "1".into(),
        model: "test".into(),
        firmware: "1".into(),
        namespaces: vec![namespace(1)],
        allowed_hosts: None,
        volatile_write_cache: true,
        limits,
    }
}

pub(crate) fn login(host: u8) -> Login {
    Login {
        host_nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{host}"),
        host_id: [host; 16],
        subsystem_nqn: NQN.into(),
    }
}

pub(crate) fn discovery_login() -> Login {
    Login { subsystem_nqn: DISCOVERY_NQN.into(), ..login(1) }
}

impl World {
    pub(crate) fn new(export: Export) -> Self {
        let bytes = (BLOCKS as usize) << BLOCK_SHIFT;
        let disks = export.namespaces.iter().map(|one| (one.nsid, vec![0; bytes])).collect();
        Self { target: Target::new(vec![export], Vec::new()), disks, executed: Vec::new() }
    }

    fn range(blocks: Blocks) -> std::ops::Range<usize> {
        let at = (blocks.lba as usize) << BLOCK_SHIFT;
        at..at + ((blocks.count as usize) << BLOCK_SHIFT)
    }

    fn execute(&mut self, operation: &Operation, buffer: &mut Vec<u8>) {
        match operation {
            Operation::Read { nsid, blocks, bytes } => {
                assert_eq!(Self::range(*blocks).len(), *bytes as usize);
                *buffer = self.disks[nsid][Self::range(*blocks)].to_vec();
            }
            Operation::Write { nsid, blocks, bytes, .. } => {
                assert_eq!(buffer.len(), *bytes as usize);
                let disk = self.disks.get_mut(nsid).expect("an exported namespace");
                disk[Self::range(*blocks)].copy_from_slice(buffer);
            }
            Operation::WriteZeroes { nsid, blocks, .. } => {
                let disk = self.disks.get_mut(nsid).expect("an exported namespace");
                disk[Self::range(*blocks)].fill(0);
            }
            Operation::Flush { .. } | Operation::Deallocate { .. } => {}
        }
        self.executed.push(operation.clone());
    }
}

/// Bytes of one direction, and those that the socket has not reported yet.
#[derive(Default)]
struct Direct {
    bytes: VecDeque<u8>,
    unreported: Option<usize>,
}

impl Direct {
    /// Takes up to `bytes` bytes of `pieces`.
    fn take<'a>(
        &mut self,
        mut bytes: usize,
        pieces: impl Iterator<Item = Piece<'a>>,
        buffers: &[Vec<u8>],
    ) -> usize {
        let before = self.bytes.len();
        for piece in pieces {
            let length = piece.bytes().min(bytes);
            match piece {
                Piece::Bytes(piece) => self.bytes.extend(&piece[..length]),
                Piece::Data(range) => {
                    let at = range.offset as usize;
                    self.bytes.extend(&buffers[usize::from(range.command)][at..at + length]);
                }
            }
            bytes -= length;
        }
        self.bytes.len() - before
    }
}

/// A host's queue and a controller's connection.
pub(crate) struct Pair {
    pub(crate) queue: Queue,
    pub(crate) buffers: Vec<Vec<u8>>,
    pub(crate) connection: Connection,
    controller_buffers: Vec<Vec<u8>>,
    to_controller: Direct,
    to_host: Direct,
    pub(crate) outcomes: VecDeque<(Tag, Outcome)>,
    /// Operations that the controller has not executed yet.
    pub(crate) executing: Vec<(CommandTag, Operation)>,
    pub(crate) wanted: Vec<Wanted>,
    /// Whether operations wait until the test executes them.
    pub(crate) holds: bool,
    pub(crate) is_initialized: bool,
    /// Flips a bit of the byte at this position of a direction, once.
    pub(crate) damage: Option<Damage>,
}

pub(crate) struct Damage {
    pub(crate) to_host: bool,
    pub(crate) at: usize,
    pub(crate) bit: u8,
}

impl Pair {
    pub(crate) fn new(queue: QueueConfig, connection: ConnectionConfig) -> Self {
        let queue = Queue::new(queue);
        Self {
            buffers: vec![Vec::new(); queue.capacity()],
            queue,
            connection: Connection::new(connection),
            controller_buffers: Vec::new(),
            to_controller: Direct::default(),
            to_host: Direct::default(),
            outcomes: VecDeque::new(),
            executing: Vec::new(),
            wanted: Vec::new(),
            holds: false,
            is_initialized: false,
            damage: None,
        }
    }

    pub(crate) fn submit(&mut self, command: Command, data: Vec<u8>) -> Option<Tag> {
        let tag = self.queue.submit(command, data.len() as u32).ok()?;
        self.buffers[tag.index()] = data;
        Some(tag)
    }

    fn bytes_to_move(random: &mut Random) -> usize {
        [1, 3, 24, 80, 4096, 1 << 20][random.below(6)]
    }

    fn host_sends(&mut self, random: &mut Random) {
        if let Some(bytes) = self.to_controller.unreported.take() {
            self.queue.sent(bytes);
            return;
        }
        while let Some(range) = self.queue.digest_wanted() {
            let at = range.offset as usize;
            let data = &self.buffers[usize::from(range.command)][at..at + range.bytes as usize];
            self.queue.set_digest(crc32c(data));
        }
        let bytes = Self::bytes_to_move(random);
        let taken = self.to_controller.take(bytes, self.queue.pieces(), &self.buffers);
        if random.chance(2) {
            self.queue.lend(taken);
            self.to_controller.unreported = Some(taken);
        } else {
            self.queue.sent(taken);
        }
    }

    fn controller_sends(&mut self, random: &mut Random) {
        if let Some(bytes) = self.to_host.unreported.take() {
            self.connection.sent(bytes);
            return;
        }
        while let Some(range) = self.connection.digest_wanted() {
            let at = range.offset as usize;
            let buffer = &self.controller_buffers[usize::from(range.command)];
            self.connection.set_digest(crc32c(&buffer[at..at + range.bytes as usize]));
        }
        let bytes = Self::bytes_to_move(random);
        let taken = self.to_host.take(bytes, self.connection.pieces(), &self.controller_buffers);
        if random.chance(2) {
            self.connection.lend(taken);
            self.to_host.unreported = Some(taken);
        } else {
            self.connection.sent(taken);
        }
    }

    /// Takes bytes off the wire, and damages them if that is due.
    fn arriving(&mut self, to_host: bool, bytes: usize) -> Vec<u8> {
        let direct = if to_host { &mut self.to_host } else { &mut self.to_controller };
        let bytes = bytes.min(direct.bytes.len());
        let mut input: Vec<u8> = direct.bytes.drain(..bytes).collect();
        if let Some(damage) = self.damage.as_mut().filter(|damage| damage.to_host == to_host) {
            if let Some(byte) = input.get_mut(damage.at) {
                *byte ^= 1 << damage.bit;
                self.damage = None;
            } else {
                damage.at -= bytes;
            }
        }
        input
    }

    fn host_receives(&mut self, random: &mut Random) -> Result<(), Ended> {
        let input = self.arriving(true, Self::bytes_to_move(random));
        let mut input = input.as_slice();
        while !input.is_empty() {
            let taken = match self.queue.placement() {
                Some(place) => {
                    let bytes = (place.bytes as usize).min(input.len());
                    let at = place.offset as usize;
                    self.buffers[place.tag.index()][at..at + bytes]
                        .copy_from_slice(&input[..bytes]);
                    self.queue.placed(&input[..bytes])?;
                    bytes
                }
                None => self.queue.receive(input)?,
            };
            assert!(taken > 0, "no progress");
            input = &input[taken..];
        }
        Ok(())
    }

    fn controller_receives(&mut self, random: &mut Random, world: &mut World) -> Result<(), Ended> {
        let input = self.arriving(false, Self::bytes_to_move(random));
        let mut input = input.as_slice();
        while !input.is_empty() {
            let taken = match self.connection.placement() {
                Some(place) => {
                    let bytes = (place.bytes as usize).min(input.len());
                    let at = place.offset as usize;
                    let buffer = &mut self.controller_buffers[place.tag.index()];
                    buffer[at..at + bytes].copy_from_slice(&input[..bytes]);
                    self.connection.placed(&input[..bytes], &mut world.target)?;
                    bytes
                }
                None => self.connection.receive(input, &mut world.target)?,
            };
            self.controller_events();
            assert!(taken > 0, "no progress");
            input = &input[taken..];
        }
        Ok(())
    }

    fn controller_events(&mut self) {
        let tags = self.connection.tags();
        self.controller_buffers.resize_with(tags, Vec::new);
        while let Some(event) = self.connection.event() {
            match event {
                Wanted::Incoming { tag, bytes, in_capsule } => {
                    self.controller_buffers[tag.index()] = vec![0xee; bytes as usize];
                    if !in_capsule {
                        self.connection.accept(tag);
                    }
                }
                Wanted::Execute { tag, operation } => self.executing.push((tag, operation)),
                // The buffer is free: whatever is sent from it now would be seen.
                Wanted::Released { tag } => self.controller_buffers[tag.index()].fill(0xdd),
                other => self.wanted.push(other),
            }
        }
    }

    /// Executes the operation at `index` of [`Self::executing`].
    pub(crate) fn execute(&mut self, index: usize, world: &mut World) {
        let (tag, operation) = self.executing.swap_remove(index);
        self.controller_buffers.resize_with(self.connection.tags(), Vec::new);
        world.execute(&operation, &mut self.controller_buffers[tag.index()]);
        self.connection.complete(tag, Status::SUCCESS, &mut world.target);
    }

    /// One turn of everything, in an order that depends on `random`.
    pub(crate) fn turn(&mut self, random: &mut Random, world: &mut World) {
        match random.below(5) {
            0 => self.host_sends(random),
            1 => self.controller_sends(random),
            // The ends of connections are seen by `ended`.
            2 => drop(self.host_receives(random)),
            3 => drop(self.controller_receives(random, world)),
            _ if !self.executing.is_empty() && !self.holds => {
                let index = random.below(self.executing.len());
                self.execute(index, world);
            }
            _ => {}
        }
        self.controller_events();
        while let Some(event) = self.queue.event() {
            match event {
                Event::Initialized(_) => self.is_initialized = true,
                Event::Completed { tag, outcome } => self.outcomes.push_back((tag, outcome)),
            }
        }
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.queue.ended().or(self.connection.ended())
    }

    /// Turns until there is an outcome, or the connection has ended.
    pub(crate) fn outcome(
        &mut self,
        random: &mut Random,
        world: &mut World,
    ) -> Result<(Tag, Outcome), Ended> {
        for _ in 0..2_000_000 {
            if let Some(outcome) = self.outcomes.pop_front() {
                return Ok(outcome);
            }
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            self.turn(random, world);
        }
        panic!("nothing happens: {:?}", self.queue.outstanding().collect::<Vec<_>>());
    }

    /// Turns often enough that everything on the way arrives.
    pub(crate) fn settle(&mut self, random: &mut Random, world: &mut World) {
        for _ in 0..2000 {
            self.turn(random, world);
        }
    }

    /// Executes a command alone. Returns its outcome and data.
    pub(crate) fn run(
        &mut self,
        command: Command,
        data: Vec<u8>,
        random: &mut Random,
        world: &mut World,
    ) -> Result<(Outcome, Vec<u8>), Ended> {
        while !self.is_initialized {
            self.turn(random, world);
            self.ended().map_or(Ok(()), Err)?;
        }
        let own = self.submit(command, data).expect("room for a command");
        loop {
            let (tag, outcome) = self.outcome(random, world)?;
            if tag == own {
                return Ok((outcome, std::mem::take(&mut self.buffers[tag.index()])));
            }
        }
    }

    /// Runs a command without data, or whose data from the controller are `bytes` bytes, and returns its status.
    pub(crate) fn status(
        &mut self,
        command: Command,
        data: Vec<u8>,
        random: &mut Random,
        world: &mut World,
    ) -> Status {
        self.run(command, data, random, world).expect("the connection stays").0.status
    }
}

/// A host with a controller: its Admin Queue and one I/O queue.
pub(crate) struct Session {
    pub(crate) admin: Pair,
    pub(crate) io: Pair,
    pub(crate) controller: Controller,
}

/// How both sides are set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) limits: Limits,
    pub(crate) connection: ConnectionConfig,
    pub(crate) digests: Digests,
    pub(crate) align: u32,
    pub r2t_max: u32,
    pub(crate) entries: u32,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            connection: ConnectionConfig::default(),
            digests: Digests::default(),
            align: 4,
            r2t_max: 1,
            entries: 16,
        }
    }
}

/// Sets a controller up.
pub(crate) fn set_up(
    pair: &mut Pair,
    config: SetUpConfig,
    random: &mut Random,
    world: &mut World,
) -> Result<Controller, SetUpError> {
    let mut set_up = SetUp::new(config);
    loop {
        let (command, data) = match set_up.step() {
            Step::Submit { command, data, bytes } => {
                let mut data = data.to_vec();
                data.resize(bytes as usize, 0);
                (command, data)
            }
            Step::Wait => continue,
            Step::Done => break,
        };
        let (outcome, data) = pair.run(command, data, random, world).expect("the connection stays");
        set_up.completed(&outcome, &data)?;
    }
    Ok(set_up.controller().expect("it is done").clone())
}

pub(crate) fn set_up_config(login: Login) -> SetUpConfig {
    SetUpConfig { login, entries: 32, keep_alive_ms: 15_000, io_queues: 2, nsid: None }
}

impl Session {
    pub(crate) fn open(
        login: Login,
        setting: &Setting,
        random: &mut Random,
        world: &mut World,
    ) -> Self {
        let config = QueueConfig {
            digests: setting.digests,
            align: setting.align,
            r2t_max: setting.r2t_max,
            ..QueueConfig::default()
        };
        let mut admin = Pair::new(config, setting.connection);
        let controller = set_up(&mut admin, set_up_config(login.clone()), random, world)
            .expect("a good controller");
        let mut config = controller.io_queue(setting.entries, setting.r2t_max, setting.digests);
        config.align = setting.align;
        let mut io = Pair::new(config, setting.connection);
        let (connect, data) = login.io(controller.info.controller_id, 1, config.entries);
        let status = io.status(connect, data.into(), random, world);
        assert_eq!(status, Status::SUCCESS);
        Self { admin, io, controller }
    }
}

/// Bytes of the data of `command`, from its blocks.
pub(crate) fn data_bytes(command: &Command) -> usize {
    match command.direction() {
        Direction::None => 0,
        _ => (terrace_nvme::command::nvm::blocks_of(command).count as usize) << BLOCK_SHIFT,
    }
}
