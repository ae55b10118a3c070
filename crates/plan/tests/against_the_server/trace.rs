//! The hits that the model reads off a trace beside those of a server that the trace is replayed to.

use crate::common::{FLASH, MIB, Measured, data, is_other_server, plan, requests};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use terrace_load::{Plan as Requests, Replay, Workload, run};
use terrace_plan::{Data, Load, Trace};

const LITTLE: f64 = 10.0 * MIB;
const KEY_BYTES: usize = 20;
const OBJECTS: f64 = 40_000.0;
const REQUESTS: u64 = 150_000;

/// Requests for objects of 816 bytes, one of rank r as often as 1 / r says.
fn write_trace(file: &mut std::fs::File) {
    let mut state = 1_u64;
    let mut text = String::from("time,object,size\n");
    for time in 0..REQUESTS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
        let object = OBJECTS.powf(uniform) as u64;
        text += &format!("{time},{object},816\n");
    }
    file.write_all(text.as_bytes()).expect("room for a trace");
}

#[test]
fn a_trace_is_answered_as_planned() {
    if is_other_server("a_trace_is_answered_as_planned") {
        return;
    }
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().expect("a temporary file");
    write_trace(file.as_file_mut());
    let path = file.path().to_str().expect("temporary paths are text");
    let trace = Trace::read(path).expect("a trace");
    let items = trace.objects;
    let value = trace.bytes / items - KEY_BYTES as f64;
    let data = Data { items, ..data(KEY_BYTES as f64, value) };
    let load = Load { per_second: 1000.0, get_share: 1.0, is_usual: true };
    let plan = plan(&data, load, LITTLE, &|share| trace.hits(share * trace.bytes));

    let server = Measured::start(LITTLE, FLASH);
    let replay = Arc::new(Replay::read(path, KEY_BYTES).expect("a trace"));
    let workload = Workload::Replay(Arc::clone(&replay));
    let all = requests(&server, &data, workload, replay.objects(), REQUESTS);
    let sizes = replay.sizes(KEY_BYTES);
    let all = Requests { sizes, depth: 1, back_end: Some(Duration::ZERO), ..all };
    let report = run(&all, None).expect("a run to its end");
    assert_eq!((report.wrong, report.errors), (0, 0), "{:?}", report.examples);

    let reads = (report.hits + report.misses) as f64;
    let flash = server.tier("tier:0:hits") / reads;
    let hits = report.hits as f64 / reads;
    let (dram, planned) = (hits - flash, plan.dram_hits + plan.flash_hits);
    println!("hits of a trace: model {planned:.4}, server {hits:.4}");
    println!("of them from DRAM: model {:.3}, server {dram:.3}", plan.dram_hits);
    assert!((hits - planned).abs() < 0.001, "{hits} for {planned}");
    assert!((dram - plan.dram_hits).abs() < 0.05, "{dram} for {}", plan.dram_hits);
}
