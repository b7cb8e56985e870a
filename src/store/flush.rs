//! Group commit: one thread makes the log durable for all that wait.
//!
//! SYNC_FLUSH: as long as something is appended and not flushed, fdatasync, publish, wake who is covered. Appends that arrive
//! during one fdatasync share the next. ASYNC_FLUSH: the same, an interval after the first unflushed append.
//! - `flushed` only rises, after fdatasync of every file up to it (and of the folder, when a file is new).
//! - A failed fdatasync is final: nothing is retried, the latch refuses appends, all who wait are told.
//! - A wish or a callback registered while `flushed` moves is seen by one of the two sides, never by neither.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::commit_log::CommitLog;
use super::fs::Fs;
use super::latch::Latch;
use super::signal::Signal;

/// Outcome of waiting for durability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk.
    Durable,
    /// Not within `syncFlushTimeout`: stored, code 10.
    TimedOut,
    /// The sync failed: code 1 with this text (path and errno).
    Failed(String),
}

type OnFailed = Box<dyn Fn(&str) + Send + Sync>;
type Done = Box<dyn FnOnce(Durability) + Send>;

/// No wish.
const NEVER: i64 = i64::MAX;

/// The flush thread's shared side.
pub(super) struct Flusher {
    log: Arc<CommitLog>,
    fs: Arc<dyn Fs>,
    latch: Arc<Latch>,
    interval: Duration,
    timeout: Duration,
    work: Signal,
    late: Signal,
    late_armed: AtomicBool,
    pause: Signal,
    stopping: AtomicBool,
    failed: AtomicBool,
    failure: OnceLock<String>,
    syncs: AtomicU64,
    flushed_timestamp: AtomicI64,
    watches: RwLock<Vec<Arc<Watch>>>,
    waiting: Mutex<VecDeque<Waiting>>,
    on_flushed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    on_failed: OnceLock<OnFailed>,
}

/// A callback and what it waits for.
struct Waiting {
    end: i64,
    deadline: Instant,
    done: Done,
}

