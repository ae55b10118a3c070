//! What a drive says of its own health, read from the JSON of `smartctl` or `nvme`.
//!
//! A figure that a drive does not give is absent: none is ever made up.

use serde_json::Value;

/// Bytes of a data unit of NVMe drives.
const DATA_UNIT_BYTES: u64 = 512_000;
const MIB: u64 = 1 << 20;
/// What `nvme` gives temperatures in, less degrees Celsius.
const KELVIN: u64 = 273;

/// One figure of a drive's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// 1 if the drive says that it is failing.
    Failing,
    /// Bits of the NVMe specification.
    CriticalWarning,
    /// Of the life that the maker rated; may pass 100.
    UsedPercent,
    SparePercent,
    SpareThresholdPercent,
    /// Data that the drive could not give back.
    MediaErrors,
    ReallocatedSectors,
    /// Sectors that could not be read, and are not reallocated yet.
    PendingSectors,
    WrittenBytes,
    PowerOnHours,
    UnsafeShutdowns,
    TemperatureCelsius,
}

impl Figure {
    const COUNT: usize = Self::TemperatureCelsius as usize + 1;
}

/// The health of one drive at the time when it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Its device, such as `/dev/nvme0n1`.
    pub(crate) drive: String,
    /// Empty if unknown.
    pub(crate) model: String,
    figures: [Option<u64>; Figure::COUNT],
}

impl Report {
    pub(crate) fn get(&self, figure: Figure) -> Option<u64> {
        self.figures[figure as usize]
    }

    fn set(&mut self, figure: Figure, value: Option<u64>) {
        self.figures[figure as usize] = value;
    }

    /// From the answer of `smartctl --json -a`; `None` if it has no figure.
    pub(super) fn of_smartctl(drive: &str, answer: &Value) -> Option<Self> {
        let mut report = Self::new(drive, answer.pointer("/model_name"));
        let at = |pointer: &str| answer.pointer(pointer).and_then(number);
        let passed = answer.pointer("/smart_status/passed").and_then(Value::as_bool);
        report.set(Figure::Failing, passed.map(|passed| u64::from(!passed)));
        report.set(Figure::PowerOnHours, at("/power_on_time/hours"));
        report.set(Figure::TemperatureCelsius, at("/temperature/current"));
        if let Some(log) = answer.pointer("/nvme_smart_health_information_log") {
            report.read_nvme(
                log,
                ["available_spare", "available_spare_threshold", "percentage_used"],
            );
        }
        if let Some(table) = answer.pointer("/ata_smart_attributes/table").and_then(Value::as_array)
        {
            let block_bytes = at("/logical_block_size").unwrap_or(512);
            let is_solid = at("/rotation_rate") == Some(0);
            report.read_ata(&Attributes(table), block_bytes, is_solid);
        }
        report.set_if_known(Figure::UsedPercent, at("/endurance_used/current_percent"));
        report.set_if_known(Figure::SparePercent, at("/spare_available/current_percent"));
        let threshold = at("/spare_available/threshold_percent");
        report.set_if_known(Figure::SpareThresholdPercent, threshold);
        report.some()
    }

    /// From the answer of `nvme smart-log --output-format=json`; `None` if it has no figure.
    pub(super) fn of_nvme(drive: &str, answer: &Value) -> Option<Self> {
        let mut report = Self::new(drive, None);
        report.read_nvme(answer, ["avail_spare", "spare_thresh", "percent_used"]);
        report.set(Figure::PowerOnHours, answer.get("power_on_hours").and_then(number));
        let kelvin = answer.get("temperature").and_then(number);
        report.set(Figure::TemperatureCelsius, kelvin.and_then(|t| t.checked_sub(KELVIN)));
        let warning = report.get(Figure::CriticalWarning);
        report.set(Figure::Failing, warning.map(|bits| u64::from(bits != 0)));
        report.some()
    }

    fn new(drive: &str, model: Option<&Value>) -> Self {
        let model = model.and_then(Value::as_str).unwrap_or_default();
        // It becomes a line of the log, and a label.
        let model = model.chars().filter(|c| !c.is_control()).take(100).collect();
        Self { drive: drive.to_owned(), model, ..Self::default() }
    }

    fn some(self) -> Option<Self> {
        self.figures.iter().any(Option::is_some).then_some(self)
    }

    fn set_if_known(&mut self, figure: Figure, value: Option<u64>) {
        if value.is_some() {
            self.set(figure, value);
        }
    }

