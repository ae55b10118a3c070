//! TLS on the real binary, with certificates made for each test.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::WantsClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use terrace_e2e::{
    Client, PATIENCE, Server, free_port, is_terrace, run_as_root, skip, value_of, wait_until,
};

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server may be built without TLS");
    }
    !is_terrace()
}

/// A CA of our own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
                .expect("a CA"),
        )
    }

    /// A certificate and its key.
    fn issue(&self) -> (rcgen::Certificate, KeyPair) {
        let params = CertificateParams::new(vec!["localhost".into()]).expect("parameters");
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("a certificate"), key)
    }

    /// Puts a new certificate for a server where [`FLAGS`] look for it.
    fn install(&self, dir: &TempDir) {
        let (certificate, key) = self.issue();
        fs::write(dir.path().join("chain.pem"), certificate.pem()).expect("a file");
        let of_key = dir.path().join("key.pem");
        fs::write(&of_key, key.serialize_pem()).expect("a file");
        fs::set_permissions(&of_key, fs::Permissions::from_mode(0o600)).expect("a file");
        fs::write(dir.path().join("ca.pem"), self.0.pem()).expect("a file");
    }

    /// What a client needs that trusts this CA, with a certificate that `by` issued.
    fn client(
        &self,
        by: Option<&Authority>,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        match by {
            None => Arc::new(self.builder(version).with_no_client_auth()),
            Some(by) => {
                let (certificate, key) = by.issue();
                self.client_with((certificate.der().clone(), &key), version)
            }
        }
    }

    /// The same of a client that shows this certificate and signs with this key, be it the right one or not.
    fn client_with(
        &self,
        (certificate, key): (CertificateDer<'static>, &KeyPair),
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let builder = self.builder(version);
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let key = builder.crypto_provider().key_provider.load_private_key(key).expect("a key");
        let certified = CertifiedKey::new(vec![certificate], key);
        Arc::new(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
    }

    fn builder(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
    }
}

const FLAGS: &str = "-m 64 -t 2 -Z -o ssl_chain_cert=DIR/chain.pem,ssl_key=DIR/key.pem";

/// A server with TLS on a port of its own; the one of `address()` is left plain, for us to look in.
struct TlsServer {
    server: Server,
    address: SocketAddr,
    authority: Authority,
}

impl TlsServer {
    fn start(more: &str, prefix: &str) -> Self {
        Self::start_with(more, prefix, |_| {})
    }

    /// `prepare` may put other files in the place of those that are there.
    fn start_with(more: &str, prefix: &str, prepare: impl FnOnce(&TempDir)) -> Self {
        let authority = Authority::new();
        let dir = Arc::new(TempDir::new().expect("a directory"));
        authority.install(&dir);
        prepare(&dir);
        let (port, plain) = (free_port(), free_port());
        let flags = format!("{FLAGS} {more} -l {prefix}127.0.0.1:{port},notls:127.0.0.1:{plain}");
        let mut server = match Server::try_start(&flags, dir) {
            Ok(server) => server,
            Err(failed) => panic!("{}", failed.output),
        };
        server.use_port(plain);
        Self { server, address: ([127, 0, 0, 1], port).into(), authority }
    }

    fn connect(&self, by: Option<&Authority>) -> std::io::Result<Stream> {
        connect(self.address, self.authority.client(by, &rustls::version::TLS13))
    }
}

/// Connects and asks for a first answer, so that the handshake is through.
fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Stream> {
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(config, name).expect("a client");
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(StreamOwned::new(tls, socket));
    check(&mut stream, b"mn\r\n", b"MN\r\n")?;
    Ok(stream)
}

fn check(stream: &mut Stream, request: &[u8], reply: &[u8]) -> std::io::Result<()> {
    stream.get_mut().write_all(request)?;
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got)?;
    assert_eq!(got, reply, "{:?}", String::from_utf8_lossy(request));
    Ok(())
}

fn line(stream: &mut Stream) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a line");
    line.trim_end().to_string()
}