/// One thread's wish.
struct Watch {
    wish: AtomicI64,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// A thread's wish to be woken when a physical offset has become durable.
pub struct FlushWatch {
    flusher: Arc<Flusher>,
    watch: Arc<Watch>,
}

impl FlushWatch {
    /// Wakes (once) when the flushed offset reaches `end`, or at once when it has; the smallest wish counts.
    /// Also wakes when a sync failed.
    pub fn wait_for(&self, end: i64) {
        self.watch.wish.fetch_min(end, Ordering::SeqCst);
        fence(Ordering::SeqCst); // pairs with the one in `release`: one of the two sides sees the other
        let reached = if self.flusher.failed.load(Ordering::SeqCst) { NEVER } else { self.flusher.log.flushed_offset() };
        self.watch.wake_if_due(reached);
    }
}

impl Drop for FlushWatch {
    fn drop(&mut self) {
        self.flusher.watches.write().retain(|watch| !Arc::ptr_eq(watch, &self.watch));
    }
}

impl Watch {
    fn wake_if_due(&self, reached: i64) {
        let due = |wish: i64| (wish != NEVER && wish <= reached).then_some(NEVER);
        if self.wish.fetch_update(Ordering::SeqCst, Ordering::SeqCst, due).is_ok() {
            (self.wake)();
        }
    }
}

impl Flusher {
    /// A flusher of `log`; the threads run [`Flusher::run`] and [`Flusher::run_late`]. With ASYNC_FLUSH the log is flushed
    /// `interval` after the first append.
    pub(super) fn new(log: Arc<CommitLog>, fs: Arc<dyn Fs>, latch: Arc<Latch>, interval: Duration, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            flushed_timestamp: AtomicI64::new(log.last_store_timestamp()),
            log,
            fs,
            latch,
            interval,
            timeout,
            work: Signal::default(),
            late: Signal::default(),
            late_armed: AtomicBool::new(false),
            pause: Signal::default(),
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: OnceLock::new(),
            syncs: AtomicU64::new(0),
            watches: RwLock::default(),
            waiting: Mutex::default(),
            on_flushed: OnceLock::new(),
            on_failed: OnceLock::new(),
        })
    }

    /// Calls `then` after every flush. Once, before the threads start.
    pub(super) fn on_flushed(&self, then: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_flushed.set(Box::new(then)); // a second call changes nothing
    }

    /// Calls `then` with the reason when a sync has failed. Once, before the threads start.
    pub(super) fn on_failed(&self, then: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.on_failed.set(Box::new(then)); // a second call changes nothing
    }

    /// Something was appended.
    pub(super) fn wake(&self) {
        self.work.wake();
    }

    /// The reason of the sync that failed.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// fdatasync calls so far.
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Store time of a record at or before the last one flushed.
    pub(super) fn flushed_timestamp(&self) -> i64 {
        self.flushed_timestamp.load(Ordering::Acquire)
    }

    /// Registers a thread that parks replies until they are durable.
    pub(super) fn watch(self: &Arc<Self>, wake: impl Fn() + Send + Sync + 'static) -> FlushWatch {
        let watch = Arc::new(Watch { wish: AtomicI64::new(NEVER), wake: Box::new(wake) });
        self.watches.write().push(Arc::clone(&watch));
        FlushWatch { flusher: Arc::clone(self), watch }
    }

    /// Calls `done` once: at once when `end` is durable by the configured rule (ASYNC_FLUSH: always) or can no longer become
    /// so, else from the flush thread, or when the time is over.
    pub(super) fn when_durable(&self, end: i64, done: Done) {
        let mut waiting = self.waiting.lock();
        let now = if !self.log.is_sync_flush() || self.log.flushed_offset() >= end {
            Durability::Durable
        } else if let Some(why) = self.failure() {
            Durability::Failed(why.to_owned())
        } else {
            waiting.push_back(Waiting { end, deadline: Instant::now() + self.timeout, done });
            let arm = !self.late_armed.swap(true, Ordering::AcqRel);
            drop(waiting);
            if arm {
                self.late.wake();
            }
            return;
        };
        drop(waiting);
        done(now);
    }

    /// Body of the flush thread.
    pub(super) fn run(&self) {
        loop {
            let unflushed = || self.log.max_offset() > self.log.flushed_offset() && self.failure().is_none();
            let stopping = || self.stopping.load(Ordering::Acquire);
            if unflushed() {
                if !self.log.is_sync_flush() {
                    self.pause.sleep_unless(Some(self.interval), stopping);
                }
                self.flush();
            } else if stopping() {
                return;
            } else {
                self.work.sleep_unless(None, || unflushed() || stopping());
            }
        }
    }

    /// Body of the thread that reports what was not flushed in time: a hanging disk holds the flush thread itself.
    pub(super) fn run_late(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let now = Instant::now();
            for late in self.take(|waiting| waiting.deadline <= now) {
                (late.done)(Durability::TimedOut);
            }
            let next = self.next_deadline();
            let is_new = || next.is_none() && self.late_armed.load(Ordering::Acquire);
            self.late.sleep_unless(next, || self.stopping.load(Ordering::Acquire) || is_new());
        }
    }

    /// Asks the threads to end; the flush thread flushes what there is first.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.work.wake();
        self.pause.wake();
        self.late.wake();
    }

    /// After the threads have ended: tells those who still wait.
    pub(super) fn abandon(&self) {
        for left in self.take(|_| true) {
            (left.done)(Durability::TimedOut);
        }
    }

    /// Time until the oldest callback is late. Nobody waits: disarmed, so that the next callback wakes the thread; while it
    /// sleeps towards a deadline nobody has to.
    fn next_deadline(&self) -> Option<Duration> {
        let waiting = self.waiting.lock();
        let first = waiting.front().map(|waiting| waiting.deadline.saturating_duration_since(Instant::now()));
        self.late_armed.store(first.is_some(), Ordering::Release);
        first
    }

    /// Makes everything appended before the call durable.
    fn flush(&self) {
        let timestamp = self.log.last_store_timestamp(); // before the offset: belongs to a record at or before it
        let target = self.log.max_offset();
        for file in self.log.files().between(self.log.flushed_offset(), target) {
            if let Err(error) = file.make_durable(&*self.fs) {
                return self.fail(error.to_string());
            }
            self.syncs.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = file.sync() {
                return self.fail(sync_failed(&error, &file));
            }
            if file.file().is_linked().is_ok_and(|linked| !linked) {
                return self.fail(format!("{} was removed while the broker writes to it", file.path().display()));
            }
        }
        if self.failure().is_some() {
            return; // someone else's sync has failed meanwhile, or before an interval that was waited for
        }
        self.log.set_flushed(target);
        self.flushed_timestamp.store(timestamp, Ordering::Release);
        self.release(target);
    }

    /// A write-back failed somewhere in the log: the system reports that once, so it counts as a failed sync.
    pub(super) fn fail(&self, why: String) {
        self.log.distrust();
        self.latch.set(why.clone());
        let why = self.failure.get_or_init(|| why);
        self.failed.store(true, Ordering::SeqCst);
        for watch in self.watches.read().iter() {
            watch.wake_if_due(NEVER);
        }
        for waiting in self.take(|_| true) {
            (waiting.done)(Durability::Failed(why.clone()));
        }
        if let Some(then) = self.on_failed.get() {
            then(why);
        }
    }

    fn release(&self, flushed: i64) {
        fence(Ordering::SeqCst);
        for watch in self.watches.read().iter() {
            watch.wake_if_due(flushed);
        }
        for waiting in self.take(|waiting| waiting.end <= flushed) {
            (waiting.done)(Durability::Durable);
        }
        if let Some(then) = self.on_flushed.get() {
            then();
        }
    }

    /// Takes the callbacks that are due, in the order of registration.
    fn take(&self, due: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(&due) {
            return Vec::new();
        }
        let (taken, left): (Vec<_>, VecDeque<_>) = {
            let (mut taken, mut left) = (Vec::new(), VecDeque::new());
            for entry in waiting.drain(..) {
                if due(&entry) { taken.push(entry) } else { left.push_back(entry) }
            }
            (taken, left)
        };
        *waiting = left;
        taken
    }
}

/// What everybody is told of a failed fdatasync.
pub(super) fn sync_failed(error: &io::Error, file: &super::mapped_file::MappedFile) -> String {
    format!("fdatasync of {} failed: {error}", file.path().display())
}