    /// The log page of NVMe drives; the two programs differ in a few names.
    fn read_nvme(&mut self, log: &Value, [spare, threshold, used]: [&str; 3]) {
        let at = |name: &str| log.get(name).and_then(number);
        // In some versions of `nvme` it is an object with a member for each bit.
        let warning = log.pointer("/critical_warning/value").and_then(number);
        self.set(Figure::CriticalWarning, warning.or_else(|| at("critical_warning")));
        self.set(Figure::UsedPercent, at(used));
        self.set(Figure::SparePercent, at(spare));
        self.set(Figure::SpareThresholdPercent, at(threshold));
        self.set(Figure::MediaErrors, at("media_errors"));
        let written = at("data_units_written").map(|units| units.saturating_mul(DATA_UNIT_BYTES));
        self.set(Figure::WrittenBytes, written);
        self.set(Figure::UnsafeShutdowns, at("unsafe_shutdowns"));
    }

    /// The attributes of ATA drives. What a number means differs from maker to maker; the names are those of
    /// smartctl's database of drives.
    fn read_ata(&mut self, table: &Attributes<'_>, block_bytes: u64, is_solid: bool) {
        if is_solid {
            let left = table.percent(&[
                (177, "Wear_Leveling_Count"),
                (202, "Percent_Lifetime_Remain"),
                (231, "SSD_Life_Left"),
                (233, "Media_Wearout_Indicator"),
                (230, "Media_Wearout_Indicator"),
                (245, "Percent_Life_Remaining"),
                (169, "Remaining_Lifetime_Perc"),
            ]);
            self.set(Figure::UsedPercent, left.map(|(left, _)| 100 - left));
            let spare = table.percent(&[
                (232, "Available_Reservd_Space"),
                (170, "Available_Reservd_Space"),
                (179, "Used_Rsvd_Blk_Cnt_Tot"),
            ]);
            self.set(Figure::SparePercent, spare.map(|(spare, _)| spare));
            self.set(Figure::SpareThresholdPercent, spare.map(|(_, threshold)| threshold));
        }
        let raw = |names: &[(u64, &str)]| table.raw(names);
        let reallocated = [(5, "Reallocated_Sector_Ct"), (5, "Reallocate_NAND_Blk_Cnt")];
        self.set(Figure::ReallocatedSectors, raw(&reallocated));
        self.set(Figure::PendingSectors, raw(&[(197, "Current_Pending_Sector")]));
        let errors = [(187, "Reported_Uncorrect"), (187, "Uncorrectable_Error_Cnt")];
        self.set(Figure::MediaErrors, raw(&errors));
        let shutdowns = [
            (174, "Unsafe_Shutdown_Count"),
            (192, "Unsafe_Shutdown_Count"),
            (174, "Unexpect_Power_Loss_Ct"),
            (235, "POR_Recovery_Count"),
        ];
        self.set(Figure::UnsafeShutdowns, raw(&shutdowns));
        // First the names with a unit: some drives count the others in units of their own.
        let written = [
            (&[(225, "Host_Writes_32MiB"), (241, "Host_Writes_32MiB")][..], 32 * MIB),
            (&[(241, "Host_Writes_GiB"), (241, "Lifetime_Writes_GiB")], 1024 * MIB),
            (&[(241, "Total_LBAs_Written"), (246, "Total_LBAs_Written")], block_bytes),
        ];
        let written = written
            .iter()
            .find_map(|(names, unit)| raw(names).map(|count| count.saturating_mul(*unit)));
        self.set(Figure::WrittenBytes, written);
    }
}

/// The table of attributes of an ATA drive.
struct Attributes<'v>(&'v [Value]);

impl Attributes<'_> {
    /// The first of the named attributes that the drive has.
    fn find(&self, names: &[(u64, &str)]) -> Option<&Value> {
        names.iter().find_map(|(id, name)| {
            self.0.iter().find(|one| {
                one.get("id").and_then(Value::as_u64) == Some(*id)
                    && one.get("name").and_then(Value::as_str) == Some(*name)
            })
        })
    }

    fn raw(&self, names: &[(u64, &str)]) -> Option<u64> {
        self.find(names)?.pointer("/raw/value").and_then(number)
    }

    /// The normalized value and its threshold, of attributes that go from 100 down to 0.
    fn percent(&self, names: &[(u64, &str)]) -> Option<(u64, u64)> {
        let attribute = self.find(names)?;
        let value = attribute.get("value").and_then(number).filter(|value| *value <= 100)?;
        Some((value, attribute.get("thresh").and_then(number).unwrap_or(0)))
    }
}

