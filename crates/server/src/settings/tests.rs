//! Command lines as people write them.

use super::*;
use proptest::prelude::*;

fn local(path: &str) -> Place {
    Place::Local(path.into())
}

fn invoke(line: &str) -> Result<Invocation, UsageError> {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    Invocation::parse(&arguments)
}

pub(super) fn settings(line: &str) -> Settings {
    match invoke(line) {
        Ok(Invocation::Serve(settings)) => *settings,
        other => panic!("{line:?} gave {other:?}"),
    }
}

fn error(line: &str) -> String {
    match invoke(line) {
        Err(error) => error.to_string(),
        other => panic!("{line:?} gave {other:?}"),
    }
}

#[test]
fn nothing_given_is_memcached_default() {
    assert_eq!(settings(""), Settings::default());
    assert_eq!(settings("serve"), Settings::default());
}

#[test]
fn getopt_forms_mean_the_same() {
    let expected = Settings {
        memory_bytes: 128 << 20,
        tcp_port: Port::At(1),
        verbosity: 2,
        daemon: true,
        ..Settings::default()
    };
    for line in [
        "-m 128 -p 1 -v -v -d",
        "-m128 -p1 -vvd",
        "-vvdm 128 -p1",
        "--memory-limit=128 --port 1 --verbose --verbose --daemon",
        "serve --memory-l 128 --po=1 -vv --daem",
        "-m 128m -p 1 -vv -d",
    ] {
        assert_eq!(settings(line), expected, "{line}");
    }
}

#[test]
fn every_common_flag_lands_in_its_field() {
    let s = settings(
        "-p 0 -s /tmp/s -a 770 -c 10 -t 2 -I 2m -M -C -R 5 -b 7 -u nobody -P /p -d -r -k -L -A -F -X -W \
         -D / -f 1.1 -n 64 -U 0 --public-udp -B ascii -l 127.0.0.1:1,::1 --background-threads 3 --io-engine pool --log-format json --admin /a/s --admin-token-file /t --admin-host A.b. \
         --state /s --roster /r --tier-wait 3 --durability strict --on-mismatch refuse --stop-timeout 3 --write-budget 1dwpd,unlimited --tier-full 70 --write-policy reused-once --tier ssd:/a:1g -o ext_path=/b:64m,idle_timeout=9,no_maxconns_fast,track_sizes,read_buf_mem_limit=3",
    );
    let info = |text: &str| Note::Info(text.into());
    let expected = Settings {
        tier_files: Vec::new(),
        tcp_port: Port::Off,
        udp_port: Port::Off,
        public_udp: true,
        tls: TlsSettings::default(),
        admin: Some(AdminAddress::Unix("/a/s".into())),
        admin_token_file: Some("/t".into()),
        admin_hosts: vec!["a.b".into()],
        listen: vec![
            ListenAddress { host: "127.0.0.1".into(), port: Some(1), tls: None, protocol: None },
            ListenAddress { host: "::1".into(), port: None, tls: None, protocol: None },
        ],
        unix_socket: Some("/tmp/s".into()),
        unix_mask: 0o770,
        listen_backlog: 7,
        connections_max: 10,
        refuse_when_full: false,
        idle_timeout_s: 9,
        connection_buffer_bytes_max: 3 << 20,
        threads: 2,
        requests_per_event: 5,
        protocol: Protocol::Ascii,
        ascii_passwords: None,
        sasl: false,
        sasl_passwords: None,
        memory_bytes: 64 << 20,
        group_bytes: None,
        evict: false,
        cas: false,
        item_bytes_max: 2 << 20,
        tiers: vec![
            TierSpec {
                place: local("/a"),
                bytes: Some(1 << 30),
                read_depth: None,
                is_below: false,
            },
            TierSpec {
                place: local("/b"),
                bytes: Some(64 << 20),
                read_depth: None,
                is_below: false,
            },
        ],
        write_rates: vec![WriteRate::DrivesPerDay(1.0), WriteRate::Unlimited],
        tier_full_percent: 70,
        write_policy: WritePolicy::ReusedOnce,
        background_threads: Some(3),
        io_engine: IoEngine::Pool,
        log_format: LogFormat::Json,
        state_dir: Some("/s".into()),
        roster: Some("/r".into()),
        tier_wait_s: 3,
        durability: Durability::Power,
        on_mismatch: OnMismatch::Refuse,
        stop_timeout_s: 3,
        shutdown_command: true,
        flush_all_command: false,
        dump_commands: false,
        watch_command: false,
        count_prefixes: true,
        prefix_delimiter: b'/',
        verbosity: 0,
        daemon: true,
        pid_file: Some("/p".into()),
        user: Some("nobody".into()),
        core_dumps: true,
        lock_memory: true,
        huge_pages: true,
        track_sizes: true,
        slab_growth_factor: 1.1,
        slab_chunk_bytes_min: 64,
        napi_ids: 0,
        shown: Default::default(),
        notes: vec![
            info("--admin-host A.b.: no effect, no --admin on a TCP port without a token"),
            info("--public-udp: no effect, there is no -U"),
        ],
    };
    assert_eq!(s, expected);
}

