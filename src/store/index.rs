//! The key index: hash files, newest last (Java's `IndexService`).
//!
//! What is put waits in memory, unchained, until a flush (or a full buffer) chains it to its slots and writes it: one write of
//! entries, one per page of slots. A query looks through memory first, then through the files, newest first.
//! - Lock order: `io` (one writer of files), then `state`; no file is read or written under `state`.
//! - Entries of a file have ascending physical offsets; a record at or before the last one is only looked up, never added
//!   twice, so putting again is harmless.
//! - A store without keys has no index file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::common::hash::extend_java_hash;

use super::config::StoreConfig;
use super::error::StoreError;
use super::file_cache::failed;
use super::format::index::{INDEX_ENTRY_SIZE, IndexEntry, IndexHeader};
use super::fs::Fs;
use super::index_file::{Geometry, IndexFile, Linked, entry_end_ms};

/// Entries in memory that make a put write them out: so many that most pages of slots take several.
const SPILL_ENTRIES: usize = 200_000;
/// Entries in memory while they cannot be written; more are refused.
const MAX_PENDING: usize = 1_000_000;
/// Between two attempts of a put to write what could not be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// In front of tags that are looked for as a key.
pub const TAGS_PREFIX: &str = "T#";

/// All index files of a store.
pub(super) struct Index {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    geometry: Geometry,
    io: Mutex<Io>,
    state: Mutex<State>,
}

/// Belongs to the one who writes.
#[derive(Default)]
struct Io {
    unsynced: Vec<Arc<IndexFile>>,
    folder_changed: bool,
    sync_failure: Option<String>,
    retry_at: Option<Instant>,
    /// Largest number that a file was named by.
    newest: i64,
    /// Entries of records up to here were taken out and may come back with a crash.
    cut_to: i64,
}

#[derive(Default)]
struct State {
    /// Oldest first; the last one is added to.
    files: Vec<Known>,
    /// Entries behind the last file's count and behind `writing`, in order, unchained.
    pending: Vec<IndexEntry>,
    /// Chained entries on their way into the last file, kept until they are all there.
    writing: Option<Arc<Linked>>,
    /// Header of the last file once all that waits is written; `used_slots` is the file's.
    latest: IndexHeader,
}

#[derive(Clone)]
struct Known {
    file: Arc<IndexFile>,
    /// What is in the file.
    header: IndexHeader,
}

impl State {
    /// Entries in memory, newest first.
    fn in_memory(&self) -> impl Iterator<Item = IndexEntry> {
        let writing = self.writing.iter().flat_map(|linked| linked.entries.chunks_exact(INDEX_ENTRY_SIZE).rev().map(IndexEntry::decode));
        self.pending.iter().rev().copied().chain(writing)
    }
}

