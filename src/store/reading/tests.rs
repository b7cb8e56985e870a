use std::sync::Arc;
use std::sync::atomic::Ordering;

use tempfile::TempDir;

use super::*;
use crate::common::record::Draft;
use crate::store::RealFs;
use crate::store::config::StoreConfig;
use crate::store::dispatch::Dispatcher;
use crate::store::testing::{VecLog, deleted, draft};

const TIME: i64 = 1_700_000_000_000;
const FILE_SIZE: i64 = 10_000;

struct Store {
    folder: TempDir,
    config: StoreConfig,
    log: VecLog,
    queues: Arc<ConsumeQueueTable>,
    index: Arc<Index>,
    dispatcher: Dispatcher,
    next: i64,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config =
            StoreConfig { index_slots: 10, index_entries: 10_000, consume_queue_file_size: 20 * 100, ..StoreConfig::new(folder.path()) };
        let queues = Arc::new(ConsumeQueueTable::load(&config, RealFs::shared()).unwrap());
        let index = Arc::new(Index::load(&config, RealFs::shared(), None).unwrap());
        let dispatcher = Dispatcher::new(Arc::clone(&queues), Some(Arc::clone(&index)), deleted(folder.path()), Vec::new());
        Self { folder, config, log: VecLog::new(FILE_SIZE), queues, index, dispatcher, next: 0 }
    }

    fn append(&mut self, draft: &Draft<'_>, time: i64) -> (i64, i32) {
        let placed = self.log.append(draft, self.next, time);
        let bytes = self.log.slice(placed.0, placed.1 as usize).unwrap();
        self.dispatcher.dispatch(&Record::parse(&bytes).unwrap(), placed.0).unwrap();
        self.next += 1;
        placed
    }

    fn get(&self, offset: i64, filter: &dyn MessageFilter) -> GetResult {
        get(&self.log, &self.queues, i64::MAX, "T", 0, offset, &GetLimits::default(), filter)
    }

    fn bytes(&self, (at, size): (i64, i32)) -> Bytes {
        self.log.slice(at, size as usize).unwrap()
    }
}

fn summary(result: &GetResult) -> (GetStatus, i64, i64, i64) {
    (result.status, result.next_begin_offset, result.min_offset, result.max_offset)
}

#[test]
fn the_table_of_statuses() {
    let mut store = Store::new();
    let other = |topic, queue_id| {
        let result = get(&store.log, &store.queues, i64::MAX, topic, queue_id, 5, &GetLimits::default(), &AllMessages);
        summary(&result)
    };
    assert_eq!(other("T", 0), (GetStatus::NoMatchedLogicQueue, 0, 0, 0));
    store.queues.get_or_create("T", 0);
    assert_eq!(other("T", 0), (GetStatus::NoMessageInQueue, 0, 0, 0));
    let records: Vec<_> = (0..10).map(|_| store.append(&draft("T", 0, "", b"body"), TIME)).collect();
    store.queues.clean(records[3].0);
    assert_eq!(summary(&store.get(2, &AllMessages)), (GetStatus::OffsetTooSmall, 3, 3, 10));
    assert_eq!(summary(&store.get(-1, &AllMessages)), (GetStatus::OffsetTooSmall, 3, 3, 10));
    assert_eq!(summary(&store.get(10, &AllMessages)), (GetStatus::OffsetOverflowOne, 10, 3, 10));
    assert_eq!(summary(&store.get(11, &AllMessages)), (GetStatus::OffsetOverflowBadly, 10, 3, 10));
    assert_eq!(summary(&store.get(i64::MAX, &AllMessages)), (GetStatus::OffsetOverflowBadly, 10, 3, 10));
    let found = store.get(3, &AllMessages);
    assert_eq!((summary(&found), found.messages, found.slices.len()), ((GetStatus::Found, 10, 3, 10), 7, 1));
    assert_eq!(found.slices[0].len(), found.bytes);
    store.queues.clean(i64::MAX);
    assert_eq!(summary(&store.get(9, &AllMessages)), (GetStatus::OffsetTooSmall, 10, 10, 10));
    assert_eq!(summary(&store.get(10, &AllMessages)), (GetStatus::OffsetOverflowOne, 10, 10, 10));
}

