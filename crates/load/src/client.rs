//! A plain client for what is asked once: statistics and commands of one line.

use crate::LoadError;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that waits for each reply.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Result<Self, LoadError> {
        let stream = TcpStream::connect(address)
            .map_err(|error| LoadError::Connect { address: address.to_string(), error })?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The answer of `stats WHAT` as names and values.
    pub fn stats(&mut self, what: &str) -> Result<BTreeMap<String, String>, LoadError> {
        let request = format!("stats {what}").trim_end().to_string() + "\r\n";
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut stats = BTreeMap::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
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
