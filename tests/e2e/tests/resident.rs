//! Resident memory with many workers: within what is promised while they are busy, and given back after that.

use terrace_e2e::{Client, Server, fill, is_terrace, skip, wait_until};

const MIB: u64 = 1 << 20;
const LARGE: (&str, usize, usize) = ("large", 80, 900_000);
const SMALL: (&str, usize, usize) = ("small", 2000, 15_000);

/// Every client asks for one record before any answer is read.
fn ask_all(clients: &mut [Client], (prefix, count, bytes): (&str, usize, usize), round: usize) {
    let asked = |at: usize| format!("{prefix}{}", (at * 7 + round * 31) % count);
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(format!("get {}\r\n", asked(at)));
    }
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.read_get(&asked(at)).map(|value| value.len()), Some(bytes));
    }
}

#[test]
fn many_workers_keep_little_for_themselves() {
    if !is_terrace() {
        skip("many_workers_keep_little_for_themselves", "memcached has no --tier");
        return;
    }
    let (cache, buffers, besides) = (64 * MIB, 64 * MIB, 32 * MIB);
    let flags = "-m 64 -t 16 --tier ssd:DIR/tier:512m -o read_buf_mem_limit=64";
    let server = Server::start(flags);
    for (prefix, count, bytes) in [LARGE, SMALL] {
        fill(&mut server.client(), prefix, count, bytes);
    }
    let mut clients: Vec<_> = (0..64).map(|_| server.client()).collect();
    for round in 0..6 {
        ask_all(&mut clients, if round % 2 == 0 { SMALL } else { LARGE }, round);
        let resident = server.resident_bytes();
        assert!(resident <= cache + buffers + besides, "busy: {} MiB", resident / MIB);
    }
    drop(clients);
    wait_until("what nobody uses given back", || {
        (server.resident_bytes() <= cache + besides).then_some(())
    });
}