#[test]
fn a_message_larger_than_every_limit_comes_alone() {
    let mut store = Store::new();
    store.append(&draft("T", 0, "", &[1; 5_000]), TIME);
    store.append(&draft("T", 0, "", &[2; 50]), TIME);
    let limits = GetLimits { max_bytes: 100, max_bytes_on_disk: 100, ..GetLimits::default() };
    let result = get(&store.log, &store.queues, i64::MAX, "T", 0, 0, &limits, &AllMessages);
    assert_eq!((result.status, result.messages, result.next_begin_offset), (GetStatus::Found, 1, 1));
    let none = GetLimits { max_messages: 0, ..GetLimits::default() };
    assert_eq!(get(&store.log, &store.queues, i64::MAX, "T", 0, 0, &none, &AllMessages).messages, 1);
}

#[test]
fn what_lies_far_back_is_read_by_the_limits_of_the_disk() {
    let mut store = Store::new();
    for _ in 0..100 {
        store.append(&draft("T", 0, "", &[1; 1_000]), TIME);
    }
    let read = |offset, in_memory| get(&store.log, &store.queues, in_memory, "T", 0, offset, &GetLimits::default(), &AllMessages);
    assert_eq!((read(0, i64::MAX).messages, read(0, 1_000).messages, read(95, 100_000).messages), (32, 8, 5));
    assert!(read(0, 1_000).suggest_slave && !read(0, i64::MAX).suggest_slave && !read(95, 50_000).suggest_slave);
    assert!(likely_cold(&store.log, &store.queues, 1_000, "T", 0, 0));
    assert!(!likely_cold(&store.log, &store.queues, 1_000_000, "T", 0, 0));
    assert!(!likely_cold(&store.log, &store.queues, 50_000, "T", 0, 99));
    assert!(first_message_in_memory(&store.log, &store.queues, 1_000_000, "T", 0));
    assert!(!first_message_in_memory(&store.log, &store.queues, 1_000, "T", 0));
    assert!(!first_message_in_memory(&store.log, &store.queues, 1_000, "T", 1));
}

#[test]
fn a_missing_file_of_the_queue_is_passed_over() {
    let mut store = Store::new();
    for _ in 0..450 {
        store.append(&draft("T", 0, "", b""), TIME);
    }
    store.queues.flush(false).unwrap();
    store.queues = Arc::new(ConsumeQueueTable::load(&store.config, RealFs::shared()).unwrap());
    std::fs::remove_file(store.folder.path().join("consumequeue/T/0/00000000000000002000")).unwrap();
    let summary = |offset| {
        let result = store.get(offset, &AllMessages);
        (result.status, result.messages, result.next_begin_offset)
    };
    assert_eq!(summary(90), (GetStatus::Found, 10, 100));
    assert_eq!(summary(100), (GetStatus::OffsetFoundNull, 0, 200));
    assert_eq!(summary(133), (GetStatus::OffsetFoundNull, 0, 200));
    assert_eq!(summary(200), (GetStatus::Found, 32, 232));
    assert_eq!(offset_by_time(&store.log, &store.queues, "T", 0, TIME, Boundary::Upper), 449);
}

#[test]
fn a_unit_that_points_behind_the_log_is_waited_for_until_it_cannot_be_mended() {
    let mut store = Store::new();
    let first = store.append(&draft("T", 0, "", b""), TIME);
    let wild = CqUnit { physical_offset: 1 << 50, size: 100, tags_code: 7 };
    store.queues.get("T", 0).unwrap().put(1, wild).unwrap();
    let result = store.get(0, &AllMessages);
    assert_eq!((summary(&result), result.slices[0].len()), ((GetStatus::Found, 1, 0, 2), first.1 as usize));
    assert_eq!(summary(&store.get(1, &AllMessages)), (GetStatus::OffsetFoundNull, 1, 0, 2));
    assert_eq!(message_at(&store.log, &store.queues, "T", 0, 1), None);
    let damaged = store.queues.take_damage();
    assert_eq!(damaged.iter().map(|(queue, offset)| (queue.topic(), *offset)).collect::<Vec<_>>(), [("T", 1)]);
    damaged[0].0.leave_damage(1);
    assert_eq!(summary(&store.get(0, &AllMessages)), (GetStatus::Found, 2, 0, 2));
    assert_eq!(summary(&store.get(1, &AllMessages)), (GetStatus::MessageWasRemoving, 2, 0, 2));
    assert_eq!(message_at(&store.log, &store.queues, "T", 0, 1), Some((7, None)));
}

