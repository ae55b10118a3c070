//! The memcached server: settings, workers and connections.

// They panic where nobody reads any more; `log` and `say` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod admin;
mod auth;
mod commands;
pub mod export;
mod key_text;
pub mod log;
pub mod say;
pub mod server;
pub mod settings;
mod stats;
pub mod tiers;
pub mod tls;
