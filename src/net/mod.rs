//! Sockets: the only place that knows mio.
//!
//! - [`service`]: what a role implements ([`service::Service`], [`service::Lane`]).
//! - [`responder`]: the duty to answer a request exactly once.
//! - [`connection`]: a handle to one peer, for pushes and server-initiated requests.
//! - [`server`]: listeners, net threads, work pool. [`client`]: outgoing connections.

pub mod client;
pub mod connection;
pub mod responder;
pub mod server;
pub mod service;
