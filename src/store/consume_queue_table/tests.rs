use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::store::testing::{TestFs, Trouble};

const UNITS_PER_FILE: i64 = 50;

struct Store {
    folder: TempDir,
    config: StoreConfig,
    trouble: Arc<Trouble>,
    table: ConsumeQueueTable,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig { consume_queue_file_size: UNITS_PER_FILE as usize * 20, ..StoreConfig::new(folder.path()) };
        let fs = TestFs::default();
        let trouble = Arc::clone(&fs.trouble);
        let table = ConsumeQueueTable::load(&config, Arc::new(fs)).unwrap();
        Self { folder, config, trouble, table }
    }

    fn try_reopen(&mut self) -> Result<(), StoreError> {
        let fs = TestFs { real: crate::store::RealFs, trouble: Arc::clone(&self.trouble) };
        self.table = ConsumeQueueTable::load(&self.config, Arc::new(fs))?;
        self.table.repair_files()
    }

    fn reopen(&mut self) {
        self.try_reopen().unwrap();
    }

    fn queue(&self) -> Arc<ConsumeQueue> {
        self.table.get_or_create("T", 0)
    }

    /// Puts a unit of 100 bytes at physical offset `offset * 100`.
    fn put(&self, offset: i64) {
        self.queue().put(offset, unit(offset)).unwrap();
    }

    fn file(&self, first: i64) -> std::path::PathBuf {
        self.folder.path().join(format!("consumequeue/T/0/{:020}", first * 20))
    }
}

fn unit(offset: i64) -> CqUnit {
    CqUnit { physical_offset: offset * 100, size: 100, tags_code: -offset }
}

fn units(queue: &ConsumeQueue, from: i64, max: usize) -> Vec<CqUnit> {
    let mut units = Vec::new();
    queue.read(from, max, &mut units).unwrap();
    units
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_in_memory_and_on_disk_reads_the_same() {
    let mut store = Store::new();
    for offset in 0..120 {
        store.put(offset);
    }
    let all: Vec<CqUnit> = (0..120).map(unit).collect();
    assert_eq!(units(&store.queue(), 0, 1000), all);
    assert_eq!(store.table.dirty_bytes(), 120 * 20);
    store.trouble.writes.store(0, Ordering::Relaxed);
    store.table.flush(true).unwrap();
    assert_eq!(store.trouble.writes.load(Ordering::Relaxed), 3, "one write per file");
    assert_eq!(store.table.dirty_bytes(), 0);
    assert_eq!(units(&store.queue(), 0, 1000), all);
    store.put(120);
    assert_eq!(units(&store.queue(), 118, 10), [unit(118), unit(119), unit(120)]);
    assert_eq!(units(&store.queue(), 120, 10), [unit(120)]);
    assert_eq!(units(&store.queue(), 121, 10), []);
    assert_eq!(store.queue().unit_at(49).unwrap(), Some(unit(49)));
    assert_eq!(store.queue().unit_at(120).unwrap(), Some(unit(120)));
    assert_eq!(store.queue().unit_at(121).unwrap(), None);
    store.table.flush(false).unwrap();
    store.reopen();
    let queue = store.table.get("T", 0).unwrap();
    assert_eq!(units(&queue, 0, 1000).len(), 121);
    assert_eq!((queue.min_offset(), queue.max_offset(), queue.max_physical_offset()), (0, 121, 12_100));
    assert!(store.table.get("T", 1).is_none() && store.table.get("U", 0).is_none());
    assert_eq!(store.table.max_physical_offset(), 12_100);
    store.table.settle(0, &[]);
    assert_eq!(queue.next_append_offset(), 121);
}

#[test]
fn a_file_is_apaches_and_one_message_costs_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig::new(folder.path());
    let table = ConsumeQueueTable::load(&config, Arc::new(TestFs::default())).unwrap();
    let unit = CqUnit { physical_offset: 0x0102, size: 3, tags_code: -1 };
    table.get_or_create("%RETRY%g|1", 7).put(0, unit).unwrap();
    assert!(!folder.path().join("consumequeue").exists(), "nothing before the first flush");
    table.flush(true).unwrap();
    let path = folder.path().join("consumequeue/%RETRY%g|1/7/00000000000000000000");
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 6_000_000);
    assert_eq!(bytes[..20], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 255, 255, 255, 255, 255, 255, 255, 255]);
    assert!(bytes[20..].iter().all(|byte| *byte == 0));
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 <= 8192);
}

