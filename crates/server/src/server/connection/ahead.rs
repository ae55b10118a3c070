//! Looking ahead over the connections that have something: while the requests of some are received, what
//! those of others need comes from memory.

use super::{Connection, Mode};
use crate::server::context::Context;
use terrace_cache::Key;
use terrace_protocol::glimpse_key;

impl Connection {
    /// Receives what there is, if the connection stands between two requests, and answers the key that
    /// is asked for first, probably. Who sends pipelines is left out: a pipeline asks memory for what all
    /// of it needs, and is best executed right after it was received.
    pub(crate) fn look_ahead(&mut self, cx: &mut Context) -> Option<Key<'static>> {
        let may_receive = self.is_readable
            && !self.has_pipeline
            && self.input.is_empty()
            && self.needed == 0
            && matches!(self.mode, Mode::Requests)
            && !self.is_datagram()
            && !self.is_held(cx);
        if !may_receive {
            return None;
        }
        if self.receive(cx).is_err() {
            // Its turn ends it.
            self.has_failed = true;
            return None;
        }
        glimpse_key(self.input.unread()).map(|key| cx.session.key(key).detached())
    }
}
