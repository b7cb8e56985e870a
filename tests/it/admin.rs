//! Clients and administration: heartbeats, groups, topics, offsets, configuration, statistics, relays.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crossbeam::channel::{Receiver, unbounded};
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::net::responder::Responder;
use petrel::remoting::command::{Body, Command};
use petrel::remoting::fastjson::{self, Value};

use super::support::{Answer, Cluster, PATIENCE, Pull, Send, TestBroker, until};

impl TestBroker {
    fn body(&self, code: i32, header: &[(&str, &str)]) -> String {
        text(&self.call(code, header, Body::Empty).expect(0))
    }

    fn store_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.config.store.root.join("config").join(name)).unwrap_or_default()
    }

    fn create_topic(&self, topic: &str, queues: i32, more: &[(&str, &str)]) -> Answer {
        let queues = queues.to_string();
        let mut header = vec![
            ("topic", topic),
            ("defaultTopic", "TBW102"),
            ("readQueueNums", &queues),
            ("writeQueueNums", &queues),
            ("perm", "6"),
            ("topicFilterType", "SINGLE_TAG"),
            ("topicSysFlag", "0"),
            ("order", "false"),
        ];
        header.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
        header.extend_from_slice(more);
        self.call(17, header.as_slice(), Body::Empty)
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.command.view().body.to_vec()).unwrap()
}

fn json(text: &str) -> Value {
    fastjson::parse(text.as_bytes()).unwrap_or_else(|why| panic!("{why} in {text}"))
}

/// A client that serves requests of the broker.
struct Peer {
    client: RemotingClient,
    address: String,
    id: String,
    /// Code and fields of each request, and its body.
    requests: Receiver<(i32, String, Vec<u8>)>,
}

impl Peer {
    fn connect(broker: &TestBroker, id: &str) -> Self {
        Self::serving(broker, id, |_, responder| responder.ok())
    }

    fn serving(broker: &TestBroker, id: &str, serve: impl Fn(&Command<'_>, Responder) + std::marker::Send + Sync + 'static) -> Self {
        let (sender, requests) = unbounded();
        let push_handler = Arc::new(move |request: &Command<'_>, responder: Responder| {
            let mut fields: Vec<String> = request.ext.iter().map(|(name, value)| format!("{}={}", name.text(), value.text())).collect();
            fields.sort();
            sender.send((request.code, fields.join(" "), request.body.to_vec())).unwrap();
            serve(request, responder);
        });
        let config = RemotingClientConfig { push_handler: Some(push_handler), ..RemotingClientConfig::default() };
        Self { client: RemotingClient::start(config).unwrap(), address: broker.address(), id: id.to_owned(), requests }
    }

    fn call(&self, code: i32, header: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        Answer { command: self.client.invoke(&self.address, code, header, body.into(), PATIENCE).unwrap() }
    }

    fn beat(&self, group: &str, topics: &[&str]) -> Answer {
        self.beat_with(group, topics, "")
    }

