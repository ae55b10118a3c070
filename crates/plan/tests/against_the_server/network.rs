//! What the model says of the network beside what a server and the kernel count on one that is theirs alone.

use crate::common::{
    MEMORY, MIB, Measured, data, fill, is_other_server, plan_on, requests, settle, skip,
};
use std::process::Command;
use terrace_load::{Plan as Requests, Popularity, Workload, run};
use terrace_plan::{Data, Load};

/// Says that the network is this test's own.
const INSIDE: &str = "TERRACE_PLAN_NETWORK";
/// Headers of TCP with time stamps, of IP, and of Ethernet with its preamble and gap.
const HEADERS: f64 = 32.0 + 20.0 + 38.0;
const FLASH: f64 = 256.0 * MIB;

/// Runs a test of this program again in a network with packets as long as Ethernet's; gives back
/// whether this is the one that runs there. Says so where there can be none.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let within = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--map-root-user", "sh", "-c"]);
        command.arg(format!("ip link set lo mtu 1500 up && {script}"));
        command
    };
    if !within("true").output().is_ok_and(|output| output.status.success()) {
        skip(test, "no network of its own can be had here: it takes unshare and ip");
        return false;
    }
    let this = std::env::current_exe().expect("a test knows its path");
    let mut again = within("exec \"$0\" \"$@\"");
    again.arg(this).args(["--exact", &format!("network::{test}"), "--nocapture"]);
    // Built outside, if it has to be.
    again.env("TERRACE_E2E_BINARY", terrace_e2e::program()).env(INSIDE, "1");
    assert!(again.status().expect("unshare runs").success(), "see above");
    false
}

/// Packets that TCP has sent in this network, in both directions.
fn packets() -> f64 {
    let text = std::fs::read_to_string("/proc/net/snmp").expect("the kernel tells");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let place = names.split(' ').position(|name| name == "OutSegs").expect("it is counted");
    values.split(' ').nth(place).and_then(|value| value.parse().ok()).expect("a number")
}

/// Bytes in and out that a server has counted, and packets of both.
fn counted(server: &Measured) -> [f64; 3] {
    [server.general("bytes_read"), server.general("bytes_written"), packets()]
}

#[test]
fn bytes_on_the_network_are_no_more_than_planned() {
    const NAME: &str = "bytes_on_the_network_are_no_more_than_planned";
    if is_other_server(NAME) || !is_inside(NAME) {
        return;
    }
    let get = || Workload::Get(Popularity::Uniform);
    // Each after the other; or so slowly that acknowledgements can't wait for what is sent next.
    for (what, value, workload, number, rate) in [
        ("SET", 80.0, Workload::Fill, 20_000, None),
        ("GET", 80.0, get(), 20_000, None),
        ("slow GET", 80.0, get(), 200, Some(40.0)),
        ("GET of 10 KiB", 10_240.0, get(), 5000, None),
    ] {
        let (records, data) = (20_000.0_f64.min(1e8 / value), data(20.0, value));
        let server = Measured::start(MEMORY, FLASH);
        let stores = matches!(workload, Workload::Fill);
        if !stores {
            fill(&server, &data, 0, records as u64);
            settle(&server);
        }
        let load = requests(&server, &data, workload, records as u64, number);
        let before = counted(&server);
        let report = run(&Requests { depth: 1, rate, ..load }, None).expect("a run to its end");
        let after = counted(&server);
        assert_eq!((report.requests, report.misses), (number, 0), "{what}");
        let [into, out, packets] = [0, 1, 2].map(|at| (after[at] - before[at]) / number as f64);

        let get_share = if stores { 0.0 } else { 1.0 };
        let load = Load { per_second: 1.0, get_share, is_usual: true };
        let data = Data { items: records, ..data };
        let plan = plan_on(FLASH, &data, load, MEMORY, &|share| share);
        let planned = plan.network_bytes.0 + plan.network_bytes.1;
        let measured = into + out + packets * HEADERS;
        println!(
            "{what}: at most {planned:.0} bytes in both directions, server {measured:.0}: {into:.1} in, \
             {out:.1} out, {packets:.2} packets"
        );
        assert!(measured <= planned, "{what}: {measured}");
        let least = if rate.is_some() { 0.75 } else { 0.5 };
        assert!(measured >= planned * least, "{what}: far from what was planned");
    }
}
