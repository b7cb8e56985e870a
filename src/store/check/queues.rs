//! Consume queues against the log, while the log is walked.
//!
//! - Each record's unit is looked up as the record comes; what a queue holds between its records, in front of them and behind them has to
//!   be explained otherwise.
//! - Memory: one small state per queue with a window of its units. All windows together stay within a bound.
//! - What was found of a queue is told at the end: when its numbering begins again (the topic was deleted and made anew), what was
//!   found of the old numbering means nothing.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::path::PathBuf;

use foldhash::quality::RandomState;
use smallvec::SmallVec;

use crate::common::record::Record;
use crate::common::topic::{SCHEDULE_TOPIC, is_system_topic};
use crate::store::consume_queue::MAX_GAP;
use crate::store::error::StoreError;
use crate::store::file_cache::FileCache;
use crate::store::format::cq_unit::{CQ_UNIT_SIZE, CqUnit};
use crate::store::fs::Fs;

use super::damage::{Holes, NextStart};
use super::layout::{LogFiles, QueueFolders};
use super::read_only::ReadOnlyFs;
use super::report::{Findings, QueueBounds};

mod state;
mod tell;
mod units;

use state::{MAX_ODD, Pending, Queue, Run, Wanted, Wrong, tags_fit};

/// [`CQ_UNIT_SIZE`] for arithmetic on offsets.
const UNIT: i64 = CQ_UNIT_SIZE as i64;
/// Bytes of all windows together.
const WINDOWS_BYTES: usize = 32 << 20;
/// Least and most units of a window.
const WINDOW_UNITS: (usize, usize) = (24, 3_200);
/// Damaged records that are remembered for their seals.
const MAX_OF_DAMAGE: usize = 100_000;
/// How far beside its place a unit is looked for.
const MAX_SHIFT: i64 = 8;
/// Prefix of queues that hold messages of other topics.
const LIGHT_PREFIX: &str = "%LMQ%";

/// Who wants to know which unit each record should have.
pub(in crate::store) trait UnitSink {
    /// Whether it cares for a queue; others are passed over.
    fn wants(&self, topic: &str, queue_id: i32) -> bool;
    /// The unit at a queue offset; they ascend.
    ///
    /// # Errors
    /// Those of the sink.
    fn unit(&mut self, topic: &str, queue_id: i32, at: i64, unit: CqUnit) -> Result<(), StoreError>;
    /// A unit that the queue has for a record that is damaged, or was.
    ///
    /// # Errors
    /// Those of the sink.
    fn unit_of_damage(&mut self, topic: &str, queue_id: i32, at: i64, unit: CqUnit) -> Result<(), StoreError>;
    /// The numbering begins again: what was told of the queue is void.
    ///
    /// # Errors
    /// Those of the sink.
    fn restart(&mut self, topic: &str, queue_id: i32) -> Result<(), StoreError>;
    /// From here on a damaged record may be pointed at by this unit.
    fn seal(&mut self, unit: CqUnit);
}

/// What repair needs to know of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct QueueState {
    /// Topic.
    pub(in crate::store) topic: String,
    /// Queue.
    pub(in crate::store) queue_id: i32,
    /// There is a folder.
    pub(in crate::store) has_folder: bool,
    /// Something in it is wrong.
    pub(in crate::store) damaged: bool,
    /// It belongs to no topic there is, or is no simple queue.
    pub(in crate::store) ignored: bool,
    /// The next record's queue offset, as far as records and right units tell.
    pub(in crate::store) end: i64,
}

/// Compares queues with records.
pub(in crate::store) struct QueueCheck<'a> {
    fs: &'a ReadOnlyFs,
    log: &'a LogFiles,
    next_start: NextStart,
    topics: Option<&'a BTreeSet<String>>,
    root: PathBuf,
    file_size: u64,
    cache: FileCache,
    hasher: RandomState,
    by_name: HashMap<u64, SmallVec<[u32; 1]>, foldhash::fast::RandomState>,
    queues: Vec<Queue>,
    last: usize,
    windows: usize,
    units: u64,
    odd_topics: u64,
    /// Start and size of damaged records that have units.
    of_damage: Vec<(i64, i32)>,
    sink: Option<&'a mut dyn UnitSink>,
    error: Option<StoreError>,
}

