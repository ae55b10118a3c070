//! docs/measured.md is what `bench/table` writes from bench/results, and lacks no figure; README.md quotes it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use terrace_e2e::skip;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn page_is_what_the_table_writes() {
    const NAME: &str = "page_is_what_the_table_writes";
    let Ok(output) =
        Command::new("python3").arg(root().join("bench/table")).arg("--check").output()
    else {
        return skip(NAME, "python3 is not installed");
    };
    assert!(
        output.status.success(),
        "run bench/table:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Reads the results without `bench/table`, so that a mistake of its own shows.
#[test]
fn page_has_every_figure_of_the_results() {
    let page = read("docs/measured.md");
    let mut figures = 0;
    let mut missing = Vec::new();
    for entry in fs::read_dir(root().join("bench/results")).expect("bench/results") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a result");
        let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let command = format!("`{}`", result["command"].as_str().expect("a command"));
        for figure in result["figures"].as_array().expect("figures") {
            let text = |field: &str| figure[field].as_str().expect("text").replace('|', "\\|");
            let (what, must, value) = (text("what"), text("must"), text("figure"));
            // What stands in brackets behind a value has a column of its own.
            let (value, details) = match value.strip_suffix(')').and_then(|it| it.split_once(" ("))
            {
                Some(parts) => parts,
                None => (value.as_str(), ""),
            };
            let value = match figure["holds"].as_bool() {
                Some(false) => format!("**{value}**"),
                _ => value.to_string(),
            };
            let cells = [what.as_str(), &must, &value, details, &command];
            if !page.lines().any(|line| cells_of(line) == cells) {
                missing.push(format!("{}: {cells:?}", path.display()));
            }
            figures += 1;
        }
    }
    assert!(figures > 0, "no figure in bench/results");
    assert!(missing.is_empty(), "docs/measured.md lacks:\n{}", missing.join("\n"));
}

/// The numbers of README.md's table are those of docs/measured.md, of the same command.
#[test]
fn readme_quotes_the_page() {
    let (readme, page) = (read("README.md"), read("docs/measured.md"));
    let mut quoted = 0;
    for line in readme.lines().filter(|line| line.contains("| `bench/run ")) {
        let cells = cells_of(line);
        let (values, command) = (&cells[1..cells.len() - 1], cells[cells.len() - 1]);
        let lines: Vec<&str> =
            page.lines().filter(|line| cells_of(line).last() == Some(&command)).collect();
        // Whole numbers without a separator, such as eight threads, are conditions.
        let is_figure = |word: &&str| word.contains(['.', ',']) && word.contains(char::is_numeric);
        let words = values.iter().flat_map(|cell| cell.split(' '));
        for number in words.map(number_of).filter(is_figure) {
            let is_there = |line: &&str| line.split(['|', ' ']).any(|it| number_of(it) == number);
            assert!(lines.iter().any(is_there), "{number} is not of {command}: {line}");
            quoted += 1;
        }
    }
    assert!(quoted >= 10, "README.md quotes {quoted} figures only");
}

/// A word without what stands around its number.
fn number_of(word: &str) -> &str {
    word.trim_end_matches("/s").trim_matches(|it: char| !it.is_numeric())
}

/// The cells of a line of a table; none of another line.
fn cells_of(line: &str) -> Vec<&str> {
    let Some(line) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
        return Vec::new();
    };
    // A bar within a cell is escaped; no cell ends with a backslash.
    let mut cells = Vec::new();
    let mut start = 0;
    for (at, _) in line.match_indices('|').filter(|(at, _)| !line[..*at].ends_with('\\')) {
        cells.push(line[start..at].trim());
        start = at + 1;
    }
    cells.push(line[start..].trim());
    cells
}
