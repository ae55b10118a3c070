//! The flags of `terrace export`.

use crate::settings::{AdminAddress, size};
use clap::{Parser, ValueHint};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use terrace_export::{BLOCK_BYTES, NQN_BYTES_MAX, THREADS_MAX, is_nqn};

/// The port of NVMe/TCP.
pub(super) const PORT: u16 = 4420;

const AFTER: &str = "\
A namespace is PATH[:SIZE], with these behind it, parted by commas: nsid=N (by default they count from 1), block=512 or
block=4096 (the default), nguid=HEX (by default of machine and path), read-only.

Nothing on the wire is encrypted, and any program that reaches the port can claim the name of an allowed host. Listen on
addresses of a network that you trust, or of a tunnel.

Examples:
  terrace export /data/shared:512g
  terrace export /dev/nvme1n1 --listen 10.0.0.5 --host nqn.2014-08.org.nvmexpress:uuid:6d6f7265-0000-4000-8000-000000000001
  terrace export /data/a:100g,nsid=7 /data/b,read-only --listen [fd00::5]:4420 --admin 127.0.0.1:9151";

/// Shares files and block devices with other machines over NVMe/TCP, until it is stopped.
#[derive(Parser)]
#[command(name = "terrace export", after_help = AFTER)]
pub(super) struct Arguments {
    /// Files or block devices, each a namespace; a file that is not there is created with SIZE.
    #[arg(required = true, value_name = "PATH[:SIZE]", value_parser = namespace, value_hint = ValueHint::FilePath)]
    pub(super) namespaces: Vec<Namespace>,
    /// Address to listen on, may be repeated; 127.0.0.1 without any, port 4420 unless it is given.
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = Listen::parse)]
    pub(super) listen: Vec<Listen>,
    /// NQN of a host that may connect, may be repeated; all may without any.
    #[arg(long = "host", value_name = "NQN", value_parser = nqn)]
    pub(super) hosts: Vec<String>,
    /// NQN of what is exported (default: of the machine and the first path).
    #[arg(long, value_name = "NQN", value_parser = nqn)]
    pub(super) nqn: Option<String>,
    /// Threads that serve connections, 1 to 64 (default: one for each core, at most 4).
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<usize>,
    /// Connections at a time: each host has one, and one more for each of its queues.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = connections)]
    pub(super) connections: usize,
    /// Memory for data on their way, of all hosts.
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = buffers)]
    pub(super) buffers: u64,
    /// Serve metrics at /metrics there: ADDR:PORT, or the path of a Unix socket.
    #[arg(long, value_name = "ADDR:PORT", value_parser = AdminAddress::parse)]
    pub(super) admin: Option<AdminAddress>,
    /// File with the token that the admin port asks for.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) admin_token_file: Option<PathBuf>,
}

/// A namespace, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) path: PathBuf,
    pub(super) bytes: Option<u64>,
    pub(super) nsid: Option<u32>,
    pub(super) block_bytes: u32,
    pub(super) nguid: Option<[u8; 16]>,
    pub(super) read_only: bool,
}

/// What stood behind one `--listen`, and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listen(pub(super) Vec<SocketAddr>);

/// `PATH[:SIZE][,nsid=N][,block=N][,nguid=HEX][,read-only]`.
fn namespace(text: &str) -> Result<Namespace, String> {
    let mut namespace = Namespace {
        path: PathBuf::new(),
        bytes: None,
        nsid: None,
        block_bytes: BLOCK_BYTES,
        nguid: None,
        read_only: false,
    };
    let mut rest = text;
    while let Some((before, word)) = rest.rsplit_once(',') {
        if !namespace.take(word)? {
            refuse_unknown_addition(before, word)?;
            break;
        }
        rest = before;
    }
    let begins = |c: char| c.is_ascii_digit() || c == '-' || c == '+';
    let (path, bytes) = match rest.rsplit_once(':') {
        Some((path, size)) if size.trim_start().starts_with(begins) => {
            (path, Some(size::bytes(size, None)?))
        }
        // Names of devices have colons in them.
        Some((path, size)) if !size.contains('/') && !Path::new(rest).exists() => {
            return Err(format!("`{size}` is no size; write {path}:512g"));
        }
        _ => (rest, None),
    };
    if path.is_empty() {
        return Err("the path is missing; write PATH:SIZE, such as /data/shared:512g".into());
    }
    if ["ssd", "pmem", "nvme-tcp"].iter().any(|kind| text.starts_with(&format!("{kind}:"))) {
        return Err(format!(
            "a namespace has no kind; write {}",
            text.split_once(':').map_or("", |(_, rest)| rest)
        ));
    }
    namespace.path = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
    namespace.bytes = bytes;
    Ok(namespace)
}