#[test]
fn flags_that_need_another_are_noted_without_it() {
    for (line, says) in [
        ("--durability strict", "--durability strict: no effect, there is no --tier"),
        ("--write-policy all-once", "--write-policy all-once: no effect, there is no --tier"),
        ("--write-budget 1dwpd", "--write-budget 1dwpd: no effect, there is no --tier"),
        ("--tier-full 70", "--tier-full 70: no effect, there is no --tier"),
        ("--admin-token-file /t", "--admin-token-file /t: no effect, there is no --admin"),
        ("--admin-host h", "--admin-host h: no effect, no --admin on a TCP port without a token"),
        ("--public-udp", "--public-udp: no effect, there is no -U"),
        ("-a 700", "-a 700: no effect, there is no -s"),
        (
            "-o ssl_chain_cert=/c,ssl_key=/k",
            "-o ssl_chain_cert, ssl_key: without -Z connections are not encrypted",
        ),
    ] {
        let notes = settings(line).notes;
        let texts: Vec<_> = notes.iter().map(Note::text).collect();
        assert_eq!(texts, [says], "{line}");
    }
    for line in [
        "--tier ssd:/a:1g --durability strict --write-policy reused-once --write-budget 1dwpd --tier-full 70",
        "--admin 127.0.0.1:1 --admin-token-file /t",
        "--admin 127.0.0.1:1 --admin-host h",
        "--state /s --on-mismatch refuse",
        "-U 1 --public-udp",
        "-s /s -a 700",
        "-Z -o ssl_chain_cert=/c,ssl_key=/k",
    ] {
        assert!(settings(line).notes.is_empty(), "{line}: {:?}", settings(line).notes);
    }
}

#[test]
fn options_without_effect_are_noted() {
    let s = settings("-e /e -o hashpower=20,slab_automove,lru_crawler,modern,ext_threads=4");
    assert_eq!(s.notes.len(), 6, "{:?}", s.notes);
    assert!(s.notes[1].text().starts_with("-o hashpower=20: "), "{:?}", s.notes);
    assert_eq!(s.shown["hashpower_init"], "20");
    assert_eq!(s.shown["slab_automove"], "1");
}

#[test]
fn what_memcached_takes_and_does_not_look_at_is_noted() {
    let s = settings("-o no_maxconns_fast=0 -U 11211 -s /s");
    assert_eq!((s.refuse_when_full, s.udp_port), (false, Port::Off));
    assert!(s.notes[0].text().contains("takes no value"), "{:?}", s.notes);
    assert!(s.notes[1].text().starts_with("-U: "), "{:?}", s.notes);
    let s = settings("-Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=1");
    assert_eq!(s.tls.verify, Verify::None);
    assert!(s.notes[0].text().starts_with("-o ssl_verify_mode=1: "), "{:?}", s.notes);
}

