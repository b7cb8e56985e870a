//! Follows the commit log up to the visible offset; feeds consume queues and index ("reput").
//!
//! - Records are dispatched in the order of the log, each once by the thread, perhaps again by recovery: putting is idempotent.
//! - Nothing stops the thread: what is no record, or cannot be dispatched, is counted, logged with its offset and skipped.
//! - A listener hears of a message after its queue has it.
//! - The thread sleeps only after it said so and looked at the visible offset once more, so a `wake` after a move of that offset is
//!   never lost.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::common::hash::tags_code;
use crate::common::record::{self, Record, RecordError};
use crate::common::sysflag;
use crate::common::topic::SCHEDULE_TOPIC;
use crate::common::{properties, record::MIN_SIZE};
use crate::runtime::thread::Thread;

use super::arrival::{Arrival, ArrivalListener};
use super::consume_queue::CqUnit;
use super::consume_queue_table::{ConsumeQueueTable, is_one_component};
use super::deleted_topics::DeletedTopics;
use super::error::StoreError;
use super::index::Index;
use super::reading::LogView;
use super::seal::is_seal;

/// Most bytes of units in memory while they cannot be written.
const MAX_UNWRITTEN_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// Why the thread waits.
const UNREADABLE: &str = "commit log cannot be read";
/// Records between two `round_done`, so that waiting pulls are answered while the log is being filled.
const ROUND_RECORDS: usize = 512;
/// Looked again after this time, should nobody wake the thread.
const IDLE: Duration = Duration::from_secs(1);
/// Delay of a level that `messageDelayLevel` does not have.
const UNKNOWN_LEVEL_DELAY_MS: i64 = 1_000;
/// Before an unreadable position is tried again.
const UNREADABLE_WAIT: Duration = Duration::from_millis(100);
/// Between two warnings of the same kind.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Puts one record into its consume queue and the index. Shared by the dispatch thread and recovery.
pub(super) struct Dispatcher {
    queues: Arc<ConsumeQueueTable>,
    index: Option<Arc<Index>>,
    deleted: Arc<DeletedTopics>,
    delay_levels_ms: Vec<i64>,
    index_failures: Mutex<(u64, Option<Instant>)>,
    /// Seals of damage that came by: each may stand for units whose records it has replaced.
    seals: Mutex<Vec<CqUnit>>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It has a unit with this tags code (deliver time on the schedule topic).
    Unit(i64),
    /// It gets none.
    NoUnit,
    /// It has none yet: units in front are missing, whose records lie behind this physical offset.
    MissingBefore(i64),
}

/// Properties that dispatching needs; the last of equal names wins.
#[derive(Default)]
pub(super) struct Dispatched<'a> {
    tags: Option<&'a str>,
    keys: Option<&'a str>,
    unique_key: Option<&'a str>,
    delay: Option<&'a str>,
}

impl<'a> Dispatched<'a> {
    /// Reads them out of a properties text.
    pub(super) fn read(text: &'a str) -> Self {
        let mut found = Self::default();
        for (name, value) in properties::iterate(text) {
            match name {
                properties::TAGS => found.tags = Some(value),
                properties::KEYS => found.keys = Some(value),
                properties::UNIQ_KEY => found.unique_key = Some(value),
                properties::DELAY => found.delay = Some(value),
                _ => {}
            }
        }
        found
    }

    /// Tags code of the record's unit: the hash of its tags, or the time to deliver it at on the schedule topic.
    pub(super) fn tags_code(&self, record: &Record<'_>, delay_levels_ms: &[i64]) -> i64 {
        if record.topic == SCHEDULE_TOPIC
            && let Some(level) = self.delay.and_then(|delay| delay.parse::<usize>().ok()).filter(|level| *level > 0)
        {
            let level = level.min(delay_levels_ms.len());
            let delay_ms = level.checked_sub(1).and_then(|place| delay_levels_ms.get(place));
            return record.store_timestamp + delay_ms.copied().unwrap_or(UNKNOWN_LEVEL_DELAY_MS);
        }
        tags_code(self.tags)
    }

