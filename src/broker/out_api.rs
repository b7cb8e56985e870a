//! Calls to name servers: registration in the background, so that a missing name server never holds a client up.

use std::sync::Arc;

use crate::common::topic::{DataVersion, TopicConfig};
use crate::config::broker::BrokerConfig;
use crate::runtime::clock::Clock;

/// Keeps a broker registered with its name servers.
pub struct Registration {}

/// What is registered.
pub trait Registered: Send + Sync {
    /// Topics to tell (perm already ANDed with brokerPermission), with the table's version.
    fn topics(&self) -> (Vec<Arc<TopicConfig>>, DataVersion);
    /// An order topic list came back (order configuration of the name server).
    fn order_topics(&self, topics: &[String]);
}

impl Registration {
    /// A registration that does nothing until [`Registration::start`].
    pub fn new(config: &BrokerConfig, clock: Clock) -> Self {
        let _ = (config, clock);
        todo!()
    }

    /// Starts one thread per name server, each of which registers at once; `port` and `ha_port` are those that are told to
    /// clients and slaves.
    ///
    /// # Errors
    /// The system's, when no thread can be made.
    pub fn start(&self, port: u16, ha_port: u16, registered: Arc<dyn Registered>) -> std::io::Result<()> {
        let _ = (port, ha_port, registered);
        todo!()
    }

    /// Registers everything now, on all name servers, and waits for the answers; at most `registerBrokerTimeoutMills`.
    /// Returns how many answered success. Not on net threads.
    pub fn register_all(&self) -> usize {
        todo!()
    }

    /// Registers one topic and waits, shortly: so that a client that created a topic finds its route. Not on net threads.
    pub fn register_topic(&self, topic: &str) {
        let _ = topic;
        todo!()
    }

    /// Asks for a registration soon, from any thread.
    pub fn request(&self) {
        todo!()
    }

    /// Tells all name servers that we go, and ends the threads. Twice is harmless.
    pub fn unregister(&self) {
        todo!()
    }
}
