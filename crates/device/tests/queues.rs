//! Both engines on a real file: every read brings what was written, and epoll never sleeps through a
//! completion.

use rustix::event::epoll;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{AlignedBuf, Device, Engine, FileDevice, OpenError, Read, open_queue};

const PAGES: u64 = 4096;

struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("terrace-{}-{name}", std::process::id()));
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn filled(scratch: &Scratch) -> Arc<dyn Device> {
    let device = FileDevice::open(&scratch.0, Some(PAGES * 4096)).unwrap();
    let mut buf = AlignedBuf::zeroed(4096);
    for page in 0..PAGES {
        buf[..8].copy_from_slice(&page.to_le_bytes());
        buf[4088..].copy_from_slice(&page.to_le_bytes());
        device.write_at(page * 4096, &buf).unwrap();
    }
    Arc::new(device)
}

fn storm(engine: Engine) {
    let scratch = Scratch::new(&format!("storm-{engine}"));
    let device = filled(&scratch);
    let mut queue = match open_queue(&[device], engine, 32) {
        Ok(opened) => opened.queue,
        Err(error) => return println!("skipped: no {engine} here ({error})"),
    };
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&set, queue.event_fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
        .unwrap();
    let (mut started, mut finished, mut seed) = (0u64, 0u64, 1u64);
    let (mut done, mut wakes) = (Vec::new(), 0u64);
    let (reads, begin) = (50_000, Instant::now());
    while finished < reads {
        // Sometimes more than the depth, sometimes few.
        let wanted = if started % 3 == 0 { 100 } else { 5 };
        while queue.in_flight() < wanted && started < reads {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let page = (seed >> 33) % PAGES;
            let buf = AlignedBuf::zeroed(4096);
            queue.submit(Read { device: 0, offset: page * 4096, buf, token: page });
            started += 1;
        }
        queue.flush().unwrap();
        let mut events = Vec::with_capacity(1);
        let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).unwrap();
        assert!(!events.is_empty(), "slept through {} completions", queue.in_flight());
        wakes += 1;
        queue.clear_event();
        queue.reap(&mut done);
        for done in done.drain(..) {
            done.result.unwrap();
            assert_eq!(done.buf[..8], done.token.to_le_bytes());
            assert_eq!(done.buf[4088..], done.token.to_le_bytes());
            finished += 1;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{engine}: {:.0} reads/s, {wakes} wakes", reads as f64 / seconds);
    assert_eq!(queue.in_flight(), 0);
    let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    queue.reap(&mut done);
    epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap();
    assert!(events.len() <= 1 && wakes <= reads * 2, "spins");
    drop((set.as_fd(), events));
}

#[test]
fn io_uring_storm() {
    storm(Engine::IoUring);
}

#[test]
fn pool_storm() {
    storm(Engine::Pool);
}

#[test]
fn reads_past_the_end_fail_and_the_queue_goes_on() {
    for engine in [Engine::Auto, Engine::Pool] {
        let scratch = Scratch::new(&format!("end-{engine}"));
        let mut queue = open_queue(&[filled(&scratch)], engine, 4).unwrap().queue;
        for (token, device, offset) in [(1, 0, PAGES * 4096), (2, 7, 0), (3, 0, 0)] {
            queue.submit(Read { device, offset, buf: AlignedBuf::zeroed(4096), token });
        }
        let (mut done, until) = (Vec::new(), Instant::now() + Duration::from_secs(5));
        while done.len() < 3 && Instant::now() < until {
            queue.flush().unwrap();
            queue.reap(&mut done);
        }
        done.sort_by_key(|done| done.token);
        let ok: Vec<_> = done.iter().map(|done| (done.token, done.result.is_ok())).collect();
        assert_eq!(ok, [(1, false), (2, false), (3, true)]);
    }
}

#[test]
fn a_queue_dropped_with_reads_in_flight_waits_for_them() {
    let scratch = Scratch::new("drop");
    let device = filled(&scratch);
    for engine in [Engine::Auto, Engine::Pool] {
        for _ in 0..50 {
            let mut queue = open_queue(&[Arc::clone(&device)], engine, 8).unwrap().queue;
            for page in 0..30 {
                let buf = AlignedBuf::zeroed(4096);
                queue.submit(Read { device: 0, offset: page * 4096, buf, token: page });
            }
            queue.flush().unwrap();
        }
    }
}

#[test]
fn what_can_not_be_a_tier_is_refused_with_advice() {
    let directory = std::env::temp_dir();
    let refused = |path: &std::path::Path, bytes| FileDevice::open(path, bytes).err().unwrap();
    assert!(matches!(refused(&directory, Some(1 << 20)), OpenError::IsDirectory(_)));
    assert!(matches!(refused("/dev/null".as_ref(), Some(1 << 20)), OpenError::NotStorage(_)));
    let nowhere = directory.join("terrace-no-such-folder/tier");
    assert!(matches!(refused(&nowhere, Some(1 << 20)), OpenError::NoParent(_)));
    let scratch = Scratch::new("refused");
    assert!(matches!(refused(&scratch.0, Some(100)), OpenError::Empty { .. }));
    assert!(matches!(refused(&scratch.0, None), OpenError::NoSize(_)));
    let asked = 1 << 50;
    assert!(matches!(refused(&scratch.0, Some(asked)), OpenError::Full { .. }));
    let first = FileDevice::open(&scratch.0, Some(1 << 20)).unwrap();
    assert!(matches!(refused(&scratch.0, Some(1 << 20)), OpenError::InUse(_)));
    drop(first);
    let larger = FileDevice::open(&scratch.0, Some(2 << 20)).unwrap();
    assert_eq!(larger.geometry().bytes, 2 << 20);
    drop(larger);
    let part = FileDevice::open(&scratch.0, Some(1 << 20)).unwrap();
    assert_eq!(part.geometry().bytes, 1 << 20);
    assert_eq!(std::fs::metadata(&scratch.0).unwrap().len(), 2 << 20, "never truncated");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&scratch.0).unwrap().permissions().mode() & 0o777, 0o600);
}
