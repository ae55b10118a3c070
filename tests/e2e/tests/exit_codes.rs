//! How a server ends that can't start: with the code that memcached ends with, and one line.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use terrace_e2e::{PATIENCE, Server, free_port, is_terrace, run_as_root, skip};

/// Command lines that memcached refuses, with its exit code.
const REFUSED: &[(i32, &str)] = &[
    // getopt's errors.
    (1, "-Q"),
    (1, "--bogus"),
    (1, "--daemon=1"),
    (1, "--en"),
    (1, "--port"),
    (1, "-m"),
    (1, "-o"),
    // Values that are none.
    (1, "-c 0"),
    (1, "-c abc"),
    (1, "-t 0"),
    (1, "-t abc"),
    (1, "-R 0"),
    (1, "-f 1"),
    (1, "-f abc"),
    (1, "-n 0"),
    (1, "-N abc"),
    (64, "-N 100"),
    (1, "-Y /nonexistent"),
    // Values that memcached calls wrong usage.
    (64, "-p 70000"),
    (64, "-U 70000"),
    (64, "-m abc"),
    (64, "-m 0"),
    (64, "-I 1"),
    (64, "-I 2g"),
    (64, "-I abc"),
    (64, "-B foo"),
    // Settings that exclude each other.
    (64, "-I 64m"),
    (64, "-o hot_lru_pct=79,warm_lru_pct=20"),
    (64, "-Z"),
    (64, "-Z -o ssl_chain_cert=/nonexistent"),
    // The system's refusals.
    (67, "-u no-such-user-here"),
    (71, "-s /nonexistent/socket"),
    // Options.
    (1, "-o bogus"),
    (1, "-o ext_path"),
    (1, "-o ext_path=/nonexistent/file"),
    (1, "-o idle_timeout"),
    (1, "-o read_buf_mem_limit"),
    (1, "-o read_buf_mem_limit=abc"),
    (1, "-o ssl_chain_cert"),
    (1, "-o ssl_verify_mode=9"),
    (1, "-o ssl_keyformat=foo"),
    (1, "-o hashpower=5"),
    (1, "-o hashpower=99"),
    (1, "-o hash_algorithm=foo"),
    (1, "-o slab_automove=9"),
    (1, "-o slab_automove_ratio=abc"),
    (1, "-o slab_automove_window=1"),
    (1, "-o tail_repair_time=1"),
    (1, "-o lru_crawler_sleep=9999999"),
    (1, "-o lru_crawler_tocrawl=abc"),
    (1, "-o hot_lru_pct=0"),
    (1, "-o warm_lru_pct=80"),
    (1, "-o hot_max_factor=0"),
    (1, "-o warm_max_factor=abc"),
    (1, "-o temporary_ttl"),
    (1, "-o watcher_logbuf_size=abc"),
    (1, "-o worker_logbuf_size"),
    (1, "-o ext_page_size=abc"),
    (1, "-o ext_wbuf_size=abc"),
    (1, "-o ext_threads=abc"),
    (1, "-o ext_item_size=abc"),
    (1, "-o ext_item_age=abc"),
    (1, "-o ext_low_ttl=abc"),
    (1, "-o ext_recache_rate=abc"),
    (1, "-o ext_compact_under=abc"),
    (1, "-o ext_drop_under=abc"),
    (1, "-o ext_max_frag=abc"),
    (1, "-o ext_max_sleep=abc"),
    (1, "-o proxy_config=/nonexistent"),
];

#[test]
fn refusals_end_as_memcacheds_do() {
    const TEST: &str = "refusals_end_as_memcacheds_do";
    if !is_terrace() {
        return skip(TEST, "it compares Terrace with memcached by itself");
    }
    let memcached = Path::new("/usr/bin/memcached");
    if !memcached.exists() {
        skip(TEST, "no memcached to compare with: only the table was looked at");
    }
    for (code, flags) in REFUSED {
        if *code == 67 && !run_as_root() {
            continue;
        }
        // Some are refused only once it is known who is to serve and where.
        let line = match *flags {
            "-s /nonexistent/socket" | "-p 70000" | "-U 70000" | "--port" => flags.to_string(),
            flags if flags.starts_with("-Z") => format!("-p {} {flags}", free_port()),
            flags => format!("-p 0 -s DIR/socket {flags}"),
        };
        // In front, where no flag takes it for its missing value.
        let line = match run_as_root() && *code != 67 {
            true => format!(" -u root {line}"),
            false => line,
        };
        let ended = Server::run(&line);
        assert_eq!(ended.code, Some(*code), "{flags}: {}", ended.output);
        // Once the command line is understood, the first line is the version.
        let lines = if *code == 71 { 2 } else { 1 };
        assert_eq!(ended.output.trim_end().lines().count(), lines, "{flags}: {}", ended.output);
        // Debian's has no TLS, whose absence is another refusal of the same code.
        if memcached.exists() {
            assert_eq!(code_of(memcached, &line), Some(*code), "memcached {line}");
        }
    }
}

/// How a program ends with these flags; `None` if it serves.
fn code_of(program: &Path, flags: &str) -> Option<i32> {
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().to_str().expect("a path of text");
    let mut command = Command::new(program);
    command.args(flags.split_whitespace().map(|flag| flag.replace("DIR", path)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("memcached starts");
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status.code();
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_without_a_pid_file_serves() {
    let mut server = Server::start("-m 64 -P /nonexistent/pid");
    server.assert_alive();
    if is_terrace() {
        let output = server.output();
        assert!(output.contains("no pid file: -P /nonexistent/pid: "), "{output}");
    }
}
