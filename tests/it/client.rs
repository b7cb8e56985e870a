//! The client library over TCP, against a name server and a broker of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam::channel::unbounded;
use parking_lot::Mutex;
use petrel::client::{
    Client, ClientConfig, ClientError, ConsumeFrom, ConsumeStatus, ConsumerConfig, PolledConsumer, ProducerConfig, PullStatus,
    PushConsumer, SendStatus,
};
use petrel::common::message::{Message, MessageExt};
use petrel::common::topic;
use petrel::remoting::command::Body;
use petrel::remoting::ext::CustomHeader;

use crate::support::{Cluster, PATIENCE, until};

fn body(message: &MessageExt) -> String {
    String::from_utf8(message.message.body.clone()).unwrap()
}

fn poll(consumer: &PolledConsumer, count: usize) -> Vec<MessageExt> {
    let mut messages = Vec::new();
    while messages.len() < count {
        let delivery = consumer.poll(PATIENCE).expect("a message in time");
        messages.extend_from_slice(delivery.messages());
        delivery.end(ConsumeStatus::Success);
    }
    messages
}

fn from_first(client: &Client, group: &str, topic: &str) -> PolledConsumer {
    client.push_consumer(group).subscribe(topic, "*").from(ConsumeFrom::First).poll().unwrap()
}

#[test]
fn every_way_of_sending_is_consumed_once() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let producer = client.producer("p").unwrap();
    let receipt = producer.send(&Message::new("T", "sync").tag("a").key("k")).unwrap();
    assert_eq!((receipt.status, receipt.message_id.len(), receipt.offset_message_id.len()), (SendStatus::Ok, 32, 32));
    let (done, results) = unbounded();
    for n in 0..20 {
        let done = done.clone();
        producer.send_async(&Message::new("T", format!("async-{n}")), Box::new(move |result| done.send(result).unwrap()));
    }
    for _ in 0..20 {
        results.recv_timeout(PATIENCE).unwrap().unwrap();
    }
    let batch: Vec<Message> = (0..5).map(|n| Message::new("T", format!("batch-{n}"))).collect();
    let receipt = producer.send_batch(&batch).unwrap();
    assert_eq!((receipt.message_id.split(',').count(), receipt.offset_message_id.split(',').count()), (5, 5));
    producer.send_oneway(&Message::new("T", "one-way")).unwrap();
    let queue = producer.queues("T").unwrap().remove(2);
    assert_eq!(producer.send_to(&Message::new("T", "chosen"), &queue).unwrap().queue, queue);

    let messages = poll(&from_first(&client, "g", "T"), 28);
    let bodies: BTreeSet<String> = messages.iter().map(body).collect();
    let mut expected: BTreeSet<String> = ["sync", "one-way", "chosen"].map(str::to_owned).into();
    expected.extend((0..20).map(|n| format!("async-{n}")));
    expected.extend((0..5).map(|n| format!("batch-{n}")));
    assert_eq!(bodies, expected);
    let sync = messages.iter().find(|message| body(message) == "sync").unwrap();
    assert_eq!((sync.message.properties["TAGS"].as_str(), sync.message.properties["KEYS"].as_str()), ("a", "k"));
    let ids: BTreeSet<String> = messages.iter().map(MessageExt::message_id).collect();
    assert_eq!(ids.len(), 28);
}

#[test]
fn compressed_bodies_come_out_as_they_went_in() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let producer = client.producer_with("p", ProducerConfig { compress_above_bytes: Some(4096), ..ProducerConfig::default() }).unwrap();
    let long = "words and words ".repeat(1000);
    producer.send(&Message::new("T", long.clone())).unwrap();
    let message = poll(&from_first(&client, "g", "T"), 1).remove(0);
    assert_eq!(body(&message), long);
    assert!(message.store_size < 2000, "{} bytes were stored", message.store_size);
}

#[test]
fn refusals_carry_their_code_and_are_told_from_lost_connections() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let roomy = ProducerConfig { max_body_bytes: 8 << 20, retries: 0, ..ProducerConfig::default() };
    let producer = client.producer_with("p", roomy).unwrap();
    producer.send(&Message::new("T", "x")).unwrap();
    let error = producer.send(&Message::new("T", vec![0; (4 << 20) + 1])).unwrap_err();
    assert_eq!(error.code(), Some(13), "{error}");
    assert!(matches!(client.pull_consumer("g").unwrap().queues("missing"), Err(ClientError::NoRoute(..))));
    let nobody = Client::connect("127.0.0.1:1").unwrap();
    assert!(matches!(nobody.producer("p").unwrap().send(&Message::new("T", "x")), Err(ClientError::Invoke(_))));
}

