//! Clients come and go.

use super::Worker;
use crate::server::clients::Client;
use crate::server::connection::Connection;
use crate::server::poll::Ready;
use crate::server::slab::Id;
use crate::server::socket::Socket;
use std::os::fd::AsRawFd;
use std::sync::Arc;

impl Worker {
    /// Takes new connections in.
    pub(super) fn welcome(&mut self) {
        let inbox = &self.cx.shared.inboxes[self.index];
        inbox.waker().clear();
        for arrival in inbox.take() {
            let entry = Arc::clone(&arrival.entry);
            let socket = match self.cx.shared.socket(arrival) {
                Ok(socket) => socket,
                Err(error) => {
                    self.cx.shared.log(1, || format!("{}: {error}", entry.name));
                    self.cx.shared.closed_connection();
                    continue;
                }
            };
            let client = self.cx.shared.clients.add(socket.fd(), entry, self.cx.now);
            self.cx.shared.watchers.tell_opened(socket.fd().as_raw_fd(), &client);
            let new = |id| Connection::new(id, socket, client, &self.cx.shared.settings);
            let id = self.connections.insert_with(new);
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.account(&mut self.cx);
            if let Err(error) = self.poll.add(connection.socket(), id.to_u64()) {
                self.cx.shared.log(1, || format!("a connection can't be watched: {error}"));
                self.close(id, false);
                continue;
            }
            self.cx.shared.log(2, || format!("<{} new client connection", connection.number()));
        }
    }

    /// Gives those who watch a turn: there may be something to tell them.
    pub(super) fn wake_watching(&mut self) {
        let Self { connections, ready, cx, .. } = self;
        cx.watching.retain(|&id| {
            let connection = connections.get_mut(id);
            connection.is_some_and(|connection| {
                ready.add(connection);
                true
            })
        });
    }

    /// Whether there are datagrams to take in. While memory is tight they wait with the kernel until those that were
    /// taken are answered.
    pub(super) fn has_more_datagrams(&self) -> bool {
        self.udp.has_more() && !(self.cx.is_tight() && self.udp.is_answering())
    }

    /// Takes requests in datagrams in.
    pub(super) fn welcome_datagrams(&mut self) {
        if !self.has_more_datagrams() {
            return;
        }
        for datagram in self.udp.receive() {
            let entry = Arc::clone(datagram.port().entry());
            let socket = Socket::Datagram(Box::new(datagram));
            let client = Arc::new(Client::new(socket.fd(), entry, self.cx.now));
            let new = |id| Connection::new(id, socket, client, &self.cx.shared.settings);
            let id = self.connections.insert_with(new);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.note(Ready { number: 0, readable: true, hung_up: true, broke: false });
                self.ready.add(connection);
            }
        }
    }

    /// Changes that a closed connection has begun go on: their client asked for them.
    pub(super) fn close(&mut self, id: Id, is_idle: bool) {
        if let Some(connection) = self.connections.remove(id) {
            if connection.is_datagram() {
                self.udp.answered();
                connection.close(&mut self.cx, is_idle);
                return;
            }
            self.cx.shared.log(2, || format!("<{} connection closed", connection.number()));
            connection.close(&mut self.cx, is_idle);
            self.cx.shared.closed_connection();
        }
    }

    /// Where memory is tight, frees what connections can do without, and closes those that are idle longest.
    pub(super) fn relieve(&mut self) {
        self.cx.owed_max = self.cx.shared.memory.allowance();
        if !self.cx.is_tight() {
            return;
        }
        let mut idle = Vec::new();
        for id in self.connections.ids().collect::<Vec<_>>() {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.do_with_little(&mut self.cx);
            idle.extend(connection.idle_since(self.cx.now).map(|since| (since, id)));
        }
        idle.sort_unstable_by_key(|(since, _)| *since);
        for (_, id) in idle {
            if !self.cx.is_tight() {
                break;
            }
            self.cx.stats.counters.read_buf_oom.add(1);
            self.close(id, true);
        }
    }

    /// Closes connections that were silent for too long.
    pub(super) fn close_idle(&mut self) {
        let timeout = self.cx.shared.settings.idle_timeout_s;
        if timeout == 0 || self.swept_at == self.cx.now {
            return;
        }
        self.swept_at = self.cx.now;
        let ids: Vec<Id> = self.connections.ids().collect();
        for id in ids {
            let now = self.cx.now;
            let is_idle = |c: &mut Connection| c.is_idle_since(now.saturating_sub(timeout));
            if self.connections.get_mut(id).is_some_and(is_idle) {
                self.cx.stats.counters.idle_kicks.add(1);
                self.close(id, true);
            }
        }
    }
}
