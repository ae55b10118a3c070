//! What reads drives, where the system does not let it.

use std::process::Command;
use terrace_e2e::{Client, PATIENCE, assert_on_flash, fill, free_port, is_terrace, program};
use terrace_e2e::{run_as_root, skip, value_of};

/// Runs its arguments with a filter that refuses `io_uring_enter` (426 on every architecture): rings
/// can be made, and not be used.
const FILTER: &str = r#"
import ctypes, os, struct, sys
refuse, allow = 0x00050001, 0x7fff0000  # EPERM; nothing
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 426), (0x06, 0, 0, refuse), (0x06, 0, 0, allow)]
program = b"".join(struct.pack("HBBI", *line) for line in code)
buffer = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("code", ctypes.c_void_p)]
filter = Filter(len(code), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + 4 * [ctypes.c_ulong]
assert libc.prctl(38, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS"
assert libc.prctl(22, 2, ctypes.addressof(filter), 0, 0) == 0, "PR_SET_SECCOMP"
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn threads_take_over_when_rings_can_not_be_used_after_all() {
    const TEST: &str = "threads_take_over_when_rings_can_not_be_used_after_all";
    if !is_terrace() {
        return skip(TEST, "memcached reads in its own way");
    }
    if !Command::new("python3").arg("-V").status().is_ok_and(|status| status.success()) {
        return skip(TEST, "no python3 to set a filter of system calls with");
    }
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().to_str().expect("a path of text");
    let port = free_port().to_string();
    let tier = format!("ssd:{path}/tier:128m");
    let mut command = Command::new("python3");
    command.args(["-c", FILTER]).arg(program()).args(["-m", "24", "--tier", &tier]);
    let state = terrace_e2e::state_dir(dir.path());
    command.arg("--state").arg(state).args([
        "--io-engine",
        "io_uring",
        "-l",
        "127.0.0.1",
        "-p",
        &port,
    ]);
    if run_as_root() {
        command.args(["-u", "root"]);
    }
    let log = dir.path().join("log");
    let file = std::fs::File::create(&log).expect("a log");
    command.stdout(file.try_clone().expect("the log")).stderr(file);
    let mut child = Ended(command.spawn().expect("python3 starts"));
    let address = ([127, 0, 0, 1], port.parse().expect("a port")).into();
    let output = || std::fs::read_to_string(&log).expect("the log");
    let end = std::time::Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(address).is_err() {
        if child.0.try_wait().expect("a child").is_some() && output().contains("io_uring") {
            return skip(TEST, "no io_uring here, or one that is refused at the start");
        }
        assert!(std::time::Instant::now() < end, "no answer: {}", output());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let client = &mut Client::connect(address);
    assert!(client.set("k", &value_of("k", 0, 1000)));
    fill(client, "filler", 40_000, 1000);
    assert_on_flash(client, "k");
    assert_eq!(client.get("k"), Some(value_of("k", 0, 1000)));
    let mut others: Vec<_> = (0..8).map(|_| Client::connect(address)).collect();
    for other in &mut others {
        assert_eq!(other.get("k"), Some(value_of("k", 0, 1000)), "another worker");
    }
    assert!(output().contains("I/O engine: io_uring"), "{}", output());
    assert!(output().contains("reading with threads, since io_uring fails"), "{}", output());
}

/// Ends the process with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
