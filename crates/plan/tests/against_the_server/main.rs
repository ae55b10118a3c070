//! The figures of the model beside those of a running server.

mod common;
mod memcached;
mod network;
mod proposal;
mod trace;
mod wear;

use common::{
    FLASH, MEMORY, MIB, Measured, data, fill, is_other_server, near, plan, plan_on, requests,
    settle, skip,
};
use std::time::{Duration, Instant};
use terrace_load::{End, Plan as Requests, Popularity, Workload, run};
use terrace_plan::{Data, Layout, Load, Popularity as Model};

const ETC: (f64, f64) = (2.5, 0.03);

fn etc() -> Popularity {
    Popularity::ZipfMandelbrot { s: ETC.0, beta: ETC.1 }
}

#[test]
fn bytes_written_are_as_planned() {
    if is_other_server("bytes_written_are_as_planned") {
        return;
    }
    for (key, value, records, marked) in
        [(20.0, 80.0, 200_000, false), (20.0, 80.0, 200_000, true), (16.0, 800.0, 40_000, false)]
    {
        let mut data = data(key, value);
        if marked {
            data = Data { ttl_seconds: Some(86_400.0), client_flags: true, ..data };
        }
        let server = Measured::start(MEMORY, FLASH);
        assert_eq!(fill(&server, &data, 0, records).errors, 0);
        settle(&server);
        let written = server.tier(":written_bytes") / server.tier(":stored_payload_bytes");
        let layout = Layout::new(&data, FLASH, MEMORY).expect("records fit");
        near("bytes written per byte", layout.write_amplification, written, 0.03);
        near("segment bytes", layout.segment_bytes, server.tier(":segment_bytes"), 0.001);
    }
}

#[test]
fn overwriting_writes_no_more_than_planned() {
    if is_other_server("overwriting_writes_no_more_than_planned") {
        return;
    }
    let data = data(16.0, 800.0);
    let layout = Layout::new(&data, FLASH, MEMORY).expect("records fit");
    let server = Measured::start(MEMORY, FLASH);
    let records = (layout.capacity(FLASH) * 0.6) as u64;
    fill(&server, &data, 0, records);
    // The first round over the tier still finds free places.
    let overwrite = |number| {
        let workload = Workload::Overwrite(Popularity::Uniform);
        let plan = requests(&server, &data, workload, records, number);
        assert_eq!(run(&plan, None).expect("a run to its end").errors, 0);
        settle(&server);
        (server.tier(":written_bytes"), server.tier(":stored_payload_bytes"))
    };
    let before = overwrite(records);
    let after = overwrite(records * 2);
    let measured = (after.0 - before.0) / (after.1 - before.1);
    let fill = records as f64 / layout.capacity(FLASH);
    let bound = layout.overwrite_amplification(fill);
    println!("bytes written per byte with overwrites: at most {bound:.3}, server {measured:.3}");
    assert!(measured <= bound * 1.05, "{measured} is more than {bound}");
    assert!(measured >= layout.write_amplification * 0.9, "{measured} is less than is possible");
}

#[test]
fn a_full_tier_holds_what_was_planned() {
    if is_other_server("a_full_tier_holds_what_was_planned") {
        return;
    }
    let data = data(20.0, 80.0);
    let server = Measured::start(MEMORY, FLASH);
    let mut first = 0;
    while server.tier("evictions") == 0.0 && first < 2_000_000 {
        fill(&server, &data, first, 50_000);
        first += 50_000;
    }
    fill(&server, &data, first, 50_000);
    settle(&server);
    let layout = Layout::new(&data, FLASH, MEMORY).expect("records fit");
    near("records of a full tier", layout.capacity(FLASH), server.tier(":records"), 0.05);
    let index: f64 = ["memory_tier_index", "memory_page_tables", "memory_segment_table"]
        .map(|name| server.tier(name))
        .iter()
        .sum();
    let measured = index / server.tier(":records");
    near("DRAM bytes of index per record", layout.index_bytes_per_record, measured, 0.08);
}

#[test]
fn hot_records_take_the_dram_that_was_planned() {
    if is_other_server("hot_records_take_the_dram_that_was_planned") {
        return;
    }
    let data = data(20.0, 80.0);
    let records = 200_000;
    let server = Measured::start(MEMORY, FLASH);
    fill(&server, &data, 0, records);
    settle(&server);
    let workload = Workload::Get(Popularity::Uniform);
    let report = run(&requests(&server, &data, workload, records, 600_000), None).expect("reads");
    assert_eq!((report.wrong, report.misses), (0, 0));
    let [hot, fresh] = ["records_read_cache", "records_write_buffer"].map(|name| server.tier(name));
    // The table is of both kinds; each has its share of it.
    let table = server.tier("memory_dram_index") * hot / (hot + fresh);
    let measured = (server.tier("memory_read_cache") + table) / hot;
    near("DRAM bytes of a hot record", data.dram_bytes(), measured, 0.15);

    let read_only = Load { per_second: 1000.0, get_share: 1.0, is_usual: true };
    let plan = plan(&Data { items: records as f64, ..data }, read_only, MEMORY, &|share| share);
    near(
        "DRAM bytes for hot records",
        plan.hot_bytes,
        server.tier("memory_read_cache") + table,
        0.1,
    );
}

