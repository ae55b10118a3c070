//! Which measurements there are, each a value that changes while all else stays.

use crate::point::{Access, Operation, Point};
use crate::{Sensitivity, knee};
use serde::Serialize;

pub(crate) const PAGE: usize = 4096;
/// Blocks of sequential use, where their size is not what changes.
pub(crate) const LARGE: usize = 1 << 20;
const DEPTHS: &[usize] = &[1, 2, 4, 8, 16, 32, 64];
const PROCESSES: &[usize] = &[1, 2, 4, 8, 16, 32];
const BLOCKS: &[usize] =
    &[512, PAGE, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// What changes from point to point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// The size of blocks.
    Block,
    /// How many are under way: reads in the server's queue, writers that wait for each, threads.
    InFlight,
    /// How many processes, all on one file.
    Shared,
    /// How many processes, each on a file (or in memory) of its own.
    Own,
}

impl By {
    pub(crate) fn words(self) -> &'static str {
        match self {
            By::Block => "block size",
            By::InFlight => "requests in flight",
            By::Shared => "processes on one file",
            By::Own => "processes with a file each",
        }
    }
}

/// A kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Kind {
    pub(crate) operation: Operation,
    pub(crate) access: Access,
    pub(crate) by: By,
}

impl Kind {
    /// All, in the order in which they are measured: reads before what writes.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        use By::{Block, InFlight, Own, Shared};
        let ways = |operation| {
            [InFlight, Block, Shared, Own].into_iter().flat_map(move |by| {
                [Access::Random, Access::Sequential].map(|access| Self { operation, access, by })
            })
        };
        ways(Operation::Read).chain(ways(Operation::Write))
    }

    /// What changes takes these values.
    pub(crate) fn values(self) -> &'static [usize] {
        match self.by {
            By::Block => BLOCKS,
            By::InFlight => DEPTHS,
            By::Shared | By::Own => PROCESSES,
        }
    }

    /// The block where something else changes.
    pub(crate) fn block_bytes(self) -> usize {
        if self.access == Access::Random { PAGE } else { LARGE }
    }

    pub(crate) fn title(self) -> String {
        format!("{} by {}", self.what(), self.by.words())
    }

    /// What is done, whatever changes meanwhile.
    pub(crate) fn what(self) -> String {
        let access = if self.access == Access::Random { "random" } else { "sequential" };
        let operation = if self.operation == Operation::Read { "reads" } else { "writes" };
        let of = match (self.by, self.access) {
            (By::Block, _) => "",
            (_, Access::Random) => " of 4 KiB",
            (_, Access::Sequential) => " of 1 MiB",
        };
        format!("{access} {operation}{of}")
    }
}

/// A kind, measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) title: String,
    #[serde(flatten)]
    pub(crate) kind: Kind,
    pub(crate) points: Vec<Point>,
    /// From where more at once only queue; none where the size of blocks changes.
    pub(crate) knee: Option<u32>,
    /// With the lanes and the maximum that were told, or inferred from these points.
    pub(crate) lanes_and_max: Option<Sensitivity>,
    /// One for each point.
    pub(crate) sensitivity: Vec<f64>,
}

impl Series {
    pub(crate) fn new(
        kind: Kind,
        points: Vec<Point>,
        lanes: Option<f64>,
        max: Option<f64>,
    ) -> Self {
        let crowd = kind.by != By::Block;
        let told = crowd.then(|| Sensitivity::new(&points, lanes, max)).flatten();
        let sensitivity = told.map_or(Vec::new(), |s| points.iter().map(|p| s.of(p)).collect());
        let knee = crowd.then(|| knee(&points)).flatten();
        Self { title: kind.title(), kind, points, knee, lanes_and_max: told, sensitivity }
    }

    /// Where a point stands on the axis.
    pub(crate) fn place(&self, point: &Point) -> f64 {
        match self.kind.by {
            By::Block => point.block_bytes as f64,
            _ => f64::from(point.concurrency),
        }
    }
}
