//! Bodies of administration: runtime information (28), statistics (315), consumption (208, 223, 308, 317), resets (220, 222), HA (907),
//! assignments (400).

use std::collections::BTreeMap;

use crate::remoting::fastjson::{self, Value};

use super::group::{MessageRequestMode, RequestModeSetting};
use super::object::{ObjectWriter, object_text, write_array};
use super::queue::{MessageQueue, write_queue_map};
use super::topic::text;

/// Body `{"table":{name:text}}` (28).
pub fn table_json(table: &BTreeMap<String, String>) -> String {
    object_text(|body| {
        body.object("table", |object| {
            for (name, value) in table {
                object.text(name, value);
            }
        });
    })
}

/// One window of a statistic item (315).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatsWindow {
    /// Sum.
    pub sum: i64,
    /// Per second.
    pub tps: f64,
    /// Per call.
    pub average: f64,
}

/// A statistic item: minute, hour, day.
pub type StatsItem = [StatsWindow; 3];

/// Body of 315's answer.
pub fn stats_item_json(item: &StatsItem) -> String {
    let mut out = String::new();
    write_stats_item(&mut out, item);
    out
}

/// Body of 315's answer for the key `*`: every item of the name.
pub fn stats_items_json(items: &BTreeMap<String, StatsItem>) -> String {
    object_text(|body| {
        body.object("table", |table| {
            for (key, item) in items {
                table.value(key, |out| write_stats_item(out, item));
            }
        });
    })
}

fn write_stats_item(out: &mut String, [minute, hour, day]: &StatsItem) {
    let mut object = ObjectWriter::new(out);
    for (name, window) in [("statsDay", day), ("statsHour", hour), ("statsMinute", minute)] {
        object.object(name, |object| {
            object.float("avgpt", window.average).int("sum", window.sum).float("tps", window.tps);
        });
    }
}

/// How far a group has come in one queue (208).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumeOffset {
    /// Offset behind the last message.
    pub broker_offset: i64,
    /// Committed offset; 0 for none.
    pub consumer_offset: i64,
    /// Offset behind what was handed out.
    pub pull_offset: i64,
    /// Store time of the last message consumed; 0 for none.
    pub last_timestamp: i64,
}

/// How far a group has come (208).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumeStats {
    /// By queue.
    pub queues: Vec<(MessageQueue, ConsumeOffset)>,
    /// Messages per second.
    pub consume_tps: f64,
}

impl ConsumeStats {
    /// Messages that wait.
    pub fn diff(&self) -> i64 {
        self.queues.iter().map(|(_, offset)| offset.broker_offset - offset.consumer_offset).sum()
    }

    /// Messages handed out and not yet committed.
    pub fn inflight(&self) -> i64 {
        self.queues.iter().map(|(_, offset)| offset.pull_offset - offset.consumer_offset).sum()
    }

    /// Body of 208's answer.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        ObjectWriter::new(out).float("consumeTps", self.consume_tps).value("offsetTable", |out| {
            write_queue_map(out, self.queues.iter().map(|(queue, offset)| (queue, offset)), |out, offset| {
                ObjectWriter::new(out)
                    .int("brokerOffset", offset.broker_offset)
                    .int("consumerOffset", offset.consumer_offset)
                    .int("lastTimestamp", offset.last_timestamp)
                    .int("pullOffset", offset.pull_offset);
            });
        });
    }
}

/// Body of 317's answer: per group its topics.
pub fn consume_stats_list_json(broker_addr: &str, groups: &[(String, Vec<ConsumeStats>)]) -> String {
    let all = || groups.iter().flat_map(|(_, topics)| topics);
    object_text(|body| {
        body.text("brokerAddr", broker_addr);
        body.value("consumeStatsList", |out| {
            write_array(out, groups, |out, (group, topics)| {
                ObjectWriter::new(out).value(group, |out| write_array(out, topics, |out, stats| stats.write(out)));
            });
        });
        body.int("totalDiff", all().map(ConsumeStats::diff).sum());
        body.int("totalInflightDiff", all().map(ConsumeStats::inflight).sum());
    })
}

