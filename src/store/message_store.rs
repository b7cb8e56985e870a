//! The facade: open, append, read, shut down.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::common::record::Draft;
use crate::runtime::clock::Clock;

use super::append::{AppendBatch, AppendOutcome};
use super::arrival::ArrivalListener;
use super::config::StoreConfig;
use super::error::{PutError, StoreError};
pub use super::flush::{Durability, FlushWatch};
use super::fs::Fs;
use super::reading::{Boundary, GetLimits, GetResult, MessageFilter, QueryResult};

/// A store. Many may live in one process, each in its own folder.
pub struct MessageStore {}

/// What an orderly stop left undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Whether the next start is a normal one (`abort` removed).
    pub clean: bool,
    /// Bytes the dispatcher was behind.
    pub dispatch_behind_bytes: i64,
}

/// Numbers for runtime information.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreStats {
    /// Smallest physical offset.
    pub min_physical_offset: i64,
    /// Physical offset behind the last record appended.
    pub max_physical_offset: i64,
    /// Physical offset up to which everything is on disk.
    pub flushed_offset: i64,
    /// Bytes that consume queues and index are behind what consumers may see.
    pub dispatch_behind_bytes: i64,
    /// Used share of the commit log's disk, 0 to 1.
    pub commit_log_disk_ratio: f64,
    /// Total bytes of that disk.
    pub disk_total: u64,
    /// Free bytes of that disk.
    pub disk_free: u64,
    /// Store time of the first message, -1 when there is none.
    pub earliest_store_timestamp: i64,
    /// How long the put lock has been held by now, ms.
    pub put_lock_ms: i64,
    /// Messages appended since the start.
    pub put_messages: u64,
    /// Bytes appended since the start.
    pub put_bytes: u64,
    /// Appends refused since the start.
    pub put_failed: u64,
    /// fdatasync calls of the log since the start.
    pub syncs: u64,
}

impl MessageStore {
    /// Locks, recovers and starts the store's threads. Nothing is dispatched to `listener` before [`MessageStore::serve`].
    ///
    /// # Errors
    /// [`StoreError`]; what was started is stopped.
    pub fn open(config: StoreConfig, fs: Arc<dyn Fs>, clock: Clock) -> Result<Arc<Self>, StoreError> {
        let _ = (config, fs, clock);
        todo!()
    }

    /// From now on `listener` is told of arrivals. Once.
    pub fn serve(&self, listener: Arc<dyn ArrivalListener>) {
        let _ = listener;
        todo!()
    }

