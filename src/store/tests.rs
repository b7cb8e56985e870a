//! The store as a whole: appends, rolls, restarts, crashes, full and failing disks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::append::AppendBatch;
use super::arrival::{Arrival, ArrivalListener};
use super::config::{FlushDiskType, StoreConfig};
use super::error::PutError;
use super::fs::{Fs, RealFs};
use super::message_store::{Durability, MessageStore};
use super::reading::{AllMessages, GetLimits, GetStatus};
use super::testing::{TestFs, draft};
use super::{Appended, StoreError};
use crate::common::record::{self, Record};
use crate::common::sysflag;
use crate::runtime::clock::Clock;
use crate::runtime::thread::Thread;

pub(crate) mod cases;
mod cleaning;
mod deletion;
mod derived_damage;
mod paths;
mod redispatch;
mod unreadable;

const FILE_SIZE: usize = 64 << 10;
const DEADLINE: Duration = Duration::from_secs(20);

fn config(root: &Path, flush_disk_type: FlushDiskType) -> StoreConfig {
    StoreConfig {
        commit_log_file_size: FILE_SIZE,
        consume_queue_file_size: 20 * 100,
        index_slots: 500,
        index_entries: 2_000,
        disk_free_reserve: Some(0),
        flush_disk_type,
        flush_interval_ms: 10,
        ..StoreConfig::new(root)
    }
}

fn open(root: &Path, flush_disk_type: FlushDiskType) -> Arc<MessageStore> {
    open_with(config(root, flush_disk_type), RealFs::shared()).unwrap()
}

fn open_with(config: StoreConfig, fs: Arc<dyn Fs>) -> Result<Arc<MessageStore>, StoreError> {
    MessageStore::open(config, fs, Clock::System)
}

/// Waits for a condition with a deadline.
fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::yield_now();
    }
}

fn settled(store: &MessageStore) {
    until("everything flushed and dispatched", || {
        let stats = store.stats();
        stats.flushed_offset == stats.max_physical_offset && stats.dispatch_behind_bytes == 0
    });
}

fn body(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

fn put(store: &MessageStore, topic: &str, queue_id: i32, body: &[u8]) -> Appended {
    store.put(&draft(topic, queue_id, "TAGS\u{1}t\u{2}KEYS\u{1}k\u{2}", body)).unwrap()
}

fn put_all(store: &MessageStore, bodies: &[Vec<u8>]) {
    for body in bodies {
        put(store, "T", 0, body);
    }
}

/// All bodies of a queue from its min offset on; checks that offsets are dense.
fn bodies(store: &MessageStore, topic: &str, queue_id: i32) -> Vec<Vec<u8>> {
    let (min, max) = store.queue_bounds(topic, queue_id);
    let (mut at, mut found) = (min, Vec::new());
    let limits = GetLimits { max_messages: 1000, max_messages_in_memory: 1000, max_bytes: 1 << 20, ..GetLimits::default() };
    while at < max {
        let result = store.get(topic, queue_id, at, &limits, &AllMessages);
        assert_eq!(result.status, GetStatus::Found, "{topic} {queue_id} at {at} of {min}..{max}");
        for slice in &result.slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let record = Record::parse(rest).unwrap();
                record.check_crc().unwrap();
                assert_eq!((record.topic, record.queue_id), (topic, queue_id));
                assert_eq!(record.queue_offset, min + found.len() as i64, "dense offsets");
                found.push(record.body.to_vec());
                rest = &rest[record.total_size..];
            }
        }
        assert!(result.next_begin_offset > at);
        at = result.next_begin_offset;
    }
    found
}

/// A copy of a store's folder, as a killed process would leave it.
fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    copy_into(from, to.path());
    to
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_into(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", entry.path().display()); // it has got its name meanwhile
        }
    }
}

fn log_file(root: &Path, start: usize) -> PathBuf {
    root.join("commitlog").join(format!("{start:020}"))
}

const BOTH: [FlushDiskType; 2] = [FlushDiskType::Sync, FlushDiskType::Async];

#[test]
fn what_is_appended_is_read_over_rolls_and_restarts() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        for round in 0..3 {
            let store = open(folder.path(), mode);
            for number in 0..100 {
                let body = body(number, 100 + number * 37 % 3000);
                let appended = put(&store, "T", 0, &body);
                assert_eq!(appended.queue_offset, expected.len() as i64);
                expected.push(body);
            }
            settled(&store);
            assert_eq!(bodies(&store, "T", 0), expected, "round {round}");
            let report = store.shutdown(DEADLINE);
            assert!(report.clean, "{report:?}");
            assert_eq!(store.shutdown(DEADLINE), report, "twice is harmless");
            assert!(matches!(store.put(&draft("T", 0, "", b"x")), Err(PutError::Unavailable(_))));
            assert!(!folder.path().join("abort").exists());
        }
        assert!(std::fs::read_dir(folder.path().join("commitlog")).unwrap().count() > 3, "rolled");
    }
}

