//! One file of the commit log: mapped as a whole, written by its single appender, read by everybody.
//!
//! - A file has its full length from its creation on and is never shortened while it is mapped.
//! - Readers see `[0, wrote)`, which is never written again.
//! - Bytes go in by `pwrite`, or by a copy into the map where the blocks are known to be allocated: a full disk is an error
//!   of `fallocate` or `pwrite`, never a signal. The map and the file are coherent on Linux, so readers cannot tell.
//! - Preparing a range ahead of the appender never changes bytes, so it needs no agreement with the appender.
#![allow(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use memmap2::{Advice, MmapOptions, MmapRaw};
use parking_lot::Mutex;

use super::error::StoreError;
use super::fs::{Fs, FsFile};

/// Positions of pages are multiples of this everywhere in the formats.
pub(super) const PAGE_SIZE: usize = 4096;

/// Types of file systems (`statfs`) that write a page where its block already is, so that storing through the map into an
/// allocated block can never need new space: ext2 to ext4, tmpfs, XFS.
const IN_PLACE: [rustix::fs::FsWord; 3] = [EXT, TMPFS, 0x5846_5342];
/// Of them, those that let a page be stored into although they have stopped writing because of an error (seen); others may answer with
/// a signal.
const STORABLE: [rustix::fs::FsWord; 2] = [EXT, TMPFS];
const EXT: rustix::fs::FsWord = 0xEF53;
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A file of the log.
#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    start: i64,
    file: Arc<dyn FsFile>,
    map: MmapRaw,
    /// Readers see the bytes before this position.
    wrote: AtomicUsize,
    /// The appender may copy through the map between `wrote` and this position.
    mappable: AtomicUsize,
    /// Whether pages are written where their blocks are.
    in_place: bool,
    /// Whether the file may be written through the map.
    storable: bool,
    /// The entry in the folder is not known to be durable.
    new_entry: AtomicBool,
    /// A sync has failed: no later one means anything. Whoever syncs holds it, since the system tells of a failure once.
    sync_failure: Mutex<Option<String>>,
    /// The appender has been given out.
    appended: AtomicBool,
}

