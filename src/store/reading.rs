//! Reading: what a pull, a query and an admin request get.

use bytes::Bytes;
use smallvec::SmallVec;

/// Bounds of one pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLimits {
    /// Messages at most (the client's wish, capped by the caller).
    pub max_messages: usize,
    /// Bytes at most when the data is in memory (`maxTransferBytesOnMessageInMemory`); one message is returned whatever its size.
    pub max_bytes: usize,
    /// Messages at most when the data is in memory (`maxTransferCountOnMessageInMemory`).
    pub max_messages_in_memory: usize,
    /// Bytes at most when it is on disk (`maxTransferBytesOnMessageInDisk`).
    pub max_bytes_on_disk: usize,
    /// Messages at most when it is on disk (`maxTransferCountOnMessageInDisk`).
    pub max_messages_on_disk: usize,
}

impl Default for GetLimits {
    fn default() -> Self {
        Self { max_messages: 32, max_bytes: 262_144, max_messages_in_memory: 32, max_bytes_on_disk: 65_536, max_messages_on_disk: 8 }
    }
}

/// Outcome of a pull's look-up (semantics.md 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of the protocol")]
pub enum GetStatus {
    Found,
    NoMatchedMessage,
    MessageWasRemoving,
    OffsetFoundNull,
    OffsetOverflowBadly,
    OffsetOverflowOne,
    OffsetTooSmall,
    NoMatchedLogicQueue,
    NoMessageInQueue,
}

/// What a pull gets.
#[derive(Clone, Debug)]
pub struct GetResult {
    /// Outcome.
    pub status: GetStatus,
    /// Records; adjacent ones are one slice. Each keeps its file mapped.
    pub slices: SmallVec<[Bytes; 2]>,
    /// Number of records in the slices.
    pub messages: usize,
    /// Bytes of the slices.
    pub bytes: usize,
    /// Where to go on.
    pub next_begin_offset: i64,
    /// Smallest offset of the queue.
    pub min_offset: i64,
    /// Offset behind the last message of the queue.
    pub max_offset: i64,
    /// The reader is so far behind that a slave should serve it.
    pub suggest_slave: bool,
}

/// Decides which messages a pull returns.
pub trait MessageFilter {
    /// By the consume queue's tags code, before the record is touched.
    fn matches_code(&self, tags_code: i64) -> bool;
    /// By the record's properties text; only called when [`MessageFilter::needs_properties`].
    fn matches_properties(&self, properties: &str) -> bool {
        let _ = properties;
        true
    }
    /// Whether records must be read.
    fn needs_properties(&self) -> bool {
        false
    }
}

/// Everything passes.
pub struct AllMessages;

impl MessageFilter for AllMessages {
    fn matches_code(&self, _tags_code: i64) -> bool {
        true
    }
}

/// What a query by key gets.
#[derive(Clone, Debug, Default)]
pub struct QueryResult {
    /// Records found, newest first.
    pub records: Vec<Bytes>,
    /// Store time up to which the index has come.
    pub index_last_update_timestamp: i64,
    /// Physical offset up to which the index has come.
    pub index_last_update_physical_offset: i64,
}

/// Which of several messages of one time a search by time means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// The first.
    #[default]
    Lower,
    /// The last.
    Upper,
}
