//! Transactions: half messages, their end, the questions about them.

use std::path::Path;

use crossbeam::channel::{Receiver, unbounded};
use petrel::common::message::MessageExt;
use petrel::common::properties;
use petrel::common::record::{Draft, Record};
use petrel::common::sysflag;
use petrel::common::topic::{HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC};
use petrel::config::broker::BrokerConfig;
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::remoting::body::heartbeat::HeartbeatData;
use petrel::remoting::command::Body;
use petrel::remoting::header::transaction::{CheckTransactionState, EndTransactionRequest};
use petrel::runtime::clock::Clock;
use petrel::store::MessageStore;
use petrel::store::fs::RealFs;

use super::support::{Answer, PATIENCE, Pull, Send, TestBroker, until};

const COMMIT: i32 = 8;
const ROLLBACK: i32 = 12;
const GROUP: &str = "tx-group";
const SYSTEM_GROUP: &str = "CID_RMQ_SYS_TRANS";

/// A half message that a broker took.
#[derive(Clone, Debug)]
struct Half {
    offset: i64,
    physical_offset: i64,
    key: String,
}

fn half_send<'a>(topic: &'a str, key: &str) -> Send<'a> {
    let send = Send { sys_flag: 4, ..Send::new(topic, format!("body of {key}")) };
    send.queue(1).property("UNIQ_KEY", key).property("TRAN_MSG", "true").property("PGROUP", GROUP).property("TAGS", "a")
}

fn send_half(broker: &TestBroker, topic: &str, key: &str) -> Half {
    half_of(&broker.send(&half_send(topic, key)).expect(0), key)
}

fn half_of(answer: &Answer, key: &str) -> Half {
    let (_, physical_offset) = petrel::common::message_id::parse(&answer.field("msgId")).unwrap();
    Half { offset: answer.number("queueOffset"), physical_offset, key: key.to_owned() }
}

fn end_header(half: &Half, decision: i32) -> EndTransactionRequest<'_> {
    EndTransactionRequest {
        producer_group: GROUP.into(),
        tran_state_table_offset: half.offset,
        commit_log_offset: half.physical_offset,
        commit_or_rollback: decision,
        from_transaction_check: false,
        msg_id: half.key.as_str().into(),
        transaction_id: Some(half.key.as_str().into()),
    }
}

fn end(broker: &TestBroker, half: &Half, decision: i32) -> Answer {
    broker.call(37, &end_header(half, decision), Body::Empty)
}

/// Keys of the messages of a queue, in order.
fn keys(broker: &TestBroker, topic: &str, queue_id: i32) -> Vec<String> {
    let (mut keys, mut offset) = (Vec::new(), 0);
    loop {
        let answer = broker.pull(&Pull::new(topic, queue_id, offset));
        if answer.code() != 0 {
            assert_eq!(answer.code(), 19, "{}", answer.remark());
            return keys;
        }
        offset = answer.number("nextBeginOffset");
        keys.extend(answer.messages().iter().map(|message| property(message, "UNIQ_KEY")));
    }
}

fn property(message: &MessageExt, name: &str) -> String {
    message.message.properties.get(name).cloned().unwrap_or_default()
}

fn await_keys(broker: &TestBroker, topic: &str, expected: &[&str]) {
    until(&format!("{expected:?} in {topic}"), || keys(broker, topic, 1).len() >= expected.len());
    assert_eq!(keys(broker, topic, 1), expected);
}

/// A question that a producer got.
#[derive(Clone, Debug)]
struct Question {
    half: Half,
    offset_msg_id: String,
    topic: String,
    message: MessageExt,
}

/// A producer that is connected and notes what it is asked.
struct Producer {
    client: RemotingClient,
    questions: Receiver<Question>,
}

impl Producer {
    fn connect(broker: &TestBroker) -> Self {
        Self::connect_as(broker, "tx-client", GROUP)
    }

