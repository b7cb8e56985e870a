//! SQL92 filters over TCP: pulls with their own expression and with the group's, long polls, refusals, the file.

use std::time::{Duration, Instant};

use petrel::client::{ConsumeFrom, ConsumeStatus};
use petrel::common::sysflag;
use petrel::remoting::command::Body;
use petrel::remoting::fastjson;
use petrel::remoting::header::pull::PullMessageRequest;

use crate::support::{Answer, Cluster, PATIENCE, Pull, Send, TestBroker, until};

/// Long enough for an answer that must not come.
const SETTLE: Duration = Duration::from_millis(150);

fn bodies(answer: &Answer) -> Vec<String> {
    answer.messages().into_iter().map(|message| String::from_utf8(message.message.body).unwrap()).collect()
}

/// A pull that carries its expression.
fn sql<'a>(expression: &'a str, offset: i64, suspend_ms: i64) -> PullMessageRequest<'a> {
    let pull = Pull { tags: expression, suspend_ms, ..Pull::new("T", 0, offset) };
    PullMessageRequest { expression_type: Some("SQL92".into()), ..pull.header() }
}

/// A pull by the group's subscription.
fn by_group(version: i64, offset: i64, suspend_ms: i64) -> PullMessageRequest<'static> {
    let pull = Pull { group: "g", suspend_ms, ..Pull::new("T", 0, offset) };
    let header = pull.header();
    PullMessageRequest { sys_flag: header.sys_flag & !sysflag::PULL_SUBSCRIPTION, sub_version: version, subscription: None, ..header }
}

fn subscribe(broker: &TestBroker, expression: &str, version: i64, more: &str) {
    let expression = serde_json::to_string(expression).unwrap();
    let body = format!(
        r#"{{"clientID":"c","consumerDataSet":[{{"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{{"topic":"T","subString":{expression},"expressionType":"SQL92","subVersion":{version}{more}}}]}}]}}"#
    );
    broker.call(34, &(), body).expect(0);
}

fn send(broker: &TestBroker, body: &str, properties: &[(&str, &str)]) {
    let send = properties.iter().fold(Send::new("T", body), |send, (name, value)| send.property(name, *value));
    broker.send(&send).expect(0);
}

fn held(broker: &TestBroker) -> i64 {
    let answer = broker.call(28, &(), Body::Empty).expect(0);
    let table = fastjson::parse(answer.command.view().body).unwrap();
    table.get("table").unwrap().get("heldPulls").unwrap().as_text().unwrap().parse().unwrap()
}

fn broker() -> TestBroker {
    let broker = TestBroker::start();
    for (body, properties) in [
        ("none", &[][..]),
        ("light", &[("weight", "3"), ("region", "eu")]),
        ("heavy", &[("weight", "12"), ("region", "eu")]),
        ("far", &[("weight", "7"), ("region", "us")]),
        ("odd", &[("weight", "much"), ("region", "eu")]),
    ] {
        send(&broker, body, properties);
    }
    broker.await_max_offset("T", 0, 5);
    broker
}

#[test]
fn a_pull_brings_its_own_expression() {
    let broker = broker();
    let pulled = |expression: &str| broker.call(11, &sql(expression, 0, 0), Body::Empty).expect(0);
    for (expression, expected) in [
        ("weight > 5", &["heavy", "far"][..]),
        ("weight BETWEEN 3 AND 7", &["light", "far"]),
        ("region = 'eu' AND weight IS NOT NULL", &["light", "heavy", "odd"]),
        ("region <> 'eu'", &["far"]),
        ("weight IS NULL", &["none"]),
        ("5 <> weight", &["none", "light", "heavy", "far"]),
        ("region IN ('us', 'asia') OR weight CONTAINS 'uc'", &["far", "odd"]),
        ("TRUE", &["none", "light", "heavy", "far", "odd"]),
    ] {
        let answer = pulled(expression);
        assert_eq!(bodies(&answer), expected, "{expression}");
        assert_eq!(answer.number("nextBeginOffset"), 5, "{expression}");
    }
    let nothing = broker.call(361, &sql("weight > 100", 0, 15_000), Body::Empty).expect(20);
    assert_eq!(nothing.number("nextBeginOffset"), 5);
    broker.call(11, &sql("weight >", 0, 0), Body::Empty).refused(23, &["parse the consumer's subscription failed", "line 1, column 9"]);
    broker.call(11, &sql("", 0, 0), Body::Empty).refused(23, &["line 1, column 1"]);
    let prolog = PullMessageRequest { expression_type: Some("PROLOG".into()), ..sql("a", 0, 0) };
    broker.call(11, &prolog, Body::Empty).refused(23, &["PROLOG"]);
}

