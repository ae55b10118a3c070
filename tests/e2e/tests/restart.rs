//! Restarts of the real binary: what is warm, what is cold and says why, what is refused.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{
    Client, Server, count_right, is_terrace, skip, state_dir, tier_stat, value_of, wait_until,
};

const FLAGS: &str = "-m 24 -t 2 --tier ssd:DIR/tier:128m";
const RECORDS: usize = 10_000;

fn needs_terrace(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "needs Terrace");
    }
    is_terrace()
}

fn filled(flags: &str) -> Server {
    let server = Server::start(flags);
    terrace_e2e::fill(&mut server.client(), "key", RECORDS, 300);
    server
}

fn start(flags: &str, dir: &Arc<TempDir>) -> Server {
    match Server::try_start(flags, Arc::clone(dir)) {
        Ok(server) => server,
        Err(failed) => panic!("{flags}: {}", failed.output),
    }
}

fn wait_until_ready(client: &mut Client) {
    wait_until("the end of the recovery", || {
        (client.stats("tiers")["recovery"] == "ready").then_some(())
    });
}

/// How many of the records are there; each must be right.
fn found(server: &Server) -> usize {
    let mut client = server.client();
    wait_until_ready(&mut client);
    count_right(&mut client, "key", RECORDS, 300)
}

fn state_file(dir: &TempDir) -> PathBuf {
    let entries = std::fs::read_dir(state_dir(dir.path())).expect("a directory");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    paths.find(|path| path.extension().is_some_and(|e| e == "state")).expect("a state file")
}

/// Removes what a clean stop leaves of the state: a page.
fn remove_page(dir: &TempDir) {
    let entries = std::fs::read_dir(state_dir(dir.path())).expect("a directory");
    let paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let [page] = &paths[..] else { panic!("{paths:?}") };
    assert_eq!(page.extension().and_then(|e| e.to_str()), Some("epoch"));
    assert_eq!(page.metadata().expect("a file").len(), 4096);
    std::fs::remove_file(page).expect("removed");
}