    /// Keys by which the record is found.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        let keys = self.keys.unwrap_or_default().split(' ').filter(|key| !key.is_empty());
        self.unique_key.into_iter().chain(keys)
    }

    /// Its tags, by which newer brokers find it too.
    pub(super) fn tags(&self) -> Option<&'a str> {
        self.tags
    }
}

impl Dispatcher {
    /// A dispatcher into these tables.
    pub(super) fn new(
        queues: Arc<ConsumeQueueTable>, index: Option<Arc<Index>>, deleted: Arc<DeletedTopics>, delay_levels_ms: Vec<i64>,
    ) -> Self {
        Self { queues, index, deleted, delay_levels_ms, index_failures: Mutex::default(), seals: Mutex::default() }
    }

    /// Dispatches a record that lies at `physical_offset`; returns its tags code (deliver time on the schedule topic) if it has a unit
    /// now. Prepared and rollback records get none, nor do records of a topic that was deleted since. A record that cannot be dispatched is counted and skipped by the caller.
    ///
    /// # Errors
    /// The consume queue's; index failures pause the index and are not returned.
    pub(super) fn dispatch(&self, record: &Record<'_>, physical_offset: i64) -> Result<Option<i64>, StoreError> {
        let put = self.dispatch_in_walk(record, physical_offset, i64::MIN)?;
        Ok(if let Put::Unit(tags_code) = put { Some(tags_code) } else { None })
    }

    /// As [`Dispatcher::dispatch`], for one who dispatches the log from `from` on: a gap in front of the unit whose records may lie before
    /// that is left open.
    ///
    /// # Errors
    /// As there.
    pub(super) fn dispatch_in_walk(&self, record: &Record<'_>, physical_offset: i64, from: i64) -> Result<Put, StoreError> {
        let marks = self.deleted.read(); // no deletion between the look and the put
        if marks.hide(record.topic, physical_offset) {
            return Ok(Put::NoUnit);
        }
        if is_seal(record) {
            self.note_seal(unit_of(record, physical_offset, 0));
        }
        let found = Dispatched::read(record.properties);
        let tags_code = has_unit(record.sys_flag).then(|| found.tags_code(record, &self.delay_levels_ms));
        let queued = tags_code.map_or(Ok(Put::NoUnit), |tags_code| self.queue(record, physical_offset, tags_code, from));
        self.put_keys(record, &found, physical_offset);
        queued
    }

    /// Indexes a record whose unit has to wait: the index takes records in the order of the log only.
    pub(super) fn index_ahead(&self, record: &Record<'_>, physical_offset: i64) {
        if !self.deleted.read().hide(record.topic, physical_offset) {
            self.put_keys(record, &Dispatched::read(record.properties), physical_offset);
        }
    }

    fn put_keys(&self, record: &Record<'_>, found: &Dispatched<'_>, physical_offset: i64) {
        if let Some(index) = &self.index
            && has_keys(record.sys_flag)
            && let Err(error) = put_keys(index, record, found, physical_offset)
        {
            self.index_failed(&error);
        }
    }

    fn queue(&self, record: &Record<'_>, physical_offset: i64, tags_code: i64, from: i64) -> Result<Put, StoreError> {
        if record.queue_id < 0 || !is_one_component(record.topic) {
            let why =
                format!("no queue for a record: physicalOffset={physical_offset} topic={:?} queueId={}", record.topic, record.queue_id);
            return Err(StoreError::Damaged("consumequeue".into(), why));
        }
        let queue = self.queues.get_or_create(record.topic, record.queue_id);
        let mut missing = CqUnit::FILLER;
        if let Some(behind) = queue.gap_before(record.queue_offset) {
            if behind < from {
                return Ok(Put::MissingBefore(behind));
            }
            missing = self.seals.lock().last().copied().filter(|seal| seal.physical_offset >= behind).unwrap_or(missing);
        }
        queue.put_behind(missing, record.queue_offset, unit_of(record, physical_offset, tags_code)).map(|()| Put::Unit(tags_code))
    }

    /// A seal stands where records were lost.
    pub(super) fn note_seal(&self, seal: CqUnit) {
        self.seals.lock().push(seal);
    }

    /// The seals that came by, which are forgotten.
    pub(super) fn take_seals(&self) -> Vec<CqUnit> {
        std::mem::take(&mut *self.seals.lock())
    }

