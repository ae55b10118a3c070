//! Host against controller, with bytes cut and delayed anywhere: with every combination of digests and alignments, and
//! the limits of the targets that there are, what was written is what is read.

mod common;

use common::{BLOCK_SHIFT, Damage, NQN, Random, Session, Setting, World, export, login};
use proptest::prelude::*;
use std::collections::HashMap;
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::{Command, Status};
use terrace_nvme::controller::{ConnectionConfig, Limits};
use terrace_nvme::host::Tag;
use terrace_nvme::pdu::{Digests, Ended};

/// Linux 6.1: 1023 entries, 16 KiB in a capsule, no limit of a transfer, MAXH2CDATA of 4 MiB, one R2T for all.
fn linux() -> (Limits, ConnectionConfig) {
    let limits = Limits {
        queue_entries_max: 1023,
        in_capsule_bytes_max: 16 << 10,
        transfer_pages_shift: 0,
        ..Limits::default()
    };
    (limits, ConnectionConfig { h2c_data_bytes_max: 4 << 20, ..ConnectionConfig::default() })
}

/// SPDK 26: 127 entries, 4 KiB in a capsule, transfers of 128 KiB, MAXH2CDATA of 128 KiB, R2T of a buffer each.
fn spdk() -> (Limits, ConnectionConfig) {
    let limits = Limits {
        queue_entries_max: 127,
        in_capsule_bytes_max: 4096,
        transfer_pages_shift: 5,
        ..Limits::default()
    };
    let connection = ConnectionConfig {
        h2c_data_bytes_max: 128 << 10,
        c2h_data_bytes_max: 8192,
        r2t_max: 16,
        r2t_bytes_max: 8192,
        ..ConnectionConfig::default()
    };
    (limits, connection)
}

/// A target that moves as little at a time as it may, and has no data in capsules.
fn narrow() -> (Limits, ConnectionConfig) {
    let limits = Limits {
        queue_entries_max: 4,
        in_capsule_bytes_max: 0,
        transfer_pages_shift: 3,
        ..Limits::default()
    };
    let connection = ConnectionConfig {
        align: 128,
        h2c_data_bytes_max: 4096,
        c2h_data_bytes_max: 508,
        r2t_max: 3,
        r2t_bytes_max: 1020,
        ..ConnectionConfig::default()
    };
    (limits, connection)
}

fn setting() -> impl Strategy<Value = Setting> {
    let digests =
        (any::<bool>(), any::<bool>()).prop_map(|(header, data)| Digests { header, data });
    let profile = prop_oneof![Just(linux()), Just(spdk()), Just(narrow())];
    let aligns = [4u32, 8, 12, 64, 128];
    let align = move || prop::sample::select(aligns.to_vec());
    (profile, digests, align(), align(), 1u32..5, 2u32..40).prop_map(
        |((limits, connection), digests, align, controller_align, r2t_max, entries)| Setting {
            limits,
            connection: ConnectionConfig { align: controller_align, ..connection },
            digests,
            align,
            r2t_max,
            entries,
        },
    )
}

/// Commands over a few regions of the namespace, so that no two outstanding ones touch the same blocks.
struct Load {
    /// What each region holds.
    model: Vec<Vec<u8>>,
    busy: Vec<bool>,
    outstanding: HashMap<Tag, (usize, Command, Vec<u8>)>,
    region_blocks: u32,
}

impl Load {
    fn new(transfer_bytes_max: u32) -> Self {
        let region_blocks = (transfer_bytes_max >> BLOCK_SHIFT).min(256);
        let regions = common::BLOCKS as usize / region_blocks as usize;
        Self {
            model: vec![vec![0; (region_blocks as usize) << BLOCK_SHIFT]; regions],
            busy: vec![false; regions],
            outstanding: HashMap::new(),
            region_blocks,
        }
    }

    /// Submits a command, if there is room and a region for it.
    fn submit(&mut self, session: &mut Session, random: &mut Random) -> bool {
        let region = random.below(self.model.len().min(24));
        if self.busy[region] || !session.io.queue.has_room() {
            return false;
        }
        let at = random.below(self.region_blocks as usize) as u32;
        let long = if random.chance(4) { self.region_blocks } else { 16 };
        let count = 1 + random.below(long.min(self.region_blocks - at) as usize) as u32;
        let lba = region as u64 * u64::from(self.region_blocks) + u64::from(at);
        let blocks = Blocks { lba, count };
        let bytes = (count as usize) << BLOCK_SHIFT;
        let (command, data) = match random.below(8) {
            0..=2 => (nvm::read(1, blocks), vec![0xaa; bytes]),
            3..=5 => {
                let seed = random.next();
                let data = (0..bytes).map(|index| (seed >> (index % 57)) as u8).collect();
                (nvm::write(1, blocks, random.chance(2)), data)
            }
            6 => (nvm::write_zeroes(1, blocks, random.chance(2)), Vec::new()),
            _ => (nvm::flush(1), Vec::new()),
        };
        let tag = session.io.submit(command, data.clone()).expect("there is room");
        self.busy[region] = true;
        self.outstanding.insert(tag, (region, command, data));
        true
    }

