//! Hosts share a target: reservations, resets, events and discovery, over the link that cuts and delays.

mod common;

use common::{
    NQN, Pair, Random, Session, Setting, World, discovery_login, export, login, namespace, set_up,
    set_up_config,
};
use terrace_nvme::command::fabrics::{
    Property, configuration, controller_status, property_get, property_set,
};
use terrace_nvme::command::features::{self, AsyncEvent, Feature};
use terrace_nvme::command::identify::{self, Structure, identify};
use terrace_nvme::command::log::{
    self, DiscoveryEntry, Page, Part, ReservationNotice, ReservationNoticeKind, SubsystemKind,
};
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::command::reservation::{
    self, AcquireAction, RegisterAction, ReleaseAction, Report, ReservationKind,
};
use terrace_nvme::command::{Command, Status};
use terrace_nvme::controller::{ConnectionConfig, Event, Limits, Operation};
use terrace_nvme::host::{Discovery, QueueConfig, SetUpError, Step};
use terrace_nvme::pdu::Ended;

const EXCLUSIVE: ReservationKind = ReservationKind::WriteExclusive;

fn start(seed: u64) -> (Random, World) {
    (Random::new(seed), World::new(export(Limits::default())))
}

fn open(host: u8, random: &mut Random, world: &mut World) -> Session {
    Session::open(login(host), &Setting::default(), random, world)
}

fn write() -> (Command, Vec<u8>) {
    (nvm::write(1, Blocks { lba: 0, count: 1 }, false), vec![9; 512])
}

/// Registers the host of `session` with `key`.
fn register(session: &mut Session, key: u64, random: &mut Random, world: &mut World) {
    let register = reservation::register(1, RegisterAction::Register, false);
    let status = session.io.status(register, reservation::keys(0, key).into(), random, world);
    assert_eq!(status, Status::SUCCESS);
}

fn acquire(
    session: &mut Session,
    action: AcquireAction,
    keys: (u64, u64),
    random: &mut Random,
    world: &mut World,
) -> Status {
    let acquire = reservation::acquire(1, action, EXCLUSIVE);
    session.io.status(acquire, reservation::keys(keys.0, keys.1).into(), random, world)
}

#[test]
fn second_host_reads_but_does_not_write_what_another_holds() {
    let (mut random, mut world) = start(1);
    let mut one = open(1, &mut random, &mut world);
    let mut two = open(2, &mut random, &mut world);
    register(&mut one, 11, &mut random, &mut world);
    register(&mut two, 22, &mut random, &mut world);
    let status = acquire(&mut one, AcquireAction::Acquire, (11, 0), &mut random, &mut world);
    assert_eq!(status, Status::SUCCESS);

    let (command, data) = write();
    assert_eq!(one.io.status(command, data.clone(), &mut random, &mut world), Status::SUCCESS);
    let conflict = two.io.status(command, data, &mut random, &mut world);
    assert!(conflict.is(Status::RESERVATION_CONFLICT) && conflict.is_final());
    for command in [nvm::flush(1), nvm::write_zeroes(1, Blocks { lba: 0, count: 1 }, false)] {
        let status = two.io.status(command, Vec::new(), &mut random, &mut world);
        assert!(status.is(Status::RESERVATION_CONFLICT), "{command:?}");
    }
    let ranges = nvm::write_ranges(&[Blocks { lba: 0, count: 1 }]);
    let status = two.io.status(nvm::deallocate(1, 1), ranges.into(), &mut random, &mut world);
    assert!(status.is(Status::RESERVATION_CONFLICT));
    let read = nvm::read(1, Blocks { lba: 0, count: 1 });
    let (outcome, data) = two.io.run(read, vec![0; 512], &mut random, &mut world).unwrap();
    assert_eq!((outcome.status, data), (Status::SUCCESS, vec![9; 512]));

    let (_, data) =
        two.io.run(reservation::report(1, 4096), vec![0; 4096], &mut random, &mut world).unwrap();
    let report = Report::read(&data).unwrap();
    assert_eq!((report.kind, report.generation, report.registrants.len()), (Some(EXCLUSIVE), 2, 2));
    let holder = report.registrants.iter().find(|one| one.is_holder).unwrap();
    assert_eq!((holder.key, holder.host_id), (11, [1; 16]));
    assert_eq!(holder.controller_id, one.controller.info.controller_id);

    let release = reservation::release(1, ReleaseAction::Release, EXCLUSIVE);
    let key = 11u64.to_le_bytes().to_vec();
    assert_eq!(one.io.status(release, key, &mut random, &mut world), Status::SUCCESS);
    let (command, data) = write();
    assert_eq!(two.io.status(command, data, &mut random, &mut world), Status::SUCCESS);
}

