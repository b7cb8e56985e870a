//! The client library: blocking calls and callbacks on threads, no async runtime.
//!
//! ```no_run
//! use petrel::client::{Client, ConsumeStatus};
//! use petrel::common::message::Message;
//!
//! # fn main() -> Result<(), petrel::client::ClientError> {
//! let client = Client::connect("127.0.0.1:9876")?;
//! let producer = client.producer("orders-producer")?;
//! let receipt = producer.send(&Message::new("orders", "one").tag("new").key("4711"))?;
//! println!("stored at {} of queue {}", receipt.queue_offset, receipt.queue.queue_id);
//!
//! let consumer = client.push_consumer("orders-worker").subscribe("orders", "new").start(|messages| {
//!     messages.iter().for_each(|message| println!("{}", String::from_utf8_lossy(&message.message.body)));
//!     ConsumeStatus::Success
//! })?;
//! # drop(consumer);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Client`] is the shared part: connections, routes, heartbeats. Producers and consumers of one client share it; it ends when it and
//!   all of them are dropped, or at [`Client::shutdown`].
//! - Two consumers of one group in one process need two clients: brokers tell them apart by the client id.
//! - Bodies are sent as they are unless [`ProducerConfig::compress_above_bytes`] is set; zlib bodies are inflated when they come.
//! - Lock order: consumer's queues, a queue's state, work list; instance locks are leaves.

mod consumer;
mod consumer_stats;
mod error;
#[cfg(test)]
mod fake;
mod incoming;
mod inquiry;
pub mod instance;
mod membership;
mod offset_store;
mod outgoing;
mod process_queue;
pub mod producer;
pub mod pull_consumer;
mod pull_loop;
pub mod push_consumer;
pub mod queue_api;
pub mod rebalance;
pub mod route;
mod send_back;
#[cfg(test)]
mod tests;
pub mod transport;

use std::sync::Arc;

pub use consumer::{ConsumeFrom, ConsumeStatus, ConsumerConfig};
pub use error::ClientError;
pub use instance::{ClientConfig, Instance};
pub use producer::{Producer, ProducerConfig, SendCallback, SendReceipt, SendStatus};
pub use pull_consumer::PullConsumer;
pub use push_consumer::{ConsumerBuilder, Delivery, PolledConsumer, PushConsumer};
pub use queue_api::{PullResult, PullStatus};
pub use transport::Transport;

pub(crate) use outgoing::push_batch_entry;

pub use crate::remoting::body::queue::MessageQueue;

/// A client of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    instance: Arc<Instance>,
}

impl Client {
    /// A client of the name servers at `addresses` (`host:port`, several separated by `;`). Connections are made when they are needed.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] without an address, [`ClientError::Local`] when threads cannot be made.
    pub fn connect(addresses: &str) -> Result<Self, ClientError> {
        Self::with_config(ClientConfig::new(addresses))
    }

    /// A client with everything that can be set.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn with_config(config: ClientConfig) -> Result<Self, ClientError> {
        Ok(Self { instance: Instance::start(config)? })
    }

    /// A client over an instance that was made elsewhere (another transport).
    pub fn from_instance(instance: Arc<Instance>) -> Self {
        Self { instance }
    }

    /// The shared part: routes and plain requests.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// A producer of `group` with defaults.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when the group's name is not allowed.
    pub fn producer(&self, group: &str) -> Result<Producer, ClientError> {
        self.producer_with(group, ProducerConfig::default())
    }

    /// A producer of `group`.
    ///
    /// # Errors
    /// As [`Client::producer`].
    pub fn producer_with(&self, group: &str, config: ProducerConfig) -> Result<Producer, ClientError> {
        Producer::new(self.instance.clone(), group, config)
    }

    /// A consumer that reads queues at offsets of the caller's.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when the group's name is not allowed.
    pub fn pull_consumer(&self, group: &str) -> Result<PullConsumer, ClientError> {
        PullConsumer::new(self.instance.clone(), group)
    }

    /// A consumer that is handed messages.
    pub fn push_consumer(&self, group: &str) -> ConsumerBuilder {
        ConsumerBuilder::new(self.instance.clone(), group)
    }

    /// Ends connections and the shared thread, whoever still holds producers or consumers: their calls fail from here on.
    pub fn shutdown(&self) {
        self.instance.shutdown();
    }
}
