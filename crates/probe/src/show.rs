//! What was measured, as tables.

use crate::measure::{Mixed, Told};
use crate::medium::Medium;
use crate::point::Point;
use crate::series::{By, Series};
use crate::{Profile, Sensitivity};
use std::time::Duration;

pub(crate) fn heading(medium: &dyn Medium, time: Duration) {
    let (name, mib) = (medium.name(), medium.bytes() >> 20);
    say!("\n{name}: {mib} MiB, {} ms per point", time.as_millis());
    if !medium.writable() {
        say!("{name} holds something and is not written; --destroy overwrites it");
    }
}

/// A row for each point.
pub(crate) fn series(series: &Series, told: Told) {
    say!("\n{}", series.title);
    if let Some(Sensitivity { lanes, max }) = series.lanes_and_max {
        let source = |told: bool| if told { "told" } else { "inferred" };
        say!(
            "sensitivity to concurrent access with {lanes} lanes ({}) and {:.0} MB/s ({})",
            source(told.lanes.is_some()),
            max / 1e6,
            source(told.max.is_some())
        );
    }
    let last = if series.kind.by == By::Block { "" } else { "sensitivity" };
    say!(
        "{:>12} {:>8} {:>12} {:>10} {:>10} {:>10} {last:>12}",
        "block bytes",
        "at once",
        "per second",
        "MB/s",
        "p50 us",
        "p99 us"
    );
    for (at, point) in series.points.iter().enumerate() {
        let sensitivity = series.sensitivity.get(at).map_or(String::new(), |s| format!("{s:.3}"));
        say!("{} {sensitivity:>12}", row(point));
    }
    if let Some(knee) = series.knee {
        say!("knee: {knee}");
    }
}

fn row(point: &Point) -> String {
    let Point { block_bytes, concurrency, per_second, p50_us, p99_us } = *point;
    let megabytes = point.bandwidth() / 1e6;
    format!(
        "{block_bytes:>12} {concurrency:>8} {per_second:>12.0} {megabytes:>10.1} {p50_us:>10.1} \
         {p99_us:>10.1}"
    )
}

/// What writers do to reads.
pub(crate) fn mixed(medium: &dyn Medium, mixed: &[Mixed]) {
    let Some(alone) = mixed.first() else { return };
    say!(
        "\n{}: random reads of 4 KiB, {} in flight, beside writers of 1 MiB blocks\n\
         {:>12} {:>12} {:>10} {:>10} {:>10} {:>12}",
        medium.name(),
        alone.reads.concurrency,
        "writers",
        "reads/s",
        "of alone",
        "p50 us",
        "p99 us",
        "written MB/s"
    );
    for Mixed { writers, reads, writes } in mixed {
        say!(
            "{writers:>12} {:>12.0} {:>10.2} {:>10.1} {:>10.1} {:>12.1}",
            reads.per_second,
            reads.per_second / alone.reads.per_second,
            reads.p50_us,
            reads.p99_us,
            writes.map_or(0.0, |writes| writes.bandwidth() / 1e6)
        );
    }
}

pub(crate) fn knee(profile: &Profile) {
    say!("\nknee: {} reads in flight; more only queue", profile.queue_depth);
}
