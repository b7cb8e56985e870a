//! One consume queue: 20-byte units that point into the commit log (Java's `ConsumeQueue`).
//!
//! Units lie in files `consumequeue/<topic>/<queueId>/<20 digits>` of equal nominal length, sparse, and behind them in a
//! tail in memory that a flush writes out.
//! - Queue offset q is unit q: a position is never shifted. An offset without a record holds a filler.
//! - One thread puts (the dispatcher, or recovery before it). Any thread reads, at any time; a reader waits for at most a copy of
//!   memory. Flush, truncation, cleaning and deletion exclude each other by the table's maintenance lock, which comes
//!   before a queue's state lock.
//! - `max_offset` is published after the unit can be read.
//! - A queue at rest costs this struct: no mapping, no descriptor, no buffer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::error::StoreError;
use super::file_cache::{FileCache, failed};
use super::format::cq_unit::CQ_UNIT_SIZE;
pub(super) use super::format::cq_unit::CqUnit;
use super::fs::{Fs, FsFile, zero};

mod recovery;

pub(super) use recovery::Repair;
use recovery::{Recovered, recover_folder};

/// [`CQ_UNIT_SIZE`] for arithmetic on offsets.
const UNIT: i64 = CQ_UNIT_SIZE as i64;
/// Units that one read of a file brings: a buffer on the stack.
const READ_UNITS: i64 = 400;
/// Units of a usual pull: a buffer that is cheaper to clear.
const FEW_UNITS: i64 = 32;
/// Fillers that may lie in memory: longer gaps are written out on the way.
const FILLERS_IN_MEMORY: i64 = 4_096;
/// Most fillers in front of one unit (200 MB): a wider gap is a damaged queue offset.
pub(super) const MAX_GAP: i64 = 10_000_000;
type Guard<'a> = MutexGuard<'a, State>;

/// Damaged units that are remembered: others are found again.
const MAX_DAMAGE: usize = 1_000;
/// No physical offset.
const NONE: i64 = -1;

/// What all queues of a store share.
pub(super) struct QueueFiles {
    pub(super) fs: Arc<dyn Fs>,
    /// `<root>/consumequeue`.
    pub(super) root: PathBuf,
    /// Units of a file.
    pub(super) units_per_file: i64,
    pub(super) cache: FileCache,
    pub(super) dirty: Mutex<Vec<Arc<ConsumeQueue>>>,
    pub(super) dirty_bytes: AtomicUsize,
    pub(super) maintenance: Mutex<Maintenance>,
    /// A file was found to be in no folder any more.
    pub(super) lost: AtomicBool,
    pub(super) damage: Mutex<Damage>,
    next_key: AtomicU64,
}

/// Units that readers found damaged.
#[derive(Default)]
pub(super) struct Damage {
    /// To be mended.
    pub(super) found: Vec<(Arc<ConsumeQueue>, i64)>,
    /// Cannot be mended: by queue key and offset.
    stays: HashSet<(u64, i64)>,
}

/// State of the one who writes, removes or syncs files; its lock makes him the only one.
#[derive(Default)]
pub(super) struct Maintenance {
    /// Written since they were last synced: by queue key and first unit.
    pub(super) unsynced: HashMap<(u64, i64), Arc<ConsumeQueue>>,
    /// Folders with new entries.
    pub(super) changed_folders: BTreeSet<PathBuf>,
    /// Their last sync failed: what they hold may be forgotten, though it can still be read.
    pub(super) unsure: HashMap<(u64, i64), Arc<ConsumeQueue>>,
    buffer: Vec<u8>,
}

impl QueueFiles {
    pub(super) fn new(fs: Arc<dyn Fs>, root: PathBuf, file_size: usize, descriptors: usize) -> Arc<Self> {
        Arc::new(Self {
            fs,
            root,
            units_per_file: file_size.div_ceil(CQ_UNIT_SIZE).max(1) as i64,
            cache: FileCache::new(descriptors),
            dirty: Mutex::default(),
            dirty_bytes: AtomicUsize::new(0),
            maintenance: Mutex::default(),
            lost: AtomicBool::new(false),
            damage: Mutex::default(),
            next_key: AtomicU64::new(1),
        })
    }

    /// Nominal length of a file.
    pub(super) fn file_size(&self) -> u64 {
        (self.units_per_file * UNIT) as u64
    }

    /// First unit of the file that holds unit `offset`.
    fn file_of(&self, offset: i64) -> i64 {
        offset - offset % self.units_per_file
    }
}

