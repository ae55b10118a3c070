//! This machine as a host of NVMe over Fabrics.

use rustix::rand::{GetRandomFlags, getrandom};
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use xxhash_rust::xxh3::xxh3_128;

/// Where nvme-cli keeps the name of this machine.
const NAME_FILE: &str = "/etc/nvme/hostnqn";
const MACHINE_FILES: [&str; 2] = ["/etc/machine-id", "/sys/class/dmi/id/product_uuid"];

/// The name of this machine as a host: that of nvme-cli, else one made of the machine's identity, else of its host name.
/// It is the same at each start.
pub fn host_nqn() -> String {
    let line = |file: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().next()?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    };
    if let Some(name) = line(NAME_FILE).filter(|name| name.starts_with("nqn.")) {
        return name;
    }
    let machine = MACHINE_FILES.into_iter().find_map(line);
    let identity = machine
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let hash = xxh3_128(format!("terrace host {identity}").as_bytes());
    format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid(hash.to_be_bytes()))
}

/// In the form of a UUID of version 8, which is what an application makes (RFC 9562).
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0xf | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].map(hex);
    parts.join("-")
}

/// Bytes by chance.
///
/// # Errors
/// As of getrandom.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// The lock that one process of this machine (or of its network namespace) has on a remote namespace under a host's name.
/// It goes with the process, and needs no file.
pub(crate) struct LocalLock(#[expect(dead_code, reason = "it is held")] UnixListener);

impl LocalLock {
    /// `None` if another process has it.
    pub(crate) fn take(host_nqn: &str, nqn: &str, nsid: u32) -> io::Result<Option<Self>> {
        let hash = xxh3_128(format!("{host_nqn} {nqn}").as_bytes());
        let name = format!("terrace/nvme-tcp/{hash:032x}/{nsid}");
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Ok(listener) => Ok(Some(Self(listener))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_host_is_one_and_stays() {
        let name = host_nqn();
        assert!(name.starts_with("nqn.") && name.len() <= 223, "{name}");
        assert_eq!(name, host_nqn());
        assert_eq!(uuid([0; 16]), "00000000-0000-8000-8000-000000000000");
    }

    #[test]
    fn a_namespace_is_locked_once() {
        let take =
            |host, nsid| LocalLock::take(host, "nqn.2014-08.org.example:lock", nsid).unwrap();
        let first = take("nqn.a", 1);
        assert!(first.is_some() && take("nqn.a", 1).is_none());
        assert!(take("nqn.a", 2).is_some() && take("nqn.b", 1).is_some());
        drop(first);
        assert!(take("nqn.a", 1).is_some());
    }
}
