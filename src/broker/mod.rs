//! The broker: serves producers and consumers out of a store.
//!
//! - [`broker`]: builds everything, starts it, stops it in order.
//! - [`context`]: what processors share. [`topic`], [`group`], [`offset`], [`clients`], [`lock`]: managers, state then persistence
//!   ([`crate::config::config_file`]). [`processor`]: one file per request family. [`hold`]: long polls. [`delay`]: delay levels.
//!   [`transaction`]: half messages and their decisions.
//! - [`out_api`]: calls to name servers. [`tasks`]: what is done now and then. `deletion`: says
//!   what was deleted before it was consumed.

#[allow(clippy::module_inception, reason = "the broker is what this folder is about, and one file of it")]
pub mod broker;
pub mod clients;
pub mod context;
pub mod delay;
pub mod expressions;
pub mod filter_data;
pub mod group;
pub mod hold;
pub mod lock;
pub mod offset;
pub mod out_api;
pub mod processor;
pub mod request_mode;
pub mod settings;
pub mod stats;
pub mod tasks;
pub mod topic;
pub mod transaction;

mod attributes;
mod deletion;
mod table;
