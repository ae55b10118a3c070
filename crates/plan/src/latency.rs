//! How long a GET takes in the server and on its drive; the network between client and server is not in it.

use crate::Drive;

/// Times of GETs in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Half of them take no longer.
    pub p50_us: f64,
    /// Ninety-nine of a hundred take no longer.
    pub p99_us: f64,
}

/// Quantiles of a time that is distributed exponentially, in terms of its mean.
const MEDIAN: f64 = std::f64::consts::LN_2;
const P99: f64 = 4.605;

/// A GET that takes `service` seconds of a processor, `used` (0 to 1) of whose time is taken; `None` where it
/// is all taken, so that requests only queue.
pub(crate) fn of_processor(service: f64, used: f64) -> Option<Latency> {
    let wait = service * queue(used)?;
    Some(Latency { p50_us: (service + MEDIAN * wait) * 1e6, p99_us: (service + P99 * wait) * 1e6 })
}

/// The same with a read of so many pages of a drive, which reads `rate` pages per second in all; `None` as well where
/// its latency is not known.
pub(crate) fn of_drive(
    drive: &Drive,
    rate: f64,
    pages: f64,
    processor: Option<Latency>,
) -> Option<Latency> {
    let processor = processor?;
    // A drive has many reads in flight, so that one waits for few others.
    let page_us = 1e6 / drive.read_iops;
    let wait = queue(rate / drive.read_iops)? * page_us;
    let longer = (pages - 1.0) * page_us;
    Some(Latency {
        p50_us: processor.p50_us + drive.read_us_p50? + longer + MEDIAN * wait,
        p99_us: processor.p99_us + drive.read_us_p99? + longer + P99 * wait,
    })
}

/// Requests that wait in the mean, where so much of the server's time is used.
fn queue(used: f64) -> Option<f64> {
    (used < 1.0).then(|| used / (1.0 - used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_servers_take_their_time_and_busy_ones_have_queues() {
        let idle = of_processor(10e-6, 0.0).unwrap();
        assert_eq!((idle.p50_us, idle.p99_us), (10.0, 10.0));
        // One request waits in the mean.
        let half = of_processor(10e-6, 0.5).unwrap();
        assert!((half.p99_us - 56.05).abs() < 0.01 && half.p50_us < 17.0, "{half:?}");
        assert_eq!(of_processor(10e-6, 1.0), None);
    }

    #[test]
    fn drives_add_their_read() {
        let drive = Drive::class("nvme-read-3.84t").unwrap();
        let (p50, p99) = (drive.read_us_p50.unwrap(), drive.read_us_p99.unwrap());
        let processor = of_processor(19e-6, 0.0);
        let idle = of_drive(&drive, 0.0, 1.0, processor).unwrap();
        assert_eq!((idle.p50_us, idle.p99_us), (19.0 + p50, 19.0 + p99));
        let busy = of_drive(&drive, drive.read_iops * 0.99, 1.0, processor).unwrap();
        assert!(busy.p99_us > idle.p99_us + 400.0, "{busy:?}");
        // 2 MiB at 4 GB/s.
        let long = of_drive(&drive, 0.0, 512.0, processor).unwrap();
        assert_eq!(long.p50_us, idle.p50_us + 511.0);
        assert_eq!(of_drive(&drive, drive.read_iops, 1.0, processor), None);
        let unknown = Drive { read_us_p99: None, ..drive };
        assert_eq!(of_drive(&unknown, 0.0, 1.0, processor), None);
    }
}