    fn connect_as(broker: &TestBroker, id: &str, group: &str) -> Self {
        let (sender, questions) = unbounded();
        let push_handler: petrel::net::client::PushHandler = std::sync::Arc::new(move |request, responder| {
            responder.silent();
            if request.code != 39 {
                return;
            }
            let header = CheckTransactionState::decode(request).unwrap();
            let message = MessageExt::from_record(&Record::parse(request.body).unwrap());
            let half = Half {
                offset: header.tran_state_table_offset,
                physical_offset: header.commit_log_offset,
                key: header.unique_key.to_string(),
            };
            let (offset_msg_id, topic) = (header.offset_msg_id.to_string(), header.topic.to_string());
            let _ = sender.send(Question { half, offset_msg_id, topic, message }); // the test has ended
        });
        let client = RemotingClient::start(RemotingClientConfig { push_handler: Some(push_handler), ..Default::default() }).unwrap();
        let heartbeat = HeartbeatData { client_id: id.to_owned(), producers: vec![group.to_owned()], ..HeartbeatData::default() };
        client.invoke(&broker.address(), 34, &(), heartbeat.to_json().into(), PATIENCE).unwrap();
        Self { client, questions }
    }

    fn next(&self) -> Question {
        self.questions.recv_timeout(PATIENCE).expect("a question")
    }

    /// Answers a question.
    fn end(&self, broker: &TestBroker, half: &Half, decision: i32) {
        let header = EndTransactionRequest { from_transaction_check: true, ..end_header(half, decision) };
        self.client.oneway(&broker.address(), 37, &header, Body::Empty).unwrap();
    }

    /// Waits until `key` was asked about `times` times; keys of all questions in between.
    fn asked(&self, key: &str, times: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.iter().filter(|other| *other == key).count() < times {
            all.push(self.next().half.key);
        }
        all
    }
}

fn checking(config: &mut BrokerConfig) {
    config.transaction_timeout_ms = 1;
    config.transaction_check_interval_ms = 30;
    config.transaction_check_max = 1_000_000;
    config.flush_consumer_offset_interval_ms = 10;
}

fn system_offset(broker: &TestBroker, topic: &str) -> i64 {
    let header = [("consumerGroup", SYSTEM_GROUP), ("topic", topic), ("queueId", "0")];
    let answer = broker.call(14, &header, Body::Empty);
    if answer.code() == 0 { answer.number("offset") } else { -1 }
}

#[test]
fn a_committed_message_is_seen_once() {
    let broker = TestBroker::start();
    let answer = broker.send(&half_send("T", "K1")).expect(0);
    assert_eq!((answer.number("queueId"), answer.number("queueOffset")), (0, 0));
    assert_eq!(answer.field("transactionId"), "K1");
    let half = half_of(&answer, "K1");
    broker.await_max_offset(HALF_TOPIC, 0, 1);
    assert_eq!(broker.max_offset("T", 1), 0, "not seen before its commit");
    end(&broker, &half, COMMIT).expect(0);
    let message = broker.consume("T", 1, 1).remove(0);
    assert_eq!((message.sys_flag & sysflag::TRANSACTION_MASK, message.prepared_transaction_offset), (COMMIT, half.physical_offset));
    assert_eq!((message.queue_id, message.message.flag, &*message.message.body), (1, 7, &b"body of K1"[..]));
    for (name, value) in [("TRAN_MSG", "true"), ("PGROUP", GROUP), ("__transactionId__", "K1"), ("REAL_TOPIC", "T"), ("REAL_QID", "1")] {
        assert_eq!(property(&message, name), value, "{name}");
    }
    end(&broker, &half, COMMIT).expect(0);
    end(&broker, &half, ROLLBACK).refused(1, &["committed already", "K1"]);
    end(&broker, &half, COMMIT).expect(0);
    await_keys(&broker, "T", &["K1"]);
    let op = broker.consume(OP_HALF_TOPIC, 0, 1).remove(0);
    assert_eq!((&*op.message.body, property(&op, "TAGS")), (&b"0"[..], "d".to_owned()));
}

#[test]
fn a_message_that_is_rolled_back_is_never_seen() {
    let broker = TestBroker::start();
    let first = send_half(&broker, "T", "K1");
    let second = send_half(&broker, "T", "K2");
    end(&broker, &first, ROLLBACK).expect(0);
    end(&broker, &first, ROLLBACK).expect(0);
    end(&broker, &first, COMMIT).refused(1, &["rolled back already"]);
    end(&broker, &second, COMMIT).expect(0);
    await_keys(&broker, "T", &["K2"]);
    broker.await_max_offset(OP_HALF_TOPIC, 0, 2);
}

