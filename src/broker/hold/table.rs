//! The table of waiting requests, by topic and queue. Pure: no clock, no thread, no I/O.
//!
//! - A waiter is in the table or has been handed back, never both and never neither.
//! - A waiter is handed back by the first arrival at or behind its offset that it wants, by its deadline, with its owner, or when what it
//!   wants is another now.
//! - Every step costs what it hands out, not what waits: a waiter stands under each code it wants, by offset; under its deadline; and
//!   under its owner. Waiters for matches of one expression stand under it, and a message is evaluated once for all of them.
//! - What would be slow is left to whoever gets the waiter: one that wants more than [`INDEXED_CODES`] codes, or whose expression does not
//!   fit into a queue's [`WATCHED_PARTS`], is handed back by any message behind its offset, as is one for an expression by a message
//!   of more than [`EVALUATED_BYTES`] of properties; [`Ending::Perhaps`] says so.
//! - A waiter for an expression comes back with the offset behind the messages that the expression has rejected meanwhile: a waiter comes
//!   before any message at or behind its offset has arrived, so that it has seen all of them.
//! - [`Limits`] hold for all waiters together and for those of one owner, in number and in bytes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use foldhash::quality::RandomState;
use smallvec::SmallVec;

use crate::filter::Expression;

/// Codes under which a waiter stands at most.
const INDEXED_CODES: usize = 64;
/// Parts of all expressions of one queue that are evaluated for each message, at most.
const WATCHED_PARTS: usize = 1_024;
/// Parts that an expression counts at least: reading the properties costs as much.
const LEAST_PARTS: usize = 16;
/// Properties of more bytes are not evaluated by the table.
const EVALUATED_BYTES: usize = 8 * 1024;
/// Bytes of a waiter's entries in the table, about.
const WAITER_BYTES: usize = 512;
/// Bytes of a waiter's entry under one code, about.
const CODE_BYTES: usize = 64;

/// Which messages a waiter wants.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Those of these tags codes; empty: all.
    Codes(SmallVec<[i32; 4]>),
    /// Those that pass the expression.
    Matching(Arc<Expression>),
}

/// Why a waiter has been handed back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing has arrived for it.
    #[default]
    Over,
    /// A message that it wants has arrived.
    Matched,
    /// A message has arrived that it may want.
    Perhaps,
}

/// Something that waits for a message of one queue.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    /// Queue offset from which on messages are wanted.
    pub(crate) offset: i64,
    /// Which of them.
    pub(crate) wanted: Wanted,
    /// Milliseconds at which it is handed back without a message.
    pub(crate) deadline_ms: i64,
    /// With whom it goes.
    pub(crate) owner: u64,
    /// Bytes that `value` keeps on the heap.
    pub(crate) bytes: usize,
    /// Set when it is handed back.
    pub(crate) ending: Ending,
    /// Who waits.
    pub(crate) value: T,
}

impl<T> Waiter<T> {
    /// Codes under which it stands; empty: under none.
    fn indexed(&self) -> &[i32] {
        match &self.wanted {
            Wanted::Codes(codes) if codes.len() <= INDEXED_CODES => codes,
            _ => &[],
        }
    }

    /// Whether it wants any message behind its offset.
    fn wants_all(&self) -> bool {
        matches!(&self.wanted, Wanted::Codes(codes) if codes.is_empty())
    }

    fn wants_matches_of(&self, expression: &Arc<Expression>) -> bool {
        matches!(&self.wanted, Wanted::Matching(wanted) if Arc::ptr_eq(wanted, expression))
    }

    /// Bytes that it costs while it waits.
    fn cost(&self) -> usize {
        let codes = match &self.wanted {
            Wanted::Codes(codes) => codes.len(),
            Wanted::Matching(_) => 0,
        };
        WAITER_BYTES + self.bytes + codes * size_of::<i32>() + self.indexed().len() * CODE_BYTES
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
    watches: Vec<Watch>,
}

/// Waiters for messages that pass one expression.
struct Watch {
    expression: Arc<Expression>,
    waiters: ByOffset,
    /// Behind the last message that was rejected.
    rejected_to: i64,
}

impl Queue {
    /// The watch for an expression, made if there is room for it.
    fn watch(&mut self, expression: &Arc<Expression>) -> Option<&mut Watch> {
        let known = self.watches.iter().position(|watch| Arc::ptr_eq(&watch.expression, expression));
        let place = known.or_else(|| {
            let parts: usize = self.watches.iter().map(|watch| &watch.expression).chain([expression]).map(|one| parts(one)).sum();
            if parts > WATCHED_PARTS {
                return None;
            }
            self.watches.push(Watch { expression: Arc::clone(expression), waiters: ByOffset::new(), rejected_to: 0 });
            Some(self.watches.len() - 1)
        })?;
        self.watches.get_mut(place)
    }

