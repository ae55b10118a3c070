//! Drives: classes known from their data sheets, and profiles that `terrace probe` wrote.

use crate::PlanError;
use serde::Deserialize;

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

fn five() -> f64 {
    5.0
}

/// Typical of their class, not of one product: name, capacity in TB, thousands of reads per second,
/// MB/s written, drive writes per day over five years.
const CLASSES: &[(&str, f64, f64, f64, f64)] = &[
    ("nvme-read-1.92t", 1.92, 800.0, 2000.0, 1.0),
    ("nvme-read-3.84t", 3.84, 1000.0, 4000.0, 1.0),
    ("nvme-read-7.68t", 7.68, 1000.0, 5000.0, 1.0),
    ("nvme-mixed-1.6t", 1.6, 800.0, 2500.0, 3.0),
    ("nvme-mixed-3.2t", 3.2, 1000.0, 4000.0, 3.0),
    ("nvme-mixed-6.4t", 6.4, 1000.0, 5000.0, 3.0),
    ("nvme-qlc-15.36t", 15.36, 800.0, 2000.0, 0.5),
    ("nvme-client-1t", 1.0, 600.0, 1000.0, 0.3),
    ("sata-read-1.92t", 1.92, 90.0, 500.0, 1.0),
    ("optane-0.4t", 0.4, 1500.0, 4000.0, 100.0),
];

impl Drive {
    /// A class by its name.
    ///
    /// # Errors
    /// Names all classes if there is none of that name.
    pub fn class(name: &str) -> Result<Self, PlanError> {
        let found = CLASSES.iter().find(|class| class.0 == name);
        let Some(&(name, terabytes, thousands, megabytes, per_day)) = found else {
            let names: Vec<_> = CLASSES.iter().map(|class| class.0).collect();
            let text = format!("no drive class {name}; there are {}", names.join(", "));
            return Err(PlanError::Input(text));
        };
        Ok(Self {
            name: name.to_owned(),
            capacity_bytes: terabytes * 1e12,
            read_iops: thousands * 1e3,
            write_bytes_per_second: megabytes * 1e6,
            drive_writes_per_day: Some(per_day),
            warranty_years: five(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_found_by_name_and_named_when_not() {
        for class in CLASSES {
            assert_eq!(Drive::class(class.0).unwrap().capacity_bytes, class.1 * 1e12);
        }
        let error = Drive::class("floppy").unwrap_err().to_string();
        assert!(error.contains("nvme-mixed-1.6t"), "{error}");
    }
}
