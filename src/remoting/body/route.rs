//! `TopicRouteData` (105) in its two dialects, and `ClusterInfo` (106).

use std::collections::BTreeMap;

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
    /// As JSON. `standard`: quoted keys, non-ASCII as \uXXXX (remoting.md 7.2); else fastjson's bare integer keys.
    pub fn to_json(&self, standard: bool) -> String {
        let _ = standard;
        todo!()
    }

    /// Reads either dialect.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let _ = text;
        todo!()
    }
}
