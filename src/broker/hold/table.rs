//! The table of waiting requests, by topic and queue. Pure: no clock, no thread, no I/O.
//!
//! - A waiter is in the table or has been handed back, never both and never neither.
//! - A waiter is handed back by the first arrival at or behind its offset whose tags code it wants, by its deadline, or with its owner.
//! - Every step costs what it hands out, not what waits: a waiter stands under each code it wants, by offset; under its deadline; and
//!   under its owner. One that wants more than [`INDEXED_CODES`] codes is handed back by any message behind its offset.
//! - [`Limits`] hold for all waiters together and for those of one owner, in number and in bytes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use foldhash::quality::RandomState;
use smallvec::SmallVec;

/// Codes under which a waiter stands at most.
const INDEXED_CODES: usize = 64;
/// Bytes of a waiter's entries in the table, about.
const WAITER_BYTES: usize = 512;
/// Bytes of a waiter's entry under one code, about.
const CODE_BYTES: usize = 64;

/// Something that waits for a message of one queue.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    /// Queue offset from which on messages are wanted.
    pub(crate) offset: i64,
    /// Tags codes wanted; empty: all.
    pub(crate) codes: SmallVec<[i32; 4]>,
    /// Milliseconds at which it is handed back without a message.
    pub(crate) deadline_ms: i64,
    /// With whom it goes.
    pub(crate) owner: u64,
    /// Bytes that `value` keeps on the heap.
    pub(crate) bytes: usize,
    /// Who waits.
    pub(crate) value: T,
}

impl<T> Waiter<T> {
    /// Codes under which it stands; empty: under none, any message wakes it.
    fn indexed(&self) -> &[i32] {
        if self.codes.len() > INDEXED_CODES { &[] } else { &self.codes }
    }

    /// Bytes that it costs while it waits.
    fn cost(&self) -> usize {
        WAITER_BYTES + self.bytes + self.codes.len() * size_of::<i32>() + self.indexed().len() * CODE_BYTES
    }
}

/// What may wait at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Waiters.
    pub(crate) waiters: usize,
    /// Waiters of one owner.
    pub(crate) waiters_of_owner: usize,
    /// Bytes of all waiters.
    pub(crate) bytes: usize,
    /// Bytes of one owner's waiters.
    pub(crate) bytes_of_owner: usize,
}

/// Waiters by the offset from which on they want messages.
type ByOffset = BTreeSet<(i64, u64)>;

/// The waiters of one queue.
#[derive(Default)]
struct Queue {
    any: ByOffset,
    by_code: HashMap<i32, ByOffset, RandomState>,
}

/// The waiters of one owner.
#[derive(Default)]
struct Owner {
    ids: HashSet<u64, RandomState>,
    bytes: usize,
}

struct Entry<T> {
    topic: Arc<str>,
    queue_id: i32,
    waiter: Waiter<T>,
}

/// The waiters of one broker.
pub(crate) struct WaitTable<T> {
    waiters: HashMap<u64, Entry<T>, RandomState>,
    queues: HashMap<Arc<str>, HashMap<i32, Queue>, RandomState>,
    deadlines: BTreeSet<(i64, u64)>,
    owners: HashMap<u64, Owner, RandomState>,
    bytes: usize,
    next_id: u64,
    limits: Limits,
}

