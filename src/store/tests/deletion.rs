//! Topics that are deleted, made again, and what a stop at any moment leaves of them.

use super::*;

const HOUR_MS: u64 = 3_600_000;

fn settings(root: &Path, mode: FlushDiskType, flush_queues: bool) -> StoreConfig {
    let interval = if flush_queues { 1 } else { HOUR_MS };
    StoreConfig { flush_consume_queue_interval_ms: interval, ..config(root, mode) }
}

fn fill(store: &MessageStore) {
    for number in 0..20 {
        put(store, "DEL", number % 2, &body(number as usize, 100));
        put(store, "U", 0, &body(number as usize, 100));
    }
}

fn found_by_key(store: &MessageStore, topic: &str) -> usize {
    store.query(topic, "k", 64, 0, i64::MAX).records.len()
}

/// The folder as the next start finds it.
fn end(store: Arc<MessageStore>, folder: TempDir, clean: bool) -> TempDir {
    if clean {
        assert!(store.shutdown(DEADLINE).clean);
        return folder;
    }
    copy(folder.path())
}

fn all_variants(test: impl Fn(FlushDiskType, bool, bool)) {
    for mode in BOTH {
        for flush_queues in [false, true] {
            for clean in [false, true] {
                test(mode, flush_queues, clean);
            }
        }
    }
}

#[test]
fn what_is_put_after_a_deletion_survives_every_kind_of_stop() {
    all_variants(|mode, flush_queues, clean| {
        let what = format!("{mode:?} flush_queues={flush_queues} clean={clean}");
        let folder = tempfile::tempdir().unwrap();
        let store = open_with(settings(folder.path(), mode, flush_queues), RealFs::shared()).unwrap();
        fill(&store);
        if flush_queues {
            until("units on disk", || folder.path().join("consumequeue/DEL/1").exists());
        }
        store.delete_topic("DEL").unwrap();
        assert_eq!(put(&store, "DEL", 0, b"newA").queue_offset, 0, "{what}");
        if flush_queues {
            until("units on disk again", || folder.path().join("consumequeue/DEL/0").exists());
        }
        assert_eq!(put(&store, "DEL", 1, b"newB").queue_offset, 0, "{what}");
        settled(&store);
        let mut folder = end(store, folder, clean);
        for round in 1..4 {
            let store = open_with(settings(folder.path(), mode, flush_queues), RealFs::shared()).unwrap();
            settled(&store);
            assert_eq!(store.queue_bounds("DEL", 0), (0, 1), "{what} round {round}");
            assert_eq!(bodies(&store, "DEL", 0), [b"newA".to_vec()], "{what} round {round}");
            let expected: Vec<_> = std::iter::repeat_n(b"newB".to_vec(), round).collect();
            assert_eq!(bodies(&store, "DEL", 1), expected, "{what} round {round}");
            assert_eq!(bodies(&store, "U", 0).len(), 20, "{what}");
            assert_eq!((found_by_key(&store, "DEL"), found_by_key(&store, "U")), (round + 1, 20), "{what}");
            assert_eq!(put(&store, "DEL", 1, b"newB").queue_offset, round as i64, "{what}");
            settled(&store);
            folder = end(store, folder, clean);
        }
    });
}

#[test]
fn a_deleted_topic_stays_deleted_and_begins_anew_after_a_stop() {
    all_variants(|mode, flush_queues, clean| {
        let what = format!("{mode:?} flush_queues={flush_queues} clean={clean}");
        let folder = tempfile::tempdir().unwrap();
        let store = open_with(settings(folder.path(), mode, flush_queues), RealFs::shared()).unwrap();
        fill(&store);
        put(&store, "DEL", 0, b"the last record of the log");
        settled(&store);
        store.delete_topic("DEL").unwrap();
        let folder = end(store, folder, clean);
        let store = open_with(settings(folder.path(), mode, flush_queues), RealFs::shared()).unwrap();
        settled(&store);
        assert!(!store.has_queue("DEL", 0) && !store.has_queue("DEL", 1), "{what}");
        assert_eq!((found_by_key(&store, "DEL"), found_by_key(&store, "U")), (0, 20), "{what}");
        assert_eq!(put(&store, "DEL", 0, b"new").queue_offset, 0, "{what}");
        settled(&store);
        assert_eq!(bodies(&store, "DEL", 0), [b"new".to_vec()], "{what}");
        let folder = end(store, folder, clean);
        let store = open_with(settings(folder.path(), mode, flush_queues), RealFs::shared()).unwrap();
        settled(&store);
        assert_eq!(store.queue_bounds("DEL", 0), (0, 1), "{what}");
        assert_eq!(bodies(&store, "DEL", 0), [b"new".to_vec()], "{what}");
    });
}

#[test]
fn the_old_folder_that_a_crash_brings_back_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    fill(&store);
    assert!(store.shutdown(DEADLINE).clean);
    let before = copy(folder.path());
    let store = open(folder.path(), FlushDiskType::Sync);
    store.delete_topic("DEL").unwrap();
    put(&store, "DEL", 0, b"new");
    let crashed = copy(folder.path());
    let queues = crashed.path().join("consumequeue/DEL");
    let _ = std::fs::remove_dir_all(&queues);
    std::fs::create_dir_all(&queues).unwrap();
    copy_into(&before.path().join("consumequeue/DEL"), &queues);
    let store = open(crashed.path(), FlushDiskType::Sync);
    settled(&store);
    assert_eq!(bodies(&store, "DEL", 0), [b"new".to_vec()]);
    assert!(!store.has_queue("DEL", 1));
}

