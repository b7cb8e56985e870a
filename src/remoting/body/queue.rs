//! `MessageQueue`: a queue of a broker, also as the key of a map.

/// A queue of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageQueue {
    /// Topic.
    pub topic: String,
    /// Broker.
    pub broker_name: String,
    /// Queue id.
    pub queue_id: i32,
}
