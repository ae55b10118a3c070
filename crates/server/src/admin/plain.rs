//! Metrics and health alone, for a program of this binary that is no server.

use super::access::{Access, Refused};
use super::http::{self, Listening, Pages, Request, Response};
use super::{METRICS, TEXT, is_too_long, listen, not_allowed, response, with};
use crate::admin::Token;
use crate::settings::AdminAddress;
use hyper::header::WWW_AUTHENTICATE;
use hyper::{Method, StatusCode};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// How long a wrong token waits for its answer.
const WRONG_TOKEN_WAIT: Duration = Duration::from_millis(50);

/// The socket of such a page, and which clients may read it.
pub(crate) struct PlainAdmin {
    socket: Listening,
    access: Access,
    name: String,
}

struct PlainPages<M, S> {
    access: Access,
    metrics: M,
    is_stopping: S,
}

impl PlainAdmin {
    /// Listens at `address`. The error says what to do.
    pub(crate) fn bind(address: &AdminAddress, token_file: Option<&Path>) -> Result<Self, String> {
        let access = match (token_file, address) {
            (Some(file), _) => Access::token(
                Token::read(file)
                    .map_err(|error| format!("--admin-token-file {}: {error}", file.display()))?,
            ),
            (None, AdminAddress::Unix(_)) => Access::Socket,
            (None, _) if !address.is_local() => {
                return Err("--admin: others than this machine need a token; write \
                            --admin-token-file FILE too, or an address such as 127.0.0.1:9151"
                    .into());
            }
            (None, AdminAddress::Tcp(_)) => Access::Hosts(Vec::new()),
        };
        let (socket, name) = listen(address).map_err(|error| {
            format!("--admin: {error}; write another address, or stop the program that has it")
        })?;
        Ok(Self { socket, access, name })
    }

    /// Where it listens.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Answers on the calling thread until `is_stopping`; `metrics` writes those.
    pub(crate) fn run(
        self,
        metrics: impl Fn() -> String + 'static,
        is_stopping: impl Fn() -> bool + 'static,
    ) -> io::Result<()> {
        let pages = PlainPages { access: self.access, metrics, is_stopping };
        http::serve(self.socket, CONNECTIONS_MAX, pages)
    }
}

impl<M: Fn() -> String, S: Fn() -> bool> Pages for PlainPages<M, S> {
    async fn answer(&self, request: Request) -> Response {
        let (request, _) = request.into_parts();
        if is_too_long(&request) {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return response(status, TEXT, "a request has at most 4 KiB\n");
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return not_allowed("GET and HEAD are\n", "GET, HEAD");
        }
        match self.access.check(&request) {
            Ok(()) => {}
            Err(Refused::Host(status)) => {
                let text = "Host is another than this one; ask by the address\n";
                return response(status, TEXT, text);
            }
            Err(Refused::Unknown | Refused::Wrong) => {
                sleep(WRONG_TOKEN_WAIT).await;
                let refusal = response(StatusCode::UNAUTHORIZED, TEXT, "a token is needed\n");
                return with(refusal, WWW_AUTHENTICATE, "Bearer");
            }
        }
        match request.uri.path() {
            "/metrics" => response(StatusCode::OK, METRICS, (self.metrics)()),
            "/healthz" => response(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => response(StatusCode::OK, TEXT, "ready\n"),
            _ => response(StatusCode::NOT_FOUND, TEXT, "no such page; there is /metrics\n"),
        }
    }

    fn is_stopping(&self) -> bool {
        (self.is_stopping)()
    }
}
