//! `terrace`: a memcached server whose cache is as large as its drives.

fn main() {
    println!("terrace {}", env!("CARGO_PKG_VERSION"));
}
