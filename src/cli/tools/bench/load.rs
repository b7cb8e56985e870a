//! Whole loads against one broker: send, pull, and end to end.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::bounded;

use crate::runtime::thread::Thread;

use super::driver::{self, Plan, Work};
use super::frame::Shape;
use super::histogram::{Latencies, Outcome};
use super::pace::Pace;
use super::target::Target;
use super::work::{PullWork, Receiving, SendWork, Stretch};

/// Connections, requests in flight on each, and messages of a request, with which a backlog is made.
const FILL: (usize, usize, usize) = (2, 4, 32);
/// How long an end-to-end load waits for its last messages.
const LAST_MESSAGES: Duration = Duration::from_secs(20);

/// What a load is.
#[derive(Clone, Debug)]
pub struct Load {
    pub topic: String,
    pub queues: i32,
    pub connections: usize,
    pub pipeline: usize,
    pub body_bytes: usize,
    /// Messages of a send, or most messages of a pull.
    pub batch: usize,
    pub oneway: bool,
    pub warm_up: Duration,
    /// Time measured, after the warm-up.
    pub time: Duration,
    /// Messages at most.
    pub count: Option<u64>,
    /// Open loop: messages per second.
    pub rate: Option<f64>,
    pub threads: usize,
    /// Messages that a pull load wants to find.
    pub backlog: u64,
    /// Bytes of requests at most.
    pub max_bytes: Option<u64>,
}

/// What an end-to-end load came to.
pub struct EndToEnd {
    /// From the moment a message was due to be sent until it was received.
    pub received: Outcome,
    /// The sends themselves.
    pub sent: Outcome,
}

impl Load {
    fn shape(&self) -> Shape {
        Shape { topic: self.topic.clone(), body_bytes: self.body_bytes, batch: self.batch, oneway: self.oneway }
    }

    /// The plan of thread `part` of `parts`, for requests of so many bytes and messages.
    fn plan(&self, start: Instant, part: usize, parts: usize, request_bytes: usize, messages: usize) -> Plan {
        let by_count = self.count.map_or(u64::MAX, |count| count.div_ceil(messages as u64));
        let by_bytes = self.max_bytes.map_or(u64::MAX, |bytes| (bytes / request_bytes.max(1) as u64).max(1));
        let requests = by_count.min(by_bytes);
        let share =
            if requests == u64::MAX { u64::MAX } else { requests / parts as u64 + u64::from((part as u64) < requests % parts as u64) };
        // A load that ends by count is measured whole.
        let warm_up = if self.count.is_some() { Duration::ZERO } else { self.warm_up };
        Plan {
            start,
            warm_up,
            end: if self.count.is_some() { Duration::from_secs(24 * 3600) } else { warm_up + self.time },
            max_requests: share,
            pace: self.rate.map(|rate| Pace::new(rate / messages as f64, part, parts)),
            drain: true,
        }
    }

    fn parts(&self) -> usize {
        self.threads.clamp(1, self.connections)
    }
}

/// Sends, and checks afterwards that the queues grew by what was sent. One-way messages that are missing are told in the outcome: a broker
/// under pressure may drop them.
///
/// # Errors
/// The first wrong answer, or answered messages missing at the end.
pub fn send(target: &Target, load: &Load) -> Result<Outcome, String> {
    target.make_topic(&load.topic, load.queues)?;
    let before = target.total(&load.topic, load.queues)?;
    let mut outcome = send_only(target, load, Instant::now(), None)?;
    let expected = before + outcome.all_messages as i64;
    let there = target.await_total(&load.topic, load.queues, expected)?;
    if there < expected && load.oneway {
        outcome.lose((expected - there) as u64);
    } else if there < expected {
        return Err(format!("{} messages were answered SEND_OK, the queues grew by {}", outcome.all_messages, there - before));
    }
    Ok(outcome)
}

fn send_only(target: &Target, load: &Load, start: Instant, stamp: Option<u64>) -> Result<Outcome, String> {
    let shape = load.shape();
    let seed = fastrand::u64(..1 << 24) << 8;
    let works: Vec<SendWork> =
        (0..load.connections).map(|link| SendWork::new(&shape, load.queues, seed + link as u64, load.pipeline, stamp)).collect();
    let request_bytes = works.first().map_or(0, SendWork::request_len);
    let parts = load.parts();
    let plans = (0..parts).map(|part| load.plan(start, part, parts, request_bytes, load.batch)).collect();
    run_parts(target.connect(load.connections)?, works, load.pipeline, plans)
}

/// Pulls a backlog, which is made first when it is not there.
///
/// # Errors
/// The first wrong answer.
pub fn pull(target: &Target, load: &Load) -> Result<Outcome, String> {
    fill(target, load)?;
    let ranges = filled_queues(target, load)?;
    let works: Vec<PullWork> = (0..load.connections)
        .map(|link| {
            let stretches = stretches(&ranges, link * load.pipeline, load.pipeline, load.connections * load.pipeline);
            PullWork::new(&load.topic, stretches, load.batch as i32, Some(load.body_bytes))
        })
        .collect();
    let parts = load.parts();
    let plans = (0..parts).map(|part| load.plan(Instant::now(), part, parts, 0, load.batch)).collect();
    run_parts(target.connect(load.connections)?, works, load.pipeline, plans)
}

