//! Consumers and producers against a broker of a few lines that keeps its messages in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fake::{self, Answer, Call, Fake};
use super::*;
use crate::common::record::{self, Draft};
use crate::net::connection::InvokeError;
use crate::remoting::body::heartbeat::HeartbeatData;
use crate::remoting::body::lock::{LockBatchBody, lock_ok_json};
use crate::remoting::code::{request, response};
use crate::remoting::fastjson;
use crate::remoting::header::pull::PullMessageResponse;

const DEADLINE: Duration = Duration::from_secs(20);

/// One broker `a` with the topic `T`, whose state several clients share.
#[derive(Clone, Default)]
struct Broker {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    queues: i32,
    min_offset: i64,
    messages: BTreeMap<i32, Vec<(String, String)>>,
    committed: HashMap<(String, String, i32), i64>,
    members: BTreeMap<String, BTreeSet<String>>,
    locks: HashMap<(String, i32), String>,
    sent_back: Vec<Call>,
    refuse_send_back: bool,
    /// All messages are in memory still.
    young: bool,
    /// The servers are not reached.
    away: bool,
    stored: Vec<Call>,
}

impl Broker {
    fn new(queues: i32) -> Self {
        let broker = Self::default();
        broker.state.lock().queues = queues;
        broker
    }

    fn store(&self, queue: i32, tag: &str, body: &str) {
        self.state.lock().messages.entry(queue).or_default().push((tag.to_owned(), body.to_owned()));
    }

    fn client(&self, name: &str) -> Client {
        let broker = self.clone();
        let fake = Fake::new(move |call| broker.serve(call));
        let config = ClientConfig { instance_name: Some(name.to_owned()), ..ClientConfig::new("ns:1") };
        Client::from_instance(Instance::with_transport(config, Arc::new(fake), crate::runtime::clock::Clock::System).unwrap())
    }

    fn committed(&self, group: &str, queue: i32) -> Option<i64> {
        self.state.lock().committed.get(&(group.to_owned(), "T".to_owned(), queue)).copied()
    }

    fn serve(&self, call: &Call) -> Answer {
        let mut state = self.state.lock();
        if state.away {
            return Err(InvokeError::Connect(call.address.clone(), "refused".to_owned()));
        }
        let key = || (call.field("consumerGroup"), call.field("topic"), call.field("queueId").parse().unwrap());
        match call.code {
            request::GET_ROUTEINFO_BY_TOPIC if call.field("topic") == "T" => fake::route(&[("a", "a:1")], state.queues),
            request::GET_ROUTEINFO_BY_TOPIC if call.field("topic").starts_with("%RETRY%") => fake::route(&[("a", "a:1")], 1),
            request::GET_ROUTEINFO_BY_TOPIC => fake::refusal(response::TOPIC_NOT_EXIST, "no such topic"),
            request::HEART_BEAT => {
                let data = HeartbeatData::from_json(&call.body).unwrap();
                for consumer in data.consumers {
                    state.members.entry(consumer.group_name).or_default().insert(data.client_id.clone());
                }
                fake::ok()
            }
            request::UNREGISTER_CLIENT => {
                if let Some(members) = state.members.get_mut(&call.field("consumerGroup")) {
                    members.remove(&call.field("clientID"));
                }
                fake::ok()
            }
            request::GET_CONSUMER_LIST_BY_GROUP => match state.members.get(&call.field("consumerGroup")) {
                Some(members) if !members.is_empty() => {
                    let ids: Vec<String> = members.iter().map(|id| format!("{id:?}")).collect();
                    fake::answer(0, None, &(), format!("{{\"consumerIdList\":[{}]}}", ids.join(",")).into_bytes())
                }
                _ => fake::refusal(1, "no consumer for this group"),
            },
            request::QUERY_CONSUMER_OFFSET => match state.committed.get(&key()) {
                None if state.young && call.field("setZeroIfNotFound") != "false" => fake::answer(0, None, &[("offset", "0")], Vec::new()),
                Some(offset) => fake::answer(0, None, &[("offset", offset.to_string().as_str())], Vec::new()),
                None => fake::refusal(response::QUERY_NOT_FOUND, "not found"),
            },
            request::UPDATE_CONSUMER_OFFSET => {
                state.committed.insert(key(), call.field("commitOffset").parse().unwrap());
                fake::ok()
            }
            request::GET_MIN_OFFSET => fake::answer(0, None, &[("offset", state.min_offset.to_string().as_str())], Vec::new()),
            request::GET_MAX_OFFSET => {
                let end = state.messages.get(&call.field("queueId").parse().unwrap()).map_or(0, Vec::len);
                fake::answer(0, None, &[("offset", end.to_string().as_str())], Vec::new())
            }
            request::LOCK_BATCH_MQ => {
                let body = LockBatchBody::from_json(&call.body).unwrap();
                let ours = |queue: &&MessageQueue| {
                    let owner = state.locks.entry((queue.topic.clone(), queue.queue_id)).or_insert_with(|| body.client_id.clone());
                    *owner == body.client_id
                };
                let locked: Vec<MessageQueue> = body.mq_set.iter().filter(ours).cloned().collect();
                fake::answer(0, None, &(), lock_ok_json(&locked).into_bytes())
            }
            request::UNLOCK_BATCH_MQ => {
                let body = LockBatchBody::from_json(&call.body).unwrap();
                state.locks.retain(|key, owner| *owner != body.client_id || !body.mq_set.iter().any(|queue| queue.queue_id == key.1));
                fake::ok()
            }
            request::CONSUMER_SEND_MSG_BACK if state.refuse_send_back => fake::refusal(1, "no"),
            request::CONSUMER_SEND_MSG_BACK => {
                state.sent_back.push(call.clone());
                fake::ok()
            }
            request::SEND_MESSAGE_V2 => {
                state.stored.push(call.clone());
                fake::ok()
            }
            request::PULL_MESSAGE => pull(&state, call),
            _ => fake::ok(),
        }
    }
}

