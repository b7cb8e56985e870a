//! Counters and rates (semantics.md 15). Counting takes no lock that is shared by all.

/// Statistics of one broker.
#[derive(Default)]
pub struct BrokerStats {}

impl BrokerStats {
    /// A message of `bytes` (its record) was stored.
    pub fn put(&self, topic: &str, queue_id: i32, messages: u64, bytes: u64) {
        let _ = (topic, queue_id, messages, bytes);
    }

    /// Messages were handed to a consumer.
    pub fn got(&self, topic: &str, queue_id: i32, group: &str, messages: u64, bytes: u64) {
        let _ = (topic, queue_id, group, messages, bytes);
    }

    /// A message was sent back.
    pub fn sent_back(&self, topic: &str, group: &str) {
        let _ = (topic, group);
    }

    /// A message went to a dead-letter topic.
    pub fn dead_letter(&self, topic: &str, group: &str) {
        let _ = (topic, group);
    }

    /// Samples the windows; called every 10 s.
    pub fn sample(&self, now_ms: i64) {
        let _ = now_ms;
    }
}