/// A queue: units on disk, a tail of units in memory that `flush-cq` writes, and the counter of the next append.
pub struct ConsumeQueue {
    files: Arc<QueueFiles>,
    this: Weak<ConsumeQueue>,
    key: u64,
    topic: Box<str>,
    queue_id: i32,
    next_append_offset: AtomicI64,
    min_offset: AtomicI64,
    max_offset: AtomicI64,
    max_physical_offset: AtomicI64,
    deleted: AtomicBool,
    state: Mutex<State>,
}

/// A queue that was found on disk.
pub(super) struct RecoveredQueue {
    pub(super) queue: Arc<ConsumeQueue>,
    /// Physical offset from which its records must be dispatched again, when units were given up.
    pub(super) again_from: Option<i64>,
    /// Queue offset of the last unit that was given up, and its record's physical offset.
    pub(super) given_up: Option<(i64, i64)>,
    /// To be done before the queue is used.
    pub(super) repairs: Vec<Repair>,
}

struct State {
    /// First unit of the first file.
    first: i64,
    /// Units up to here are in files; the tail begins here.
    on_disk: i64,
    tail: Vec<u8>,
    /// Physical offset of the unit at the min offset, when it is known.
    min_physical: i64,
    /// The last unit that recovery found: a crash may have cut its tags code.
    suspect: i64,
    /// Units before this were lost with the files that held them; they are put again where they were.
    front: i64,
    /// In the list of dirty queues.
    listed: bool,
    /// Its topic was deleted: nothing is written any more.
    removed: bool,
}

impl State {
    /// Behind the last unit.
    fn end(&self) -> i64 {
        self.on_disk + (self.tail.len() / CQ_UNIT_SIZE) as i64
    }

    fn tail_bytes(&self, from: i64, to: i64) -> &[u8] {
        let at = |offset: i64| (offset - self.on_disk) as usize * CQ_UNIT_SIZE;
        &self.tail[at(from)..at(to)]
    }
}

impl ConsumeQueue {
    /// A queue without a file.
    pub(super) fn create(files: &Arc<QueueFiles>, topic: &str, queue_id: i32) -> Arc<Self> {
        Self::from_recovered(files, topic, queue_id, &Recovered::NOTHING)
    }

    /// The queue of an existing folder: reads its last files forward up to the first hole. What lies behind it is to be removed.
    ///
    /// # Errors
    /// A file of a wrong length or name, or the system's; with the path.
    pub(super) fn recover(files: &Arc<QueueFiles>, topic: &str, queue_id: i32) -> Result<RecoveredQueue, StoreError> {
        let folder = files.root.join(topic).join(queue_id.to_string());
        let mut recovered = recover_folder(files, &folder)?;
        let repairs = std::mem::take(&mut recovered.repairs);
        let again_from = recovered.damaged.then_some(recovered.max_physical.max(0));
        Ok(RecoveredQueue {
            queue: Self::from_recovered(files, topic, queue_id, &recovered),
            again_from,
            given_up: recovered.behind,
            repairs,
        })
    }

    fn from_recovered(files: &Arc<QueueFiles>, topic: &str, queue_id: i32, found: &Recovered) -> Arc<Self> {
        let (min_offset, min_physical) = found.first_present.unwrap_or((found.first, NONE));
        Arc::new_cyclic(|this| Self {
            files: Arc::clone(files),
            this: Weak::clone(this),
            key: files.next_key.fetch_add(1, Ordering::Relaxed),
            topic: topic.into(),
            queue_id,
            next_append_offset: AtomicI64::new(found.end),
            min_offset: AtomicI64::new(min_offset),
            max_offset: AtomicI64::new(found.end),
            max_physical_offset: AtomicI64::new(found.max_physical),
            deleted: AtomicBool::new(false),
            state: Mutex::new(State {
                first: found.first,
                on_disk: found.end,
                tail: Vec::new(),
                min_physical,
                suspect: found.end - 1,
                front: 0,
                listed: false,
                removed: false,
            }),
        })
    }

    /// Topic.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Queue id.
    pub(super) fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// Takes the next queue offset. Only under the put lock, which is what orders it.
    pub(super) fn next_append_offset(&self) -> i64 {
        self.next_append_offset.load(Ordering::Relaxed)
    }

    /// The append went into the log: the next one gets `offset`. Only under the put lock.
    pub(super) fn set_next_append_offset(&self, offset: i64) {
        self.next_append_offset.store(offset, Ordering::Relaxed);
    }

    /// Whether its topic was deleted: the next append needs another queue. Certain only under the put lock.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }

    /// Smallest readable offset.
    pub(super) fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    /// Offset behind the last unit (disk and tail).
    pub(super) fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// End of the last record that has a unit; -1 for an empty queue. Fillers do not count.
    pub(super) fn max_physical_offset(&self) -> i64 {
        self.max_physical_offset.load(Ordering::Acquire)
    }

