//! Who is told that messages became visible.

/// A message that consumers may see now.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// Its queue offset; the queue's max offset is at least one more.
    pub queue_offset: i64,
    /// Tags code (deliver time on the schedule topic).
    pub tags_code: i64,
    /// Milliseconds.
    pub store_timestamp: i64,
    /// Properties text, for filters.
    pub properties: &'a str,
}

/// Told by the dispatch thread, after the consume queue has the message; must not block.
pub trait ArrivalListener: Send + Sync {
    /// A message became visible.
    fn arrived(&self, arrival: &Arrival<'_>);
    /// The dispatcher has finished a round and may go to sleep: hand over what was gathered.
    fn round_done(&self) {}
}
