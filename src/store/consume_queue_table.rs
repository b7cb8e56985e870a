//! All consume queues of a store.

use std::path::Path;
use std::sync::Arc;

use super::config::StoreConfig;
use super::consume_queue::ConsumeQueue;
use super::error::StoreError;
use super::fs::Fs;

/// The queues by topic and id.
pub(super) struct ConsumeQueueTable {}

impl ConsumeQueueTable {
    /// Finds the queues below `<root>/consumequeue` and recovers each (forward scan of its last files, recovery.md 5.1; an
    /// all-zero file is empty; fillers do not raise the physical maximum), concurrently when configured.
    ///
    /// # Errors
    /// A file of a wrong length, a queue that cannot be read: with the names.
    pub(super) fn load(config: &StoreConfig, fs: Arc<dyn Fs>) -> Result<Self, StoreError> {
        let _ = (config, fs, Path::new(""));
        todo!()
    }

    /// A queue that exists.
    pub(super) fn get(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        let _ = (topic, queue_id);
        todo!()
    }

    /// A queue, made in memory when it does not exist (its folder comes with its first flush).
    pub(super) fn get_or_create(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        let _ = (topic, queue_id);
        todo!()
    }

    /// All queues.
    pub(super) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        todo!()
    }

    /// Largest [`ConsumeQueue::max_physical_offset`]; -1 with none.
    pub(super) fn max_physical_offset(&self) -> i64 {
        todo!()
    }

    /// Smallest physical offset from which records may be missing in some queue: dispatch may start here (idempotent).
    /// Removes every unit at or behind `end` first (recovery.md 5.3).
    ///
    /// # Errors
    /// The system's.
    pub(super) fn truncate_behind(&self, end: i64) -> Result<(), StoreError> {
        let _ = end;
        todo!()
    }

    /// Sets every queue's next append offset to its max offset, and its min offset by the log's (recovery.md 9, store.md 7.3).
    pub(super) fn settle(&self, min_physical_offset: i64) {
        let _ = min_physical_offset;
        todo!()
    }

    /// The log was cleaned: moves min offsets, deletes files whose last unit lies before `min_physical_offset`.
    pub(super) fn clean(&self, min_physical_offset: i64) {
        let _ = min_physical_offset;
        todo!()
    }

    /// Writes the tails of all dirty queues; with `sync` also fdatasyncs every file written since the last time.
    ///
    /// # Errors
    /// The first failure; the tails that failed stay in memory and are tried again.
    pub(super) fn flush(&self, sync: bool) -> Result<(), StoreError> {
        let _ = sync;
        todo!()
    }

    /// Bytes of tails that wait for a flush.
    pub(super) fn dirty_bytes(&self) -> usize {
        todo!()
    }

    /// Removes a topic's queues, in memory and on disk.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        let _ = topic;
        todo!()
    }
}
