//! A broker killed under load loses nothing it acknowledged, and its queues stay dense.
//!
//! `PETREL_CRASH_ROUNDS` sets the number of rounds (20), `PETREL_CRASH_SEED` the moments of death (printed on failure).
//! A kill keeps the page cache: this is about the death of the process, not of the machine.

mod server;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use petrel::common::record::Record;
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::remoting::code::{request, response};
use petrel::remoting::command::Body;
use petrel::remoting::ext::ExtText;
use petrel::remoting::header::pull::{PullMessageRequest, PullMessageResponse};
use petrel::remoting::header::send::{SendMessageRequest, SendMessageResponse};
use server::Server;

const TOPIC: &str = "Crash";
const QUEUES: i32 = 4;
const SENDERS: usize = 8;
const IN_FLIGHT: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Body of every acknowledged message by queue and queue offset.
type Acknowledged = BTreeMap<(i32, i64), String>;

fn send_header(queue_id: i32) -> SendMessageRequest<'static> {
    SendMessageRequest {
        producer_group: "crash".into(),
        topic: TOPIC.into(),
        default_topic: "TBW102".into(),
        default_topic_queue_nums: QUEUES,
        queue_id,
        sys_flag: 0,
        born_timestamp: 1,
        flag: 0,
        properties: Some(ExtText::Plain("KEYS\u{1}k\u{2}")),
        reconsume_times: 0,
        unit_mode: false,
        max_reconsume_times: None,
        batch: false,
    }
}

/// Sends with a few messages in flight until told to stop or the broker is gone; notes what was acknowledged.
fn send_until_dead(broker: &str, sender: usize, round: usize, stop: &AtomicBool, acknowledged: &Arc<Mutex<Acknowledged>>) {
    let client = RemotingClient::start(RemotingClientConfig::default()).expect("client");
    let in_flight = Arc::new(AtomicUsize::new(0));
    let dead = Arc::new(AtomicBool::new(false));
    let mut sequence = 0;
    while !stop.load(Ordering::Relaxed) && !dead.load(Ordering::Relaxed) {
        if in_flight.load(Ordering::Acquire) >= IN_FLIGHT {
            std::thread::yield_now();
            continue;
        }
        let queue_id = ((sender + sequence) % QUEUES as usize) as i32;
        // Sizes vary so that records straddle pages at many places.
        let body = format!("{round}-{sender}-{sequence}-{}", "x".repeat(sequence * 37 % 3000));
        sequence += 1;
        in_flight.fetch_add(1, Ordering::AcqRel);
        let (in_flight, dead, acknowledged, text) = (in_flight.clone(), dead.clone(), acknowledged.clone(), body.clone());
        let done = Box::new(move |answer: Result<petrel::remoting::command::OwnedCommand, _>| {
            match answer {
                Ok(answer) if answer.view().code == response::SUCCESS => {
                    let header = SendMessageResponse::decode(&answer.view()).expect("a whole response header");
                    let before = acknowledged.lock().unwrap().insert((header.queue_id, header.queue_offset), text);
                    assert_eq!(before, None, "two messages acknowledged at the same offset");
                }
                Ok(_) => {}
                Err(_) => dead.store(true, Ordering::Relaxed),
            }
            in_flight.fetch_sub(1, Ordering::AcqRel);
        });
        client.invoke_async(broker, request::SEND_MESSAGE_V2, &send_header(queue_id), Body::Owned(body.into_bytes()), TIMEOUT, done);
    }
    client.shutdown(); // what waits ends with an error: not acknowledged
}

/// Reads a queue from `from` to its end; every offset must be there, in order.
fn read_queue(client: &RemotingClient, broker: &str, queue_id: i32, from: i64) -> BTreeMap<i64, String> {
    let mut found = BTreeMap::new();
    let mut offset = from;
    loop {
        let header = PullMessageRequest {
            consumer_group: "TOOLS_CONSUMER".into(),
            topic: TOPIC.into(),
            queue_id,
            queue_offset: offset,
            max_msg_nums: 32,
            sys_flag: petrel::common::sysflag::PULL_SUBSCRIPTION,
            subscription: Some("*".into()),
            ..PullMessageRequest::default()
        };
        let answer = client.invoke(broker, request::PULL_MESSAGE, &header, Body::Empty, TIMEOUT).expect("pull is answered");
        let view = answer.view();
        if view.code == response::PULL_NOT_FOUND {
            return found;
        }
        assert_eq!(view.code, response::SUCCESS, "pull of queue {queue_id} at {offset}: {:?}", view.remark);
        let mut rest = view.body;
        while !rest.is_empty() {
            let record = Record::parse(rest).expect("a whole record");
            record.check_crc().expect("an undamaged record");
            assert_eq!(record.queue_offset, offset, "queue {queue_id} has a hole");
            found.insert(offset, String::from_utf8(record.body.to_vec()).expect("text"));
            offset += 1;
            rest = &rest[record.total_size..];
        }
        let next = PullMessageResponse::decode(&view).expect("a whole response header").next_begin_offset;
        assert_eq!(next, offset, "queue {queue_id} is not dense");
    }
}

#[test]
fn killed_brokers_lose_nothing_acknowledged() {
    let rounds = std::env::var("PETREL_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let seed = std::env::var("PETREL_CRASH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("PETREL_CRASH_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().expect("temporary folder");
    let acknowledged = Arc::new(Mutex::new(Acknowledged::new()));
    let mut checked_to: BTreeMap<i32, i64> = BTreeMap::new();

    for round in 0..=rounds {
        let mut server = Server::start(Some(folder.path()));
        let client = RemotingClient::start(RemotingClientConfig::default()).expect("client");
        let expected = acknowledged.lock().unwrap().clone();
        for queue_id in 0..if expected.is_empty() { 0 } else { QUEUES } {
            // The last round reads everything again, the others what is new.
            let from = if round == rounds { 0 } else { *checked_to.get(&queue_id).unwrap_or(&0) };
            let found = read_queue(&client, server.broker(), queue_id, from);
            for ((_, offset), body) in expected.range((queue_id, from)..(queue_id + 1, 0)) {
                assert_eq!(found.get(offset), Some(body), "round {round}: acknowledged message of queue {queue_id} at {offset}");
            }
            checked_to.insert(queue_id, found.keys().next_back().map_or(from, |last| last + 1));
        }
        client.shutdown();
        if round == rounds {
            break;
        }
        let stop = AtomicBool::new(false);
        let broker = server.broker().to_owned();
        let life = Duration::from_millis(rng.u64(30..250));
        std::thread::scope(|scope| {
            for sender in 0..SENDERS {
                let (stop, broker, acknowledged) = (&stop, &broker, &acknowledged);
                scope.spawn(move || send_until_dead(broker, sender, round, stop, acknowledged));
            }
            let born = Instant::now();
            while born.elapsed() < life {
                std::thread::sleep(life - born.elapsed().min(life)); // the moment of death, not a wait for a condition
            }
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
    }
    let total = acknowledged.lock().unwrap().len();
    println!("{rounds} rounds, {total} messages acknowledged and found");
    assert!(total > rounds * 20, "only {total} messages were acknowledged: the test did not load the broker");
}
