use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicI64, Ordering};

use tempfile::TempDir;

use super::*;
use crate::common::hash::java_hash;
use crate::runtime::thread::Thread;
use crate::store::RealFs;
use crate::store::testing::{TestFs, Trouble};

const DAY: i64 = 1_700_000_000_000;

struct Store {
    folder: TempDir,
    config: StoreConfig,
    trouble: Arc<Trouble>,
    index: Index,
}

impl Store {
    fn new(slots: u32, entries: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig { index_slots: slots, index_entries: entries, ..StoreConfig::new(folder.path()) };
        let fs = TestFs::default();
        let trouble = Arc::clone(&fs.trouble);
        let index = Index::load(&config, Arc::new(fs), None).unwrap();
        Self { folder, config, trouble, index }
    }

    fn reopen(&mut self, safe_timestamp: Option<i64>) {
        let fs = TestFs { real: RealFs, trouble: Arc::clone(&self.trouble) };
        self.index = Index::load(&self.config, Arc::new(fs), safe_timestamp).unwrap();
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("index")) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    fn all(&self, key: &str) -> Vec<i64> {
        self.index.query("T", key, usize::MAX, 0, i64::MAX)
    }
}

#[test]
fn a_file_whose_creation_was_cut_short_is_removed() {
    let mut store = Store::new(3, 5);
    store.index.put("T", "a", 1_000, DAY).unwrap();
    store.index.flush().unwrap();
    std::fs::write(store.folder.path().join("index/20990101000000000"), b"").unwrap();
    store.reopen(Some(0));
    assert_eq!((store.files().len(), store.all("a")), (1, vec![1_000]));
}

#[test]
fn a_file_is_apaches() {
    let store = Store::new(3, 5);
    store.index.put("T", "a", 1_000, DAY).unwrap(); // hash 81906: slot 0
    store.index.put("T", "b", 1_000, DAY).unwrap(); // hash 81907: slot 1
    store.index.put("T", "d", 2_000, DAY + 61_999).unwrap(); // hash 81909: slot 0
    store.index.flush().unwrap();
    assert_eq!(store.index.final_until(i64::MAX), 0, "no file is full");
    let path = &store.files()[0];
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.len() == 17 && name.starts_with("20"), "{name}");
    let mut expected = Vec::new();
    for value in [DAY, DAY + 61_999, 1_000, 2_000] {
        expected.extend_from_slice(&value.to_be_bytes());
    }
    for value in [2i32, 4, 3, 2, 0] {
        expected.extend_from_slice(&value.to_be_bytes()); // used slots, count, slots
    }
    expected.extend_from_slice(&[0; 20]);
    for (hash, physical_offset, seconds, previous) in [(81_906i32, 1_000i64, 0i32, 0i32), (81_907, 1_000, 0, 0), (81_909, 2_000, 61, 1)] {
        expected.extend_from_slice(&hash.to_be_bytes());
        expected.extend_from_slice(&physical_offset.to_be_bytes());
        expected.extend_from_slice(&seconds.to_be_bytes());
        expected.extend_from_slice(&previous.to_be_bytes());
    }
    expected.extend_from_slice(&[0; 20]);
    assert_eq!(std::fs::read(path).unwrap(), expected);
}

#[test]
fn an_empty_index_costs_nothing_and_a_small_one_little() {
    let folder = tempfile::tempdir().unwrap();
    let index = Index::load(&StoreConfig::new(folder.path()), RealFs::shared(), None).unwrap();
    index.flush().unwrap();
    assert!(!folder.path().join("index").exists());
    assert!(index.query("T", "k", 10, 0, i64::MAX).is_empty());
    assert_eq!(index.last(), (0, 0));
    for record in 1..100 {
        index.put("T", &format!("key-{record}"), record, DAY).unwrap();
    }
    index.flush().unwrap();
    let path = std::fs::read_dir(folder.path().join("index")).unwrap().next().unwrap().unwrap().path();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 420_000_040);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    assert_eq!(index.query("T", "key-77", 10, 0, i64::MAX), [77]);
}

