//! The admin page: metrics, health and status over HTTP, on a thread of its own so that neither
//! scrapes nor attacks on it hold up a worker.

mod http;
mod metrics;
mod samples;
mod status;
mod token;

pub use metrics::markdown;

use crate::say;
use crate::server::left_behind;
use crate::server::shared::Shared;
use crate::settings::{AdminAddress, Settings};
use crate::stats::view::View;
use http::{Request, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use token::Token;

/// Requests that are answered at the same time; others wait in the kernel's queue.
const REQUESTS_MAX: u32 = 8;
/// How long a client waits that can't be answered now.
const NAP: Duration = Duration::from_millis(10);
/// How often it looks whether the server stops.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The socket of the page, and who may read it.
#[derive(Debug)]
pub struct Admin {
    socket: Listening,
    token: Option<Token>,
    name: String,
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The page can't be served: one line that says why.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {source}")]
pub struct AdminError {
    flag: String,
    source: io::Error,
}

impl Admin {
    /// Listens where `settings` ask for it; `None` if they don't.
    pub fn bind(settings: &Settings) -> Result<Option<Self>, AdminError> {
        let Some(address) = &settings.admin else { return Ok(None) };
        let token = match &settings.admin_token_file {
            None => None,
            Some(file) => Some(Token::read(file).map_err(|source| {
                let flag = format!("--admin-token-file {}", file.display());
                AdminError { flag, source }
            })?),
        };
        let (socket, name) = listen(address).map_err(|source| {
            let address = match address {
                AdminAddress::Tcp(address) => address.to_string(),
                AdminAddress::Unix(path) => path.display().to_string(),
            };
            AdminError { flag: format!("--admin {address}"), source }
        })?;
        Ok(Some(Self { socket, token, name }))
    }

    /// Where it listens, as `http://ADDRESS:PORT` or a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn accept(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Listening::Tcp(socket) => socket.accept().map(|(client, _)| client.into()),
            Listening::Unix(socket) => socket.accept().map(|(client, _)| client.into()),
        }
    }

    /// Answers until the server stops.
    pub(crate) fn run(self, shared: &Arc<Shared>) {
        let page = Arc::new(self);
        let busy = Arc::new(AtomicU32::new(0));
        while !shared.is_stopping() {
            let mut fds = [PollFd::new(&*page, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&LOOK_EVERY));
            if busy.load(Ordering::Relaxed) >= REQUESTS_MAX {
                std::thread::sleep(NAP);
                continue;
            }
            let client = match page.accept() {
                Ok(client) => client,
                // Who knocked is gone.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                // Descriptors have run out, say, and the client is still there.
                Err(_) => {
                    std::thread::sleep(NAP);
                    continue;
                }
            };
            let (page, shared, ends) = (Arc::clone(&page), Arc::clone(shared), Busy::begin(&busy));
            let answer = move || {
                let _ends = ends;
                http::serve(client, |request| page.answer(request, &shared));
            };
            if let Err(error) = std::thread::Builder::new().name("admin-page".into()).spawn(answer)
            {
                say::error(format_args!("the admin page can't answer: {error}"));
            }
        }
    }

    fn answer(&self, request: &Request, shared: &Shared) -> Response {
        if let Some(token) = &self.token
            && !request.bearer.as_deref().is_some_and(|given| token.is(given))
        {
            return Response::unauthorized();
        }
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let view = || View::new(shared, shared.clock.now());
        match path {
            "/" => Response::text("/metrics\n/status\n/healthz\n/readyz\n/readyz?recovered\n"),
            "/metrics" => Response::metrics(metrics::text(&view())),
            "/status" => Response::json(status::json(&view())),
            "/healthz" => Response::text("ok\n"),
            "/readyz" => match shared.cache.recovering() {
                waiting if waiting > 0 && query == "recovered" => {
                    Response::unavailable(format!("recovering: {waiting} shards are waiting\n"))
                }
                _ => Response::text("ready\n"),
            },
            _ => Response::not_found(),
        }
    }
}

/// Counts requests that are being answered.
struct Busy(Arc<AtomicU32>);

impl Busy {
    fn begin(busy: &Arc<AtomicU32>) -> Self {
        busy.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(busy))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Admin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Listening::Tcp(socket) => socket.as_fd(),
            Listening::Unix(socket) => socket.as_fd(),
        }
    }
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
