//! Where a remote drive is, as users write it.

use std::fmt;

/// The port that IANA gives NVMe over Fabrics.
pub const PORT: u16 = 4420;
/// What stands before an address.
pub const PREFIX: &str = "nvme-tcp:";
/// Longest name of a host or subsystem, in bytes (Base 2.0, 4.5).
const NQN_BYTES_MAX: usize = 223;

/// A namespace behind NVMe/TCP: `HOST[:PORT]/NQN[/NSID]`, with IPv6 addresses in brackets.
///
/// # Examples
///
/// ```
/// use terrace_remote::Address;
///
/// let address = Address::parse("nvme-tcp:[fd00::7]:4421/nqn.2014-08.org.example:flash/2").unwrap();
/// assert_eq!((address.host.as_str(), address.port, address.nsid), ("fd00::7", 4421, Some(2)));
/// assert_eq!(address.to_string(), "nvme-tcp:[fd00::7]:4421/nqn.2014-08.org.example:flash/2");
/// assert_eq!(Address::parse("flash1/nqn.2014-08.org.example:flash").unwrap().port, 4420);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Name of the subsystem.
    pub nqn: String,
    /// Namespace; `None` for the only one of the subsystem.
    pub nsid: Option<u32>,
}

impl Address {
    /// Reads what users write, with or without [`PREFIX`].
    ///
    /// # Errors
    /// Says what is wrong, and how it is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        const HOW: &str = "write nvme-tcp:HOST[:PORT]/NQN[/NSID], \
            such as nvme-tcp:flash1:4420/nqn.2014-08.org.nvmexpress:uuid:1";
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        let Some((place, name)) = text.split_once('/') else {
            return Err(format!("the name of the subsystem is missing; {HOW}"));
        };
        let (host, port) = match place.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, rest))) => match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(format!("`{rest}` behind the brackets; {HOW}")),
            },
            Some(None) => return Err(format!("a bracket is not closed; {HOW}")),
            None => match place.split_once(':') {
                Some((_, rest)) if rest.contains(':') => {
                    return Err(format!(
                        "write IPv6 addresses in brackets: nvme-tcp:[{place}]/{name}"
                    ));
                }
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let port = match port.map(str::parse::<u16>) {
            None => PORT,
            Some(Ok(port)) if port > 0 => port,
            Some(_) => return Err(format!("the port is a number from 1 to 65535; {HOW}")),
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(format!("the host is missing; {HOW}"));
        }
        // Names may have slashes in them, and do not end in a number behind one.
        let (nqn, nsid) = match name.rsplit_once('/') {
            Some((nqn, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => match number
                .parse::<u32>(
            ) {
                Ok(nsid) if nsid > 0 && nsid < u32::MAX => (nqn, Some(nsid)),
                _ => return Err(format!("`{number}` is no namespace: they count from 1; {HOW}")),
            },
            _ => (name, None),
        };
        let is_name = nqn.starts_with("nqn.") && nqn.len() <= NQN_BYTES_MAX;
        if !is_name || nqn.contains(char::is_whitespace) {
            return Err(format!("`{nqn}` is no name of a subsystem: those begin with nqn.; {HOW}"));
        }
        Ok(Self { host: host.into(), port, nqn: nqn.into(), nsid })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, nqn, nsid } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{PREFIX}{open}{host}{close}:{port}/{nqn}")?;
        nsid.map_or(Ok(()), |nsid| write!(f, "/{nsid}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        for (wrong, says) in [
            ("nvme-tcp:h", "name of the subsystem is missing"),
            ("h:0/nqn.a", "1 to 65535"),
            ("h:x/nqn.a", "1 to 65535"),
            (":4420/nqn.a", "host is missing"),
            ("fd00::7/nqn.a", "brackets: nvme-tcp:[fd00::7]/nqn.a"),
            ("[fd00::7/nqn.a", "not closed"),
            ("[fd00::7]4/nqn.a", "behind the brackets"),
            ("h/a", "begin with nqn."),
            ("h/nqn.a/0", "count from 1"),
            ("h/nqn.a/4294967295", "count from 1"),
        ] {
            let error = Address::parse(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn names_may_have_slashes() {
        let address = Address::parse("h/nqn.2014-08.org:a/b").unwrap();
        assert_eq!((address.nqn.as_str(), address.nsid), ("nqn.2014-08.org:a/b", None));
        let address = Address::parse("h/nqn.2014-08.org:a/b/7").unwrap();
        assert_eq!((address.nqn.as_str(), address.nsid), ("nqn.2014-08.org:a/b", Some(7)));
    }
}
