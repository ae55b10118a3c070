//! A plain client for what is asked once: statistics and commands of one line.

use crate::socket::Socket;
use crate::{Address, LoadError, Tls};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::time::Duration;

const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that waits for each reply.
pub struct Client {
    socket: BufReader<Socket>,
}

impl Client {
    /// Connects to a TCP address.
    ///
    /// # Errors
    /// The server can't be reached.
    pub fn connect(address: SocketAddr) -> Result<Self, LoadError> {
        Self::open(&Address::Tcp(address), None)
    }

    /// Connects.
    ///
    /// # Errors
    /// The server can't be reached, or does not speak TLS as asked for.
    pub fn open(address: &Address, tls: Option<&Tls>) -> Result<Self, LoadError> {
        let socket = Socket::connect(address, tls)?;
        socket.set_read_timeout(REPLY_TIMEOUT)?;
        Ok(Self { socket: BufReader::new(socket) })
    }

    /// The answer of `stats WHAT` as names and values.
    ///
    /// # Errors
    /// The server closes, is silent for 20 s, or answers with anything else.
    pub fn stats(&mut self, what: &str) -> Result<BTreeMap<String, String>, LoadError> {
        let request = format!("stats {what}").trim_end().to_string() + "\r\n";
        let socket = self.socket.get_mut();
        socket.write_all(request.as_bytes())?;
        socket.flush()?;
        let mut stats = BTreeMap::new();
        loop {
            let mut line = String::new();
            if self.socket.read_line(&mut line)? == 0 {
                return Err(LoadError::Closed(1));
            }
            let line = line.trim_end();
            if line == "END" {
                return Ok(stats);
            }
            match line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' ')) {
                Some((name, value)) => stats.insert(name.to_string(), value.to_string()),
                None => return Err(LoadError::Reply(line.to_string())),
            };
        }
    }
}
