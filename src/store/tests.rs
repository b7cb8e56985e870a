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
        } else {
            std::fs::copy(entry.path(), target).unwrap();
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
    let store = open_with(StoreConfig { commit_log_file_size: 4096, ..config(small.path(), FlushDiskType::Async) }, RealFs::shared()).unwrap();
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
