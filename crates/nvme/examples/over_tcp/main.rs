//! NVMe/TCP over blocking sockets: a host that tries what a target can do, and a target in memory.
//!
//! ```text
//! over_tcp discover ADDRESS
//! over_tcp exercise ADDRESS NQN NSID [--digests]   write, read and compare, errors, a reset
//! over_tcp resized  ADDRESS NQN NSID               wait until the namespace has another size
//! over_tcp survives ADDRESS NQN NSID               compare again once the connection was lost and is back
//! over_tcp reserves ADDRESS NQN NSID               two hosts and a reservation
//! over_tcp serve    ADDRESS NQN BLOCK_BYTES MIB    a target in memory
//! ```
//!
//! Each step that succeeds prints a line; the exit code is 0 if all do. `tests/guest` runs it against Linux' target, and
//! Linux' initiator against `serve`.

mod host;
mod link;
mod serve;
mod steps;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use terrace_nvme::pdu::Digests;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn run(words: &[&str]) -> Outcome {
    let (words, digests) = match words {
        [words @ .., "--digests"] => (words, true),
        words => (words, false),
    };
    let digests = Digests { header: digests, data: digests };
    match *words {
        ["discover", address] => steps::discover(address.parse()?),
        ["serve", address, nqn, block_bytes, mib] => {
            serve::serve(address.parse()?, nqn, block_bytes.parse()?, mib.parse()?)
        }
        [step, address, nqn, nsid] => {
            let (address, nsid): (SocketAddr, u32) = (address.parse()?, nsid.parse()?);
            match step {
                "exercise" => steps::exercise(address, nqn, nsid, digests),
                "resized" => steps::resized(address, nqn, nsid),
                "survives" => steps::survives(address, nqn, nsid),
                "reserves" => steps::reserves(address, nqn, nsid),
                _ => Err(format!("no such step: {step}").into()),
            }
        }
        _ => Err("over_tcp STEP ADDRESS [NQN NSID]; see the head of this example".into()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAIL {error}");
            ExitCode::FAILURE
        }
    }
}
