//! What nobody consumed before the store deleted it: one line for each group and topic.
//!
//! A group is known by its committed offsets. A topic on which no group has any is told as group `-`, and so are delayed messages that were
//! not delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;

use crate::common::topic::{SCHEDULE_TOPIC, is_system_topic};
use crate::store::{DeletedMessages, DeletionListener};

use super::context::BrokerContext;

/// No group.
const NOBODY: &str = "-";
/// Lines of one report; what is not told is counted.
const MAX_LINES: usize = 100;

/// Told by the store.
pub(super) struct Deletions(pub(super) Weak<BrokerContext>);

impl DeletionListener for Deletions {
    fn deleted(&self, messages: &[DeletedMessages]) {
        let Some(context) = self.0.upgrade() else { return };
        let mut lost = Lost::among(messages);
        for (level, next, _) in context.delay.offsets() {
            lost.consumed(SCHEDULE_TOPIC, NOBODY, level as i32 - 1, next);
        }
        context.offsets.each_committed(&mut |topic, group, queue_id, offset| lost.consumed(topic, group, queue_id, offset));
        let lost = lost.finish();
        for ((topic, group), count) in lost.iter().take(MAX_LINES) {
            log::warn!("unconsumed deleted: group={group} topic={topic} messages={count}");
        }
        if lost.len() > MAX_LINES {
            log::warn!("unconsumed deleted: of {} more groups and topics", lost.len() - MAX_LINES);
        }
    }
}

/// What went, and what groups have consumed of it.
struct Lost<'a> {
    /// Offsets that are gone, by topic and queue.
    gone: BTreeMap<&'a str, BTreeMap<i32, (i64, i64)>>,
    /// Messages of a topic that a group had consumed before they went.
    consumed: BTreeMap<(String, String), i64>,
    /// Topics that have groups.
    with_groups: BTreeSet<String>,
}

impl<'a> Lost<'a> {
    fn among(messages: &'a [DeletedMessages]) -> Self {
        let mut gone: BTreeMap<&str, BTreeMap<i32, (i64, i64)>> = BTreeMap::new();
        for DeletedMessages { topic, queue_id, from, to } in messages {
            if is_system_topic(topic) && topic != SCHEDULE_TOPIC {
                continue;
            }
            let range = gone.entry(topic).or_default().entry(*queue_id).or_insert((*from, *to));
            *range = (range.0.min(*from), range.1.max(*to)); // file by file
        }
        Self { gone, consumed: BTreeMap::new(), with_groups: BTreeSet::new() }
    }

    /// A group goes on at `offset` in a queue.
    fn consumed(&mut self, topic: &str, group: &str, queue_id: i32, offset: i64) {
        let Some(queues) = self.gone.get(topic) else { return };
        let consumed = queues.get(&queue_id).map_or(0, |(from, to)| (offset.min(*to) - from).max(0));
        *self.consumed.entry((topic.to_owned(), group.to_owned())).or_default() += consumed;
        self.with_groups.insert(topic.to_owned());
    }

    /// Messages lost, by topic and group.
    fn finish(mut self) -> BTreeMap<(String, String), i64> {
        for topic in self.gone.keys().filter(|topic| !self.with_groups.contains(**topic)) {
            self.consumed.insert(((*topic).to_owned(), NOBODY.to_owned()), 0);
        }
        let all = |topic: &str| self.gone.get(topic).map_or(0, |queues| queues.values().map(|(from, to)| to - from).sum::<i64>());
        let lost = self.consumed.into_iter().map(|((topic, group), consumed)| {
            let lost = all(&topic) - consumed;
            ((topic, group), lost)
        });
        lost.filter(|(_, lost)| *lost > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(topic: &str, queue_id: i32, from: i64, to: i64) -> DeletedMessages {
        DeletedMessages { topic: topic.to_owned(), queue_id, from, to }
    }

    #[test]
    fn every_group_is_told_what_it_missed() {
        let messages = [
            gone("A", 0, 0, 10),
            gone("A", 0, 10, 25), // the next file
            gone("A", 1, 5, 10),
            gone("B", 0, 0, 7),
            gone("TBW102", 0, 0, 7),
            gone(SCHEDULE_TOPIC, 2, 0, 3),
        ];
        let mut lost = Lost::among(&messages);
        lost.consumed("A", "slow", 0, 20);
        lost.consumed("A", "slow", 1, 3); // before the oldest
        lost.consumed("A", "done", 0, 25);
        lost.consumed("A", "done", 1, 400);
        lost.consumed("A", "half", 1, 10); // nothing of queue 0
        lost.consumed("C", "other", 0, 0);
        lost.consumed(SCHEDULE_TOPIC, NOBODY, 2, 1);
        let lost = lost.finish();
        let told: Vec<(&str, &str, i64)> = lost.iter().map(|((topic, group), count)| (topic.as_str(), group.as_str(), *count)).collect();
        assert_eq!(told, [("A", "half", 25), ("A", "slow", 10), ("B", NOBODY, 7), (SCHEDULE_TOPIC, NOBODY, 2)]);
    }
}
