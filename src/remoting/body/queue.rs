//! `MessageQueue`: a queue of a broker, also as the key of a map.

use crate::remoting::fastjson::{Value, write_text};

/// A queue of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageQueue {
    /// Topic.
    pub topic: String,
    /// Broker.
    pub broker_name: String,
    /// Queue id.
    pub queue_id: i32,
}

impl MessageQueue {
    /// A queue.
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> Self {
        Self { topic: topic.into(), broker_name: broker_name.into(), queue_id }
    }

    /// Appends `{"brokerName":…,"queueId":…,"topic":…}`, compact: Go cuts this text apart by hand.
    pub fn write(&self, out: &mut String) {
        out.push_str("{\"brokerName\":");
        write_text(out, &self.broker_name);
        out.push_str(",\"queueId\":");
        out.push_str(itoa::Buffer::new().format(self.queue_id));
        out.push_str(",\"topic\":");
        write_text(out, &self.topic);
        out.push('}');
    }

    /// Reads one; missing members are empty or 0.
    pub fn from_value(value: &Value) -> Self {
        let text = |name| value.get(name).and_then(Value::as_text).map(std::borrow::Cow::into_owned).unwrap_or_default();
        Self {
            topic: text("topic"),
            broker_name: text("brokerName"),
            queue_id: value.get("queueId").and_then(Value::as_i64).unwrap_or(0) as i32,
        }
    }
}

/// Appends `[mq,…]`.
pub fn write_queues(out: &mut String, queues: &[MessageQueue]) {
    out.push('[');
    for (at, queue) in queues.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        queue.write(out);
    }
    out.push(']');
}

/// Appends `{mq:value,…}`, the bare object keys that Java and Go expect; `write_value` appends each value's JSON.
pub fn write_queue_map<'a, V: 'a>(
    out: &mut String, entries: impl IntoIterator<Item = (&'a MessageQueue, V)>, mut write_value: impl FnMut(&mut String, V),
) {
    out.push('{');
    for (at, (queue, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        queue.write(out);
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::fastjson;

    #[test]
    fn object_keys_read_back() {
        let queues = [MessageQueue::new("T", "b", 0), MessageQueue::new("%RETRY%g", "b", 1)];
        let mut out = String::new();
        write_queue_map(&mut out, queues.iter().zip([12i64, 13]), |out, offset| out.push_str(&offset.to_string()));
        assert_eq!(out, r#"{{"brokerName":"b","queueId":0,"topic":"T"}:12,{"brokerName":"b","queueId":1,"topic":"%RETRY%g"}:13}"#);
        let value = fastjson::parse(out.as_bytes()).unwrap();
        let read: Vec<_> = value.members().iter().map(|(key, _)| MessageQueue::from_value(key)).collect();
        assert_eq!(read, queues);
    }
}
