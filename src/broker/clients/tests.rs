//! Tests of the client tables.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::*;
use crate::remoting::body::heartbeat::{ConsumerData, HeartbeatData};
use crate::remoting::command::Command;

/// A client's end: what it was sent.
struct Peer {
    connection: Connection,
    pushed: Arc<Mutex<Vec<(i32, String)>>>,
    id: String,
}

impl Peer {
    fn new(id: &str) -> Self {
        let pushed = Arc::new(Mutex::new(Vec::new()));
        let address = SocketAddr::from(([10, 0, 0, 1], 4_000));
        let connection = Connection::detached(address, SocketAddr::from(([10, 0, 0, 9], 10_911)), {
            let pushed = Arc::clone(&pushed);
            move |frame| {
                let command = Command::parse(&frame).unwrap();
                assert!(command.is_oneway());
                pushed.lock().push((command.code, command.ext.text("consumerGroup").unwrap().into_owned()));
            }
        });
        Self { connection, pushed, id: id.to_owned() }
    }

    fn client(&self, now_ms: i64) -> Client {
        Client::new(&self.id, Language::JAVA, 513, self.connection.clone(), now_ms)
    }

    /// Groups that 40 has been sent for since the last call, after a round of notifications.
    fn notified(&self, table: &ClientTable) -> Vec<String> {
        table.notify_changed();
        std::mem::take(&mut *self.pushed.lock())
            .into_iter()
            .map(|(code, group)| {
                assert_eq!(code, NOTIFY_CONSUMER_IDS_CHANGED);
                group
            })
            .collect()
    }
}

fn table() -> ClientTable {
    ClientTable::new(Box::new(|group| group != "silent"))
}

fn heartbeat(group: &str, subscriptions: &[(&str, &str, i64)]) -> ConsumerHeartbeat {
    let parse = |(topic, expression, version): &(&str, &str, i64)| SubscriptionData::parse(topic, expression, "TAG", *version).unwrap();
    ConsumerHeartbeat { group: group.to_owned(), subscriptions: subscriptions.iter().map(parse).collect(), ..ConsumerHeartbeat::default() }
}

fn beat(table: &ClientTable, peer: &Peer, group: &str, subscriptions: &[(&str, &str, i64)]) -> bool {
    table.consumer_heartbeat(&heartbeat(group, subscriptions), &peer.client(1_000), false)
}

fn expression(table: &ClientTable, group: &str, topic: &str) -> Option<String> {
    table.consumer_group(group)?.subscriptions.get(topic).map(|subscription| subscription.sub_string.clone())
}

#[test]
fn group_is_told_of_members_and_topics_but_not_of_expressions() {
    let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
    assert!(beat(&table, &a, "g", &[("T", "*", 1)]));
    assert_eq!(a.notified(&table), ["g"], "a joins");
    assert!(!beat(&table, &a, "g", &[("T", "*", 1)]));
    assert!(beat(&table, &b, "g", &[("T", "*", 1)]));
    assert_eq!((a.notified(&table), b.notified(&table)), (vec!["g".to_owned()], vec!["g".to_owned()]), "b joins");
    assert!(!beat(&table, &a, "g", &[("T", "x", 2)]));
    assert!(!beat(&table, &a, "g", &[("T", "x", 3)]));
    assert_eq!((a.notified(&table), b.notified(&table)), (vec![], vec![]), "another expression, another version");
    assert_eq!(expression(&table, "g", "T").as_deref(), Some("x"));
    assert!(beat(&table, &a, "g", &[("T", "x", 3), ("U", "*", 4)]));
    assert_eq!((a.notified(&table).len(), b.notified(&table).len()), (1, 1), "a new topic");
    assert!(beat(&table, &a, "g", &[("T", "x", 3)]));
    assert_eq!((a.notified(&table).len(), b.notified(&table).len()), (1, 1), "a topic dropped");
    table.unregister(b.connection.id(), "b", None, Some("g"));
    assert_eq!((a.notified(&table).len(), b.notified(&table).len()), (1, 0), "b leaves");
    table.closed(a.connection.id());
    assert!(table.consumer_group("g").is_none() && table.consumer_groups().is_empty());
}

#[test]
fn broadcasting_and_silent_groups_are_not_told() {
    let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
    for peer in [&a, &b] {
        let broadcasting = ConsumerHeartbeat { message_model: MessageModel::Broadcasting, ..heartbeat("all", &[("T", "*", 1)]) };
        assert!(table.consumer_heartbeat(&broadcasting, &peer.client(0), false));
        assert!(beat(&table, peer, "silent", &[("T", "*", 1)]));
    }
    table.closed(a.connection.id());
    assert_eq!((a.notified(&table), b.notified(&table)), (vec![], vec![]));
}

