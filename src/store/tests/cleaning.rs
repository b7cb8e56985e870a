//! Which files go, when and why; what is told of it; what pulls of deleted messages get.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::*;
use crate::store::cleaning::{DeletedMessages, DeletionListener};
use crate::store::disk::{DiskGuard, Pressure};
use crate::store::testing::Trouble;

const HOUR_MS: i64 = 3_600_000;
/// What a file of the log brings back in these tests.
const FREED: u64 = 100;

/// A store whose disk and clock are the test's.
struct Scene {
    store: Arc<MessageStore>,
    trouble: Arc<Trouble>,
    clock: Clock,
    folder: TempDir,
}

impl Scene {
    /// 500 messages in several files; nothing is deleted by itself, but for what `adjust` says.
    fn new(adjust: impl FnOnce(&mut StoreConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = StoreConfig {
            delete_when_hours: Vec::new(),
            delete_files_interval_ms: 0,
            clean_interval_ms: 3_600_000,
            flush_consume_queue_interval_ms: 3_600_000,
            ..config(folder.path(), FlushDiskType::Sync)
        };
        adjust(&mut config);
        let fs = Arc::new(TestFs::default());
        let trouble = Arc::clone(&fs.trouble);
        let clock = Clock::manual(Clock::System.now_ms());
        let store = MessageStore::open(config, fs, clock.clone()).unwrap();
        for number in 0..500 {
            put(&store, "T", (number % 2) as i32, &body(number, 500));
        }
        settled(&store);
        clock.advance(1_000); // behind the last write of a file
        Self { store, trouble, clock, folder }
    }

    /// What the `clean` thread does in each interval.
    fn clean(&self) -> usize {
        self.store.clean_round()
    }

    fn min(&self) -> i64 {
        self.store.stats().min_physical_offset
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("commitlog")).unwrap().count()
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<DeletedMessages>>);

impl DeletionListener for Told {
    fn deleted(&self, messages: &[DeletedMessages]) {
        self.0.lock().extend_from_slice(messages);
    }
}

fn hour(clock: &Clock) -> u8 {
    let now = jiff::Timestamp::from_millisecond(clock.now_ms()).unwrap();
    now.to_zoned(jiff::tz::TimeZone::system()).hour() as u8
}

#[test]
fn files_expire_by_age_and_go_at_their_hour_only() {
    let scene = Scene::new(|config| {
        config.file_reserved_hours = 2;
        let now = Clock::System;
        config.delete_when_hours = (0..24).filter(|other| *other != hour(&now) && *other != (hour(&now) + 1) % 24).collect();
    });
    assert_eq!(scene.clean(), 0);
    scene.clock.advance(HOUR_MS - 2_000);
    assert_eq!((scene.clean(), scene.min()), (0, 0), "neither the age nor the hour");
    scene.clock.advance(24 * HOUR_MS);
    assert_eq!((scene.clean(), scene.min()), (0, 0), "old, but not the hour");
    scene.store.delete_expired_files();
    assert!(scene.min() > 0, "asked for, whatever the hour");
}

#[test]
fn a_round_deletes_no_more_than_its_limit() {
    let scene = Scene::new(|config| {
        config.file_reserved_hours = 0;
        config.delete_when_hours = (0..24).collect();
        config.delete_file_batch_max = 2;
    });
    assert_eq!((scene.clean(), scene.min()), (2, 2 * FILE_SIZE as i64));
    assert_eq!((scene.clean(), scene.min()), (2, 4 * FILE_SIZE as i64));
    while scene.clean() > 0 {}
    let last = scene.store.stats().max_physical_offset / FILE_SIZE as i64 * FILE_SIZE as i64;
    assert_eq!(scene.min(), last, "never the last one");
}

#[test]
fn a_short_disk_costs_as_many_unexpired_files_as_it_takes() {
    let scene = Scene::new(|config| config.disk_free_reserve = Some(1_000));
    scene.trouble.free_by_removal.store(FREED, Ordering::Relaxed);
    scene.trouble.free.store(1_000 + (2 << 20), Ordering::Relaxed);
    assert_eq!(scene.clean(), 0, "room enough");
    scene.trouble.free.store(1_000 - 2 * FREED, Ordering::Relaxed);
    assert_eq!((scene.clean(), scene.min()), (2, 2 * FILE_SIZE as i64));
}

#[test]
fn unexpired_files_stay_when_they_may_not_be_forced_out() {
    let scene = Scene::new(|config| {
        config.disk_free_reserve = Some(1_000);
        config.clean_file_forcibly = false;
        config.file_reserved_hours = 2;
    });
    scene.trouble.free.store(1, Ordering::Relaxed);
    assert_eq!((scene.clean(), scene.min()), (0, 0));
    scene.clock.advance(2 * HOUR_MS);
    assert!(scene.clean() > 0, "expired ones go at once when the disk is short");
}

#[test]
fn messages_that_went_are_told_and_pulls_of_them_go_on_behind() {
    let scene = Scene::new(|config| config.file_reserved_hours = 0);
    let told = Arc::new(Told::default());
    scene.store.report_deletions(told.clone());
    scene.store.delete_expired_files();
    for queue_id in [0, 1] {
        let (min, max) = scene.store.queue_bounds("T", queue_id);
        assert!(min > 0 && max == 250);
        let told = told.0.lock();
        let ranges: Vec<_> = told.iter().filter(|gone| gone.queue_id == queue_id).map(|gone| (gone.from, gone.to)).collect();
        assert!(ranges[0].0 == 0 && ranges.last().unwrap().1 == min, "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "each once: {ranges:?}");
        let gone = scene.store.get("T", queue_id, min - 1, &GetLimits::default(), &AllMessages);
        assert_eq!((gone.status, gone.next_begin_offset), (GetStatus::OffsetTooSmall, min));
        assert_eq!(scene.store.get("T", queue_id, min, &GetLimits::default(), &AllMessages).status, GetStatus::Found);
    }
}

#[test]
fn what_cannot_be_deleted_stays_readable_and_is_tried_again() {
    let scene = Scene::new(|config| {
        config.file_reserved_hours = 0;
        config.delete_when_hours = (0..24).collect();
        config.redelete_interval_ms = 3_600_000;
    });
    let files = scene.files();
    scene.trouble.cannot_remove.store(true, Ordering::Relaxed);
    assert_eq!((scene.clean(), scene.min(), scene.files()), (0, 0, files));
    assert_eq!(bodies(&scene.store, "T", 0).len(), 250);
    scene.trouble.cannot_remove.store(false, Ordering::Relaxed);
    assert_eq!((scene.clean(), scene.min()), (0, 0), "not before its time");
    scene.store.delete_expired_files();
    assert!(scene.min() > 0 && scene.files() < files);
}

#[test]
fn numbers_of_deleted_messages_are_not_given_out_again() {
    let scene = Scene::new(|config| config.file_reserved_hours = 0);
    scene.store.delete_expired_files(); // no flush of queues has been due
    let bounds = scene.store.queue_bounds("T", 0);
    let crashed = copy(scene.folder.path());
    let again = open(crashed.path(), FlushDiskType::Sync);
    assert_eq!(again.queue_bounds("T", 0), bounds);
    // Queue 1 of a topic whose records are all gone.
    let lone = Scene::new(|config| config.file_reserved_hours = 0);
    put(&lone.store, "Early", 1, b"only");
    for number in 0..300 {
        put(&lone.store, "T", 0, &body(number, 500));
    }
    settled(&lone.store);
    lone.store.delete_expired_files();
    assert_eq!(lone.store.queue_bounds("Early", 1), (1, 1));
    let crashed = copy(lone.folder.path());
    let again = open(crashed.path(), FlushDiskType::Sync);
    assert_eq!(again.queue_bounds("Early", 1), (1, 1));
    assert_eq!(put(&again, "Early", 1, b"next").queue_offset, 1);
}

#[test]
fn nothing_goes_that_is_not_on_disk_in_its_queues() {
    let scene = Scene::new(|config| config.file_reserved_hours = 0);
    scene.trouble.sync_fails.store(true, Ordering::Relaxed);
    scene.store.delete_expired_files();
    assert_eq!(scene.min(), 0);
}

#[test]
fn the_index_follows_the_log() {
    let scene = Scene::new(|config| {
        config.file_reserved_hours = 0;
        config.index_entries = 150; // several files
    });
    let before = std::fs::read_dir(scene.folder.path().join("index")).unwrap().count();
    scene.store.delete_expired_files();
    let after = std::fs::read_dir(scene.folder.path().join("index")).unwrap().count();
    assert!(after < before, "{before} index files, {after} now");
    let found = scene.store.query("T", "k", 64, 0, i64::MAX);
    assert!(!found.records.is_empty());
}

#[test]
fn a_log_file_that_somebody_removed_ends_writing_and_reads_go_on() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), mode);
        put(&store, "T", 0, b"before");
        settled(&store);
        std::fs::remove_dir_all(folder.path().join("commitlog")).unwrap();
        until("refused", || store.put(&draft("T", 0, "", b"x")).is_err() && store.refusal().is_some());
        let why = store.refusal().unwrap();
        assert!(why.contains("commitlog/00000000000000000000") && why.contains("removed"), "{why}");
        assert_eq!(
            store.message_at("T", 0, 0).map(|(_, bytes)| Record::parse(&bytes.unwrap()).unwrap().body.to_vec()),
            Some(b"before".to_vec())
        );
        assert!(!store.shutdown(DEADLINE).clean);
        assert!(folder.path().join("abort").exists());
    }
}

