//! Stops that once lost something, each alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tempfile::TempDir;

use super::disk::{Arrival, Call, Disk, Fault};
use super::invariants;
use crate::runtime::clock::Clock;
use crate::store::config::{FlushDiskType, StoreConfig};
use crate::store::message_store::MessageStore;
use crate::store::testing::draft;

const DEADLINE: Duration = Duration::from_secs(20);
const HOUR_MS: u64 = 3_600_000;
const LOG_BYTES: usize = 16 << 10;

struct Rig {
    _folder: TempDir,
    disk: Arc<Disk>,
    config: StoreConfig,
}

impl Rig {
    fn new(flush_disk_type: FlushDiskType) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        std::fs::create_dir(&root).unwrap();
        let config = StoreConfig {
            commit_log_file_size: LOG_BYTES,
            consume_queue_file_size: 20 * 10,
            index_slots: 20,
            index_entries: 20,
            flush_disk_type,
            flush_interval_ms: HOUR_MS,
            flush_consume_queue_interval_ms: HOUR_MS,
            file_reserved_hours: 0,
            delete_when_hours: Vec::new(),
            disk_free_reserve: Some(0),
            ..StoreConfig::new(&root)
        };
        Self { disk: Disk::new(&root), _folder: folder, config }
    }

    fn open(&self) -> Arc<MessageStore> {
        let fs = self.disk.process();
        let store = invariants::open(&self.config, &fs, &Clock::manual(1_700_000_000_000)).unwrap();
        assert_eq!(invariants::of_open(&store, &self.config, &fs), Vec::<String>::new());
        store
    }

    fn kill(&self, store: Arc<MessageStore>) {
        self.disk.kill();
        drop(store);
    }

    fn cut(&self, store: Arc<MessageStore>, arrival: Arrival, seed: u64) {
        self.kill(store);
        self.disk.cut(&mut Rng::with_seed(seed), arrival);
    }

    fn below(&self, path: &str) -> std::path::PathBuf {
        self.config.root.join(path)
    }
}

fn put(store: &MessageStore, count: usize, len: usize) {
    for number in 0..count {
        store.put(&draft("T", 0, &format!("KEYS\u{1}k{number}\u{2}"), &vec![7; len])).unwrap();
    }
}

fn log_files(root: &Path) -> usize {
    std::fs::read_dir(root.join("commitlog")).unwrap().count()
}

#[test]
fn what_a_killed_process_wrote_is_synced_before_the_checkpoint_speaks_of_it() {
    let rig = Rig::new(FlushDiskType::Sync);
    let store = rig.open();
    put(&store, 50, 1_000);
    invariants::settle(&store).unwrap();
    assert!(store.flush_derived(false), "queues and index are written, not synced");
    rig.kill(store);
    let store = rig.open();
    assert!(store.shutdown(DEADLINE).clean);
    rig.cut(store, Arrival::Nothing, 0);
    let store = rig.open();
    assert_eq!(store.queue_bounds("T", 0), (0, 50));
    assert_eq!(store.query("T", "k3", 10, 0, i64::MAX).records.len(), 1);
}

#[test]
fn what_recovery_found_is_durable_with_the_names_of_its_files() {
    let rig = Rig::new(FlushDiskType::Async);
    let store = rig.open();
    put(&store, 50, 1_000);
    rig.kill(store);
    rig.cut(rig.open(), Arrival::Nothing, 0);
    assert_eq!(rig.open().queue_bounds("T", 0), (0, 50));
}

#[test]
fn files_made_in_a_hurry_never_leave_a_hole() {
    for seed in 0..20 {
        let rig = Rig::new(FlushDiskType::Async);
        let store = rig.open();
        put(&store, 80, 1_000);
        assert!(log_files(&rig.config.root) >= 5);
        rig.cut(store, Arrival::Mixed, seed);
        rig.open();
    }
}