impl MappedFile {
    /// Creates a file of `size` bytes for the log from `start` on, sparse, or takes the one that is there. Nothing is durable yet. One at a time.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn create(fs: &dyn Fs, path: &Path, start: i64, size: usize) -> Result<Self, StoreError> {
        let failed = |what| move |error| StoreError::Io(what, path.to_owned(), error);
        let file = if fs.exists(path) {
            // never in the place of another: someone may append to it already
            let file = fs.open(path, true).map_err(failed("create"))?;
            file.set_len(size as u64).map_err(failed("extend"))?;
            file
        } else {
            fs.create_sized(path, size as u64).map_err(failed("create"))?
        };
        let mapped = Self::map(file, path, start, size, 0)?;
        mapped.new_entry.store(true, Ordering::Release);
        Ok(mapped)
    }

    /// Maps a file whose first `wrote` bytes are the log's. Its length must be `size`.
    ///
    /// # Errors
    /// The system's; a length that differs.
    pub(super) fn map(file: Arc<dyn FsFile>, path: &Path, start: i64, size: usize, wrote: usize) -> Result<Self, StoreError> {
        let failed = |what| move |error| StoreError::Io(what, path.to_owned(), error);
        let len = file.len().map_err(failed("look at"))?;
        if len != size as u64 || wrote > size {
            return Err(StoreError::Damaged(path.to_owned(), format!("the file has {len} bytes instead of {size}")));
        }
        let std = file.as_std().ok_or_else(|| failed("map")(io::ErrorKind::Unsupported.into()))?;
        let kind = rustix::fs::fstatfs(std).map_or(0, |disk| disk.f_type);
        let map = MmapOptions::new().len(size).map_raw(std).map_err(failed("map"))?;
        Ok(Self {
            path: path.to_owned(),
            start,
            file,
            map,
            wrote: AtomicUsize::new(wrote),
            mappable: AtomicUsize::new(0),
            in_place: IN_PLACE.contains(&kind),
            storable: STORABLE.contains(&kind),
            new_entry: AtomicBool::new(false),
            sync_failure: Mutex::default(),
            appended: AtomicBool::new(false),
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder it lies in.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Physical offset of its first byte.
    pub(super) fn start(&self) -> i64 {
        self.start
    }

    /// Length.
    pub(super) fn size(&self) -> usize {
        self.map.len()
    }

    /// Physical offset behind its last byte.
    pub(super) fn end(&self) -> i64 {
        self.start + self.map.len() as i64
    }

    /// Position behind the last byte that readers see.
    pub(super) fn wrote(&self) -> usize {
        self.wrote.load(Ordering::Acquire)
    }

    /// Where it is stored.
    pub(super) fn file(&self) -> &Arc<dyn FsFile> {
        &self.file
    }

    /// fdatasync.
    ///
    /// # Errors
    /// The system's, from then on for ever: what was dirty may be forgotten.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut failure = self.sync_failure.lock();
        if let Some(why) = &*failure {
            return Err(io::Error::other(why.clone()));
        }
        self.file.sync_data().inspect_err(|error| *failure = Some(error.to_string()))
    }

    /// Makes length, content and the entry in the folder durable, if the entry may not be.
    ///
    /// # Errors
    /// The system's; nothing is known to be durable then.
    pub(super) fn make_durable(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        if self.new_entry.load(Ordering::Acquire) {
            let dir = self.path.parent().unwrap_or(Path::new("."));
            self.sync().map_err(|error| StoreError::Io("sync", self.path.clone(), error))?;
            fs.sync_dir(dir).map_err(|error| StoreError::Io("sync", dir.to_owned(), error))?;
            self.new_entry.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// `len` bytes at position `at`, if they have been written. The slice keeps the file mapped.
    pub(super) fn slice(self: &Arc<Self>, at: usize, len: usize) -> Option<Bytes> {
        let end = at.checked_add(len)?;
        (end <= self.wrote()).then(|| Bytes::from_owner(Slice { file: Arc::clone(self), at, len }))
    }

    /// The only appender of this file; `None` when it has been given out.
    pub(super) fn appender(self: &Arc<Self>) -> Option<Appender> {
        (!self.appended.swap(true, Ordering::AcqRel)).then(|| Appender { file: Arc::clone(self), broken: false })
    }

    /// Reserves the blocks of a range without changing bytes.
    ///
    /// # Errors
    /// The system's: ENOSPC is what this call is for.
    pub(super) fn allocate(&self, range: std::ops::Range<usize>) -> io::Result<()> {
        debug_assert!(range.end <= self.size());
        self.file.allocate(range.start as u64, range.len() as u64)
    }

    /// Makes the pages of an allocated range present and writable, which also makes them dirty, without changing bytes.
    /// Positions must be multiples of the page size, or the file's end. `false` where that is not possible or not safe.
    pub(super) fn populate(&self, range: std::ops::Range<usize>) -> bool {
        self.in_place && self.map.advise_range(Advice::PopulateWrite, range.start, range.len()).is_ok()
    }

    /// Whether [`MappedFile::set_mappable`] will do anything.
    pub(super) fn is_storable(&self) -> bool {
        self.storable
    }

    /// Everything between the appender's position and `end` is allocated and populated: it may be stored through the map, if the file
    /// system is one for that.
    pub(super) fn set_mappable(&self, end: usize) {
        debug_assert!(end <= self.size());
        if self.storable {
            self.mappable.fetch_max(end, Ordering::AcqRel);
        }
    }

    /// Brings the pages of a range in, from the disk if need be. `false` when one of them cannot be read, or lies behind the file's end:
    /// touching it would end the process. `true` where the system cannot tell (before Linux 5.14).
    pub(super) fn can_read(&self, at: usize, len: usize) -> bool {
        if at.checked_add(len).is_none_or(|end| end > self.size()) {
            return false;
        }
        match self.map.advise_range(Advice::PopulateRead, at, len) {
            Ok(()) => true,
            Err(error) => matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)),
        }
    }

    /// Whether all pages of a range are in memory. `true` when the system does not say.
    pub(super) fn is_resident(&self, at: usize, len: usize) -> bool {
        let Some(end) = at.checked_add(len).filter(|end| *end <= self.size() && len > 0) else { return true };
        let first = at / PAGE_SIZE * PAGE_SIZE;
        let mut pages = [0u8; 64];
        let count = (end - first).div_ceil(PAGE_SIZE).min(pages.len());
        // SAFETY: `first` is page-aligned relative to the map, which starts on a page (pages are 4 KiB or the call fails with
        // EINVAL); `first + count * PAGE_SIZE` rounds up to at most the page of the map's last byte; `pages` has room for
        // `count` answers. The call reads no page and writes only `pages`.
        let result = unsafe {
            libc::mincore(self.map.as_mut_ptr().add(first).cast(), (count * PAGE_SIZE).min(self.size() - first), pages.as_mut_ptr())
        };
        result != 0 || pages[..count].iter().all(|page| page & 1 == 1)
    }
}

/// Bytes of a file that keep it mapped.
struct Slice {
    file: Arc<MappedFile>,
    at: usize,
    len: usize,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `MappedFile::slice`, the only maker, checked `at + len <= wrote <= map.len()`, and `wrote` never falls. The
        // map lives as long as `self.file`, which the returned borrow outlives not. Bytes before `wrote` were written before
        // `wrote` was stored with Release, and read after it was loaded with Acquire; nobody writes them again, and the file
        // is never shortened, so the memory behaves as immutable for the life of the slice.
        unsafe { std::slice::from_raw_parts(self.file.map.as_ptr().add(self.at), self.len) }
    }
}

