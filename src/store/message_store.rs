//! The facade: open, append, read, shut down.
//!
//! Start: lock, look for `abort`, create it, load, recover, start the threads. Stop: refuse appends, flush the log, let
//! dispatch reach its end, flush what is derived, write the checkpoint, remove `abort`, release the lock. Both are one
//! readable function.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::common::record::{self, Draft};
use crate::runtime::clock::Clock;

use super::allocate::Allocator;
use super::append::{AppendBatch, AppendOutcome, LogAppender, Staged};
use super::arrival::ArrivalListener;
use super::checkpoint::{Checkpoint, Positions};
use super::cleaning::{self, Cleaner, DeletionListener};
use super::commit_log::{CommitLog, store_time_of};
use super::config::{FlushDiskType, StoreConfig};
use super::consume_queue_table::{ConsumeQueueTable, is_one_component};
use super::deleted_topics::DeletedTopics;
use super::derived_flush::{self, DerivedFlusher};
use super::disk::DiskGuard;
use super::dispatch::{DispatchService, Dispatcher, has_unit};
use super::error::{PutError, StoreError};
use super::flush::Flusher;
pub use super::flush::{Durability, FlushWatch};
use super::foreign;
use super::fs::Fs;
use super::index::Index;
use super::latch::Latch;
use super::lock_file::{AbortMark, StoreLock};
use super::log_folders::LogFolders;
use super::mapped_file_queue::{Segment, open_segments};
use super::reading::{self, Boundary, GetLimits, GetResult, MessageFilter, QueryResult};
pub use super::recovery::RecoveryReport;
use super::recovery::{Recovered, Recovery, SYNC_FAILED};
use super::worker::Worker;

/// Longest topic, bytes.
const MAX_TOPIC_LEN: usize = 255;
/// Longest properties text, bytes: its length is an i16.
const MAX_PROPERTIES_LEN: usize = i16::MAX as usize;
/// How often the deletion of topics is tried without keeping appends waiting for the disk.
const DELETE_ATTEMPTS: usize = 3;
/// How long a store that is dropped without [`MessageStore::shutdown`] tries to stop in order.
const DROP_DEADLINE: Duration = Duration::from_secs(10);

/// A store. Many may live in one process, each in its own folder.
pub struct MessageStore {
    config: StoreConfig,
    /// Bytes at the log's end that may be assumed to be in memory.
    in_memory: i64,
    log: Arc<CommitLog>,
    appender: LogAppender,
    flusher: Arc<Flusher>,
    allocator: Arc<Allocator>,
    guard: Arc<DiskGuard>,
    latch: Arc<Latch>,
    queues: Arc<ConsumeQueueTable>,
    index: Option<Arc<Index>>,
    deleted: Arc<DeletedTopics>,
    dispatch: Arc<DispatchService>,
    derived: Arc<DerivedFlusher>,
    cleaner: Arc<Cleaner>,
    abort: AbortMark,
    recovery: RecoveryReport,
    running: Mutex<Option<Running>>,
    stopped: Mutex<Option<ShutdownReport>>,
}

/// What ends with the store.
#[derive(Default)]
struct Running {
    flush: Vec<Worker>,
    alloc: Option<Worker>,
    derived: Option<Worker>,
    clean: Option<Worker>,
    lock: Option<StoreLock>,
}

