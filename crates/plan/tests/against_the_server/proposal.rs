//! What `terrace plan` proposes, started as it is printed.

use crate::common::{Measured, data, fill, is_other_server, near, requests, settle};
use serde_json::Value;
use std::process::Command;
use terrace_e2e::{Server, program};
use terrace_load::{Plan as Requests, Popularity, Workload, run};

/// The JSON of `terrace plan` with these flags.
fn planned(flags: &str) -> Value {
    let mut command = Command::new(program());
    let ended = command.args(["plan", "--json"]).args(flags.split_whitespace()).output();
    let ended = ended.expect("the binary under test runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{flags}: {said}");
    serde_json::from_slice(&ended.stdout).expect("one object")
}

fn number(told: &Value) -> f64 {
    told.as_f64().expect("a number")
}

/// The command line that was printed, with a file for the drive.
fn command_line(told: &Value) -> String {
    let arguments = told["proposal"]["arguments"].as_array().expect("a list");
    let words: Vec<_> = arguments.iter().map(|word| word.as_str().expect("a word")).collect();
    let line = words.join(" ").replace("ssd:DEV:", "ssd:DIR/tier:");
    assert_eq!(line.matches("DIR/tier:").count(), 1, "a slice of one drive: {line}");
    line
}

#[test]
fn a_server_does_what_its_plan_says() {
    const NAME: &str = "a_server_does_what_its_plan_says";
    const KEY: f64 = 16.0;
    if is_other_server(NAME) {
        return;
    }
    let etc = Popularity::ZipfMandelbrot { s: 2.5, beta: 0.03 };
    for (records, value, memory) in [(100_000, 800.0, 12), (400_000, 80.0, 16)] {
        let told = planned(&format!(
            "--items {records} --key-bytes {KEY} --value-bytes {value} --gets 20k --sets 0 -m {memory} --drives 1 \
             --cores 2"
        ));
        let server = Measured::of(&command_line(&told));
        let data = data(KEY, value);
        fill(&server, &data, 0, records);
        settle(&server);
        // Other requests than those of the warm-up, whose records are in DRAM by now.
        let gets = |seed, number| {
            let plan = requests(&server, &data, Workload::Get(etc), records, number);
            let before = server.tier("tier:0:hits");
            let report = run(&Requests { seed, ..plan }, None).expect("reads");
            assert_eq!((report.wrong, report.misses), (0, 0), "all of them have room on the tier");
            1.0 - (server.tier("tier:0:hits") - before) / report.hits as f64
        };
        gets(1, 1_200_000);
        let measured = gets(2, 200_000);
        let expected = &told["expected"];
        let dram = number(&expected["dram_hit_ratio"]);
        println!(
            "hits from DRAM of {records} with -m {memory}: plan {dram:.4}, server {measured:.4}"
        );
        assert!((dram - measured).abs() < 0.02, "{dram} for {measured}");

        // All that is planned of `-m`: what is left for copies, beside index and buffers.
        let memory_bytes = number(&told["proposal"]["memory_bytes"]);
        let [hot, fresh] =
            ["records_read_cache", "records_write_buffer"].map(|name| server.tier(name));
        let table = server.tier("memory_dram_index") * hot / (hot + fresh);
        let copies = server.tier("memory_read_cache") + table;
        let room = number(&expected["memory"]["hot_bytes"]);
        let rest = memory_bytes - room;
        near("DRAM for copies", room, copies, 0.1);
        near("-m for as many copies", memory_bytes, rest + copies, 0.1);

        // What the server says of itself leads to the same plan, with a word on how young it is.
        let asked = planned(&format!("--server {} --key-bytes {KEY} --drives 1", server.address()));
        let assumed = |name: &str| number(&asked["assumptions"][name]["value"]);
        near("records that it tells", records as f64, assumed("items"), 0.001);
        near("bytes of a value that it tells", value, assumed("value_bytes"), 0.01);
        assert_eq!(assumed("memory_bytes"), memory_bytes);
        let warnings = asked["warnings"].as_array().expect("a list");
        assert!(
            warnings.iter().any(|w| w.as_str().is_some_and(|w| w.contains("has been up"))),
            "{warnings:?}"
        );
    }
}

#[test]
fn least_memory_that_is_planned_is_what_a_server_asks_for() {
    const NAME: &str = "least_memory_that_is_planned_is_what_a_server_asks_for";
    if is_other_server(NAME) {
        return;
    }
    let told = planned("--items 1m --value-bytes 200 --drives 1 --tier-size 2g -m 64 --cores 2");
    let row = &told["memory_by_tier"][0];
    let [starts, fills] = ["records_of_4096_bytes", "records_of_512_bytes"]
        .map(|name| (number(&row[name]) / f64::from(1 << 20)) as u64);
    let line = command_line(&told);
    let little = line.replace("-m 64 ", &format!("-m {} ", starts / 2));
    let ended = Server::run(&format!("{little} -p 0"));
    let advice = format!("give at least {starts} MiB (-m), and {fills} MiB to fill them");
    assert!(ended.output.contains(&advice), "{advice}: {}", ended.output);
    Measured::of(&line.replace("-m 64 ", &format!("-m {starts} ")));
}
