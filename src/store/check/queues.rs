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
use std::sync::Arc;

use foldhash::quality::RandomState;
use smallvec::SmallVec;

use crate::common::record::Record;
use crate::common::topic::{SCHEDULE_TOPIC, is_system_topic};
use crate::store::consume_queue::MAX_GAP;
use crate::store::error::StoreError;
use crate::store::file_cache::{FileCache, failed};
use crate::store::format::cq_unit::{CQ_UNIT_SIZE, CqUnit};
use crate::store::fs::{Fs, FsFile};

use super::damage::{Holes, NextStart};
use super::layout::{LogFiles, QueueFolders};
use super::read_only::ReadOnlyFs;
use super::report::{Finding, Findings, Kind, QueueBounds, Remedy, Severity};

/// [`CQ_UNIT_SIZE`] for arithmetic on offsets.
const UNIT: i64 = CQ_UNIT_SIZE as i64;
/// Bytes of all windows together.
const WINDOWS_BYTES: usize = 32 << 20;
/// Least and most units of a window.
const WINDOW_UNITS: (usize, usize) = (24, 3_200);
/// Runs of wrong units that are told apart in one queue; more are counted.
const MAX_RUNS: usize = 16;
/// Records with an impossible queue offset that are remembered of a queue.
const MAX_ODD: usize = 64;
/// How far beside its place a unit is looked for.
const MAX_SHIFT: i64 = 8;
/// Tags codes at or below are addresses of Java's extension files.
const MAX_EXT_ADDRESS: i64 = i32::MIN as i64 - 1;
/// Prefix of queues that hold messages of other topics.
const LIGHT_PREFIX: &str = "%LMQ%";

/// What is wrong with units of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Missing,
    Shifted(i64),
    Elsewhere,
    Tags,
    Bogus,
    BehindLog,
    Zero,
    Filler,
    OfDamage,
    Twice,
    Odd,
    Gap,
}

/// Consecutive queue offsets with the same trouble.
#[derive(Clone, Copy, Debug)]
struct Run {
    what: Wrong,
    from: i64,
    to: i64,
    count: u64,
    /// Of the first record or unit.
    physical_offset: i64,
    store_timestamp: i64,
}

/// What a record says about its unit.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    offset: i64,
    size: i32,
    tags_code: i64,
    store_timestamp: i64,
    is_delayed: bool,
}

/// A record with a queue offset that is in doubt.
#[derive(Clone, Copy, Debug)]
struct Pending {
    at: i64,
    wanted: Wanted,
}

/// Who wants to know which unit each record should have.
pub(in crate::store) trait UnitSink {
    /// Whether it cares for a queue; others are passed over.
    fn wants(&self, topic: &str, queue_id: i32) -> bool;
    /// The unit at a queue offset; they ascend.
    ///
    /// # Errors
    /// Those of the sink.
    fn unit(&mut self, topic: &str, queue_id: i32, at: i64, unit: CqUnit) -> Result<(), StoreError>;
    /// The numbering begins again: what was told of the queue is void.
    ///
    /// # Errors
    /// Those of the sink.
    fn restart(&mut self, topic: &str, queue_id: i32) -> Result<(), StoreError>;
    /// From here on a damaged record may be pointed at by this unit.
    fn seal(&mut self, unit: CqUnit);
}

