//! `terrace`: a memcached server whose cache is as large as its drives.

// They panic where nobody reads any more; `log` and `say` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod startup;
mod tools;
mod words;

use startup::daemon::{self, Side};
use startup::pid_file::PidFile;
use startup::{Failure, banner, limits, port_file, roster, state, tiers, user};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use terrace::admin::Admin;
use terrace::server::{self, Listener, Signals};
use terrace::settings::{self, Invocation, Print, Settings, TierSpec};
use terrace::tls;
use terrace::{log, say};
use terrace_cache::{Cache, Config, Note, Tier, Witness, WriteRate};
use terrace_device::Drive;
use terrace_runtime::created::Created;
use terrace_runtime::state::Chosen;
use tracing::{error, info, warn};

/// Sessions of the cache besides those of the workers.
const SESSIONS_BESIDES: usize = 8;
/// Background threads where nobody says how many.
const BACKGROUND_MAX: usize = 4;
/// `cache_memlimit` raises `-m` up to so many times.
const MEMORY_RAISED_MAX: u64 = 4;

fn main() -> ExitCode {
    let words = words::words();
    if let Some(exit) = tools::run(&words) {
        return exit;
    }
    let arguments: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let result = match Invocation::parse(&arguments) {
        Ok(Invocation::Print(what)) => print(what),
        Ok(Invocation::Serve(settings)) => {
            log::begin(settings.log_format);
            let settings = Settings { group_bytes: settings::group_bytes(), ..*settings };
            return start(&settings).unwrap_or_else(|failure| {
                error!("{}", failure.message);
                ExitCode::from(failure.code)
            });
        }
        Err(error) => Err(Failure::new(error.exit_code(), error)),
    };
    result.unwrap_or_else(|failure| {
        say::error(format_args!("terrace: {}", failure.message));
        ExitCode::from(failure.code)
    })
}

