//! `checkpoint`: how far the log and each derived file were flushed. 4096 bytes, big-endian i64s.
//!
//! | at | field |
//! |---|---|
//! | 0 | physic_timestamp: store time of the last record of the log known to be on disk |
//! | 8 | logics_timestamp: store time of the last record dispatched when the last thorough consume queue flush began |
//! | 16 | index_timestamp: store time up to which full index files are on disk |
//! | 24 | master_flushed_offset |
//! | 32 | confirm_offset |
//! | 40 | logics_offset: physical offset of that record |
//! | 64 | flushed_offset (ours): end of the log known to be on disk |
//! | 72 | 1 when flushed_offset says something |
//! | 80 | index_offset (ours): the keys of all records before it are on disk, if the index holds them |
//! | 88 | index_last (ours): physical offset of the last record that the index held then |
//! | 96 | queues_digest (ours): of all consume queues at an orderly stop, 0 otherwise |
//! | 104 | stamp: of the fields at 0, 8, 16 and 40 as they were when ours were written |
//!
//! Older files are shorter; what is missing is 0, as is a value that is negative. The file may lag behind the disk, never run
//! ahead of it: recovery starts earlier then, and finds the same. Another broker leaves our fields as they are and writes its own:
//! the stamp no longer fits, and ours say nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::StoreError;
use super::fs::{Fs, FsFile};

/// Bytes of the file.
const SIZE: usize = 4096;
const PHYSIC_TIMESTAMP: usize = 0;
const LOGICS_TIMESTAMP: usize = 8;
const INDEX_TIMESTAMP: usize = 16;
const MASTER_FLUSHED_OFFSET: usize = 24;
const CONFIRM_OFFSET: usize = 32;
const LOGICS_OFFSET: usize = 40;
const FLUSHED_OFFSET: usize = 64;
const FLUSHED_KNOWN: usize = 72;
const INDEX_OFFSET: usize = 80;
const INDEX_LAST: usize = 88;
const QUEUES_DIGEST: usize = 96;
const STAMP: usize = 104;

/// How much older than the checkpoint a record may be and still count as perhaps not flushed, ms.
const MARGIN_MS: i64 = 3_000;

/// What a checkpoint says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table at the top of this file")]
pub(super) struct Positions {
    pub(super) physic_timestamp: i64,
    pub(super) logics_timestamp: i64,
    pub(super) index_timestamp: i64,
    pub(super) master_flushed_offset: i64,
    pub(super) confirm_offset: i64,
    pub(super) logics_offset: i64,
    pub(super) flushed_offset: Option<i64>,
    pub(super) index_offset: i64,
    pub(super) index_last: i64,
    pub(super) queues_digest: i64,
}

impl Positions {
    /// Everything stored before this time is in the log and in the queues on disk; 0 when unknown.
    pub(super) fn min_timestamp(&self) -> i64 {
        (self.physic_timestamp.min(self.logics_timestamp) - MARGIN_MS).max(0)
    }

    /// The same for a log that was found to end at `end`; start and store time of its last record. Nothing speaks of records behind it.
    pub(super) fn of_log(self, end: i64, last_record: i64, last_store_timestamp: i64) -> Self {
        let mut positions = Self { confirm_offset: last_record, flushed_offset: Some(end), queues_digest: 0, ..self };
        if positions.logics_offset.max(positions.index_offset - 1) >= end {
            positions.logics_offset = positions.logics_offset.min(last_record);
            positions.logics_timestamp = positions.logics_timestamp.min(last_store_timestamp);
            positions.physic_timestamp = positions.physic_timestamp.min(last_store_timestamp);
            positions.index_timestamp = 0; // unknown: every file of the index is looked at
            positions.index_offset = positions.index_offset.min(end);
            positions.index_last = positions.index_last.min(last_record);
        }
        positions
    }

    /// The same without what it says of consume queues: they have lost something, and all of the log is to be dispatched again until the
    /// next thorough flush.
    pub(super) fn without_queues(self) -> Self {
        Self { logics_timestamp: 0, logics_offset: 0, queues_digest: 0, ..self }
    }

