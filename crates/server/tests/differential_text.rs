//! The same random classic and meta requests, good, odd and broken, sent to Terrace and to memcached:
//! every line of the answers must be the same, but for the numbers that each gives out itself.
//!
//! `TERRACE_DIFFERENTIAL_OPS` says how many requests, `TERRACE_DIFFERENTIAL_SEED` which.

mod common;

use common::memcached::Memcached;
use common::random::{Random, operations};
use common::{Client, TestServer};
use std::collections::HashMap;
use terrace_e2e::skip;

/// Requests that are sent at once.
const BATCH: usize = 30;
/// In a request: the CAS number that the server gave the key, which is another one for each.
const SEEN: &str = "SEEN";

/// Keys whose values are text, are counted up, and are counted down below ten: what gets shorter in
/// place is padded by memcached only.
fn key(random: &mut Random) -> String {
    format!("{}{}", random.pick(&["k", "k", "up", "down"]), random.below(4))
}

fn value(random: &mut Random, key: &str) -> String {
    match key.as_bytes()[0] {
        b'u' => random.below(1_000_000).to_string(),
        b'd' => random.below(10).to_string(),
        _ => "z".repeat(random.pick(&[0, 1, 3, 30, 3000])),
    }
}

/// One request: its line, and the block behind it.
struct Op {
    key: String,
    words: Vec<String>,
    block: Option<String>,
}

impl Op {
    fn new(key: &str, line: &str) -> Self {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(str::to_string).collect();
        Self { key: key.to_string(), words, block: None }
    }

    fn text(&self, seen: &HashMap<String, String>) -> String {
        let cas = seen.get(&self.key).map_or("1", |cas| cas.as_str());
        // A word that was left out may have made a key of it.
        let meant = |at| if at < 2 { "1" } else { cas };
        let words = self.words.iter().enumerate().map(|(at, word)| word.replace(SEEN, meant(at)));
        let line = words.collect::<Vec<_>>().join(" ");
        match &self.block {
            Some(block) => format!("{line}\r\n{block}\r\n"),
            None => format!("{line}\r\n"),
        }
    }
}

/// Times that memcached has not always taken for the same.
const ODD_TIMES: [&str; 8] = [
    "2147483648",
    "4294967295",
    "4294967296",
    "4294967396",
    "-2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
];

fn exptime(random: &mut Random, is_today: bool) -> &'static str {
    if is_today && random.one_in(8) {
        return random.pick(&ODD_TIMES);
    }
    random.pick(&["0", "0", "0", "100", "2592000", "-1", "2147483647", "100000000"])
}

fn classic(random: &mut Random, is_today: bool) -> Op {
    let key = key(random);
    let noreply = random.pick(&["", "", "", "noreply"]);
    let exptime = exptime(random, is_today);
    let line = match random.below(14) {
        0 | 1 => format!("get {key}"),
        2 => format!("gets {key} k0 up1 none"),
        3 => format!("gat {exptime} {key} k1"),
        4 => format!("gats {exptime} {key}"),
        5 => format!("delete {key} {noreply}"),
        6 => format!("touch {key} {exptime} {noreply}"),
        7 => {
            // Counted the one way or the other.
            let command = if key.starts_with('u') { "incr" } else { "decr" };
            format!("{command} {key} {} {noreply}", random.below(30))
        }
        // What was used within the second survives a flush of 1.6.45 now and then.
        8 if is_today => return Op::new("", random.pick(&["verbosity 0", "mn"])),
        8 => return Op::new("", random.pick(&["verbosity 0", "mn", "flush_all 0"])),
        _ => return classic_store(random, &key, exptime, noreply),
    };
    Op::new(&key, &line)
}

fn classic_store(random: &mut Random, key: &str, exptime: &str, noreply: &str) -> Op {
    let is_text = key.starts_with('k');
    let command = match random.below(8) {
        0 => "add",
        1 => "replace",
        2 if is_text => "append",
        3 if is_text => "prepend",
        4 | 5 => "cas",
        _ => "set",
    };
    let mut block = value(random, key);
    if command.ends_with("pend") {
        block.truncate(3);
    }
    let flags = random.pick(&["0", "0", "5", "65535"]);
    let cas = if command == "cas" { random.pick(&[SEEN, SEEN, "77777777777"]) } else { "" };
    let bytes = block.len();
    let op = Op::new(key, &format!("{command} {key} {flags} {exptime} {bytes} {cas} {noreply}"));
    Op { block: Some(block), ..op }
}

