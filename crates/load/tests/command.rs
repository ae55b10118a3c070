//! The command line: series, searches, comparisons and their reports.

mod common;

use common::{Memcached, first_good, wait_for};
use serde_json::Value;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

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
        "0.5",
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
    assert!(points.iter().all(|point| point["hits"].as_u64() > Some(0) && point["wrong"] == 0));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    // Four curves for each number of connections, along their depths, and as many names.
    assert_eq!(page.matches("<polyline").count(), 16);
    assert!(page.contains("<h2>2 connections</h2>") && page.contains("<h2>4 connections</h2>"));
    assert!(fetches_nothing(&page));
}

/// The name of SVG's elements is no address.
fn fetches_nothing(page: &str) -> bool {
    !page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "").contains("http")
}

#[test]
fn versions_of_an_earlier_run_are_told_apart() {
    let test = "versions_of_an_earlier_run_are_told_apart";
    let Some(server) = Memcached::start(test, &[]) else { return };
    let address = server.address.to_string();
    let options = ["--server", &address, "--records", "5000", "--seconds", "0.2"];
    bench(&[&["fill"][..], &options[..4]].concat());
    let mixed = [&["mixed"][..], &options, &["--json"]].concat();
    assert_eq!(json(&bench(&mixed))["wrong"], 0);
    let second = bench(&mixed);
    assert_eq!(second.status.code(), Some(1), "they might be stale");
    let told: Value = serde_json::from_slice(&second.stdout).expect("JSON");
    assert!(told["wrong"].as_u64() > Some(0) && told["wrong"] == told["other_versions"], "{told}");
    for depths in ["8", "4,8"] {
        let told = bench(&[&["get"][..], &options, &["-d", depths]].concat());
        let told = String::from_utf8_lossy(&told.stdout);
        assert!(told.contains("of the wrong") && told.contains("--any-version"), "{told}");
    }
    json(&bench(&[&mixed[..], &["--any-version"]].concat()));
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
fn a_rate_that_the_server_cannot_keep_is_told() {
    let test = "a_rate_that_the_server_cannot_keep_is_told";
    let Some(server) = Memcached::start(test, &[]) else { return };
    let address = server.address.to_string();
    let options = ["--server", &address, "--records", "5000"];
    bench(&[&["fill"][..], &options].concat());
    let get = [&["get"][..], &options, &["--seconds", "0.5", "--rate", "50000000"]].concat();
    let told = json(&bench(&[&get[..], &["--json"]].concat()));
    // What was answered last was due when one of hundreds had been sent: it waited nearly all the time.
    assert!(told["latency"]["max_us"].as_f64() > Some(300_000.0), "{told}");
    let told = bench(&get);
    let told = String::from_utf8_lossy(&told.stdout);
    assert!(told.contains("of 50000000/s asked for") && told.contains("BEHIND"), "{told}");
}

#[test]
fn what_was_measured_before_a_server_died_is_told() {
    let test = "what_was_measured_before_a_server_died_is_told";
    let Some(mut server) = Memcached::start(test, &[]) else { return };
    let address = server.address.to_string();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-load"));
    command.args(["get", "--server", &address, "--records", "5000", "--seconds", "0.5"]);
    // More points than anybody waits for.
    let depths: Vec<_> = (1..500).map(|depth| depth.to_string()).collect();
    command.args(["-d", &depths.join(","), "--json", "--html", page.to_str().unwrap()]);
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    // In the middle of the third point, or of one of those around it.
    std::thread::sleep(std::time::Duration::from_millis(1300));
    server.child.kill().unwrap();
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("terrace bench: "));
    let series: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(!series["points"].as_array().unwrap().is_empty(), "{series}");
    assert!(series["failed"].is_string(), "{series}");
    assert!(std::fs::read_to_string(page).unwrap().contains("ENDED EARLY"));
}

#[test]
fn exit_codes_say_what_went_wrong() {
    let Some(mut server) = Memcached::start("exit_codes_say_what_went_wrong", &["-m", "8"]) else {
        return;
    };
    let address = server.address.to_string();
    let records = ["--server", &address, "--records", "1000"];
    let code = |words: &[&str]| bench(&[words, &records].concat()).status.code();
    assert_eq!(code(&["verify"]), Some(1), "all are missed");
    assert_eq!(code(&["fill"]), Some(0));
    assert_eq!(code(&["verify"]), Some(0));
    assert_eq!(code(&["fill", "--value-bytes", "2000000"]), Some(1), "all are refused");
    assert_eq!(code(&["fil"]), Some(2));
    assert_eq!(code(&["get", "--rate", "0"]), Some(2));
    assert_eq!(code(&["fill"]), Some(0));
    // What came back before the server went away is told.
    let run = Command::new(env!("CARGO_BIN_EXE_terrace-load"))
        .args(["get", "--seconds", "30", "--json"])
        .args(records)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.child.kill().unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(told["failed"].is_string(), "{told}");
    assert!(told["points"][0]["hits"].as_u64() > Some(0), "{told}");
    assert_eq!(code(&["verify"]), Some(3), "nothing listens there");
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_anything_is_sent() {
    let nobody = "127.0.0.1:1";
    let told = bench(&["get", "--server", nobody, "--html", "/nowhere/page.html"]);
    assert_eq!(told.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&told.stderr).contains("/nowhere/page.html"), "{told:?}");
}