#[test]
fn hashes_without_an_absolute_value_are_zero() {
    assert_eq!(java_hash("T#ajvakuzm"), i32::MIN);
    assert_eq!(java_hash("polygenelubricants"), i32::MIN);
    let mut store = Store::new(7, 100);
    let mut keys = vec!["ajvakuzm".to_owned(), "标签".to_owned(), "a b".to_owned(), String::new()];
    keys.extend((0..50).map(|number| format!("negative-{number}")));
    assert!(keys.iter().any(|key| java_hash(&format!("T#{key}")) < 0));
    for round in 0..2 {
        for (key, physical_offset) in keys.iter().zip(1..) {
            if round == 0 {
                store.index.put("T", key, physical_offset, DAY).unwrap();
            }
            assert_eq!(store.all(key), [physical_offset], "{key}");
        }
        store.index.flush().unwrap();
        store.reopen(None);
    }
    let file = &store.index.state.lock().files[0];
    let entry = file.file.entry(1).unwrap();
    assert_eq!((entry.key_hash, entry.physical_offset), (0, 1));
}

#[test]
fn a_record_is_indexed_once() {
    let mut store = Store::new(7, 100);
    for _ in 0..2 {
        for record in 1..10 {
            for key in ["same", "same", "unique"] {
                store.index.put("T", key, record * 100, DAY).unwrap();
            }
        }
        assert_eq!(store.all("same"), (1..10).rev().map(|record| record * 100).collect::<Vec<_>>());
        assert_eq!(store.all("unique").len(), 9);
        store.index.flush().unwrap();
        store.reopen(None);
    }
    // The stop came between two keys of one record: the other one is still taken.
    store.index.put("T", "third", 900, DAY).unwrap();
    store.index.put("T", "same", 900, DAY).unwrap();
    assert_eq!((store.all("third"), store.all("same").len()), (vec![900], 9));
    assert_eq!(store.index.last(), (DAY, 900));
}

#[test]
fn time_ranges_are_exact_to_the_second() {
    let store = Store::new(7, 1_000);
    for record in 0..100 {
        store.index.put("T", "k", record, DAY + record * 500).unwrap();
        if record == 60 {
            store.index.flush().unwrap();
        }
    }
    for (begin, end) in [(0, i64::MAX), (10_000, 20_000), (10_400, 20_600), (0, 0), (49_500, 60_000), (60_000, 70_000), (-9, -1)] {
        let (begin, end) = (DAY.saturating_add(begin), DAY.saturating_add(end));
        let found = store.index.query("T", "k", usize::MAX, begin, end);
        let expected: Vec<i64> = (0..100)
            .rev()
            .filter(|record| {
                let second = record * 500 / 1000;
                DAY + second * 1000 + 999 >= begin && DAY + second * 1000 <= end
            })
            .filter(|_| begin <= DAY + 49_500)
            .collect();
        assert_eq!(found, expected, "{begin} {end}");
        assert!((0..100).filter(|record| (begin..=end).contains(&(DAY + record * 500))).all(|record| found.contains(&record)));
    }
    assert_eq!(store.index.query("T", "k", 3, 0, i64::MAX), [99, 98, 97]);
    assert!(store.index.query("T", "k", 0, 0, i64::MAX).is_empty());
}

#[test]
fn a_full_disk_pauses_and_heals() {
    let mut store = Store::new(1_000, 10_000);
    store.trouble.full.store(true, Ordering::Relaxed);
    assert!(store.index.put("T", "lost", 1, DAY).is_err());
    store.trouble.full.store(false, Ordering::Relaxed);
    store.index.io.lock().retry_at = None; // a second later
    for record in 2..500 {
        store.index.put("T", &format!("key-{}", record % 10), record, DAY).unwrap();
    }
    store.index.flush().unwrap();
    store.trouble.full.store(true, Ordering::Relaxed);
    for record in 500..1000 {
        store.index.put("T", &format!("key-{}", record % 10), record, DAY).unwrap();
    }
    for _ in 0..3 {
        assert!(store.index.flush().is_err());
        assert_eq!(store.all("key-3").len(), 100);
    }
    store.index.put("T", "key-3", 1003, DAY).unwrap();
    store.trouble.full.store(false, Ordering::Relaxed);
    store.index.flush().unwrap();
    store.reopen(None);
    let expected: Vec<i64> = (2..1004).rev().filter(|record| record % 10 == 3 && (*record < 1000 || *record == 1003)).collect();
    assert_eq!(store.all("key-3"), expected);
}

