//! Where clients come in: several addresses, ports of the system's choice, sockets that a service
//! manager opened, and what the manager is told.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use terrace_e2e::{
    Client, PATIENCE, Server, free_port, is_terrace, program, skip, spawn_with, wait_until,
};

/// A process that is killed when the test is through with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's way to start");
    }
    !is_terrace()
}

/// The lines of the file of `MEMCACHED_PORT_FILENAME`, as names and ports.
fn ports(file: &Path) -> Vec<(String, u16)> {
    let text = wait_until("the file with the ports", || fs::read_to_string(file).ok());
    let line = |line: &str| {
        let (name, port) = line.split_once(": ").expect("a name and a port");
        (name.to_string(), port.parse().expect("a port"))
    };
    text.lines().map(line).collect()
}

#[test]
fn the_system_gives_ports_and_a_file_tells_them() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("ports");
    let flags = "-m 64 -p -1 -U -1 -l 127.0.0.1";
    let _server = Running(spawn_with(flags, &dir, |command| {
        command.env("MEMCACHED_PORT_FILENAME", &file);
    }));
    let ports = ports(&file);
    let names: Vec<_> = ports.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["TCP INET", "UDP INET"]);
    Client::connect(([127, 0, 0, 1], ports[0].1).into()).check("mn\r\n", "MN\r\n");
}

/// The names in the file of a program that listens on two addresses, on ports of the system's choice.
fn names_of_ports(program: &Path) -> Option<Vec<String>> {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("ports");
    let mut command = Command::new(program);
    command.args(["-m", "64", "-l", "127.0.0.1,127.0.0.2", "-p", "-1", "-U", "-1", "-t", "1"]);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    command.env("MEMCACHED_PORT_FILENAME", &file).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Running(command.spawn().ok()?);
    Some(ports(&file).into_iter().map(|(name, _)| name).collect())
}

#[test]
fn every_listener_is_told_as_memcached_tells_it() {
    let names = names_of_ports(program()).expect("the binary under test starts");
    assert_eq!(names, ["TCP INET", "TCP INET", "UDP INET", "UDP INET"]);
    match names_of_ports(Path::new("memcached")) {
        Some(memcacheds) => assert_eq!(names, memcacheds),
        None => {
            skip("every_listener_is_told_as_memcached_tells_it", "no memcached to compare with")
        }
    }
}

#[test]
fn several_addresses_are_one_cache() {
    let (one, two) = (free_port(), free_port());
    let mut server = Server::start(&format!("-m 64 -l 127.0.0.1:{one};127.0.0.2:{two}"));
    let addresses = [
        server.address(),
        SocketAddr::from(([127, 0, 0, 1], one)),
        SocketAddr::from(([127, 0, 0, 2], two)),
    ];
    assert!(Client::connect(addresses[0]).set("k", b"v"));
    for address in addresses {
        assert_eq!(Client::connect(address).get("k").as_deref(), Some(&b"v"[..]), "{address}");
    }
    server.assert_alive();
}

#[test]
fn prefixes_of_addresses_are_understood() {
    if others("prefixes_of_addresses_are_understood") {
        return;
    }
    let (one, two) = (free_port(), free_port());
    let flags = format!("-m 64 -l notls:127.0.0.1:{one} -l proto[ascii]:tag[b]:127.0.0.1:{two}");
    let server = Server::start(&flags);
    for port in [one, two] {
        Client::connect(([127, 0, 0, 1], port).into()).check("mn\r\n", "MN\r\n");
    }
    server.output_with(&format!("listening on tcp:127.0.0.1:{two}"));
    assert_eq!(Server::run("-l mtls:127.0.0.1").code, Some(64));
}