impl Index {
    /// Opens the files. A file that cannot be one is set aside as `.bad`. With `safe_timestamp` (abnormal start), files whose end is newer
    /// may have lost pages: their entries are checked and what can be believed is kept; recovery indexes again what follows. So are those
    /// of a file whose header does not fit its entries, however the last run ended.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn load(config: &StoreConfig, fs: Arc<dyn Fs>, safe_timestamp: Option<i64>) -> Result<Self, StoreError> {
        let geometry = Geometry { slots: config.index_slots.max(1), entries: config.index_entries.max(2) };
        let index = Self { fs, folder: config.root.join("index"), geometry, io: Mutex::default(), state: Mutex::default() };
        let (mut files, mut repaired, mut newest) = (Vec::new(), Vec::new(), 0);
        let mut cut_to = 0;
        for (path, is_folder) in index.fs.list(&index.folder).map_err(failed("list", &index.folder))? {
            let Some(number) = file_number(&path).filter(|_| !is_folder) else { continue };
            newest = number;
            if index.remove_if_empty(&path)? {
                continue;
            }
            match IndexFile::open(&*index.fs, &path, geometry)? {
                Ok((file, header)) => {
                    let mut known = Known { file: Arc::new(file), header };
                    cut_to = cut_to.max(header.end_physical_offset);
                    let unsafe_pages = safe_timestamp.is_some_and(|safe| header.end_timestamp > safe || header.count == 1);
                    if unsafe_pages || !known.file.agrees(&header)? {
                        match known.file.repair(header) {
                            Ok(header) => {
                                known.header = header;
                                cut_to = cut_to.max(header.end_physical_offset);
                            }
                            Err(error) => {
                                log::error!("index file not repaired, its keys are not found until the next start: {error}");
                                continue;
                            }
                        }
                        repaired.push(Arc::clone(&known.file));
                    }
                    files.push(known);
                }
                Err(why) => {
                    log::error!("index file cannot be used and is set aside as .bad: path={} {why}", path.display());
                    let mut aside = path.clone().into_os_string();
                    aside.push(".bad");
                    index.fs.rename(&path, aside.as_ref()).map_err(failed("rename", &path))?;
                }
            }
        }
        // names and bytes may be in the page cache alone: the last process may have died before it synced them
        let folder_changed = safe_timestamp.is_some() && !files.is_empty();
        *index.io.lock() = Io { unsynced: repaired, folder_changed, newest, cut_to, ..Io::default() };
        {
            let mut state = index.state.lock();
            state.files = files;
            state.set_latest();
        }
        Ok(index)
    }

    /// Removes a file without bytes, whose creation was cut short; whether it was one.
    fn remove_if_empty(&self, path: &Path) -> Result<bool, StoreError> {
        let len = self.fs.open(path, false).and_then(|file| file.len()).map_err(failed("look at", path))?;
        if len == 0 {
            log::warn!("index file without bytes removed, its creation was cut short: path={}", path.display());
            self.fs.remove_file(path).map_err(failed("remove", path))?;
        }
        Ok(len == 0)
    }

    // ---- put ----

    /// Adds one key of a record (`topic#key`). Only the dispatcher and recovery, in the order of physical offsets; a record that is
    /// already there is ignored.
    ///
    /// # Errors
    /// A file that could not be made or written; indexing pauses and heals, messages are not lost.
    pub(super) fn put(&self, topic: &str, key: &str, physical_offset: i64, store_timestamp: i64) -> Result<(), StoreError> {
        self.put_hash(key_hash(topic, "", key), physical_offset, store_timestamp)
    }

    /// Adds the tags of a record, which newer Java brokers find as `topic#T#tags`.
    ///
    /// # Errors
    /// As [`Index::put`].
    pub(super) fn put_tags(&self, topic: &str, tags: &str, physical_offset: i64, store_timestamp: i64) -> Result<(), StoreError> {
        self.put_hash(key_hash(topic, TAGS_PREFIX, tags), physical_offset, store_timestamp)
    }

    fn put_hash(&self, key_hash: i32, physical_offset: i64, store_timestamp: i64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if !state.files.is_empty() && physical_offset <= state.latest.end_physical_offset {
            if physical_offset < state.latest.end_physical_offset {
                return Ok(());
            }
            let holds = |known: &&Known| known.header.count <= 1 || known.header.end_physical_offset >= physical_offset;
            let files: Vec<Known> = state.files.iter().rev().take_while(holds).cloned().collect();
            let mut in_memory = state.in_memory().take_while(|entry| entry.physical_offset == physical_offset);
            if in_memory.any(|entry| entry.key_hash == key_hash) {
                return Ok(());
            }
            drop(in_memory);
            drop(state);
            if files.iter().any(|known| known.ends_with(key_hash, physical_offset)) {
                return Ok(());
            }
            state = self.state.lock();
        }
        if state.files.is_empty() || state.latest.count.unsigned_abs() >= self.geometry.entries {
            drop(state);
            self.roll()?;
            state = self.state.lock();
        }
        if state.pending.len() >= MAX_PENDING {
            drop(state);
            self.spill_when_due(true)?;
            state = self.state.lock();
        }
        state.push(key_hash, physical_offset, store_timestamp);
        let full = state.pending.len() >= SPILL_ENTRIES;
        drop(state);
        if full { self.spill_when_due(false) } else { Ok(()) }
    }

    /// Writes out what waits, not durably, so that puts need not.
    ///
    /// # Errors
    /// The system's; what failed waits on.
    pub(super) fn write_out(&self) -> Result<(), StoreError> {
        self.spill(&mut self.io.lock())
    }

    /// Writes out what waits, unless someone else is writing (`must`: waits for him) or a write failed a moment ago.
    fn spill_when_due(&self, must: bool) -> Result<(), StoreError> {
        let Some(mut io) = (if must { Some(self.io.lock()) } else { self.io.try_lock() }) else { return Ok(()) };
        if let Some(retry_at) = io.retry_at
            && Instant::now() < retry_at
        {
            return if must { Err(self.paused()) } else { Ok(()) };
        }
        self.spill(&mut io)
    }

    fn paused(&self) -> StoreError {
        StoreError::Damaged(self.folder.clone(), "keys are not indexed as long as those before them cannot be written".to_owned())
    }

    /// Begins a new file, after the last one is written.
    fn roll(&self) -> Result<(), StoreError> {
        let mut io = self.io.lock();
        if io.retry_at.is_some_and(|retry_at| Instant::now() < retry_at) {
            return Err(self.paused());
        }
        self.spill(&mut io)?;
        let rolled = self.create_file(&mut io);
        io.retry_at = rolled.is_err().then(|| Instant::now() + RETRY_INTERVAL);
        let file = Arc::new(rolled?);
        io.folder_changed = true;
        io.unsynced.push(Arc::clone(&file));
        let mut state = self.state.lock();
        let IndexHeader { end_timestamp, end_physical_offset, .. } = state.latest;
        let header = IndexHeader { end_timestamp, end_physical_offset, count: 1, ..IndexHeader::default() };
        state.files.push(Known { file, header });
        state.latest = header;
        Ok(())
    }

    fn create_file(&self, io: &mut Io) -> Result<IndexFile, StoreError> {
        self.fs.create_dir_all(&self.folder).map_err(failed("create", &self.folder))?;
        let number = local_time_number().max(io.newest + 1); // whatever the clock did
        io.newest = number;
        IndexFile::create(&*self.fs, self.folder.join(format!("{number:017}")), self.geometry)
    }

    /// Writes everything that waits in memory into the last file.
    fn spill(&self, io: &mut Io) -> Result<(), StoreError> {
        let outcome = self.finish_writing(io).and_then(|()| self.link_pending()).and_then(|()| self.finish_writing(io));
        io.retry_at = outcome.is_err().then(|| Instant::now() + RETRY_INTERVAL);
        outcome
    }

    fn finish_writing(&self, io: &mut Io) -> Result<(), StoreError> {
        let (file, linked) = {
            let state = self.state.lock();
            let (Some(known), Some(linked)) = (state.files.last(), &state.writing) else { return Ok(()) };
            (Arc::clone(&known.file), Arc::clone(linked))
        };
        if !io.unsynced.iter().any(|unsynced| Arc::ptr_eq(unsynced, &file)) {
            io.unsynced.push(Arc::clone(&file));
        }
        file.write_linked(&linked)?;
        let mut state = self.state.lock();
        state.writing = None;
        state.latest.used_slots = linked.header.used_slots;
        if let Some(known) = state.files.last_mut() {
            known.header = linked.header;
        }
        Ok(())
    }

    fn link_pending(&self) -> Result<(), StoreError> {
        let (known, entries, after) = {
            let state = self.state.lock();
            let Some(known) = state.files.last().filter(|_| !state.pending.is_empty()) else { return Ok(()) };
            (known.clone(), state.pending.clone(), state.latest)
        };
        let count = entries.len();
        let linked = known.file.link(entries, &known.header, IndexHeader { used_slots: known.header.used_slots, ..after })?;
        let mut state = self.state.lock();
        state.pending.drain(..count);
        if state.pending.is_empty() {
            state.pending = Vec::new();
        }
        state.writing = Some(Arc::new(linked));
        Ok(())
    }

    // ---- query ----

    /// The first `max` of [`Index::query_with`].
    #[cfg(test)]
    pub(super) fn query(&self, topic: &str, key: &str, max: usize, begin_ms: i64, end_ms: i64) -> Vec<i64> {
        let mut found = Vec::new();
        self.query_with(topic, key, begin_ms, end_ms, &mut |physical_offset| {
            if found.len() < max {
                found.push(physical_offset);
            }
            found.len() < max
        });
        found
    }

    /// Hands out physical offsets of records whose key has the hash of this one, newest first, store time in [begin, end] to the second,
    /// until `take` returns false. No lock is held meanwhile.
    pub(super) fn query_with(&self, topic: &str, key: &str, begin_ms: i64, end_ms: i64, take: &mut dyn FnMut(i64) -> bool) {
        let key_hash = key_hash(topic, "", key);
        let (in_memory, files) = {
            let state = self.state.lock();
            let begin_timestamp = state.latest.begin_timestamp;
            let hits = state.in_memory().filter(|entry| entry.key_hash == key_hash && in_time(entry, begin_timestamp, begin_ms, end_ms));
            (hits.map(|entry| entry.physical_offset).collect::<Vec<_>>(), state.files.clone())
        };
        if !in_memory.into_iter().all(&mut *take) {
            return;
        }
        for Known { file, header } in files.iter().rev() {
            let mut more = true;
            if header.count > 1 && begin_ms <= header.end_timestamp && end_ms >= header.begin_timestamp {
                let walked = file.walk(key_hash, header, begin_ms, &mut |entry| {
                    more = !in_time(entry, header.begin_timestamp, begin_ms, end_ms) || take(entry.physical_offset);
                    more
                });
                if let Err(error) = walked {
                    log::warn!("index file not read: {error}");
                }
            }
            if !more || (header.count > 1 && header.begin_timestamp < begin_ms) {
                return;
            }
        }
    }

    /// Store time and physical offset of the last record indexed; zeros when there is none.
    pub(super) fn last(&self) -> (i64, i64) {
        let state = self.state.lock();
        (state.latest.end_timestamp, state.latest.end_physical_offset)
    }

    // ---- maintenance ----

    /// Makes what was added so far durable.
    ///
    /// # Errors
    /// The system's. A failed sync is final: every later flush fails with its reason.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        let mut io = self.io.lock();
        if let Some(why) = &io.sync_failure {
            return Err(StoreError::Damaged(self.folder.clone(), why.clone()));
        }
        self.spill(&mut io)?;
        self.sync(&mut io)
    }

    /// Store time up to which files are full and will not change any more, if what is dispatched again after a crash begins at `again_from`
    /// (checkpoint field; what was flushed counts); 0 when there is none.
    pub(super) fn final_until(&self, again_from: i64) -> i64 {
        let state = self.state.lock();
        let is_final = |pair: &&[Known]| {
            let (this, next) = (&pair[0].header, &pair[1].header);
            let full = this.count.unsigned_abs() >= self.geometry.entries && this.end_physical_offset < again_from;
            full && next.count > 1 && next.end_timestamp > this.end_timestamp // which tells them apart
        };
        state.files.windows(2).rev().find(is_final).map_or(0, |pair| pair[0].header.end_timestamp)
    }

    fn sync(&self, io: &mut Io) -> Result<(), StoreError> {
        let outcome = self.sync_files(io);
        if let Err(error) = &outcome {
            io.sync_failure = Some(format!("a sync of the index failed, final until the store is opened again: {error}"));
        }
        outcome
    }

    fn sync_files(&self, io: &mut Io) -> Result<(), StoreError> {
        for file in std::mem::take(&mut io.unsynced) {
            if self.fs.exists(file.path()) {
                file.sync()?;
            }
        }
        if std::mem::take(&mut io.folder_changed) {
            for folder in self.folder.ancestors().take(2) {
                self.fs.sync_dir(folder).map_err(failed("sync", folder))?;
            }
        }
        Ok(())
    }

    /// The log was recovered and ends here: drops the entries of records behind it, durably. Should they come back with a crash, they would
    /// stand for records that took their places since.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn end_at(&self, physical_offset: i64) -> Result<(), StoreError> {
        self.truncate_behind(physical_offset)?;
        let mut io = self.io.lock();
        if io.cut_to >= physical_offset.max(1) {
            self.sync(&mut io)?;
        }
        io.cut_to = 0;
        Ok(())
    }

    /// Drops the entries of records at or behind `physical_offset`, which recovery will put again.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn truncate_behind(&self, physical_offset: i64) -> Result<(), StoreError> {
        let mut io = self.io.lock();
        self.spill(&mut io)?;
        loop {
            let Some(last) = self.state.lock().files.last().cloned() else { return Ok(()) };
            let emptied = last.header.count <= 1 || last.header.begin_physical_offset >= physical_offset;
            let header = if emptied { last.header } else { last.file.truncate_behind(last.header, physical_offset)? };
            io.folder_changed |= emptied;
            if header != last.header {
                io.unsynced.push(Arc::clone(&last.file));
            }
            if emptied {
                self.fs.remove_file(last.file.path()).map_err(failed("remove", last.file.path()))?;
            }
            let mut state = self.state.lock();
            if emptied {
                state.files.pop();
            } else if let Some(known) = state.files.last_mut() {
                known.header = header;
            }
            state.set_latest();
            if !emptied {
                return Ok(());
            }
        }
    }

    /// After an abrupt stop, when what is to be put again was dropped: makes that durable. Entries that come back with a crash, sector by
    /// sector, would stand between those that took their places.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn sync_dropped(&self) -> Result<(), StoreError> {
        self.sync(&mut self.io.lock())
    }

    /// After an abrupt stop before the first flush: removes the files behind the first that is not full. A crash has taken entries from
    /// that one, and those behind would pass for all that is to be put again.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn truncate_behind_hole(&self) -> Result<(), StoreError> {
        let mut io = self.io.lock();
        let behind = {
            let mut state = self.state.lock();
            let is_full = |known: &&Known| known.header.count.unsigned_abs() >= self.geometry.entries;
            let whole = state.files.iter().take_while(is_full).count();
            let kept = state.files.len().min(whole + 1);
            let behind = state.files.split_off(kept);
            state.set_latest();
            behind
        };
        for known in behind {
            let path = known.file.path();
            log::warn!("index file removed, entries in front of it are lost and will be put again: path={}", path.display());
            (io.folder_changed, io.cut_to) = (true, i64::MAX);
            self.fs.remove_file(path).map_err(failed("remove", path))?;
        }
        Ok(())
    }

    /// Deletes files whose last record lies before `min_physical_offset`; never the last file.
    pub(super) fn clean(&self, min_physical_offset: i64) {
        let mut io: MutexGuard<'_, Io> = self.io.lock();
        loop {
            let first = {
                let mut state = self.state.lock();
                let expired = state.files.first().is_some_and(|known| known.header.end_physical_offset < min_physical_offset);
                if !expired || state.files.len() < 2 {
                    return;
                }
                state.files.remove(0)
            };
            io.folder_changed = true;
            if let Err(error) = self.fs.remove_file(first.file.path()) {
                log::warn!("index file not removed: path={} {error}", first.file.path().display());
            }
        }
    }
}

