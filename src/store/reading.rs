//! Reading: what a pull, a query and an admin request get.
//!
//! The functions of [`super::MessageStore`] that read, over a [`LogView`], the queues and the index. They take no lock that a
//! writer holds for longer than a copy of memory, and nothing behind the visible offset leaves them.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::common::hash::tags_code;
use crate::common::record::{self, Record};
use crate::common::{properties, sysflag};

use super::commit_log::CommitLog;
use super::consume_queue::{ConsumeQueue, CqUnit, is_missing};
use super::consume_queue_table::ConsumeQueueTable;
use super::error::StoreError;
use super::index::{Index, TAGS_PREFIX};
use super::mend::{Target, is_shifted, target};

/// Bounds of one pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLimits {
    /// Messages at most (the client's wish, capped by the caller).
    pub max_messages: usize,
    /// Bytes at most when the data is in memory (`maxTransferBytesOnMessageInMemory`); one message is returned whatever its size.
    pub max_bytes: usize,
    /// Messages at most when the data is in memory (`maxTransferCountOnMessageInMemory`).
    pub max_messages_in_memory: usize,
    /// Bytes at most when it is on disk (`maxTransferBytesOnMessageInDisk`).
    pub max_bytes_on_disk: usize,
    /// Messages at most when it is on disk (`maxTransferCountOnMessageInDisk`).
    pub max_messages_on_disk: usize,
}

impl Default for GetLimits {
    fn default() -> Self {
        Self { max_messages: 32, max_bytes: 262_144, max_messages_in_memory: 32, max_bytes_on_disk: 65_536, max_messages_on_disk: 8 }
    }
}

/// Outcome of a pull's look-up (`GetMessageStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of the protocol")]
pub enum GetStatus {
    Found,
    NoMatchedMessage,
    MessageWasRemoving,
    OffsetFoundNull,
    OffsetOverflowBadly,
    OffsetOverflowOne,
    OffsetTooSmall,
    NoMatchedLogicQueue,
    NoMessageInQueue,
}

/// What a pull gets.
#[derive(Clone, Debug)]
pub struct GetResult {
    /// Outcome.
    pub status: GetStatus,
    /// Records; adjacent ones are one slice. Each keeps its file mapped.
    pub slices: SmallVec<[Bytes; 2]>,
    /// Number of records in the slices.
    pub messages: usize,
    /// Bytes of the slices.
    pub bytes: usize,
    /// Where to go on.
    pub next_begin_offset: i64,
    /// Smallest offset of the queue.
    pub min_offset: i64,
    /// Offset behind the last message of the queue.
    pub max_offset: i64,
    /// The reader is so far behind that a slave should serve it.
    pub suggest_slave: bool,
}

/// Decides which messages a pull returns.
pub trait MessageFilter {
    /// By the consume queue's tags code, before the record is touched.
    fn matches_code(&self, tags_code: i64) -> bool;
    /// By the record's properties text; only called when [`MessageFilter::needs_properties`].
    fn matches_properties(&self, properties: &str) -> bool {
        let _ = properties;
        true
    }
    /// Whether records must be read.
    fn needs_properties(&self) -> bool {
        false
    }
}

/// Everything passes.
pub struct AllMessages;

impl MessageFilter for AllMessages {
    fn matches_code(&self, _tags_code: i64) -> bool {
        true
    }
}

/// What a query by key gets.
#[derive(Clone, Debug, Default)]
pub struct QueryResult {
    /// Records found, newest first.
    pub records: Vec<Bytes>,
    /// Store time up to which the index has come.
    pub index_last_update_timestamp: i64,
    /// Physical offset up to which the index has come.
    pub index_last_update_physical_offset: i64,
}

/// Which of several messages of one time a search by time means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// The first.
    #[default]
    Lower,
    /// The last.
    Upper,
}

