//! The same requests sent to Terrace and to memcached must be counted alike.

mod common;

use common::memcached::Memcached;
use common::{Client, TestServer};
use terrace_e2e::skip;

/// What is done one after the other, and counted by both; all that count reads.
const COUNTED: &[&str] = &[
    "set h 0 100 1|1|",
    "get h m|gets h|gat 0 h|gat 0 m|gats 0 h m|touch h 0|touch m 0|",
    "mg h|mg m|mg h T0|mg m T0|mg a N0|mg h N0|mg h t v T100 N30|",
    "ma b N0|ma b N0|ma c|incr h 1|incr m 1|decr h 1|decr m 1|",
    "cas h 0 0 1 1|1|cas m 0 0 1 1|1|delete b|delete m|md m|md a|",
    "md h I|md h C1|md h C1 I|md m C1|md h I q|mg h|",
];
const COUNTERS: &str = "cmd_get cmd_set cmd_touch get_hits get_misses touch_hits touch_misses incr_hits \
    incr_misses decr_hits decr_misses cas_hits cas_misses cas_badval delete_hits delete_misses";

#[test]
fn memcached_counts_the_same() {
    let Some(memcached) = Memcached::start(&[]) else {
        skip("memcached_counts_the_same", "memcached is not installed; make tools");
        return;
    };
    let terrace = TestServer::start();
    let [mut ours, mut theirs] = [terrace.address, memcached.address].map(Client::connect);
    for case in COUNTED {
        let [ours, theirs] = [&mut ours, &mut theirs].map(|client| {
            client.send(format!("{}mn\r\n", case.replace('|', "\r\n")));
            client.receive_until("MN\r\n");
            COUNTERS
                .split_whitespace()
                .map(|name| (name, client.stat("", name)))
                .collect::<Vec<_>>()
        });
        assert_eq!(ours, theirs, "{case}");
    }
}