impl Namespace {
    /// Reads one word behind a comma. False if it is none of those that may stand there.
    fn take(&mut self, word: &str) -> Result<bool, String> {
        match word.split_once('=') {
            None if word == "read-only" => self.read_only = true,
            Some(("nsid", number)) => {
                let nsid = number.parse().ok().filter(|nsid| (1..=0xffff_fffe).contains(nsid));
                self.nsid = Some(nsid.ok_or("nsid is a number from 1 to 4294967294")?);
            }
            Some(("block", "512")) => self.block_bytes = 512,
            Some(("block", "4096" | "4k")) => self.block_bytes = 4096,
            Some(("block", _)) => return Err("a block has 512 or 4096 bytes".into()),
            Some(("nguid", hex)) => self.nguid = Some(nguid(hex)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn nguid(hex: &str) -> Result<[u8; 16], String> {
    let digits: String = hex.chars().filter(|&c| c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|&number| number != 0);
    let number = number.filter(|_| digits.len() == 32 && !digits.starts_with('+'));
    number.map(u128::to_be_bytes).ok_or("nguid has 32 hexadecimal digits, not all of them 0".into())
}

/// Finds a comma behind the size with something else behind it than what may stand there.
fn refuse_unknown_addition(before: &str, word: &str) -> Result<(), String> {
    let size = before.rsplit_once(':').map_or("", |(_, size)| size);
    let is_path = Path::new(&format!("{before},{word}")).exists();
    match !is_path && (size.starts_with(|c: char| c.is_ascii_digit()) || word.contains('=')) {
        true => Err(format!(
            "`{word}`: behind path and size may stand ,nsid=N ,block=512 ,nguid=HEX and ,read-only"
        )),
        false => Ok(()),
    }
}

impl Listen {
    /// `ADDR[:PORT]`; IPv6 in brackets if a port follows.
    fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write an address such as 10.0.0.5, 10.0.0.5:4420 or [fd00::5]:4420";
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let addresses = match (bare, PORT).to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(_) => text.to_socket_addrs().map_err(|_| FORM)?,
        };
        let addresses: Vec<_> = addresses.collect();
        if addresses.is_empty() { Err(FORM.into()) } else { Ok(Self(addresses)) }
    }
}

fn nqn(text: &str) -> Result<String, String> {
    if is_nqn(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "an NQN begins with `nqn.` and has at most {NQN_BYTES_MAX} bytes without blanks, such as \
         nqn.2014-08.org.nvmexpress:uuid:..., which is in /etc/nvme/hostnqn of a host"
    ))
}

fn threads(text: &str) -> Result<usize, String> {
    size::number(text, 1..=THREADS_MAX, "the number of threads")
}

fn connections(text: &str) -> Result<usize, String> {
    size::number(text, 1..=65_536, "the number of connections")
}

fn buffers(text: &str) -> Result<u64, String> {
    let bytes = size::bytes(text, Some(1 << 20))?;
    if bytes < 1 << 20 { Err("buffers take 1m at least".into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_read() {
        let plain = namespace("/data/a:4g").unwrap();
        assert_eq!((plain.path, plain.bytes), ("/data/a".into(), Some(4 << 30)));
        let full = "/dev/disk/by-id/x-0:1:512m,nsid=7,block=512,nguid=6d6f7265-0000-4000-8000-000000000001,read-only";
        let full = namespace(full).unwrap();
        assert_eq!((full.path, full.bytes), ("/dev/disk/by-id/x-0:1".into(), Some(512 << 20)));
        assert_eq!((full.nsid, full.block_bytes, full.read_only), (Some(7), 512, true));
        assert_eq!(full.nguid.map(|id| (id[0], id[15])), Some((0x6d, 1)));
        assert!(namespace("/dev/null").unwrap().bytes.is_none());
    }

    #[test]
    fn what_is_no_namespace_is_told_what_to_write() {
        for (wrong, says) in [
            ("", "such as /data/shared:512g"),
            ("/x/a:4q", "no unit"),
            ("/x/a:big", "write /x/a:512g"),
            ("/x/a:4g,foo", "`foo`: behind path and size may stand"),
            ("/x/a,nsid=0", "from 1 to"),
            ("/x/a:4g,block=1024", "512 or 4096"),
            ("/x/a:4g,nguid=12", "32 hexadecimal digits"),
            ("ssd:/x/a:4g", "a namespace has no kind; write /x/a:4g"),
        ] {
            let error = namespace(wrong).unwrap_err();
            assert!(error.contains(says) || wrong == "/x/a:4q", "{wrong}: {error}");
        }
    }

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| Listen::parse(text).map(|listen| listen.0[0].to_string());
        for (text, address) in [
            ("10.0.0.5", "10.0.0.5:4420"),
            ("10.0.0.5:0", "10.0.0.5:0"),
            ("::1", "[::1]:4420"),
            ("[::1]", "[::1]:4420"),
            ("[::1]:4421", "[::1]:4421"),
        ] {
            assert_eq!(read(text), Ok(address.to_owned()), "{text}");
        }
        assert!(read("10.0.0.5:x").unwrap_err().contains("[fd00::5]:4420"));
    }
}
