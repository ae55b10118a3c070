//! Random pipelines on few keys, compared reply by reply with a model that executes one command after
//! the other. On a tiered server the keys start on the drive, so that commands overlap in every way.

mod common;

use common::{Client, TestServer};
use std::collections::HashMap;

const KEYS: u64 = 48;
const COMMANDS: usize = 400;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

#[derive(Default)]
struct Model {
    values: HashMap<String, (u32, String)>,
    request: String,
    reply: String,
}

impl Model {
    /// Adds a random command to the request, and its reply.
    fn step(&mut self, random: &mut Random) {
        let key = format!("k{}", random.below(KEYS));
        match random.below(14) {
            0..=2 => self.get(&[key]),
            3 => {
                let keys: Vec<_> = (0..9).map(|_| format!("k{}", random.below(KEYS))).collect();
                self.get(&keys);
            }
            4..=6 => self.store(random, &key, "set"),
            7 => self.store(random, &key, "add"),
            8 => self.store(random, &key, "replace"),
            9 => self.store(random, &key, "append"),
            10 => self.store(random, &key, "prepend"),
            11 => self.delete(&key),
            12 => self.incr(&key, random.below(1000)),
            _ => self.meta_get(&key),
        }
    }

    fn get(&mut self, keys: &[String]) {
        self.request.push_str(&format!("get {}\r\n", keys.join(" ")));
        for key in keys {
            if let Some((flags, value)) = self.values.get(key) {
                self.reply.push_str(&format!("VALUE {key} {flags} {}\r\n{value}\r\n", value.len()));
            }
        }
        self.reply.push_str("END\r\n");
    }

    fn store(&mut self, random: &mut Random, key: &str, verb: &str) {
        let value = match random.below(20) {
            0 => "long ".repeat(20_000),
            1..=3 => "middle ".repeat(random.below(900) as usize),
            4..=7 => String::new(),
            _ => random.below(100_000).to_string(),
        };
        let flags = random.below(3) as u32;
        let is_quiet = random.below(4) == 0;
        let noreply = if is_quiet { " noreply" } else { "" };
        let bytes = value.len();
        self.request.push_str(&format!("{verb} {key} {flags} 0 {bytes}{noreply}\r\n{value}\r\n"));
        let is_there = self.values.contains_key(key);
        let is_stored = match verb {
            "set" => true,
            "add" => !is_there,
            _ => is_there,
        };
        if is_stored {
            let entry = self.values.entry(key.to_string()).or_default();
            match verb {
                "append" => entry.1.push_str(&value),
                "prepend" => entry.1.insert_str(0, &value),
                _ => *entry = (flags, value),
            }
        }
        if !is_quiet {
            self.reply.push_str(if is_stored { "STORED\r\n" } else { "NOT_STORED\r\n" });
        }
    }

    fn delete(&mut self, key: &str) {
        self.request.push_str(&format!("delete {key}\r\n"));
        let was_there = self.values.remove(key).is_some();
        self.reply.push_str(if was_there { "DELETED\r\n" } else { "NOT_FOUND\r\n" });
    }

    fn incr(&mut self, key: &str, delta: u64) {
        self.request.push_str(&format!("incr {key} {delta}\r\n"));
        match self.values.get_mut(key) {
            None => self.reply.push_str("NOT_FOUND\r\n"),
            Some((_, value)) => match value.parse::<u64>() {
                Ok(number) => {
                    *value = number.wrapping_add(delta).to_string();
                    self.reply.push_str(&format!("{value}\r\n"));
                }
                Err(_) => self
                    .reply
                    .push_str("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            },
        }
    }

    fn meta_get(&mut self, key: &str) {
        self.request.push_str(&format!("mg {key} s v f q\r\n"));
        if let Some((flags, value)) = self.values.get(key) {
            let bytes = value.len();
            self.reply.push_str(&format!("VA {bytes} s{bytes} f{flags}\r\n{value}\r\n"));
        }
    }
}

fn play(client: &mut Client, model: &mut Model, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    model.request.clear();
    model.reply.clear();
    (0..COMMANDS).for_each(|_| model.step(&mut random));
    // The client reads while it sends: else both sides might wait for each other.
    let request = std::mem::take(&mut model.request);
    let mut pieces = client.clone_for_sending();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rest = request.as_bytes();
            while !rest.is_empty() {
                let bytes = 1 + random.below(5000) as usize;
                let (piece, behind) = rest.split_at(bytes.min(rest.len()));
                pieces.send(piece);
                rest = behind;
            }
        });
        client.expect(&model.reply);
    });
    client.expect_silence();
}

#[test]
fn random_pipelines_in_dram() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut model = Model::default();
    (1..40).for_each(|seed| play(&mut client, &mut model, seed));
}

#[test]
fn random_pipelines_on_a_drive() {
    let server = TestServer::with(|settings| settings.memory_bytes = 16 << 20, Some(512 << 20));
    let mut client = server.connect();
    let mut model = Model::default();
    let filler = "x".repeat(1000);
    for seed in 1..12 {
        // Pushes what the last round has left to the drive.
        for block in 0..40 {
            let sets = (0..500)
                .map(|n| format!("set filler{seed}-{block}-{n} 0 0 1000 noreply\r\n{filler}\r\n"));
            client.ask(sets.collect::<String>(), "");
        }
        play(&mut client, &mut model, 1000 + seed);
    }
    let hits = client.stat("tiers", "tier:0:hits").parse::<u64>().unwrap();
    assert!(hits > 100, "only {hits} hits on the drive");
}
