//! The commit log: every message, in files of equal size.

use bytes::Bytes;

/// The log as readers see it.
pub(super) struct CommitLog {}

impl CommitLog {
    /// Start of the first file.
    pub(super) fn min_offset(&self) -> i64 {
        todo!()
    }

    /// Behind the last record appended.
    pub(super) fn max_offset(&self) -> i64 {
        todo!()
    }

    /// Behind the last record that may be dispatched: flushed (SYNC_FLUSH) or appended (ASYNC_FLUSH).
    pub(super) fn visible_offset(&self) -> i64 {
        todo!()
    }

    /// `len` bytes at `offset`, if they lie in one file between min and max offset. The slice keeps its file mapped.
    pub(super) fn slice(&self, offset: i64, len: usize) -> Option<Bytes> {
        let _ = (offset, len);
        todo!()
    }

    /// From `offset` to the end of its file or of the log (whichever comes first); `None` outside the log.
    pub(super) fn slice_to_end(&self, offset: i64) -> Option<Bytes> {
        let _ = offset;
        todo!()
    }

    /// Reads `buffer.len()` bytes by `pread`, for data that may be cold or damaged.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn read_at(&self, offset: i64, buffer: &mut [u8]) -> std::io::Result<()> {
        let _ = (offset, buffer);
        todo!()
    }

    /// Start of the file behind the one that holds `offset`.
    pub(super) fn next_file_start(&self, offset: i64) -> i64 {
        let _ = offset;
        todo!()
    }

    /// Store time of the record at `offset`; -1 when it cannot be read.
    pub(super) fn store_time(&self, offset: i64, size: i32) -> i64 {
        let _ = (offset, size);
        todo!()
    }
}