impl<'a> QueueCheck<'a> {
    /// A check of the queues in `folders`; `topics` are those that exist, where they are known.
    pub(in crate::store) fn new(
        fs: &'a ReadOnlyFs, log: &'a LogFiles, next_start: NextStart, folders: QueueFolders, topics: Option<&'a BTreeSet<String>>,
    ) -> Self {
        let mut this = Self {
            fs,
            log,
            next_start,
            topics,
            root: folders.root,
            file_size: folders.file_size,
            cache: FileCache::new(FileCache::capacity_of_process()),
            hasher: RandomState::default(),
            by_name: HashMap::default(),
            queues: Vec::with_capacity(folders.folders.len()),
            last: 0,
            windows: WINDOW_UNITS.1,
            units: 0,
            odd_topics: 0,
            of_damage: Vec::new(),
            sink: None,
            error: None,
        };
        for folder in folders.folders {
            let place = this.add(&folder.topic, folder.queue_id);
            let queue = &mut this.queues[place];
            (queue.files, queue.has_folder, queue.files_damaged) = (folder.files, true, folder.damaged);
            queue.skipped = folder.topic.starts_with(LIGHT_PREFIX);
        }
        this
    }

    /// Tells `sink` the unit of each record.
    pub(in crate::store) fn tell_units(&mut self, sink: &'a mut dyn UnitSink) {
        for queue in &mut self.queues {
            queue.skipped |= !sink.wants(&queue.topic, queue.queue_id);
        }
        self.sink = Some(sink);
    }

    /// A record that holds the place of damaged ones.
    pub(in crate::store) fn seal(&mut self, physical_offset: i64, size: usize) {
        if let (Some(sink), Ok(size)) = (&mut self.sink, i32::try_from(size)) {
            sink.seal(CqUnit { physical_offset, size, tags_code: 0 });
        }
    }

    fn add(&mut self, topic: &str, queue_id: i32) -> usize {
        let place = self.queues.len();
        self.by_name.entry(self.hasher.hash_one((topic, queue_id))).or_default().push(place as u32);
        self.queues.push(Queue::new(topic, queue_id));
        self.windows = (WINDOWS_BYTES / CQ_UNIT_SIZE / self.queues.len()).clamp(WINDOW_UNITS.0, WINDOW_UNITS.1);
        place
    }

    fn find(&mut self, topic: &str, queue_id: i32) -> usize {
        let is = |queue: &Queue| queue.queue_id == queue_id && *queue.topic == *topic;
        if self.queues.get(self.last).is_some_and(is) {
            return self.last;
        }
        let places = self.by_name.get(&self.hasher.hash_one((topic, queue_id)));
        let found = places.and_then(|places| places.iter().find(|place| is(&self.queues[**place as usize]))).map(|place| *place as usize);
        self.last = found.unwrap_or_else(|| {
            let place = self.add(topic, queue_id);
            // queues of another kind have their own folders
            let unwanted = self.sink.as_ref().is_some_and(|sink| !sink.wants(topic, queue_id));
            self.queues[place].skipped = unwanted || self.fs.exists(&self.batch_root().join(topic));
            place
        });
        self.last
    }

    fn batch_root(&self) -> PathBuf {
        self.root.with_file_name("batchconsumequeue")
    }

    /// Units looked at.
    pub(in crate::store) fn units(&self) -> u64 {
        self.units
    }

    /// Number of queues.
    pub(in crate::store) fn len(&self) -> usize {
        self.queues.len()
    }

    /// A record that has a unit, with its tags code. A failure to read is told by [`QueueCheck::finish`].
    pub(in crate::store) fn record(&mut self, record: &Record<'_>, offset: i64, tags_code: i64, holes: &Holes) {
        if self.error.is_some() {
            return;
        }
        if !crate::store::consume_queue_table::is_one_component(record.topic) {
            self.odd_topics += 1;
            return;
        }
        let wanted = Wanted {
            offset,
            size: i32::try_from(record.total_size).unwrap_or(i32::MAX),
            tags_code,
            store_timestamp: record.store_timestamp,
            is_delayed: record.topic == SCHEDULE_TOPIC,
        };
        let place = self.find(record.topic, record.queue_id);
        if let Err(error) = self.compare(place, record.queue_offset, wanted, holes) {
            self.error = Some(error);
        }
    }

