//! Where topics are: queues and brokers of each, as the name server told.
//!
//! - A failed look-up leaves the known route as it is: clients go on while name servers are away.
//! - The publish queues follow Java's three rules: an order configuration replaces the list; else each broker that may be written and
//!   has a master gives its write queues.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::common::topic::{PERM_READ, PERM_WRITE};
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::body::route::{BrokerData, TopicRouteData};

/// Broker id of a master.
pub const MASTER_ID: i64 = 0;

/// A topic's route, made ready for producers and consumers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicRoute {
    /// As the name server told, lists sorted by broker name.
    pub data: TopicRouteData,
    /// Queues to send to.
    pub publish: Vec<MessageQueue>,
    /// Queues to consume.
    pub subscribe: Vec<MessageQueue>,
}

impl TopicRoute {
    /// Reads the queues of `topic` from its route data.
    pub fn new(topic: &str, mut data: TopicRouteData) -> Self {
        data.queue_datas.sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
        data.broker_datas.sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
        let publish = publish_queues(topic, &data);
        let subscribe = subscribe_queues(topic, &data);
        Self { data, publish, subscribe }
    }

    /// The route that a producer uses for a topic nobody has made yet: the template topic's brokers, each with at most
    /// `queue_limit` queues.
    pub fn from_template(topic: &str, mut template: TopicRouteData, queue_limit: i32) -> Self {
        for queue in &mut template.queue_datas {
            let queues = queue.read_queue_nums.min(queue_limit);
            queue.read_queue_nums = queues;
            queue.write_queue_nums = queues;
        }
        Self::new(topic, template)
    }
}

fn publish_queues(topic: &str, data: &TopicRouteData) -> Vec<MessageQueue> {
    if let Some(order) = data.order_topic_conf.as_deref().filter(|text| !text.trim().is_empty()) {
        return order
            .split(';')
            .filter_map(|entry| entry.split_once(':'))
            .flat_map(|(broker, count)| ordered(topic, broker, count))
            .collect();
    }
    let has_master = |name: &str| data.broker_datas.iter().any(|broker| broker.broker_name == name && master(broker).is_some());
    data.queue_datas
        .iter()
        .filter(|queues| queues.perm & PERM_WRITE != 0 && has_master(&queues.broker_name))
        .flat_map(|queues| numbered(topic, &queues.broker_name, queues.write_queue_nums))
        .collect()
}

fn ordered(topic: &str, broker: &str, count: &str) -> Vec<MessageQueue> {
    numbered(topic, broker.trim(), count.trim().parse().unwrap_or(0)).collect()
}

fn subscribe_queues(topic: &str, data: &TopicRouteData) -> Vec<MessageQueue> {
    data.queue_datas
        .iter()
        .filter(|queues| queues.perm & PERM_READ != 0)
        .flat_map(|queues| numbered(topic, &queues.broker_name, queues.read_queue_nums))
        .collect()
}

fn numbered(topic: &str, broker_name: &str, count: i32) -> impl Iterator<Item = MessageQueue> {
    let (topic, broker_name) = (topic.to_owned(), broker_name.to_owned());
    (0..count).map(move |queue_id| MessageQueue { topic: topic.clone(), broker_name: broker_name.clone(), queue_id })
}

fn master(broker: &BrokerData) -> Option<&str> {
    broker.broker_addrs.get(&MASTER_ID).map(String::as_str)
}

/// All known routes and the brokers they name.
#[derive(Debug, Default)]
pub struct RouteTable {
    tables: RwLock<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    topics: HashMap<String, Arc<TopicRoute>>,
    brokers: HashMap<String, BTreeMap<i64, String>>,
}

impl RouteTable {
    /// The known route of a topic.
    pub fn get(&self, topic: &str) -> Option<Arc<TopicRoute>> {
        self.tables.read().topics.get(topic).cloned()
    }

    /// Takes over what a name server told; whether it differs from what was known.
    pub fn put(&self, topic: &str, route: TopicRoute) -> bool {
        let mut tables = self.tables.write();
        for broker in &route.data.broker_datas {
            tables.brokers.insert(broker.broker_name.clone(), broker.broker_addrs.clone());
        }
        if tables.topics.get(topic).is_some_and(|known| **known == route) {
            return false;
        }
        tables.topics.insert(topic.to_owned(), Arc::new(route));
        true
    }

