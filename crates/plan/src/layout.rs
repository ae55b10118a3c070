//! What records take on flash and in DRAM: the arithmetic of pages, segments and indexes.

use crate::PlanError;

pub(crate) const PAGE: f64 = 4096.0;
const PAGE_HEADER: f64 = 40.0;
/// Records up to this size don't straddle pages.
const WHOLE_BYTES_MAX: f64 = 256.0;
/// Longer ones (header, key and value) are extents behind the pages.
const PACKED_BYTES_MAX: f64 = 4160.0;
const EXTENT_HEADER: f64 = 16.0;
const EXTENT_UNIT: f64 = 64.0;
/// The histogram of hashes and the last 64 bytes.
const FOOTER_FIXED: f64 = 512.0 + 64.0;
const FOOTER_PER_RECORD: f64 = 5.0;
/// Directory entry of an extent.
const FOOTER_PER_EXTENT: f64 = 8.0;
/// Key length, flags, value length.
const RECORD_HEADER: f64 = 4.0;
const CAS: f64 = 8.0;
/// Bytes per index entry, 18 of which lie in a line of 64, at the load that growth aims at.
const INDEX_PER_RECORD: f64 = 64.0 / 18.0 / 0.925;
/// Versions of the index's buckets (one word per 16), spare room of tables, rows of segments.
const INDEX_BESIDES: f64 = 0.02;
/// Share of a full tier that is in use: some places stay free for what is written next.
const IN_USE: f64 = 0.985;
/// The index takes at most this share of `-m`.
pub(crate) const INDEX_SHARE_MAX: f64 = 0.75;
/// The table of records that wait to be written may have grown just now, to twice what it needs.
const TABLE_GROWN: f64 = 2.0;
/// Segments per shard that a server fits into a quarter of its memory by having fewer shards; with one,
/// half of its memory is enough.
const SEGMENTS_AT_START: f64 = 2.0;
/// Segments that a shard has numbers for, those aside that stay free: more flash needs more shards.
const SEGMENTS_PER_SHARD_MAX: f64 = 2048.0 * 0.9;
/// Flash for which there is one more shard, if memory allows, and the bounds of a segment.
const BYTES_PER_SHARD: f64 = 67_108_864.0;
const SEGMENT_BYTES: (f64, f64) = (262_144.0, 67_108_864.0);
/// Header of a record in DRAM, and what blocks lose at their ends and to records that were replaced.
const DRAM_HEADER: f64 = 16.0;
const DRAM_BLOCKS: f64 = 1.05;
/// Its word in the DRAM table, seven of which lie in a line of 64, at its usual load.
const DRAM_TABLE: f64 = 64.0 / 7.0 / 0.7;
/// Segments per shard whose records may wait in DRAM to be written.
const BUFFERED_SEGMENTS: f64 = 3.0;
/// Blocks, a quarter of a segment each, that outlive the process hold those: a sixteenth more, one per shard that is
/// open, and the reserve of background work. Copies of hot records lie in others.
const SURVIVING: f64 = 1.0 + 1.0 / 16.0;
/// The reserve is this part of all blocks, within bounds, the lower of which is a thirty-second of a small memory.
const RESERVE_SHARE: f64 = 1.0 / 128.0;
const RESERVE_BLOCKS: (f64, f64) = (4.0, 64.0);
const RESERVE_SHARE_MAX: f64 = 1.0 / 32.0;
/// Of the others so many reserves are kept free, and this share of `-m`; the same share counts what is read.
const RESERVES: f64 = 3.0;
const SPARE_SHARE: f64 = 1.0 / 64.0;
const SKETCH_SHARE: f64 = 1.0 / 64.0;
/// The newest pages of a kill log, those that are written next, and the state's own pages.
const LOG_BYTES: f64 = 96.0 * PAGE;
const BLOCK_BYTES_MAX: f64 = 524_288.0;
/// Threads of background work, each with memory of its own, if that is in an eighth of `-m` and they can merge.
const WORKERS: f64 = 2.0;
const WORKERS_SHARE: f64 = 1.0 / 8.0;
/// Segments that one of them holds whole: one to write, one to read, and those that it merges. These are as many as
/// lie within a thirty-second of its part of `-m`, or five within a sixteenth, and eight at most; none where three take
/// more than a sixteenth.
const WORK_SEGMENTS: f64 = 2.0;
const MERGED_SEGMENTS: (f64, f64) = (3.0, 8.0);
const MERGED_ENOUGH: f64 = 5.0;
const MERGED_SHARE: f64 = 1.0 / 32.0;
const MERGED_SHARE_MAX: f64 = 1.0 / 16.0;
/// What is listed of the records of a segment that is merged, for each of its bytes: for every 100 of them an entry of
/// 48, in a list with up to twice the room, and a name of 8.
const LISTED: f64 = (2.0 * 48.0 + 8.0) / 100.0;
/// A word of the kill log, of which there is one for each copy that was replaced and whose segment is still there;
/// the log is cleaned when it is twice as long as those. Some are written again then, and pages have headers.
const KILL: f64 = 8.0;
const KILL_LOG_LENGTH: f64 = 2.0;
const KILL_WRITTEN: f64 = 9.5;

