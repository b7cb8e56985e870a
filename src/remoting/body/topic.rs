//! Bodies about topics: configuration tables (18, 21, 351), statistics (202), lists (300, 305, 343), time spans (303).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::topic::{DataVersion, TopicConfig};
use crate::remoting::fastjson::{self, Value};

use super::object::{ObjectWriter, object_text, write_array};
use super::queue::{MessageQueue, write_queue_map};

/// Reads a topic's configuration; missing members have their defaults. `name` stands where the value names none.
///
/// # Errors
/// The value is no object.
pub fn topic_config(value: &Value, name: &str) -> Result<TopicConfig, String> {
    if !matches!(value, Value::Object(_)) {
        return Err(format!("the configuration of topic {name:?} is no object"));
    }
    let default = TopicConfig::default();
    let int = |member: &str, default: i32| value.get(member).and_then(Value::as_i64).map_or(default, |number| number as i32);
    Ok(TopicConfig {
        attributes: texts_by_name(value.get("attributes")),
        order: value.get("order").and_then(Value::as_bool).unwrap_or(default.order),
        perm: int("perm", default.perm),
        read_queue_nums: int("readQueueNums", default.read_queue_nums),
        topic_filter_type: text(value, "topicFilterType").unwrap_or(default.topic_filter_type),
        topic_name: text(value, "topicName").filter(|name| !name.is_empty()).unwrap_or_else(|| name.to_owned()),
        topic_sys_flag: int("topicSysFlag", default.topic_sys_flag),
        write_queue_nums: int("writeQueueNums", default.write_queue_nums),
    })
}

/// Reads the body of 18.
///
/// # Errors
/// What is wrong, and where.
pub fn topic_config_list(body: &[u8]) -> Result<Vec<TopicConfig>, String> {
    let value = fastjson::parse(body)?;
    value.get("topicConfigList").map_or(&[][..], Value::elements).iter().map(|config| topic_config(config, "")).collect()
}

/// Reads a table of configurations by name, as `topics.json` and the answer to 21 hold it.
///
/// # Errors
/// An entry is no object.
pub fn topic_config_table(value: &Value) -> Result<Vec<TopicConfig>, String> {
    let members = value.get("topicConfigTable").map_or(&[][..], Value::members);
    members.iter().map(|(name, config)| topic_config(config, &name.as_text().unwrap_or_default())).collect()
}

/// Reads a version; absent members are 0.
pub fn data_version(value: Option<&Value>) -> DataVersion {
    let number = |name| value.and_then(|value| value.get(name)).and_then(Value::as_i64).unwrap_or(0);
    DataVersion { state_version: number("stateVersion"), counter: number("counter"), timestamp: number("timestamp") }
}

/// Appends `{"counter":…,"stateVersion":…,"timestamp":…}`.
pub fn write_data_version(out: &mut String, version: &DataVersion) {
    ObjectWriter::new(out).int("counter", version.counter).int("stateVersion", version.state_version).int("timestamp", version.timestamp);
}

/// Body of 21's answer.
pub fn topic_config_table_json(topics: &[Arc<TopicConfig>], version: &DataVersion) -> String {
    object_text(|body| {
        body.value("dataVersion", |out| write_data_version(out, version));
        body.value("mappingDataVersion", |out| write_data_version(out, &DataVersion::default()));
        body.object("topicConfigTable", |table| {
            for topic in topics {
                table.serde(&topic.topic_name, &**topic);
            }
        });
        body.object("topicQueueMappingDetailMap", |_| {}).object("topicQueueMappingInfoMap", |_| {});
    })
}

/// Body of 351's answer.
pub fn topic_config_json(topic: &TopicConfig) -> String {
    object_text(|body| {
        body.serde("topicConfig", topic);
    })
}

/// Offsets of one queue, as 202 tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicOffset {
    /// Offset of the first message.
    pub min_offset: i64,
    /// Offset behind the last message.
    pub max_offset: i64,
    /// Store time of the last message, ms; 0 for none.
    pub last_update_timestamp: i64,
}

/// Body of 202's answer.
pub fn topic_stats_json(queues: &[(MessageQueue, TopicOffset)], topic_put_tps: f64) -> String {
    object_text(|body| {
        body.value("offsetTable", |out| {
            write_queue_map(out, queues.iter().map(|(queue, offset)| (queue, offset)), |out, offset| {
                ObjectWriter::new(out)
                    .int("lastUpdateTimestamp", offset.last_update_timestamp)
                    .int("maxOffset", offset.max_offset)
                    .int("minOffset", offset.min_offset);
            });
        });
        body.float("topicPutTps", topic_put_tps);
    })
}

