//! Which version of each record a connection has stored last.

use crate::plan::Plan;
use crate::window::Value;

/// Marks a record as deleted, beside the count of its stores.
const DELETED: u16 = 1 << 15;

/// Versions of the records that only this connection writes; none where reads don't follow.
#[derive(Debug)]
pub(crate) struct Versions {
    base: u32,
    any: bool,
    /// How often each record was stored.
    own: Vec<u16>,
}

impl Versions {
    /// Of `count` records; of none that change if `count` is 0.
    pub(crate) fn new(plan: &Plan, count: u64) -> Self {
        Self { base: plan.version, any: plan.any_version, own: vec![0; count as usize] }
    }

    /// The version that the next store of a record carries.
    #[inline]
    pub(crate) fn next(&mut self, index: u64) -> u32 {
        let Some(own) = self.own.get_mut(index as usize) else { return self.base };
        let stores = (*own & !DELETED) + 1;
        *own = if stores == DELETED { 1 } else { stores };
        self.base.wrapping_add(u32::from(*own))
    }

    /// The version that a record which was missed is stored with: the last one.
    pub(crate) fn again(&mut self, index: u64) -> u32 {
        let Some(own) = self.own.get_mut(index as usize) else { return self.base };
        *own &= !DELETED;
        self.base.wrapping_add(u32::from(*own))
    }

    pub(crate) fn delete(&mut self, index: u64) {
        if let Some(own) = self.own.get_mut(index as usize) {
            *own |= DELETED;
        }
    }

    /// What a read of a record may find.
    #[inline]
    pub(crate) fn expected(&self, index: u64) -> Value {
        match self.own.get(index as usize) {
            Some(own) if own & DELETED != 0 => Value::Absent,
            Some(&own) if own > 0 => Value::Version(self.base.wrapping_add(u32::from(own))),
            _ if self.any => Value::Any,
            _ => Value::Planned(self.base),
        }
    }
}