#[test]
fn queues_that_somebody_removed_are_made_anew_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), FlushDiskType::Sync);
    for number in 0..300 {
        put(&store, if number % 2 == 0 { "T" } else { "U" }, 0, &body(number, 500));
    }
    settled(&store);
    assert!(store.flush_derived(true));
    std::fs::remove_dir_all(folder.path().join("consumequeue/T")).unwrap();
    assert_eq!(bodies(&store, "T", 0).len(), 150, "served while it runs");
    put(&store, "T", 0, b"x");
    settled(&store);
    assert!(!store.flush_derived(true), "it is told");
    put(&store, "T", 0, b"y");
    settled(&store);
    assert!(!store.shutdown(DEADLINE).clean);
    drop(store);
    let again = open(folder.path(), FlushDiskType::Sync);
    assert_eq!((bodies(&again, "T", 0).len(), bodies(&again, "U", 0).len()), (152, 150));
    assert!(again.shutdown(DEADLINE).clean);
}

// ---- what the disk asks for ----

fn guard(root: &Path, trouble: &dyn Fn(&Trouble), adjust: impl FnOnce(&mut StoreConfig)) -> DiskGuard {
    std::fs::create_dir_all(root.join("commitlog")).unwrap();
    let fs = TestFs::default();
    trouble(&fs.trouble);
    let mut config = StoreConfig::new(root);
    adjust(&mut config);
    DiskGuard::new(&config, Arc::new(fs))
}

