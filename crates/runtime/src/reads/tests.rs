use super::*;
use std::os::fd::AsFd;
use std::sync::Mutex;
use terrace_device::FileDevice;

/// The depths that it heard of, with their tiers.
#[derive(Default)]
struct Depths(Mutex<Vec<(usize, u32)>>);

impl Meter for &Depths {
    fn note_read(&self, _: usize, _: Duration) {}
    fn note_depth(&self, tier: usize, depth: u32) {
        self.0.lock().unwrap().push((tier, depth));
    }
}

/// A queue that the system refuses when it is first used.
struct Refused {
    reads: usize,
    null: std::fs::File,
}

impl ReadQueue for Refused {
    fn submit(&mut self, _: Read) {
        self.reads += 1;
    }
    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
    fn reap(&mut self, _: &mut Vec<Done>) {}
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }
    fn clear_event(&mut self) {}
    fn in_flight(&self) -> usize {
        self.reads
    }
}

#[test]
fn another_queue_takes_over_what_one_does_not_bring_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tier");
    std::fs::write(&path, [7; 64 << 10]).unwrap();
    let device: Arc<dyn Drive> = Arc::new(FileDevice::open(&path, None).unwrap());
    let null = std::fs::File::open("/dev/null").unwrap();
    let refused = Box::new(Refused { reads: 0, null });
    let mut reads = Reads::new(refused, (), 1 << 20, std::iter::once(None));
    reads.give_up_late(1000);
    for at in 0..3 {
        let plan = ReadPlan { tier: 0, offset: at * 4096, bytes: 4096 };
        reads.submit(plan, at);
    }
    assert!(reads.flush(false, |_| false).is_err());
    assert!(reads.flush(false, |_| false).is_err(), "told again until something is done about it");
    reads.move_to(Box::new(WorkerQueue::open(&[device], Engine::Pool, 8).unwrap()));
    reads.give_up_late(1001);
    reads.flush(false, |_| false).unwrap();
    let mut finished = VecDeque::new();
    let end = Instant::now() + std::time::Duration::from_secs(60);
    while finished.len() < 3 && Instant::now() < end {
        reads.reap(&mut finished);
    }
    assert!(!reads.is_busy());
    let mut seen: Vec<_> = finished
        .drain(..)
        .map(|read| {
            read.result.unwrap();
            assert_eq!(read.buffer[..], [7; 4096]);
            reads.release(read.buffer);
            read.token
        })
        .collect();
    seen.sort_unstable();
    assert_eq!((seen, reads.buffer_bytes), (vec![0, 1, 2], 0));
}

/// Brings what it is told to, and nothing else.
#[derive(Clone)]
struct Hanging {
    held: Arc<Mutex<Vec<Read>>>,
    brought: Arc<Mutex<Vec<Done>>>,
    null: Arc<std::fs::File>,
}

impl Hanging {
    /// Brings the first that it still holds.
    fn bring(&self) {
        let Read { buf, token, .. } = self.held.lock().unwrap().remove(0);
        self.brought.lock().unwrap().push(Done { token, buf, result: Ok(()) });
    }
}

/// Reads of a drive that hangs, with such a depth.
fn of_hanging(depth: Option<Depth>) -> (Reads<usize, ()>, Hanging) {
    let null = Arc::new(std::fs::File::open("/dev/null").unwrap());
    let hanging = Hanging { held: Arc::default(), brought: Arc::default(), null };
    let queue = Box::new(hanging.clone());
    (Reads::new(queue, (), 1 << 20, std::iter::once(depth)), hanging)
}

impl ReadQueue for Hanging {
    fn submit(&mut self, read: Read) {
        self.held.lock().unwrap().push(read);
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn has_news(&mut self) -> bool {
        !self.brought.lock().unwrap().is_empty()
    }
    fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.brought.lock().unwrap());
    }
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }
    fn clear_event(&mut self) {}
    fn in_flight(&self) -> usize {
        self.held.lock().unwrap().len()
    }
}

