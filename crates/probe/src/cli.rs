//! `terrace probe`: what is measured in which order, and the table.

use crate::{Access, Point, ProbeError, Profile, Sensitivity, Target, knee, read, write};
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const PAGE: usize = 4096;
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const WRITERS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const BLOCKS: [usize; 9] =
    [512, PAGE, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// Larger blocks are read with fewer at once, so that buffers stay below this.
const BUFFERS_BYTES: usize = 128 << 20;
const WRITE_BLOCK: usize = 1 << 20;

/// Measures what drives can do. A new file is made and removed again; what holds anything is only
/// read, unless --destroy.
#[derive(Parser)]
#[command(name = "terrace probe")]
struct Arguments {
    /// Files or block devices.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Overwrite what the paths hold.
    #[arg(long)]
    destroy: bool,
    /// MiB of a new file.
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Seconds per drive for all measurements, filling a new file aside.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Access lanes of the medium; inferred if not given.
    #[arg(long)]
    lanes: Option<f64>,
    /// The most the medium can do in MB/s; inferred if not given.
    #[arg(long)]
    max: Option<f64>,
    /// Write the profile of the (only) drive there.
    #[arg(long)]
    profile: Option<PathBuf>,
}

/// Runs `terrace probe` with its arguments (the first is the program's name). Exit code 2 if a drive
/// can't be measured.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match arguments.probe() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("terrace probe: {error}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn probe(&self) -> Result<(), ProbeError> {
        if self.profile.is_some() && self.paths.len() > 1 {
            return Err(ProbeError::Input("a profile is of one drive".into()));
        }
        let total = Duration::try_from_secs_f64(self.seconds)
            .map_err(|_| ProbeError::Input(format!("{} is no time", self.seconds)))?;
        for path in &self.paths {
            eprintln!("{}: opening (a new file is filled)", path.display());
            let target = Target::open(path, self.size << 20, self.destroy)?;
            target.notes.iter().for_each(|note| println!("note: {note}"));
            let profile = self.one(&target, total)?;
            if let Some(file) = &self.profile {
                let text = toml::to_string(&profile)
                    .map_err(|error| ProbeError::Input(error.to_string()))?;
                std::fs::write(file, text).map_err(ProbeError::io(&file.display().to_string()))?;
            }
        }
        Ok(())
    }

    fn one(&self, target: &Target, total: Duration) -> Result<Profile, ProbeError> {
        let geometry = target.device.geometry();
        let fits = |block: &usize| {
            *block >= geometry.block_bytes as usize && *block as u64 <= geometry.bytes
        };
        let blocks: Vec<usize> = BLOCKS.into_iter().filter(fits).collect();
        let points = DEPTHS.len() + 2 * blocks.len();
        let points = points + if target.writable { 2 * WRITERS.len() + 2 } else { 0 };
        let time = total / points as u32;
        let label = target.device.label();
        println!("{label}: {} MiB, {} ms per point", geometry.bytes >> 20, time.as_millis());

        let random = curve("random reads of 4 KiB", &DEPTHS, |depth| {
            read(target, Access::Random, PAGE, depth, time)
        })?;
        self.show_sensitivity(&random);
        let deepest = |block: usize| (BUFFERS_BYTES / block).clamp(1, 8) as u32;
        for (what, access) in
            [("random reads", Access::Random), ("sequential reads", Access::Sequential)]
        {
            curve(&format!("{what} by block size"), &blocks, |block| {
                read(target, access, block, deepest(block), time)
            })?;
        }
        let written = if target.writable {
            let large = WRITE_BLOCK.min(geometry.bytes as usize);
            let writes = curve("sequential writes of 1 MiB by writers", &WRITERS, |writers| {
                write(target, Access::Sequential, large, writers, time)
            })?;
            self.show_sensitivity(&writes);
            curve("random writes of 4 KiB by writers", &WRITERS, |writers| {
                write(target, Access::Random, PAGE, writers, time)
            })?;
            mixed(target, large, time)?;
            Some(writes.iter().map(Point::bandwidth).fold(0.0, f64::max))
        } else {
            println!("\n{label} holds something and was not written; --destroy overwrites it");
            None
        };
        let depth = knee(&random).unwrap_or(1);
        let best = random.iter().find(|point| point.concurrency == depth).unwrap_or(&random[0]);
        println!("\nknee: {depth} reads in flight; more only queue");
        Ok(Profile {
            name: label.to_owned(),
            capacity_bytes: geometry.bytes as f64,
            read_iops: best.per_second,
            queue_depth: depth,
            read_us_p50: best.p50_us,
            read_us_p99: best.p99_us,
            write_bytes_per_second: written,
        })
    }

    fn show_sensitivity(&self, points: &[Point]) {
        let max = self.max.map(|megabytes| megabytes * 1e6);
        let Some(sensitivity) = Sensitivity::new(points, self.lanes, max) else { return };
        let source = |told: bool| if told { "told" } else { "inferred" };
        println!(
            "sensitivity to concurrent access, with {} lanes ({}) and {:.0} MB/s ({}):",
            sensitivity.lanes,
            source(self.lanes.is_some()),
            sensitivity.max / 1e6,
            source(self.max.is_some())
        );
        for point in points {
            println!("{:>12} {:8.3}", point.concurrency, sensitivity.of(point));
        }
    }
}

/// Measures and prints a row for each value of what changes.
fn curve<T: Copy>(
    what: &str,
    values: &[T],
    mut measure: impl FnMut(T) -> Result<Point, ProbeError>,
) -> Result<Vec<Point>, ProbeError> {
    println!(
        "\n{what}\n{:>12} {:>8} {:>12} {:>10} {:>10} {:>10}",
        "block bytes", "at once", "per second", "MB/s", "p50 us", "p99 us"
    );
    let mut points = Vec::new();
    for (at, &value) in values.iter().enumerate() {
        eprintln!("  {what}: {} of {}", at + 1, values.len());
        let point = measure(value)?;
        show(&point);
        points.push(point);
    }
    Ok(points)
}

fn show(point: &Point) {
    let Point { block_bytes, concurrency, per_second, p50_us, p99_us } = *point;
    let megabytes = point.bandwidth() / 1e6;
    println!(
        "{block_bytes:>12} {concurrency:>8} {per_second:>12.0} {megabytes:>10.1} {p50_us:>10.1} \
         {p99_us:>10.1}"
    );
}

/// Random reads while one writer streams, as when segments are sealed.
fn mixed(target: &Target, write_block: usize, time: Duration) -> Result<(), ProbeError> {
    println!("\n8 random reads of 4 KiB in flight beside a writer of 1 MiB blocks");
    let (reads, writes) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(target, Access::Sequential, write_block, 1, time));
        let reads = read(target, Access::Random, PAGE, 8, time);
        let writes = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (reads, writes)
    });
    show(&reads?);
    show(&writes?);
    Ok(())
}
