//! Answers every line with the same value, on one thread: what no server can be cheaper than.
//!
//! `floor ADDRESS [VALUE_BYTES] [ascii|meta]`, to be read with `terrace-load get --blind`, which
//! still counts its answers: in the classic protocol as wrong, since no key fits.

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("floor ADDRESS [VALUE_BYTES] [ascii|meta]")?;
    let bytes: usize = arguments.next().map_or(Ok(80), |word| word.parse())?;
    let value = "v".repeat(bytes);
    let answer = match arguments.next().as_deref() {
        Some("meta") => format!("VA {bytes}\r\n{value}\r\n"),
        _ => format!("VALUE kkkkkkkkkkkkkkkkkkkk 0 {bytes}\r\n{value}\r\nEND\r\n"),
    };
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    serve(&listener, answer.as_bytes())
}

fn serve(listener: &TcpListener, answer: &[u8]) -> Result<(), Failure> {
    const LISTENER: u64 = u64::MAX;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(64);
    let (mut input, mut out) = (vec![0; 64 << 10], Vec::new());
    loop {
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let at = event.data.u64();
            if at == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                let data = epoll::EventData::new_u64(streams.len() as u64);
                epoll::add(&poll, &stream, data, epoll::EventFlags::IN)?;
                streams.push(Some(stream));
                continue;
            }
            let Some(stream) = &mut streams[at as usize] else { continue };
            let bytes = match stream.read(&mut input) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            if bytes == 0 {
                streams[at as usize] = None;
                continue;
            }
            out.clear();
            for _ in input[..bytes].iter().filter(|byte| **byte == b'\n') {
                out.extend_from_slice(answer);
            }
            // Blocks a client that does not read; this one always does.
            let _ = stream.write_all(&out);
        }
    }
}