    /// A number for what the queue holds, for [`super::consume_queue_table::ConsumeQueueTable::digest`].
    pub(super) fn digest(&self) -> i64 {
        let (max, physical) = (self.max_offset(), self.max_physical_offset());
        if max == 0 {
            return 0; // as if it were not there: it has no file
        }
        let name = self.topic.bytes().fold(i64::from(self.queue_id) + 1, |mixed, byte| mix(mixed, i64::from(byte)));
        mix(mix(mix(name, max), physical), self.state.lock().first)
    }

    /// Units of a file.
    pub(super) fn units_per_file(&self) -> i64 {
        self.files.units_per_file
    }

    // ---- put ----

    /// [`ConsumeQueue::put_behind`] with fillers.
    ///
    /// # Errors
    /// As there.
    #[cfg(test)]
    pub(super) fn put(&self, offset: i64, unit: CqUnit) -> Result<(), StoreError> {
        self.put_behind(CqUnit::FILLER, offset, unit)
    }

    /// Where units are missing in front of `offset`: the physical offset behind which their records lie, if the log still has them.
    pub(super) fn gap_before(&self, offset: i64) -> Option<i64> {
        let gap = offset > self.state.lock().end();
        gap.then(|| self.max_physical_offset().max(0))
    }

    /// Adds the unit of queue offset `offset` (idempotent; a gap is never shifted over, `missing` stands in it). Only the dispatcher and
    /// recovery.
    ///
    /// # Errors
    /// A gap that had to be read or written and could not; an offset or a unit that cannot be.
    pub(super) fn put_behind(&self, missing: CqUnit, offset: i64, unit: CqUnit) -> Result<(), StoreError> {
        if !unit.is_present() || !(0..=i64::MAX / UNIT - self.files.units_per_file).contains(&offset) {
            return Err(self.refuse(format!("no unit can be made of queueOffset={offset} {unit:?}")));
        }
        let mut missing = missing;
        let mut state = self.state.lock();
        if state.end() == state.first && self.max_physical_offset() < unit.end() {
            missing = CqUnit::FILLER; // the queue begins here
            if state.first != self.files.file_of(offset) {
                drop(state);
                self.restart_at(self.files.file_of(offset))?;
                state = self.state.lock();
            }
            self.min_offset.store(offset, Ordering::Release);
            state.min_physical = unit.physical_offset;
        } else if offset < state.first.max(state.front) {
            drop(state);
            return self.put_in_front(offset, unit);
        } else if unit.end() <= self.max_physical_offset() || offset < state.end() {
            return self.mend(state, offset, unit);
        }
        let mut state = self.fill_to(state, offset, missing)?;
        self.push(&mut state, unit);
        self.max_physical_offset.store(unit.end(), Ordering::Release);
        self.max_offset.store(state.end(), Ordering::Release);
        Ok(())
    }

    /// Numbers below `offset` have been given to records that the log no longer has: no other gets them, `missing` stands there.
    ///
    /// # Errors
    /// As [`ConsumeQueue::put_behind`].
    pub(super) fn keep_numbering(&self, offset: i64, missing: CqUnit) -> Result<(), StoreError> {
        let state = self.fill_to(self.state.lock(), offset, missing)?;
        self.max_offset.store(state.end(), Ordering::Release);
        Ok(())
    }

    fn fill_to<'a>(&'a self, mut state: Guard<'a>, offset: i64, missing: CqUnit) -> Result<Guard<'a>, StoreError> {
        while state.end() < offset {
            if offset - state.end() > MAX_GAP {
                let end = state.end();
                drop(state);
                return Err(self.refuse(format!("queueOffset={offset} is more than {MAX_GAP} behind the queue's end {end}")));
            }
            let fillers = (offset - state.end()).min(FILLERS_IN_MEMORY);
            for _ in 0..fillers {
                self.push(&mut state, missing);
            }
            if state.end() < offset {
                drop(state);
                self.flush(&mut self.files.maintenance.lock())?;
                state = self.state.lock();
            }
        }
        Ok(state)
    }

    fn push(&self, state: &mut State, unit: CqUnit) {
        state.tail.extend_from_slice(&unit.encode());
        self.files.dirty_bytes.fetch_add(CQ_UNIT_SIZE, Ordering::Relaxed);
        if !state.listed
            && let Some(this) = self.this.upgrade()
        {
            state.listed = true;
            self.files.dirty.lock().push(this);
        }
    }

