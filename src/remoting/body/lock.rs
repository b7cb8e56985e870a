//! Bodies of 41 and 42.

use crate::remoting::fastjson::{self, Value, write_text};

use super::queue::{MessageQueue, write_queues};

/// Request body of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockBatchBody {
    /// Group.
    pub consumer_group: String,
    /// Client.
    pub client_id: String,
    /// Queues.
    pub mq_set: Vec<MessageQueue>,
    /// Do not ask other replicas.
    pub only_this_broker: bool,
}

impl LockBatchBody {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let value = fastjson::parse_object(text, "LockBatchRequestBody")?;
        let text = |name| value.get(name).and_then(Value::as_text).map(std::borrow::Cow::into_owned).unwrap_or_default();
        Ok(Self {
            consumer_group: text("consumerGroup"),
            client_id: text("clientId"),
            mq_set: queues(value.get("mqSet")),
            only_this_broker: value.get("onlyThisBroker").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// As Java writes it (clients).
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"clientId\":");
        write_text(&mut out, &self.client_id);
        out.push_str(",\"consumerGroup\":");
        write_text(&mut out, &self.consumer_group);
        out.push_str(",\"mqSet\":");
        write_queues(&mut out, &self.mq_set);
        out.push_str(if self.only_this_broker { ",\"onlyThisBroker\":true}" } else { ",\"onlyThisBroker\":false}" });
        out
    }
}

fn queues(value: Option<&Value>) -> Vec<MessageQueue> {
    value.map_or(&[][..], Value::elements).iter().map(MessageQueue::from_value).collect()
}

/// Body of 41's answer.
pub fn lock_ok_json(queues: &[MessageQueue]) -> String {
    let mut out = String::from("{\"lockOKMQSet\":");
    write_queues(&mut out, queues);
    out.push('}');
    out
}

/// Reads 41's answer (clients).
///
/// # Errors
/// What is wrong, and where.
pub fn lock_ok_from_json(text: &[u8]) -> Result<Vec<MessageQueue>, String> {
    Ok(queues(fastjson::parse(text)?.get("lockOKMQSet")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        let body = LockBatchBody {
            consumer_group: "g".to_owned(),
            client_id: "1.2.3.4@1".to_owned(),
            mq_set: vec![MessageQueue::new("T", "b", 3)],
            only_this_broker: true,
        };
        assert_eq!(LockBatchBody::from_json(body.to_json().as_bytes()).unwrap(), body);
        let cpp = b"{\"clientId\":\"c\",\"consumerGroup\":\"g\",\"mqSet\":[{\"brokerName\":\"b\",\"queueId\":3,\"topic\":\"T\"}]}\n";
        assert!(!LockBatchBody::from_json(cpp).unwrap().only_this_broker);
        assert_eq!(lock_ok_from_json(lock_ok_json(&body.mq_set).as_bytes()).unwrap(), body.mq_set);
        for bad in ["{", "[]", "null", "\"\"", "123", ""] {
            let why = LockBatchBody::from_json(bad.as_bytes()).unwrap_err();
            assert!(why.contains("LockBatchRequestBody") && why.contains("expected"), "{bad}: {why}");
        }
    }
}
