//! The key index: hash files, newest last (store.md 8).

use std::sync::Arc;

use super::config::StoreConfig;
use super::error::StoreError;
use super::fs::Fs;

/// All index files of a store.
pub(super) struct Index {}

impl Index {
    /// Opens the files. With `safe_timestamp` (abnormal start), files whose end is newer are removed: recovery indexes again.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn load(config: &StoreConfig, fs: Arc<dyn Fs>, safe_timestamp: Option<i64>) -> Result<Self, StoreError> {
        let _ = (config, fs, safe_timestamp);
        todo!()
    }

    /// Adds one key of a record (`topic#key`). Only the dispatcher and recovery.
    ///
    /// # Errors
    /// A file that could not be made or written; indexing pauses and heals, messages are not lost.
    pub(super) fn put(&self, topic: &str, key: &str, physical_offset: i64, store_timestamp: i64) -> Result<(), StoreError> {
        let _ = (topic, key, physical_offset, store_timestamp);
        todo!()
    }

    /// Physical offsets of records whose key has this hash, newest first, at most `max`, store time in [begin, end].
    pub(super) fn query(&self, topic: &str, key: &str, max: usize, begin_ms: i64, end_ms: i64) -> Vec<i64> {
        let _ = (topic, key, max, begin_ms, end_ms);
        todo!()
    }

    /// Store time and physical offset of the last record indexed; zeros when there is none.
    pub(super) fn last(&self) -> (i64, i64) {
        todo!()
    }

    /// Makes what was added so far durable; returns the store time up to which full files are on disk (checkpoint field).
    ///
    /// # Errors
    /// The system's.
    pub(super) fn flush(&self) -> Result<i64, StoreError> {
        todo!()
    }

    /// Deletes files whose last record lies before `min_physical_offset`; never the last file.
    pub(super) fn clean(&self, min_physical_offset: i64) {
        let _ = min_physical_offset;
        todo!()
    }
}
