//! What drives say of their health, by a `smartctl` of ours: in metrics, statistics and log. One that hangs, fails or
//! talks nonsense costs nothing but that.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{Server, free_port, is_terrace, skip, wait_until};

/// As a drive with these figures answers.
const WORN: &str = r#"{
    "model_name": "INTEL SSDPE2KX020T8",
    "smart_status": {"passed": false},
    "nvme_smart_health_information_log": {
        "critical_warning": 1, "temperature": 29, "available_spare": 8, "available_spare_threshold": 10,
        "percentage_used": 83, "data_units_written": 2643181154, "power_on_hours": 36959, "unsafe_shutdowns": 21,
        "media_errors": 3
    },
    "temperature": {"current": 29},
    "power_on_time": {"hours": 36959}
}"#;

/// A folder for a server's files, with a `smartctl` in it.
struct Folder {
    dir: Arc<TempDir>,
    /// The device of the drive that it lies on.
    drive: String,
}

impl Folder {
    /// `script` is what `smartctl` does (`DIR` stands for this folder); with none, there is no such program.
    fn new(test: &str, script: &str) -> Option<Self> {
        let dir = TempDir::new().expect("a directory");
        let drive = drive_of(dir.path()).filter(|_| is_terrace());
        let Some(drive) = drive else {
            skip(test, "it is about Terrace's tiers, and temporary files here lie on no drive");
            return None;
        };
        fs::create_dir(dir.path().join("bin")).expect("a folder");
        if !script.is_empty() {
            // Written by another process: one that is open for writing here could not be started.
            let program = dir.path().join("bin/smartctl");
            let text = format!("#!/bin/sh\necho \"$@\" >> DIR/asked\n{script}\n");
            let text = text.replace("DIR", dir.path().to_str().expect("temporary paths are text"));
            let write = ["-c", "printf %s \"$1\" > \"$0\""];
            let written = Command::new("sh").args(write).arg(&program).arg(text).status();
            assert!(written.expect("a shell").success());
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        Some(Self { dir: Arc::new(dir), drive: format!("/dev/{drive}") })
    }

    fn server(&self, flags: &str) -> Server {
        // Programs of the shell stay within reach, but for a smartctl that is installed.
        let path =
            if self.path("bin/smartctl").exists() { "DIR/bin:/usr/bin:/bin" } else { "DIR/bin" };
        let flags = format!("-m 64 -t 1 --tier ssd:DIR/a:64m {flags}");
        Server::try_start_with(&flags, Arc::clone(&self.dir), &[("PATH", path)])
            .unwrap_or_else(|failed| panic!("it does not start: {}", failed.output))
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

/// The name of the drive that a file lies on; none if that is not plain.
fn drive_of(path: &Path) -> Option<String> {
    let device = fs::metadata(path).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut entry = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if entry.join("partition").exists() {
        entry.pop();
    }
    let is_mapped =
        fs::read_dir(entry.join("slaves")).is_ok_and(|mut below| below.next().is_some());
    let name = entry.file_name()?.to_str()?.to_owned();
    (!is_mapped).then_some(name)
}

fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it answers");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

fn assert_serves(server: &Server) {
    let mut client = server.client();
    assert!(client.set("key", b"value"));
    assert_eq!(client.get("key").as_deref(), Some(&b"value"[..]));
}

#[test]
fn report_of_a_drive_is_in_metrics_statistics_and_log() {
    let script = format!("cat <<'END'\n{WORN}\nEND\nexit 8");
    let Some(folder) = Folder::new("report_of_a_drive", &script) else { return };
    let port = free_port();
    let server = folder.server(&format!("--admin 127.0.0.1:{port}"));
    let drive = &folder.drive;
    let log = server.output_with("of its rated life is used");
    for line in [
        format!(
            "drive {drive} (INTEL SSDPE2KX020T8): 83 % of its rated life used, 8 % of its spare"
        ),
        format!(
            "drive {drive}: critical warning 0x01: its spare blocks are below their threshold; serving"
        ),
        format!("drive {drive}: media errors: 3; "),
        format!("drive {drive}: 83 % of its rated life is used; plan its replacement"),
    ] {
        assert_eq!(log.matches(&line).count(), 1, "{line}: {log}");
    }
    let page = wait_until("metrics", || {
        Some(metrics(port)).filter(|page| page.contains("\nterrace_tier_drive_info{"))
    });
    for line in [
        format!("info{{tier=\"0\",drive=\"{drive}\",model=\"INTEL SSDPE2KX020T8\"}} 1"),
        "failing{tier=\"0\"} 1".to_owned(),
        "critical_warning{tier=\"0\"} 1".to_owned(),
        "used_ratio{tier=\"0\"} 0.83".to_owned(),
        "spare_ratio{tier=\"0\"} 0.08".to_owned(),
        "spare_threshold_ratio{tier=\"0\"} 0.1".to_owned(),
        "media_errors_total{tier=\"0\"} 3".to_owned(),
        "written_bytes_total{tier=\"0\"} 1353308750848000".to_owned(),
        "power_on_seconds_total{tier=\"0\"} 133052400".to_owned(),
        "unsafe_shutdowns_total{tier=\"0\"} 21".to_owned(),
        "temperature_celsius{tier=\"0\"} 29".to_owned(),
    ] {
        assert!(page.contains(&format!("\nterrace_tier_drive_{line}\n")), "{line}: {page}");
    }
    assert!(!page.contains("\nterrace_tier_drive_reallocated_sectors{"), "NVMe drives have none");
    let stats = server.client().stats("tiers");
    let row = |name: &str| stats.get(&format!("tier:0:{name}")).map(String::as_str);
    assert_eq!(row("drive"), Some(drive.as_str()));
    assert_eq!((row("drive_used_percent"), row("drive_media_errors")), (Some("83"), Some("3")));
    let asked = fs::read_to_string(folder.path("asked")).expect("what it was asked");
    assert_eq!(asked, format!("--json -a {drive}\n"));
}

#[test]
fn missing_program_is_one_line_that_says_what_to_install() {
    let Some(folder) = Folder::new("missing_program", "") else { return };
    let server = folder.server("--tier ssd:DIR/b:64m");
    let log = server.output_with("smartmontools");
    assert_eq!(log.matches("install smartmontools (7.0 or later) and restart").count(), 1, "{log}");
    assert_serves(&server);
    assert!(!server.client().stats("tiers").contains_key("tier:0:drive"));
}

#[test]
fn program_without_rights_is_one_line_that_says_so() {
    let script =
        r#"echo '{"smartctl":{"messages":[{"string":"open failed: Permission denied"}]}}'; exit 2"#;
    let Some(folder) = Folder::new("program_without_rights", script) else { return };
    let server = folder.server("");
    let log = server.output_with("give the server the rights");
    assert!(log.contains("smartctl may not ask it (open failed: Permission denied)"), "{log}");
    assert_serves(&server);
}

#[test]
fn program_that_fails_or_prints_garbage_is_one_line() {
    for (script, why) in [
        ("exit 1", "(its answer is no JSON)"),
        ("echo broken >&2; exit 1", "(broken)"),
        ("head -c 10000 /dev/urandom", "(its answer is no JSON)"),
        ("echo '{}'", "(its answer has no figures)"),
    ] {
        let Some(folder) = Folder::new("program_that_fails", script) else { return };
        let server = folder.server("");
        let log = server.output_with("smartctl has none of it");
        assert!(log.contains(why), "{script}: {log}");
        assert_serves(&server);
        assert!(!server.client().stats("tiers").contains_key("tier:0:drive"));
        assert_eq!(server.stop(), Some(0));
    }
}

/// Whether a process runs; one that ended and was not looked at yet does not.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn program_that_hangs_is_ended_and_requests_go_on() {
    let script = "echo $$ > DIR/pid; sleep 1000";
    let Some(folder) = Folder::new("program_that_hangs", script) else { return };
    let pids = folder.path("pid");
    let server = folder.server("");
    let pid = wait_until("the program", || {
        fs::read_to_string(&pids).ok().filter(|pid| pid.ends_with('\n'))
    });
    assert_serves(&server);
    let log = server.output_with("was ended");
    assert!(
        log.contains("smartctl had no answer within 10 s and was ended; it is asked again"),
        "{log}"
    );
    wait_until("the end of the program", || (!is_running(pid.trim())).then_some(()));
    assert_serves(&server);

    // A stop does not wait for it, and leaves nothing behind.
    assert_eq!(server.stop(), Some(0));
    fs::remove_file(&pids).expect("a file");
    let server = folder.server("");
    let pid = wait_until("the program", || {
        fs::read_to_string(&pids).ok().filter(|pid| pid.ends_with('\n'))
    });
    let start = Instant::now();
    assert_eq!(server.stop(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(9), "it waited for the program");
    wait_until("the end of the program", || (!is_running(pid.trim())).then_some(()));
}