#[test]
fn a_start_may_end_at_any_call() {
    for call in 0.. {
        let rig = Rig::new(FlushDiskType::Async);
        let store = rig.open();
        put(&store, 60, 1_000);
        invariants::settle(&store).unwrap();
        assert!(store.flush_derived(true));
        put(&store, 20, 1_000);
        invariants::settle(&store).unwrap();
        assert!(store.flush_derived(false));
        rig.cut(store, Arrival::Random, 5);
        let fs = rig.disk.process();
        rig.disk.kill_at(call);
        let started = invariants::open(&rig.config, &fs, &Clock::manual(1_700_000_000_000)).is_ok();
        rig.disk.kill();
        rig.open();
        if started {
            break; // all calls of a start have been the last one
        }
    }
}

#[test]
fn a_queue_keeps_its_numbering_when_the_log_forgets_its_records() {
    let rig = Rig::new(FlushDiskType::Sync);
    let store = rig.open();
    put(&store, 10, 1_000);
    for _ in 0..40 {
        store.put(&draft("U", 0, "", &[1; 1_000])).unwrap();
    }
    invariants::settle(&store).unwrap();
    store.delete_expired_files();
    assert!(store.stats().min_physical_offset > 0);
    rig.cut(store, Arrival::Nothing, 0);
    assert_eq!(rig.open().put(&draft("T", 0, "", b"x")).unwrap().queue_offset, 10);
}

#[test]
fn a_file_that_cannot_be_deleted_ends_a_cleaning() {
    let mut rig = Rig::new(FlushDiskType::Sync);
    (rig.config.consume_queue_file_size, rig.config.index_enable) = (20_000, false); // so that only files of the log are removed
    let store = rig.open();
    put(&store, 80, 1_000);
    invariants::settle(&store).unwrap();
    assert!(store.flush_derived(true));
    rig.disk.inject(Fault { call: Call::Remove, nth: 1, no_space: false });
    store.delete_expired_files();
    assert_eq!(store.stats().min_physical_offset, LOG_BYTES as i64);
    rig.kill(store);
    let store = rig.open();
    store.delete_expired_files();
    assert!(store.stats().min_physical_offset > LOG_BYTES as i64);
}

#[test]
fn units_of_lost_records_do_not_come_back_for_those_in_their_places() {
    // a next file that is made just now takes the log to the disk with it: then once more
    let mut attempts = std::iter::repeat_with(|| {
        let rig = Rig::new(FlushDiskType::Async);
        let store = rig.open();
        put(&store, 30, 300);
        invariants::settle(&store).unwrap();
        assert!(store.flush_derived(true), "the queues are on disk, the log is not");
        rig.cut(store, Arrival::Nothing, 0);
        let store = rig.open();
        (store.queue_bounds("T", 0) == (0, 0)).then_some((rig, store))
    });
    let (rig, store) = attempts.by_ref().take(50).flatten().next().expect("a log that is lost");
    for _ in 0..30 {
        store.put(&draft("U", 0, "", &[1; 150])).unwrap();
    }
    rig.kill(store); // which keeps the log
    let store = rig.open();
    rig.cut(store, Arrival::Nothing, 0);
    let store = rig.open();
    assert_eq!((store.queue_bounds("T", 0), store.queue_bounds("U", 0)), ((0, 0), (0, 30)));
}

#[test]
fn a_failed_sync_of_queues_is_made_good_by_the_next_start() {
    let rig = Rig::new(FlushDiskType::Sync);
    let store = rig.open();
    put(&store, 5, 100);
    invariants::settle(&store).unwrap();
    rig.disk.inject(Fault { call: Call::Sync, nth: 0, no_space: false });
    assert!(!store.flush_derived(true));
    assert!(rig.below("sync_failed").exists());
    rig.kill(store);
    let store = rig.open();
    assert!(store.shutdown(DEADLINE).clean);
    rig.cut(store, Arrival::Nothing, 0);
    assert_eq!(rig.open().queue_bounds("T", 0), (0, 5));
}