    /// The unit of a record that lies at `physical_offset`.
    pub(super) fn unit_of(&self, record: &Record<'_>, physical_offset: i64) -> CqUnit {
        unit_of(record, physical_offset, Dispatched::read(record.properties).tags_code(record, &self.delay_levels_ms))
    }

    fn index_failed(&self, error: &StoreError) {
        let mut failures = self.index_failures.lock();
        failures.0 += 1;
        if failures.1.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            failures.1 = Some(Instant::now());
            log::warn!("index does not take records: failures={} {error}", failures.0);
        }
    }
}

fn unit_of(record: &Record<'_>, physical_offset: i64, tags_code: i64) -> CqUnit {
    CqUnit { physical_offset, size: i32::try_from(record.total_size).unwrap_or(i32::MAX), tags_code }
}

/// Whether a record of these flags enters a consume queue.
pub(super) fn has_unit(sys_flag: i32) -> bool {
    matches!(sysflag::transaction_type(sys_flag), sysflag::TRANSACTION_NOT | sysflag::TRANSACTION_COMMIT)
}

/// Whether a record of these flags enters the key index.
pub(super) fn has_keys(sys_flag: i32) -> bool {
    sysflag::transaction_type(sys_flag) != sysflag::TRANSACTION_ROLLBACK
}

/// Puts all keys of a record into the index.
///
/// # Errors
/// The index's.
pub(super) fn put_keys(index: &Index, record: &Record<'_>, found: &Dispatched<'_>, physical_offset: i64) -> Result<(), StoreError> {
    for key in found.keys() {
        index.put(record.topic, key, physical_offset, record.store_timestamp)?;
    }
    if let Some(tags) = found.tags {
        index.put_tags(record.topic, tags, physical_offset, record.store_timestamp)?;
    }
    Ok(())
}

// ---- the thread ----

/// The `dispatch` thread.
pub(super) struct DispatchService {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
    behind: Box<dyn Fn() -> i64 + Send + Sync>,
}

#[derive(Default)]
struct Shared {
    dispatched: AtomicI64,
    /// Start and store time of the last record dispatched.
    last_record: Mutex<Option<(i64, i64)>>,
    skipped: AtomicU64,
    sleeping: AtomicBool,
    /// No more waiting for records: end when the log's end is reached, or at the deadline.
    stopping: AtomicBool,
    deadline: OnceLock<Instant>,
    sleeper: OnceLock<std::thread::Thread>,
    listener: RwLock<Option<Arc<dyn ArrivalListener>>>,
}

impl DispatchService {
    /// Starts the thread at `from_offset`, the start of a record.
    ///
    /// # Errors
    /// The system's, when no thread can be made.
    pub(super) fn start<L: LogView + Send + Sync + 'static>(
        tag: &str, log: Arc<L>, dispatcher: Arc<Dispatcher>, from_offset: i64,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { dispatched: AtomicI64::new(from_offset), ..Shared::default() });
        let mut follower =
            Follower { log: Arc::clone(&log), dispatcher, shared: Arc::clone(&shared), at: from_offset, last_record: None, warned: None };
        let thread = Thread::spawn(tag, "dispatch", move || follower.run())?;
        let measured = Arc::clone(&shared);
        let behind = Box::new(move || (log.visible_offset() - measured.dispatched.load(Ordering::Acquire)).max(0));
        Ok(Self { shared, thread: Mutex::new(Some(thread)), behind })
    }

    /// From now on `listener` is told of arrivals.
    pub(super) fn set_listener(&self, listener: Arc<dyn ArrivalListener>) {
        *self.shared.listener.write() = Some(listener);
    }

    /// The visible offset has moved. A system call only when the thread sleeps.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst); // the caller's move comes before the look; pairs with the fence in `sleep`
        if self.shared.sleeping.load(Ordering::Relaxed) && self.shared.sleeping.swap(false, Ordering::AcqRel) {
            self.shared.unpark();
        }
    }

    /// Behind the last record that was dispatched (or skipped).
    pub(super) fn dispatched_offset(&self) -> i64 {
        self.shared.dispatched.load(Ordering::Acquire)
    }

    /// Start and store time of the last record that was dispatched since the start.
    pub(super) fn last_record(&self) -> Option<(i64, i64)> {
        *self.shared.last_record.lock()
    }

    /// Records, and pieces of the log that were none, that could not be dispatched.
    pub(super) fn skipped(&self) -> u64 {
        self.shared.skipped.load(Ordering::Relaxed)
    }

    /// Bytes that are visible but not dispatched.
    pub(super) fn behind_bytes(&self) -> i64 {
        (self.behind)()
    }

    /// Lets the thread reach the visible offset, for at most `deadline`, and joins it. Returns the bytes it was behind. Twice is harmless.
    pub(super) fn stop(&self, deadline: Duration) -> i64 {
        if let Some(deadline) = Instant::now().checked_add(deadline) {
            let _ = self.shared.deadline.set(deadline);
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.unpark();
        let thread = self.thread.lock().take();
        drop(thread); // joins
        self.behind_bytes()
    }
}

