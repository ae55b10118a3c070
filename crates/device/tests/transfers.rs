//! A device that answers nothing holds its caller up only for so long, and is left alone until it answers.

mod common;

use common::{Scratch, is_stamped, stamped};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use terrace_device::sim::{Operation, SimDevice};
use terrace_device::{AlignedBuf, DeadlineDrive, Drive, Engine, Part, is_unanswered};

const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_millis(50);
/// Transfers at once.
const THREADS: usize = 2;

/// Holds up transfers that come while it is shut.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn shut(&self) {
        *self.is_shut.lock().expect("no panic") = true;
    }

    fn open(&self) {
        *self.is_shut.lock().expect("no panic") = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_shut = self.is_shut.lock().expect("no panic");
        drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).expect("no panic"));
    }
}

/// A drive behind a gate, and the device that is timed over it.
fn timed() -> (Arc<SimDevice>, Arc<Gate>, DeadlineDrive) {
    let (drive, gate) = (Arc::new(SimDevice::new(1 << 20, 7)), Arc::new(Gate::default()));
    let hook = Arc::clone(&gate);
    drive.before_each(move |_| hook.pass());
    let device =
        DeadlineDrive::new(Arc::clone(&drive) as Arc<dyn Drive>, PATIENCE, THREADS, Engine::Auto)
            .expect("a thread");
    device.begin_timing();
    (drive, gate, device)
}

fn block(byte: u8) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block.fill(byte);
    block
}

fn until_it_answers(device: &DeadlineDrive) {
    let end = Instant::now() + Duration::from_secs(10);
    while !device.unresponsive_for().is_zero() {
        assert!(Instant::now() < end, "still silent");
        thread::yield_now();
    }
}

#[test]
fn what_is_answered_is_as_without_it() {
    let (_, _, device) = timed();
    device.write_at(BLOCK as u64, &block(3)).unwrap();
    device.flush().unwrap();
    let mut read = AlignedBuf::zeroed(2 * BLOCK);
    device.read_at(0, &mut read).unwrap();
    assert!(read[..BLOCK].iter().all(|byte| *byte == 0));
    assert!(read[BLOCK..].iter().all(|byte| *byte == 3));
    let error = device.read_at(1 << 20, &mut read).unwrap_err();
    assert!(!is_unanswered(&error) && device.unresponsive_for().is_zero(), "{error}");
}

#[test]
fn a_late_write_comes_before_all_that_is_asked_later() {
    let (drive, gate, device) = timed();
    device.write_at(0, &block(1)).unwrap();
    gate.shut();
    assert!(is_unanswered(&device.write_at(0, &block(2)).unwrap_err()));
    assert!(device.unresponsive_for() >= PATIENCE);
    // All else fails at once, and never reaches the drive.
    let asked = drive.counts();
    let start = Instant::now();
    let mut read = AlignedBuf::zeroed(BLOCK);
    for _ in 0..10 {
        assert!(is_unanswered(&device.write_at(0, &block(3)).unwrap_err()));
        assert!(is_unanswered(&device.read_at(0, &mut read).unwrap_err()));
        assert!(is_unanswered(&device.flush().unwrap_err()));
    }
    assert!(start.elapsed() < 10 * PATIENCE, "{:?}", start.elapsed());
    assert_eq!(drive.counts(), asked);
    gate.open();
    until_it_answers(&device);
    device.read_at(0, &mut read).unwrap();
    assert_eq!(read[0], 2, "the late write was made");
    device.write_at(0, &block(4)).unwrap();
    device.read_at(0, &mut read).unwrap();
    assert_eq!((read[0], drive.counts().writes), (4, 3));
}

#[test]
fn several_transfers_go_on_at_once() {
    let drive = Arc::new(SimDevice::new(1 << 20, 7));
    // Each waits for another to have begun, too.
    let meeting = Barrier::new(THREADS);
    drive.before_each(move |_| _ = meeting.wait());
    let patience = Duration::from_secs(10);
    let device =
        DeadlineDrive::new(Arc::clone(&drive) as Arc<dyn Drive>, patience, THREADS, Engine::Auto)
            .expect("threads");
    device.begin_timing();
    thread::scope(|scope| {
        for at in 0..THREADS as u64 {
            let device = &device;
            scope.spawn(move || device.write_at(at * BLOCK as u64, &block(at as u8 + 1)).unwrap());
        }
    });
    assert_eq!(drive.counts().writes, THREADS as u64);
}

