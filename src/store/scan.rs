//! Walking the log at start: by `pread` into one buffer, so that a damaged disk is an error and not a signal.
//!
//! A record counts when its lengths add up, its CRC is right, its queue id is not negative and its physical-offset field is
//! its own position.
//! - Two ways to read, one way to judge: batches of 64 KiB, in which records lie as they were read, or each record by a read of its
//!   own. What is found is the same, whatever the log holds.

use std::io;

use memchr::memmem;

use crate::common::record::{self, Record};

use super::config::StoreConfig;
use super::error::StoreError;
use super::mapped_file_queue::Segment;

/// Bytes of a batch; a larger record is read alone.
const BATCH: usize = 64 << 10;
/// Bytes read at a time when looking for a record.
const SEARCH_BATCH: usize = 1 << 20;
/// Bytes of a record that tell its size and the size of its body, with the longest hosts.
const HEAD: usize = 88 + 24;

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// File.
    pub(super) index: usize,
    /// Position in the file.
    pub(super) at: usize,
}

/// What lies at the scanner's place.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A record; the scanner stands behind it.
    Record(Record<'a>, Place),
    /// Neither a record nor a blank record: why. The scanner stays.
    Invalid(Place, String),
    /// The last file ends here: behind its last byte, or at a blank record without a next file.
    End(Place),
}

/// How a scanner reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// 64 KiB at a time.
    Batches,
    /// The head of a record, then the record.
    Records,
}

impl Reads {
    /// Bytes that a read brings at least, as far as the file has them.
    fn least(self) -> usize {
        match self {
            Self::Batches => BATCH,
            Self::Records => 0,
        }
    }
}

impl std::fmt::Display for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Batches => "batches",
            Self::Records => "records",
        })
    }
}

/// What a record must stand besides lengths and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checks {
    /// The CRC of its body (`checkCRCOnRecover`).
    pub(super) body_crc: bool,
    /// A CRC of all of it, instead (`forceVerifyPropCRC`).
    pub(super) record_crc: bool,
}

impl From<bool> for Checks {
    fn from(body_crc: bool) -> Self {
        Self { body_crc, record_crc: false }
    }
}

impl From<&StoreConfig> for Checks {
    fn from(config: &StoreConfig) -> Self {
        Self { body_crc: config.check_crc_on_recover, record_crc: config.check_crc_on_recover && config.force_record_crc }
    }
}

/// Walks over records.
pub(super) struct Scanner<'a> {
    segments: &'a [Segment],
    file_size: usize,
    checks: Checks,
    reads: Reads,
    crosses_holes: bool,
    place: Place,
    buffer: Vec<u8>,
    /// What of the file at `place.index` is in the buffer.
    start: usize,
    len: usize,
}

impl<'a> Scanner<'a> {
    /// A scanner that stands at the start of file `index`.
    pub(super) fn new(segments: &'a [Segment], file_size: usize, checks: impl Into<Checks>, reads: Reads, index: usize) -> Self {
        let checks = checks.into();
        Self {
            segments,
            file_size,
            checks,
            reads,
            crosses_holes: false,
            place: Place { index, at: 0 },
            buffer: Vec::new(),
            start: 0,
            len: 0,
        }
    }

    /// Goes on behind files that are missing, or does not.
    pub(super) fn crossing_holes(self, crosses_holes: bool) -> Self {
        Self { crosses_holes, ..self }
    }

    /// Goes to a place.
    pub(super) fn go_to(&mut self, place: Place) {
        self.place = place;
        self.len = 0; // what is there may have been written since
    }

