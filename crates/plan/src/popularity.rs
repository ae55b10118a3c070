//! Which share of requests falls on the most popular records.

/// How requests spread over records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Every record alike.
    Uniform,
    /// The record of rank r in proportion to r to the power of minus this.
    Zipf(f64),
    /// Density in proportion to 1 / (x + beta)^s over the key range, x from 0 to 1.
    ZipfMandelbrot {
        /// The exponent, above 1.
        s: f64,
        /// The offset, as a share of the key range.
        beta: f64,
    },
}

/// Ranks summed one by one; beyond, an integral is near enough.
const EXACT: f64 = 1000.0;

impl Popularity {
    /// The share of requests for the `share` (0 to 1) most popular of `items` records: the hit
    /// ratio of a cache of that size that knows the future popularity of each record.
    pub fn hits(&self, share: f64, items: f64) -> f64 {
        let share = share.clamp(0.0, 1.0);
        match *self {
            Self::Uniform => share,
            Self::Zipf(s) => harmonic((share * items).floor(), s) / harmonic(items, s),
            Self::ZipfMandelbrot { s, beta } => {
                let mass = |to: f64| beta.powf(1.0 - s) - (to + beta).powf(1.0 - s);
                mass(share) / mass(1.0)
            }
        }
    }
}

/// The sum of r^-s for r from 1 to `n`.
fn harmonic(n: f64, s: f64) -> f64 {
    let first: f64 = (1..=n.min(EXACT) as u64).map(|rank| (rank as f64).powf(-s)).sum();
    if n <= EXACT {
        return first;
    }
    // The trapezoid's rest of Euler and Maclaurin, which is below 1e-6 here.
    let integral = if (s - 1.0).abs() < 1e-9 {
        (n / EXACT).ln()
    } else {
        (n.powf(1.0 - s) - EXACT.powf(1.0 - s)) / (1.0 - s)
    };
    first + integral + (n.powf(-s) - EXACT.powf(-s)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_shares() {
        let etc = Popularity::ZipfMandelbrot { s: 2.5, beta: 0.03 };
        assert!((etc.hits(0.125, 1e6) - 0.919).abs() < 0.001);
        assert_eq!(Popularity::Uniform.hits(0.3, 1e6), 0.3);
        let sum: f64 = (1..=100_000).map(|r| 1.0 / f64::from(r)).sum();
        let top: f64 = (1..=5000).map(|r| 1.0 / f64::from(r)).sum();
        assert!((Popularity::Zipf(1.0).hits(0.05, 1e5) - top / sum).abs() < 1e-6);
        for popularity in [Popularity::Uniform, Popularity::Zipf(0.8), etc] {
            assert!((popularity.hits(1.0, 1e7) - 1.0).abs() < 1e-9);
            assert_eq!(popularity.hits(0.0, 1e7), 0.0);
        }
    }
}
