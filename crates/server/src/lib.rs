//! The memcached server: settings, workers and connections.

mod commands;
pub mod server;
pub mod settings;
mod stats;