    /// What comes next.
    ///
    /// # Errors
    /// The system's; a hole between two files.
    pub(super) fn next(&mut self) -> Result<Found<'_>, StoreError> {
        loop {
            let place = self.place;
            let left = self.file_size - place.at;
            if left >= record::BLANK_SIZE {
                let (total, magic) = self.head()?;
                if magic != record::MAGIC_BLANK {
                    return self.record(total, magic);
                }
            }
            if place.index + 1 == self.segments.len() {
                return Ok(Found::End(place));
            }
            self.next_file()?;
        }
    }

    fn next_file(&mut self) -> Result<(), StoreError> {
        let (this, next) = (&self.segments[self.place.index], &self.segments[self.place.index + 1]);
        let end = this.start + self.file_size as i64;
        if next.start != end && !self.crosses_holes {
            return Err(missing_files(next, end));
        }
        self.go_to(Place { index: self.place.index + 1, at: 0 });
        Ok(())
    }

    fn record(&mut self, total: i32, magic: i32) -> Result<Found<'_>, StoreError> {
        let place = self.place;
        let offset = self.segments[place.index].start + place.at as i64;
        let left = self.file_size - place.at;
        let invalid = |why: String| Ok(Found::Invalid(place, why));
        if magic != record::MAGIC_V1 && magic != record::MAGIC_V2 {
            return invalid(format!("illegal magic 0x{magic:08X}"));
        }
        let Some(size) = usize::try_from(total).ok().filter(|size| (record::MIN_SIZE..=left).contains(size)) else {
            return invalid(format!("total size {total} with {left} bytes left in the file"));
        };
        if size > BATCH && !plausible(self.ensure(HEAD)?, size) {
            return invalid(format!("total size {total} that the body does not explain"));
        }
        self.ensure(size)?;
        let checks = self.checks;
        let at = place.at - self.start;
        match check(&self.buffer[at..at + size], offset, checks) {
            Ok(record) => {
                self.place.at += size;
                Ok(Found::Record(record, place))
            }
            Err(why) => Ok(Found::Invalid(place, why)),
        }
    }

    fn head(&mut self) -> Result<(i32, i32), StoreError> {
        let bytes = self.ensure(record::BLANK_SIZE)?;
        Ok((int_at(bytes, record::TOTAL_SIZE), int_at(bytes, record::MAGIC)))
    }

    /// Has `len` bytes from the place on in the buffer; they lie in the file.
    fn ensure(&mut self, len: usize) -> Result<&[u8], StoreError> {
        let at = self.place.at;
        if at < self.start || at + len > self.start + self.len {
            // from this record on: the part of it that the last batch brought is read again rather than moved
            let want = len.max(self.reads.least()).min(self.file_size - at);
            self.buffer.resize(want.max(self.buffer.len().min(BATCH)), 0);
            let segment = &self.segments[self.place.index];
            segment
                .file
                .read_exact_at(&mut self.buffer[..want], at as u64)
                .map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
            (self.start, self.len) = (at, want);
        }
        let from = at - self.start;
        Ok(&self.buffer[from..from + len])
    }
}

/// What a start says of files that are missing in front of `next`, from offset `end` on.
pub(super) fn missing_files(next: &Segment, end: i64) -> StoreError {
    let why = format!(
        "the log has no file for offsets {end} to {}: put the missing files back, or set allowCommitLogHole=true to go on without their \
         messages",
        next.start
    );
    StoreError::Damaged(next.path.clone(), why)
}

/// Whether a record of `size` bytes can have the body length its head names.
fn plausible(head: &[u8], size: usize) -> bool {
    let body_len_at = record::store_timestamp_at(int_at(head, record::SYS_FLAG)) + 8 + 8 + 4 + 8;
    let extra = if int_at(head, record::SYS_FLAG) & crate::common::sysflag::STORE_HOST_V6 != 0 { 12 } else { 0 };
    let body_len = usize::try_from(int_at(head, body_len_at + extra)).unwrap_or(0);
    // beside the body: at most 32 767 bytes each of topic and properties
    body_len < size && size - body_len <= HEAD + 2 * (1 << 15)
}

/// Reads the record that fills `bytes` and lies at `offset`; why it does not count.
fn check(bytes: &[u8], offset: i64, checks: Checks) -> Result<Record<'_>, String> {
    let record = Record::parse(bytes).map_err(|error| error.to_string())?;
    if record.physical_offset != offset {
        return Err(format!("physical offset {} in the record at {offset}", record.physical_offset));
    }
    if record.queue_id < 0 {
        return Err(format!("queue id {}", record.queue_id));
    }
    if checks.record_crc {
        record::check_record_crc(bytes).map_err(|error| error.to_string())?;
    } else if checks.body_crc {
        record.check_crc().map_err(|error| error.to_string())?;
    }
    Ok(record)
}

/// The first record of a file: its store time, if it counts and has one.
pub(super) fn first_store_time(segment: &Segment, file_size: usize, checks: Checks) -> Result<Option<i64>, StoreError> {
    let alone = std::slice::from_ref(segment);
    match Scanner::new(alone, file_size, checks, Reads::Records, 0).next()? {
        Found::Record(record, _) if record.store_timestamp != 0 => Ok(Some(record.store_timestamp)),
        _ => Ok(None),
    }
}

/// Which records count behind damage: what is older than those in front of it lies there from a log that was cut at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Store time of the records in front.
    pub(super) not_before: i64,
    /// Up to here the log is known to have been on disk: nothing older lies there, whatever the clock said.
    pub(super) unless_before: i64,
    /// A record needs a CRC of all of it.
    pub(super) record_crc: bool,
}

impl From<i64> for Wanted {
    fn from(not_before: i64) -> Self {
        Self { not_before, unless_before: 0, record_crc: false }
    }
}

impl Wanted {
    fn admits(self, offset: i64, store_timestamp: i64) -> bool {
        offset < self.unless_before || store_timestamp >= self.not_before
    }
}

