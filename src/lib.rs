//! Petrel: a message broker suite that speaks Apache RocketMQ's protocol and keeps its files, with plain threads.
#![deny(unsafe_code)]

pub mod broker;
pub mod cli;
pub mod client;
pub mod common;
pub mod config;
pub mod namesrv;
pub mod net;
pub mod remoting;
pub mod runtime;
pub mod store;

pub use client::Client;
