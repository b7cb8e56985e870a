use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::config::namesrv::NamesrvConfig;
use crate::namesrv::server::Namesrv;
use crate::remoting::body::namesrv::topic_list_from_json;
use crate::remoting::body::route::TopicRouteData;

use super::*;

/// Longer than anything here takes; a test that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Topics {
    names: Mutex<Vec<String>>,
    ordered: Mutex<Vec<String>>,
    version: Mutex<DataVersion>,
}

impl Topics {
    fn new(names: &[&str]) -> Arc<Self> {
        let topics = Arc::new(Self::default());
        topics.set(names);
        topics
    }

    fn set(&self, names: &[&str]) {
        *self.names.lock() = names.iter().map(|name| (*name).to_owned()).collect();
        self.version.lock().next(1);
    }
}

impl Registered for Topics {
    fn topics(&self) -> (Vec<Arc<TopicConfig>>, DataVersion) {
        let version = *self.version.lock();
        (self.names.lock().iter().map(|name| Arc::new(TopicConfig::new(name.as_str(), 4, 6))).collect(), version)
    }

    fn order_topics(&self, topics: &[String]) {
        *self.ordered.lock() = topics.to_vec();
    }
}

fn namesrv_at(folder: &Path, port: u16) -> Result<Namesrv, String> {
    let config = NamesrvConfig { bind_address: Ipv4Addr::LOCALHOST.into(), listen_port: port, ..NamesrvConfig::new(folder) };
    Namesrv::start(config, Clock::System)
}

fn config(addresses: &[String]) -> BrokerConfig {
    BrokerConfig { namesrv_addresses: addresses.to_vec(), register_period_ms: 60_000, ..BrokerConfig::new("unused") }
}

fn address(namesrv: &Namesrv) -> String {
    namesrv.address().to_string()
}

/// A port that nobody listens on.
fn dead_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn client() -> RemotingClient {
    RemotingClient::start(RemotingClientConfig::default()).unwrap()
}

fn topics_of(client: &RemotingClient, namesrv: &str) -> Vec<String> {
    let answer = client.invoke(namesrv, request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &(), Body::Empty, PATIENCE).unwrap();
    topic_list_from_json(answer.view().body).unwrap()
}

fn route_of(client: &RemotingClient, namesrv: &str, topic: &str) -> TopicRouteData {
    let answer = client.invoke(namesrv, request::GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)], Body::Empty, PATIENCE).unwrap();
    TopicRouteData::from_json(std::str::from_utf8(answer.view().body).unwrap()).unwrap()
}

/// Looks again until something holds; an event of the other side is what is waited for, and there is nothing to block on.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn registers_at_the_start_and_leaves_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = namesrv_at(folder.path(), 0).unwrap();
    let topics = Topics::new(&["A", "B"]);
    let registration = Registration::new(&config(&[address(&namesrv)]), Clock::System);
    assert_eq!(registration.register_all(), 0, "not started");
    registration.start(10_911, 10_912, topics).unwrap();
    assert!(namesrv.wait_for_broker("broker-a", PATIENCE));
    let client = client();
    let route = route_of(&client, &address(&namesrv), "A");
    assert_eq!(route.broker_datas[0].broker_addrs[&0], "127.0.0.1:10911", "the address that reaches the name server");
    registration.unregister();
    assert!(!namesrv.knows_broker("broker-a"));
    registration.unregister();
    assert_eq!(registration.register_all(), 0);
}

#[test]
fn set_addresses_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = namesrv_at(folder.path(), 0).unwrap();
    let config = BrokerConfig { broker_ip1: Some("mq.example.org".to_owned()), ..config(&[address(&namesrv)]) };
    let registration = Registration::new(&config, Clock::System);
    registration.start(7, 8, Topics::new(&["A", "B"])).unwrap();
    assert!(namesrv.wait_for_broker("broker-a", PATIENCE));
    assert_eq!(route_of(&client(), &address(&namesrv), "A").broker_datas[0].broker_addrs[&0], "mq.example.org:7");
}