#[test]
fn ports_are_numbers_or_off_or_any() {
    let ports = |line| {
        let s = settings(line);
        (s.tcp_port, s.udp_port)
    };
    assert_eq!(ports("-p -1"), (Port::Any, Port::Off));
    assert_eq!(ports("-p 1 -U 2"), (Port::At(1), Port::At(2)));
    assert_eq!(ports("-U 2"), (Port::At(2), Port::At(2)));
    assert_eq!(ports("-U 0"), (Port::At(11211), Port::Off));
    assert_eq!(ports("-p 0 -U 2"), (Port::Off, Port::At(2)));
    assert!(settings("-p 0 -U 2").notes.is_empty());
    assert!(settings("-p 0").notes[0].text().starts_with("-p 0: no client gets in"));
}

#[test]
fn each_address_gets_its_sockets() {
    let s = settings(
        "-p 1 -U 2 -l 127.0.0.1,notls:127.0.0.1:3 -Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_ca_cert=/a",
    );
    let found: Vec<_> = s
        .endpoints()
        .unwrap()
        .iter()
        .map(|e| (e.address.port(), e.is_udp, e.tls == ListenTls::Off))
        .collect();
    assert_eq!(found, [(1, false, false), (2, true, true), (3, false, true), (3, true, true)]);
    for all in ["", "-l *", "-l *:11211", "-l *,*"] {
        let found: Vec<_> =
            settings(all).endpoints().unwrap().iter().map(|e| (e.address, e.is_literal)).collect();
        let (v4, v6) = ("0.0.0.0:11211".parse().unwrap(), "[::]:11211".parse().unwrap());
        assert_eq!(found, [(v4, false), (v6, false)], "{all}");
    }
    assert_eq!(settings("-s /s").endpoints().unwrap().len(), 0);
}

/// Every flag and option of memcached 1.6.45, with a value that it takes.
const MEMCACHED_FLAGS: &[&str] = &[
    "-p 1",
    "--port=1",
    "-U 1",
    "--udp-port=1",
    "-s /s",
    "--unix-socket=/s",
    "-a 700",
    "--unix-mask=700",
    "-A",
    "--enable-shutdown",
    "-l 127.0.0.1",
    "--listen=127.0.0.1",
    "-d",
    "--daemon",
    "-r",
    "--enable-coredumps",
    "-u nobody",
    "--user=nobody",
    "-m 64",
    "--memory-limit=64",
    "-M",
    "--disable-evictions",
    "-c 10",
    "--conn-limit=10",
    "-k",
    "--lock-memory",
    "-v",
    "-vv",
    "-vvv",
    "--verbose",
    "-P /p",
    "--pidfile=/p",
    "-f 1.2",
    "--slab-growth-factor=1.2",
    "-n 64",
    "--slab-min-size=64",
    "-L",
    "--enable-largepages",
    "-D :",
    "-t 4",
    "--threads=4",
    "-R 20",
    "--max-reqs-per-event=20",
    "-C",
    "--disable-cas",
    "-b 10",
    "--listen-backlog=10",
    "-B auto",
    "-B ascii",
    "--protocol=auto",
    "-I 2m",
    "--max-item-size=2m",
    "-F",
    "--disable-flush-all",
    "-X",
    "--disable-dumping",
    "-W",
    "--disable-watch",
    "-e /e",
    "--memory-file=/e",
    "-N 1",
    "--napi-ids=1",
    "--napi_ids=1",
    "-Z -o ssl_chain_cert=/c,ssl_key=/k",
    "--enable-ssl -o ssl_chain_cert=/c,ssl_key=/k",
];
const MEMCACHED_OPTIONS: &[&str] = &[
    "maxconns_fast",
    "no_maxconns_fast",
    "hashpower=20",
    "no_hashexpand",
    "hash_algorithm=murmur3",
    "tail_repair_time=10",
    "slab_reassign",
    "no_slab_reassign",
    "slab_automove",
    "slab_automove=2",
    "no_slab_automove",
    "slab_automove_ratio=0.8",
    "slab_automove_window=10",
    "slab_automove_freeratio=0.01",
    "slab_sizes=64-128",
    "slab_chunk_max=512",
    "no_chunked_items",
    "track_sizes",
    "lru_crawler",
    "no_lru_crawler",
    "lru_crawler_sleep=100",
    "lru_crawler_tocrawl=0",
    "lru_maintainer",
    "no_lru_maintainer",
    "hot_lru_pct=20",
    "warm_lru_pct=40",
    "hot_max_factor=0.2",
    "warm_max_factor=2.0",
    "temporary_ttl=61",
    "idle_timeout=10",
    "watcher_logbuf_size=256",
    "worker_logbuf_size=64",
    "read_buf_mem_limit=10",
    "resp_obj_mem_limit=10",
    "inline_ascii_resp",
    "no_inline_ascii_resp",
    "modern",
    "no_modern",
    "drop_privileges",
    "no_drop_privileges",
    "relaxed_privileges",
    "sock_cookie_id=1",
    "ext_path=/x:64m",
    "ext_page_size=64",
    "ext_wbuf_size=4",
    "ext_threads=1",
    "ext_io_depth=1",
    "ext_item_size=512",
    "ext_item_age=10",
    "ext_low_ttl=10",
    "ext_drop_unread",
    "ext_recache_rate=2000",
    "ext_compact_under=5",
    "ext_drop_under=5",
    "ext_max_frag=0.8",
    "ext_max_sleep=1000000",
    "ssl_chain_cert=/c",
    "ssl_key=/k",
    "ssl_keyformat=PEM",
    "ssl_verify_mode=0",
    "ssl_ciphers=ECDHE-RSA-AES128-GCM-SHA256",
    "ssl_ca_cert=/a",
    "ssl_wbuf_size=16",
    "ssl_session_cache",
    "ssl_kernel_tls",
    "ssl_min_version=2",
];

