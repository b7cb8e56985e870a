//! Doubles for this module's tests: a plain file system whose writes can be made to fail, and a commit log in memory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::common::record::{self, Draft};

use super::deleted_topics::DeletedTopics;
use super::fs::{Fs, FsFile, RealFs, Space};
use super::reading::LogView;

/// The machine's file system, which can be made to run full and to fail its syncs.
#[derive(Debug, Default)]
pub(super) struct TestFs {
    pub(super) real: RealFs,
    pub(super) trouble: Arc<Trouble>,
}

/// Switches of a [`TestFs`].
#[derive(Debug, Default)]
pub(super) struct Trouble {
    pub(super) full: AtomicBool,
    pub(super) sync_fails: AtomicBool,
    /// Free bytes of the disk, when not 0.
    pub(super) free: AtomicU64,
    /// What is reserved comes off `free`.
    pub(super) free_shrinks: AtomicBool,
    /// Files can be created, but nothing can be written.
    pub(super) no_content: AtomicBool,
    /// Reserving blocks is not possible.
    pub(super) cannot_allocate: AtomicBool,
    pub(super) writes: AtomicUsize,
    pub(super) open_files: AtomicUsize,
}

#[derive(Debug)]
struct TestFile {
    file: Arc<dyn FsFile>,
    trouble: Arc<Trouble>,
}

impl Drop for TestFile {
    fn drop(&mut self) {
        self.trouble.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Trouble {
    fn check_space(&self) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Fs for TestFs {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>> {
        if create && !path.exists() {
            self.trouble.check_space()?;
        }
        let file = self.real.open(path, create)?;
        self.trouble.open_files.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(TestFile { file, trouble: Arc::clone(&self.trouble) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            self.trouble.check_space()?;
        }
        self.real.create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.real.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.real.remove_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        self.real.list(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.real.exists(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let space = self.real.space(path)?;
        match self.trouble.free.load(Ordering::Relaxed) {
            0 => Ok(space),
            free => Ok(Space { free, ..space }),
        }
    }
}

impl FsFile for TestFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.trouble.writes.fetch_add(1, Ordering::Relaxed);
        if self.trouble.no_content.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Err(error) = self.trouble.check_space() {
            self.file.write_all_at(&bytes[..bytes.len() / 2], at)?; // a full disk takes a part
            return Err(error);
        }
        self.file.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.trouble.sync_fails.load(Ordering::Relaxed) { Err(io::Error::other("EIO")) } else { Ok(()) }
    }

    fn write_back(&self, at: u64, len: u64) -> io::Result<()> {
        self.file.write_back(at, len)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        if self.trouble.cannot_allocate.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.trouble.check_space()?;
        if self.trouble.no_content.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.trouble.free_shrinks.load(Ordering::Relaxed) {
            let less = |free: u64| Some(free.saturating_sub(len).max(1));
            let _ = self.trouble.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        self.file.allocate(at, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
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

/// No deleted topics.
pub(super) fn deleted(root: &Path) -> Arc<DeletedTopics> {
    Arc::new(DeletedTopics::load(root, RealFs::shared()).unwrap())
}

/// A commit log in memory.
pub(super) struct VecLog {
    pub(super) file_size: i64,
    pub(super) bytes: Mutex<Vec<u8>>,
    pub(super) min: AtomicI64,
    pub(super) visible: AtomicI64,
    /// Start of a file that cannot be read; -1 for none.
    pub(super) unreadable: AtomicI64,
}

impl VecLog {
    pub(super) fn new(file_size: i64) -> Self {
        Self { file_size, bytes: Mutex::default(), min: AtomicI64::new(0), visible: AtomicI64::new(0), unreadable: AtomicI64::new(-1) }
    }

    /// Appends a record, visible at once; returns its physical offset and size.
    pub(super) fn append(&self, draft: &Draft<'_>, queue_offset: i64, store_timestamp: i64) -> (i64, i32) {
        let mut encoded = Vec::new();
        draft.encode(&mut encoded);
        let mut bytes = self.bytes.lock();
        let room = self.file_size - bytes.len() as i64 % self.file_size;
        if (encoded.len() + record::BLANK_SIZE) as i64 > room {
            bytes.extend_from_slice(&(room as i32).to_be_bytes());
            bytes.extend_from_slice(&record::MAGIC_BLANK.to_be_bytes());
            let next = bytes.len().next_multiple_of(self.file_size as usize);
            bytes.resize(next, 0);
        }
        let at = bytes.len() as i64;
        record::place(&mut encoded, queue_offset, at, store_timestamp);
        bytes.extend_from_slice(&encoded);
        self.visible.store(bytes.len() as i64, Ordering::Release);
        (at, encoded.len() as i32)
    }
}

/// A draft with the usual fields.
pub(super) fn draft<'a>(topic: &'a str, queue_id: i32, properties: &'a str, body: &'a [u8]) -> Draft<'a> {
    let host = ([127, 0, 0, 1], 10911).into();
    Draft {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: properties.as_bytes(),
    }
}

impl LogView for VecLog {
    fn min_offset(&self) -> i64 {
        self.min.load(Ordering::Acquire)
    }

    fn max_offset(&self) -> i64 {
        self.bytes.lock().len() as i64
    }

    fn visible_offset(&self) -> i64 {
        self.visible.load(Ordering::Acquire)
    }

    fn slice(&self, offset: i64, len: usize) -> Option<Bytes> {
        let whole = self.slice_to_end(offset)?;
        (len <= whole.len()).then(|| whole.slice(..len))
    }

    fn slice_to_end(&self, offset: i64) -> Option<Bytes> {
        if self.unreadable.load(Ordering::Acquire) == offset - offset % self.file_size {
            return None;
        }
        let bytes = self.bytes.lock();
        let end = (bytes.len() as i64).min(self.next_file_start(offset));
        (offset >= self.min_offset() && offset < end).then(|| Bytes::copy_from_slice(&bytes[offset as usize..end as usize]))
    }

    fn next_file_start(&self, offset: i64) -> i64 {
        (offset - offset % self.file_size).saturating_add(self.file_size)
    }

    fn store_time(&self, offset: i64, size: i32) -> i64 {
        let Some(bytes) = self.slice(offset, size as usize) else { return -1 };
        record::Record::parse(&bytes).map_or(-1, |record| record.store_timestamp)
    }
}
