//! What `terrace plan` prints is read by the server as it was meant.

use std::process::{Command, Output};
use terrace::settings::{Invocation, Settings};

const ITEMS: [&str; 4] = ["--items", "1g", "--value-bytes", "200"];

fn plan(flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.arg("plan").args(flags).output().expect("it runs")
}

fn settings(arguments: &[String]) -> Settings {
    match Invocation::parse(arguments) {
        Ok(Invocation::Serve(settings)) => *settings,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// What is proposed with these flags: by the command line, and by the file.
fn proposed(flags: &[&str]) -> [Settings; 2] {
    let ended = plan(&[flags, &["--json"]].concat());
    assert!(ended.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&ended.stderr));
    let told: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("one object");
    let proposal = &told["proposal"];
    let arguments = proposal["arguments"].as_array().expect("a list");
    let words = arguments.iter().map(|word| word.as_str().expect("a word").to_owned());
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("terrace.toml");
    std::fs::write(&file, proposal["toml"].as_str().expect("text")).expect("room for a file");
    let config = ["--config".to_owned(), file.to_str().expect("a path of text").to_owned()];
    let by_file = Settings { tier_files: Vec::new(), ..settings(&config) };
    [settings(&words.collect::<Vec<_>>()), by_file]
}

#[test]
fn printed_arguments_and_printed_file_are_what_was_planned() {
    for (flags, memory_mib, threads, paths) in [
        (&[] as &[&str], 65_536, 16, vec!["DEV1", "DEV2"]),
        (&["-m", "8192", "--cores", "4", "--path", "/data/a tier"], 8192, 4, vec!["/data/a tier"]),
        (
            &[
                "--dram",
                "24g",
                "--path",
                "/dev/nvme1n1",
                "--path",
                "/dev/nvme2n1",
                "--tier-full",
                "70",
            ],
            24_576,
            16,
            vec!["/dev/nvme1n1", "/dev/nvme2n1"],
        ),
        (&["--dram", "64", "--drives", "1", "--tier-size", "all"], 65_536, 16, vec!["DEV"]),
        (&["--value-bytes", "3m", "--items", "1000"], 65_536, 16, vec!["DEV1", "DEV2"]),
    ] {
        let data = if flags.contains(&"--items") { &[] } else { &ITEMS[..] };
        let flags = [data, flags].concat();
        let [by_line, by_file] = proposed(&flags);
        assert_eq!(by_line, by_file, "{flags:?}");
        assert_eq!(by_line.notes, [], "nothing that is not looked at");
        assert_eq!(by_line.memory_bytes, memory_mib << 20, "{flags:?}");
        assert_eq!(by_line.threads, threads, "{flags:?}");
        let named: Vec<_> = by_line.tiers.iter().filter_map(|tier| tier.place.path()).collect();
        let paths: Vec<_> =
            paths.iter().map(|path| std::path::absolute(path).expect("a path")).collect();
        assert_eq!(named, paths, "{flags:?}");
        let is_all = flags.contains(&"all");
        assert!(by_line.tiers.iter().all(|tier| tier.bytes.is_none() == is_all), "{flags:?}");
        let full = if flags.contains(&"--tier-full") { 70 } else { 80 };
        assert_eq!(by_line.tier_full_percent, full);
        let longest = if flags.contains(&"3m") { 4 << 20 } else { 1 << 20 };
        assert_eq!(by_line.item_bytes_max, longest);
    }
}

#[test]
fn exit_codes_tell_wrong_usage_from_a_server_that_does_not_answer() {
    for (code, flags) in [
        (0, &["--help"] as &[&str]),
        (0, &["--classes"]),
        (0, &ITEMS),
        (2, &[]),
        (2, &["--itms", "5"]),
        (2, &["--drive", "floppy"]),
        (2, &["--items", "5", "--value-bytes", "x"]),
        (3, &["--server", "127.0.0.1:1"]),
    ] {
        let ended = plan(flags);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{flags:?}: {said}");
        assert_eq!(said.is_empty(), code == 0, "{flags:?}: {said}");
    }
}