/// A disk of `total` with `used` percent used.
fn used(total: u64, used: u64) -> impl Fn(&Trouble) {
    move |trouble| {
        trouble.total.store(total, Ordering::Relaxed);
        trouble.free.store(total / 100 * (100 - used), Ordering::Relaxed);
    }
}

#[test]
fn ratios_act_only_when_they_are_set() {
    const GIB: u64 = 1 << 30;
    let folder = tempfile::tempdir().unwrap();
    let laptop = used(500 * GIB, 90); // 50 GiB free
    let unset = guard(folder.path(), &laptop, |_| {});
    assert_eq!(unset.pressure(0), Pressure { expired: false, any: None });
    assert!(unset.check() && !unset.refuses());

    let set = guard(folder.path(), &laptop, |config| config.disk_max_used_ratio = Some(75));
    assert_eq!(set.pressure(0), Pressure { expired: true, any: None });
    assert!(set.check());

    let set = guard(folder.path(), &laptop, |config| config.disk_clean_forcibly_ratio = Some(85));
    let any = set.pressure(0).any.unwrap();
    assert!(any.contains("90 % full") && any.contains("diskSpaceCleanForciblyRatio=85"), "{any}");
    assert!(set.check(), "cleaned, not refused");

    let set = guard(folder.path(), &laptop, |config| config.disk_warning_ratio = Some(89));
    assert!(!set.check() && set.pressure(0).any.is_some());
    let why = set.refusal().unwrap();
    assert!(why.contains("90 % full") && why.contains("diskSpaceWarningLevelRatio=89") && why.contains("bytes free"), "{why}");

    let below = guard(folder.path(), &laptop, |config| {
        config.disk_max_used_ratio = Some(95);
        config.disk_clean_forcibly_ratio = Some(90);
        config.disk_warning_ratio = Some(90);
    });
    assert_eq!(below.pressure(0), Pressure { expired: false, any: None }, "90 % is not above 90 %");
}

#[test]
fn the_default_reserve_is_absolute_and_a_share_on_small_disks() {
    const GIB: u64 = 1 << 30;
    let folder = tempfile::tempdir().unwrap();
    for (total, free, refuses) in [
        (1000 * GIB, 5 * GIB, false), // 99.5 % used, and yet
        (1000 * GIB, 4 * GIB - 1, true),
        (10 * GIB, GIB, false),
        (10 * GIB, GIB / 2 - 1, true),
    ] {
        let disk = |trouble: &Trouble| {
            trouble.total.store(total, Ordering::Relaxed);
            trouble.free.store(free, Ordering::Relaxed);
        };
        let guard = guard(folder.path(), &disk, |_| {});
        assert_eq!((!guard.check(), guard.refuses()), (refuses, refuses), "{free} of {total}");
        if let Some(why) = guard.refusal() {
            let folder = folder.path().to_string_lossy().into_owned();
            assert!(why.contains(&format!("{free} bytes free")) && why.contains(&folder) && why.contains("diskFreeReserveBytes="), "{why}");
            assert!(guard.pressure(0).expired && guard.pressure(0).any.is_some());
        }
    }
}

#[test]
fn brokers_that_share_a_disk_keep_to_their_shares() {
    const GIB: i64 = 1 << 30;
    let folder = tempfile::tempdir().unwrap();
    let shared = guard(folder.path(), &used(100 << 30, 50), |config| config.replicas_per_disk = 4);
    assert_eq!(shared.pressure(18 * GIB), Pressure { expired: false, any: None });
    assert_eq!(shared.pressure(19 * GIB + GIB / 2), Pressure { expired: true, any: None });
    let any = shared.pressure(21 * GIB).any.unwrap();
    assert!(
        any.contains("84 %") && any.contains("logicalDiskSpaceCleanForciblyThreshold=0.8") && any.contains("replicasPerDiskPartition=4"),
        "{any}"
    );
    let alone = guard(folder.path(), &used(100 << 30, 50), |_| {});
    assert_eq!(alone.pressure(90 * GIB), Pressure { expired: false, any: None });
}