    /// Decides which queue offset the record has: the one it states, unless that does not follow the one before and nothing speaks for it.
    fn compare(&mut self, place: usize, at: i64, wanted: Wanted, holes: &Holes) -> Result<(), StoreError> {
        let queue = &self.queues[place];
        let next = queue.next;
        if queue.skipped {
            return Ok(());
        }
        let can_be = (0..=i64::MAX / UNIT - MAX_GAP).contains(&at);
        if next < 0 && can_be {
            self.begin(place, at, wanted, holes)?;
            return self.accept(place, at, wanted);
        }
        if at == next {
            self.drop_pending(place);
            return self.accept(place, at, wanted);
        }
        if next >= 0 && self.points_to(place, next, wanted.offset)? {
            self.drop_pending(place);
            self.odd(place, Pending { at, wanted });
            return self.accept(place, next, wanted);
        }
        if !can_be || at > next + MAX_GAP {
            self.odd(place, Pending { at, wanted });
            return Ok(());
        }
        if self.points_to(place, at, wanted.offset)? {
            self.drop_pending(place);
            self.jump(place, at, wanted, holes)?;
            return self.accept(place, at, wanted);
        }
        match self.queues[place].pending.take() {
            Some(before) if before.at + 1 == at => {
                self.jump(place, before.at, before.wanted, holes)?;
                self.accept(place, before.at, before.wanted)?;
                self.accept(place, at, wanted)
            }
            before => {
                if let Some(before) = before {
                    self.odd(place, before);
                }
                self.queues[place].pending = Some(Pending { at, wanted });
                Ok(())
            }
        }
    }

    fn points_to(&mut self, place: usize, at: i64, physical_offset: i64) -> Result<bool, StoreError> {
        Ok(self.read_unit(place, at)?.is_some_and(|unit| unit.is_present() && unit.physical_offset == physical_offset))
    }

    /// The record that waited for a follower got none: it has not the queue offset that it states.
    fn drop_pending(&mut self, place: usize) {
        if let Some(pending) = self.queues[place].pending.take() {
            self.odd(place, pending);
        }
    }

    fn odd(&mut self, place: usize, Pending { at, wanted }: Pending) {
        let queue = &mut self.queues[place];
        if queue.odd.len() < MAX_ODD {
            queue.odd.push(wanted.offset);
        }
        let what = if at >= 0 && at < queue.next { Wrong::Twice } else { Wrong::Odd };
        queue.note(Run::one(what, at, wanted.offset, wanted.store_timestamp));
    }

    /// The numbering goes on at `at`: over a gap, or anew.
    fn jump(&mut self, place: usize, at: i64, wanted: Wanted, holes: &Holes) -> Result<(), StoreError> {
        let explained = self.explanations(wanted.offset, holes);
        let next = self.queues[place].next;
        if at < next {
            self.queues[place].restart(at, wanted.offset);
            if let Some(sink) = &mut self.sink {
                sink.restart(&self.queues[place].topic, self.queues[place].queue_id)?;
            }
            return Ok(());
        }
        let is_held = self.between(place, next, at, holes)?;
        let queue = &mut self.queues[place];
        if queue.explained == explained && queue.odd.is_empty() && !is_held {
            queue.note(Run { to: at, count: (at - next).unsigned_abs(), ..Run::one(Wrong::Gap, next, wanted.offset, 0) });
        }
        queue.explained = explained;
        Ok(())
    }

    /// What could explain that records are not there.
    fn explanations(&self, offset: i64, holes: &Holes) -> u64 {
        holes.met() + Holes::gaps_before(self.log, offset)
    }

