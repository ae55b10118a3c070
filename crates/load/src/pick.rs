//! Which record is next.

use crate::plan::Popularity;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::sync::Arc;

/// The records of one connection: every `stride`-th.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) first: u64,
    pub(crate) stride: u64,
    pub(crate) count: u64,
    /// The numbers of the records, if they are not all in a row: `first` is a place in this list then.
    pub(crate) among: Option<Arc<[u64]>>,
}

impl Share {
    /// Part `part` of `parts` of `records` records from `first` on.
    pub(crate) fn of(first: u64, records: u64, part: u64, parts: u64) -> Self {
        let count = (records - part).div_ceil(parts);
        Self { first: first + part, stride: parts, count, among: None }
    }

    /// The same of the records with these numbers.
    pub(crate) fn among(numbers: Arc<[u64]>, part: u64, parts: u64) -> Self {
        Self { among: Some(numbers.clone()), ..Self::of(0, numbers.len() as u64, part, parts) }
    }

    #[inline]
    pub(crate) fn number(&self, index: u64) -> u64 {
        let place = self.first + index * self.stride;
        self.among.as_ref().map_or(place, |numbers| numbers[place as usize])
    }

    /// The index of a number of this share, whose records must be in a row.
    pub(crate) fn index(&self, number: u64) -> u64 {
        (number - self.first) / self.stride
    }
}

/// Places of the key range by their popularity, drawn by the inverse of its distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mandelbrot {
    s: f64,
    beta: f64,
    first: f64,
    last: f64,
}

impl Mandelbrot {
    fn new(s: f64, beta: f64) -> Option<Self> {
        let (first, last) = (beta.powf(1.0 - s), (1.0 + beta).powf(1.0 - s));
        let good = s > 1.0 && beta > 0.0 && first.is_finite() && last < first;
        good.then_some(Self { s, beta, first, last })
    }

    /// From 0 to 1 for `uniform` from 0 to 1.
    fn place(&self, uniform: f64) -> f64 {
        let mass = self.first - uniform * (self.first - self.last);
        mass.powf(1.0 / (1.0 - self.s)) - self.beta
    }
}

/// Draws indexes into a [`Share`].
#[derive(Debug)]
pub(crate) enum Pick {
    /// One after the other, each once.
    Sequence {
        next: u64,
        count: u64,
    },
    /// As listed.
    List {
        indexes: std::vec::IntoIter<u32>,
    },
    Uniform {
        random: SmallRng,
        count: u64,
    },
    Hot {
        random: SmallRng,
        count: u64,
        hot: u64,
    },
    Zipf {
        random: SmallRng,
        count: u64,
        step: u64,
        ranks: Zipf<f64>,
    },
    ZipfMandelbrot {
        random: SmallRng,
        count: u64,
        step: u64,
        curve: Mandelbrot,
    },
}

impl Pick {
    pub(crate) fn sequence(count: u64) -> Self {
        Self::Sequence { next: 0, count }
    }

    pub(crate) fn list(indexes: Vec<u32>) -> Self {
        Self::List { indexes: indexes.into_iter() }
    }

    /// `None` if the exponent is not one that Zipf's law has.
    pub(crate) fn random(popularity: Popularity, count: u64, seed: u64) -> Option<Self> {
        let random = SmallRng::seed_from_u64(seed);
        Some(match popularity {
            Popularity::Uniform => Self::Uniform { random, count },
            Popularity::Hot => Self::Hot { random, count, hot: (count / 5).max(1) },
            Popularity::Zipf(s) => {
                let ranks = Zipf::new(count as f64, s).ok()?;
                Self::Zipf {
                    random,
                    count,
                    step: coprime_near(count / 2 + count / 9, count),
                    ranks,
                }
            }
            Popularity::ZipfMandelbrot { s, beta } => Self::ZipfMandelbrot {
                random,
                count,
                step: coprime_near(count / 2 + count / 9, count),
                curve: Mandelbrot::new(s, beta)?,
            },
        })
    }

    /// `None` at the end of a sequence or list.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        match self {
            Self::Sequence { next, count } => {
                let index = *next;
                *next += 1;
                (index < *count).then_some(index)
            }
            Self::List { indexes } => indexes.next().map(u64::from),
            Self::Uniform { random, count } => Some(below(random, *count)),
            Self::Hot { random, count, hot } => {
                let among = if random.next_u32() % 5 < 4 { *hot } else { *count };
                Some(below(random, among))
            }
            // Ranks scattered, lest the popular records be those that were stored first.
            Self::Zipf { random, count, step, ranks } => {
                let rank = ranks.sample(random) as u64 - 1;
                Some(scatter(rank, *step, *count))
            }
            Self::ZipfMandelbrot { random, count, step, curve } => {
                let rank = (curve.place(random.random()) * *count as f64) as u64;
                Some(scatter(rank.min(*count - 1), *step, *count))
            }
        }
    }
}

fn scatter(rank: u64, step: u64, count: u64) -> u64 {
    (u128::from(rank) * u128::from(step) % u128::from(count)) as u64
}

fn below(random: &mut SmallRng, count: u64) -> u64 {
    random.random_range(0..count)
}

fn coprime_near(number: u64, count: u64) -> u64 {
    (number.max(1)..).find(|candidate| gcd(*candidate, count) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_records_once() {
        for (records, parts) in [(10, 3), (7, 7), (100, 1)] {
            let mut numbers: Vec<u64> = (0..parts)
                .map(|part| Share::of(5, records, part, parts))
                .flat_map(|share| (0..share.count).map(move |index| share.number(index)))
                .collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (5..5 + records).collect::<Vec<_>>());
        }
    }

    #[test]
    fn shares_among_listed_records_cover_them_once() {
        let listed = [7, 3, 900, 12, 5];
        let shares = (0..2).map(|part| Share::among(listed.into(), part, 2));
        let numbers = |share: Share| (0..share.count).map(|index| share.number(index)).collect();
        assert_eq!(shares.map(numbers).collect::<Vec<Vec<u64>>>(), [vec![7, 900, 5], vec![3, 12]]);
    }

    fn draws(popularity: Popularity) -> Vec<u32> {
        let mut pick = Pick::random(popularity, 1000, 1).unwrap();
        let mut counts = vec![0; 1000];
        (0..200_000).for_each(|_| counts[pick.next().unwrap() as usize] += 1);
        counts
    }

    #[test]
    fn popularity_is_as_told() {
        let uniform = draws(Popularity::Uniform);
        assert!(uniform.iter().all(|count| (120..300).contains(count)));
        let hot: u32 = draws(Popularity::Hot)[..200].iter().sum();
        // A fifth of the remaining fifth falls on the hot ones too.
        assert!((165_000..171_000).contains(&hot), "{hot}");
        let mut zipf = draws(Popularity::Zipf(1.0));
        zipf.sort_unstable();
        let (first, second) = (f64::from(zipf[999]), f64::from(zipf[998]));
        assert!((1.9..2.1).contains(&(first / second)), "{first} {second}");
        let mut etc = draws(Popularity::ZipfMandelbrot { s: 2.5, beta: 0.03 });
        etc.sort_unstable();
        let top: u32 = etc[875..].iter().sum();
        assert!((0.91..0.93).contains(&(f64::from(top) / 200_000.0)), "{top}");
        assert!(Pick::random(Popularity::Zipf(f64::NAN), 10, 1).is_none());
        for (s, beta) in [(1.0, 0.03), (2.5, 0.0), (f64::NAN, 0.1), (2.5, f64::NAN)] {
            assert!(Pick::random(Popularity::ZipfMandelbrot { s, beta }, 10, 1).is_none());
        }
    }
}
