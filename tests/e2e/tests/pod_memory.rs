//! The server in a memory cgroup that allows less than it would take: what a chart gives it, 1.2 times `-m`.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use terrace_e2e::{Container, CutOff, Limits, is_terrace, skip};

const MIB: u64 = 1 << 20;
const CLIENTS: usize = 24;
/// Batches of each client, values of a batch, how often each is asked for at once, bytes of a value.
const BATCHES: usize = 4;
const BATCH: usize = 2;
const ASKED: usize = 8;
const BYTES: usize = 1_500_000;

/// A value that says which key and batch it belongs to.
fn value_of(key: &str, batch: usize) -> Vec<u8> {
    let stamp = format!("{key}#{batch};");
    let mut value = stamp.repeat(BYTES / stamp.len() + 1).into_bytes();
    value.truncate(BYTES);
    value
}

/// What came back, and how often a connection ended within a value: that is how a client learns that a value of more
/// than 1 MiB was evicted while it was sent.
#[derive(Default)]
struct Counts {
    found: usize,
    cut_off: usize,
}

/// Sets a batch in one go, then asks for all of it many times before it reads anything, over and over.
fn load(container: &Mutex<Container>, at: usize) -> Counts {
    let connect = || container.lock().expect("no other thread failed").client();
    let (mut client, mut counts) = (connect(), Counts::default());
    for batch in 0..BATCHES {
        let keys: Vec<_> = (0..BATCH).map(|i| format!("{at}-{i}")).collect();
        keys.iter().for_each(|key| client.send_set(key, &value_of(key, batch)));
        keys.iter().for_each(|_| client.expect("STORED\r\n"));
        let asked = keys.iter().cycle().take(BATCH * ASKED);
        client.send(asked.clone().map(|key| format!("get {key}\r\n")).collect::<String>());
        thread::sleep(Duration::from_millis(300));
        for key in asked {
            match client.try_read_get(key) {
                Ok(Some(value)) => {
                    assert!(value == value_of(key, batch), "{key} is another's, old or torn");
                    counts.found += 1;
                }
                Ok(None) => {}
                Err(CutOff) => {
                    counts.cut_off += 1;
                    client = connect();
                    break;
                }
            }
        }
    }
    counts
}

#[test]
fn batches_of_large_values_stay_within_the_memory_of_a_pod() {
    let test = "batches_of_large_values_stay_within_the_memory_of_a_pod";
    if !is_terrace() {
        return skip(test, "memcached has no limit of its own");
    }
    if let Err(why) = Container::can_run() {
        return skip(test, &why);
    }
    for (memory, limit, tier) in
        [(128, 154, false), (512, 614, false), (128, 154, true), (512, 614, true)]
    {
        let size = memory.to_string();
        let mut arguments = vec!["-m", &size, "-I", "2m"];
        if tier {
            arguments.extend(["--tier", "ssd:/data/tier:2g", "--state", "/dev/shm"]);
        }
        let start = Instant::now();
        let limits = Limits { memory: Some(limit), shm: 1024 };
        let mut container = Container::start(&arguments, limits);
        let mut client = container.client();
        for at in 0..memory * MIB / BYTES as u64 {
            assert!(client.set(&format!("fill{at}"), &value_of("fill", 0)));
        }
        let container = Mutex::new(container);
        let counts: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|at| {
                    scope.spawn({
                        let c = &container;
                        move || load(c, at)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("all values right")).collect()
        });
        let mut container = container.into_inner().expect("no thread failed");
        let found: usize = counts.iter().map(|counts| counts.found).sum();
        let cut_off: usize = counts.iter().map(|counts| counts.cut_off).sum();
        container.assert_running();
        let output = container.output();
        let says = format!("WARN the memory cgroup allows {limit} MiB: ");
        assert_eq!(output.matches(&says).count(), 1, "{output}");
        let mut client = container.client();
        assert_eq!(client.stat("", "limit_maxbytes"), memory * MIB);
        let peak = container.memory_peak().unwrap_or_default() / MIB;
        let took = start.elapsed().as_secs_f32();
        eprintln!(
            "-m {memory} in {limit} MiB, tier {tier}: at most {peak} MiB, {found} values, {cut_off} cut off, {took:.1} s"
        );
        let all = CLIENTS * BATCHES * BATCH * ASKED;
        assert!(found > all / 3, "{found} of {all} values");
    }
}
