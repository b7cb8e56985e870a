//! One broker over TCP: send, pull, hold, delay, send-back, offsets, bad input, restart.

use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, unbounded};
use petrel::common::message_id;
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::remoting::command::{Body, OwnedCommand};
use petrel::store::FlushDiskType;

use crate::support::{Answer, PATIENCE, Pull, Send, TestBroker, batch_body, until};

fn bodies(messages: &[petrel::common::message::MessageExt]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8(message.message.body.clone()).unwrap()).collect()
}

#[test]
fn a_message_goes_in_and_comes_out() {
    let broker = TestBroker::start();
    for code in [10, 310] {
        let topic = format!("T{code}");
        let send = Send { code, ..Send::new(&topic, "héllo").queue(1).property("TAGS", "a").property("WAIT", "true") };
        let answer = broker.send(&send).expect(0);
        assert_eq!((answer.number("queueId"), answer.number("queueOffset")), (1, 0));
        assert_eq!((answer.field("MSG_REGION").as_str(), answer.field("TRACE_ON").as_str()), ("DefaultRegion", "true"));
        let messages = broker.consume(&topic, 1, 1);
        let message = &messages[0];
        assert_eq!((message.message.body.as_slice(), message.message.flag), ("héllo".as_bytes(), 7));
        assert_eq!((message.queue_id, message.queue_offset, message.born_timestamp), (1, 0, 1_700_000_000_000));
        assert_eq!(message.offset_message_id(), answer.field("msgId"));
        let properties = &message.message.properties;
        assert_eq!(properties["TAGS"], "a");
        assert_eq!(properties["CLUSTER"], "DefaultCluster");
        assert_eq!(properties["UNIQ_KEY"].len(), 32);
        assert!(!properties.contains_key("WAIT"));
        let (host, _) = message_id::parse(&answer.field("msgId")).unwrap();
        assert_eq!(host.to_string(), broker.address());
        assert_eq!(message.born_host.ip().to_string(), "127.0.0.1");
    }
}

#[test]
fn the_unique_key_is_answered_and_kept() {
    let broker = TestBroker::start();
    let sent = Send::new("T", "x").property("UNIQ_KEY", "0A0B").property("KEYS", "k1 k2").property("TAGS", "red");
    let answer = broker.send(&sent).expect(0);
    assert_eq!(answer.field("transactionId"), "0A0B");
    assert_eq!(broker.consume("T", 0, 1)[0].message_id(), "0A0B");
    // By key, by unique key, by tags, by offset id.
    let query = |key: &str, kind: (&'static str, &'static str)| {
        let fields = [("topic", "T"), ("key", key), ("maxNum", "10"), ("beginTimestamp", "0"), ("endTimestamp", "9999999999999"), kind];
        broker.call(12, &fields, Body::Empty)
    };
    let (by_key, by_unique_key, by_tags) = (("indexType", "K"), ("_UNIQUE_KEY_QUERY", "true"), ("indexType", "T"));
    for (key, kind) in [("k1", by_key), ("k2", ("indexType", "")), ("k1", ("indexType", "Z")), ("0A0B", by_unique_key), ("red", by_tags)] {
        until("the index", || query(key, kind).code() == 0);
        let answer = query(key, kind);
        assert_eq!(bodies(&answer.messages()), ["x"]);
        assert!(answer.number("indexLastUpdateTimestamp") > 0);
    }
    for (key, kind) in [("k3", by_key), ("red", by_key), ("red", by_unique_key), ("k1", by_tags)] {
        query(key, kind).refused(22, &["can not find message"]);
    }
    let (_, offset) = message_id::parse(&answer.field("msgId")).unwrap();
    let view = broker.call(33, &[("offset", offset.to_string().as_str())], Body::Empty).expect(0);
    assert_eq!(bodies(&view.messages()), ["x"]);
    broker.call(33, &[("offset", "123456789")], Body::Empty).refused(1, &["123456789"]);
}

#[test]
fn every_flush_mode_keeps_order_under_many_in_flight() {
    for mode in [FlushDiskType::Sync, FlushDiskType::Async] {
        let broker = TestBroker::with(|config| config.store.flush_disk_type = mode);
        broker.send(&Send::new("T", "first")).expect(0);
        let answers: Vec<_> = (0..500).map(|n| broker.send_later(&Send::new("T", n.to_string()))).collect();
        for (n, answer) in answers.iter().enumerate() {
            let answer = answer.recv_timeout(PATIENCE).unwrap().expect(0);
            assert_eq!(answer.number("queueOffset"), n as i64 + 1);
        }
        broker.send_oneway(&Send::new("T", "oneway"));
        broker.send(&Send::new("T", "hurry").property("WAIT", "false")).expect(0);
        let messages = broker.consume("T", 0, 503);
        let mut expected: Vec<String> = (0..500).map(|n| n.to_string()).collect();
        expected.insert(0, "first".to_owned());
        expected.extend(["oneway".to_owned(), "hurry".to_owned()]);
        assert_eq!(bodies(&messages), expected);
        assert!(messages.iter().enumerate().all(|(n, message)| message.queue_offset == n as i64));
    }
}

