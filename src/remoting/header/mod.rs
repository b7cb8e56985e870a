//! Typed headers, one file per family. Field names are those of Java's header classes.

pub mod admin;
pub mod client;
pub mod namesrv;
pub mod offset;
pub mod pull;
pub mod query;
pub mod send;
pub mod transaction;