/// What is read before recovery.
struct Loaded {
    folders: LogFolders,
    checkpoint: Checkpoint,
    positions: Positions,
    queues: Arc<ConsumeQueueTable>,
    index: Option<Arc<Index>>,
    deleted: Arc<DeletedTopics>,
    dispatcher: Arc<Dispatcher>,
    segments: Vec<Segment>,
}

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
    /// Records, and pieces of the log that were none, that could not be dispatched since the start.
    pub dispatch_skipped: u64,
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
        let root = config.root.clone();
        create_dir(&*fs, &root)?;
        let lock = StoreLock::take(&root, &*fs)?;
        let (abort, unclean) = AbortMark::create(&root, &fs)?;
        let last_stop = if unclean { "abrupt" } else { "clean" };
        log::info!("store opens: root={} last_stop={last_stop} optimized_recovery={}", root.display(), config.optimized_recovery);
        let loaded = Loaded::load(&config, &fs, !unclean).inspect_err(|_| {
            if !unclean && let Err(error) = abort.remove() {
                log::warn!("abort mark stays: {error}"); // nothing has been changed, but the next start will look closer
            }
        })?;
        let recovered = loaded.recover(&config, &*fs, !unclean)?;
        let store = Self::build(config, fs, clock, abort, loaded, recovered)?;
        match store.start_threads(lock) {
            Ok(()) => Ok(Arc::new(store)),
            Err(error) => {
                store.shutdown(DROP_DEADLINE);
                Err(StoreError::Io("start threads of", root, error))
            }
        }
    }

    fn build(
        config: StoreConfig, fs: Arc<dyn Fs>, clock: Clock, abort: AbortMark, loaded: Loaded, recovered: Recovered,
    ) -> Result<Self, StoreError> {
        let Loaded { checkpoint, positions, queues, index, deleted, dispatcher, .. } = loaded;
        let Recovered { files, end, last_record, last_store_timestamp, distrusted, report } = recovered;
        let positions = if distrusted { positions.without_queues() } else { positions };
        log::info!("recovered: {report} end={end}");
        let sync_flush = config.flush_disk_type == FlushDiskType::Sync;
        let latch = Arc::new(Latch::default());
        let log = Arc::new(CommitLog::new(config.commit_log_file_size, files, end, last_store_timestamp, sync_flush));
        deleted.settle(log.min_offset(), end)?;
        let guard = Arc::new(DiskGuard::new(&config, Arc::clone(&fs)));
        let (interval, timeout) = (Duration::from_millis(config.flush_interval_ms), Duration::from_millis(config.sync_flush_timeout_ms));
        let flusher = Flusher::new(Arc::clone(&log), Arc::clone(&fs), Arc::clone(&latch), interval, timeout);
        let allocator = Allocator::new(Arc::clone(&log), Arc::clone(&fs), Arc::clone(&guard), Arc::clone(&flusher));
        let dispatch = DispatchService::start(&config.tag, Arc::clone(&log), Arc::clone(&dispatcher), end)
            .map_err(|error| StoreError::Io("start a thread of", config.root.clone(), error))?;
        let dispatch = Arc::new(dispatch);
        // without a flushed offset a crash is not told from damage; what speaks of records that the log has lost would be taken for
        // knowledge of those that follow in their places
        let must_be_durable = positions.flushed_offset.is_none() || positions.logics_offset.max(positions.index_offset - 1) >= end.max(1);
        let positions = positions.of_log(end, last_record, last_store_timestamp);
        if let Err(error) = checkpoint.write(positions, must_be_durable) {
            log::warn!("checkpoint not written yet: {error}");
        }
        let (marking, path) = (Arc::clone(&fs), config.root.join(SYNC_FAILED));
        let mark = move |why: &str| mark_failed_sync(&*marking, &path, why);
        let derived = DerivedFlusher::new(
            derived_flush::Parts {
                guard: Arc::clone(&guard),
                log: Arc::clone(&log),
                flusher: Arc::clone(&flusher),
                dispatch: Arc::clone(&dispatch),
                dispatcher,
                queues: Arc::clone(&queues),
                index: index.clone(),
                checkpoint,
                sync_failed: Box::new(mark.clone()),
            },
            positions,
            (last_record, last_store_timestamp),
            Duration::from_millis(config.flush_consume_queue_interval_ms.max(1)),
        );
        let parts = cleaning::Parts {
            log: Arc::clone(&log),
            fs: Arc::clone(&fs),
            guard: Arc::clone(&guard),
            allocator: Arc::clone(&allocator),
            queues: Arc::clone(&queues),
            index: index.clone(),
            deleted: Arc::clone(&deleted),
            derived: Arc::clone(&derived),
        };
        let cleaner = Cleaner::new(&config, parts, clock.clone());
        let appender =
            LogAppender::new(Arc::clone(&log), clock, Arc::clone(&allocator), Arc::clone(&guard), Arc::clone(&latch), Arc::clone(&queues))
                .with_record_crc(config.append_record_crc);
        let follower = Arc::clone(&dispatch);
        flusher.on_flushed(move || follower.wake());
        flusher.on_failed(mark);
        Ok(Self {
            in_memory: reading::in_memory_bytes(config.in_memory_ratio),
            config,
            log,
            appender,
            flusher,
            allocator,
            guard,
            latch,
            queues,
            index,
            deleted,
            dispatch,
            derived,
            cleaner,
            abort,
            recovery: report,
            running: Mutex::default(),
            stopped: Mutex::default(),
        })
    }

    /// All queues.
    #[cfg(test)]
    pub(super) fn queues(&self) -> &ConsumeQueueTable {
        &self.queues
    }

    /// What `flush-cq` does at its next round; `thorough`: as the last one.
    #[cfg(test)]
    pub(super) fn flush_derived(&self, thorough: bool) -> bool {
        self.derived.flush(thorough)
    }

    fn start_threads(&self, lock: StoreLock) -> std::io::Result<()> {
        self.guard.check();
        let mut guard = self.running.lock();
        let running = guard.get_or_insert_default();
        running.lock = Some(lock);
        let (tag, latch) = (self.config.tag.as_str(), &self.latch);
        let (flusher, late) = (Arc::clone(&self.flusher), Arc::clone(&self.flusher));
        running.flush.push(Worker::spawn(tag, "flush", latch, move || flusher.run())?);
        running.flush.push(Worker::spawn(tag, "flush-late", latch, move || late.run_late())?);
        let allocator = Arc::clone(&self.allocator);
        running.alloc = Some(Worker::spawn(tag, "alloc", latch, move || allocator.run())?);
        let derived = Arc::clone(&self.derived);
        running.derived = Some(Worker::spawn(tag, "flush-cq", latch, move || derived.run())?);
        let cleaner = Arc::clone(&self.cleaner);
        running.clean = Some(Worker::spawn(tag, "clean", latch, move || cleaner.run())?);
        Ok(())
    }

    /// What recovery did when the store was opened.
    pub fn recovery(&self) -> RecoveryReport {
        self.recovery
    }

    /// From now on `listener` is told of arrivals. Once.
    pub fn serve(&self, listener: Arc<dyn ArrivalListener>) {
        self.dispatch.set_listener(listener);
        self.dispatch.wake();
    }

    /// Stops in order: last flush, dispatch to the end, flush of derived files, checkpoint, abort removed, lock released.
    /// Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        let mut stopped = self.stopped.lock();
        if let Some(report) = &*stopped {
            return report.clone();
        }
        let deadline = Instant::now() + deadline;
        let ended = |worker: Option<Worker>| worker.is_none_or(|worker| worker.join_until(deadline));
        let running = self.running.lock().take().unwrap_or_default();
        self.appender.close();
        self.cleaner.stop();
        self.allocator.stop();
        self.flusher.stop();
        let mut in_order = true;
        for worker in running.flush {
            in_order &= ended(Some(worker));
        }
        self.flusher.abandon();
        if ended(running.alloc) {
            self.allocator.discard();
        } else {
            in_order = false;
        }
        let dispatch_behind_bytes = self.dispatch.stop(deadline.saturating_duration_since(Instant::now()));
        self.derived.stop();
        in_order &= ended(running.derived) && ended(running.clean);
        let on_disk = in_order && self.log.flushed_offset() == self.log.max_offset() && self.derived.flush(true);
        let clean = on_disk && dispatch_behind_bytes == 0 && self.latch.reason().is_none();
        let clean = clean && self.abort.remove().inspect_err(|error| log::error!("abort mark stays: {error}")).is_ok();
        if !clean {
            log::warn!(
                "store not stopped in order, the next start checks it: root={} dispatch_behind_bytes={dispatch_behind_bytes}",
                self.config.root.display()
            );
        }
        drop(running.lock);
        log::info!("store closed: root={} clean={clean} end={}", self.config.root.display(), self.log.max_offset());
        stopped.insert(ShutdownReport { clean, dispatch_behind_bytes }).clone()
    }

    // ---- append ----

    /// Stages one message: checks sizes, finds its queue, encodes it.
    ///
    /// # Errors
    /// [`PutError`]; nothing was staged.
    pub fn stage(&self, batch: &mut AppendBatch, draft: &Draft<'_>) -> Result<(), PutError> {
        let with_crc = self.config.append_record_crc.then(|| record::with_record_crc(draft.properties));
        let draft = &Draft { properties: with_crc.as_deref().unwrap_or(draft.properties), ..*draft };
        self.check(draft)?;
        let numbered = has_unit(draft.sys_flag);
        let queue = numbered.then(|| self.queues.get_or_create(draft.topic, draft.queue_id));
        let start = batch.bytes.len();
        draft.encode(&mut batch.bytes);
        batch.entries.push(Staged { start, len: batch.bytes.len() - start, queue, group_len: 1 });
        Ok(())
    }

    fn check(&self, draft: &Draft<'_>) -> Result<(), PutError> {
        let (body, properties, topic) = (draft.body.len(), draft.properties.len(), draft.topic.len());
        if body > self.config.max_message_size {
            return Err(PutError::BodyTooLong(body, self.config.max_message_size));
        }
        if properties > MAX_PROPERTIES_LEN {
            return Err(PutError::PropertiesTooLong(properties, MAX_PROPERTIES_LEN));
        }
        if topic > MAX_TOPIC_LEN {
            return Err(PutError::TopicTooLong(topic, MAX_TOPIC_LEN));
        }
        if draft.queue_id < 0 {
            return Err(PutError::Illegal(format!("queue id {} is negative", draft.queue_id)));
        }
        if !is_one_component(draft.topic) {
            return Err(PutError::Illegal(format!("topic {:?} cannot be the name of a folder", draft.topic)));
        }
        let (size, limit) = (draft.size(), self.config.commit_log_file_size);
        if size + record::BLANK_SIZE > limit { Err(PutError::RecordTooLong(size, limit)) } else { Ok(()) }
    }

    /// Marks the last `count` staged records as a group that must lie in one file (a client's batch).
    pub fn group(&self, batch: &mut AppendBatch, count: usize) {
        batch.group(count);
    }

    /// Places and copies everything staged under one acquisition of the put lock; pushes one outcome per record, in order; the
    /// batch is empty afterwards and the records are in the page cache. Under SYNC_FLUSH the flush thread is woken.
    pub fn append(&self, batch: &mut AppendBatch, outcomes: &mut Vec<AppendOutcome>) {
        if self.appender.append(batch, outcomes) {
            self.flusher.wake();
            if !self.log.is_sync_flush() {
                self.dispatch.wake();
            }
        }
    }

    /// Appends one message.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put(&self, draft: &Draft<'_>) -> AppendOutcome {
        let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::with_capacity(1));
        self.stage(&mut batch, draft)?;
        self.append(&mut batch, &mut outcomes);
        outcomes.pop().unwrap_or_else(|| Err(PutError::Unavailable("nothing was appended".to_owned())))
    }

    /// Why messages are refused now, if they are; the text names cause, numbers and key.
    pub fn refusal(&self) -> Option<String> {
        self.appender.refusal()
    }

    // ---- durability ----

    /// Whether appends are acknowledged only after fdatasync.
    pub fn is_sync_flush(&self) -> bool {
        self.log.is_sync_flush()
    }

    /// Physical offset up to which everything is on disk.
    pub fn flushed_offset(&self) -> i64 {
        self.log.flushed_offset()
    }

    /// The reason of a failed sync, which is final for this store until it is opened again.
    pub fn sync_failure(&self) -> Option<String> {
        self.flusher.failure().map(str::to_owned)
    }

    /// Registers a thread that parks replies until they are durable.
    pub fn watch_flush(&self, wake: impl Fn() + Send + Sync + 'static) -> FlushWatch {
        self.flusher.watch(wake)
    }

    /// Calls `done` once, from the flush thread (or at once), when `end` is durable by the configured rule (ASYNC_FLUSH: at once).
    /// `done` must not block.
    pub fn when_durable(&self, end: i64, done: Box<dyn FnOnce(Durability) + Send>) {
        self.flusher.when_durable(end, done);
    }

    // ---- read ----

    /// Looks messages up. Never blocks on locks of writers.
    pub fn get(&self, topic: &str, queue_id: i32, offset: i64, limits: &GetLimits, filter: &dyn MessageFilter) -> GetResult {
        reading::get(&*self.log, &self.queues, self.in_memory, topic, queue_id, offset, limits, filter)
    }

    /// Whether the message at this offset probably has to come from disk: then read on a work thread.
    pub fn likely_cold(&self, topic: &str, queue_id: i32, offset: i64) -> bool {
        reading::likely_cold(&*self.log, &self.queues, self.in_memory, topic, queue_id, offset)
    }

    /// Smallest offset of a queue and the one behind its last visible message; (0, 0) for an unknown or empty queue.
    pub fn queue_bounds(&self, topic: &str, queue_id: i32) -> (i64, i64) {
        reading::queue_bounds(&self.queues, topic, queue_id)
    }

    /// Whether the queue exists on disk or in memory.
    pub fn has_queue(&self, topic: &str, queue_id: i32) -> bool {
        reading::has_queue(&self.queues, topic, queue_id)
    }

    /// Queue offset of a time: the first message stored at or after it ([`Boundary::Lower`]), or the last stored at or before
    /// it (`Upper`); Java's rules at the ends of the queue.
    pub fn offset_by_time(&self, topic: &str, queue_id: i32, timestamp_ms: i64, boundary: Boundary) -> i64 {
        reading::offset_by_time(&*self.log, &self.queues, topic, queue_id, timestamp_ms, boundary)
    }

    /// Store time of the message at a queue offset; -1 when there is none.
    pub fn store_time(&self, topic: &str, queue_id: i32, offset: i64) -> i64 {
        reading::store_time(&*self.log, &self.queues, topic, queue_id, offset)
    }

    /// Tags code and record of the message at a queue offset (delay levels: the code is the deliver time).
    pub fn message_at(&self, topic: &str, queue_id: i32, offset: i64) -> Option<(i64, Option<Bytes>)> {
        reading::message_at(&*self.log, &self.queues, topic, queue_id, offset)
    }

    /// The record at a physical offset.
    pub fn record_at(&self, physical_offset: i64) -> Option<Bytes> {
        reading::record_at(&*self.log, physical_offset)
    }

    /// Whether the message at queue offset 0 lies in the newest part of the log that fits in memory.
    pub fn first_message_in_memory(&self, topic: &str, queue_id: i32) -> bool {
        reading::first_message_in_memory(&*self.log, &self.queues, self.in_memory, topic, queue_id)
    }

    /// Finds messages by key (a word of KEYS, or the unique key) in [begin, end] ms. Slow: on a work thread.
    pub fn query(&self, topic: &str, key: &str, max: usize, begin_ms: i64, end_ms: i64) -> QueryResult {
        let (mark, max) = (self.deleted.read().of(topic), max.min(self.config.max_query_messages));
        reading::query(&*self.log, self.index.as_deref(), mark, topic, key, max, begin_ms, end_ms)
    }

    /// Topics that have queues, with their queue ids.
    pub fn topics(&self) -> Vec<(String, Vec<i32>)> {
        let mut topics = std::collections::BTreeMap::<String, Vec<i32>>::new();
        for queue in self.queues.all() {
            topics.entry(queue.topic().to_owned()).or_default().push(queue.queue_id());
        }
        topics.values_mut().for_each(|ids| ids.sort_unstable());
        topics.into_iter().collect()
    }

    /// Removes the queues of a topic, durably. Slow: see [`MessageStore::delete_topics`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.delete_topics(&[topic])
    }

    /// Removes the queues of topics, durably. Their records stay in the log until they expire, but no queue and no key leads to them
    /// any more, whatever the next start has to read again. Slow.
    ///
    /// # Errors
    /// The deletion could not be noted on disk, and the queues are as they were; or their files could not be removed.
    pub fn delete_topics(&self, topics: &[&str]) -> Result<(), StoreError> {
        let mut topics = topics.to_vec();
        topics.sort_unstable();
        let (topics, mut stored) = (topics.as_slice(), self.deleted.change());
        for _ in 0..DELETE_ATTEMPTS {
            let (mark, numbered) = {
                let _paused = self.appender.pause();
                (self.log.max_offset(), self.queues.numbered(topics))
            };
            let marks = stored.with(topics, mark);
            self.deleted.store(&mut stored, marks)?;
            let mut current = self.deleted.write();
            let enter_if_nothing_came = || {
                let paused = self.appender.pause();
                if self.queues.numbered(topics) != numbered {
                    return Ok(None);
                }
                *current = current.with(topics, mark);
                Ok(Some(paused))
            };
            if self.queues.delete_topics(topics, enter_if_nothing_came)? {
                return Ok(());
            }
        }
        // topics that take messages all the time: these wait
        let mut current = self.deleted.write();
        let enter = || {
            let paused = self.appender.pause();
            let marks = stored.with(topics, self.log.max_offset());
            self.deleted.store(&mut stored, marks)?;
            *current = current.with(topics, self.log.max_offset());
            Ok(Some(paused))
        };
        self.queues.delete_topics(topics, enter).map(|_| ())
    }

    /// From now on `listener` is told which messages went with the log's first files. Once.
    pub fn report_deletions(&self, listener: Arc<dyn DeletionListener>) {
        self.cleaner.report_to(listener);
    }

    /// Deletes expired commit-log files now, whatever the hour (request 329). Slow.
    pub fn delete_expired_files(&self) {
        self.cleaner.clean(true);
    }

    /// What the `clean` thread does in each interval; how many files went.
    #[cfg(test)]
    pub(super) fn clean_round(&self) -> usize {
        self.cleaner.clean(false)
    }

    /// Numbers.
    pub fn stats(&self) -> StoreStats {
        let space = self.guard.space();
        let (put_messages, put_bytes, put_failed) = self.appender.counts();
        let used = space.total.saturating_sub(space.free) as f64;
        let min = self.log.min_offset();
        let first = self.log.slice_to_end(min).filter(|_| self.log.can_read(min, record::MIN_SIZE));
        let earliest = first.and_then(|bytes| store_time_of(&bytes));
        StoreStats {
            min_physical_offset: self.log.min_offset(),
            max_physical_offset: self.log.max_offset(),
            flushed_offset: self.log.flushed_offset(),
            dispatch_behind_bytes: self.dispatch.behind_bytes(),
            dispatch_skipped: self.dispatch.skipped(),
            commit_log_disk_ratio: if space.total == 0 { 0.0 } else { used / space.total as f64 },
            disk_total: space.total,
            disk_free: space.free,
            earliest_store_timestamp: earliest.unwrap_or(-1),
            put_lock_ms: self.appender.locked_ms(),
            put_messages,
            put_bytes,
            put_failed,
            syncs: self.flusher.syncs(),
        }
    }
}

