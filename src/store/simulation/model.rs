//! What a store must hold: every message appended, by queue offset, as long as nothing has excused its loss.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::record::Record;
use crate::store::message_store::MessageStore;

/// Queue: topic and id.
pub(crate) type QueueName = (String, i32);

/// A message that was appended.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Physical offsets of its start and behind its end.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The record, to the last byte.
    pub(crate) record: Vec<u8>,
    /// A key it is found by.
    pub(crate) key: Option<String>,
    /// A consumer has seen it.
    pub(crate) shown: bool,
    /// Its file may have been cleaned away.
    pub(crate) optional: bool,
}

/// What has just happened to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing may be lost: an orderly stop, or the process died.
    None,
    /// The power failed: what was neither acknowledged, nor shown under SYNC_FLUSH, may be lost.
    Unsynced,
}

/// The messages.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) queues: BTreeMap<QueueName, BTreeMap<i64, Message>>,
    /// Offset of the next append, where it is known.
    pub(crate) next: BTreeMap<QueueName, i64>,
    /// Numbers below were given to messages that were promised: no other message gets them, whatever happens.
    pub(crate) taken: BTreeMap<QueueName, i64>,
    /// What ends at or before this physical offset was said to be on disk.
    pub(crate) promised: i64,
    /// Topics whose deletion has failed on the way: their messages may be there or not.
    pub(crate) uncertain: BTreeSet<String>,
    /// Only what is on disk may be shown.
    pub(crate) sync_flush: bool,
    /// Messages are found by key.
    pub(crate) keys: bool,
}

impl Model {
    /// The store has said that everything before `offset` is on disk.
    pub(crate) fn promise(&mut self, offset: i64) {
        self.promised = self.promised.max(offset);
    }

    /// The log begins at `offset` now.
    pub(crate) fn cleaned(&mut self, offset: i64) {
        for message in self.queues.values_mut().flat_map(BTreeMap::values_mut) {
            message.optional |= message.start < offset;
        }
    }

    /// A topic is gone.
    pub(crate) fn deleted(&mut self, topic: &str) {
        self.queues.retain(|(name, _), _| name != topic);
        self.next.retain(|(name, _), _| name != topic);
        self.taken.retain(|(name, _), _| name != topic);
        self.uncertain.remove(topic);
    }

    /// A message was given this number.
    pub(crate) fn number(&mut self, queue: &QueueName, offset: i64) -> Result<(), String> {
        let (next, taken) = (self.next.insert(queue.clone(), offset + 1), self.taken.get(queue).copied().unwrap_or(0));
        let right = next.map_or(offset >= taken, |next| offset == next);
        if right || self.uncertain.contains(&queue.0) {
            Ok(())
        } else {
            Err(format!("{queue:?} numbers {offset}, next={next:?} taken={taken}"))
        }
    }

    /// A consumer was given this record at this offset.
    pub(crate) fn show(&mut self, queue: &QueueName, offset: i64, record: &[u8]) -> Result<(), String> {
        if self.uncertain.contains(&queue.0) {
            return Ok(());
        }
        let promised = self.promised;
        let Some(message) = self.queues.get_mut(queue).and_then(|messages| messages.get_mut(&offset)) else {
            return Err(format!("a consumer of {queue:?} was shown something at {offset} that was never appended"));
        };
        if message.record != record {
            return Err(format!("a consumer of {queue:?} was shown something else at {offset}: {}", difference(&message.record, record)));
        }
        if self.sync_flush && message.end > promised {
            let end = message.end;
            return Err(format!(
                "a consumer of {queue:?} was shown {offset}, which ends at {end}, but the log is flushed up to {promised}"
            ));
        }
        message.shown = true;
        Ok(())
    }

    /// Compares with a store that was just opened and is at rest; takes over what it holds.
    pub(crate) fn reconcile(&mut self, store: &MessageStore, loss: Loss) -> Vec<String> {
        let mut found = Vec::new();
        let stats = store.stats();
        if loss == Loss::None {
            let last = self.queues.values().flat_map(BTreeMap::values).map(|message| message.end).max().unwrap_or(0);
            if stats.max_physical_offset < last {
                found.push(format!("the log ends at {}, the last message at {last}", stats.max_physical_offset));
            }
        }
        let mut taken = std::mem::take(&mut self.taken);
        for (name, messages) in &self.queues {
            let last = messages.iter().rev().find(|(_, message)| loss == Loss::None || self.is_promised(message));
            let number = taken.entry(name.clone()).or_insert(0);
            *number = last.map_or(0, |(offset, _)| offset + 1).max(*number);
        }
        taken.retain(|(topic, _), _| !self.uncertain.contains(topic));
        (self.taken, self.next) = (taken, BTreeMap::new());
        let mut names: BTreeSet<QueueName> = self.queues.keys().cloned().collect();
        names.extend(store.topics().into_iter().flat_map(|(topic, ids)| ids.into_iter().map(move |id| (topic.clone(), id))));
        for name in names {
            let there = self.compare_queue(store, &name, loss, &mut found);
            if there.is_empty() {
                self.queues.remove(&name)
            } else {
                self.queues.insert(name, there)
            };
        }
        self.uncertain.clear();
        self.promised = stats.flushed_offset;
        found
    }

