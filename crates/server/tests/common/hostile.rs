//! A server that is sent anything and must go on answering: what the fuzz targets `datagrams`,
//! `handshakes` and `conversations` share with the tests over their corpora.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::server::{Listener, Server};
use terrace::settings::{Invocation, ListenAddress, ListenTls, Port, Settings};
use terrace_cache::{Cache, Config, Tier};
use terrace_device::{Drive, FileDevice};

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a server takes requests in, on TCP or in datagrams.
struct Door {
    address: SocketAddr,
    is_encrypted: bool,
}

fn serve(settings: &Settings, drives: &[Arc<dyn Drive>]) -> (Server, Vec<Door>) {
    let tiers = drives.iter().map(|device| Tier::new(Arc::clone(device))).collect();
    let cache =
        Cache::open(Config { tiers, ..Config::new(settings.memory_bytes) }).expect("a cache");
    let listeners = Listener::bind_all(settings).expect("ports");
    Listener::listen_all(&listeners, settings.listen_backlog).expect("listening");
    let door = |listener: &Listener| {
        let address = listener.tcp_address().or(listener.udp_address());
        Some(Door { address: address?, is_encrypted: listener.is_encrypted() })
    };
    let doors = listeners.iter().filter_map(door).collect();
    let tls = terrace::tls::load(&settings.tls).expect("a certificate");
    (Server::start(settings, cache, drives.to_vec(), listeners, tls).expect("a server"), doors)
}

/// A file of this process.
fn file(name: &str, text: &str) -> PathBuf {
    let path = scratch(name);
    std::fs::write(&path, text).expect("room for a file");
    path
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("terrace-hostile-{}-{name}", std::process::id()))
}

fn local(tls: Option<ListenTls>) -> ListenAddress {
    ListenAddress { host: "127.0.0.1".into(), port: None, tls, protocol: None }
}

/// A server that takes datagrams.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    asked: u16,
    _server: Server,
}

impl Datagrams {
    pub(crate) fn start() -> Self {
        let settings = Settings {
            tcp_port: Port::Off,
            udp_port: Port::Any,
            listen: vec![local(None)],
            threads: 1,
            memory_bytes: 16 << 20,
            ..Settings::default()
        };
        let (server, doors) = serve(&settings, &[]);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(doors[0].address).expect("an address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        Self { socket, asked: 0, _server: server }
    }

    /// Sends `frame`, and panics unless an honest request behind it is answered.
    pub(crate) fn bear(&mut self, frame: &[u8]) {
        if self.socket.send(frame).is_err() {
            return;
        }
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.asked = self.asked.wrapping_add(1);
            let [high, low] = self.asked.to_be_bytes();
            let ask =
                [&[high, low, 0, 0, 0, 1, 0, 0][..], b"mg nothing O", &hex(self.asked), b" k\r\n"];
            let _ = self.socket.send(&ask.concat());
            let answer = [b"EN O", &hex(self.asked)[..], b" knothing\r\n"].concat();
            let mut reply = [0; 2048];
            // What the frame was answered comes first; an answer that finds no room is asked again.
            while let Ok(bytes) = self.socket.recv(&mut reply) {
                if reply[..bytes].get(8..) == Some(&answer) {
                    return;
                }
            }
        }
        panic!("no answer after {frame:?}");
    }
}

fn hex(number: u16) -> Vec<u8> {
    format!("{number:04x}").into_bytes()
}

/// A server that speaks TLS on one port, and plainly on another.
pub(crate) struct Handshakes {
    encrypted: SocketAddr,
    plain: TcpStream,
    client: Arc<ClientConfig>,
    _server: Server,
}

impl Handshakes {
    pub(crate) fn start() -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
        let mut settings = Settings {
            tcp_port: Port::Any,
            listen: vec![local(Some(ListenTls::Off)), local(None)],
            threads: 1,
            memory_bytes: 16 << 20,
            ..Settings::default()
        };
        settings.tls.enabled = true;
        settings.tls.chain = Some(file("cert", &cert.pem()));
        settings.tls.key = Some(file("key", &signing_key.serialize_pem()));
        let (server, doors) = serve(&settings, &[]);
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).expect("a certificate");
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let tcp = |is_encrypted| {
            let found = doors.iter().find(|door| door.is_encrypted == is_encrypted);
            found.expect("a port").address
        };
        let plain = connect(tcp(false));
        Self { encrypted: tcp(true), plain, client: Arc::new(client), _server: server }
    }

    /// Sends `bytes`, behind a good handshake where the first of them asks for it, and panics unless the
    /// server ends this connection and goes on with another.
    pub(crate) fn bear(&mut self, bytes: &[u8]) {
        let Some((&how, bytes)) = bytes.split_first() else { return };
        let mut stream = connect(self.encrypted);
        if how % 8 == 7 {
            let name = ServerName::try_from("localhost").expect("a name");
            let mut tls =
                ClientConnection::new(Arc::clone(&self.client), name).expect("a connection");
            while tls.is_handshaking() {
                match tls.complete_io(&mut stream) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    result => drop(result.expect("a handshake")),
                }
            }
        }
        say_and_hear(&mut stream, bytes);
        is_there(&mut self.plain);
    }
}