#[test]
fn subscriptions_are_those_of_the_present_clients() {
    let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
    beat(&table, &a, "g", &[("T", "old", 1), ("OnlyA", "*", 1)]);
    beat(&table, &b, "g", &[("T", "new", 2)]);
    assert_eq!(expression(&table, "g", "T").as_deref(), Some("new"));
    assert!(expression(&table, "g", "OnlyA").is_some(), "b does not know the topic, but a does");
    table.closed(b.connection.id());
    assert_eq!(expression(&table, "g", "T").as_deref(), Some("old"), "b took its subscription along");
    assert_eq!(table.consumer_groups_of("OnlyA"), ["g"]);
    assert!(table.consumer_groups_of("U").is_empty());
}

#[test]
fn one_connection_in_several_groups() {
    let (table, a) = (table(), Peer::new("a"));
    beat(&table, &a, "g", &[("T", "*", 1)]);
    beat(&table, &a, "h", &[("T", "*", 1)]);
    table.producer_heartbeat(&["p"], &a.client(1_000));
    table.producer_heartbeat(&["q"], &a.client(1_000));
    assert_eq!(table.producer_groups(), ["p", "q"]);
    table.unregister(a.connection.id(), "a", Some("p"), Some("g"));
    assert_eq!((table.producer_groups(), table.consumer_groups()), (vec!["q".to_owned()], vec!["h".to_owned()]));
    assert!(table.producer_by_client_id("a").is_some());
    table.closed(a.connection.id());
    assert!(table.producer_groups().is_empty() && table.consumer_groups().is_empty());
    assert!(table.producer_by_client_id("a").is_none());
    assert!(table.present.lock().is_empty());
}

#[test]
fn a_reconnected_client_is_listed_once_and_found_by_its_new_connection() {
    let (table, old, new) = (table(), Peer::new("a"), Peer::new("a"));
    for peer in [&old, &new] {
        beat(&table, peer, "g", &[("T", "*", 1)]);
        table.producer_heartbeat(&["p"], &peer.client(0));
    }
    assert_eq!(table.consumer_group("g").unwrap().client_ids(), ["a"]);
    assert_eq!(table.consumer_by_client_id("g", "a").unwrap().connection.id(), new.connection.id());
    assert_eq!(table.producer_by_client_id("a").unwrap().connection.id(), new.connection.id());
    table.closed(old.connection.id());
    assert_eq!(table.consumer_by_client_id("g", "a").unwrap().connection.id(), new.connection.id());
    assert!(table.producer_by_client_id("a").is_some());
    assert!(table.consumer_by_client_id("g", "b").is_none() && table.consumer_by_client_id("x", "a").is_none());
}

#[test]
fn silent_clients_expire() {
    let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
    let start = 1_000_000;
    for peer in [&a, &b] {
        table.consumer_heartbeat(&heartbeat("g", &[("T", "*", 1)]), &peer.client(start), false);
        table.producer_heartbeat(&["p"], &peer.client(start));
    }
    let later = start + CLIENT_EXPIRY_MS;
    table.expire(later);
    assert_eq!(table.producers("p").len(), 2, "the limit itself is in time");
    table.consumer_heartbeat(&heartbeat("g", &[("T", "*", 1)]), &b.client(later), false);
    assert_eq!(table.consumer_by_client_id("g", "b").unwrap().last_update_ms(), later);
    b.notified(&table);
    table.expire(later + 1);
    assert_eq!(table.consumer_group("g").unwrap().client_ids(), ["b"]);
    assert_eq!(b.notified(&table), ["g"]);
    assert!(table.producers("p").is_empty(), "one record per group: b's heartbeat named only g");
    assert!(!a.connection.is_open() && b.connection.is_open(), "a connection is closed once none of its clients is left");
}

#[test]
fn a_heartbeat_after_the_end_leaves_nothing() {
    let (table, a) = (table(), Peer::new("a"));
    a.connection.close();
    assert!(!a.connection.is_open());
    beat(&table, &a, "g", &[("T", "*", 1)]);
    table.producer_heartbeat(&["p"], &a.client(0));
    assert!(table.consumer_groups().is_empty() && table.producer_groups().is_empty());
    assert!(table.producer_by_client_id("a").is_none());
    assert!(table.present.lock().is_empty());
}

