//! What repair makes of damaged stores: the table is in `check::tests`.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::record::Record;
use crate::store::Appended;
use crate::store::check::Given;
use crate::store::check::tests::{
    Case, DEADLINE, ROUNDS, Stored, Told, cases, checked, config, content, copy, fill, log_file, of_queue, open, patch, settled, stopped,
    told, with_deleted_topic,
};
use crate::store::consume_queue::CqUnit;
use crate::store::fs::{FsFile, RealFs, Space};
use crate::store::reading::{AllMessages, GetLimits};
use crate::store::testing::draft;

use super::*;

fn repaired_with(root: &Path, options: &RepairOptions) -> Repaired {
    repair(&config(root), &RealFs::shared(), options, &mut |_| {}).unwrap()
}

fn repaired(root: &Path) -> Repaired {
    repaired_with(root, &RepairOptions { apply: true, ..RepairOptions::default() })
}

/// The messages that the broker does not serve, by offset or by key; the store is stopped in order.
fn not_served(root: &Path, stored: &Stored) -> Vec<i64> {
    let store = open(root);
    settled(&store);
    let mut missing = Vec::new();
    for (topic, queue_id, appended) in stored {
        let found = store.message_at(topic, *queue_id, appended.queue_offset).and_then(|(_, bytes)| bytes);
        let record = found.as_ref().map(|bytes| Record::parse(bytes).unwrap());
        let record = record.filter(|record| record.physical_offset == appended.physical_offset);
        let is_found = record.is_some_and(|record| {
            assert_eq!((record.topic, record.queue_id, record.queue_offset), (topic.as_str(), *queue_id, appended.queue_offset));
            let found = crate::store::dispatch::Dispatched::read(record.properties);
            let mut keys = found.keys().filter(|key| *key != "all");
            keys.all(|key| {
                let hits = store.query(topic, key, 64, 0, i64::MAX).records;
                hits.iter().any(|hit| Record::parse(hit).unwrap().physical_offset == appended.physical_offset)
            })
        });
        if !is_found {
            missing.push(appended.physical_offset);
        }
    }
    for (topic, queue_id) in [("A", 0), ("B", 1), ("C", 0)] {
        let next = of_queue(stored, topic, queue_id).last().map_or(0, |last| last.queue_offset + 1);
        assert_eq!(store.queue_bounds(topic, queue_id).1, next, "{topic} {queue_id}: the numbering goes on");
    }
    assert!(store.shutdown(DEADLINE).clean);
    missing
}

/// The broker serves all messages but the lost ones.
fn serves(root: &Path, stored: &Stored, lost: &[i64], what: &str) {
    assert_eq!(not_served(root, stored), lost, "{what}");
}

fn repairs(original: &Path, stored: &Stored, case: &Case) {
    let Case { name, damage, told: expected, left } = case;
    let folder = copy(original);
    let lost = damage(folder.path(), stored);
    let before = content(folder.path());
    let dry = repaired_with(folder.path(), &RepairOptions::default());
    assert!(before == content(folder.path()), "{name}: a dry run changed something");
    assert!(!dry.applied && dry.after.is_none());
    let done = repaired(folder.path());
    assert_eq!(done.steps, dry.steps, "{name}: done as said");
    assert_eq!(done.applied, !done.steps.is_empty(), "{name}");
    assert_eq!(expected.iter().any(|told| !left.contains(told)), done.applied, "{name}: {:?}", done.steps);
    clean(folder.path(), left, name);
    assert!(repaired(folder.path()).steps.is_empty(), "{name}: twice");
    let mut lost = lost;
    lost.sort_unstable();
    serves(folder.path(), stored, &lost, name);
    clean(folder.path(), left, &format!("{name}, after a run"));
}

fn clean(root: &Path, left: &[Told], what: &str) {
    let report = checked(root);
    let texts: Vec<String> = report.findings.shown().map(|finding| format!("{:?} {}", finding.kind, finding.text)).collect();
    assert_eq!(told(&report), left, "{what}: {texts:#?}");
}