/// Queues that hold messages, with their ranges.
fn filled_queues(target: &Target, load: &Load) -> Result<Vec<(i32, i64, i64)>, String> {
    let mut ranges = Vec::new();
    for queue in 0..load.queues {
        let (min, end) = target.range(&load.topic, queue)?;
        if end > min {
            ranges.push((queue, min, end));
        }
    }
    if ranges.is_empty() { Err(format!("topic {} holds no messages", load.topic)) } else { Ok(ranges) }
}

/// What the slots `first..first + count` of `all` read: every slot one queue from its own place on, spread evenly.
fn stretches(ranges: &[(i32, i64, i64)], first: usize, count: usize, all: usize) -> Vec<Stretch> {
    (first..first + count)
        .map(|slot| {
            let (queue_id, start, end) = ranges[slot % ranges.len()];
            let (turn, turns) = ((slot / ranges.len()) as i64, all.div_ceil(ranges.len()) as i64);
            Stretch { queue_id, at: start + (end - start) * turn / turns, start, end: Some(end) }
        })
        .collect()
}

fn fill(target: &Target, load: &Load) -> Result<(), String> {
    target.make_topic(&load.topic, load.queues)?;
    let there: i64 =
        (0..load.queues).map(|queue| target.range(&load.topic, queue).map(|(min, end)| end - min)).sum::<Result<i64, String>>()?;
    let missing = load.backlog.saturating_sub(there.max(0) as u64);
    if missing == 0 {
        return Ok(());
    }
    let (connections, pipeline, batch) = FILL;
    let filling = Load { connections, pipeline, batch, oneway: false, count: Some(missing), rate: None, max_bytes: None, ..load.clone() };
    send(target, &filling).map(|_| ())
}

/// Sends at a rate and receives, in this process; both on the same clock.
///
/// # Errors
/// The first wrong answer, or messages that do not come.
pub fn end_to_end(target: &Target, load: &Load) -> Result<EndToEnd, String> {
    target.make_topic(&load.topic, load.queues)?;
    let run = fastrand::u64(..);
    let start = Instant::now();
    let (received, expected) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let warm_up = load.plan(start, 0, 1, 1, 1).warm_up;
    let receiving = Receiving {
        run,
        received: received.clone(),
        expected: expected.clone(),
        latencies: Latencies::default(),
        warm_up_ns: warm_up.as_nanos() as u64,
        measured: 0,
    };
    let mut growing = Vec::new();
    for queue_id in 0..load.queues {
        let (_, end) = target.range(&load.topic, queue_id)?;
        growing.push(Stretch { queue_id, at: end, start: end, end: None });
    }
    let work = PullWork::new(&load.topic, growing, 32, None).receiving(receiving);
    let streams = target.connect(1)?;
    let end = load.plan(start, 0, 1, 1, 1).end + LAST_MESSAGES;
    let plan = Plan { start, warm_up: Duration::ZERO, end, max_requests: u64::MAX, pace: None, drain: false };
    let (done, result) = bounded(1);
    let slots = load.queues as usize;
    let receiver = Thread::spawn("bench", "receive", move || {
        let _ = done.send(driver::run_keeping(streams, vec![work], slots, plan)); // the other end waits, unless it failed itself
    })
    .map_err(|error| format!("cannot start a thread: {error}"))?;
    let sent = send_only(target, load, start, Some(run));
    // Also when sending failed: the receiver must end.
    expected.store(sent.as_ref().map_or(0, |sent| sent.all_messages), Ordering::Release);
    let outcome = result.recv().map_err(|_| "the receiving thread ended without a result".to_owned());
    receiver.join();
    let (mut outcome, works) = outcome??;
    let sent = sent?;
    let came = received.load(Ordering::Relaxed);
    if came != sent.all_messages {
        return Err(format!("{} messages were sent, {came} received", sent.all_messages));
    }
    if let Some(receiving) = works.into_iter().next().and_then(PullWork::into_receiving) {
        outcome.messages = receiving.measured;
        outcome.body_bytes = receiving.measured * load.body_bytes as u64;
        outcome.latencies = receiving.latencies;
        outcome.elapsed_ns = outcome.elapsed_ns.saturating_sub(warm_up.as_nanos() as u64);
    }
    Ok(EndToEnd { received: outcome, sent })
}