#[test]
fn heartbeats_of_the_second_version() {
    let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
    let full = ConsumerHeartbeat { fingerprint: 77, ..heartbeat("g", &[("T", "x", 1)]) };
    let bare = |fingerprint| ConsumerHeartbeat { fingerprint, ..heartbeat("g", &[]) };
    table.consumer_heartbeat(&bare(77), &b.client(0), true);
    assert!(!table.has_fingerprint("g", b.connection.id(), 77), "its subscriptions never came");
    table.consumer_heartbeat(&full, &a.client(0), false);
    a.notified(&table);
    assert!(!table.consumer_heartbeat(&bare(77), &a.client(5), true));
    assert_eq!(expression(&table, "g", "T").as_deref(), Some("x"), "none said, none dropped");
    assert!(table.has_fingerprint("g", a.connection.id(), 77));
    assert!(!table.has_fingerprint("g", a.connection.id(), 78) && !table.has_fingerprint("h", a.connection.id(), 77));
    table.consumer_heartbeat(&bare(78), &a.client(6), true);
    assert!(table.has_fingerprint("g", a.connection.id(), 77), "what we know is still what 77 said");
    assert_eq!(a.notified(&table), Vec::<String>::new());
    beat(&table, &a, "g", &[("T", "x", 1)]);
    assert!(!table.has_fingerprint("g", a.connection.id(), 77), "a v1 heartbeat");
}

#[test]
fn heartbeats_of_all_languages_say_the_same() {
    let java = br#"{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":17,"tagsSet":["TagA"],"topic":"T"},{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":17,"tagsSet":[],"topic":"%RETRY%g"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}"#;
    let go = br#"{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,"topic":"%RETRY%g","subString":"*","tagsSet":null,"codeSet":null,"subVersion":17,"expressionType":"TAG"},{"classFilterMode":false,"topic":"T","subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":17,"expressionType":"TAG"}],"unitMode":false}]}"#;
    let cpp = b"{\"clientID\":\"c\",\"consumerDataSet\":[{\"consumeFromWhere\":4,\"consumeType\":1,\"groupName\":\"g\",\"messageModel\":1,\"subscriptionDataSet\":[{\"codeSet\":[0],\"subString\":\"TagA\",\"subVersion\":\"17\",\"tagsSet\":[\"TagA\"],\"topic\":\"T\"},{\"codeSet\":[],\"subString\":\"*\",\"subVersion\":\"17\",\"tagsSet\":[],\"topic\":\"%RETRY%g\"}]}]}\n";
    let table = table();
    let mut snapshots = Vec::new();
    for body in [&java[..], go, cpp] {
        let peer = Peer::new("c");
        let data = HeartbeatData::from_json(body).unwrap();
        let ConsumerData { group_name, consume_type, message_model, consume_from_where, subscriptions, .. } = data.consumers[0].clone();
        let heartbeat =
            ConsumerHeartbeat { group: group_name, consume_type, message_model, consume_from_where, subscriptions, fingerprint: 0 };
        table.consumer_heartbeat(&heartbeat, &peer.client(0), false);
        let group = table.consumer_group("g").unwrap();
        snapshots.push((group.subscriptions.clone(), group.consume_from_where, group.message_model));
        table.closed(peer.connection.id());
    }
    assert_eq!(snapshots[0].0["T"].code_set, [2_598_919]);
    assert!(snapshots.iter().all(|snapshot| *snapshot == snapshots[0]), "{snapshots:?}");
}

/// Joins, leaves and changes in any order: the table agrees with a list of who is there and what each says.
#[test]
fn behaves_as_a_list_of_members() {
    let table = table();
    let peers: Vec<Peer> = (0..6).map(|n| Peer::new(&format!("c{n}"))).collect();
    let mut model = BTreeMap::<usize, Vec<(&str, &str, i64)>>::new();
    let mut random = fastrand::Rng::with_seed(3);
    for step in 0..5_000i64 {
        let n = random.usize(0..peers.len());
        let topics_before = topics(&model);
        let was_there = model.contains_key(&n);
        let (told, expected) = if random.u8(0..3) == 0 {
            table.unregister(peers[n].connection.id(), &peers[n].id, None, Some("g"));
            model.remove(&n);
            (None, was_there && !model.is_empty())
        } else {
            let all = [("A", "*", 1), ("A", "x", 2), ("B", "*", 3), ("C", "y", step)];
            let said: Vec<_> = all.into_iter().filter(|_| random.bool()).collect();
            let changed = beat(&table, &peers[n], "g", &said);
            model.insert(n, said);
            (Some(changed), !was_there || topics(&model) != topics_before)
        };
        if let Some(told) = told {
            assert_eq!(told, expected, "step {step}");
        }
        let notified: Vec<usize> = (0..peers.len()).filter(|n| !peers[*n].notified(&table).is_empty()).collect();
        assert_eq!(notified, if expected { model.keys().copied().collect() } else { Vec::new() }, "step {step}");
        let group = table.consumer_group("g");
        assert_eq!(group.is_some(), !model.is_empty(), "step {step}");
        let subscriptions = group.map_or_else(Arc::default, |group| Arc::clone(&group.subscriptions));
        assert_eq!(subscriptions.keys().map(String::as_str).collect::<BTreeSet<_>>(), topics(&model), "step {step}");
        for (topic, subscription) in subscriptions.iter() {
            let newest = model.values().flatten().filter(|(other, ..)| other == topic).map(|(_, _, version)| *version).max();
            assert_eq!(Some(subscription.sub_version), newest, "step {step}");
        }
    }

    fn topics<'a>(model: &BTreeMap<usize, Vec<(&'a str, &'a str, i64)>>) -> BTreeSet<&'a str> {
        model.values().flatten().map(|(topic, ..)| *topic).collect()
    }
}

