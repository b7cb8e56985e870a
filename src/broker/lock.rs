//! Queue locks of orderly consumers (requests 41 and 42): per group and queue, 60 s.

/// The locks of one broker.
#[derive(Default)]
pub struct QueueLocks {}

impl QueueLocks {
    /// Locks each (topic, queue id) that is free, expired or the client's own; returns those.
    pub fn lock(&self, group: &str, client_id: &str, queues: &[(String, i32)], now_ms: i64) -> Vec<(String, i32)> {
        let _ = (group, client_id, queues, now_ms);
        todo!()
    }

    /// Releases those that are the client's.
    pub fn unlock(&self, group: &str, client_id: &str, queues: &[(String, i32)]) {
        let _ = (group, client_id, queues);
        todo!()
    }

    /// Whether an unexpired lock of the group exists on any queue.
    pub fn is_any_locked(&self, group: &str, now_ms: i64) -> bool {
        let _ = (group, now_ms);
        todo!()
    }
}
