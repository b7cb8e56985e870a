//! The topic table and `topics.json`.

use std::sync::Arc;

use crate::common::topic::{DataVersion, TopicConfig};
use crate::config::broker::BrokerConfig;

use super::config_file::MetadataWriter;

/// Topics of a broker. Reads take no lock that a writer holds over I/O.
pub struct TopicTable {}

impl TopicTable {
    /// Loads `config/topics.json` (or its `.bak`) over the system topics.
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub fn load(config: &BrokerConfig, writer: MetadataWriter, now_ms: i64) -> std::io::Result<Self> {
        let _ = (config, writer, now_ms);
        todo!()
    }

    /// A topic's configuration.
    pub fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        let _ = topic;
        todo!()
    }

    /// Creates the topic of a send by the rules of semantics.md 3.2 from `default_topic`; `None` when they forbid it. Durable on return:
    /// only on work threads. The caller registers it with the name servers.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn create_on_send(
        &self, topic: &str, default_topic: &str, default_queues: i32, unit: bool, now_ms: i64,
    ) -> Result<Option<Arc<TopicConfig>>, String> {
        let _ = (topic, default_topic, default_queues, unit, now_ms);
        todo!()
    }

    /// The topic, created with `queues` and `perm` when it is missing (retry, dead-letter, reply topics). The flag says whether it was
    /// created. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn ensure(&self, topic: &str, queues: i32, perm: i32, sys_flag: i32, now_ms: i64) -> Result<(Arc<TopicConfig>, bool), String> {
        let _ = (topic, queues, perm, sys_flag, now_ms);
        todo!()
    }

    /// Creates or replaces; false when the stored one equals it (nothing happens then). Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn update(&self, config: TopicConfig, now_ms: i64) -> Result<bool, String> {
        let _ = (config, now_ms);
        todo!()
    }

    /// Removes; false when it was not there. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn delete(&self, topic: &str, now_ms: i64) -> Result<bool, String> {
        let _ = (topic, now_ms);
        todo!()
    }

    /// All topics, by name.
    pub fn all(&self) -> Vec<Arc<TopicConfig>> {
        todo!()
    }

    /// Version of the table.
    pub fn data_version(&self) -> DataVersion {
        todo!()
    }
}