#[test]
fn a_failed_message_comes_again_and_at_last_is_dead() {
    let cluster = Cluster::start();
    let client = cluster.client();
    client.producer("p").unwrap().send(&Message::new("T", "bad")).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let config = ConsumerConfig { from: ConsumeFrom::First, max_reconsume_times: 2, ..ConsumerConfig::default() };
    let consumer = client
        .push_consumer("g")
        .config(config)
        .subscribe("T", "*")
        .start(move |messages| {
            notes.lock().extend(messages.iter().map(|message| (message.message.topic.clone(), message.reconsume_times)));
            ConsumeStatus::Later
        })
        .unwrap();
    until("three deliveries", || seen.lock().len() >= 3);
    let reader = client.pull_consumer("reader").unwrap();
    let dead = topic::dlq_topic("g");
    until("a dead letter", || reader.queues(&dead).is_ok_and(|queues| reader.max_offset(&queues[0]).is_ok_and(|end| end == 1)));
    consumer.shutdown();
    assert_eq!(*seen.lock(), [("T".to_owned(), 0), ("T".to_owned(), 1), ("T".to_owned(), 2)]);
    let queue = reader.queues(&dead).unwrap().remove(0);
    let result = reader.pull(&queue, "*", 0, 1).unwrap();
    assert_eq!(body(&result.messages[0]), "bad");
}

#[test]
fn keys_stay_in_order_across_two_orderly_consumers() {
    let cluster = Cluster::start();
    let producer_client = cluster.client();
    let producer = producer_client.producer("p").unwrap();
    producer.send(&Message::new("T", "warm-up/0")).unwrap();
    let seen: Arc<Mutex<BTreeMap<String, Vec<usize>>>> = Arc::default();
    let start = |client: &Client| -> PushConsumer {
        let notes = seen.clone();
        let config =
            ConsumerConfig { from: ConsumeFrom::First, rebalance_interval: Duration::from_millis(300), ..ConsumerConfig::default() };
        client
            .push_consumer("g")
            .config(config)
            .orderly()
            .subscribe("T", "*")
            .start(move |messages| {
                let text = body(&messages[0]);
                let (key, number) = text.split_once('/').unwrap();
                notes.lock().entry(key.to_owned()).or_default().push(number.parse().unwrap());
                ConsumeStatus::Success
            })
            .unwrap()
    };
    let (one, two) = (cluster.client(), cluster.client());
    let consumers = [start(&one), start(&two)];
    let of_topic = |consumer: &PushConsumer| consumer.assignment().iter().filter(|queue| queue.topic == "T").count();
    until("both have queues", || consumers.iter().all(|consumer| of_topic(consumer) == 2));
    for number in 0..20 {
        for key in ["a", "b", "c", "d", "e"] {
            producer.send_sharded(&Message::new("T", format!("{key}/{number}")), key).unwrap();
        }
    }
    until("all messages", || seen.lock().values().map(Vec::len).sum::<usize>() == 101);
    let expected: Vec<usize> = (0..20).collect();
    for key in ["a", "b", "c", "d", "e"] {
        assert_eq!(seen.lock()[key], expected, "key {key}");
    }
}

#[test]
fn a_restarted_consumer_goes_on_and_a_broker_restart_loses_nothing() {
    let mut cluster = Cluster::start();
    let client = cluster.client();
    let producer = client.producer("p").unwrap();
    for n in 0..10 {
        producer.send(&Message::new("T", n.to_string())).unwrap();
    }
    let first = from_first(&client, "g", "T");
    let mut bodies: BTreeSet<String> = poll(&first, 4).iter().map(body).collect();
    first.shutdown();
    cluster.restart_broker();
    let second_client = cluster.client();
    let rest = poll(&from_first(&second_client, "g", "T"), 6);
    bodies.extend(rest.iter().map(body));
    assert_eq!(bodies, (0..10).map(|n| n.to_string()).collect());
}

#[test]
fn a_client_finds_a_broker_that_came_back_elsewhere() {
    // The broker takes any free port, so it practically never has the one it had.
    let mut cluster = Cluster::start();
    let client = cluster.client();
    let producer = client.producer("p").unwrap();
    producer.send(&Message::new("T", "before")).unwrap();
    let consumer = from_first(&client, "g", "T");
    assert_eq!(body(&poll(&consumer, 1)[0]), "before");
    cluster.restart_broker();
    until("a send succeeds", || producer.send(&Message::new("T", "after")).is_ok());
    assert_eq!(body(&poll(&consumer, 1)[0]), "after");
}