/// The records to be cached; sizes are means, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// How many there are.
    pub items: f64,
    /// Length of a key.
    pub key_bytes: f64,
    /// Length of a value.
    pub value_bytes: f64,
    /// Time to live in seconds, if they have one.
    pub ttl_seconds: Option<f64>,
    /// Whether clients set flags.
    pub client_flags: bool,
}

impl Data {
    /// Key and value.
    pub fn payload_bytes(&self) -> f64 {
        self.key_bytes + self.value_bytes
    }

    /// What one record takes on a tier.
    pub(crate) fn record_bytes(&self) -> f64 {
        let expiry = if self.ttl_seconds.is_some() { 4.0 } else { 0.0 };
        let flags = if self.client_flags { 4.0 } else { 0.0 };
        let wide = if self.value_bytes > 65_535.0 { 2.0 } else { 0.0 };
        RECORD_HEADER + wide + CAS + expiry + flags + self.payload_bytes()
    }

    /// What one record takes in DRAM, its table word included.
    pub fn dram_bytes(&self) -> f64 {
        (self.record_bytes() + DRAM_HEADER) * DRAM_BLOCKS + DRAM_TABLE
    }
}

/// How records of one kind lie on a tier.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes of a segment.
    pub segment_bytes: f64,
    /// Records of a segment that is full of them.
    pub records_per_segment: f64,
    /// DRAM for records that wait to be written, one set of segments per shard, and what background
    /// work keeps free.
    pub buffer_bytes: f64,
    /// Index, page tables and segment rows, in bytes of DRAM per live record of a full tier.
    pub index_bytes_per_record: f64,
    /// Bytes written per byte of key and value, before anything is reclaimed.
    pub write_amplification: f64,
    /// Bytes that the drive reads per hit.
    pub read_bytes: f64,
    payload_bytes: f64,
    shards: f64,
    /// With less memory the server does not start.
    start_bytes: f64,
}

impl Layout {
    /// Records of `data` on `flash_bytes` of tiers, with so much memory.
    ///
    /// # Errors
    /// A record longer than an eighth of the tier is none.
    pub fn new(data: &Data, flash_bytes: f64, memory_bytes: f64) -> Result<Self, PlanError> {
        let (segment_bytes, shards) = segments(flash_bytes, memory_bytes);
        let record = data.record_bytes();
        if record > flash_bytes / 8.0 {
            return Err(PlanError::Input("an item is at most an eighth of the tier".into()));
        }
        let (records, tables) = records_per_segment(record, segment_bytes);
        let read_bytes = match record {
            r if r <= WHOLE_BYTES_MAX => PAGE,
            r if r <= PACKED_BYTES_MAX => PAGE * (1.0 + (r - 1.0) / (PAGE - PAGE_HEADER)),
            r => r + EXTENT_HEADER,
        };
        Ok(Self {
            segment_bytes,
            records_per_segment: records,
            buffer_bytes: buffers(data, segment_bytes, shards, memory_bytes),
            index_bytes_per_record: INDEX_PER_RECORD + INDEX_BESIDES + tables / records,
            write_amplification: segment_bytes / (records * data.payload_bytes()),
            read_bytes,
            payload_bytes: data.payload_bytes(),
            shards,
            start_bytes: start_bytes(flash_bytes),
        })
    }

    /// The `-m` that so many records need, with nothing left for copies of hot ones: index and buffers,
    /// and the index of one shard once more, since it grows into a new one while the old one serves.
    pub fn memory_needed(&self, records: f64) -> f64 {
        let index = records * self.index_bytes_per_record;
        let grows = index * (1.0 + 1.0 / self.shards);
        (index / INDEX_SHARE_MAX).max(grows + self.buffer_bytes).max(self.start_bytes)
    }

    /// Live records that a tier of so many bytes holds when it is full of them.
    pub fn capacity(&self, flash_bytes: f64) -> f64 {
        flash_bytes * IN_USE / self.segment_bytes * self.records_per_segment
    }