#[test]
fn topics_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = namesrv_at(folder.path(), 0).unwrap();
    let topics = Topics::new(&["A", "B"]);
    let registration = Registration::new(&config(&[address(&namesrv)]), Clock::System);
    registration.start(10_911, 10_912, Arc::clone(&topics) as Arc<dyn Registered>).unwrap();
    assert_eq!(registration.register_all(), 1);
    let client = client();
    topics.set(&["A", "B", "C"]);
    registration.register_topic("C");
    assert_eq!(topics_of(&client, &address(&namesrv)), ["A", "B", "C"], "registered when the call returns");
    registration.register_topic("deleted meanwhile");
    topics.set(&["C"]);
    assert_eq!(registration.register_all(), 1);
    assert_eq!(topics_of(&client, &address(&namesrv)), ["C"]);
    topics.set(&["C", "D"]);
    registration.request();
    eventually("a requested registration is carried out", || topics_of(&client, &address(&namesrv)) == ["C", "D"]);
}

#[test]
fn a_missing_name_server_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = namesrv_at(folder.path(), 0).unwrap();
    let topics = Topics::new(&["A", "B"]);
    let registration = Registration::new(&config(&[dead_address(), address(&namesrv)]), Clock::System);
    registration.start(10_911, 10_912, topics).unwrap();
    let start = Instant::now();
    assert_eq!(registration.register_all(), 1);
    registration.register_topic("A");
    assert!(start.elapsed() < Duration::from_secs(10));
    registration.unregister();
}

#[test]
fn a_restarted_name_server_hears_from_us_again() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = namesrv_at(folder.path(), 0).unwrap();
    let port = namesrv.address().port();
    let registration = Registration::new(&config(&[address(&namesrv)]), Clock::System);
    registration.start(10_911, 10_912, Topics::new(&["A", "B"])).unwrap();
    assert!(namesrv.wait_for_broker("broker-a", PATIENCE));
    drop(namesrv);
    let mut again = None;
    eventually("the port is free again", || {
        again = namesrv_at(folder.path(), port).ok();
        again.is_some()
    });
    assert!(again.unwrap().wait_for_broker("broker-a", PATIENCE), "long before the period of a minute");
}

#[test]
fn a_late_name_server_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let late = dead_address();
    let registration = Registration::new(&config(std::slice::from_ref(&late)), Clock::System);
    registration.start(10_911, 10_912, Topics::new(&["A", "B"])).unwrap();
    assert_eq!(registration.register_all(), 0);
    let port = late.rsplit_once(':').unwrap().1.parse().unwrap();
    let namesrv = namesrv_at(folder.path(), port).unwrap();
    assert!(namesrv.wait_for_broker("broker-a", PATIENCE));
}

#[test]
fn the_order_configuration_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = namesrv_at(folder.path(), 0).unwrap();
    let fields = [("namespace", "ORDER_TOPIC_CONFIG"), ("key", "A"), ("value", "broker-a:4")];
    let answer = client().invoke(&address(&namesrv), request::PUT_KV_CONFIG, &fields, Body::Empty, PATIENCE).unwrap();
    assert_eq!(answer.view().code, 0);
    let topics = Topics::new(&["A", "B"]);
    let registration = Registration::new(&config(&[address(&namesrv)]), Clock::System);
    registration.start(10_911, 10_912, Arc::clone(&topics) as Arc<dyn Registered>).unwrap();
    assert_eq!(registration.register_all(), 1);
    assert_eq!(*topics.ordered.lock(), ["A"]);
}

#[test]
fn a_closed_connection_unregisters_the_broker() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = namesrv_at(folder.path(), 0).unwrap();
    let client = client();
    let topics = [Arc::new(TopicConfig::new("A", 4, 6)), Arc::new(TopicConfig::new("B", 4, 6))];
    let body = register_body_json(&topics, &DataVersion::default());
    let broker =
        BrokerIdentity { broker_name: "b".to_owned(), broker_addr: "10.0.0.1:1".to_owned(), cluster_name: "c".to_owned(), broker_id: 0 };
    let answer = client.invoke(&address(&namesrv), request::REGISTER_BROKER, &broker, body.into(), PATIENCE).unwrap();
    assert_eq!(answer.view().code, 0);
    assert!(namesrv.knows_broker("b"));
    client.shutdown();
    eventually("the registration goes with its connection", || !namesrv.knows_broker("b"));
}
