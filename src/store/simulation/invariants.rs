//! What holds of a store after every start, whatever happened before it.
//!
//! - I1: unit k of a queue points at a whole record of that topic, queue and queue offset (fillers, and units that point at a
//!   sealed piece of the log, are exempt).
//! - I2: every record of the log that belongs into a queue has its unit. The log can be walked from its start to its end.
//! - I3: a queue's maximum is the next offset that an append gets.
//! - I4: no file lies behind the end of the log but at most one, which is empty; what follows the end in its file is zero.
//! - I5: another start without writes changes nothing.
//! - I6: recovering again finds nothing to repair.
//!
//! [`of_open`] looks at I1 to I4 of a running store, [`of_restarts`] at I5 and I6 of a stopped one, [`assert_all`] at everything.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::hash::tags_code;
use crate::common::record::{self, Record, RecordError};
use crate::common::topic::SCHEDULE_TOPIC;
use crate::common::{properties, sysflag};
use crate::runtime::clock::Clock;
use crate::store::config::StoreConfig;
use crate::store::consume_queue::ConsumeQueue;
use crate::store::consume_queue_table::is_one_component;
use crate::store::deleted_topics::{DeletedTopics, Marks};
use crate::store::dispatch::has_unit;
use crate::store::error::StoreError;
use crate::store::fs::Fs;
use crate::store::message_store::MessageStore;

const DEADLINE: Duration = Duration::from_secs(20);
/// More violations than this are not listed.
const MAX_LISTED: usize = 20;

/// Contents of the store's files, by path below the root.
pub(crate) type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// Waits until everything appended is visible (or a sync has failed), and everything visible dispatched.
pub(crate) fn settle(store: &MessageStore) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let stats = store.stats();
        let flushed = stats.flushed_offset == stats.max_physical_offset || store.sync_failure().is_some();
        if (flushed || !store.is_sync_flush()) && stats.dispatch_behind_bytes == 0 {
            return Ok(());
        }
        if begin.elapsed() > DEADLINE {
            return Err(format!("the store does not come to rest: {stats:?}"));
        }
        std::thread::yield_now();
    }
}

