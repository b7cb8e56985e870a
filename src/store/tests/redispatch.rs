//! Dispatching records again, in whatever order: queues and index stay what they are, and what is missing is filled, not shifted over.

use std::collections::BTreeMap;

use super::cases::files_of;
use super::*;
use crate::common::topic::SCHEDULE_TOPIC;
use crate::store::consume_queue::CqUnit;
use crate::store::consume_queue_table::ConsumeQueueTable;
use crate::store::dispatch::{Dispatcher, Put};
use crate::store::index::Index;
use crate::store::reading::LogView;
use crate::store::seal::is_seal;
use crate::store::testing::{VecLog, deleted};

/// Queues and index in a folder.
struct Derived {
    folder: TempDir,
    config: StoreConfig,
    queues: Arc<ConsumeQueueTable>,
    index: Arc<Index>,
    dispatcher: Dispatcher,
}

fn load(folder: TempDir, safe_timestamp: Option<i64>) -> Derived {
    let config = StoreConfig { consume_queue_file_size: 20 * 25, index_slots: 50, index_entries: 300, ..StoreConfig::new(folder.path()) };
    let queues = Arc::new(ConsumeQueueTable::load(&config, RealFs::shared()).unwrap());
    queues.repair_files().unwrap();
    let index = Arc::new(Index::load(&config, RealFs::shared(), safe_timestamp).unwrap());
    let dispatcher = Dispatcher::new(Arc::clone(&queues), Some(Arc::clone(&index)), deleted(folder.path()), config.delay_levels_ms.clone());
    Derived { folder, config, queues, index, dispatcher }
}

impl Derived {
    fn new() -> Self {
        load(tempfile::tempdir().unwrap(), None)
    }

    /// What memory holds is lost.
    fn crash(self) -> Self {
        let Self { folder, .. } = self;
        load(folder, Some(0))
    }

    fn flush(&self) {
        self.queues.flush(true).unwrap();
        self.index.flush().unwrap();
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files_of(self.folder.path())
    }

    fn queue_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.files().into_iter().filter(|(path, _)| path.starts_with("consumequeue")).collect()
    }

    /// As recovery does: in the order of the log from `from` on, from further in front when units are missing there.
    fn walk(&self, log: &Log, mut from: usize) {
        loop {
            let begin = if from == 0 { i64::MIN } else { log.records[from].0 };
            let puts = log.records[from..].iter().map(|(offset, bytes)| {
                let record = Record::parse(bytes).unwrap();
                self.dispatcher.dispatch_in_walk(&record, *offset, begin).unwrap()
            });
            let missing: Vec<i64> = puts.filter_map(|put| if let Put::MissingBefore(behind) = put { Some(behind) } else { None }).collect();
            let Some(behind) = missing.into_iter().min() else { return };
            let earlier = log.records.partition_point(|(offset, _)| *offset < behind);
            assert!(earlier < from, "nothing is missing that was read");
            from = earlier;
        }
    }
}

/// Records of every kind.
struct Log {
    records: Vec<(i64, Vec<u8>)>,
    /// Topic and key, as often as records have them.
    keys: BTreeMap<(String, String), usize>,
}

fn topics() -> [String; 5] {
    ["T".to_owned(), "a".to_owned(), "a-1".to_owned(), SCHEDULE_TOPIC.to_owned(), format!("%RETRY%{}", "g".repeat(200))]
}

fn random_log(count: usize, random: &mut fastrand::Rng) -> Log {
    let log = VecLog::new(1 << 16);
    let mut next: BTreeMap<(String, i32), i64> = BTreeMap::new();
    let (mut starts, mut keys) = (Vec::new(), BTreeMap::new());
    for number in 0..count {
        let (topic, queue_id) = (topics()[random.usize(0..5)].clone(), random.i32(0..3));
        let words: Vec<String> = (0..random.usize(0..3)).map(|_| format!("k{}", random.u32(0..40))).collect();
        let unique = format!("unique-{number}");
        let properties =
            format!("KEYS\u{1}{}\u{2}UNIQ_KEY\u{1}{unique}\u{2}TAGS\u{1}t{}\u{2}DELAY\u{1}3\u{2}", words.join(" "), number % 3);
        let kinds = [0, 0, 0, 0, sysflag::TRANSACTION_COMMIT, sysflag::TRANSACTION_PREPARED, sysflag::TRANSACTION_ROLLBACK];
        let sys_flag = kinds[random.usize(0..kinds.len())];
        let numbered = sys_flag == 0 || sys_flag == sysflag::TRANSACTION_COMMIT;
        let place = next.entry((topic.clone(), queue_id)).or_default();
        let body = body(number, random.usize(1..200));
        let draft = crate::common::record::Draft { sys_flag, ..draft(&topic, queue_id, &properties, &body) };
        starts.push(log.append(&draft, if numbered { *place } else { 0 }, 1_700_000_000_000 + number as i64).0);
        *place += i64::from(numbered);
        if sys_flag != sysflag::TRANSACTION_ROLLBACK {
            let mut all: Vec<String> = words.into_iter().chain([unique]).collect();
            all.sort();
            all.dedup();
            for key in all {
                *keys.entry((topic.clone(), key)).or_default() += 1;
            }
        }
    }
    let record = |start: &i64| {
        let bytes = log.slice_to_end(*start).unwrap();
        let size = Record::parse(&bytes).unwrap().total_size;
        (*start, bytes[..size].to_vec())
    };
    Log { records: starts.iter().map(record).collect(), keys }
}

