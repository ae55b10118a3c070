//! `terrace probe`: its arguments.

use crate::measure::{Measured, Told, measure};
use crate::medium::Medium;
use crate::memory::Memory;
use crate::process::Program;
use crate::{ProbeError, Target, chart, worker};
use clap::{CommandFactory, Parser};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The path that stands for memory.
const DRAM: &str = "dram";

/// Measures what media can do: drives, files, and DRAM beside them. A new file is made and removed
/// again; what holds anything is only read, unless --destroy.
#[derive(Parser)]
#[command(name = "terrace probe")]
struct Arguments {
    /// Files or block devices; `dram` for memory (./dram for a file of that name).
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Overwrite what the paths hold.
    #[arg(long)]
    destroy: bool,
    /// Size of a new file, and of DRAM: MiB, or with a suffix (512m, 4g). Files for processes take as much again,
    /// memory of 32 processes four times as much.
    #[arg(long, default_value = "1g", value_parser = size)]
    size: u64,
    /// Seconds per medium for all measurements, filling a new file aside.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Access lanes of the medium; inferred if not given.
    #[arg(long)]
    lanes: Option<f64>,
    /// The most the medium can do in MB/s; inferred if not given.
    #[arg(long)]
    max: Option<f64>,
    /// Write the profile of the (only) drive there, for --tier and for `terrace plan`.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Draw the curves of all media side by side.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write everything that was measured there.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Bytes of a size as the server's flags take it, with powers of 1024; a bare number counts MiB.
fn size(text: &str) -> Result<u64, String> {
    terrace_amounts::mebibytes(text).map(|bytes| bytes as u64)
}

/// The flags of `terrace probe`, for its manual page and completions of shells.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs `terrace probe` with its arguments (the first is the program's name). Exit code 2: the arguments are
/// wrong; 3: a medium can't be measured. For measurements by several processes it starts this program again.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let result = match &arguments[..] {
        [_, flag, job] if flag == worker::FLAG => worker::main(&job.to_string_lossy()),
        _ => match Arguments::try_parse_from(arguments) {
            Ok(arguments) => arguments.probe(),
            Err(error) => {
                let _ = error.print();
                return ExitCode::from(error.exit_code() as u8);
            }
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("terrace probe: {error}");
            ExitCode::from(if matches!(error, ProbeError::Input(_)) { 2 } else { 3 })
        }
    }
}

impl Arguments {
    fn probe(&self) -> Result<(), ProbeError> {
        let is_dram = |path: &&PathBuf| path.as_os_str() == OsStr::new(DRAM);
        if self.profile.is_some() && self.paths.iter().filter(|path| !is_dram(path)).count() != 1 {
            return Err(ProbeError::Input("a profile is of one drive".into()));
        }
        let total = Duration::try_from_secs_f64(self.seconds)
            .ok()
            .filter(|total| !total.is_zero())
            .ok_or_else(|| ProbeError::Input(format!("{} is no time", self.seconds)))?;
        for amount in [self.lanes, self.max].into_iter().flatten() {
            if !(amount.is_finite() && amount > 0.0) {
                let text = format!("{amount} lanes or megabytes per second are no medium's");
                return Err(ProbeError::Input(text));
            }
        }
        if self.size == 0 {
            return Err(ProbeError::Input("a medium of no size".into()));
        }
        // Known to be possible before it is measured what they are to hold.
        for file in [&self.profile, &self.svg, &self.json].into_iter().flatten() {
            let file_name = file.display().to_string();
            let opened = File::options().append(true).create(true).open(file);
            opened.map_err(ProbeError::io(&file_name))?;
        }
        let told = Told { lanes: self.lanes, max: self.max.map(|megabytes| megabytes * 1e6) };
        let program = Program::this().map_err(ProbeError::io("this program"))?;
        let mut media = Vec::new();
        for path in &self.paths {
            let measured = measure(&*self.open(path)?, &program, total, told)?;
            if let (Some(file), false) = (&self.profile, is_dram(&path)) {
                let text = toml::to_string(&measured.profile)
                    .map_err(|error| ProbeError::Input(error.to_string()))?;
                write(file, &text)?;
            }
            media.push(measured);
        }
        self.keep(&media)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Medium>, ProbeError> {
        if path.as_os_str() == OsStr::new(DRAM) {
            let len = usize::try_from(self.size)
                .map_err(|_| ProbeError::Input(format!("{} bytes are no size", self.size)))?;
            return Ok(Box::new(Memory::new(len)));
        }
        tell!("{}: opening (a new file is filled)", path.display());
        let target = Target::open(path, self.size, self.destroy)?;
        target.notes.iter().for_each(|note| say!("note: {note}"));
        Ok(Box::new(target))
    }

    fn keep(&self, media: &[Measured]) -> Result<(), ProbeError> {
        if let Some(file) = &self.svg {
            write(file, &chart::svg(media))?;
        }
        if let Some(file) = &self.json {
            let text = serde_json::to_string_pretty(media)
                .map_err(|error| ProbeError::Input(error.to_string()))?;
            write(file, &text)?;
        }
        Ok(())
    }
}

fn write(file: &Path, text: &str) -> Result<(), ProbeError> {
    std::fs::write(file, text).map_err(ProbeError::io(&file.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn size_counts_mebibytes_without_suffix() {
        let sizes =
            ["64", "64m", "64MiB", "1g", "1.5g"].map(|text| size(text).map(|bytes| bytes >> 20));
        assert_eq!(sizes, [Ok(64), Ok(64), Ok(64), Ok(1024), Ok(1536)]);
        assert!(size("abc").is_err() && size("").is_err());
    }
}
