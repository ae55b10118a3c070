//! What the server of each node is started with.

use crate::{Data, Plan};
use toml::{Table, Value};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Values up to this length are taken without `-I`.
const ITEM_MAX: u64 = MIB;
/// `--tier-full` of the server unless it is told.
const FULL_PERCENT: u32 = 80;

/// Flags for the server.
pub(crate) struct Proposal {
    pub(crate) memory_mib: u64,
    threads: u32,
    pub(crate) tiers: Vec<Tier>,
    full_percent: u32,
    item_max: Option<u64>,
}

/// One `--tier`.
pub(crate) struct Tier {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// It is all of a drive, whose size the server finds by itself.
    is_whole: bool,
}

impl Proposal {
    /// For a plan; where no path is given, names stand for drives.
    pub(crate) fn new(
        plan: &Plan,
        data: &Data,
        full_percent: u32,
        threads: u32,
        paths: &[String],
    ) -> Self {
        let drives = plan.node.drives as usize;
        let stand_in = |at: usize| match drives {
            1 => "DEV".to_owned(),
            _ => format!("DEV{}", at + 1),
        };
        let tier = |at: usize| {
            let path = paths.get(at).cloned();
            let is_drive = path.as_ref().is_none_or(|path| path.starts_with("/dev/"));
            let is_all = plan.tier_bytes >= plan.node.drive.capacity_bytes;
            Tier {
                path: path.unwrap_or_else(|| stand_in(at)),
                bytes: plan.tier_bytes as u64 / MIB * MIB,
                is_whole: is_drive && is_all,
            }
        };
        let longest = data.value_bytes.ceil() as u64;
        Self {
            memory_mib: plan.node.memory_bytes as u64 / MIB,
            threads,
            tiers: (0..drives).map(tier).collect(),
            full_percent,
            item_max: (longest > ITEM_MAX).then(|| longest.next_power_of_two()),
        }
    }

    /// The command line behind the program's name.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut line =
            vec!["-m".into(), self.memory_mib.to_string(), "-t".into(), self.threads.to_string()];
        for tier in &self.tiers {
            line.extend(["--tier".into(), tier.spelled()]);
        }
        if self.full_percent != FULL_PERCENT {
            line.extend(["--tier-full".into(), self.full_percent.to_string()]);
        }
        if let Some(bytes) = self.item_max {
            line.extend(["-I".into(), size(bytes)]);
        }
        line
    }

    /// The same as a shell takes it.
    pub(crate) fn command(&self) -> String {
        let words = self.arguments();
        let words = words.iter().map(|word| quoted(word));
        std::iter::once("terrace".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// The same as a file for the server's `--config`.
    pub(crate) fn toml(&self) -> String {
        let mut table = Table::new();
        let mut set = |key: &str, value: Value| table.insert(key.to_owned(), value);
        set("memory-limit", Value::Integer(self.memory_mib as i64));
        set("threads", Value::Integer(i64::from(self.threads)));
        let tiers = self.tiers.iter().map(|tier| Value::String(tier.spelled()));
        set("tier", Value::Array(tiers.collect()));
        if self.full_percent != FULL_PERCENT {
            set("tier-full", Value::Integer(i64::from(self.full_percent)));
        }
        if let Some(bytes) = self.item_max {
            set("max-item-size", Value::String(size(bytes)));
        }
        table.to_string()
    }
}

impl Tier {
    fn spelled(&self) -> String {
        match self.is_whole {
            true => format!("ssd:{}", self.path),
            false => format!("ssd:{}:{}", self.path, size(self.bytes)),
        }
    }
}

fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(GIB) {
        format!("{}g", bytes / GIB)
    } else {
        format!("{}m", bytes / MIB)
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(path: &str, is_whole: bool) -> Proposal {
        let tier = Tier { path: path.into(), bytes: 100 * GIB, is_whole };
        let (memory_mib, threads, full_percent, item_max) = (4096, 8, 80, None);
        Proposal { memory_mib, threads, tiers: vec![tier], full_percent, item_max }
    }

    #[test]
    fn a_command_line_and_a_file_say_the_same() {
        let plain = proposal("DEV", false);
        assert_eq!(plain.command(), "terrace -m 4096 -t 8 --tier ssd:DEV:100g");
        assert_eq!(plain.toml(), "memory-limit = 4096\nthreads = 8\ntier = [\"ssd:DEV:100g\"]\n");
        let all = Proposal {
            full_percent: 70,
            item_max: Some(8 * MIB),
            ..proposal("/dev/nvme1n1", true)
        };
        assert_eq!(
            all.command(),
            "terrace -m 4096 -t 8 --tier ssd:/dev/nvme1n1 --tier-full 70 -I 8m"
        );
        let told = all.toml();
        assert!(told.contains("tier-full = 70\n") && told.contains("max-item-size = \"8m\"\n"));
    }

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        let odd = proposal("/data/it's a tier", false);
        assert!(odd.command().ends_with(r"--tier 'ssd:/data/it'\''s a tier:100g'"));
        assert_eq!(odd.arguments()[5], "ssd:/data/it's a tier:100g");
    }
}
