//! The memcached server: settings, workers and connections.

mod auth;
mod commands;
pub mod server;
pub mod settings;
mod stats;
pub mod tls;
