//! Deletes what has expired, and on a full disk what has not.
//!
//! - By age at the hours of `deleteWhen`, and whenever the disk asks for it; never the last file, and never what has not
//!   been flushed, or what is not on disk in its queues (a queue that lost its last units would give their numbers out again).
//! - Unexpired files go only below the reserve or above a ratio that is set (and not at all with
//!   `cleanFileForciblyEnable=false`), and only as many as it takes.
//! - A file leaves the disk first and the list of files then: what cannot be deleted stays readable, and holds up the others.
//! - Off the write path: the appender meets nothing of this but a list that lost its first file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::runtime::clock::Clock;

use super::allocate::Allocator;
use super::commit_log::CommitLog;
use super::config::StoreConfig;
use super::consume_queue_table::ConsumeQueueTable;
use super::deleted_topics::DeletedTopics;
use super::derived_flush::DerivedFlusher;
use super::disk::DiskGuard;
use super::fs::Fs;
use super::index::Index;
use super::mapped_file::MappedFile;
use super::signal::Signal;

const MS_PER_HOUR: i64 = 3_600_000;

/// Messages of a queue that went with the log's first files: offsets `from..to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedMessages {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// Min offset before.
    pub from: i64,
    /// Min offset now.
    pub to: i64,
}

/// Told by the `clean` thread which messages are gone.
pub trait DeletionListener: Send + Sync {
    /// Files were deleted, and with them these messages.
    fn deleted(&self, messages: &[DeletedMessages]);
}

/// The `clean` thread's shared side.
pub(super) struct Cleaner {
    rules: Rules,
    parts: Parts,
    clock: Clock,
    listener: OnceLock<Arc<dyn DeletionListener>>,
    /// Held by the one who deletes. When a file could not be deleted, and of that it was said.
    hanged: Mutex<Option<Instant>>,
    /// Folders from which files were removed, and which were not synced since.
    unsynced: Mutex<BTreeSet<PathBuf>>,
    /// Starts of files that somebody else removed, of which that was said.
    removed: Mutex<BTreeSet<i64>>,
    signal: Signal,
    stopping: AtomicBool,
}

/// What is configured.
struct Rules {
    reserved_ms: i64,
    hours: Vec<u8>,
    batch_max: usize,
    interval: Duration,
    /// Between two deletions: removing a file of a gigabyte keeps the file system busy for a moment.
    pause: Duration,
    redelete: Duration,
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
    /// Knows what is on disk in the queues.
    pub(super) derived: Arc<DerivedFlusher>,
}