#[test]
fn hits_and_reads_of_each_tier_are_as_planned() {
    if is_other_server("hits_and_reads_of_each_tier_are_as_planned") {
        return;
    }
    const LITTLE: f64 = 10.0 * 1024.0 * 1024.0;
    let (records, data) = (40_000, data(16.0, 800.0));
    let server = Measured::start(LITTLE, FLASH);
    fill(&server, &data, 0, records);
    settle(&server);
    let gets = |number| run(&requests(&server, &data, Workload::Get(etc()), records, number), None);
    gets(300_000).expect("a warm-up");
    let counts = || [":hits", ":reads"].map(|name| server.tier(name));
    let before = counts();
    let report = gets(100_000).expect("reads");
    let flash = counts()[0] - before[0];
    assert_eq!((report.wrong, report.misses), (0, 0));

    let model = |share| Model::ZipfMandelbrot { s: ETC.0, beta: ETC.1 }.hits(share, records as f64);
    let load = Load { per_second: report.requests_per_second, get_share: 1.0, is_usual: true };
    let plan = plan(&Data { items: records as f64, ..data }, load, LITTLE, &model);
    let dram = 1.0 - flash / report.hits as f64;
    println!("hits from DRAM: at best {:.3}, server {dram:.3}", plan.dram_hits);
    println!("hits from flash: at least {:.3}, server {:.3}", plan.flash_hits, 1.0 - dram);
    assert!((plan.dram_hits + plan.flash_hits - 1.0).abs() < 1e-9, "all of it fits");
    assert!(dram <= plan.dram_hits + 0.02, "better than is possible: {dram}");
    assert!(dram >= plan.dram_hits * 0.85, "far from what is possible: {dram}");

    // What the model takes for granted of the server: 1.01 reads per hit on flash, 0.002 per miss. Each
    // record once: two connections that want the same one read twice, and DRAM answers the second.
    let before = counts();
    let each = run(&requests(&server, &data, Workload::Verify, records, records), None);
    assert_eq!(each.expect("reads").misses, 0);
    let after = counts();
    let per_hit = (after[1] - before[1]) / (after[0] - before[0]);
    println!("reads per hit on flash: at most 1.01, server {per_hit:.4}");
    assert!(per_hit <= 1.01, "{per_hit}");
    let hit_rate = report.requests_per_second * (1.0 - dram);
    let planned = plan.drive_reads * (1.0 - dram) / plan.flash_hits;
    near("reads per second of the drive, for hits as they were", planned, hit_rate * per_hit, 0.02);
    let before = counts()[1];
    let mut others = requests(&server, &data, Workload::Verify, 100_000, 100_000);
    others.first = 10_000_000;
    let report = run(&others, None).expect("misses");
    assert_eq!(report.misses, 100_000);
    let per_miss = (counts()[1] - before) / 100_000.0;
    println!("reads per miss: at most 0.002, server {per_miss:.5}");
    assert!(per_miss <= 0.002, "{per_miss}");
}

#[test]
fn no_more_are_alive_than_a_time_to_live_lets() {
    if is_other_server("no_more_are_alive_than_a_time_to_live_lets") {
        return;
    }
    // Stored steadily with a time to live: those of its last seconds are there, and fit into DRAM.
    const RATE: f64 = 4000.0;
    let data = Data { ttl_seconds: Some(6.0), items: 50_000.0, ..data(20.0, 80.0) };
    let load = Load { per_second: RATE, get_share: 0.0, is_usual: true };
    let plan = plan(&data, load, MEMORY, &|share| share);
    assert!(plan.stay_in_dram.iter().any(|reason| reason.contains("nothing needs to leave DRAM")));
    let server = Measured::start(MEMORY, FLASH);
    let number = data.items as u64;
    let fill = requests(&server, &data, Workload::Fill, number, number);
    let fill = terrace_load::Plan { rate: Some(RATE), ..fill };
    let fill = run(&fill, None).expect("a fill");
    assert_eq!(fill.errors, 0);
    let read = requests(&server, &data, Workload::Verify, number, number);
    let since_stored = Instant::now();
    let alive = run(&read, None).expect("reads").hits as f64;
    // Whole seconds: a record lives up to one less. Meanwhile others die.
    let dead = RATE * (1.0 + since_stored.elapsed().as_secs_f64());
    println!("alive: model {:.0}, server {alive:.0} with {dead:.0} dead since", plan.live_items);
    // What was due while the machine stood still came late.
    let late = RATE * fill.latency.max_us / 1e6;
    assert!(alive <= plan.live_items * 1.1 + late, "{alive} live too long");
    assert!(alive + dead >= plan.live_items * 0.9, "{alive} live too short");
    assert_eq!(server.tier("evictions"), 0.0);
    assert_eq!(server.tier("memory_read_cache"), 0.0, "nothing had to come back");
}