#[test]
fn a_late_transfer_leaves_those_that_had_begun_alone() {
    let patience = 10 * PATIENCE;
    let (drive, gate) = (Arc::new(SimDevice::new(1 << 20, 7)), Arc::new(Gate::default()));
    let hook = Arc::clone(&gate);
    drive.before_each(move |transfer| match transfer.operation {
        Operation::Write => hook.pass(),
        _ => thread::sleep(2 * patience / 3),
    });
    let device =
        DeadlineDrive::new(Arc::clone(&drive) as Arc<dyn Drive>, patience, THREADS, Engine::Auto)
            .expect("threads");
    device.begin_timing();
    gate.shut();
    thread::scope(|scope| {
        let late = scope.spawn(|| device.write_at(0, &block(1)));
        // It is still under way when the write is overdue.
        thread::sleep(2 * patience / 3);
        let mut read = AlignedBuf::zeroed(BLOCK);
        device.read_at(BLOCK as u64, &mut read).unwrap();
        assert!(is_unanswered(&late.join().expect("no panic").unwrap_err()));
    });
    assert!(is_unanswered(&device.read_at(0, &mut block(0)).unwrap_err()));
    gate.open();
    until_it_answers(&device);
    device.read_at(0, &mut block(0)).unwrap();
}

#[test]
fn memory_that_is_lent_comes_back_or_is_replaced() {
    let (_, gate, device) = timed();
    let mut lent = block(3);
    let place = lent.as_ptr().addr();
    device.write_lent(0, &mut lent).unwrap();
    assert!(lent.as_ptr().addr() == place && lent.iter().all(|byte| *byte == 3), "no copy");
    gate.shut();
    lent.fill(4);
    assert!(is_unanswered(&device.write_lent(0, &mut lent).unwrap_err()));
    assert!(lent.len() == BLOCK && lent.iter().all(|byte| *byte == 0), "other memory");
    assert!(is_unanswered(&device.write_lent(0, &mut lent).unwrap_err()));
    assert_eq!(lent.len(), BLOCK);
    gate.open();
    until_it_answers(&device);
    device.read_at(0, &mut lent).unwrap();
    assert!(lent.iter().all(|byte| *byte == 4), "the late write was made");
}

#[test]
fn the_memory_of_a_late_read_is_nobody_elses() {
    let (drive, gate, device) = timed();
    device.write_at(0, &block(5)).unwrap();
    gate.shut();
    let mut read = block(8);
    assert!(is_unanswered(&device.read_at(0, &mut read).unwrap_err()));
    read.fill(9);
    gate.open();
    until_it_answers(&device);
    assert_eq!(drive.counts().reads, 1, "it was answered");
    assert!(read.iter().all(|byte| *byte == 9), "and changed nothing that the caller has");
}

/// Reads of three blocks of one buffer each, the second of which is beyond the end.
fn three(buffers: &mut [AlignedBuf]) -> Vec<Part<'_>> {
    let offsets = [BLOCK as u64, 1 << 20, 0];
    offsets.into_iter().zip(buffers).map(|(offset, buf)| Part::new(offset, buf)).collect()
}

#[test]
fn several_reads_at_once_are_as_one_by_one() {
    let scratch = Scratch::new();
    let file: Arc<dyn Drive> = stamped(&scratch, (1 << 20) / BLOCK as u64);
    for engine in [Engine::Auto, Engine::Pool] {
        let device =
            DeadlineDrive::new(Arc::clone(&file), Duration::from_secs(60), THREADS, engine)
                .unwrap();
        for is_timing in [false, true] {
            if is_timing {
                device.begin_timing();
            }
            let mut buffers = [block(9), block(9), block(9)];
            let mut parts = three(&mut buffers);
            device.read_each(&mut parts);
            let failed: Vec<_> = parts.iter().map(|part| part.result.is_err()).collect();
            assert_eq!(failed, [false, true, false], "{engine}");
            assert!(!is_unanswered(parts[1].result.as_ref().unwrap_err()));
            assert!(is_stamped(&buffers[0], 1) && is_stamped(&buffers[2], 0), "{engine}");
            assert!(buffers.iter().all(|buf| buf.len() == BLOCK));
        }
        // More than go at once.
        let mut buffers: Vec<_> = (0..100).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
        let offsets = (0..100).map(|at| at * BLOCK as u64);
        let mut parts: Vec<_> =
            offsets.zip(&mut buffers).map(|(offset, buf)| Part::new(offset, buf)).collect();
        device.read_each(&mut parts);
        assert!(parts.iter().all(|part| part.result.is_ok()));
        assert!((0..).zip(&buffers).all(|(at, buf)| is_stamped(buf, at)), "{engine}");
    }
}