#[test]
fn two_servers_are_compared_by_turns() {
    let Some(_) = Memcached::start("two_servers_are_compared_by_turns", &[]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let pages = tempfile::tempdir().unwrap();
    let page = pages.path().join("<page>.html");
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
        "--html",
        page.to_str().unwrap(),
    ]); // fmt: skip
    let compared = json(&compared);
    assert_eq!(compared["wrong"], serde_json::json!([0, 0]));
    let rows = compared["rows"].as_array().unwrap();
    let row = |what: &str| rows.iter().find(|row| row["what"] == what).expect(what);
    let rate = row("requests/s");
    assert!(rate["values"][0].as_f64() > Some(0.0));
    let spread = ["least", "median", "most"].map(|name| rate["ratio"][name].as_f64().unwrap());
    assert!(spread.is_sorted() && spread[0] > 0.0, "{spread:?}");
    assert!(row("server CPU per request, us")["values"][1].as_f64() > Some(0.0));
    assert!(row("drive reads per request")["values"][0].is_null(), "it has no drive");
    assert_eq!(row("drive reads per request")["values"][1], 0.0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "all folders are gone");
    assert_eq!(rate["by_round"][1].as_array().unwrap().len(), 3);

    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(fetches_nothing(&page));
    // Both servers stand beside each other in each row of the table, and in each chart.
    for row in rows {
        let what = row["what"].as_str().unwrap();
        let cells = page.split_once(&format!("<tr><th>{what}</th>")).expect(what).1;
        let cells = cells.split_once("</tr>").unwrap().0;
        assert_eq!(cells.matches("<td>").count(), 4, "{what}: {cells}");
    }
    let charts = rows.iter().filter(|row| !row["by_round"].is_null()).count();
    assert!(charts >= 5, "{charts}");
    assert_eq!(page.matches("<polyline").count(), charts * 2 + 2);
    for command in compared["commands"].as_array().unwrap() {
        assert!(page.contains(&format!("<code>{}</code>", command.as_str().unwrap())));
    }
}

#[test]
fn servers_and_their_folders_go_when_a_comparison_is_ended() {
    let test = "servers_and_their_folders_go_when_a_comparison_is_ended";
    let Some(_) = Memcached::start(test, &[]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let memcached = "memcached -m 64 -s {socket}";
    let mut bench = Command::new(env!("CARGO_BIN_EXE_terrace-load"));
    bench.args(["get", "--records", "1000", "--seconds", "60", "--terrace", memcached]);
    bench.args(["--compare", memcached, "--dir", dir.path().to_str().unwrap()]);
    let mut bench = bench.stdout(Stdio::null()).spawn().expect("the program runs");
    let sockets = || {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        entries.flatten().map(|entry| entry.path().join("socket")).collect::<Vec<_>>()
    };
    let connect = |path: &PathBuf| UnixStream::connect(path).ok();
    let mut clients = wait_for(|| {
        let sockets = sockets();
        let clients: Option<Vec<_>> = sockets.iter().map(connect).collect();
        clients.filter(|clients| clients.len() == 2)
    });
    let ended = Command::new("kill").arg(bench.id().to_string()).status();
    assert!(ended.expect("kill runs").success());
    let status = bench.wait().expect("a child can be waited for");
    assert_eq!(status.code(), Some(128 + 15));
    assert_eq!(sockets().len(), 0, "their folders are left");
    // Nobody is behind the other end any more.
    assert!(clients.iter_mut().all(|client| matches!(client.read(&mut [0]), Ok(0) | Err(_))));
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

#[test]
fn records_that_a_file_lists_are_the_only_ones_asked_for() {
    let test = "records_that_a_file_lists_are_the_only_ones_asked_for";
    let Some(server) = Memcached::start(test, &[]) else { return };
    let address = server.address.to_string();
    let run = |workload: &str, more: &[&str]| {
        let flags = [workload, "--server", &address, "-c", "2", "--json"];
        bench(&[&flags[..], more].concat())
    };
    assert_eq!(json(&run("fill", &["--first", "100", "--records", "50"]))["stored"], 50);
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("numbers");
    let listed = |numbers: &str| {
        std::fs::write(&list, numbers).unwrap();
        ["--among", list.to_str().unwrap()].map(str::to_owned)
    };
    let [flag, file] = listed("149\n7\n100\n120\n8\n");
    let report = json(&run("get", &[&flag, &file, "--requests", "5000"]));
    let (hits, misses) = (report["hits"].as_u64().unwrap(), report["misses"].as_u64().unwrap());
    assert_eq!((hits + misses, &report["wrong"]), (5000, &0.into()));
    assert!((2500..3500).contains(&hits), "three of five are there, not {hits} of 5000");
    // Each once, and what is stored is what is listed.
    assert_eq!(json(&run("fill", &[&flag, &file]))["stored"], 5);
    assert_eq!(json(&run("verify", &[&flag, &file]))["hits"], 5);
    let [flag, file] = listed("1\ntwo\n");
    let refused = run("get", &[&flag, &file]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("\"two\" is no number"));
}