impl Drop for DispatchService {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Shared {
    fn unpark(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    fn must_end(&self, at_end: bool) -> bool {
        self.stopping.load(Ordering::Acquire) && (at_end || self.deadline.get().is_some_and(|deadline| Instant::now() >= *deadline))
    }
}

/// What the thread owns.
struct Follower<L> {
    log: Arc<L>,
    dispatcher: Arc<Dispatcher>,
    shared: Arc<Shared>,
    at: i64,
    last_record: Option<(i64, i64)>,
    warned: Option<Instant>,
}

impl<L: LogView> Follower<L> {
    fn run(&mut self) {
        let _ = self.shared.sleeper.set(std::thread::current());
        loop {
            let at_end = self.at >= self.log.visible_offset();
            if self.shared.must_end(at_end) {
                return;
            }
            if at_end {
                self.sleep();
                continue;
            }
            let listener = self.shared.listener.read().clone();
            let round = catch_unwind(AssertUnwindSafe(|| self.round(listener.as_deref())));
            if round.is_err() {
                self.skip_after_panic();
            }
            *self.shared.last_record.lock() = self.last_record;
            if let Some(listener) = listener
                && catch_unwind(AssertUnwindSafe(|| listener.round_done())).is_err()
            {
                log::error!("arrival listener panicked at the end of a round: physicalOffset={}", self.at);
            }
        }
    }

    fn sleep(&self) {
        self.shared.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.at >= self.log.visible_offset() && !self.shared.stopping.load(Ordering::Acquire) {
            std::thread::park_timeout(IDLE);
        }
        self.shared.sleeping.store(false, Ordering::Relaxed);
    }

    fn move_to(&mut self, at: i64) {
        self.at = at;
        self.shared.dispatched.store(at, Ordering::Release);
    }

    /// Dispatches some records of one file.
    fn round(&mut self, listener: Option<&dyn ArrivalListener>) {
        if self.dispatcher.queues.dirty_bytes() > MAX_UNWRITTEN_BYTES {
            return self.wait_for_disk("consume queues cannot be written and their memory is full");
        }
        let end = self.log.visible_offset();
        let Some(bytes) = self.log.slice_to_end(self.at) else { return self.leave_gap() };
        let start = self.at;
        let readable = bytes.len().min(usize::try_from(end - start).unwrap_or(0));
        for _ in 0..ROUND_RECORDS {
            let from = (self.at - start) as usize;
            if from >= readable {
                return;
            }
            if !self.log.can_read_record(self.at, &bytes[from..readable]) {
                return self.wait_for_disk(UNREADABLE);
            }
            match Record::parse(&bytes[from..readable]) {
                Ok(record) => self.record(&record, listener),
                Err(RecordError::Blank) => return self.move_to(self.log.next_file_start(self.at)),
                Err(error) => self.skip(&bytes.slice(from..readable), end, &error),
            }
        }
    }