#[test]
fn a_topic_is_created_with_the_senders_queues() {
    let broker = TestBroker::start();
    let answer = broker.send(&Send::new("T", "x").queue(-1)).expect(0);
    assert!((0..4).contains(&answer.number("queueId")));
    broker.send(&Send::new("T", "x").queue(4)).refused(29, &["queueId[4]", "4 queues", "127.0.0.1"]);
    let strict = TestBroker::with(|config| config.auto_create_topic = false);
    strict.send(&Send::new("T", "x")).refused(17, &["topic[T] not exist, apply first please!", "autoCreateTopicEnable=false"]);
}

#[test]
fn batches() {
    let broker = TestBroker::start();
    let entries: Vec<(&[u8], &str)> = vec![(b"one", "UNIQ_KEY\u{1}U1\u{2}TAGS\u{1}a\u{2}"), (b"two", ""), (b"", "K\u{1}v\u{2}")];
    let send = Send { code: 320, batch: true, ..Send::new("T", batch_body(&entries)).queue(2) };
    let answer = broker.send(&send).expect(0);
    let ids: Vec<(_, i64)> = answer.field("msgId").split(',').map(|id| message_id::parse(id).unwrap()).collect();
    assert_eq!(ids.len(), 3);
    broker.send(&send).expect(0);
    let messages = broker.consume("T", 2, 6);
    // An empty entry is stored as the reference stores it, though an empty message that comes by itself is refused.
    assert_eq!(bodies(&messages), ["one", "two", "", "one", "two", ""]);
    assert_eq!(
        messages.iter().map(|message| message.physical_offset).take(3).collect::<Vec<_>>(),
        ids.iter().map(|id| id.1).collect::<Vec<_>>()
    );
    assert_eq!(messages[0].message.properties["UNIQ_KEY"], "U1");
    assert_eq!(messages[1].message.properties["UNIQ_KEY"].len(), 32);
    assert_eq!((messages[2].message.properties["K"].as_str(), messages[2].message.flag), ("v", 5));
    assert!(messages.iter().enumerate().all(|(n, message)| message.queue_offset == n as i64));
}

/// The C++ client compresses a batch as a whole; its messages arrive as they were.
#[test]
fn a_compressed_batch_is_unpacked() {
    use std::io::Write;
    let broker = TestBroker::start();
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&batch_body(&[(b"one", "TAGS\u{1}a\u{2}"), (b"two", "")])).unwrap();
    let packed = packed.finish().unwrap();
    broker.send(&Send { code: 10, batch: true, sys_flag: 1, ..Send::new("T", packed.as_slice()) }).expect(0);
    let messages = broker.consume("T", 0, 2);
    assert_eq!(bodies(&messages), ["one", "two"]);
    assert!(messages.iter().all(|message| message.sys_flag & 1 == 0));
}

#[test]
fn bad_batches_store_nothing() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "x")).expect(0);
    let good = batch_body(&[(b"one", ""), (b"two", "")]);
    let batch = |body: &[u8]| Send { code: 320, batch: true, ..Send::new("T", body) };
    for cut in (0..good.len()).filter(|cut| *cut != 25) {
        let answer = broker.send(&batch(&good[..cut]));
        answer.refused(13, &["batch"]);
    }
    broker.send(&Send { sys_flag: 1, ..batch(&good) }).refused(13, &["compressed", "no zlib stream"]);
    broker.send(&Send { sys_flag: 0x101, ..batch(&good) }).refused(13, &["compressed", "type 1", "sysFlag 257"]);
    broker.send(&batch(&good).property("DELAY", "3")).refused(13, &["DELAY 3"]);
    broker.send(&batch(&batch_body(&[(b"one", ""), (b"two", "DELAY\u{1}1\u{2}")]))).refused(13, &["entry 1", "delay"]);
    broker.send(&Send { sys_flag: 4, ..batch(&good) }).refused(13, &["transaction"]);
    let large = vec![b'x'; 3 << 20];
    broker.send(&batch(&batch_body(&[(&large, ""), (&large, "")]))).refused(13, &["6291500", "4194304", "maxMessageSize"]);
    broker.send(&batch(&good)).expect(0);
    assert_eq!(bodies(&broker.consume("T", 0, 3)), ["x", "one", "two"]);
    broker.await_max_offset("T", 0, 3);
}