/// A host that takes over knows, once its Preempt and Abort completes, that nothing of the other is written any more.
#[test]
fn preempt_and_abort_waits_for_writes_that_have_begun() {
    let (mut random, mut world) = start(2);
    let mut one = open(1, &mut random, &mut world);
    let mut two = open(2, &mut random, &mut world);
    register(&mut one, 11, &mut random, &mut world);
    register(&mut two, 22, &mut random, &mut world);
    acquire(&mut one, AcquireAction::Acquire, (11, 0), &mut random, &mut world);
    one.io.holds = true;
    let (command, data) = write();
    one.io.submit(command, data).unwrap();
    one.io.settle(&mut random, &mut world);
    assert_eq!(one.io.executing.len(), 1);

    let preempt = reservation::acquire(1, AcquireAction::PreemptAndAbort, EXCLUSIVE);
    two.io.submit(preempt, reservation::keys(22, 11).into()).unwrap();
    two.io.settle(&mut random, &mut world);
    let Some(Event::Await { tag, fence }) = two.io.wanted.pop() else { panic!("a fence") };
    assert!(two.io.outcomes.is_empty() && !world.target.is_over(&fence));
    // The connection of the host that lost ends, with its controller; its write still goes on.
    one.io.connection.end(&mut world.target);
    one.admin.connection.end(&mut world.target);
    assert!(!world.target.is_over(&fence));
    one.io.execute(0, &mut world);
    assert!(world.target.is_over(&fence));
    two.io.connection.complete(tag, Status::SUCCESS, &mut world.target);
    let (_, outcome) = two.io.outcome(&mut random, &mut world).unwrap();
    assert_eq!(outcome.status, Status::SUCCESS);
}

/// A write whose data arrive after another host has taken the reservation is not executed.
#[test]
fn write_is_checked_again_when_its_data_are_there() {
    let (mut random, mut world) = start(3);
    let mut one = open(1, &mut random, &mut world);
    let mut two = open(2, &mut random, &mut world);
    register(&mut two, 22, &mut random, &mut world);
    let long = Blocks { lba: 0, count: 256 };
    one.io.submit(nvm::write(1, long, false), vec![1; 256 << 9]).unwrap();
    // Until the command is there, but not all of its data.
    while one.io.connection.placement().is_none() {
        one.io.turn(&mut random, &mut world);
    }
    assert!(one.io.executing.is_empty());
    let status = acquire(&mut two, AcquireAction::Acquire, (22, 0), &mut random, &mut world);
    assert_eq!(status, Status::SUCCESS);
    let (_, outcome) = one.io.outcome(&mut random, &mut world).unwrap();
    assert!(outcome.status.is(Status::RESERVATION_CONFLICT));
    assert!(world.executed.is_empty());
}

/// Linux sends 256 ranges with every Dataset Management, of which the command counts those that it means, and two keys
/// with a Release.
#[test]
fn data_beyond_what_a_command_needs_are_ignored() {
    for in_capsule_bytes_max in [1024, 8192] {
        let mut random = Random::new(10);
        let limits = Limits { in_capsule_bytes_max, ..Limits::default() };
        let mut world = World::new(export(limits));
        let setting = Setting { limits, ..Setting::default() };
        let mut one = Session::open(login(1), &setting, &mut random, &mut world);
        let meant = Blocks { lba: 4, count: 4 };
        let mut ranges = nvm::write_ranges(&[meant]).to_vec();
        ranges.resize(nvm::RANGES_MAX * nvm::RANGE_BYTES, 0xff);
        let status = one.io.status(nvm::deallocate(1, 1), ranges, &mut random, &mut world);
        assert_eq!(status, Status::SUCCESS);
        let deallocate = Operation::Deallocate { nsid: 1, ranges: [meant].into() };
        assert_eq!(world.executed, [deallocate]);

        register(&mut one, 11, &mut random, &mut world);
        acquire(&mut one, AcquireAction::Acquire, (11, 0), &mut random, &mut world);
        let release = reservation::release(1, ReleaseAction::Release, EXCLUSIVE);
        let keys = reservation::keys(11, 0).to_vec();
        assert_eq!(one.io.status(release, keys, &mut random, &mut world), Status::SUCCESS);
        let short = one.io.status(release, vec![0; 4], &mut random, &mut world);
        assert!(short.is(Status::DATA_SGL_LENGTH_INVALID));
    }
}

