//! `terrace-load`: `terrace bench` as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    terrace_load::main(std::env::args_os())
}
