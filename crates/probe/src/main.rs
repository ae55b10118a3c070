//! `terrace-probe`: `terrace probe` as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    terrace_probe::main(std::env::args_os())
}
