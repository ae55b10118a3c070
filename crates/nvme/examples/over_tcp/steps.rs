//! What a host tries on a target.

use crate::Outcome;
use crate::host::{self, Host, KEEP_ALIVE};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use terrace_nvme::command::features::{self, AsyncEvent};
use terrace_nvme::command::identify::{self, NamespaceInfo, Structure, identify};
use terrace_nvme::command::log::{self, Page, Part};
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::reservation::{
    self, AcquireAction, RegisterAction, ReleaseAction, Report, ReservationKind,
};
use terrace_nvme::command::{Command, Status};
use terrace_nvme::pdu::Digests;

/// Bytes at the start of the namespace that are written and compared.
const SPAN_BYTES: u64 = 8 << 20;
/// Longest command, beyond what goes with a capsule, and what one H2CData of some targets takes.
const COMMAND_BYTES_MAX: u64 = 512 << 10;
const PATIENCE: Duration = Duration::from_secs(60);
const WITHOUT: Digests = Digests { header: false, data: false };

/// The content of a block: each of its words follows from the block's number and a version of the whole.
fn fill(block: &mut [u8], lba: u64, version: u64) {
    let mut word = (lba << 8 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for bytes in block.chunks_exact_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Consecutive runs of blocks of lengths that vary, from one block up.
fn runs(blocks: u64, block_bytes: u64, longest: u64, seed: u64) -> Vec<Blocks> {
    let (mut runs, mut lba, mut random) = (Vec::new(), 0, seed | 1);
    while lba < blocks {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let power = (random >> 33) % 12;
        let length = 1 + (random >> 40) % (1 << power);
        let count = length.min(longest / block_bytes).min(blocks - lba);
        runs.push(Blocks { lba, count: count as u32 });
        lba += count;
    }
    runs
}

struct Namespace {
    nsid: u32,
    block_bytes: u64,
    /// Blocks that are used.
    span: u64,
    /// Most bytes of a command.
    longest: u64,
}

impl Namespace {
    fn of(host: &Host) -> Outcome<Self> {
        let namespace = host.controller.namespace.ok_or("no namespace")?;
        let block_bytes = u64::from(namespace.info.block_bytes());
        let span = (SPAN_BYTES / block_bytes).min(namespace.info.blocks);
        let longest = COMMAND_BYTES_MAX.min(u64::from(host.controller.transfer_bytes_max()));
        Ok(Self { nsid: namespace.nsid, block_bytes, span, longest })
    }

    fn data(&self, blocks: Blocks, version: u64) -> Vec<u8> {
        let mut data = vec![0; blocks.count as usize * self.block_bytes as usize];
        let each = data.chunks_exact_mut(self.block_bytes as usize);
        each.zip(blocks.lba..).for_each(|(block, lba)| fill(block, lba, version));
        data
    }

    /// Executes `runs` with as many outstanding as the queue has room for, and passes the data of each to `check`.
    fn execute(
        &self,
        host: &mut Host,
        runs: &[Blocks],
        submit: impl Fn(Blocks) -> (Command, Vec<u8>),
        check: impl Fn(Blocks, &[u8]) -> Outcome,
    ) -> Outcome {
        let mut outstanding = std::collections::HashMap::new();
        let mut next = runs.iter();
        loop {
            while host.io.has_room()
                && let Some(blocks) = next.next()
            {
                let (command, data) = submit(*blocks);
                outstanding.insert(host.io.submit(command, data)?, *blocks);
            }
            if outstanding.is_empty() {
                return Ok(());
            }
            let done = host.io.completed(PATIENCE)?.ok_or("a command is not completed")?;
            let (number, outcome, data) = done;
            let blocks = outstanding.remove(&number).ok_or("an unknown command is completed")?;
            if outcome.status != Status::SUCCESS {
                return Err(format!("{blocks:?}: {}", outcome.status).into());
            }
            check(blocks, &data)?;
        }
    }

    fn write(&self, host: &mut Host, version: u64) -> Outcome {
        let write = |blocks| (nvm::write(self.nsid, blocks, false), self.data(blocks, version));
        let runs = runs(self.span, self.block_bytes, self.longest, version);
        self.execute(host, &runs, write, |_, _| Ok(()))?;
        host.io.succeed("flush", nvm::flush(self.nsid), Vec::new()).map(drop)
    }

    fn compare(&self, host: &mut Host, version: u64) -> Outcome {
        let read = |blocks: Blocks| {
            let bytes = blocks.count as usize * self.block_bytes as usize;
            (nvm::read(self.nsid, blocks), vec![0xee; bytes])
        };
        let runs = runs(self.span, self.block_bytes, self.longest, version + 100);
        self.execute(host, &runs, read, |blocks, data| {
            let same = data == self.data(blocks, version);
            if same { Ok(()) } else { Err(format!("{blocks:?}: other data").into()) }
        })
    }
}

pub(crate) fn discover(address: SocketAddr) -> Outcome {
    for entry in host::discover(address)? {
        let (kind, nqn) = (entry.kind, &entry.subsystem_nqn);
        println!("{kind:?} {nqn} {}:{}", entry.address, entry.port);
    }
    Ok(())
}

pub(crate) fn exercise(address: SocketAddr, nqn: &str, nsid: u32, digests: Digests) -> Outcome {
    let mut host = Host::connect(address, 0xa0, nqn, nsid, digests)?;
    let namespace = Namespace::of(&host)?;
    let controller = &host.controller;
    println!(
        "ok connect: {}, {} entries, {} bytes with a capsule, transfers of {} bytes, H2CData of {}, blocks of {}",
        controller.info.model,
        controller.capabilities.queue_entries_max,
        controller.info.in_capsule_bytes_max(),
        controller.transfer_bytes_max(),
        host.io.response.map_or(0, |response| response.h2c_data_bytes_max),
        namespace.block_bytes,
    );
    for version in 1..=2 {
        namespace.write(&mut host, version)?;
        namespace.compare(&mut host, version)?;
        println!("ok write, flush, read and compare: version {version}");
    }
    largest(&mut host, &namespace)?;
    zeroes(&mut host, &namespace)?;
    let beyond = host.controller.namespace.map_or(0, |namespace| namespace.info.blocks);
    let read = nvm::read(nsid, Blocks { lba: beyond, count: 1 });
    let (outcome, _) = host.io.run(read, vec![0; namespace.block_bytes as usize])?;
    if outcome.status.is_success() {
        return Err("a block beyond the end was read".into());
    }
    namespace.compare_after_zeroes(&mut host, 2)?;
    println!("ok read beyond the end: {}", outcome.status);
    host.reset()?;
    // Linux keeps the connection, and refuses what comes over it.
    let flush = host.io.run(nvm::flush(nsid), Vec::new());
    if flush.is_ok_and(|(outcome, _)| outcome.status.is_success()) {
        return Err("the I/O queue outlived the reset of its controller".into());
    }
    let mut host = Host::connect(address, 0xa0, nqn, nsid, digests)?;
    namespace.compare_after_zeroes(&mut host, 2)?;
    println!("ok reset, connect, compare");
    Ok(())
}

/// A write and a read of as many bytes as the controller takes at once, or as the namespace has, and what was there
/// before again.
fn largest(host: &mut Host, namespace: &Namespace) -> Outcome {
    let most = u64::from(host.controller.transfer_bytes_max()) / namespace.block_bytes;
    let has = host.controller.namespace.map_or(0, |namespace| namespace.info.blocks);
    let blocks = Blocks { lba: 0, count: most.min(has) as u32 };
    let bytes = blocks.count as usize * namespace.block_bytes as usize;
    for version in [3, 2] {
        let data = namespace.data(blocks, version);
        let write = nvm::write(namespace.nsid, blocks, false);
        host.io.succeed("the largest write", write, data.clone())?;
        let read = nvm::read(namespace.nsid, blocks);
        if host.io.succeed("the largest read", read, vec![0xee; bytes])? != data {
            return Err("the largest transfer: other data".into());
        }
    }
    println!("ok largest transfer: {bytes} bytes");
    Ok(())
}

/// Blocks at the start that [`zeroes`] changes.
const ZEROED: u32 = 8;

fn zeroes(host: &mut Host, namespace: &Namespace) -> Outcome {
    let blocks = Blocks { lba: 0, count: ZEROED };
    let bytes = ZEROED as usize * namespace.block_bytes as usize;
    if host.controller.info.optional.write_zeroes {
        let command = nvm::write_zeroes(namespace.nsid, blocks, false);
        host.io.succeed("write zeroes", command, Vec::new())?;
    } else {
        let command = nvm::write(namespace.nsid, blocks, true);
        host.io.succeed("write of zeros", command, vec![0; bytes])?;
    }
    let read = nvm::read(namespace.nsid, blocks);
    if host.io.succeed("read of zeros", read, vec![0xee; bytes])? != vec![0; bytes] {
        return Err("what was zeroed is not zero".into());
    }
    if host.controller.info.optional.dataset_management {
        let ranges = nvm::write_ranges(&[blocks]);
        let command = nvm::deallocate(namespace.nsid, 1);
        host.io.succeed("deallocate", command, ranges.into())?;
    }
    println!("ok zeroes and deallocate");
    Ok(())
}

impl Namespace {
    /// Compares all but the blocks that were zeroed and deallocated.
    fn compare_after_zeroes(&self, host: &mut Host, version: u64) -> Outcome {
        let first = Blocks { lba: 0, count: ZEROED };
        let command = nvm::write(self.nsid, first, false);
        host.io.succeed("write", command, self.data(first, version))?;
        self.compare(host, version)
    }
}

/// Waits for the event, and longer than the keep-alive time.
pub(crate) fn resized(address: SocketAddr, nqn: &str, nsid: u32) -> Outcome {
    let mut host = Host::connect(address, 0xa0, nqn, nsid, WITHOUT)?;
    let before = host.controller.namespace.map_or(0, |namespace| namespace.info.blocks);
    let own = host.admin.submit(features::async_event_request(), Vec::new())?;
    let (start, mut kept) = (Instant::now(), 0);
    while start.elapsed() < KEEP_ALIVE * 2 {
        host.admin.succeed("keep alive", features::keep_alive(), Vec::new())?;
        kept += 1;
        std::thread::sleep(KEEP_ALIVE / 3);
    }
    println!("ok keep alive: {kept} within {} s", start.elapsed().as_secs());
    println!("ready");
    let mut result = None;
    while result.is_none() && start.elapsed() < PATIENCE {
        match host.admin.completed(KEEP_ALIVE / 3)? {
            Some((number, outcome, _)) if number == own => result = Some(outcome.result),
            Some(_) => {}
            None => {
                host.admin.submit(features::keep_alive(), Vec::new())?;
            }
        }
    }
    let event = AsyncEvent::read(result.ok_or("no event")?);
    if event != AsyncEvent::Namespaces {
        return Err(format!("another event: {event:?}").into());
    }
    let part = Part { offset: 0, bytes: identify::BYTES as u32, keeps_event: false };
    let get = log::get(Page::ChangedNamespaces, part);
    let page = host.admin.succeed("changed namespaces", get, vec![0; identify::BYTES])?;
    let page: Box<[u8; identify::BYTES]> = page.try_into().map_err(|_| "another length")?;
    let changed: Vec<u32> = identify::namespaces(&page).collect();
    if !changed.contains(&nsid) {
        return Err(format!("namespaces {changed:?} changed").into());
    }
    let again = identify(Structure::Namespace, nsid);
    let page = host.admin.succeed("identify", again, vec![0; identify::BYTES])?;
    let page: Box<[u8; identify::BYTES]> = page.try_into().map_err(|_| "another length")?;
    let after = NamespaceInfo::read(&page).blocks;
    if after == before {
        return Err(format!("it still has {after} blocks").into());
    }
    println!("ok event: {before} blocks became {after}");
    Ok(())
}

/// Writes, waits for the end of the connection, and compares after the next.
pub(crate) fn survives(address: SocketAddr, nqn: &str, nsid: u32) -> Outcome {
    let mut host = Host::connect(address, 0xa0, nqn, nsid, WITHOUT)?;
    let namespace = Namespace::of(&host)?;
    namespace.write(&mut host, 3)?;
    println!("ready");
    let start = Instant::now();
    let lost = loop {
        if let Err(lost) = namespace.compare(&mut host, 3) {
            break lost;
        }
        if start.elapsed() > PATIENCE {
            return Err("the connection is not lost".into());
        }
        host.admin.submit(features::keep_alive(), Vec::new())?;
        drop(host.admin.completed(Duration::ZERO)?);
    };
    println!("ok lost: {lost}");
    let mut host = loop {
        match Host::connect(address, 0xa0, nqn, nsid, WITHOUT) {
            Ok(host) => break host,
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    namespace.compare(&mut host, 3)?;
    println!("ok back: the same data");
    Ok(())
}

pub(crate) fn reserves(address: SocketAddr, nqn: &str, nsid: u32) -> Outcome {
    const EXCLUSIVE: ReservationKind = ReservationKind::WriteExclusive;
    let mut one = Host::connect(address, 0xa0, nqn, nsid, WITHOUT)?;
    if !one.controller.info.optional.reservations {
        println!("without reservations");
        return Ok(());
    }
    let mut two = Host::connect(address, 0xa1, nqn, nsid, WITHOUT)?;
    let namespace = Namespace::of(&one)?;
    for (host, key) in [(&mut one, 11), (&mut two, 22)] {
        let register = reservation::register(nsid, RegisterAction::Register, true);
        host.io.succeed("register", register, reservation::keys(0, key).into())?;
    }
    let acquire = reservation::acquire(nsid, AcquireAction::Acquire, EXCLUSIVE);
    one.io.succeed("acquire", acquire, reservation::keys(11, 0).into())?;
    let first = Blocks { lba: 0, count: 1 };
    let write = nvm::write(nsid, first, false);
    let conflict = two.io.run(write, namespace.data(first, 5))?.0.status;
    if !conflict.is(Status::RESERVATION_CONFLICT) {
        return Err(format!("a second host writes: {conflict}").into());
    }
    let preempt = reservation::acquire(nsid, AcquireAction::PreemptAndAbort, EXCLUSIVE);
    two.io.succeed("preempt", preempt, reservation::keys(22, 11).into())?;
    let lost = one.io.run(write, namespace.data(first, 5))?.0.status;
    if !lost.is(Status::RESERVATION_CONFLICT) {
        return Err(format!("the preempted host writes: {lost}").into());
    }
    two.io.succeed("write of the holder", write, namespace.data(first, 6))?;
    let report = reservation::report(nsid, 4096);
    let report = Report::read(&two.io.succeed("report", report, vec![0; 4096])?);
    let holders = report.iter().flat_map(|report| &report.registrants);
    let keys: Vec<u64> = holders.filter(|one| one.is_holder).map(|one| one.key).collect();
    if keys != [22] {
        return Err(format!("holders {keys:?}").into());
    }
    let clear = reservation::release(nsid, ReleaseAction::Clear, EXCLUSIVE);
    two.io.succeed("clear", clear, 22u64.to_le_bytes().to_vec())?;
    println!("ok reservation: a second host refused, then preempted");
    Ok(())
}
