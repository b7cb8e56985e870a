//! Where recovery begins to read the log: everything before is known to be in the log, in the queues and in the index.
//!
//! What is known comes from the checkpoint, as far as log and queues agree with it. Whatever contradicts it makes recovery begin
//! earlier, at the first file if need be: reading again changes nothing, not reading may lose something. What contradicts only later,
//! when a record finds units missing in front of its own, is told by [`super::consume_queue::ConsumeQueue::gap_before`].

use crate::common::record::{self, Record};

use super::checkpoint::Positions;
use super::consume_queue::{ConsumeQueue, CqUnit};
use super::consume_queue_table::ConsumeQueueTable;
use super::deleted_topics::Marks;
use super::dispatch::has_unit;
use super::error::StoreError;
use super::index::Index;
use super::mapped_file_queue::Segment;
use super::scan::{Checks, Found, Place, Reads, Scanner, first_store_time};
use super::seal::is_seal;

/// A checkpoint this far ahead of the newest record was written under a wrong clock, ms.
const CLOCK_TOLERANCE_MS: i64 = 3_600_000;

/// The log's begin.
pub(super) const BEGIN: Place = Place { index: 0, at: 0 };

/// What the choice is made from.
pub(super) struct StartPlace<'a> {
    /// The log's files.
    pub(super) segments: &'a [Segment],
    /// `mappedFileSizeCommitLog`.
    pub(super) file_size: usize,
    /// What a record must stand.
    pub(super) checks: Checks,
    /// The checkpoint as it was found.
    pub(super) positions: &'a Positions,
    /// The last run ended in order.
    pub(super) clean: bool,
    /// The queues as they were loaded.
    pub(super) queues: &'a ConsumeQueueTable,
    /// The index as it was loaded.
    pub(super) index: Option<&'a Index>,
    /// Topics deleted since.
    pub(super) marks: &'a Marks,
}