#[test]
fn a_queue_at_rest_is_small() {
    assert!(size_of::<ConsumeQueue>() <= 200, "{} bytes", size_of::<ConsumeQueue>());
}

#[test]
fn repeated_puts_change_nothing() {
    let mut store = Store::new();
    for offset in 0..60 {
        store.put(offset);
    }
    store.table.flush(false).unwrap();
    store.reopen();
    for offset in 0..60 {
        store.put(offset);
    }
    assert_eq!(store.table.dirty_bytes(), 0);
    // Another record that claims a taken offset: the first one keeps it.
    store.queue().put(3, CqUnit { physical_offset: 9_999_999, size: 100, tags_code: 0 }).unwrap();
    assert_eq!(units(&store.queue(), 0, 100), (0..60).map(unit).collect::<Vec<_>>());
    assert_eq!(store.queue().max_physical_offset(), 6_000);
}

#[test]
fn impossible_offsets_and_units_are_refused() {
    let store = Store::new();
    store.put(0);
    for offset in [-1, i64::MIN, i64::MAX, i64::MAX / 20] {
        let unit = CqUnit { physical_offset: 500, size: 100, tags_code: 0 };
        assert!(store.queue().put(offset, unit).is_err(), "offset {offset}");
    }
    for (physical_offset, size) in [(-5, 100), (100, 0), (100, -7)] {
        assert!(store.queue().put(1, CqUnit { physical_offset, size, tags_code: 0 }).is_err());
    }
    let refusal = store.queue().put(1 << 40, unit(1 << 40)).unwrap_err().to_string();
    assert!(refusal.contains("1099511627776") && refusal.contains("10000000"), "{refusal}");
    assert_eq!(store.queue().max_offset(), 1);
    store.put(1);
    assert_eq!(store.queue().max_offset(), 2);
}

#[test]
fn gaps_hold_fillers_and_never_shift() {
    let mut store = Store::new();
    store.put(0);
    store.put(3);
    let expected = [unit(0), CqUnit::FILLER, CqUnit::FILLER, unit(3)];
    assert_eq!(units(&store.queue(), 0, 10), expected);
    store.table.flush(false).unwrap();
    store.reopen();
    assert_eq!(units(&store.queue(), 0, 10), expected);
    assert_eq!(store.queue().max_physical_offset(), 400);
    store.put(10_000); // more fillers than may lie in memory
    assert_eq!(store.queue().max_offset(), 10_001);
    assert!(store.table.dirty_bytes() < 200_000);
    assert_eq!(units(&store.queue(), 9_998, 10), [CqUnit::FILLER, CqUnit::FILLER, unit(10_000)]);
    store.table.flush(false).unwrap();
    store.reopen();
    assert_eq!(store.queue().max_physical_offset(), 1_000_100);
    assert_eq!(store.queue().next_present(4, 10_001).unwrap(), Some((10_000, unit(10_000))));
}

#[test]
fn a_new_queue_may_begin_anywhere() {
    let mut store = Store::new();
    store.put(173);
    let queue = store.queue();
    assert_eq!((queue.min_offset(), queue.max_offset()), (173, 174));
    store.table.flush(true).unwrap();
    assert_eq!(files(&store.folder.path().join("consumequeue/T/0")), ["00000000000000003000"]); // unit 150
    store.reopen();
    store.table.settle(0, &[]);
    let queue = store.queue();
    assert_eq!((queue.min_offset(), queue.max_offset(), queue.max_physical_offset()), (173, 174, 17_400));
    assert_eq!(units(&queue, 172, 10), [CqUnit::FILLER, unit(173)]);
}