fn dispatch(derived: &Derived, (offset, bytes): &(i64, Vec<u8>)) {
    derived.dispatcher.dispatch(&Record::parse(bytes).unwrap(), *offset).unwrap();
}

/// Every key leads to its records, each once. Keys of one hash are counted together: there are none here.
fn assert_keys(derived: &Derived, log: &Log, what: &str) {
    for ((topic, key), count) in &log.keys {
        let found = derived.index.query(topic, key, usize::MAX, 0, i64::MAX);
        assert_eq!(found.len(), *count, "{what}: {topic} {key}: {found:?}");
    }
}

#[test]
fn dispatching_again_in_any_order_changes_nothing() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let log = random_log(400, &mut random);
        let mut derived = Derived::new();
        derived.walk(&log, 0);
        for round in 0..3 {
            derived.flush();
            let files = derived.files();
            assert_keys(&derived, &log, "before");
            for _ in 0..300 {
                dispatch(&derived, &log.records[random.usize(0..log.records.len())]);
            }
            for record in log.records.iter().rev().take(5) {
                dispatch(&derived, record); // the last record of the index among them: its offset equals that of the index's end
            }
            derived.walk(&log, random.usize(0..log.records.len()));
            assert_eq!(derived.queues.dirty_bytes(), 0, "seed {seed} round {round}");
            assert_keys(&derived, &log, &format!("seed {seed} round {round}"));
            derived.flush();
            assert!(derived.files() == files, "seed {seed} round {round}: a file has changed");
            derived = derived.crash();
        }
    }
}

#[test]
fn what_a_crash_took_is_filled_from_the_log() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let log = random_log(400, &mut random);
        let reference = Derived::new();
        reference.walk(&log, 0);
        reference.flush();
        let mut derived = Derived::new();
        let (mut done, mut durable) = (0, 0);
        while done < log.records.len() {
            let to = (done + random.usize(1..60)).min(log.records.len());
            log.records[done..to].iter().for_each(|record| dispatch(&derived, record));
            done = to;
            match random.u32(0..4) {
                0 => {
                    derived.flush();
                    durable = done;
                }
                1 => derived.queues.flush(false).unwrap(),
                2 => {
                    derived = derived.crash();
                    let lost = random.u32(0..3) == 0 && durable > 0;
                    if lost {
                        let queues: Vec<_> =
                            derived.queues.all().iter().map(|queue| (queue.topic().to_owned(), queue.queue_id())).collect();
                        if let Some((topic, queue_id)) = queues.get(random.usize(0..queues.len().max(1))) {
                            let folder = derived.config.root.join("consumequeue").join(topic).join(queue_id.to_string());
                            std::fs::remove_dir_all(folder).unwrap();
                        }
                        derived = derived.crash();
                    }
                    let done_log = Log { records: log.records[..done].to_vec(), keys: BTreeMap::new() };
                    let from = if lost { 0 } else { random.usize(0..=durable.min(done - 1)) };
                    derived.walk(&done_log, from);
                }
                _ => {}
            }
        }
        derived.flush();
        assert!(derived.queue_files() == reference.queue_files(), "seed {seed}");
        assert_keys(&derived, &log, &format!("seed {seed}"));
    }
}

#[test]
fn a_queue_that_is_gone_makes_the_walk_begin_earlier() {
    let mut random = fastrand::Rng::with_seed(3);
    let log = random_log(900, &mut random);
    let derived = Derived::new();
    derived.walk(&log, 0);
    derived.flush();
    let (files, folder) = (derived.queue_files(), derived.config.root.join("consumequeue/a-1"));
    std::fs::remove_dir_all(&folder).unwrap();
    let derived = derived.crash();
    derived.walk(&log, 800);
    derived.flush();
    assert!(derived.queue_files() == files);
    // of another queue the last files
    let queue = derived.config.root.join("consumequeue/T/1");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&queue).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() > 1, "{names:?}");
    std::fs::remove_file(names.last().unwrap()).unwrap();
    let derived = derived.crash();
    derived.walk(&log, 800);
    derived.flush();
    assert!(derived.queue_files() == files);
}