#[test]
fn everything_that_memcached_takes_is_taken() {
    for line in MEMCACHED_FLAGS {
        assert!(matches!(invoke(line), Ok(Invocation::Serve(_))), "{line}: {:?}", invoke(line));
    }
    for option in MEMCACHED_OPTIONS {
        let line = format!("-o {option}");
        assert!(matches!(invoke(&line), Ok(Invocation::Serve(_))), "{line}: {:?}", invoke(&line));
    }
    assert!(invoke(&format!("-o {}", MEMCACHED_OPTIONS.join(","))).is_ok());
    // Known, and refused with a reason: a server that ignored it would not be what was asked for.
    for option in ["proxy_config=/l", "proxy_arg=x", "proxy_uring", "proxy_memprofile"] {
        assert!(error(&format!("-o {option}")).contains("no built-in proxy"), "{option}");
    }
}

#[test]
fn errors_say_what_to_write() {
    for (line, says) in [
        ("-Q", "-Q: no such flag"),
        ("-T 4", "did you mean -t (--threads)?"),
        ("--thread-count 4", "--thread-count: no such flag"),
        ("--memroy-limit 4", "did you mean --memory-limit?"),
        ("--en", "could be --enable-ssl or --enable-sasl"),
        ("--daemon=1", "--daemon: takes no value"),
        ("-m", "-m: write -m SIZE"),
        ("--tier", "--tier: write --tier KIND:PLACE[:SIZE]"),
        ("-m abc", "-m abc: a size is a whole number"),
        ("-m 0", "-m 0: there is no cache without memory"),
        ("-m -5", "-m -5: a size"),
        ("-m 99999999999999999999", "-m 99999999999999999999: no such size"),
        ("-p 70000", "-p 70000: a port is a number from 0 to 65535"),
        ("-c 0", "-c 0: the connection limit is a number from 1 to"),
        ("-t 0", "-t 0: the count of threads"),
        ("-I 1", "-I 1: the longest value can be set from 1k to 1g"),
        ("-I 2g", "-I 2g: the longest value can be set from 1k to 1g"),
        ("-m 1", "write -m 2 or more"),
        ("-a 9", "an octal number"),
        ("-R 0", "requests per event"),
        ("-f 1", "greater than 1"),
        ("-B foo", "write auto, ascii or binary"),
        ("-S", "-S: set MEMCACHED_SASL_PWDB to a file"),
        ("-Y /nonexistent", "-Y /nonexistent: /nonexistent: No such file"),
        ("--sasl-passwords /nonexistent", "/nonexistent: No such file"),
        ("-Y /dev/null", "no client could log in"),
        ("-U x", "a port is a number"),
        ("-Z", "write -o ssl_chain_cert=FILE"),
        ("-Z -o ssl_chain_cert=/c", "write -o ssl_key=FILE"),
        ("-l btls:h", "write -Z too"),
        ("-o ssl_keyformat=ENGINE", "write PEM or DER"),
        ("-o ssl_verify_mode=4", "the mode is a number from 0 to 3"),
        ("--admin 0.0.0.0:1", "write --admin-token-file FILE"),
        ("--admin x", "write ADDR:PORT"),
        ("--admin-host a:1", "without a port"),
        ("-o bogus", "-o bogus: no such option"),
        ("-o ext_pth=/a:1g", "did you mean ext_path?"),
        ("-o ext_path", "write ext_path=FILE:SIZE"),
        ("-o ext_path=/a", "say the size too"),
        ("--tier /a:1g", "write the kind first: ssd:/a:1g"),
        ("--tier ssd:/a:1g --tier ssd:/a:2g", "/a: named twice"),
        ("--io-engine aio", "write auto, io_uring or pool"),
        ("--background-threads 5", "--background-threads 5: the count of background threads"),
        ("--config /nonexistent.toml", "--config /nonexistent.toml: "),
        ("bogus", "bogus: every setting is a flag"),
        ("bogus", "serve, plan, probe, bench or convert"),
        ("plann", "did you mean plan?"),
        ("--tier ssd:/nowhere/a:abc", "write ssd:/nowhere/a:512g"),
        ("-- bogus", "bogus: every setting is a flag"),
        ("-", "-: every setting is a flag"),
    ] {
        let text = error(line);
        assert!(text.contains(says), "{line:?} says {text:?}");
        assert!(!text.contains('\n'), "{line:?} says more than a line: {text:?}");
    }
}

