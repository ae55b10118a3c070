//! Several hosts on one namespace: reservations, and many hosts within bounded memory.

mod common;

use common::{BLOCK, MIB, NONE, block_of, config, connect, drive, file, start, wait_until};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_device::sim::{Operation, SimDevice};
use terrace_e2e::NvmeHost;
use terrace_export::Config;
use terrace_nvme::command::features::{self, AsyncEvent};
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::reservation::{
    self, AcquireAction, RegisterAction, ReleaseAction, ReservationKind,
};
use terrace_nvme::command::{Command, Status};

const EXCLUSIVE: ReservationKind = ReservationKind::WriteExclusive;
const ONE: Blocks = Blocks { lba: 0, count: 1 };

fn status(host: &mut NvmeHost, command: Command, data: Vec<u8>) -> Status {
    host.io[0].run(command, data).expect("the connection stays").0.status
}

fn register(host: &mut NvmeHost, key: u64) -> Status {
    let command = reservation::register(1, RegisterAction::Register, false);
    status(host, command, reservation::keys(0, key).into())
}

fn acquire(host: &mut NvmeHost, action: AcquireAction, keys: (u64, u64)) -> Status {
    let command = reservation::acquire(1, action, EXCLUSIVE);
    status(host, command, reservation::keys(keys.0, keys.1).into())
}

fn write(host: &mut NvmeHost, lba: u64, version: u64) -> Status {
    let blocks = Blocks { lba, count: 1 };
    status(host, nvm::write(1, blocks, false), block_of(lba, version))
}

fn read(host: &mut NvmeHost, lba: u64) -> Vec<u8> {
    let command = nvm::read(1, Blocks { lba, count: 1 });
    let (outcome, data) = host.io[0].run(command, vec![0; BLOCK]).expect("the connection stays");
    assert_eq!(outcome.status, Status::SUCCESS);
    data
}

#[test]
fn holder_writes_alone_until_it_is_preempted_and_hears_of_that() {
    let dir = TempDir::new().unwrap();
    let (_server, address) = start(&config(vec![file(&dir.path().join("a"), MIB)]));
    let (mut one, mut two) =
        (connect(address, 1, 2, NONE).unwrap(), connect(address, 2, 2, NONE).unwrap());
    assert_eq!(register(&mut one, 11), Status::SUCCESS);
    assert_eq!(register(&mut two, 22), Status::SUCCESS);
    assert_eq!(acquire(&mut one, AcquireAction::Acquire, (11, 0)), Status::SUCCESS);
    one.admin.submit(features::async_event_request(), Vec::new()).unwrap();

    assert_eq!(write(&mut one, 5, 1), Status::SUCCESS);
    assert!(write(&mut two, 5, 2).is(Status::RESERVATION_CONFLICT));
    assert!(read(&mut two, 5) == block_of(5, 1));
    assert!(acquire(&mut two, AcquireAction::Acquire, (22, 0)).is(Status::RESERVATION_CONFLICT));

    assert_eq!(acquire(&mut two, AcquireAction::PreemptAndAbort, (22, 11)), Status::SUCCESS);
    let (_, outcome, _) = one.admin.wait().unwrap();
    assert_eq!(AsyncEvent::read(outcome.result), AsyncEvent::Reservation);
    assert!(write(&mut one, 5, 3).is(Status::RESERVATION_CONFLICT));
    let long = nvm::write(1, Blocks { lba: 0, count: 64 }, false);
    assert!(status(&mut one, long, vec![3; 64 * BLOCK]).is(Status::RESERVATION_CONFLICT));
    assert_eq!(write(&mut two, 5, 4), Status::SUCCESS);
    assert!(read(&mut one, 5) == block_of(5, 4));

    let release = reservation::release(1, ReleaseAction::Release, EXCLUSIVE);
    assert_eq!(status(&mut two, release, 22u64.to_le_bytes().into()), Status::SUCCESS);
    assert_eq!(write(&mut one, 5, 5), Status::SUCCESS);
}

/// A host that stays away keeps its reservation: another one must preempt it.
#[test]
fn reservation_outlives_the_connections_of_its_holder() {
    let dir = TempDir::new().unwrap();
    let (server, address) = start(&config(vec![file(&dir.path().join("a"), MIB)]));
    let mut one = connect(address, 1, 1, NONE).unwrap();
    assert_eq!(register(&mut one, 11), Status::SUCCESS);
    assert_eq!(acquire(&mut one, AcquireAction::Acquire, (11, 0)), Status::SUCCESS);
    drop(one);
    wait_until("it has gone", || server.status().controllers == 0);
    let mut two = connect(address, 2, 1, NONE).unwrap();
    assert!(write(&mut two, 0, 1).is(Status::RESERVATION_CONFLICT));
    let mut one = connect(address, 1, 1, NONE).unwrap();
    assert_eq!(write(&mut one, 0, 1), Status::SUCCESS);
}

