//! Bodies of the name server's answers besides routes: clusters (106), member groups (901), topic lists as clients read them, KV
//! tables (103, 219).

use std::collections::BTreeMap;

use crate::remoting::fastjson::{self, Value};

use super::object::object_text;
use super::route::BrokerData;

/// `ClusterInfo` (106).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Brokers by name.
    pub brokers: BTreeMap<String, BrokerData>,
    /// Broker names by cluster.
    pub clusters: BTreeMap<String, Vec<String>>,
}

impl ClusterInfo {
    /// As JSON, broker ids as bare keys.
    pub fn to_json(&self) -> String {
        object_text(|body| {
            body.object("brokerAddrTable", |table| {
                for (name, broker) in &self.brokers {
                    table.value(name, |out| broker.write(out));
                }
            });
            body.object("clusterAddrTable", |table| {
                for (cluster, names) in &self.clusters {
                    table.texts(cluster, names);
                }
            });
        })
    }

    /// Reads an answer (clients).
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let value = fastjson::parse(text)?;
        let members = |name: &str| value.get(name).map_or(&[][..], Value::members);
        let key = |key: &Value| key.as_text().map(std::borrow::Cow::into_owned);
        Ok(Self {
            brokers: members("brokerAddrTable")
                .iter()
                .filter_map(|(name, broker)| Some((key(name)?, BrokerData::from_value(broker))))
                .collect(),
            clusters: members("clusterAddrTable").iter().filter_map(|(name, names)| Some((key(name)?, texts(names)))).collect(),
        })
    }
}

/// Body of 901's answer.
pub fn member_group_json(group: &BrokerData) -> String {
    object_text(|body| {
        body.value("brokerMemberGroup", |out| group.write(out));
    })
}

/// Reads a list of topics (clients).
///
/// # Errors
/// What is wrong, and where.
pub fn topic_list_from_json(text: &[u8]) -> Result<Vec<String>, String> {
    Ok(fastjson::parse(text)?.get("topicList").map(texts).unwrap_or_default())
}

/// Body of 219's answer and of 103's.
pub fn kv_table_json<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    object_text(|body| {
        body.object("table", |table| {
            for (key, value) in entries {
                table.text(key, value);
            }
        });
    })
}

/// Reads a KV table (brokers, clients).
///
/// # Errors
/// What is wrong, and where.
pub fn kv_table_from_json(text: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let value = fastjson::parse(text)?;
    let entries = value.get("table").map_or(&[][..], Value::members);
    Ok(entries.iter().filter_map(|(key, value)| Some((key.as_text()?.into_owned(), value.as_text()?.into_owned()))).collect())
}

fn texts(value: &Value) -> Vec<String> {
    value.elements().iter().filter_map(Value::as_text).map(std::borrow::Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> BrokerData {
        BrokerData {
            cluster: "c".to_owned(),
            broker_name: "b".to_owned(),
            broker_addrs: BTreeMap::from([(0, "10.0.0.1:10911".to_owned()), (1, "10.0.0.2:10911".to_owned())]),
            enable_acting_master: false,
        }
    }

    #[test]
    fn clusters_with_bare_keys() {
        let info = ClusterInfo {
            brokers: BTreeMap::from([("b".to_owned(), broker())]),
            clusters: BTreeMap::from([("c".to_owned(), vec!["b".to_owned()])]),
        };
        let text = info.to_json();
        assert_eq!(
            text,
            r#"{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b","cluster":"c","enableActingMaster":false}},"clusterAddrTable":{"c":["b"]}}"#
        );
        assert_eq!(ClusterInfo::from_json(text.as_bytes()).unwrap(), info);
        assert_eq!(ClusterInfo::default().to_json(), r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#);
    }

    #[test]
    fn member_groups() {
        assert_eq!(
            member_group_json(&BrokerData { broker_addrs: BTreeMap::new(), ..broker() }),
            r#"{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"b","cluster":"c","enableActingMaster":false}}"#
        );
    }

    #[test]
    fn lists_and_tables() {
        assert_eq!(topic_list_from_json(br#"{"topicList":["A","B"]}"#).unwrap(), ["A", "B"]);
        let text = kv_table_json([("T", "b:4;c:8")]);
        assert_eq!(text, r#"{"table":{"T":"b:4;c:8"}}"#);
        assert_eq!(kv_table_from_json(text.as_bytes()).unwrap(), BTreeMap::from([("T".to_owned(), "b:4;c:8".to_owned())]));
    }
}
