//! The memcached server: settings, workers and connections.

pub mod settings;
