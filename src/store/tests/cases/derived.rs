//! Rows of consume queues, index, checkpoint and configuration: 34-54, 58-63, 80.

use std::os::unix::fs::FileExt;

use super::*;
use crate::common::hash::tags_code;
use crate::store::format::cq_unit::CqUnit;
use crate::store::reading::MessageFilter;

/// The rows.
pub(super) const ROWS: &[Row] = &[
    start("34", "all consume queues removed", &STANDARD, AN, |stopped| {
        remove_folder(stopped, "consumequeue");
        read_from_the_begin()
    }),
    start("35", "consume queues of one topic removed", &STANDARD, N, |stopped| {
        remove_folder(stopped, "consumequeue/TopicB");
        read_from_the_begin()
    }),
    start("36", "the same before a start after an abrupt stop", &STANDARD, A, |stopped| {
        remove_folder(stopped, "consumequeue/TopicB");
        read_from_the_begin()
    }),
    start("37", "last file of a queue removed", &MANY_QUEUE_FILES, AN, |stopped| {
        let files = queue_files(stopped, "TopicA", 1);
        std::fs::remove_file(files.last().unwrap()).unwrap();
        Opens::whole()
    }),
    start("38", "file in the middle of a queue's last three removed", &MANY_QUEUE_FILES, AN, |stopped| {
        let files = queue_files(stopped, "TopicA", 1);
        std::fs::remove_file(&files[files.len() - 2]).unwrap();
        whole_and_logs("consume queue has a hole")
    }),
    start("39", "last unit torn", &STANDARD, AN, |stopped| {
        for (topic, queue_id) in queues() {
            let last = queue_end(stopped, topic, queue_id) - 1;
            write_units(stopped, topic, queue_id, last * 20 + 7, &[0; 13]);
        }
        Opens::whole()
    }),
    start("40", "zero unit in the middle of the last file", &STANDARD, AN, |stopped| {
        write_units(stopped, "TopicC", 0, 20 * (queue_end(stopped, "TopicC", 0) / 2), &[0; 20]);
        whole_and_logs("consume queue has a hole")
    }),
    start("41", "last file of a queue all zeros", &MANY_QUEUE_FILES, AN, |stopped| {
        for (topic, queue_id) in queues() {
            let files = queue_files(stopped, topic, queue_id);
            if queue_id == 0 {
                let next = files[0].with_file_name(format!("{:020}", files.len() * UNITS * 20)); // preallocated, not begun
                std::fs::write(next, [0; UNITS * 20]).unwrap();
            } else {
                std::fs::write(files.last().unwrap(), [0; UNITS * 20]).unwrap();
            }
        }
        Opens::whole()
    }),
    start("42", "consume queue ahead of the log", &STANDARD, AN, |stopped| {
        let end = stopped.end();
        for (number, (topic, queue_id)) in queues().into_iter().enumerate() {
            for ahead in 0..number as i64 {
                let unit = CqUnit { physical_offset: end + ahead * 100, size: 100, tags_code: 0 };
                write_units(stopped, topic, queue_id, (queue_end(stopped, topic, queue_id) + ahead) * 20, &unit.encode());
            }
        }
        Opens::whole()
    }),
    start("43", "consume queue file of another length", &STANDARD, AN, |stopped| {
        let file = queue_files(stopped, "TopicB", 1).remove(0);
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(7777).unwrap();
        refuses(&[
            "consumequeue/TopicB/1/00000000000000000000",
            "7777",
            "mappedFileSizeConsumeQueue=20000",
            "remove the folder",
            "checkpoint",
        ])
    }),
    start("44", "queue of another kind than the topic has", &STANDARD, AN, |stopped| {
        let folder = stopped.path("batchconsumequeue/TopicB/0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("00000000000000000000"), [0; 46 * 100]).unwrap();
        refuses(&["batchconsumequeue", "BatchCQ", "1 topics", "TopicB", "move the folder away"])
    }),
    start("45", "units refer to extension files that are not there", &STANDARD, AN, |stopped| {
        for (topic, queue_id) in queues() {
            for offset in 0..queue_end(stopped, topic, queue_id) {
                write_units(stopped, topic, queue_id, offset * 20 + 12, &(i64::MIN + offset * 32).to_be_bytes());
            }
        }
        whole_and(|opened| {
            for number in 0..5 {
                let tags = format!("tag-{number}");
                let matching = |sent: &(usize, &Sent)| sent.0 % 5 == number && sent.1.topic == "TopicA" && sent.1.queue_id == 0;
                let expected = opened.stopped.sent.iter().enumerate().filter(matching).count();
                assert_eq!(count_tagged(opened.store, "TopicA", 0, &tags), expected, "{tags}");
            }
        })
    }),
    start("46", "queue of nothing but fillers", &STANDARD, AN, |stopped| {
        let folder = stopped.path("consumequeue/TopicD/0");
        std::fs::create_dir_all(&folder).unwrap();
        let mut bytes = CqUnit::FILLER.encode().repeat(50);
        bytes.resize(20 * 1000, 0);
        std::fs::write(folder.join("00000000000000000000"), bytes).unwrap();
        forget_ours(stopped);
        set_checkpoint(stopped, 40, 0); // as brokers before 5.5.0 leave it: the queues alone tell where to begin
        let known = stopped.in_file(1).end;
        for (topic, queue_id) in queues() {
            let units = stopped.sent[..known].iter().filter(|sent| sent.topic == topic && sent.queue_id == queue_id).count();
            end_queue_at(stopped, topic, queue_id, units as i64);
        }
        whole_and(|opened| assert_eq!(opened.store.queue_bounds("TopicD", 0), (50, 50)))
    }),
    start("47", "index removed", &STANDARD, AN, |stopped| {
        remove_folder(stopped, "index");
        without_old_keys(stopped)
    }),
    start("48", "header of an index file corrupt", &STANDARD, AN, |stopped| {
        write_index(stopped, 36, &i32::MAX.to_be_bytes());
        set_aside(stopped, "exceeds maxIndexNum=2000")
    }),
    start("49", "index newer than the checkpoint", &STANDARD, A, |stopped| {
        // What was flushed last ends in the middle; of what came behind, the header and some pages have arrived.
        let middle = stopped.sent.len() / 2;
        set_checkpoint(stopped, 80, stopped.sent[middle].offset());
        set_checkpoint(stopped, 88, stopped.sent[middle - 1].offset());
        let entry = |number: usize| 40 + 500 * 4 + number as u64 * 20;
        write_index(stopped, entry(2 * middle + 40), &[0; 512]);
        write_index(stopped, 40, &[0; 400]);
        whole_and(|opened| assert_eq!(found_by_key(opened).len(), opened.stopped.sent.len()))
    }),
    start("50", "index file cut to half its length", &STANDARD, AN, |stopped| {
        let file = index_file(stopped);
        let len = std::fs::metadata(&file).unwrap().len();
        std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(len / 2).unwrap();
        set_aside(stopped, "bytes, 42040 expected")
    }),
    start("51", "checkpoint missing", &STANDARD, AN, |stopped| {
        std::fs::remove_file(stopped.path("checkpoint")).unwrap();
        read_from_the_begin()
    }),
    start("52", "checkpoint of 7 bytes, or all zeros", &STANDARD, AN, |stopped| {
        let len = if stopped.mode == FlushDiskType::Sync { 7 } else { 4096 };
        std::fs::write(stopped.path("checkpoint"), vec![0; len]).unwrap();
        read_from_the_begin()
    }),
    start("53", "checkpoint from the future", &STANDARD, A, |stopped| {
        let future = stopped.sent.last().unwrap().appended.store_timestamp + 864_000_000;
        for at in [0, 8, 16] {
            set_checkpoint(stopped, at, future);
        }
        set_checkpoint(stopped, 40, 0); // as brokers before 5.5.0 leave it
        end_queue_at(stopped, "TopicA", 0, 5);
        read_from_the_begin()
    }),
    start("54", "checkpoint much older than the data", &STANDARD, A, |stopped| {
        for (at, value) in [(0, stopped.sent[0].appended.store_timestamp), (8, stopped.sent[0].appended.store_timestamp)] {
            set_checkpoint(stopped, at, value);
        }
        set_checkpoint(stopped, 40, stopped.sent[1].offset());
        end_queue_at(stopped, "TopicA", 0, 5);
        read_from_the_begin()
    }),
    in_broker("58", "topics.json torn, .bak good", "a_damaged_file_gives_way_to_its_backup"),
    in_broker("59", "topics.json missing, .bak there", "a_damaged_file_gives_way_to_its_backup"),
    in_broker("60", "topics.json and .bak both unreadable", "without_a_readable_copy_the_broker_does_not_start"),
    in_broker("60b", "topics.json unreadable, no .bak", "without_a_readable_copy_the_broker_does_not_start"),
    in_broker("61", "topics.json empty", "an_empty_file_is_a_warning"),
    in_broker("62", "consumerOffset.json ahead of the queue", "committed_offsets_ahead_of_their_queue_are_told_and_stay"),
    in_broker("63", "delayOffset.json out of range", "delay_offsets_out_of_range_are_corrected_on_disk"),
    Row { number: "80", name: "one queue that cannot be read", case: Case::Run(an_unreadable_queue_stops_the_start) },
];

const fn start(number: &'static str, name: &'static str, set_up: &'static SetUp, stops: &'static [Stop], damage: Damage) -> Row {
    Row { number, name, case: Case::Start(set_up, stops, damage) }
}

const fn in_broker(number: &'static str, name: &'static str, test: &'static str) -> Row {
    Row { number, name, case: Case::Elsewhere("broker/broker/cases.rs", test) }
}

type Damage = fn(&mut Stopped) -> Expected;

/// Units of a consume-queue file of [`MANY_QUEUE_FILES`].
const UNITS: usize = 10;

/// As [`STANDARD`], each queue in several files.
static MANY_QUEUE_FILES: SetUp = SetUp { configure: |config| config.consume_queue_file_size = UNITS * 20, fill: STANDARD.fill };

// ---- what is expected ----

fn whole_and_logs(part: &'static str) -> Expected {
    Expected::Opens(Opens { logs: vec![part], ..Opens::default() })
}

fn whole_and(check: fn(&Opened<'_>)) -> Expected {
    Expected::Opens(Opens { and: Some(check), ..Opens::default() })
}

/// Everything is there since all of the log has been dispatched again.
fn read_from_the_begin() -> Expected {
    whole_and(|opened| assert!(opened.report.records as usize >= opened.stopped.sent.len(), "{}", opened.report))
}

fn refuses(parts: &[&str]) -> Expected {
    Expected::Refuses(parts.iter().map(|part| (*part).to_owned()).collect())
}

/// The index file is kept as `.bad`, and the store goes on without its keys.
fn set_aside(stopped: &Stopped, why: &'static str) -> Expected {
    let Expected::Opens(opens) = without_old_keys(stopped) else { unreachable!("it opens") };
    let logs = [opens.logs, vec!["index file cannot be used and is set aside as .bad", why]].concat();
    Expected::Opens(Opens {
        logs,
        and: Some(|opened| {
            let bad = std::fs::read_dir(opened.stopped.path("index")).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(bad.filter(|name| name.to_str().unwrap().ends_with(".bad")).count(), 1);
            only_dispatched_keys(opened);
        }),
        ..opens
    })
}

/// The keys of the records that are not dispatched again are gone, which is said.
fn without_old_keys(stopped: &Stopped) -> Expected {
    let offer = vec!["key index lacks records that it had", "petrel store repair"];
    let logs = if stopped.stop == Stop::Clean { offer } else { Vec::new() }; // else all are: the messages are seconds old
    Expected::Opens(Opens { logs, and: Some(only_dispatched_keys), ..Opens::default() })
}

fn only_dispatched_keys(opened: &Opened<'_>) {
    let from = opened.stopped.sent.len() - opened.report.dispatched as usize;
    assert_eq!(from == 0, opened.stopped.stop == Stop::Abrupt);
    assert_eq!(found_by_key(opened), (from..opened.stopped.sent.len()).collect::<Vec<_>>());
}

/// Indexes of the messages that are found by their key.
fn found_by_key(opened: &Opened<'_>) -> Vec<usize> {
    let is_found = |(_, sent): &(usize, &Sent)| {
        let found = opened.store.query(&sent.topic, &sent.key, 9, 0, i64::MAX).records;
        assert!(found.iter().all(|record| Record::parse(record).unwrap().physical_offset == sent.offset()));
        !found.is_empty()
    };
    opened.stopped.sent.iter().enumerate().filter(is_found).map(|(index, _)| index).collect()
}

// ---- damage ----

fn queues() -> Vec<(&'static str, i32)> {
    TOPICS.into_iter().flat_map(|topic| (0..QUEUES).map(move |queue_id| (topic, queue_id))).collect()
}

fn remove_folder(stopped: &Stopped, name: &str) {
    std::fs::remove_dir_all(stopped.path(name)).unwrap();
}

fn queue_files(stopped: &Stopped, topic: &str, queue_id: i32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(stopped.path(&format!("consumequeue/{topic}/{queue_id}"))).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Units that the queue had.
fn queue_end(stopped: &Stopped, topic: &str, queue_id: i32) -> i64 {
    let of_queue = |sent: &&Sent| sent.topic == topic && sent.queue_id == queue_id;
    stopped.sent.iter().filter(of_queue).count() as i64
}

/// Writes into the only file of a queue.
fn write_units(stopped: &Stopped, topic: &str, queue_id: i32, at: i64, bytes: &[u8]) {
    let file = queue_files(stopped, topic, queue_id).remove(0);
    std::fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(bytes, at as u64).unwrap();
}

/// Leaves a queue, which has one file, so many units: as if it never had more.
fn end_queue_at(stopped: &Stopped, topic: &str, queue_id: i32, units: i64) {
    write_units(stopped, topic, queue_id, units * 20, &vec![0; (1000 - units as usize) * 20]);
}

fn index_file(stopped: &Stopped) -> PathBuf {
    let mut files = std::fs::read_dir(stopped.path("index")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.next().unwrap();
    assert!(files.next().is_none(), "one file");
    file
}

fn write_index(stopped: &Stopped, at: u64, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(index_file(stopped)).unwrap().write_all_at(bytes, at).unwrap();
}

fn set_checkpoint(stopped: &Stopped, at: u64, value: i64) {
    let file = std::fs::OpenOptions::new().write(true).open(stopped.path("checkpoint")).unwrap();
    file.write_all_at(&value.to_be_bytes(), at).unwrap();
}

/// As a checkpoint is that another broker has written.
fn forget_ours(stopped: &Stopped) {
    set_checkpoint(stopped, 104, 0);
}

struct Tagged(i64);

impl MessageFilter for Tagged {
    fn matches_code(&self, tags_code: i64) -> bool {
        tags_code == self.0
    }
}

/// Messages that a consumer of these tags gets.
fn count_tagged(store: &MessageStore, topic: &str, queue_id: i32, tags: &str) -> usize {
    let filter = Tagged(tags_code(Some(tags)));
    let (mut at, end) = store.queue_bounds(topic, queue_id);
    let mut count = 0;
    while at < end {
        let result = store.get(topic, queue_id, at, &GetLimits::default(), &filter);
        count += result.messages;
        assert!(result.next_begin_offset > at, "{result:?}");
        at = result.next_begin_offset;
    }
    count
}

fn an_unreadable_queue_stops_the_start() {
    for concurrently in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let config =
            StoreConfig { recover_concurrently: concurrently, recover_threads: 4, ..base_config(folder.path(), FlushDiskType::Sync) };
        let store = open_with(config.clone(), RealFs::shared()).unwrap();
        for queue_id in 0..40 {
            put(&store, "T", queue_id, b"x");
        }
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        let paths = [3, 17].map(|queue_id| folder.path().join(format!("consumequeue/T/{queue_id}/00000000000000000000")));
        for path in &paths {
            std::fs::rename(path, path.with_extension("kept")).unwrap();
            std::os::unix::fs::symlink("nowhere", path).unwrap();
        }
        let error = open_with(config.clone(), RealFs::shared()).map(drop).unwrap_err().to_string();
        assert!(["2 consume queues", "T/3/", "T/17/"].iter().all(|part| error.contains(part)), "{error}");
        assert!(!folder.path().join("abort").exists());
        for path in &paths {
            std::fs::rename(path.with_extension("kept"), path).unwrap();
        }
        let store = open_with(config, RealFs::shared()).unwrap();
        for queue_id in 0..40 {
            assert_eq!(store.queue_bounds("T", queue_id), (0, 1));
        }
    }
}