    /// Topics whose route is known.
    pub fn topics(&self) -> Vec<String> {
        self.tables.read().topics.keys().cloned().collect()
    }

    /// Address of a broker's master.
    pub fn master(&self, broker_name: &str) -> Option<String> {
        self.tables.read().brokers.get(broker_name)?.get(&MASTER_ID).cloned()
    }

    /// Address of a broker name's member `broker_id`; of its master, else of any, when that member is not known.
    pub fn member(&self, broker_name: &str, broker_id: i64) -> Option<String> {
        let tables = self.tables.read();
        let members = tables.brokers.get(broker_name)?;
        members.get(&broker_id).or_else(|| members.get(&MASTER_ID)).or_else(|| members.values().next()).cloned()
    }

    /// Addresses of all known brokers; with `slaves` also those that are no masters.
    pub fn broker_addresses(&self, slaves: bool) -> Vec<String> {
        let tables = self.tables.read();
        let mut addresses: Vec<String> = tables
            .brokers
            .values()
            .flat_map(|members| members.iter().filter(|(id, _)| slaves || **id == MASTER_ID).map(|(_, address)| address.clone()))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::body::route::QueueData;

    fn broker(name: &str, members: &[(i64, &str)]) -> BrokerData {
        BrokerData {
            cluster: "c".into(),
            broker_name: name.into(),
            broker_addrs: members.iter().map(|(id, address)| (*id, (*address).to_owned())).collect(),
            enable_acting_master: false,
        }
    }

    fn queues(name: &str, read: i32, write: i32, perm: i32) -> QueueData {
        QueueData { broker_name: name.into(), read_queue_nums: read, write_queue_nums: write, perm, topic_sys_flag: 0 }
    }

    fn names(queues: &[MessageQueue]) -> Vec<String> {
        queues.iter().map(|queue| format!("{}:{}", queue.broker_name, queue.queue_id)).collect()
    }

    #[test]
    fn queues_follow_permissions_masters_and_order_configuration() {
        let mut data = TopicRouteData {
            queue_datas: vec![queues("b", 2, 1, 6), queues("a", 1, 2, 6), queues("readonly", 1, 1, 4), queues("slave", 1, 1, 6)],
            broker_datas: vec![
                broker("a", &[(0, "a:1"), (1, "a:2")]),
                broker("b", &[(0, "b:1")]),
                broker("readonly", &[(0, "r:1")]),
                broker("slave", &[(1, "s:1")]),
            ],
            order_topic_conf: None,
        };
        let route = TopicRoute::new("T", data.clone());
        assert_eq!(names(&route.publish), ["a:0", "a:1", "b:0"]);
        assert_eq!(names(&route.subscribe), ["a:0", "b:0", "b:1", "readonly:0", "slave:0"]);
        data.order_topic_conf = Some("b:1;a:3;broken".into());
        assert_eq!(names(&TopicRoute::new("T", data.clone()).publish), ["b:0", "a:0", "a:1", "a:2"]);

        let table = RouteTable::default();
        assert!(table.put("T", route.clone()));
        assert!(!table.put("T", route));
        assert_eq!(table.master("slave"), None);
        assert_eq!(table.member("slave", 0).as_deref(), Some("s:1"));
        assert_eq!(table.member("a", 1).as_deref(), Some("a:2"));
        assert_eq!(table.member("a", 7).as_deref(), Some("a:1"));
        assert_eq!(table.broker_addresses(false), ["a:1", "b:1", "r:1"]);
        assert_eq!(table.broker_addresses(true).len(), 5);
    }

    #[test]
    fn a_new_topic_takes_the_template_with_fewer_queues() {
        let template = TopicRouteData {
            queue_datas: vec![queues("a", 8, 8, 7)],
            broker_datas: vec![broker("a", &[(0, "a:1")])],
            order_topic_conf: None,
        };
        let route = TopicRoute::from_template("new", template, 4);
        assert_eq!(names(&route.publish), ["a:0", "a:1", "a:2", "a:3"]);
        assert_eq!(route.publish[0].topic, "new");
    }
}