#[test]
fn every_file_but_the_last_ends_with_a_blank_record_and_no_group_is_split() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    let mut batch = AppendBatch::default();
    let mut outcomes = Vec::new();
    for round in 0..20 {
        for number in 0..10 {
            store.stage(&mut batch, &draft("T", 1, "", &body(number, 1000))).unwrap();
        }
        store.group(&mut batch, 10);
        store.stage(&mut batch, &draft("T", 2, "", &body(round, 77))).unwrap();
        store.append(&mut batch, &mut outcomes);
        assert!(batch.is_empty());
    }
    let appended: Vec<Appended> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(appended.len(), 220);
    let file_of = |appended: &Appended| appended.physical_offset / FILE_SIZE as i64;
    for group in appended.chunks(11) {
        assert!(group[..10].iter().all(|record| file_of(record) == file_of(&group[0])), "a group lies in one file");
    }
    for pair in appended.windows(2) {
        assert!(pair[1].physical_offset >= pair[0].end() && pair[1].store_timestamp >= pair[0].store_timestamp);
        if file_of(&pair[0]) != file_of(&pair[1]) {
            let bytes = std::fs::read(log_file(folder.path(), file_of(&pair[0]) as usize * FILE_SIZE)).unwrap();
            let at = pair[0].end() as usize % FILE_SIZE;
            let left = (FILE_SIZE - at) as i32;
            assert_eq!(bytes[at..at + 4], left.to_be_bytes());
            assert_eq!(bytes[at + 4..at + 8], record::MAGIC_BLANK.to_be_bytes());
        }
    }
    settled(&store);
    assert_eq!((bodies(&store, "T", 1).len(), bodies(&store, "T", 2).len()), (200, 20));
    let too_long = FILE_SIZE / 1000 + 1;
    for number in 0..too_long {
        store.stage(&mut batch, &draft("T", 1, "", &body(number, 1000))).unwrap();
    }
    store.group(&mut batch, too_long);
    store.stage(&mut batch, &draft("T", 2, "", b"goes on")).unwrap();
    let mut outcomes = Vec::new();
    store.append(&mut batch, &mut outcomes);
    assert!(outcomes[..too_long].iter().all(|outcome| matches!(outcome, Err(PutError::RecordTooLong(_, FILE_SIZE)))));
    assert_eq!(outcomes[too_long].as_ref().unwrap().queue_offset, 20);
}

#[test]
fn what_cannot_be_stored_is_refused_with_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with(StoreConfig { max_message_size: 1000, ..config(folder.path(), FlushDiskType::Async) }, RealFs::shared()).unwrap();
    let long = "p".repeat(32_768);
    let topic = "t".repeat(256);
    let put = |topic: &str, queue_id, properties: &str, body: &[u8]| store.put(&draft(topic, queue_id, properties, body)).unwrap_err();
    assert_eq!(put("T", 0, "", &[0; 1001]), PutError::BodyTooLong(1001, 1000));
    assert_eq!(put("T", 0, &long, b""), PutError::PropertiesTooLong(32_768, 32_767));
    assert_eq!(put(&topic, 0, "", b""), PutError::TopicTooLong(256, 255));
    assert!(matches!(put("T", -1, "", b""), PutError::Illegal(why) if why.contains("-1")));
    assert!(matches!(put("../T", 0, "", b""), PutError::Illegal(_)));
    assert!(store.put(&draft(&topic[..255], 0, &long[..32_767], &[0; 1000])).is_ok());
    let small = tempfile::tempdir().unwrap();
    let store =
        open_with(StoreConfig { commit_log_file_size: 4096, ..config(small.path(), FlushDiskType::Async) }, RealFs::shared()).unwrap();
    let overhead = record::MIN_SIZE + 1 + record::BLANK_SIZE;
    assert!(store.put(&draft("T", 0, "", &vec![0; 4096 - overhead])).is_ok(), "exactly a file");
    assert!(matches!(store.put(&draft("T", 0, "", &vec![0; 4097 - overhead])), Err(PutError::RecordTooLong(4089, 4096))));
}

#[test]
fn concurrent_appenders_give_dense_queue_offsets() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), mode);
        let threads: Vec<Thread> = (0..4)
            .map(|thread| {
                let store = Arc::clone(&store);
                Thread::spawn("", &format!("append-{thread}"), move || {
                    let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::new());
                    for number in 0..100 {
                        for part in 0..3 {
                            store.stage(&mut batch, &draft("T", part % 2, "", &body(number, 200 + thread))).unwrap();
                        }
                        store.append(&mut batch, &mut outcomes);
                    }
                    assert!(outcomes.iter().all(Result::is_ok));
                })
                .unwrap()
            })
            .collect();
        threads.into_iter().for_each(Thread::join);
        settled(&store);
        assert_eq!((bodies(&store, "T", 0).len(), bodies(&store, "T", 1).len()), (800, 400));
        let stats = store.stats();
        assert_eq!((stats.put_messages, stats.put_failed), (1200, 0));
    }
}

#[test]
fn preparation_and_fast_writers_do_not_disturb_each_other() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let larger = StoreConfig { commit_log_file_size: 5 << 20, ..config(folder.path(), mode) };
        let store = open_with(larger.clone(), RealFs::shared()).unwrap();
        let write = |queue_id: i32| {
            let store = Arc::clone(&store);
            move || {
                let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::new());
                for number in 0..1_200 {
                    let len = if number % 40 == 0 { 300_000 } else { 1 + number * 7 % 5_000 };
                    store.stage(&mut batch, &draft("T", queue_id, "", &body(number, len))).unwrap();
                    if number % 3 == 2 {
                        store.append(&mut batch, &mut outcomes);
                    }
                }
                assert!(outcomes.iter().all(Result::is_ok));
            }
        };
        let threads: Vec<Thread> = (0..2).map(|queue_id| Thread::spawn("", "write", write(queue_id)).unwrap()).collect();
        threads.into_iter().for_each(Thread::join);
        settled(&store);
        let whole = |store: &MessageStore| (0..2).all(|queue_id| bodies(store, "T", queue_id).len() == 1_200);
        assert!(whole(&store));
        assert!(store.stats().max_physical_offset > 4 * (5 << 20));
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        std::fs::write(folder.path().join("abort"), "").unwrap();
        assert!(whole(&open_with(larger, RealFs::shared()).unwrap()));
    }
}

