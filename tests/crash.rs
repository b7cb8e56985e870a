//! A broker killed under load loses nothing it acknowledged and takes back nothing it showed, and its queues stay dense.
//!
//! `PETREL_CRASH_ROUNDS` sets the number of rounds (20) of each test, `PETREL_CRASH_SEED` the moments of death (printed).
//! A kill keeps the page cache: this is about the death of the process, not of the machine.
//! - Senders of single messages, batches and delayed messages, one whose topic is made under way and one whose topic is
//!   deleted under way; a consumer that remembers what it was shown; log files so small that they roll all the time.
//! - Deaths come at any moment: under load, while files are deleted, while the next process starts and recovers.

mod server;
mod wire;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::bounded;
use petrel::net::connection::InvokeError;
use petrel::remoting::code::{request, response};
use petrel::remoting::command::{Body, OwnedCommand};
use petrel::remoting::header::send::SendMessageResponse;
use server::Launch;
use wire::{Message, PATIENCE, QUEUES, Wire};

const TOPIC: &str = "Crash";
const DELAYED: &str = "CrashDelayed";
const DOOMED: &str = "CrashDoomed";
const GROUP: &str = "crash-group";
/// Where delayed messages wait.
const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
const SINGLE_SENDERS: usize = 3;
const IN_FLIGHT: usize = 8;
/// So that the log rolls many times a second.
const LOG_FILE_BYTES: usize = 256 << 10;
const QUEUE_FILE_BYTES: usize = 20 * 100;

/// Topic and queue id.
type Queue = (String, i32);
/// Body by queue offset.
type Bodies = BTreeMap<i64, String>;
type Book = BTreeMap<Queue, Bodies>;

/// What the outside knows.
#[derive(Default)]
struct Known {
    acknowledged: Mutex<Book>,
    shown: Mutex<Book>,
    /// Keys of acknowledged messages, with their queue and offset.
    keys: Mutex<Vec<(String, Queue, i64)>>,
    /// Bodies of delayed messages that were acknowledged.
    delayed: Mutex<HashSet<String>>,
    /// Offsets that were sent to be committed: the last, by queue.
    committed: Mutex<BTreeMap<i32, i64>>,
    doomed: Mutex<Doomed>,
}

/// A topic that is deleted again and again by its only sender.
#[derive(Default)]
struct Doomed {
    acknowledged: BTreeMap<i32, Bodies>,
    /// A deletion was asked for and not answered.
    deleting: bool,
}

/// What ends a round's senders: the broker's death, or the end of the round.
#[derive(Clone, Default)]
struct Over(Arc<AtomicBool>);

impl Over {
    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The answer, unless the broker is gone.
    fn unless<T>(&self, result: Result<T, InvokeError>) -> Option<T> {
        if result.is_err() {
            self.0.store(true, Ordering::Relaxed);
        }
        result.ok()
    }
}

/// Everything one round's threads share.
#[derive(Clone, Copy)]
struct Round<'a> {
    number: usize,
    address: &'a str,
    known: &'a Arc<Known>,
    over: &'a Over,
}

fn note(book: &mut Book, queue: Queue, offset: i64, body: String) {
    let place = book.entry(queue.clone()).or_default();
    if let Some(before) = place.insert(offset, body.clone()) {
        assert_eq!(before, body, "two messages at {queue:?} {offset}");
    }
}

/// Sizes vary so that records straddle pages at many places.
fn body(kind: &str, round: usize, sender: usize, sequence: usize) -> String {
    format!("{kind}-{round}-{sender}-{sequence}-{}", "x".repeat(sequence * 37 % 3000))
}

