//! Reads of one connection for one key that lies on a drive: the drive may answer them in any order, and each takes
//! effect before the next begins all the same.

mod common;

use common::binary::{GET, packet, receive};
use common::{Client, TestServer, fill, open_file};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use terrace_device::{AlignedBuf, Drive, FileDevice, Geometry, Part};
use terrace_e2e::wait_until;

/// By then a read that does not wait for the one before it has overtaken it.
const OVERTAKEN: Duration = Duration::from_millis(300);

/// No lookup reads more at once; what moves segments does.
const LOOKUP_BYTES_MAX: usize = 8 << 10;

/// What becomes of the next lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Passes,
    /// If it brings such bytes.
    IsHeld(&'static str),
    /// It is there.
    Waits,
}

/// A drive that holds one lookup while other reads pass, those of the background, too.
struct Gate {
    file: FileDevice,
    next: Mutex<Next>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, next: Next) {
        *self.next.lock().expect("no panic") = next;
        self.changed.notify_all();
    }

    /// Has `client` send `request`, the first read of which, one that brings the `record`, is held while `meanwhile`
    /// runs.
    fn hold(
        &self,
        client: &mut Client,
        record: &'static str,
        request: impl AsRef<[u8]>,
        meanwhile: impl FnOnce(),
    ) {
        self.set(Next::IsHeld(record));
        client.send(request);
        wait_until("a read", || (*self.next.lock().ok()? == Next::Waits).then_some(()));
        std::thread::sleep(OVERTAKEN);
        meanwhile();
        self.set(Next::Passes);
    }
}

impl Drive for Gate {
    fn label(&self) -> &str {
        self.file.label()
    }
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.file.read_at(offset, buf)?;
        let brings =
            |record: &str| buf.windows(record.len()).any(|bytes| bytes == record.as_bytes());
        let mut next = self.next.lock().expect("no panic");
        if let Next::IsHeld(record) = *next
            && buf.len() <= LOOKUP_BYTES_MAX
            && brings(record)
        {
            *next = Next::Waits;
            let waits = |next: &mut Next| *next == Next::Waits;
            drop(self.changed.wait_while(next, waits).expect("no panic"));
        }
        Ok(())
    }
    fn read_each(&self, parts: &mut [Part<'_>]) {
        self.file.read_each(parts);
    }
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.file.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A server with the records that `request` stores on its drive.
fn gated_server(request: &str) -> (TestServer, Arc<Gate>, TempDir) {
    let (file, dir) = open_file(256 << 20);
    let gate = Arc::new(Gate { file, next: Mutex::default(), changed: Condvar::new() });
    let small = |settings: &mut terrace::settings::Settings| settings.memory_bytes = 16 << 20;
    let server = TestServer::over(small, vec![Arc::clone(&gate) as Arc<dyn Drive>]);
    let mut client = server.connect();
    client.ask(request, "");
    fill(&mut client);
    (server, gate, dir)
}

#[test]
fn a_later_read_is_answered_with_nothing_older() {
    let old = |number| format!("set k{number} 0 0 3 noreply\r\nold\r\n");
    let (server, gate, _dir) = gated_server(&(0..4).map(old).collect::<String>());
    let (mut reader, mut writer) = (server.connect(), server.connect());
    let mut set = |number| {
        writer.ask(format!("set k{number} 0 0 3\r\nnew\r\n"), "STORED\r\n");
    };
    gate.hold(&mut reader, "k0old", "get k0\r\n".repeat(2), || set(0));
    reader.expect("VALUE k0 0 3\r\nnew\r\nEND\r\n".repeat(2));
    gate.hold(&mut reader, "k1old", "get k1 k1\r\n", || set(1));
    reader.expect("VALUE k1 0 3\r\nnew\r\nVALUE k1 0 3\r\nnew\r\nEND\r\n");
    gate.hold(&mut reader, "k2old", "mg k2 v\r\n".repeat(2), || set(2));
    reader.expect("VA 3\r\nnew\r\n".repeat(2));
    let mut reader = server.connect();
    gate.hold(&mut reader, "k3old", packet(GET, b"", "k3", b"", 0).repeat(2), || set(3));
    assert_eq!([receive(&mut reader).value, receive(&mut reader).value], [b"new", b"new"]);
}

#[test]
fn of_two_readers_of_a_stale_record_the_first_wins() {
    let (server, gate, _dir) = gated_server("ms k 3 q\r\nold\r\nmd k I q\r\n");
    let mut client = server.connect();
    gate.hold(&mut client, "kold", "mg k v\r\n".repeat(2), || {});
    client.expect("VA 3 X W\r\nold\r\nVA 3 Z X\r\nold\r\n");
}