#[test]
fn a_file_that_cannot_be_repaired_waits_for_the_next_start() {
    let mut store = Store::new(10, 100);
    store.index.put("T", "k", 1, DAY).unwrap();
    store.index.flush().unwrap();
    store.trouble.full.store(true, Ordering::Relaxed);
    store.reopen(Some(0));
    assert!(store.all("k").is_empty());
    store.trouble.full.store(false, Ordering::Relaxed);
    store.index.put("T", "k", 2, DAY).unwrap();
    store.index.flush().unwrap();
    assert_eq!((store.files().len(), store.all("k")), (2, vec![2]));
    store.reopen(Some(0));
    assert_eq!(store.all("k"), [2, 1]);
}

#[test]
fn a_failed_sync_is_final() {
    let store = Store::new(10, 10);
    store.index.put("T", "k", 1, DAY).unwrap();
    store.trouble.sync_fails.store(true, Ordering::Relaxed);
    assert!(store.index.flush().is_err());
    store.trouble.sync_fails.store(false, Ordering::Relaxed);
    assert!(store.index.flush().unwrap_err().to_string().contains("final"));
    assert_eq!(store.all("k"), [1]);
}

#[test]
fn files_that_cannot_be_are_set_aside() {
    let mut store = Store::new(10, 10);
    store.index.put("T", "k", 1, DAY).unwrap();
    store.index.flush().unwrap();
    let good = store.files()[0].clone();
    let folder = good.parent().unwrap().to_owned();
    let with_count = |name: &str, count: i32| {
        std::fs::copy(&good, folder.join(name)).unwrap();
        std::fs::OpenOptions::new().write(true).open(folder.join(name)).unwrap().write_all_at(&count.to_be_bytes(), 36).unwrap();
    };
    with_count("20010101000000000", 11);
    with_count("20010101000000001", i32::MAX);
    std::fs::write(folder.join("20010101000000002"), b"short").unwrap();
    std::fs::write(folder.join("notes"), b"x").unwrap();
    store.reopen(None);
    let names: Vec<String> = store.files().iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names.iter().filter(|name| name.ends_with(".bad")).count(), 3, "{names:?}");
    assert_eq!(store.all("k"), [1]);
    store.reopen(Some(0));
    assert_eq!(store.all("k"), [1]);
}

#[test]
fn chains_that_lie_end() {
    let store = Store::new(1, 100);
    for record in 1..50 {
        store.index.put("T", &format!("key-{record}"), record, DAY).unwrap();
    }
    store.index.flush().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&store.files()[0]).unwrap();
    for previous in [30i32, 31, 99, i32::MAX, -1, i32::MIN] {
        file.write_all_at(&previous.to_be_bytes(), 40 + 4 + 30 * 20 + 16).unwrap(); // entry 30 points at itself or further on
        assert_eq!(store.all("key-31"), [31]);
        assert!(store.all("key-29").is_empty());
    }
    for slot in [0i32, 100, i32::MAX, -5] {
        file.write_all_at(&slot.to_be_bytes(), 40).unwrap();
        assert!(store.all("key-31").is_empty());
    }
}

#[test]
fn cleaning_keeps_the_last_file() {
    let mut store = Store::new(5, 11);
    for record in 1..=35 {
        store.index.put("T", "k", record * 10, DAY + record).unwrap();
    }
    store.index.flush().unwrap();
    assert_eq!([301, 300, 101, 100].map(|again_from| store.index.final_until(again_from)), [DAY + 30, DAY + 20, DAY + 10, 0]);
    assert_eq!(store.files().len(), 4);
    store.index.clean(100);
    assert_eq!(store.files().len(), 4);
    store.index.clean(101);
    assert_eq!(store.files().len(), 3);
    store.index.clean(1_000_000);
    assert_eq!(store.files().len(), 1);
    assert_eq!(store.all("k"), [350, 340, 330, 320, 310]);
    store.reopen(None);
    store.index.flush().unwrap();
    assert_eq!(store.all("k").len(), 5);
}

