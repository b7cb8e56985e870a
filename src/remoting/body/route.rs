//! `TopicRouteData` (105) in its two dialects, and `ClusterInfo` (106).

use std::collections::BTreeMap;

use crate::remoting::fastjson::{self, Value, write_text, write_text_ascii};

/// Where a topic is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicRouteData {
    /// Queues by broker name.
    pub queue_datas: Vec<QueueData>,
    /// Brokers by name.
    pub broker_datas: Vec<BrokerData>,
    /// Order configuration (`broker:count;…`), when set.
    pub order_topic_conf: Option<String>,
}

/// Queues of a topic on one broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueData {
    /// Broker.
    pub broker_name: String,
    /// Queues consumers see.
    pub read_queue_nums: i32,
    /// Queues producers see.
    pub write_queue_nums: i32,
    /// Permission bits.
    pub perm: i32,
    /// Flags.
    pub topic_sys_flag: i32,
}

/// Addresses of one broker name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerData {
    /// Cluster.
    pub cluster: String,
    /// Broker name.
    pub broker_name: String,
    /// Addresses by broker id; 0 is the master.
    pub broker_addrs: BTreeMap<i64, String>,
    /// Acting masters allowed.
    pub enable_acting_master: bool,
}

impl TopicRouteData {
    /// As JSON. `standard`: quoted keys, non-ASCII as \\uXXXX; else fastjson's bare integer keys.
    pub fn to_json(&self, standard: bool) -> String {
        let mut writer = RouteWriter { out: String::with_capacity(512), standard };
        writer.route(self);
        writer.out
    }

    /// Reads either dialect.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let value = fastjson::parse(text.as_bytes())?;
        let queue_datas = value.get("queueDatas").map_or(&[][..], Value::elements);
        let broker_datas = value.get("brokerDatas").map_or(&[][..], Value::elements);
        Ok(Self {
            queue_datas: queue_datas.iter().map(QueueData::from_value).collect(),
            broker_datas: broker_datas.iter().map(BrokerData::from_value).collect(),
            order_topic_conf: value.get("orderTopicConf").and_then(Value::as_text).map(std::borrow::Cow::into_owned),
        })
    }
}

impl QueueData {
    fn from_value(value: &Value) -> Self {
        let int = |name| value.get(name).and_then(Value::as_i64).unwrap_or(0) as i32;
        Self {
            broker_name: text(value, "brokerName"),
            read_queue_nums: int("readQueueNums"),
            write_queue_nums: int("writeQueueNums"),
            perm: int("perm"),
            topic_sys_flag: int("topicSysFlag"),
        }
    }
}

impl BrokerData {
    /// Reads one; keys of `brokerAddrs` bare or quoted.
    pub fn from_value(value: &Value) -> Self {
        let addrs = value.get("brokerAddrs").map_or(&[][..], Value::members);
        Self {
            cluster: text(value, "cluster"),
            broker_name: text(value, "brokerName"),
            broker_addrs: addrs.iter().filter_map(|(id, addr)| Some((id.as_i64()?, addr.as_text()?.into_owned()))).collect(),
            enable_acting_master: value.get("enableActingMaster").and_then(Value::as_bool).unwrap_or(false),
        }
    }

    /// Appends it in fastjson's dialect (106, 901).
    pub fn write(&self, out: &mut String) {
        let mut writer = RouteWriter { out: std::mem::take(out), standard: false };
        writer.broker(self);
        *out = writer.out;
    }
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_text).map(std::borrow::Cow::into_owned).unwrap_or_default()
}

/// Writes members in alphabetical order without blanks: Go cuts `brokerAddrs` apart by hand.
struct RouteWriter {
    out: String,
    standard: bool,
}

impl RouteWriter {
    fn route(&mut self, route: &TopicRouteData) {
        self.out.push_str("{\"brokerDatas\":[");
        for (at, broker) in route.broker_datas.iter().enumerate() {
            self.comma(at);
            self.broker(broker);
        }
        self.out.push_str("],\"filterServerTable\":{}");
        if let Some(conf) = &route.order_topic_conf {
            self.out.push_str(",\"orderTopicConf\":");
            self.text(conf);
        }
        self.out.push_str(",\"queueDatas\":[");
        for (at, queue) in route.queue_datas.iter().enumerate() {
            self.comma(at);
            self.queue(queue);
        }
        self.out.push_str("]}");
    }

    fn broker(&mut self, broker: &BrokerData) {
        self.out.push_str("{\"brokerAddrs\":{");
        for (at, (id, addr)) in broker.broker_addrs.iter().enumerate() {
            self.comma(at);
            let quote = if self.standard { "\"" } else { "" };
            self.out.push_str(quote);
            self.int(*id);
            self.out.push_str(quote);
            self.out.push(':');
            self.text(addr);
        }
        self.out.push_str("},\"brokerName\":");
        self.text(&broker.broker_name);
        self.out.push_str(",\"cluster\":");
        self.text(&broker.cluster);
        self.out.push_str(if broker.enable_acting_master { ",\"enableActingMaster\":true}" } else { ",\"enableActingMaster\":false}" });
    }

    fn queue(&mut self, queue: &QueueData) {
        self.out.push_str("{\"brokerName\":");
        self.text(&queue.broker_name);
        for (name, value) in [
            (",\"perm\":", queue.perm),
            (",\"readQueueNums\":", queue.read_queue_nums),
            (",\"topicSysFlag\":", queue.topic_sys_flag),
            (",\"writeQueueNums\":", queue.write_queue_nums),
        ] {
            self.out.push_str(name);
            self.int(value.into());
        }
        self.out.push('}');
    }

    fn comma(&mut self, at: usize) {
        if at > 0 {
            self.out.push(',');
        }
    }

    fn int(&mut self, value: i64) {
        self.out.push_str(itoa::Buffer::new().format(value));
    }

    fn text(&mut self, text: &str) {
        if self.standard {
            write_text_ascii(&mut self.out, text);
        } else {
            write_text(&mut self.out, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> TopicRouteData {
        TopicRouteData {
            queue_datas: vec![QueueData {
                broker_name: "bü".to_owned(),
                read_queue_nums: 4,
                write_queue_nums: 8,
                perm: 6,
                topic_sys_flag: 0,
            }],
            broker_datas: vec![BrokerData {
                cluster: "c".to_owned(),
                broker_name: "bü".to_owned(),
                broker_addrs: [(0, "127.0.0.1:10911".to_owned()), (1, "[::1]:10921".to_owned())].into(),
                enable_acting_master: false,
            }],
            order_topic_conf: None,
        }
    }

    #[test]
    fn both_dialects() {
        let bare = route().to_json(false);
        assert_eq!(
            bare,
            r#"{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"[::1]:10921"},"brokerName":"bü","cluster":"c","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"bü","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}"#
        );
        let standard = route().to_json(true);
        assert!(standard.contains(r#""brokerAddrs":{"0":"127.0.0.1:10911","1":"#) && standard.contains("b\\u00FC"), "{standard}");
        serde_json::from_str::<serde_json::Value>(&standard).unwrap();
        for text in [bare, standard] {
            assert_eq!(TopicRouteData::from_json(&text).unwrap(), route());
        }
    }

    #[test]
    fn order_configuration_is_kept() {
        let with_order = TopicRouteData { order_topic_conf: Some("broker-a:4".to_owned()), ..route() };
        assert_eq!(TopicRouteData::from_json(&with_order.to_json(false)).unwrap(), with_order);
    }
}