    /// Bytes of a tier in which so many records fill `share` of it.
    pub fn flash_for(&self, records: f64, share: f64) -> f64 {
        records / self.records_per_segment * self.segment_bytes / IN_USE / share
    }

    /// Bytes written per byte of key and value when records are stored over others at random, with
    /// the tier's live share `fill`: the bound of segments reclaimed in the order of their age,
    /// fill = (p - 1) / ln p, amplification 1 / (1 - p). Choosing the emptiest does better. The kill log
    /// is written besides, and takes places.
    pub fn overwrite_amplification(&self, fill: f64) -> f64 {
        let fill = fill / self.share_of_segments(fill);
        let (mut low, mut high) = (1e-9_f64, 1.0 - 1e-9);
        for _ in 0..60 {
            let p = f64::midpoint(low, high);
            if (p - 1.0) / p.ln() < fill { low = p } else { high = p }
        }
        self.write_amplification / (1.0 - low) + KILL_WRITTEN / self.payload_bytes
    }

    /// The share of a tier that is left to segments by a kill log with a word for each record in them that is
    /// dead: s = 1 - k (s - fill), where k is a record's part of the log in terms of its place.
    fn share_of_segments(&self, fill: f64) -> f64 {
        let k = KILL * KILL_LOG_LENGTH * self.records_per_segment / self.segment_bytes;
        (1.0 + k * fill) / (1.0 + k)
    }

    /// Share of written bytes that is key and value.
    pub fn payload_share(&self) -> f64 {
        self.records_per_segment * self.payload_bytes / self.segment_bytes
    }
}

/// Bytes of a segment and how many shards there are, as the server derives them.
fn segments(flash_bytes: f64, memory_bytes: f64) -> (f64, f64) {
    let (least, most) = SEGMENT_BYTES;
    let mut shards = power_below((flash_bytes / BYTES_PER_SHARD).clamp(1.0, 256.0));
    let most_shards = shards;
    let size = |shards: f64| power_above(flash_bytes / shards / 1024.0).clamp(least, most);
    let is_roomy = |shards: f64| {
        shards * size(shards) * SEGMENTS_AT_START <= memory_bytes / 4.0
            && flash_bytes / size(shards) / shards <= SEGMENTS_PER_SHARD_MAX
    };
    while shards > 1.0 && !is_roomy(shards) {
        shards /= 2.0;
    }
    if is_roomy(shards) {
        return (size(shards), shards);
    }
    let tightest = power_above(flash_bytes / SEGMENTS_PER_SHARD_MAX);
    let segment = (tightest / most_shards).clamp(least, most);
    (segment, (tightest / segment).clamp(1.0, most_shards))
}

/// With less memory a server does not start: each shard buffers segments, of which there must be no more than numbers.
fn start_bytes(flash_bytes: f64) -> f64 {
    let (least, _) = SEGMENT_BYTES;
    power_above(flash_bytes / SEGMENTS_PER_SHARD_MAX).max(least) * SEGMENTS_AT_START * 2.0
}

fn power_below(x: f64) -> f64 {
    2_f64.powf(x.max(1.0).log2().floor())
}

fn power_above(x: f64) -> f64 {
    2_f64.powf(x.max(1.0).log2().ceil())
}

fn buffers(data: &Data, segment_bytes: f64, shards: f64, memory_bytes: f64) -> f64 {
    let block = (segment_bytes / 4.0).min(BLOCK_BYTES_MAX);
    let (least, most) = RESERVE_BLOCKS;
    let blocks = memory_bytes / block;
    let least = (blocks * RESERVE_SHARE_MAX).clamp(1.0, least);
    let reserve = (blocks * RESERVE_SHARE).clamp(least, most) * block;
    let waiting = (shards * segment_bytes * BUFFERED_SEGMENTS).min(memory_bytes / 2.0);
    let table = waiting / (data.record_bytes() + DRAM_HEADER) * DRAM_TABLE * TABLE_GROWN;
    waiting * SURVIVING
        + shards * block
        + reserve
        + table
        + RESERVES * reserve
        + memory_bytes * (SPARE_SHARE + SKETCH_SHARE)
        + work(segment_bytes, shards, memory_bytes)
        + LOG_BYTES
}

/// Bytes that background work takes.
fn work(segment_bytes: f64, shards: f64, memory_bytes: f64) -> f64 {
    let merged = |workers: f64| merged_segments(segment_bytes, memory_bytes / workers);
    let fits = WORKERS * WORK_SEGMENTS * segment_bytes <= memory_bytes * WORKERS_SHARE
        && (merged(WORKERS) > 0.0 || merged(1.0) == 0.0);
    let workers = if fits { WORKERS.min(shards) } else { 1.0 };
    workers * (WORK_SEGMENTS + merged(workers) * (1.0 + LISTED)) * segment_bytes
}

