//! The consumer-group table and `subscriptionGroup.json`.

use std::sync::Arc;

use crate::common::subscription::SubscriptionGroupConfig;
use crate::common::topic::DataVersion;
use crate::config::broker::BrokerConfig;

use super::config_file::MetadataWriter;

/// Consumer groups of a broker.
pub struct GroupTable {}

impl GroupTable {
    /// Loads `config/subscriptionGroup.json` (or its `.bak`) over the system groups.
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub fn load(config: &BrokerConfig, writer: MetadataWriter, now_ms: i64) -> std::io::Result<Self> {
        let _ = (config, writer, now_ms);
        todo!()
    }

    /// A group's configuration if it exists.
    pub fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        let _ = group;
        todo!()
    }

    /// A group's configuration, created by default when allowed and the name is legal. Its file follows in the background.
    pub fn find_or_create(&self, group: &str, now_ms: i64) -> Option<Arc<SubscriptionGroupConfig>> {
        let _ = (group, now_ms);
        todo!()
    }

    /// Creates or replaces. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn update(&self, config: SubscriptionGroupConfig, now_ms: i64) -> Result<(), String> {
        let _ = (config, now_ms);
        todo!()
    }

    /// Removes; false when it was not there. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn delete(&self, group: &str, now_ms: i64) -> Result<bool, String> {
        let _ = (group, now_ms);
        todo!()
    }

    /// All groups, by name.
    pub fn all(&self) -> Vec<Arc<SubscriptionGroupConfig>> {
        todo!()
    }

    /// Version of the table.
    pub fn data_version(&self) -> DataVersion {
        todo!()
    }

    /// Whether the group may not consume the topic (request 353).
    pub fn is_forbidden(&self, group: &str, topic: &str) -> bool {
        let _ = (group, topic);
        todo!()
    }

    /// Forbids or allows (request 353). Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn set_forbidden(&self, group: &str, topic: &str, forbidden: bool, now_ms: i64) -> Result<(), String> {
        let _ = (group, topic, forbidden, now_ms);
        todo!()
    }
}