/// The commit log as reading and dispatching need it.
pub(super) trait LogView {
    /// Start of the first file.
    fn min_offset(&self) -> i64;
    /// Behind the last record appended.
    fn max_offset(&self) -> i64;
    /// Behind the last record that may be seen.
    fn visible_offset(&self) -> i64;
    /// `len` bytes at `offset`, if they lie in one file.
    fn slice(&self, offset: i64, len: usize) -> Option<Bytes>;
    /// From `offset` to the end of its file or of the log.
    fn slice_to_end(&self, offset: i64) -> Option<Bytes>;
    /// Start of the file behind the one that holds `offset`.
    fn next_file_start(&self, offset: i64) -> i64;
    /// Store time of the record at `offset`; -1 when it cannot be read.
    fn store_time(&self, offset: i64, size: i32) -> i64;
    /// Whether the bytes are known to be in memory.
    fn is_resident(&self, offset: i64, len: usize) -> bool {
        let _ = (offset, len);
        false
    }
}

impl LogView for CommitLog {
    fn min_offset(&self) -> i64 {
        self.min_offset()
    }

    fn max_offset(&self) -> i64 {
        self.max_offset()
    }

    fn visible_offset(&self) -> i64 {
        self.visible_offset()
    }

    fn slice(&self, offset: i64, len: usize) -> Option<Bytes> {
        self.slice(offset, len)
    }

    fn slice_to_end(&self, offset: i64) -> Option<Bytes> {
        self.slice_to_end(offset)
    }

    fn next_file_start(&self, offset: i64) -> i64 {
        self.next_file_start(offset)
    }

    fn store_time(&self, offset: i64, size: i32) -> i64 {
        self.store_time(offset, size)
    }

    fn is_resident(&self, offset: i64, len: usize) -> bool {
        self.is_resident(offset, len)
    }
}

/// Least bytes of units that one filtered pull may scan (`maxFilterMessageSize`).
const MIN_SCAN_BYTES: usize = 16_000;
/// Units read at a time while a filter throws most of them away.
const SCAN_CHUNK: usize = 400;
/// Attempts of a query to find records that still exist.
const QUERY_CANDIDATES: usize = 10_000;
const CQ_UNIT: usize = super::format::cq_unit::CQ_UNIT_SIZE;

/// Bytes at the log's end that may be assumed to be in memory: `ratio` percent (`accessMessageInMemoryMaxRatio`) of all memory.
pub(super) fn in_memory_bytes(ratio: u8) -> i64 {
    let system = rustix::system::sysinfo();
    let total = u128::from(system.totalram) * u128::from(system.mem_unit.max(1));
    i64::try_from(total * u128::from(ratio) / 100).unwrap_or(i64::MAX)
}

/// [`super::MessageStore::get`]. `in_memory` is [`in_memory_bytes`].
#[allow(clippy::too_many_arguments, reason = "those of the method, and where it reads")]
pub(super) fn get<L: LogView>(
    log: &L, queues: &ConsumeQueueTable, in_memory: i64, topic: &str, queue_id: i32, offset: i64, limits: &GetLimits,
    filter: &dyn MessageFilter,
) -> GetResult {
    let Some(queue) = queues.get(topic, queue_id) else { return GetResult::nothing(GetStatus::NoMatchedLogicQueue, 0, (0, 0)) };
    let bounds = bounds_of(&queue);
    let (min, max) = bounds;
    if max == 0 {
        GetResult::nothing(GetStatus::NoMessageInQueue, 0, bounds)
    } else if offset < min {
        GetResult::nothing(GetStatus::OffsetTooSmall, min, bounds)
    } else if offset == max {
        GetResult::nothing(GetStatus::OffsetOverflowOne, offset, bounds)
    } else if offset > max {
        GetResult::nothing(GetStatus::OffsetOverflowBadly, max, bounds)
    } else {
        let mut pull = Pull::new(log, limits, in_memory, filter, GetResult::nothing(GetStatus::NoMatchedMessage, offset, bounds));
        pull.scan(&queue, offset);
        pull.finish()
    }
}

impl GetResult {
    fn nothing(status: GetStatus, next_begin_offset: i64, (min_offset, max_offset): (i64, i64)) -> Self {
        Self { status, slices: SmallVec::new(), messages: 0, bytes: 0, next_begin_offset, min_offset, max_offset, suggest_slave: false }
    }
}

/// One look-up on its way through the queue.
struct Pull<'a, L> {
    log: &'a L,
    limits: &'a GetLimits,
    in_memory: i64,
    filter: &'a dyn MessageFilter,
    result: GetResult,
    visible: i64,
    log_max: i64,
    last_physical: i64,
    /// Records before this are in a file that is gone.
    gone_before: i64,
    /// The rest of a file, from the physical offset in front.
    window: (i64, Bytes),
    /// Part of the window that is the last slice of the answer.
    run: std::ops::Range<usize>,
}

