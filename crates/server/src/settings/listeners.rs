//! Where clients come in: ports, addresses, and what is spoken there.

use super::{Protocol, Settings, UsageError, table};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// A port of `-p` or `-U`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Not listened on (0).
    Off,
    /// Whichever the system gives (-1).
    Any,
    /// This one.
    At(u16),
}

impl Port {
    /// What a socket is bound to; `None` when the port is off.
    pub fn number(self) -> Option<u16> {
        match self {
            Self::Off => None,
            Self::Any => Some(0),
            Self::At(port) => Some(port),
        }
    }

    /// Reads what stands behind `-p` or `-U`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        use super::size::leading_number;
        // Anything else is told as what a port can be.
        if leading_number(text, -1..=-1, "a port") == Ok(-1) {
            return Ok(Self::Any);
        }
        match leading_number(text, 0..=65535u16, "a port")? {
            0 => Ok(Self::Off),
            port => Ok(Self::At(port)),
        }
    }
}

/// One address of `-l`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Host name or address, without brackets.
    pub host: String,
    /// Its own port; otherwise that of `-p`, and of `-U` for UDP.
    pub port: Option<u16>,
    /// How its connections are encrypted, where that differs from the other listeners
    /// (`notls:`, `btls:`, `mtls:`).
    pub tls: Option<ListenTls>,
    /// What its connections speak, where that differs (`proto[NAME]:`).
    pub protocol: Option<Protocol>,
}

/// How the connections of one listener are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenTls {
    /// Not at all.
    Off,
    /// Without client certificates.
    Basic,
    /// Clients may show certificates, which are checked then.
    Asked,
    /// With client certificates that the CA of `ssl_ca_cert` vouches for.
    Mutual,
}

/// TLS (`-Z` and the `ssl_` options).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Listeners speak TLS unless told otherwise.
    pub enabled: bool,
    /// The file with the certificate and those that vouch for it (`ssl_chain_cert`).
    pub chain: Option<PathBuf>,
    /// The file with the key (`ssl_key`).
    pub key: Option<PathBuf>,
    /// Both files are DER, not PEM (`ssl_keyformat`).
    pub is_der: bool,
    /// Whether clients show certificates (`ssl_verify_mode`).
    pub verify: Verify,
    /// The file with the CAs that vouch for clients (`ssl_ca_cert`).
    pub ca: Option<PathBuf>,
    /// Names of cipher suites, in OpenSSL's or the standard's spelling, separated by colons;
    /// everything safe if not given (`ssl_ciphers`).
    pub ciphers: Option<String>,
    /// Clients may resume sessions (`ssl_session_cache`).
    pub session_cache: bool,
    /// TLS 1.2 is refused (`ssl_min_version=3`).
    pub only_tls13: bool,
}

/// Whether clients must show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// They aren't asked.
    #[default]
    None,
    /// They are asked; a certificate that is shown must be good.
    Request,
    /// They must show a good one.
    Require,
}

/// Where the admin page is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// On a TCP port.
    Tcp(SocketAddr),
    /// On a Unix socket.
    Unix(PathBuf),
}

impl AdminAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write ADDR:PORT such as 127.0.0.1:9150, or the path of a Unix socket";
        if text.contains('/') {
            return table::path(text).map(Self::Unix);
        }
        let mut addresses = text.to_socket_addrs().map_err(|_| FORM)?;
        addresses.next().map(Self::Tcp).ok_or_else(|| FORM.to_string())
    }

    /// Only programs on this machine get there.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// A socket to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address, with a port of 0 for any.
    pub address: SocketAddr,
    /// It was asked for by this address: not by a name, which may have others, and not by nothing.
    pub is_literal: bool,
    /// Datagrams instead of connections.
    pub is_udp: bool,
    /// How its connections are encrypted.
    pub tls: ListenTls,
    /// What is spoken, where that differs from the other listeners.
    pub protocol: Option<Protocol>,
}

/// All addresses, of IPv4 and of IPv6, as a host of `-l`.
const EVERYWHERE: &str = "*";

