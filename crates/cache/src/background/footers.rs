//! Reads the footers of segments.

use crate::engine::Engine;
use crate::segments::layout::{FOOTER_HEADER, Footer, PAGE};
use crate::segments::segment::Sealed;
use crate::shard::Shard;
use crate::stats::counters::count;
use std::io;
use terrace_device::AlignedBuf;
use terrace_device::is_unanswered;

/// Why a footer can't be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The device failed; a later read may succeed.
    Device,
    /// The device does not answer at present.
    Unanswered,
    /// The bytes of the device are damaged.
    Corrupt,
}

impl Unreadable {
    pub(crate) fn of(error: io::Error) -> Self {
        if is_unanswered(&error) { Self::Unanswered } else { Self::Device }
    }
}

/// Reads and checks the footer of a segment. A drive that loses or misdirects a write may return the footer of another
/// segment, which would leave names of this one in the index.
pub(crate) fn read_footer(
    engine: &Engine,
    shard: &Shard,
    sealed: Sealed,
    buffer: &mut AlignedBuf,
) -> Result<Footer, Unreadable> {
    buffer.set_len(footer_read(shard, sealed).min(buffer.capacity()));
    let read = engine.shared().slots().read_tail(shard.segments().slot(sealed.number), buffer);
    read.map_err(Unreadable::of)?;
    check_footer(engine, shard, sealed, buffer)
}

/// The footers of several segments. Reads consecutive ones of one tier at the same time.
pub(crate) fn read_footers(
    engine: &Engine,
    shard: &Shard,
    group: &[Sealed],
) -> Vec<Result<Footer, Unreadable>> {
    let buffer = |sealed: &Sealed| AlignedBuf::zeroed(footer_read(shard, *sealed));
    let mut buffers: Vec<_> = group.iter().map(buffer).collect();
    let read = read_tails(engine, shard, group, &mut buffers);
    let checked = read.into_iter().zip(group.iter().zip(&buffers));
    let checked = checked.map(|(read, (sealed, buffer))| {
        read.map_err(Unreadable::of)?;
        check_footer(engine, shard, *sealed, buffer)
    });
    checked.collect()
}

/// Fills each buffer with the end of a segment. Reads consecutive ones of one tier at the same time.
pub(crate) fn read_tails(
    engine: &Engine,
    shard: &Shard,
    group: &[Sealed],
    buffers: &mut [AlignedBuf],
) -> Vec<io::Result<()>> {
    let slot = |sealed: &Sealed| shard.segments().slot(sealed.number);
    let mut buffers = buffers.iter_mut();
    let mut read = Vec::with_capacity(group.len());
    for alike in group.chunk_by(|one, other| slot(one).tier == slot(other).tier) {
        let tails = alike.iter().map(slot).zip(buffers.by_ref());
        read.extend(engine.shared().slots().read_tails(slot(&alike[0]).tier, tails));
    }
    read
}

/// Bytes to read for the footer of a segment.
fn footer_read(shard: &Shard, sealed: Sealed) -> usize {
    let bytes = shard.segments().footer_bytes(sealed.number);
    bytes.max(FOOTER_HEADER).next_multiple_of(PAGE)
}

/// The footer at the end of the bytes read of a segment.
pub(crate) fn check_footer(
    engine: &Engine,
    shard: &Shard,
    sealed: Sealed,
    bytes: &[u8],
) -> Result<Footer, Unreadable> {
    let footer = Footer::decode(bytes).filter(|footer| footer.seq() == sealed.seq);
    if footer.is_none() {
        count(
            engine
                .shared()
                .counters()
                .tier(shard.segments().slot(sealed.number).tier)
                .corrupt_pages(),
        );
    }
    footer.ok_or(Unreadable::Corrupt)
}
