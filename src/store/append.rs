//! Messages on their way into the log.
//!
//! A batch is filled without a lock (encoding, CRC), then placed and copied under one acquisition of the put lock: queue
//! offsets, physical offsets and the store time are stamped into the records, and what goes into one file goes there at once.
//! - A failed write leaves the log, and every queue's counter, as they were; what it may have left in the file is zeroed, or
//!   the log takes nothing more.
//! - Every file but the last ends with a blank record of at least 8 bytes; no record and no group spans files.
//! - Store times do not fall, unless the clock is set back by more than a minute.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::common::record;
use crate::runtime::clock::Clock;

use super::allocate::Allocator;
use super::commit_log::CommitLog;
use super::consume_queue::ConsumeQueue;
use super::consume_queue_table::ConsumeQueueTable;
use super::disk::{DiskGuard, is_no_space};
use super::error::{PutError, StoreError};
use super::latch::Latch;
use super::mapped_file::{AppendFailure, Appender};

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

    /// Forgets all but the first `len` records: a client's batch of which one could not be staged.
    pub fn truncate(&mut self, len: usize) {
        if let Some(first) = self.entries.get(len) {
            self.bytes.truncate(first.start);
            self.entries.truncate(len);
        }
    }

    /// Marks the last `count` records as a group that must lie in one file.
    pub(super) fn group(&mut self, count: usize) {
        let from = self.entries.len().saturating_sub(count);
        let group = &mut self.entries[from..];
        let len = group.len();
        for (index, entry) in group.iter_mut().enumerate() {
            entry.group_len = if index == 0 { len } else { 0 };
        }
    }

    /// Bytes of the records `range`.
    fn span(&self, range: &Range<usize>) -> Range<usize> {
        match (self.entries.get(range.start), self.entries[range.clone()].last()) {
            (Some(first), Some(last)) => first.start..last.start + last.len,
            _ => 0..0,
        }
    }

    /// The group that begins with record `at`.
    fn group_at(&self, at: usize) -> Range<usize> {
        at..(at + self.entries[at].group_len.max(1)).min(self.entries.len())
    }

    /// The records from `at` on, in whole groups, that fit into `left` bytes together with the blank record.
    fn run_at(&self, at: usize, left: usize) -> Range<usize> {
        let mut end = at;
        while end < self.entries.len() {
            let group = self.group_at(end);
            let span = self.span(&(at..group.end));
            if span.len() + record::BLANK_SIZE > left {
                break;
            }
            end = group.end;
        }
        at..end
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

/// How far back a clock may be set before store times follow it, ms.
const CLOCK_TOLERANCE_MS: i64 = 60_000;

/// The end of the log, behind the put lock: the one lock that all senders share.
pub(super) struct LogAppender {
    log: Arc<CommitLog>,
    clock: Clock,
    allocator: Arc<Allocator>,
    guard: Arc<DiskGuard>,
    latch: Arc<Latch>,
    queues: Arc<ConsumeQueueTable>,
    record_crc: bool,
    tail: Mutex<Tail>,
    locked_since: AtomicI64,
    closed: AtomicBool,
    messages: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

/// No append is under way, nor begins, as long as it lives.
pub(super) struct Paused<'a>(#[allow(dead_code, reason = "held")] MutexGuard<'a, Tail>);

/// What the put lock guards.
struct Tail {
    appender: Option<Appender>,
    last_timestamp: i64,
}

impl LogAppender {
    /// Appends behind the log's end.
    pub(super) fn new(
        log: Arc<CommitLog>, clock: Clock, allocator: Arc<Allocator>, guard: Arc<DiskGuard>, latch: Arc<Latch>,
        queues: Arc<ConsumeQueueTable>,
    ) -> Self {
        let appender = log.files().find(log.max_offset()).and_then(|file| file.appender());
        let last_timestamp = log.last_store_timestamp();
        Self {
            log,
            clock,
            allocator,
            guard,
            latch,
            queues,
            record_crc: false,
            tail: Mutex::new(Tail { appender, last_timestamp }),
            locked_since: AtomicI64::new(0),
            closed: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Records have room for a CRC of their own, or have not.
    pub(super) fn with_record_crc(self, record_crc: bool) -> Self {
        Self { record_crc, ..self }
    }

    /// Why appends are refused now, if they are.
    pub(super) fn refusal(&self) -> Option<String> {
        if self.closed.load(Ordering::Acquire) {
            return Some("the store is shutting down".to_owned());
        }
        self.latch.reason().map(|why| format!("storage failed: {why}; open the store again")).or_else(|| self.guard.refusal())
    }

    /// Refuses appends from now on. None is under way when this returns.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(self.tail.lock());
    }

    /// Holds the put lock.
    pub(super) fn pause(&self) -> Paused<'_> {
        Paused(self.tail.lock())
    }

    /// Messages, bytes and refused messages since the start.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.messages), load(&self.bytes), load(&self.failed))
    }

    /// How long the put lock has been held by now, ms.
    pub(super) fn locked_ms(&self) -> i64 {
        match self.locked_since.load(Ordering::Relaxed) {
            0 => 0,
            since => (self.clock.now_ms() - since).max(0),
        }
    }

    /// Appends what is staged; pushes one outcome per record, in order; forgets the batch. Returns whether something was
    /// appended.
    pub(super) fn append(&self, batch: &mut AppendBatch, outcomes: &mut Vec<AppendOutcome>) -> bool {
        if batch.is_empty() {
            return false;
        }
        outcomes.reserve(batch.len());
        let before = outcomes.len();
        {
            let mut tail = self.tail.lock();
            match self.refusal() {
                Some(why) => outcomes.extend(std::iter::repeat_n(Err(PutError::Unavailable(why)), batch.len())),
                None => self.append_locked(&mut tail, batch, outcomes),
            }
        }
        let stored = outcomes[before..].iter().filter(|outcome| outcome.is_ok()).count();
        let bytes: usize = outcomes[before..].iter().flatten().map(|appended| appended.size).sum();
        self.messages.fetch_add(stored as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.failed.fetch_add((batch.len() - stored) as u64, Ordering::Relaxed);
        batch.clear();
        if stored > 0 {
            self.allocator.appended(self.log.max_offset());
        }
        stored > 0
    }

    fn append_locked(&self, tail: &mut Tail, batch: &mut AppendBatch, outcomes: &mut Vec<AppendOutcome>) {
        let now = self.clock.now_ms();
        self.locked_since.store(now, Ordering::Relaxed);
        let timestamp = tail.stamp(now);
        let mut at = 0;
        while at < batch.len() {
            let result = self.append_next(tail, batch, at, timestamp, outcomes);
            match result {
                Ok(next) => at = next,
                Err(error) => {
                    outcomes.extend(std::iter::repeat_n(Err(error), batch.len() - at));
                    break;
                }
            }
        }
        self.locked_since.store(0, Ordering::Relaxed);
    }

    /// Appends the records from `at` on that fit into the file, or begins the next file. Returns the first record not dealt
    /// with.
    fn append_next(
        &self, tail: &mut Tail, batch: &mut AppendBatch, at: usize, timestamp: i64, outcomes: &mut Vec<AppendOutcome>,
    ) -> Result<usize, PutError> {
        let left = tail.appender.as_ref().map_or(0, Appender::left);
        let run = batch.run_at(at, left);
        if let Some(appender) = tail.appender.as_mut().filter(|_| !run.is_empty()) {
            let end = run.end;
            self.append_run(appender, batch, run, timestamp, outcomes)?;
            return Ok(end);
        }
        let group = batch.group_at(at);
        let (size, file_size) = (batch.span(&group).len(), self.log.files().file_size());
        if size + record::BLANK_SIZE > file_size {
            outcomes.extend(std::iter::repeat_n(Err(PutError::RecordTooLong(size, file_size)), group.len()));
            return Ok(group.end);
        }
        self.roll(tail)?;
        Ok(at)
    }

    /// Places and writes records that fit.
    fn append_run(
        &self, appender: &mut Appender, batch: &mut AppendBatch, run: Range<usize>, timestamp: i64, outcomes: &mut Vec<AppendOutcome>,
    ) -> Result<(), PutError> {
        let span = batch.span(&run);
        let base = appender.offset() - span.start as i64;
        let before = outcomes.len();
        for entry in &mut batch.entries[run.clone()] {
            if let Some(queue) = &mut entry.queue
                && queue.is_deleted()
            {
                *queue = self.queues.get_or_create(queue.topic(), queue.queue_id()); // its topic was deleted since it was staged
            }
            // never below what the queue holds, whatever made it
            let queue_offset = entry.queue.as_ref().map_or(0, |queue| queue.next_append_offset().max(queue.max_offset()));
            let physical_offset = base + entry.start as i64;
            let bytes = &mut batch.bytes[entry.start..entry.start + entry.len];
            record::place(bytes, queue_offset, physical_offset, timestamp);
            if self.record_crc {
                record::fill_record_crc(bytes);
            }
            if let Some(queue) = &entry.queue {
                queue.set_next_append_offset(queue_offset + 1);
            }
            outcomes.push(Ok(Appended { physical_offset, size: entry.len, queue_offset, store_timestamp: timestamp }));
        }
        if let Err(failure) = appender.append(&batch.bytes[span]) {
            let placed = outcomes.drain(before..).flatten().collect::<Vec<_>>();
            for (entry, appended) in batch.entries[run].iter().zip(placed).rev() {
                if let Some(queue) = &entry.queue {
                    queue.set_next_append_offset(appended.queue_offset);
                }
            }
            return Err(self.failed_write(appender, &failure));
        }
        self.log.set_max(appender.offset(), timestamp);
        Ok(())
    }

    /// Ends the file with a blank record and goes on in the next one.
    fn roll(&self, tail: &mut Tail) -> Result<(), PutError> {
        let start = tail.appender.as_ref().map_or_else(|| self.log.max_offset(), |appender| appender.file().end());
        let next = self.allocator.take(start).map_err(|error| self.no_file(error))?;
        let Some(new) = next.appender() else { return Err(PutError::Io(format!("{} has an appender", next.path().display()))) };
        if let Some(appender) = &mut tail.appender
            && appender.left() >= record::BLANK_SIZE
            && let Err(failure) = appender.append(&blank(appender.left()))
        {
            let error = self.failed_write(appender, &failure);
            drop((new, next)); // made again when it is wanted: its appender is gone
            return Err(error);
        }
        if let Some(old) = tail.appender.replace(new) {
            old.finish();
        }
        self.log.files().push(next);
        self.log.set_max(start, self.log.last_store_timestamp());
        Ok(())
    }

    fn failed_write(&self, appender: &Appender, failure: &AppendFailure) -> PutError {
        let path = appender.file().path();
        if failure.dirty {
            self.latch.set(format!("write of {} failed: {}, and its traces could not be removed", path.display(), failure.error));
        }
        if is_no_space(&failure.error) {
            let why = self.guard.no_space(path, &failure.error);
            self.allocator.wake();
            return PutError::Unavailable(why);
        }
        PutError::Io(format!("write of {} failed: {}", path.display(), failure.error))
    }

    fn no_file(&self, error: StoreError) -> PutError {
        match error {
            StoreError::Io(_, path, error) if is_no_space(&error) => {
                let why = self.guard.no_space(&path, &error);
                self.allocator.wake();
                PutError::Unavailable(why)
            }
            error => PutError::Io(error.to_string()),
        }
    }
}

impl Tail {
    /// The store time of an append at `now`.
    fn stamp(&mut self, now: i64) -> i64 {
        if now >= self.last_timestamp || self.last_timestamp - now > CLOCK_TOLERANCE_MS {
            self.last_timestamp = now;
        }
        self.last_timestamp
    }
}

/// The record that ends a file with `left` bytes left.
pub(super) fn blank(left: usize) -> [u8; record::BLANK_SIZE] {
    let mut blank = [0; record::BLANK_SIZE];
    blank[..4].copy_from_slice(&(left as i32).to_be_bytes());
    blank[4..].copy_from_slice(&record::MAGIC_BLANK.to_be_bytes());
    blank
}