#[test]
fn fillers_alone_keep_the_numbering_and_count_for_nothing() {
    let mut store = Store::new();
    store.put(173);
    store.table.flush(true).unwrap();
    store.table.truncate_behind(17_300).unwrap();
    for _ in 0..2 {
        store.table.settle(0, &[]);
        let queue = store.queue();
        assert_eq!((queue.min_offset(), queue.max_offset(), queue.max_physical_offset()), (173, 173, -1));
        assert_eq!(queue.next_append_offset(), 173);
        assert_eq!(store.table.max_physical_offset(), -1);
        store.reopen();
    }
    store.put(173);
    assert_eq!(units(&store.queue(), 173, 1), [unit(173)]);
}

#[test]
fn a_full_disk_delays_a_flush_and_heals() {
    let mut store = Store::new();
    for offset in 0..70 {
        store.put(offset);
    }
    store.table.flush(true).unwrap();
    for offset in 70..130 {
        store.put(offset);
    }
    store.trouble.full.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let error = store.table.flush(true).unwrap_err().to_string();
        assert!(error.contains("consumequeue/T/0"), "{error}");
        assert_eq!(units(&store.queue(), 0, 200), (0..130).map(unit).collect::<Vec<_>>());
    }
    store.put(130);
    store.trouble.full.store(false, Ordering::Relaxed);
    store.table.flush(true).unwrap();
    assert_eq!(store.table.dirty_bytes(), 0);
    store.reopen();
    assert_eq!(units(&store.queue(), 0, 200), (0..131).map(unit).collect::<Vec<_>>());
}

#[test]
fn a_failed_sync_is_final() {
    let store = Store::new();
    store.put(0);
    store.trouble.sync_fails.store(true, Ordering::Relaxed);
    assert!(store.table.flush(true).unwrap_err().to_string().contains("EIO"));
    store.trouble.sync_fails.store(false, Ordering::Relaxed);
    store.table.flush(false).unwrap();
    assert!(store.table.flush(true).unwrap_err().to_string().contains("final"));
}

#[test]
fn cleaning_follows_the_log() {
    let mut store = Store::new();
    for offset in 0..175 {
        store.put(offset);
    }
    store.table.flush(false).unwrap();
    store.put(175);
    let folder = store.folder.path().join("consumequeue/T/0");
    store.table.clean(0);
    assert_eq!((store.queue().min_offset(), files(&folder).len()), (0, 4));
    store.table.clean(6_050); // in the middle of record 60
    assert_eq!(store.queue().min_offset(), 61);
    assert_eq!(files(&folder).len(), 3);
    assert_eq!(units(&store.queue(), 61, 1), [unit(61)]);
    assert!(store.queue().read(10, 1, &mut Vec::new()).is_err(), "the file is gone");
    store.table.flush(false).unwrap();
    store.reopen();
    store.table.settle(6_050, &[]);
    assert_eq!((store.queue().min_offset(), store.queue().max_offset()), (61, 176));
    store.table.clean(1_000_000); // everything expired: the numbering stays
    let queue = store.queue();
    assert_eq!((queue.min_offset(), queue.max_offset(), files(&folder).len()), (176, 176, 1));
    store.reopen();
    store.table.settle(1_000_000, &[]);
    assert_eq!((store.queue().min_offset(), store.queue().next_append_offset()), (176, 176));
}

#[test]
fn min_offset_is_found_between_fillers() {
    let store = Store::new();
    let present: Vec<i64> = (0..400).filter(|offset| offset % 7 == 3 || (100..140).contains(offset)).collect();
    for offset in &present {
        store.put(*offset);
    }
    store.table.flush(false).unwrap();
    for min_physical in (0..40_000).step_by(130) {
        store.queue().correct_min_offset(min_physical).unwrap();
        let expected = present.iter().find(|offset| **offset * 100 >= min_physical).copied().unwrap_or(store.queue().max_offset());
        assert_eq!(store.queue().min_offset(), expected, "min physical offset {min_physical}");
    }
}