#[test]
fn many_decisions_at_once_are_one() {
    let broker = TestBroker::start();
    let half = send_half(&broker, "T", "K");
    let codes: Vec<(i32, i32)> = (0..24)
        .map(|index| {
            let decision = if index % 3 == 0 { ROLLBACK } else { COMMIT };
            (decision, broker.call_later(37, &end_header(&half, decision), Body::Empty))
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(decision, answer)| (decision, answer.recv_timeout(PATIENCE).unwrap().code()))
        .collect();
    let winners: std::collections::BTreeSet<i32> = codes.iter().filter(|(_, code)| *code == 0).map(|(decision, _)| *decision).collect();
    assert_eq!(winners.len(), 1, "{codes:?}");
    let won = *winners.first().unwrap();
    assert!(codes.iter().all(|(decision, code)| (*code == 0) == (*decision == won)), "{codes:?}");
    broker.await_max_offset(OP_HALF_TOPIC, 0, 1);
    assert_eq!(keys(&broker, "T", 1).len(), usize::from(won == COMMIT));
}

#[test]
fn what_does_not_fit_is_refused() {
    let broker = TestBroker::start();
    let half = send_half(&broker, "T", "K");
    let plain = half_of(&broker.send(&Send::new("T", "plain")).expect(0), "");
    end(&broker, &Half { offset: 7, ..half.clone() }, COMMIT).refused(1, &["table offset wrong", "7"]);
    end(&broker, &Half { physical_offset: half.physical_offset + 1, ..half.clone() }, COMMIT).refused(1, &["prepared transaction message"]);
    end(&broker, &Half { physical_offset: -1, ..half.clone() }, COMMIT).refused(1, &["prepared transaction message"]);
    end(&broker, &Half { physical_offset: i64::MAX, ..half.clone() }, COMMIT).refused(1, &["prepared transaction message"]);
    end(&broker, &plain, COMMIT).refused(1, &["prepared transaction message", "topic T"]);
    let other = EndTransactionRequest { producer_group: "other".into(), ..end_header(&half, COMMIT) };
    broker.call(37, &other, Body::Empty).refused(1, &["producer group wrong", "other"]);
    broker.call(37, &[("producerGroup", "g")], Body::Empty).refused(1, &["tranStateTableOffset"]);
    end(&broker, &half, COMMIT).expect(0);
    await_keys(&broker, "T", &["K"]);
}

#[test]
fn half_messages_are_checked_as_others() {
    let broker = TestBroker::start();
    broker.send(&Send { body: Vec::new(), ..half_send("T", "K") }).refused(13, &["empty"]);
    broker.send(&half_send(HALF_TOPIC, "K")).refused(16, &["forbidden"]);
    broker.send(&half_send("T", "K").property("TIMER_DELAY_SEC", "3")).refused(13, &["TIMER_DELAY_SEC"]);
    // The properties decide, whatever the code and the flags; PGROUP comes from the header when it is missing.
    let bare = Send { code: 10, ..Send::new("T", "x") }.property("TRAN_MSG", "TRUE").property("REAL_TOPIC", "lie");
    let half = half_of(&broker.send(&bare).expect(0), "");
    let header = EndTransactionRequest { producer_group: "test-producer".into(), ..end_header(&half, COMMIT) };
    broker.call(37, &header, Body::Empty).expect(0);
    assert_eq!(broker.consume("T", 0, 1)[0].message.topic, "T");
    // A committed message that its consumer sends back is a retry.
    let retry = Send { reconsume_times: 1, ..half_send("T", "R") }.property("DELAY", "1");
    broker.send(&Send { sys_flag: 0, ..retry }).expect(0);
    broker.await_max_offset("SCHEDULE_TOPIC_XXXX", 0, 1);

    let refusing = TestBroker::with(|config| config.reject_transaction_message = true);
    refusing.send(&half_send("T", "K")).refused(16, &["transaction", "rejectTransactionMessage"]);
}

#[test]
fn a_delay_begins_with_the_commit() {
    let broker = TestBroker::with(|config| config.store.delay_levels_ms = vec![50, 100]);
    let half = half_of(&broker.send(&half_send("T", "K").property("DELAY", "9")).expect(0), "K");
    broker.await_max_offset(HALF_TOPIC, 0, 1);
    assert_eq!(broker.max_offset("SCHEDULE_TOPIC_XXXX", 1), 0);
    end(&broker, &half, COMMIT).expect(0);
    let message = broker.consume("T", 1, 1).remove(0);
    assert_eq!((property(&message, "DELAY"), property(&message, "UNIQ_KEY")), ("2".to_owned(), "K".to_owned()));
    assert_eq!(broker.max_offset("SCHEDULE_TOPIC_XXXX", 1), 1);
    end(&broker, &half, COMMIT).expect(0);
    await_keys(&broker, "T", &["K"]);
}

#[test]
fn decisions_are_remembered_over_restarts() {
    let mut broker = TestBroker::start();
    let halves: Vec<Half> = (0..4).map(|index| send_half(&broker, "T", &format!("K{index}"))).collect();
    end(&broker, &halves[0], COMMIT).expect(0);
    end(&broker, &halves[1], ROLLBACK).expect(0);
    broker.restart();
    end(&broker, &halves[0], COMMIT).expect(0);
    end(&broker, &halves[0], ROLLBACK).refused(1, &["committed"]);
    end(&broker, &halves[1], COMMIT).refused(1, &["rolled back"]);
    end(&broker, &halves[2], COMMIT).expect(0);
    broker.restart();
    end(&broker, &halves[2], COMMIT).expect(0);
    end(&broker, &halves[3], COMMIT).expect(0);
    await_keys(&broker, "T", &["K0", "K2", "K3"]);
}

#[test]
fn silent_producers_are_asked_until_they_decide() {
    let mut broker = TestBroker::with(checking);
    let producer = Producer::connect(&broker);
    let [first, second, waits] = ["K1", "K2", "W"].map(|key| send_half(&broker, "T", key));
    let question = std::iter::from_fn(|| Some(producer.next())).find(|question| question.half.key == "K1").unwrap();
    assert_eq!((question.half.offset, question.half.physical_offset), (first.offset, first.physical_offset));
    assert_eq!((question.topic.as_str(), question.message.message.topic.as_str(), question.message.queue_id), (HALF_TOPIC, "T", 1));
    assert_eq!(petrel::common::message_id::parse(&question.offset_msg_id).unwrap().1, first.physical_offset);
    assert_eq!((&*question.message.message.body, property(&question.message, "PGROUP")), (&b"body of K1"[..], GROUP.to_owned()));
    producer.end(&broker, &first, COMMIT);
    producer.end(&broker, &second, ROLLBACK);
    broker.await_max_offset(OP_HALF_TOPIC, 0, 2);
    // What was on its way already comes before the third question from here on.
    producer.asked("W", 2);
    assert_eq!(producer.asked("W", 5), ["W"; 5], "no question after a decision");
    await_keys(&broker, "T", &["K1"]);
    until("offset behind what is decided", || system_offset(&broker, HALF_TOPIC) == waits.offset);

    drop(producer);
    broker.restart();
    let producer = Producer::connect(&broker);
    assert_eq!(producer.asked("W", 3), ["W"; 3], "neither after a restart");
    producer.end(&broker, &waits, COMMIT);
    await_keys(&broker, "T", &["K1", "W"]);
    until("all offsets at their ends", || system_offset(&broker, HALF_TOPIC) == 3 && system_offset(&broker, OP_HALF_TOPIC) == 3);
}

#[test]
fn members_of_a_group_are_asked_in_turn_and_only_they() {
    let broker = TestBroker::with(checking);
    let producers = ["a", "b"].map(|id| Producer::connect_as(&broker, id, GROUP));
    let stranger = Producer::connect_as(&broker, "c", "strangers");
    let half = send_half(&broker, "T", "K");
    for producer in &producers {
        producer.asked("K", 2);
    }
    assert!(stranger.questions.is_empty());
    producers[0].end(&broker, &half, COMMIT);
    await_keys(&broker, "T", &["K"]);
}

#[test]
fn waiting_half_messages_hold_up_nobody() {
    let broker = TestBroker::with(checking);
    let immune = half_send("T", "I").property("CHECK_IMMUNITY_TIME_IN_SECONDS", "3600");
    let immune = half_of(&broker.send(&immune).expect(0), "I");
    let absent = Send::new("T", "x").property("TRAN_MSG", "true").property("PGROUP", "absent").property("UNIQ_KEY", "A");
    let absent = half_of(&broker.send(&absent).expect(0), "A");
    let half = send_half(&broker, "T", "K");
    let producer = Producer::connect(&broker);
    assert_eq!(producer.asked("K", 3), ["K"; 3]);
    producer.end(&broker, &half, ROLLBACK);
    broker.await_max_offset(OP_HALF_TOPIC, 0, 1);
    let back = Producer::connect_as(&broker, "back", "absent");
    assert_eq!(back.next().half.offset, absent.offset);
    end(&broker, &immune, COMMIT).expect(0);
    await_keys(&broker, "T", &["I"]);
}

#[test]
fn a_decision_after_its_own_time_is_refused() {
    let broker = TestBroker::with(|config| config.transaction_timeout_ms = 0);
    let mut half = send_half(&broker, "T", "none");
    until("a decision that comes a millisecond late", || {
        half = half_of(&broker.send(&half_send("T", "K").property("CHECK_IMMUNITY_TIME_IN_SECONDS", "0")).expect(0), "K");
        end(&broker, &half, ROLLBACK).code() == 604
    });
    let header = EndTransactionRequest { from_transaction_check: true, ..end_header(&half, COMMIT) };
    broker.call(37, &header, Body::Empty).expect(0);
    await_keys(&broker, "T", &["K"]);
}

#[test]
fn who_never_decides_is_put_aside() {
    let mut broker = TestBroker::with(|config| {
        checking(config);
        config.transaction_check_max = 3;
    });
    let producer = Producer::connect(&broker);
    let half = send_half(&broker, "T", "K");
    until("the topic of those put aside", || broker.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0) == 1);
    let aside = broker.consume(TRANS_CHECK_MAX_TIME_TOPIC, 0, 1).remove(0);
    assert_eq!(
        (property(&aside, "UNIQ_KEY"), property(&aside, "REAL_TOPIC"), &*aside.message.body),
        ("K".into(), "T".into(), &b"body of K"[..])
    );
    assert_eq!(producer.questions.try_iter().count(), 3);
    until("half offset", || system_offset(&broker, HALF_TOPIC) == 1);
    broker.restart();
    // Better late than never, as in the reference: and only once.
    end(&broker, &half, COMMIT).expect(0);
    end(&broker, &half, COMMIT).expect(0);
    end(&broker, &half, ROLLBACK).refused(1, &["committed"]);
    await_keys(&broker, "T", &["K"]);
    assert_eq!(broker.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0), 1);
}

