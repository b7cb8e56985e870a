//! All consume queues of a store.
//!
//! Lock order: the maintenance lock (flush, truncation, cleaning, deletion), then a shard or a queue's state, then the list of
//! dirty queues. Look-ups take a shard's read lock and allocate nothing.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::runtime::thread::Thread;

use super::cleaning::DeletedMessages;
use super::config::StoreConfig;
use super::consume_queue::{ConsumeQueue, CqUnit, Maintenance, QueueFiles, RecoveredQueue, Repair};
use super::deleted_topics::Marks;
use super::error::StoreError;
use super::file_cache::{FileCache, failed};
use super::fs::Fs;

const SHARDS: usize = 64;
/// Failures of a load that are named; the others are counted.
const NAMED_FAILURES: usize = 10;

/// Queues by the hash of topic and id: colliding ones share a place.
type Shard = HashMap<u64, SmallVec<[Arc<ConsumeQueue>; 1]>, foldhash::fast::RandomState>;

/// The queues by topic and id.
pub(super) struct ConsumeQueueTable {
    files: Arc<QueueFiles>,
    hasher: RandomState,
    shards: Vec<RwLock<Shard>>,
    losses: Mutex<Losses>,
}

/// What a start had to give up.
#[derive(Default)]
struct Losses {
    /// Physical offset from which the log must be dispatched again.
    again_from: Option<i64>,
    /// Queues that had to give units up, the last of these, and its record's physical offset.
    given_up: Vec<(Arc<ConsumeQueue>, i64, i64)>,
    /// Not done yet.
    repairs: Vec<Repair>,
}

impl Losses {
    fn add(&mut self, queue: &Arc<ConsumeQueue>, again_from: Option<i64>, given_up: Option<(i64, i64)>) {
        self.again_from = [self.again_from, again_from].into_iter().flatten().min();
        self.given_up.extend(given_up.map(|(offset, physical_offset)| (Arc::clone(queue), offset, physical_offset)));
    }
}

impl ConsumeQueueTable {
    /// Finds the queues below `<root>/consumequeue` and recovers each (forward scan of its last files; an
    /// all-zero file is empty; fillers do not raise the physical maximum), concurrently when configured.
    ///
    /// # Errors
    /// A file of a wrong length, a queue that cannot be read: with the names.
    pub(super) fn load(config: &StoreConfig, fs: Arc<dyn Fs>) -> Result<Self, StoreError> {
        look_for_other_kinds(config, &*fs)?;
        let root = config.root.join("consumequeue");
        let files = QueueFiles::new(fs, root, config.consume_queue_file_size, FileCache::capacity_of_process());
        let found = Arc::new(find_queues(&*files.fs, &files.root)?);
        let threads = if config.recover_concurrently { config.recover_threads.min(found.len() / 8) } else { 0 };
        let recovery = Arc::new(Recovery { files: Arc::clone(&files), found, next: AtomicUsize::new(0), done: Mutex::default() });
        let helpers: Vec<Thread> = (1..threads)
            .map_while(|number| {
                let recovery = Arc::clone(&recovery);
                Thread::spawn(&config.tag, &format!("recover-{number}"), move || recovery.run()).ok()
            })
            .collect();
        recovery.run();
        helpers.into_iter().for_each(Thread::join);
        let done = std::mem::take(&mut *recovery.done.lock());
        if done.len() != recovery.found.len() {
            let why = format!("the recovery of {} consume queues ended by a panic", recovery.found.len() - done.len());
            return Err(StoreError::Damaged(files.root.clone(), why));
        }
        Self::from_recovered(files, done)
    }

