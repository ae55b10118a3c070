//! The least that a client can do: sends the same request over and over, and counts the bytes of the
//! answers. What its processor time is per request is the kernel's share of every generator's.
//!
//! `least ADDRESS CONNECTIONS DEPTH SECONDS [VALUE_BYTES]`, towards `floor ADDRESS VALUE_BYTES meta`.
//! Prints requests, and processor time per request in microseconds.

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const REQUEST: &[u8] = b"mg kkkkkkkkkkkkkkkkkkkk v\r\n";

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, connections, depth, seconds, rest @ ..] = &words[..] else {
        return Err("least ADDRESS CONNECTIONS DEPTH SECONDS [VALUE_BYTES]".into());
    };
    let value: usize = rest.first().map_or(Ok(80), |word| word.parse())?;
    let (connections, depth): (usize, usize) = (connections.parse()?, depth.parse()?);
    let answer = format!("VA {value}\r\n").len() + value + 2;
    let time = Duration::from_secs_f64(seconds.parse()?);
    let request = REQUEST.repeat(depth);
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut streams = Vec::new();
    for at in 0..connections as u64 {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&request)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(at), epoll::EventFlags::IN)?;
        streams.push((stream, 0));
    }
    let (mut events, mut input) = (Vec::with_capacity(64), vec![0; 256 << 10]);
    let (start, before, mut requests) = (Instant::now(), cpu_ns(), 0);
    while start.elapsed() < time {
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let (stream, received) = &mut streams[event.data.u64() as usize];
            *received += stream.read(&mut input)?;
            if *received == answer * depth {
                *received = 0;
                requests += depth;
                stream.write_all(&request)?;
            }
        }
    }
    println!("{requests} {:.4}", (cpu_ns() - before) as f64 / 1000.0 / requests as f64);
    Ok(())
}

fn cpu_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