type Pairs = Vec<(&'static str, &'static str)>;
type Stored = (&'static str, i32, Pairs, &'static str);

/// A store as another broker, or a crash, left it: topic, system flags, properties, body of each record.
fn store_with(root: &Path, records: &[Stored]) -> Vec<Half> {
    let mut config = BrokerConfig::new(root).store;
    config.commit_log_file_size = 32 << 20;
    config.index_slots = 5_000;
    config.index_entries = 20_000;
    let store = MessageStore::open(config, RealFs::shared(), Clock::System).unwrap();
    let host = "127.0.0.1:10911".parse().unwrap();
    let mut halves = Vec::<Half>::new();
    for (topic, sys_flag, pairs, body) in records {
        let mut text = String::new();
        pairs.iter().for_each(|(name, value)| properties::push(&mut text, name, value));
        let key = pairs.iter().find(|(name, _)| *name == "UNIQ_KEY").map_or("", |(_, key)| key).to_owned();
        let prepared = halves.iter().find(|half| *sys_flag == COMMIT && half.key == key);
        let draft = Draft {
            topic,
            queue_id: if topic.starts_with("RMQ_SYS") { 0 } else { 1 },
            flag: 0,
            sys_flag: *sys_flag,
            born_timestamp: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: prepared.map_or(0, |half| half.physical_offset),
            body: body.as_bytes(),
            properties: text.as_bytes(),
        };
        let appended = store.put(&draft).unwrap();
        halves.push(Half { offset: appended.queue_offset, physical_offset: appended.physical_offset, key });
    }
    assert!(store.shutdown(PATIENCE).clean);
    halves
}