    fn from_recovered(files: Arc<QueueFiles>, done: Vec<Result<RecoveredQueue, StoreError>>) -> Result<Self, StoreError> {
        let mut failures: Vec<StoreError> = Vec::new();
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        let table = Self { files, hasher: RandomState::default(), shards, losses: Mutex::default() };
        for outcome in done {
            match outcome {
                Ok(RecoveredQueue { queue, again_from, given_up, repairs }) => {
                    let mut losses = table.losses.lock();
                    losses.add(&queue, again_from, given_up);
                    losses.repairs.extend(repairs);
                    drop(losses);
                    table.insert(queue);
                }
                Err(error) => failures.push(error),
            }
        }
        match failures.len() {
            0 => Ok(table),
            1 => Err(failures.remove(0)),
            count => {
                let mut names: Vec<String> = failures.iter().map(StoreError::to_string).collect();
                names.sort_unstable();
                names.truncate(NAMED_FAILURES);
                let why = format!("{count} consume queues cannot be recovered: {}", names.join("; "));
                Err(StoreError::Damaged(table.files.root.clone(), why))
            }
        }
    }

    /// Physical offset from which the log must be dispatched again, however the last stop was, because [`ConsumeQueueTable::load`] found a
    /// queue with a hole, or [`ConsumeQueueTable::check_ends`] one with a wrong end; `None` when every queue was whole.
    pub(super) fn damaged_from(&self) -> Option<i64> {
        self.losses.lock().again_from
    }

    /// A queue that exists.
    pub(super) fn get(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        let hash = self.hash(topic, queue_id);
        find(self.shard(hash).read().get(&hash)?, topic, queue_id)
    }

    /// A queue, made in memory when it does not exist (its folder comes with its first flush).
    pub(super) fn get_or_create(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        let hash = self.hash(topic, queue_id);
        if let Some(queue) = self.shard(hash).read().get(&hash).and_then(|queues| find(queues, topic, queue_id)) {
            return queue;
        }
        let mut shard = self.shard(hash).write();
        let queues = shard.entry(hash).or_default();
        find(queues, topic, queue_id).unwrap_or_else(|| {
            let queue = ConsumeQueue::create(&self.files, topic, queue_id);
            queues.push(Arc::clone(&queue));
            queue
        })
    }

    fn insert(&self, queue: Arc<ConsumeQueue>) {
        let hash = self.hash(queue.topic(), queue.queue_id());
        self.shard(hash).write().entry(hash).or_default().push(queue);
    }

