//! Calls to name servers: registration in the background, so that a missing name server never holds a client up.

use std::sync::Arc;

/// Keeps a broker registered with its name servers.
pub struct Registration {}

/// What is registered.
pub trait Registered: Send + Sync {
    /// Topics to tell (perm already ANDed with brokerPermission), with the table's version.
    fn topics(&self) -> (Vec<Arc<crate::common::topic::TopicConfig>>, crate::common::topic::DataVersion);
    /// An order topic list came back (order configuration of the name server).
    fn order_topics(&self, topics: &[String]);
}

impl Registration {
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

    /// Tells all name servers that we go.
    pub fn unregister(&self) {
        todo!()
    }
}
