//! Tests that this machine, or this server, can't run.

/// Says that `test` did not run, and why; it stands in the output of a passing run too.
pub fn skip(test: &str, why: &str) {
    use std::io::Write;
    // Past the harness, which keeps the output of passing tests to itself.
    let _ = writeln!(std::io::stderr().lock(), "skipped: {test}: {why}");
}

/// Whether mounts and other users can be had.
pub fn run_as_root() -> bool {
    rustix::process::geteuid().is_root()
}
