//! What to trust after a clean or an abrupt stop. The only code that cuts the log.
//!
//! The log is the truth: it is walked from a place from which on everything may be missing somewhere, each record that counts
//! is dispatched again (which changes nothing where it has been), and the consume queues are cut behind its end.
//! - Only an invalid tail is cut, and what lay behind it is zeroed: an old record right behind a new tail must not come back.
//! - Damage with records behind it costs what is damaged: the bytes are kept under `lost/`, the hole is sealed.
//! - Every file walked over is synced before anything of it may become visible.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::record::Record;

use super::checkpoint::{Checkpoint, Positions};
use super::config::StoreConfig;
use super::consume_queue_table::{ConsumeQueueTable, is_one_component};
use super::deleted_topics::DeletedTopics;
use super::deleted_topics::Marks;
use super::dispatch::{Dispatcher, Put, has_unit};
use super::error::StoreError;
use super::fs::Fs;
use super::index::Index;
use super::log_folders::LogFolders;
use super::mapped_file::MappedFile;
use super::mapped_file_queue::Segment;
use super::scan::{Found, Place, Reads, Scanner, missing_files};
use super::seal::is_seal;
use super::start_place::{BEGIN, StartPlace, points_home};

mod damage;
mod witness;

use witness::{ANOTHERS, Misnamed, Standing, Witness};

/// Units of consume queues that may wait in memory while recovery dispatches, bytes.
const MAX_DIRTY_BYTES: usize = 16 << 20;
/// Bytes looked at or written at a time behind the end.
const BATCH: usize = 64 << 10;
/// Time between two lines about the progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// Marks that a sync has failed in the last run: what was dirty then may count as clean and yet not be on disk.
pub(super) const SYNC_FAILED: &str = "sync_failed";

/// What recovery works on.
pub(super) struct Recovery<'a> {
    /// Configuration.
    pub(super) config: &'a StoreConfig,
    /// File system.
    pub(super) fs: &'a dyn Fs,
    /// Folders of the log's files.
    pub(super) folders: &'a LogFolders,
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
    /// Where it is noted that the queues have lost something.
    pub(super) checkpoint: &'a Checkpoint,
    /// Whether it has been.
    pub(super) distrusted: Cell<bool>,
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
    /// What the checkpoint says of the queues is not true any more.
    pub(super) distrusted: bool,
    /// What was done.
    pub(super) report: RecoveryReport,
}

/// What recovery did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Files walked over.
    pub files: usize,
    /// Records that counted.
    pub records: u64,
    /// Of them, dispatched (again).
    pub dispatched: u64,
    /// Records that could not be dispatched.
    pub undispatched: u64,
    /// Bytes of the tail that were cut, not counting zeros.
    pub truncated_bytes: u64,
    /// Holes sealed.
    pub sealed: u64,
    /// Their bytes.
    pub sealed_bytes: u64,
    /// Milliseconds it took.
    pub ms: u128,
}

impl std::fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { files, records, dispatched, undispatched, truncated_bytes, sealed, sealed_bytes, ms } = self;
        write!(f, "files={files} records={records} dispatched={dispatched} undispatched={undispatched} ")?;
        write!(f, "truncated_bytes={truncated_bytes} sealed={sealed} sealed_bytes={sealed_bytes} ms={ms}")
    }
}

/// Where the walk is.
#[derive(Default)]
struct Walk {
    report: RecoveryReport,
    last_record: i64,
    last_store_timestamp: i64,
    /// Where the walk began; the lowest number when nothing lies before.
    from: i64,
    /// Queues lack records that lie behind this.
    gap_from: Option<i64>,
    /// Store time of the record before the last one.
    store_timestamp_before: i64,
    /// What was found where the log ends.
    end_reason: String,
}

