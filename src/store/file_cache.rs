//! Open consume-queue files, a bounded number of them.
//!
//! A store may have far more files than a process may have descriptors. Files that were not used for a while give way
//! (second-chance order, close to least recently used); whoever still holds one keeps it open.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::StoreError;
use super::fs::FsFile;

const SHARDS: usize = 16;
/// Used when the system does not tell its limit.
const DEFAULT_DESCRIPTORS: u64 = 1024;

/// A queue's number in this process, and the first unit of the file.
pub(super) type FileKey = (u64, i64);

/// The open files.
pub(super) struct FileCache {
    shards: Vec<Mutex<Shard>>,
    capacity_of_shard: usize,
}

#[derive(Default)]
struct Shard {
    places: HashMap<FileKey, usize, foldhash::fast::RandomState>,
    entries: Vec<Entry>,
    free: Vec<usize>,
    hand: usize,
}

struct Entry {
    key: FileKey,
    file: Option<Arc<dyn FsFile>>,
    used: bool,
}

impl FileCache {
    /// A cache of at most `capacity` files (at least one per shard).
    pub(super) fn new(capacity: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, capacity_of_shard: (capacity / SHARDS).max(1) }
    }

    /// The share of the process's descriptors that consume queues may hold: a quarter.
    pub(super) fn capacity_of_process() -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(DEFAULT_DESCRIPTORS);
        usize::try_from(limit / 4).unwrap_or(usize::MAX).min(1 << 16)
    }

    /// A file that is open.
    pub(super) fn get(&self, key: FileKey) -> Option<Arc<dyn FsFile>> {
        let mut shard = self.shard(key.0).lock();
        let place = *shard.places.get(&key)?;
        let entry = &mut shard.entries[place];
        entry.used = true;
        entry.file.clone()
    }

    /// Remembers a file that was just opened; another may be closed for it.
    pub(super) fn insert(&self, key: FileKey, file: Arc<dyn FsFile>) {
        let replaced = self.shard(key.0).lock().insert(key, file, self.capacity_of_shard);
        drop(replaced); // closed without the lock
    }

    /// Forgets a file that is about to be removed.
    pub(super) fn remove(&self, key: FileKey) {
        let file = self.shard(key.0).lock().remove(key);
        drop(file);
    }

    /// Forgets all files of a queue.
    pub(super) fn remove_queue(&self, queue: u64) {
        let mut shard = self.shard(queue).lock();
        let keys: Vec<FileKey> = shard.places.keys().filter(|key| key.0 == queue).copied().collect();
        for key in keys {
            shard.remove(key);
        }
    }

    fn shard(&self, queue: u64) -> &Mutex<Shard> {
        &self.shards[queue as usize % SHARDS]
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().places.len()).sum()
    }
}

impl Shard {
    fn insert(&mut self, key: FileKey, file: Arc<dyn FsFile>, capacity: usize) -> Option<Arc<dyn FsFile>> {
        if let Some(&place) = self.places.get(&key) {
            return self.entries[place].file.replace(file);
        }
        let entry = Entry { key, file: Some(file), used: false };
        if let Some(place) = self.free.pop() {
            self.entries[place] = entry;
            self.places.insert(key, place);
            return None;
        }
        if self.entries.len() < capacity {
            self.places.insert(key, self.entries.len());
            self.entries.push(entry);
            return None;
        }
        while std::mem::take(&mut self.entries[self.hand].used) {
            self.hand = (self.hand + 1) % self.entries.len();
        }
        let place = self.hand;
        self.hand = (place + 1) % self.entries.len();
        self.places.remove(&self.entries[place].key);
        self.places.insert(key, place);
        std::mem::replace(&mut self.entries[place], entry).file
    }

    fn remove(&mut self, key: FileKey) -> Option<Arc<dyn FsFile>> {
        let place = self.places.remove(&key)?;
        self.free.push(place);
        self.entries[place].used = false;
        self.entries[place].file.take()
    }
}

/// Names the operation and the path of a system error.
pub(super) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |error| StoreError::Io(what, path.to_owned(), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::{Fs, RealFs};

    #[test]
    fn what_is_used_stays_and_the_number_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealFs.open(&folder.path().join("file"), true).unwrap();
        let cache = FileCache::new(4 * SHARDS);
        let queue = 5; // one shard
        for first in 0..100 {
            cache.insert((queue, first), Arc::clone(&file));
            assert!(first == 0 || cache.get((queue, 0)).is_some(), "file 0 was used after {first} others");
        }
        assert_eq!(cache.len(), 4);
        assert!(cache.get((queue, 99)).is_some() && cache.get((queue, 50)).is_none());
        cache.remove((queue, 99));
        assert!(cache.get((queue, 99)).is_none());
        cache.insert((queue, 200), Arc::clone(&file));
        cache.remove_queue(queue);
        assert_eq!((cache.len(), Arc::strong_count(&file)), (0, 1));
        for first in 0..100 {
            cache.insert((queue, first), Arc::clone(&file));
        }
        assert_eq!(cache.len(), 4);
    }
}