#[test]
fn damage_is_repaired_and_everything_else_served() {
    let original = tempfile::tempdir().unwrap();
    let stored = stopped(original.path(), ROUNDS);
    let failed: Vec<&str> = cases()
        .iter()
        .filter(|case| std::panic::catch_unwind(|| repairs(original.path(), &stored, case)).is_err())
        .map(|case| case.name)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn everything_is_built_anew_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let stored = stopped(folder.path(), 30);
    let before = content(folder.path());
    let options = RepairOptions { apply: true, all_queues: true, all_index: true, ..RepairOptions::default() };
    let done = repaired_with(folder.path(), &options);
    let actions: Vec<Action> = done.steps.iter().map(|step| step.action).collect();
    let queues = actions.iter().filter(|action| **action == Action::RebuildQueue).count();
    assert_eq!((queues, actions.contains(&Action::RebuildIndex)), (6 + 18 + 1, true), "{actions:?}");
    clean(folder.path(), &[], "all anew");
    let after = content(folder.path());
    let queues = |all: &[(std::path::PathBuf, Vec<u8>)]| -> Vec<_> {
        all.iter().filter(|(path, _)| path.starts_with(folder.path().join("consumequeue"))).cloned().collect()
    };
    assert!(queues(&before) == queues(&after), "a good queue is built as it was");
    let kept = done.kept.unwrap();
    assert!(kept.join("index").is_dir() && kept.join("consumequeue/A/0").is_dir());
    let again = repaired_with(folder.path(), &options);
    assert_ne!(again.kept.unwrap(), kept, "what was kept stays");
    serves(folder.path(), &stored, &[], "all anew");
}

#[test]
fn a_lost_record_s_place_points_at_its_seal() {
    let folder = tempfile::tempdir().unwrap();
    let stored = stopped(folder.path(), 30);
    let lost = [of_queue(&stored, "B", 0)[20], of_queue(&stored, "B", 1)[20], of_queue(&stored, "C", 0)[20]]; // neighbours
    for record in lost {
        patch(&log_file(folder.path(), record.physical_offset), |bytes| bytes[record.physical_offset as usize % (64 << 10) + 95] ^= 1);
    }
    let done = repaired_with(folder.path(), &RepairOptions { apply: true, all_queues: true, ..RepairOptions::default() });
    assert_eq!(done.steps.iter().filter(|step| step.action == Action::SealDamage).count(), 1);
    clean(folder.path(), &[], "sealed");
    for (queue, record) in ["B/0", "B/1", "C/0"].iter().zip(lost) {
        let path = folder.path().join("consumequeue").join(queue).join(format!("{:020}", 0));
        let unit = CqUnit::decode(&std::fs::read(path).unwrap()[20 * 20..]);
        assert_eq!((unit.physical_offset, unit.size as usize), (record.physical_offset, record.size), "{queue}");
    }
    let kept = std::fs::read_dir(folder.path().join("lost")).unwrap().map(|entry| entry.unwrap());
    let names: Vec<_> = kept.map(|entry| entry.file_name()).collect();
    assert!(
        names.iter().any(|name| name.to_str() == Some(&format!("{:020}", lost[0].physical_offset))),
        "{names:?} {lost:?} {:?}",
        done.steps
    );
    let store = open(folder.path());
    let limits = GetLimits { max_messages: 100, max_messages_in_memory: 100, ..GetLimits::default() };
    let pulled = store.get("B", 1, 0, &limits, &AllMessages);
    assert_eq!((pulled.messages, pulled.next_begin_offset), (29, 30), "consumers pass over it");
    drop(store);
    let lost: Vec<i64> = lost.iter().map(|record| record.physical_offset).collect();
    serves(folder.path(), &stored, &lost, "sealed");
}

