//! Petrel: a message broker suite that speaks Apache RocketMQ's protocol and keeps its files, with plain threads.
//!
//! A name server and a broker in this process, and a client of them:
//!
//! ```
//! use petrel::config::{broker::BrokerConfig, namesrv::NamesrvConfig};
//! use petrel::{Broker, Client, Clock, Message, Namesrv};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let namesrv = Namesrv::start(NamesrvConfig { listen_port: 0, ..NamesrvConfig::new(folder.path()) }, Clock::System)?;
//! let broker = Broker::start(
//!     BrokerConfig {
//!         listen_port: 0,
//!         broker_ip1: Some("127.0.0.1".to_owned()),
//!         namesrv_addresses: vec![format!("127.0.0.1:{}", namesrv.address().port())],
//!         ..BrokerConfig::new(folder.path())
//!     },
//!     Clock::System,
//! )?;
//! assert_eq!(broker.register_now(), 1);
//!
//! let client = Client::connect(&format!("127.0.0.1:{}", namesrv.address().port()))?;
//! let receipt = client.producer("orders-producer")?.send(&Message::new("orders", "one coffee").tag("new").key("4711"))?;
//! assert_eq!(receipt.queue_offset, 0);
//! # Ok(())
//! # }
//! ```
//!
//! [`Broker`], [`Namesrv`] and [`Client`] own their threads and stop when they are dropped; any number of them live in one process.
//! `ARCHITECTURE.md` has the map, the invariants and the lexicon.
#![deny(unsafe_code)]

pub mod broker;
pub mod cli;
pub mod client;
pub mod common;
pub mod config;
pub mod filter;
pub mod namesrv;
pub mod net;
pub mod remoting;
pub mod runtime;
pub mod store;

pub use broker::broker::Broker;
pub use client::{Client, ConsumeStatus};
pub use common::message::{Message, MessageExt};
pub use namesrv::server::Namesrv;
pub use runtime::clock::Clock;

/// The README's Rust examples compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