#[test]
fn scanning_goes_on_past_what_does_not_match() {
    let broker = TestBroker::start();
    let later: Vec<_> = (0..2_000).map(|n| broker.send_later(&Send::new("T", n.to_string()).property("n", n.to_string()))).collect();
    for answer in later {
        answer.recv_timeout(PATIENCE).unwrap().expect(0);
    }
    broker.await_max_offset("T", 0, 2_000);
    // So long an expression is left to a work thread; it comes to the same.
    let long = format!("n = 1999 OR {}", vec!["n = 3000"; 1_000].join(" OR "));
    for expression in ["n = 1999", &long] {
        let (mut offset, mut steps) = (0, 0);
        let found = loop {
            let answer = broker.call(11, &sql(expression, offset, 15_000), Body::Empty);
            offset = answer.number("nextBeginOffset");
            steps += 1;
            if answer.code() != 20 {
                break answer.expect(0);
            }
            assert_eq!(offset, 800 * steps, "a bounded part of the queue");
        };
        assert_eq!((bodies(&found), offset, steps), (vec!["1999".to_owned()], 2_000, 3));
    }
}

#[test]
fn a_held_pull_wakes_for_a_match_only() {
    let broker = broker();
    // Evaluated where messages arrive, and where they do not hold that up: long expressions, and long properties.
    let long = format!("weight > 5 AND ({} OR TRUE)", vec!["weight = 1"; 1_500].join(" OR "));
    let padding = "x".repeat(9 << 10);
    for (expression, padding) in [("weight > 5", ""), (long.as_str(), ""), ("weight > 5", padding.as_str())] {
        let from = broker.max_offset("T", 0);
        let waiting = broker.call_later(11, &sql(expression, from, 15_000), Body::Empty);
        until("a held pull", || held(&broker) == 1);
        for weight in ["1", "much", "2"] {
            send(&broker, "light", &[("weight", weight), ("padding", padding)]);
        }
        broker.await_max_offset("T", 0, from + 3);
        assert!(waiting.recv_timeout(SETTLE).is_err(), "nothing for it");
        send(&broker, "heavy", &[("weight", "6"), ("padding", padding)]);
        let answer = waiting.recv_timeout(PATIENCE).unwrap().expect(0);
        assert_eq!((bodies(&answer), answer.number("nextBeginOffset")), (vec!["heavy".to_owned()], from + 4));
        assert_eq!(held(&broker), 0);
    }
}

#[test]
fn a_match_behind_more_than_one_scan_is_the_answer() {
    let broker = broker();
    let waiting = broker.call_later(11, &sql("weight > 500", 5, 60_000), Body::Empty);
    until("a held pull", || held(&broker) == 1);
    for n in 0..1_000 {
        broker.send_oneway(&Send::new("T", "light").property("weight", (n % 7).to_string()));
    }
    send(&broker, "heavy", &[("weight", "501")]);
    let answer = waiting.recv_timeout(PATIENCE).unwrap().expect(0);
    assert_eq!((bodies(&answer), answer.number("nextBeginOffset")), (vec!["heavy".to_owned()], 1_006));
}

#[test]
fn a_held_pull_ends_with_its_time() {
    let broker = broker();
    let start = Instant::now();
    assert_eq!(broker.call(11, &sql("weight > 5", 5, 300), Body::Empty).expect(19).number("nextBeginOffset"), 5);
    assert!(start.elapsed() >= Duration::from_millis(290));
    let waiting = broker.call_later(11, &sql("weight > 5", 5, 400), Body::Empty);
    until("a held pull", || held(&broker) == 1);
    send(&broker, "light", &[("weight", "1")]);
    let answer = waiting.recv_timeout(PATIENCE).unwrap().expect(20);
    assert_eq!(answer.number("nextBeginOffset"), 6, "behind what does not match");
}

