//! A drive that goes wrong under a running server: what it held is missed, never wrong, and the
//! server stays up.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use terrace_e2e::{
    Client, LoopDevice, Server, TIER_BYTES, count_right, fill, flash_server, is_terrace,
    push_to_flash, run_as_root, skip, tier_stat, value_of, wait_until,
};

const RECORDS: usize = 20_000;
const BYTES: usize = 500;

/// A server whose records `r0` to `r19999` lie on the drive.
fn server_with_records(test: &str, flags: &str) -> Option<(Server, Client)> {
    if !is_terrace() {
        skip(test, "memcached evicts small records rather than write them out");
        return None;
    }
    let server = flash_server(flags);
    let mut client = server.client();
    fill(&mut client, "r", RECORDS, BYTES);
    push_to_flash(&mut client);
    Some((server, client))
}

/// Reads every record: each is right or missed. Gives back how many are there.
fn present(client: &mut Client) -> usize {
    count_right(client, "r", RECORDS, BYTES)
}

fn works(client: &mut Client) {
    for at in 0..100 {
        let key = format!("after{at}");
        assert!(client.set(&key, b"new"), "{key}");
        assert_eq!(client.get(&key).as_deref(), Some(&b"new"[..]));
    }
}

fn tier_file(server: &Server) -> std::fs::File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(server.dir.path().join("tier"))
        .expect("the file")
}

/// Flips one bit in one of `of` pages of the server's drive.
fn flip_bits(server: &Server, of: usize) {
    let file = tier_file(server);
    let mut byte = [0];
    for page in (2..TIER_BYTES / 4096).step_by(of) {
        let offset = page * 4096 + (page * 977) % 4096;
        file.read_exact_at(&mut byte, offset).expect("the drive");
        byte[0] ^= 1 << (page % 8);
        file.write_all_at(&byte, offset).expect("the drive");
    }
    file.sync_all().expect("the drive");
}

#[test]
fn single_flipped_bits_are_counted_misses() {
    for engine in ["pool", "auto"] {
        let flags = format!("--io-engine {engine}");
        let Some((mut server, mut client)) =
            server_with_records("single_flipped_bits_are_counted_misses", &flags)
        else {
            return;
        };
        assert_eq!(present(&mut client), RECORDS);
        flip_bits(&server, 2);
        let hits = present(&mut client);
        assert!(hits < RECORDS, "no record was hit by the flips");
        assert!(hits > RECORDS / 5, "only {hits} of {RECORDS} are left after half the pages");
        assert!(tier_stat(&mut client, "corrupt_pages") > 0, "nothing was counted");
        works(&mut client);
        server.assert_alive();
    }
}

#[test]
fn a_miss_counts_as_lost_where_a_page_could_not_be_read() {
    let test = "a_miss_counts_as_lost_where_a_page_could_not_be_read";
    let Some((mut server, mut client)) = server_with_records(test, "") else { return };
    let lost = |client: &mut Client| client.stat("", "miss_from_extstore");
    // Enough for segments of their own, none of which expires as a whole within the test.
    let value = "x".repeat(BYTES);
    for at in 0..RECORDS / 2 {
        let (name, expiry) = [("short", 8), ("long", 15)][at % 2];
        client.send(format!("set {name}{at} 0 {expiry} {BYTES} noreply\r\n{value}\r\n"));
    }
    let stored = Instant::now();
    push_to_flash(&mut client);
    std::thread::sleep(Duration::from_secs(9).saturating_sub(stored.elapsed()));
    // Where all this took so long that no drive has them any more, they are misses like any other.
    for at in (0..200).step_by(2) {
        assert_eq!(client.get(&format!("short{at}")), None, "short{at}");
        assert_eq!(client.ask(&format!("mg short{at} v")), "EN");
    }
    assert_eq!(lost(&mut client), 0, "a healthy drive");
    flip_bits(&server, 2);
    let misses = (RECORDS - present(&mut client)) as u64;
    assert!((1..=misses).contains(&lost(&mut client)), "{} of {misses}", lost(&mut client));
    server.assert_alive();
}

