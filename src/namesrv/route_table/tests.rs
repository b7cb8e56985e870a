use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;

const LOOPBACK: &str = "127.0.0.1";

fn viewer() -> Viewer {
    Viewer::new(LOOPBACK.parse().unwrap())
}

fn options() -> RouteOptions<'static> {
    RouteOptions { viewer: viewer(), acting_master: false, zone: None }
}

fn version(counter: i64) -> DataVersion {
    DataVersion { state_version: 0, counter, timestamp: 1 }
}

fn registration(broker: &str, id: i64, address: &str, topics: &[&str]) -> Registration {
    Registration {
        cluster: "c".to_owned(),
        broker_name: broker.to_owned(),
        broker_id: id,
        address: BrokerAddress { text: address.to_owned(), own: false },
        ha_address: format!("{address}9"),
        zone: None,
        timeout_ms: None,
        enable_acting_master: Some(false),
        full: None,
        topics: topics.iter().map(|topic| TopicConfig::new(*topic, 8, 6)).collect(),
        version: version(1),
        has_mappings: false,
        connection: None,
    }
}

fn accepted(outcome: Registered) -> Option<(BrokerAddress, String)> {
    match outcome {
        Registered::Accepted { master, .. } => master,
        other => panic!("{other:?}"),
    }
}

fn register(table: &mut RouteTable, registration: &Registration, now_ms: i64) {
    accepted(table.register(registration, true, now_ms));
}

fn topics(table: &RouteTable) -> Vec<&str> {
    table.topics().collect()
}

fn perm(table: &RouteTable, topic: &str) -> i32 {
    table.route(topic, &options()).unwrap().queue_datas[0].perm
}

const REAL: [&str; 3] = MARKERS;

fn real(topics: &[&str]) -> Registration {
    let all: Vec<&str> = REAL.iter().chain(topics).copied().collect();
    registration("b", 0, "h:1", &all)
}

