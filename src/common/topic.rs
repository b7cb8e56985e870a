//! Topics: configuration, permissions, system names, retry and dead-letter names, the rules for names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// May be read.
pub const PERM_READ: i32 = 4;
/// May be written.
pub const PERM_WRITE: i32 = 2;
/// New topics may inherit from it.
pub const PERM_INHERIT: i32 = 1;
/// Read and write.
pub const PERM_READ_WRITE: i32 = PERM_READ | PERM_WRITE;

/// Template of automatically created topics.
pub const TBW102: &str = "TBW102";
/// Holds messages of the delay levels; queue = level - 1.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Half messages.
pub const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Finished half messages.
pub const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Half messages of the reference's other transaction store; there in folders taken over.
pub const ROCKSDB_HALF_TOPIC: &str = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC";
/// Finished half messages of the same.
pub const ROCKSDB_OP_HALF_TOPIC: &str = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC";
/// Half messages that were checked too often.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Self test of clients.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Benchmark of the Java distribution.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// Reset events.
pub const OFFSET_MOVED_EVENT: &str = "OFFSET_MOVED_EVENT";
/// Message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Arbitrary timers.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Prefix of system topics.
pub const SYSTEM_PREFIX: &str = "rmq_sys_";
/// Prefix of retry topics.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of dead-letter topics.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Suffix of the reply topic, after the cluster's name.
pub const REPLY_SUFFIX: &str = "REPLY_TOPIC";
/// Longest topic in bytes, except retry and dead-letter topics.
pub const MAX_TOPIC_LEN: usize = 127;
/// Longest retry or dead-letter topic in bytes.
pub const MAX_RETRY_TOPIC_LEN: usize = 255;
/// Longest group in bytes.
pub const MAX_GROUP_LEN: usize = 120;

/// Configuration of a topic, as `topics.json` and the protocol carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// Attributes (queue.type, cleanup.policy, message.type …), keys without `+`.
    pub attributes: BTreeMap<String, String>,
    /// Ordered topic.
    pub order: bool,
    /// Permission bits.
    pub perm: i32,
    /// Queues consumers see.
    pub read_queue_nums: i32,
    /// SINGLE_TAG or MULTI_TAG.
    pub topic_filter_type: String,
    /// Name.
    pub topic_name: String,
    /// Bit 0 unit, bit 1 unit subscription.
    pub topic_sys_flag: i32,
    /// Queues producers see.
    pub write_queue_nums: i32,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            order: false,
            perm: PERM_READ_WRITE,
            read_queue_nums: 16,
            topic_filter_type: "SINGLE_TAG".to_owned(),
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

impl TopicConfig {
    /// A topic with `queues` read and write queues.
    pub fn new(name: impl Into<String>, queues: i32, perm: i32) -> Self {
        Self { topic_name: name.into(), read_queue_nums: queues, write_queue_nums: queues, perm, ..Self::default() }
    }
}

/// Version of a metadata table; ordered by state version, counter, timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// Controller epoch, 0 without a controller.
    pub state_version: i64,
    /// Number of changes.
    pub counter: i64,
    /// Milliseconds of the last change.
    pub timestamp: i64,
}

impl DataVersion {
    /// Counts one change at `now_ms`.
    pub fn next(&mut self, now_ms: i64) {
        self.timestamp = now_ms;
        self.counter += 1;
    }
}

/// Name of a group's retry topic.
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// Name of a group's dead-letter topic.
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

/// Whether clients may neither delete nor alter the topic.
pub fn is_system_topic(topic: &str) -> bool {
    const NAMES: [&str; 11] = [
        TBW102,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    ];
    topic.starts_with(SYSTEM_PREFIX) || NAMES.contains(&topic)
}

/// Whether clients may not send to the topic.
pub fn is_send_forbidden(topic: &str) -> bool {
    const NAMES: [&str; 8] = [
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    ];
    NAMES.contains(&topic)
}

/// Checks a topic's name.
///
/// # Errors
/// The text for the client: what is wrong, the actual value, the limit.
pub fn check_topic(topic: &str) -> Result<(), String> {
    if topic.trim().is_empty() {
        return Err("The specified topic is blank.".to_owned());
    }
    if let Some(bad) = topic.chars().find(|c| !is_name_char(*c)) {
        return Err(format!("The specified topic[{topic}] contains the illegal character {bad:?}, allowing only ^[%|a-zA-Z0-9_-]+$"));
    }
    let limit = if topic.starts_with(RETRY_PREFIX) || topic.starts_with(DLQ_PREFIX) { MAX_RETRY_TOPIC_LEN } else { MAX_TOPIC_LEN };
    if topic.len() > limit {
        return Err(format!("The specified topic is longer than topic max length: {} bytes, limit {limit} bytes.", topic.len()));
    }
    Ok(())
}

/// Checks a group's name.
///
/// # Errors
/// The text for the client: what is wrong, the actual value, the limit.
pub fn check_group(group: &str) -> Result<(), String> {
    if group.trim().is_empty() {
        return Err("The specified group is blank.".to_owned());
    }
    if let Some(bad) = group.chars().find(|c| !is_name_char(*c)) {
        return Err(format!("The specified group[{group}] contains the illegal character {bad:?}, allowing only ^[%|a-zA-Z0-9_-]+$"));
    }
    if group.len() > MAX_GROUP_LEN {
        return Err(format!("The specified group is longer than group max length: {} bytes, limit {MAX_GROUP_LEN} bytes.", group.len()));
    }
    Ok(())
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_their_limits() {
        assert!(check_topic(&"t".repeat(127)).is_ok());
        let refusal = check_topic(&"t".repeat(128)).unwrap_err();
        assert!(refusal.contains("128") && refusal.contains("127"), "{refusal}");
        assert!(check_topic(&retry_topic(&"g".repeat(120))).is_ok());
        assert!(check_topic("a b").unwrap_err().contains("' '"));
        assert!(check_topic(" ").is_err());
        assert!(check_group(&"g".repeat(121)).unwrap_err().contains("120"));
    }
}