/// Runs each plan on a thread of its own, with its share of the connections; the first on this one when it is alone.
fn run_parts<W: Work + Send + 'static>(
    streams: Vec<TcpStream>, works: Vec<W>, pipeline: usize, plans: Vec<Plan>,
) -> Result<Outcome, String> {
    if let [plan] = plans[..] {
        return driver::run(streams, works, pipeline, plan);
    }
    let parts = plans.len();
    let mut shares: Vec<(Vec<TcpStream>, Vec<W>)> = (0..parts).map(|_| (Vec::new(), Vec::new())).collect();
    for (at, (stream, work)) in streams.into_iter().zip(works).enumerate() {
        let share = &mut shares[at % parts];
        share.0.push(stream);
        share.1.push(work);
    }
    let (done, results) = bounded(parts);
    let mut threads = Vec::new();
    for (part, ((streams, works), plan)) in shares.into_iter().zip(plans).enumerate() {
        let done = done.clone();
        let body = move || {
            let _ = done.send(driver::run(streams, works, pipeline, plan)); // received below, in any case
        };
        threads.push(Thread::spawn("bench", &format!("{part}"), body).map_err(|error| format!("cannot start a thread: {error}"))?);
    }
    drop(done);
    let results: Vec<Result<Outcome, String>> = results.iter().collect();
    drop(threads);
    let mut whole = Outcome::default();
    for result in results {
        whole.add(&result?);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::super::null_broker::NullBroker;
    use super::*;

    fn load() -> Load {
        Load {
            topic: "T".into(),
            queues: 4,
            connections: 3,
            pipeline: 4,
            body_bytes: 100,
            batch: 1,
            oneway: false,
            warm_up: Duration::from_millis(20),
            time: Duration::from_millis(100),
            count: None,
            rate: None,
            threads: 2,
            backlog: 500,
            max_bytes: None,
        }
    }

    #[test]
    fn loads_run_against_the_null_broker_and_every_message_counts() {
        let broker = NullBroker::start(0).unwrap();
        let target = Target::broker(&broker.address().to_string()).unwrap();
        for (threads, connections, pipeline, batch) in [(1, 1, 1, 1), (2, 3, 4, 1), (1, 2, 2, 8)] {
            let load = Load { threads, connections, pipeline, batch, count: Some(1000), ..load() };
            let outcome = send(&target, &load).unwrap();
            assert_eq!((outcome.messages, outcome.requests), (1000, 1000 / batch as u64), "{load:?}");
            assert_eq!(outcome.latencies.count(), outcome.requests);
            assert_eq!(outcome.body_bytes, 100_000);
        }
        let timed = send(&target, &load()).unwrap();
        assert!(timed.messages > 0 && timed.all_messages >= timed.messages && timed.elapsed_ns >= 90_000_000, "{timed:?}");
        let oneway = send(&target, &Load { oneway: true, count: Some(2000), ..load() }).unwrap();
        assert_eq!(oneway.messages, 2000);
        let bounded = send(&target, &Load { max_bytes: Some(50_000), ..load() }).unwrap();
        assert!(bounded.all_messages > 20 && bounded.all_messages < 500, "{}", bounded.all_messages);
        // Another topic has other bodies, whatever was sent last.
        send(&target, &Load { topic: "U".into(), body_bytes: 7, count: Some(1), ..load() }).unwrap();
        let pulled = pull(&target, &Load { batch: 32, count: Some(3200), ..load() }).unwrap();
        assert!(pulled.messages >= 2000, "the last pull of a stretch may bring fewer");
    }

    #[test]
    fn an_open_loop_keeps_its_rate() {
        let broker = NullBroker::start(0).unwrap();
        let target = Target::broker(&broker.address().to_string()).unwrap();
        let started = Instant::now();
        let load = Load { rate: Some(1000.0), count: Some(200), ..load() };
        let outcome = send(&target, &load).unwrap();
        assert_eq!(outcome.messages, 200);
        assert!(started.elapsed() >= Duration::from_millis(190), "not faster than the rate");
    }

    #[test]
    fn a_broker_that_stores_nothing_does_not_pass_for_one_that_does() {
        let broker = NullBroker::start(0).unwrap();
        let target = Target::broker(&broker.address().to_string()).unwrap();
        let load = Load { rate: Some(500.0), count: Some(20), ..load() };
        // Its pulls bring canned messages at once, which no run has stamped.
        let error = end_to_end(&target, &load).err().expect("an error");
        assert!(error.contains("did not send"), "{error}");
    }

    #[test]
    fn slots_spread_over_queues_and_within_them() {
        let ranges = [(0, 0, 100), (2, 50, 150)];
        let of = |slot| stretches(&ranges, slot, 1, 4)[0];
        assert_eq!(of(0), Stretch { queue_id: 0, at: 0, start: 0, end: Some(100) });
        assert_eq!(of(1), Stretch { queue_id: 2, at: 50, start: 50, end: Some(150) });
        assert_eq!(of(2), Stretch { queue_id: 0, at: 50, start: 0, end: Some(100) });
        assert_eq!(of(3), Stretch { queue_id: 2, at: 100, start: 50, end: Some(150) });
    }

    #[test]
    fn counts_are_shared_out_whole() {
        let load = Load { count: Some(103), batch: 10, ..load() };
        let plans: Vec<u64> = (0..3).map(|part| load.plan(Instant::now(), part, 3, 100, 10).max_requests).collect();
        assert_eq!(plans, [4, 4, 3]);
    }
}