    /// Stops in order: last flush, dispatch to the end, flush of derived files, checkpoint, abort removed, lock released.
    /// Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        let _ = deadline;
        todo!()
    }

    // ---- append ----

    /// Stages one message: checks sizes, finds its queue, encodes it.
    ///
    /// # Errors
    /// [`PutError`]; nothing was staged.
    pub fn stage(&self, batch: &mut AppendBatch, draft: &Draft<'_>) -> Result<(), PutError> {
        let _ = (batch, draft);
        todo!()
    }

    /// Marks the last `count` staged records as a group that must lie in one file (a client's batch).
    pub fn group(&self, batch: &mut AppendBatch, count: usize) {
        let _ = (batch, count);
        todo!()
    }

    /// Places and copies everything staged under one acquisition of the put lock; pushes one outcome per record, in order.
    /// The records are in the page cache afterwards. Under SYNC_FLUSH the flush thread is woken.
    pub fn append(&self, batch: &mut AppendBatch, outcomes: &mut Vec<AppendOutcome>) {
        let _ = (batch, outcomes);
        todo!()
    }

    /// Appends one message.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put(&self, draft: &Draft<'_>) -> AppendOutcome {
        let _ = draft;
        todo!()
    }

    /// Why messages are refused now, if they are; the text names cause, numbers and key.
    pub fn refusal(&self) -> Option<String> {
        todo!()
    }

    // ---- durability ----

    /// Whether appends are acknowledged only after fdatasync.
    pub fn is_sync_flush(&self) -> bool {
        todo!()
    }

    /// Physical offset up to which everything is on disk.
    pub fn flushed_offset(&self) -> i64 {
        todo!()
    }

    /// The reason of a failed sync, which is final for this store until it is opened again.
    pub fn sync_failure(&self) -> Option<String> {
        todo!()
    }

    /// Registers a thread that parks replies until they are durable.
    pub fn watch_flush(&self, wake: impl Fn() + Send + Sync + 'static) -> FlushWatch {
        let _ = wake;
        todo!()
    }

    /// Calls `done` once, from the flush thread (or at once), when `end` is durable by the configured rule (ASYNC_FLUSH: at once).
    /// `done` must not block.
    pub fn when_durable(&self, end: i64, done: Box<dyn FnOnce(Durability) + Send>) {
        let _ = (end, done);
        todo!()
    }

    // ---- read ----

    /// Looks messages up. Never blocks on locks of writers.
    pub fn get(&self, topic: &str, queue_id: i32, offset: i64, limits: &GetLimits, filter: &dyn MessageFilter) -> GetResult {
        let _ = (topic, queue_id, offset, limits, filter);
        todo!()
    }

    /// Whether the message at this offset probably has to come from disk: then read on a work thread.
    pub fn likely_cold(&self, topic: &str, queue_id: i32, offset: i64) -> bool {
        let _ = (topic, queue_id, offset);
        todo!()
    }

    /// Smallest offset of a queue and the one behind its last visible message; (0, 0) for an unknown or empty queue.
    pub fn queue_bounds(&self, topic: &str, queue_id: i32) -> (i64, i64) {
        let _ = (topic, queue_id);
        todo!()
    }

    /// Whether the queue exists on disk or in memory.
    pub fn has_queue(&self, topic: &str, queue_id: i32) -> bool {
        let _ = (topic, queue_id);
        todo!()
    }

    /// Queue offset of a time: the first message stored at or after it ([`Boundary::Lower`]), or the last stored at or before
    /// it (`Upper`); Java's rules at the ends of the queue.
    pub fn offset_by_time(&self, topic: &str, queue_id: i32, timestamp_ms: i64, boundary: Boundary) -> i64 {
        let _ = (topic, queue_id, timestamp_ms, boundary);
        todo!()
    }

    /// Store time of the message at a queue offset; -1 when there is none.
    pub fn store_time(&self, topic: &str, queue_id: i32, offset: i64) -> i64 {
        let _ = (topic, queue_id, offset);
        todo!()
    }

    /// Tags code and record of the message at a queue offset (delay levels: the code is the deliver time).
    pub fn message_at(&self, topic: &str, queue_id: i32, offset: i64) -> Option<(i64, Option<Bytes>)> {
        let _ = (topic, queue_id, offset);
        todo!()
    }

    /// The record at a physical offset.
    pub fn record_at(&self, physical_offset: i64) -> Option<Bytes> {
        let _ = physical_offset;
        todo!()
    }

    /// Whether the message at queue offset 0 lies in the newest part of the log that fits in memory (requests.md 3.2).
    pub fn first_message_in_memory(&self, topic: &str, queue_id: i32) -> bool {
        let _ = (topic, queue_id);
        todo!()
    }

    /// Finds messages by key (a word of KEYS, or the unique key) in [begin, end] ms. Slow: on a work thread.
    pub fn query(&self, topic: &str, key: &str, max: usize, begin_ms: i64, end_ms: i64) -> QueryResult {
        let _ = (topic, key, max, begin_ms, end_ms);
        todo!()
    }

    /// Topics that have queues, with their queue ids.
    pub fn topics(&self) -> Vec<(String, Vec<i32>)> {
        todo!()
    }

    /// Removes the queues of a topic (its records stay in the log until they expire). Slow.
    pub fn delete_topic(&self, topic: &str) {
        let _ = topic;
        todo!()
    }

    /// Deletes expired commit-log files now, whatever the hour (request 329). Slow.
    pub fn delete_expired_files(&self) {
        todo!()
    }

    /// Numbers.
    pub fn stats(&self) -> StoreStats {
        todo!()
    }
}
