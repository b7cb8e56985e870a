//! The files of the log in order, and how they are found.
//!
//! Readers take a snapshot without a lock. Files are added at the end by the appender and removed at the front by cleaning.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::error::StoreError;
use super::fs::{Fs, FsFile};
use super::mapped_file::MappedFile;

/// Files of equal size, ascending; holes between them are possible (an operator removed one).
#[derive(Debug)]
pub(super) struct MappedFileQueue {
    file_size: usize,
    files: ArcSwap<Vec<Arc<MappedFile>>>,
    change: Mutex<()>,
}

impl MappedFileQueue {
    /// The files that recovery has kept.
    pub(super) fn new(file_size: usize, files: Vec<Arc<MappedFile>>) -> Self {
        debug_assert!(files.windows(2).all(|pair| pair[0].end() <= pair[1].start()));
        Self { file_size, files: ArcSwap::from_pointee(files), change: Mutex::new(()) }
    }

    /// Bytes of each file.
    pub(super) fn file_size(&self) -> usize {
        self.file_size
    }

    /// The first file.
    pub(super) fn first(&self) -> Option<Arc<MappedFile>> {
        self.files.load().first().cloned()
    }

    /// The last file.
    pub(super) fn last(&self) -> Option<Arc<MappedFile>> {
        self.files.load().last().cloned()
    }

    /// The file that holds a physical offset.
    pub(super) fn find(&self, offset: i64) -> Option<Arc<MappedFile>> {
        let files = self.files.load();
        let first = files.first()?.start();
        let guess = usize::try_from(offset.checked_sub(first)?).ok()? / self.file_size;
        let holds = |file: &&Arc<MappedFile>| file.start() <= offset && offset < file.end();
        if let Some(file) = files.get(guess).filter(holds) {
            return Some(Arc::clone(file));
        }
        let behind = files.partition_point(|file| file.start() <= offset);
        files.get(behind.checked_sub(1)?).filter(holds).cloned()
    }

    /// Start of the first file that starts behind `offset`.
    pub(super) fn start_behind(&self, offset: i64) -> Option<i64> {
        let files = self.files.load();
        files.get(files.partition_point(|file| file.start() <= offset)).map(|file| file.start())
    }

    /// Files with bytes in `from..to`.
    pub(super) fn between(&self, from: i64, to: i64) -> Vec<Arc<MappedFile>> {
        self.files.load().iter().filter(|file| file.start() < to && file.end() > from).cloned().collect()
    }

    /// Adds a file behind the last one.
    pub(super) fn push(&self, file: Arc<MappedFile>) {
        let _guard = self.change.lock();
        let mut files = self.files.load().as_ref().clone();
        debug_assert!(files.last().is_none_or(|last| last.end() <= file.start()));
        files.push(file);
        self.files.store(Arc::new(files));
    }

    /// Whether a file follows the one that starts at `start`.
    pub(super) fn is_followed(&self, start: i64) -> bool {
        self.start_behind(start).is_some()
    }

    /// The first file, unless it is the last one too or ends behind `limit`.
    pub(super) fn removable(&self, limit: i64) -> Option<Arc<MappedFile>> {
        let files = self.files.load();
        files.first().filter(|first| files.len() > 1 && first.end() <= limit).cloned()
    }

    /// Takes the first file out, as [`MappedFileQueue::removable`].
    pub(super) fn remove_first(&self, limit: i64) -> Option<Arc<MappedFile>> {
        let _guard = self.change.lock();
        let first = self.removable(limit)?;
        self.files.store(Arc::new(self.files.load()[1..].to_vec()));
        Some(first)
    }
}

/// A file found at start, not yet mapped.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Physical offset of its first byte.
    pub(super) start: i64,
    /// It.
    pub(super) file: Arc<dyn FsFile>,
}