#[test]
fn asks_to_print() {
    assert_eq!(invoke("-h"), Ok(Invocation::Print(Print::Help)));
    assert_eq!(invoke("help"), Ok(Invocation::Print(Print::Help)));
    assert_eq!(invoke("--version"), Ok(Invocation::Print(Print::Version)));
    assert_eq!(invoke("-m 64 -i"), Ok(Invocation::Print(Print::License)));
}

fn from_file(text: &str, line: &str) -> Result<Settings, UsageError> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("terrace-{}-{number}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let result = invoke(&format!("--config {} {line}", file.display()));
    std::fs::remove_file(&file).unwrap();
    match result? {
        Invocation::Serve(settings) => Ok(Settings { tier_files: Vec::new(), ..*settings }),
        other => panic!("{other:?}"),
    }
}

const FILE: &str = r#"
port = 1234
memory-limit = "1g"
disable_cas = true
disable-evictions = false
verbose = 2
tier = ["ssd:/a:1g", "ssd:/b:2g"]

[extended]
idle_timeout = 7
no_maxconns_fast = true
"#;

#[test]
fn a_file_means_what_the_flags_mean() {
    assert_eq!(
        from_file(FILE, "").unwrap(),
        settings(
            "-p 1234 -m 1g -C -vv --tier ssd:/a:1g --tier ssd:/b:2g -o idle_timeout=7,no_maxconns_fast"
        )
    );
}

