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

mod checkpoint;
mod commit_log;
mod consume_queue;
mod consume_queue_table;
mod dispatch;
mod file_cache;
mod format;
mod index;
mod index_file;
#[cfg(test)]
mod testing;

pub use append::{AppendBatch, Appended};
pub use config::{FlushDiskType, StoreConfig};
pub use error::{PutError, StoreError};
pub use message_store::{MessageStore, ShutdownReport};
pub use reading::{GetLimits, GetResult, GetStatus, MessageFilter, QueryResult};