/// Body of 222's answer and of 220. `c_style`: the array that C++ reads.
pub fn reset_offset_json(offsets: &[(MessageQueue, i64)], c_style: bool) -> String {
    let write_offset = |out: &mut String, offset: i64| out.push_str(itoa::Buffer::new().format(offset));
    object_text(|body| {
        body.value("offsetTable", |out| {
            if c_style {
                write_array(out, offsets, |out, (queue, offset)| {
                    ObjectWriter::new(out)
                        .text("brokerName", &queue.broker_name)
                        .int("offset", *offset)
                        .int("queueId", queue.queue_id.into())
                        .text("topic", &queue.topic);
                });
            } else {
                write_queue_map(out, offsets.iter().map(|(queue, offset)| (queue, *offset)), write_offset);
            }
        });
    })
}

/// Offsets by queue as a client tells them (221).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Offset by queue.
    pub queues: Vec<(MessageQueue, i64)>,
}

impl ConsumerStatus {
    /// Reads the answer to 221.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        let value = fastjson::parse(body)?;
        let table = value.get("messageQueueTable").map_or(&[][..], Value::members);
        let queues = table.iter().filter_map(|(queue, offset)| Some((queue_key(queue)?, offset.as_i64()?)));
        Ok(Self { queues: queues.collect() })
    }
}

/// A queue as a key: an object, or the text of one.
fn queue_key(key: &Value) -> Option<MessageQueue> {
    match key {
        Value::Text(text) => fastjson::parse(text.as_bytes()).ok().map(|value| MessageQueue::from_value(&value)),
        Value::Object(_) => Some(MessageQueue::from_value(key)),
        _ => None,
    }
}

/// Body of 223's answer: by client.
pub fn consumer_status_json(clients: &BTreeMap<String, ConsumerStatus>) -> String {
    object_text(|body| {
        body.object("consumerTable", |object| {
            for (client_id, status) in clients {
                object.value(client_id, |out| {
                    write_queue_map(out, status.queues.iter().map(|(queue, offset)| (queue, *offset)), |out, offset: i64| {
                        out.push_str(itoa::Buffer::new().format(offset));
                    });
                });
            }
        });
    })
}

/// Body of 308's answer: offset by queue id.
pub fn correction_offsets_json(offsets: &BTreeMap<i32, i64>) -> String {
    object_text(|body| {
        body.object("correctionOffsets", |object| {
            for (queue_id, offset) in offsets {
                object.integer_key((*queue_id).into(), |out| out.push_str(itoa::Buffer::new().format(*offset)));
            }
        });
    })
}

/// Body of 907's answer of a master without slaves.
pub fn lone_master_json(max_physical_offset: i64) -> String {
    object_text(|body| {
        body.object("haClientRuntimeInfo", |client| {
            client
                .bool("activated", false)
                .int("lastReadTimestamp", 0)
                .int("lastWriteTimestamp", 0)
                .int("masterFlushOffset", 0)
                .int("maxOffset", 0)
                .int("transferredByteInSecond", 0);
        });
        body.value("haConnectionInfo", |out| out.push_str("[]"));
        body.int("inSyncSlaveNums", 0).bool("master", true).int("masterCommitLogMaxOffset", max_physical_offset);
    })
}

/// Body of 400.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryAssignmentBody {
    /// Topic.
    pub topic: String,
    /// Group.
    pub consumer_group: String,
    /// Client.
    pub client_id: String,
    /// `AVG`, `AVG_BY_CIRCLE` …
    pub strategy_name: String,
    /// Whether every client gets every queue.
    pub is_broadcasting: bool,
}

impl QueryAssignmentBody {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        let value = fastjson::parse_object(body, "QueryAssignmentRequestBody")?;
        let model = text(&value, "messageModel").unwrap_or_default();
        Ok(Self {
            topic: text(&value, "topic").unwrap_or_default(),
            consumer_group: text(&value, "consumerGroup").unwrap_or_default(),
            client_id: text(&value, "clientId").unwrap_or_default(),
            strategy_name: text(&value, "strategyName").unwrap_or_default(),
            is_broadcasting: model.eq_ignore_ascii_case("BROADCASTING") || model == "0",
        })
    }
}

