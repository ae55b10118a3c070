//! Names and identifiers that are the same after a restart, without any that were written down.

use rustix::system::uname;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

/// Where systemd keeps what identifies a machine.
const MACHINE_ID: &str = "/etc/machine-id";
/// Longest NQN, in bytes (Base 2.0, 4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// What identifies this machine: its machine-id, or its name where it has none.
fn machine() -> String {
    let id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    match id.trim() {
        "" => uname().nodename().to_string_lossy().into_owned(),
        id => id.to_owned(),
    }
}

/// The NQN of what this machine exports, when `path` is the first namespace: a UUID of machine and path.
#[must_use]
pub fn default_nqn(path: &Path) -> String {
    nqn_of(&machine(), path)
}

fn nqn_of(machine: &str, path: &Path) -> String {
    let mut id = hash(&["nqn", machine, &path.to_string_lossy()]);
    // A UUID whose bits are the maker's own (RFC 9562, version 8).
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    let hex = hex(&id);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("nqn.2014-08.org.nvmexpress:uuid:{}", parts.join("-"))
}

/// The NGUID of a namespace: of machine and path, so that it does not depend on what else is exported.
#[must_use]
pub fn default_nguid(path: &Path) -> [u8; 16] {
    hash(&["nguid", &machine(), &path.to_string_lossy()])
}

/// The serial number of a subsystem.
pub(crate) fn serial(nqn: &str) -> String {
    hex(&hash(&["serial", nqn]))[..20].to_owned()
}

/// Whether `nqn` may name a subsystem or a host (Base 2.0, 4.5).
#[must_use]
pub fn is_nqn(nqn: &str) -> bool {
    nqn.starts_with("nqn.")
        && nqn.len() <= NQN_BYTES_MAX
        && nqn.bytes().all(|byte| byte.is_ascii_graphic())
}

fn hash(parts: &[&str]) -> [u8; 16] {
    // A zero byte is in none of the parts.
    xxh3_128(parts.join("\0").as_bytes()).to_be_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts know a namespace by these, so that a new version must not change them.
    #[test]
    fn names_depend_on_machine_and_path_alone() {
        let nqn = nqn_of("0123456789abcdef", Path::new("/data/a"));
        assert_eq!(nqn, NQN);
        assert!(is_nqn(&nqn));
        assert_ne!(nqn, nqn_of("0123456789abcdef", Path::new("/data/b")));
        assert_ne!(nqn, nqn_of("0123456789abcdee", Path::new("/data/a")));
        assert_ne!(default_nguid(Path::new("/a")), default_nguid(Path::new("/b")));
        assert_eq!(serial("nqn.2026-01.example:a").len(), 20);
    }

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:2b555c50-818d-83bc-8f3f-c9260bc9e613";

    #[test]
    fn other_names_are_no_nqn() {
        for wrong in ["", "terrace", "nqn. a", "nqn.\u{e9}", &format!("nqn.{}", "a".repeat(220))] {
            assert!(!is_nqn(wrong), "{wrong}");
        }
        assert!(is_nqn("nqn.2014-08.com.example:shelf-1"));
    }
}
