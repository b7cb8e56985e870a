//! One consume queue: 20-byte units that point into the commit log.

use super::error::StoreError;

/// One unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CqUnit {
    /// Start of the record in the commit log.
    pub(super) physical_offset: i64,
    /// Bytes of the record.
    pub(super) size: i32,
    /// Hash of the tags, or the deliver time on the schedule topic.
    pub(super) tags_code: i64,
}

/// A queue: units on disk, a tail of units in memory that `flush-cq` writes, and the counter of the next append.
pub struct ConsumeQueue {}

impl ConsumeQueue {
    /// Topic.
    pub(super) fn topic(&self) -> &str {
        todo!()
    }

    /// Queue id.
    pub(super) fn queue_id(&self) -> i32 {
        todo!()
    }

    /// Takes the next queue offset. Only under the put lock, which is what orders it.
    pub(super) fn next_append_offset(&self) -> i64 {
        todo!()
    }

    /// The append went into the log: the next one gets `offset`. Only under the put lock.
    pub(super) fn set_next_append_offset(&self, offset: i64) {
        let _ = offset;
        todo!()
    }

    /// Smallest readable offset.
    pub(super) fn min_offset(&self) -> i64 {
        todo!()
    }

    /// Offset behind the last unit (disk and tail).
    pub(super) fn max_offset(&self) -> i64 {
        todo!()
    }

    /// End of the last record that has a unit; -1 for an empty queue. Fillers do not count.
    pub(super) fn max_physical_offset(&self) -> i64 {
        todo!()
    }

    /// Adds the unit of queue offset `offset` (idempotent; a gap is filled, never shifted over). Only the dispatcher and recovery.
    ///
    /// # Errors
    /// A gap that had to be read or written and could not.
    pub(super) fn put(&self, offset: i64, unit: CqUnit) -> Result<(), StoreError> {
        let _ = (offset, unit);
        todo!()
    }

    /// Appends up to `max` units from `offset` on to `out`; fewer at the end.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn read(&self, offset: i64, max: usize, out: &mut Vec<CqUnit>) -> Result<(), StoreError> {
        let _ = (offset, max, out);
        todo!()
    }
}
