//! Many requests at once on one connection: all are answered, in order, each as if the one before it
//! was finished, whether records lie in DRAM or on a drive.

mod common;

use common::{Client, TestServer, fill};

/// A server with the records `k0` to `k999` (value: the number) on its drive, and `big` there too.
fn flash_server() -> (TestServer, Client) {
    let server = TestServer::with(|settings| settings.memory_bytes = 16 << 20, Some(256 << 20));
    let mut client = server.connect();
    let mut request = String::new();
    for number in 0..1000 {
        let digits = number.to_string();
        request.push_str(&format!("set k{number} 0 0 {} noreply\r\n{digits}\r\n", digits.len()));
    }
    client.ask(&request, "");
    fill(&mut client);
    let before: u64 = client.stat("", "get_extstore").parse().expect("a number");
    client.ask("get k999\r\n", "VALUE k999 0 3\r\n999\r\nEND\r\n");
    let after: u64 = client.stat("", "get_extstore").parse().expect("a number");
    assert!(after > before, "k999 was not answered from the drive");
    (server, client)
}

/// Conversations about the key `K`, which holds the number `N`, and what they must answer.
fn in_order(client: &mut Client, key: &str, number: u64) {
    let n = number.to_string();
    let (one, two) = (number + 1, number + 2);
    client.ask(format!("incr {key} 1\r\nincr {key} 1\r\n"), format!("{one}\r\n{two}\r\n"));
    let value = |text: &str| format!("VALUE {key} 0 {}\r\n{text}\r\nEND\r\n", text.len());
    let set = format!("set {key} 0 0 {}\r\n{n}\r\n", n.len());
    client.ask(
        format!("get {key}\r\n{set}get {key}\r\n"),
        format!("{}STORED\r\n{}", value(&two.to_string()), value(&n)),
    );
    client.ask(
        format!("delete {key}\r\nadd {key} 0 0 1\r\na\r\nget {key}\r\n"),
        format!("DELETED\r\nSTORED\r\n{}", value("a")),
    );
    client.ask(
        format!("append {key} 0 0 1\r\nb\r\nprepend {key} 0 0 1\r\nc\r\nget {key} {key}\r\n"),
        format!("STORED\r\nSTORED\r\n{}{}", value("cab").trim_end_matches("END\r\n"), value("cab")),
    );
    client.ask(
        format!("mg {key} v\r\nmd {key} q\r\nmg {key} v\r\nms {key} 1\r\nz\r\nmg {key} v\r\n"),
        "VA 3\r\ncab\r\nEN\r\nHD\r\nVA 1\r\nz\r\n",
    );
}

#[test]
fn one_key_in_dram() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask("set k 0 0 2\r\n41\r\n", "STORED\r\n");
    in_order(&mut client, "k", 41);
}

#[test]
fn one_key_on_the_drive() {
    let (_server, mut client) = flash_server();
    for number in 0..50 {
        in_order(&mut client, &format!("k{number}"), number);
    }
    // Each first command alone meets a record that lies on the drive.
    client.ask("incr k100 1\r\nincr k100 1\r\n", "101\r\n102\r\n");
    client.ask(
        "delete k101\r\nadd k101 0 0 1\r\na\r\nget k101\r\n",
        "DELETED\r\nSTORED\r\nVALUE k101 0 1\r\na\r\nEND\r\n",
    );
    client.ask("touch k102 100\r\nmg k102 v\r\n", "TOUCHED\r\nVA 3\r\n102\r\n");
    client.expect_time_left("k102", 100);
    client.ask(
        "append k103 0 0 1\r\nx\r\nget k103\r\n",
        "STORED\r\nVALUE k103 0 4\r\n103x\r\nEND\r\n",
    );
    client.ask(
        "gat 100 k104\r\nget k104\r\n",
        "VALUE k104 0 3\r\n104\r\nEND\r\nVALUE k104 0 3\r\n104\r\nEND\r\n",
    );
    client.ask(
        "add k105 0 0 1\r\nx\r\nreplace k105 0 0 1\r\ny\r\nget k105\r\n",
        "NOT_STORED\r\nSTORED\r\nVALUE k105 0 1\r\ny\r\nEND\r\n",
    );
    client.ask("md k106\r\nmd k106\r\n", "HD\r\nNF\r\n");
}

#[test]
fn replies_of_the_drive_and_of_dram_keep_their_order() {
    let (_server, mut client) = flash_server();
    client.ask("set hot 0 0 1\r\nh\r\n", "STORED\r\n");
    let (mut request, mut reply) = (String::new(), String::new());
    for number in 200..900 {
        request.push_str(&format!("get k{number}\r\nget hot\r\nget none{number}\r\nmn\r\n"));
        reply.push_str(&format!(
            "VALUE k{number} 0 3\r\n{number}\r\nEND\r\nVALUE hot 0 1\r\nh\r\nEND\r\n"
        ));
        reply.push_str("END\r\nMN\r\n");
    }
    client.ask(request, reply);
}

#[test]
fn noreply_and_quiet_say_nothing_but_errors() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask("set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nincr a 1 noreply\r\n", "");
    client.ask("get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n");
    client.ask("touch a 0 noreply\r\ndelete a noreply\r\ndelete a noreply\r\nget a\r\n", "END\r\n");
    client.ask("flush_all noreply\r\nverbosity 0 noreply\r\n", "");
    client.ask("ms a 1 q\r\n1\r\nmg b q\r\nma a q\r\nmg a v q\r\nmd a q\r\n", "VA 1\r\n2\r\n");
    client.ask("md a q\r\nma a q\r\nms a 1 q MR\r\n1\r\n", "NF\r\nNF\r\nNS\r\n");
}

#[test]
fn five_thousand_keys_in_one_line() {
    let (_server, mut client) = flash_server();
    // Only `get` and `gets` may be longer than 2 KiB.
    for (command, keys) in [("get", 5000), ("gat 1000", 200)] {
        let (mut request, mut reply) = (command.to_string(), String::new());
        for number in 0..keys {
            let digits = (number % 1000).to_string();
            let key = if number % 5 == 4 { "none" } else { "k" };
            request.push_str(&format!(" {key}{digits}"));
            if key == "k" {
                reply.push_str(&format!("VALUE k{digits} 0 {}\r\n{digits}\r\n", digits.len()));
            }
        }
        request.push_str("\r\n");
        reply.push_str("END\r\n");
        client.ask(&request, &reply);
    }
}

#[test]
fn a_line_of_keys_in_pieces() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask("set abc 0 0 1\r\nx\r\n", "STORED\r\n");
    let line = format!("gets{}\r\n", " abc".repeat(2000));
    for piece in line.as_bytes().chunks(997) {
        client.send(piece);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let reply = client.receive_until("END\r\n");
    assert_eq!(reply.matches("VALUE abc 0 1 ").count(), 2000);
    client.expect_silence();
}

#[test]
fn more_requests_than_one_turn_serves() {
    let server = TestServer::with(|settings| settings.requests_per_event = 3, None);
    let mut client = server.connect();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("get a\r\n".repeat(10_000), "VALUE a 0 1\r\nx\r\nEND\r\n".repeat(10_000));
}