    /// Checks an outcome against the model. `may_fail` if the link damages data.
    fn complete(&mut self, session: &mut Session, may_fail: bool) {
        while let Some((tag, outcome)) = session.io.outcomes.pop_front() {
            let (region, command, data) = self.outstanding.remove(&tag).expect("completed once");
            self.busy[region] = false;
            if outcome.status == Status::TRANSIENT_TRANSPORT_ERROR && may_fail {
                continue;
            }
            assert_eq!(outcome.status, Status::SUCCESS, "{command:?}");
            if command.opcode() == nvm::flush(1).opcode() {
                continue;
            }
            let blocks = nvm::blocks_of(&command);
            let region_lba = region as u64 * u64::from(self.region_blocks);
            let at = ((blocks.lba - region_lba) as usize) << BLOCK_SHIFT;
            let bytes = (blocks.count as usize) << BLOCK_SHIFT;
            match command.opcode() {
                0x01 => self.model[region][at..at + bytes].copy_from_slice(&data),
                0x02 => {
                    assert!(
                        session.io.buffers[tag.index()] == self.model[region][at..at + bytes],
                        "wrong data"
                    );
                }
                0x08 => self.model[region][at..at + bytes].fill(0),
                _ => {}
            }
        }
    }
}

/// Runs `commands` commands. Returns the end of the connection, if it came.
fn run(setting: &Setting, seed: u64, commands: usize, damage: Option<Damage>) -> Option<Ended> {
    let mut random = Random::new(seed);
    let mut world = World::new(export(setting.limits));
    let mut session = Session::open(login(1), setting, &mut random, &mut world);
    let mut load = Load::new(session.controller.transfer_bytes_max());
    let may_fail = damage.is_some();
    session.io.damage = damage;
    let (mut submitted, mut idle) = (0, 0);
    while submitted < commands || !load.outstanding.is_empty() {
        let before = load.outstanding.len();
        if submitted < commands && random.chance(3) {
            submitted += usize::from(load.submit(&mut session, &mut random));
        }
        session.io.turn(&mut random, &mut world);
        load.complete(&mut session, may_fail);
        if let Some(ended) = session.io.ended() {
            return Some(ended);
        }
        idle = if load.outstanding.len() == before { idle + 1 } else { 0 };
        if idle > 500_000 {
            assert!(may_fail, "nothing happens");
            return None;
        }
    }
    None
}

proptest! {
    #[test]
    fn what_was_written_is_read(setting in setting(), seed in any::<u64>()) {
        prop_assert_eq!(run(&setting, seed, 60, None), None);
    }

    /// With both digests a flipped bit fails a command or ends the connection; it never gives wrong data.
    #[test]
    fn flipped_bit_never_gives_wrong_data(
        setting in setting(),
        seed in any::<u64>(),
        to_host in any::<bool>(),
        at in 0usize..200_000,
        bit in 0u8..8,
    ) {
        let setting = Setting { digests: Digests { header: true, data: true }, ..setting };
        run(&setting, seed, 60, Some(Damage { to_host, at, bit }));
    }
}

#[test]
fn every_combination_of_digests_alignments_and_profiles_works() {
    for (limits, connection) in [linux(), spdk(), narrow()] {
        for digests in [(false, false), (true, false), (false, true), (true, true)] {
            for align in [4, 128] {
                let (header, data) = digests;
                let setting = Setting {
                    limits,
                    connection: ConnectionConfig { align: 132 - align, ..connection },
                    digests: Digests { header, data },
                    align,
                    r2t_max: 2,
                    entries: 64,
                };
                assert_eq!(run(&setting, u64::from(align), 40, None), None, "{setting:?}");
            }
        }
    }
}

#[test]
fn controller_without_digests_is_used_without() {
    let setting = Setting {
        connection: ConnectionConfig { digests: Digests::default(), ..ConnectionConfig::default() },
        digests: Digests { header: true, data: true },
        ..Setting::default()
    };
    assert_eq!(run(&setting, 3, 40, None), None);
}

#[test]
fn set_up_learns_what_the_subsystem_says() {
    let (limits, connection) = spdk();
    let setting = Setting { limits, connection, ..Setting::default() };
    let (mut random, mut world) = (Random::new(1), World::new(export(limits)));
    let session = Session::open(login(1), &setting, &mut random, &mut world);
    let controller = &session.controller;
    assert_eq!(controller.info.subsystem_nqn, NQN);
    assert_eq!(controller.transfer_bytes_max(), 128 << 10);
    assert_eq!(controller.info.in_capsule_bytes_max(), 4096);
    assert_eq!(controller.capabilities.queue_entries_max, 127);
    assert_eq!(controller.io_queue(1024, 1, Digests::default()).entries, 127);
    assert_eq!(controller.io_queues, 2);
    let namespace = controller.namespace.expect("the only one");
    assert_eq!(
        (namespace.nsid, namespace.info.blocks, namespace.info.block_bytes()),
        (1, 4096, 512)
    );
    assert_eq!(namespace.ids.nguid, Some([1; 16]));
    assert_eq!(session.io.connection.queue(), Some((1, controller.info.controller_id)));
}

/// Linux' target states no limit, and refuses more than 4 MiB.
#[test]
fn transfers_without_a_stated_limit_have_one_all_the_same() {
    let (limits, connection) = linux();
    let setting = Setting { limits, connection, ..Setting::default() };
    let (mut random, mut world) = (Random::new(1), World::new(export(limits)));
    let session = Session::open(login(1), &setting, &mut random, &mut world);
    assert_eq!(session.controller.transfer_bytes_max(), 4 << 20);
}
