//! Resident memory under connections that take much of it: never more than the line of the start says, and given
//! back within ten seconds. `TERRACE_E2E_CONNECTIONS` is the part of the full sizes (10,000 idle connections, 1,000
//! clients of a kind, 300 with TLS), in percent.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{Server, fill, free_port, is_terrace, skip, value_of};

const MIB: u64 = 1 << 20;
const CACHE: u64 = 64 * MIB;
const BESIDES: u64 = 32 * MIB;
const BACK_WITHIN: Duration = Duration::from_secs(10);
/// Most clients' sockets are full within this.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);
/// How long a load is held once it stands.
const HELD_FOR: Duration = Duration::from_secs(3);

/// So many of what there are `full` of in the full sizes.
fn part_of(full: usize) -> usize {
    let percent = std::env::var("TERRACE_E2E_CONNECTIONS").ok().and_then(|n| n.parse().ok());
    full * percent.unwrap_or(20) / 100
}

/// A server at `-m 64` whose cache is full, with a plain and an encrypted port.
struct Subject {
    server: Server,
    encrypted: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Subject {
    fn start(more: &str) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, all).expect("the hard limit is allowed");
        let dir = Arc::new(TempDir::new().expect("a directory"));
        let tls = certificate(&dir);
        let (port, plain) = (free_port(), free_port());
        let flags = format!(
            "-m 64 -t 4 -c 16000 -Z -o ssl_chain_cert=DIR/chain.pem,ssl_key=DIR/key.pem {more} \
             -l 127.0.0.1:{port},notls:127.0.0.1:{plain}"
        );
        let mut server = match Server::try_start(&flags, dir) {
            Ok(server) => server,
            Err(failed) => panic!("{}", failed.output),
        };
        server.use_port(plain);
        fill(&mut server.client(), "k", 60_000, 1000);
        assert!(server.client().set("big", &value_of("big", 0, 1_000_000)));
        assert!(server.client().set("long", &value_of("long", 0, 30_000)));
        Self { server, encrypted: ([127, 0, 0, 1], port).into(), tls }
    }

    /// Connects `count` clients that each send this.
    fn connect(&self, count: usize, request: &[u8]) -> Vec<Box<dyn Send>> {
        let connect = |_| {
            let mut stream = connect(self.server.address());
            send(&mut stream, request);
            Box::new(stream) as Box<dyn Send>
        };
        (0..count).map(connect).collect()
    }

    /// The same over TLS.
    fn connect_encrypted(&self, count: usize, request: &[u8]) -> Vec<Box<dyn Send>> {
        let connect = |_| {
            let name = ServerName::try_from("localhost").expect("a name");
            let tls = ClientConnection::new(Arc::clone(&self.tls), name).expect("a client");
            let socket = connect(self.encrypted);
            let mut stream = StreamOwned::new(tls, socket);
            stream.write_all(b"mn\r\n").expect("sent");
            stream.read_exact(&mut [0; 4]).expect("an answer");
            stream.sock.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            let _ = stream.write_all(request);
            Box::new(stream) as Box<dyn Send>
        };
        (0..count).map(connect).collect()
    }

    /// Has `load` make connections, holds them, lets them go, and sees how much memory that takes. One client that
    /// behaves is answered all the time.
    fn measure(mut self, what: &str, load: impl FnOnce(&Self) -> Vec<Box<dyn Send>>) {
        let good = &mut self.server.client();
        let limit = good.stats("tiers").get("memory_connections_limit").map(|n| n.parse::<u64>());
        let most = CACHE + limit.map_or(Ok(CACHE), |n| n).expect("a number") + BESIDES;
        let before = self.server.resident_bytes();
        let value = value_of("good", 0, 1000);
        let (ends, server) = (AtomicBool::new(false), &self.server);
        let (peak, slowest) = std::thread::scope(|scope| {
            let peak = scope.spawn(|| {
                let mut peak = 0;
                while !ends.load(Ordering::Relaxed) {
                    peak = peak.max(server.resident_bytes());
                    std::thread::sleep(Duration::from_millis(5));
                }
                peak
            });
            let held = load(&self);
            let mut sent = 0;
            let settles = Instant::now() + SETTLES_WITHIN;
            while good.stat("", "bytes_written") > sent + 1_000_000 && Instant::now() < settles {
                sent = good.stat("", "bytes_written");
                std::thread::sleep(Duration::from_millis(500));
            }
            let end = Instant::now() + HELD_FOR;
            let mut slowest = Duration::ZERO;
            while Instant::now() < end {
                let start = Instant::now();
                assert!(good.set("good", &value), "a short value is stored");
                assert_eq!(good.get("good").as_ref(), Some(&value));
                slowest = slowest.max(start.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            ends.store(true, Ordering::Relaxed);
            drop(held);
            (peak.join().expect("no panic"), slowest)
        });
        let start = Instant::now();
        while self.server.resident_bytes() > CACHE + BESIDES && start.elapsed() < 2 * BACK_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (took, after) = (start.elapsed(), self.server.resident_bytes());
        eprintln!(
            "{what}: {} MiB before, {} at most, {} after {took:.1?}; SET and GET of a good client {slowest:.1?} at most",
            before / MIB,
            peak / MIB,
            after / MIB,
        );
        assert!(peak <= most, "{what}: {} MiB", peak / MIB);
        assert!(took <= BACK_WITHIN, "{what}: {} MiB", after / MIB);
        self.server.assert_alive();
    }
}

/// Connects a client whose kernel takes little for it: otherwise that may take all that the server sends.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    set_socket_recv_buffer_size(&socket, 16 << 10).expect("any size may be asked for");
    rustix::net::connect(&socket, &address).expect("a connection");
    socket.into()
}

