//! Faults of files, of hosts and of what is sent end what they must end, and nothing else.

mod common;

use common::{
    BLOCK, BOTH, MIB, NONE, Notes, block_of, config, connect, drive, file, login, start, wait_until,
};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::Command as Program;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_device::ErrorClass;
use terrace_device::sim::{Effect, Fault, Operation, SimDevice};
use terrace_e2e::{LoopDevice, Mount, NvmeHost, run_as_root, skip};
use terrace_export::{Config, ExportError, Server};
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::{Command, Status};
use terrace_nvme::host::SetUpConfig;

const ONE: Blocks = Blocks { lba: 0, count: 1 };

fn status(host: &mut NvmeHost, command: Command, bytes: usize) -> Status {
    host.io[0].run(command, vec![7; bytes]).expect("the connection stays").0.status
}

/// Whether the target has closed this connection, within a time.
fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).expect("a time");
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn file_that_is_too_short_fails_its_commands_and_no_more() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, notes) = (dir.path().join("a"), Notes::default());
    let config = Config { log: notes.log(), ..config(vec![file(&path, 2 * MIB)]) };
    let (server, address) = start(&config);
    let mut host = connect(address, 1, 1, NONE).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(MIB).unwrap();
    let beyond = Blocks { lba: 300, count: 1 };
    for _ in 0..3 {
        let failed = status(&mut host, nvm::read(1, beyond), BLOCK);
        assert!(failed.is(Status::UNRECOVERED_READ_ERROR), "{failed}");
    }
    assert_eq!(status(&mut host, nvm::read(1, ONE), BLOCK), Status::SUCCESS);
    assert_eq!(server.status().namespaces[0].errors.of(ErrorClass::Medium), 3);
    assert_eq!(notes.warnings(&["namespace 1", "medium error", "full length"]), 1, "one line each");
}

#[test]
fn full_file_system_is_a_status_and_writing_goes_on_when_there_is_space() {
    const NAME: &str = "full_file_system_is_a_status_and_writing_goes_on_when_there_is_space";
    let Some(mount) = Mount::tmpfs(4) else { return skip(NAME, "nothing can be mounted here") };
    let (path, notes) = (mount.path().join("a"), Notes::default());
    let config = Config { log: notes.log(), ..config(vec![file(&path, 2 * MIB)]) };
    let (server, address) = start(&config);
    let mut host = connect(address, 1, 1, NONE).unwrap();
    assert_eq!(status(&mut host, nvm::write(1, ONE, false), BLOCK), Status::SUCCESS);
    // The space that the file had is given away behind the export's back.
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    file.set_len(2 * MIB).unwrap();
    let hog = mount.path().join("hog");
    let filled = std::fs::write(&hog, vec![1; 8 << 20]).unwrap_err();
    assert_eq!(filled.kind(), ErrorKind::StorageFull);
    let failed = status(&mut host, nvm::write(1, ONE, false), BLOCK);
    assert!(failed.is(Status::CAPACITY_EXCEEDED), "{failed}");
    assert_eq!(server.status().namespaces[0].errors.of(ErrorClass::NoSpace), 1);
    assert_eq!(notes.warnings(&["no space", "free space"]), 1);
    std::fs::remove_file(&hog).unwrap();
    assert_eq!(status(&mut host, nvm::write(1, ONE, false), BLOCK), Status::SUCCESS);
}

