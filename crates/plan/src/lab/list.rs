//! Doubly linked lists of objects; an object is in one of them at a time.

use super::Object;

const NONE: Object = Object::MAX;

/// The links of all objects.
pub(super) struct Links(Vec<[Object; 2]>);

/// A list over [`Links`].
#[derive(Clone, Copy)]
pub(super) struct List {
    /// Newest and oldest.
    ends: [Object; 2],
    pub(super) len: usize,
}

/// Towards the newest; the other way is 1.
const NEWER: usize = 0;
const OLDER: usize = 1;

impl Links {
    pub(super) fn new(objects: usize) -> Self {
        Self(vec![[NONE; 2]; objects])
    }

    /// The next newer one in its list.
    pub(super) fn newer(&self, object: Object) -> Option<Object> {
        Some(self.0[object as usize][NEWER]).filter(|&newer| newer != NONE)
    }
}

impl List {
    pub(super) fn new() -> Self {
        Self { ends: [NONE; 2], len: 0 }
    }

    pub(super) fn oldest(&self) -> Option<Object> {
        Some(self.ends[1]).filter(|&oldest| oldest != NONE)
    }

    pub(super) fn push(&mut self, links: &mut Links, object: Object) {
        let before = self.ends[0];
        links.0[object as usize] = [NONE, before];
        match before {
            NONE => self.ends[1] = object,
            _ => links.0[before as usize][NEWER] = object,
        }
        self.ends[0] = object;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, links: &mut Links, object: Object) {
        let [newer, older] = links.0[object as usize];
        match newer {
            NONE => self.ends[0] = older,
            _ => links.0[newer as usize][OLDER] = older,
        }
        match older {
            NONE => self.ends[1] = newer,
            _ => links.0[older as usize][NEWER] = newer,
        }
        self.len -= 1;
    }

    pub(super) fn pop(&mut self, links: &mut Links) -> Option<Object> {
        let oldest = self.oldest()?;
        self.remove(links, oldest);
        Some(oldest)
    }
}