/// The write of the old holder is on its way to the drive: the new one hears of success when it is over, and its own
/// write is the last.
#[test]
fn preemption_is_over_when_the_writes_of_the_old_holder_are() {
    let sim = Arc::new(SimDevice::new(MIB, 1));
    let config = Config { threads: 4, ..config(vec![drive(Arc::clone(&sim) as _)]) };
    let (_server, address) = start(&config);
    let (mut one, mut two) =
        (connect(address, 1, 1, NONE).unwrap(), connect(address, 2, 1, NONE).unwrap());
    register(&mut one, 11);
    register(&mut two, 22);
    assert_eq!(acquire(&mut one, AcquireAction::Acquire, (11, 0)), Status::SUCCESS);

    let (enter, entered) = channel();
    let (leave, left) = channel::<()>();
    let (left, is_first) = (Mutex::new(left), AtomicBool::new(true));
    sim.before_each(move |transfer| {
        if transfer.operation == Operation::Write && is_first.swap(false, SeqCst) {
            enter.send(()).expect("the test waits");
            let _ = left.lock().expect("no panic").recv();
        }
    });
    one.io[0].submit(nvm::write(1, ONE, false), block_of(0, 1)).unwrap();
    entered.recv().unwrap();
    // The old holder's connections end, and its write goes on.
    drop(one);
    let preempting = thread::spawn(move || {
        assert_eq!(acquire(&mut two, AcquireAction::PreemptAndAbort, (22, 11)), Status::SUCCESS);
        assert_eq!(write(&mut two, 0, 2), Status::SUCCESS);
        two
    });
    // Time in which a preemption that does not wait would be over.
    thread::sleep(Duration::from_millis(300));
    assert!(!preempting.is_finished(), "the old write is still on its way");
    drop(leave);
    let mut two = preempting.join().expect("it succeeds");
    assert!(read(&mut two, 0) == block_of(0, 2));
}

#[test]
fn many_hosts_are_served_at_once() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (server, address) = start(&config(vec![file(&dir.path().join("a"), 32 * MIB)]));
    let mut hosts: Vec<_> =
        (1..=64).map(|number| connect(address, number, 4, NONE).expect("it connects")).collect();
    assert_eq!(server.status().controllers, 64);
    let queues = hosts.iter_mut().flat_map(|host| std::mem::take(&mut host.io));
    // A host that takes nothing from one of its connections while it waits for another would not get far.
    let threads = queues.map(|mut queue| {
        thread::spawn(move || {
            for _ in 0..3 {
                while queue.has_room() {
                    let read = nvm::read(1, Blocks { lba: 64, count: 64 });
                    queue.submit(read, vec![0; 64 * BLOCK]).expect("room");
                }
                while queue.outstanding() > 0 {
                    let (_, outcome, _) = queue.wait().expect("the connection stays");
                    assert_eq!(outcome.status, Status::SUCCESS);
                }
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().expect("all are answered"));
    let status = server.status();
    assert!(status.buffer_waits > 0, "{status:?}");
    assert!(status.buffer_bytes <= status.buffer_bytes_max, "{status:?}");
    assert_eq!(status.stalled, 0);
}

/// Hosts that take no answers keep some of the buffers, and another one is served at once.
#[test]
fn hosts_that_take_nothing_leave_buffers_to_others() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (server, address) = start(&config(vec![file(&dir.path().join("a"), 32 * MIB)]));
    let mut silent: Vec<_> =
        (1..=8).map(|number| connect(address, number, 4, NONE).expect("it connects")).collect();
    for queue in silent.iter_mut().flat_map(|host| &mut host.io) {
        while queue.has_room() {
            let read = nvm::read(1, Blocks { lba: 64, count: 64 });
            queue.submit(read, vec![0; 64 * BLOCK]).expect("room");
        }
    }
    wait_until("their answers fill the sockets", || server.status().buffer_waits > 0);
    let mut host = connect(address, 99, 1, NONE).unwrap();
    let begin = Instant::now();
    for round in 0..50 {
        assert_eq!(write(&mut host, round, round), Status::SUCCESS);
        assert!(read(&mut host, round) == block_of(round, round));
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(server.status().stalled, 0);
}
