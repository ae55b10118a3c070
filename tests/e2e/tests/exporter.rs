//! What prometheus/memcached_exporter makes of our statistics: with the program itself where it could
//! be built, and name by name of all that it reads, as its source has them. And what Prometheus' linter
//! says of our own metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{Client, Server, flash_server, free_port, is_terrace, skip, wait_until};

/// Where scripts/tools.sh builds it.
const EXPORTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/memcached_exporter");

/// What it reads of `stats`. Each is left out of its page, without a word, where it is missing.
const GENERAL: &str = "uptime time version pointer_size get_hits get_misses delete_hits delete_misses \
    incr_hits incr_misses decr_hits decr_misses cas_hits cas_misses cas_badval touch_hits \
    touch_misses cmd_flush cmd_set rusage_user rusage_system bytes limit_maxbytes curr_items \
    total_items bytes_read bytes_written curr_connections total_connections rejected_connections \
    conn_yields listen_disabled_num evictions reclaimed lru_crawler_starts direct_reclaims \
    crawler_items_checked crawler_reclaimed moves_to_cold moves_to_warm moves_within_lru \
    accepting_conns";
const SETTINGS: &str = "maxconns lru_crawler lru_crawler_sleep lru_crawler_tocrawl \
    lru_maintainer_thread hot_lru_pct warm_lru_pct hot_max_factor warm_max_factor";
const ITEMS: &str = "number age hits_to_hot hits_to_warm hits_to_cold hits_to_temp \
    crawler_reclaimed evicted evicted_nonzero evicted_time evicted_unfetched expired_unfetched \
    outofmemory reclaimed tailrepairs moves_to_cold moves_to_warm moves_within_lru number_hot \
    number_warm number_cold age_hot age_warm";
const SLABS: &str = "chunk_size chunks_per_page total_pages total_chunks used_chunks free_chunks \
    free_chunks_end get_hits cmd_set delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits";
/// Read where a server has them all, which the last one tells.
const EXTSTORE: &str = "extstore_compact_lost extstore_compact_rescues extstore_compact_skipped \
    extstore_page_allocs extstore_page_evictions extstore_page_reclaims extstore_pages_free \
    extstore_pages_used extstore_objects_evicted extstore_objects_read extstore_objects_written \
    extstore_objects_used extstore_bytes_evicted extstore_bytes_written extstore_bytes_read \
    extstore_bytes_used extstore_bytes_fragmented extstore_io_queue extstore_limit_maxbytes";

fn stats(client: &mut Client, what: &str) -> BTreeMap<String, String> {
    client.send(format!("stats {what}").trim_end().to_string() + "\r\n");
    let mut all = BTreeMap::new();
    loop {
        let line = client.line();
        let Some((name, value)) = line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' '))
        else {
            assert_eq!(line, "END", "stats {what}");
            return all;
        };
        all.insert(name.to_string(), value.to_string());
    }
}

/// The exporter takes numbers, times with a point, and `yes` and `no`.
fn assert_read(all: &BTreeMap<String, String>, prefix: &str, names: &str) {
    for name in names.split_whitespace() {
        let full = format!("{prefix}{name}");
        let Some(value) = all.get(&full) else { panic!("there is no {full}") };
        let is_read = match name {
            "version" => value.starts_with(|first: char| first.is_ascii_digit()),
            _ if name.starts_with("rusage") => value.split('.').count() == 2,
            "lru_crawler" | "lru_maintainer_thread" => value == "yes" || value == "no",
            _ => value.parse::<f64>().is_ok(),
        };
        assert!(is_read, "{full} is {value:?}");
    }
}

