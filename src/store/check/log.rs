//! The whole log, record by record, as recovery would walk it, over holes that recovery would stop at as well.
//!
//! - What counts as a record, and what is looked for behind damage, is recovery's.
//! - Files that are gone are walked over: what lies behind them is there all the same.

use std::path::PathBuf;

use crate::common::record::{self, Record};
use crate::store::error::StoreError;
use crate::store::mapped_file_queue::Segment;
use crate::store::recovery::blank_at;
use crate::store::scan::{Checks, Found, Place, Reads, Scanner, Wanted, find_end_of_damage};
use crate::store::seal::{self, Hole, Seals};

use super::layout::LogFiles;

/// Records between two looks at the clock for the progress.
const PROGRESS_RECORDS: u32 = 1024;
/// Bytes read at a time behind the last record.
const BATCH: usize = 64 << 10;

/// Who is told what the walk finds, in the order of physical offsets.
pub(in crate::store) trait Visitor {
    /// A record at a physical offset.
    fn record(&mut self, record: &Record<'_>, offset: i64);
    /// The rest of a file, behind its last record: whatever is in there was given up.
    fn blank(&mut self, start: i64, end: i64);
    /// Something that is no record.
    fn damage(&mut self, damage: &Damage);
    /// The walk has come so far.
    fn progress(&mut self, offset: i64);
}

/// Bytes in the middle of the log that are no records; within one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Damage {
    /// From here.
    pub(in crate::store) start: i64,
    /// To here.
    pub(in crate::store) end: i64,
    /// In this file of [`LogFiles::segments`].
    pub(in crate::store) index: usize,
    /// What is wrong at its begin.
    pub(in crate::store) why: String,
    /// A sector of it is zeros.
    pub(in crate::store) zero_sector: bool,
    /// There is nothing in it, and it reaches to the end of its file.
    pub(in crate::store) is_missing_blank: bool,
    /// Topic, queue and queue offset of the record at its begin, where they can be read.
    pub(in crate::store) record: Option<(String, i32, i64)>,
    /// Store time of the record in front of it.
    pub(in crate::store) store_timestamp: i64,
}

impl Damage {
    /// The hole, to be sealed.
    pub(in crate::store) fn hole(&self, segments: &[Segment], file_size: usize) -> Hole {
        let start = segments[self.index].start;
        let at = (self.start - start) as usize;
        Hole { place: Place { index: self.index, at }, end: ((self.end - start) as usize).min(file_size) }
    }
}

/// A blank record that states another length than it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct WrongBlank {
    /// File in [`LogFiles::segments`].
    pub(in crate::store) index: usize,
    /// Position in it.
    pub(in crate::store) at: usize,
    /// What it states.
    pub(in crate::store) stated: i32,
}

/// What lies behind the last record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Tail {
    /// Where the log ends: file and position. File 0 when there is none.
    pub(in crate::store) index: usize,
    /// Position in that file.
    pub(in crate::store) at: usize,
    /// Physical offset.
    pub(in crate::store) end: i64,
    /// What is wrong there.
    pub(in crate::store) why: String,
    /// First position in that file that is not zero, and behind the last one.
    pub(in crate::store) dirty: Option<(usize, usize)>,
    /// Files behind it, each with whether there is anything in it.
    pub(in crate::store) surplus: Vec<(PathBuf, bool)>,
}

/// What a walk came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Walked {
    /// Damage in the middle.
    pub(in crate::store) damage: Vec<Damage>,
    /// Wrong blank records.
    pub(in crate::store) blanks: Vec<WrongBlank>,
    /// Gaps between files: from, to.
    pub(in crate::store) gaps: Vec<(i64, i64)>,
    /// The end.
    pub(in crate::store) tail: Tail,
    /// Start and store time of the last record.
    pub(in crate::store) last_record: Option<(i64, i64)>,
}

/// What a walk goes by.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Rules {
    /// A record needs a CRC of all of it (`forceVerifyPropCRC`); else that of its body has to be right.
    pub(in crate::store) record_crc: bool,
    /// Up to here the log is known to have been on disk.
    pub(in crate::store) flushed: i64,
    /// What is no record is read again so often before it is believed: somebody may just be writing it.
    pub(in crate::store) retries: u32,
}

