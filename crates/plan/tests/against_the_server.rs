//! The figures of the model beside those of a running server.

use std::time::{Duration, Instant};
use terrace_e2e::{Server, is_terrace};
use terrace_load::{Client, Plan as Requests, Report, Sizes, Workload, run};
use terrace_plan::{Data, Layout};

const MIB: f64 = (1 << 20) as f64;
const MEMORY: f64 = 16.0 * MIB;
const FLASH: f64 = 64.0 * MIB;

fn data(key_bytes: f64, value_bytes: f64) -> Data {
    Data { items: 1e6, key_bytes, value_bytes, ttl_seconds: None, client_flags: false }
}

fn fill(server: &Server, data: &Data, first: u64, records: u64) -> Report {
    let (key, value) = (data.key_bytes as usize, data.value_bytes as usize);
    let plan = Requests {
        first,
        sizes: Sizes::Fixed { key, value },
        connections: 4,
        ..Requests::new(server.address(), Workload::Fill, records)
    };
    run(&plan, None).expect("a run to its end")
}

fn tier(server: &Server, name: &str) -> f64 {
    let mut client = Client::connect(server.address()).expect("a connection");
    let stats = client.stats("tiers").expect("counters");
    let found = stats.iter().find(|(key, _)| key.as_str() == name || key.ends_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {stats:?}")).1.parse().expect("a number")
}

/// Waits until the server has nothing more to write.
fn settle(server: &Server) {
    let end = Instant::now() + Duration::from_secs(30);
    let (mut last, mut quiet) = (-1.0, 0);
    while quiet < 5 && Instant::now() < end {
        let written = tier(server, ":written_bytes");
        quiet = if written == last { quiet + 1 } else { 0 };
        last = written;
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn near(what: &str, model: f64, measured: f64, share: f64) {
    println!("{what}: model {model:.3}, server {measured:.3}");
    assert!((model / measured - 1.0).abs() < share, "{what}: {model} for {measured}");
}

#[test]
fn bytes_written_are_as_planned() {
    if !is_terrace() {
        println!("skipped: bytes_written_are_as_planned: another server");
        return;
    }
    for (key, value, records) in [(20.0, 80.0, 200_000), (16.0, 800.0, 40_000)] {
        let data = data(key, value);
        let server = Server::start("-m 16 --tier ssd:DIR/tier:64m");
        assert_eq!(fill(&server, &data, 0, records).errors, 0);
        settle(&server);
        let written = tier(&server, ":written_bytes") / tier(&server, ":stored_payload_bytes");
        let layout = Layout::new(&data, FLASH, MEMORY).expect("records fit");
        near("bytes written per byte", layout.write_amplification, written, 0.03);
        near("segment bytes", layout.segment_bytes, tier(&server, ":segment_bytes"), 0.001);
    }
}

#[test]
fn a_full_tier_holds_what_was_planned() {
    if !is_terrace() {
        println!("skipped: a_full_tier_holds_what_was_planned: another server");
        return;
    }
    let data = data(20.0, 80.0);
    let server = Server::start("-m 16 --tier ssd:DIR/tier:64m");
    let mut first = 0;
    while tier(&server, "evictions") == 0.0 && first < 2_000_000 {
        fill(&server, &data, first, 50_000);
        first += 50_000;
    }
    fill(&server, &data, first, 50_000);
    settle(&server);
    let layout = Layout::new(&data, FLASH, MEMORY).expect("records fit");
    near("records of a full tier", layout.capacity(FLASH), tier(&server, ":records"), 0.05);
    let index: f64 = ["memory_sealed_index", "memory_page_tables", "memory_segment_table"]
        .map(|name| tier(&server, name))
        .iter()
        .sum();
    let measured = index / tier(&server, ":records");
    near("DRAM bytes of index per record", layout.index_bytes_per_record, measured, 0.08);
}
