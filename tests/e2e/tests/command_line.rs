//! The process: what it prints, exit codes, the background, pid files, signals, configuration.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{
    Client, Server, free_port, is_terrace, run_as_root, skip, state_dir, wait_until,
};

/// Skips tests of what is Terrace's own.
fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's command line");
    }
    !is_terrace()
}

#[test]
fn wrong_flags_end_with_one_line() {
    if others("wrong_flags_end_with_one_line") {
        return;
    }
    for (code, flags, says) in [
        (1, "--bogus", "--bogus: no such flag"),
        (1, "--thread 4 --porrt 1", "did you mean --port?"),
        (64, "-m lots", "-m lots: a size is a whole number"),
        (64, "-m 64 -I 2g", "-I 2g: the longest value can be set from 1k to 1g"),
        (1, "--tier pmem:/mnt/p:1g", "not in this version"),
        (1, "benchmark", "benchmark: every setting is a flag"),
    ] {
        let failed = Server::run(flags);
        assert_eq!(failed.code, Some(code), "{flags}: {}", failed.output);
        assert_eq!(failed.output.lines().count(), 1, "{flags}: {}", failed.output);
        assert!(failed.output.starts_with("terrace: "), "{flags}: {}", failed.output);
        assert!(failed.output.contains(says), "{flags}: {}", failed.output);
    }
}

#[test]
fn help_version_and_licence_are_printed() {
    if others("help_version_and_licence_are_printed") {
        return;
    }
    for (flag, says) in [
        ("-h", "--memory-limit"),
        ("--help", "--tier"),
        ("-V", "terrace 0."),
        ("--version", "terrace 0."),
        ("-i", "Apache License"),
    ] {
        let ended = Server::run(flag);
        assert_eq!(ended.code, Some(0), "{flag}: {}", ended.output);
        assert!(ended.output.contains(says), "{flag}: {}", ended.output);
    }
}

#[test]
fn it_says_what_it_runs_with() {
    if others("it_says_what_it_runs_with") {
        return;
    }
    let server = Server::start("-m 64 -t 2 --tier ssd:DIR/tier:128m -o hashpower=20");
    server.client().check("mn\r\n", "MN\r\n");
    let output = server.output();
    let address = server.address().to_string();
    for says in ["INFO terrace 0.", &address, "/tier", "128 MiB", "2 threads", "-o hashpower=20: "]
    {
        assert!(output.contains(says), "{says:?} is not in:\n{output}");
    }
    assert!(output.contains("io_uring") || output.contains("pool"), "no I/O engine in:\n{output}");
    assert!(!output.contains("WARN listening"), "{output}");
    assert!(output.lines().count() < 25, "{output}");
    let is_short = |server: &Server| server.output().contains("WARN index: room for");
    assert!(!is_short(&server));
    let short = Server::start("-m 16 --tier ssd:DIR/tier:2g");
    assert!(is_short(&short), "{}", short.output());
    let refused = Server::run("-m 4 --tier ssd:DIR/tier:2g");
    assert_ne!(refused.code, Some(0), "{}", refused.output);
    let names_both = ["4 MiB of memory are too few", "give at least", "records of 512 bytes"];
    assert!(names_both.iter().all(|says| refused.output.contains(says)), "{}", refused.output);
}

#[test]
fn root_must_say_whom_to_run_as() {
    if others("root_must_say_whom_to_run_as") {
        return;
    }
    if !run_as_root() {
        skip("root_must_say_whom_to_run_as", "this is not root");
        return;
    }
    let failed = Server::run("-u no-such-user-here");
    assert_eq!(failed.code, Some(67), "{}", failed.output);
    let mut server = Server::start("-u nobody");
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("its status");
    let ids = status.lines().find(|line| line.starts_with("Uid:")).expect("its user");
    assert!(!ids.split_whitespace().skip(1).any(|id| id == "0"), "still root: {ids}");
    server.assert_alive();
}

#[test]
fn core_dumps_are_left_even_by_another_user() {
    use std::os::unix::fs::MetadataExt;
    let test = "core_dumps_are_left_even_by_another_user";
    if others(test) {
        return;
    }
    if !run_as_root() {
        return skip(test, "this is not root");
    }
    let server = Server::start("-r -u nobody");
    let of_it = format!("/proc/{}", server.pid());
    let limits = fs::read_to_string(format!("{of_it}/limits")).expect("its limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a line");
    assert!(core.contains("unlimited"), "{core}");
    // Files of a process that leaves no core are shown as root's.
    let file = fs::metadata(format!("{of_it}/environ")).expect("it runs");
    assert_ne!(file.uid(), 0, "it would leave none");
}

