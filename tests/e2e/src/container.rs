//! The server in a container of runc, as a chart's pod has it.

use crate::{Client, program, run_as_root, wait_until};
use std::fs::{self, File, Permissions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// Where the server in a container listens unless told.
const PORT: u16 = 11_211;
/// The user of most charts, who has no name.
pub const NAMELESS_USER: u32 = 11_211;

/// What a container may have.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Mebibytes of memory, if that is limited.
    pub memory: Option<u64>,
    /// Mebibytes of /dev/shm.
    pub shm: u64,
}

impl Default for Limits {
    /// What Kubernetes gives to whom asks for nothing.
    fn default() -> Self {
        Self { memory: None, shm: 64 }
    }
}

/// A server as a user without a name and capabilities, on a root file system that can't be written to, in a network
/// of its own; /data is a folder for it. It is gone when dropped.
pub struct Container {
    child: Child,
    dir: TempDir,
    name: String,
}

impl Container {
    /// Whether containers with a limit of memory can be run here; else why not.
    pub fn can_run() -> Result<(), String> {
        if !run_as_root() {
            return Err("this is not root".into());
        }
        if let Err(error) = Command::new("runc").arg("--version").output() {
            return Err(format!("no runc: {error}"));
        }
        let mut probe = Self::start(&["--version"], Limits { memory: Some(64), shm: 1 });
        match probe.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(probe.output().trim().replace('\n', "; ")),
        }
    }

    /// Runs the server with `arguments`.
    pub fn start(arguments: &[&str], limits: Limits) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("terrace-test-{}-{number}", std::process::id());
        let dir = open_dir();
        fs::create_dir(dir.path().join("rootfs")).expect("a folder");
        fs::write(dir.path().join("config.json"), config(dir.path(), arguments, limits))
            .expect("its own folder");
        let log = File::create(dir.path().join("log")).expect("a log");
        let mut command = Command::new("runc");
        command.arg("run").arg("--bundle").arg(dir.path());
        command.arg("--pid-file").arg(dir.path().join("pid")).arg(&name);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        Self { child: command.spawn().expect("runc starts"), dir, name }
    }

    /// All that the server and runc printed.
    pub fn output(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Panics unless the server still runs.
    pub fn assert_running(&mut self) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(ended.is_none(), "it ended, {ended:?}: {}", self.output());
    }

    /// A connection, once the server serves.
    pub fn client(&mut self) -> Client {
        let pid_file = self.dir.path().join("pid");
        wait_until("an answer from a container", || {
            self.assert_running();
            connect_in(pid_file.clone())
        })
    }

    /// The most memory that its group ever had, in bytes, where the kernel says so.
    pub fn memory_peak(&self) -> Option<u64> {
        let pid = fs::read_to_string(self.dir.path().join("pid")).ok()?;
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.trim())).ok()?;
        let peak = |line: &str| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let file = match controllers {
                "" => format!("/sys/fs/cgroup{group}/memory.peak"),
                "memory" => format!("/sys/fs/cgroup/memory{group}/memory.max_usage_in_bytes"),
                _ => return None,
            };
            fs::read_to_string(file).ok()?.trim().parse().ok()
        };
        groups.lines().find_map(peak)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = Command::new("runc").args(["delete", "--force", &self.name]).output();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that every user can write to, with a `data` in it.
pub fn open_dir() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    fs::create_dir(dir.path().join("data")).expect("a folder");
    for path in [dir.path(), &dir.path().join("data")] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("its own folder");
    }
    dir
}

/// The bundle's description.
fn config(dir: &Path, arguments: &[&str], limits: Limits) -> String {
    let mount = |at: &str, kind: &str, source: &Path, options: &[&str]| {
        let source = source.display().to_string();
        format!(
            r#"{{"destination":{at:?},"type":{kind:?},"source":{source:?},"options":{options:?}}}"#
        )
    };
    let tmpfs = Path::new("tmpfs");
    let shm = format!("size={}m", limits.shm);
    let binary = program().canonicalize().expect("the binary has a path");
    let mut mounts = vec![
        mount("/proc", "proc", Path::new("proc"), &[]),
        mount("/sys/fs/cgroup", "cgroup", Path::new("cgroup"), &["ro"]),
        mount("/dev", "tmpfs", tmpfs, &["nosuid", "mode=755", "size=64k"]),
        mount("/dev/shm", "tmpfs", tmpfs, &["nosuid", "nodev", "mode=1777", &shm]),
        mount("/data", "bind", &dir.join("data"), &["bind"]),
        mount("/run/terrace", "tmpfs", tmpfs, &["nosuid", "nodev", "mode=1777", "size=528m"]),
        mount("/bin/terrace", "bind", &binary, &["bind", "ro"]),
    ];
    for libraries in ["/lib", "/lib64", "/usr/lib"] {
        let path = Path::new(libraries);
        if path.exists() {
            mounts.push(mount(libraries, "bind", path, &["rbind", "ro"]));
        }
    }
    let words: Vec<_> = ["/bin/terrace"].iter().chain(arguments).collect();
    let namespaces =
        ["pid", "mount", "ipc", "uts", "network"].map(|kind| format!(r#"{{"type":{kind:?}}}"#));
    let memory = limits
        .memory
        .map_or(String::new(), |mebibytes| format!(r#""memory":{{"limit":{}}}"#, mebibytes << 20));
    format!(
        r#"{{"ociVersion":"1.0.2","root":{{"path":"rootfs","readonly":true}},"process":{{"terminal":false,
        "user":{{"uid":{NAMELESS_USER},"gid":{NAMELESS_USER}}},"args":{words:?},"env":["PATH=/bin"],"cwd":"/",
        "capabilities":{{}},"noNewPrivileges":true}},"mounts":[{}],
        "linux":{{"namespaces":[{}],"resources":{{{memory}}}}}}}"#,
        mounts.join(","),
        namespaces.join(","),
    )
}

/// Connects from within the network of a process, by IPv4 or IPv6.
fn connect_in(pid_file: PathBuf) -> Option<Client> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let connect = move || {
        let pid = fs::read_to_string(pid_file).ok()?;
        let network = File::open(format!("/proc/{}/ns/net", pid.trim())).ok()?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        let local = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let addresses = local.map(|ip| SocketAddr::new(ip, PORT));
        addresses.into_iter().find(|at| TcpStream::connect(at).is_ok()).map(Client::connect)
    };
    // A thread of its own, which ends there.
    std::thread::spawn(connect).join().expect("it connects or not")
}
