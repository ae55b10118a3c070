//! The buffers of a connection's commands, and the commands that wait for one.

use crate::buffers::Buffer;
use std::collections::VecDeque;
use terrace_device::AlignedBuf;
use terrace_nvme::controller::CommandTag;

/// A command that needs a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// Its data are asked for once it has one.
    Write { tag: CommandTag, bytes: usize },
    /// It is read then; `exported` is the place of its namespace among those that are exported.
    Read { tag: CommandTag, bytes: usize, exported: usize, offset: u64 },
}

impl Wait {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Write { bytes, .. } | Self::Read { bytes, .. } => *bytes,
        }
    }
}

/// The buffers.
#[derive(Default)]
pub(super) struct Data {
    /// By tag, with the tag.
    buffers: Vec<Option<(CommandTag, Buffer)>>,
    /// Bytes that these take of the pool.
    held: usize,
    /// Commands that wait, the oldest first.
    pub(super) waiting: VecDeque<Wait>,
    /// The write whose data follow in its capsule and have no buffer yet, and their length.
    pub(super) capsule: Option<(CommandTag, usize)>,
}

impl Data {
    /// Makes room for tags below `tags`.
    pub(super) fn grow(&mut self, tags: usize) {
        if self.buffers.len() < tags {
            self.buffers.resize_with(tags, || None);
        }
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn set(&mut self, tag: CommandTag, buffer: Buffer) {
        self.held += buffer.size();
        if let Some(place) = self.buffers.get_mut(tag.index()) {
            *place = Some((tag, buffer));
        }
    }

    /// Takes a buffer out; dropping it frees it.
    pub(super) fn take(&mut self, tag: CommandTag) -> Option<Buffer> {
        let (_, buffer) = self.buffers.get_mut(tag.index()).and_then(Option::take)?;
        self.held -= buffer.size();
        Some(buffer)
    }

    pub(super) fn buffer(&mut self, tag: CommandTag) -> Option<&mut Buffer> {
        self.buffers.get_mut(tag.index())?.as_mut().map(|(_, buffer)| buffer)
    }

    /// Bytes `offset..offset + bytes` of the command with this number.
    pub(super) fn bytes(&self, command: u16, offset: u32, bytes: u32) -> &[u8] {
        let place = self.buffers.get(usize::from(command)).and_then(Option::as_ref);
        let (at, end) = (offset as usize, offset as usize + bytes as usize);
        place.and_then(|(_, buffer)| buffer.bytes().get(at..end)).unwrap_or_default()
    }

    /// Takes memory back that a drive has filled, for the command with this number, and returns its tag.
    pub(super) fn put_back(&mut self, command: usize, memory: AlignedBuf) -> Option<CommandTag> {
        let (tag, buffer) = self.buffers.get_mut(command)?.as_mut()?;
        buffer.put_back(memory);
        Some(*tag)
    }

    /// Frees all buffers but those that a drive has.
    pub(super) fn clear(&mut self) {
        for place in &mut self.buffers {
            if place.as_ref().is_some_and(|(_, buffer)| !buffer.bytes().is_empty())
                && let Some((_, buffer)) = place.take()
            {
                self.held -= buffer.size();
            }
        }
        self.capsule = None;
    }
}