#[test]
fn bad_sends_get_their_code_and_the_numbers() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "x")).expect(0);
    broker.send(&Send::new("a b", "x")).refused(29, &["a b", "' '"]);
    broker.send(&Send::new(&"t".repeat(127), "x")).expect(0);
    broker.send(&Send::new(&"t".repeat(128), "x")).refused(29, &["128", "127"]);
    broker.send(&Send::new("", "x")).refused(29, &["blank"]);
    broker.send(&Send::new("SCHEDULE_TOPIC_XXXX", "x")).refused(16, &["SCHEDULE_TOPIC_XXXX"]);
    broker.send(&Send::new("T", "x").property("DELAY", "soon")).refused(13, &["DELAY", "soon"]);
    broker.send(&Send::new("T", "x").property("TIMER_DELAY_SEC", "5")).refused(13, &["TIMER_DELAY_SEC", "not served"]);
    broker.send(&Send { sys_flag: 4, ..Send::new("T", "x") }).refused(13, &["sysFlag 4"]);
    broker.send(&Send { sys_flag: 128, ..Send::new("T", "x") }).refused(13, &["sysFlag 128", "BatchCQ"]);
    broker.send(&Send::new("T", "")).refused(13, &["empty"]);
    broker.send(&Send::new("T", vec![1; 4 << 20])).expect(0);
    broker.send(&Send::new("T", vec![1; (4 << 20) + 1])).refused(13, &["4194305", "4194304"]);
    broker.call(310, &[("b", "T"), ("e", "x"), ("f", "0"), ("g", "0"), ("h", "0")], Body::Empty).refused(1, &["queueId", "\"x\""]);
    broker.call(310, &[("e", "0"), ("f", "0"), ("g", "0"), ("h", "0")], Body::Empty).refused(1, &["<b>", "null"]);
    broker.call(9_999, &(), Body::Empty).refused(3, &["9999"]);
    broker.call(-5, &(), Body::Empty).refused(3, &["-5"]);
}

#[test]
fn the_properties_limit_counts_what_is_stored() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "x").property("UNIQ_KEY", "U")).expect(0);
    let additions: usize = [("MSG_REGION", "DefaultRegion"), ("TRACE_ON", "true"), ("CLUSTER", "DefaultCluster")]
        .iter()
        .map(|(k, v)| k.len() + v.len() + 2)
        .sum();
    let room = 32_767 - additions - "UNIQ_KEY\u{1}U\u{2}K\u{1}\u{2}".len();
    broker.send(&Send::new("T", "fits").property("UNIQ_KEY", "U").property("K", "v".repeat(room))).expect(0);
    let too_long = Send::new("T", "x").property("UNIQ_KEY", "U").property("K", "v".repeat(room + 1));
    broker.send(&too_long).refused(13, &["32768", "32767", &(32_768 - additions).to_string()]);
    let messages = broker.consume("T", 0, 2);
    assert_eq!(messages[1].message.properties["K"].len(), room);
}

#[test]
fn look_ups_at_every_place_of_a_queue() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0").property("TAGS", "a")).expect(0);
    for n in 1..5 {
        broker.send(&Send::new("T", n.to_string()).property("TAGS", if n % 2 == 0 { "a" } else { "b" })).expect(0);
    }
    broker.await_max_offset("T", 0, 5);
    let answer = broker.pull(&Pull::new("T", 0, 2)).expect(0);
    assert_eq!(bodies(&answer.messages()), ["2", "3", "4"]);
    assert_eq!((answer.number("nextBeginOffset"), answer.number("minOffset"), answer.number("maxOffset")), (5, 0, 5));
    assert_eq!(answer.remark(), "FOUND");
    assert_eq!(bodies(&broker.pull(&Pull { max: 2, ..Pull::new("T", 0, 0) }).expect(0).messages()), ["0", "1"]);
    assert_eq!(bodies(&broker.pull(&Pull { tags: "a", ..Pull::new("T", 0, 0) }).expect(0).messages()), ["0", "2", "4"]);
    assert_eq!(bodies(&broker.pull(&Pull { tags: "x || b", ..Pull::new("T", 0, 0) }).expect(0).messages()), ["1", "3"]);
    let filtered = broker.pull(&Pull { tags: "none", ..Pull::new("T", 0, 0) }).expect(20);
    assert_eq!(filtered.number("nextBeginOffset"), 5);
    assert_eq!(broker.pull(&Pull::new("T", 0, 5)).expect(19).number("nextBeginOffset"), 5);
    assert_eq!(broker.pull(&Pull::new("T", 0, 9)).expect(21).number("nextBeginOffset"), 5);
    broker.pull(&Pull::new("T", 3, 0)).expect(19);
    broker.pull(&Pull::new("T", 3, 1)).expect(21);
    // Lite pull is the same; the VIP port serves sends but no pulls.
    let lite = broker.call(361, &Pull::new("T", 0, 0).header(), Body::Empty).expect(0);
    assert_eq!(lite.messages().len(), 5);
    broker.call_at(&broker.fast_address(), 11, &Pull::new("T", 0, 0).header(), Body::Empty).refused(3, &["11"]);
    broker.call_at(&broker.fast_address(), 30, &[("topic", "T"), ("queueId", "0")], Body::Empty).expect(0);
}

#[test]
fn refused_pulls() {
    let broker = TestBroker::with(|config| config.auto_create_subscription_group = false);
    broker.send(&Send::new("T", "x")).expect(0);
    broker.pull(&Pull::new("T", 0, 0)).refused(26, &["test-group"]);
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "x")).expect(0);
    broker.pull(&Pull::new("U", 0, 0)).refused(17, &["topic[U]"]);
    broker.pull(&Pull::new("T", 4, 0)).refused(29, &["queueId[4]", "[4]"]);
    broker.pull(&Pull::new("T", -1, 0)).refused(29, &["queueId[-1]"]);
    broker.pull(&Pull { tags: "||", ..Pull::new("T", 0, 0) }).refused(23, &["parse the consumer's subscription failed"]);
    let mut unknown = Pull::new("T", 0, 0).header();
    unknown.sys_flag = 0;
    broker.call(11, &unknown, Body::Empty).refused(24, &["test-group"]);
    broker.call(11, &[("topic", "T")], Body::Empty).refused(1, &["null"]);
}

