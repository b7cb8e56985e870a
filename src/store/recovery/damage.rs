//! What recovery does where no record is, or one that is not what it says.
//!
//! Behind a torn tail nothing follows: the log ends there. Damage with records behind it costs what is damaged.
//! - The damaged bytes are kept under `lost/`, durably, before the hole is filled.
//! - Where a queue has a unit for a lost record, the unit stays and points at a seal, which readers pass over; where the record
//!   still says whose it was and its number is the next one, it gets such a unit: numbers stay dense and are not given again.
//! - What never reached the disk whole was not acknowledged under SYNC_FLUSH: the log ends there. Under ASYNC_FLUSH what follows is
//!   kept.

use crate::common::record::Record;
use crate::store::config::FlushDiskType;
use crate::store::consume_queue::CqUnit;
use crate::store::consume_queue_table::is_one_component;
use crate::store::dispatch::has_unit;
use crate::store::error::StoreError;
use crate::store::scan::{Place, Wanted, find_end_of_damage, read_record};
use crate::store::seal::{self, Hole, Seals};

use super::witness::{Identity, Known, Misnamed, Witness};
use super::{Recovery, Walk};

/// Lost records of one hole that are named.
const MAX_NAMED: usize = 20;

impl Recovery<'_> {
    /// What to do at an invalid record: `None` cuts the log here; otherwise the damage has been sealed and the walk goes on.
    pub(super) fn behind_damage(
        &self, at: Place, why: &str, walk: &mut Walk, witness: &mut Witness<'_>,
    ) -> Result<Option<Place>, StoreError> {
        let wanted = Wanted {
            not_before: walk.time_of_neighbours(),
            unless_before: self.positions.flushed_offset.unwrap_or(0),
            record_crc: self.config.force_record_crc,
        };
        let mut from = at;
        loop {
            let Some(next) = find_end_of_damage(&self.segments, self.file_size(), from, wanted)? else {
                return Ok(None);
            };
            let holes = Hole::between(at, next, self.file_size());
            let never_arrived = self.never_arrived(at, &holes)?;
            if never_arrived && self.config.flush_disk_type == FlushDiskType::Sync {
                log::warn!("unfinished writes are cut: offset={} reason={why}", self.offset(at));
                return Ok(None);
            }
            let seals = self.seals(walk, next)?;
            if holes.iter().all(|hole| hole.can_be_sealed(seals, self.file_size())) {
                for hole in holes {
                    self.seal(hole, seals, why, never_arrived, walk, witness)?;
                }
                return Ok(Some(next));
            }
            from = next; // too small for any record: what was found there is not one
        }
    }

    /// A record that is not what it says is as good as lost.
    pub(super) fn seal_misnamed(&self, record: &Misnamed, walk: &mut Walk, witness: &mut Witness<'_>) -> Result<(), StoreError> {
        let Misnamed { place, size, identity, why } = record;
        let hole = Hole { place: *place, end: place.at + size };
        let why = identity.as_ref().map_or_else(|| (*why).to_owned(), |identity| format!("{why}: it was {identity}"));
        let seals = self.seals(walk, *place)?;
        if hole.can_be_sealed(seals, self.file_size()) {
            self.seal(hole, seals, &why, false, walk, witness)?;
        }
        Ok(())
    }

    /// A page of a group did not arrive although a later one did, in the ordinary power cut.
    fn never_arrived(&self, at: Place, holes: &[Hole]) -> Result<bool, StoreError> {
        if self.clean || self.positions.flushed_offset.is_none_or(|flushed| self.offset(at) < flushed) {
            return Ok(false);
        }
        for hole in holes {
            if seal::has_zero_sector(&self.segments[hole.place.index], *hole)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Seals that are as old as the records around them.
    fn seals(&self, walk: &Walk, next: Place) -> Result<Seals, StoreError> {
        let mut store_timestamp = walk.last_store_timestamp;
        if store_timestamp == 0 {
            let bytes = self.read_at(next)?;
            store_timestamp = bytes.and_then(|bytes| Record::parse(&bytes).ok().map(|record| record.store_timestamp)).unwrap_or(0);
        }
        Ok(Seals { store_timestamp, record_crc: self.config.force_record_crc })
    }

    fn seal(
        &self, hole: Hole, seals: Seals, why: &str, never_arrived: bool, walk: &mut Walk, witness: &mut Witness<'_>,
    ) -> Result<(), StoreError> {
        let (segment, file_size) = (&self.segments[hole.place.index], self.file_size());
        let (offset, bytes) = (self.offset(hole.place), hole.end - hole.place.at);
        let known = witness.units_in(offset..offset + bytes as i64)?;
        let claim = self.claim(hole, &known)?;
        let kept = if never_arrived {
            "nothing, it never reached the disk".to_owned()
        } else {
            seal::keep(self.fs, &self.config.root, segment, hole)?.display().to_string()
        };
        let at = |offset: i64| (offset - segment.start) as usize;
        let ranges: Vec<_> = known.iter().map(|known| at(known.unit.physical_offset)..at(known.unit.end())).collect();
        for range in seal::fill(segment, hole, seals, &ranges, file_size)? {
            let (start, size) = (segment.start + range.start as i64, range.len());
            witness.note_seal(start..start + size as i64);
            self.dispatcher.note_seal(CqUnit { physical_offset: start, size: i32::try_from(size).unwrap_or(i32::MAX), tags_code: 0 });
        }
        witness.note_seal(offset..offset + bytes as i64);
        walk.report.sealed += 1;
        walk.report.sealed_bytes += bytes as u64;
        let whose = known.first().map(|known| &known.identity).or(claim.as_ref().map(|(identity, _)| identity));
        let whose = whose.map_or_else(String::new, |identity| format!(" {identity}"));
        let level = if never_arrived { log::Level::Warn } else { log::Level::Error };
        let count = known.len().max(usize::from(claim.is_some()));
        log::log!(
            level,
            "damaged part of the log sealed, its records are lost: file={} offset={offset} bytes={bytes} known_records={count}{whose} reason={why} kept={kept}",
            segment.path.display()
        );
        for Known { unit, identity } in known.iter().skip(1).take(MAX_NAMED) {
            log::log!(level, "damaged record is lost: offset={} bytes={} {identity}", unit.physical_offset, unit.size);
        }
        claim.map_or(Ok(()), |(identity, unit)| self.keep_number(&identity, unit))
    }

    /// Whose the only record of a hole was, as it says, and its unit; when no queue knows better.
    fn claim(&self, hole: Hole, known: &[Known]) -> Result<Option<(Identity, CqUnit)>, StoreError> {
        if !known.is_empty() {
            return Ok(None);
        }
        let Some(bytes) = self.read_at(hole.place)? else { return Ok(None) };
        let Ok(record) = Record::parse(&bytes) else { return Ok(None) };
        if record.total_size != hole.end - hole.place.at || !has_unit(record.sys_flag) || record.queue_id < 0 {
            return Ok(None);
        }
        Ok(Some((Identity::claimed_by(&record), self.dispatcher.unit_of(&record, self.offset(hole.place)))))
    }

    /// The lost record was the next one of its queue: its number is not given again.
    fn keep_number(&self, identity: &Identity, unit: CqUnit) -> Result<(), StoreError> {
        let queue = match identity.queue_offset {
            0 if is_one_component(&identity.topic) => Some(self.queues.get_or_create(&identity.topic, identity.queue_id)),
            _ => self.queues.get(&identity.topic, identity.queue_id),
        };
        match queue {
            Some(queue) if queue.max_offset() == identity.queue_offset && queue.max_physical_offset() <= unit.physical_offset => {
                queue.put_behind(CqUnit::FILLER, identity.queue_offset, unit)
            }
            _ => Ok(()),
        }
    }

    /// The bytes of what looks like a record.
    pub(super) fn read_at(&self, place: Place) -> Result<Option<Vec<u8>>, StoreError> {
        let segment = &self.segments[place.index];
        let mut bytes = Vec::new();
        let there = read_record(segment, self.file_size(), place.at, &mut bytes);
        Ok(there.map_err(|error| StoreError::Io("read", segment.path.clone(), error))?.then_some(bytes))
    }
}
