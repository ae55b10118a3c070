//! Replies of the classic commands, in DRAM.

mod common;

use common::TestServer;

#[test]
fn stores_and_reads() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask("get a\r\n", "END\r\n");
    client.ask("set a 5 0 3\r\nabc\r\n", "STORED\r\n");
    client.ask("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n");
    client.ask("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    client.ask("add b 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("replace b 1 0 2\r\nyy\r\n", "STORED\r\n");
    client.ask("replace c 1 0 2\r\nyy\r\n", "NOT_STORED\r\n");
    client.ask("append b 9 9 1\r\nz\r\n", "STORED\r\n");
    client.ask("prepend b 9 9 1\r\nx\r\n", "STORED\r\n");
    client.ask("get a c b\r\n", "VALUE a 5 3\r\nabc\r\nVALUE b 1 4\r\nxyyz\r\nEND\r\n");
    client.ask("append c 0 0 1\r\nz\r\n", "NOT_STORED\r\n");
    client.ask("delete a\r\n", "DELETED\r\n");
    client.ask("delete a\r\n", "NOT_FOUND\r\n");
    client.ask("get a\r\n", "END\r\n");
    client.ask("set e 0 0 0\r\n\r\nget e\r\n", "STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n");
}

#[test]
fn calculates() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask("incr n 1\r\n", "NOT_FOUND\r\n");
    client.ask("set n 7 0 2\r\n10\r\n", "STORED\r\n");
    client.ask("incr n 5\r\nincr n 5\r\ndecr n 19\r\n", "15\r\n20\r\n1\r\n");
    client.ask("decr n 9\r\n", "0\r\n");
    client.ask("incr n 18446744073709551615\r\n", "18446744073709551615\r\n");
    client.ask("incr n 2\r\n", "1\r\n");
    client.ask("get n\r\n", "VALUE n 7 1\r\n1\r\nEND\r\n");
    client.ask("incr n x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n");
    client.ask("set n 0 0 1\r\nx\r\n", "STORED\r\n");
    let not_numeric = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    client.ask("incr n 1\r\n", not_numeric);
}
