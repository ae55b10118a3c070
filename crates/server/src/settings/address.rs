//! Listeners and tiers as they are written on the command line.

use super::size;
use super::{ListenAddress, ListenTls, TierSpec, table};
use std::path::Path;
use terrace_probe::Profile;
use terrace_remote::Address;
use terrace_runtime::place::{Place, Remote};

const FORM: &str = "write an address such as 127.0.0.1, host:11211 or [::1]:11211";

/// The addresses of one `-l`, separated by one or more of `,` and `;`; `*` is all addresses.
pub(crate) fn listeners(text: &str) -> Result<Vec<ListenAddress>, String> {
    let parts = text.split([',', ';']).map(str::trim).filter(|part| !part.is_empty());
    let all = parts.map(listener).collect::<Result<Vec<_>, _>>()?;
    if all.is_empty() { Err(FORM.into()) } else { Ok(all) }
}

fn listener(text: &str) -> Result<ListenAddress, String> {
    let mut listen = ListenAddress { host: String::new(), port: None, tls: None, protocol: None };
    let text = prefixes(text, &mut listen)?;
    refuse_unknown_prefix(text)?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(FORM)?)),
            None => return Err(FORM.into()),
        },
        // More than one colon without brackets: an IPv6 address alone.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(FORM.into());
    }
    listen.port = port.map(|port| size::number(port, 1..=65535, "a port")).transpose()?;
    listen.host = host.to_string();
    Ok(listen)
}

/// Finds a word in front that is neither a prefix nor a host with its port, such as `tls:127.0.0.1`.
fn refuse_unknown_prefix(text: &str) -> Result<(), String> {
    let Some((word, rest)) = text.split_once(':') else { return Ok(()) };
    let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let may_be_ipv6 = rest.contains(':') && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_port = rest.trim().bytes().all(|byte| byte.is_ascii_digit());
    if !is_word || may_be_ipv6 || is_port {
        return Ok(());
    }
    Err(format!(
        "`{rest}` is no port, and `{word}:` none of what may stand before an address: notls:, btls:, \
         mtls:, proto[NAME]:, tag[NAME]:"
    ))
}

/// Takes `notls:`, `btls:`, `mtls:`, `proto[NAME]:` and `tag[NAME]:` off the front.
fn prefixes<'t>(mut text: &'t str, listen: &mut ListenAddress) -> Result<&'t str, String> {
    const TLS: [(&str, ListenTls); 3] =
        [("notls:", ListenTls::Off), ("btls:", ListenTls::Basic), ("mtls:", ListenTls::Mutual)];
    loop {
        if let Some((prefix, tls)) = TLS.iter().find(|(prefix, _)| text.starts_with(prefix)) {
            listen.tls = Some(*tls);
            text = &text[prefix.len()..];
        } else if let Some(rest) = text.strip_prefix("proto[") {
            let (name, rest) =
                rest.split_once("]:").ok_or("write proto[NAME]: before an address")?;
            let name = if name == "negotiating" { "auto" } else { name };
            listen.protocol = Some(table::protocol_named(name)?);
            text = rest;
        } else if let Some(rest) = text.strip_prefix("tag[") {
            // A name by which memcached's proxy tells listeners apart; there is no proxy here.
            let (name, rest) = rest.split_once("]:").ok_or("write tag[NAME]: before an address")?;
            if name.is_empty() || name.len() > 8 {
                return Err("a tag is a name of 1 to 8 letters".into());
            }
            text = rest;
        } else {
            return Ok(text);
        }
    }
}

