//! Streams of requests: a trace, or made up from a seed.

use super::Object;
use crate::{PlanError, Popularity};
use clap::ValueEnum;
use std::collections::HashMap;

/// A made-up stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// All objects alike.
    Uniform,
    /// Zipf's law with exponent 1.
    Zipf,
    /// Density 1 / (x + 0.03)^2.5 over the key range.
    ZipfMandelbrot,
    /// Zipf-Mandelbrot whose popular objects are others from the middle of the stream on.
    Shift,
    /// Every object once, in order, again and again.
    Loop,
    /// Zipf-Mandelbrot over a half of the objects; every second request reads the other half, one
    /// object after the other.
    Scan,
    /// Facebook's ETC: Zipf-Mandelbrot, one SET to 30 GETs.
    Etc,
}

/// Requests for objects that are numbered in the order in which they first come.
pub(super) struct Stream {
    requests: Vec<u32>,
    /// Distinct objects.
    pub(super) objects: usize,
}

/// The bit of a request that makes it a SET.
const SET: u32 = 1 << 31;

impl Stream {
    pub(super) fn read(path: &str) -> Result<Self, PlanError> {
        let mut numbers = HashMap::new();
        let trace = terrace_trace::read(path)?;
        let requests = trace.into_iter().map(|(object, _)| {
            let next = numbers.len() as u32;
            *numbers.entry(object).or_insert(next)
        });
        let requests = requests.collect();
        Ok(Self { requests, objects: numbers.len() })
    }

    pub(super) fn make(kind: Kind, objects: u32, length: usize, set_percent: u64) -> Self {
        let mut random = Random(0x7e44_ace0);
        let popularity = match kind {
            Kind::Uniform => Popularity::Uniform,
            Kind::Zipf => Popularity::Zipf(1.0),
            _ => Popularity::ZipfMandelbrot { s: 2.5, beta: 0.03 },
        };
        let range = if kind == Kind::Scan { objects / 2 } else { objects };
        let ranks = Ranks::new(popularity, range);
        let requests = (0..length).map(|at| {
            let object = match kind {
                Kind::Loop => (at % objects as usize) as u32,
                Kind::Scan if at % 2 == 1 => range + (at / 2 % range as usize) as u32,
                Kind::Shift if at >= length / 2 => {
                    (ranks.draw(&mut random) + objects / 2) % objects
                }
                _ => ranks.draw(&mut random),
            };
            let is_set = match kind {
                Kind::Etc => random.below(31) == 0,
                _ => set_percent > 0 && random.below(100) < set_percent,
            };
            if is_set { object | SET } else { object }
        });
        Self { requests: requests.collect(), objects: objects as usize }
    }

    /// Objects, and whether it is a SET.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Object, bool)> {
        self.requests.iter().map(|&request| (request & !SET, request & SET != 0))
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }
}

/// Draws ranks by the inverse of their distribution.
enum Ranks {
    Uniform(u64),
    Curve { s: f64, beta: f64, count: u32 },
    Table(Vec<f64>),
}

impl Ranks {
    fn new(popularity: Popularity, count: u32) -> Self {
        match popularity {
            Popularity::Uniform => Self::Uniform(count.into()),
            Popularity::ZipfMandelbrot { s, beta } => Self::Curve { s, beta, count },
            Popularity::Zipf(s) => {
                let mut sum = 0.0;
                let weights = (1..=count).map(|rank| {
                    sum += f64::from(rank).powf(-s);
                    sum
                });
                Self::Table(weights.collect())
            }
        }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Self::Uniform(count) => random.below(*count) as u32,
            Self::Curve { s, beta, count } => {
                let (first, last) = (beta.powf(1.0 - s), (1.0 + beta).powf(1.0 - s));
                let mass = first - random.uniform() * (first - last);
                let place = mass.powf(1.0 / (1.0 - s)) - beta;
                ((place * f64::from(*count)) as u32).min(count - 1)
            }
            Self::Table(sums) => {
                let total = sums.last().copied().unwrap_or(0.0);
                let at = random.uniform() * total;
                sums.partition_point(|&sum| sum <= at).min(sums.len() - 1) as u32
            }
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): the same stream from the same seed everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }

    /// From 0 to below 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
