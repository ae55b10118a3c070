//! The admin page: metrics, health and status over HTTP, on a thread of its own so that neither
//! scrapes nor attacks on it hold up a worker.

mod host;
mod http;
mod metrics;
mod samples;
mod status;
mod token;

pub use metrics::markdown;

use crate::server::left_behind;
use crate::server::shared::Shared;
use crate::settings::{AdminAddress, Settings};
use crate::stats::view::View;
use http::{Listening, Pages, Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use token::Token;
use tokio::time::sleep;

/// Connections at a time, where the limit of open files allows as many.
pub const CONNECTIONS_MAX: u32 = 2000;
/// The path and all headers of a request together.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// How often a wrong token asks whether it may be answered.
const THROTTLE_CHECK: Duration = Duration::from_millis(10);

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

/// The socket of the page, and who may read it.
#[derive(Debug)]
pub struct Admin {
    socket: Listening,
    access: Access,
    name: String,
    connections_max: u32,
}

/// Which clients may read the page.
#[derive(Debug)]
enum Access {
    /// Those that may open the Unix socket.
    Socket,
    /// Programs of this machine, which name it by an address, a loopback name or one of these.
    Hosts(Vec<String>),
    /// Those that send the token.
    Token(Token),
}

/// The page can't be served: one line that says why.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {source}")]
pub struct AdminError {
    flag: String,
    source: io::Error,
}

impl Admin {
    /// Listens where `settings` ask for it, for at most `connections_max` connections at a time; `None` if they
    /// don't.
    pub fn bind(settings: &Settings, connections_max: u32) -> Result<Option<Self>, AdminError> {
        let Some(address) = &settings.admin else { return Ok(None) };
        let access = match (&settings.admin_token_file, address) {
            (Some(file), _) => Access::Token(Token::read(file).map_err(|source| {
                let flag = format!("--admin-token-file {}", file.display());
                AdminError { flag, source }
            })?),
            (None, AdminAddress::Unix(_)) => Access::Socket,
            (None, AdminAddress::Tcp(_)) => Access::Hosts(settings.admin_hosts.clone()),
        };
        let (socket, name) = listen(address).map_err(|source| {
            let address = match address {
                AdminAddress::Tcp(address) => address.to_string(),
                AdminAddress::Unix(path) => path.display().to_string(),
            };
            AdminError { flag: format!("--admin {address}"), source }
        })?;
        Ok(Some(Self { socket, access, name, connections_max }))
    }

    /// Where it listens, as `http://ADDRESS:PORT` or a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Answers until the server stops.
    pub(crate) fn run(self, shared: &Arc<Shared>) {
        let page = Page { access: self.access, shared: Arc::clone(shared) };
        if let Err(error) = http::serve(self.socket, self.connections_max as usize, page) {
            shared.fail(format!("--admin {}: {error}", self.name));
        }
    }
}

struct Page {
    access: Access,
    shared: Arc<Shared>,
}

impl Pages for Page {
    async fn answer(&self, request: Request) -> Response {
        let (request, _body) = request.into_parts();
        match self.refusal(&request) {
            None => self.page(request.uri.path(), request.uri.query()).await,
            Some(refusal) => {
                let is_failure = refusal.status() == StatusCode::UNAUTHORIZED;
                while is_failure && !self.shared.failures.may_answer(Instant::now()) {
                    sleep(THROTTLE_CHECK).await;
                }
                refusal
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }
}

impl Page {
    /// The answer to a request that is not for a page, or whose client may not read it.
    fn refusal(&self, request: &Parts) -> Option<Response> {
        let headers = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        let path = request.uri.path_and_query().map_or(0, |path| path.as_str().len());
        if path + headers.sum::<usize>() > HEADER_BYTES_MAX {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Some(response(status, TEXT, "a request has at most 4 KiB\n"));
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET and HEAD are\n");
            return Some(with(refusal, ALLOW, "GET, HEAD"));
        }
        match &self.access {
            Access::Socket => None,
            Access::Hosts(names) => host::check(request, names).err().map(|status| {
                let text = "Host is another than this one; see --admin-host\n";
                response(status, TEXT, text)
            }),
            // Kubernetes' probes and load balancers have no token, and learn nothing else.
            Access::Token(_) if matches!(request.uri.path(), "/healthz" | "/readyz") => None,
            Access::Token(token) if bearer(request).is_some_and(|given| token.is(given)) => None,
            Access::Token(_) => {
                let refusal = response(StatusCode::UNAUTHORIZED, TEXT, "a token is needed\n");
                Some(with(refusal, WWW_AUTHENTICATE, "Bearer"))
            }
        }
    }

    async fn page(&self, path: &str, query: Option<&str>) -> Response {
        let ok = |content_type, text: &'static str| response(StatusCode::OK, content_type, text);
        match path {
            "/" => ok(TEXT, "/metrics\n/status\n/healthz\n/readyz\n/readyz?recovered\n"),
            "/metrics" => self.view(METRICS, metrics::text).await,
            "/status" => self.view(JSON, status::json).await,
            "/healthz" => ok(TEXT, "ok\n"),
            "/readyz" => match self.shared.cache.recovering() {
                waiting if waiting > 0 && query == Some("recovered") => {
                    let text = format!("recovering: {waiting} shards are waiting\n");
                    response(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
                }
                _ => ok(TEXT, "ready\n"),
            },
            _ => response(StatusCode::NOT_FOUND, TEXT, "no such page\n"),
        }
    }

    /// What the server counts, written by `write` on the thread for pages that take longer.
    async fn view(&self, content_type: &'static str, write: fn(&View<'_>) -> String) -> Response {
        let shared = Arc::clone(&self.shared);
        let text = move || write(&View::new(&shared, shared.clock.now()));
        match tokio::task::spawn_blocking(text).await {
            Ok(text) => response(StatusCode::OK, content_type, text),
            Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the page failed\n"),
        }
    }
}

/// The token of `Authorization: Bearer`.
fn bearer(request: &Parts) -> Option<&[u8]> {
    let value = request.headers.get(AUTHORIZATION)?.as_bytes();
    value.strip_prefix(b"Bearer ").map(<[u8]>::trim_ascii)
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let response = with(response, CONTENT_TYPE, content_type);
    with(response, CACHE_CONTROL, "no-store")
}

fn with(mut response: Response, name: HeaderName, value: &'static str) -> Response {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

fn listen(address: &AdminAddress) -> io::Result<(Listening, String)> {
    match address {
        AdminAddress::Tcp(address) => {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let name = format!("http://{}", socket.local_addr()?);
            Ok((Listening::Tcp(socket), name))
        }
        AdminAddress::Unix(path) => {
            left_behind::remove(path)?;
            let socket = UnixListener::bind(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
            socket.set_nonblocking(true)?;
            Ok((Listening::Unix(socket), path.display().to_string()))
        }
    }
}