    fn beat_with(&self, group: &str, topics: &[&str], more: &str) -> Answer {
        let subscriptions: Vec<String> = topics
            .iter()
            .map(|topic| format!(r#"{{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"{topic}"}}"#))
            .collect();
        let body = format!(
            r#"{{"clientID":"{}","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"{group}","messageModel":"CLUSTERING","subscriptionDataSet":[{}],"unitMode":false}}],"producerDataSet":[{{"groupName":"p-{group}"}}]{more}}}"#,
            self.id,
            subscriptions.join(",")
        );
        self.call(34, &[], body)
    }

    /// The next request of the broker.
    #[track_caller]
    fn asked(&self, code: i32, fields: &[&str]) -> Vec<u8> {
        let (got, all, body) = self.requests.recv_timeout(PATIENCE).unwrap();
        assert_eq!(got, code, "{all}");
        for field in fields {
            assert!(all.split(' ').any(|other| other == *field), "{field} is missing in {all}");
        }
        body
    }
}

#[test]
fn a_heartbeat_makes_its_group_before_it_is_answered() {
    let mut broker = TestBroker::start();
    let peer = Peer::connect(&broker, "c1");
    broker.call(38, &[("consumerGroup", "g")], Body::Empty).refused(1, &["no consumer for this group, g"]);
    let answer = peer.beat("g", &["T"]).expect(0);
    assert_eq!((answer.field("IS_SUPPORT_HEART_BEAT_V2"), answer.field("IS_SUB_CHANGE")), ("true".to_owned(), "true".to_owned()));
    assert!(broker.store_file("subscriptionGroup.json").contains("\"g\""), "durable");
    assert!(broker.store_file("topics.json").contains("\"%RETRY%g\""), "durable");
    peer.asked(40, &["consumerGroup=g"]);
    assert_eq!(broker.body(38, &[("consumerGroup", "g")]), r#"{"consumerIdList":["c1"]}"#);

    let connections = json(&broker.body(203, &[("consumerGroup", "g")]));
    let connection = &connections.get("connectionSet").unwrap().elements()[0];
    assert_eq!(connection.get("clientId").unwrap().as_text().unwrap(), "c1");
    assert!(connection.get("clientAddr").unwrap().as_text().unwrap().starts_with("127.0.0.1:"));
    assert!(connections.get("subscriptionTable").unwrap().get("T").is_some());
    assert!(broker.body(204, &[("producerGroup", "p-g")]).contains("\"clientId\":\"c1\""));
    assert!(broker.body(328, &[]).contains("\"p-g\":[{\"clientId\":\"c1\""));
    broker.call(203, &[("consumerGroup", "x")], Body::Empty).refused(206, &["the consumer group[x] not online"]);
    broker.call(204, &[("producerGroup", "x")], Body::Empty).refused(1, &["the producer group[x] not exist"]);

    peer.call(35, &[("clientID", "c1"), ("consumerGroup", "g"), ("producerGroup", "p-g")], Body::Empty).expect(0);
    broker.call(38, &[("consumerGroup", "g")], Body::Empty).refused(1, &["g"]);
    broker.call(328, &[] as &[(&str, &str)], Body::Empty).expect(1);
    broker.restart();
    broker.call(352, &[("group", "g")], Body::Empty).expect(0);
    broker.call(351, &[("topic", "%RETRY%g")], Body::Empty).expect(0);
}

#[test]
fn broken_heartbeats_are_refused() {
    let broker = TestBroker::start();
    for body in ["", "{", "[]", "{\"consumerDataSet\":[]}"] {
        broker.call(34, &[] as &[(&str, &str)], body.to_owned()).refused(1, &["heartbeat"]);
    }
    let broker = TestBroker::with(|config| config.auto_create_subscription_group = false);
    let peer = Peer::connect(&broker, "c");
    peer.beat("g", &["T"]).expect(0);
    broker.call(38, &[("consumerGroup", "g")], Body::Empty).expect(1);
    broker.call(352, &[("group", "g")], Body::Empty).refused(26, &["g"]);
}

#[test]
fn heartbeats_are_bounded() {
    let broker = TestBroker::start();
    let peer = Peer::connect(&broker, "c");
    let groups = |count: usize| (0..count).map(|n| format!(r#"{{"groupName":"p{n}"}}"#)).collect::<Vec<_>>().join(",");
    let producers = |count| format!(r#"{{"clientID":"c","producerDataSet":[{}]}}"#, groups(count));
    let consumers = |count| format!(r#"{{"clientID":"c","consumerDataSet":[{}]}}"#, groups(count));
    peer.call(34, &[], producers(20_000)).refused(1, &["20000", "10000", "MAX_GROUPS_PER_CONNECTION"]);
    broker.call(204, &[("producerGroup", "p0")], Body::Empty).expect(1);
    peer.call(34, &[], producers(10_000)).expect(0);
    peer.call(34, &[], producers(10_000)).expect(0);
    assert!(broker.body(204, &[("producerGroup", "p9999")]).contains("\"clientId\":\"c\""));
    peer.call(34, &[], consumers(1)).refused(1, &["10001", "10000", "MAX_GROUPS_PER_CONNECTION"]);
    let topics: Vec<String> = (0..5_000).map(|n| format!("T{n}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    Peer::connect(&broker, "d").beat("g", &topics).refused(1, &["\"g\"", "5000", "4096", "MAX_TOPICS_PER_GROUP"]);
    broker.call(352, &[("group", "g")], Body::Empty).refused(26, &["g"]);
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let broker = TestBroker::start();
    let bodies = [
        (41, "LockBatchRequestBody"),
        (42, "LockBatchRequestBody"),
        (46, "CheckClientRequestBody"),
        (225, "SubscriptionGroupList"),
        (400, "QueryAssignmentRequestBody"),
    ];
    for (code, name) in bodies {
        for body in ["[]", "null", "\"\"", "123", "true"] {
            broker.call(code, &[] as &[(&str, &str)], body.to_owned()).refused(1, &[name, "expected an object"]);
        }
        broker.call(code, &[] as &[(&str, &str)], "{".to_owned()).refused(1, &[name, "at byte 1"]);
    }
}

#[test]
fn heartbeats_of_the_second_version_negotiate() {
    let broker = TestBroker::start();
    let peer = Peer::connect(&broker, "c");
    let wanted = |answer: Answer| answer.expect(0).field("IS_SUB_CHANGE") == "true";
    assert!(wanted(peer.beat_with("g", &[], r#","heartbeatFingerprint":7,"withoutSub":true"#)), "they never came");
    assert!(!wanted(peer.beat_with("g", &["T"], r#","heartbeatFingerprint":7,"withoutSub":false"#)));
    assert!(!wanted(peer.beat_with("g", &[], r#","heartbeatFingerprint":7,"withoutSub":true"#)));
    assert!(wanted(peer.beat_with("g", &[], r#","heartbeatFingerprint":8,"withoutSub":true"#)), "others than we know");
    assert!(broker.body(203, &[("consumerGroup", "g")]).contains("\"topic\":\"T\""));
}

#[test]
fn members_hear_of_each_other() {
    let broker = TestBroker::start();
    let (a, b) = (Peer::connect(&broker, "a"), Peer::connect(&broker, "b"));
    a.beat("g", &["T"]).expect(0);
    a.asked(40, &["consumerGroup=g"]);
    b.beat("g", &["T"]).expect(0);
    a.asked(40, &["consumerGroup=g"]);
    b.asked(40, &["consumerGroup=g"]);
    assert_eq!(broker.body(38, &[("consumerGroup", "g")]), r#"{"consumerIdList":["a","b"]}"#);
    b.client.shutdown();
    a.asked(40, &["consumerGroup=g"]);
    assert_eq!(broker.body(38, &[("consumerGroup", "g")]), r#"{"consumerIdList":["a"]}"#);
    assert!(a.requests.is_empty());
}

#[test]
fn queue_locks() {
    let broker = TestBroker::start();
    let body = |client: &str, queues: &[i32]| {
        let queues: Vec<String> = queues.iter().map(|id| format!(r#"{{"brokerName":"broker-a","queueId":{id},"topic":"T"}}"#)).collect();
        format!(r#"{{"clientId":"{client}","consumerGroup":"g","mqSet":[{}]}}"#, queues.join(","))
    };
    let lock = |client: &str, queues: &[i32]| text(&broker.call(41, &[] as &[(&str, &str)], body(client, queues)).expect(0));
    assert_eq!(lock("a", &[0, 1]).matches("queueId").count(), 2);
    assert_eq!(lock("b", &[1, 2]), r#"{"lockOKMQSet":[{"brokerName":"broker-a","queueId":2,"topic":"T"}]}"#);
    broker.call(42, &[] as &[(&str, &str)], body("a", &[1])).expect(0);
    assert_eq!(lock("b", &[0, 1]), r#"{"lockOKMQSet":[{"brokerName":"broker-a","queueId":1,"topic":"T"}]}"#);
    broker.call(41, &[] as &[(&str, &str)], "{".to_owned()).expect(1);
}

#[test]
fn topics_are_created_altered_and_deleted() {
    let mut broker = TestBroker::start();
    broker.create_topic("orders", 4, &[("attributes", "+message.type=FIFO")]).expect(0);
    assert!(broker.store_file("topics.json").contains("\"orders\""), "durable");
    let config = broker.body(351, &[("topic", "orders")]);
    assert_eq!(
        config,
        r#"{"topicConfig":{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":4}}"#
    );
    let version = |broker: &TestBroker| json(&broker.body(21, &[])).get("dataVersion").unwrap().get("counter").unwrap().as_i64();
    let before = version(&broker);
    broker.create_topic("orders", 4, &[("attributes", "+message.type=FIFO")]).expect(0);
    assert_eq!(version(&broker), before, "equal: nothing happens");
    broker.create_topic("orders", 8, &[("attributes", "-message.type")]).expect(0);
    assert!(broker.body(351, &[("topic", "orders")]).contains(r#""attributes":{},"order":false,"perm":6,"readQueueNums":8"#));

    broker.create_topic("a b", 1, &[]).refused(29, &["a b", "illegal"]);
    broker.create_topic(&"t".repeat(128), 1, &[]).refused(29, &["128", "127"]);
    broker.create_topic("TBW102", 1, &[]).refused(29, &["TBW102", "system"]);
    broker.create_topic("broker-a", 1, &[]).refused(29, &["system"]);
    broker.create_topic("x", -1, &[]).refused(29, &["-1", "readQueueNums"]);
    broker.create_topic("x", 1, &[("perm", "99")]).refused(29, &["99", "perm"]);
    broker.create_topic("x", 1, &[("perm", "six")]).refused(1, &["perm", "six"]);
    broker.create_topic("x", 1, &[("attributes", "+queue.type=BatchCQ")]).refused(29, &["queue.type", "BatchCQ"]);
    broker.create_topic("x", 1, &[("attributes", "+message.type=MIXED")]).refused(29, &["MIXED"]);
    broker.create_topic("x", 1, &[("attributes", "nonsense")]).refused(29, &["nonsense"]);
    broker.call(351, &[("topic", "x")], Body::Empty).refused(17, &["x"]);

    let list = r#"{"topicConfigList":[{"topicName":"orders","readQueueNums":8,"writeQueueNums":8},{"topicName":"invoices","readQueueNums":2,"writeQueueNums":2}]}"#;
    broker.call(18, &[] as &[(&str, &str)], list.to_owned()).expect(0);
    assert!(broker.body(351, &[("topic", "invoices")]).contains("\"readQueueNums\":2"), "although the first is stored like this");
    broker.call(18, &[] as &[(&str, &str)], r#"{"topicConfigList":[{"topicName":"ok"},{"topicName":"not ok"}]}"#.to_owned()).expect(29);
    broker.call(351, &[("topic", "ok")], Body::Empty).expect(17);

    broker.send(&Send::new("orders", "one")).expect(0);
    broker.await_max_offset("orders", 0, 1);
    broker.call(215, &[("topic", " ")], Body::Empty).refused(29, &["blank"]);
    broker.call(215, &[("topic", "TBW102")], Body::Empty).refused(29, &["system"]);
    broker.call(215, &[("topic", "orders")], Body::Empty).expect(0);
    broker.call(351, &[("topic", "orders")], Body::Empty).expect(17);
    broker.create_topic("orders", 1, &[]).expect(0);
    assert_eq!(broker.max_offset("orders", 0), 0, "its queues went with it");
    broker.call(215, &[("topic", "orders")], Body::Empty).expect(0);
    broker.restart();
    broker.call(351, &[("topic", "orders")], Body::Empty).expect(17);
    broker.call(351, &[("topic", "invoices")], Body::Empty).expect(0);
}

#[test]
fn tables_come_whole_or_in_pages() {
    let broker = TestBroker::start();
    for n in 0..5 {
        broker.create_topic(&format!("page-{n}"), 1, &[]).expect(0);
    }
    let names = |text: &str, table: &str| -> Vec<String> {
        json(text).get(table).unwrap().members().iter().map(|(name, _)| name.as_text().unwrap().into_owned()).collect()
    };
    let answer = broker.call(21, &[] as &[(&str, &str)], Body::Empty).expect(0);
    let all = names(&text(&answer), "topicConfigTable");
    assert_eq!(answer.number("totalTopicNum") as usize, all.len());
    assert!(all.contains(&"page-3".to_owned()) && all.contains(&"SCHEDULE_TOPIC_XXXX".to_owned()));
    let mut paged = Vec::new();
    while paged.len() < all.len() {
        let seq = paged.len().to_string();
        let page = names(&broker.body(21, &[("topicSeq", &seq), ("maxTopicNum", "4")]), "topicConfigTable");
        assert!(!page.is_empty() && page.len() <= 4);
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let answer = broker.call(201, &[("groupSeq", "6"), ("maxGroupNum", "100")], Body::Empty).expect(0);
    assert_eq!((answer.number("totalGroupNum"), names(&text(&answer), "subscriptionGroupTable").len()), (8, 2));
    let system = broker.body(305, &[]);
    assert!(system.contains("\"TBW102\"") && system.contains("\"broker-a\"") && !system.contains("page-1"), "{system}");
}

#[test]
fn groups_are_created_altered_and_deleted() {
    let mut broker = TestBroker::start();
    let none: &[(&str, &str)] = &[];
    broker.call(352, &[("group", "g")], Body::Empty).refused(26, &["No group in this broker"]);
    broker.call(200, none, r#"{"groupName":"g","retryMaxTimes":3,"attributes":{"+k":"v"}}"#.to_owned()).expect(0);
    let config = json(&broker.body(352, &[("group", "g")]));
    assert_eq!(config.get("retryMaxTimes").unwrap().as_i64(), Some(3));
    assert_eq!(config.get("attributes").unwrap().get("k").unwrap().as_text().unwrap(), "v");
    broker.call(200, none, r#"{"groupName":"not ok"}"#.to_owned()).refused(29, &["not ok"]);
    broker.call(200, none, "nonsense".to_owned()).expect(1);
    broker.call(225, none, r#"{"groupConfigList":[{"groupName":"h"},{"groupName":"i","consumeEnable":false}]}"#.to_owned()).expect(0);
    broker.restart();
    assert!(broker.body(352, &[("group", "i")]).contains("\"consumeEnable\":false"));

    assert_eq!(broker.body(353, &[("group", "g"), ("topic", "T")]), r#"{"group":"g","readable":true,"topic":"T"}"#);
    assert_eq!(broker.body(353, &[("group", "g"), ("topic", "T"), ("readable", "false")]), r#"{"group":"g","readable":false,"topic":"T"}"#);
    assert!(broker.body(201, &[]).contains(r#""forbiddenTable":{"g":{"T":4}}"#));

    broker.create_topic("T", 1, &[]).expect(0);
    broker.call(15, &[("consumerGroup", "h"), ("topic", "T"), ("queueId", "0"), ("commitOffset", "0")], Body::Empty).expect(0);
    broker.call(207, &[("groupName", "h")], Body::Empty).expect(0);
    broker.call(352, &[("group", "h")], Body::Empty).expect(26);
    assert!(broker.body(43, &[]).contains("\"T@h\":{0:0}"), "offsets stay");
    broker.call(207, &[("groupName", "h"), ("cleanOffset", "true")], Body::Empty).expect(0);
    broker.call(43, &[] as &[(&str, &str)], Body::Empty).refused(1, &["offset"]);
    broker.restart();
    broker.call(352, &[("group", "h")], Body::Empty).expect(26);
}

/// Ten messages on a topic of two queues, seven of which a group has consumed.
fn consumed() -> TestBroker {
    let broker = TestBroker::start();
    broker.create_topic("T", 2, &[]).expect(0);
    broker.call(200, &[] as &[(&str, &str)], r#"{"groupName":"g"}"#.to_owned()).expect(0);
    for n in 0..10 {
        broker.send(&Send::new("T", format!("{n}")).queue(n % 2)).expect(0);
    }
    broker.await_max_offset("T", 1, 5);
    for (queue, offset) in [("0", "4"), ("1", "3")] {
        broker.call(15, &[("consumerGroup", "g"), ("topic", "T"), ("queueId", queue), ("commitOffset", offset)], Body::Empty).expect(0);
    }
    broker
}

fn offset_of(broker: &TestBroker, queue: &str) -> i64 {
    broker.call(14, &[("consumerGroup", "g"), ("topic", "T"), ("queueId", queue)], Body::Empty).expect(0).number("offset")
}

#[test]
fn what_groups_have_consumed() {
    let broker = consumed();
    let stats = broker.body(208, &[("consumerGroup", "g")]);
    assert!(stats.contains(r#"{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"brokerOffset":5,"consumerOffset":4,"#), "{stats}");
    let parsed = json(&stats);
    let (_, queue) = &parsed.get("offsetTable").unwrap().members()[1];
    assert_eq!((queue.get("brokerOffset").unwrap().as_i64(), queue.get("consumerOffset").unwrap().as_i64()), (Some(5), Some(3)));
    assert!(queue.get("lastTimestamp").unwrap().as_i64() > Some(1_600_000_000_000));
    assert!(broker.body(208, &[("consumerGroup", "g"), ("topicList", "absent;T")]).contains("\"queueId\":1"));
    assert_eq!(broker.body(208, &[("consumerGroup", "nobody")]), r#"{"consumeTps":0.0,"offsetTable":{}}"#);
    let all = broker.body(317, &[("isOrder", "false")]);
    assert!(all.ends_with(r#""totalDiff":3,"totalInflightDiff":0}"#), "{all}");
    assert!(broker.body(317, &[("isOrder", "true")]).contains("\"totalDiff\":0"));
    let topic = broker.body(202, &[("topic", "T")]);
    assert!(
        topic.contains(r#"{"brokerName":"broker-a","queueId":1,"topic":"T"}:{"lastUpdateTimestamp":"#)
            && topic.contains(r#""maxOffset":5,"minOffset":0}"#),
        "{topic}"
    );
    broker.call(202, &[("topic", "x")], Body::Empty).refused(17, &["topic[x] not exist"]);
    assert_eq!(broker.body(300, &[("topic", "T")]), r#"{"groupList":["g"]}"#);
    assert!(broker.body(343, &[("group", "g")]).ends_with(r#""topicList":["T"]}"#));
    assert_eq!(broker.body(345, &[("group", "g"), ("topic", "T")]), r#"{"group":"g","topic":"T"}"#);
    let spans = json(&broker.body(303, &[("topic", "T"), ("group", "g")]));
    let span = &spans.get("consumeTimeSpanSet").unwrap().elements()[0];
    assert!(span.get("minTimeStamp").unwrap().as_i64() <= span.get("consumeTimeStamp").unwrap().as_i64());
    assert!(span.get("delayTime").unwrap().as_i64() >= Some(0));
    assert!(broker.body(43, &[]).ends_with(r#""offsetTable":{"T@g":{0:4,1:3}}}"#));

    broker.call(314, &[("srcGroup", "g"), ("destGroup", "h"), ("topic", ""), ("offline", "true")], Body::Empty).expect(0);
    assert!(broker.body(43, &[]).ends_with(r#""offsetTable":{"T@g":{0:4,1:3},"T@h":{0:4,1:3}}}"#));
    broker.call(15, &[("consumerGroup", "g"), ("topic", "T"), ("queueId", "0"), ("commitOffset", "2")], Body::Empty).expect(0);
    assert_eq!(broker.body(308, &[("topic", "T"), ("compareGroup", "h"), ("filterGroups", "x")]), r#"{"correctionOffsets":{0:2,1:3}}"#);
    assert_eq!(
        broker.body(308, &[("topic", "T"), ("compareGroup", "g"), ("filterGroups", "g,")]),
        format!(r#"{{"correctionOffsets":{{0:{},1:3}}}}"#, i64::MAX)
    );
}

#[test]
fn an_offset_is_reset_on_the_server() {
    let mut broker = consumed();
    let reset = |broker: &TestBroker, more: &[(&str, &str)]| {
        let mut header = vec![("topic", "T"), ("group", "g"), ("isForce", "true")];
        header.extend_from_slice(more);
        broker.call(222, header.as_slice(), Body::Empty)
    };
    let answer = text(&reset(&broker, &[("timestamp", "0")]).expect(0));
    assert_eq!(
        answer,
        r#"{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0,{"brokerName":"broker-a","queueId":1,"topic":"T"}:0}}"#
    );
    assert_eq!((offset_of(&broker, "0"), offset_of(&broker, "1")), (0, 0));
    let committed =
        broker.call(15, &[("consumerGroup", "g"), ("topic", "T"), ("queueId", "0"), ("commitOffset", "5")], Body::Empty).expect(0);
    assert!(committed.remark().contains("previously reset"));
    let pull = broker.pull(&Pull { group: "g", ..Pull::new("T", 0, 5) }).expect(21);
    assert_eq!(pull.number("nextBeginOffset"), 0);
    broker.call(15, &[("consumerGroup", "g"), ("topic", "T"), ("queueId", "0"), ("commitOffset", "2")], Body::Empty).expect(0);
    assert_eq!(offset_of(&broker, "0"), 2, "the pull has taken the reset");
    broker.restart();
    assert_eq!(offset_of(&broker, "1"), 0, "durable");

    assert!(text(&reset(&broker, &[("timestamp", "-1")]).expect(0)).contains("}:5,"), "negative: the end");
    assert!(text(&reset(&broker, &[("timestamp", "0"), ("queueId", "1"), ("offset", "3")]).expect(0)).ends_with("}:3}}"));
    reset(&broker, &[("timestamp", "0"), ("queueId", "1"), ("offset", "7")]).refused(1, &["Target offset 7", "[0-5]"]);
    reset(&broker, &[("timestamp", "0"), ("queueId", "2")]).refused(29, &["queue 2", "2 read queues"]);
    broker.call(222, &[("topic", "x"), ("group", "g"), ("timestamp", "0")], Body::Empty).refused(17, &["Topic x does not exist"]);
    broker.call(222, &[("topic", "T"), ("group", "x"), ("timestamp", "0")], Body::Empty).refused(26, &["Group x does not exist"]);
    reset(&broker, &[("timestamp", "soon")]).refused(1, &["timestamp", "soon"]);
}

#[test]
fn an_offset_is_reset_by_the_clients() {
    let broker = TestBroker::with(|config| config.server_side_reset_offset = false);
    broker.create_topic("T", 1, &[]).expect(0);
    broker.send(&Send::new("T", "one")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let header = [("topic", "T"), ("group", "g"), ("timestamp", "0"), ("isForce", "true")];
    broker.call(222, &header, Body::Empty).refused(1, &["THe consumer group <g> not exist"]);
    let peer = Peer::connect(&broker, "c");
    peer.beat("g", &["T"]).expect(0);
    peer.asked(40, &[]);
    broker.call(15, &[("consumerGroup", "g"), ("topic", "T"), ("queueId", "0"), ("commitOffset", "1")], Body::Empty).expect(0);
    broker.call(222, &header, Body::Empty).expect(0);
    let body = peer.asked(220, &["topic=T", "group=g", "timestamp=0", "isForce=true"]);
    assert_eq!(String::from_utf8(body).unwrap(), r#"{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0}}"#);
    drop(peer);
    until("the group to be gone", || broker.call(38, &[("consumerGroup", "g")], Body::Empty).code() == 1);
    broker.call(222, &header, Body::Empty).refused(206, &["Consumer not online"]);
}

#[test]
fn a_consumer_is_asked_through_the_broker() {
    let broker = TestBroker::start();
    let peer = Peer::serving(&broker, "c", |request, responder| match request.code {
        307 => responder.reply(0, Some("as it is"), &[("extra", "1")], Body::from("{\"mqTable\":{{}:{}}}\n".to_owned())),
        309 => responder.reply(0, None, &(), Body::from(request.body.to_vec())),
        221 => responder.reply(
            0,
            None,
            &(),
            Body::from(r#"{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}"#.to_owned()),
        ),
        _ => responder.ok(),
    });
    let asking = [("consumerGroup", "g"), ("clientId", "c"), ("jstackEnable", "false"), ("AccessKey", "secret")];
    broker.call(307, &asking, Body::Empty).refused(1, &["The Consumer <g> <c> not online"]);
    broker.call(223, &[("topic", "T"), ("group", "g")], Body::Empty).refused(1, &["No Any Consumer online", "[g]"]);
    peer.beat("g", &["T"]).expect(0);
    peer.asked(40, &[]);
    let answer = broker.call(307, &asking, Body::Empty).expect(0);
    assert_eq!(
        (text(&answer).as_str(), answer.remark().as_str(), answer.field("extra").as_str()),
        ("{\"mqTable\":{{}:{}}}\n", "as it is", "1")
    );
    let (code, fields, _) = peer.requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!((code, fields.as_str()), (307, "clientId=c consumerGroup=g jstackEnable=false"), "no credentials");

    let sent = broker.send(&Send::new("T", "hello")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let id = sent.field("msgId");
    let directly = [("consumerGroup", "g"), ("clientId", "c"), ("msgId", &*id), ("topic", "T")];
    let answer = broker.call(309, &directly, Body::Empty).expect(0);
    assert_eq!(answer.messages()[0].message.body, b"hello");
    peer.asked(309, &["brokerName=broker-a", "topicSysFlag=0", "groupSysFlag=0", &format!("msgId={id}")]);
    let unknown = format!("{}{:016X}", &id[..16], 987_654_321);
    broker.call(309, &[("consumerGroup", "g"), ("clientId", "c"), ("msgId", &unknown)], Body::Empty).refused(1, &["987654321"]);
    broker.call(309, &[("consumerGroup", "g"), ("clientId", "c"), ("msgId", "short")], Body::Empty).refused(1, &["short"]);
    broker.call(309, &[("consumerGroup", "g")], Body::Empty).refused(1, &["clientId"]);

    assert_eq!(
        broker.body(223, &[("topic", "T"), ("group", "g"), ("clientAddr", "")]),
        r#"{"consumerTable":{"c":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}}"#
    );
    peer.asked(221, &["topic=T", "group=g"]);
    assert_eq!(broker.body(223, &[("topic", "T"), ("group", "g"), ("clientAddr", "other")]), r#"{"consumerTable":{}}"#);
}

#[test]
fn a_consumer_that_goes_away_ends_the_question() {
    let broker = TestBroker::start();
    let parked = Arc::new(parking_lot::Mutex::new(None));
    let keep = Arc::clone(&parked);
    let peer = Peer::serving(
        &broker,
        "c",
        move |request, responder| if request.code == 307 { *keep.lock() = Some(responder) } else { responder.ok() },
    );
    peer.beat("g", &["T"]).expect(0);
    peer.asked(40, &[]);
    let answer = broker.call_later(307, &[("consumerGroup", "g"), ("clientId", "c")], Body::Empty);
    peer.asked(307, &[]);
    peer.client.shutdown();
    answer.recv_timeout(PATIENCE).unwrap().refused(1, &["<g>", "<c>"]);
    drop(parked);
}

#[test]
fn configuration_is_told_and_changed() {
    let broker = TestBroker::start();
    broker.create_topic("T", 1, &[]).expect(0);
    let update = |body: &str| broker.call(25, &[] as &[(&str, &str)], body.to_owned());
    let answer = update("brokerPermission=2\nfileReservedTime=48\n").expect(0);
    assert!(answer.remark().contains("fileReservedTime") && !answer.remark().contains("brokerPermission"), "{}", answer.remark());
    assert!(answer.field("version").contains("\"counter\":1"));
    assert!(broker.store_file("broker.properties").contains("brokerPermission=2"));
    broker.pull(&Pull::new("T", 0, 0)).refused(16, &["brokerPermission=2"]);
    update("brokerPermission=6").expect(0);
    let told = broker.call(26, &[] as &[(&str, &str)], Body::Empty).expect(0);
    assert!(text(&told).contains("brokerPermission=6\n") && told.field("version").contains("\"counter\":2"));
    update("brokerConfigPath=/elsewhere").refused(16, &["Can not update config in black list.", "brokerConfigPath"]);
    update("fileReservedTime=x").refused(1, &["fileReservedTime", "x"]);
    update("").refused(1, &["empty"]);
    update("autoCreateTopicEnable=false").expect(0);
    broker.send(&Send::new("new-topic", "x")).expect(17);
}

#[test]
fn runtime_information_has_every_key_and_parses() {
    let broker = consumed();
    let table = json(&broker.body(28, &[]));
    let table = table.get("table").unwrap();
    let value = |key: &str| table.get(key).unwrap_or_else(|| panic!("{key} is missing")).as_text().unwrap().into_owned();
    for key in [
        "bootTimestamp",
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgGetTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "putMessageTimesTotal",
        "putMessageFailedTimes",
        "putMessageSizeTotal",
        "putMessageEntireTimeMax",
        "getMessageEntireTimeMax",
        "sendThreadPoolQueueSize",
        "sendThreadPoolQueueCapacity",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueSize",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "litePullThreadPoolQueueSize",
        "queryThreadPoolQueueSize",
        "ackThreadPoolQueueSize",
        "EndTransactionQueueSize",
        "EndTransactionThreadPoolQueueCapacity",
        "dispatchBehindBytes",
        "dispatchMaxBuffer",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "startAcceptSendRequestTimeStamp",
        "commitLogMinOffset",
        "remainTransientStoreBufferNumbs",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
    ] {
        value(key).parse::<i64>().unwrap_or_else(|why| panic!("{key}: {why}"));
    }
    for key in ["putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps", "getTransferedTps"] {
        let numbers = value(key);
        let parsed: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        assert_eq!(parsed.len(), 3, "{key}: {numbers}");
    }
    for key in ["commitLogDiskRatio", "consumeQueueDiskRatio"] {
        assert!((0.0..=1.0).contains(&value(key).parse::<f64>().unwrap()), "{key}: {}", value(key));
    }
    for key in ["putLatency99", "putLatency999", "timerEnqueueTps", "timerDequeueTps", "putMessageAverageSize"] {
        value(key).parse::<f64>().unwrap();
    }
    assert_eq!((value("msgPutTotalTodayNow"), value("brokerActive")), ("10".to_owned(), "true".to_owned()));
    assert!(value("runtime").starts_with("[ 0 days, 0 hours,") && value("commitLogDirCapacity").starts_with("Total : "));
    assert_eq!(value("storageState"), "ok");
    assert!(value("commitLogMaxOffset").parse::<i64>().unwrap() > 0);
}

#[test]
fn statistics_by_name_and_key() {
    let broker = consumed();
    let sum = |name: &str, key: &str, window: &str| {
        json(&broker.body(315, &[("statsName", name), ("statsKey", key)])).get(window).unwrap().get("sum").unwrap().as_i64()
    };
    assert_eq!(sum("TOPIC_PUT_NUMS", "T", "statsMinute"), Some(10));
    assert_eq!(sum("BROKER_PUT_NUMS", "DefaultCluster", "statsDay"), Some(10));
    broker
        .call(315, &[("statsName", "GROUP_GET_NUMS"), ("statsKey", "T@g")], Body::Empty)
        .refused(1, &["GROUP_GET_NUMS", "T@g", "not exist"]);
    broker.pull(&Pull { group: "g", ..Pull::new("T", 0, 0) }).expect(0);
    assert_eq!(sum("GROUP_GET_NUMS", "T@g", "statsHour"), Some(5));
    assert!(broker.body(315, &[("statsName", "QUEUE_PUT_NUMS"), ("statsKey", "*")]).contains("\"T@1\":{\"statsDay\""));
    broker.call(215, &[("topic", "T")], Body::Empty).expect(0);
    broker.call(315, &[("statsName", "TOPIC_PUT_NUMS"), ("statsKey", "T")], Body::Empty).expect(1);
}

#[test]
fn queues_are_assigned() {
    let mut broker = TestBroker::start();
    broker.create_topic("T", 4, &[]).expect(0);
    let ask = |broker: &TestBroker, client: &str, strategy: &str, model: &str| {
        let body =
            format!(r#"{{"topic":"T","consumerGroup":"g","clientId":"{client}","strategyName":"{strategy}","messageModel":"{model}"}}"#);
        text(&broker.call(400, &[] as &[(&str, &str)], body).expect(0))
    };
    let ids = |body: &str| -> Vec<i64> {
        let assignments = json(body);
        let assignments = assignments.get("messageQueueAssignments").unwrap();
        assignments.elements().iter().map(|one| one.get("messageQueue").unwrap().get("queueId").unwrap().as_i64().unwrap()).collect()
    };
    assert_eq!(ask(&broker, "a", "AVG", "CLUSTERING"), "{}", "nobody is there");
    let (a, b) = (Peer::connect(&broker, "a"), Peer::connect(&broker, "b"));
    a.beat("g", &["T"]).expect(0);
    b.beat("g", &["T"]).expect(0);
    assert_eq!(ids(&ask(&broker, "a", "AVG", "CLUSTERING")), [0, 1]);
    assert_eq!(ids(&ask(&broker, "b", "AVG_BY_CIRCLE", "CLUSTERING")), [1, 3]);
    assert_eq!(ids(&ask(&broker, "b", "AVG", "BROADCASTING")), [0, 1, 2, 3]);
    assert_eq!(ask(&broker, "a", "BY_MOON", "CLUSTERING"), "{}");
    let set = |broker: &TestBroker, topic: &str, group: &str, mode: &str| {
        let body = format!(r#"{{"topic":"{topic}","consumerGroup":"{group}","mode":"{mode}","popShareQueueNum":0}}"#);
        broker.call(401, &[] as &[(&str, &str)], body)
    };
    set(&broker, "%RETRY%g", "g", "POP").refused(16, &["%RETRY%g"]);
    set(&broker, "x", "g", "POP").refused(17, &["x"]);
    set(&broker, "T", "x", "POP").refused(26, &["x"]);
    set(&broker, "T", "g", "PUSH").refused(1, &["PUSH"]);
    set(&broker, "T", "g", "POP").expect(0);
    let assigned = ask(&broker, "a", "AVG", "CLUSTERING");
    assert!(assigned.contains("\"queueId\":-1") && assigned.contains("\"mode\":\"POP\""), "{assigned}");
    broker.restart();
    assert_eq!(
        broker.body(402, &[]),
        r#"{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":0,"topic":"T"}}}}"#
    );
}

#[test]
fn small_requests() {
    let broker = consumed();
    let check = |body: &str| broker.call(46, &[] as &[(&str, &str)], body.to_owned());
    check(r#"{"clientId":"c","group":"g","subscriptionData":{"topic":"T","subString":"a","expressionType":"TAG"}}"#).expect(0);
    check(r#"{"subscriptionData":{"topic":"T","subString":"a > 1","expressionType":"SQL92"}}"#).expect(0);
    check(r#"{"subscriptionData":{"topic":"T","subString":"a >","expressionType":"SQL92"}}"#).refused(23, &["topic T", "line 1, column 4"]);
    check(r#"{"subscriptionData":{"topic":"T","subString":"a","expressionType":"PROLOG"}}"#).refused(23, &["PROLOG"]);
    for code in [306, 316, 329] {
        broker.call(code, &[] as &[(&str, &str)], Body::Empty).expect(0);
    }
    assert_eq!(broker.max_offset("T", 0), 5, "in use: not cleaned");
    let status = json(&broker.body(907, &[]));
    assert!(status.get("masterCommitLogMaxOffset").unwrap().as_i64() > Some(0));
    assert_eq!(status.get("haConnectionInfo").unwrap().elements(), []);
}

/// Nobody waits for the answers of one-way requests, and no field is needed for the broker to live on.
#[test]
fn bad_requests_harm_nobody() {
    let broker = TestBroker::start();
    let codes = [
        17, 18, 21, 25, 26, 28, 34, 35, 38, 41, 42, 43, 46, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 225, 300, 303, 305, 306, 307,
        308, 309, 314, 315, 316, 317, 328, 329, 343, 345, 351, 352, 353, 400, 401, 402, 907,
    ];
    let answered = AtomicI32::new(0);
    for code in codes {
        for body in ["", "{", "[[[[", "{\"a\":{{}:{}}}", "\u{0}\u{ff}"] {
            let answer = broker.call(code, &[] as &[(&str, &str)], body.to_owned());
            assert_ne!(answer.code(), 3, "{code} is served");
            broker.client.oneway(&broker.address(), code, &[("topic", "\u{1}")], body.to_owned().into()).unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert_eq!(answered.load(Ordering::Relaxed) as usize, codes.len() * 5);
    broker.send(&Send::new("T", "still here")).expect(0);
}

/// Whoever created, altered or deleted a topic finds the route like this at once.
#[test]
fn topics_are_registered_before_they_are_answered() {
    let cluster = Cluster::start();
    let client = RemotingClient::start(RemotingClientConfig::default()).unwrap();
    let broker = cluster.broker_address();
    let call = |address: &str, code: i32, header: &[(&str, &str)], body: &str| {
        let body = if body.is_empty() { Body::Empty } else { body.to_owned().into() };
        Answer { command: client.invoke(address, code, header, body, PATIENCE).unwrap() }
    };
    let route = |topic: &str| call(&cluster.namesrv(), 105, &[("topic", topic)], "");
    for (n, perm) in [6, 4, 6, 2].into_iter().enumerate() {
        let (queues, perm) = ((n + 1).to_string(), perm.to_string());
        let header = [("topic", "orders"), ("readQueueNums", &*queues), ("writeQueueNums", &*queues), ("perm", &*perm)];
        call(&broker, 17, &header, "").expect(0);
        let route = text(&route("orders").expect(0));
        assert!(route.contains(&format!(r#""perm":{perm},"readQueueNums":{queues}"#)), "{route}");
    }
    call(&broker, 18, &[], r#"{"topicConfigList":[{"topicName":"a"},{"topicName":"b"}]}"#).expect(0);
    route("a").expect(0);
    route("b").expect(0);
    call(&broker, 25, &[], "brokerPermission=4").expect(0);
    assert!(text(&route("a").expect(0)).contains("\"perm\":4,"));
    call(&broker, 215, &[("topic", "a")], "").expect(0);
    route("a").refused(17, &["a"]);
    let heartbeat = r#"{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[]}]}"#;
    call(&broker, 34, &[], heartbeat).expect(0);
    until("the route of the retry topic", || route("%RETRY%g").code() == 0);
}
