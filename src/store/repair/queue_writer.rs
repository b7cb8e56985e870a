//! Consume queues written anew, from their first unit to their last, each in files of its own.
//!
//! A queue offset without a record keeps its unit where that points at a seal, or gets that of the nearest seal in front of it, which readers
//! skip; where there is none, a filler.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::check::{QueueState, UnitSink};
use crate::store::consume_queue::{CqUnit, MAX_GAP};
use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::format::cq_unit::CQ_UNIT_SIZE;
use crate::store::fs::Fs;
use crate::store::message_store::create_dir;

/// Bytes of units that wait in memory, of all queues together.
const MAX_DIRTY_BYTES: usize = 16 << 20;
/// Seals whose places are remembered: units of the records behind them get the nearest one.
const MAX_SEALS: usize = 1 << 20;
/// Bytes that wait of one queue: a gap may be long.
const MAX_DIRTY_OF_QUEUE: usize = 1 << 20;

/// Writes some queues.
pub(super) struct QueueWriters {
    fs: Arc<dyn Fs>,
    /// Folder of the queues.
    root: PathBuf,
    /// Bytes of a file.
    file_size: u64,
    queues: HashMap<Box<str>, HashMap<i32, QueueWriter>>,
    dirty_bytes: usize,
    seal: Option<CqUnit>,
    /// Sizes of the seals, by their starts.
    seals: HashMap<i64, i32>,
}

/// Writes one queue.
struct QueueWriter {
    folder: PathBuf,
    /// First unit that was not written yet.
    on_disk: i64,
    waiting: Vec<u8>,
    last_physical: i64,
    is_begun: bool,
}

impl QueueWriters {
    /// Writers of the given queues, below `root`.
    pub(super) fn new(fs: &Arc<dyn Fs>, root: PathBuf, file_size: u64, queues: &[&QueueState]) -> Self {
        let mut writers: HashMap<Box<str>, HashMap<i32, QueueWriter>> = HashMap::new();
        for QueueState { topic, queue_id, .. } in queues {
            let folder = root.join(topic).join(queue_id.to_string());
            writers.entry(topic.as_str().into()).or_default().insert(*queue_id, QueueWriter::new(folder));
        }
        Self { fs: Arc::clone(fs), root, file_size, queues: writers, dirty_bytes: 0, seal: None, seals: HashMap::new() }
    }

    fn folder(root: &Path, topic: &str, queue_id: i32) -> PathBuf {
        root.join(topic).join(queue_id.to_string())
    }

    fn units_per_file(&self) -> i64 {
        self.file_size as i64 / CQ_UNIT_SIZE as i64
    }

    fn push(&mut self, topic: &str, queue_id: i32, at: i64, unit: Option<CqUnit>) -> Result<(), StoreError> {
        let (units_per_file, seal, file_size) = (self.units_per_file(), self.seal, self.file_size);
        let Some(queue) = self.queues.get_mut(topic).and_then(|queues| queues.get_mut(&queue_id)) else { return Ok(()) };
        let before = queue.waiting.len();
        if !queue.is_begun {
            queue.is_begun = true;
            // at the first file's begin; a queue that ends with a file has its last unit in there
            let last = if unit.is_some() { at } else { at - 1 };
            queue.on_disk = last - last % units_per_file;
        }
        if at - queue.end() > units_per_file.max(MAX_GAP) {
            let why = format!("queue offset {at} is more than {MAX_GAP} behind the one before it, {}", queue.end());
            return Err(StoreError::Damaged(queue.folder.clone(), why));
        }
        while queue.end() < at {
            let stands_in = seal.filter(|seal| queue.last_physical >= 0 && seal.physical_offset > queue.last_physical);
            queue.waiting.extend_from_slice(&stands_in.unwrap_or(CqUnit::FILLER).encode());
            if queue.waiting.len() >= MAX_DIRTY_OF_QUEUE {
                queue.write(&*self.fs, file_size)?;
            }
        }
        if let Some(unit) = unit {
            queue.waiting.extend_from_slice(&unit.encode());
            queue.last_physical = unit.physical_offset;
        }
        self.dirty_bytes = self.dirty_bytes + queue.waiting.len() - before; // `before` bytes of it are of this queue
        if self.dirty_bytes > MAX_DIRTY_BYTES { self.write_all() } else { Ok(()) }
    }

