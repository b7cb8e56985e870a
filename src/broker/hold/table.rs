//! The table of waiting requests, by topic and queue. Pure: no clock, no thread, no I/O.
//!
//! - A waiter is in the table or has been handed back, never both and never neither.
//! - A waiter is handed back by the first arrival at or behind its offset whose tags code it wants, or by its deadline.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::quality::RandomState;
use smallvec::SmallVec;

/// Something that waits for a message of one queue.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    /// Queue offset from which on messages are wanted.
    pub(crate) offset: i64,
    /// Tags codes wanted; empty: all.
    pub(crate) codes: SmallVec<[i32; 4]>,
    /// Milliseconds at which it is handed back without a message.
    pub(crate) deadline_ms: i64,
    /// Who waits.
    pub(crate) value: T,
}

/// The waiters of one topic by queue, each with its number.
type Queues<T> = HashMap<i32, Vec<(u64, Waiter<T>)>>;

/// The waiters of one broker.
pub(crate) struct WaitTable<T> {
    queues: HashMap<Arc<str>, Queues<T>, RandomState>,
    deadlines: BTreeMap<(i64, u64), (Arc<str>, i32)>,
    next_id: u64,
    limit: usize,
}

impl<T> WaitTable<T> {
    /// An empty table that takes `limit` waiters.
    pub(crate) fn new(limit: usize) -> Self {
        Self { queues: HashMap::default(), deadlines: BTreeMap::new(), next_id: 0, limit }
    }

    /// Number of waiters.
    pub(crate) fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Adds a waiter; hands it back when the table is full.
    pub(crate) fn add(&mut self, topic: &str, queue_id: i32, waiter: Waiter<T>) -> Result<(), Waiter<T>> {
        if self.deadlines.len() >= self.limit {
            return Err(waiter);
        }
        let key = self.queues.get_key_value(topic).map_or_else(|| Arc::from(topic), |(key, _)| Arc::clone(key));
        let id = self.next_id;
        self.next_id += 1;
        self.deadlines.insert((waiter.deadline_ms, id), (Arc::clone(&key), queue_id));
        self.queues.entry(key).or_default().entry(queue_id).or_default().push((id, waiter));
        Ok(())
    }

    /// A message arrived: moves the waiters it satisfies to `due`.
    pub(crate) fn arrived(&mut self, topic: &str, queue_id: i32, queue_offset: i64, tags_code: i64, due: &mut Vec<T>) {
        let Some(waiters) = self.queues.get_mut(topic).and_then(|queues| queues.get_mut(&queue_id)) else { return };
        let mut at = 0;
        while at < waiters.len() {
            let waiter = &waiters[at].1;
            // Clients hash tags to 32 bits, as the code of the message's tags is.
            let wanted = waiter.codes.is_empty() || waiter.codes.contains(&(tags_code as i32));
            if wanted && queue_offset >= waiter.offset {
                let (id, waiter) = waiters.remove(at);
                self.deadlines.remove(&(waiter.deadline_ms, id));
                due.push(waiter.value);
            } else {
                at += 1;
            }
        }
    }