fn flags(random: &mut Random, of: &[&str]) -> String {
    let mut chosen: Vec<&str> = Vec::new();
    for _ in 0..random.below(5) {
        let flag = random.pick(of);
        if chosen.iter().all(|other| other.as_bytes()[0] != flag.as_bytes()[0]) {
            chosen.push(flag);
        }
    }
    chosen.join(" ")
}

fn meta(random: &mut Random) -> Op {
    let key = key(random);
    let line = match random.below(8) {
        0..=2 => {
            let of = ["v", "k", "O123", "t", "s", "f", "l", "q", "u", "c", "T100", "N60", "R30"];
            format!("mg {key} {}", flags(random, &of))
        }
        3 => {
            // A counter is stale no more in memcached once it got longer.
            let invalidates = if key.starts_with('k') { "I" } else { "q" };
            let of = ["q", "k", "Oabc", invalidates, "T60", "CSEEN", "C5"];
            format!("md {key} {}", flags(random, &of))
        }
        4 if key.starts_with('u') => {
            // What creates a counter is not quiet in 1.6.18, and shows its time only behind it.
            let of = match random.one_in(2) {
                true => &["v", "c", "k", "O7", "N0", "N90", "J12", "D3", "MI", "M+", "CSEEN"][..],
                false => &["v", "t", "c", "k", "q", "O7", "D3", "MI", "M+", "CSEEN"],
            };
            format!("ma {key} {}", flags(random, of))
        }
        _ => {
            let mut block = value(random, &key);
            let mut of =
                vec!["k", "Ox", "q", "T90", "T0", "F7", "ME", "MR", "MS", "CSEEN", "C3", "c"];
            if key.starts_with('k') {
                of.extend(["MA", "MP", "I"]);
                block.truncate(30);
            }
            let bytes = block.len();
            let op = Op::new(&key, &format!("ms {key} {bytes} {}", flags(random, &of)));
            return Op { block: Some(block), ..op };
        }
    };
    Op::new(&key, &line)
}

/// Makes a request an odd or a broken one.
fn spoil(random: &mut Random, op: &mut Op) {
    let at = random.below(op.words.len() as u64) as usize;
    let long = "k".repeat(251);
    let odd = random.pick(&["y", "-1", "18446744073709551616", "", "noreply", &long, "0", "!"]);
    // Where a store's length can't be read, the connection ends here; there, the value is executed. It is so
    // behind what is no flag at all, too.
    let keeps_order = op.block.is_some();
    let length = if op.words[0] == "ms" { 2 } else { 4 };
    let moves = odd.is_empty() || at == 0 || at == length;
    if keeps_order && (moves || length == 2 && ["-1", "!"].contains(&odd)) {
        return;
    }
    if keeps_order && random.one_in(2) {
        let command =
            random.pick(&["flush_all", "delete k1", "set k2 7 0 1\r\nx", "get k3", "ms k0 1"]);
        op.words[length] = command.len().to_string();
        op.block = Some(command.to_string());
    }
    // A key of its own would expire at another moment there, or be padded where it is counted down.
    let kind = random.below(4);
    let names_other_key = match kind {
        0 => at == 1,
        1 => at == 0,
        2 => at == 1 && odd != long,
        _ => false,
    };
    if names_other_key {
        return;
    }
    match kind {
        0 if !keeps_order => {
            op.words.remove(at);
        }
        1 if !keeps_order => op.words.insert(at, op.words[at].clone()),
        // One bad key of many makes memcached forget the answers to what was sent before.
        _ if odd == long && op.words[0].starts_with('g') => {}
        2 => op.words[at] = odd.to_string(),
        _ => op.words.push(odd.to_string()),
    }
    op.words.retain(|word| !word.is_empty());
    if op.words.is_empty() {
        op.words.push("get".into());
    }
}

/// Before 1.6.45 (`is_today`) memcached has other words for mistakes, and executes values of refused stores.
fn op(random: &mut Random, is_today: bool) -> Op {
    let mut op = if random.one_in(2) { classic(random, is_today) } else { meta(random) };
    // Commands without a key are in the recorded conversations, and so are words behind a `delete`.
    if is_today && random.one_in(8) && !op.key.is_empty() && op.words[0] != "delete" {
        spoil(random, &mut op);
    }
    op
}

/// One of the two.
struct Side {
    client: Client,
    /// The CAS number of each key.
    seen: HashMap<String, String>,
}

