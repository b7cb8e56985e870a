//! Doubles for this module's tests: a plain file system whose writes can be made to fail, and a commit log in memory.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::common::record::{self, Draft};

use super::fs::{Fs, FsFile, Space};
use super::reading::LogView;

/// The real file system.
#[derive(Debug, Default)]
pub(super) struct TestFs {
    pub(super) full: Arc<AtomicBool>,
    pub(super) sync_fails: Arc<AtomicBool>,
    pub(super) writes: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct TestFile {
    file: std::fs::File,
    full: Arc<AtomicBool>,
    sync_fails: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
}

impl TestFs {
    fn check_space(&self) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Fs for TestFs {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>> {
        if create {
            self.check_space()?;
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        Ok(Arc::new(TestFile {
            file,
            full: Arc::clone(&self.full),
            sync_fails: Arc::clone(&self.sync_fails),
            writes: Arc::clone(&self.writes),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check_space()?;
        std::fs::create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path)?.sync_all()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let entries = match std::fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            found.push((entry.path(), entry.file_type()?.is_dir()));
        }
        found.sort();
        Ok(found)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(Space { total: 1 << 40, free: 1 << 39 })
    }
}

impl FsFile for TestFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.sync_fails.load(Ordering::Relaxed) { Err(io::Error::other("EIO")) } else { Ok(()) }
    }

    fn write_back(&self, _at: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _at: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn modified_ms(&self) -> io::Result<i64> {
        Ok(0)
    }

    fn as_std(&self) -> Option<&std::fs::File> {
        Some(&self.file)
    }
}

/// A commit log in memory.
pub(super) struct VecLog {
    pub(super) file_size: i64,
    pub(super) bytes: Mutex<Vec<u8>>,
    pub(super) min: AtomicI64,
    pub(super) visible: AtomicI64,
}

impl VecLog {
    pub(super) fn new(file_size: i64) -> Self {
        Self { file_size, bytes: Mutex::default(), min: AtomicI64::new(0), visible: AtomicI64::new(0) }
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
        let bytes = self.bytes.lock();
        let end = (bytes.len() as i64).min(self.next_file_start(offset));
        (offset >= self.min_offset() && offset < end).then(|| Bytes::copy_from_slice(&bytes[offset as usize..end as usize]))
    }

    fn next_file_start(&self, offset: i64) -> i64 {
        offset - offset % self.file_size + self.file_size
    }

    fn store_time(&self, offset: i64, size: i32) -> i64 {
        let Some(bytes) = self.slice(offset, size as usize) else { return -1 };
        record::Record::parse(&bytes).map_or(-1, |record| record.store_timestamp)
    }
}
