//! Subscriptions, consumer groups and their enumerations.

use serde::{Deserialize, Serialize};

use super::hash::java_hash;

/// Expression of tags.
pub const TAG: &str = "TAG";
/// Expression of SQL92.
pub const SQL92: &str = "SQL92";

/// Longest expression that is read, bytes.
pub const MAX_EXPRESSION_BYTES: usize = 64 * 1024;

/// Refuses what belongs to a subscription and exceeds [`MAX_EXPRESSION_BYTES`].
///
/// # Errors
/// The text names `what`, its length and the limit.
pub fn check_length(what: &str, topic: &str, bytes: usize) -> Result<(), String> {
    if bytes <= MAX_EXPRESSION_BYTES {
        return Ok(());
    }
    Err(format!("the {what} of topic {topic} has {bytes} bytes, at most {MAX_EXPRESSION_BYTES} are served"))
}

/// The tags of an expression, `a || b`.
pub fn tags(expression: &str) -> impl Iterator<Item = &str> {
    expression.split("||").map(str::trim).filter(|tag| !tag.is_empty())
}

/// One topic that a group subscribes to, with its filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Class filter, no longer supported.
    pub class_filter_mode: bool,
    /// Hashes of the tags, sorted, each once.
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
    /// The text says that a tag expression names no tag, or how long the expression is and how long it may be.
    pub fn parse(topic: &str, expression: &str, expression_type: &str, version: i64) -> Result<Self, String> {
        check_length("subscription", topic, expression.len())?;
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
        data.set_tags(tags(expression).map(str::to_owned).collect());
        if data.tags_set.is_empty() {
            return Err(no_tag(topic, expression));
        }
        Ok(data)
    }

    /// Sets the tags and their codes.
    pub(crate) fn set_tags(&mut self, tags: Vec<String>) {
        self.code_set = tags.iter().map(|tag| java_hash(tag)).collect();
        self.code_set.sort_unstable();
        self.code_set.dedup();
        self.tags_set = tags;
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

/// What is wrong with an expression that names no tag.
pub(crate) fn no_tag(topic: &str, expression: &str) -> String {
    format!("the subscription {expression:?} of topic {topic} names no tag")
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
        let data = SubscriptionData::parse("T", "TagB||TagA|| ||TagB", "", 0).unwrap();
        assert_eq!((data.tags_set.len(), data.code_set), (3, vec![2_598_919, 2_598_920]));
    }

    #[test]
    fn long_expressions_are_refused_with_their_length() {
        let longest = "a||".repeat(MAX_EXPRESSION_BYTES / 3) + "a";
        assert_eq!(longest.len(), 65_536);
        assert_eq!(SubscriptionData::parse("T", &longest, "", 0).unwrap().code_set, [97]);
        for kind in [TAG, SQL92] {
            let refusal = SubscriptionData::parse("T", &(longest.clone() + "a"), kind, 0).unwrap_err();
            assert!(refusal.contains("topic T") && refusal.contains("65537") && refusal.contains("65536"), "{refusal}");
        }
    }
}
