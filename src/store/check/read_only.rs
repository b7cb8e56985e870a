//! A file system that can change nothing, so that what looks at a store through it cannot either.
//!
//! - Where the disk does not give a part of a file, that part reads as zeros and is noted: a check says so and goes on.
//! - A file can be given a length beyond its end, as if zeros were there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::store::fs::{Fs, FsFile, Space};

/// Read again in pieces of this length where a larger read fails.
const PIECE: usize = 4096;
/// Unreadable pieces that are kept; more are counted.
const MAX_KEPT: usize = 1_000;

/// A part of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Unreadable {
    /// The file.
    pub(in crate::store) path: PathBuf,
    /// From here.
    pub(in crate::store) at: u64,
    /// So many bytes.
    pub(in crate::store) len: u64,
    /// The system's reason.
    pub(in crate::store) why: String,
}

/// What reading has come to.
#[derive(Debug, Default)]
struct Noted {
    bytes: AtomicU64,
    unreadable: Mutex<(Vec<Unreadable>, u64)>,
}

/// A view of another file system.
#[derive(Debug)]
pub(in crate::store) struct ReadOnlyFs {
    fs: Arc<dyn Fs>,
    noted: Arc<Noted>,
}

impl ReadOnlyFs {
    /// A view of `fs`.
    pub(in crate::store) fn new(fs: Arc<dyn Fs>) -> Self {
        Self { fs, noted: Arc::default() }
    }

    /// Bytes read so far.
    pub(in crate::store) fn bytes(&self) -> u64 {
        self.noted.bytes.load(Ordering::Relaxed)
    }

    /// What could not be read, and how many pieces more.
    pub(in crate::store) fn unreadable(&self) -> (Vec<Unreadable>, u64) {
        let noted = self.noted.unreadable.lock();
        (noted.0.clone(), noted.1)
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Fs for ReadOnlyFs {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>> {
        if create { refused() } else { self.open_read(path) }
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        let file = self.fs.open_read(path)?;
        Ok(Arc::new(ReadOnlyFile { file, path: path.to_owned(), noted: Arc::clone(&self.noted) }))
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        self.fs.list(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.fs.exists(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.fs.space(path)
    }
}

#[derive(Debug)]
struct ReadOnlyFile {
    file: Arc<dyn FsFile>,
    path: PathBuf,
    noted: Arc<Noted>,
}

impl ReadOnlyFile {
    /// Reads what can be read of a range; the rest becomes zeros.
    fn read_pieces(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let from = at + done as u64;
            let len = (PIECE - (from % PIECE as u64) as usize).min(buffer.len() - done);
            let piece = &mut buffer[done..done + len];
            match self.file.read_exact_at(piece, from) {
                Ok(()) => {}
                Err(error) if is_bad_medium(&error) => {
                    piece.fill(0);
                    self.note(from, len as u64, &error);
                }
                Err(error) => return Err(error),
            }
            done += len;
        }
        Ok(())
    }

    fn note(&self, at: u64, len: u64, error: &io::Error) {
        let mut noted = self.noted.unreadable.lock();
        let known = |known: &Unreadable| known.path == self.path && known.at <= at && at + len <= known.at + known.len;
        if noted.0.iter().any(known) {
            return;
        }
        let has_room = noted.0.len() < MAX_KEPT;
        match noted.0.last_mut() {
            Some(last) if last.path == self.path && last.at + last.len == at => last.len += len,
            _ if has_room => {
                noted.0.push(Unreadable { path: self.path.clone(), at, len, why: error.to_string() });
            }
            _ => noted.1 += 1,
        }
    }
}

/// Whether the error says that the medium does not give the data (EIO, or a checksum of the file system): other parts may be fine.
fn is_bad_medium(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EUCLEAN | libc::EBADMSG | libc::ENODATA))
}

impl FsFile for ReadOnlyFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.noted.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        match self.file.read_exact_at(buffer, at) {
            Err(error) if is_bad_medium(&error) => self.read_pieces(buffer, at),
            read => read,
        }
    }

    fn write_all_at(&self, _bytes: &[u8], _at: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn write_back(&self, _at: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _at: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refused()
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
        self.file.as_std() // for its lock
    }
}

/// A file that seems longer, or shorter, than it is.
#[derive(Debug)]
pub(in crate::store) struct Resized {
    file: Arc<dyn FsFile>,
    /// As it is.
    real: u64,
    /// As it seems.
    len: u64,
}

impl Resized {
    /// `file`, of `real` bytes, as if it had `len`.
    pub(in crate::store) fn new(file: Arc<dyn FsFile>, real: u64, len: u64) -> Self {
        Self { file, real, len }
    }
}

impl FsFile for Resized {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if at + buffer.len() as u64 > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let there = usize::try_from(self.real.saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len());
        let (real, beyond) = buffer.split_at_mut(there);
        beyond.fill(0);
        if real.is_empty() { Ok(()) } else { self.file.read_exact_at(real, at) }
    }

    fn write_all_at(&self, _bytes: &[u8], _at: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn write_back(&self, _at: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _at: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn modified_ms(&self) -> io::Result<i64> {
        self.file.modified_ms()
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        if at >= self.real {
            return Ok(None);
        }
        Ok(self.file.next_data(at)?.filter(|data| *data < self.real.min(self.len)))
    }

    fn as_std(&self) -> Option<&std::fs::File> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::RealFs;

    #[test]
    fn nothing_can_be_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"here").unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&path, permissions).unwrap();
        let fs = ReadOnlyFs::new(RealFs::shared());
        let file = fs.open(&path, false).unwrap();
        let mut read = [0; 4];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!((&read, fs.bytes()), (b"here", 4));
        let other = folder.path().join("other");
        assert!(fs.open(&other, true).is_err() && fs.create_dir_all(&other).is_err() && fs.rename(&path, &other).is_err());
        assert!(fs.remove_file(&path).is_err() && fs.remove_dir_all(folder.path()).is_err() && fs.sync_dir(folder.path()).is_err());
        assert!(file.write_all_at(b"x", 0).is_err() && file.set_len(0).is_err() && file.allocate(0, 1).is_err());
        assert!(file.sync_data().is_err() && file.write_back(0, 1).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"here");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_can_seem_longer_and_shorter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"here").unwrap();
        let file = RealFs.open_read(&path).unwrap();
        let longer = Resized::new(Arc::clone(&file), 4, 8);
        let mut read = [9; 6];
        longer.read_exact_at(&mut read, 2).unwrap();
        assert_eq!(&read, b"re\0\0\0\0");
        longer.read_exact_at(&mut read[..2], 6).unwrap();
        assert!(longer.read_exact_at(&mut read, 3).is_err());
        assert_eq!((longer.len().unwrap(), longer.next_data(4).unwrap()), (8, None));
        let shorter = Resized::new(file, 4, 2);
        assert!(shorter.read_exact_at(&mut read[..3], 0).is_err());
        assert_eq!(shorter.next_data(2).unwrap(), None);
    }
}
