//! `terrace plan`: prints the answer.

use crate::flags::Arguments;
use crate::{Drive, PlanError};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

const WRONG_USAGE: u8 = 2;
const NO_PEER: u8 = 3;

/// The flags of `terrace plan`, for its manual page and completions of shells.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs `terrace plan` with its arguments (the first is the program's name): prints the plan, or with
/// `--policy` what the policy laboratory finds.
/// Exit code 2 for wrong usage, and 3 if the server to be asked does not answer.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    if crate::lab::is_asked_for(&arguments) {
        return crate::lab::main(arguments);
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match told(&arguments) {
        Ok(text) => {
            // Who does not listen any more needs no plan.
            let _ = write!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("terrace plan: {error}");
            let is_server = matches!(error, PlanError::Server { .. });
            ExitCode::from(if is_server { NO_PEER } else { WRONG_USAGE })
        }
    }
}

fn told(arguments: &Arguments) -> Result<String, PlanError> {
    if arguments.classes {
        return Ok(Drive::classes());
    }
    let answer = arguments.answer()?;
    Ok(if arguments.json { format!("{:#}\n", answer.json()) } else { answer.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    fn arguments(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("terrace plan").chain(line.split_whitespace()))
    }

    fn fails(line: &str) -> String {
        match arguments(line) {
            Ok(arguments) => told(&arguments).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn json(line: &str) -> Value {
        let text = told(&arguments(&format!("{line} --json")).unwrap()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    const ITEMS: &str = "--items 1g --value-bytes 200";

    #[test]
    fn wrong_usage_says_what_to_do() {
        for (line, part) in [
            ("", "--items and --value-bytes, --trace, or --server"),
            ("--drive x", "nvme-mixed-1.6t"),
            ("--drive nvme-red-3.84t", "did you mean nvme-read-3.84t?"),
            ("--item 5", "--items"),
            ("--items 5 --popularity zipff", "'zipf'"),
            ("--items 5q", "220k"),
            ("--dram x", "512m"),
            ("--items 1k --value-bytes 100 -m 1", "give at least -m "),
            (
                "--items 1k --value-bytes 100 -m 64 --tier-size 100g",
                "2 x 100.0 GiB of flash; give at least -m ",
            ),
            ("--gets 5 --rate 5", "cannot be used with"),
            ("--items 1m --value-bytes 100 --tier-size 9t", "larger than its drive"),
            ("--items 1 --value-bytes 1 --exponent 1", "--exponent above 1"),
            ("--trace /nonexistent/trace.csv", "/nonexistent/trace.csv"),
            ("--drive none.toml", "none.toml"),
        ] {
            let error = fails(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn all_that_is_assumed_says_where_it_comes_from() {
        let told = json(&format!("{ITEMS} --gets 200k --sets 20k --dwpd 3 -m 4096"));
        let assumed = |name: &str| {
            let of = &told["assumptions"][name];
            (of["value"].clone(), of["from"].as_str().unwrap().to_owned())
        };
        assert_eq!(assumed("items"), (1e9.into(), "--items".into()));
        assert_eq!(assumed("key_bytes"), (20.0.into(), "default".into()));
        assert_eq!(assumed("requests_per_second"), (220e3.into(), "--gets, --sets".into()));
        assert_eq!(assumed("memory_bytes"), (4294967296.0.into(), "-m".into()));
        assert_eq!(assumed("drive").0["drive_writes_per_day"], 3.0);
        assert_eq!(assumed("ttl_seconds").0, Value::Null);
        // Flags that are counted otherwise say the same.
        let same =
            json(&format!("{ITEMS} --rate 220000 --get-percent 90.90909090909091 --dram 4g"));
        assert_eq!(
            told["assumptions"]["get_share"]["value"],
            same["assumptions"]["get_share"]["value"]
        );
        assert_eq!(told["proposal"]["arguments"], same["proposal"]["arguments"]);
    }

    #[test]
    fn the_proposal_is_a_slice_of_the_drives() {
        let told = json(&format!("{ITEMS} --dram 16 --path /dev/nvme1n1"));
        let proposal = &told["proposal"];
        let arguments: Vec<_> =
            proposal["arguments"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        let ["-m", "16384", "-t", "16", "--tier", tier] = arguments[..] else {
            panic!("{arguments:?}");
        };
        let size = tier.strip_prefix("ssd:/dev/nvme1n1:").and_then(|size| size.strip_suffix('g'));
        let size: f64 = size.unwrap().parse().unwrap();
        // 1e9 records of 232 bytes, 17 to a page of 4096, in 80 % of it.
        assert!((280.0..360.0).contains(&size), "{size}");
        assert_eq!(proposal["tiers"][0]["bytes"], size * f64::from(1 << 30));
        assert!(proposal["toml"].as_str().unwrap().contains(tier));
        // All of a drive has no size, all of a file has.
        let all = json(&format!("{ITEMS} --dram 64 --drives 2 --path /dev/a --tier-size all"));
        let command = all["proposal"]["command"].as_str().unwrap();
        assert!(command.contains("--tier ssd:/dev/a --tier ssd:DEV2"), "{command}");
        let file = json(&format!("{ITEMS} --dram 64 --path /data/a --tier-size all"));
        let command = file["proposal"]["command"].as_str().unwrap();
        assert!(command.ends_with("--tier ssd:/data/a:3662109m"), "{command}");
    }

    #[test]
    fn least_memory_is_told_for_the_records_that_are_planned_for() {
        let least = |value_bytes: u32| {
            let told = json(&format!("--items 1m --value-bytes {value_bytes} --key-bytes 20"));
            assert_eq!(told["expected"]["record_bytes"], value_bytes + 32);
            told["memory_by_tier"][0].clone()
        };
        for record_bytes in [100, 512, 1024] {
            let row = least(record_bytes - 32);
            assert_eq!(row["these_records"], row[format!("records_of_{record_bytes}_bytes")]);
        }
        // A server does not start with what is enough for larger ones.
        let row = least(20_000);
        assert_eq!(row["these_records"], row["records_of_4096_bytes"]);
    }

    fn documentation() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan.md");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn documentation_shows_what_is_printed() {
        let line = format!("{ITEMS} --gets 450k --sets 50k");
        let text = told(&arguments(&line).unwrap()).unwrap();
        assert!(
            documentation().contains(&format!("terrace plan {line}` prints\n\n```text\n{text}```")),
            "{text}"
        );
    }

    /// Names of an object and of those within, lists included.
    fn names(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                all.push(name.clone());
                names(value, all);
            }),
            Value::Array(values) => values.iter().for_each(|value| names(value, all)),
            _ => {}
        }
    }

    #[test]
    fn every_name_of_the_json_is_documented_and_every_documented_name_is_there() {
        let told = json(&format!("{ITEMS} --price-dram 4 --price-drive 400 --price-node 3k"));
        let mut all = Vec::new();
        names(&told, &mut all);
        let text = documentation();
        let (_, rest) = text.split_once("## JSON").unwrap();
        let (section, _) = rest.split_once("\n## ").unwrap();
        let (_, table) = section.split_once("|---|---|").unwrap();
        let documented: Vec<_> = table.split('`').skip(1).step_by(2).collect();
        for name in &all {
            assert!(
                documented.contains(&name.as_str()) || ["value", "from"].contains(&name.as_str()),
                "{name}"
            );
        }
        let is_name = |word: &&&str| {
            word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        for name in documented.iter().filter(is_name) {
            assert!(all.iter().any(|there| there == name) || *name == "default", "{name}");
        }
    }

    /// A memcached that answers `stats` with these rows, or hangs up without any.
    fn answering(rows: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
            let _ = lines.next();
            if rows.is_empty() {
                return;
            }
            let _ = socket.write_all(rows.as_bytes());
            let _ = lines.next();
            let _ = socket.write_all(b"END\r\n");
        });
        address
    }

    #[test]
    fn a_running_server_is_planned_with_what_it_says() {
        let day = "STAT uptime 86400\r\nSTAT curr_items 1000000\r\nSTAT bytes 276000000\r\nSTAT cmd_get 9000000000\r\n\
                   STAT cmd_set 1000000000\r\nSTAT limit_maxbytes 8589934592\r\nSTAT evictions 0\r\nEND\r\n";
        let address = answering(day);
        let told = json(&format!("--server {address}"));
        assert_eq!(told["assumptions"]["value_bytes"]["value"], 200.0);
        assert_eq!(told["proposal"]["memory_bytes"], 8_589_934_592_u64);
        assert_eq!(told["assumptions"]["items"]["from"], address);
        assert_eq!(told["warnings"], serde_json::json!([]));
    }

    #[test]
    fn drives_of_a_server_have_years_from_a_day_of_uptime_on() {
        let young = "STAT uptime 86399\r\nSTAT curr_items 1000000\r\nSTAT bytes 276000000\r\nSTAT cmd_get 9000000000\r\n\
                     STAT cmd_set 1000000000\r\nEND\r\n";
        let years = |rows: &'static str, flags: &str| {
            let line = format!("--server {} {flags}", answering(rows));
            json(&line)["expected"]["each_drive"]["life_years"].clone()
        };
        for flags in ["", "--gets 10k", "--rate 10k", "--get-percent 50"] {
            assert_eq!(years(young, flags), Value::Null, "{flags}");
        }
        // What is said is taken for usual.
        for flags in ["--sets 10k", "--rate 10k --get-percent 50"] {
            assert!(years(young, flags).as_f64().unwrap() > 0.0, "{flags}");
        }
        let line = format!("--server {}", answering(young));
        let text = told(&arguments(&line).unwrap()).unwrap();
        assert!(text.contains("; years until worn out are told of a server that"), "{text}");
        let day: &'static str = young.replace("86399", "86400").leak();
        assert!(years(day, "").as_f64().unwrap() > 0.0);
    }

    #[test]
    fn a_fresh_server_is_planned_with_a_warning_or_says_what_is_missing() {
        let fresh = "STAT uptime 60\r\nSTAT curr_items 0\r\nSTAT bytes 0\r\nSTAT cmd_get 0\r\nSTAT cmd_set 0\r\nEND\r\n";
        let error = fails(&format!("--server {}", answering(fresh)));
        assert!(error.contains("holds no items yet"), "{error}");
        let address = answering(fresh);
        let told = json(&format!("--server {address} {ITEMS}"));
        assert_eq!(told["assumptions"]["requests_per_second"]["from"], "default");
        let [warning] = &told["warnings"].as_array().unwrap()[..] else { panic!("{told}") };
        assert!(warning.as_str().unwrap().contains("has been up for 60 s"), "{warning}");
    }

    #[test]
    fn a_server_that_can_not_be_asked_says_why() {
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = fails(&format!("--server {unused}"));
        assert!(error.contains("refused") && error.contains("write HOST:PORT"), "{error}");
        let address = answering("ERROR\r\n");
        let error = fails(&format!("--server {address}"));
        assert!(error.contains("is it memcached?"), "{error}");
        let error = fails(&format!("--server {}", answering("")));
        assert!(error.contains("closed the connection"), "{error}");
        let address = answering("CLIENT_ERROR unauthenticated\r\n");
        let error = fails(&format!("--server {address}"));
        assert!(error.contains("asks for a password"), "{error}");
    }
}