#[test]
fn failures_of_a_load_name_the_files() {
    for concurrently in [false, true] {
        let mut store = Store::new();
        store.config.recover_concurrently = concurrently;
        for queue_id in 0..40 {
            store.table.get_or_create("T", queue_id).put(0, unit(0)).unwrap();
        }
        store.table.flush(false).unwrap();
        store.reopen();
        assert_eq!(store.table.all().len(), 40);
        for queue_id in [3, 5] {
            let path = store.folder.path().join(format!("consumequeue/T/{queue_id}/00000000000000000000"));
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(777).unwrap();
        }
        let error = store.try_reopen().unwrap_err().to_string();
        for part in ["T/3/0000", "T/5/0000", "777", "1000", "mappedFileSizeConsumeQueue"] {
            assert!(error.contains(part), "{part} is missing in {error}");
        }
    }
}

#[test]
fn what_is_no_queue_is_passed_over() {
    let mut store = Store::new();
    store.put(0);
    store.table.flush(false).unwrap();
    let root = store.folder.path().join("consumequeue");
    for folder in ["T/abc", "T/01", "T/-1", "T/1"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["stray", "T/2", "T/0/.DS_Store", "T/0/0000"] {
        std::fs::write(root.join(file), b"x").unwrap();
    }
    std::fs::write(store.file(UNITS_PER_FILE), b"").unwrap(); // made, not begun
    store.reopen();
    let mut ids: Vec<i32> = store.table.all().iter().map(|queue| queue.queue_id()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1]);
    assert!(!store.file(UNITS_PER_FILE).exists());
    assert_eq!(store.queue().max_offset(), 1);
    assert_eq!(store.table.get("T", 1).unwrap().max_offset(), 0);
    assert_eq!(store.table.damaged_from(), None);
}

#[test]
fn an_all_zero_file_is_empty() {
    let mut store = Store::new();
    for offset in 0..50 {
        store.put(offset);
    }
    store.table.flush(false).unwrap();
    std::fs::File::create(store.file(50)).unwrap().set_len(1000).unwrap();
    store.reopen();
    assert_eq!((store.queue().max_offset(), store.queue().max_physical_offset()), (50, 5_000));
    assert!(!store.file(50).exists());
    assert_eq!(store.table.damaged_from(), None);
    store.put(50);
    store.table.flush(false).unwrap();
    store.reopen();
    assert_eq!(store.queue().max_offset(), 51);
}

#[test]
fn a_hole_ends_the_queue_and_nothing_stale_comes_back() {
    for damage in ["zero unit", "missing file"] {
        let mut store = Store::new();
        for offset in 0..140 {
            store.put(offset);
        }
        store.table.flush(false).unwrap();
        if damage == "zero unit" {
            use std::os::unix::fs::FileExt;
            std::fs::OpenOptions::new().write(true).open(store.file(50)).unwrap().write_all_at(&[0; 20], 200).unwrap();
        } else {
            std::fs::remove_file(store.file(50)).unwrap();
        }
        let end = if damage == "zero unit" { 60 } else { 50 };
        store.reopen();
        assert_eq!(store.table.damaged_from(), Some(end * 100), "{damage}");
        assert_eq!(units(&store.queue(), 0, 1000), (0..end).map(unit).collect::<Vec<_>>());
        store.reopen();
        assert_eq!(store.table.damaged_from(), None, "the second start finds order");
        store.put(end);
        store.table.flush(false).unwrap();
        store.reopen();
        assert_eq!(store.queue().max_offset(), end + 1, "{damage}: a stale unit came back");
    }
}

