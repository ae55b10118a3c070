//! Every flag and every `-o` option of memcached 1.6.45 is known here, in all spellings that its
//! getopt takes; and those that the installed memcached lists in its help.

use std::process::Command;
use terrace::settings::{Invocation, Settings, UsageError};
use terrace_e2e::skip;

/// Flags: letter, long name, and a value where it takes one.
const FLAGS: &str = "\
p port 11212
U udp-port 11213
s unix-socket /tmp/socket
a unix-mask 770
A enable-shutdown
l listen 127.0.0.1
d daemon
r enable-coredumps
u user nobody
m memory-limit 128
M disable-evictions
c conn-limit 2000
k lock-memory
v verbose
h help
i license
V version
P pidfile /tmp/pid
f slab-growth-factor 1.1
n slab-min-size 64
L enable-largepages
D prefix-delimiter /
t threads 2
R max-reqs-per-event 40
C disable-cas
b listen-backlog 2048
B protocol ascii
I max-item-size 2m
S enable-sasl
F disable-flush-all
X disable-dumping
W disable-watch
Y auth-file FILE
e memory-file /tmp/memory
Z enable-ssl
o extended modern
N napi-ids 2
N napi_ids 2";

/// Options, with every kind of value that each takes.
const OPTIONS: &str = "\
maxconns_fast no_maxconns_fast hashpower=12 hashpower=32 no_hashexpand hash_algorithm=jenkins \
hash_algorithm=murmur3 hash_algorithm=xxh3 tail_repair_time=10 slab_reassign no_slab_reassign \
slab_automove slab_automove=0 slab_automove=1 slab_automove=2 no_slab_automove \
slab_automove_ratio=0.7 slab_automove_window=10 slab_automove_freeratio=0.02 slab_sizes=100-200-300 \
slab_chunk_max=1024 no_chunked_items track_sizes lru_crawler no_lru_crawler lru_crawler_sleep=1000 \
lru_crawler_tocrawl=5 lru_maintainer no_lru_maintainer hot_lru_pct=10 warm_lru_pct=30 \
hot_max_factor=0.3 warm_max_factor=3.0 temporary_ttl=61 idle_timeout=60 watcher_logbuf_size=512 \
worker_logbuf_size=128 read_buf_mem_limit=10 resp_obj_mem_limit=10 inline_ascii_resp \
no_inline_ascii_resp modern no_modern drop_privileges no_drop_privileges relaxed_privileges \
sock_cookie_id=1 ext_path=/tmp/a:64m ext_path=/tmp/a:1g:compact ext_path=/tmp/a:1t:lowttl \
ext_page_size=64 ext_wbuf_size=4 ext_threads=2 ext_io_depth=4 ext_item_size=100 ext_item_age=60 \
ext_low_ttl=60 ext_drop_unread ext_recache_rate=100 ext_compact_under=4 ext_drop_under=4 \
ext_max_frag=0.5 ext_max_sleep=1000 ssl_chain_cert=/c ssl_key=/k ssl_keyformat=PEM ssl_keyformat=DER \
ssl_verify_mode=0 ssl_verify_mode=1 ssl_verify_mode=2 ssl_verify_mode=3 ssl_ciphers=HIGH \
ssl_ca_cert=/ca ssl_wbuf_size=16 ssl_session_cache ssl_kernel_tls ssl_min_version=0 ssl_min_version=1 \
ssl_min_version=2 ssl_min_version=3";

/// Refused with a reason, since a server that left them out would not be what was asked for.
const REFUSED: &str = "\
ssl_keyformat=ENGINE proxy_config=/x.lua proxy_config=routelib proxy_arg=/y proxy_uring \
proxy_memprofile";

/// What is so without them.
const DEFAULTS: [&str; 4] =
    ["maxconns_fast", "ssl_keyformat=PEM", "ssl_verify_mode=0", "ssl_min_version=2"];

fn parse(words: &[&str]) -> Result<Invocation, UsageError> {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    Invocation::parse(&words)
}

/// Whether a command line is refused because of a name that nobody knows.
fn is_unknown(result: &Result<Invocation, UsageError>) -> bool {
    result.as_ref().is_err_and(|error| error.to_string().contains("no such"))
}

#[test]
fn every_flag_is_taken_in_every_spelling() {
    let passwords = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(passwords.path(), "user:pass\n").expect("room for it");
    let file = passwords.path().to_str().expect("a path of text");
    for line in FLAGS.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let (short, long) = (format!("-{}", words[0]), format!("--{}", words[1]));
        let value = words.get(2).map(|&value| if value == "FILE" { file } else { value });
        let (attached, equals) =
            (value.map(|v| format!("{short}{v}")), value.map(|v| format!("{long}={v}")));
        let spellings: Vec<Vec<&str>> = match (value, &attached, &equals) {
            (Some(value), Some(attached), Some(equals)) => {
                vec![vec![&short, value], vec![attached], vec![&long, value], vec![equals]]
            }
            _ => vec![vec![&short], vec![&long]],
        };
        for spelling in spellings {
            let result = parse(&spelling);
            match words[0] {
                // They need what another flag brings, and say so.
                "S" | "Z" => {
                    assert!(result.is_err() && !is_unknown(&result), "{spelling:?}: {result:?}");
                }
                _ => assert!(result.is_ok(), "{spelling:?}: {result:?}"),
            }
        }
    }
}