impl<'a, L: LogView> Pull<'a, L> {
    fn new(log: &'a L, limits: &'a GetLimits, in_memory: i64, filter: &'a dyn MessageFilter, result: GetResult) -> Self {
        Self {
            log,
            limits,
            in_memory,
            filter,
            result,
            visible: log.visible_offset(),
            log_max: log.max_offset(),
            last_physical: 0,
            gone_before: i64::MIN,
            window: (0, Bytes::new()),
            run: 0..0,
        }
    }

    fn scan(&mut self, queue: &ConsumeQueue, offset: i64) {
        let wanted = self.limits.max_messages.max(1);
        let end = self.result.max_offset.min(offset.saturating_add((MIN_SCAN_BYTES.max(wanted.saturating_mul(CQ_UNIT)) / CQ_UNIT) as i64));
        let mut units = Vec::new();
        let mut ask = wanted.min(SCAN_CHUNK);
        while self.result.next_begin_offset < end {
            units.clear();
            let at = self.result.next_begin_offset;
            let read = queue.read(at, ask.min((end - at) as usize), &mut units);
            if let Err(error) = read
                && units.is_empty()
            {
                self.unreadable(queue, &error);
            }
            if units.is_empty() || !units.iter().all(|unit| self.take(queue, unit)) {
                return;
            }
            ask = SCAN_CHUNK;
        }
    }

    /// The units at the next offset cannot be read. What a missing file held is passed over, anything else is tried again.
    fn unreadable(&mut self, queue: &ConsumeQueue, error: &StoreError) {
        let at = self.result.next_begin_offset;
        log::warn!("consume queue not read: topic={} queueId={} queueOffset={at} {error}", queue.topic(), queue.queue_id());
        if self.result.messages == 0 {
            self.result.status = GetStatus::OffsetFoundNull;
            if is_missing(error) {
                let units = queue.units_per_file();
                self.result.next_begin_offset = (at - at % units + units).min(self.result.max_offset);
            }
        }
    }

    /// Looks at the unit of the next offset; whether the scan goes on.
    fn take(&mut self, queue: &ConsumeQueue, unit: &CqUnit) -> bool {
        if *unit == CqUnit::FILLER {
            self.result.next_begin_offset += 1;
            return true;
        }
        if !unit.is_present() || unit.end() > self.log_max {
            return self.is_passed_over(queue); // what was dispatched was in the log: this unit is damaged
        }
        if unit.end() > self.visible {
            if self.result.messages == 0 && self.last_physical == 0 {
                self.result.status = GetStatus::OffsetOverflowOne; // as if it were not there yet
            }
            return false;
        }
        if self.is_full(unit) {
            return false;
        }
        if unit.physical_offset < self.gone_before {
            // in the file that was found gone
        } else if !unit.has_extension() && !self.filter.matches_code(unit.tags_code) {
            self.missed(GetStatus::NoMatchedMessage);
        } else {
            match self.place(unit) {
                None if self.log.slice_to_end(unit.physical_offset).is_some() => return self.is_passed_over(queue),
                None => {
                    self.missed(GetStatus::MessageWasRemoving);
                    self.gone_before = self.log.next_file_start(unit.physical_offset);
                }
                Some(place) => match self.target(queue, unit, &place) {
                    Target::Nothing => return self.is_passed_over(queue),
                    Target::NoMessage => self.missed(GetStatus::MessageWasRemoving),
                    Target::Message(_) if !self.matches_record(unit, &place) => self.missed(GetStatus::NoMatchedMessage),
                    Target::Message(_) => self.add(place),
                },
            }
        }
        self.last_physical = unit.physical_offset;
        self.result.next_begin_offset += 1;
        true
    }

    /// What the unit of the next offset points at.
    fn target(&self, queue: &ConsumeQueue, unit: &CqUnit, place: &std::ops::Range<usize>) -> Target {
        let (bytes, offset) = (&self.window.1[place.clone()], self.result.next_begin_offset);
        if is_message_of(bytes, unit, queue.queue_id(), offset) {
            return Target::Message(offset);
        }
        match target(bytes, unit, queue) {
            Target::Message(other) if other != offset && !is_shifted(self.log, queue, offset, other) && queue.report_damage(offset) => {
                Target::Nothing
            }
            target => target,
        }
    }