    fn is_promised(&self, message: &Message) -> bool {
        message.end <= self.promised || self.sync_flush && message.shown
    }

    /// Compares one queue; returns what it holds.
    fn compare_queue(&mut self, store: &MessageStore, name: &QueueName, loss: Loss, found: &mut Vec<String>) -> BTreeMap<i64, Message> {
        let (topic, id) = (name.0.as_str(), name.1);
        let mut expected = self.queues.remove(name).unwrap_or_default();
        let uncertain = self.uncertain.contains(topic);
        let (min, max) = store.queue_bounds(topic, id);
        let taken = self.taken.get(name).copied().unwrap_or(0);
        if max < taken && !uncertain {
            found.push(format!("{name:?} ends at {max}, but numbers up to {taken} are taken"));
        }
        if store.has_queue(topic, id) {
            self.next.insert(name.clone(), max);
        }
        let mut there = BTreeMap::new();
        for offset in min..max {
            let record = store.message_at(topic, id, offset).and_then(|(_, record)| record);
            let is_whole = |record: &[u8]| Record::parse(record).is_ok_and(|record| record.topic == topic && record.queue_id == id);
            let record = record.filter(|record| is_whole(record)); // not a seal
            let message = expected.remove(&offset);
            match (record, message) {
                (Some(record), Some(message)) if message.record[..] == record[..] => {
                    if self.keys && !has_key(store, topic, &message) {
                        found.push(format!("{name:?} {offset} is not found by its key {:?}", message.key));
                    }
                    there.insert(offset, message);
                }
                (Some(record), Some(mut message)) if !self.is_promised(&message) && lost_properties_alone(&message.record, &record) => {
                    (message.record, message.key) = (record.to_vec(), None); // no sum covers them: as in Java
                    there.insert(offset, message);
                }
                (Some(record), Some(message)) => {
                    found.push(format!("{name:?} holds something else at {offset}: {}", difference(&message.record, &record)));
                }
                (Some(_), None) => found.push(format!("{name:?} holds something at {offset} that should not be there")),
                (None, Some(message)) => {
                    expected.insert(offset, message);
                }
                (None, None) if self.sync_flush && !uncertain => found.push(format!("{name:?} has a hole at {offset}")),
                (None, None) => {}
            }
        }
        for (offset, message) in expected {
            if !message.optional && !uncertain && (loss == Loss::None || self.is_promised(&message)) {
                let Message { start, end, shown, .. } = message;
                found.push(format!(
                    "{name:?} {offset} is lost: start={start} end={end} shown={shown} promised={} {min}..{max}",
                    self.promised
                ));
            } else if self.sync_flush && !uncertain && offset >= min && offset < max {
                found.push(format!("{name:?} has a hole at {offset}, although what follows is there"));
            }
        }
        there
    }
}

fn has_key(store: &MessageStore, topic: &str, message: &Message) -> bool {
    let Some(key) = &message.key else { return true };
    store.query(topic, key, 64, 0, i64::MAX).records.iter().any(|record| record[..] == message.record[..])
}

/// Whether what is there is what was expected but for a piece of the properties that has become zeros.
fn lost_properties_alone(expected: &[u8], there: &[u8]) -> bool {
    let Ok(record) = Record::parse(expected) else { return false };
    let properties = expected.len() - record.properties.len();
    let zero_or_same = |(expected, there): (&u8, &u8)| *there == 0 || there == expected;
    expected.len() == there.len() && expected[..properties] == there[..properties] && expected.iter().zip(there).all(zero_or_same)
}

/// Where two records differ.
fn difference(expected: &[u8], there: &[u8]) -> String {
    let at = expected.iter().zip(there).position(|(a, b)| a != b).unwrap_or(expected.len().min(there.len()));
    let parsed = |bytes: &[u8]| {
        Record::parse(bytes)
            .map_or_else(|error| error.to_string(), |r| format!("{}/{} {} at {}", r.topic, r.queue_id, r.queue_offset, r.physical_offset))
    };
    format!("byte {at} of {} and {} bytes, {} and {}", expected.len(), there.len(), parsed(expected), parsed(there))
}