#[test]
fn a_killed_store_loses_nothing_that_was_answered() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), mode);
        let mut expected = Vec::new();
        let mut last = None;
        for cycle in 0..4 {
            for number in 0..60 {
                let body = body(number, 300 + cycle * 100);
                let appended = put(&store, "T", 3, &body);
                assert_eq!(appended.queue_offset, expected.len() as i64);
                (last, _) = (Some(appended), expected.push(body));
            }
            // nothing was flushed nor shut down in the copy's name
            let crashed = copy(folder.path());
            let again = open(crashed.path(), mode);
            settled(&again);
            assert_eq!(bodies(&again, "T", 3), expected);
            assert_eq!(again.query("T", "k", 64, 0, i64::MAX).records.len(), expected.len().min(64), "keys are there");
            let next = put(&again, "T", 3, b"next");
            assert_eq!(next.queue_offset, expected.len() as i64);
            assert!(next.physical_offset >= last.unwrap().end());
            assert!(again.shutdown(DEADLINE).clean);
            let third = open(crashed.path(), mode);
            assert_eq!(bodies(&third, "T", 3).len(), expected.len() + 1);
        }
    }
}

/// Records of one queue in a stopped store: where they are.
fn stopped_store(root: &Path, mode: FlushDiskType, count: usize, len: usize) -> Vec<Appended> {
    let store = open(root, mode);
    let appended = (0..count).map(|number| put(&store, "T", 0, &body(number, len))).collect();
    settled(&store);
    assert!(store.shutdown(DEADLINE).clean);
    appended
}

/// Changes bytes of a store's log.
fn damage(root: &Path, offset: i64, change: impl FnOnce(&mut [u8])) {
    let path = log_file(root, offset as usize / FILE_SIZE * FILE_SIZE);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes[offset as usize % FILE_SIZE..]);
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_torn_tail_is_cut_at_every_byte_and_never_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let appended = stopped_store(folder.path(), FlushDiskType::Sync, 5, 60);
    let last = appended[4];
    for clean in [true, false] {
        for kept in (0..last.size).step_by(if clean { 7 } else { 1 }) {
            let torn = copy(folder.path());
            damage(torn.path(), last.physical_offset, |bytes| bytes[kept..last.size].fill(0));
            if !clean {
                std::fs::write(torn.path().join("abort"), "1").unwrap();
            }
            let store = open(torn.path(), FlushDiskType::Sync);
            let whole = Record::parse(&std::fs::read(log_file(torn.path(), 0)).unwrap()[last.physical_offset as usize..]).is_ok();
            let count = if whole { 5 } else { 4 }; // the last bytes of the record are zeros of their own
            assert_eq!(bodies(&store, "T", 0).len(), count, "{kept} bytes of the last record");
            assert_eq!(store.queue_bounds("T", 0), (0, count as i64));
            if !whole {
                assert_eq!(store.stats().max_physical_offset, last.physical_offset);
                let tail = std::fs::read(log_file(torn.path(), 0)).unwrap();
                assert!(tail[last.physical_offset as usize..].iter().all(|byte| *byte == 0), "zeroed");
            }
            assert_eq!(put(&store, "T", 0, b"n").queue_offset, count as i64);
        }
    }
}

