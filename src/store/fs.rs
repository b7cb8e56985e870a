//! The file-system seam: everything the store does to files goes through [`Fs`] and [`FsFile`], so that tests can make any
//! operation fail and can forget what was not synced.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{FallocateFlags, RenameFlags, SeekFrom};

use super::sys;

/// Bytes that [`zero`] writes at once.
const ZEROED_AT_ONCE: usize = 16 << 10;

/// A file system.
pub trait Fs: Send + Sync + std::fmt::Debug {
    /// Opens for reading and writing; creates when `create`.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>>;
    /// The file at `path`, made of `len` zeros, sparse, when it is not there; two who make it at once get the same one.
    ///
    /// On the machine's file system it has its whole length from the moment it has its name: Java brokers do not start on a folder with a
    /// shorter file, which is what a process leaves behind that dies on the way.
    ///
    /// # Errors
    /// The system's.
    fn create_sized(&self, path: &Path, len: u64) -> io::Result<Arc<dyn FsFile>> {
        let file = self.open(path, true)?;
        file.set_len(len)?;
        Ok(file)
    }
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

/// `<folder>.<name>.new` beside the folder, where no broker looks for files.
fn beside_folder(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let mut name = folder.file_name()?.to_owned();
    name.push(".");
    name.push(path.file_name()?);
    name.push(".new");
    Some(folder.with_file_name(name))
}

/// Zeroes `from..to` of a file whose length stays what it is at every moment; holes stay holes.
///
/// # Errors
/// The system's.
pub(super) fn zero(file: &dyn FsFile, from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; ZEROED_AT_ONCE];
    let mut at = from;
    while let Some(data) = file.next_data(at)?.filter(|data| *data < to) {
        at = at.max(data);
        let len = (zeros.len() - at as usize % zeros.len()).min((to - at) as usize); // to a block's end: no step into a hole
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
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
#[allow(clippy::len_without_is_empty, reason = "nobody asks a file that")]
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
    /// First position at or behind `at` that is not in a hole; `None` when only holes follow. `at` itself where the system
    /// cannot tell.
    ///
    /// # Errors
    /// The system's.
    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        Ok((at < self.len()?).then_some(at))
    }
    /// The real file, for mapping; `None` on a file system without one.
    fn as_std(&self) -> Option<&std::fs::File>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// As the store wants it.
    pub fn shared() -> Arc<dyn Fs> {
        Arc::new(Self)
    }
}

impl Fs for RealFs {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>> {
        let file = std::fs::OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    /// Made beside the folder and then given its name, unless something has it by then. Directly where that is not possible: the folder
    /// lies on another disk, or the file system cannot rename like this.
    fn create_sized(&self, path: &Path, len: u64) -> io::Result<Arc<dyn FsFile>> {
        if let Some(beside) = beside_folder(path) {
            let file = self.open(&beside, true)?;
            file.set_len(len)?;
            match rustix::fs::renameat_with(rustix::fs::CWD, &beside, rustix::fs::CWD, path, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(file),
                Err(_) => drop(self.remove_file(&beside)),
            }
        }
        let file = self.open(path, true)?;
        file.set_len(len)?;
        Ok(file)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
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
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            let is_dir = if kind.is_symlink() { path.is_dir() } else { kind.is_dir() }; // a folder may lie on another disk
            found.push((path, is_dir));
        }
        found.sort();
        Ok(found)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let disk = rustix::fs::statvfs(path)?;
        let for_us = disk.f_blocks.saturating_sub(disk.f_bfree).saturating_add(disk.f_bavail); // without root's reserve
        Ok(Space { total: for_us.saturating_mul(disk.f_frsize), free: disk.f_bavail.saturating_mul(disk.f_frsize) })
    }
}

/// A file of the machine.
#[derive(Debug)]
struct RealFile(std::fs::File);

