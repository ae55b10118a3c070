//! NVMe over TCP, the host and the controller: bytes in, commands and bytes out. No sockets, no clock, no unsafe code.
//!
//! | module | what it is |
//! |---|---|
//! | [`pdu`] | protocol data units, a receiver and a sender (NVM Express TCP Transport Specification 1.0) |
//! | [`command`] | commands, completions and their data (NVM Express Base Specification 2.0, NVM Command Set 1.0) |
//! | [`host`] | a queue of commands over a connection, and the steps that set a controller up |
//! | [`controller`] | what a target exports, and its end of each connection |
//!
//! Imports go down: host and controller know commands and PDUs, and not each other.
//!
//! **Data are not copied.** A side says where the next bytes of a connection belong (`placement`), so that the caller
//! receives them into place (a `recvmsg` of the rest of the data and of a buffer for what follows them); and what it
//! sends are pieces, some of them ranges of data that lie with the caller. After construction, and a Connect, the way
//! of a read or write allocates nothing.
//!
//! **Errors.** A peer that breaks the protocol ends its connection, with the terminate request that the specification
//! names ([`pdu::Fault`]), and nothing else. Damaged data, where the connection has digests for them, fail their
//! command.
//!
//! **Time** is the caller's: the keep-alive timer, limits of waiting, and when to connect again.
//!
//! # Example
//!
//! A host and a controller exchange bytes in memory: the host sets the controller up, and writes and reads a block.
//!
//! ```
//! use terrace_nvme::command::nvm::{self, Blocks};
//! use terrace_nvme::command::{Command, Status};
//! use terrace_nvme::controller::{self, Connection, Export, Limits, Operation, Target};
//! use terrace_nvme::host::{self, Login, Queue, QueueConfig, SetUp, SetUpConfig, Step};
//! use terrace_nvme::pdu::{Digests, Piece};
//!
//! /// A connection, with the buffers of both sides by tag.
//! struct Link {
//!     queue: Queue,
//!     queue_data: Vec<Vec<u8>>,
//!     connection: Connection,
//!     connection_data: Vec<Vec<u8>>,
//! }
//!
//! /// The bytes of `pieces`, as a socket would gather them.
//! fn gather<'a>(pieces: impl Iterator<Item = Piece<'a>>, data: &[Vec<u8>]) -> Vec<u8> {
//!     let bytes = |piece| match piece {
//!         Piece::Bytes(bytes) => bytes.to_vec(),
//!         Piece::Data(range) => {
//!             let (at, bytes) = (range.offset as usize, range.bytes as usize);
//!             data[usize::from(range.command)][at..at + bytes].to_vec()
//!         }
//!     };
//!     pieces.flat_map(bytes).collect()
//! }
//!
//! impl Link {
//!     fn new(config: QueueConfig) -> Self {
//!         let queue = Queue::new(config);
//!         let connection = Connection::new(controller::ConnectionConfig::default());
//!         let queue_data = vec![Vec::new(); queue.capacity()];
//!         Self { queue, queue_data, connection, connection_data: Vec::new() }
//!     }
//!
//!     /// Executes a command. `data` go to the controller, or are replaced by what comes from it.
//!     fn run(
//!         &mut self, command: Command, data: &[u8], target: &mut Target, medium: &mut [u8],
//!     ) -> (host::Outcome, Vec<u8>) {
//!         let mut submitted = false;
//!         loop {
//!             if !submitted && self.queue.has_room() {
//!                 let tag = self.queue.submit(command, data.len() as u32).expect("there is room");
//!                 self.queue_data[tag.index()] = data.to_vec();
//!                 submitted = true;
//!             }
//!             let sent = gather(self.queue.pieces(), &self.queue_data);
//!             self.queue.sent(sent.len());
//!             self.to_controller(&sent, target, medium);
//!             let sent = gather(self.connection.pieces(), &self.connection_data);
//!             self.connection.sent(sent.len());
//!             self.to_host(&sent);
//!             while let Some(event) = self.queue.event() {
//!                 if let host::Event::Completed { tag, outcome } = event {
//!                     return (outcome, std::mem::take(&mut self.queue_data[tag.index()]));
//!                 }
//!             }
//!         }
//!     }
//!
//!     fn to_host(&mut self, mut input: &[u8]) {
//!         while !input.is_empty() {
//!             let taken = match self.queue.placement() {
//!                 Some(place) => {
//!                     let bytes = (place.bytes as usize).min(input.len());
//!                     let data = &mut self.queue_data[place.tag.index()];
//!                     data[place.offset as usize..][..bytes].copy_from_slice(&input[..bytes]);
//!                     self.queue.placed(&input[..bytes]).expect("a good controller");
//!                     bytes
//!                 }
//!                 None => self.queue.receive(input).expect("a good controller"),
//!             };
//!             input = &input[taken..];
//!         }
//!     }
//!
//!     fn to_controller(&mut self, mut input: &[u8], target: &mut Target, medium: &mut [u8]) {
//!         while !input.is_empty() {
//!             let taken = match self.connection.placement() {
//!                 Some(place) => {
//!                     let bytes = (place.bytes as usize).min(input.len());
//!                     let data = &mut self.connection_data[place.tag.index()];
//!                     data[place.offset as usize..][..bytes].copy_from_slice(&input[..bytes]);
//!                     self.connection.placed(&input[..bytes], target).expect("a good host");
//!                     bytes
//!                 }
//!                 None => self.connection.receive(input, target).expect("a good host"),
//!             };
//!             input = &input[taken..];
//!             self.connection_data.resize(self.connection.tags(), Vec::new());
//!             while let Some(event) = self.connection.event() {
//!                 match event {
//!                     controller::Event::Incoming { tag, bytes, .. } => {
//!                         self.connection_data[tag.index()] = vec![0; bytes as usize];
//!                         self.connection.accept(tag);
//!                     }
//!                     controller::Event::Execute { tag, operation } => {
//!                         let data = &mut self.connection_data[tag.index()];
//!                         match operation {
//!                             Operation::Read { blocks, bytes, .. } => {
//!                                 *data = medium[blocks.lba as usize * 512..][..bytes as usize].to_vec();
//!                             }
//!                             Operation::Write { blocks, bytes, .. } => {
//!                                 medium[blocks.lba as usize * 512..][..bytes as usize].copy_from_slice(data);
//!                             }
//!                             _ => {}
//!                         }
//!                         self.connection.complete(tag, Status::SUCCESS, target);
//!                     }
//!                     _ => {}
//!                 }
//!             }
//!         }
//!     }
//! }
//!
//! let nqn = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";
//! let namespace = controller::Namespace {
//!     nsid: 1, blocks: 128, block_shift: 9, nguid: [1; 16], read_only: false,
//! };
//! let export = Export {
//!     nqn: nqn.into(),
//!     serial: "1".into(),
//!     model: "memory".into(),
//!     firmware: "1".into(),
//!     namespaces: vec![namespace],
//!     allowed_hosts: None,
//!     volatile_write_cache: false,
//!     limits: Limits::default(),
//! };
//! let mut target = Target::new(vec![export], Vec::new());
//! let mut medium = vec![0; 128 * 512];
//!
//! let login = Login {
//!     host_nqn: "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000002".into(),
//!     host_id: [2; 16],
//!     subsystem_nqn: nqn.into(),
//! };
//! let config = QueueConfig::default();
//! let mut admin = Link::new(config);
//! let mut set_up = SetUp::new(SetUpConfig {
//!     login: login.clone(), entries: config.entries, keep_alive_ms: 15_000, io_queues: 1, nsid: None,
//! });
//! loop {
//!     let (command, data) = match set_up.step() {
//!         Step::Submit { command, data, bytes } => {
//!             (command, if data.is_empty() { vec![0; bytes as usize] } else { data.to_vec() })
//!         }
//!         Step::Wait => continue,
//!         Step::Done => break,
//!     };
//!     let (outcome, data) = admin.run(command, &data, &mut target, &mut medium);
//!     set_up.completed(&outcome, &data)?;
//! }
//! let controller = set_up.controller().expect("it is done");
//! assert_eq!(controller.namespace.map(|namespace| namespace.info.blocks), Some(128));
//!
//! let config = controller.io_queue(32, 1, Digests::default());
//! let mut io = Link::new(config);
//! let (connect, data) = login.io(controller.info.controller_id, 1, config.entries);
//! assert_eq!(io.run(connect, &data, &mut target, &mut medium).0.status, Status::SUCCESS);
//! let blocks = Blocks { lba: 7, count: 1 };
//! io.run(nvm::write(1, blocks, false), &[42; 512], &mut target, &mut medium);
//! let (outcome, data) = io.run(nvm::read(1, blocks), &[0; 512], &mut target, &mut medium);
//! assert_eq!((outcome.status, data), (Status::SUCCESS, vec![42; 512]));
//! # Ok::<(), host::SetUpError>(())
//! ```
#![forbid(unsafe_code)]

mod bytes;
pub mod command;
pub mod controller;
pub mod host;
pub mod pdu;
mod walk;

#[doc(hidden)]
pub use walk::{walk_commands, walk_controller, walk_host, walk_login};
