//! The metrics of `terrace export`: one table, which its `/metrics` and docs/export-metrics.md come from.

use crate::admin::{Kind, Samples};
use Kind::{Counter, Gauge};
use std::fmt::Write;
use terrace_device::ErrorClass;
use terrace_export::{NamespaceStatus, Status};

/// One metric.
struct Metric {
    /// Without the `terrace_export_` that all begin with.
    name: &'static str,
    kind: Kind,
    /// Its labels, for the documentation.
    labels: &'static str,
    help: &'static str,
    samples: fn(&Status, &mut Samples<'_>),
}

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static str,
    help: &'static str,
    samples: fn(&Status, &mut Samples<'_>),
) -> Metric {
    Metric { name, kind, labels, help, samples }
}

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    metric("build_info", Gauge, "version", "1, with the version", |_, s| s.one(&[("version", env!("CARGO_PKG_VERSION"))], 1)),
    metric("hosts", Gauge, "", "controllers that hosts have, those of the discovery service included", |v, s| s.one(&[], v.controllers)),
    metric("connections", Gauge, "", "open connections", |v, s| s.one(&[], v.connections)),
    metric("connections_half_open", Gauge, "", "connections on which no Connect has succeeded", |v, s| s.one(&[], v.half_open)),
    metric("connections_total", Counter, "", "connections since the start", |v, s| s.one(&[], v.accepted)),
    metric("connections_closed_total", Counter, "reason", "connections that this side closed: as many are open as may be (`full`), no Connect succeeded in time (`no_connect`), the host broke the protocol (`protocol`), did not keep its association alive (`keep_alive`), or held buffers that others waited for and moved nothing (`stalled`)", |v, s| {
        s.one(&[("reason", "full")], v.rejected);
        s.one(&[("reason", "no_connect")], v.never_connected);
        s.one(&[("reason", "protocol")], v.protocol_errors);
        s.one(&[("reason", "keep_alive")], v.keep_alive_timeouts);
        s.one(&[("reason", "stalled")], v.stalled);
    }),
    metric("buffer_bytes", Gauge, "", "memory for data on their way", |v, s| s.one(&[], v.buffer_bytes)),
    metric("buffer_used_bytes", Gauge, "", "of that, what commands have", |v, s| s.one(&[], v.buffer_bytes_used)),
    metric("buffer_limit_bytes", Gauge, "", "how much of it there may be (--buffers)", |v, s| s.one(&[], v.buffer_bytes_max)),
    metric("buffer_waits_total", Counter, "", "times that data waited for a buffer", |v, s| s.one(&[], v.buffer_waits)),
    metric("namespace_bytes", Gauge, "nsid, path", "size of the namespace", |v, s| each(v, s, |n| n.bytes)),
    metric("namespace_reads_total", Counter, "nsid, path", "reads", |v, s| each(v, s, |n| n.reads)),
    metric("namespace_read_bytes_total", Counter, "nsid, path", "bytes of these", |v, s| each(v, s, |n| n.read_bytes)),
    metric("namespace_writes_total", Counter, "nsid, path", "writes", |v, s| each(v, s, |n| n.writes)),
    metric("namespace_written_bytes_total", Counter, "nsid, path", "bytes of these", |v, s| each(v, s, |n| n.written_bytes)),
    metric("namespace_flushes_total", Counter, "nsid, path", "flushes, those of writes that must be on the medium included", |v, s| each(v, s, |n| n.flushes)),
    metric("namespace_zeroed_bytes_total", Counter, "nsid, path", "bytes that Write Zeroes asked for", |v, s| each(v, s, |n| n.zeroed_bytes)),
    metric("namespace_errors_total", Counter, "nsid, path, kind", "commands that the file or device failed, by what was wrong", |v, s| {
        for namespace in &v.namespaces {
            let nsid = namespace.nsid.to_string();
            for class in ErrorClass::ALL {
                let labels = [("nsid", &*nsid), ("path", &*namespace.path), ("kind", class.name())];
                s.one(&labels, namespace.errors.of(class));
            }
        }
    }),
];

fn each(status: &Status, samples: &mut Samples<'_>, value: fn(&NamespaceStatus) -> u64) {
    for namespace in &status.namespaces {
        let nsid = namespace.nsid.to_string();
        samples.one(&[("nsid", &nsid), ("path", &namespace.path)], value(namespace));
    }
}

/// What `/metrics` answers.
pub(super) fn text(status: &Status) -> String {
    let mut text = String::new();
    for metric in METRICS {
        let name = format!("export_{}", metric.name);
        // Writing to a String can't fail.
        let _ = writeln!(text, "# HELP terrace_{name} {}", metric.help);
        let _ = writeln!(text, "# TYPE terrace_{name} {}", metric.kind.name());
        (metric.samples)(status, &mut Samples::new(&name, &mut text));
    }
    text
}

/// The content of docs/export-metrics.md.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Metrics of terrace export\n\n\
         `terrace export --admin ADDR:PORT` (or a path, for a Unix socket) serves these at `/metrics`, and `/healthz`\n\
         and `/readyz` for probes. Which clients may read them is as for the server's own page: see\n\
         [metrics.md](metrics.md).\n\n\
         Written from the table in `crates/server/src/export/metrics.rs` by\n\
         `TERRACE_UPDATE_DOCS=1 cargo test -p terrace --lib export`; a test fails when it is out of date.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let (name, kind) = (metric.name, metric.kind.name());
        let line = format!("| `terrace_export_{name}` | {kind} | {} |", metric.labels);
        text.push_str(&format!("{line} {} |\n", metric.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for metric in METRICS {
            let is_total = metric.name.ends_with("_total");
            assert_eq!(is_total, metric.kind == Counter, "{}: counters end in _total", metric.name);
        }
    }

    #[test]
    fn the_documentation_is_up_to_date() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/export-metrics.md");
        if std::env::var_os("TERRACE_UPDATE_DOCS").is_some() {
            std::fs::write(file, markdown()).unwrap();
        }
        let is_current = std::fs::read_to_string(file).unwrap_or_default() == markdown();
        assert!(is_current, "{file}: run TERRACE_UPDATE_DOCS=1 cargo test -p terrace --lib");
    }
}