/// Where reading can go on behind damage that begins at a place: at the next record, or at the blank record that ends the file when
/// that is whole and the next record is in a later file.
///
/// # Errors
/// The system's.
pub(super) fn find_end_of_damage(
    segments: &[Segment], file_size: usize, from: Place, wanted: impl Into<Wanted>,
) -> Result<Option<Place>, StoreError> {
    let Some(next) = find_record(segments, file_size, from, wanted)? else { return Ok(None) };
    if next.index == from.index {
        return Ok(Some(next));
    }
    let blank = find_blank(&segments[from.index], file_size, from.at + record::MIN_SIZE)?;
    Ok(Some(blank.map_or(next, |at| Place { index: from.index, at })))
}

/// Position, at or behind `from`, of a blank record that says rightly how much of the file is left.
fn find_blank(segment: &Segment, file_size: usize, from: usize) -> Result<Option<usize>, StoreError> {
    let magic = record::MAGIC_BLANK.to_be_bytes();
    let finder = memmem::Finder::new(&magic);
    let mut buffer = vec![0; SEARCH_BATCH.min(file_size)];
    let (mut at, mut found) = (from, None);
    while at + record::BLANK_SIZE <= file_size {
        let len = buffer.len().min(file_size - at);
        let bytes = &mut buffer[..len];
        segment.file.read_exact_at(bytes, at as u64).map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
        let starts = finder.find_iter(&*bytes).filter_map(|hit| hit.checked_sub(record::MAGIC));
        let says_rightly = |start: &usize| usize::try_from(int_at(&bytes[*start..], record::TOTAL_SIZE)) == Ok(file_size - at - start);
        found = starts.filter(says_rightly).last().map(|start| at + start).or(found);
        if at + len == file_size {
            break;
        }
        at += len - (record::BLANK_SIZE - 1); // it may lie across the end of the batch
    }
    Ok(found)
}

/// The first place behind `after` where a record counts.
///
/// # Errors
/// The system's.
pub(super) fn find_record(
    segments: &[Segment], file_size: usize, after: Place, wanted: impl Into<Wanted>,
) -> Result<Option<Place>, StoreError> {
    let wanted = wanted.into();
    let finder = memmem::Finder::new(&[0xDA, 0xA3, 0x20]);
    let mut buffer = vec![0; SEARCH_BATCH];
    for (index, segment) in segments.iter().enumerate().skip(after.index) {
        let failed = |error| StoreError::Io("read", segment.path.clone(), error);
        let first = if index == after.index { after.at + 1 } else { 0 };
        let mut at = first;
        while let Some(data) = segment.file.next_data(at as u64).map_err(failed)?.filter(|data| *data < file_size as u64) {
            at = at.max((data as usize).saturating_sub(record::MAGIC)); // a size before the magic may have ended in a hole
            let len = SEARCH_BATCH.min(file_size - at);
            segment.file.read_exact_at(&mut buffer[..len], at as u64).map_err(failed)?;
            for hit in finder.find_iter(&buffer[..len]) {
                let Some(start) = (at + hit).checked_sub(record::MAGIC).filter(|start| *start >= first) else { continue };
                if counts(segment, file_size, start, wanted).map_err(failed)? {
                    return Ok(Some(Place { index, at: start }));
                }
            }
            if at + len == file_size {
                break;
            }
            at += len - 2; // a magic may lie across the end of the batch
        }
    }
    Ok(None)
}

/// Whether a record counts at a position where something like its magic is.
fn counts(segment: &Segment, file_size: usize, at: usize, wanted: Wanted) -> io::Result<bool> {
    let offset = segment.start + at as i64;
    let mut bytes = Vec::new();
    Ok(read_record(segment, file_size, at, &mut bytes)?
        && check(&bytes, offset, Checks { body_crc: true, record_crc: wanted.record_crc })
            .is_ok_and(|record| wanted.admits(offset, record.store_timestamp)))
}

/// Reads what may be a record at a position: its magic, its place and its lengths look right. Whether it does.
///
/// # Errors
/// The system's.
pub(super) fn read_record(segment: &Segment, file_size: usize, at: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut head = [0; HEAD];
    let there = HEAD.min(file_size - at);
    segment.file.read_exact_at(&mut head[..there], at as u64)?;
    let offset = segment.start + at as i64;
    let magic = int_at(&head, record::MAGIC);
    let size = usize::try_from(int_at(&head, record::TOTAL_SIZE)).unwrap_or(0);
    let field = i64::from_be_bytes(*head[record::PHYSICAL_OFFSET..].first_chunk().unwrap_or(&[0; 8]));
    let known = magic == record::MAGIC_V1 || magic == record::MAGIC_V2;
    if !known || field != offset || !(record::MIN_SIZE..=file_size - at).contains(&size) || !plausible(&head, size) {
        return Ok(false);
    }
    bytes.resize(size, 0);
    segment.file.read_exact_at(bytes, at as u64)?;
    Ok(true)
}

fn int_at(bytes: &[u8], at: usize) -> i32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| i32::from_be_bytes(*chunk))
}
