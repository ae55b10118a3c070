//! Every argument list in charts.txt starts a server that serves: plainly, and in the box that a chart puts it in.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use terrace_e2e::{Client, free_port, is_terrace, program, run_as_root, skip, wait_until};

/// Where every list has its server listen.
const PORT: u16 = 11_211;
/// The user of most charts, who has no name.
const USER: u32 = 11_211;

/// One argument list, and what the server says of itself with it.
#[derive(Debug)]
struct List {
    title: &'static str,
    arguments: Vec<&'static str>,
    settings: Vec<(&'static str, &'static str)>,
}

fn lists() -> Vec<List> {
    let mut lists: Vec<List> = Vec::new();
    let lines = include_str!("charts.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(line) = line.strip_prefix("  ") else {
            lists.push(List { title: line, arguments: Vec::new(), settings: Vec::new() });
            continue;
        };
        let list = lists.last_mut().expect("a title before an argument");
        match line.strip_prefix("= ").and_then(|setting| setting.split_once(' ')) {
            Some(setting) => list.settings.push(setting),
            None => {
                let quoted = line.strip_prefix('"').and_then(|line| line.strip_suffix('"'));
                list.arguments.push(quoted.expect("an argument in quotes"));
            }
        }
    }
    assert!(lists.len() > 30, "only {} lists", lists.len());
    lists
}

/// Asks a server what `list` made of it, and has it serve.
fn check(list: &List, client: &mut Client) {
    let title = list.title;
    assert!(client.set("chart", b"value"), "{title}");
    assert_eq!(client.get("chart").as_deref(), Some(&b"value"[..]), "{title}");
    let found = client.stats("settings");
    for (name, value) in &list.settings {
        assert_eq!(found.get(*name).map(String::as_str), Some(*value), "{name} of {title}");
    }
}

/// A process that is not left behind, with what it printed.
struct Run {
    child: Child,
    dir: TempDir,
    container: Option<String>,
}

impl Run {
    fn start(mut command: Command, dir: TempDir, container: Option<String>) -> Self {
        let log = fs::File::create(dir.path().join("log")).expect("a log");
        let same = log.try_clone().expect("a descriptor");
        command.stdin(Stdio::null()).stdout(log).stderr(same);
        Self { child: command.spawn().expect("the command starts"), dir, container }
    }

    /// What `look` finds while the process runs.
    fn wait<T>(&mut self, list: &List, mut look: impl FnMut() -> Option<T>) -> T {
        wait_until(list.title, || {
            let ended = self.child.try_wait().expect("a child can be waited for");
            let log = || fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(ended.is_none(), "{list:?} ended, {ended:?}: {}", log());
            look()
        })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(name) = &self.container {
            let _ = Command::new("runc").args(["delete", "--force", name]).output();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that every user can write to, with a `data` in it.
fn open_dir() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    fs::create_dir(dir.path().join("data")).expect("a folder");
    for path in [dir.path(), &dir.path().join("data")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("its own folder");
    }
    dir
}

/// The arguments but `-l`: all tests of a machine share its addresses.
fn without_listeners<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        match argument.strip_prefix("-l") {
            Some("") => drop(rest.next()),
            Some(_) => {}
            None => kept.push(argument),
        }
    }
    kept
}

#[test]
fn argument_lists_of_charts_start_and_serve() {
    if !is_terrace() {
        return skip("argument_lists_of_charts_start_and_serve", "1.6.45 ends with some of them");
    }
    // Where every user can execute it.
    let binaries = open_dir();
    let binary = binaries.path().join("terrace");
    fs::copy(program(), &binary).expect("room for a copy");
    for list in lists() {
        let dir = open_dir();
        let mut command = Command::new(&binary);
        if run_as_root() {
            let ids = format!("--reuid={USER} --regid={USER} --clear-groups --inh-caps=-all");
            command = Command::new("setpriv");
            command.args(ids.split(' ')).arg(&binary);
        }
        let data = dir.path().join("data").display().to_string();
        let arguments = without_listeners(&list.arguments);
        command.args(arguments.iter().map(|argument| argument.replace("/data", &data)));
        let port = free_port();
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut run = Run::start(command, dir, None);
        run.wait(&list, || TcpStream::connect(address).ok());
        let moved = List {
            settings: list
                .settings
                .iter()
                .copied()
                .filter(|(name, _)| *name != "tcpport")
                .collect(),
            ..list
        };
        check(&moved, &mut Client::connect(address));
    }
}