#[test]
fn a_held_pull_wakes_for_its_message() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let any = broker.pull_later(&Pull { suspend_ms: 15_000, ..Pull::new("T", 0, 1) });
    let other_queue = broker.pull_later(&Pull { suspend_ms: 15_000, ..Pull::new("T", 1, 0) });
    let tagged = broker.pull_later(&Pull { suspend_ms: 15_000, tags: "b", ..Pull::new("T", 0, 1) });
    assert!(any.recv_timeout(Duration::from_millis(100)).is_err(), "held");
    broker.send(&Send::new("T", "1").property("TAGS", "a")).expect(0);
    let answer = any.recv_timeout(PATIENCE).unwrap().expect(0);
    assert_eq!((bodies(&answer.messages()), answer.number("nextBeginOffset")), (vec!["1".to_owned()], 2));
    broker.send(&Send::new("T", "2").property("TAGS", "b")).expect(0);
    assert_eq!(bodies(&tagged.recv_timeout(PATIENCE).unwrap().expect(0).messages()), ["2"]);
    assert!(other_queue.try_recv().is_err(), "still held");
    broker.send(&Send::new("T", "3").queue(1)).expect(0);
    assert_eq!(bodies(&other_queue.recv_timeout(PATIENCE).unwrap().expect(0).messages()), ["3"]);
}

#[test]
fn a_held_pull_ends_with_its_time() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let start = Instant::now();
    let answer = broker.pull(&Pull { suspend_ms: 300, ..Pull::new("T", 0, 1) }).expect(19);
    assert!(start.elapsed() >= Duration::from_millis(290), "after {:?}", start.elapsed());
    assert_eq!((answer.number("nextBeginOffset"), answer.number("maxOffset")), (1, 1));
    // What does not match moves a filtered pull on when its time is up.
    let filtered = broker.pull_later(&Pull { suspend_ms: 400, tags: "b", ..Pull::new("T", 0, 1) });
    broker.send(&Send::new("T", "1").property("TAGS", "a")).expect(0);
    assert_eq!(filtered.recv_timeout(PATIENCE).unwrap().expect(20).number("nextBeginOffset"), 2);
}

#[test]
fn no_wake_up_is_lost() {
    let broker = TestBroker::with(|config| config.store.flush_disk_type = FlushDiskType::Async);
    broker.send(&Send::new("T", "start")).expect(0);
    broker.await_max_offset("T", 0, 1);
    // Pull and send race; a pull that missed its message would sit until its time is up.
    let start = Instant::now();
    for offset in 1..400 {
        let pulled = broker.pull_later(&Pull { suspend_ms: 15_000, ..Pull::new("T", 0, offset) });
        broker.send_oneway(&Send::new("T", offset.to_string()));
        assert_eq!(bodies(&pulled.recv_timeout(PATIENCE).unwrap().expect(0).messages()), [offset.to_string()]);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

#[test]
fn stopping_answers_held_pulls() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let held = broker.pull_later(&Pull { suspend_ms: 15_000, ..Pull::new("T", 0, 1) });
    assert!(held.recv_timeout(Duration::from_millis(50)).is_err());
    let start = Instant::now();
    assert_eq!(broker.broker.as_ref().unwrap().shutdown(PATIENCE), Vec::<String>::new());
    held.recv_timeout(PATIENCE).unwrap().expect(19);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(broker.broker.as_ref().unwrap().shutdown(PATIENCE), Vec::<String>::new());
}

#[test]
fn delay_level_one_takes_a_second() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "now")).expect(0);
    let start = Instant::now();
    let late = broker.send(&Send::new("T", "late").queue(2).property("DELAY", "1").property("TAGS", "a")).expect(0);
    assert_eq!(late.number("queueId"), 2);
    broker.send(&Send::new("T", "later").queue(2).property("DELAY", "1")).expect(0);
    let messages = broker.consume("T", 2, 2);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(950) && took < Duration::from_secs(4), "took {took:?}");
    assert_eq!(bodies(&messages), ["late", "later"]);
    let properties = &messages[0].message.properties;
    assert_eq!((properties["DELAY"].as_str(), properties["REAL_TOPIC"].as_str(), properties["REAL_QID"].as_str()), ("1", "T", "2"));
    assert_eq!((messages[0].born_timestamp, messages[0].queue_id), (1_700_000_000_000, 2));
    let pulled = broker.pull(&Pull { tags: "a", ..Pull::new("T", 2, 0) }).expect(0);
    assert_eq!(bodies(&pulled.messages()), ["late"]);
}

