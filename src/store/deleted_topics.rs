//! Which records of the log belong to a topic that was deleted since: `config/deletedTopics.json`.
//!
//! The log keeps the records of a deleted topic until they expire, and whoever reads the log again must not make queues of
//! them. So a deletion leaves a mark: records of this topic below this physical offset count no more.
//! - A mark is durable before the topic's queues go, and before a new queue of the topic gives out a number.
//! - A mark never lies behind the log's end once the store is open: it would hide messages to come.
//! - A mark goes when the log begins at or behind it.
//! - Lock order: `change`, then `marks`, then the consume queues' maintenance lock, then the put lock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::error::StoreError;
use super::fs::Fs;

/// The only member of the file's object.
const MEMBER: &str = "deletedTopics";

/// Physical offset below which a topic's records count no more, by topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    by_topic: BTreeMap<String, i64>,
    /// The largest mark: most records lie behind it.
    largest: i64,
}

impl Marks {
    /// Whether the record of this topic at this physical offset was there when the topic was deleted.
    pub(super) fn hide(&self, topic: &str, physical_offset: i64) -> bool {
        physical_offset < self.largest && physical_offset < self.of(topic)
    }

    /// A topic's mark; 0 without one.
    pub(super) fn of(&self, topic: &str) -> i64 {
        self.by_topic.get(topic).copied().unwrap_or(0)
    }

    /// Topics and their marks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.by_topic.iter().map(|(topic, mark)| (topic.as_str(), *mark))
    }

    fn new(by_topic: BTreeMap<String, i64>) -> Self {
        let largest = by_topic.values().copied().max().unwrap_or(0);
        Self { by_topic, largest }
    }

    /// With marks for these topics, which never fall.
    pub(super) fn with(&self, topics: &[&str], mark: i64) -> Self {
        let mut by_topic = self.by_topic.clone();
        for topic in topics {
            let there = by_topic.entry((*topic).to_owned()).or_insert(mark);
            *there = mark.max(*there);
        }
        Self::new(by_topic)
    }

    /// Those that say something about a log of this range.
    fn within(&self, min_offset: i64, end: i64) -> Self {
        Self::new(self.iter().map(|(topic, mark)| (topic.to_owned(), end.min(mark))).filter(|(_, mark)| *mark > min_offset).collect())
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut file: BTreeMap<String, BTreeMap<String, i64>> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        file.remove(MEMBER).map(Self::new).ok_or_else(|| format!("no member {MEMBER}"))
    }

    fn encode(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec_pretty(&BTreeMap::from([(MEMBER, &self.by_topic)])).map_err(|error| error.to_string())
    }
}

/// The marks in memory and on disk.
pub(super) struct DeletedTopics {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    marks: RwLock<Marks>,
    /// What the file says. Whoever holds it is the only one who changes marks.
    change: Mutex<Marks>,
}

impl DeletedTopics {
    /// Reads the file below `root`; no marks when there is none.
    ///
    /// # Errors
    /// The system's; a file that is none of ours: without its marks, messages of today could lose their numbers to deleted ones.
    pub(super) fn load(root: &Path, fs: Arc<dyn Fs>) -> Result<Self, StoreError> {
        let path = root.join("config").join("deletedTopics.json");
        let mut marks = Marks::default();
        if fs.exists(&path) {
            let failed = |error| StoreError::Io("read", path.clone(), error);
            let file = fs.open(&path, false).map_err(failed)?;
            let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?).unwrap_or(0)];
            file.read_exact_at(&mut bytes, 0).map_err(failed)?;
            marks = Marks::parse(&bytes).map_err(|why| {
                let why = format!("cannot be read: {why}; repair it, or remove it to have the messages of deleted topics back");
                StoreError::Damaged(path.clone(), why)
            })?;
        }
        Ok(Self { fs, path, marks: RwLock::new(marks.clone()), change: Mutex::new(marks) })
    }

    /// After an abrupt stop: the last process may have died before the file's name was durable, and the marks are about to be acted on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn make_durable(&self) -> Result<(), StoreError> {
        let folder = self.path.parent().filter(|folder| self.fs.exists(folder));
        for folder in folder.into_iter().flat_map(|folder| [Some(folder), folder.parent()]).flatten() {
            self.fs.sync_dir(folder).map_err(|error| StoreError::Io("sync", folder.to_owned(), error))?;
        }
        Ok(())
    }

    /// The marks as they count now. As long as the guard lives no deletion takes effect.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Marks> {
        self.marks.read()
    }

    /// Nobody looks at marks as long as the guard lives: they may change, and with them what they speak of.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Marks> {
        self.marks.write()
    }

    /// Makes the caller the only one who changes marks.
    pub(super) fn change(&self) -> MutexGuard<'_, Marks> {
        self.change.lock()
    }

    /// Makes `marks` durable; they do not count yet.
    ///
    /// # Errors
    /// The system's; the file is as it was.
    pub(super) fn store(&self, stored: &mut Marks, marks: Marks) -> Result<(), StoreError> {
        if *stored == marks {
            return Ok(());
        }
        let bytes = marks.encode().map_err(|why| StoreError::Damaged(self.path.clone(), why))?;
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Io(what, path, error)
        };
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if !self.fs.exists(folder) {
            self.fs.create_dir_all(folder).map_err(failed("create", folder))?;
            let above = folder.parent().unwrap_or(Path::new("."));
            self.fs.sync_dir(above).map_err(failed("sync", above))?;
        }
        let fresh = self.path.with_extension("json.tmp");
        let file = self.fs.open(&fresh, true).map_err(failed("create", &fresh))?;
        let written = file.set_len(0).and_then(|()| file.write_all_at(&bytes, 0)).and_then(|()| file.sync_data());
        written.map_err(failed("write", &fresh))?;
        self.fs.rename(&fresh, &self.path).map_err(failed("replace", &self.path))?;
        self.fs.sync_dir(folder).map_err(failed("sync", folder))?;
        *stored = marks;
        Ok(())
    }

    /// The log was recovered and ends at `end`: no mark may lie behind it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn settle(&self, min_offset: i64, end: i64) -> Result<(), StoreError> {
        let mut stored = self.change();
        let marks = stored.within(min_offset, end);
        if stored.iter().any(|(_, mark)| mark > end) {
            log::warn!("marks of deleted topics lie behind the end of the log and are moved there: path={} end={end}", self.path.display());
            self.store(&mut stored, marks.clone())?;
        }
        *self.write() = marks;
        Ok(())
    }

    /// The log begins at `min_offset` now: marks that hide nothing any more go.
    pub(super) fn clean(&self, min_offset: i64) {
        let mut stored = self.change();
        let marks = stored.within(min_offset, i64::MAX);
        *self.write() = marks.clone();
        if let Err(error) = self.store(&mut stored, marks) {
            log::warn!("marks of deleted topics are kept longer: {error}");
        }
    }
}
