//! The file-system seam: everything the store does to files goes through [`Fs`] and [`FsFile`], so that tests can make any
//! operation fail and can forget what was not synced.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system.
pub trait Fs: Send + Sync + std::fmt::Debug {
    /// Opens for reading and writing; creates when `create`.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>>;
    /// Creates a folder and its parents.
    ///
    /// # Errors
    /// The system's.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, removals and renames in a folder durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with all it holds.
    ///
    /// # Errors
    /// The system's.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Renames, replacing the target.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Entries of a folder with whether each is a folder, sorted by name; empty when it does not exist.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>>;
    /// Whether something is at `path`.
    fn exists(&self, path: &Path) -> bool;
    /// Total and free bytes (for us) of the disk that holds `path`.
    ///
    /// # Errors
    /// The system's.
    fn space(&self, path: &Path) -> io::Result<Space>;
}

/// Bytes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All.
    pub total: u64,
    /// Free for us.
    pub free: u64,
}

/// An open file; closed when dropped.
pub trait FsFile: Send + Sync + std::fmt::Debug {
    /// Fills `buffer` from `at`.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` behind the end.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `at`.
    ///
    /// # Errors
    /// The system's.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// fdatasync.
    ///
    /// # Errors
    /// The system's. Never try again: what was dirty may have been forgotten.
    fn sync_data(&self) -> io::Result<()>;
    /// Starts writing dirty pages of a range out and waits for it (`sync_file_range`): no promise of durability.
    ///
    /// # Errors
    /// The system's.
    fn write_back(&self, at: u64, len: u64) -> io::Result<()>;
    /// Allocates blocks without changing the length.
    ///
    /// # Errors
    /// The system's; ENOSPC is what this call is for.
    fn allocate(&self, at: u64, len: u64) -> io::Result<()>;
    /// Sets the length, sparse.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;
    /// Milliseconds of the last modification.
    ///
    /// # Errors
    /// The system's.
    fn modified_ms(&self) -> io::Result<i64>;
    /// The real file, for mapping; `None` on a file system without one.
    fn as_std(&self) -> Option<&std::fs::File>;
}
