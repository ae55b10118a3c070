//! What `terrace` is besides a server, by its first argument. Everything else are memcached's flags.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the tool that the first argument names; `None` if it names none.
pub(crate) fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    words.next();
    let tool = words.next()?;
    let main: fn(Vec<_>) -> ExitCode = match tool.to_str()? {
        "bench" => terrace_load::main,
        "plan" => terrace_plan::main,
        "probe" => terrace_probe::main,
        _ => return None,
    };
    let mut name = OsString::from("terrace ");
    name.push(&tool);
    Some(main([name].into_iter().chain(words).collect()))
}
