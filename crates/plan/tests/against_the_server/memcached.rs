//! What the model says of memcached and of extstore beside the real ones.

use crate::common::{data, near, skip};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_load::{Client, Plan as Requests, Sizes, Workload, run};
use terrace_plan::{Data, extstore_dram_bytes, memcached_item_bytes};

struct Memcached {
    child: Child,
    port: u16,
}

impl Memcached {
    /// None where it is not installed, which is told.
    fn start(test: &str, flags: &str) -> Option<Self> {
        let port = terrace_e2e::free_port();
        let child = Command::new("memcached")
            .args(flags.split_whitespace())
            .args(["-t", "1", "-u", "root", "-l", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            skip(test, "memcached is not installed");
            return None;
        };
        let server = Self { child, port };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(server.address()).is_err() {
            assert!(Instant::now() < end, "memcached {flags} does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fill(server: &Memcached, data: &Data, records: u64, rate: Option<f64>) {
    let (key, value) = (data.key_bytes as usize, data.value_bytes as usize);
    let sizes = Sizes::Fixed { key, value };
    let plan = Requests { sizes, rate, ..Requests::new(server.address(), Workload::Fill, records) };
    assert_eq!(run(&plan, None).expect("a fill").errors, 0);
}

fn stat(server: &Memcached, what: &str, name: &str) -> f64 {
    let stats = Client::connect(server.address()).and_then(|mut client| client.stats(what));
    stats.expect("counters")[name].parse().expect("a number")
}

#[test]
fn an_item_of_memcached_takes_what_was_planned() {
    for (key, value, records) in [(20.0, 80.0, 150_000), (16.0, 800.0, 40_000)] {
        let name = "an_item_of_memcached_takes_what_was_planned";
        let Some(server) = Memcached::start(name, "-m 256") else { return };
        let data = data(key, value);
        fill(&server, &data, records, None);
        assert_eq!(stat(&server, "", "evictions"), 0.0);
        let items = stat(&server, "", "curr_items");
        // A page of 1 MiB for each of its slab classes, used or not, is there before any item.
        let taken = stat(&server, "slabs", "total_malloced") + stat(&server, "", "hash_bytes");
        near("bytes of an item in memcached", memcached_item_bytes(&data), taken / items, 0.06);
    }
}

#[test]
fn a_record_on_flash_takes_the_dram_of_extstore_that_was_planned() {
    let name = "a_record_on_flash_takes_the_dram_of_extstore_that_was_planned";
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("ext");
    let options = "ext_page_size=8,ext_wbuf_size=4,ext_item_size=64";
    let flags = format!("-m 64 -o {options},ext_path={}:256m", path.display());
    let Some(server) = Memcached::start(name, &flags) else { return };
    let (data, records) = (data(16.0, 800.0), 120_000);
    // Slowly: it evicts what it can't write out in time.
    fill(&server, &data, records, Some(20_000.0));
    let mut client = Client::connect(server.address()).expect("a connection");
    let slabs = client.stats("slabs").expect("counters");
    let of = |class: &str, name: &str| slabs.get(&format!("{class}:{name}"))?.parse::<f64>().ok();
    let mut classes: Vec<(f64, f64)> = (1..64)
        .map(|class: u32| class.to_string())
        .filter_map(|class| Some((of(&class, "chunk_size")?, of(&class, "used_chunks")?)))
        .filter(|(_, used)| *used > 0.0)
        .collect();
    classes.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Those on flash have left nothing but their headers, all in the smallest chunks in use.
    let (chunk, headers) = classes[0];
    assert!(headers > records as f64 / 10.0, "hardly any went to flash: {classes:?}");
    let hash = stat(&server, "", "hash_bytes") / stat(&server, "", "curr_items");
    near("DRAM of a record of extstore", extstore_dram_bytes(&data), chunk + hash, 0.1);
}
