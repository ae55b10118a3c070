//! How much a drive suffers from concurrent access, and from where on requests only queue.

use crate::Point;

/// More requests must bring so much more, per doubling, to be worth it.
const WORTH: f64 = 1.05;

/// s = (concurrency / access lanes) × (maximum - observed bandwidth) / maximum.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Sensitivity {
    /// Requests that the medium serves side by side.
    pub lanes: f64,
    /// The most it can do, in bytes per second.
    pub max: f64,
}

impl Sensitivity {
    /// With what the user knows; the rest is inferred from `points`: the lanes are the knee, the
    /// maximum is the most that was observed. `None` without points.
    pub fn new(points: &[Point], lanes: Option<f64>, max: Option<f64>) -> Option<Self> {
        let observed = points.iter().map(Point::bandwidth).fold(0.0, f64::max);
        let max = max.unwrap_or(observed);
        let lanes = lanes.or(knee(points).map(f64::from))?;
        (max > 0.0 && lanes > 0.0).then_some(Self { lanes, max })
    }

    /// That of one point.
    pub fn of(&self, point: &Point) -> f64 {
        f64::from(point.concurrency) / self.lanes * (self.max - point.bandwidth()) / self.max
    }
}

/// The concurrency beyond which the next point brings less than a twentieth more.
pub fn knee(points: &[Point]) -> Option<u32> {
    let steps = points.iter().zip(points.iter().skip(1));
    let mut flat = steps.filter(|(point, next)| next.per_second < point.per_second * WORTH);
    flat.next().map(|(point, _)| point.concurrency).or(points.last().map(|p| p.concurrency))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rates: &[f64]) -> Vec<Point> {
        let point = |(at, &per_second): (usize, &f64)| Point {
            block_bytes: 100,
            concurrency: 1 << at,
            per_second,
            p50_us: 1.0,
            p99_us: 1.0,
        };
        rates.iter().enumerate().map(point).collect()
    }

    #[test]
    fn the_knee_is_where_more_brings_no_more() {
        assert_eq!(knee(&points(&[10.0, 20.0, 38.0, 39.0, 39.0])), Some(4));
        assert_eq!(knee(&points(&[10.0, 20.0])), Some(2));
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn sensitivity_is_the_share_lost_by_lane() {
        let points = points(&[10.0, 20.0, 20.0, 15.0]);
        let told = Sensitivity::new(&points, Some(2.0), Some(4000.0)).unwrap();
        assert_eq!(told.of(&points[3]), 8.0 / 2.0 * (4000.0 - 1500.0) / 4000.0);
        let inferred = Sensitivity::new(&points, None, None).unwrap();
        assert_eq!((inferred.lanes, inferred.max), (2.0, 2000.0));
        assert_eq!(inferred.of(&points[1]), 0.0);
        assert!(Sensitivity::new(&[], None, None).is_none());
    }
}