    /// The unit of the next offset is damaged. As long as it may be mended, it is waited for.
    fn is_passed_over(&mut self, queue: &ConsumeQueue) -> bool {
        if queue.report_damage(self.result.next_begin_offset) {
            self.missed(GetStatus::OffsetFoundNull);
            return false;
        }
        self.missed(GetStatus::MessageWasRemoving);
        self.result.next_begin_offset += 1;
        true
    }

    fn missed(&mut self, status: GetStatus) {
        if self.result.messages == 0 {
            self.result.status = status;
        }
    }

    /// Whether the answer has no room for one more; the first always has.
    fn is_full(&self, unit: &CqUnit) -> bool {
        if self.result.messages == 0 {
            return false;
        }
        let limits = self.limits;
        let (max_bytes, max_messages) = if self.log_max - unit.physical_offset <= self.in_memory {
            (limits.max_bytes, limits.max_messages_in_memory)
        } else {
            (limits.max_bytes_on_disk.min(limits.max_bytes), limits.max_messages_on_disk)
        };
        self.result.messages >= limits.max_messages.min(max_messages) || self.result.bytes + unit.size as usize > max_bytes
    }

    /// Where the record lies in the window, which is moved when it lies elsewhere.
    fn place(&mut self, unit: &CqUnit) -> Option<std::ops::Range<usize>> {
        let size = unit.size as usize;
        if let Some(from) = unit.physical_offset.checked_sub(self.window.0).and_then(|from| usize::try_from(from).ok())
            && from + size <= self.window.1.len()
        {
            return Some(from..from + size);
        }
        let bytes = self.log.slice_to_end(unit.physical_offset).filter(|bytes| size <= bytes.len())?;
        self.close_run();
        self.window = (unit.physical_offset, bytes);
        Some(0..size)
    }

    /// What the filter says of the record, as far as the unit's tags code did not tell.
    fn matches_record(&self, unit: &CqUnit, place: &std::ops::Range<usize>) -> bool {
        if !unit.has_extension() && !self.filter.needs_properties() {
            return true;
        }
        let Ok(record) = Record::parse(&self.window.1[place.clone()]) else { return false };
        let code = || tags_code(properties::find(record.properties, properties::TAGS));
        (!unit.has_extension() || self.filter.matches_code(code()))
            && (!self.filter.needs_properties() || self.filter.matches_properties(record.properties))
    }

    fn add(&mut self, place: std::ops::Range<usize>) {
        self.result.status = GetStatus::Found;
        self.result.messages += 1;
        self.result.bytes += place.len();
        if self.run.end == place.start && !self.run.is_empty() {
            self.run.end = place.end;
        } else {
            self.close_run();
            self.run = place;
        }
        self.gone_before = i64::MIN;
    }

    fn close_run(&mut self) {
        if !self.run.is_empty() {
            self.result.slices.push(self.window.1.slice(self.run.clone()));
        }
        self.run = 0..0;
    }

    fn finish(mut self) -> GetResult {
        self.close_run();
        self.result.suggest_slave = self.log_max - self.last_physical > self.in_memory;
        self.result
    }
}

/// Whether the bytes are the message that a queue's unit should point at, as far as their first 64 tell: of this length, at this place,
/// and not the seal of a damaged part of the log, which is a rollback record.
fn is_message_of(bytes: &[u8], unit: &CqUnit, queue_id: i32, queue_offset: i64) -> bool {
    let int = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|chunk| i32::from_be_bytes(*chunk));
    let long = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|chunk| i64::from_be_bytes(*chunk));
    int(record::TOTAL_SIZE) == Some(unit.size)
        && matches!(int(record::MAGIC), Some(record::MAGIC_V1 | record::MAGIC_V2))
        && int(record::QUEUE_ID) == Some(queue_id)
        && long(record::QUEUE_OFFSET) == Some(queue_offset)
        && long(record::PHYSICAL_OFFSET) == Some(unit.physical_offset)
        && int(record::SYS_FLAG).is_some_and(super::dispatch::has_unit)
}

fn bounds_of(queue: &ConsumeQueue) -> (i64, i64) {
    let max = queue.max_offset();
    (queue.min_offset().min(max), max)
}