#[test]
fn levels_beyond_the_highest_are_the_highest() {
    let broker = TestBroker::with(|config| config.store.delay_levels_ms = vec![3_600_000, 200]);
    broker.send(&Send::new("T", "x").property("DELAY", "99")).expect(0);
    assert_eq!(broker.consume("T", 0, 1)[0].message.properties["DELAY"], "2");
}

#[test]
fn delayed_messages_survive_a_restart_and_come_once() {
    for mode in [FlushDiskType::Sync, FlushDiskType::Async] {
        let mut broker = TestBroker::with(|config| {
            config.store.delay_levels_ms = vec![100, 1_500];
            config.store.flush_disk_type = mode;
        });
        broker.send(&Send::new("T", "early").property("DELAY", "1")).expect(0);
        assert_eq!(bodies(&broker.consume("T", 0, 1)), ["early"]);
        broker.send(&Send::new("T", "late").property("DELAY", "2")).expect(0);
        broker.restart();
        assert_eq!(bodies(&broker.consume("T", 0, 2)), ["early", "late"]);
        let offsets = String::from_utf8(broker.call(45, &(), Body::Empty).expect(0).command.view().body.to_vec()).unwrap();
        assert!(offsets.contains("1:1"), "{offsets}");
        broker.restart();
        broker.send(&Send::new("T", "end")).expect(0);
        assert_eq!(bodies(&broker.consume("T", 0, 3)), ["early", "late", "end"]);
    }
}

fn send_back(broker: &TestBroker, offset: i64, level: i32, max: i32) -> Answer {
    let (offset, level, max) = (offset.to_string(), level.to_string(), max.to_string());
    broker.call(36, &[("offset", offset.as_str()), ("group", "G"), ("delayLevel", &level), ("maxReconsumeTimes", &max)], Body::Empty)
}

#[test]
fn a_message_sent_back_is_retried_and_dies() {
    let broker = TestBroker::with(|config| config.store.delay_levels_ms = vec![100; 18]);
    let answer = broker.send(&Send::new("T", "x").property("TAGS", "a").property("UNIQ_KEY", "U")).expect(0);
    let (_, offset) = message_id::parse(&answer.field("msgId")).unwrap();
    broker.await_max_offset("T", 0, 1);
    send_back(&broker, offset, 0, 2).expect(0);
    let first = broker.consume("%RETRY%G", 0, 1).remove(0);
    assert_eq!((first.reconsume_times, first.message.body.as_slice()), (1, b"x".as_slice()));
    let properties = &first.message.properties;
    assert_eq!((properties["RETRY_TOPIC"].as_str(), properties["UNIQ_KEY"].as_str(), properties["DELAY"].as_str()), ("T", "U", "3"));
    assert_eq!(properties["ORIGIN_MESSAGE_ID"], answer.field("msgId"));
    assert_eq!(first.born_timestamp, 1_700_000_000_000);
    send_back(&broker, first.physical_offset, 0, 2).expect(0);
    let second = broker.consume("%RETRY%G", 0, 2).remove(1);
    assert_eq!((second.reconsume_times, second.message.properties["DELAY"].as_str()), (2, "4"));
    assert_eq!(second.message.properties["ORIGIN_MESSAGE_ID"], answer.field("msgId"));
    send_back(&broker, second.physical_offset, 0, 2).expect(0);
    let dead = broker.consume("%DLQ%G", 0, 1).remove(0);
    assert_eq!((dead.reconsume_times, dead.message.properties["DELAY"].as_str()), (3, "0"));
    assert_eq!(dead.message.properties["RETRY_TOPIC"], "T");
    // At once, by the consumer's wish.
    send_back(&broker, offset, -1, 16).expect(0);
    assert_eq!(broker.consume("%DLQ%G", 0, 2)[1].message.body, b"x");
    send_back(&broker, 999_999, 0, 16).refused(1, &["999999"]);
    broker.call(36, &[("group", "G"), ("delayLevel", "0")], Body::Empty).refused(1, &["offset"]);
}

#[test]
fn a_retry_that_a_client_sends_itself_dies_too() {
    let broker = TestBroker::start();
    let retry = |times: i32| Send { reconsume_times: times, max_reconsume_times: Some(3), ..Send::new("%RETRY%G", times.to_string()) };
    broker.send(&retry(3)).expect(0);
    broker.send(&retry(4).property("DELAY", "5")).expect(0);
    assert_eq!(bodies(&broker.consume("%RETRY%G", 0, 1)), ["3"]);
    let dead = broker.consume("%DLQ%G", 0, 1).remove(0);
    assert_eq!((dead.message.body.as_slice(), dead.message.properties["DELAY"].as_str()), (b"4".as_slice(), "0"));
}