/// Walks over the log.
///
/// # Errors
/// The system's.
pub(in crate::store) fn walk(files: &LogFiles, rules: Rules, visitor: &mut dyn Visitor) -> Result<Walked, StoreError> {
    let mut walk = Walk { files, rules, visitor, walked: Walked::default(), time_before: 0, since_progress: 0 };
    let size = files.file_size as i64;
    let mut first = 0;
    while first < files.segments.len() {
        let contiguous = files.segments[first..].windows(2).take_while(|pair| pair[0].start + size == pair[1].start).count() + 1;
        let behind = first + contiguous;
        walk.run(first, behind)?;
        if let Some(next) = files.segments.get(behind) {
            walk.walked.gaps.push((files.segments[behind - 1].start + size, next.start));
        }
        first = behind;
    }
    Ok(walk.walked)
}

struct Walk<'a> {
    files: &'a LogFiles,
    rules: Rules,
    visitor: &'a mut dyn Visitor,
    walked: Walked,
    /// Store time of the record before the last.
    time_before: i64,
    since_progress: u32,
}

impl Walk<'_> {
    /// Files `first..behind`, with none missing in between. The log ends in the last run only.
    fn run(&mut self, first: usize, behind: usize) -> Result<(), StoreError> {
        let (files, size) = (self.files, self.files.file_size);
        let segments = &files.segments[first..behind];
        let is_last = behind == files.segments.len();
        let checks = Checks { body_crc: true, record_crc: self.rules.record_crc };
        let mut scanner = Scanner::new(segments, size, checks, Reads::Batches, 0);
        let mut retries = self.rules.retries;
        let mut expected = Place { index: 0, at: 0 }; // behind the last record
        loop {
            let (at, why) = match scanner.next()? {
                Found::Record(record, place) => {
                    let next = Place { at: place.at + record.total_size, ..place };
                    let offset = segments[place.index].start + place.at as i64;
                    self.blanks(first, segments, expected, place.index)?;
                    self.time_before = self.walked.last_record.map_or(0, |(_, time)| time);
                    self.walked.last_record = Some((offset, record.store_timestamp));
                    self.visitor.record(&record, offset);
                    self.moved(offset);
                    (expected, retries) = (next, self.rules.retries);
                    continue;
                }
                Found::End(place) => {
                    self.blanks(first, segments, expected, place.index)?;
                    self.blanks(first, segments, place, place.index + 1)?;
                    return if is_last { self.tail(first, place, String::new()) } else { Ok(()) };
                }
                Found::Invalid(place, why) => (place, why),
            };
            if retries > 0 {
                retries -= 1;
                scanner.go_to(at);
                continue;
            }
            self.blanks(first, segments, expected, at.index)?;
            let next = self.behind_damage(segments, at)?;
            let end = match next {
                Some(next) => next,
                None if is_last => return self.tail(first, at, why),
                None => Place { index: segments.len() - 1, at: size },
            };
            for hole in Hole::between(at, end, size) {
                self.damage(first, segments, hole, &why)?;
            }
            if next.is_none() {
                return Ok(());
            }
            scanner.go_to(end);
            expected = end;
        }
    }

    /// Where records go on, with holes in front of it that records can fill: a smaller hole cannot come of whole records.
    fn behind_damage(&self, segments: &[Segment], at: Place) -> Result<Option<Place>, StoreError> {
        let size = self.files.file_size;
        let last_time = self.walked.last_record.map_or(0, |(_, store_timestamp)| store_timestamp);
        let Rules { record_crc, flushed, .. } = self.rules;
        let wanted = Wanted { not_before: last_time.min(self.time_before), unless_before: flushed, record_crc };
        let seals = Seals { record_crc, store_timestamp: last_time };
        let mut from = at;
        loop {
            let Some(next) = find_end_of_damage(segments, size, from, wanted)? else { return Ok(None) };
            if Hole::between(at, next, size).iter().all(|hole| hole.can_be_sealed(seals, size)) {
                return Ok(Some(next));
            }
            from = next;
        }
    }

    /// The walk went from `from` to another file: over a blank record in each file it left.
    fn blanks(&mut self, first: usize, segments: &[Segment], from: Place, to: usize) -> Result<(), StoreError> {
        for (passed, segment) in segments[from.index..to.max(from.index)].iter().enumerate() {
            let (index, at) = (from.index + passed, if passed == 0 { from.at } else { 0 });
            let left = self.files.file_size - at;
            if left < record::BLANK_SIZE {
                continue;
            }
            let mut bytes = [0; 4];
            segment.file.read_exact_at(&mut bytes, at as u64).map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
            let stated = i32::from_be_bytes(bytes);
            self.visitor.blank(segment.start + at as i64, segment.start + self.files.file_size as i64);
            if usize::try_from(stated) != Ok(left) {
                self.walked.blanks.push(WrongBlank { index: first + index, at, stated });
            }
        }
        Ok(())
    }

    fn damage(&mut self, first: usize, segments: &[Segment], hole: Hole, why: &str) -> Result<(), StoreError> {
        let segment = &segments[hole.place.index];
        let to_end = hole.end == self.files.file_size;
        let nothing = to_end && dirty(segment, hole.place.at, hole.end)?.is_none();
        let damage = Damage {
            start: segment.start + hole.place.at as i64,
            end: segment.start + hole.end as i64,
            index: first + hole.place.index,
            why: why.to_owned(),
            zero_sector: seal::has_zero_sector(segment, hole)?,
            is_missing_blank: nothing,
            record: damaged_record(segment, hole)?,
            store_timestamp: self.walked.last_record.map_or(0, |(_, store_timestamp)| store_timestamp),
        };
        self.visitor.damage(&damage);
        self.walked.damage.push(damage);
        Ok(())
    }

    /// The log ends at `end`; what lies behind?
    fn tail(&mut self, first: usize, end: Place, why: String) -> Result<(), StoreError> {
        let (files, size) = (self.files, self.files.file_size);
        let index = first + end.index;
        let segment = &files.segments[index];
        let blank = blank_at(segment, end.at, size)?;
        let mut surplus = Vec::new();
        for segment in &files.segments[index + 1..] {
            surplus.push((segment.path.clone(), dirty(segment, 0, size)?.is_some()));
        }
        let dirty = dirty(segment, end.at + blank, size)?;
        self.walked.tail = Tail { index, at: end.at, end: segment.start + end.at as i64, why, dirty, surplus };
        self.visitor.progress(files.max_offset());
        Ok(())
    }

    fn moved(&mut self, offset: i64) {
        self.since_progress += 1;
        if self.since_progress >= PROGRESS_RECORDS {
            self.since_progress = 0;
            self.visitor.progress(offset);
        }
    }
}

