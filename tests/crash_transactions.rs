//! A broker killed in the middle of transactions: what was decided before is never asked about again, and a commit that is repeated
//! after the crash leaves one message, whether the first had come through or not.
//!
//! `PETREL_CRASH_ROUNDS` sets the number of rounds (6), `PETREL_CRASH_SEED` the moments of death (printed on failure).

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use petrel::common::record::Record;
use petrel::common::{message_id, properties};
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::remoting::body::heartbeat::HeartbeatData;
use petrel::remoting::code::{request, response};
use petrel::remoting::command::Body;
use petrel::remoting::header::pull::{PullMessageRequest, PullMessageResponse};
use petrel::remoting::header::transaction::{CheckTransactionState, EndTransactionRequest};
use server::Launch;

const TOPIC: &str = "CrashTransactions";
const GROUP: &str = "crash-transactions";
const SENDERS: usize = 4;
const COMMIT: i32 = 8;
const ROLLBACK: i32 = 12;
const TIMEOUT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

/// What the producer knows of a half message that was acknowledged.
#[derive(Clone, Debug)]
struct Half {
    offset: i64,
    physical_offset: i64,
    /// What it decides; `None`: nothing before it is asked in the last round.
    wish: Option<i32>,
    /// The broker has acknowledged the decision.
    decided: bool,
}

type Halves = BTreeMap<String, Half>;

/// A connected producer that notes which half messages it is asked about.
struct Producer {
    client: RemotingClient,
    broker: String,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Producer {
    fn connect(broker: &str) -> Self {
        let asked = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
        let notes = Arc::clone(&asked);
        let push_handler: petrel::net::client::PushHandler = Arc::new(move |request, responder| {
            responder.silent();
            if request.code == request::CHECK_TRANSACTION_STATE {
                let header = CheckTransactionState::decode(request).expect("a whole header");
                *notes.lock().unwrap().entry(header.unique_key.into_owned()).or_default() += 1;
            }
        });
        let config = RemotingClientConfig { push_handler: Some(push_handler), ..RemotingClientConfig::default() };
        let client = RemotingClient::start(config).expect("client");
        let heartbeat = HeartbeatData { client_id: "crash".to_owned(), producers: vec![GROUP.to_owned()], ..HeartbeatData::default() };
        client.invoke(broker, request::HEART_BEAT, &(), heartbeat.to_json().into(), TIMEOUT).expect("heartbeat");
        Self { client, broker: broker.to_owned(), asked }
    }

    /// Code and remark of the answer; `None` when the broker is gone.
    fn end(&self, key: &str, half: &Half, decision: i32) -> Option<(i32, String)> {
        let header = EndTransactionRequest {
            producer_group: GROUP.into(),
            tran_state_table_offset: half.offset,
            commit_log_offset: half.physical_offset,
            commit_or_rollback: decision,
            from_transaction_check: true,
            msg_id: key.into(),
            transaction_id: None,
        };
        let answer = self.client.invoke(&self.broker, request::END_TRANSACTION, &header, Body::Empty, TIMEOUT).ok()?;
        let view = answer.view();
        Some((view.code, view.remark.unwrap_or_default().into_owned()))
    }

    fn send(&self, key: &str) -> Option<Half> {
        let mut text = String::new();
        for (name, value) in [("UNIQ_KEY", key), ("TRAN_MSG", "true"), ("PGROUP", GROUP)] {
            properties::push(&mut text, name, value);
        }
        let fields =
            [("a", GROUP), ("b", TOPIC), ("c", "TBW102"), ("d", "1"), ("e", "0"), ("f", "4"), ("g", "1"), ("h", "0"), ("i", &text)];
        let body = Body::Owned(key.as_bytes().to_vec());
        let answer = self.client.invoke(&self.broker, request::SEND_MESSAGE_V2, &fields, body, TIMEOUT).ok()?;
        let view = answer.view();
        if view.code != response::SUCCESS {
            return None;
        }
        let (_, physical_offset) = message_id::parse(&view.ext.text("msgId")?)?;
        let offset = view.ext.text("queueOffset")?.parse().ok()?;
        Some(Half { offset, physical_offset, wish: None, decided: false })
    }
}

/// Sends half messages and decides most of them, until the broker is gone.
fn work_until_dead(broker: &str, name: &str, stop: &AtomicBool, halves: &Mutex<Halves>) {
    let producer = Producer::connect(broker);
    for sequence in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{name}-{sequence}");
        let Some(mut half) = producer.send(&key) else { return };
        half.wish = [Some(COMMIT), Some(COMMIT), Some(ROLLBACK), None][sequence % 4];
        halves.lock().unwrap().insert(key.clone(), half.clone());
        let Some(wish) = half.wish else { continue };
        match producer.end(&key, &half, wish) {
            Some((code, remark)) => assert_eq!(code, response::SUCCESS, "{key}: {remark}"),
            None => return, // it may be decided, or not
        }
        halves.lock().unwrap().get_mut(&key).expect("just put there").decided = true;
    }
}