#[test]
fn a_crash_between_mark_and_removal_keeps_what_was_put_behind_the_mark() {
    for clean in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), FlushDiskType::Sync);
        fill(&store);
        let mark = put(&store, "DEL", 0, b"behind").physical_offset;
        settled(&store);
        let folder = end(store, folder, clean);
        std::fs::create_dir_all(folder.path().join("config")).unwrap();
        std::fs::write(folder.path().join("config/deletedTopics.json"), format!(r#"{{"deletedTopics":{{"DEL":{mark}}}}}"#)).unwrap();
        for number in 1..4 {
            let store = open(folder.path(), FlushDiskType::Sync);
            settled(&store);
            assert_eq!(store.queue_bounds("DEL", 0), (10, 10 + number), "clean={clean}");
            assert_eq!(bodies(&store, "DEL", 0)[0], b"behind".to_vec());
            assert!(!store.has_queue("DEL", 1));
            assert_eq!(put(&store, "DEL", 0, b"more").queue_offset, 10 + number);
        }
    }
}

#[test]
fn what_was_staged_before_a_deletion_is_numbered_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    fill(&store);
    let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::new());
    for body in [b"first", b"later"] {
        store.stage(&mut batch, &draft("DEL", 0, "", body)).unwrap();
    }
    store.delete_topic("DEL").unwrap();
    store.append(&mut batch, &mut outcomes);
    let offsets: Vec<i64> = outcomes.iter().map(|outcome| outcome.as_ref().unwrap().queue_offset).collect();
    assert_eq!(offsets, [0, 1]);
    assert_eq!(put(&store, "DEL", 0, b"third").queue_offset, 2);
    settled(&store);
    assert_eq!(bodies(&store, "DEL", 0).len(), 3);
    let crashed = copy(folder.path());
    let store = open(crashed.path(), FlushDiskType::Sync);
    assert_eq!(bodies(&store, "DEL", 0), [b"first", b"later", b"third"].map(|body| body.to_vec()));
}

#[test]
fn deletions_among_many_appends_leave_dense_queues() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let store = open_with(settings(folder.path(), mode, true), RealFs::shared()).unwrap();
        let appended = Arc::new(AtomicUsize::new(0));
        let writer = {
            let (store, appended) = (Arc::clone(&store), Arc::clone(&appended));
            Thread::spawn("", "writer", move || {
                for number in 0..3_000 {
                    let placed = put(&store, "DEL", 0, &body(number, 100));
                    appended.store(number + 1, Ordering::SeqCst);
                    assert!(placed.queue_offset <= number as i64);
                }
            })
        };
        let writer = writer.unwrap();
        for round in 1..=10 {
            until("more appended", || appended.load(Ordering::SeqCst) >= round * 200);
            store.delete_topic("DEL").unwrap();
        }
        writer.join();
        assert_eq!(appended.load(Ordering::SeqCst), 3_000);
        settled(&store);
        let found = bodies(&store, "DEL", 0);
        let last: Vec<_> = (3_000 - found.len()..3_000).map(|number| body(number, 100)).collect();
        assert_eq!((store.queue_bounds("DEL", 0).0, &found), (0, &last));
        let crashed = copy(folder.path());
        let store = open(crashed.path(), mode);
        settled(&store);
        assert_eq!((store.queue_bounds("DEL", 0).0, bodies(&store, "DEL", 0)), (0, last));
    }
}

#[test]
fn a_mark_that_cannot_be_written_deletes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    let store = open_with(config(folder.path(), FlushDiskType::Sync), fs).unwrap();
    fill(&store);
    settled(&store);
    trouble.full.store(true, Ordering::Relaxed);
    let text = store.delete_topic("DEL").unwrap_err().to_string();
    assert!(text.contains("config"), "{text}");
    assert_eq!(store.queue_bounds("DEL", 0), (0, 10));
    trouble.full.store(false, Ordering::Relaxed);
    store.delete_topic("DEL").unwrap();
    assert!(!store.has_queue("DEL", 0));
}

fn marks(root: &Path) -> String {
    std::fs::read_to_string(root.join("config/deletedTopics.json")).unwrap()
}

#[test]
fn marks_go_with_the_records_they_hide() {
    let folder = tempfile::tempdir().unwrap();
    let reserved = StoreConfig { file_reserved_hours: 0, delete_when_hours: Vec::new(), ..config(folder.path(), FlushDiskType::Sync) };
    let store = open_with(reserved, RealFs::shared()).unwrap();
    fill(&store);
    store.delete_topic("DEL").unwrap();
    for number in 0..300 {
        put(&store, "U", 0, &body(number, 500));
    }
    store.delete_topic("U").unwrap();
    settled(&store);
    assert!(marks(folder.path()).contains("DEL"));
    store.delete_expired_files();
    assert!(!marks(folder.path()).contains("DEL") && marks(folder.path()).contains('U'), "{}", marks(folder.path()));
}

#[test]
fn a_mark_behind_the_log_hides_nothing_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("config")).unwrap();
    std::fs::write(folder.path().join("config/deletedTopics.json"), r#"{"deletedTopics":{"DEL":1099511627776}}"#).unwrap();
    for number in 0..3 {
        let store = open(folder.path(), FlushDiskType::Sync);
        assert_eq!(put(&store, "DEL", 0, b"x").queue_offset, number);
    }
    std::fs::write(folder.path().join("config/deletedTopics.json"), "{").unwrap();
    let text = open_with(config(folder.path(), FlushDiskType::Sync), RealFs::shared()).err().unwrap().to_string();
    assert!(text.contains("config/deletedTopics.json"), "{text}");
}
