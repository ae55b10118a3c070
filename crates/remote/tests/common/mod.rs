//! A target in this process, a relay in front of it that stalls and cuts connections, and drives behind both.
#![allow(dead_code, unreachable_pub, reason = "each suite uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use terrace_device::sim::SimDevice;
use terrace_device::{AlignedBuf, Drive};
use terrace_export::{Config, NamespaceConfig, Server, Storage};
use terrace_remote::{Address, OpenError, Options, Purpose, RemoteDrive};

pub const BYTES: u64 = 16 << 20;
pub const BLOCK: usize = 4096;

/// A name of its own for each test: they run in one process, and a namespace has one owner.
pub fn nqn() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("nqn.2014-08.org.nvmexpress:test:{}:{number}", std::process::id())
}

/// A target that serves `drive` until it is dropped.
pub struct Target {
    server: Server,
    pub nqn: String,
}

impl Target {
    pub fn of(drive: &Arc<SimDevice>, nqn: &str) -> Self {
        Self::on(drive, nqn, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn on(drive: &Arc<SimDevice>, nqn: &str, address: SocketAddr) -> Self {
        let mut config = Config::new(nqn);
        config.listen = vec![address];
        config.namespaces.push(NamespaceConfig {
            nsid: 1,
            storage: Storage::Drive(Arc::clone(drive) as Arc<dyn Drive>),
            block_bytes: BLOCK as u32,
            nguid: [7; 16],
            read_only: false,
        });
        let server = Server::start(&config).expect("a target");
        Self { server, nqn: nqn.to_owned() }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    pub fn stop(self) {
        self.server.stop();
        self.server.wait().expect("it stops");
    }
}

/// How a relay treats what hosts send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It passes everything on.
    Pass,
    /// It keeps what comes from hosts, and passes it on later.
    Hold,
}

struct Inside {
    mode: Mutex<Mode>,
    /// Connections with lower numbers are held, whatever the mode is.
    held_below: AtomicU64,
    accepted: AtomicU64,
    changed: Condvar,
    /// Where new connections go.
    target: Mutex<SocketAddr>,
    connections: Mutex<Vec<(TcpStream, TcpStream)>>,
    /// Bytes from targets after which the connection that brings them is cut.
    cuts_after: AtomicU64,
    is_over: AtomicBool,
}

/// Stands between hosts and a target.
pub struct Relay {
    inside: Arc<Inside>,
    address: SocketAddr,
}

impl Relay {
    pub fn to(target: &Target) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let inside = Arc::new(Inside {
            mode: Mutex::new(Mode::Pass),
            held_below: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            changed: Condvar::new(),
            target: Mutex::new(target.address()),
            connections: Mutex::default(),
            cuts_after: AtomicU64::new(u64::MAX),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&inside);
        thread::spawn(move || own.accept(&listener));
        Self { inside, address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, mode: Mode) {
        *self.inside.mode.lock().unwrap() = mode;
        self.inside.changed.notify_all();
    }

    /// What the connections that there are hold back stays held, while those that come later pass all.
    pub fn hold_old(&self) {
        let accepted = self.inside.accepted.load(Ordering::Relaxed);
        self.inside.held_below.store(accepted, Ordering::Relaxed);
        self.set(Mode::Pass);
    }

    /// Ends that.
    pub fn release_old(&self) {
        self.inside.held_below.store(0, Ordering::Relaxed);
        self.set(Mode::Pass);
    }

    /// Connections that come later go there.
    pub fn redirect(&self, target: &Target) {
        *self.inside.target.lock().unwrap() = target.address();
    }

    /// Closes all connections on both sides.
    pub fn cut(&self) {
        for (host, target) in self.inside.connections.lock().unwrap().drain(..) {
            let _ = host.shutdown(Shutdown::Both);
            let _ = target.shutdown(Shutdown::Both);
        }
    }

    /// Closes them towards hosts alone: what was held still comes to the target.
    pub fn cut_hosts(&self) {
        for (host, _) in self.inside.connections.lock().unwrap().drain(..) {
            let _ = host.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the connection on which a target sends the last of `bytes` more bytes, also in the middle of a PDU.
    pub fn cut_after(&self, bytes: u64) {
        self.inside.cuts_after.store(bytes, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.inside.is_over.store(true, Ordering::Relaxed);
        self.set(Mode::Pass);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

impl Inside {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for host in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let Ok(host) = host else { continue };
            let address = *self.target.lock().unwrap();
            let Ok(target) = TcpStream::connect(address) else { continue };
            for socket in [&host, &target] {
                socket.set_nodelay(true).expect("an option");
            }
            let both =
                || (host.try_clone().expect("a clone"), target.try_clone().expect("a clone"));
            self.connections.lock().unwrap().push(both());
            let number = self.accepted.fetch_add(1, Ordering::Relaxed);
            let ((from, to), own) = (both(), Arc::clone(self));
            thread::spawn(move || own.pass(from, to, Some(number)));
            let ((to, from), own) = (both(), Arc::clone(self));
            thread::spawn(move || own.pass(from, to, None));
        }
    }

    /// From a host, on the connection of that number; or from the target.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, from_host: Option<u64>) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if let Some(number) = from_host {
                let mode = self.mode.lock().unwrap();
                let is_held = |mode: &mut Mode| {
                    *mode == Mode::Hold || number < self.held_below.load(Ordering::Relaxed)
                };
                drop(self.changed.wait_while(mode, is_held).unwrap());
            } else {
                let left = self.cuts_after.load(Ordering::Relaxed);
                if left < count as u64 {
                    self.cuts_after.store(u64::MAX, Ordering::Relaxed);
                    let _ = to.write_all(&bytes[..left as usize]);
                    break;
                }
                if left != u64::MAX {
                    self.cuts_after.store(left - count as u64, Ordering::Relaxed);
                }
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

pub fn address(at: SocketAddr, nqn: &str) -> Address {
    Address::parse(&format!("{at}/{nqn}")).expect("an address")
}

pub fn open(at: SocketAddr, nqn: &str) -> RemoteDrive {
    open_as(at, nqn, "nqn.2014-08.org.nvmexpress:host:a", Purpose::Own).expect("it opens")
}

pub fn open_as(
    at: SocketAddr,
    nqn: &str,
    host: &str,
    purpose: Purpose,
) -> Result<RemoteDrive, OpenError> {
    let options = Options { host_nqn: Some(host.to_owned()), purpose, ..Options::default() };
    RemoteDrive::open(&address(at, nqn), None, &options, &|_| false)
}

/// A drive whose writes are durable when they are answered, or at a flush.
pub fn sim(cache_bytes: usize) -> Arc<SimDevice> {
    Arc::new(SimDevice::with_blocks(BYTES, BLOCK as u32, cache_bytes, 7))
}

/// A buffer that says what it is.
pub fn stamped(bytes: usize, stamp: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(bytes);
    buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 64) as u8 ^ stamp);
    buf
}

/// Tries `step` until it says yes, and panics if that takes a minute.
pub fn until(what: &str, mut step: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !step() {
        assert!(Instant::now() < end, "waited for a minute: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
