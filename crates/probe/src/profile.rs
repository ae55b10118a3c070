//! What is kept of a measured drive.

use crate::ProbeError;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the file's form.
const FORM: u32 = 1;
/// No server has more reads in flight on a drive.
const DEPTH_MAX: u32 = 4096;

/// A device profile; its file is TOML. The server reads it (`--tier ssd:PATH:SIZE,profile=FILE`), and
/// `terrace plan --drive FILE.toml` does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Which form this is; a file without it is none of `terrace probe`.
    pub terrace_device_profile: u32,
    /// The drive's path.
    pub name: String,
    /// Usable bytes.
    pub capacity_bytes: f64,
    /// Random reads of 4 KiB per second, at `queue_depth`.
    pub read_iops: f64,
    /// Reads in flight beyond which more only queue.
    pub queue_depth: u32,
    /// Median time of a read at that depth, in microseconds.
    pub read_us_p50: f64,
    /// Its 99th percentile.
    pub read_us_p99: f64,
    /// Sequential writes in bytes per second; missing if the drive was not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_second: Option<f64>,
}

impl Profile {
    /// The form that this version writes and reads.
    pub const FORM: u32 = FORM;

    /// Reads a profile that `terrace probe --profile` wrote.
    ///
    /// # Errors
    /// One line that says what to do: the file can't be read, is no profile, is one of another version,
    /// or says what no drive does.
    pub fn read(path: &Path) -> Result<Self, ProbeError> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(ProbeError::io(&name.to_string()))?;
        Self::parse(&text).map_err(|why| {
            ProbeError::Input(format!(
                "{name} is no device profile: {why}; write one with `terrace probe --profile {name} PATH`"
            ))
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| one_line(error.message()))?;
        match table.get("terrace_device_profile").and_then(toml::Value::as_integer) {
            Some(form) if form == i64::from(FORM) => {}
            Some(form) => return Err(format!("its form is {form} and this version reads {FORM}")),
            None => return Err("it lacks terrace_device_profile".into()),
        }
        let parsed: Result<Self, _> = table.try_into();
        let profile = parsed.map_err(|error| one_line(error.message()))?;
        if !(1..=DEPTH_MAX).contains(&profile.queue_depth) {
            return Err(format!(
                "a queue_depth of {} is not 1 to {DEPTH_MAX}",
                profile.queue_depth
            ));
        }
        if !(profile.read_iops.is_finite() && profile.read_iops > 0.0) {
            return Err("its read_iops is no rate".into());
        }
        Ok(profile)
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            terrace_device_profile: FORM,
            name: "/data/probe".into(),
            capacity_bytes: 1e9,
            read_iops: 5e4,
            queue_depth: 32,
            read_us_p50: 200.0,
            read_us_p99: 900.0,
            write_bytes_per_second: None,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let text = toml::to_string(&profile()).unwrap();
        assert_eq!(Profile::parse(&text), Ok(profile()));
        // What a person added for `terrace plan` does not matter.
        assert!(Profile::parse(&format!("{text}\ndrive_writes_per_day = 1.0\n")).is_ok());
    }

    #[test]
    fn what_is_no_profile_is_told_in_one_line() {
        let of = |change: fn(&mut Profile)| {
            let mut wrong = profile();
            change(&mut wrong);
            toml::to_string(&wrong).unwrap()
        };
        let cases = [
            (of(|p| p.terrace_device_profile = 2), "its form is 2"),
            (of(|p| p.queue_depth = 0), "queue_depth of 0"),
            (of(|p| p.queue_depth = u32::MAX), "queue_depth of 4294967295"),
            (of(|p| p.read_iops = f64::NAN), "read_iops"),
            ("memory-limit = \"4g\"\n".into(), "lacks terrace_device_profile"),
            ("terrace_device_profile = 1\nname = \"x\"\n".into(), "missing field"),
            ("\0\u{1}not toml".into(), ""),
            (String::new(), "lacks terrace_device_profile"),
        ];
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("profile.toml");
        for (text, part) in cases {
            std::fs::write(&file, &text).unwrap();
            let error = Profile::read(&file).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("terrace probe --profile"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(Profile::read(&dir.path().join("none")).is_err());
    }
}