fn addresses(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    if host == EVERYWHERE {
        let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(all.map(|ip| SocketAddr::new(ip, port)).to_vec());
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

/// A name of `-l` that stands for no address.
#[derive(Debug)]
pub struct Unresolved {
    /// The name.
    pub host: String,
    /// What the system said.
    pub source: std::io::Error,
}

impl Settings {
    /// The network sockets to listen on, names resolved. Without `-l` these are all addresses of
    /// IPv4 and of IPv6 (the latter to be bound for IPv6 only).
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, Unresolved> {
        let mut endpoints = Vec::new();
        if self.unix_socket.is_some() {
            return Ok(endpoints);
        }
        let everywhere =
            [ListenAddress { host: EVERYWHERE.into(), port: None, tls: None, protocol: None }];
        let listen = if self.listen.is_empty() { &everywhere[..] } else { &self.listen };
        for listen in listen {
            for (default, is_udp) in [(self.tcp_port, false), (self.udp_port, true)] {
                let own = listen.port.map(Port::At).filter(|_| default != Port::Off || !is_udp);
                let Some(port) = own.unwrap_or(default).number() else { continue };
                let unresolved = |source| Unresolved { host: listen.host.clone(), source };
                for address in addresses(&listen.host, port).map_err(unresolved)? {
                    let endpoint = self.endpoint(listen, address, is_udp);
                    if !endpoints.contains(&endpoint) {
                        endpoints.push(endpoint);
                    }
                }
            }
        }
        Ok(endpoints)
    }

    fn endpoint(&self, listen: &ListenAddress, address: SocketAddr, is_udp: bool) -> Endpoint {
        let tls = if is_udp { ListenTls::Off } else { listen.tls.unwrap_or(self.listen_tls()) };
        let is_literal = listen.host.parse::<IpAddr>().is_ok();
        Endpoint { address, is_literal, is_udp, tls, protocol: listen.protocol }
    }

    /// What is spoken by connections of a listener that asks for `wanted`: authentication leaves no
    /// choice.
    pub fn protocol_of(&self, wanted: Option<Protocol>) -> Protocol {
        wanted.filter(|_| !self.asks_for_passwords()).unwrap_or(self.spoken_protocol())
    }

    /// How connections are encrypted where a listener doesn't say.
    pub fn listen_tls(&self) -> ListenTls {
        match (self.tls.enabled, self.tls.verify) {
            (false, _) => ListenTls::Off,
            (true, Verify::None) => ListenTls::Basic,
            (true, Verify::Request) => ListenTls::Asked,
            (true, Verify::Require) => ListenTls::Mutual,
        }
    }

    /// Whether clients of some listener must show certificates.
    pub(super) fn asks_for_certificates(&self) -> bool {
        let default = self.listen_tls();
        let mut asked = self.listen.iter().map(|listen| listen.tls.unwrap_or(default));
        match self.listen.is_empty() {
            true => default == ListenTls::Mutual,
            false => asked.any(|tls| tls == ListenTls::Mutual),
        }
    }

    /// Whether no port and no socket is listened on but those that a service manager may have opened.
    pub(super) fn listens_on_nothing(&self) -> bool {
        let has_own_port = self.listen.iter().any(|listen| listen.port.is_some());
        let ports = [self.tcp_port, self.udp_port];
        ports == [Port::Off; 2] && self.unix_socket.is_none() && !has_own_port
    }

    /// Finds settings of listeners that contradict each other.
    pub(super) fn check_listeners(&self) -> Result<(), UsageError> {
        let asks = |tls| self.listen.iter().any(|listen| listen.tls == Some(tls));
        if !self.tls.enabled && (asks(ListenTls::Basic) || asks(ListenTls::Mutual)) {
            return Err(UsageError::conflict("-l", "btls: and mtls: need TLS; write -Z too"));
        }
        if self.tls.enabled {
            self.check_tls()?;
        }
        if self.udp_port != Port::Off && self.asks_for_passwords() {
            return Err(UsageError::conflict(
                "-U",
                "datagrams carry no password; leave -U, -S or -Y out",
            ));
        }
        match &self.admin {
            Some(address) if !address.is_local() && self.admin_token_file.is_none() => {
                Err(UsageError::conflict(
                    "--admin",
                    "others than this machine need a token; write --admin-token-file FILE too, or \
                     an address such as 127.0.0.1:9150",
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_tls(&self) -> Result<(), UsageError> {
        if self.tls.chain.is_none() {
            return Err(UsageError::conflict(
                "-Z",
                "there is no certificate; write -o ssl_chain_cert=FILE",
            ));
        }
        if self.tls.key.is_none() {
            return Err(UsageError::conflict("-Z", "there is no key; write -o ssl_key=FILE"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Invocation;
    use terrace_cache::Note;

    fn settings(line: &str) -> Settings {
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        match Invocation::parse(&arguments) {
            Ok(Invocation::Serve(settings)) => *settings,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn datagrams_show_no_certificate() {
        const TLS: &str = "-Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_ca_cert=/a -U 1";
        for more in ["-o ssl_verify_mode=2", "-l mtls:127.0.0.1", "-o ssl_verify_mode=3 -l ::1"] {
            let s = settings(&format!("{TLS} {more}"));
            assert_eq!(s.udp_port, Port::Off, "{more}");
            assert!(
                s.notes.iter().any(|note| note.text().starts_with("-U: not listened on")),
                "{more}"
            );
        }
        for more in ["", "-o ssl_verify_mode=1", "-o ssl_verify_mode=2 -l notls:127.0.0.1"] {
            assert_eq!(settings(&format!("{TLS} {more}")).udp_port, Port::At(1), "{more}");
        }
    }

    #[test]
    fn certificates_that_no_authority_vouches_for_are_warned_of() {
        const TLS: &str = "-Z -o ssl_chain_cert=/c,ssl_key=/k";
        for more in ["-o ssl_verify_mode=2", "-l mtls:127.0.0.1"] {
            let note = &settings(&format!("{TLS} {more}")).notes[0];
            assert!(
                matches!(note, Note::Warning(text) if text.contains("ssl_ca_cert=FILE")),
                "{note:?}"
            );
        }
        assert!(
            settings(&format!("{TLS} -l notls:127.0.0.1 -o ssl_verify_mode=2")).notes.is_empty()
        );
    }
}