/// As with memcached. The last of so many clients have to wait for a descriptor.
#[test]
fn as_many_open_files_as_connections_are_enough_to_start() {
    let test = "as_many_open_files_as_connections_are_enough_to_start";
    if others(test) {
        return;
    }
    // Root could raise the limit.
    let wrapper = match run_as_root() {
        true => "setpriv --bounding-set=-sys_resource prlimit --nofile=300:300",
        false => "prlimit --nofile=300:300",
    };
    let mut server = match Server::try_start_under(wrapper, "-m 64 -c 300") {
        Ok(server) => server,
        Err(failed) => panic!("exit code {:?}: {}", failed.code, failed.output),
    };
    let output = server.output();
    assert!(output.contains("WARN -c 300: the system allows 300 open files"), "{output}");
    let mut clients: Vec<_> = (0..295).map(|_| server.client()).collect();
    clients[100].check("mn\r\n", "MN\r\n");
    clients[294].send("mn\r\n");
    drop(clients.drain(..200));
    clients.last_mut().expect("one that waited").expect("MN\r\n");
    server.assert_alive();

    // Here not even one client would fit.
    let none = wrapper.replace("300", "60");
    let failed = Server::run_under(&none, "-m 64 -c 50");
    assert_eq!(failed.code, Some(71), "{}", failed.output);
    assert!(failed.output.contains("raise `ulimit -n`"), "{}", failed.output);
}

#[test]
fn signals_stop_it() {
    let server = Server::start("-m 64");
    let mut client = server.client();
    assert!(client.set("k", b"v"));
    let code = server.stop();
    assert_eq!(code, Some(0));
    client.closed();
}

/// As with memcached: a service manager may have opened a socket, or nobody has finished the configuration.
#[test]
fn a_server_without_a_port_runs_until_it_is_stopped() {
    if others("a_server_without_a_port_runs_until_it_is_stopped") {
        return;
    }
    use std::io::{BufRead, BufReader};
    let dir = TempDir::new().expect("a directory");
    let mut server = terrace_e2e::spawn_with("-m 64 -p 0", &dir, |command| {
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    });
    let warnings = BufReader::new(server.stderr.take().expect("a pipe"));
    let mut warnings = warnings.lines().map_while(Result::ok);
    assert!(warnings.any(|line| line.contains("WARN -p 0: no client gets in")));
    let output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut lines = output.lines().map_while(Result::ok);
    // The last line of a start without listeners.
    assert!(lines.any(|line| line.contains("INFO memory: at most ")));
    wait_until("signals taken on", || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.id())).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        (u64::from_str_radix(caught.trim(), 16).ok()? & 1 << 14 != 0).then_some(())
    });
    assert!(server.try_wait().expect("a child can be waited for").is_none());
    let pid = server.id().to_string();
    assert!(Command::new("kill").arg(pid).status().expect("kill runs").success());
    assert_eq!(server.wait().expect("an end").code(), Some(0));
}

#[test]
fn a_taken_port_is_told() {
    let first = Server::start("-m 64");
    let port = first.address().port();
    let failed = Server::run(&format!("-m 64 -l 127.0.0.1 -p {port}"));
    assert_eq!(failed.code, Some(71), "{}", failed.output);
    assert!(failed.output.contains("in use"), "{}", failed.output);
}

#[test]
fn a_start_that_is_refused_leaves_no_files() {
    if others("a_start_that_is_refused_leaves_no_files") {
        return;
    }
    let first = Server::start("-m 64");
    let port = first.address().port();
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().display();
    let state = state_dir(dir.path());
    let state = state.display();
    let tier = format!("--tier ssd:{path}/tier:64M");
    // A port that is taken, a folder that is not there, a tier too large for the memory.
    for flags in [
        format!("-p {port} {tier} --state {state}"),
        format!("-p -1 {tier} --state {state}/none"),
        format!("-p -1 {tier} --tier ssd:{path}/large:4g --state {state} -m 1"),
    ] {
        let failed = Server::run(&format!("-m 64 -l 127.0.0.1 {flags}"));
        assert_eq!(failed.code, Some(71), "{}", failed.output);
        assert_eq!(files_in(&dir), 0, "{flags}");
    }
}

/// Its tier and its state are complete by then.
#[test]
fn a_start_without_enough_threads_leaves_no_files() {
    use std::os::unix::fs::PermissionsExt;
    const NAME: &str = "a_start_without_enough_threads_leaves_no_files";
    if others(NAME) {
        return;
    }
    if !run_as_root() {
        return skip(NAME, "the limit counts all that this user runs");
    }
    let dir = TempDir::new().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("for all");
    let path = dir.path().display();
    let state = state_dir(dir.path());
    let flags = format!("-u nobody -m 64 -t 64 -l 127.0.0.1 -p -1 --tier ssd:{path}/tier:64M");
    let failed =
        Server::run_under("prlimit --nproc=40", &format!("{flags} --state {}", state.display()));
    assert_eq!(failed.code, Some(71), "{}", failed.output);
    assert!(!failed.output.contains("listening on"), "{}", failed.output);
    assert_eq!(files_in(&dir), 0, "{}", failed.output);
}