#[test]
fn a_registered_topic_has_a_route() {
    let mut table = RouteTable::default();
    register(&mut table, &registration("b", 0, "10.0.0.1:10911", &["A", "B"]), 0);
    register(&mut table, &registration("a", 0, "10.0.0.2:10911", &["B", "C"]), 0);
    let route = table.route("B", &options()).unwrap();
    assert_eq!(
        route.to_json(true),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.2:10911"},"brokerName":"a","cluster":"c","enableActingMaster":false},{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"b","cluster":"c","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8},{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#
    );
    assert!(route.to_json(false).contains(r#""brokerAddrs":{0:"10.0.0.2:10911"}"#));
    assert!(table.route("D", &options()).is_none());
    assert_eq!(topics(&table), ["A", "B", "C"]);
    assert!(table.knows_broker("a") && !table.knows_broker("c"));
    table.unregister("a", "10.0.0.2:10911");
    assert_eq!(topics(&table), ["A", "B"]);
    assert_eq!(table.route("B", &options()).unwrap().queue_datas.len(), 1);
}

#[test]
fn a_full_registration_replaces_what_the_broker_dropped() {
    let mut table = RouteTable::default();
    register(&mut table, &registration("b", 0, "h:1", &["A", "B"]), 0);
    register(&mut table, &registration("other", 0, "h:2", &["A", "B"]), 0);
    register(&mut table, &registration("b", 0, "h:1", &["A", "C"]), 1);
    assert_eq!(topics(&table), ["A", "B", "C"]);
    assert_eq!(table.route("B", &options()).unwrap().broker_datas[0].broker_name, "other", "another broker's topics stay");
    accepted(table.register(&registration("b", 0, "h:1", &["A", "D"]), false, 2));
    assert_eq!(topics(&table), ["A", "B", "C", "D"], "switched off");
}

#[test]
fn a_single_topic_never_takes_away() {
    let mut table = RouteTable::default();
    register(&mut table, &registration("b", 0, "h:1", &["A", "B"]), 0);
    register(&mut table, &registration("b", 0, "h:1", &["C"]), 100_000);
    assert_eq!(topics(&table), ["A", "B", "C"]);
    let empty = registration("b", 0, "h:1", &[]);
    register(&mut table, &empty, 200_000);
    assert_eq!(topics(&table), ["A", "B", "C"]);
}

#[test]
fn parts_and_changes_of_a_real_broker_never_take_away() {
    let mut table = RouteTable::default();
    register(&mut table, &real(&["A", "B"]), 0);
    register(&mut table, &registration("b", 0, "h:1", &["C", "D"]), 100_000);
    assert_eq!(topics(&table).len(), 7, "two changed topics");
    register(&mut table, &registration("b", 0, "h:1", &[SELF_TEST_TOPIC, "E"]), 100_000);
    assert_eq!(topics(&table).len(), 8, "a part of a split table");
    register(&mut table, &real(&["A"]), 100_000 + SPLIT_GUARD_MS - 1);
    assert!(table.route("C", &options()).is_some(), "named a moment ago, perhaps in another part");
    assert!(table.route("B", &options()).is_none());
    register(&mut table, &real(&["A"]), 100_000 + SPLIT_GUARD_MS);
    assert!(table.route("C", &options()).is_none());
    let mut mapped = real(&[]);
    mapped.has_mappings = true;
    register(&mut table, &mapped, 900_000);
    assert!(table.route("A", &options()).is_some(), "static topics");
}

#[test]
fn brokers_of_ours_say_what_they_name() {
    let mut table = RouteTable::default();
    let full = |topics: &[&str]| Registration { full: Some(true), ..registration("b", 0, "h:1", topics) };
    register(&mut table, &Registration { full: Some(true), ..real(&["A", "B"]) }, 0);
    register(&mut table, &Registration { full: Some(false), ..real(&[]) }, 0);
    assert_eq!(topics(&table).len(), 5);
    register(&mut table, &full(&["A"]), 0);
    assert_eq!(topics(&table), ["A"], "at once, and with a single topic");
    let mut fresh = RouteTable::default();
    assert!(matches!(fresh.register(&full(&["A"]), true, 0), Registered::Accepted { .. }));
}

#[test]
fn an_unknown_broker_with_one_topic_must_register_everything_first() {
    let mut table = RouteTable::default();
    assert_eq!(table.register(&registration("b", 0, "h:1", &["A"]), true, 0), Registered::Incomplete);
    assert!(!table.knows_broker("b"));
    register(&mut table, &registration("b", 0, "h:1", &["A", "B"]), 0);
    assert_eq!(table.register(&registration("b", 1, "h:2", &["A"]), true, 0), Registered::Incomplete, "the id is unknown");
    register(&mut table, &registration("b", 0, "h:1", &["A"]), 0);
}

#[test]
fn wiped_permissions_last_until_something_new_is_told() {
    let mut table = RouteTable::default();
    let mut told = registration("b", 0, "h:1", &["A", "B"]);
    register(&mut table, &told, 0);
    assert_eq!(table.wipe_write_perm("b"), 2);
    assert_eq!(table.wipe_write_perm("nobody"), 0);
    assert_eq!(perm(&table, "A"), 4);
    register(&mut table, &told, 1);
    assert_eq!(perm(&table, "A"), 4, "the same again");
    told.topics[1].perm = 2;
    register(&mut table, &told, 2);
    assert_eq!((perm(&table, "A"), perm(&table, "B")), (4, 2), "one topic changed");
    told.version = version(2);
    register(&mut table, &told, 3);
    assert_eq!(perm(&table, "A"), 6, "a new version");
    table.wipe_write_perm("b");
    assert_eq!(table.add_write_perm("b"), 2);
    assert_eq!((perm(&table, "A"), perm(&table, "B")), (6, 6));
}

#[test]
fn slaves_learn_their_master_and_do_not_bring_topics() {
    let mut table = RouteTable::default();
    let slave = Registration { enable_acting_master: None, ..registration("b", 1, "h:2", &["A", "S"]) };
    assert_eq!(accepted(table.register(&slave, true, 0)), None);
    assert!(topics(&table).is_empty());
    register(&mut table, &registration("b", 0, "h:1", &["A", "B"]), 0);
    let (address, ha) = accepted(table.register(&slave, true, 0)).unwrap();
    assert_eq!((address.text.as_str(), ha.as_str()), ("h:1", "h:19"));
    let route = table.route("A", &options()).unwrap();
    assert_eq!(route.broker_datas[0].broker_addrs, BTreeMap::from([(0, "h:1".to_owned()), (1, "h:2".to_owned())]));
    // Now the slave registers as the master, from the same address.
    table.unregister("b", "h:1");
    register(&mut table, &registration("b", 0, "h:2", &["A", "B"]), 0);
    let group = table.member_group("c", "b", viewer());
    assert_eq!(group.broker_addrs, BTreeMap::from([(0, "h:2".to_owned())]));
    assert!(table.member_group("c", "x", viewer()).broker_addrs.is_empty());
}

#[test]
fn acting_masters() {
    let mut table = RouteTable::default();
    let member = |id: i64, address: &str| Registration { enable_acting_master: Some(true), ..registration("b", id, address, &["A", "B"]) };
    register(&mut table, &member(0, "h:1"), 0);
    register(&mut table, &member(1, "h:2"), 0);
    register(&mut table, &member(2, "h:3"), 0);
    let acting = RouteOptions { acting_master: true, ..options() };
    let changes = table.unregister("b", "h:1");
    assert_eq!(
        changes,
        [MinBrokerIdChange {
            min_broker_id: 1,
            min_broker_addr: "h:2".to_owned(),
            offline_broker_addr: Some("h:1".to_owned()),
            ha_broker_addr: None,
            tell: vec!["h:2".to_owned(), "h:3".to_owned()],
        }]
    );
    let route = table.route("A", &acting).unwrap();
    assert_eq!(route.broker_datas[0].broker_addrs, BTreeMap::from([(0, "h:2".to_owned()), (2, "h:3".to_owned())]));
    assert_eq!(route.queue_datas[0].perm, 4, "not writable");
    assert_eq!(table.route("A", &options()).unwrap().broker_datas[0].broker_addrs.keys().copied().collect::<Vec<_>>(), [1, 2]);
    // The master is back: the others are told.
    let Registered::Accepted { change: Some(change), .. } = table.register(&member(0, "h:1"), true, 1) else { panic!() };
    assert_eq!((change.min_broker_id, change.ha_broker_addr.as_deref()), (0, Some("h:19")));
    assert_eq!(change.tell, ["h:2", "h:3"]);
}

#[test]
fn a_newer_state_version_defends_its_id() {
    let mut table = RouteTable::default();
    let with_state = |address: &str, state_version| Registration {
        version: DataVersion { state_version, counter: 1, timestamp: 1 },
        ..registration("b", 0, address, &["A", "B"])
    };
    register(&mut table, &with_state("h:1", 5), 0);
    assert_eq!(table.register(&with_state("h:2", 4), true, 0), Registered::Outdated);
    assert_eq!(table.member_group("c", "b", viewer()).broker_addrs[&0], "h:1");
    register(&mut table, &with_state("h:2", 5), 0);
    assert_eq!(table.member_group("c", "b", viewer()).broker_addrs[&0], "h:2");
}

#[test]
fn a_closed_connection_takes_only_its_own_registrations() {
    let mut table = RouteTable::default();
    let by = |connection, address: &str| Registration {
        connection: Some(ConnectionId(connection)),
        ..registration("b", 0, address, &["A", "B"])
    };
    register(&mut table, &by(1, "h:1"), 0);
    register(&mut table, &by(2, "h:1"), 0);
    table.connection_closed(ConnectionId(1));
    assert!(table.knows_broker("b"), "it has come back by another connection");
    table.connection_closed(ConnectionId(2));
    assert!(!table.knows_broker("b") && topics(&table).is_empty());
}

#[test]
fn silent_brokers_expire() {
    let mut table = RouteTable::default();
    register(&mut table, &Registration { timeout_ms: Some(10_000), ..registration("quick", 0, "h:1", &["A", "B"]) }, 0);
    register(&mut table, &Registration { timeout_ms: Some(-5), ..registration("slow", 0, "h:2", &["A", "B"]) }, 0);
    let expired = |table: &mut RouteTable, now_ms| {
        let mut names = Vec::new();
        table.expire(now_ms, |name, _| names.push(name.to_owned()));
        names
    };
    assert!(expired(&mut table, 10_000).is_empty());
    assert_eq!(table.touch("quick", "h:1", 10_000), Some(version(1)));
    assert_eq!(table.touch("quick", "h:9", 10_000), None);
    assert_eq!(table.touch("nobody", "h:1", 10_000), None);
    assert!(expired(&mut table, 20_000).is_empty());
    assert_eq!(expired(&mut table, 20_001), ["quick"]);
    assert_eq!(expired(&mut table, 120_001), ["slow"]);
    assert!(topics(&table).is_empty());
}

#[test]
fn lists() {
    let mut table = RouteTable::default();
    let mut units = registration("b1", 0, "10.0.0.1:1", &["U", "S", "US"]);
    for (topic, flag) in units.topics.iter_mut().zip([1, 2, 3]) {
        topic.topic_sys_flag = flag;
    }
    register(&mut table, &units, 0);
    register(&mut table, &Registration { cluster: "d".to_owned(), ..registration("b2", 0, "10.0.0.2:1", &["X", "U"]) }, 0);
    assert_eq!(table.topics_of_cluster("d").collect::<Vec<_>>(), ["U", "X"]);
    assert_eq!(table.topics_of_cluster("none").count(), 0);
    assert_eq!(table.topics_by_flag(|flag| flag & 1 != 0).collect::<Vec<_>>(), ["U", "US"]);
    assert_eq!(table.topics_by_flag(|flag| flag & 2 != 0 && flag & 1 == 0).collect::<Vec<_>>(), ["S"]);
    assert_eq!(table.system_topics(viewer()), (["c", "b1", "d", "b2"].map(str::to_owned).to_vec(), Some("10.0.0.1:1".to_owned())));
    assert_eq!(
        table.cluster_info(viewer()).to_json(),
        r#"{"brokerAddrTable":{"b1":{"brokerAddrs":{0:"10.0.0.1:1"},"brokerName":"b1","cluster":"c","enableActingMaster":false},"b2":{"brokerAddrs":{0:"10.0.0.2:1"},"brokerName":"b2","cluster":"d","enableActingMaster":false}},"clusterAddrTable":{"c":["b1"],"d":["b2"]}}"#
    );
    table.remove_topic("U", Some("d"));
    assert_eq!(table.route("U", &options()).unwrap().queue_datas.len(), 1);
    table.remove_topic("U", None);
    table.remove_topic("never there", None);
    assert!(table.route("U", &options()).is_none());
    let queue =
        |broker: &str| QueueData { broker_name: broker.to_owned(), read_queue_nums: 3, write_queue_nums: 3, perm: 6, topic_sys_flag: 0 };
    table.register_topic("N", &[queue("b1"), queue("nobody")], 0);
    assert_eq!(table.route("N", &options()).unwrap().queue_datas, [queue("b1")]);
    table.register_topic("M", &[queue("nobody")], 0);
    assert!(table.route("M", &options()).is_none());
}

#[test]
fn zones() {
    let mut table = RouteTable::default();
    register(&mut table, &Registration { zone: Some("east".to_owned()), ..registration("b1", 0, "h:1", &["A", "B"]) }, 0);
    register(&mut table, &registration("b2", 0, "h:2", &["A", "B"]), 0);
    let in_zone = |zone| table.route("A", &RouteOptions { zone: Some(zone), ..options() }).map(|route| route.queue_datas.len());
    assert_eq!((in_zone("EAST"), in_zone("west")), (Some(1), None));
}

#[test]
fn names_out_of_bounds_are_left_out() {
    let mut table = RouteTable::default();
    register(&mut table, &registration("b", 0, "h:1", &["", "A", &"t".repeat(256)]), 0);
    assert_eq!(topics(&table), ["A"]);
}

/// What the table should say, worked out the slow way: each broker's master registration is a set of topics.
#[derive(Default)]
struct Model {
    brokers: HashMap<usize, (u64, BTreeSet<String>)>,
}

#[derive(Clone, Debug)]
enum Step {
    Full(usize, u64, BTreeSet<u8>),
    Part(usize, u64, BTreeSet<u8>),
    Unregister(usize),
    Close(u64),
    Delete(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let topics = || proptest::collection::btree_set(0..6u8, 1..5);
    prop_oneof![
        4 => (0..3usize, 0..4u64, topics()).prop_map(|(broker, connection, topics)| Step::Full(broker, connection, topics)),
        2 => (0..3usize, 0..4u64, topics()).prop_map(|(broker, connection, topics)| Step::Part(broker, connection, topics)),
        1 => (0..3usize).prop_map(Step::Unregister),
        1 => (0..4u64).prop_map(Step::Close),
        1 => (0..6u8).prop_map(Step::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn agrees_with_a_model(steps in proptest::collection::vec(step(), 1..40)) {
        let mut table = RouteTable::default();
        let mut model = Model::default();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Full(broker, connection, topics) | Step::Part(broker, connection, topics) => {
                    let full = matches!(step, Step::Full(..));
                    let names: Vec<String> = topics.iter().map(|topic| format!("t{topic}")).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let registration = Registration {
                        full: Some(full),
                        connection: Some(ConnectionId(*connection)),
                        version: version(at as i64),
                        ..registration(&format!("b{broker}"), 0, &format!("h:{broker}"), &names)
                    };
                    let outcome = table.register(&registration, true, at as i64);
                    let known = model.brokers.contains_key(broker);
                    if !full && !known && names.len() == 1 {
                        prop_assert_eq!(outcome, Registered::Incomplete);
                        continue;
                    }
                    let entry = model.brokers.entry(*broker).or_default();
                    entry.0 = *connection;
                    if full {
                        entry.1.clear();
                    }
                    entry.1.extend(names.iter().map(|name| (*name).to_owned()));
                }
                Step::Unregister(broker) => {
                    table.unregister(&format!("b{broker}"), &format!("h:{broker}"));
                    model.brokers.remove(broker);
                }
                Step::Close(connection) => {
                    table.connection_closed(ConnectionId(*connection));
                    model.brokers.retain(|_, (by, _)| by != connection);
                }
                Step::Delete(topic) => {
                    table.remove_topic(&format!("t{topic}"), None);
                    for (_, topics) in model.brokers.values_mut() {
                        topics.remove(&format!("t{topic}"));
                    }
                }
            }
            for topic in 0..6u8 {
                let topic = format!("t{topic}");
                let expected: BTreeSet<String> =
                    model.brokers.iter().filter(|(_, (_, topics))| topics.contains(&topic)).map(|(broker, _)| format!("b{broker}")).collect();
                let found: BTreeSet<String> = table
                    .route(&topic, &options())
                    .map(|route| route.broker_datas.into_iter().map(|broker| broker.broker_name).collect())
                    .unwrap_or_default();
                prop_assert_eq!(found, expected, "{} after step {}", topic, at);
            }
            for broker in 0..3usize {
                prop_assert_eq!(table.knows_broker(&format!("b{broker}")), model.brokers.contains_key(&broker));
            }
        }
    }
}