impl Side {
    fn ask(&mut self, ops: &[Op]) -> Vec<String> {
        let text: String = ops.iter().map(|op| op.text(&self.seen)).collect();
        // No request of a batch is answered like this.
        self.client.send(format!("{text}me none\r\nversion\r\n"));
        let answer = self.client.receive_until("EN\r\nVERSION 1.6.");
        self.client.receive_until("\r\n");
        answer.lines().map(comparable).collect()
    }

    fn look(&mut self) {
        for key in ["k", "up", "down"].iter().flat_map(|k| (0..4).map(move |n| format!("{k}{n}"))) {
            self.client.send(format!("mg {key} u c\r\n"));
            let line = self.client.receive_until("\r\n");
            // It may be stale, or won, which is told behind it.
            let cas = line.strip_prefix("HD c").and_then(|rest| rest.split_whitespace().next());
            let cas = cas.unwrap_or("1").to_string();
            self.seen.insert(key, cas);
        }
    }
}

/// A line without what each server gives out itself, and without what depends on the moment.
fn comparable(line: &str) -> String {
    let mut words: Vec<_> = line.split(' ').map(str::to_string).collect();
    match words[0].as_str() {
        "VALUE" if words.len() == 5 => words[4] = "CAS".into(),
        "VERSION" => words[1] = "1.6".into(),
        "HD" | "VA" | "EN" | "NF" | "NS" | "EX" => {
            for word in &mut words[1..] {
                let (letter, rest) = word.split_at(1.min(word.len()));
                let is_number = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
                if is_number && ["c", "t", "l"].contains(&letter) {
                    let is_none = letter == "c" && rest == "0";
                    *word = format!("{letter}{}", if is_none { "0" } else { "N" });
                }
            }
        }
        _ => {}
    }
    words.join(" ")
}

/// For these mistakes 1.6.18 has one text where 1.6.45 has several.
fn in_older_words(line: &mut String) {
    const SEVERAL: [&str; 4] = [
        "invalid numeric delta value",
        "invalid numeric initial value",
        "invalid flag",
        "duplicate flag",
    ];
    if line.strip_prefix("CLIENT_ERROR ").is_some_and(|text| SEVERAL.contains(&text)) {
        *line = "CLIENT_ERROR invalid or duplicate flag".into();
    }
}

#[test]
fn memcached_answers_text_requests_the_same() {
    let Some(memcached) = Memcached::start(&[]) else {
        skip("memcached_answers_text_requests_the_same", "memcached is not installed; make tools");
        return;
    };
    let terrace = TestServer::start();
    let (mut random, seed) = Random::seeded();
    let ops = operations();
    let version = memcached.version();
    let is_today = version == "1.6.45";
    let mut sides = [terrace.address, memcached.address]
        .map(|address| Side { client: Client::connect(address), seen: HashMap::new() });
    // Past the numbers that the requests below make up, memcached counts its CAS numbers from one.
    let warm = || Op { block: Some(String::new()), ..Op::new("warm", "ms warm 0") };
    let warm: Vec<_> = (0..10).map(|_| warm()).collect();
    let [ours, theirs] = sides.each_mut().map(|side| side.ask(&warm));
    assert_eq!(ours, theirs);
    let (mut done, mut answered) = (0, 0);
    while done < ops {
        let batch: Vec<_> = (0..BATCH).map(|_| op(&mut random, is_today)).collect();
        let [mut ours, mut theirs] = sides.each_mut().map(|side| side.ask(&batch));
        if !is_today {
            ours.iter_mut().chain(&mut theirs).for_each(in_older_words);
        }
        if ours != theirs {
            let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            let at = at.unwrap_or(ours.len().min(theirs.len()));
            let short = |line: &String| line.chars().take(100).collect::<String>();
            let window = |lines: &[String]| {
                let lines = lines.iter().skip(at.saturating_sub(3)).take(6);
                lines.map(short).collect::<Vec<_>>().join("\n   ")
            };
            let sent: Vec<_> = batch.iter().map(|op| short(&op.text(&HashMap::new()))).collect();
            panic!(
                "seed {seed}, behind {done} requests, line {at}:\n terrace\n   {}\n memcached\n   \
                 {}\n of\n{}",
                window(&ours),
                window(&theirs),
                sent.join("\n").replace("\r\n", " ")
            );
        }
        (done, answered) = (done + BATCH as u64, answered + ours.len());
        sides.iter_mut().for_each(Side::look);
    }
    println!("memcached {version}: {done} requests, {answered} lines of answers, all the same");
}
