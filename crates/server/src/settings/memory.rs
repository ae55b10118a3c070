//! Memory: what there is, and how it is divided between the cache and the connections.

use super::{Settings, display_bytes};
use std::path::Path;
use terrace_cache::Note;

/// Resident memory of the process besides the cache and the connections: the program, and buffers of workers.
pub const BESIDES_BYTES_MAX: u64 = 32 << 20;
/// The least default of the connections' cap.
const CONNECTIONS_MIN: u64 = 64 << 20;
/// The default as a part of `-m`.
const PART_OF_MEMORY: u64 = 4;
/// What connections keep of their cap where a control group allows little.
const CONNECTIONS_MIN_IN_GROUP: u64 = 16 << 20;
/// What the cache keeps.
const CACHE_MIN: u64 = 8 << 20;

/// How memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShares {
    /// For everything that grows with data.
    pub cache: u64,
    /// For all connections together.
    pub connections: u64,
}

impl MemoryShares {
    /// What the process may have resident.
    pub fn total(self) -> u64 {
        self.cache.saturating_add(self.connections).saturating_add(BESIDES_BYTES_MAX)
    }
}

impl Settings {
    /// What `-m` and `-o read_buf_mem_limit` ask for.
    pub fn memory_asked(&self) -> MemoryShares {
        let (cache, given) = (self.memory_bytes, self.connection_buffer_bytes_max);
        let default = (cache / PART_OF_MEMORY).max(CONNECTIONS_MIN);
        MemoryShares { cache, connections: if given == 0 { default } else { given } }
    }

    /// What there is of it where the process's control group allows less: first connections have less, then the cache.
    pub fn memory_shares(&self) -> MemoryShares {
        let asked = self.memory_asked();
        let Some(limit) = self.group_bytes.filter(|limit| *limit < asked.total()) else {
            return asked;
        };
        let left = limit.saturating_sub(BESIDES_BYTES_MAX);
        let least = CONNECTIONS_MIN_IN_GROUP.min(asked.connections);
        let connections = left.saturating_sub(asked.cache).clamp(least, asked.connections);
        let cache = left.saturating_sub(connections).max(CACHE_MIN).min(asked.cache);
        MemoryShares { cache, connections }
    }

    /// What the cache may have at most, whatever `cache_memlimit` asks for.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        let shares = self.memory_shares();
        let left = |limit: u64| {
            limit.saturating_sub(BESIDES_BYTES_MAX + shares.connections).max(shares.cache)
        };
        self.group_bytes.map_or(u64::MAX, left)
    }

    /// A warning where the control group allows less than was asked for, or the machine has less: records would lie
    /// in swap, or the kernel would end the process once it has grown so far.
    pub fn memory_warning(&self) -> Option<Note> {
        let (asked, has) = (self.memory_asked(), self.memory_shares());
        let machine = machine_bytes().filter(|machine| has.cache > *machine);
        if let Some(machine) = machine {
            return Some(Note::Warning(format!(
                "-m: {} of memory are asked for, this machine has {}; write a smaller -m",
                display_bytes(has.cache),
                display_bytes(machine),
            )));
        }
        let instead = |has: u64, asked: u64| match has == asked {
            true => String::new(),
            false => format!(" instead of {}", display_bytes(asked)),
        };
        let warning = || {
            format!(
                "the memory cgroup allows {}: {}{} for the cache (-m), {}{} for connections, {} \
                 besides; with a limit of {} all fits",
                display_bytes(self.group_bytes.unwrap_or(u64::MAX)),
                display_bytes(has.cache),
                instead(has.cache, asked.cache),
                display_bytes(has.connections),
                instead(has.connections, asked.connections),
                display_bytes(BESIDES_BYTES_MAX),
                display_bytes(asked.total()),
            )
        };
        (has != asked).then(|| Note::Warning(warning()))
    }
}

/// What `-m auto` is: three quarters of what the control group allows, less where the connections' cap would not fit
/// beside it, but half at least; half of the machine's memory where no group has less.
pub(crate) fn automatic_bytes() -> Result<u64, String> {
    automatic(group_bytes(), machine_bytes())
        .ok_or_else(|| "/proc/meminfo can't be read; write a size".into())
}

fn automatic(group: Option<u64>, machine: Option<u64>) -> Option<u64> {
    let whole = |bytes: u64| bytes >> 20 << 20;
    let beside = CONNECTIONS_MIN + BESIDES_BYTES_MAX;
    let of_group = |limit: u64| (limit / 4 * 3).min(limit.saturating_sub(beside)).max(limit / 2);
    let group = group.filter(|group| machine.is_none_or(|machine| *group < machine));
    let bytes = group.map(of_group).or(machine.map(|machine| machine / 2))?;
    Some(whole(bytes).max(CACHE_MIN))
}

fn machine_bytes() -> Option<u64> {
    total_of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the control group of this process may have in memory, if it has a limit.
pub fn group_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least_limit(&groups, Path::new("/sys/fs/cgroup"))
}

/// The least limit of the group that `groups` (/proc/self/cgroup) names, and of those above it.
fn least_limit(groups: &str, root: &Path) -> Option<u64> {
    let limit = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        match controllers {
            "" => [root.to_path_buf(), root.join("unified")]
                .iter()
                .filter_map(|root| least_of(root, group, &["memory.max", "memory.high"]))
                .min(),
            v1 if v1.split(',').any(|name| name == "memory") => {
                least_of(&root.join("memory"), group, &["memory.limit_in_bytes"])
            }
            _ => None,
        }
    };
    groups.lines().filter_map(limit).min()
}