    /// The first record of a queue: what lies in front of it has expired.
    fn begin(&mut self, place: usize, at: i64, wanted: Wanted, holes: &Holes) -> Result<(), StoreError> {
        let explained = self.explanations(wanted.offset, holes);
        let queue = &mut self.queues[place];
        (queue.first, queue.live_from, queue.explained) = (at, wanted.offset, explained);
        let first = queue.files.first().map_or(at, |(start, _)| start / UNIT);
        let end = queue.files.last().map_or(0, |(start, len)| (start + *len as i64) / UNIT);
        for offset in first..at.min(end) {
            let Some(unit) = self.read_unit(place, offset)? else { continue };
            self.units += 1;
            match self.without_record(place, &unit, holes) {
                None | Some(Wrong::Filler) => {}
                Some(what) => self.queues[place].note(Run::one(what, offset, unit.physical_offset, 0)),
            }
        }
        Ok(())
    }

    /// Queue offsets of a gap; whether units hold the place of all of them.
    fn between(&mut self, place: usize, from: i64, to: i64, holes: &Holes) -> Result<bool, StoreError> {
        let mut is_held = true;
        for offset in from..to {
            let Some(unit) = self.read_unit(place, offset)? else {
                is_held = false;
                continue;
            };
            self.units += 1;
            // between records none has expired
            let what = self.without_record(place, &unit, holes).unwrap_or(Wrong::Bogus);
            self.tell_of_damage(place, offset, unit, what)?;
            is_held &= matches!(what, Wrong::Filler | Wrong::OfDamage);
            self.queues[place].note(Run::one(what, offset, unit.physical_offset, 0));
        }
        Ok(is_held)
    }

    /// A damaged record's unit, for one who builds the queue anew.
    fn tell_of_damage(&mut self, place: usize, at: i64, unit: CqUnit, what: Wrong) -> Result<(), StoreError> {
        let Some(sink) = self.sink.as_mut().filter(|_| what == Wrong::OfDamage) else { return Ok(()) };
        let queue = &self.queues[place];
        sink.unit_of_damage(&queue.topic, queue.queue_id, at, unit)
    }

    /// What a unit is that no record calls for; `None` for one whose record has expired.
    fn without_record(&mut self, place: usize, unit: &CqUnit, holes: &Holes) -> Option<Wrong> {
        if !unit.is_valid() {
            Some(Wrong::Zero)
        } else if !unit.is_present() {
            Some(Wrong::Filler)
        } else if unit.physical_offset < self.log.min_offset() {
            None
        } else if holes.explain(self.log, unit.physical_offset) || self.queues[place].odd.contains(&unit.physical_offset) {
            if self.of_damage.len() < MAX_OF_DAMAGE {
                self.of_damage.push((unit.physical_offset, unit.size));
            }
            Some(Wrong::OfDamage)
        } else {
            Some(Wrong::Bogus)
        }
    }

    /// The record has this queue offset: compares its unit.
    fn accept(&mut self, place: usize, at: i64, wanted: Wanted) -> Result<(), StoreError> {
        self.units += 1;
        if let Some(sink) = &mut self.sink {
            let unit = CqUnit { physical_offset: wanted.offset, size: wanted.size, tags_code: wanted.tags_code };
            sink.unit(&self.queues[place].topic, self.queues[place].queue_id, at, unit)?;
        }
        let there = self.read_unit(place, at)?.filter(CqUnit::is_present);
        let what = match there {
            None => Some(Wrong::Missing),
            Some(unit) if unit.physical_offset == wanted.offset && unit.size == wanted.size => {
                (!tags_fit(unit.tags_code, &wanted)).then_some(Wrong::Tags)
            }
            Some(unit) if unit.physical_offset == wanted.offset => Some(Wrong::Elsewhere),
            Some(_) => Some(self.shift(place, at, wanted.offset)?.map_or(Wrong::Elsewhere, Wrong::Shifted)),
        };
        let queue = &mut self.queues[place];
        if let Some(what) = what {
            queue.note(Run::one(what, at, wanted.offset, wanted.store_timestamp));
        }
        queue.next = at + 1;
        queue.records += 1;
        Ok(())
    }

    /// How far beside its place the unit of a record lies.
    fn shift(&mut self, place: usize, at: i64, physical_offset: i64) -> Result<Option<i64>, StoreError> {
        let last = self.queues[place].runs.last().and_then(|run| if let Wrong::Shifted(by) = run.what { Some(by) } else { None });
        for by in last.into_iter().chain((1..=MAX_SHIFT).flat_map(|by| [by, -by])) {
            if at + by >= 0
                && self.read_unit(place, at + by)?.is_some_and(|unit| unit.is_present() && unit.physical_offset == physical_offset)
            {
                return Ok(Some(by));
            }
        }
        Ok(None)
    }