/// Opens a store. Where the lock of the last one is still held for a moment (a test beside this one starts a process, which inherits it up
/// to its exec) it is waited for.
///
/// # Errors
/// The store's.
pub(crate) fn open(config: &StoreConfig, fs: &Arc<dyn Fs>, clock: &Clock) -> Result<Arc<MessageStore>, StoreError> {
    let begin = Instant::now();
    loop {
        match MessageStore::open(config.clone(), Arc::clone(fs), clock.clone()) {
            Err(StoreError::Locked(..)) if begin.elapsed() < DEADLINE => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

/// What is wrong with a running store that is at rest (I1 to I4).
pub(crate) fn of_open(store: &MessageStore, config: &StoreConfig, fs: &Arc<dyn Fs>) -> Vec<String> {
    let mut found = Findings::default();
    if let Err(why) = settle(store) {
        return vec![why];
    }
    let marks = match DeletedTopics::load(&config.root, Arc::clone(fs)) {
        Ok(deleted) => deleted.read().clone(),
        Err(error) => return vec![format!("marks of deleted topics: {error}")],
    };
    let stats = store.stats();
    let log = LogFiles::read(config);
    log.check_end(stats.max_physical_offset, &mut found);
    let mut seals = Vec::new();
    log.walk(stats.min_physical_offset, stats.max_physical_offset, &mut found, |record, range, found| match record {
        Some(record) if !is_seal(record) => check_record(store, &marks, record, range.start, found),
        _ => seals.push(range), // a blank record seals damage that goes on to the end of its file
    });
    for queue in store.queues().all() {
        check_units(store, &queue, &seals, &mut found);
        if queue.max_offset() != queue.next_append_offset() {
            let (max, next) = (queue.max_offset(), queue.next_append_offset());
            found.add(format!("I3: {} ends at {max}, but the next append gets {next}", name(&queue)));
        }
    }
    found.list
}

/// What lies in the store but for files that were about to be made.
fn lasting(root: &Path) -> Contents {
    let mut found = contents(root);
    found.retain(|path, _| path.extension().is_none_or(|extension| extension != "new"));
    found
}

/// What is wrong with a store that was stopped in order, as its next starts show (I5 and I6). It is left as it is.
pub(crate) fn of_restarts(config: &StoreConfig, fs: &Arc<dyn Fs>) -> Vec<String> {
    let mut found = Findings::default();
    let before = lasting(&config.root);
    for start in ["second", "third"] {
        let store = match open(config, fs, &Clock::System) {
            Ok(store) => store,
            Err(error) => return vec![format!("I5: the {start} start fails: {error}")],
        };
        check_report(&store, start, &mut found);
        found.list.extend(of_open(&store, config, fs));
        if !store.shutdown(DEADLINE).clean {
            found.add(format!("I5: the {start} stop is not clean"));
        }
        drop(store);
        let after = lasting(&config.root);
        for change in differences(&before, &after) {
            found.add(format!("I5: the {start} start changes {change}"));
        }
    }
    found.list
}

/// Opens a store as it was found, and checks everything, a start after a kill included. It is stopped in order afterwards.
#[allow(dead_code, reason = "for tables of damage")]
pub(crate) fn assert_all(config: &StoreConfig, fs: &Arc<dyn Fs>) {
    let store = open(config, fs, &Clock::System).unwrap();
    let mut found = Findings { list: of_open(&store, config, fs) };
    let killed = tempfile::tempdir().unwrap();
    for (path, bytes) in contents(&config.root) {
        let path = killed.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    std::fs::write(killed.path().join("abort"), "1").unwrap();
    let elsewhere = StoreConfig { root: killed.path().to_owned(), commit_log_path: None, ..config.clone() };
    let again = open(&elsewhere, fs, &Clock::System).unwrap();
    check_report(&again, "start after a kill", &mut found);
    found.list.extend(of_open(&again, &elsewhere, fs));
    if !store.shutdown(DEADLINE).clean {
        found.add("the stop is not clean".to_owned());
    }
    drop(store);
    found.list.extend(of_restarts(config, fs));
    assert!(found.list.is_empty(), "{:#?}", found.list);
}

/// What the recovery of a store that was recovered before had to repair (I6).
#[allow(dead_code, reason = "for tables of damage")]
pub(crate) fn report_of_recovery(store: &MessageStore, start: &str) -> Vec<String> {
    let mut found = Findings::default();
    check_report(store, start, &mut found);
    found.list
}

fn check_report(store: &MessageStore, start: &str, found: &mut Findings) {
    let report = store.recovery();
    if report.truncated_bytes > 0 || report.sealed > 0 {
        found.add(format!("I6: the {start} repairs: {report}"));
    }
}

#[derive(Default)]
struct Findings {
    list: Vec<String>,
}

impl Findings {
    fn add(&mut self, what: String) {
        if self.list.len() < MAX_LISTED {
            self.list.push(what);
        }
    }
}

fn name(queue: &ConsumeQueue) -> String {
    format!("{}/{}", queue.topic(), queue.queue_id())
}

/// A record that fills a hole which damage left.
pub(crate) fn is_seal(record: &Record<'_>) -> bool {
    sysflag::transaction_type(record.sys_flag) == sysflag::TRANSACTION_ROLLBACK && "rmq_sys_LOST_RECORDS".starts_with(record.topic)
}

/// I1 of one queue.
fn check_units(store: &MessageStore, queue: &ConsumeQueue, seals: &[Range<i64>], found: &mut Findings) {
    let (min, max) = (queue.min_offset(), queue.max_offset());
    let mut units = Vec::new();
    if let Err(error) = queue.read(min, usize::try_from(max - min).unwrap_or(0), &mut units) {
        return found.add(format!("I1: {} {min}..{max} cannot be read: {error}", name(queue)));
    }
    if units.len() as i64 != max - min {
        return found.add(format!("I1: {} has {} units between {min} and {max}", name(queue), units.len()));
    }
    for (offset, unit) in (min..).zip(&units) {
        let what = || format!("I1: unit {offset} of {} ({min}..{max}), {unit:?}", name(queue));
        if !unit.is_valid() {
            found.add(format!("{} is no unit", what()));
        }
        if !unit.is_present() || seals.iter().any(|seal| seal.contains(&unit.physical_offset)) {
            continue;
        }
        let Some(bytes) = store.record_at(unit.physical_offset) else {
            found.add(format!("{} points at no record", what()));
            continue;
        };
        match Record::parse(&bytes) {
            Err(error) => found.add(format!("{}: {error}", what())),
            Ok(record) => {
                let here = (queue.topic(), queue.queue_id(), offset, unit.size as usize);
                let there = (record.topic, record.queue_id, record.queue_offset, record.total_size);
                if here != there {
                    found.add(format!("{} points at the record of {there:?}", what()));
                }
                if let Err(error) = record.check_crc() {
                    found.add(format!("{}: {error}", what()));
                }
            }
        }
    }
}

/// I2 of one record.
fn check_record(store: &MessageStore, marks: &Marks, record: &Record<'_>, at: i64, found: &mut Findings) {
    if !has_unit(record.sys_flag) || !is_one_component(record.topic) {
        return;
    }
    let (topic, queue_id, offset) = (record.topic, record.queue_id, record.queue_offset);
    let unit = store.queues().get(topic, queue_id).and_then(|queue| {
        let in_queue = (queue.min_offset()..queue.max_offset()).contains(&offset);
        queue.unit_at(offset).ok().flatten().filter(|_| in_queue)
    });
    let here = unit.filter(|unit| unit.physical_offset == at);
    if marks.hide(topic, at) {
        if here.is_some() {
            found.add(format!("I2: the record at {at} ({topic}/{queue_id} {offset}) was deleted and yet has a unit"));
        }
        return;
    }
    let Some(here) = here else {
        return found.add(format!("I2: the record at {at} has no unit {topic}/{queue_id} {offset}, there is {unit:?}"));
    };
    let tags = properties::iterate(record.properties).filter(|(name, _)| *name == properties::TAGS).last().map(|(_, tags)| tags);
    let is_whole = !record.properties.contains('\0'); // no sum covers them: a power cut may have taken them, as in Java
    if topic != SCHEDULE_TOPIC && is_whole && here.tags_code != tags_code(tags) {
        found.add(format!("I2: the unit of the record at {at} ({topic}/{queue_id} {offset}) has another tags code: {here:?} {tags:?}"));
    }
}

/// The log's files as they are in the page cache.
struct LogFiles {
    file_size: usize,
    by_start: BTreeMap<i64, Vec<u8>>,
}

impl LogFiles {
    fn read(config: &StoreConfig) -> Self {
        let dir = config.commit_log_path.clone().unwrap_or_else(|| config.root.join("commitlog"));
        let start = |path: &Path| path.to_str().filter(|name| name.len() == 20).and_then(|name| name.parse().ok());
        let by_start = contents(&dir).into_iter().filter_map(|(path, bytes)| Some((start(&path)?, bytes))).collect();
        Self { file_size: config.commit_log_file_size, by_start }
    }

    /// I4.
    fn check_end(&self, end: i64, found: &mut Findings) {
        for (start, _) in self.by_start.range(end + 1..).filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)) {
            found.add(format!("I4: the file {start} lies behind the end {end} and is not empty"));
        }
        if self.by_start.range(end + 1..).count() > 1 {
            found.add(format!("I4: several files lie behind the end {end}"));
        }
        let Some((start, bytes)) = self.by_start.range(..=end).next_back() else { return };
        let mut at = (end - start) as usize;
        let Some(rest) = bytes.get(at..) else { return };
        if Record::parse(rest).is_err_and(|error| error == RecordError::Blank) {
            at += record::BLANK_SIZE;
        }
        let dirty = bytes[at..].iter().filter(|byte| **byte != 0).count();
        if dirty > 0 {
            found.add(format!("I4: {dirty} bytes behind the end {end} are not zero"));
        }
    }

    /// Hands over every record from `min` to `end`, `None` for a blank one; whatever is none is a finding.
    fn walk(&self, min: i64, end: i64, found: &mut Findings, mut visit: impl FnMut(Option<&Record<'_>>, Range<i64>, &mut Findings)) {
        let mut at = min;
        while at < end {
            let start = at - at % self.file_size as i64;
            let Some(bytes) = self.by_start.get(&start) else {
                return found.add(format!("I2: the log from {min} to {end} has no file at {start}"));
            };
            let rest = &bytes[(at - start) as usize..];
            if rest.len() < record::BLANK_SIZE {
                at = start + self.file_size as i64;
                continue;
            }
            match Record::parse(rest) {
                Ok(record) => {
                    if let Err(error) = record.check_crc() {
                        found.add(format!("I2: the record at {at}: {error}"));
                    }
                    if record.physical_offset != at {
                        found.add(format!("I2: the record at {at} says that it lies at {}", record.physical_offset));
                    }
                    let behind = at + record.total_size as i64;
                    visit(Some(&record), at..behind, found);
                    at = behind;
                }
                Err(RecordError::Blank) => {
                    let behind = start + self.file_size as i64;
                    visit(None, at..behind, found);
                    at = behind;
                }
                Err(error) => return found.add(format!("I2: the log from {min} to {end} cannot be walked over {at}: {error}")),
            }
        }
        if at != end {
            found.add(format!("I2: the records of the log end at {at} and not at {end}"));
        }
    }
}

/// All files below a folder.
pub(crate) fn contents(root: &Path) -> Contents {
    let mut found = Contents::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let (Ok(bytes), Ok(below)) = (std::fs::read(&path), path.strip_prefix(root)) {
                found.insert(below.to_owned(), bytes);
            }
        }
    }
    found
}

/// What differs, with the first differing position.
pub(crate) fn differences(before: &Contents, after: &Contents) -> Vec<String> {
    let mut found = Vec::new();
    for (path, bytes) in before {
        match after.get(path) {
            None => found.push(format!("{}: gone", path.display())),
            Some(now) if now != bytes => {
                let at = bytes.iter().zip(now).position(|(before, now)| before != now).unwrap_or(bytes.len().min(now.len()));
                found.push(format!("{} from byte {at} on ({} bytes before, {} after)", path.display(), bytes.len(), now.len()));
            }
            Some(_) => {}
        }
    }
    found.extend(after.keys().filter(|path| !before.contains_key(*path)).map(|path| format!("{}: new", path.display())));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::config::FlushDiskType;
    use crate::store::fs::RealFs;
    use crate::store::testing::draft;
    use std::os::unix::fs::FileExt;

    fn config(root: &Path) -> StoreConfig {
        StoreConfig {
            commit_log_file_size: 16 << 10,
            consume_queue_file_size: 20 * 20,
            index_slots: 50,
            index_entries: 100,
            disk_free_reserve: Some(0),
            flush_disk_type: FlushDiskType::Sync,
            flush_consume_queue_interval_ms: 1,
            ..StoreConfig::new(root)
        }
    }

    fn fill(store: &MessageStore) {
        for number in 0..100 {
            store
                .put(&draft(["A", "B"][number % 2], (number % 3) as i32, "TAGS\u{1}t\u{2}KEYS\u{1}k\u{2}", &vec![1; number * 13]))
                .unwrap();
        }
        settle(store).unwrap();
    }

    #[test]
    fn a_whole_store_has_no_findings() {
        let folder = tempfile::tempdir().unwrap();
        let (config, fs) = (config(folder.path()), RealFs::shared());
        let store = MessageStore::open(config.clone(), Arc::clone(&fs), Clock::System).unwrap();
        fill(&store);
        assert_eq!(of_open(&store, &config, &fs), Vec::<String>::new());
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        assert_all(&config, &fs);
    }

    #[test]
    fn what_is_broken_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (config, fs) = (config(folder.path()), RealFs::shared());
        let store = MessageStore::open(config.clone(), Arc::clone(&fs), Clock::System).unwrap();
        fill(&store);
        let breaks = |path: &str, bytes: &[u8], at: u64, expected: &str| {
            let mut options = std::fs::OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(folder.path().join(path)).unwrap();
            let mut before = vec![0; bytes.len()];
            let there = file.read_exact_at(&mut before, at).is_ok();
            file.write_all_at(bytes, at).unwrap();
            let found = of_open(&store, &config, &fs);
            assert!(found.iter().any(|what| what.contains(expected)), "{expected}: {found:?}");
            if there {
                file.write_all_at(&before, at).unwrap();
            } else {
                std::fs::remove_file(folder.path().join(path)).unwrap();
            }
        };
        let begin = Instant::now();
        while store.queues().dirty_bytes() > 0 || !folder.path().join("consumequeue/A/0").exists() {
            assert!(begin.elapsed() < DEADLINE, "queues are not written");
            std::thread::yield_now();
        }
        breaks("commitlog/00000000000000000000", &[0; 4], 4, "cannot be walked");
        breaks("commitlog/00000000000099991552", &[1; 8], 0, "not empty");
        let end = store.stats().max_physical_offset;
        let last = end / (16 << 10) * (16 << 10);
        breaks(&format!("commitlog/{last:020}"), &[1; 4], (end - last + 100) as u64, "are not zero");
        let shifted = [0, 0, 0, 0, 0, 0, 0, 1];
        breaks("consumequeue/A/0/00000000000000000000", &shifted, 0, "I1: unit 0 of A/0");
        breaks("consumequeue/A/0/00000000000000000000", &shifted, 0, "I2: the record at 0 has no unit");
        breaks("consumequeue/A/0/00000000000000000000", &shifted, 12, "another tags code");
        assert_eq!(of_open(&store, &config, &fs), Vec::<String>::new());
    }
}