/// Ten thousand groups and four thousand members: with work per group or member that grows with their number this would not end.
#[test]
fn many_groups_of_one_connection_come_and_go() {
    let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
    let groups: Vec<String> = (0..MAX_GROUPS_PER_CONNECTION).map(|n| format!("g{n}")).collect();
    beat(&table, &b, "g7", &[("T", "*", 1)]);
    table.producer_heartbeat(&groups, &a.client(0));
    for group in &groups {
        beat(&table, &a, group, &[("T", "*", 1)]);
    }
    assert_eq!((table.producer_groups().len(), table.consumer_groups().len()), (groups.len(), groups.len()));
    assert_eq!(a.notified(&table).len(), groups.len());
    assert_eq!(b.notified(&table), ["g7"], "of two joins at once b is told once");
    table.producer_heartbeat(&groups, &a.client(5));
    assert!(table.producers("g9").iter().all(|client| client.last_update_ms() == 5), "known groups are refreshed");
    table.closed(a.connection.id());
    assert!(table.producer_groups().is_empty() && table.producer_by_client_id("a").is_none());
    assert_eq!(table.consumer_groups(), ["g7"]);
    assert_eq!((a.notified(&table), b.notified(&table)), (vec![], vec!["g7".to_owned()]));
}

#[test]
fn many_groups_expire_at_once() {
    let (table, a) = (table(), Peer::new("a"));
    let groups: Vec<String> = (0..5_000).map(|n| format!("g{n}")).collect();
    table.producer_heartbeat(&groups, &a.client(0));
    beat(&table, &a, "g", &[("T", "*", 1)]);
    table.expire(CLIENT_EXPIRY_MS + 500);
    assert!(table.producer_groups().is_empty() && table.producer_by_client_id("a").is_none());
    assert!(a.connection.is_open(), "its consumer is younger");
    table.expire(CLIENT_EXPIRY_MS + 1_001);
    assert!(table.consumer_groups().is_empty() && !a.connection.is_open());
}

#[test]
fn a_large_group_is_told_once_and_copied_for_no_member() {
    let table = table();
    let peers: Vec<Peer> = (0..4_000).map(|n| Peer::new(&format!("c{n}"))).collect();
    beat(&table, &peers[0], "g", &[("T", "*", 1)]);
    let snapshot = table.consumer_group("g").unwrap();
    for peer in &peers[1..] {
        assert!(beat(&table, peer, "g", &[("T", "*", 1)]));
    }
    assert!(Arc::ptr_eq(&snapshot, &table.consumer_group("g").unwrap()), "4 000 joins, one snapshot");
    assert_eq!(snapshot.client_ids().len(), peers.len());
    assert_eq!(table.notify_changed(), peers.len(), "4 000 joins, one notification each");
    assert_eq!(table.notify_changed(), 0);
    assert!(peers.iter().all(|peer| std::mem::take(&mut *peer.pushed.lock()).len() == 1));
    let (stay, leave) = peers.split_at(10);
    for peer in leave {
        peer.connection.close();
    }
    for peer in leave {
        table.closed(peer.connection.id());
    }
    assert!(Arc::ptr_eq(&snapshot, &table.consumer_group("g").unwrap()));
    assert_eq!(table.notify_changed(), stay.len(), "3 990 leave, ten are told, once each");
    assert_eq!(table.present.lock().len(), stay.len());
}