/// What a chart's pod is to a process: a user without a name and capabilities, a root file system that can't be
/// written to, 64 MiB of /dev/shm, a network of its own.
fn write_bundle(dir: &Path, arguments: &[&str]) {
    fs::create_dir_all(dir.join("rootfs")).expect("a folder");
    let mount = |at: &str, kind: &str, source: &Path, options: &[&str]| {
        let source = source.display().to_string();
        format!(
            r#"{{"destination":{at:?},"type":{kind:?},"source":{source:?},"options":{options:?}}}"#
        )
    };
    let tmpfs = Path::new("tmpfs");
    let mut mounts = vec![
        mount("/proc", "proc", Path::new("proc"), &[]),
        mount("/sys/fs/cgroup", "cgroup", Path::new("cgroup"), &["ro"]),
        mount("/dev", "tmpfs", tmpfs, &["nosuid", "mode=755", "size=64k"]),
        mount("/dev/shm", "tmpfs", tmpfs, &["nosuid", "nodev", "mode=1777", "size=64m"]),
        mount("/data", "bind", &dir.join("data"), &["bind"]),
        mount("/bin/terrace", "bind", &program().canonicalize().expect("a path"), &["bind", "ro"]),
    ];
    let libraries = ["/lib", "/lib64", "/usr/lib"].iter().map(Path::new);
    mounts.extend(
        libraries
            .filter(|path| path.exists())
            .map(|path| mount(path.to_str().expect("text"), "bind", path, &["rbind", "ro"])),
    );
    let words: Vec<_> = ["/bin/terrace"].iter().chain(arguments).collect();
    let namespaces =
        ["pid", "mount", "ipc", "uts", "network"].map(|kind| format!(r#"{{"type":{kind:?}}}"#));
    let text = format!(
        r#"{{"ociVersion":"1.0.2","root":{{"path":"rootfs","readonly":true}},"process":{{"terminal":false,
        "user":{{"uid":{USER},"gid":{USER}}},"args":{words:?},"env":["PATH=/bin"],"cwd":"/","capabilities":{{}},
        "noNewPrivileges":true}},"mounts":[{}],"linux":{{"namespaces":[{}]}}}}"#,
        mounts.join(","),
        namespaces.join(","),
    );
    fs::write(dir.join("config.json"), text).expect("its own folder");
}

fn runc(dir: &Path, name: &str) -> Command {
    let mut command = Command::new("runc");
    command.arg("run").arg("--bundle").arg(dir).arg("--pid-file").arg(dir.join("pid")).arg(name);
    command
}

/// Whether containers can be run here; else why not.
fn can_run_containers() -> Result<(), String> {
    if !run_as_root() {
        return Err("this is not root".into());
    }
    let dir = open_dir();
    write_bundle(dir.path(), &["--version"]);
    let name = format!("terrace-probe-{}", std::process::id());
    match runc(dir.path(), &name).stdin(Stdio::null()).output() {
        Err(error) => Err(format!("no runc: {error}")),
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

/// Connects from within the network of a process, by IPv4 or IPv6.
fn connect_in(pid_file: PathBuf) -> Option<Client> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd;
    let connect = move || {
        let pid = fs::read_to_string(pid_file).ok()?;
        let network = fs::File::open(format!("/proc/{}/ns/net", pid.trim())).ok()?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        let local = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let addresses = local.map(|ip| SocketAddr::new(ip, PORT));
        addresses.into_iter().find(|at| TcpStream::connect(at).is_ok()).map(Client::connect)
    };
    // A thread of its own, which ends there.
    std::thread::spawn(connect).join().expect("it connects or not")
}

#[test]
fn argument_lists_of_charts_start_and_serve_in_their_pod() {
    let test = "argument_lists_of_charts_start_and_serve_in_their_pod";
    if !is_terrace() {
        return skip(test, "1.6.45 ends with some of them");
    }
    if let Err(why) = can_run_containers() {
        return skip(test, &why);
    }
    for (at, list) in lists().iter().enumerate() {
        let dir = open_dir();
        write_bundle(dir.path(), &list.arguments);
        let name = format!("terrace-chart-{}-{at}", std::process::id());
        let (command, pid_file) = (runc(dir.path(), &name), dir.path().join("pid"));
        let mut run = Run::start(command, dir, Some(name));
        let mut client = run.wait(list, || connect_in(pid_file.clone()));
        check(list, &mut client);
    }
}
