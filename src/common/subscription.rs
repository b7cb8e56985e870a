//! Subscriptions, consumer groups and their enumerations.

use serde::{Deserialize, Serialize};

use super::hash::java_hash;

/// Expression of tags.
pub const TAG: &str = "TAG";
/// Expression of SQL92.
pub const SQL92: &str = "SQL92";

/// One topic that a group subscribes to, with its filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Class filter, no longer supported.
    pub class_filter_mode: bool,
    /// Hashes of the tags.
    pub code_set: Vec<i32>,
    /// TAG or SQL92.
    pub expression_type: String,
    /// Expression as given; `*` for everything.
    pub sub_string: String,
    /// Version: the client's milliseconds.
    pub sub_version: i64,
    /// Tags of the expression.
    pub tags_set: Vec<String>,
    /// Topic.
    pub topic: String,
}

impl SubscriptionData {
    /// Parses an expression. Tag expressions yield their tags and codes; SQL92 text is kept as it is.
    ///
    /// # Errors
    /// The text says which part of a tag expression is empty.
    pub fn parse(topic: &str, expression: &str, expression_type: &str, version: i64) -> Result<Self, String> {
        let mut data = Self {
            topic: topic.to_owned(),
            sub_string: expression.to_owned(),
            expression_type: if expression_type.is_empty() { TAG.to_owned() } else { expression_type.to_owned() },
            sub_version: version,
            ..Self::default()
        };
        if !data.is_tag() {
            return Ok(data);
        }
        if expression.trim().is_empty() || expression == "*" {
            data.sub_string = "*".to_owned();
            return Ok(data);
        }
        let tags: Vec<&str> = expression.split("||").map(str::trim).filter(|tag| !tag.is_empty()).collect();
        if tags.is_empty() {
            return Err(format!("the subscription {expression:?} of topic {topic} names no tag"));
        }
        for tag in tags {
            data.tags_set.push(tag.to_owned());
            data.code_set.push(java_hash(tag));
        }
        Ok(data)
    }

    /// Whether the expression is one of tags.
    pub fn is_tag(&self) -> bool {
        self.expression_type.is_empty() || self.expression_type.eq_ignore_ascii_case(TAG)
    }

    /// Whether every message passes.
    pub fn is_all(&self) -> bool {
        self.is_tag() && self.tags_set.is_empty() && (self.sub_string.trim().is_empty() || self.sub_string == "*")
    }
}

/// How a group consumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ConsumeType {
    /// Pull.
    #[serde(rename = "CONSUME_ACTIVELY")]
    Actively,
    /// Push.
    #[default]
    #[serde(rename = "CONSUME_PASSIVELY")]
    Passively,
    /// Pop.
    #[serde(rename = "CONSUME_POP")]
    Pop,
}

/// Whether each message goes to one consumer of a group or to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum MessageModel {
    /// To all.
    #[serde(rename = "BROADCASTING")]
    Broadcasting,
    /// To one.
    #[default]
    #[serde(rename = "CLUSTERING")]
    Clustering,
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ConsumeFromWhere {
    /// At the end.
    #[default]
    #[serde(rename = "CONSUME_FROM_LAST_OFFSET")]
    LastOffset,
    /// Old name.
    #[serde(rename = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST")]
    LastOffsetAndFromMinWhenBootFirst,
    /// Old name.
    #[serde(rename = "CONSUME_FROM_MIN_OFFSET")]
    MinOffset,
    /// Old name.
    #[serde(rename = "CONSUME_FROM_MAX_OFFSET")]
    MaxOffset,
    /// At the beginning.
    #[serde(rename = "CONSUME_FROM_FIRST_OFFSET")]
    FirstOffset,
    /// At a time.
    #[serde(rename = "CONSUME_FROM_TIMESTAMP")]
    Timestamp,
}

/// Configuration of a consumer group, as `subscriptionGroup.json` and the protocol carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupConfig {
    /// Attributes.
    pub attributes: std::collections::BTreeMap<String, String>,
    /// Broker to read from.
    pub broker_id: i64,
    /// Broadcasting allowed.
    pub consume_broadcast_enable: bool,
    /// Consumption allowed.
    pub consume_enable: bool,
    /// Unused by servers.
    pub consume_from_min_enable: bool,
    /// Ordered pop.
    pub consume_message_orderly: bool,
    /// Minutes after which clients give a message back.
    pub consume_timeout_minute: i32,
    /// Name.
    pub group_name: String,
    /// Retry delays.
    pub group_retry_policy: serde_json::Value,
    /// Flags.
    pub group_sys_flag: i32,
    /// Send 40 to the group's clients.
    pub notify_consumer_ids_changed_enable: bool,
    /// Deliveries before a message is dead.
    pub retry_max_times: i32,
    /// Queues of the retry topic.
    pub retry_queue_nums: i32,
    /// Declared subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data_set: Option<serde_json::Value>,
    /// Broker to read from when far behind.
    pub which_broker_when_consume_slowly: i64,
}

impl Default for SubscriptionGroupConfig {
    fn default() -> Self {
        Self {
            attributes: std::collections::BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            group_name: String::new(),
            group_retry_policy: serde_json::json!({"type": "CUSTOMIZED"}),
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            subscription_data_set: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_expressions() {
        let data = SubscriptionData::parse("T", "TagA || TagB", "", 7).unwrap();
        assert_eq!(data.tags_set, ["TagA", "TagB"]);
        assert_eq!(data.code_set, [2_598_919, 2_598_920]);
        assert!(!data.is_all());
        assert!(SubscriptionData::parse("T", "*", "TAG", 0).unwrap().is_all());
        assert!(SubscriptionData::parse("T", "", "", 0).unwrap().is_all());
        assert!(SubscriptionData::parse("T", "||", "", 0).is_err());
    }
}
