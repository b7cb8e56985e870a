//! What to trust after a clean or an abrupt stop. The only code that cuts the log.
//!
//! The log is the truth: it is walked from a place from which on everything may be missing somewhere, each record that counts
//! is dispatched again (which changes nothing where it has been), and the consume queues are cut behind its end.
//! - Only an invalid tail is cut, and what lay behind it is zeroed: an old record right behind a new tail must not come back.
//! - Damage with records behind it costs what is damaged: the bytes are kept under `lost/`, the hole is sealed.
//! - Every file walked over is synced before anything of it may become visible.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::Positions;
use super::config::{FlushDiskType, StoreConfig};
use super::consume_queue_table::ConsumeQueueTable;
use super::deleted_topics::DeletedTopics;
use super::dispatch::Dispatcher;
use super::error::StoreError;
use super::fs::Fs;
use super::index::Index;
use super::mapped_file::MappedFile;
use super::mapped_file_queue::Segment;
use super::scan::{Found, Place, Scanner, find_record, first_store_time};
use super::seal::{self, Hole};

/// Units of consume queues that may wait in memory while recovery dispatches, bytes.
const MAX_DIRTY_BYTES: usize = 16 << 20;
/// Bytes looked at or written at a time behind the end.
const BATCH: usize = 64 << 10;
/// Time between two lines about the progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// A checkpoint this far ahead of the newest record was written under a wrong clock, ms.
const CLOCK_TOLERANCE_MS: i64 = 3_600_000;
/// Marks that a sync has failed in the last run: what was dirty then may count as clean and yet not be on disk.
pub(super) const SYNC_FAILED: &str = "sync_failed";

/// What recovery works on.
pub(super) struct Recovery<'a> {
    /// Configuration.
    pub(super) config: &'a StoreConfig,
    /// File system.
    pub(super) fs: &'a dyn Fs,
    /// Folder of the log's files.
    pub(super) dir: &'a Path,
    /// The log's files.
    pub(super) segments: Vec<Segment>,
    /// The checkpoint as it was found.
    pub(super) positions: Positions,
    /// The last run ended in order.
    pub(super) clean: bool,
    /// Loaded consume queues.
    pub(super) queues: &'a ConsumeQueueTable,
    /// Loaded key index.
    pub(super) index: Option<&'a Index>,
    /// What the log still holds of them is passed over.
    pub(super) deleted: &'a DeletedTopics,
    /// Into these queues and the index.
    pub(super) dispatcher: &'a Dispatcher,
}

/// The log as it can be trusted.
#[derive(Debug)]
pub(super) struct Recovered {
    /// Its files.
    pub(super) files: Vec<Arc<MappedFile>>,
    /// Behind the last record.
    pub(super) end: i64,
    /// Start of the last record found; 0 with none.
    pub(super) last_record: i64,
    /// Store time of the last record found; 0 with none.
    pub(super) last_store_timestamp: i64,
    /// What was done.
    pub(super) report: Report,
}

/// What recovery did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Files walked over.
    pub(super) files: usize,
    /// Records that counted.
    pub(super) records: u64,
    /// Of them, dispatched (again).
    pub(super) dispatched: u64,
    /// Records that could not be dispatched.
    pub(super) undispatched: u64,
    /// Bytes of the tail that were cut, not counting zeros.
    pub(super) truncated_bytes: u64,
    /// Holes sealed.
    pub(super) sealed: u64,
    /// Their bytes.
    pub(super) sealed_bytes: u64,
    /// Milliseconds it took.
    pub(super) ms: u128,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { files, records, dispatched, undispatched, truncated_bytes, sealed, sealed_bytes, ms } = self;
        write!(f, "files={files} records={records} dispatched={dispatched} undispatched={undispatched} ")?;
        write!(f, "truncated_bytes={truncated_bytes} sealed={sealed} sealed_bytes={sealed_bytes} ms={ms}")
    }
}

