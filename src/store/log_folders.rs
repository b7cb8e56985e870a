//! The folders that hold the commit log: one, or several on several disks (Java's `MultiPathMappedFileQueue`).
//!
//! The log is the union of their files. A folder that is not there takes messages with it and leaves others: a start that went on would
//! cut queues, and what came back with the folder later would no longer fit. So it is refused, unless the folder is declared read-only
//! (`readOnlyCommitLogStorePaths`): those may be taken away.

use std::path::PathBuf;

use super::checkpoint::Positions;
use super::config::StoreConfig;
use super::error::StoreError;
use super::fs::Fs;
use super::mapped_file_queue::Segment;
use super::scan::missing_files;

/// The folders of one log.
#[derive(Debug)]
pub(super) struct LogFolders {
    /// All that are there, and those that will be.
    pub(super) all: Vec<PathBuf>,
    /// Those to write into that are not there yet.
    pub(super) missing: Vec<PathBuf>,
    /// Files may be missing in the log: a read-only folder is not there.
    pub(super) may_have_holes: bool,
}

impl LogFolders {
    /// Looks for them.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn find(config: &StoreConfig, fs: &dyn Fs) -> Result<Self, StoreError> {
        let mut all = config.writable_commit_log_folders();
        let missing = all.iter().filter(|folder| !fs.exists(folder)).cloned().collect();
        let mut may_have_holes = config.allow_commit_log_hole;
        for folder in &config.read_only_commit_log_paths {
            let entries = fs.list(folder).map_err(|error| StoreError::Io("list", folder.clone(), error))?;
            if entries.is_empty() {
                log::warn!("read-only commit log folder is not there, or empty: path={}", folder.display());
                may_have_holes = true;
            } else if !all.contains(folder) {
                all.push(folder.clone());
            }
        }
        Ok(Self { all, missing, may_have_holes })
    }

    /// The folders as text.
    pub(super) fn shown(&self) -> String {
        let shown: Vec<String> = self.all.iter().map(|folder| folder.display().to_string()).collect();
        shown.join(", ")
    }

    /// Looks whether files are missing that only a folder which is not there can hold.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: which folder, or which files.
    pub(super) fn check(&self, config: &StoreConfig, segments: &[Segment], positions: &Positions) -> Result<(), StoreError> {
        let (Some(last), true) = (segments.last(), self.all.len() > 1 && !self.may_have_holes) else { return Ok(()) };
        if let Some(folder) = self.missing.first() {
            let why = "this folder of storePathCommitLog is not there although others hold the log: mount its disk, or make the folder if it \
                       is a new one, or name it in readOnlyCommitLogStorePaths to go on without its messages";
            return Err(StoreError::Damaged(folder.clone(), why.to_owned()));
        }
        let size = config.commit_log_file_size as i64;
        if let Some(pair) = segments.windows(2).find(|pair| pair[0].start + size != pair[1].start) {
            return Err(missing_files(&pair[1], pair[0].start + size));
        }
        match positions.flushed_offset.filter(|flushed| *flushed > last.start + size) {
            Some(flushed) => {
                let why = format!(
                    "the log was on disk up to offset {flushed}, but this is its last file in {}: put the files behind it back, or set \
                     allowCommitLogHole=true to go on without their messages",
                    self.shown()
                );
                Err(StoreError::Damaged(last.path.clone(), why))
            }
            None => Ok(()),
        }
    }
}
