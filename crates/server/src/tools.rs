//! What `terrace` is besides a server, by its first argument. Everything else are memcached's flags.

use std::ffi::OsString;
use std::process::ExitCode;
use terrace::say;
use terrace::settings;

/// Runs the tool that the first of `words` names; `None` if it names none.
pub(crate) fn run(words: &[OsString]) -> Option<ExitCode> {
    let (tool, rest) = words.split_first()?;
    let main: fn(Vec<_>) -> ExitCode = match tool.to_str()? {
        "bench" => terrace_load::main,
        "plan" => terrace_plan::main,
        "probe" => terrace_probe::main,
        "tiers" => terrace::tiers::main,
        "export" => terrace::export::main,
        "convert" => convert,
        _ => return None,
    };
    let mut name = OsString::from("terrace ");
    name.push(tool);
    Some(main([name].into_iter().chain(rest.iter().cloned()).collect()))
}

/// `terrace convert FILE`.
fn convert(words: Vec<OsString>) -> ExitCode {
    const USAGE: &str = "usage: terrace convert FILE

Writes the settings of memcached's service, /etc/memcached.conf (Debian) or /etc/sysconfig/memcached (Fedora, RHEL),
as settings of terrace to standard output: terrace convert /etc/memcached.conf > /etc/terrace.toml";
    let [_, file] = &words[..] else {
        say::error(USAGE);
        return ExitCode::from(2);
    };
    if file == "-h" || file == "--help" {
        say::line(USAGE);
        return ExitCode::SUCCESS;
    }
    let name = file.to_string_lossy();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"));
    match text.and_then(|text| settings::convert(&name, &text).map_err(|error| error.to_string())) {
        Ok(toml) => {
            say::line(toml.trim_end());
            ExitCode::SUCCESS
        }
        Err(error) => {
            say::error(format_args!("terrace convert: {error}"));
            ExitCode::from(2)
        }
    }
}