    /// The unit is already there, as far as offsets tell. The last one that recovery found may have lost the end of its tags code with a
    /// page that never reached the disk: it is written again when it belongs to the same record.
    fn mend(&self, state: Guard<'_>, offset: i64, unit: CqUnit) -> Result<(), StoreError> {
        let suspect = state.suspect == offset;
        let (there, on_disk) = (state.end(), state.on_disk);
        drop(state);
        if !suspect || offset >= on_disk {
            if unit.end() > self.max_physical_offset() {
                log::warn!(
                    "queue offset is taken, unit ignored: topic={} queueId={} queueOffset={offset} maxOffset={there} physicalOffset={}",
                    self.topic,
                    self.queue_id,
                    unit.physical_offset
                );
            }
            return Ok(());
        }
        let stored = self.unit_at(offset)?;
        self.state.lock().suspect = NONE;
        if stored.is_none_or(|stored| stored.physical_offset != unit.physical_offset || stored == unit) {
            return Ok(());
        }
        let mut maintenance = self.files.maintenance.lock();
        self.write(&mut maintenance, offset, &unit.encode())?;
        self.max_physical_offset.fetch_max(unit.end(), Ordering::AcqRel);
        Ok(())
    }

    /// The log has a record whose unit was in a file that is gone. Where the log has none, zeros stay for readers to find.
    fn put_in_front(&self, offset: i64, unit: CqUnit) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        self.write(&mut maintenance, offset, &unit.encode())?;
        let mut state = self.state.lock();
        if offset < state.first {
            log::warn!(
                "consume queue lacks its first files, their units are made anew: topic={} queueId={} from={offset} to={}",
                self.topic,
                self.queue_id,
                state.first
            );
            state.front = state.front.max(state.first);
            state.first = self.files.file_of(offset);
        }
        if offset < self.min_offset() {
            self.min_offset.store(offset, Ordering::Release);
            state.min_physical = unit.physical_offset;
        }
        Ok(())
    }

    /// Whether files in front of the first one may be gone although the log has their records.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begins_behind(&self, min_physical_offset: i64) -> Result<bool, StoreError> {
        let first = self.state.lock().first;
        let unit = if first > 0 { self.unit_at(first)? } else { None };
        Ok(unit.is_some_and(|unit| unit.is_present() && unit.physical_offset > min_physical_offset))
    }

    /// An empty queue begins in another file.
    fn restart_at(&self, first: i64) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        let old = self.state.lock().first;
        self.remove_file(&mut maintenance, old)?;
        let mut state = self.state.lock();
        state.first = first;
        state.on_disk = first;
        state.suspect = NONE;
        Ok(())
    }

    fn refuse(&self, why: String) -> StoreError {
        StoreError::Damaged(self.folder(), why)
    }

    // ---- read ----

    /// Appends up to `max` units from `offset` on to `out`; fewer at the end. Fillers and zeros are units too: see
    /// [`CqUnit::is_present`].
    ///
    /// # Errors
    /// The system's; `NotFound` when a file is missing.
    pub(super) fn read(&self, offset: i64, max: usize, out: &mut Vec<CqUnit>) -> Result<(), StoreError> {
        let end = offset.saturating_add(i64::try_from(max).unwrap_or(i64::MAX)).min(self.max_offset());
        let mut at = offset.max(0);
        while at < end {
            let on_disk = {
                let state = self.state.lock();
                let end = end.min(state.end());
                if at >= state.on_disk {
                    if at < end {
                        out.extend(CqUnit::decode_all(state.tail_bytes(at, end)));
                    }
                    return Ok(());
                }
                state.on_disk
            };
            let to = end.min(on_disk).min(self.files.file_of(at) + self.files.units_per_file).min(at + READ_UNITS);
            self.read_file(at, to, out)?;
            at = to;
        }
        Ok(())
    }

    /// The unit at `offset`, be it a filler or zeros; `None` outside the queue.
    ///
    /// # Errors
    /// The system's; `NotFound` when a file is missing.
    pub(super) fn unit_at(&self, offset: i64) -> Result<Option<CqUnit>, StoreError> {
        if offset < 0 || offset >= self.max_offset() {
            return Ok(None);
        }
        {
            let state = self.state.lock();
            if offset >= state.on_disk {
                let there = offset < state.end();
                return Ok(there.then(|| CqUnit::decode(state.tail_bytes(offset, offset + 1))));
            }
        }
        let mut bytes = [0; CQ_UNIT_SIZE];
        self.read_bytes(offset, &mut bytes)?;
        Ok(Some(CqUnit::decode(&bytes)))
    }

    /// Units `from..to` of one file.
    fn read_file(&self, from: i64, to: i64, out: &mut Vec<CqUnit>) -> Result<(), StoreError> {
        if to - from <= FEW_UNITS {
            self.read_buffered(from, to, &mut [0; FEW_UNITS as usize * CQ_UNIT_SIZE], out)
        } else {
            self.read_buffered(from, to, &mut [0; READ_UNITS as usize * CQ_UNIT_SIZE], out)
        }
    }

    fn read_buffered(&self, from: i64, to: i64, buffer: &mut [u8], out: &mut Vec<CqUnit>) -> Result<(), StoreError> {
        let bytes = &mut buffer[..(to - from) as usize * CQ_UNIT_SIZE];
        self.read_bytes(from, bytes)?;
        out.extend(CqUnit::decode_all(bytes));
        Ok(())
    }

    fn read_bytes(&self, from: i64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let first = self.files.file_of(from);
        let file = self.open(first)?;
        file.read_exact_at(bytes, ((from - first) * UNIT) as u64).map_err(failed("read", &self.path(first)))
    }

    /// Smallest offset in `from..to` that has a record, and that record's unit. A missing file has none.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn next_present(&self, from: i64, to: i64) -> Result<Option<(i64, CqUnit)>, StoreError> {
        let mut at = from;
        let mut units = Vec::new();
        let mut ask = 1;
        while at < to {
            units.clear();
            match self.read(at, usize::try_from((to - at).min(ask)).unwrap_or(0), &mut units) {
                Ok(()) => {}
                Err(error) if is_missing(&error) => {
                    at = self.files.file_of(at) + self.files.units_per_file;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if units.is_empty() {
                return Ok(None);
            }
            if let Some(place) = units.iter().position(CqUnit::is_present) {
                return Ok(Some((at + place as i64, units[place])));
            }
            at += units.len() as i64;
            ask = READ_UNITS;
        }
        Ok(None)
    }

    // ---- files ----

    fn folder(&self) -> PathBuf {
        self.files.root.join(&*self.topic).join(self.queue_id.to_string())
    }

    fn path(&self, first: i64) -> PathBuf {
        self.folder().join(format!("{:020}", first * UNIT))
    }

    fn open(&self, first: i64) -> Result<Arc<dyn FsFile>, StoreError> {
        if let Some(file) = self.files.cache.get((self.key, first)) {
            return Ok(file);
        }
        let path = self.path(first);
        let file = self.files.fs.open(&path, false).map_err(failed("open", &path))?;
        self.files.cache.insert((self.key, first), Arc::clone(&file));
        Ok(file)
    }

    /// Opens a file for writing; makes it, sparse, when it does not exist.
    fn open_or_create(&self, maintenance: &mut Maintenance, first: i64) -> Result<Arc<dyn FsFile>, StoreError> {
        if let Some(file) = self.files.cache.get((self.key, first)) {
            return Ok(file);
        }
        let (path, folder) = (self.path(first), self.folder());
        let file = match self.files.fs.open(&path, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.files.fs.create_dir_all(&folder).map_err(failed("create", &folder))?;
                maintenance.changed_folders.extend(folder.ancestors().take(4).map(Path::to_owned)); // up to the store's root
                self.files.fs.create_sized(&path, self.files.file_size()).map_err(failed("create", &path))?
            }
            Err(error) => return Err(failed("open", &path)(error)),
        };
        if file.len().map_err(failed("stat", &path))? != self.files.file_size() {
            file.set_len(self.files.file_size()).map_err(failed("extend", &path))?;
        }
        self.files.cache.insert((self.key, first), Arc::clone(&file));
        Ok(file)
    }

    fn remove_file(&self, maintenance: &mut Maintenance, first: i64) -> Result<(), StoreError> {
        let path = self.path(first);
        self.files.cache.remove((self.key, first));
        maintenance.unsynced.remove(&(self.key, first));
        maintenance.unsure.remove(&(self.key, first));
        match self.files.fs.remove_file(&path) {
            Ok(()) => {
                maintenance.changed_folders.insert(self.folder());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("remove", &path)(error)),
        }
    }

    /// Writes units that lie in one file.
    fn write(&self, maintenance: &mut Maintenance, at: i64, bytes: &[u8]) -> Result<(), StoreError> {
        let first = self.files.file_of(at);
        let file = self.open_or_create(maintenance, first)?;
        if let Some(this) = self.this.upgrade() {
            maintenance.unsynced.insert((self.key, first), this);
        }
        file.write_all_at(bytes, ((at - first) * UNIT) as u64).map_err(failed("write", &self.path(first)))
    }

    // ---- maintenance ----

    /// Writes the tail out, one write per file. What fails stays in memory.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn flush(&self, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        let mut buffer = std::mem::take(&mut maintenance.buffer);
        buffer.clear();
        let mut at = {
            let state = self.state.lock();
            if state.removed {
                return Ok(());
            }
            buffer.extend_from_slice(&state.tail);
            state.on_disk
        };
        let mut rest = buffer.as_slice();
        let mut outcome = Ok(());
        while !rest.is_empty() && outcome.is_ok() {
            let room = self.files.file_of(at) + self.files.units_per_file - at;
            let (piece, behind) = rest.split_at(rest.len().min(room as usize * CQ_UNIT_SIZE));
            outcome = self.write(maintenance, at, piece);
            if outcome.is_ok() {
                at += (piece.len() / CQ_UNIT_SIZE) as i64;
                rest = behind;
                self.written(piece.len());
            }
        }
        buffer.shrink_to(1 << 20);
        maintenance.buffer = buffer;
        outcome
    }

    fn written(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.on_disk += (bytes / CQ_UNIT_SIZE) as i64;
        if bytes == state.tail.len() {
            state.tail = Vec::new();
        } else {
            state.tail.drain(..bytes);
        }
        self.files.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The queue left the list of dirty queues and is about to be flushed.
    pub(super) fn unlisted(&self) {
        self.state.lock().listed = false;
    }

    /// Puts the queue back on the list when its flush failed and left something in memory.
    pub(super) fn list_again_after(&self, flushed: &Result<(), StoreError>) {
        let mut state = self.state.lock();
        if flushed.is_err()
            && !state.listed
            && !state.removed
            && !state.tail.is_empty()
            && let Some(this) = self.this.upgrade()
        {
            state.listed = true;
            self.files.dirty.lock().push(this);
        }
    }

    /// Writes what a file holds once more, so that it counts as not on disk.
    ///
    /// # Errors
    /// The system's; units that cannot be read any more, which the next start makes anew from the log.
    pub(super) fn write_again(&self, first: i64, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        let (from, to) = {
            let state = self.state.lock();
            (self.min_offset().clamp(first, first + self.files.units_per_file), state.on_disk.min(first + self.files.units_per_file))
        };
        let mut buffer = [0; READ_UNITS as usize * CQ_UNIT_SIZE];
        let mut at = from;
        while at < to {
            let units = (to - at).min(READ_UNITS);
            let bytes = &mut buffer[..units as usize * CQ_UNIT_SIZE];
            match self.read_bytes(at, bytes) {
                Err(error) if is_missing(&error) => return Ok(()), // cleaned or deleted
                read => read?,
            }
            if let Some(place) = CqUnit::decode_all(bytes).position(|unit| !unit.is_valid()) {
                return Err(StoreError::Damaged(self.path(first), format!("lost the unit of queueOffset={}", at + place as i64)));
            }
            self.write(maintenance, at, bytes)?;
            at += units;
        }
        Ok(())
    }

    /// fdatasync of one file.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn sync(&self, first: i64) -> Result<(), StoreError> {
        let file = match self.open(first) {
            Err(error) if is_missing(&error) => return Ok(()), // cleaned or deleted
            opened => opened?,
        };
        file.sync_data().map_err(failed("sync", &self.path(first)))?;
        if file.is_linked().is_ok_and(|linked| !linked) {
            self.files.lost.store(true, Ordering::Release);
            let why = "was removed by somebody; its messages are served until the broker stops, the next start makes it anew from the log";
            return Err(StoreError::Damaged(self.path(first), why.to_owned()));
        }
        Ok(())
    }

    /// Removes every unit whose record does not end at or before `end`, zeroes its place.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn truncate_behind(&self, end: i64, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        if self.max_physical_offset() <= end {
            return Ok(());
        }
        let (keep, max_physical) = self.find_cut(self.max_offset(), end)?;
        self.cut_to(keep, max_physical, maintenance)
    }

    /// Gives up the units at the end that point at no record of theirs, as `holds` tells of an offset and its unit. Returns the offset of
    /// the last one, and where it pointed.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn give_up_unless(
        &self, holds: impl Fn(i64, &CqUnit) -> Result<bool, StoreError>, maintenance: &mut Maintenance,
    ) -> Result<Option<(i64, i64)>, StoreError> {
        let mut keep = self.max_offset();
        let mut given_up = None;
        while let Some(unit) = self.unit_at(keep - 1)?.filter(CqUnit::is_present) {
            if holds(keep - 1, &unit)? {
                break;
            }
            keep -= 1;
            given_up.get_or_insert((keep, unit.physical_offset));
        }
        if given_up.is_some() {
            let (_, max_physical) = self.find_cut(keep, i64::MAX)?;
            self.cut_to(keep, max_physical, maintenance)?;
        }
        Ok(given_up)
    }

    /// Removes the units from `keep` on, and zeroes their places. The last record that has a unit then ends at `max_physical`.
    fn cut_to(&self, keep: i64, max_physical: i64, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        let (first, on_disk) = {
            let mut state = self.state.lock();
            let on_disk = state.on_disk;
            let tail_units = (keep - on_disk).max(0) as usize;
            let dropped = state.tail.len() - tail_units * CQ_UNIT_SIZE;
            state.tail.truncate(tail_units * CQ_UNIT_SIZE);
            self.files.dirty_bytes.fetch_sub(dropped, Ordering::Relaxed);
            state.on_disk = on_disk.min(keep);
            state.suspect = state.suspect.min(keep - 1);
            if self.min_offset() >= keep {
                state.min_physical = NONE;
            }
            self.max_physical_offset.store(max_physical, Ordering::Release);
            self.max_offset.store(keep, Ordering::Release);
            self.min_offset.fetch_min(keep, Ordering::AcqRel);
            (state.first, on_disk)
        };
        self.cut_files(maintenance, first, keep, on_disk)
    }

    /// Of the units below `below`, the offset behind the last one whose record ends at or before `end`, and that record's end. Without such
    /// a unit, the offset of the first unit that goes: fillers in front of it keep the numbering.
    fn find_cut(&self, below: i64, end: i64) -> Result<(i64, i64), StoreError> {
        let first = self.state.lock().first;
        let mut at = below;
        let mut cut = at;
        let mut units = Vec::new();
        while at > first {
            let from = (at - READ_UNITS).max(first).max(self.files.file_of(at - 1));
            units.clear();
            match self.read(from, (at - from) as usize, &mut units) {
                Err(error) if !is_missing(&error) => return Err(error),
                _ => {}
            }
            for (place, unit) in units.iter().enumerate().rev() {
                let offset = from + place as i64;
                if unit.is_present() && unit.end() <= end {
                    return Ok((offset + 1, unit.end()));
                }
                if unit.is_present() || !unit.is_valid() {
                    cut = offset;
                }
            }
            at = from;
        }
        Ok((cut, NONE))
    }

    /// After an abrupt stop: files with units of records behind `physical_offset` may be in the page cache alone, and so may their names.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn distrust_behind(&self, physical_offset: i64, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        if self.max_physical_offset() <= physical_offset {
            return Ok(());
        }
        let first = self.state.lock().first;
        let from = if physical_offset > 0 { self.find_cut(self.max_offset(), physical_offset)?.0.max(first) } else { first };
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        let files = (self.files.file_of(from)..self.max_offset()).step_by(self.files.units_per_file as usize);
        maintenance.unsynced.extend(files.map(|file| ((self.key, file), Arc::clone(&this))));
        maintenance.changed_folders.extend(self.folder().ancestors().take(4).map(Path::to_owned)); // up to the store's root
        Ok(())
    }

    fn cut_files(&self, maintenance: &mut Maintenance, first: i64, keep: i64, on_disk: i64) -> Result<(), StoreError> {
        if keep >= on_disk {
            return Ok(());
        }
        let kept = self.files.file_of((keep - 1).max(first));
        let mut behind = self.files.file_of(on_disk - 1);
        while behind > kept {
            self.remove_file(maintenance, behind)?;
            behind -= self.files.units_per_file;
        }
        if keep < kept + self.files.units_per_file {
            let file = self.open_or_create(maintenance, kept)?;
            zero_behind(&*file, ((keep - kept) * UNIT) as u64, self.files.file_size()).map_err(failed("truncate", &self.path(kept)))?;
        }
        self.files.fs.sync_dir(&self.folder()).map_err(failed("sync", &self.folder()))
    }

    /// Moves the min offset to the first unit whose record lies at or behind `min_physical_offset`; a queue whose records are all gone
    /// keeps its numbering and is empty. Files in front of it are removed, the last one never.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn clean(&self, min_physical_offset: i64, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        self.correct_min_offset(min_physical_offset)?;
        loop {
            let first = {
                let mut state = self.state.lock();
                let first = state.first;
                let next = first + self.files.units_per_file;
                if next > self.min_offset() || next >= state.on_disk {
                    return Ok(());
                }
                state.first = next;
                first
            };
            self.remove_file(maintenance, first)?;
        }
    }

    /// The part of [`ConsumeQueue::clean`] that removes nothing.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn correct_min_offset(&self, min_physical_offset: i64) -> Result<(), StoreError> {
        let (first, known) = {
            let mut state = self.state.lock();
            let end = state.end();
            if end == state.first {
                return Ok(());
            }
            if self.max_physical_offset() <= min_physical_offset.max(0) {
                state.min_physical = NONE;
                self.min_offset.store(end, Ordering::Release);
                return Ok(());
            }
            (state.first, state.min_physical)
        };
        if known >= min_physical_offset.max(0) {
            return Ok(());
        }
        let (mut low, mut high) = (self.min_offset().max(first), self.max_offset());
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next_present(middle, high)? {
                Some((offset, unit)) if unit.physical_offset < min_physical_offset => low = offset + 1,
                Some(present) => {
                    found = Some(present);
                    high = middle;
                }
                None => high = middle,
            }
        }
        let mut state = self.state.lock();
        state.min_physical = found.map_or(NONE, |(_, unit)| unit.physical_offset);
        self.min_offset.store(found.map_or(state.end(), |(offset, _)| offset), Ordering::Release);
        Ok(())
    }

    /// First unit whose record lies at or behind a physical offset, with its queue offset.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn first_behind(&self, physical_offset: i64) -> Result<Option<(i64, CqUnit)>, StoreError> {
        let (mut low, mut high) = (self.state.lock().first, self.max_offset());
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next_present(middle, high)? {
                Some((offset, unit)) if unit.physical_offset < physical_offset => low = offset + 1,
                present => {
                    found = present.or(found);
                    high = middle;
                }
            }
        }
        Ok(found)
    }

    /// Puts a unit in the place of one that points at no message of its own.
    ///
    /// # Errors
    /// The system's; an offset outside the queue.
    pub(super) fn replace(&self, offset: i64, unit: CqUnit) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        {
            let mut state = self.state.lock();
            if !(state.first..state.end()).contains(&offset) {
                let end = state.end();
                drop(state);
                return Err(self.refuse(format!("queueOffset={offset} has no unit, the queue ends at {end}")));
            }
            if offset <= self.min_offset() && unit.is_present() {
                self.min_offset.store(offset, Ordering::Release);
                state.min_physical = unit.physical_offset;
            }
            if unit.is_present() {
                self.max_physical_offset.fetch_max(unit.end(), Ordering::AcqRel);
            }
            if offset >= state.on_disk {
                let at = (offset - state.on_disk) as usize * CQ_UNIT_SIZE;
                state.tail[at..at + CQ_UNIT_SIZE].copy_from_slice(&unit.encode());
                return Ok(());
            }
        }
        self.write(&mut maintenance, offset, &unit.encode())
    }

    // ---- damage ----

    /// The unit at an offset is not what it was: it will be mended soon. False when nothing can be done about it.
    pub(super) fn report_damage(&self, offset: i64) -> bool {
        let mut damage = self.files.damage.lock();
        if damage.stays.contains(&(self.key, offset)) {
            return false;
        }
        if let Some(this) = self.this.upgrade().filter(|_| damage.found.len() < MAX_DAMAGE)
            && !damage.found.iter().any(|(queue, there)| queue.key == self.key && *there == offset)
        {
            damage.found.push((this, offset));
        }
        true
    }

    /// What was reported at an offset stays as it is.
    pub(super) fn leave_damage(&self, offset: i64) {
        let mut damage = self.files.damage.lock();
        if damage.stays.len() < MAX_DAMAGE {
            damage.stays.insert((self.key, offset));
        }
    }

    /// The topic was deleted: drops the tail, forgets the files. Under the put lock.
    pub(super) fn removed(&self, maintenance: &mut Maintenance) {
        self.deleted.store(true, Ordering::Relaxed); // the put lock orders it
        let mut state = self.state.lock();
        state.removed = true;
        self.files.dirty_bytes.fetch_sub(state.tail.len(), Ordering::Relaxed);
        state.tail = Vec::new();
        self.files.cache.remove_queue(self.key);
        maintenance.unsynced.retain(|(queue, _), _| *queue != self.key);
        maintenance.unsure.retain(|(queue, _), _| *queue != self.key);
    }
}

/// One step of a hash that stays what it is from version to version.
fn mix(mixed: i64, value: i64) -> i64 {
    (mixed ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
}

/// Whether the error says that a file is not there.
pub(super) fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::Io(_, _, error) if error.kind() == io::ErrorKind::NotFound)
}

/// Makes everything from `at` on zero, durably: units that come back with a crash would stand for records that took their places in the
/// log since.
fn zero_behind(file: &dyn FsFile, at: u64, file_size: u64) -> io::Result<()> {
    zero(file, at, file_size)?;
    file.sync_data()
}
