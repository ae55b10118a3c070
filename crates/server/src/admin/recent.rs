//! How long requests took in the last seconds.

use crate::stats::latency::{Command, Latency, Percentiles};
use crate::stats::view::View;
use std::collections::VecDeque;

/// Looks that percentiles reach back, one a second.
const LOOKS: usize = 10;
/// What is told of each kind of request.
const SHARES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
const COMMANDS: [(Command, &str); 2] = [(Command::Get, "get"), (Command::Set, "set")];

/// The latencies at the last looks.
#[derive(Default)]
pub(super) struct Recent(VecDeque<Vec<Percentiles>>);

impl Recent {
    /// Looks at the latencies and writes what was added since the oldest look that is kept: an object with a member for
    /// DRAM and one for each tier, by number, each with the commands, each with its percentiles in nanoseconds and their
    /// count.
    pub(super) fn json(&mut self, view: &View<'_>) -> String {
        let places: Vec<_> =
            std::iter::once(None).chain((0..view.cache.tiers.len()).map(Some)).collect();
        let now: Vec<_> = places
            .iter()
            .flat_map(|place| {
                COMMANDS
                    .map(|(command, _)| Percentiles::of_command(latencies(view), command, *place))
            })
            .collect();
        let before = self.0.front().filter(|before| before.len() == now.len());
        let rows = now.iter().enumerate().map(|(at, now)| match before {
            Some(before) => row(&now.since(&before[at])),
            None => row(&Percentiles::of_command(std::iter::empty(), Command::Get, None)),
        });
        let rows: Vec<_> = rows.collect();
        let members = places.iter().zip(rows.chunks(COMMANDS.len())).map(|(place, rows)| {
            let name = place.map_or("dram".to_string(), |tier| tier.to_string());
            let commands: Vec<_> = COMMANDS
                .iter()
                .zip(rows)
                .map(|((_, name), row)| format!("\"{name}\":{row}"))
                .collect();
            format!("\"{name}\":{{{}}}", commands.join(","))
        });
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        self.0.push_back(now);
        if self.0.len() > LOOKS {
            self.0.pop_front();
        }
        text
    }
}

fn row(times: &Percentiles) -> String {
    let shares: Vec<_> =
        SHARES.iter().map(|(name, share)| format!("\"{name}\":{}", times.nanos(*share))).collect();
    format!("{{\"count\":{},{}}}", times.count(), shares.join(","))
}

fn latencies<'v>(view: &'v View<'_>) -> impl Iterator<Item = &'v Latency> {
    view.shared.workers.iter().map(|worker| &*worker.latency)
}