#[test]
fn a_torn_last_unit_is_mended_by_putting_it_again() {
    use std::os::unix::fs::FileExt;
    for torn in 1..20 {
        let mut store = Store::new();
        for offset in 0..10 {
            store.queue().put(offset, CqUnit { tags_code: 0x0102_0304_0506_0708, ..unit(offset) }).unwrap();
        }
        store.table.flush(false).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(store.file(0)).unwrap();
        file.write_all_at(&vec![0; 20 - torn], 180 + torn as u64).unwrap();
        store.reopen();
        for offset in 0..11 {
            store.queue().put(offset, CqUnit { tags_code: 0x0102_0304_0506_0708, ..unit(offset) }).unwrap();
        }
        store.table.flush(false).unwrap();
        store.reopen();
        let found = units(&store.queue(), 0, 100);
        assert_eq!(found.len(), 11, "torn after {torn} bytes");
        for (offset, found) in found.iter().enumerate() {
            assert_eq!(*found, CqUnit { tags_code: 0x0102_0304_0506_0708, ..unit(offset as i64) }, "torn after {torn} bytes");
        }
    }
}

#[test]
fn a_deleted_topic_is_gone_and_may_come_back() {
    let mut store = Store::new();
    store.put(0);
    store.table.get_or_create("T", 1).put(0, unit(0)).unwrap();
    store.table.get_or_create("U", 0).put(0, unit(0)).unwrap();
    store.table.flush(false).unwrap();
    let old = store.queue();
    store.put(1);
    assert!(store.table.delete_topics(&["T"], || Ok(Some(()))).unwrap());
    assert!(store.table.get("T", 0).is_none() && store.table.get("U", 0).is_some());
    assert!(!store.folder.path().join("consumequeue/T").exists());
    old.put(2, unit(2)).unwrap(); // someone still held it
    store.table.flush(true).unwrap();
    assert!(!store.folder.path().join("consumequeue/T").exists());
    store.put(5);
    store.table.flush(true).unwrap();
    store.reopen();
    assert_eq!(units(&store.queue(), 5, 10), [unit(5)]);
    assert!(store.table.delete_topics(&[".."], || Ok(Some(()))).unwrap());
    assert!(store.table.delete_topics(&[""], || Ok(Some(()))).unwrap());
    assert!(store.folder.path().join("consumequeue/U").exists());
}

/// One queue against a list, over random operations.
#[test]
fn model() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut store = Store::new();
        let mut model: Vec<CqUnit> = Vec::new();
        let (mut first, mut flushed, mut physical) = (0, 0, 0);
        for step in 0..150 {
            let end = first + model.len() as i64;
            match random.u32(0..100) {
                0..60 => {
                    let gap = if random.u32(0..8) == 0 { random.i64(0..120) } else { 0 };
                    let offset = end + gap;
                    physical += random.i64(0..3) * 100;
                    let unit = CqUnit { physical_offset: physical, size: 100, tags_code: random.i64(..) };
                    physical += 100;
                    store.queue().put(offset, unit).unwrap();
                    if model.is_empty() {
                        first = offset - offset % UNITS_PER_FILE;
                        flushed = 0;
                    }
                    model.resize((offset - first) as usize, CqUnit::FILLER);
                    model.push(unit);
                }
                60..70 => {
                    let Some(place) = model.len().checked_sub(1).map(|last| random.usize(0..=last)) else { continue };
                    if model[place].is_present() {
                        store.queue().put(first + place as i64, model[place]).unwrap();
                    }
                }
                70..82 => {
                    store.table.flush(random.u32(0..10) == 0).unwrap();
                    flushed = model.len();
                }
                82..90 => {
                    let cut = random.i64(0..physical + 100);
                    let cut = if random.bool() { cut } else { physical - random.i64(0..500).min(physical) };
                    store.table.truncate_behind(cut).unwrap();
                    let keep = match model.iter().rposition(|unit| unit.is_present() && unit.end() <= cut) {
                        _ if model.iter().all(|unit| !unit.is_present() || unit.end() <= cut) => model.len(),
                        Some(place) => place + 1,
                        None => model.iter().position(CqUnit::is_present).unwrap_or(model.len()),
                    };
                    model.truncate(keep);
                    flushed = flushed.min(keep);
                }
                _ => {
                    if random.bool() {
                        store.table.flush(false).unwrap();
                        flushed = model.len();
                    }
                    store.reopen();
                    model.truncate(flushed);
                    assert_eq!(store.table.damaged_from(), None, "seed {seed} step {step}");
                    if model.is_empty() {
                        first = store.queue().max_offset();
                    }
                }
            }
            let queue = store.queue();
            let context = format!("seed {seed} step {step} first {first} flushed {flushed}");
            if !model.is_empty() {
                assert_eq!(queue.max_offset(), first + model.len() as i64, "{context}");
            }
            let max_physical = model.iter().rfind(|unit| unit.is_present()).map_or(-1, CqUnit::end);
            assert_eq!(queue.max_physical_offset(), max_physical, "{context}");
            let from = first + random.i64(0..=model.len() as i64);
            let max = random.usize(0..300);
            let expected: Vec<CqUnit> = model.iter().skip((from - first) as usize).take(max).copied().collect();
            assert_eq!(units(&queue, from, max), expected, "{context} from {from} max {max}");
            if random.u32(0..10) == 0 && !model.is_empty() {
                store.table.settle(0, &[]);
                let present = model.iter().position(CqUnit::is_present).unwrap_or(model.len());
                assert_eq!(queue.min_offset(), first + present as i64, "{context}");
            }
        }
    }
}

