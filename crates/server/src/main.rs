//! `terrace`: a memcached server whose cache is as large as its drives.

mod startup;

use startup::daemon::{self, Side};
use startup::{Failure, banner, limits, user};
use std::process::ExitCode;
use terrace::settings::{self, Invocation, Print, Settings};

fn main() -> ExitCode {
    let arguments: Vec<_> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let result = match Invocation::parse(&arguments) {
        Ok(Invocation::Print(what)) => print(what),
        Ok(Invocation::Serve(settings)) => start(&settings),
        Err(error) => Err(Failure::new(Failure::USAGE, error)),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("terrace: {}", failure.message);
        ExitCode::from(failure.code)
    })
}

fn print(what: Print) -> Result<ExitCode, Failure> {
    match what {
        Print::Help => print!("{}", settings::help()),
        Print::Version => println!("{}", banner::version()),
        Print::License => println!(
            "{}\n\nLicensed under the Apache License, Version 2.0:\n\
             https://www.apache.org/licenses/LICENSE-2.0",
            banner::version()
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves, in the background if asked for.
fn start(settings: &Settings) -> Result<ExitCode, Failure> {
    match (settings.daemon, daemon::side()) {
        (false, _) => serve(settings, None),
        (true, Side::Child(child)) => serve(settings, Some(child)),
        (true, Side::Parent) => daemon::start(),
    }
}

/// The steps of a start. What needs root comes before it is given up, threads come after.
fn serve(settings: &Settings, daemon: Option<daemon::Child>) -> Result<ExitCode, Failure> {
    if settings.core_dumps {
        limits::allow_core_dumps()?;
    }
    limits::allow_descriptors(settings.connections_max, settings.threads, settings.tiers.len())?;
    user::change(settings.user.as_deref())?;
    if let Some(daemon) = &daemon {
        daemon.detach()?;
    }
    println!("{}", banner::version());
    for note in &settings.notes {
        println!("{note}");
    }
    Err(Failure::system("this build does not serve yet"))
}
