//! How much memory there is for `-m`: that of the machine, and what its control groups are allowed.

use std::path::Path;
use terrace::settings::display_bytes;

/// A warning if `bytes` are more than the machine, or the process's control group, has: records would
/// lie in swap, or the kernel would end the process once it has grown so far.
pub(crate) fn more_than_there_is(bytes: u64) -> Option<String> {
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = machine_bytes(&machine).map(|most| (most, "this machine has"));
    let group = group_bytes(&groups, Path::new("/sys/fs/cgroup"));
    let group = group.map(|most| (most, "the memory cgroup allows"));
    let (most, what) = machine.into_iter().chain(group).min()?;
    (bytes > most).then(|| {
        format!(
            "warning: -m: {} of memory are asked for, {what} {}; write a smaller -m",
            display_bytes(bytes),
            display_bytes(most),
        )
    })
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the group that `groups` (/proc/self/cgroup) names, and of those above it.
fn group_bytes(groups: &str, root: &Path) -> Option<u64> {
    let limit = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            v1 if v1.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container the path may be another's view: what does not exist there counts for nothing.
        let group = root.join(group.trim_start_matches('/'));
        let all = group.ancestors().take_while(|dir| dir.starts_with(&root));
        all.filter_map(|dir| std::fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok())
            .min()
    };
    groups.lines().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(machine_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(machine_bytes(""), None);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("memory/c")).unwrap();
        let write = |file, text| std::fs::write(dir.path().join(file), text).unwrap();
        write("a/b/memory.max", "max\n");
        assert_eq!(group_bytes("0::/a/b\n", dir.path()), None);
        write("a/memory.max", "4096\n");
        assert_eq!(group_bytes("0::/a/b\n", dir.path()), Some(4096));
        assert_eq!(group_bytes("0::/gone\n", dir.path()), None);
        write("memory/c/memory.limit_in_bytes", "8192\n");
        assert_eq!(group_bytes("5:cpu:/a\n4:memory:/c\n0::/\n", dir.path()), Some(8192));
    }

    #[test]
    fn warns_of_more_than_any_machine_has() {
        assert!(more_than_there_is(1 << 60).is_some_and(|line| line.starts_with("warning: -m: ")));
        assert_eq!(more_than_there_is(1 << 20), None);
    }
}
