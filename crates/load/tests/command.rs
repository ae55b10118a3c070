//! The command line: series, searches, comparisons and their reports.

mod common;

use common::{Memcached, first_good};
use serde_json::Value;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-load"));
    command.args(arguments).output().expect("the program runs")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_series_has_a_point_for_each_setting_and_a_page() {
    let test = "a_series_has_a_point_for_each_setting_and_a_page";
    let Some(server) = Memcached::start(test, &[]) else { return };
    let address = server.address.to_string();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let fill = ["fillseq", "--server", &address, "--records", "5000", "--json"];
    assert_eq!(json(&bench(&fill))["stored"], 5000);
    // The second point finds versions that the first has stored.
    let mixed =
        ["mixed", "--server", &address, "--records", "5000", "--seconds", "0.2", "-d", "4,8"];
    let mixed = json(&bench(&[&mixed[..], &["--json"]].concat()));
    assert!(mixed["points"].as_array().unwrap().iter().all(|point| point["wrong"] == 0));
    assert_eq!(json(&bench(&fill))["stored"], 5000);
    let points = bench(&[
        "readrandom",
        "--server",
        &address,
        "--records",
        "5000",
        "--seconds",
        "0.2",
        "-c",
        "2,4",
        "-d",
        "1,8,16",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ]); // fmt: skip
    let points = json(&points)["points"].as_array().unwrap().clone();
    let settings: Vec<_> =
        points.iter().map(|p| (p["connections"].as_u64(), p["depth"].as_u64())).collect();
    let (two, four) = (Some(2), Some(4));
    let depths = [Some(1), Some(8), Some(16)];
    let expected: Vec<_> =
        [two, four].into_iter().flat_map(|c| depths.map(|depth| (c, depth))).collect();
    assert_eq!(settings, expected);
    assert!(points.iter().all(|point| point["hits"].as_u64() > Some(100) && point["wrong"] == 0));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("<polyline").count(), 4);
    assert!(!page.contains("http"), "nothing is fetched");
}

#[test]
fn the_highest_rate_that_keeps_a_latency_is_found() {
    let test = "the_highest_rate_that_keeps_a_latency_is_found";
    let Some(server) = Memcached::start(test, &[]) else { return };
    let address = server.address.to_string();
    let options = ["--server", &address, "--records", "5000", "-d", "4", "-c", "4", "--json"];
    bench(&[&["fill"][..], &options].concat());
    let search = [&["get"][..], &options, &["--seconds", "0.1", "--search", "p50=20ms"]].concat();
    let found = first_good(|| json(&bench(&search)), |found| found["best"].is_u64());
    let points = found["points"].as_array().unwrap();
    let best = points[found["best"].as_u64().expect("a rate") as usize].clone();
    assert!(best["latency"]["p50_us"].as_f64() <= Some(20_000.0));
    let rates: Vec<f64> = points.iter().filter_map(|p| p["rate_asked"].as_f64()).collect();
    assert!(rates.len() == points.len() && rates.is_sorted() && rates.len() > 2, "{rates:?}");
}

#[test]
fn two_servers_are_compared_by_turns() {
    let Some(_) = Memcached::start("two_servers_are_compared_by_turns", &[]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let extstore = "memcached -m 64 -o ext_page_size=8,ext_wbuf_size=2,ext_path={dir}/ext:64m";
    let compared = bench(&[
        "mixed",
        "--records",
        "5000",
        "--seconds",
        "0.1",
        "--rounds",
        "3",
        "--any-version",
        "--terrace",
        "memcached -m 64 -s {socket}",
        "--compare",
        extstore,
        "--dir",
        dir.path().to_str().unwrap(),
        "--json",
    ]); // fmt: skip
    let compared = json(&compared);
    assert_eq!(compared["wrong"], serde_json::json!([0, 0]));
    let rows = compared["rows"].as_array().unwrap();
    let row = |what: &str| rows.iter().find(|row| row["what"] == what).expect(what);
    let rate = row("requests/s");
    assert!(rate["values"][0].as_f64() > Some(100.0));
    let spread = ["least", "median", "most"].map(|name| rate["ratio"][name].as_f64().unwrap());
    assert!(spread.is_sorted() && spread[0] > 0.0, "{spread:?}");
    assert!(row("server CPU per request, us")["values"][1].as_f64() > Some(0.0));
    assert!(row("drive reads per request")["values"][0].is_null(), "it has no drive");
    assert_eq!(row("drive reads per request")["values"][1], 0.0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "all folders are gone");
}

#[test]
fn preconditioning_fills_a_server_without_drives() {
    let test = "preconditioning_fills_a_server_without_drives";
    let Some(server) = Memcached::start(test, &[]) else { return };
    let address = server.address.to_string();
    let read =
        bench(&["verify", "--server", &address, "--records", "3000", "--precondition", "--json"]); // fmt: skip
    assert_eq!(json(&read)["hits"], 3000);
}