#[test]
fn a_server_for_everybody_warns() {
    if others("a_server_for_everybody_warns") {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let output = dir.path().join("output");
    let _server = Running(spawn_with("-m 64 -p -1", &dir, |command| {
        let output = fs::File::create(&output).expect("a file");
        command.env("MEMCACHED_PORT_FILENAME", dir.path().join("ports")).stderr(output);
    }));
    let found = ports(&dir.path().join("ports"));
    assert!(found.iter().any(|(name, _)| name == "TCP INET"), "{found:?}");
    Client::connect(([127, 0, 0, 1], found[0].1).into()).check("mn\r\n", "MN\r\n");
    wait_until("the warning", || {
        let said = fs::read_to_string(&output).ok()?;
        said.contains("WARN listening on all addresses").then_some(())
    });
}

/// Opens a Unix socket and one for datagrams, and becomes the server that inherits both.
const ACTIVATE_OTHERS: &str = r#"
import fcntl, os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + ".sock")
listener.listen()
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 0))
open(sys.argv[1] + ".new", "w").write(str(datagrams.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
high = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (listener, datagrams)]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = "2"
os.execv(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn a_service_manager_may_open_sockets_of_other_kinds() {
    const NAME: &str = "a_service_manager_may_open_sockets_of_other_kinds";
    if others(NAME) {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        skip(NAME, "no python3 to act as service manager");
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("port");
    let mut manager = Command::new("python3");
    manager.args(["-c", ACTIVATE_OTHERS]).arg(&file).arg(program());
    manager.args(["-m", "64", "-u", "root"]).stdout(Stdio::null());
    let _server = Running(manager.spawn().expect("python3 runs"));
    let port = wait_until("the port", || fs::read_to_string(&file).ok()?.parse::<u16>().ok());
    let mut stream =
        UnixStream::connect(dir.path().join("port.sock")).expect("the socket is there before");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"set k 0 0 1\r\nx\r\n").expect("the server reads");
    let mut reply = [0; 8];
    stream.read_exact(&mut reply).expect("an answer");
    assert_eq!(&reply, b"STORED\r\n");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.send_to(b"\0\x07\0\0\0\x01\0\0mg k v\r\n", ("127.0.0.1", port)).expect("sent");
    let mut reply = [0; 100];
    let bytes = socket.recv(&mut reply).expect("an answer");
    assert_eq!(&reply[8..bytes], b"VA 1\r\nx\r\n");
}

/// Opens a socket, and becomes the server that inherits it.
const ACTIVATE: &str = r#"
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1], "w").write(str(listener.getsockname()[1]))
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = "1"
os.execv(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn a_service_manager_may_open_the_socket() {
    if others("a_service_manager_may_open_the_socket") {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        skip("a_service_manager_may_open_the_socket", "no python3 to act as service manager");
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("port");
    let mut manager = Command::new("python3");
    manager.args(["-c", ACTIVATE]).arg(&file).arg(program()).args(["-m", "64", "-u", "root"]);
    let _server = Running(manager.stdout(Stdio::null()).spawn().expect("python3 runs"));
    let port = wait_until("the port", || fs::read_to_string(&file).ok()?.parse::<u16>().ok());
    // The socket is there before the server is: what comes meanwhile waits.
    Client::connect(([127, 0, 0, 1], port).into()).check("mn\r\n", "MN\r\n");
}

#[test]
fn the_service_manager_is_told_when_clients_are_served() {
    if others("the_service_manager_is_told_when_clients_are_served") {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    hears_of_start_and_stop(&dir, &socket, path.to_str().expect("a path of text"));
    // systemd has no file for it.
    let name = format!("terrace-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("an address");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    hears_of_start_and_stop(&dir, &socket, &format!("@{name}"));
}

fn hears_of_start_and_stop(dir: &TempDir, socket: &UnixDatagram, path: &str) {
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let port = free_port();
    let flags = format!("-m 64 -l 127.0.0.1 -p {port}");
    let server = Running(spawn_with(&flags, dir, |command| {
        command.env("NOTIFY_SOCKET", path);
    }));
    let hear = || {
        let mut text = [0; 100];
        let bytes = socket.recv(&mut text).expect("a message");
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    };
    assert_eq!(hear(), "READY=1\n");
    Client::connect(([127, 0, 0, 1], port).into()).check("mn\r\n", "MN\r\n");
    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    assert_eq!(hear(), "STOPPING=1\n");
}