#[test]
fn times() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut store = Store::new();
        let mut time = TIME;
        let mut times: Vec<Option<i64>> = Vec::new(); // by queue offset
        let first = if random.bool() { 0 } else { random.i64(0..500) };
        times.resize(first as usize, None);
        store.next = first;
        let mut log_min = 0;
        for _ in 0..random.usize(0..300) {
            if random.u32(0..20) == 0 {
                store.next += random.i64(1..30); // records that were lost
                times.resize(store.next as usize, None);
            }
            let placed = store.append(&draft("T", 0, "", b""), time);
            if random.u32(0..100) == 0 {
                log_min = placed.0;
            }
            times.push(Some(time));
            time += random.i64(0..4);
            if random.u32(0..50) == 0 {
                store.queues.flush(false).unwrap();
            }
        }
        if random.bool() {
            store.log.min.store(log_min, Ordering::Release); // the queue has not followed yet
        } else {
            store.queues.clean(log_min);
        }
        let (min, max) = queue_bounds(&store.queues, "T", 0);
        let readable: Vec<(i64, i64)> = (min..max)
            .filter_map(|offset| {
                let unit = store.queues.get("T", 0).unwrap().unit_at(offset).unwrap().filter(CqUnit::is_present)?;
                (unit.physical_offset >= store.log.min_offset()).then_some((offset, times[offset as usize]?))
            })
            .collect();
        for asked in TIME - 2..=time + 2 {
            let lower = offset_by_time(&store.log, &store.queues, "T", 0, asked, Boundary::Lower);
            let upper = offset_by_time(&store.log, &store.queues, "T", 0, asked, Boundary::Upper);
            assert_eq!(lower, readable.iter().find(|(_, time)| *time >= asked).map_or(max, |(offset, _)| *offset), "seed {seed} {asked}");
            assert_eq!(upper, readable.iter().rfind(|(_, time)| *time <= asked).map_or(min, |(offset, _)| *offset), "seed {seed} {asked}");
        }
        for (offset, time) in readable {
            assert_eq!(store_time(&store.log, &store.queues, "T", 0, offset), time);
        }
        assert_eq!(store_time(&store.log, &store.queues, "T", 0, max), -1);
    }
    let store = Store::new();
    assert_eq!(offset_by_time(&store.log, &store.queues, "none", 0, TIME, Boundary::Upper), 0);
}

#[test]
fn messages_by_offset() {
    let mut store = Store::new();
    let first = store.append(&draft("T", 0, "TAGS\u{1}TagA\u{2}", b"one"), TIME);
    store.next = 3;
    let second = store.append(&draft("T", 0, "", b"two"), TIME);
    let at = |offset| message_at(&store.log, &store.queues, "T", 0, offset);
    assert_eq!(at(0), Some((2_598_919, Some(store.bytes(first)))));
    assert_eq!(at(1), Some((0, None)), "a filler");
    assert_eq!(at(3), Some((0, Some(store.bytes(second)))));
    assert_eq!((at(4), at(-1)), (None, None));
    assert_eq!(record_at(&store.log, second.0), Some(store.bytes(second)));
    assert_eq!((record_at(&store.log, second.0 + 1), record_at(&store.log, -1), record_at(&store.log, i64::MAX)), (None, None, None));
    store.log.visible.store(second.0, Ordering::Release);
    let at = |offset| message_at(&store.log, &store.queues, "T", 0, offset);
    assert_eq!((at(0).is_some(), at(3), record_at(&store.log, second.0)), (true, None, None));
    assert_eq!(store_time(&store.log, &store.queues, "T", 0, 3), -1);
    assert_eq!(summary(&store.get(3, &AllMessages)), (GetStatus::OffsetOverflowOne, 3, 0, 4));
    assert!(has_queue(&store.queues, "T", 0) && !has_queue(&store.queues, "T", 1));
}

