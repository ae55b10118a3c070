//! The chunks of large values, one by one.

use terrace_cache::{
    Access, Body, Evidence, ItemId, Key, Lookup, Manifest, Run, Search, Session, Update,
};

/// One chunk of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The upload that it belongs to.
    pub item: ItemId,
    /// Index within its upload.
    pub index: u32,
    /// Its length.
    pub bytes: u32,
}

impl Chunk {
    /// Its key; `name` is scratch space that the key borrows.
    pub fn key<'k>(&self, session: &Session, name: &'k mut [u8; 12]) -> Key<'k> {
        session.chunk_key(self.item, self.index, name)
    }

    /// Its bytes, `key` being its own; `None` if it is gone, and so the value incomplete.
    ///
    /// # Errors
    /// What must be read first.
    pub fn find<'a>(
        &self,
        session: &'a Session,
        key: Key<'_>,
        now: u32,
        evidence: Option<Evidence<'a>>,
    ) -> Result<Option<&'a [u8]>, Box<Search>> {
        match session.get(key, now, Access::Use, evidence) {
            Lookup::Read(search) => Err(search),
            Lookup::Miss => Ok(None),
            Lookup::Hit(hit) => Ok(match hit.record.body() {
                Body::Inline(bytes) if bytes.len() == self.bytes as usize => Some(bytes),
                _ => None,
            }),
        }
    }
}

/// A place among the chunks of a manifest: at one of them, or behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    run: usize,
    /// Index within the run.
    index: u32,
}

impl Cursor {
    /// Behind the last chunk.
    pub fn end(manifest: &Manifest) -> Self {
        Self { run: manifest.runs.len(), index: 0 }
    }

    /// The run of the chunk that it is at; `None` behind the last.
    pub fn run<'m>(&self, manifest: &'m Manifest) -> Option<&'m Run> {
        manifest.runs.get(self.run)
    }

    /// The chunk that it is at; `None` behind the last.
    pub fn chunk(&self, manifest: &Manifest) -> Option<Chunk> {
        let (run, index) = (self.run(manifest)?, self.index);
        let is_last = index + 1 >= run.chunks;
        let bytes = if is_last { run.last_bytes } else { run.chunk_bytes };
        Some(Chunk { item: run.item, index, bytes })
    }

    /// Goes to the next chunk, or behind the last.
    pub fn advance(&mut self, manifest: &Manifest) {
        if let Some(run) = self.run(manifest) {
            let is_last = self.index + 1 >= run.chunks;
            *self = if is_last {
                Self { run: self.run + 1, index: 0 }
            } else {
                Self { run: self.run, index: self.index + 1 }
            };
        }
    }

    /// Goes to the chunk before, unless it is at the first.
    pub fn retreat(&mut self, manifest: &Manifest) {
        if self.index > 0 {
            self.index -= 1;
        } else if self.run > 0 {
            let run = self.run - 1;
            *self = Self { run, index: manifest.runs[run].chunks.saturating_sub(1) };
        }
    }
}

/// Chunks that are stored one after the other, before the record that publishes them.
#[derive(Clone, Copy, Debug)]
pub struct Upload {
    run: Run,
}

impl Upload {
    /// Begins one whose chunks have `chunk_bytes` bytes, but for the last.
    pub fn begin(session: &Session, chunk_bytes: u32) -> Self {
        Self { run: Run { item: session.begin_item(), chunks: 0, chunk_bytes, last_bytes: 0 } }
    }

    /// What is stored of it, for the manifest that publishes it.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Stores the next chunk, unless there is no room.
    pub fn store(&mut self, session: &Session, chunk: &[u8], now: u32) -> Update {
        let update = session.store_chunk(self.run.item, self.run.chunks, chunk, now);
        if let Update::Done { .. } = update {
            (self.run.chunks, self.run.last_bytes) = (self.run.chunks + 1, chunk.len() as u32);
        }
        update
    }

    /// Stores the chunks of `value` that are not stored yet, up to the first that there is no room for.
    pub fn store_rest(&mut self, session: &Session, value: &[u8], now: u32) -> Update {
        let Run { chunks, chunk_bytes, .. } = self.run;
        for chunk in value.chunks(chunk_bytes as usize).skip(chunks as usize) {
            match self.store(session, chunk, now) {
                Update::Done { .. } => {}
                refused => return refused,
            }
        }
        Update::Done { cas: 0 }
    }

    /// Frees what was stored: it will not be published.
    pub fn discard(&self, session: &Session) {
        session.discard_chunks(self.run.item, self.run.chunks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_names_each_chunk_once_there_and_back() {
        let run = |item, chunks, last_bytes| Run {
            item: ItemId(item),
            chunks,
            chunk_bytes: 100,
            last_bytes,
        };
        let manifest = Manifest { runs: vec![run(7, 2, 30), run(8, 1, 100), run(9, 3, 1)] };
        let expected = [(7, 0, 100), (7, 1, 30), (8, 0, 100), (9, 0, 100), (9, 1, 100), (9, 2, 1)];
        let mut cursor = Cursor::default();
        let mut places = Vec::new();
        for (item, index, bytes) in expected {
            let chunk = Chunk { item: ItemId(item), index, bytes };
            assert_eq!(cursor.chunk(&manifest), Some(chunk));
            places.push(cursor);
            cursor.advance(&manifest);
        }
        assert_eq!((cursor, cursor.chunk(&manifest)), (Cursor::end(&manifest), None));
        cursor.advance(&manifest);
        assert_eq!(cursor, Cursor::end(&manifest), "it stays there");
        for place in places.into_iter().rev() {
            cursor.retreat(&manifest);
            assert_eq!(cursor, place);
        }
        cursor.retreat(&manifest);
        assert_eq!(cursor, Cursor::default(), "it stays there");
    }
}