/// Why an append failed. The position is as it was.
#[derive(Debug)]
pub(super) struct AppendFailure {
    /// The system's reason.
    pub(super) error: io::Error,
    /// Bytes of the failed append may be left behind the position: nothing more may be appended to this log, for what is
    /// left could be taken for records.
    pub(super) dirty: bool,
}

/// The only writer of a file: not `Clone`, made once.
#[derive(Debug)]
pub(super) struct Appender {
    file: Arc<MappedFile>,
    broken: bool,
}

impl Appender {
    /// The file it writes.
    pub(super) fn file(&self) -> &Arc<MappedFile> {
        &self.file
    }

    /// Bytes left in the file.
    pub(super) fn left(&self) -> usize {
        self.file.size() - self.file.wrote.load(Ordering::Relaxed)
    }

    /// Physical offset of the next byte.
    pub(super) fn offset(&self) -> i64 {
        self.file.start + self.file.wrote.load(Ordering::Relaxed) as i64
    }

    /// Writes `bytes` behind the last ones. They are in the page cache afterwards. The caller has compared with `left`.
    ///
    /// # Errors
    /// [`AppendFailure`]; readers see nothing of it.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), AppendFailure> {
        let start = self.file.wrote.load(Ordering::Relaxed); // only this appender stores it
        let end = start + bytes.len();
        if self.broken || end > self.file.size() {
            return Err(AppendFailure { error: io::ErrorKind::WriteZero.into(), dirty: self.broken });
        }
        if end <= self.file.mappable.load(Ordering::Acquire) {
            self.store(start, bytes);
        } else if let Err(error) = self.file.file.write_all_at(bytes, start as u64) {
            self.broken = !self.scrub(start, bytes.len());
            return Err(AppendFailure { error, dirty: self.broken });
        }
        self.file.wrote.store(end, Ordering::Release); // pairs with Acquire in `wrote`
        Ok(())
    }

    /// The rest of the file holds nothing: the log goes on in the next one.
    pub(super) fn finish(self) {
        self.file.wrote.store(self.file.size(), Ordering::Release);
    }

    fn store(&mut self, start: usize, bytes: &[u8]) {
        debug_assert!(start + bytes.len() <= self.file.size());
        // SAFETY: the caller checked `start + bytes.len() <= mappable <= map.len()`. Readers stop at `wrote`, which is still
        // `start`, and `&mut self` on the only appender rules out another writer. The blocks are allocated on a file system
        // that writes in place (`set_mappable`), so the store cannot fail for want of space.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.file.map.as_mut_ptr().add(start), bytes.len()) };
    }

    /// Zeroes what a failed write may have left, and looks whether it worked.
    fn scrub(&self, start: usize, len: usize) -> bool {
        let zeros = [0u8; PAGE_SIZE];
        let pieces = (start..start + len).step_by(PAGE_SIZE).map(|at| (at, PAGE_SIZE.min(start + len - at)));
        for (at, len) in pieces.clone() {
            let _ = self.file.file.write_all_at(&zeros[..len], at as u64); // where nothing could be written, nothing is left
        }
        let mut read = [0u8; PAGE_SIZE];
        pieces
            .into_iter()
            .all(|(at, len)| self.file.file.read_exact_at(&mut read[..len], at as u64).is_ok() && read[..len].iter().all(|byte| *byte == 0))
    }
}

