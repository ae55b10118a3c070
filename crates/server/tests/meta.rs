//! Replies of the meta commands, in DRAM.

mod common;

use common::TestServer;

#[test]
fn an_emptied_record_keeps_its_cas_number_and_a_stale_one_does_not() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask("ms k 1 E7 F3\r\na\r\nmd k x\r\n", "HD\r\nHD\r\n");
    client.ask("gets k\r\n", "VALUE k 0 0 7\r\n\r\nEND\r\n");
    client.ask("md k x E9\r\nmg k c\r\n", "HD\r\nHD c9\r\n");
    client.ask("cas k 0 0 1 9\r\nb\r\n", "STORED\r\n");
    for line in ["md k I", "md k x I"] {
        client.ask("ms k 1 E7\r\na\r\n", "HD\r\n");
        client.ask(format!("{line}\r\n"), "HD\r\n");
        client.ask("cas k 0 0 1 7\r\nb\r\n", "EXISTS\r\n");
    }
}
