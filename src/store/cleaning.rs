//! Deletes what has expired, and on a full disk what has not.
//!
//! - By age at the hours of `deleteWhen`, and whenever the disk asks for it; never the last file, and never what has not
//!   been flushed and dispatched.
//! - What was dispatched of a file is on disk in queues and index before the file goes, but where the disk is full.
//! - Unexpired files go only below the reserve or above a ratio that is set (and not at all with
//!   `cleanFileForciblyEnable=false`), and only as many as it takes.
//! - Off the write path: the appender meets nothing of this but a list that lost its first file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::runtime::clock::Clock;

use super::allocate::Allocator;
use super::commit_log::CommitLog;
use super::config::StoreConfig;
use super::consume_queue_table::ConsumeQueueTable;
use super::deleted_topics::DeletedTopics;
use super::derived_flush::DerivedFlusher;
use super::disk::DiskGuard;
use super::dispatch::DispatchService;
use super::fs::Fs;
use super::index::Index;
use super::mapped_file::MappedFile;
use super::signal::Signal;

/// Pause between two deletions: removing a file of a gigabyte keeps the file system busy for a moment.
const PAUSE: Duration = Duration::from_millis(100);
const MS_PER_HOUR: i64 = 3_600_000;

/// The `clean` thread's shared side.
pub(super) struct Cleaner {
    rules: Rules,
    log: Arc<CommitLog>,
    fs: Arc<dyn Fs>,
    guard: Arc<DiskGuard>,
    allocator: Arc<Allocator>,
    queues: Arc<ConsumeQueueTable>,
    index: Option<Arc<Index>>,
    deleted: Arc<DeletedTopics>,
    clock: Clock,
    dispatch: Arc<DispatchService>,
    derived: Arc<DerivedFlusher>,
    one: Mutex<()>,
    /// Of this folder a file was removed, and it was not synced since.
    unsynced: Mutex<Option<PathBuf>>,
    signal: Signal,
    stopping: AtomicBool,
}

/// What is configured.
struct Rules {
    reserved_ms: i64,
    hours: Vec<u8>,
    batch_max: usize,
    interval: Duration,
    forcibly: bool,
}

/// What the cleaner works on.
pub(super) struct Parts {
    /// The log.
    pub(super) log: Arc<CommitLog>,
    /// File system.
    pub(super) fs: Arc<dyn Fs>,
    /// The log's disk.
    pub(super) guard: Arc<DiskGuard>,
    /// Ends a refusal.
    pub(super) allocator: Arc<Allocator>,
    /// Follow the log's min offset.
    pub(super) queues: Arc<ConsumeQueueTable>,
    /// Follows it too.
    pub(super) index: Option<Arc<Index>>,
    /// And this.
    pub(super) deleted: Arc<DeletedTopics>,
    /// Knows what was dispatched.
    pub(super) dispatch: Arc<DispatchService>,
    /// Knows what of that is on disk.
    pub(super) derived: Arc<DerivedFlusher>,
}