/// How often each key is in the topic.
fn read_topic(client: &RemotingClient, broker: &str) -> BTreeMap<String, usize> {
    let (mut found, mut offset) = (BTreeMap::new(), 0);
    loop {
        let header = PullMessageRequest {
            consumer_group: "TOOLS_CONSUMER".into(),
            topic: TOPIC.into(),
            queue_id: 0,
            queue_offset: offset,
            max_msg_nums: 32,
            sys_flag: petrel::common::sysflag::PULL_SUBSCRIPTION,
            subscription: Some("*".into()),
            ..PullMessageRequest::default()
        };
        let answer = client.invoke(broker, request::PULL_MESSAGE, &header, Body::Empty, TIMEOUT).expect("pull is answered");
        let view = answer.view();
        if view.code != response::SUCCESS {
            return found;
        }
        let mut rest = view.body;
        while !rest.is_empty() {
            let record = Record::parse(rest).expect("a whole record");
            *found.entry(String::from_utf8(record.body.to_vec()).expect("text")).or_default() += 1;
            rest = &rest[record.total_size..];
        }
        offset = PullMessageResponse::decode(&view).expect("a whole response header").next_begin_offset;
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// After a crash: repeats what was not acknowledged, and looks at what is there.
fn settle(producer: &Producer, halves: &mut Halves) {
    for (key, half) in halves.iter_mut().filter(|(_, half)| !half.decided) {
        let Some(wish) = half.wish else { continue };
        let (code, remark) = producer.end(key, half, wish).expect("the broker lives");
        assert_eq!(code, response::SUCCESS, "{key}: {remark}");
        half.decided = true;
    }
    let committed = |half: &Half| half.decided && half.wish == Some(COMMIT);
    let expected: BTreeSet<&String> = halves.iter().filter(|(_, half)| committed(half)).map(|(key, _)| key).collect();
    let mut found = BTreeMap::new();
    until("all committed messages", || {
        found = read_topic(&producer.client, &producer.broker);
        found.len() >= expected.len()
    });
    let twice: Vec<_> = found.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "committed once, there more than once: {twice:?}");
    // One that was committed but whose half message was never acknowledged to us cannot be: nobody could commit it.
    assert_eq!(found.keys().collect::<BTreeSet<_>>(), expected, "exactly what was committed");
}

#[test]
fn transactions_survive_kills() {
    let rounds = std::env::var("PETREL_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let seed = std::env::var("PETREL_CRASH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("PETREL_CRASH_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().expect("temporary folder");
    let halves = Mutex::new(Halves::new());
    for round in 0..=rounds {
        let launch = Launch::on(folder.path()).set("transactionTimeOut", 1).set("transactionCheckInterval", 50);
        let mut server = launch.set("transactionCheckMax", 1_000_000).start();
        let broker = server.broker().to_owned();
        let decided_before: BTreeSet<String> =
            halves.lock().unwrap().iter().filter(|(_, half)| half.decided).map(|(key, _)| key.clone()).collect();
        let producer = Producer::connect(&broker);
        settle(&producer, &mut halves.lock().unwrap());
        // Each that is pending is asked about at least twice: whatever is to be asked about at all was.
        let pending: Vec<String> = halves.lock().unwrap().iter().filter(|(_, half)| !half.decided).map(|(key, _)| key.clone()).collect();
        until("questions about what is pending", || {
            let asked = producer.asked.lock().unwrap();
            pending.iter().all(|key| asked.get(key).is_some_and(|times| *times >= 2))
        });
        let wrong: Vec<String> = producer.asked.lock().unwrap().keys().filter(|key| decided_before.contains(*key)).cloned().collect();
        assert!(wrong.is_empty(), "round {round}: asked about what was decided before the crash: {wrong:?}");
        if round == rounds {
            let mut halves = halves.lock().unwrap();
            halves.values_mut().filter(|half| half.wish.is_none()).for_each(|half| half.wish = Some(COMMIT));
            settle(&producer, &mut halves);
            println!("{rounds} rounds, {} transactions", halves.len());
            assert!(halves.len() > rounds * 8, "only {} transactions: the test did not load the broker", halves.len());
            return;
        }
        producer.client.shutdown();
        let stop = AtomicBool::new(false);
        let life = Duration::from_millis(rng.u64(60..300));
        std::thread::scope(|scope| {
            for sender in 0..SENDERS {
                let (stop, broker, halves) = (&stop, &broker, &halves);
                scope.spawn(move || work_until_dead(broker, &format!("{round}-{sender}"), stop, halves));
            }
            let born = Instant::now();
            while born.elapsed() < life {
                std::thread::sleep(life - born.elapsed().min(life)); // the moment of death, not a wait for a condition
            }
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
    }
}