#[test]
fn two_consumers_share_and_one_takes_over() {
    let cluster = Cluster::start();
    let (one, two) = (cluster.client(), cluster.client());
    one.producer("p").unwrap().send(&Message::new("T", "x")).unwrap();
    let start = |client: &Client| client.push_consumer("g").subscribe("T", "*").start(|_| ConsumeStatus::Success).unwrap();
    let of_topic = |consumer: &PushConsumer| consumer.assignment().iter().filter(|queue| queue.topic == "T").count();
    let first = start(&one);
    until("all queues", || of_topic(&first) == 4);
    let second = start(&two);
    // The broker tells the first of the second: the rebalance interval of 20 s is longer than this test waits.
    until("half each", || of_topic(&first) == 2 && of_topic(&second) == 2);
    first.shutdown();
    until("all queues again", || of_topic(&second) == 4);
}

#[test]
fn every_broadcast_member_gets_everything() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let producer = client.producer("p").unwrap();
    for n in 0..8 {
        producer.send(&Message::new("T", n.to_string())).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let member =
            Client::with_config(ClientConfig { instance_name: Some(name.to_owned()), ..ClientConfig::new(&cluster.namesrv()) }).unwrap();
        let config = ConsumerConfig { from: ConsumeFrom::First, offset_dir: Some(folder.path().to_owned()), ..ConsumerConfig::default() };
        let consumer = member.push_consumer("g").config(config).broadcast().subscribe("T", "*").poll().unwrap();
        let bodies: BTreeSet<String> = poll(&consumer, 8).iter().map(body).collect();
        assert_eq!(bodies.len(), 8, "member {name}");
    }
}

#[test]
fn tags_delays_and_a_long_poll() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let producer = client.producer("p").unwrap();
    producer.send(&Message::new("T", "no").tag("b")).unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let notes = received.clone();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let _consumer = client
        .push_consumer("g")
        .subscribe("T", "a || 标签")
        .from(ConsumeFrom::First)
        .start(move |messages| {
            notes.lock().extend(messages.iter().map(body));
            counter.fetch_add(1, Ordering::SeqCst);
            ConsumeStatus::Success
        })
        .unwrap();
    producer.send(&Message::new("T", "yes").tag("标签")).unwrap();
    producer.send(&Message::new("T", "later").tag("a").delay_level(1)).unwrap();
    producer.send(&Message::new("T", "no").tag("c")).unwrap();
    until("two messages", || count.load(Ordering::SeqCst) == 2);
    assert_eq!(*received.lock(), ["yes", "later"]);

    let reader = client.pull_consumer("reader").unwrap();
    let queue = reader.queues("T").unwrap().remove(0);
    let end = reader.max_offset(&queue).unwrap();
    let waiting = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| reader.pull_wait(&queue, "*", end, 1, PATIENCE).unwrap());
        producer.send_to(&Message::new("T", "now"), &queue).unwrap();
        waiter.join().unwrap()
    });
    assert_eq!((waiting.status, waiting.messages.len()), (PullStatus::Found, 1));
    let first_ms = waiting.messages[0].store_timestamp;
    assert_eq!(reader.search_offset(&queue, first_ms).unwrap(), end);
}

#[test]
fn the_broker_is_told_what_it_asks_of_a_consumer() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let receipt = client.producer("p").unwrap().send(&Message::new("T", "x")).unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let consumer = client
        .push_consumer("g")
        .subscribe("T", "*")
        .from(ConsumeFrom::First)
        .start(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            ConsumeStatus::Success
        })
        .unwrap();
    until("the message", || seen.load(Ordering::SeqCst) == 1);
    let asker = cluster.client();
    let ask = |code: i32, header: &dyn CustomHeader| {
        let answer = asker.instance().call(&cluster.broker_address(), code, header, Body::Empty).unwrap();
        String::from_utf8(answer.view().body.to_vec()).unwrap()
    };
    let id = client.instance().client_id();
    let info = ask(307, &[("consumerGroup", "g"), ("clientId", id), ("jstackEnable", "false")]);
    assert!(info.contains(r#"{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"#), "{info}");
    let result = ask(309, &[("consumerGroup", "g"), ("clientId", id), ("msgId", &receipt.offset_message_id), ("topic", "T")]);
    assert!(result.contains("CR_SUCCESS"), "{result}");
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    let status = ask(223, &[("group", "g"), ("topic", "T")]);
    assert!(status.contains(id) && status.contains(r#""queueId":3"#), "{status}");
    consumer.shutdown();
}