#[test]
fn a_queue_whose_messages_have_expired_keeps_its_numbering() {
    for damage in [|path: &Path| patch(path, |bytes| bytes.truncate(700)), |path: &Path| patch(path, |bytes| bytes[40 * 20] = 1)] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        for _ in 0..30 {
            store.put(&draft("E", 0, "", b"soon gone")).unwrap();
        }
        let stored = fill(&store, 0, 30);
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        std::fs::remove_file(log_file(folder.path(), 0)).unwrap();
        clean(folder.path(), &[], "expired");
        damage(&folder.path().join("consumequeue/E/0").join(format!("{:020}", 0)));
        assert!(checked(folder.path()).findings.is_damaged());
        repaired(folder.path());
        clean(folder.path(), &[], "repaired");
        let store = open(folder.path());
        assert_eq!(store.queue_bounds("E", 0), (30, 30));
        assert_eq!(store.put(&draft("E", 0, "", b"next")).unwrap().queue_offset, 30);
        drop(store);
        let here = |record: &&(String, i32, Appended)| record.2.physical_offset < 64 << 10;
        let lost: Vec<i64> = stored.iter().filter(here).map(|(.., record)| record.physical_offset).collect();
        serves(folder.path(), &stored, &lost, "the others");
    }
}

#[test]
fn a_topic_made_anew_is_built_from_its_new_messages() {
    let folder = tempfile::tempdir().unwrap();
    let stored = with_deleted_topic(folder.path());
    std::fs::remove_dir_all(folder.path().join("consumequeue/A")).unwrap();
    repaired(folder.path());
    clean(folder.path(), &[], "anew");
    let store = open(folder.path());
    for (topic, queue_id, appended) in &stored {
        let (_, bytes) = store.message_at(topic, *queue_id, appended.queue_offset).unwrap();
        assert_eq!(Record::parse(&bytes.unwrap()).unwrap().physical_offset, appended.physical_offset);
    }
    assert_eq!(store.queue_bounds("A", 1), (0, 7));
}

#[test]
fn a_log_without_files_is_not_made_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    stopped(folder.path(), 5);
    std::fs::remove_dir_all(folder.path().join("commitlog")).unwrap();
    std::fs::create_dir(folder.path().join("commitlog")).unwrap();
    let before = content(folder.path());
    let options = RepairOptions { apply: true, all_queues: true, all_index: true, ..RepairOptions::default() };
    let error = repair(&config(folder.path()), &RealFs::shared(), &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("put its files back"), "{error}");
    assert!(before == content(folder.path()));
    assert_eq!(told(&checked(folder.path())).first().map(|(kind, ..)| *kind), Some(Kind::LogMissing));
}

#[test]
fn sizes_that_nothing_tells_are_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let stored = stopped(folder.path(), 20);
    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    let plain = StoreConfig { disk_free_reserve: Some(0), ..StoreConfig::new(folder.path()) };
    let options = RepairOptions { apply: true, ..RepairOptions::default() };
    let error = repair(&plain, &RealFs::shared(), &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("maxIndexNum"), "{error}");
    let sized = StoreConfig { index_slots: 101, index_entries: 700, ..plain };
    let check = CheckOptions { given: Given { index: true, ..Given::default() }, ..CheckOptions::default() };
    repair(&sized, &RealFs::shared(), &RepairOptions { check, ..options }, &mut |_| {}).unwrap();
    clean(folder.path(), &[], "the other sizes are those of the files");
    serves(folder.path(), &stored, &[], "sized");
}

#[test]
fn a_store_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for apply in [false, true] {
        let options = RepairOptions { apply, ..RepairOptions::default() };
        let refused = repair(&config(folder.path()), &RealFs::shared(), &options, &mut |_| {});
        assert!(matches!(refused, Err(StoreError::Locked(..))));
    }
    drop(store);
}

// ---- a repair that is cut short ----

/// The machine's file system up to a certain change; that one is done by half, later ones not at all.
#[derive(Debug)]
struct StoppingFs {
    left: Arc<AtomicU64>,
}

#[derive(Debug)]
struct StoppingFile {
    file: Arc<dyn FsFile>,
    left: Arc<AtomicU64>,
}

