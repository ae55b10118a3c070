//! What hosts write to an export is what they read, over real sockets.

mod common;

use common::{
    BLOCK, BOTH, MIB, NONE, NQN, block_of, config, connect, drive, file, login, start, wait_until,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_device::sim::SimDevice;
use terrace_e2e::{NvmeHost, NvmeQueue};
use terrace_export::{Config, NamespaceConfig, Server};
use terrace_nvme::command::fabrics::DISCOVERY_NQN;
use terrace_nvme::command::log::SubsystemKind;
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::{Command, Status};
use terrace_nvme::host::{Discovery, Login, Step};
use terrace_nvme::pdu::Digests;

fn write(queue: &mut NvmeQueue, lba: u64, data: Vec<u8>) -> Status {
    let blocks = Blocks { lba, count: (data.len() / BLOCK) as u32 };
    queue.run(nvm::write(1, blocks, false), data).expect("the connection stays").0.status
}

fn read(queue: &mut NvmeQueue, lba: u64, count: u32) -> (Status, Vec<u8>) {
    let command = nvm::read(1, Blocks { lba, count });
    let (outcome, data) =
        queue.run(command, vec![0; count as usize * BLOCK]).expect("the connection stays");
    (outcome.status, data)
}

/// Random reads and writes of 1 to 64 blocks, several at once, each block known by its version.
fn exercise(host: &mut NvmeHost, seed: u64) {
    let mut versions: HashMap<u64, u64> = HashMap::new();
    let mut state = seed | 1;
    let mut random = move |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % end
    };
    let blocks = host.controller.namespace.expect("a namespace").info.blocks;
    for round in 0..40u64 {
        // Ranges of a round do not meet: their commands may be executed in any order.
        let part = blocks / 16;
        let mut expected = HashMap::new();
        for number in 0..16 {
            let count = [1, 2, 3, 64][random(4) as usize];
            let lba = number * part + random(part - count);
            let queues = host.io.len() as u64;
            let at = random(queues) as usize;
            let queue = &mut host.io[at];
            let range = lba..lba + count;
            let blocks = Blocks { lba, count: count as u32 };
            if random(2) == 0 {
                let data: Vec<u8> =
                    range.clone().flat_map(|lba| block_of(lba, round + 1)).collect();
                queue.submit(nvm::write(1, blocks, random(4) == 0), data).expect("room");
                versions.extend(range.map(|lba| (lba, round + 1)));
            } else {
                let tag = queue.submit(nvm::read(1, blocks), vec![0xee; count as usize * BLOCK]);
                let of = |lba| versions.get(&lba).map_or(vec![0; BLOCK], |&v| block_of(lba, v));
                let data: Vec<u8> = range.flat_map(of).collect();
                expected.insert((at, tag.expect("room").index()), data);
            }
        }
        for at in 0..host.io.len() {
            while host.io[at].outstanding() > 0 {
                let (tag, outcome, data) = host.io[at].wait().expect("the connection stays");
                assert_eq!(outcome.status, Status::SUCCESS);
                if let Some(expected) = expected.remove(&(at, tag.index())) {
                    assert!(data == expected, "round {round}: wrong data");
                }
            }
        }
        assert!(expected.is_empty());
    }
}

fn exercise_all(address: SocketAddr) {
    for (number, digests) in
        [NONE, Digests { header: true, data: false }, Digests { header: false, data: true }, BOTH]
            .into_iter()
            .enumerate()
    {
        let mut host = connect(address, number as u8 + 1, 2, digests).expect("it connects");
        let io = &mut host.io[0];
        let blocks = host.controller.namespace.expect("a namespace").info.blocks;
        for lba in (0..blocks).step_by(64) {
            assert_eq!(write(io, lba, vec![0; 64 * BLOCK]), Status::SUCCESS);
        }
        exercise(&mut host, 0x1234_5678 + number as u64);
        assert_eq!(
            host.io[0].run(nvm::flush(1), Vec::new()).expect("it stays").0.status,
            Status::SUCCESS
        );
    }
}

fn served(server: &Server) {
    let status = server.status();
    let [namespace] = &status.namespaces[..] else { panic!("one namespace") };
    assert!(namespace.reads > 0 && namespace.writes > 0 && namespace.flushes >= 4);
    assert_eq!(status.protocol_errors, 0);
    wait_until("all buffers are back", || server.status().buffer_bytes_used == 0);
    wait_until("all hosts have gone", || server.status().connections == 0);
}