#[test]
fn errors_of_a_drive_become_the_status_that_fits() {
    let sim = Arc::new(SimDevice::new(MIB, 1));
    let (server, address) = start(&config(vec![drive(Arc::clone(&sim) as _)]));
    let mut host = connect(address, 1, 1, BOTH).unwrap();
    for (operation, effect, command, expected) in [
        (
            Operation::Read,
            Effect::Fail(ErrorClass::Medium),
            nvm::read(1, ONE),
            Status::UNRECOVERED_READ_ERROR,
        ),
        (
            Operation::Write,
            Effect::Fail(ErrorClass::Medium),
            nvm::write(1, ONE, false),
            Status::WRITE_FAULT,
        ),
        (
            Operation::Write,
            Effect::Fail(ErrorClass::NoSpace),
            nvm::write(1, ONE, false),
            Status::CAPACITY_EXCEEDED,
        ),
        (
            Operation::Write,
            Effect::Fail(ErrorClass::ReadOnly),
            nvm::write(1, ONE, false),
            Status::WRITE_PROTECTED,
        ),
        (
            Operation::Write,
            Effect::Fail(ErrorClass::Gone),
            nvm::write(1, ONE, false),
            Status::INTERNAL_ERROR,
        ),
        (Operation::Flush, Effect::Fail(ErrorClass::Medium), nvm::flush(1), Status::WRITE_FAULT),
        (
            Operation::Flush,
            Effect::Fail(ErrorClass::Medium),
            nvm::write(1, ONE, true),
            Status::WRITE_FAULT,
        ),
    ] {
        sim.inject(Fault::next(operation, effect));
        let bytes = if operation == Operation::Flush && command.opcode() == 0 { 0 } else { BLOCK };
        let failed = status(&mut host, command, bytes);
        assert!(failed.is(expected), "{operation:?}: {failed} instead of {expected}");
        assert_eq!(status(&mut host, command, bytes), Status::SUCCESS);
    }
    let errors = server.status().namespaces[0].errors;
    assert_eq!(errors.of(ErrorClass::Medium), 4);
}