#[test]
fn the_memory_of_several_late_reads_is_nobody_elses() {
    let (drive, gate, device) = timed();
    device.write_at(0, &block(5)).unwrap();
    gate.shut();
    let mut buffers = [block(8), block(8), block(8)];
    let mut parts = three(&mut buffers);
    device.read_each(&mut parts);
    assert!(parts.iter().all(|part| part.result.as_ref().is_err_and(is_unanswered)));
    assert!(buffers.iter().all(|buf| buf.len() == BLOCK), "memory as before");
    buffers.iter_mut().for_each(|buf| buf.fill(9));
    assert!(is_unanswered(&device.write_at(0, &block(6)).unwrap_err()));
    gate.open();
    until_it_answers(&device);
    assert_eq!((drive.counts().reads, drive.counts().writes), (2, 1), "they were answered");
    assert!(buffers.iter().all(|buf| buf.iter().all(|byte| *byte == 9)), "and changed nothing");
    let mut parts = three(&mut buffers);
    device.read_each(&mut parts);
    assert!(parts[2].result.is_ok());
    assert_eq!((buffers[2][0], buffers[0][0]), (5, 0));
}

#[test]
fn before_it_begins_it_waits_and_a_silent_one_can_be_dropped() {
    let drive = Arc::new(SimDevice::new(1 << 20, 7));
    drive.before_each(|_| thread::sleep(3 * PATIENCE));
    let device =
        DeadlineDrive::new(Arc::clone(&drive) as Arc<dyn Drive>, PATIENCE, THREADS, Engine::Auto)
            .unwrap();
    device.write_at(0, &block(1)).unwrap();
    device.begin_timing();
    let is_over = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&is_over);
    drive.before_each(move |transfer| {
        assert_eq!(transfer.operation, Operation::Write);
        while !hook.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    });
    assert!(is_unanswered(&device.write_at(0, &block(2)).unwrap_err()));
    drop(device);
    is_over.store(true, Ordering::Relaxed);
}

#[test]
fn fence_waits_for_a_write_that_was_given_up() {
    let (drive, gate, device) = timed();
    device.fence().expect("nothing is under way");
    gate.shut();
    assert!(is_unanswered(&device.write_at(0, &block(2)).unwrap_err()));
    let start = Instant::now();
    assert!(is_unanswered(&device.fence().unwrap_err()));
    assert!(start.elapsed() >= PATIENCE, "it waits as long again");
    thread::scope(|scope| {
        let fence = scope.spawn(|| {
            // Longer than one call waits on a busy machine.
            while device.fence().is_err() {
                assert!(start.elapsed() < Duration::from_secs(60), "it waits for nothing");
            }
            let mut read = block(0);
            drive.read_at(0, &mut read).expect("it answers");
            read[0]
        });
        thread::sleep(PATIENCE / 2);
        gate.open();
        assert_eq!(fence.join().expect("no panic"), 2, "the late write came before the fence");
    });
    assert!(device.unresponsive_for().is_zero());
    device.write_at(0, &block(3)).expect("it answers");
    device.fence().expect("nothing is under way");
}

#[test]
fn fence_of_a_simulated_drive_fails_while_a_write_may_come() {
    let drive = SimDevice::new(1 << 20, 7);
    drive.fall_silent(Duration::from_secs(10));
    drive.fence().expect("nothing was written");
    assert!(is_unanswered(&drive.write_at(0, &block(2)).unwrap_err()));
    assert!(is_unanswered(&drive.fence().unwrap_err()));
    drive.fall_silent(Duration::ZERO);
    drive.fence().expect("it has come");
}