#[test]
fn queries_find_everything_while_entries_are_written() {
    let store = Store::new(13, 3_000);
    let index = Arc::new(store.index);
    let indexed = Arc::new(AtomicI64::new(0));
    let good_queries = Arc::new(AtomicI64::new(0));
    let helpers: Vec<Thread> = (0..2)
        .map(|number| {
            let (index, indexed, good_queries) = (Arc::clone(&index), Arc::clone(&indexed), Arc::clone(&good_queries));
            Thread::spawn("", &format!("helper-{number}"), move || {
                let mut random = fastrand::Rng::with_seed(number);
                let mut rounds = 0;
                while rounds < 20 || indexed.load(Ordering::Acquire) < 10_000 {
                    rounds += 1;
                    if number == 0 {
                        index.write_out().unwrap();
                        continue;
                    }
                    let (upto, key) = (indexed.load(Ordering::Acquire), random.i64(0..50));
                    let found = index.query("T", &format!("key-{key}"), usize::MAX, 0, i64::MAX);
                    let expected: Vec<i64> = (1..=upto).rev().filter(|record| record % 50 == key).collect();
                    let from = found.iter().position(|record| Some(record) == expected.first()).unwrap_or(found.len());
                    assert_eq!(found[from..], expected, "key {key} up to {upto}");
                    assert!(found.is_sorted_by(|a, b| a > b));
                }
                good_queries.fetch_add(1, Ordering::Relaxed); // not after a panic
            })
            .unwrap()
        })
        .collect();
    for record in 1..=10_000 {
        index.put("T", &format!("key-{}", record % 50), record, DAY).unwrap();
        indexed.store(record, Ordering::Release);
    }
    helpers.into_iter().for_each(Thread::join);
    assert_eq!(good_queries.load(Ordering::Relaxed), 2);
}

/// The index against a map, over random keys, files, flushes, reopenings, kills and power cuts.
#[test]
fn model() {
    for seed in 0..25 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut store = Store::new(random.u32(1..3_000), random.u32(20..400));
        let mut log: Vec<(i64, i64, Vec<String>)> = Vec::new(); // physical offset, store time, keys
        let mut durable = 0; // records that the last flush covered
        let mut disk: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new(); // as of the last flush
        let (mut physical_offset, mut time) = (1, DAY);
        for step in 0..60 {
            for _ in 0..random.usize(0..40) {
                let mut keys: Vec<String> = (0..random.usize(0..4)).map(|_| format!("key-{}", random.u32(0..60))).collect();
                keys.sort_unstable();
                keys.dedup();
                log.push((physical_offset, time, keys));
                put(&store, log.last().unwrap());
                physical_offset += random.i64(91..200);
                time += random.i64(0..3_000);
            }
            match random.u32(0..10) {
                0..3 => {
                    store.index.flush().unwrap();
                    durable = log.len();
                    disk = snapshot(&store);
                }
                3 => store.index.spill(&mut store.index.io.lock()).unwrap(),
                4 => {
                    store.index.flush().unwrap();
                    store.reopen(None);
                    durable = log.len();
                    disk = snapshot(&store);
                }
                5 => {
                    // The log lost its tail.
                    let keep = random.usize(durable..=log.len());
                    store.index.truncate_behind(log.get(keep).map_or(physical_offset, |record| record.0)).unwrap();
                    log.truncate(keep);
                    store.index.flush().unwrap();
                    durable = keep;
                    disk = snapshot(&store);
                }
                kind @ (6 | 7) => {
                    if kind == 7 {
                        cut_power(&store, &disk, &mut random);
                    }
                    store.reopen(Some(0));
                    store.index.truncate_behind(log.get(durable).map_or(physical_offset, |record| record.0)).unwrap();
                    let from = random.usize(0..=durable); // recovery may begin earlier
                    log[from..].iter().for_each(|record| put(&store, record));
                    store.index.flush().unwrap();
                    durable = log.len();
                    disk = snapshot(&store);
                }
                _ => {}
            }
            for key in (0..61).map(|number| format!("key-{number}")) {
                let expected: Vec<i64> = log.iter().rev().filter(|record| record.2.contains(&key)).map(|record| record.0).collect();
                assert_eq!(store.all(&key), expected, "seed {seed} step {step} {key}");
            }
        }
    }
}

fn put(store: &Store, (physical_offset, time, keys): &(i64, i64, Vec<String>)) {
    for key in keys {
        store.index.put("T", key, *physical_offset, *time).unwrap();
    }
}

fn snapshot(store: &Store) -> BTreeMap<PathBuf, Vec<u8>> {
    store.files().into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Of what was written since the last flush, any page may be lost.
fn cut_power(store: &Store, disk: &BTreeMap<PathBuf, Vec<u8>>, random: &mut fastrand::Rng) {
    for path in store.files() {
        let mut bytes = std::fs::read(&path).unwrap();
        let old = disk.get(&path).cloned().unwrap_or_else(|| vec![0; bytes.len()]);
        for (page, old) in bytes.chunks_mut(512).zip(old.chunks(512)) {
            if random.bool() {
                page.copy_from_slice(old);
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
}
