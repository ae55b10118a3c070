//! Facebook's ETC pool, as Atikoglu et al. published it (SIGMETRICS 2012): sizes of keys and values,
//! and the times between requests.

/// Places of a distribution that are told apart; a power of two.
pub(crate) const QUANTILES: usize = 1 << 16;

/// Location, scale and shape of the generalised extreme value distribution of key sizes, in bytes.
const KEYS: (f64, f64, f64) = (30.7984, 8.20449, 0.078688);
/// Scale and shape of the generalised Pareto distribution of value sizes beyond [`HEAD`], in bytes.
const VALUES: (f64, f64) = (214.476, 0.348238);
/// Shape of the generalised Pareto distribution of times between requests.
const GAPS_SHAPE: f64 = 0.154971;
/// How many of a hundred thousand values are 0, 1, ... bytes long.
const HEAD: [u32; 15] =
    [536, 47, 17_820, 9_239, 18, 2_740, 65, 606, 23, 837, 837, 8_989, 92, 326, 1_980];
const HEAD_OF: f64 = 100_000.0;

/// Key sizes of [`QUANTILES`] keys of equal shares, from the shortest to the longest.
pub(crate) fn key_sizes(range: std::ops::RangeInclusive<usize>) -> Box<[u8]> {
    let (location, scale, shape) = KEYS;
    let size = |share: f64| location + scale * ((-share.ln()).powf(-shape) - 1.0) / shape;
    let bounded = |share| (size(share).round() as usize).clamp(*range.start(), *range.end()) as u8;
    shares().map(bounded).collect()
}

/// Value sizes of [`QUANTILES`] values of equal shares, from the shortest to the longest.
pub(crate) fn value_sizes() -> Box<[u32]> {
    shares().map(value_size).collect()
}

fn value_size(share: f64) -> u32 {
    let mut below = 0.0;
    for (bytes, &many) in (0..).zip(&HEAD) {
        below += f64::from(many) / HEAD_OF;
        if share < below {
            return bytes;
        }
    }
    let (scale, shape) = VALUES;
    let beyond = pareto((share - below) / (1.0 - below), scale, shape);
    (HEAD.len() as f64 + beyond).round() as u32
}

/// A time between requests whose mean is 1, for `uniform` from 0 to below 1.
pub(crate) fn gap(uniform: f64) -> f64 {
    pareto(uniform, 1.0 - GAPS_SHAPE, GAPS_SHAPE)
}

fn pareto(share: f64, scale: f64, shape: f64) -> f64 {
    scale * ((1.0 - share).powf(-shape) - 1.0) / shape
}

fn shares() -> impl Iterator<Item = f64> {
    (0..QUANTILES).map(|at| (at as f64 + 0.5) / QUANTILES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_about_230_bytes_and_most_values_small() {
        let keys = key_sizes(16..=250);
        let values = value_sizes();
        let mean = |sum: f64| sum / QUANTILES as f64;
        let key = mean(keys.iter().map(|&bytes| f64::from(bytes)).sum());
        let value = mean(values.iter().map(|&bytes| f64::from(bytes)).sum());
        println!(
            "ETC: keys of {key:.1} bytes, values of {value:.1}, records of {:.1}",
            key + value
        );
        assert!((35.5..36.5).contains(&key), "{key}");
        assert!((228.0..232.0).contains(&(key + value)), "{key} + {value}");
        let tiny = values.iter().filter(|&&bytes| bytes == 2).count() as f64;
        assert!((mean(tiny) - 0.1782).abs() < 1e-3);
        assert!(
            *values.last().unwrap() < 100_000
                && keys.iter().all(|bytes| (16..=250).contains(bytes))
        );
    }

    #[test]
    fn gaps_have_mean_one_and_a_tail() {
        let gaps: Vec<f64> = shares().map(gap).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!(gaps[QUANTILES - 1] > 15.0 && gaps[0] < 0.001);
    }
}