#[test]
fn no_match_is_missed_between_look_up_and_hold() {
    let broker = broker();
    let start = Instant::now();
    let mut offset = 5;
    for n in 0..200 {
        let waiting = broker.call_later(11, &sql("n > 0", offset, 15_000), Body::Empty);
        broker.send_oneway(&Send::new("T", "other").property("n", "0"));
        broker.send_oneway(&Send::new("T", n.to_string()).property("n", "1"));
        let answer = waiting.recv_timeout(PATIENCE).unwrap().expect(0);
        assert_eq!(bodies(&answer), [n.to_string()]);
        offset = answer.number("nextBeginOffset");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

#[test]
fn the_groups_expression_is_used_and_may_change() {
    let broker = broker();
    let pulled = |version: i64| broker.call(11, &by_group(version, 0, 0), Body::Empty);
    pulled(1).refused(24, &["g has sent no heartbeat"]);
    subscribe(&broker, "weight > 5", 1, "");
    assert_eq!(bodies(&pulled(1).expect(0)), ["heavy", "far"]);
    pulled(2).refused(25, &["version 1 here, 2 in the request"]);
    // A pull that waits for matches of what is no longer the subscription ends.
    let waiting = broker.call_later(11, &by_group(1, 5, 60_000), Body::Empty);
    until("a held pull", || held(&broker) == 1);
    subscribe(&broker, "weight > 5", 2, "");
    assert!(waiting.recv_timeout(SETTLE).is_err(), "the same expression");
    send(&broker, "lighter", &[("weight", "2")]);
    broker.await_max_offset("T", 0, 6);
    subscribe(&broker, "weight < 5", 3, "");
    assert_eq!(bodies(&waiting.recv_timeout(PATIENCE).unwrap().expect(0)), ["lighter"], "what the old one rejected is looked at again");
    assert_eq!(bodies(&pulled(3).expect(0)), ["light", "lighter"]);
    // A wrong expression is told with each pull; the next right one is used.
    subscribe(&broker, "weight <", 4, "");
    pulled(4).refused(27, &["group g", "topic T", "version 4", "line 1, column 9"]);
    subscribe(&broker, "weight = 'much'", 5, "");
    assert_eq!(bodies(&pulled(5).expect(0)), ["odd"]);
    subscribe(&broker, "weight = 'much'", 6, r#","classFilterMode":true"#);
    pulled(6).refused(1, &["class filter"]);
}

#[test]
fn class_filters_and_switched_off_sql_are_refused() {
    let off = TestBroker::with(|config| config.enable_property_filter = false);
    send(&off, "x", &[("a", "1")]);
    let words = ["The broker does not support consumer to filter message by SQL92", "enablePropertyFilter=false"];
    off.call(11, &sql("a = 1", 0, 0), Body::Empty).refused(1, &words);
    subscribe(&off, "a = 1", 1, "");
    off.call(11, &by_group(1, 0, 0), Body::Empty).refused(1, &words);
    off.call(46, &(), r#"{"subscriptionData":{"topic":"T","subString":"a = 1","expressionType":"SQL92"}}"#.to_owned()).refused(1, &words);
    let broker = broker();
    let class = PullMessageRequest { sys_flag: sysflag::PULL_CLASS_FILTER | sysflag::PULL_SUBSCRIPTION, ..sql("TRUE", 0, 0) };
    broker.call(11, &class, Body::Empty).refused(1, &["topic T", "class filter"]);
}

#[test]
fn registered_expressions_are_kept_in_the_file() {
    let mut broker = broker();
    subscribe(&broker, "weight > 5", 7, "");
    broker.restart();
    let show = |broker: &TestBroker| {
        let header = [("topic", "T"), ("queueId", "0"), ("index", "0"), ("count", "1"), ("consumerGroup", "g")];
        let answer = broker.call(321, header.as_slice(), Body::Empty).expect(0);
        let body = fastjson::parse(answer.command.view().body).unwrap();
        fastjson::parse(body.get("filterData").unwrap().as_text().unwrap().as_bytes()).unwrap()
    };
    let data = show(&broker);
    let text = |name: &str| data.get(name).unwrap().as_text().unwrap().into_owned();
    assert_eq!(
        (text("expression").as_str(), text("expressionType").as_str(), text("clientVersion").as_str()),
        ("weight > 5", "SQL92", "7")
    );
    assert_eq!(data.get("dead").unwrap().as_bool(), Some(true));
}

#[test]
fn consumers_of_the_library_subscribe_by_expression() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let producer = client.producer("p").unwrap();
    for number in 0..40 {
        let message = petrel::Message::new("T", number.to_string().into_bytes()).property("n", number.to_string());
        producer.send(&message).unwrap();
    }
    let consumer = client.push_consumer("g").subscribe_sql("T", "n >= 30 OR n IN ('3', '5')").from(ConsumeFrom::First).poll().unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < 12 {
        let delivery = consumer.poll(PATIENCE).expect("a message in time");
        numbers.extend(delivery.messages().iter().map(|message| String::from_utf8(message.message.body.clone()).unwrap()));
        // Back through the retry topic, which no expression filters.
        let status = if numbers.len() == 1 { ConsumeStatus::Later } else { ConsumeStatus::Success };
        delivery.end(status);
    }
    numbers.sort_by_key(|number| number.parse::<u32>().unwrap());
    let expected: Vec<String> = [3, 5].into_iter().chain(30..40).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
    let again = consumer.poll(PATIENCE).expect("the one that was given back");
    assert!(again.messages()[0].reconsume_times == 1, "{again:?}", again = again.messages());
    again.end(ConsumeStatus::Success);
    let refused = client.push_consumer("h").subscribe_sql("T", "n >").poll().map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("line 1, column 4"), "{refused}");
}
