//! Committed offsets and `consumerOffset.json`.

use std::collections::BTreeMap;

use crate::config::broker::BrokerConfig;

use super::config_file::MetadataWriter;

/// Offsets by topic, group and queue; pending server-side resets.
pub struct OffsetTable {}

impl OffsetTable {
    /// Loads `config/consumerOffset.json` (or its `.bak`).
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub fn load(config: &BrokerConfig, writer: MetadataWriter) -> std::io::Result<Self> {
        let _ = (config, writer);
        todo!()
    }

    /// The stored offset: the next one to consume.
    pub fn get(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        let _ = (topic, group, queue_id);
        todo!()
    }

    /// Stores an offset, also a smaller one. False (nothing stored) while a reset of this queue is pending.
    pub fn commit(&self, topic: &str, group: &str, queue_id: i32, offset: i64) -> bool {
        let _ = (topic, group, queue_id, offset);
        todo!()
    }

    /// Sets a pending reset and stores it as the group's offset (request 222).
    pub fn reset(&self, topic: &str, group: &str, queue_id: i32, offset: i64) {
        let _ = (topic, group, queue_id, offset);
        todo!()
    }

    /// The pending reset, which stays.
    pub fn pending_reset(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        let _ = (topic, group, queue_id);
        todo!()
    }

    /// The pending reset, which is forgotten: the next pull answers it.
    pub fn take_reset(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        let _ = (topic, group, queue_id);
        todo!()
    }

    /// Offsets of a group on a topic, by queue.
    pub fn queues(&self, topic: &str, group: &str) -> BTreeMap<i32, i64> {
        let _ = (topic, group);
        todo!()
    }

    /// Topics on which the group has offsets.
    pub fn topics_of(&self, group: &str) -> Vec<String> {
        let _ = group;
        todo!()
    }

    /// Groups that have offsets on the topic.
    pub fn groups_of(&self, topic: &str) -> Vec<String> {
        let _ = topic;
        todo!()
    }

    /// Forgets a group (on every topic).
    pub fn remove_group(&self, group: &str) {
        let _ = group;
        todo!()
    }

    /// Forgets a topic.
    pub fn remove_topic(&self, topic: &str) {
        let _ = topic;
        todo!()
    }

    /// The file's content (request 43 answers it too).
    pub fn to_json(&self) -> String {
        todo!()
    }

    /// Writes the file if something changed since the last time. Called every `flushConsumerOffsetInterval`.
    pub fn persist(&self) {
        todo!()
    }
}
