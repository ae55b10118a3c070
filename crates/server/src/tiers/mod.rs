//! `terrace tiers`: shows and changes the tiers of a running server, through its admin port.

mod arguments;
mod error;
mod peer;
mod progress;
mod request;
mod tier;

use crate::say;
use arguments::{Action, Arguments};
use clap::{CommandFactory, Parser};
use error::Error;
use peer::Peer;
use std::ffi::OsString;
use std::process::ExitCode;
use terrace_cache::RemoveError;
use tier::{Tier, find, table};

/// The flags of `terrace tiers`, for its manual pages and completions of shells.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs `terrace tiers` with its arguments (the first is the program's name). Exit code 1: the server refused the
/// change, or a drain ended before the tier was empty; 2: the arguments are wrong; 3: no answer from a server.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(format_args!("terrace tiers: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let peer = Peer::of(&arguments.server)?;
    let chosen = |named: &str| find(&peer.tiers()?, named).cloned();
    match &arguments.action {
        Action::Status { json: true } => say::line(peer.json()?.trim_end()),
        Action::Status { json: false } => say::line(table(&peer.tiers()?).trim_end()),
        Action::Add { tier, yes } => add(&peer, tier, *yes)?,
        Action::Drain { tier, force, wait } => {
            let tier = chosen(tier)?;
            let mode = if *force { "?records=drop" } else { "" };
            let tiers = peer.change(&format!("/tiers/{}/drain{mode}", tier.number))?;
            match wait {
                true => progress::wait(&peer, &tier)?,
                false => say::line(tiers.get(tier.number).unwrap_or(&tier).line()),
            }
        }
        Action::Cancel { tier } => {
            let tier = chosen(tier)?;
            let tiers = peer.change(&format!("/tiers/{}/cancel", tier.number))?;
            say::line(tiers.get(tier.number).unwrap_or(&tier).line());
        }
        Action::Remove { tier, yes } => remove(&peer, &chosen(tier)?, *yes)?,
    }
    Ok(())
}

/// Adds a tier, also on a drive that was one before if `may_overwrite`.
fn add(peer: &Peer, tier: &str, may_overwrite: bool) -> Result<(), Error> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("tier", tier);
    if may_overwrite {
        query.append_pair("records", "drop");
    }
    let tiers = peer.change(&format!("/tiers?{}", query.finish()))?;
    if let Some(added) = tiers.last() {
        say::line(added.line());
    }
    say::line("name it in the server's settings, too, as the last one: a restart goes by them");
    Ok(())
}

/// Removes a tier, with its records only if `with_records`.
fn remove(peer: &Peer, tier: &Tier, with_records: bool) -> Result<(), Error> {
    let mode = if with_records { "?records=drop" } else { "" };
    match peer.change(&format!("/tiers/{}/remove{mode}", tier.number)) {
        Ok(_) => {}
        Err(Error::Refused(why)) if why == RemoveError::HasRecords.to_string() => {
            let (name, held, number) = (tier.name(), tier.held(), tier.number);
            return Err(Error::Refused(format!(
                "{name} has {held}, which would be lost: move them first (terrace tiers drain {number} --wait), or write \
                 --yes"
            )));
        }
        Err(error) => return Err(error),
    }
    let lost = if tier.records > 0 && with_records {
        format!(" with {}, which are lost", tier.held())
    } else {
        String::new()
    };
    say::line(format_args!(
        "{}: removed{lost}; leave it out of the server's settings before the next start",
        tier.name()
    ));
    Ok(())
}
