//! Vocabulary shared by every subsystem. No I/O, no threads, no clock.

pub(crate) mod byte_search;
pub mod hash;
pub mod message;
pub mod message_id;
pub mod properties;
pub mod record;
pub mod subscription;
pub mod sysflag;
pub mod topic;
pub mod unique_id;