    fn hash(&self, topic: &str, queue_id: i32) -> u64 {
        self.hasher.hash_one((topic, queue_id))
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// All queues.
    pub(super) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.read().values().flatten().cloned());
        }
        all
    }

    /// Largest [`ConsumeQueue::max_physical_offset`]; -1 with none.
    pub(super) fn max_physical_offset(&self) -> i64 {
        self.shards.iter().map(|shard| max_physical(&shard.read())).max().unwrap_or(-1)
    }

    /// A number for what all queues hold, never 0: a start that finds another one than the stop before noted has lost units.
    pub(super) fn digest(&self) -> i64 {
        let sum = self.all().iter().fold(0i64, |sum, queue| sum.wrapping_add(queue.digest()));
        (sum & i64::MAX) | 1
    }

    /// Removes every unit at or behind `end` from all queues and from the disk. What recovery dispatches afterwards is
    /// added again.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn truncate_behind(&self, end: i64) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        self.all().iter().try_for_each(|queue| queue.truncate_behind(end, &mut maintenance))
    }

    /// After an abrupt stop: whatever the files hold of records behind `physical_offset` is synced (again) by the next [`ConsumeQueueTable::flush`]
    /// that syncs. The last process may have written it and died before it did.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn distrust_behind(&self, physical_offset: i64) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        self.all().iter().try_for_each(|queue| queue.distrust_behind(physical_offset, &mut maintenance))
    }

    /// Removes from the disk what [`ConsumeQueueTable::load`] gave up. Before anything else is done with the queues.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn repair_files(&self) -> Result<(), StoreError> {
        let repairs = std::mem::take(&mut self.losses.lock().repairs);
        repairs.iter().try_for_each(|repair| repair.apply(&self.files))
    }

    /// Checks the units at the queues' ends against the log, as `holds` tells of a queue, an offset and its unit, and gives up those that
    /// point at no record of theirs: what the queue says of its last record decides what is dispatched again. Also finds queues whose
    /// first files may be gone, as far as the log, which begins at `min_physical_offset`, can tell. Of queues that end at or before
    /// `trusted` the end is believed.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn check_ends(
        &self, min_physical_offset: i64, trusted: i64, holds: impl Fn(&ConsumeQueue, i64, &CqUnit) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        for queue in self.all() {
            if queue.begins_behind(min_physical_offset)? {
                self.losses.lock().add(&queue, Some(0), None);
            }
            if queue.max_physical_offset() <= trusted {
                continue;
            }
            let given_up = queue.give_up_unless(|offset, unit| holds(&queue, offset, unit), &mut maintenance)?;
            if let Some((offset, _)) = given_up {
                log::warn!(
                    "consume queue ends with units of no record, which are dispatched again: topic={} queueId={} end={} given_up={}",
                    queue.topic(),
                    queue.queue_id(),
                    queue.max_offset(),
                    offset + 1 - queue.max_offset()
                );
                self.losses.lock().add(&queue, Some(queue.max_physical_offset().max(0)), given_up);
            }
        }
        Ok(())
    }

    /// Sets every queue's next append offset to its max offset, and its min offset by the log's. Units that were given up and whose
    /// records no one can dispatch again, since they are expired or one of `seals` stands in their place, keep their numbers.
    pub(super) fn settle(&self, min_physical_offset: i64, seals: &[CqUnit]) {
        let given_up = std::mem::take(&mut self.losses.lock().given_up);
        for (queue, offset, physical_offset) in &given_up {
            let seal = seals.iter().find(|seal| (seal.physical_offset..seal.end()).contains(physical_offset));
            let missing = seal.copied().or((*physical_offset < min_physical_offset).then_some(CqUnit::FILLER));
            if let Some(Err(error)) = missing.map(|missing| queue.keep_numbering(offset + 1, missing)) {
                log::warn!("numbering not kept: topic={} queueId={} {error}", queue.topic(), queue.queue_id());
            }
        }
        for queue in self.all() {
            queue.set_next_append_offset(queue.max_offset());
            if let Err(error) = queue.correct_min_offset(min_physical_offset) {
                log::warn!("min offset not corrected: topic={} queueId={} {error}", queue.topic(), queue.queue_id());
            }
        }
    }

    /// The log was cleaned: moves min offsets, deletes files whose last unit lies before `min_physical_offset`. Gives the messages that
    /// are gone.
    pub(super) fn clean(&self, min_physical_offset: i64) -> Vec<DeletedMessages> {
        let mut gone = Vec::new();
        for queue in self.all() {
            let mut maintenance = self.files.maintenance.lock(); // for one queue at a time: a flush may come between
            let from = queue.min_offset();
            if let Err(error) = queue.clean(min_physical_offset, &mut maintenance) {
                log::warn!("consume queue not cleaned: topic={} queueId={} {error}", queue.topic(), queue.queue_id());
            }
            let to = queue.min_offset();
            if to > from {
                gone.push(DeletedMessages { topic: queue.topic().to_owned(), queue_id: queue.queue_id(), from, to });
            }
        }
        gone
    }

    /// Writes the tails of all dirty queues; with `sync` also fdatasyncs every file written since the last time.
    ///
    /// # Errors
    /// The first failure; the tails that failed stay in memory and are tried again. After a failed sync the files are written once more
    /// before they are synced again.
    pub(super) fn flush(&self, sync: bool) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        let dirty = std::mem::take(&mut *self.files.dirty.lock());
        let mut outcome = Ok(());
        for queue in dirty {
            queue.unlisted();
            let flushed = queue.flush(&mut maintenance);
            queue.list_again_after(&flushed);
            outcome = outcome.and(flushed);
        }
        if sync { outcome.and(self.sync(&mut maintenance)) } else { outcome }
    }

    fn sync(&self, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        let unsure = std::mem::take(&mut maintenance.unsure);
        let again = unsure.iter().try_for_each(|((_, first), queue)| queue.write_again(*first, maintenance));
        if let Err(error) = again {
            maintenance.unsure = unsure;
            return Err(error);
        }
        let files = std::mem::take(&mut maintenance.unsynced);
        let outcome = files.iter().try_for_each(|((_, first), queue)| queue.sync(*first));
        if outcome.is_err() {
            maintenance.unsure = files; // what the system could not write it may have forgotten: a second sync alone would prove nothing
        }
        outcome.and_then(|()| self.sync_folders(maintenance))
    }

    fn sync_folders(&self, maintenance: &mut Maintenance) -> Result<(), StoreError> {
        while let Some(folder) = maintenance.changed_folders.pop_first() {
            if self.files.fs.exists(&folder)
                && let Err(error) = self.files.fs.sync_dir(&folder)
            {
                let failed = failed("sync", &folder)(error);
                maintenance.changed_folders.insert(folder);
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Whether files of queues were removed by somebody: the log must be dispatched again from its beginning.
    pub(super) fn has_lost_files(&self) -> bool {
        self.files.lost.load(Ordering::Acquire)
    }

    /// Bytes of tails that wait for a flush.
    pub(super) fn dirty_bytes(&self) -> usize {
        self.files.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Units that readers found damaged since the last call.
    pub(super) fn take_damage(&self) -> Vec<(Arc<ConsumeQueue>, i64)> {
        std::mem::take(&mut self.files.damage.lock().found)
    }

    /// How many appends the queues of these topics (ascending) have numbered. Rises with each; certain only under the put lock.
    pub(super) fn numbered(&self, topics: &[&str]) -> i64 {
        let of_shard = |shard: &RwLock<Shard>| -> i64 {
            let shard = shard.read();
            shard
                .values()
                .flatten()
                .filter(|queue| topics.binary_search(&queue.topic()).is_ok())
                .map(|queue| queue.next_append_offset())
                .sum()
        };
        self.shards.iter().map(of_shard).sum()
    }

    /// Removes the queues of topics (ascending), in memory and on disk. What is new in the topics from then on begins with new queues, which reach
    /// the disk after the old ones have gone from there. `enter` is called in between and gives a guard that keeps the put lock while the
    /// queues go from memory; or nothing, and nothing is removed. Returns whether it did.
    ///
    /// # Errors
    /// Those of `enter`; the system's.
    pub(super) fn delete_topics<G>(
        &self, topics: &[&str], enter: impl FnOnce() -> Result<Option<G>, StoreError>,
    ) -> Result<bool, StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        let Some(guard) = enter()? else { return Ok(false) };
        self.detach(&mut maintenance, |queue| topics.binary_search(&queue.topic()).is_ok());
        drop(guard);
        let mut outcome = Ok(());
        for topic in topics.iter().filter(|topic| is_one_component(topic)) {
            outcome = outcome.and(self.remove_folder(&self.files.root.join(topic), &self.files.root));
        }
        outcome.map(|()| true)
    }

    fn detach(&self, maintenance: &mut Maintenance, goes: impl Fn(&ConsumeQueue) -> bool) {
        for shard in &self.shards {
            if !shard.read().values().flatten().any(|queue| goes(queue)) {
                continue;
            }
            shard.write().retain(|_, queues| {
                queues.retain(|queue| {
                    let goes = goes(queue);
                    if goes {
                        queue.removed(maintenance);
                    }
                    !goes
                });
                !queues.is_empty()
            });
        }
    }

    /// Durably: units that come back with a crash would stand for records that took their places in the log since.
    fn remove_folder(&self, folder: &Path, parent: &Path) -> Result<(), StoreError> {
        if self.files.fs.exists(folder) {
            self.files.fs.remove_dir_all(folder).map_err(failed("remove", folder))?;
            self.files.fs.sync_dir(parent).map_err(failed("sync", parent))?;
        }
        Ok(())
    }

    /// At start: takes out what lies below the marks of deleted topics, should a crash have left it. A queue with units on both
    /// sides, whose deletion was cut short, keeps its numbering.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn remove_deleted(&self, marks: &Marks) -> Result<(), StoreError> {
        let mut maintenance = self.files.maintenance.lock();
        let marked = |queue: &ConsumeQueue| marks.of(queue.topic()) > 0;
        let hidden = |queue: &ConsumeQueue| marked(queue) && marks.hide(queue.topic(), queue.max_physical_offset() - 1);
        for queue in self.all() {
            if hidden(&queue) {
                let topic = self.files.root.join(queue.topic());
                self.remove_folder(&topic.join(queue.queue_id().to_string()), &topic)?;
            } else if marked(&queue) {
                queue.clean(marks.of(queue.topic()), &mut maintenance)?;
            }
        }
        self.detach(&mut maintenance, hidden);
        Ok(())
    }
}

impl Drop for ConsumeQueueTable {
    /// The lists hold queues that hold the lists.
    fn drop(&mut self) {
        self.files.dirty.lock().clear();
        let mut maintenance = self.files.maintenance.lock();
        maintenance.unsynced.clear();
        maintenance.unsure.clear();
        self.files.damage.lock().found.clear();
    }
}

/// Whether a topic can name a folder and cannot lead out of its parent.
pub(super) fn is_one_component(topic: &str) -> bool {
    !matches!(topic, "" | "." | "..") && topic.len() <= 255 && !topic.bytes().any(|byte| matches!(byte, b'/' | 0))
}

fn find(queues: &[Arc<ConsumeQueue>], topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
    queues.iter().find(|queue| queue.queue_id() == queue_id && queue.topic() == topic).cloned()
}

fn max_physical(shard: &Shard) -> i64 {
    shard.values().flatten().map(|queue| queue.max_physical_offset()).max().unwrap_or(-1)
}

// ---- load ----

/// Queues to recover, shared by the threads that do it.
struct Recovery {
    files: Arc<QueueFiles>,
    found: Arc<Vec<(String, i32)>>,
    next: AtomicUsize,
    done: Mutex<Vec<Result<RecoveredQueue, StoreError>>>,
}

impl Recovery {
    fn run(&self) {
        while let Some((topic, queue_id)) = self.found.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = ConsumeQueue::recover(&self.files, topic, *queue_id);
            self.done.lock().push(outcome);
        }
    }
}