/// Whether a change may still be made, and whether it is the one that is cut short.
fn change(left: &AtomicU64) -> io::Result<bool> {
    match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
        Ok(before) => Ok(before == 1),
        Err(_) => Err(io::Error::other("stopped")),
    }
}

fn whole(left: &AtomicU64) -> io::Result<()> {
    if change(left)? { Err(io::Error::other("stopped here")) } else { Ok(()) }
}

impl Fs for StoppingFs {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>> {
        if create && !path.exists() {
            whole(&self.left)?;
        }
        Ok(Arc::new(StoppingFile { file: RealFs.open(path, create)?, left: Arc::clone(&self.left) }))
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        RealFs.open_read(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        whole(&self.left)?;
        RealFs.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        whole(&self.left)?;
        RealFs.sync_dir(path)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        whole(&self.left)?;
        RealFs.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        whole(&self.left)?;
        RealFs.remove_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        whole(&self.left)?;
        RealFs.rename(from, to)
    }
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        whole(&self.left)?;
        RealFs.exchange(one, other)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<(std::path::PathBuf, bool)>> {
        RealFs.list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        RealFs.space(path)
    }
}

impl FsFile for StoppingFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if change(&self.left)? {
            self.file.write_all_at(&bytes[..bytes.len() / 2], at)?;
            return Err(io::Error::other("stopped here"));
        }
        self.file.write_all_at(bytes, at)
    }
    fn sync_data(&self) -> io::Result<()> {
        whole(&self.left)
    }
    fn write_back(&self, at: u64, len: u64) -> io::Result<()> {
        self.file.write_back(at, len)
    }
    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        whole(&self.left)?;
        self.file.allocate(at, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        whole(&self.left)?;
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn modified_ms(&self) -> io::Result<i64> {
        self.file.modified_ms()
    }
    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.file.next_data(at)
    }
    fn as_std(&self) -> Option<&std::fs::File> {
        self.file.as_std()
    }
}

/// A store with damage of each part; a unit too many that a start does not see, a torn tail, files behind the end.
fn battered(root: &Path, stored: &Stored) -> Vec<i64> {
    let lost = cases()
        .iter()
        .filter(|case| ["everything at once", "a blank record with another length", "files of zeros behind the last"].contains(&case.name))
        .flat_map(|case| (case.damage)(root, stored))
        .collect();
    let end = std::fs::read(root.join("checkpoint")).unwrap();
    let end = i64::from_be_bytes(end[64..72].try_into().unwrap());
    patch(&log_file(root, end), |bytes| bytes[end as usize % (64 << 10) + 10] = 1);
    lost
}

#[test]
fn a_repair_cut_short_is_mended_by_another_or_by_a_start() {
    let original = tempfile::tempdir().unwrap();
    let stored = stopped(original.path(), 15);
    let lost = battered(original.path(), &stored);
    let mut stops = 0;
    loop {
        stops += 1;
        let folder = copy(original.path());
        let repair_up_to = |changes| {
            let fs: Arc<dyn Fs> = Arc::new(StoppingFs { left: Arc::new(AtomicU64::new(changes)) });
            repair(&config(folder.path()), &fs, &RepairOptions { apply: true, ..RepairOptions::default() }, &mut |_| {})
        };
        if repair_up_to(stops).is_ok() {
            break;
        }
        if stops % 4 == 0 {
            // the broker starts in between: nothing may be worse than it was
            let unit = of_queue(&stored, "B", 1)[10].physical_offset; // points elsewhere, which a start does not see
            let missing = not_served(folder.path(), &stored);
            let allowed = |offset: &&i64| lost.contains(offset) || **offset == unit;
            assert!(missing.iter().all(|offset| allowed(&offset)), "stopped at change {stops}: {missing:?}");
        }
        repair_up_to(u64::MAX).unwrap();
        clean(folder.path(), &[], &format!("stopped at change {stops}"));
        if stops % 10 == 1 {
            serves(folder.path(), &stored, &lost, &format!("stopped at change {stops}"));
        }
    }
    assert!(stops > 60, "{stops} changes only: the repair did not do what it should");
}