/// What can be read of the record at the begin of a hole: only its body, or a few of its bytes, may be damaged.
fn damaged_record(segment: &Segment, hole: Hole) -> Result<Option<(String, i32, i64)>, StoreError> {
    let failed = |error| StoreError::Io("read", segment.path.clone(), error);
    let mut size = [0; 4];
    let len = hole.end - hole.place.at;
    if len < record::MIN_SIZE {
        return Ok(None);
    }
    segment.file.read_exact_at(&mut size, hole.place.at as u64).map_err(failed)?;
    let Some(size) = usize::try_from(i32::from_be_bytes(size)).ok().filter(|size| (record::MIN_SIZE..=len).contains(size)) else {
        return Ok(None);
    };
    let mut bytes = vec![0; size];
    segment.file.read_exact_at(&mut bytes, hole.place.at as u64).map_err(failed)?;
    let record = Record::parse(&bytes).ok().filter(|record| !record.topic.is_empty());
    Ok(record.map(|record| (record.topic.to_owned(), record.queue_id, record.queue_offset)))
}

/// First position of a range that is not zero, and the one behind the last. Holes are passed over.
fn dirty(segment: &Segment, from: usize, to: usize) -> Result<Option<(usize, usize)>, StoreError> {
    let failed = |error| StoreError::Io("read", segment.path.clone(), error);
    let mut buffer = vec![0; BATCH.min(to.saturating_sub(from))];
    let (mut at, mut found) = (from, None);
    while at < to
        && let Some(data) = segment.file.next_data(at as u64).map_err(failed)?.filter(|data| *data < to as u64)
    {
        at = at.max(data as usize);
        let bytes = &mut buffer[..BATCH.min(to - at)];
        segment.file.read_exact_at(bytes, at as u64).map_err(failed)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(last);
            found = Some((found.map_or(at + first, |(first, _)| first), at + last + 1));
        }
        at += bytes.len();
    }
    Ok(found)
}
