//! A remote drive over real sockets: what is written is read, in every way that it is read.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{BLOCK, BYTES, Relay, Target, nqn, open, open_as, sim, stamped, until};
use std::sync::Arc;
use std::time::Duration;
use terrace_device::sim::{Effect, Fault, Operation};
use terrace_device::{
    AlignedBuf, Done, Drive, Engine, ErrorClass, Part, Read, ReadPath, ReadQueue, WorkerQueue,
};
use terrace_remote::{ConnectError, OpenError, Options, Purpose, RemoteDrive, discover};

const AT: u64 = 64 << 10;

#[test]
fn what_is_written_is_read_with_digests_and_without() {
    for digests in [false, true] {
        let (sim, nqn) = (sim(0), nqn());
        let target = Target::of(&sim, &nqn);
        let options = Options { digests, ..Options::default() };
        let address = common::address(target.address(), &nqn);
        let drive = RemoteDrive::open(&address, None, &options, &|_| false).unwrap();
        assert_eq!((drive.geometry().bytes, drive.geometry().block_bytes), (BYTES, BLOCK as u32));
        for (number, bytes) in [BLOCK, 3 * BLOCK, 1 << 20, 5 << 20].into_iter().enumerate() {
            let written = stamped(bytes, number as u8);
            drive.write_at(AT, &written).unwrap();
            let mut read = AlignedBuf::zeroed(bytes);
            drive.read_at(AT, &mut read).unwrap();
            assert!(read[..] == written[..], "{bytes} bytes");
        }
        let mut bufs: Vec<_> = (0..40).map(|_| AlignedBuf::zeroed(2 * BLOCK)).collect();
        let place = |at: usize| AT + (at * 2 * BLOCK) as u64;
        let mut parts: Vec<_> =
            bufs.iter_mut().enumerate().map(|(at, buf)| Part::new(place(at), buf)).collect();
        drive.read_each(&mut parts);
        assert!(parts.iter().all(|part| part.result.is_ok()));
        let mut whole = AlignedBuf::zeroed(80 * BLOCK);
        drive.read_at(AT, &mut whole).unwrap();
        for (at, buf) in bufs.iter().enumerate() {
            assert!(buf[..] == whole[at * 2 * BLOCK..][..2 * BLOCK], "part {at}");
        }
        drive.flush().unwrap();
        let beyond = drive.write_at(BYTES, &stamped(BLOCK, 1));
        assert_eq!(beyond.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn workers_read_over_a_socket_each_more_than_the_queue_takes_at_once() {
    let (sim, nqn) = (sim(0), nqn());
    let target = Target::of(&sim, &nqn);
    let drive: Arc<dyn Drive> = Arc::new(open(target.address(), &nqn));
    const READS: u64 = 1000;
    drive.write_at(AT, &stamped(4 << 20, 3)).unwrap();
    let mut whole = AlignedBuf::zeroed(4 << 20);
    drive.read_at(AT, &mut whole).unwrap();
    let mut queue = WorkerQueue::open(&[drive], Engine::Auto, 8).unwrap();
    assert_eq!(queue.path(0), Some(ReadPath::Own));
    for token in 0..READS {
        // Of one block to five.
        let (block, blocks) = (token * 37 % 1000, token % 5 + 1);
        let buf = queue.buffer(blocks as usize * BLOCK);
        queue.submit(Read { device: 0, offset: AT + block * BLOCK as u64, buf, token });
    }
    let mut done: Vec<Done> = Vec::new();
    while done.len() < READS as usize {
        queue.wait(&mut done, Duration::from_secs(60)).unwrap();
    }
    for Done { token, buf, result } in done {
        result.unwrap();
        let at = (token * 37 % 1000) as usize * BLOCK;
        assert!(buf[..] == whole[at..][..buf.len()], "read {token}");
    }
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn errors_of_the_targets_drive_have_its_class() {
    let (sim, nqn) = (sim(0), nqn());
    let target = Target::of(&sim, &nqn);
    let drive: Arc<dyn Drive> = Arc::new(open(target.address(), &nqn));
    let fail = |operation, class| {
        sim.inject(Fault::next(operation, Effect::Fail(class)));
    };
    fail(Operation::Read, ErrorClass::Medium);
    let error = drive.read_at(AT, &mut AlignedBuf::zeroed(BLOCK)).unwrap_err();
    assert_eq!(ErrorClass::of(&error), ErrorClass::Medium, "{error}");
    fail(Operation::Write, ErrorClass::NoSpace);
    let error = drive.write_at(AT, &stamped(BLOCK, 1)).unwrap_err();
    assert_eq!(ErrorClass::of(&error), ErrorClass::NoSpace, "{error}");
    fail(Operation::Read, ErrorClass::Medium);
    let mut queue = WorkerQueue::open(&[Arc::clone(&drive)], Engine::Auto, 8).unwrap();
    let buf = AlignedBuf::zeroed(BLOCK);
    queue.submit(Read { device: 0, offset: AT, buf, token: 1 });
    let mut done = Vec::new();
    until("the read", || {
        queue.wait(&mut done, Duration::from_secs(1)).unwrap();
        !done.is_empty()
    });
    let error = done[0].result.as_ref().unwrap_err();
    assert_eq!(ErrorClass::of(error), ErrorClass::Medium, "{error}");
    drive.write_at(AT, &stamped(BLOCK, 1)).unwrap();
    assert_eq!(drive.errors().of(ErrorClass::Medium), 2);
}

#[test]
fn what_is_answered_is_durable() {
    // It loses what was not flushed.
    let (sim, nqn) = (sim(BYTES as usize), nqn());
    let target = Target::of(&sim, &nqn);
    let drive = open(target.address(), &nqn);
    drive.write_at(AT, &stamped(1 << 20, 5)).unwrap();
    let after = sim.crashed_copy(terrace_device::sim::Crash::LoseAll, 1);
    let mut read = AlignedBuf::zeroed(1 << 20);
    after.read_at(AT, &mut read).unwrap();
    assert!(read[..] == stamped(1 << 20, 5)[..]);
}

#[test]
fn a_target_says_what_it_has_and_what_it_does_not_have_is_refused() {
    let (sim, nqn) = (sim(0), nqn());
    let target = Target::of(&sim, &nqn);
    let at = target.address();
    let found = discover("127.0.0.1", Some(at.port())).unwrap();
    assert_eq!(found.iter().map(|one| one.nqn.as_str()).collect::<Vec<_>>(), [nqn.as_str()]);
    let refusal = |name: &str| match open_as(at, name, "nqn.2014-08.org:x", Purpose::Own) {
        Ok(_) => panic!("{name}: opened"),
        Err(error) => error.to_string(),
    };
    let error = refusal("nqn.2014-08.org.example:other");
    assert!(error.contains("no subsystem of this name") && error.contains(&nqn), "{error}");
    assert!(refusal(&format!("{nqn}/9")).contains("no namespace 9"));
    let address = common::address(at, &nqn);
    let large = RemoteDrive::open(&address, Some(1 << 40), &Options::default(), &|_| false);
    assert!(matches!(large, Err(OpenError::Smaller { has: BYTES, .. })));
    let foreign = RemoteDrive::open(&address, None, &Options::default(), &|_| true);
    let source = foreign.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(source.contains("did not write"), "{source}");
    drop(target);
    let error = open_as(at, &nqn, "nqn.2014-08.org:x", Purpose::Own).err().expect("no target");
    assert!(error.is_absence(), "{error}");
}

#[test]
fn a_namespace_has_one_owner_until_that_gives_it_back() {
    let (sim, nqn) = (sim(0), nqn());
    let target = Target::of(&sim, &nqn);
    let at = target.address();
    let (a, b) = ("nqn.2014-08.org.nvmexpress:host:a", "nqn.2014-08.org.nvmexpress:host:b");
    let first = open(at, &nqn);
    let source = |result: Result<RemoteDrive, OpenError>| match result.err() {
        Some(OpenError::Connect { source, .. }) => source,
        other => panic!("not refused: {other:?}"),
    };
    let again = source(open_as(at, &nqn, a, Purpose::Own));
    assert!(matches!(again, ConnectError::HeldHere), "{again}");
    let other = source(open_as(at, &nqn, b, Purpose::Own));
    assert!(matches!(other, ConnectError::Held { .. }), "{other}");
    assert!(open_as(at, &nqn, b, Purpose::Read).is_ok(), "beside its owner");
    let other = source(open_as(at, &nqn, b, Purpose::Overwrite));
    assert!(matches!(other, ConnectError::Held { .. }), "{other}");
    // It can be taken, and then the first can't write any more, nor does it read what another writes.
    let second = open_as(at, &nqn, b, Purpose::Take).unwrap();
    until("the first learns", || first.health().name() == "gone");
    let error = first.write_at(AT, &stamped(BLOCK, 1)).unwrap_err();
    assert_eq!(ErrorClass::of(&error), ErrorClass::Gone, "{error}");
    let error = first.read_at(AT, &mut AlignedBuf::zeroed(BLOCK)).unwrap_err();
    assert_eq!(ErrorClass::of(&error), ErrorClass::Gone, "{error}");
    second.write_at(AT, &stamped(BLOCK, 2)).unwrap();
    drop(second);
    drop(first);
    assert!(open_as(at, &nqn, a, Purpose::Own).is_ok(), "it was given back");
}

#[test]
fn a_server_that_was_killed_finds_its_namespace_again() {
    let (sim, nqn) = (sim(0), nqn());
    let target = Target::of(&sim, &nqn);
    let relay = Relay::to(&target);
    let drive = open(relay.address(), &nqn);
    drive.write_at(AT, &stamped(BLOCK, 9)).unwrap();
    // Nothing of what it would say at its end comes to the target.
    relay.set(common::Mode::Hold);
    relay.cut();
    let ended = std::thread::spawn(move || drop(drive));
    until("the lock", || {
        open_as(target.address(), &nqn, "nqn.2014-08.org.nvmexpress:host:a", Purpose::Own).is_ok()
    });
    relay.set(common::Mode::Pass);
    ended.join().unwrap();
}