/// The unit at an offset between the queue's bounds, if its record is visible. An error counts as absence.
fn visible_unit<L: LogView>(log: &L, queue: &ConsumeQueue, offset: i64) -> Option<CqUnit> {
    let (min, max) = bounds_of(queue);
    let unit = if (min..max).contains(&offset) { queue.unit_at(offset) } else { Ok(None) };
    unit.unwrap_or_else(|error| {
        log::warn!("consume queue not read: topic={} queueId={} queueOffset={offset} {error}", queue.topic(), queue.queue_id());
        None
    })
    .filter(|unit| !unit.is_present() || unit.end() <= log.visible_offset() || unit.end() > log.max_offset()) // the last: damaged
}

/// [`super::MessageStore::likely_cold`].
pub(super) fn likely_cold<L: LogView>(
    log: &L, queues: &ConsumeQueueTable, in_memory: i64, topic: &str, queue_id: i32, offset: i64,
) -> bool {
    let max = log.max_offset();
    max - log.min_offset() > in_memory
        && queues
            .get(topic, queue_id)
            .and_then(|queue| visible_unit(log, &queue, offset))
            .filter(|unit| unit.is_present() && max - unit.physical_offset > in_memory)
            .is_some_and(|unit| !log.is_resident(unit.physical_offset, unit.size as usize))
}

/// [`super::MessageStore::queue_bounds`].
pub(super) fn queue_bounds(queues: &ConsumeQueueTable, topic: &str, queue_id: i32) -> (i64, i64) {
    queues.get(topic, queue_id).map_or((0, 0), |queue| bounds_of(&queue))
}

/// [`super::MessageStore::has_queue`].
pub(super) fn has_queue(queues: &ConsumeQueueTable, topic: &str, queue_id: i32) -> bool {
    queues.get(topic, queue_id).is_some()
}

/// [`super::MessageStore::offset_by_time`]: `Lower` is the first message stored at or after the time, the queue's end when there is none;
/// `Upper` the last stored at or before it, the queue's begin when there is none. Messages whose time cannot be read are passed over.
pub(super) fn offset_by_time<L: LogView>(
    log: &L, queues: &ConsumeQueueTable, topic: &str, queue_id: i32, timestamp_ms: i64, boundary: Boundary,
) -> i64 {
    let Some(queue) = queues.get(topic, queue_id) else { return 0 };
    let (min, max) = bounds_of(&queue);
    let (mut low, mut high) = (min, max);
    let mut last_before = min; // last message on the near side of the boundary
    while low < high {
        let middle = low + (high - low) / 2;
        let Some((offset, store_time)) = next_store_time(log, &queue, middle, high) else {
            high = middle;
            continue;
        };
        let before = match boundary {
            Boundary::Lower => store_time < timestamp_ms,
            Boundary::Upper => store_time <= timestamp_ms,
        };
        if before {
            last_before = offset;
            low = offset + 1;
        } else {
            high = middle;
        }
    }
    match boundary {
        Boundary::Lower => next_store_time(log, &queue, low, max).map_or(max, |(offset, _)| offset),
        Boundary::Upper => last_before,
    }
}

/// First offset in `from..to` whose store time can be read, and that time.
fn next_store_time<L: LogView>(log: &L, queue: &ConsumeQueue, from: i64, to: i64) -> Option<(i64, i64)> {
    let mut at = from;
    while at < to {
        let (offset, unit) = queue.next_present(at, to).ok().flatten()?;
        let store_time = log.store_time(unit.physical_offset, unit.size);
        if store_time >= 0 {
            return Some((offset, store_time));
        }
        at = offset + 1;
    }
    None
}

/// [`super::MessageStore::store_time`].
pub(super) fn store_time<L: LogView>(log: &L, queues: &ConsumeQueueTable, topic: &str, queue_id: i32, offset: i64) -> i64 {
    let unit = queues.get(topic, queue_id).and_then(|queue| visible_unit(log, &queue, offset));
    unit.filter(CqUnit::is_present).map_or(-1, |unit| log.store_time(unit.physical_offset, unit.size))
}

