//! A server that is sent anything and must go on answering: what the fuzz targets `datagrams` and
//! `handshakes` share with the tests over their corpora.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::server::{Listener, Server};
use terrace::settings::{ListenAddress, ListenTls, Port, Settings};
use terrace_cache::{Cache, Config};

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a server takes requests in, on TCP or in datagrams.
struct Door {
    address: SocketAddr,
    is_encrypted: bool,
}

fn serve(settings: &Settings) -> (Server, Vec<Door>) {
    let cache = Cache::open(Config::new(settings.memory_bytes)).expect("a cache");
    let listeners = Listener::bind_all(settings).expect("ports");
    let door = |listener: &Listener| {
        let address = listener.tcp_address().or(listener.udp_address());
        Some(Door { address: address?, is_encrypted: listener.is_encrypted() })
    };
    let doors = listeners.iter().filter_map(door).collect();
    (Server::start(settings, cache, &[], listeners).expect("a server"), doors)
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
        let (server, doors) = serve(&settings);
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
        let file = |name: &str, text: String| {
            let name = format!("terrace-hostile-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).expect("room for a file");
            path
        };
        let mut settings = Settings {
            tcp_port: Port::Any,
            listen: vec![local(Some(ListenTls::Off)), local(None)],
            threads: 1,
            memory_bytes: 16 << 20,
            ..Settings::default()
        };
        settings.tls.enabled = true;
        settings.tls.chain = Some(file("cert", cert.pem()));
        settings.tls.key = Some(file("key", signing_key.serialize_pem()));
        let (server, doors) = serve(&settings);
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
                tls.complete_io(&mut stream).expect("a handshake");
            }
        }
        // The server may have had enough before the last byte.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = [0; 4096];
        loop {
            match stream.read(&mut rest) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    let in_time = error.kind() == std::io::ErrorKind::ConnectionReset;
                    assert!(in_time, "not closed after {bytes:?}: {error}");
                    break;
                }
            }
        }
        self.plain.write_all(b"mn\r\n").expect("the server reads");
        let mut answer = [0; 4];
        self.plain.read_exact(&mut answer).expect("the server answers");
        assert_eq!(&answer, b"MN\r\n");
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}