#[test]
fn offsets_of_queues_and_groups() {
    let broker = TestBroker::start();
    for n in 0..3 {
        broker.send(&Send::new("T", n.to_string())).expect(0);
    }
    broker.await_max_offset("T", 0, 3);
    let queue = [("topic", "T"), ("queueId", "0")];
    assert_eq!(broker.call(31, &queue, Body::Empty).expect(0).number("offset"), 0);
    assert!(broker.call(32, &queue, Body::Empty).expect(0).number("timestamp") > 1_700_000_000_000);
    assert_eq!(broker.call(32, &[("topic", "T"), ("queueId", "3")], Body::Empty).expect(0).number("timestamp"), -1);
    let search =
        |time: &str| broker.call(29, &[("topic", "T"), ("queueId", "0"), ("timestamp", time)], Body::Empty).expect(0).number("offset");
    assert_eq!((search("0"), search("99999999999999")), (0, 3));
    let of_group = |group: &str, more: &[(&str, &str)]| {
        let mut fields = vec![("consumerGroup", group), ("topic", "T"), ("queueId", "0")];
        fields.extend_from_slice(more);
        broker.call(14, fields.as_slice(), Body::Empty)
    };
    // A young queue that memory holds is read from its start; with setZeroIfNotFound=false the group decides.
    assert_eq!(of_group("new", &[]).expect(0).number("offset"), 0);
    of_group("new", &[("setZeroIfNotFound", "false")]).refused(22, &["Not found"]);
    broker.call(14, &[("consumerGroup", "new"), ("topic", "T"), ("queueId", "2")], Body::Empty).refused(22, &["Not found"]);
    let commit = |group: &str, topic: &str, offset: &str| {
        broker.call(15, &[("consumerGroup", group), ("topic", topic), ("queueId", "0"), ("commitOffset", offset)], Body::Empty)
    };
    commit("nobody", "T", "1").refused(26, &["Group nobody not exist!"]);
    broker.pull(&Pull::new("T", 0, 0)).expect(0); // makes the group
    commit("test-group", "U", "1").refused(17, &["Topic U not exist!"]);
    commit("test-group", "T", "2").expect(0);
    assert_eq!(of_group("test-group", &[]).expect(0).number("offset"), 2);
    commit("test-group", "T", "1").expect(0);
    assert_eq!(of_group("test-group", &[]).expect(0).number("offset"), 1);
    broker.call(15, &[("consumerGroup", "test-group"), ("topic", "T"), ("queueId", "0")], Body::Empty).refused(29, &["commitOffset"]);
    // A pull commits what came along.
    let mut header = Pull::new("T", 0, 3).header();
    header.sys_flag |= petrel::common::sysflag::PULL_COMMIT_OFFSET;
    header.commit_offset = 3;
    broker.call(11, &header, Body::Empty).expect(19);
    assert_eq!(of_group("test-group", &[]).expect(0).number("offset"), 3);
}

#[test]
fn a_restart_keeps_everything() {
    let mut broker = TestBroker::start();
    for n in 0..10 {
        broker.send(&Send::new("T", n.to_string()).queue(n % 4)).expect(0);
    }
    broker.pull(&Pull::new("T", 0, 0));
    broker.call(15, &[("consumerGroup", "test-group"), ("topic", "T"), ("queueId", "0"), ("commitOffset", "2")], Body::Empty).expect(0);
    for round in 1..=3 {
        broker.restart();
        for queue_id in 0..4 {
            let old = if queue_id < 2 { 3 } else { 2 };
            let expected = old + if queue_id == 0 { round - 1 } else { 0 };
            assert_eq!(broker.consume("T", queue_id, expected).len(), expected);
            assert_eq!(broker.max_offset("T", queue_id), expected as i64);
        }
        let committed = broker.call(14, &[("consumerGroup", "test-group"), ("topic", "T"), ("queueId", "0")], Body::Empty).expect(0);
        assert_eq!(committed.number("offset"), 2);
        let answer = broker.send(&Send::new("T", format!("round {round}"))).expect(0);
        assert_eq!(answer.number("queueOffset"), 2 + round as i64);
        broker.await_max_offset("T", 0, 3 + round as i64);
    }
}

#[test]
fn a_second_broker_on_the_same_folder_is_refused() {
    let broker = TestBroker::start();
    let Err(error) = petrel::broker::broker::Broker::start(broker.config.clone(), petrel::runtime::clock::Clock::System) else {
        panic!("two brokers on one folder");
    };
    assert!(error.to_string().contains("in use"), "{error}");
    broker.send(&Send::new("T", "x")).expect(0);
}

#[test]
fn what_was_answered_before_a_stop_is_there_after_it() {
    for mode in [FlushDiskType::Sync, FlushDiskType::Async] {
        let mut broker = TestBroker::with(|config| config.store.flush_disk_type = mode);
        broker.send(&Send::new("T", "start")).expect(0);
        let (sender, outcomes) = crossbeam::channel::unbounded();
        for n in 0..2_000 {
            let sender = sender.clone();
            let done = Box::new(move |result: Result<_, _>| {
                let stored = result.is_ok_and(|command| Answer { command }.code() == 0);
                sender.send((n, stored)).unwrap();
            });
            let send = Send::new("T", n.to_string());
            broker.client.invoke_async(&broker.address(), send.code, &send.header(), send.body.clone().into(), PATIENCE, done);
            if n == 1_000 {
                outcomes.recv_timeout(PATIENCE).unwrap(); // it is under way
            }
        }
        broker.restart();
        let mut stored: Vec<String> =
            (1..2_000).map(|_| outcomes.recv_timeout(PATIENCE).unwrap()).filter(|o| o.1).map(|o| o.0.to_string()).collect();
        stored.push("start".to_owned());
        let end = broker.max_offset("T", 0);
        let there = bodies(&broker.consume("T", 0, usize::try_from(end).unwrap()));
        for body in stored {
            assert!(there.contains(&body), "{body} was answered and is gone ({mode:?})");
        }
    }
}