#[test]
fn a_seal_stands_for_what_it_replaced_and_a_filler_where_there_is_none() {
    let log = VecLog::new(1 << 16);
    let put = |topic: &str, offset: i64| log.append(&draft(topic, 0, "", b"body"), offset, 1_700_000_000_000);
    put("T", 0);
    put("U", 0);
    let seal = crate::common::record::Draft {
        sys_flag: sysflag::TRANSACTION_ROLLBACK,
        topic: "rmq_sys_LOST_RECORDS",
        ..draft("T", 0, "", &[0; 300])
    };
    let (at, size) = log.append(&seal, 0, 1_700_000_000_000);
    let (third, third_size) = put("T", 3);
    put("V", 4);
    put("T", 4);
    let (last, last_size) = put("T", 7);
    let derived = Derived::new();
    let mut from = 0;
    while from < log.max_offset() {
        let bytes = log.slice_to_end(from).unwrap();
        let record = Record::parse(&bytes).unwrap();
        assert_eq!(is_seal(&record), from == at);
        dispatch(&derived, &(from, bytes[..record.total_size].to_vec()));
        from += record.total_size as i64;
    }
    let units = |topic: &str| {
        let (queue, mut units) = (derived.queues.get(topic, 0).unwrap(), Vec::new());
        queue.read(0, 100, &mut units).unwrap();
        units.into_iter().map(|unit| (unit.physical_offset, unit.size)).collect::<Vec<_>>()
    };
    let filler = (CqUnit::FILLER.physical_offset, CqUnit::FILLER.size);
    let of_t = units("T");
    assert_eq!(of_t[1..4], [(at, size), (at, size), (third, third_size)], "the seal lies between its records");
    assert_eq!(of_t[5..], [filler, filler, (last, last_size)], "none lies there");
    assert_eq!(units("V").len(), 5, "where the queue begins, numbers are kept");
    assert_eq!(derived.queues.get("V", 0).unwrap().min_offset(), 4);
}

#[test]
fn numbers_go_on_whatever_topics_are_called() {
    let long = format!("%RETRY%{}", "long".repeat(50));
    let queues: Vec<(&str, i32)> = vec![
        ("a", 1),
        ("a", 12),
        ("a", 2),
        ("a-1", 2),
        ("a-1", 0),
        ("a-1-2", 0),
        ("a-", 1),
        ("-", 1),
        ("%LMQ%a-1", 0),
        (&long, 3),
        (&long, 31),
    ];
    for abrupt in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut counts = vec![0; queues.len()];
        for round in 0..4 {
            let store = open(folder.path(), FlushDiskType::Async);
            for (place, (topic, queue_id)) in queues.iter().enumerate() {
                assert_eq!(store.queue_bounds(topic, *queue_id), (0, counts[place]), "{topic} {queue_id}");
                for _ in 0..=(place + round) % 5 {
                    assert_eq!(put(&store, topic, *queue_id, b"x").queue_offset, counts[place], "{topic} {queue_id} round {round}");
                    counts[place] += 1;
                }
            }
            settled(&store);
            assert_eq!(bodies(&store, &long, 31).len() as i64, counts[10], "records of the second form");
            assert!(store.shutdown(DEADLINE).clean);
            if abrupt {
                std::fs::write(folder.path().join("abort"), "1").unwrap();
            }
        }
    }
}

#[test]
fn a_queue_of_which_records_are_seen_goes_on_behind_them_even_if_nothing_is_noted() {
    for abrupt in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), FlushDiskType::Async);
        for number in 0..300 {
            put(&store, ["a", "a-1", "a-1-2"][number % 3], 0, &body(number, 500));
        }
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        std::fs::remove_dir_all(folder.path().join("consumequeue/a-1-2")).unwrap(); // the log ends with one of its records
        let checkpoint = folder.path().join("checkpoint");
        let mut bytes = std::fs::read(&checkpoint).unwrap();
        bytes[104..112].fill(0); // as another broker leaves it
        std::fs::write(&checkpoint, bytes).unwrap();
        if abrupt {
            std::fs::write(folder.path().join("abort"), "1").unwrap();
        }
        let store = open(folder.path(), FlushDiskType::Async);
        assert_eq!(store.queue_bounds("a-1-2", 0), (0, 100), "abrupt {abrupt}");
        assert_eq!(put(&store, "a-1-2", 0, b"next").queue_offset, 100);
        assert_eq!(put(&store, "a-1", 0, b"next").queue_offset, 100);
    }
}
