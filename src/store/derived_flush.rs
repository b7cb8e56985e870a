//! The `flush-cq` thread: writes what dispatch left in memory, and the checkpoint that says how far everything is.
//!
//! Every interval the tails of the queues are written; thoroughly (synced, with the index) at the latest after five seconds
//! or 256 MiB of log. The checkpoint names only what was dispatched before a thorough flush began that has ended well, so a
//! crash loses tails but no knowledge of which; the index has its own place in it, which stays behind while the index cannot be
//! written. The last flush of an orderly stop also notes what the queues hold. On a full disk it waits, with all it has in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::checkpoint::{Checkpoint, Positions};
use super::commit_log::CommitLog;
use super::consume_queue_table::ConsumeQueueTable;
use super::disk::DiskGuard;
use super::dispatch::{DispatchService, Dispatcher};
use super::error::StoreError;
use super::flush::Flusher;
use super::index::Index;
use super::mend::mend;
use super::signal::Signal;

/// Longest time between two thorough flushes while messages come.
const THOROUGH_INTERVAL: Duration = Duration::from_secs(5);
/// Most bytes of log between them.
const THOROUGH_BYTES: i64 = 256 << 20;

/// What is flushed, and what says how far it is.
pub(super) struct Parts {
    /// The log's disk, which others need too.
    pub(super) guard: Arc<DiskGuard>,
    /// The log.
    pub(super) log: Arc<CommitLog>,
    /// Knows the store time of what is on disk.
    pub(super) flusher: Arc<Flusher>,
    /// Knows what has been dispatched.
    pub(super) dispatch: Arc<DispatchService>,
    /// Knows what a record's unit is.
    pub(super) dispatcher: Arc<Dispatcher>,
    /// Consume queues.
    pub(super) queues: Arc<ConsumeQueueTable>,
    /// Key index.
    pub(super) index: Option<Arc<Index>>,
    /// Where it is written down.
    pub(super) checkpoint: Checkpoint,
    /// Told of a sync that failed: what was dirty may count as clean and yet not be on disk.
    pub(super) sync_failed: Box<dyn Fn(&str) + Send + Sync>,
}

/// The thread's shared side.
pub(super) struct DerivedFlusher {
    parts: Parts,
    interval: Duration,
    state: Mutex<State>,
    /// The queues are on disk for all records before this; -1 before the first thorough flush.
    durable: AtomicI64,
    signal: Signal,
    stopping: AtomicBool,
}

struct State {
    /// What the checkpoint says of derived files.
    positions: Positions,
    /// The last record that recovery dispatched.
    last_record: (i64, i64),
    /// When the last thorough flush began, and what had been dispatched then; -1 before the first.
    thorough_at: Instant,
    thorough_offset: i64,
    failing: bool,
}