/// Where the walk is.
#[derive(Default)]
struct Walk {
    report: Report,
    last_record: i64,
    last_store_timestamp: i64,
}

impl Recovery<'_> {
    /// Recovers log, queues and index.
    ///
    /// # Errors
    /// The system's; a hole between files. Nothing of the log was cut in that case.
    pub(super) fn run(mut self) -> Result<Recovered, StoreError> {
        let started = Instant::now();
        if !self.config.check_crc_on_recover {
            log::warn!("damaged bodies will not be noticed: checkCRCOnRecover=false");
        }
        self.warn_of_missing_files();
        self.queues.remove_deleted(&self.deleted.read())?;
        let start = self.start_place()?;
        let mut walk = Walk::default();
        let end = if self.segments.is_empty() { Place { index: 0, at: 0 } } else { self.walk(start, &mut walk)? };
        let end_offset = self.offset(end);
        if !self.segments.is_empty() {
            walk.report.truncated_bytes = self.cut(end)?;
            self.sync_from(start.index, end)?;
        } else if self.queues.max_physical_offset() > 0 {
            log::error!("the commit log has no files, all consume queues are emptied: dir={}", self.dir.display());
        }
        self.write_tails();
        self.queues.truncate_behind(end_offset)?;
        if let Some(Err(error)) = self.index.map(|index| index.end_at(end_offset)) {
            log::warn!("index not cut behind the log, keys may be missing in it: {error}");
        }
        self.queues.settle(self.segments.first().map_or(0, |segment| segment.start));
        let Walk { mut report, last_record, last_store_timestamp } = walk;
        report.ms = started.elapsed().as_millis();
        Ok(Recovered { files: self.map(end)?, end: end_offset, last_record, last_store_timestamp, report })
    }

    fn offset(&self, place: Place) -> i64 {
        self.segments.get(place.index).map_or(0, |segment| segment.start) + place.at as i64
    }

    fn file_size(&self) -> usize {
        self.config.commit_log_file_size
    }

    fn warn_of_missing_files(&self) {
        for pair in self.segments.windows(2) {
            let end = pair[0].start + self.file_size() as i64;
            if end != pair[1].start {
                log::error!("commit log files are missing: dir={} from={end} to={}", self.dir.display(), pair[1].start);
            }
        }
    }

    /// Where to begin: after a clean stop at the last record that was dispatched, if the checkpoint and the queues agree on it.
    fn start_place(&self) -> Result<Place, StoreError> {
        let file = Place { index: self.start_file()?, at: 0 };
        let offset = self.positions.logics_offset;
        let holds = |segment: &Segment| (segment.start..segment.start + self.file_size() as i64).contains(&offset);
        let Some(index) = self.segments.iter().position(holds).filter(|_| self.clean) else { return Ok(file) };
        let last = Place { index, at: (offset - self.segments[index].start) as usize };
        if last <= file || offset > self.queues.damaged_from().unwrap_or(i64::MAX) {
            return Ok(file);
        }
        let mut scanner = self.scanner(last);
        let agreed = match scanner.next()? {
            Found::Record(record, place) => {
                let in_queue = offset + record.total_size as i64 <= self.queues.max_physical_offset();
                place == last && in_queue && record.store_timestamp == self.positions.logics_timestamp
            }
            _ => false,
        };
        Ok(if agreed { last } else { file })
    }

    fn scanner(&self, start: Place) -> Scanner<'_> {
        let mut scanner = Scanner::new(&self.segments, self.file_size(), self.config.check_crc_on_recover, start.index);
        scanner.go_to(start);
        scanner
    }

    /// The file to begin with: everything before it is known to be whole and dispatched.
    fn start_file(&self) -> Result<usize, StoreError> {
        let damaged_from = self.queues.damaged_from().unwrap_or(i64::MAX); // a queue has lost units from here on
        let whole = self.last_file(|start, _| start <= damaged_from)?;
        let dispatched = self.queues.max_physical_offset();
        if self.clean {
            return Ok(whole.min(self.last_file(|start, _| start <= dispatched)?));
        }
        let logics_offset = self.positions.logics_offset;
        let min_timestamp = self.trusted_min_timestamp()?;
        let by_time = self.last_file(|_, store_timestamp| store_timestamp <= min_timestamp)?;
        let by_offset = self.last_file(|start, _| logics_offset > 0 && start <= logics_offset)?;
        Ok(if logics_offset > 0 { whole.min(by_time).min(by_offset) } else { whole.min(by_time) })
    }

    /// The last file whose first record counts and pleases (start of the file, store time); the first file if none does.
    fn last_file(&self, pleases: impl Fn(i64, i64) -> bool) -> Result<usize, StoreError> {
        for (index, segment) in self.segments.iter().enumerate().skip(1).rev() {
            if let Some(store_timestamp) = first_store_time(segment, self.file_size(), self.config.check_crc_on_recover)?
                && pleases(segment.start, store_timestamp)
            {
                return Ok(index);
            }
        }
        Ok(0)
    }

    /// The checkpoint's time, unless it lies far behind the newest file's first record.
    fn trusted_min_timestamp(&self) -> Result<i64, StoreError> {
        let mut newest = None;
        for segment in self.segments.iter().rev() {
            newest = first_store_time(segment, self.file_size(), self.config.check_crc_on_recover)?;
            if newest.is_some() {
                break;
            }
        }
        let modified = self.segments.last().and_then(|segment| segment.file.modified_ms().ok()).unwrap_or(0);
        let limit = newest.unwrap_or(0).max(modified).saturating_add(CLOCK_TOLERANCE_MS);
        if self.positions.physic_timestamp > limit {
            log::warn!("checkpoint ignored, its time is ahead of the log: checkpoint_ms={}", self.positions.physic_timestamp);
            return Ok(0);
        }
        Ok(self.positions.min_timestamp())
    }

    /// Walks from `start` on to the end of what counts.
    fn walk(&self, start: Place, walk: &mut Walk) -> Result<Place, StoreError> {
        log::info!(
            "recovering: clean={} first_file={} files={} offset={}",
            self.clean,
            self.segments[start.index].path.display(),
            self.segments.len() - start.index,
            self.offset(start)
        );
        let mut scanner = self.scanner(start);
        let mut last_line = Instant::now();
        loop {
            match scanner.next()? {
                Found::Record(record, place) => {
                    let offset = self.segments[place.index].start + place.at as i64;
                    self.dispatch(&record, offset, walk);
                    if walk.report.records.is_multiple_of(4096) {
                        self.keep_up(place, walk, &mut last_line);
                    }
                }
                Found::End(place) => return Ok(self.ended(start.index, place, walk)),
                Found::Invalid(place, why) => match self.behind_damage(place, &why, walk)? {
                    Some(next) => scanner.go_to(next),
                    None => return Ok(self.ended(start.index, place, walk)),
                },
            }
        }
    }

    fn ended(&self, first: usize, end: Place, walk: &mut Walk) -> Place {
        walk.report.files = end.index + 1 - first;
        end
    }

    fn dispatch(&self, record: &crate::common::record::Record<'_>, offset: i64, walk: &mut Walk) {
        walk.report.records += 1;
        (walk.last_record, walk.last_store_timestamp) = (offset, record.store_timestamp);
        match self.dispatcher.dispatch(record, offset) {
            Ok(_) => walk.report.dispatched += 1, // or it needed none
            Err(error) => {
                walk.report.undispatched += 1;
                if walk.report.undispatched <= 10 {
                    log::error!("record not dispatched: offset={offset} topic={} queue_id={} error={error}", record.topic, record.queue_id);
                }
            }
        }
    }

    /// Bounds the memory that dispatching takes, and says how far recovery is.
    fn keep_up(&self, place: Place, walk: &Walk, last_line: &mut Instant) {
        if self.queues.dirty_bytes() > MAX_DIRTY_BYTES {
            self.write_tails();
        }
        if last_line.elapsed() >= PROGRESS {
            *last_line = Instant::now();
            let (files, offset) = (self.segments.len(), self.offset(place));
            log::info!("recovering: file={} of={files} offset={offset} records={}", place.index + 1, walk.report.records);
        }
    }

    /// A disk without room for queues does not keep the store from starting: their tails stay in memory.
    fn write_tails(&self) {
        if let Err(error) = self.queues.flush(false) {
            log::warn!("consume queues not written yet: {error}");
        }
    }

    /// What to do at an invalid record: `None` cuts the log here; otherwise the damage has been sealed and the walk goes on.
    fn behind_damage(&self, at: Place, why: &str, walk: &mut Walk) -> Result<Option<Place>, StoreError> {
        let mut from = at;
        loop {
            let Some(next) = find_record(&self.segments, self.file_size(), from, walk.last_store_timestamp)? else {
                return Ok(None);
            };
            let holes = Hole::between(at, next, self.file_size());
            if self.never_arrived(at, &holes)? {
                log::warn!("unfinished writes are cut: offset={} reason={why}", self.offset(at));
                return Ok(None);
            }
            if holes.iter().all(|hole| hole.can_be_sealed(self.file_size())) {
                self.seal(&holes, why, walk)?;
                return Ok(Some(next));
            }
            from = next; // too small for any record: what was found there is not one
        }
    }

    /// The ordinary power cut under SYNC_FLUSH: a page of a group did not arrive although a later one did. Nothing of the
    /// group, nor behind it, has been acknowledged.
    fn never_arrived(&self, at: Place, holes: &[Hole]) -> Result<bool, StoreError> {
        let sync_flush = self.config.flush_disk_type == FlushDiskType::Sync;
        let flushed = self.positions.flushed_offset;
        if !sync_flush || self.clean || flushed.is_none_or(|flushed| self.offset(at) < flushed) {
            return Ok(false);
        }
        for hole in holes {
            if seal::has_zero_sector(&self.segments[hole.place.index], *hole)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn seal(&self, holes: &[Hole], why: &str, walk: &mut Walk) -> Result<(), StoreError> {
        for hole in holes {
            let segment = &self.segments[hole.place.index];
            let kept = seal::keep(self.fs, &self.config.root, segment, *hole)?;
            seal::seal(segment, *hole, self.file_size(), walk.last_store_timestamp)?;
            let (offset, bytes) = (self.offset(hole.place), hole.end - hole.place.at);
            walk.report.sealed += 1;
            walk.report.sealed_bytes += bytes as u64;
            log::error!("damaged records are lost: offset={offset} bytes={bytes} reason={why} kept={}", kept.display());
        }
        Ok(())
    }

    /// Removes the files behind the one in which the log ends, and zeroes the rest of that one. Returns the bytes that were
    /// not zero.
    fn cut(&mut self, end: Place) -> Result<u64, StoreError> {
        for segment in self.segments.drain(end.index + 1..).rev() {
            log::warn!("file behind the end of the log removed: path={}", segment.path.display());
            self.fs.remove_file(&segment.path).map_err(|error| StoreError::Io("remove", segment.path, error))?;
            // one after the other: a crash must not leave a hole
            self.fs.sync_dir(self.dir).map_err(|error| StoreError::Io("sync", self.dir.to_owned(), error))?;
        }
        let segment = &self.segments[end.index];
        let blank = blank_at(segment, end.at, self.file_size())?;
        let zeroed = zero(segment, end.at + blank, self.file_size())?;
        if zeroed > 0 {
            log::warn!("the log ends here, what lay behind is cut: offset={} bytes={zeroed}", self.offset(end));
        }
        Ok(zeroed)
    }

    /// Makes what was walked over durable.
    fn sync_from(&self, first: usize, end: Place) -> Result<(), StoreError> {
        let mark = self.config.root.join(SYNC_FAILED);
        let failed_before = self.fs.exists(&mark);
        if failed_before {
            self.write_again(end)?;
        }
        for segment in &self.segments[first..=end.index] {
            segment.file.sync_data().map_err(|error| StoreError::Io("sync", segment.path.clone(), error))?;
        }
        if !self.clean {
            // the last process may have died before it made the files' names durable
            self.fs.sync_dir(self.dir).map_err(|error| StoreError::Io("sync", self.dir.to_owned(), error))?;
        }
        if failed_before {
            self.fs.remove_file(&mark).map_err(|error| StoreError::Io("remove", mark, error))?;
        }
        Ok(())
    }

    /// Writes the bytes that a failed sync may have lost once more, so that they count as not on disk.
    fn write_again(&self, end: Place) -> Result<(), StoreError> {
        let from = self.positions.flushed_offset.unwrap_or(0);
        log::warn!("a sync failed in the last run, the log is written again from there: offset={from} end={}", self.offset(end));
        let mut buffer = vec![0; BATCH];
        for (index, segment) in self.segments.iter().enumerate() {
            let first = (from - segment.start).clamp(0, self.file_size() as i64) as usize;
            let last = if index == end.index { end.at } else { self.file_size() };
            for at in (first..last).step_by(BATCH) {
                let piece = &mut buffer[..BATCH.min(last - at)];
                segment.file.read_exact_at(piece, at as u64).map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
                if piece.iter().any(|byte| *byte != 0) {
                    segment.file.write_all_at(piece, at as u64).map_err(|error| StoreError::Io("write", segment.path.clone(), error))?;
                }
            }
        }
        Ok(())
    }

    fn map(&self, end: Place) -> Result<Vec<Arc<MappedFile>>, StoreError> {
        let size = self.file_size();
        let map = |(index, segment): (usize, &Segment)| {
            let wrote = if index == end.index { end.at } else { size };
            MappedFile::map(Arc::clone(&segment.file), &segment.path, segment.start, size, wrote).map(Arc::new)
        };
        self.segments.iter().enumerate().map(map).collect()
    }
}

/// Length of the blank record at a position: 0 when there is none.
fn blank_at(segment: &Segment, at: usize, file_size: usize) -> Result<usize, StoreError> {
    let mut bytes = [0; crate::common::record::BLANK_SIZE];
    if at + bytes.len() > file_size {
        return Ok(0);
    }
    segment.file.read_exact_at(&mut bytes, at as u64).map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
    let is_blank = bytes[4..] == crate::common::record::MAGIC_BLANK.to_be_bytes();
    Ok(if is_blank { bytes.len() } else { 0 })
}

/// Zeroes a file from `from` on; returns how many bytes were not zero. Holes stay holes.
fn zero(segment: &Segment, from: usize, file_size: usize) -> Result<u64, StoreError> {
    let failed = |what| move |error| StoreError::Io(what, segment.path.clone(), error);
    let (mut buffer, zeros) = (vec![0; BATCH], vec![0; BATCH]);
    let (mut at, mut zeroed) = (from, 0);
    while let Some(data) = segment.file.next_data(at as u64).map_err(failed("read"))?.filter(|data| *data < file_size as u64) {
        at = at.max(data as usize);
        let len = BATCH.min(file_size - at);
        segment.file.read_exact_at(&mut buffer[..len], at as u64).map_err(failed("read"))?;
        let dirty = buffer[..len].iter().filter(|byte| **byte != 0).count();
        if dirty > 0 {
            segment.file.write_all_at(&zeros[..len], at as u64).map_err(failed("zero"))?;
            zeroed += dirty as u64;
        }
        at += len;
    }
    Ok(zeroed)
}
