//! Random reads of 4 KiB from a target, in a closed loop: `read_load ADDRESS NQN DEPTH QUEUES SECONDS`. Prints reads per
//! second, median and p99 of their time, and the processor time of this side for each.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use terrace_e2e::NvmeHost;
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::host::{Controller, Event, Login, Queue};
use terrace_nvme::pdu::{Digests, Piece};

const READ_BYTES: usize = 4096;

/// One queue in its closed loop.
struct Load {
    stream: TcpStream,
    queue: Queue,
    data: Vec<Vec<u8>>,
    begun: Vec<Instant>,
    random: u64,
    blocks: u64,
    block_shift: u32,
    times: Vec<u32>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, nqn, depth, queues, seconds] = &words[..] else {
        panic!("read_load ADDRESS NQN DEPTH QUEUES SECONDS");
    };
    let address: SocketAddr = address.parse().expect("ADDRESS as 127.0.0.1:4420");
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let (depth, queues, seconds) = (number(depth), number(queues), number(seconds));
    let host =
        NvmeHost::connect(address, NvmeHost::login(99, nqn), (0, 0), Digests::default(), Some(1))
            .expect("a target");
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let threads = (1..=queues as u16).map(|number| {
        let (controller, login) = (host.controller.clone(), host.login.clone());
        thread::spawn(move || {
            let mut load = Load::connect(address, &controller, &login, (number, depth));
            load.run(depth, end);
            load.times
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut times: Vec<u32> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a queue")).collect();
    times.sort_unstable();
    let used = cpu_seconds();
    let count = times.len().max(1);
    let at = |percent: usize| f64::from(times[(count - 1) * percent / 100]) / 1e3;
    println!(
        "{:.0} reads/s, p50 {:.1} us, p99 {:.1} us, {:.2} us of CPU each ({count} reads)",
        count as f64 / f64::from(seconds),
        at(50),
        at(99),
        used * 1e6 / count as f64
    );
}

/// Processor time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a proc file system");
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

impl Load {
    fn connect(
        address: SocketAddr,
        controller: &Controller,
        login: &Login,
        (number, depth): (u16, u32),
    ) -> Self {
        let config = controller.io_queue(depth + 1, 1, Digests::default());
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("TCP");
        let namespace = controller.namespace.expect("a namespace").info;
        let queue = Queue::new(config);
        let data = vec![vec![0; READ_BYTES]; queue.capacity()];
        let begun = vec![Instant::now(); queue.capacity()];
        let mut this = Self {
            stream,
            queue,
            data,
            begun,
            random: (u64::from(number) * 0x9e37_79b9_7f4a_7c15) | 1,
            blocks: namespace.blocks,
            block_shift: u32::from(namespace.block_shift),
            times: Vec::with_capacity(1 << 22),
        };
        while !this.queue.has_room() {
            this.turn();
        }
        let (command, data) = login.io(controller.info.controller_id, number, config.entries);
        let tag = this.queue.submit(command, data.len() as u32).expect("room");
        this.data[tag.index()] = data.into();
        while this.queue.outstanding().next().is_some() {
            this.turn();
        }
        this.data.iter_mut().for_each(|data| data.resize(READ_BYTES, 0));
        this.times.clear();
        this
    }

    fn run(&mut self, depth: u32, end: Instant) {
        for _ in 0..depth {
            self.submit();
        }
        loop {
            let done = self.turn();
            if Instant::now() >= end {
                return;
            }
            (0..done).for_each(|_| self.submit());
        }
    }

    fn submit(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let count = (READ_BYTES >> self.block_shift) as u32;
        let lba = self.random % (self.blocks / u64::from(count)) * u64::from(count);
        let command = nvm::read(1, Blocks { lba, count });
        let tag = self.queue.submit(command, READ_BYTES as u32).expect("room");
        self.begun[tag.index()] = Instant::now();
    }

    /// Sends, receives, and returns how many commands are over.
    fn turn(&mut self) -> usize {
        loop {
            let mut bytes = Vec::with_capacity(8192);
            for piece in self.queue.pieces() {
                match piece {
                    Piece::Bytes(piece) => bytes.extend_from_slice(piece),
                    Piece::Data(range) => bytes.extend_from_slice(
                        &self.data[usize::from(range.command)][..range.bytes as usize],
                    ),
                }
            }
            if bytes.is_empty() {
                break;
            }
            self.stream.write_all(&bytes).expect("it goes on");
            self.queue.sent(bytes.len());
        }
        let mut scratch = [0; 128 << 10];
        let received = self.stream.read(&mut scratch).expect("it goes on");
        let mut input = &scratch[..received];
        assert!(!input.is_empty(), "the target has closed the connection");
        while !input.is_empty() {
            let taken = match self.queue.placement() {
                Some(place) => {
                    let bytes = (place.bytes as usize).min(input.len());
                    let at = place.offset as usize;
                    self.data[place.tag.index()][at..at + bytes].copy_from_slice(&input[..bytes]);
                    self.queue.placed(&input[..bytes]).expect("a good target");
                    bytes
                }
                None => self.queue.receive(input).expect("a good target"),
            };
            input = &input[taken..];
        }
        let mut done = 0;
        while let Some(event) = self.queue.event() {
            if let Event::Completed { tag, outcome } = event {
                assert!(outcome.status.is_success(), "{:?}", outcome.status);
                self.times.push(self.begun[tag.index()].elapsed().as_nanos() as u32);
                done += 1;
            }
        }
        done
    }
}
