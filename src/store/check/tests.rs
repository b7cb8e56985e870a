//! Stores damaged in each way that the check knows: found and named rightly. What repair makes of them is in `repair::tests`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::record::Draft;
use crate::common::sysflag;
use crate::common::topic::SCHEDULE_TOPIC;
use crate::runtime::clock::Clock;
use crate::store::config::FlushDiskType;
use crate::store::fs::RealFs;
use crate::store::message_store::MessageStore;
use crate::store::testing::draft;
use crate::store::{Appended, StoreConfig};

use super::*;

pub(in crate::store) const FILE_SIZE: usize = 64 << 10;
pub(in crate::store) const DEADLINE: Duration = Duration::from_secs(20);
/// Long enough that its records have the longer form.
const LONG_TOPIC_LEN: usize = 200;

pub(in crate::store) fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        commit_log_file_size: FILE_SIZE,
        consume_queue_file_size: 20 * 50,
        index_slots: 101,
        index_entries: 700,
        disk_free_reserve: Some(0),
        flush_disk_type: FlushDiskType::Async,
        flush_interval_ms: 10,
        ..StoreConfig::new(root)
    }
}

pub(in crate::store) fn open(root: &Path) -> Arc<MessageStore> {
    MessageStore::open(config(root), RealFs::shared(), Clock::System).unwrap()
}

/// Waits until everything is flushed and dispatched.
pub(in crate::store) fn settled(store: &MessageStore) {
    let begin = Instant::now();
    loop {
        let stats = store.stats();
        if stats.flushed_offset == stats.max_physical_offset && stats.dispatch_behind_bytes == 0 {
            return;
        }
        assert!(begin.elapsed() < DEADLINE, "not dispatched in time");
        std::thread::yield_now();
    }
}

/// Messages of every kind: three topics with two queues each, a delayed one, a long topic, transactions; `rounds` times.
pub(in crate::store) fn fill(store: &MessageStore, first: usize, rounds: usize) -> Vec<(String, i32, Appended)> {
    let long = "%RETRY%".to_owned() + &"g".repeat(LONG_TOPIC_LEN);
    let mut stored = Vec::new();
    for number in first..first + rounds {
        let body = vec![number as u8; 50 + number * 131 % 900];
        let properties = format!("TAGS\u{1}t{}\u{2}KEYS\u{1}k{number} all\u{2}UNIQ_KEY\u{1}U{number}\u{2}", number % 3);
        let delay = format!("DELAY\u{1}{}\u{2}UNIQ_KEY\u{1}D{number}\u{2}", 1 + number % 18);
        let mut put = |draft: &Draft<'_>| {
            let appended = store.put(draft).unwrap();
            if crate::store::dispatch::has_unit(draft.sys_flag) {
                stored.push((draft.topic.to_owned(), draft.queue_id, appended));
            }
        };
        for (topic, queue_id) in [("A", 0), ("A", 1), ("B", 0), ("B", 1), ("C", 0), ("C", 1)] {
            put(&draft(topic, queue_id, &properties, &body));
        }
        put(&draft(SCHEDULE_TOPIC, (number % 18) as i32, &delay, &body));
        put(&draft(&long, 0, "", &body));
        for flag in [sysflag::TRANSACTION_PREPARED, sysflag::TRANSACTION_COMMIT, sysflag::TRANSACTION_ROLLBACK] {
            put(&Draft { sys_flag: flag, ..draft("A", 0, &properties, b"transaction") });
        }
    }
    stored
}

/// A store that was filled and stopped in order.
pub(in crate::store) fn stopped(root: &Path) -> Vec<(String, i32, Appended)> {
    let store = open(root);
    let stored = fill(&store, 0, 60);
    settled(&store);
    assert!(store.shutdown(DEADLINE).clean);
    stored
}

pub(in crate::store) fn check_with(root: &Path, options: &CheckOptions) -> Report {
    check(&config(root), &RealFs::shared(), options, &mut |_| {}).unwrap()
}

pub(in crate::store) fn checked(root: &Path) -> Report {
    check_with(root, &CheckOptions::default())
}

/// Findings but notes: kind, severity, count.
pub(in crate::store) fn told(report: &Report) -> Vec<(Kind, Severity, u64)> {
    report
        .findings
        .groups()
        .filter(|(severity, ..)| *severity > Severity::Note)
        .map(|(severity, kind, group)| (kind, severity, group.total))
        .collect()
}

/// Every file of a folder with its content.
pub(in crate::store) fn content(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(content(&path)) } else { all.push((path.clone(), std::fs::read(&path).unwrap())) }
    }
    all.sort();
    all
}

#[test]
fn a_healthy_store_is_clean_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let store = open(folder.path());
        let stored = fill(&store, round * 40, 40);
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        let before = content(folder.path());
        let report = checked(folder.path());
        assert_eq!(told(&report), []);
        assert_eq!(report.findings.worst(), None, "{:?}", report.findings);
        assert_eq!(before, content(folder.path()));
        let counts = report.counts;
        assert!(counts.log_files > 1 && counts.index_files > 0 && counts.bytes > 0, "{counts:?}");
        assert_eq!((counts.records, counts.units), ((round as u64 + 1) * 40 * 11, (round as u64 + 1) * 40 * 9));
        assert_eq!(counts.index_entries, (round as u64 + 1) * 40 * (6 * 4 + 1 + 2 * 4), "all keys, unique keys and tags");
        assert_eq!(stored.len(), 40 * 9);
    }
}
