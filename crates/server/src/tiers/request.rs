//! One HTTP request on a connection of its own.

use crate::admin::Token;
use crate::settings::AdminAddress;
use httparse::{EMPTY_HEADER, Response, Status};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// A removal waits for background work in progress and for the drives, which write superblocks.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);
/// A longer answer is cut.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const HEADERS_MAX: usize = 64;

/// Sends a request without a body, and returns status and body of its answer. An error of
/// [`io::ErrorKind::InvalidData`] says that the answer is no HTTP.
pub(super) fn ask(
    address: &AdminAddress,
    method: &str,
    path: &str,
    token: Option<&Token>,
) -> io::Result<(u16, String)> {
    match address {
        AdminAddress::Tcp(address) => {
            let address = reachable(*address);
            let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
            stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
            stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
            exchange(stream, &request(method, path, &address.to_string(), token))
        }
        AdminAddress::Unix(socket) => {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
            stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
            exchange(stream, &request(method, path, "localhost", token))
        }
    }
}

/// A server that listens on all addresses is reached by the one of this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn request(method: &str, path: &str, host: &str, token: Option<&Token>) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n"
    );
    let mut request = head.into_bytes();
    if let Some(token) = token {
        request.extend_from_slice(b"Authorization: ");
        request.extend(token.authorization());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// The server closes the connection behind its answer.
fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<(u16, String)> {
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> io::Result<(u16, String)> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut head = Response::new(&mut headers);
    match head.parse(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
        Status::Complete(length) => {
            let body = String::from_utf8_lossy(&answer[length..]).into_owned();
            Ok((head.code.unwrap_or_default(), body))
        }
        Status::Partial => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_status_and_body() {
        let answer = b"HTTP/1.1 409 Conflict\r\ncontent-length: 4\r\n\r\nwhy\n";
        assert_eq!(parse(answer).unwrap(), (409, "why\n".to_owned()));
        let kind = |answer: &[u8]| parse(answer).unwrap_err().kind();
        assert_eq!(kind(b"ERROR\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"HTTP/1.1 200 OK\r\ncontent-"), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(b""), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn server_on_all_addresses_is_reached_on_this_machine() {
        for (listens, reached) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")]
        {
            assert_eq!(reachable(listens.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