impl Drop for MessageStore {
    fn drop(&mut self) {
        self.shutdown(DROP_DEADLINE);
    }
}

impl Loaded {
    /// Reads everything. Nothing but a file without bytes is changed.
    fn load(config: &StoreConfig, fs: &Arc<dyn Fs>, clean: bool) -> Result<Self, StoreError> {
        foreign::refuse_rocksdb(&**fs, &config.root)?;
        let (checkpoint, positions) = Checkpoint::load(&config.root, Arc::clone(fs))?;
        let folders = LogFolders::find(config, &**fs)?;
        let segments = open_segments(&**fs, &folders.all, config.commit_log_file_size)?;
        folders.check(config, &segments, &positions)?;
        for folder in &folders.missing {
            create_dir(&**fs, folder)?;
        }
        foreign::refuse_records_without_crc(config, &segments)?;
        let queues = Arc::new(ConsumeQueueTable::load(config, Arc::clone(fs))?);
        if !clean {
            queues.distrust_behind(positions.logics_offset)?;
        }
        let safe_timestamp = (!clean).then_some(positions.index_timestamp);
        let index = if config.index_enable { Some(Arc::new(Index::load(config, Arc::clone(fs), safe_timestamp)?)) } else { None };
        let indexed = index.as_ref().map_or(0, |index| index.last().1);
        folders.check_for_a_log(config, &segments, queues.max_physical_offset().max(indexed))?;
        if let Some(index) = index.as_ref().filter(|_| !clean) {
            let flushed = positions.index_offset;
            let cut = if flushed > 0 { index.truncate_behind(flushed) } else { index.truncate_behind_hole() };
            if let Err(error) = cut.and_then(|()| index.sync_dropped()) {
                log::warn!("index not cut at what was flushed, keys may be missing in it: {error}");
            }
        }
        let deleted = Arc::new(DeletedTopics::load(&config.root, Arc::clone(fs))?);
        if !clean {
            deleted.make_durable()?;
        }
        let dispatcher =
            Arc::new(Dispatcher::new(Arc::clone(&queues), index.clone(), Arc::clone(&deleted), config.delay_levels_ms.clone()));
        Ok(Self { folders, checkpoint, positions, queues, index, deleted, dispatcher, segments })
    }

