//! The message store: commit log, consume queues, key index, and what keeps them true.
//!
//! Knows neither sockets nor RocketMQ requests. See `message_store` for the facade.

pub mod append;
pub mod arrival;
pub mod config;
pub mod error;
pub mod fs;
pub mod message_store;
pub mod reading;

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
mod format;
mod index;
mod index_file;
mod latch;
mod lock_file;
mod mapped_file;
mod mapped_file_queue;
mod recovery;
mod scan;
mod seal;
mod signal;
#[cfg(test)]
mod simulation;
mod sys;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod worker;

pub use append::{AppendBatch, Appended};
pub use config::{FlushDiskType, StoreConfig};
pub use error::{PutError, StoreError};
pub use fs::RealFs;
pub use message_store::{Durability, FlushWatch, MessageStore, ShutdownReport};
pub use reading::{GetLimits, GetResult, GetStatus, MessageFilter, QueryResult};