impl Cleaner {
    /// A cleaner; the thread runs [`Cleaner::run`].
    pub(super) fn new(config: &StoreConfig, parts: Parts, clock: Clock) -> Arc<Self> {
        let hours = i64::try_from(config.file_reserved_hours).unwrap_or(i64::MAX);
        let rules = Rules {
            reserved_ms: hours.saturating_mul(MS_PER_HOUR),
            hours: config.delete_when_hours.clone(),
            batch_max: config.delete_file_batch_max.max(1),
            interval: Duration::from_millis(config.clean_interval_ms.max(1)),
            forcibly: config.clean_file_forcibly,
        };
        let Parts { log, fs, guard, allocator, queues, index, deleted, dispatch, derived } = parts;
        Arc::new(Self {
            rules,
            log,
            fs,
            guard,
            allocator,
            queues,
            index,
            deleted,
            clock,
            dispatch,
            derived,
            one: Mutex::default(),
            unsynced: Mutex::default(),
            signal: Signal::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.signal.wake();
    }

    /// Body of the `clean` thread: a look at the disk per interval.
    pub(super) fn run(&self) {
        let stopping = || self.stopping.load(Ordering::Acquire);
        while !stopping() {
            self.signal.sleep_unless(Some(self.rules.interval), stopping);
            if stopping() {
                return;
            }
            if !self.guard.check() {
                self.allocator.wake();
            }
            self.clean(false);
        }
    }

    /// Deletes what is due; with `manual` whatever the hour and without a limit. Returns how many files went.
    pub(super) fn clean(&self, manual: bool) -> usize {
        let _one = self.one.lock();
        let limit = if manual { usize::MAX } else { self.rules.batch_max };
        let mut deleted = 0;
        while deleted < limit && !self.stopping.load(Ordering::Acquire) {
            let Some(why) = self.due(manual) else { break };
            let limit = self.dispatch.dispatched_offset().min(self.log.flushed_offset());
            let Some(file) = self.log.files().removable(limit) else { break };
            if !self.derived.is_durable_to(file.end()) && matches!(why, Reason::Expired) {
                break; // later; without space there is no later
            }
            // one after the other, durably: a file that stays, or comes back, must not lie in front of a hole
            if !self.sync_removals() || !self.delete(&file, &why) {
                break;
            }
            self.log.files().remove_first(limit);
            self.follow();
            deleted += 1;
            if !manual {
                self.signal.sleep_unless(Some(PAUSE), || self.stopping.load(Ordering::Acquire));
            }
        }
        deleted
    }

    /// Makes the last removal durable; whether it is.
    fn sync_removals(&self) -> bool {
        let mut unsynced = self.unsynced.lock();
        if let Some(folder) = &*unsynced
            && let Err(error) = self.fs.sync_dir(folder)
        {
            log::warn!("folder not synced, no file is deleted: path={} error={error}", folder.display());
            return false;
        }
        *unsynced = None;
        true
    }

    /// Lets everything else follow the log's min offset.
    fn follow(&self) {
        let min = self.log.min_offset();
        self.sync_removals();
        self.queues.clean(min);
        if let Some(index) = &self.index {
            index.clean(min);
        }
        self.deleted.clean(min);
    }

    /// Why the first file is to go now, if it is.
    fn due(&self, manual: bool) -> Option<Reason> {
        let pressure = self.guard.pressure();
        let now = self.clock.now_ms();
        let first = self.log.files().first()?;
        let expired = first.file().modified_ms().is_ok_and(|modified| now.saturating_sub(modified) >= self.rules.reserved_ms);
        let is_time = manual || pressure.expired || self.rules.hours.contains(&local_hour(now));
        match pressure.any.filter(|_| self.rules.forcibly) {
            _ if expired && is_time => Some(Reason::Expired),
            why => why.map(Reason::Forced),
        }
    }

    /// Whether the file has gone.
    fn delete(&self, file: &MappedFile, why: &Reason) -> bool {
        let (path, from, to) = (file.path().display(), file.start(), file.end());
        let removed = match self.fs.remove_file(file.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        let gone = removed.is_ok();
        if gone {
            *self.unsynced.lock() = Some(file.folder().to_owned());
        }
        match (removed, why) {
            (Ok(()), Reason::Expired) => log::info!("commit log file deleted: path={path} from={from} to={to} reason=expired"),
            (Ok(()), Reason::Forced(why)) => log::warn!(
                "commit log file with unexpired messages deleted, they are lost: path={path} from={from} to={to} reason={why} \
                 (cleanFileForciblyEnable=true)"
            ),
            (Err(error), why) => {
                log::warn!("commit log file not deleted: path={path} from={from} to={to} reason={} error={error}", why.text());
            }
        }
        gone
    }
}

/// Why a file goes.
enum Reason {
    /// Its messages are older than `fileReservedTime`.
    Expired,
    /// They are not: what the disk lacks.
    Forced(String),
}

impl Reason {
    fn text(&self) -> &str {
        match self {
            Self::Expired => "expired",
            Self::Forced(why) => why,
        }
    }
}

/// Hour of the day where the machine is.
fn local_hour(now_ms: i64) -> u8 {
    let zone = jiff::tz::TimeZone::system();
    jiff::Timestamp::from_millisecond(now_ms).map_or(0, |now| now.to_zoned(zone).hour() as u8)
}