/// Makes the checkpoint say that the log is on disk up to `offset` only.
fn set_flushed(root: &Path, offset: i64) {
    let path = root.join("checkpoint");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[64..72].copy_from_slice(&offset.to_be_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_old_record_behind_a_shorter_new_tail_is_not_resurrected() {
    let folder = tempfile::tempdir().unwrap();
    let appended = stopped_store(folder.path(), FlushDiskType::Sync, 10, 2000);
    // a power cut in the middle of a group: a page of record 7 did not arrive, 8 and 9 did; none was acknowledged
    damage(folder.path(), appended[7].physical_offset, |bytes| bytes[500..1800].fill(0));
    set_flushed(folder.path(), appended[7].physical_offset);
    std::fs::write(folder.path().join("abort"), "1").unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    assert_eq!(bodies(&store, "T", 0).len(), 7);
    let new = put(&store, "T", 0, &body(99, 2000));
    assert_eq!((new.queue_offset, new.physical_offset), (7, appended[7].physical_offset));
    // a second crash: behind the new record, where record 8 was, there is nothing
    let crashed = copy(folder.path());
    let store = open(crashed.path(), FlushDiskType::Sync);
    let found = bodies(&store, "T", 0);
    assert_eq!((found.len(), &found[7]), (8, &body(99, 2000)));
    assert!(!crashed.path().join("lost").exists());
}

#[test]
fn the_same_hole_is_sealed_when_it_had_been_on_disk_or_nobody_waited_for_the_disk() {
    for (mode, flushed_all) in [(FlushDiskType::Sync, true), (FlushDiskType::Async, false)] {
        let folder = tempfile::tempdir().unwrap();
        let appended = stopped_store(folder.path(), mode, 10, 2000);
        damage(folder.path(), appended[7].physical_offset, |bytes| bytes[500..1800].fill(0));
        if !flushed_all {
            set_flushed(folder.path(), appended[7].physical_offset);
        }
        std::fs::write(folder.path().join("abort"), "1").unwrap();
        let store = open(folder.path(), mode);
        assert_eq!(store.queue_bounds("T", 0), (0, 10));
        assert!(store.message_at("T", 0, 7).unwrap().1.is_none(), "lost");
        let record = store.message_at("T", 0, 9).unwrap().1.unwrap();
        assert_eq!(Record::parse(&record).unwrap().body, body(9, 2000));
    }
}

#[test]
fn damage_in_the_middle_costs_only_what_is_damaged() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let appended = stopped_store(folder.path(), mode, 400, 200); // two files
        let hit = appended[250];
        assert_eq!(hit.physical_offset as usize / FILE_SIZE, 1);
        damage(folder.path(), hit.physical_offset, |bytes| bytes[100] ^= 1);
        std::fs::write(folder.path().join("abort"), "1").unwrap();
        let store = open(folder.path(), mode);
        settled(&store);
        let limits = GetLimits { max_messages: 1000, max_messages_in_memory: 1000, max_bytes: 1 << 20, ..GetLimits::default() };
        let (mut at, mut seen) = (0, Vec::new());
        while at < 400 {
            let result = store.get("T", 0, at, &limits, &AllMessages);
            for slice in &result.slices {
                let mut rest = &slice[..];
                while !rest.is_empty() {
                    let record = Record::parse(rest).unwrap();
                    seen.push(record.queue_offset);
                    rest = &rest[record.total_size..];
                }
            }
            assert!(result.next_begin_offset > at, "{result:?}");
            at = result.next_begin_offset;
        }
        let expected: Vec<i64> = (0..400).filter(|offset| *offset != 250).collect();
        assert_eq!(seen, expected);
        assert_eq!(put(&store, "T", 0, b"next").queue_offset, 400);
        let kept = folder.path().join("lost").join(format!("{:020}", hit.physical_offset));
        assert_eq!(std::fs::read(kept).unwrap().len(), hit.size);
        let bytes = std::fs::read(log_file(folder.path(), FILE_SIZE)).unwrap();
        let seal = Record::parse(&bytes[hit.physical_offset as usize - FILE_SIZE..]).unwrap();
        seal.check_crc().unwrap();
        assert_eq!((seal.total_size, seal.physical_offset), (hit.size, hit.physical_offset));
        assert_eq!(sysflag::transaction_type(seal.sys_flag), sysflag::TRANSACTION_ROLLBACK);
        settled(&store);
        store.shutdown(DEADLINE);
        let again = open(folder.path(), mode);
        assert_eq!(again.queue_bounds("T", 0), (0, 401));
        assert_eq!(std::fs::read_dir(folder.path().join("lost")).unwrap().count(), 1, "sealed once");
    }
}

#[test]
fn a_file_without_its_end_is_ended_and_the_next_one_survives() {
    let folder = tempfile::tempdir().unwrap();
    let appended = stopped_store(folder.path(), FlushDiskType::Async, 400, 200);
    let last_of_first = appended.iter().rposition(|record| record.end() as usize <= FILE_SIZE).unwrap();
    // the last two records of the first file and its blank record are gone
    let from = appended[last_of_first - 1].physical_offset;
    damage(folder.path(), from, |bytes| bytes.fill(0));
    std::fs::write(folder.path().join("abort"), "1").unwrap();
    let store = open(folder.path(), FlushDiskType::Async);
    settled(&store);
    assert_eq!(store.queue_bounds("T", 0), (0, 400));
    let bytes = std::fs::read(log_file(folder.path(), 0)).unwrap();
    let end = appended[last_of_first].end() as usize;
    assert_eq!(bytes[end + 4..end + 8], record::MAGIC_BLANK.to_be_bytes());
    for lost in &appended[last_of_first - 1..=last_of_first] {
        let seal = Record::parse(&bytes[lost.physical_offset as usize..]).unwrap();
        assert!(super::seal::is_seal(&seal) && seal.total_size == lost.size);
    }
    until("its unit points nowhere", || store.message_at("T", 0, last_of_first as i64).is_some_and(|(_, record)| record.is_none()));
    assert!(store.message_at("T", 0, last_of_first as i64 + 1).unwrap().1.is_some());
}

#[test]
fn queues_are_built_again_when_they_are_gone() {
    for clean in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        stopped_store(folder.path(), FlushDiskType::Async, 500, 300);
        std::fs::remove_dir_all(folder.path().join("consumequeue")).unwrap();
        if !clean {
            std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
            std::fs::write(folder.path().join("abort"), "").unwrap();
        }
        let store = open(folder.path(), FlushDiskType::Async);
        assert_eq!(bodies(&store, "T", 0), (0..500).map(|number| body(number, 300)).collect::<Vec<_>>());
        assert_eq!(put(&store, "T", 0, b"x").queue_offset, 500);
    }
}