/// Numbers of 128 bits are floats in some versions of the programs, and text in others.
fn number(value: &Value) -> Option<u64> {
    let float = |number: f64| (number >= 0.0).then_some(number as u64);
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(float)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Figure::{
        CriticalWarning, Failing, MediaErrors, PendingSectors, PowerOnHours, ReallocatedSectors,
        SparePercent, SpareThresholdPercent, TemperatureCelsius, UnsafeShutdowns, UsedPercent,
        WrittenBytes,
    };

    fn smartctl(answer: &str) -> Option<Report> {
        Report::of_smartctl("/dev/sda", &serde_json::from_str(answer).expect("JSON"))
    }

    /// The report has these figures and no others.
    fn assert_figures(report: &Report, figures: &[(Figure, u64)]) {
        for (figure, value) in figures {
            assert_eq!(report.get(*figure), Some(*value), "{figure:?}");
        }
        let known = report.figures.iter().flatten().count();
        assert_eq!(known, figures.len(), "{report:?}");
    }

    #[test]
    fn nvme_drive_by_smartctl_has_all_of_its_log() {
        let report = smartctl(include_str!("recorded/smartctl-nvme.json")).expect("a report");
        assert_eq!(report.model, "INTEL SSDPE2KX020T8");
        let figures = [
            (Failing, 0),
            (CriticalWarning, 0),
            (UsedPercent, 22),
            (SparePercent, 100),
            (SpareThresholdPercent, 10),
            (MediaErrors, 0),
            (WrittenBytes, 2_643_181_154 * 512_000),
            (PowerOnHours, 36_959),
            (UnsafeShutdowns, 21),
            (TemperatureCelsius, 29),
        ];
        assert_figures(&report, &figures);
    }

    #[test]
    fn nvme_drive_by_nvme_has_all_of_its_log() {
        let answer = serde_json::from_str(include_str!("recorded/nvme-smart-log.json"));
        let report = Report::of_nvme("/dev/nvme0n1", &answer.expect("JSON")).expect("a report");
        let figures = [
            (Failing, 0),
            (CriticalWarning, 0),
            (UsedPercent, 15),
            (SparePercent, 100),
            (SpareThresholdPercent, 5),
            (MediaErrors, 0),
            (WrittenBytes, 1_474_968_593 * 512_000),
            (PowerOnHours, 38_313),
            (UnsafeShutdowns, 139),
            (TemperatureCelsius, 28),
        ];
        assert_figures(&report, &figures);
    }

    #[test]
    fn sata_drive_has_its_wear_from_the_attribute_of_its_maker() {
        let samsung = smartctl(include_str!("recorded/smartctl-sata-samsung.json"));
        let figures = [
            (Failing, 0),
            (UsedPercent, 1),
            (ReallocatedSectors, 0),
            (PowerOnHours, 34_579),
            (TemperatureCelsius, 30),
        ];
        assert_figures(&samsung.expect("a report"), &figures);
        // Its attribute 233 is not the wear that other drives of its maker have there, and it counts blocks of 32 MiB
        // under the name of 512 bytes.
        let intel = smartctl(include_str!("recorded/smartctl-sata-intel.json"));
        let figures = [
            (Failing, 0),
            (UsedPercent, 0),
            (SparePercent, 100),
            (SpareThresholdPercent, 10),
            (ReallocatedSectors, 0),
            (PendingSectors, 0),
            (WrittenBytes, 129_493 << 25),
            (PowerOnHours, 21_213),
            (UnsafeShutdowns, 167),
            (TemperatureCelsius, 47),
        ];
        assert_figures(&intel.expect("a report"), &figures);
    }

    #[test]
    fn wear_of_a_disk_that_rotates_is_unknown() {
        let recorded = include_str!("recorded/smartctl-sata-samsung.json");
        let rotating = recorded.replace("\"rotation_rate\": 0", "\"rotation_rate\": 7200");
        assert_eq!(smartctl(&rotating).and_then(|report| report.get(UsedPercent)), None);
    }

    #[test]
    fn answer_without_figures_is_no_report() {
        for answer in [
            include_str!("recorded/smartctl-denied.json"),
            include_str!("recorded/smartctl-no-smart.json"),
            "{}",
            "[1]",
            "7",
            r#"{"nvme_smart_health_information_log":{"percentage_used":"lots","media_errors":-1}}"#,
            r#"{"ata_smart_attributes":{"table":[{},7,{"id":5,"name":"Reallocated_Sector_Ct"}]}}"#,
        ] {
            assert_eq!(smartctl(answer), None, "{answer}");
        }
    }

    #[test]
    fn numbers_are_read_in_all_forms_that_the_programs_have() {
        let answer = |written: &str, warning: &str| {
            let answer =
                format!(r#"{{"data_units_written":{written},"critical_warning":{warning}}}"#);
            let answer = serde_json::from_str(&answer).expect("JSON");
            let report = Report::of_nvme("/dev/nvme0n1", &answer).expect("a report");
            (report.get(WrittenBytes), report.get(CriticalWarning), report.get(Failing))
        };
        let all = (Some(2_048_000), Some(4), Some(1));
        assert_eq!(answer("4", "4"), all);
        assert_eq!(answer("4.0", r#"{"value":4,"available_spare":0}"#), all);
        assert_eq!(answer("\"4\"", "4"), all);
        let most = "340282366920938463463374607431768211455";
        assert_eq!(answer(most, "0"), (Some(u64::MAX), Some(0), Some(0)));
    }
}