    fn decode(bytes: &[u8]) -> Self {
        let field = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| i64::from_be_bytes(*chunk).max(0));
        let shared = Self {
            physic_timestamp: field(PHYSIC_TIMESTAMP),
            logics_timestamp: field(LOGICS_TIMESTAMP),
            index_timestamp: field(INDEX_TIMESTAMP),
            master_flushed_offset: field(MASTER_FLUSHED_OFFSET),
            confirm_offset: field(CONFIRM_OFFSET),
            logics_offset: field(LOGICS_OFFSET),
            ..Self::default()
        };
        if field(STAMP) != shared.stamp() {
            return shared;
        }
        Self {
            flushed_offset: (field(FLUSHED_KNOWN) == 1).then(|| field(FLUSHED_OFFSET)),
            index_offset: field(INDEX_OFFSET),
            index_last: field(INDEX_LAST),
            queues_digest: field(QUEUES_DIGEST),
            ..shared
        }
    }

    /// Tells whether another broker has written the file since; never 0.
    fn stamp(&self) -> i64 {
        let fields = [self.physic_timestamp, self.logics_timestamp, self.index_timestamp, self.logics_offset];
        let mixed =
            fields.into_iter().fold(1i64, |mixed, field| (mixed ^ field.max(0)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29));
        mixed & i64::MAX | 1
    }

    fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let mut put = |at: usize, value: i64| bytes[at..at + size_of::<i64>()].copy_from_slice(&value.to_be_bytes());
        put(PHYSIC_TIMESTAMP, self.physic_timestamp);
        put(LOGICS_TIMESTAMP, self.logics_timestamp);
        put(INDEX_TIMESTAMP, self.index_timestamp);
        put(MASTER_FLUSHED_OFFSET, self.master_flushed_offset);
        put(CONFIRM_OFFSET, self.confirm_offset);
        put(LOGICS_OFFSET, self.logics_offset);
        put(FLUSHED_OFFSET, self.flushed_offset.unwrap_or(0));
        put(FLUSHED_KNOWN, i64::from(self.flushed_offset.is_some()));
        put(INDEX_OFFSET, self.index_offset);
        put(INDEX_LAST, self.index_last);
        put(QUEUES_DIGEST, self.queues_digest);
        put(STAMP, self.stamp());
        bytes
    }
}

/// The file.
pub(super) struct Checkpoint {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    state: Mutex<State>,
}

struct State {
    file: Option<Arc<dyn FsFile>>,
    written: Positions,
    synced: bool,
    /// Its entry in the folder is not known to be durable.
    new_entry: bool,
}