#[test]
fn odd_states_of_the_folder_are_accepted_or_named() {
    let folder = tempfile::tempdir().unwrap();
    stopped_store(folder.path(), FlushDiskType::Sync, 300, 300); // two files
    let reopen = |change: &dyn Fn(&Path)| {
        let copied = copy(folder.path());
        change(copied.path());
        let opened = open_with(config(copied.path(), FlushDiskType::Sync), RealFs::shared());
        (opened.map(|store| (bodies(&store, "T", 0).len(), store.stats().max_physical_offset)), copied)
    };
    let end = reopen(&|_| {}).0.unwrap().1;
    let zeros = vec![0; FILE_SIZE];
    let (next, gap) = (2 * FILE_SIZE, 4 * FILE_SIZE);
    let empty_next = |root: &Path| std::fs::write(log_file(root, next), &zeros).unwrap();
    assert_eq!(reopen(&empty_next).0.unwrap(), (300, end), "a file made ahead");
    assert_eq!(reopen(&|root| std::fs::write(log_file(root, next), b"").unwrap()).0.unwrap(), (300, end), "an empty last file");
    let text = reopen(&|root| std::fs::write(log_file(root, next), [0; 100]).unwrap()).0.err().unwrap().to_string();
    assert!(text.contains("00000000000000131072") && text.contains("100 bytes") && text.contains("65536"), "{text}");
    let (hole, copied) = reopen(&|root| {
        std::fs::write(log_file(root, gap), &zeros).unwrap();
        std::fs::rename(log_file(root, FILE_SIZE), log_file(root, next)).unwrap();
        std::fs::write(root.join("abort"), "").unwrap();
        std::fs::remove_file(root.join("checkpoint")).unwrap();
    });
    let text = hole.err().unwrap().to_string();
    assert!(text.contains("no file for offsets 65536 to 131072"), "{text}");
    assert!(log_file(copied.path(), next).exists() && log_file(copied.path(), gap).exists(), "nothing is removed");
    let (emptied, _copied) = reopen(&|root| std::fs::remove_dir_all(root.join("commitlog")).unwrap());
    assert_eq!(emptied.unwrap(), (0, 0), "no log, no messages");
}

#[test]
fn a_failed_open_leaves_the_store_usable_and_unlocked() {
    let folder = tempfile::tempdir().unwrap();
    stopped_store(folder.path(), FlushDiskType::Sync, 3, 300);
    std::fs::write(log_file(folder.path(), FILE_SIZE), [1; 10]).unwrap();
    assert!(open_with(config(folder.path(), FlushDiskType::Sync), RealFs::shared()).is_err());
    assert!(!folder.path().join("abort").exists(), "the last stop was a clean one");
    std::fs::remove_file(log_file(folder.path(), FILE_SIZE)).unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    let second = open_with(config(folder.path(), FlushDiskType::Sync), RealFs::shared());
    assert!(matches!(second.err(), Some(StoreError::Locked(_, Some(pid))) if pid == std::process::id()));
    assert_eq!(bodies(&store, "T", 0).len(), 3);
}

#[test]
fn records_larger_than_a_batch_of_the_scan_survive() {
    let folder = tempfile::tempdir().unwrap();
    let large = StoreConfig { commit_log_file_size: 1 << 20, ..config(folder.path(), FlushDiskType::Async) };
    let store = open_with(large.clone(), RealFs::shared()).unwrap();
    let sizes = [10, 100_000, 65_400, 65_536, 300_000, 20, 500_000, 900_000, 1];
    for (number, size) in sizes.into_iter().enumerate() {
        put(&store, "T", 0, &body(number, size));
    }
    let crashed = copy(folder.path());
    std::fs::remove_dir_all(crashed.path().join("consumequeue")).unwrap_or_default();
    let store = open_with(StoreConfig { root: crashed.path().to_owned(), ..large }, RealFs::shared()).unwrap();
    let expected: Vec<_> = sizes.into_iter().enumerate().map(|(number, size)| body(number, size)).collect();
    assert_eq!(bodies(&store, "T", 0), expected);
}

#[test]
fn a_full_disk_refuses_with_numbers_and_heals() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let fs = Arc::new(TestFs::default());
        let trouble = Arc::clone(&fs.trouble);
        trouble.cannot_allocate.store(true, Ordering::Relaxed); // so that the append meets the full disk itself
        let store = open_with(config(folder.path(), mode), fs).unwrap();
        let expected: Vec<_> = (0..5).map(|number| body(number, 500)).collect();
        put_all(&store, &expected);
        trouble.full.store(true, Ordering::Relaxed);
        let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::new());
        (0..4).for_each(|_| store.stage(&mut batch, &draft("T", 0, "", b"again")).unwrap()); // two of them reach the file
        store.append(&mut batch, &mut outcomes);
        let PutError::Unavailable(why) = outcomes[3].clone().unwrap_err() else { panic!("not refused") };
        assert!(outcomes.iter().all(|outcome| outcome == &outcomes[3]));
        for part in ["commitlog/00000000000000000000", "bytes free", "diskFreeReserveBytes=0"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(matches!(store.put(&draft("T", 0, "", b"x")), Err(PutError::Unavailable(_))));
        assert_eq!(store.refusal(), Some(why));
        settled(&store);
        assert_eq!(bodies(&store, "T", 0), expected, "reads go on");
        trouble.cannot_allocate.store(false, Ordering::Relaxed);
        let freed = Instant::now();
        trouble.full.store(false, Ordering::Relaxed);
        until("healed", || store.put(&draft("T", 0, "", b"again")).is_ok_and(|there| there.queue_offset == 5)); // no gap
        assert!(freed.elapsed() < Duration::from_secs(2));
        settled(&store);
        let crashed = copy(folder.path());
        let again = open(crashed.path(), mode);
        assert_eq!(bodies(&again, "T", 0).len(), 6, "nothing of the refused ones has come back");
        assert!(store.shutdown(DEADLINE).clean);
    }
}

#[test]
fn a_killed_store_starts_on_a_full_disk_and_serves() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    let expected: Vec<_> = (0..200).map(|number| body(number, 500)).collect();
    put_all(&store, &expected);
    let crashed = copy(folder.path());
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    trouble.full.store(true, Ordering::Relaxed);
    let again = open_with(config(crashed.path(), FlushDiskType::Sync), fs).unwrap();
    assert_eq!(bodies(&again, "T", 0), expected);
    until("refused", || again.put(&draft("T", 0, "", b"x")).is_err());
    trouble.full.store(false, Ordering::Relaxed);
    until("accepted", || again.put(&draft("T", 0, "", b"x")).is_ok());
    assert!(again.shutdown(DEADLINE).clean);
}

