//! Tests over sockets: brokers of this process, each on free ports and in its own temporary folder.

mod broker;
mod client;
mod support;
mod tools;