/// One queue.
#[derive(Debug)]
struct Queue {
    topic: Box<str>,
    queue_id: i32,
    files: Vec<(i64, u64)>,
    has_folder: bool,
    files_damaged: bool,
    /// Not compared.
    skipped: bool,
    /// Queue offset behind the last record; -1 before the first.
    next: i64,
    /// First queue offset with a record.
    first: i64,
    records: u64,
    /// Where the numbering begins.
    live_from: i64,
    restarts: u32,
    /// A record whose queue offset does not follow the one before; the next record tells whether it is right.
    pending: Option<Pending>,
    /// Physical offsets of records whose queue offsets cannot be.
    odd: Vec<i64>,
    /// What could explain a gap, as counted at the last record.
    explained: u64,
    runs: Vec<Run>,
    uncounted: u64,
    /// Behind the last unit that is right without a record.
    tail_end: i64,
    window: Vec<u8>,
    window_first: i64,
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
            is_held &= matches!(what, Wrong::Filler | Wrong::OfDamage);
            self.queues[place].note(Run::one(what, offset, unit.physical_offset, 0));
        }
        Ok(is_held)
    }

    /// What a unit is that no record calls for; `None` for one whose record has expired.
    fn without_record(&self, place: usize, unit: &CqUnit, holes: &Holes) -> Option<Wrong> {
        if !unit.is_valid() {
            Some(Wrong::Zero)
        } else if !unit.is_present() {
            Some(Wrong::Filler)
        } else if unit.physical_offset < self.log.min_offset() {
            None
        } else if holes.explain(self.log, unit.physical_offset) || self.queues[place].odd.contains(&unit.physical_offset) {
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

    // ---- units ----

    /// The unit at a queue offset; `None` where there is no file for it.
    fn read_unit(&mut self, place: usize, at: i64) -> Result<Option<CqUnit>, StoreError> {
        let queue = &self.queues[place];
        let in_window = usize::try_from(at - queue.window_first).ok().filter(|unit| (unit + 1) * CQ_UNIT_SIZE <= queue.window.len());
        if let Some(unit) = in_window {
            return Ok(Some(CqUnit::decode(&queue.window[unit * CQ_UNIT_SIZE..])));
        }
        let start = at * UNIT - (at * UNIT) % self.file_size as i64;
        let Ok(file) = queue.files.binary_search_by_key(&start, |(start, _)| *start) else { return Ok(None) };
        let len = queue.files[file].1 as i64 / UNIT;
        let within = at - start / UNIT;
        if within >= len {
            return Ok(None);
        }
        let opened = self.open(place, start)?;
        let from = (within - MAX_SHIFT).max(0);
        let units = self.windows.min((len - from) as usize);
        let queue = &mut self.queues[place];
        queue.window.resize(units * CQ_UNIT_SIZE, 0);
        queue.window.shrink_to(units * CQ_UNIT_SIZE);
        queue.window_first = i64::MAX; // nothing, should the read fail
        let read = opened.read_exact_at(&mut queue.window, (from * UNIT) as u64);
        read.map_err(failed("read", &queue.path(&self.root, start)))?;
        queue.window_first = at - (within - from);
        Ok(Some(CqUnit::decode(&queue.window[(within - from) as usize * CQ_UNIT_SIZE..])))
    }

    fn open(&self, place: usize, start: i64) -> Result<Arc<dyn FsFile>, StoreError> {
        let key = (place as u64, start);
        if let Some(file) = self.cache.get(key) {
            return Ok(file);
        }
        let path = self.queues[place].path(&self.root, start);
        let file = self.fs.open_read(&path).map_err(failed("open", &path))?;
        self.cache.insert(key, Arc::clone(&file));
        Ok(file)
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

    /// What is no unit must be the end: only zeros may follow.
    fn behind_units(&mut self, place: usize, from: i64, to: i64) -> Result<(), StoreError> {
        let files = self.queues[place].files.clone();
        let mut buffer = vec![0; 64_000];
        for (start, len) in files {
            let mut at = (from * UNIT - start).max(0) as u64;
            if start + (len as i64) <= from * UNIT || at >= len {
                continue;
            }
            let path = self.queues[place].path(&self.root, start);
            let file = self.open(place, start)?;
            while let Some(data) = file.next_data(at).map_err(failed("read", &path))?.filter(|data| *data < len) {
                let bytes = &mut buffer[..(len - data).min(64_000) as usize];
                file.read_exact_at(bytes, data).map_err(failed("read", &path))?;
                if let Some(dirty) = bytes.iter().position(|byte| *byte != 0) {
                    let unit = (start + data as i64 + dirty as i64) / UNIT;
                    self.queues[place].note(Run { to, ..Run::one(Wrong::Zero, from.min(unit), -1, 0) });
                    return Ok(());
                }
                at = data + bytes.len() as u64;
            }
        }
        Ok(())
    }

    fn tell(&self, place: usize, findings: &mut Findings) {
        let queue = &self.queues[place];
        if self.is_unknown(queue) {
            return;
        }
        if !queue.has_folder && queue.records > 0 {
            let (offset, time) = queue.runs.first().map_or((queue.live_from, 0), |run| (run.physical_offset, run.store_timestamp));
            let (severity, remedy) = self.mended(self.next_start.dispatches(offset, time));
            let text = format!("no folder for the {} records of the queue: consumers get none of them", queue.records);
            let folder = self.root.join(&*queue.topic).join(queue.queue_id.to_string());
            let finding = Finding::new(Kind::QueueMissing, severity, &folder, text, remedy).queue(&queue.topic, queue.queue_id);
            findings.add(finding.physical(offset).count(queue.records));
            return;
        }
        for run in &queue.runs {
            self.tell_run(queue, run, findings);
        }
        if queue.uncounted > 0 {
            let text = "more of the same, and of other kinds, in this queue".to_owned();
            let folder = self.root.join(&*queue.topic).join(queue.queue_id.to_string());
            let finding = Finding::new(Kind::UnitWrong, Severity::Error, &folder, text, Remedy::Repair);
            findings.add(finding.queue(&queue.topic, queue.queue_id).count(queue.uncounted));
        }
    }

    fn tell_run(&self, queue: &Queue, run: &Run, findings: &mut Findings) {
        let Run { what, from, to, count, physical_offset, store_timestamp } = *run;
        let units = if count == 1 { format!("unit {from}") } else { format!("units {from} to {}", to - 1) };
        let repair = (Severity::Error, Remedy::Repair);
        let note = (Severity::Note, Remedy::Nothing);
        let is_tail = to == queue.next && queue.tail_end <= to;
        let damaged_header = Remedy::Act("the record's own queue offset is damaged: its body can be read at this physical offset");
        let (kind, text, (severity, remedy)) = match what {
            Wrong::Missing => {
                let mended = is_tail && self.next_start.dispatches(physical_offset, store_timestamp);
                (Kind::UnitMissing, format!("no {units}, but records for it"), self.mended(mended))
            }
            Wrong::Shifted(by) => (Kind::UnitShifted, format!("{units}: their records' units lie {by:+} beside"), repair),
            Wrong::Elsewhere => (Kind::UnitWrong, format!("{units} does not point to the record of this queue offset"), repair),
            Wrong::Tags => (Kind::UnitTagsCode, format!("{units} has not the tags code of its record"), repair),
            Wrong::Bogus => (Kind::UnitBogus, format!("{units} points to what is no record of the queue"), repair),
            Wrong::BehindLog => {
                (Kind::UnitBehindLog, format!("{units} points behind the end of the log"), (Severity::Warning, Remedy::Start))
            }
            Wrong::Zero => {
                let half_written = if self.next_start.live { (Severity::Warning, Remedy::Nothing) } else { repair };
                (Kind::UnitZero, format!("from unit {from} on: bytes that are no unit, with something behind them"), half_written)
            }
            Wrong::Filler => (Kind::UnitFiller, format!("{units} holds the place of a record that is lost"), note),
            Wrong::OfDamage => (Kind::UnitOfDamage, format!("{units} points to a damaged record"), note),
            Wrong::Twice => {
                (Kind::QueueOffsetTwice, format!("queue offset {from} had been given before"), (Severity::Error, damaged_header))
            }
            Wrong::Odd => (Kind::QueueOffsetOdd, format!("queue offset {from} cannot be"), (Severity::Error, damaged_header)),
            Wrong::Gap => {
                let remedy = Remedy::Act("nothing, if records were removed on purpose");
                (Kind::QueueOffsetGap, format!("queue offsets {from} to {} have no record in the log", to - 1), (Severity::Warning, remedy))
            }
        };
        let byte = from.clamp(0, i64::MAX / UNIT) * UNIT;
        let start = byte - byte % self.file_size as i64;
        let mut finding = Finding::new(kind, severity, &queue.path(&self.root, start), text, remedy)
            .queue(&queue.topic, queue.queue_id)
            .queue_offset(from)
            .count(count);
        finding = match what {
            Wrong::Twice | Wrong::Odd | Wrong::Gap => self.log.locate(finding, physical_offset),
            _ if physical_offset >= 0 => finding.at((byte - start) as u64).physical(physical_offset),
            _ => finding.at((byte - start) as u64),
        };
        findings.add(finding);
    }

    fn tell_of_all(&self, findings: &mut Findings) {
        let unknown: Vec<&Queue> = self.queues.iter().filter(|queue| self.is_unknown(queue)).collect();
        if let Some(first) = unknown.first() {
            let records = unknown.iter().map(|queue| queue.records).sum::<u64>();
            let text = format!("{records} records of queues without topic, such as {}: deleted topics, most likely", first.topic);
            findings.add(Finding::new(Kind::TopicUnknown, Severity::Note, &self.root, text, Remedy::Nothing).count(unknown.len() as u64));
        }
        for queue in self.queues.iter().filter(|queue| queue.restarts > 0) {
            let text = "the numbering of the queue began again: its topic was deleted and made anew, most likely";
            let finding = Finding::new(Kind::QueueRestarted, Severity::Note, &self.root, text, Remedy::Nothing);
            findings.add(self.log.locate(finding.queue(&queue.topic, queue.queue_id), queue.live_from));
        }
        let skipped = self.queues.iter().filter(|queue| queue.skipped);
        for queue in skipped {
            let text = "queues of this kind are not compared with the log";
            let finding = Finding::new(Kind::QueueSkipped, Severity::Note, &self.root, text, Remedy::Nothing);
            findings.add(finding.queue(&queue.topic, queue.queue_id));
        }
        if self.odd_topics > 0 {
            let text = "records whose topic cannot be the name of a folder: nobody consumes them";
            findings.add(Finding::new(Kind::TopicOdd, Severity::Warning, &self.root, text, Remedy::Nothing).count(self.odd_topics));
        }
    }

    fn mended(&self, by_start: bool) -> (Severity, Remedy) {
        if by_start { (Severity::Warning, Remedy::Start) } else { (Severity::Error, Remedy::Repair) }
    }

    fn is_unknown(&self, queue: &Queue) -> bool {
        !queue.has_folder && self.topics.is_some_and(|topics| !topics.contains(&*queue.topic) && !is_system_topic(&queue.topic))
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

/// Whether a unit's tags code is its record's. Deliver times were computed with the delays of their time.
fn tags_fit(tags_code: i64, wanted: &Wanted) -> bool {
    tags_code == wanted.tags_code || tags_code <= MAX_EXT_ADDRESS || (wanted.is_delayed && tags_code >= wanted.store_timestamp)
}

impl Run {
    fn one(what: Wrong, at: i64, physical_offset: i64, store_timestamp: i64) -> Self {
        Self { what, from: at, to: at.saturating_add(1), count: 1, physical_offset, store_timestamp }
    }
}

impl Queue {
    fn new(topic: &str, queue_id: i32) -> Self {
        Self {
            topic: topic.into(),
            queue_id,
            files: Vec::new(),
            has_folder: false,
            files_damaged: false,
            skipped: false,
            next: -1,
            first: 0,
            records: 0,
            live_from: 0,
            restarts: 0,
            pending: None,
            odd: Vec::new(),
            explained: 0,
            runs: Vec::new(),
            uncounted: 0,
            tail_end: 0,
            window: Vec::new(),
            window_first: i64::MAX,
        }
    }

    fn note(&mut self, run: Run) {
        let has_room = self.runs.len() < MAX_RUNS;
        match self.runs.last_mut() {
            Some(last) if last.what == run.what && last.to == run.from => {
                last.to = run.to;
                last.count += run.count;
            }
            _ if has_room => self.runs.push(run),
            _ if matches!(run.what, Wrong::Filler | Wrong::OfDamage) => {}
            _ => self.uncounted += run.count,
        }
    }

    /// A new numbering begins with this record.
    fn restart(&mut self, at: i64, physical_offset: i64) {
        self.restarts += 1;
        self.runs.clear();
        self.uncounted = 0;
        self.odd.clear();
        (self.first, self.live_from, self.records) = (at, physical_offset, 0);
    }

    fn is_damaged(&self) -> bool {
        let wrong = |run: &Run| !matches!(run.what, Wrong::Filler | Wrong::OfDamage | Wrong::Twice | Wrong::Odd | Wrong::Gap);
        self.files_damaged || self.uncounted > 0 || self.runs.iter().any(wrong)
    }

    fn path(&self, root: &std::path::Path, start: i64) -> PathBuf {
        root.join(&*self.topic).join(self.queue_id.to_string()).join(format!("{start:020}"))
    }
}
