//! More connections than `-c`, left in the backlog (`-o no_maxconns_fast`) as in memcached: who comes
//! waits until somebody goes.

use std::time::Duration;
use terrace_e2e::{Client, Server, is_terrace, skip, wait_until};

/// The thread that accepts counts after a worker may have answered whom it let in.
fn wait_for_stat(client: &mut Client, name: &str, least: u64) {
    wait_until(name, || (client.stat("", name) >= least).then_some(()));
}

#[test]
fn connections_too_many_wait_until_one_goes() {
    if !is_terrace() {
        skip(
            "connections_too_many_wait_until_one_goes",
            "another server counts its own sockets too",
        );
        return;
    }
    let mut server = Server::start("-m 64 -t 2 -c 4 -o no_maxconns_fast");
    // The harness looked whether it is there; that connection is on its way out.
    let mut first = server.client();
    server.wait_for_connections(&mut first, 1);
    let mut inside: Vec<Client> = (0..3).map(|_| server.client()).collect();
    inside.iter_mut().for_each(|client| client.check("mn\r\n", "MN\r\n"));
    assert_eq!(first.stat("", "accepting_conns"), 0);
    wait_for_stat(&mut first, "listen_disabled_num", 1);
    let mut waiting: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut waiting {
        // The kernel takes it; nobody reads it yet.
        client.send("mn\r\n");
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(first.stat("", "curr_connections"), 4);
    // None is rejected, and memcached does not show the row then.
    assert!(!first.stats("").contains_key("rejected_connections"));
    for client in &mut waiting {
        drop(inside.pop());
        // In the order in which they came.
        client.expect("MN\r\n");
    }
    assert_eq!(first.stat("", "accepting_conns"), 0);
    wait_for_stat(&mut first, "listen_disabled_num", 3);
    drop(waiting);
    wait_for_stat(&mut first, "accepting_conns", 1);
    wait_for_stat(&mut first, "time_in_listen_disabled_us", 200_000);
    server.assert_alive();
}

#[test]
fn it_can_be_asked_for_in_vain() {
    let server = Server::start("-m 64 -c 1000 -o no_maxconns_fast");
    let mut client = server.client();
    assert_eq!(client.stats("settings")["maxconns_fast"], "no");
    assert_eq!(client.stat("", "accepting_conns"), 1);
    assert_eq!(client.stat("", "listen_disabled_num"), 0);
}
