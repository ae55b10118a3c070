//! Requests and replies in datagrams.
//!
//! A datagram is a connection that has sent its last byte when it begins: it goes through the same
//! code, and what it was answered is sent when it is over. A frame, requests and replies alike, is
//!
//! ```text
//! 0         2            4           6          8
//! | request | number     | count of  | reserved | text ...
//! | id      | of this one| datagrams |          |
//! ```
//!
//! Whoever writes a false sender on a datagram has the reply sent to somebody else. That can't be
//! told apart; what can be done is to send little to where that would hurt (see [`Reply`]), and to never
//! answer other servers' replies.

use self::reply::Reply;
use super::input::Received;
use super::listener::Listener;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

mod reply;

/// Bytes of a frame before its text.
const HEADER_BYTES: usize = 8;
/// Text of one datagram of a reply, as in memcached: fits into a frame of Ethernet.
const TEXT_BYTES_MAX: usize = 1392;
/// The longest datagram that exists.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Datagrams that one worker answers at the same time; more stay with the kernel, which drops them
/// when it has too many.
const UNANSWERED_MAX: usize = 1024;
/// Datagrams taken before others get their turn.
const TAKEN_MAX: usize = 64;

const MULTI_PACKET: &[u8] = b"SERVER_ERROR multi-packet request not supported\r\n";

/// A worker's sockets for datagrams.
pub(crate) struct UdpPorts {
    ports: Vec<Arc<Listener>>,
    /// Sockets that may have more.
    readable: Vec<bool>,
    unanswered: usize,
    buffer: Vec<u8>,
    /// Public addresses may have long replies (`--public-udp`).
    trusts_all: bool,
}

/// A request and its reply.
pub(crate) struct Datagram {
    port: Arc<Listener>,
    peer: SocketAddrAny,
    id: [u8; 2],
    request: Vec<u8>,
    /// Bytes of the request that were taken.
    taken: usize,
    reply: Reply,
}

impl UdpPorts {
    pub(crate) fn new(ports: Vec<Arc<Listener>>, trusts_all: bool) -> Self {
        let readable = vec![true; ports.len()];
        let buffer = vec![0; if ports.is_empty() { 0 } else { DATAGRAM_BYTES_MAX }];
        Self { ports, readable, unanswered: 0, buffer, trusts_all }
    }

    /// Something came in at the `index`-th socket.
    pub(crate) fn note(&mut self, index: usize) {
        self.readable[index] = true;
    }

    /// Whether [`UdpPorts::receive`] has something to do.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        !self.ports.is_empty() && self.unanswered < UNANSWERED_MAX && self.readable.contains(&true)
    }

    /// Whether one that was received is not through.
    pub(crate) fn is_answering(&self) -> bool {
        self.unanswered > 0
    }

    /// One that was received is through.
    pub(crate) fn answered(&mut self) {
        self.unanswered -= 1;
    }

    /// Takes some of what came in.
    pub(crate) fn receive(&mut self) -> Vec<Datagram> {
        let mut datagrams = Vec::new();
        for index in 0..self.ports.len() {
            for _ in 0..TAKEN_MAX {
                if !self.readable[index] || self.unanswered >= UNANSWERED_MAX {
                    break;
                }
                match self.receive_at(index) {
                    Ok(Some(datagram)) => {
                        self.unanswered += 1;
                        datagrams.push(datagram);
                    }
                    Ok(None) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.readable[index] = false;
                    }
                    // The kernel reports here that an earlier reply reached nobody.
                    Err(_) => {}
                }
            }
        }
        datagrams
    }

    /// The next request of a socket; `None` for a datagram that is none.
    fn receive_at(&mut self, index: usize) -> io::Result<Option<Datagram>> {
        let port = &self.ports[index];
        let (bytes, _, peer) =
            rustix::net::recvfrom(port.as_fd(), &mut self.buffer[..], RecvFlags::empty())?;
        let Some(peer) = peer else { return Ok(None) };
        let Some((header, text)) = self.buffer[..bytes].split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [id_high, id_low, number @ .., count_high, count_low, _, _] = *header;
        if number != [0, 0] || is_another_server(port, &peer) {
            return Ok(None);
        }
        let mut datagram = Datagram {
            port: Arc::clone(port),
            id: [id_high, id_low],
            request: text.to_vec(),
            taken: 0,
            reply: Reply::new(address_of(&peer), bytes, self.trusts_all),
            peer,
        };
        if [count_high, count_low] != [0, 1] {
            datagram.reply.add(MULTI_PACKET);
            datagram.deliver();
            return Ok(None);
        }
        Ok(Some(datagram))
    }
}

/// Two servers that were made to answer each other's error messages would never stop.
fn is_another_server(port: &Listener, peer: &SocketAddrAny) -> bool {
    let own = port.udp_address();
    address_of(peer)
        .is_some_and(|peer| peer.port() == 0 || own.is_some_and(|own| own.port() == peer.port()))
}

fn address_of(peer: &SocketAddrAny) -> Option<SocketAddr> {
    peer.clone().try_into().ok()
}

impl Datagram {
    /// The socket that it came in by.
    pub(crate) fn port(&self) -> &Arc<Listener> {
        &self.port
    }

    /// Appends to `bytes`, within its capacity, what was not taken yet.
    pub(crate) fn receive(&mut self, bytes: &mut Vec<u8>) -> Received {
        let rest = &self.request[self.taken..];
        let room = rest.len().min(bytes.capacity() - bytes.len());
        bytes.extend_from_slice(&rest[..room]);
        self.taken += room;
        if room == 0 { Received::End } else { Received::More }
    }

    /// Keeps a part of the reply.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        self.reply.add(bytes);
        bytes.len()
    }

    /// Sends the reply, if there is one. What the socket does not take is lost, as datagrams may be.
    pub(crate) fn deliver(&self) {
        let reply = self.reply.text();
        let count = reply.len().div_ceil(TEXT_BYTES_MAX) as u16;
        let mut frame = Vec::with_capacity(HEADER_BYTES + TEXT_BYTES_MAX);
        for (number, text) in reply.chunks(TEXT_BYTES_MAX).enumerate() {
            frame.clear();
            frame.extend_from_slice(&self.id);
            frame.extend_from_slice(&(number as u16).to_be_bytes());
            frame.extend_from_slice(&count.to_be_bytes());
            frame.extend_from_slice(&[0, 0]);
            frame.extend_from_slice(text);
            let _ = rustix::net::sendto(
                self.port.as_fd(),
                &frame,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
                &self.peer,
            );
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.request.capacity() + self.reply.memory()
    }
}