impl Checkpoint {
    /// Reads the file below `root`; zeros when there is none.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn load(root: &Path, fs: Arc<dyn Fs>) -> Result<(Self, Positions), StoreError> {
        let path = root.join("checkpoint");
        let (mut file, mut positions) = (None, Positions::default());
        if fs.exists(&path) {
            let failed = |error| StoreError::Io("read", path.clone(), error);
            let opened = fs.open(&path, false).map_err(failed)?;
            let mut bytes = vec![0; (opened.len().map_err(failed)? as usize).min(SIZE)];
            opened.read_exact_at(&mut bytes, 0).map_err(failed)?;
            positions = Positions::decode(&bytes);
            file = Some(opened);
        }
        let state = Mutex::new(State { new_entry: file.is_none(), file, written: positions, synced: false });
        Ok((Self { path, fs, state }, positions))
    }

    /// Writes the positions if they changed; with `sync` makes them durable. What they speak of must be on disk before.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write(&self, positions: Positions, sync: bool) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io("write", self.path.clone(), error);
        let mut state = self.state.lock();
        let file = match &state.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(state.file.insert(self.fs.open(&self.path, true).map_err(failed)?)),
        };
        if state.written != positions || !state.synced {
            file.write_all_at(&positions.encode(), 0).map_err(failed)?;
            (state.written, state.synced) = (positions, false);
        }
        if sync && !state.synced {
            file.sync_data().map_err(failed)?;
            if state.new_entry {
                self.fs.sync_dir(self.path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
            }
            (state.synced, state.new_entry) = (true, false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::RealFs;

    #[test]
    fn what_was_written_is_read_back_and_the_bytes_are_java_s() {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoint, none) = Checkpoint::load(folder.path(), RealFs::shared()).unwrap();
        assert_eq!(none, Positions::default());
        let positions = Positions {
            physic_timestamp: 5_000,
            logics_timestamp: 4_000,
            index_timestamp: 3,
            master_flushed_offset: 4,
            confirm_offset: 5,
            logics_offset: 6,
            flushed_offset: Some(7),
            index_offset: 8,
            index_last: 9,
            queues_digest: 10,
        };
        checkpoint.write(positions, false).unwrap();
        checkpoint.write(positions, true).unwrap();
        assert_eq!(positions.min_timestamp(), 1_000);
        let bytes = std::fs::read(folder.path().join("checkpoint")).unwrap();
        assert_eq!(bytes.len(), SIZE);
        let at = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([at(0), at(8), at(16), at(24), at(32), at(40), at(48), at(56), at(64)], [5_000, 4_000, 3, 4, 5, 6, 0, 0, 7]);
        assert_eq!([at(80), at(88), at(96)], [8, 9, 10]);
        assert_eq!(Checkpoint::load(folder.path(), RealFs::shared()).unwrap().1, positions);
    }

    #[test]
    fn nothing_is_said_of_records_that_the_log_has_lost() {
        let positions = Positions {
            physic_timestamp: 50,
            logics_timestamp: 40,
            index_timestamp: 30,
            logics_offset: 900,
            index_offset: 1_000,
            index_last: 900,
            flushed_offset: Some(1_000),
            ..Positions::default()
        };
        let whole = positions.of_log(1_000, 950, 60);
        assert_eq!(whole, Positions { confirm_offset: 950, ..positions });
        let cut = positions.of_log(900, 800, 20);
        assert_eq!((cut.logics_offset, cut.logics_timestamp, cut.physic_timestamp, cut.index_timestamp), (800, 20, 20, 0));
        assert_eq!((cut.confirm_offset, cut.flushed_offset, cut.index_offset, cut.index_last), (800, Some(900), 900, 800));
    }

    #[test]
    fn ours_say_nothing_once_another_broker_has_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let (checkpoint, _) = Checkpoint::load(folder.path(), RealFs::shared()).unwrap();
        let positions = Positions {
            physic_timestamp: 5_000,
            logics_timestamp: 4_000,
            logics_offset: 6,
            flushed_offset: Some(7),
            index_offset: 8,
            queues_digest: 10,
            ..Positions::default()
        };
        checkpoint.write(positions, true).unwrap();
        let written = std::fs::read(&path).unwrap();
        for (at, ours_count) in [(0, false), (8, false), (16, false), (24, true), (32, true), (40, false)] {
            let mut bytes = written.clone();
            bytes[at + 7] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            let read = Checkpoint::load(folder.path(), RealFs::shared()).unwrap().1;
            let expected = if ours_count { (Some(7), 8, 10) } else { (None, 0, 0) };
            assert_eq!((read.flushed_offset, read.index_offset, read.queues_digest), expected, "field at {at}");
        }
    }

    #[test]
    fn short_empty_and_negative_files_count_as_zero_where_they_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let mut bytes = [1u8; 24].to_vec();
        for (len, expected) in [(0, [0, 0, 0]), (7, [0, 0, 0]), (8, [0x0101_0101_0101_0101, 0, 0]), (24, [0x0101_0101_0101_0101; 3])] {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let (_, read) = Checkpoint::load(folder.path(), RealFs::shared()).unwrap();
            assert_eq!([read.physic_timestamp, read.logics_timestamp, read.index_timestamp], expected, "{len}");
            assert_eq!((read.logics_offset, read.flushed_offset), (0, None));
        }
        bytes[0] = 0x80;
        std::fs::write(&path, &bytes).unwrap();
        let (checkpoint, read) = Checkpoint::load(folder.path(), RealFs::shared()).unwrap();
        assert_eq!((read.physic_timestamp, read.min_timestamp()), (0, 0));
        checkpoint.write(read, true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE as u64, "extended");
    }
}