/// Servers that carry out what they are sent: one with records on a drive, one that wants a login first,
/// and one that wants SASL.
pub(crate) struct Conversations {
    doors: [(SocketAddr, TcpStream); 3],
    _servers: [Server; 3],
}

/// Bytes of the drive, and of the values that push earlier ones onto it.
const DRIVE_BYTES: u64 = 64 << 20;
const FILLER_BYTES: usize = 2000;
const FILLERS: usize = 10_000;
/// What the two that want one take for a login.
const SASL_LOGIN: &[u8] = b"\x80\x21\0\x05\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0\0\0PLAIN\0u\0pw";
const LOGIN: &[u8] = b"set a 0 0 4\r\nu pw\r\n";

impl Conversations {
    pub(crate) fn start() -> Self {
        let passwords = file("passwords", "u:pw\n").display().to_string();
        let path = scratch("drive");
        let drive = FileDevice::open(&path, Some(DRIVE_BYTES)).expect("room for a file");
        std::fs::remove_file(path).expect("a file of our own");
        let drives: [Arc<dyn Drive>; 1] = [Arc::new(drive)];
        let servers = [
            serve(&flags(""), &drives),
            serve(&flags(&format!("-Y {passwords}")), &[]),
            serve(&flags(&format!("-S --sasl-passwords {passwords}")), &[]),
        ];
        let address = |(_, doors): &(Server, Vec<Door>)| doors[0].address;
        let doors = servers.each_ref().map(address).map(|address| (address, connect(address)));
        let mut conversations = Self { doors, _servers: servers.map(|(server, _)| server) };
        conversations.prepare();
        conversations
    }

    /// Puts records of one letter each onto the drive, and logs the askers in.
    fn prepare(&mut self) {
        let [(_, plain), (_, login), (_, sasl)] = &mut self.doors;
        let value = "7".repeat(FILLER_BYTES);
        let store = |key: &str, value: &str| {
            format!("set {key} 5 0 {} noreply\r\n{value}\r\n", value.len())
        };
        let letters: String = ('a'..='z').map(|key| store(&key.to_string(), "17")).collect();
        plain.write_all(letters.as_bytes()).expect("the server reads");
        for number in 0..FILLERS {
            plain
                .write_all(store(&format!("f{number}"), &value).as_bytes())
                .expect("the server reads");
        }
        login.write_all(LOGIN).expect("the server reads");
        let mut answer = [0; 8];
        login.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"STORED\r\n");
        sasl.write_all(SASL_LOGIN).expect("the server reads");
        let mut answer = [0; 24];
        sasl.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[6..8], [0, 0], "the login is accepted");
        let bytes = u32::from_be_bytes([answer[8], answer[9], answer[10], answer[11]]);
        sasl.read_exact(&mut vec![0; bytes as usize]).expect("an answer");
    }

    /// Sends `bytes` but the first, which says to which server, and whether behind a login; panics unless
    /// the server answers what it does, ends this connection, and goes on with another.
    pub(crate) fn bear(&mut self, bytes: &[u8]) {
        let Some((&how, bytes)) = bytes.split_first() else { return };
        let (which, login) = match how % 8 {
            6 => (1, LOGIN),
            7 => (2, SASL_LOGIN),
            4 => (1, &b""[..]),
            5 => (2, &b""[..]),
            _ => (0, &b""[..]),
        };
        let (address, asker) = &mut self.doors[which];
        let mut stream = connect(*address);
        say_and_hear(&mut stream, &[login, bytes].concat());
        match which {
            2 => is_there_in_binary(asker),
            _ => is_there(asker),
        }
    }
}

/// One worker on a free port, and what else `words` say.
fn flags(words: &str) -> Settings {
    let words = format!("-p -1 -l 127.0.0.1 -t 1 -m 16 -u root {words}");
    let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
    match Invocation::parse(&words) {
        Ok(Invocation::Serve(settings)) => *settings,
        _ => panic!("{words:?} is no server"),
    }
}

/// Sends `bytes` and the end, and reads whatever comes until the server ends it.
fn say_and_hear(stream: &mut TcpStream, bytes: &[u8]) {
    // The server may have had enough before the last byte.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            // A fuzzer's own alarm.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let in_time = error.kind() == ErrorKind::ConnectionReset;
                assert!(in_time, "not closed after {bytes:?}: {error}");
                return;
            }
        }
    }
}

fn is_there(stream: &mut TcpStream) {
    stream.write_all(b"mn\r\n").expect("the server reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(&answer, b"MN\r\n");
}

fn is_there_in_binary(stream: &mut TcpStream) {
    let mut noop = [0; 24];
    noop[..2].copy_from_slice(b"\x80\x0a");
    stream.write_all(&noop).expect("the server reads");
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(answer[..8], *b"\x81\x0a\0\0\0\0\0\0");
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}