/// `ssd:PATH[:SIZE][,below][,profile=FILE]` or `nvme-tcp:HOST[:PORT]/NQN[/NSID][,OPTION...]` of `--tier`. The file is
/// read here, so that a wrong one is wrong usage.
pub(crate) fn tier(text: &str) -> Result<TierSpec, String> {
    const BELOW: &str = ",below";
    let last = text.strip_suffix(BELOW);
    let (text, profile) = match last.unwrap_or(text).split_once(",profile=") {
        Some((text, file)) => (text, Some(Profile::read(file.as_ref()))),
        None => (last.unwrap_or(text), None),
    };
    let first = text.strip_suffix(BELOW);
    let (is_below, text) = (first.or(last).is_some(), first.unwrap_or(text));
    let profile = profile.transpose().map_err(|error| error.to_string())?;
    match text.split_once(':') {
        Some(("ssd", rest)) => {
            refuse_unknown_addition(rest)?;
            let spec = path_and_size(rest, size::bytes)?;
            let read_depth = profile.map(|profile| profile.queue_depth);
            Ok(TierSpec { read_depth, is_below, ..spec })
        }
        Some(("nvme-tcp", rest)) => {
            let spec = remote(rest)?;
            let read_depth = profile.map(|profile| profile.queue_depth);
            Ok(TierSpec { read_depth, is_below, ..spec })
        }
        Some(("pmem", _)) => {
            Err("pmem tiers are not in this version; use ssd:PATH:SIZE".to_owned())
        }
        Some((word, rest)) if is_kind(word, rest) => {
            Err(format!("there is no kind {word}; the kind of every drive is ssd: ssd:{rest}"))
        }
        None if is_kind(text, "") => {
            Err("write a tier as ssd:PATH:SIZE, such as ssd:/data/cache:512g".into())
        }
        _ => Err(format!("write the kind first: ssd:{text}")),
    }
}

/// `HOST[:PORT]/NQN[/NSID][,size=SIZE][,digests][,host=NQN][,takeover]`.
fn remote(text: &str) -> Result<TierSpec, String> {
    let mut parts = text.split(',');
    let address = Address::parse(parts.next().unwrap_or_default())?;
    let (host_nqn, digests, may_take) = (None, false, false);
    let (mut remote, mut bytes) = (Remote { address, host_nqn, digests, may_take }, None);
    for part in parts {
        match part.split_once('=') {
            Some(("size", size)) => bytes = Some(size::bytes(size, None)?),
            Some(("host", name)) if name.starts_with("nqn.") => {
                remote.host_nqn = Some(name.to_owned());
            }
            None if part == "digests" => remote.digests = true,
            None if part == "takeover" => remote.may_take = true,
            _ => {
                return Err(format!(
                    "`{part}`: behind a remote drive may stand ,size=SIZE ,digests ,host=NQN ,takeover \
                     ,below and ,profile=FILE"
                ));
            }
        }
    }
    if bytes == Some(0) {
        return Err("a tier of no bytes holds nothing; write a size such as 4g".into());
    }
    Ok(TierSpec { place: Place::Remote(remote), bytes, read_depth: None, is_below: false })
}

/// Whether `word` is meant as the kind of a tier, not as a path with `rest` as its size.
fn is_kind(word: &str, rest: &str) -> bool {
    let is_word = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_word && !rest.starts_with(|c: char| c.is_ascii_digit())
}

/// Finds a comma behind the size with something else behind it than what `tier` takes off.
fn refuse_unknown_addition(text: &str) -> Result<(), String> {
    let (_, size) = text.rsplit_once(':').unwrap_or_default();
    match size.split_once(',') {
        Some((size, other)) if size.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(format!("`{other}`: behind the size may stand ,below and ,profile=FILE, each once"))
        }
        _ => Ok(()),
    }
}

/// `FILE:SIZE[:BUCKET,...]` of memcached's `ext_path`. Buckets say what memcached puts there; here
/// every tier takes everything.
pub(crate) fn ext_path(text: &str) -> Result<TierSpec, String> {
    const BUCKETS: [&str; 6] = ["default", "compact", "lowttl", "chunked", "coldcompact", "old"];
    let text = match text.rsplit_once(':') {
        Some((rest, bucket)) if bucket.split('|').all(|b| BUCKETS.contains(&b)) => rest,
        _ => text,
    };
    let tier = path_and_size(text, size::leading_bytes)?;
    match tier.bytes {
        Some(_) => Ok(tier),
        None => Err(format!("say the size too: ext_path={text}:64g")),
    }
}