/// [`super::MessageStore::message_at`]. An offset of the queue without a record (a filler, a seal, an expired one) gives no record; one
/// whose unit is damaged and will be mended gives nothing.
pub(super) fn message_at<L: LogView>(
    log: &L, queues: &ConsumeQueueTable, topic: &str, queue_id: i32, offset: i64,
) -> Option<(i64, Option<Bytes>)> {
    let queue = queues.get(topic, queue_id)?;
    let unit = visible_unit(log, &queue, offset)?;
    let is_gone = unit.is_present() && unit.end() <= log.max_offset() && log.slice_to_end(unit.physical_offset).is_none();
    if unit == CqUnit::FILLER || is_gone {
        return Some((unit.tags_code, None));
    }
    let bytes = if unit.is_present() { log.slice(unit.physical_offset, unit.size as usize) } else { None };
    let found = bytes.as_ref().map_or(Target::Nothing, |bytes| target(bytes, &unit, &queue));
    let damaged = match found {
        Target::Message(other) => other != offset && !is_shifted(log, &queue, offset, other),
        Target::NoMessage => false,
        Target::Nothing => true,
    };
    if damaged && queue.report_damage(offset) {
        return None;
    }
    Some((unit.tags_code, bytes.filter(|_| matches!(found, Target::Message(_)))))
}

/// [`super::MessageStore::record_at`].
pub(super) fn record_at<L: LogView>(log: &L, physical_offset: i64) -> Option<Bytes> {
    let size = i32::from_be_bytes(*log.slice(physical_offset, size_of::<i32>())?.first_chunk()?);
    let size = usize::try_from(size).ok().filter(|size| *size >= record::MIN_SIZE)?;
    if physical_offset.checked_add(size as i64)? > log.visible_offset() {
        return None;
    }
    let bytes = log.slice(physical_offset, size)?;
    let whole = Record::parse(&bytes).is_ok_and(|record| record.physical_offset == physical_offset);
    whole.then_some(bytes)
}

/// [`super::MessageStore::first_message_in_memory`].
pub(super) fn first_message_in_memory<L: LogView>(log: &L, queues: &ConsumeQueueTable, in_memory: i64, topic: &str, queue_id: i32) -> bool {
    queues
        .get(topic, queue_id)
        .and_then(|queue| visible_unit(log, &queue, 0))
        .is_some_and(|unit| unit.is_present() && log.max_offset() - unit.physical_offset <= in_memory)
}

/// [`super::MessageStore::query`]: newest first, at most `max`. Records that only share the key's hash are left out, as
/// are those that are no longer in the log, and those below `mark`, where the topic was deleted.
#[allow(clippy::too_many_arguments, reason = "those of the method, and where it reads")]
pub(super) fn query<L: LogView>(
    log: &L, index: Option<&Index>, mark: i64, topic: &str, key: &str, max: usize, begin_ms: i64, end_ms: i64,
) -> QueryResult {
    let Some(index) = index else { return QueryResult::default() };
    let (index_last_update_timestamp, index_last_update_physical_offset) = index.last();
    let mut result = QueryResult { index_last_update_timestamp, index_last_update_physical_offset, ..QueryResult::default() };
    let mut candidates = 0;
    let mut taken = Vec::new();
    if max > 0 {
        index.query_with(topic, key, begin_ms, end_ms, &mut |physical_offset| {
            candidates += 1;
            if physical_offset >= mark
                && !taken.contains(&physical_offset)
                && let Some(bytes) = record_at(log, physical_offset)
                && has_key(&bytes, topic, key)
            {
                result.records.push(bytes);
                taken.push(physical_offset); // indexed twice, perhaps
            }
            result.records.len() < max && candidates < QUERY_CANDIDATES
        });
    }
    result
}

fn has_key(bytes: &[u8], topic: &str, key: &str) -> bool {
    let Ok(record) = Record::parse(bytes) else { return false };
    let of = |name| properties::find(record.properties, name);
    let transaction = sysflag::transaction_type(record.sys_flag);
    record.topic == topic
        && transaction != sysflag::TRANSACTION_ROLLBACK
        && (of(properties::UNIQ_KEY) == Some(key)
            || of(properties::KEYS).is_some_and(|keys| keys.split(' ').any(|word| word == key))
            || key.strip_prefix(TAGS_PREFIX).is_some_and(|tags| of(properties::TAGS) == Some(tags)))
}

#[cfg(test)]
mod tests;
