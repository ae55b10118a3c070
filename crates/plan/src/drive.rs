//! Drives: classes known from their data sheets, and profiles that `terrace probe` wrote.

use crate::PlanError;
use serde::Deserialize;
use std::fmt::Write;

/// What one drive can do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Drive {
    /// What it is called in the plan.
    #[serde(default)]
    pub name: String,
    /// Usable bytes.
    pub capacity_bytes: f64,
    /// Random reads of 4 KiB per second.
    pub read_iops: f64,
    /// Median time of such a read, in microseconds: of a class alone on the drive, of a profile at the knee.
    #[serde(default)]
    pub read_us_p50: Option<f64>,
    /// Its 99th percentile.
    #[serde(default)]
    pub read_us_p99: Option<f64>,
    /// Sequential writes in bytes per second.
    pub write_bytes_per_second: f64,
    /// Whole drives that may be written per day over `warranty_years`; a probe can't know it.
    #[serde(default)]
    pub drive_writes_per_day: Option<f64>,
    /// Years for which that holds.
    #[serde(default = "five")]
    pub warranty_years: f64,
}

const DAYS_PER_YEAR: f64 = 365.0;
/// A misspelt name is at least so much like the one that was meant.
const ALIKE: f64 = 0.7;

fn five() -> f64 {
    5.0
}

/// Typical of their class, not of one product.
struct Class {
    name: &'static str,
    terabytes: f64,
    thousand_reads: f64,
    /// Median and 99th percentile of a read, in microseconds.
    read_us: (f64, f64),
    megabytes_per_second: f64,
    writes_per_day: f64,
}

/// Name, capacity in TB, thousands of reads per second, their times, MB/s written, drive writes per day over five years.
const fn class(
    name: &'static str,
    terabytes: f64,
    thousand_reads: f64,
    read_us: (f64, f64),
    megabytes_per_second: f64,
    writes_per_day: f64,
) -> Class {
    Class { name, terabytes, thousand_reads, read_us, megabytes_per_second, writes_per_day }
}

const CLASSES: &[Class] = &[
    class("nvme-read-1.92t", 1.92, 800.0, (85.0, 250.0), 2000.0, 1.0),
    class("nvme-read-3.84t", 3.84, 1000.0, (85.0, 250.0), 4000.0, 1.0),
    class("nvme-read-7.68t", 7.68, 1000.0, (85.0, 250.0), 5000.0, 1.0),
    class("nvme-mixed-1.6t", 1.6, 800.0, (85.0, 220.0), 2500.0, 3.0),
    class("nvme-mixed-3.2t", 3.2, 1000.0, (85.0, 220.0), 4000.0, 3.0),
    class("nvme-mixed-6.4t", 6.4, 1000.0, (85.0, 220.0), 5000.0, 3.0),
    class("nvme-qlc-15.36t", 15.36, 800.0, (110.0, 400.0), 2000.0, 0.5),
    class("nvme-client-1t", 1.0, 600.0, (70.0, 400.0), 1000.0, 0.3),
    class("sata-read-1.92t", 1.92, 90.0, (150.0, 500.0), 500.0, 1.0),
    class("optane-0.4t", 0.4, 1500.0, (10.0, 20.0), 4000.0, 100.0),
];

impl Drive {
    /// A class by its name.
    ///
    /// # Errors
    /// Names all classes if there is none of that name.
    pub fn class(name: &str) -> Result<Self, PlanError> {
        let found = CLASSES.iter().find(|class| class.name == name);
        let class = found.ok_or_else(|| PlanError::Input(no_class(name)))?;
        Ok(Self {
            name: name.to_owned(),
            capacity_bytes: class.terabytes * 1e12,
            read_iops: class.thousand_reads * 1e3,
            read_us_p50: Some(class.read_us.0),
            read_us_p99: Some(class.read_us.1),
            write_bytes_per_second: class.megabytes_per_second * 1e6,
            drive_writes_per_day: Some(class.writes_per_day),
            warranty_years: five(),
        })
    }

    /// All classes, as a table.
    pub fn classes() -> String {
        let mut text = String::from(
            "class             capacity  reads/s  read p50, p99  written  drive writes a day, 5 years\n",
        );
        for class in CLASSES {
            let Class {
                name, terabytes, thousand_reads, megabytes_per_second, writes_per_day, ..
            } = class;
            let (p50, p99) = class.read_us;
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "{name:<16}  {terabytes:>5} TB  {thousand_reads:>6}k  {p50:>4} {p99:>5} us  {megabytes_per_second:>4} MB/s  \
                 {writes_per_day}"
            );
        }
        text
    }

    /// Bytes that it may be written in all; `None` if its maker's word is not known.
    pub fn endurance_bytes(&self) -> Option<f64> {
        let per_day = self.drive_writes_per_day?;
        Some(per_day * DAYS_PER_YEAR * self.warranty_years * self.capacity_bytes)
    }

    /// From a device profile (TOML).
    ///
    /// # Errors
    /// The file can't be read, or lacks a figure.
    pub fn profile(path: &str) -> Result<Self, PlanError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| PlanError::File { path: path.to_owned(), error })?;
        let parsed: Result<Self, _> = toml::from_str(&text);
        let mut drive =
            parsed.map_err(|error| PlanError::Input(format!("{path}: {}", error.message())))?;
        if drive.name.is_empty() {
            drive.name = path.to_owned();
        }
        Ok(drive)
    }
}

fn no_class(name: &str) -> String {
    let names: Vec<_> = CLASSES.iter().map(|class| class.name).collect();
    let alike = |class: &&str| strsim::jaro_winkler(class, name);
    let nearest = names.iter().copied().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let meant = nearest.filter(|class| alike(class) >= ALIKE);
    let meant = meant.map_or(String::new(), |class| format!("did you mean {class}? "));
    format!(
        "--drive {name}: {meant}There are {}, or a profile of `terrace probe` (FILE.toml); --classes says more",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_found_by_name_and_named_when_not() {
        for class in CLASSES {
            assert_eq!(Drive::class(class.name).unwrap().capacity_bytes, class.terabytes * 1e12);
            assert!(Drive::classes().contains(class.name));
        }
        let error = Drive::class("nvme-mixd-1.6t").unwrap_err().to_string();
        assert!(error.contains("did you mean nvme-mixed-1.6t?"), "{error}");
        let error = Drive::class("floppy").unwrap_err().to_string();
        assert!(error.contains("nvme-mixed-1.6t") && !error.contains("did you mean"), "{error}");
    }

    #[test]
    fn a_profile_without_latencies_is_a_drive() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("drive.toml");
        let path = file.to_str().unwrap();
        let text = "capacity_bytes = 1e9\nread_iops = 5e4\nwrite_bytes_per_second = 1e8\n";
        std::fs::write(&file, text).unwrap();
        let drive = Drive::profile(path).unwrap();
        assert_eq!((drive.name.as_str(), drive.read_us_p50), (path, None));
        std::fs::write(&file, format!("{text}read_us_p50 = 80.0\nread_us_p99 = 200\n")).unwrap();
        assert_eq!(Drive::profile(path).unwrap().read_us_p99, Some(200.0));
        std::fs::write(&file, "capacity_bytes = 1e9\n").unwrap();
        let error = Drive::profile(path).unwrap_err().to_string();
        assert!(error.contains("read_iops"), "{error}");
    }
}