fn half_properties(key: &'static str) -> Pairs {
    vec![("REAL_TOPIC", "T"), ("REAL_QID", "1"), ("PGROUP", GROUP), ("UNIQ_KEY", key), ("TRAN_MSG", "true")]
}

#[test]
fn a_real_message_without_its_op_message_is_found() {
    for index in [true, false] {
        let mut halves = Vec::new();
        let broker = TestBroker::with(|config| {
            checking(config);
            config.store.index_enable = index;
            let lost = (HALF_TOPIC, 0, half_properties("K"), "half");
            let real = ("T", COMMIT, half_properties("K"), "half");
            halves = store_with(&config.store.root, &[lost, real, (HALF_TOPIC, 0, half_properties("W"), "half")]);
        });
        broker.send(&Send::new("T", "creates the topic")).expect(0);
        let producer = Producer::connect(&broker);
        assert_eq!(producer.asked("W", 3), ["W"; 3], "no question about what is committed");
        end(&broker, &halves[0], COMMIT).expect(0);
        end(&broker, &halves[0], ROLLBACK).refused(1, &["committed"]);
        await_keys(&broker, "T", &["K"]);
        broker.await_max_offset(OP_HALF_TOPIC, 0, 1);
    }
}

#[test]
fn op_messages_of_the_reference_are_heeded() {
    let mut halves = Vec::new();
    let broker = TestBroker::with(|config| {
        checking(config);
        let half = |key| (HALF_TOPIC, 0, half_properties(key), "half");
        let real = ("T", COMMIT, half_properties("K1"), "half");
        let op = |body| (OP_HALF_TOPIC, 0, vec![("TAGS", "d"), ("UNIQ_KEY", "other")], body);
        let records = [half("K0"), half("K1"), half("K2"), half("W"), real, op("1,2,"), op("0")];
        halves = store_with(&config.store.root, &records);
    });
    broker.send(&Send::new("T", "creates the topic")).expect(0);
    let producer = Producer::connect(&broker);
    assert_eq!(producer.asked("W", 3), ["W"; 3]);
    end(&broker, &halves[1], COMMIT).expect(0);
    end(&broker, &halves[1], ROLLBACK).refused(1, &["committed"]);
    for rolled_back in [0, 2] {
        end(&broker, &halves[rolled_back], ROLLBACK).expect(0);
        end(&broker, &halves[rolled_back], COMMIT).refused(1, &["rolled back"]);
    }
    end(&broker, &halves[3], COMMIT).expect(0);
    await_keys(&broker, "T", &["K1", "W"]);
    until("offsets", || system_offset(&broker, HALF_TOPIC) == 4 && system_offset(&broker, OP_HALF_TOPIC) == 3);
}

#[test]
fn poisoned_half_messages_are_put_aside() {
    let mut halves = Vec::new();
    let broker = TestBroker::with(|config| {
        checking(config);
        let poisoned = |name: &str| half_properties("P").into_iter().filter(|(other, _)| *other != name).collect::<Vec<_>>();
        let mut records: Vec<_> = ["REAL_TOPIC", "REAL_QID", "PGROUP"].map(|name| (HALF_TOPIC, 0, poisoned(name), "poison")).to_vec();
        records.push((HALF_TOPIC, 0, half_properties("K"), "half"));
        halves = store_with(&config.store.root, &records);
    });
    broker.send(&Send::new("T", "creates the topic")).expect(0);
    let producer = Producer::connect(&broker);
    assert_eq!(producer.next().half.key, "K");
    until("poison aside", || broker.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0) == 3);
    until("offset behind the poison", || system_offset(&broker, HALF_TOPIC) == 3);
    for poisoned in &halves[..3] {
        end(&broker, poisoned, COMMIT).refused(1, &["prepared transaction message"]);
    }
    producer.end(&broker, &halves[3], COMMIT);
    await_keys(&broker, "T", &["K"]);
    assert_eq!(broker.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0), 3);
}