/// A write of one namespace that takes long delays neither reads nor another namespace.
#[test]
fn slow_write_holds_up_nothing_else() {
    let sim = Arc::new(SimDevice::new(MIB, 1));
    let other = Arc::new(SimDevice::new(MIB, 2));
    let mut second = drive(other);
    second.nsid = 2;
    let (_server, address) = start(&config(vec![drive(Arc::clone(&sim) as _), second]));
    let slow = |number| NvmeHost::connect(address, login(number), (1, 32), NONE, Some(1)).unwrap();
    let (mut one, mut two) = (slow(1), slow(2));
    let (enter, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let left = std::sync::Mutex::new(left);
    sim.before_each(move |transfer| {
        if transfer.operation == Operation::Write {
            enter.send(()).expect("the test waits");
            let _ = left.lock().expect("no panic").recv();
        }
    });
    let tag = one.io[0].submit(nvm::write(1, ONE, false), vec![1; BLOCK]).unwrap();
    entered.recv().unwrap();
    assert_eq!(status(&mut two, nvm::write(2, ONE, false), BLOCK), Status::SUCCESS);
    assert_eq!(status(&mut two, nvm::read(1, Blocks { lba: 5, count: 1 }), BLOCK), Status::SUCCESS);
    drop(leave);
    let (over, outcome, _) = one.io[0].wait().unwrap();
    assert_eq!((over, outcome.status), (tag, Status::SUCCESS));
}

#[test]
fn stop_answers_the_commands_under_way_and_flushes() {
    let sim = Arc::new(SimDevice::new(MIB, 1));
    let (server, address) = start(&config(vec![drive(Arc::clone(&sim) as _)]));
    let mut host = connect(address, 1, 1, NONE).unwrap();
    let mut idle = connect(address, 2, 1, NONE).unwrap();
    let (enter, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let left = std::sync::Mutex::new(left);
    sim.before_each(move |transfer| {
        if transfer.operation == Operation::Write {
            enter.send(()).expect("the test waits");
            let _ = left.lock().expect("no panic").recv();
        }
    });
    host.io[0].submit(nvm::write(1, ONE, false), vec![1; BLOCK]).unwrap();
    entered.recv().unwrap();
    server.stop();
    assert!(is_closed(&mut idle.io[0].stream, Duration::from_secs(5)), "it has nothing to do");
    wait_until("no further host is served", || TcpStream::connect(address).is_err());
    assert_eq!(sim.counts().flushes, 0);
    drop(leave);
    let (_, outcome, _) = host.io[0].wait().expect("the answer comes before the end");
    assert_eq!(outcome.status, Status::SUCCESS);
    server.wait().expect("a clean end");
    assert_eq!(sim.counts().flushes, 1);
}

#[test]
fn connections_without_a_connect_are_few_and_short() {
    let dir = TempDir::new().unwrap();
    let config = Config { half_open_max: 8, ..config(vec![file(&dir.path().join("a"), MIB)]) };
    let (server, address) = start(&config);
    let mut host = connect(address, 1, 1, NONE).unwrap();
    let mut silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    wait_until("the oldest ones are closed", || {
        let status = server.status();
        status.accepted == 42 && status.half_open == 8
    });
    assert!(is_closed(&mut silent[0], Duration::from_secs(5)));
    assert_eq!(status(&mut host, nvm::read(1, ONE), BLOCK), Status::SUCCESS);
    assert!(connect(address, 2, 1, NONE).is_ok(), "another host gets in all the same");
    wait_until("those that say nothing are closed", || server.status().half_open == 0);
    assert!(is_closed(&mut silent[39], Duration::from_secs(5)));
    assert_eq!(status(&mut host, nvm::read(1, ONE), BLOCK), Status::SUCCESS);
}

#[test]
fn connections_beyond_the_limit_are_turned_away() {
    let dir = TempDir::new().unwrap();
    let config = Config { connections_max: 2, ..config(vec![file(&dir.path().join("a"), MIB)]) };
    let (server, address) = start(&config);
    let host = connect(address, 1, 1, NONE).unwrap();
    assert!(connect(address, 2, 1, NONE).is_err());
    assert!(server.status().rejected > 0);
    drop(host);
    wait_until("the first host has gone", || server.status().connections == 0);
    assert!(connect(address, 2, 1, NONE).is_ok());
}

#[test]
fn host_that_is_not_allowed_is_refused() {
    let dir = TempDir::new().unwrap();
    let hosts = Some(vec![login(1).host_nqn]);
    let config = Config { hosts, ..config(vec![file(&dir.path().join("a"), MIB)]) };
    let (_server, address) = start(&config);
    let error = connect(address, 2, 1, NONE).err().expect("it is refused");
    assert!(error.to_string().contains("invalid host"), "{error}");
    assert!(connect(address, 1, 1, NONE).is_ok());
}

/// What is malformed, too long, or nothing of this protocol ends its own connection.
#[test]
fn malformed_pdus_end_only_their_own_connection() {
    let dir = TempDir::new().unwrap();
    let notes = Notes::default();
    let config = Config { log: notes.log(), ..config(vec![file(&dir.path().join("a"), MIB)]) };
    let (server, address) = start(&config);
    let mut host = connect(address, 1, 1, BOTH).unwrap();
    let mut too_long = [0; 128];
    too_long[..8].copy_from_slice(&[0, 0, 128, 0, 0xff, 0xff, 0xff, 0x7f]);
    let command = [&[4u8, 0, 72, 0, 72, 0, 0, 0][..], &[0; 64]].concat();
    let all: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &too_long, &command, &[0xff; 4096]];
    for (number, bytes) in all.iter().enumerate() {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        // A terminate request: PDU type 3.
        assert!(ended.is_err() || answer.first() == Some(&3), "{number}: {answer:?}");
        assert_eq!(status(&mut host, nvm::read(1, ONE), BLOCK), Status::SUCCESS);
    }
    assert_eq!(server.status().protocol_errors, all.len() as u64);
    assert!(notes.warnings(&["broke the protocol"]) >= 1);
    // And on a connection that has a queue.
    let mut broken = connect(address, 2, 1, NONE).unwrap();
    broken.io[0].stream.write_all(&[0xff; 200]).unwrap();
    assert!(is_closed(&mut broken.io[0].stream, Duration::from_secs(10)));
    assert_eq!(status(&mut host, nvm::write(1, ONE, false), BLOCK), Status::SUCCESS);
}

#[test]
fn association_without_keep_alive_ends_with_its_queues() {
    let dir = TempDir::new().unwrap();
    let (server, address) = start(&config(vec![file(&dir.path().join("a"), MIB)]));
    let of = |number, keep_alive_ms| {
        let config = SetUpConfig {
            login: login(number),
            entries: 32,
            keep_alive_ms,
            io_queues: 1,
            nsid: None,
        };
        NvmeHost::connect_for(address, login(number), (1, 8), NONE, config).unwrap()
    };
    let begin = Instant::now();
    let (mut short, mut kept) = (of(1, 700), of(2, 700));
    let mut without = of(3, 0);
    while !is_closed(&mut short.io[0].stream, Duration::from_millis(100)) {
        assert!(begin.elapsed() < Duration::from_secs(10), "it is never closed");
        let keep_alive = Command::new(0x18);
        assert_eq!(kept.admin.run(keep_alive, Vec::new()).unwrap().0.status, Status::SUCCESS);
    }
    assert!(begin.elapsed() >= Duration::from_millis(700), "{:?}", begin.elapsed());
    assert!(is_closed(&mut short.admin.stream, Duration::from_secs(5)));
    assert_eq!(server.status().keep_alive_timeouts, 1);
    assert_eq!(status(&mut kept, nvm::read(1, ONE), BLOCK), Status::SUCCESS);
    assert_eq!(status(&mut without, nvm::read(1, ONE), BLOCK), Status::SUCCESS);
}

/// A host that stops in the middle of its writes keeps buffers from others for some seconds only.
#[test]
fn host_that_stops_within_its_writes_does_not_keep_the_buffers() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let config = Config {
        buffer_bytes_max: MIB as usize,
        ..config(vec![file(&dir.path().join("a"), 16 * MIB)])
    };
    let (server, address) = start(&config);
    let blocks = Blocks { lba: 0, count: 64 };
    // Each gets its R2T, and sends nothing.
    let mut stalled: Vec<_> =
        (1..=6).map(|number| connect(address, number, 1, NONE).unwrap()).collect();
    for host in &mut stalled {
        host.io[0].submit(nvm::write(1, blocks, false), vec![1; 64 * BLOCK]).unwrap();
    }
    wait_until("they have the buffers", || server.status().buffer_waits > 0);
    let mut host = connect(address, 9, 1, NONE).unwrap();
    assert_eq!(status(&mut host, nvm::read(1, blocks), 64 * BLOCK), Status::SUCCESS);
    assert!(server.status().stalled > 0);
}