#[test]
fn small_and_large_values_pass_in_both_versions() {
    if others("small_and_large_values_pass_in_both_versions") {
        return;
    }
    let mut server = TlsServer::start("-I 8m -o ssl_session_cache,ssl_wbuf_size=64", "");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = server.authority.client(None, version);
        let mut stream = connect(server.address, config).expect("a connection");
        for bytes in [0, 1, 1000, 16 << 10, 100_000, 3 << 20] {
            let value = value_of("k", bytes as u64, bytes);
            let mut set = format!("set k 0 0 {bytes}\r\n").into_bytes();
            set.extend_from_slice(&value);
            check(&mut stream, &[&set[..], b"\r\n"].concat(), b"STORED\r\n").expect("stored");
            let mut reply = format!("VALUE k 0 {bytes}\r\n").into_bytes();
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\nEND\r\n");
            check(&mut stream, b"get k\r\n", &reply).expect("the value");
        }
        // Many requests at once, and their end in order.
        check(&mut stream, &b"mn\r\n".repeat(10_000), &b"MN\r\n".repeat(10_000)).expect("answers");
        stream.get_mut().write_all(b"version\r\nquit\r\n").expect("sent");
        assert!(line(&mut stream).starts_with("VERSION "));
        // An end that is told: without it rustls reports that something may have been cut off.
        assert_eq!(stream.read(&mut [0; 1]).expect("a clean end"), 0);
    }
    let client = &mut server.server.client();
    assert_eq!(client.stat("", "ssl_new_sessions"), 2);
    let settings = client.stats("settings");
    assert_eq!([&*settings["ssl_enabled"], &*settings["ssl_wbuf_size"]], ["yes", "65536"]);
    server.server.assert_alive();
}

#[test]
fn garbage_harms_nobody_else() {
    if others("garbage_harms_nobody_else") {
        return;
    }
    let mut server = TlsServer::start("", "");
    let mut good = server.connect(None).expect("a connection");
    let mut random = 7u64;
    for round in 0..200 {
        let mut bad = TcpStream::connect(server.address).expect("a connection");
        let bytes: Vec<u8> = match round % 4 {
            0 => b"get k\r\nset k 0 0 1\r\nx\r\n".to_vec(),
            // A record that announces more than may be, one that is cut off, and noise.
            1 => [&[22, 3, 1, 255, 255][..], &[0; 5000]].concat(),
            2 => vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
            _ => (0..3000)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (random >> 33) as u8
                })
                .collect(),
        };
        let _ = bad.write_all(&bytes);
        if round % 8 == 0 {
            check(&mut good, b"mn\r\n", b"MN\r\n").expect("an answer");
        }
    }
    let client = &mut server.server.client();
    // That of the good one is the other.
    server.server.wait_for_connections(client, 2);
    assert!(client.stat("", "ssl_handshake_errors") >= 100);
    assert_eq!(client.stat("", "cmd_get") + client.stat("", "cmd_set"), 0);
    server.server.assert_alive();
}

#[test]
fn clients_show_certificates_where_they_must() {
    if others("clients_show_certificates_where_they_must") {
        return;
    }
    let stranger = Authority::new();
    for (more, prefix, without, with_strange) in [
        ("-o ssl_ca_cert=DIR/ca.pem,ssl_verify_mode=2", "", false, false),
        ("-o ssl_ca_cert=DIR/ca.pem,ssl_verify_mode=1", "", true, false),
        ("-o ssl_ca_cert=DIR/ca.pem", "mtls:", false, false),
        // Where no authority vouches for any, none gets in.
        ("", "mtls:", false, false),
        ("-o ssl_verify_mode=2", "", false, false),
        ("-o ssl_ca_cert=DIR/ca.pem,ssl_verify_mode=2", "btls:", true, true),
    ] {
        let mut server = TlsServer::start(more, prefix);
        let known = Some(&server.authority);
        assert_eq!(server.connect(known).is_ok(), more.contains("ssl_ca_cert"), "{more} {prefix}");
        assert_eq!(server.connect(None).is_ok(), without, "{more} {prefix}");
        assert_eq!(server.connect(Some(&stranger)).is_ok(), with_strange, "{more} {prefix}");
        if !with_strange {
            server.server.output_with("TLS certificate refused: ");
        }
        server.server.assert_alive();
    }
}

/// A certificate as `openssl req -x509` makes it, marked as an authority's; valid until that year.
fn of_its_own(until: i32) -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().expect("a key");
    (params.self_signed(&key).expect("a certificate"), key)
}