/// Sends as much as the server takes within a while.
fn send(stream: &mut TcpStream, request: &[u8]) {
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let _ = stream.write_all(request);
}

/// Puts a certificate where the server looks for it; what a client needs to trust it.
fn certificate(dir: &TempDir) -> Arc<ClientConfig> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let issuer = issuer.expect("a CA");
    let params = CertificateParams::new(vec!["localhost".into()]).expect("parameters");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    fs::write(dir.path().join("chain.pem"), certificate.pem()).expect("a file");
    let of_key = dir.path().join("key.pem");
    fs::write(&of_key, key.serialize_pem()).expect("a file");
    fs::set_permissions(&of_key, fs::Permissions::from_mode(0o600)).expect("a file");
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).expect("a CA");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(builder.expect("versions").with_root_certificates(roots).with_no_client_auth())
}

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's memory");
    }
    !is_terrace()
}

fn half_set() -> Vec<u8> {
    let mut request = b"set half 0 0 1048576\r\n".to_vec();
    request.resize(512 << 10, b'x');
    request
}

#[test]
fn idle_connections_stay_below_the_cap() {
    if others("idle_connections_stay_below_the_cap") {
        return;
    }
    Subject::start("").measure("idle", |subject| subject.connect(part_of(10_000), b""));
}

#[test]
fn half_sets_stay_below_the_cap() {
    if others("half_sets_stay_below_the_cap") {
        return;
    }
    Subject::start("")
        .measure("half a SET of 1 MiB", |subject| subject.connect(part_of(1000), &half_set()));
}

#[test]
fn clients_that_never_read_stay_below_the_cap() {
    if others("clients_that_never_read_stay_below_the_cap") {
        return;
    }
    Subject::start("").measure("never read 18 MB", |subject| {
        subject.connect(part_of(1000), "get big\r\n".repeat(18).as_bytes())
    });
}

#[test]
fn clients_that_never_read_shorter_values_stay_below_the_cap() {
    if others("clients_that_never_read_shorter_values_stay_below_the_cap") {
        return;
    }
    Subject::start("").measure("never read 18 MB of shorter values", |subject| {
        subject.connect(part_of(1000), "get long\r\n".repeat(600).as_bytes())
    });
}

#[test]
fn encrypted_connections_stay_below_the_cap() {
    if others("encrypted_connections_stay_below_the_cap") {
        return;
    }
    Subject::start("").measure("TLS", |subject| {
        let count = part_of(100);
        let mut all = subject.connect_encrypted(count, b"");
        all.extend(subject.connect_encrypted(count, "get big\r\n".repeat(18).as_bytes()));
        all.extend(subject.connect_encrypted(count, &half_set()));
        all
    });
}

#[test]
fn a_mix_of_all_stays_below_the_cap() {
    if others("a_mix_of_all_stays_below_the_cap") {
        return;
    }
    Subject::start("").measure("mixed", |subject| {
        let mut all = subject.connect(part_of(8000), b"");
        all.extend(subject.connect(part_of(500), "get long\r\n".repeat(600).as_bytes()));
        all.extend(subject.connect(part_of(500), "get big\r\n".repeat(18).as_bytes()));
        all.extend(subject.connect_encrypted(part_of(100), b""));
        all.extend(subject.connect_encrypted(part_of(100), "get big\r\n".repeat(18).as_bytes()));
        // These take the place of all records in time.
        all.extend(subject.connect(part_of(1000), &half_set()));
        all.extend(subject.connect_encrypted(part_of(100), &half_set()));
        all
    });
}

/// memcached 1.6.45 divides the limit among its threads: with 16 it answers values with errors, with 64 it closes every
/// connection.
#[test]
fn smallest_limit_serves_one_value_for_each_of_many_workers() {
    if others("smallest_limit_serves_one_value_for_each_of_many_workers") {
        return;
    }
    const WORKERS: usize = 16;
    const BYTES: usize = 900_000;
    let mut server = Server::start(&format!("-m 256 -t {WORKERS} -o read_buf_mem_limit=1"));
    // Connections go to the workers by turns.
    let mut clients: Vec<_> = (0..WORKERS).map(|_| server.client()).collect();
    let value = vec![b'x'; BYTES];
    let (head, tail) = value.split_at(BYTES / 2);
    for (at, client) in clients.iter_mut().enumerate() {
        client.send([format!("set k{at} 0 0 {BYTES}\r\n").as_bytes(), head].concat());
    }
    for client in &mut clients {
        client.send([tail, b"\r\n"].concat());
    }
    for client in &mut clients {
        assert_eq!(client.line(), "STORED");
    }
    for client in &mut clients {
        client.send("get k0 k1\r\n");
    }
    for client in &mut clients {
        for _ in 0..2 {
            assert!(client.line().ends_with(" 900000"));
            assert!(client.bytes(BYTES) == value && client.bytes(2) == b"\r\n");
        }
        assert_eq!(client.line(), "END");
    }
    server.assert_alive();
}