#[test]
fn what_getopt_takes_for_a_long_name_is_taken_for_it_here() {
    let names: Vec<_> = FLAGS.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let names: Vec<_> = names.into_iter().filter(|name| *name != "napi_ids").collect();
    let value = |name| FLAGS.lines().find(|line| line.split(' ').nth(1) == Some(name));
    for name in &names {
        let takes_value = value(name).is_some_and(|line| line.split(' ').nth(2).is_some());
        for end in 1..name.len() {
            let short = &name[..end];
            if names.iter().filter(|other| other.starts_with(short)).count() > 1 {
                continue;
            }
            // What a flag complains of, or what becomes of it, tells which one it was taken for.
            let words = |spelled: &str| match takes_value {
                true => vec![format!("--{spelled}"), "nonsense".to_string()],
                false => vec![format!("--{spelled}")],
            };
            let result = |spelled| {
                let words = words(spelled);
                format!("{:?}", parse(&words.iter().map(String::as_str).collect::<Vec<_>>()))
            };
            assert_eq!(result(short), result(name), "--{short} for --{name}");
        }
    }
}

#[test]
fn every_option_is_taken_or_refused_with_a_reason() {
    for option in OPTIONS.split(' ') {
        let result = parse(&["-o", option]);
        assert!(matches!(result, Ok(Invocation::Serve(_))), "-o {option}: {result:?}");
    }
    for option in REFUSED.split(' ') {
        let result = parse(&["-o", option]);
        assert!(result.is_err() && !is_unknown(&result), "-o {option}: {result:?}");
    }
    let together = OPTIONS.split(' ').filter(|option| !option.starts_with("ext_path"));
    let together = together.collect::<Vec<_>>().join(",");
    assert!(parse(&["-o", &together]).is_ok());
}

#[test]
fn what_has_no_effect_is_noted() {
    let quiet = |settings: &Settings| settings.notes.is_empty();
    for option in OPTIONS.split(' ') {
        let Ok(Invocation::Serve(settings)) = parse(&["-o", option]) else { continue };
        let obeyed = *settings != Settings::default();
        assert!(obeyed || !quiet(&settings) || DEFAULTS.contains(&option), "-o {option}");
    }
}

#[test]
fn a_delimiter_of_several_characters_is_its_first() {
    let Ok(Invocation::Serve(settings)) = parse(&["-D", "::"]) else { panic!("-D :: is refused") };
    assert_eq!((settings.prefix_delimiter, settings.count_prefixes), (b':', true));
    assert!(settings.notes[0].text().starts_with("-D ::"), "{:?}", settings.notes);
    assert!(parse(&["-D", ""]).is_err());
}

fn serves(words: &[&str]) -> Settings {
    match parse(words) {
        Ok(Invocation::Serve(settings)) => *settings,
        other => panic!("{words:?} gave {other:?}"),
    }
}

#[test]
fn value_in_the_same_argument_is_read_as_in_the_next() {
    let apart = "-m 1024 -I 5m -c 16384 -v -u 11211 -t 2 -R 30 -b 512 -p 11212 -U 11213 -f 1.3 -n 64 \
                 -l 127.0.0.1,::1 -P /p -D / -B ascii -o modern,idle_timeout=7 -N 2";
    let apart = serves(&apart.split_whitespace().collect::<Vec<_>>());
    for (before, behind) in [(" ", ""), (" ", " "), ("  ", "\n"), ("\t", "")] {
        let together = [
            ("-m", "1024"),
            ("-I", "5m"),
            ("-c", "16384"),
            ("-v", ""),
            ("-u", "11211"),
            ("-t", "2"),
            ("-R", "30"),
            ("-b", "512"),
            ("-p", "11212"),
            ("-U", "11213"),
            ("-f", "1.3"),
            ("-n", "64"),
            ("-l", "127.0.0.1,::1"),
            ("--extended", "modern,idle_timeout=7"),
            ("--napi-ids", "2"),
            ("-B", "ascii"),
        ];
        let mut words: Vec<_> = together
            .iter()
            .map(|(flag, value)| match *value {
                "" => format!("{flag}{behind}"),
                value => format!("{flag}{before}{value}{behind}"),
            })
            .collect();
        // What a path ends with is a part of it.
        words.extend([format!("-P{before}/p"), format!("-D{before}/{behind}"), behind.into()]);
        let mut found = serves(&words.iter().map(String::as_str).collect::<Vec<_>>());
        // They say how it was written.
        assert_eq!(found.notes.len(), apart.notes.len(), "{:?}", found.notes);
        found.notes.clone_from(&apart.notes);
        assert_eq!(found, apart, "{words:?}");
    }
}