#[test]
fn large_values_that_lost_a_part_are_misses_and_the_connection_stays() {
    const VALUES: usize = 60;
    if !is_terrace() {
        return skip(
            "large_values_that_lost_a_part_are_misses_and_the_connection_stays",
            "it is about tiers",
        );
    }
    let mut server = flash_server("");
    let mut client = server.client();
    for (prefix, bytes) in [("k", 200_000), ("m", 1_000_000)] {
        fill(&mut client, prefix, VALUES, bytes);
    }
    push_to_flash(&mut client);
    flip_bits(&server, 10);
    let mut missed = 0;
    for (prefix, bytes) in [("k", 200_000), ("m", 1_000_000)] {
        for at in 0..VALUES {
            let key = format!("{prefix}{at}");
            let got = client.get(&key);
            missed += usize::from(got.is_none());
            assert!(got.is_none_or(|value| value == value_of(&key, 0, bytes)), "{key}");
        }
    }
    assert!(missed > VALUES, "only {missed} of {} are missed", 2 * VALUES);
    works(&mut client);
    server.assert_alive();
}

#[test]
fn garbage_on_the_drive_is_missed() {
    let Some((mut server, mut client)) = server_with_records("garbage_on_the_drive_is_missed", "")
    else {
        return;
    };
    // All but the beginning, while requests run.
    let garbage: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = tier_file(&server);
    for offset in ((1 << 20)..TIER_BYTES - (1 << 20)).step_by(1 << 20) {
        file.write_all_at(&garbage, offset).unwrap();
        let key = format!("r{}", offset >> 20);
        let got = client.get(&key);
        assert!(got.is_none_or(|value| value == value_of(&key, 0, BYTES)), "{key}");
    }
    file.sync_all().unwrap();
    let hits = present(&mut client);
    assert!(hits < RECORDS / 2, "{hits} hits on a drive of garbage");
    // New records take the place of the garbage.
    push_to_flash(&mut client);
    works(&mut client);
    for at in 0..1000 {
        let key = format!("filler{at}");
        assert!(client.get(&key).is_none_or(|value| value == value_of(&key, 0, 1000)), "{key}");
    }
    server.assert_alive();
}

#[test]
fn reads_that_fail_are_misses_within_a_bounded_time() {
    for engine in ["pool", "auto"] {
        let flags = format!("--io-engine {engine}");
        let Some((mut server, mut client)) =
            server_with_records("reads_that_fail_are_misses_within_a_bounded_time", &flags)
        else {
            return;
        };
        // Reads beyond the end of a file come back short. Cut off before every few reads, because
        // what the server writes meanwhile makes the file longer again.
        let file = tier_file(&server);
        let start = Instant::now();
        let mut hits = 0;
        for at in 0..RECORDS {
            if at % 50 == 0 {
                file.set_len(1 << 20).expect("a shorter file");
            }
            let key = format!("r{at}");
            if let Some(value) = client.get(&key) {
                assert!(value == value_of(&key, 0, BYTES), "{key} has a wrong value");
                hits += 1;
            }
        }
        // 15 milliseconds for each: none was tried again for long, on however slow a machine.
        assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
        assert!(hits < RECORDS / 2, "{hits} hits without a drive");
        let errors = tier_stat(&mut client, "read_errors");
        assert!(errors > 0, "no read error was counted: {:?}", client.stats("tiers"));
        works(&mut client);
        server.assert_alive();
    }
}

#[test]
fn writes_that_fail_lose_records_at_most() {
    for engine in ["pool", "auto"] {
        let flags = format!("--io-engine {engine}");
        let Some((mut server, mut client)) =
            server_with_records("writes_that_fail_lose_records_at_most", &flags)
        else {
            return;
        };
        // From now on the kernel refuses every write behind the first mebibyte.
        let limited = std::process::Command::new("prlimit")
            .args([&format!("--pid={}", server.pid()), "--fsize=1048576"])
            .status();
        if !limited.is_ok_and(|status| status.success()) {
            skip("writes_that_fail_lose_records_at_most", "prlimit does not work here");
            return;
        }
        // Three times the DRAM: these must go somewhere, and can't.
        for at in 0..200_000 {
            let key = format!("more{at}");
            client.send_set(&key, &value_of(&key, 0, 1000));
            if at % 64 == 63 {
                for _ in 0..64 {
                    let line = client.line();
                    assert!(line == "STORED" || line.starts_with("SERVER_ERROR"), "{line}");
                }
            }
        }
        assert!(tier_stat(&mut client, "write_errors") > 0, "no write error was counted");
        assert!(tier_stat(&mut client, "errors_no_space") > 0, "its class was not counted");
        server.output_with("no space: writing failed, the tier is given up: File too large");
        present(&mut client);
        count_right(&mut client, "more", 200_000, 1000);
        works(&mut client);
        server.assert_alive();
    }
}

const ERRORS_LINE: &str = "serving continues, the records concerned are misses";

