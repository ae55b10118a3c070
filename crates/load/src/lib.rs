//! Load generation and trace replay for memcached servers.
#![forbid(unsafe_code)]
