//! What the same data takes in memcached: all in DRAM, and with its values on flash (extstore).

use crate::Data;

/// The item's own header with its CAS number.
const ITEM_HEADER: f64 = 48.0 + 8.0;
/// Smallest slab chunk, and the factor from class to class.
const SLAB_SMALLEST: f64 = 96.0;
const SLAB_FACTOR: f64 = 1.25;
const SLAB_ALIGN: f64 = 8.0;
/// Longest chunk; longer items are chains of them.
const SLAB_LARGEST: f64 = 524_288.0;
/// Pointers of the hash table, which has from one to two thirds of its items as buckets.
const HASH_PER_ITEM: f64 = 8.0 / 1.125;
/// Where on flash the value lies: page, offset, version.
const EXTSTORE_HEADER: f64 = 12.0;

/// DRAM of an item of memcached in bytes, its slab's chunk and its share of the hash table.
pub fn memcached_item_bytes(data: &Data) -> f64 {
    let flags = if data.client_flags { 4.0 } else { 0.0 };
    slab(ITEM_HEADER + data.key_bytes + 1.0 + flags + data.value_bytes + 2.0) + HASH_PER_ITEM
}

/// DRAM that an item takes in bytes whose value is on flash.
pub fn extstore_dram_bytes(data: &Data) -> f64 {
    let flags = if data.client_flags { 4.0 } else { 0.0 };
    slab(ITEM_HEADER + data.key_bytes + 1.0 + flags + EXTSTORE_HEADER) + HASH_PER_ITEM
}

fn slab(bytes: f64) -> f64 {
    let mut chunk = SLAB_SMALLEST;
    while chunk < bytes && chunk < SLAB_LARGEST {
        chunk = (chunk * SLAB_FACTOR / SLAB_ALIGN).ceil() * SLAB_ALIGN;
    }
    chunk.max(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_items_take_about_what_is_known_of_them() {
        let data = Data {
            items: 1.0,
            key_bytes: 20.0,
            value_bytes: 80.0,
            ttl_seconds: None,
            client_flags: false,
        };
        // 159 bytes go into the class of 192.
        assert_eq!(memcached_item_bytes(&data).round(), 199.0);
        assert_eq!(extstore_dram_bytes(&data).round(), 103.0);
    }
}