    fn record(&mut self, record: &Record<'_>, listener: Option<&dyn ArrivalListener>) {
        match self.dispatcher.dispatch(record, self.at) {
            Ok(tags_code) => {
                if let (Some(listener), Some(tags_code)) = (listener, tags_code) {
                    let Record { topic, queue_id, queue_offset, store_timestamp, properties, .. } = *record;
                    listener.arrived(&Arrival { topic, queue_id, queue_offset, tags_code, store_timestamp, properties });
                }
            }
            Err(error) => self.skipped("record cannot be dispatched", &error, record.total_size as i64),
        }
        self.last_record = Some((self.at, record.store_timestamp));
        self.move_to(self.at + record.total_size as i64);
    }

    fn skipped(&self, what: &str, why: &dyn std::fmt::Display, len: i64) {
        let count = self.shared.skipped.fetch_add(1, Ordering::Relaxed) + 1;
        log::error!("{what}, skipped: physicalOffset={} bytes={len} skippedSoFar={count} {why}", self.at);
    }

    /// What lies at the position is no record: goes on behind it, or at the next record, or in the next file.
    fn skip(&mut self, bytes: &Bytes, end: i64, error: &RecordError) {
        let next = behind_damage(bytes, self.at);
        let next_file = self.log.next_file_start(self.at);
        let to = next.map_or_else(|| next_file.min(end), |len| self.at + len as i64);
        self.skipped("no record in the commit log", error, to - self.at);
        self.move_to(to);
    }

    /// Nothing can be read at the position: the log begins behind it, or a file is missing and the next one is there. Anything else is
    /// waited for: records must not be passed over for a passing reason.
    fn leave_gap(&mut self) {
        let (min, next_file) = (self.log.min_offset(), self.log.next_file_start(self.at));
        let to = if self.at < min { min } else { next_file };
        if to == min || self.log.slice_to_end(to).is_some() {
            self.skipped("commit log has no file", &"missing", to - self.at);
            return self.move_to(to);
        }
        self.wait_for_disk(UNREADABLE);
    }

    fn wait_for_disk(&mut self, what: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            log::error!("{what}, dispatching waits: physicalOffset={}", self.at);
        }
        std::thread::park_timeout(UNREADABLE_WAIT);
    }

    /// The record at the position made something panic: it is left behind.
    fn skip_after_panic(&mut self) {
        let size = self.log.slice_to_end(self.at).and_then(|bytes| Record::parse(&bytes).ok().map(|record| record.total_size as i64));
        let to = size.map_or_else(|| self.log.next_file_start(self.at).min(self.log.visible_offset()), |size| self.at + size);
        self.skipped("dispatching a record panicked", &"see above", to - self.at);
        self.move_to(to);
    }
}

/// Distance to what can be read again behind something that is no record at the front of `bytes`, which begin at physical offset `at`.
pub(super) fn behind_damage(bytes: &[u8], at: i64) -> Option<usize> {
    stated_end(bytes, at).or_else(|| find_record(bytes, at))
}

/// The size that a damaged record states, if something sound begins behind it.
fn stated_end(bytes: &[u8], at: i64) -> Option<usize> {
    let size = i32::from_be_bytes(*bytes.get(record::TOTAL_SIZE..)?.first_chunk()?);
    let size = usize::try_from(size).ok().filter(|size| *size >= MIN_SIZE)?;
    let rest = bytes.get(size..)?;
    let sound = rest.is_empty() || is_at_home(rest, at + size as i64) || matches!(Record::parse(rest), Err(RecordError::Blank));
    sound.then_some(size)
}

/// Distance to the first record in `bytes`, which begin at physical offset `at`, that knows its own position.
fn find_record(bytes: &[u8], at: i64) -> Option<usize> {
    let magics = [record::MAGIC_V1.to_be_bytes(), record::MAGIC_V2.to_be_bytes()];
    let from = record::MAGIC + 1; // not the record at the front
    memchr::memchr_iter(magics[0][0], bytes.get(from..)?).map(|place| from + place).find_map(|place| {
        let start = place - record::MAGIC;
        let magic = bytes.get(place..place + 4)?;
        (magics.iter().any(|known| known == magic) && is_at_home(&bytes[start..], at + start as i64)).then_some(start)
    })
}

fn is_at_home(bytes: &[u8], at: i64) -> bool {
    Record::parse(bytes).is_ok_and(|record| record.physical_offset == at && record.total_size >= MIN_SIZE && record.check_crc().is_ok())
}

#[cfg(test)]
mod tests;