/// Queues of kinds that are not read must not be taken for empty ones. Batch queues end the start. Extension files may stay aside: a unit
/// whose tags lie there is filtered by its message's own.
fn look_for_other_kinds(config: &StoreConfig, fs: &dyn Fs) -> Result<(), StoreError> {
    let batch = config.root.join("batchconsumequeue");
    let mut topics: Vec<String> = find_queues(fs, &batch)?.into_iter().map(|(topic, _)| topic).collect();
    topics.dedup();
    if !topics.is_empty() {
        let why = format!(
            "batch consume queues (queue.type=BatchCQ) cannot be read, and {} topics have them: {}; move the folder away to serve all other \
             topics without their messages",
            topics.len(),
            topics[..topics.len().min(NAMED_FAILURES)].join(", ")
        );
        return Err(StoreError::Damaged(batch, why));
    }
    let extension = config.root.join("consumequeue_ext");
    if !find_queues(fs, &extension)?.is_empty() {
        log::warn!("extension files of consume queues are not read, filters look into the messages: path={}", extension.display());
    }
    Ok(())
}

/// Topic and id of every queue that has a folder below `root`.
fn find_queues(fs: &dyn Fs, root: &Path) -> Result<Vec<(String, i32)>, StoreError> {
    let mut found = Vec::new();
    for (topic_folder, is_folder) in fs.list(root).map_err(failed("list", root))? {
        let Some(topic) = topic_folder.file_name().and_then(|name| name.to_str()).filter(|_| is_folder) else {
            continue; // a plain file, or a name that is no text
        };
        for (folder, is_folder) in fs.list(&topic_folder).map_err(failed("list", &topic_folder))? {
            let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match name.parse::<i32>() {
                Ok(queue_id) if is_folder && queue_id >= 0 && queue_id.to_string() == name => found.push((topic.to_owned(), queue_id)),
                _ => {}
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
