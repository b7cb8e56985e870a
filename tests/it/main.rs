//! Tests over sockets: brokers of this process, each on free ports and in its own temporary folder.

mod admin;
mod broker;
mod client;
mod clients;
mod filter;
mod java_store;
mod slow_disk;
mod support;
mod tools;
mod transaction;