impl FsFile for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write_back(&self, at: u64, len: u64) -> io::Result<()> {
        sys::write_back(self.0.as_fd(), at, len)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, at, len)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn modified_ms(&self) -> io::Result<i64> {
        Ok(self.0.metadata()?.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64))
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.0, SeekFrom::Data(at)) {
            Ok(data) => Ok(Some(data)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok((at < self.len()?).then_some(at)),
            Err(error) => Err(error.into()),
        }
    }

    fn as_std(&self) -> Option<&std::fs::File> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_sparse_until_it_is_allocated_and_keeps_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let fs = RealFs::shared();
        let path = folder.path().join("a/b");
        assert!(fs.list(&path).unwrap().is_empty(), "a folder that is not there is empty");
        fs.create_dir_all(&path).unwrap();
        let file = fs.open(&path.join("file"), true).unwrap();
        file.set_len(1 << 20).unwrap();
        file.allocate(0, 4096).unwrap();
        file.write_all_at(b"here", 600_000).unwrap();
        file.write_back(0, 1 << 20).unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.len().unwrap(), 1 << 20);
        let data = file.next_data(300_000).unwrap().unwrap();
        assert!((300_000..=600_000).contains(&data), "{data}");
        assert!(file.next_data(1 << 20).unwrap().is_none());
        let mut read = [0; 4];
        file.read_exact_at(&mut read, 600_000).unwrap();
        assert_eq!(&read, b"here");
        assert!(file.read_exact_at(&mut read, (1 << 20) - 3).is_err());
        fs.rename(&path.join("file"), &path.join("other")).unwrap();
        fs.sync_dir(&path).unwrap();
        assert_eq!(fs.list(&path).unwrap(), [(path.join("other"), false)]);
        assert!(fs.space(&path).unwrap().total > 0);
        assert!(fs.open(&path.join("none"), false).is_err());
    }

    #[test]
    fn a_sized_file_is_whole_when_it_is_there_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let fs = RealFs::shared();
        let files = folder.path().join("commitlog");
        fs.create_dir_all(&files).unwrap();
        std::fs::write(folder.path().join("commitlog.0.new"), b"").unwrap(); // a process died here
        let first = fs.create_sized(&files.join("0"), 4096).unwrap();
        first.write_all_at(b"mine", 0).unwrap();
        assert_eq!(first.len().unwrap(), 4096);
        let second = fs.create_sized(&files.join("0"), 4096).unwrap();
        let mut read = [1; 5];
        second.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, *b"mine\0", "the one who comes second gets the same file");
        second.write_all_at(b"and ", 4).unwrap();
        assert_eq!(std::fs::read(files.join("0")).unwrap()[..8], *b"mineand ");
        std::fs::create_dir(files.join("1")).unwrap();
        assert!(fs.create_sized(&files.join("1"), 4096).is_err(), "its name is taken by a folder");
        assert!(fs.create_sized(&folder.path().join("none/0"), 4096).is_err());
        assert_eq!(fs.list(folder.path()).unwrap(), [(files, true)]);
    }

    #[test]
    fn those_who_make_a_file_at_once_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("commitlog");
        std::fs::create_dir(&files).unwrap();
        for round in 0..50 {
            let path = files.join(round.to_string());
            let barrier = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for writer in 0..4u64 {
                    let (path, barrier) = (&path, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        RealFs.create_sized(path, 4096).unwrap().write_all_at(b"x", writer).unwrap();
                    });
                }
            });
            assert_eq!(std::fs::read(&path).unwrap()[..5], *b"xxxx\0", "round {round}");
        }
        assert_eq!(RealFs.list(folder.path()).unwrap().len(), 1, "nothing stays beside the folder");
    }

    #[test]
    fn zeroing_keeps_length_and_holes() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealFs.open(&folder.path().join("file"), true).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 50_000], 0).unwrap();
        file.write_all_at(b"behind", 900_000).unwrap();
        zero(&*file, 100, 900_003).unwrap();
        let bytes = std::fs::read(folder.path().join("file")).unwrap();
        assert_eq!(bytes.len(), 1 << 20);
        assert!(bytes[..100].iter().all(|byte| *byte == 1) && bytes[100..900_003].iter().all(|byte| *byte == 0));
        assert_eq!(&bytes[900_003..900_006], b"ind");
        let allocated = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(folder.path().join("file")).unwrap()) * 512;
        assert!(allocated < 500_000, "{allocated} bytes are allocated");
    }
}