impl Walk {
    /// Store time that records to come cannot lie before; one of the last two may be damaged.
    fn time_of_neighbours(&self) -> i64 {
        self.last_store_timestamp.min(self.store_timestamp_before)
    }
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
        self.check_queues()?;
        let indexed = self.index.map(|index| index.last().1);
        let (start, end, mut walk) = self.walk_all()?;
        if indexed.is_some_and(|indexed| indexed < self.positions.index_last.min(walk.from)) {
            log::warn!(
                "key index lacks records that it had, queries by key do not find them: from={} to={} (`petrel store repair` builds it anew)",
                indexed.unwrap_or(0),
                self.positions.index_last.min(walk.from)
            );
        }
        let end_offset = self.offset(end);
        if !self.segments.is_empty() {
            walk.report.truncated_bytes = self.cut(end, &walk.end_reason)?;
            self.sync_from(start.index, end)?;
        }
        self.write_tails();
        self.queues.truncate_behind(end_offset)?;
        if let Some(Err(error)) = self.index.map(|index| index.end_at(end_offset)) {
            log::warn!("index not cut behind the log, keys may be missing in it: {error}");
        }
        self.queues.settle(self.segments.first().map_or(0, |segment| segment.start), &self.dispatcher.take_seals());
        let Walk { mut report, last_record, last_store_timestamp, .. } = walk;
        report.ms = started.elapsed().as_millis();
        Ok(Recovered {
            files: self.map(end)?,
            end: end_offset,
            last_record,
            last_store_timestamp,
            distrusted: self.distrusted.get(),
            report,
        })
    }

    /// Gives up what the queues have wrong, as far as that shows before the log is read.
    fn check_queues(&self) -> Result<(), StoreError> {
        let noted = self.positions.queues_digest;
        let as_noted = noted != 0 && noted == self.queues.digest() && self.queues.damaged_from().is_none();
        if self.queues.damaged_from().is_some() || self.clean && noted != 0 && !as_noted {
            self.distrust_checkpoint()?;
        }
        self.queues.repair_files()?;
        if !self.clean && self.fs.exists(&self.config.root.join(SYNC_FAILED)) {
            // what lies behind may count as on disk without being there: it is put, and so written, once more
            self.queues.truncate_behind(self.positions.logics_offset)?;
        }
        self.queues.remove_deleted(&self.deleted.read())?;
        let Some(first) = self.segments.first().filter(|_| !self.clean || !as_noted) else { return Ok(()) };
        // a crash cannot have touched what had been synced
        let ours = self.positions.flushed_offset.is_some();
        let trusted = if !self.clean && ours && self.queues.damaged_from().is_none() { self.positions.logics_offset } else { -1 };
        self.queues.check_ends(first.start, trusted, |queue, offset, unit| {
            let holds = points_home(&self.segments, self.file_size(), queue, offset, unit)?;
            if holds { Ok(true) } else { self.distrust_checkpoint().map(|()| false) }
        })
    }

    /// The queues lack what the checkpoint says they have. Until they have it again, durably, a start after another crash must not
    /// believe it either.
    fn distrust_checkpoint(&self) -> Result<(), StoreError> {
        if self.distrusted.replace(true) { Ok(()) } else { self.checkpoint.write(self.positions.without_queues(), true) }
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
                log::error!("commit log files are missing: dir={} from={end} to={}", self.folders.shown(), pair[1].start);
            }
        }
    }

    /// What is missing between the files that will be read cannot be made up for.
    fn check_for_holes(&self, first: usize) -> Result<(), StoreError> {
        let size = self.file_size() as i64;
        let hole = self.segments[first..].windows(2).find(|pair| pair[0].start + size != pair[1].start);
        match hole.filter(|_| !self.folders.may_have_holes) {
            Some(pair) => Err(missing_files(&pair[1], pair[0].start + size)),
            None => Ok(()),
        }
    }

    fn reads(&self) -> Reads {
        if self.config.optimized_recovery { Reads::Batches } else { Reads::Records }
    }

    fn scanner(&self, start: Place) -> Scanner<'_> {
        let mut scanner = Scanner::new(&self.segments, self.file_size(), self.config, self.reads(), start.index)
            .crossing_holes(self.folders.may_have_holes);
        scanner.go_to(start);
        scanner
    }

    /// Walks over what may be missing somewhere; once more from further in front when it shows that more is missing.
    fn walk_all(&self) -> Result<(Place, Place, Walk), StoreError> {
        let marks = self.deleted.read().clone();
        let choice = StartPlace {
            segments: &self.segments,
            file_size: self.file_size(),
            checks: self.config.into(),
            positions: &self.positions,
            clean: self.clean,
            queues: self.queues,
            index: self.index,
            marks: &marks,
        };
        let mut walk = Walk::default();
        if self.segments.is_empty() {
            return Ok((BEGIN, BEGIN, walk));
        }
        let dispatched = self.queues.max_physical_offset();
        let mut start = choice.find()?;
        loop {
            let RecoveryReport { sealed, sealed_bytes, .. } = walk.report;
            let report = RecoveryReport { sealed, sealed_bytes, ..RecoveryReport::default() };
            let from = if start == BEGIN { i64::MIN } else { self.offset(start) };
            walk = Walk { report, from, ..Walk::default() };
            self.check_for_holes(start.index)?;
            let end = self.walk(start, dispatched, &marks, &mut walk)?;
            let first = self.segments[0].start;
            let again_from = if choice.believed_a_wrong_clock(walk.last_store_timestamp) { Some(first) } else { walk.gap_from };
            let Some(again_from) = again_from.map(|from| from.max(first)).filter(|from| *from < walk.from) else {
                return Ok((start, end, walk));
            };
            self.distrust_checkpoint()?;
            start = Place { index: choice.file_before(again_from)?, at: 0 };
            log::warn!("queues or checkpoint miss records in front, reading again: offset={} instead_of={}", self.offset(start), walk.from);
        }
    }

    /// Walks from `start` on to the end of what counts.
    fn walk(&self, start: Place, dispatched: i64, marks: &Marks, walk: &mut Walk) -> Result<Place, StoreError> {
        log::info!(
            "recovering: reads={} clean={} first_file={} files={} offset={}",
            self.reads(),
            self.clean,
            self.segments[start.index].path.display(),
            self.segments.len() - start.index,
            self.offset(start)
        );
        let mut scanner = self.scanner(start);
        let mut witness = Witness::new(&self.segments, self.file_size(), self.queues, dispatched, self.offset(start));
        let mut last_line = Instant::now();
        let end = loop {
            match scanner.next()? {
                Found::Record(record, place) => {
                    let behind = Place { at: place.at + record.total_size, ..place };
                    if self.take(&record, place, marks, walk, &mut witness)? {
                        scanner.go_to(behind); // what was there has been sealed
                    }
                    if walk.report.records.is_multiple_of(4096) {
                        self.keep_up(place, walk, &mut last_line);
                    }
                }
                Found::End(place) => break place,
                Found::Invalid(place, why) => match self.behind_damage(place, &why, walk, &mut witness)? {
                    Some(next) => scanner.go_to(next),
                    None => {
                        walk.end_reason = why;
                        break place;
                    }
                },
            }
        };
        walk.report.files = end.index + 1 - start.index;
        for place in witness.release_all() {
            self.dispatch_at(place, walk)?;
        }
        for record in witness.unseen(self.offset(end))? {
            self.seal_misnamed(&record, walk, &mut witness)?;
        }
        Ok(end)
    }

    /// Takes a record in; whether it was sealed instead.
    fn take(
        &self, record: &Record<'_>, place: Place, marks: &Marks, walk: &mut Walk, witness: &mut Witness<'_>,
    ) -> Result<bool, StoreError> {
        let offset = self.offset(place);
        if !has_unit(record.sys_flag) || marks.hide(record.topic, offset) {
            if is_seal(record) {
                witness.note_seal(offset..offset + record.total_size as i64);
            }
            self.dispatch(record, offset, walk);
            return Ok(false);
        }
        if !is_one_component(record.topic) {
            let why = "its topic cannot be one";
            self.seal_misnamed(&Misnamed { place, size: record.total_size, identity: None, why }, walk, witness)?;
            return Ok(true);
        }
        match witness.release(record) {
            Some(Ok(waiting)) => self.dispatch_at(waiting, walk)?,
            Some(Err(misnamed)) => self.seal_misnamed(&misnamed, walk, witness)?,
            None => {}
        }
        match witness.look_at(record, offset)? {
            Standing::Sound => self.dispatch(record, offset, walk),
            Standing::Displaced(queue) => {
                self.dispatch(record, offset, walk);
                queue.replace(record.queue_offset, self.dispatcher.unit_of(record, offset))?;
            }
            Standing::Doubtful(queue) => {
                self.dispatcher.index_ahead(record, offset);
                witness.keep_waiting(&queue, record.queue_offset, place, record.total_size);
            }
            Standing::Misnamed(identity) => {
                let misnamed = Misnamed { place, size: record.total_size, identity: Some(identity), why: ANOTHERS };
                self.seal_misnamed(&misnamed, walk, witness)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Dispatches a record that had to wait.
    fn dispatch_at(&self, place: Place, walk: &mut Walk) -> Result<(), StoreError> {
        let bytes = self.read_at(place)?.unwrap_or_default();
        if let Ok(record) = Record::parse(&bytes) {
            self.dispatch(&record, self.offset(place), walk);
        }
        Ok(())
    }

    fn dispatch(&self, record: &Record<'_>, offset: i64, walk: &mut Walk) {
        walk.report.records += 1;
        if offset >= walk.last_record {
            walk.store_timestamp_before = walk.last_store_timestamp;
            (walk.last_record, walk.last_store_timestamp) = (offset, record.store_timestamp);
        }
        match self.dispatcher.dispatch_in_walk(record, offset, walk.from) {
            Ok(Put::MissingBefore(from)) => walk.gap_from = Some(walk.gap_from.map_or(from, |known| known.min(from))),
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

    /// Removes the files behind the one in which the log ends, and zeroes the rest of that one. Returns the bytes that were
    /// not zero.
    fn cut(&mut self, end: Place, reason: &str) -> Result<u64, StoreError> {
        for segment in self.segments.drain(end.index + 1..).rev() {
            let folder = segment.path.parent().unwrap_or(Path::new(".")).to_owned();
            log::warn!("file behind the end of the log removed: path={}", segment.path.display());
            self.fs.remove_file(&segment.path).map_err(|error| StoreError::Io("remove", segment.path, error))?;
            // one after the other: a crash must not leave a hole
            self.fs.sync_dir(&folder).map_err(|error| StoreError::Io("sync", folder, error))?;
        }
        let segment = &self.segments[end.index];
        let blank = blank_at(segment, end.at, self.file_size())?;
        let zeroed = zero(segment, end.at + blank, self.file_size())?;
        if zeroed > 0 {
            let was_on_disk = self.positions.flushed_offset.is_some_and(|flushed| self.offset(end) < flushed);
            log::log!(
                if was_on_disk { log::Level::Error } else { log::Level::Warn },
                "the log ends here, what lay behind is cut: file={} offset={} bytes={zeroed} reason={reason}",
                segment.path.display(),
                self.offset(end)
            );
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
        let folders: BTreeSet<_> = self.segments.iter().filter_map(|segment| segment.path.parent()).collect();
        for folder in folders.into_iter().filter(|_| !self.clean) {
            // the last process may have died before it made the files' names durable
            self.fs.sync_dir(folder).map_err(|error| StoreError::Io("sync", folder.to_owned(), error))?;
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
///
/// # Errors
/// The system's.
pub(super) fn blank_at(segment: &Segment, at: usize, file_size: usize) -> Result<usize, StoreError> {
    let mut bytes = [0; crate::common::record::BLANK_SIZE];
    if at + bytes.len() > file_size {
        return Ok(0);
    }
    segment.file.read_exact_at(&mut bytes, at as u64).map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
    let is_blank = bytes[4..] == crate::common::record::MAGIC_BLANK.to_be_bytes();
    Ok(if is_blank { bytes.len() } else { 0 })
}

/// Zeroes a file from `from` on; returns how many bytes were not zero. Holes stay holes.
///
/// # Errors
/// The system's.
pub(super) fn zero(segment: &Segment, from: usize, file_size: usize) -> Result<u64, StoreError> {
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
