//! A target in memory, a thread for each connection.

use crate::Outcome;
use crate::link::{gather, range_of};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_nvme::command::log::{DiscoveryEntry, SubsystemKind};
use terrace_nvme::command::nvm::Blocks;
use terrace_nvme::command::{Status, fabrics};
use terrace_nvme::controller::{
    CommandTag, Connection, ConnectionConfig, Event, Export, Fence, Limits, Namespace, Operation,
    Target,
};
use terrace_nvme::pdu::crc32c;

const NSID: u32 = 1;
/// How often a connection looks whether its controller is still there.
const TICK: Duration = Duration::from_millis(200);

/// The target and the memory behind its namespace.
struct World {
    target: Target,
    memory: Vec<u8>,
    block_shift: u8,
}

impl World {
    fn range(&self, blocks: Blocks) -> std::ops::Range<usize> {
        let at = (blocks.lba as usize) << self.block_shift;
        at..at + ((blocks.count as usize) << self.block_shift)
    }

    fn execute(&mut self, operation: &Operation, data: &mut Vec<u8>) {
        match operation {
            Operation::Read { blocks, .. } => *data = self.memory[self.range(*blocks)].to_vec(),
            Operation::Write { blocks, .. } => {
                let range = self.range(*blocks);
                self.memory[range].copy_from_slice(data);
            }
            Operation::WriteZeroes { blocks, .. } => {
                let range = self.range(*blocks);
                self.memory[range].fill(0);
            }
            Operation::Flush { .. } | Operation::Deallocate { .. } => {}
        }
    }
}

/// One connection.
struct Session {
    connection: Connection,
    /// By tag.
    data: Vec<Vec<u8>>,
    fences: Vec<(CommandTag, Fence)>,
    keep_alive: Option<(Duration, Instant)>,
}

impl Session {
    fn receive(&mut self, mut input: &[u8], world: &mut World) -> Outcome {
        while !input.is_empty() {
            let taken = match self.connection.placement() {
                Some(place) => {
                    let bytes = input.len().min(place.bytes as usize);
                    let data = &mut self.data[place.tag.index()];
                    data[place.offset as usize..][..bytes].copy_from_slice(&input[..bytes]);
                    self.connection.placed(&input[..bytes], &mut world.target)?;
                    bytes
                }
                None => self.connection.receive(input, &mut world.target)?,
            };
            input = &input[taken..];
            self.take_events(world);
        }
        Ok(())
    }

    fn take_events(&mut self, world: &mut World) {
        self.data.resize_with(self.connection.tags(), Vec::new);
        while let Some(event) = self.connection.event() {
            match event {
                Event::Incoming { tag, bytes, in_capsule } => {
                    self.data[tag.index()] = vec![0; bytes as usize];
                    if !in_capsule {
                        self.connection.accept(tag);
                    }
                }
                Event::Execute { tag, operation } => {
                    world.execute(&operation, &mut self.data[tag.index()]);
                    self.connection.complete(tag, Status::SUCCESS, &mut world.target);
                }
                Event::Await { tag, fence } => self.fences.push((tag, fence)),
                Event::KeepAlive { timeout_ms } => {
                    let timeout = Duration::from_millis(timeout_ms.into());
                    self.keep_alive = (timeout_ms > 0).then(|| (timeout, Instant::now() + timeout));
                }
                // The connections of I/O queues see it by themselves.
                Event::Released { .. } | Event::Stopped => {}
            }
        }
        let (over, wait): (Vec<_>, Vec<_>) =
            self.fences.drain(..).partition(|(_, fence)| world.target.is_over(fence));
        self.fences = wait;
        for (tag, _) in over {
            self.connection.complete(tag, Status::SUCCESS, &mut world.target);
        }
        self.connection.notify(&mut world.target);
    }

    fn send(&mut self, stream: &mut TcpStream) -> Outcome {
        loop {
            while let Some(range) = self.connection.digest_wanted() {
                self.connection.set_digest(crc32c(range_of(&self.data, range)));
            }
            let output = gather(self.connection.pieces(), &self.data);
            if output.is_empty() {
                return Ok(());
            }
            stream.write_all(&output)?;
            self.connection.sent(output.len());
        }
    }

    fn serve(&mut self, stream: &mut TcpStream, world: &Mutex<World>) -> Outcome {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        let mut input = vec![0; 1 << 16];
        loop {
            let bytes = match stream.read(&mut input) {
                Ok(0) => return Ok(()),
                Ok(bytes) => bytes,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    0
                }
                Err(error) => return Err(error.into()),
            };
            let received = {
                let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
                let received = self.receive(&input[..bytes], &mut world);
                self.take_events(&mut world);
                if !self.connection.is_live(&mut world.target) && received.is_ok() {
                    return Ok(());
                }
                received
            };
            self.send(stream)?;
            received?;
            if self.keep_alive.is_some_and(|(_, end)| Instant::now() > end) {
                return Err("no keep alive".into());
            }
        }
    }
}

pub(crate) fn serve(address: SocketAddr, nqn: &str, block_bytes: u32, mib: usize) -> Outcome {
    if !block_bytes.is_power_of_two() || !(512..=65_536).contains(&block_bytes) {
        return Err("blocks have 512 to 65536 bytes, a power of 2".into());
    }
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let block_shift = block_bytes.trailing_zeros() as u8;
    let blocks = (mib << 20 >> block_shift) as u64;
    let nguid = [7; 16];
    let namespace = Namespace { nsid: NSID, blocks, block_shift, nguid, read_only: false };
    let export = Export {
        nqn: nqn.into(),
        serial: "1".into(),
        model: "memory".into(),
        firmware: "1".into(),
        namespaces: vec![namespace],
        allowed_hosts: None,
        volatile_write_cache: true,
        limits: Limits::default(),
    };
    let entry = |kind, nqn: &str| DiscoveryEntry {
        kind,
        subsystem_nqn: nqn.into(),
        address: address.ip().to_string(),
        port: address.port(),
        port_id: 1,
        tls: false,
    };
    let entries = vec![
        entry(SubsystemKind::ThisDiscovery, fabrics::DISCOVERY_NQN),
        entry(SubsystemKind::Nvm, nqn),
    ];
    let target = Target::new(vec![export], entries);
    let world = Arc::new(Mutex::new(World { target, memory: vec![0; mib << 20], block_shift }));
    println!("ready {address}");
    for stream in listener.incoming() {
        let (mut stream, world) = (stream?, Arc::clone(&world));
        std::thread::spawn(move || {
            let connection = Connection::new(ConnectionConfig::default());
            let mut session =
                Session { connection, data: Vec::new(), fences: Vec::new(), keep_alive: None };
            if let Err(error) = session.serve(&mut stream, &world) {
                println!("connection {:?}: {error}", session.connection.queue());
            }
            let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
            session.connection.end(&mut world.target);
        });
    }
    Ok(())
}