#[test]
fn who_is_gone_is_not_told_and_who_does_not_read_is_told_later() {
    let (table, a, b, c) = (table(), Peer::new("a"), Peer::new("b"), Peer::new("c"));
    for peer in [&a, &b, &c] {
        beat(&table, peer, "g", &[("T", "*", 1)]);
    }
    c.connection.close();
    let behind = |client: &Client| client.client_id == "b";
    assert_eq!(table.notify_round(behind), 1);
    assert_eq!((a.pushed.lock().len(), b.pushed.lock().len()), (1, 0));
    beat(&table, &a, "g", &[("T", "*", 1), ("U", "*", 1)]);
    assert_eq!(table.notify_round(behind), 1, "b is still owed one, not two");
    assert_eq!(table.notify_round(behind), 0);
    assert_eq!(b.notified(&table), ["g"]);
    assert_eq!((b.notified(&table), c.notified(&table)), (vec![], vec![]));
    beat(&table, &b, "g", &[("V", "*", 1)]);
    assert_eq!(table.notify_round(behind), 1);
    b.connection.close();
    assert_eq!(table.notify_changed(), 0, "what is owed to a closed connection is forgotten");
    assert!(table.due.lock().owed.is_empty());
}

#[test]
fn a_heartbeat_is_bounded_in_groups_and_topics() {
    let (table, a) = (table(), Peer::new("a"));
    let id = a.connection.id();
    let data = |producers: std::ops::Range<usize>, consumers: std::ops::Range<usize>| HeartbeatData {
        client_id: "a".to_owned(),
        producers: producers.map(|n| format!("p{n}")).collect(),
        consumers: consumers.map(|n| ConsumerData { group_name: format!("g{n}"), ..ConsumerData::default() }).collect(),
        ..HeartbeatData::default()
    };
    assert_eq!(table.check_room(id, &data(0..5_000, 0..5_000)), Ok(()));
    let why = table.check_room(id, &data(0..5_000, 0..5_001)).unwrap_err();
    assert!(why.contains("10001") && why.contains("10000") && why.contains("MAX_GROUPS_PER_CONNECTION"), "{why}");
    table.producer_heartbeat(&data(0..6_000, 0..0).producers, &a.client(0));
    beat(&table, &a, "g0", &[("T", "*", 1)]);
    assert_eq!(table.check_room(id, &data(0..6_000, 0..4_000)), Ok(()), "what is there already counts once");
    let why = table.check_room(id, &data(6_000..10_000, 0..1)).unwrap_err();
    assert!(why.contains("10001") && why.contains("MAX_GROUPS_PER_CONNECTION"), "{why}");
    assert_eq!(table.check_room(Peer::new("b").connection.id(), &data(6_000..10_000, 0..6_000)), Ok(()));
    table.unregister(id, "a", Some("p1"), None);
    assert_eq!(table.check_room(id, &data(6_000..10_000, 0..1)), Ok(()));

    let mut many = data(0..0, 0..1);
    let topic = |n: usize| SubscriptionData::parse(&format!("T{n}"), "*", "TAG", 1).unwrap();
    many.consumers[0].subscriptions = (0..MAX_TOPICS_PER_GROUP - 1).map(topic).collect();
    assert_eq!(table.check_room(id, &many), Ok(()));
    many.consumers[0].subscriptions.push(topic(MAX_TOPICS_PER_GROUP));
    let why = table.check_room(id, &many).unwrap_err();
    assert!(why.contains("4097") && why.contains("4096") && why.contains("MAX_TOPICS_PER_GROUP") && why.contains("g0"), "{why}");
}

#[test]
fn a_connection_that_changes_its_client_id_is_found_by_the_new_one_only() {
    let (table, a) = (table(), Peer::new("a"));
    let renamed = Client::new("z", Language::JAVA, 513, a.connection.clone(), 0);
    table.producer_heartbeat(&["p", "q"], &a.client(0));
    table.producer_heartbeat(&["p"], &renamed);
    assert!(table.producer_by_client_id("a").is_some() && table.producer_by_client_id("z").is_some(), "q is still a's");
    table.producer_heartbeat(&["q"], &renamed);
    assert!(table.producer_by_client_id("a").is_none());
    table.unregister(a.connection.id(), "z", Some("p"), None);
    assert!(table.producer_by_client_id("z").is_some());
    table.unregister(a.connection.id(), "z", Some("q"), None);
    assert!(table.producer_by_client_id("z").is_none() && table.producer_groups().is_empty());
}

#[test]
fn of_equal_versions_the_oldest_connection_counts() {
    let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
    beat(&table, &b, "g", &[("T", "of b", 1)]);
    beat(&table, &a, "g", &[("T", "of a", 1)]);
    assert_eq!(expression(&table, "g", "T").as_deref(), Some("of a"));
    table.closed(a.connection.id());
    assert_eq!(expression(&table, "g", "T").as_deref(), Some("of b"));
}