#[test]
fn readers_never_see_half_of_anything() {
    let store = Store::new();
    let table = Arc::new(store.table);
    let queue = table.get_or_create("T", 0);
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let good_reads = Arc::new(AtomicUsize::new(0));
    let readers: Vec<Thread> = (0..2)
        .map(|number| {
            let (queue, done, good_reads) = (Arc::clone(&queue), Arc::clone(&done), Arc::clone(&good_reads));
            Thread::spawn("", &format!("reader-{number}"), move || {
                let mut random = fastrand::Rng::with_seed(number);
                let mut reads = 0;
                while reads < 100 || !done.load(Ordering::Relaxed) {
                    let max = queue.max_offset();
                    let from = random.i64(0..=max);
                    let found = units(&queue, from, 500);
                    assert!(found.len() as i64 >= (max - from).min(500));
                    assert!(found.iter().zip(from..).all(|(found, offset)| *found == unit(offset)));
                    reads += 1;
                }
                good_reads.fetch_add(1, Ordering::Relaxed); // a reader that panicked does not come here
            })
            .unwrap()
        })
        .collect();
    let flusher = {
        let (table, done) = (Arc::clone(&table), Arc::clone(&done));
        Thread::spawn("", "flusher", move || {
            while !done.load(Ordering::Relaxed) {
                table.flush(false).unwrap();
            }
        })
        .unwrap()
    };
    for offset in 0..30_000 {
        queue.put(offset, unit(offset)).unwrap();
    }
    done.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(Thread::join);
    flusher.join();
    assert_eq!(good_reads.load(Ordering::Relaxed), 2);
    table.flush(false).unwrap();
    assert_eq!(units(&queue, 0, 40_000).len(), 30_000);
}

#[test]
fn ten_thousand_queues() {
    let mut store = Store::new();
    store.config.consume_queue_file_size = 6_000_000;
    store.config.recover_concurrently = true;
    store.config.recover_threads = 4;
    store.reopen();
    for round in 0..2 {
        for topic in 0..100 {
            for queue_id in 0..100 {
                store.table.get_or_create(&format!("topic-{topic}"), queue_id).put(round, unit(round)).unwrap();
            }
        }
        store.table.flush(false).unwrap();
        assert!(store.trouble.open_files.load(Ordering::Relaxed) <= FileCache::capacity_of_process());
    }
    store.reopen();
    assert!(store.trouble.open_files.load(Ordering::Relaxed) == 0, "recovery keeps no file open");
    assert_eq!(store.table.all().len(), 10_000);
    for topic in 0..100 {
        let queue = store.table.get(&format!("topic-{topic}"), topic).unwrap();
        assert_eq!(units(&queue, 0, 10), [unit(0), unit(1)]);
    }
    assert_eq!(store.table.max_physical_offset(), 200);
}
