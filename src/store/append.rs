//! Messages on their way into the log.
//!
//! A batch is filled without a lock (encoding, CRC), then placed and copied under one acquisition of the put lock.

use std::sync::Arc;

use super::consume_queue::ConsumeQueue;
use super::error::PutError;

/// Records encoded and waiting for their places. One per thread that appends; reused.
#[derive(Default)]
pub struct AppendBatch {
    /// Encoded records, one after the other.
    pub(super) bytes: Vec<u8>,
    /// One entry per record.
    pub(super) entries: Vec<Staged>,
}

/// A record of a batch.
pub(super) struct Staged {
    /// Start in the batch's bytes.
    pub(super) start: usize,
    /// Bytes.
    pub(super) len: usize,
    /// Queue that numbers it; `None` for prepared and rollback records (queue offset 0).
    pub(super) queue: Option<Arc<ConsumeQueue>>,
    /// Records from here on that must lie in one file (a client's batch): 1 for a single message, 0 inside a group.
    pub(super) group_len: usize,
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Start in the commit log.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub size: usize,
    /// Offset in its queue.
    pub queue_offset: i64,
    /// Milliseconds.
    pub store_timestamp: i64,
}

impl Appended {
    /// First physical offset behind the record: durable once the flushed offset has reached it.
    pub fn end(&self) -> i64 {
        self.physical_offset + self.size as i64
    }
}

impl AppendBatch {
    /// Number of records staged.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is staged.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes staged.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets the records behind the first `records`, which were staged last.
    pub fn truncate(&mut self, records: usize) {
        if let Some(first) = self.entries.get(records) {
            self.bytes.truncate(first.start);
            self.entries.truncate(records);
        }
    }

    /// Forgets everything; keeps the memory (up to a bound).
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.bytes.shrink_to(1 << 20);
    }
}

/// One outcome per staged record, in order.
pub type AppendOutcome = Result<Appended, PutError>;