fn path_and_size(
    text: &str,
    read: fn(&str, Option<u64>) -> Result<u64, String>,
) -> Result<TierSpec, String> {
    let begins = |c: char| c.is_ascii_digit() || c == '-' || c == '+';
    let (path, bytes) = match text.rsplit_once(':') {
        // What begins with a digit is meant as a size; a path that ends in such a part can be
        // written with a size behind it.
        Some((path, size)) if size.trim_start().starts_with(begins) => {
            (path, Some(read(size, None)?))
        }
        // Names of devices have colons in them. Of a file that is not there, a part like that is a mistyped size.
        Some((path, size))
            if !size.contains('/') && !text.starts_with("/dev/") && !Path::new(text).exists() =>
        {
            return Err(format!("`{size}` is no size; write ssd:{path}:512g"));
        }
        _ => (text, None),
    };
    if path.is_empty() {
        return Err("the path is missing; write ssd:/path/to/file:SIZE".into());
    }
    if bytes == Some(0) {
        return Err("a tier of no bytes holds nothing; write a size such as 4g".into());
    }
    let place = Place::Local(table::path(path)?);
    Ok(TierSpec { place, bytes, read_depth: None, is_below: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(path: &str) -> Place {
        Place::Local(path.into())
    }

    fn address(host: &str, port: Option<u16>) -> ListenAddress {
        ListenAddress { host: host.into(), port, tls: None, protocol: None }
    }

    #[test]
    fn reads_listeners() {
        assert_eq!(
            listeners("127.0.0.1,localhost:1;[::1]:2,[::],fe80::1,notls:h"),
            Ok(vec![
                address("127.0.0.1", None),
                address("localhost", Some(1)),
                address("::1", Some(2)),
                address("::", None),
                address("fe80::1", None),
                ListenAddress { tls: Some(ListenTls::Off), ..address("h", None) },
            ])
        );
        let (a, b) = (address("a", None), address("b", Some(1)));
        for text in ["a,b:1", " a,b:1 ", "a,,b:1", ",a;b:1,", "a, b: 1 ,"] {
            assert_eq!(listeners(text), Ok(vec![a.clone(), b.clone()]), "{text:?}");
        }
        assert_eq!(listeners("*,*:11222"), Ok(vec![address("*", None), address("*", Some(11222))]));
        for wrong in ["", ",", " ", ":1", "h:", "h:0", "h:65536", "[::1", "[::1]1", "a b"] {
            assert!(listeners(wrong).is_err(), "{wrong:?} was taken for a listener");
        }
    }

    #[test]
    fn reads_what_stands_before_an_address() {
        let read = |text| listeners(text).map(|all| all[0].clone());
        let ascii = Some(super::super::Protocol::Ascii);
        let at = |host: &str, port, tls, protocol| {
            Ok(ListenAddress { host: host.into(), port, tls, protocol })
        };
        assert_eq!(read("mtls:h:1"), at("h", Some(1), Some(ListenTls::Mutual), None));
        assert_eq!(read("btls:[::1]"), at("::1", None, Some(ListenTls::Basic), None));
        assert_eq!(
            read("notls:proto[ascii]:tag[b]:h:1"),
            at("h", Some(1), Some(ListenTls::Off), ascii)
        );
        assert_eq!(
            read("proto[negotiating]:h").map(|l| l.protocol),
            Ok(Some(super::super::Protocol::Auto))
        );
        for text in ["tls:127.0.0.1", "ssl:127.0.0.1:11211", "tls:[::1]:1", "localhost:abc"] {
            let error = read(text).unwrap_err();
            assert!(error.contains("notls:, btls:, mtls:"), "{text}: {error}");
        }
        assert_eq!(read("beef::1"), at("beef::1", None, None, None));
        for wrong in ["mtls:", "proto[ascii]", "proto[x]:h", "tag[]:h", "tag[123456789]:h"] {
            assert!(listeners(wrong).is_err(), "{wrong:?} was taken for a listener");
        }
    }

    #[test]
    fn reads_tiers() {
        let spec = |path: &str, bytes| {
            Ok(TierSpec { place: local(path), bytes, read_depth: None, is_below: false })
        };
        assert_eq!(tier("ssd:/data/a:512G"), spec("/data/a", Some(512 << 30)));
        assert_eq!(tier("ssd:/dev/nvme1n1"), spec("/dev/nvme1n1", None));
        assert_eq!(
            tier("ssd:/dev/disk/by-path/pci-0:a.b"),
            spec("/dev/disk/by-path/pci-0:a.b", None)
        );
        assert!(tier("/data/a:1g").unwrap_err().contains("ssd:/data/a:1g"));
        for (wrong, says) in [
            ("hdd:/x/a:1g", "no kind hdd; the kind of every drive is ssd: ssd:/x/a:1g"),
            ("cache:1g", "write the kind first: ssd:cache:1g"),
            ("ssd", "such as ssd:/data/cache:512g"),
            ("ssd:/x/a:64m,foo", "`foo`: behind the size may stand ,below and ,profile=FILE"),
        ] {
            let error = tier(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
        assert!(tier("pmem:/a:1g").unwrap_err().contains("not in this version"));
        for wrong in
            ["ssd:", "ssd::1g", "ssd:/a:1q", "ssd:/a:0g", "ssd:/a:-1g", "ssd:/a:64", "hdd:/a"]
        {
            assert!(tier(wrong).is_err(), "{wrong:?} was taken for a tier");
        }
    }

    #[test]
    fn reads_profiles_of_drives() {
        let dir = tempfile::tempdir().unwrap();
        let (good, wrong) = (dir.path().join("good.toml"), dir.path().join("wrong.toml"));
        let text = "terrace_device_profile = 1\nname = \"/d\"\ncapacity_bytes = 1e9\nread_iops = 5e4\n\
                    queue_depth = 16\nread_us_p50 = 90.0\nread_us_p99 = 200.0\n";
        std::fs::write(&good, text).unwrap();
        std::fs::write(&wrong, "memory-limit = \"4g\"\n").unwrap();
        let spec = tier(&format!("ssd:/a:1g,profile={}", good.display())).unwrap();
        assert_eq!((spec.bytes, spec.read_depth), (Some(1 << 30), Some(16)));
        for text in ["below,profile=", "profile="] {
            let end = if text.starts_with("below") { "" } else { ",below" };
            let spec = tier(&format!("ssd:/a:1g,{text}{}{end}", good.display())).unwrap();
            assert!(spec.is_below && spec.read_depth.is_some(), "{text}");
        }
        assert!(tier("ssd:/a,below").unwrap().is_below && !tier("ssd:/a:1g").unwrap().is_below);
        let error = tier(&format!("ssd:/a:1g,profile={}", wrong.display())).unwrap_err();
        assert!(error.contains("no device profile") && error.contains("terrace probe"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(tier("ssd:/a:1g,profile=/no/such/file").is_err());
        assert!(tier("ssd:/a:1g,profile=").is_err());
    }

    #[test]
    fn reads_memcached_paths() {
        let spec = TierSpec {
            place: local("/a"),
            bytes: Some(64 << 20),
            read_depth: None,
            is_below: false,
        };
        assert_eq!(ext_path("/a:64m"), Ok(spec));
        for text in ["/a:1G:compact", "/a:1Gi", "/a:1GB", "/a: 1g", "/a:1.5g", "/a:+1g"] {
            assert_eq!(ext_path(text).map(|t| t.bytes), Ok(Some(1 << 30)), "{text}");
        }
        assert!(ext_path("/a:64").is_err() && ext_path("/a:64x").is_err());
        for text in ["ssd:/a:1Gi", "ssd:/a:1GB", "ssd:/a:1gib"] {
            assert_eq!(tier(text).map(|t| t.bytes), Ok(Some(1 << 30)), "{text}");
        }
        assert!(tier("ssd:/a:1.5g").is_err(), "half of it would be left out");
        assert!(ext_path("/a").unwrap_err().contains("ext_path=/a:64g"));
    }
}
