//! The memcached server: settings, workers and connections.

pub mod admin;
mod auth;
mod commands;
pub mod server;
pub mod settings;
mod stats;
pub mod tls;
