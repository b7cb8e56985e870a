//! What the consume queues know about records, while recovery walks over the log.
//!
//! Only a record's body has a CRC. A record that was damaged elsewhere may still be whole in form, and claim to belong to another queue or
//! to have another number there: it would push the messages of that queue aside. But numbers are dense and given in the order of the log,
//! and the unit of the record, where it had one, still says whose it is.
//! - A record that continues its queue is believed: one look-up, no read.
//! - Any other is compared with the unit at its number. When that points elsewhere and a unit of another queue points at the record, the
//!   record is not what it says, provided the neighbours of that unit are what they say: queues that another broker has filled with
//!   shifted units accuse nobody.
//! - A new record whose number leaves a gap that no seal explains, or is taken, has to wait for the next one of its queue: if that is
//!   numbered as if there had been another in between, the one that waits has claimed a wrong number.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::common::record::Record;
use crate::store::consume_queue::{ConsumeQueue, CqUnit, is_missing};
use crate::store::consume_queue_table::ConsumeQueueTable;
use crate::store::error::StoreError;
use crate::store::mapped_file_queue::Segment;
use crate::store::scan::{Place, read_record};
use crate::store::seal::is_seal;

/// What a record says when a queue knows better.
pub(super) const ANOTHERS: &str = "it says that it is another's";
/// Searches in queues that one recovery affords: with very many queues, and much damage, records are believed in the end.
const MAX_SEARCHES: usize = 100_000;
/// Units that are looked at behind the last one that a walk has come by.
const MAX_UNSEEN: i64 = 64;
/// Units of one hole that are found again.
const MAX_UNITS_IN_HOLE: usize = 100_000;

/// Queues by their addresses, which no other has as long as the table holds them.
type ByAddress<T> = HashMap<usize, T, foldhash::fast::RandomState>;

/// Whose a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) topic: String,
    pub(super) queue_id: i32,
    pub(super) queue_offset: i64,
}

impl Identity {
    /// What a record says of itself.
    pub(super) fn claimed_by(record: &Record<'_>) -> Self {
        Self { topic: record.topic.to_owned(), queue_id: record.queue_id, queue_offset: record.queue_offset }
    }

    fn of_unit(queue: &ConsumeQueue, queue_offset: i64) -> Self {
        Self { topic: queue.topic().to_owned(), queue_id: queue.queue_id(), queue_offset }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "topic={} queue_id={} queue_offset={}", self.topic, self.queue_id, self.queue_offset)
    }
}

/// A record's place, and what it was before it was damaged.
#[derive(Clone, Debug)]
pub(super) struct Misnamed {
    /// Where it lies.
    pub(super) place: Place,
    /// Its bytes.
    pub(super) size: usize,
    /// Whose it is, if a unit says so.
    pub(super) identity: Option<Identity>,
    /// What is wrong with what it says.
    pub(super) why: &'static str,
}

/// What is to be done with a record.
pub(super) enum Standing {
    /// It is believed.
    Sound,
    /// It is believed; at its number the queue has a unit that points at no message.
    Displaced(Arc<ConsumeQueue>),
    /// It is damaged: whose it is.
    Misnamed(Identity),
    /// Its number is not the next one of its queue. [`Witness::keep_waiting`] until the next record of that queue.
    Doubtful(Arc<ConsumeQueue>),
}

/// A unit of a queue in some piece of the log.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// What it points at.
    pub(super) unit: CqUnit,
    /// Whose it is.
    pub(super) identity: Identity,
}

struct Waiting {
    queue_offset: i64,
    place: Place,
    size: usize,
    /// The number that was expected.
    missing: i64,
}

/// One walk over the log, as the queues see it.
pub(super) struct Witness<'a> {
    segments: &'a [Segment],
    file_size: usize,
    queues: &'a ConsumeQueueTable,
    /// Records before this had been dispatched before the start.
    dispatched: i64,
    /// Where the walk begins.
    from: i64,
    all: OnceCell<Vec<Arc<ConsumeQueue>>>,
    /// Number of the last record of each queue, by the queue's address.
    seen: ByAddress<i64>,
    waiting: ByAddress<Waiting>,
    /// Starts of pieces of the log that hold no message, and their ends.
    seals: BTreeMap<i64, i64>,
    /// Records that were passed as others'.
    taken_for_others: Vec<Misnamed>,
    searches: usize,
}

impl<'a> Witness<'a> {
    /// A witness of a walk from `from` on; `dispatched` is the end of the last record that any queue knew when the store was loaded.
    pub(super) fn new(segments: &'a [Segment], file_size: usize, queues: &'a ConsumeQueueTable, dispatched: i64, from: i64) -> Self {
        Self {
            segments,
            file_size,
            queues,
            dispatched,
            from,
            all: OnceCell::new(),
            seen: HashMap::default(),
            waiting: HashMap::default(),
            seals: BTreeMap::new(),
            taken_for_others: Vec::new(),
            searches: MAX_SEARCHES,
        }
    }