/// The same commands for both servers that are compared.
fn exercise(client: &mut Client) {
    client.check("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.check("get a\r\nget none\r\n", "VALUE a 0 1\r\n1\r\nEND\r\nEND\r\n");
    client.check("incr a 1\r\ndecr a 1\r\ntouch a 100\r\n", "2\r\n1\r\nTOUCHED\r\n");
    client.check("cas a 0 0 1 999999999999\r\n2\r\n", "EXISTS\r\n");
    client.check("delete none\r\n", "NOT_FOUND\r\n");
    for at in 0..100 {
        assert!(client.set(&format!("key{at}"), &[b'x'; 500]));
    }
}

#[test]
fn every_name_that_the_exporter_reads_is_there() {
    if !is_terrace() {
        return skip("every_name_that_the_exporter_reads_is_there", "of Terrace only");
    }
    let server = flash_server("");
    let mut client = server.client();
    exercise(&mut client);
    let general = stats(&mut client, "");
    assert_read(&general, "", GENERAL);
    if general.contains_key("extstore_limit_maxbytes") {
        assert_read(&general, "", EXTSTORE);
    }
    assert_read(&stats(&mut client, "settings"), "", SETTINGS);
    assert_read(&stats(&mut client, "items"), "items:1:", ITEMS);
    let slabs = stats(&mut client, "slabs");
    assert_read(&slabs, "1:", SLABS);
    assert_read(&slabs, "", "total_malloced");
}

/// memcached, or the exporter; ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[&str], port: u16) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Ended(command.spawn().expect("it is installed"));
    wait_until(program, || TcpStream::connect(("127.0.0.1", port)).ok());
    child
}

/// The names of the metrics that the exporter tells of the server at `address`.
fn exported(address: SocketAddr) -> Vec<String> {
    let port = free_port();
    let listen = format!("--web.listen-address=127.0.0.1:{port}");
    let memcached = format!("--memcached.address={address}");
    let _exporter = start(EXPORTER, &[&listen, &memcached], port);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it answers");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    assert!(page.contains("\nmemcached_up 1\n"), "{page}");
    let names = page.lines().filter(|line| line.starts_with("memcached_"));
    // Classes are memcached's own affair: Terrace has one.
    let plain = |line: &str| line.split([' ', '{']).next().unwrap_or_default().to_string();
    let mut names: Vec<_> = names.map(plain).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn the_exporter_tells_all_of_terrace_that_it_tells_of_memcached() {
    let test = "memcached_exporter";
    for program in [EXPORTER, "memcached"] {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(test, &format!("{program} is not there; scripts/tools.sh installs it"));
        }
    }
    let server = Server::try_start("-m 64", Arc::new(TempDir::new().expect("a directory")));
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.output));
    let port = free_port();
    let arguments = ["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"];
    let _memcached = start("memcached", &arguments, port);
    let theirs = SocketAddr::from(([127, 0, 0, 1], port));
    exercise(&mut Client::connect(theirs));
    exercise(&mut server.client());
    let ours = exported(server.address());
    let missing: Vec<_> = exported(theirs).into_iter().filter(|n| !ours.contains(n)).collect();
    assert!(missing.is_empty(), "not told of Terrace: {missing:?}");
}

/// The page at `/metrics` of a server that has all kinds of them to tell.
fn own_page() -> String {
    let port = free_port();
    let server = flash_server(&format!("-t 2 --admin 127.0.0.1:{port}"));
    exercise(&mut server.client());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it answers");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page.split_once("\r\n\r\n").expect("a head").1.to_string()
}

/// Gives `page` to the linter; says whether it found nothing, and what it said.
fn lint(page: &str) -> (bool, String) {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/exporter");
    let mut command = Command::new("timeout");
    command.args(["300", "go", "run", "-C", module, "./lint"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("timeout runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // One that failed to build reads nothing, which its output tells.
    let _ = stdin.write_all(page.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}

#[test]
fn our_metrics_keep_prometheus_conventions() {
    let test = "our_metrics_keep_prometheus_conventions";
    if !is_terrace() {
        return skip(test, "of Terrace only");
    }
    // scripts/tools.sh got the linter's modules along with the exporter.
    if Command::new(EXPORTER).arg("--version").output().is_err() {
        return skip(test, "no Go, or its modules can't be had");
    }
    let (is_fine, found) = lint("# TYPE took_ms counter\ntook_ms 1\n");
    if !found.contains("took_ms") {
        return skip(test, &format!("the linter does not run: {found}"));
    }
    assert!(!is_fine && found.contains("_total"), "it finds nothing: {found}");
    let (is_fine, found) = lint(&own_page());
    assert!(is_fine, "{found}");
}