/// The counts of this kind of error in all lines of the log.
fn logged(output: &str, what: &str) -> u64 {
    let lines = output.lines().filter(|line| line.contains(ERRORS_LINE));
    let count = |line: &str| {
        let (_, rest) = line.split_once(&format!("{what}: "))?;
        rest.split([',', ';', ' ']).next()?.parse::<u64>().ok()
    };
    lines.filter_map(count).sum()
}

#[test]
fn corrupt_pages_are_logged_once_a_minute() {
    let test = "corrupt_pages_are_logged_once_a_minute";
    let Some((mut server, mut client)) = server_with_records(test, "") else { return };
    assert!(!server.output().contains(ERRORS_LINE), "{}", server.output());
    flip_bits(&server, 2);
    let start = Instant::now();
    present(&mut client);
    let output = server.output_with(ERRORS_LINE);
    let counted = tier_stat(&mut client, "corrupt_pages");
    assert!((1..=counted).contains(&logged(&output, "corrupt pages")), "{counted}: {output}");
    // More of them are told with the next line.
    push_to_flash(&mut client);
    flip_bits(&server, 1);
    present(&mut client);
    std::thread::sleep(Duration::from_secs(1));
    let lines = server.output().matches(ERRORS_LINE).count();
    assert!(
        lines == 1 || start.elapsed() > Duration::from_secs(59),
        "{lines}: {}",
        server.output()
    );
    server.assert_alive();
}

/// A server with a block device of its own; `None` if this machine has none, and `test` is skipped.
fn on_loop_device(test: &str) -> Option<(LoopDevice, Server)> {
    if !is_terrace() || !run_as_root() {
        skip(test, "it is about tiers, and needs root");
        return None;
    }
    match LoopDevice::new(env!("CARGO_TARGET_TMPDIR").as_ref(), TIER_BYTES) {
        Ok(device) => {
            let flags = format!("-m 64 --tier ssd:{}", device.path().display());
            Some((device, Server::start(&flags)))
        }
        Err(why) => {
            skip(test, &why);
            None
        }
    }
}

#[test]
fn errors_of_a_block_device_are_logged() {
    let test = "errors_of_a_block_device_are_logged";
    let Some((device, mut server)) = on_loop_device(test) else { return };
    let mut client = server.client();
    fill(&mut client, "r", RECORDS, BYTES);
    push_to_flash(&mut client);
    // A write behind the end would make the file long again, with zeros in place of what is cut off.
    let mut written = 0;
    wait_until("the last write", || {
        let before = std::mem::replace(&mut written, tier_stat(&mut client, "written_bytes"));
        std::thread::sleep(Duration::from_secs(1));
        (written == before).then_some(())
    });
    // Reads of what is cut off are errors of the device.
    device.file().set_len(1 << 20).expect("a shorter file");
    assert!(present(&mut client) < RECORDS, "nothing was read from the device");
    let output = server.output_with(ERRORS_LINE);
    let counted = tier_stat(&mut client, "read_errors");
    assert!((1..=counted).contains(&logged(&output, "failed reads")), "{counted}: {output}");
    assert!(
        output.contains(&format!("tier {}: failed reads", device.path().display())),
        "{output}"
    );
    assert!(tier_stat(&mut client, "errors_medium_error") > 0, "its class was not counted");
    assert!(output.contains("(medium error: "), "{output}");
    works(&mut client);
    server.assert_alive();
}

#[test]
fn block_device_made_read_only_is_told_as_such() {
    let test = "block_device_made_read_only_is_told_as_such";
    let Some((device, mut server)) = on_loop_device(test) else { return };
    let mut client = server.client();
    let set_read_only = |flag| {
        let status = std::process::Command::new("blockdev").arg(flag).arg(device.path()).status();
        status.is_ok_and(|status| status.success())
    };
    if !set_read_only("--setro") {
        return skip(test, "blockdev does not work here");
    }
    for at in 0..200_000 {
        let key = format!("more{at}");
        client.send_set(&key, &value_of(&key, 0, 1000));
        if at % 64 == 63 {
            (0..64).for_each(|_| drop(client.line()));
        }
    }
    if tier_stat(&mut client, "write_errors") == 0 {
        return skip(test, "this kernel lets writes to a read-only device through");
    }
    assert!(tier_stat(&mut client, "errors_read_only") > 0, "its class was not counted");
    server.output_with("read-only: Operation not permitted");
    set_read_only("--setrw");
    works(&mut client);
    server.assert_alive();
}
