//! The commit log: every message, in files of equal size, as readers see it.
//!
//! Three positions, each an atomic that only rises: `flushed <= max`, and `visible` is one of them by the flush mode.
//! - `max` is moved by the appender, under the put lock, after the bytes are in the page cache.
//! - `flushed` is moved by the flush thread, after fdatasync of every file up to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;

use crate::common::record;

use super::mapped_file::MappedFile;
use super::mapped_file_queue::MappedFileQueue;

/// The log as readers see it.
#[derive(Debug)]
pub(super) struct CommitLog {
    files: MappedFileQueue,
    sync_flush: bool,
    max: AtomicI64,
    flushed: AtomicI64,
    last_store_timestamp: AtomicI64,
}

impl CommitLog {
    /// The log as recovery left it: `end` is behind the last record, all before it is on disk. With `sync_flush` only what is
    /// flushed is visible.
    pub(super) fn new(file_size: usize, files: Vec<Arc<MappedFile>>, end: i64, last_store_timestamp: i64, sync_flush: bool) -> Self {
        Self {
            files: MappedFileQueue::new(file_size, files),
            sync_flush,
            max: AtomicI64::new(end),
            flushed: AtomicI64::new(end),
            last_store_timestamp: AtomicI64::new(last_store_timestamp),
        }
    }

    /// Its files.
    pub(super) fn files(&self) -> &MappedFileQueue {
        &self.files
    }

    /// Whether only what is flushed is visible.
    pub(super) fn is_sync_flush(&self) -> bool {
        self.sync_flush
    }

    /// Start of the first file; the end of the log when it has no file.
    pub(super) fn min_offset(&self) -> i64 {
        self.files.first().map_or_else(|| self.max_offset(), |file| file.start())
    }

    /// Behind the last record appended.
    pub(super) fn max_offset(&self) -> i64 {
        self.max.load(Ordering::Acquire)
    }

    /// Behind the last byte known to be on disk.
    pub(super) fn flushed_offset(&self) -> i64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Behind the last record that may be dispatched: flushed (SYNC_FLUSH) or appended (ASYNC_FLUSH).
    pub(super) fn visible_offset(&self) -> i64 {
        if self.sync_flush { self.flushed_offset() } else { self.max_offset() }
    }

    /// Store time of the last record appended; 0 when there was none.
    pub(super) fn last_store_timestamp(&self) -> i64 {
        self.last_store_timestamp.load(Ordering::Acquire)
    }

    /// The appender wrote up to `max`, the last record at `store_timestamp`. Only under the put lock.
    pub(super) fn set_max(&self, max: i64, store_timestamp: i64) {
        self.max.store(max, Ordering::Release);
        self.last_store_timestamp.store(store_timestamp, Ordering::Release);
    }

    /// Everything up to `flushed` is on disk. Only the flush thread.
    pub(super) fn set_flushed(&self, flushed: i64) {
        self.flushed.store(flushed, Ordering::Release);
    }

    /// `len` bytes at `offset`, if they lie in one file between min and max offset. The slice keeps its file mapped.
    pub(super) fn slice(&self, offset: i64, len: usize) -> Option<Bytes> {
        let file = self.files.find(offset)?;
        file.slice((offset - file.start()) as usize, len)
    }

    /// From `offset` to the end of its file or of the log (whichever comes first); `None` outside the log.
    pub(super) fn slice_to_end(&self, offset: i64) -> Option<Bytes> {
        let file = self.files.find(offset)?;
        let at = (offset - file.start()) as usize;
        let len = file.wrote().checked_sub(at).filter(|len| *len > 0)?;
        file.slice(at, len)
    }

    /// Start of the file behind the one that holds `offset`.
    pub(super) fn next_file_start(&self, offset: i64) -> i64 {
        let size = self.files.file_size() as i64;
        self.files.start_behind(offset).unwrap_or_else(|| offset - offset.rem_euclid(size) + size)
    }

    /// Whether the record's pages are in memory; `true` when the system does not say.
    pub(super) fn is_resident(&self, offset: i64, len: usize) -> bool {
        self.files.find(offset).is_none_or(|file| file.is_resident((offset - file.start()) as usize, len))
    }

    /// Store time of the record at `offset`; -1 when it cannot be read.
    pub(super) fn store_time(&self, offset: i64, size: i32) -> i64 {
        let Some(slice) = usize::try_from(size).ok().filter(|size| *size >= record::MIN_SIZE).and_then(|size| self.slice(offset, size))
        else {
            return -1;
        };
        store_time_of(&slice).unwrap_or(-1)
    }
}

/// Store time of the record that starts `bytes`, of which at least the smallest record's length must be there.
pub(super) fn store_time_of(bytes: &[u8]) -> Option<i64> {
    let magic = i32::from_be_bytes(*bytes.get(record::MAGIC..)?.first_chunk()?);
    if magic != record::MAGIC_V1 && magic != record::MAGIC_V2 {
        return None;
    }
    let sys_flag = i32::from_be_bytes(*bytes.get(record::SYS_FLAG..)?.first_chunk()?);
    Some(i64::from_be_bytes(*bytes.get(record::store_timestamp_at(sys_flag)..)?.first_chunk()?))
}
