//! How much is sent to a sender who may be a false one.
//!
//! Whoever wants to flood somebody asks in their name for what is long. Within private networks that
//! gains nothing that could not be had otherwise. Public addresses get no more than a few times what
//! came in, as QUIC does with addresses that have not proved themselves, so that nobody is worth asking.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A whole reply: a value of the default length, and a little.
const BYTES_MAX: usize = (1 << 20) + (16 << 10);
/// To public addresses, so many times the request, frames included.
const TIMES_MAX: usize = 3;
/// Bytes of the frame that come with each datagram.
const FRAME_BYTES: usize = super::HEADER_BYTES;

/// In memcached's words.
const TOO_LONG: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
/// Fits where that is too long itself.
const TOO_LONG_SHORT: &[u8] = b"SERVER_ERROR reply too long\r\n";

/// A reply as it grows.
pub(super) struct Reply {
    text: Vec<u8>,
    bytes_max: usize,
    is_too_long: bool,
}

impl Reply {
    /// To a datagram of so many bytes. `trusts_all` takes every sender for an honest one.
    pub(super) fn new(sender: Option<SocketAddr>, request_bytes: usize, trusts_all: bool) -> Self {
        let is_suspect = !trusts_all && sender.is_none_or(|sender| is_public(sender.ip()));
        let bytes_max = match is_suspect {
            true => {
                (request_bytes * TIMES_MAX).saturating_sub(FRAME_BYTES).min(super::TEXT_BYTES_MAX)
            }
            false => BYTES_MAX,
        };
        Self { text: Vec::new(), bytes_max, is_too_long: false }
    }

    /// Keeps a part of it.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.text.len() + bytes.len() > self.bytes_max;
        if self.is_too_long {
            self.text.clear();
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    /// What to send; nothing if not even the error may be sent.
    pub(super) fn text(&self) -> &[u8] {
        match self.is_too_long {
            false => &self.text,
            true if TOO_LONG.len() <= self.bytes_max => TOO_LONG,
            true if TOO_LONG_SHORT.len() <= self.bytes_max => TOO_LONG_SHORT,
            true => &[],
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.text.capacity()
    }
}

/// Whether an address may be anybody's in the Internet.
fn is_public(address: IpAddr) -> bool {
    // 100.64.0.0/10: what providers share among their customers.
    let is_shared = |ip: Ipv4Addr| ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 0x40;
    match address.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_shared(ip))
        }
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_told_from_private_ones() {
        let is = |text: &str| is_public(text.parse().unwrap());
        for public in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1", "::ffff:1.1.1.1"] {
            assert!(is(public), "{public}");
        }
        let private = "127.0.0.1 10.1.2.3 172.31.0.1 192.168.9.9 169.254.1.1 100.64.0.1 ::1 fd00::1 \
            fe80::1 ::ffff:10.0.0.1";
        for private in private.split(' ') {
            assert!(!is(private), "{private}");
        }
    }

    #[test]
    fn who_may_be_somebody_else_is_sent_little() {
        let public = Some("203.0.113.7:4000".parse().unwrap());
        let reply = |bytes: usize, request: usize, sender, trusts_all| {
            let mut reply = Reply::new(sender, request, trusts_all);
            (0..bytes).for_each(|_| reply.add(b"x"));
            reply.text().to_vec()
        };
        // `get k`, in a frame: 15 bytes, so 45 with the frame of the reply.
        assert_eq!(reply(37, 15, public, false), vec![b'x'; 37]);
        assert_eq!(reply(38, 15, public, false), TOO_LONG_SHORT);
        assert_eq!(reply(100_000, 30, public, false), TOO_LONG);
        assert_eq!(reply(100, 9, public, false), b"");
        // However long the request: one datagram.
        assert_eq!(reply(1393, 60_000, public, false), TOO_LONG);
        for request in 8..100 {
            let sent = reply(100_000, request, public, false).len();
            assert!(sent + FRAME_BYTES <= request * TIMES_MAX, "{sent} for {request}");
        }
        assert_eq!(reply(100_000, 9, public, true).len(), 100_000);
        let private = Some("10.0.0.1:4000".parse().unwrap());
        assert_eq!(reply(100_000, 9, private, false).len(), 100_000);
        assert_eq!(reply(BYTES_MAX + 1, 9, private, false), TOO_LONG);
    }
}
