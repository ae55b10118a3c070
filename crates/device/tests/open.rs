//! What can be opened, what is refused, and that refusing leaves no trace.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{BLOCK, Scratch, is_stamped, stamped};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_device::{AlignedBuf, Drive, FileDevice, OpenError};

const MIB: u64 = 1 << 20;

fn refused(path: &Path, size: Option<u64>) -> OpenError {
    let error = FileDevice::open(path, size).err();
    let error = error.unwrap_or_else(|| panic!("{} was opened", path.display()));
    let text = error.to_string();
    println!("{text}");
    assert!(!text.contains('\n') && text.contains(path.to_str().unwrap()), "{text}");
    error
}

/// Runs a command as root; `None` where that can't be done.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[test]
fn a_new_file_is_private_and_has_all_its_space() {
    let scratch = Scratch::new();
    let path = scratch.path("tier");
    let device = FileDevice::open(&path, Some(8 * MIB)).unwrap();
    assert_eq!(device.geometry().bytes, 8 * MIB);
    assert_eq!(device.label(), path.to_str().unwrap());
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.permissions().mode() & 0o777, meta.len()), (0o600, 8 * MIB));
    if device.notes().is_empty() {
        assert!(device.is_direct());
        assert!(meta.blocks() * 512 >= 8 * MIB, "not allocated");
    } else {
        println!("direct I/O and allocation: skipped, {}", device.notes().join("; "));
    }
}

#[test]
fn what_was_written_is_read() {
    let scratch = Scratch::new();
    let device = stamped(&scratch, 512);
    device.flush().unwrap();
    let mut buf = AlignedBuf::zeroed(BLOCK * 512);
    device.read_at(0, &mut buf).unwrap();
    assert!(is_stamped(&buf, 0));
    buf.set_len(BLOCK);
    device.read_at(511 * BLOCK as u64, &mut buf).unwrap();
    assert!(is_stamped(&buf, 511));
}

#[test]
fn transfers_outside_the_device_are_refused() {
    let scratch = Scratch::new();
    let whole = stamped(&scratch, 16);
    let (path, end) = (scratch.path("stamped"), 8 * BLOCK as u64);
    drop(whole);
    // The file goes on behind the device's end: still nothing of it may be touched.
    let device = FileDevice::open(&path, Some(end)).unwrap();
    let mut buf = AlignedBuf::zeroed(2 * BLOCK);
    for offset in [end, end - BLOCK as u64, u64::MAX - BLOCK as u64 + 1] {
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(device.read_at(offset, &mut buf)), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(device.write_at(offset, &buf)), io::ErrorKind::UnexpectedEof);
    }
    assert_eq!(device.read_at(1, &mut buf).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(is_stamped(&fs::read(&path).unwrap(), 0));
}

#[test]
fn what_a_file_holds_stays() {
    let scratch = Scratch::new();
    drop(stamped(&scratch, 16));
    let (path, has) = (scratch.path("stamped"), 16 * BLOCK as u64);
    let is_intact = || is_stamped(&fs::read(&path).unwrap()[..has as usize], 0);
    let open = |size| FileDevice::open(&path, size).unwrap().geometry().bytes;
    assert_eq!(open(None), has);
    assert_eq!(open(Some(has / 2)), has / 2);
    assert_eq!(fs::metadata(&path).unwrap().len(), has, "cut off");
    assert!(is_intact());
    assert_eq!(open(Some(MIB)), MIB);
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB, "not grown");
    assert!(is_intact());
}

#[test]
fn what_is_foreign_is_neither_written_nor_grown() {
    let scratch = Scratch::new();
    let is_foreign = |first: &[u8]| !first.starts_with(b"ours");
    for content in [&b"x"[..], &[7; 10_000]] {
        let path = scratch.path("foreign");
        fs::write(&path, content).unwrap();
        let before = fs::metadata(&path).unwrap();
        let error = FileDevice::open_unless(&path, Some(8 * MIB), &is_foreign).err();
        assert!(matches!(error, Some(OpenError::Foreign(_))), "{error:?}");
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.len(), after.blocks()), (before.len(), before.blocks()));
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    let path = scratch.path("ours");
    fs::write(&path, "ours").unwrap();
    assert!(FileDevice::open_unless(&path, Some(MIB), &is_foreign).is_ok());
    assert!(FileDevice::open_unless(scratch.path("new"), Some(MIB), &is_foreign).is_ok());
}

#[test]
fn a_size_is_needed_and_must_be_a_block() {
    let scratch = Scratch::new();
    let path = scratch.path("tier");
    assert!(matches!(refused(&path, None), OpenError::NoSize(_)));
    assert!(matches!(refused(&path, Some(0)), OpenError::Empty { .. }));
    assert!(matches!(refused(&path, Some(4095)), OpenError::Empty { .. }));
    assert!(!path.exists());
    fs::write(&path, "").unwrap();
    assert!(matches!(refused(&path, None), OpenError::NoSize(_)));
    fs::write(&path, "x").unwrap();
    assert!(matches!(refused(&path, None), OpenError::Empty { .. }));
    assert_eq!(FileDevice::open(&path, Some(MIB + 5)).unwrap().geometry().bytes, MIB);
}

