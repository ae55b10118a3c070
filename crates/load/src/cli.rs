//! `terrace bench`: puts load on a memcached server and says what came back.

use crate::arguments::Arguments;
use crate::compare::{Comparison, compare};
use crate::precondition::precondition;
use crate::search::{Goal, search};
use crate::server::Server;
use crate::{Address, Client, LoadError, Plan, Process, Series, cores, html, run, series};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

/// The server's process, where this machine runs it.
fn process(arguments: &Arguments, plan: &Plan) -> Result<Option<Process>, LoadError> {
    let told = || -> Option<u32> {
        let stats = Client::open(&plan.address, plan.tls.as_ref()).ok()?.stats("").ok()?;
        stats.get("pid")?.parse().ok()
    };
    match arguments.pid {
        Some(pid) => match Process::new(pid) {
            None => Err(LoadError::Plan(format!("there is no process {pid}"))),
            process => Ok(process),
        },
        None => Ok(plan.address.is_local().then(told).flatten().and_then(Process::new)),
    }
}

/// Who does not listen any more needs no result.
fn print(text: impl Display) {
    let _ = write!(std::io::stdout(), "{text}");
}

fn measure(arguments: &Arguments) -> Result<Series, LoadError> {
    let plans = arguments.plans(&Address::parse(&arguments.server)?)?;
    let Some(first) = plans.first() else {
        return Err(LoadError::Plan("there is nothing to send".into()));
    };
    let server = process(arguments, first)?;
    if arguments.precondition {
        let amplification = precondition(first, server.as_ref())?;
        match amplification {
            Some(times) => eprintln!("preconditioned: {times:.2} bytes written per byte stored"),
            None => eprintln!("preconditioned: no drives, or writing did not become steady"),
        }
    }
    if let Some(goal) = &arguments.search {
        let found = search(first, Goal::parse(goal)?, server.as_ref())?;
        return Ok(Series { goal: Some(goal.clone()), ..found });
    }
    let mut series = Series::default();
    for (at, plan) in plans.iter().enumerate() {
        let plan = if at == 0 { plan.clone() } else { plan.clone().after_others() };
        match run(&plan, server.as_ref()) {
            Ok(point) => series.points.push(point),
            // What was measured until then is not lost.
            Err(error) => {
                series.end_early(error);
                break;
            }
        }
    }
    Ok(series)
}

fn compared(arguments: &Arguments, peer: &str) -> Result<Comparison, LoadError> {
    let start = |command: &str, name: &str| {
        Server::start(command, &arguments.dir, name, &arguments.server_cpus)
    };
    let servers = [start(&arguments.terrace, "terrace")?, start(peer, "peer")?];
    let plans = arguments.plans(&servers[0].address)?;
    match &plans[..] {
        [plan] => compare(&servers, plan, arguments.precondition, arguments.rounds.max(1)),
        _ => Err(LoadError::Plan("a comparison is no series: give one of each number".into())),
    }
}

/// Writes a page where one is asked for.
fn keep(arguments: &Arguments, page: impl FnOnce() -> String) -> Result<(), LoadError> {
    let Some(path) = &arguments.html else { return Ok(()) };
    std::fs::write(path, page())
        .map_err(|error| LoadError::Plan(format!("{}: {error}", path.display())))
}

/// Prints what was found; gives back whether it is as it should be.
fn report(arguments: &Arguments) -> Result<bool, LoadError> {
    cores::keep_to(&arguments.cpus)?;
    if let Some(path) = &arguments.html {
        // Known to be possible before it is measured what it is to hold.
        let opened = File::options().append(true).create(true).open(path);
        opened.map_err(|error| LoadError::Plan(format!("{}: {error}", path.display())))?;
    }
    if let Some(peer) = &arguments.compare {
        let comparison = compared(arguments, peer)?;
        match arguments.json {
            true => print(format_args!("{}\n", serde_json::json!(comparison))),
            false => print(&comparison),
        }
        keep(arguments, || html::comparison(&comparison))?;
        return Ok(comparison.wrong() == 0);
    }
    let series = measure(arguments)?;
    match (arguments.json, &series.points[..]) {
        (true, [only]) if series.goal.is_none() && series.failure.is_none() => {
            print(format_args!("{}\n", serde_json::json!(only)));
        }
        (true, _) => print(format_args!("{}\n", serde_json::json!(series))),
        (false, _) => print(&series),
    }
    let plans = arguments.plans(&Address::parse(&arguments.server)?)?;
    let title = plans.first().map(series::told).unwrap_or_default();
    keep(arguments, || html::page(&title, &series))?;
    let is_good = series.is_good();
    series.failure.map_or(Ok(is_good), Err)
}

/// The flags of `terrace bench`, for its manual page and completions of shells.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs with these arguments (the first is the program's name). Exit code 0: all is as it should be; 1: values were
/// wrong, requests were refused, or records were missed that should be there; 2: the arguments are wrong; 3: the
/// server could not be reached, or went away.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match report(&arguments) {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(error) => {
            eprintln!("terrace bench: {error}");
            ExitCode::from(if error.is_of_server() { 3 } else { 2 })
        }
    }
}