#[test]
fn a_clean_stop_is_warm_even_without_the_state() {
    if !needs_terrace("a_clean_stop_is_warm_even_without_the_state") {
        return;
    }
    let server = filled(FLAGS);
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    let server = start(FLAGS, &dir);
    assert_eq!(found(&server), RECORDS);
    assert_eq!(server.stop(), Some(0));
    remove_page(&dir);
    let server = start(FLAGS, &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    assert!(!server.output().to_lowercase().contains("cold"), "{}", server.output());
}

/// It has made a state anew by then, and told the tier of it.
#[test]
fn a_start_that_fails_late_costs_nothing() {
    if !needs_terrace("a_start_that_fails_late_costs_nothing") {
        return;
    }
    let server = filled(FLAGS);
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    remove_page(&dir);
    let wrong = [("MEMCACHED_PORT_FILENAME", "DIR/none/ports")];
    let failed = Server::try_start_with(FLAGS, Arc::clone(&dir), &wrong);
    assert_eq!(failed.err().and_then(|failed| failed.code), Some(71));
    let server = start(FLAGS, &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
}

/// memcached comes back warm by `-e` and SIGUSR1 or `shutdown graceful` alone.
#[test]
fn whatever_stops_it_it_is_warm_with_and_without_memcacheds_flag_for_it() {
    use rustix::process::{Pid, Signal, kill_process};
    if !needs_terrace("whatever_stops_it_it_is_warm_with_and_without_memcacheds_flag_for_it") {
        return;
    }
    let flags = format!("{FLAGS} -A -e DIR/memory");
    let mut server = filled(&flags);
    assert!(server.output().contains("-e"), "it is not said that -e has no effect");
    let dir = Arc::clone(&server.dir);
    let signal = |server: &Server, signal| {
        let pid = Pid::from_raw(server.pid() as i32).expect("a process");
        kill_process(pid, signal).expect("a signal");
    };
    let ways: [&dyn Fn(&Server); 4] = [
        &|server| signal(server, Signal::INT),
        &|server| signal(server, Signal::USR1),
        &|server| server.client().send("shutdown\r\n"),
        &|server| server.client().send("shutdown graceful\r\n"),
    ];
    for (number, way) in ways.iter().enumerate() {
        way(&server);
        assert_eq!(server.ended(), Some(0), "way {number}");
        // It is sealed, not only kept in the state.
        remove_page(&dir);
        server = start(&flags, &dir);
        assert_eq!(found(&server), RECORDS, "way {number}: {}", server.output());
    }
}

#[test]
fn a_kill_is_warm_with_the_state_and_cold_without() {
    if !needs_terrace("a_kill_is_warm_with_the_state_and_cold_without") {
        return;
    }
    let dir = filled(FLAGS).kill();
    // As who lets it have more memory, or less, since it was killed for it.
    for memory in ["-m 24", "-m 200", "-m 16"] {
        let server = start(&FLAGS.replace("-m 24", memory), &dir);
        assert_eq!(found(&server), RECORDS, "{memory}: {}", server.output());
        server.kill();
    }
    std::fs::remove_file(state_file(&dir)).expect("removed");
    let refused = Server::try_start(&format!("{FLAGS} --on-mismatch refuse"), Arc::clone(&dir));
    let failed = refused.err().expect("it is not to start cold");
    assert_eq!(failed.code, Some(71));
    assert!(failed.output.contains("--on-mismatch cold"), "{}", failed.output);
    let server = start(FLAGS, &dir);
    assert!(server.output().contains("the state of the last run is missing"));
    assert_eq!(found(&server), 0);
}

#[test]
fn strict_mode_is_warm_without_the_state() {
    if !needs_terrace("strict_mode_is_warm_without_the_state") {
        return;
    }
    let flags = &format!("{FLAGS} --durability strict");
    let server = filled(flags);
    let mut client = server.client();
    client.check("delete key5\r\n", "DELETED\r\n");
    client.check("set key6 0 0 3\r\nnew\r\n", "STORED\r\n");
    // What lies in full segments is written soon, and not at once.
    let sealed = RECORDS as u64 / 2;
    wait_until("full segments", || (tier_stat(&mut client, "records") > sealed).then_some(()));
    let dir = server.kill();
    std::fs::remove_file(state_file(&dir)).expect("removed");
    let server = start(flags, &dir);
    let mut client = server.client();
    wait_until_ready(&mut client);
    assert!(client.get("key5").is_none() && client.get("key6").is_none(), "not sealed, or deleted");
    let found = found_except(&server, &[5, 6]);
    assert!(found > RECORDS / 4 && found < RECORDS, "{found} are back");
}

fn found_except(server: &Server, except: &[usize]) -> usize {
    let mut client = server.client();
    let keys = (0..RECORDS).filter(|n| !except.contains(n));
    keys.filter(|n| {
        let key = format!("key{n}");
        let value = client.get(&key);
        assert!(value.as_ref().is_none_or(|value| *value == value_of(&key, 0, 300)), "{key}");
        value.is_some()
    })
    .count()
}

#[test]
fn damaged_and_foreign_tiers_are_told_apart() {
    if !needs_terrace("damaged_and_foreign_tiers_are_told_apart") {
        return;
    }
    let server = filled(FLAGS);
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    let tier = dir.path().join("tier");
    let file = OpenOptions::new().write(true).open(&tier).expect("the tier");
    // There are two superblocks, of which one is enough.
    file.write_all_at(&[0xff; 8], 200).expect("written");
    let server = start(FLAGS, &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    assert_eq!(server.stop(), Some(0));
    file.write_all_at(&[0xff; 8], 200).expect("written");
    file.write_all_at(&[0xff; 8], 4096 + 200).expect("written");
    let server = start(FLAGS, &dir);
    assert!(server.output().contains("its superblock is damaged"), "{}", server.output());
    assert_eq!(found(&server), 0);
    let dir = server.kill();
    // Zeroed: as new.
    file.write_all_at(&[0; 4096], 0).expect("written");
    let server = start(FLAGS, &dir);
    assert_eq!(found(&server), 0);
    let dir = server.kill();
    // Somebody else's.
    file.write_all_at(b"PRECIOUS", 0).expect("written");
    let failed = Server::try_start(FLAGS, Arc::clone(&dir)).err().expect("it is refused");
    assert!(failed.output.contains("holds data that Terrace did not write"), "{}", failed.output);
    let mut head = [0; 8];
    let file = std::fs::File::open(&tier).expect("the tier");
    file.read_exact_at(&mut head, 0).expect("read");
    assert_eq!(&head, b"PRECIOUS");
}

#[test]
fn larger_tier_and_another_memory_are_warm() {
    if !needs_terrace("larger_tier_and_another_memory_are_warm") {
        return;
    }
    let server = filled(FLAGS);
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    let server = start(&FLAGS.replace("-m 24", "-m 40"), &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    assert_eq!(server.stop(), Some(0));
    let larger = FLAGS.replace("128m", "160m");
    let server = start(&format!("{larger} --on-mismatch refuse"), &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    drop(server.kill());
    let server = start(&FLAGS.replace("128m", "96m"), &dir);
    server.output_with("the file takes 160 MiB, of which 64 MiB are not used");
}

#[test]
fn files_are_for_their_owner_only() {
    if !needs_terrace("files_are_for_their_owner_only") {
        return;
    }
    let server = Server::start(FLAGS);
    for path in [server.dir.path().join("tier"), state_file(&server.dir)] {
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
}

#[test]
fn a_stop_without_time_is_like_a_crash() {
    if !needs_terrace("a_stop_without_time_is_like_a_crash") {
        return;
    }
    let flags = &format!("{FLAGS} --stop-timeout 0");
    let server = filled(flags);
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    state_file(&dir);
    let server = start(flags, &dir);
    assert_eq!(found(&server), RECORDS);
}

/// A drive that is mounted elsewhere, or has another number.
#[test]
fn a_renamed_tier_is_warm_after_a_kill() {
    if !needs_terrace("a_renamed_tier_is_warm_after_a_kill") {
        return;
    }
    let dir = filled(FLAGS).kill();
    let state = state_file(&dir);
    std::fs::rename(dir.path().join("tier"), dir.path().join("moved")).expect("renamed");
    let server = start(&FLAGS.replace("DIR/tier", "DIR/moved"), &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
    assert_eq!(state_file(&dir), state);
}

#[test]
fn an_older_copy_of_a_tier_is_not_believed() {
    if !needs_terrace("an_older_copy_of_a_tier_is_not_believed") {
        return;
    }
    let server = filled(FLAGS);
    let dir = Arc::clone(&server.dir);
    let [tier, copy] = ["tier", "copy"].map(|name| dir.path().join(name));
    assert_eq!(server.stop(), Some(0));
    std::fs::copy(&tier, &copy).expect("room");
    let server = start(FLAGS, &dir);
    server.client().check("delete key5\r\n", "DELETED\r\n");
    assert_eq!(server.stop(), Some(0));
    std::fs::rename(&copy, &tier).expect("renamed");
    let server = start(FLAGS, &dir);
    assert!(server.output().contains("holds an older content than the last run left"));
    assert_eq!(found(&server), 0);
}

#[test]
fn a_state_whose_tier_is_gone_is_named() {
    if !needs_terrace("a_state_whose_tier_is_gone_is_named") {
        return;
    }
    let dir = filled(FLAGS).kill();
    let orphan = state_file(&dir);
    std::fs::remove_file(dir.path().join("tier")).expect("removed");
    let server = start(FLAGS, &dir);
    let rm = format!("rm {}\n", orphan.display());
    assert!(server.output_with("listening").contains(&rm), "{}", server.output());
    assert_eq!(found(&server), 0);
    std::fs::remove_file(orphan).expect("it is still there");
}

/// It has nothing else.
#[test]
fn without_tiers_the_state_stays() {
    if !needs_terrace("without_tiers_the_state_stays") {
        return;
    }
    let flags = "-m 64 --state DIR";
    let server = filled(flags);
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    state_file(&dir);
    let server = start(flags, &dir);
    assert_eq!(found(&server), RECORDS, "{}", server.output());
}

/// A build whose format has the next version reads what this one wrote; this one does not read what
/// that one wrote, and says so.
#[test]
fn an_upgrade_is_warm_and_a_rollback_is_cold() {
    let name = "an_upgrade_is_warm_and_a_rollback_is_cold";
    if !needs_terrace(name) {
        return;
    }
    let Some(next) = std::env::var_os("TERRACE_E2E_NEXT_FORMAT").map(PathBuf::from) else {
        return skip(name, "TERRACE_E2E_NEXT_FORMAT names no build of the next format");
    };
    for clean in [false, true] {
        let server = filled(FLAGS);
        let dir = Arc::clone(&server.dir);
        match clean {
            true => assert_eq!(server.stop(), Some(0)),
            false => drop(server.kill()),
        }
        let upgraded = Server::try_start_build(&next, FLAGS, Arc::clone(&dir));
        let server = upgraded.unwrap_or_else(|failed| panic!("{}", failed.output));
        assert_eq!(found(&server), RECORDS, "{}", server.output());
        match clean {
            true => assert_eq!(server.stop(), Some(0)),
            false => drop(server.kill()),
        }
        let refused = Server::try_start(&format!("{FLAGS} --on-mismatch refuse"), Arc::clone(&dir));
        let failed = refused.err().expect("it is refused");
        assert!(failed.output.contains("was written in format 5"), "{}", failed.output);
        let server = start(FLAGS, &dir);
        assert!(server.output().contains("was written in format 5"), "{}", server.output());
        assert_eq!(found(&server), 0);
    }
}