#[test]
fn below_the_reserve_appends_are_refused_and_go_on_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    let reserve = StoreConfig { disk_free_reserve: Some(1 << 20), clean_interval_ms: 20, ..config(folder.path(), FlushDiskType::Sync) };
    let store = open_with(reserve, fs).unwrap();
    put(&store, "T", 0, b"x");
    trouble.free.store(1000, Ordering::Relaxed);
    until("refused", || store.refusal().is_some());
    let PutError::Unavailable(why) = store.put(&draft("T", 0, "", b"y")).unwrap_err() else { panic!("not refused") };
    assert!(why.contains("1000 bytes free") && why.contains("diskFreeReserveBytes=1048576"), "{why}");
    trouble.free.store(2 << 20, Ordering::Relaxed);
    until("accepted", || store.refusal().is_none());
    assert_eq!(put(&store, "T", 0, b"z").queue_offset, 1);
}

#[test]
fn nothing_is_taken_from_the_reserve_ahead_of_the_appender() {
    const RESERVE: u64 = 8 << 20;
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let fs = Arc::new(TestFs::default());
        let trouble = Arc::clone(&fs.trouble);
        trouble.free.store(RESERVE + (3 << 20), Ordering::Relaxed);
        trouble.free_shrinks.store(true, Ordering::Relaxed);
        let limited = StoreConfig {
            disk_free_reserve: Some(RESERVE),
            commit_log_file_size: 16 << 20,
            clean_file_forcibly: false,
            ..config(folder.path(), mode)
        };
        let store = open_with(limited, fs).unwrap();
        let message = body(1, 100_000);
        until("refused", || store.put(&draft("T", 0, "", &message)).is_err());
        let free = trouble.free.load(Ordering::Relaxed);
        assert!(free >= RESERVE, "{mode:?}: {free} bytes free");
        let why = store.refusal().unwrap();
        assert!(why.contains("diskFreeReserveBytes=8388608"), "{why}");
        trouble.free.store(RESERVE + (2 << 20), Ordering::Relaxed);
        until("accepted", || store.put(&draft("T", 0, "", b"x")).is_ok());
    }
}

#[test]
fn queues_wait_in_memory_when_only_metadata_may_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    let reserve =
        StoreConfig { disk_free_reserve: Some(1 << 20), flush_consume_queue_interval_ms: 1, ..config(folder.path(), FlushDiskType::Sync) };
    let store = open_with(reserve, fs).unwrap();
    trouble.free.store(200_000, Ordering::Relaxed); // below a quarter of the reserve
    put(&store, "T", 0, b"x"); // nobody has looked at the disk since
    settled(&store);
    assert_eq!(bodies(&store, "T", 0).len(), 1);
    assert!(!store.shutdown(DEADLINE).clean, "queues are not on disk");
    assert!(!folder.path().join("consumequeue/T").exists());
    drop(store);
    let again = open(folder.path(), FlushDiskType::Sync);
    assert_eq!(bodies(&again, "T", 0).len(), 1);
    assert!(again.shutdown(DEADLINE).clean);
}

#[test]
fn a_stopped_store_starts_on_a_disk_without_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    stopped_store(folder.path(), FlushDiskType::Sync, 20, 300);
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    trouble.no_content.store(true, Ordering::Relaxed);
    let store = open_with(config(folder.path(), FlushDiskType::Sync), fs).unwrap();
    assert!(folder.path().join("abort").exists());
    assert_eq!(bodies(&store, "T", 0).len(), 20);
    trouble.no_content.store(false, Ordering::Relaxed);
    until("accepted", || store.put(&draft("T", 0, "", b"x")).is_ok());
    assert!(store.shutdown(DEADLINE).clean && !folder.path().join("abort").exists());
}

#[test]
fn a_start_after_a_clean_stop_reads_only_the_end_of_the_log() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let appended = stopped_store(folder.path(), mode, 400, 200);
        let early = appended[250];
        damage(folder.path(), early.physical_offset, |bytes| bytes[100] ^= 1);
        let store = open(folder.path(), mode);
        assert_eq!(store.queue_bounds("T", 0), (0, 400));
        assert!(!folder.path().join("lost").exists(), "not read");
        assert_eq!(put(&store, "T", 0, &body(1, 200)).queue_offset, 400);
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        damage(folder.path(), appended[399].end(), |bytes| bytes[100] ^= 1); // the last one: begins earlier then
        let store = open(folder.path(), mode);
        assert_eq!(store.queue_bounds("T", 0), (0, 400));
        assert!(folder.path().join("lost").exists());
    }
}

