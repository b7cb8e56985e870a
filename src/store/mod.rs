//! The message store: commit log, consume queues, key index, and what keeps them true.
//!
//! Knows neither sockets nor RocketMQ requests. See `message_store` for the facade.

pub mod append;
pub mod arrival;
pub mod check;
pub mod config;
pub mod error;
pub mod fs;
pub mod message_store;
pub mod reading;
pub mod repair;

mod allocate;
mod checkpoint;
mod cleaning;
mod commit_log;
mod consume_queue;
mod consume_queue_table;
mod deleted_topics;
mod derived_flush;
mod disk;
mod dispatch;
mod file_cache;
mod flush;
mod foreign;
mod format;
mod index;
mod index_file;
mod latch;
mod lock_file;
mod log_folders;
mod mapped_file;
mod mapped_file_queue;
mod mend;
mod recovery;
mod scan;
mod seal;
mod signal;
#[cfg(test)]
mod simulation;
mod start_place;
mod sys;
#[cfg(test)]
mod testing;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

pub use append::{AppendBatch, Appended};
pub use cleaning::{DeletedMessages, DeletionListener};
pub use config::{FlushDiskType, StoreConfig};
pub use error::{PutError, StoreError};
pub use fs::RealFs;
pub use index::TAGS_PREFIX;
pub use message_store::{Durability, FlushWatch, MessageStore, RecoveryReport, ShutdownReport};
pub use reading::{GetLimits, GetResult, GetStatus, MessageFilter, QueryResult};