#[test]
fn ipv6_clients_and_names() {
    let Ok(_) = std::net::TcpListener::bind("[::1]:0") else { return }; // no IPv6 here
    let broker = TestBroker::with(|config| config.bind_address = "::1".parse().unwrap());
    let answer = broker.send(&Send::new("T", "x")).expect(0);
    assert_eq!(answer.field("msgId").len(), 56);
    let message = broker.consume("T", 0, 1).remove(0);
    assert!(message.store_host.is_ipv6() && message.born_host.is_ipv6());
    assert_eq!(message.offset_message_id(), answer.field("msgId"));
}

#[test]
fn a_consume_queue_is_shown() {
    let broker = TestBroker::start();
    let sent = broker.send(&Send::new("T", "x").property("TAGS", "TagA")).expect(0);
    broker.send(&Send::new("T", "y")).expect(0);
    broker.await_max_offset("T", 0, 2);
    let show = |queue: &str, index: &str| {
        broker.call(321, &[("topic", "T"), ("queueId", queue), ("index", index), ("count", "10"), ("consumerGroup", "G")], Body::Empty)
    };
    let answer = show("0", "0").expect(0);
    let body: serde_json::Value = serde_json::from_slice(answer.command.view().body).unwrap();
    assert_eq!((&body["minQueueIndex"], &body["maxQueueIndex"]), (&0.into(), &2.into()));
    let units = body["queueData"].as_array().unwrap();
    assert_eq!(units.len(), 2);
    assert_eq!(units[0]["tagsCode"], 2_598_919);
    assert_eq!(units[0]["physicOffset"], message_id::parse(&sent.field("msgId")).unwrap().1);
    show("0", "2").refused(0, &["index 2", "0 to 2"]);
    show("9", "0").refused(1, &["9@T is not exist!"]);
}

#[test]
fn a_port_that_is_taken_is_named_and_leaves_the_folder_alone() {
    let broker = TestBroker::start();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    for (port, named) in [(0, "listenPort"), (2, "VIP")] {
        let port = broker.broker.as_ref().unwrap().address().port() + port;
        let mut config = petrel::config::broker::BrokerConfig::new(&root);
        config.bind_address = "127.0.0.1".parse().unwrap();
        config.listen_port = port;
        let Err(error) = petrel::broker::broker::Broker::start(config, petrel::runtime::clock::Clock::System) else {
            panic!("two listeners on one port");
        };
        assert!(error.to_string().contains(named) && error.to_string().contains("127.0.0.1"), "{error}");
        assert!(!root.exists());
    }
}

#[test]
fn one_message_wakes_a_crowd() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let crowd: Vec<_> = (0..200).map(|_| broker.pull_later(&Pull { suspend_ms: 15_000, ..Pull::new("T", 0, 1) })).collect();
    // One of shorter patience behind them is answered in its own time.
    broker.pull(&Pull { suspend_ms: 100, ..Pull::new("T", 0, 1) }).expect(19);
    broker.send(&Send::new("T", "1")).expect(0);
    for waiting in crowd {
        assert_eq!(bodies(&waiting.recv_timeout(PATIENCE).unwrap().expect(0).messages()), ["1"]);
    }
}

fn held(broker: &TestBroker) -> i64 {
    let answer = broker.call(28, &(), Body::Empty).expect(0);
    let table = petrel::remoting::fastjson::parse(answer.command.view().body).unwrap();
    table.get("table").unwrap().get("heldPulls").unwrap().as_text().unwrap().parse().unwrap()
}

/// Pulls over a connection of its own.
fn pull_by(client: &RemotingClient, broker: &TestBroker, pull: &Pull<'_>) -> Receiver<i32> {
    let (sender, receiver) = unbounded();
    let done = Box::new(move |result: Result<OwnedCommand, _>| {
        if let Ok(answer) = result {
            sender.send(answer.view().code).unwrap();
        }
    });
    client.invoke_async(&broker.address(), 11, &pull.header(), Body::Empty, Duration::from_secs(60), done);
    receiver
}

#[test]
fn held_pulls_are_bounded_for_a_connection_and_go_with_it() {
    const BOUND: i64 = 4_096;
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let greedy = RemotingClient::start(RemotingClientConfig::default()).unwrap();
    let pull = Pull { suspend_ms: i64::MAX, ..Pull::new("T", 0, 1) };
    let waiting: Vec<_> = (0..BOUND).map(|_| pull_by(&greedy, &broker, &pull)).collect();
    until("its part", || held(&broker) == BOUND);
    assert_eq!(pull_by(&greedy, &broker, &pull).recv_timeout(PATIENCE), Ok(19), "answered at once");
    let modest = broker.pull_later(&Pull { suspend_ms: 15_000, ..Pull::new("T", 1, 0) });
    until("another's pull", || held(&broker) == BOUND + 1);
    assert!(waiting.iter().all(|waiting| waiting.try_recv().is_err()));
    greedy.shutdown();
    until("its pulls to go", || held(&broker) == 1);
    broker.send(&Send::new("T", "1").queue(1)).expect(0);
    assert_eq!(bodies(&modest.recv_timeout(PATIENCE).unwrap().expect(0).messages()), ["1"]);
    assert_eq!(held(&broker), 0);
}

