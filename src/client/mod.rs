//! The client library: blocking calls and callbacks on threads.
#[cfg(test)]
mod fake;
mod error;
mod incoming;
pub mod instance;
mod outgoing;
pub mod producer;
pub mod rebalance;
pub mod route;
pub mod transport;
pub mod unique_id;

pub use error::ClientError;
