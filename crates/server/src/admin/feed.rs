//! `/events`: the figures of the server once a second, gathered once for all readers together.
//!
//! 1. The first reader starts a task on the page's thread, and the last one that leaves ends it: without readers nothing
//!    is gathered.
//! 2. Once a second the figures are gathered on the thread for longer pages and written as one event, which all readers
//!    share.
//! 3. A reader that has taken none of the last events is given up (see [`super::stream`]).

use super::recent::Recent;
use super::status;
use super::stream::{Giver, Stream, stream};
use crate::server::shared::Shared;
use crate::stats::view::View;
use hyper::body::Bytes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Time between two events.
const INTERVAL: Duration = Duration::from_secs(1);

/// The events and their readers.
pub(super) struct Feed {
    shared: Arc<Shared>,
    readers: RefCell<Vec<Giver>>,
    readers_max: usize,
    /// The last event, for a reader that comes between two.
    last: RefCell<Bytes>,
    is_running: Cell<bool>,
}

impl Feed {
    pub(super) fn new(shared: &Arc<Shared>, readers_max: usize) -> Rc<Self> {
        let (readers, last, is_running) = Default::default();
        Rc::new(Self { shared: Arc::clone(shared), readers, readers_max, last, is_running })
    }

    /// Whether there are as many readers as may be.
    pub(super) fn is_full(&self) -> bool {
        let mut readers = self.readers.borrow_mut();
        readers.retain(Giver::is_read);
        readers.len() >= self.readers_max
    }

    /// Adds a reader. Must be called on the page's thread, whose task set the events are gathered in, and not while
    /// [`Self::is_full`].
    pub(super) fn read(self: &Rc<Self>) -> Stream {
        let mut readers = self.readers.borrow_mut();
        let (giver, stream) = stream();
        let last = self.last.borrow();
        if !last.is_empty() {
            giver.give(last.clone());
        }
        readers.push(giver);
        if !self.is_running.replace(true) {
            tokio::task::spawn_local(run(Rc::clone(self)));
        }
        stream
    }
}

/// Gives events until nobody reads them.
async fn run(feed: Rc<Feed>) {
    let mut recent = Recent::default();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begin = Instant::now();
    loop {
        ticks.tick().await;
        if feed.shared.is_stopping() {
            feed.readers.borrow_mut().clear();
        }
        feed.readers.borrow_mut().retain(Giver::is_read);
        if feed.readers.borrow().is_empty() {
            break;
        }
        let shared = Arc::clone(&feed.shared);
        let gathered = tokio::task::spawn_blocking(move || {
            let event = event(&shared, &mut recent, begin);
            (event, recent)
        });
        let Ok((event, back)) = gathered.await else { break };
        recent = back;
        feed.readers.borrow_mut().retain(|reader| reader.give(event.clone()));
        *feed.last.borrow_mut() = event;
    }
    *feed.last.borrow_mut() = Bytes::new();
    feed.readers.borrow_mut().clear();
    feed.is_running.set(false);
}

/// One event: what `/status` tells, the milliseconds since a moment of this server, and how long requests took of late.
fn event(shared: &Shared, recent: &mut Recent, begin: Instant) -> Bytes {
    let view = View::new(shared, shared.clock.now());
    let ms = begin.elapsed().as_millis();
    let latencies = recent.json(&view);
    format!(
        "data: {{\"ms\":{ms},\"status\":{},\"latency\":{latencies}}}\n\n",
        status::json(&view).trim_end()
    )
    .into()
}