/// The least number in these files of a group below `root`, and of those above it. In a container its name may be that
/// in another's view: the root is then its own, or the name begins with folders that are not to be seen.
fn least_of(root: &Path, group: &str, files: &[&str]) -> Option<u64> {
    let parts: Vec<_> = group.split('/').filter(|part| !part.is_empty()).collect();
    let seen = |from: usize| root.join(parts[from..].join("/"));
    let group = (0..=parts.len()).map(seen).find(|dir| dir.is_dir())?;
    let all = group.ancestors().take_while(|dir| dir.starts_with(root));
    let number =
        |dir: &Path, file| std::fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok();
    // The kernel's word for none is `max`, or in version 1 the largest multiple of a page.
    let limits = all.flat_map(|dir| files.iter().filter_map(move |file| number(dir, file)));
    limits.filter(|limit| *limit < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn settings(memory: u64, connections: u64, group: Option<u64>) -> Settings {
        Settings {
            memory_bytes: memory * MIB,
            connection_buffer_bytes_max: connections * MIB,
            group_bytes: group.map(|group| group * MIB),
            ..Settings::default()
        }
    }

    fn shares(memory: u64, connections: u64, group: Option<u64>) -> (u64, u64) {
        let MemoryShares { cache, connections } =
            settings(memory, connections, group).memory_shares();
        (cache / MIB, connections / MIB)
    }

    #[test]
    fn connections_have_a_quarter_of_the_cache_and_64_mib_at_least() {
        assert_eq!(shares(64, 0, None), (64, 64));
        assert_eq!(shares(1024, 0, None), (1024, 256));
        assert_eq!(shares(1024, 3, None), (1024, 3));
        assert_eq!(shares(1024, 0, Some(1312)), (1024, 256), "it just fits");
    }

    #[test]
    fn a_limit_takes_from_connections_first_and_then_from_the_cache() {
        for (memory, given, group, expected) in [
            (512, 0, 614, (512, 70)),
            (128, 0, 154, (106, 16)),
            (128, 0, 223, (128, 63)),
            (1024, 0, 1100, (1024, 44)),
            (1024, 8, 1064, (1024, 8)),
            (1024, 8, 1063, (1023, 8)),
            (1024, 8, 100, (60, 8)),
            (64, 0, 64, (16, 16)),
            (64, 0, 20, (8, 16)),
            (4, 0, 1, (4, 16)),
        ] {
            let found = shares(memory, given, Some(group));
            assert_eq!(found, expected, "-m {memory} in {group} MiB");
            let s = settings(memory, given, Some(group));
            assert!(
                s.memory_warning().is_some_and(|line| line.text().contains("the memory cgroup"))
                    != (expected == (memory, given))
            );
            assert!(s.memory_shares().total() <= group.max(56) * MIB, "-m {memory} in {group} MiB");
        }
        let line = settings(128, 0, Some(154)).memory_warning().unwrap();
        assert_eq!(
            line.text(),
            "the memory cgroup allows 154 MiB: 106 MiB instead of 128 MiB for the cache (-m), 16 MiB \
             instead of 64 MiB for connections, 32 MiB besides; with a limit of 224 MiB all fits"
        );
        let machine = settings(1 << 40, 0, None).memory_warning().unwrap();
        assert!(machine.text().starts_with("-m: ") && machine.text().contains("this machine has"));
        assert_eq!(settings(1, 0, None).memory_warning(), None);
    }

    #[test]
    fn automatic_memory_leaves_room_for_connections() {
        let read = |group: u64, machine: u64| {
            automatic(Some(group * MIB), Some(machine * MIB)).map(|bytes| bytes / MIB)
        };
        for (group, expected) in [(16384, 12288), (614, 460), (256, 160), (154, 77), (10, 8)] {
            assert_eq!(read(group, 1 << 20), Some(expected));
            let s = settings(expected, 0, Some(group));
            assert!(group < 192 || s.memory_warning().is_none(), "{:?}", s.memory_warning());
        }
        assert_eq!(read(16384, 8192), Some(4096), "no limit of its own");
        assert_eq!(automatic(None, Some(8192 * MIB)), Some(4096 * MIB));
        assert_eq!(
            (automatic(None, None), automatic(Some(1024 * MIB), None)),
            (None, Some(768 * MIB))
        );
    }

    #[test]
    fn reads_the_least_limit_of_all_groups_above() {
        assert_eq!(total_of("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total_of(""), None);
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let read = |groups: &str| least_limit(groups, dir.path());
        write("a/b/memory.max", "max\n");
        assert_eq!(read("0::/a/b\n"), None);
        write("a/memory.max", "4096\n");
        assert_eq!(read("0::/a/b\n"), Some(4096));
        write("a/b/memory.high", "2048\n");
        assert_eq!(read("0::/a/b\n"), Some(2048), "memory.high of its own");
        assert_eq!(read("0::/a\n"), Some(4096));
        // As an outer namespace names it: what is to be seen is its end, or only the root.
        assert_eq!(read("0::/kubepods/pod1/a/b\n"), Some(2048));
        assert_eq!(read("0::/gone\n"), None);
        write("memory.max", "9000\n");
        assert_eq!(read("0::/gone\n"), Some(9000));
        assert_eq!(read("0::/a\n"), Some(4096));
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/c/memory.limit_in_bytes", "8192\n");
        write("memory/c/d/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(read("5:cpu:/a\n4:memory:/c/d\n"), Some(8192));
        assert_eq!(read("4:cpu,memory:/c\n0::/a/b\n"), Some(2048), "the least of both versions");
        assert_eq!(read("4:memory:/docker/1234\n"), None);
        write("unified/u/memory.high", "1024\n");
        assert_eq!(read("0::/u\n"), Some(1024), "version 2 below version 1");
        assert_eq!((read(""), read("x\n:\n")), (None, None));
    }
}