#[test]
fn other_things_than_storage_are_refused() {
    let scratch = Scratch::new();
    assert!(matches!(refused(&scratch.path(""), Some(MIB)), OpenError::IsDirectory(_)));
    assert!(matches!(refused(Path::new("/dev/null"), Some(MIB)), OpenError::NotStorage(_)));
    let socket = scratch.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(refused(&socket, Some(MIB)), OpenError::NotStorage(_)));
    assert!(matches!(refused(&scratch.path("none/tier"), Some(MIB)), OpenError::NoParent(_)));
    fs::write(scratch.path("file"), "").unwrap();
    assert!(matches!(refused(&scratch.path("file/tier"), Some(MIB)), OpenError::NoParent(_)));
}

#[test]
fn a_link_to_what_is_not_there_is_told_as_one() {
    let scratch = Scratch::new();
    let (link, gone) = (scratch.path("link"), scratch.path("gone"));
    std::os::unix::fs::symlink(&gone, &link).unwrap();
    assert!(matches!(refused(&link, Some(MIB)), OpenError::LeadsNowhere(_)));
    assert!(link.is_symlink() && !gone.exists());
    fs::write(&gone, "").unwrap();
    assert_eq!(FileDevice::open(&link, Some(MIB)).unwrap().geometry().bytes, MIB);
}