    fn write_all(&mut self) -> Result<(), StoreError> {
        for queue in self.queues.values_mut().flat_map(HashMap::values_mut) {
            queue.write(&*self.fs, self.file_size)?;
        }
        self.dirty_bytes = 0;
        Ok(())
    }

    /// Brings each queue up to its end, makes all durable.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn finish(mut self, ends: &[QueueState]) -> Result<(), StoreError> {
        for QueueState { topic, queue_id, end, .. } in ends {
            if *end > 0 {
                self.push(topic, *queue_id, *end, None)?;
            }
        }
        self.write_all()?;
        for queue in self.queues.values_mut().flat_map(HashMap::values_mut) {
            queue.sync(&*self.fs)?;
        }
        let topics: Vec<PathBuf> = self.queues.keys().map(|topic| self.root.join(&**topic)).collect();
        for folder in topics.iter().chain([&self.root]).filter(|folder| self.fs.exists(folder)) {
            self.fs.sync_dir(folder).map_err(failed("sync", folder))?;
        }
        Ok(())
    }
}

impl UnitSink for QueueWriters {
    fn wants(&self, topic: &str, queue_id: i32) -> bool {
        self.queues.get(topic).is_some_and(|queues| queues.contains_key(&queue_id))
    }

    fn unit(&mut self, topic: &str, queue_id: i32, at: i64, unit: CqUnit) -> Result<(), StoreError> {
        self.push(topic, queue_id, at, Some(unit))
    }

    fn restart(&mut self, topic: &str, queue_id: i32) -> Result<(), StoreError> {
        let folder = Self::folder(&self.root, topic, queue_id);
        if self.fs.exists(&folder) {
            self.fs.remove_dir_all(&folder).map_err(failed("remove", &folder))?;
        }
        if let Some(queue) = self.queues.get_mut(topic).and_then(|queues| queues.get_mut(&queue_id)) {
            self.dirty_bytes = self.dirty_bytes.saturating_sub(queue.waiting.len());
            *queue = QueueWriter::new(folder);
        }
        Ok(())
    }

    fn unit_of_damage(&mut self, topic: &str, queue_id: i32, at: i64, unit: CqUnit) -> Result<(), StoreError> {
        let has_seal = self.seals.get(&unit.physical_offset) == Some(&unit.size);
        if has_seal { self.push(topic, queue_id, at, Some(unit)) } else { Ok(()) }
    }

    fn seal(&mut self, unit: CqUnit) {
        self.seal = Some(unit);
        if self.seals.len() < MAX_SEALS {
            self.seals.insert(unit.physical_offset, unit.size);
        }
    }
}

impl QueueWriter {
    fn new(folder: PathBuf) -> Self {
        Self { folder, on_disk: 0, waiting: Vec::new(), last_physical: -1, is_begun: false }
    }

    /// Behind the last unit.
    fn end(&self) -> i64 {
        self.on_disk + (self.waiting.len() / CQ_UNIT_SIZE) as i64
    }

    /// Writes what waits.
    fn write(&mut self, fs: &dyn Fs, file_size: u64) -> Result<(), StoreError> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = waiting.as_slice();
        while !rest.is_empty() {
            let at = self.on_disk as u64 * CQ_UNIT_SIZE as u64;
            let start = at - at % file_size;
            let (piece, behind) = rest.split_at(rest.len().min((start + file_size - at) as usize));
            let path = self.folder.join(format!("{start:020}"));
            if at == start {
                create_dir(fs, &self.folder)?;
            }
            let file = if at == start { fs.create_sized(&path, file_size) } else { fs.open(&path, false) };
            let file = file.map_err(failed("create", &path))?;
            file.write_all_at(piece, at - start).map_err(failed("write", &path))?;
            self.on_disk += (piece.len() / CQ_UNIT_SIZE) as i64;
            rest = behind;
        }
        Ok(())
    }

    fn sync(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        if !fs.exists(&self.folder) {
            return Ok(()); // it has no unit
        }
        for (path, _) in fs.list(&self.folder).map_err(failed("list", &self.folder))? {
            let file = fs.open(&path, false).map_err(failed("open", &path))?;
            file.sync_data().map_err(failed("sync", &path))?;
        }
        fs.sync_dir(&self.folder).map_err(failed("sync", &self.folder))
    }
}