#[test]
fn file_that_another_has_is_refused_with_what_to_do() {
    let dir = TempDir::new().unwrap();
    let config = config(vec![file(&dir.path().join("a"), MIB)]);
    let (server, _) = start(&config);
    let error = Server::start(&config).err().expect("it is in use").to_string();
    assert!(error.contains("is in use: stop the other Terrace or unmount it"), "{error}");
    server.stop();
    server.wait().unwrap();
    drop(server);
    assert!(Server::start(&config).is_ok());
}

#[test]
fn mounted_device_is_refused_and_a_free_one_is_served() -> io::Result<()> {
    const NAME: &str = "mounted_device_is_refused_and_a_free_one_is_served";
    if !run_as_root() {
        skip(NAME, "this is not root");
        return Ok(());
    }
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
    let device = match LoopDevice::new(dir.path(), 16 * MIB) {
        Ok(device) => device,
        Err(why) => {
            skip(NAME, &why);
            return Ok(());
        }
    };
    let mut namespace = file(device.path(), 16 * MIB);
    namespace.storage =
        terrace_export::Storage::Path { path: device.path().to_owned(), bytes: None };
    let config = config(vec![namespace]);
    {
        let (server, address) = start(&config);
        let mut host = connect(address, 1, 1, BOTH)?;
        host.io[0].run(nvm::write(1, Blocks { lba: 3, count: 1 }, true), block_of(3, 1))?;
        let mut found = vec![0; BLOCK];
        device.file().read_exact_at(&mut found, 3 * BLOCK as u64)?;
        assert!(found == block_of(3, 1));
        let ranges = [Blocks { lba: 0, count: 16 }];
        let deallocate = nvm::deallocate(1, 1);
        let (outcome, _) = host.io[0].run(deallocate, nvm::write_ranges(&ranges).into())?;
        assert_eq!(outcome.status, Status::SUCCESS);
        server.stop();
    }
    let made = Program::new("mkfs.ext4").arg("-q").arg(device.path()).status();
    let point = TempDir::new()?;
    let mount = |words: &[&std::path::Path]| Program::new("mount").args(words).status();
    if !made.is_ok_and(|made| made.success())
        || !mount(&[device.path(), point.path()]).is_ok_and(|mounted| mounted.success())
    {
        skip(NAME, "nothing can be mounted here");
        return Ok(());
    }
    let refused = Server::start(&config).err();
    Program::new("umount").arg(point.path()).status()?;
    let Some(ExportError::Open(error)) = refused else { panic!("it is mounted") };
    assert!(error.to_string().contains("unmount it"), "{error}");
    assert!(Server::start(&config).is_ok());
    Ok(())
}

#[test]
fn address_that_is_taken_is_named() {
    let dir = TempDir::new().unwrap();
    let (_server, address) = start(&config(vec![file(&dir.path().join("a"), MIB)]));
    let config = Config {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], address.port()))],
        ..config(vec![file(&dir.path().join("b"), MIB)])
    };
    let error = Server::start(&config).err().expect("it is taken").to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}