    /// Earliest deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.first_key_value().map(|((deadline_ms, _), _)| *deadline_ms)
    }

    /// Moves the waiters whose deadline has come to `due`, earliest first, and forgets queues nobody waits for.
    pub(crate) fn expired(&mut self, now_ms: i64, due: &mut Vec<T>) {
        while let Some(entry) = self.deadlines.first_entry().filter(|entry| entry.key().0 <= now_ms) {
            let ((_, id), (topic, queue_id)) = entry.remove_entry();
            let waiters = self.queues.get_mut(&topic).and_then(|queues| queues.get_mut(&queue_id));
            if let Some(waiters) = waiters
                && let Some(at) = waiters.iter().position(|(other, _)| *other == id)
            {
                due.push(waiters.remove(at).1.value);
            }
        }
        self.queues.retain(|_, queues| {
            queues.retain(|_, waiters| !waiters.is_empty());
            !queues.is_empty()
        });
    }

    /// Moves everything to `due`.
    pub(crate) fn drain(&mut self, due: &mut Vec<T>) {
        self.deadlines.clear();
        due.extend(self.queues.drain().flat_map(|(_, queues)| queues).flat_map(|(_, waiters)| waiters).map(|(_, waiter)| waiter.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn waiter(offset: i64, codes: &[i32], deadline_ms: i64, value: u32) -> Waiter<u32> {
        Waiter { offset, codes: codes.iter().copied().collect(), deadline_ms, value }
    }

    #[test]
    fn arrivals_wake_by_queue_offset_and_code() {
        let mut table = WaitTable::new(10);
        table.add("T", 0, waiter(5, &[], 100, 1)).unwrap();
        table.add("T", 0, waiter(5, &[7], 90, 2)).unwrap();
        table.add("T", 1, waiter(0, &[], 80, 3)).unwrap();
        table.add("U", 0, waiter(9, &[], 70, 4)).unwrap();
        let mut due = Vec::new();
        table.arrived("T", 0, 4, 7, &mut due);
        assert!(due.is_empty(), "the message lies before the offset wanted");
        table.arrived("T", 0, 5, 8, &mut due);
        assert_eq!(due, [1]);
        table.arrived("T", 0, 6, 7, &mut due);
        assert_eq!(due, [1, 2]);
        assert_eq!((table.len(), table.next_deadline_ms()), (2, Some(70)));
        due.clear();
        table.expired(79, &mut due);
        assert_eq!(due, [4]);
        table.expired(80, &mut due);
        assert_eq!(due, [4, 3]);
        assert!(table.queues.is_empty());
    }

    #[test]
    fn a_full_table_hands_back() {
        let mut table = WaitTable::new(1);
        table.add("T", 0, waiter(0, &[], 1, 1)).unwrap();
        assert_eq!(table.add("T", 0, waiter(0, &[], 1, 2)).unwrap_err().value, 2);
        let mut due = Vec::new();
        table.drain(&mut due);
        assert_eq!((due, table.len()), (vec![1], 0));
        table.add("T", 0, Waiter { codes: smallvec![], ..waiter(0, &[], 1, 3) }).unwrap();
    }

    /// Compares the table with a plain list under random steps: nothing is lost, doubled, early or late.
    #[test]
    fn equals_a_plain_list() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut table = WaitTable::new(20);
            let mut model: Vec<(String, i32, Waiter<u32>)> = Vec::new();
            let mut now_ms = 0;
            for step in 0..300u32 {
                let topic = ["A", "B"][random.usize(..2)];
                let queue_id = random.i32(0..3);
                let mut due = Vec::new();
                let mut expected: Vec<u32> = match random.u32(..10) {
                    0..5 => {
                        let codes: Vec<i32> = (0..random.usize(..3)).map(|_| random.i32(0..4)).collect();
                        let (offset, deadline_ms) = (random.i64(0..20), now_ms + random.i64(1..30));
                        let taken = table.add(topic, queue_id, waiter(offset, &codes, deadline_ms, step)).is_ok();
                        assert_eq!(taken, model.len() < 20, "seed {seed}");
                        if taken {
                            model.push((topic.to_owned(), queue_id, waiter(offset, &codes, deadline_ms, step)));
                        }
                        continue;
                    }
                    5..9 => {
                        let (offset, code) = (random.i64(0..25), random.i64(0..4));
                        table.arrived(topic, queue_id, offset, code, &mut due);
                        let hit = |(t, q, w): &(String, i32, Waiter<u32>)| {
                            t == topic && *q == queue_id && offset >= w.offset && (w.codes.is_empty() || w.codes.contains(&(code as i32)))
                        };
                        let expected = model.iter().filter(|entry| hit(entry)).map(|entry| entry.2.value).collect();
                        model.retain(|entry| !hit(entry));
                        expected
                    }
                    _ => {
                        now_ms += random.i64(0..15);
                        table.expired(now_ms, &mut due);
                        let expected = model.iter().filter(|entry| entry.2.deadline_ms <= now_ms).map(|entry| entry.2.value).collect();
                        model.retain(|entry| entry.2.deadline_ms > now_ms);
                        expected
                    }
                };
                due.sort_unstable();
                expected.sort_unstable();
                assert_eq!(due, expected, "seed {seed} step {step}");
                assert_eq!(table.len(), model.len(), "seed {seed} step {step}");
                assert_eq!(table.next_deadline_ms(), model.iter().map(|entry| entry.2.deadline_ms).min(), "seed {seed} step {step}");
            }
        }
    }
}
