//! What goes wrong in a store.

use std::io;
use std::path::PathBuf;

/// A store cannot be opened, or a file operation failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// A file operation: what was tried, where, the system's reason.
    Io(&'static str, PathBuf, io::Error),
    /// Another process (or broker of this process) has the store: path of the lock, pid of the holder where known.
    Locked(PathBuf, Option<u32>),
    /// A file that the store cannot use: path and why.
    Damaged(PathBuf, String),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(what, path, error) => write!(f, "{what} {} failed: {error}", path.display()),
            Self::Locked(path, Some(pid)) => write!(f, "the store is in use by process {pid}: {}", path.display()),
            Self::Locked(path, None) => write!(f, "the store is in use by another broker: {}", path.display()),
            Self::Damaged(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, _, error) => Some(error),
            _ => None,
        }
    }
}

/// Why a message was not stored. Nothing of it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutError {
    /// The body is too long: bytes, limit (`maxMessageSize`).
    BodyTooLong(usize, usize),
    /// The stored properties text is too long: bytes, limit 32 767.
    PropertiesTooLong(usize, usize),
    /// The topic is too long: bytes, limit.
    TopicTooLong(usize, usize),
    /// The topic or the queue cannot be: why.
    Illegal(String),
    /// The record does not fit a commit-log file: bytes, file size.
    RecordTooLong(usize, usize),
    /// The store takes no messages now; the text names cause, numbers and key. Code 14.
    Unavailable(String),
    /// A file could not be extended or written: the text names path and reason. Code 1.
    Io(String),
}

impl std::fmt::Display for PutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BodyTooLong(len, limit) => {
                write!(f, "the message is illegal: body of {len} bytes exceeds maxMessageSize of {limit} bytes")
            }
            Self::PropertiesTooLong(len, limit) => {
                write!(f, "the message is illegal: properties of {len} bytes as stored exceed the limit of {limit} bytes (32 KB)")
            }
            Self::TopicTooLong(len, limit) => write!(f, "the message is illegal: topic of {len} bytes exceeds {limit} bytes"),
            Self::Illegal(why) => write!(f, "the message is illegal: {why}"),
            Self::RecordTooLong(len, limit) => {
                write!(f, "the message is illegal: record of {len} bytes does not fit mappedFileSizeCommitLog of {limit} bytes")
            }
            Self::Unavailable(why) => write!(f, "service not available now: {why}"),
            Self::Io(why) => write!(f, "the message was not stored: {why}"),
        }
    }
}

impl std::error::Error for PutError {}