/// Opens the files of the log's folders, ascending. A last file without bytes is removed (creation was cut short); names that are not
/// 20 digits are left alone.
///
/// # Errors
/// The system's; a file whose length is not `file_size`, named with both; two files of one name.
pub(super) fn open_segments<P: AsRef<Path>>(fs: &dyn Fs, folders: &[P], file_size: usize) -> Result<Vec<Segment>, StoreError> {
    let mut named: Vec<(PathBuf, i64)> = Vec::new();
    for folder in folders.iter().map(AsRef::as_ref) {
        for (path, is_dir) in fs.list(folder).map_err(|error| StoreError::Io("list", folder.to_owned(), error))? {
            match path.file_name().and_then(|name| name.to_str()).and_then(parse_name) {
                Some(start) if !is_dir => named.push((path, start)),
                _ if is_dir => {}
                _ => log::warn!("file ignored, its name is not 20 digits: path={}", path.display()),
            }
        }
    }
    named.sort_by_key(|(_, start)| *start);
    if let Some(pair) = named.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        return Err(StoreError::Damaged(pair[1].0.clone(), format!("{} has the same name", pair[0].0.display())));
    }
    let count = named.len();
    let mut segments = Vec::with_capacity(count);
    for (index, (path, start)) in named.into_iter().enumerate() {
        let file = fs.open(&path, false).map_err(|error| StoreError::Io("open", path.clone(), error))?;
        let len = file.len().map_err(|error| StoreError::Io("look at", path.clone(), error))?;
        if len == 0 && index + 1 == count {
            log::warn!("file without bytes removed, its creation was cut short: path={}", path.display());
            fs.remove_file(&path).map_err(|error| StoreError::Io("remove", path, error))?;
        } else if len != file_size as u64 {
            let why = format!(
                "the file has {len} bytes, mappedFileSizeCommitLog is {file_size}: set the key to the size the files were made with, or have \
                 a file that was cut short extended by `petrel store repair`; neither is changed by itself"
            );
            return Err(StoreError::Damaged(path, why));
        } else if start % file_size as i64 != 0 {
            return Err(StoreError::Damaged(path, format!("its name is no multiple of mappedFileSizeCommitLog, {file_size}")));
        } else {
            segments.push(Segment { path, start, file });
        }
    }
    Ok(segments)
}

/// The position that a file of 20 digits is named by.
pub(super) fn parse_name(name: &str) -> Option<i64> {
    (name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit())).then(|| name.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::RealFs;
    use crate::store::mapped_file::file_name;

    fn queue(dir: &Path, starts: &[i64]) -> MappedFileQueue {
        let file = |start: &i64| Arc::new(MappedFile::create(&RealFs, &dir.join(file_name(*start)), *start, 4096).unwrap());
        MappedFileQueue::new(4096, starts.iter().map(file).collect())
    }

    #[test]
    fn files_are_found_by_offset_with_and_without_holes() {
        let folder = tempfile::tempdir().unwrap();
        let queue = queue(folder.path(), &[4096, 8192, 16384]);
        let start = |offset| queue.find(offset).map(|file| file.start());
        let expected = [(-1, None), (0, None), (4095, None), (4096, Some(4096)), (8191, Some(4096)), (8192, Some(8192))];
        for (offset, found) in expected.into_iter().chain([(12288, None), (16384, Some(16384)), (20479, Some(16384)), (20480, None)]) {
            assert_eq!(start(offset), found, "{offset}");
        }
        assert_eq!((queue.start_behind(4096), queue.start_behind(8192), queue.start_behind(16384)), (Some(8192), Some(16384), None));
        assert_eq!(queue.between(8191, 8193).len(), 2);
        assert_eq!(queue.between(8192, 8193).len(), 1);
        assert!(queue.remove_first(8191).is_none(), "ends behind the limit");
        assert_eq!(queue.remove_first(8192).unwrap().start(), 4096);
        assert_eq!(queue.remove_first(i64::MAX).unwrap().start(), 8192);
        assert!(queue.remove_first(i64::MAX).is_none(), "never the last");
    }

    #[test]
    fn odd_files_are_ignored_removed_or_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("00000000000000000001")).unwrap();
        std::fs::write(at(".DS_Store"), b"x").unwrap();
        std::fs::write(at("00000000000000000000.bak"), b"x").unwrap();
        std::fs::write(at("00000000000000000000"), [0; 100]).unwrap();
        std::fs::write(at("00000000000000000100"), b"").unwrap();
        let segments = open_segments(&RealFs, &[folder.path()], 100).unwrap();
        assert_eq!(segments.iter().map(|segment| segment.start).collect::<Vec<_>>(), [0]);
        assert!(!at("00000000000000000100").exists());
        std::fs::write(at("00000000000000000100"), [0; 99]).unwrap();
        let text = open_segments(&RealFs, &[folder.path()], 100).unwrap_err().to_string();
        assert!(text.contains("00000000000000000100") && text.contains("99") && text.contains("100"), "{text}");
        std::fs::write(at("00000000000000000100"), b"").unwrap();
        std::fs::write(at("00000000000000000200"), [0; 100]).unwrap();
        assert!(open_segments(&RealFs, &[folder.path()], 100).is_err(), "an empty file in the middle");
    }
}