/// Files of servers in this directory, and states that go with them.
fn files_in(dir: &TempDir) -> usize {
    let count = |path: &std::path::Path| fs::read_dir(path).expect("a directory").count();
    count(dir.path()) + count(&state_dir(dir.path()))
}

#[test]
fn a_running_server_keeps_its_unix_socket() {
    use std::os::unix::net::UnixStream;
    if others("a_running_server_keeps_its_unix_socket") {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("socket");
    let flags = format!("-m 64 -s {}", path.display());
    let mut first = terrace_e2e::spawn(&flags, &dir);
    wait_until("a connection", || UnixStream::connect(&path).ok());
    let refused = Server::run(&flags);
    assert_eq!(refused.code, Some(71), "{}", refused.output);
    assert!(refused.output.contains("in use"), "{}", refused.output);
    UnixStream::connect(&path).expect("the first one still answers");
    // What it leaves behind is taken over.
    let _ = first.kill();
    let _ = first.wait();
    let mut second = terrace_e2e::spawn(&flags, &dir);
    wait_until("a connection", || UnixStream::connect(&path).ok());
    let _ = second.kill();
    let _ = second.wait();
}

#[test]
fn a_unix_socket_serves_too() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("socket");
    let flags = format!("-m 64 -s {} -a 600", path.display());
    let mut server = terrace_e2e::spawn(&flags, &dir);
    let mut stream = wait_until("a connection", || UnixStream::connect(&path).ok());
    stream.write_all(b"set k 0 0 1\r\nx\r\nget k\r\nquit\r\n").expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers and closes");
    assert_eq!(reply, "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    let mode = fs::metadata(&path).expect("the socket").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn the_background_is_entered_when_ready() {
    let dir = TempDir::new().expect("a directory");
    let port = free_port();
    let pid_file = dir.path().join("pid");
    let flags = format!("-d -P {} -m 64 -l 127.0.0.1 -p {port}", pid_file.display());
    let started = Server::run(&flags);
    assert_eq!(started.code, Some(0), "{}", started.output);
    if !is_terrace() {
        // memcached's parent does not wait for its child.
        wait_until("a pid file", || pid_file.exists().then_some(()));
    }
    let pid: u32 = fs::read_to_string(&pid_file)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .expect("a process id in the pid file");
    let stop = || Command::new("kill").arg(pid.to_string()).status().expect("kill runs");
    let result = std::panic::catch_unwind(|| {
        let address = ([127, 0, 0, 1], port).into();
        Client::connect(address).check("mn\r\n", "MN\r\n");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        let fields: Vec<_> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(fields[3], pid.to_string(), "it leads no session of its own");
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).ok(), Some("/".into()));
        if is_terrace() {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).expect("its name");
            assert_eq!(comm.trim(), "terrace", "nobody finds it by that name");
            // A second one can't have the port: the line and the exit code come through.
            let failed = Server::run(&flags);
            assert_eq!(failed.code, Some(71), "{}", failed.output);
            assert!(failed.output.contains("in use"), "{}", failed.output);
            let text = fs::read_to_string(&pid_file).expect("the pid file");
            assert_eq!(text.trim(), pid.to_string(), "the second took the pid file");
        }
    });
    assert!(stop().success());
    let exe = format!("/proc/{pid}/exe");
    wait_until("the end of the daemon", || fs::metadata(&exe).is_err().then_some(()));
    result.expect("the daemon behaves");
    if is_terrace() {
        assert!(!pid_file.exists(), "the pid file is left behind");
    }
}

#[test]
fn a_file_configures_it() {
    if others("a_file_configures_it") {
        return;
    }
    let dir = Arc::new(TempDir::new().expect("a directory"));
    let text = format!(
        "memory-limit = 96\nthreads = 1\ntier = \"ssd:{}/tier:128m\"\n\
         [extended]\nidle_timeout = 77\n",
        dir.path().display()
    );
    fs::write(dir.path().join("terrace.toml"), text).expect("the file");
    let flags = "--config DIR/terrace.toml -t 3";
    let server = match Server::try_start(flags, Arc::clone(&dir)) {
        Ok(server) => server,
        Err(failed) => panic!("{}", failed.output),
    };
    let settings = server.client().stats("settings");
    for (name, value) in [("maxbytes", "100663296"), ("num_threads", "3"), ("idle_timeout", "77")] {
        assert_eq!(settings.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(dir.path().join("tier").exists());
}

#[test]
fn more_descriptors_are_asked_for() {
    let mut server = Server::start("-m 64 -c 3000");
    let mut clients: Vec<_> = (0..1500).map(|_| server.client()).collect();
    for client in &mut clients {
        client.check("mn\r\n", "MN\r\n");
    }
    server.assert_alive();
}