fn merged_segments(segment_bytes: f64, memory_bytes: f64) -> f64 {
    let (least, most) = MERGED_SEGMENTS;
    let within = |share: f64| (memory_bytes * share / segment_bytes).floor();
    match within(MERGED_SHARE_MAX) {
        few if few < least => 0.0,
        enough => within(MERGED_SHARE).clamp(enough.min(MERGED_ENOUGH), most),
    }
}

/// How many fit, and the bytes that their page tables and directories take in DRAM.
fn records_per_segment(record: f64, segment: f64) -> (f64, f64) {
    let room = segment - FOOTER_FIXED;
    if record <= PACKED_BYTES_MAX {
        let straddles = record > WHOLE_BYTES_MAX;
        let in_page = (PAGE - PAGE_HEADER) / record;
        let in_page = if straddles { in_page } else { in_page.floor() };
        let table = if straddles { 4.0 } else { 2.0 };
        let pages = (room / (PAGE + table + FOOTER_PER_RECORD * in_page)).floor();
        return ((pages * in_page).floor(), pages * table);
    }
    // Chunks of large items are of at most an eighth of a segment, 128 KiB at most.
    let piece = record.min((segment / 8.0).min(131_072.0) - EXTENT_HEADER);
    let unit = ((piece + EXTENT_HEADER) / EXTENT_UNIT).ceil() * EXTENT_UNIT;
    let pieces = (room / (unit + FOOTER_PER_RECORD + FOOTER_PER_EXTENT)).floor();
    (pieces * piece / record, pieces * FOOTER_PER_EXTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data sheets of `docs/measured.md`: `bench/run writes` and `bench/run full`, `-m 64`, 1 GiB.
    #[test]
    fn the_published_measurements_follow_from_the_layout() {
        let gib = f64::from(1 << 30);
        let layout = |key_bytes, value_bytes, ttl: bool| {
            let ttl_seconds = ttl.then_some(86_400.0);
            let data = Data { items: 1.0, key_bytes, value_bytes, ttl_seconds, client_flags: ttl };
            Layout::new(&data, gib, gib / 16.0).unwrap()
        };
        let near = |model: f64, measured: f64, share: f64| {
            println!("model {model:.3}, measured {measured:.3}");
            assert!((model / measured - 1.0).abs() < share, "{model} for {measured}");
        };
        let small = layout(20.0, 80.0, false);
        near(small.write_amplification, 1.207, 0.02);
        near(layout(20.0, 80.0, true).write_amplification, 1.309, 0.02);
        near(layout(16.0, 800.0, false).write_amplification, 1.043, 0.01);
        near(layout(16.0, 800.0, true).write_amplification, 1.053, 0.01);
        near(small.capacity(gib), 8_870_041.0, 0.02);
        near(small.index_bytes_per_record, 3.97, 0.03);
        near(small.payload_share() * IN_USE, 0.824, 0.01);
    }

    const SHORT: Data = Data {
        items: 1.0,
        key_bytes: 20.0,
        value_bytes: 80.0,
        ttl_seconds: None,
        client_flags: false,
    };

    #[test]
    fn large_drives_need_memory_to_start_with() {
        // Segments of 8 MiB in 256 shards: a server's buffers take 4 GiB, half of its memory.
        let mib = f64::from(1 << 20);
        for (memory, starts) in [(318.0, false), (3200.0, false), (8000.0, false), (8400.0, true)] {
            let layout = Layout::new(&SHORT, 2980.0 * 1024.0 * mib, memory * mib).unwrap();
            assert_eq!(layout.memory_needed(1e6) <= memory * mib, starts, "{memory}");
        }
    }

    #[test]
    fn overwriting_a_fuller_tier_writes_more() {
        let data = Data {
            items: 1.0,
            key_bytes: 16.0,
            value_bytes: 800.0,
            ttl_seconds: None,
            client_flags: false,
        };
        let layout = Layout::new(&data, 1e12, 16e9).unwrap();
        let (half, most) =
            (layout.overwrite_amplification(0.5), layout.overwrite_amplification(0.8));
        assert!(layout.write_amplification < half && half < most, "{half} {most}");
        // Of what the kill log leaves to segments 0.8 of the tier are 0.803: p = 0.634 satisfies
        // (p - 1) / ln p = 0.803, and the log is 0.011.
        let ratio = most / layout.write_amplification;
        assert!((ratio - 2.74).abs() < 0.03, "{ratio}");
    }
}