    // ---- the end ----

    /// The walk is over, the log ends at `end`: looks at what queues hold behind their records, tells what was found.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::store) fn finish(&mut self, end: i64, holes: &Holes, findings: &mut Findings) -> Result<(), StoreError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        for place in 0..self.queues.len() {
            if !self.queues[place].skipped {
                self.behind(place, end, holes)?;
                self.tell(place, findings);
            }
            self.queues[place].window = Vec::new();
        }
        self.tell_of_all(findings);
        Ok(())
    }

    /// Units behind the last record.
    fn behind(&mut self, place: usize, end: i64, holes: &Holes) -> Result<(), StoreError> {
        if let Some(pending) = self.queues[place].pending.take() {
            let queue = &self.queues[place];
            // nothing speaks against a topic that was made anew, nor against the last record behind a gap
            if pending.at >= queue.next || (pending.at == 0 && !queue.has_folder) {
                self.jump(place, pending.at, pending.wanted, holes)?;
                self.accept(place, pending.at, pending.wanted)?;
            } else {
                self.odd(place, pending);
            }
        }
        let queue = &self.queues[place];
        let first = queue.files.first().map_or(0, |(start, _)| start / UNIT);
        let last = queue.files.last().map_or(0, |(start, len)| (start + *len as i64) / UNIT);
        let mut at = queue.next.max(first);
        let mut is_right = true;
        while at < last {
            let Some(unit) = self.read_unit(place, at)? else {
                at = (at * UNIT / self.file_size as i64 + 1) * self.file_size as i64 / UNIT; // a file is missing
                is_right = false;
                continue;
            };
            if !unit.is_valid() {
                return self.behind_units(place, at, last);
            }
            self.units += 1;
            let what = match self.without_record(place, &unit, holes) {
                Some(Wrong::Bogus) if unit.end() > end => Some(Wrong::BehindLog),
                None if self.queues[place].records > 0 => Some(Wrong::Bogus),
                what => what,
            };
            is_right &= matches!(what, None | Some(Wrong::Filler | Wrong::OfDamage));
            if let Some(what) = what.filter(|_| is_right) {
                self.tell_of_damage(place, at, unit, what)?;
            }
            let queue = &mut self.queues[place];
            if is_right {
                queue.tail_end = at + 1;
            }
            if let Some(what) = what {
                queue.note(Run::one(what, at, unit.physical_offset, 0));
            }
            at += 1;
        }
        Ok(())
    }

    fn is_unknown(&self, queue: &Queue) -> bool {
        !queue.has_folder && self.topics.is_some_and(|topics| !topics.contains(&*queue.topic) && !is_system_topic(&queue.topic))
    }

    /// Start and size of damaged records that have units, by start.
    pub(in crate::store) fn of_damage(&mut self) -> Vec<(i64, i32)> {
        let mut known = std::mem::take(&mut self.of_damage);
        known.sort_unstable();
        known
    }

    /// What repair needs to know.
    pub(in crate::store) fn states(&self) -> Vec<QueueState> {
        let state = |queue: &Queue| QueueState {
            topic: queue.topic.to_string(),
            queue_id: queue.queue_id,
            has_folder: queue.has_folder,
            damaged: queue.is_damaged(),
            ignored: queue.skipped || self.is_unknown(queue),
            end: queue.next.max(queue.tail_end).max(0),
        };
        self.queues.iter().map(state).collect()
    }

    /// Bounds of the queues that exist.
    pub(in crate::store) fn bounds(&self) -> Vec<QueueBounds> {
        let bounds = |queue: &Queue| {
            let max_offset = queue.next.max(queue.tail_end).max(0);
            let min_offset = if queue.records > 0 { queue.first } else { max_offset };
            QueueBounds { topic: queue.topic.to_string(), queue_id: queue.queue_id, min_offset, max_offset }
        };
        let mut all: Vec<QueueBounds> = self.queues.iter().filter(|queue| !queue.skipped && !self.is_unknown(queue)).map(bounds).collect();
        all.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        all
    }
}