#[test]
fn queries_by_key() {
    let mut store = Store::new();
    let mut of_key = Vec::new();
    for number in 0..100 {
        let properties = format!("KEYS\u{1}k{} all\u{2}UNIQ_KEY\u{1}U{number}\u{2}TAGS\u{1}Tag{}\u{2}", number % 7, number % 2);
        let placed = store.append(&draft("T", 0, &properties, b""), TIME + number * 1_000);
        if number % 7 == 3 {
            of_key.insert(0, store.bytes(placed));
        }
    }
    let ask = |topic, key, max, begin, end| query(&store.log, Some(&store.index), 0, topic, key, max, begin, end);
    let result = ask("T", "k3", 100, 0, i64::MAX);
    assert_eq!(result.records, of_key);
    assert_eq!(result.index_last_update_timestamp, TIME + 99_000);
    assert!(result.index_last_update_physical_offset > 0);
    assert_eq!(ask("T", "k3", 3, 0, i64::MAX).records, of_key[..3]);
    assert_eq!(ask("T", "all", 64, 0, i64::MAX).records.len(), 64);
    assert_eq!(ask("T", "U42", 32, TIME + 42_000, TIME + 42_000).records.len(), 1);
    assert_eq!(ask("T", "T#Tag1", 50, 0, i64::MAX).records.len(), 50);
    for (topic, key, max) in [("U", "k3", 10), ("T", "k9", 10), ("T", "k3", 0), ("T", "", 10), ("T", "Tag1", 10)] {
        assert!(ask(topic, key, max, 0, i64::MAX).records.is_empty(), "{topic} {key} {max}");
    }
    let behind = |mark| query(&store.log, Some(&store.index), mark, "T", "k3", 100, 0, i64::MAX).records;
    assert_eq!(behind(store.log.max_offset()).len(), 0, "the topic was deleted since");
    assert_eq!(behind(Record::parse(&of_key[1]).unwrap().physical_offset), of_key[..2]);
    store.log.min.store(FILE_SIZE, Ordering::Release); // the oldest expired
    let left = query(&store.log, Some(&store.index), 0, "T", "k3", 100, 0, i64::MAX).records;
    assert!(!left.is_empty() && left.len() < of_key.len());
    assert_eq!(left, of_key[..left.len()]);
    assert!(query(&store.log, None, 0, "T", "k3", 100, 0, i64::MAX).records.is_empty());
}

/// A filter by tags codes and, perhaps, by a property.
struct ByTag {
    code: Option<i64>,
    property: Option<String>,
}

impl MessageFilter for ByTag {
    fn matches_code(&self, tags_code: i64) -> bool {
        self.code.is_none_or(|code| code == tags_code)
    }

    fn matches_properties(&self, text: &str) -> bool {
        self.property.as_deref().is_none_or(|wanted| properties::find(text, "p") == Some(wanted))
    }

    fn needs_properties(&self) -> bool {
        self.property.is_some()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Filler,
    Message,
    /// Its record was damaged: the unit points at a rollback record.
    Seal,
}

/// One offset of a queue as the test knows it.
struct Known {
    kind: Kind,
    placed: (i64, i32),
    code: i64,
    property: String,
}

/// Every pull against a plain walk over what is known.
#[test]
fn model() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut store = Store::new();
        let mut known: Vec<Known> = Vec::new();
        let filler = || Known { kind: Kind::Filler, placed: (0, 0), code: 0, property: String::new() };
        for _ in 0..random.usize(1..1_200) {
            if random.u32(0..30) == 0 {
                let most = if random.u32(0..5) == 0 { 900 } else { 5 };
                let gap = random.usize(1..most);
                store.next += gap as i64;
                known.extend((0..gap).map(|_| filler()));
            }
            let (tag, property) = (["TagA", "TagB", "TagC"][random.usize(0..3)], random.u32(0..3).to_string());
            let text = format!("TAGS\u{1}{tag}\u{2}p\u{1}{property}\u{2}");
            let body = vec![0; if random.u32(0..20) == 0 { random.usize(0..3_000) } else { random.usize(0..40) }];
            let placed = store.append(&draft("T", 0, &text, &body), TIME);
            let seal = random.u32(0..40) == 0;
            if seal {
                let at = placed.0 as usize + record::SYS_FLAG;
                store.log.bytes.lock()[at..at + 4].copy_from_slice(&sysflag::TRANSACTION_ROLLBACK.to_be_bytes());
            }
            let kind = if seal { Kind::Seal } else { Kind::Message };
            known.push(Known { kind, placed, code: crate::common::hash::tags_code(Some(tag)), property });
            if random.u32(0..3) == 0 {
                store.append(&draft("other", 0, "", b""), TIME); // in between in the log
                store.next -= 1;
            }
        }
        if random.bool() {
            store.queues.flush(false).unwrap();
        }
        let end = store.log.max_offset();
        if random.u32(0..3) == 0 {
            store.log.min.store(random.i64(0..=end / FILE_SIZE) * FILE_SIZE, Ordering::Release);
        }
        if random.u32(0..3) == 0 {
            store.queues.clean(store.log.min_offset());
        }
        if random.u32(0..3) == 0 {
            store.log.visible.store(known[random.usize(0..known.len())].placed.0.max(1), Ordering::Release);
        }
        for _ in 0..30 {
            let offset = random.i64(-1..known.len() as i64 + 2);
            let limits = GetLimits {
                max_messages: random.usize(0..1_100),
                max_bytes: random.usize(0..20_000),
                max_messages_in_memory: random.usize(1..200),
                max_bytes_on_disk: random.usize(0..5_000),
                max_messages_on_disk: random.usize(1..20),
            };
            let filter = ByTag {
                code: random.bool().then(|| crate::common::hash::tags_code(Some(["TagA", "TagX"][usize::from(random.u32(0..5) == 0)]))),
                property: (random.u32(0..3) == 0).then(|| random.u32(0..5).to_string()),
            };
            let in_memory = if random.bool() { i64::MAX } else { random.i64(0..end + 1) };
            let result = get(&store.log, &store.queues, in_memory, "T", 0, offset, &limits, &filter);
            let expected = walk(&store, &known, offset, &limits, &filter, in_memory);
            let context = format!("seed {seed} offset {offset} {limits:?}");
            assert_eq!((result.status, result.next_begin_offset), (expected.0, expected.1), "{context}");
            let records: Vec<u8> = expected.2.iter().flat_map(|placed| store.bytes(*placed)).collect();
            assert_eq!(result.slices.concat(), records, "{context}");
            assert_eq!((result.messages, result.bytes), (expected.2.len(), records.len()), "{context}");
            let runs = expected.2.windows(2).filter(|pair| pair[0].0 + i64::from(pair[0].1) != pair[1].0).count();
            assert_eq!(result.slices.len(), runs + usize::from(!expected.2.is_empty()), "{context}");
        }
    }
}