/// Root may open everything, so this runs as somebody else.
#[test]
fn files_of_others_are_refused() {
    const CHILD: &str = "TERRACE_TEST_PATH_OF_ANOTHER";
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        assert!(matches!(refused(&path, Some(MIB)), OpenError::NotPermitted { .. }));
        let beside = path.with_file_name("new");
        assert!(matches!(refused(&beside, Some(MIB)), OpenError::NotPermitted { .. }));
        return;
    }
    // Where "nobody" can get at, which it can't at the build folder.
    let folder = std::env::temp_dir().join(format!("terrace-others-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (program, path) = (folder.join("test"), folder.join("tier"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::write(&path, "private").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let child = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "files_of_others_are_refused", "--nocapture"])
        .env(CHILD, &path)
        .output();
    fs::remove_dir_all(&folder).unwrap();
    match child {
        Err(error) => println!("files_of_others_are_refused: skipped, no setpriv: {error}"),
        Ok(output) if !output.status.success() && output.stdout.is_empty() => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("files_of_others_are_refused: skipped, not root: {error}");
        }
        Ok(output) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn a_device_in_use_is_refused_until_it_is_closed() {
    const CHILD: &str = "TERRACE_TEST_PATH_IN_USE";
    if let Some(path) = std::env::var_os(CHILD) {
        assert!(matches!(refused(Path::new(&path), None), OpenError::InUse(_)));
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("tier");
    let first = FileDevice::open(&path, Some(MIB)).unwrap();
    assert!(matches!(refused(&path, Some(2 * MIB)), OpenError::InUse(_)));
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB, "changed a file of another");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_device_in_use_is_refused_until_it_is_closed"])
        .env(CHILD, &path)
        .status();
    assert!(child.unwrap().success());
    drop(first);
    FileDevice::open(&path, Some(MIB)).unwrap();
}

/// A ring outlives its process for some tens of milliseconds; the lock must not. Opening would wait
/// that long, so at least one of many must succeed without a wait.
#[test]
fn a_device_is_free_as_soon_as_its_user_has_died() {
    use terrace_device::{Engine, Read, ReadQueue, WorkerQueue};
    const CHILD: &str = "TERRACE_TEST_PATH_TO_DIE_ON";
    if let Some(path) = std::env::var_os(CHILD) {
        let device = FileDevice::open(Path::new(&path), None).unwrap();
        let mut queue =
            WorkerQueue::open(&[std::sync::Arc::new(device)], Engine::Auto, 32).unwrap();
        for token in 0..32 {
            queue.submit(Read { device: 0, offset: 0, buf: AlignedBuf::zeroed(BLOCK), token });
        }
        queue.flush().unwrap();
        std::process::abort();
    }
    let scratch = Scratch::new();
    drop(stamped(&scratch, 16));
    let mut fastest = Duration::MAX;
    for _ in 0..20 {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_device_is_free_as_soon_as_its_user_has_died"])
            .env(CHILD, scratch.path("stamped"))
            .output();
        assert!(!child.unwrap().status.success(), "it was to die");
        let begin = Instant::now();
        FileDevice::open(scratch.path("stamped"), None).unwrap();
        fastest = fastest.min(begin.elapsed());
    }
    assert!(fastest < Duration::from_millis(10), "{fastest:?}");
}

#[test]
fn a_file_larger_than_the_process_may_have_is_refused() {
    const CHILD: &str = "TERRACE_TEST_PATH_WITH_LIMIT";
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        assert!(matches!(refused(&path, Some(4 * MIB)), OpenError::TooLarge { .. }));
        assert!(!path.exists());
        FileDevice::open(&path, Some(MIB)).unwrap();
        return;
    }
    let scratch = Scratch::new();
    let child = Command::new("sh")
        .args(["-c", "ulimit -f 4096; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg("a_file_larger_than_the_process_may_have_is_refused")
        .env(CHILD, scratch.path("tier"))
        .status();
    assert!(child.unwrap().success());
}

/// A mount of its own, gone with the test.
struct Mounted(PathBuf);

impl Mounted {
    /// A file system of so many bytes that takes what there is before it says that it is full.
    fn ext4(scratch: &Scratch, bytes: u64) -> Option<Self> {
        let (image, at) = (scratch.path("image"), scratch.path("ext4"));
        fs::File::create(&image).and_then(|file| file.set_len(bytes)).ok()?;
        fs::create_dir_all(&at).ok()?;
        run("mkfs.ext4", &["-q", image.to_str()?])?;
        run("mount", &["-o", "loop", image.to_str()?, at.to_str()?])?;
        Some(Self(at))
    }

    fn tmpfs(at: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir_all(&at).ok()?;
        run("mount", &["-t", "tmpfs", "-o", options, "terrace-test", at.to_str()?])?;
        Some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

#[test]
fn a_full_disk_shows_at_once_and_is_left_as_it_was() {
    let scratch = Scratch::new();
    let Some(mount) = Mounted::tmpfs(scratch.path("small"), "size=4m") else {
        return println!("a_full_disk_shows_at_once_and_is_left_as_it_was: skipped, can't mount");
    };
    let path = mount.0.join("tier");
    match refused(&path, Some(16 * MIB)) {
        OpenError::Full { asked, missing, free, .. } => {
            assert_eq!((asked, missing), (16 * MIB, 16 * MIB));
            assert!(free > 3 * MIB && free <= 4 * MIB, "{free} free");
        }
        other => panic!("{other}"),
    }
    assert!(!path.exists(), "left behind");
    fs::write(&path, vec![7; MIB as usize]).unwrap();
    assert!(matches!(refused(&path, Some(16 * MIB)), OpenError::Full { .. }));
    assert_eq!(fs::read(&path).unwrap(), vec![7; MIB as usize], "changed");
    FileDevice::open(&path, Some(3 * MIB)).unwrap();
}

/// Not even for a moment: whoever else writes there would find it full.
#[test]
fn what_a_disk_has_no_room_for_takes_none() {
    let scratch = Scratch::new();
    let Some(mount) = Mounted::ext4(&scratch, 128 * MIB) else {
        return println!("what_a_disk_has_no_room_for_takes_none: skipped, can't mount");
    };
    let free = || rustix::fs::statvfs(&mount.0).unwrap().f_bavail;
    let before = free();
    let is_over = AtomicBool::new(false);
    let least = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut least = before;
            while !is_over.load(Ordering::Relaxed) {
                least = least.min(free());
            }
            least
        });
        for _ in 0..10 {
            let error = refused(&mount.0.join("tier"), Some(256 * MIB));
            assert!(matches!(error, OpenError::Full { .. }), "{error}");
        }
        is_over.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    // What the file's own entry takes.
    assert!(before - least <= 2, "{} blocks of {before}", before - least);
}

#[test]
fn a_read_only_file_system_is_refused() {
    let scratch = Scratch::new();
    let Some(mount) = Mounted::tmpfs(scratch.path("read-only"), "size=1m,ro") else {
        return println!("a_read_only_file_system_is_refused: skipped, can't mount");
    };
    assert!(matches!(refused(&mount.0.join("t"), Some(MIB)), OpenError::NotPermitted { .. }));
}

/// A block device made of a file.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        run("losetup", &["--find", "--show", file.to_str()?]).map(Self)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

#[test]
fn a_block_device_has_its_own_size_and_no_second_user() {
    let scratch = Scratch::new();
    let file = scratch.path("disk");
    fs::write(&file, vec![0; 2 * MIB as usize]).unwrap();
    let Some(disk) = Loop::over(&file) else {
        return println!(
            "a_block_device_has_its_own_size_and_no_second_user: skipped, no loop devices"
        );
    };
    let path = Path::new(&disk.0);
    assert!(fs::metadata(path).unwrap().file_type().is_block_device());
    match refused(path, Some(3 * MIB)) {
        OpenError::Smaller { asked, has, .. } => assert_eq!((asked, has), (3 * MIB, 2 * MIB)),
        other => panic!("{other}"),
    }
    let device = FileDevice::open(path, None).unwrap();
    assert_eq!(device.geometry().bytes, 2 * MIB);
    assert!(matches!(refused(path, None), OpenError::InUse(_)));
    let mut buf = AlignedBuf::zeroed(BLOCK);
    buf.fill(0x5a);
    device.write_at(MIB, &buf).unwrap();
    device.flush().unwrap();
    buf.fill(0);
    device.read_at(MIB, &mut buf).unwrap();
    assert!(buf.iter().all(|&byte| byte == 0x5a));
    drop(device);
    assert_eq!(FileDevice::open(path, Some(MIB)).unwrap().geometry().bytes, MIB);
}