#[test]
fn a_failed_sync_is_final_and_told_to_all_who_wait() {
    let folder = tempfile::tempdir().unwrap();
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    let store = open_with(config(folder.path(), FlushDiskType::Sync), fs).unwrap();
    put(&store, "T", 0, b"before");
    settled(&store);
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wakes);
    let watch = store.watch_flush(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    trouble.sync_fails.store(true, Ordering::Relaxed);
    let lost = put(&store, "T", 0, b"not durable");
    watch.wait_for(lost.end());
    let told = Arc::new(Mutex::new(None));
    let teller = Arc::clone(&told);
    store.when_durable(lost.end(), Box::new(move |durability| *teller.lock() = Some(durability)));
    until("told", || told.lock().is_some());
    let Some(Durability::Failed(why)) = told.lock().clone() else { panic!("{told:?}") };
    assert!(why.contains("commitlog/00000000000000000000") && why.contains("EIO"), "{why}");
    until("woken", || wakes.load(Ordering::SeqCst) == 1);
    assert_eq!(store.sync_failure(), Some(why.clone()));
    trouble.sync_fails.store(false, Ordering::Relaxed);
    let Err(PutError::Unavailable(refused)) = store.put(&draft("T", 0, "", b"x")) else { panic!("not refused") };
    assert!(refused.contains(&why), "{refused}");
    assert_eq!(bodies(&store, "T", 0), [b"before".to_vec()], "what is not durable is not shown; reads go on");
    store.when_durable(lost.end(), Box::new(|durability| assert!(matches!(durability, Durability::Failed(_)))));
    assert!(!store.shutdown(DEADLINE).clean);
    assert_eq!(store.queue_bounds("T", 0), (0, 1), "nor does dispatch go on at the end");
    assert!(folder.path().join("abort").exists() && folder.path().join("sync_failed").exists());
    drop(store);
    let again = open(folder.path(), FlushDiskType::Sync);
    assert!(again.sync_failure().is_none() && !folder.path().join("sync_failed").exists());
    assert_eq!(bodies(&again, "T", 0).len(), 2, "opening again makes durable what is there");
}

#[test]
fn those_who_wait_are_woken_once_when_their_offset_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wakes);
    let watch = store.watch_flush(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    for round in 1..=200 {
        let appended = put(&store, "T", 0, &body(round, 100));
        watch.wait_for(appended.end() + 1_000_000);
        watch.wait_for(appended.end()); // the smaller wish counts
        until("woken", || wakes.load(Ordering::SeqCst) == round);
        assert!(store.flushed_offset() >= appended.end());
        let told = Arc::new(AtomicUsize::new(0));
        let teller = Arc::clone(&told);
        store.when_durable(
            appended.end(),
            Box::new(move |durability| {
                teller.fetch_add(usize::from(durability == Durability::Durable), Ordering::SeqCst);
            }),
        );
        assert_eq!(told.load(Ordering::SeqCst), 1, "at once");
    }
    let told = Arc::new(AtomicUsize::new(0));
    let ends: Vec<i64> = (0..50).map(|number| put(&store, "T", 0, &body(number, 100)).end()).collect();
    for end in ends.into_iter().rev() {
        let teller = Arc::clone(&told);
        store.when_durable(
            end,
            Box::new(move |_| {
                teller.fetch_add(1, Ordering::SeqCst);
            }),
        );
    }
    until("all told", || told.load(Ordering::SeqCst) == 50);
}

#[test]
fn what_is_not_durable_in_time_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        open_with(StoreConfig { sync_flush_timeout_ms: 30, ..config(folder.path(), FlushDiskType::Sync) }, RealFs::shared()).unwrap();
    let (sender, receiver) = crossbeam::channel::bounded(3);
    for _ in 0..3 {
        let sender = sender.clone();
        store.when_durable(i64::MAX - 1, Box::new(move |durability| sender.send(durability).unwrap()));
        assert_eq!(receiver.recv_timeout(DEADLINE).unwrap(), Durability::TimedOut);
    }
}

/// Remembers what arrived.
#[derive(Default)]
struct Listener(Mutex<Vec<(i64, i64)>>);

impl ArrivalListener for Listener {
    fn arrived(&self, arrival: &Arrival<'_>) {
        self.0.lock().push((arrival.queue_offset, arrival.store_timestamp));
    }
}

#[test]
fn arrivals_come_in_order_and_only_when_visible() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), mode);
        let listener = Arc::new(Listener::default());
        store.serve(listener.clone());
        for number in 0..300 {
            put(&store, "T", 0, &body(number, 500));
        }
        until("all arrived", || listener.0.lock().len() == 300);
        assert!(listener.0.lock().iter().enumerate().all(|(at, (offset, _))| at as i64 == *offset));
        assert!(store.stats().flushed_offset > 0 || mode == FlushDiskType::Async);
    }
}

#[test]
fn expired_files_go_and_readers_keep_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let reserved = StoreConfig { file_reserved_hours: 0, delete_when_hours: Vec::new(), ..config(folder.path(), FlushDiskType::Sync) };
    let store = open_with(reserved, RealFs::shared()).unwrap();
    for number in 0..500 {
        put(&store, "T", 0, &body(number, 500));
    }
    settled(&store);
    let held = store.message_at("T", 0, 0).unwrap().1.unwrap();
    store.delete_expired_files();
    let stats = store.stats();
    let last_start = stats.max_physical_offset / FILE_SIZE as i64 * FILE_SIZE as i64;
    assert_eq!(stats.min_physical_offset, last_start, "all but the last");
    assert!(!log_file(folder.path(), 0).exists());
    assert_eq!(Record::parse(&held).unwrap().body, body(0, 500));
    let (min, max) = store.queue_bounds("T", 0);
    assert!(min > 0 && max == 500);
    assert_eq!(bodies(&store, "T", 0).len() as i64, max - min);
    assert!(stats.earliest_store_timestamp > 0);
    assert!(store.shutdown(DEADLINE).clean);
    let again = open(folder.path(), FlushDiskType::Sync);
    assert_eq!(again.queue_bounds("T", 0), (min, max));
}