/// The name of the file that starts at a physical offset: 20 digits.
pub(super) fn file_name(start: i64) -> String {
    format!("{start:020}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::RealFs;

    fn file(folder: &Path, size: usize) -> Arc<MappedFile> {
        Arc::new(MappedFile::create(&RealFs, &folder.join(file_name(0)), 0, size).unwrap())
    }

    #[test]
    fn readers_see_what_was_appended_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), 3 * PAGE_SIZE);
        file.make_durable(&RealFs).unwrap();
        assert!(!file.new_entry.load(Ordering::Acquire));
        let mut appender = file.appender().unwrap();
        assert!(file.appender().is_none(), "one appender");
        assert!(file.slice(0, 1).is_none());
        appender.append(b"hello").unwrap();
        let slice = file.slice(1, 4).unwrap();
        assert_eq!(&slice[..], b"ello");
        assert!(file.slice(1, 5).is_none() && file.slice(usize::MAX, 2).is_none());
        file.allocate(0..2 * PAGE_SIZE).unwrap();
        if file.populate(0..2 * PAGE_SIZE) {
            file.set_mappable(2 * PAGE_SIZE); // from here on through the map
        }
        appender.append(&[7; 2 * PAGE_SIZE - 5]).unwrap();
        appender.append(&[8; 100]).unwrap(); // behind what is prepared: by pwrite
        let mut read = vec![0; 2 * PAGE_SIZE + 100];
        file.file().read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read[..5], b"hello");
        assert!(read[5..2 * PAGE_SIZE].iter().all(|byte| *byte == 7) && read[2 * PAGE_SIZE..].iter().all(|byte| *byte == 8));
        assert_eq!(&file.slice(0, read.len()).unwrap()[..], &read[..]);
        assert!(file.is_resident(0, read.len()));
        assert_eq!((appender.left(), appender.offset()), (PAGE_SIZE - 100, 2 * PAGE_SIZE as i64 + 100));
        assert!(appender.append(&[0; PAGE_SIZE]).is_err(), "does not fit");
        appender.finish();
        assert_eq!(file.wrote(), 3 * PAGE_SIZE);
        drop(file);
        assert_eq!(&slice[..], b"ello", "the slice keeps the file mapped");
    }

    #[test]
    fn preparing_never_changes_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), 64 * PAGE_SIZE);
        let mut appender = file.appender().unwrap();
        let preparer = Arc::clone(&file);
        let thread = crate::runtime::thread::Thread::spawn("", "prepare", move || {
            for page in 0..64 {
                preparer.allocate(page * PAGE_SIZE..(page + 1) * PAGE_SIZE).unwrap();
                preparer.populate(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
                preparer.file().write_back((page * PAGE_SIZE) as u64, PAGE_SIZE as u64).unwrap();
            }
        })
        .unwrap();
        let bytes: Vec<u8> = (0..64 * PAGE_SIZE).map(|n| (n % 251) as u8).collect();
        for piece in bytes.chunks(1000) {
            appender.append(piece).unwrap();
        }
        thread.join();
        assert_eq!(&file.slice(0, bytes.len()).unwrap()[..], &bytes[..]);
    }

    #[test]
    fn pages_that_cannot_be_read_are_found_without_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), 3 * PAGE_SIZE);
        file.appender().unwrap().append(&[7; 3 * PAGE_SIZE]).unwrap();
        assert!(file.can_read(0, 3 * PAGE_SIZE) && file.can_read(PAGE_SIZE - 1, 2));
        assert!(!file.can_read(0, 3 * PAGE_SIZE + 1) && !file.can_read(usize::MAX, 2));
        let other = std::fs::File::options().write(true).open(file.path()).unwrap();
        other.set_len(PAGE_SIZE as u64).unwrap(); // what nobody should do
        assert!(file.can_read(0, PAGE_SIZE));
        assert!(!file.can_read(PAGE_SIZE - 1, 2) && !file.can_read(2 * PAGE_SIZE, 10));
    }

    #[test]
    fn a_wrong_length_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("short");
        std::fs::write(&path, [0; 100]).unwrap();
        let text = MappedFile::map(RealFs.open(&path, false).unwrap(), &path, 0, 200, 0).unwrap_err().to_string();
        assert!(text.contains("short") && text.contains("100") && text.contains("200"), "{text}");
    }
}