#[test]
fn numbers_are_read_as_atoi_reads_them() {
    let shown = |words: &[&str]| {
        let s = serves(words);
        let noted = s.notes.iter().any(|note| note.text().contains("is not looked at"));
        (s.memory_bytes >> 20, s.item_bytes_max, s.connections_max, s.threads, noted)
    };
    const MIB: u64 = 1 << 20;
    for (words, expected) in [
        (vec!["-m", "+64"], (64, MIB, 1024, 4, false)),
        (vec!["-m", "64.5"], (64, MIB, 1024, 4, true)),
        (vec!["-m", "128 "], (128, MIB, 1024, 4, false)),
        (vec!["-m", " 0128"], (128, MIB, 1024, 4, false)),
        (vec!["-m=64"], (64, MIB, 1024, 4, false)),
        (vec!["-m", "64junk"], (64, MIB, 1024, 4, true)),
        (vec!["--memory-limit=64x"], (64, MIB, 1024, 4, true)),
        (vec!["-I", "1.9m", "-m", "64"], (64, MIB, 1024, 4, true)),
        (vec!["-I", "1048576 ", "-m", "64"], (64, MIB, 1024, 4, false)),
        (vec!["-I", "1Mi"], (64, MIB, 1024, 4, false)),
        (vec!["-c", "1024.0"], (64, MIB, 1024, 4, true)),
        (vec!["-c", " 2000 "], (64, MIB, 2000, 4, false)),
        (vec!["-t", "2x"], (64, MIB, 1024, 2, true)),
        (vec!["--threads=+2"], (64, MIB, 1024, 2, false)),
        (vec!["-m", "100m"], (100, MIB, 1024, 4, false)),
    ] {
        assert_eq!(shown(&words), expected, "{words:?}");
    }
    let s =
        serves(&["-t", "300", "--verbose=2", "--verbose 3", "-R", "9.", "-b", "7x", "-a", " 0770"]);
    assert_eq!((s.threads, s.verbosity, s.requests_per_event), (256, 2, 9));
    assert_eq!((s.listen_backlog, s.unix_mask), (7, 0o770));
    let s =
        serves(&["-p", " 11212x", "-f", "1.25x", "-n", "48.0", "-o", "idle_timeout=5s, modern "]);
    assert_eq!(s.tcp_port.number(), Some(11212));
    assert_eq!((s.slab_growth_factor, s.slab_chunk_bytes_min, s.idle_timeout_s), (1.25, 48, 5));
    for none in ["abc", "", "x64", "-5", "."] {
        for flag in ["-m", "-I", "-c", "-t", "-R", "-b", "-p", "-U", "-f", "-n", "-a", "-N"] {
            assert!(parse(&[flag, none]).is_err(), "{flag} {none}");
        }
    }
    // safe_strtoul, which memcached reads these with, takes nothing but blanks behind a number.
    for option in ["ext_threads=2x", "watcher_logbuf_size=1.0", "ssl_verify_mode=1x"] {
        assert!(parse(&["-o", option]).is_err(), "{option}");
    }
    assert!(parse(&["-o", "ext_threads=2 "]).is_ok());
}

/// As getopt does, which puts them behind the flags. `v` for `-v` stands in many copies of one tutorial.
#[test]
fn words_that_are_no_flags_are_noted() {
    let s = serves(&["--memory-limit=64", "-o", "modern", "v", "", " ", "--", "-m", "8"]);
    assert_eq!((s.memory_bytes, s.verbosity), (64 << 20, 0));
    let noted =
        s.notes.iter().filter(|note| note.text().ends_with("not looked at, since it is no flag"));
    assert_eq!(noted.count(), 3, "{:?}", s.notes);
    assert_eq!(serves(&["", " "]), Settings::default());
    assert!(parse(&["modern", "-m", "64"]).is_err(), "it may be meant as a program");
}

#[test]
fn the_installed_memcached_lists_nothing_unknown() {
    let Ok(output) = Command::new("memcached").arg("-h").output() else {
        skip("the_installed_memcached_lists_nothing_unknown", "no memcached");
        return;
    };
    let help = String::from_utf8_lossy(&output.stdout);
    let (mut flags, mut options) = (0, 0);
    for line in help.lines() {
        if let Some(option) = line.strip_prefix("   - ").and_then(|rest| rest.split_once(':')) {
            if option.0.contains(' ') {
                continue;
            }
            let result = parse(&["-o", &format!("{}=1", option.0)]);
            assert!(!is_unknown(&result), "-o {}: {result:?}", option.0);
            options += 1;
        }
        let words = line.split([' ', ',', '=']).take_while(|word| !word.starts_with('<'));
        for flag in words.filter(|word| line.starts_with('-') && word.starts_with('-')) {
            let value = if matches!(flag, "-o" | "--extended") { "modern" } else { "1" };
            let result = parse(&[flag, value]);
            assert!(!is_unknown(&result), "{flag}: {result:?}");
            flags += 1;
        }
    }
    assert!(flags > 60 && options > 30, "{flags} flags and {options} options");
}