#[test]
fn file_on_a_drive_holds_what_hosts_write() {
    // Not the temporary folder, which may be memory.
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (server, address) = start(&config(vec![file(&dir.path().join("a"), 16 * MIB)]));
    exercise_all(address);
    served(&server);
}

#[test]
fn file_in_memory_holds_what_hosts_write() {
    let Ok(dir) = TempDir::new_in("/dev/shm") else {
        return terrace_e2e::skip("file_in_memory_holds_what_hosts_write", "there is no /dev/shm");
    };
    let (server, address) = start(&config(vec![file(&dir.path().join("a"), 16 * MIB)]));
    assert!(server.is_memory(1));
    exercise_all(address);
    served(&server);
}

#[test]
fn drive_that_threads_read_holds_what_hosts_write() {
    let sim = Arc::new(SimDevice::new(16 * MIB, 1));
    let (server, address) = start(&config(vec![drive(sim)]));
    exercise_all(address);
    served(&server);
}

/// With buffers for few commands, all of them wait, and all of them end.
#[test]
fn few_buffers_are_enough_for_many_commands() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let config = Config {
        buffer_bytes_max: MIB as usize,
        ..config(vec![file(&dir.path().join("a"), 16 * MIB)])
    };
    let (server, address) = start(&config);
    // A host that waits for one of its connections alone would keep the buffers that another one has.
    let threads: Vec<_> = (1..=8)
        .map(|number| {
            std::thread::spawn(move || {
                let mut host = connect(address, number, 1, NONE).expect("it connects");
                for round in 0..20 {
                    for queue in &mut host.io {
                        while queue.has_room() {
                            let blocks = Blocks { lba: 64 * (round % 8), count: 64 };
                            let data = vec![number; 64 * BLOCK];
                            let small = Blocks { lba: 1024 + round, count: 1 };
                            queue.submit(nvm::write(1, blocks, false), data.clone()).unwrap();
                            if queue.has_room() {
                                queue.submit(nvm::write(1, small, false), vec![1; BLOCK]).unwrap();
                            }
                            if queue.has_room() {
                                queue.submit(nvm::read(1, blocks), data).unwrap();
                            }
                        }
                    }
                    for queue in &mut host.io {
                        while queue.outstanding() > 0 {
                            assert_eq!(queue.wait().unwrap().1.status, Status::SUCCESS);
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a host"));
    let status = server.status();
    assert!(status.buffer_waits > 0 && status.buffer_bytes <= MIB, "{status:?}");
    assert_eq!(status.stalled, 0);
}

#[test]
fn discovery_names_the_subsystem_at_the_address_that_was_asked() {
    let dir = TempDir::new().unwrap();
    let config = Config {
        listen: vec![SocketAddr::from(([0, 0, 0, 0], 0))],
        ..config(vec![file(&dir.path().join("a"), MIB)])
    };
    let (_server, listening) = start(&config);
    let address = SocketAddr::from(([127, 0, 0, 1], listening.port()));
    let login = Login { subsystem_nqn: DISCOVERY_NQN.into(), ..login(1) };
    let mut host = NvmeHost::connect(address, login, (0, 0), NONE, None).expect("it connects");
    let mut discovery = Discovery::default();
    loop {
        let (command, bytes): (Command, u32) = match discovery.step() {
            Step::Submit { command, bytes, .. } => (command, bytes),
            Step::Wait => continue,
            Step::Done => break,
        };
        let (outcome, data) = host.admin.run(command, vec![0; bytes as usize]).unwrap();
        discovery.completed(&outcome, &data).unwrap();
    }
    let entries = discovery.entries().expect("it is done");
    let found = entries.iter().find(|entry| entry.kind == SubsystemKind::Nvm).expect("an entry");
    assert_eq!(
        (&*found.subsystem_nqn, &*found.address, found.port),
        (NQN, "127.0.0.1", address.port())
    );
    assert!(entries.iter().any(|entry| entry.kind == SubsystemKind::ThisDiscovery));
    assert!(entries.iter().all(|entry| !entry.tls));
}

#[test]
fn ipv6_host_is_served_and_limits_are_told() {
    let dir = TempDir::new().unwrap();
    let config = Config {
        listen: vec!["[::1]:0".parse().unwrap()],
        ..config(vec![file(&dir.path().join("a"), MIB)])
    };
    let Ok(server) = Server::start(&config) else {
        return terrace_e2e::skip(
            "ipv6_host_is_served_and_limits_are_told",
            "there is no IPv6 here",
        );
    };
    let host = connect(server.addresses()[0], 1, 1, NONE).expect("it connects");
    let controller = &host.controller;
    assert_eq!(controller.transfer_bytes_max(), 256 << 10);
    assert!(controller.info.volatile_write_cache && controller.info.optional.reservations);
    let namespace = controller.namespace.expect("a namespace");
    assert_eq!((namespace.info.blocks, namespace.info.block_bytes()), (256, 4096));
    assert_eq!(namespace.ids.nguid, Some([1; 16]));
}

#[test]
fn zeroes_are_written_and_deallocated_blocks_may_be_written_again() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (_server, address) = start(&config(vec![file(&dir.path().join("a"), 4 * MIB)]));
    let mut host = connect(address, 1, 1, NONE).unwrap();
    let io = &mut host.io[0];
    (0..8).for_each(|lba| assert_eq!(write(io, lba, block_of(lba, 1)), Status::SUCCESS));
    let zeroes = nvm::write_zeroes(1, Blocks { lba: 2, count: 4 }, false);
    assert_eq!(io.run(zeroes, Vec::new()).unwrap().0.status, Status::SUCCESS);
    for lba in 0..8 {
        let expected = if (2..6).contains(&lba) { vec![0; BLOCK] } else { block_of(lba, 1) };
        assert!(read(io, lba, 1) == (Status::SUCCESS, expected), "{lba}");
    }
    let ranges = [Blocks { lba: 0, count: 8 }];
    let deallocate = nvm::deallocate(1, ranges.len());
    let status = io.run(deallocate, nvm::write_ranges(&ranges).into()).unwrap().0.status;
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(write(io, 3, block_of(3, 2)), Status::SUCCESS);
    assert!(read(io, 3, 1).1 == block_of(3, 2));
}

#[test]
fn data_and_identity_are_the_same_after_a_restart() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("a");
    let config = config(vec![file(&path, MIB)]);
    let mut seen = Vec::new();
    for round in 0..2 {
        let (server, address) = start(&config);
        let mut host = connect(address, 1, 1, BOTH).unwrap();
        if round == 0 {
            assert_eq!(write(&mut host.io[0], 9, block_of(9, 1)), Status::SUCCESS);
        }
        assert!(read(&mut host.io[0], 9, 1).1 == block_of(9, 1));
        seen.push((
            host.controller.info.serial.clone(),
            host.controller.namespace.map(|one| one.ids),
        ));
        server.stop();
        server.wait().expect("a clean end");
    }
    assert_eq!(seen[0], seen[1]);
    assert!(std::fs::read(&path).unwrap()[9 * BLOCK..10 * BLOCK] == block_of(9, 1)[..]);
}

#[test]
fn read_only_namespace_takes_no_writes_and_others_do() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let one = NamespaceConfig { read_only: true, ..file(&dir.path().join("a"), MIB) };
    let two = NamespaceConfig { nsid: 2, nguid: [2; 16], ..file(&dir.path().join("b"), 2 * MIB) };
    let (_server, address) = start(&config(vec![two, one]));
    let mut host =
        NvmeHost::connect(address, login(1), (1, 8), NONE, Some(2)).expect("it connects");
    let blocks = Blocks { lba: 0, count: 1 };
    let status = |host: &mut NvmeHost, nsid| {
        host.io[0].run(nvm::write(nsid, blocks, false), vec![1; BLOCK]).unwrap().0.status
    };
    assert!(status(&mut host, 1).is(Status::WRITE_PROTECTED));
    assert_eq!(status(&mut host, 2), Status::SUCCESS);
    assert!(status(&mut host, 3).is(Status::INVALID_NAMESPACE));
    let beyond = nvm::read(2, Blocks { lba: 512, count: 1 });
    let status = host.io[0].run(beyond, vec![0; BLOCK]).unwrap().0.status;
    assert!(status.is(Status::LBA_OUT_OF_RANGE));
}