impl State {
    /// Nothing waits: what comes next continues the files.
    fn set_latest(&mut self) {
        self.latest = self.files.last().map(|known| known.header).unwrap_or_default();
        if self.latest.count <= 1
            && let Some(known) = self.files.iter().rev().find(|known| known.header.count > 1)
        {
            self.latest.end_timestamp = known.header.end_timestamp;
            self.latest.end_physical_offset = known.header.end_physical_offset;
        }
    }

    fn push(&mut self, key_hash: i32, physical_offset: i64, store_timestamp: i64) {
        let latest = &mut self.latest;
        if latest.count <= 1 {
            latest.count = 1;
            latest.begin_timestamp = store_timestamp.max(1);
            latest.begin_physical_offset = physical_offset;
        }
        let seconds = (store_timestamp - latest.begin_timestamp) / 1000;
        let seconds = seconds.clamp(0, i64::from(i32::MAX)) as i32;
        self.pending.push(IndexEntry { key_hash, physical_offset, seconds, previous: 0 });
        latest.count += 1;
        latest.end_timestamp = store_timestamp;
        latest.end_physical_offset = physical_offset;
    }
}

impl Known {
    /// Whether the file's last record, at `physical_offset`, has an entry of this hash.
    fn ends_with(&self, key_hash: i32, physical_offset: i64) -> bool {
        (1..self.header.count.unsigned_abs())
            .rev()
            .map_while(|number| self.file.entry(number).ok())
            .take_while(|entry| entry.physical_offset == physical_offset)
            .any(|entry| entry.key_hash == key_hash)
    }
}