impl DerivedFlusher {
    /// A flusher that begins with what recovery found: what the checkpoint says, and the last record (start and store time),
    /// which is dispatched but perhaps not on disk in its queue.
    pub(super) fn new(parts: Parts, positions: Positions, last_record: (i64, i64), interval: Duration) -> Arc<Self> {
        let state = State { positions, last_record, thorough_at: Instant::now(), thorough_offset: -1, failing: false };
        Arc::new(Self {
            parts,
            interval,
            state: Mutex::new(state),
            durable: AtomicI64::new(-1),
            signal: Signal::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Whether the queues are on disk for all records before `end`, which may go from the log then: without its units a queue
    /// would give its numbers out again. Makes them so if need be.
    pub(super) fn covers(&self, end: i64) -> bool {
        let covers = || self.durable.load(Ordering::Acquire) >= end;
        covers() || (self.parts.dispatch.dispatched_offset() >= end && self.flush_for(false, true) && covers())
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.signal.wake();
    }

    /// Body of the `flush-cq` thread.
    pub(super) fn run(&self) {
        let stopping = || self.stopping.load(Ordering::Acquire);
        while !stopping() {
            self.signal.sleep_unless(Some(self.interval), stopping);
            self.mend_queues();
            self.flush(false);
        }
    }

    /// Units that readers found damaged are made anew from the log.
    fn mend_queues(&self) {
        let Parts { log, dispatcher, queues, .. } = &self.parts;
        for (queue, offset) in queues.take_damage() {
            if let Err(error) = mend(&**log, dispatcher, &queue, offset) {
                log::warn!("damaged unit not mended: topic={} queueId={} queueOffset={offset} {error}", queue.topic(), queue.queue_id());
            }
        }
    }

    /// Flushes what is due; with `last` everything. Returns whether it worked.
    pub(super) fn flush(&self, last: bool) -> bool {
        self.flush_for(last, false)
    }

    /// `to_make_room`: thoroughly, so that files of the log can go, which is worth the last bytes of a disk.
    fn flush_for(&self, last: bool, to_make_room: bool) -> bool {
        let mut state = self.state.lock();
        let result = self.flush_locked(&mut state, last, to_make_room);
        let failing = result.is_err();
        if let Err(error @ StoreError::Io("sync", ..)) = &result {
            (self.parts.sync_failed)(&error.to_string());
        }
        match result {
            Err(error) if !state.failing => log::error!("derived files cannot be flushed, messages are not affected: {error}"),
            Ok(()) if state.failing => log::info!("derived files are flushed again"),
            _ => {}
        }
        state.failing = failing;
        !failing
    }

    fn flush_locked(&self, state: &mut State, last: bool, to_make_room: bool) -> Result<(), StoreError> {
        let Parts { guard, dispatch, queues, index, checkpoint, .. } = &self.parts;
        let dispatched = dispatch.dispatched_offset();
        let behind = dispatched - state.thorough_offset;
        let due = behind > 0 && (state.thorough_at.elapsed() >= THOROUGH_INTERVAL || behind >= THOROUGH_BYTES);
        let thorough = last || to_make_room || due;
        if !to_make_room {
            guard.check_floor()?;
        }
        let mut index_outcome = Ok(());
        if thorough {
            state.thorough_at = Instant::now();
            let (offset, store_timestamp) = dispatch.last_record().unwrap_or(state.last_record);
            queues.flush(true).inspect_err(|_| self.begin_anew(state))?;
            self.durable.store(dispatched, Ordering::Release);
            state.thorough_offset = dispatched;
            let positions = &mut state.positions;
            (positions.logics_offset, positions.logics_timestamp) = (offset, store_timestamp);
            positions.queues_digest = if last { queues.digest() } else { 0 };
            if let Some(index) = index {
                index_outcome = note_index(positions, index, dispatched);
            }
        } else {
            if queues.dirty_bytes() > 0 {
                queues.flush(false)?;
            }
            if let Some(index) = index {
                index_outcome = index.write_out();
            }
        }
        self.note_log(&mut state.positions);
        checkpoint.write(state.positions, thorough).and(index_outcome)
    }

    /// When queues have lost files the next start must dispatch the whole log.
    fn begin_anew(&self, state: &mut State) {
        if !self.parts.queues.has_lost_files() {
            return;
        }
        (state.positions.logics_offset, state.positions.logics_timestamp) = (0, 0);
        if let Err(error) = self.parts.checkpoint.write(state.positions, true) {
            log::error!("queues may stay incomplete after the next start: {error}");
        }
    }

    /// Only what is on disk by now.
    fn note_log(&self, positions: &mut Positions) {
        let timestamp = self.parts.flusher.flushed_timestamp();
        if timestamp > 0 {
            positions.physic_timestamp = timestamp;
        }
        positions.flushed_offset = Some(self.parts.log.flushed_offset());
    }
}

/// Flushes the index; what it then has on disk of the records before `dispatched` goes into the checkpoint with it.
fn note_index(positions: &mut Positions, index: &Index, dispatched: i64) -> Result<(), StoreError> {
    let (_, last) = index.last();
    index.flush()?;
    positions.index_timestamp = positions.index_timestamp.max(index.final_until(dispatched));
    positions.index_offset = dispatched;
    if last < dispatched {
        positions.index_last = last; // else of a record to come: what the field says already is still there
    }
    Ok(())
}
