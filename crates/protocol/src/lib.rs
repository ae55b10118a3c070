//! The memcached protocols: bytes in, requests out; replies in, bytes out. No I/O, no clock, no
//! unsafe code.
#![forbid(unsafe_code)]
