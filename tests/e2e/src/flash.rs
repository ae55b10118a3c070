//! Bringing records onto the drive, and telling that they are there.

use crate::{Client, Server, is_terrace, value_of, wait_until};

/// Requests sent before the first answer is read.
const BATCH: usize = 64;

/// Bytes of the drive of [`flash_server`].
pub const TIER_BYTES: u64 = 256 << 20;

/// A server with 64 MiB of DRAM, a drive of [`TIER_BYTES`], and `flags` besides. Another server
/// than Terrace gets DRAM for all of it: memcached evicts small records rather than write them out.
pub fn flash_server(flags: &str) -> Server {
    Server::start(&match is_terrace() {
        true => format!("-m 64 --tier ssd:DIR/tier:256m {flags}"),
        false => format!("-m 1024 {flags}"),
    })
}

/// A counter of the first tier, such as `records` or `reads`.
pub fn tier_stat(client: &mut Client, name: &str) -> u64 {
    client.stat("tiers", &format!("tier:0:{name}"))
}

/// Stores `count` records of `bytes` each under `PREFIX0`, `PREFIX1` and so on, many at a time.
pub fn fill(client: &mut Client, prefix: &str, count: usize, bytes: usize) {
    for from in (0..count).step_by(BATCH) {
        let batch = from..count.min(from + BATCH);
        for at in batch.clone() {
            let key = format!("{prefix}{at}");
            client.send_set(&key, &value_of(&key, 0, bytes));
        }
        for at in batch {
            assert_eq!(client.line(), "STORED", "{prefix}{at}");
        }
    }
}

/// Reads what [`fill`] stored: each record is right or missed. Gives back how many are there.
pub fn count_right(client: &mut Client, prefix: &str, count: usize, bytes: usize) -> usize {
    let mut hits = 0;
    for from in (0..count).step_by(BATCH) {
        let keys = (from..count.min(from + BATCH)).map(|at| format!("{prefix}{at}"));
        let keys: Vec<String> = keys.collect();
        keys.iter().for_each(|key| client.send(format!("get {key}\r\n")));
        for key in keys {
            if let Some(value) = client.read_get(&key) {
                assert!(value == value_of(&key, 0, bytes), "{key} has a wrong value");
                hits += 1;
            }
        }
    }
    hits
}

/// Pushes what was stored before out of DRAM: stores twice the DRAM of [`flash_server`] besides.
pub fn push_to_flash(client: &mut Client) {
    fill(client, "filler", 130_000, 1000);
}

/// Waits until `key` is read from the drive; panics when it never is. Leaves no trace on it.
pub fn assert_on_flash(client: &mut Client, key: &str) {
    if !is_terrace() {
        return;
    }
    wait_until(&format!("{key} on the drive"), || {
        let before = tier_stat(client, "reads");
        let reply = client.ask(&format!("mg {key} u s"));
        assert!(reply.starts_with("HD"), "{key} is lost: {reply}");
        (tier_stat(client, "reads") > before).then_some(())
    });
}