impl<T> WaitTable<T> {
    /// An empty table.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            waiters: HashMap::default(),
            queues: HashMap::default(),
            deadlines: BTreeSet::new(),
            owners: HashMap::default(),
            bytes: 0,
            next_id: 0,
            limits,
        }
    }

    /// Number of waiters.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Adds a waiter; hands it back when the table is full, or its owner's part of it.
    pub(crate) fn add(&mut self, topic: &str, queue_id: i32, waiter: Waiter<T>) -> Result<(), Waiter<T>> {
        let cost = waiter.cost();
        if !self.has_room(waiter.owner, cost) {
            return Err(waiter);
        }
        let id = self.next_id;
        self.next_id += 1;
        let topic = self.queues.get_key_value(topic).map_or_else(|| Arc::from(topic), |(key, _)| Arc::clone(key));
        let queue = self.queues.entry(Arc::clone(&topic)).or_default().entry(queue_id).or_default();
        if waiter.indexed().is_empty() {
            queue.any.insert((waiter.offset, id));
        }
        for code in waiter.indexed() {
            queue.by_code.entry(*code).or_default().insert((waiter.offset, id));
        }
        self.deadlines.insert((waiter.deadline_ms, id));
        let owner = self.owners.entry(waiter.owner).or_default();
        owner.ids.insert(id);
        owner.bytes += cost;
        self.bytes += cost;
        self.waiters.insert(id, Entry { topic, queue_id, waiter });
        Ok(())
    }

    fn has_room(&self, owner: u64, cost: usize) -> bool {
        let (waiters, bytes) = self.owners.get(&owner).map_or((0, 0), |owner| (owner.ids.len(), owner.bytes));
        let limits = &self.limits;
        self.waiters.len() < limits.waiters
            && waiters < limits.waiters_of_owner
            && self.bytes + cost <= limits.bytes
            && bytes + cost <= limits.bytes_of_owner
    }

    /// A message arrived: moves the waiters it satisfies to `due`.
    pub(crate) fn arrived(&mut self, topic: &str, queue_id: i32, queue_offset: i64, tags_code: i64, due: &mut Vec<Waiter<T>>) {
        let Some(queue) = self.queues.get(topic).and_then(|queues| queues.get(&queue_id)) else { return };
        // Clients hash tags to 32 bits, as the code of the message's tags is.
        let tagged = queue.by_code.get(&(tags_code as i32));
        let reached = ..=(queue_offset, u64::MAX);
        let ids: Vec<u64> =
            queue.any.range(reached).chain(tagged.into_iter().flat_map(|tagged| tagged.range(reached))).map(|(_, id)| *id).collect();
        due.extend(ids.into_iter().filter_map(|id| self.remove(id)));
    }

    /// Earliest deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// Moves the waiters whose deadline has come to `due`, earliest first, `most` at most.
    pub(crate) fn expired(&mut self, now_ms: i64, most: usize, due: &mut Vec<Waiter<T>>) {
        let ids: Vec<u64> =
            self.deadlines.iter().take_while(|(deadline_ms, _)| *deadline_ms <= now_ms).take(most).map(|(_, id)| *id).collect();
        due.extend(ids.into_iter().filter_map(|id| self.remove(id)));
    }

    /// Moves an owner's waiters to `due`.
    pub(crate) fn owner_gone(&mut self, owner: u64, due: &mut Vec<Waiter<T>>) {
        let Some(mut owner) = self.owners.remove(&owner) else { return };
        due.extend(owner.ids.drain().filter_map(|id| self.remove(id)));
    }

    /// Moves everything to `due`.
    pub(crate) fn drain(&mut self, due: &mut Vec<Waiter<T>>) {
        due.extend(self.waiters.drain().map(|(_, entry)| entry.waiter));
        self.queues.clear();
        self.deadlines.clear();
        self.owners.clear();
        self.bytes = 0;
    }

    /// Takes a waiter out, and with it whatever holds nobody else.
    fn remove(&mut self, id: u64) -> Option<Waiter<T>> {
        let Entry { topic, queue_id, waiter } = self.waiters.remove(&id)?;
        self.deadlines.remove(&(waiter.deadline_ms, id));
        self.leave_queue(&topic, queue_id, &waiter, id);
        let cost = waiter.cost();
        self.bytes -= cost;
        if let Some(owner) = self.owners.get_mut(&waiter.owner) {
            owner.ids.remove(&id);
            owner.bytes -= cost;
            if owner.ids.is_empty() {
                self.owners.remove(&waiter.owner);
            }
        }
        Some(waiter)
    }

    fn leave_queue(&mut self, topic: &str, queue_id: i32, waiter: &Waiter<T>, id: u64) {
        let Some(queues) = self.queues.get_mut(topic) else { return };
        let Some(queue) = queues.get_mut(&queue_id) else { return };
        queue.any.remove(&(waiter.offset, id));
        for code in waiter.indexed() {
            let Some(tagged) = queue.by_code.get_mut(code) else { continue };
            tagged.remove(&(waiter.offset, id));
            if tagged.is_empty() {
                queue.by_code.remove(code);
            }
        }
        if queue.any.is_empty() && queue.by_code.is_empty() {
            queues.remove(&queue_id);
            if queues.is_empty() {
                self.queues.remove(topic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { waiters: 20, waiters_of_owner: 8, bytes: usize::MAX, bytes_of_owner: usize::MAX };

    fn waiter(offset: i64, codes: &[i32], deadline_ms: i64, value: u32) -> Waiter<u32> {
        Waiter { offset, codes: codes.iter().copied().collect(), deadline_ms, owner: 0, bytes: 0, value }
    }

    fn of(owner: u64, value: u32) -> Waiter<u32> {
        Waiter { owner, ..waiter(0, &[], 1, value) }
    }

    fn values(due: &mut Vec<Waiter<u32>>) -> Vec<u32> {
        due.drain(..).map(|waiter| waiter.value).collect()
    }

    #[track_caller]
    fn assert_empty(table: &WaitTable<u32>) {
        let left = (table.waiters.len(), table.queues.len(), table.deadlines.len(), table.owners.len(), table.bytes);
        assert_eq!(left, (0, 0, 0, 0, 0));
    }

    #[test]
    fn arrivals_wake_by_queue_offset_and_code() {
        let mut table = WaitTable::new(LIMITS);
        table.add("T", 0, waiter(5, &[], 100, 1)).unwrap();
        table.add("T", 0, waiter(5, &[7], 90, 2)).unwrap();
        table.add("T", 1, waiter(0, &[], 80, 3)).unwrap();
        table.add("U", 0, waiter(9, &[], 70, 4)).unwrap();
        let mut due = Vec::new();
        table.arrived("T", 0, 4, 7, &mut due);
        assert!(due.is_empty(), "the message lies before the offset wanted");
        table.arrived("T", 0, 5, 8, &mut due);
        assert_eq!(values(&mut due), [1]);
        table.arrived("T", 0, 6, 7, &mut due);
        assert_eq!(values(&mut due), [2]);
        assert_eq!((table.len(), table.next_deadline_ms()), (2, Some(70)));
        table.expired(79, 9, &mut due);
        assert_eq!(values(&mut due), [4]);
        table.expired(80, 9, &mut due);
        assert_eq!(values(&mut due), [3]);
        assert_empty(&table);
    }

    #[test]
    fn a_waiter_of_too_many_codes_wakes_for_any_and_keeps_them() {
        let codes: Vec<i32> = (0..=INDEXED_CODES as i32).collect();
        let mut table = WaitTable::new(LIMITS);
        table.add("T", 0, waiter(5, &codes, 100, 1)).unwrap();
        table.add("T", 0, waiter(5, &codes[1..], 100, 2)).unwrap();
        let mut due = Vec::new();
        table.arrived("T", 0, 4, 1, &mut due);
        assert!(due.is_empty());
        table.arrived("T", 0, 5, -1, &mut due);
        assert_eq!(due[0].codes.as_slice(), codes);
        assert_eq!(values(&mut due), [1]);
        table.arrived("T", 0, 5, 9, &mut due);
        assert_eq!(values(&mut due), [2]);
        assert_empty(&table);
    }

    #[test]
    fn a_full_table_hands_back() {
        let mut table = WaitTable::new(Limits { waiters: 1, ..LIMITS });
        table.add("T", 0, of(1, 1)).unwrap();
        assert_eq!(table.add("T", 0, of(2, 2)).unwrap_err().value, 2);
        let mut due = Vec::new();
        table.drain(&mut due);
        assert_eq!(values(&mut due), [1]);
        assert_empty(&table);
        table.add("T", 0, of(1, 3)).unwrap();
    }

    #[test]
    fn an_owner_has_its_part_and_goes_with_all_of_it() {
        let mut table = WaitTable::new(LIMITS);
        for value in 0..8 {
            table.add("T", value as i32 % 2, of(1, value)).unwrap();
        }
        assert_eq!(table.add("T", 0, of(1, 8)).unwrap_err().value, 8);
        table.add("T", 0, of(2, 9)).unwrap();
        let mut due = Vec::new();
        table.owner_gone(3, &mut due);
        assert!(due.is_empty());
        table.owner_gone(1, &mut due);
        let mut gone = values(&mut due);
        gone.sort_unstable();
        assert_eq!((gone, table.len()), ((0..8).collect(), 1));
        table.add("T", 0, of(1, 10)).unwrap();
        table.arrived("T", 0, 0, 0, &mut due);
        assert_eq!(values(&mut due), [9, 10]);
        assert_empty(&table);
    }

    #[test]
    fn bytes_are_bounded_for_an_owner_and_for_all() {
        let bytes_of_owner = 3 * WAITER_BYTES + 1_000;
        let limits = Limits { waiters_of_owner: 20, bytes: 2 * bytes_of_owner, bytes_of_owner, ..LIMITS };
        let mut table = WaitTable::new(limits);
        let heavy = |owner, bytes| Waiter { bytes, ..of(owner, 0) };
        table.add("T", 0, heavy(1, 1_001)).unwrap();
        table.add("T", 0, heavy(1, 0)).unwrap();
        assert!(table.add("T", 0, heavy(1, 0)).is_err(), "one byte too many");
        table.add("T", 0, heavy(2, 2 * WAITER_BYTES)).unwrap();
        assert!(table.add("T", 0, Waiter { codes: (0..2_000).collect(), ..heavy(3, 0) }).is_err(), "codes count, too");
        table.add("T", 0, heavy(3, 0)).unwrap();
        table.add("T", 0, heavy(3, 400)).unwrap();
        assert!(table.add("T", 0, heavy(4, 0)).is_err(), "all together");
        table.owner_gone(1, &mut Vec::new());
        table.add("T", 0, heavy(4, 0)).unwrap();
        let mut due = Vec::new();
        table.expired(1, 3, &mut due);
        assert_eq!(due.len(), 3, "no more than asked for");
        table.expired(1, 3, &mut due);
        assert_empty(&table);
    }

    /// Compares the table with a plain list under random steps: nothing is lost, doubled, early or late.
    #[test]
    fn equals_a_plain_list() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut table = WaitTable::new(LIMITS);
            let mut model: Vec<(String, i32, Waiter<u32>)> = Vec::new();
            let mut now_ms = 0;
            for step in 0..300u32 {
                let topic = ["A", "B"][random.usize(..2)];
                let queue_id = random.i32(0..3);
                let mut due = Vec::new();
                let mut expected: Vec<u32> = match random.u32(..20) {
                    0..11 => {
                        let codes: Vec<i32> = (0..random.usize(..3)).map(|_| random.i32(0..4)).collect();
                        let (offset, deadline_ms, owner) = (random.i64(0..20), now_ms + random.i64(1..30), random.u64(0..4));
                        let new = || Waiter { owner, ..waiter(offset, &codes, deadline_ms, step) };
                        let room = model.len() < 20 && model.iter().filter(|entry| entry.2.owner == owner).count() < 8;
                        assert_eq!(table.add(topic, queue_id, new()).is_ok(), room, "seed {seed}");
                        if room {
                            model.push((topic.to_owned(), queue_id, new()));
                        }
                        continue;
                    }
                    11..18 => {
                        let (offset, code) = (random.i64(0..25), random.i64(0..4));
                        table.arrived(topic, queue_id, offset, code, &mut due);
                        take(&mut model, |(t, q, w)| {
                            t == topic && *q == queue_id && offset >= w.offset && (w.codes.is_empty() || w.codes.contains(&(code as i32)))
                        })
                    }
                    18 => {
                        let owner = random.u64(0..4);
                        table.owner_gone(owner, &mut due);
                        take(&mut model, |entry| entry.2.owner == owner)
                    }
                    _ => {
                        now_ms += random.i64(0..15);
                        table.expired(now_ms, 20, &mut due);
                        take(&mut model, |entry| entry.2.deadline_ms <= now_ms)
                    }
                };
                let mut due = values(&mut due);
                due.sort_unstable();
                expected.sort_unstable();
                assert_eq!(due, expected, "seed {seed} step {step}");
                assert_eq!(table.len(), model.len(), "seed {seed} step {step}");
                assert_eq!(table.next_deadline_ms(), model.iter().map(|entry| entry.2.deadline_ms).min(), "seed {seed} step {step}");
                assert_eq!(table.bytes, model.iter().map(|entry| entry.2.cost()).sum::<usize>(), "seed {seed} step {step}");
            }
            table.expired(i64::MAX, usize::MAX, &mut Vec::new());
            assert_empty(&table);
        }
    }

    fn take(model: &mut Vec<(String, i32, Waiter<u32>)>, hit: impl Fn(&(String, i32, Waiter<u32>)) -> bool) -> Vec<u32> {
        model.extract_if(.., |entry| hit(entry)).map(|(_, _, waiter)| waiter.value).collect()
    }
}