/// What a round deleted.
#[derive(Default)]
struct Round {
    files: usize,
    bytes: u64,
    messages: Vec<DeletedMessages>,
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
            pause: Duration::from_millis(config.delete_files_interval_ms),
            redelete: Duration::from_millis(config.redelete_interval_ms),
            forcibly: config.clean_file_forcibly,
        };
        Arc::new(Self {
            rules,
            parts,
            clock,
            listener: OnceLock::new(),
            hanged: Mutex::default(),
            unsynced: Mutex::default(),
            removed: Mutex::default(),
            signal: Signal::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// From now on `listener` is told of deletions. Once.
    pub(super) fn report_to(&self, listener: Arc<dyn DeletionListener>) {
        let _ = self.listener.set(listener); // a second call changes nothing
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.signal.wake();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Body of the `clean` thread: a look at the disk per interval.
    pub(super) fn run(&self) {
        while !self.is_stopping() {
            self.signal.sleep_unless(Some(self.rules.interval), || self.is_stopping());
            if self.is_stopping() {
                return;
            }
            if !self.parts.guard.check() {
                self.parts.allocator.wake();
            }
            self.clean(false);
            self.look_for_removed();
        }
    }

    /// Files that are no longer in their folder although nobody deleted them here.
    fn look_for_removed(&self) {
        let log = &self.parts.log;
        let mut told = self.removed.lock();
        for file in log.files().between(log.min_offset(), i64::MAX) {
            if file.file().is_linked().is_ok_and(|linked| !linked) && told.insert(file.start()) {
                log::error!(
                    "commit log file was removed by somebody, its messages are served until the broker stops and then gone: path={}",
                    file.path().display()
                );
            }
        }
    }

    /// Deletes what is due; with `manual` whatever the hour and without a limit. Returns how many files went.
    pub(super) fn clean(&self, manual: bool) -> usize {
        let mut hanged = self.hanged.lock();
        if !manual && hanged.is_some_and(|at| at.elapsed() < self.rules.redelete) {
            return 0;
        }
        let limit = if manual { usize::MAX } else { self.rules.batch_max };
        let (mut rounds, mut deleted): ([Round; 2], usize) = Default::default();
        let mut forced_by = String::new();
        while deleted < limit && !self.is_stopping() {
            let Some((file, why)) = self.due(manual) else { break };
            // one after the other, durably: a file that comes back with a crash must not lie in front of a hole
            *hanged = (!self.sync_removals() || !self.delete(&file, &why)).then(Instant::now);
            if hanged.is_some() {
                break;
            }
            let round = &mut rounds[usize::from(matches!(why, Reason::Forced(_)))];
            if let Reason::Forced(why) = why {
                forced_by = why;
            }
            round.files += 1;
            round.bytes += file.size() as u64;
            round.messages.append(&mut self.follow());
            deleted += 1;
            if !manual {
                self.signal.sleep_unless(Some(self.rules.pause), || self.is_stopping());
            }
        }
        let [expired, forced] = rounds;
        self.report(expired, None);
        self.report(forced, Some(&forced_by));
        deleted
    }

    /// Makes the removals so far durable; whether they are.
    fn sync_removals(&self) -> bool {
        let mut folders = self.unsynced.lock();
        while let Some(folder) = folders.first() {
            if let Err(error) = self.parts.fs.sync_dir(folder) {
                log::warn!("folder not synced, no file is deleted: path={} error={error}", folder.display());
                return false;
            }
            folders.pop_first();
        }
        true
    }

    /// Lets everything else follow the log's min offset; which messages went.
    fn follow(&self) -> Vec<DeletedMessages> {
        let Parts { log, queues, index, deleted, .. } = &self.parts;
        let min = log.min_offset();
        self.sync_removals();
        let gone = queues.clean(min);
        if let Some(index) = index {
            index.clean(min);
        }
        deleted.clean(min);
        gone
    }

    /// The first file and why it is to go now, if it is and may.
    fn due(&self, manual: bool) -> Option<(Arc<MappedFile>, Reason)> {
        let Parts { log, guard, derived, .. } = &self.parts;
        let pressure = guard.pressure(log.max_offset() - log.min_offset());
        let now = self.clock.now_ms();
        let first = log.files().first()?;
        let expired = first.file().modified_ms().is_ok_and(|modified| now.saturating_sub(modified) >= self.rules.reserved_ms);
        let is_time = manual || pressure.expired || self.rules.hours.contains(&local_hour(now));
        let why = match pressure.any.filter(|_| self.rules.forcibly) {
            _ if expired && is_time => Reason::Expired,
            why => Reason::Forced(why?),
        };
        let may_go = log.files().is_followed(first.start()) && first.end() <= log.flushed_offset();
        (may_go && derived.covers(first.end())).then_some((first, why))
    }

    /// Deletes the first file; whether it is gone.
    fn delete(&self, file: &MappedFile, why: &Reason) -> bool {
        let Parts { log, fs, .. } = &self.parts;
        let (path, from, to) = (file.path().display(), file.start(), file.end());
        match fs.remove_file(file.path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let again = self.rules.redelete.as_millis();
                log::warn!(
                    "commit log file not deleted, tried again in redeleteHangedFileInterval={again} ms: path={path} from={from} to={to} \
                     reason={} error={error}",
                    why.text()
                );
                false
            }
            _ => {
                self.unsynced.lock().insert(file.folder().to_owned());
                log.files().remove_first(to);
                log::debug!("commit log file deleted: path={path} from={from} to={to} reason={}", why.text());
                true
            }
        }
    }

    fn report(&self, round: Round, forced_by: Option<&str>) {
        let Round { files, bytes, messages } = round;
        if files == 0 {
            return;
        }
        let min = self.parts.log.min_offset();
        match forced_by {
            None => log::info!("files deleted: count={files} bytes={bytes} reason=expired min_offset={min}"),
            Some(why) => log::warn!(
                "files deleted: count={files} bytes={bytes} reason=disk min_offset={min}: their messages had not expired, but {why} \
                 (cleanFileForciblyEnable=true)"
            ),
        }
        if let Some(listener) = self.listener.get().filter(|_| !messages.is_empty()) {
            listener.deleted(&messages);
        }
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
