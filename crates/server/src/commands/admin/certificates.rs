//! `refresh_certs`.

use crate::commands::executor::Executor;
use terrace_protocol::reply;

/// Reads certificate, key and CAs again; what is wrong with them is told, and the old ones stay.
pub(super) fn refresh(executor: &Executor<'_>, out: &mut Vec<u8>) {
    match &executor.shared.tls {
        None => out.extend_from_slice(b"Error TLS not enabled\r\n"),
        Some(tls) => match tls.refresh(executor.now) {
            Ok(()) => out.extend_from_slice(reply::OK),
            Err(error) => out.extend_from_slice(format!("Error {error}\r\n").as_bytes()),
        },
    }
}