#[test]
fn unexpired_files_go_only_when_the_disk_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    let reserve = StoreConfig {
        disk_free_reserve: Some(1 << 20),
        clean_interval_ms: 10,
        delete_when_hours: (0..24).collect(),
        ..config(folder.path(), FlushDiskType::Sync)
    };
    let store = open_with(reserve, fs).unwrap();
    for number in 0..500 {
        put(&store, "T", 0, &body(number, 500));
    }
    settled(&store);
    store.delete_expired_files();
    assert_eq!(store.stats().min_physical_offset, 0, "nothing has expired");
    trouble.free.store(1000, Ordering::Relaxed);
    until("a file deleted", || store.stats().min_physical_offset > 0);
    until("its queue follows before the next one goes", || store.queue_bounds("T", 0).0 > 0);
    assert!(store.stats().min_physical_offset <= 2 * FILE_SIZE as i64, "there is a pause in between");
    trouble.free.store(0, Ordering::Relaxed);
    until("accepted", || store.refusal().is_none());
    assert!(put(&store, "T", 0, b"x").queue_offset == 500);
}

#[test]
fn an_empty_store_with_one_message_is_small_and_starts_at_once() {
    use std::os::unix::fs::MetadataExt;
    fn blocks(path: &Path) -> u64 {
        std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let metadata = entry.metadata().unwrap();
                if metadata.is_dir() { blocks(&entry.path()) } else { metadata.blocks() * 512 }
            })
            .sum()
    }
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let defaults = StoreConfig { flush_disk_type: mode, disk_free_reserve: Some(0), ..StoreConfig::new(folder.path()) };
        let store = open_with(defaults.clone(), RealFs::shared()).unwrap();
        put(&store, "T", 0, &body(1, 1000));
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        assert!(blocks(folder.path()) < 5 << 20, "{} bytes", blocks(folder.path()));
        assert_eq!(std::fs::metadata(log_file(folder.path(), 0)).unwrap().len(), 1 << 30);
        let store = open_with(defaults, RealFs::shared()).unwrap();
        assert_eq!(bodies(&store, "T", 0).len(), 1);
    }
}

#[test]
fn a_deleted_topic_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), FlushDiskType::Async);
    for number in 0..50 {
        put(&store, "T", 1, &body(number, 100));
        put(&store, "U", 0, &body(number, 100));
    }
    assert_eq!(store.topics(), [("T".to_owned(), vec![1]), ("U".to_owned(), vec![0])]);
    store.delete_topic("T").unwrap();
    assert!(!store.has_queue("T", 1) && store.has_queue("U", 0));
    assert_eq!(put(&store, "T", 1, b"new").queue_offset, 0);
    settled(&store);
    assert_eq!(bodies(&store, "T", 1), [b"new".to_vec()]);
    assert_eq!(bodies(&store, "U", 0).len(), 50);
}

const CRASH_DIR: &str = "PETREL_TEST_CRASH_DIR";
const CRASH_QUEUES: i32 = 3;

/// The child of the next test: appends until it is killed, and says what is durable.
#[test]
#[ignore = "runs as a child of another test"]
fn crash_child() {
    let Ok(root) = std::env::var(CRASH_DIR) else { return };
    let store = open(Path::new(&root), FlushDiskType::Sync);
    let append = |queue_id: i32| {
        let store = Arc::clone(&store);
        move || {
            let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::new());
            for number in store.queue_bounds("T", queue_id).1 as usize.. {
                store.stage(&mut batch, &draft("T", queue_id, "", &body(number, 50 + number % 3000))).unwrap();
                outcomes.clear();
                store.append(&mut batch, &mut outcomes);
                let appended = *outcomes[0].as_ref().unwrap();
                assert_eq!(appended.queue_offset, number as i64);
                let done = move |durability| {
                    assert_eq!(durability, Durability::Durable);
                    println!("ack {queue_id} {number}");
                };
                store.when_durable(appended.end(), Box::new(done));
            }
        }
    };
    let threads: Vec<Thread> = (0..CRASH_QUEUES).map(|queue_id| Thread::spawn("", "append", append(queue_id)).unwrap()).collect();
    threads.into_iter().for_each(Thread::join);
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    use std::io::BufRead;
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = vec![0; CRASH_QUEUES as usize];
    for round in 0..6 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::crash_child", "--ignored", "--nocapture", "--test-threads=1"])
            .env(CRASH_DIR, folder.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = 100 + 211 * round;
        let mut note = |line: String| {
            let mut words = line.rsplit("ack ").next().unwrap_or_default().split(' ').map_while(|word| word.parse::<usize>().ok());
            let (Some(queue), Some(number)) = (words.next(), words.next()) else { return 0 };
            acknowledged[queue] = acknowledged[queue].max(number + 1);
            1
        };
        let mut seen = 0;
        while seen < wanted {
            seen += note(lines.next().expect("the child lives").unwrap());
        }
        child.kill().unwrap();
        let rest: usize = lines.map_while(Result::ok).map(note).sum();
        child.wait().unwrap();
        assert!(folder.path().join("abort").exists(), "killed after {} acknowledgements", seen + rest);
        let store = open(folder.path(), FlushDiskType::Sync);
        settled(&store);
        for (queue, acknowledged) in acknowledged.iter().enumerate() {
            let found = bodies(&store, "T", queue as i32);
            assert!(found.len() >= *acknowledged, "round {round} queue {queue}: {} of {acknowledged}", found.len());
            assert!(found.iter().enumerate().all(|(number, found)| *found == body(number, 50 + number % 3000)));
        }
        if round % 2 == 0 {
            assert!(store.shutdown(DEADLINE).clean);
        } else {
            let copied = copy(folder.path()); // and once more from what a second kill would leave
            drop(store);
            let again = open(copied.path(), FlushDiskType::Sync);
            (0..CRASH_QUEUES).for_each(|queue| assert!(bodies(&again, "T", queue).len() >= acknowledged[queue as usize]));
        }
    }
}
