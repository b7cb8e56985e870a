//! Clients that introduce themselves: pulls by the group's subscription, request and reply, locks, who is told of whom.

use std::sync::Arc;
use std::time::Duration;

use petrel::common::subscription::SubscriptionData;
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::remoting::body::heartbeat::{ConsumerData, HeartbeatData};
use petrel::remoting::command::{Body, OwnedCommand};

use crate::support::{Answer, PATIENCE, Pull, Send, TestBroker};

/// A consumer of `T` as its heartbeat tells.
fn consumer(group: &str, tags: &str, version: i64) -> HeartbeatData {
    HeartbeatData {
        client_id: "127.0.0.1@1".to_owned(),
        producers: vec!["test-producer".to_owned()],
        consumers: vec![ConsumerData {
            group_name: group.to_owned(),
            subscriptions: vec![SubscriptionData::parse("T", tags, "TAG", version).unwrap()],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    }
}

fn beat(broker: &TestBroker, heartbeat: &HeartbeatData) {
    broker.call(34, &(), heartbeat.to_json()).expect(0);
}

/// A pull that leaves the subscription to the heartbeat.
fn by_heartbeat(broker: &TestBroker, offset: i64, sub_version: i64) -> Answer {
    let mut header = Pull::new("T", 0, offset).header();
    header.sys_flag = 0;
    header.subscription = None;
    header.sub_version = sub_version;
    broker.call(11, &header, Body::Empty)
}

#[test]
fn the_heartbeats_subscription_filters() {
    let broker = TestBroker::start();
    for tag in ["a", "b", "a"] {
        broker.send(&Send::new("T", tag).property("TAGS", tag)).expect(0);
    }
    broker.await_max_offset("T", 0, 3);
    by_heartbeat(&broker, 0, 0).refused(24, &["test-group", "heartbeat"]);
    beat(&broker, &consumer("test-group", "a", 5));
    assert_eq!(by_heartbeat(&broker, 0, 5).expect(0).messages().len(), 2);
    by_heartbeat(&broker, 0, 6).refused(25, &["not latest", "5", "6"]);
    beat(&broker, &consumer("test-group", "b", 6));
    assert_eq!(by_heartbeat(&broker, 0, 6).expect(0).messages().len(), 1);
    // The group's retry topic came with the heartbeat; the group's members are told.
    broker.pull(&Pull::new("%RETRY%test-group", 0, 0)).expect(19);
    let members = broker.call(38, &[("consumerGroup", "test-group")], Body::Empty).expect(0);
    assert!(String::from_utf8_lossy(members.command.view().body).contains("127.0.0.1@1"));
    broker.call(38, &[("consumerGroup", "nobody")], Body::Empty).refused(1, &["nobody"]);
}

#[test]
fn a_reply_reaches_the_client_that_asked() {
    let broker = TestBroker::start();
    let (sender, pushed) = crossbeam::channel::unbounded();
    let push_handler = Arc::new(move |request: &petrel::remoting::command::Command<'_>, responder: petrel::net::responder::Responder| {
        sender.send(OwnedCommand::new(request.frame.to_vec()).unwrap()).unwrap();
        responder.ok();
    });
    let asker = RemotingClient::start(RemotingClientConfig { push_handler: Some(push_handler), ..Default::default() }).unwrap();
    let heartbeat = HeartbeatData { client_id: "asker".to_owned(), producers: vec!["P".to_owned()], ..HeartbeatData::default() };
    asker.invoke(&broker.address(), 34, &(), heartbeat.to_json().into(), PATIENCE).unwrap();

    for code in [324, 325] {
        let reply = Send { code, ..Send::new("DefaultCluster_REPLY_TOPIC", format!("answer {code}")) }
            .property("CORRELATION_ID", "c1")
            .property("REPLY_TO_CLIENT", "asker")
            .property("MSG_TYPE", "reply");
        let answer = broker.send(&reply).expect(0);
        assert_eq!(answer.number("queueId"), 0);
        let push = pushed.recv_timeout(PATIENCE).unwrap();
        let view = push.view();
        assert_eq!((view.code, view.body), (326, format!("answer {code}").as_bytes()));
        let properties = view.ext.text("properties").unwrap().into_owned();
        assert!(properties.contains("CORRELATION_ID\u{1}c1\u{2}") && properties.contains("PUSH_REPLY_TIME"), "{properties}");
        assert_eq!(view.ext.text("topic").unwrap(), "DefaultCluster_REPLY_TOPIC");
        assert!(view.ext.text("bornHost").unwrap().starts_with("127.0.0.1:"));
    }
    // An empty reply is one too, and a reply to nobody is told.
    let empty = Send { code: 325, ..Send::new("DefaultCluster_REPLY_TOPIC", "") }.property("REPLY_TO_CLIENT", "asker");
    broker.send(&empty).expect(0);
    assert!(pushed.recv_timeout(PATIENCE).unwrap().view().body.is_empty());
    let lost = Send { code: 325, ..Send::new("DefaultCluster_REPLY_TOPIC", "x") };
    broker.send(&lost.clone().property("REPLY_TO_CLIENT", "gone")).refused(1, &["channel of <gone> not found"]);
    broker.send(&lost).refused(1, &["REPLY_TO_CLIENT"]);
    assert!(broker.consume("DefaultCluster_REPLY_TOPIC", 0, 5).len() >= 5, "replies are stored");
}

#[test]
fn an_ordered_groups_retry_dies_at_once() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "x")).expect(0);
    let queue = r#"[{"brokerName":"broker-a","queueId":0,"topic":"T"}]"#;
    let lock = |client: &str| format!(r#"{{"consumerGroup":"G","clientId":"{client}","mqSet":{queue}}}"#);
    let locked = broker.call(41, &(), lock("one")).expect(0);
    assert!(String::from_utf8_lossy(locked.command.view().body).contains("\"queueId\":0"));
    let refused = broker.call(41, &(), lock("two")).expect(0);
    assert!(!String::from_utf8_lossy(refused.command.view().body).contains("\"queueId\":0"));
    broker.send(&Send::new("%RETRY%G", "ordered")).expect(0);
    assert_eq!(broker.consume("%DLQ%G", 0, 1)[0].message.body, b"ordered");
    broker.call(42, &(), lock("one")).expect(0);
    broker.send(&Send::new("%RETRY%G", "free")).expect(0);
    assert_eq!(broker.consume("%RETRY%G", 0, 1)[0].message.body, b"free");
}

