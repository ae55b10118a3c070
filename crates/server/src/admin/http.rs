//! One request and one answer of HTTP/1.1; then the connection ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Longer requests are none of a scraper's.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 32;
/// A request must be there within this time: those that only connect keep places from others.
const REQUEST_PATIENCE: Duration = Duration::from_secs(1);
/// Its answer must be taken within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// What was asked for.
pub(super) struct Request {
    /// With what stands behind a `?`.
    pub(super) path: String,
    /// The token of `Authorization: Bearer`.
    pub(super) bearer: Option<String>,
}

/// What is answered.
pub(super) struct Response {
    status: &'static str,
    content_type: &'static str,
    more_headers: &'static str,
    body: String,
}

impl Response {
    const TEXT: &str = "text/plain; charset=utf-8";

    fn new(status: &'static str, content_type: &'static str, body: impl Into<String>) -> Self {
        Self { status, content_type, more_headers: "", body: body.into() }
    }

    pub(super) fn text(body: &str) -> Self {
        Self::new("200 OK", Self::TEXT, body)
    }

    pub(super) fn json(body: String) -> Self {
        Self::new("200 OK", "application/json", body)
    }

    pub(super) fn metrics(body: String) -> Self {
        Self::new("200 OK", "text/plain; version=0.0.4; charset=utf-8", body)
    }

    pub(super) fn not_found() -> Self {
        Self::new("404 Not Found", Self::TEXT, "no such page\n")
    }

    pub(super) fn unavailable(body: String) -> Self {
        Self::new("503 Service Unavailable", Self::TEXT, body)
    }

    pub(super) fn unauthorized() -> Self {
        let more_headers = "WWW-Authenticate: Bearer\r\n";
        Self { more_headers, ..Self::new("401 Unauthorized", Self::TEXT, "a token is needed\n") }
    }
}

/// Why a request is not answered as it wishes.
enum Refused {
    /// In words.
    With(Response),
    /// By the end of the connection.
    Silently,
}

/// Answers the request that comes from `client`.
pub(super) fn serve(client: OwnedFd, answer: impl FnOnce(&Request) -> Response) {
    let mut client = File::from(client);
    let (response, head_only) = match read(&mut client) {
        Ok((request, head_only)) => (answer(&request), head_only),
        Err(Refused::With(response)) => (response, false),
        Err(Refused::Silently) => return,
    };
    // A client that is gone needs no answer.
    let _ = write(&mut client, &response, head_only);
}

/// Reads a request; `true` if only the head of the answer is wanted.
fn read(client: &mut File) -> Result<(Request, bool), Refused> {
    let end = Instant::now() + REQUEST_PATIENCE;
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || wait(client, left, false).is_err() {
            return Err(Refused::Silently);
        }
        match client.read(&mut buffer) {
            Ok(0) | Err(_) => return Err(Refused::Silently),
            Ok(bytes) => text.extend_from_slice(&buffer[..bytes]),
        }
        if let Some(request) = parse(&text)? {
            return Ok(request);
        }
        if text.len() > REQUEST_BYTES_MAX {
            let status = "431 Request Header Fields Too Large";
            return Err(Refused::With(Response::new(status, Response::TEXT, "too long\n")));
        }
    }
}

fn wait(client: &File, left: Duration, to_write: bool) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let flags = if to_write { PollFlags::OUT } else { PollFlags::IN };
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(client, flags)], Some(&left))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

fn parse(text: &[u8]) -> Result<Option<(Request, bool)>, Refused> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(text) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => {
            let response = Response::new("400 Bad Request", Response::TEXT, "not understood\n");
            return Err(Refused::With(response));
        }
    }
    let head_only = request.method == Some("HEAD");
    if !head_only && request.method != Some("GET") {
        let response = Response::new("405 Method Not Allowed", Response::TEXT, "GET is\n");
        return Err(Refused::With(response));
    }
    let authorization =
        request.headers.iter().find(|h| h.name.eq_ignore_ascii_case("authorization"));
    let bearer = authorization
        .and_then(|header| std::str::from_utf8(header.value).ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .map(|token| token.trim().to_string());
    Ok(Some((Request { path: request.path.unwrap_or("/").to_string(), bearer }, head_only)))
}

fn write(client: &mut File, response: &Response, head_only: bool) -> io::Result<()> {
    let Response { status, content_type, more_headers, body } = response;
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         {more_headers}Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !head_only {
        text.push_str(body);
    }
    let end = Instant::now() + ANSWER_PATIENCE;
    let mut left = text.as_bytes();
    while !left.is_empty() {
        wait(client, end.saturating_duration_since(Instant::now()), true)?;
        // A socket that can be written to takes some of it and does not wait for the rest.
        match rustix::net::send(
            &*client,
            left,
            rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
        ) {
            Ok(bytes) => left = &left[bytes..],
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    client.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_scrapers_send() {
        let read = |text: &str| parse(text.as_bytes());
        let whole = "GET /metrics?x HTTP/1.1\r\nHost: h\r\nauthorization: Bearer abc \r\n\r\n";
        for end in 0..whole.len() {
            assert!(matches!(read(&whole[..end]), Ok(None)), "{end}");
        }
        let Ok(Some((request, head_only))) = read(whole) else { panic!("not understood") };
        assert_eq!((request.path.as_str(), head_only), ("/metrics?x", false));
        assert_eq!(request.bearer.as_deref(), Some("abc"));
        assert!(matches!(read("HEAD / HTTP/1.0\r\n\r\n"), Ok(Some((_, true)))));
        for wrong in ["POST / HTTP/1.1\r\n\r\n", "get k\r\n", "\u{0}\u{1}\r\n\r\n"] {
            assert!(matches!(read(wrong), Err(Refused::With(_))), "{wrong:?}");
        }
    }
}