#[test]
fn self_signed_client_certificate_is_its_own_authority() {
    if others("self_signed_client_certificate_is_its_own_authority") {
        return;
    }
    let [known, expired, stranger] = [4000, 2002, 4000].map(of_its_own);
    let mut server =
        TlsServer::start_with("-o ssl_ca_cert=DIR/ca.pem,ssl_verify_mode=2", "", |dir| {
            let authorities = [known.0.pem(), expired.0.pem()].concat();
            fs::write(dir.path().join("ca.pem"), authorities).expect("a file");
        });
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (shown, key, is_let_in) in [
            (&known.0, &known.1, true),
            (&expired.0, &expired.1, false),
            (&stranger.0, &stranger.1, false),
            // Without its key, a certificate that anybody may have seen.
            (&known.0, &stranger.1, false),
        ] {
            let config = server.authority.client_with((shown.der().clone(), key), version);
            assert_eq!(connect(server.address, config).is_ok(), is_let_in);
        }
    }
    server.server.output_with("TLS certificate refused: it has expired");
    server.server.assert_alive();
}

#[test]
fn tls_1_2_can_be_refused() {
    if others("tls_1_2_can_be_refused") {
        return;
    }
    let mut server = TlsServer::start("-o ssl_min_version=3", "");
    let old = server.authority.client(None, &rustls::version::TLS12);
    assert!(connect(server.address, old).is_err());
    assert!(server.connect(None).is_ok());
    // Sessions that no client can resume are not counted.
    assert_eq!(server.server.client().stat("", "ssl_new_sessions"), 0);
    server.server.assert_alive();
}