#[test]
fn read_that_waits_for_room_is_given_up_after_the_deadline() {
    let (mut reads, hanging) = of_hanging(None);
    let plan = ReadPlan { tier: 0, offset: 0, bytes: 4096 };
    reads.give_up_late(1000);
    let all = DEPTH as usize + 2;
    (0..all).for_each(|at| reads.submit(plan, at));
    reads.flush(false, |_| false).unwrap();
    assert_eq!(hanging.held.lock().unwrap().len(), all - 2, "two wait for room");
    let mut finished = VecDeque::new();
    reads.give_up_late(1001);
    reads.give_up_late(1003);
    reads.reap(&mut finished);
    assert!(finished.is_empty());
    reads.give_up_late(1004);
    reads.reap(&mut finished);
    let seen: Vec<_> = finished
        .drain(..)
        .map(|Finished { token, buffer, result }| {
            assert_eq!((result.unwrap_err().kind(), buffer.len()), (io::ErrorKind::TimedOut, 4096));
            reads.release(buffer);
            token
        })
        .collect();
    assert_eq!(seen, [all - 2, all - 1]);
    assert_eq!((reads.is_busy(), reads.has_waiting()), (true, false));
}

#[test]
fn a_drive_that_has_brought_some_gets_others_before_those_are_reaped() {
    let (mut reads, hanging) = of_hanging(Some(Depth::new(32, DEPTH)));
    let plan = ReadPlan { tier: 0, offset: 0, bytes: 4096 };
    (0..40).for_each(|at| reads.submit(plan, at));
    let in_flight = |reads: &mut Reads<usize, ()>, is_ahead: bool| {
        reads.flush(is_ahead, |_| false).unwrap();
        reads.tiers[0].in_flight
    };
    assert_eq!((reads.has_news(), in_flight(&mut reads, false)), (false, 32));
    hanging.bring();
    assert_eq!((reads.has_news(), in_flight(&mut reads, true)), (true, 34));
    let mut finished = VecDeque::new();
    reads.reap(&mut finished);
    assert_eq!((finished.len(), reads.has_news(), in_flight(&mut reads, false)), (1, false, 33));
}

#[test]
fn a_measured_drive_gets_no_more_reads_than_help_and_starves_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| -> Arc<dyn Drive> {
        let path = dir.path().join(name);
        std::fs::write(&path, [7; 64 << 10]).unwrap();
        Arc::new(FileDevice::open(&path, None).unwrap())
    };
    let devices = [open("a"), open("b")];
    let queue = Box::new(WorkerQueue::open(&devices, Engine::Pool, 8).unwrap());
    let depths = [Some(Depth::new(2, 128)), None].into_iter();
    let depths_now = Depths::default();
    let mut reads = Reads::new(queue, &depths_now, 1 << 20, depths);
    assert_eq!(*depths_now.0.lock().unwrap(), [(0, 2), (1, DEPTH)]);
    let of_the_other = 2 * DEPTH as usize;
    for at in 0..10 + of_the_other {
        let tier = usize::from(at >= 10);
        let plan = ReadPlan { tier, offset: 0, bytes: 4096 };
        reads.submit(plan, tier);
    }
    let mut seen = [0, 0];
    let mut finished = VecDeque::new();
    let end = Instant::now() + std::time::Duration::from_secs(60);
    while reads.is_busy() && Instant::now() < end {
        reads.flush(false, |_| false).unwrap();
        assert!(reads.tiers[0].in_flight <= 2, "{}", reads.tiers[0].in_flight);
        // Nor does one that was not measured take buffers for more than it can be given.
        assert!(reads.buffer_bytes <= (2 + DEPTH as usize) * 4096, "{}", reads.buffer_bytes);
        reads.reap(&mut finished);
        for read in finished.drain(..) {
            read.result.unwrap();
            reads.release(read.buffer);
            seen[read.token] += 1;
        }
    }
    assert_eq!((seen, reads.tiers[0].in_flight, reads.buffer_bytes), ([10, of_the_other], 0, 0));
}