#[test]
fn false_in_a_file_is_what_turns_an_option_off() {
    let from = |text: &str| from_file(&format!("[extended]\n{text} = false\n"), "").unwrap();
    assert!(!from("maxconns_fast").refuse_when_full);
    assert!(from("no_maxconns_fast").refuse_when_full);
    assert!(!from("track_sizes").track_sizes);
    assert!(from("lru_crawler").notes[0].text().contains("extended.lru_crawler = false: "));
}

#[test]
fn the_command_line_wins_over_the_file() {
    let s = from_file(FILE, "-p 1 -v -o ext_path=/c:1g,maxconns_fast").unwrap();
    assert_eq!((s.tcp_port, s.verbosity, s.refuse_when_full), (Port::At(1), 1, true));
    let spec =
        TierSpec { place: local("/c"), bytes: Some(1 << 30), read_depth: None, is_below: false };
    assert_eq!(s.tiers, vec![spec]);
    assert_eq!((s.memory_bytes, s.idle_timeout_s), (1 << 30, 7));
}

#[test]
fn a_wrong_file_says_where() {
    for (text, says) in [
        ("port = 1\nthreads = = 2\n", "line 2: "),
        ("portt = 1", "portt: no such key; did you mean port?"),
        ("prot = \"ascii\"", "prot: no such key; did you mean port?"),
        ("thread = 2", "thread: no such key; did you mean threads?"),
        ("qqqqqq = 2", "qqqqqq: no such key; the long names"),
        ("port = \"abc\"", "port = abc: a port is a number"),
        ("port = -2", "port = -2: a port is a number"),
        ("port = true", "port: write a value: NUM"),
        ("daemon = \"yes\"", "daemon: write true or false"),
        ("port = { a = 1 }", "port: write a number, a text"),
        ("help = true", "help: works on the command line only"),
        ("[extended]\nidle_timout = 1", "did you mean idle_timeout?"),
        ("[extended]\nmaxconns_fst = false", "did you mean maxconns_fast?"),
    ] {
        let error = from_file(text, "").unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{text:?} says {error:?}");
    }
}

#[test]
fn names_are_unique() {
    let mut longs: Vec<_> = table::FLAGS.iter().map(|flag| flag.long).collect();
    let mut shorts: Vec<_> = table::FLAGS.iter().filter_map(|flag| flag.short).collect();
    let mut options: Vec<_> = extended::OPTIONS.iter().flat_map(|o| o.names).collect();
    let count = (longs.len(), shorts.len(), options.len());
    longs.sort_unstable();
    longs.dedup();
    shorts.sort_unstable();
    shorts.dedup();
    options.sort_unstable();
    options.dedup();
    assert_eq!(count, (longs.len(), shorts.len(), options.len()));
}

#[test]
fn help_names_every_flag() {
    let help = help();
    for flag in table::FLAGS {
        assert!(help.contains(&format!("--{}", flag.long)), "--{} is missing", flag.long);
    }
    for program in ["serve", "plan", "probe", "bench"] {
        assert!(help.contains(&format!("\n  {program} ")), "{program} is missing");
    }
    assert!(help.lines().all(|line| line.len() <= 140), "a line of --help is too long");
}

#[test]
fn the_documentation_is_up_to_date() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flags.md");
    if std::env::var_os("TERRACE_UPDATE_DOCS").is_some() {
        std::fs::write(file, markdown()).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(
        written,
        markdown(),
        "docs/flags.md: run TERRACE_UPDATE_DOCS=1 cargo test -p terrace --lib settings"
    );
}

proptest! {
    #[test]
    fn no_command_line_panics(words in proptest::collection::vec(
        prop_oneof![
            "-[a-zA-Z]{1,3}[0-9]{0,3}",
            "--[a-z-]{0,12}(=[ -~]{0,6})?",
            "[ -~]{0,8}",
            "[0-9]{1,22}[kmgtp]?",
            "-o[a-z_]{1,12}(=[a-z0-9:/]{0,9})?",
        ], 0..6))
    {
        if let Err(error) = Invocation::parse(&words) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