#[test]
fn a_new_certificate_is_taken_and_a_bad_one_is_not() {
    if others("a_new_certificate_is_taken_and_a_bad_one_is_not") {
        return;
    }
    let mut server = TlsServer::start("", "");
    let mut early = server.connect(None).expect("a connection");
    let dir = Arc::clone(&server.server.dir);
    let client = &mut server.server.client();
    let next = Authority::new();
    let trusts_next = || next.client(None, &rustls::version::TLS13);
    assert!(connect(server.address, trusts_next()).is_err());

    // Key and certificate that do not belong together, no file, no certificate: the old ones stay.
    let chain = dir.path().join("chain.pem");
    let old = fs::read(&chain).expect("the old one");
    for bad in [Some(next.issue().0.pem()), Some("nonsense".into()), None] {
        match bad {
            Some(text) => fs::write(&chain, text).expect("a file"),
            None => fs::remove_file(&chain).expect("a file"),
        }
        let said = client.ask("refresh_certs");
        assert!(said.starts_with("Error -o ssl_"), "{said}");
        assert!(server.connect(None).is_ok(), "{said}");
    }
    fs::write(&chain, old).expect("a file");
    client.check("refresh_certs\r\n", "OK\r\n");

    let begun = Instant::now();
    // OpenSSL does not mind a key under the label of another form.
    next.install(&dir);
    let key = dir.path().join("key.pem");
    let text = fs::read_to_string(&key).expect("a key");
    fs::write(&key, text.replace("PRIVATE KEY", "RSA PRIVATE KEY")).expect("a file");
    client.check("refresh_certs\r\n", "OK\r\n");
    assert!(connect(server.address, trusts_next()).is_ok());
    assert!(server.connect(None).is_err(), "the old certificate is still shown");
    check(&mut early, b"mn\r\n", b"MN\r\n").expect("the old connection goes on");
    let since = client.stat("", "time_since_server_cert_refresh");
    assert!(since <= begun.elapsed().as_secs() + 1, "{since}");

    // SIGHUP does the same.
    server.authority.install(&dir);
    let pid = rustix::process::Pid::from_raw(server.server.pid() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("a signal");
    wait_until("the certificate before", || server.connect(None).ok());
    server.server.assert_alive();
}

#[test]
fn files_that_can_not_be_used_are_named() {
    if others("files_that_can_not_be_used_are_named") {
        return;
    }
    let failed = Server::run("-m 64 -Z -o ssl_chain_cert=/nowhere.pem,ssl_key=/nowhere.key");
    assert_eq!(failed.code, Some(71), "{}", failed.output);
    assert!(failed.output.contains("-o ssl_chain_cert=/nowhere.pem: "), "{}", failed.output);
}

/// What `openssl` makes; `None` where there is none.
fn openssl(dir: &std::path::Path, words: &str) -> Option<()> {
    let mut command = std::process::Command::new("openssl");
    let output = command.args(words.split(' ')).current_dir(dir).output().ok()?;
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

#[test]
fn certificates_of_version_1_and_self_signed_ones_are_served() {
    let test = "certificates_of_version_1_and_self_signed_ones_are_served";
    if others(test) {
        return;
    }
    let dir = Arc::new(TempDir::new().expect("a temporary directory"));
    let run = |words: &str| openssl(dir.path(), words);
    if run("req -x509 -newkey rsa:2048 -nodes -keyout key -out ca -subj /CN=localhost").is_none() {
        return skip(test, "no openssl");
    }
    run("req -new -key key -out request -subj /CN=localhost");
    run("x509 -req -in request -signkey key -out v1 -days 30");
    run("x509 -in ca -trustout -addtrust serverAuth -out trusted");
    let marked = [b"\xEF\xBB\xBF", &fs::read(dir.path().join("ca")).expect("a file")[..]].concat();
    fs::write(dir.path().join("marked"), marked).expect("a file");
    for chain in ["ca", "v1", "trusted", "marked"] {
        let flags = format!("-m 64 -Z -o ssl_chain_cert=DIR/{chain},ssl_key=DIR/key");
        let server = Server::try_start(&flags, Arc::clone(&dir));
        let server = server.unwrap_or_else(|failed| panic!("{chain}: {}", failed.output));
        let connect = format!("{} -verify_quiet", server.address());
        let mut client = std::process::Command::new("openssl");
        client.args(["s_client", "-quiet", "-no_ign_eof", "-connect"]).args(connect.split(' '));
        client.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut client = client.stderr(std::process::Stdio::null()).spawn().expect("openssl");
        let mut stdin = client.stdin.take().expect("a pipe");
        // In this order: an `s_client` ends with its input.
        stdin.write_all(b"version\r\nquit\r\n").expect("sent");
        let mut told = String::new();
        client.stdout.take().expect("a pipe").read_to_string(&mut told).expect("an answer");
        drop(stdin);
        client.wait().expect("it ends");
        assert!(told.starts_with("VERSION "), "{chain}: {told}");
    }
    // What can't be served is named.
    run("req -x509 -newkey rsa:5120 -nodes -keyout rsa -out rsa.pem -subj /CN=localhost");
    run("ecparam -name secp521r1 -genkey -noout -out p521");
    run("req -x509 -new -key p521 -out p521.pem -subj /CN=localhost");
    for (key, chain, says) in [
        ("rsa", "rsa.pem", "an RSA key of 5120 bits can't be used; RSA of 2,048 to 4,096 bits"),
        ("p521", "p521.pem", "an ECDSA key on P-521 can't be used; RSA of 2,048"),
        ("key", "p521.pem", "it is not the key of the certificate"),
    ] {
        let flags = format!("-m 64 -Z -o ssl_chain_cert=DIR/{chain},ssl_key=DIR/{key}");
        let failed = Server::try_start(&flags, Arc::clone(&dir)).err().expect("it can't be served");
        assert!(failed.output.contains(says), "{}", failed.output);
    }
}

#[test]
fn a_key_that_only_root_can_read_is_read_before_root_is_given_up() {
    let test = "a_key_that_only_root_can_read_is_read_before_root_is_given_up";
    if others(test) {
        return;
    }
    if !run_as_root() {
        return skip(test, "this is not root");
    }
    let mut server = TlsServer::start("-u nobody", "");
    let mut open = server.connect(None).expect("a connection");
    // Who is root no longer can't read it again, and keeps what it has.
    let said = server.server.client().ask("refresh_certs");
    assert!(said.starts_with("Error -o ssl_") && said.contains("ermission denied"), "{said}");
    assert!(server.connect(None).is_ok());
    check(&mut open, b"mn\r\n", b"MN\r\n").expect("an answer");
    server.server.assert_alive();
}

#[test]
fn a_handshake_that_stalls_holds_up_nobody() {
    if others("a_handshake_that_stalls_holds_up_nobody") {
        return;
    }
    let mut server = TlsServer::start("-o idle_timeout=2", "");
    let stalled: Vec<_> = (0..100)
        .map(|_| {
            let mut socket = TcpStream::connect(server.address).expect("a connection");
            socket.write_all(&[22, 3, 1, 1, 0, 1]).expect("sent");
            socket
        })
        .collect();
    let mut good = server.connect(None).expect("a connection");
    check(&mut good, b"mn\r\n", b"MN\r\n").expect("an answer");
    for mut socket in stalled {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0, "a stalled handshake got an answer");
    }
    let mut plain: Client = server.server.client();
    assert!(plain.stat("", "idle_kicks") >= 100);
    server.server.assert_alive();
}