type Expected = (GetStatus, i64, Vec<(i64, i32)>);

fn walk(store: &Store, known: &[Known], offset: i64, limits: &GetLimits, filter: &ByTag, in_memory: i64) -> Expected {
    let (min, max) = (queue_bounds(&store.queues, "T", 0).0, known.len() as i64);
    if offset < min {
        return (GetStatus::OffsetTooSmall, min, Vec::new());
    }
    if offset >= max {
        let status = if offset == max { GetStatus::OffsetOverflowOne } else { GetStatus::OffsetOverflowBadly };
        return (status, max, Vec::new());
    }
    let scan = (limits.max_messages as i64).max(800);
    let (mut status, mut next, mut taken) = (GetStatus::NoMatchedMessage, offset, Vec::new());
    let (mut bytes, mut looked, mut gone_before) = (0, false, 0);
    for known in known.iter().skip(offset as usize).take(scan as usize) {
        let (at, size) = known.placed;
        if known.kind == Kind::Filler {
            next += 1;
            continue;
        }
        if at + i64::from(size) > store.log.visible_offset() {
            if !looked && taken.is_empty() {
                status = GetStatus::OffsetOverflowOne;
            }
            break;
        }
        let near = store.log.max_offset() - at <= in_memory;
        let most = limits.max_messages.min(if near { limits.max_messages_in_memory } else { limits.max_messages_on_disk });
        let room = limits.max_bytes.min(if near { usize::MAX } else { limits.max_bytes_on_disk });
        if !taken.is_empty() && (taken.len() >= most || bytes + size as usize > room) {
            break;
        }
        (next, looked) = (next + 1, true);
        let outcome = if at < gone_before {
            continue;
        } else if filter.code.is_some_and(|code| code != known.code) {
            GetStatus::NoMatchedMessage
        } else if at < store.log.min_offset() {
            gone_before = store.log.next_file_start(at);
            GetStatus::MessageWasRemoving
        } else if known.kind == Kind::Seal {
            GetStatus::MessageWasRemoving
        } else if filter.property.as_ref().is_some_and(|wanted| *wanted != known.property) {
            GetStatus::NoMatchedMessage
        } else {
            bytes += size as usize;
            taken.push(known.placed);
            GetStatus::Found
        };
        if taken.is_empty() || outcome == GetStatus::Found {
            status = outcome;
        }
    }
    (status, next, taken)
}
