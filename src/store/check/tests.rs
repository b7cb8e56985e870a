//! Stores damaged in each way that the check knows: found and named rightly. What repair makes of them is in `repair::tests`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::record::Draft;
use crate::common::sysflag;
use crate::common::topic::SCHEDULE_TOPIC;
use crate::runtime::clock::Clock;
use crate::store::config::FlushDiskType;
use crate::store::fs::{FsFile, RealFs};
use crate::store::message_store::MessageStore;
use crate::store::testing::draft;
use crate::store::{Appended, StoreConfig};

use super::*;

pub(in crate::store) const FILE_SIZE: usize = 64 << 10;
pub(in crate::store) const DEADLINE: Duration = Duration::from_secs(20);
/// Long enough that its records have the longer form.
const LONG_TOPIC_LEN: usize = 200;
/// Rounds of [`fill`] that [`cases`] count on.
pub(in crate::store) const ROUNDS: usize = 60;

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

/// A store that was filled in so many rounds and stopped in order.
pub(in crate::store) fn stopped(root: &Path, rounds: usize) -> Vec<(String, i32, Appended)> {
    let store = open(root);
    let stored = fill(&store, 0, rounds);
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

// ---- damaged stores ----

pub(in crate::store) type Stored = [(String, i32, Appended)];
/// What is told: kind, severity, how many.
pub(in crate::store) type Told = (Kind, Severity, u64);

/// A way to damage a store.
pub(in crate::store) struct Case {
    pub(in crate::store) name: &'static str,
    /// Damages the store; returns the physical offsets of messages that are lost.
    pub(in crate::store) damage: fn(&Path, &Stored) -> Vec<i64>,
    /// What is told but for notes.
    pub(in crate::store) told: &'static [Told],
    /// A repair leaves these.
    pub(in crate::store) left: &'static [Told],
}

const ERROR: Severity = Severity::Error;
const WARNING: Severity = Severity::Warning;

/// Changes bytes of a file.
pub(in crate::store) fn patch(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

pub(in crate::store) fn log_file(root: &Path, offset: i64) -> PathBuf {
    root.join("commitlog").join(format!("{:020}", offset - offset % FILE_SIZE as i64))
}

/// Changes the bytes of a record.
fn patch_record(root: &Path, record: Appended, change: impl FnOnce(&mut [u8])) {
    let at = record.physical_offset as usize % FILE_SIZE;
    patch(&log_file(root, record.physical_offset), |bytes| change(&mut bytes[at..at + record.size]));
}

/// The messages of one queue.
pub(in crate::store) fn of_queue(stored: &Stored, topic: &str, queue_id: i32) -> Vec<Appended> {
    stored.iter().filter(|(other, id, _)| other == topic && *id == queue_id).map(|(.., appended)| *appended).collect()
}

fn queue_file(root: &Path, topic: &str, queue_id: i32, file: usize) -> PathBuf {
    root.join("consumequeue").join(topic).join(queue_id.to_string()).join(format!("{:020}", file * 1000))
}

/// Changes one unit of queue B/1.
fn patch_unit(root: &Path, at: usize, change: impl FnOnce(&mut [u8])) {
    patch(&queue_file(root, "B", 1, at / 50), |bytes| change(&mut bytes[at % 50 * 20..][..20]));
}

fn unit(record: &Appended, tags_code: i64) -> [u8; 20] {
    crate::store::consume_queue::CqUnit { physical_offset: record.physical_offset, size: record.size as i32, tags_code }.encode()
}

fn first_index_file(root: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join("index")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.remove(0)
}

const FIRST_ENTRY: usize = 40 + 101 * 4 + 20;

/// Behind the last record.
fn log_end(root: &Path) -> (PathBuf, usize) {
    let flushed = std::fs::read(root.join("checkpoint")).unwrap();
    let end = i64::from_be_bytes(flushed[64..72].try_into().unwrap());
    (log_file(root, end), end as usize % FILE_SIZE)
}

fn patch_checkpoint(root: &Path, at: usize, value: i64) {
    patch(&root.join("checkpoint"), |bytes| bytes[at..at + 8].copy_from_slice(&value.to_be_bytes()));
}

pub(in crate::store) fn cases() -> Vec<Case> {
    let case = |name, told, damage| Case { name, damage, told, left: &[] };
    vec![
        case("nothing", &[], |_, _| vec![]),
        // ---- the log ----
        case("one bit of a body in the middle", &[(Kind::DamagedRecords, ERROR, 1)], |root, stored| {
            let record = of_queue(stored, "B", 1)[20];
            patch_record(root, record, |bytes| bytes[100] ^= 1);
            vec![record.physical_offset]
        }),
        case("one bit of a body in the first record of a file", &[(Kind::DamagedRecords, ERROR, 1)], |root, stored| {
            let first = stored.iter().find(|(.., appended)| appended.physical_offset == FILE_SIZE as i64);
            let record = first.map_or_else(|| of_queue(stored, "C", 1)[30], |(.., appended)| *appended);
            patch_record(root, record, |bytes| bytes[100] ^= 1);
            vec![record.physical_offset]
        }),
        case("total size of a record in the middle", &[(Kind::DamagedRecords, ERROR, 1)], |root, stored| {
            let record = of_queue(stored, "A", 1)[10];
            patch_record(root, record, |bytes| bytes[3] ^= 1);
            vec![record.physical_offset]
        }),
        case("magic of a record in the middle", &[(Kind::DamagedRecords, ERROR, 1)], |root, stored| {
            let record = of_queue(stored, "A", 1)[10];
            patch_record(root, record, |bytes| bytes[5] = 0);
            vec![record.physical_offset]
        }),
        case("two neighbours and one apart", &[(Kind::DamagedRecords, ERROR, 2)], |root, stored| {
            let (a, b) = (of_queue(stored, "B", 0)[7], of_queue(stored, "B", 1)[7]);
            let apart = of_queue(stored, "C", 0)[40];
            for record in [a, b, apart] {
                patch_record(root, record, |bytes| bytes[90] ^= 4);
            }
            vec![a.physical_offset, b.physical_offset, apart.physical_offset]
        }),
        case("a sector of zeros", &[(Kind::DamagedRecords, ERROR, 1)], |root, stored| {
            let at = of_queue(stored, "B", 0)[25].physical_offset as usize / 512 * 512 + 512;
            patch(&log_file(root, at as i64), |bytes| bytes[at % FILE_SIZE..][..512].fill(0));
            let hit = |record: &Appended| (record.physical_offset as usize) < at + 512 && record.end() as usize > at;
            stored.iter().filter(|(.., record)| hit(record)).map(|(.., record)| record.physical_offset).collect()
        }),
        case(
            "the last record is torn",
            &[(Kind::TornTail, ERROR, 1), (Kind::LogShortened, ERROR, 1), (Kind::CheckpointField, ERROR, 1)],
            |root, _| {
                let (file, end) = log_end(root);
                patch(&file, |bytes| bytes[end - 60..end].fill(0));
                vec![]
            },
        ),
        case(
            "the last record is torn after an abrupt stop",
            &[(Kind::CheckpointField, ERROR, 1), (Kind::TornTail, WARNING, 1), (Kind::Abort, WARNING, 1)],
            |root, _| {
                let (file, end) = log_end(root);
                patch(&file, |bytes| bytes[end - 60..end].fill(0));
                patch_checkpoint(root, 64, 1_000);
                std::fs::write(root.join("abort"), b"1").unwrap();
                vec![]
            },
        ),
        case("no blank record", &[(Kind::BlankMissing, ERROR, 1)], |root, stored| {
            let last =
                stored.iter().filter(|(.., record)| record.end() <= FILE_SIZE as i64).map(|(.., record)| record.end()).max().unwrap();
            patch(&log_file(root, 0), |bytes| {
                let blank = bytes[last as usize..].windows(4).rposition(|bytes| bytes == 0xCBD4_3194u32.to_be_bytes()).unwrap();
                bytes[last as usize + blank - 4..].fill(0);
            });
            vec![]
        }),
        case("a blank record with another length", &[(Kind::BlankSize, WARNING, 1)], |root, _| {
            patch(&log_file(root, 0), |bytes| {
                let blank = bytes.windows(4).rposition(|bytes| bytes == 0xCBD4_3194u32.to_be_bytes()).unwrap();
                bytes[blank - 1] ^= 1;
            });
            vec![]
        }),
        case("the last file is cut behind its records", &[(Kind::LogFileShort, ERROR, 1)], |root, _| {
            let (file, end) = log_end(root);
            patch(&file, |bytes| bytes.truncate(end + 10));
            vec![]
        }),
        case("a file in the middle is cut", &[(Kind::LogFileShort, ERROR, 1), (Kind::DamagedRecords, ERROR, 1)], |root, stored| {
            let record =
                *stored.iter().map(|(.., record)| record).find(|record| record.physical_offset > FILE_SIZE as i64 * 3 / 2).unwrap();
            patch(&log_file(root, record.physical_offset), |bytes| bytes.truncate(record.physical_offset as usize % FILE_SIZE + 50));
            let hit = |lost: &Appended| (record.physical_offset..2 * FILE_SIZE as i64).contains(&lost.physical_offset);
            stored.iter().filter(|(.., record)| hit(record)).map(|(.., record)| record.physical_offset).collect()
        }),
        case("an empty file behind the last", &[(Kind::LogFileEmpty, WARNING, 1)], |root, _| {
            let (file, _) = log_end(root);
            let start: i64 = file.file_name().unwrap().to_str().unwrap().parse().unwrap();
            std::fs::write(log_file(root, start + FILE_SIZE as i64), b"").unwrap();
            vec![]
        }),
        case("files of zeros behind the last", &[(Kind::SurplusFile, WARNING, 2)], |root, _| {
            let (file, _) = log_end(root);
            let start: i64 = file.file_name().unwrap().to_str().unwrap().parse().unwrap();
            for next in 1..3 {
                std::fs::write(log_file(root, start + next * FILE_SIZE as i64), [0; FILE_SIZE]).unwrap();
            }
            vec![]
        }),
        case("a file without records behind the last", &[(Kind::TornTail, ERROR, 1), (Kind::SurplusFile, WARNING, 1)], |root, _| {
            let (file, _) = log_end(root);
            let start: i64 = file.file_name().unwrap().to_str().unwrap().parse().unwrap();
            std::fs::write(log_file(root, start + FILE_SIZE as i64), [7; FILE_SIZE]).unwrap();
            vec![]
        }),
        case("the oldest file was removed", &[], |root, stored| {
            std::fs::remove_file(log_file(root, 0)).unwrap();
            stored
                .iter()
                .filter(|(.., record)| record.physical_offset < FILE_SIZE as i64)
                .map(|(.., record)| record.physical_offset)
                .collect()
        }),
        Case {
            name: "a file in the middle was removed",
            told: &[(Kind::LogFileMissing, ERROR, 1)],
            left: &[(Kind::LogFileMissing, ERROR, 1)],
            damage: |root, stored| {
                std::fs::remove_file(log_file(root, FILE_SIZE as i64)).unwrap();
                let hit = |record: &Appended| record.physical_offset / FILE_SIZE as i64 == 1;
                stored.iter().filter(|(.., record)| hit(record)).map(|(.., record)| record.physical_offset).collect()
            },
        },
        Case {
            name: "files that are none of the store's",
            told: &[(Kind::StrayFile, WARNING, 3)],
            left: &[(Kind::StrayFile, WARNING, 3)],
            damage: |root, _| {
                for name in ["commitlog/.DS_Store", "consumequeue/A/0/x.bak", "index/notes"] {
                    std::fs::write(root.join(name), b"x").unwrap();
                }
                vec![]
            },
        },
        // ---- consume queues ----
        case("a queue's folder was removed", &[(Kind::QueueMissing, ERROR, 60)], |root, _| {
            std::fs::remove_dir_all(root.join("consumequeue/B/1")).unwrap();
            vec![]
        }),
        case("all queues were removed", &[(Kind::QueueMissing, ERROR, 540)], |root, _| {
            std::fs::remove_dir_all(root.join("consumequeue")).unwrap();
            vec![]
        }),
        case("a queue's last file was removed", &[(Kind::UnitMissing, ERROR, 10)], |root, _| {
            std::fs::remove_file(queue_file(root, "B", 1, 1)).unwrap();
            vec![]
        }),
        case("a queue's middle file was removed", &[(Kind::QueueFileMissing, ERROR, 1), (Kind::UnitMissing, ERROR, 50)], |root, _| {
            std::fs::remove_file(queue_file(root, "A", 0, 1)).unwrap();
            vec![]
        }),
        case("a queue's first file was removed", &[(Kind::UnitMissing, ERROR, 50)], |root, _| {
            std::fs::remove_file(queue_file(root, "A", 0, 0)).unwrap();
            vec![]
        }),
        case("a queue's file was cut", &[(Kind::QueueFile, ERROR, 1), (Kind::UnitMissing, ERROR, 20)], |root, _| {
            patch(&queue_file(root, "B", 1, 0), |bytes| bytes.truncate(30 * 20 + 7));
            vec![]
        }),
        case("a queue's last file has no byte", &[(Kind::UnitMissing, ERROR, 10), (Kind::QueueFile, WARNING, 1)], |root, _| {
            patch(&queue_file(root, "B", 1, 1), Vec::clear);
            vec![]
        }),
        case("units of zeros", &[(Kind::UnitMissing, ERROR, 2)], |root, _| {
            patch_unit(root, 10, |bytes| bytes.fill(0));
            patch_unit(root, 11, |bytes| bytes.fill(0));
            vec![]
        }),
        case("a torn unit at the end", &[(Kind::UnitMissing, ERROR, 1)], |root, _| {
            patch_unit(root, 59, |bytes| bytes[7..].fill(0));
            vec![]
        }),
        case("a unit that points elsewhere", &[(Kind::UnitWrong, ERROR, 1)], |root, stored| {
            let other = of_queue(stored, "A", 0)[3];
            patch_unit(root, 10, |bytes| bytes.copy_from_slice(&unit(&other, 0)));
            vec![]
        }),
        case("a unit of another size", &[(Kind::UnitWrong, ERROR, 1)], |root, _| {
            patch_unit(root, 10, |bytes| bytes[11] ^= 1);
            vec![]
        }),
        case("a unit with another tags code", &[(Kind::UnitTagsCode, ERROR, 1)], |root, _| {
            patch_unit(root, 10, |bytes| bytes[19] ^= 1);
            vec![]
        }),
        case("shifted units", &[(Kind::UnitMissing, ERROR, 1), (Kind::UnitShifted, ERROR, 19), (Kind::UnitWrong, ERROR, 1)], |root, _| {
            patch(&queue_file(root, "B", 1, 0), |bytes| bytes.copy_within(28 * 20..48 * 20, 29 * 20)); // unit 48 is lost
            patch_unit(root, 28, |bytes| bytes.fill(0));
            vec![]
        }),
        case("a filler in place of a unit", &[(Kind::UnitMissing, ERROR, 1)], |root, _| {
            patch_unit(root, 10, |bytes| bytes.copy_from_slice(&crate::store::consume_queue::CqUnit::FILLER.encode()));
            vec![]
        }),
        case("a unit too many", &[(Kind::UnitBogus, ERROR, 1)], |root, stored| {
            let other = of_queue(stored, "A", 0)[3];
            patch_unit(root, 60, |bytes| bytes.copy_from_slice(&unit(&other, 0)));
            vec![]
        }),
        case("a unit that points behind the log", &[(Kind::UnitBehindLog, WARNING, 1)], |root, _| {
            let beyond = Appended { physical_offset: 1 << 40, size: 100, queue_offset: 60, store_timestamp: 0 };
            patch_unit(root, 60, |bytes| bytes.copy_from_slice(&unit(&beyond, 0)));
            vec![]
        }),
        case("something behind the zeros of a queue", &[(Kind::UnitZero, ERROR, 1)], |root, stored| {
            let other = of_queue(stored, "B", 1)[3];
            patch_unit(root, 70, |bytes| bytes.copy_from_slice(&unit(&other, 0)));
            vec![]
        }),
        // ---- index ----
        case("the index was removed", &[(Kind::IndexMissing, ERROR, 60 * 9)], |root, _| {
            std::fs::remove_dir_all(root.join("index")).unwrap();
            vec![]
        }),
        case(
            "an index file says that it has more than it can",
            &[(Kind::IndexFile, ERROR, 1), (Kind::IndexKeyMissing, ERROR, 191)],
            |root, _| {
                patch(&first_index_file(root), |bytes| bytes[36] = 0x7f);
                vec![]
            },
        ),
        case("an index file was cut", &[(Kind::IndexFile, ERROR, 1), (Kind::IndexKeyMissing, ERROR, 191)], |root, _| {
            patch(&first_index_file(root), |bytes| bytes.truncate(7_000));
            vec![]
        }),
        case("an index file's end is another", &[(Kind::IndexHeader, ERROR, 1)], |root, _| {
            patch(&first_index_file(root), |bytes| bytes[31] ^= 1);
            vec![]
        }),
        case("an index file's begin is another", &[(Kind::IndexHeader, ERROR, 1), (Kind::IndexEntry, ERROR, 698)], |root, _| {
            patch(&first_index_file(root), |bytes| {
                let begin = i64::from_be_bytes(bytes[..8].try_into().unwrap());
                bytes[..8].copy_from_slice(&(begin - 20_000_000).to_be_bytes());
            });
            vec![]
        }),
        case("a slot points elsewhere", &[(Kind::IndexChain, ERROR, 1)], |root, _| {
            patch(&first_index_file(root), |bytes| {
                let used = (0..101).find(|slot| bytes[40 + slot * 4..][..4] != [0; 4]).unwrap();
                bytes[40 + used * 4..][..4].fill(0);
            });
            vec![]
        }),
        case("a chain is broken", &[(Kind::IndexChain, ERROR, 1)], |root, _| {
            patch(&first_index_file(root), |bytes| {
                let chained = (0..600).rev().find(|entry| bytes[FIRST_ENTRY + entry * 20 + 16..][..4] != [0; 4]).unwrap();
                bytes[FIRST_ENTRY + chained * 20 + 16..][..4].fill(0);
            });
            vec![]
        }),
        case("a chain goes round", &[(Kind::IndexChain, ERROR, 1)], |root, _| {
            patch(&first_index_file(root), |bytes| {
                bytes[FIRST_ENTRY + 300 * 20 + 16..][..4].copy_from_slice(&301u32.to_be_bytes()); // entry 301 itself
            });
            vec![]
        }),
        case(
            "an entry of zeros",
            &[(Kind::IndexChain, ERROR, 1), (Kind::IndexEntry, ERROR, 1), (Kind::IndexKeyMissing, ERROR, 1)],
            |root, _| {
                patch(&first_index_file(root), |bytes| bytes[FIRST_ENTRY..][..20].fill(0)); // a record's first key
                vec![]
            },
        ),
        // ---- checkpoint, marks ----
        case("no checkpoint", &[(Kind::CheckpointMissing, WARNING, 1)], |root, _| {
            std::fs::remove_file(root.join("checkpoint")).unwrap();
            vec![]
        }),
        case("a checkpoint of 7 bytes", &[(Kind::CheckpointLength, WARNING, 1)], |root, _| {
            patch(&root.join("checkpoint"), |bytes| bytes.truncate(7));
            vec![]
        }),
        case("a checkpoint that another program wrote", &[(Kind::CheckpointField, ERROR, 1)], |root, _| {
            patch_checkpoint(root, 40, 77);
            vec![]
        }),
        case("a checkpoint from the future", &[(Kind::CheckpointField, WARNING, 2)], |root, _| {
            patch_checkpoint(root, 0, i64::MAX);
            patch_checkpoint(root, 8, i64::MAX);
            vec![]
        }),
        case("a negative checkpoint", &[(Kind::CheckpointField, WARNING, 1)], |root, _| {
            patch_checkpoint(root, 24, -5);
            vec![]
        }),
        case("an abrupt stop", &[(Kind::Abort, WARNING, 1)], |root, _| {
            std::fs::write(root.join("abort"), b"1").unwrap();
            vec![]
        }),
        case("what a repair left that was cut short", &[(Kind::RepairLeft, WARNING, 1)], |root, _| {
            std::fs::create_dir_all(root.join(WORK_FOLDER).join("index")).unwrap();
            vec![]
        }),
        // ---- several at once ----
        case(
            "everything at once",
            &[
                (Kind::DamagedRecords, ERROR, 1),
                (Kind::QueueMissing, ERROR, 60),
                (Kind::UnitWrong, ERROR, 1),
                (Kind::IndexMissing, ERROR, 60 * 9 - 1),
                (Kind::Abort, WARNING, 1),
            ],
            |root, stored| {
                let record = of_queue(stored, "A", 1)[10];
                patch_record(root, record, |bytes| bytes[100] ^= 1);
                std::fs::remove_dir_all(root.join("consumequeue/C/0")).unwrap();
                std::fs::remove_dir_all(root.join("index")).unwrap();
                patch_unit(root, 10, |bytes| bytes.copy_from_slice(&unit(&of_queue(stored, "A", 0)[3], 0)));
                std::fs::write(root.join("abort"), b"1").unwrap();
                vec![record.physical_offset]
            },
        ),
    ]
}

#[test]
fn damage_is_found_and_named() {
    let original = tempfile::tempdir().unwrap();
    let stored = stopped(original.path(), ROUNDS);
    let mut wrong = Vec::new();
    for Case { name, damage, told: expected, .. } in cases() {
        let folder = copy(original.path());
        damage(folder.path(), &stored);
        let before = content(folder.path());
        let report = checked(folder.path());
        if told(&report) != expected {
            let texts: Vec<&str> = report.findings.shown().map(|finding| finding.text.as_str()).collect();
            wrong.push(format!("{name}: {:?} instead of {expected:?}: {texts:#?}", told(&report)));
        }
        assert!(before == content(folder.path()), "{name}: something was changed");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A copy of a folder.
pub(in crate::store) fn copy(from: &Path) -> tempfile::TempDir {
    fn into(from: &Path, to: &Path) {
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                std::fs::create_dir(&target).unwrap();
                into(&path, &target);
            } else {
                std::fs::copy(path, target).unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    into(from, folder.path());
    folder
}

// ---- more than one table can hold ----

fn kinds(report: &Report) -> Vec<Kind> {
    report.findings.groups().map(|(_, kind, _)| kind).collect()
}

#[test]
fn a_store_of_unknown_sizes_tells_them() {
    let folder = tempfile::tempdir().unwrap();
    stopped(folder.path(), 30);
    let plain = StoreConfig::new(folder.path());
    let report = check(&plain, &RealFs::shared(), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(kinds(&report), [Kind::FoundSizes], "{:?}", report.findings);
    assert_eq!(report.sizes, Sizes { commit_log: FILE_SIZE, consume_queue: 1_000, index: (101, 700) });
    let empty = folder.path().join("index/99991231235959999"); // begun, and killed
    std::fs::write(&empty, vec![0; 40 + 101 * 4 + 700 * 20]).unwrap();
    let report = check(&plain, &RealFs::shared(), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(kinds(&report), [Kind::FoundSizes], "{:?}", report.findings);
    std::fs::remove_file(empty).unwrap();
    let given = CheckOptions { given: Given { commit_log: true, consume_queue: true, index: true }, ..CheckOptions::default() };
    let report = check(&plain, &RealFs::shared(), &given, &mut |_| {}).unwrap();
    let expected = [Kind::LogFileSize, Kind::QueueFile, Kind::IndexFile];
    assert!(expected.iter().all(|kind| kinds(&report).contains(kind)), "{:?}", report.findings);
}

#[test]
fn a_folder_that_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("none")] {
        let error = check(&config(&path), &RealFs::shared(), &CheckOptions::default(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("no store"), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_running_broker_s_store_is_looked_at_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 0, 20);
    let check_now = |running| {
        let options = CheckOptions { running, ..CheckOptions::default() };
        check(&config(folder.path()), &RealFs::shared(), &options, &mut |_| {})
    };
    assert!(matches!(check_now(false), Err(StoreError::Locked(..))));
    let (writer, more) = (Arc::clone(&store), Arc::new(std::sync::atomic::AtomicBool::new(true)));
    let go_on = Arc::clone(&more);
    let thread = crate::runtime::thread::Thread::spawn("", "writer", move || {
        let mut number = 20;
        while go_on.load(std::sync::atomic::Ordering::Relaxed) && number < 5_000 {
            fill(&writer, number, 1);
            number += 1;
        }
    })
    .unwrap();
    for _ in 0..5 {
        let report = check_now(true).unwrap();
        assert!(!report.findings.is_damaged(), "{:#?}", report.findings.shown().collect::<Vec<_>>());
    }
    more.store(false, std::sync::atomic::Ordering::Relaxed);
    thread.join();
    settled(&store);
    assert!(store.shutdown(DEADLINE).clean);
    assert_eq!(told(&check_now(false).unwrap()), []);
}

#[test]
fn a_killed_broker_s_store_has_warnings_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 0, 40);
    settled(&store);
    let killed = copy(folder.path()); // consume queues and index are in memory still
    let report = checked(killed.path());
    assert!(report.findings.worst() == Some(Severity::Warning), "{:#?}", report.findings.shown().collect::<Vec<_>>());
    assert!(kinds(&report).contains(&Kind::Abort));
}

/// A topic that was deleted and made anew, in a store that keeps no marks, as Java's does not.
pub(in crate::store) fn with_deleted_topic(root: &Path) -> Vec<(String, i32, Appended)> {
    let store = open(root);
    fill(&store, 0, 20);
    settled(&store);
    store.delete_topic("A").unwrap();
    let stored = fill(&store, 100, 7);
    settled(&store);
    assert!(store.shutdown(DEADLINE).clean);
    assert_eq!(told(&checked(root)), [], "the mark tells");
    std::fs::remove_file(root.join("config/deletedTopics.json")).unwrap();
    stored.into_iter().filter(|(topic, ..)| topic == "A").collect()
}

#[test]
fn a_topic_made_anew_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let stored = with_deleted_topic(folder.path());
    let report = checked(folder.path());
    assert_eq!((told(&report), kinds(&report)), (vec![], vec![Kind::QueueRestarted]));
    let bounds = report.queues.iter().find(|queue| queue.topic == "A" && queue.queue_id == 1).unwrap();
    assert_eq!((bounds.min_offset, bounds.max_offset), (0, of_queue(&stored, "A", 1).len() as i64));
    // without its folder only the numbers tell
    std::fs::remove_dir_all(folder.path().join("consumequeue/A")).unwrap();
    assert_eq!(told(&checked(folder.path())), [(Kind::QueueMissing, Severity::Error, 7 + 14)]);
    let topics = Some(["B".to_owned(), "C".to_owned()].into());
    let report = check_with(folder.path(), &CheckOptions { topics, ..CheckOptions::default() });
    assert_eq!((told(&report), kinds(&report)), (vec![], vec![Kind::TopicUnknown, Kind::QueueRestarted]));
}

/// Sets the queue offset that a record states, which no checksum covers.
fn set_queue_offset(root: &Path, record: Appended, offset: i64) {
    patch_record(root, record, |bytes| bytes[20..28].copy_from_slice(&offset.to_be_bytes()));
}

#[test]
fn a_damaged_queue_offset_does_not_take_its_neighbours_along() {
    let original = tempfile::tempdir().unwrap();
    let stored = stopped(original.path(), 30);
    for (place, offset, kind) in [
        (10, 3, Kind::QueueOffsetTwice),
        (10, 5_000_000, Kind::QueueOffsetOdd),
        (10, i64::MAX, Kind::QueueOffsetOdd),
        (10, -1, Kind::QueueOffsetOdd),
        (29, 2, Kind::QueueOffsetTwice),
    ] {
        let folder = copy(original.path());
        set_queue_offset(folder.path(), of_queue(&stored, "B", 1)[place], offset);
        let report = checked(folder.path());
        assert_eq!(told(&report), [(kind, Severity::Error, 1)], "{place} {offset}");
        let bounds = report.queues.iter().find(|queue| queue.topic == "B" && queue.queue_id == 1).unwrap();
        assert_eq!((bounds.min_offset, bounds.max_offset), (0, 30), "{place} {offset}");
        std::fs::remove_dir_all(folder.path().join("consumequeue/B/1")).unwrap();
        let report = checked(folder.path());
        let bounds = report.queues.iter().find(|queue| queue.topic == "B" && queue.queue_id == 1).unwrap();
        assert_eq!((bounds.min_offset, bounds.max_offset), (0, if place == 29 { 29 } else { 30 }), "{place} {offset}, without its folder");
    }
}

#[test]
fn what_the_disk_does_not_give_is_told_and_the_rest_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let stored = stopped(folder.path(), 30);
    let record = of_queue(&stored, "B", 1)[10];
    let bad = log_file(folder.path(), record.physical_offset);
    let fs: Arc<dyn Fs> = Arc::new(BadSector { path: bad.clone(), at: record.physical_offset as u64 % FILE_SIZE as u64 });
    let report = check(&config(folder.path()), &fs, &CheckOptions::default(), &mut |_| {}).unwrap();
    let unreadable: Vec<&Finding> = report.findings.shown().filter(|finding| finding.kind == Kind::Unreadable).collect();
    assert_eq!(unreadable.len(), 1);
    assert_eq!((&unreadable[0].path, unreadable[0].position.unwrap() % 4096), (&bad, 0));
    assert_eq!(told(&report)[..2], [(Kind::Unreadable, Severity::Error, 1), (Kind::DamagedRecords, Severity::Error, 1)]);
    assert!(report.counts.records > 30 * 10, "the rest was walked over");
    let options = crate::store::repair::RepairOptions { apply: true, ..Default::default() };
    let error = crate::store::repair::repair(&config(folder.path()), &fs, &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("copy the store"), "{error}");
}

/// The machine's file system, with a sector of one file that cannot be read.
#[derive(Debug)]
struct BadSector {
    path: PathBuf,
    at: u64,
}

#[derive(Debug)]
struct BadFile(Arc<dyn FsFile>, u64);

impl Fs for BadSector {
    fn open(&self, path: &Path, create: bool) -> std::io::Result<Arc<dyn FsFile>> {
        let file = RealFs.open(path, create)?;
        Ok(if path == self.path { Arc::new(BadFile(file, self.at)) } else { file })
    }
    fn create_dir_all(&self, path: &Path) -> std::io::Result<()> {
        RealFs.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        RealFs.sync_dir(path)
    }
    fn remove_file(&self, path: &Path) -> std::io::Result<()> {
        RealFs.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> std::io::Result<()> {
        RealFs.remove_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        RealFs.rename(from, to)
    }
    fn list(&self, path: &Path) -> std::io::Result<Vec<(PathBuf, bool)>> {
        RealFs.list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
    fn space(&self, path: &Path) -> std::io::Result<crate::store::fs::Space> {
        RealFs.space(path)
    }
}

impl FsFile for BadFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
        if (at..at + buffer.len() as u64).contains(&self.1) {
            return Err(std::io::Error::from_raw_os_error(libc::EIO));
        }
        self.0.read_exact_at(buffer, at)
    }
    fn write_all_at(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        self.0.write_all_at(bytes, at)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }
    fn write_back(&self, at: u64, len: u64) -> std::io::Result<()> {
        self.0.write_back(at, len)
    }
    fn allocate(&self, at: u64, len: u64) -> std::io::Result<()> {
        self.0.allocate(at, len)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn modified_ms(&self) -> std::io::Result<i64> {
        self.0.modified_ms()
    }
    fn as_std(&self) -> Option<&std::fs::File> {
        self.0.as_std()
    }
}

/// A store of this configuration, filled and stopped.
fn stopped_with(config: &StoreConfig) -> Vec<(String, i32, Appended)> {
    let store = MessageStore::open(config.clone(), RealFs::shared(), Clock::System).unwrap();
    let stored = fill(&store, 0, 40);
    settled(&store);
    assert!(store.shutdown(DEADLINE).clean);
    stored
}

/// Repairs and checks with this configuration; what is left, and the steps.
fn mended(config: &StoreConfig) -> (Vec<Told>, Vec<crate::store::repair::Action>) {
    let options = crate::store::repair::RepairOptions { apply: true, ..Default::default() };
    let done = crate::store::repair::repair(config, &RealFs::shared(), &options, &mut |_| {}).unwrap();
    let report = check(config, &RealFs::shared(), &CheckOptions::default(), &mut |_| {}).unwrap();
    (told(&report), done.steps.iter().map(|step| step.action).collect())
}

#[test]
fn a_log_on_several_disks_is_one_log() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = StoreConfig { more_commit_log_paths: vec![other.path().to_owned()], ..config(folder.path()) };
    let stored = stopped_with(&config);
    assert!(std::fs::read_dir(other.path()).unwrap().count() > 1);
    let check_now = || check(&config, &RealFs::shared(), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(told(&check_now()), []);
    let here = |record: &Appended| other.path().join(log_file(Path::new(""), record.physical_offset).file_name().unwrap());
    let record = stored.iter().map(|(.., record)| *record).find(|record| here(record).exists()).unwrap();
    patch(&here(&record), |bytes| bytes[record.physical_offset as usize % FILE_SIZE + 100] ^= 1);
    let report = check_now();
    assert_eq!(told(&report), [(Kind::DamagedRecords, Severity::Error, 1)]);
    assert_eq!(report.findings.shown().next().unwrap().path, here(&record));
    assert_eq!(mended(&config).0, []);
}

#[test]
fn a_crc_of_the_whole_record_tells_of_damage_to_its_head() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { append_record_crc: true, force_record_crc: true, ..config(folder.path()) };
    let stored = stopped_with(&config);
    patch_record(folder.path(), of_queue(&stored, "B", 1)[10], |bytes| bytes[45] ^= 1); // its born timestamp
    let report = check(&config, &RealFs::shared(), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(told(&report), [(Kind::DamagedRecords, Severity::Error, 1)]);
    assert_eq!(mended(&config), (vec![], vec![crate::store::repair::Action::SealDamage, crate::store::repair::Action::WriteCheckpoint]));
}

#[test]
fn a_database_of_another_broker_is_named() {
    let folder = tempfile::tempdir().unwrap();
    stopped(folder.path(), 2);
    std::fs::create_dir(folder.path().join("rocksdbstore")).unwrap();
    assert_eq!(told(&checked(folder.path())), [], "newer Java brokers make it in every store");
    std::fs::write(folder.path().join("rocksdbstore/000007.sst"), b"x").unwrap();
    assert_eq!(told(&checked(folder.path())), [(Kind::Foreign, Severity::Error, 1)]);
}

#[test]
fn a_file_that_two_threads_make_at_once_is_one_file() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig { commit_log_file_size: 8 << 10, ..config(folder.path()) };
        let store = MessageStore::open(config.clone(), RealFs::shared(), Clock::System).unwrap();
        fill(&store, 0, 20); // faster than files can be made ahead
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        let report = check(&config, &RealFs::shared(), &CheckOptions::default(), &mut |_| {}).unwrap();
        assert_eq!((told(&report), report.counts.records), (vec![], 20 * 11));
    }
}

#[test]
fn progress_never_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    stopped(folder.path(), 120);
    let mut last = Progress { what: "checking", done: 0, total: 0 };
    check(&config(folder.path()), &RealFs::shared(), &CheckOptions::default(), &mut |step| {
        assert!(step.what == "checking" && step.done >= last.done && step.done <= step.total, "{last:?} {step:?}");
        last = step;
    })
    .unwrap();
    assert!(last.total > 0 && last.done == last.total);
}
