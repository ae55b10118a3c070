//! A server to compare the model with, and the load it gets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
pub(crate) use terrace_e2e::skip;
use terrace_e2e::{Server, is_terrace};
use terrace_load::{Client, Plan as Requests, Process, Report, Sizes, Workload, run};
use terrace_plan::{Data, Drive, Load, Node, Plan, TIER_FULL, TierSize};

pub(crate) const MIB: f64 = (1 << 20) as f64;
pub(crate) const MEMORY: f64 = 16.0 * MIB;
pub(crate) const FLASH: f64 = 64.0 * MIB;

/// Says so if the server under test is not Terrace.
pub(crate) fn is_other_server(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server");
    }
    !is_terrace()
}

pub(crate) fn data(key_bytes: f64, value_bytes: f64) -> Data {
    Data { items: 1e6, key_bytes, value_bytes, ttl_seconds: None, client_flags: false }
}

/// A running Terrace.
pub(crate) struct Measured(Server);

impl Measured {
    pub(crate) fn start(memory_bytes: f64, flash_bytes: f64) -> Self {
        Self::start_with("", memory_bytes, flash_bytes)
    }

    /// With more flags.
    pub(crate) fn start_with(flags: &str, memory_bytes: f64, flash_bytes: f64) -> Self {
        let (memory, flash) = (memory_bytes / MIB, flash_bytes / MIB);
        Self::of(&format!("-m {memory} --tier ssd:DIR/tier:{flash}m {flags}"))
    }

    /// With these flags only.
    pub(crate) fn of(flags: &str) -> Self {
        Self(Server::start(flags))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// A counter of `stats tiers`, by its name or the end of it.
    pub(crate) fn tier(&self, name: &str) -> f64 {
        self.stat("tiers", name)
    }

    /// A counter of `stats`.
    pub(crate) fn general(&self, name: &str) -> f64 {
        self.stat("", name)
    }

    fn stat(&self, what: &str, name: &str) -> f64 {
        let stats = Client::connect(self.0.address()).and_then(|mut client| client.stats(what));
        let stats = stats.unwrap_or_else(|error| panic!("{error}; {}", self.said()));
        let found = stats.iter().find(|(key, _)| key.as_str() == name || key.ends_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {stats:?}")).1.parse().expect("a number")
    }

    /// Microseconds of processor time per request of a load.
    pub(crate) fn cost(&self, plan: &Requests) -> f64 {
        let process = Process::new(self.0.pid()).expect("a running server");
        run(plan, Some(&process)).expect("reads").server_cpu_us.expect("it was looked at")
    }

    /// Bytes that the kernel wrote for it.
    pub(crate) fn written(&self) -> f64 {
        let process = Process::new(self.0.pid()).expect("a running server");
        process.usage().drive_write_bytes as f64
    }

    /// For messages: a server that died said why.
    fn said(&self) -> String {
        format!("the server said: {}", self.0.output())
    }
}

/// Requests for records of such sizes.
pub(crate) fn requests(
    server: &Measured,
    data: &Data,
    workload: Workload,
    records: u64,
    number: u64,
) -> Requests {
    let (key, value) = (data.key_bytes as usize, data.value_bytes as usize);
    Requests {
        sizes: Sizes::Fixed { key, value },
        connections: 4,
        ttl: data.ttl_seconds.unwrap_or(0.0) as u32,
        flags: u32::from(data.client_flags),
        any_version: true,
        end: terrace_load::End::Requests(number),
        ..Requests::new(server.0.address(), workload, records)
    }
}

/// Stores records, each once.
pub(crate) fn fill(server: &Measured, data: &Data, first: u64, records: u64) -> Report {
    let plan = Requests { first, ..requests(server, data, Workload::Fill, records, records) };
    run(&plan, None).unwrap_or_else(|error| panic!("{error}; {}", server.said()))
}

/// Waits until the server has nothing more to write.
pub(crate) fn settle(server: &Measured) {
    let end = Instant::now() + Duration::from_secs(60);
    let (mut last, mut quiet) = (-1.0, 0);
    while quiet < 5 && Instant::now() < end {
        let written = server.tier(":written_bytes");
        quiet = if written == last { quiet + 1 } else { 0 };
        last = written;
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The model's plan for one node with that much memory and a drive of [`FLASH`].
pub(crate) fn plan(data: &Data, load: Load, memory_bytes: f64, hits: &dyn Fn(f64) -> f64) -> Plan {
    plan_on(FLASH, data, load, memory_bytes, hits)
}

/// The same with a drive of another size.
pub(crate) fn plan_on(
    capacity_bytes: f64,
    data: &Data,
    load: Load,
    memory_bytes: f64,
    hits: &dyn Fn(f64) -> f64,
) -> Plan {
    let drive = Drive { capacity_bytes, ..Drive::class("nvme-read-1.92t").expect("a class") };
    let (network_bits, cores, tier_full) = (1e10, 1.0, TIER_FULL);
    let (drives, tier) = (1.0, TierSize::Whole);
    let node = Node { memory_bytes, drive, drives, tier, network_bits, cores, tier_full };
    Plan::new(data, load, &node, None, Some(1), hits).expect("a plan")
}

/// Fails if the model is farther from the server than `share`.
pub(crate) fn near(what: &str, model: f64, measured: f64, share: f64) {
    println!("{what}: model {model:.3}, server {measured:.3}");
    assert!((model / measured - 1.0).abs() < share, "{what}: {model} for {measured}");
}