#[test]
fn reset_is_over_when_the_writes_are() {
    for (value, before, after) in [
        (configuration::NVM, controller_status::READY, 0),
        (
            configuration::NVM | configuration::ENABLE | configuration::SHUTDOWN_NORMAL,
            controller_status::READY | 1 << 2,
            controller_status::READY | controller_status::SHUTDOWN_COMPLETE,
        ),
    ] {
        let (mut random, mut world) = start(4);
        let mut one = open(1, &mut random, &mut world);
        one.io.holds = true;
        let (command, data) = write();
        one.io.submit(command, data).unwrap();
        one.io.settle(&mut random, &mut world);
        let stop = property_set(Property::Configuration, value);
        assert_eq!(one.admin.status(stop, Vec::new(), &mut random, &mut world), Status::SUCCESS);
        assert!(one.admin.wanted.contains(&Event::Stopped));
        let mut status = |one: &mut Session, world: &mut World| {
            let get = property_get(Property::Status);
            one.admin.run(get, Vec::new(), &mut random, world).unwrap().0.result as u32
        };
        assert_eq!(status(&mut one, &mut world), before);
        assert!(!one.io.connection.is_live(&mut world.target));
        one.io.execute(0, &mut world);
        assert_eq!(status(&mut one, &mut world), after);
        one.io.settle(&mut Random::new(9), &mut world);
        let flush = one.io.submit(nvm::flush(1), Vec::new());
        assert!(flush.is_some());
        one.io.settle(&mut Random::new(9), &mut world);
        assert_eq!(one.io.connection.ended(), Some(Ended::ControllerGone));
    }
}

#[test]
fn queues_end_with_their_admin_queue() {
    let (mut random, mut world) = start(5);
    let mut one = open(1, &mut random, &mut world);
    assert_eq!(world.target.controllers(), 1);
    one.admin.connection.end(&mut world.target);
    one.admin.connection.end(&mut world.target);
    assert_eq!(world.target.controllers(), 0);
    one.io.submit(nvm::flush(1), Vec::new()).unwrap();
    one.io.settle(&mut random, &mut world);
    assert_eq!(one.io.connection.ended(), Some(Ended::ControllerGone));
    one.io.connection.end(&mut world.target);
}

#[test]
fn keep_alive_restarts_the_timer_that_connect_started() {
    let (mut random, mut world) = start(6);
    let mut one = open(1, &mut random, &mut world);
    assert_eq!(one.admin.wanted, [Event::KeepAlive { timeout_ms: 15_000 }]);
    one.admin.status(features::keep_alive(), Vec::new(), &mut random, &mut world);
    let longer = features::set(Feature::KeepAlive, 30_000);
    one.admin.status(longer, Vec::new(), &mut random, &mut world);
    let expected = [15_000, 15_000, 30_000].map(|timeout_ms| Event::KeepAlive { timeout_ms });
    assert_eq!(one.admin.wanted, expected);
    let get = features::get(Feature::KeepAlive);
    assert_eq!(one.admin.run(get, Vec::new(), &mut random, &mut world).unwrap().0.result, 30_000);
}