#[test]
fn long_expressions_are_refused_and_many_tags_are_served() {
    let broker = TestBroker::start();
    broker.send(&Send::new("T", "0")).expect(0);
    broker.await_max_offset("T", 0, 1);
    let longer = "t".repeat((64 << 10) + 1);
    broker.pull(&Pull { tags: &longer, ..Pull::new("T", 0, 1) }).refused(23, &["topic T", "65537", "65536"]);
    let mut sql = Pull { tags: &longer, ..Pull::new("T", 0, 1) }.header();
    sql.expression_type = Some("SQL92".into());
    broker.call(11, &sql, Body::Empty).refused(23, &["65537"]);
    let heartbeat = format!(
        r#"{{"clientID":"c","consumerDataSet":[{{"groupName":"g","subscriptionDataSet":[{{"topic":"T","subString":"{longer}"}}]}}]}}"#
    );
    broker.call(34, &(), heartbeat).refused(1, &["heartbeat", "topic T", "65537", "65536"]);

    let tags: Vec<String> = (0..9_000).map(|tag| tag.to_string()).collect();
    let many = tags.join("||");
    let pull = Pull { suspend_ms: 15_000, tags: &many, ..Pull::new("T", 0, 1) };
    let served = broker.pull_later(&pull);
    until("a held pull", || held(&broker) == 1);
    broker.send(&Send::new("T", "1").property("TAGS", "8999")).expect(0);
    assert_eq!(bodies(&served.recv_timeout(PATIENCE).unwrap().expect(0).messages()), ["1"]);
    // Of so many tags a message of none of them is looked at, too; the pull goes on waiting behind it.
    let served = broker.pull_later(&Pull { offset: 2, ..pull });
    until("a held pull", || held(&broker) == 1);
    broker.send(&Send::new("T", "2").property("TAGS", "other")).expect(0);
    broker.await_max_offset("T", 0, 3);
    broker.send(&Send::new("T", "3").property("TAGS", "0")).expect(0);
    let answer = served.recv_timeout(PATIENCE).unwrap().expect(0);
    assert_eq!((bodies(&answer.messages()), answer.number("nextBeginOffset")), (vec!["3".to_owned()], 4));
}

#[test]
fn a_send_without_a_queue_is_refused_and_creates_nothing() {
    let broker = TestBroker::start();
    let create = |topic: &str, read: &str, write: &str| {
        let header = [
            ("topic", topic),
            ("defaultTopic", "TBW102"),
            ("readQueueNums", read),
            ("writeQueueNums", write),
            ("perm", "6"),
            ("topicFilterType", "SINGLE_TAG"),
            ("order", "false"),
        ];
        broker.call(17, &header, Body::Empty)
    };
    create("none", "0", "0").expect(0);
    for queue_id in [-1, i32::MIN] {
        broker.send(&Send::new("none", "x").queue(queue_id)).refused(29, &["topic none", "readQueueNums=0", "writeQueueNums=0"]);
    }
    broker.send(&Send::new("none", "x")).refused(29, &["queueId[0]", "topic none", "writeQueueNums=0"]);
    broker.pull(&Pull::new("none", 0, 0)).refused(29, &["queueId[0]"]);
    // A topic whose queues are only read is on its way out: the broker picks none of them, who names one is served.
    create("closing", "2", "0").expect(0);
    broker.send(&Send::new("closing", "x").queue(-1)).refused(29, &["readQueueNums=2", "writeQueueNums=0"]);
    broker.send(&Send::new("closing", "x").queue(1)).expect(0);
    assert_eq!(bodies(&broker.consume("closing", 1, 1)), ["x"]);
    create("new", "-1", "1").refused(29, &["readQueueNums", "new", "-1"]);
    create("new", "1", "-2").refused(29, &["writeQueueNums", "new", "-2"]);

    for (code, queues) in [(310, "0"), (310, "-3"), (10, "0")] {
        let send = Send { code, ..Send::new("new", "x").queue(-1) };
        let header: Vec<_> = send
            .header()
            .into_iter()
            .map(|(name, value)| if name == "d" || name == "defaultTopicQueueNums" { (name, queues.to_owned()) } else { (name, value) })
            .collect();
        broker.call(code, &header, "x".to_owned()).refused(29, &["topic[new]", &format!("defaultTopicQueueNums is {queues}"), "TBW102"]);
        broker.call(351, &[("topic", "new")], Body::Empty).expect(17);
    }
    broker.send(&Send::new("new", "x").queue(-1)).expect(0);
}
