//! How long drives live by the model, beside what the kernel says was written to one.

use crate::common::{FLASH, MEMORY, Measured, data, fill, is_other_server, plan, requests, settle};
use terrace_load::{Plan as Requests, Popularity, Report, Workload, run};
use terrace_plan::{Data, Layout, Load, Plan};

const SECONDS_PER_YEAR: f64 = 86_400.0 * 365.0;
/// How long stores are looked at, and how many times each record is stored in that time. What a tier is
/// written for fewer is as chance has it: segments are reclaimed several at a time.
const SECONDS: f64 = 12.0;
const STORED_SHARE: f64 = 1.5;

/// Those requests, as a steady load, and what the kernel says was written for it, in bytes per second.
fn written(server: &Measured, requests: Requests) -> (Report, f64) {
    settle(server);
    let before = server.written();
    let rate = requests.records as f64 * STORED_SHARE / SECONDS;
    let report = run(&Requests { rate: Some(rate), ..requests }, None).expect("a run to its end");
    assert_eq!(report.errors, 0);
    settle(server);
    let per_second = (server.written() - before) / report.seconds;
    (report, per_second)
}

/// The plan for that many stores per second.
fn planned(data: &Data, records: u64, report: &Report) -> Plan {
    let load = Load { per_second: report.requests_per_second, get_share: 0.0, is_usual: true };
    plan(&Data { items: records as f64, ..*data }, load, MEMORY, &|share| share)
}

#[test]
fn a_drive_lives_as_long_as_planned() {
    if is_other_server("a_drive_lives_as_long_as_planned") {
        return;
    }
    for (key, value) in [(16.0, 800.0), (20.0, 80.0)] {
        let data = data(key, value);
        let layout = Layout::new(&data, FLASH, MEMORY).expect("records fit");
        let server = Measured::start(MEMORY, FLASH);
        let records = (layout.capacity(FLASH) * 0.6) as u64;
        fill(&server, &data, 0, records);
        // The first rounds over the tier still find free places.
        let workload = || Workload::Overwrite(Popularity::Uniform);
        run(&requests(&server, &data, workload(), records, records), None).expect("overwrites");
        let number = (records as f64 * STORED_SHARE) as u64;
        let (report, per_second) =
            written(&server, requests(&server, &data, workload(), records, number));

        let plan = planned(&data, records, &report);
        let endurance = plan.endurance_bytes.expect("a class has one");
        let years = endurance / per_second / SECONDS_PER_YEAR;
        let least = plan.life_years.expect("it is written to");
        println!(
            "records of {} bytes, overwritten: the drive is written at most {:.0} KiB/s, as measured {:.0}; \
             it lives {:.3} days at least, {:.3}",
            key + value,
            plan.drive_write_bytes / 1024.0,
            per_second / 1024.0,
            least * 365.0,
            years * 365.0
        );
        assert!(years >= least * 0.95, "{years} years are less than {least}");
        assert!(years <= least * 2.5, "{years} years are far from {least}");
    }
}