    fn is_empty(&self) -> bool {
        self.any.is_empty() && self.by_code.is_empty() && self.watches.is_empty()
    }
}

fn parts(expression: &Expression) -> usize {
    expression.parts().max(LEAST_PARTS)
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
        let watch = match &waiter.wanted {
            Wanted::Matching(expression) => queue.watch(expression),
            Wanted::Codes(_) => None,
        };
        if let Some(watch) = watch {
            watch.waiters.insert((waiter.offset, id));
        } else if waiter.indexed().is_empty() {
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

    /// A message arrived: moves the waiters it satisfies, and those it may satisfy, to `due`.
    pub(crate) fn arrived(
        &mut self, topic: &str, queue_id: i32, queue_offset: i64, tags_code: i64, properties: &str, due: &mut Vec<Waiter<T>>,
    ) {
        let Some(queue) = self.queues.get_mut(topic).and_then(|queues| queues.get_mut(&queue_id)) else { return };
        let reached = ..=(queue_offset, u64::MAX);
        let ids = |waiters: &ByOffset| waiters.range(reached).map(|(_, id)| *id).collect::<SmallVec<[u64; 8]>>();
        // Clients hash tags to 32 bits, as the code of the message's tags is.
        let tagged = queue.by_code.get(&(tags_code as i32)).map(ids).unwrap_or_default();
        let (mut matched, mut perhaps) = (tagged, SmallVec::<[u64; 8]>::new());
        for id in ids(&queue.any) {
            let is_exact = self.waiters.get(&id).is_some_and(|entry| entry.waiter.wants_all());
            if is_exact { matched.push(id) } else { perhaps.push(id) }
        }
        for watch in &mut queue.watches {
            if properties.len() > EVALUATED_BYTES {
                perhaps.extend(ids(&watch.waiters));
            } else if watch.expression.matches(properties) {
                matched.extend(ids(&watch.waiters));
            } else {
                watch.rejected_to = queue_offset + 1;
            }
        }
        for (ids, ending) in [(matched, Ending::Matched), (perhaps, Ending::Perhaps)] {
            due.extend(ids.into_iter().filter_map(|id| self.remove(id)).map(|waiter| Waiter { ending, ..waiter }));
        }
    }

    /// An expression is no longer that of its subscription: moves the waiters for its matches to `due`.
    pub(crate) fn expression_gone(&mut self, topic: &str, expression: &Arc<Expression>, due: &mut Vec<Waiter<T>>) {
        let Some(queues) = self.queues.get(topic) else { return };
        let waiters = queues.values().flat_map(|queue| queue.any.iter().chain(queue.watches.iter().flat_map(|watch| &watch.waiters)));
        let wants = |id: &u64| self.waiters.get(id).is_some_and(|entry| entry.waiter.wants_matches_of(expression));
        let ids: Vec<u64> = waiters.map(|(_, id)| *id).filter(wants).collect();
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
        let Entry { topic, queue_id, mut waiter } = self.waiters.remove(&id)?;
        self.deadlines.remove(&(waiter.deadline_ms, id));
        self.leave_queue(&topic, queue_id, &mut waiter, id);
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

    fn leave_queue(&mut self, topic: &str, queue_id: i32, waiter: &mut Waiter<T>, id: u64) {
        let Some(queues) = self.queues.get_mut(topic) else { return };
        let Some(queue) = queues.get_mut(&queue_id) else { return };
        queue.any.remove(&(waiter.offset, id));
        if let Some(place) = queue.watches.iter().position(|watch| waiter.wants_matches_of(&watch.expression)) {
            let watch = &mut queue.watches[place];
            if watch.waiters.remove(&(waiter.offset, id)) {
                waiter.offset = waiter.offset.max(watch.rejected_to);
            }
            if watch.waiters.is_empty() {
                queue.watches.swap_remove(place);
            }
        }
        for code in waiter.indexed() {
            let Some(tagged) = queue.by_code.get_mut(code) else { continue };
            tagged.remove(&(waiter.offset, id));
            if tagged.is_empty() {
                queue.by_code.remove(code);
            }
        }
        if queue.is_empty() {
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
        let wanted = Wanted::Codes(codes.iter().copied().collect());
        Waiter { offset, wanted, deadline_ms, owner: 0, bytes: 0, ending: Ending::Over, value }
    }

    fn matching(offset: i64, expression: &Arc<Expression>, value: u32) -> Waiter<u32> {
        Waiter { wanted: Wanted::Matching(Arc::clone(expression)), ..waiter(offset, &[], 1, value) }
    }

    fn expression(text: &str) -> Arc<Expression> {
        Arc::new(Expression::compile(text).unwrap())
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
        table.arrived("T", 0, 4, 7, "", &mut due);
        assert!(due.is_empty(), "the message lies before the offset wanted");
        table.arrived("T", 0, 5, 8, "", &mut due);
        assert_eq!(values(&mut due), [1]);
        table.arrived("T", 0, 6, 7, "", &mut due);
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
        table.arrived("T", 0, 4, 1, "", &mut due);
        assert!(due.is_empty());
        table.arrived("T", 0, 5, -1, "", &mut due);
        assert!(matches!(&due[0].wanted, Wanted::Codes(kept) if kept.as_slice() == codes));
        assert_eq!(due[0].ending, Ending::Perhaps);
        assert_eq!(values(&mut due), [1]);
        table.arrived("T", 0, 5, 9, "", &mut due);
        assert_eq!(values(&mut due), [2]);
        assert_empty(&table);
    }

    #[test]
    fn a_match_wakes_those_who_wait_for_it_behind_what_was_rejected() {
        let (a, b) = (expression("a = 1"), expression("b IS NOT NULL"));
        let mut table = WaitTable::new(LIMITS);
        table.add("T", 0, matching(5, &a, 1)).unwrap();
        table.add("T", 0, matching(9, &a, 2)).unwrap();
        table.add("T", 0, matching(5, &b, 3)).unwrap();
        table.add("T", 1, matching(5, &a, 4)).unwrap();
        let mut due = Vec::new();
        table.arrived("T", 0, 4, 0, "a\u{1}1\u{2}", &mut due);
        table.arrived("T", 0, 5, 0, "a\u{1}2\u{2}", &mut due);
        table.arrived("T", 0, 6, 0, "", &mut due);
        assert!(due.is_empty());
        table.arrived("T", 0, 7, 0, "a\u{1}1\u{2}", &mut due);
        assert_eq!((due[0].offset, due[0].ending), (7, Ending::Matched));
        assert_eq!(values(&mut due), [1]);
        table.expired(1, 9, &mut due);
        due.sort_by_key(|waiter| waiter.value);
        let left: Vec<_> = due.drain(..).map(|waiter| (waiter.value, waiter.offset, waiter.ending)).collect();
        assert_eq!(left, [(2, 9, Ending::Over), (3, 8, Ending::Over), (4, 5, Ending::Over)]);
        assert_empty(&table);
    }

    #[test]
    fn what_is_slow_to_evaluate_is_left_to_others() {
        let long = expression(&vec!["a = 1"; WATCHED_PARTS].join(" OR "));
        let short = expression("a = 1");
        let mut table = WaitTable::new(LIMITS);
        table.add("T", 0, matching(5, &long, 1)).unwrap();
        table.add("T", 0, matching(5, &short, 2)).unwrap();
        let mut due = Vec::new();
        table.arrived("T", 0, 5, 0, "", &mut due);
        assert_eq!((due[0].ending, due[0].offset), (Ending::Perhaps, 5));
        assert_eq!(values(&mut due), [1]);
        table.arrived("T", 0, 6, 0, &"x".repeat(EVALUATED_BYTES + 1), &mut due);
        assert_eq!((due[0].ending, due[0].offset), (Ending::Perhaps, 6));
        assert_eq!(values(&mut due), [2]);
        assert_empty(&table);
        let others: Vec<_> = (0..WATCHED_PARTS / LEAST_PARTS + 1).map(|_| expression("a = 1")).collect();
        let mut table = WaitTable::new(Limits { waiters: 1_000, waiters_of_owner: 1_000, ..LIMITS });
        for (value, expression) in others.iter().enumerate() {
            table.add("T", 0, matching(0, expression, value as u32)).unwrap();
        }
        table.arrived("T", 0, 0, 0, "", &mut due);
        assert_eq!(values(&mut due), [(WATCHED_PARTS / LEAST_PARTS) as u32], "only so many are evaluated");
    }

    #[test]
    fn an_expression_goes_with_those_who_wait_for_its_matches() {
        let (a, b, long) = (expression("a = 1"), expression("a = 1"), expression(&vec!["a = 1"; WATCHED_PARTS].join(" OR ")));
        let mut table = WaitTable::new(LIMITS);
        for (topic, expression, value) in [("T", &a, 1), ("T", &b, 2), ("U", &a, 3), ("T", &long, 4)] {
            table.add(topic, 0, matching(5, expression, value)).unwrap();
        }
        let mut due = Vec::new();
        table.arrived("T", 0, 4, 0, "", &mut due);
        table.expression_gone("T", &a, &mut due);
        assert_eq!((due[0].offset, due[0].ending), (5, Ending::Over));
        table.expression_gone("T", &long, &mut due);
        assert_eq!(values(&mut due), [1, 4]);
        table.expired(1, 9, &mut due);
        assert_eq!(due.len(), 2);
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
        table.arrived("T", 0, 0, 0, "", &mut due);
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
        assert!(table.add("T", 0, Waiter { wanted: Wanted::Codes((0..2_000).collect()), ..heavy(3, 0) }).is_err(), "codes count, too");
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
                        table.arrived(topic, queue_id, offset, code, "", &mut due);
                        take(&mut model, |(t, q, w)| {
                            let Wanted::Codes(codes) = &w.wanted else { panic!("codes only") };
                            t == topic && *q == queue_id && offset >= w.offset && (codes.is_empty() || codes.contains(&(code as i32)))
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