#[test]
fn host_learns_of_namespaces_that_come_and_go() {
    let (mut random, mut world) = start(7);
    let mut one = open(1, &mut random, &mut world);
    let request = one.admin.submit(features::async_event_request(), Vec::new()).unwrap();
    one.admin.settle(&mut random, &mut world);
    assert!(one.admin.outcomes.is_empty());
    assert!(world.target.set_namespaces(NQN, vec![namespace(2), namespace(1)]));
    assert!(!world.target.set_namespaces("nqn.none", Vec::new()));
    one.admin.connection.notify(&mut world.target);
    let (tag, outcome) = one.admin.outcome(&mut random, &mut world).unwrap();
    assert_eq!((tag, AsyncEvent::read(outcome.result)), (request, AsyncEvent::Namespaces));

    let changed = |keeps_event| {
        log::get(Page::ChangedNamespaces, Part { offset: 0, bytes: 4096, keeps_event })
    };
    for (keeps_event, expected) in [(true, vec![2]), (false, vec![2]), (false, vec![])] {
        let run = one.admin.run(changed(keeps_event), vec![9; 4096], &mut random, &mut world);
        let (_, data) = run.unwrap();
        let ids: Vec<u32> = identify::namespaces(data[..].try_into().unwrap()).collect();
        assert_eq!(ids, expected);
    }
    let list = identify(Structure::ActiveNamespaces, 0);
    let (_, data) = one.admin.run(list, vec![0; 4096], &mut random, &mut world).unwrap();
    assert_eq!(identify::namespaces(data[..].try_into().unwrap()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn host_that_is_preempted_is_told() {
    let (mut random, mut world) = start(8);
    let mut one = open(1, &mut random, &mut world);
    let mut two = open(2, &mut random, &mut world);
    register(&mut one, 11, &mut random, &mut world);
    register(&mut two, 22, &mut random, &mut world);
    acquire(&mut one, AcquireAction::Acquire, (11, 0), &mut random, &mut world);
    let before = world.target.changes();
    let status = acquire(&mut two, AcquireAction::Preempt, (22, 11), &mut random, &mut world);
    assert_eq!(status, Status::SUCCESS);
    assert!(world.target.changes() > before, "the caller learns that hosts want to be told");
    // The request comes after the event, and is answered at once.
    one.admin.submit(features::async_event_request(), Vec::new()).unwrap();
    let (_, outcome) = one.admin.outcome(&mut random, &mut world).unwrap();
    assert_eq!(AsyncEvent::read(outcome.result), AsyncEvent::Reservation);
    let get = log::get(Page::Reservation, Part { offset: 0, bytes: 64, keeps_event: false });
    let (_, data) = one.admin.run(get, vec![0; 64], &mut random, &mut world).unwrap();
    let kind = ReservationNoticeKind::RegistrationPreempted;
    let expected = ReservationNotice { number: 1, kind, more: 0, nsid: 1 };
    assert_eq!(ReservationNotice::read(data[..].try_into().unwrap()), expected);
    let (_, data) = one.admin.run(get, vec![0; 64], &mut random, &mut world).unwrap();
    assert_eq!(ReservationNotice::read(data[..].try_into().unwrap()).number, 0);
}

#[test]
fn requests_for_events_beyond_the_limit_are_refused() {
    let (mut random, mut world) = start(9);
    let mut one = open(1, &mut random, &mut world);
    for _ in 0..5 {
        one.admin.submit(features::async_event_request(), Vec::new()).unwrap();
    }
    let (_, outcome) = one.admin.outcome(&mut random, &mut world).unwrap();
    assert!(outcome.status.is(Status::ASYNC_EVENT_LIMIT));
}

fn entry(number: u16) -> DiscoveryEntry {
    DiscoveryEntry {
        kind: SubsystemKind::Nvm,
        subsystem_nqn: format!("{NQN}{number}"),
        address: "192.0.2.1".into(),
        port: 4420 + number,
        port_id: number,
        tls: false,
    }
}

/// A target that listens everywhere does not know its address; each connection does.
#[test]
fn discovery_names_the_address_that_the_host_has_reached() {
    let (mut random, mut world) = start(12);
    let any = |number, address: &str| DiscoveryEntry { address: address.into(), ..entry(number) };
    world.target.set_discovery(vec![any(0, "0.0.0.0"), any(1, "::"), any(2, "10.0.0.9")]);
    for (reached, told) in [
        (None, ["0.0.0.0", "::"]),
        (Some("::ffff:10.0.0.5"), ["10.0.0.5"; 2]),
        (Some("fd00::5"), ["fd00::5"; 2]),
    ] {
        let mut pair = Pair::new(QueueConfig::default(), ConnectionConfig::default());
        if let Some(address) = reached {
            pair.connection.set_address(address.parse().unwrap());
        }
        set_up(&mut pair, set_up_config(discovery_login()), &mut random, &mut world).unwrap();
        let part = Part { offset: 1024, bytes: 3072, keeps_event: false };
        let get = log::get(Page::Discovery, part);
        let (_, data) = pair.run(get, vec![0; 3072], &mut random, &mut world).unwrap();
        let found: Vec<_> = data.as_chunks().0.iter().filter_map(DiscoveryEntry::read).collect();
        let addresses: Vec<_> = found.iter().map(|entry| &*entry.address).collect();
        assert_eq!(addresses, [told[0], told[1], "10.0.0.9"]);
    }
}

#[test]
fn discovery_lists_what_the_target_tells_even_if_it_changes_meanwhile() {
    let (mut random, mut world) = start(10);
    let entries: Vec<_> = (0..11).map(entry).collect();
    world.target.set_discovery(entries.clone());
    let mut pair = Pair::new(QueueConfig::default(), ConnectionConfig::default());
    let config = set_up_config(discovery_login());
    let controller = set_up(&mut pair, config, &mut random, &mut world).unwrap();
    assert_eq!((controller.namespace, controller.io_queues), (None, 0));

    let mut discovery = Discovery::default();
    let mut commands = 0;
    loop {
        let (command, bytes) = match discovery.step() {
            Step::Submit { command, bytes, .. } => (command, bytes),
            Step::Wait => panic!("nothing to wait for"),
            Step::Done => break,
        };
        commands += 1;
        if commands == 3 {
            world.target.set_discovery(entries[..9].to_vec());
        }
        let run = pair.run(command, vec![0; bytes as usize], &mut random, &mut world);
        let (outcome, data) = run.unwrap();
        discovery.completed(&outcome, &data).unwrap();
    }
    assert_eq!(discovery.entries(), Some(&entries[..9]));
    assert_eq!(commands, 5 + 5, "head, three reads, check; and once more");

    pair.submit(features::async_event_request(), Vec::new()).unwrap();
    world.target.set_discovery(entries);
    pair.settle(&mut random, &mut world);
    pair.connection.notify(&mut world.target);
    let (_, outcome) = pair.outcome(&mut random, &mut world).unwrap();
    assert_eq!(AsyncEvent::read(outcome.result), AsyncEvent::Discovery);
    let list = identify(Structure::ActiveNamespaces, 0);
    let status = pair.status(list, vec![0; 4096], &mut random, &mut world);
    assert!(status.is(Status::INVALID_FIELD), "a discovery controller has no namespaces");
}

#[test]
fn set_up_says_what_is_wrong_with_a_subsystem() {
    let mut two = export(Limits::default());
    two.namespaces = vec![namespace(1), namespace(2)];
    let mut closed = export(Limits::default());
    closed.allowed_hosts = Some(Vec::new());
    let status = Status::CONNECT_INVALID_HOST.do_not_retry();
    let cases = [
        (two.clone(), None, Some(SetUpError::NamespaceNotNamed(2))),
        (two.clone(), Some(2), None),
        (two, Some(3), Some(SetUpError::NoNamespace(3))),
        (closed, None, Some(SetUpError::Status { step: "connect", status })),
    ];
    for (export, nsid, expected) in cases {
        let (mut random, mut world) = (Random::new(11), World::new(export));
        let mut pair = Pair::new(QueueConfig::default(), ConnectionConfig::default());
        let config = terrace_nvme::host::SetUpConfig { nsid, ..set_up_config(login(1)) };
        let result = set_up(&mut pair, config, &mut random, &mut world);
        assert_eq!(result.as_ref().err(), expected.as_ref());
        let found = result.ok().and_then(|controller| controller.namespace).map(|one| one.nsid);
        assert_eq!(found, nsid.filter(|_| expected.is_none()));
    }
}

#[test]
fn pages_and_features_that_hosts_ask_for_are_there() {
    let (mut random, mut world) = start(12);
    let mut one = open(1, &mut random, &mut world);
    for (page, bytes) in
        [(Page::Error, 64), (Page::Health, 512), (Page::Firmware, 512), (Page::Effects, 4096)]
    {
        let get = log::get(page, Part { offset: 0, bytes, keeps_event: false });
        let status = one.admin.status(get, vec![0; bytes as usize], &mut random, &mut world);
        assert_eq!(status, Status::SUCCESS, "{page:?}");
    }
    let beyond = log::get(Page::Health, Part { offset: 1024, bytes: 4, keeps_event: false });
    assert!(
        one.admin.status(beyond, vec![0; 4], &mut random, &mut world).is(Status::INVALID_FIELD)
    );
    let discovery = log::get(Page::Discovery, Part { offset: 0, bytes: 1024, keeps_event: false });
    let status = one.admin.status(discovery, vec![0; 1024], &mut random, &mut world);
    assert!(status.is(Status::INVALID_LOG_PAGE));
    let run = one.admin.run(features::get(Feature::HostId), vec![0; 16], &mut random, &mut world);
    assert_eq!(run.unwrap().1, [1; 16]);
    let cache = features::set(Feature::VolatileWriteCache, 0);
    let status = one.admin.status(cache, Vec::new(), &mut random, &mut world);
    assert!(status.is(Status::FEATURE_NOT_CHANGEABLE));
}

#[test]
fn read_only_namespace_is_read() {
    let mut fixed = export(Limits::default());
    fixed.namespaces[0].read_only = true;
    let (mut random, mut world) = (Random::new(13), World::new(fixed));
    let mut one = open(1, &mut random, &mut world);
    let (command, data) = write();
    assert!(one.io.status(command, data, &mut random, &mut world).is(Status::WRITE_PROTECTED));
    let read = nvm::read(1, Blocks { lba: 0, count: 1 });
    assert_eq!(one.io.status(read, vec![0; 512], &mut random, &mut world), Status::SUCCESS);
    assert!(world.executed.iter().all(|operation| !Operation::is_write(operation)));
}