#[test]
fn a_reset_moves_the_next_pull() {
    let broker = TestBroker::start();
    for n in 0..4 {
        broker.send(&Send::new("T", n.to_string())).expect(0);
    }
    broker.await_max_offset("T", 0, 4);
    beat(&broker, &consumer("test-group", "*", 1));
    let fields = [("topic", "T"), ("group", "test-group"), ("timestamp", "0"), ("isForce", "true"), ("queueId", "0"), ("offset", "1")];
    broker.call(222, &fields, Body::Empty).expect(0);
    let moved = by_heartbeat(&broker, 3, 1).expect(21);
    assert_eq!((moved.number("nextBeginOffset"), moved.number("maxOffset")), (1, 4));
    assert_eq!(by_heartbeat(&broker, 1, 1).expect(0).messages().len(), 3);
}

#[test]
fn held_pulls_of_a_closed_connection_harm_nobody() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let gone = RemotingClient::start(RemotingClientConfig::default()).unwrap();
    let (sender, ended) = crossbeam::channel::bounded(1);
    let done = Box::new(move |result: Result<_, _>| sender.send(result.is_err()).unwrap());
    let pull = Pull { suspend_ms: 15_000, ..Pull::new("T", 0, 1) };
    gone.invoke_async(&broker.address(), 11, &pull.header(), Body::Empty, PATIENCE, done);
    assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "held");
    gone.shutdown();
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    let here = broker.pull_later(&pull);
    assert!(here.recv_timeout(Duration::from_millis(50)).is_err(), "held");
    broker.send(&Send::new("T", "1")).expect(0);
    assert_eq!(here.recv_timeout(PATIENCE).unwrap().expect(0).messages().len(), 1);
}
