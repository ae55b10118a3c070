//! The admin page: a live page, metrics, health and status over HTTP, on a thread of its own so that neither
//! scrapes nor attacks on it hold up a worker.

mod access;
mod document;
mod feed;
mod host;
mod http;
mod metrics;
mod plain;
mod recent;
mod samples;
mod session;
mod status;
mod stream;
mod tiers;
mod token;

pub use metrics::markdown;
pub(crate) use plain::PlainAdmin;
pub(crate) use samples::{Kind, Samples};
pub(crate) use token::Token;

use crate::server::left_behind;
use crate::server::shared::Shared;
use crate::settings::{AdminAddress, Settings};
use crate::stats::view::View;
use access::{Access, Refused};
use document::Document;
use feed::Feed;
use http::{Body, Listening, Pages, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    LOCATION, REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use socket2::SockRef;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tiers::Change;
use tokio::time::{sleep, timeout};

/// Connections at a time, where the limit of open files allows as many.
pub const CONNECTIONS_MAX: u32 = 2000;
/// The path and all headers of a request together.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// How often a wrong token asks whether it may be answered.
const THROTTLE_CHECK: Duration = Duration::from_millis(10);

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const HTML: &str = "text/html; charset=utf-8";
/// Readers of the stream at a time, where there are twice as many connections.
const READERS_MAX: usize = 32;
/// What the system keeps of an answer that is not taken.
const SEND_BUFFER_BYTES: usize = 32 << 10;
/// The form to sign in, at most.
const FORM_BYTES_MAX: usize = 4 << 10;
/// It must be there within this time behind its headers.
const FORM_PATIENCE: Duration = Duration::from_secs(5);

/// The socket of the page, and who may read it.
#[derive(Debug)]
pub struct Admin {
    socket: Listening,
    access: Access,
    name: String,
    connections_max: u32,
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
            (Some(file), _) => Access::token(Token::read(file).map_err(|source| {
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
        let readers_max = READERS_MAX.min(self.connections_max as usize / 2);
        let page = Page {
            document: Document::new(self.access.has_login()),
            access: self.access,
            feed: Feed::new(shared, readers_max),
            shared: Arc::clone(shared),
        };
        if let Err(error) = http::serve(self.socket, self.connections_max as usize, page) {
            shared.fail(format!("--admin {}: {error}", self.name));
        }
    }
}

struct Page {
    access: Access,
    document: Document,
    feed: Rc<Feed>,
    shared: Arc<Shared>,
}

impl Pages for Page {
    async fn answer(&self, request: Request) -> Response {
        let (request, body) = request.into_parts();
        if is_too_long(&request) {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return response(status, TEXT, "a request has at most 4 KiB\n");
        }
        let is_form = self.access.has_login()
            && matches!(request.uri.path(), document::SIGN_IN | document::SIGN_OUT);
        if let Some(change) = Change::of(&request) {
            return match request.method {
                Method::POST => self.change(&request, change).await,
                _ => not_allowed("POST is\n", "POST"),
            };
        }
        match request.method {
            Method::POST if is_form => self.form(&request, body).await,
            _ if is_form => not_allowed("POST is\n", "POST"),
            Method::GET | Method::HEAD => self.read(&request).await,
            _ => not_allowed("GET and HEAD are\n", "GET, HEAD"),
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }
}

impl Page {
    async fn read(&self, request: &Parts) -> Response {
        match self.access.check(request) {
            Ok(()) => self.page(request).await,
            Err(Refused::Host(status)) => {
                response(status, TEXT, "Host is another than this one; see --admin-host\n")
            }
            // A person signs in.
            Err(Refused::Unknown) if request.uri.path() == "/" && accepts_html(request) => {
                self.document.sign_in(StatusCode::UNAUTHORIZED, None)
            }
            Err(Refused::Unknown | Refused::Wrong) => {
                self.may_answer_failure().await;
                let refusal = response(StatusCode::UNAUTHORIZED, TEXT, "a token is needed\n");
                with(refusal, WWW_AUTHENTICATE, "Bearer")
            }
        }
    }

    /// Waits until another wrong token may be answered.
    async fn may_answer_failure(&self) {
        while !self.shared.failures.may_answer(Instant::now()) {
            sleep(THROTTLE_CHECK).await;
        }
    }

    /// Signs in or out: the only requests that are not reads.
    async fn form(&self, request: &Parts, body: hyper::body::Incoming) -> Response {
        if !access::is_of_own_page(request) {
            let text = "the form is another server's; a proxy must pass Host on as it came\n";
            return response(StatusCode::FORBIDDEN, TEXT, text);
        }
        if request.uri.path() == document::SIGN_OUT {
            return see_page(self.access.sign_out(request));
        }
        let body = timeout(FORM_PATIENCE, Limited::new(body, FORM_BYTES_MAX).collect()).await;
        let Ok(Ok(body)) = body else {
            return response(StatusCode::BAD_REQUEST, TEXT, "the form did not come whole\n");
        };
        let token = document::token_of(&body.to_bytes());
        match self.access.sign_in(token.as_bytes()) {
            Some(cookie) => see_page(Some(cookie)),
            None => {
                self.may_answer_failure().await;
                self.document.sign_in(StatusCode::UNAUTHORIZED, Some(document::WRONG_TOKEN))
            }
        }
    }

    /// Changes the set of tiers.
    async fn change(&self, request: &Parts, change: Change) -> Response {
        match self.access.check_change(request) {
            Ok(()) => {}
            Err(Refused::Host(status)) => {
                return response(status, TEXT, "changes need a token; see --admin-token-file\n");
            }
            Err(Refused::Unknown | Refused::Wrong) => {
                self.may_answer_failure().await;
                let refusal = response(StatusCode::UNAUTHORIZED, TEXT, "a token is needed\n");
                return with(refusal, WWW_AUTHENTICATE, "Bearer");
            }
        }
        let shared = Arc::clone(&self.shared);
        // A removal writes superblocks.
        match tokio::task::spawn_blocking(move || change.make(&shared)).await {
            Ok(Ok(())) => self.view(JSON, tiers::json).await,
            Ok(Err((status, why))) => response(status, TEXT, why),
            Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the change failed\n"),
        }
    }

    async fn page(&self, request: &Parts) -> Response {
        let ok = |content_type, text: &'static str| response(StatusCode::OK, content_type, text);
        match request.uri.path() {
            "/" => self.document.page(),
            "/events" => self.events(request),
            "/metrics" => self.view(METRICS, metrics::text).await,
            "/status" => self.view(JSON, status::json).await,
            "/tiers" => self.view(JSON, tiers::json).await,
            "/healthz" => ok(TEXT, "ok\n"),
            "/readyz" => match self.shared.cache.recovering() {
                waiting if waiting > 0 && request.uri.query() == Some("recovered") => {
                    let text = format!("recovering: {waiting} shards are waiting\n");
                    response(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
                }
                _ => ok(TEXT, "ready\n"),
            },
            _ => response(StatusCode::NOT_FOUND, TEXT, "no such page\n"),
        }
    }

    /// The stream of figures.
    fn events(&self, request: &Parts) -> Response {
        // Another site's page can't read them, but could take the places of those that can.
        let site = request.headers.get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin" && site != "none") {
            return response(StatusCode::FORBIDDEN, TEXT, "the page is another server's\n");
        }
        let is_head = request.method == Method::HEAD;
        if self.feed.is_full() {
            let text = "as many read this stream as may\n";
            return response(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
        }
        match is_head {
            true => response(StatusCode::OK, EVENTS, ""),
            false => answer(StatusCode::OK, EVENTS, Body::Stream(self.feed.read())),
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

fn is_too_long(request: &Parts) -> bool {
    let headers = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    let path = request.uri.path_and_query().map_or(0, |path| path.as_str().len());
    path + headers.sum::<usize>() > HEADER_BYTES_MAX
}

fn accepts_html(request: &Parts) -> bool {
    let accept = request.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|types| types.contains("text/html"))
}

fn not_allowed(text: &'static str, methods: &'static str) -> Response {
    with(response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text), ALLOW, methods)
}

/// Sends a browser to the page, with a cookie to keep or to remove.
fn see_page(cookie: Option<String>) -> Response {
    let mut response = with(response(StatusCode::SEE_OTHER, TEXT, ""), LOCATION, ".");
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok()) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    answer(status, content_type, Body::Whole(Full::new(body.into())))
}

fn answer(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let response = with(response, CONTENT_TYPE, content_type);
    let response = with(response, X_CONTENT_TYPE_OPTIONS, "nosniff");
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
            // Connections inherit it. What waits for a reader of the stream is bounded by it.
            SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER_BYTES)?;
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