fn print(what: Print) -> Result<ExitCode, Failure> {
    match what {
        Print::Help => say::line(settings::help().trim_end()),
        Print::Version => say::line(banner::version()),
        Print::License => say::line(format_args!(
            "{}\n\nLicensed under the Apache License, Version 2.0:\n\
             https://www.apache.org/licenses/LICENSE-2.0",
            banner::version()
        )),
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
    let (connections, tiers) = (settings.connections_max, settings.tiers.len());
    let few_descriptors = limits::allow_descriptors(connections, settings.threads, tiers)?;
    let admin_connections = limits::admin_connections(connections, settings.threads, tiers);
    limits::take_file_size_signal()?;
    limits::outlive_hangup()?;
    // Keys are often for root alone. Why they can't be read is told below.
    let tls = tls::load(&settings.tls);
    user::change(settings.user.as_deref())?;
    if settings.core_dumps {
        limits::keep_core_dumps()?;
    }
    if let Some(daemon) = &daemon {
        daemon.detach()?;
    }
    info!("{} starts, process {}", banner::version(), std::process::id());
    // Before the cache: tiers may need more than there is.
    log::notes(&settings.memory_warning());
    let tls = tls.map_err(Failure::system)?;
    // Before any drive: who wrote a wrong port need not wait for one.
    let listeners = Listener::bind_all(settings).map_err(Failure::system)?;
    let admin = Admin::bind(settings, admin_connections).map_err(Failure::system)?;
    let mut created = Created::default();
    let tiers = tiers::open(settings, background_threads(settings), &mut created)?;
    let (witness, roster_line) = roster::open(settings).unzip();
    let (state, state_lines) =
        state::open(settings, &tiers.devices, witness.as_deref(), &mut created)?;
    server::survive_lost_state().map_err(|error| Failure::system(format!("SIGBUS: {error}")))?;
    let opened = open_cache(settings, &tiers.in_background, &state, witness);
    if state.may_be_needed() {
        created.keep_with_older(settings.tiers.iter().filter_map(|tier| tier.place.path()));
    }
    let cache = opened?;
    // After the cache: until then clients are turned away, and need not wait for an answer.
    Listener::listen_all(&listeners, settings.listen_backlog).map_err(Failure::system)?;
    let signals = Signals::take_on().map_err(|e| Failure::system(format!("signals: {e}")))?;
    port_file::write(&listeners)?;
    let pid_file = settings.pid_file.as_deref().map(PidFile::write);

    let lines = settings.notes.iter().chain(&tiers.lines).chain(&state_lines).chain(&roster_line);
    log::notes(lines.chain(&cache.describe()).chain(cache.notes()));
    log::notes(&banner::new_tiers(settings, &cache));
    log::notes([&banner::limits(settings, &cache), &banner::memory(settings)]);
    log::notes(&banner::shorter_values(settings, cache.item_bytes_max()));
    log::notes(&few_descriptors);
    if let Some(Err(failure)) = &pid_file {
        warn!("no pid file: {}", failure.message);
    }
    if settings.lock_memory {
        log::notes(&limits::lock_memory());
    }
    if settings.huge_pages {
        log::notes(&limits::without_huge_pages());
    }
    let mut listening = banner::listening(&listeners, settings.asks_for_passwords());
    let page =
        |admin: &Admin| Note::Info(format!("live page, metrics and status on {}", admin.name()));
    listening.extend(admin.as_ref().map(page));
    let is_ready = || {
        created.keep();
        log::notes(&listening);
        daemon.map_or(Ok(()), |daemon| daemon.ready(settings.verbosity > 0))
    };
    server::run(settings, cache, tiers.devices, (listeners, tls), admin, signals, is_ready)
        .map_err(Failure::system)?;
    Ok(ExitCode::SUCCESS)
}

fn tiers(settings: &Settings, devices: &[Arc<dyn Drive>]) -> Vec<Tier> {
    let tier = |(spec, device): (&TierSpec, &Arc<dyn Drive>)| Tier {
        device: Arc::clone(device),
        is_below: spec.is_below,
    };
    settings.tiers.iter().zip(devices).map(tier).collect()
}

fn open_cache(
    settings: &Settings,
    devices: &[Arc<dyn Drive>],
    chosen: &Chosen,
    witness: Option<Arc<dyn Witness>>,
) -> Result<Arc<Cache>, Failure> {
    let memory_bytes = settings.memory_shares().cache;
    let config = Config {
        huge_pages: settings.huge_pages,
        state: chosen.file.clone(),
        boot: chosen.boot,
        witness,
        durability: settings.durability,
        on_mismatch: settings.on_mismatch,
        tiers: tiers(settings, devices),
        write_rates: write_rates(settings),
        full_percent: settings.tier_full_percent,
        full_write_policy: settings.write_policy,
        evict: settings.evict,
        cas: settings.cas,
        item_bytes_max: settings.item_bytes_max,
        sessions_max: settings.threads as usize + SESSIONS_BESIDES,
        background_threads: background_threads(settings),
        // Locked memory is taken at once, address space that nobody may ever need with it.
        memory_bytes_max: match settings.lock_memory {
            true => memory_bytes,
            false => memory_bytes.saturating_mul(MEMORY_RAISED_MAX),
        },
        ..Config::new(memory_bytes)
    };
    let failure = |error| state::failure(chosen.path.as_deref(), error);
    log::notes(&Cache::inspect(&config).map_err(failure)?);
    Cache::open(config).map_err(failure)
}

/// Unless it is told, one for every two workers, and for every four cores: a record that is written and moved once more
/// takes the background longer than a worker. As many as there are tiers at least, and two, so that each drive has a
/// write to do while a thread waits for another one.
fn background_threads(settings: &Settings) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let for_work = (settings.threads as usize / 2).min(cores / 4);
    let by_itself = || for_work.max(settings.tiers.len()).clamp(2, BACKGROUND_MAX);
    settings.background_threads.map_or_else(by_itself, |threads| threads as usize)
}

/// One rate is meant for each tier.
fn write_rates(settings: &Settings) -> Vec<WriteRate> {
    match settings.write_rates[..] {
        [rate] => vec![rate; settings.tiers.len()],
        _ => settings.write_rates.clone(),
    }
}