/// Body of 400's answer; without assignments when nothing can be computed.
pub fn assignments_json(queues: Option<&[MessageQueue]>, mode: MessageRequestMode) -> String {
    object_text(|body| {
        let Some(queues) = queues else { return };
        body.value("messageQueueAssignments", |out| {
            write_array(out, queues, |out, queue| {
                ObjectWriter::new(out).value("messageQueue", |out| queue.write(out)).text("mode", mode.name());
            });
        });
    })
}

/// Reads the body of 401.
///
/// # Errors
/// What is wrong, and where.
pub fn request_mode_body(body: &[u8]) -> Result<RequestModeSetting, String> {
    RequestModeSetting::from_value(&fastjson::parse(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: i32) -> MessageQueue {
        MessageQueue::new("T", "b", id)
    }

    #[test]
    fn consumption() {
        let offset = ConsumeOffset { broker_offset: 9, consumer_offset: 4, pull_offset: 6, last_timestamp: 17 };
        let stats = ConsumeStats { queues: vec![(queue(0), offset), (queue(1), offset)], consume_tps: 1.5 };
        assert_eq!((stats.diff(), stats.inflight()), (10, 4));
        let one = r#"{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":17,"pullOffset":6},{"brokerName":"b","queueId":1,"topic":"T"}:{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":17,"pullOffset":6}}}"#;
        assert_eq!(stats.to_json(), one);
        assert_eq!(
            consume_stats_list_json("1.2.3.4:5", &[("g".to_owned(), vec![stats])]),
            format!(r#"{{"brokerAddr":"1.2.3.4:5","consumeStatsList":[{{"g":[{one}]}}],"totalDiff":10,"totalInflightDiff":4}}"#)
        );
    }

    #[test]
    fn resets_in_both_styles() {
        let offsets = [(queue(0), 12), (queue(1), 13)];
        assert_eq!(
            reset_offset_json(&offsets, false),
            r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12,{"brokerName":"b","queueId":1,"topic":"T"}:13}}"#
        );
        assert_eq!(reset_offset_json(&offsets[..1], true), r#"{"offsetTable":[{"brokerName":"b","offset":12,"queueId":0,"topic":"T"}]}"#);
    }

    #[test]
    fn status_of_clients_comes_back_as_it_was() {
        let body = r#"{"consumerTable":null,"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12,"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}":"13"}}"#;
        let status = ConsumerStatus::from_json(body.as_bytes()).unwrap();
        assert_eq!(status.queues, [(queue(0), 12), (queue(1), 13)]);
        assert_eq!(
            consumer_status_json(&BTreeMap::from([("c".to_owned(), ConsumerStatus { queues: vec![(queue(0), 12)] })])),
            r#"{"consumerTable":{"c":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}}"#
        );
    }

    #[test]
    fn small_bodies() {
        assert_eq!(correction_offsets_json(&BTreeMap::from([(0, 5), (1, 6)])), r#"{"correctionOffsets":{0:5,1:6}}"#);
        assert_eq!(table_json(&BTreeMap::from([("a".to_owned(), "1 2".to_owned())])), r#"{"table":{"a":"1 2"}}"#);
        let item = [StatsWindow { sum: 6, tps: 0.1, average: 3.0 }, StatsWindow::default(), StatsWindow::default()];
        assert_eq!(
            stats_item_json(&item),
            r#"{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},"statsMinute":{"avgpt":3.0,"sum":6,"tps":0.1}}"#
        );
        assert_eq!(assignments_json(None, MessageRequestMode::Pull), "{}");
        assert_eq!(
            assignments_json(Some(&[queue(0)]), MessageRequestMode::Pull),
            r#"{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":0,"topic":"T"},"mode":"PULL"}]}"#
        );
        let body = QueryAssignmentBody::from_json(
            br#"{"topic":"T","consumerGroup":"g","clientId":"c","strategyName":"AVG","messageModel":"BROADCASTING"}"#,
        )
        .unwrap();
        assert!(body.is_broadcasting);
    }
}