impl StartPlace<'_> {
    /// The place.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn find(&self) -> Result<Place, StoreError> {
        if self.clean { self.after_clean_stop() } else { self.after_abrupt_stop().map(|index| Place { index, at: 0 }) }
    }

    /// The last file that begins at or before an offset and with a record that counts; the first file if none does.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn file_before(&self, offset: i64) -> Result<usize, StoreError> {
        self.last_file(|start, _| start <= offset)
    }

    /// Whether the place was chosen by a checkpoint from the future, as the newest record's store time tells.
    pub(super) fn believed_a_wrong_clock(&self, newest_store_timestamp: i64) -> bool {
        !self.clean && self.positions.physic_timestamp > newest_store_timestamp.saturating_add(CLOCK_TOLERANCE_MS)
    }

    /// The last record that was dispatched, if the checkpoint, the log and the queues agree on it; else the file before it.
    fn after_clean_stop(&self) -> Result<Place, StoreError> {
        if self.positions.queues_digest != 0 && self.positions.queues_digest != self.queues.digest() {
            log::warn!("consume queues are not what they were at the last stop: they are compared with all of the log");
            return Ok(BEGIN);
        }
        if *self.positions == Positions::default() {
            return Ok(BEGIN); // no checkpoint
        }
        let dispatched = self.queues.max_physical_offset();
        let index = self.whole_before()?.min(self.file_before(dispatched)?);
        let file = Place { index, at: 0 };
        let (offset, damaged_from) = (self.positions.logics_offset, self.queues.damaged_from().unwrap_or(i64::MAX));
        let Some(last) = self.place_of(offset).filter(|last| *last > file && offset <= damaged_from) else { return Ok(file) };
        let agreed = self.with_record_at(last, |record| {
            offset + record.total_size as i64 <= dispatched && record.store_timestamp == self.positions.logics_timestamp
        })?;
        Ok(if agreed == Some(true) { last } else { file })
    }

    /// The file to begin with.
    fn after_abrupt_stop(&self) -> Result<usize, StoreError> {
        let dispatched = self.queues.max_physical_offset();
        let (mut known, offset) = (i64::MAX, self.positions.logics_offset);
        if offset > 0 {
            known = match self.place_of(offset).map(|place| self.with_record_at(place, |record| self.ends_in_queue(record))).transpose()? {
                Some(Some(end)) if end <= dispatched => offset,
                Some(Some(_)) => dispatched, // the queues have lost what had been on disk
                _ => {
                    log::warn!("checkpoint ignored, no record is where it says: offset={offset}");
                    return Ok(0);
                }
            };
        }
        let by_index = self.index.map_or(i64::MAX, |index| match self.positions.index_offset {
            0 => index.last().1,
            offset => offset,
        });
        let min_timestamp = self.positions.min_timestamp();
        let by_time = self.last_file(|_, store_timestamp| store_timestamp <= min_timestamp)?;
        let by_offset = self.file_before(known.min(dispatched).min(by_index))?;
        Ok(self.whole_before()?.min(by_time).min(by_offset))
    }

    /// Before this file no queue has been found to lack something.
    fn whole_before(&self) -> Result<usize, StoreError> {
        self.queues.damaged_from().map_or(Ok(self.segments.len().saturating_sub(1)), |offset| self.file_before(offset))
    }

    /// Where the queues must reach to once they have this record; -1 when it has no unit.
    fn ends_in_queue(&self, record: &Record<'_>) -> i64 {
        let expected = has_unit(record.sys_flag) && !self.marks.hide(record.topic, record.physical_offset);
        if expected { record.physical_offset + record.total_size as i64 } else { -1 }
    }

    fn place_of(&self, offset: i64) -> Option<Place> {
        let holds = |segment: &Segment| (segment.start..segment.start + self.file_size as i64).contains(&offset);
        let index = self.segments.iter().position(holds)?;
        Some(Place { index, at: (offset - self.segments[index].start) as usize })
    }

    /// What `look` makes of the record at a place; `None` when there is none.
    fn with_record_at<R>(&self, place: Place, look: impl FnOnce(&Record<'_>) -> R) -> Result<Option<R>, StoreError> {
        let mut scanner = Scanner::new(self.segments, self.file_size, self.checks, Reads::Records, place.index);
        scanner.go_to(place);
        Ok(match scanner.next()? {
            Found::Record(record, found) if found == place => Some(look(&record)),
            _ => None,
        })
    }

    /// The last file whose first record counts and pleases (start of the file, store time); the first file if none does.
    fn last_file(&self, pleases: impl Fn(i64, i64) -> bool) -> Result<usize, StoreError> {
        for (index, segment) in self.segments.iter().enumerate().skip(1).rev() {
            if let Some(store_timestamp) = first_store_time(segment, self.file_size, self.checks)?
                && pleases(segment.start, store_timestamp)
            {
                return Ok(index);
            }
        }
        Ok(0)
    }
}

/// Whether a queue's unit points at a record of its size that is where it says, and that agrees with the queue. One of the record's topic,
/// queue id and offset may be damaged: that is for others to judge. A record that has expired cannot be asked.
///
/// # Errors
/// The system's.
pub(super) fn points_home(
    segments: &[Segment], file_size: usize, queue: &ConsumeQueue, offset: i64, unit: &CqUnit,
) -> Result<bool, StoreError> {
    let (at, size) = (unit.physical_offset, unit.size as usize);
    if segments.first().is_none_or(|first| at < first.start) {
        return Ok(true);
    }
    let Some(segment) = segments.iter().find(|segment| (segment.start..segment.start + file_size as i64).contains(&at)) else {
        return Ok(false);
    };
    let position = (at - segment.start) as usize;
    if size < record::MIN_SIZE || size > file_size - position {
        return Ok(false);
    }
    let failed = |error| StoreError::Io("read", segment.path.clone(), error);
    let mut stated = [0; size_of::<i32>()];
    segment.file.read_exact_at(&mut stated, position as u64).map_err(failed)?;
    if stated != unit.size.to_be_bytes() {
        return Ok(false);
    }
    let mut bytes = vec![0; size];
    segment.file.read_exact_at(&mut bytes, position as u64).map_err(failed)?;
    let Ok(record) = Record::parse(&bytes) else { return Ok(false) };
    let signs = [record.topic == queue.topic(), record.queue_id == queue.queue_id(), record.queue_offset == offset];
    let sound = record.total_size == size && record.physical_offset == at;
    Ok(sound && (is_seal(&record) || signs.into_iter().filter(|sign| *sign).count() >= 2))
}
