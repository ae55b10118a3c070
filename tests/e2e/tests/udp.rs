//! Requests in datagrams, from honest clients and from others.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use terrace_e2e::{
    PATIENCE, Server, assert_on_flash, flash_server, free_port, is_terrace, push_to_flash, skip,
    value_of,
};

/// Another server with datagrams needs its own flags and rules.
fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's datagrams");
    }
    !is_terrace()
}

struct Udp {
    socket: UdpSocket,
    next: u16,
}

impl Udp {
    fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(server).expect("an address");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { socket, next: 0x1234 }
    }

    fn send(&mut self, text: impl AsRef<[u8]>) -> u16 {
        self.next += 1;
        let mut frame = self.next.to_be_bytes().to_vec();
        frame.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
        frame.extend_from_slice(text.as_ref());
        self.socket.send(&frame).expect("sent");
        self.next
    }

    /// All datagrams of the reply to `id`, put together.
    fn reply(&mut self, id: u16) -> Vec<u8> {
        let mut parts: Vec<Option<Vec<u8>>> = Vec::new();
        loop {
            let mut frame = [0; 2000];
            let bytes = self.socket.recv(&mut frame).expect("a reply");
            assert!((9..=1400).contains(&bytes), "a datagram of {bytes} bytes");
            let field = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            assert_eq!((field(0), field(6)), (id, 0));
            parts.resize(usize::from(field(4)), None);
            parts[usize::from(field(2))] = Some(frame[8..bytes].to_vec());
            if parts.iter().all(Option::is_some) {
                return parts.into_iter().flatten().flatten().collect();
            }
        }
    }

    fn ask(&mut self, text: impl AsRef<[u8]>) -> Vec<u8> {
        let id = self.send(text);
        self.reply(id)
    }

    fn hears_nothing(&self) {
        self.socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        assert!(self.socket.recv(&mut [0; 100]).is_err(), "an answer to what deserves none");
        self.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn datagrams_are_answered_in_frames() {
    if others("datagrams_are_answered_in_frames") {
        return;
    }
    let port = free_port();
    let mut server = Server::start(&format!("-m 64 -t 2 -U {port}"));
    let mut udp = Udp::new(([127, 0, 0, 1], port).into());
    assert_eq!(
        text(&udp.ask("set k 5 0 3\r\nabc\r\nget k nothing\r\n")),
        "STORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\n"
    );
    assert_eq!(text(&udp.ask("mg k v f\r\n")), "VA 3 f5\r\nabc\r\n");
    assert_eq!(text(&udp.ask("nonsense\r\n")), "ERROR\r\n");
    assert_eq!(server.client().get("k").as_deref(), Some(&b"abc"[..]));
    // One that is longer than a datagram comes in several.
    let value = value_of("long", 0, 50_000);
    assert!(server.client().set("long", &value));
    let reply = udp.ask("get long\r\n");
    assert_eq!(&reply[..18], b"VALUE long 0 50000");
    assert_eq!(&reply[20..50_020], &value[..]);
    // What is silent stays so.
    udp.send("set k 0 0 1 noreply\r\nx\r\n");
    udp.hears_nothing();
    assert_eq!(text(&udp.ask("get k\r\n")), "VALUE k 0 1\r\nx\r\nEND\r\n");
    let client = &mut server.client();
    assert_eq!(client.stats("settings")["udpport"], port.to_string());
    // That of this client: datagrams make none.
    server.wait_for_connections(client, 1);
    server.assert_alive();
}

#[test]
fn what_lies_on_the_drive_is_answered_too() {
    if others("what_lies_on_the_drive_is_answered_too") {
        return;
    }
    let port = free_port();
    let mut server = flash_server(&format!("-t 1 -U {port}"));
    let client = &mut server.client();
    assert!(client.set("cold", &value_of("cold", 0, 500)));
    push_to_flash(client);
    assert_on_flash(client, "cold");
    let mut udp = Udp::new(([127, 0, 0, 1], port).into());
    let reads = client.stat("tiers", "tier:0:reads");
    let reply = udp.ask("get cold\r\n");
    assert_eq!(&reply[..18], b"VALUE cold 0 500\r\n");
    assert_eq!(&reply[18..518], &value_of("cold", 0, 500)[..]);
    assert!(client.stat("tiers", "tier:0:reads") > reads, "it was not on the drive");
    server.assert_alive();
}

#[test]
fn broken_and_foul_datagrams_get_little_or_nothing() {
    if others("broken_and_foul_datagrams_get_little_or_nothing") {
        return;
    }
    let port = free_port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut server = Server::start(&format!("-m 64 -t 1 -U {port}"));
    let mut udp = Udp::new(address);
    // No header, no text, half a request, a part of several.
    for frame in
        [&b""[..], b"x", b"1234567", &[0, 1, 0, 0, 0, 1, 0, 0], &[0, 1, 0, 1, 0, 1, 0, 0, b'g']]
    {
        udp.socket.send(frame).expect("sent");
    }
    udp.send("get k");
    udp.send("set k 0 0 100\r\nabc");
    udp.hears_nothing();
    assert_eq!(server.client().get("k"), None);
    udp.socket.send(&[0, 7, 0, 0, 0, 2, 0, 0, b'm', b'n', b'\r', b'\n']).expect("sent");
    assert_eq!(text(&udp.reply(7)), "SERVER_ERROR multi-packet request not supported\r\n");

    // A reply of many megabytes to a short request is an attack on whoever is named as its sender.
    assert!(server.client().set("big", &value_of("big", 0, 300_000)));
    let greedy = format!("get{}\r\n", " big".repeat(300));
    assert_eq!(text(&udp.ask(greedy)), "SERVER_ERROR out of memory writing get response\r\n");

    // From the same port on another address, as another server's replies would come.
    let other = UdpSocket::bind(("127.0.0.3", port)).expect("a socket");
    other.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    other.send_to(b"\0\x01\0\0\0\x01\0\0ERROR\r\n", address).expect("sent");
    assert!(other.recv(&mut [0; 100]).is_err(), "two servers would answer each other for ever");

    // A flood: some are lost, the server is not.
    for _ in 0..20_000 {
        let _ = udp.socket.send(b"\0\x01\0\0\0\x01\0\0get big\r\n");
    }
    server.client().check("mn\r\n", "MN\r\n");
    server.assert_alive();
}

#[test]
fn datagrams_are_off_unless_asked_for() {
    if others("datagrams_are_off_unless_asked_for") {
        return;
    }
    let server = Server::start("-m 64");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    udp.connect(server.address()).expect("an address");
    udp.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let _ = udp.send(b"\0\x01\0\0\0\x01\0\0version\r\n");
    assert!(udp.recv(&mut [0; 100]).is_err());
    let passwords = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(passwords.path(), "user:pass\n").expect("a file");
    let failed = Server::run(&format!("-U 11999 -Y {}", passwords.path().display()));
    assert_eq!(failed.code, Some(64), "{}", failed.output);
}