    /// A piece of the log holds no message.
    pub(super) fn note_seal(&mut self, range: Range<i64>) {
        self.seals.insert(range.start, range.end);
    }

    /// Looks at a record that belongs into a queue.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn look_at(&mut self, record: &Record<'_>, offset: i64) -> Result<Standing, StoreError> {
        let Some(queue) = self.queues.get(record.topic, record.queue_id) else {
            return Ok(self.accused(record, offset)?.map_or(Standing::Sound, Standing::Misnamed));
        };
        let (key, number) = (address(&queue), record.queue_offset);
        if let Some(seen) = self.seen.get_mut(&key).filter(|seen| seen.checked_add(1) == Some(number)) {
            *seen = number;
            return Ok(Standing::Sound);
        }
        let mut displaced = false;
        let stored = if (0..queue.max_offset()).contains(&number) { present(queue.unit_at(number))? } else { None };
        match stored {
            Some(unit) if unit.physical_offset == offset => self.look_back(&queue, number)?,
            Some(unit) if !unit.is_present() || self.is_sealed(unit.physical_offset) => displaced = true,
            _ => {
                if let Some(identity) = self.accused(record, offset)? {
                    return Ok(Standing::Misnamed(identity));
                }
            }
        }
        let is_taken = stored.is_some_and(|unit| unit.is_present() && unit.physical_offset < offset) && !displaced;
        if is_taken && offset >= queue.max_physical_offset() || self.leaves_a_gap(&queue, number, offset) {
            return Ok(Standing::Doubtful(queue));
        }
        self.seen.insert(key, number);
        Ok(if displaced { Standing::Displaced(queue) } else { Standing::Sound })
    }

    /// Units between the last record of a queue and this one have been passed over: their records were not known as theirs.
    fn look_back(&mut self, queue: &ConsumeQueue, number: i64) -> Result<(), StoreError> {
        let Some(seen) = self.seen.get(&address(queue)).copied() else { return Ok(()) };
        for offset in (seen + 1).max(number - MAX_UNSEEN)..number {
            if let Some(unit) = present(queue.unit_at(offset))?.filter(CqUnit::is_present) {
                let taken = self.taken_for_another(queue, offset, unit)?;
                self.taken_for_others.extend(taken);
            }
        }
        Ok(())
    }

    /// Whether units are missing in front of a new one although nothing in the log explains that.
    fn leaves_a_gap(&self, queue: &ConsumeQueue, number: i64, offset: i64) -> bool {
        let is_new = offset >= queue.max_physical_offset() && queue.max_physical_offset() >= 0;
        let Some(behind) = queue.gap_before(number).filter(|behind| is_new && *behind >= self.from) else { return false };
        self.seals.range(behind..offset).next().is_none()
    }

    /// The record of that queue is neither dispatched nor given up yet.
    pub(super) fn keep_waiting(&mut self, queue: &ConsumeQueue, queue_offset: i64, place: Place, size: usize) {
        let missing = queue.max_offset();
        self.waiting.insert(address(queue), Waiting { queue_offset, place, size, missing });
    }

    /// A record has come that may tell of one that waits. `Ok` is the place of one that was right, `Err` one that was not.
    pub(super) fn release(&mut self, record: &Record<'_>) -> Option<Result<Place, Misnamed>> {
        if self.waiting.is_empty() {
            return None;
        }
        let key = address(&*self.queues.get(record.topic, record.queue_id)?);
        let Waiting { queue_offset, place, size, missing } = self.waiting.remove(&key)?;
        let continues = if queue_offset < missing { record.queue_offset != missing + 1 } else { queue_offset < record.queue_offset };
        if continues {
            self.seen.insert(key, queue_offset);
            return Some(Ok(place));
        }
        Some(Err(Misnamed { place, size, identity: None, why: "its queue offset is not in order" }))
    }

    /// Those that still wait when the walk is over, in the order of the log.
    pub(super) fn release_all(&mut self) -> Vec<Place> {
        let mut places: Vec<Place> = self.waiting.drain().map(|(_, waiting)| waiting.place).collect();
        places.sort_unstable();
        places
    }

    /// After the walk: records that units point at, but that were taken for others'.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn unseen(&mut self, end: i64) -> Result<Vec<Misnamed>, StoreError> {
        let mut found = std::mem::take(&mut self.taken_for_others);
        for queue in self.queues.all() {
            let seen = self.seen.get(&address(&queue)).copied();
            let mut offset = queue.max_offset() - 1;
            if queue.max_physical_offset() <= self.from || seen == Some(offset) {
                continue;
            }
            let last = seen.map_or(queue.min_offset(), |seen| seen + 1).max(offset - MAX_UNSEEN);
            while offset >= last {
                let Some(unit) = present(queue.unit_at(offset))? else { break };
                if unit.is_present() && unit.physical_offset < self.from {
                    break;
                }
                if unit.is_present() && unit.end() <= end {
                    found.extend(self.taken_for_another(&queue, offset, unit)?);
                }
                offset -= 1;
            }
        }
        Ok(found)
    }

    /// The record that a unit points at, when it says that it is another's and the unit's neighbours are right.
    fn taken_for_another(&self, queue: &ConsumeQueue, offset: i64, unit: CqUnit) -> Result<Option<Misnamed>, StoreError> {
        let (Some(place), identity) = (self.place_of(unit.physical_offset), Identity::of_unit(queue, offset)) else { return Ok(None) };
        let wrong = !is_shared(queue)
            && !self.is_sealed(unit.physical_offset)
            && self.claim_at(unit.physical_offset)?.is_some_and(|(claim, size)| claim != identity && size == unit.size as usize)
            && self.neighbours_are_right(queue, offset)?;
        Ok(wrong.then_some(Misnamed { place, size: unit.size as usize, identity: Some(identity), why: ANOTHERS }))
    }

    /// Whose the record is, when it is not what it says.
    fn accused(&mut self, record: &Record<'_>, offset: i64) -> Result<Option<Identity>, StoreError> {
        if offset >= self.dispatched || record.properties.contains("INNER_MULTI_DISPATCH") {
            return Ok(None); // no unit yet; or several, in queues of other names
        }
        for queue in self.searchable(offset) {
            let Some((number, unit)) = present(queue.first_behind(offset))? else { continue };
            let identity = Identity::of_unit(&queue, number);
            if unit.physical_offset == offset
                && unit.size as usize == record.total_size
                && identity != Identity::claimed_by(record)
                && self.neighbours_are_right(&queue, number)?
            {
                return Ok(Some(identity));
            }
        }
        Ok(None)
    }

    /// Units that queues have in a piece of the log, in its order.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn units_in(&mut self, range: Range<i64>) -> Result<Vec<Known>, StoreError> {
        let mut known = Vec::new();
        for queue in self.searchable(range.start) {
            let mut next = present(queue.first_behind(range.start))?;
            while let Some((number, unit)) = next.filter(|(_, unit)| unit.physical_offset < range.end && known.len() < MAX_UNITS_IN_HOLE) {
                known.push(Known { unit, identity: Identity::of_unit(&queue, number) });
                next = present(queue.next_present(number + 1, queue.max_offset()))?;
            }
        }
        known.sort_by_key(|known| known.unit.physical_offset);
        Ok(known)
    }

    /// Queues that may have a unit at or behind an offset.
    fn searchable(&mut self, from: i64) -> Vec<Arc<ConsumeQueue>> {
        let all = self.all.get_or_init(|| self.queues.all());
        let may = |queue: &&Arc<ConsumeQueue>| queue.max_physical_offset() > from && !is_shared(queue);
        let found: Vec<_> = all.iter().filter(may).take(self.searches).cloned().collect();
        self.searches -= found.len();
        found
    }

    fn neighbours_are_right(&self, queue: &ConsumeQueue, offset: i64) -> Result<bool, StoreError> {
        for neighbour in [offset - 1, offset + 1] {
            if !(queue.min_offset()..queue.max_offset()).contains(&neighbour) {
                continue;
            }
            let Some(unit) = present(queue.unit_at(neighbour))?.filter(CqUnit::is_present) else { continue };
            if let Some((claim, _)) = self.claim_at(unit.physical_offset)?
                && claim != Identity::of_unit(queue, neighbour)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the record at an offset says of itself, and its size; `None` when there is none, or a seal.
    fn claim_at(&self, offset: i64) -> Result<Option<(Identity, usize)>, StoreError> {
        let Some(Place { index, at }) = self.place_of(offset) else { return Ok(None) };
        let segment = &self.segments[index];
        let mut bytes = Vec::new();
        let there =
            read_record(segment, self.file_size, at, &mut bytes).map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
        let record = Record::parse(&bytes).ok().filter(|record| there && !is_seal(record));
        Ok(record.map(|record| (Identity::claimed_by(&record), record.total_size)))
    }

    fn place_of(&self, offset: i64) -> Option<Place> {
        let index = self.segments.partition_point(|segment| segment.start <= offset).checked_sub(1)?;
        let at = usize::try_from(offset - self.segments[index].start).ok().filter(|at| *at + 8 <= self.file_size)?;
        Some(Place { index, at })
    }

    fn is_sealed(&self, offset: i64) -> bool {
        self.seals.range(..=offset).next_back().is_some_and(|(_, end)| offset < *end)
    }
}

/// Whether units of the queue point at records of other topics.
fn is_shared(queue: &ConsumeQueue) -> bool {
    queue.topic().starts_with("%LMQ%")
}

fn address(queue: &ConsumeQueue) -> usize {
    std::ptr::from_ref(queue) as usize
}

/// What was read; nothing where a file is missing.
fn present<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(error) if is_missing(&error) => Ok(None),
        read => read,
    }
}