#[test]
fn the_least_memory_holds_the_records_and_half_of_it_does_not() {
    if is_other_server("the_least_memory_holds_the_records_and_half_of_it_does_not") {
        return;
    }
    let data = data(20.0, 80.0);
    let room = Layout::new(&data, FLASH, MEMORY).expect("records fit").capacity(FLASH);
    let records = (room * 0.78) as u64;
    let load = Load { per_second: 1000.0, get_share: 1.0, is_usual: true };
    let plan = plan(&Data { items: records as f64, ..data }, load, MEMORY, &|share| share);
    let least = (plan.least_memory_bytes / MIB).ceil() * MIB;
    assert!(least < MEMORY / 2.0, "{least} is that of the memory that was given");
    let lost = |memory: f64| {
        let server = Measured::start(memory, FLASH);
        fill(&server, &data, 0, records);
        settle(&server);
        let read = run(&requests(&server, &data, Workload::Verify, records, records), None);
        let report = read.expect("reads");
        assert_eq!(report.wrong, 0);
        (report.misses, server.tier("evictions"))
    };
    let (enough, half) = (lost(least), lost((least / 2.0 / MIB).floor() * MIB));
    println!("least memory {:.1} MiB: lost {enough:?}, with half of it {half:?}", least / MIB);
    assert_eq!(enough, (0, 0.0));
    assert!(half.0 > records / 100, "it was not the least: {half:?}");
}

#[test]
fn a_request_takes_no_more_of_a_processor_than_planned() {
    const NAME: &str = "a_request_takes_no_more_of_a_processor_than_planned";
    const ROUNDS: u64 = 5;
    if is_other_server(NAME) {
        return;
    }
    if cfg!(debug_assertions) {
        return skip(NAME, "a debug build says nothing of it");
    }
    let data = data(20.0, 80.0);
    // Few enough for all to come into DRAM within the warm-up; and of many next to none.
    for (what, records, memory, flash_bytes) in
        [("DRAM", 20_000, MEMORY * 4.0, FLASH), ("flash", 1_500_000, MEMORY, FLASH * 4.0)]
    {
        // One worker with some connections, as one that is used: four, each with one client, would mostly
        // pay for going to sleep and being woken.
        let server = Measured::start_with("-t 1", memory, flash_bytes);
        fill(&server, &data, 0, records);
        settle(&server);
        let mut gets =
            requests(&server, &data, Workload::Get(Popularity::Uniform), records, 400_000);
        (gets.connections, gets.depth) = (8, 32);
        run(&gets, None).expect("a warm-up");
        gets.depth = 1;
        gets.end = End::Time(Duration::from_secs(3));
        let from_flash = || server.tier("tier:0:hits");
        let all = || server.general("get_hits");
        let before = (from_flash(), all());
        // The least disturbed round counts; on a machine that does other things none is. Other records each
        // time: those of the round before may have come into DRAM.
        let seeds = 10..10 + ROUNDS;
        let costs = seeds.map(|seed| server.cost(&Requests { seed, ..gets.clone() }));
        let used = costs.fold(f64::INFINITY, f64::min);
        let flash = (from_flash() - before.0) / (all() - before.1);
        let load = Load { per_second: 1.0, get_share: 1.0, is_usual: true };
        let data = Data { items: records as f64, ..data };
        let plan = plan_on(flash_bytes, &data, load, memory, &|share| share);
        println!(
            "processor per request from {what}: model {:.2} us with {:.2} from flash, server {used:.2} us \
             with {flash:.2}",
            plan.cpu_us, plan.flash_hits
        );
        assert!((flash - plan.flash_hits).abs() < 0.1, "{what}: {flash} from flash");
        assert!(what == "DRAM" || flash > 0.9, "{flash}");
        assert!(used <= plan.cpu_us * 1.1, "{what}: {used} us");
    }
}