fn in_time(entry: &IndexEntry, begin_timestamp: i64, begin_ms: i64, end_ms: i64) -> bool {
    let latest = entry_end_ms(begin_timestamp, entry.seconds);
    latest >= begin_ms && latest - 999 <= end_ms
}

/// Hash of `topic#key` as the files hold it: Java's, without its sign.
pub(super) fn key_hash(topic: &str, prefix: &str, key: &str) -> i32 {
    let hash = [topic, "#", prefix, key].into_iter().fold(0, extend_java_hash);
    hash.checked_abs().unwrap_or(0) // |i32::MIN| does not exist: Java's files have 0
}

/// The number that a file's name is: 17 digits.
pub(super) fn file_number(path: &std::path::Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?;
    (name.len() == 17 && name.bytes().all(|byte| byte.is_ascii_digit())).then(|| name.parse().ok())?
}

/// Local time as `yyyyMMddHHmmssSSS`.
fn local_time_number() -> i64 {
    let now = jiff::Zoned::now();
    let date = (i64::from(now.year()) * 100 + i64::from(now.month())) * 100 + i64::from(now.day());
    let time = (i64::from(now.hour()) * 100 + i64::from(now.minute())) * 100 + i64::from(now.second());
    (date * 1_000_000 + time) * 1000 + i64::from(now.millisecond())
}

#[cfg(test)]
mod tests;