fn pull(state: &State, call: &Call) -> Answer {
    let (queue, offset): (i32, i64) = (call.field("queueId").parse().unwrap(), call.field("queueOffset").parse().unwrap());
    let empty = Vec::new();
    let messages = if call.field("topic") == "T" { state.messages.get(&queue).unwrap_or(&empty) } else { &empty };
    let end = messages.len() as i64;
    let header = |next| PullMessageResponse {
        next_begin_offset: next,
        min_offset: state.min_offset,
        max_offset: end,
        ..PullMessageResponse::default()
    };
    if offset > end || offset < state.min_offset {
        let next = if offset > end { end } else { state.min_offset };
        return fake::answer(response::PULL_OFFSET_MOVED, None, &header(next), Vec::new());
    }
    if offset == end {
        let may_hold = call.field("sysFlag").parse::<i32>().unwrap() & 2 != 0;
        return if may_hold { fake::hold() } else { fake::answer(response::PULL_NOT_FOUND, None, &header(offset), Vec::new()) };
    }
    let last = end.min(offset + call.field("maxMsgNums").parse::<i64>().unwrap());
    let mut body = Vec::new();
    for at in offset..last {
        let (tag, text) = &messages[at as usize];
        let start = body.len();
        let properties = format!("TAGS\u{1}{tag}\u{2}UNIQ_KEY\u{1}id-{queue}-{at}\u{2}");
        Draft {
            topic: "T",
            queue_id: queue,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: "1.2.3.4:5".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: text.as_bytes(),
            properties: properties.as_bytes(),
        }
        .encode(&mut body);
        record::place(&mut body[start..], at, i64::from(queue) * 1000 + at, 1);
    }
    fake::answer(0, None, &header(last), body)
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn body(message: &crate::common::message::MessageExt) -> String {
    String::from_utf8(message.message.body.clone()).unwrap()
}

/// Polls until `count` messages came; their bodies.
fn poll(consumer: &PolledConsumer, count: usize) -> Vec<String> {
    let mut bodies = Vec::new();
    while bodies.len() < count {
        let delivery = consumer.poll(DEADLINE).expect("a message in time");
        bodies.extend(delivery.messages().iter().map(body));
        delivery.end(ConsumeStatus::Success);
    }
    bodies
}

#[test]
fn a_restarted_consumer_goes_on_where_it_was() {
    let broker = Broker::new(1);
    (0..5).for_each(|n| broker.store(0, "x", &n.to_string()));
    let client = broker.client("c");
    let start = || client.push_consumer("g").subscribe("T", "*").from(ConsumeFrom::First).poll().unwrap();
    let consumer = start();
    assert_eq!(poll(&consumer, 2), ["0", "1"]);
    let unfinished = consumer.poll(DEADLINE).unwrap();
    assert_eq!(body(&unfinished.messages()[0]), "2");
    consumer.shutdown();
    assert!(consumer.poll(Duration::ZERO).is_none());
    drop(unfinished);
    assert_eq!(broker.committed("g", 0), Some(2));
    assert_eq!(broker.state.lock().members["g"].len(), 0, "unregistered");
    drop(consumer);
    assert_eq!(poll(&start(), 3), ["2", "3", "4"]);
    assert_eq!(broker.committed("g", 0), Some(5));
}

#[test]
fn two_members_share_the_queues_and_one_takes_over() {
    let broker = Broker::new(4);
    let (first, second) = (broker.client("1"), broker.client("2"));
    let start = |client: &Client| {
        let config = ConsumerConfig { rebalance_interval: Duration::from_millis(20), ..ConsumerConfig::default() };
        client.push_consumer("g").config(config).subscribe("T", "*").start(|_| ConsumeStatus::Success).unwrap()
    };
    let of_topic = |consumer: &PushConsumer| consumer.assignment().into_iter().filter(|queue| queue.topic == "T").collect::<Vec<_>>();
    let one = start(&first);
    eventually("all four queues", || of_topic(&one).len() == 4);
    let two = start(&second);
    eventually("two queues each", || of_topic(&one).len() == 2 && of_topic(&two).len() == 2);
    let together: BTreeSet<MessageQueue> = of_topic(&one).into_iter().chain(of_topic(&two)).collect();
    assert_eq!(together.len(), 4);
    one.shutdown();
    eventually("all four queues again", || of_topic(&two).len() == 4);
}

#[test]
fn a_failed_message_is_sent_back_and_the_others_go_on() {
    let broker = Broker::new(1);
    for text in ["good", "bad", "panics", "good"] {
        broker.store(0, "x", text);
    }
    let done = Arc::new(AtomicUsize::new(0));
    let counter = done.clone();
    let consumer = broker
        .client("c")
        .push_consumer("g")
        .subscribe("T", "*")
        .from(ConsumeFrom::First)
        .start(move |messages| {
            counter.fetch_add(1, Ordering::SeqCst);
            match body(&messages[0]).as_str() {
                "good" => ConsumeStatus::Success,
                "bad" => ConsumeStatus::Later,
                _ => panic!("as asked"),
            }
        })
        .unwrap();
    eventually("four deliveries, two sent back", || done.load(Ordering::SeqCst) == 4 && broker.state.lock().sent_back.len() == 2);
    consumer.shutdown();
    let state = broker.state.lock();
    let mut offsets: Vec<String> = state.sent_back.iter().map(|call| call.field("offset")).collect();
    offsets.sort();
    assert_eq!(offsets, ["1", "2"]);
    assert_eq!((state.sent_back[0].field("group").as_str(), state.sent_back[0].field("maxReconsumeTimes").as_str()), ("g", "16"));
    assert_eq!(state.committed[&("g".into(), "T".into(), 0)], 4);
}

#[test]
fn a_message_not_taken_back_is_sent_to_the_retry_topic() {
    let broker = Broker::new(1);
    broker.store(0, "tag", "bad");
    broker.state.lock().refuse_send_back = true;
    let consumer =
        broker.client("c").push_consumer("g").subscribe("T", "*").from(ConsumeFrom::First).start(|_| ConsumeStatus::Later).unwrap();
    eventually("a send", || !broker.state.lock().stored.is_empty());
    consumer.shutdown();
    let state = broker.state.lock();
    let call = &state.stored[0];
    assert_eq!((call.field("b").as_str(), call.field("j").as_str(), call.field("l").as_str()), ("%RETRY%g", "1", "16"));
    let find = |name| crate::common::properties::find(&call.field("i"), name).map(str::to_owned);
    assert_eq!((find("RETRY_TOPIC").as_deref(), find("DELAY").as_deref()), (Some("T"), Some("3")));
    assert_eq!((find("ORIGIN_MESSAGE_ID").as_deref(), find("TAGS").as_deref()), (Some("id-0-0"), Some("tag")));
}

#[test]
fn an_orderly_consumer_repeats_the_same_message_until_it_succeeds() {
    let broker = Broker::new(2);
    (0..6).for_each(|n| broker.store(n % 2, "x", &n.to_string()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let consumer = broker
        .client("c")
        .push_consumer("g")
        .subscribe("T", "*")
        .from(ConsumeFrom::First)
        .orderly()
        .start(move |messages| {
            notes.lock().push((messages[0].queue_id, body(&messages[0]), messages[0].reconsume_times));
            if body(&messages[0]) == "2" && messages[0].reconsume_times == 0 { ConsumeStatus::Later } else { ConsumeStatus::Success }
        })
        .unwrap();
    eventually("seven deliveries", || seen.lock().len() == 7);
    assert_eq!(broker.state.lock().locks.len(), 3, "two queues and the retry queue are locked");
    consumer.shutdown();
    let of =
        |queue: i32| seen.lock().iter().filter(|seen| seen.0 == queue).map(|seen| format!("{}/{}", seen.1, seen.2)).collect::<Vec<_>>();
    assert_eq!(of(0), ["0/0", "2/0", "2/1", "4/0"]);
    assert_eq!(of(1), ["1/0", "3/0", "5/0"]);
    assert!(broker.state.lock().locks.is_empty(), "unlocked");
    assert_eq!((broker.committed("g", 0), broker.committed("g", 1)), (Some(3), Some(3)));
}

#[test]
fn broadcasting_members_each_get_everything_and_keep_their_own_offsets() {
    let broker = Broker::new(2);
    (0..4).for_each(|n| broker.store(n % 2, "x", &n.to_string()));
    let folder = tempfile::tempdir().unwrap();
    let start = |client: &Client| {
        let config = ConsumerConfig { from: ConsumeFrom::First, offset_dir: Some(folder.path().to_owned()), ..ConsumerConfig::default() };
        client.push_consumer("g").config(config).broadcast().subscribe("T", "*").poll().unwrap()
    };
    let (first, second) = (broker.client("1"), broker.client("2"));
    for client in [&first, &second] {
        let mut bodies = poll(&start(client), 4);
        bodies.sort();
        assert_eq!(bodies, ["0", "1", "2", "3"]);
    }
    broker.store(0, "x", "4");
    assert_eq!(poll(&start(&first), 1), ["4"]);
    assert!(broker.state.lock().committed.is_empty(), "the broker knows nothing");
}

#[test]
fn tags_filter_and_positions_move_past_what_was_filtered() {
    let broker = Broker::new(1);
    for (tag, text) in [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4")] {
        broker.store(0, tag, text);
    }
    let consumer = broker.client("c").push_consumer("g").subscribe("T", "a || c").from(ConsumeFrom::First).poll().unwrap();
    assert_eq!(poll(&consumer, 2), ["1", "3"]);
    consumer.shutdown();
    assert_eq!(broker.committed("g", 0), Some(4));
}

#[test]
fn a_consumer_outside_the_queue_is_moved_into_it() {
    let broker = Broker::new(1);
    (0..5).for_each(|n| broker.store(0, "x", &n.to_string()));
    broker.state.lock().min_offset = 3;
    broker.state.lock().committed.insert(("g".into(), "T".into(), 0), 1);
    let consumer = broker.client("c").push_consumer("g").subscribe("T", "*").poll().unwrap();
    assert_eq!(poll(&consumer, 2), ["3", "4"]);
}

#[test]
fn a_new_group_begins_where_it_asks() {
    let broker = Broker::new(1);
    (0..5).for_each(|n| broker.store(0, "x", &n.to_string()));
    let client = broker.client("c");
    let read = |group: &str, from| client.push_consumer(group).subscribe("T", "*").from(from).poll().unwrap();
    assert_eq!(poll(&read("first", ConsumeFrom::First), 1), ["0"]);
    assert_eq!(poll(&read("offset", ConsumeFrom::Offset(3)), 2), ["3", "4"]);
    let last = read("last", ConsumeFrom::Last);
    eventually("begun", || last.assignment().iter().any(|queue| queue.topic == "T"));
    last.shutdown();
    assert_eq!(broker.committed("last", 0), Some(5));
}

#[test]
fn in_a_young_queue_a_new_group_begins_where_it_asks_only_when_it_insists() {
    let broker = Broker::new(1);
    broker.state.lock().young = true;
    (0..5).for_each(|n| broker.store(0, "x", &n.to_string()));
    let client = broker.client("c");
    let begin = |group: &str| client.push_consumer(group).subscribe("T", "*");
    assert_eq!(poll(&begin("java").from(ConsumeFrom::Offset(3)).poll().unwrap(), 1), ["0"]);
    assert_eq!(poll(&begin("exact").exactly_from(ConsumeFrom::Offset(3)).poll().unwrap(), 2), ["3", "4"]);
    assert_eq!(poll(&begin("exact").exactly_from(ConsumeFrom::Offset(1)).poll().unwrap(), 0), [""; 0]);
    assert_eq!(broker.committed("exact", 0), Some(5), "what was committed counts");
}

#[test]
fn nothing_there_and_nobody_there_are_told_apart() {
    let broker = Broker::new(2);
    broker.store(0, "x", "0");
    let client = broker.client("c");
    let consumer = client.push_consumer("g").subscribe("T", "*").from(ConsumeFrom::First).poll().unwrap();
    assert_eq!(poll(&consumer, 1), ["0"]);
    assert_eq!(consumer.check(), Ok(()));
    broker.state.lock().away = true;
    let error = consumer.check().unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    let error = consumer.close().unwrap_err();
    assert!(error.to_string().contains("a:1"), "not committed: {error}");

    broker.state.lock().away = false;
    let reader = client.push_consumer("tool").read_only().subscribe("T", "*").from(ConsumeFrom::First).poll().unwrap();
    assert_eq!(poll(&reader, 1), ["0"]);
    broker.state.lock().away = true;
    assert!(matches!(reader.check(), Err(ClientError::Invoke(_))));
    assert_eq!(reader.close(), Ok(()), "nothing was to be committed");
}

#[test]
fn a_reader_sees_everything_and_leaves_no_trace() {
    let broker = Broker::new(2);
    (0..4).for_each(|n| broker.store(n % 2, "x", &n.to_string()));
    let client = broker.client("c");
    let reader = client.push_consumer("tool").read_only().subscribe("T", "*").from(ConsumeFrom::First).poll().unwrap();
    assert_eq!(poll(&reader, 4).into_iter().collect::<BTreeSet<_>>().len(), 4);
    reader.shutdown();
    let one = vec![MessageQueue { topic: "T".into(), broker_name: "a".into(), queue_id: 1 }];
    let reader = client.push_consumer("tool").queues(one).read_only().subscribe("T", "*").from(ConsumeFrom::First).poll().unwrap();
    assert_eq!(poll(&reader, 2), ["1", "3"]);
    reader.shutdown();
    let state = broker.state.lock();
    assert!(state.committed.is_empty() && state.members.is_empty());
}

#[test]
fn a_dropped_delivery_comes_again() {
    let broker = Broker::new(1);
    broker.store(0, "x", "0");
    let consumer = broker.client("c").push_consumer("g").subscribe("T", "*").from(ConsumeFrom::First).poll().unwrap();
    drop(consumer.poll(DEADLINE).unwrap());
    assert_eq!(poll(&consumer, 1), ["0"]);
}

#[test]
fn one_client_has_one_consumer_of_a_group_and_names_are_checked() {
    let broker = Broker::new(1);
    let client = broker.client("c");
    let _first = client.push_consumer("g").subscribe("T", "*").poll().unwrap();
    let invalid = |result: Result<PolledConsumer, ClientError>| matches!(result, Err(ClientError::Invalid(_)));
    assert!(invalid(client.push_consumer("g").subscribe("T", "*").poll()));
    assert!(invalid(client.push_consumer("a b").subscribe("T", "*").poll()));
    assert!(invalid(client.push_consumer("h").poll()));
    assert!(invalid(client.push_consumer("h").subscribe("T", "||").poll()));
}

#[test]
fn a_pull_consumer_reads_at_offsets() {
    let broker = Broker::new(1);
    (0..5).for_each(|n| broker.store(0, "x", &n.to_string()));
    let client = broker.client("c");
    let consumer = client.pull_consumer("g").unwrap();
    let queue = consumer.queues("T").unwrap().remove(0);
    let result = consumer.pull(&queue, "*", 1, 2).unwrap();
    assert_eq!((result.status, result.next_offset, result.max_offset), (PullStatus::Found, 3, 5));
    assert_eq!(result.messages.iter().map(body).collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(result.messages[0].broker_name, "a");
    assert_eq!(consumer.pull(&queue, "*", 5, 2).unwrap().status, PullStatus::NoNewMessage);
    assert_eq!(consumer.pull(&queue, "*", 9, 2).unwrap().status, PullStatus::OffsetIllegal);
    assert_eq!((consumer.min_offset(&queue).unwrap(), consumer.max_offset(&queue).unwrap()), (0, 5));
    assert_eq!(consumer.committed(&queue).unwrap(), None);
    consumer.commit(&queue, 4).unwrap();
    assert_eq!(consumer.committed(&queue).unwrap(), Some(4));
    assert!(matches!(consumer.queues("missing"), Err(ClientError::NoRoute(..))));
}

fn asked(client: &Client, code: i32, header: &dyn crate::remoting::ext::CustomHeader, body: Vec<u8>) -> (i32, String, String) {
    let answer = fake::push(client.instance(), code, header, body).recv_timeout(DEADLINE).unwrap();
    let view = answer.view();
    (view.code, view.remark.as_deref().unwrap_or_default().to_owned(), String::from_utf8(view.body.to_vec()).unwrap())
}

#[test]
fn a_consumer_tells_how_it_is() {
    let broker = Broker::new(1);
    (0..5).for_each(|n| broker.store(0, "x", &n.to_string()));
    let client = broker.client("c");
    let consumer = client.push_consumer("g").subscribe("T", "*").from(ConsumeFrom::First).poll().unwrap();
    poll(&consumer, 2);
    let held = consumer.poll(DEADLINE).unwrap();
    let (code, _, body) = asked(&client, request::GET_CONSUMER_RUNNING_INFO, &[("consumerGroup", "g"), ("clientId", "c")], Vec::new());
    assert_eq!(code, 0);
    let info = fastjson::parse(body.as_bytes()).unwrap();
    let number = |value: &fastjson::Value, name: &str| value.get(name).and_then(fastjson::Value::as_i64).unwrap();
    let table = info.get("mqTable").unwrap().members();
    let (_, queue) = table.iter().find(|(queue, _)| MessageQueue::from_value(queue).topic == "T").unwrap();
    let told = ["commitOffset", "cachedMsgMinOffset", "cachedMsgMaxOffset", "cachedMsgCount"].map(|name| number(queue, name));
    assert_eq!(told, [2, 2, 4, 3]);
    assert!(number(queue, "lastPullTimestamp") > 0 && number(queue, "lastConsumeTimestamp") > 0);
    assert_eq!(queue.get("droped").unwrap().as_bool(), Some(false));
    let topic = info.get("statusTable").unwrap().get("T").unwrap().to_standard();
    assert!(topic["consumeOKTPS"].as_f64().unwrap() > 0.0 && topic["pullTPS"].as_f64().unwrap() > 0.0, "{topic}");
    assert_eq!(topic["consumeFailedMsgs"], 0);
    let topics: Vec<_> =
        info.get("subscriptionSet").unwrap().elements().iter().map(|data| data.get("topic").unwrap().to_standard()).collect();
    assert_eq!(topics, ["%RETRY%g", "T"]);
    let properties = info.get("properties").unwrap().to_standard();
    assert_eq!((&properties["PROP_CONSUMEORDERLY"], &properties["PROP_CONSUME_TYPE"]), (&"false".into(), &"CONSUME_PASSIVELY".into()));
    let (code, _, body) = asked(&client, request::GET_CONSUMER_STATUS_FROM_CLIENT, &[("group", "g"), ("topic", "T")], Vec::new());
    assert_eq!((code, body.as_str()), (0, r#"{"consumerTable":null,"messageQueueTable":{{"brokerName":"a","queueId":0,"topic":"T"}:2}}"#));
    let (code, remark, _) = asked(&client, request::GET_CONSUMER_RUNNING_INFO, &[("consumerGroup", "other")], Vec::new());
    assert!(code == 1 && remark.contains("other"), "{code} {remark}");
    let (code, ..) = asked(&client, request::PUSH_REPLY_MESSAGE_TO_CLIENT, &(), Vec::new());
    assert_eq!(code, response::REQUEST_CODE_NOT_SUPPORTED);
    drop(held);
}

#[test]
fn a_broker_has_a_consumer_go_on_elsewhere() {
    for orderly in [false, true] {
        let broker = Broker::new(2);
        (0..8).for_each(|n| broker.store(n % 2, "x", &n.to_string()));
        let client = broker.client("c");
        let mut builder = client.push_consumer("g").subscribe("T", "*").from(ConsumeFrom::First);
        if orderly {
            builder = builder.orderly();
        }
        let consumer = builder.poll().unwrap();
        assert_eq!(poll(&consumer, 8).len(), 8);
        let reset = |body: &str| asked(&client, request::RESET_CONSUMER_CLIENT_OFFSET, &[("group", "g"), ("topic", "T")], body.into());
        let body = r#"{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:2,{"brokerName":"a","queueId":9,"topic":"T"}:1}}"#;
        assert_eq!(reset(body).0, 0);
        assert_eq!(poll(&consumer, 2), ["4", "6"]);
        assert!(broker.committed("g", 0).is_some_and(|offset| offset >= 2), "the new offset was committed");
        for broken in ["", "{}", r#"{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:-1}}"#] {
            let (code, remark, _) = reset(broken);
            assert!(code == 1 && remark.contains("body of the reset"), "{broken}: {code} {remark}");
        }
        consumer.shutdown();
        assert_eq!((broker.committed("g", 0), broker.committed("g", 1)), (Some(4), Some(4)));
    }
}

#[test]
fn a_broker_has_one_message_consumed() {
    let broker = Broker::new(1);
    let client = broker.client("c");
    let listener = |messages: &[crate::common::message::MessageExt]| match body(&messages[0]).as_str() {
        "good" => ConsumeStatus::Success,
        "bad" => ConsumeStatus::Later,
        _ => panic!("as asked"),
    };
    let consumer = client.push_consumer("g").subscribe("T", "*").start(listener).unwrap();
    let record = |text: &str| {
        let mut bytes = Vec::new();
        Draft {
            topic: "T",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: "1.2.3.4:5".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: text.as_bytes(),
            properties: b"",
        }
        .encode(&mut bytes);
        bytes
    };
    let direct = |group: &str, body: Vec<u8>| asked(&client, request::CONSUME_MESSAGE_DIRECTLY, &[("consumerGroup", group)], body);
    for (text, result) in [("good", "CR_SUCCESS"), ("bad", "CR_LATER"), ("panics", "CR_THROW_EXCEPTION")] {
        let (code, _, body) = direct("g", record(text));
        let told: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((code, told["consumeResult"].as_str(), &told["order"]), (0, Some(result), &false.into()));
    }
    for broken in [Vec::new(), vec![1, 2, 3], [record("good"), record("good")].concat()] {
        assert_eq!(direct("g", broken).0, 1);
    }
    let _polled = client.push_consumer("polled").subscribe("T", "*").poll().unwrap();
    assert_eq!(direct("polled", record("good")).0, response::REQUEST_CODE_NOT_SUPPORTED);
    assert_eq!(direct("missing", record("good")).0, 1);
    consumer.shutdown();
}
