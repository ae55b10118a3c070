//! What requests and replies are on the network, headers included.

use crate::Data;

/// Words of a request or a reply besides key and value, at most.
const WORDS: f64 = 40.0;
/// Headers of a packet: TCP with its time stamps, IP, Ethernet with preamble and gap.
const PACKET_HEADERS: f64 = 32.0 + 20.0 + 38.0;
/// What a packet carries besides.
const PACKET_BYTES: f64 = 1448.0;

/// Bytes in and bytes out of so many reads that hit, reads that miss, and stores, each sent and answered
/// alone: the most that they take.
pub(crate) fn bytes(data: &Data, [hits, misses, stores]: [f64; 3]) -> (f64, f64) {
    let (key, record) = (data.key_bytes + WORDS, data.payload_bytes() + WORDS);
    let kinds = [(hits, key, record), (misses, key, WORDS), (stores, record, WORDS)];
    kinds.into_iter().fold((0.0, 0.0), |(into, out), (number, request, reply)| {
        (into + number * one_way(request, reply), out + number * one_way(reply, request))
    })
}

/// A message, and the acknowledgements of the one that comes the other way: one for every second packet.
/// Messages that follow closely share packets, and carry the acknowledgements.
fn one_way(message: f64, other: f64) -> f64 {
    let packets = |bytes: f64| (bytes / PACKET_BYTES).ceil();
    message + (packets(message) + (packets(other) / 2.0).ceil()) * PACKET_HEADERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_take_many_packets() {
        let data = Data {
            items: 1.0,
            key_bytes: 20.0,
            value_bytes: 10_240.0,
            ttl_seconds: None,
            client_flags: false,
        };
        // 10,300 bytes in eight packets, and four that acknowledge them.
        let (into, out) = bytes(&data, [1.0, 0.0, 0.0]);
        assert_eq!((into, out), (60.0 + 5.0 * 90.0, 10_300.0 + 9.0 * 90.0));
        let (into, out) = bytes(&data, [0.0, 2.0, 1.0]);
        assert_eq!(into, 2.0 * (60.0 + 180.0) + 10_300.0 + 9.0 * 90.0);
        assert_eq!(out, 2.0 * (40.0 + 180.0) + 40.0 + 5.0 * 90.0);
    }
}
