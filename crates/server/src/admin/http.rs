//! HTTP of the admin page: hyper on a thread of its own, a bounded number of connections, each with one request.
//!
//! A connection goes through two phases, and each of them ends in time:
//!
//! 1. Its request is awaited for [`REQUEST_PATIENCE`]. While all places are taken, the connection that has waited
//!    longest in this phase is closed for a new one.
//! 2. The answer is written for [`ANSWER_PATIENCE`] at least, and twice as long at most. A [`Stream`] has no such end;
//!    it is closed within [`STREAM_CHECK`] and [`ANSWER_PATIENCE`] after its source gave it up.

use super::stream::{GivenUp, Stream};
use http_body_util::Full;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

/// A whole request must be there within this time.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// An answer must be taken within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request that are read before its end must be there; the least that hyper allows. The page itself
/// refuses headers above [`super::HEADER_BYTES_MAX`].
const BUFFER_BYTES: usize = 8 << 10;
/// How often a stream is checked for being given up.
const STREAM_CHECK: Duration = Duration::from_secs(1);
/// How often the accepting loop checks whether the server stops.
const STOP_CHECK: Duration = Duration::from_millis(200);
/// How long nothing is accepted after an error such as the end of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Answers a request that did not come in time.
const TIMED_OUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// What hyper hands over, and takes back.
pub(super) type Request = hyper::Request<Incoming>;
pub(super) type Response = hyper::Response<Body>;

/// What an answer consists of.
pub(super) enum Body {
    Whole(Full<Bytes>),
    /// It goes on until its source or the reader ends it.
    Stream(Stream),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Stream(stream) => stream.poll(context).map(|piece| Some(Ok(Frame::data(piece?)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A bound socket that does not block.
#[derive(Debug)]
pub(super) enum Listening {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// Answers requests until the server stops.
pub(super) trait Pages {
    /// Answers one request.
    fn answer(&self, request: Request) -> impl Future<Output = Response>;

    /// Whether no further request is to be answered.
    fn is_stopping(&self) -> bool;
}

/// Serves `pages` on the calling thread, to at most `connections_max` connections at a time, until
/// [`Pages::is_stopping`].
pub(super) fn serve(
    socket: Listening,
    connections_max: usize,
    pages: impl Pages + 'static,
) -> io::Result<()> {
    // Pages that take longer are written by a second thread: `/healthz` does not wait for them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(1)
        .thread_name("admin-page")
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let places = Places::new(connections_max);
        match Listener::new(socket)? {
            Listener::Tcp(socket) => {
                accept(async || socket.accept().await.map(|(client, _)| client), places, pages)
                    .await
            }
            Listener::Unix(socket) => {
                accept(async || socket.accept().await.map(|(client, _)| client), places, pages)
                    .await
            }
        }
        Ok(())
    })
}

impl Listener {
    fn new(socket: Listening) -> io::Result<Self> {
        Ok(match socket {
            Listening::Tcp(socket) => Self::Tcp(tokio::net::TcpListener::from_std(socket)?),
            Listening::Unix(socket) => Self::Unix(tokio::net::UnixListener::from_std(socket)?),
        })
    }
}

async fn accept<Client: AsyncRead + AsyncWrite + Unpin + 'static>(
    next: impl AsyncFn() -> io::Result<Client>,
    places: Places,
    pages: impl Pages + 'static,
) {
    let pages = Rc::new(pages);
    while !pages.is_stopping() {
        let client = match timeout(STOP_CHECK, next()).await {
            Ok(Ok(client)) => client,
            Ok(Err(_)) => {
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
            Err(_) => continue,
        };
        // Without a connection to close, all are being answered: one of them ends in time.
        let place = loop {
            match timeout(STOP_CHECK, places.take()).await {
                Ok(place) => break place,
                Err(_) if pages.is_stopping() => return,
                Err(_) => {}
            }
        };
        let (number, waiting) = (place.number, Rc::clone(&places.waiting));
        let task = spawn_local(converse(client, place, Rc::clone(&pages)));
        waiting.borrow_mut().insert(number, task.abort_handle());
    }
}

/// Answers the request of one client.
async fn converse(
    client: impl AsyncRead + AsyncWrite + Unpin + 'static,
    place: Place,
    pages: Rc<impl Pages + 'static>,
) {
    let streams = RefCell::<Option<GivenUp>>::default();
    let answer = async |request| {
        place.has_request();
        let answer = pages.answer(request).await;
        if let Body::Stream(stream) = answer.body() {
            *streams.borrow_mut() = Some(stream.given_up());
        }
        Ok::<_, Infallible>(answer)
    };
    let service = service_fn(|request| Box::pin(answer(request)));
    let mut connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(client), service);
    if timeout(REQUEST_PATIENCE, &mut connection).await.is_ok() {
        return;
    }
    let given_up = || streams.borrow().as_ref().is_none_or(GivenUp::is_so);
    while !place.is_waiting() && !given_up() {
        if timeout(STREAM_CHECK, &mut connection).await.is_ok() {
            return;
        }
    }
    // What a client does with an answer, or that it is gone, is its own affair.
    if place.is_waiting() {
        let mut client = connection.into_parts().io.into_inner();
        let _ = timeout(ANSWER_PATIENCE, client.write_all(TIMED_OUT)).await;
    } else {
        let _ = timeout(ANSWER_PATIENCE, connection).await;
    }
}

/// Connections whose request is awaited, by number: the oldest first.
type Waiting = Rc<RefCell<BTreeMap<u64, AbortHandle>>>;

/// The places for connections.
struct Places {
    free: Arc<Semaphore>,
    waiting: Waiting,
    next: std::cell::Cell<u64>,
}

/// The place of one connection.
struct Place {
    number: u64,
    waiting: Waiting,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    fn new(count: usize) -> Self {
        let (waiting, next) = Default::default();
        Self { free: Arc::new(Semaphore::new(count)), waiting, next }
    }

    /// Waits for a place. If all are taken, closes the oldest connection without a whole request first.
    async fn take(&self) -> Place {
        if self.free.available_permits() == 0 {
            let oldest = self.waiting.borrow_mut().pop_first();
            oldest.inspect(|(_, connection)| connection.abort());
        }
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let number = self.next.get();
        self.next.set(number + 1);
        Place {
            number,
            waiting: Rc::clone(&self.waiting),
            _permit: permit.expect("the semaphore is never closed"),
        }
    }
}

impl Place {
    fn is_waiting(&self) -> bool {
        self.waiting.borrow().contains_key(&self.number)
    }

    fn has_request(&self) {
        self.waiting.borrow_mut().remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.has_request();
    }
}

#[cfg(test)]
mod tests;