impl Round<'_> {
    /// Sends with a few messages in flight.
    fn singles(self, sender: usize) {
        let wire = Wire::to(self.address);
        let (give, take) = bounded(IN_FLIGHT);
        (0..IN_FLIGHT).for_each(|_| give.send(()).expect("room"));
        for sequence in 0.. {
            while take.recv_timeout(Duration::from_millis(10)).is_err() {
                if self.over.is() {
                    return;
                }
            }
            if self.over.is() {
                return;
            }
            let key = format!("k{}-{sender}-{sequence}", self.number);
            let queue_id = ((sender + sequence) % QUEUES as usize) as i32;
            let message = Message::new(TOPIC, queue_id, body("single", self.number, sender, sequence)).property("KEYS", key.clone());
            let (give, over, known, text) = (give.clone(), self.over.clone(), Arc::clone(self.known), message.body.clone());
            let done = Box::new(move |answer: Result<OwnedCommand, InvokeError>| {
                if let Some(answer) = over.unless(answer)
                    && answer.view().code == response::SUCCESS
                {
                    let header = SendMessageResponse::decode(&answer.view()).expect("a whole response header");
                    let queue = (TOPIC.to_owned(), header.queue_id);
                    note(&mut known.acknowledged.lock().unwrap(), queue.clone(), header.queue_offset, text);
                    known.keys.lock().unwrap().push((key, queue, header.queue_offset));
                }
                let _ = give.try_send(()); // the sender may be gone
            });
            let body = Body::Owned(message.body.clone().into_bytes());
            wire.client.invoke_async(self.address, request::SEND_MESSAGE_V2, &message.header(false), body, PATIENCE, done);
        }
    }

    fn batches(self) {
        let wire = Wire::to(self.address);
        let mut sequence = 0;
        while !self.over.is() {
            let messages: Vec<Message> = (0..1 + sequence % 9)
                .map(|place| Message::new(TOPIC, (sequence % 4) as i32, body("batch", self.number, sequence, place * 11)))
                .collect();
            sequence += 1;
            let Some(answer) = self.over.unless(wire.try_send_batch(&messages)) else { return };
            if answer.code() == response::SUCCESS {
                let (queue, first) = ((TOPIC.to_owned(), answer.number("queueId") as i32), answer.number("queueOffset"));
                let mut book = self.known.acknowledged.lock().unwrap();
                for (message, offset) in messages.into_iter().zip(first..) {
                    note(&mut book, queue.clone(), offset, message.body);
                }
            }
        }
    }

    fn delayed(self) {
        let wire = Wire::to(self.address);
        for sequence in 0.. {
            let level = 1 + sequence % 2;
            let message = Message::new(DELAYED, (sequence % 4) as i32, body("delayed", self.number, 0, sequence))
                .property("DELAY", level.to_string());
            let Some(answer) = self.over.unless(wire.try_send(&message)) else { return };
            if answer.code() == response::SUCCESS {
                let queue = (SCHEDULE_TOPIC.to_owned(), level as i32 - 1);
                note(&mut self.known.acknowledged.lock().unwrap(), queue, answer.number("queueOffset"), message.body.clone());
                self.known.delayed.lock().unwrap().insert(message.body);
            }
            if self.over.is() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2)); // the load is the others'
        }
    }

    /// A topic that did not exist before this round.
    fn born(self) {
        let wire = Wire::to(self.address);
        let topic = format!("CrashBorn{}", self.number);
        for sequence in 0.. {
            let message = Message::new(&topic, (sequence % 3) as i32, body("born", self.number, 0, sequence));
            let Some(answer) = self.over.unless(wire.try_send(&message)) else { return };
            if answer.code() == response::SUCCESS {
                let queue = (topic.clone(), answer.number("queueId") as i32);
                note(&mut self.known.acknowledged.lock().unwrap(), queue, answer.number("queueOffset"), message.body);
            }
            if self.over.is() {
                return;
            }
        }
    }

    fn doomed(self) {
        let wire = Wire::to(self.address);
        for sequence in 0.. {
            let mut doomed = self.known.doomed.lock().unwrap();
            if sequence % 17 == 16 {
                doomed.deleting = true;
                if self.delete(&wire, &mut doomed).is_none() {
                    return;
                }
            }
            let message = Message::new(DOOMED, (sequence % 3) as i32, body("doomed", self.number, 0, sequence));
            let Some(answer) = self.over.unless(wire.try_send(&message)) else { return };
            if answer.code() == response::SUCCESS {
                let bodies = doomed.acknowledged.entry(message.queue_id).or_default();
                assert!(bodies.insert(answer.number("queueOffset"), message.body).is_none(), "an offset was given twice");
            }
            if self.over.is() {
                return;
            }
        }
    }

    fn delete(self, wire: &Wire, doomed: &mut Doomed) -> Option<()> {
        let answer = self.over.unless(wire.try_ask(request::DELETE_TOPIC_IN_BROKER, &[("topic", DOOMED)]))?;
        answer.expect(response::SUCCESS);
        *doomed = Doomed::default();
        Some(())
    }

    /// Reads one queue as the messages come, and commits.
    fn consume(self, queue_id: i32) {
        let mut wire = Wire::to(self.address);
        wire.group = GROUP;
        let mut offset = self.known.committed.lock().unwrap().get(&queue_id).copied().unwrap_or(0);
        while !self.over.is() {
            let Some(pulled) = self.over.unless(wire.try_pull(TOPIC, queue_id, offset)) else { return };
            if pulled.messages.is_empty() {
                offset = if pulled.code == response::PULL_OFFSET_MOVED { pulled.next } else { offset };
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            offset = pulled.next;
            let mut shown = self.known.shown.lock().unwrap();
            pulled.messages.into_iter().for_each(|(at, body)| note(&mut shown, (TOPIC.to_owned(), queue_id), at, body));
            drop(shown);
            self.known.committed.lock().unwrap().insert(queue_id, offset);
            let (queue_id, offset) = (queue_id.to_string(), offset.to_string());
            let fields = [("consumerGroup", GROUP), ("topic", TOPIC), ("queueId", &queue_id), ("commitOffset", &offset)];
            let Some(answer) = self.over.unless(wire.try_ask(request::UPDATE_CONSUMER_OFFSET, &fields)) else { return };
            answer.expect(response::SUCCESS);
        }
    }

    /// Everything but the last file of the log may go at any time.
    fn clean(self) {
        let wire = Wire::to(self.address);
        while !self.over.is() {
            let Some(answer) = self.over.unless(wire.try_ask(request::DELETE_EXPIRED_COMMITLOG, &[])) else { return };
            answer.expect(response::SUCCESS);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Looks at what a start brought back. `from`: what need not be read again, by queue.
    fn check(self, from: &mut BTreeMap<Queue, i64>, minima: &mut BTreeMap<Queue, i64>, may_be_cleaned: bool, last: bool) {
        let wire = Wire::to(self.address);
        let (acknowledged, shown) = (self.known.acknowledged.lock().unwrap().clone(), self.known.shown.lock().unwrap().clone());
        for (queue, expected) in &acknowledged {
            let (topic, queue_id) = queue;
            let start = if last { 0 } else { from.get(queue).copied().unwrap_or(0) };
            let (min, found) = wire.read_queue(topic, *queue_id, start);
            let before = minima.insert(queue.clone(), min).unwrap_or(0);
            assert!(min == before || may_be_cleaned && min > before, "round {}: {queue:?} begins at {min}, not {before}", self.number);
            let none = Bodies::new();
            for (offset, body) in expected.range(start.max(min)..).chain(shown.get(queue).unwrap_or(&none).range(start.max(min)..)) {
                let place = found.binary_search_by_key(offset, |(at, _)| *at);
                let there = place.ok().map(|place| &found[place].1);
                assert_eq!(there, Some(body), "round {}: message of {queue:?} at {offset}", self.number);
            }
            let different: HashSet<&String> = found.iter().map(|(_, body)| body).collect();
            assert_eq!(different.len(), found.len(), "round {}: {queue:?} holds a message twice", self.number);
            from.insert(queue.clone(), found.last().map_or(start.max(min), |(at, _)| at + 1));
        }
        self.check_committed(&wire);
        self.check_doomed(&wire, may_be_cleaned || minima.values().any(|min| *min > 0));
        if last {
            self.check_keys(&wire, minima);
            self.check_delayed(&wire, minima);
        }
    }

    fn check_committed(self, wire: &Wire) {
        for (queue_id, sent) in self.known.committed.lock().unwrap().iter() {
            let fields = [("consumerGroup", GROUP), ("topic", TOPIC), ("queueId", &queue_id.to_string())];
            let answer = wire.call(request::QUERY_CONSUMER_OFFSET, &fields);
            if answer.code() == response::SUCCESS {
                let (stored, max) = (answer.number("offset"), wire.max_offset(TOPIC, *queue_id));
                assert!(stored <= *sent && stored <= max, "queue {queue_id}: offset {stored}, committed {sent}, max {max}");
            }
        }
    }

    /// A deletion that was answered holds; one that was not is done wholly or not at all.
    fn check_doomed(self, wire: &Wire, was_cleaned: bool) {
        let mut doomed = self.known.doomed.lock().unwrap();
        let exists = wire.pull(DOOMED, 0, 0).code != response::TOPIC_NOT_EXIST;
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        for (queue_id, expected) in &doomed.acknowledged {
            let (min, found) = if exists { wire.read_queue(DOOMED, *queue_id, 0) } else { (0, Vec::new()) };
            let found: Bodies = found.into_iter().collect();
            assert!(min == 0 || was_cleaned, "queue {queue_id} begins at {min}");
            for (offset, body) in expected.range(min..) {
                let list = if found.get(offset) == Some(body) { &mut present } else { &mut absent };
                list.push((*queue_id, *offset));
            }
        }
        if !doomed.deleting {
            assert!(absent.is_empty(), "round {}: messages of {DOOMED} are gone: {absent:?}", self.number);
            return;
        }
        assert!(present.is_empty() || absent.is_empty(), "round {}: half a deletion: {present:?} {absent:?}", self.number);
        self.delete(wire, &mut doomed).expect("the broker lives");
        drop(doomed);
        assert_eq!(wire.pull(DOOMED, 0, 0).code, response::TOPIC_NOT_EXIST, "deleted");
    }

    /// A sample of what the index must know.
    fn check_keys(self, wire: &Wire, minima: &BTreeMap<Queue, i64>) {
        let keys = self.known.keys.lock().unwrap();
        let there = keys.iter().filter(|(_, queue, offset)| minima.get(queue).is_some_and(|min| offset >= min)).collect::<Vec<_>>();
        for (key, queue, offset) in there.iter().step_by((there.len() / 200).max(1)) {
            let (end, max) = (i64::MAX.to_string(), "32");
            let fields = [("topic", TOPIC), ("key", key.as_str()), ("maxNum", max), ("beginTimestamp", "0"), ("endTimestamp", &end)];
            let answer = wire.call(request::QUERY_MESSAGE, &fields);
            assert_eq!(answer.code(), response::SUCCESS, "key {key} of {queue:?} {offset}: {}", answer.remark());
        }
    }

    /// Delayed messages come at least once.
    fn check_delayed(self, wire: &Wire, minima: &BTreeMap<Queue, i64>) {
        let cleaned = minima.iter().any(|((topic, _), min)| topic == SCHEDULE_TOPIC && *min > 0);
        let delayed = self.known.delayed.lock().unwrap();
        let missing = || {
            let mut missing: HashSet<&String> = delayed.iter().collect();
            for queue_id in 0..QUEUES {
                let (min, found) = wire.read_queue(DELAYED, queue_id, 0);
                assert!(min == 0 || cleaned, "{DELAYED} {queue_id} begins at {min}");
                found.iter().for_each(|(_, body)| {
                    missing.remove(body);
                });
            }
            missing.len()
        };
        if !cleaned {
            wire::until("all delayed messages", PATIENCE, || missing() == 0);
        }
    }
}

fn launch(folder: &Path, flush: &str, cleans: bool) -> Launch {
    Launch::on(folder)
        .set("flushDiskType", flush)
        .set("mappedFileSizeCommitLog", LOG_FILE_BYTES)
        .set("mappedFileSizeConsumeQueue", QUEUE_FILE_BYTES)
        .set("maxHashSlotNum", 1000)
        .set("maxIndexNum", 4000)
        .set("messageDelayLevel", "1s 2s")
        .set("diskFreeReserveBytes", 0)
        .set("fileReservedTime", if cleans { 0 } else { 72 })
}

/// Kills some processes while they start.
fn die_while_starting(launch: &Launch, rng: &mut fastrand::Rng) {
    for _ in 0..rng.usize(0..3) {
        let mut child = launch.spawn();
        std::thread::sleep(Duration::from_millis(rng.u64(0..60))); // the moment of death, not a wait for a condition
        child.kill().expect("SIGKILL");
        child.wait().expect("the process ends");
    }
}

fn kill_again_and_again(flush: &str, cleaning: bool) {
    let rounds: usize = std::env::var("PETREL_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let seed = std::env::var("PETREL_CRASH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("PETREL_CRASH_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().expect("temporary folder");
    let known = Arc::new(Known::default());
    let (mut from, mut minima) = (BTreeMap::new(), BTreeMap::new());
    let mut cleaned = false;

    for number in 0..=rounds {
        let last = number == rounds;
        let cleans = cleaning && !last && rng.u8(0..5) == 0;
        let flush = if cleaning && rng.bool() { "ASYNC_FLUSH" } else { flush };
        let launch = launch(folder.path(), flush, cleans);
        if number > 0 && rng.u8(0..3) == 0 {
            die_while_starting(&launch, &mut rng);
        }
        let mut server = launch.start();
        let address = server.broker().to_owned();
        let over = Over::default();
        let round = Round { number, address: &address, known: &known, over: &over };
        round.check(&mut from, &mut minima, cleaned || cleans, last);
        if last {
            break;
        }
        cleaned = cleans;
        let life = Duration::from_millis(rng.u64(20..250));
        std::thread::scope(|scope| {
            (0..SINGLE_SENDERS).for_each(|sender| drop(scope.spawn(move || round.singles(sender))));
            scope.spawn(move || round.batches());
            scope.spawn(move || round.delayed());
            scope.spawn(move || round.born());
            scope.spawn(move || round.doomed());
            (0..QUEUES).for_each(|queue_id| drop(scope.spawn(move || round.consume(queue_id))));
            if cleans {
                scope.spawn(move || round.clean());
            }
            std::thread::sleep(life); // the moment of death, not a wait for a condition
            server.kill();
            over.0.store(true, Ordering::Relaxed);
        });
    }
    let count = |book: &Mutex<Book>| book.lock().unwrap().values().map(BTreeMap::len).sum::<usize>();
    let (acknowledged, shown) = (count(&known.acknowledged), count(&known.shown));
    println!("{flush}: {rounds} rounds, {acknowledged} messages acknowledged and found, {shown} shown before");
    assert!(acknowledged > rounds * 20, "only {acknowledged} messages were acknowledged: the test did not load the broker");
    assert!(shown > rounds, "only {shown} messages were shown: nobody consumed");
}

#[test]
fn killed_brokers_lose_nothing_with_sync_flush() {
    kill_again_and_again("SYNC_FLUSH", false);
}

#[test]
fn killed_brokers_lose_nothing_with_async_flush() {
    kill_again_and_again("ASYNC_FLUSH", false);
}

#[test]
fn brokers_killed_while_they_delete_files_lose_nothing_else() {
    kill_again_and_again("SYNC_FLUSH", true);
}