/// Body `{"topicList":[…]}` (304, 305, 343 …), with the broker's address where the reference gives it.
pub fn topic_list_json<T: AsRef<str>>(topics: impl IntoIterator<Item = T>, broker_addr: Option<&str>) -> String {
    object_text(|body| {
        if let Some(address) = broker_addr {
            body.text("brokerAddr", address);
        }
        body.texts("topicList", topics);
    })
}

/// What a group has consumed of one queue, in times (303).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueTimeSpan {
    /// Queue.
    pub queue: MessageQueue,
    /// Store time of the first message.
    pub min_timestamp: i64,
    /// Store time of the last message.
    pub max_timestamp: i64,
    /// Store time of the last message consumed.
    pub consume_timestamp: i64,
    /// How old the next message is, ms; 0 when there is none.
    pub delay_time: i64,
}

/// Body of 303's answer.
pub fn time_spans_json(spans: &[QueueTimeSpan]) -> String {
    object_text(|body| {
        body.value("consumeTimeSpanSet", |out| {
            write_array(out, spans, |out, span| {
                ObjectWriter::new(out)
                    .int("consumeTimeStamp", span.consume_timestamp)
                    .text("consumeTimeStampStr", &time_text(span.consume_timestamp))
                    .int("delayTime", span.delay_time)
                    .value("messageQueue", |out| span.queue.write(out))
                    .int("maxTimeStamp", span.max_timestamp)
                    .text("maxTimeStampStr", &time_text(span.max_timestamp))
                    .int("minTimeStamp", span.min_timestamp)
                    .text("minTimeStampStr", &time_text(span.min_timestamp));
            });
        });
    })
}

/// `yyyy-MM-dd#HH:mm:ss:SSS` in the process's time zone.
fn time_text(ms: i64) -> String {
    let Ok(timestamp) = jiff::Timestamp::from_millisecond(ms) else { return String::new() };
    let local = timestamp.to_zoned(jiff::tz::TimeZone::system());
    format!("{}:{:03}", local.strftime("%Y-%m-%d#%H:%M:%S"), ms.rem_euclid(1_000))
}

/// A text member.
pub(super) fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_text).map(std::borrow::Cow::into_owned)
}

/// An object of texts.
pub(super) fn texts_by_name(value: Option<&Value>) -> BTreeMap<String, String> {
    let members = value.map_or(&[][..], Value::members);
    members.iter().filter_map(|(name, value)| Some((name.as_text()?.into_owned(), value.as_text()?.into_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_of_old_and_new_writers() {
        let old = fastjson::parse(br#"{"topicConfigTable":{"T":{"order":false,"perm":"6","readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}"#).unwrap();
        let table = topic_config_table(&old).unwrap();
        assert_eq!(table, [TopicConfig { read_queue_nums: 8, write_queue_nums: 4, ..TopicConfig::new("T", 8, 6) }]);
        let new = fastjson::parse(br#"{topicConfigTable:{"T":{"attributes":{"message.type":"FIFO"},"unknown":[1]},}}"#).unwrap();
        let table = topic_config_table(&new).unwrap();
        assert_eq!((table[0].topic_name.as_str(), table[0].read_queue_nums), ("T", 16));
        assert_eq!(table[0].attributes["message.type"], "FIFO");
        assert!(topic_config_table(&fastjson::parse(br#"{"topicConfigTable":{"T":7}}"#).unwrap()).is_err());
    }

    #[test]
    fn bodies_as_the_reference_writes_them() {
        let topics = [Arc::new(TopicConfig::new("T", 4, 6))];
        let version = DataVersion { state_version: 0, counter: 3, timestamp: 17 };
        assert_eq!(
            topic_config_table_json(&topics, &version),
            r#"{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":17},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}"#
        );
        let offset = TopicOffset { min_offset: 1, max_offset: 9, last_update_timestamp: 5 };
        assert_eq!(
            topic_stats_json(&[(MessageQueue::new("T", "b", 0), offset)], 0.5),
            r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":5,"maxOffset":9,"minOffset":1}},"topicPutTps":0.5}"#
        );
        assert_eq!(topic_list_json(["a"], Some("1.2.3.4:5")), r#"{"brokerAddr":"1.2.3.4:5","topicList":["a"]}"#);
    }

    #[test]
    fn time_span_texts() {
        let span = QueueTimeSpan { min_timestamp: 1_700_000_000_123, ..QueueTimeSpan::default() };
        let text = time_spans_json(&[span]);
        assert!(text.contains(":20:123\""), "{text}");
        assert!(text.contains(r#""messageQueue":{"brokerName":"","queueId":0,"topic":""}"#), "{text}");
    }
}
