//! The name server: which broker has which topic.
//!
//! - [`route_table`]: what brokers registered, pure. [`address`]: which address of a broker a client is told, pure.
//! - [`kv_config`]: the KV table and its file. [`processor`]: requests. [`notify`]: pushes to brokers. [`server`]: the running thing.

pub mod address;
pub mod kv_config;
pub mod notify;
pub mod processor;
pub mod route_table;
pub mod server;