    fn recover(&self, config: &StoreConfig, fs: &dyn Fs, clean: bool) -> Result<Recovered, StoreError> {
        let recovery = Recovery {
            config,
            fs,
            folders: &self.folders,
            segments: self.segments.clone(),
            positions: self.positions,
            clean,
            queues: &self.queues,
            index: self.index.as_deref(),
            deleted: &self.deleted,
            dispatcher: &self.dispatcher,
            checkpoint: &self.checkpoint,
            distrusted: Cell::new(false),
        };
        recovery.run()
    }
}

/// Creates a folder that is not there and what is missing above it, durably.
///
/// # Errors
/// The system's.
pub(super) fn create_dir(fs: &dyn Fs, path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::Io("create", path.to_owned(), error);
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !fs.exists(path)).collect();
    fs.create_dir_all(path).map_err(failed)?;
    for created in missing {
        let parent = created.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs.sync_dir(parent).map_err(failed)?;
    }
    Ok(())
}

/// So that the next start writes again what may have been lost; best effort.
fn mark_failed_sync(fs: &dyn Fs, mark: &Path, why: &str) {
    let marked = fs.open(mark, true).and_then(|file| {
        file.write_all_at(why.as_bytes(), 0)?;
        file.sync_data()
    });
    if let Err(error) = marked {
        log::warn!("failed sync not marked: path={} error={error}", mark.display());
    }
}
